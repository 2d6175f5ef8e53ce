"""The fast path of argument flattening, without the tree package: it runs at every call of a compiled function."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arrays.backends import is_device_array
from ...arrays.tensor import Tensor

_ndarray = np.ndarray


class ArgumentPlan:
    """How one container is flattened: its class, its keys or its length, and plans for its items; `children` is None
    where all items are arrays.
    """

    __slots__ = ("children", "count", "keys", "kind", "order")

    def __init__(
        self, kind: type, keys: list[Any] | None, count: int, children: list[Any] | None, order: list[Any] | None = None
    ) -> None:
        self.kind, self.keys, self.count, self.children, self.order = kind, keys, count, children, order


def plan_arguments(args: tuple[Any, ...]) -> ArgumentPlan | None:
    """The plan of a tuple of arguments; None if it has anything but arrays in dicts, lists, tuples, named tuples and
    None.
    """
    found = _plan_container(args)
    return found if isinstance(found, ArgumentPlan) else None


def _plan_container(x: Any) -> Any:
    """The plan of a container, True for an array or a tensor, None for anything else."""
    if type(x) is _ndarray or type(x) is Tensor or is_device_array(x):
        return True
    if x is None:
        return ArgumentPlan(type(None), None, 0, None)
    if type(x) is dict:
        keys = _sorted_keys(x)
        values = None if keys is None else [x[k] for k in keys]
    elif type(x) in (list, tuple) or (isinstance(x, tuple) and hasattr(x, "_fields")):
        keys, values = None, list(x)
    else:
        return None
    if values is None:
        return None
    # one leaf that is no array sends the whole call through the tree package
    children = [_plan_container(v) for v in values]
    if any(p is None for p in children):
        return None
    order = None if keys is None else list(x)
    return ArgumentPlan(type(x), keys, len(values), None if all(p is True for p in children) else children, order)


def _sorted_keys(x: dict[Any, Any]) -> list[Any] | None:
    """The keys in a tree's order; None if they cannot be sorted."""
    try:
        return sorted(x)
    except TypeError:
        return None


def flatten_into(x: Any, plan: ArgumentPlan, leaves: list[Any]) -> bool:
    """Add the arrays in a container to `leaves`; False if it is not as planned. That leaves are arrays is checked by
    native code.
    """
    items: Any = x
    if type(x) is not plan.kind:
        return False
    if plan.count == 0:
        return not items
    if len(items) != plan.count:
        return False
    if plan.keys is not None:
        if list(items) != plan.order:  # a function sees the order of its dicts
            return False
        items = [items[k] for k in plan.keys]
    if plan.children is None:
        leaves += items
        return True
    for item, inner in zip(items, plan.children, strict=True):
        if inner is True:
            leaves.append(item)
        elif not flatten_into(item, inner, leaves):
            return False
    return True


def static_key(x: Any) -> Any:
    """The key of a static argument: values that are equal but not the same (1 and True, 0.0 and -0.0) differ, and NaN
    equals itself.
    """
    if isinstance(x, (tuple, frozenset)):
        return type(x), tuple(map(static_key, x)) if isinstance(x, tuple) else frozenset(map(static_key, x))
    if isinstance(x, (float, complex)):
        return type(x), repr(x)
    return type(x), x
