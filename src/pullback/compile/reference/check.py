"""`jit(check=True)`: on a call's arguments NumPy, the fused steps, the planned steps and native code must agree.

Each of the four tests one stage of the compiler: NumPy evaluates the optimised graph equation by equation; the
interpreter runs the fused loops, each buffer in separate memory; then the divided and planned ones, all buffers in one
arena at their offsets; native code is rendered from these.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...arrays.backends import is_device_array, to_host
from ...arrays.call_site import format_line
from ...arrays.spec import Spec, spec_of
from ...errors import GraphError, MiscompiledError, PullbackError
from ...ops.dispatch import compute
from ...program.ir import Equation, Program, Symbol
from ...settings import override_native
from ..loop_ir import Layout, Steps
from ..lower.host_constants import move_constants_to_host
from ..vocabulary import is_narrow
from .interpreter import Interpreter, describe, element_indices
from .noise import TOLERANCE
from .poisoned_memory import PoisonedMemory, region_of
from .recording import record_hosts

#: The environment variable that has every compiled program checked against the reference.
CHECK = "PULLBACK_CHECK"


def _refuse_inner_effects(program: Program) -> None:
    """NumPy would run the body of a loop again, with what may only run once."""
    for e in program.equations:
        if e.effects.runs_once and not e.op.effects.runs_once:
            raise GraphError(
                f"jit(check=True): the reference would run the body of {e.op.name} again, and not all of it is pure.\n"
                "  Check a function whose loops and branches call pure ops alone."
            )


class Judge:
    """Compares a program's calls: it has the graph, the steps after fusion, and those that are placed in the arena."""

    def __init__(self, program: Program, steps: Steps, planned: Steps, lines: dict[int, Any]) -> None:
        _refuse_inner_effects(program)
        self.program = program = move_constants_to_host(program)
        self.lines = lines
        self.stages = (("after fusion", steps), ("in the arena", planned))
        self.makers = {id(s): e for e in program.equations for s in e.results}
        self.recorded = record_hosts((steps, planned))
        made = {layout.buffer: op for host, op in self.recorded.items() for layout in host.outs}
        #: Ops that run once, by the symbol of their first result.
        self.once = {
            id(symbol): made[layout.buffer]
            for symbol, layout in steps.places
            if layout.buffer in made and not self.makers[id(symbol)].op.is_repeatable(self.makers[id(symbol)].static)
        }
        self.running = threading.RLock()

    def run(
        self,
        arrays: Sequence[Any],
        native: Callable[[Sequence[Any]], list[Any] | None],
        locate: Callable[[Sequence[Any]], str] = lambda given: "",
    ) -> list[Any] | None:
        """The results of the native code, if all stages agree with NumPy on a copy of the arguments. `locate` finds the
        step in which native code is wrong.
        """
        if not all(type(a) is np.ndarray or is_device_array(a) for a in arrays):
            return native(arrays)  # which rejects them
        # native code may overwrite donated arguments, so the reference has copies
        given = [np.array(to_host(a)) for a in arrays]
        # recorded calls of ops are one list for all threads
        with self.running:
            for op in self.recorded.values():
                op.begin()
            found = native(arrays)
            if found is not None:
                self._compare_native([to_host(x) for x in found], self.run_stages(given), lambda: locate(given))
        return found

    def run_stages(self, given: Sequence[Any]) -> Sequence[Any]:
        """The results and their noise, after NumPy and the stages before native code have agreed."""
        # NumPy judges: not the native values of ops
        with override_native(False):
            return self._run_stages_on_numpy(given)

    def _run_stages_on_numpy(self, given: Sequence[Any]) -> Sequence[Any]:
        try:
            wanted = self._evaluate(given)
        except PullbackError as error:
            raise MiscompiledError(f"jit(check=True): NumPy raises where native code computes: {error}") from error
        results: Sequence[Any] = ()
        for stage in self.stages:
            for op in self.recorded.values():
                op.rewind()
            results = self._run_stage(*stage, given, wanted)
        return results

    def _evaluate(self, arrays: Sequence[Any]) -> dict[int, Any]:
        """The value of each symbol, by NumPy op by op; ops that must not run twice return what native code got."""
        known = {id(s): _as_argument(x, s.spec) for s, x in zip(self.program.inputs, arrays, strict=True)}
        with np.errstate(all="ignore"):
            for e in self.program.equations:
                once = self.once.get(id(e.results[0]))
                made = once.results[0] if once else compute(e.op, [known.get(id(a), a) for a in e.args], e.static)
                for s, value in zip(e.results, made if type(made) is tuple else (made,), strict=True):
                    known[id(s)] = _as_argument(np.asarray(value, s.spec.dtype), s.spec)
        return {key: np.asarray(x) for key, x in known.items()}

    def _run_stage(self, name: str, steps: Steps, given: Sequence[Any], wanted: dict[int, Any]) -> list[Any]:
        """Run the steps of a stage; each value is compared as soon as it is complete. The results and their noise."""
        memory = PoisonedMemory(steps.arena)
        for i, (buffer, array) in enumerate(zip(steps.inputs, given, strict=True)):
            memory.bind(buffer, region_of(array, f"argument {i}"))
        complete = _values_complete_after(steps)

        def after(number: int, memory: PoisonedMemory) -> None:
            for symbol, layout in complete.get(number, ()):
                found, noise = memory[layout.buffer].read(element_indices(layout))
                where = f"step {number} ({describe(steps.steps[number])})"
                self._compare(found, wanted[id(symbol)], noise, symbol, f"{where} differs {name}")

        try:
            Interpreter().run(steps, memory, after)
        except MiscompiledError as error:
            raise _with_stage(name, error) from None
        return [self._check_result(name, i, memory, steps, wanted) for i in range(len(self.program.outputs))]

    def _check_result(
        self, stage: str, number: int, memory: PoisonedMemory, steps: Steps, wanted: dict[int, Any]
    ) -> Any:
        output = self.program.outputs[number]
        spec, region = spec_of(output), memory[steps.outputs[number]]
        found, noise = region.read(np.arange(spec.size).reshape(spec.shape))
        value = wanted.get(id(output), output)
        self._compare(found, np.asarray(value, spec.dtype), noise, output, f"result {number} differs {stage}")
        return found, noise

    def _compare_native(self, found: Sequence[Any], results: Sequence[Any], locate: Callable[[], str]) -> None:
        for i, (x, (wanted, noise)) in enumerate(zip(found, results, strict=True)):
            try:
                self._compare(x, wanted, noise, self.program.outputs[i], f"result {i} differs in native code")
            except MiscompiledError as error:
                raise MiscompiledError(f"{error}\n  {locate()}") from None

    def _compare(self, found: Any, wanted: Any, noise: Any, symbol: Any, what: str) -> None:
        bad = difference_mask(found, wanted, noise)
        if bad.any():
            at = tuple(int(i) for i in np.argwhere(bad)[0])
            raise MiscompiledError(
                f"jit(check=True): {what}.\n"
                f"  {self._describe_equation(symbol)}\n"
                f"  Element {at}: got {found[at]}, wanted {wanted[at]} (within {TOLERANCE * noise[at]:.1e}); "
                f"{int(bad.sum())} of {bad.size} elements differ.\n"
                "  This is an error in pullback: please report it with the function and the shapes of its arguments."
            )

    def _describe_equation(self, symbol: Any) -> str:
        e = self.makers.get(id(symbol))
        if e is None:
            return "No equation: an argument or a constant is returned."
        line = self.lines.get(id(e.results[0]))
        return f"The equation: {_format_equation(e)}" + (f"\n  at {format_line(*line)}" if line is not None else "")


def _with_stage(stage: str, error: MiscompiledError) -> MiscompiledError:
    text = str(error)
    return MiscompiledError(text if text.startswith("jit") else f"jit(check=True): {stage}, {text}")


def _format_equation(e: Equation) -> str:
    args = ", ".join(f"{spec_of(a)}" for a in e.args)
    static = "".join(f", {name}={repr(value)[:60]}" for name, value in e.static.items() if not callable(value))
    return f"{', '.join(str(s.spec) for s in e.results)} = {e.op.name}({args}{static})"


def _values_complete_after(steps: Steps) -> dict[int, list[tuple[Symbol, Layout]]]:
    """Which values are complete after which step: the last that writes their buffer. Those in the memory of arguments
    are excluded, since a donated one may be overwritten.
    """
    # a buffer may be filled by several steps
    last = {buffer: number for number, step in enumerate(steps.steps) for buffer in step.writes()}
    found: dict[int, list[tuple[Symbol, Layout]]] = {}
    for symbol, layout in steps.places:
        if layout.buffer in last and layout.buffer.kind in ("arena", "output"):
            found.setdefault(last[layout.buffer], []).append((symbol, layout))
    return found


def difference_mask(found: Any, wanted: Any, noise: Any) -> Any:
    """Where values differ by more than rounding explains."""
    if is_narrow(found.dtype):
        found, wanted = found.astype(np.float32), np.asarray(wanted, np.float32)
    if found.dtype.kind not in "fc":
        return (found != wanted) & np.isfinite(noise)
    with np.errstate(all="ignore"):
        same = (found == wanted) | (np.isnan(found) & np.isnan(wanted))
        near = np.abs(found.astype(wanted.dtype) - wanted) <= TOLERANCE * noise
    return ~(same | near | np.isinf(noise))


def _as_argument(x: Any, spec: Spec) -> Any:
    """An array as ops take it; where it stands for a Python number, that number, which promotes weakly."""
    return x if spec.weak is None else spec.weak(x.item())
