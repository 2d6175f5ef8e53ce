"""`TransformerEncoderLayer`: attention and a feed-forward network, each with a residual connection and a norm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, final, overload

import numpy as np

from ...arrays.spec import spec_of
from ...arrays.tensor import Tensor
from ...errors import ArgumentError
from ...ops import random
from ...ops.dispatch import as_value
from ...ops.elementwise.pointwise import logical_not, relu, where
from ...ops.shape.reshaping import expand_dims
from ...ops.shape.stack_split import swapaxes
from ..activations import gelu
from ..module import Module
from ..spellings import accept_overloads
from .containers import Dropout
from .linear import Linear, MultiHeadAttention
from .norm import LayerNorm
from .parameters import split_key

_ACTIVATIONS: dict[Any, Callable[..., Any]] = {"relu": relu, "gelu": gelu}


@final
class TransformerEncoderLayer(Module):
    """Attention of a sequence to itself, then two linear layers, each added to its input and normalized: after the sum,
    or before the sublayer with `norm_first`. As in PyTorch, the sequence is (length, batch, width) unless
    `batch_first`, and a boolean mask is True where attention is not allowed.

    >>> import numpy as np, pullback as pb
    >>> layer = pb.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    >>> layer.eval()(np.ones((3, 5, 8), np.float32)).shape
    (3, 5, 8)
    """

    takes_key: ClassVar[bool] = True

    @overload
    def __init__(
        self, width: int, heads: int, hidden: int = ..., dropout: float = ..., activation: Any = ..., eps: float = ...,
        batch_first: bool = ..., norm_first: bool = ..., bias: bool = ..., *, key: Any = ..., dtype: Any = ...,
    ) -> None: ...  # fmt: skip
    @overload
    def __init__(
        self, d_model: int, nhead: int, dim_feedforward: int = ..., dropout: float = ..., activation: Any = ...,
        layer_norm_eps: float = ..., batch_first: bool = ..., norm_first: bool = ..., bias: bool = ..., *,
        key: Any = ..., dtype: Any = ...,
    ) -> None: ...  # fmt: skip
    @accept_overloads
    def __init__(
        self,
        width: int,
        heads: int,
        hidden: int = 2048,
        dropout: float = 0.1,
        activation: Any = relu,
        eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        *,
        key: Any = None,
        dtype: Any = np.float32,
    ) -> None:
        if isinstance(activation, str) and activation not in _ACTIVATIONS:
            known = ", ".join(map(repr, _ACTIVATIONS))
            raise ArgumentError(f"TransformerEncoderLayer: activation is {known} or a function, got {activation!r}.")
        keys = split_key(key, 3)
        self.attention = MultiHeadAttention(width, heads, bias=bias, key=keys[0], dtype=dtype)
        self.linear1 = Linear(width, hidden, bias, key=keys[1], dtype=dtype)
        self.linear2 = Linear(hidden, width, bias, key=keys[2], dtype=dtype)
        self.norm1, self.norm2 = (LayerNorm(width, eps, bias=bias, dtype=dtype) for _ in range(2))
        self.dropout = Dropout(dropout)
        self.activation = _ACTIVATIONS[activation] if isinstance(activation, str) else activation
        self.batch_first, self.norm_first = batch_first, norm_first

    def forward(
        self,
        src: Any,
        src_mask: Any = None,
        src_key_padding_mask: Any = None,
        is_causal: bool = False,
        *,
        key: Any = None,
    ) -> Tensor:
        """The sequence of new vectors. `src_key_padding_mask`, of (batch, length), is True at keys to be ignored."""
        keys = [None] * 4 if key is None else random.split(key, 4)
        x = src if self.batch_first or len(spec_of(as_value(src)).shape) < 3 else swapaxes(src, 0, 1)
        options = {"mask": _join_masks(src_mask, src_key_padding_mask), "is_causal": is_causal}

        def attend(x: Any) -> Any:
            return self._drop(self.attention(x, dropout=self._rate(), key=keys[0], **options), keys[1])

        def transform(x: Any) -> Any:
            inner = self._drop(self.activation(self.linear1(x)), keys[2])
            return self._drop(self.linear2(inner), keys[3])

        if self.norm_first:
            x = x + attend(self.norm1(x))
            x = x + transform(self.norm2(x))
        else:
            x = self.norm1(x + attend(x))
            x = self.norm2(x + transform(x))
        return x if self.batch_first or len(spec_of(x).shape) < 3 else swapaxes(x, 0, 1)

    def _rate(self) -> float:
        return self.dropout.p if self.training else 0.0

    def _drop(self, x: Any, key: Any) -> Any:
        return self.dropout(x, key=key)


def _join_masks(mask: Any, padding: Any) -> Any:
    """The two masks of PyTorch as one of ours, which is True where attention is allowed, or added to the scores."""
    allowed = None if mask is None else _invert(mask)
    if padding is None:
        return allowed
    # (batch, keys) as (batch, heads, queries, keys)
    seen = expand_dims(_invert(padding), (1, 2))
    if allowed is None:
        return seen
    if spec_of(allowed).dtype.kind == "b" and spec_of(seen).dtype.kind == "b":
        return allowed & seen
    return _as_bias(allowed) + _as_bias(seen)


def _invert(mask: Any) -> Any:
    mask = as_value(mask)
    return logical_not(mask) if spec_of(mask).dtype.kind == "b" else mask


def _as_bias(mask: Any) -> Any:
    return where(mask, np.float32(0.0), np.float32(-np.inf)) if spec_of(mask).dtype.kind == "b" else mask
