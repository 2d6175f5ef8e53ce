"""Discrete samplers: integers, events, choices and permutations, without derivative, and the relaxed gumbel_softmax."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...arrays.call_site import attributed_to_caller
from ...arrays.spec import spec_of
from ...errors import ArgumentError
from ..axes import as_integer, as_shape, normalize_axis
from ..dispatch import apply, as_value
from ..elementwise.pointwise import add, divide, equal, less, log, stop_gradient, subtract
from ..functions import softmax
from ..index import indexing
from ..reduce import reductions
from ..shape import reshaping
from ..signatures import of_array, of_mixed_arrays
from . import draw_ops
from .keys import key_on_device, refuse_key
from .samplers import DrawRequest, gumbel
from .signatures import of_bounds, of_count_and_probability, of_pool, of_probability, of_rate

if TYPE_CHECKING:
    from numpy.typing import NDArray


def bits(size: Any = (), *, width: int = 32, key: Any = None, device: Any = None) -> NDArray[Any]:
    """Random words of 32 or 64 bits, as unsigned integers.

    >>> import pullback as pb
    >>> pb.random.bits(2, key=pb.random.key(0))
    array([1797259609, 2579123966], dtype=uint32)
    """
    if width not in (32, 64):
        raise ArgumentError(f"random.bits: width must be 32 or 64, got {width}.")
    refuse_key(size, "bits", "size")
    found = key_on_device(key, device, "bits")
    words: NDArray[Any] = apply(draw_ops.random_bits, found, shape=as_shape(size, "random.bits"), width=width)
    return words


@of_bounds
def integers(
    low: Any, high: Any = None, size: Any = None, *, key: Any = None, dtype: Any = np.int64, device: Any = None
) -> Any:
    """Integers from low up to, not including, high; with one bound, from 0 up to it.

    >>> import pullback as pb
    >>> x = pb.random.integers(6, size=100, key=pb.random.key(0))
    >>> int(x.min()), int(x.max())
    (0, 5)
    """
    low, high = (0, low) if high is None else (low, high)
    draw = DrawRequest("integers", (low, high), size, key, np.float64, device=device)
    low, high = draw.parameters
    _check_range(low, high)
    words = apply(draw_ops.random_bits, draw.key, shape=draw.shape, width=64)
    return reshaping.astype(apply(draw_ops.range_draw, words, low, high), dtype)


def _check_range(low: Any, high: Any) -> None:
    """Check integer bounds; plain ones must not be empty, those of a transform are not concrete."""
    if any(spec_of(x).dtype.kind not in "iu" for x in (low, high)):
        raise ArgumentError(f"random.integers: bounds must be integers, got {low!r} and {high!r}.")
    if all(isinstance(x, int | np.ndarray) for x in (low, high)) and np.any(np.asarray(low) >= np.asarray(high)):
        raise ArgumentError(f"random.integers: low must be below high, got {low!r} and {high!r}.")


@of_probability
def bernoulli(p: Any = 0.5, size: Any = None, *, key: Any = None, device: Any = None) -> Any:
    """True with probability p.

    >>> import pullback as pb
    >>> pb.random.bernoulli(1.0, size=2, key=pb.random.key(0))
    array([ True,  True])
    """
    draw = DrawRequest("bernoulli", (p,), size, key, None, discrete=True, device=device)
    return less(draw.unit(), draw.parameters[0])


@of_rate
def poisson(lam: Any = 1.0, size: Any = None, *, key: Any = None, device: Any = None) -> Any:
    """Poisson counts of events at a rate, by inverting the distribution function.

    >>> import pullback as pb
    >>> pb.random.poisson(0.0, size=2, key=pb.random.key(0))
    array([0, 0])
    """
    draw = DrawRequest("poisson", (lam,), size, key, np.float64, discrete=True, device=device)
    return apply(draw_ops.poisson_draw, draw.unit(), draw.parameters[0])


@of_count_and_probability
def binomial(n: Any, p: Any, size: Any = None, *, key: Any = None, device: Any = None) -> Any:
    """How many of n events of probability p occur, by inverting the distribution function.

    >>> import pullback as pb
    >>> pb.random.binomial(3, 1.0, size=2, key=pb.random.key(0))
    array([3, 3])
    """
    draw = DrawRequest("binomial", (n, p), size, key, np.float64, discrete=True, device=device)
    return apply(draw_ops.binomial_draw, draw.unit(), *draw.parameters)


@of_array
def categorical(logits: Any, size: Any = None, *, axis: int = -1, key: Any = None) -> Any:
    """Indices along an axis, with the probabilities softmax(logits); `size` prepends axes of further draws.

    >>> import numpy as np, pullback as pb
    >>> pb.random.categorical(np.array([0.0, -np.inf]), size=3, key=pb.random.key(0))
    array([0, 0, 0])
    """
    logits = draw_ops.held("categorical", as_value(refuse_key(logits, "categorical", "logits")))
    own = spec_of(logits).shape
    axis = normalize_axis(axis, len(own), "random.categorical") - len(own)
    whole = own if size is None else (*as_shape(size, "random.categorical"), *own)
    return reductions.argmax(add(logits, _gumbel_like(logits, whole, key)), axis=axis + len(whole))


def _gumbel_like(logits: Any, shape: tuple[int, ...], key: Any) -> Any:
    found = spec_of(logits)
    device_key = DrawRequest("gumbel", (logits,), shape, key, None).key
    return gumbel(size=shape, key=device_key, dtype=found.dtype if found.inexact else np.float64)


@of_mixed_arrays
@attributed_to_caller
def gumbel_softmax(logits: Any, temperature: Any = 1.0, *, axis: int = -1, hard: bool = False, key: Any = None) -> Any:
    """A relaxed one-hot choice: softmax((logits + gumbel) / temperature), differentiable in both.

    With `hard`, the result is one-hot and its derivative is that of the relaxed one.

    >>> import numpy as np, pullback as pb
    >>> pb.random.gumbel_softmax(np.array([0.0, -100.0]), hard=True, key=pb.random.key(0))
    array([1., 0.])
    """
    logits = as_value(refuse_key(logits, "gumbel_softmax", "logits"))
    noisy = add(logits, _gumbel_like(logits, spec_of(logits).shape, key))
    soft = softmax(divide(noisy, as_value(temperature)), axis=axis)
    if not hard:
        return soft
    top = reshaping.astype(equal(soft, reductions.max(soft, axis=axis, keepdims=True)), spec_of(soft).dtype)
    # top + (soft - soft): the value is exactly one-hot, the derivative is soft's
    return stop_gradient(top) + subtract(soft, stop_gradient(soft))


@of_array
def permutation(x: Any, *, axis: int = 0, key: Any = None) -> Any:
    """The integers below x in random order, or an array with its slices along an axis in random order.

    >>> import pullback as pb
    >>> sorted(pb.random.permutation(4, key=pb.random.key(0)).tolist())
    [0, 1, 2, 3]
    """
    x = as_value(refuse_key(x, "permutation", "x"))
    found = spec_of(x)
    if not found.shape:
        return _random_order(as_integer(x, "random.permutation: x"), key)
    axis = normalize_axis(axis, len(found.shape), "random.permutation")
    return indexing.take(x, _random_order(found.shape[axis], key, found.device), axis=axis)


def _random_order(count: int, key: Any, device: Any = None) -> Any:
    return apply(draw_ops.order_draw, bits(count, width=64, key=key, device=device))


@of_pool
def choice(a: Any, size: Any = (), *, replace: bool = True, p: Any = None, axis: int = 0, key: Any = None) -> Any:
    """Slices of an array (or integers below a) at random, with probabilities p, with or without replacement.

    >>> import numpy as np, pullback as pb
    >>> sorted(pb.random.choice(np.array([7, 8, 9]), 3, replace=False, key=pb.random.key(0)).tolist())
    [7, 8, 9]
    """
    a = as_value(refuse_key(a, "choice", "a"))
    p = None if p is None else draw_ops.held("choice", as_value(p))
    found = spec_of(a)
    axis = normalize_axis(axis, len(found.shape), "random.choice") if found.shape else 0
    count = found.shape[axis] if found.shape else as_integer(a, "random.choice: a")
    index = _choose_indices(count, as_shape(size, "random.choice"), replace, p, key)
    return indexing.take(a, index, axis=axis) if found.shape else index


def _choose_indices(count: int, shape: tuple[int, ...], replace: bool, p: Any, key: Any) -> Any:
    wanted = int(np.prod(shape))
    if count < 1 or (not replace and wanted > count):
        raise ArgumentError(f"random.choice: {wanted} cannot be drawn from {count} without replacement.")
    if replace:
        return integers(count, size=shape, key=key) if p is None else categorical(log(as_value(p)), shape, key=key)
    if p is None:
        return reshaping.reshape(_random_order(count, key)[:wanted], shape)
    # The greatest of log p + gumbel, in descending order, are a draw without replacement.
    noisy = add(log(as_value(p)), _gumbel_like(as_value(p), (count,), key))
    return reshaping.reshape(apply(draw_ops.order_draw, -stop_gradient(noisy))[:wanted], shape)
