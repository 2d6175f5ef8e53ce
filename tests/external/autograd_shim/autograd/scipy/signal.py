"""autograd's convolution over named axes, with further axes contracted, as windows and one einsum."""

from typing import Any

import numpy as np

import pullback as pb


def convolve(a: Any, b: Any, axes: Any = None, dot_axes: Any = ((), ()), mode: str = "full") -> Any:
    """Axes of the result: those of A alone, those of B alone, then the convolved ones."""
    along_a, along_b = axes if axes is not None else (range(a.ndim), range(a.ndim))
    sizes = [(a.shape[i], b.shape[j]) for i, j in zip(along_a, along_b, strict=True)]
    wide = [(0, 0)] * a.ndim
    for i, (_, n) in zip(along_a, sizes, strict=True):
        wide[i] = (n - 1, n - 1)
    windows = np.pad(a, wide)
    if sizes:
        windows = pb.sliding_window_view(windows, tuple(n for _, n in sizes), tuple(along_a))
    flipped = np.flip(b, axis=tuple(along_b)) if sizes else b
    full = np.einsum(_subscripts(a.ndim, b.ndim, list(along_a), list(along_b), dot_axes), windows, flipped)
    kept = tuple(_part(m, n, mode) for m, n in sizes)
    return full[(..., *kept)] if kept else full


def _subscripts(m: int, n: int, along_a: list[int], along_b: list[int], dots: Any) -> str:
    """Windows of A are letters a.., those inside a window A.., axes of B that nothing meets o.."""
    left = [chr(ord("a") + i) for i in range(m)]
    inside = [chr(ord("A") + i) for i in range(len(along_a))]
    right = [chr(ord("o") + j) for j in range(n)]
    for i, j in enumerate(along_b):
        right[j] = inside[i]
    for i, j in zip(*dots, strict=True):
        right[j] = left[i]
    alone = [c for i, c in enumerate(left) if i not in along_a and i not in dots[0]]
    others = [c for c in right if c not in inside and c not in left]
    moving = [left[i] for i in along_a]
    return f"{''.join(left + inside)},{''.join(right)}->{''.join(alone + others + moving)}"


def _part(m: int, n: int, mode: str) -> slice:
    """The part of the full convolution (m + n - 1 long) that a mode keeps."""
    if mode == "full":
        return slice(None)
    start, length = ((n - 1) // 2, m) if mode == "same" else (min(m, n) - 1, max(m, n) - min(m, n) + 1)
    return slice(start, start + length)
