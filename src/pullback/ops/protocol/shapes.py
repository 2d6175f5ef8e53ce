"""NumPy's functions that join and lay out arrays, by NumPy's signatures, where ours differ."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arrays.spec import spec_of
from ...errors import ArgumentError, ShapeError
from .. import arranging, reducing, shaping
from ..axes import one_axis
from ..dispatch import as_value, ndim, shape
from .refusing import library, refuse


def astype(x: Any, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Any:
    refuse("astype", device=None if device == "cpu" else device)
    return shaping.astype(x, dtype)


def copy(a: Any, order: str = "K", subok: bool = False) -> Any:
    refuse("copy", order=order)
    return shaping.variable(as_value(a))


def _joined(parts: Any, dtype: Any, casting: str) -> list[Any]:
    """The parts in the dtype that was asked for, if NumPy would cast them so."""
    xs = [as_value(x) for x in parts]
    if dtype is None:
        return xs
    for x in xs:
        if not np.can_cast(spec_of(x).dtype, dtype, casting=casting):  # type: ignore[arg-type]
            raise ArgumentError(f"concatenate: {spec_of(x).dtype} does not become {dtype} by casting={casting!r}.")
    return [shaping.astype(x, dtype) for x in xs]


def concatenate(arrays: Any, /, axis: Any = 0, out: Any = None, *, dtype: Any = None,
                casting: str = "same_kind") -> Any:  # fmt: skip
    return arranging.concat(_joined(arrays, dtype, casting), axis=axis)


def stack(arrays: Any, axis: int = 0, out: Any = None, *, dtype: Any = None, casting: str = "same_kind") -> Any:
    return arranging.stack(_joined(arrays, dtype, casting), axis=axis)


def vstack(tup: Any, *, dtype: Any = None, casting: str = "same_kind") -> Any:
    return library("vstack", "vstack")(_joined(tup, dtype, casting))


def hstack(tup: Any, *, dtype: Any = None, casting: str = "same_kind") -> Any:
    return library("hstack", "hstack")(_joined(tup, dtype, casting))


def dot(a: Any, b: Any, out: Any = None) -> Any:
    return library("dot", "dot")(_strong(a), _strong(b))


def _strong(x: Any) -> Any:
    """A Python number as the array NumPy makes of it here, which does not give way in promotion."""
    x = as_value(x)
    return np.asarray(x) if spec_of(x).weak else x


def einsum(*operands: Any, out: Any = None, optimize: Any = False, **kwargs: Any) -> Any:
    dtype = kwargs.pop("dtype", None)
    refuse("einsum", **{n: v for n, v in kwargs.items() if (n, v) != ("casting", "safe")})
    if dtype is not None:
        at = slice(1, None) if isinstance(operands[0], str) else slice(0, len(operands) // 2 * 2, 2)
        converted = list(operands)
        converted[at] = [shaping.astype(x, dtype) for x in operands[at]]
        operands = tuple(converted)
    options = {} if optimize is False else {"optimize": optimize}
    return library("einsum", "einsum")(*operands, **options)


def pad(array: Any, pad_width: Any, mode: Any = "constant", **kwargs: Any) -> Any:
    x = as_value(array)
    if mode in _STATISTICS:
        length = kwargs.pop("stat_length", None)
        refuse("pad", **kwargs)
        return _with_statistics(x, _pairs(pad_width, ndim(x)), _STATISTICS[mode], length)
    if mode not in ("constant", "edge", "reflect", "symmetric", "wrap"):
        refuse("pad", mode=mode)
    if kwargs.get("reflect_type", "even") != "even":
        refuse("pad", reflect_type=kwargs["reflect_type"])
    refuse("pad", **{n: v for n, v in kwargs.items() if n not in ("constant_values", "reflect_type")})
    return arranging.pad(x, _pairs(pad_width, ndim(x)), mode, **kwargs)


def _pairs(pad_width: Any, rank: int) -> list[tuple[int, int]]:
    if isinstance(pad_width, dict):
        found = [(0, 0)] * rank
        for axis, pair in pad_width.items():
            found[one_axis(axis, rank, "pad")] = pair if isinstance(pair, tuple) else (pair, pair)
        return found
    try:
        return [(int(a), int(b)) for a, b in np.broadcast_to(np.asarray(pad_width), (rank, 2))]
    except ValueError:
        raise ShapeError(f"pad: pad_width {pad_width} does not give a pair for each of {rank} axes.") from None


def _block(value: Any, x: Any, axis: int, size: int) -> Any:
    wanted = tuple(size if i == axis else n for i, n in enumerate(shape(x)))
    return shaping.broadcast_to(shaping.astype(value, spec_of(x).dtype), wanted)


_STATISTICS: dict[Any, Any] = {"maximum": reducing.max, "minimum": reducing.min, "mean": reducing.mean}


def _with_statistics(x: Any, pairs: list[tuple[int, int]], statistic: Any, length: Any) -> Any:
    lengths = None if length is None else _pairs(length, ndim(x))
    for axis, (before, after) in enumerate(pairs):
        size = shape(x)[axis]
        first, last = (size, size) if lengths is None else (min(n, size) for n in lengths[axis])
        front = (slice(None),) * axis
        head = statistic(x[(*front, slice(0, first))], axis=axis, keepdims=True)
        tail = statistic(x[(*front, slice(size - last, None))], axis=axis, keepdims=True)
        x = arranging.concat([_block(head, x, axis, before), x, _block(tail, x, axis, after)], axis=axis)
    return x
