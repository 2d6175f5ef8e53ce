"""The interpreter of steps on poisoned memory: kernels, matrix products, ops of NumPy, and nested programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...errors import MiscompiledError
from ..loop_ir import Blocks, Host, Kernel, Layout, Loop, Product, Step, Steps, product_operands
from ..vocabulary import is_narrow, value_dtype
from .kernels import Regions, offset_regions, run_kernel
from .noise import machine_epsilon, noise_of_product, noise_of_rounding
from .poisoned_memory import MemoryRegion, PoisonedMemory


class Interpreter:
    """Runs programs; each buffer has separate memory unless the arena is planned, also in programs inside loops."""

    def run(
        self,
        steps: Steps,
        memory: PoisonedMemory,
        after: Callable[[int, PoisonedMemory], None] = lambda number, memory: None,
    ) -> None:
        """Run a program whose inputs are bound in `memory`; `after` sees the memory after each step."""
        for number, step in enumerate(steps.steps):
            try:
                self.run_step(step, memory.__getitem__)
            except MiscompiledError as error:
                raise MiscompiledError(f"step {number} ({describe(step)}): {error}") from None
            after(number, memory)

    def run_step(self, step: Step, regions: Regions) -> None:
        if isinstance(step, Kernel):
            run_kernel(step, regions)
        elif isinstance(step, Product):
            _run_product(step, regions)
        elif isinstance(step, Blocks):
            self._run_blocks(step, regions)
        elif isinstance(step, Host):
            _run_host(step, regions)
        else:
            self._run_loop(step, regions)

    def _run_blocks(self, step: Blocks, regions: Regions) -> None:
        # one after the other: blocks of a convolution share their patches' memory
        for block in range(step.count):
            further = offset_regions(regions, {b: block * by for b, by in step.moves.items()})
            for inner in step.steps:
                self.run_step(inner, further)

    def _run_loop(self, step: Loop, regions: Regions) -> None:
        if step.kind == "iterate":
            for i in range(step.rounds):
                self._run_inner(step, step.programs[0], regions, step.rounds - 1 - i if step.reverse else i)
        elif step.kind == "repeat":
            self._run_repeat(step, regions)
        else:
            assert step.number is not None
            which = int(_read_scalar(step.number, regions))
            # native code reports it too
            if not 0 <= which < len(step.programs):
                raise MiscompiledError(f"there is no branch {which}.")
            self._run_inner(step, step.programs[which], regions, 0)

    def _run_repeat(self, step: Loop, regions: Regions) -> None:
        assert step.number is not None
        test, body = step.programs
        rounds = 0
        while True:
            # each round has fresh memory, so that nothing survives by accident
            memory = self._bind_inputs(step, test, regions, 0)
            self.run(test, memory)
            (truth,) = test.new_outputs
            if not memory[truth].read(np.zeros(1, np.int64))[0][0]:
                break
            self._run_inner(step, body, regions, 0)
            rounds += 1
        regions(step.number.buffer).write(element_indices(step.number), rounds, 0.0)

    def _run_inner(self, step: Loop, program: Steps, regions: Regions, number: int) -> None:
        """One round of a nested program. Its new results are in the memory of the enclosing program."""
        memory = self._bind_inputs(step, program, regions, number)
        for buffer, layout, by in zip(program.new_outputs, step.outputs, step.shifts, strict=True):
            memory.bind(buffer, _region_at(layout, regions).offset_by(number * by))
        self.run(program, memory)

    def _bind_inputs(self, step: Loop, program: Steps, regions: Regions, number: int) -> PoisonedMemory:
        memory = PoisonedMemory(program.arena)
        for buffer, layout, by in zip(program.inputs, step.inputs, step.moves, strict=True):
            memory.bind(buffer, _region_at(layout, regions).offset_by(number * by))
        return memory


def element_indices(layout: Layout) -> Any:
    """The number of each element of a layout in its buffer."""
    where = np.full(layout.shape, layout.offset, np.int64)
    if not where.size:
        return where  # another axis may be as long as it likes
    for axis, (n, stride) in enumerate(zip(layout.shape, layout.strides, strict=True)):
        shape = [1] * len(layout.shape)
        shape[axis] = n
        where = where + (np.arange(n) * stride).reshape(shape)
    return where


def describe(step: Step) -> str:
    """A step in a few words."""
    if isinstance(step, Kernel):
        names = [line.label or line.word for line in step.live_lines() if line.label or line.word]
        names += [f"{s.word} over an axis" for s in step.stores if s.word]
        return f"kernel over {'x'.join(map(repr, step.extents)) or 'one point'}: {', '.join(names) or 'copy'}"
    if isinstance(step, Product):
        return f"matrix product {step.left.shape} by {step.right.shape}"
    if isinstance(step, Blocks):
        return f"{step.count!r} times: {'; '.join(map(describe, step.steps))}"
    return (
        f"loop ({step.kind})"
        if isinstance(step, Loop)
        else f"{step.name} by {'NumPy' if step.routine is None else 'a routine'}"
    )


def _region_at(layout: Layout, regions: Regions) -> MemoryRegion:
    return regions(layout.buffer).offset_by(layout.offset)


def _read_scalar(layout: Layout, regions: Regions) -> Any:
    return regions(layout.buffer).read(element_indices(layout).reshape(-1))[0][0]


def _run_product(step: Product, regions: Regions) -> None:
    """out = alpha * left @ right + beta * out; in float64, rounded once."""
    target, sources = regions(step.out.buffer), product_operands(step)
    (left, of_left), (right, of_right) = (regions(x.buffer).read(element_indices(x)) for x in sources)
    shapes = (*step.out.shape[:-1], step.depth), (*step.out.shape[:-2], step.depth, step.out.shape[-1])
    left, of_left = (np.reshape(x, shapes[0]) for x in (left.astype(np.float64), of_left))
    right, of_right = (np.reshape(x, shapes[1]) for x in (right.astype(np.float64), of_right))
    with np.errstate(all="ignore"):
        # in float64, so that the order of summation does not matter
        found = step.alpha * (left @ right)
        dtype = value_dtype(target.dtype)
        noise = abs(step.alpha) * noise_of_product(left, right, of_left, of_right, found, dtype)
        if step.beta:
            there, before = target.read(element_indices(step.out))
            there = there.astype(np.float64)
            found = found + step.beta * there
            own = np.where(np.isfinite(found), np.abs(found) + np.abs(step.beta * there), 0.0)
            noise = noise + abs(step.beta) * before + machine_epsilon(dtype) * own
        if is_narrow(target.dtype):
            noise = noise + noise_of_rounding(found, target.dtype)
    where = element_indices(step.out)
    # a product writes each place once
    if len(np.unique(where)) < where.size:
        raise MiscompiledError("several elements of a product's result share one place.")
    for x in sources:
        source = regions(x.buffer)
        if (
            source.bytes is target.bytes
            and np.intersect1d(source.places(element_indices(x)), target.places(where)).size
        ):
            raise MiscompiledError(f"a product is written over {source.name}, which it reads.")
    target.write(where, found.astype(target.dtype), noise)


def _run_host(step: Host, regions: Regions) -> None:
    given = [regions(a.buffer).read(element_indices(a)) if isinstance(a, Layout) else (a, None) for a in step.args]
    found = step.call(*(x for x, _ in given))
    found = found if type(found) is tuple else (found,)
    # where errors of one pattern cancel, those of another add up
    others = [_call_perturbed(step, given, apart) for apart in (1, 2)] if step.is_repeatable else [found]
    for number, (value, layout) in enumerate(zip(found, step.outs, strict=True)):
        value = np.broadcast_to(np.asarray(value), layout.shape).astype(layout.buffer.dtype)
        noise = np.max([_host_noise(value, other[number]) for other in others], axis=0)
        regions(layout.buffer).write(element_indices(layout), value, noise)


def _call_perturbed(step: Host, given: Sequence[tuple[Any, Any]], apart: int) -> Any:
    """What an op returns for arguments perturbed by their noise: all up, or with `apart` 2 in turn."""
    args = []
    for x, noise in given:
        if noise is not None and (x.dtype.kind in "fc" or is_narrow(x.dtype)):
            signs = np.where(np.arange(x.size).reshape(x.shape) % apart, -1, 1)
            x = (x + signs * np.where(np.isfinite(noise), noise, 0.0)).astype(x.dtype)
        args.append(x)
    with np.errstate(all="ignore"):
        found = step.call(*args)
    return found if type(found) is tuple else (found,)


def _host_noise(value: Any, other: Any) -> Any:
    """What perturbing the arguments changes, plus units in the last place of the largest value: an op of NumPy may be
    a whole algorithm, whose errors are relative to that.
    """
    dtype = value.dtype
    if is_narrow(dtype):
        value, other = value.astype(np.float32), np.asarray(other, np.float32)
        largest = np.abs(value[np.isfinite(value)]).max(initial=0.0)
        return _host_noise(value, other) + 4 * noise_of_rounding(largest, dtype)
    if value.dtype.kind not in "fc":
        return np.zeros(value.shape)
    finite = np.isfinite(value)
    largest = float(np.abs(value[finite]).max(initial=0.0))
    with np.errstate(all="ignore"):
        change = np.abs(value - other)
    return 4 * np.where(np.isnan(change), 0.0, change) + 8 * machine_epsilon(value.dtype) * largest
