"""Row tables: the memory that a row program runs on, and the native function that updates tensors by it."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...arrays.spec import Spec, spec_of
from ...arrays.tensor import Tensor
from ..computed_once import computed_once
from ..vocabulary import IDENTITY
from .program.parallel_call import PARALLEL
from .rows import CHUNK, Phase, Piece, RowCode
from .runtime.link import LEAST_EFFORT, LinkedCode, link
from .runtime.pool import POOL
from .runtime.pool_code import MAX_BLOCKS
from .runtime.row_code import FOLD, FOLD_KINDS, HEADER, PHASE, ROW_START, render_walk

_FASTCALL = 0x80
#: Where the arena of the pieces starts.
_ALIGNMENT = 64
#: The chunks that a block has at least: some tens of microseconds of work.
_MIN_CHUNKS = 256
#: A chunk of ones and a chunk of zeros: from the right place on, a mask for any rest of a row.
_MASK = np.repeat(np.array([True, False]), CHUNK)


class RowTable:
    """Rows to be updated by a row program: `specs` of the tensors, the arrays `kept` for each beside its value and its
    gradient, which are overwritten, and the numbers that all rows share.
    """

    def __init__(
        self, code: RowCode, specs: Sequence[Spec], kept: Sequence[Sequence[Any]], numbers: Sequence[Any], joint: bool
    ) -> None:
        self.code, self.kept = code, kept
        self._slots: dict[Any, int] = {}
        self._names_of_slots()
        self._memory = np.zeros(len(self._slots), np.int64)
        #: What the native code points into.
        self._held: list[Any] = []
        for number, x in enumerate(numbers):
            self.set_number(number, x)
        self._held += [*specs, *kept]
        chunks = sum(-(-spec.size // CHUNK) for spec in specs)
        self.blocks = max(1, min(MAX_BLOCKS, chunks // _MIN_CHUNKS))
        self._arena = self._new_arena()
        self._phases = np.array([self._phase_record(phase) for phase in code.phases], np.int64)
        words = {
            **self._row_words(specs), **self._block_words(), "chunks": chunks, "is_joint": joint or self.phases == 1,
            "phases": self.phases, "phase_records": self._phases.ctypes.data, **self._copy_words(),
            "tensor_type": id(Tensor), "array_type": id(np.ndarray), "mask": _MASK.ctypes.data, "parallel": 0,
            "failed_row": 0, "failed_gradient": 0,
        }  # fmt: skip
        self.header = np.array([words[name] for name in HEADER], np.int64)
        #: `step(values, gradients, runs)`, see `render_walk`.
        self.step = _make_step(self.header)

    def _row_words(self, specs: Sequence[Spec]) -> dict[str, int]:
        """The rows: the spec and the size of each tensor, and the addresses of its arrays."""
        dtype = self.code.arrays[0].spec.dtype
        arrays = len(self.code.arrays)
        rows = self._hold(np.zeros((len(specs), ROW_START + arrays), np.int64))
        for row, spec, own in zip(rows, specs, self.kept, strict=True):
            row[:ROW_START] = id(spec), spec.size
            row[ROW_START + 2 :] = [a.ctypes.data for a in own]  # those of value and gradient are found at each step
        return {
            "rows": len(specs), "row_words": rows.shape[1], "row_records": rows.ctypes.data, "arrays": arrays,
            "chunk": CHUNK, "chunk_bytes": CHUNK * dtype.itemsize, "item_bytes": dtype.itemsize, "dtype": id(dtype),
        }  # fmt: skip

    def _block_words(self) -> dict[str, int]:
        """For each block of the last phase a table with an arena of its own, and memory for the rest of a row."""
        phase = self.code.phases[-1]
        tables = self._hold(np.tile(self._piece_table(phase.body, phase), (self.blocks, 1)))
        tables[:, phase.body.writer.base] = [self._new_arena() for _ in range(self.blocks)]
        scratch = self._hold(np.zeros((self.blocks, len(self.code.arrays), CHUNK), self.code.arrays[0].spec.dtype))
        return {
            "blocks": self.blocks, "block_tables": tables.ctypes.data, "table_bytes": tables.strides[0],
            "scratch": scratch.ctypes.data, "scratch_bytes": scratch.strides[0],
        }  # fmt: skip

    def _copy_words(self) -> dict[str, int]:
        """The numbers that a run replaces."""
        pairs = [(self._address(("number", id(s))), self._address(("made", id(x)))) for s, x in self.code.states]
        copies = self._hold(np.array(pairs, np.int64))
        return {"copies": len(pairs), "copy_pairs": copies.ctypes.data}

    def _names_of_slots(self) -> None:
        """A word of memory for each number that the pieces take or make."""
        names: list[Any] = [("number", id(s)) for s in self.code.numbers]
        for phase in self.code.phases:
            names += [("made", id(x)) for x in (phase.scalars.outputs if phase.scalars is not None else ())]
            names += [(kind, id(e)) for e in phase.folds for kind in ("partial", "total")]
        for name in names:
            self._slots.setdefault(name, len(self._slots))

    def _pieces(self) -> list[Piece]:
        return [p for phase in self.code.phases for p in (phase.scalars, phase.body) if p is not None]

    def _hold(self, array: Any) -> Any:
        self._held.append(array)
        return array

    def _address(self, name: Any) -> int:
        return int(self._memory.ctypes.data) + 8 * self._slots[name]

    def _phase_record(self, phase: Phase) -> tuple[int, ...]:
        folds = [
            (
                self._address(("partial", id(e))), self._address(("total", id(e))), FOLD_KINDS[e.op.form.word],
                int(np.float64(IDENTITY[e.op.form.word]).view(np.int64)),
            )
            for e in phase.folds
        ]  # fmt: skip
        records = self._hold(np.array(folds, np.int64).reshape(-1, len(FOLD)))
        tables = [0 if p is None else self._piece_table(p, phase).ctypes.data for p in (phase.scalars, phase.body)]
        words = {
            "scalars": 0 if phase.scalars is None else self.code.linked.addresses[phase.scalars.name],
            "scalars_table": tables[0], "body": self.code.linked.addresses[phase.body.name], "body_table": tables[1],
            "folds": len(folds), "fold_records": records.ctypes.data,
        }  # fmt: skip
        return tuple(words[name] for name in PHASE)

    def _new_arena(self) -> int:
        """The address of memory that any of the pieces can work in."""
        arena = self._hold(np.zeros(_ALIGNMENT + max(p.workspace for p in self._pieces()), np.uint8))
        return int(arena.ctypes.data + -arena.ctypes.data % _ALIGNMENT)

    def start_threads(self) -> None:
        """Let the next steps of a long table run on the threads that compiled code has."""
        if POOL.wanted > 1:
            self._set_word("parallel", POOL.entries(link)[PARALLEL])
            if POOL.idle:
                POOL.start()

    def _piece_table(self, piece: Piece, phase: Phase) -> Any:
        """The table of pointers that a piece of a phase takes; those of rows are set as it runs."""
        writer = piece.writer
        table = self._hold(np.zeros(writer.next, np.int64))
        made = {id(x) for x in phase.scalars.outputs} if phase.scalars is not None and piece is phase.body else set()
        numbers, rows = ({id(s) for s in symbols} for symbols in (self.code.numbers, self.code.arrays))
        for x, buffer in zip(piece.inputs, piece.steps.inputs, strict=True):
            if x is not None and id(x) not in rows:
                kind = "number" if id(x) in numbers else "made" if id(x) in made else "total"
                table[writer.table[buffer]] = self._address((kind, id(x)))
        folds = {id(e) for e in phase.folds}
        for x, buffer in zip(piece.outputs, piece.steps.outputs, strict=True):
            if buffer.kind == "output":
                table[writer.table[buffer]] = self._address(("partial" if id(x) in folds else "made", id(x)))
        table[writer.base] = self._arena
        table[writer.base + 1] = self._hold(np.zeros(1, np.int64)).ctypes.data
        for buffer, constant in zip(writer.constant_buffers, writer.constants, strict=True):
            table[writer.table[buffer]] = self._hold(np.ascontiguousarray(constant)).ctypes.data
        return table

    def set_number(self, number: int, x: Any) -> None:
        """Give one of the shared numbers a value."""
        self._view(number)[...] = x

    def number(self, number: int) -> Any:
        """A shared number as it is now, as an array."""
        return self._view(number).copy()

    def _view(self, number: int) -> Any:
        spec = spec_of(self.code.numbers[number])
        return self._memory[self._slots["number", id(self.code.numbers[number])] :][:1].view(spec.dtype)[:1].reshape(())

    @property
    def phases(self) -> int:
        return len(self.code.phases)

    def select_phase(self, number: int | None) -> None:
        """Let `step` run one phase alone, the numbers being replaced after the last; None: all phases again."""
        first, count = (0, self.phases) if number is None else (number, 1)
        self._set_word("phases", count)
        self._set_word("phase_records", self._phases.ctypes.data + self._phases.strides[0] * first)
        self._set_word("copies", len(self.code.states) if first + count == self.phases else 0)

    def _set_word(self, name: str, value: int) -> None:
        self.header[HEADER.index(name)] = value

    def fold_totals(self, phase: int) -> list[Any]:
        """What a phase has folded, each as an array of one float64 to read and to write."""
        places = [self._slots["total", id(e)] for e in self.code.phases[phase].folds]
        return [self._memory[i : i + 1].view(np.float64) for i in places]

    @property
    def failed(self) -> tuple[int, bool]:
        """The row that the last step refused, -1 if it got another number of them, and whether for its gradient."""
        row, gradient = self.header[-2:].tolist()
        return row, bool(gradient)


def combine_folds(tables: Sequence[RowTable], phase: int) -> None:
    """Make the totals of a phase those of all tables together."""
    for fold, totals in zip(
        tables[0].code.phases[phase].folds, zip(*(t.fold_totals(phase) for t in tables), strict=True), strict=True
    ):
        combine = (np.add, np.minimum, np.maximum)[FOLD_KINDS[fold.op.form.word]]
        whole = functools.reduce(combine, totals)
        for total in totals:
            total[...] = whole


class _MethodDef(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


@computed_once
def _walk() -> tuple[_MethodDef, LinkedCode]:
    """The native walk over rows, which is the same for all tables, and what holds its code."""
    code = link(render_walk(_slot_offsets()), ["step"], effort=LEAST_EFFORT)
    return _MethodDef(b"step", code.addresses["step"], _FASTCALL, None), code


def _make_step(header: Any) -> Any:
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]
    return make(ctypes.addressof(_walk()[0]), header, None)


@functools.cache
def _slot_offsets() -> dict[str, int]:
    """Where a tensor's object has its slots: the places at which they are found in one."""
    probe, names = Tensor(), ("value", "spec", "_grad")
    marks = {name: object() for name in names}
    for name, mark in marks.items():
        setattr(probe, name, mark)
    words = (ctypes.c_void_p * (Tensor.__basicsize__ // 8)).from_address(id(probe))
    return {name: 8 * list(words).index(id(mark)) for name, mark in marks.items()}
