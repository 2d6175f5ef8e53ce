"""Clipping the gradients that tensors hold, between `backward` and `step`."""

from __future__ import annotations

import math
from typing import Any

from ...arrays.spec import spec_of
from ...arrays.tensor import Tensor, wrap
from ...arrays.trees import flatten
from ...errors import ArgumentError, GraphError
from ...ops import linalg
from ...ops.elementwise import pointwise
from ...ops.functions import clip
from ...ops.fusion import cast_whole
from ...ops.reduce import reductions
from ...ops.shape.arrange import stack
from ...ops.shape.reshaping import astype, reshape
from ...settings import no_grad
from ...tape.row_sparse import RowSparse
from .parameter_groups import untracked_value

#: Added to the norm, as PyTorch does, so that a norm of zero divides.
_EPS = 1e-6


@cast_whole("promote")
def clip_grad_norm_(
    parameters: Any, max_norm: float, norm_type: Any = 2.0, error_if_nonfinite: bool = False
) -> Tensor:  # fmt: skip
    """Scale the gradients of these parameters so that their norm, all of them taken as one vector, is at most
    `max_norm`; the norm that they had is returned. `parameters` are tensors, a module, or a tree of tensors; those
    without a gradient are left out. As part of a rule: `pb.optim.clip_by_global_norm`.

    >>> import pullback as pb
    >>> w = pb.tensor([3.0, 4.0], requires_grad=True)
    >>> pb.sum(w * w / 2).backward()
    >>> pb.optim.clip_grad_norm_([w], max_norm=1.0)
    tensor(5., dtype=float64)
    >>> w.grad.numpy().round(4)
    array([0.6, 0.8])
    """
    norm_type = math.inf if norm_type == "inf" else norm_type  # as PyTorch spells it too
    if not max_norm > 0 or not norm_type > 0:
        raise ArgumentError(f"clip_grad_norm_: max_norm and norm_type are positive, got {max_norm} and {norm_type}.")
    tensors = _with_gradients(parameters, "clip_grad_norm_")
    with no_grad():
        numbers = [_take_numbers(p) for p in tensors]
        norms = [linalg.vector_norm(reshape(g, (-1,)), ord=norm_type) for g in numbers]
        total = linalg.vector_norm(stack([astype(n, norms[0].dtype) for n in norms]), ord=norm_type)
        if error_if_nonfinite and not math.isfinite(total.item()):
            raise GraphError(f"clip_grad_norm_: the norm of the gradients is {total.item()}.")
        factor = pointwise.minimum(max_norm / (total + _EPS), 1.0)
        for p, g in zip(tensors, numbers, strict=True):
            _put_numbers(p, g * astype(factor, reductions.sum(pointwise.abs(g)).dtype))
    found: Tensor = total
    return found


@cast_whole("promote")
def clip_grad_value_(parameters: Any, clip_value: float) -> None:
    """Bring every element of the gradients of these parameters between -clip_value and clip_value.

    >>> import pullback as pb
    >>> w = pb.tensor([3.0, -0.5], requires_grad=True)
    >>> pb.sum(w * w / 2).backward()
    >>> pb.optim.clip_grad_value_(w, 1.0)
    >>> w.grad
    tensor([ 1. , -0.5], dtype=float64)
    """
    with no_grad():
        for p in _with_gradients(parameters, "clip_grad_value_"):
            _put_numbers(p, clip(_take_numbers(p), -clip_value, clip_value))


def _take_numbers(p: Tensor) -> Any:
    """The numbers of a gradient; of a row-sparse one those of its rows, each of which is listed once from now on."""
    gradient: Any = p.grad
    if type(gradient) is not RowSparse:
        return gradient
    p.grad = gradient = gradient.coalesce()
    return wrap(gradient.values, spec_of(gradient.values))


def _put_numbers(p: Tensor, numbers: Tensor) -> None:
    gradient: Any = p.grad
    p.grad = gradient.with_values(untracked_value(numbers)) if type(gradient) is RowSparse else numbers


def _with_gradients(parameters: Any, what: str) -> list[Any]:
    given = parameters if not hasattr(parameters, "__next__") else list(parameters)
    tensors = [p for p in flatten(given)[0] if isinstance(p, Tensor) and p.grad is not None]
    if not tensors:
        raise GraphError(f"{what}: none of these has a gradient.\n  Call backward first, and give tensors or a module.")
    return tensors
