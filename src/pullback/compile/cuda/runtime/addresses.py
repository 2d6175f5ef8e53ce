"""Where the buffers of a program lie on the device during one call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ...loop_ir import Buffer, Layout, Loop, Steps

#: Bytes that each number or small array of the host gets on the device.
NUMBER_BYTES = 64
#: Bytes that nested loops have for the truth of their conditions, one piece for each depth.
FLAG_BYTES, _FLAG_STEP = 1024, 16


@dataclass(frozen=True, slots=True)
class Addresses:
    """The addresses of a program's arguments and results (`own`), and where the rest of its memory starts: the arena,
    the scratch area, the status word, the constants, and flags of loops.
    """

    own: dict[Buffer, int]
    constants: dict[Buffer, int]
    arena: int
    scratch: int
    status: int
    flags: int
    workspace: int

    def of(self, buffer: Buffer) -> int:
        if buffer.kind == "arena":
            return self.own[buffer] if buffer in self.own else self.arena + buffer.offset
        if buffer.kind == "scratch":
            return self.scratch + buffer.offset
        if buffer.kind == "constant":
            return self.constants[buffer]
        return self.status + buffer.offset if buffer.kind == "status" else self.own[buffer]

    def start_of(self, layout: Layout, by: int = 0) -> int:
        """The address of a layout's first element, advanced by some elements."""
        return self.of(layout.buffer) + (layout.offset + by) * layout.buffer.dtype.itemsize

    def inside(self, loop: Loop, program: Steps, nested: int, at: int = 0) -> Addresses:
        """Those of a program nested in this one, in round `at`; it works behind the arena of the outer one."""
        own: dict[Buffer, int] = {}
        pairs = [*zip(program.inputs, loop.inputs, loop.moves, strict=True)]
        # a condition has a result of its own in place of the loop's
        pairs += zip(program.new_outputs, loop.outputs, loop.shifts, strict=False)
        for buffer, layout, by in pairs:
            own.setdefault(buffer, self.start_of(layout, at * by))
        flags = self.flags
        if loop.kind == "repeat" and program is loop.programs[0]:
            own[program.new_outputs[0]] = flags
        return replace(self, own=own, arena=self.arena + nested, flags=flags + _FLAG_STEP)

    def with_places(self, places: Mapping[Buffer, int]) -> Addresses:
        """The same with some arrays elsewhere."""
        return replace(self, own={**self.own, **places})
