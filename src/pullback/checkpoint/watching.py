"""What a run does beside computing in, what to do about it when it runs again out: so that nobody notices.

The first run notes where variables stood that it rebinds (running statistics), what the engine decided, and the results
that a policy saves. The second run starts from the same, and puts everything back: variables, gradients, hooks.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..arrays.node import Handle
from ..arrays.spec import spec_of
from ..arrays.tensor import Tensor
from ..arrays.trees import flatten
from ..ops.dispatch import compute, run
from ..ops.keeping import Watcher
from ..ops.op import Op
from ..ops.specialise import Symbol
from .arguments import anew
from .policies import Policy

__all__ = ["FirstRun", "Saved", "SecondRun", "Variables", "note_all"]

#: For the number of an op, how to get its result back, and the number of the op that follows.
Saved = dict[int, tuple[Callable[[], Any], int]]
#: Where variables stood before they were rebound.
Variables = dict[int, tuple["weakref.ref[Tensor]", tuple[Any, ...]]]


def _below(op: Op, values: list[Any], static: dict[str, Any], level: int) -> Any:
    return compute(op, values, static) if level == 1 else run(op, values, static)


def _note(variables: Variables, tensor: Tensor) -> None:
    """Where a variable stands now, unless that is noted already."""
    found = variables.get(id(tensor))
    if found is None or found[0]() is not tensor:
        state = tensor.value, tensor.spec, tensor.node, tensor.status
        variables[id(tensor)] = weakref.ref(tensor), state


def note_all(variables: Variables, tensors: Iterable[Tensor]) -> None:
    """Where the variables stand that a function can reach: it reads them, or rebinds them."""
    for tensor in tensors:
        _note(variables, tensor)


def _put_back(variables: Variables) -> None:
    for reference, (value, spec, node, status) in variables.values():
        tensor = reference()
        if tensor is not None:
            tensor.value, tensor.spec, tensor.node, tensor._status = value, spec, node, status


def _has_moved(tensor: Tensor | None, state: tuple[Any, ...]) -> bool:
    """Those that stand where they stood are left alone: other threads may use them."""
    return tensor is not None and (tensor.value is not state[0] or tensor.node is not state[2])


class FirstRun(Watcher):
    """Notes what a second run will need; what lies around may be a second run itself, and hears of it too."""

    __slots__ = ("_count", "_decisions", "_kept_so_far", "_made", "_outer", "_policy", "_saved", "_variables", "saving")

    def __init__(
        self,
        outer: Watcher | None,
        policy: Policy,
        saved: Saved,
        decisions: list[bool],
        variables: Variables,
        kept_so_far: Callable[[], int],
    ) -> None:
        self._outer, self._policy = outer, policy
        self._saved, self._decisions, self._variables = saved, decisions, variables
        self._kept_so_far = kept_so_far
        self._count = 0
        self._made: dict[int, tuple[Any, int, int]] = {}
        self.saving = bool(policy.asks or policy.names)

    def computing(self, op: Op, values: list[Any], static: dict[str, Any], level: int) -> Any:
        """Compute, and save the result where the policy says so. A result during which values of lower levels were kept
        must be computed again for their sake.
        """
        number, before = self._count, self._kept_so_far()
        self._count += 1
        out = _below(op, values, static, level)
        if type(out) is tuple or self._kept_so_far() != before:
            return out
        if self._policy.asks and self._policy.saves(op, spec_of(out).nbytes):
            self._saved[number] = self._policy.storage.put(out), self._count
        if self._policy.names:
            self._find_named(op, static, values, out, number)
        return out

    def _find_named(self, op: Op, static: dict[str, Any], values: list[Any], out: Any, number: int) -> None:
        """A name is given after the value was made: save it as the result of the op that made it."""
        if op.name == "name" and static["name"] in self._policy.names:
            found = self._made.get(id(values[0]))
            if found is not None and found[0]() is values[0]:
                self._saved[found[1]] = self._policy.storage.put(values[0]), found[2]
        else:
            self._made[id(out)] = _reference(out), number, self._count

    def rebinding(self, tensor: Tensor) -> None:
        _note(self._variables, tensor)
        if self._outer is not None:
            self._outer.rebinding(tensor)

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
        if self._variables:
            passed = {id(x) for x in (*inputs, *flatten(out)[0])}
            for key, (reference, _) in list(self._variables.items()):
                if reference() is None or key in passed:
                    del self._variables[key]


def _reference(value: Any) -> Callable[[], Any]:
    if type(value) is Symbol:
        return lambda: value
    try:
        return weakref.ref(value)
    except TypeError:
        return lambda: None


class SecondRun(Watcher):
    """Supplies what was saved and decided. As a context: variables start from where they stood, and at the end
    everything is as before.
    """

    __slots__ = ("_count", "_decisions", "_gradients", "_handles", "_saved", "_start", "_variables", "saving")

    def __init__(self, saved: Saved, decisions: list[bool], start: Variables) -> None:
        self._saved, self._start = saved, start
        self._decisions = iter(decisions)
        self._count = 0
        self._handles: list[Handle] = []
        self._gradients: dict[int, tuple[Tensor, Tensor | None]] = {}
        self._variables: Variables = {}
        self.saving = bool(saved)

    def computing(self, op: Op, values: list[Any], static: dict[str, Any], level: int) -> Any:
        number = self._count
        self._count += 1
        if number in self._saved:
            back, self._count = self._saved[number]
            return anew(back())
        return _below(op, values, static, level)

    def rebinding(self, tensor: Tensor) -> None:
        _note(self._variables, tensor)

    def grading(self, tensor: Tensor) -> None:
        self._gradients.setdefault(id(tensor), (tensor, tensor.grad))

    def hooking(self, handle: Handle) -> None:
        self._handles.append(handle)

    def deciding(self, found: bool) -> bool:
        return next(self._decisions, found)

    def __enter__(self) -> SecondRun:
        moved = {
            key: (reference, state) for key, (reference, state) in self._start.items() if _has_moved(reference(), state)
        }
        note_all(self._variables, [tensor for reference, _ in moved.values() if (tensor := reference()) is not None])
        _put_back(moved)
        return self

    def __exit__(self, *exception: object) -> None:
        _put_back(self._variables)
        for tensor, gradient in self._gradients.values():
            tensor._grad = gradient
        for handle in self._handles:
            handle.remove()
