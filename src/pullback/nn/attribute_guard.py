"""What may be set on a module inside a transform: its own values, and constants unwrapped; any other would leak."""

from __future__ import annotations

from typing import Any

from ..arrays.scope import Scope
from ..arrays.tensor import Tensor
from ..arrays.value import Value
from ..errors import LeakError

#: Where an instance that was rebuilt inside a transform keeps the transform's level: the transform owns it.
LEVEL = "_level"
#: Dry runs, in which no attribute may be set for good; and transforms that carry what is set inside: a compiled
#: function sets it at each call.
DRY_RUNS = frozenset(("planning", "prediction"))
_SCOPES_WITH_STATE = frozenset(("jit", "graph"))


def foreign_scope(module: Any, value: Any) -> Scope | None:
    """The transform that a value belongs to, if the module was there before the transform began."""
    while type(value) is Tensor:
        value = value.value
    scope = value.scope if isinstance(value, Value) else None
    if scope is None or scope.name in _SCOPES_WITH_STATE or vars(module).get(LEVEL, 0) >= scope.level:
        return None
    return scope


def unwrap_attribute(module: Any, name: str, value: Any, scope: Scope) -> Any:
    """The outer value of a constant of a transform and of the transforms around it; any other value would leak. A
    buffer is a constant of the tapes between them too.
    """
    is_buffer, inside, around = name in module.buffers, value, scope
    while True:
        while type(inside) is Tensor and (is_buffer or inside.node is None):
            inside = inside.value
        found = around.lower(inside)
        if found is inside:
            raise LeakError(
                f"{type(module).__name__}.{name} would be set to {value!r}, a value of a {scope.name} that the module "
                "does not belong to.\n  Give the module to the function as an argument and return it, or call "
                "net.eval() if its state is not to change."
            )
        outer = foreign_scope(module, found)
        if outer is None:
            return found.detach() if is_buffer and type(found) is Tensor else found
        inside, around = found, outer
