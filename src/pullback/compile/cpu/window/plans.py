"""Plans of window functions: a job for some shapes, its tables, and the memory that a call works in."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ....ops.window.patches import Sizes
from .jobs import FIELDS, NUMBER
from .library import window_function
from .patch_tables import Table

_ALIGNMENT = 64
#: Multiplications from which a task of its own pays.
_TASK = 1 << 22
#: Memory of more bytes is not kept from call to call.
_MAX_KEPT = 1 << 24
#: The most tasks of a gradient by filters, each of which has sums of its own.
MAX_SUMS = 4


class Workspace:
    """The memory of a call, and a job that refers to it. Frames in it keep what is around grids from call to call."""

    __slots__ = ("address", "job", "memory")

    def __init__(self, plan: Plan) -> None:
        size = plan.dtype.itemsize
        self.memory = np.full(plan.size + _ALIGNMENT // size, plan.fill, plan.dtype)
        self.job = plan.template.copy()
        self.address = self.job.ctypes.data
        start = round_up(self.memory.ctypes.data, _ALIGNMENT)
        for name, offset in plan.memory.items():
            self.job[NUMBER[name]] = start + offset * size


@dataclass(slots=True, eq=False)
class Plan:
    """A job without the addresses of a call: what it needs besides, and its tables, which it must keep alive."""

    kind: str
    dtype: np.dtype[Any]
    template: Any
    tables: dict[str, Table]
    shape: Sizes
    tasks: int
    memory: dict[str, int]
    size: int
    #: What a frame holds around the grid.
    fill: float = 0.0
    spare: deque[Workspace] = field(default_factory=lambda: deque(maxlen=2))

    @property
    def is_framed(self) -> bool:
        return bool(self.template[NUMBER["is_framed"]])

    def run(self, out: Any, left: Any, right: Any) -> int:
        """Fill `out`; the job's status, which is zero unless the arrays are not what they should be."""
        try:
            space = self.spare.pop()  # no other call has it now
        except IndexError:
            space = Workspace(self)
        job = space.job
        job[:4] = out.ctypes.data, left.ctypes.data, right.ctypes.data, 0
        window_function(self.kind, self.dtype)(space.address, self.tasks)
        status = int(job[3])
        if space.memory.nbytes <= _MAX_KEPT:
            self.spare.append(space)
        return status


def make_plan(
    kind: str, dtype: np.dtype[Any], shape: Sizes, fields: dict[str, int], tables: dict[str, Table],
    memory: dict[str, int], size: int, fill: float = 0.0,
) -> Plan:  # fmt: skip
    template = np.zeros(len(FIELDS), np.int64)
    kept = {name: np.ascontiguousarray(table) for name, table in tables.items()}
    for name, value in {**fields, **{name: table.ctypes.data for name, table in kept.items()}}.items():
        template[NUMBER[name]] = value
    return Plan(kind, dtype, template, kept, shape, fields["tasks"], memory, round_up(size), fill)


def tasks_of(blocks: int, multiplications: int, most: int) -> tuple[int, int]:
    """How many tasks there are, and how many blocks each has."""
    wanted = max(1, min(blocks, most, multiplications // _TASK))
    rounds = -(-blocks // wanted)
    return -(-blocks // rounds), rounds


def round_up(n: int, multiple: int = 16) -> int:
    return -(-n // multiple) * multiple
