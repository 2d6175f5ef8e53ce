"""The roles of an op in half precision: float16 and bfloat16 against double precision at the same rounded arguments.

What is allowed is counted, not chosen. A formula F of values z that were each rounded to a unit roundoff u, and whose
result is rounded too, may be off by

    u (|F(z)| + sum_j |dF/dz_j| |z_j|)

element by element: one rounding of the result, and one of everything it is computed from. The derivatives of F are
taken in double precision, for the push and the pull with z the saved arguments, the saved result, tangents or
cotangents. Computing in float32 inside adds 2^-13 of that an operation in float16, 2^-16 in bfloat16, so nothing else
is allowed. A value is computed from the very arguments: one rounding of the result, and four in float32 of the sum. A
role that rounds more often says how often.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...arrays.dtypes import as_dtype
from ...arrays.spec import spec_of
from ...compile.jit import jit
from ...ops.dtype_info import finfo
from ...ops.families import result_dtype
from ...ops.op import Op
from ...ops.reduce.reductions import fit_to_spec
from ...tape.cotangents import strip_mask
from ...transforms.forward import jvp
from ...transforms.reverse import vjp
from ...transforms.stage import stage
from ...transforms.taylor.jet import jet
from ...transforms.vectorize import vmap
from .cases import Case, as_results, can_carry_derivative, random_like
from .edge_cases import edge_cases, reorder_memory
from .roles import Measurement, Role, check_spec, format_values, is_smooth

#: The dtypes of half precision.
HALF_DTYPES = ("float16", "bfloat16")
#: Ops on complex numbers, which a real argument counts as; their real results are parts of complex64.
_SPECTRAL = ("irfft",)
#: Four roundings in float32, of the largest element: what is left of terms of order one that cancel inside.
_SINGLE = 4 * 2.0**-24
#: How often a term of a second derivative is rounded in reverse mode: its cotangent on the way, its share, the sum.
_REVERSE_ROUNDINGS = 3


def _step_away(x: Any, by: Any) -> Any:
    """The number of the same dtype so many steps further from zero: bits count magnitudes."""
    return (x.view(np.int16) + np.asarray(by, np.int16)).view(x.dtype).astype("float64")


def _nextafter(x: Any, y: Any) -> Any:
    """One step from x towards y; from zero to the smallest number of y's sign."""
    x, y = np.broadcast_arrays(x, y)
    near, far = x.astype("float64"), y.astype("float64")
    smallest = np.copysign(_step_away(np.zeros((), x.dtype), 1), far)
    moved = _step_away(np.array(x), np.where((far > near) == (near > 0), 1, -1))
    return np.where(near == far, far, np.where(near == 0, smallest, moved))


#: Ops whose value is about the dtype itself, so that double precision has nothing to say about it: by its bits.
_OF_DTYPE: dict[str, Callable[..., Any]] = {
    "spacing": lambda x: _step_away(np.array(x), 1) - x.astype("float64"),
    "nextafter": _nextafter,
}


def half_case(case: Case, dtype: str) -> Case | None:
    """The case with its floats rounded to half precision; None where it has none, or complex ones."""
    if not case.moving or any(np.asarray(a).dtype.kind == "c" for a in case.args):
        return None
    return replace(case.cast(as_dtype(dtype)), kinds="fV")


def _double_twin(case: Case) -> Case:
    """The case at the same numbers, in double precision."""
    return case.cast("float64") if "V" not in case.kinds else _cast_halves(case)


def _cast_halves(case: Case) -> Case:
    args = [np.asarray(a).astype("float64") if i in case.moving else a for i, a in enumerate(case.args)]
    return replace(case, args=tuple(args), kinds="f")


def _directions(case: Case, seed: int) -> list[Any]:
    return [np.asarray(v).astype(np.asarray(x).dtype) for v, x in zip(case.direction(seed), case.floats, strict=True)]


def _cotangents(outs: Sequence[Any], seed: int = 3) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [np.asarray(random_like(rng, np.asarray(o))).astype(np.asarray(o).dtype) for o in outs]


def _as_double(arrays: Sequence[Any]) -> list[Any]:
    given = [np.asarray(a) for a in arrays]
    return [a.astype("complex128" if a.dtype.kind == "c" else "float64") for a in given]


def sensitivity(formula: Callable[..., Any], values: Sequence[Any], errors: Sequence[Any] = ()) -> list[Any]:
    """sum_j |dF/dz_j| |z_j| for each element of each result of a formula, in double precision; for the last values
    with other sizes than their own, where they are off by more than one rounding.
    """
    sizes = [*map(np.asarray, values[: len(values) - len(errors)]), *errors]
    count = sum(np.size(z) for z in values)
    if not count:
        return [np.zeros(np.shape(x)) for x in as_results(formula(*values))]
    stacked, at = [], 0
    for z in sizes:
        moved = np.zeros((count, z.size), z.dtype)
        moved[np.arange(at, at + z.size), np.arange(z.size)] = z.ravel()
        stacked.append(moved.reshape((count, *z.shape)))
        at += z.size
    moves = vmap(lambda *along: jvp(formula, values, along)[1])(*stacked)
    return [np.abs(np.asarray(m)).sum(axis=0) for m in as_results(moves)]


def compare_rounded(
    found: Sequence[Any],
    wanted: Sequence[Any],
    spread: Sequence[Any],
    dtype: Any,
    roundings: int = 1,
    normwise: bool = False,
) -> Measurement:
    """The largest distance from double precision, in units of what is allowed: for each element, or the most."""
    limits = finfo(dtype)
    unit, least = limits.eps / 2, limits.smallest_normal * limits.eps
    worst = Measurement(0.0, "")
    for f, w, s in zip(found, wanted, spread, strict=True):
        if np.shape(f) != np.shape(w):
            return Measurement(np.inf, f"shape {np.shape(f)} instead of {np.shape(w)}")
        near, exact = _as_double((f, w))
        with np.errstate(all="ignore"):
            sizes = np.abs(exact) + s
            largest = sizes.max(initial=0.0, where=np.isfinite(sizes))
            allowed = roundings * (unit * (largest if normwise else sizes) + least) + _SINGLE * (1 + largest)
            gaps = np.where((near == exact) | (np.isnan(near) & np.isnan(exact)), 0.0, np.abs(near - exact))
            gaps = np.where(np.isfinite(allowed) & (np.abs(exact) + allowed < limits.max), gaps, 0.0)
            error = np.where(np.isnan(gaps), np.inf, gaps / allowed).max(initial=0.0)
        found_and_exact = f"{np.dtype(dtype)} {format_values(near)}, exactly {format_values(exact)}"
        worst = max(worst, Measurement(float(error), found_and_exact))
    return worst


def _wrong_dtypes(found: Sequence[Any], wanted: Sequence[Any]) -> Measurement | None:
    """Where a dtype is not the one that was promised."""
    made, promised = [np.asarray(x).dtype for x in found], [np.dtype(d) for d in wanted]
    return None if made == promised else Measurement(np.inf, f"dtypes {made}, promised {promised}")


def _promised(case: Case, wide: Sequence[Any]) -> list[Any]:
    """The dtypes of results: half where double precision returns float64, or by promotion with integers beside; there
    are no complex numbers of half precision; a dtype asked for by name.
    """
    op, half = case.op, np.asarray(case.floats[0]).dtype
    if op is not None and op.family == "elementwise":
        half = result_dtype([spec_of(a) for a in case.args])
    if op is not None and op.name in _SPECTRAL:
        half = np.dtype("float32")
    given = [np.asarray(x).dtype for x in wide]
    asked = "dtype" in case.static
    return [d if d.kind in "iub" or asked else np.dtype("complex64") if d.kind == "c" else half for d in given]


def check_half_value(case: Case) -> Measurement | None:
    twin = _double_twin(case)
    found, wanted = as_results(case.call(*case.args)), as_results(twin.call(*twin.args))
    return _wrong_dtypes(found, _promised(case, wanted)) or _compare_values(case, twin, found, wanted)


def _compare_values(case: Case, twin: Case, found: Sequence[Any], wanted: Sequence[Any]) -> Measurement:
    """Values against those in double precision; what carries no derivative has to be equal."""
    dtype = np.asarray(case.floats[0]).dtype
    if case.op is not None and case.op.name in _OF_DTYPE:
        exact = np.asarray(_OF_DTYPE[case.op.name](*map(np.asarray, case.args)))
        sizes = [np.abs(x) for x in (*_as_double(found), exact)]  # NumPy's spacing of float16 has no sign
        return compare_rounded(sizes[:1], sizes[1:], [np.zeros(exact.shape)], dtype)
    if not is_smooth(twin):
        return compare_rounded(found, wanted, [np.zeros(np.shape(w)) for w in wanted], dtype)
    smooth = [i for i, w in enumerate(wanted) if can_carry_derivative(w)]
    spread = iter(_value_spread(twin, dtype))
    spreads = [next(spread) if i in smooth else np.zeros(np.shape(w)) for i, w in enumerate(wanted)]
    return max(
        (_compare_parts(f, w, s, dtype) for f, w, s in zip(found, wanted, spreads, strict=True)),
        default=Measurement(0.0, ""),
    )


def _format(values: Sequence[Any]) -> str:
    return format_values(_as_double(values))


def _compare_parts(found: Any, wanted: Any, spread: Any, dtype: Any) -> Measurement:
    """One result, a complex one by its parts."""
    f, w = np.asarray(found), np.asarray(wanted)
    if w.dtype.kind != "c":
        return compare_rounded([f], [w], [spread], dtype)
    return compare_rounded([f.real, f.imag], [w.real, w.imag], [spread, spread], dtype)


def _value_spread(twin: Case, dtype: Any) -> list[Any]:
    """Of arguments that are exact: what a few roundings in float32 may do, in units of one in the dtype."""
    part = _SINGLE / (finfo(dtype).eps / 2)
    return [part * spread for spread in sensitivity(twin.function, twin.floats)]


def check_half_edges(case: Case) -> Measurement | None:
    """The value in another order of memory, and at ties, infinities and NaN, which have to come out as such."""
    if case.op is None:
        return None
    twin, dtype = _double_twin(case), np.asarray(case.floats[0]).dtype
    worst = _measure_edge("other strides", reorder_memory(case), twin)
    for name, relative in edge_cases(twin):
        made = half_case(relative, dtype.name)
        if made is not None:
            worst = max(worst, _measure_edge(name, made, _double_twin(made)))
    return worst


def _measure_edge(name: str, case: Case, twin: Case) -> Measurement:
    found, wanted = as_results(case.call(*case.args)), as_results(twin.call(*twin.args))
    dtype = np.asarray(case.floats[0]).dtype
    measured = _wrong_dtypes(found, _promised(case, wanted)) or _compare_values(case, twin, found, wanted)
    if case.op is None or case.op.name not in _OF_DTYPE:
        for f, w in zip(_as_double(found), _as_double(wanted), strict=True):
            rounded = w if w.dtype.kind == "c" else _as_double([w.astype(dtype)])[0]
            there, here = (np.where(np.isfinite(x), 0.0, x) for x in (f, rounded))
            if not np.array_equal(there, here, equal_nan=True):
                measured = Measurement(np.inf, f"{_format([f])}, exactly {_format([w])}")
    return Measurement(measured.error, f"{name}: {measured.description}")


def _push_formula(op: Op, case: Case) -> Callable[..., Any]:
    """The tangent of the results as a formula of arguments, tangents and results, each a value of its own."""
    moving, args = case.moving, list(case.args)

    def push(*values: Any) -> Any:
        count = len(moving)
        primals, along = list(args), [None] * len(args)
        for i, place in enumerate(moving):
            primals[place], along[place] = values[i], values[count + i]
        out = case.call(*args)
        return _put_floats(out, values[2 * count :]), along, primals

    def tangent(*values: Any) -> Any:
        out, along, primals = push(*values)
        found = as_results(op.push(along, out, primals, case.static))
        shapes = [np.shape(x) for x in as_results(case.call(*args)) if can_carry_derivative(x)]
        kept = [t for t, x in zip(found, as_results(case.call(*args)), strict=True) if can_carry_derivative(x)]
        return tuple(np.zeros(s) if t is None else t + np.zeros(s) for t, s in zip(kept, shapes, strict=True))

    return tangent


def _put_floats(out: Any, floats: Sequence[Any]) -> Any:
    """The results of an op with other numbers for those that carry derivatives."""
    left = iter(floats)
    filled = tuple(next(left) if can_carry_derivative(x) else x for x in as_results(out))
    return filled if type(out) is tuple else filled[0]


def _pull_formula(op: Op, case: Case) -> Callable[..., Any]:
    """The shares of the arguments as a formula of arguments, results and cotangents, each a value of its own."""
    moving, args = tuple(case.moving), list(case.args)
    rule, specs = op.rule(moving, len(args)), tuple(map(spec_of, args))
    outs = case.call(*args)

    def pull(*values: Any) -> Any:
        count = sum(can_carry_derivative(x) for x in as_results(outs))
        primals = list(args)
        for i, place in enumerate(moving):
            primals[place] = values[i]
        out = _put_floats(outs, values[len(moving) : len(moving) + count])
        bars = iter(values[len(moving) + count :])
        given = tuple(next(bars) if can_carry_derivative(x) else None for x in as_results(outs))
        if op.joint is not None:
            given = tuple(spec_of(x) if b is None else b for b, x in zip(given, as_results(outs), strict=True))
        shares = rule.shares(moving, given if type(outs) is tuple else given[0], out, primals, specs, case.static)
        return tuple(
            np.zeros(specs[i].shape) if s is None else fit_to_spec(strip_mask(s), specs[i])
            for i, s in zip(moving, shares, strict=True)
        )

    return pull


def _smooth_outs(case: Case) -> list[Any]:
    return [np.asarray(x) for x in as_results(case.call(*case.args)) if can_carry_derivative(x)]


class _Derivatives:
    """A case, its twin in double precision, and one choice of tangents and cotangents for both."""

    def __init__(self, case: Case) -> None:
        self.case, self.twin = case, _double_twin(case)
        self.dtype = np.asarray(case.floats[0]).dtype
        self.along = _directions(case, 2)
        outs = as_results(case.function(*case.floats))
        self.bars = _cotangents(outs)
        self.tupled = isinstance(case.function(*case.floats), tuple)
        op = case.op
        assert op is not None
        self.saved = _as_double(_smooth_outs(self.twin))
        self.push_formula, self.pull_formula = _push_formula(op, self.twin), _pull_formula(op, self.twin)

    def push(self, wide: bool = False) -> Sequence[Any]:
        case, along = (self.twin, _as_double(self.along)) if wide else (self.case, self.along)
        return as_results(jvp(case.function, case.floats, along)[1])

    def bars_of(self, wide: bool) -> Any:
        bars = _as_double(self.bars) if wide else self.bars
        return tuple(bars) if self.tupled else bars[0]

    def pull(self, wide: bool = False) -> Sequence[Any]:
        case = self.twin if wide else self.case
        return as_results(vjp(case.function, *case.floats)[1](self.bars_of(wide)))

    def push_spread(self) -> list[Any]:
        return sensitivity(self.push_formula, [*self.twin.floats, *_as_double(self.along), *self.saved])

    def pull_spread(self) -> list[Any]:
        return sensitivity(self.pull_formula, [*self.twin.floats, *self.saved, *_as_double(self.bars)])

    def second_spread(self) -> list[Any]:
        """Of the pull's own tangent, as a formula of all that the pull is computed from and of its tangent. That of the
        saved result is off by as much as a push is.
        """
        values = [*self.twin.floats, *self.saved, *_as_double(self.bars)]
        count, still = len(values), [np.zeros(b.shape) for b in self.bars]
        tangents = [np.asarray(t) for t in self.push(wide=True)]
        moves = [*_as_double(self.along), *tangents, *still]
        errors = [*_as_double(self.along), *(np.abs(t) + s for t, s in zip(tangents, self.push_spread(), strict=True))]
        errors += still
        return sensitivity(lambda *zs: jvp(self.pull_formula, zs[:count], zs[count:])[1], [*values, *moves], errors)


def check_half_push(case: Case) -> Measurement | None:
    d = _Derivatives(case)
    found = d.push()
    return _wrong_dtypes(found, [b.dtype for b in d.bars]) or compare_rounded(
        found, d.push(wide=True), d.push_spread(), d.dtype
    )


def check_half_pull(case: Case) -> Measurement | None:
    d = _Derivatives(case)
    found = d.pull()
    return _wrong_dtypes(found, [np.asarray(x).dtype for x in case.floats]) or compare_rounded(
        found, d.pull(wide=True), d.pull_spread(), d.dtype
    )


def check_half_second(case: Case) -> Measurement | None:
    """The derivative of the pull along a direction: forward over reverse, reverse over forward and over reverse.

    Terms that reverse mode rounds one by one may cancel; where an op mixes elements, the largest counts.
    """
    d = _Derivatives(case)

    def second(case: Case, along: Sequence[Any], bars: Any) -> list[Sequence[Any]]:
        f, xs = case.function, case.floats

        def pull(*ys: Any) -> Any:
            return tuple(vjp(f, *ys)[1](bars))

        return [
            as_results(jvp(pull, xs, along)[1]),
            as_results(vjp(lambda *ys: jvp(f, ys, along)[1], *xs)[1](bars)),
            as_results(vjp(pull, *xs)[1](tuple(along))),
        ]

    exact = second(d.twin, _as_double(d.along), d.bars_of(True))[0]
    spread, dtypes = d.second_spread(), [np.asarray(x).dtype for x in case.floats]
    worst = Measurement(0.0, "")
    for name, found in zip(("FR", "RF", "RR"), second(case, d.along, d.bars_of(False)), strict=True):
        roundings = 1 if name == "FR" else _REVERSE_ROUNDINGS
        mixes = roundings > 1 and case.op is not None and case.op.family != "elementwise"
        measured = _wrong_dtypes(found, dtypes) or compare_rounded(found, exact, spread, d.dtype, roundings, mixes)
        worst = max(worst, Measurement(measured.error, f"{name}: {measured.description}"))
    return worst


def check_half_taylor(case: Case) -> Measurement | None:
    """The first coefficient of Taylor mode, which is the push."""
    d = _Derivatives(case)
    _, taylor = jet(case.function, case.floats, [[v] for v in d.along])
    found = as_results(taylor[0])
    return _wrong_dtypes(found, [b.dtype for b in d.bars]) or compare_rounded(
        found, d.push(wide=True), d.push_spread(), d.dtype
    )


def check_half_batch(case: Case) -> Measurement | None:
    """Value and pull under vmap: of two equal batch elements each has to be what it is alone."""
    d = _Derivatives(case) if is_smooth(case) else None
    stacked = [np.stack([np.asarray(a)] * 2) for a in case.args]
    twin = _double_twin(case)
    wanted = as_results(twin.call(*twin.args))
    found = [np.asarray(x)[1] for x in as_results(vmap(case.call)(*stacked))]
    worst = _wrong_dtypes(found, _promised(case, wanted)) or _compare_values(case, twin, found, wanted)
    if d is None:
        return worst
    floats = [np.stack([np.asarray(x)] * 2) for x in case.floats]
    shares = vmap(lambda *xs: tuple(vjp(case.function, *xs)[1](d.bars_of(False))))
    pulled = [np.asarray(x)[1] for x in as_results(shares(*floats))]
    bad = _wrong_dtypes(pulled, [np.asarray(x).dtype for x in case.floats])
    return max(worst, bad or compare_rounded(pulled, d.pull(wide=True), d.pull_spread(), d.dtype, 2))


def check_half_staged(case: Case) -> Measurement | None:
    """The staged program against the eager call: the same ops, so the same bits."""
    if case.op is None or case.op.spec is None:
        return None
    found = as_results(stage(case.call_on_moving)(*case.floats).run(*case.floats))
    wanted = as_results(case.call(*case.args))
    equal = all(
        np.asarray(f).dtype == np.asarray(w).dtype and np.array_equal(f, w, equal_nan=np.asarray(w).dtype.kind in "fc")
        for f, w in zip(found, wanted, strict=True)
    )
    return Measurement(0.0 if equal else np.inf, f"program {_format(found)}, eager {_format(wanted)}")


def check_half_compiled(case: Case) -> Measurement | None:
    """Value, push and pull of one compiled program against double precision."""
    if case.op is None or case.op.spec is None:
        return None
    twin = _double_twin(case)
    wanted = as_results(twin.call(*twin.args))
    if not is_smooth(case):
        args = [np.asarray(a) for a in case.args]
        found = as_results(jit(case.call)(*args))
        return _wrong_dtypes(found, _promised(case, wanted)) or _compare_values(case, twin, found, wanted)
    d = _Derivatives(case)

    def all_of_it(xs: Any, bars: Any, along: Any) -> Any:
        out, pull = vjp(case.function, *xs)
        return [*as_results(out)], [*pull(bars)], [*as_results(jvp(case.function, xs, along)[1])]

    out, shares, tangents = jit(all_of_it)(case.floats, d.bars_of(False), d.along)
    exact = as_results(twin.function(*twin.floats))
    spreads = _value_spread(twin, d.dtype)
    values = [_compare_parts(f, w, s, d.dtype) for f, w, s in zip(out, exact, spreads, strict=True)]
    return max(
        _wrong_dtypes(shares, [np.asarray(x).dtype for x in case.floats]) or Measurement(0.0, ""),
        *(values if case.op.name not in _OF_DTYPE else ()),
        compare_rounded(shares, d.pull(wide=True), d.pull_spread(), d.dtype),
        compare_rounded(tangents, d.push(wide=True), d.push_spread(), d.dtype),
    )


HALF_ROLES = (
    Role("value", "the value in half precision, of the dtype promised", check_half_value, 1.0, 1.0),
    Role("edges", "the value at ties, infinities, NaN and other strides", check_half_edges, 1.0, 1.0),
    Role("spec", "shape and dtype inferred without computing", check_spec, 0.0, 0.0),
    Role("push", "the tangent", check_half_push, 1.0, 1.0, True),
    Role("pull", "the cotangents, in the dtypes of their arguments", check_half_pull, 1.0, 1.0, True),
    Role(
        "second",
        "second order: forward over reverse, reverse over forward and reverse",
        check_half_second,
        1.0,
        1.0,
        True,
    ),
    Role("taylor", "Taylor mode", check_half_taylor, 1.0, 1.0, True),
    Role("batch", "vmap of value and pull", check_half_batch, 1.0, 1.0),
    Role("staged", "the staged program, the same bits as the eager call", check_half_staged, 1.0, 1.0),
    Role("compiled", "value, pull and push in compiled form", check_half_compiled, 1.0, 1.0),
)
