"""Convolution layers, batch and group norm."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from ...arrays.tensor import Tensor
from ...arrays.value import Value
from ...errors import ArgumentError
from ...ops.elementwise.pointwise import stop_gradient
from .. import init
from ..convolution import conv1d, conv2d, conv3d
from ..module import Module
from ..norm.standardize import batch_norm, group_norm
from .parameters import make_parameter, split_key


class _Convolution(Module):
    """The common part of the three; `function` computes the convolution, `axes` is its number of spatial axes."""

    function: ClassVar[Callable[..., Any]]
    axes: ClassVar[int]

    def __init__(
        self,
        inputs: int,
        outputs: int,
        window: Any,
        *,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        mode: str = "zeros",
        bias: bool = True,
        key: Any = None,
        dtype: Any = np.float32,
    ) -> None:
        if groups < 1 or inputs % groups or outputs % groups:
            name = type(self).__name__
            raise ArgumentError(f"{name}: {inputs} and {outputs} channels cannot be split into {groups} groups.")
        window = (window,) * self.axes if isinstance(window, int) else tuple(window)
        shape = (outputs, inputs // groups, *window)
        bound = 1 / math.sqrt(max(math.prod(shape[1:]), 1))
        of_weight, of_bias = split_key(key, 2)
        self.weight = make_parameter(init.uniform(shape, -bound, bound, key=of_weight, dtype=dtype))
        self.bias = make_parameter(init.uniform((outputs,), -bound, bound, key=of_bias, dtype=dtype)) if bias else None
        self.stride, self.padding, self.dilation, self.groups, self.mode = stride, padding, dilation, groups, mode

    def forward(self, x: Any) -> Any:
        settings = self.stride, self.padding, self.dilation, self.groups
        return type(self).function(x, self.weight, self.bias, *settings, mode=self.mode)


class Conv1d(_Convolution):
    """`conv1d` with a weight and a bias of its own.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.Conv1d(3, 8, 5, padding="same")(np.ones((2, 3, 10), np.float32)).shape
    (2, 8, 10)
    """

    function: ClassVar[Callable[..., Any]] = staticmethod(conv1d)
    axes: ClassVar[int] = 1


class Conv2d(_Convolution):
    """`conv2d` with a weight and a bias of its own.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.Conv2d(3, 8, 3, stride=2)(np.ones((2, 3, 9, 9), np.float32)).shape
    (2, 8, 4, 4)
    """

    function: ClassVar[Callable[..., Any]] = staticmethod(conv2d)
    axes: ClassVar[int] = 2


class Conv3d(_Convolution):
    """`conv3d` with a weight and a bias of its own.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.Conv3d(1, 2, (1, 3, 3))(np.ones((1, 1, 4, 5, 5), np.float32)).shape
    (1, 2, 4, 3, 3)
    """

    function: ClassVar[Callable[..., Any]] = staticmethod(conv3d)
    axes: ClassVar[int] = 3


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
        self.weight = make_parameter(np.ones(channels, dtype))
        self.bias = make_parameter(np.zeros(channels, dtype))
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
        self.weight = make_parameter(np.ones(channels, dtype))
        self.bias = make_parameter(np.zeros(channels, dtype))
        self.groups, self.eps = groups, eps

    def forward(self, x: Any) -> Any:
        return group_norm(x, self.groups, self.weight, self.bias, eps=self.eps)
