"""`Graph`: a graph built by hand of placeholders, variables and ops on them; its steps are fed by name.

Ops on the builder's values are recorded in order. Gradients are recorded as one line and taken from a tape of
the lines before when the sizes are known, so that no rule has to guess. A step is one compiled function of (variables,
fed arrays).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..arrays.backends import is_array
from ..arrays.dtypes import as_dtype
from ..arrays.html_text import html_block, html_table
from ..arrays.scope import Scope
from ..arrays.size import Size, Unknowns, evaluate, has_unknowns
from ..arrays.spec import Spec, make_spec, spec_of
from ..arrays.tensor import Tensor
from ..arrays.trees import flatten, unflatten
from ..arrays.value import Value
from ..errors import ArgumentError, DtypeError, GraphError, LeakError, ShapeError
from ..ops.dispatch import as_value
from ..ops.op import Op
from ..ops.reduce.scans import cumulative_sum_op
from ..ops.shape.reshaping import broadcast_op
from ..program.ir import Program
from ..program.passes import drop_unused, merge_equal
from ..program.text import format_spec
from ..transforms.stage import stage
from .builder_lines import GradientLine, GraphValue, OpLine, SizeLine
from .builder_step import GraphStep, StepPlan


class Graph:
    """A graph to be built by hand, empty at first.

    An unknown size is None, the same one wherever it stands, or has a name.

    >>> import numpy as np, pullback as pb
    >>> g = pb.Graph()
    >>> x, w = g.placeholder("x", (None, 2)), g.variable("w", np.ones(2))
    >>> loss = pb.mean((x @ w) ** 2)
    >>> (dw,) = g.gradients(loss, [w])
    >>> step = g.compile(loss, updates=[(w, w - 0.5 * dw)])
    >>> step(x=np.eye(2)), step(x=np.eye(2)), g.read(w)
    (array(1.), array(0.25), array([0.25, 0.25]))
    """

    def __init__(self) -> None:
        self.scope = Scope("graph", _refuse_lift, lambda x: x)
        self.unknowns = Unknowns(self)
        self.placeholders: dict[str, GraphValue] = {}
        self.variables: dict[str, GraphValue] = {}
        self.values: dict[str, Any] = {}
        self.lines: list[OpLine | GradientLine | SizeLine] = []

    def __repr__(self) -> str:
        counts = f"{len(self.placeholders)} placeholders, {len(self.variables)} variables, {len(self.lines)} lines"
        return f"<graph being built: {counts}>"

    def _repr_html_(self) -> str:
        named = (("placeholder", self.placeholders), ("variable", self.variables))
        rows = [(name, kind, repr(x).strip("<>")) for kind, values in named for name, x in values.items()]
        return html_block(repr(self).strip("<>"), html_table(("name", "kind", "value"), rows))

    def placeholder(self, name: str, shape: Any = (), dtype: Any = np.float64) -> GraphValue:
        """An array to be fed by name. Sizes that are not known yet are None or a name."""
        entries = shape if isinstance(shape, (tuple, list)) else (shape,)
        spec = make_spec(tuple(self._as_size(n) for n in entries), as_dtype(dtype))
        self.placeholders[self._check_new_name(name)] = found = GraphValue(self, spec, name)
        return found

    def _as_size(self, n: Any) -> Any:
        if n is None or isinstance(n, str):
            return self.unknowns.size(n)
        if not isinstance(n, int) or isinstance(n, bool) or n < 0:
            raise ArgumentError(f"a shape is made of sizes, None and names of unknown sizes, got {n!r}.")
        return n

    def variable(self, name: str, init: Any, dtype: Any = None) -> GraphValue:
        """An array that the graph keeps between steps, starting with a copy of `init`."""
        init = init.value if type(init) is Tensor and init.node is None else init
        array = np.array(as_value(init), dtype=None if dtype is None else as_dtype(dtype), order="C")
        self.variables[self._check_new_name(name)] = found = GraphValue(self, spec_of(array), name)
        self.values[name] = array
        return found

    def _check_new_name(self, name: Any) -> str:
        if not isinstance(name, str) or not name:
            raise ArgumentError(f"a placeholder or variable is called by a string, got {name!r}.")
        if name in self.placeholders or name in self.variables:
            raise ArgumentError(f"{name!r} is already in this graph.")
        return name

    def write(self, op: Op, args: Sequence[Any], static: dict[str, Any]) -> Any:
        """Record an op; its results are values of this graph."""
        checked = tuple(self._check_argument(op, a) for a in args)
        for name, v in static.items():
            _check_static(op, name, v)
        made = op.spec_of([spec_of(a) for a in checked], static)
        specs = made if type(made) is tuple else (made,)
        self.lines.append(OpLine(tuple(GraphValue(self, spec) for spec in specs), op, checked, static))
        results = self.lines[-1].results
        return results if type(made) is tuple else results[0]

    def _check_argument(self, op: Op, a: Any) -> Any:
        if isinstance(a, GraphValue):
            self.check_own(a, op.name)
            return a
        while type(a) is Tensor and a.node is None:
            a = a.value
        if isinstance(a, Value):
            raise GraphError(
                f"{op.name}: {a!r} met a value of a graph, which would keep it as it is now.\n"
                "  Make it a variable of the graph, or a placeholder."
            )
        return a.copy() if is_array(a) else a

    def value_of(self, size: Size) -> GraphValue:
        """An unknown size as a value of the graph, like a Python number."""
        found = GraphValue(self, spec_of(size), str(size))
        self.lines.append(SizeLine((found,), size))
        return found

    def full_array(self, number: Any, shape: tuple[Any, ...]) -> Any:
        """An array of one number in a shape with unknown sizes."""
        return self.write(broadcast_op, (number,), {"shape": shape})

    def arange_array(self, size: Size) -> Any:
        """The numbers from zero up to a size."""
        return self.write(cumulative_sum_op, (self.full_array(np.ones((), np.intp), (size,)),), {"axis": 0}) - 1

    def check_own(self, value: Any, what: str) -> GraphValue:
        if not isinstance(value, GraphValue):
            raise ArgumentError(f"{what}: wants a value of this graph, got a {type(value).__name__}.")
        if value.builder is not self:
            raise LeakError(f"{what}: {value!r} belongs to another graph.")
        return value

    def gradients(self, loss: Any, wrt: Iterable[Any]) -> list[GraphValue]:
        """The gradients of one number with respect to some values, as values of this graph."""
        loss = self.check_own(loss, "gradients")
        wanted = tuple(self.check_own(w, "gradients: wrt") for w in ([wrt] if isinstance(wrt, GraphValue) else wrt))
        if has_unknowns(loss.spec.shape) or loss.spec.size != 1 or not loss.spec.inexact:
            raise ArgumentError(f"gradients: of one floating number, got {loss!r}.\n  Take pb.sum or pb.mean of it.")
        if loss.spec.dtype.kind == "c":
            raise DtypeError(f"gradients: of a real number, got {loss!r}.")
        reached = {id(loss)} | {id(a) for line in self.lines_leading_to([loss]) for a in line.needs}
        for w in wanted:
            if not w.spec.inexact:
                raise DtypeError(f"gradients: {w!r} is not floating, so it has no gradient.")
            if id(w) not in reached:
                raise GraphError(f"gradients: no path leads from {w!r} to the loss.")
        results = tuple(GraphValue(self, make_spec(w.spec.shape, w.spec.dtype, w.spec.device)) for w in wanted)
        self.lines.append(GradientLine(results, loss, wanted))
        return list(results)

    def read(self, variable: Any) -> Any:
        """A copy of a variable's current value; by the variable or its name."""
        return self.values[self.variable_name(variable, "read")].copy()

    def assign(self, variable: Any, value: Any) -> None:
        """Set the value of a variable, of the same shape and dtype."""
        name = self.variable_name(variable, "assign")
        self.values[name][...] = self.fit_feed(name, self.variables[name], value, {})

    def variable_name(self, variable: Any, what: str) -> str:
        name = variable if isinstance(variable, str) else self.check_own(variable, what).name
        if name not in self.variables:
            raise ArgumentError(
                f"{what}: {variable!r} is no variable; there are {', '.join(self.variables) or 'none'}."
            )
        return name

    def run(self, fetches: Any, feeds: Mapping[str, Any] | None = None, **named: Any) -> Any:
        """The values of some values of the graph (a tree of them), op by op, without compiling."""
        leaves, structure = flatten(fetches)
        plan = StepPlan(self, leaves, ())
        fed, known = plan.check_feeds(feeds, named)
        state = [self.values[n].copy() for n in plan.variables]
        found = plan.evaluate_step(state, fed, known)[0]
        return unflatten(structure, [np.array(x) if isinstance(x, np.ndarray) else x for x in found])

    def compile(self, fetches: Any = (), updates: Iterable[tuple[Any, Any]] = ()) -> GraphStep:
        """A step: called with arrays for the placeholders, it returns the fetches (a tree of values) and then sets each
        variable in `updates`, pairs of (variable, new value). Both are computed from the values before the step. It is
        compiled once for each choice of unknown sizes.
        """
        return GraphStep(self, fetches, tuple(updates))

    def stage(self, fetches: Any, sizes: Mapping[Any, int] | None = None) -> Program:
        """The program of some fetches, for given unknown sizes: a function of placeholders and variables by name.

        >>> import pullback as pb
        >>> g = pb.Graph()
        >>> print(g.stage(pb.mean(g.placeholder("x", (None,))), sizes={None: 4}))
        graph(x0: float64[4]) from ((), {"x": x0})
          t0: float64[] = sum(x0, axis=(0,), keepdims=False)
          t1: float64[] = divide(t0, 4)
          return t1
        """
        leaves, structure = flatten(fetches)
        plan = StepPlan(self, leaves, ())
        known = dict(sizes or {})
        missing = [name for name in self.unknowns.representatives if name not in known]
        if missing:
            raise ArgumentError(f"stage: give the sizes {missing}: sizes={{{missing[0]!r}: 32}}.")
        inputs = {n: self.placeholders[n].spec for n in plan.placeholders}
        specs = {n: make_spec(evaluate(s.shape, known), s.dtype) for n, s in inputs.items()} | {
            n: spec_of(self.values[n]) for n in plan.variables
        }

        def f(**given: Any) -> Any:
            state, fed = [given[n] for n in plan.variables], [given[n] for n in plan.placeholders]
            return unflatten(structure, plan.evaluate_step(state, fed, known)[0])

        return drop_unused(merge_equal(stage(f)(**specs)))  # rules repeat expressions of one another

    def lines_leading_to(self, wanted: Iterable[Any]) -> list[OpLine | GradientLine | SizeLine]:
        """The lines that some values need, in their order."""
        needed = {id(w) for w in wanted}
        found: list[OpLine | GradientLine | SizeLine] = []
        for line in reversed(self.lines):
            if any(id(r) in needed for r in line.results):
                found.append(line)
                needed |= {id(a) for a in line.needs}
        return found[::-1]

    def fit_feed(self, name: str, value: GraphValue, given: Any, known: dict[Any, int]) -> Any:
        """An array for a placeholder or variable, checked; records in `known` what unknown sizes are."""
        spec, array = value.spec, as_value(given)
        if type(array) is Tensor:
            if array.is_tracked:
                raise ArgumentError(
                    f"{name!r} is fed {array!r}, whose derivatives would be lost; a graph is fed bare arrays and "
                    "tensors.\n  Feed x.detach() if they are not wanted."
                )
            array = array.value
        if isinstance(array, Value):
            raise ArgumentError(f"{name!r} is fed {array!r}; a graph is fed bare arrays and tensors.")
        if not is_array(given):  # Python's numbers and lists have no dtype of their own
            array = _convert_feed(array, spec, name)
        if array.dtype != spec.dtype:
            raise DtypeError(
                f"{name!r} is {spec.dtype}, got {format_spec(spec_of(array))}.\n  Use astype({spec.dtype.name!r})."
            )
        fits = array.ndim == spec.ndim and all(
            known.setdefault(n.name[0], m) == m if isinstance(n, Size) else n == m
            for n, m in zip(spec.shape, array.shape, strict=False)
        )
        if not fits:
            also = f", where sizes are {known} by what is fed so far" if known and array.ndim == spec.ndim else ""
            raise ShapeError(f"{name!r} has shape {value.shape}, got {array.shape}{also}.")
        return array


def _convert_feed(array: Any, spec: Spec, name: str) -> Any:
    made = np.asarray(array)
    if not np.can_cast(made.dtype, spec.dtype, "same_kind"):
        raise DtypeError(f"{name!r} is {spec.dtype}, got {made.dtype}.")
    return made.astype(spec.dtype)


def _check_static(op: Op, name: str, value: Any) -> None:
    """A nested program was staged for fixed sizes, so none may be unknown."""
    for r in value if type(value) is tuple else (value,):
        if isinstance(r, Program) and any(has_unknowns(s.shape) for s in (*r.input_specs, *r.output_specs)):
            raise GraphError(
                f"{op.name}: {name} works on an array whose size is not known yet.\n"
                "  Give the placeholder its whole shape."
            )


def _refuse_lift(scope: Scope, x: Any) -> Any:
    raise GraphError("a tape cannot start on values of a graph that is being built; use g.gradients.")
