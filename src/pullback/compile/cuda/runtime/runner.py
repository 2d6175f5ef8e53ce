"""The runner of programs on a GPU: arrays are CuPy's, and a call is one graph, recorded when its addresses repeat."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ....arrays.backends import device_context
from ....arrays.spec import Spec
from ... import cache
from ...loop_ir import Buffer, Step
from ...schedule.arena import round_up
from ...target import Compilation
from ..launch_plan import Action, Choice, HostCall, Launch, LaunchPlan, LibraryProduct, NestedPlans
from .addresses import FLAG_BYTES, NUMBER_BYTES, Addresses
from .direct_call import make_direct_call
from .driver import Driver, find_driver
from .issue import Part, PlanIssuer, describe_launches, is_conditional, take_choices, walk_actions, why_on_host
from .memory import ALIGNMENT, note_holder, out_of_memory, overlap, upload
from .movable import MovableGraph
from .recycling import ResultArrays, large_bytes_of
from .repeated_call import RepeatedCall, Round
from .short_plans import PreparedLaunches, find_short_plan
from .status import STATUSES
from .tune import Tuner

#: The most graphs of one program on one stream, and streams that have memory for it.
MAX_GRAPHS, MAX_STREAMS = 8, 8
#: More graphs are kept while they have no more than so many nodes in all.
MAX_NODES = 256
#: So many arrays of a result are held, to be used again.
_HELD_RESULTS, _HELD_RESULTS_OF_SHORT_PLANS = 8, 64
#: A short plan gets a graph for addresses that came so often before.
_REPEATS_BEFORE_GRAPH = 2
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
            self.status = STATUSES.new_words(cupy, self.name, bool(self.donated), self.code.sites)
            # looked at in every call
            self.words, self.clean, self.has_status = self.status.words, self.status.words.tobytes(), self.code.sites
            self.constants = self._upload(_find_constants(self.code.plan))
            tuner = Tuner(self)
            self.issuer = PlanIssuer(self.driver, self.code, compilation.options.fast, tuner.choose)
            compilation.source = self.issuer.source
            tuner.decide_all(self.code.plan)
            self.short_plan = find_short_plan([*take_choices(self.code.plan, tuner.choose)])
            cupy.cuda.get_current_stream().synchronize()  # constants are there, whatever stream a call is on
        plan = self.code.plan
        compilation.launch, compilation.scratch = describe_launches(plan, self.driver), plan.scratch_bytes
        self.uses_library = any(isinstance(x, LibraryProduct) for x in walk_actions(plan))
        new = [s for i, s in enumerate(outs) if i not in self.donated]
        held = _HELD_RESULTS if self.donated or self.short_plan is None else _HELD_RESULTS_OF_SHORT_PLANS
        large = large_bytes_of(cupy, self.device_id)
        self.results = [ResultArrays(cupy, s.shape, s.dtype, s.nbytes, held, large) for s in new]
        self.holds_results = all(each.holds for each in self.results)
        self.result_bytes = sum(s.nbytes for s in new)
        self.current_stream, self.launch_graph = cupy.cuda.get_current_stream, self.driver.launch_graph
        self.written = sorted(set(self.donated.values()))
        # what overwrites arguments asks whether they overlap, which is remembered with a graph
        if self.written:
            self.short_plan = None
        self.numbers = [i for i, s in enumerate(self.specs) if s.device == "cpu"]
        self.buffers: list[Buffer] = [*self.steps.inputs, *self.steps.new_outputs]
        # short programs are called from many places of an eager loop, each with addresses of its own
        self.max_graphs = max(MAX_GRAPHS, MAX_NODES // max(1, len(plan.actions)))
        self.is_one_graph = bool(plan.actions) and not any(why_on_host(x, self.driver) for x in plan.actions)
        # a condition belongs to the graph that it was made for
        self.can_update = self.is_one_graph and not any(map(is_conditional, walk_actions(plan)))
        # a loop of many rounds takes longer to launch one by one than to be recorded; the library is set up by a call
        has_chunks = any(isinstance(x, NestedPlans) and x.chunks is not None for x in walk_actions(plan))
        self.is_long = self.is_one_graph and has_chunks and not self.uses_library
        self.lock = threading.RLock()
        self.streams: dict[Any, StreamMemory] = {}
        counts = iter(range(len(outs)))
        self.order = [self.donated[i] if i in self.donated else ~next(counts) for i in range(len(outs))]
        note_holder(self)

    def _upload(self, constants: set[Buffer]) -> dict[Buffer, Any]:
        try:
            return {b: upload(self.cupy, b.constant) for b in constants}
        except MemoryError as error:
            raise out_of_memory(f"the constants of {self.name}", sum(b.nbytes for b in constants)) from error

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
            given: list[Any] = []
            for array, spec in zip(arrays, self.specs, strict=True):
                found = self._as_given(array, spec)
                if found is None:
                    return None
                given.append(found)
            pointers = [x if isinstance(x, bytes) else x.data.ptr for x in given]
            outs = self.call(pointers, recycles=False)
            if outs is None:
                return None
            for i in self.written:
                if given[i] is not arrays[i]:
                    arrays[i][...] = given[i]
        return [arrays[i] if i >= 0 else outs[~i] for i in self.order]

    def _as_given(self, array: Any, spec: Spec) -> Any:
        """An array as the program takes it, a number of the host as its bytes; None if it is another's."""
        if type(array) is not self.cupy.ndarray:
            fits = spec.device == "cpu" and np.shape(array) == spec.shape
            return np.asarray(array, spec.dtype).tobytes() if fits else None
        fits = (array.shape, array.dtype) == (spec.shape, spec.dtype) and array.flags.c_contiguous
        if not fits or spec.device == "cpu" or array.data.device_id != self.device_id:
            return None
        return array if array.data.ptr % _ARRAY_ALIGNMENT == 0 else array.copy()

    def call(self, pointers: list[Any], recycles: bool = True) -> list[Any] | None:
        """The new results for arrays at these addresses and numbers with these bytes, which are as they should be;
        None if arrays overlap that must not. Instruments count references, so that they get arrays of their own.
        """
        if self.has_status and self.words.tobytes() != self.clean:
            STATUSES.check()
        stream: int = self.current_stream(self.device_id).ptr
        memory = self.streams.get(stream)
        if memory is None or stream == _PER_THREAD:
            memory = self._find_memory(stream)
        # what belongs to one call stays together on its stream, since calls share the arena
        with memory.lock:
            memory.taken += 1
            outs = []
            for each in self.results:
                out, address = each.take(stream) if recycles else each.make()
                outs.append(out)
                pointers.append(address)
            if self.numbers:
                memory.put_numbers(self, pointers, stream)
            parts = memory.graphs.get(key := tuple(pointers))
            if parts is None:
                return outs if self._run_new(memory, key, stream) else None
            for part in parts:
                if type(part) is int:
                    self.launch_graph(part, stream)
                else:
                    part(stream)
        return outs

    def call_again(self, repeated: RepeatedCall) -> list[Any] | None:
        """The same for arrays that were there before: of their results, a set that nothing refers to any more."""
        if not self.holds_results:
            return self.call(repeated.addresses.copy())
        if self.has_status and self.words.tobytes() != self.clean:
            STATUSES.check()
        stream: int = self.current_stream(self.device_id).ptr
        memory = self.streams.get(stream)
        if memory is not None and memory is repeated.memory:
            with memory.lock:
                found = repeated.next if repeated.taken == memory.taken else None
                found = found or repeated.find_round()
                # graphs come and go
                if found is not None and (parts := memory.graphs.get(found.key)) is not None:
                    for part in parts:
                        if type(part) is int:
                            self.launch_graph(part, stream)
                        else:
                            part(stream)
                    results = [entry[0] for entry, _ in found.results]
                    # the device computes meanwhile
                    memory.taken += 1
                    repeated.taken, repeated.next = memory.taken, repeated.find_round()
                    if repeated.next is None and repeated.needs_spare(self.result_bytes):
                        self._add_spare(repeated, memory, stream)
                    return results
        pointers = repeated.addresses.copy()
        outs = self.call(pointers)
        if outs is not None and stream != _PER_THREAD:
            self._remember_round(repeated, stream, tuple(pointers))
        return outs

    def _remember_round(self, repeated: RepeatedCall, stream: int, key: tuple[int, ...]) -> None:
        """The results at some addresses, if they are in their rings and there is a graph for them."""
        memory = self.streams.get(stream)
        if memory is None or key not in memory.graphs:
            return
        with memory.lock:
            given = zip(self.results, key[len(self.specs) :], strict=True)
            held = [each.find(stream, address) for each, address in given]
            results = [x for x in held if x is not None]
            if len(results) == len(held):
                repeated.add_round(memory, Round(results, key))

    def _add_spare(self, repeated: RepeatedCall, memory: StreamMemory, stream: int) -> None:
        """Another round, with arrays of its own."""
        taken = [each.take_new(stream) for each in self.results]
        key = (*repeated.addresses, *(address for _, address in taken))
        memory.record(self, key, memory.addresses(self, key))
        self._remember_round(repeated, stream, key)

    def _find_memory(self, stream: int) -> StreamMemory:
        """The memory of this program on a stream: calls on one stream follow each other, those on two may not."""
        key = (stream, threading.get_ident()) if stream == _PER_THREAD else stream
        with self.lock:
            if key not in self.streams:
                if len(self.streams) >= MAX_STREAMS:
                    del self.streams[next(iter(self.streams))]
                self.streams[key] = StreamMemory(self, stream)
            return self.streams[key]

    def _run_new(self, memory: StreamMemory, key: tuple[int, ...], stream: int) -> bool:
        """A call at addresses that no graph has; False if arrays overlap that must not."""
        starts, sizes = key[: len(self.specs)], [s.nbytes for s in self.specs]
        if self.written and overlap(starts, sizes, self.written):
            return False
        if self.short_plan is not None and not memory.is_steady(self, key):
            memory.prepare(self).issue(key, stream)
            return True
        at = memory.addresses(self, key)
        parts = memory.find_parts(self, key, at) if self.short_plan is None else memory.record(self, key, at)
        if parts is None:
            self.issuer.run(self.code.plan, self.steps, at, stream)
            return True
        for part in parts:
            self.issuer.run_part(part, stream)
        return True

    def make_call(self, takes: int, results: int = 0, marks: bytes = b"") -> Callable[..., Any]:
        """A direct call; see `DirectCalls`."""
        return make_direct_call(self, takes, results, marks)


class StreamMemory:
    """What a program has for the calls of one stream: its arena with the scratch area behind it, and its graphs by the
    addresses of arguments and results. One of them may be `floating`: it is changed for addresses that are new.
    """

    def __init__(self, runner: CudaRunner, stream: int) -> None:
        sizes = (runner.steps.workspace, runner.code.plan.scratch_bytes, FLAG_BYTES, NUMBER_BYTES * len(runner.specs))
        ends = [*itertools.accumulate(round_up(size, ALIGNMENT) for size in sizes)]
        try:
            self.memory = runner.cupy.ndarray((ends[-1],), "uint8")
        except MemoryError as error:
            raise out_of_memory(f"the workspace of {runner.name}", ends[-1]) from error
        start = int(self.memory.data.ptr)
        self.places = [start, *(start + end for end in ends[:-1])]
        self.driver, self.lock = runner.driver, runner.driver.lock_of(stream)
        self.graphs: dict[tuple[int, ...], list[Part]] = {}
        self.seen: dict[tuple[int, ...], None] = {}
        self.repeats: dict[tuple[int, ...], int] = {}
        self.floating: tuple[int, ...] | None = None
        #: How often results were taken from the rings.
        self.taken = 0
        self.movable: MovableGraph | None = None
        self.prepared: PreparedLaunches | None = None
        self.numbers: dict[int, bytes] = {}
        self.constants = {b: a.data.ptr for b, a in runner.constants.items()}
        self.workspace = runner.driver.workspace_of(stream) if runner.uses_library else 0

    def addresses(self, runner: CudaRunner, key: Sequence[int]) -> Addresses:
        own = dict(zip(runner.buffers, key, strict=True))
        arena, scratch, flags, _ = self.places
        return Addresses(own, self.constants, arena, scratch, runner.status.address, flags, self.workspace)

    def prepare(self, runner: CudaRunner) -> PreparedLaunches:
        """The launches of a short plan, which take arguments and results at any address."""
        if self.prepared is None:
            assert runner.short_plan is not None
            at = self.addresses(runner, [0] * len(runner.buffers))
            self.prepared = PreparedLaunches(
                self.driver, runner.issuer.function_of, runner.short_plan, runner.buffers, at
            )
        return self.prepared

    def is_steady(self, runner: CudaRunner, key: tuple[int, ...]) -> bool:
        """Whether these addresses come again and again, and there is room for their graph."""
        if len(self.graphs) >= runner.max_graphs:
            return False
        count = self.repeats.pop(key, 0) + 1
        if len(self.repeats) >= 4 * runner.max_graphs:
            del self.repeats[next(iter(self.repeats))]
        self.repeats[key] = count
        return count > _REPEATS_BEFORE_GRAPH

    def put_numbers(self, runner: CudaRunner, pointers: list[Any], stream: int) -> None:
        """Numbers of the host on the device, written where they have changed; their bytes become addresses."""
        for i in runner.numbers:
            place, data = self.places[3] + NUMBER_BYTES * i, pointers[i]
            if self.numbers.get(i) != data:
                runner.driver.write(place, data, stream)
                self.numbers[i] = data
            pointers[i] = place

    def find_parts(self, runner: CudaRunner, key: tuple[int, ...], at: Addresses) -> list[Part] | None:
        """Graphs for addresses that have none yet. Those seen before get their own; new ones the floating graph, which
        is made at the second of them, or at the first of a long loop. None if launches are to be issued one by one.
        """
        if key in self.seen:
            return self.record(runner, key, at)
        is_first = not self.seen
        if len(self.seen) >= 4 * runner.max_graphs:
            del self.seen[next(iter(self.seen))]
        self.seen[key] = None
        if (is_first and not runner.is_long) or not runner.is_one_graph:
            return None
        if self.movable is None:
            with runner.lock:  # another stream may record meanwhile
                parts = self.record(runner, key, at)
                sizes = [b.nbytes for b in runner.buffers]
                self.movable = MovableGraph(self.driver, parts[0], runner.issuer.product_places, key, sizes)
            self.floating = key
            return parts
        if self.floating is None or not self.movable.move(key):
            return self.record(runner, key, at) if runner.is_long else None
        self.graphs[key] = self.graphs.pop(self.floating)
        self.floating = key
        return self.graphs[key]

    def record(self, runner: CudaRunner, key: tuple[int, ...], at: Addresses) -> list[Part]:
        """Graphs for addresses; above their limit, the oldest is changed."""
        plan, steps = runner.code.plan, runner.steps
        if len(self.graphs) >= runner.max_graphs:
            oldest = next(k for k in self.graphs if k != self.floating)
            parts = self.graphs.pop(oldest)
            with runner.lock:
                is_updated = runner.can_update and runner.issuer.update(parts, plan, steps, at)
            if is_updated:
                self.graphs[key] = parts
                return parts
            _destroy(self.driver, parts)
        with runner.lock:
            self.graphs[key] = runner.issuer.record(plan, steps, at)
        return self.graphs[key]

    def __del__(self) -> None:
        for parts in getattr(self, "graphs", {}).values():
            _destroy(self.driver, parts)


def _destroy(driver: Driver, parts: Sequence[Part]) -> None:
    for part in parts:
        if isinstance(part, int):
            driver.destroy_graph(part)


def _find_constants(plan: LaunchPlan) -> set[Buffer]:
    """The constants of all actions, those of nested plans included."""
    return {b for action in walk_actions(plan) for b in _buffers_of(action) if b.kind == "constant"}


def _buffers_of(action: Action) -> Iterable[Buffer]:
    if isinstance(action, Launch):
        return action.buffers
    if isinstance(action, Choice):
        return ()
    step: Step = action.product if isinstance(action, LibraryProduct) else _step_of(action)
    return (*step.reads(), *step.writes())


def _step_of(action: HostCall | NestedPlans) -> Step:
    return action.step if isinstance(action, HostCall) else action.loop
