"""Program in, a part of it out: what lies between some of its values, or its equations cut into stages."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..arrays.argument_checks import check_count, check_functions, short_repr
from ..arrays.spec import spec_of
from ..errors import ArgumentError
from ..ops.forms import Name
from .ir import Equation, Program, Symbol
from .text import value_names

#: A stage may cost so much more than the mean, if that makes for fewer bytes between stages.
_IMBALANCE = 1.25


class Stage(NamedTuple):
    """A part of a program. `program` takes what the stage before returned, and then those arguments of the whole
    program whose numbers are `arguments`.
    """

    program: Program
    arguments: tuple[int, ...]


def extract_subgraph(program: Program, inputs: Any, outputs: Any) -> Program:
    """The part between some values: see `Program.subgraph`."""
    known = _values_by_name(program)
    starts = [_find(x, known, program) for x in _as_list(inputs)]
    ends = [_find(x, known, program) for x in _as_list(outputs)] if outputs is not None else list(program.outputs)
    if len({id(s) for s in starts}) < len(starts):
        raise ArgumentError("subgraph: an input is named twice.")
    needed, equations = {id(x) for x in ends if isinstance(x, Symbol)}, []
    given = {id(s) for s in starts}
    for e in reversed(program.equations):
        wanted = [id(s) for s in e.results if id(s) in needed and id(s) not in given]
        if wanted:
            equations.append(e)
            needed |= {id(a) for a in e.args if isinstance(a, Symbol)}
    _refuse_parts_of_results(equations, given)
    for asked, symbol in zip(_as_list(inputs), starts, strict=True):
        if id(symbol) not in needed:
            raise ArgumentError(f"subgraph: the outputs do not depend on {asked!r}.")
    rest = [s for s in program.inputs if id(s) in needed and id(s) not in given]
    return Program((*starts, *rest), tuple(equations[::-1]), tuple(ends))


def _refuse_parts_of_results(equations: Sequence[Equation], given: set[int]) -> None:
    """An op of several results is inside or outside as a whole, since it is one equation."""
    for e in equations:
        if any(id(s) in given for s in e.results):
            raise ArgumentError(
                f"subgraph: {e.op.name} has several results, of which one is an input and another is needed besides.\n"
                "  Name all of its results that are used as inputs."
            )


def _as_list(values: Any) -> list[Any]:
    return [] if values is None else list(values) if isinstance(values, (list, tuple)) else [values]


def _values_by_name(program: Program) -> dict[str, Symbol]:
    """The values of a program by the names that its text has for them; then by those that `pb.name` gave."""
    names = value_names(program)
    symbols = [*program.inputs, *(s for e in program.equations for s in e.results)]
    return {names[id(s)]: s for s in symbols} | {name: found[-1] for name, found in _given_names(program).items()}


def _given_names(program: Program) -> dict[str, list[Symbol]]:
    """The values that `pb.name` gave each name."""
    found: dict[str, list[Symbol]] = {}
    for e in program.equations:
        if type(e.op.form) is Name:
            found.setdefault(e.static["name"], []).append(e.results[0])
    return found


def _find(value: Any, known: dict[str, Symbol], program: Program) -> Symbol:
    if isinstance(value, Symbol) and any(value is s for s in known.values()):
        return value
    given = _given_names(program)
    if isinstance(value, str) and len(alike := given.get(value, ())) > 1:
        names = value_names(program)
        raise ArgumentError(
            f"subgraph: pb.name gave {value!r} to {len(alike)} values.\n  Name the one that is meant as the program's "
            f"text does: {', '.join(names[id(s)] for s in alike)}."
        )
    if isinstance(value, str) and value in known:
        return known[value]
    raise ArgumentError(
        f"subgraph: there is no value {short_repr(value)} in this program.\n  Values are named by pb.name (here "
        f"{', '.join(map(repr, given)) or 'none'}) or as the program's text shows them ('t0')."
    )


def cut_into_stages(program: Program, count: int, cost: Callable[[Equation], float] | None) -> list[Stage]:
    """The equations in order, cut into stages: see `Program.stages`."""
    number = check_count(count, "stages: count")
    if number > len(program.equations):
        raise ArgumentError(f"stages: {number} stages of a program of {len(program.equations)} equations.")
    if cost is not None:
        check_functions("stages: cost", cost)
    costs = np.array([(cost or estimate_work)(e) for e in program.equations], float)
    crossing = _crossing_values(program)
    nbytes = [float(sum(s.spec.nbytes for s in values)) for values in crossing]
    cuts = _choose_cuts(costs, np.array(nbytes), number)
    bounds = [0, *cuts, len(program.equations)]
    return [_stage(program, crossing, *bounds[i : i + 2]) for i in range(number)]


def estimate_work(e: Equation) -> float:
    """About how many multiplications an equation takes: for a product of (m, k) and (k, n) matrices m k n, which is the
    root of the product of all three sizes; else one for each element that it reads or makes.
    """
    sizes = [max(spec_of(x).size, 1) for x in (*e.args, *e.results)]
    return math.sqrt(math.prod(sizes)) if e.op.family == "contraction" else float(max(sizes, default=1))


def _crossing_values(program: Program) -> list[list[Symbol]]:
    """For each place between equations the values made before it and used after it; outputs are used at the end."""
    last: dict[int, int] = {}
    for i, e in enumerate(program.equations):
        last |= {id(a): i for a in e.args if isinstance(a, Symbol)}
    last |= {id(o): len(program.equations) for o in program.outputs if isinstance(o, Symbol)}
    found: list[list[Symbol]] = [[]]
    for i, e in enumerate(program.equations):
        alive = [s for s in (*found[-1], *e.results) if last.get(id(s), -1) > i]
        found.append(alive)
    return found


def _choose_cuts(costs: Any, nbytes: Any, number: int) -> list[int]:
    """Where to cut so that the fewest bytes cross, and no stage costs much more than it must.

    best[j] is the fewest bytes for the first j equations in so many stages; the last of them begins at `came[j]`.
    """
    total = np.concatenate([[0.0], np.cumsum(costs)])
    limit = max(_least_maximum(costs, total, number), _IMBALANCE * total[-1] / number) * (1 + 1e-9)
    n = len(costs)
    best, came = np.where(np.arange(n + 1) == 0, 0.0, np.inf), []
    for _ in range(number):
        following, source = np.full(n + 1, np.inf), np.zeros(n + 1, int)
        for j in range(1, n + 1):
            first = int(np.searchsorted(total, total[j] - limit, side="left"))
            if first < j:
                options = best[first:j] + nbytes[first:j]
                source[j] = first + int(np.argmin(options))
                following[j] = options[source[j] - first]
        best = following
        came.append(source)
    cuts = [n]
    for source in reversed(came):
        cuts.append(int(source[cuts[-1]]))
    return cuts[-2:0:-1]


def _least_maximum(costs: Any, total: Any, number: int) -> float:
    """The least that the costliest of so many stages costs, found by halving; each has an equation at least."""
    low, high = float(costs.max(initial=0.0)), float(total[-1])
    for _ in range(60):
        middle = (low + high) / 2
        if _stages_within(total, middle) <= number:
            high = middle
        else:
            low = middle
    return high


def _stages_within(total: Any, limit: float) -> int:
    at = used = 0
    while at < len(total) - 1:
        end = int(np.searchsorted(total, total[at] + limit * (1 + 1e-12), side="right")) - 1
        at, used = max(end, at + 1), used + 1
    return used


def _stage(program: Program, crossing: list[list[Symbol]], start: int, stop: int) -> Stage:
    equations = program.equations[start:stop]
    carried = crossing[start]
    outputs = program.outputs if stop == len(program.equations) else tuple(crossing[stop])
    used = {id(a) for e in equations for a in e.args} | {id(o) for o in outputs}
    arguments = tuple(i for i, s in enumerate(program.inputs) if id(s) in used)
    own = tuple(program.inputs[i] for i in arguments)
    return Stage(Program((*carried, *own), equations, outputs), arguments)
