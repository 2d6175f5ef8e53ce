"""Recurrent layers: LSTM, GRU and RNN, stacked, in one direction or bidirectional."""

from __future__ import annotations

import math
from typing import Any, ClassVar, overload

import numpy as np

from ...arrays.tensor import Tensor
from ...errors import ArgumentError
from ...ops.shape.arrange import concat
from ...ops.shape.stack_split import swapaxes
from ..module import Module
from ..recurrent import gru, lstm, rnn
from ..spellings import accept_overloads
from .parameters import uniform_parameters


class _Recurrent(Module):
    """Layers over a sequence (steps, ..., features), or (batch, steps, ...) if `batch_first`, each over the output of
    the one before. `function` computes one layer in one direction, `gates` is the number of its gates.
    """

    function: ClassVar[Any]
    gates: ClassVar[int]

    @overload
    def __init__(
        self, inputs: int, hidden: int, layers: int = ..., bias: bool = ..., batch_first: bool = ..., *,
        bidirectional: bool = ..., key: Any = ..., dtype: Any = ...,
    ) -> None: ...  # fmt: skip
    @overload
    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = ..., bias: bool = ..., batch_first: bool = ..., *,
        bidirectional: bool = ..., key: Any = ..., dtype: Any = ...,
    ) -> None: ...  # fmt: skip
    @accept_overloads
    def __init__(
        self, inputs: int, hidden: int, layers: int = 1, bias: bool = True, batch_first: bool = False, *,
        bidirectional: bool = False, key: Any = None, dtype: Any = np.float32,
    ) -> None:  # fmt: skip
        if layers < 1:
            raise ArgumentError(f"{type(self).__name__}: wants at least one layer, got {layers}.")
        self.hidden, self.layers, self.bidirectional, self.batch_first = hidden, layers, bidirectional, batch_first
        bound, directions = 1 / math.sqrt(max(hidden, 1)), 2 if bidirectional else 1
        rows, count = self.gates * hidden, 4 if bias else 2
        shapes: list[tuple[int, ...]] = []
        for number in range(layers * directions):
            width = inputs if number < directions else hidden * directions
            shapes += [(rows, width), (rows, hidden), (rows,), (rows,)][:count]
        drawn = uniform_parameters(bound, key, dtype, *shapes)
        self.weights = [drawn[i : i + count] for i in range(0, len(drawn), count)]

    def forward(self, x: Any, states: Any = None, *, lengths: Any = None) -> tuple[Tensor, list[Any]]:
        """The last layer's h of all steps, and the last state of each layer and direction. `states` is such a list."""
        directions = 2 if self.bidirectional else 1
        count = self.layers * directions
        if states is not None and len(states) != count:
            raise ArgumentError(f"{type(self).__name__}: wants {count} states, got {len(states)}.")
        x = swapaxes(x, 0, 1) if self.batch_first else x
        last: list[Any] = []
        for number in range(self.layers):
            found = []
            for direction in range(directions):
                at = number * directions + direction
                state = None if states is None else states[at]
                options = {"state": state, "lengths": lengths, "reverse": direction == 1}
                hs, end = type(self).function(x, *self.weights[at], **options)
                found.append(hs)
                last.append(end)
            x = found[0] if directions == 1 else concat(found, axis=-1)
        return swapaxes(x, 0, 1) if self.batch_first else x, last


class LSTM(_Recurrent, init=False):
    """`lstm` in layers; states are pairs (h, c).

    >>> import numpy as np, pullback as pb
    >>> hs, states = pb.nn.LSTM(3, 4, layers=2)(np.ones((5, 2, 3), np.float32))
    >>> hs.shape, len(states)
    ((5, 2, 4), 2)
    """

    function: ClassVar[Any] = staticmethod(lstm)
    gates: ClassVar[int] = 4


class GRU(_Recurrent, init=False):
    """`gru` in layers.

    >>> import numpy as np, pullback as pb
    >>> hs, states = pb.nn.GRU(3, 4, bidirectional=True)(np.ones((5, 2, 3), np.float32))
    >>> hs.shape, len(states)
    ((5, 2, 8), 2)
    """

    function: ClassVar[Any] = staticmethod(gru)
    gates: ClassVar[int] = 3


class RNN(_Recurrent, init=False):
    """`rnn` with tanh, in layers.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.RNN(3, 4)(np.ones((5, 3), np.float32))[0].shape
    (5, 4)
    """

    function: ClassVar[Any] = staticmethod(rnn)
    gates: ClassVar[int] = 1
