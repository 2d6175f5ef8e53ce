"""`GraphWriter`: what a format of other systems must be able to say so that programs can be written in it.

The rules for forms of ops (`equations.py`) and the words of kernels (`words.py`) are written once, in these few
operations on arrays of known shape; ONNX and StableHLO implement them.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Ref:
    """A value of the graph that is written: its name there, shape and dtype; `known` is its array if it is constant."""

    name: str
    shape: Shape
    dtype: np.dtype[Any]
    known: Any = None

    @property
    def ndim(self) -> int:
        return len(self.shape)


class NoEquivalent(Exception):  # noqa: N818 - no error of the user's: the walker turns it into one
    """Raised by a writer that has no operation for what it is asked; the text says what is missing."""


def array_key(array: Any) -> Any:
    """What arrays of equal dtype, shape and bytes have in common; of a large one a digest, so that no copy is kept."""
    content = array.tobytes()
    if len(content) > 1024:
        content = hashlib.sha256(content).digest()
    return array.dtype.str if array.dtype.kind != "V" else array.dtype.name, array.shape, content


class GraphWriter(ABC):
    """Abstract: appends operations to a graph and returns what they compute."""

    #: The name of the format in errors.
    format: str
    #: Words of the scalar vocabulary that the format has an operation for.
    words: frozenset[str]

    @abstractmethod
    def constant(self, array: Any) -> Ref:
        """An array of NumPy's as a value of the graph."""

    @abstractmethod
    def word(self, word: str, dtype: np.dtype[Any], *xs: Ref) -> Ref:
        """A word of `words` applied to elements of arrays that broadcast; `dtype` is that of the result."""

    @abstractmethod
    def cast(self, x: Ref, dtype: np.dtype[Any]) -> Ref:
        """The elements converted to another dtype."""

    @abstractmethod
    def make_complex(self, re: Ref, im: Ref) -> Ref:
        """Complex numbers of their parts."""

    @abstractmethod
    def complex_part(self, which: str, x: Ref) -> Ref:
        """ "real", "imag" or "abs" of complex numbers."""

    @abstractmethod
    def fourier(self, x: Ref, kind: str, sizes: Shape) -> Ref:
        """A discrete Fourier transform over the last axes, of `sizes` points, without a factor: "fft" or "ifft" of
        complex numbers, "rfft" of real ones to half a spectrum, "irfft" of that.
        """

    @abstractmethod
    def reshape(self, x: Ref, shape: Shape) -> Ref:
        """The same elements in another shape."""

    @abstractmethod
    def transpose(self, x: Ref, axes: Shape) -> Ref:
        """The axes in another order."""

    @abstractmethod
    def expand(self, x: Ref, shape: Shape) -> Ref:
        """Broadcast to a shape, axes aligned on the right."""

    @abstractmethod
    def slice(self, x: Ref, starts: Shape, stops: Shape, steps: Shape) -> Ref:
        """A part of each axis, by positive steps."""

    @abstractmethod
    def reverse(self, x: Ref, axes: Shape) -> Ref:
        """The elements of some axes in reverse order."""

    @abstractmethod
    def concat(self, xs: Sequence[Ref], axis: int) -> Ref:
        """Arrays side by side along an axis."""

    @abstractmethod
    def iota(self, count: int) -> Ref:
        """The numbers 0, 1, ..., as int64."""

    @abstractmethod
    def take(self, x: Ref, indices: Ref) -> Ref:
        """The rows x[indices], where indices are in range and not negative."""

    @abstractmethod
    def put(self, x: Ref, indices: Ref, rows: Ref, word: str | None) -> Ref:
        """x with rows combined ("add", "maximum" or "minimum"), or written, at indices of its first axis."""

    @abstractmethod
    def reduce(self, word: str, x: Ref, axes: Shape) -> Ref:
        """Some axes reduced by a word, and dropped."""

    @abstractmethod
    def contract(self, labels: Sequence[str], result: str, xs: Sequence[Ref]) -> Ref:
        """A sum of products by the letters of axes, as einsum has it; equal letters have equal sizes."""

    @abstractmethod
    def convolve(self, x: Ref, w: Ref, stride: Shape, padding: Any, dilation: Shape, groups: int) -> Ref:
        """A convolution of x (n, channels, *sizes) by w (filters, channels / groups, *window), without flips."""

    @abstractmethod
    def sort_places(self, x: Ref, axis: int, descending: bool) -> Ref:
        """The positions (int64) that sort an axis, equal elements in order."""

    @abstractmethod
    def accumulate(self, word: str, x: Ref, axis: int) -> Ref:
        """Each element combined by a word with all before it along an axis."""

    @abstractmethod
    def has_routine(self, routine: str, dtype: np.dtype[Any]) -> bool:
        """Whether the format has a routine of linear algebra, by its name in the form of an op."""

    @abstractmethod
    def matrix(self, routine: str, xs: Sequence[Ref], static: dict[str, Any], made: Sequence[Any]) -> list[Ref]:
        """A routine that it has on stacks of matrices; `made` are the specs of its results."""

    @abstractmethod
    def branch(self, which: Ref, ways: Sequence[Callable[[], Sequence[Ref]]]) -> list[Ref]:
        """The results of the way of a number (int64, in range)."""

    @abstractmethod
    def repeat(
        self, carry: Sequence[Ref], condition: Callable[..., Ref], step: Callable[..., Sequence[Ref]]
    ) -> list[Ref]:
        """The carry after steps, as long as the condition of it holds."""

    @abstractmethod
    def iterate(
        self, length: int, carry: Sequence[Ref], step: Callable[..., tuple[Sequence[Ref], Sequence[Ref]]],
        rows: Sequence[tuple[Shape, np.dtype[Any]]],
    ) -> tuple[list[Ref], list[Ref]]:  # fmt: skip
        """The carry after `length` steps of (number, *carry) to (carry, rows), and the rows stacked."""
