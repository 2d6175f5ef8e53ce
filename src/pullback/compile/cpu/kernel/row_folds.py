"""Folds of a row: vectors of partial results in stack slots, combined in a fixed tree."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...loop_ir import KernelLine
from ...vocabulary import fold_identity
from ..builder.function_text import FunctionText
from ..builder.half_types import pair_mask
from ..builder.ir_builder import IRBuilder
from ..builder.vector_types import BOOL, IRValue, llvm_type

_REDUCE = {
    "add": ("fadd", "add", "or"), "multiply": ("fmul", "mul", "and"), "maximum": ("fmaximum", "smax", "or"),
    "minimum": ("fminimum", "smin", "and"), "logical_or": ("", "", "or"), "logical_and": ("", "", "and"),
}  # fmt: skip


class RowFold:
    """A fold while its loop is emitted: its line, its word, and the slots of its partial results."""

    def __init__(self, line: KernelLine, word: str, dtype: np.dtype[Any]) -> None:
        self.line = line
        self.word = word
        self.dtype = dtype
        self.slots: list[str] = []

    def begin(self, text: FunctionText, lanes: int, times: int) -> None:
        start = text.builder(lanes).number(fold_identity(self.word, self.dtype), self.dtype)
        kind = llvm_type(self.dtype, lanes)
        self.slots += [text.slot(kind, start.name) for _ in range(times)]

    def take(self, builder: IRBuilder, turn: int, value: IRValue, mask: str | None) -> None:
        """Fold one vector in; lanes outside the mask are ignored."""
        builder.dtype = self.dtype
        kind, slot = llvm_type(self.dtype, builder.lanes), self.slots[turn]
        value = builder.cast(value, self.dtype)
        if mask is not None:
            mask = pair_mask(builder, mask)
            # lanes outside of the row must not change the result
            nothing = builder.number(fold_identity(self.word, self.dtype), self.dtype)
            truth = llvm_type(BOOL, builder.lanes)
            value = builder.assign_value(
                f"select {truth} {mask}, {kind} {value.name}, {kind} {nothing.name}", self.dtype
            )
        so_far = IRValue(builder.assign(f"load {kind}, ptr {slot}"), self.dtype, builder.lanes)
        total = getattr(builder, self.word)(so_far, value)
        builder.emit(f"store {kind} {total.name}, ptr {slot}")

    def end(self, text: FunctionText, lanes: int) -> IRValue:
        """All partial results as one scalar."""
        builder = text.builder(lanes)
        builder.dtype = self.dtype
        kind = llvm_type(self.dtype, lanes)
        parts = [IRValue(builder.assign(f"load {kind}, ptr {slot}"), self.dtype, lanes) for slot in self.slots]
        # a fixed tree, so that the result does not depend on the machine's order
        while len(parts) > 1:
            pairs = zip(parts[::2], parts[1::2], strict=True)
            parts = [getattr(builder, self.word)(x, y) for x, y in pairs]
        return _reduce_lanes(builder, parts[0], self.word) if lanes > 1 else parts[0]


def _reduce_lanes(builder: IRBuilder, x: IRValue, word: str) -> IRValue:
    """The fold of all lanes of a vector."""
    of_floats, of_integers, of_truths = _REDUCE[word]
    name = of_floats if x.dtype.kind == "f" else of_truths if x.dtype.kind == "b" else of_integers
    if x.dtype.kind == "u" and name in ("smax", "smin"):
        name = "u" + name[1:]
    full = f"llvm.vector.reduce.{name}.{builder.suffix(x.dtype)}"
    if name not in ("fadd", "fmul"):
        return builder.call(full, x.dtype, x, lanes=1)
    start = IRValue("-0.0" if name == "fadd" else "1.0", x.dtype)
    return builder.call(full, x.dtype, start, x, lanes=1, flags="reassoc")
