"""Arguments in, their arrays out, without asking the tree package: what a compiled function does at every call."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["Plan", "fixed_key", "order_of", "planned", "taken_apart"]

_ndarray = np.ndarray


class Plan:
    """How one container is taken apart: its class, its keys or its length, and plans for what is in it; `inside` is
    None where all of that are arrays.
    """

    __slots__ = ("count", "inside", "keys", "kind", "order")

    def __init__(
        self, kind: type, keys: list[Any] | None, count: int, inside: list[Any] | None, order: list[Any] | None = None
    ) -> None:
        self.kind, self.keys, self.count, self.inside, self.order = kind, keys, count, inside, order


def planned(args: tuple[Any, ...]) -> Plan | None:
    """The plan of a tuple of arguments; None if there are other things in it than arrays in dicts, lists, tuples, named
    tuples and None.
    """
    found = _plan(args)
    return found if isinstance(found, Plan) else None


def _plan(x: Any) -> Any:
    """The plan of a container, True for an array, None for anything else."""
    if type(x) is _ndarray:
        return True
    if x is None:
        return Plan(type(None), None, 0, None)
    if type(x) is dict:
        keys = _in_order(x)
        values = None if keys is None else [x[k] for k in keys]
    elif type(x) in (list, tuple) or (isinstance(x, tuple) and hasattr(x, "_fields")):
        keys, values = None, list(x)
    else:
        return None
    if values is None:
        return None
    inside = [_plan(v) for v in values]
    if any(p is None for p in inside):
        return None
    order = None if keys is None else list(x)
    return Plan(type(x), keys, len(values), None if all(p is True for p in inside) else inside, order)


def _in_order(x: dict[Any, Any]) -> list[Any] | None:
    """The keys as a tree has them; None if they have no order."""
    try:
        return sorted(x)
    except TypeError:
        return None


def taken_apart(x: Any, plan: Plan, leaves: list[Any]) -> bool:
    """Add the arrays in a container to `leaves`; False if it is not as planned. What is taken for arrays, native code
    checks.
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
    if plan.inside is None:
        leaves += items
        return True
    for item, inner in zip(items, plan.inside, strict=True):
        if inner is True:
            leaves.append(item)
        elif not taken_apart(item, inner, leaves):
            return False
    return True


def order_of(tree: Any) -> Any:
    """The keys of dicts in their order, which the structure of a tree leaves out; nothing where there are none."""
    if isinstance(tree, dict):
        return (*tree, *filter(None, map(order_of, tree.values())))
    if isinstance(tree, (list, tuple)):
        return tuple(filter(None, map(order_of, tree)))
    return None


def fixed_key(x: Any) -> Any:
    """What a static argument is known by: values that are equal but not the same (1 and True, 0.0 and -0.0) differ, and
    NaN is found again.
    """
    if isinstance(x, (tuple, frozenset)):
        return type(x), tuple(map(fixed_key, x)) if isinstance(x, tuple) else frozenset(map(fixed_key, x))
    if isinstance(x, (float, complex)):
        return type(x), repr(x)
    return type(x), x
