"""A launch plan carried out: action by action on a stream, or as parts of which most are graphs."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ....errors import IndexingError
from ...loop_ir import Buffer, Loop, Steps
from ..launch_plan import (
    Action,
    Choice,
    Chunks,
    CudaCode,
    HostCall,
    Launch,
    LaunchPlan,
    LibraryProduct,
    NestedPlans,
    count_launches,
    window_stride,
)
from .addresses import Addresses
from .chunks import add_copy, copy_rows, find_rows
from .conditional import Issue, add_branch, add_count, add_while
from .driver import Driver
from .memory import out_of_memory

#: A part of a recorded plan: a graph, or what Python does on a stream between two of them.
Part = Any


class PlanIssuer:
    """Carries out the plans of one module. `choose` says which way of a choice to go."""

    def __init__(self, driver: Driver, code: CudaCode, fast: bool, choose: Callable[[Choice], int]) -> None:
        self.driver, self.code, self.choose = driver, code, choose
        self.module, self.source = driver.load_module(code.text, fast)
        self._functions: dict[tuple[str, int], Any] = {}
        self._products: dict[Any, Callable[..., None]] = {}
        #: The addresses that products of the library use in the graph that was captured last.
        self.product_places: list[int] = []

    def run(self, plan: LaunchPlan, steps: Steps, at: Addresses, stream: int) -> None:
        """Carry out a plan action by action."""
        for action in plan.actions:
            self.run_action(action, steps, at, stream)

    def run_action(self, action: Action, steps: Steps, at: Addresses, stream: int) -> None:
        if isinstance(action, Launch):
            self._launch(action, at, stream)
        elif isinstance(action, LibraryProduct):
            self._multiply(action, at, stream)
        elif isinstance(action, Choice):
            for part in action.ways[self.choose(action)]:
                self.run_action(part, steps, at, stream)
        elif isinstance(action, HostCall):
            self._run_on_host(action, at)
        elif stream == self.driver.capture_stream and is_conditional(action):
            self._add_node(action, steps, at, stream)
        else:
            for part in self._loop_parts(action, steps, at, graphs=False):
                self.run_part(part, stream)

    def _run_on_host(self, action: HostCall, at: Addresses) -> None:
        try:
            action.step.run(lambda buffer: self._flat_array(buffer, at))
        except MemoryError as error:
            raise out_of_memory(f"the arrays that CuPy makes for {action.step.name}") from error

    def run_part(self, part: Part, stream: int) -> None:
        if isinstance(part, int):
            self.driver.launch_graph(part, stream)
        else:
            part(stream)

    def _run_parts(self, parts: Sequence[Part], stream: int) -> None:
        for part in parts:
            self.run_part(part, stream)

    def record(self, plan: LaunchPlan, steps: Steps, at: Addresses) -> list[Part]:
        """The parts of a plan: graphs of what the device does by itself, and functions of the stream between them."""
        parts: list[Part] = []
        for actions in _split_at_host(plan.actions, self.driver):
            first = actions[0]
            if not why_on_host(first, self.driver):
                self.product_places.clear()
                parts.append(self.driver.capture(self._issuer_of(actions, steps, at)))
            elif isinstance(first, NestedPlans):
                parts += self._loop_parts(first, steps, at, graphs=True)
            else:
                parts.append(self._issuer_of(actions, steps, at))
        return parts

    def update(self, parts: Sequence[Part], plan: LaunchPlan, steps: Steps, at: Addresses) -> bool:
        """Whether the one graph that a plan was recorded as has been given other addresses."""
        (actions,) = _split_at_host(plan.actions, self.driver)
        self.product_places.clear()
        return self.driver.update_graph(parts[0], self._issuer_of(actions, steps, at))

    def _issuer_of(self, actions: Sequence[Action], steps: Steps, at: Addresses) -> Callable[[int], None]:
        def issue(stream: int) -> None:
            for action in actions:
                self.run_action(action, steps, at, stream)

        return issue

    def _launch(self, x: Launch, at: Addresses, stream: int) -> None:
        pointers = [at.of(b) + by * b.dtype.itemsize for b, by in zip(x.buffers, x.shifts, strict=True)]
        self.driver.launch(self.function_of(x), x.grid, x.block, x.shared_bytes, pointers, stream)

    def function_of(self, x: Launch) -> Any:
        key = x.function, x.shared_bytes
        function = self._functions.get(key)
        if function is None:
            function = self._functions[key] = self.driver.find_function(self.module, *key)
        return function

    def _multiply(self, action: LibraryProduct, at: Addresses, stream: int) -> None:
        product = action.product
        matrices = (product.out, product.left, product.right)
        places = [at.start_of(m, action.shifts.get(m.buffer, 0)) for m in matrices]
        if stream == self.driver.capture_stream:
            self.product_places += places
        alignments = tuple(math.gcd(place, 256) for place in places)
        key = id(action), alignments
        if key not in self._products:
            self._products[key] = self.driver.make_product(action, alignments)
        self._products[key](*places, at.workspace, stream)

    def _flat_array(self, buffer: Buffer, at: Addresses) -> Any:
        return self.driver.flat_array(at.of(buffer), buffer.size, buffer.dtype)

    def _add_node(self, action: NestedPlans, steps: Steps, at: Addresses, stream: int) -> None:
        """A loop or a branch that the device decides, in the graph that is being captured."""
        loop = action.loop
        if action.chunks is not None:
            self._add_chunks(action, action.chunks, steps, at, stream)
            return
        inner = [at.inside(loop, program, steps.nested) for program in loop.programs]
        ways = [
            functools.partial(self.run, plan, program, where)
            for plan, program, where in zip(action.plans, loop.programs, inner, strict=True)
        ]
        assert loop.number is not None
        number = at.start_of(loop.number)
        if loop.kind == "branch":
            add_branch(self.driver, ways, number, at.of(action.status), stream)
        else:
            test, body = ways
            add_while(self.driver, test, body, at.flags, number, stream)

    def _add_chunks(self, action: NestedPlans, chunks: Chunks, steps: Steps, at: Addresses, stream: int) -> None:
        """A loop of many rounds: a node repeats the first ones in chunks, with rows in windows; the others follow."""
        loop, (plan,), (program,) = action.loop, action.plans, action.loop.programs
        counter, windows = at.of(chunks.counter), [at.of(b) for b in chunks.windows]
        rows = list(zip(find_rows(loop, program), windows, strict=True))
        copies = [copy_rows(row, window, loop, chunks.rounds, at) for row, window in rows]

        def run_chunk(stream: int) -> None:
            for copy, (row, _) in zip(copies, rows, strict=True):
                if not row.is_made:
                    add_copy(self.driver, copy, counter, stream)
            for i in range(chunks.rounds):
                number = chunks.rounds - 1 - i if loop.reverse else i
                places = {row.buffer: window + number * window_stride(row.buffer) for row, window in rows}
                self.run(plan, program, at.inside(loop, program, steps.nested).with_places(places), stream)
            for copy, (row, _) in zip(copies, rows, strict=True):
                if row.is_made:
                    add_copy(self.driver, copy, counter, stream)

        add_count(self.driver, run_chunk, counter, chunks.count, stream)
        self._iterate(action, steps, at, stream, chunks.rounds * chunks.count)

    def _loop_parts(self, action: NestedPlans, steps: Steps, at: Addresses, graphs: bool) -> list[Part]:
        """What runs a loop or a branch from the host; with `graphs`, its programs are recorded if they can be."""
        loop, plans = action.loop, action.plans

        def part_of(number: int) -> Callable[[int], None]:
            program, inner = loop.programs[number], at.inside(loop, loop.programs[number], steps.nested)
            if not graphs:
                return lambda stream: self.run(plans[number], program, inner, stream)
            parts = self.record(plans[number], program, inner)
            return functools.partial(self._run_parts, parts)

        if loop.kind == "iterate":
            return [lambda stream: self._iterate(action, steps, at, stream)]
        number = at.start_of(loop.number) if loop.number is not None else 0
        if loop.kind == "branch":
            ways = [part_of(i) for i in range(len(plans))]
            dtype = loop.number.buffer.dtype if loop.number is not None else np.dtype(np.int64)
            return [lambda stream: self._branch(ways, number, dtype, stream)]
        test, body = part_of(0), part_of(1)
        return [lambda stream: self._repeat(test, body, loop, at, stream)]

    def _iterate(self, action: NestedPlans, steps: Steps, at: Addresses, stream: int, first: int = 0) -> None:
        loop, (plan,) = action.loop, action.plans
        for i in range(first, loop.rounds):
            inner = at.inside(loop, loop.programs[0], steps.nested, loop.rounds - 1 - i if loop.reverse else i)
            self.run(plan, loop.programs[0], inner, stream)

    def _branch(self, ways: Sequence[Any], number: int, dtype: np.dtype[Any], stream: int) -> None:
        which = int(np.frombuffer(self.driver.read(number, dtype.itemsize, stream), dtype)[0])
        if not 0 <= which < len(ways):
            raise IndexingError(f"jit: a branch has {len(ways)} ways, and its number is {which}.")
        ways[which](stream)

    def _repeat(self, test: Issue, body: Issue, loop: Loop, at: Addresses, stream: int) -> None:
        rounds = 0
        while True:
            test(stream)
            if not self.driver.read(at.flags, 1, stream)[0]:
                break
            body(stream)
            rounds += 1
        assert loop.number is not None
        self.driver.write(at.start_of(loop.number), loop.number.buffer.dtype.type(rounds).tobytes(), stream)


def is_conditional(action: Action) -> bool:
    """Whether the device decides how often, or which, of nested plans run."""
    return isinstance(action, NestedPlans) and (action.loop.kind != "iterate" or action.chunks is not None)


def take_choices(plan: LaunchPlan, choose: Callable[[Choice], int]) -> Iterator[Action]:
    """The actions of a plan, with the way of each choice that is gone."""
    for action in plan.actions:
        yield from action.ways[choose(action)] if isinstance(action, Choice) else (action,)


def walk_actions(plan: LaunchPlan) -> Iterator[Action]:
    """The actions of a plan and of those nested in it; of choices, those of all ways too."""
    for action in plan.actions:
        yield action
        if isinstance(action, Choice):
            for way in action.ways:
                yield from way
        elif isinstance(action, NestedPlans):
            for inner in action.plans:
                yield from walk_actions(inner)


def why_on_host(action: Action, driver: Driver) -> str:
    """Why an action cannot be part of a graph; empty if it can."""
    if isinstance(action, HostCall):
        return f"CuPy runs {action.step.name}"
    if not isinstance(action, NestedPlans):
        return ""
    inner = dict.fromkeys(why for plan in action.plans for a in plan.actions if (why := why_on_host(a, driver)))
    if inner or action.loop.kind != "iterate":
        return ", ".join(inner) or driver.why_no_condition(action.loop.kind)
    if action.chunks is None or not (why := driver.why_no_condition("repeat")):
        return ""
    return f"it comes to {action.loop.rounds} rounds, and {why}"


def describe_launches(plan: LaunchPlan, driver: Driver) -> str:
    """How a plan is launched, in a line."""
    groups = list(_split_at_host(plan.actions, driver))
    graphs = [g for g in groups if not why_on_host(g[0], driver)]
    count = sum(map(count_launches, graphs))
    text = f"launched as {len(graphs)} graph{'s' * (len(graphs) != 1)} of {count} launches"
    between = [_describe_on_host(g[0], why) for g in groups if (why := why_on_host(g[0], driver))]
    return text + (f"; Python runs between them: {', '.join(between)}" if between else "")


def _describe_on_host(action: Action, why: str) -> str:
    if isinstance(action, HostCall):
        return action.step.name
    assert isinstance(action, NestedPlans)
    kinds = {"iterate": "a loop", "repeat": "a loop while a condition holds", "branch": "a branch"}
    return f"{kinds[action.loop.kind]} ({why})"


def _split_at_host(actions: Sequence[Action], driver: Driver) -> Iterator[Sequence[Action]]:
    """Actions in groups: as many as possible that fit into one graph, others alone."""
    group: list[Action] = []
    for action in actions:
        if not why_on_host(action, driver):
            group.append(action)
            continue
        if group:
            yield group
        group = []
        yield [action]
    if group:
        yield group
