"""The text of one function while it is written: parameters, coordinates, values of lines, loads and stores."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...loop_ir import Buffer, KernelLine, Store
from ...vocabulary import fold_identity, half_dtype, is_narrow, value_dtype
from ..launch_plan import new_status
from ..words import CudaValue, CudaWords, c_type, number_text
from .grid import Access, Grid, shares_memory

#: Coordinates by group: the text of each.
Coordinates = Mapping[int, str]
Known = dict[int, CudaValue]


@dataclass(frozen=True, slots=True)
class FunctionLaunch:
    """A function's parameters and body, the buffers that its parameters point to, and its sizes. A multiprocessor has
    room for `at_once` blocks: if 1, a thread has all the registers it can use, for loads under way; 0: as the compiler
    likes. `shared_bytes` are those of shared memory beside what the body declares.
    """

    parameters: tuple[str, ...]
    body: str
    buffers: tuple[Buffer, ...]
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    at_once: int = 0
    shared_bytes: int = 0

    @property
    def text(self) -> str:
        """The function; `NAME` stands for its name."""
        bounds = f"__launch_bounds__({math.prod(self.block)}{f', {self.at_once}' if self.at_once else ''})"
        return f'extern "C" __global__ void {bounds} NAME({", ".join(self.parameters)}) {{\n  {self.body}\n}}\n'


class FunctionWriter:
    """Statements of a function over a grid; names it assigns are unique in the function."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        self.pointers: dict[Buffer, str] = {}
        self.written: list[Buffer] = []
        self.counter = itertools.count()
        self.status = new_status()
        #: A condition that threads beyond the domain do not fulfill, where there are such.
        self.owner = ""

    def name(self, letter: str) -> str:
        assert letter != "b", "pointers have this letter, and are renamed by it"
        return f"{letter}{next(self.counter)}"

    def pointer(self, buffer: Buffer) -> str:
        return self.pointers.setdefault(buffer, f"b{len(self.pointers)}")

    # Places in memory

    def split_counter(self, groups: Sequence[int], counter: str) -> tuple[list[str], dict[int, str]]:
        """A counter taken apart into coordinates along groups, the last fastest."""
        lines: list[str] = []
        found: dict[int, str] = {}
        for group in reversed(groups[1:]):
            name, size = self.name("c"), self.grid.sizes[group]
            lines += [f"const I {name} = {counter} % {size}, {name}q = {counter} / {size};"]
            found[group], counter = name, f"{name}q"
        if groups:
            found[groups[0]] = counter
        return lines, found

    def address(self, x: Access, coordinates: Coordinates, indexed: Sequence[str] = ()) -> str:
        assert x.buffer is not None
        return f"{self.pointer(x.buffer)}[{self.place(x, coordinates, indexed)}]"

    def place(self, x: Access, coordinates: Coordinates, indexed: Sequence[str] = ()) -> str:
        """The number of an element in its buffer."""
        strides = {g: self.grid.stride(x, g) for g in coordinates}
        terms = [c if strides[g] == 1 else f"{c} * {strides[g]}" for g, c in coordinates.items() if strides[g]]
        terms += [p if s == 1 else f"{p} * {s}" for p, (s, _) in zip(indexed, x.places, strict=False)]
        if x.offset or not terms:
            terms.append(str(x.offset))
        return " + ".join(terms)

    def vector_at(self, x: Access, coordinates: Coordinates, width: int) -> str:
        kind = f"Vec<{stored_type(x)}, {width}>"
        constant = "" if isinstance(x, Store) else "const "
        return f"*reinterpret_cast<{constant}{kind}*>(&{self.address(x, coordinates)})"

    def indexed(self, words: CudaWords, x: Access, indices: Sequence[CudaValue]) -> list[str]:
        """The places that indices point at: names of integers, -1 where out of range."""
        sites: list[Any] = self.status.constant
        if x.site not in sites:
            sites.append(x.site)
        word = f"{self.pointer(self.status)} + {sites.index(x.site)}"
        names = []
        for index, (_, size) in zip(indices, x.places, strict=True):
            name = self.name("p")
            found = f"(I)place_({index.name}, {size}, {word})"
            # beyond the domain there are no numbers, and so no indices that could be wrong
            words.lines.append(f"const I {name} = {f'{self.owner} ? {found} : (I)-1' if self.owner else found};")
            names.append(name)
        return names

    # Values

    def needed_lines(self, targets: Iterable[KernelLine], known: Known) -> list[KernelLine]:
        """Lines that targets are computed from, arguments first, without what is known."""
        wanted: set[int] = set()
        stack = list(targets)
        while stack:
            line = stack.pop()
            if id(line) not in wanted and id(line) not in known:
                wanted.add(id(line))
                stack.extend(line.args)
        return [line for line in self.grid.lines if id(line) in wanted]

    def compute(
        self, targets: Iterable[KernelLine], known: Known, at: Coordinates, loaded: Mapping[int, str] | None = None
    ) -> list[str]:
        """Statements for lines and all they are computed from; those in `loaded` have a text already."""
        words = CudaWords(self.counter)
        for line in self.needed_lines(targets, known):
            if line.kind == "load":
                text = (loaded or {}).get(id(line)) or self.address(line, at)
                known[id(line)] = words.assign(text, line.dtype)
            else:
                known[id(line)] = self._compute_line(words, line, known, at)
        return words.lines

    def _compute_line(self, words: CudaWords, line: KernelLine, known: Known, at: Coordinates) -> CudaValue:
        if line.kind == "number":
            return words.number(line.number, line.dtype)
        if line.kind == "count":
            return words.assign(self.place(line, at), line.dtype)
        args = [known[id(a)] for a in line.args]
        if line.kind == "gather":
            return self._gather(words, line, args, at)
        if line.kind == "cast":
            return words.cast(args[0], half_dtype(line.narrow) if line.narrow else line.dtype)
        assert line.kernel is not None
        assert line.compute_dtype is not None
        words.dtype = line.compute_dtype
        # numbers are rounded once, to the dtype that is computed in
        given = [
            words.number(a.number, line.compute_dtype) if a.kind == "number" and line.compute_dtype.kind != "b" else x
            for a, x in zip(line.args, args, strict=True)
        ]
        return words.cast(line.kernel(words, *given), line.dtype)

    def _gather(self, words: CudaWords, line: KernelLine, indices: Sequence[CudaValue], at: Coordinates) -> CudaValue:
        places = self.indexed(words, line, indices)
        inside = " && ".join(f"{p} >= 0" for p in places)
        assert line.buffer is not None
        read = self.place if line.buffer.counts else self.address
        # memory of no elements has no address that could be read
        text = read(line, at, places) if all(n for _, n in line.places) else "0"
        widened = "(float)" if is_narrow(line.buffer.dtype) else ""
        return words.assign(f"{inside} ? {widened}{text} : 0", line.dtype)

    # Stores

    def store(self, store: Store, known: Known, at: Coordinates) -> list[str]:
        """Statements that write a value, or fold it into what is there."""
        words = CudaWords(self.counter)
        self.written.append(store.buffer)
        value = words.to_store(known[id(store.line)], store.buffer.dtype)
        places = self.indexed(words, store, [known[id(a)] for a in store.args]) if store.args else []
        place = self.address(store, at, places)
        inside = " && ".join(f"{p} >= 0" for p in places)
        text = f"{place} = {fold_text(store, place, value.name) if store.word else value.name};"
        if takes_any_order(store):
            text = f"atomicAdd(&{place}, {value.name});"
        return [*words.lines, f"if ({inside}) {text}" if inside else text]

    def assign_cast(self, place: str, value: CudaValue, dtype: np.dtype[Any]) -> list[str]:
        """A value written to a place in a dtype."""
        words = CudaWords(self.counter)
        name = words.to_store(value, dtype).name
        return [*words.lines, f"{place} = {name};"]

    def finish(self, body: Sequence[str], grid: tuple[int, int], block: tuple[int, int]) -> FunctionLaunch:
        """The function, and its launch."""
        self.status.size = len(self.status.constant)
        self.written.append(self.status)
        reads = [b for b in self.pointers if b not in self.written]
        separate = "" if shares_memory(reads, self.written) else " __restrict__"
        given = [
            f"{'' if b in self.written else 'const '}{c_type(b.dtype)}*{separate} {name}"
            for b, name in self.pointers.items()
        ]
        buffers = tuple(self.pointers)
        text = "\n  ".join([f"using I = {self.grid.index_type};", *body])
        return FunctionLaunch(tuple(given), text, buffers, (*grid, 1), (*block, 1))


def stored_type(x: Access) -> str:
    """The type of an access's elements in memory."""
    assert x.buffer is not None
    return c_type(x.buffer.dtype)


def takes_any_order(store: Store) -> bool:
    """Whether points with one place may be added at the same time."""
    return store.any_order and store.word == "add" and store.buffer.dtype.name in ("float32", "float64")


def fold_dtype(x: Store | KernelLine) -> np.dtype[Any]:
    """What is folded in: half types are rounded to when that is done."""
    return value_dtype(x.buffer.dtype if isinstance(x, Store) else x.dtype)


def accumulator_type(x: Store | KernelLine) -> str:
    """The type in which a fold is held: shuffles have none of fewer than four bytes."""
    dtype = fold_dtype(x)
    return c_type(dtype) if dtype.itemsize >= 4 else "unsigned" if dtype.kind == "u" else "int"


def start_text(x: Store | KernelLine) -> str:
    """What a fold starts from."""
    dtype = fold_dtype(x)
    return number_text(fold_identity(x.word, dtype), dtype)


def fold_word(x: Store | KernelLine) -> str:
    """What a fold does; of booleans, sums are "or" and products "and"."""
    if fold_dtype(x).kind != "b":
        return x.word
    return "logical_or" if x.word in ("add", "maximum", "logical_or") else "logical_and"


def fold_text(x: Store | KernelLine, total: str, value: str) -> str:
    """Two values folded, in the type of an accumulator."""
    kind = accumulator_type(x)
    stored = x.buffer.dtype if isinstance(x, Store) else x.dtype
    cast = "" if kind == c_type(stored) else f"({kind})"
    return f"{fold_word(x)}_::of({cast}{total}, {cast}{value})"
