"""The runner of native code: arguments are checked, and a program's pieces called, by one native function."""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...errors import IndexingError
from ..loop_ir import Buffer
from ..schedule.arena import round_up
from ..schedule.cost import estimate_nanoseconds
from ..schedule.index_checks import find_index_checks
from ..target import Compilation
from ..varying import Operand, mark_spec
from .program.operands import read_numbers_from_table
from .program.parallel_call import PARALLEL, has_blocks
from .runtime.callbacks import HostCallbacks
from .runtime.entry import make_python_function, render_entry
from .runtime.link import link
from .runtime.pool import POOL

_OUT_OF_RANGE = "jit: an index was out of range for the array it points into."


class CpuRunner:
    """A `Runner` in native code: one call of a function that checks the arrays itself."""

    def __init__(self, compilation: Compilation) -> None:
        self.compilation = compilation
        self.steps, self.code = compilation.planned, compilation.code
        self.donated, specs = compilation.options.donated, compilation.specs
        outs = compilation.out_specs
        self.specs = specs
        self.new_results = [(s.shape, s.dtype) for i, s in enumerate(outs) if i not in self.donated]
        #: Index checks to make before any input is overwritten.
        self.ranges = find_index_checks(self.steps.steps) if self.donated else []
        pieces = [p for p in self.code.pieces if isinstance(p, str)]
        self.is_one_piece = len(pieces) == len(self.code.pieces)
        buffers = [*self.steps.inputs, *self.steps.new_outputs]
        given = self._checked_specs([*specs, *(s for i, s in enumerate(outs) if i not in self.donated)])
        written = {*self.donated.values(), *range(len(specs), len(given))}
        self.size = len(buffers) + 2 + len(self.code.constants)
        long = self.is_one_piece and self.is_long()
        entry = render_entry(
            given, written, [self.code.table[b] for b in buffers], self.size, pieces if self.is_one_piece else [],
            Operand(long, "long") if self.steps.varies else long,
        )  # fmt: skip
        self.text, numbers = read_numbers_from_table(f"{self.code.text}\n{entry}")
        self.uses_pool = PARALLEL in self.text and has_blocks(self.steps)
        self.linked = link(self.text, ["call", *pieces], numbers)
        self.arena = self._new_arena()
        # what stays the same from call to call is written into the module once
        rest = (ctypes.c_void_p * self.size).from_address(self.linked.engine.get_global_value_address("rest"))
        rest[len(buffers)] = self._start_of(self.arena)
        for i, constant in enumerate(self.code.constants):
            rest[len(buffers) + 2 + i] = constant.ctypes.data
        self.callbacks = HostCallbacks(self.code.hosts, self.linked.engine) if self.code.hosts else None
        # the function refers to the method record, which must stay alive
        self.call, self._method = make_python_function(self.linked.addresses["call"], "compiled")
        self.arena_lock = threading.Lock()
        kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
        self.functions = {name: kind(self.linked.addresses[name]) for name in pieces}
        #: Where each result is: the input it overwrote, or ~i for the i-th new array; None if all are new.
        self.order: list[int] | None = None
        if self.donated:
            new = itertools.count()
            self.order = [self.donated[i] if i in self.donated else ~next(new) for i in range(len(outs))]

    def _checked_specs(self, specs: list[Any]) -> list[Any]:
        """What inputs and new results must be; sizes that vary are marked."""
        sibling = self.compilation.sibling
        if sibling is None:
            return specs
        outs = [s for i, s in enumerate(sibling.out_specs) if i not in self.donated]
        return [mark_spec(s, t) for s, t in zip(specs, (*sibling.specs, *outs), strict=True)]

    @property
    def workspace(self) -> list[Any]:
        return [*([self.arena] if self.steps.workspace else []), *self.code.constants]

    def run(self, arrays: Sequence[Any]) -> list[Any] | None:
        if self.ranges and not self._fits(arrays):
            return None  # the ranges are those of other arrays
        if not all(check.is_satisfied(arrays[check.number]) for check in self.ranges):
            raise IndexingError(f"{_OUT_OF_RANGE}\n  Nothing was written.")
        if self.uses_pool and POOL.idle:
            POOL.start()
        outs = [np.empty(shape, dtype) for shape, dtype in self.new_results]
        status = self.call(*arrays, *outs)
        if (status is not True or not self.is_one_piece) and not self._finish_call(status, arrays, outs):
            return None
        return outs if self.order is None else [arrays[i] if i >= 0 else outs[~i] for i in self.order]

    def _fits(self, arrays: Sequence[Any]) -> bool:
        """Whether the arrays are those the program was compiled for. Native code checks that too, after the indices."""
        pairs = zip(arrays, self.specs, strict=True)
        return all(
            type(a) is np.ndarray and (a.shape, a.dtype) == (s.shape, s.dtype) and a.flags.c_contiguous
            for a, s in pairs
        )

    def _finish_call(self, status: Any, arrays: Sequence[Any], outs: Sequence[Any]) -> bool:
        """What the native function did not do: pieces with other ops between them, or a call while another one has the
        arena; False if the arguments are not what the program was compiled for.
        """
        if status is True:
            self._run_pieces_in_own_arena(arrays, outs)
        elif status is ...:
            self._run_pieces(arrays, outs, self._new_arena())
        else:
            self._raise_failure(status)
        return status is not False

    def _raise_failure(self, status: Any) -> None:
        """Raise the error of a native call that returned None."""
        if self.callbacks is not None:
            self.callbacks.check()
        self._check_indices(status)

    def is_long(self) -> bool:
        """Whether the program releases the GIL: it takes long enough, or calls back into Python, where others run
        anyway.
        """
        target = self.compilation.target
        time = sum(estimate_nanoseconds(step, target.costs) for step in self.steps.steps)
        return bool(self.code.hosts) or time > target.limits.gil_release_ns

    def _new_arena(self) -> Any:
        return np.empty(self.steps.workspace + self.compilation.target.limits.alignment, np.uint8)

    def _start_of(self, arena: Any) -> int:
        """The first aligned address in an arena."""
        return round_up(arena.ctypes.data, self.compilation.target.limits.alignment)

    def _run_pieces_in_own_arena(self, arrays: Sequence[Any], outs: Sequence[Any]) -> None:
        """Run the pieces in the program's own arena; if another call is using it, in a new one."""
        # a second thread does not wait: it gets memory of its own
        acquired = self.arena_lock.acquire(blocking=False)
        try:
            self._run_pieces(arrays, outs, self.arena if acquired else self._new_arena())
        finally:
            if acquired:
                self.arena_lock.release()

    def _run_pieces(self, arrays: Sequence[Any], outs: Sequence[Any], arena: Any) -> None:
        """Run pieces of native code with ops that NumPy executes between them; the arguments are checked already."""
        status = ctypes.c_int(0)
        pointers = [*(a.ctypes.data for a in (*arrays, *outs)), self._start_of(arena), ctypes.addressof(status)]
        table = (ctypes.c_void_p * self.size)(*pointers, *(c.ctypes.data for c in self.code.constants))
        owners = dict(zip((*self.steps.inputs, *self.steps.new_outputs), (*arrays, *outs), strict=True))

        def flat_array(buffer: Buffer) -> Any:
            if buffer.kind == "arena":
                # offsets count from the first aligned byte
                at = self._start_of(arena) - arena.ctypes.data + buffer.offset
                return arena[at : at + buffer.nbytes].view(buffer.dtype)
            return (buffer.constant if buffer.kind == "constant" else owners[buffer]).reshape(-1)

        for piece in self.code.pieces:
            if isinstance(piece, str):
                self.functions[piece](ctypes.addressof(table))
                if status.value:
                    self._raise_failure(None)
            else:
                piece.run(flat_array)

    def _check_indices(self, status: Any) -> None:
        """Raise if the native function returned None: an index was out of range."""
        if status is None:
            # where arguments are donated, indices that are not computed were checked before
            lost = "\n  It was computed, so donated arguments may have been overwritten before."
            raise IndexingError(_OUT_OF_RANGE + (lost if self.donated else ""))
