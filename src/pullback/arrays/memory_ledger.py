"""Counting live bytes: each piece of memory once, from when it is first seen until it is freed."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from .backends import is_array
from .finalizers import FinalizerQueue
from .protect import base_of


def owner_of(array: Any) -> Any:
    """The array that owns the memory of a view; what is no view of an array owns its own."""
    while is_array(array) and is_array(base := base_of(array)):
        array = base
    return array


class Block:
    """One piece of memory: its bytes, and a note of the ledger's user."""

    __slots__ = ("about", "nbytes", "reference")

    def __init__(self, nbytes: int, about: Any) -> None:
        self.nbytes = nbytes
        self.about = about
        self.reference: Any = None


class Ledger:
    """The live blocks, by the identity of the arrays that own them.

    A freed array is only noted by its weak reference, which the collector may run anywhere; `remove_freed` removes it.
    """

    __slots__ = ("_freed", "_on_free", "blocks", "live", "peak")

    def __init__(self, on_free: Callable[[Block], None] | None = None) -> None:
        self.blocks: dict[int, Block] = {}
        self.live = 0
        self.peak = 0
        self._freed = FinalizerQueue(self._remove_block)
        self._on_free = on_free

    def track(self, array: Any, about: Any = None) -> tuple[Block, bool]:
        """The block of an array, and whether it is new."""
        owner = owner_of(array)
        key = id(owner)
        self.remove_freed()
        with self._freed.guard:
            found = self.blocks.get(key)
            if found is not None and found.reference() is owner:
                return found, False
            block = self.blocks[key] = Block(int(owner.nbytes), about)
            block.reference = weakref.ref(owner, lambda _: self._freed.add((key, block)))
            self.live += block.nbytes
            self.peak = max(self.peak, self.live)
        return block, True

    def block(self, array: Any) -> Block | None:
        """The block of an array, if it was seen."""
        owner = owner_of(array)
        found = self.blocks.get(id(owner))
        return found if found is not None and found.reference() is owner else None

    def remove_freed(self) -> int:
        """Remove what was freed since the last call; returns the live bytes."""
        self._freed.drain()
        return self.live

    def _remove_block(self, freed: tuple[int, Block]) -> None:
        key, block = freed
        if self.blocks.get(key) is block:
            del self.blocks[key]
        self.live -= block.nbytes
        block.reference = None
        if self._on_free is not None:
            self._on_free(block)
