"""How far rounding may have moved a value: a first-order bound that accompanies each value through a program.

An argument has no noise. An operation propagates how its result changes if an argument is moved by its noise, and adds
a unit in the last place. A sum adds its terms' noise, and units of the sum of their magnitudes: so much may another
order change. Booleans and integers have no noise and must agree exactly; an infinite noise means that the value is
unknown, as of a float cast to an integer that cannot hold it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

#: Values may differ by so many times their noise: functions are right to a few units in the last place, not to half.
TOLERANCE = 16.0

#: Of narrow dtypes: the relative distance of neighbors, and the least number that has all digits.
_NARROW = {
    "float16": (2.0**-10, 2.0**-14), "bfloat16": (2.0**-7, 2.0**-126), "float8_e4m3fn": (2.0**-3, 2.0**-6),
    "float8_e5m2": (2.0**-2, 2.0**-14),
}  # fmt: skip


def machine_epsilon(dtype: np.dtype[Any]) -> float:
    """The relative distance of neighbouring numbers."""
    if dtype.name in _NARROW:
        return _NARROW[dtype.name][0]
    return float(np.finfo(dtype).eps) if dtype.kind in "fc" else 0.0


def noise_of_rounding(found: Any, dtype: np.dtype[Any]) -> Any:
    """The noise of one rounding to a narrow dtype, which is right to half a unit: as much as is tolerated is a unit and
    a half, and for numbers near zero as much of their smallest.
    """
    size = np.abs(np.where(np.isfinite(found), found, 0).astype(np.float64))
    smallest = _NARROW[dtype.name][1]
    return 1.5 * machine_epsilon(dtype) * np.maximum(size, smallest) / TOLERANCE


def noise_of_call(
    call: Callable[..., Any], args: Sequence[Any], noises: Sequence[Any], found: Any, computed: np.dtype[Any]
) -> Any:
    """The noise of an elementwise call that gave `found`."""
    unknown = np.zeros(found.shape, bool)
    for noise in noises:
        unknown = unknown | np.isinf(noise)
    if found.dtype.kind not in "fc":
        return np.where(unknown, np.inf, 0.0)
    total = max(machine_epsilon(found.dtype), machine_epsilon(computed)) * np.abs(
        np.where(np.isfinite(found), found, 0)
    ).astype(np.float64)
    total += np.finfo(found.dtype).smallest_subnormal  # underflow
    for i, (x, noise) in enumerate(zip(args, noises, strict=True)):
        if x.dtype.kind == "f" and noise.any():
            perturbed = [[*args[:i], (x + sign * noise).astype(x.dtype), *args[i + 1 :]] for sign in (1, -1)]
            total = total + np.maximum(*(_distance(call(*other), found) for other in perturbed))
    return np.where(unknown | np.isnan(total), np.inf, total)


def _distance(a: Any, b: Any) -> Any:
    """The distance of two values: zero if both are NaN, or the same infinity."""
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    distance = np.abs(a.astype(np.float64) - b.astype(np.float64))
    return np.where(same, 0.0, np.where(np.isnan(distance), np.inf, distance))


def noise_of_fold(word: str, fold: Callable[..., Any], numbers: Any, noise: Any, count: Any, found: Any) -> Any:
    """The noise of a fold of `count` numbers; `fold(function, numbers)` folds others in the same way."""
    unknown = fold(np.logical_or, np.isinf(noise))
    if found.dtype.kind not in "fc":
        return np.where(unknown, np.inf, 0.0)
    size, own = np.abs(numbers).astype(np.float64), machine_epsilon(found.dtype)
    with np.errstate(all="ignore"):
        if word == "add":
            total = fold(np.add, noise) + own * np.sqrt(count) * fold(np.add, size)
        elif word == "multiply":
            most = fold(np.multiply, size + noise)
            total = most - fold(np.multiply, size) + own * count * np.abs(found)
        else:
            total = fold(np.maximum, noise)
    return _without_nonfinite(total, unknown, found)


def noise_of_product(left: Any, right: Any, of_left: Any, of_right: Any, found: Any, dtype: np.dtype[Any]) -> Any:
    """The noise of a matrix product: that of a sum of products."""
    unknown = np.isinf(of_left).any(axis=-1, keepdims=True) | np.isinf(of_right).any(axis=-2, keepdims=True)
    left, right = np.abs(left), np.abs(right)
    with np.errstate(all="ignore"):
        own = machine_epsilon(dtype) * np.sqrt(left.shape[-1] + 1.0) * (left @ right)
        total = own + of_left @ right + left @ of_right
    return _without_nonfinite(total, unknown, found)


def _without_nonfinite(total: Any, unknown: Any, found: Any) -> Any:
    """A sum that is infinite or NaN is so in any order, unless a term is unknown."""
    return np.where(unknown | np.isnan(total) & np.isfinite(found), np.inf, np.where(np.isfinite(found), total, 0.0))
