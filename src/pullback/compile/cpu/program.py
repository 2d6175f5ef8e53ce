"""Steps in, the text of one LLVM module out: a function for each kernel, and one that runs them in order.

A program with ops that the array library runs is cut there: each piece is one function of its own.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..fuse import Steps
from ..legality import check_legality
from ..loops import Blocks, Buffer, Host, Kernel, Layout, Loop, Product
from ..memory import ALIGNMENT, planned
from .batches import batch_text
from .blocks import blocks_text
from .division import divided
from .kernels import Rendered, form, render_kernel
from .lanes import element_type
from .math import FUNCTIONS
from .nested import loop_text
from .panels import is_tiled, panels_text
from .parallel import PRODUCTS, call_text
from .products import Globals, product_text
from .small import is_small, small_product
from .words import Words

__all__ = ["FUNCTIONS", "Native", "render_program"]


@dataclass(frozen=True, slots=True)
class Native:
    """A module's text, its pieces and the calls between them, the constants it refers to, and its arena.

    The table that a piece is given has the buffers' pointers by `table`; after those of arguments and results those of
    the arena and of the status word, then the constants'.
    """

    text: str
    pieces: tuple[str | Host, ...]
    constants: tuple[Any, ...]
    arena: int
    table: dict[Buffer, int]
    hosts: tuple[tuple[Host, Any], ...] = ()


#: A function runs at most so many steps.
LONGEST = 48
#: What fast arithmetic may do: another order, one rounding for two, a reciprocal for a division. NaN and infinity stay.
_FAST = "reassoc nsz arcp contract"


def render_program(steps: Steps, vector_bytes: int, fast: bool = False) -> Native:
    running = divided(steps.steps, vector_bytes)
    writer = Writer(steps, vector_bytes, planned(running))
    check_legality(running)
    pieces: list[str | Host] = []
    for host, group in itertools.groupby(running, key=lambda s: isinstance(s, Host)):
        if host:
            pieces += [s for s in group if isinstance(s, Host)]
        else:
            pieces.append(writer.piece(list(group), f"run{len(pieces)}"))
    total = writer.total()
    text = writer.module(fast)
    return Native(text, tuple(pieces), tuple(writer.constants), total, writer.table, tuple(writer.hosts))


class Writer:
    """Writes one program. Those inside of it have writers of their own, which share the module with the `outer` one."""

    def __init__(self, steps: Steps, vector_bytes: int, arena: int, outer: Writer | None = None) -> None:
        self.vector_bytes = vector_bytes
        self.arena = arena
        self.scratch = 0
        self.inner = 0  # bytes of the largest program inside
        self.counter: Iterator[int] = outer.counter if outer else itertools.count()
        self.globals: Globals = outer.globals if outer else Globals()
        self.declared: set[str] = outer.declared if outer else set()
        self.functions: dict[str, str] = outer.functions if outer else {}
        self.rendered: dict[Any, tuple[Rendered, list[int]]] = outer.rendered if outer else {}
        self.mathematics: dict[str, str] = outer.mathematics if outer else {}
        self.bodies: list[str] = outer.bodies if outer else []
        self.constant_buffers: list[Buffer] = []
        self.hosts: list[tuple[Host, Writer]] = outer.hosts if outer else []
        #: The name of the number of bytes after which the memory of programs inside begins.
        self.mark = f"@own{next(self.counter)}"
        self.constants: list[Any] = []
        self.table: dict[Buffer, int] = {}
        outputs = [b for b in steps.outputs if b.kind == "output"]
        for buffer in (*steps.inputs, *outputs):
            self.table.setdefault(buffer, len(self.table))
        self.base = len(self.table)  # the arena's own entry; the status word's and the constants' follow it
        self.next: int = self.base + 2
        self.arena_at = ""  # the pointer to the arena, in the function that is being written

    def total(self) -> int:
        """The bytes of memory it works in, of programs inside after its own."""
        if not self.inner:
            return self.arena + self.scratch
        own = -(-(self.arena + self.scratch) // ALIGNMENT) * ALIGNMENT
        self.globals.lines[self.mark] = f"{self.mark} = internal constant i64 {own}"
        return own + self.inner

    def child(self, steps: Steps) -> tuple[str, Writer]:
        """The function of a program inside, and its writer."""
        running = divided(steps.steps, self.vector_bytes)
        writer = Writer(steps, self.vector_bytes, planned(running), self)
        check_legality(running)
        name = writer.piece(running, f"inside{next(self.counter)}", "internal ")
        self.inner = max(self.inner, writer.total(), 1)
        return name, writer

    def piece(self, steps: list[Any], name: str, linkage: str = "") -> str:
        """One function that runs some steps; many of them by functions of their own, since the time LLVM takes grows
        faster than a function does.
        """
        if len(steps) <= LONGEST:
            self._function(steps, name, linkage)
            return name
        parts = [steps[i : i + LONGEST] for i in range(0, len(steps), LONGEST)]
        names = [f"{name}part{i}" for i in range(len(parts))]
        for part, own in zip(parts, names, strict=True):
            self._function(part, own, "internal ", "noinline ")
        calls = "\n".join(f"  call void @{own}(ptr %table)" for own in names)
        self.bodies.append(f"define {linkage}void @{name}(ptr %table) #0 {{\nentry:\n{calls}\n  ret void\n}}")
        return name

    def _function(self, steps: list[Any], name: str, linkage: str, how: str = "") -> None:
        words = Words(1, self.counter, self.declared)
        known: dict[Buffer, str] = {}
        self.arena_at = self.entry(words, self.base)
        slots: list[str] = []
        for step in steps:
            self.step(step, words, known, slots)
        body = "\n".join([*slots, *words.lines])
        self.bodies.append(f"define {linkage}void @{name}(ptr %table) {how}#0 {{\nentry:\n{body}\n  ret void\n}}")

    def step(self, step: Any, words: Words, known: dict[Buffer, str], slots: list[str]) -> None:
        """Append the instructions of one step; `slots` are for the beginning of the function."""
        if isinstance(step, Kernel):
            if math.prod(step.extents):
                self._kernel(step, words, known, slots)
        elif isinstance(step, Product):
            slots += self._product(step, words, known)
        elif isinstance(step, Blocks):
            blocks_text(self, step, words, known, slots)
        elif isinstance(step, Loop):
            slots += loop_text(self, step, words, known)
        elif isinstance(step, Host):
            self.called_back(step, words, known)

    def called_back(self, step: Host, words: Words, known: dict[Buffer, str]) -> None:
        """An op of the array library inside a loop: Python is called with the number of the step and the table."""
        for layout in (*step.args, *step.outs):
            if isinstance(layout, Layout):
                self.pointer(words, known, layout.buffer)  # constants get their place in the table
        self.declared.add("@host = global ptr null")
        function = words.emit("load ptr, ptr @host")
        words.say(f"call void {function}(i64 {len(self.hosts)}, ptr %table)")
        self.hosts.append((step, self))

    def pointer(self, words: Words, known: dict[Buffer, str], buffer: Buffer) -> str:
        if buffer not in known:
            if buffer.kind == "arena":
                known[buffer] = words.emit(f"getelementptr inbounds i8, ptr {self.arena_at}, i64 {buffer.offset}")
            else:
                if buffer not in self.table:
                    self.table[buffer] = self.next
                    self.next += 1
                    self.constants.append(buffer.constant)
                    self.constant_buffers.append(buffer)
                known[buffer] = self.entry(words, self.table[buffer])
        return known[buffer]

    def entry(self, words: Words, number: int) -> str:
        place = words.emit(f"getelementptr inbounds ptr, ptr %table, i64 {number}")
        return words.emit(f"load ptr, ptr {place}")

    def at(self, words: Words, known: dict[Buffer, str], layout: Layout) -> str:
        pointer = self.pointer(words, known, layout.buffer)
        if not layout.offset:
            return pointer
        kind = element_type(layout.buffer.dtype, True)
        return words.emit(f"getelementptr inbounds {kind}, ptr {pointer}, i64 {layout.offset}")

    def _product(self, step: Product, words: Words, known: dict[Buffer, str]) -> list[str]:
        tag = next(self.counter)
        pointers = [self.at(words, known, x) for x in (step.out, step.left, step.right)]
        function = self._own(step)
        if step.blocks > 1:
            text = batch_text(step, step.blocks, self.globals, self.counter, self.declared, function)
            name = self.functions.setdefault(text, f"products{len(self.functions)}")
            return call_text(words, name, pointers, step.blocks, f"%given{tag}", PRODUCTS)
        product_text(step, pointers, words, self.globals, tag, function)
        single = step.out.shape[0] == 1
        return [] if single else [f"  %slot{tag} = alloca i64", f"  store i64 0, ptr %slot{tag}"]

    def _kernel(self, kernel: Kernel, words: Words, known: dict[Buffer, str], slots: list[str]) -> None:
        key, own = form(kernel)
        if key not in self.rendered:  # long programs repeat themselves, and writing text takes its time
            new = render_kernel(kernel, self.vector_bytes)
            self.rendered[key] = new, [own.index(b) for b in new.buffers]
            self.declared |= new.declared
            self.mathematics |= new.functions
        rendered, order = self.rendered[key]
        name = self._named(rendered.text, "kernel")
        division = kernel.division
        self.scratch = max(self.scratch, rendered.scratch * (division.blocks if division else 1))
        pointers = [self.pointer(words, known, own[i]) for i in order]
        pointers.append(words.emit(f"getelementptr inbounds i8, ptr {self.arena_at}, i64 {self.arena}"))
        pointers.append(self.entry(words, self.base + 1))
        if division is not None:
            slots += call_text(words, f"{name}.block", pointers, division.blocks, f"%given{next(self.counter)}")
            return
        words.say(f"call void @{name}({', '.join('ptr ' + p for p in pointers)})")

    def _own(self, step: Product) -> str | None:
        """The function of a product that is not left to the BLAS."""
        if is_small(step):
            return self._named(small_product(step, self.vector_bytes, self.declared), "product")
        if is_tiled(step, self.vector_bytes):
            return self._named(panels_text(step, self.vector_bytes, self.declared, self._named), "product")
        return None

    def _named(self, text: str, kind: str) -> str:
        """The name of a function, which is the same for the same text."""
        return self.functions.setdefault(text, f"{kind}{len(self.functions)}")

    def module(self, fast: bool) -> str:
        kernels = [text.replace("@NAME", f"@{name}") for text, name in self.functions.items()]
        if fast:  # not the mathematics: its error bounds rest on exact differences
            kernels = [re.sub(r" = (fadd|fsub|fmul|fdiv) ", rf" = \1 {_FAST} ", text) for text in kernels]
        width = self.vector_bytes * 8
        attributes = (
            f'attributes #0 = {{ nounwind "prefer-vector-width"="{width}" "min-legal-vector-width"="{width}" }}'
        )
        return "\n".join([
            *sorted(self.globals.lines.values()), *sorted(self.declared), *self.mathematics.values(), *kernels,
            *self.bodies, attributes,
        ])  # fmt: skip
