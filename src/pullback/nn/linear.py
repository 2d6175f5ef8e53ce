"""Linear and bilinear maps of the last axis."""

from __future__ import annotations

from typing import Any

from ..arrays.call_site import attributed_to_caller
from ..errors import ShapeError
from ..ops.contract.einsum import einsum
from ..ops.contract.matrix_products import matmul
from ..ops.dispatch import as_value, ndim, shape
from ..ops.elementwise.pointwise import add
from ..ops.fusion import fuse
from ..ops.shape import reshaping
from ..ops.signatures import of_mixed_arrays
from .arguments import as_floats


@of_mixed_arrays
@fuse(autocast="low")
@attributed_to_caller
def linear(x: Any, /, weight: Any, bias: Any = None) -> Any:
    """x @ weight.T + bias: the weight has one row for each feature that comes out.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.linear(np.array([1.0, 2.0]), np.array([[3.0, 4.0]]), np.array([0.5]))
    array([11.5])
    """
    x, weight = as_floats(x, "linear"), as_value(weight)
    if ndim(weight) not in (1, 2) or not ndim(x) or shape(x)[-1] != shape(weight)[-1]:
        raise ShapeError(
            f"linear: x of shape {shape(x)} does not match a weight of shape {shape(weight)}: the last axis of x must "
            f"have {shape(weight)[-1] if ndim(weight) else 'the'} elements, as that of the weight."
        )
    y = matmul(x, reshaping.matrix_transpose(weight) if ndim(weight) == 2 else weight)
    if bias is None:
        return y
    bias = as_value(bias)
    if shape(bias) not in ((), shape(weight)[:-1]):
        raise ShapeError(f"linear: bias of shape {shape(bias)} for a weight of shape {shape(weight)}.")
    return add(y, bias)


@of_mixed_arrays
@fuse(autocast="low")
@attributed_to_caller
def bilinear(x: Any, y: Any, /, weight: Any, bias: Any = None) -> Any:
    """out[..., o] = sum over i, j of x[..., i] weight[o, i, j] y[..., j], plus bias.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.bilinear(np.array([1.0, 2.0]), np.array([3.0]), np.array([[[1.0], [1.0]]]))
    array([9.])
    """
    x, y, weight = as_floats(x, "bilinear"), as_floats(y, "bilinear"), as_value(weight)
    if ndim(weight) != 3 or not ndim(x) or not ndim(y) or (shape(x)[-1], shape(y)[-1]) != shape(weight)[1:]:
        raise ShapeError(
            f"bilinear: shapes {shape(x)} and {shape(y)} do not match a weight (out, left, right) of {shape(weight)}."
        )
    out = einsum("...i,oij,...j->...o", x, weight, y)
    return out if bias is None else add(out, bias)
