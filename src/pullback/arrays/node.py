"""One step of a recorded computation: the op that made a value, its inputs, and what the backward pass needs."""

from __future__ import annotations

import itertools
import sys
import weakref
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any, ClassVar, cast

from ..errors import ArgumentError, raise_masked
from ..settings import installed
from .call_site import format_line, is_library_code, set_call_site

_handles = itertools.count()


class Handle:
    """What a `register_…` call returns: `remove()` unregisters the hook, as does leaving a `with` block.

    >>> import pullback as pb
    >>> x = pb.tensor(1.0, requires_grad=True)
    >>> handle = x.register_hook(print)
    >>> handle.remove(), handle.remove()
    (True, False)
    """

    __slots__ = ("_hooks", "_key")

    def __init__(self, hooks: Hooks, kind: str, hook: Callable[..., Any]) -> None:
        if not callable(hook):
            raise ArgumentError(f"a hook must be callable, got {type(hook).__name__}.")
        self._hooks = weakref.ref(hooks)
        self._key = next(_handles)
        hooks.entries[self._key] = (kind, hook)

    def remove(self) -> bool:
        """Unregister the hook, from the next run on; False if it was not registered."""
        hooks = self._hooks()
        return hooks is not None and hooks.entries.pop(self._key, None) is not None

    def __enter__(self) -> Handle:
        return self

    def __exit__(self, *exception: object) -> None:
        self.remove()


class Hooks:
    """The hooks of one node in the order of registration: kind is "grad", "pre_accumulate" (of a leaf, with what is
    about to be added to its gradient), "post_accumulate", "pre", "post", "retain", "multi", "end" (once, when a
    backward pass that reached the node has added up all gradients, and can still fail), or "failed" (once, if it did).
    """

    __slots__ = ("__weakref__", "entries")
    #: Whether any were ever made: most programs have none, and no pass looks for them.
    exist: ClassVar[bool] = False

    def __init__(self) -> None:
        Hooks.exist = True
        self.entries: dict[int, tuple[str, Callable[..., Any]]] = {}


class NodeCall:
    """What nodes of the fast path do not need: how the op was called, the hooks of the node, whether it is a recorded
    in-place update of a leaf, and the call of `grad` or `vjp` that it is a variable of.
    """

    __slots__ = ("hooks", "is_update", "origin", "specs", "static", "variable_of")
    step: ClassVar[None] = None

    def __init__(self, specs: tuple[Any, ...], static: dict[str, Any]) -> None:
        self.specs = specs
        self.static = static
        self.hooks: Hooks | None = None
        self.is_update = False
        self.origin: Any = None  # an `Origin`, where these are noted
        self.variable_of: DifferentiatedCall | None = None


class PlannedCall:
    """What nodes share whose op was called alike: on arguments of these specs, the same of them tracked, with the same
    static parameters. It takes the place of their `NodeCall`, which a node gets once it has more to say.

    `step` is the function that pulls back and adds up (`tape/codegen.py`), None until it is made; `uses` counts how
    often it was missed. `gradient`, where a call has one, computes all shares of the cotangent one from saved values,
    as new tensors; it returns None where only `step` is right.
    """

    __slots__ = ("gradient", "out", "rule", "specs", "static", "step", "uses")
    hooks: ClassVar[None] = None
    is_update: ClassVar[bool] = False
    variable_of: ClassVar[None] = None

    def __init__(self, rule: Any, specs: tuple[Any, ...], static: dict[str, Any], out: Any) -> None:
        self.rule, self.specs, self.static, self.out = rule, specs, static, out
        self.step: Any = None
        self.uses = 0
        self.gradient: Callable[[tuple[Any, ...]], list[Any] | None] | None = None


class DifferentiatedCall:
    """One call of `grad` or `vjp`, to which the nodes of its variables point; `running` while its function runs. It
    `is_over` when its one backward pass is, in which checkpoints run the function again.
    """

    __slots__ = ("is_over", "running")
    #: The calls that run now, in all threads: while there are none, no graph is searched for their variables.
    _now_running: ClassVar[set[int]] = set()

    def __enter__(self) -> DifferentiatedCall:
        self.running, self.is_over = True, False
        self._now_running.add(id(self))
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        self.running = False
        self._now_running.discard(id(self))
        if error is not None:
            raise_masked(error)

    @classmethod
    def is_any_running(cls) -> bool:
        return bool(cls._now_running)


class Node:
    """A step on the tape. `parents` are the nodes of the tracked arguments; a leaf has none.

    `order` is the depth, the length of the longest path to a leaf (in a checkpoint more), so a parent's is always below
    its child's.

    `call` is None for nodes of the elementwise fast path: all arguments have the result's spec, and no static, no hook.
    `bar` belongs to the backward pass that has claimed the node, and is None between passes.

    `kept` holds what the rule needs (None once released); for a leaf, a weak reference to its tensor, so that
    `x.grad` may itself depend on a graph that ends in x without a reference cycle.
    """

    __slots__ = ("bar", "call", "code", "kept", "lasti", "order", "parents", "rule", "spec")

    bar: Any
    order: int
    rule: Any
    parents: tuple[Node, ...]
    kept: Any
    spec: Any
    call: NodeCall | PlannedCall | None
    code: CodeType | None
    lasti: int

    @property
    def name(self) -> str:
        """The op that made the value; "leaf" for a tensor that requires grad."""
        return "leaf" if self.rule is None else str(self.rule.op.name)

    @property
    def is_leaf(self) -> bool:
        return self.rule is None

    def register_pre_hook(self, hook: Callable[[Any], Any]) -> Handle:
        """Call `hook(cotangent)` before the rule of this node runs; it may return a replacement."""
        return self.add_hook("pre", hook)

    def register_hook(self, hook: Callable[[tuple[Any, ...], Any], Any]) -> Handle:
        """Call `hook(shares, cotangent)` after the rule of this node ran; it may return replacements."""
        return self.add_hook("post", hook)

    def add_hook(self, kind: str, hook: Callable[..., Any]) -> Handle:
        call = self.leave_fast_path()
        if call.hooks is None:
            call.hooks = Hooks()
        handle = Handle(call.hooks, kind, hook)
        installed().registers_hook(handle)
        return handle

    def forget(self, tensor: Any) -> bool:
        """Stop retaining the gradient for a tensor that was rebound; whether it was retained."""
        key = self.retain_hook_key(tensor)
        if key is not None and self.hooks is not None:
            del self.hooks.entries[key]
        return key is not None

    def retain_hook_key(self, tensor: Any) -> int | None:
        """The hook key under which the gradient is retained for a tensor, None if it is not."""
        entries = self.hooks.entries if self.hooks else {}
        return next((key for key, (kind, hook) in entries.items() if kind == "retain" and hook() is tensor), None)

    @property
    def hooks(self) -> Hooks | None:
        return None if self.call is None else self.call.hooks

    @property
    def variable_of(self) -> DifferentiatedCall | None:
        """The call of `grad` or `vjp` that differentiates with respect to this node."""
        return None if self.call is None else self.call.variable_of

    @property
    def is_owned_leaf(self) -> bool:
        """Whether a caller may still ask for the gradient of this leaf: none does once the call it is of is over."""
        call = self.variable_of
        return self.rule is None and (call is None or call.running)

    def leave_fast_path(self) -> NodeCall:
        """From now on the backward pass checks this node for hooks."""
        call = self.call
        if call is None:
            call = self.call = NodeCall((self.spec,) * self.rule.count, {})
        elif type(call) is PlannedCall:
            call = self.call = NodeCall(call.specs, call.static)
        return cast("NodeCall", call)

    def where(self) -> str:
        """The user's line that made this node, as `file.py:12: y = x * 2`."""
        if self.code is None:
            return "an unknown line"
        if not is_library_code(self.code) or (maker := self._user_ancestor()) is None:
            return format_line(self.code, self.lasti)
        # the fast path stores its caller's line without checking whose it is
        return f"{format_line(maker.code, maker.lasti)}, then by {format_line(self.code, self.lasti)}"

    def _user_ancestor(self) -> Any:
        """The nearest node that a line of the user's made."""
        seen, found = {self}, [self]
        for node in found:  # grows as it goes
            if node.code is not None and not is_library_code(node.code):
                return node
            found += [parent for parent in dict.fromkeys(node.parents) if parent not in seen]
            seen.update(node.parents)
        return None

    def __repr__(self) -> str:
        return f"<node {self.name} {self.spec} made at {self.where()}>"


def leaf_node(tensor: Any) -> Node:
    """A node without parents whose gradient goes to `tensor.grad`, as long as the tensor lives."""
    node = Node()
    node.rule, node.parents, node.kept, node.spec = None, (), weakref.ref(tensor), tensor.spec
    node.order, node.call, node.bar = 0, NodeCall((), {}), None
    set_call_site(node, sys._getframe(1))
    return node


def depends_on_running_call(start: Node) -> bool:
    """Whether a value has a derivative in a variable of a call of `grad` or `vjp` that still runs its function."""
    if not DifferentiatedCall.is_any_running():
        return False
    calls = (node.variable_of for node in _nodes_with_derivative(start))
    return any(call is not None and call.running for call in calls)


def has_derivative(start: Node) -> bool:
    """Whether any path from a value to a leaf has a derivative: after `stop_gradient` or `floor` none has. Nor has a
    variable of a call of `grad` that is over.
    """
    leaves = (node.variable_of for node in _nodes_with_derivative(start) if node.rule is None)
    return any(call is None or not call.is_over for call in leaves)


def _nodes_with_derivative(start: Node) -> Iterator[Node]:
    """The nodes that a cotangent of a value can reach; callers usually stop early."""
    seen = {start}
    found = [start]
    for node in found:  # grows as it goes
        yield node
        for number, parent in enumerate(node.parents):
            if parent not in seen and node.rule.reaches(number):
                seen.add(parent)
                found.append(parent)
