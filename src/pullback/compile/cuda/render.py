"""Steps in, the text of a module and its launch plan out."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ...settings import get_matmul_precision
from ..loop_ir import Blocks, Buffer, Host, Kernel, Loop, Product, Step, Steps
from ..schedule.arena import round_up
from .kernel.grid import VECTOR_BYTES, alignments_inside
from .kernel.render import render_kernel
from .kernel.writer import FunctionLaunch
from .launch_plan import (
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
    new_status,
    window_stride,
)
from .linalg import SYSTEMS
from .preamble import FLOAT8, PREAMBLE
from .products.attention import is_attention, render_attention
from .products.choose import offered_algorithms, offered_shapes, row_shape
from .products.instructions import tiles_text
from .products.join import Unit, split_stages
from .products.library import split_batch
from .products.tile import Tail, render_tile, store_product
from .routines import render_routine
from .side_by_side import can_chain, chain_launches, share_launches
from .small_loops import render_small_loop

#: What the text of a function calls that `tiles_text` has.
_USES_TILES = re.compile(r"_tile_<|attend_|sum_rows_<")
#: Attention is computed at float32 accuracy whatever products are asked for: its tf32 form has not run on a GPU yet.
_ATTENTION_DIGITS = 3
#: Where buffers of the scratch area start.
SCRATCH_ALIGNMENT = 256
#: The most ways that are tried to do several steps side by side.
MAX_GROUP_WAYS = 4
#: Up to so many launches a loop is written out in a graph; a longer one, in chunks of about so many.
MAX_UNROLLED, CHUNK_LAUNCHES = 2048, 512

#: What is launched or called, one after the other.
Way = list[FunctionLaunch | LibraryProduct]


def render_program(steps: Steps, fast: bool) -> CudaCode:
    """The code of a program: the runtime decides what arithmetic may be contracted."""
    module = _Module(get_matmul_precision() == "tf32")
    plan = module.plan(steps, {})
    functions = "\n".join(text.replace("NAME", name, 1) for text, name in module.names.items())
    tiles = f"{tiles_text()}\n" if _USES_TILES.search(functions) else ""
    systems = SYSTEMS if "block_fit_<" in functions or "block_solve_<" in functions else ""
    eights = f"{FLOAT8}\n" if "float8_" in functions else ""
    return CudaCode(f"{PREAMBLE}\n{eights}{tiles}{systems}{functions}", plan, tuple(module.sites))


class _Module:
    """The functions of a module while its plans are made; equal ones are one."""

    def __init__(self, tf32: bool) -> None:
        self.tf32, self.digits = tf32, 1 if tf32 else 3
        self.names: dict[str, str] = {}
        self.sites: list[Any] = []

    def plan(self, steps: Steps, alignments: Mapping[Buffer, int]) -> LaunchPlan:
        actions = [action for step in steps.steps for action in self.step(step, {}, alignments, steps.nested)]
        return LaunchPlan(tuple(actions), _count_scratch_bytes(actions))

    def step(
        self, step: Step, shifts: Mapping[Buffer, int], alignments: Mapping[Buffer, int], nested: int = 0
    ) -> Sequence[Action]:
        if isinstance(step, Kernel):
            return self._launch_all(render_kernel(step, alignments), shifts)
        if isinstance(step, Product):
            return self._unit(Unit((step,)), shifts, alignments)
        if isinstance(step, Blocks):
            return self._group(step, alignments) if step.count == 1 else self._blocks(step, alignments)
        if isinstance(step, Host):
            return self._host(step, shifts, alignments)
        return self._loop(step, nested, alignments)

    def _host(self, step: Host, shifts: Mapping[Buffer, int], alignments: Mapping[Buffer, int]) -> list[Action]:
        """An op that has a routine is done by launches, any other one by CuPy."""
        if step.routine is not None and is_attention(step.routine):
            if _has_aligned_rows(step, alignments):
                return self._launch_all(render_attention(step, _ATTENTION_DIGITS), shifts)
        elif (solved := render_routine(step)) is not None:
            return [self._launch(solved, shifts)]
        return [HostCall(step)]

    def _launch_all(self, launches: Sequence[FunctionLaunch], shifts: Mapping[Buffer, int]) -> list[Action]:
        _place_scratch(launches)
        return [self._launch(x, shifts) for x in launches]

    def _launch(self, x: FunctionLaunch, shifts: Mapping[Buffer, int]) -> Launch:
        name = self.names.setdefault(x.text, f"kernel{len(self.names)}")
        for buffer in x.buffers:
            if buffer.kind == "status":
                self._place_status(buffer)
        return Launch(name, x.buffers, tuple(shifts.get(b, 0) for b in x.buffers), x.grid, x.block, x.shared_bytes)

    def _place_status(self, status: Buffer) -> None:
        if status.offset < 0:
            status.offset = len(self.sites) * status.dtype.itemsize
            self.sites += status.constant

    def _blocks(self, step: Blocks, alignments: Mapping[Buffer, int]) -> list[Action]:
        steps_of = {b: by * b.dtype.itemsize for b, by in step.moves.items()}
        inner = {**alignments, **{b: math.gcd(alignments.get(b, VECTOR_BYTES), by) for b, by in steps_of.items()}}
        found: list[Action] = []
        for block in range(step.count):
            shifts = {b: block * by for b, by in step.moves.items()}
            found += [action for x in step.steps for action in self.step(x, shifts, inner)]
        return found

    def _group(self, step: Blocks, alignments: Mapping[Buffer, int]) -> list[Action]:
        """Steps that may share launches."""
        found: list[Action] = []
        for stage in split_stages(step):
            ways = [self._ways(unit, {}, alignments) for unit in stage]
            if len(stage) > 1 and any(isinstance(x, LibraryProduct) for own in ways for x in own[0]):
                # calls of the library share no launch
                found += [action for own in ways for action in self._choose(own, {})]
            else:
                found += self._choose(_combine_ways(ways), {})
        return found

    def _unit(self, unit: Unit, shifts: Mapping[Buffer, int], alignments: Mapping[Buffer, int]) -> list[Action]:
        return self._choose(self._ways(unit, shifts, alignments), shifts)

    def _choose(self, ways: Sequence[Way], shifts: Mapping[Buffer, int]) -> list[Action]:
        """The only way, or a choice."""
        # ways share functions, and so their scratch memory
        _place_scratch([x for way in ways for x in way if isinstance(x, FunctionLaunch)])
        found = [tuple(self._launch(x, shifts) if isinstance(x, FunctionLaunch) else x for x in way) for way in ways]
        return [*found[0]] if len(found) == 1 else [Choice(tuple(found))]

    def _ways(self, unit: Unit, shifts: Mapping[Buffer, int], alignments: Mapping[Buffer, int]) -> list[Way]:
        """Each way to do a unit: tiles that take the tail in, or the library and then the tail's kernel."""
        if unit.joined is not None:
            return [[*render_kernel(unit.joined, alignments)]]
        product, *rest = unit.steps
        after = [x for kernel in rest if isinstance(kernel, Kernel) for x in render_kernel(kernel, alignments)]
        if isinstance(product, Kernel):
            return [[*render_kernel(product, alignments), *after]]
        ways: list[Way] = [*self._tiles(product, unit.tail, after, alignments)]
        for number in offered_algorithms(product):
            calls = [LibraryProduct(part, dict(shifts), self.tf32, number) for part in split_batch(product)]
            ways.append([*calls, *after])
        return ways

    def _tiles(
        self,
        product: Product,
        tail: Tail | None,
        after: Sequence[FunctionLaunch],
        alignments: Mapping[Buffer, int],
    ) -> Iterator[Way]:
        """Launches of tiles that do a product and what follows it."""
        shapes = offered_shapes(product, self.digits)
        if tail is None and len(after) == 1 and shapes:
            of_rows = row_shape(product)
            tile = None if of_rows is None else render_tile(product, store_product(product), of_rows, self.digits)
            if of_rows is not None and tile is not None and can_chain(tile, after[0], of_rows.rows):
                yield [chain_launches(tile, after[0], of_rows.rows)]
                return
        for shape in shapes:
            tile = render_tile(product, tail or store_product(product), shape, self.digits, alignments)
            yield [tile] if tail is not None else [tile, *after]

    def _loop(self, step: Loop, nested: int, alignments: Mapping[Buffer, int]) -> list[Action]:
        small = render_small_loop(step, nested, alignments, self.digits)
        if small is not None:
            return self._launch_all([small], {})
        plans = [self.plan(program, alignments_inside(step, program, alignments)) for program in step.programs]
        status = new_status(*([step.site] if step.kind == "branch" else []))
        self._place_status(status)
        return [NestedPlans(step, tuple(plans), status, _divide_rounds(step, plans))]


def _divide_rounds(loop: Loop, plans: Sequence[LaunchPlan]) -> Chunks | None:
    """The chunks of a loop of more rounds than a graph should have."""
    launches = sum(count_launches(plan.actions) for plan in plans)
    if loop.kind != "iterate" or loop.rounds * launches <= MAX_UNROLLED:
        return None
    most = max(1, CHUNK_LAUNCHES // launches)
    # chunks that leave no rounds over, if there are any that are not short
    rounds = next((n for n in range(most, most // 2, -1) if loop.rounds % n == 0), most)
    count = loop.rounds // rounds
    (program,) = loop.programs
    moving = [*zip(program.inputs, loop.moves, strict=True), *zip(program.new_outputs, loop.shifts, strict=True)]
    windows = [Buffer("scratch", rounds * window_stride(b), np.dtype(np.uint8)) for b, by in moving if by]
    counter = Buffer("scratch", 1, np.dtype(np.int64))
    # behind what the launches of a round work in
    _place_beside((counter, *windows), round_up(max(plan.scratch_bytes for plan in plans), SCRATCH_ALIGNMENT))
    return Chunks(rounds, count, tuple(windows), counter)


def _has_aligned_rows(step: Host, alignments: Mapping[Buffer, int]) -> bool:
    """Whether arrays of a routine start where a thread can load several elements at once."""
    buffers = {*step.reads(), *step.writes()}
    return not any(alignments.get(b, VECTOR_BYTES) % VECTOR_BYTES for b in buffers)


def _combine_ways(units: Sequence[Sequence[Way]]) -> list[Way]:
    """The ways to do units side by side: all in one launch, or those that the library can do by its calls, after what
    is left in one launch.
    """
    if len(units) == 1:
        return list(units[0])
    found = [_merge_ways([ways[0] for ways in units])]
    for number in range(1, min(MAX_GROUP_WAYS, max(map(len, units)))):
        own = [ways[0] for ways in units if len(ways) == 1]
        calls = [x for ways in units if len(ways) > 1 for x in ways[min(number, len(ways) - 1)]]
        found.append([*(_merge_ways(own) if own else []), *calls])
    return found


def _merge_ways(ways: Sequence[Way]) -> Way:
    rounds = itertools.zip_longest(*([x for x in way if isinstance(x, FunctionLaunch)] for way in ways))
    return [x for r in rounds for x in share_launches([x for x in r if x is not None])]


def _place_scratch(launches: Sequence[FunctionLaunch]) -> None:
    """Give the scratch buffers of one step places beside each other."""
    _place_beside(dict.fromkeys(b for x in launches for b in x.buffers if b.kind == "scratch"), 0)


def _place_beside(buffers: Iterable[Buffer], offset: int) -> None:
    for buffer in buffers:
        buffer.offset = offset
        offset += round_up(buffer.nbytes, SCRATCH_ALIGNMENT)


def _count_scratch_bytes(actions: Sequence[Action]) -> int:
    inner = [plan.scratch_bytes for a in actions if isinstance(a, NestedPlans) for plan in a.plans]
    chosen = [x for a in actions if isinstance(a, Choice) for way in a.ways for x in way]
    launches = [a for a in (*actions, *chosen) if isinstance(a, Launch)]
    own = [b.offset + b.nbytes for a in launches for b in a.buffers if b.kind == "scratch"]
    chunks = [a.chunks for a in actions if isinstance(a, NestedPlans) and a.chunks is not None]
    own += [b.offset + b.nbytes for c in chunks for b in (c.counter, *c.windows)]
    return max((*own, *inner), default=0)
