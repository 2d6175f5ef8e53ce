"""Executables: an optimised program as something to call on arrays, by native code or, as a fallback, by NumPy."""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...arrays.spec import spec_of
from ...errors import IndexingError, MemoryBudgetError
from ...program.ir import Program
from ...program.run import run
from ..loop_ir import Host, Layout, Step, Steps
from ..lower.equations import lower_program
from ..reference.check import VERIFY, Judge, is_variable_set
from ..reference.verify import verify_arena, verify_steps
from ..schedule.arena import plan_arena
from ..schedule.cost import estimate_nanoseconds
from ..schedule.division import divide_steps
from ..schedule.index_checks import find_index_checks
from .isolation import find_first_wrong_step
from .memory_budget import fit_memory_budget
from .program.parallel_call import PARALLEL
from .program.render import RenderedProgram, render_program
from .runtime.callbacks import HostCallbacks
from .runtime.entry import can_check, is_abi_supported, make_python_function, render_entry
from .runtime.link import has_llvm, link, vector_bytes
from .runtime.pool import POOL

#: Programs that take longer than so many nanoseconds release the GIL.
GIL_RELEASE_NS = 100_000
_OUT_OF_RANGE = "jit: an index was out of range for the array it points into."


class Executable:
    """Runs on contiguous arrays of the program's specs: `run(arrays)` returns the results as new arrays.

    Results in `donated` (result -> input) are the input's own array, overwritten.
    """

    def __init__(self, program: Program, donated: dict[int, int]) -> None:
        self.program = program
        self.donated = donated
        self.specs = [s.spec for s in program.inputs]
        self.out_specs = [spec_of(o) for o in program.outputs]
        self.new_results = [(i, s.shape, s.dtype) for i, s in enumerate(self.out_specs) if i not in donated]

    @property
    def workspace(self) -> list[Any]:
        """The arrays it works in and keeps from call to call."""
        return []

    def run(self, arrays: Sequence[Any]) -> list[Any] | None:
        """The results; None if an array is not what the program was compiled for."""
        found = run(self.program, arrays)
        outs = [np.array(x, s.dtype) for x, s in zip(found, self.out_specs, strict=True)]
        for result, number in self.donated.items():
            np.copyto(arrays[number], outs[result])
            outs[result] = arrays[number]
        return outs


class NativeExecutable(Executable):
    """The same in native code: one call of a function that checks the arrays itself."""

    def __init__(self, program: Program, donated: dict[int, int], fast: bool, limit: int | None = None) -> None:
        Executable.__init__(self, program, donated)
        self.fused: Steps = lower_program(program.inputs, program.equations, program.outputs, donated)
        self.steps = self.fused
        self.native: RenderedProgram = render_program(self.steps, vector_bytes(), fast)
        if is_variable_set(VERIFY):
            self._verify()
        if limit is not None:
            self.steps, self.native = fit_memory_budget(limit, self.steps, self.native, fast)
            if is_variable_set(VERIFY):
                self._verify()  # offsets in the arena are those of the last plan
        pieces = [p for p in self.native.pieces if isinstance(p, str)]
        table = self.native.table
        new = [b for b in self.steps.outputs if b.kind == "output"]
        buffers = [*self.steps.inputs, *new]
        specs = [*self.specs, *(self.out_specs[i] for i, _, _ in self.new_results)]
        written = {*donated.values(), *range(len(self.specs), len(specs))}
        #: Index checks to make before any input is overwritten.
        self.ranges = find_index_checks(self.steps.steps) if donated else []
        self.size = len(buffers) + 2 + len(self.native.constants)
        one_piece = all(isinstance(p, str) for p in self.native.pieces)
        entries = [table[b] for b in buffers]
        entry = render_entry(
            specs, written, entries, self.size, pieces if one_piece else [], one_piece and self.is_long()
        )
        self.text = f"{self.native.text}\n{entry}"
        self.uses_pool = PARALLEL in self.text
        self.linked = link(self.text, ["call", *pieces])
        self.arena = self._new_arena()
        start = -(-self.arena.ctypes.data // 64) * 64
        rest = (ctypes.c_void_p * self.size).from_address(self.linked.engine.get_global_value_address("rest"))
        rest[len(buffers)] = start
        for i, constant in enumerate(self.native.constants):
            rest[len(buffers) + 2 + i] = constant.ctypes.data
        self.callbacks = HostCallbacks(self.native.hosts, self.linked.engine) if self.native.hosts else None
        self.call, self._method = make_python_function(self.linked.addresses["call"], "compiled")
        self.is_one_piece = one_piece
        self.arena_lock = threading.Lock()
        kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
        self.functions = {name: kind(self.linked.addresses[name]) for name in pieces}
        fresh_ones = itertools.count()
        #: Where each result is: the input it overwrote, or ~i for the i-th new array; None if all are new.
        self.order = [donated.get(i, -1) for i in range(len(self.out_specs))] if donated else None
        if self.order is not None:
            self.order = [i if i >= 0 else ~next(fresh_ones) for i in self.order]

    @property
    def workspace(self) -> list[Any]:
        return [*([self.arena] if self.native.arena else []), *self.native.constants]

    def _verify(self) -> None:
        """Verify the steps, and their places in the arena."""
        verify_steps(self.steps)
        verify_arena(_ArenaPlanner()(self.steps)[0])

    def run(self, arrays: Sequence[Any]) -> list[Any] | None:
        if self.ranges and not self._fits(arrays):
            return None  # the ranges are those of other arrays
        if not all(check.is_satisfied(arrays[check.number]) for check in self.ranges):
            raise IndexingError(f"{_OUT_OF_RANGE}\n  Nothing was written.")
        if self.uses_pool and POOL.idle:
            POOL.start()
        outs = [np.empty(shape, dtype) for _, shape, dtype in self.new_results]
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
        return bool(self.native.hosts) or sum(estimate_nanoseconds(step) for step in self.steps.steps) > GIL_RELEASE_NS

    def _new_arena(self) -> Any:
        return np.empty(self.native.arena + 64, np.uint8)

    def _run_pieces_in_own_arena(self, arrays: Sequence[Any], outs: Sequence[Any]) -> None:
        """Run the pieces in the program's own arena; if another call is using it, in a new one."""
        acquired = self.arena_lock.acquire(blocking=False)
        try:
            self._run_pieces(arrays, outs, self.arena if acquired else self._new_arena())
        finally:
            if acquired:
                self.arena_lock.release()

    def _run_pieces(self, arrays: Sequence[Any], outs: Sequence[Any], arena: Any) -> None:
        """Run pieces of native code with ops that NumPy executes between them; the arguments are checked already."""
        start = -(-arena.ctypes.data // 64) * 64
        status = ctypes.c_int(0)
        pointers = [*(a.ctypes.data for a in (*arrays, *outs)), start, ctypes.addressof(status)]
        table = (ctypes.c_void_p * self.size)(*pointers, *(c.ctypes.data for c in self.native.constants))
        owners = dict(
            zip(
                (*self.steps.inputs, *(b for b in self.steps.outputs if b.kind == "output")),
                (*arrays, *outs),
                strict=True,
            )
        )
        for piece in self.native.pieces:
            if isinstance(piece, str):
                self.functions[piece](ctypes.addressof(table))
                if status.value:
                    self._raise_failure(None)
            else:
                self._run_host(piece, owners, arena)

    def _check_indices(self, status: Any) -> None:
        """Raise if the native function returned None: an index was out of range."""
        if status is None:
            # where arguments are donated, indices that are not computed were checked before
            lost = "\n  It was computed, so donated arguments may have been overwritten before."
            raise IndexingError(_OUT_OF_RANGE + (lost if self.donated else ""))

    def _run_host(self, step: Host, owners: dict[Any, Any], arena: Any) -> None:
        args = [self._layout_as_array(a, owners, arena) if isinstance(a, Layout) else a for a in step.args]
        found = step.call(*args)
        for value, layout in zip(found if type(found) is tuple else (found,), step.outs, strict=True):
            self._layout_as_array(layout, owners, arena)[...] = value

    def _layout_as_array(self, layout: Layout, owners: dict[Any, Any], arena: Any) -> Any:
        """A layout as a NumPy array."""
        buffer = layout.buffer
        if buffer.kind == "arena":
            at = -arena.ctypes.data % 64 + buffer.offset
            flat = arena[at : at + buffer.nbytes].view(buffer.dtype)
        elif buffer.kind == "constant":
            flat = buffer.constant.reshape(-1)
        else:
            flat = owners[buffer].reshape(-1)
        item = buffer.dtype.itemsize
        return np.lib.stride_tricks.as_strided(
            flat[layout.offset :], layout.shape, tuple(s * item for s in layout.strides)
        )


class CheckedExecutable(NativeExecutable):
    """Native code and the reference: each call runs both, and raises `MiscompiledError` where they differ."""

    def __init__(
        self, program: Program, donated: dict[int, int], fast: bool, limit: int | None, lines: dict[int, Any]
    ) -> None:
        NativeExecutable.__init__(self, program, donated, fast, limit)
        self._verify()
        self.fast = fast
        self.judge = Judge(program, self.fused, self.steps, _ArenaPlanner(), lines)

    def run(self, arrays: Sequence[Any]) -> list[Any] | None:
        native = lambda given: NativeExecutable.run(self, given)  # noqa: E731
        return self.judge.run(arrays, native, lambda given: find_first_wrong_step(self.fused, given, self.fast))


class _ArenaPlanner:
    """The steps of programs as they are rendered: divided, and with the offsets of their buffers in the arena."""

    def __init__(self) -> None:
        self.known: dict[int, tuple[Sequence[Step], int]] = {}

    def __call__(self, steps: Steps) -> tuple[Sequence[Step], int]:
        if id(steps) not in self.known:
            running = divide_steps(steps.steps, vector_bytes())
            self.known[id(steps)] = running, plan_arena(running)
        return self.known[id(steps)]


def make_executable(
    program: Program,
    donated: dict[int, int],
    fast: bool = False,
    limit: int | None = None,
    lines: dict[int, Any] | None = None,
) -> Executable:
    """The fastest executable of a program on this machine, in at most `limit` bytes; with the user's `lines` of its
    equations, one that is checked against the reference.
    """
    specs = [spec_of(x) for x in (*program.inputs, *program.outputs)]
    if (
        not can_check(specs)
        or not has_llvm()
        or not is_abi_supported()
        or any(s.spec.device != "cpu" for s in program.inputs)
    ):
        if limit is not None:
            raise MemoryBudgetError(
                "jit: this program falls back to NumPy, whose memory is not planned, so no budget can be kept.\n"
                "  Leave memory_budget out, or run the function itself under pb.memory_budget, without jit."
            )
        return Executable(program, donated)
    if lines is not None:
        return CheckedExecutable(program, donated, fast, limit, lines)
    return NativeExecutable(program, donated, fast, limit)
