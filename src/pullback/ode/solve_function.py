"""`pb.ode.solve`: trees, parameters and options in, a solution with its report out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..arrays.argument_checks import check_functions, explains_arguments, short_repr
from ..arrays.spec import spec_of
from ..arrays.tensor import Tensor, wrap
from ..arrays.trees import flatten, unflatten
from ..arrays.value import Value
from ..errors import ArgumentError, DtypeError, ShapeError
from ..implicit.option_checks import check_positive_count
from ..implicit.vector_layout import VectorLayout
from ..ops.dispatch import shape
from ..ops.elementwise import pointwise
from ..ops.fusion import cast_whole
from ..ops.index.indexing import getitem
from ..ops.placement import as_value_beside, move
from ..ops.shape.reshaping import astype, reshape
from ..ops.user_calls import call_function
from ..program.run import run
from ..transforms.boundary import as_array_leaf
from ..transforms.stage import parts_elements, trace_with_captures
from ..transforms.vectorize import Batched, solve_apart, vmap
from .crossings import find_met
from .dense import make_dense
from .events import Condition, Event, EventRecord, parse_events, slots_of
from .explicit_methods import Tsit5
from .loops import is_bare
from .methods import Method, Tolerance
from .policies import Call, DerivativePolicy, may_be_pulled
from .problem import Outcome, Problem, integers_as_floats
from .report import Report, Solution
from .solve_op import solve_vectors
from .step_control import PID, FixedSteps, StepControl
from .through_steps import ThroughSteps

Function = Callable[..., Any]


@cast_whole("high")
@explains_arguments("ode.solve")
def solve(
    f: Function,
    y0: Any,
    span: Any,
    *params: Any,
    saveat: Any = None,
    method: Method | None = None,
    control: StepControl | None = None,
    events: Event | Sequence[Event] | None = None,
    dense: bool = False,
    derivative: DerivativePolicy | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    max_steps: int = 4096,
    strict: bool = True,
) -> Solution:
    """The solution of dy/dt = f(t, y, *params) from y(t0) = y0 to t1, where `span` is (t0, t1), in either direction.

    y and the params are trees of arrays; `.y` of the result is the state at t1, or the states at the times `saveat`,
    stacked. Errors of a step are held below atol + rtol |y| (1e-6 and 1e-9; 1e-4 and 1e-6 in single precision).
    `method`, `control` and `derivative` are objects of `pb.ode`: how a step is taken, how long steps are, and how the
    solution is differentiated: with respect to y0, t0, t1, the params, `saveat` and what f closes over. `events` are
    conditions whose crossings are found (`pb.ode.Event`): a terminal one ends the solve, and `.t` is its time then.
    With `dense`, the solution can be called: `solution(t)` is the state at t, and has derivatives too. A solve that
    does not reach t1 raises, or, if it is not `strict`, says so in its report.

    >>> import numpy as np, pullback as pb
    >>> end = lambda k: pb.ode.solve(lambda t, y, k: -k * y, 1.0, (0.0, 1.0), k).y
    >>> round(float(end(2.0)), 6), round(float(pb.grad(end)(2.0)), 6)
    (0.135335, -0.135335)
    >>> pb.ode.solve(lambda t, y: t * y, 1.0, (0, 2), saveat=np.array([0.0, 1.0, 2.0])).y.round(5)
    array([1.     , 1.64872, 7.38906])
    """
    check_functions("ode.solve", f)
    method = _check_option(Tsit5() if method is None else method, Method, "method", "pb.ode.Tsit5()")
    control = _check_option(PID() if control is None else control, StepControl, "control", "pb.ode.PID()")
    policy = ThroughSteps() if derivative is None else derivative
    policy = _check_option(policy, DerivativePolicy, "derivative", "pb.ode.ThroughSteps()")
    if not isinstance(dense, bool):
        raise ArgumentError(f"ode.solve: dense must be True or False, got {short_repr(dense)}.")
    layout, leaves = _lay_out_state(y0)
    method.check_state(layout)
    t0, t1 = _parse_span(span, layout)
    times = np.zeros(0, layout.dtype) if saveat is None else _parse_times(saveat, t0, t1, layout)
    start = layout.join_leaves(leaves)
    t0, t1, times = (move(x, layout.device) for x in (t0, t1, times))
    given, structure = flatten(params)
    p = [as_value_beside(start, as_array_leaf(x, "ode.solve")) for x in given]
    tolerance = _make_tolerance(rtol, atol, layout)
    steps = _count_steps(method, control, max_steps)
    function, conditions, arguments, met_tensors = _hoist_all(f, parse_events(events), layout, structure, t0, start, p)
    xs = (start, t0, t1, times, *arguments)
    is_pulled = any(map(may_be_pulled, xs))
    keeps = dense or (policy.saves_states(layout.size * layout.dtype.itemsize, steps) and is_pulled)
    problem = Problem(
        function, method, control, tolerance, steps, saveat is not None, keeps, strict, layout.size, layout.dtype,
        layout.device, conditions, policy.count_held(steps) if is_pulled and not keeps else 0,
    )  # fmt: skip
    call = Call(problem, policy)
    done = solve_vectors(call, *xs)
    if met_tensors or any(isinstance(x, Tensor) for x in (*leaves, *p)):  # tensors in, tensors out
        y, found = (x if isinstance(x, Value) else wrap(x, spec_of(x)) for x in (done.y, done.found))
        done = done._replace(y=y, found=found)
    report = _make_report(problem, method, done)
    curve = make_dense(call, layout, done, xs) if dense else None
    if conditions:
        t, y, records = _read_events(problem, layout, done, (t0, t1, times))
        return Solution(t, y, report, records, curve)
    tree = layout.to_tree(done.y) if saveat is None else vmap(layout.to_tree)(done.y)
    return Solution(t1 if saveat is None else times, tree, report, (), curve)


def _read_events(
    problem: Problem, layout: VectorLayout, done: Outcome, span: Sequence[Any]
) -> tuple[Any, Any, tuple[EventRecord, ...]]:
    """The times and states that are wanted, up to the end, and what was found of each event."""
    t0, t1, times = span
    count, end = int(shape(times)[0]), getitem(done.found, -1)
    records = []
    for e, (slots, is_met) in enumerate(zip(slots_of(problem.events), find_met(problem, done.hits), strict=True)):
        t = pointwise.where(is_met, done.found[slots.start : slots.stop], np.nan)
        here = done.y[count + slots.start : count + slots.stop]
        y = vmap(layout.to_tree)(pointwise.where(reshape(is_met, (-1, 1)), here, np.nan))
        records.append(EventRecord(_as_number(getitem(done.hits, e)), t, y))
    if not problem.has_times:
        return end, layout.to_tree(getitem(done.y, -1)), tuple(records)
    is_beyond = pointwise.greater((times - end) * pointwise.sign(t1 - t0), 0)
    tree = vmap(layout.to_tree)(done.y[:count])
    return pointwise.where(is_beyond, end, times), tree, tuple(records)


def _check_option(given: Any, kind: type, name: str, example: str) -> Any:
    if not isinstance(given, kind):
        raise ArgumentError(f"ode.solve: {name} must be an object such as {example}, got {short_repr(given)}.")
    return given


def _lay_out_state(y0: Any) -> tuple[VectorLayout, list[Any]]:
    """The state at the start; integers are numbers like 1.0 there, as they are in the span."""
    layout, leaves = VectorLayout.from_tree(integers_as_floats(y0), "ode.solve", allow_complex=True)
    if layout.dtype.itemsize < 4:
        raise DtypeError(
            f"ode.solve: states of {layout.dtype} are too coarse.\n  Solve in float32, and cast the result."
        )
    return layout, leaves


def _parse_span(span: Any, layout: VectorLayout) -> tuple[Any, Any]:
    if not isinstance(span, (tuple, list)) or len(span) != 2:
        raise ArgumentError(
            f"ode.solve: the span is (t0, t1), got {short_repr(span)}.\n"
            "  The order is solve(f, y0, (t0, t1)); times at which states are wanted: saveat=."
        )
    found = [astype(as_array_leaf(t, "ode.solve: the span"), layout.dtype) for t in span]
    for name, t in zip(("t0", "t1"), found, strict=True):
        if shape(t) != ():
            raise ShapeError(f"ode.solve: {name} has shape {shape(t)}, wanted one number.")
        if type(t) is np.ndarray and not np.isfinite(t):
            raise ArgumentError(f"ode.solve: {name} is {t}, wanted a finite time.")
    return found[0], found[1]


def _parse_times(saveat: Any, t0: Any, t1: Any, layout: VectorLayout) -> Any:
    times = astype(as_array_leaf(saveat, "ode.solve: saveat"), layout.dtype)
    if len(shape(times)) != 1 or not shape(times)[0]:
        raise ShapeError(f"ode.solve: saveat has shape {shape(times)}, wanted a vector of at least one time.")
    if all(type(x) is np.ndarray for x in (times, t0, t1)):
        ordered = times if t1 >= t0 else -times
        low, high = sorted((float(t0), float(t1)))
        if not (np.all(np.diff(ordered) >= 0) and low <= times.min() and times.max() <= high):
            raise ArgumentError(
                f"ode.solve: saveat must go from t0 = {t0} to t1 = {t1} in the order of time; it begins with "
                f"{times[0]}, ends with {times[-1]}{'' if np.all(np.diff(ordered) >= 0) else ' and is not in order'}."
            )
    return times


def _make_tolerance(rtol: Any, atol: Any, layout: VectorLayout) -> Tolerance:
    is_double = layout.dtype.itemsize >= 8
    chosen = (
        (1e-6 if is_double else 1e-4) if rtol is None else rtol,
        (1e-9 if is_double else 1e-6) if atol is None else atol,
    )
    for name, value in zip(("rtol", "atol"), chosen, strict=True):
        if isinstance(value, bool) or not isinstance(value, (int, float, np.floating)) or not 0 <= value < np.inf:
            raise ArgumentError(f"ode.solve: {name} must be a number that is not negative, got {value!r}.")
    if not any(chosen):
        raise ArgumentError("ode.solve: rtol and atol are both zero: no step could be accepted.")
    return Tolerance(*(float(x) for x in chosen))


def _count_steps(method: Method, control: StepControl, max_steps: Any) -> int:
    """How many steps there may be."""
    if isinstance(control, FixedSteps):
        return control.count
    if method.error_order is None:
        raise ArgumentError(
            f"ode.solve: {type(method).__name__} does not estimate its error: pass control=pb.ode.FixedSteps(count)."
        )
    return check_positive_count(max_steps, "ode.solve: max_steps")


def _on_vectors(f: Function, layout: VectorLayout, structure: Any) -> Function:
    def on_vectors(t: Any, y: Any, *p: Any) -> Any:
        with solve_apart("pb.ode.solve"):
            found = call_function(f, (t, layout.to_tree(y), *unflatten(structure, p)), {})
            return layout.to_vector(found, "ode.solve: f")

    return on_vectors


def _on_numbers(condition: Function, layout: VectorLayout, structure: Any) -> Function:
    def measure(t: Any, y: Any, *p: Any) -> Any:
        with solve_apart("pb.ode.solve"):
            found = call_function(condition, (t, layout.to_tree(y), *unflatten(structure, p)), {})
        level = as_array_leaf(found, "ode.Event: the condition")
        if shape(level) != ():
            raise ShapeError(f"ode.Event: the condition returned shape {shape(level)}, wanted one number.")
        if spec_of(level).dtype.kind in "bc":
            raise DtypeError(
                f"ode.Event: the condition returned {spec_of(level)}, wanted a real number whose sign changes.\n"
                "  Write y < 1 as y - 1, with direction=-1."
            )
        return move(astype(level, layout.dtype), layout.device)

    return measure


def _hoist_all(
    f: Function, events: Sequence[Event], layout: VectorLayout, structure: Any, t: Any, y: Any, p: list[Any]
) -> tuple[Function, tuple[Condition, ...], list[Any], bool]:
    """f and the conditions of events as functions of (t, y, *arguments), these arguments, and whether tensors were met;
    each function has arguments of its own among them.
    """
    arguments, met_tensors, conditions = list[Any](), False, []

    def hoist(function: Function) -> Function:
        nonlocal met_tensors
        hoisted, found, met = _hoist(function, t, y, p)
        first, end = len(arguments), len(arguments) + len(found)
        arguments.extend(found)
        met_tensors = met_tensors or met
        return lambda t, y, *arguments: hoisted(t, y, *arguments[first:end])

    function = hoist(_on_vectors(f, layout, structure))
    for event in events:
        condition = hoist(_on_numbers(event.condition, layout, structure))
        conditions.append(Condition(condition, event.terminal, event.direction, event.most))
    return function, tuple(conditions), arguments, met_tensors


def _hoist(function: Function, t: Any, y: Any, p: list[Any]) -> tuple[Function, list[Any], bool]:
    """A function of (t, y, *parameters) as one of (t, y, *arguments), where arguments are all that carries derivatives,
    parameter or closed over. A function that cannot be traced runs as it stands; the op refuses what it closes over.
    """

    try:
        program, found, met_tensors = trace_with_captures(lambda t, y: function(t, y, *p), spec_of(t), spec_of(y))
    except Exception as error:  # whatever is wrong is raised when the function runs on arrays
        if parts_elements(error):
            raise
        return _with_own_arrays(function), p, False
    return lambda t, y, *arguments: run(program, (t, y, *arguments))[0], found, met_tensors


def _with_own_arrays(function: Function) -> Function:
    """A function that runs on arrays: it may write to them, and return the same one, filled anew, each time."""

    def own(x: Any) -> Any:
        return x.copy() if is_bare(x) else x

    return lambda t, y, *p: own(function(own(t), own(y), *map(own, p)))


def _make_report(problem: Problem, method: Method, done: Outcome) -> Report:
    steps, rejected, status = (_as_number(getitem(done.counts, i)) for i in range(3))
    t, error = (_as_number(getitem(done.numbers, i)) for i in range(2))
    tried = steps + rejected
    evaluations = 1 + tried * method.evaluations + (0 if isinstance(problem.control, FixedSteps) else 1)
    error = error if problem.method.error_order is not None and not isinstance(problem.control, FixedSteps) else 0.0
    return Report(steps, rejected, evaluations, error, status, t)


def _as_number(x: Any) -> Any:
    """A count or a number of a solve that has run; a value where it is not known, as in a trace, or in a batch."""
    inner = _inner(x)
    return x if isinstance(inner, Value) else inner.item()


def _inner(x: Any) -> Any:
    while isinstance(x, Value) and not isinstance(x, Batched) and (parts := x.parts()):
        x = parts[0]
    return x
