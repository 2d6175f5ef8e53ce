"""Ops that must not run twice, such as a user's own: native code calls them, the reference replays their results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...errors import MiscompiledError
from ..loop_ir import Host, Loop, Step, Steps


class RecordedCall:
    """An op's call that records its results, and after `rewind` returns them in the same order."""

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


def record_hosts(programs: Sequence[Steps]) -> dict[Host, RecordedCall]:
    """Record the results of those ops in some programs that must not run twice; copies of a step share them."""
    found: dict[Host, RecordedCall] = {}
    known: dict[int, RecordedCall] = {}
    for host in (host for program in programs for host in find_hosts(program.steps)):
        if not host.is_repeatable and host not in found:
            made = (
                host.call
                if isinstance(host.call, RecordedCall)
                else known.setdefault(id(host.call), RecordedCall(host.call))
            )
            found[host] = host.call = made
            host.into = None
    return found


def find_hosts(steps: Sequence[Step]) -> list[Host]:
    """The ops that NumPy executes, those of nested programs too."""
    inside = [h for s in steps if isinstance(s, Loop) for program in s.programs for h in find_hosts(program.steps)]
    return [*(s for s in steps if isinstance(s, Host)), *inside]
