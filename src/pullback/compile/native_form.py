"""A fused function compiled for one kind of arguments: how a call of it runs, on arrays and on the tape."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from ..arrays.backends import is_array
from ..arrays.call_site import UNTYPED, is_package_code
from ..arrays.spec import spec_of
from ..arrays.trees import flatten, unflatten
from ..arrays.value import Value
from ..errors import GraphError, LeakError, PullbackError
from ..ops.fusion import Declined, Fusion
from ..program.ir import resolve_symbol
from ..settings import override_modes
from .jit import Jitted
from .specialization import Specialization
from .stage.trace import SideEffectError
from .targets import find_target, takes_arrays_of

_LOG = logging.getLogger("pullback")


class FusedSource(Jitted[..., Any]):
    """A fused function as what forms are compiled of: among the leaves of its arguments, `static` are settings."""

    is_optional = True

    def call_on_leaves(self, static: Any, structure: Any, leaves: Sequence[Any]) -> Any:
        every = list(leaves)
        (names, settings) = static
        for place, value in settings[1]:
            every.insert(place, value)
        args, named = unflatten(structure, every)
        found = self.f(*args, **dict(zip(names[1], named, strict=True)))
        after, same = flatten((args, named))
        if same != structure or any(
            x is not y or resolve_symbol(x) is not x for x, y in zip(after, every, strict=True)
        ):
            # the arguments of a trace are copies; those of the caller would stay as they are
            raise GraphError("it changes an argument in place.")
        return found


class NativeForm:
    """The compiled form of one kind of arguments. What a call needs is compiled when it first does: the result alone,
    or with what the backward pass reads, and the backward pass.
    """

    __slots__ = ("direct", "entry", "finish", "is_current")

    def __init__(self, entry: Specialization, is_closed: bool) -> None:
        self.entry = entry
        self.direct = entry.call_with_states if entry.states else entry.direct
        self.finish = entry.finish
        self.is_current = _always if is_closed else entry.is_current

    def run(self, values: list[Any]) -> Any:
        found = self.direct(values)
        return self.finish(self.entry.run(values) if found is None else found)


def _always() -> bool:
    return True


def compile_form(fusion: Fusion, args: Sequence[Any], kwargs: dict[str, Any]) -> NativeForm | Declined:
    """The form of a fused function for arguments like these, or why it has none."""
    if fusion.compiler is None:
        fusion.compiler = FusedSource(fusion.function)
    every, structure = flatten((args, tuple(kwargs.values())))
    settings = tuple((i, x) for i, x in enumerate(every) if not is_array_leaf(x))
    leaves = [x for x in every if is_array_leaf(x)]
    why = _why_not_native(leaves)
    if why:
        return Declined(why)
    try:
        static = (("names", tuple(kwargs)), ("settings", settings))
        # the form serves all callers, so that it notes the line of none
        with override_modes(locates=False):
            entry = Specialization(fusion.compiler, static, structure, leaves, ())
    except (SideEffectError, LeakError):
        raise
    except (PullbackError, *UNTYPED) as error:
        # it runs as it stands: if something is wrong with the arguments, it says so itself
        why = f"it cannot be traced: {str(error).partition(chr(10))[0]}"
        _LOG.info("fuse: %s runs op by op: %s", fusion.compiler.__name__, why)
        return Declined(why)
    if entry.has_impure_ops:
        return Declined("it calls an op that may run only once")
    if find_target(entry.staged) is None:
        return Declined("this machine has no native code for it")
    return NativeForm(entry, is_closed=is_package_code(getattr(fusion.function, "__code__", None)))


def is_array_leaf(x: Any) -> bool:
    """Whether a leaf of the arguments is an array or a value, and no setting."""
    return isinstance(x, Value) or is_array(x)


def _why_not_native(leaves: Sequence[Any]) -> str:
    specs = [spec_of(x) for x in leaves]
    if not any(s.inexact for s in specs):
        return "no argument is a floating-point array"
    for s in specs:
        if not takes_arrays_of(s):
            return f"native code has no {s.dtype.name} arrays" + ("" if s.device == "cpu" else f" on {s.device}")
        if not s.size:
            return "an array is empty"
    return ""
