"""`Parameter`, and arrays of modules with another dtype or on another device."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..arrays.backends import is_array, move_array
from ..arrays.buffers import unwrap_tracked
from ..arrays.devices import is_device, normalize_device
from ..arrays.dtypes import NAMES, as_dtype
from ..arrays.node import depends_on_running_call
from ..arrays.scope import current_scope
from ..arrays.spec import spec_of
from ..arrays.tensor import Tensor, tensor
from ..arrays.value import Value
from ..errors import ArgumentError, DtypeError, GraphError

if TYPE_CHECKING:

    def Parameter(data: Any, requires_grad: bool = True) -> Tensor: ...

else:

    class _ParameterType(type):
        def __instancecheck__(cls, thing):
            return isinstance(thing, Tensor) and thing.requires_grad and thing.is_leaf

    class Parameter(metaclass=_ParameterType):
        """A tensor that is trained, with a copy of the data: `pb.tensor(data, requires_grad=True)`.

        >>> import pullback as pb
        >>> weight = pb.nn.Parameter([1.0, 2.0])
        >>> weight, isinstance(weight, pb.nn.Parameter)
        (tensor([1., 2.], dtype=float64, requires_grad=True), True)
        """

        def __new__(cls, data: Any, requires_grad: bool = True) -> Tensor:
            return tensor(as_state(data, "Parameter"), requires_grad=requires_grad)


def as_state(x: Any, what: str) -> Any:
    """Data for a module to keep: a tensor without its graph, refused where a running `grad` or `vjp` would miss it."""
    x = unwrap_tracked(x)
    if not isinstance(x, Tensor):
        return x
    if x.node is not None and depends_on_running_call(x.node):
        raise GraphError(
            f"{what}: {x!r} has a derivative that a running grad or vjp asks for, which a module's own copy loses.\n"
            "  Compute with x itself, as in pb.nn.linear(inputs, x), or pass x.detach()."
        )
    return x.detach()


def make_conversion(args: tuple[Any, ...], dtype: Any, device: Any) -> Callable[[Any], Any]:
    """What `module.to(...)` does with an array: floating-point ones get the dtype, all of them move."""
    for given in args:
        if isinstance(given, Value) or is_array(given):
            dtype, device = spec_of(given).dtype, spec_of(given).device
        elif is_device(given) and given not in NAMES:
            device = given
        elif given is not None:
            dtype = given
    wanted = None if dtype is None else as_dtype(dtype)
    if wanted is not None and wanted.kind not in "fcV":
        raise DtypeError(f"to: parameters are floating-point arrays, and {wanted} is not.")
    place = None if device is None else normalize_device(device, "to")
    if wanted is None and place is None:
        raise ArgumentError("to: wants a dtype or a device, such as pb.float64 or 'cpu'.")

    def convert(x: Any) -> Any:
        spec = spec_of(x)
        if wanted is not None and spec.inexact and spec.dtype != wanted:
            x = x.astype(wanted)
        if place is not None and spec.device != place:
            x = move_array(x, place) if is_array(x) else x.to(place)
        return x

    return convert


def convert_tensor(p: Tensor, convert: Callable[[Any], Any]) -> None:
    """A tensor of a module over another array; it stays the same variable, since an optimizer may hold it."""
    new, gradient = convert(p.value), p.grad
    if new is p.value:
        return
    if current_scope() is not None:
        raise GraphError("to: this module lies outside of the running transform.\n  Convert it before, or pass it in.")
    p.grad = None
    p.value, p.spec = new, spec_of(new)
    if p.node is not None:  # the node stays, with its hooks
        p.node.spec = p.spec
    if gradient is not None:
        p.grad = tensor(convert(gradient.detach().value))
