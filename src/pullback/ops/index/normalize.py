"""Normalizing what a user wrote in brackets: to a tuple in which arrays are replaced by `SLOT`.

The arrays themselves become arguments of the op, so that they may be batched or staged. Boolean masks become integer
arrays here, where their values are known.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...arrays.backends import is_array, namespace_on
from ...arrays.call_site import format_line, user_line
from ...arrays.size import Size, has_unknowns
from ...arrays.spec import Spec, spec_of
from ...arrays.value import Value
from ...errors import ConversionError, IndexingError
from ..concrete import strip_derivatives
from ..dispatch import as_value, ndim, shape
from ..families import broadcast_shape
from ..lazy import find_public
from ..op import StaticMark
from ..statics import MAX_ELEMENTS, Static, is_integer_between


class _Slot(StaticMark):
    """Stands for an index array in an index."""

    def __repr__(self) -> str:
        return "SLOT"


SLOT = _Slot()
Index = tuple[Any, ...]


def namespace_for(x: Any) -> Any:
    """The namespace (NumPy or CuPy) for constants used with x."""
    return namespace_on(spec_of(x).device)


def fill_slots(index: Index, arrays: Sequence[Any]) -> Index:
    left = iter(arrays)
    return tuple(next(left) if i is SLOT else i for i in index)


def _advanced_positions(index: Index) -> list[int]:
    """Positions that NumPy treats as advanced indices: arrays, and integers beside arrays."""
    if SLOT not in index:
        return []
    return [n for n, i in enumerate(index) if i is SLOT or isinstance(i, int)]


def has_separated_arrays(index: Index) -> bool:
    """Whether the advanced positions are separated, which makes NumPy put their axes first."""
    places = _advanced_positions(index)
    return bool(places) and places != list(range(places[0], places[-1] + 1))


def indexed_shape(x: Spec, arrays: Sequence[Spec], index: Index, what: str) -> tuple[int, ...]:
    """The shape of x[index], found on an array without memory: with an integer for each index array it has the other
    axes, and those of the arrays go before, between or after them.
    """
    try:
        around = _shape_without_arrays(x.shape, index)
        inner = broadcast_shape(what, *(s.shape for s in arrays))
    except (IndexError, ValueError) as error:
        raise IndexingError(f"{what}: {error}.\n  The array has shape {x.shape}.") from None
    if SLOT not in index:
        return around
    if all(not isinstance(n, Size) and n for n in inner) and any(
        i is SLOT and not isinstance(n, Size) and not n for i, n in _axis_entries(x.shape, index)
    ):
        raise IndexingError(f"{what}: an index array refers to elements of an empty axis: shape {x.shape}.")
    at = 0 if has_separated_arrays(index) else axes_before(index)
    return (*around[:at], *inner, *around[at:])


def _axis_entries(sizes: tuple[int, ...], index: Index) -> list[tuple[Any, int]]:
    """Each entry that indexes an axis, with the size of that axis."""
    return list(zip([i for i in index if i is not None], sizes, strict=False))


def _shape_without_arrays(sizes: tuple[int, ...], index: Index) -> tuple[int, ...]:
    """An empty axis accepts no index 0, so it gets one element where an index array, which may be empty, applies."""
    numbers = tuple(0 if i is SLOT else i for i in index)
    named = _axis_entries(sizes, index)
    if has_unknowns(sizes):
        return _shape_with_unknowns(sizes, index)
    full = (*(max(n, 1) if i is SLOT else n for i, n in named), *sizes[len(named) :])
    found: tuple[int, ...] = np.broadcast_to(np.int8(0), full)[numbers].shape
    return found


def _shape_with_unknowns(sizes: tuple[Any, ...], index: Index) -> tuple[Any, ...]:
    """The same for unknown sizes, entry by entry."""
    left = iter(sizes)
    found: list[Any] = []
    for entry in index:
        n: Any = None if entry is None else next(left)
        if entry is None:
            found.append(1)
        elif isinstance(entry, slice):
            found.append(_slice_length(entry, n))
        elif entry is not SLOT and not -n <= entry < n:
            raise IndexError(f"index {entry} is out of bounds for an axis of size {n}")
    return (*found, *left)


def _slice_length(s: slice, n: Any) -> Any:
    """How many elements of an axis a slice takes. Comparisons of unknown sizes become guards."""
    step = 1 if s.step is None else s.step
    low, high = (0, n) if step > 0 else (-1, n - 1)
    start = (low if step > 0 else high) if s.start is None else _clip_place(s.start, n, low, high)
    stop = (high if step > 0 else low) if s.stop is None else _clip_place(s.stop, n, low, high)
    reach = stop - start if step > 0 else start - stop
    return 0 if reach < 0 else -(-reach // abs(step))


def _clip_place(place: Any, n: Any, low: Any, high: Any) -> Any:
    place = place + n if place < 0 else place
    return low if place < low else high if place > high else place


def index_static(first: int, rank: Callable[[Sequence[Spec], Mapping[str, Any]], int]) -> Static:
    """A normalized index: an entry for each of `rank` axes, a slot for each argument from `first` on."""

    def is_valid(v: Any, specs: Sequence[Spec], static: Mapping[str, Any]) -> bool:
        arrays = specs[first:]
        return (
            type(v) is tuple
            and len(v) <= 64
            and all(map(_is_entry, v))
            and sum(i is not None for i in v) == rank(specs, static)
            and sum(i is SLOT for i in v) == len(arrays)
            and all(s.dtype.kind in "iu" for s in arrays)
        )

    return Static("an entry for each axis (integer, slice, None, or a slot for each array of integers)", is_valid)


def _is_entry(entry: Any) -> bool:
    if isinstance(entry, slice):
        bounds = all(
            n is None or is_integer_between(n, -(1 << 62), 1 << 62) for n in (entry.start, entry.stop, entry.step)
        )
        return bounds and entry.step != 0
    return entry is None or entry is SLOT or is_integer_between(entry, -MAX_ELEMENTS)


def normalize_index(x: Any, index: Any) -> tuple[Index, list[Any]]:
    """What a user wrote in brackets as an index with slots and its arrays; shapes and kinds checked."""
    entries = index if isinstance(index, tuple) else (index,)
    if all(_is_basic(entry) for entry in entries):
        return _expand_ellipsis(entries, ndim(x)), []
    entries = tuple(_join_values(e) if type(e) is list else e for e in entries)
    plain: list[Any] = []
    arrays: list[Any] = []
    seen: list[Any] = []
    for entry in entries:
        if entry is None or entry is Ellipsis:
            plain.append(entry)
        elif isinstance(entry, slice):
            plain.append(slice(*(None if e is None else _as_int(e) for e in (entry.start, entry.stop, entry.step))))
        elif isinstance(entry, (int, np.integer)) and not isinstance(entry, (bool, np.bool_)):
            plain.append(int(entry))
        else:
            found = _index_arrays(x, entry, _axis_of(entries, len(seen), ndim(x)))
            arrays.extend(found)
            plain.extend([SLOT] * len(found))
        seen.append(entry)
    return _expand_ellipsis(tuple(plain), ndim(x)), arrays


def _join_values(entry: list[Any]) -> Any:
    """A list of integers some of which a transform may know alone, as in `a[[i, j]] = a[[j, i]]`."""
    if not any(isinstance(i, Value) for i in entry):
        return entry
    return find_public("stack")([i if isinstance(i, Value) else np.asarray(i) for i in entry])


def basic_key(number: int, index: Any) -> tuple[Any, ...] | None:
    """A key for an index of integers, slices, None and ... into an array of a spec's number; None for any other."""
    if type(index) is int:
        return number, index
    if type(index) is slice:
        start, stop, step = index.start, index.stop, index.step
        if (
            (start is None or type(start) is int)
            and (stop is None or type(stop) is int)
            and (step is None or type(step) is int)
        ):
            return number, start, stop, step
        return None
    if index is None or index is Ellipsis:
        return number, index
    if type(index) is not tuple:
        return None
    entries: list[Any] = []
    for entry in index:
        if not _is_basic(entry):
            return None
        entries.append((entry.start, entry.stop, entry.step) if type(entry) is slice else entry)
    return number, tuple(entries)


def _is_basic(entry: Any) -> bool:
    """A plain integer, a slice of plain integers, None or an ellipsis: nothing to normalize."""
    if type(entry) is slice:
        start, stop, step = entry.start, entry.stop, entry.step
        return (
            (start is None or type(start) is int)
            and (stop is None or type(stop) is int)
            and (step is None or type(step) is int)
        )
    return type(entry) is int or entry is None or entry is Ellipsis


def _as_int(e: Any) -> Any:
    if type(e) is Size:
        return e
    try:
        return int(e.__index__())
    except (AttributeError, TypeError):
        raise IndexingError(f"slice bounds must be integers, got {e!r}.") from None


def _axis_of(entries: Sequence[Any], place: int, rank: int) -> int:
    """The first axis that an entry of an index applies to, counted from the back if an ellipsis comes before."""
    if any(e is Ellipsis for e in entries[:place]):
        return rank - sum(map(_axes_consumed, entries[place:]))
    return sum(map(_axes_consumed, entries[:place]))


def _axes_consumed(entry: Any) -> int:
    if entry is None or entry is Ellipsis:
        return 0
    if isinstance(entry, (slice, int, np.integer)):
        return 1
    spec = spec_of(as_value(entry))
    return spec.ndim if spec.dtype.kind == "b" else 1


def _index_arrays(x: Any, entry: Any, axis: int) -> list[Any]:
    entry = as_value(entry)
    kind = spec_of(entry).dtype.kind
    xp = namespace_for(x)
    if kind == "b":
        mask = concrete_mask(entry)
        if not mask.ndim:
            raise IndexingError("a single True or False can be an index only by itself: x[flag].")
        over = shape(x)[axis : axis + mask.ndim]
        if len(over) < mask.ndim or any(m not in (n, 0) for m, n in zip(mask.shape, over, strict=True)):
            raise IndexingError(f"a mask of shape {mask.shape} indexes axes of shape {over}, the array has {shape(x)}.")
        return list(xp.nonzero(xp.asarray(mask)))
    if kind not in "iu":
        if spec_of(entry).size:
            raise IndexingError(f"indices must be integers or booleans, got {spec_of(entry).dtype}.")
        entry = np.zeros(shape(entry), np.intp)
    if isinstance(entry, Value):
        return [entry]
    return [xp.asarray(entry)]


def abstract_mask(index: Any) -> Any:
    """The mask an index consists of, if its values are not known now; else None."""
    entry = index[0] if isinstance(index, tuple) and len(index) == 1 else index
    if isinstance(entry, Value) and entry.dtype.kind == "b" and isinstance(strip_derivatives(entry), Value):
        return entry
    return None


def concrete_mask(mask: Any) -> Any:
    """The values of a mask: they decide a shape, so they must be known now."""
    mask = strip_derivatives(mask)
    if not is_array(mask):
        if isinstance(mask, Value):
            raise ConversionError(
                "the number of elements that are selected depends on values, which are not known inside a transform.\n"
                f"  at {format_line(*user_line(sys._getframe(1)))}\n"
                "  Use pb.where(mask, x, 0), whose shape does not depend on values; x[mask] = v works as it is."
            )
        mask = np.asarray(mask)
    return mask


def _expand_ellipsis(index: Index, rank: int) -> Index:
    used = sum(i is not None and i is not Ellipsis for i in index)
    if used > rank:
        raise IndexingError(f"too many indices: {used} for an array of {rank} axes.")
    dots = [n for n, i in enumerate(index) if i is Ellipsis]
    if len(dots) > 1:
        raise IndexingError("an index can have one ellipsis ('...').")
    at = dots[0] if dots else len(index)
    full = (slice(None),) * (rank - used)
    return (*index[:at], *full, *index[at + 1 :])


def part_at_ellipsis(index: Any, rank: int) -> tuple[Index, int, int] | None:
    """An ellipsis separates the indices on its sides for NumPy also where it stands for no axis. Then the index with a
    slice in its place, the axis to be put in for that, and how many axes of the result follow the slice's; else None.
    """
    if type(index) is not tuple or sum(e is Ellipsis for e in index) != 1 or all(map(_is_basic, index)):
        return None
    entries = [_join_values(e) if type(e) is list else e for e in index]
    at = next(n for n, e in enumerate(entries) if e is Ellipsis)
    sides = entries[:at], entries[at + 1 :]
    others = [sum(e is None or isinstance(e, slice) for e in side) for side in sides]
    axes = [sum(map(_axes_consumed, side)) for side in sides]
    if sum(axes) < rank or any(n == len(side) for n, side in zip(others, sides, strict=True)):
        return None
    return (*sides[0], slice(None), *sides[1]), axes[0], others[1]


def axes_before(index: Index) -> int:
    """How many axes of the result come before those of the index arrays."""
    return sum(not isinstance(i, int) for i in index[: _advanced_positions(index)[0]])


_NEVER_SCALAR_BOOL = frozenset((int, slice, tuple, list, type(None), type(Ellipsis)))


def is_scalar_bool(index: Any) -> bool:
    if type(index) in _NEVER_SCALAR_BOOL:
        return False
    spec = spec_of(as_value(index))
    return spec.dtype.kind == "b" and not spec.shape
