"""Sizes in, modules out: recurrent networks of several layers, in one direction or in both."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from ..arrays.tensor import tensor
from ..errors import ArgumentError
from ..ops import random
from ..ops.arranging import concat
from ..ops.random.keys import next_key
from . import init
from .module import Module
from .recurrent import gru, lstm, rnn

__all__ = ["GRU", "LSTM", "RNN"]


class _Recurrent(Module):
    """Layers over a sequence (steps, ..., features), each over what the one before it answers. `run` is the function of
    one layer in one direction, `gates` the number of its gates.
    """

    run: ClassVar[Any]
    gates: ClassVar[int]

    def __init__(
        self, inputs: int, hidden: int, *, layers: int = 1, both_ways: bool = False, bias: bool = True,
        key: Any = None, dtype: Any = np.float32,
    ) -> None:  # fmt: skip
        if layers < 1:
            raise ArgumentError(f"{type(self).__name__}: wants at least one layer, got {layers}.")
        self.hidden, self.layers, self.both_ways = hidden, layers, both_ways
        bound, ways = 1 / math.sqrt(max(hidden, 1)), 2 if both_ways else 1
        keys = iter(random.split(next_key() if key is None else key, 4 * layers * ways))
        rows = self.gates * hidden
        self.weights = []
        for number in range(layers):
            width = inputs if number == 0 else hidden * ways
            for _ in range(ways):
                shapes = [(rows, width), (rows, hidden), *([(rows,), (rows,)] if bias else [])]
                drawn = [init.uniform(s, -bound, bound, key=next(keys), dtype=dtype) for s in shapes]
                self.weights.append([tensor(a, requires_grad=True) for a in drawn])

    def forward(self, x: Any, states: Any = None, *, lengths: Any = None) -> tuple[Any, list[Any]]:
        """The last layer's h of all steps, and the last state of each layer and direction. `states` is such a list."""
        ways = 2 if self.both_ways else 1
        count = self.layers * ways
        if states is not None and len(states) != count:
            raise ArgumentError(f"{type(self).__name__}: wants {count} states, got {len(states)}.")
        last: list[Any] = []
        for number in range(self.layers):
            found = []
            for way in range(ways):
                at = number * ways + way
                state = None if states is None else states[at]
                hs, end = type(self).run(x, *self.weights[at], state=state, lengths=lengths, reverse=way == 1)
                found.append(hs)
                last.append(end)
            x = found[0] if ways == 1 else concat(found, axis=-1)
        return x, last


class LSTM(_Recurrent):
    """`lstm` in layers; states are pairs (h, c).

    >>> import numpy as np, pullback as pb
    >>> hs, states = pb.nn.LSTM(3, 4, layers=2)(np.ones((5, 2, 3), np.float32))
    >>> hs.shape, len(states)
    ((5, 2, 4), 2)
    """

    run: ClassVar[Any] = staticmethod(lstm)
    gates: ClassVar[int] = 4


class GRU(_Recurrent):
    """`gru` in layers.

    >>> import numpy as np, pullback as pb
    >>> hs, states = pb.nn.GRU(3, 4, both_ways=True)(np.ones((5, 2, 3), np.float32))
    >>> hs.shape, len(states)
    ((5, 2, 8), 2)
    """

    run: ClassVar[Any] = staticmethod(gru)
    gates: ClassVar[int] = 3


class RNN(_Recurrent):
    """`rnn` with tanh, in layers.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.RNN(3, 4)(np.ones((5, 3), np.float32))[0].shape
    (5, 4)
    """

    run: ClassVar[Any] = staticmethod(rnn)
    gates: ClassVar[int] = 1
