"""Layers that normalize: layer, RMS, batch and group norm."""

from __future__ import annotations

from typing import Any, ClassVar, final

import numpy as np

from ...arrays.tensor import Tensor
from ...arrays.value import Value
from ...ops.elementwise.pointwise import stop_gradient
from ..module import Module
from ..norm import batch_norm, group_norm, layer_norm, rms_norm
from .parameters import filled_parameter


@final
class LayerNorm(Module):
    """Mean 0 and variance 1 over the last axis, then times a weight plus a bias.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.LayerNorm(2)(np.array([1.0, 3.0], np.float32)).tolist()
    [-0.9999949932098389, 0.9999949932098389]
    """

    def __init__(self, width: int, *, bias: bool = True, eps: float = 1e-5, dtype: Any = np.float32) -> None:
        self.weight = filled_parameter(width, 1, dtype)
        self.bias = filled_parameter(width, 0, dtype) if bias else None
        self.eps = eps

    def forward(self, x: Any) -> Any:
        return layer_norm(x, self.weight, self.bias, eps=self.eps)


@final
class RMSNorm(Module):
    """x over the root of its mean square along the last axis, times a weight.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.RMSNorm(2, eps=0.0)(np.array([3.0, 3.0])).tolist()
    [1.0, 1.0]
    """

    def __init__(self, width: int, *, eps: float = 1e-6, dtype: Any = np.float32) -> None:
        self.weight = filled_parameter(width, 1, dtype)
        self.eps = eps

    def forward(self, x: Any) -> Any:
        return rms_norm(x, self.weight, eps=self.eps)


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

    def __init__(
        self, channels: int, *, momentum: float = 0.1, eps: float = 1e-5, dtype: Any = np.float32
    ) -> None:  # fmt: skip
        self.weight = filled_parameter(channels, 1, dtype)
        self.bias = filled_parameter(channels, 0, dtype)
        self.mean, self.variance = np.zeros(channels, dtype), np.ones(channels, dtype)
        self.momentum, self.eps = momentum, eps

    def forward(self, x: Any) -> Any:
        y, mean, variance = batch_norm(
            x, self.mean, self.variance, self.weight, self.bias, training=self.training, momentum=self.momentum,
            eps=self.eps,
        )  # fmt: skip
        if self.training:
            self.mean, self.variance = _detach_statistic(mean), _detach_statistic(variance)
        return y


class GroupNorm(Module):
    """`group_norm` of (batch, channels, ...) with a weight and a bias of its own.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.GroupNorm(2, 4)(np.ones((1, 4, 3), np.float32)).shape
    (1, 4, 3)
    """

    def __init__(self, groups: int, channels: int, *, eps: float = 1e-5, dtype: Any = np.float32) -> None:
        self.weight = filled_parameter(channels, 1, dtype)
        self.bias = filled_parameter(channels, 0, dtype)
        self.groups, self.eps = groups, eps

    def forward(self, x: Any) -> Any:
        return group_norm(x, self.groups, self.weight, self.bias, eps=self.eps)
