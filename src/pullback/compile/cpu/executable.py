"""Optimised program in, something to call on arrays out: native code, or the array library where there is none."""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...arrays.spec import spec_of
from ...errors import IndexingError, MemoryBudgetError
from ...graph.ir import Graph
from ...ops.specialise import replay
from ..cost import nanoseconds
from ..fuse import Step, Steps
from ..loops import Host, Layout
from ..lower import lowered
from ..memory import planned
from ..ranges import ranged
from ..reference.check import VERIFY, Judge, is_set
from ..reference.verify import verify_arena, verify_steps
from .callbacks import CallsBack
from .division import divided
from .entry import entry_text, is_possible, knows, python_function
from .isolation import first_wrong_step
from .link import has_llvm, link, vector_bytes
from .parallel import PARALLEL
from .pool import POOL
from .program import Native, render_program
from .within import within

__all__ = ["Executable", "executable"]

#: Programs that take longer than so many nanoseconds run without the interpreter's lock.
LONG = 100_000
_OUTSIDE = "jit: an index was out of range for the array it points into."


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

    @property
    def room(self) -> list[Any]:
        """The arrays it works in and keeps from call to call."""
        return []

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

    def __init__(self, program: Graph, donated: dict[int, int], fast: bool, limit: int | None = None) -> None:
        Executable.__init__(self, program, donated)
        self.fused: Steps = lowered(program.inputs, program.equations, program.outputs, donated)
        self.steps = self.fused
        self.native: Native = render_program(self.steps, vector_bytes(), fast)
        if is_set(VERIFY):
            self._verify()
        if limit is not None:
            self.steps, self.native = within(limit, self.steps, self.native, fast)
            if is_set(VERIFY):
                self._verify()  # places in the arena are those of the last plan
        pieces = [p for p in self.native.pieces if isinstance(p, str)]
        table = self.native.table
        fresh = [b for b in self.steps.outputs if b.kind == "output"]
        buffers = [*self.steps.inputs, *fresh]
        specs = [*self.specs, *(self.out_specs[i] for i, _, _ in self.made)]
        written = {*donated.values(), *range(len(self.specs), len(specs))}
        #: What is checked before anything is written over an input.
        self.ranges = ranged(self.steps.steps) if donated else []
        self.size = len(buffers) + 2 + len(self.native.constants)
        whole = all(isinstance(p, str) for p in self.native.pieces)
        entries = [table[b] for b in buffers]
        entry = entry_text(specs, written, entries, self.size, pieces if whole else [], whole and self.is_long())
        self.text = f"{self.native.text}\n{entry}"
        self.parallel = PARALLEL in self.text
        self.linked = link(self.text, ["call", *pieces])
        self.arena = self._new_arena()
        start = -(-self.arena.ctypes.data // 64) * 64
        rest = (ctypes.c_void_p * self.size).from_address(self.linked.engine.get_global_value_address("rest"))
        rest[len(buffers)] = start
        for i, constant in enumerate(self.native.constants):
            rest[len(buffers) + 2 + i] = constant.ctypes.data
        self.calls_back = CallsBack(self.native.hosts, self.linked.engine) if self.native.hosts else None
        self.call, self._method = python_function(self.linked.addresses["call"], "compiled")
        self.whole = whole
        self.working = threading.Lock()
        kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
        self.functions = {name: kind(self.linked.addresses[name]) for name in pieces}
        fresh_ones = itertools.count()
        #: Where each result is: the input it was written over, or ~i for the i-th new array; None if all are new.
        self.order = [donated.get(i, -1) for i in range(len(self.out_specs))] if donated else None
        if self.order is not None:
            self.order = [i if i >= 0 else ~next(fresh_ones) for i in self.order]

    @property
    def room(self) -> list[Any]:
        return [*([self.arena] if self.native.arena else []), *self.native.constants]

    def _verify(self) -> None:
        """The steps by themselves, and where they lie in the arena."""
        verify_steps(self.steps)
        verify_arena(_Arena()(self.steps)[0])

    def run(self, arrays: Sequence[Any]) -> list[Any] | None:
        if self.ranges and not self._fits(arrays):
            return None  # the ranges are those of other arrays
        if not all(check.holds(arrays[check.number]) for check in self.ranges):
            raise IndexingError(f"{_OUTSIDE}\n  Nothing was written.")
        if self.parallel and POOL.idle:
            POOL.start()
        outs = [np.empty(shape, dtype) for _, shape, dtype in self.made]
        answer = self.call(*arrays, *outs)
        if (answer is not True or not self.whole) and not self._went_on(answer, arrays, outs):
            return None
        return outs if self.order is None else [arrays[i] if i >= 0 else outs[~i] for i in self.order]

    def _fits(self, arrays: Sequence[Any]) -> bool:
        """Whether arrays are what the program was made for: what native code asks too, before indices are looked at."""
        pairs = zip(arrays, self.specs, strict=True)
        return all(
            type(a) is np.ndarray and (a.shape, a.dtype) == (s.shape, s.dtype) and a.flags.c_contiguous
            for a, s in pairs
        )

    def _went_on(self, answer: Any, arrays: Sequence[Any], outs: Sequence[Any]) -> bool:
        """What the native function did not do: pieces with other ops between them, or a call while another one has the
        arena; False if the arguments are not what the program was made for.
        """
        if answer is True:
            self._with_an_arena(arrays, outs)
        elif answer is ...:
            self._in_pieces(arrays, outs, self._new_arena())
        else:
            self._check(answer)
        return answer is not False

    def _check(self, answer: Any) -> None:
        """Raise what went wrong in a call that was answered None."""
        if self.calls_back is not None:
            self.calls_back.check()
        self._check_indices(answer)

    def is_long(self) -> bool:
        """Whether the program takes long enough for other threads of Python to run meanwhile, or calls Python, where
        they run anyway.
        """
        return bool(self.native.hosts) or sum(nanoseconds(step) for step in self.steps.steps) > LONG

    def _new_arena(self) -> Any:
        return np.empty(self.native.arena + 64, np.uint8)

    def _with_an_arena(self, arrays: Sequence[Any], outs: Sequence[Any]) -> None:
        """The pieces in the program's own arena; if another call is at work there, in a new one."""
        mine = self.working.acquire(blocking=False)
        try:
            self._in_pieces(arrays, outs, self.arena if mine else self._new_arena())
        finally:
            if mine:
                self.working.release()

    def _in_pieces(self, arrays: Sequence[Any], outs: Sequence[Any], arena: Any) -> None:
        """Pieces of native code with ops of the array library between them; the arguments are checked already."""
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
                    self._check(None)
            else:
                self._host(piece, owners, arena)

    def _check_indices(self, answer: Any) -> None:
        """The native function answers None if an index was out of range."""
        if answer is None:
            # those that are not computed were checked before, where something was given away
            lost = "\n  It was computed, so what was given away may have been overwritten before."
            raise IndexingError(_OUTSIDE + (lost if self.donated else ""))

    def _host(self, step: Host, owners: dict[Any, Any], arena: Any) -> None:
        args = [self._array(a, owners, arena) if isinstance(a, Layout) else a for a in step.args]
        found = step.call(*args)
        for value, layout in zip(found if type(found) is tuple else (found,), step.outs, strict=True):
            self._array(layout, owners, arena)[...] = value

    def _array(self, layout: Layout, owners: dict[Any, Any], arena: Any) -> Any:
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
    """Native code beside the reference: each call runs both, and raises `MiscompiledError` where they differ."""

    def __init__(
        self, program: Graph, donated: dict[int, int], fast: bool, limit: int | None, lines: dict[int, Any]
    ) -> None:
        NativeExecutable.__init__(self, program, donated, fast, limit)
        self._verify()
        self.fast = fast
        self.judge = Judge(program, self.fused, self.steps, _Arena(), lines)

    def run(self, arrays: Sequence[Any]) -> list[Any] | None:
        native = lambda given: NativeExecutable.run(self, given)  # noqa: E731
        return self.judge.run(arrays, native, lambda given: first_wrong_step(self.fused, given, self.fast))


class _Arena:
    """The steps of programs as they are rendered: divided, and with the places of their buffers in the arena."""

    def __init__(self) -> None:
        self.known: dict[int, tuple[Sequence[Step], int]] = {}

    def __call__(self, steps: Steps) -> tuple[Sequence[Step], int]:
        if id(steps) not in self.known:
            running = divided(steps.steps, vector_bytes())
            self.known[id(steps)] = running, planned(running)
        return self.known[id(steps)]


def executable(
    program: Graph,
    donated: dict[int, int],
    fast: bool = False,
    limit: int | None = None,
    lines: dict[int, Any] | None = None,
) -> Executable:
    """The fastest form this machine has for a program, in at most `limit` bytes; with the user's `lines` of its
    equations, beside the reference.
    """
    specs = [spec_of(x) for x in (*program.inputs, *program.outputs)]
    if not knows(specs) or not has_llvm() or not is_possible() or any(s.spec.device != "cpu" for s in program.inputs):
        if limit is not None:
            raise MemoryBudgetError(
                "jit: this program runs on the array library, whose memory nobody plans, so no budget can be kept.\n"
                "  Leave memory_budget out, or run the function itself under pb.memory_budget, without jit."
            )
        return Executable(program, donated)
    if lines is not None:
        return CheckedExecutable(program, donated, fast, limit, lines)
    return NativeExecutable(program, donated, fast, limit)
