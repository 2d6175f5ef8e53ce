"""Shapes, indices, sums, scans and sorts, element by element in Python loops."""

from __future__ import annotations

import cmath
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ....ops.index.normalize import fill_slots

Place = tuple[int, ...]


def gather_from(x: Any, shape: Sequence[int], source: Callable[[Place], Place]) -> Any:
    """An array of a shape whose every element is copied from a place of another."""
    out = np.zeros(tuple(shape), x.dtype)
    for place in np.ndindex(out.shape):
        out[place] = x[source(place)]
    return out


def _reshape(x: Any, shape: Sequence[int]) -> Any:
    found = np.zeros(tuple(shape), x.dtype)
    for place, source in zip(np.ndindex(found.shape), np.ndindex(x.shape), strict=True):
        found[place] = x[source]
    return found


def _permute(x: Any, axes: Sequence[int]) -> Any:
    shape = [x.shape[a] for a in axes]
    return gather_from(x, shape, lambda place: tuple(place[list(axes).index(a)] for a in range(x.ndim)))


def _broadcast(x: Any, shape: Sequence[int]) -> Any:
    def source(place: Place) -> Place:
        last = place[len(place) - x.ndim :]
        return tuple(0 if n == 1 else i for i, n in zip(last, x.shape, strict=True))

    return gather_from(x, shape, source)


def _flip(x: Any, axis: Sequence[int]) -> Any:
    return gather_from(
        x, x.shape, lambda place: tuple(x.shape[a] - 1 - i if a in axis else i for a, i in enumerate(place))
    )


def _roll(x: Any, shift: Sequence[int], axis: Sequence[int]) -> Any:
    shifts = dict.fromkeys(range(x.ndim), 0)
    for s, a in zip(shift, axis, strict=True):
        shifts[a % x.ndim] += s
    return gather_from(x, x.shape, lambda place: tuple((i - shifts[a]) % x.shape[a] for a, i in enumerate(place)))


def _concat(*xs: Any, axis: int) -> Any:
    sizes = [x.shape[axis] for x in xs]
    starts = list(itertools.accumulate(sizes, initial=0))
    shape = list(xs[0].shape)
    shape[axis] = starts[-1]
    out = np.zeros(shape, np.result_type(*xs))
    for x, start in zip(xs, starts, strict=False):
        for place in np.ndindex(x.shape):
            out[tuple(i + start if a == axis % out.ndim else i for a, i in enumerate(place))] = x[place]
    return out


def _split(x: Any, cuts: Sequence[int], axis: int) -> tuple[Any, ...]:
    edges = [0, *cuts, x.shape[axis]]
    return tuple(_piece(x, axis, low, high) for low, high in itertools.pairwise(edges))


def _piece(x: Any, axis: int, low: int, high: int) -> Any:
    shape = [high - low if a == axis else n for a, n in enumerate(x.shape)]
    return gather_from(x, shape, lambda place: tuple(i + low if a == axis else i for a, i in enumerate(place)))


def _cast(x: Any, dtype: Any) -> Any:
    kind = np.dtype(dtype)
    elements = [v.real if isinstance(v, complex) and kind.kind != "c" else v for v in x.ravel().tolist()]
    return np.array([kind.type(v) for v in elements], kind).reshape(x.shape)


def index_pairs(shape: Place, index: tuple[Any, ...]) -> tuple[Place, Iterator[tuple[Place, Place]]]:
    """The shape of x[index] and, for each place in it, the place in x: NumPy's rules as a loop.

    A slice, an integer and None act on their own axis; arrays are broadcast and indexed together, and their axes come
    where the first of them was, or in front if something else is between two of them.
    """
    entries = _expand_index(index, len(shape))
    has_arrays = any(isinstance(e, np.ndarray) for e in entries)
    together = [i for i, e in enumerate(entries) if has_arrays and isinstance(e, (np.ndarray, int))]
    walk = np.broadcast_shapes(*(np.shape(entries[i]) for i in together))
    alone = _entry_ranges(entries, shape, together)
    kept = [i for i in alone if not isinstance(entries[i], int)]
    is_apart = bool(together) and together != list(range(together[0], together[-1] + 1))
    before = 0 if is_apart or not together else sum(i < together[0] for i in kept)
    sizes = [len(alone[i]) for i in kept]
    out = (*sizes[:before], *walk, *sizes[before:])

    def pairs() -> Iterator[tuple[Place, Place]]:
        for place in np.ndindex(out):
            step = place[before : before + len(walk)]
            at = {i: r[0] for i, r in alone.items() if i not in kept}
            rest = place[:before] + place[before + len(walk) :]
            at |= {i: alone[i][n] for i, n in zip(kept, rest, strict=True)}
            at |= {i: int(np.broadcast_to(entries[i], walk)[step]) for i in together}
            source = [at[i] for i in range(len(entries)) if entries[i] is not None]
            yield place, tuple(i % n for i, n in zip(source, shape, strict=True))

    return out, pairs()


def _entry_ranges(entries: list[Any], shape: Place, together: list[int]) -> dict[int, Sequence[int]]:
    """The indices of each entry that acts on its own axis."""
    found: dict[int, Sequence[int]] = {}
    left = iter(shape)
    for i, e in enumerate(entries):
        size = 1 if e is None else next(left)
        if i not in together:
            found[i] = [e] if isinstance(e, int) else range(size)[slice(None) if e is None else e]
    return found


def _expand_index(index: tuple[Any, ...], ndim: int) -> list[Any]:
    """An index in which every axis has its entry."""
    entries = [e if isinstance(e, (int, slice, np.ndarray)) or e is None or e is Ellipsis else int(e) for e in index]
    missing = ndim - sum(e is not None and e is not Ellipsis for e in entries)
    at = next((i for i, e in enumerate(entries) if e is Ellipsis), len(entries))
    return [*entries[:at], *[slice(None)] * missing, *entries[at + 1 :]]


def _lookup_rows(table: Any, rows: Any) -> Any:
    found = [table[int(i)] for i in rows.reshape(-1)]
    return np.array(found, table.dtype).reshape((*rows.shape, *table.shape[1:]))


def _getitem(x: Any, *indices: Any, index: Any) -> Any:
    shape, pairs = index_pairs(x.shape, fill_slots(index, indices))
    out = np.zeros(shape, x.dtype)
    for place, source in pairs:
        out[place] = x[source]
    return out


def _scatter(x: Any, *indices: Any, index: Any, wanted: Place) -> Any:
    out = np.zeros(wanted, x.dtype)
    for place, source in index_pairs(wanted, fill_slots(index, indices))[1]:
        out[source] += x[place]
    return out


def _set_at(x: Any, values: Any, *indices: Any, index: Any) -> Any:
    out = x.astype(np.result_type(x, values))
    shape, pairs = index_pairs(x.shape, fill_slots(index, indices))
    given = np.broadcast_to(values, shape)
    for place, source in pairs:
        out[source] = given[place]
    return out


def _scatter_extreme(x: Any, values: Any, *indices: Any, index: Any, least: bool) -> Any:
    out = x.copy()
    shape, pairs = index_pairs(x.shape, fill_slots(index, indices))
    given = np.broadcast_to(values, shape)
    for place, source in pairs:
        out[source] = extreme([out[source].item(), given[place].item()], least)
    return out


def extreme(elements: list[Any], least: bool = False) -> Any:
    """The first NaN, else the greatest or least; complex elements in lexicographic order."""
    return elements[extreme_place(elements, least)]


def extreme_place(elements: list[Any], least: bool = False) -> int:
    for i, v in enumerate(elements):
        if v != v:
            return i
    choose = min if least else max
    return int(elements.index(choose(elements, key=lambda v: (v.real, v.imag))))


def _last_extreme(elements: list[Any], least: bool) -> int:
    """The place of the first NaN, else of the last of the greatest or least."""
    if any(v != v for v in elements):
        return extreme_place(elements)
    return len(elements) - 1 - extreme_place(elements[::-1], least)


def exact_sum(elements: list[Any]) -> Any:
    if not all(map(cmath.isfinite, elements)):
        return sum(elements)
    if any(isinstance(v, complex) for v in elements):
        return complex(math.fsum(v.real for v in elements), math.fsum(v.imag for v in elements))
    return math.fsum(elements) if any(isinstance(v, float) for v in elements) else sum(elements)


def _squared_deviations(elements: list[Any]) -> Any:
    middle = exact_sum(elements) / max(len(elements), 1)
    return exact_sum([(v - middle) ** 2 for v in elements])


def _lines_along(x: Any, axes: Sequence[int]) -> Iterator[tuple[Place, list[Any]]]:
    """For each index of the other axes, the elements along some."""
    axes = sorted(a % x.ndim for a in axes)
    rest = [n for a, n in enumerate(x.shape) if a not in axes]
    for outer in np.ndindex(*rest):
        left = iter(outer)
        index = tuple(slice(None) if a in axes else next(left) for a in range(x.ndim))
        yield outer, x[index].ravel().tolist()


def fold_along(function: Callable[[list[Any]], Any]) -> Callable[..., Any]:
    """A function of a list of elements, along one axis or several."""

    def oracle(x: Any, axis: Any, keepdims: bool) -> Any:
        axes = [a % x.ndim for a in (axis if isinstance(axis, tuple) else (axis,))]
        found = [function(elements) for _, elements in _lines_along(x, axes)]
        shape = [1 if a in axes else n for a, n in enumerate(x.shape) if keepdims or a not in axes]
        return np.array(found, dtype=None if found else x.dtype).reshape(shape)

    return oracle


def scan_along(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of all elements up to each index along an axis."""

    def oracle(x: Any, axis: int, **static: Any) -> Any:
        rows = [[function(row[: n + 1], **static) for n in range(len(row))] for _, row in _lines_along(x, (axis,))]
        shape = [n for a, n in enumerate(x.shape) if a != axis % x.ndim]
        found = np.array(rows, dtype=None if any(rows) else x.dtype).reshape(*shape, x.shape[axis])
        return np.moveaxis(found, -1, axis)

    return oracle


def _log_sum(elements: list[Any]) -> Any:
    if any(isinstance(v, complex) for v in elements):
        return cmath.log(exact_sum([cmath.exp(v) for v in elements]))
    top = max(elements)
    if math.isinf(top) or any(v != v for v in elements):
        return math.nan if any(v != v for v in elements) else top
    return top + math.log(math.fsum(math.exp(v - top) for v in elements))


def _linear_recurrence(a: Any, b: Any, axis: int) -> Any:
    out = np.zeros(b.shape, np.result_type(a, b))
    for place in np.ndindex(b.shape):
        before = tuple(i - 1 if n == axis % b.ndim else i for n, i in enumerate(place))
        out[place] = b[place] + (a[place] * out[before] if min(before, default=0) >= 0 else 0)
    return out


def _sort_order(found: Any, x: Any, axis: int, descending: bool, kth: tuple[int, ...]) -> list[tuple[Any, Any]]:
    """A stable order in which NaN is the greatest; a partition may be any that is right at the positions in `kth`."""
    (order,) = found
    rows = zip(_lines_along(x, (axis,)), _lines_along(np.asarray(order), (axis,)), strict=True)
    pairs = []
    for (_, elements), (_, places) in rows:
        wanted = sorted(range(len(elements)), key=lambda i, row=elements: _sort_key(row[i], descending))  # type: ignore[misc]
        if not kth:
            pairs.append((np.array(places), np.array(wanted)))
            continue
        pairs.append((np.sort(places), np.arange(len(elements))))
        for k in kth:
            left, here = [elements[i] for i in places[:k]], elements[wanted[k]]
            highest = max([*left, here], key=lambda v: _sort_key(v, descending))
            pairs.append((np.array([elements[places[k]], highest]), np.array([here, here])))
    return pairs


def _largest_places(found: Any, x: Any, count: int) -> list[tuple[Any, Any]]:
    """Places in rising order, of any elements that are as large as the largest."""
    (places,) = found
    pairs = []
    for (_, elements), (_, row) in zip(_lines_along(x, (-1,)), _lines_along(np.asarray(places), (-1,)), strict=True):
        pairs.append((np.array(row), np.unique(row)))
        pairs.append((np.sort([abs(elements[i]) for i in row]), np.sort([abs(v) for v in elements])[-count:]))
    return pairs


def _sort_key(v: Any, descending: bool) -> tuple[Any, ...]:
    turned = -v if descending else v
    return ((v != v) != descending, turned.real, turned.imag)


def _searchsorted(x: Any, values: Any, side: str) -> Any:
    def count(v: Any) -> int:
        keys = [_sort_key(u, False) for u in x.tolist()]
        return sum(k < _sort_key(v, False) if side == "left" else k <= _sort_key(v, False) for k in keys)

    return np.array([count(v) for v in values.ravel().tolist()], np.int64).reshape(values.shape)


def _neighbors(place: Any, method: str) -> Any:
    """The places on both sides of a fractional one and the weight of the second, by NumPy's names of methods."""
    found = [_neighbors_of(v, method) for v in place.ravel().tolist()]
    return np.array(found, float).reshape(*place.shape, 3).transpose(place.ndim, *range(place.ndim))


def _neighbors_of(place: float, method: str) -> tuple[float, float, float]:
    """Hyndman and Fan's rules, as NumPy has them: between two elements, or on one of them."""
    low, part = math.floor(place), place - math.floor(place)
    on_one = {
        "lower": low,
        "higher": math.ceil(place),
        "nearest": round(place),
        "inverted_cdf": math.ceil(place),
        "closest_observation": low if part == 0 and low % 2 else low + 1,
    }
    if method in on_one:
        return on_one[method], on_one[method], 0.0
    weights = {"midpoint": 0.5 if part else 0.0, "averaged_inverted_cdf": 1.0 if part else 0.5}
    return low, low + 1, weights.get(method, part)


def map_elements(function: Callable[[Any], Any]) -> Callable[..., Any]:
    """A function of one element, for each."""

    def oracle(x: Any, **static: Any) -> Any:
        return np.array([function(v) for v in x.ravel().tolist()]).reshape(x.shape)

    return oracle


def _round(v: Any) -> Any:
    if not cmath.isfinite(v) or isinstance(v, int):
        return v
    return complex(round(v.real), round(v.imag)) if isinstance(v, complex) else float(round(v))


def _identity(x: Any, *flags: Any, **static: Any) -> Any:
    return np.asarray(x)


#: Alone they return what they are given; on several ranks they are compared with programs on one array of all values
#: (`tests/test_distributed.py`).
_COLLECTIVES = (
    "total", "shared", "whole", "part", "all_gather", "reduce_scatter", "broadcast", "keep_at", "all_to_all",
    "extreme_of_ranks", "regather",
)  # fmt: skip


def _identities(*xs: Any, **static: Any) -> Any:
    return tuple(map(np.asarray, xs))


def _move_alone(x: Any, ranks: int, pairs: Any) -> Any:
    return np.asarray(x) if pairs else np.zeros_like(x)


#: What ops over a batch give if all elements have the same x; real batches are in `tests/test_batch_axis.py`.
_OVER_BATCH: dict[str, Callable[..., Any]] = {
    "sum_over_batch": lambda x, place, size: np.asarray(x) * size,
    "gather_batch": lambda x, place, size: np.stack([x] * size),
    "scatter_to_batch": lambda x, place, size: np.asarray(x[int(place)]) * size,
    "permute_batch": lambda x, place, sources: _move_alone(x, 1, sources[int(place)] >= 0),
}


STRUCTURAL_ORACLES: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(_COLLECTIVES, _identity),
    **dict.fromkeys(("totals", "shares", "gathers"), _identities),
    "start_totals": lambda *xs, ranks: np.array(0),
    "finish_totals": lambda ticket, *xs, ranks, names: _identities(*xs),
    **dict.fromkeys(("barrier", "compare_replicas", "check_sums"), lambda *xs, **static: np.array(True)),
    "permute": _move_alone,
    **_OVER_BATCH,
    **dict.fromkeys(("again", "name", "numbers", "checked", "once", "discrete_parameter", "to_device"), _identity),
    "reshape": _reshape,
    "permute_dims": _permute,
    "broadcast_to": _broadcast,
    "flip": _flip,
    "roll": _roll,
    "concat": _concat,
    "split": _split,
    "astype": _cast,
    "narrow": _cast,
    "getitem": _getitem,
    "lookup_rows": _lookup_rows,
    "scatter": _scatter,
    "set_at": _set_at,
    "scatter_extreme": _scatter_extreme,
    "sum": fold_along(exact_sum),
    "prod": fold_along(math.prod),
    "squared_deviations": lambda x, axis: fold_along(_squared_deviations)(x, axis, True),
    "max": fold_along(extreme),
    "min": fold_along(lambda elements: extreme(elements, least=True)),
    "argmax": fold_along(extreme_place),
    "argmin": fold_along(lambda elements: extreme_place(elements, least=True)),
    "any": fold_along(any),
    "all": fold_along(all),
    "cumulative_sum": scan_along(exact_sum),
    "cumulative_prod": scan_along(math.prod),
    "logcumsumexp": scan_along(_log_sum),
    "running_index": scan_along(_last_extreme),
    "linear_recurrence": _linear_recurrence,
    "searchsorted": _searchsorted,
    "quantile_neighbours": _neighbors,
    "straight_through_round": map_elements(_round),
    "exponent": map_elements(lambda v: math.frexp(v)[1]),
    "power_of_two": map_elements(lambda v: math.ldexp(1.0, v)),
}

STRUCTURAL_LAWS: dict[str, Callable[..., list[tuple[Any, Any]]]] = {
    "argsort": _sort_order,
    "largest_places": _largest_places,
}
