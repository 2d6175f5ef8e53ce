"""`pb.ode.solve`: trees, parameters and options in, a solution with its report out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..arrays.argument_checks import check_functions, short_repr
from ..arrays.spec import spec_of
from ..arrays.tensor import Tensor, wrap
from ..arrays.trees import flatten, unflatten
from ..arrays.value import Value
from ..errors import ArgumentError, DtypeError, ShapeError
from ..implicit.option_checks import check_positive_count
from ..implicit.vector_layout import VectorLayout
from ..ops.dispatch import shape
from ..ops.fusion import cast_whole
from ..ops.index.indexing import getitem
from ..ops.shape.reshaping import astype
from ..program.hoist import hoist
from ..program.ir import Symbol
from ..program.run import prepare, run
from ..program.stage import stage as trace
from ..transforms.boundary import as_array_leaf, unwrap_to_level
from ..transforms.control.staging import is_staged
from ..transforms.custom.rules import is_tracked
from ..transforms.vectorize import Batched, vmap
from .explicit_methods import Tsit5
from .methods import Method
from .problem import Outcome, Problem
from .report import Report, Solution
from .solve_op import Call, DerivativePolicy, solve_vectors
from .step_control import PID, FixedSteps, StepControl, Tolerance
from .through_steps import ThroughSteps

Function = Callable[..., Any]


@cast_whole("high")
def solve(
    f: Function,
    y0: Any,
    span: Any,
    *params: Any,
    saveat: Any = None,
    method: Method | None = None,
    control: StepControl | None = None,
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
    solution is differentiated: with respect to y0, t0, t1, the params, `saveat` and what f closes over. A solve that
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
    layout, leaves = VectorLayout.from_tree(y0, "ode.solve")
    if layout.dtype.itemsize < 4:
        raise DtypeError(
            f"ode.solve: states of {layout.dtype} are too coarse.\n  Solve in float32, and cast the result."
        )
    method.check_state(layout)
    t0, t1 = _parse_span(span, layout)
    times = np.zeros(0, layout.dtype) if saveat is None else _parse_times(saveat, t0, t1, layout)
    given, structure = flatten(params)
    p = [as_array_leaf(x, "ode.solve") for x in given]
    start = layout.join_leaves(leaves)
    function, arguments, met_tensors = _hoist(_on_vectors(f, layout, structure), t0, start, p)
    tolerance = _make_tolerance(rtol, atol, layout)
    steps = _count_steps(method, control, max_steps)
    xs = (start, t0, t1, times, *arguments)
    keeps = policy.saves_states(layout.size * layout.dtype.itemsize, steps) and any(map(_may_be_pulled, xs))
    problem = Problem(
        function, method, control, tolerance, steps, saveat is not None, keeps, strict, layout.size, layout.dtype
    )
    done = solve_vectors(Call(problem, policy), *xs)
    y = done.y
    if not isinstance(y, Value) and (met_tensors or any(isinstance(x, Tensor) for x in (*leaves, *p))):
        y = wrap(y, spec_of(y))  # tensors in, tensors out
    tree = layout.to_tree(y) if saveat is None else vmap(layout.to_tree)(y)
    return Solution(t1 if saveat is None else times, tree, _make_report(problem, method, done))


def _check_option(given: Any, kind: type, name: str, example: str) -> Any:
    if not isinstance(given, kind):
        raise ArgumentError(f"ode.solve: {name} must be an object such as {example}, got {short_repr(given)}.")
    return given


def _parse_span(span: Any, layout: VectorLayout) -> tuple[Any, Any]:
    if not isinstance(span, (tuple, list)) or len(span) != 2:
        raise ArgumentError(f"ode.solve: the span is (t0, t1), got {short_repr(span)}.")
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
    return lambda t, y, *p: layout.to_vector(f(t, layout.to_tree(y), *unflatten(structure, p)), "ode.solve: f")


def _hoist(function: Function, t: Any, y: Any, p: list[Any]) -> tuple[Function, list[Any], bool]:
    """A function of (t, y, *parameters) as one of (t, y, *arguments), where arguments are all that carries derivatives,
    parameter or closed over. A function that cannot be traced runs as it stands; the op refuses what it closes over.
    """

    def call(t: Any, y: Any) -> Any:
        return unwrap_to_level(function(t, y, *p), y.scope)

    try:
        traced = trace(call, spec_of(t), spec_of(y))
    except Exception:  # whatever is wrong is raised when the function runs on arrays
        return function, p, False
    met_tensors = any(type(a) is Tensor for e in traced.equations for a in e.args)
    program, found = hoist(traced, is_tracked)
    prepare(program)
    return lambda t, y, *arguments: run(program, (t, y, *arguments))[0], found, met_tensors


def _may_be_pulled(x: Any) -> bool:
    """Whether a backward pass may reach a value: a tape or a program lies in it."""
    while isinstance(x, Value):
        if type(x) is Symbol or (type(x) is Tensor and x.node is not None):
            return True
        x = next(iter(x.parts()), None)
    return False


def _make_report(problem: Problem, method: Method, done: Outcome) -> Report:
    steps, rejected, status = (_as_number(getitem(done.counts, i)) for i in range(3))
    t, error = (_as_number(getitem(done.numbers, i)) for i in range(2))
    tried = steps + rejected
    evaluations = 1 + tried * method.evaluations + (0 if isinstance(problem.control, FixedSteps) else 1)
    error = error if problem.method.error_order is not None and not isinstance(problem.control, FixedSteps) else 0.0
    return Report(steps, rejected, evaluations, error, status, t)


def _as_number(x: Any) -> Any:
    """A count or a number of a solve that has run; a value of the program in a trace or in a batch."""
    if isinstance(x, Value) and (is_staged(x) or isinstance(_inner(x), Batched)):
        return x
    return _inner(x).item()


def _inner(x: Any) -> Any:
    while isinstance(x, Value) and not isinstance(x, Batched):
        x = next(iter(x.parts()))
    return x
