"""Other spellings of arguments: PyTorch's keywords of constructors, beside our own."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from ..errors import ArgumentTypeError

Kind = TypeVar("Kind", bound=type)


def accept_spellings(*ignored: str, **spellings: str) -> Callable[[Kind], Kind]:
    """A decorator of classes: `accept_spellings(in_features="inputs")` lets the constructor take `in_features` for
    `inputs`. Keywords that are `ignored` make no difference here, as `inplace`.
    """

    def decorate(kind: Kind) -> Kind:
        construct: Any = kind.__init__  # type: ignore[misc]
        signature = inspect.signature(construct)
        known = [n for n in signature.parameters if n != "self"]

        @functools.wraps(construct)
        def init(self: Any, *args: Any, **kwargs: Any) -> None:
            name = type(self).__name__
            for other in [n for n in kwargs if n in spellings or n in ignored]:
                value = kwargs.pop(other)
                if other in ignored:
                    continue
                if spellings[other] in kwargs:
                    raise ArgumentTypeError(f"{name}: {other} is {spellings[other]}, and both are given.")
                kwargs[spellings[other]] = value
            try:
                signature.bind(self, *args, **kwargs)
            except TypeError as error:
                raise ArgumentTypeError(f"{name}: {error}.\n  Its arguments are {', '.join(known)}.") from None
            construct(self, *args, **kwargs)

        setattr(kind, "__init__", init)  # noqa: B010 - assigning to `kind.__init__` is no valid type
        setattr(kind, "spellings", {**getattr(kind, "spellings", {}), **spellings})  # noqa: B010
        return kind

    return decorate
