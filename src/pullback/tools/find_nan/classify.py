"""What an op did to numbers: which NaNs and infinities of its results its arguments did not have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...arrays.backends import is_array, namespace_of, to_host
from ...arrays.spec import is_inexact, spec_of
from ...ops.op import Op


@dataclass(frozen=True, slots=True)
class Finding:
    """New numbers that are not finite, in one result of an op."""

    kind: str
    index: tuple[int, ...]
    count: int
    spec: str
    given: str


def is_finite(x: Any) -> bool:
    """Whether all numbers of an argument or a result are finite; whole numbers are."""
    if is_array(x):
        return not is_inexact(x.dtype) or not x.size or bool(namespace_of([x]).isfinite(x).all())
    return not isinstance(x, (float, complex)) or bool(np.isfinite(x))


def kind_of(x: Any) -> str:
    """ "nan" or "inf", of numbers that are not all finite."""
    return "nan" if bool(namespace_of([x]).isnan(x).any()) else "inf"


def find_new(op: Op, args: Sequence[Any], outs: Sequence[Any]) -> Finding | None:
    """The first NaN that no argument had, or infinity made of finite numbers: for an elementwise op at the same
    element, for others anywhere among the arguments.
    """
    for out in outs:
        if is_array(out) and not is_finite(out):
            with np.errstate(all="ignore"):
                found = _find_in(op, args, out)
            if found is not None:
                return found
    return None


def _find_in(op: Op, args: Sequence[Any], out: Any) -> Finding | None:
    xp = namespace_of([out])
    numbers = [x for x in args if _has_floats(x)]
    pointwise = op.family == "elementwise" or _fits_elementwise(op, numbers, out)
    had_nan, had_any = _arguments_had(xp, numbers, out.shape if pointwise else None)
    for kind, there in (("nan", xp.isnan(out) & ~had_nan), ("inf", xp.isinf(out) & ~had_any)):
        if bool(there.any()):
            index = tuple(int(i) for i in np.argwhere(to_host(there))[0])
            given = _values_at(op, args, out.shape, index) if pointwise else describe_arguments(op, args)
            return Finding(kind, index, int(there.sum()), str(spec_of(out)), given)
    return None


def _has_floats(x: Any) -> bool:
    return is_inexact(x.dtype) if is_array(x) else isinstance(x, (float, complex))


def _fits_elementwise(op: Op, numbers: Sequence[Any], out: Any) -> bool:
    """A conversion of each element, such as a cast to half precision."""
    return (
        op.family == "linear"
        and "dtype" in (op.statics or ())
        and len(numbers) == 1
        and np.shape(numbers[0]) == out.shape
    )


def _arguments_had(xp: Any, numbers: Sequence[Any], shape: tuple[int, ...] | None) -> tuple[Any, Any]:
    """Whether arguments had a NaN, and whether they had any number that is not finite: at each element of a shape, or,
    without one, anywhere.
    """
    nan, bad = xp.asarray(False), xp.asarray(False)
    for x in numbers:
        is_nan, not_finite = xp.isnan(x), ~xp.isfinite(x)
        nan = nan | (is_nan.any() if shape is None else is_nan)
        bad = bad | (not_finite.any() if shape is None else not_finite)
    return nan, bad


def _values_at(op: Op, args: Sequence[Any], shape: tuple[int, ...], index: tuple[int, ...]) -> str:
    """The arguments of one element of the result."""
    found = []
    for i, x in enumerate(args):
        value = to_host(np.broadcast_to(to_host(x), shape)[index]) if is_array(x) else x
        found.append(f"{op.argument(i).lstrip('*')} = {value:.6g}" if np.ndim(value) == 0 else "")
    return ", ".join(filter(None, found))


def describe_arguments(op: Op, args: Sequence[Any]) -> str:
    """The arguments of an op, each by its spec and the range of its numbers."""
    named = [(op.argument(i).lstrip("*"), x) for i, x in enumerate(args[:6]) if _has_floats(x)]
    return ", ".join(f"{name}: {summarize(x)}" for name, x in named)


def summarize(x: Any) -> str:
    """A number, or the spec of an array and the range of its finite numbers.

    >>> summarize(np.array([1.0, -2.0, np.inf]))
    'float64[3] in [-2, 1], 1 inf'
    """
    if not is_array(x) or not is_inexact(x.dtype) or not x.size:
        return f"{x:.6g}" if isinstance(x, float) else str(spec_of(x)) if is_array(x) else str(x)
    host = to_host(x)
    host = host if host.dtype.kind in "fc" else host.astype(np.float32)
    finite = host[np.isfinite(host)].real
    inside = f" in [{finite.min():.6g}, {finite.max():.6g}]" if finite.size else ""
    counts = [(int(np.isnan(host).sum()), "nan"), (int(np.isinf(host).sum()), "inf")]
    return f"{spec_of(x)}{inside}" + "".join(f", {n} {name}" for n, name in counts if n)
