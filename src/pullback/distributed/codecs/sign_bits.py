"""One bit a number: its sign, eight of them to a byte, and one size for all."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ...arrays.picklable import picklable
from ...arrays.spec import Spec, spec_of
from ...ops.elementwise import pointwise
from ...ops.index.indexing import getitem
from ...ops.reduce import reductions
from ...ops.shape.arrange import concat
from ...ops.shape.reshaping import reshape
from .codec import Codec, Coded, GatherFrom, Running, no_state
from .gathered import add_shares


@picklable
def one_bit() -> Codec:
    """Send the signs of an array, a bit each, and one size for all numbers, the mean of theirs (Seide et al., 2014). By
    itself this loses most of a gradient: use it inside `error_feedback`, or as `one_bit_adam` does.

    >>> import numpy as np, pullback as pb
    >>> rule = pb.distributed.aggregate(pb.distributed.codecs.one_bit())
    >>> def step():
    ...     g = np.array([1.0, -2.0, 6.0])
    ...     return rule.update(g, rule.init(g), g)[0].tolist()
    >>> pb.distributed.run(step, 2)
    [[6.0, -6.0, 6.0], [6.0, -6.0, 6.0]]
    """

    def run(x: Any, state: Any, step: Any) -> Running:
        size = reductions.mean(pointwise.abs(x))
        gathered = yield GatherFrom((_pack_signs(x), size))
        decode = functools.partial(_decode, spec=spec_of(x))
        return Coded(add_shares(decode, *gathered), _with_sign_of(size, pointwise.less(x, 0.0)), state)

    return Codec("one_bit()", no_state, run, _sent_bytes)


def _bytes_of_signs(spec: Spec) -> int:
    return -(-spec.size // 8)


def _pack_signs(x: Any) -> Any:
    """Bit i of byte j is the sign of element j + i n of n bytes: whole blocks of numbers are combined, element by
    element, where neighbours would have to be shuffled.
    """
    spec = spec_of(x)
    count = _bytes_of_signs(spec)
    flat = reshape(x, (-1,))
    if 8 * count > spec.size:
        flat = concat([flat, np.ones(8 * count - spec.size, spec.dtype)])
    blocks = reshape(flat, (8, count))
    bits = [
        pointwise.where(pointwise.less(getitem(blocks, i), 0.0), np.uint8(1 << i), np.uint8(0)) for i in range(8)
    ]  # fmt: skip
    return functools.reduce(pointwise.bitwise_or, bits)


def _decode(packed: Any, size: Any, spec: Spec) -> Any:
    masks = np.array([[1 << i] for i in range(8)], np.uint8)
    is_negative = pointwise.not_equal(pointwise.bitwise_and(packed, masks), np.uint8(0))
    flat = reshape(_with_sign_of(size, is_negative), (-1,))
    return reshape(getitem(flat, slice(0, spec.size)), spec.shape)


def _with_sign_of(size: Any, is_negative: Any) -> Any:
    return pointwise.where(is_negative, pointwise.negative(size), size)


def _sent_bytes(spec: Spec) -> float:
    return float(_bytes_of_signs(spec) + max(spec.dtype.itemsize, 4))
