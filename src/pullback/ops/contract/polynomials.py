"""Convolution and correlation of vectors, and polynomials."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arrays.call_site import attributed_to_caller
from ...arrays.spec import Spec, make_spec, ones, spec_of, zeros
from ...errors import ArgumentError, ShapeError
from .. import batching
from ..dispatch import apply, as_value, ndim, shape
from ..elementwise.pointwise import add, multiply
from ..families import conjugate_if_complex, contraction, result_dtype
from ..forms import elsewhere
from ..index import indexing
from ..op import Op
from ..reduce import reductions
from ..round_once import rounds_once
from ..shape import arrange, reshaping
from ..signatures import of_array, of_two_arrays
from ..window.convolution import convolve_grid


def _convolve_value(xp: Any, x: Any, y: Any) -> Any:
    """All products with x_i y_j at i + j, along the last axes."""
    if x.ndim == y.ndim == 1:
        return xp.convolve(x, y)
    n, m = x.shape[-1], y.shape[-1]
    padded = xp.zeros((*x.shape[:-1], n + 2 * (m - 1)), x.dtype)
    padded[..., m - 1 : m - 1 + n] = x
    windows = padded[..., xp.arange(n + m - 1)[:, None] + xp.arange(m)]
    return (windows * y[..., None, ::-1]).sum(-1)


def _expand_convolve(x: Any, y: Any) -> Any:
    """As a convolution of grids by the reversed vector for floating-point numbers, else as sums over windows."""
    n, m = shape(x)[-1], shape(y)[-1]
    dtype = result_dtype((spec_of(x), spec_of(y)))
    if ndim(x) == ndim(y) == 1 and dtype.kind not in "biuc":
        grid, window = (
            reshaping.reshape(reshaping.astype(v, dtype), (1, 1, shape(v)[0])) for v in (x, arrange.flip(y))
        )
        found = convolve_grid(grid, window, stride=(1,), padding=((m - 1, m - 1),), dilation=(1,), groups=1)
        return reshaping.reshape(found, (n + m - 1,))
    padded = arrange.pad(x, [(0, 0)] * (ndim(x) - 1) + [(m - 1, m - 1)])
    windows = padded[..., np.arange(n + m - 1)[:, None] + np.arange(m)]
    return reductions.sum(multiply(windows, reshaping.expand_dims(arrange.flip(y, axis=-1), -2)), axis=-1, dtype=dtype)


def _convolve_spec(x: Spec, y: Spec) -> Spec:
    if not x.shape or not y.shape or not x.shape[-1] or not y.shape[-1]:
        raise ShapeError(f"convolve: wants vectors that are not empty, got shapes {x.shape} and {y.shape}.")
    front = np.broadcast_shapes(x.shape[:-1], y.shape[:-1])
    return make_spec((*front, x.shape[-1] + y.shape[-1] - 1), result_dtype((x, y)), x.device)


def _pull_convolve(bar: Any, other: Any) -> Any:
    """bar against the other argument: sum over j of bar_(i + j) conj(y_j), a convolution with y reversed."""
    reversed_other = arrange.flip(conjugate_if_complex(other), axis=-1)
    size, kept = shape(other)[-1], shape(bar)[-1] - shape(other)[-1] + 1
    return indexing.getitem(apply(_convolve, bar, reversed_other), (..., slice(size - 1, size - 1 + kept)))


_convolve: Op = contraction(
    "convolve",
    value=_convolve_value,
    spec=_convolve_spec, pull={"x": lambda bar, y: _pull_convolve(bar, y), "y": lambda bar, x: _pull_convolve(bar, x)},
    batch=batching.batch_pointwise, form=elsewhere(_expand_convolve),
    samples=lambda rng: [((rng.normal(size=n), rng.normal(size=m)), {}) for n, m in ((5, 3), (2, 4), (1, 1))],
)  # fmt: skip


@of_two_arrays
@attributed_to_caller
def convolve(a: Any, v: Any, mode: str = "full") -> Any:
    """The convolution of two vectors; mode "same" keeps the longer one's size, "valid" what overlaps in full.

    >>> import numpy as np, pullback as pb
    >>> pb.convolve(np.array([1.0, 2.0, 3.0]), np.array([1.0, -1.0]))
    array([ 1.,  1.,  1., -3.])
    """
    a, v = (reshaping.reshape(x, (1,)) if not ndim(x) else x for x in map(as_value, (a, v)))
    if ndim(a) != 1 or ndim(v) != 1:
        raise ShapeError(f"convolve: wants two vectors, got shapes {shape(a)} and {shape(v)}.")
    return _cut_overlap(apply(_convolve, a, v), shape(a)[0], shape(v)[0], mode, "convolve")


@of_two_arrays
@attributed_to_caller
def correlate(a: Any, v: Any, mode: str = "valid") -> Any:
    """The correlation of two vectors: sums of a_(n + k) conj(v_n) over n.

    >>> import numpy as np, pullback as pb
    >>> pb.correlate(np.array([1.0, 2.0, 3.0]), np.array([0.0, 1.0]))
    array([2., 3.])
    """
    a, v = (reshaping.reshape(x, (1,)) if not ndim(x) else x for x in map(as_value, (a, v)))
    reversed_other = arrange.flip(conjugate_if_complex(v))
    whole = apply(_convolve, a, reversed_other)
    n, m = shape(a)[0], shape(v)[0]
    if n >= m:
        return _cut_overlap(whole, n, m, mode, "correlate")
    return arrange.flip(_cut_overlap(arrange.flip(whole), n, m, mode, "correlate"))


def _cut_overlap(whole: Any, n: int, m: int, mode: str, what: str) -> Any:
    short, long = min(n, m), max(n, m)
    if mode == "full":
        return whole
    if mode not in ("same", "valid"):
        raise ArgumentError(f"{what}: mode is 'full', 'same' or 'valid', got {mode!r}.")
    start = (short - 1) // 2 if mode == "same" else short - 1
    return whole[start : start + (long if mode == "same" else long - short + 1)]


@of_two_arrays
@attributed_to_caller
@rounds_once
def polyval(p: Any, x: Any) -> Any:
    """The polynomial with coefficients p, the highest power first, at x.

    >>> import numpy as np, pullback as pb
    >>> pb.polyval(np.array([1.0, 0.0, -1.0]), 3.0)
    array(8.)
    """
    p, x = as_value(p), as_value(x)
    total = zeros(spec_of(x))
    for i in range(shape(p)[0]):
        total = add(multiply(total, x), p[i])
    return total


@of_array
@attributed_to_caller
@rounds_once
def vander(x: Any, N: int | None = None, increasing: bool = False) -> Any:
    """The matrix of the powers of x, one row for each element.

    >>> import numpy as np, pullback as pb
    >>> pb.vander(np.array([2.0, 3.0]), 3)
    array([[4., 2., 1.],
           [9., 3., 1.]])
    """
    x = as_value(x)
    if ndim(x) != 1:
        raise ShapeError(f"vander: wants a vector, got shape {shape(x)}.")
    count = shape(x)[0] if N is None else N
    x = reshaping.astype(x, np.promote_types(spec_of(x).dtype, int))
    if not count:
        return indexing.getitem(reshaping.expand_dims(x, 1), (slice(None), slice(0, 0)))
    powers = [ones(spec_of(x))]
    for _ in range(count - 1):
        powers.append(multiply(powers[-1], x))
    return arrange.stack(powers if increasing else powers[::-1], axis=1)
