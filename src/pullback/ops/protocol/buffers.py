"""Buffers: arrays that a function makes while a transform runs it, as `y = np.zeros(n)`, to write values into.

Until a derivative is written into one it is a `ConstantBuffer`, an array of NumPy in every respect. At that moment its
values move into a tensor, and it and all its views become `TrackedBuffer`s: the same objects, for whoever holds them,
over that tensor. A view knows which elements of the whole are its own, so writing through a view works as in NumPy.

A `TrackedBuffer` is still an instance of NumPy's class, whose memory compiled code could read past any of its methods.
So that memory is left with NaNs, under a dtype that nothing converts to a number (`_sealed_dtype`): code that goes past
the methods raises, and never computes with stale numbers.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any
from weakref import ref

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ...arrays.buffers import Buffer, current_run
from ...arrays.tensor import Tensor, copy_variable, tensor
from ...arrays.value import Value
from ...arrays.views import as_tensor_view
from ...errors import GraphError
from ..index import indexing
from ..shape import reshaping
from .nested import carries_derivative, join, unwrap_nested

#: NumPy's functions that write into their first argument.
_WRITERS = frozenset((np.copyto, np.fill_diagonal, np.place, np.put, np.put_along_axis, np.putmask))
#: Attributes that are read from the array itself; all others are those of the tensor.
_OWN_NAMES = """
    __array_finalize__ __array_function__ __array_priority__ __array_ufunc__ __array_wrap__ __class__ __dict__
    _part_of adopt adopt_view assign astype base copy fill flat flatten itemsize memory_of ndim owner partition places
    places_in_whole put rewrite shape size sort unwrap view view_by views whole
"""
_own = frozenset(_OWN_NAMES.split())
#: Methods and attributes whose results are views, and functions that are written by means of these.
_VIEWS = frozenset(("T", "mT", "diagonal", "ravel", "reshape", "squeeze", "swapaxes", "transpose"))
_VIEW_FUNCTIONS = frozenset((
    np.reshape, np.ravel, np.transpose, np.swapaxes, np.moveaxis, np.rollaxis, np.squeeze, np.expand_dims, np.flip,
    np.fliplr, np.flipud, np.rot90, np.diagonal, np.split, np.array_split, np.hsplit, np.vsplit, np.dsplit,
    np.atleast_1d, np.atleast_2d, np.atleast_3d,
))  # fmt: skip


class ConstantBuffer(Buffer):
    """A buffer into which numbers were written, and no derivative yet."""

    __slots__ = ()

    def __setitem__(self, index: Any, value: Any) -> None:
        if carries_derivative(value) or carries_derivative(index):
            track(self)[index] = value
        else:
            Buffer.__setitem__(self, index, _as_constant(value))

    def fill(self, value: Any) -> None:
        self[...] = value

    def dot(self, other: Any, out: Any = None) -> Any:
        return np.dot(self, other, out=out)

    def put(self, indices: Any, values: Any, mode: Any = "raise") -> None:
        if carries_derivative(values):
            track(self).put(indices, values, mode)
        else:
            Buffer.put(self, indices, values, mode)

    def __imatmul__(self, other: Any) -> Any:  # type: ignore[misc]
        return self.assign(self @ other)

    @property
    def flat(self) -> Any:
        return _Flat(self)

    @flat.setter
    def flat(self, value: Any) -> None:
        self.flat[:] = value

    @property
    def real(self) -> Any:
        return Buffer.real.__get__(self)

    @real.setter
    def real(self, value: Any) -> None:
        _write_parts(self, value, self.view(np.ndarray).imag)

    @property
    def imag(self) -> Any:
        return Buffer.imag.__get__(self)

    @imag.setter
    def imag(self, value: Any) -> None:
        _write_parts(self, self.view(np.ndarray).real, value)

    def rewrite(self, write: Callable[[Any], Any]) -> Buffer:
        return track(self).rewrite(write)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if function in _WRITERS and self is args[0] and any(map(carries_derivative, (*args[1:], *kwargs.values()))):
            self.rewrite(lambda x: function(x, *args[1:], **kwargs))
            return None
        if any(issubclass(kind, TrackedBuffer) for kind in types):
            return NotImplemented  # NumPy asks from left to right, and the other knows what to do
        return as_buffer_views(Buffer.__array_function__(self, function, types, args, kwargs), *args)

    def __repr__(self) -> str:
        return repr(self.unwrap())

    def __reduce__(self) -> Any:
        return self.unwrap().__reduce__()


class TrackedBuffer(Buffer):
    """A buffer that holds derivatives: the array that NumPy code sees, over a tensor."""

    __slots__ = ()
    __hash__ = None

    def unwrap(self) -> Any:
        """The tensor; of a view, its elements, which count as a slice of the whole."""
        whole = self.whole
        if self.places is None:
            return whole
        return as_tensor_view(self._part_of(whole), whole, self._part_of)

    def _part_of(self, whole: Any) -> Any:
        return whole if self.places is None else indexing.getitem(reshaping.reshape(whole, (-1,)), self.places)

    def __getitem__(self, index: Any) -> Any:
        index = unwrap_nested(index)
        if not _is_basic(index):
            return indexing.getitem(self.unwrap(), index)
        view = Buffer.__getitem__(self, index)
        if not isinstance(view, TrackedBuffer):  # one element, which NumPy returns as a number
            return indexing.getitem(self.unwrap(), index)
        return self.adopt(view, self.places_in_whole()[index])

    def __setitem__(self, index: Any, value: Any) -> None:
        if not np.ndarray.flags.__get__(self).writeable:
            raise ValueError("assignment destination is read-only")
        index, value, whole = unwrap_nested(index), unwrap_nested(value), self.whole
        value = join(value) if isinstance(value, (list, tuple)) else value
        # where no tape records, results are tensors only if arguments are
        old = whole if whole.node is not None else whole.value
        if self.places is None:
            new = indexing.set_at(old, index, value)
        else:
            flat = indexing.set_at(reshaping.reshape(old, (-1,)), self.places[index], value)
            new = reshaping.reshape(flat, whole.shape)
        whole.rebind(new, "x[index] = value")

    def fill(self, value: Any) -> None:
        self[...] = value

    # the methods of an array that a tensor lacks, or has with other parameters

    def copy(self, order: Any = "C") -> Any:
        made: Any = np.zeros(self.shape, self.unwrap().dtype, order="F" if order == "F" else "C").view(ConstantBuffer)
        return track(made).assign(self.unwrap())

    def astype(self, dtype: Any, *args: Any, copy: bool = True, **kwargs: Any) -> Any:  # type: ignore[override]
        tensor = self.unwrap()
        return self if not copy and tensor.dtype == dtype else tensor.astype(dtype, *args, copy=copy, **kwargs)

    def view(self, *args: Any, **kwargs: Any) -> Any:
        return self.unwrap().view(*args, **kwargs) if args or kwargs else self[...]

    def flatten(self, order: Any = "C") -> Any:
        return self.ravel(order).copy()

    def put(self, indices: Any, values: Any, mode: Any = "raise") -> None:
        np.put(self, indices, unwrap_nested(values), mode)

    def sort(self, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None) -> None:
        self[...] = np.sort(self.unwrap(), axis, kind, order, stable=stable)

    def partition(self, kth: Any, axis: Any = -1, kind: Any = "introselect", order: Any = None) -> None:
        self[...] = np.partition(self.unwrap(), kth, axis, kind, order)

    @property
    def flat(self) -> Any:
        return _Flat(self)

    def __imatmul__(self, other: Any) -> Any:  # type: ignore[misc]
        return self.assign(self @ other)

    def rewrite(self, write: Callable[[Any], Any]) -> Buffer:
        variable = copy_variable(self.unwrap())
        write(variable)
        return self.assign(variable)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        out, values, call = options.pop("out", None), [unwrap_nested(x) for x in inputs], getattr(ufunc, method)
        options = {name: unwrap_nested(x) for name, x in options.items()}
        if method == "at":
            if not isinstance(inputs[0], Buffer):
                return call(*values)
            inputs[0].rewrite(lambda x: call(x, *values[1:]))
            return None
        if out is None:
            return call(*values, **options)
        if len(out) == 1 and isinstance(out[0], Buffer):
            return out[0].rewrite(lambda x: call(*values, **options, out=x))
        return call(*values, **options, out=unwrap_nested(out))

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if function in _VIEW_FUNCTIONS:
            return function.__wrapped__(*args, **kwargs)
        values, options = unwrap_nested(tuple(args)), {name: unwrap_nested(x) for name, x in kwargs.items()}
        if function in _WRITERS and isinstance(args[0], Buffer):
            args[0].rewrite(lambda x: function(x, *values[1:], **options))
            return None
        out = kwargs.get("out")
        if isinstance(out, Buffer):
            return out.rewrite(lambda x: function(*values, **{**options, "out": x}))
        return function(*values, **options)

    def __getattribute__(self, name: str) -> Any:
        if name in _own:
            return Buffer.__getattribute__(self, name)
        if name not in _VIEWS:
            found = getattr(self.unwrap(), name)
            if name not in ("real", "imag"):
                return found
            if name == "real" and found.dtype == self.whole.dtype:
                return self[...]
            return as_tensor_view(found, self.whole, lambda whole: getattr(self._part_of(whole), name))
        view, places = Buffer.__getattribute__(self, name), getattr(self.places_in_whole(), name)
        return functools.partial(self.view_by, view, places) if callable(view) else self.adopt(view, places)

    def places_in_whole(self) -> Any:
        """Which elements of the whole these are, in memory of the same order, which some functions go by."""
        if self.places is not None:
            return self.places
        plain = np.ndarray.view(self, np.ndarray)
        return _order_of(self.shape) if plain.flags.c_contiguous else _order_like(plain)

    def view_by(self, view: Any, places: Any, *args: Any, **kwargs: Any) -> Any:
        """What a method returns, by what NumPy's methods of this array and of its places return."""
        return self.adopt(view(*args, **kwargs), places(*args, **kwargs))

    def adopt(self, made: Any, places: Any) -> Any:
        """What NumPy made of this array, and which elements these are: another view of the whole, or a copy."""
        if made is self:
            return self
        if not isinstance(made, TrackedBuffer) or made.owner is not self.owner:
            return indexing.getitem(reshaping.reshape(self.whole, (-1,)), places)
        made.whole, made.places = self.whole, places
        return made

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "real":
            _write_parts(self, value, self.imag)
        elif name == "imag":
            _write_parts(self, self.real, value)
        elif name not in Buffer.__slots__:
            raise GraphError(f"an array that holds derivatives: {name} cannot be set.\n  Use x.{name} on the right.")
        else:
            Buffer.__setattr__(self, name, value)

    def __eq__(self, other: Any) -> Any:
        return np.equal(self, other)

    def __ne__(self, other: Any) -> Any:
        return np.not_equal(self, other)

    def __contains__(self, key: Any) -> bool:
        return bool((self == key).any())


def _write_parts(buffer: Buffer, real: Any, imag: Any) -> None:
    """`z.real = x` and `z.imag = x`."""
    buffer[...] = unwrap_nested(real) + 1j * unwrap_nested(imag)


def as_buffer_views(found: Any, *args: Any) -> Any:
    """What NumPy returned, with arrays of its own class that show the memory of an argument as views of that buffer."""
    if type(found) is tuple or type(found) is list:
        return type(found)(as_buffer_views(part, *args) for part in found)
    if type(found) is not np.ndarray or found.base is None:
        return found
    for x in args:
        if isinstance(x, Buffer) and np.may_share_memory(found, x.view(np.ndarray)):
            view = found.view(ConstantBuffer)
            if not isinstance(view.base, Buffer):  # which knows of the view
                view.memory_of = x.owner
                x.owner.adopt_view(view)
            return view
    return found


class _Flat:
    """`x.flat` of a buffer: all elements, the last axis fastest."""

    def __init__(self, buffer: Buffer) -> None:
        self.base = buffer

    def _place(self, index: Any) -> Any:
        places = np.arange(self.base.size)[index]
        return np.unravel_index(places, self.base.shape) if self.base.ndim else ()

    def __getitem__(self, index: Any) -> Any:
        return self.base[self._place(index)]

    def __setitem__(self, index: Any, value: Any) -> None:
        place, values = self._place(index), join(unwrap_nested(value))
        if values.ndim:  # NumPy repeats them as needed
            values = np.resize(values, np.shape(place)[1:])
        self.base[place] = values

    def __len__(self) -> int:
        return self.base.size

    def __iter__(self) -> Any:
        return iter(self[:])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.asarray(self.base.unwrap(), dtype).ravel()

    def copy(self) -> Any:
        return self[:]


def track(buffer: Buffer) -> TrackedBuffer:
    """Move the values of a buffer into a tensor: it, what it is a view of, and all other views hold derivatives now."""
    owner = buffer.owner
    references: Any = getattr(owner, "views", ())
    members = [owner, *(view for reference in references if (view := reference()) is not None)]
    plain = owner.view(np.ndarray)
    order = _logical_order(plain)
    if order is None or any(member.dtype != plain.dtype for member in members):
        raise GraphError(
            "x[index] = value: the array has a view of another dtype, or shares its memory in a way that derivatives "
            "cannot follow.\n  Write into a copy: x = x.copy()."
        )
    whole, start = tensor(plain), plain.ctypes.data
    places = [_places_of(member, order, start) for member in members]
    plain.fill(np.nan)  # what still sees this memory must not mistake it for the values
    run = current_run.get()
    if run is not None and run.makes_buffers:
        run.tracked.append(ref(owner))
    sealed = _sealed_dtype(plain.dtype.itemsize)
    for member, own in zip(members, places, strict=True):
        member.whole, member.places = whole, None if member is owner else own
        np.ndarray.dtype.__set__(member, sealed)  # type: ignore[attr-defined]
        member.__class__ = TrackedBuffer
    return buffer  # type: ignore[return-value]


def release(tracked: list[ref[Buffer]]) -> None:
    """Make arrays of NumPy's of the buffers that outlive the call, as a workspace that an object keeps for the next
    one: their values are constants from now on, and NaN where they are not known.
    """
    for reference in tracked:
        owner = reference()
        if type(owner) is not TrackedBuffer:
            continue
        numbers = _known_numbers(owner.whole)
        for member in (owner, *(view for view in map(_referent, getattr(owner, "views", ())) if view is not None)):
            object.__setattr__(member, "__class__", ConstantBuffer)
            np.ndarray.dtype.__set__(member, numbers.dtype)  # type: ignore[attr-defined]
            del member.whole, member.places
        owner.view(np.ndarray)[...] = numbers


def _referent(reference: ref[Buffer]) -> Any:
    return reference()


def _known_numbers(x: Any) -> Any:
    """The values of a tensor, or of a dual, below all derivatives; NaN where they are not known, as under vmap."""
    found = x
    while isinstance(found, Value):
        found = getattr(found, "value" if isinstance(found, Tensor) else "primal", None)
    return found if type(found) is np.ndarray else np.full((), np.nan, x.dtype)


def _logical_order(plain: Any) -> Any:
    """For each place in the memory of an array, which element lies there; None if there are gaps between elements."""
    reach = sum((n - 1) * stride for n, stride in zip(plain.shape, plain.strides, strict=True))
    if plain.size and (min(plain.strides, default=0) < 0 or reach != (plain.size - 1) * plain.itemsize):
        return None
    return _order_like(plain).ravel("K")


def _places_of(view: Buffer, order: Any, start: int) -> Any:
    """Which elements of the whole a view shows, by where they lie in memory."""
    if not view.size:
        return np.empty(view.shape, np.intp)
    ratio = order.itemsize / view.itemsize
    steps = [int(stride * ratio) for stride in view.strides]
    return as_strided(order[(view.ctypes.data - start) // view.itemsize :], view.shape, steps)


def _order_of(shape: tuple[int, ...]) -> Any:
    return np.arange(math.prod(shape)).reshape(shape)


def _order_like(plain: Any) -> Any:
    """The same, in memory as that of an array."""
    order = np.empty_like(plain, np.intp)
    order[...] = _order_of(plain.shape)
    return order


@functools.cache
def _sealed_dtype(itemsize: int) -> Any:
    """A dtype of that size that NumPy converts to no number; its names are in the error that says so."""
    return np.dtype([("an array that holds derivatives", f"V{itemsize - 1}"), ("use functions of pullback", "V1")])


def _as_constant(x: Any) -> Any:
    if isinstance(x, (list, tuple)):
        return type(x)(map(_as_constant, x)) if any(isinstance(part, Value) for part in x) else x
    return x.value if type(x) is Tensor else x


def _is_basic(index: Any) -> bool:
    """Whether an index makes a view."""
    parts = index if type(index) is tuple else (index,)
    return all(i is None or i is Ellipsis or type(i) in (int, slice) or isinstance(i, np.integer) for i in parts)


def _delegate(name: str) -> Any:
    """A special method that is the tensor's own."""

    def method(self: TrackedBuffer, *args: Any) -> Any:
        return getattr(self.unwrap(), name)(*args)

    method.__name__ = name
    return method


_DELEGATED = """
    __bool__ __complex__ __copy__ __deepcopy__ __float__ __format__ __index__ __int__ __reduce__ __reduce_ex__
    __repr__ __str__
"""
for _name in _DELEGATED.split():
    setattr(TrackedBuffer, _name, _delegate(_name))
