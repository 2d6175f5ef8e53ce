"""Function that makes functions in, the same out, and what it makes can be pickled: as the call that made it.

A closure has no name under which another process could find it, but the function that made it has, and what that was
given mostly has too. Where it has not (a lambda), `pickle` says so, and `cloudpickle` stores its code.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any, NamedTuple, ParamSpec, TypeVar

from ..errors import GraphError

__all__ = ["Bound", "Recipe", "Transformed", "make_again", "name_of", "remade", "remember"]

P = ParamSpec("P")
R = TypeVar("R")


class Recipe(NamedTuple):
    """The call that made something."""

    maker: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def remade(maker: Callable[P, R]) -> Callable[P, R]:
    """The maker, and what it returns remembers how it was made."""

    @functools.wraps(maker)
    def making(*args: P.args, **kwargs: P.kwargs) -> R:
        recipe = Recipe(making, args, kwargs)
        made: Any = maker(*args, **kwargs)
        # most are functions, which need no look at a table of classes: gradients are made anew in many a loop
        found: Any = _transformed(made, recipe) if type(made) is FunctionType else remember(made, recipe)
        return found  # type: ignore[no-any-return]

    return making


@functools.singledispatch
def remember(made: Any, recipe: Recipe) -> Any:
    """What was made, with how; classes of things that are made register here."""
    return made


def make_again(maker: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The thing that a recipe says, where it arrived."""
    return maker(*args, **kwargs)


def name_of(thing: Any) -> str:
    """The name under which a thing is found in its module, as `pickle` looks for functions; empty if it is not."""
    name = str(getattr(thing, "__qualname__", ""))
    found: Any = sys.modules.get(getattr(thing, "__module__", None) or "")
    for part in name.split("."):
        found = getattr(found, part, None)
    return name if found is thing else ""


class Transformed(functools.partial):  # type: ignore[type-arg]
    """A function made of a function: called, bound to objects and shown like one."""

    recipe: Recipe

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __reduce__(self) -> Any:
        return name_of(self) or (make_again, tuple(self.recipe))

    def __repr__(self) -> str:
        return f"<{self.recipe.maker.__name__} of {self.func.__name__}>"


@remember.register(FunctionType)
def _transformed(made: FunctionType, recipe: Recipe) -> Transformed:
    found = Transformed(made)
    vars(found).update(
        vars(made), recipe=recipe, __module__=made.__module__, __name__=made.__name__, __doc__=made.__doc__,
        __qualname__=made.__qualname__,
    )  # fmt: skip
    return found


@remember.register(Transformed)
def _transformed_again(made: Transformed, recipe: Recipe) -> Any:
    return remember(made.func, recipe)


class Bound(functools.partial):  # type: ignore[type-arg]
    """A function that holds the graph of one call, which no other process can have."""

    def __reduce__(self) -> Any:
        raise GraphError(
            f"pickle: {self.func.__qualname__.split('.')[0]} returned a function that holds the graph of its call, "
            "and a graph cannot be stored.\n"
            "  Pickle the function that was differentiated, and call the transform where it arrives."
        )
