"""Program in, one with fewer loops out, and smaller ones: a loop that another one contains does not run by itself, and
carries that nothing depends on go.

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


def drop_unused_carries(program: Program) -> Program:
    """Take from each loop the carries whose results are unused and that no other carry, row or condition depends on."""
    wanted = {id(x) for x in (*program.outputs, *(a for e in program.equations for a in e.args))}
    equations = tuple(_drop_carries(e, wanted) if _is_loop(e) else e for e in program.equations)
    if all(new is old for new, old in zip(equations, program.equations, strict=True)):
        return program
    return dataclasses.replace(program, equations=equations)


def _drop_carries(e: Equation, wanted: set[int]) -> Equation:
    carries, body, condition = e.static["carries"], e.static["body"], e.static.get("condition")
    unused = [i for i in range(carries) if id(e.results[i]) not in wanted]
    if condition is not None and unused:
        read = {id(x) for x in (*condition.outputs, *(a for q in condition.equations for a in q.args))}
        unused = [i for i in unused if id(condition.inputs[i]) not in read]
    live: list[Equation] = []
    while unused:
        live, read = _live_equations(body, [o for i, o in enumerate(body.outputs) if i not in unused])
        found = [i for i in unused if id(body.inputs[i]) not in read]
        if found == unused:
            break
        unused = found
    if not unused or len(unused) == carries:
        return e
    static = dict(e.static, carries=carries - len(unused))
    outputs = _without(body.outputs, unused)
    static["body"] = dataclasses.replace(
        body, inputs=_without(body.inputs, unused), equations=tuple(live), outputs=outputs
    )  # fmt: skip
    if condition is not None:
        static["condition"] = dataclasses.replace(condition, inputs=_without(condition.inputs, unused))
    return Equation(_without(e.results, unused), e.op, _without(e.args, unused), static)


def _live_equations(program: Program, outputs: Sequence[Any]) -> tuple[list[Equation], set[int]]:
    """The equations that some outputs depend on, with those whose effects forbid to drop them, and what is read."""
    read, live = {id(o) for o in outputs}, []
    for e in reversed(program.equations):
        if not e.effects.drop or any(id(s) in read for s in e.results):
            live.append(e)
            read |= {id(a) for a in e.args}
    return live[::-1], read


def _without(values: Sequence[Any], places: Sequence[int]) -> tuple[Any, ...]:
    return tuple(x for i, x in enumerate(values) if i not in places)


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
