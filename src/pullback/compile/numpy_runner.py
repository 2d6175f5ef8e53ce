"""The runner without a compiler: NumPy (CuPy) executes the program op by op."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..arrays.backends import device_context, namespace_on
from ..arrays.spec import spec_of
from ..program.ir import Program
from ..program.run import run
from .lower.host_constants import move_constants_to_devices


class NumpyRunner:
    """A `Runner` that replays the equations."""

    compilation = None
    direct = None

    def __init__(self, program: Program, donated: dict[int, int], why_fallback: str = "") -> None:
        self.why_fallback = why_fallback
        self.donated = donated
        self.specs = [spec_of(o) for o in program.outputs]
        devices = [s.spec.device for s in program.inputs if s.spec.device != "cpu"]
        self.device = devices[0] if devices else "cpu"
        self.program = move_constants_to_devices(program) if devices else program

    @property
    def workspace(self) -> list[Any]:
        return []

    def run(self, arrays: Sequence[Any]) -> list[Any] | None:
        with device_context(self.device):
            found = run(self.program, arrays)
            # a result may be an argument, or a view of one
            outs = [namespace_on(s.device).array(x, s.dtype) for x, s in zip(found, self.specs, strict=True)]
            for result, number in self.donated.items():
                arrays[number][...] = outs[result]
                outs[result] = arrays[number]
        return outs
