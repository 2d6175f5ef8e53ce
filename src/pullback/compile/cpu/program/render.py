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
from ..builder.ir_builder import IRBuilder
from ..builder.vector_types import llvm_element_type
from ..kernel.render import RenderedKernel, kernel_key, render_kernel
from ..math.functions import FUNCTIONS  # noqa: F401  # registers the mathematics with IRBuilder
from ..matmul.batch import render_batch
from ..matmul.gemm import BlasConstants, emit_product
from ..matmul.panels import is_tiled, render_panels
from ..matmul.small import is_small, render_small_product
from .block_loop import emit_blocks
from .control_flow import emit_control_flow
from .parallel_call import PRODUCTS, emit_parallel_call


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


#: The most steps of one function.
MAX_STEPS_PER_FUNCTION = 48
#: What fast arithmetic allows: reassociation, contraction, reciprocals for divisions. NaN and infinity are kept.
_FAST = "reassoc nsz arcp contract"


def render_program(steps: Steps, fast: bool, limits: Limits) -> RenderedProgram:
    writer = ProgramWriter(steps, limits)
    pieces: list[str | Host] = []
    for host, group in itertools.groupby(steps.steps, key=lambda s: isinstance(s, Host)):
        if host:
            pieces += [s for s in group if isinstance(s, Host)]
        else:
            pieces.append(writer.write_piece(list(group), f"run{len(pieces)}"))
    text = writer.render_module(fast)
    return RenderedProgram(text, tuple(pieces), tuple(writer.constants), writer.table, tuple(writer.hosts))


class ProgramWriter:
    """Renders one program. Nested programs have writers of their own, which share the module with the `outer` one."""

    def __init__(self, steps: Steps, limits: Limits, outer: ProgramWriter | None = None) -> None:
        self.limits = limits
        assert steps.arena is not None
        #: Where in the arena the scratch memory of kernels starts, and the memory of nested programs.
        self.scratch = steps.arena
        self.nested = steps.nested
        self.counter: Iterator[int] = outer.counter if outer else itertools.count()
        self.globals: BlasConstants = outer.globals if outer else BlasConstants()
        self.declared: set[str] = outer.declared if outer else set()
        self.functions: dict[str, str] = outer.functions if outer else {}
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
        self.arena_at = ""  # the pointer to the arena, in the function that is being emitted

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
            self._write_function(part, own, "internal ", "noinline ")
        calls = "\n".join(f"  call void @{own}(ptr %table)" for own in names)
        self.bodies.append(f"define {linkage}void @{name}(ptr %table) #0 {{\nentry:\n{calls}\n  ret void\n}}")
        return name

    def _write_function(self, steps: list[Any], name: str, linkage: str, how: str = "") -> None:
        builder = IRBuilder(1, self.counter, self.declared)
        known: dict[Buffer, str] = {}
        self.arena_at = self.load_entry(builder, self.base)
        slots: list[str] = []
        for step in steps:
            self.emit_step(step, builder, known, slots)
        body = "\n".join([*slots, *builder.lines])
        self.bodies.append(f"define {linkage}void @{name}(ptr %table) {how}#0 {{\nentry:\n{body}\n  ret void\n}}")

    def emit_step(self, step: Any, builder: IRBuilder, known: dict[Buffer, str], slots: list[str]) -> None:
        """Append the instructions of one step; `slots` are for the beginning of the function."""
        if isinstance(step, Kernel):
            if math.prod(step.extents):
                self._emit_kernel(step, builder, known, slots)
        elif isinstance(step, Product):
            slots += self._emit_product(step, builder, known)
        elif isinstance(step, Blocks):
            emit_blocks(self, step, builder, known, slots)
        elif isinstance(step, Loop):
            slots += emit_control_flow(self, step, builder, known)
        elif isinstance(step, Host):
            self.emit_callback(step, builder, known)

    def emit_callback(self, step: Host, builder: IRBuilder, known: dict[Buffer, str]) -> None:
        """An op that NumPy executes inside a loop: Python is called with the number of the step and the table."""
        for layout in (*step.args, *step.outs):
            if isinstance(layout, Layout):
                self.pointer(builder, known, layout.buffer)  # constants get their entry in the table
        self.declared.add("@host = global ptr null")
        function = builder.assign("load ptr, ptr @host")
        builder.emit(f"call void {function}(i64 {len(self.hosts)}, ptr %table)")
        self.hosts.append((step, self))

    def pointer(self, builder: IRBuilder, known: dict[Buffer, str], buffer: Buffer) -> str:
        if buffer not in known:
            if buffer.kind == "arena":
                known[buffer] = builder.assign(f"getelementptr inbounds i8, ptr {self.arena_at}, i64 {buffer.offset}")
            else:
                if buffer not in self.table:
                    self.table[buffer] = self.next
                    self.next += 1
                    self.constants.append(buffer.constant)
                    self.constant_buffers.append(buffer)
                known[buffer] = self.load_entry(builder, self.table[buffer])
        return known[buffer]

    def load_entry(self, builder: IRBuilder, number: int) -> str:
        place = builder.assign(f"getelementptr inbounds ptr, ptr %table, i64 {number}")
        return builder.assign(f"load ptr, ptr {place}")

    def address_of(self, builder: IRBuilder, known: dict[Buffer, str], layout: Layout) -> str:
        pointer = self.pointer(builder, known, layout.buffer)
        if not layout.offset:
            return pointer
        kind = llvm_element_type(layout.buffer.dtype, True)
        return builder.assign(f"getelementptr inbounds {kind}, ptr {pointer}, i64 {layout.offset}")

    def _emit_product(self, step: Product, builder: IRBuilder, known: dict[Buffer, str]) -> list[str]:
        tag = next(self.counter)
        pointers = [self.address_of(builder, known, x) for x in (step.out, step.left, step.right)]
        function = self._own_product_function(step)
        if step.blocks > 1:
            text = render_batch(step, step.blocks, self.globals, self.counter, self.declared, function)
            name = self.functions.setdefault(text, f"products{len(self.functions)}")
            return emit_parallel_call(builder, name, pointers, step.blocks, f"%given{tag}", PRODUCTS)
        emit_product(step, pointers, builder, self.globals, tag, function)
        single = step.out.shape[0] == 1
        return [] if single else [f"  %slot{tag} = alloca i64", f"  store i64 0, ptr %slot{tag}"]

    def _emit_kernel(self, kernel: Kernel, builder: IRBuilder, known: dict[Buffer, str], slots: list[str]) -> None:
        key, own = kernel_key(kernel)
        if key not in self.rendered:  # long programs repeat kernels, and rendering takes time
            new = render_kernel(kernel, self.limits)
            self.rendered[key] = new, [own.index(b) for b in new.buffers]
            self.declared |= new.declared
            self.math_functions |= new.functions
        rendered, order = self.rendered[key]
        name = self._name_function(rendered.text, "kernel")
        division = kernel.division
        pointers = [self.pointer(builder, known, own[i]) for i in order]
        pointers.append(builder.assign(f"getelementptr inbounds i8, ptr {self.arena_at}, i64 {self.scratch}"))
        pointers.append(self.load_entry(builder, self.base + 1))
        if division is not None:
            slots += emit_parallel_call(
                builder, f"{name}.block", pointers, division.blocks, f"%given{next(self.counter)}"
            )
            return
        builder.emit(f"call void @{name}({', '.join('ptr ' + p for p in pointers)})")

    def _own_product_function(self, step: Product) -> str | None:
        """The function of a product that is not left to the BLAS."""
        if is_small(step):
            return self._name_function(render_small_product(step, self.limits.vector_bytes, self.declared), "product")
        if is_tiled(step, self.limits.vector_bytes):
            return self._name_function(
                render_panels(step, self.limits.vector_bytes, self.declared, self._name_function), "product"
            )
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
            *self.bodies, attributes,
        ])  # fmt: skip
