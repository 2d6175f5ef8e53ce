"""Optimised program in, something to call on arrays out: native code, or the array library where there is none."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...arrays.spec import spec_of
from ...errors import IndexingError
from ...graph.ir import Graph
from ...ops.specialise import replay
from ..fuse import Steps
from ..loops import Host, Layout
from ..lower import lowered
from .callbacks import CallsBack
from .entry import entry_text, is_possible, knows, python_function
from .link import has_llvm, link, vector_bytes
from .program import Native, render_program

__all__ = ["Executable", "executable"]


class Executable:
    """Runs on contiguous arrays of the program's specs: `run(arrays)` answers the results as new arrays.

    Results in `donated` (result -> input) are the input's own array, overwritten.
    """

    def __init__(self, program: Graph, donated: dict[int, int]) -> None:
        self.program = program
        self.donated = donated
        self.specs = [s.spec for s in program.inputs]
        self.out_specs = [spec_of(o) for o in program.outputs]
        self.made = [(i, s.shape, s.dtype) for i, s in enumerate(self.out_specs) if i not in donated]

    def run(self, arrays: Sequence[Any]) -> list[Any] | None:
        """The results; None if an array is not what the program was made for."""
        found = replay(self.program.inputs, self.program.equations, self.program.outputs, arrays)
        outs = [np.array(x, s.dtype) for x, s in zip(found, self.out_specs, strict=True)]
        for result, number in self.donated.items():
            np.copyto(arrays[number], outs[result])
            outs[result] = arrays[number]
        return outs


class NativeExecutable(Executable):
    """The same in native code: one call of a function that checks the arrays itself."""

    def __init__(self, program: Graph, donated: dict[int, int], fast: bool) -> None:
        Executable.__init__(self, program, donated)
        self.steps: Steps = lowered(program.inputs, program.equations, program.outputs, donated)
        self.native: Native = render_program(self.steps, vector_bytes(), fast)
        pieces = [p for p in self.native.pieces if isinstance(p, str)]
        table = self.native.table
        fresh = [b for b in self.steps.outputs if b.kind == "output"]
        buffers = [*self.steps.inputs, *fresh]
        specs = [*self.specs, *(self.out_specs[i] for i, _, _ in self.made)]
        written = {*donated.values(), *range(len(self.specs), len(specs))}
        self.size = len(buffers) + 1 + len(self.native.constants)
        whole = all(isinstance(p, str) for p in self.native.pieces)
        self.text = (
            self.native.text
            + "\n"
            + entry_text(specs, written, [table[b] for b in buffers], self.size, pieces if whole else [])
        )
        self.linked = link(self.text, ["call", *pieces])
        self.arena = np.empty(self.native.arena + 64, np.uint8)
        start = -(-self.arena.ctypes.data // 64) * 64
        rest = (ctypes.c_void_p * self.size).from_address(self.linked.engine.get_global_value_address("rest"))
        rest[len(buffers)] = start
        for i, constant in enumerate(self.native.constants):
            rest[len(buffers) + 1 + i] = constant.ctypes.data
        self.calls_back = CallsBack(self.native.hosts, self.linked.engine) if self.native.hosts else None
        self.call, self._method = python_function(self.linked.addresses["call"], "compiled")
        self.whole = whole
        fresh_ones = itertools.count()
        #: Where each result is: the input it was written over, or ~i for the i-th new array; None if all are new.
        self.order = [donated.get(i, -1) for i in range(len(self.out_specs))] if donated else None
        if self.order is not None:
            self.order = [i if i >= 0 else ~next(fresh_ones) for i in self.order]

    def run(self, arrays: Sequence[Any]) -> list[Any] | None:
        if not self.whole:
            return self._in_pieces(arrays)
        outs = [np.empty(shape, dtype) for _, shape, dtype in self.made]
        answer = self.call(*arrays, *outs)
        if answer is not True:
            if self.calls_back is not None:
                self.calls_back.check()
            _check_indices(answer)
            return None
        return outs if self.order is None else [arrays[i] if i >= 0 else outs[~i] for i in self.order]

    def _in_pieces(self, arrays: Sequence[Any]) -> list[Any] | None:
        """Pieces of native code with ops of the array library between them."""
        outs = [np.empty(shape, dtype) for _, shape, dtype in self.made]
        if not self.call(*arrays, *outs):  # checks, and runs nothing
            return None
        start = -(-self.arena.ctypes.data // 64) * 64
        pointers = [a.ctypes.data for a in (*arrays, *outs)] + [start] + [c.ctypes.data for c in self.native.constants]
        table = (ctypes.c_void_p * self.size)(*pointers)
        owners = dict(
            zip(
                (*self.steps.inputs, *(b for b in self.steps.outputs if b.kind == "output")),
                (*arrays, *outs),
                strict=True,
            )
        )
        for piece in self.native.pieces:
            if isinstance(piece, str):
                ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self.linked.addresses[piece])(ctypes.addressof(table))
                status = ctypes.c_int.from_address(self.linked.engine.get_global_value_address("status"))
                if status.value:
                    status.value = 0
                    if self.calls_back is not None:
                        self.calls_back.check()
                    _check_indices(None)
            else:
                self._host(piece, owners, start)
        return outs if self.order is None else [arrays[i] if i >= 0 else outs[~i] for i in self.order]

    def _host(self, step: Host, owners: dict[Any, Any], start: int) -> None:
        args = [self._array(a, owners, start) if isinstance(a, Layout) else a for a in step.args]
        found = step.call(*args)
        for value, layout in zip(found if type(found) is tuple else (found,), step.outs, strict=True):
            self._array(layout, owners, start)[...] = value

    def _array(self, layout: Layout, owners: dict[Any, Any], start: int) -> Any:
        """A layout as a NumPy array."""
        buffer = layout.buffer
        if buffer.kind == "arena":
            at = start - self.arena.ctypes.data + buffer.offset
            flat = self.arena[at : at + buffer.nbytes].view(buffer.dtype)
        elif buffer.kind == "constant":
            flat = buffer.constant.reshape(-1)
        else:
            flat = owners[buffer].reshape(-1)
        item = buffer.dtype.itemsize
        return np.lib.stride_tricks.as_strided(
            flat[layout.offset :], layout.shape, tuple(s * item for s in layout.strides)
        )


def _check_indices(answer: Any) -> None:
    """The native function answers None if an index was out of range."""
    if answer is None:
        raise IndexingError("jit: an index was out of range for the array it points into.")


def executable(program: Graph, donated: dict[int, int], fast: bool = False) -> Executable:
    """The fastest form this machine has for a program."""
    specs = [spec_of(x) for x in (*program.inputs, *program.outputs)]
    if not knows(specs) or not has_llvm() or not is_possible() or any(s.spec.device != "cpu" for s in program.inputs):
        return Executable(program, donated)
    return NativeExecutable(program, donated, fast)
