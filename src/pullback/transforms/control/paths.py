"""Python branches on traced values: the paths of a function in, one program with a `branch` for each `if` out.

A function cannot be entered in its middle, but it can be run again: it is traced once for each path, and two paths that
part at an `if` have the same equations up to there. These stay as they are; what follows on either side becomes a
program of the values it reads, and a `branch` chooses between the two.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...arrays.scope import enclosing_scopes
from ...arrays.spec import Spec, spec_of
from ...arrays.tensor import Tensor
from ...arrays.trees import flatten
from ...arrays.value import Value
from ...errors import ConversionError, GraphError, PullbackError
from ...program.constants import Constants
from ...program.decisions import Decision, Decisions, Outside
from ...program.fingerprint import IncomparableError, content_key
from ...program.hoist import is_array_or_value
from ...program.ir import Equation, Program, Symbol
from ...program.value_numbers import Table
from .branch_results import unify_results
from .flow.branch import apply_branch_programs
from .flow.derive import as_body, stage_body, stage_derived, stage_unseen

#: The most paths of one function: their number doubles with each `if` that follows another one.
MOST_PATHS = 64


def stage_paths(trace: Callable[[Decisions], Program], what: str, outside: Outside | None = None) -> Program:
    """The program of a function whose Python branches may depend on traced values. `trace` stages it along the path
    that decisions prescribe; a function without such branches is traced once. What it sets `outside` of itself, or of
    the function around it, must be the same on all paths.
    """
    paths = _Paths(trace, what, _Effects(outside or _outside_of_enclosing(), what))
    try:
        return paths.follow(()).program
    except BaseException:
        if paths.traced > 1:  # no run of the function would have gone both ways
            paths.effects.undo()
        raise


@dataclass(slots=True)
class _Paths:
    """The paths of a function, found one by one."""

    trace: Callable[[Decisions], Program]
    what: str
    effects: _Effects
    table: Table = field(default_factory=dict)
    traced: int = 0

    def follow(self, given: tuple[bool, ...]) -> _Path:
        """The path of these outcomes, joined with all that part from it later on."""
        what, effects = self.what, self.effects
        self.traced += 1
        decisions = Decisions(given, self.table, effects.outside)
        effects.undo()  # each path starts from what the first one found
        program = _trace_path(self.trace, decisions, what)
        taken = decisions.taken
        if taken:
            effects.compare()
        if self.traced > MOST_PATHS:
            raise ConversionError(
                f"{what}: has more than {MOST_PATHS} paths by Python branches on traced values, among them at\n"
                f"  {taken[-1].line}\n  Choose by pb.where or pb.cond instead, and loop by pb.scan or pb.while_loop."
            )
        path = _Path(program, decisions)
        # the last branch first: what lies behind an earlier one is then joined already
        for number in reversed(range(len(given), len(taken))):
            other = self.follow((*(d.holds for d in taken[:number]), False))
            path = _Path(_join_paths(other, path, number, what), decisions)
        return path


def stage_with_branches(
    what: str, at_once: Callable[[], Program], along: Callable[[Constants, Decisions], Program]
) -> Program:
    """A function staged `at_once`; where a Python branch of it asks for a traced value, `along` each of its paths."""
    try:
        return at_once()
    except ConversionError as error:
        if not error.asked_by_branch:
            raise
    return stage_paths(functools.partial(along, Constants()), what)


@dataclass(frozen=True, slots=True)
class _Path:
    """A program, straight up to the last branch that it shares with another path, and the branches it took."""

    program: Program
    decisions: Decisions

    def branch(self, number: int, what: str) -> Decision:
        if number >= len(self.decisions.taken):
            raise _unrepeatable(what, "takes fewer branches")
        return self.decisions.taken[number]

    def number(self, x: Any) -> Any:
        return self.decisions.numbers.of(x)


def _outside_of_enclosing() -> Outside | None:
    return next((d.outside for scope in enclosing_scopes() if (d := scope.decisions) is not None), None)


class _Effects:
    """What the paths of a function leave behind in Python, if that can be known: a compiled function runs none, so it
    must not depend on the path.
    """

    def __init__(self, outside: Outside | None, what: str) -> None:
        self.outside = outside
        self._what = what
        self._before = outside.changed_places() if outside else {}
        self._first: dict[Any, tuple[Any, Any]] | None = None

    def undo(self) -> None:
        if self.outside and self._first is not None:
            self.outside.rewind(self._before)

    def compare(self) -> None:
        """Raise if the path that was just traced left other things behind than the first one."""
        now = self.outside.changed_places() if self.outside else {}
        if self._first is None:
            self._first = now
            return
        first, unset = self._first, (None, None)
        differing = [
            place
            for key, (place, _) in (first | now).items()
            if (key in first) != (key in now) or not _is_same(first.get(key, unset)[1], now.get(key, unset)[1])
        ]
        if differing:
            raise paths_disagree_error(self._what, differing)


def paths_disagree_error(what: str, places: Sequence[Any]) -> GraphError:
    return GraphError(
        f"{what} sets attributes or variables to other things on the two ways of a Python branch on a traced value: "
        f"{', '.join(map(str, places))}.\n"
        "  A compiled function runs no Python at later calls. Return what it sets; or, if that is a number, begin with "
        "an array, n = pb.zeros(()), and set it to another one: a compiled function keeps that."
    )


def _is_same(x: Any, y: Any) -> bool:
    """Whether two things that paths of a function left in one place are the same one, or equal ones."""
    if x is y:
        return True
    if type(x) is not type(y):
        return False
    if isinstance(x, list | tuple):
        return len(x) == len(y) and all(map(_is_same, x, y))
    if isinstance(x, dict):
        return list(x) == list(y) and all(map(_is_same, x.values(), y.values()))
    if type(x) is Tensor:
        return x.node is None and y.node is None and _is_same(x.value, y.value)
    if type(x) is Symbol:  # of one step of a loop, say: it leaks, and is refused
        return True
    try:
        return bool(content_key(x) == content_key(y))
    except IncomparableError:
        pass
    try:  # equal by what they are, not by how they are printed
        return not isinstance(x, Value) and getattr(type(x), "__eq__", None) is not object.__eq__ and bool(x == y)
    except Exception:  # of the user's, who does not say so
        return False


def _unrepeatable(what: str, how: str) -> GraphError:
    return GraphError(
        f"{what}: {how} when it is traced once more.\n"
        "  Where Python branches on a traced value, a function is traced once for each path: up to the branch it must "
        "do the same each time."
    )


def stage_function(what: str, function: Callable[..., Sequence[Any]], *specs: Spec) -> tuple[Program, list[Any]]:
    """A function of the user's as a program, and what it captured. Python branches in it are followed where those of
    the function around it are.
    """
    if not any(scope.decisions is not None for scope in enclosing_scopes()):
        return stage_body(function, *specs)
    constants = Constants()  # of all paths

    def trace(decisions: Decisions) -> Program:
        return stage_unseen(function, *specs, constants=constants, decisions=decisions)

    return as_body(stage_paths(trace, what), constants)


def _trace_path(trace: Callable[[Decisions], Program], decisions: Decisions, what: str) -> Program:
    try:
        return trace(decisions)
    except PullbackError as error:
        if decisions.taken:
            error.add_note(f"on the path of {what}{decisions.describe()}")
        raise
    except Exception as error:
        if not decisions.taken:
            raise
        raise ConversionError(
            f"{what}: raises {type(error).__name__}: {error}{decisions.describe()}\n"
            "  Both ways of a branch on a traced value are traced, and a compiled function cannot raise by its values: "
            "check them before the call, or return a value that tells."
        ) from error


def _join_paths(otherwise: _Path, then: _Path, number: int, what: str) -> Program:
    """The program that goes one of two paths, which part at a branch."""
    decision = then.branch(number, what)
    before, after = then.program.equations[: decision.position], then.program.equations[decision.position :]
    whole = [_rename_tail(otherwise, then, number, what), (after, then.program.outputs)]
    # a result that is computed before the branch stays out of it, and does not depend on the predicate
    made = {id(s) for equations, _ in whole for e in equations for s in e.results}
    both = list(zip(*(outs for _, outs in whole), strict=True)) if len({len(outs) for _, outs in whole}) == 1 else []
    common = {i for i, (a, b) in enumerate(both) if a is b and id(a) not in made}
    common = set() if len(common) == len(both) else common
    tails = [(equations, tuple([x for i, x in enumerate(outs) if i not in common])) for equations, outs in whole]
    captured = _list_captures(tails)
    names = [f"the path where {decision.line} is {holds}" for holds in (False, True)]
    ways = [_as_program(equations, outputs, captured, decision.predicate) for equations, outputs in tails]
    programs = unify_results(what, names, ways, [flatten(list(tails[1][1]))[1]] * 2)
    choice = stage_derived(
        lambda which, *xs: apply_branch_programs(programs, [[], []], which, xs),
        decision.predicate.spec,
        *map(spec_of, captured),
    )
    inputs = _by_id(choice.inputs, [decision.predicate, *captured])
    spliced, found = _substitute(choice.equations, choice.outputs, inputs)
    rest = iter(found)
    outputs = tuple([x if i in common else next(rest) for i, x in enumerate(then.program.outputs)])
    return replace(then.program, equations=(*before, *spliced), outputs=outputs)


def _rename_tail(path: _Path, other: _Path, number: int, what: str) -> tuple[tuple[Equation, ...], tuple[Any, ...]]:
    """What a path computes after a branch, in terms of what the other path has computed before it. What only this path
    has computed by then (a plan may be remembered from the first trace) is computed after it.
    """
    mine, yours = path.branch(number, what), other.branch(number, what)
    if path.number(mine.predicate) != other.number(yours.predicate):
        raise _unrepeatable(what, "branches on something else")
    there = {other.number(s): s for s in other.program.inputs}
    there |= {other.number(s): s for e in other.program.equations[: yours.position] for s in e.results}
    names = {id(s): there[path.number(s)] for s in path.program.inputs}
    own: list[Equation] = []
    for e in path.program.equations[: mine.position]:
        if all(path.number(s) in there for s in e.results):
            names |= {id(s): there[path.number(s)] for s in e.results}
        elif e.effects.has_side_effects:
            raise _unrepeatable(what, f"runs {e.op.name}, which is not pure, at another place")
        else:
            own.append(e)
    return _substitute([*own, *path.program.equations[mine.position :]], path.program.outputs, names)


def _substitute(
    equations: Sequence[Equation], outputs: Sequence[Any], names: dict[int, Any]
) -> tuple[tuple[Equation, ...], tuple[Any, ...]]:
    """Equations and outputs with other arguments in the place of some; results keep their symbols, and their lines."""
    renamed = [Equation(e.results, e.op, tuple([names.get(id(x), x) for x in e.args]), e.static) for e in equations]
    return tuple(renamed), tuple([names.get(id(x), x) for x in outputs])


def _list_captures(tails: Sequence[tuple[Sequence[Equation], Sequence[Any]]]) -> list[Any]:
    """What the programs of both ways read and do not make: symbols from before the branch, tensors and arrays."""
    made = {id(s) for equations, _ in tails for e in equations for s in e.results}
    used = {id(x): x for equations, outputs in tails for x in _values_read(equations, outputs)}
    return [x for key, x in used.items() if key not in made and is_array_or_value(x)]


def _values_read(equations: Sequence[Equation], outputs: Sequence[Any]) -> Iterator[Any]:
    for e in equations:
        yield from e.args
    yield from outputs


def _as_program(
    equations: Sequence[Equation], outputs: Sequence[Any], captured: Sequence[Any], example: Symbol
) -> Program:
    """A program of the captured values, with symbols of its own for them."""
    inputs = tuple([Symbol(spec_of(x), example.scope, [], None) for x in captured])
    return Program(inputs, *_substitute(equations, outputs, _by_id(captured, inputs)))


def _by_id(keys: Sequence[Any], values: Sequence[Any]) -> dict[int, Any]:
    return {id(key): value for key, value in zip(keys, values, strict=True)}
