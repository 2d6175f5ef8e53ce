"""Plans of window functions: a job for some shapes, its tables, and the memory that a call works in."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ....ops.window.patches import Sizes
from .jobs import FIELDS, NUMBER
from .library import WindowFunction, window_function
from .patch_tables import Table

_ALIGNMENT = 64
#: Multiplications from which a task of its own pays.
_TASK = 1 << 22
#: Memory of more bytes is not kept from call to call.
_MAX_KEPT = 1 << 24
#: The most tasks of a gradient by filters, each of which has sums of its own.
MAX_SUMS = 4


@dataclass(slots=True, eq=False)
class Plan:
    """A job without the addresses of a call: what it needs besides, and its tables, which it must keep alive."""

    function: WindowFunction
    dtype: np.dtype[Any]
    template: Any
    tables: list[Table]
    shape: Sizes
    tasks: int
    memory: dict[str, int]
    size: int
    spare: deque[Any] = field(default_factory=lambda: deque(maxlen=2))

    def run(self, out: Any, left: Any, right: Any) -> Any:
        """Fill `out`. Frames keep their zeros from call to call, so a call gives its memory back."""
        try:
            memory = self.spare.pop()
        except IndexError:
            memory = np.zeros(self.size + _ALIGNMENT // self.dtype.itemsize, self.dtype)
        job, start = self.template.copy(), -(-memory.ctypes.data // _ALIGNMENT) * _ALIGNMENT
        job[:3] = out.ctypes.data, left.ctypes.data, right.ctypes.data
        for name, offset in self.memory.items():
            job[NUMBER[name]] = start + offset * self.dtype.itemsize
        self.function(job.ctypes.data, self.tasks)
        if memory.nbytes <= _MAX_KEPT:
            self.spare.append(memory)
        return out


def make_plan(
    kind: str, dtype: np.dtype[Any], shape: Sizes, fields: dict[str, int], tables: dict[str, Table],
    memory: dict[str, int], size: int,
) -> Plan:  # fmt: skip
    template = np.zeros(len(FIELDS), np.int64)
    kept = {name: np.ascontiguousarray(table) for name, table in tables.items()}
    for name, value in {**fields, **{name: table.ctypes.data for name, table in kept.items()}}.items():
        template[NUMBER[name]] = value
    return Plan(
        window_function(kind, dtype), dtype, template, list(kept.values()), shape, fields["tasks"], memory, size
    )


def tasks_of(blocks: int, multiplications: int, most: int) -> tuple[int, int]:
    """How many tasks there are, and how many blocks each has."""
    wanted = max(1, min(blocks, most, multiplications // _TASK))
    rounds = -(-blocks // wanted)
    return -(-blocks // rounds), rounds


def round_up(n: int, multiple: int = 16) -> int:
    return -(-n // multiple) * multiple
