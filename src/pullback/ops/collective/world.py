"""The world a program runs in: which rank this is of how many, and how arrays of all ranks meet."""

from __future__ import annotations

import functools
import hashlib
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...arrays.call_site import format_line, user_line
from ...errors import MismatchError, WorldError
from ...settings import current_rank
from .exchange import Exchange

#: Why a world cannot go on without a rank.
CANNOT_SHRINK = (
    "shrink: these ranks cannot go on without one that is lost.\n"
    "  Start the job by pullback run --elastic, which starts it again with those that are left."
)


class Call(NamedTuple):
    """What all ranks must agree on when they come to a collective: its name, the specs of its arrays, its parameters;
    and a number of 63 bits that stands for these.
    """

    name: str
    arguments: str
    digest: int

    def __str__(self) -> str:
        return f"{self.name} of {self.arguments}" if self.arguments else self.name


class Started(ABC):
    """A collective that may still be under way. `ended` is when another thread was done with it (`arrays/timing.py`),
    0 if that is not known.
    """

    ended: int = 0

    @abstractmethod
    def wait(self) -> list[Any]:
        """Its results."""


class Finished(Started):
    """A collective that was over when it was started."""

    def __init__(self, results: list[Any]) -> None:
        self._results = results

    def wait(self) -> list[Any]:
        return self._results


class World(ABC):
    """One rank's view of the ranks that run a program together.

    `meet` is a collective: ranks that come with different calls, or not in time, raise on every rank; else each gets
    what `exchange` makes of the arrays of all ranks, in new memory, or in that of `outs` where the engine can: these
    may be the arrays themselves. `local_rank` of `local_size` counts the ranks on this machine.
    """

    rank: int
    size: int
    local_rank: int
    local_size: int
    #: Seconds that ranks have to come to a collective.
    timeout: float
    #: What ranks meet by: memory of one machine ("node"), messages ("network"), or memory of one process ("threads").
    level: str = "node"
    #: Whether a collective that was started goes on beside the caller's computation.
    runs_beside: bool = False

    @abstractmethod
    def meet(
        self, call: Call, xp: Any, arrays: Sequence[Any], exchange: Exchange, outs: Sequence[Any] | None = None
    ) -> list[Any]: ...

    def start(
        self, call: Call, xp: Any, arrays: Sequence[Any], exchange: Exchange, outs: Sequence[Any] | None = None
    ) -> Started:
        """`meet`, while the caller goes on if there is a core for it; the arrays must not change meanwhile."""
        return Finished(self.meet(call, xp, arrays, exchange, outs))

    def shrink(self) -> tuple[World, list[int]]:
        """A world of the ranks that are left, and which they were; all of them call it, after a rank was lost."""
        raise WorldError(CANNOT_SHRINK)

    def close(self) -> None:  # noqa: B027 - most worlds hold nothing
        """Release what this rank holds, once it will come to no more collectives."""


class Alone(World):
    """A world of one rank, which is any program's that nothing else was said to."""

    rank, size, local_rank, local_size, timeout = 0, 1, 0, 1, 60.0

    def meet(
        self, call: Call, xp: Any, arrays: Sequence[Any], exchange: Exchange, outs: Sequence[Any] | None = None
    ) -> list[Any]:
        return [exchange.join(xp, [exchange.part(x, 0, 0)], x) for x in arrays]


_ALONE = Alone()


def current_world() -> World:
    """The world of this thread."""
    found: World | None = current_rank()
    return _ALONE if found is None else found


def rank() -> int:
    """Which rank this is, counted from 0.

    >>> import pullback as pb
    >>> pb.distributed.run(pb.distributed.rank, 3)
    [0, 1, 2]
    """
    return current_world().rank


def world_size() -> int:
    """How many ranks run this program.

    >>> import pullback as pb
    >>> pb.distributed.world_size()
    1
    """
    return current_world().size


def local_rank() -> int:
    """Which of the ranks on this machine this is, counted from 0: the GPU to take, for instance.

    >>> import pullback as pb
    >>> pb.distributed.local_rank()
    0
    """
    return current_world().local_rank


@functools.lru_cache(maxsize=4096)
def make_call(name: str, exchange: Exchange, specs: tuple[tuple[Any, tuple[int, ...]], ...], more: str = "") -> Call:
    """A call of a collective on arrays of some dtypes and shapes. `more`: what else all ranks must have given."""
    arrays = [f"{np.dtype(dtype).name}{list(shape)}" for dtype, shape in specs]
    arguments = ", ".join(arrays[:4]) + (f" and {len(arrays) - 4} more" if len(arrays) > 4 else "")
    text = f"{name} of {', '.join(arrays)}{exchange}{more}"
    digest = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1
    return Call(name, f"{arguments}{exchange}{more}", digest)


def caller_line() -> str:
    """The user's line that the current call comes from."""
    return format_line(*user_line(sys._getframe(1)))


def check_agreement(number: int, calls: Sequence[Call], describe: Callable[[int], str]) -> None:
    """Raise if ranks came with different calls; `describe(rank)` says what a rank called, and where."""
    if all(c.digest == calls[0].digest for c in calls):
        return
    raise mismatch_error(number, [describe(r) for r in range(len(calls))])


def mismatch_error(number: int, sides: Sequence[str]) -> MismatchError:
    """The error that names what each rank called."""
    ranks: dict[str, list[int]] = {}
    for r, side in enumerate(sides):
        ranks.setdefault(side, []).append(r)
    lines = "\n".join(f"  {name_ranks(found)}: {side}" for side, found in ranks.items())
    return MismatchError(f"collective {number} is not the same on all ranks.\n{lines}")


def name_ranks(ranks: Sequence[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"
