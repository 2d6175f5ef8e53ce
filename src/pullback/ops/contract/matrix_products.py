"""Matrix products: `matmul` as an op, and the composites over it (tensordot, outer)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...arrays.call_site import attributed_to_caller
from ...arrays.spec import Spec, make_spec
from ...arrays.tensor import Tensor
from ...errors import ArgumentError, ShapeError
from .. import batching
from ..axes import as_integer, axes_tuple
from ..dispatch import apply, as_value, ndim, shape
from ..elementwise import pointwise
from ..families import broadcast_shape, common_device, conjugate_if_complex, contraction, result_dtype
from ..forms import Contract
from ..lazy import lazy_function
from ..remember import JoinedOutcomes
from ..shape import reshaping
from ..signatures import of_two_arrays
from ..statics import LETTERS
from .einsum import contract_operands
from .multiply import multiply_matrices, multiply_on_gpu

_bind_product = lazy_function("cuda.products.eager", "bind_product", "compile")


def _matmul_spec(x: Spec, y: Spec) -> Spec:
    if min(x.ndim, y.ndim) < 2:
        raise ShapeError(f"matmul: wants matrices, got shapes {x.shape} and {y.shape}.")
    if x.shape[-1] != y.shape[-2]:
        raise ShapeError(
            f"matmul: shapes {x.shape} and {y.shape} differ in the axis to sum over ({x.shape[-1]} and {y.shape[-2]})."
        )
    batch = broadcast_shape("matmul", x.shape[:-2], y.shape[:-2])
    return make_spec((*batch, x.shape[-2], y.shape[-1]), result_dtype((x, y)), common_device("matmul", (x, y)))


def _matmul_equation(specs: Sequence[Spec], static: dict[str, Any]) -> tuple[tuple[str, ...], str]:
    """Batch axes by letters counted from the right, since they broadcast; the last three are row, sum and column."""
    x, y = (LETTERS[: s.ndim - 2][::-1] for s in specs)
    return (x + "XY", y + "YZ"), max(x, y, key=len) + "XZ"


def adjoint(x: Any) -> Any:
    """The conjugate transpose over the last two axes."""
    return conjugate_if_complex(reshaping.swap_last_axes(x))


def _multiply_matrices(x: Any, y: Any) -> Any:
    """A product of two matrices by `dot`, which saves half of NumPy's overhead but copies what has gaps."""
    return x.dot(y) if x.flags.forc and y.flags.forc else np.matmul(x, y)


def _matmul_value(xp: Any, x: Any, y: Any) -> Any:
    if xp is np and x.ndim == 2 == y.ndim and x.dtype is y.dtype and x.dtype.char in "fd":
        return _multiply_matrices(x, y)
    return multiply_matrices(xp, x, y)


def _pull_matmul_right(bar: Any, x: Any, y_spec: Spec) -> Any:
    """x^H bar; where one matrix was multiplied with many, the product itself sums over them."""
    if y_spec.ndim == 2 < ndim(x):
        bar = reshaping.broadcast_to(bar, (*shape(x)[:-1], shape(bar)[-1]))
        x, bar = (reshaping.reshape(z, (math.prod(shape(z)[:-1]), shape(z)[-1])) for z in (x, bar))
    return matmul(adjoint(x), bar)


def _matmul_samples(rng: Any) -> Any:
    shapes = (((2, 3), (3, 4)), ((5, 2, 3), (3, 1)), ((2, 2), (4, 2, 2)), ((2, 1, 2, 3), (3, 3, 2)), ((2, 0), (0, 3)))
    return [((rng.normal(size=a), rng.normal(size=b)), {}) for a, b in shapes]


matmul_op = contraction(
    "matmul",
    value=_matmul_value,
    spec=_matmul_spec,
    pull={"x": lambda bar, y: matmul(bar, adjoint(y)), "y": _pull_matmul_right},
    batch=batching.batch_stacks,
    samples=_matmul_samples,
    form=Contract(_matmul_equation),
    direct=lambda x, y: (
        _multiply_matrices if x.ndim == 2 == y.ndim and x.dtype is y.dtype and x.dtype.char in "fd" else None
    ),
    on_gpu=lambda x, y, views=(None, None): _bind_product((x, y), views),
    narrow=multiply_on_gpu,
)


def _matvec_spec(x: Spec, y: Spec) -> Spec:
    if y.ndim != 1 or x.shape[-1] != y.shape[0]:
        raise ShapeError(f"matmul: shapes {x.shape} and {y.shape} differ in the axis to sum over.")
    return make_spec(x.shape[:-1], result_dtype((x, y)), common_device("matmul", (x, y)))


def _pull_matvec_matrix(bar: Any, y: Any) -> Any:
    column = reshaping.reshape(bar, (*shape(bar), 1))
    return pointwise.multiply(column, conjugate_if_complex(y))


def _pull_matvec_vector(bar: Any, x: Any) -> Any:
    if ndim(x) > 2:
        rows = math.prod(shape(x)[:-1])
        x, bar = reshaping.reshape(x, (rows, shape(x)[-1])), reshaping.reshape(bar, (rows,))
    return apply(_matvec, adjoint(x), bar)


def _batch_matvec(op: Any, size: int, args: Any, axes: Any, static: Any) -> tuple[Any, int]:
    (x, y), (x_axis, y_axis) = args, axes
    if y_axis is None:
        return apply(op, batching.move_batch_first(x, x_axis), y), 0
    y = batching.move_batch_first(y, y_axis)
    if x_axis is None and ndim(x) == 2:
        return apply(matmul_op, y, reshaping.swap_last_axes(x)), 0  # all vectors in one product
    rank = ndim(x) - (x_axis is not None)
    columns = reshaping.reshape(y, (size, *(1,) * (rank - 2), shape(y)[1], 1))
    out = apply(matmul_op, batching.move_batch_first(x, x_axis), columns)
    return reshaping.reshape(out, shape(out)[:-1]), 0


def _matvec_equation(specs: Sequence[Spec], static: dict[str, Any]) -> tuple[tuple[str, ...], str]:
    letters = LETTERS[: specs[0].ndim]
    return (letters, letters[-1]), letters[:-1]


def _matvec_samples(rng: Any) -> Any:
    shapes = (((2, 3), (3,)), ((5, 2, 3), (3,)), ((2, 0), (0,)), ((0, 2), (2,)), ((2, 3, 0), (0,)))
    return [((rng.normal(size=a), rng.normal(size=b)), {}) for a, b in shapes]


# The product of matrices with one vector.
_matvec = contraction(
    "matvec",
    value=lambda xp, x, y: xp.matmul(x, y),
    spec=_matvec_spec,
    pull={"x": _pull_matvec_matrix, "y": _pull_matvec_vector},
    batch=_batch_matvec,
    samples=_matvec_samples,
    form=Contract(_matvec_equation),
)


@of_two_arrays
def matmul(x: Any, y: Any, /) -> Any:
    """The matrix product; a vector on the left is a row, on the right a column, other axes broadcast.

    >>> import numpy as np, pullback as pb
    >>> pb.matmul(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([1.0, 1.0]))
    array([3., 7.])
    """
    if type(x) is Tensor and type(y) is Tensor and (run := _product_outcomes.find_pair(x, y)) is not None:
        return run(x, y)
    return _matmul_general((x, y))


def _matmul_general(arrays: Sequence[Any]) -> Any:
    x, y = map(as_value, arrays)
    ranks = ndim(x), ndim(y)
    if min(ranks) > 1:
        return apply(matmul_op, x, y)
    if not min(ranks):
        raise ShapeError(
            f"matmul: wants arrays of one axis or more, got shapes {shape(x)} and {shape(y)}.\n  Use * for numbers."
        )
    row, column = ranks[0] == 1, ranks[1] == 1
    if column and not row:
        return apply(_matvec, x, y)
    if shape(x)[-1] != shape(y)[0 if column else -2]:
        raise ShapeError(f"matmul: shapes {shape(x)} and {shape(y)} differ in the axis to sum over.")
    out = apply(matmul_op, reshaping.expand_dims(x, 0) if row else x, reshaping.expand_dims(y, 1) if column else y)
    added_axes = ((-2,) if row else ()) + ((-1,) if column else ())
    return reshaping.squeeze(out, added_axes)


_product_outcomes = JoinedOutcomes(_matmul_general)


@of_two_arrays
@attributed_to_caller
def tensordot(x: Any, y: Any, /, axes: Any = 2) -> Any:
    """The sum of products over pairs of axes: the last `axes` of x with the first of y, or two lists of axes.

    >>> import numpy as np, pullback as pb
    >>> pb.tensordot(np.ones((2, 3)), np.ones((3, 4)), axes=1).shape
    (2, 4)
    """
    x, y = as_value(x), as_value(y)
    if isinstance(axes, (tuple, list)):
        of_x, of_y = axes
    else:
        n = as_integer(axes, "tensordot: axes")
        if not 0 <= n <= min(ndim(x), ndim(y)):
            raise ArgumentError(f"tensordot: axes {n} is more than shapes {shape(x)} and {shape(y)} have.")
        of_x, of_y = tuple(range(ndim(x) - n, ndim(x))), tuple(range(n))
    of_x, of_y = axes_tuple(of_x, ndim(x), "tensordot"), axes_tuple(of_y, ndim(y), "tensordot")
    if [shape(x)[a] for a in of_x] != [shape(y)[a] for a in of_y]:
        raise ShapeError(f"tensordot: shapes {shape(x)} and {shape(y)} differ in the axes to sum over.")
    letters = iter(LETTERS)
    names_x = [next(letters) for _ in shape(x)]
    names_y = [names_x[of_x[of_y.index(i)]] if i in of_y else next(letters) for i in range(ndim(y))]
    kept = [n for i, n in enumerate(names_x) if i not in of_x] + [n for i, n in enumerate(names_y) if i not in of_y]
    return contract_operands([x, y], ["".join(names_x), "".join(names_y)], "".join(kept))


@of_two_arrays
@attributed_to_caller
def outer(x: Any, y: Any, /) -> Any:
    """The product of each element of x with each of y, both flattened.

    >>> import numpy as np, pullback as pb
    >>> pb.outer(np.array([1, 2]), np.array([3, 4]))
    array([[3, 4],
           [6, 8]])
    """
    return pointwise.multiply(reshaping.reshape(as_value(x), (-1, 1)), reshaping.reshape(as_value(y), (1, -1)))
