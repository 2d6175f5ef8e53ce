"""A staged way back in, two programs out: what needs no cotangent runs with the forward pass, and is kept or computed
again.

The staged pull of a function is one program of its arguments and of the cotangents. Whatever does not depend on
the cotangents belongs to the forward pass, where most of it is computed anyway. Of the values that cross over, those
that are cheap are computed again on the way back, if that keeps no more bytes than keeping them would.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..graph.ir import Graph
from ..graph.passes import drop_unused, fold_constants, merge_equal
from ..ops.forms import Cast
from ..ops.specialise import Equation, Symbol
from .views import is_view
from .words import CHEAP, Weigher

__all__ = ["Parted", "parted"]


@dataclass(frozen=True, slots=True)
class Parted:
    """`forward` answers the results and then what is kept; `backward` takes the held values, then the cotangents.

    `held` says for each held value where it is found: ("argument", i) or ("result", i), counted through the forward's.
    """

    forward: Graph
    backward: Graph
    held: tuple[tuple[str, int], ...]


def parted(whole: Graph, arguments: int, results: int) -> Parted:
    """`whole` takes arguments and then cotangents, and answers results and then shares of the arguments."""
    for run in (fold_constants, merge_equal, drop_unused):  # none of them takes away what a derivative would see
        whole = run(whole)
    xs, bars = whole.inputs[:arguments], whole.inputs[arguments:]
    outs, shares = whole.outputs[:results], whole.outputs[results:]
    early, late = _apart(whole.equations, bars)
    found = {id(s) for s in (*xs, *outs) if isinstance(s, Symbol)}
    made = {id(s) for e in late for s in e.results} | {id(s) for s in bars}
    crossing = {id(a): a for e in late for a in e.args if isinstance(a, Symbol) and id(a) not in made}
    crossing |= {id(s): s for s in shares if isinstance(s, Symbol) and id(s) not in made}
    again = _computed_again(early, crossing, found)
    kept = [s for s in crossing.values() if id(s) not in found]
    forward = drop_unused(Graph(xs, tuple(early), (*outs, *kept)))
    places: dict[int, tuple[str, int]] = {id(s): ("result", i) for i, s in enumerate((*outs, *kept))}
    places |= {id(s): ("argument", i) for i, s in enumerate(xs)}
    held = tuple(crossing.values())
    backward = Graph((*held, *bars), (*again, *late), shares)
    return Parted(forward, backward, tuple(places[id(s)] for s in held))


def _apart(equations: Sequence[Equation], bars: Sequence[Symbol]) -> tuple[list[Equation], list[Equation]]:
    """Equations that do without the cotangents, and those that hang on them."""
    hanging = {id(s) for s in bars}
    early: list[Equation] = []
    late: list[Equation] = []
    for e in equations:
        if any(id(a) in hanging for a in e.args):
            late.append(e)
            hanging |= {id(s) for s in e.results}
        else:
            early.append(e)
    return early, late


def _computed_again(early: Sequence[Equation], crossing: dict[int, Symbol], found: set[int]) -> list[Equation]:
    """Take cheap values out of `crossing`, and put in what they are computed from; the equations, in their order."""
    again: list[Equation] = []
    for e in reversed(early):
        result = e.results[0]
        if id(result) not in crossing or id(result) in found or not _is_cheap(e):
            continue
        args = {id(a): a for a in e.args if isinstance(a, Symbol) and id(a) not in crossing}
        if sum(a.spec.nbytes for i, a in args.items() if i not in found) <= result.spec.nbytes:
            del crossing[id(result)]
            crossing |= args
            again.append(e)
    return again[::-1]


def _is_cheap(e: Equation) -> bool:
    """Whether computing a value again costs less than fetching it from memory."""
    if len(e.results) > 1:
        return False
    if e.op.family == "elementwise" and e.op.kernel is not None:
        return Weigher.weigh(e.op, len(e.args)) <= CHEAP
    if isinstance(e.op.form, Cast):
        return True
    return is_view(e)
