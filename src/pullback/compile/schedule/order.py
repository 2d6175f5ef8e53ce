"""Steps in, the same steps out, ordered so that memory is alive for the shortest time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..loop_ir import Buffer, Step, Steps


def order_steps(program: Steps) -> Steps:
    """The fills read nothing: each runs just before the first step that uses what it fills. The updates overwrite
    arguments: each runs as soon as all have read what it overwrites and written what it reads, so that what it reads
    is freed early.
    """
    first, steps, last = program.fills, program.steps, program.updates
    before: dict[int, list[Step]] = {}
    # the latest place that is early enough, so that the memory is alive for the shortest time
    touched = _first_uses([*steps, *last])
    for step in first:
        before.setdefault(min(touched.get(b, 0) for b in step.writes()), []).append(step)
    after: dict[int, list[Step]] = {}
    used, written = _last_uses(steps)
    for step in last:
        at = max([used.get(b, -1) for b in step.writes()] + [written.get(b, -1) for b in step.reads()])
        after.setdefault(at, []).append(step)
        for b in (*step.writes(), *step.reads()):  # two that share memory keep their order
            used[b] = max(used.get(b, -1), at)
        for b in step.writes():
            written[b] = at
    found = [*after.get(-1, ())]
    for i, step in enumerate(steps):
        found += [*before.get(i, ()), step, *after.get(i, ())]
    late = [s for i in sorted(before) if i >= len(steps) for s in before[i]]
    return replace(program, steps=late + found, fills=[], updates=[])


def _first_uses(steps: Sequence[Step]) -> dict[Buffer, int]:
    found: dict[Buffer, int] = {}
    for i, step in enumerate(steps):
        for buffer in (*step.writes(), *step.reads()):
            found.setdefault(buffer, i)
    return found


def _last_uses(steps: Sequence[Step]) -> tuple[dict[Buffer, int], dict[Buffer, int]]:
    """The last step that reads or writes a buffer, and the last that writes it."""
    used: dict[Buffer, int] = {}
    written: dict[Buffer, int] = {}
    for i, step in enumerate(steps):
        used |= dict.fromkeys((*step.reads(), *step.writes()), i)
        written |= dict.fromkeys(step.writes(), i)
    return used, written
