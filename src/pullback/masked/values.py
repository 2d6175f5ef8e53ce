"""`MaskedArray`: an array with a mask of the same shape, true where an entry is left out, as in NumPy's `np.ma`.

What is masked never enters a computation: it is replaced by a half before a function sees it (where nearly all
functions are smooth), so that whatever stands there (a NaN, a zero to divide by) makes no NaN in a value, a gradient or
a tangent; its derivative is zero.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..arrays.argument_checks import check_functions, explains_arguments
from ..arrays.exchange import to_numpy
from ..arrays.spec import Spec, spec_of
from ..arrays.trees import register_tree
from ..arrays.value import Value
from ..errors import ArgumentError, ConversionError, DtypeError, ShapeError, UnsupportedFunction
from ..ops.contract.matrix_products import matmul
from ..ops.dispatch import as_value
from ..ops.elementwise import pointwise
from ..ops.index.indexing import getitem
from ..ops.placement import move
from ..ops.protocol.ufuncs import function_of
from ..ops.shape import reshaping
from ..public_names import explain_missing_attributes
from . import reductions


def _binary(function: Callable[[Any, Any], Any]) -> Callable[[MaskedArray, Any], MaskedArray]:
    """An operator as a method."""
    return lambda self, other: apply(function, self, other)


def _unary(function: Callable[[Any], Any]) -> Callable[[MaskedArray], MaskedArray]:
    return lambda self: apply(function, self)


def _reflect(function: Callable[[Any, Any], Any]) -> Callable[[MaskedArray, Any], MaskedArray]:
    return lambda self, other: apply(function, other, self)


class MaskedArray:
    """Data and a mask, made by `pb.masked.array`. Operators and NumPy's ufuncs work elementwise: a result is masked
    where an argument is. Reductions leave masked entries out; a result is masked where nothing was left. `filled`
    gives a plain value. It is a tree of both arrays.

    >>> import numpy as np, pullback as pb
    >>> x = pb.masked.array(np.array([1.0, np.nan, 3.0]), mask=[False, True, False])
    >>> x.mean().filled(0.0), np.log(x) + 1
    (array(2.), masked([1.0 -- 2.09861228866811]))
    >>> pb.grad(lambda data: (x.with_data(data) ** 2).sum().filled(0.0))(x.data)
    array([2., 0., 6.])
    """

    __slots__ = ("data", "mask")
    SCALAR_ADVICE = "All of it may be masked, so say what stands for that: out.filled(0.0)"
    __hash__ = None  # type: ignore[assignment]
    data: Any
    mask: Any

    @explains_arguments("MaskedArray")
    def __init__(self, data: Any, mask: Any = None) -> None:
        made = array(data, mask)
        self.data, self.mask = made.data, made.mask

    # Operators, elementwise

    __add__, __radd__ = _binary(operator.add), _reflect(operator.add)
    __sub__, __rsub__ = _binary(operator.sub), _reflect(operator.sub)
    __mul__, __rmul__ = _binary(operator.mul), _reflect(operator.mul)
    __truediv__, __rtruediv__ = _binary(operator.truediv), _reflect(operator.truediv)
    __floordiv__, __rfloordiv__ = _binary(operator.floordiv), _reflect(operator.floordiv)
    __mod__, __rmod__ = _binary(operator.mod), _reflect(operator.mod)
    __pow__, __rpow__ = _binary(operator.pow), _reflect(operator.pow)
    __and__, __rand__ = _binary(operator.and_), _reflect(operator.and_)
    __or__, __ror__ = _binary(operator.or_), _reflect(operator.or_)
    __xor__, __rxor__ = _binary(operator.xor), _reflect(operator.xor)
    __lt__, __le__ = _binary(operator.lt), _binary(operator.le)
    __gt__, __ge__ = _binary(operator.gt), _binary(operator.ge)
    __eq__, __ne__ = _binary(operator.eq), _binary(operator.ne)  # type: ignore[assignment]

    __neg__, __pos__, __abs__ = _unary(operator.neg), _unary(operator.pos), _unary(operator.abs)
    __invert__ = _unary(operator.invert)

    def __matmul__(self, other: Any) -> MaskedArray:
        """The product in which masked entries count as zeros; masked where no term was left (as `np.ma.dot`)."""
        return _product(self, as_masked(other))

    def __rmatmul__(self, other: Any) -> MaskedArray:
        return _product(as_masked(other), self)

    # What it is

    @property
    def spec(self) -> Spec:
        """Shape, dtype and device of the data."""
        return spec_of(self.data)

    @property
    def shape(self) -> tuple[int, ...]:
        """The size of each axis."""
        return self.spec.shape

    @property
    def dtype(self) -> Any:
        """The type of the elements."""
        return self.spec.dtype

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self.spec.ndim

    @property
    def size(self) -> int:
        """The number of elements, masked ones included."""
        return self.spec.size

    def __len__(self) -> int:
        if not self.ndim:
            raise ArgumentError("len() of a masked array without axes.")
        return self.shape[0]

    def __iter__(self) -> Iterator[MaskedArray]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        try:
            return f"masked({self.numpy()!s})"  # formatted without !s, one number is shown although it is masked
        except (ArgumentError, ConversionError):
            return f"masked({self.spec})"

    def __bool__(self) -> bool:
        raise ConversionError("a masked array has no truth value.\n  Take one by .all() or .any() and .filled(...).")

    def __float__(self) -> float:
        raise ConversionError("a masked array is no number, since it may be masked.\n  Make it one by .filled(value).")

    __int__ = __complex__ = __float__

    def __setitem__(self, index: Any, value: Any) -> None:
        raise ConversionError(
            "a masked array is not written to.\n  Choose by pb.masked.where(condition, value, x), mask by "
            "pb.masked.masked_where(condition, x), or write to the data first."
        )

    # Plain values

    @explains_arguments("filled")
    def filled(self, value: Any) -> Any:
        """The data with `value` in place of what is masked."""
        return pointwise.where(self.mask, value, self.data)

    def harmless(self) -> Any:
        """The data with a number in place of what is masked that no function minds: a half, or one of whole numbers."""
        return self.filled(np.asarray(0.5 if self.spec.inexact else 1, self.dtype))

    def with_data(self, data: Any) -> MaskedArray:
        """Other data of the same shape with this mask."""
        return array(data, self.mask)

    def detach(self) -> MaskedArray:
        """The same without derivatives."""
        return of_parts(pointwise.stop_gradient(self.data), self.mask)

    def numpy(self) -> np.ma.MaskedArray[Any, Any]:
        """As a masked array of NumPy; only outside of transforms, and detached from any tape."""
        data, mask = (to_numpy(x, "numpy()") for x in (self.data, self.mask))
        return np.ma.array(data, mask=mask)

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise ConversionError(
            "a masked array as a bare array would lose its mask.\n"
            "  Use its methods (x.sum()), operators, NumPy's functions (np.sin(x)), pb.masked.apply(f, x) for an "
            "elementwise f, x.filled(value), or x.numpy() for np.ma; beside an np.ma array pb.masked.array(that)."
        )

    # NumPy's functions

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        if method != "__call__" or options:
            raise UnsupportedFunction(
                f"np.{ufunc.__name__}: on a masked array ufuncs are called without options, and have no methods.\n"
                "  Use x.sum(), x.prod(), x.cumsum() and the like, or pb.masked.apply."
            )
        if ufunc is np.matmul:
            return _product(as_masked(inputs[0]), as_masked(inputs[1]))
        return apply(function_of(ufunc), *inputs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        name = _METHODS.get(function)
        if not args and "a" in kwargs:  # NumPy's name for the first argument of all of them
            args, kwargs = (kwargs["a"],), {k: v for k, v in kwargs.items() if k != "a"}
        if name is None or not args or not isinstance(args[0], MaskedArray):
            raise UnsupportedFunction(
                f"np.{getattr(function, '__name__', function)} has no rule for masked arrays.\n"
                f"  There are {', '.join(sorted(_METHODS.values()))}; pb.masked.where, concat and stack; x @ y; for an "
                "elementwise function pb.masked.apply."
            )
        return getattr(args[0], name)(*args[1:], **kwargs)

    # Shapes

    def _rearrange(self, function: Callable[..., Any], *args: Any) -> MaskedArray:
        return of_parts(function(self.data, *args), function(self.mask, *args))

    def __getitem__(self, index: Any) -> MaskedArray:
        if isinstance(index, MaskedArray):
            index = index.filled(np.zeros((), index.dtype)) if index.dtype.kind == "b" else index
        if isinstance(index, MaskedArray):
            raise DtypeError("a masked array of integers is no index: say what stands for its gaps, by .filled(i).")
        return self._rearrange(getitem, index)

    def reshape(self, *shape: Any) -> MaskedArray:
        """The same elements in another shape."""
        return self._rearrange(reshaping.reshape, shape[0] if len(shape) == 1 else shape)

    def transpose(self, axes: Any = None) -> MaskedArray:
        """The axes in another order, by default reversed."""
        return self._rearrange(reshaping.permute_dims, tuple(range(self.ndim))[::-1] if axes is None else axes)

    @property
    def T(self) -> MaskedArray:
        """The transpose: axes in reverse order."""
        return self.transpose()

    def ravel(self) -> MaskedArray:
        """All elements along one axis."""
        return self.reshape(-1)

    def astype(self, dtype: Any) -> MaskedArray:
        """The data converted to another dtype."""
        return of_parts(reshaping.astype(self.harmless(), dtype), self.mask)

    # Reductions

    def _reduce(self, function: Callable[..., Any], *args: Any) -> MaskedArray:
        return of_parts(*function(self.harmless(), self.mask, *args))

    @explains_arguments("count")
    def count(self, axis: Any = None, keepdims: bool = False) -> Any:
        """How many entries are not masked, as a plain value."""
        return reductions.count(self.mask, axis, keepdims)

    @explains_arguments("sum")
    def sum(self, axis: Any = None, keepdims: bool = False) -> MaskedArray:
        """The sum of what is not masked."""
        return self._reduce(reductions.sum, axis, keepdims)

    @explains_arguments("prod")
    def prod(self, axis: Any = None, keepdims: bool = False) -> MaskedArray:
        """The product of what is not masked."""
        return self._reduce(reductions.prod, axis, keepdims)

    @explains_arguments("mean")
    def mean(self, axis: Any = None, keepdims: bool = False) -> MaskedArray:
        """The mean of what is not masked."""
        return self._reduce(reductions.mean, axis, keepdims)

    @explains_arguments("var")
    def var(self, axis: Any = None, ddof: float = 0, keepdims: bool = False) -> MaskedArray:
        """The variance of what is not masked; masked itself where not more than `ddof` entries are left."""
        return self._reduce(reductions.var, axis, keepdims, ddof)

    @explains_arguments("std")
    def std(self, axis: Any = None, ddof: float = 0, keepdims: bool = False) -> MaskedArray:
        """The root of the variance."""
        return self._reduce(reductions.std, axis, keepdims, ddof)

    @explains_arguments("max")
    def max(self, axis: Any = None, keepdims: bool = False) -> MaskedArray:
        """The greatest entry that is not masked; equal ones share its derivative."""
        return self._reduce(reductions.max, axis, keepdims)

    @explains_arguments("min")
    def min(self, axis: Any = None, keepdims: bool = False) -> MaskedArray:
        """The least entry that is not masked; equal ones share its derivative."""
        return self._reduce(reductions.min, axis, keepdims)

    @explains_arguments("all")
    def all(self, axis: Any = None, keepdims: bool = False) -> MaskedArray:
        """Whether all that is not masked is true."""
        return self._reduce(reductions.all, axis, keepdims)

    @explains_arguments("any")
    def any(self, axis: Any = None, keepdims: bool = False) -> MaskedArray:
        """Whether something that is not masked is true."""
        return self._reduce(reductions.any, axis, keepdims)

    @explains_arguments("argmax")
    def argmax(self, axis: Any = None) -> Any:
        """The place of the greatest entry that is not masked, as a plain value."""
        return reductions.argmax(self.harmless(), self.mask, axis)

    @explains_arguments("argmin")
    def argmin(self, axis: Any = None) -> Any:
        """The place of the least entry that is not masked, as a plain value."""
        return reductions.argmin(self.harmless(), self.mask, axis)

    @explains_arguments("cumsum")
    def cumsum(self, axis: Any = None) -> MaskedArray:
        """Sums up to each entry; masked ones are left out, and stay masked."""
        return self._reduce(reductions.cumsum, axis)

    @explains_arguments("cumprod")
    def cumprod(self, axis: Any = None) -> MaskedArray:
        """Products up to each entry; masked ones are left out, and stay masked."""
        return self._reduce(reductions.cumprod, axis)


def of_parts(data: Any, mask: Any) -> MaskedArray:
    """The masked array of data and a mask that fit, whatever a transform puts in their place."""
    made = MaskedArray.__new__(MaskedArray)
    made.data, made.mask = data, mask
    return made


def _product(x: MaskedArray, y: MaskedArray) -> MaskedArray:
    out = matmul(x.filled(np.zeros((), x.dtype)), y.filled(np.zeros((), y.dtype)))
    left = [reshaping.astype(pointwise.logical_not(z.mask), np.float32) for z in (x, y)]
    return of_parts(out, pointwise.equal(matmul(*left), 0.0))


@explains_arguments("masked.array")
def array(data: Any, mask: Any = None) -> MaskedArray:
    """A masked array of data and a mask, which is true where an entry is left out and broadcasts to the data's shape;
    without a mask that of `data`, if it has one (a `MaskedArray`, or one of `np.ma`).

    >>> import numpy as np, pullback as pb
    >>> pb.masked.array(np.ma.array([1.0, 2.0], mask=[True, False])).sum().filled(0.0)
    array(2.)
    """
    own: Any = False
    if isinstance(data, np.ma.MaskedArray):
        data, own = np.array(data.data), np.ma.getmaskarray(data)
    elif isinstance(data, MaskedArray):
        data, own = data.data, data.mask
    data = as_value(data)
    data = data if isinstance(data, Value) or hasattr(data, "shape") else np.asarray(data)
    device, shape = spec_of(data).device, spec_of(data).shape
    own = move(as_value(own), device)
    mask = own if mask is None else pointwise.logical_or(own, move(_as_mask(mask), device))
    try:
        return of_parts(data, reshaping.broadcast_to(mask, shape))
    except ShapeError:
        raise ShapeError(
            f"masked.array: a mask of shape {spec_of(mask).shape} does not broadcast to the data's, {shape}."
        ) from None


def _as_mask(mask: Any) -> Any:
    found = as_value(mask)
    if spec_of(found).dtype.kind != "b":
        raise DtypeError(
            f"masked: a mask holds booleans, true where an entry is left out, got {spec_of(found)}.\n"
            "  Of numbers make one by a comparison (mask != 0)."
        )
    return found


def as_masked(x: Any) -> MaskedArray:
    """x itself, or with nothing masked."""
    return x if isinstance(x, MaskedArray) else array(x)


@explains_arguments("masked.apply")
def apply(function: Callable[..., Any], *args: Any) -> Any:
    """An elementwise function of ours on masked and plain arrays: its results, masked where an argument is. What is
    masked reaches it as halves (whole numbers as ones).

    >>> import numpy as np, pullback as pb
    >>> pb.masked.apply(pb.nn.gelu, pb.masked.array(np.zeros(2), [True, False]))
    masked([-- 0.0])
    """
    check_functions("masked.apply", function)
    args = tuple(array(x) if isinstance(x, np.ma.MaskedArray) else x for x in args)
    out = function(*(x.harmless() if isinstance(x, MaskedArray) else x for x in args))
    masks = [x.mask for x in args if isinstance(x, MaskedArray)]
    shapes = [spec_of(x.data if isinstance(x, MaskedArray) else as_value(x)).shape for x in args]
    wanted = np.broadcast_shapes(*shapes)
    mask = reshaping.broadcast_to(functools.reduce(pointwise.logical_or, masks, np.False_), wanted)
    return tuple(_elementwise(x, mask) for x in out) if isinstance(out, tuple) else _elementwise(out, mask)


def _elementwise(out: Any, mask: Any) -> MaskedArray:
    if spec_of(as_value(out)).shape != spec_of(mask).shape:
        raise ShapeError(
            f"masked.apply: the function returned {spec_of(as_value(out))} for arguments of shape "
            f"{spec_of(mask).shape}; it must work elementwise."
        )
    return of_parts(out, mask)


#: The methods that are NumPy's functions of a masked array.
_METHODS = {
    function: function.__name__
    for function in (
        np.sum, np.prod, np.mean, np.var, np.std, np.all, np.any, np.argmax, np.argmin, np.cumsum, np.cumprod,
        np.reshape, np.transpose, np.ravel,
    )
} | {np.max: "max", np.min: "min"}  # fmt: skip

explain_missing_attributes(
    MaskedArray,
    "MaskedArray",
    """
    anom argsort backward clip compressed conj conjugate copy dot fill_value flatten get_data get_fill_value get_mask
    imag item masked_fill median nonzero ptp real repeat requires_grad round sort squeeze swapaxes take to_tensor tolist
    unsqueeze
    """,
)
register_tree(MaskedArray, lambda x: ((x.data, x.mask), None, ("data", "mask")), lambda _, both: of_parts(*both))
