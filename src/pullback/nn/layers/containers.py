"""`Sequential`, and the layer of it that draws: `Dropout`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, TypeVar, final, overload

from ...arrays.tensor import Tensor
from ...errors import ArgumentError
from ...ops import random
from ..dropout import dropout
from ..module import Module
from ..spellings import accept_overloads

A = TypeVar("A")


@final
class Identity(Module):
    """The input as it is. Arguments of the constructor are ignored, as in PyTorch.

    >>> import pullback as pb
    >>> pb.nn.Identity()(3.0)
    3.0
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def forward(self, x: A) -> A:
        return x


@final
class Dropout(Module):
    """Each element zero with probability p, else over 1 - p; x itself after `eval()`. Without a key the default
    generator draws; a compiled function would draw once for all calls, so there the key must be given.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.Dropout(0.5)(np.ones(4), key=pb.random.key(1)).tolist()
    [2.0, 2.0, 2.0, 0.0]
    """

    takes_key: ClassVar[bool] = True

    @overload
    def __init__(self, p: float = ...) -> None: ...
    @overload
    def __init__(self, p: float = ..., *, inplace: bool) -> None: ...
    @accept_overloads
    def __init__(self, p: float = 0.5) -> None:
        if not 0 <= p < 1:
            raise ArgumentError(f"Dropout: p is a probability in [0, 1), got {p}.")
        self.p = p

    def forward(self, x: A, *, key: Any = None) -> A:
        return dropout(x, self.p, training=self.training, key=key)  # type: ignore[call-overload]


@final
class Sequential(Module):
    """Modules and functions one after the other. A `key` is split among those that draw.

    >>> import numpy as np, pullback as pb
    >>> net = pb.nn.Sequential(pb.nn.Linear(2, 8), pb.tanh, pb.nn.Linear(8, 1))
    >>> net(np.ones((3, 2))).shape, len(net), type(net[0]).__name__
    ((3, 1), 3, 'Linear')
    """

    takes_key: ClassVar[bool] = True

    def __init__(self, *layers: Callable[..., Any]) -> None:
        for number, layer in enumerate(layers):
            if not callable(layer):
                raise ArgumentError(
                    f"Sequential: layer {number} is a {type(layer).__name__}, wanted a module or function."
                )
            setattr(self, str(number), layer)

    def _layers(self) -> list[Callable[..., Any]]:
        return [layer for name, layer in vars(self).items() if name.isdecimal()]

    def __len__(self) -> int:
        return len(self._layers())

    def __getitem__(self, number: int) -> Callable[..., Any]:
        return self._layers()[number]

    def forward(self, x: Any, *, key: Any = None) -> Tensor:
        for number, layer in enumerate(self._layers()):
            if key is not None and getattr(layer, "takes_key", False):
                x = layer(x, key=random.fold_in(key, number))
            else:
                x = layer(x)
        return x
