"""Convolution layers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar, overload

import numpy as np

from ...arrays.tensor import Tensor
from ...errors import ArgumentError
from ..convolution import conv1d, conv2d, conv3d, conv_transpose1d, conv_transpose2d, conv_transpose3d
from ..geometry import per_axis
from ..module import Module
from ..spellings import accept_overloads
from .parameters import uniform_parameters


class _Convolution(Module):
    """The common part of the three; `function` computes the convolution, `axes` is its number of spatial axes."""

    function: ClassVar[Callable[..., Any]]
    axes: ClassVar[int]

    @overload
    def __init__(
        self, inputs: int, outputs: int, window: Any, stride: Any = ..., padding: Any = ...,
        dilation: Any = ..., groups: int = ..., bias: bool = ..., mode: str = ..., *,
        key: Any = ..., dtype: Any = ...,
    ) -> None: ...  # fmt: skip
    @overload
    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = ..., padding: Any = ...,
        dilation: Any = ..., groups: int = ..., bias: bool = ..., padding_mode: str = ..., *,
        key: Any = ..., dtype: Any = ...,
    ) -> None: ...  # fmt: skip
    @accept_overloads
    def __init__(
        self,
        inputs: int,
        outputs: int,
        window: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        mode: str = "zeros",
        *,
        key: Any = None,
        dtype: Any = np.float32,
    ) -> None:
        _check_groups(self, inputs, outputs, groups)
        shape = (outputs, inputs // groups, *per_axis(window, self.axes, f"{type(self).__name__}: window"))
        bound = 1 / math.sqrt(max(math.prod(shape[1:]), 1))
        self.weight, shift = uniform_parameters(bound, key, dtype, shape, (outputs,))
        self.bias = shift if bias else None
        self.stride, self.padding, self.dilation, self.groups, self.mode = stride, padding, dilation, groups, mode

    def forward(self, x: Any) -> Tensor:
        settings = self.stride, self.padding, self.dilation, self.groups
        return type(self).function(x, self.weight, self.bias, *settings, mode=self.mode)


def _check_groups(layer: Module, inputs: int, outputs: int, groups: int) -> None:
    if groups < 1 or inputs % groups or outputs % groups:
        name = type(layer).__name__
        raise ArgumentError(f"{name}: {inputs} and {outputs} channels cannot be split into {groups} groups.")


class Conv1d(_Convolution, init=False):
    """`conv1d` with a weight and a bias of its own.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.Conv1d(3, 8, 5, padding="same")(np.ones((2, 3, 10), np.float32)).shape
    (2, 8, 10)
    """

    function: ClassVar[Callable[..., Any]] = staticmethod(conv1d)
    axes: ClassVar[int] = 1


class Conv2d(_Convolution, init=False):
    """`conv2d` with a weight and a bias of its own.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.Conv2d(3, 8, 3, stride=2)(np.ones((2, 3, 9, 9), np.float32)).shape
    (2, 8, 4, 4)
    """

    function: ClassVar[Callable[..., Any]] = staticmethod(conv2d)
    axes: ClassVar[int] = 2


class Conv3d(_Convolution, init=False):
    """`conv3d` with a weight and a bias of its own.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.Conv3d(1, 2, (1, 3, 3))(np.ones((1, 1, 4, 5, 5), np.float32)).shape
    (1, 2, 4, 3, 3)
    """

    function: ClassVar[Callable[..., Any]] = staticmethod(conv3d)
    axes: ClassVar[int] = 3


class _TransposedConvolution(Module):
    """The common part of the three; `function` computes the transposed convolution, `axes` is its number of axes."""

    function: ClassVar[Callable[..., Any]]
    axes: ClassVar[int]

    @overload
    def __init__(
        self, inputs: int, outputs: int, window: Any, stride: Any = ..., padding: Any = ...,
        output_padding: Any = ..., groups: int = ..., bias: bool = ..., dilation: Any = ..., *,
        key: Any = ..., dtype: Any = ...,
    ) -> None: ...  # fmt: skip
    @overload
    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = ..., padding: Any = ...,
        output_padding: Any = ..., groups: int = ..., bias: bool = ..., dilation: Any = ..., *,
        key: Any = ..., dtype: Any = ...,
    ) -> None: ...  # fmt: skip
    @accept_overloads
    def __init__(
        self,
        inputs: int,
        outputs: int,
        window: Any,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Any = 1,
        *,
        key: Any = None,
        dtype: Any = np.float32,
    ) -> None:
        _check_groups(self, inputs, outputs, groups)
        shape = (inputs, outputs // groups, *per_axis(window, self.axes, f"{type(self).__name__}: window"))
        bound = 1 / math.sqrt(max(math.prod(shape[1:]), 1))
        self.weight, shift = uniform_parameters(bound, key, dtype, shape, (outputs,))
        self.bias = shift if bias else None
        self.stride, self.padding, self.output_padding = stride, padding, output_padding
        self.groups, self.dilation = groups, dilation

    def forward(self, x: Any) -> Tensor:
        settings = self.stride, self.padding, self.output_padding, self.groups, self.dilation
        return type(self).function(x, self.weight, self.bias, *settings)


class ConvTranspose1d(_TransposedConvolution, init=False):
    """`conv_transpose1d` with a weight and a bias of its own.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.ConvTranspose1d(3, 8, 2, stride=2)(np.ones((2, 3, 5), np.float32)).shape
    (2, 8, 10)
    """

    function: ClassVar[Callable[..., Any]] = staticmethod(conv_transpose1d)
    axes: ClassVar[int] = 1


class ConvTranspose2d(_TransposedConvolution, init=False):
    """`conv_transpose2d` with a weight and a bias of its own.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.ConvTranspose2d(3, 8, 2, stride=2)(np.ones((2, 3, 5, 5), np.float32)).shape
    (2, 8, 10, 10)
    """

    function: ClassVar[Callable[..., Any]] = staticmethod(conv_transpose2d)
    axes: ClassVar[int] = 2


class ConvTranspose3d(_TransposedConvolution, init=False):
    """`conv_transpose3d` with a weight and a bias of its own.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.ConvTranspose3d(3, 8, 2, stride=2)(np.ones((1, 3, 2, 2, 2), np.float32)).shape
    (1, 8, 4, 4, 4)
    """

    function: ClassVar[Callable[..., Any]] = staticmethod(conv_transpose3d)
    axes: ClassVar[int] = 3
