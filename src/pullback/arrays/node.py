"""One step of a recorded computation: what made a value, from what, and what the way back will need."""

from __future__ import annotations

import functools
import itertools
import linecache
import os
import sys
import weakref
from collections.abc import Callable, Iterator
from types import CodeType, FrameType, TracebackType
from typing import Any, ParamSpec, TypeVar

from ..errors import ArgumentError, ArgumentTypeError, IndexingError
from ..settings import modes

__all__ = [
    "Call",
    "Handle",
    "Hooks",
    "Node",
    "call_of",
    "depends_on_running_call",
    "has_derivative",
    "is_ours",
    "leaf_node",
    "running_calls",
    "sign",
    "sign_back",
    "signed",
    "typed",
    "user_line",
]

P = ParamSpec("P")
R = TypeVar("R")

_handles = itertools.count()
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
#: A program that uses the package and happens to lie in it: its lines are a user's.
_DEMO = os.path.join(_PACKAGE, "demo")


class Handle:
    """What a `register_…` call returns: `remove()` takes the hook out again, also at the end of a `with` block.

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
        """Take the hook out, from the next run on; False if it was out already."""
        hooks = self._hooks()
        return hooks is not None and hooks.entries.pop(self._key, None) is not None

    def __enter__(self) -> Handle:
        return self

    def __exit__(self, *exception: object) -> None:
        self.remove()


class Hooks:
    """The hooks of one node in the order they came: kind is "grad", "post_accumulate", "pre", "post",
    "retain" or "multi".
    """

    __slots__ = ("__weakref__", "entries")

    def __init__(self) -> None:
        self.entries: dict[int, tuple[str, Callable[..., Any]]] = {}


class Call:
    """What nodes of the fast path have no need of: how the op was called, the hooks of the node, and whether it is an
    update of a leaf in place that was recorded.
    """

    __slots__ = ("hooks", "is_update", "specs", "static")

    def __init__(self, specs: tuple[Any, ...], static: dict[str, Any]) -> None:
        self.specs = specs
        self.static = static
        self.hooks: Hooks | None = None
        self.is_update = False


class Node:
    """A step on the tape. `parents` are the nodes of the tracked arguments; a leaf has none.

    `order` is the length of the longest way to a leaf, so a parent's is always below its child's.

    `call` is None for nodes of the fast path alone: all arguments have the result's spec, and no static, no hook.
    `bar` belongs to the backward pass that has claimed the node, and is None between passes.

    `kept` holds what the rule needs (None once released); for a leaf, a weak reference to its tensor, so that
    `x.grad` may itself hang on a graph that ends in x without a reference cycle.
    """

    __slots__ = ("bar", "call", "code", "kept", "lasti", "order", "parents", "rule", "spec")

    bar: Any
    order: int
    rule: Any
    parents: tuple[Node, ...]
    kept: Any
    spec: Any
    call: Call | None
    code: CodeType | None
    lasti: int

    @property
    def name(self) -> str:
        """The op that made the value; "leaf" for a tensor that requires its gradient itself."""
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
        watcher = modes().watcher
        if watcher is not None:
            watcher.hooking(handle)
        return handle

    def forget(self, tensor: Any) -> bool:
        """Stop keeping the gradient for a tensor that now points elsewhere; whether it was kept."""
        key = self.retained(tensor)
        if key is not None and self.hooks is not None:
            del self.hooks.entries[key]
        return key is not None

    def retained(self, tensor: Any) -> int | None:
        """The key under which the gradient is kept for a tensor, None if it is not."""
        entries = self.hooks.entries if self.hooks else {}
        return next((key for key, (kind, hook) in entries.items() if kind == "retain" and hook() is tensor), None)

    @property
    def hooks(self) -> Hooks | None:
        return None if self.call is None else self.call.hooks

    def leave_fast_path(self) -> Call:
        """From now on the engine looks at this node each time it passes."""
        if self.call is None:
            self.call = Call((self.spec,) * self.rule.count, {})
        return self.call

    def where(self) -> str:
        """The user's line that made this node, as `file.py:12: y = x * 2`."""
        if self.code is None:
            return "an unknown line"
        return show_line(self.code, self.lasti)

    def __repr__(self) -> str:
        return f"<node {self.name} {self.spec} made at {self.where()}>"


def leaf_node(tensor: Any) -> Node:
    """A node without parents whose gradient goes to `tensor.grad`, as long as the tensor lives."""
    node = Node()
    node.rule, node.parents, node.kept, node.spec = None, (), weakref.ref(tensor), tensor.spec
    node.order, node.call, node.bar = 0, Call((), {}), None
    sign(node, sys._getframe(1))
    return node


#: Calls of `grad` and `vjp` that run their functions now, in all threads: while there are none, nothing is looked up.
running_calls: set[int] = set()


def call_of(node: Node) -> str | None:
    """For a variable of a call of `grad` or `vjp`, whether the call is "running" its function or "over"."""
    return None if node.call is None else node.call.static.get("of_call")


def depends_on_running_call(start: Node) -> bool:
    """Whether a value has a derivative in a variable of a call of `grad` or `vjp` that still runs its function."""
    return bool(running_calls) and any(call_of(node) == "running" for node in _nodes_with_derivative(start))


def has_derivative(start: Node) -> bool:
    """Whether any way from a value to a leaf has a derivative: after `stop_gradient` or `floor` none has."""
    return any(node.rule is None for node in _nodes_with_derivative(start))


def _nodes_with_derivative(start: Node) -> Iterator[Node]:
    """The nodes that a cotangent of a value can reach; most often the one that is looked for comes early."""
    seen = {start}
    found = [start]
    for node in found:  # grows as it goes
        yield node
        for number, parent in enumerate(node.parents):
            if parent not in seen and node.rule.reaches(number):
                seen.add(parent)
                found.append(parent)


_known_files: dict[str, bool] = {}


def is_ours(code: CodeType | None) -> bool:
    """Whether a line belongs to this package, and not to who uses it."""
    if code is None:
        return False
    known = _known_files.get(code.co_filename)
    if known is None:
        inside = code.co_filename.startswith((_PACKAGE, "<pullback"))
        known = _known_files[code.co_filename] = inside and not code.co_filename.startswith(_DEMO)
    return known


def user_line(frame: FrameType) -> tuple[CodeType, int]:
    """The innermost line outside this package, as code and instruction."""
    while is_ours(frame.f_code) and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code, frame.f_lasti


def sign(node: Node, frame: FrameType) -> None:
    """Note the user's own line on a node."""
    node.code, node.lasti = user_line(frame)


def sign_back(node: Any, line: tuple[CodeType, int]) -> None:
    """Note the user's line on a node and on those it came from that have a line of ours."""
    stack = [node] if isinstance(node, Node) and is_ours(node.code) else []
    while stack:
        node = stack.pop()
        node.code, node.lasti = line
        stack += [parent for parent in node.parents if is_ours(parent.code)]


#: What arguments that make no sense end in, where no check was made before.
UNTYPED = (TypeError, ValueError, IndexError, AttributeError, ZeroDivisionError, AssertionError)


def typed(what: str, error: Exception) -> Exception:
    """An error out of the middle of a function of ours as one of our own; a user's function has errors of its own."""
    own = type(error).__module__ not in ("builtins", "numpy._core._exceptions", "numpy.exceptions")
    if own or not _is_raised_by_us(error.__traceback__):
        return error
    kind = IndexingError if isinstance(error, IndexError) else ArgumentTypeError
    made = kind(f"{what}: the arguments do not fit: {error}.")
    made.__cause__ = error
    return made


def _is_raised_by_us(step: TracebackType | None) -> bool:
    """Whether the innermost line that is no library's is ours."""
    ours = False
    while step is not None:
        if str(step.tb_frame.f_globals.get("__name__", "")).partition(".")[0] not in (
            "numpy",
            "scipy",
            "cupy",
            "cupyx",
        ):
            ours = is_ours(step.tb_frame.f_code)
        step = step.tb_next
    return ours


def signed(function: Callable[P, R]) -> Callable[P, R]:
    """For functions of ours that call ops: the nodes they make get the user's line instead of ours.

    The fast path notes the line of whoever calls it, without asking who that is; asking would cost every op.
    """

    @functools.wraps(function)
    def composite(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            out = function(*args, **kwargs)
        except UNTYPED as error:
            raise typed(function.__name__, error)  # noqa: B904 - it is the error itself, or has its cause
        node = getattr(out, "node", None)
        if node is not None and is_ours(node.code):
            sign_back(node, user_line(sys._getframe(1)))
        return out

    return composite


def show_line(code: CodeType, lasti: int) -> str:
    number = next((line for start, end, line in code.co_lines() if start <= lasti < end and line), None)
    if number is None:
        return os.path.basename(code.co_filename)
    text = linecache.getline(code.co_filename, number).strip()
    return f"{os.path.basename(code.co_filename)}:{number}" + (f": {text}" if text else "")
