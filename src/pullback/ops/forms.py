"""How ops that are not elementwise become loops: each is a word or two in its record, read by the compiler alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..arrays.spec import Spec

__all__ = [
    "Again", "Cast", "Contract", "Convolve", "Expand", "Flow", "Fold", "Gather", "Join", "Place", "View", "Window",
    "Write",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Again:
    """The argument itself, where what was computed before is computed once more: nothing is shared with before."""


@dataclass(frozen=True, slots=True)
class Cast:
    """Each element converted to the dtype of the result."""


@dataclass(frozen=True, slots=True)
class Fold:
    """Axes (static `axis`, `keepdims`) folded away by a word of the scalar vocabulary, from its identity."""

    word: str


@dataclass(frozen=True, slots=True)
class Contract:
    """A sum of products: `equation(specs, static)` answers the labels of the arguments and of the result."""

    equation: Callable[[Sequence[Spec], dict[str, Any]], tuple[tuple[str, ...], str]]


@dataclass(frozen=True, slots=True)
class Convolve:
    """A convolution or one of its transposes, in the statics of `ops.convolution`: which of x, w and y comes out."""

    result: str


@dataclass(frozen=True, slots=True)
class Expand:
    """Other ops: `written(*args, **static)` computes the same in them, or answers None where it cannot."""

    written: Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Flow:
    """Routines run again and again, or one of several: `kind` is "iterate", "repeat" or "branch"."""

    kind: str


@dataclass(frozen=True, slots=True)
class Gather:
    """The first argument at the static `index`, in which the other arguments stand as slots."""


@dataclass(frozen=True, slots=True)
class Join:
    """The arguments side by side along the static `axis`."""


@dataclass(frozen=True, slots=True)
class Place:
    """Zeros with the first argument added at the static `index`, in which the other arguments stand as slots."""


@dataclass(frozen=True, slots=True)
class View:
    """The argument's own memory seen in another way, by NumPy's function, where the op's value may be a copy."""

    function: Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Window:
    """What windows of a grid see, place by place, in the statics of `ops.pooling`: "index", "take", "put", "sum" or
    "spread".
    """

    kind: str


@dataclass(frozen=True, slots=True)
class Write:
    """The first argument with the second written at the static `index`, in which the others stand as slots."""
