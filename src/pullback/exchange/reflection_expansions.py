"""QR factors as a loop of reflections, for formats that lack them; rows and columns whose number a loop alone knows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..arrays.spec import Spec, spec_of
from ..ops.contract.matrix_products import matmul
from ..ops.elementwise import pointwise as p
from ..ops.elementwise.pointwise import where
from ..ops.reduce.reductions import max as largest
from ..ops.reduce.reductions import sum as total_of
from ..ops.shape.arrange import triu
from ..ops.shape.reshaping import expand_dims
from ..transforms.control.scan import scan

Static = dict[str, Any]


def read_row(x: Any, k: Any) -> Any:
    """Row k of each matrix, where k is known to the loop alone."""
    rows = np.arange(spec_of(x).shape[-2])[:, None]
    return total_of(where(p.equal(rows, k), x, 0), axis=-2)


def read_column(x: Any, k: Any) -> Any:
    return total_of(where(p.equal(np.arange(spec_of(x).shape[-1]), k), x, 0), axis=-1)


def as_column(x: Any) -> Any:
    return expand_dims(x, -1)


def as_row(x: Any) -> Any:
    return expand_dims(x, -2)


def expand_qr(x: Any, specs: Sequence[Spec], static: Static) -> tuple[Any, Any]:
    """By reflections that send each column to a multiple of a unit vector, away from its own sign, as LAPACK does; a
    column that is one already is left as it is.
    """
    *stack, m, n = spec_of(x).shape
    rows, dtype = np.arange(m), specs[0].dtype

    def step(state: Any, k: Any) -> Any:
        q, r = state
        column = where(p.greater_equal(rows, k), read_column(r, k), 0)
        scale = largest(p.abs(column), axis=-1, keepdims=True)
        column = column / where(p.equal(scale, 0), 1, scale)
        first = read_column(as_row(column), k)
        below = total_of(where(p.greater(rows, k), column * column, 0), axis=-1, keepdims=True)
        length = p.sqrt(first * first + below)
        v = where(p.equal(rows, k), first + where(p.less(first, 0), -length, length), column)
        weight = where(p.equal(below, 0), 0, 2 / where(p.equal(below, 0), 1, total_of(v * v, axis=-1, keepdims=True)))
        v, w = as_column(v), as_row(v * weight)
        return (q - matmul(matmul(q, v), w), r - matmul(v, matmul(w, r))), ()

    start = np.broadcast_to(np.eye(m, dtype=dtype), (*stack, m, m)).copy(), x
    q, r = scan(step, start, np.arange(n))[0]
    k = specs[0].shape[-1]
    return q[..., :k], triu(r[..., :k, :])
