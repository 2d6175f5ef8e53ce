"""Arguments of a transformed function in, values it can run on; its results in, values of the level below out."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from typing import Any

from ..arrays.backends import is_array
from ..arrays.node import Node, call_of
from ..arrays.scope import Scope
from ..arrays.spec import spec_of
from ..arrays.tensor import Tensor
from ..arrays.trees import paths
from ..arrays.value import Value
from ..errors import ArgumentError, DtypeError, GraphError, LeakError, PullbackError
from ..ops import elementwise as pointwise
from ..ops.dispatch import as_value
from ..tape.sweep import deepest_first, leaves_of, others

__all__ = [
    "as_float",
    "at_places",
    "bare_of",
    "brought_out",
    "fresh",
    "has_leaves",
    "scalars_become_arrays",
    "with_aux",
]


def scalars_become_arrays(leaf: Any, what: str) -> Any:
    """A leaf of an argument as a value: numbers and NumPy scalars become 0-d arrays, other things are refused."""
    try:
        value = as_value(leaf)
    except PullbackError:
        raise
    except Exception:
        raise ArgumentError(f"{what}: arguments are trees of arrays, got a {type(leaf).__name__}.") from None
    if type(value) in (int, float, complex):
        return pointwise.positive(value)
    if spec_of(value).dtype.kind in "OSU":
        raise DtypeError(f"{what}: wants trees of arrays of numbers, got a {type(leaf).__name__}.")
    return value


def as_float(leaf: Any, what: str, structure: Any = None, number: int = 0) -> Any:
    """A leaf that is to be differentiated: a value of a floating-point or complex dtype."""
    value = scalars_become_arrays(leaf, what)
    if not spec_of(value).inexact:
        raise DtypeError(
            f"{what}: only floating-point and complex values can be differentiated, "
            f"argument{paths(structure)[number]} is {spec_of(value)}.\n  Convert it first, or leave it out of argnums."
        )
    return value


def with_aux(out: Any, what: str) -> tuple[Any, Any]:
    """What a function returned that answers a value and something beside it."""
    if not isinstance(out, tuple) or len(out) != 2:
        raise ArgumentError(f"{what}: with has_aux the function returns (value, aux), got a {type(out).__name__}.")
    return out


def at_places(function: Callable[..., Any], args: Sequence[Any], places: Sequence[int]) -> Callable[..., Any]:
    """The function of some of its arguments alone, the others being as they are."""

    def of_some(*values: Any) -> Any:
        filled = list(args)
        for i, value in zip(places, values, strict=True):
            filled[i] = value
        return function(*filled)

    return of_some


def has_leaves(node: Node | None, but: Set[Node | None]) -> bool:
    """Whether somebody may still differentiate with respect to what this node was computed from, beside `but`, the
    caller's own. Where these lie on top of what somebody else tracks, there is no need to look further down.
    """
    if node is None:
        return False
    floor = min((n.order for n in but if n is not None), default=0)
    return floor > 0 or others(deepest_first([node]), but)


def bare_of(x: Any) -> Any:
    """The array behind a value of any transform, None where there is none."""
    while isinstance(x, Value):
        for name in ("value", "primal", "start"):
            if hasattr(x, name):
                x = getattr(x, name)
                break
        else:
            return None
    return x


def fresh(x: Any) -> Any:
    """A bare array that leaves a transform, in memory of its own: it may be an argument, an array that the function
    closes over, or something that a rule keeps.
    """
    return x.copy() if is_array(x) else x


def _living_leaves(node: Node | None) -> list[Any]:
    """The leaves that a result hangs on and that their makers still hold."""
    leaves = [] if node is None else leaves_of(deepest_first([node]))
    return [tensor for leaf in leaves if (tensor := leaf.kept()) is not None and call_of(leaf) is None]


def brought_out(x: Any, scope: Scope) -> Any:
    """A result of the user's function, at the level of the scope that ran it or below."""
    while isinstance(x, Value) and x.level > scope.level:
        if not isinstance(x, Tensor):
            raise LeakError(f"{scope.name}: the function returned {x!r}, a value of a transform inside it.")
        if leaves := _living_leaves(x.node):
            updated = any(tensor is note[0] for tensor in leaves for note in scope.rebound or ())
            raise GraphError(
                f"{scope.name}: the result hangs on a leaf that was {'updated' if updated else 'made'} inside the "
                f"function, so its gradient would be lost outside.\n  made at {x.node.where() if x.node else ''}\n"
                f"  {'Update' if updated else 'Make'} the leaf before, call backward inside the function, or return "
                "x.detach()."
            )
        x = x.value
    return x
