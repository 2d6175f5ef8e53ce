"""The world a program runs in: which rank this is of how many, and how arrays of all ranks meet."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from types import CodeType
from typing import Any, NamedTuple

from ...arrays.call_site import format_line, user_line
from ...errors import MismatchError
from ...settings import modes

#: What is made of the arrays of all ranks: for each rank its result.
Combination = Callable[[Sequence[Any]], Sequence[Any]]


class Call(NamedTuple):
    """One collective as a rank calls it: what all ranks must agree on, and where it stands in the program."""

    name: str
    #: The dtype, the shape where it has to agree, and static parameters.
    arguments: str
    line: tuple[CodeType, int]

    def __str__(self) -> str:
        return f"{self.name} of {self.arguments} at {format_line(*self.line)}"


class World(ABC):
    """One rank's view of the ranks that run a program together. `meet` is a collective: it returns what `combine`
    makes of the arrays of all ranks for this one, and checks that all ranks came with the same call.
    """

    rank: int
    size: int

    @abstractmethod
    def meet(self, call: Call, x: Any, combine: Combination) -> Any: ...


class Alone(World):
    """A world of one rank, which is any program's that nothing else was said to."""

    rank, size = 0, 1

    def meet(self, call: Call, x: Any, combine: Combination) -> Any:
        return combine([x])[0]


_ALONE = Alone()


def current_world() -> World:
    """The world of this thread."""
    found: World | None = modes().rank
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


def make_call(name: str, arguments: str) -> Call:
    return Call(name, arguments, user_line(sys._getframe()))


def check_agreement(number: int, calls: Sequence[Call]) -> None:
    """Raise if ranks came with different calls: all of them are named."""
    first = calls[0]
    if all(c.name == first.name and c.arguments == first.arguments for c in calls):
        return
    ranks: dict[Call, list[int]] = {}
    for i, call in enumerate(calls):
        ranks.setdefault(call, []).append(i)
    sides = "\n".join(f"  {name_ranks(found)}: {call}" for call, found in ranks.items())
    raise MismatchError(f"collective {number} is not the same on all ranks.\n{sides}")


def name_ranks(ranks: Sequence[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"
