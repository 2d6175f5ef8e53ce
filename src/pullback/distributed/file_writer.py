"""Leaves of a tree in, slices out: which elements of which arrays a rank writes, and the file it writes them to."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..arrays.backends import to_host
from ..arrays.dtypes import as_dtype
from ..errors import ArgumentError, MismatchError, ReplicaDriftError, ShapeError
from ..ops.collective.checks import check_alike, digest_of
from ..ops.collective.exchange import Concatenation
from ..ops.collective.records import meet
from ..ops.collective.world import current_world, name_ranks
from ..saving.atomic_write import write_atomically
from ..saving.header import METADATA, assign_offsets, encode_header
from ..saving.tree_writer import TreeWriter, to_host_bytes, to_stored_dtype
from .file_index import DataFile, Index, StoredArray, StoredSlice, digest_chunks
from .marks import Mark, Owned, Row, Summed, list_leaves, part_size, row_range
from .outcomes import gather_json
from .sharding import sum_parts

#: The name of an array that is a whole tree, as in files of one rank.
BARE_NAME = "array"
#: Arrays that all ranks have are divided among them if each then writes at least so many bytes.
_ROW_BYTES = 1 << 16
_ADVICE = (
    "\n  Parts of larger arrays are to be marked as such, and values to be summed: see pb.distributed.mark_parts and "
    "mark_summed."
)


class Item(NamedTuple):
    """An array of a tree, as this rank has it, to be saved."""

    name: str
    array: Any
    mark: Mark

    @property
    def whole_shape(self) -> tuple[int, ...]:
        return self.mark.shape if isinstance(self.mark, Row) else tuple(self.array.shape)

    @property
    def dtype_name(self) -> str:
        return str(self.array.dtype.newbyteorder("=").name)


class Contents(NamedTuple):
    """What a rank brings to a checkpoint: arrays, and the JSON of values that are no arrays, by name."""

    items: list[Item]
    values: dict[str, Any]


class Piece(NamedTuple):
    """Elements that this rank writes: of the array of a name those from start on, as they are in memory."""

    name: str
    start: int
    elements: Any


def list_contents(tree: Any) -> Contents:
    """The leaves of a tree; what cannot be saved raises."""
    found = Contents([], {})
    names: set[str] = set()
    for leaf in list_leaves(tree):
        name = leaf.name or BARE_NAME
        if name in names:
            raise ArgumentError(f"save: two leaves have the name {name!r}.\n  Give one of them another key.")
        if name == METADATA:
            raise ArgumentError(f"save: files use the name {name!r} themselves.\n  Give that leaf another key.")
        names.add(name)
        writer = TreeWriter()
        encoded = writer.encode(leaf.value, name)
        if writer.arrays:
            (array,) = writer.arrays.values()
            found.items.append(_check_part(Item(name, array, leaf.mark)))
        elif leaf.mark is None:
            found.values[name] = encoded
        else:
            raise ArgumentError(f"save: {name} is a {type(leaf.value).__name__}, and only arrays can be parts.")
    return found


def _check_part(item: Item) -> Item:
    ranks = current_world().size
    if isinstance(item.mark, Row) and item.array.shape != (part_size(math.prod(item.mark.shape), ranks),):
        raise ShapeError(
            f"save: {item.name} has shape {item.array.shape}, and is marked as a row of an array of shape "
            f"{item.mark.shape} on {ranks} ranks.\n  Was it made on another number of ranks?"
        )
    return item


def check_agreement(contents: Contents) -> None:
    """Raise on all ranks unless all have the same to save: the same names, shapes, dtypes and values, and in arrays
    that they have in common the same numbers.
    """
    ranks = current_world().size
    if ranks == 1:
        return
    mine = _describe(contents)
    if len(set(gather_json("save: what ranks save", digest_chunks([json.dumps(mine).encode()])))) > 1:
        raise _mismatch(gather_json("save: what each rank saves", mine))
    common = [item for item in contents.items if item.mark is None]
    row = np.array([digest_of(to_host(item.array)) for item in common], np.uint64).reshape(1, -1)
    found = meet(np, "save: digests of replicas", row, ranks, Concatenation(0))
    try:
        check_alike([item.name for item in common], found)
    except ReplicaDriftError as error:
        raise ReplicaDriftError(f"save: {error}{_ADVICE}") from None


def _mismatch(described: Sequence[dict[str, str]]) -> MismatchError:
    """The error that names the first leaf at which ranks differ."""
    for name in dict.fromkeys(name for side in described for name in side):
        sides: dict[str, list[int]] = {}
        for rank, side in enumerate(described):
            sides.setdefault(side.get(name, "nothing"), []).append(rank)
        if len(sides) > 1:
            lines = "\n".join(f"  {name_ranks(ranks)}: {side[:200]}" for side, ranks in sides.items())
            return MismatchError(f"save: ranks have different things to save at {name!r}.\n{lines}")
    return MismatchError("save: ranks have the same things to save, in different orders.")


def _describe(contents: Contents) -> dict[str, str]:
    """What all ranks must have alike, by name."""
    arrays = {
        item.name: f"{item.dtype_name}{list(item.whole_shape)}, {_KINDS[type(item.mark)]}"
        for item in contents.items
        if not isinstance(item.mark, Owned)
    }
    return arrays | {name: f"the value {json.dumps(value)}" for name, value in contents.values.items()}


_KINDS: dict[type, str] = {type(None): "common", Row: "a row of each rank", Summed: "to be summed"}


def cut_pieces(items: Sequence[Item]) -> list[Piece]:
    """What this rank writes. Values to be summed meet here."""
    summed = [item for item in items if isinstance(item.mark, Summed)]
    sums = dict(zip([s.name for s in summed], sum_parts([to_host(s.array) for s in summed]), strict=True))
    owners = iter(divide_common([item.array.nbytes for item in items if item.mark is None], current_world().size))
    pieces = []
    for item in items:
        owner = next(owners) if item.mark is None else None
        if (piece := _cut(item, owner, sums)) is not None:
            pieces.append(piece)
    return pieces


def _cut(item: Item, owner: int | None, sums: dict[str, Any]) -> Piece | None:
    """What this rank writes of an array; `owner` is the rank that writes the whole of one that all have."""
    world = current_world()
    if isinstance(item.mark, Owned) or owner is not None:
        is_mine = owner is None or owner == world.rank
        return Piece(item.name, 0, item.array) if is_mine and item.array.size else None
    size = math.prod(item.whole_shape)
    start, stop = row_range(size, world.rank, world.size)
    if start == stop:
        return None
    if item.mark is None:
        elements = item.array.reshape(-1)[start:stop]
    else:
        elements = (sums[item.name] if isinstance(item.mark, Summed) else item.array)[: stop - start]
    # where one rank has everything, other readers of the file find the array as it is
    return Piece(item.name, start, elements.reshape(item.whole_shape) if stop - start == size else elements)


def divide_common(sizes: Sequence[int], ranks: int) -> list[int | None]:
    """For arrays that all ranks have, by their bytes: None where each rank writes a row, else the one that writes all,
    which is the one with the least so far.
    """
    loads, owners = [0] * ranks, []
    for size in sizes:
        owner = None if size >= ranks * _ROW_BYTES else loads.index(min(loads))
        owners.append(owner)
        if owner is not None:
            loads[owner] += size + 1
    return owners


class WrittenFile(NamedTuple):
    """What a rank has written: its file, and for each slice in it the name, first and last element, and digest."""

    file: DataFile
    slices: list[tuple[str, int, int, str]]


def write_pieces(path: Path, pieces: Sequence[Piece]) -> WrittenFile:
    """Write a rank's file, which is there whole or not at all."""
    stored = {p.name: to_stored_dtype(p.elements) for p in pieces}
    entries = assign_offsets(stored.items())
    digests = {}

    def chunks() -> Iterator[Any]:
        yield encode_header(entries, {})
        for entry in entries:
            raw = to_host_bytes(stored[entry.name])
            digests[entry.name] = digest_chunks([raw])
            yield raw

    write_atomically(path, chunks())
    slices = [(p.name, p.start, p.start + int(p.elements.size), digests[p.name]) for p in pieces]
    return WrittenFile(DataFile(path.name, path.stat().st_size), slices)


def describe_arrays(items: Sequence[Item], only_owned: bool) -> list[tuple[str, str, tuple[int, ...]]]:
    """The name, dtype and whole shape of each array, or of those that no other rank has."""
    chosen = [item for item in items if not only_owned or isinstance(item.mark, Owned)]
    return [(item.name, item.dtype_name, item.whole_shape) for item in chosen]


def make_index(reports: Sequence[Any], values: dict[str, Any]) -> Index:
    """The index of a checkpoint, by the report of each rank: its file, the slices in it, and arrays."""
    slices: dict[str, list[StoredSlice]] = {}
    for number, (_, written, _) in enumerate(reports):
        for name, *place in written:
            slices.setdefault(name, []).append(StoredSlice(number, *place))
    arrays = {
        name: StoredArray(as_dtype(dtype), tuple(shape), tuple(sorted(slices.get(name, ()), key=lambda s: s.start)))
        for _, _, described in reports
        for name, dtype, shape in described
    }
    return Index(len(reports), tuple(DataFile(*file) for file, _, _ in reports), arrays, values)
