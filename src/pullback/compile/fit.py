"""Steps and a number of bytes in, steps that need no more out: memory is given up, and filled again when it is needed.

The program is played through in order with so many bytes. Where they do not suffice, the buffer goes whose return costs
least: the time of the steps that fill it (and of what else is gone around it), divided by its bytes and by how long
nobody needs it. Before the next step that reads it, those steps run once more. What is played is only a sketch of the
arena, whose gaps are not known yet: the arena is planned, and if it is too large, played again with fewer bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .fuse import Step
from .loops import Buffer
from .memory import padded, taken_over
from .recipes import Program, renamed

__all__ = ["Fit", "fitted"]

#: Buffers below this are left alone: they would only lengthen the program.
TINY = 1 << 10
#: With which parts of the bytes at hand the program is played, until the arena fits; if it never does, so many times
#: more to find what would.
PARTS, HALVINGS = (1.1, 1.0, 0.95, 0.9, 0.85, 0.8, 0.7, 0.6, 0.4, 0.2), 7
#: A program that becomes so many times longer is given up, as is looking further for what is gone around a buffer.
LONGEST, AROUND = 6, 64


@dataclass(frozen=True, slots=True)
class Fit:
    """The steps found, the bytes of their arena, and the nanoseconds they take more."""

    steps: list[Step]
    arena: int
    cost: float


def fitted(steps: Sequence[Step], room: int, arena_of: Callable[[list[Step]], int]) -> Fit:
    """Steps whose arena has at most `room` bytes, if such are found, and among those the fastest; else those with the
    smallest arena.
    """
    best = Fit(list(steps), arena_of(list(steps)), 0.0)
    if best.arena <= room:
        return best
    program = Program(steps)
    for part in PARTS:
        best = _better(program, int(room * part), room, arena_of, best)
        if best.arena <= room:
            return best
    return _least(program, room, arena_of, best)


def _better(program: Program, limit: int, room: int, arena_of: Callable[[list[Step]], int], best: Fit) -> Fit:
    """The best of what there is and what playing with so many bytes finds."""
    for wide in (True, False):
        played = _Played(program, limit, wide)
        if played.run():
            found = Fit(played.steps, arena_of(played.steps), played.cost)
            best = min(best, found, key=lambda fit: (max(fit.arena, room), fit.cost))
    return best


def _least(program: Program, room: int, arena_of: Callable[[list[Step]], int], best: Fit) -> Fit:
    """With too few bytes a program only gets longer, so the least it can do with lies above: halve the way there."""
    low, high = room, best.arena
    for _ in range(HALVINGS):
        middle = (low + high) // 2
        found = _better(program, middle, room, arena_of, best)
        low, high = (low, middle) if found.arena < best.arena else (middle, high)
        best = found
    return best


class _Played:
    """One run through a program with so many bytes. `wide`: what is gone and hangs on a buffer counts for its cost,
    beside what it hangs on.
    """

    def __init__(self, program: Program, limit: int, wide: bool) -> None:
        self.program, self.limit, self.wide = program, limit, wide
        self.steps: list[Step] = []
        self.cost = 0.0
        self.now = 0
        self.bytes = 0
        #: Buffers that are there, under the name they have now.
        self.live: dict[Buffer, Buffer] = {}
        self.gone: set[Buffer] = set()
        self.pinned: set[Buffer] = set()
        #: How many that are gone hang on a buffer that cannot be computed again.
        self.holds: Counter[Buffer] = Counter()

    def run(self) -> bool:
        """Whether it came to an end before the program became too long."""
        p = self.program
        over = taken_over(list(p.steps))
        most = LONGEST * len(p.steps) + 100
        for i, step in enumerate(p.steps):
            self.now = i
            used = [b for b in dict.fromkeys((*p.reads[i], *p.writes[i])) if b.kind == "arena"]
            self.pinned = set(used)
            for buffer in used:
                if buffer in self.gone:
                    self._fill_again(buffer)
            fresh = [b for b in used if b not in self.live]
            saved = sum(padded(b) for b in fresh if b in over and self._ends(over[b], i + 1))
            self._make_room(sum(map(padded, fresh)) - saved)
            for buffer in fresh:
                self._enter(buffer, buffer)
            self.steps.append(renamed(step, {b: self.live[b] for b in used if self.live[b] is not b}))
            for buffer in used:
                self._leave(buffer, i + 1)
            if len(self.steps) > most:
                return False
        return True

    def _enter(self, buffer: Buffer, name: Buffer) -> None:
        self.live[buffer] = name
        self.bytes += padded(buffer)
        if buffer in self.gone:
            self.gone.remove(buffer)
            self.holds.subtract(self.program.recipes[buffer].roots)
            for root in self.program.recipes[buffer].roots:
                self._leave(root, self.now)

    def _ends(self, buffer: Buffer, now: int) -> bool:
        return self.program.next_use(buffer, now) is None and not self.holds[buffer]

    def _leave(self, buffer: Buffer, now: int) -> None:
        """A buffer that nobody needs any more is free."""
        if buffer in self.live and self._ends(buffer, now):
            del self.live[buffer]
            self.bytes -= padded(buffer)

    def _make_room(self, wanted: int) -> None:
        while self.bytes + wanted > self.limit:
            candidates = [(self._score(b), n, b) for n, b in enumerate(self.live) if self._may_go(b)]
            if not candidates:
                return
            buffer = min(candidates)[2]
            del self.live[buffer]
            self.bytes -= padded(buffer)
            self.gone.add(buffer)
            self.holds.update(self.program.recipes[buffer].roots)

    def _may_go(self, buffer: Buffer) -> bool:
        p = self.program
        recipe = p.recipes.get(buffer)
        if recipe is None or buffer in self.pinned or buffer.nbytes < TINY:
            return False
        complete = p.written[buffer][-1] < self.now and p.next_use(buffer, self.now) is not None
        return complete and p.uses[buffer][-1] <= recipe.until and all(root in self.live for root in recipe.roots)

    def _score(self, buffer: Buffer) -> float:
        p = self.program
        ahead = p.next_use(buffer, self.now)
        wait = p.clock[self.now if ahead is None else ahead] - p.clock[self.now]
        return self._cost(buffer) / (padded(buffer) * (wait + 1.0))

    def _cost(self, buffer: Buffer) -> float:
        """What it takes to have a buffer again: its own steps, and those for what is gone around it."""
        p = self.program
        seen, stack, total = {buffer}, [buffer], 0.0
        while stack and len(seen) < AROUND:
            recipe = p.recipes[b := stack.pop()]
            total += recipe.cost
            around = [s for s in recipe.sources if s in p.recipes and s not in self.live]
            if self.wide:
                around += [t for t in p.takers.get(b, ()) if t in self.gone]
            new = [x for x in dict.fromkeys(around) if x not in seen]
            seen.update(new)
            stack += new
        return total

    def _fill_again(self, buffer: Buffer) -> None:
        """Run the steps that fill a buffer, after those for what they read and is not there."""
        p = self.program
        order = self._missing(buffer)
        last = {source: k for k, b in enumerate(order) for source in p.recipes[b].sources}
        here = self.pinned
        for k, b in enumerate(order):
            self.pinned = here | {source for source, end in last.items() if end >= k} | {b}
            recipe = p.recipes[b]
            self._make_room(sum(map(padded, (b, *recipe.beside))))
            self._enter(b, _another(b))
            names = {x: self.live[x] for x in (b, *recipe.sources) if self.live.get(x, x) is not x}
            names |= {x: _another(x) for x in recipe.beside}
            self.steps += [renamed(step, names) for step in recipe.steps]
            self.cost += recipe.cost
            for source in recipe.sources:
                if last[source] == k:
                    self._leave(source, self.now)
        self.pinned = here

    def _missing(self, buffer: Buffer) -> list[Buffer]:
        """What must be filled to have a buffer, in order, itself the last."""
        p = self.program
        order: dict[Buffer, None] = {}
        stack = [(buffer, False)]
        while stack:
            b, ready = stack.pop()
            if ready:
                order[b] = None
            elif b not in order and b not in self.live:
                stack.append((b, True))
                stack += [(s, False) for s in p.recipes[b].sources if s in p.recipes and s not in self.live]
        return list(order)


def _another(buffer: Buffer) -> Buffer:
    return Buffer("arena", buffer.size, buffer.dtype)
