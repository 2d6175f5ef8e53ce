"""What ranks send each other in a collective, and what each makes of what came to it: independent of how it travels."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...arrays.spec import HALF_CODES
from ..dispatch import cast_array


class Exchange(ABC):
    """The data movement of a collective. Source and target of a part are ranks.

    `to_all`: a rank sends one and the same part to all others, so that a gather serves it.
    """

    to_all = False

    @abstractmethod
    def part(self, x: Any, source: int, target: int) -> Any:
        """What one rank sends another, as a view of its array; None if it sends nothing."""

    @abstractmethod
    def join(self, xp: Any, parts: Sequence[Any], x: Any) -> Any:
        """The result of a rank, in memory of its own, by the parts that all ranks sent it and its own array."""

    def __str__(self) -> str:
        """The parameters that all ranks must agree on."""
        return ""


def add_up(xp: Any, arrays: Sequence[Any]) -> Any:
    """The sum by a binary tree, whose order follows from the number of arrays alone. Half precision is summed in
    float32 and rounded once.
    """
    dtype = arrays[0].dtype
    widened = dtype.char in HALF_CODES
    terms = [cast_array(a, np.dtype(np.float32)) for a in arrays] if widened else list(arrays)
    while len(terms) > 1:
        pairs = [a + b for a, b in zip(terms[::2], terms[1::2], strict=False)]
        terms = pairs + terms[2 * len(pairs) :]
    return cast_array(terms[0], dtype) if widened else terms[0].copy() if len(arrays) == 1 else terms[0]


def part_of(x: Any, rank: int, ranks: int, axis: int) -> Any:
    """A rank's part of an array that is cut into equal parts along an axis."""
    size = x.shape[axis] // ranks
    return x[(slice(None),) * axis + (slice(rank * size, (rank + 1) * size),)]


@dataclass(frozen=True)
class Nothing(Exchange):
    """Ranks only meet."""

    to_all = True

    def part(self, x: Any, source: int, target: int) -> Any:
        return None

    def join(self, xp: Any, parts: Sequence[Any], x: Any) -> Any:
        return x


class FiniteSums(list[Any]):
    """Sums that were found to be finite while they were computed."""


@dataclass(frozen=True)
class Sum(Exchange):
    """The sum over ranks."""

    to_all = True

    def part(self, x: Any, source: int, target: int) -> Any:
        return x

    def join(self, xp: Any, parts: Sequence[Any], x: Any) -> Any:
        return add_up(xp, parts)


@dataclass(frozen=True)
class SumOfParts(Exchange):
    """The rank's part, along an axis, of the sum over ranks."""

    ranks: int
    axis: int

    def part(self, x: Any, source: int, target: int) -> Any:
        return part_of(x, target, self.ranks, self.axis)

    def join(self, xp: Any, parts: Sequence[Any], x: Any) -> Any:
        return add_up(xp, parts)

    def __str__(self) -> str:
        return f", axis={self.axis}"


@dataclass(frozen=True)
class Concatenation(Exchange):
    """The arrays of all ranks along an axis."""

    axis: int
    to_all = True

    def part(self, x: Any, source: int, target: int) -> Any:
        return x

    def join(self, xp: Any, parts: Sequence[Any], x: Any) -> Any:
        return xp.concatenate(parts, self.axis)

    def __str__(self) -> str:
        return f", axis={self.axis}"


@dataclass(frozen=True)
class FromRoot(Exchange):
    """The array of one rank."""

    root: int

    def part(self, x: Any, source: int, target: int) -> Any:
        return x if source == self.root else None

    def join(self, xp: Any, parts: Sequence[Any], x: Any) -> Any:
        return parts[self.root].copy()

    def __str__(self) -> str:
        return f", root={self.root}"


@dataclass(frozen=True)
class Swap(Exchange):
    """Each rank cuts its array along one axis, and joins the parts that came to it along another."""

    ranks: int
    split_axis: int
    concat_axis: int

    def part(self, x: Any, source: int, target: int) -> Any:
        return part_of(x, target, self.ranks, self.split_axis)

    def join(self, xp: Any, parts: Sequence[Any], x: Any) -> Any:
        return xp.concatenate(parts, self.concat_axis)

    def __str__(self) -> str:
        return f", from axis {self.split_axis} to axis {self.concat_axis}"


@dataclass(frozen=True)
class Move(Exchange):
    """Arrays go from rank to rank, as pairs (source, target) say; zeros where none comes to."""

    pairs: tuple[tuple[int, int], ...]

    def part(self, x: Any, source: int, target: int) -> Any:
        return x if (source, target) in self.pairs else None

    def join(self, xp: Any, parts: Sequence[Any], x: Any) -> Any:
        came = next((p for p in parts if p is not None), None)
        return xp.zeros_like(x) if came is None else came.copy()

    def __str__(self) -> str:
        return f", {', '.join(f'{a} to {b}' for a, b in self.pairs) or 'nowhere'}"


@dataclass(frozen=True)
class Extreme(Exchange):
    """What a comparison of two arrays, such as `maximum`, makes of those of all ranks."""

    word: str
    to_all = True

    def part(self, x: Any, source: int, target: int) -> Any:
        return x

    def join(self, xp: Any, parts: Sequence[Any], x: Any) -> Any:
        compare: Callable[[Any, Any], Any] = getattr(xp, self.word)
        found = functools.reduce(compare, parts)
        # alone, nothing was compared
        return found.astype(np.bool_) if self.word.startswith("logical") else xp.array(found)
