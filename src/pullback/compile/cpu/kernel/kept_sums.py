"""Folds along the loop around a short row: vectors of partial results in stack slots, folded into memory after it.

In memory each round would wait for the store of the round before.
"""

from __future__ import annotations

from ...loop_ir import Kernel, Store
from ...schedule.domain import Domain
from ...varying import Varying
from ...vocabulary import fold_identity
from ..builder.ir_builder import IRBuilder
from ..builder.vector_types import IRValue, llvm_type
from .access import ElementRef
from .line_values import LineValues

#: The most vectors of a row whose folds are kept.
_VECTORS = 4


def find_kept_stores(kernel: Kernel, domain: Domain, phases: int) -> list[Store]:
    """The folding stores that visit the same few places in each round of the loop around the row."""
    short = (
        phases == 1 and domain.rows > 0 and domain.in_row == 1 and not isinstance(domain.length, Varying)
        and domain.length % domain.lanes == 0 and domain.length // domain.lanes <= _VECTORS
        and domain.divided_group != len(domain.sizes) - 1
    )  # fmt: skip
    return [s for s in kernel.stores if short and s.word and not s.args and _stays_while_rows_pass(s, domain)]


def _stays_while_rows_pass(store: Store, domain: Domain) -> bool:
    strides = domain.strides(store.strides)
    return strides[domain.rows - 1] == 0 and strides[-1] != 0


class KeptSums:
    """The slots of kept stores, one for each vector of the row."""

    def __init__(self, values: LineValues, stores: list[Store]) -> None:
        self.values = values
        self.stores = stores
        self.slots: dict[tuple[int, str], str] = {}

    def begin(self) -> None:
        """Fill the slots, before the loop around the row."""
        text, domain = self.values.text, self.values.domain
        builder = text.builder(domain.lanes)
        for store in self.stores:
            dtype = store.buffer.dtype
            start = builder.number(fold_identity(store.word, dtype), dtype)
            for at in range(0, domain.length, domain.lanes):
                self.slots[id(store), str(at)] = text.slot(llvm_type(dtype, domain.lanes), start.name)

    def take(self, builder: IRBuilder, store: Store, value: IRValue, at: str) -> None:
        """Fold one vector in."""
        builder.dtype, slot = store.buffer.dtype, self.slots[id(store), at]
        kind = llvm_type(builder.dtype, builder.lanes)
        so_far = IRValue(builder.assign(f"load {kind}, ptr {slot}"), builder.dtype, builder.lanes)
        total = getattr(builder, store.word)(so_far, builder.cast(value, builder.dtype))
        builder.emit(f"store {kind} {total.name}, ptr {slot}")

    def end(self) -> None:
        """Fold the slots into memory, after the loop around the row."""
        text, domain, access = self.values.text, self.values.domain, self.values.access
        builder = text.builder(domain.lanes)
        for store in self.stores:
            strides, kind = domain.strides(store.strides), llvm_type(store.buffer.dtype, domain.lanes)
            for at in range(0, domain.length, domain.lanes):
                builder.dtype = store.buffer.dtype
                counters = [*text.counters[: domain.rows - 1], "0", str(at)]
                place = ElementRef(store.buffer, strides, store.offset, counters)
                kept = builder.assign(f"load {kind}, ptr {self.slots[id(store), str(at)]}")
                cell = access.load(builder, place, None)
                total = getattr(builder, store.word)(cell, IRValue(kept, store.buffer.dtype, domain.lanes))
                access.store(builder, total, place, None)
