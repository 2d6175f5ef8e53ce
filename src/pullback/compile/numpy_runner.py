"""The runner without a compiler: NumPy (CuPy) executes the program op by op."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..arrays.spec import spec_of
from ..program.ir import Program
from ..program.run import run


class NumpyRunner:
    """A `Runner` that replays the equations."""

    compilation = None
    direct = None

    def __init__(self, program: Program, donated: dict[int, int]) -> None:
        self.program = program
        self.donated = donated
        self.dtypes = [spec_of(o).dtype for o in program.outputs]

    @property
    def workspace(self) -> list[Any]:
        return []

    def run(self, arrays: Sequence[Any]) -> list[Any] | None:
        found = run(self.program, arrays)
        outs = [np.array(x, dtype) for x, dtype in zip(found, self.dtypes, strict=True)]
        for result, number in self.donated.items():
            np.copyto(arrays[number], outs[result])
            outs[result] = arrays[number]
        return outs
