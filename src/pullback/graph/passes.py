"""Graph in, an equal but smaller one out: passes are named functions, in one tuple in their order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace as replaced
from typing import Any

from ..arrays.backends import is_array
from ..errors import PullbackError
from ..ops import elementwise as pointwise
from ..ops.dispatch import compute
from ..ops.forms import Again, Cast, Expand, Place
from ..ops.op import OPS
from ..ops.specialise import Equation, Symbol, write_down
from .ir import Graph
from .verify import verified

__all__ = [
    "PASSES", "drop_unused", "expand", "fold_constants", "merge_equal", "numbers_first", "optimised", "plain_places",
    "simplify",
]  # fmt: skip

#: Constants larger than this many elements are not computed ahead: they would only fill memory.
LARGEST_CONSTANT = 1 << 12


class Renaming:
    """What values a pass replaced, by what."""

    def __init__(self) -> None:
        self.known: dict[int, Any] = {}
        self.held: list[Any] = []  # ids stay valid while their objects live

    def put(self, old: Symbol, new: Any) -> None:
        self.known[id(old)] = new
        self.held.append(old)

    def of(self, x: Any) -> Any:
        return self.known.get(id(x), x)

    def equation(self, e: Equation) -> Equation:
        if not self.known or not any(id(a) in self.known for a in e.args):
            return e
        return Equation(e.results, e.op, tuple([self.of(a) for a in e.args]), e.static)


def optimised(graph: Graph) -> Graph:
    """The graph after all passes, verified after each; only equations that a pass made are asked for their specs."""
    trusted = {id(e) for e in graph.equations}
    seen = [graph]  # ids stay valid while their objects live
    for run in PASSES:
        graph = verified(run(graph), trusted)
        trusted |= {id(e) for e in graph.equations}
        seen.append(graph)
    return graph


def _rewritten(graph: Graph, replace: Callable[[Equation], Sequence[Any] | None]) -> Graph:
    """Each equation for which `replace` answers values is dropped, and its results become those values."""
    names = Renaming()
    kept = []
    for e in graph.equations:
        e = names.equation(e)
        values = replace(e)
        if values is None:
            kept.append(e)
        else:
            for old, new in zip(e.results, values, strict=True):
                names.put(old, new)
    return replaced(graph, equations=tuple(kept), outputs=tuple(names.of(o) for o in graph.outputs))


def fold_constants(graph: Graph) -> Graph:
    """Equations without symbols are computed now."""

    def replace(e: Equation) -> Sequence[Any] | None:
        if any(isinstance(a, Symbol) for a in e.args) or any(s.spec.size > LARGEST_CONSTANT for s in e.results):
            return None
        out = compute(e.op, list(e.args), e.static)
        return out if type(out) is tuple else (out,)

    return _rewritten(graph, replace)


def _is_number(x: Any, value: float) -> bool:
    return not isinstance(x, Symbol) and not (is_array(x) and x.ndim) and bool(x == value)


def _is_one(x: Any) -> bool:
    return _is_number(x, 1)


#: Rules as data: (op, which argument must be what, which argument is the result). The spec must stay the same.
IDENTITIES: tuple[tuple[Any, int | None, Callable[[Any], bool] | None, int], ...] = (
    (pointwise.multiply.op, 1, _is_one, 0),
    (pointwise.multiply.op, 0, _is_one, 1),
    (pointwise.divide.op, 1, _is_one, 0),
    (pointwise.subtract.op, 1, lambda x: _is_number(x, 0), 0),
    (pointwise.positive.op, None, None, 0),
    (pointwise.stop_gradient.op, None, None, 0),
    (pointwise.unrecorded.op, None, None, 0),
    (pointwise.power.op, 1, _is_one, 0),
)


def expand(graph: Graph) -> Graph:
    """Ops that can be written in other ops, such as the search for a root as a loop, are; at compile time alone, since
    they have derivatives of their own.
    """
    if not any(isinstance(e.op.form, Expand) for e in graph.equations):
        return graph
    names = Renaming()
    lines: list[Equation] = []
    for e in graph.equations:
        e = names.equation(e)
        written = _written(e) if isinstance(e.op.form, Expand) else None
        if written is None:
            lines.append(e)
            continue
        made, outs = written
        lines += made
        for old, new in zip(e.results, outs, strict=True):
            names.put(old, new)
    return replaced(graph, equations=tuple(lines), outputs=tuple(names.of(o) for o in graph.outputs))


def _written(e: Equation) -> tuple[Sequence[Equation], Sequence[Any]] | None:
    """An equation as others, on its own arguments; None if its op cannot do that here."""
    places = [i for i, a in enumerate(e.args) if isinstance(a, Symbol)]

    def function(*symbols: Any) -> Any:
        args = list(e.args)
        for i, s in zip(places, symbols, strict=True):
            args[i] = s
        return e.op.form.written(*args, **e.static)

    try:
        inputs, equations, out = write_down(function, *(e.args[i].spec for i in places))
    except PullbackError:  # it asks for numbers, or for what has no spec: the array library runs it, and words errors
        return None
    if out is None:
        return None
    outs = out if type(out) is tuple else (out,)
    names = Renaming()
    for symbol, i in zip(inputs, places, strict=True):
        names.put(symbol, e.args[i])
    return expand_inside([names.equation(line) for line in equations]), [names.of(o) for o in outs]


def expand_inside(equations: Sequence[Equation]) -> list[Equation]:
    """The same for what an expansion was written in."""
    found = expand(Graph((), tuple(equations), ()))
    return list(found.equations)


def simplify(graph: Graph) -> Graph:
    """Equations that change nothing are left out."""
    rules: dict[Any, list[tuple[int | None, Callable[[Any], bool] | None, int]]] = {}
    for op, which, test, result in IDENTITIES:
        rules.setdefault(op.name, []).append((which, test, result))

    def replace(e: Equation) -> Sequence[Any] | None:
        for which, test, result in rules.get(e.op.name, ()):
            if which is not None and test is not None and not test(e.args[which]):
                continue
            found = e.args[result]
            if isinstance(found, Symbol) and found.spec == e.results[0].spec:
                return (found,)
        return None

    return _rewritten(graph, replace)


def plain_places(graph: Graph) -> Graph:
    """Zeros with a value added at every place are the value in another shape."""

    def replaced_by(e: Equation) -> Equation:
        if not isinstance(e.op.form, Place) or len(e.args) > 1:
            return e
        whole = all(entry is None or entry == slice(None) for entry in e.static["index"])
        return Equation(e.results, OPS["reshape"], e.args, {"shape": e.results[0].spec.shape}) if whole else e

    return replaced(graph, equations=tuple(replaced_by(e) for e in graph.equations))


def merge_equal(graph: Graph) -> Graph:
    """The same op on the same values is computed once, unless a checkpoint wants it computed again."""
    seen: dict[tuple[Any, ...], tuple[Any, ...]] = {}

    def replace(e: Equation) -> Sequence[Any] | None:
        if isinstance(e.op.form, Again):
            return None
        args = tuple(
            ("value", id(a)) if isinstance(a, Symbol) or is_array(a) else (type(a).__name__, repr(a)) for a in e.args
        )
        key = (id(e.op), args, repr(sorted(e.static.items(), key=lambda item: item[0])))
        if key in seen:
            return seen[key]
        seen[key] = e.results
        return None

    return _rewritten(graph, replace)


def drop_unused(graph: Graph) -> Graph:
    """Equations whose results nobody uses are left out."""
    wanted = {id(o) for o in graph.outputs}
    kept = []
    for e in reversed(graph.equations):
        if any(id(s) in wanted for s in e.results):
            kept.append(e)
            wanted |= {id(a) for a in e.args}
    return replaced(graph, equations=tuple(reversed(kept)))


def numbers_first(graph: Graph) -> Graph:
    """Single numbers that hang on numbers alone (a learning rate, a count of steps) are computed before anything else,
    so that they keep no two loops apart.
    """
    early = {id(x) for x in graph.inputs if not x.spec.shape}

    def is_early(e: Equation) -> bool:
        alone = e.op.family == "elementwise" or isinstance(e.op.form, Cast)
        return alone and all(id(a) in early or (not isinstance(a, Symbol) and not _has_axes(a)) for a in e.args)

    first, rest = [], []
    for e in graph.equations:
        if is_early(e):
            early |= {id(s) for s in e.results}
            first.append(e)
        else:
            rest.append(e)
    return replaced(graph, equations=(*first, *rest))


def _has_axes(x: Any) -> bool:
    return is_array(x) and bool(x.ndim)


#: The passes in the order in which they run.
PASSES = (expand, simplify, fold_constants, simplify, plain_places, merge_equal, drop_unused, numbers_first)
