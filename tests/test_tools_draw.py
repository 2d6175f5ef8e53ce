"""Drawings of tapes, graphs and compiled functions: text, SVG, HTML and DOT."""

import re
import shutil
import subprocess

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


@pytest.mark.parametrize("name", ["a.svg", "a.html", "a.txt", "a.dot"])
def test_files_hold_what_was_answered(loss, tmp_path, name):
    text = pb.tools.draw(loss, path=tmp_path / name)
    assert (tmp_path / name).read_text() == text
    if name == "a.html":
        assert read_page(text).count["svg"] == 1
    else:
        assert text.startswith({"a.svg": "<svg", "a.dot": "digraph", "a.txt": "x0"}[name])


def test_what_cannot_be_drawn_is_refused(loss, tmp_path):
    with pytest.raises(ArgumentError, match=r"writes .svg, .html, .dot or .txt"):
        pb.tools.draw(loss, path=tmp_path / "a.png")
    with pytest.raises(ArgumentError, match="the form is"):
        pb.tools.draw(loss, form="png")
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


def read_dot(text):
    """The lines of boxes and of arrows, each arrow between boxes that are there."""
    boxes = re.findall(r'^  n(\d+) \[label="(.*?[^\\])\\n', text, re.MULTILINE)
    arrows = re.findall(r"^  n(\d+) -> n(\d+);$", text, re.MULTILINE)
    assert text.startswith("digraph program {\n")
    assert text.endswith("}\n")
    assert {number for arrow in arrows for number in arrow} <= {number for number, _ in boxes}
    return dict(boxes), arrows


def test_dot_has_the_boxes_and_arrows_of_the_picture(tmp_path):
    w = pb.tensor([1.0, 2.0], requires_grad=True)
    tape = pb.sum(pb.sin(w) * w)
    boxes, arrows = read_dot(pb.exchange.to_dot(tape, names={'w "1"': w}, path=tmp_path / "a.dot"))
    assert list(boxes.values()) == ['w \\"1\\"', "sin", "multiply", "sum"]
    assert sorted(arrows) == [("0", "1"), ("0", "2"), ("1", "2"), ("2", "3")]
    assert (tmp_path / "a.dot").read_text() == pb.tools.draw(tape, names={'w "1"': w}, form="dot")
    examples = [
        (lambda x: pb.sum(pb.sin(x)), np.ones(3)),
        (pb.jit(pb.grad(pb.sum)), np.ones(3)),
        (pb.stage(pb.sin)(1.0),),
    ]
    for args in examples:
        nodes, edges = nodes_and_edges(pb.tools.draw(*args, form="svg"))
        boxes, arrows = read_dot(pb.exchange.to_dot(*args))
        assert (len(boxes), len(arrows)) == (len(nodes), len(edges))


@pytest.mark.skipif(shutil.which("dot") is None, reason="no graphviz")
def test_graphviz_reads_dot():
    text = pb.exchange.to_dot(lambda x: pb.scan(lambda c, r: (c * r, c), x[0], x), np.ones(3))
    done = subprocess.run(["dot", "-Tsvg"], input=text, capture_output=True, text=True, check=True)
    assert not done.stderr
    assert done.stdout.count('class="node"') == len(read_dot(text)[0])
