"""Outcomes: what ranks did apart, and whether it went well on all of them. An error of one is raised by every rank."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from .. import errors
from ..errors import PullbackError, StorageError, WorldError
from ..ops.collective.exchange import Concatenation, FromRoot
from ..ops.collective.records import meet
from ..ops.collective.world import current_world

R = TypeVar("R")
#: How many ranks an error names.
_LISTED = 3


class Outcome(NamedTuple, Generic[R]):
    """What a function returned on this rank; or the error to raise on all ranks, since it raised on some."""

    result: R | None
    error: Exception | None

    def unwrap(self) -> R:
        if self.error is not None:
            raise self.error
        return self.result  # type: ignore[return-value]


def run_on_all(what: str, work: Callable[[], R]) -> Outcome[R]:
    """Call a function that meets no other rank, and see whether it raised on any: then all have an error of that kind,
    which names the ranks. A world that has come apart raises at once.
    """
    result, error = None, None
    try:
        result = work()
    except Exception as raised:
        error = raised
    world = current_world()
    if world.size == 1:
        return Outcome(result, _as_own_error(error))
    told = gather_json(what, None if error is None else [_kind_of(error), str(error).removeprefix(f"{what}: ")])
    failed = [(rank, *one) for rank, one in enumerate(told) if one is not None]
    if not failed:
        return Outcome(result, None)
    lines = [f"rank {rank} of {world.size}: {text}" for rank, _, text in failed[:_LISTED]]
    more = [f"and {len(failed) - _LISTED} more ranks"] if len(failed) > _LISTED else []
    found: Exception = getattr(errors, failed[0][1])(f"{what}: " + "\n  ".join(lines + more))
    found.__cause__ = error
    return Outcome(None, found)


def _as_own_error(error: Exception | None) -> Exception | None:
    if not isinstance(error, OSError) or isinstance(error, PullbackError):
        return error
    found = StorageError(str(error))
    found.__cause__ = error
    return found


def _kind_of(error: Exception) -> str:
    """The name of the error that all ranks raise."""
    known = (kind.__name__ for kind in type(error).__mro__ if issubclass(kind, PullbackError))
    fallback = StorageError if isinstance(error, OSError) else WorldError
    return next((name for name in known if name in errors.__all__), fallback.__name__)


def gather_json(what: str, value: Any) -> list[Any]:
    """What each rank has, as JSON holds it."""
    return [json.loads(raw) for raw in gather_bytes(what, json.dumps(value).encode())]


def gather_bytes(what: str, mine: bytes) -> list[bytes]:
    """The bytes of all ranks, which need not have the same number of them."""
    ranks = current_world().size
    lengths = meet(np, f"{what}: lengths", np.array([len(mine)]), ranks, Concatenation(0))
    row = np.zeros((1, max(lengths.tolist())), np.uint8)
    row[0, : len(mine)] = np.frombuffer(mine, np.uint8)
    rows = meet(np, what, row, ranks, Concatenation(0))
    return [rows[r, :n].tobytes() for r, n in enumerate(lengths.tolist())]


def share_from_first(what: str, mine: bytes) -> bytes:
    """The bytes that the first rank has."""
    ranks = current_world().size
    length = meet(np, f"{what}: length", np.array([len(mine)]), ranks, FromRoot(0))
    row = np.zeros(int(length[0]), np.uint8)
    if current_world().rank == 0:
        row[:] = np.frombuffer(mine, np.uint8)
    found: bytes = meet(np, what, row, ranks, FromRoot(0)).tobytes()
    return found
