"""The abstract parent of everything that stands for an array: tensors and the wrappers of transforms."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Self
from weakref import ref

from ..errors import ArgumentTypeError, ConversionError, GraphError, UnsupportedFunction
from ..public_names import explain_missing_attributes
from .call_site import is_library_code
from .conversion_advice import advise_on_conversion, stand_in_for_product
from .scope import Scope
from .spec import Spec

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .method_names import MethodNames
else:
    MethodNames = object


class Value(MethodNames):
    """Something that stands for an array in an op call. The highest level among the arguments interprets.

    The spec of a wrapper is a guarded one, so that tensors over it stay off the fast path.

    Abstract, but no ABC: `isinstance` runs in every op call, and an ABC makes it ten times slower.
    """

    __slots__ = ("__weakref__", "_cuts", "_sources", "_views")
    __array_priority__ = 1000
    spec: Spec
    #: Of a view: weak references to what it was cut from, and of what a transform runs on, how; see `views.py`.
    _sources: tuple[ref[Any], ...]
    _cuts: list[tuple[ref[Any], Any]]
    _views: list[ref[Any]]
    #: The run of a transform that this value belongs to; tensors belong to none.
    scope: Scope | None = None
    #: Whether values of one scope with equal parts (and one batch axis) are equal.
    is_its_parts = False
    #: Whether a compiled function is to run op by op on this value, because its transform must see the single ops.
    runs_op_by_op = False

    @property
    def level(self) -> int:
        """Which transform this value belongs to; see `scope.new_level`."""
        raise NotImplementedError

    def interpret(self, op: Any, args: Sequence[Any], static: dict[str, Any]) -> Any:
        """Run an op in which this value has the highest level."""
        raise NotImplementedError

    def parts(self) -> tuple[Any, ...]:
        """What this wrapper is made of: values of lower levels, the value itself first, then what belongs to its
        derivative (None for zero). Empty for a value that is known by its spec alone.
        """
        raise NotImplementedError

    def with_parts(self, *parts: Any) -> Self:
        """The same wrapper, under a variable of its own, over other parts of the same specs."""
        raise NotImplementedError

    @property
    def is_tracked(self) -> bool:
        """Whether this value is known to carry a derivative."""
        return False

    def kept_references(self) -> int:
        """How many references its transform holds to this value, besides those of variables."""
        return 0

    @property
    def shape(self) -> tuple[int, ...]:
        """The size of each axis."""
        return self.spec.shape

    @shape.setter
    def shape(self, sizes: Any) -> None:
        raise GraphError(f"x.shape = {sizes!r}: a value keeps its shape.\n  Write x = x.reshape({sizes!r}).")

    @property
    def dtype(self) -> Any:
        """The type of the elements."""
        return self.spec.dtype

    @property
    def device(self) -> str:
        """Where the elements live: "cpu", "cuda:0"."""
        return self.spec.device

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.spec.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return self.spec.size

    @property
    def nbytes(self) -> int:
        """The number of bytes the elements take."""
        return self.spec.nbytes

    def __len__(self) -> int:
        if not self.spec.shape:
            raise ArgumentTypeError("a 0-d tensor has no len().\n  It is one number; x.size is 1.")
        return self.spec.shape[0]

    def __hash__(self) -> int:
        # `n in {0, 2}` would silently be False for a number that is 2 when the program runs
        if not self.spec.shape and self.is_unknown and not is_library_code(sys._getframe(1).f_code):
            raise self._innermost_unknown().conversion_error("hash()")
        return id(self)

    def _innermost_unknown(self) -> Value:
        below = next(iter(self.parts()), None)
        return below._innermost_unknown() if isinstance(below, Value) and below.is_unknown else self

    @property
    def is_unknown(self) -> bool:
        """Whether the number itself is not there for Python: it is traced, or differs by element of a batch."""
        below = next(iter(self.parts()), None)
        return isinstance(below, Value) and below.is_unknown

    def conversion_error(self, what: str) -> ConversionError:
        """The error for converting a value that has no concrete array."""
        return ConversionError(
            f"{what}: {self!r} is inside a transform and has no concrete values.\n"
            "  Use functions of pullback on it, and return it from the transformed function to see its value."
        )

    def _conversion_error_with_advice(self, what: str) -> ConversionError:
        advice = advise_on_conversion(sys._getframe(1), is_array=what == "np.asarray")
        return ConversionError(f"{self.conversion_error(what)}{advice}")

    def __format__(self, form: str) -> str:
        """A printable form: the concrete values where there are some, without derivatives."""
        if form:
            raise self.conversion_error(f"format(x, {form!r})")
        return str(self)

    def __copy__(self) -> Any:
        return self.alias()

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        memo[id(self)] = self.alias()
        return memo[id(self)]

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise ConversionError(
            f"pickle: {self!r} is a value of a running transform, valid only while it runs.\n"
            "  Return it from the transformed function, and store what comes out."
        )

    def __bool__(self) -> bool:
        raise self.conversion_error("bool()")

    def __float__(self) -> float:
        if self.spec.dtype.kind == "b":
            return float(bool(self))
        raise self._conversion_error_with_advice("float()")

    def __int__(self) -> int:
        if self.spec.dtype.kind == "b":
            return int(bool(self))
        raise self._conversion_error_with_advice("int()")

    def __complex__(self) -> complex:
        raise self._conversion_error_with_advice("complex()")

    def __index__(self) -> int:
        raise self.conversion_error("index()")

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # PyTorch asks this of functions and operators that meet a value of ours; its own error is of "not Tensor"
        raise UnsupportedFunction(
            f"torch.{getattr(function, '__name__', function)}: functions of PyTorch take no values of pullback.\n"
            "  pb.interop.torch.as_op(f) makes one an op here, and pb.interop.torch.wrap(f) a function of ours one of "
            "PyTorch's tensors; x.detach().numpy() is the numbers alone."
        )

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        if (stand_in := stand_in_for_product(self, sys._getframe(1))) is not None:
            return stand_in
        raise self._conversion_error_with_advice("np.asarray")

    def item(self, *place: Any) -> Any:
        """The one element, or that at a place, as a Python number."""
        raise self.conversion_error("item()")

    def tolist(self) -> Any:
        """The values as nested Python lists."""
        raise self.conversion_error("tolist()")

    def numpy(self) -> NDArray[Any]:
        """The values as a read-only NumPy array."""
        raise self.conversion_error("numpy()")

    #: Whether `x += y` and `x[i] = v` can rebind this wrapper to a new value, as they do a tensor.
    is_variable = False

    def point_at(self, new: Any, what: str) -> None:
        """Rebind this wrapper to another value of its shape and dtype. What was computed from it stays."""
        raise self.rebind_error(what)

    def follow(self, new: Any) -> None:
        """Point a view at what it shows after a write to its source."""
        # of a captured tensor that is written to in a trace, the slice is a value of the trace
        found = new.parts()[0] if isinstance(new, Value) and new.level > self.level else new
        self.point_at(found, "x[index] = value")

    def alias(self) -> Any:
        """The value that this wrapper stands for now, under a wrapper that no user can rebind."""
        return self.with_parts(*self.parts()) if self.is_variable else self

    def rebind_error(self, what: str) -> GraphError:
        return GraphError(
            f"{what}: {self!r} is a value of a running transform that cannot be rebound to this one.\n"
            "  Make a variable of it first, x = pb.tensor(x), or use x = x + y, pb.set_at(x, index, value)."
        )

    def __setitem__(self, index: Any, value: Any) -> None:
        raise self.rebind_error("x[index] = value")

    def backward(self, *args: Any, **kwargs: Any) -> None:
        """Only tensors have a backward pass."""
        raise GraphError(
            f"backward: {self!r} is a value of a transform inside the tape of its leaves.\n"
            "  Call backward outside of the transform, or make the leaves inside: pb.tensor(x, requires_grad=True)."
        )

    if TYPE_CHECKING:  # added by `ops.operators`, a later layer

        def __add__(self, other: Any) -> Self: ...
        def __radd__(self, other: Any) -> Self: ...
        def __sub__(self, other: Any) -> Self: ...
        def __rsub__(self, other: Any) -> Self: ...
        def __mul__(self, other: Any) -> Self: ...
        def __rmul__(self, other: Any) -> Self: ...
        def __truediv__(self, other: Any) -> Self: ...
        def __rtruediv__(self, other: Any) -> Self: ...
        def __floordiv__(self, other: Any) -> Self: ...
        def __rfloordiv__(self, other: Any) -> Self: ...
        def __mod__(self, other: Any) -> Self: ...
        def __rmod__(self, other: Any) -> Self: ...
        def __divmod__(self, other: Any) -> tuple[Self, Self]: ...
        def __rdivmod__(self, other: Any) -> tuple[Self, Self]: ...
        def __pow__(self, other: Any) -> Self: ...
        def __rpow__(self, other: Any) -> Self: ...
        def __matmul__(self, other: Any) -> Self: ...
        def __rmatmul__(self, other: Any) -> Self: ...
        def __neg__(self) -> Self: ...
        def __pos__(self) -> Self: ...
        def __abs__(self) -> Self: ...
        def __invert__(self) -> Self: ...
        def __and__(self, other: Any) -> Self: ...
        def __rand__(self, other: Any) -> Self: ...
        def __or__(self, other: Any) -> Self: ...
        def __ror__(self, other: Any) -> Self: ...
        def __xor__(self, other: Any) -> Self: ...
        def __rxor__(self, other: Any) -> Self: ...
        def __lshift__(self, other: Any) -> Self: ...
        def __rshift__(self, other: Any) -> Self: ...
        def __eq__(self, other: Any) -> Self: ...  # type: ignore[override]
        def __ne__(self, other: Any) -> Self: ...  # type: ignore[override]
        def __lt__(self, other: Any) -> Self: ...
        def __le__(self, other: Any) -> Self: ...
        def __gt__(self, other: Any) -> Self: ...
        def __ge__(self, other: Any) -> Self: ...
        def __getitem__(self, index: Any) -> Self: ...
        def __iter__(self) -> Iterator[Self]: ...
        def sum(self, axis: Any = None, dtype: Any = None, out: None = None, keepdims: bool = False, *,
                initial: Any = None, where: Any = None) -> Self: ...  # fmt: skip
        def prod(self, axis: Any = None, dtype: Any = None, out: None = None, keepdims: bool = False, *,
                 initial: Any = None, where: Any = None) -> Self: ...  # fmt: skip
        def mean(self, axis: Any = None, dtype: Any = None, out: None = None, keepdims: bool = False, *,
                 where: Any = None) -> Self: ...  # fmt: skip
        def max(self, axis: Any = None, out: None = None, keepdims: bool = False, *, initial: Any = None,
                where: Any = None) -> Self: ...  # fmt: skip
        def min(self, axis: Any = None, out: None = None, keepdims: bool = False, *, initial: Any = None,
                where: Any = None) -> Self: ...  # fmt: skip
        def var(self, axis: Any = None, dtype: Any = None, *, ddof: float | None = None, correction: float = 0,
                keepdims: bool = False, where: Any = None, mean: Any = None) -> Self: ...  # fmt: skip
        def std(self, axis: Any = None, dtype: Any = None, *, ddof: float | None = None, correction: float = 0,
                keepdims: bool = False, where: Any = None, mean: Any = None) -> Self: ...  # fmt: skip
        def any(self, axis: Any = None, *, keepdims: bool = False, where: Any = None) -> Self: ...
        def all(self, axis: Any = None, *, keepdims: bool = False, where: Any = None) -> Self: ...
        def argmax(self, axis: int | None = None, *, keepdims: bool = False) -> Self: ...
        def argmin(self, axis: int | None = None, *, keepdims: bool = False) -> Self: ...
        def argsort(self, axis: int | None = -1, kind: str | None = None, order: Any = None, *,
                    descending: bool = False, stable: bool | None = True) -> Self: ...  # fmt: skip
        def cumsum(self, axis: int | None = None, dtype: Any = None, *, include_initial: bool = False) -> Self: ...
        def cumprod(self, axis: int | None = None, dtype: Any = None, *, include_initial: bool = False) -> Self: ...
        def searchsorted(self, values: Any, side: str = "left", sorter: Any = None) -> Self: ...
        def compress(self, condition: Any, axis: int | None = None) -> Self: ...
        def choose(self, choices: Any, mode: str = "raise") -> Self: ...
        def take(self, indices: Any, axis: int | None = None, *, mode: str = "raise") -> Self: ...
        def nonzero(self) -> tuple[Self, ...]: ...
        def dot(self, other: Any) -> Self: ...
        def trace(self, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None) -> Self: ...
        def diagonal(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Self: ...
        def clip(self, min: Any = None, max: Any = None) -> Self: ...
        def round(self, decimals: int = 0) -> Self: ...
        def conj(self) -> Self: ...
        def conjugate(self) -> Self: ...
        def exp(self) -> Self: ...
        def log(self) -> Self: ...
        def sqrt(self) -> Self: ...
        def square(self) -> Self: ...
        def tanh(self) -> Self: ...
        def sin(self) -> Self: ...
        def cos(self) -> Self: ...
        def abs(self) -> Self: ...
        def astype(self, dtype: Any, *, copy: bool = True, device: Any = None) -> Self: ...
        def copy(self) -> Self: ...
        def detach(self) -> Self: ...
        def to_device(self, device: Any, /, *, stream: Any = None) -> Self: ...
        def reshape(self, *shape: Any, order: str = "C", copy: bool | None = None) -> Self: ...
        def transpose(self, *axes: Any) -> Self: ...
        def swapaxes(self, axis1: int, axis2: int) -> Self: ...
        def squeeze(self, axis: Any = None) -> Self: ...
        def repeat(self, repeats: Any, axis: int | None = None) -> Self: ...
        def flatten(self, order: str = "C") -> Self: ...
        def ravel(self, order: str = "C") -> Self: ...
        @property
        def T(self) -> Self: ...
        @property
        def mT(self) -> Self: ...
        @property
        def real(self) -> Self: ...
        @property
        def imag(self) -> Self: ...


#: Methods of tensors and arrays elsewhere: some have another form here (`foreign_names.txt`), some are functions.
_METHODS_ELSEWHERE = """
    add_ addmm allclose apply_ chunk clamp_ copy_ data detach_ div_ element_size exp_ grad_fn is_contiguous is_cuda mul_
    new_full new_ones new_tensor new_zeros norm normal_ pin_memory scatter_ scatter_add_ share_memory_ split storage
    sub_ sum_to_size type type_as uniform_ untyped_storage zero_
    fill sort tobytes itemsize strides flat put at block_until_ready
    assign assign_add assign_sub name read_value set_shape get_shape trainable
    acos acosh angle argwhere asin asinh atan atan2 atanh bincount ceil cosh cross cummax cummin deg2rad diag diag_embed
    diff erf exp2 expm1 fliplr flip flipud floor fmod histogram index_add index_copy index_fill inner isclose isinf kron
    kthvalue log10 log1p log2 logaddexp logcumsumexp logsumexp masked_scatter masked_select maximum median minimum
    moveaxis nan_to_num nanmean nansum outer percentile ptp quantile reciprocal remainder roll rot90 rsqrt scatter
    scatter_add sign sinh tan tensor_split tile tril triu trunc unflatten unique unstack vdot
"""
explain_missing_attributes(Value, "Tensor", _METHODS_ELSEWHERE)


class SymbolicValue(Value):
    """Abstract: a value known by its spec alone, which its interpreter recognizes by identity."""

    __slots__ = ()

    def parts(self) -> tuple[Any, ...]:
        return ()

    def with_parts(self, *parts: Any) -> Self:
        return self


def unwrap_array(x: Any) -> Any:
    """The array behind a value of any transform, None where there is none, as in a program being traced."""
    while isinstance(x, Value):
        x = next(iter(x.parts()), None)
    return x
