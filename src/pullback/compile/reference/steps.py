"""Steps in order, on poisoned memory: kernels, matrix products, ops of NumPy, and programs inside programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...errors import MiscompiledError
from ..fuse import Step, Steps
from ..loops import Blocks, Host, Kernel, Layout, Loop, Product
from .kernels import Regions, moved, run_kernel
from .memory import Memory, Region
from .noise import noise_of_product, unit

__all__ = ["Machine", "Plan", "describe", "elements", "factors"]

#: How the steps of a program run: the steps, and the bytes of the arena they share; None if each buffer is alone.
Plan = Callable[[Steps], tuple[Sequence[Step], int | None]]


class Machine:
    """Runs programs; `plan` says of each, also of those inside loops, which steps it has and where its buffers lie."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def run(
        self, steps: Steps, memory: Memory, after: Callable[[int, Memory], None] = lambda number, memory: None
    ) -> None:
        """Run a program whose inputs are bound in `memory`; `after` sees the memory after each step."""
        for number, step in enumerate(self.plan(steps)[0]):
            try:
                self.step(step, memory.__getitem__)
            except MiscompiledError as error:
                raise MiscompiledError(f"step {number} ({describe(step)}): {error}") from None
            after(number, memory)

    def memory(self, steps: Steps) -> Memory:
        return Memory(self.plan(steps)[1])

    def step(self, step: Step, regions: Regions) -> None:
        if isinstance(step, Kernel):
            run_kernel(step, regions)
        elif isinstance(step, Product):
            _product(step, regions)
        elif isinstance(step, Blocks):
            self._blocks(step, regions)
        elif isinstance(step, Host):
            _host(step, regions)
        else:
            self._loop(step, regions)

    def _blocks(self, step: Blocks, regions: Regions) -> None:
        for block in range(step.count):
            further = moved(regions, {b: block * by for b, by in step.moves.items()})
            for inner in step.steps:
                self.step(inner, further)

    def _loop(self, step: Loop, regions: Regions) -> None:
        if step.kind == "iterate":
            for i in range(step.rounds):
                self._inside(step, step.programs[0], regions, step.rounds - 1 - i if step.reverse else i)
        elif step.kind == "repeat":
            self._repeat(step, regions)
        else:
            assert step.number is not None
            which = int(_one(step.number, regions))
            if not 0 <= which < len(step.programs):
                raise MiscompiledError(f"a branch has no way {which}.")
            self._inside(step, step.programs[which], regions, 0)

    def _repeat(self, step: Loop, regions: Regions) -> None:
        assert step.number is not None
        test, body = step.programs
        rounds = 0
        while True:
            memory = self._bound(step, test, regions, 0)
            self.run(test, memory)
            (truth,) = (b for b in test.outputs if b.kind == "output")
            if not memory[truth].read(np.zeros(1, np.int64))[0][0]:
                break
            self._inside(step, body, regions, 0)
            rounds += 1
        regions(step.number.buffer).write(elements(step.number), rounds, 0.0)

    def _inside(self, step: Loop, program: Steps, regions: Regions, number: int) -> None:
        """A round of a program inside. What it makes anew lies in the memory around."""
        memory = self._bound(step, program, regions, number)
        fresh = [b for b in program.outputs if b.kind == "output"]
        for buffer, layout, by in zip(fresh, step.outputs, step.shifts, strict=True):
            memory.bind(buffer, _start(layout, regions).moved(number * by))
        self.run(program, memory)

    def _bound(self, step: Loop, program: Steps, regions: Regions, number: int) -> Memory:
        memory = self.memory(program)
        for buffer, layout, by in zip(program.inputs, step.inputs, step.moves, strict=True):
            memory.bind(buffer, _start(layout, regions).moved(number * by))
        return memory


def elements(layout: Layout) -> Any:
    """The number of each element of a layout in its buffer."""
    where = np.full(layout.shape, layout.offset, np.int64)
    for axis, (n, stride) in enumerate(zip(layout.shape, layout.strides, strict=True)):
        shape = [1] * len(layout.shape)
        shape[axis] = n
        where = where + (np.arange(n) * stride).reshape(shape)
    return where


def describe(step: Step) -> str:
    """A step in a few words."""
    if isinstance(step, Kernel):
        names = [line.label or line.word for line in step.used() if line.label or line.word]
        names += [f"{s.word} over an axis" for s in step.stores if s.word]
        return f"kernel over {'x'.join(map(str, step.extents)) or 'one point'}: {', '.join(names) or 'copy'}"
    if isinstance(step, Product):
        return f"matrix product {step.left.shape} by {step.right.shape}"
    if isinstance(step, Blocks):
        return f"{step.count} times: {'; '.join(map(describe, step.steps))}"
    return f"loop ({step.kind})" if isinstance(step, Loop) else f"{step.name} by NumPy"


def _start(layout: Layout, regions: Regions) -> Region:
    return regions(layout.buffer).moved(layout.offset)


def _one(layout: Layout, regions: Regions) -> Any:
    return regions(layout.buffer).read(elements(layout).reshape(-1))[0][0]


def factors(step: Product) -> tuple[Layout, Layout]:
    """The left and right matrices of a product. Result and depth say their sizes: inside of blocks a layout may be that
    of the whole, of which each block takes the first rows from where it is moved to.
    """
    batch, rows, columns = step.out.shape
    depth = step.left.shape[2]
    return replace(step.left, shape=(batch, rows, depth)), replace(step.right, shape=(batch, depth, columns))


def _product(step: Product, regions: Regions) -> None:
    """out = alpha * left @ right + beta * out; in float64, rounded once."""
    target, sources = regions(step.out.buffer), factors(step)
    (left, of_left), (right, of_right) = (regions(x.buffer).read(elements(x)) for x in sources)
    left, right = left.astype(np.float64), right.astype(np.float64)
    with np.errstate(all="ignore"):
        found = step.alpha * (left @ right)
        noise = abs(step.alpha) * noise_of_product(left, right, of_left, of_right, found, target.dtype)
        if step.beta:
            there, before = target.read(elements(step.out))
            found = found + step.beta * there
            own = np.where(np.isfinite(found), np.abs(found) + np.abs(step.beta * there), 0.0)
            noise = noise + abs(step.beta) * before + unit(target.dtype) * own
    where = elements(step.out)
    if len(np.unique(where)) < where.size:
        raise MiscompiledError("a product has one place for several elements of its result.")
    for x in sources:
        source = regions(x.buffer)
        if source.bytes is target.bytes and np.intersect1d(source.places(elements(x)), target.places(where)).size:
            raise MiscompiledError(f"a product is written over {source.name}, which it reads.")
    target.write(where, found.astype(target.dtype), noise)


def _host(step: Host, regions: Regions) -> None:
    given = [regions(a.buffer).read(elements(a)) if isinstance(a, Layout) else (a, None) for a in step.args]
    found = step.call(*(x for x, _ in given))
    found = found if type(found) is tuple else (found,)
    others = _moved(step, given) if step.steady else found
    for value, other, layout in zip(found, others, step.outs, strict=True):
        value = np.broadcast_to(np.asarray(value), layout.shape).astype(layout.buffer.dtype)
        regions(layout.buffer).write(elements(layout), value, _noise_of_host(value, other))


def _moved(step: Host, given: Sequence[tuple[Any, Any]]) -> Any:
    """What an op gives for arguments that are moved by their noise, up and down by turns."""
    args = []
    for x, noise in given:
        if noise is not None and x.dtype.kind in "fc":
            signs = np.where(np.arange(x.size).reshape(x.shape) % 2, 1, -1)
            x = (x + signs * np.where(np.isfinite(noise), noise, 0.0)).astype(x.dtype)
        args.append(x)
    with np.errstate(all="ignore"):
        found = step.call(*args)
    return found if type(found) is tuple else (found,)


def _noise_of_host(value: Any, other: Any) -> Any:
    """What moving the arguments changes, and units in the last place of the largest number: an op of NumPy may be a
    whole algorithm, whose errors are relative to that.
    """
    if value.dtype.kind not in "fc":
        return np.zeros(value.shape)
    finite = np.isfinite(value)
    largest = float(np.abs(value[finite]).max(initial=0.0))
    with np.errstate(all="ignore"):
        apart = np.abs(value - other)
    return 4 * np.where(np.isnan(apart), 0.0, apart) + 8 * unit(value.dtype) * largest
