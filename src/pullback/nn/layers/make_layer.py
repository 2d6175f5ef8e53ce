"""Layers made from functions: `make_layer("ReLU", relu)` is a module whose fields are the settings of the function."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from ..module import Module
from ..spellings import accept_spellings

A = TypeVar("A")
#: What a module gives to its function besides its fields.
_OF_MODULE = ("training", "key")
_ELSEWHERE = {"dim": "axis", "start_dim": "start_axis", "end_dim": "end_axis", "unflattened_size": "sizes"}


class FunctionLayer(Module):
    """Abstract: a function of arrays as a module. `settings` are the names of its fields, those in `leading` are
    positional arguments of the function.
    """

    function: ClassVar[Callable[..., Any]]
    settings: ClassVar[dict[str, Any]] = {}
    leading: ClassVar[tuple[str, ...]] = ()
    uses_training: ClassVar[bool] = False
    takes_key: ClassVar[bool] = False

    def forward(self, x: A, /, *arrays: Any, **options: Any) -> A:
        """The function of the arrays, with the fields as its settings."""
        fields = {name: getattr(self, name) for name in self.settings if name not in self.leading}
        if self.uses_training:
            fields["training"] = self.training
        return type(self).function(x, *arrays, *(getattr(self, name) for name in self.leading), **fields, **options)

    def __repr__(self) -> str:
        """The settings that differ from their defaults."""
        shown = [
            f"{name}={getattr(self, name)!r}"
            for name, default in self.settings.items()
            if not _is_same(getattr(self, name), default)
        ]
        return f"{type(self).__name__}({', '.join(shown)})"


def _is_same(value: Any, default: Any) -> bool:
    return value is default or (type(value) is type(default) and bool(value == default))


def make_layer(name: str, function: Callable[..., Any], inputs: int = 1, example: str = "", **changed: Any) -> Any:
    """A module class for a function of so many arrays. `example` are arguments that its constructor may be called
    with; `changed` are defaults that differ from the function's.
    """
    parameters = list(inspect.signature(function).parameters.values())
    fields = [p for p in parameters[inputs:] if p.name not in _OF_MODULE]
    names = {p.name for p in parameters}
    defaults = {p.name: changed.get(p.name, p.default) for p in fields}
    spellings = {other: ours for other, ours in _ELSEWHERE.items() if ours in defaults}
    init = accept_spellings(_make_init(defaults), spellings, ("inplace",))
    body: dict[str, Any] = {
        "__module__": sys._getframe(1).f_globals["__name__"],
        "__qualname__": name,
        "__doc__": _docstring(name, function, example),
        "__init__": init,
        "function": staticmethod(function),
        "settings": defaults,
        "leading": tuple(p.name for p in fields if p.kind is p.POSITIONAL_ONLY),
        "uses_training": "training" in names,
        "takes_key": "key" in names,
        # a setting that is an array, such as the weights of classes, is not trained
        "buffers": tuple(defaults),
    }
    return type(name, (FunctionLayer,), body)


def _make_init(defaults: dict[str, Any]) -> Callable[..., None]:
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    of_self = inspect.Parameter("self", kind)
    given = [inspect.Parameter(n, kind, default=d, annotation=Any) for n, d in defaults.items()]
    # as in PyTorch, what must be given comes first
    signature = inspect.Signature([of_self, *sorted(given, key=lambda p: p.default is not p.empty)])

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807 - it becomes a method
        bound = signature.bind(self, *args, **kwargs)
        bound.apply_defaults()
        for name in defaults:
            setattr(self, name, bound.arguments[name])

    __init__.__signature__ = signature  # type: ignore[attr-defined]
    return __init__


def _docstring(name: str, function: Callable[..., Any], example: str) -> str:
    first = (inspect.getdoc(function) or "").split("\n\n")[0]
    return f"""`{function.__name__}` as a module, whose fields are its settings. {first}

    >>> import pullback as pb
    >>> pb.nn.{name}({example})
    {name}({example})
    """
