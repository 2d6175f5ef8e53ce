"""The roles of an op: one check for each, which compares two ways to compute the same value.

`ROLES` is the list. A check returns None where the role does not apply.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ...arrays.spec import spec_of
from ...compile.jit import jit
from ...errors import DtypeError, PullbackError
from ...ops.dtype_info import finfo
from ...program.ir import Program
from ...transforms.forward import jvp
from ...transforms.reverse import grad, vjp
from ...transforms.stage import stage
from ...transforms.taylor.jet import jet
from ...transforms.vectorize import vmap
from .cases import (
    Case,
    as_results,
    can_carry_derivative,
    flat_vector,
    random_combination,
    random_like,
    real_inner_product,
    weighted_real_sum,
)
from .edge_cases import edge_cases, reorder_memory
from .finite_differences import measure_slope
from .high_precision import high_precision_error
from .oracles import oracle_of

#: The least size an error by differences is relative to: a part of the largest slope, and of the largest value (in
#: single precision more of it, since a slope of 1e-3 of the value is lost in its roundoff).
_OF_LARGEST, _OF_VALUE, _OF_ROUNDOFF = 1e-2, 1e-3, 100.0
#: The uncertainty left by differences that converge.
_SURE = 1e-9


class Measurement(NamedTuple):
    """How far apart two results are, relative to their size, and a description of both."""

    error: float
    description: str


@dataclass(frozen=True, slots=True)
class Role:
    """One property to check, and the error allowed in double and in single precision (None: not checked there). One
    of derivatives is checked where there are any.
    """

    name: str
    what: str
    check: Callable[[Case], Measurement | None]
    double: float
    single: float | None
    of_derivatives: bool = False


def relative_distance(found: Any, wanted: Any, least: float = 0.0) -> float:
    """The largest distance of two lists of arrays, relative to the largest element (or `least`, if that is more)."""
    a, b = (x.astype(float) if x.dtype == bool else x for x in map(flat_vector, (found, wanted)))
    if a.shape != b.shape:
        return np.inf
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(all="ignore"):
        gaps = np.where(same, 0.0, np.abs(a - b))
        size = max(float(np.abs(b[np.isfinite(b)]).max(initial=0.0)), least)
    worst = float(gaps.max(initial=0.0))
    return np.inf if np.isnan(gaps).any() else worst / size if size and worst else worst


def is_low_precision(case: Case) -> bool:
    """Whether anything in a case has fewer digits than double precision."""
    values = [*case.args, *as_results(case.call(*case.args))]
    return any(can_carry_derivative(x) and finfo(np.asarray(x).dtype).bits < 64 for x in values)


def direction_in_dtype(case: Case, seed: int) -> list[Any]:
    """A direction in the dtypes of the arguments."""
    return [v.astype(np.asarray(a).dtype) for v, a in zip(case.direction(seed), case.floats, strict=True)]


def scaled_direction(case: Case, seed: int, least: float = 1.0) -> list[Any]:
    """A direction in which each argument moves by about its own size, or by `least` if that is more."""
    sizes = [max(least, float(np.abs(x).max(initial=0.0))) or 1.0 for x in map(np.asarray, case.floats)]
    return [(v * size).astype(v.dtype) for v, size in zip(direction_in_dtype(case, seed), sizes, strict=True)]


def _compare(found: Any, wanted: Any, name: str, other: str, least: float = 0.0) -> Measurement:
    description = f"{name} {format_values(found)}, {other} {format_values(wanted)}"
    return Measurement(relative_distance(found, wanted, least), description)


def check_value(case: Case) -> Measurement | None:
    oracle = oracle_of(case)
    return None if oracle is None else _compare_with_oracle(oracle, case)


def check_edges(case: Case) -> Measurement | None:
    """The value under another memory layout, and at edge cases of a sample against the oracle."""
    if case.op is None or case.kinds == "c" or is_low_precision(case):
        return None
    worst = _compare(case.call(*reorder_memory(case).args), case.call(*case.args), "other strides: value", "before")
    for name, relative in edge_cases(case):
        oracle = oracle_of(relative)
        if oracle is not None:
            measured = _compare_with_oracle(oracle, relative)
            worst = max(worst, Measurement(measured.error, f"{name}: {measured.description}"))
    return worst


def _compare_with_oracle(oracle: Callable[[Any], Any], case: Case) -> Measurement:
    """Each result against its oracle, relative to its own size."""
    worst = Measurement(0.0, "")
    for left, right in oracle(case.call(*case.args)):
        measured = _compare(left, right, "value", "oracle")
        worst = max(worst, measured if np.shape(left) == np.shape(right) else measured._replace(error=np.inf))
    return worst


def check_spec(case: Case) -> Measurement | None:
    specs: Any
    if case.op is None:
        program = _try_stage(case)
        if program is None:
            return None
        specs, found = [spec_of(x) for x in program.outputs], case.function(*case.floats)
    elif case.op.spec is None:
        return None
    else:
        specs, found = case.op.spec(*map(spec_of, case.args), **case.static), case.call(*case.args)
    listed = [(s.shape, s.dtype) for s in as_results(specs)]
    made = [(np.shape(x), np.asarray(x).dtype) for x in as_results(found)]
    return Measurement(0.0 if listed == made else np.inf, f"spec is {listed}, the value is {made}")


def check_staged(case: Case) -> Measurement | None:
    program = _try_stage(case) if case.moving else None
    if program is None:
        return None
    return _compare(program.run(*case.floats), case.function(*case.floats), "program", "eager")


def _try_stage(case: Case) -> Program | None:
    """The staged function; None if it cannot be staged, such as a user's with branches."""
    try:
        return stage(case.function)(*case.floats)
    except PullbackError:
        if case.op is None:
            return None
        raise


def stages(case: Case) -> bool:
    """Whether a case can be staged; a user's function with branches cannot."""
    return _try_stage(case) is not None if case.moving else case.op is not None and case.op.spec is not None


def check_compiled(case: Case) -> Measurement | None:
    """Value, pull and push in one compiled program, against the eager calls."""
    if not is_smooth(case):
        args = [np.asarray(a) for a in case.args]
        if not args or case.op is None or case.op.spec is None:
            return None
        return compare_each(jit(case.call)(*args), case.call(*args))
    xs, v = case.floats, direction_in_dtype(case, 2)
    if _try_stage(case) is None:
        return None
    bars = random_cotangents(case.function(*xs))

    def value_pull_push(xs: Any, bars: Any, v: Any) -> Any:
        out, pull = vjp(case.function, *xs)
        shares = pull(bars)
        return [*as_results(out), *shares, *as_results(jvp(case.function, xs, v)[1])]

    return compare_each(jit(value_pull_push)(xs, bars, v), value_pull_push(xs, bars, v))


def random_cotangents(out: Any) -> Any:
    """Cotangents for results, in their dtypes."""
    rng = np.random.default_rng(3)
    bars = [np.asarray(random_like(rng, o)).astype(o.dtype) for o in as_results(out)]
    return tuple(bars) if isinstance(out, tuple) else bars[0]


def compare_each(found: Any, wanted: Any, name: str = "compiled", other: str = "eager") -> Measurement:
    """Each of several results relative to its own size, for a pull may be a thousand times its value."""
    specs = [[(x.shape, x.dtype) for x in map(np.asarray, as_results(values))] for values in (found, wanted)]
    if specs[0] != specs[1]:
        return Measurement(np.inf, f"{name} {specs[0]}, {other} {specs[1]}")
    pairs = zip(as_results(found), as_results(wanted), strict=True)
    return max((_compare(f, w, name, other) for f, w in pairs), default=Measurement(0.0, ""))


def check_differences(case: Case) -> Measurement:
    """First and second derivative along a line, against differences; what is short of digits, against double."""
    xs, least = case.floats, _least_movement(case)
    v, w = scaled_direction(case, 1, least), scaled_direction(case, 5, least)
    if any(np.finfo(np.asarray(x).dtype).bits < 64 for x in xs):
        wide = [np.asarray(x, "float64") for x in (*xs, *v)]
        found, wanted = jvp(case.function, xs, v)[1], jvp(case.function, wide[: len(xs)], wide[len(xs) :])[1]
        return _compare(found, wanted, "push", "in double precision", 1.0)

    def push_along(*ys: Any) -> Any:
        return jvp(case.function, ys, v)[1]

    def second_along(*ys: Any) -> Any:
        return jvp(push_along, ys, w)[1]

    value, slope = _differentiated_function(case, push_along, v)
    sizes = largest_per_result(value(*xs), flat_vector(value(*xs)))
    worst = max(
        _compare_with_differences(value, xs, v, push_along(*xs), sizes),
        _compare_with_differences(slope, xs, w, second_along(*xs), sizes),
    )
    if slope is push_along:
        with suppress(DtypeError):  # some complex ops have two derivatives and refuse the third by name
            third = jvp(second_along, xs, v)[1]
            worst = max(worst, _compare_with_differences(second_along, xs, v, third, sizes))
    return worst


def _least_movement(case: Case) -> float:
    """How far an argument moves at least: 1, unless that is so far for a user's function that no step is short."""
    if case.op is not None:
        return 1.0
    slope = measure_slope(along_line(case.function, case.floats, scaled_direction(case, 1)), float(np.finfo(float).eps))
    sure = slope.error <= _SURE * np.maximum(np.abs(slope.value).max(initial=0.0), _OF_VALUE * slope.scale)
    return 1.0 if sure.all() else 0.0


def _at_fixed_probability(case: Case) -> Callable[..., Any]:
    """The logarithm of a gamma variable as its parameter moves and its probability, given by the sample, does not."""
    from scipy.special import gammainc, gammaincinv

    probability = gammainc(case.floats[0], np.exp(case.call(*case.args)))
    return lambda a: np.log(gammaincinv(a, probability))


#: Ops whose derivative is by definition that of another function: by name, how that is made from a case.
SURROGATES: dict[str, Callable[[Case], Callable[..., Any]]] = {
    "stop_gradient": lambda case: lambda x: np.asarray(case.floats[0]),
    "straight_through_round": lambda case: np.asarray,
    "log_gamma_draw": _at_fixed_probability,
}


def _differentiated_function(
    case: Case, push_along: Callable[..., Any], v: Sequence[Any]
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The function that a case's derivatives are those of, and its slope along v: mostly its own."""
    stand_in = None if case.op is None else SURROGATES.get(case.op.name)
    if stand_in is None:
        return case.function, push_along
    value = stand_in(case)
    return value, lambda *ys: measure_slope(along_line(value, ys, v), float(np.finfo(float).eps)).value


def _compare_with_differences(
    f: Callable[..., Any], xs: Sequence[Any], v: Sequence[Any], found: Any, sizes: Any
) -> Measurement:
    """A derivative along v against differences. Their uncertainty counts as error: a check that could not
    have seen a mistake proves nothing.
    """
    start = f(*xs)
    eps = max(
        (float(np.finfo(x.dtype).eps) for x in map(np.asarray, as_results(start)) if can_carry_derivative(x)),
        default=0.0,
    )
    slope = measure_slope(along_line(f, xs, v), eps, sizes)
    values = largest_per_result(start, slope.scale)
    slopes = np.maximum(np.abs(slope.value), _OF_LARGEST * largest_per_result(start, slope.value))
    floor = max(_OF_VALUE, _OF_ROUNDOFF * eps**0.5)
    errors = _relative_errors(flat_vector(found) - slope.value, slope.error, np.maximum(slopes, floor * values))
    errors = np.where(np.isfinite(flat_vector(start)), errors, 0.0)
    differences = f"by differences {format_values(slope.value)}, accurate to {format_values(slope.error)}"
    description = f"derivative {format_values(found)}, {differences}"
    return Measurement(float(errors.max(initial=0.0)), description)


def along_line(f: Callable[..., Any], xs: Sequence[Any], v: Sequence[Any]) -> Callable[[float], Any]:
    """A function along a line: a vector as a function of one variable."""
    return lambda t: flat_vector(f(*(x + t * d for x, d in zip(xs, v, strict=True))))


def _relative_errors(gap: Any, unsure: Any, size: Any) -> Any:
    """The larger of a gap and of what is unsure, relative to a size; nothing where there is neither gap nor size."""
    with np.errstate(all="ignore"):
        errors = np.maximum(np.abs(gap), unsure) / size
    return np.where(np.isnan(errors), np.where((gap == 0) & (size == 0), 0.0, np.inf), errors)


def largest_per_result(outs: Any, vector: Any) -> Any:
    """For each element of several results in one vector, the largest of its own result."""
    found, at = np.zeros(len(vector)), 0
    for count in (np.size(x) for x in as_results(outs)):
        found[at : at + count] = np.abs(vector[at : at + count]).max(initial=0.0)
        at += count
    return found


def is_smooth(case: Case) -> bool:
    return bool(case.moving) and (case.op is None or case.op.differentiable)


def check_transpose(case: Case) -> Measurement:
    """<u, J v> = <J^T u, v>, and each cotangent in the shape and dtype of its argument."""
    xs, v = case.floats, direction_in_dtype(case, 2)
    out, tangent = jvp(case.function, xs, v)
    bars = random_cotangents(out)
    shares = vjp(case.function, *xs)[1](bars)
    for x, share in zip(xs, shares, strict=True):
        if (share.shape, share.dtype) != (np.shape(x), np.asarray(x).dtype):
            return Measurement(np.inf, f"cotangent {spec_of(share)} of an argument {spec_of(x)}")
    left, right = real_inner_product(bars, tangent), real_inner_product(shares, v)
    size = _sum_of_term_sizes(bars, tangent) + _sum_of_term_sizes(shares, v)
    return Measurement(_relative_error(left - right, size), f"<u, Jv> = {left:.15g}, <J^T u, v> = {right:.15g}")


def _relative_error(gap: Any, size: float) -> float:
    """The largest of some gaps relative to a size; 0 relative to 0 is 0."""
    worst = float(np.abs(gap).max(initial=0.0))
    return worst / size if size and worst else worst if np.isfinite(worst) else np.inf


def check_second_order(case: Case) -> Measurement:
    """v^T H w by forward-forward, forward-reverse, reverse-forward and reverse-reverse."""
    xs, v, w = case.floats, direction_in_dtype(case, 4), direction_in_dtype(case, 5)
    places = tuple(range(len(xs)))
    slopes = grad(case.scalar, places)

    def push_along(*ys: Any) -> Any:
        return jvp(case.scalar, ys, v)[1]

    def pull_along(*ys: Any) -> Any:
        return sum(weighted_real_sum(slope, d) for slope, d in zip(slopes(*ys), v, strict=True))

    rows = [grad(f, places)(*xs) for f in (push_along, pull_along)]
    ways = [jvp(push_along, xs, w)[1], jvp(pull_along, xs, w)[1], *(real_inner_product(row, w) for row in rows)]
    found = np.array([float(np.asarray(x)) for x in ways])
    description = ", ".join(f"{n} {x:.15g}" for n, x in zip(("FF", "FR", "RF", "RR"), found, strict=True))
    # Terms that cancel have the roundoff of the largest of them, and a zero curvature has that of the slope.
    size = max(*(_sum_of_term_sizes(row, w) for row in rows), _OF_VALUE * _sum_of_term_sizes(slopes(*xs), w))
    return Measurement(_relative_error(found - found[0], size), description)


def _sum_of_term_sizes(left: Any, right: Any) -> float:
    """The sum of the sizes of an inner product's terms."""
    return float(np.abs(flat_vector(left) * flat_vector(right)).sum())


def check_third_order(case: Case) -> Measurement:
    """Derivatives to the third order along a line: Taylor mode, forward mode, reverse over forward over forward."""
    xs, v = case.floats, direction_in_dtype(case, 11)
    dtype = np.asarray(xs[0]).real.dtype

    def along_t(t: Any) -> Any:
        return case.function(*(x + t * d for x, d in zip(xs, v, strict=True)))

    def slope(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return lambda t: jvp(f, (t,), (one,))[1]

    def scalar_along_t(t: Any) -> Any:
        return slope(slope(lambda t: random_combination(along_t(t))))(t)

    start, one = np.zeros((), dtype), np.ones((), dtype)
    value, taylor = jet(along_t, (start,), ([one, None, None],))
    nested = [along_t, slope(along_t), slope(slope(along_t)), slope(slope(slope(along_t)))]
    wanted = [flat_vector(f(start)) for f in nested]
    sizes = [largest_per_result(value, x) for x in wanted]
    sizes = [np.max([size, *(_OF_VALUE * lower for lower in sizes[:k])], axis=0) for k, size in enumerate(sizes)]
    pairs = zip([value, *taylor], wanted, sizes, strict=True)
    errors = [float(_relative_errors(flat_vector(found) - x, 0.0, size).max(initial=0.0)) for found, x, size in pairs]
    reverse, forward = float(grad(scalar_along_t)(start)), float(np.asarray(random_combination(nested[3](start))))
    errors.append(_relative_error(reverse - forward, float(np.sum(sizes[3]))))
    jets = f"jet {format_values(taylor[2])}, FFF {format_values(wanted[3])}"
    description = f"{jets}; of their sum RFF {reverse:.15g}, FFF {forward:.15g}"
    return Measurement(max(errors), description)


def check_batch(case: Case) -> Measurement | None:
    """`vmap` against a loop, each argument batched along its first axis, its last, or not."""
    call, args = (case.call_on_moving, case.floats) if case.op is None else (case.call, list(case.args))
    rng, worst = np.random.default_rng(6), Measurement(0.0, "")
    if not args:
        return None
    for axes in _batch_axes(case, len(args), rng):
        pairs = list(zip(args, axes, strict=True))
        rows = [[a if at is None else vary_argument(case, a, rng) for a, at in pairs] for _ in range(3)]
        columns = zip(args, axes, zip(*rows, strict=True), strict=True)
        stacked = [a if at is None else np.moveaxis(np.stack(column), 0, at) for a, at, column in columns]
        found = vmap(call, axes)(*stacked)
        looped = [as_results(call(*row)) for row in rows]
        wanted = [np.stack([np.asarray(x) for x in results]) for results in zip(*looped, strict=True)]
        if [np.shape(x) for x in as_results(found)] != [x.shape for x in wanted]:
            return Measurement(np.inf, f"axes {axes}: shapes {[np.shape(x) for x in as_results(found)]}")
        worst = max(worst, _compare(found, wanted, f"axes {axes}: vmap", "a loop"))
    return worst


def _batch_axes(case: Case, count: int, rng: Any) -> list[tuple[int | None, ...]]:
    """Which axes to batch: for an op up to eight choices, for a function the first axis of all differentiated
    arguments.
    """
    if case.op is None:
        return [(0,) * count]
    choices = [c for c in itertools.product((0, -1, None), repeat=count) if any(a is not None for a in c)]
    return choices if len(choices) <= 8 else [choices[i] for i in sorted(rng.choice(len(choices), 8, replace=False))]


def vary_argument(case: Case, x: Any, rng: Any) -> Any:
    """Another array of the same kind, inside the same domain; a matrix keeps its shape of spectrum."""
    a = np.asarray(x)
    if can_carry_derivative(a) and (case.op is None or case.op.family == "matrix"):
        return (a * rng.uniform(*((0.98, 1.02) if case.op is None else (0.5, 1.5)))).astype(a.dtype)
    return a if a.dtype.kind == "b" else np.asarray(rng.permutation(a.ravel()).reshape(a.shape))


def check_digits(case: Case) -> Measurement | None:
    found = high_precision_error(case)
    return None if found is None else Measurement(*found)


def format_values(values: Any) -> str:
    """The first few values, for a message."""
    return np.array2string(flat_vector(values)[:4], precision=10, separator=", ", threshold=4)


ROLES = (
    Role("value", "the value against an independent oracle", check_value, 1e-13, 1e-6),
    Role("edges", "the value at ties, infinities, NaN and other strides against the oracle", check_edges, 1e-13, None),
    Role("spec", "shape and dtype inferred without computing", check_spec, 0.0, 0.0),
    Role("transpose", "jvp against vjp, <u, Jv> = <J^T u, v>", check_transpose, 1e-12, 1e-4, True),
    Role("differences", "first and second derivative against differences", check_differences, 1e-8, 1e-3, True),
    Role("second", "the four second-order compositions against each other", check_second_order, 1e-12, 1e-3, True),
    Role("third", "Taylor mode, forward mode and reverse mode to third order", check_third_order, 1e-11, None, True),
    Role("batch", "vmap against a loop", check_batch, 1e-12, 1e-5),
    Role("staged", "the staged program against the eager call", check_staged, 1e-13, 1e-5),
    Role("compiled", "value, pull and push in compiled form against the eager calls", check_compiled, 1e-12, 1e-3),
    Role("digits", "the derivative at 40 digits, by mpmath", check_digits, 1e-10, None),
)
