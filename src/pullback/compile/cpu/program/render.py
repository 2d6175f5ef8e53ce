"""Steps in, the text of one LLVM module out: a function for each kernel, and one that runs them in order.

A program with ops that NumPy executes is cut there: each piece is a separate function.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ...loop_ir import Blocks, Buffer, Host, Kernel, Layout, Loop, Product, Steps
from ...target import Limits
from ...varying import Operand
from ..builder.function_text import FunctionText
from ..builder.memory import emit_address
from ..kernel.render import RenderedKernel, find_identities, kernel_key, render_kernel
from ..linalg.routines import render_routine
from ..math.functions import FUNCTIONS  # noqa: F401  # registers the mathematics with IRBuilder
from ..matmul.bfloat16 import multiplies_pairs, render_pairs
from ..matmul.gemm import BlasConstants, emit_batch, emit_one_product, render_batch
from ..matmul.panels import can_be_tiled, is_paneled, render_panels
from ..matmul.small import is_small, render_small_product
from ..window.routine import ROUTINE, plan_constant, plan_of_step, render_window_routine
from .control_flow import emit_control_flow
from .parallel_call import PRODUCTS, emit_parallel_call
from .small_loops import limits_without_masks
from .step_clock import StepClock


@dataclass(frozen=True, slots=True)
class RenderedProgram:
    """A module's text, its pieces and the host steps between them, and the constants it refers to.

    A piece takes a table of pointers: those of arguments and results at the places in `table`, then those of the arena
    and of the status word, then the constants'.
    """

    text: str
    pieces: tuple[str | Host, ...]
    constants: tuple[Any, ...]
    table: dict[Buffer, int]
    hosts: tuple[tuple[Host, Any], ...] = ()


#: The bits of the status word: an index was out of range; a routine could not finish, and nothing else took over.
OUT_OF_RANGE, UNFINISHED = 1, 2
#: The most steps of one function.
MAX_STEPS_PER_FUNCTION = 48
#: What fast arithmetic allows: reassociation, contraction, reciprocals for divisions. NaN and infinity are kept.
_FAST = "reassoc nsz arcp contract"


def render_program(steps: Steps, fast: bool, limits: Limits, clock: StepClock | None = None) -> RenderedProgram:
    """The program; with a clock, one that times its steps."""
    writer = ProgramWriter(steps, limits, clock=clock)
    pieces: list[str | Host] = []
    for host, group in itertools.groupby(steps.steps, key=_cuts_program):
        if host:
            pieces += [s for s in group if isinstance(s, Host)]
        else:
            pieces.append(writer.write_piece(list(group), f"run{len(pieces)}"))
    text = writer.render_module(fast)
    return RenderedProgram(text, tuple(pieces), tuple(writer.constants), writer.table, tuple(writer.hosts))


def _cuts_program(step: Any) -> bool:
    """Whether NumPy executes a step, between two pieces."""
    return isinstance(step, Host) and step.routine is None


class ProgramWriter:
    """Renders one program. Nested programs have writers of their own, which share the module with the `outer` one."""

    def __init__(
        self, steps: Steps, limits: Limits, outer: ProgramWriter | None = None, clock: StepClock | None = None
    ) -> None:
        self.limits = limits
        #: What times steps, the number of the one that is being emitted, and of the one around this program.
        self.clock: StepClock | None = outer.clock if outer else clock
        self.current: int | None = None
        self.outer_step: int | None = outer.current if outer else None
        assert steps.arena is not None
        #: Where in the arena the scratch memory of kernels starts, and the memory of nested programs.
        self.scratch = steps.arena
        self.nested = steps.nested
        #: Whether sizes vary: then the places of buffers do too.
        self.varies = steps.varies
        self.counter: Iterator[int] = outer.counter if outer else itertools.count()
        self.globals: BlasConstants = outer.globals if outer else BlasConstants()
        self.declared: set[str] = outer.declared if outer else set()
        self.functions: dict[str, str] = outer.functions if outer else {}
        # kernels that differ only in their buffers share one function
        self.rendered: dict[Any, tuple[RenderedKernel, list[int]]] = outer.rendered if outer else {}
        self.math_functions: dict[str, str] = outer.math_functions if outer else {}
        self.bodies: list[str] = outer.bodies if outer else []
        self.constant_buffers: list[Buffer] = []
        self.hosts: list[tuple[Host, ProgramWriter]] = outer.hosts if outer else []
        self.constants: list[Any] = []
        self.table: dict[Buffer, int] = {}
        for buffer in (*steps.inputs, *steps.new_outputs):
            self.table.setdefault(buffer, len(self.table))
        self.base = len(self.table)  # the arena's own entry; the status word's and the constants' follow it
        self.next: int = self.base + 2
        #: The function that is being emitted, its pointer to the arena, and those of buffers.
        self.text = FunctionText()
        self.builder = self.text.builder(1)
        self.arena_at = self.scratch_at = self.status_at = ""
        self.known: dict[Buffer, str] = {}
        #: The writer whose function a program without one of its own is emitted into.
        self.host: ProgramWriter | None = None

    def make_inline_writer(self, steps: Steps, arena: str) -> ProgramWriter:
        """The writer of a nested program that is emitted into this function."""
        writer = ProgramWriter(steps, self.limits, self)
        writer.host, writer.text, writer.builder, writer.arena_at = self, self.text, self.builder, arena
        return writer

    def write_inner_program(self, steps: Steps) -> tuple[str, ProgramWriter]:
        """The function of a nested program, and its writer."""
        writer = ProgramWriter(steps, self.limits, self)
        return writer.write_piece(steps.steps, f"inside{next(self.counter)}", "internal "), writer

    def write_piece(self, steps: list[Any], name: str, linkage: str = "") -> str:
        """One function that runs some steps; many steps are split into several functions, since LLVM's time grows
        faster than a function's size.
        """
        if len(steps) <= MAX_STEPS_PER_FUNCTION:
            self._write_function(steps, name, linkage)
            return name
        parts = [steps[i : i + MAX_STEPS_PER_FUNCTION] for i in range(0, len(steps), MAX_STEPS_PER_FUNCTION)]
        names = [f"{name}part{i}" for i in range(len(parts))]
        for part, own in zip(parts, names, strict=True):
            # what only calls is as quick without optimization, which takes LLVM most of the time; loops are not
            plain = all(isinstance(step, (Kernel, Host)) for step in part)
            self._write_function(part, own, "internal ", "noinline optnone " if plain else "noinline ")
        calls = "\n".join(f"  call void @{own}(ptr %table)" for own in names)
        self.bodies.append(f"define {linkage}void @{name}(ptr %table) #0 {{\nentry:\n{calls}\n  ret void\n}}")
        return name

    def _write_function(self, steps: list[Any], name: str, linkage: str, how: str = "") -> None:
        self.text = FunctionText(declared=self.declared)
        self.builder, self.known = self.text.builder(1), {}
        self.arena_at = self.load_entry(self.base)
        # once for all steps: LLVM's time is proportional to the text
        self.scratch_at, self.status_at = self.arena_pointer(self.scratch), self.load_entry(self.base + 1)
        self._emit_steps(steps)
        self.bodies.append(self.text.render(f"define {linkage}void @{name}(ptr %table) {how}"))

    def _emit_steps(self, steps: list[Any]) -> None:
        if self.clock is None:
            for step in steps:
                self.emit_step(step)
            return
        slot = self.clock.begin(self.text, self.builder)
        for step in steps:
            self.current = self.clock.add(step, self.outer_step)
            self.emit_step(step)
            self.clock.note(self.builder, slot, self.current)

    def emit_step(self, step: Any) -> None:
        """Append the instructions of one step."""
        if isinstance(step, Kernel):
            if math.prod(step.extents):
                self._emit_kernel(step)
        elif isinstance(step, Product):
            self._emit_product(step)
        elif isinstance(step, Blocks):
            self._emit_blocks(step)
        elif isinstance(step, Loop):
            emit_control_flow(self, step)
        elif isinstance(step, Host):
            if step.routine is None:
                self._emit_callback(step)
            else:
                self._emit_routine(step)

    def _emit_routine(self, step: Host) -> None:
        """A routine in native code; where it fails, Python is called as for any op of NumPy."""
        pointers = [self.address_of(x) for x in (*step.args, *step.outs)]
        assert step.routine is not None
        if step.routine.name.startswith(ROUTINE):
            text, plan = render_window_routine(step, self.declared, self.limits.vector_bytes), plan_of_step(step)
            numbers = plan_constant(plan)
            pointers.append(self.pointer(Buffer("constant", numbers.size, numbers.dtype, constant=numbers)))
        else:
            rendered = render_routine(step, self.globals, self.declared, self.limits.vector_bytes)
            self.math_functions |= rendered.functions
            text = rendered.text
        name, failed = self._name_function(text, "routine"), self.text.slot("i32", "0")
        pointers += [self.scratch_pointer(), failed]
        self.builder.emit(f"call void @{name}({', '.join('ptr ' + p for p in pointers)})")
        found = self.builder.assign(f"load i32, ptr {failed}")
        tag = self.text.begin_if(self.builder.assign(f"icmp ne i32 {found}, 0"))
        if self.limits.is_freestanding:
            before = self.builder.assign(f"load i32, ptr {self.status()}")
            after = self.builder.assign(f"or i32 {before}, {UNFINISHED}")
            self.builder.emit(f"store i32 {after}, ptr {self.status()}")
        else:
            self._emit_callback(step)
        self.text.end_if(tag)

    def _emit_callback(self, step: Host) -> None:
        """An op that NumPy executes inside a loop: Python is called with the number of the step and the table."""
        for layout in (*step.args, *step.outs):
            if isinstance(layout, Layout):
                self.pointer(layout.buffer)  # constants get their entry in the table
        self.declared.add("@host = global ptr null")
        function = self.builder.assign("load ptr, ptr @host")
        self.builder.emit(f"call void {function}(i64 {len(self.hosts)}, ptr %table)")
        self.hosts.append((step, self))

    def status(self) -> str:
        """The pointer of the status word."""
        return self.status_at if self.host is None else self.host.status()

    def scratch_pointer(self) -> str:
        return self.scratch_at if self.host is None else self.arena_pointer(self.scratch)

    def pointer(self, buffer: Buffer) -> str:
        if buffer not in self.known:
            if buffer.kind == "arena":
                self.known[buffer] = self.arena_pointer(buffer.offset)
            elif self.host is not None:
                return self.host.pointer(buffer)
            else:
                # a constant gets the next entry when it is first used
                if buffer not in self.table:
                    self.table[buffer] = self.next
                    self.next += 1
                    self.constants.append(buffer.constant)
                    self.constant_buffers.append(buffer)
                self.known[buffer] = self.load_entry(self.table[buffer])
        return self.known[buffer]

    def arena_pointer(self, offset: int) -> str:
        # what is to be registers has fixed places
        at = self.text.operand(offset) if self.varies and self.host is None else int(offset)
        return self.builder.assign(f"getelementptr inbounds i8, ptr {self.arena_at}, i64 {at}")

    def load_entry(self, number: int) -> str:
        place = self.builder.assign(f"getelementptr inbounds ptr, ptr %table, i64 {number}")
        return self.builder.assign(f"load ptr, ptr {place}")

    def address_of(self, layout: Layout) -> str:
        return emit_address(self.builder, layout.buffer.dtype, self.pointer(layout.buffer), offset=layout.offset)

    def _emit_blocks(self, step: Blocks) -> None:
        """A loop around the steps that advances the pointers of some buffers."""
        for buffer in (*step.reads(), *step.writes()):
            self.pointer(buffer)
        loop, outside = self.text.open(step.count), self.known
        self.known = dict(outside)  # pointers made inside are not known after the loop
        for buffer, by in step.moves.items():
            self.known[buffer] = emit_address(self.builder, buffer.dtype, outside[buffer], (self.text.counters[-1], by))
        for inner in step.steps:
            self.emit_step(inner)
        self.known = outside
        self.text.close(loop)

    def _emit_product(self, step: Product) -> None:
        pointers = [self.address_of(x) for x in (step.out, step.left, step.right)]
        function = self._own_product_function(step)
        if step.blocks > 1 or isinstance(step.blocks, Operand):
            name = self._name_function(render_batch(step, self.globals, self.declared, function), "products")
            emit_parallel_call(self.text, name, pointers, step.blocks, PRODUCTS)
        elif step.count > 1:
            emit_batch(self.text, step, pointers, self.globals, function)
        else:
            emit_one_product(step, pointers, self.builder, self.globals, function)

    def _emit_kernel(self, kernel: Kernel) -> None:
        key, own = kernel_key(kernel)
        key = (key, find_identities(kernel)) if self.varies else key
        inline = self.host is not None
        key = (key, inline)
        if key not in self.rendered:  # long programs repeat kernels, and rendering takes time
            new = render_kernel(kernel, limits_without_masks(kernel, self.limits) if inline else self.limits)
            self.rendered[key] = new, [own.index(b) for b in new.buffers]
            self.declared |= new.declared
            self.math_functions |= new.functions
        rendered, order = self.rendered[key]
        text = rendered.text.replace(") noinline #0", ") alwaysinline #0", 1) if inline else rendered.text
        name = self._name_function(text, "kernel")
        pointers = [self.pointer(own[i]) for i in order]
        pointers += [self.scratch_pointer(), self.status()]
        if kernel.division is not None:
            emit_parallel_call(self.text, f"{name}.block", pointers, kernel.division.blocks)
        else:
            self.builder.emit(f"call void @{name}({', '.join('ptr ' + p for p in pointers)})")

    def _own_product_function(self, step: Product) -> str | None:
        """The function of a product that is not left to the BLAS."""
        if multiplies_pairs(step):
            return self._name_function(render_pairs(step, self.declared, self._name_function), "product")
        without_blas = self.limits.is_freestanding and not is_small(step)
        if is_paneled(step, self.limits.vector_bytes, self.limits.is_wider_than_blas) or (
            without_blas and can_be_tiled(step, self.limits.vector_bytes)
        ):
            return self._name_function(
                render_panels(step, self.limits.vector_bytes, self.declared, self._name_function), "product"
            )
        if is_small(step) or without_blas:
            return self._name_function(render_small_product(step, self.limits.vector_bytes, self.declared), "product")
        return None

    def _name_function(self, text: str, kind: str) -> str:
        """The name of a function, which is the same for the same text."""
        return self.functions.setdefault(text, f"{kind}{len(self.functions)}")

    def render_module(self, fast: bool) -> str:
        kernels = [text.replace("@NAME", f"@{name}") for text, name in self.functions.items()]
        if fast:  # not the math functions: their error bounds rely on exact differences
            kernels = [re.sub(r" = (fadd|fsub|fmul|fdiv) ", rf" = \1 {_FAST} ", text) for text in kernels]
        width = self.limits.vector_bytes * 8
        attributes = (
            f'attributes #0 = {{ nounwind "prefer-vector-width"="{width}" "min-legal-vector-width"="{width}" }}'
        )
        return "\n".join([
            *sorted(self.globals.lines.values()), *sorted(self.declared), *self.math_functions.values(), *kernels,
            *self.bodies, *([] if self.clock is None else self.clock.render()), attributes,
        ])  # fmt: skip
