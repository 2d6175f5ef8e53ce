"""Folds of a row: vectors of partial results in slots of their own, put together in a fixed tree."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..loops import Line
from ..words import IDENTITY
from .lanes import BOOL, Lane, type_of
from .text import Text
from .words import Words

__all__ = ["Fold", "identity"]

_REDUCE = {
    "add": ("fadd", "add", "or"), "multiply": ("fmul", "mul", "and"), "maximum": ("fmaximum", "smax", "or"),
    "minimum": ("fminimum", "smin", "and"), "logical_or": ("", "", "or"), "logical_and": ("", "", "and"),
}  # fmt: skip


class Fold:
    """A fold while its loop is written: of which line, by which word, and the slots its partial results are in."""

    def __init__(self, line: Line, word: str, dtype: np.dtype[Any]) -> None:
        self.line = line
        self.word = word
        self.dtype = dtype
        self.slots: list[str] = []

    def begin(self, text: Text, lanes: int, times: int) -> None:
        start = text.words(lanes).number(identity(self.word, self.dtype), self.dtype)
        kind = type_of(self.dtype, lanes)
        self.slots += [text.slot(kind, start.name) for _ in range(times)]

    def take(self, words: Words, turn: int, value: Lane, mask: str | None) -> None:
        """Fold one vector in; lanes outside the mask count for nothing."""
        words.dtype = self.dtype
        kind, slot = type_of(self.dtype, words.lanes), self.slots[turn]
        value = words.cast(value, self.dtype)
        if mask is not None:
            nothing = words.number(identity(self.word, self.dtype), self.dtype)
            truth = type_of(BOOL, words.lanes)
            value = words.made(f"select {truth} {mask}, {kind} {value.name}, {kind} {nothing.name}", self.dtype)
        so_far = Lane(words.emit(f"load {kind}, ptr {slot}"), self.dtype, words.lanes)
        total = getattr(words, self.word)(so_far, value)
        words.say(f"store {kind} {total.name}, ptr {slot}")

    def end(self, text: Text, lanes: int) -> Lane:
        """All partial results as one scalar."""
        words = text.words(lanes)
        words.dtype = self.dtype
        kind = type_of(self.dtype, lanes)
        parts = [Lane(words.emit(f"load {kind}, ptr {slot}"), self.dtype, lanes) for slot in self.slots]
        while len(parts) > 1:
            pairs = zip(parts[::2], parts[1::2], strict=True)
            parts = [getattr(words, self.word)(x, y) for x, y in pairs]
        found = _across(words, parts[0], self.word) if lanes > 1 else parts[0]
        text.lines += words.lines
        return found


def _across(words: Words, x: Lane, word: str) -> Lane:
    """The fold of all lanes of a vector."""
    of_floats, of_integers, of_truths = _REDUCE[word]
    name = of_floats if x.dtype.kind == "f" else of_truths if x.dtype.kind == "b" else of_integers
    if x.dtype.kind == "u" and name in ("smax", "smin"):
        name = "u" + name[1:]
    full = f"llvm.vector.reduce.{name}.{words.suffix(x.dtype)}"
    if name not in ("fadd", "fmul"):
        return words.call(full, x.dtype, x, lanes=1)
    start = Lane("-0.0" if name == "fadd" else "1.0", x.dtype)
    return words.call(full, x.dtype, start, x, lanes=1, flags="reassoc")


def identity(word: str, dtype: np.dtype[Any]) -> Any:
    """What a fold starts from."""
    number = IDENTITY[word]
    if dtype.kind in "iu" and not np.isfinite(number):
        return np.iinfo(dtype).min if number < 0 else np.iinfo(dtype).max
    return number
