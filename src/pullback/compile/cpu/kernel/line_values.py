"""The values of a kernel's lines in LLVM text: scalars of a whole row, and the instructions of each line."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...loop_ir import KernelLine, Store
from ...schedule.domain import Domain
from ..builder.function_text import FunctionText, OpenLoop
from ..builder.half_types import round_to_half
from ..builder.ir_builder import IRBuilder
from ..builder.vector_types import IRValue
from .access import BufferAccess, ElementRef
from .index_access import load_lanes_at, shift_base


class LineValues:
    """The values available while a kernel is emitted: scalars of the row, their splats, and results of folds."""

    def __init__(self, text: FunctionText, domain: Domain, access: BufferAccess) -> None:
        self.text = text
        self.domain = domain
        self.access = access
        self.row_scalars: dict[int, IRValue] = {}
        self.splats: dict[int, IRValue] = {}
        self.fold_results: dict[int, IRValue] = {}

    def open_group(self, group: int) -> OpenLoop:
        """Open the loop over a group of the domain, or over this block's part of it."""
        # a block runs over its own range of the divided axis
        if group == self.domain.divided_group:
            return self.text.open("%hi", 1, "%lo")
        return self.text.open(self.domain.sizes[group])

    def element_ref(self, x: KernelLine | Store, counters: Sequence[str]) -> ElementRef:
        assert x.buffer is not None
        return ElementRef(x.buffer, self.domain.strides(x.strides), x.offset, counters)

    def row_scalar(self, line: KernelLine) -> IRValue:
        """A value that is one scalar for the whole row; computed before the row's loop, once."""
        if id(line) in self.fold_results:
            return self.fold_results[id(line)]
        if id(line) not in self.row_scalars:
            self._compute_row_scalar(self.text.builder(1), line)
        return self.row_scalars[id(line)]

    def _compute_row_scalar(self, builder: IRBuilder, line: KernelLine) -> None:
        """Emit a scalar of the row after its arguments; by a stack, since chains of lines can be long."""
        stack = [line]
        while stack:
            top = stack[-1]
            waiting = [a for a in top.args if id(a) not in self.row_scalars and id(a) not in self.fold_results]
            if waiting:
                stack.extend(waiting)
                continue
            stack.pop()
            if id(top) not in self.row_scalars:
                counters = self.text.counters[: self.domain.rows]
                self.row_scalars[id(top)] = self.emit_line(builder, top, self.row_scalar, counters)

    def splat(self, line: KernelLine) -> IRValue:
        """A scalar of the row in every lane."""
        value = self.row_scalar(line)
        if id(line) not in self.splats:
            builder = self.text.builder(self.domain.lanes)
            self.splats[id(line)] = builder.splat(value) if not value.name.startswith("splat") else value
        return self.splats[id(line)]

    def splat_in_loop(self, builder: IRBuilder, line: KernelLine) -> IRValue:
        """The same inside the row's loop, before which it has been computed."""
        return builder.number(line.number, line.dtype) if line.kind == "number" else self.splats[id(line)]

    def emit_line(
        self,
        builder: IRBuilder,
        line: KernelLine,
        value: Callable[[KernelLine], IRValue],
        counters: Sequence[str],
        mask: str | None = None,
    ) -> IRValue:
        """Emit one line, given the values of its arguments."""
        if line.kind == "number":
            return builder.number(line.number, line.dtype)
        if line.kind == "load":
            return self.access.load(builder, self.element_ref(line, counters), mask)
        args = [value(a) for a in line.args]
        if line.kind == "gather":
            return self._emit_gather(builder, line, args, counters, mask)
        if line.kind == "cast" and line.narrow:
            return round_to_half(builder, args[0], line.narrow)
        if line.kind == "cast":
            return builder.cast(args[0], line.dtype)
        return self._emit_kernel(builder, line, args)

    def _emit_kernel(self, builder: IRBuilder, line: KernelLine, args: list[IRValue]) -> IRValue:
        assert line.kernel is not None
        assert line.compute_dtype is not None
        builder.dtype = line.compute_dtype
        args = [
            # a Python number is rounded once, to the dtype it is computed in
            builder.number(a.number, line.compute_dtype) if a.kind == "number" and line.compute_dtype.kind != "b" else v
            for a, v in zip(line.args, args, strict=True)
        ]
        return builder.cast(line.kernel(builder, *args), line.dtype)

    def _emit_gather(
        self, builder: IRBuilder, line: KernelLine, indices: list[IRValue], counters: Sequence[str], mask: str | None
    ) -> IRValue:
        """A load at a place given by indices."""
        place = self.element_ref(line, counters)
        same = self.has_uniform_indices(line)
        # lanes at different places are gathered, else all are one vector from a moved base
        if builder.lanes > 1 and not same:
            return load_lanes_at(self.access, builder, place, line.places, indices, mask)
        return self.access.load(builder, self.shift_by_indices(builder, line, place, indices), mask)

    def has_uniform_indices(self, x: KernelLine | Store) -> bool:
        """Whether the indices are the same for the whole row."""
        return all(not self.domain.varies_along_row(a) for a in x.args)

    def shift_by_indices(
        self, builder: IRBuilder, x: KernelLine | Store, place: ElementRef, indices: list[IRValue]
    ) -> ElementRef:
        """A place shifted by indices that are the same for all lanes."""
        single = builder.lanes == 1
        # vectors of one row compute the same offset again, which LLVM sees where no branch lies between
        rows = indices if single else [self.row_scalar(a) for a in x.args]
        return shift_base(self.access, self.text.builder(1), place, x.places, rows, branches=single)
