"""Layers: linear, embedding, norms, dropout, attention, and `Sequential`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar, final

import numpy as np

from ...errors import ArgumentError
from ...ops import random
from .. import init
from ..attention.dot_product import multi_head_attention
from ..dropout import dropout
from ..embeddings import embedding, linear
from ..module import Module
from ..norm.standardize import layer_norm, rms_norm
from .parameters import make_parameter, split_key


@final
class Linear(Module):
    """x W^T + b over the last axis; the weight has shape (outputs, inputs), as PyTorch's.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.Linear(2, 3, key=pb.random.key(0))(np.ones((5, 2), np.float32)).shape
    (5, 3)
    """

    def __init__(
        self, inputs: int, outputs: int, *, bias: bool = True, key: Any = None, dtype: Any = np.float32
    ) -> None:
        bound = 1 / math.sqrt(max(inputs, 1))
        of_weight, of_bias = split_key(key, 2)
        self.weight = make_parameter(init.uniform((outputs, inputs), -bound, bound, key=of_weight, dtype=dtype))
        self.bias = make_parameter(init.uniform((outputs,), -bound, bound, key=of_bias, dtype=dtype)) if bias else None

    def forward(self, x: Any) -> Any:
        return linear(x, self.weight, self.bias)


@final
class Embedding(Module):
    """A row of a table for each index.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.Embedding(10, 4)(np.array([[1, 2], [3, 9]])).shape
    (2, 2, 4)
    """

    def __init__(self, count: int, width: int, *, key: Any = None, dtype: Any = np.float32) -> None:
        self.weight = make_parameter(init.normal((count, width), key=key, dtype=dtype))

    def forward(self, indices: Any) -> Any:
        return embedding(indices, self.weight)


@final
class LayerNorm(Module):
    """Mean 0 and variance 1 over the last axis, then times a weight plus a bias.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.LayerNorm(2)(np.array([1.0, 3.0], np.float32)).tolist()
    [-0.9999949932098389, 0.9999949932098389]
    """

    def __init__(self, width: int, *, bias: bool = True, eps: float = 1e-5, dtype: Any = np.float32) -> None:
        self.weight = make_parameter(np.ones(width, dtype))
        self.bias = make_parameter(np.zeros(width, dtype)) if bias else None
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
        self.weight = make_parameter(np.ones(width, dtype))
        self.eps = eps

    def forward(self, x: Any) -> Any:
        return rms_norm(x, self.weight, eps=self.eps)


@final
class Dropout(Module):
    """Each element zero with probability p, else over 1 - p; x itself after `eval()`. Without a key the default
    generator draws; a compiled function would draw once for all calls, so there the key must be given.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.Dropout(0.5)(np.ones(4), key=pb.random.key(1)).tolist()
    [2.0, 2.0, 2.0, 0.0]
    """

    takes_key: ClassVar[bool] = True

    def __init__(self, p: float = 0.5) -> None:
        if not 0 <= p < 1:
            raise ArgumentError(f"Dropout: p is a probability in [0, 1), got {p}.")
        self.p = p

    def forward(self, x: Any, *, key: Any = None) -> Any:
        return dropout(x, self.p, training=self.training, key=key)


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

    def forward(self, x: Any, *, key: Any = None) -> Any:
        for number, layer in enumerate(self._layers()):
            if key is not None and getattr(layer, "takes_key", False):
                x = layer(x, key=random.fold_in(key, number))
            else:
                x = layer(x)
        return x


@final
class MultiHeadAttention(Module):
    """Attention in several heads between four linear layers; without keys and values of their own, x attends to itself.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.MultiHeadAttention(8, 2)(np.ones((3, 5, 8), np.float32), is_causal=True).shape
    (3, 5, 8)
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        kv_heads: int | None = None,
        bias: bool = True,
        key: Any = None,
        dtype: Any = np.float32,
    ) -> None:
        if width % heads:
            raise ArgumentError(f"MultiHeadAttention: a width of {width} cannot be split into {heads} heads.")
        self.heads, self.kv_heads = heads, heads if kv_heads is None else kv_heads
        keys = split_key(key, 4)
        narrow = width // heads * self.kv_heads
        self.query = Linear(width, width, bias=bias, key=keys[0], dtype=dtype)
        self.key = Linear(width, narrow, bias=bias, key=keys[1], dtype=dtype)
        self.value = Linear(width, narrow, bias=bias, key=keys[2], dtype=dtype)
        self.out = Linear(width, width, bias=bias, key=keys[3], dtype=dtype)

    def forward(self, x: Any, context: Any = None, **options: Any) -> Any:
        """`context` is what keys and values come from; options are those of `scaled_dot_product_attention`."""
        seen = x if context is None else context
        parts = self.query(x), self.key(seen), self.value(seen)
        return self.out(multi_head_attention(*parts, self.heads, kv_heads=self.kv_heads, **options))
