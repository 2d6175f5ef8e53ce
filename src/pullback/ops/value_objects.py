"""Frozen objects that are trees: their fields are children, so that every transform passes through them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar, dataclass_transform

from ..arrays.argument_checks import explains_arguments
from ..arrays.trees import map_tree, register_tree
from .dispatch import as_value
from .elementwise.pointwise import stop_gradient

Kind = TypeVar("Kind", bound=type)


def static(default: Any = dataclasses.MISSING) -> Any:
    """A field that belongs to the structure of the tree: a count of axes, a function."""
    return dataclasses.field(default=default, metadata={"static": True})


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(static,))
def value_object(kind: Kind) -> Kind:
    """A frozen dataclass that is a tree. A class with a constructor of its own keeps it. Objects are equal only to
    themselves, since arrays have no single truth.
    """
    made: Any = dataclasses.dataclass(frozen=True, eq=False, init="__init__" not in vars(kind))(kind)
    made.__init__ = explains_arguments(kind.__name__)(made.__init__)
    fields = dataclasses.fields(made)
    children = tuple(f.name for f in fields if "static" not in f.metadata)
    rest = tuple(f.name for f in fields if "static" in f.metadata)

    def flatten(tree: Any) -> tuple[Any, ...]:
        return tuple(getattr(tree, name) for name in children), tuple(getattr(tree, name) for name in rest), children

    def unflatten(fixed: Any, values: Any) -> Any:
        # not by the constructor: what a transform puts in the place of a parameter need not be an array
        tree: Any = object.__new__(made)
        set_fields(tree, dict(zip((*children, *rest), (*values, *fixed), strict=True)))
        return tree

    register_tree(made, flatten, unflatten)
    found: Kind = made
    return found


def set_fields(tree: Any, values: dict[str, Any]) -> None:
    """Set fields of a frozen object, while it is made."""
    for name, value in values.items():
        object.__setattr__(tree, name, value)


def with_fields(like: Any, values: dict[str, Any]) -> Any:
    """An object of a kind, of these fields: not by its constructor, which may want other arguments."""
    tree: Any = object.__new__(type(like))
    set_fields(tree, values)
    return tree


def as_parameter(x: Any) -> Any:
    """Lists become arrays; arrays, numbers and values of transforms stay."""
    return as_value(x)


def map_leaves(function: Callable[[Any], Any], tree: Any) -> Any:
    """The object with the function applied to each of its arrays."""
    return map_tree(function, tree)


def hold_constant(tree: Any) -> Any:
    """The object with parameters that are constants to every derivative; Python numbers are, and have no dtype."""
    return map_leaves(lambda x: x if isinstance(x, int | float) else stop_gradient(x), tree)
