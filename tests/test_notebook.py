"""What a notebook shows: HTML fragments that are well-formed, bounded, without styles or names that could leak."""

import inspect
import re
import xml.etree.ElementTree as ElementTree
from urllib.parse import unquote

import numpy as np
import pytest

import pullback as pb
from pullback.arrays.html_text import escape, html_array, html_image, html_table
from pullback.graph.draw import draw_program

ODD = "<script>&'\""
#: Elements by which a fragment could change the rest of the page.
FOREIGN = {"script", "style", "link", "body", "html"}


def read_fragment(html):
    root = ElementTree.fromstring(f"<root>{html}</root>")
    for element in root.iter():
        assert element.tag.rpartition("}")[2] not in FOREIGN
        assert "id" not in element.attrib
        assert "class" not in element.attrib
        for name in ("style", "fill", "stroke"):
            # text and background are the page's: black or white of ours would vanish on a page of that color
            assert not re.search(r"(?<!-)color:|#000|#333|#fff|black|white", element.get(name, ""))
    return root


def texts(html):
    return [text.strip() for text in read_fragment(html).itertext() if text.strip()]


def cells(html):
    return ["".join(cell.itertext()) for cell in read_fragment(html).iter("td")]


def test_a_small_tensor_shows_its_numbers():
    html = pb.tensor([[1.0, -2.5], [0.0, 4.0]], requires_grad=True)._repr_html_()
    assert texts(html) == ["tensor float64[2, 2], requires_grad=True", "1", "-2.5", "0", "4"]
    styles = [cell.get("style") for cell in read_fragment(html).iter("td")]
    shares = [float(re.search(r"rgba\(.*,([\d.]+)\)", style)[1]) for style in styles]
    np.testing.assert_allclose(shares, [0.12, 0.31, 0.0, 0.5], atol=0.01)  # in proportion to the largest
    assert styles[0].split(",")[0] != styles[1].split(",")[0], "signs have colors of their own"


@pytest.mark.parametrize(
    ("array", "shown"),
    [
        (np.array(3.0), ["3"]),
        (np.array([True, False]), ["True", "False"]),
        (np.array([-7, 1 << 40]), ["-7", "1099511627776"]),
        (np.array([np.nan, np.inf, -np.inf]), ["nan", "inf", "-inf"]),
        (np.array([1 + 2j], "complex64"), ["1+2j"]),
        (np.array([0.0, 0.0]), ["0", "0"]),
        (np.array([1e308, -1e308]), ["1e+308", "-1e+308"]),
        (np.arange(4.0)[::-2], ["3", "1"]),
        (np.zeros((0, 3)), []),
        (np.zeros((2, 0, 3)), []),
        (np.array([0, 255], "uint8"), ["0", "255"]),
        (np.array([-128, 127], "int8"), ["-128", "127"]),
    ],
)
def test_tensors_of_every_kind(array, shown):
    assert cells(pb.tensor(array)._repr_html_()) == shown


def test_bfloat16_is_shown():
    pytest.importorskip("ml_dtypes")
    assert cells(pb.tensor([1.0, 2.5], dtype=pb.bfloat16)._repr_html_()) == ["1", "2.5"]


def test_a_large_tensor_shows_its_ends():
    html = pb.tensor(np.arange(3.0 * 1000 * 500).reshape(3, 1000, 500))._repr_html_()
    assert len(html) < 20_000
    assert "[0, :, :]" in texts(html)
    shown = cells(html)
    assert shown[0] == "0"
    assert shown[-1] == f"{1000 * 500 - 1:.4g}"
    assert shown.count("…") == 8 + 11  # a column, and a row that crosses it


def test_a_value_of_a_transform_leaves_the_text_to_the_notebook():
    seen = []

    def f(x):
        seen.append(x._repr_html_())
        return pb.sum(x)

    pb.vmap(pb.grad(f))(np.ones((2, 3)))
    assert seen == [None]
    pb.grad(f)(np.ones(2))
    assert seen[-1] is not None


def test_tables_are_escaped_and_bounded():
    html = html_table([ODD, "n"], [[ODD, str(i)] for i in range(1000)], numbers=(1,))
    assert cells(html)[:2] == [ODD, "0"]
    assert len(cells(html)) == 40
    assert "… and 980 more rows" in texts(html)
    assert len(escape("&" * 1000)) <= 5 * 200
    assert texts(html_array(ODD, np.ones(1)))[0] == ODD


def test_a_drawing_is_an_image_of_its_own():
    program = pb.stage(lambda x: pb.sum(pb.sin(x) * 0.5))(np.ones(3))
    (image,) = read_fragment(html_image(draw_program(program, "svg"))).iter("img")
    kind, _, data = image.get("src").partition(",")
    assert kind.startswith("data:image/svg+xml")
    assert unquote(data) == draw_program(program, "svg")


def loss(w, b=1.0):
    return pb.sum(w * w) * b


def build_step():
    graph = pb.Graph()
    x, w = graph.placeholder("x", (None, 2)), graph.variable("w", np.ones(2))
    value = pb.mean((x @ w) ** 2)
    (slope,) = graph.gradients(value, [w])
    return graph, graph.compile(value, updates=[(w, w - 0.5 * slope)])


def network_and_loss():
    network = pb.nn.Sequential(pb.nn.Linear(3, 4), pb.relu, pb.nn.Linear(4, 1))
    return network, pb.sum(network(np.ones((2, 3), "float32")))


def profile():
    x = pb.tensor(np.ones(1000), requires_grad=True)
    with pb.memory.profile() as found:
        pb.sum(pb.sin(x)).backward()
    return found


def budget_report():
    x = pb.tensor(np.ones(1000), requires_grad=True)
    with pb.memory_budget("1 MiB") as budget:
        pb.sum(pb.sin(x)).backward()
    return budget.report()


def compiled():
    f = pb.jit(loss)
    f(np.ones(3))
    return f


SHOWN = {
    "program": lambda: pb.stage(loss)(np.ones(2)),
    "graph": lambda: build_step()[0],
    "step": lambda: build_step()[1],
    "jit": compiled,
    "jit, not called": lambda: pb.jit(loss),
    "compiled form": lambda: compiled().last,
    "module": lambda: network_and_loss()[0],
    "gradient report": lambda: pb.tools.gradient_report(*network_and_loss()),
    "profile": profile,
    "difference": lambda: pb.memory.diff(profile(), profile()),
    "explanation": lambda: pb.memory.explain(loss(pb.tensor(np.ones(3), requires_grad=True))),
    "prediction": lambda: pb.memory.predict(loss, np.ones(3)),
    "budget": budget_report,
    "gradcheck": lambda: pb.gradcheck(loss, np.ones(3)),
    "certificate": lambda: pb.certify(pb.sinh, np.array([0.5])),
    "root": lambda: pb.implicit.solve.root(lambda x: x * x - 2, np.array(1.0)).report,
}


@pytest.mark.parametrize("kind", SHOWN)
def test_what_is_shown_is_a_bounded_fragment(kind):
    html = SHOWN[kind]()._repr_html_()
    assert texts(html)
    assert len(html) < 100_000


def test_modules_and_reports_of_many_parameters_stay_small():
    network = pb.nn.Sequential(*[pb.nn.Linear(1, 1) for _ in range(500)])
    assert len(network._repr_html_()) < 100_000
    value = pb.sum(network(np.ones((1, 1), "float32")))
    assert len(pb.tools.gradient_report(network, value)._repr_html_()) < 100_000
    assert "1000 parameters" in network._repr_html_().replace(",", "")


def test_a_long_program_shows_its_text_alone():
    def f(x):
        for _ in range(2000):
            x = pb.sin(x)
        return x

    html = pb.stage(f)(np.ones(2))._repr_html_()
    assert "<img" not in html
    assert len(html) < 100_000


def test_compiled_functions_tell_their_state():
    f = pb.jit(loss)
    assert repr(f) == "<jit of loss: not compiled yet>"
    f(np.ones(3))
    assert re.fullmatch(r"<jit of loss: 1 compiled form in [\d.]+ m?s, (native code|NumPy)>", repr(f))
    f(np.ones(4))
    assert re.fullmatch(r"<jit of loss: 2 compiled forms in [\d.]+ m?s, (native code|NumPy)>", repr(f))
    assert re.fullmatch(r"<loss\(float64\[4\]\) compiled: (native code|NumPy), [\d.]+ [mu]?s>", repr(f.last))
    traced = f.lower(np.ones(5))
    assert "only traced yet" in repr(traced)
    assert "code" not in vars(traced), "a repr compiles nothing"
    assert cells(f._repr_html_())[:1] == ["float64[3]"]


def test_transforms_say_what_they_made():
    assert repr(pb.grad(loss)) == "<gradient of loss with respect to w>"
    assert repr(pb.grad(loss, (0, 1))) == "<gradient of loss with respect to w and b>"
    assert repr(pb.value_and_grad(loss, argnums=-1)) == "<value and gradient of loss with respect to b>"
    assert repr(pb.elementwise_grad(pb.sin)) == "<elementwise derivative of sin with respect to x>"
    assert repr(pb.grad(pb.grad(loss))) == "<gradient of (gradient of loss with respect to w) with respect to w>"
    assert repr(pb.jit(pb.grad(loss))) == "<jit of (gradient of loss with respect to w): not compiled yet>"
    assert repr(pb.vmap(loss)) == "<vmap of loss>"
    assert repr(pb.grad(max)) == "<gradient of max with respect to argument 0>"
    assert repr(pb.grad(loss, 5)) == "<gradient of loss with respect to argument 5>"
    assert inspect.signature(pb.grad(loss)) == inspect.signature(loss)


def test_steps_of_graphs_say_what_they_do():
    graph, step = build_step()
    assert repr(step) == "<step of a graph: feeds x; updates w; 1 fetched; not compiled yet>"
    step(x=np.eye(2))
    step(x=np.ones((3, 2)))
    assert repr(step) == "<step of a graph: feeds x; updates w; 1 fetched; compiled for 2 choices of sizes>"
    assert cells(graph._repr_html_())[:3] == ["x", "placeholder", "x: float64[None, 2] of a graph"]
