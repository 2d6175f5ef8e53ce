"""Side effects of a checkpointed run: recorded in the first, replayed and undone in the second.

The first run records the variables that it rebinds (running statistics), what the engine decided, and the results
that a policy saves. The second run starts from the same, and restores everything: variables, gradients, hooks.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ...arrays.node import Handle
from ...arrays.scope import new_level
from ...arrays.spec import Spec, spec_of
from ...arrays.tensor import Tensor
from ...arrays.trees import flatten
from ...arrays.value import Value
from ...errors import RecomputeError
from ...ops.dispatch import compute, run
from ...ops.op import Op
from ...ops.replay.rehearsal import UndoWatcher
from ...ops.replay.snapshot import StateSnapshot
from ...ops.saved_values import Watcher
from ...program.ir import Symbol
from .arguments import add_merge_barrier
from .save_policies import SavePolicy


class SavedResult(NamedTuple):
    """The saved result of an op: how to load it, the number of the op that follows, and the specs of its arguments."""

    load: Callable[[], Any]
    next_op: int
    op: Op
    input_specs: tuple[Spec, ...]

    def check(self, op: Op, values: Sequence[Any]) -> None:
        """Raise unless the op that asks for it is the one that computed it."""
        if op is not self.op or _specs_of(values) != self.input_specs:
            raise RecomputeError(
                "checkpoint: the recomputation differs from the first run.\n"
                f"  first run: saved the result of {_format_call(self.op, self.input_specs)}\n"
                f"  recomputed: {_format_call(op, _specs_of(values))} in its place\n"
                "  Likely causes: an `if` on something that changed in between, such as a global variable or a random "
                "number. Pass what the function depends on as arguments."
            )


#: By the number of the op.
Saved = dict[int, SavedResult]


def _specs_of(values: Sequence[Any]) -> tuple[Spec, ...]:
    return tuple(map(spec_of, values))


def _format_call(op: Op, given: Sequence[Spec]) -> str:
    return f"{op.name}({', '.join(map(str, given))})"


def _compute_below(op: Op, values: list[Any], static: dict[str, Any], level: int) -> Any:
    return compute(op, values, static) if level == 1 else run(op, values, static)


class RecordingWatcher(Watcher):
    """Records what a second run will need; an outer watcher may be a second run itself, and is notified too."""

    __slots__ = (
        "_count",
        "_decisions",
        "_kept_so_far",
        "_level",
        "_makers",
        "_outer",
        "_policy",
        "_saved",
        "_start",
        "intercepts_results",
    )

    def __init__(
        self,
        outer: Watcher | None,
        policy: SavePolicy,
        saved: Saved,
        decisions: list[bool],
        start: StateSnapshot,
        kept_so_far: Callable[[], int],
    ) -> None:
        self._outer, self._policy = outer, policy
        self._saved, self._decisions, self._start = saved, decisions, start
        self._kept_so_far = kept_so_far
        self._count = 0
        self._makers: dict[int, tuple[Any, int, int, Op, tuple[Spec, ...]]] = {}
        self._level = new_level()  # transforms that begin in the run have higher ones
        self.intercepts_results = bool(policy.decides_per_op or policy.names)

    def compute_watched(self, op: Op, values: list[Any], static: dict[str, Any], level: int) -> Any:
        """Compute, and save the result where the policy says so. A result during which values of lower levels were
        saved must be recomputed for their sake, and one of an inner transform is useless when that is over.
        """
        number, before = self._count, self._kept_so_far()
        self._count += 1
        out = _compute_below(op, values, static, level)
        if type(out) is tuple or self._kept_so_far() != before:
            return out
        if isinstance(out, Value) and out.level > self._level:
            return out
        if self._policy.decides_per_op and self._policy.saves(op, spec_of(out).nbytes):
            self._saved[number] = SavedResult(self._policy.storage.put(out), self._count, op, _specs_of(values))
        if self._policy.names:
            self._save_named(op, static, values, out, number)
        return out

    def _save_named(self, op: Op, static: dict[str, Any], values: list[Any], out: Any, number: int) -> None:
        """A name is given after the value was made: save it as the result of the op that made it."""
        if op.name == "name" and static["name"] in self._policy.names:
            found = self._makers.get(id(values[0]))
            if found is not None and found[0]() is values[0]:
                back = self._policy.storage.put(values[0])
                self._saved[found[1]] = SavedResult(back, *found[2:])
        else:
            self._makers[id(out)] = _weak_reference(out), number, self._count, op, _specs_of(values)

    def before_rebind(self, tensor: Tensor) -> None:
        self._start.note_tensor(tensor)
        if self._outer is not None:
            self._outer.before_rebind(tensor)

    def before_setattr(self, holder: Any, name: str) -> None:
        self._start.note_attribute(holder, name)
        if self._outer is not None:
            self._outer.before_setattr(holder, name)

    def before_grad_write(self, tensor: Tensor) -> None:
        if self._outer is not None:
            self._outer.before_grad_write(tensor)

    def on_hook_registered(self, handle: Handle) -> None:
        if self._outer is not None:
            self._outer.on_hook_registered(handle)

    def resolve_decision(self, found: bool) -> bool:
        found = found if self._outer is None else self._outer.resolve_decision(found)
        self._decisions.append(found)
        return found

    def finish(self, inputs: Sequence[Any], out: Any) -> None:
        """The run is over: keep the variables that live on, except arguments and results."""
        self._makers.clear()
        self._start.finish({id(x) for x in (*inputs, *flatten(out)[0])})


def _weak_reference(value: Any) -> Callable[[], Any]:
    if type(value) is Symbol:
        return lambda: value
    try:
        return weakref.ref(value)
    except TypeError:
        return lambda: None


class ReplayingWatcher(UndoWatcher):
    """Supplies what was saved and decided. As a context: variables start from their recorded values, and at the end
    everything is restored.
    """

    __slots__ = ("_count", "_decisions", "_saved", "_start")

    def __init__(self, saved: Saved, decisions: list[bool], start: StateSnapshot) -> None:
        UndoWatcher.__init__(self)
        self._saved, self._start = saved, start
        self._decisions = iter(decisions)
        self._count = 0
        self.intercepts_results = bool(saved)

    def compute_watched(self, op: Op, values: list[Any], static: dict[str, Any], level: int) -> Any:
        number = self._count
        self._count += 1
        if number in self._saved:
            saved = self._saved[number]
            saved.check(op, values)
            self._count = saved.next_op
            return add_merge_barrier(saved.load())
        return _compute_below(op, values, static, level)

    def resolve_decision(self, found: bool) -> bool:
        return next(self._decisions, found)

    def __enter__(self) -> ReplayingWatcher:
        self._now = self._start.restore()
        return self

    def __exit__(self, *exception: object) -> None:
        self.undo()
