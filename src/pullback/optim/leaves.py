"""Helpers that rules share: zeros, squares, roots, and checks of settings."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..arrays.backends import is_array, namespace_on
from ..arrays.spec import spec_of, zeros
from ..arrays.trees import LEAF
from ..arrays.value import Value
from ..errors import ArgumentError, DtypeError
from ..ops.concrete import is_concrete
from ..ops.dispatch import as_value
from ..ops.elementwise import pointwise
from ..ops.reduce.reductions import all as every_one
from ..ops.reduce.reductions import sum as total
from ..ops.shape.reshaping import astype
from ..settings import modes, override_modes


def zero_step_count(leaves: Sequence[Any]) -> Any:
    """A count of steps at zero, on the device of the parameters."""
    device = spec_of(leaves[0]).device if leaves else "cpu"
    return namespace_on(device).zeros((), np.int64)


def steps_as_float64(t: Any) -> Any:
    """A count as float64, so that 1 - beta**t keeps its digits in a float32 program too."""
    return astype(t, np.float64)


def real_dtype(x: Any) -> Any:
    """The dtype of the absolute values of x."""
    dtype = spec_of(x).dtype
    return np.zeros((), dtype).real.dtype if dtype.kind == "c" else dtype


def is_half(x: Any) -> bool:
    """Whether x is of a half type (float16, bfloat16), which rules compute with in float32."""
    spec = spec_of(x)
    return spec.inexact and spec.dtype.itemsize == 2


def widen(x: Any) -> Any:
    """x itself, in float32 if it is of a half type."""
    return astype(x, np.float32) if is_half(x) else x


def keep_autocast(extra: Mapping[str, Any]) -> dict[str, Any]:
    """What a rule is given besides: functions of the user's among it run under what is on here, the rule does not."""
    here = override_modes(autocast=modes().autocast)
    return {name: here(x) if callable(x) else x for name, x in extra.items()}


def zero_update(p: Any) -> Any:
    """No change of a parameter, in the dtype that updates of it have."""
    return zeros(spec_of(p), np.dtype(np.float32)) if is_half(p) else zeros_like(p)


def add_update(p: Any, update: Any) -> Any:
    """A parameter after its update, rounded once: the update of a half-type parameter is in float32."""
    if is_half(p) and not is_half(update):
        return astype(pointwise.add(widen(p), update), spec_of(p).dtype)
    return pointwise.add(p, update)


def all_finite(leaves: Sequence[Any]) -> Any:
    """Whether all elements of all leaves are finite, as one bool on their device."""
    good: Any = True
    for x in leaves:
        good = pointwise.logical_and(good, every_one(pointwise.isfinite(x)))
    return good


def zeros_like(x: Any) -> Any:
    """Zeros of the shape and dtype of a parameter, as a bare array."""
    return zeros(spec_of(x))


def real_zeros_like(x: Any) -> Any:
    """Zeros for something like |x|."""
    return zeros(spec_of(x), real_dtype(x))


def cast_like(scalar: Any, like: Any) -> Any:
    """A scalar in a parameter's precision: as an array it would widen the product."""
    if not is_array(scalar) and not isinstance(scalar, (Value, np.generic)):
        return scalar
    return astype(as_value(scalar), real_dtype(like))


def abs_squared(g: Any) -> Any:
    """|g|^2, real."""
    if spec_of(g).dtype.kind == "c":
        return pointwise.real(g * pointwise.conj(g))
    return pointwise.square(g)


def safe_sqrt(v: Any) -> Any:
    """sqrt(v) for v >= 0, with derivative 0 at 0: there v is a square, and its numerator is 0 too."""
    return pointwise.where(pointwise.greater(v, 0), pointwise.sqrt(v), v)


def l2_norm(g: Any) -> Any:
    """The root of the sum of squares, with derivative 0 at 0."""
    return safe_sqrt(total(abs_squared(g)))


def select_if(condition: Any, new: Any, old: Any) -> Any:
    """`new` where the condition holds, else `old`; of one spec."""
    return new if new is old else pointwise.where(condition, new, old)


def require_real(x: Any, what: str) -> None:
    """Raise for complex parameters."""
    if spec_of(x).dtype.kind == "c":
        raise DtypeError(f"{what}: parameters are real, got {spec_of(x)}.\n  Learn real and imaginary part.")


def split_by_structure(structure: Any, tree: Any, what: str) -> list[Any]:
    """The subtrees of a tree at the leaves of another."""
    if structure is LEAF:
        return [tree]
    try:
        return list(structure.flatten_up_to(tree))
    except ValueError as error:
        raise ArgumentError(f"{what} differ: {error}") from None


def check_setting(x: Any, what: str, low: float = 0.0, high: float = math.inf, *, open_end: bool = False) -> Any:
    """A setting within bounds. One that is tracked, or traced by a transform, is not checked."""
    value = as_value(x)
    if spec_of(value).shape:
        raise ArgumentError(f"{what}: wants one number, got {spec_of(value)}.")
    if isinstance(value, Value) and not (is_concrete(value) and value.level == 1):
        return value
    found = float(value.detach() if isinstance(value, Value) else value)
    if not (low <= found < high if open_end else low <= found <= high):
        bounds = f"{low:g} <= {what.rpartition(' ')[2]} {'<' if open_end else '<='} {high:g}"
        raise ArgumentError(f"{what} must be a number with {bounds}, got {found!r}.")
    return value


def check_settings(what: str, **settings: Any) -> list[Any]:
    """Several settings by name, none of them negative."""
    return [check_setting(x, f"{what}: {name}") for name, x in settings.items()]


def is_zero(setting: Any) -> bool:
    """Whether a setting is the number 0, so that what it scales can be left out."""
    return isinstance(setting, (int, float)) and not setting


def check_rate(x: Any, what: str) -> Any:
    """A learning rate: a number that is not negative, or a schedule, a function of the number of steps so far."""
    return x if callable(x) else check_setting(x, what)
