"""Recipes for rematerialization: which buffers can be computed again, by which steps, from what, and until when."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ..loop_ir import Blocks, Buffer, Host, Kernel, KernelLine, Layout, Loop, Product, Step, map_lines
from ..target import Costs, Target
from .arena import round_up
from .cost import estimate_nanoseconds


@dataclass(frozen=True, slots=True)
class Recipe:
    """The steps that fill one buffer, what they read, what else they write, and their nanoseconds.

    What else they write (`side_writes`: another result, their scratch memory) is unused when they run again. `until` is
    the last step before which they can run: later a direct or indirect source is overwritten. `roots` are direct or
    indirect sources that have no recipe.
    """

    steps: tuple[Step, ...]
    sources: tuple[Buffer, ...]
    side_writes: tuple[Buffer, ...]
    cost: float
    until: float
    roots: frozenset[Buffer]


class StepUsage:
    """Steps with their analysis: which step uses which buffer, what can be computed again, and when each runs."""

    def __init__(self, steps: Sequence[Step], target: Target) -> None:
        self.steps = steps
        self.costs = target.costs
        self.alignment = target.limits.alignment
        self.reads = [_unique(step.reads()) for step in steps]
        self.writes = [_unique(step.writes()) for step in steps]
        self.clock = [0.0]
        self.uses: dict[Buffer, list[int]] = {}
        self.write_steps: dict[Buffer, list[int]] = {}
        for i, step in enumerate(steps):
            self.clock.append(self.clock[-1] + _step_time(step, self.costs))
            for buffer in _unique((*self.reads[i], *self.writes[i])):
                self.uses.setdefault(buffer, []).append(i)
            for buffer in self.writes[i]:
                self.write_steps.setdefault(buffer, []).append(i)
        self.recipes: dict[Buffer, Recipe] = {}
        # by the last write, so that the recipes of sources exist before those that use them
        for buffer in sorted(self.write_steps, key=lambda b: self.write_steps[b][-1]):
            recipe = self._find_recipe(buffer)
            if recipe is not None:
                self.recipes[buffer] = recipe
        self.dependents: dict[Buffer, list[Buffer]] = {}
        for buffer, recipe in self.recipes.items():
            for source in recipe.sources:
                self.dependents.setdefault(source, []).append(buffer)

    def padded_size(self, buffer: Buffer) -> int:
        """The bytes a buffer takes in the arena."""
        return round_up(buffer.nbytes or 1, self.alignment)

    def next_use(self, buffer: Buffer, now: int) -> int | None:
        """The first step from `now` on that uses a buffer."""
        uses = self.uses[buffer]
        at = bisect_left(uses, now)
        return uses[at] if at < len(uses) else None

    def _find_recipe(self, buffer: Buffer) -> Recipe | None:
        """How to fill a buffer of the arena, if no step reads it before it is complete."""
        writers = self.write_steps[buffer]
        readers = [i for i in self.uses[buffer] if buffer not in self.writes[i]]
        # one that is read half-filled has two values over time, and a recipe makes only the last
        complete = not readers or readers[0] > writers[-1]
        if buffer.kind != "arena" or not complete or not all(_is_repeatable(self.steps[i]) for i in writers):
            return None
        steps = tuple(_restrict_to(self.steps[i], buffer) for i in writers)
        # what the steps write besides must not be seen by others when they run again
        side_writes = _unique(b for step in steps for b in step.writes() if b is not buffer)
        if not all(self._is_private_to(b, writers) for b in side_writes):
            return None
        sources = _unique(b for step in steps for b in step.reads() if b is not buffer and b not in side_writes)
        cost = sum(_step_time(step, self.costs) for step in steps)
        until, roots = math.inf, frozenset[Buffer]()
        for step, at in zip(steps, writers, strict=True):
            for source in step.reads():
                if source is buffer or source in side_writes:
                    continue
                if at in self.write_steps.get(source, ()):
                    return None  # the step reads what it overwrites itself
                known = self.recipes.get(source)
                if known is not None:
                    until, roots = min(until, known.until), roots | known.roots
                else:
                    until = min(until, self._next_overwrite(source, at))
                    roots |= {source} if source.kind == "arena" else set()
        return Recipe(steps, sources, side_writes, cost, until, roots)

    def _is_private_to(self, buffer: Buffer, writers: Sequence[int]) -> bool:
        """Whether some steps read in a buffer at most what they have written there themselves."""
        return buffer.kind == "arena" and all(i in writers for i in self.write_steps[buffer] if i < writers[-1])

    def _next_overwrite(self, buffer: Buffer, after: int) -> float:
        """The first step after one that writes a buffer."""
        found = [i for i in self.write_steps.get(buffer, ()) if i > after]
        return found[0] if found else math.inf


def _unique(buffers: Iterable[Buffer]) -> tuple[Buffer, ...]:
    return tuple(dict.fromkeys(buffers))


def _step_time(step: Step, costs: Costs) -> float:
    """Nanoseconds; for an op that NumPy executes, whose work is unknown, by its bytes."""
    if not isinstance(step, Host) or step.routine is not None:
        return estimate_nanoseconds(step, costs)
    return costs.host_byte_ns * sum(b.nbytes for b in _unique((*step.reads(), *step.writes())))


def _is_repeatable(step: Step) -> bool:
    """Whether a step may run twice. Loops are not repeated; a user's op may have effects."""
    return isinstance(step, (Kernel, Product, Blocks)) or (isinstance(step, Host) and step.is_repeatable)


def _restrict_to(step: Step, buffer: Buffer) -> Step:
    """The step with only its stores to one buffer."""
    if not isinstance(step, Kernel):
        return step
    stores = [s for s in step.stores if s.buffer is buffer]
    if len(stores) == len(step.stores):
        return step
    kernel = Kernel(step.extents, step.inner, [], stores)
    kernel.lines = kernel.live_lines()
    return kernel


def rename_buffers(step: Step, names: Mapping[Buffer, Buffer]) -> Step:
    """The step with some of its buffers replaced."""
    if not any(b in names for b in (*step.reads(), *step.writes())):
        return step
    if isinstance(step, Kernel):
        return _rename_kernel(step, names)
    if isinstance(step, Product):
        out, left, right = (_rename_layout(x, names) for x in (step.out, step.left, step.right))
        return replace(step, out=out, left=left, right=right)
    if isinstance(step, Loop):
        inputs, outputs = (tuple(_rename_layout(x, names) for x in xs) for xs in (step.inputs, step.outputs))
        number = None if step.number is None else _rename_layout(step.number, names)
        return replace(step, inputs=inputs, outputs=outputs, number=number)
    if isinstance(step, Blocks):
        return Blocks(
            step.count,
            [_rename_inner_step(s, names) for s in step.steps],
            {names.get(b, b): n for b, n in step.moves.items()},
        )
    args = tuple(_rename_layout(a, names) if isinstance(a, Layout) else a for a in step.args)
    return replace(step, args=args, outs=tuple(_rename_layout(x, names) for x in step.outs))


def _rename_inner_step(step: Kernel | Product, names: Mapping[Buffer, Buffer]) -> Kernel | Product:
    found = rename_buffers(step, names)
    assert isinstance(found, (Kernel, Product))
    return found


def _rename_layout(layout: Layout, names: Mapping[Buffer, Buffer]) -> Layout:
    return replace(layout, buffer=names.get(layout.buffer, layout.buffer))


def _rename_kernel(kernel: Kernel, names: Mapping[Buffer, Buffer]) -> Kernel:
    def rename(line: KernelLine) -> KernelLine:
        return replace(line, buffer=names[line.buffer]) if line.buffer is not None and line.buffer in names else line

    renamed = map_lines(kernel, rename)
    return replace(renamed, stores=[replace(s, buffer=names.get(s.buffer, s.buffer)) for s in renamed.stores])
