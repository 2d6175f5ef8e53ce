"""Positional encodings: rotary embeddings, ALiBi biases, sinusoids."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ...arrays.call_site import attributed_to_caller
from ...arrays.spec import spec_of
from ...errors import ArgumentError, ShapeError
from ...ops.axes import as_integer
from ...ops.creation import arange
from ...ops.dispatch import as_value, ndim, shape
from ...ops.elementwise import pointwise
from ...ops.fusion import fuse
from ...ops.index.indexing import getitem
from ...ops.round_once import rounds_once
from ...ops.shape import arrange, reshaping
from ...ops.signatures import of_mixed_arrays

if TYPE_CHECKING:
    from numpy.typing import NDArray


@of_mixed_arrays
@fuse(autocast="promote")
@attributed_to_caller
@rounds_once
def rotary_embedding(x: Any, /, positions: Any = None, *, base: float = 10000.0, pairing: str = "halves") -> Any:
    """x of shape (..., T, d) with pair i of the last axis rotated by the angle position * base^(-2 i / d), so that the
    product of two of them depends on the distance of their positions alone.

    A pair is (i, i + d/2) for `pairing="halves"`, as most models have it, and (2 i, 2 i + 1) for "interleaved".
    `positions` are 0 to T - 1 unless given, of shape (T,) or one that broadcasts against (..., T).

    >>> import numpy as np, pullback as pb
    >>> x = np.ones((3, 2))
    >>> np.allclose(pb.nn.rotary_embedding(x)[2], [np.cos(2) - np.sin(2), np.sin(2) + np.cos(2)])
    True
    """
    x = as_value(x)
    if ndim(x) < 2 or shape(x)[-1] % 2:
        raise ShapeError(f"rotary_embedding: x has shape {shape(x)}, wanted (..., T, d) with an even d.")
    if pairing not in ("halves", "interleaved"):
        raise ArgumentError(f"rotary_embedding: pairing is 'halves' or 'interleaved', got {pairing!r}.")
    length, width = shape(x)[-2:]
    places = arange(length) if positions is None else as_value(positions)
    turns = reshaping.expand_dims(places, -1) * base ** (-np.arange(0, width, 2) / width)
    dtype = spec_of(x).dtype
    cos, sin = (reshaping.astype(f(turns), dtype) for f in (pointwise.cos, pointwise.sin))
    halves = pairing == "halves"
    a, b = _split_pairs(x, width, halves)
    turned = a * cos - b * sin, a * sin + b * cos
    if halves:
        return arrange.concat(turned, axis=-1)
    return reshaping.reshape(arrange.stack(turned, axis=-1), (*shape(turned[0])[:-1], width))


def _split_pairs(x: Any, width: int, halves: bool) -> tuple[Any, Any]:
    if halves:
        first, second = slice(0, width // 2), slice(width // 2, width)
    else:
        first, second = slice(0, width, 2), slice(1, width, 2)
    return getitem(x, (Ellipsis, first)), getitem(x, (Ellipsis, second))


@attributed_to_caller
def alibi_bias(heads: int, length: int, keys: int | None = None, *, dtype: Any = np.float32) -> NDArray[Any]:
    """A bias of shape (heads, T, S) for the scores of attention: minus a slope of each head times the distance.

    The slopes of n = 2^k heads are 2^(-8 i / n) for i = 1 to n; of other counts those of the power of two below, then
    every second one of the power above.

    >>> import pullback as pb
    >>> pb.nn.alibi_bias(2, 3)[0]
    array([[-0.    , -0.0625, -0.125 ],
           [-0.0625, -0.    , -0.0625],
           [-0.125 , -0.0625, -0.    ]], dtype=float32)
    """
    count = as_integer(heads, "alibi_bias: heads")
    if count < 1:
        raise ArgumentError(f"alibi_bias: wants one head or more, got {heads}.")
    queries = as_integer(length, "alibi_bias: length")
    others = queries if keys is None else as_integer(keys, "alibi_bias: keys")
    distance = np.abs(np.arange(queries)[:, None] - np.arange(others))
    slopes: NDArray[Any] = np.asarray(_alibi_slopes(count))
    bias: NDArray[Any] = (-slopes[:, None, None] * distance).astype(dtype)
    return bias


def _alibi_slopes(heads: int) -> list[float]:
    below = 2 ** math.floor(math.log2(heads))
    found = [2.0 ** (-8 * i / below) for i in range(1, below + 1)]
    if below < heads:
        found += [2.0 ** (-8 * i / (2 * below)) for i in range(1, 2 * (heads - below), 2)]
    return found


@attributed_to_caller
def sinusoidal_positions(length: int, width: int, *, base: float = 10000.0, dtype: Any = np.float32) -> NDArray[Any]:
    """An array of shape (length, width) with sin(t base^(-2 i / width)) in column 2 i and its cosine in column 2 i + 1.

    >>> import pullback as pb
    >>> pb.nn.sinusoidal_positions(2, 2)
    array([[0.       , 1.       ],
           [0.84147096, 0.5403023 ]], dtype=float32)
    """
    places = as_integer(length, "sinusoidal_positions: length")
    columns = as_integer(width, "sinusoidal_positions: width")
    if columns % 2:
        raise ArgumentError(f"sinusoidal_positions: the width is even, got {width}.")
    turns = np.arange(places)[:, None] * base ** (-np.arange(0, columns, 2) / max(columns, 1))
    return np.stack([np.sin(turns), np.cos(turns)], axis=-1).reshape(places, columns).astype(dtype)
