"""A compiled program judged on a call's arguments: NumPy, the fused steps, the planned ones and native code must agree.

The four are independent of each other from one on: NumPy evaluates the optimised graph equation by equation; the
interpreter runs the loops that fusion made of it, each buffer in memory of its own; then those that division and
planning made, all buffers in one arena at their offsets; the machine runs what was rendered from these.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...arrays.node import show_line
from ...arrays.spec import Spec, spec_of
from ...checkpoint.registry import may_run_again
from ...errors import MiscompiledError, PullbackError
from ...graph.ir import Graph
from ...ops.dispatch import compute
from ...ops.specialise import Equation, Symbol
from ..fuse import Step, Steps
from ..loops import Layout
from .memory import Memory, region_of
from .noise import ALLOWED
from .recorded import record_hosts
from .steps import Machine, Plan, describe, elements

__all__ = ["CHECK", "VERIFY", "Judge", "alone", "differs", "is_set"]

#: Variables: every compiled program runs beside the reference; the steps of every program are verified when made.
CHECK, VERIFY = "PULLBACK_CHECK", "PULLBACK_VERIFY"


def is_set(variable: str) -> bool:
    return os.environ.get(variable, "0") not in ("", "0")


def alone(steps: Steps) -> tuple[Sequence[Step], None]:
    """The steps as they are, each buffer in memory of its own."""
    return steps.steps, None


class Judge:
    """What is known of a program before it is called: the graph, the steps after fusion, and the plan of its arena."""

    def __init__(self, program: Graph, steps: Steps, final: Steps, plan: Plan, lines: dict[int, Any]) -> None:
        self.program = program
        self.lines = lines
        self.stages = (("after fusion", steps, alone), ("in the arena", final, plan))
        self.makers = {id(s): e for e in program.equations for s in e.results}
        self.recorded = record_hosts((steps, final))
        made = {layout.buffer: op for host, op in self.recorded.items() for layout in host.outs}
        #: Ops that run once, by the symbol of their first result.
        self.once = {
            id(symbol): made[layout.buffer]
            for symbol, layout in steps.places
            if layout.buffer in made and not may_run_again(self.makers[id(symbol)].op, self.makers[id(symbol)].static)
        }
        self.running = threading.RLock()

    def run(
        self,
        arrays: Sequence[Any],
        native: Callable[[Sequence[Any]], list[Any] | None],
        locate: Callable[[Sequence[Any]], str] = lambda given: "",
    ) -> list[Any] | None:
        """The results of the native code, if all stages agree with NumPy on a copy of the arguments. `locate` says, of
        arguments for which native code is wrong, in which step.
        """
        if not all(type(a) is np.ndarray for a in arrays):
            return native(arrays)  # which refuses them
        given = [np.array(a) for a in arrays]
        with self.running:
            for op in self.recorded.values():
                op.begin()
            found = native(arrays)
            if found is not None:
                self._compare_native(found, self.run_stages(given), lambda: locate(given))
        return found

    def run_stages(self, given: Sequence[Any]) -> Sequence[Any]:
        """The results and their noise, after NumPy and the stages before native code have agreed."""
        try:
            wanted = self._evaluate(given)
        except PullbackError as error:
            raise MiscompiledError(f"jit(check=True): NumPy refuses what native code computes: {error}") from error
        results: Sequence[Any] = ()
        for stage in self.stages:
            for op in self.recorded.values():
                op.rewind()
            results = self._stage(*stage, given, wanted)
        return results

    def _evaluate(self, arrays: Sequence[Any]) -> dict[int, Any]:
        """The value of each symbol, by NumPy op by op; of ops that must not run twice, what native code got."""
        known = {id(s): _as_argument(x, s.spec) for s, x in zip(self.program.inputs, arrays, strict=True)}
        with np.errstate(all="ignore"):
            for e in self.program.equations:
                once = self.once.get(id(e.results[0]))
                made = once.results[0] if once else compute(e.op, [known.get(id(a), a) for a in e.args], e.static)
                for s, value in zip(e.results, made if type(made) is tuple else (made,), strict=True):
                    known[id(s)] = _as_argument(np.asarray(value, s.spec.dtype), s.spec)
        return {key: np.asarray(x) for key, x in known.items()}

    def _stage(self, name: str, steps: Steps, plan: Plan, given: Sequence[Any], wanted: dict[int, Any]) -> list[Any]:
        """Run the steps of a stage; each value is compared as soon as it is complete. The results and their noise."""
        machine = Machine(plan)
        memory = machine.memory(steps)
        for i, (buffer, array) in enumerate(zip(steps.inputs, given, strict=True)):
            memory.bind(buffer, region_of(array, f"argument {i}"))
        running = plan(steps)[0]
        complete = _complete(steps, running)

        def after(number: int, memory: Memory) -> None:
            for symbol, layout in complete.get(number, ()):
                found, noise = memory[layout.buffer].read(elements(layout))
                where = f"step {number} ({describe(running[number])})"
                self._compare(found, wanted[id(symbol)], noise, symbol, f"{where} differs {name}")

        try:
            machine.run(steps, memory, after)
        except MiscompiledError as error:
            raise _named(name, error) from None
        return [self._result(name, i, memory, steps, wanted) for i in range(len(self.program.outputs))]

    def _result(self, stage: str, number: int, memory: Memory, steps: Steps, wanted: dict[int, Any]) -> Any:
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
        bad = differs(found, wanted, noise)
        if bad.any():
            at = tuple(int(i) for i in np.argwhere(bad)[0])
            raise MiscompiledError(
                f"jit(check=True): {what}.\n"
                f"  {self._equation(symbol)}\n"
                f"  Element {at}: got {found[at]}, wanted {wanted[at]} (within {ALLOWED * noise[at]:.1e}); "
                f"{int(bad.sum())} of {bad.size} elements differ.\n"
                "  This is an error in pullback: please report it with the function and the shapes of its arguments."
            )

    def _equation(self, symbol: Any) -> str:
        e = self.makers.get(id(symbol))
        if e is None:
            return "No equation: an argument or a constant is returned."
        line = self.lines.get(id(e.results[0]))
        return f"The equation: {_shown(e)}" + (f"\n  at {show_line(*line)}" if line is not None else "")


def _named(stage: str, error: MiscompiledError) -> MiscompiledError:
    text = str(error)
    return MiscompiledError(text if text.startswith("jit") else f"jit(check=True): {stage}, {text}")


def _shown(e: Equation) -> str:
    args = ", ".join(f"{spec_of(a)}" for a in e.args)
    static = "".join(f", {name}={repr(value)[:60]}" for name, value in e.static.items() if not callable(value))
    return f"{', '.join(str(s.spec) for s in e.results)} = {e.op.name}({args}{static})"


def _complete(steps: Steps, running: Sequence[Step]) -> dict[int, list[tuple[Symbol, Layout]]]:
    """Which values are complete after which step: the last that writes their buffer. Those in the memory of arguments
    are left out, since a donated one may be overwritten.
    """
    last = {buffer: number for number, step in enumerate(running) for buffer in step.writes()}
    found: dict[int, list[tuple[Symbol, Layout]]] = {}
    for symbol, layout in steps.places:
        if layout.buffer in last and layout.buffer.kind in ("arena", "output"):
            found.setdefault(last[layout.buffer], []).append((symbol, layout))
    return found


def differs(found: Any, wanted: Any, noise: Any) -> Any:
    """Where numbers are not the same, up to what rounding may change."""
    if found.dtype.kind not in "fc":
        return (found != wanted) & np.isfinite(noise)
    with np.errstate(all="ignore"):
        same = (found == wanted) | (np.isnan(found) & np.isnan(wanted))
        near = np.abs(found.astype(wanted.dtype) - wanted) <= ALLOWED * noise
    return ~(same | near | np.isinf(noise))


def _as_argument(x: Any, spec: Spec) -> Any:
    """An array as ops take it; where it stands for a Python number, that number, which gives way to other dtypes."""
    return x if spec.weak is None else spec.weak(x.item())
