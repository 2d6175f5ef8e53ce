"""Steps in, how to fill their memory once more out: which buffers can be computed again, from what, and until when."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from .cost import nanoseconds
from .fuse import Step
from .loops import Blocks, Buffer, Host, Kernel, Layout, Line, Loop, Product

__all__ = ["Program", "Recipe", "renamed"]

#: What an op of the array library is taken to cost for each byte that it reads or writes.
LIBRARY = 1.0


@dataclass(frozen=True, slots=True)
class Recipe:
    """The steps that fill one buffer, what they read, what else they write, and their nanoseconds.

    What else they write (`beside`: another result, a piece of memory of their own) is nobody's when they run again.
    `until` is the last step before which they can run: later something they read, however far back, is overwritten.
    `roots` are buffers that they hang on, however far back, and that have no recipe of their own.
    """

    steps: tuple[Step, ...]
    sources: tuple[Buffer, ...]
    beside: tuple[Buffer, ...]
    cost: float
    until: float
    roots: frozenset[Buffer]


class Program:
    """Steps with what is known of them: who uses which buffer when, what can be computed again, and when each runs."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self.steps = steps
        self.reads = [_once(step.reads()) for step in steps]
        self.writes = [_once(step.writes()) for step in steps]
        self.clock = [0.0]
        self.uses: dict[Buffer, list[int]] = {}
        self.written: dict[Buffer, list[int]] = {}
        for i, step in enumerate(steps):
            self.clock.append(self.clock[-1] + _time(step))
            for buffer in _once((*self.reads[i], *self.writes[i])):
                self.uses.setdefault(buffer, []).append(i)
            for buffer in self.writes[i]:
                self.written.setdefault(buffer, []).append(i)
        self.recipes: dict[Buffer, Recipe] = {}
        for buffer in sorted(self.written, key=lambda b: self.written[b][-1]):
            recipe = self._recipe(buffer)
            if recipe is not None:
                self.recipes[buffer] = recipe
        self.takers: dict[Buffer, list[Buffer]] = {}
        for buffer, recipe in self.recipes.items():
            for source in recipe.sources:
                self.takers.setdefault(source, []).append(buffer)

    def next_use(self, buffer: Buffer, now: int) -> int | None:
        """The first step from `now` on that uses a buffer."""
        uses = self.uses[buffer]
        at = bisect_left(uses, now)
        return uses[at] if at < len(uses) else None

    def _recipe(self, buffer: Buffer) -> Recipe | None:
        """How to fill a buffer of the arena, if nobody reads it before it is complete."""
        writers = self.written[buffer]
        readers = [i for i in self.uses[buffer] if buffer not in self.writes[i]]
        complete = not readers or readers[0] > writers[-1]
        if buffer.kind != "arena" or not complete or not all(_is_steady(self.steps[i]) for i in writers):
            return None
        steps = tuple(_only(self.steps[i], buffer) for i in writers)
        beside = _once(b for step in steps for b in step.writes() if b is not buffer)
        if not all(self._is_their_own(b, writers) for b in beside):
            return None
        sources = _once(b for step in steps for b in step.reads() if b is not buffer and b not in beside)
        until, roots = math.inf, frozenset[Buffer]()
        for step, at in zip(steps, writers, strict=True):
            for source in step.reads():
                if source is buffer or source in beside:
                    continue
                if at in self.written.get(source, ()):
                    return None  # the step reads what it overwrites itself
                known = self.recipes.get(source)
                if known is not None:
                    until, roots = min(until, known.until), roots | known.roots
                else:
                    until = min(until, self._overwritten(source, at))
                    roots |= {source} if source.kind == "arena" else set()
        return Recipe(steps, sources, beside, sum(map(_time, steps)), until, roots)

    def _is_their_own(self, buffer: Buffer, writers: Sequence[int]) -> bool:
        """Whether some steps find in a buffer at most what they have written there themselves."""
        return buffer.kind == "arena" and all(i in writers for i in self.written[buffer] if i < writers[-1])

    def _overwritten(self, buffer: Buffer, after: int) -> float:
        """The first step after one that writes a buffer."""
        found = [i for i in self.written.get(buffer, ()) if i > after]
        return found[0] if found else math.inf


def _once(buffers: Iterable[Buffer]) -> tuple[Buffer, ...]:
    return tuple(dict.fromkeys(buffers))


def _time(step: Step) -> float:
    """Nanoseconds; of an op of the array library, whose work nobody knows, so many for each byte."""
    if not isinstance(step, Host):
        return nanoseconds(step)
    return LIBRARY * sum(b.nbytes for b in _once((*step.reads(), *step.writes())))


def _is_steady(step: Step) -> bool:
    """Whether a step may run twice. Loops are left as they are; an op of the user's may have effects."""
    return isinstance(step, (Kernel, Product, Blocks)) or (isinstance(step, Host) and step.steady)


def _only(step: Step, buffer: Buffer) -> Step:
    """A step that does what another does, for one buffer alone."""
    if not isinstance(step, Kernel):
        return step
    stores = [s for s in step.stores if s.buffer is buffer]
    if len(stores) == len(step.stores):
        return step
    kernel = Kernel(step.extents, step.inner, [], stores)
    kernel.lines = kernel.used()
    return kernel


def renamed(step: Step, names: Mapping[Buffer, Buffer]) -> Step:
    """The step with other buffers in the places of some."""
    if not any(b in names for b in (*step.reads(), *step.writes())):
        return step
    if isinstance(step, Kernel):
        return _kernel(step, names)
    if isinstance(step, Product):
        out, left, right = (_moved(x, names) for x in (step.out, step.left, step.right))
        return replace(step, out=out, left=left, right=right)
    if isinstance(step, Loop):
        inputs, outputs = (tuple(_moved(x, names) for x in xs) for xs in (step.inputs, step.outputs))
        number = None if step.number is None else _moved(step.number, names)
        return replace(step, inputs=inputs, outputs=outputs, number=number)
    if isinstance(step, Blocks):
        return Blocks(
            step.count, [_inside(s, names) for s in step.steps], {names.get(b, b): n for b, n in step.moves.items()}
        )
    args = tuple(_moved(a, names) if isinstance(a, Layout) else a for a in step.args)
    return replace(step, args=args, outs=tuple(_moved(x, names) for x in step.outs))


def _inside(step: Kernel | Product, names: Mapping[Buffer, Buffer]) -> Kernel | Product:
    found = renamed(step, names)
    assert isinstance(found, (Kernel, Product))
    return found


def _moved(layout: Layout, names: Mapping[Buffer, Buffer]) -> Layout:
    return replace(layout, buffer=names.get(layout.buffer, layout.buffer))


def _kernel(kernel: Kernel, names: Mapping[Buffer, Buffer]) -> Kernel:
    known: dict[int, Line] = {}

    def of(line: Line) -> Line:
        if id(line) not in known:
            args = tuple(of(a) for a in line.args)
            same = line.buffer not in names and all(a is b for a, b in zip(args, line.args, strict=True))
            buffer = None if line.buffer is None else names.get(line.buffer, line.buffer)
            known[id(line)] = line if same else replace(line, args=args, buffer=buffer)
        return known[id(line)]

    lines = [of(line) for line in kernel.lines]
    stores = [
        replace(s, line=of(s.line), args=tuple(map(of, s.args)), buffer=names.get(s.buffer, s.buffer))
        for s in kernel.stores
    ]
    return replace(kernel, lines=lines, stores=stores)
