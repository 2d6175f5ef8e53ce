"""The boundary of a transform: arguments checked on the way in, results lowered by one level on the way out."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from typing import Any

import numpy as np

from ..arrays.backends import copy_array, is_array, namespace_on
from ..arrays.node import Node
from ..arrays.scope import Scope
from ..arrays.spec import FLOAT8_CODES, Spec, spec_of
from ..arrays.tensor import Tensor
from ..arrays.trees import leaf_paths
from ..arrays.value import Value
from ..errors import ArgumentError, DtypeError, GraphError, LeakError, PullbackError
from ..ops.dispatch import as_value
from ..ops.elementwise import pointwise
from ..tape.sweep import has_foreign_leaves, leaves_of, order_deepest_first


def as_array_leaf(leaf: Any, what: str) -> Any:
    """A leaf of an argument as a value: numbers and NumPy scalars become 0-d arrays, other things are refused."""
    try:
        value = as_value(leaf)
    except PullbackError:
        raise
    except Exception:
        raise ArgumentError(f"{what}: arguments are trees of arrays, got a {type(leaf).__name__}.") from None
    # By an op, so that a number becomes an array in the dtype that promotion gives it.
    if type(value) in (int, float, complex):
        return pointwise.positive(value)
    if spec_of(value).dtype.kind in "OSU":
        raise DtypeError(f"{what}: wants trees of arrays of numbers, got a {type(leaf).__name__}.")
    return value


def as_differentiable(leaf: Any, what: str, structure: Any = None, number: int = 0) -> Any:
    """A leaf that is to be differentiated: a value of a floating-point or complex dtype."""
    value = as_array_leaf(leaf, what)
    if not spec_of(value).inexact or spec_of(value).dtype.char in FLOAT8_CODES:
        path = leaf_paths(structure)[number]
        raise DtypeError(
            f"{what}: only floating-point and complex values can be differentiated, "
            f"argument{path} is {spec_of(value)}.\n  Convert it first, or "
            + ("pass the other parts alone and close over this one" if path else "leave it out of argnums")
            + "."
        )
    return value


def check_paired(what: str, primals: Any, given: Any, noun: str) -> None:
    """The primals of a function and what goes with them (`noun`) are tuples of one length."""
    if not isinstance(primals, (tuple, list)) or not isinstance(given, (tuple, list)):
        raise ArgumentError(f"{what}: primals and {noun} are tuples, with one entry for each argument of the function.")
    if len(primals) != len(given):
        raise ArgumentError(f"{what}: got {len(primals)} primals and {noun} for {len(given)} arguments.")


def split_aux(out: Any, what: str) -> tuple[Any, Any]:
    """The (value, aux) pair that a function with `has_aux` returned."""
    if not isinstance(out, tuple) or len(out) != 2:
        raise ArgumentError(f"{what}: with has_aux the function returns (value, aux), got a {type(out).__name__}.")
    return out


def restrict_arguments(function: Callable[..., Any], args: Sequence[Any], places: Sequence[int]) -> Callable[..., Any]:
    """The function of some of its arguments alone, the others fixed."""

    def call_with(*values: Any) -> Any:
        filled = list(args)
        for i, value in zip(places, values, strict=True):
            filled[i] = value
        return function(*filled)

    return call_with


def has_leaves(node: Node | None, except_for: Set[Node | None]) -> bool:
    """Whether another caller may still differentiate with respect to a leaf of this node that is not in `except_for`,
    the caller's own. Where these lie on top of tracked values, there is no need to look further down.
    """
    if node is None:
        return False
    # Leaves have order zero: variables above that lie on tracked values, which others may differentiate.
    floor = min((n.order for n in except_for if n is not None), default=0)
    return floor > 0 or has_foreign_leaves(order_deepest_first([node]), except_for)


def unit_rows(spec: Spec, first: int, count: int) -> Any:
    """So many unit directions of a value, one after the other along the first axis, from element `first` on."""
    return namespace_on(spec.device).eye(count, spec.size, first, spec.dtype).reshape(count, *spec.shape)


def owned_copy(x: Any) -> Any:
    """A copy of a bare array that leaves a transform: it may be an argument, an array that the function closes over, or
    something that a rule saves.
    """
    if type(x) is np.ndarray:
        return x.copy()
    return copy_array(x, "C") if is_array(x) else x


def _live_leaves(node: Node | None) -> list[Any]:
    """The leaves that a result depends on and that their makers still hold."""
    leaves = [] if node is None else leaves_of(order_deepest_first([node]))
    return [tensor for leaf in leaves if (tensor := leaf.kept()) is not None and leaf.variable_of is None]


def unwrap_to_level(x: Any, scope: Scope) -> Any:
    """A result of the user's function, at the level of the scope that ran it or below."""
    # Levels above the scope's are those of tapes and transforms that began inside the function.
    while isinstance(x, Value) and x.level > scope.level:
        if not isinstance(x, Tensor):
            raise LeakError(f"{scope.name}: the function returned {x!r}, a value of a transform inside it.")
        # A tape inside the function may be dropped, unless a leaf that is still held would lose its gradient.
        if leaves := _live_leaves(x.node):
            updated = any(tensor is note[0] for tensor in leaves for note in scope.rebindings or ())
            raise GraphError(
                f"{scope.name}: the result depends on a leaf that was {'updated' if updated else 'made'} inside the "
                f"function, so its gradient would be lost outside.\n  made at {x.node.where() if x.node else ''}\n"
                f"  {'Update' if updated else 'Make'} the leaf before, call backward inside the function, or return "
                "x.detach()."
            )
        x = x.value
    return x
