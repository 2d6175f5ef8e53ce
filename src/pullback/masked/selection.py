"""Masked arrays made of others: by a condition, where numbers are invalid, by choosing, by joining."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..arrays.argument_checks import explains_arguments
from ..arrays.spec import spec_of
from ..errors import DtypeError
from ..ops.dispatch import as_value
from ..ops.elementwise import pointwise
from ..ops.shape import arrange
from .values import MaskedArray, array, as_masked, of_parts


@explains_arguments("masked_where")
def masked_where(condition: Any, x: Any) -> MaskedArray:
    """x with entries masked where a condition holds, besides those that are.

    >>> import numpy as np, pullback as pb
    >>> x = np.array([1.0, -1.0])
    >>> pb.masked.masked_where(x < 0, x)
    masked([1.0 --])
    """
    condition = condition.filled(True) if isinstance(condition, MaskedArray) else as_value(condition)
    if spec_of(condition).dtype.kind != "b":
        raise DtypeError(
            f"masked_where: the condition comes first and holds booleans, got {spec_of(condition)}.\n"
            "  Write masked_where(condition, x)."
        )
    return array(x, condition)


def masked_invalid(x: Any) -> MaskedArray:
    """x with NaNs and infinities masked.

    >>> import numpy as np, pullback as pb
    >>> pb.masked.masked_invalid(np.array([1.0, np.nan])).mean().filled(0.0)
    array(1.)
    """
    found = as_masked(x)
    return array(found, pointwise.logical_not(pointwise.isfinite(found.harmless())))


def where(condition: Any, x: Any, y: Any) -> MaskedArray:
    """x where the condition holds, else y, each with its mask; masked where the condition is.

    >>> import numpy as np, pullback as pb
    >>> pb.masked.where(np.array([True, False]), pb.masked.array(np.ones(2), [True, True]), np.zeros(2))
    masked([-- 0.0])
    """
    condition, x, y = (as_masked(z) for z in (condition, x, y))
    which = condition.harmless()
    mask = pointwise.logical_or(pointwise.where(which, x.mask, y.mask), condition.mask)
    return of_parts(pointwise.where(which, x.harmless(), y.harmless()), mask)


def concat(arrays: Sequence[Any], axis: int = 0) -> MaskedArray:
    """Masked and plain arrays joined along an axis.

    >>> import numpy as np, pullback as pb
    >>> pb.masked.concat([pb.masked.array(np.ones(1), [True]), np.zeros(1)])
    masked([-- 0.0])
    """
    parts = [as_masked(x) for x in arrays]
    return of_parts(
        arrange.concat([x.data for x in parts], axis=axis), arrange.concat([x.mask for x in parts], axis=axis)
    )


def stack(arrays: Sequence[Any], axis: int = 0) -> MaskedArray:
    """Masked and plain arrays of one shape along a new axis.

    >>> import numpy as np, pullback as pb
    >>> pb.masked.stack([pb.masked.array(1.0, True), 0.0])
    masked([-- 0.0])
    """
    parts = [as_masked(x) for x in arrays]
    return of_parts(
        arrange.stack([x.data for x in parts], axis=axis), arrange.stack([x.mask for x in parts], axis=axis)
    )
