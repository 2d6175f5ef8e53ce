"""What leaves a tensor: numbers for Python, arrays for NumPy and other libraries, text for a reader."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ConversionError, DtypeError, ShapeError
from .backends import device_of, is_array, raise_device_errors, to_host
from .call_site import warn_at_user_line
from .conversion_advice import (
    advise_on_conversion,
    loses_derivative,
    replaces_errors,
    stand_in_for_product,
)
from .dlpack import export_capsule
from .node import Node, depends_on_running_call
from .protect import owned_copy, read_only_view
from .value import Value

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Conversions that Python and NumPy invoke implicitly, for a line that means something else.
_IMPLICIT_CONVERSIONS = frozenset(("np.asarray", "float()", "int()", "complex()"))
#: What keeps the derivative in place of conversions that the user wrote.
_EXPLICIT = {
    "item()": "Use the tensor itself in place of the number. If it has axes, that is x.reshape(()).",
    "tolist()": "Use list(x) in place of x.tolist().",
}
_NUMBERS = frozenset(("float()", "int()", "complex()", "item()"))


class ConvertibleValue(Value):
    """Abstract: a value over another one, which is converted if it is an array and no derivative is lost by it."""

    __slots__ = ()

    if TYPE_CHECKING:  # a tensor's own, and `ops.operators`'
        value: Any
        node: Node | None

        def note_numbers(self) -> None: ...

    def _require_untracked(self, what: str) -> None:
        if self.node is not None:
            is_array = what == "np.asarray"
            advice = advise_on_conversion(sys._getframe(1), is_array=is_array) if what in _IMPLICIT_CONVERSIONS else ""
            if what in _EXPLICIT:
                advice = f"\n  {_EXPLICIT[what]}"
            elif what in _NUMBERS and not advice:
                advice = "\n  Use the tensor itself in place of the number."
            message = (
                f"{what}: this tensor carries derivatives, a bare {'number' if what in _NUMBERS else 'array'} would "
                f"lose them.\n  made at {self.node.where()}{advice}\n"
                "  Only if the derivative is to be dropped: x.detach()."
            )
            if replaces_errors(sys._getframe(1)):
                warn_at_user_line(message)
            raise ConversionError(message)

    def _readable_array(self, what: str) -> Any:
        """On a plain tape a value may be read, as a training loop does with its loss. Inside of `grad` and `vjp`
        what the function computes is differentiated, and a bare number would not be part of it.
        """
        if self.node is not None and depends_on_running_call(self.node):
            self._require_untracked(what)
        array = self._concrete_array(what)
        return array if type(array) is np.ndarray else to_host(array)

    def _bare_array(self, what: str) -> Any:
        self._require_untracked(what)
        return self._concrete_array(what)

    def _concrete_array(self, what: str) -> Any:
        self.note_numbers()
        if not is_array(self.value):
            raise self.conversion_error(what)
        return self.value

    def numpy(self) -> NDArray[Any]:
        """The values as a read-only NumPy array that shares memory; `.numpy().copy()` may be written to."""
        array = self._bare_array("numpy()")
        found: NDArray[Any] = to_host(array) if device_of(array) != "cpu" else read_only_view(array)
        return found

    def cupy(self) -> Any:
        """The values as a CuPy array of its own memory, on the tensor's GPU."""
        array = self._bare_array("cupy()")
        if device_of(array) == "cpu":
            raise ConversionError("cupy(): this tensor is on the CPU.\n  Move it first: x.cuda().cupy().")
        return owned_copy(array)

    @property
    def __cupy_get_ndarray__(self) -> Any:
        """What `cupy.asarray(x)` asks for: a copy, since CuPy's arrays can be written to. There is no
        `__cuda_array_interface__`: who reads it keeps the tensor alive but not the array, which the tensor may leave.
        """
        # operators of CuPy's arrays, such as `a @ x`, ask too, from the user's line: without it they leave it to us
        if not sys._getframe(1).f_globals.get("__name__", "").startswith("cupy"):
            raise AttributeError("__cupy_get_ndarray__ is for functions of CuPy; use x.cupy()")
        return self.cupy

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        if (stand_in := stand_in_for_product(self, sys._getframe(1))) is not None:
            return stand_in
        array = self._bare_array("np.asarray")
        if device_of(array) != "cpu":
            raise ConversionError("np.asarray: this tensor lives on a GPU.\n  Use x.numpy() to copy it to the host.")
        if copy:
            return np.array(array, dtype=dtype)
        return read_only_view(array) if dtype is None or dtype == array.dtype else array.astype(dtype)

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """The values for another library: a copy, since some consumers ignore that memory is read-only. With
        `copy=False` the memory itself, marked read-only where the consumer's version of the protocol supports that.
        """
        given = {"stream": stream, "max_version": max_version, "dl_device": dl_device, "copy": copy}
        options = {name: value for name, value in given.items() if value is not None}
        array = self._bare_array("DLPack")
        if copy is False:
            knows_the_mark = max_version is not None and max_version[0] >= 1
            return export_capsule(read_only_view(array) if knows_the_mark else array, **options)
        return export_capsule(array.copy(), **options)

    def __dlpack_device__(self) -> tuple[int, int]:
        device: tuple[int, int] = self._bare_array("DLPack").__dlpack_device__()
        return device

    def item(self, *place: Any) -> Any:
        """The one element, or that at a place, as a Python number."""
        if place:  # one number counts along the whole array
            return (self.ravel()[place[0]] if len(place) == 1 else self[place]).item()
        if self.size != 1:
            raise ShapeError(f"item: the tensor has shape {self.shape}, item() needs one element.")
        return self._readable_array("item()").item()

    def tolist(self) -> Any:
        """The values as nested Python lists."""
        return self._readable_array("tolist()").tolist()

    def _single_element(self, what: str) -> Any:
        """As `item()`, which is explicit; Python also calls these for a line that would lose the derivative."""
        if self.size != 1:
            raise ShapeError(f"{what}(): the tensor has shape {self.shape}, a number has one element.")
        if self.node is not None and loses_derivative(sys._getframe(2)):
            self._require_untracked(f"{what}()")
        return self._readable_array(f"{what}()").item()

    def __float__(self) -> float:
        # a boolean carries no derivative, and a traced one is branched on
        return float(bool(self) if self.dtype.kind == "b" else self._single_element("float"))

    def __int__(self) -> int:
        return int(bool(self) if self.dtype.kind == "b" else self._single_element("int"))

    def __complex__(self) -> complex:
        return complex(self._single_element("complex"))

    def __index__(self) -> int:
        if self.dtype.kind not in "iu":
            raise DtypeError(f"a size, count or index must be an integer, got a {self.spec} tensor.\n  Use int(x).")
        return int(self._single_element("index").__index__())

    def __bool__(self) -> bool:
        if self.size != 1:
            raise ShapeError(
                f"the truth of a tensor of shape {self.shape} is ambiguous.\n  Use pb.any(x) or pb.all(x)."
            )
        self.note_numbers()
        found = bool(self.value)
        if type(self.value) is not np.ndarray:
            raise_device_errors()
        return found

    def __format__(self, form: str) -> str:
        if not form:
            return str(self)
        return format(self.value if isinstance(self.value, Value) else self.detach().item(), form)

    def __repr__(self) -> str:
        if not is_array(self.value):
            return f"tensor({self.value!r})"
        numbers = np.array2string(to_host(self.value), separator=", ", prefix="tensor(")
        return f"tensor({', '.join([numbers, f'dtype={self.dtype}', *self.describe_origin()])})"

    def describe_origin(self) -> list[str]:
        """Where the tensor is, unless on the CPU, and how it is part of a graph."""
        parts = [] if self.device == "cpu" else [f"device={self.device!r}"]
        if self.node is not None:
            parts.append("requires_grad=True" if self.node.is_leaf else f"op={self.node.name}")
        return parts
