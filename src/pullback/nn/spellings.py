"""Other spellings of arguments: PyTorch's keywords of constructors, beside our own."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any, get_overloads

from ..errors import ArgumentTypeError


def accept_overloads(construct: Callable[..., None]) -> Callable[..., None]:
    """A decorator of a constructor with overloads: one that says `in_features` where the constructor says `inputs` lets
    it take that keyword. What an overload has besides makes no difference here, as `inplace`.
    """
    own = inspect.signature(construct).parameters
    spellings: dict[str, str] = {}
    ignored: list[str] = []
    for overload in get_overloads(construct):
        names = inspect.signature(overload).parameters
        others, renamed = [n for n in names if n not in own], [n for n in own if n not in names]
        spellings |= zip(others, renamed, strict=False)
        ignored += others[len(renamed) :]
    return accept_spellings(construct, spellings, ignored)


def accept_spellings(
    construct: Callable[..., None], spellings: Mapping[str, str], ignored: Collection[str]
) -> Callable[..., None]:
    """A constructor that also takes other keywords; `{"in_features": "inputs"}` says that `in_features` is `inputs`."""
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

    init.spellings = dict(spellings)  # type: ignore[attr-defined]  # for tests and the stub
    return init
