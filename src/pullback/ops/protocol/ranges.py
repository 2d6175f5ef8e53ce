"""NumPy's `linspace`, `logspace` and `geomspace` with NumPy's signatures, differentiable in their ends."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arrays.spec import spec_of
from ...arrays.value import Value
from ..dispatch import as_value
from ..dispatch import ndim as rank_of
from ..elementwise import pointwise
from ..elementwise.pointwise import add, divide, multiply, subtract
from ..shape import reshaping
from .unsupported import refuse


def linspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True, retstep: bool = False, dtype: Any = None,
             axis: int = 0, *, device: Any = None) -> Any:  # fmt: skip
    refuse("linspace", device=None if device == "cpu" else device)
    start, stop = (x if spec_of(x).inexact else reshaping.astype(x, "float64") for x in map(as_value, (start, stop)))
    gaps = num - 1 if endpoint else num
    step = divide(subtract(stop, start), max(gaps, 1)) if num else subtract(stop, start)
    rank = max(rank_of(start), rank_of(stop))
    places = np.arange(num, dtype=spec_of(step).dtype).reshape((-1,) + (1,) * rank)
    found = add(start, multiply(places, step))
    if endpoint and num > 1:  # the last one exact
        found = pointwise.where(places == num - 1, stop, found)
    found = reshaping.moveaxis(found, 0, axis)
    found = found if dtype is None else reshaping.astype(found, dtype)
    return (found, step) if retstep else found


def logspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True, base: Any = 10.0, dtype: Any = None,
             axis: int = 0) -> Any:  # fmt: skip
    places = linspace(start, stop, num, endpoint)
    found = reshaping.moveaxis(pointwise.power(as_value(base), places), 0, axis)
    return found if dtype is None else reshaping.astype(found, dtype)


def geomspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True, dtype: Any = None, axis: int = 0) -> Any:
    start, stop = (x if isinstance(x, Value) else np.asarray(x) for x in map(as_value, (start, stop)))
    start, stop = (x if spec_of(x).inexact else reshaping.astype(x, "float64") for x in (start, stop))
    ratio = divide(stop, start)
    powers = linspace(multiply(ratio, 0.0), pointwise.log(ratio), num, endpoint)
    found = multiply(start, pointwise.exp(powers))
    if num > 0 and endpoint and num > 1:
        last = np.arange(num).reshape((-1,) + (1,) * (rank_of(found) - 1)) == num - 1
        found = pointwise.where(last, stop, found)
    found = reshaping.moveaxis(found, 0, axis)
    return found if dtype is None else reshaping.astype(found, dtype)
