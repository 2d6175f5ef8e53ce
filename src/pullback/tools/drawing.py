"""`draw`: the program of a tensor, a graph or a compiled function, as text or a picture."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..arrays.node import Node
from ..arrays.spec import Spec
from ..arrays.tensor import Tensor
from ..compile.jit import Jitted
from ..compile.specialization import Specialization
from ..errors import ArgumentError
from ..graph.draw import FORMS, DrawingCard, draw_cards, draw_program
from ..ops.op import PartRule
from ..program.ir import Program
from ..program.text import format_program, format_spec
from ..tape.sweep import order_deepest_first
from ..transforms.stage import stage


def draw(
    x: Any,
    /,
    *args: Any,
    path: str | Path | None = None,
    form: str | None = None,
    names: Mapping[str, Tensor] | None = None,
) -> str:
    """The program behind a tensor (its tape), in a graph, or of a function at example arguments, compiled or not. Its
    `form` is "text", "svg" or "html", self-contained pictures, or "dot", for graphviz; with `path` it is written to a
    file, whose suffix (.txt, .svg, .html, .dot) sets the form. Leaves of a tape are shown by their `names`.

    >>> import pullback as pb
    >>> w = pb.tensor([1.0, 2.0], requires_grad=True)
    >>> print(pb.tools.draw(pb.sum(pb.sin(w) * w), names={"w": w}))
    w: float64[2] = leaf
    t0: float64[2] = sin(w)
    t1: float64[2] = multiply(t0, w)
    t2: float64[] = sum(t1)
    """
    form = _resolve_format(path, form)
    if isinstance(x, Tensor):
        if args:
            raise ArgumentError("draw: a tensor's tape takes no further arguments; write path='...' for a file.")
        picture = _draw_tape(x, form, names or {})
    else:
        graph = _graph_of(x, args)
        picture = format_program(graph, data=False) if form == "text" else draw_program(graph, form)
    if path is not None:
        Path(path).write_text(picture, encoding="utf-8")
    return picture


def _resolve_format(path: str | Path | None, form: str | None) -> str:
    if path is not None and form is None:
        form = {".txt": "text", **FORMS}.get(Path(path).suffix.lower())
        if form is None:
            raise ArgumentError(f"draw: writes .svg, .html, .dot or .txt files, got {str(path)!r}.")
    form = form or "text"
    if form not in ("text", *FORMS.values()):
        raise ArgumentError(f"draw: the form is 'text', 'svg', 'html' or 'dot', got {form!r}.")
    return form


def _graph_of(x: Any, args: tuple[Any, ...]) -> Program:
    if isinstance(x, (Program, Specialization)):
        return x if isinstance(x, Program) else x.graph
    if isinstance(x, Jitted):
        if args:
            return x.lower(*args).graph
        if x.last is None:
            raise ArgumentError("draw: this function was not called yet.\n  Give example arguments: draw(f, *args).")
        return x.last.graph
    if callable(x) and args:
        return stage(x)(*args)
    raise ArgumentError(
        f"draw: wants a tensor, a graph, a compiled function, or a function and example arguments, got a "
        f"{type(x).__name__}."
    )


def _draw_tape(x: Tensor, form: str, names: Mapping[str, Tensor]) -> str:
    if x.node is None:
        raise ArgumentError("draw: nothing was recorded for this tensor: it does not require its gradient.")
    nodes = order_deepest_first([x.node])[::-1]
    known = {id(t.node): name for name, t in names.items() if t.node is not None}
    labels = _name_nodes(nodes, known)
    lines = [_node_line(node, labels) for node in nodes]
    if form == "text":
        return "\n".join(lines)
    places = {id(node): i for i, node in enumerate(nodes)}
    cards = [_node_card(node, line, known) for node, line in zip(nodes, lines, strict=True)]
    edges = [(places[id(p)], places[id(n)]) for n in nodes for p in dict.fromkeys(n.parents)]
    text = "\n".join(f"{line}  # {n.where()}" for n, line in zip(nodes, lines, strict=True))
    return draw_cards(cards, edges, text, form)


def _name_nodes(nodes: list[Node], known: Mapping[int, str]) -> dict[int, str]:
    """A name for each value: the user's, x0, x1 for other leaves, t0, t1 for what was computed."""
    counts = {"x": 0, "t": 0}
    labels = {}
    for node in nodes:
        letter = "x" if node.is_leaf else "t"
        labels[id(node)] = known.get(id(node), f"{letter}{counts[letter]}")
        counts[letter] += id(node) not in known
    return labels


def _node_line(node: Node, labels: Mapping[int, str]) -> str:
    made = f"{labels[id(node)]}: {_format_specs(node)}"
    if node.is_leaf:
        return f"{made} = leaf"
    if isinstance(node.rule, PartRule):
        return f"{made} = {labels[id(node.parents[0])]}[{node.rule.index}]"
    return f"{made} = {node.name}({', '.join(labels[id(p)] for p in node.parents)})"


def _format_specs(node: Node) -> str:
    specs = (node.spec,) if isinstance(node.spec, Spec) else node.spec
    return ", ".join(map(format_spec, specs))


def _node_card(node: Node, line: str, known: Mapping[int, str]) -> DrawingCard:
    hint = f"{line}\nmade at {node.where()}"
    if node.is_leaf:
        return DrawingCard(known.get(id(node), "leaf"), _format_specs(node), hint, "input")
    part = f" [{node.rule.index}]" if isinstance(node.rule, PartRule) else ""
    return DrawingCard(f"{node.name}{part}"[:40], _format_specs(node), hint, node.rule.op.family)
