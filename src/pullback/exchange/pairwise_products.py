"""Sums of products by the letters of axes, for formats that multiply two arrays at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from .graph_writer import GraphWriter, Ref, Shape


class Pairing(NamedTuple):
    """How two arrays are multiplied: the axes of each that are a batch and those that are summed over, in the order in
    which they belong together, and the shape of the product: the batch, then what is left of the first and the second.
    """

    batch: tuple[Shape, Shape]
    summed: tuple[Shape, Shape]
    shape: Shape


def contract_pairs(
    w: GraphWriter, labels: Sequence[str], result: str, xs: Sequence[Ref], multiply: Callable[[Ref, Ref, Pairing], Ref]
) -> Ref:
    """The arrays multiplied from left to right; each letter is summed over as soon as no later array has it."""
    (label, x), *others = zip(labels, xs, strict=True)
    label, x = _take_diagonals(w, label, x)
    for number, (other, y) in enumerate(others):
        later = "".join([result, *(o for o, _ in others[number + 1 :])])
        other, y = _take_diagonals(w, other, y)
        label, x = _sum_unwanted(w, label, x, other + later)
        other, y = _sum_unwanted(w, other, y, label + later)
        label, pairing = _pair(label, x.shape, other, y.shape, later)
        x = multiply(x, y, pairing)
    label, x = _sum_unwanted(w, label, x, result)
    return x if label == result else w.transpose(x, tuple(label.index(c) for c in result))


def _take_diagonals(w: GraphWriter, label: str, x: Ref) -> tuple[str, Ref]:
    """A letter that an argument has twice: its axes are merged into one, of which each n + 1st element is read."""
    while twice := next((c for c in label if label.count(c) > 1), None):
        first, n = label.index(twice), x.shape[label.index(twice)]
        second = label.index(twice, first + 1)
        others = [i for i in range(x.ndim) if i not in (first, second)]
        x = w.transpose(x, (first, second, *others))
        rest = x.shape[2:]
        x = w.reshape(x, (n * n, *rest))
        x = w.slice(x, (0,) * x.ndim, x.shape, (n + 1,) + (1,) * len(rest)) if n else x
        label = twice + "".join(label[i] for i in others)
    return label, x


def _sum_unwanted(w: GraphWriter, label: str, x: Ref, wanted: str) -> tuple[str, Ref]:
    axes = tuple(i for i, c in enumerate(label) if c not in wanted)
    return "".join(c for c in label if c in wanted), w.reduce("add", x, axes) if axes else x


def _pair(label: str, shape: Shape, other: str, other_shape: Shape, later: str) -> tuple[str, Pairing]:
    """Letters that both have are a batch if they are wanted later, else summed over."""
    batch = [c for c in label if c in other and c in later]
    summed = [c for c in label if c in other and c not in later]
    found = "".join([*batch, *(c for c in label if c not in other), *(c for c in other if c not in label)])
    sizes = dict(zip(label + other, shape + other_shape, strict=True))

    def places(letters: list[str]) -> tuple[Shape, Shape]:
        return tuple(map(label.index, letters)), tuple(map(other.index, letters))

    return found, Pairing(places(batch), places(summed), tuple(sizes[c] for c in found))
