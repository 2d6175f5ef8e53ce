"""Places in a sequence in, what tells a network about them out: turned pairs, biases of distance, waves."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..arrays.node import signed
from ..arrays.spec import spec_of
from ..errors import ArgumentError, ShapeError
from ..ops import arranging, shaping
from ..ops import elementwise as pointwise
from ..ops.axes import whole
from ..ops.creation import arange
from ..ops.dispatch import as_value, ndim, shape
from ..ops.indexing import getitem

__all__ = ["alibi_bias", "rotary_embedding", "sinusoidal_positions"]


@signed
def rotary_embedding(x: Any, /, positions: Any = None, *, base: float = 10000.0, pairing: str = "halves") -> Any:
    """x of shape (..., T, d) with pair i of the last axis turned by the angle position * base^(-2 i / d), so that the
    product of two of them hangs on the distance of their places alone.

    A pair is (i, i + d/2) for `pairing="halves"`, as most models have it, and (2 i, 2 i + 1) for "neighbours".
    `positions` are 0 to T - 1 unless given, of shape (T,) or one that broadcasts against (..., T).

    >>> import numpy as np, pullback as pb
    >>> x = np.ones((3, 2))
    >>> np.allclose(pb.nn.rotary_embedding(x)[2], [np.cos(2) - np.sin(2), np.sin(2) + np.cos(2)])
    True
    """
    x = as_value(x)
    if ndim(x) < 2 or shape(x)[-1] % 2:
        raise ShapeError(f"rotary_embedding: x has shape {shape(x)}, wanted (..., T, d) with an even d.")
    if pairing not in ("halves", "neighbours"):
        raise ArgumentError(f"rotary_embedding: pairing is 'halves' or 'neighbours', got {pairing!r}.")
    length, width = shape(x)[-2:]
    places = arange(length) if positions is None else as_value(positions)
    turns = pointwise.multiply(shaping.expand_dims(places, -1), base ** (-np.arange(0, width, 2) / width))
    dtype = spec_of(x).dtype
    cos, sin = (shaping.astype(f(turns), dtype) for f in (pointwise.cos, pointwise.sin))
    halves = pairing == "halves"
    a, b = _pairs(x, width, halves)
    turned = (
        pointwise.subtract(pointwise.multiply(a, cos), pointwise.multiply(b, sin)),
        pointwise.add(pointwise.multiply(a, sin), pointwise.multiply(b, cos)),
    )
    if halves:
        return arranging.concat(turned, axis=-1)
    return shaping.reshape(arranging.stack(turned, axis=-1), (*shape(turned[0])[:-1], width))


def _pairs(x: Any, width: int, halves: bool) -> tuple[Any, Any]:
    if halves:
        first, second = slice(0, width // 2), slice(width // 2, width)
    else:
        first, second = slice(0, width, 2), slice(1, width, 2)
    return getitem(x, (Ellipsis, first)), getitem(x, (Ellipsis, second))


@signed
def alibi_bias(heads: int, length: int, keys: int | None = None, *, dtype: Any = np.float32) -> Any:
    """A bias of shape (heads, T, S) for the scores of attention: minus a slope of each head times the distance.

    The slopes of n = 2^k heads are 2^(-8 i / n) for i = 1 to n; of other numbers those of the power of two below, then
    every second one of the power above.

    >>> import pullback as pb
    >>> pb.nn.alibi_bias(2, 3)[0]
    array([[-0.    , -0.0625, -0.125 ],
           [-0.0625, -0.    , -0.0625],
           [-0.125 , -0.0625, -0.    ]], dtype=float32)
    """
    count = whole(heads, "alibi_bias: heads")
    if count < 1:
        raise ArgumentError(f"alibi_bias: wants one head or more, got {heads}.")
    queries = whole(length, "alibi_bias: length")
    others = queries if keys is None else whole(keys, "alibi_bias: keys")
    distance = np.abs(np.arange(queries)[:, None] - np.arange(others))
    return (-np.asarray(_slopes(count))[:, None, None] * distance).astype(dtype)


def _slopes(heads: int) -> list[float]:
    below = 2 ** math.floor(math.log2(heads))
    found = [2.0 ** (-8 * i / below) for i in range(1, below + 1)]
    if below < heads:
        found += [2.0 ** (-8 * i / (2 * below)) for i in range(1, 2 * (heads - below), 2)]
    return found


@signed
def sinusoidal_positions(length: int, width: int, *, base: float = 10000.0, dtype: Any = np.float32) -> Any:
    """An array of shape (length, width) with sin(t base^(-2 i / width)) in column 2 i and its cosine in column 2 i + 1.

    >>> import pullback as pb
    >>> pb.nn.sinusoidal_positions(2, 2)
    array([[0.       , 1.       ],
           [0.84147096, 0.5403023 ]], dtype=float32)
    """
    places, columns = whole(length, "sinusoidal_positions: length"), whole(width, "sinusoidal_positions: width")
    if columns % 2:
        raise ArgumentError(f"sinusoidal_positions: the width is even, got {width}.")
    turns = np.arange(places)[:, None] * base ** (-np.arange(0, columns, 2) / max(columns, 1))
    return np.stack([np.sin(turns), np.cos(turns)], axis=-1).reshape(places, columns).astype(dtype)
