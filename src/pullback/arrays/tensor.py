"""The tensor: a variable that points at an array, and at the node that made it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import (
    DeviceError,
    DtypeError,
    GraphError,
    ShapeError,
)
from ..settings import UNRECORDED, installed, modes
from .backends import as_array, is_array, move_array
from .call_site import is_package_code, warn_at_user_line
from .convertible import ConvertibleValue
from .devices import normalize_device
from .dtypes import NAMES, as_dtype
from .node import Handle, Node, has_derivative, leaf_node
from .protect import as_immutable
from .scope import Scope, current_scope, enclosing_scopes
from .spec import FLOAT8_CODES, Spec, spec_of
from .value import Value
from .views import is_linked, is_view, living_views, view_write_error, write_through


class Tensor(ConvertibleValue):
    """A variable over an array that remembers how it was computed.

    Made by `pb.tensor`, `pb.asarray` and the like; the constructor takes no arguments, which makes ops faster.
    The array a tensor points at is a value and never changes; `x += y` and `x[i] = v` point the tensor at a
    new one. So no value saved for the backward pass can be overwritten.

    >>> import pullback as pb
    >>> x = pb.tensor([1.0, 2.0], requires_grad=True)
    >>> (x * x).sum().backward()
    >>> x.grad
    tensor([2., 4.], dtype=float64)
    """

    __slots__ = ("_grad", "_status", "node", "spec", "value")

    value: Any
    spec: Spec
    node: Node | None
    _grad: Tensor | None
    _status: str

    @property
    def level(self) -> int:
        value = self.value
        return 1 if type(value) is np.ndarray or not isinstance(value, Value) else value.level + 1

    def parts(self) -> tuple[Any, ...]:
        return (self.value,)

    def with_parts(self, *parts: Any) -> Tensor:
        twin = copy_variable(self)
        (twin.value,) = parts
        return twin

    @property
    def is_traced(self) -> bool:
        """Whether this is captured from outside by the program that `jit` is tracing, which rereads it at each call."""
        trace = modes().tracing
        return trace is not None and self.level < trace.level and trace.scope.open

    def note_numbers(self) -> None:
        """Make the trace valid only while this tensor keeps its current values."""
        if self.is_traced:
            modes().tracing.constants.numbers.append(self)

    def mark(self, status: str) -> None:
        """Set a flag that each use must check ("inference", "shared"), and leave the fast path for good."""
        self._status = status
        self.spec = self.spec.as_inference() if status == "inference" else self.spec.as_guarded()

    @property
    def status(self) -> str:
        return getattr(self, "_status", "")

    @property
    def is_tracked(self) -> bool:
        if self.node is not None and has_derivative(self.node):
            return True
        return isinstance(self.value, Value) and self.value.is_tracked

    @property
    def is_inference(self) -> bool:
        """Whether this was made under `inference_mode` and so can never require a gradient."""
        return self.status == "inference"

    @property
    def requires_grad(self) -> bool:
        """Whether a backward pass can reach this tensor. Setting it makes a leaf, or drops one."""
        return self.node is not None

    @requires_grad.setter
    def requires_grad(self, wanted: bool) -> None:
        if bool(wanted) == (self.node is not None):
            return
        if not wanted:
            if not self.is_leaf:
                raise GraphError("only a leaf can stop requiring its gradient.\n  Use detach() to get a constant.")
            self.node = None
            return
        if self.is_inference and not modes().inference:
            raise GraphError(
                "a tensor made under inference_mode can never require a gradient.\n  Copy it: pb.tensor(x)."
            )
        if self.spec.dtype.char in FLOAT8_CODES:
            raise DtypeError(
                f"a tensor of {self.spec.dtype} only stores numbers.\n  Differentiate what it was made of."
            )
        if not self.spec.inexact:
            raise DtypeError(
                f"only floating-point and complex tensors can require a gradient, this one is {self.spec.dtype}.\n"
                "  Convert it first: x.astype(pb.float64)."
            )
        scope = current_scope()
        if scope is not None and self.level < scope.level:
            self.value = scope.lift_leaf(self)
            self.spec = self.value.spec
        self.node = leaf_node(self)

    def leave_scope(self, scope: Scope) -> None:
        """The transform in which this leaf was made has ended: point at the lowered value."""
        self.value = scope.lower(self.value)
        self.spec = spec_of(self.value)
        gradient = self.grad
        if gradient is not None and gradient.node is None:
            gradient.value = scope.lower(gradient.value)
            gradient.spec = spec_of(gradient.value)

    def requires_grad_(self, wanted: bool = True) -> Tensor:
        """Set `requires_grad` and return the tensor itself."""
        self.requires_grad = wanted
        return self

    @property
    def is_leaf(self) -> bool:
        """Whether gradients end here: made by the user, or untracked."""
        return self.node is None or (self.node.is_leaf and self.node.kept() is self)

    @property
    def grad(self) -> Tensor | None:
        """The gradient accumulated by backward passes, None before the first."""
        found: Tensor | None = getattr(self, "_grad", None)
        if found is None and self.node is not None and not self.is_leaf:
            self._warn_of_no_gradient(sys._getframe(1))
        return found

    @grad.setter
    def grad(self, wanted: Any) -> None:
        if (instruments := modes().instruments) is not None:
            instruments.writes_gradient(self)
        if wanted is None:
            self._grad = None
            return
        is_gradient = isinstance(wanted, Tensor) or getattr(type(wanted), "is_gradient", False)  # RowSparse
        gradient = wanted if is_gradient else tensor(wanted, dtype=self.dtype)
        if gradient.shape != self.shape or gradient.dtype != self.dtype:
            raise ShapeError(f"grad: got {gradient.spec}, the tensor is {self.spec}.")
        if gradient.device != self.device:
            raise DeviceError(f"grad: got {gradient.spec} on {gradient.device}, the tensor is on {self.device}.")
        self._grad = gradient

    def _warn_of_no_gradient(self, frame: FrameType) -> None:
        """Say that this intermediate has no gradient, if it was not asked for and it is the user that reads it."""
        if self._tracked_node("grad").retain_hook_key(self) is None and not is_package_code(frame.f_code):
            warn_at_user_line(
                "grad: this tensor was computed from others, and backward does not store its gradient: it is None.\n"
                "  Call x.retain_grad() before backward, or use pb.gradients(loss, x)."
            )

    def detach(self) -> Tensor:
        """The same value as a constant."""
        if self.is_traced:
            return Value.detach(self)
        out: Tensor = alias(self)
        out.node = None
        return out

    def register_hook(self, hook: Callable[[Tensor], Any]) -> Handle:
        """Call `hook(gradient)` once per backward pass with the whole gradient of this value.

        What it returns, unless None, replaces the gradient.
        """
        return self._tracked_node("register_hook").add_hook("grad", hook)

    def register_post_accumulate_grad_hook(self, hook: Callable[[Tensor], None]) -> Handle:
        """Call `hook(tensor)` after a backward pass has accumulated into `tensor.grad`. Leaves only."""
        node = self._tracked_node("register_post_accumulate_grad_hook")
        if not self.is_leaf:
            raise GraphError("register_post_accumulate_grad_hook: only a leaf accumulates; use register_hook here.")
        return node.add_hook("post_accumulate", hook)

    def _tracked_node(self, what: str) -> Node:
        if self.node is None:
            raise GraphError(f"{what}: this tensor does not require a gradient, so the hook could never run.")
        return self.node

    def rebind(self, new: Any, what: str) -> Tensor:
        """Point this variable at a new value of the same shape and dtype. All in-place operations end here."""
        views = living_views(self) if hasattr(self, "_views") else ()
        if not views and modes() is UNRECORDED and type(new) is Tensor and self._is_plain_update(new):
            self.value = new.value
            return self
        if not isinstance(new, Tensor):
            value = new if isinstance(new, Value) else as_immutable(new)  # a user may still write to a bare array
            new = wrap(value, spec_of(value))
        if new.shape != self.shape:
            raise ShapeError(f"{what}: the result has shape {new.shape}, the tensor has {self.shape} and keeps it.")
        if new.dtype != self.dtype:
            if not np.can_cast(new.dtype, self.dtype, casting="same_kind"):
                raise DtypeError(f"{what}: a {new.dtype} result does not fit into a {self.dtype} tensor.")
            new = new.astype(self.dtype)
        if is_view(self):
            if write_through(self, new):
                return self
            if is_linked(self) or not what.startswith("in-place"):  # operators check themselves: `x[i] += v` is one
                raise view_write_error(what)
        self._note_rebinding()
        installed().rebinds(self)
        was_retained = self.node is not None and self.node.forget(self)
        is_parameter = self.is_leaf and self.node is not None and not modes().grad
        if not is_parameter:  # an update of a parameter keeps its leaf
            if new.node is not None and self.node is not None and self.is_leaf:
                new.node.leave_fast_path().is_update = True  # a forgotten no_grad shows only steps later
            self.node = new.node
        if was_retained and self.node is not None:
            self.retain_grad()
        self.value = new.value
        self._status = ""
        self.spec = spec_of(self.value)
        if new.status and not (is_parameter and new.is_inference):
            self.mark(new.status)
        for view, cut in views:
            view.follow(cut(self))
        return self

    def _note_rebinding(self) -> None:
        for scope in enclosing_scopes():
            if scope.rebindings is not None:
                scope.rebindings.append((self, self.value, self.spec, self.node, self.status))

    def follow(self, new: Any) -> None:
        self._note_rebinding()
        self.value, self.spec, self.node = new.value, new.spec, new.node
        self._status = new.status

    def _is_plain_update(self, new: Tensor) -> bool:
        """Whether a result of `no_grad` only takes the place of the value, as where a parameter is updated."""
        spec, node = self.spec, self.node
        if new.spec is not spec or spec.plain is None or current_scope() is not None or is_view(self):
            return False
        return new.node is None if node is None else node.rule is None and node.kept() is self

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        """A copy. Of a parameter: a new parameter. Of a computed value, and of a variable that a running `grad`
        differentiates, a copy on the same tape.
        """
        if self.node is not None and not self._is_user_leaf():
            memo[id(self)] = self.copy()
            return memo[id(self)]  # type: ignore[no-any-return]
        twin = tensor(self.detach(), requires_grad=self.requires_grad)
        twin._grad = None if self.grad is None else tensor(self.grad.detach())
        memo[id(self)] = twin
        return twin

    def _is_user_leaf(self) -> bool:
        """Whether this is the user's leaf, and not a variable that a call of `grad` differentiates."""
        return self.is_leaf and self.node is not None and self.node.variable_of is None

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.__reduce__()

    def __reduce__(self) -> tuple[Any, ...]:
        if self.node is not None and not self._is_user_leaf():
            raise GraphError("pickle: a graph cannot be stored.\n  Use x.detach().")
        place = () if self.device == "cpu" else (self.device,)
        return _rebuild, (self.detach().numpy().copy(), self.requires_grad, *place)

    if TYPE_CHECKING:  # added by the layers below: `ops.operators` and `tape`

        def __setitem__(self, index: Any, value: Any) -> None: ...
        def fill_(self, value: Any) -> Tensor: ...
        def copy(self) -> Tensor: ...
        def interpret(self, op: Any, args: Sequence[Any], static: dict[str, Any]) -> Any: ...
        def retain_grad(self) -> None: ...
        def backward(
            self,
            seed: Any = None,
            *,
            inputs: Any = None,
            retain_graph: bool = False,
            create_graph: bool = False,
            workers: int = 1,
        ) -> None: ...


def _rebuild(array: Any, requires_grad: bool, device: str = "cpu") -> Tensor:
    return tensor(array, requires_grad=requires_grad, device=device)


def wrap(value: Any, spec: Spec, node: Node | None = None) -> Tensor:
    """A tensor over a value as it is: no copy, no check."""
    out = Tensor()
    out.value, out.spec, out.node = value, spec, node
    return out


def wrap_new(array: Any) -> Tensor:
    """A tensor of numbers alone. Where a function is traced once for each of its paths, the traces note it, since each
    of them makes it anew.
    """
    made = wrap(array, spec_of(array))
    for scope in enclosing_scopes():
        if scope.decisions is not None:
            scope.decisions.note_made(made)
    return made


def alias(x: Any) -> Any:
    """The same value under a new variable, so that writing to one does not change the other."""
    if type(x) is not Tensor:
        return x.alias() if isinstance(x, Value) else x
    if x.is_traced:
        scope = modes().tracing.scope
        symbol = scope.lift(scope, x)
        return wrap(symbol, symbol.spec)
    return copy_variable(x)


def value_of(x: Tensor) -> Any:
    """The value that a tensor points at, without its graph; in a trace of `jit`, a symbol that stands for it."""
    return Value.detach(x) if x.is_traced else x.value


def copy_variable(x: Tensor) -> Tensor:
    """A new variable over the same value, with the same node."""
    twin = wrap(x.value, x.spec, x.node)
    if x.status:
        twin.mark(x.status)
    return twin


def new_array(data: Any, dtype: Any = None) -> Any:
    """An owned array from numbers, lists, arrays or untracked tensors."""
    if isinstance(data, Tensor):
        data = data._bare_array("pb.tensor")
    array = as_array(data)
    wanted = None if dtype is None else as_dtype(dtype)
    if is_array(array) and not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    array = array.astype(wanted or array.dtype, copy=True) if is_array(array) else np.array(array, dtype=wanted)
    if array.dtype.name not in NAMES:
        raise DtypeError(f"tensors hold numbers and booleans, got dtype {array.dtype}.")
    return array


def tensor(data: Any, *, dtype: Any = None, requires_grad: bool = False, device: Any = None) -> Tensor:
    """A new tensor with a copy of the data: on a device, "cpu" or "cuda:0", by default where the data is.

    >>> import pullback as pb
    >>> pb.tensor([1.0, 2.0], requires_grad=True)
    tensor([1., 2.], dtype=float64, requires_grad=True)
    """
    if isinstance(data.value if type(data) is Tensor else data, Value):
        made = _wrap_transform_value(data, dtype)
        made = made if device is None else made.to_device(device)
    else:
        array = new_array(data, dtype)
        if device is not None:
            array = move_array(array, normalize_device(device, "tensor"))
        made = wrap_new(array)
    if modes().inference:
        made.mark("inference")
    return made.requires_grad_() if requires_grad else made


def _wrap_transform_value(data: Value, dtype: Any) -> Tensor:
    """A tensor over a value of a running transform, which never changes and so needs no copy."""
    if isinstance(data, Tensor):
        data._require_untracked("pb.tensor")
        data = data.value
    data = data.alias()
    if dtype is not None and data.dtype != as_dtype(dtype):
        data = data.astype(dtype)
    return wrap(data, data.spec)
