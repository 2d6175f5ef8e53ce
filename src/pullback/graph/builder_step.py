"""A callable step of a `Graph`: its lines replayed on values, as one compiled function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays.size import evaluate
from ..arrays.spec import spec_of, zeros
from ..arrays.trees import flatten, unflatten
from ..errors import ArgumentError, DtypeError, ShapeError
from ..ops.dispatch import apply, as_value
from ..ops.index.normalize import SLOT
from ..ops.lazy import lazy_function
from ..transforms.reverse import grad
from .builder_lines import GradientLine, GraphValue, OpLine, SizeLine
from .builder_sizes import check_guards, check_shape

if TYPE_CHECKING:
    from .builder import Graph

_jit = lazy_function("jit", "jit", "compile")


@dataclass(frozen=True, slots=True)
class EvaluationRange:
    """The known sizes, and how many lines to evaluate."""

    sizes: Mapping[Any, int]
    stop: int


class StepPlan:
    """What a step computes: its fetches and new values, and which placeholders and variables they need."""

    def __init__(self, builder: Graph, fetches: Sequence[Any], updates: Sequence[tuple[str, Any]]) -> None:
        self.builder = builder
        self.fetches = [builder.check_own(v, "fetches") for v in fetches]
        self.updates = updates
        self.stop = len(builder.lines)
        wanted = [*self.fetches, *(v for _, v in updates)]
        lines = builder.lines_leading_to([v for v in wanted if isinstance(v, GraphValue)])
        self.has_index_arrays = any(SLOT in line.static.get("index", ()) for line in lines if isinstance(line, OpLine))
        # All of them: a function that returns its argument leaves no line that depends on the guard.
        self.guards = list(builder.unknowns.guards.values())
        needed = {id(v) for v in wanted} | {id(a) for line in lines for a in line.needs}
        self.placeholders = [n for n, v in builder.placeholders.items() if id(v) in needed]
        updated = [n for n, _ in updates]
        self.variables = updated + [n for n, v in builder.variables.items() if id(v) in needed and n not in updated]

    def check_feeds(
        self, feeds: Mapping[str, Any] | None, named: Mapping[str, Any]
    ) -> tuple[list[Any], dict[Any, int]]:
        """The arrays for the placeholders in order, and their sizes; everything is checked here."""
        given = {**(feeds or {}), **named}
        given = {k.name if isinstance(k, GraphValue) else k: v for k, v in given.items()}
        for name in given:
            if name not in self.builder.placeholders:
                there = ", ".join(self.builder.placeholders) or "none"
                raise ArgumentError(f"{name!r} is no placeholder of this graph; there are {there}.")
        missing = [n for n in self.placeholders if n not in given]
        if missing:
            raise ArgumentError(f"the placeholders {', '.join(missing)} are not fed.")
        known: dict[Any, int] = {}
        placeholders = self.builder.placeholders
        fitting = {n: self.builder.fit_feed(n, placeholders[n], x, known) for n, x in given.items()}
        return [fitting[n] for n in self.placeholders], known

    def evaluate_step(
        self, state: Sequence[Any], fed: Sequence[Any], sizes: Mapping[Any, int]
    ) -> tuple[list[Any], list[Any]]:
        """(fetched values, new values of the updated variables) from the variables and the fed arrays."""
        check_guards([g for g in self.guards if g.names <= sizes.keys()], sizes)
        b = self.builder
        known = {id(b.variables[n]): v for n, v in zip(self.variables, state, strict=True)}
        known |= {id(b.placeholders[n]): v for n, v in zip(self.placeholders, fed, strict=True)}
        found = self.evaluate(
            known, {}, [*self.fetches, *(v for _, v in self.updates)], EvaluationRange(sizes, self.stop)
        )
        return found[: len(self.fetches)], found[len(self.fetches) :]

    def evaluate(
        self, known: dict[int, Any], shifts: dict[int, Any], wanted: Sequence[Any], run: EvaluationRange
    ) -> list[Any]:
        """The wanted values, from those of placeholders and variables by id. A shift is added to its value: the
        gradient with respect to a result of an op is that with respect to a shift of it, at zero.
        """
        needed = {id(w) for w in wanted}
        todo: list[tuple[int, OpLine | GradientLine | SizeLine]] = []
        for number in range(run.stop - 1, -1, -1):
            line = self.builder.lines[number]
            if any(id(r) in needed for r in line.results):
                todo.append((number, line))
                needed |= {id(a) for a in (line.wrt if isinstance(line, GradientLine) else line.needs)}
        values = dict(known)
        for number, line in reversed(todo):
            if isinstance(line, GradientLine):
                found = self._derive_line(line, known, values, shifts, EvaluationRange(run.sizes, number))
            elif isinstance(line, SizeLine):
                found = (evaluate(line.size, run.sizes),)
            else:
                found = self._apply_line(line, values, run.sizes, number)
            for result, value in zip(line.results, found, strict=True):
                values[id(result)] = value + shifts[id(result)] if id(result) in shifts else value
        return [values[id(w)] if isinstance(w, GraphValue) else w for w in wanted]

    def _apply_line(
        self, line: OpLine, values: dict[int, Any], sizes: Mapping[Any, int], number: int
    ) -> tuple[Any, ...]:
        where = f"line {number} of the graph, {line.op.name}"
        args, static = line.args, line.static
        if self.builder.unknowns.representatives:
            args, static = tuple(evaluate(a, sizes) for a in args), evaluate(static, sizes)
        made = apply(line.op, *(values[id(a)] if isinstance(a, GraphValue) else a for a in args), **static)
        found = made if type(made) is tuple else (made,)
        for value, result in zip(found, line.results, strict=True):
            check_shape(spec_of(value), result.spec, sizes, where)
        return found

    def _derive_line(
        self,
        line: GradientLine,
        known: dict[int, Any],
        values: dict[int, Any],
        shifts: dict[int, Any],
        run: EvaluationRange,
    ) -> tuple[Any, ...]:
        """The gradients by the transform itself, of the loss as a function of inputs and of shifts of results."""
        unique = list({id(w): w for w in line.wrt}.values())
        starts = [values[id(w)] if id(w) in known else zeros(spec_of(values[id(w)])) for w in unique]

        def loss(*values_of_wrt: Any) -> Any:
            inputs, shifted = dict(known), dict(shifts)
            for w, m in zip(unique, values_of_wrt, strict=True):
                if id(w) in known:
                    inputs[id(w)] = m
                else:
                    shifted[id(w)] = shifted[id(w)] + m if id(w) in shifted else m
            return self.evaluate(inputs, shifted, [line.loss], run)[0]

        found = grad(loss, argnums=tuple(range(len(starts))))(*starts)
        places = {id(w): i for i, w in enumerate(unique)}
        return tuple(found[places[id(w)]] for w in line.wrt)


class GraphStep:
    """A compiled step of a `Graph`. Call it with a dict of arrays by name, or by keyword."""

    def __init__(self, builder: Graph, fetches: Any, updates: Sequence[tuple[Any, Any]]) -> None:
        leaves, self.structure = flatten(fetches)
        self.builder = builder
        self.plan = StepPlan(builder, leaves, _check_updates(builder, updates))
        updated = len(self.plan.updates)

        self.updated = self.plan.variables[:updated]
        self.constant = self.plan.variables[updated:]
        self.compiled: dict[tuple[Any, ...], Any] = {}

    def __call__(self, feeds: Mapping[str, Any] | None = None, /, **named: Any) -> Any:
        fed, known = self.plan.check_feeds(feeds, named)
        sizes = tuple(known.get(name) for name in self.builder.unknowns.representatives)
        compiled = self.compiled.get(sizes)
        if compiled is None:
            compiled = self.compiled[sizes] = self._compile(known)
        values = self.builder.values
        new, found = compiled([values[n] for n in self.updated], [values[n] for n in self.constant], fed)
        for name, array in zip(self.updated, new, strict=True):
            values[name] = array
        return unflatten(self.structure, found)

    def _compile(self, known: Mapping[Any, int]) -> Any:
        def step(changing: list[Any], constant: list[Any], fed: list[Any]) -> Any:
            found, new = self.plan.evaluate_step([*changing, *constant], fed, known)
            return new, found

        # No donation: an index out of range is found only after the step ran, when variables must be unchanged.
        donated = () if self.plan.has_index_arrays else (0,)
        return _jit(step, donate_argnums=donated)


def _check_updates(builder: Graph, updates: Sequence[Any]) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for pair in updates:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise ArgumentError(f"updates: pairs of (variable, new value), got {pair!r}.")
        name = builder.variable_name(pair[0], "updates")
        new = pair[1] if isinstance(pair[1], GraphValue) else np.array(as_value(pair[1]))
        if isinstance(new, GraphValue):
            builder.check_own(new, "updates")
        if name in dict(found):
            raise ArgumentError(f"updates: {name!r} is updated twice.")
        wanted, got = builder.variables[name].spec, spec_of(new)
        if wanted.shape != got.shape:
            raise ShapeError(f"updates: {name!r} has shape {wanted.shape}, its new value {got.shape}.")
        if wanted.dtype != got.dtype:
            raise DtypeError(f"updates: {name!r} is {wanted.dtype}, its new value {got.dtype}.")
        found.append((name, new))
    return found
