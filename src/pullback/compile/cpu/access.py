"""Places in memory in, loads and stores out: one element, a vector side by side or apart, whole or under a mask."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..loops import Buffer
from .lanes import Lane, element_type, type_of
from .text import INDEX
from .words import Words

__all__ = ["Access", "Place", "gathered", "load_at", "store_at", "truths"]


@dataclass(frozen=True, slots=True)
class Place:
    """Elements of a buffer: the strides of the counters, and the pointer they start from if it is not the buffer's."""

    buffer: Buffer
    strides: Sequence[int]
    offset: int
    counters: Sequence[str]
    base: str | None = None

    @property
    def last(self) -> int:
        """How far apart the lanes of a vector lie."""
        return self.strides[-1] if self.strides else 0


class Access:
    """The memory of one function: its parameters are the buffers, in the order in which they are first asked for."""

    def __init__(self) -> None:
        self.buffers: list[Buffer] = []

    def pointer(self, buffer: Buffer) -> str:
        if buffer not in self.buffers:
            self.buffers.append(buffer)
        return f"%b{self.buffers.index(buffer)}"

    def address(self, words: Words, place: Place) -> str:
        at = str(place.offset)
        for stride, counter in zip(place.strides, place.counters, strict=False):
            if stride:
                product = counter if stride == 1 else words.emit(f"mul nsw {INDEX} {counter}, {stride}")
                at = product if at == "0" else words.emit(f"add nsw {INDEX} {at}, {product}")
        pointer = place.base or self.pointer(place.buffer)
        kind = element_type(place.buffer.dtype, True)
        return pointer if at == "0" else words.emit(f"getelementptr inbounds {kind}, ptr {pointer}, {INDEX} {at}")

    def load(self, words: Words, place: Place, mask: str | None) -> Lane:
        address = self.address(words, place)
        if words.lanes > 1 and place.last != 1:
            found = gathered(words, place.buffer, _apart(words, place, address), mask)
        else:
            found = load_at(words, address, place.buffer.dtype, mask)
        return truths(words, found, place.buffer.dtype)

    def store(self, words: Words, value: Lane, place: Place, mask: str | None) -> None:
        address = self.address(words, place)
        if words.lanes > 1 and place.last != 1:
            name = _in_memory(words, value, place.buffer.dtype)
            _scatter(words, name, place, _apart(words, place, address), mask)
        else:
            store_at(words, value, address, place.buffer.dtype, mask)


def truths(words: Words, found: str, dtype: np.dtype[Any]) -> Lane:
    """What was loaded, as a value: truths are bytes in memory."""
    if dtype.kind != "b":
        return Lane(found, dtype, words.lanes)
    zero = "0" if words.lanes == 1 else "zeroinitializer"
    return Lane(words.emit(f"icmp ne {type_of(dtype, words.lanes, True)} {found}, {zero}"), dtype, words.lanes)


def _in_memory(words: Words, value: Lane, dtype: np.dtype[Any]) -> str:
    if dtype.kind != "b":
        return value.name
    return words.emit(f"zext {type_of(dtype, words.lanes)} {value.name} to {type_of(dtype, words.lanes, True)}")


def load_at(words: Words, address: str, dtype: np.dtype[Any], mask: str | None) -> str:
    """Elements side by side. Under a mask, those outside are not touched."""
    kind, element, lanes = type_of(dtype, words.lanes, True), element_type(dtype, True), words.lanes
    if mask is None:
        return words.emit(f"load {kind}, ptr {address}, align {dtype.itemsize}")
    name = f"llvm.masked.load.v{lanes}{_short(element)}.p0"
    words.declared.add(f"declare {kind} @{name}(ptr, i32 immarg, <{lanes} x i1>, {kind})")
    given = f"ptr {address}, i32 {dtype.itemsize}, <{lanes} x i1> {mask}, {kind} {_ones(element)}"
    return words.emit(f"call {kind} @{name}({given})")


def store_at(words: Words, value: Lane, address: str, dtype: np.dtype[Any], mask: str | None) -> None:
    kind, lanes = type_of(dtype, words.lanes, True), words.lanes
    name = _in_memory(words, value, dtype)
    if mask is None:
        words.say(f"store {kind} {name}, ptr {address}, align {dtype.itemsize}")
        return
    function = f"llvm.masked.store.v{lanes}{_short(element_type(dtype, True))}.p0"
    words.declared.add(f"declare void @{function}({kind}, ptr, i32 immarg, <{lanes} x i1>)")
    words.say(f"call void @{function}({kind} {name}, ptr {address}, i32 {dtype.itemsize}, <{lanes} x i1> {mask})")


def _apart(words: Words, place: Place, address: str) -> str:
    """The addresses of lanes that do not lie side by side."""
    lanes, element = words.lanes, element_type(place.buffer.dtype, True)
    steps = ", ".join(f"{INDEX} {i * place.last}" for i in range(lanes))
    return words.emit(f"getelementptr {element}, ptr {address}, <{lanes} x {INDEX}> <{steps}>")


def gathered(words: Words, buffer: Buffer, places: str, mask: str | None) -> str:
    """A load of each lane from an address of its own."""
    dtype, lanes = buffer.dtype, words.lanes
    kind, element = type_of(dtype, lanes, True), element_type(dtype, True)
    name = f"llvm.masked.gather.v{lanes}{_short(element)}.v{lanes}p0"
    words.declared.add(f"declare {kind} @{name}(<{lanes} x ptr>, i32 immarg, <{lanes} x i1>, {kind})")
    chosen = f"<{lanes} x i1> {mask or 'splat (i1 true)'}"
    given = f"<{lanes} x ptr> {places}, i32 {dtype.itemsize}, {chosen}, {kind} {_ones(element)}"
    return words.emit(f"call {kind} @{name}({given})")


def _scatter(words: Words, name: str, place: Place, places: str, mask: str | None) -> None:
    dtype, lanes = place.buffer.dtype, words.lanes
    kind, element = type_of(dtype, lanes, True), element_type(dtype, True)
    function = f"llvm.masked.scatter.v{lanes}{_short(element)}.v{lanes}p0"
    words.declared.add(f"declare void @{function}({kind}, <{lanes} x ptr>, i32 immarg, <{lanes} x i1>)")
    chosen = f"<{lanes} x i1> {mask or 'splat (i1 true)'}"
    words.say(f"call void @{function}({kind} {name}, <{lanes} x ptr> {places}, i32 {dtype.itemsize}, {chosen})")


def _short(element: str) -> str:
    return {"float": "f32", "double": "f64"}.get(element, element)


def _ones(element: str) -> str:
    """What lanes hold that were not loaded: one, by which even integers can be divided."""
    one = "1.0" if element in ("float", "double") else "1"
    return f"splat ({element} {one})"
