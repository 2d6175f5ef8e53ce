"""Hooks on a backward pass: gradient hooks, pre and post hooks of nodes, hooks over several tensors."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..arrays.backends import copy_array, is_array
from ..arrays.node import Handle, Node
from ..arrays.spec import spec_of, zeros
from ..arrays.tensor import Tensor, alias, wrap
from ..arrays.value import Value
from ..errors import ArgumentError, ArgumentTypeError, HookError
from .cotangents import ResultCotangents, strip_mask


class HookGroup:
    """A hook over several tensors: `mode` "all" waits for every gradient, "any" takes the first."""

    __slots__ = ("hook", "mode", "size")

    def __init__(self, hook: Callable[[Any], None], size: int, mode: str) -> None:
        self.hook = hook
        self.size = size
        self.mode = mode


class _GroupMember:
    """The entry of one tensor in a group."""

    __slots__ = ("group", "index")

    def __init__(self, group: HookGroup, index: int) -> None:
        self.group = group
        self.index = index

    def __call__(self) -> None:
        """A placeholder; the group is called by `HookRun`."""


class MultiHandle:
    """Removes a multi-tensor hook from all its tensors."""

    __slots__ = ("_handles",)

    def __init__(self, handles: Sequence[Handle]) -> None:
        self._handles = tuple(handles)

    def remove(self) -> bool:
        removed = [handle.remove() for handle in self._handles]
        return any(removed)


def register_multi_grad_hook(
    tensors: Sequence[Tensor], hook: Callable[[Any], None], *, mode: str = "all"
) -> MultiHandle:
    """Call `hook(gradients)` once per backward, when those of all tensors it reaches are known (None for the
    others), or with `mode="any"` call `hook(gradient)` with the first.

    >>> import pullback as pb
    >>> x, y = pb.tensor(2.0, requires_grad=True), pb.tensor(3.0, requires_grad=True)
    >>> handle = pb.register_multi_grad_hook([x, y], lambda gs: print([g.item() for g in gs]))
    >>> (x * y).backward()
    [3.0, 2.0]
    """
    if mode not in ("all", "any"):
        raise ArgumentError(f"register_multi_grad_hook: mode is 'all' or 'any', got {mode!r}.")
    if not callable(hook):
        raise ArgumentError("register_multi_grad_hook: the hook must be callable.")
    if not isinstance(tensors, (list, tuple)) or not all(isinstance(t, Tensor) for t in tensors):
        raise ArgumentTypeError("register_multi_grad_hook: wants a list of tensors.")
    group = HookGroup(hook, len(tensors), mode)
    nodes = [t._tracked_node("register_multi_grad_hook") for t in tensors]
    return MultiHandle([node.add_hook("multi", _GroupMember(group, i)) for i, node in enumerate(nodes)])


def retain_grad(self: Tensor) -> None:
    """Save the gradient of this intermediate tensor in `.grad` during backward."""
    node = self._tracked_node("retain_grad")
    if not self.is_leaf and node.retain_hook_key(self) is None:
        # weakly: a hook must not keep the tensor alive
        node.add_hook("retain", weakref.ref(self))


def run_failure_hooks(nodes: Sequence[Node | None]) -> None:
    """A pass has failed that had added to the gradients of nodes: each hook that wants to know runs once."""
    tables = [node.hooks.entries.values() for node in nodes if node is not None and node.hooks is not None]
    for hook in dict.fromkeys(hook for entries in tables for kind, hook in entries if kind == "failed"):
        hook()


class HookRun:
    """The hooks of one backward pass, as they were when it began: changes made inside a hook apply to the next pass."""

    __slots__ = ("_create_graph", "_groups", "entries")

    def __init__(self, nodes: Sequence[Node], create_graph: bool) -> None:
        self._create_graph = create_graph
        #: By node and by kind; copied, since a hook may add and remove hooks.
        self.entries: dict[Node, dict[str, list[Any]]] = {}
        for node in nodes:
            if node.hooks is not None and node.hooks.entries:
                own = self.entries[node] = {}
                for kind, hook in node.hooks.entries.values():
                    own.setdefault(kind, []).append(hook)
        self._groups: dict[HookGroup, dict[int, Any]] = {}
        for entries in self.entries.values():
            for member in entries.get("multi", ()):
                if isinstance(member, _GroupMember):
                    self._groups.setdefault(member.group, {})[member.index] = None

    def hooks_of(self, node: Node, kind: str) -> Sequence[Any]:
        entries = self.entries.get(node)
        return () if entries is None else entries.get(kind, ())

    def run_gradient_hooks(self, node: Node, bar: Any, retain: Callable[[Tensor, Any], None]) -> Any:
        """Run gradient hooks as registered, then those that only observe; a missing cotangent is zeros to them."""
        if bar is None:
            # an op with several results: its part nodes have the hooks
            if isinstance(node.spec, tuple):
                return None
            bar = zeros(node.spec)
        for hook in self.hooks_of(node, "grad"):
            bar = self._apply_hook_result(bar, hook(self.as_user_tensor(bar)), node, "hook")
        for tensor_of in self.hooks_of(node, "retain"):
            tensor = tensor_of()
            if tensor is not None:
                retain(tensor, bar)
        for member in self.hooks_of(node, "multi"):
            self._note(member, bar)
        return bar

    def run_pre_hooks(self, node: Node, bar: Any) -> Any:
        for hook in self.hooks_of(node, "pre"):
            bar = self._apply_hook_result(bar, hook(self.as_user_tensor(bar)), node, "pre hook")
        return bar

    def run_post_hooks(self, node: Node, shares: tuple[Any, ...], bar: Any) -> tuple[Any, ...]:
        for hook in self.hooks_of(node, "post"):
            shown = tuple(None if s is None else self.as_user_tensor(s) for s in shares)
            found = hook(shown, self.as_user_tensor(bar))
            if found is not None:
                found = found if isinstance(found, (tuple, list)) else (found,)
                if len(found) != len(shares):
                    raise HookError(f"post hook of {node.name}: returned {len(found)} shares, wanted {len(shares)}.")
                shares = tuple(
                    self._apply_hook_result(s, f, node, "post hook") for s, f in zip(shares, found, strict=True)
                )
        return shares

    def run_end_hooks(self) -> None:
        """The pass is over: each hook that waited for that runs once, though several nodes have it."""
        found = [hook for entries in self.entries.values() for hook in entries.get("end", ())]
        for hook in dict.fromkeys(found):
            hook()

    def as_user_tensor(self, bar: Any) -> Any:
        """A cotangent as a tensor that the user may keep."""
        if type(bar) is ResultCotangents:
            return tuple(None if b is None else self.as_user_tensor(b) for b in bar.bars)
        bar = strip_mask(bar)
        if isinstance(bar, Tensor):
            return alias(bar)
        return wrap(bar if isinstance(bar, Value) else copy_array(bar, "C"), spec_of(bar))

    def _apply_hook_result(self, bar: Any, given: Any, node: Node, what: str) -> Any:
        if given is None:
            return bar
        wanted = spec_of(strip_mask(bar)) if bar is not None else None
        given = np.asarray(given) if isinstance(given, np.generic) else given
        if not (isinstance(given, Value) or is_array(given)):
            raise HookError(f"{what} of {node.name}: returned a {type(given).__name__}, wanted a tensor or None.")
        found = spec_of(given)
        if wanted is not None and (found.shape != wanted.shape or found.dtype != wanted.dtype):
            raise HookError(f"{what} of {node.name}: returned {found}, wanted {wanted}.\n  made at {node.where()}")
        value = given.value if isinstance(given, Tensor) and not self._create_graph else given
        return value if isinstance(value, Value) else copy_array(value, "C")  # the engine may add to it

    def _note(self, member: _GroupMember, bar: Any) -> None:
        group = member.group
        waiting = self._groups.get(group)
        # the group was called already, or no gradient of it was expected
        if waiting is None:
            return
        waiting[member.index] = self.as_user_tensor(bar)
        if group.mode == "any":
            del self._groups[group]
            group.hook(waiting[member.index])
        elif all(g is not None for g in waiting.values()):
            del self._groups[group]
            group.hook([waiting.get(i) for i in range(group.size)])


Tensor.retain_grad = retain_grad  # type: ignore[method-assign]
