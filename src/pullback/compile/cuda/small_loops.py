"""Loops and branches of short steps as one launch: a block of threads does all rounds.

A round of a few numbers takes less time than a launch. What the steps do in launches of their own, the threads of one
block do here, one step after the other, and wait for each other in between.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ..loop_ir import Blocks, Buffer, Host, Kernel, Layout, Loop, Product, Step
from ..schedule.arena import round_up
from .kernel.grid import alignments_inside
from .kernel.render import render_kernel
from .kernel.writer import FunctionLaunch
from .launch_plan import new_status
from .products.choose import count_multiplications
from .products.join import Unit, split_stages
from .products.tile import DirectShape, render_tile, store_product
from .routines import render_routine
from .side_by_side import (
    MAX_SHARED_BYTES,
    POINTER,
    count_shared_bytes,
    count_threads,
    exchanges_in_part,
    has_barrier,
)
from .words import c_type

#: The most launches that the steps of a loop would take, the threads of each, and the multiplications of a product:
#: one multiprocessor does these in the time of a launch.
MAX_LAUNCHES = 48
MAX_STEP_THREADS = 2048
MAX_MULTIPLICATIONS = 1 << 16
#: The threads of the block, unless a step needs more.
USUAL_THREADS = 512


class _TooLargeError(Exception):
    """A step that one block would take too long for, or cannot do."""


@dataclass(frozen=True, slots=True, eq=False)
class _SmallLoop:
    """A loop, with what each of its programs does."""

    loop: Loop
    programs: tuple[Sequence[FunctionLaunch | _SmallLoop], ...]


def render_small_loop(loop: Loop, nested: int, alignments: Mapping[Buffer, int], digits: int) -> FunctionLaunch | None:
    """A loop as one launch, in a program whose nested ones work from the byte `nested` of its arena on; None if it is
    too large. `digits` are those of its products (see `render_tile`).
    """
    try:
        found = _read_loop(loop, alignments, digits)
    except _TooLargeError:
        return None
    launches = [*_walk(found)]
    shared = sum(count_shared_bytes(x.body) for x in launches)
    if not 0 < len(launches) <= MAX_LAUNCHES or shared > MAX_SHARED_BYTES:
        return None
    return _LoopWriter(launches).render(found, nested)


# What the steps of a loop do


def _read_loop(loop: Loop, alignments: Mapping[Buffer, int], digits: int) -> _SmallLoop:
    programs = [
        [x for step in program.steps for x in _read_step(step, alignments_inside(loop, program, alignments), digits)]
        for program in loop.programs
    ]
    return _SmallLoop(loop, tuple(programs))


def _read_step(step: Step, alignments: Mapping[Buffer, int], digits: int) -> Iterator[FunctionLaunch | _SmallLoop]:
    if isinstance(step, Loop):
        yield _read_loop(step, alignments, digits)
    elif isinstance(step, Host) and (routine := render_routine(step)) is not None:
        yield _checked(routine)
    elif isinstance(step, (Kernel, Product)):
        yield from _read_unit(Unit((step,)), alignments, digits)
    elif isinstance(step, Blocks) and step.count == 1:
        for unit in (unit for stage in split_stages(step) for unit in stage):
            yield from _read_unit(unit, alignments, digits)
    else:
        raise _TooLargeError


def _read_unit(unit: Unit, alignments: Mapping[Buffer, int], digits: int) -> Iterator[FunctionLaunch]:
    kernels = [unit.joined] if unit.joined is not None else list(unit.steps)
    for number, step in enumerate(kernels):
        if isinstance(step, Product):
            if count_multiplications(step) > MAX_MULTIPLICATIONS:
                raise _TooLargeError
            shape = DirectShape(min(USUAL_THREADS, round_up(step.out.size, 32)))
            yield _checked(render_tile(step, unit.tail or store_product(step), shape, digits, alignments))
        elif number == 0 or unit.tail is None:
            yield from map(_checked, render_kernel(step, alignments))


def _checked(launch: FunctionLaunch) -> FunctionLaunch:
    """A launch that one block of threads can do."""
    is_large = math.prod(launch.grid) * count_threads(launch) > MAX_STEP_THREADS
    if is_large or launch.shared_bytes or "block_sort_" in launch.body or exchanges_in_part(launch):
        raise _TooLargeError
    return launch


def _walk(loop: _SmallLoop) -> Iterator[FunctionLaunch]:
    for x in (x for program in loop.programs for x in program):
        if isinstance(x, _SmallLoop):
            yield from _walk(x)
        else:
            yield x


# The text


class _LoopWriter:
    """The function of a loop while it is written. Buffers have names: parameters, or pointers that a round sets."""

    def __init__(self, launches: Sequence[FunctionLaunch]) -> None:
        widest = max(map(count_threads, launches))
        most = max(math.prod(x.grid) * count_threads(x) for x in launches)
        self.threads = max(round_up(widest, 32), min(USUAL_THREADS, round_up(most, 32)))
        self.parameters: dict[Buffer, str] = {}
        self.placed: dict[Buffer, Buffer] = {}
        self.count = 0

    def render(self, loop: _SmallLoop, nested: int) -> FunctionLaunch:
        body = self._loop(loop, {}, 0, nested)
        head = ["struct Place { unsigned x, y, z; };"]
        # what one step writes, the next reads: no pointer is constant
        given = [f"{c_type(b.dtype)}* {name}" for b, name in self.parameters.items()]
        text = "\n  ".join([*head, *body])
        return FunctionLaunch(tuple(given), text, tuple(self.parameters), (1, 1, 1), (self.threads, 1, 1), at_once=1)

    def _new_name(self, letter: str) -> str:
        self.count += 1
        return f"{letter}{self.count}_"

    def _pointer(self, buffer: Buffer, bound: Mapping[Buffer, str], base: int) -> str:
        """The name of a buffer of a program whose arena starts at the byte `base`."""
        if buffer in bound:
            return bound[buffer]
        if buffer.kind == "arena" and base:
            buffer = self.placed.setdefault(buffer, replace(buffer, offset=base + buffer.offset))
        return self.parameters.setdefault(buffer, f"b{len(self.parameters)}")

    def _start(self, layout: Layout, bound: Mapping[Buffer, str], base: int) -> str:
        name = self._pointer(layout.buffer, bound, base)
        return f"{name} + {layout.offset}" if layout.offset else name

    def _loop(self, x: _SmallLoop, bound: Mapping[Buffer, str], base: int, nested: int) -> list[str]:
        loop = x.loop
        if loop.kind == "iterate":
            i, last = self._new_name("i"), loop.rounds - 1
            inside = self._program(x, 0, bound, base, nested, f"({last} - {i})" if loop.reverse else i)
            return [f"for (long long {i} = 0; {i} <= {last}; ++{i}) {{", *_indent(inside), "}"]
        assert loop.number is not None
        number = self._start(loop.number, bound, base)
        return (
            self._branch(x, number, bound, base, nested)
            if loop.kind == "branch"
            else self._repeat(x, number, bound, base, nested)
        )

    def _branch(self, x: _SmallLoop, number: str, bound: Mapping[Buffer, str], base: int, nested: int) -> list[str]:
        status, which = new_status(x.loop.site), self._new_name("w")
        lines = [f"const long long {which} = *({number});"]
        for way in range(len(x.programs)):
            inside = self._program(x, way, bound, base, nested)
            lines += [f"{'else ' if way else ''}if ({which} == {way}) {{", *_indent(inside), "}"]
        return [*lines, f"else if (threadIdx.x == 0) *{self._pointer(status, {}, 0)} = 1;", "__syncthreads();"]

    def _repeat(self, x: _SmallLoop, number: str, bound: Mapping[Buffer, str], base: int, nested: int) -> list[str]:
        rounds, holds = self._new_name("r"), self._new_name("h")
        (truth,) = x.loop.programs[0].new_outputs
        test = self._program(x, 0, {**bound, truth: f"(&{holds})"}, base, nested)
        body = self._program(x, 1, bound, base, nested)
        return [
            f"__shared__ bool {holds};",
            f"long long {rounds} = 0;",
            f"for (;; ++{rounds}) {{",
            *_indent([*test, f"if (!{holds}) break;", *body, "__syncthreads();"]),
            "}",
            f"if (threadIdx.x == 0) *({number}) = {rounds};",
            "__syncthreads();",
        ]

    def _program(
        self, x: _SmallLoop, number: int, bound: Mapping[Buffer, str], base: int, nested: int, at: str = "0"
    ) -> list[str]:
        """One of a loop's programs, in round `at`."""
        loop, program = x.loop, x.loop.programs[number]
        lines: list[str] = []
        inner: dict[Buffer, str] = {}
        pairs = [*zip(program.inputs, loop.inputs, loop.moves, strict=True)]
        pairs += zip(program.new_outputs, loop.outputs, loop.shifts, strict=False)
        for buffer, layout, by in pairs:
            if buffer in inner:
                continue
            inner[buffer] = self._new_name("m")
            moved = f" + {at} * {by}" if by else ""
            start = self._start(layout, bound, base)
            lines.append(f"{c_type(buffer.dtype)}* const {inner[buffer]} = {start}{moved};")
        # the truth of a condition has a place of its own
        inner |= {b: bound[b] for b in program.new_outputs if b in bound}
        here = base + nested
        for step in x.programs[number]:
            if isinstance(step, _SmallLoop):
                lines += self._loop(step, inner, here, program.nested)
            else:
                lines += self._launch(step, inner, here)
        return lines

    def _launch(self, launch: FunctionLaunch, bound: Mapping[Buffer, str], base: int) -> list[str]:
        """What the blocks of a launch do, as many of them at once as there are threads for."""
        own, count = count_threads(launch), math.prod(launch.grid)
        names = {
            parameter.rsplit(" ", 1)[1]: self._pointer(b, bound, base)
            for b, parameter in zip(launch.buffers, launch.parameters, strict=True)
        }
        body = POINTER.sub(lambda found: names[found[0]], launch.body).replace("__syncthreads()", f"barrier_<{own}>()")
        (across, _, _), (wide, _, _) = launch.grid, launch.block
        together = 1 if has_barrier(launch) else self.threads // own
        n = self._new_name("n")
        thread = "threadIdx.x" if together == 1 else f"threadIdx.x % {own}"
        lines = [
            f"for (unsigned {n} = threadIdx.x / {own}; {n} < {count}; {n} += {together}) {{"
            if together > 1
            else f"for (unsigned {n} = 0; {n} < {count}; ++{n}) {{",
            f"  const unsigned thread = {thread};",
            "  [&] {",
            f"    const Place blockIdx = {{{n} % {across}, {n} / {across}, 0}};",
            f"    const Place threadIdx = {{thread % {wide}, thread / {wide}, 0}};",
            *("    " + line for line in body.split("\n  ")),
            "  }();",
            *([f"  barrier_<{own}>();"] if has_barrier(launch) and count > 1 else []),
            "}",
        ]
        idle = own * together < self.threads
        guarded = [f"if (threadIdx.x < {own * together}) {{", *_indent(lines), "}"] if idle else lines
        return [*guarded, "__syncthreads();"]


def _indent(lines: Sequence[str]) -> list[str]:
    return ["  " + line for line in lines]
