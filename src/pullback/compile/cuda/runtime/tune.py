"""Which way of a choice is the fastest: each is run in a graph, and the result is remembered on disk.

Ways may add up in another order, so that programs return the same bits everywhere only where a rule decides (`TUNING`).
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ....settings import is_deterministic
from ... import cache
from ...loop_ir import Buffer
from ..launch_plan import Choice, Launch, LaunchPlan, LibraryProduct
from ..products.choose import SHARED_PRODUCT, count_multiplications
from .addresses import Addresses
from .issue import walk_actions
from .nvrtc import split_functions

if TYPE_CHECKING:
    from .runner import CudaRunner

_LOG = logging.getLogger("pullback")
#: The environment variable that has a rule decide where it is 0.
TUNING = "PULLBACK_TUNING"
#: How often a way runs in one graph: launching takes longer than one small product.
REPEATS = 20
_TRIALS = 3
_NEAR = 1.05


class Tuner:
    """Decides the choices of one program, each when it is first met."""

    def __init__(self, runner: CudaRunner) -> None:
        self._runner = runner
        self._chosen: dict[int, int] = {}

    def choose(self, choice: Choice) -> int:
        """The number of the way to go."""
        if id(choice) not in self._chosen:
            self._chosen[id(choice)] = self._decide(choice) if len(choice.ways) > 1 else 0
        return self._chosen[id(choice)]

    def decide_all(self, plan: LaunchPlan) -> None:
        """Decide all choices: none may be tried while a graph is recorded."""
        for action in walk_actions(plan):
            if isinstance(action, Choice):
                self.choose(action)

    def _decide(self, choice: Choice) -> int:
        if os.environ.get(TUNING, "1") in ("", "0") or is_deterministic():
            return choose_by_rule(choice)
        key = cache.key_of("choice", self._runner.driver.machine, *(self._describe(way) for way in choice.ways))
        known = cache.fetch(key)
        if known is not None and len(known) == 1 and known[0] < len(choice.ways):
            return known[0]
        times = [self._time(way) for way in choice.ways]
        # near ties go to the earlier one, so that noise does not decide which bits a program returns
        best = next(i for i, took in enumerate(times) if took <= _NEAR * min(times))
        cache.store(key, bytes([best]))
        return best

    def _describe(self, way: Sequence[Launch | LibraryProduct]) -> str:
        """All that the speed of a way depends on."""
        texts = function_texts(self._runner.text)
        parts: list[tuple[Any, ...]] = []
        for x in way:
            if isinstance(x, Launch):
                parts.append((texts.get(x.function, x.function), x.grid, x.block, x.shared_bytes))
            else:
                product = x.product
                matrices = [
                    (m.shape, m.strides, m.buffer.dtype.name) for m in (product.out, product.left, product.right)
                ]
                version = self._runner.driver.library_version()
                parts.append((version, matrices, product.alpha != 1, product.beta != 0, x.tf32, x.algorithm))
        return repr(parts)

    def _time(self, way: Sequence[Launch | LibraryProduct]) -> float:
        """Microseconds of a way, in memory of its own."""
        runner, driver = self._runner, self._runner.driver
        stream: int = runner.cupy.cuda.get_current_stream().ptr

        def issue(stream: int) -> None:
            for action in way:
                runner.issuer.run_action(action, runner.steps, at, stream)

        def issue_often(stream: int) -> None:
            for _ in range(REPEATS):
                issue(stream)

        try:
            memory, at = _spare_memory(runner, way)
            issue(stream)  # what is loaded or set up at first use
            graph = driver.capture(issue_often)
        except Exception as error:  # if every way fails, the first is taken and raises its error
            _LOG.info("a way to do a product cannot be tried on this GPU: %s", error)
            return float("inf")
        driver.launch_graph(graph, stream)
        took = min(driver.time(lambda: driver.launch_graph(graph, stream)) for _ in range(_TRIALS))
        driver.destroy_graph(graph)
        del memory
        runner.status.clear()  # numbers that were made up may have been indices
        return took / REPEATS


def choose_by_rule(choice: Choice) -> int:
    """The way to go without trying: tiles for a product that may share a launch, else the library's first proposal."""
    for number, way in enumerate(choice.ways):
        product = next((x.product for x in way if isinstance(x, LibraryProduct)), None)
        if product is not None:
            return 0 if count_multiplications(product) <= SHARED_PRODUCT else number
    return 0


def function_texts(text: str) -> dict[str, str]:
    """A digest of each function of a module, by its name, which is no part of it."""
    head, functions = split_functions(text)
    return {
        name: hashlib.sha256((head + body.replace(name, "", 1)).encode()).hexdigest()
        for name, body in functions.items()
    }


def _spare_memory(runner: CudaRunner, way: Sequence[Any]) -> tuple[list[Any], Addresses]:
    """Memory for what a way reads and writes, so that trying it changes nothing; and its addresses."""
    cupy = runner.cupy
    stream: int = cupy.cuda.get_current_stream().ptr
    buffers: dict[Buffer, int] = {}
    held = []
    for x in way:
        given = x.buffers if isinstance(x, Launch) else (*x.product.reads(), *x.product.writes())
        for buffer in given:
            if buffer.kind in ("scratch", "status", "constant") or buffer in buffers:
                continue
            # numbers that are none of the special ones, since those take less power
            array = cupy.ndarray((buffer.nbytes + 256,), "uint8")
            runner.driver.fill(array.data.ptr, 0x3C, buffer.nbytes + 256, stream)
            held.append(array)
            buffers[buffer] = array.data.ptr
    scratch = cupy.ndarray((runner.code.plan.scratch_bytes + 256,), "uint8")
    held.append(scratch)
    constants = {b: a.data.ptr for b, a in runner.constants.items()}
    uses_library = any(isinstance(x, LibraryProduct) for x in way)
    workspace = runner.driver.workspace_of(stream) if uses_library else 0
    return held, Addresses(buffers, constants, 0, scratch.data.ptr, runner.status.address, 0, workspace)
