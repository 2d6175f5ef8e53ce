"""Which way Python branches go while a function is traced, where they depend on a value that is not known yet.

`if x > 0` asks a symbol for its truth. A trace with `Decisions` is told the first few outcomes, takes True for the
rest, and notes where each was asked: all paths of the function are traced in this way, one by one, and joined.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol

from ..arrays.call_site import format_line
from ..errors import ConversionError, GraphError
from .loop_rewrites import suggest_loop
from .value_numbers import Table, ValueNumbers

if TYPE_CHECKING:
    from ..arrays.tensor import Tensor
    from .constants import Constants
    from .ir import Equation, Symbol

#: The most branches on one path: a loop on a traced value has no end.
MOST_DECISIONS = 16
#: How often one predicate may be asked for on a path: a loop that computes the same one again and again has no end.
MOST_ASKED = 10_000


@dataclass(frozen=True, slots=True)
class Decision:
    """One outcome: of which predicate, after how many equations of the trace, at which of the user's lines."""

    predicate: Symbol
    position: int
    holds: bool
    line: str


class Outside(Protocol):
    """What a function can set outside of itself: the places that have changed, with what they hold, by their keys."""

    def changed_places(self) -> dict[Any, tuple[Any, Any]]: ...

    def rewind(self, to: Mapping[Any, tuple[Any, Any]]) -> None: ...


@dataclass(slots=True)
class Decisions:
    """The outcomes of one path: those it was given, then True. A predicate that is computed again has the outcome that
    it had before. `table` is common to all paths of one function, and so is `outside`: what it can set outside of
    itself, if that is known.
    """

    given: tuple[bool, ...]
    table: Table
    outside: Outside | None = None
    taken: list[Decision] = field(default_factory=list)
    _numbers: ValueNumbers | None = None
    _loop: str = ""
    _outcomes: dict[Any, bool] = field(default_factory=dict)
    _asked: Counter[Any] = field(default_factory=Counter)
    _made: dict[int, weakref.ref[Tensor]] = field(default_factory=dict)

    def begin(self, inputs: Sequence[Symbol], equations: Sequence[Equation], constants: Constants) -> None:
        """Follow a trace: its equations are appended to the list while it runs."""
        self._numbers = ValueNumbers(self.table, inputs, equations, constants, self.was_made)

    def note_made(self, tensor: Tensor) -> None:
        """The function made a tensor of numbers alone, which it will make again when it is traced again."""
        self._made[id(tensor)] = weakref.ref(tensor)

    def was_made(self, tensor: Tensor) -> bool:
        """Whether a tensor was made so."""
        found = self._made.get(id(tensor))
        return found is not None and found() is tensor

    @property
    def numbers(self) -> ValueNumbers:
        if self._numbers is None:
            raise GraphError("decisions are taken before a trace begins.")
        return self._numbers

    def decide(self, predicate: Symbol, frame: FrameType) -> bool:
        """Whether a predicate holds on this path."""
        key = self.numbers.of(predicate)
        if key not in self._outcomes:
            self._outcomes[key] = self._decide_first(predicate, frame)
        self._asked[key] += 1
        if self._asked[key] > MOST_ASKED:
            raise ConversionError(
                f"bool(): this path asks {MOST_ASKED:,} times for one traced value, whose outcome stays the same.\n"
                f"  at {format_line(frame.f_code, frame.f_lasti)}\n"
                "  Where that is a loop, it has no end while it is traced: write it by pb.while_loop or pb.scan."
                f"{suggest_loop(frame)}"
            )
        return self._outcomes[key]

    def _decide_first(self, predicate: Symbol, frame: FrameType) -> bool:
        number = len(self.taken)
        line = format_line(frame.f_code, frame.f_lasti)
        if number >= MOST_DECISIONS:
            raise ConversionError(
                f"bool(): this path takes more than {MOST_DECISIONS} branches on traced values.\n  at {line}\n"
                "  Each is traced both ways: choose by pb.where, and loop by pb.while_loop or pb.scan."
                f"{suggest_loop(frame)}"
            )
        if sum(decision.line == line for decision in self.taken) == 1:  # a loop, which may raise before its last round
            self._loop = suggest_loop(frame)
        holds = number >= len(self.given) or self.given[number]
        self.taken.append(Decision(predicate, len(predicate.equations), holds, line))
        return holds

    def describe(self) -> str:
        """The branches of this path, a line for each, and the loop to write if one of them is asked again and again."""
        lines = "".join(f"\n  where this is {decision.holds}: {decision.line}" for decision in self.taken)
        return lines + (self._loop if len(self.taken) < MOST_DECISIONS else "")
