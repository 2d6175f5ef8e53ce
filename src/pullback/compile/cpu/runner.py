"""The runner of native code: arguments are checked, and a program's pieces called, by one native function."""

from __future__ import annotations

import copy
import ctypes
import functools
import itertools
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...errors import IndexingError
from ..loop_ir import Buffer, Host
from ..schedule.arena import round_up
from ..schedule.cost import estimate_nanoseconds
from ..schedule.index_checks import find_index_checks
from ..target import ARRAYS, SAVED_ARRAYS, Compilation
from .program.operands import read_numbers_from_table
from .program.parallel_call import PARALLEL, has_blocks
from .program.render import render_program
from .program.step_clock import ClockedBuild, StepClock, register_clock
from .runtime.callbacks import HostCallbacks
from .runtime.entry import WITH_RESULTS, ProgramEntry
from .runtime.link import link
from .runtime.pool import POOL
from .window.routine import register_symbols

_OUT_OF_RANGE = "jit: an index was out of range for the array it points into."


class CpuRunner:
    """A `Runner` in native code: one call of a function that checks the arrays itself."""

    why_fallback = ""

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
        self.size = len(buffers) + 2 + len(self.code.constants)
        self.text, numbers = read_numbers_from_table(self.code.text)
        self.uses_pool = PARALLEL in self.text and has_blocks(self.steps)
        register_symbols(self.text)
        self.linked = link(self.text, pieces, numbers)
        compilation.source = self.linked.source
        self.arena = self._new_arena()
        self.callbacks = HostCallbacks(self.code.hosts, self.linked.engine) if self.code.hosts else None
        new = [s for i, s in enumerate(outs) if i not in self.donated]
        places = [self.code.table[b] for b in buffers]
        self.entry = ProgramEntry(specs, new, {*self.donated.values()}, places, self.size)
        # what stays the same from call to call
        self.entry.rest[len(buffers)] = self._start_of(self.arena)
        self.entry.rest[len(buffers) + 2 :] = [c.ctypes.data for c in self.code.constants]
        self.entry.owners = (self.linked, self.arena, self.code.constants, self.callbacks)
        if self.is_one_piece:
            self.entry.set_pieces([self.linked.addresses[name] for name in pieces], self.is_long())
        self.call = self.entry.make_function(link, WITH_RESULTS)
        self.arena_lock = threading.Lock()
        #: An arena, and the ops between native code whose arrays are all in it.
        self.bound: tuple[Any, dict[Host, Callable[[], None]]] = (None, {})
        kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
        self.functions = {name: kind(self.linked.addresses[name]) for name in pieces}
        #: Where each result is: the input it overwrote, or ~i for the i-th new array; None if all are new.
        self.order: list[int] | None = None
        if self.donated:
            count = itertools.count()
            self.order = [self.donated[i] if i in self.donated else ~next(count) for i in range(len(outs))]

    @functools.cached_property
    def clocked(self) -> ClockedBuild | None:
        """The same program, in a build that times its steps; None where the machine has no clock for it."""
        if not register_clock():
            return None
        clock, made = StepClock(), copy.copy(self.compilation)
        made.code = render_program(self.steps, made.options.fast, made.target.limits, clock)
        return ClockedBuild(CpuRunner(made), tuple(clock.steps))

    @property
    def direct(self) -> CpuRunner:
        return self

    @property
    def workspace(self) -> list[Any]:
        return [*([self.arena] if self.steps.workspace else []), *self.code.constants]

    def run(self, arrays: Sequence[Any]) -> list[Any] | None:
        if self.ranges and not self._check_ranges(arrays):
            return None
        if self.uses_pool and POOL.idle:
            POOL.start()
        outs = [np.empty(shape, dtype) for shape, dtype in self.new_results]
        status = self.call(*arrays, *outs)
        if (status is not True or not self.is_one_piece) and not self._finish_call(status, arrays, outs):
            return None
        return self._in_order(arrays, outs)

    def make_call(self, takes: int, results: int = 0, marks: bytes = b"") -> Callable[..., Any]:
        """The native entry, which makes the results itself."""
        # the entry looks at arrays in less time than it would take to ask
        takes = ARRAYS if takes == SAVED_ARRAYS else takes
        native = self.entry.make_function(link, takes, results, marks)
        if not (self.uses_pool or self.ranges or self.order):
            return native  # type: ignore[no-any-return]

        def call(*inputs: Any) -> Any:
            if self.ranges and not self._check_ranges(inputs):
                return False
            if self.uses_pool and POOL.idle:
                POOL.start()
            found = native(*inputs)
            return found if self.order is None or type(found) is not list else self._in_order(inputs, found)

        return call

    def _check_ranges(self, arrays: Sequence[Any]) -> bool:
        """Whether arrays fit; raises if indices in them are out of range, before anything is written."""
        if not self._fits(arrays):
            return False  # the ranges are those of other arrays
        if not all(check.is_satisfied(arrays[check.number]) for check in self.ranges):
            raise IndexingError(f"{_OUT_OF_RANGE}\n  Nothing was written.")
        return True

    def _in_order(self, arrays: Sequence[Any], new: list[Any]) -> list[Any]:
        """All results: new arrays, and inputs that were overwritten."""
        return new if self.order is None else [arrays[i] if i >= 0 else new[~i] for i in self.order]

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
        elif status is None:
            self.raise_failure()
        return status is not False

    def raise_failure(self) -> None:
        """Raise the error of a native call that returned None: one of Python's, or an index was out of range."""
        if self.callbacks is not None:
            self.callbacks.check()
        # where arguments are donated, indices that are not computed were checked before
        lost = "\n  It was computed, so donated arguments may have been overwritten before."
        raise IndexingError(_OUT_OF_RANGE + (lost if self.donated else ""))

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
        start = self._start_of(arena)
        given = [*arrays, *outs]
        table = self.entry.rest.copy()  # constants are in it
        table[: len(given) + 2] = [*map(_address_of, given), start, ctypes.addressof(status)]
        address = _address_of(table)
        owners = dict(zip((*self.steps.inputs, *self.steps.new_outputs), given, strict=True))

        def flat_array(buffer: Buffer) -> Any:
            return owners[buffer].reshape(-1) if buffer in owners else _flat_array_in(arena, start, buffer)

        bound = self._bind_hosts(arena, start) if arena is self.arena else {}
        for piece in self.code.pieces:
            if isinstance(piece, str):
                self.functions[piece](address)
                if status.value:
                    self.raise_failure()
            elif piece in bound:
                bound[piece]()
            else:
                piece.run(flat_array)

    def _bind_hosts(self, arena: Any, start: int) -> dict[Host, Callable[[], None]]:
        """The ops between native code whose arrays are in the arena, ready to run: they are the same at each call."""
        if self.bound[0] is not arena:
            hosts = [p for p in self.code.pieces if isinstance(p, Host)]
            inner = [h for h in hosts if all(b.kind in ("arena", "constant") for b in (*h.reads(), *h.writes()))]
            self.bound = arena, {h: h.bind(lambda buffer: _flat_array_in(arena, start, buffer)) for h in inner}
        return self.bound[1]


def _address_of(array: Any) -> int:
    return array.__array_interface__["data"][0]  # type: ignore[no-any-return]


def _flat_array_in(arena: Any, start: int, buffer: Buffer) -> Any:
    """A buffer of an arena, whose offsets count from its first aligned address, or a constant."""
    if buffer.kind == "constant":
        return buffer.constant.reshape(-1)
    at = start - _address_of(arena) + buffer.offset
    return arena[at : at + buffer.nbytes].view(buffer.dtype)
