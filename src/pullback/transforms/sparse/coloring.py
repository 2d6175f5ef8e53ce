"""Sparsity pattern in, groups of columns and rows out, such that one product with each group shows every nonzero.

A product with the sum of several columns' unit vectors shows an entry (r, c) by itself if no other column of the group
has an entry in row r. Sets of colors are kept as bits of Python integers: a color is free if its bit is not set in
any set that matters, and the lowest such bit is `~taken & (taken + 1)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ...errors import ArgumentError
from .probe import Matrix

ColoringMethod = Literal["auto", "column", "row", "bidirectional"]

#: How many ways to share the entries out between rows and columns are colored to compare them.
_TRIES = 4


@dataclass(frozen=True, slots=True, eq=False)
class Coloring:
    """The group of each column and of each row, counted from 0; -1 for those that take part in no product."""

    columns: Any
    rows: Any

    @property
    def column_count(self) -> int:
        return int(self.columns.max(initial=-1)) + 1

    @property
    def row_count(self) -> int:
        return int(self.rows.max(initial=-1)) + 1

    @property
    def products(self) -> int:
        """How many products show the whole matrix."""
        return self.column_count + self.row_count


def color_jacobian(pattern: Matrix, how: ColoringMethod = "auto") -> Coloring:
    """Groups for a Jacobian: of columns, of rows, or of some of both, whichever makes fewer products."""
    ways: dict[str, Callable[[Matrix], Coloring]] = {
        "column": _color_columns,
        "row": _color_rows,
        "bidirectional": _color_both,
    }
    if how not in (*ways, "auto"):
        raise ArgumentError(f'coloring is "auto", {", ".join(map(repr, ways))}; got {how!r}.')
    if how != "auto":
        return ways[how](pattern)
    return min((way(pattern) for way in ways.values()), key=lambda coloring: coloring.products)


def _color_columns(pattern: Matrix) -> Coloring:
    return Coloring(_group_columns(pattern), np.full(pattern.shape[0], -1))


def _color_rows(pattern: Matrix) -> Coloring:
    return Coloring(np.full(pattern.shape[1], -1), _group_columns(pattern.T.tocsr()))


def _color_both(pattern: Matrix) -> Coloring:
    """Some rows shown by products from the left, the rest by products from the right, or the same with columns.

    The rows left to columns need at least as many groups as the longest of them has entries, so the long rows are the
    ones to take out; the bound picks the numbers of rows worth trying.
    """
    flipped = (Coloring(c.rows, c.columns) for c in _color_without_long_rows(pattern.T.tocsr()))
    return min((*_color_without_long_rows(pattern), *flipped), key=lambda coloring: coloring.products)


def _color_without_long_rows(pattern: Matrix) -> list[Coloring]:
    # A bound for every way to cut, cheap to compute; only the most promising ones are colored.
    lengths = np.diff(pattern.indptr)
    longest = np.unique(np.append(lengths, 0))
    long_of = {int(n): lengths > n for n in longest[-64:]}
    bound = {n: n + int(np.max(np.bincount(pattern[long].indices, minlength=1))) for n, long in long_of.items()}
    tried = sorted(bound, key=lambda n: bound[n])[:_TRIES]
    return [_color_split(pattern, long_of[n]) for n in tried]


def _color_split(pattern: Matrix, long: Any) -> Coloring:
    rows = np.full(pattern.shape[0], -1)
    rows[long] = _group_columns(pattern[long].T.tocsr())
    return Coloring(_group_columns(pattern[~long]), rows)


def _group_columns(pattern: Matrix) -> Any:
    """Colours of the columns, no two equal that have an entry in one row; greedy, in the better of two orders."""
    lengths = np.diff(pattern.indptr)
    counts = np.bincount(pattern.indices, minlength=pattern.shape[1])
    used = np.flatnonzero(counts)
    # A row of n entries needs n colors, which bounds every coloring from below.
    fewest = int(lengths.max(initial=0))
    if fewest == used.size:  # a full row: each column needs a color of its own
        return _number_at(used, pattern.shape[1])
    by_column = pattern.tocsc()
    crowd = by_column.T @ lengths  # how many entries share a row with those of a column
    # The natural order is best for bands, crowded columns first for anything irregular.
    orders = (used, used[np.argsort(-crowd[used], kind="stable")])
    return _fewest_colors((_color_greedily(by_column, order) for order in orders), fewest)


def _number_at(places: Any, size: int) -> Any:
    colors = np.full(size, -1)
    colors[places] = np.arange(places.size)
    return colors


def _fewest_colors(tries: Iterable[Any], fewest: int) -> Any:
    """The colors with the smallest count, stopping at a count that cannot be beaten."""
    best = None
    for colors in tries:
        if best is None or colors.max(initial=-1) < best.max(initial=-1):
            best = colors
        if best.max(initial=-1) + 1 <= fewest:
            break
    return best


def _color_greedily(by_column: Any, order: Any) -> Any:
    starts, entries = by_column.indptr.tolist(), by_column.indices.tolist()
    taken_in = [0] * by_column.shape[0]
    colors = np.full(by_column.shape[1], -1)
    for column in order.tolist():
        rows = entries[starts[column] : starts[column + 1]]
        taken = 0
        for row in rows:
            taken |= taken_in[row]
        # The lowest color that no row of this column has.
        bit = ~taken & (taken + 1)
        for row in rows:
            taken_in[row] |= bit
        colors[column] = bit.bit_length() - 1
    return colors


def color_hessian(pattern: Matrix) -> Coloring:
    """Groups of columns for a symmetric matrix: every entry is alone in its row's group, or its mirror image is.

    That is a star coloring of the graph whose edges are the entries off the diagonal: neighbors differ, and no path
    of four vertices has only two colors. Columns that share no row make one too, but mostly of more groups.
    """
    size = pattern.shape[0]
    degrees = np.diff(pattern.indptr)
    used = np.flatnonzero(degrees)
    none = np.full(size, -1)
    if pattern.nnz == used.size**2:
        return Coloring(_number_at(used, size), none)
    starts, entries = pattern.indptr.tolist(), pattern.indices.tolist()
    beside = [[w for w in entries[starts[v] : starts[v + 1]] if w != v] for v in range(size)]
    orders = (used[np.argsort(-degrees[used], kind="stable")], used)
    return Coloring(
        _fewest_colors(
            (_StarColoring(beside).color_all(order) for order in orders), min(2, int(degrees.max(initial=0)))
        ),
        none,
    )


class _StarColoring:
    """A greedy star coloring under way. A color c is refused to a vertex v if a path of four would get two colors:

        v - w - x - y  with colors  c, a, c, a:  some x beside w has c and, beside w, another neighbor of color a;
        u - v - w - x  with colors  a, c, a, c:  v has two neighbors of color a, and beside one of them an x has c.

    `once` and `twice` are the colors that one, and more than one, neighbor of a vertex has; `blocked[w]` holds the
    colors of the first kind. All are kept up to date as colors are given, so that no path is ever walked.
    """

    def __init__(self, beside: Sequence[Sequence[int]]) -> None:
        self.neighbors = beside
        size = len(beside)
        self.colors = [-1] * size
        self.once, self.twice, self.blocked = [0] * size, [0] * size, [0] * size
        self.first: list[dict[int, int]] = [{} for _ in range(size)]

    def color_all(self, order: Any) -> Any:
        """Colours of all vertices, given in an order."""
        for v in order.tolist():
            taken = self._refused_colors(v)
            self._assign(v, (~taken & (taken + 1)).bit_length() - 1)
        return np.array(self.colors, np.intp)

    def _refused_colors(self, v: int) -> int:
        taken, twice = self.once[v], self.twice[v]
        for w in self.neighbors[v]:
            a = self.colors[w]
            if a >= 0:
                taken |= self.once[w] if twice >> a & 1 else self.blocked[w]
        return taken

    def _assign(self, v: int, c: int) -> None:
        colors, bit = self.colors, 1 << c
        colors[v] = c
        for w in self.neighbors[v]:
            a = colors[w]
            if a >= 0 and self.twice[v] >> a & 1:  # v is an x: another neighbor of v has w's color
                self.blocked[w] |= bit
            if not self.once[w] & bit:
                self.once[w] |= bit
                self.first[w][c] = v
                continue
            if not self.twice[w] & bit and a >= 0:  # w becomes an x for the first neighbor that has this color
                self.blocked[self.first[w][c]] |= 1 << a
            self.twice[w] |= bit
            if a >= 0:
                self.blocked[v] |= 1 << a


def entry_places(pattern: Matrix, colors: Coloring, symmetric: bool) -> Any:
    """Where each nonzero is found in the products, laid one after the other: from the column's group where it is alone
    in its row there, else from the row's group, which for a symmetric matrix is its mirror image's column's group.
    """
    height, width = pattern.shape
    rows = np.repeat(np.arange(height), np.diff(pattern.indptr))
    columns = pattern.indices.astype(np.intp)
    # An entry that is alone in its row's group can be read off; otherwise its row's product shows it.
    alone = _is_alone(rows, colors.columns[columns], height)
    in_columns = colors.columns[columns] * height + rows
    if symmetric:
        mirrored = colors.columns[rows]
        fine = alone | _is_alone(columns, mirrored, width)
        places = np.where(alone, in_columns, mirrored * width + columns)
    else:
        fine = alone | _is_alone(columns, colors.rows[rows], width)
        start = colors.column_count * height
        places = np.where(alone, in_columns, start + colors.rows[rows] * width + columns)
    if not fine.all():
        raise ArgumentError("the coloring does not show every entry of the pattern.")
    return places


def _is_alone(lines: Any, colors: Any, count: int) -> Any:
    """For each entry, whether no other on its line has its color."""
    taking_part = colors >= 0
    width = int(colors.max(initial=-1)) + 1
    keys = lines * max(1, width) + colors
    met = np.bincount(keys[taking_part], minlength=max(1, count * max(1, width)))
    return taking_part & (met[np.where(taking_part, keys, 0)] == 1)
