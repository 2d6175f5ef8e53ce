"""Drawings of tapes, graphs and compiled functions: text, SVG and HTML."""

import numpy as np
import pytest
from pages import read_page, read_picture

import pullback as pb
from pullback.errors import ArgumentError

SVG = "{http://www.w3.org/2000/svg}"


def f(x):
    return pb.sum(pb.sin(x) * x)


@pytest.fixture
def loss():
    w = pb.tensor(np.ones(3), requires_grad=True)
    return f(w)


def nodes_and_edges(text):
    root = read_picture(text)
    nodes = {g.attrib["id"] for g in root.iter(f"{SVG}g") if g.attrib.get("class") == "node"}
    edges = [(p.attrib["data-from"], p.attrib["data-to"]) for p in root.iter(f"{SVG}path") if "data-from" in p.attrib]
    assert {end for edge in edges for end in edge} <= nodes
    return nodes, edges


def test_the_tape_of_a_tensor_as_text(loss):
    assert pb.tools.draw(loss).split("\n") == [
        "x0: float64[3] = leaf",
        "t0: float64[3] = sin(x0)",
        "t1: float64[3] = multiply(t0, x0)",
        "t2: float64[] = sum(t1)",
    ]


def test_names_of_leaves_are_shown():
    w, b = (pb.tensor(1.0, requires_grad=True) for _ in range(2))
    lines = pb.tools.draw(w * w + b, names={"w": w}).split("\n")
    assert {"w: float64[] = leaf", "x0: float64[] = leaf", "t0: float64[] = multiply(w, w)"} <= set(lines)
    assert ">w<" in pb.tools.draw(w * b, names={"w": w}, form="svg")


def test_the_tape_as_a_picture(loss):
    nodes, edges = nodes_and_edges(pb.tools.draw(loss, form="svg"))
    assert (len(nodes), len(edges)) == (4, 4)


def test_an_op_with_several_results_has_a_part_for_each():
    a = pb.tensor(np.array([[2.0, 1.0], [1.0, 3.0]]), requires_grad=True)
    values, vectors = pb.linalg.eigh(a)
    text = pb.tools.draw(pb.sum(values) + pb.sum(vectors**2))
    assert "[0]" in text
    assert "[1]" in text
    assert "eigh(x0)" in text
    nodes_and_edges(pb.tools.draw(pb.sum(values), form="svg"))


def test_drawing_leaves_the_tape_as_it_was(loss):
    pb.tools.draw(loss, form="html")
    loss.backward()


@pytest.mark.parametrize("made", ["graph", "function", "compiled", "called", "lowered"])
def test_programs_are_drawn(made):
    x = np.ones(3)
    jitted = pb.jit(f)
    if made == "called":
        jitted(x)
    args = {
        "graph": (pb.stage(f)(x),), "function": (f, x), "compiled": (jitted, x), "called": (jitted,),
        "lowered": (jitted.lower(x),),
    }[made]  # fmt: skip
    text = pb.tools.draw(*args)
    assert "sin(x0)" in text
    assert "return" in text
    nodes, edges = nodes_and_edges(pb.tools.draw(*args, form="svg"))
    assert len(nodes) == 5
    assert len(edges) == 5


@pytest.mark.parametrize("name", ["a.svg", "a.html", "a.txt"])
def test_files_hold_what_was_answered(loss, tmp_path, name):
    text = pb.tools.draw(loss, path=tmp_path / name)
    assert (tmp_path / name).read_text() == text
    if name == "a.html":
        assert read_page(text).count["svg"] == 1
    else:
        assert text.startswith("<svg" if name == "a.svg" else "x0")


def test_what_cannot_be_drawn_is_refused(loss, tmp_path):
    with pytest.raises(ArgumentError, match=r"writes .svg, .html or .txt"):
        pb.tools.draw(loss, path=tmp_path / "a.png")
    with pytest.raises(ArgumentError, match="the form is"):
        pb.tools.draw(loss, form="dot")
    with pytest.raises(ArgumentError, match="does not require its gradient"):
        pb.tools.draw(pb.tensor(1.0))
    with pytest.raises(ArgumentError, match="not called yet"):
        pb.tools.draw(pb.jit(f))
    with pytest.raises(ArgumentError, match="wants a tensor, a graph"):
        pb.tools.draw(f)
    with pytest.raises(ArgumentError, match="no further arguments"):
        pb.tools.draw(loss, 3)


def test_a_long_tape_is_drawn_without_recursion():
    x = pb.tensor(1.0, requires_grad=True)
    y = x
    for _ in range(3000):
        y = pb.sin(y)
    assert pb.tools.draw(y).count("\n") == 3000
