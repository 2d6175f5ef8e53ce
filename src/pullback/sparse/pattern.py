"""Where a sparse matrix has entries: coordinates in the order of its numbers, and what is derived from them once."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Literal, NamedTuple, final

import numpy as np

from ..arrays.spec import spec_of
from ..arrays.trees import register_tree
from ..errors import ArgumentError, ShapeError
from ..ops.index.normalize import namespace_for
from .checks import check_block, check_places, check_shape

Format = Literal["coo", "csr", "csc", "bsr"]
_TRANSPOSED: dict[Format, Format] = {"coo": "coo", "csr": "csc", "csc": "csr", "bsr": "bsr"}


class Merge(NamedTuple):
    """A pattern in another order, without duplicates: for each old entry the new one that it is added to, and, if the
    entries only move, for each new entry the old one.
    """

    pattern: Pattern
    targets: Any
    order: Any


@final
class Pattern:
    """Where a sparse matrix of a shape has entries: `rows[k]` and `cols[k]` are the place of the k-th number. In the
    format "csr" rows rise, in "csc" columns do, "coo" has any order; in "bsr" numbers are blocks of the shape `block`,
    and places count blocks, whose rows rise in what users get. A place that is listed twice
    has the sum of both numbers.

    A pattern never changes. Two are equal if they have the same places in the same order.

    >>> import numpy as np, pullback as pb
    >>> A = pb.sparse.coo(np.array([1.0, 2.0]), [0, 1], [1, 1], (2, 2))
    >>> A.pattern.rows.tolist(), A.pattern.cols.tolist(), A.pattern.format
    ([0, 1], [1, 1], 'coo')
    """

    def __init__(
        self, format: Format, shape: tuple[int, int], rows: Any, cols: Any, block: tuple[int, int] = (1, 1)
    ) -> None:
        if format not in _TRANSPOSED:
            raise ArgumentError(f"Pattern: the format is one of {', '.join(_TRANSPOSED)}, got {format!r}.")
        self.format: Format = format
        self.shape = check_shape(shape, "Pattern")
        self.block = check_block(block, self.shape, "Pattern")
        # a pattern may come from a file, and places are used without further checks
        self.rows = _as_places(check_places(rows, self.grid[0], "Pattern: rows"), self.shape)
        self.cols = _as_places(check_places(cols, self.grid[1], "Pattern: columns"), self.shape)
        if self.rows.size != self.cols.size:
            raise ShapeError(f"Pattern: got {self.rows.size} rows and {self.cols.size} columns.")
        rising = {"csr": self.rows, "csc": self.cols}.get(format)
        if rising is not None and (rising[1:] < rising[:-1]).any():
            raise ArgumentError(f"Pattern: the {'rows' if format == 'csr' else 'columns'} of {format} never fall.")
        self._copies: dict[str, tuple[Any, Any]] = {}

    @property
    def nnz(self) -> int:
        """How many numbers are stored."""
        return int(self.rows.size) * self.block[0] * self.block[1]

    @property
    def grid(self) -> tuple[int, int]:
        """How many blocks the matrix has in each direction."""
        return self.shape[0] // self.block[0], self.shape[1] // self.block[1]

    def places_for(self, data: Any) -> tuple[Any, Any]:
        """Rows and columns on the device of the numbers."""
        device = spec_of(data).device
        if device == "cpu":
            return self.rows, self.cols
        if device not in self._copies:
            xp = namespace_for(data)
            self._copies[device] = xp.asarray(self.rows), xp.asarray(self.cols)
        return self._copies[device]

    @cached_property
    def indptr(self) -> Any:
        """Where each row starts among the entries, of "csc" each column."""
        major, count = (self.cols, self.grid[1]) if self.format == "csc" else (self.rows, self.grid[0])
        starts = np.zeros(count + 1, self.rows.dtype)
        np.cumsum(np.bincount(major, minlength=count), out=starts[1:])
        starts.flags.writeable = False
        return starts

    @property
    def indices(self) -> Any:
        """The column of each entry, of "csc" the row."""
        return self.rows if self.format == "csc" else self.cols

    @cached_property
    def transposed(self) -> Pattern:
        """The pattern of the transpose, whose numbers are in the same order."""
        found = Pattern(_TRANSPOSED[self.format], self.shape[::-1], self.cols, self.rows, self.block[::-1])
        found.__dict__["transposed"] = self
        return found

    @cached_property
    def keys(self) -> Any:
        """One integer for each place, in the order of rows, then columns."""
        return self.rows.astype(np.int64) * self.grid[1] + self.cols

    @cached_property
    def has_duplicates(self) -> bool:
        """Whether a place is listed twice."""
        return bool(np.unique(self.keys).size < self.keys.size)

    @cached_property
    def by_rows(self) -> Merge:
        """The pattern in the order of rows and columns, without duplicates."""
        return self._merge(self.keys, "bsr" if self.format == "bsr" else "csr")

    @cached_property
    def by_columns(self) -> Merge:
        """The pattern in the order of columns and rows, without duplicates."""
        return self._merge(self.cols.astype(np.int64) * self.grid[0] + self.rows, "csc")

    def _merge(self, keys: Any, format: Format) -> Merge:
        _, first, targets = np.unique(keys, return_index=True, return_inverse=True)
        rows, cols = self.rows[first], self.cols[first]
        order = first if first.size == keys.size else None
        return Merge(Pattern(format, self.shape, rows, cols, self.block), targets.reshape(-1), order)

    @cached_property
    def entries(self) -> Pattern:
        """The pattern of single numbers, of blocks row by row inside of each."""
        if self.format != "bsr":
            return self
        (r, c), shape = self.block, (self.rows.size, *self.block)
        rows = np.broadcast_to((self.rows[:, None] * r + np.arange(r))[:, :, None], shape)
        cols = np.broadcast_to((self.cols[:, None] * c + np.arange(c))[:, None, :], shape)
        return Pattern("coo", self.shape, rows.reshape(-1), cols.reshape(-1))

    def as_coo(self) -> Pattern:
        """The same places in the same order, without a promise about the order."""
        return self if self.format == "coo" else Pattern("coo", self.shape, self.rows, self.cols)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Pattern) or self._signature() != other._signature():
            return False
        return np.array_equal(self.rows, other.rows) and np.array_equal(self.cols, other.cols)

    def __hash__(self) -> int:
        return hash(self._signature())

    def _signature(self) -> tuple[Any, ...]:
        return self.format, self.shape, self.block, self.rows.size

    def __repr__(self) -> str:
        blocks = f" in blocks of {self.block[0]} x {self.block[1]}" if self.format == "bsr" else ""
        return f"<pattern {self.shape[0]} x {self.shape[1]}, {self.nnz} entries, {self.format}{blocks}>"

    def __reduce__(self) -> Any:
        return Pattern, (self.format, self.shape, self.rows, self.cols, self.block)


def expand_stretches(starts: Any, counts: Any) -> Any:
    """The numbers of stretches, one after the other: so many from each start on."""
    ends = np.cumsum(counts)
    return np.repeat(starts - (ends - counts), counts) + np.arange(int(counts.sum()))


def _as_places(places: Any, shape: tuple[int, int]) -> Any:
    """A read-only copy in the narrowest integers that SciPy and kernels take."""
    found = np.array(places, np.int32 if max(shape) < 2**31 else np.int64)
    found.flags.writeable = False
    return found


# A tree, so that files hold the pattern of a matrix as arrays. Nothing differentiates a pattern: in a sparse array it
# belongs to the structure.
register_tree(
    Pattern,
    lambda p: ((p.rows, p.cols), (p.format, p.shape, p.block)),
    lambda rest, places: Pattern(rest[0], rest[1], places[0], places[1], rest[2]),
)
