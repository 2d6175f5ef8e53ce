"""A callable step of a `Graph`: its lines replayed on values, as one compiled function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays.html_text import html_block, html_table
from ..arrays.scope import current_scope
from ..arrays.size import evaluate
from ..arrays.spec import spec_of
from ..arrays.tensor import Tensor, wrap
from ..arrays.trees import flatten, unflatten
from ..errors import ArgumentError, DtypeError, ShapeError
from ..ops.dispatch import as_value
from ..ops.elementwise.pointwise import positive
from ..ops.index.normalize import SLOT
from ..ops.lazy import lazy_function
from ..settings import enable_grad, override_modes
from .builder_lines import GradientLine, GraphValue, OpLine, SizeLine

if TYPE_CHECKING:
    from .builder import Graph

_jit = lazy_function("jit", "jit", "compile")


class StepPlan:
    """What a step computes: its fetches and new values, and which placeholders and variables they need."""

    def __init__(self, builder: Graph, fetches: Sequence[Any], updates: Sequence[tuple[str, Any]]) -> None:
        self.builder = builder
        self.fetches = [builder.check_own(v, "fetches") for v in fetches]
        self.updates = updates
        wanted = [*self.fetches, *(v for _, v in updates)]
        self.lines = lines = builder.lines_leading_to([v for v in wanted if isinstance(v, GraphValue)])
        derived = [line for line in lines if isinstance(line, GradientLine)]
        self.on_tape = set(map(id, builder.lines_leading_to([line.loss for line in derived])))
        self.differentiated = {id(w) for line in derived for w in line.wrt}
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
        self._check_guards(sizes)
        b = self.builder
        inputs = [*(b.variables[n] for n in self.variables), *(b.placeholders[n] for n in self.placeholders)]
        values: dict[int, Any] = {}
        # the dtypes of its lines were chosen when they were built
        with enable_grad() if self.differentiated else nullcontext(), override_modes(autocast=None):
            self._define(values, inputs, [*state, *fed])
            for line in self.lines:
                self._define(values, line.results, self._compute_line(line, values, sizes))
        wanted = [*self.fetches, *(v for _, v in self.updates)]
        found = [_leave_tape(values[id(w)]) if isinstance(w, GraphValue) else w for w in wanted]
        return found[: len(self.fetches)], found[len(self.fetches) :]

    def _check_guards(self, sizes: Mapping[Any, int]) -> None:
        """Raise if the sizes decide a comparison differently than the graph was built for."""
        for guard in self.guards:
            if guard.names <= sizes.keys() and not guard.holds(sizes):
                raise ShapeError(
                    f"this graph was built for sizes with {guard}; they are {dict(sizes)}.\n"
                    "  Give the placeholders their whole shapes, in a separate graph."
                )

    def _define(self, values: dict[int, Any], results: Sequence[GraphValue], found: Sequence[Any]) -> None:
        """Set the values of some results; those that a gradient is taken with respect to become variables of a tape."""
        for result, value in zip(results, found, strict=True):
            if id(result) in self.differentiated:
                tracked = isinstance(value, Tensor) and value.node is not None
                # A node of its own, so that only what uses this very result counts.
                value = positive(value) if tracked else wrap(_leave_tape(value), spec_of(value)).requires_grad_()
            values[id(result)] = value

    def _compute_line(
        self, line: OpLine | GradientLine | SizeLine, values: dict[int, Any], sizes: Mapping[Any, int]
    ) -> tuple[Any, ...]:
        if isinstance(line, SizeLine):
            return (evaluate(line.size, sizes),)
        if isinstance(line, GradientLine):
            return line.compute(values, create_graph=id(line) in self.on_tape)
        if id(line) in self.on_tape:
            return line.compute(values, sizes)
        # What leads to no loss needs no derivative, and may have none.
        return line.compute({id(a): _leave_tape(values[id(a)]) for a in line.needs}, sizes)


def _leave_tape(x: Any) -> Any:
    """A value as it is without the tape of a step."""
    if not isinstance(x, Tensor):
        return x
    scope = current_scope()
    return x.value if scope is None else scope.lower(x.value)


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

    def __repr__(self) -> str:
        fed, updated = (", ".join(names) or "nothing" for names in (self.plan.placeholders, self.updated))
        count = len(self.compiled)
        done = f"compiled for {count} choice{'s' * (count != 1)} of sizes" if count else "not compiled yet"
        return f"<step of a graph: feeds {fed}; updates {updated}; {len(self.plan.fetches)} fetched; {done}>"

    def _repr_html_(self) -> str:
        rows = [(name, "fed", "") for name in self.plan.placeholders]
        rows += [(name, "variable", "updated" if name in self.updated else "") for name in self.plan.variables]
        return html_block(repr(self).strip("<>"), html_table(("name", "kind", "by this step"), rows))

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
