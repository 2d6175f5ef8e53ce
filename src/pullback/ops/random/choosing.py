"""Whole numbers, events and orders: samples that have no derivative, and the relaxed one that has."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arrays.node import signed
from ...arrays.spec import spec_of
from ...errors import ArgumentError
from .. import indexing, reducing, shaping
from ..axes import one_axis, shape_tuple, whole
from ..dispatch import apply, as_value
from ..elementwise import add, divide, equal, less, log, stop_gradient, subtract
from ..functions import softmax
from . import draws
from .keys import key_on, no_key
from .samplers import Draw, gumbel

__all__ = [
    "bernoulli", "binomial", "bits", "categorical", "choice", "gumbel_softmax", "integers", "permutation", "poisson",
]  # fmt: skip


def bits(size: Any = (), *, width: int = 32, key: Any = None) -> Any:
    """Random words of 32 or 64 bits, as unsigned integers.

    >>> import pullback as pb
    >>> pb.random.bits(2, key=pb.random.key(0))
    array([1797259609, 2579123966], dtype=uint32)
    """
    if width not in (32, 64):
        raise ArgumentError(f"random.bits: width must be 32 or 64, got {width}.")
    no_key(size, "bits", "size")
    found = key_on(key, "cpu", "bits", np)
    return apply(draws.random_bits, found, shape=shape_tuple(size, "random.bits"), width=width)


def integers(low: Any, high: Any = None, size: Any = None, *, key: Any = None, dtype: Any = np.int64) -> Any:
    """Whole numbers from low up to, not including, high; with one bound, from 0 up to it.

    >>> import pullback as pb
    >>> x = pb.random.integers(6, size=100, key=pb.random.key(0))
    >>> int(x.min()), int(x.max())
    (0, 5)
    """
    low, high = (0, low) if high is None else (low, high)
    draw = Draw("integers", (low, high), size, key, np.float64)
    low, high = draw.parameters
    _check_range(low, high)
    words = apply(draws.random_bits, draw.key, shape=draw.shape, width=64)
    return shaping.astype(apply(draws.ranged, words, low, high), dtype)


def _check_range(low: Any, high: Any) -> None:
    """Bounds are whole; plain ones must leave something to draw, those of a transform cannot be looked at."""
    if any(spec_of(x).dtype.kind not in "iu" for x in (low, high)):
        raise ArgumentError(f"random.integers: bounds are whole numbers, got {low!r} and {high!r}.")
    if all(isinstance(x, int | np.ndarray) for x in (low, high)) and np.any(np.asarray(low) >= np.asarray(high)):
        raise ArgumentError(f"random.integers: low must be below high, got {low!r} and {high!r}.")


def bernoulli(p: Any = 0.5, size: Any = None, *, key: Any = None) -> Any:
    """True with probability p.

    >>> import pullback as pb
    >>> pb.random.bernoulli(1.0, size=2, key=pb.random.key(0))
    array([ True,  True])
    """
    draw = Draw("bernoulli", (p,), size, key, None, discrete=True)
    return less(draw.unit(), draw.parameters[0])


def poisson(lam: Any = 1.0, size: Any = None, *, key: Any = None) -> Any:
    """Counts of events at a rate, by inverting the distribution function.

    >>> import pullback as pb
    >>> pb.random.poisson(0.0, size=2, key=pb.random.key(0))
    array([0, 0])
    """
    draw = Draw("poisson", (lam,), size, key, np.float64, discrete=True)
    return apply(draws.whole_poisson, draw.unit(), draw.parameters[0])


def binomial(n: Any, p: Any, size: Any = None, *, key: Any = None) -> Any:
    """How many of n events of probability p happen, by inverting the distribution function.

    >>> import pullback as pb
    >>> pb.random.binomial(3, 1.0, size=2, key=pb.random.key(0))
    array([3, 3])
    """
    draw = Draw("binomial", (n, p), size, key, np.float64, discrete=True)
    return apply(draws.whole_binomial, draw.unit(), *draw.parameters)


def categorical(logits: Any, size: Any = None, *, axis: int = -1, key: Any = None) -> Any:
    """Indices along an axis, with the probabilities softmax(logits); `size` asks for more draws, in front.

    >>> import numpy as np, pullback as pb
    >>> pb.random.categorical(np.array([0.0, -np.inf]), size=3, key=pb.random.key(0))
    array([0, 0, 0])
    """
    logits = draws.held("categorical", as_value(no_key(logits, "categorical", "logits")))
    own = spec_of(logits).shape
    axis = one_axis(axis, len(own), "random.categorical") - len(own)
    whole = own if size is None else (*shape_tuple(size, "random.categorical"), *own)
    return reducing.argmax(add(logits, _gumbel_like(logits, whole, key)), axis=axis + len(whole))


def _gumbel_like(logits: Any, shape: tuple[int, ...], key: Any) -> Any:
    found = spec_of(logits)
    device_key = Draw("gumbel", (logits,), shape, key, None).key
    return gumbel(size=shape, key=device_key, dtype=found.dtype if found.inexact else np.float64)


@signed
def gumbel_softmax(logits: Any, temperature: Any = 1.0, *, axis: int = -1, hard: bool = False, key: Any = None) -> Any:
    """A relaxed one-hot choice: softmax((logits + gumbel) / temperature), differentiable in both.

    With `hard`, the result is one-hot and its derivative is that of the relaxed one.

    >>> import numpy as np, pullback as pb
    >>> pb.random.gumbel_softmax(np.array([0.0, -100.0]), hard=True, key=pb.random.key(0))
    array([1., 0.])
    """
    logits = as_value(no_key(logits, "gumbel_softmax", "logits"))
    noisy = add(logits, _gumbel_like(logits, spec_of(logits).shape, key))
    soft = softmax(divide(noisy, as_value(temperature)), axis=axis)
    if not hard:
        return soft
    top = shaping.astype(equal(soft, reducing.max(soft, axis=axis, keepdims=True)), spec_of(soft).dtype)
    # top + (soft - soft): the value is one-hot to the bit, the derivative is soft's
    return stop_gradient(top) + subtract(soft, stop_gradient(soft))


def permutation(x: Any, *, axis: int = 0, key: Any = None) -> Any:
    """The numbers below x in random order, or an array with its slices along an axis in random order.

    >>> import pullback as pb
    >>> sorted(pb.random.permutation(4, key=pb.random.key(0)).tolist())
    [0, 1, 2, 3]
    """
    x = as_value(no_key(x, "permutation", "x"))
    found = spec_of(x)
    if not found.shape:
        return _order(whole(x, "random.permutation: x"), key)
    axis = one_axis(axis, len(found.shape), "random.permutation")
    return indexing.take(x, _order(found.shape[axis], key), axis=axis)


def _order(count: int, key: Any) -> Any:
    return apply(draws.ordered, bits(count, width=64, key=key))


def choice(a: Any, size: Any = (), *, replace: bool = True, p: Any = None, axis: int = 0, key: Any = None) -> Any:
    """Slices of an array (or numbers below a) at random, with probabilities p, with or without putting back.

    >>> import numpy as np, pullback as pb
    >>> sorted(pb.random.choice(np.array([7, 8, 9]), 3, replace=False, key=pb.random.key(0)).tolist())
    [7, 8, 9]
    """
    a = as_value(no_key(a, "choice", "a"))
    p = None if p is None else draws.held("choice", as_value(p))
    found = spec_of(a)
    axis = one_axis(axis, len(found.shape), "random.choice") if found.shape else 0
    count = found.shape[axis] if found.shape else whole(a, "random.choice: a")
    index = _chosen(count, shape_tuple(size, "random.choice"), replace, p, key)
    return indexing.take(a, index, axis=axis) if found.shape else index


def _chosen(count: int, shape: tuple[int, ...], replace: bool, p: Any, key: Any) -> Any:
    wanted = int(np.prod(shape))
    if count < 1 or (not replace and wanted > count):
        raise ArgumentError(f"random.choice: {wanted} cannot be drawn from {count} without putting back.")
    if replace:
        return integers(count, size=shape, key=key) if p is None else categorical(log(as_value(p)), shape, key=key)
    if p is None:
        return shaping.reshape(_order(count, key)[:wanted], shape)
    # The greatest of log p + gumbel come in the order of drawing without putting back.
    noisy = add(log(as_value(p)), _gumbel_like(as_value(p), (count,), key))
    return shaping.reshape(apply(draws.ordered, -stop_gradient(noisy))[:wanted], shape)
