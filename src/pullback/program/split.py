"""Staged pullback in, a forward and a backward program out: what needs no cotangent runs in the forward pass, and is
saved or recomputed.

The staged pullback of a function is one program of its arguments and of the cotangents. Whatever does not depend on
the cotangents belongs to the forward pass, where most of it is computed anyway. Of the residuals, cheap ones are
recomputed in the backward pass, if that saves no more bytes than saving them would.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass

from ..ops.shape.reshaping import reshape_op
from .ir import Equation, Program, Symbol
from .passes import drop_unused, fold_constants, merge_equal


@dataclass(frozen=True, slots=True)
class ForwardBackward:
    """`forward` returns the results and then saved values; `backward` takes the residuals, then the cotangents.

    `residual_sources` has for each residual where the forward has it: ("argument", i) or ("result", i).
    """

    forward: Program
    backward: Program
    residual_sources: tuple[tuple[str, int], ...]


def split_forward_backward(
    whole: Program, arguments: int, results: int, is_cheap: Callable[[Equation], bool], carries: int = 0
) -> ForwardBackward:
    """`whole` takes arguments and then cotangents, and returns results and then the arguments' cotangents. The first
    `carries` arguments and results are gone when the backward pass runs (a loop has overwritten them): they are saved
    like any other value.
    """
    for run in (fold_constants, merge_equal, drop_unused):  # these passes keep what a derivative would see
        whole = run(whole)
    xs, bars = whole.inputs[:arguments], whole.inputs[arguments:]
    outs, shares = whole.outputs[:results], whole.outputs[results:]
    early, late = _split_by_cotangent(whole.equations, bars)
    places: dict[int, tuple[str, int]] = {id(s): ("result", i) for i, s in enumerate(outs) if i >= carries}
    places |= {id(s): ("argument", i) for i, s in enumerate(xs) if i >= carries}
    made = {id(s) for e in late for s in e.results} | {id(s) for s in bars}
    # what the backward part needs of the forward part
    crossing = {id(a): a for e in late for a in e.args if isinstance(a, Symbol) and id(a) not in made}
    crossing |= {id(s): s for s in shares if isinstance(s, Symbol) and id(s) not in made}
    taken = _take_from_results(early, crossing, places)
    recomputed = taken + _choose_recomputed(early, crossing, places.keys(), is_cheap)
    saved = [s for s in crossing.values() if id(s) not in places]
    # what is recomputed may have been the only use of a forward value
    forward = drop_unused(Program(xs, tuple(early), (*outs, *saved)))
    places |= {id(s): ("result", results + i) for i, s in enumerate(saved)}
    residuals = tuple(crossing.values())
    backward = Program((*residuals, *bars), (*recomputed, *late), shares)
    return ForwardBackward(forward, backward, tuple(places[id(s)] for s in residuals))


def _split_by_cotangent(equations: Sequence[Equation], bars: Sequence[Symbol]) -> tuple[list[Equation], list[Equation]]:
    """Equations that do not depend on the cotangents, and those that do."""
    dependent = {id(s) for s in bars}
    early: list[Equation] = []
    late: list[Equation] = []
    for e in equations:
        if any(id(a) in dependent for a in e.args):
            late.append(e)
            dependent |= {id(s) for s in e.results}
        else:
            early.append(e)
    return early, late


def _take_from_results(
    early: Sequence[Equation], crossing: dict[int, Symbol], places: dict[int, tuple[str, int]]
) -> list[Equation]:
    """Replace values in `crossing` whose reshape is a result by that result; returns equations that shape it back."""
    shaped: list[Equation] = []
    for e in early:
        (out, *_), value = e.results, e.args[0] if e.args else None
        is_result = e.op is reshape_op and places.get(id(out), ("", 0))[0] == "result"
        if is_result and isinstance(value, Symbol) and id(value) in crossing and id(value) not in places:
            del crossing[id(value)]
            crossing[id(out)] = out
            shaped.append(Equation((value,), reshape_op, (out,), {"shape": value.spec.shape}))
    return shaped


def _choose_recomputed(
    early: Sequence[Equation], crossing: dict[int, Symbol], found: Set[int], is_cheap: Callable[[Equation], bool]
) -> list[Equation]:
    """Replace cheap values in `crossing` by what they are computed from; returns their equations, in order."""
    recomputed: list[Equation] = []
    # from the last to the first, so that chains of cheap equations are followed back to their beginning
    for e in reversed(early):
        result = e.results[0]
        if id(result) not in crossing or id(result) in found or len(e.results) > 1 or not is_cheap(e):
            continue
        args = {id(a): a for a in e.args if isinstance(a, Symbol) and id(a) not in crossing}
        # what is small beside the result, such as statistics of rows, does not count
        if 4 * sum(a.spec.nbytes for i, a in args.items() if i not in found) <= 5 * result.spec.nbytes:
            del crossing[id(result)]
            crossing |= args
            recomputed.append(e)
    return recomputed[::-1]
