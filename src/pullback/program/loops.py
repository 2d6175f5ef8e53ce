"""Program in, one with fewer loops out: a loop that another one contains does not run by itself.

The push of a loop carries the loop's own state beside the tangents, so that a value and its derivative are two loops,
of which one contains the other.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..arrays.backends import is_array
from ..ops.forms import Flow
from .ir import Equation, Program, Symbol

#: Constants of no more elements are compared by content.
_FEW = 16


def share_loops(program: Program) -> Program:
    """Take the results of a loop from another one that computes them too."""
    done = False
    while not done:
        loops = [i for i, e in enumerate(program.equations) if _is_loop(e)]
        pairs = ((i, j) for i in loops for j in loops if i != j)
        found = (_replace_loop(program, i, j) for i, j in pairs)
        shared = next((p for p in found if p is not None), None)
        program, done = (program, True) if shared is None else (shared, False)
    return program


def _is_loop(e: Equation) -> bool:
    return isinstance(e.op.form, Flow) and e.op.form.kind in ("iterate", "repeat") and e.op.effects.merge


def _replace_loop(program: Program, small: int, large: int) -> Program | None:
    """The program without the small loop, if the large one contains it and can run in its place."""
    one, other = program.equations[small], program.equations[large]
    places = _contained_results(one, other)
    if places is None:
        return None
    moved = _equations_before(program.equations, small, large) if large > small else []
    if moved is None:
        return None
    names = {id(old): other.results[at] for old, at in zip(one.results, places, strict=True)}
    rest = [e for i, e in enumerate(program.equations) if i not in moved and i != small]
    first = [program.equations[i] for i in moved]
    equations = [*rest[:small], *first, *rest[small:]]
    return dataclasses.replace(
        program,
        equations=tuple(_rename(e, names) for e in equations),
        outputs=tuple(names.get(id(o), o) for o in program.outputs),
    )


def _rename(e: Equation, names: dict[int, Any]) -> Equation:
    if not any(id(a) in names for a in e.args):
        return e
    return Equation(e.results, e.op, tuple(names.get(id(a), a) for a in e.args), e.static)


def _equations_before(equations: Sequence[Equation], small: int, large: int) -> list[int] | None:
    """What must move before the small loop, so that the large one can run there; None if that needs its results."""
    producer = {id(s): i for i, e in enumerate(equations) for s in e.results}
    needed, stack = {large}, [large]
    while stack:
        for a in equations[stack.pop()].args:
            at = producer.get(id(a), -1)
            if at == small or (at > small and not equations[at].op.effects.reorder):
                return None
            if at > small and at not in needed:
                needed.add(at)
                stack.append(at)
    return sorted(needed)


def _contained_results(one: Equation, other: Equation) -> list[int] | None:
    """For each result of a loop the result of the other that equals it; None if the other does not contain it."""
    if one.op is not other.op or any(one.static.get(k) != other.static.get(k) for k in ("length", "reverse")):
        return None
    carried = _match_carries(one, other)
    if carried is None:
        return None
    more = other.static["carries"]
    numbers = _Numbers(_input_keys(one, carried), _input_keys(other, range(more)))
    if "condition" in one.static and not numbers.are_equal(
        one.static["condition"], other.static["condition"], [0], [0]
    ):
        return None
    body, larger = one.static["body"], other.static["body"]
    if not numbers.are_equal(body, larger, range(len(carried)), carried):
        return None
    rows = [numbers.find_output(body, i, larger, more) for i in range(len(carried), len(body.outputs))]
    last = [len(other.results) - 1] if "condition" in one.static else []
    return None if None in rows else [*carried, *(r for r in rows if r is not None), *last]


def _match_carries(one: Equation, other: Equation) -> list[int] | None:
    """For each carry of a loop one of the other that starts from the same value, none taken twice."""
    free = list(range(other.static["carries"]))
    found = []
    for a in one.args[: one.static["carries"]]:
        at = next((i for i in free if value_key(other.args[i]) == value_key(a)), None)
        if at is None:
            return None
        free.remove(at)
        found.append(at)
    return found


def _input_keys(e: Equation, carried: Sequence[int]) -> list[Any]:
    """The inputs of a loop's body: carries by number, what is held or advances by the value it comes from."""
    kinds = _input_kinds(e)
    keys: list[Any] = [(kind, value_key(a)) for kind, a in zip(kinds, e.args, strict=True)]
    return [*(("carry", i) for i in carried), *keys[len(carried) :]]


def _input_kinds(e: Equation) -> list[str]:
    carries = e.static["carries"]
    held = e.static.get("constants", len(e.args) - carries)
    return ["carry"] * carries + ["held"] * held + ["row"] * (len(e.args) - carries - held)


class _Numbers:
    """Numbers values of two programs alike: equal ops on equal values have one number."""

    def __init__(self, first: Sequence[Any], second: Sequence[Any]) -> None:
        self.inputs = {True: first, False: second}
        self.known: dict[Any, Any] = {}

    def are_equal(self, one: Program, other: Program, outs: Sequence[int], others: Sequence[int]) -> bool:
        first, second = self._output_keys(one, True), self._output_keys(other, False)
        return all(first[i] == second[j] for i, j in zip(outs, others, strict=True))

    def find_output(self, one: Program, out: int, other: Program, start: int) -> int | None:
        """The output of the other program, from one on, that equals an output."""
        key, keys = self._output_keys(one, True)[out], self._output_keys(other, False)
        return next((i for i in range(start, len(keys)) if keys[i] == key), None)

    def _output_keys(self, program: Program, is_first: bool) -> list[Any]:
        own = {id(s): key for s, key in zip(program.inputs, self.inputs[is_first], strict=True)}
        for e in program.equations:
            args = tuple(_key_of(a, own) for a in e.args)
            # programs are compared by identity: a derived loop has those of the loop that it comes from
            static = tuple((k, id(v) if isinstance(v, Program) else repr(v)) for k, v in sorted(e.static.items()))
            key = (id(e.op), args, static) if e.op.effects.merge else id(e)
            number = self.known.setdefault(key, len(self.known))
            for k, s in enumerate(e.results):
                own[id(s)] = number, k
        return [_key_of(o, own) for o in program.outputs]


def _key_of(x: Any, own: dict[int, Any]) -> Any:
    return own[id(x)] if id(x) in own else value_key(x)


def value_key(x: Any) -> Any:
    """What equals for equal arguments of equations: symbols are compared by identity, small constants by content."""
    if type(x) is np.ndarray and x.size <= _FEW and not x.dtype.hasobject:
        return x.dtype.str, x.shape, x.tobytes()
    return ("value", id(x)) if isinstance(x, Symbol) or is_array(x) else (type(x).__name__, repr(x))
