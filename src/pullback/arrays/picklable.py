"""Functions that transforms return can be pickled: as the call that made them.

A closure has no name under which another process could find it, but the function that made it has, and what that was
given mostly has too. Where it has not (a lambda), `pickle` says so, and `cloudpickle` stores its code.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import sys
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any, NamedTuple, ParamSpec, TypeVar

from ..errors import GraphError

P = ParamSpec("P")
R = TypeVar("R")


#: What some transforms return, in words.
_NOUNS = {"grad": "gradient", "value_and_grad": "value and gradient", "elementwise_grad": "elementwise derivative"}


class MakerCall(NamedTuple):
    """The call that made something."""

    maker: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def picklable(maker: Callable[P, R]) -> Callable[P, R]:
    """The maker, and what it returns remembers how it was made."""

    @functools.wraps(maker)
    def making(*args: P.args, **kwargs: P.kwargs) -> R:
        maker_call = MakerCall(making, args, kwargs)
        made: Any = maker(*args, **kwargs)
        # most are functions, which need no look at a table of classes: gradients are made anew in many a loop
        found: Any = _transformed(made, maker_call) if type(made) is FunctionType else attach_maker(made, maker_call)
        return found  # type: ignore[no-any-return]

    return making


@functools.singledispatch
def attach_maker(made: Any, maker_call: MakerCall) -> Any:
    """What was made, with how: a dataclass with a field `maker_call`, or a class that registers here."""
    return dataclasses.replace(made, maker_call=maker_call) if hasattr(made, "maker_call") else made


def reduce_made(made: Any) -> Any:
    """How a dataclass with a field `maker_call` is pickled: as that call, or without one by its other fields."""
    if made.maker_call is not None:
        return call_maker, tuple(made.maker_call)
    fields = [f.name for f in dataclasses.fields(made) if f.name != "maker_call"]
    return type(made), tuple(getattr(made, name) for name in fields)


def call_maker(maker: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The thing that a maker_call says, where it arrived."""
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

    maker_call: MakerCall

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __reduce__(self) -> Any:
        return name_of(self) or (call_maker, tuple(self.maker_call))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.func, name)

    def __repr__(self) -> str:
        return f"<{describe_call(self.maker_call, self.func)}>"


def describe_function(f: Any) -> str:
    """A function by its name; one that a transform made, by what it is."""
    if isinstance(f, Transformed):
        return f"({describe_call(f.maker_call, f.func)})"
    return str(getattr(f, "__name__", type(f).__name__))


def describe_call(call: MakerCall, made: Any) -> str:
    """What a transform made of a function, in words: "gradient of loss with respect to w and b"."""
    name = call.maker.__name__
    text = f"{_NOUNS.get(name, name)} of {describe_function(getattr(made, '__wrapped__', made))}"
    options = inspect.signature(call.maker).bind(*call.args, **call.kwargs)
    options.apply_defaults()
    if "argnums" not in options.arguments:
        return text
    try:
        parameters = list(inspect.signature(made).parameters)
    except (TypeError, ValueError):  # a function of C may have none
        parameters = []
    given = options.arguments["argnums"]
    numbers = given if isinstance(given, (tuple, list)) else (given,)
    known = [parameters[i] if -len(parameters) <= i < len(parameters) else f"argument {i}" for i in numbers]
    return f"{text} with respect to {' and '.join(known) or 'nothing'}"


@attach_maker.register(FunctionType)
def _transformed(made: FunctionType, maker_call: MakerCall) -> Transformed:
    found = Transformed(made)
    found.maker_call = maker_call
    found.__module__, found.__doc__ = made.__module__, made.__doc__  # the class has its own; others are looked up
    return found


@attach_maker.register(Transformed)
def _transformed_again(made: Transformed, maker_call: MakerCall) -> Any:
    return attach_maker(made.func, maker_call)


class Bound(functools.partial):  # type: ignore[type-arg]
    """A function that holds the graph of one call, which no other process can have."""

    def __reduce__(self) -> Any:
        raise GraphError(
            f"pickle: {self.func.__qualname__.split('.')[0]} returned a function that holds the graph of its call, "
            "and a graph cannot be stored.\n"
            "  Pickle the function that was differentiated, and call the transform where it arrives."
        )
