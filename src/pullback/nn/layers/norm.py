"""Layers that normalize: layer, RMS, batch and group norm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, final, overload

import numpy as np

from ...arrays.spec import spec_of
from ...arrays.tensor import Tensor
from ...arrays.value import Value
from ...errors import ShapeError
from ...ops.dispatch import as_value
from ...ops.elementwise.pointwise import stop_gradient
from ..module import Module
from ..norm import batch_norm, group_norm, layer_norm, rms_norm, sync_batch_norm
from ..spellings import accept_overloads
from .parameters import filled_parameter


@final
class LayerNorm(Module):
    """Mean 0 and variance 1 over the last axis, or the last axes if `width` is their shape, then times a weight plus a
    bias.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.LayerNorm(2)(np.array([1.0, 3.0], np.float32)).tolist()
    [-0.9999949932098389, 0.9999949932098389]
    """

    @overload
    def __init__(self, width: Any, eps: float = ..., *, bias: bool = ..., dtype: Any = ...) -> None: ...
    @overload
    def __init__(self, normalized_shape: Any, eps: float = ..., *, bias: bool = ..., dtype: Any = ...) -> None: ...
    @accept_overloads
    def __init__(self, width: Any, eps: float = 1e-5, *, bias: bool = True, dtype: Any = np.float32) -> None:
        self.weight = filled_parameter(width, 1, dtype)
        self.bias = filled_parameter(width, 0, dtype) if bias else None
        self.eps = eps

    def forward(self, x: Any) -> Tensor:
        return layer_norm(x, self.weight, self.bias, axis=_axes_of(self.weight), eps=self.eps)


@final
class RMSNorm(Module):
    """x over the root of its mean square along the last axis, or the last axes if `width` is their shape, times a
    weight.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.RMSNorm(2, eps=0.0)(np.array([3.0, 3.0])).tolist()
    [1.0, 1.0]
    """

    @overload
    def __init__(self, width: Any, eps: float = ..., *, dtype: Any = ...) -> None: ...
    @overload
    def __init__(self, normalized_shape: Any, eps: float = ..., *, dtype: Any = ...) -> None: ...
    @accept_overloads
    def __init__(self, width: Any, eps: float = 1e-6, *, dtype: Any = np.float32) -> None:
        self.weight = filled_parameter(width, 1, dtype)
        self.eps = eps

    def forward(self, x: Any) -> Tensor:
        return rms_norm(x, self.weight, axis=_axes_of(self.weight), eps=self.eps)


def _axes_of(weight: Any) -> Any:
    """The axes that a weight goes along: the last ones."""
    count = len(spec_of(weight).shape)
    return -1 if count == 1 else tuple(range(-count, 0))


def _detach_statistic(x: Any) -> Any:
    """A statistic without its graph, which would grow with every step."""
    if isinstance(x, Tensor):
        return x.detach()
    return stop_gradient(x) if isinstance(x, Value) else x


class BatchNorm(Module):
    """`batch_norm` of (batch, channels, ...), for any number of further axes. In training it sets its running
    statistics to the new ones; in a compiled step return the module, which holds them.

    >>> import numpy as np, pullback as pb
    >>> layer = pb.nn.BatchNorm(1)
    >>> layer(np.array([[1.0], [3.0]], np.float32)).detach().numpy().ravel().round(3).tolist(), layer.mean.tolist()
    ([-1.0, 1.0], [0.20000000298023224])
    """

    buffers: ClassVar[tuple[str, ...]] = ("mean", "variance")

    @overload
    def __init__(self, channels: int, eps: float = ..., momentum: float = ..., *, dtype: Any = ...) -> None: ...
    @overload
    def __init__(self, num_features: int, eps: float = ..., momentum: float = ..., *, dtype: Any = ...) -> None: ...
    @accept_overloads
    def __init__(
        self, channels: int, eps: float = 1e-5, momentum: float = 0.1, *, dtype: Any = np.float32
    ) -> None:  # fmt: skip
        self.weight = filled_parameter(channels, 1, dtype)
        self.bias = filled_parameter(channels, 0, dtype)
        self.mean, self.variance = np.zeros(channels, dtype), np.ones(channels, dtype)
        self.momentum, self.eps = momentum, eps

    def forward(self, x: Any) -> Tensor:
        return self._normalize(batch_norm, x)

    def _normalize(self, function: Callable[..., Any], x: Any) -> Tensor:
        y, mean, variance = function(
            x, self.mean, self.variance, self.weight, self.bias, training=self.training, momentum=self.momentum,
            eps=self.eps,
        )  # fmt: skip
        if self.training:
            self.mean, self.variance = _detach_statistic(mean), _detach_statistic(variance)
        return y


@final
class SyncBatchNorm(BatchNorm, init=False):
    """`BatchNorm` by the statistics of the batches of all ranks (`pb.distributed`).

    >>> import numpy as np, pullback as pb
    >>> pb.nn.SyncBatchNorm(3)(np.ones((4, 3), np.float32)).shape
    (4, 3)
    """

    def forward(self, x: Any) -> Tensor:
        return self._normalize(sync_batch_norm, x)


class _BatchNormOfRank(BatchNorm, init=False):
    """Abstract: batch norm that refuses arrays of other numbers of axes than `ranks`."""

    ranks: ClassVar[tuple[int, ...]]

    def forward(self, x: Any) -> Tensor:
        found = spec_of(as_value(x)).shape
        if len(found) not in self.ranks:
            wanted = " or ".join(map(str, self.ranks))
            raise ShapeError(f"{type(self).__name__}: wants {wanted} axes, (batch, channels, ...), got shape {found}.")
        return BatchNorm.forward(self, x)


@final
class BatchNorm1d(_BatchNormOfRank, init=False):
    """`BatchNorm` of (batch, channels) or (batch, channels, length).

    >>> import numpy as np, pullback as pb
    >>> pb.nn.BatchNorm1d(3)(np.ones((4, 3), np.float32)).shape
    (4, 3)
    """

    ranks: ClassVar[tuple[int, ...]] = (2, 3)


@final
class BatchNorm2d(_BatchNormOfRank, init=False):
    """`BatchNorm` of (batch, channels, height, width).

    >>> import numpy as np, pullback as pb
    >>> pb.nn.BatchNorm2d(3)(np.ones((4, 3, 2, 2), np.float32)).shape
    (4, 3, 2, 2)
    """

    ranks: ClassVar[tuple[int, ...]] = (4,)


@final
class BatchNorm3d(_BatchNormOfRank, init=False):
    """`BatchNorm` of (batch, channels, depth, height, width).

    >>> import numpy as np, pullback as pb
    >>> pb.nn.BatchNorm3d(3)(np.ones((4, 3, 1, 2, 2), np.float32)).shape
    (4, 3, 1, 2, 2)
    """

    ranks: ClassVar[tuple[int, ...]] = (5,)


class GroupNorm(Module):
    """`group_norm` of (batch, channels, ...) with a weight and a bias of its own.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.GroupNorm(2, 4)(np.ones((1, 4, 3), np.float32)).shape
    (1, 4, 3)
    """

    @overload
    def __init__(self, groups: int, channels: int, eps: float = ..., *, dtype: Any = ...) -> None: ...
    @overload
    def __init__(self, num_groups: int, num_channels: int, eps: float = ..., *, dtype: Any = ...) -> None: ...
    @accept_overloads
    def __init__(self, groups: int, channels: int, eps: float = 1e-5, *, dtype: Any = np.float32) -> None:
        self.weight = filled_parameter(channels, 1, dtype)
        self.bias = filled_parameter(channels, 0, dtype)
        self.groups, self.eps = groups, eps

    def forward(self, x: Any) -> Tensor:
        return group_norm(x, self.groups, self.weight, self.bias, eps=self.eps)
