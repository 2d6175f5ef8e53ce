"""A case in, how far apart two ways to the same answer are out: one small function for each role of an op.

`ROLES` is the list. A role answers None where it does not apply.
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
from ...graph import Graph, stage
from ...transforms import grad, jvp, vjp, vmap
from ...transforms.taylor import jet
from .cases import Case, carries, combine, drawn, flat, inner, parts, weighted
from .digits import forty_digits
from .edges import edges_of, turn_memory
from .oracles import oracle_of
from .slopes import measure_slope
from .stand_ins import STAND_INS

__all__ = ["ROLES", "Measured", "Role", "apart"]


#: What an error by differences is measured by, at least: a part of the largest slope, and of the largest value (in
#: single precision more of it, since a slope of 1e-3 of the value is lost in its roundoff).
_OF_LARGEST, _OF_VALUE, _OF_ROUNDOFF = 1e-2, 1e-3, 100.0
#: What is left uncertain by differences that settle.
_SURE = 1e-9


class Measured(NamedTuple):
    """How far apart two answers are, relative to their size, and what they were."""

    error: float
    words: str


@dataclass(frozen=True, slots=True)
class Role:
    """One thing that must hold, and the error allowed in double and in single precision (None: not asked there)."""

    name: str
    what: str
    check: Callable[[Case], Measured | None]
    double: float
    single: float | None


def apart(found: Any, wanted: Any, least: float = 0.0) -> float:
    """The largest distance of two lists of arrays, relative to the largest element (or `least`, if that is more)."""
    a, b = (x.astype(float) if x.dtype == bool else x for x in map(flat, (found, wanted)))
    if a.shape != b.shape:
        return np.inf
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(all="ignore"):
        gaps = np.where(same, 0.0, np.abs(a - b))
        size = max(float(np.abs(b[np.isfinite(b)]).max(initial=0.0)), least)
    worst = float(gaps.max(initial=0.0))
    return np.inf if np.isnan(gaps).any() else worst / size if size and worst else worst


def coarse(case: Case) -> bool:
    """Whether anything in a case has fewer digits than double precision."""
    values = [*case.args, *parts(case.call(*case.args))]
    return any(carries(x) and np.finfo(np.asarray(x).dtype).bits < 64 for x in values)


def along(case: Case, seed: int) -> list[Any]:
    """A direction in the dtypes of the arguments."""
    return [v.astype(np.asarray(a).dtype) for v, a in zip(case.direction(seed), case.floats, strict=True)]


def sized(case: Case, seed: int, least: float = 1.0) -> list[Any]:
    """A direction in which each argument moves by about its own size, or by `least` if that is more."""
    sizes = [max(least, float(np.abs(x).max(initial=0.0))) or 1.0 for x in map(np.asarray, case.floats)]
    return [(v * size).astype(v.dtype) for v, size in zip(along(case, seed), sizes, strict=True)]


def value(case: Case) -> Measured | None:
    oracle = oracle_of(case)
    return None if oracle is None else _against_oracle(oracle, case)


def edges(case: Case) -> Measured | None:
    """The value of the same numbers in another order of memory, and at relatives of a sample against the oracle."""
    if case.op is None or case.kinds == "c" or coarse(case):
        return None
    found, wanted = case.call(*turn_memory(case).args), case.call(*case.args)
    worst = Measured(apart(found, wanted), f"other strides: value {shown(found)}, before {shown(wanted)}")
    for name, relative in edges_of(case):
        oracle = oracle_of(relative)
        if oracle is not None:
            measured = _against_oracle(oracle, relative)
            worst = max(worst, Measured(measured.error, f"{name}: {measured.words}"))
    return worst


def _against_oracle(oracle: Callable[[Any], Any], case: Case) -> Measured:
    """Each result against what its oracle says, relative to its own size."""
    found = case.call(*case.args)
    worst = Measured(0.0, "")
    for left, right in oracle(found):
        error = apart(left, right) if np.shape(left) == np.shape(right) else np.inf
        worst = max(worst, Measured(error, f"value {shown(left)}, oracle {shown(right)}"))
    return worst


def spec(case: Case) -> Measured | None:
    said: Any
    if case.op is None:
        program = _program(case)
        if program is None:
            return None
        said, found = [spec_of(x) for x in program.outputs], case.function(*case.floats)
    elif case.op.spec is None:
        return None
    else:
        said, found = case.op.spec(*map(spec_of, case.args), **case.static), case.call(*case.args)
    listed = [(s.shape, s.dtype) for s in parts(said)]
    made = [(np.shape(x), np.asarray(x).dtype) for x in parts(found)]
    return Measured(0.0 if listed == made else np.inf, f"spec says {listed}, the value is {made}")


def staged(case: Case) -> Measured | None:
    program = _program(case) if case.moving else None
    if program is None:
        return None
    found, wanted = program.run(*case.floats), case.function(*case.floats)
    return Measured(apart(found, wanted), f"program {shown(found)}, eager {shown(wanted)}")


def _program(case: Case) -> Graph | None:
    """The function written down; a user's may be one that cannot be, such as one with branches."""
    try:
        return stage(case.function)(*case.floats)
    except PullbackError:
        if case.op is None:
            return None
        raise


def compiled(case: Case) -> Measured | None:
    """Value, pull and push in one compiled program, against the eager calls."""
    if not smooth(case):
        args = [np.asarray(a) for a in case.args]
        if not args or case.op is None or case.op.spec is None:
            return None
        return _compared(jit(case.call)(*args), case.call(*args))
    xs, v = case.floats, along(case, 2)
    if _program(case) is None:
        return None
    rng = np.random.default_rng(3)
    bars = [np.asarray(drawn(rng, o)).astype(o.dtype) for o in parts(case.function(*xs))]

    def every(xs: Any, bars: Any, v: Any) -> Any:
        out, pull = vjp(case.function, *xs)
        shares = pull(tuple(bars) if isinstance(out, tuple) else bars[0])
        return [*parts(out), *shares, *parts(jvp(case.function, xs, v)[1])]

    return _compared(jit(every)(xs, bars, v), every(xs, bars, v))


def _compared(found: Any, wanted: Any) -> Measured:
    """Each of several results relative to its own size, for a pull may be a thousand times its value."""
    specs = [[(x.shape, x.dtype) for x in map(np.asarray, parts(values))] for values in (found, wanted)]
    if specs[0] != specs[1]:
        return Measured(np.inf, f"compiled {specs[0]}, eager {specs[1]}")
    pairs = zip(parts(found), parts(wanted), strict=True)
    return max(
        (Measured(apart(f, w), f"compiled {shown(f)}, eager {shown(w)}") for f, w in pairs), default=Measured(0.0, "")
    )


def differences(case: Case) -> Measured | None:
    """First and second derivative along a line, against differences; what is short of digits, against double."""
    if not smooth(case):
        return None
    xs, least = case.floats, _least_movement(case)
    v, w = sized(case, 1, least), sized(case, 5, least)
    if any(np.finfo(np.asarray(x).dtype).bits < 64 for x in xs):
        wide = [np.asarray(x, "float64") for x in (*xs, *v)]
        found, wanted = jvp(case.function, xs, v)[1], jvp(case.function, wide[: len(xs)], wide[len(xs) :])[1]
        return Measured(apart(found, wanted, 1.0), f"push {shown(found)}, in double precision {shown(wanted)}")

    def pushed(*ys: Any) -> Any:
        return jvp(case.function, ys, v)[1]

    def bent(*ys: Any) -> Any:
        return jvp(pushed, ys, w)[1]

    value, slope = _meant(case, pushed, v)
    sizes = largest_of_part(value(*xs), flat(value(*xs)))
    found = [_against_slope(value, xs, v, pushed(*xs), sizes), _against_slope(slope, xs, w, bent(*xs), sizes)]
    if slope is pushed:
        with suppress(DtypeError):  # some complex ops have two derivatives and refuse the third by name
            found += [_against_slope(bent, xs, v, jvp(bent, xs, v)[1], sizes)]
    worst: Measured = max(found)
    return worst


def _least_movement(case: Case) -> float:
    """How far an argument moves at least: 1, unless that is so far for a user's function that no step is short."""
    if case.op is not None:
        return 1.0
    slope = measure_slope(line(case.function, case.floats, sized(case, 1)), float(np.finfo(float).eps))
    sure = slope.error <= _SURE * np.maximum(np.abs(slope.value).max(initial=0.0), _OF_VALUE * slope.scale)
    return 1.0 if sure.all() else 0.0


def _meant(case: Case, pushed: Callable[..., Any], v: Sequence[Any]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The function that a case's derivatives are those of, and its slope along v: mostly its own."""
    stand_in = None if case.op is None else STAND_INS.get(case.op.name)
    if stand_in is None:
        return case.function, pushed
    value = stand_in(case)
    return value, lambda *ys: measure_slope(line(value, ys, v), float(np.finfo(float).eps)).value


def _against_slope(f: Callable[..., Any], xs: Sequence[Any], v: Sequence[Any], found: Any, sizes: Any) -> Measured:
    """A derivative along v against differences. Where these are uncertain that is the error: a certificate that could
    not have seen a mistake is none.
    """
    start = f(*xs)
    eps = max((float(np.finfo(x.dtype).eps) for x in map(np.asarray, parts(start)) if carries(x)), default=0.0)
    slope = measure_slope(line(f, xs, v), eps, sizes)
    values = largest_of_part(start, slope.scale)
    slopes = np.maximum(np.abs(slope.value), _OF_LARGEST * largest_of_part(start, slope.value))
    floor = max(_OF_VALUE, _OF_ROUNDOFF * eps**0.5)
    errors = _relative_to(flat(found) - slope.value, slope.error, np.maximum(slopes, floor * values))
    errors = np.where(np.isfinite(flat(start)), errors, 0.0)
    words = f"derivative {shown(found)}, by differences {shown(slope.value)}, which are sure to {shown(slope.error)}"
    return Measured(float(errors.max(initial=0.0)), words)


def line(f: Callable[..., Any], xs: Sequence[Any], v: Sequence[Any]) -> Callable[[float], Any]:
    """A function along a line, as one vector of one number."""
    return lambda t: flat(f(*(x + t * d for x, d in zip(xs, v, strict=True))))


def _relative_to(gap: Any, unsure: Any, size: Any) -> Any:
    """The larger of a gap and of what is unsure, relative to a size; nothing where there is neither gap nor size."""
    with np.errstate(all="ignore"):
        errors = np.maximum(np.abs(gap), unsure) / size
    return np.where(np.isnan(errors), np.where((gap == 0) & (size == 0), 0.0, np.inf), errors)


def largest_of_part(outs: Any, vector: Any) -> Any:
    """For each number of several results in one vector, the largest of its own result."""
    found, at = np.zeros(len(vector)), 0
    for count in (np.size(x) for x in parts(outs)):
        found[at : at + count] = np.abs(vector[at : at + count]).max(initial=0.0)
        at += count
    return found


def smooth(case: Case) -> bool:
    return bool(case.moving) and (case.op is None or case.op.differentiable)


def transpose(case: Case) -> Measured | None:
    """<u, J v> = <J^T u, v>, and each cotangent in the shape and dtype of its argument."""
    if not smooth(case):
        return None
    xs, v = case.floats, along(case, 2)
    out, tangent = jvp(case.function, xs, v)
    rng = np.random.default_rng(3)
    bars = [np.asarray(drawn(rng, o)).astype(o.dtype) for o in parts(out)]
    shares = vjp(case.function, *xs)[1](tuple(bars) if isinstance(out, tuple) else bars[0])
    for x, share in zip(xs, shares, strict=True):
        if (share.shape, share.dtype) != (np.shape(x), np.asarray(x).dtype):
            return Measured(np.inf, f"cotangent {spec_of(share)} of an argument {spec_of(x)}")
    left, right = inner(bars, tangent), inner(shares, v)
    size = _terms(bars, tangent) + _terms(shares, v)
    return Measured(_relative(left - right, size), f"<u, Jv> = {left:.15g}, <J^T u, v> = {right:.15g}")


def _relative(gap: Any, size: float) -> float:
    """The largest of some gaps relative to a size; nothing is relative to nothing."""
    worst = float(np.abs(gap).max(initial=0.0))
    return worst / size if size and worst else worst if np.isfinite(worst) else np.inf


def second(case: Case) -> Measured | None:
    """v^T H w by forward-forward, forward-reverse, reverse-forward and reverse-reverse."""
    if not smooth(case):
        return None
    xs, v, w = case.floats, along(case, 4), along(case, 5)
    places = tuple(range(len(xs)))
    slopes = grad(case.scalar, places)

    def pushed(*ys: Any) -> Any:
        return jvp(case.scalar, ys, v)[1]

    def pulled(*ys: Any) -> Any:
        total: Any = 0.0
        for slope, d in zip(slopes(*ys), v, strict=True):
            total = total + weighted(slope, d)
        return total

    rows = [grad(f, places)(*xs) for f in (pushed, pulled)]
    ways = [jvp(pushed, xs, w)[1], jvp(pulled, xs, w)[1], *(inner(row, w) for row in rows)]
    found = np.array([float(np.asarray(x)) for x in ways])
    words = ", ".join(f"{n} {x:.15g}" for n, x in zip(("FF", "FR", "RF", "RR"), found, strict=True))
    # Terms that cancel have the roundoff of the largest of them, and a curvature that is zero that of the slope.
    size = max(*(_terms(row, w) for row in rows), _OF_VALUE * _terms(slopes(*xs), w))
    return Measured(_relative(found - found[0], size), words)


def _terms(left: Any, right: Any) -> float:
    """The sum of the sizes of an inner product's terms."""
    return float(np.abs(flat(left) * flat(right)).sum())


def third(case: Case) -> Measured | None:
    """Derivatives to the third order along a line: Taylor mode, forward mode, reverse over forward over forward."""
    if not smooth(case):
        return None
    xs, v = case.floats, along(case, 11)
    dtype = np.asarray(xs[0]).real.dtype

    def of_t(t: Any) -> Any:
        return case.function(*(x + t * d for x, d in zip(xs, v, strict=True)))

    def slope(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return lambda t: jvp(f, (t,), (one,))[1]

    def of_scalar(t: Any) -> Any:
        return slope(slope(lambda t: combine(of_t(t))))(t)

    start, one = np.zeros((), dtype), np.ones((), dtype)
    value, taylor = jet(of_t, (start,), ([one, None, None],))
    nested = [of_t, slope(of_t), slope(slope(of_t)), slope(slope(slope(of_t)))]
    wanted = [flat(f(start)) for f in nested]
    sizes = [largest_of_part(value, x) for x in wanted]
    sizes = [np.max([size, *(_OF_VALUE * lower for lower in sizes[:k])], axis=0) for k, size in enumerate(sizes)]
    pairs = zip([value, *taylor], wanted, sizes, strict=True)
    errors = [float(_relative_to(flat(found) - x, 0.0, size).max(initial=0.0)) for found, x, size in pairs]
    reverse, forward = float(grad(of_scalar)(start)), float(np.asarray(combine(nested[3](start))))
    errors.append(_relative(reverse - forward, float(np.sum(sizes[3]))))
    words = f"jet {shown(taylor[2])}, FFF {shown(wanted[3])}; of their sum RFF {reverse:.15g}, FFF {forward:.15g}"
    return Measured(max(errors), words)


def batch(case: Case) -> Measured | None:
    """`vmap` against a loop, each argument batched along its first axis, its last, or not."""
    call, args = (case.moved, case.floats) if case.op is None else (case.call, list(case.args))
    rng, worst = np.random.default_rng(6), Measured(0.0, "")
    if not args:
        return None
    for axes in _axes(case, len(args), rng):
        rows = [[a if at is None else varied(case, a, rng) for a, at in zip(args, axes, strict=True)] for _ in range(3)]
        columns = zip(args, axes, zip(*rows, strict=True), strict=True)
        stacked = [a if at is None else np.moveaxis(np.stack(column), 0, at) for a, at, column in columns]
        found = vmap(call, axes)(*stacked)
        looped = [parts(call(*row)) for row in rows]
        wanted = [np.stack([np.asarray(x) for x in results]) for results in zip(*looped, strict=True)]
        if [np.shape(x) for x in parts(found)] != [x.shape for x in wanted]:
            return Measured(np.inf, f"axes {axes}: shapes {[np.shape(x) for x in parts(found)]}")
        words = f"axes {axes}: vmap {shown(found)}, a loop {shown(wanted)}"
        worst = max(worst, Measured(apart(found, wanted), words))
    return worst


def _axes(case: Case, count: int, rng: Any) -> list[tuple[int | None, ...]]:
    """Which axes to batch: for an op up to eight choices, for a function the first of all that moves."""
    if case.op is None:
        return [(0,) * count]
    choices = [c for c in itertools.product((0, -1, None), repeat=count) if any(a is not None for a in c)]
    return choices if len(choices) <= 8 else [choices[i] for i in sorted(rng.choice(len(choices), 8, replace=False))]


def varied(case: Case, x: Any, rng: Any) -> Any:
    """Another array of the same kind, inside the same domain; a matrix keeps its shape of spectrum."""
    a = np.asarray(x)
    if carries(a) and (case.op is None or case.op.family == "matrix"):
        return (a * rng.uniform(*((0.98, 1.02) if case.op is None else (0.5, 1.5)))).astype(a.dtype)
    return a if a.dtype.kind == "b" else np.asarray(rng.permutation(a.ravel()).reshape(a.shape))


def digits(case: Case) -> Measured | None:
    found = forty_digits(case)
    return None if found is None else Measured(*found)


def shown(values: Any) -> str:
    """The first few numbers, for a sentence."""
    return np.array2string(flat(values)[:4], precision=10, separator=", ", threshold=4)


ROLES = (
    Role("value", "the value against an independent oracle", value, 1e-13, 1e-6),
    Role("edges", "the value at ties, infinities, NaN and other strides against the oracle", edges, 1e-13, None),
    Role("spec", "shape and dtype said without computing", spec, 0.0, 0.0),
    Role("transpose", "jvp against vjp, <u, Jv> = <J^T u, v>", transpose, 1e-12, 1e-4),
    Role("differences", "first and second derivative against differences", differences, 1e-8, 1e-3),
    Role("second", "the four second-order compositions against each other", second, 1e-12, 1e-3),
    Role("third", "Taylor mode, forward mode and reverse mode to third order", third, 1e-11, None),
    Role("batch", "vmap against a loop", batch, 1e-12, 1e-5),
    Role("staged", "the program written down against the eager call", staged, 1e-13, 1e-5),
    Role("compiled", "value, pull and push in compiled form against the eager calls", compiled, 1e-12, 1e-3),
    Role("digits", "the derivative at 40 digits, by mpmath", digits, 1e-10, None),
)
