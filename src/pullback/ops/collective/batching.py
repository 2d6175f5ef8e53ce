"""The batching rule of collectives with arguments that are one for the whole batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..batching import move_batch_first
from ..dispatch import run
from ..index.indexing import getitem
from ..op import Op


def _first_along(x: Any, axis: int | None) -> Any:
    return x if axis is None else getitem(x, (*[slice(None)] * axis, 0))


def batch_behind(first: int, gives_one: bool) -> Any:
    """A batching rule: the first few arguments are one for the whole batch, the others have it in front, and so have
    the results, or the one result has none.
    """

    def batch(op: Op, size: int, args: Sequence[Any], axes: Sequence[Any], static: dict[str, Any]) -> tuple[Any, Any]:
        moved = [move_batch_first(x, a, size) for x, a in zip(args[first:], axes[first:], strict=True)]
        ones = list(map(_first_along, args[:first], axes))
        out = run(op, [*ones, *moved], static)
        return out, None if gives_one else (0,) * len(out)

    return batch
