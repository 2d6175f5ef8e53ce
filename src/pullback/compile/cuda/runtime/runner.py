"""The runner of programs on a GPU: arrays are CuPy's, and a call is one graph, recorded when its addresses repeat."""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Sequence
from typing import Any

from ....arrays.backends import device_context
from ....arrays.spec import make_spec
from ....arrays.tensor import Tensor, wrap
from ... import cache
from ...loop_ir import Buffer, Loop, Steps
from ...target import ARRAY, ARRAYS, CONSTANT, RECORDED, TRACKED, UNTRACKED, Compilation
from ..launch_plan import LaunchPlan, LibraryProduct, NestedPlans
from .addresses import FLAG_BYTES, Addresses
from .driver import Driver, find_driver
from .issue import Part, PlanIssuer, describe_launches, is_capturable, walk_actions
from .memory import ALIGNMENT, note_holder, overlap, take_memory, upload
from .status import STATUSES
from .tune import Tuner

#: The most graphs of one program on one stream, and streams that have memory for it.
MAX_GRAPHS, MAX_STREAMS = 8, 8
#: The alignment that code assumes of arrays.
_ARRAY_ALIGNMENT = 16
#: CuPy's number of the default stream that each thread has for itself.
_PER_THREAD = 2


class CudaRunner:
    """A `Runner` on one device. It runs on CuPy's current stream, and returns before the device is done."""

    why_fallback = ""

    def __init__(self, compilation: Compilation, driver: Driver | None = None) -> None:
        import cupy

        self.cupy, self.compilation = cupy, compilation
        self.steps, self.code = compilation.planned, compilation.code
        self.text = self.code.text
        self.donated, outs = compilation.options.donated, compilation.out_specs
        self.specs = compilation.specs
        self.name = cache.LABEL.get() or "a program"
        self.device = next(s.device for s in (*self.specs, *outs) if s.device != "cpu")
        self.device_id = int(self.device.partition(":")[2])
        self.driver = find_driver(self.device_id) if driver is None else driver
        with device_context(self.device):
            self.status = STATUSES.new_word(cupy, self.name, bool(self.donated))
            self.constants = {b: upload(cupy, b.constant) for b in _find_constants(self.code.plan, self.steps)}
            tuner = Tuner(self)
            self.issuer = PlanIssuer(self.driver, self.code, compilation.options.fast, tuner.choose)
            compilation.source = self.issuer.source
            tuner.decide_all(self.code.plan)
        compilation.launch = describe_launches(self.code.plan)
        self.uses_library = any(isinstance(x, LibraryProduct) for x in walk_actions(self.code.plan))
        self.new_results = [(s.shape, s.dtype) for i, s in enumerate(outs) if i not in self.donated]
        self.result_bytes = sum(s.nbytes for i, s in enumerate(outs) if i not in self.donated)
        self.written = sorted(set(self.donated.values()))
        self.is_one_graph = all(map(is_capturable, self.code.plan.actions))
        self.lock = threading.RLock()
        self.streams: dict[Any, StreamMemory] = {}
        counts = iter(range(len(outs)))
        self.order = [self.donated[i] if i in self.donated else ~next(counts) for i in range(len(outs))]
        note_holder(self)

    @property
    def direct(self) -> CudaRunner:
        return self

    @property
    def workspace(self) -> list[Any]:
        return [*(x.memory for x in self.streams.values()), *self.constants.values()]

    def held_bytes(self) -> int:
        return sum(int(x.nbytes) for x in self.workspace)

    def raise_failure(self) -> None:
        STATUSES.check()

    def run(self, arrays: Sequence[Any]) -> list[Any] | None:
        with device_context(self.device):
            given = [self._as_given(a, s) for a, s in zip(arrays, self.specs, strict=True)]
            if any(a is None for a in given):
                return None
            found = self.call(given, [a.data.ptr for a in given])
            if found is None:
                return None
            for i in self.written:
                if given[i] is not arrays[i]:
                    arrays[i][...] = given[i]
        return [arrays[i] if i >= 0 else found[~i] for i in self.order]

    def _as_given(self, array: Any, spec: Any) -> Any:
        """An array as the program takes it; None if it is another's. Numbers of the host are moved."""
        if type(array) is not self.cupy.ndarray:
            return self.cupy.asarray(array, spec.dtype) if spec.device == "cpu" and not spec.shape else None
        fits = (array.shape, array.dtype) == (spec.shape, spec.dtype) and array.flags.c_contiguous
        if not fits or array.data.device_id != self.device_id:
            return None
        return array if array.data.ptr % _ARRAY_ALIGNMENT == 0 else array.copy()

    def call(self, arrays: Sequence[Any], pointers: list[int]) -> list[Any] | None:
        """The new results for arrays that are as they should be, at their addresses; None if arrays overlap that must
        not.
        """
        if self.status.word[0]:
            STATUSES.check()
        ndarray = self.cupy.ndarray
        try:
            outs = [ndarray(shape, dtype) for shape, dtype in self.new_results]
        except MemoryError:
            outs = take_memory(lambda: [ndarray(*x) for x in self.new_results], "results", self.result_bytes)
        pointers += [out.data.ptr for out in outs]
        stream: int = self.cupy.cuda.get_current_stream().ptr
        memory = self.streams.get(stream)
        if memory is None or stream == _PER_THREAD:
            memory = self._find_memory(stream)
        parts = memory.graphs.get(key := tuple(pointers))
        if parts is None:
            return outs if self._run_new(memory, key, stream) else None
        for part in parts:
            if type(part) is int:
                self.driver.launch_graph(part, stream)
            else:
                part(stream)
        return outs

    def _find_memory(self, stream: int) -> StreamMemory:
        """The memory of this program on a stream: calls on one stream follow each other, those on two may not."""
        key = (stream, threading.get_ident()) if stream == _PER_THREAD else stream
        with self.lock:
            if key not in self.streams:
                if len(self.streams) >= MAX_STREAMS:
                    self.streams.pop(next(iter(self.streams))).close(self.driver)
                self.streams[key] = StreamMemory(self)
            return self.streams[key]

    def _run_new(self, memory: StreamMemory, key: tuple[int, ...], stream: int) -> bool:
        """A call at addresses that no graph has: the first runs launch by launch, the second is recorded. False if
        arrays overlap that must not.
        """
        starts, sizes = key[: len(self.specs)], [s.nbytes for s in self.specs]
        if self.written and overlap(starts, sizes, self.written):
            return False
        with self.lock:
            at = memory.addresses(self, key)
            if key not in memory.seen:
                memory.note(key)
                self.issuer.run(self.code.plan, self.steps, at, stream)
                return True
            parts = memory.record(self, key, at)
        for part in parts:
            self.issuer.run_part(part, stream)
        return True

    def make_call(self, takes: int, results: int = 0, marks: bytes = b"") -> Callable[..., Any]:
        """A direct call; see `DirectCalls`."""
        ndarray, contiguous = self.cupy.ndarray, _contiguity_of(self.cupy.ndarray)
        specs = [make_spec(s.shape, s.dtype, s.device) for s in self.specs]
        wanted = [(spec, spec.shape, spec.dtype, self.device_id) for spec in specs]
        count, order = len(wanted), self.order if self.donated else None
        out_specs = [make_spec(s.shape, s.dtype, s.device) for s in self.compilation.out_specs]
        device, pattern = self.device_id, marks if takes == RECORDED else None
        current_device, run = self.cupy.cuda.runtime.getDevice, self.call

        def call(*inputs: Any) -> Any:
            if len(inputs) != count or current_device() != device:
                return False
            arrays, pointers, tensors = [], [], 0
            for i, (spec, shape, dtype, place) in enumerate(wanted):
                x = inputs[i]
                mark = ARRAY
                if type(x) is Tensor:
                    if takes == ARRAYS:
                        return False
                    mark = CONSTANT if x.node is None else TRACKED
                    tensors += 1
                    x, known = x.value, x.spec is spec
                else:
                    known = False
                if pattern is None:
                    if mark == TRACKED and takes == UNTRACKED:
                        return b""
                elif mark != pattern[i]:
                    return b""
                if type(x) is not ndarray or not contiguous(x):
                    return False
                data = x.data
                if not known and (x.shape != shape or x.dtype != dtype or data.device_id != place):
                    return False
                if (pointer := data.ptr) & 15:
                    return False
                arrays.append(x)
                pointers.append(pointer)
            outs = run(arrays, pointers)
            if outs is None:
                return False
            if order is not None:
                outs = [arrays[i] if i >= 0 else outs[~i] for i in order]
            if tensors:
                for i in range(results):
                    outs[i] = wrap(outs[i], out_specs[i])
            if pattern is not None:
                outs[results:results] = arrays
            return outs

        return call


class StreamMemory:
    """What a program has for the calls of one stream: its arena with the scratch area behind it, and its graphs by the
    addresses of arguments and results.
    """

    def __init__(self, runner: CudaRunner) -> None:
        arena = -(-runner.steps.workspace // ALIGNMENT) * ALIGNMENT
        scratch = -(-runner.code.plan.scratch_bytes // ALIGNMENT) * ALIGNMENT
        total = arena + scratch + FLAG_BYTES
        make = lambda: runner.cupy.ndarray((total,), "uint8")  # noqa: E731
        self.memory = take_memory(make, f"the workspace of {runner.name}", total)
        start = self.memory.data.ptr
        self.places = start, start + arena, start + arena + scratch
        self.graphs: dict[tuple[int, ...], list[Part]] = {}
        self.seen: dict[tuple[int, ...], None] = {}
        self.constants = {b: a.data.ptr for b, a in runner.constants.items()}
        stream = runner.cupy.cuda.get_current_stream().ptr
        self.workspace = runner.driver.workspace_of(stream) if runner.uses_library else 0

    def addresses(self, runner: CudaRunner, key: Sequence[int]) -> Addresses:
        buffers: list[Buffer] = [*runner.steps.inputs, *runner.steps.new_outputs]
        own = dict(zip(buffers, key, strict=True))
        arena, scratch, flags = self.places
        return Addresses(own, self.constants, arena, scratch, runner.status.address, flags, self.workspace)

    def note(self, key: tuple[int, ...]) -> None:
        """Remember that addresses were seen once."""
        if len(self.seen) >= 4 * MAX_GRAPHS:
            del self.seen[next(iter(self.seen))]
        self.seen[key] = None

    def record(self, runner: CudaRunner, key: tuple[int, ...], at: Addresses) -> list[Part]:
        """Graphs for addresses; above their limit, the oldest one is changed."""
        if key in self.graphs:  # by another thread
            return self.graphs[key]
        plan, steps = runner.code.plan, runner.steps
        if len(self.graphs) >= MAX_GRAPHS:
            parts = self.graphs.pop(next(iter(self.graphs)))
            if runner.is_one_graph and runner.issuer.update(parts, plan, steps, at):
                self.graphs[key] = parts
                return parts
            _destroy(runner.driver, parts)
        self.graphs[key] = runner.issuer.record(plan, steps, at)
        return self.graphs[key]

    def close(self, driver: Driver) -> None:
        for parts in self.graphs.values():
            _destroy(driver, parts)
        self.graphs.clear()


def _destroy(driver: Driver, parts: Sequence[Part]) -> None:
    for part in parts:
        if isinstance(part, int):
            driver.destroy_graph(part)


def _contiguity_of(ndarray: Any) -> Callable[[Any], bool]:
    """What says whether an array is contiguous; CuPy's own flag takes a quarter of the time of its flags."""
    return operator.attrgetter("_c_contiguous" if hasattr(ndarray, "_c_contiguous") else "flags.c_contiguous")


def _find_constants(plan: LaunchPlan, steps: Steps) -> set[Buffer]:
    """The constants of all steps, those of nested programs included."""
    found = {b for step in steps.steps for b in (*step.reads(), *step.writes()) if b.kind == "constant"}
    loops = [step for step in steps.steps if isinstance(step, Loop)]
    nested = [action for action in plan.actions if isinstance(action, NestedPlans)]
    for loop, action in zip(loops, nested, strict=True):
        for program, inner in zip(loop.programs, action.plans, strict=True):
            found |= _find_constants(inner, program)
    return found
