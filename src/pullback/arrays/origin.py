"""Where an op comes from: the user's line, the rule that runs it, and the loops and modules around it.

All of it is on the stack while the op runs. Functions of the package whose frames know more than their line (which node
is pulled, which round of a loop runs) register a reader. Programs and nodes have origins only while `Modes.locates` is
on, since a walk over the whole stack costs as much as an op.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import CodeType, FrameType
from typing import Any

from .call_site import format_line, is_library_code


class Origin(tuple[CodeType, int]):
    """The user's line (code and instruction, as `user_line` returns it) with what is known besides: `rules`, such as
    "the pull of sqrt", innermost first; `places`, such as "round 3 of scan" or "Net.first (Linear)", outermost first.
    """

    rules: tuple[str, ...]
    places: tuple[str, ...]
    #: Of a result that has a value for each element of a `vmap`: the axis of the elements, by the level of the `vmap`.
    batches: dict[int, int]

    def __new__(
        cls, code: CodeType, lasti: int, rules: tuple[str, ...] = (), places: tuple[str, ...] = ()
    ) -> Origin:  # fmt: skip
        made = tuple.__new__(cls, (code, lasti))
        made.rules, made.places, made.batches = rules, places, {}
        return made

    @property
    def line(self) -> str:
        """The line as `folder/file.py:12: y = x * 2`."""
        return format_line(*self)

    def inside(self, *places: str) -> Origin:
        """The same line inside of further loops or programs."""
        found = Origin(*self, self.rules, (*places, *(p for p in self.places if p not in places)))
        found.batches = self.batches
        return found


class Trail:
    """What is known of an origin while the stack is walked, from the innermost frame outward."""

    def __init__(self) -> None:
        self.line: tuple[CodeType, int] | None = None
        self.rules: list[str] = []
        self.places: list[str] = []
        #: The outermost module so far, and the path from it to the innermost one.
        self.module: tuple[Any, str] | None = None

    def adopt(self, site: Any) -> None:
        """Continue at the origin of a node or an equation, which was noted when it was made."""
        if isinstance(site, tuple) and self.line is None:
            self.line = (site[0], site[1])
            self.rules += site.rules if isinstance(site, Origin) else ()
            for place in reversed(site.places) if isinstance(site, Origin) else ():
                self.add_place(place)

    def add_place(self, place: str) -> None:
        """A loop or a module around it; a backward pass inside of a loop meets the rounds of its nodes again."""
        if place not in self.places:
            self.places.append(place)


#: By the code of a function of the package: what its frame says, read from its local variables.
_READERS: dict[CodeType, Callable[[Trail, Mapping[str, Any]], None]] = {}


def register_reader(function: Callable[..., Any], read: Callable[[Trail, Mapping[str, Any]], None]) -> None:
    """Have `read(trail, local_variables)` called for each frame of a function of the package."""
    _READERS[function.__code__] = read


def register_round(function: Callable[..., Any], count: str, what: str | None = None) -> None:
    """Name the round of a loop of the package: its counter is a local variable; so is its name, without `what`."""

    def read(trail: Trail, local: Mapping[str, Any]) -> None:
        number = local.get(count)
        if isinstance(number, int):
            trail.add_place(f"round {number} of {what or local['what']}")

    register_reader(function, read)


def find_origin(frame: FrameType | None) -> Origin | None:
    """The origin of an op that runs in a frame; None if no line of a user leads to it."""
    trail = Trail()
    module: tuple[Any, str] | None = None
    while frame is not None:
        read = _READERS.get(frame.f_code)
        if read is not None:
            read(trail, frame.f_locals)
            module = trail.module
        elif trail.line is None and not is_library_code(frame.f_code):
            trail.line = frame.f_code, frame.f_lasti
        frame = frame.f_back
    if trail.line is None:
        return None
    if module is not None and module[1]:
        trail.add_place(module[1])
    return Origin(*trail.line, tuple(trail.rules), tuple(reversed(trail.places)))
