"""Numbers of eight bits with a scale: quantization, and products of quantized matrices."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..arrays.call_site import attributed_to_caller
from ..arrays.dtypes import FLOAT8_LARGEST, as_dtype
from ..arrays.spec import FLOAT8_CODES, spec_of
from ..errors import ArgumentTypeError, DtypeError, ShapeError
from ..ops.contract.matrix_products import matmul
from ..ops.dispatch import as_value, ndim, shape
from ..ops.elementwise.pointwise import abs as size_of
from ..ops.elementwise.pointwise import divide, greater, isfinite, maximum, multiply, where
from ..ops.fusion import cast_whole
from ..ops.reduce import reductions
from ..ops.reduce.reductions import as_constant
from ..ops.shape.reshaping import astype

#: By smaller numbers a division would lose digits.
_LEAST_SCALE = float(np.finfo(np.float32).tiny)


class Quantized(NamedTuple):
    """Numbers of eight bits and what they are multiplied by: `data * scale` is the value they stand for. A tree, so it
    goes through `pb.jit`, `pb.save` and transforms.

    >>> import numpy as np, pullback as pb
    >>> q = pb.amp.quantize(np.array([0.5, -2.0], "float32"))
    >>> q.dequantize()
    array([ 0.5, -2. ], dtype=float32)
    """

    data: Any
    scale: Any

    def dequantize(self, dtype: Any = None) -> Any:
        """`data * scale`, computed in float32; its derivative is that of the product with a constant scale."""
        wide = multiply(astype(self.data, np.float32), self.scale)
        return wide if dtype is None else astype(wide, dtype)


@attributed_to_caller
def quantize(x: Any, /, dtype: Any = "float8_e4m3fn", *, axis: Any = None) -> Quantized:
    """x in eight bits, "float8_e4m3fn" (three bits of fraction, up to 448) or "float8_e5m2" (two, up to 57344), with
    the scale that makes its largest element the largest number of the dtype: one for all, or with `axis` one for each
    row along it.

    Nothing is saturated; what `x.astype(pb.float8_e4m3fn)` finds too large becomes the largest number. NaN and infinity
    become NaN, and leave the others as they are. The gradient passes the rounding unchanged, and the scale counts as a
    constant. Cotangents of eight-bit values are kept in float32.

    >>> import numpy as np, pullback as pb
    >>> x = np.array([[1.0, 2.0], [100.0, 300.0]], "float32")
    >>> pb.amp.quantize(x, axis=-1).scale.shape
    (2, 1)
    >>> pb.grad(lambda x: pb.sum(pb.amp.quantize(x).dequantize() * 3.0))(x)
    array([[3., 3.],
           [3., 3.]], dtype=float32)
    """
    x, wanted = as_value(x), as_dtype(dtype)
    if wanted.char not in FLOAT8_CODES:
        raise DtypeError(f"quantize: dtype is float8_e4m3fn or float8_e5m2, got {wanted}.")
    if not spec_of(x).inexact or spec_of(x).dtype.kind == "c":
        raise DtypeError(f"quantize: wants real floating-point numbers, got {spec_of(x).dtype}.")
    wide = astype(x, np.float32)
    finite = isfinite(as_constant(wide))
    sizes = where(finite, size_of(as_constant(wide)), 0.0)
    largest = reductions.max(sizes, axis=axis, keepdims=axis is not None, initial=0.0)
    scale = maximum(divide(largest, FLOAT8_LARGEST[wanted.name]), _LEAST_SCALE)
    scale = where(greater(largest, 0), scale, 1.0)
    return Quantized(astype(where(finite, divide(wide, scale), np.nan), wanted), scale)


@cast_whole("promote")
@attributed_to_caller
def scaled_matmul(a: Quantized, b: Quantized, /, *, out_dtype: Any = "float32") -> Any:
    """The matrix product of two quantized arrays: of their data, added up in float32, times both scales. Each scale is
    one number, or one for each row of `a` and each column of `b`: `quantize(a, axis=-1)`, `quantize(b, axis=-2)`.

    In functions that `pb.jit` compiles for a GPU that has such products (compute capability 8.9 and later) large
    matrices whose sizes are multiples of 16 are multiplied as they are, with sums of about 14 bits, as the hardware has
    them; elsewhere the data is widened first. The gradient is that of the product of the values they stand for.

    >>> import numpy as np, pullback as pb
    >>> a, b = np.array([[1.0, 2.0]], "float32"), np.array([[4.0], [8.0]], "float32")
    >>> pb.amp.scaled_matmul(pb.amp.quantize(a), pb.amp.quantize(b))
    array([[20.]], dtype=float32)
    """
    for name, given, axis in (("a", a, -1), ("b", b, -2)):
        if not isinstance(given, Quantized):
            raise ArgumentTypeError(
                f"scaled_matmul: {name} is a {type(given).__name__}.\n  Make it by pb.amp.quantize."
            )
        if ndim(given.data) < 2:
            raise ShapeError(f"scaled_matmul: {name} wants two axes or more, got shape {shape(given.data)}.")
        if ndim(given.scale) and shape(given.scale)[axis] != 1:
            raise ShapeError(
                f"scaled_matmul: the scale of {name} has shape {shape(given.scale)}, but is summed over along axis "
                f"{axis}.\n  Quantize it with axis={axis}."
            )
    product = matmul(astype(a.data, np.float32), astype(b.data, np.float32))
    return astype(multiply(multiply(product, a.scale), b.scale), out_dtype)
