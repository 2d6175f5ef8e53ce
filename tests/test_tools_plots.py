"""Small plots: every number has its place, odd ones leave gaps, and all of it is valid SVG and HTML."""

import math
from itertools import pairwise

import pytest
from pages import read_page, read_picture

from pullback.tools.render.axis_scale import AxisScale, fit_scale, format_short
from pullback.tools.render.html_page import Page
from pullback.tools.render.svg_plots import Bar, draw_areas, draw_bars, draw_curves, draw_images

SVG = "{http://www.w3.org/2000/svg}"


def test_places_run_from_the_lower_end_to_the_upper():
    assert [AxisScale(2.0, 4.0).position(x) for x in (1.0, 2.0, 3.0, 4.0, 9.0)] == [0.0, 0.0, 0.5, 1.0, 1.0]
    assert [AxisScale(1e-2, 1e2, log=True).position(x) for x in (1e-2, 1.0, 1e2)] == [0.0, 0.5, 1.0]


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-3.0, 17.0), (1e-9, 2e-9), (1e20, 3e20), (-5.0, -4.9), (0, 7)])
def test_marks_of_a_linear_axis_are_round_and_inside(low, high):
    marks = [number for number, _ in AxisScale(low, high).ticks()]
    slack = 1e-9 * (high - low)
    assert 3 <= len(marks) <= 8
    assert all(low - slack <= m <= high + slack for m in marks)
    steps = {round((b - a) / (high - low), 6) for a, b in pairwise(marks)}
    assert len(steps) == 1


@pytest.mark.parametrize(("low", "high"), [(1e-8, 1e8), (0.5, 20.0), (0.011, 0.012), (1.0, 10.0), (3.0, 900.0)])
def test_marks_of_an_axis_by_powers_are_inside(low, high):
    marks = [number for number, _ in AxisScale(low, high, log=True).ticks()]
    assert 2 <= len(marks) <= 9
    assert all(low * 0.998 <= m <= high * 1.002 for m in marks)


@pytest.mark.parametrize("numbers", [[], [math.nan], [3.0], [0.0, 0.0], [-math.inf, 1.0], [1e300, -1e300], [5e-324]])
@pytest.mark.parametrize("log", [False, True])
def test_any_numbers_make_an_axis(numbers, log):
    scale = fit_scale(numbers, log=log)
    assert scale.low < scale.high
    assert math.isfinite(scale.high - scale.low)
    assert all(0 <= scale.position(x) <= 1 for x in numbers if scale.can_show(x))
    assert scale.ticks()


def test_numbers_are_brief():
    assert [format_short(x) for x in (0.0, 1.0, -2.5, 0.001, 1e-4, 123456.0, 1e5, 1.5e-7)] == [
        "0", "1", "-2.5", "0.001", "1e-4", "1.2e5", "1e5", "1.5e-7",
    ]  # fmt: skip


def paths_of(picture):
    return [p.attrib["d"] for p in read_picture(picture).iter(f"{SVG}path")]


def test_a_curve_goes_through_its_points():
    (path,) = paths_of(draw_curves({"a": ([0, 1, 2], [0.0, 1.0, 0.0])}))
    points = [tuple(map(float, p.split())) for p in path[1:].split("L")]
    assert [x for x, _ in points] == sorted(x for x, _ in points)
    assert points[0][1] == points[2][1] > points[1][1], "up is smaller in SVG"


def test_a_number_without_a_place_leaves_a_gap():
    (path,) = paths_of(draw_curves({"a": ([0, 1, 2, 3, 4], [1.0, 2.0, math.nan, 1.0, 2.0])}))
    assert path.count("M") == 2
    assert path.count("L") == 2
    (path,) = paths_of(draw_curves({"a": ([0, 1, 2], [1.0, 0.0, 2.0])}, log=True))
    assert path.count("M") == 2
    assert path.count("L") == 0


def test_long_curves_are_thinned_and_keep_their_peaks():
    ys = [0.0] * 100_000
    ys[54_321], ys[777] = 1.0, -1.0
    (path,) = paths_of(draw_curves({"a": (range(len(ys)), ys)}))
    heights = [float(p.split()[1]) for p in path[1:].split("L")]
    assert len(heights) <= 700
    assert heights.count(min(heights)) == heights.count(max(heights)) == 1


def test_areas_lie_on_top_of_each_other_and_keep_their_peaks():
    low, high = [1.0, 2.0, 1.0], [0.0, 2.0, 0.0]
    root = read_picture(draw_areas({"low": low, "high": high}, [False, True, True], text=str))
    below, above = (
        [tuple(map(float, p.split(","))) for p in e.get("points").split()] for e in root.iter(f"{SVG}polygon")
    )
    assert above[3:][::-1] == below[:3], "the floor of the second is the roof of the first"
    assert above[0] == below[0]
    assert above[1][1] < below[1][1], "up is smaller in SVG"
    assert sum(e.get("fill") == "gray" for e in root.iter(f"{SVG}rect")) == 2
    long = [0.0] * 100_000
    long[54_321] = 1.0
    (area,) = read_picture(draw_areas({"a": long}, [False] * len(long), text=str)).iter(f"{SVG}polygon")
    heights = [float(p.split(",")[1]) for p in area.get("points").split()]
    assert len(heights) <= 1400
    assert heights.count(min(heights)) == 1


def test_names_are_text_and_not_markup():
    odd = '<b>&"quoted"</b>'
    for picture in (
        draw_curves({odd: ([0], [1.0]), "b": ([0], [1.0])}, title=odd, x_label=odd, y_label=odd),
        draw_bars([Bar(odd, 1.0, odd)], title=odd),
        draw_images([[[0.5]]], [odd], [True], title=odd),
    ):
        assert odd in "".join(read_picture(picture).itertext())
    page = Page(odd)
    page.heading(odd)
    page.text(odd)
    page.code(odd)
    page.table([odd], [[odd]], numbers=[0])
    assert "b" not in read_page(page.html()).count


def test_bars_are_as_long_as_their_numbers():
    root = read_picture(draw_bars([Bar("a", 1.0), Bar("b", 2.0), Bar("c", 0.0), Bar("d", math.nan)]))
    lengths = [float(r.attrib["width"]) for r in root.iter(f"{SVG}rect")]
    assert lengths[1] == pytest.approx(2 * lengths[0], rel=1e-3)
    assert lengths[2:] == [0.0, 0.0]
    logarithmic = read_picture(draw_bars([Bar("a", 1e-6), Bar("b", 1.0), Bar("c", 0.0)], log=True))
    lengths = [float(r.attrib["width"]) for r in logarithmic.iter(f"{SVG}rect")]
    assert lengths[1] > lengths[0] > 0 == lengths[2]


@pytest.mark.parametrize(
    "picture", [draw_curves({}), draw_curves({"a": ([], [])}), draw_bars([]), draw_images([], [], [])]
)
def test_nothing_is_a_picture_too(picture):
    read_picture(picture)
