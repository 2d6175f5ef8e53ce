"""One step of a recorded computation: the op that made a value, its inputs, and what the backward pass needs."""

from __future__ import annotations

import functools
import itertools
import linecache
import os
import re
import sys
import warnings
import weakref
from collections.abc import Callable, Iterator
from types import CodeType, FrameType, TracebackType
from typing import Any, ClassVar, ParamSpec, TypeVar, cast

from ..errors import ArgumentError, ArgumentTypeError, AxisError, IndexingError, raise_masked
from ..settings import installed

P = ParamSpec("P")
R = TypeVar("R")

_handles = itertools.count()
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
#: A program inside the package that uses it as a user does: its lines count as the user's.
_DEMO = os.path.join(_PACKAGE, "demo")


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
    """The hooks of one node in the order of registration: kind is "grad", "post_accumulate", "pre", "post",
    "retain" or "multi".
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

    __slots__ = ("hooks", "is_update", "specs", "static", "variable_of")
    step: ClassVar[None] = None

    def __init__(self, specs: tuple[Any, ...], static: dict[str, Any]) -> None:
        self.specs = specs
        self.static = static
        self.hooks: Hooks | None = None
        self.is_update = False
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
    """One call of `grad` or `vjp`, to which the nodes of its variables point; `running` while its function runs."""

    __slots__ = ("running",)
    #: The calls that run now, in all threads: while there are none, no graph is searched for their variables.
    _now_running: ClassVar[set[int]] = set()

    def __enter__(self) -> DifferentiatedCall:
        self.running = True
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

    `order` is the length of the longest path to a leaf, so a parent's is always below its child's.

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
    """Whether any path from a value to a leaf has a derivative: after `stop_gradient` or `floor` none has."""
    return any(node.rule is None for node in _nodes_with_derivative(start))


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


#: For each file whether its lines are not the user's: of this package, of an installed one, of the standard library.
known_files: dict[str, bool] = {}
_package_files: dict[str, bool] = {}
_INSTALLED_FILE = re.compile(r"[/\\](site|dist)-packages[/\\]|<__array_function__")
_STANDARD_LIBRARY = os.path.dirname(os.__file__) + os.sep


def is_package_code(code: CodeType | None) -> bool:
    """Whether a line belongs to this package, and not to its user."""
    if code is None:
        return False
    known = _package_files.get(code.co_filename)
    if known is None:
        inside = code.co_filename.startswith((_PACKAGE, "<pullback"))
        known = _package_files[code.co_filename] = inside and not code.co_filename.startswith(_DEMO)
    return known


def is_library_code(code: CodeType) -> bool:
    """Whether a line belongs to this package, to an installed one or to the standard library: not to the user."""
    name = code.co_filename
    known = known_files.get(name)
    if known is None:
        is_standard = name.startswith((_STANDARD_LIBRARY, "<frozen ")) and not name.startswith(_DEMO)
        known = known_files[name] = is_package_code(code) or is_standard or is_installed_code(code)
    return known


def is_installed_code(code: CodeType) -> bool:
    """Whether a line belongs to another package, which pip or the system installed."""
    name = code.co_filename
    return _INSTALLED_FILE.search(name) is not None and not name.startswith(_PACKAGE)


def user_frame(frame: FrameType) -> FrameType:
    """The innermost frame of the user's code; if there is none, the innermost outside this package."""
    found: FrameType | None = frame
    # a stack may be deep inside the package, so files that are known cost no call
    while found is not None and (known_files.get(found.f_code.co_filename) or is_library_code(found.f_code)):
        found = found.f_back
    if found is not None:
        return found
    while is_package_code(frame.f_code) and frame.f_back is not None:
        frame = frame.f_back
    return frame


def user_line(frame: FrameType) -> tuple[CodeType, int]:
    """The innermost line of the user's code, as code and instruction."""
    frame = user_frame(frame)
    return frame.f_code, frame.f_lasti


def warn_at_user_line(message: str) -> None:
    """A RuntimeWarning that shows the user's line, however deep in the package it is found out."""
    frame = user_frame(sys._getframe(1))
    name = str(frame.f_globals.get("__name__", ""))
    warnings.warn_explicit(message, RuntimeWarning, frame.f_code.co_filename, frame.f_lineno, name)


def set_call_site(node: Node, frame: FrameType) -> None:
    """Store the user's line on a node."""
    node.code, node.lasti = user_line(frame)


def propagate_call_site(node: Any, line: tuple[CodeType, int]) -> None:
    """Store the user's line on a node and on its ancestors whose line is the package's own."""
    stack = [node] if isinstance(node, Node) and is_package_code(node.code) else []
    while stack:
        node = stack.pop()
        node.code, node.lasti = line
        stack += [parent for parent in node.parents if is_package_code(parent.code)]


#: A call into these with arguments that do not fit is the package's own doing.
_LIBRARIES = frozenset(("numpy", "scipy", "cupy", "cupyx"))

#: What invalid arguments raise where no check came first.
UNTYPED = (TypeError, ValueError, IndexError, AttributeError, ZeroDivisionError, AssertionError)


def as_typed_error(what: str, error: Exception) -> Exception:
    """A built-in error raised inside the package as one of our classes; a user's function keeps its own errors."""
    if isinstance(error, AxisError) and error.args:
        error.args = (f"{what}:{str(error).partition(':')[2]}",)  # the axis was passed on to an op of another name
    own = type(error).__module__ not in ("builtins", "numpy._core._exceptions", "numpy.exceptions")
    if own or not _is_raised_by_package(error.__traceback__):
        return error
    kind = IndexingError if isinstance(error, IndexError) else ArgumentTypeError
    made = kind(f"{what}: the arguments do not fit: {error}.")
    made.__cause__ = error
    return made


def _is_raised_by_package(step: TracebackType | None) -> bool:
    """Whether the innermost line outside third-party libraries is the package's."""
    ours = False
    while step is not None:
        if str(step.tb_frame.f_globals.get("__name__", "")).partition(".")[0] not in _LIBRARIES:
            ours = is_package_code(step.tb_frame.f_code)
        step = step.tb_next
    return ours


def attributed_to_caller(function: Callable[P, R]) -> Callable[P, R]:
    """For functions of the package that call ops: the nodes they make get the user's line as their call site.

    The fast path stores its caller's line without checking whose it is; the check would cost every op.
    """

    @functools.wraps(function)
    def composite(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            out = function(*args, **kwargs)
        except UNTYPED as error:
            raise as_typed_error(function.__name__, error)  # noqa: B904 - it is the same error, or chains it
        node = getattr(out, "node", None)
        if node is not None and is_package_code(node.code):
            propagate_call_site(node, user_line(sys._getframe(1)))
        return out

    return composite


def format_line(code: CodeType, lasti: int) -> str:
    """A line as `folder/file.py:12: y = x * 2`."""
    number = next((line for start, end, line in code.co_lines() if start <= lasti < end and line), None)
    if number is None:
        return _format_path(code.co_filename)
    text = linecache.getline(code.co_filename, number).strip()
    return f"{_format_path(code.co_filename)}:{number}" + (f": {text}" if text else "")


def _format_path(name: str) -> str:
    """A file as seen from the working directory where that is shorter; of the package's own programs, the name."""
    if name.startswith((_DEMO, "<")):
        return os.path.basename(name)
    try:
        return min(os.path.relpath(name), name, key=len)
    except (OSError, ValueError):  # the directory is gone, or on another drive
        return name
