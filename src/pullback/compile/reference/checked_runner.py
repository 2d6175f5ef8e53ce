"""A runner beside the reference: each call runs both, and raises `MiscompiledError` where they differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...arrays.spec import make_spec
from ..loop_ir import Buffer, Step, Steps
from ..pipeline import compile_steps, verify_placement
from ..schedule.recompute_recipes import rename_buffers
from ..target import Compilation, Options, Runner, Target
from .check import Judge, difference_mask
from .interpreter import Interpreter, describe
from .poisoned_memory import PoisonedMemory, region_of
from .recording import find_hosts


class CheckedRunner:
    """A `Runner` whose every call is judged."""

    direct = None
    why_fallback = ""

    def __init__(self, runner: Runner, lines: dict[int, Any]) -> None:
        c = runner.compilation
        assert c is not None
        assert c.program is not None
        verify_placement(c)
        self.runner = runner
        self.compilation = c
        self.judge = Judge(c.program, c.fused, c.planned, lines)

    @property
    def workspace(self) -> list[Any]:
        return self.runner.workspace

    def run(self, arrays: Sequence[Any]) -> list[Any] | None:
        return self.judge.run(arrays, self.runner.run, self._locate)

    def _locate(self, given: Sequence[Any]) -> str:
        # steps alone take NumPy's arrays
        on_host = all(s.device == "cpu" for s in self.compilation.specs)
        return find_first_wrong_step(self.compilation, given) if on_host else ""


def find_first_wrong_step(c: Compilation, given: Sequence[Any]) -> str:
    """A sentence that names the first step whose native code, compiled alone and run on the reference's memory at that
    point, differs from the reference.
    """
    memory = PoisonedMemory(None)
    for buffer, array in zip(c.fused.inputs, given, strict=True):
        memory.bind(buffer, region_of(array, "an argument"))
    for number, step in enumerate(c.fused.steps):
        # as the memory is before the step, for native code and the reference alike
        arrays = {b: _read_buffer(memory, b) for b in (*step.reads(), *step.writes()) if b.kind != "constant"}
        Interpreter().run_step(step, memory.__getitem__)
        if not find_hosts([step]):
            run_alone(step, arrays, c.target, c.options.fast)
            if any(_is_wrong(memory, b, found) for b, found in arrays.items()):
                return f"Its native code is wrong first in step {number} ({describe(step)}), compiled alone."
    return "Each step compiled alone is right, so it is their order, or memory that they share."


def _read_buffer(memory: PoisonedMemory, buffer: Buffer) -> Any:
    region = memory[buffer]
    return region.bytes.data[region.start : region.start + buffer.nbytes].copy().view(buffer.dtype)


def _is_wrong(memory: PoisonedMemory, buffer: Buffer, found: Any) -> bool:
    """Whether values differ from those in a buffer, where it has been written."""
    region = memory[buffer]
    begin = slice(region.start, region.start + buffer.nbytes, buffer.dtype.itemsize)
    there = region.bytes.writer[begin] == region.writer
    return bool((difference_mask(found, _read_buffer(memory, buffer), region.bytes.noise[begin]) & there).any())


def run_alone(step: Step, arrays: dict[Buffer, Any], target: Target, fast: bool = False) -> None:
    """Run a step that calls no Python in native code, in place on arrays for its buffers."""
    names = {b: Buffer("input", b.size, b.dtype, i) for i, b in enumerate(arrays)}
    steps = Steps([rename_buffers(step, names)], list(names.values()), [])
    specs = [make_spec((b.size,), b.dtype) for b in names]
    found = compile_steps(steps, specs, target, Options(fast=fast)).run([a.reshape(-1) for a in arrays.values()])
    assert found is not None
