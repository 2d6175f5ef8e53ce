"""Rematerialization, steps and a number of bytes in, steps that fit out: buffers are evicted, and recomputed for use.

The program is simulated in order with a limit of bytes. Where they do not suffice, the buffer with the lowest score is
evicted: the time of the steps that fill it (and evicted neighbours), divided by its bytes and by the time until its
next use. Before that use, those steps run again. The simulation does not know the gaps of the arena: the arena is then
planned, and if it is too large, the program is simulated again with fewer bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..loop_ir import Buffer, Step
from ..target import Target
from .arena import find_reused_buffers
from .recompute_recipes import StepUsage, rename_buffers

#: Smaller buffers are not evicted: it would only lengthen the program.
MIN_EVICTED_BYTES = 1 << 10
#: The fractions of the available bytes that are simulated until the arena fits; if it never does, so many bisections
#: find a limit that would.
BUDGET_FRACTIONS, BISECTIONS = (1.1, 1.0, 0.95, 0.9, 0.85, 0.8, 0.7, 0.6, 0.4, 0.2), 7
#: A program that becomes so many times longer is abandoned; and how many evicted neighbours of a buffer are visited.
MAX_GROWTH, MAX_NEIGHBORS = 6, 64


@dataclass(frozen=True, slots=True)
class Fit:
    """The steps found, the bytes of their arena, and the extra nanoseconds they take."""

    steps: list[Step]
    arena: int
    cost: float


def fit_steps(steps: Sequence[Step], room: int, target: Target, arena_of: Callable[[list[Step]], int]) -> Fit:
    """Steps whose arena has at most `room` bytes, if such are found, and among those the fastest; else those with the
    smallest arena.
    """
    # the steps as they are, if they fit
    best = Fit(list(steps), arena_of(list(steps)), 0.0)
    if best.arena <= room:
        return best
    program = StepUsage(steps, target)
    for part in BUDGET_FRACTIONS:
        best = _try_limit(program, int(room * part), room, arena_of, best)
        if best.arena <= room:
            return best
    return _bisect_limit(program, room, arena_of, best)


def _try_limit(program: StepUsage, limit: int, room: int, arena_of: Callable[[list[Step]], int], best: Fit) -> Fit:
    """The better of `best` and the result of a simulation with this limit."""
    for wide in (True, False):
        played = _Simulation(program, limit, wide)
        if played.run():
            found = Fit(played.steps, arena_of(played.steps), played.cost)
            best = min(best, found, key=lambda fit: (max(fit.arena, room), fit.cost))
    return best


def _bisect_limit(program: StepUsage, room: int, arena_of: Callable[[list[Step]], int], best: Fit) -> Fit:
    """Bisect for the smallest limit that works: with too few bytes a program only gets longer."""
    low, high = room, best.arena
    for _ in range(BISECTIONS):
        middle = (low + high) // 2
        found = _try_limit(program, middle, room, arena_of, best)
        low, high = (low, middle) if found.arena < best.arena else (middle, high)
        best = found
    return best


class _Simulation:
    """One simulation of a program with a limit of bytes. `wide`: the cost of a buffer also counts its evicted
    dependents, not only its evicted sources.
    """

    def __init__(self, program: StepUsage, limit: int, wide: bool) -> None:
        self.program, self.limit, self.wide = program, limit, wide
        self.steps: list[Step] = []
        self.cost = 0.0
        self.now = 0
        self.bytes = 0
        #: Buffers in memory, each with the copy that currently holds it.
        self.live: dict[Buffer, Buffer] = {}
        self.evicted: set[Buffer] = set()
        self.pinned: set[Buffer] = set()
        #: How many evicted buffers depend on a buffer that cannot be recomputed.
        self.evicted_dependents: Counter[Buffer] = Counter()

    def run(self) -> bool:
        """Whether it finished before the program became too long."""
        p = self.program
        reused = find_reused_buffers(list(p.steps))
        most = MAX_GROWTH * len(p.steps) + 100
        for i, step in enumerate(p.steps):
            self.now = i
            used = [b for b in dict.fromkeys((*p.reads[i], *p.writes[i])) if b.kind == "arena"]
            self.pinned = set(used)
            for buffer in used:
                if buffer in self.evicted:
                    self._recompute(buffer)
            new = [b for b in used if b not in self.live]
            # a buffer that overwrites a dying one in place needs no room
            saved = sum(p.padded_size(b) for b in new if b in reused and self._is_dead(reused[b], i + 1))
            self._make_room(sum(map(self.program.padded_size, new)) - saved)
            for buffer in new:
                self._allocate(buffer, buffer)
            self.steps.append(rename_buffers(step, {b: self.live[b] for b in used if self.live[b] is not b}))
            for buffer in used:
                self._free_if_dead(buffer, i + 1)
            if len(self.steps) > most:
                return False
        return True

    def _allocate(self, buffer: Buffer, name: Buffer) -> None:
        self.live[buffer] = name
        self.bytes += self.program.padded_size(buffer)
        if buffer in self.evicted:
            self.evicted.remove(buffer)
            self.evicted_dependents.subtract(self.program.recipes[buffer].roots)
            for root in self.program.recipes[buffer].roots:
                self._free_if_dead(root, self.now)

    def _is_dead(self, buffer: Buffer, now: int) -> bool:
        return self.program.next_use(buffer, now) is None and not self.evicted_dependents[buffer]

    def _free_if_dead(self, buffer: Buffer, now: int) -> None:
        """Free a buffer after its last use."""
        if buffer in self.live and self._is_dead(buffer, now):
            del self.live[buffer]
            self.bytes -= self.program.padded_size(buffer)

    def _make_room(self, wanted: int) -> None:
        while self.bytes + wanted > self.limit:
            # the number breaks ties, so that the result does not depend on addresses
            candidates = [(self._eviction_score(b), n, b) for n, b in enumerate(self.live) if self._can_evict(b)]
            if not candidates:
                return
            buffer = min(candidates)[2]
            del self.live[buffer]
            self.bytes -= self.program.padded_size(buffer)
            self.evicted.add(buffer)
            self.evicted_dependents.update(self.program.recipes[buffer].roots)

    def _can_evict(self, buffer: Buffer) -> bool:
        p = self.program
        recipe = p.recipes.get(buffer)
        if recipe is None or buffer in self.pinned or buffer.nbytes < MIN_EVICTED_BYTES:
            return False
        # it must be recomputable at its last use: no source overwritten by then, and all roots in memory
        complete = p.write_steps[buffer][-1] < self.now and p.next_use(buffer, self.now) is not None
        return complete and p.uses[buffer][-1] <= recipe.until and all(root in self.live for root in recipe.roots)

    def _eviction_score(self, buffer: Buffer) -> float:
        p = self.program
        ahead = p.next_use(buffer, self.now)
        wait = p.clock[self.now if ahead is None else ahead] - p.clock[self.now]
        return self._recompute_cost(buffer) / (self.program.padded_size(buffer) * (wait + 1.0))

    def _recompute_cost(self, buffer: Buffer) -> float:
        """What it costs to have a buffer again: its own steps, and those of its evicted neighbours."""
        p = self.program
        seen, stack, total = {buffer}, [buffer], 0.0
        while stack and len(seen) < MAX_NEIGHBORS:
            recipe = p.recipes[b := stack.pop()]
            total += recipe.cost
            # what is evicted too must be recomputed first, so it counts
            neighbors = [s for s in recipe.sources if s in p.recipes and s not in self.live]
            if self.wide:
                neighbors += [t for t in p.dependents.get(b, ()) if t in self.evicted]
            new = [x for x in dict.fromkeys(neighbors) if x not in seen]
            seen.update(new)
            stack += new
        return total

    def _recompute(self, buffer: Buffer) -> None:
        """Run the steps that fill a buffer, after those of its missing sources."""
        p = self.program
        order = self._missing_buffers(buffer)
        # a source may be freed after the last of these that reads it
        last = {source: k for k, b in enumerate(order) for source in p.recipes[b].sources}
        here = self.pinned
        for k, b in enumerate(order):
            self.pinned = here | {source for source, end in last.items() if end >= k} | {b}
            recipe = p.recipes[b]
            self._make_room(sum(map(self.program.padded_size, (b, *recipe.side_writes))))
            self._allocate(b, _buffer_like(b))
            names = {x: self.live[x] for x in (b, *recipe.sources) if self.live.get(x, x) is not x}
            names |= {x: _buffer_like(x) for x in recipe.side_writes}
            self.steps += [rename_buffers(step, names) for step in recipe.steps]
            self.cost += recipe.cost
            for source in recipe.sources:
                if last[source] == k:
                    self._free_if_dead(source, self.now)
        self.pinned = here

    def _missing_buffers(self, buffer: Buffer) -> list[Buffer]:
        """What must be filled to have a buffer, in order, ending with itself."""
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


def _buffer_like(buffer: Buffer) -> Buffer:
    return Buffer("arena", buffer.size, buffer.dtype)
