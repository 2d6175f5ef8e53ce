"""Checks of numbers over ranks: sums that are not finite, and values that should be the same on all ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...errors import NonFiniteError, ReplicaDriftError
from .world import caller_line, name_ranks

#: How many names an error lists.
_LISTED = 5


def check_finite(
    xp: Any,
    names: Sequence[str],
    sent: Sequence[Any],
    totals: Sequence[Any],
    gather: Callable[[Any], Any],
) -> None:
    """Raise if a total is not finite, naming the ranks that brought such a number; `gather` joins rows of all ranks.
    All ranks have the same totals, so all come to the same conclusion.
    """
    if all(_is_finite(xp, x) for x in totals):
        return
    mine = np.array([[not _is_finite(xp, x) for x in sent]])
    found = np.asarray(gather(mine))
    lines = [
        f"  {name_ranks(np.flatnonzero(column).tolist())}: {name}"
        for name, column in zip(names, found.T, strict=True)
        if column.any()
    ]
    if not lines:
        lines = ["  every rank's numbers are finite, and their sum overflows"]
    more = [f"  and {len(lines) - _LISTED} more"] if len(lines) > _LISTED else []
    raise NonFiniteError(
        "\n".join(["the total over ranks has a NaN or an infinity. It comes from", *lines[:_LISTED], *more])
        + f"\n  at {caller_line()}"
    )


def _is_finite(xp: Any, x: Any) -> bool:
    if x.dtype.kind not in "fcV" or not x.size:
        return True
    with np.errstate(all="ignore"):
        # a sum is one quick pass; where it overflows, look at each
        return bool(xp.isfinite(x.sum())) or bool(xp.isfinite(x).all())


def digest_of(x: Any) -> tuple[int, int]:
    """Two numbers that stand for the bits of an array: their sum and their exclusive or, in words of eight bytes."""
    data = np.ascontiguousarray(x).reshape(-1).view(np.uint8)
    whole = data[: data.size // 8 * 8].view(np.uint64)
    rest = int.from_bytes(data[whole.nbytes :].tobytes(), "little")
    weights = int(np.add.reduce(whole)) if whole.size else 0
    mixed = int(np.bitwise_xor.reduce(whole)) if whole.size else 0
    return (weights + rest) & 0xFFFFFFFFFFFFFFFF, mixed ^ rest


def check_alike(names: Sequence[str], digests: Any) -> None:
    """Raise if digests of ranks, one row each, differ."""
    by_leaf = digests.reshape(len(digests), -1, 2)
    lines = []
    for i, name in enumerate(names):
        sides: dict[bytes, list[int]] = {}
        for r, row in enumerate(by_leaf[:, i]):
            sides.setdefault(row.tobytes(), []).append(r)
        if len(sides) > 1:
            lines.append(f"  {name}: {' differs from '.join(name_ranks(ranks) for ranks in sides.values())}")
    if lines:
        more = [f"  and {len(lines) - _LISTED} more"] if len(lines) > _LISTED else []
        raise ReplicaDriftError(
            "\n".join(["values that all ranks should have in common differ:", *lines[:_LISTED], *more])
            + f"\n  at {caller_line()}"
            + "\n  Was a gradient not summed over ranks, or did ranks start from different numbers?"
        )
