"""Predicates under `vmap`: one truth, or a mask of the elements for which they hold, and how masks are passed on.

The mask of the active elements is held in a context variable while a branch or a body runs, and predicates
inside are narrowed to it. So a loop in a branch does not wait for an element that never entered the branch.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import numpy as np

from ...arrays.backends import is_array
from ...arrays.protect import read_only_view
from ...arrays.scope import enclosing_scopes
from ...arrays.spec import Spec, spec_of
from ...arrays.tensor import Tensor, alias
from ...arrays.value import Value, unwrap_array
from ...errors import DtypeError, ShapeError
from ...ops.elementwise import pointwise
from ...program.ir import Symbol
from ..vectorize import Batched

#: Python's own numbers, which are weak in promotion.
PYTHON_NUMBERS = frozenset((bool, int, float, complex))


class BatchMask:
    """Which elements take part: a boolean that differs by element, and whether `some` or `all` of them do."""

    __slots__ = ("all", "some", "value")

    def __init__(self, value: Any) -> None:
        self.value = value
        raw = unwrap_array(value)  # all elements of all batches
        self.some, self.all = bool(raw.any()), bool(raw.all())


_current_mask: ContextVar[BatchMask | None] = ContextVar("pullback_taking_part", default=None)
_NO_MASK = contextlib.nullcontext()


def run_under_mask(mask: BatchMask | None) -> contextlib.AbstractContextManager[None]:
    """Run for the elements of a mask, None for all that took part before."""
    return _NO_MASK if mask is None else _set_mask(mask)


def runs_for_some() -> bool:
    """Whether the running code is for some elements of a batch and not for others."""
    mask = _current_mask.get()
    return mask is not None and not mask.all


@contextlib.contextmanager
def _set_mask(mask: BatchMask) -> Iterator[None]:
    before = _current_mask.get()
    _current_mask.set(mask)
    try:  # results of the other elements are discarded, so they give no warnings
        with _NO_MASK if mask.all else np.errstate(all="ignore"):
            yield
    finally:
        _current_mask.set(before)


def _mask_around() -> BatchMask | None:
    """The mask of the elements that take part, if any. One set around an op says nothing of what its value runs on bare
    arrays, which may be batches of its own.
    """
    mask = _current_mask.get()
    if mask is None or any(mask.value.scope is scope for scope in enclosing_scopes()):
        return mask
    return None


def narrow_mask(predicate: Any, within: BatchMask | None) -> BatchMask:
    """The elements of a mask, or of all that take part, for which a predicate holds."""
    within = within or _mask_around()
    return BatchMask(predicate if within is None else pointwise.logical_and(within.value, predicate))


def replace_inactive(x: Any) -> Any:
    """An integer by element, in which those that take no part have the number of one that does: it may be an index."""
    mask = _mask_around()
    if mask is None or mask.all or not isinstance(x, Batched):
        return x
    # The least one of an active element, so that a lookup by it stays in range.
    least = unwrap_array(pointwise.where(mask.value, x, int(np.iinfo(x.dtype).max))).min()
    return pointwise.where(mask.value, x, int(least))


def _strip_wrappers(x: Any, what: str) -> Any:
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
            return Batched(_strip_wrappers(x.value, what), x.axis, x.scope, x.made_by)
        if type(x) is Symbol:
            raise x.conversion_error(what)
        below = wrapper.scope.lower(x)
        if below is x:
            raise x.conversion_error(what)
        x = below
    return x


def check_boolean(x: Any, what: str) -> Any:
    """The predicate itself, if it is one boolean."""
    spec = _spec_of_leaf(x, what, "a boolean")
    if spec.dtype.kind != "b":
        raise DtypeError(f"{what} must be a boolean, got {spec}.\n  Compare it with something, as in x != 0.")
    if spec.shape:
        raise ShapeError(
            f"{what} must be one boolean, got {spec}.\n  Use pb.any or pb.all, or pb.where to choose by element."
        )
    return x


def to_bool(x: Any, what: str) -> Any:
    """A predicate as True or False, or as a `Batched` boolean."""
    found = _strip_wrappers(check_boolean(x, what), what)
    return found if isinstance(found, Batched) else bool(found)


def check_integer(x: Any, what: str) -> Any:
    """The number itself, if it is one integer."""
    spec = _spec_of_leaf(x, what, "an integer")
    if spec.dtype.kind not in "iu":
        raise DtypeError(f"{what} must be an integer, got {spec}.")
    if spec.shape:
        raise ShapeError(f"{what} must be one integer, got {spec}.")
    return x


def to_int(x: Any, what: str) -> Any:
    """A whole number as a Python int, or as a `Batched` integer."""
    found = _strip_wrappers(check_integer(x, what), what)
    return found if isinstance(found, Batched) else int(found)


def _spec_of_leaf(x: Any, what: str, wanted: str) -> Spec:
    if not isinstance(x, (Value, np.generic)) and not is_array(x) and type(x) not in PYTHON_NUMBERS:
        raise DtypeError(f"{what} must be {wanted}, got a {type(x).__name__}.")
    return spec_of(x)


def _differs_by_element(x: Any) -> bool:
    """Whether a value has an axis of some `vmap` inside; where that cannot be seen, it may."""
    if not isinstance(x, Value):
        return False
    parts = x.parts()
    return not parts or (type(x) is Batched and x.axis is not None) or any(map(_differs_by_element, parts))


def mask_operand(mask: BatchMask, now: Any, last: Any) -> Any:
    """A leaf as it enters a function that runs under a mask: its value where the element is active, elsewhere one that
    was valid before. No cotangent flows through the inactive elements, whatever the function computes there.
    """
    if now is last and not _differs_by_element(now):
        return now
    if not spec_of(now).inexact:
        return now if now is last else pointwise.where(mask.value, now, last)
    # The gradient stops there: 0 * inf from an inactive element would be NaN in all of them.
    return pointwise.where(mask.value, now, pointwise.stop_gradient(last))


def as_rebindable(x: Any) -> Any:
    """The same value under its own variable, which can be rebound without side effects. Of a bare array a view that is
    read-only; of a number a copy, for `n += 1`.
    """
    if type(x) is np.ndarray and not x.ndim:
        return x.copy()
    return read_only_view(x) if is_array(x) else alias(x)
