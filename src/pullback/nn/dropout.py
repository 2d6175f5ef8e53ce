"""Dropout and its variants; what is not dropped is scaled so that the mean stays.

The mask comes from `key`, or from the default generator: the same key drops the same elements, however it is run.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..arrays.call_site import attributed_to_caller
from ..ops import random
from ..ops.axes import normalize_axes
from ..ops.dispatch import ndim, shape
from ..ops.elementwise.pointwise import add, less, multiply, where
from ..ops.round_once import rounds_once
from ..ops.shape import reshaping
from ..ops.signatures import of_array
from .arguments import as_floats, check_probability, key_on_device_of, require_rank
from .geometry import over_axes
from .rectifiers import SELU_ALPHA, SELU_SCALE

#: The value that selu has far below zero.
_SELU_LOWEST = -SELU_ALPHA * SELU_SCALE


def _keep_mask(x: Any, p: float, axes: tuple[int, ...], key: Any) -> Any:
    """True with probability 1 - p, drawn for each index along the axes and shared along all others."""
    size = tuple(n if a in axes else 1 for a, n in enumerate(shape(x)))
    bits = random.bits(size, width=32, key=key_on_device_of(key, x, "bits"))
    return less(bits, np.uint32(min(round((1 - p) * 2.0**32), 2**32 - 1)))


def _apply_dropout(
    x: Any, p: float, axis: Any, training: bool, key: Any, what: str, dropped: float = 0.0, least: int = 0
) -> Any:
    """Dropped elements take the value c = `dropped`. With q = 1 - p the mean of x' is p c. If c is zero, x over q has
    the mean of x; else, for x of mean 0 and variance 1, the variance of x' is q + p q c^2, so that
    a = (q + p q c^2)^(-1/2) and b = -a p c bring both back.
    """
    x, p = require_rank(as_floats(x, what), least, what, "a batch"), check_probability(p, what)
    if not training or p == 0:
        return reshaping.pass_through(x)  # in eval every shape passes
    axes = normalize_axes(axis, ndim(x), what)
    if p == 1:
        return where(False, x, 0.0)
    kept = _keep_mask(x, p, axes, key)
    if not dropped:
        return where(kept, multiply(x, 1 / (1 - p)), 0.0)
    a = 1 / math.sqrt((1 - p) * (1 + p * dropped * dropped))
    return add(multiply(where(kept, x, dropped), a), -a * p * dropped)


@of_array
@attributed_to_caller
def dropout(x: Any, /, p: float = 0.5, *, training: bool = True, key: Any = None) -> Any:
    """Each element zero with probability p, else over 1 - p; x itself without `training`.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.dropout(np.ones(6), key=pb.random.key(0))
    array([2., 0., 2., 0., 0., 0.])
    """
    return _apply_dropout(x, p, None, training, key, "dropout")


@of_array
@attributed_to_caller
def feature_dropout(x: Any, /, p: float = 0.5, *, axis: Any = (0, 1), training: bool = True, key: Any = None) -> Any:
    """Whole channels zero with probability p: one choice for each place along `axis` (batch and channels).

    >>> import numpy as np, pullback as pb
    >>> pb.nn.feature_dropout(np.ones((1, 2, 3)), key=pb.random.key(0))
    array([[[2., 2., 2.],
            [0., 0., 0.]]])
    """
    return _apply_dropout(x, p, axis, training, key, "feature_dropout")


def _dropout_channels(what: str, x: Any, /, p: float = 0.5, *, training: bool = True, key: Any = None) -> Any:
    return _apply_dropout(x, p, (0, 1), training, key, what)


@over_axes(1, _dropout_channels)
def dropout1d() -> None:
    """`feature_dropout` of (batch, channels, length), or of one sample of it.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.dropout1d(np.ones((2, 3)), key=pb.random.key(0))
    array([[2., 2., 2.],
           [0., 0., 0.]])
    """


@over_axes(2, _dropout_channels)
def dropout2d() -> None:
    """`feature_dropout` of (batch, channels, height, width), or of one sample of it.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.dropout2d(np.ones((2, 1, 2)), key=pb.random.key(0)).ravel()
    array([2., 2., 0., 0.])
    """


@over_axes(3, _dropout_channels)
def dropout3d() -> None:
    """`feature_dropout` of (batch, channels, depth, height, width), or of one sample of it.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.dropout3d(np.ones((2, 1, 1, 2)), key=pb.random.key(0)).ravel()
    array([2., 2., 0., 0.])
    """


@of_array
@attributed_to_caller
def drop_path(x: Any, /, p: float = 0.5, *, training: bool = True, key: Any = None) -> Any:
    """Whole samples (axis 0) zero with probability p, for the branch of a residual block: stochastic depth.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.drop_path(np.ones((2, 3)), key=pb.random.key(0))
    array([[2., 2., 2.],
           [0., 0., 0.]])
    """
    return _apply_dropout(x, p, 0, training, key, "drop_path", least=1)


@of_array
@attributed_to_caller
@rounds_once
def alpha_dropout(x: Any, /, p: float = 0.5, *, training: bool = True, key: Any = None) -> Any:
    """`dropout` for networks of `selu`: what is dropped takes selu's lowest value, and mean and variance stay.

    >>> import numpy as np, pullback as pb
    >>> np.unique(pb.nn.alpha_dropout(np.zeros(6), key=pb.random.key(0)).round(3))
    array([-0.779,  0.779])
    """
    return _apply_dropout(x, p, None, training, key, "alpha_dropout", _SELU_LOWEST)


@of_array
@attributed_to_caller
@rounds_once
def feature_alpha_dropout(
    x: Any, /, p: float = 0.5, *, axis: Any = (0, 1), training: bool = True, key: Any = None
) -> Any:
    """`alpha_dropout` of whole channels: one choice for each place along `axis`.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.feature_alpha_dropout(np.zeros((1, 2, 2)), key=pb.random.key(0)).round(3)
    array([[[ 0.779,  0.779],
            [-0.779, -0.779]]])
    """
    return _apply_dropout(x, p, axis, training, key, "feature_alpha_dropout", _SELU_LOWEST)
