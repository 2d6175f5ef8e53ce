"""A predicate in, its truth out, or a mask of the elements of a `vmap` for which it holds, and how masks are handed on.

The mask of the elements that take part is kept in a context variable while a branch or a body runs, and predicates
inside are narrowed to it. So a loop in a branch does not wait for an element that never entered the branch.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import numpy as np

from ..arrays.backends import is_array
from ..arrays.protect import read_only
from ..arrays.spec import Spec, spec_of
from ..arrays.tensor import Tensor, another
from ..arrays.value import Value
from ..errors import DtypeError, ShapeError
from ..ops import elementwise as pointwise
from ..ops.specialise import Symbol
from .batching import Batched
from .forward import Dual

__all__ = [
    "NUMBERS",
    "Mask",
    "among_live",
    "entering",
    "integer",
    "narrowed",
    "one_integer",
    "one_truth",
    "own",
    "taking_part",
    "truth",
]

#: Python's own numbers, which give way to arrays in promotion.
NUMBERS = frozenset((bool, int, float, complex))


class Mask:
    """Which elements take part: a boolean that differs by element, and whether `some` or `all` of them do."""

    __slots__ = ("all", "some", "value")

    def __init__(self, value: Any) -> None:
        self.value = value
        raw = _raw(value)
        self.some, self.all = bool(raw.any()), bool(raw.all())


def _raw(x: Any) -> Any:
    """The array of all elements of all batches."""
    while isinstance(x, Batched):
        x = x.value
    return x


_around: ContextVar[Mask | None] = ContextVar("pullback_taking_part", default=None)
_NO_MASK = contextlib.nullcontext()


def taking_part(mask: Mask | None) -> contextlib.AbstractContextManager[None]:
    """Run for the elements of a mask, None for all that took part before."""
    return _NO_MASK if mask is None else _masked(mask)


@contextlib.contextmanager
def _masked(mask: Mask) -> Iterator[None]:
    before = _around.get()
    _around.set(mask)
    try:  # what the other elements compute is thrown away, so it gives no warnings
        with _NO_MASK if mask.all else np.errstate(all="ignore"):
            yield
    finally:
        _around.set(before)


def narrowed(predicate: Any, within: Mask | None) -> Mask:
    """The elements of a mask, or of all that take part, for which a predicate holds."""
    within = within or _around.get()
    return Mask(predicate if within is None else pointwise.logical_and(within.value, predicate))


def among_live(x: Any) -> Any:
    """An integer by element, in which those that take no part have the number of one that does: it may be an index."""
    mask = _around.get()
    if mask is None or mask.all or not isinstance(x, Batched):
        return x
    least = _raw(pointwise.where(mask.value, x, int(np.iinfo(x.dtype).max))).min()
    return pointwise.where(mask.value, x, int(least))


def _known(x: Any, what: str) -> Any:
    """A boolean or an integer without the wrappers that mean nothing to it: a bare array or number, or a `Batched` of
    one where it differs by element. Such values carry no derivatives: at a level of derivatives they are constants.
    """
    while isinstance(x, Value):
        if type(x) is Tensor:
            x = x.value
            continue
        wrapper: Any = x
        wrapper.scope.check()
        if type(x) is Batched and x.axis is not None:
            return Batched(_known(x.value, what), x.axis, x.scope, x.made_by)
        if type(x) is Symbol:
            raise x.refusal(what)
        below = wrapper.scope.lower(x)
        if below is x:
            raise x.refusal(what)
        x = below
    return x


def one_truth(x: Any, what: str) -> Any:
    """The predicate itself, if it is one boolean."""
    spec = _spec_of_leaf(x, what, "a boolean")
    if spec.dtype.kind != "b":
        raise DtypeError(f"{what} must be a boolean, got {spec}.\n  Compare it with something, as in x != 0.")
    if spec.shape:
        raise ShapeError(
            f"{what} must be one boolean, got {spec}.\n  Use pb.any or pb.all, or pb.where to choose by element."
        )
    return x


def truth(x: Any, what: str) -> Any:
    """A predicate as True or False, or as a `Batched` boolean."""
    found = _known(one_truth(x, what), what)
    return found if isinstance(found, Batched) else bool(found)


def one_integer(x: Any, what: str) -> Any:
    """The number itself, if it is one integer."""
    spec = _spec_of_leaf(x, what, "an integer")
    if spec.dtype.kind not in "iu":
        raise DtypeError(f"{what} must be an integer, got {spec}.")
    if spec.shape:
        raise ShapeError(f"{what} must be one integer, got {spec}.")
    return x


def integer(x: Any, what: str) -> Any:
    """A whole number as a Python int, or as a `Batched` integer."""
    found = _known(one_integer(x, what), what)
    return found if isinstance(found, Batched) else int(found)


def _spec_of_leaf(x: Any, what: str, wanted: str) -> Spec:
    if not isinstance(x, (Value, np.generic)) and not is_array(x) and type(x) not in NUMBERS:
        raise DtypeError(f"{what} must be {wanted}, got a {type(x).__name__}.")
    return spec_of(x)


def _differs(x: Any) -> bool:
    """Whether a value has an axis of some `vmap` inside; where that cannot be seen, it may."""
    if type(x) is Batched:
        return x.axis is not None or _differs(x.value)
    if type(x) is Dual:
        return _differs(x.primal) or _differs(x.along)
    return _differs(x.value) if type(x) is Tensor else isinstance(x, Value)


def entering(mask: Mask, now: Any, last: Any) -> Any:
    """A leaf as it enters a function that runs under a mask: its value where the element takes part, elsewhere one that
    was good before. No cotangent comes back from there, whatever the function makes of it.
    """
    if now is last and not _differs(now):
        return now
    if not spec_of(now).inexact:
        return now if now is last else pointwise.where(mask.value, now, last)
    return pointwise.where(mask.value, now, pointwise.stop_gradient(last))


def own(x: Any) -> Any:
    """The same value under a variable that can be rebound without anybody else noticing."""
    return read_only(x) if is_array(x) else another(x)
