"""The native entry: one function that Python calls for every program; it checks the arguments, makes the results and
runs the program's pieces.

It takes arrays, and tensors where a call allows them, and reads the fields of their objects: NumPy's are part of its
binary interface, a tensor's are the places of its slots. What a program wants of its arguments is data: records beside
a header, which is the `self` of the Python function. The function returns

- the results as a list, as tensors if an argument was one; or True, where the caller gave the arrays to write to;
- False if an argument is not what the program was compiled for; the caller then takes the slow path;
- bytes, one for each input, if other tensors are tracked than the call is for;
- None if an index was out of range, and Ellipsis if another call uses the arena.
"""

from __future__ import annotations

import ctypes
import functools
import sysconfig
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ....arrays.spec import Spec, make_spec
from ....arrays.tensor import Tensor
from ...computed_once import computed_once
from ...target import RECORDED
from .entry_code import HEADER, RECORD, render_entry

#: The name of the entry among the symbols.
ENTRY = "pb_call"
#: A function that takes arrays, those of the results too; the others are direct calls (`compile/target.py`).
WITH_RESULTS = 0
_CONTIGUOUS, _ALIGNED, _WRITEABLE = 0x1, 0x100, 0x400
_FASTCALL = 0x80
_EFFORT = (("always_inliner",), 0)
#: `PyArray_NewFromDescr` in the table of NumPy's C functions.
_NEW_FROM_DESCR = 94


def is_abi_supported() -> bool:
    """Whether objects have the expected binary layout: 64 bits, and a Python with the GIL."""
    return ctypes.sizeof(ctypes.c_void_p) == 8 and not sysconfig.get_config_var("Py_GIL_DISABLED")


@functools.cache
def entry_symbols() -> dict[str, int]:
    """The symbols that the generated text refers to, with their addresses."""
    api = ctypes.pythonapi
    objects = {"array_type": np.ndarray, "tensor_type": Tensor, "empty_text": "", "ellipsis": ...}
    objects |= {"true": True, "false": False, "none": None}
    found = {f"pb_{name}": id(x) for name, x in objects.items()}
    functions = {
        "incref": api.Py_IncRef, "decref": api.Py_DecRef, "give_lock": api.PyEval_SaveThread,
        "take_lock": api.PyEval_RestoreThread, "new_list": api.PyList_New, "new_object": api.PyType_GenericAlloc,
        "new_bytes": api.PyBytes_FromStringAndSize,
    }  # fmt: skip
    found |= {f"pb_{name}": ctypes.cast(f, ctypes.c_void_p).value or 0 for name, f in functions.items()}
    return found | {"pb_new_array": _numpy_function(_NEW_FROM_DESCR)}


def _numpy_function(number: int) -> int:
    """The address of one of NumPy's C functions."""
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    table = get(np._core._multiarray_umath._ARRAY_API, None)  # type: ignore[attr-defined]
    return ctypes.c_void_p.from_address(table + 8 * number).value or 0


@functools.cache
def _slot_offsets() -> dict[str, int]:
    """Where a tensor's object has its slots: the places at which they are found in one."""
    probe, names = Tensor(), ("value", "spec", "node", "_status")
    marks = {name: object() for name in names}
    for name, mark in marks.items():
        setattr(probe, name, mark)
    words = (ctypes.c_void_p * (Tensor.__basicsize__ // 8)).from_address(id(probe))
    return {name: 8 * list(words).index(id(mark)) for name, mark in marks.items()}


def _checkable_dtypes() -> list[np.dtype[Any]]:
    names = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64 float16 complex64 complex128"
    return [np.dtype(name) for name in names.split()]


def can_check(specs: Sequence[Spec]) -> bool:
    """Whether arrays of these specs can be checked: of dtypes of other packages, only bfloat16 has a stable address."""
    names = {"bfloat16", *(d.name for d in _checkable_dtypes())}
    return all(s.dtype.name in names for s in specs)


Link = Callable[..., Any]


class ProgramEntry:
    """What the entry needs to know of one program, as memory that it reads. `places` are those of the arrays' pointers
    in the table that the pieces get; `rest` is that table as each call starts with it.
    """

    def __init__(
        self, specs: Sequence[Spec], outs: Sequence[Spec], donated: set[int], places: Sequence[int], size: int
    ) -> None:
        self.inputs, self.outputs, self.donated = len(specs), len(outs), donated
        # those of symbols are guarded: results are tensors like any others
        self.given = [make_spec(s.shape, s.dtype) for s in (*specs, *outs)]
        self.rest = np.zeros(size, np.int64)
        self.dims = [np.array(spec.shape, np.int64) for spec in self.given]
        self.records = np.zeros((len(self.given), len(RECORD)), np.int64)
        for i, (spec, dims, record) in enumerate(zip(self.given, self.dims, self.records, strict=True)):
            written = i in donated or i >= self.inputs
            flags = _CONTIGUOUS | _ALIGNED | (_WRITEABLE if written else 0)
            dtype = np.dtype(spec.dtype.type)  # NumPy's own object, which lives for ever
            record[:] = (spec.ndim, id(dtype), flags, dims.ctypes.data, places[i], spec.nbytes, id(spec))
        self.pieces: Any = None
        self.taken: Any = None
        #: What the pieces and the table point into.
        self.owners: Any = None

    def set_pieces(self, addresses: Sequence[int], long: bool) -> None:
        """The native pieces to run, if Python does not. A `long` program releases the GIL while it runs; a concurrent
        call finds the arena taken.
        """
        self.pieces = np.array(addresses, np.int64)
        self.taken = np.zeros(1, np.int32) if long else None

    def make_function(self, link: Link, takes: int, results: int = 0, marks: bytes = b"") -> Any:
        """The entry as a Python function. The first `results` become tensors if an input is one. Where it records,
        inputs must be as in `marks`, and the list has their arrays between `results` and what else the program returns.
        """
        makes = takes != WITH_RESULTS
        order = np.array([i for i in self._written_first(makes) if self.given[i].nbytes], np.int64)
        pattern = np.frombuffer(marks, np.uint8) if takes == RECORDED else None
        words = {
            "inputs": self.inputs, "outputs": self.outputs, "size": len(self.rest), "rest": _address(self.rest),
            "pieces": -1 if self.pieces is None else len(self.pieces), "functions": _address(self.pieces),
            "records": _address(self.records), "status": len(self.given) + 1, "taken": _address(self.taken),
            "order": _address(order), "ordered": len(order), "written": sum(self._is_written(i, makes) for i in order),
            "tensors": takes, "results": results, "kept": 0 if pattern is None else self.inputs,
            "pattern": _address(pattern),
        }  # fmt: skip
        header = np.array([words[name] for name in HEADER], np.int64).view(_Header)
        header.held = (self, order, pattern)
        return _make_python_function(link, header)

    def _is_written(self, i: int, makes: bool) -> bool:
        """Whether an array of the caller's is written to: what the entry makes overlaps nothing."""
        return i in self.donated or (i >= self.inputs and not makes)

    def _written_first(self, makes: bool) -> list[int]:
        """The arrays of the caller's, those that are written first."""
        count = self.inputs if makes else len(self.given)
        return sorted(range(count), key=lambda i: not self._is_written(i, makes))


class _Header(np.ndarray[Any, Any]):
    """The `self` of a function, with what it points at."""

    held: tuple[Any, ...]


def _address(array: Any) -> int:
    return 0 if array is None else int(array.ctypes.data)


class _MethodDef(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


@computed_once
def load_entry(link: Link) -> tuple[_MethodDef, Any]:
    """The entry as a method record, to which all its functions refer; and its code."""
    # it computes nothing, so optimizing it would only take time
    code = link(render_entry(ENTRY, _slot_offsets()), [ENTRY], (), _EFFORT)
    return _MethodDef(b"compiled", code.addresses[ENTRY], _FASTCALL, None), code


def _make_python_function(link: Link, header: Any) -> Any:
    """The entry as a Python function of any number of arguments, with a header as its `self`."""
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]
    return make(ctypes.addressof(load_entry(link)[0]), header, None)
