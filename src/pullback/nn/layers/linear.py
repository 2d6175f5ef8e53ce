"""Linear layers: `Linear`, `Embedding`, and the four of `MultiHeadAttention`."""

from __future__ import annotations

import math
from typing import Any, final, overload

import numpy as np

from ...arrays.tensor import Tensor, tensor
from ...errors import ArgumentError
from ...ops.index.indexing import set_at
from .. import init
from ..attention.dot_product import multi_head_attention
from ..embeddings import embedding
from ..linear import linear
from ..module import Module
from ..spellings import accept_overloads
from .parameters import split_key, uniform_parameters


@final
class Linear(Module):
    """x W^T + b over the last axis; the weight has shape (outputs, inputs), as PyTorch's.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.Linear(2, 3, key=pb.random.key(0))(np.ones((5, 2), np.float32)).shape
    (5, 3)
    """

    @overload
    def __init__(self, inputs: int, outputs: int, bias: bool = ..., *, key: Any = ..., dtype: Any = ...) -> None: ...
    @overload
    def __init__(
        self, in_features: int, out_features: int, bias: bool = ..., *, key: Any = ..., dtype: Any = ...
    ) -> None: ...
    @accept_overloads
    def __init__(
        self, inputs: int, outputs: int, bias: bool = True, *, key: Any = None, dtype: Any = np.float32
    ) -> None:
        bound = 1 / math.sqrt(max(inputs, 1))
        self.weight, shift = uniform_parameters(bound, key, dtype, (outputs, inputs), (outputs,))
        self.bias = shift if bias else None

    def forward(self, x: Any) -> Tensor:
        return linear(x, self.weight, self.bias)


@final
class Embedding(Module):
    """A row of a table for each index. The row at `padding_idx` starts as zeros and gets no gradient.
    With `sparse=True` the gradient of the table is the rows that were looked up, for `pb.optim.SparseAdam`.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.Embedding(10, 4)(np.array([[1, 2], [3, 9]])).shape
    (2, 2, 4)
    """

    @overload
    def __init__(
        self,
        count: int,
        width: int,
        padding_idx: int | None = ...,
        *,
        sparse: bool = ...,
        key: Any = ...,
        dtype: Any = ...,
    ) -> None: ...
    @overload
    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = ...,
        *,
        sparse: bool = ...,
        key: Any = ...,
        dtype: Any = ...,
    ) -> None: ...
    @accept_overloads
    def __init__(
        self,
        count: int,
        width: int,
        padding_idx: int | None = None,
        *,
        sparse: bool = False,
        key: Any = None,
        dtype: Any = np.float32,
    ) -> None:
        table = init.normal((count, width), key=key, dtype=dtype)
        if padding_idx is not None:
            table = set_at(table, padding_idx, 0)
        self.weight = tensor(table, requires_grad=True)
        self.padding_idx = padding_idx
        self.sparse = sparse

    def forward(self, indices: Any) -> Tensor:
        return embedding(indices, self.weight, padding_idx=self.padding_idx, sparse=self.sparse)


@final
class MultiHeadAttention(Module):
    """Attention in several heads between four linear layers; without keys and values of their own, x attends to itself.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.MultiHeadAttention(8, 2)(np.ones((3, 5, 8), np.float32), is_causal=True).shape
    (3, 5, 8)
    """

    @overload
    def __init__(
        self, width: int, heads: int, *, kv_heads: int | None = ..., bias: bool = ..., key: Any = ..., dtype: Any = ...
    ) -> None: ...
    @overload
    def __init__(
        self, embed_dim: int, num_heads: int, *, kv_heads: int | None = ..., bias: bool = ..., key: Any = ...,
        dtype: Any = ...,
    ) -> None: ...  # fmt: skip
    @accept_overloads
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
        narrow = width // heads * self.kv_heads
        self.query, self.key, self.value, self.out = (
            Linear(width, outputs, bias=bias, key=k, dtype=dtype)
            for k, outputs in zip(split_key(key, 4), (width, narrow, narrow, width), strict=True)
        )

    def forward(self, x: Any, context: Any = None, **options: Any) -> Tensor:
        """`context` is what keys and values come from; options are those of `scaled_dot_product_attention`."""
        seen = x if context is None else context
        parts = self.query(x), self.key(seen), self.value(seen)
        return self.out(multi_head_attention(*parts, self.heads, kv_heads=self.kv_heads, **options))
