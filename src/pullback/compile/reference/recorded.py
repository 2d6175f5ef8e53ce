"""Ops that must not run twice, such as a user's own: native code calls them, the reference gets what came out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...errors import MiscompiledError
from ..fuse import Step, Steps
from ..loops import Host, Loop

__all__ = ["Recorded", "record_hosts"]


class Recorded:
    """An op's call that keeps its results, and after `rewind` returns them in the same order."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self.call = call
        self.results: list[Any] = []
        self.at = -1

    def begin(self) -> None:
        """Call the op itself from now on."""
        self.results, self.at = [], -1

    def rewind(self) -> None:
        self.at = 0

    def __call__(self, *arrays: Any) -> Any:
        if self.at < 0:
            found = self.call(*arrays)
            self.results.append(tuple(map(np.array, found)) if type(found) is tuple else np.array(found))
            return found
        if self.at == len(self.results):
            raise MiscompiledError(f"it is called more than the {self.at} times that native code calls it.")
        self.at += 1
        return self.results[self.at - 1]


def record_hosts(programs: Sequence[Steps]) -> dict[Host, Recorded]:
    """Have the ops in some programs that must not run twice keep their results; copies of a step share them."""
    found: dict[Host, Recorded] = {}
    known: dict[int, Recorded] = {}
    for host in (host for program in programs for host in _hosts(program.steps)):
        if not host.steady and host not in found:
            made = (
                host.call if isinstance(host.call, Recorded) else known.setdefault(id(host.call), Recorded(host.call))
            )
            found[host] = host.call = made
    return found


def _hosts(steps: Sequence[Step]) -> list[Host]:
    inside = [h for s in steps if isinstance(s, Loop) for program in s.programs for h in _hosts(program.steps)]
    return [*(s for s in steps if isinstance(s, Host)), *inside]
