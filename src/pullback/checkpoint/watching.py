"""What a run does beside computing in, what to do about it when it runs again out: so that nobody notices.

The first run notes where variables stood that it rebinds (running statistics), what the engine decided, and the results
that a policy saves. The second run starts from the same, and puts everything back: variables, gradients, hooks.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..arrays.node import Handle
from ..arrays.scope import fresh_level
from ..arrays.spec import Spec, spec_of
from ..arrays.tensor import Tensor
from ..arrays.trees import flatten
from ..errors import RecomputeError
from ..ops.dispatch import compute, run
from ..ops.keeping import Watcher
from ..ops.op import Op
from ..ops.rehearsing import Undoing
from ..ops.specialise import Symbol
from ..ops.standing import Standing
from .arguments import anew
from .policies import Policy

__all__ = ["FirstRun", "Saved", "SecondRun"]


class SavedResult(NamedTuple):
    """The result of an op: how to get it back, the number of the op that follows, and what it was computed of."""

    back: Callable[[], Any]
    following: int
    op: Op
    given: tuple[Spec, ...]

    def check(self, op: Op, values: Sequence[Any]) -> None:
        """Raise unless the op that asks for it is the one that computed it."""
        if op is not self.op or _specs(values) != self.given:
            raise RecomputeError(
                "checkpoint: the recomputation differs from the first run.\n"
                f"  first run: saved the result of {_shown(self.op, self.given)}\n"
                f"  recomputed: {_shown(op, _specs(values))} in its place\n"
                "  Likely causes: an `if` on something that changed in between, such as a global variable or a random "
                "number. Pass what the function depends on as arguments."
            )


#: By the number of the op.
Saved = dict[int, SavedResult]


def _specs(values: Sequence[Any]) -> tuple[Spec, ...]:
    return tuple(map(spec_of, values))


def _shown(op: Op, given: Sequence[Spec]) -> str:
    return f"{op.name}({', '.join(map(str, given))})"


def _below(op: Op, values: list[Any], static: dict[str, Any], level: int) -> Any:
    return compute(op, values, static) if level == 1 else run(op, values, static)


class FirstRun(Watcher):
    """Notes what a second run will need; what lies around may be a second run itself, and hears of it too."""

    __slots__ = (
        "_count",
        "_decisions",
        "_kept_so_far",
        "_level",
        "_made",
        "_outer",
        "_policy",
        "_saved",
        "_start",
        "saving",
    )

    def __init__(
        self,
        outer: Watcher | None,
        policy: Policy,
        saved: Saved,
        decisions: list[bool],
        start: Standing,
        kept_so_far: Callable[[], int],
    ) -> None:
        self._outer, self._policy = outer, policy
        self._saved, self._decisions, self._start = saved, decisions, start
        self._kept_so_far = kept_so_far
        self._count = 0
        self._made: dict[int, tuple[Any, int, int, Op, tuple[Spec, ...]]] = {}
        self._level = fresh_level()  # transforms that begin in the run have higher ones
        self.saving = bool(policy.asks or policy.names)

    def computing(self, op: Op, values: list[Any], static: dict[str, Any], level: int) -> Any:
        """Compute, and save the result where the policy says so. A result during which values of lower levels were kept
        must be computed again for their sake, and one of a transform inside is of no use when that is over.
        """
        number, before = self._count, self._kept_so_far()
        self._count += 1
        out = _below(op, values, static, level)
        if type(out) is tuple or self._kept_so_far() != before or getattr(out, "level", 0) > self._level:
            return out
        if self._policy.asks and self._policy.saves(op, spec_of(out).nbytes):
            self._saved[number] = SavedResult(self._policy.storage.put(out), self._count, op, _specs(values))
        if self._policy.names:
            self._find_named(op, static, values, out, number)
        return out

    def _find_named(self, op: Op, static: dict[str, Any], values: list[Any], out: Any, number: int) -> None:
        """A name is given after the value was made: save it as the result of the op that made it."""
        if op.name == "name" and static["name"] in self._policy.names:
            found = self._made.get(id(values[0]))
            if found is not None and found[0]() is values[0]:
                back = self._policy.storage.put(values[0])
                self._saved[found[1]] = SavedResult(back, *found[2:])
        else:
            self._made[id(out)] = _reference(out), number, self._count, op, _specs(values)

    def rebinding(self, tensor: Tensor) -> None:
        self._start.note_tensor(tensor)
        if self._outer is not None:
            self._outer.rebinding(tensor)

    def setting(self, holder: Any, name: str) -> None:
        self._start.note_attribute(holder, name)
        if self._outer is not None:
            self._outer.setting(holder, name)

    def grading(self, tensor: Tensor) -> None:
        if self._outer is not None:
            self._outer.grading(tensor)

    def hooking(self, handle: Handle) -> None:
        if self._outer is not None:
            self._outer.hooking(handle)

    def deciding(self, found: bool) -> bool:
        found = found if self._outer is None else self._outer.deciding(found)
        self._decisions.append(found)
        return found

    def settle(self, inputs: Sequence[Any], out: Any) -> None:
        """The run is over: what counts are variables that live on, but not those handed in or out."""
        self._made.clear()
        self._start.settle({id(x) for x in (*inputs, *flatten(out)[0])})


def _reference(value: Any) -> Callable[[], Any]:
    if type(value) is Symbol:
        return lambda: value
    try:
        return weakref.ref(value)
    except TypeError:
        return lambda: None


class SecondRun(Undoing):
    """Supplies what was saved and decided. As a context: variables start from where they stood, and at the end
    everything is as before.
    """

    __slots__ = ("_count", "_decisions", "_saved", "_start")

    def __init__(self, saved: Saved, decisions: list[bool], start: Standing) -> None:
        Undoing.__init__(self)
        self._saved, self._start = saved, start
        self._decisions = iter(decisions)
        self._count = 0
        self.saving = bool(saved)

    def computing(self, op: Op, values: list[Any], static: dict[str, Any], level: int) -> Any:
        number = self._count
        self._count += 1
        if number in self._saved:
            saved = self._saved[number]
            saved.check(op, values)
            self._count = saved.following
            return anew(saved.back())
        return _below(op, values, static, level)

    def deciding(self, found: bool) -> bool:
        return next(self._decisions, found)

    def __enter__(self) -> SecondRun:
        self._now = self._start.restore()
        return self

    def __exit__(self, *exception: object) -> None:
        self.undo()
