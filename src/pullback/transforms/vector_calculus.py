"""`laplacian` and `divergence`: traces of derivatives.

Both need a derivative along each of the n axes, and nothing between different axes: all directions run at once, as one
batch, and the function's own values are computed once for all of them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

from ..arrays.argument_checks import check_functions
from ..arrays.picklable import picklable
from ..arrays.spec import Spec, spec_of
from ..arrays.trees import LEAF, flatten
from ..errors import ArgumentError, DtypeError, ShapeError
from ..ops.reduce.reductions import sum as summed
from ..ops.shape.arrange import diagonal
from ..ops.shape.reshaping import reshape
from .boundary import as_differentiable, unit_rows
from .forward import jvp
from .taylor.coefficient_rules import add_or_none
from .taylor.jet import jet
from .vectorize import take_unit_directions, vmap


@picklable
def laplacian(f: Callable[..., Any], *, batch_size: int | None = None) -> Callable[..., Any]:
    """The sum of the second derivatives of a scalar function along each element of its first argument: the trace of
    the Hessian, without the Hessian. `batch_size` limits how many elements are worked on at once, to save memory.

    >>> import numpy as np, pullback as pb
    >>> pb.laplacian(lambda x: pb.sum(x**3))(np.array([1.0, 2.0]))
    array(18.)
    """
    check_functions("laplacian", f)

    def second_derivative(f: Callable[[Any], Any], x: Any, direction: Any) -> Any:
        out, (_, second) = jet(f, (x,), ([direction, None],))
        _check_scalar(out)
        return second

    return _sum_over_directions(f, batch_size, "laplacian", second_derivative, lambda rows, first: rows)


@picklable
def divergence(f: Callable[..., Any], *, batch_size: int | None = None) -> Callable[..., Any]:
    """The sum of the derivatives of each element of f(x) by the same element of x, its first argument: the trace of
    the Jacobian, without the Jacobian. `batch_size` limits how many elements are worked on at once, to save memory.

    >>> import numpy as np, pullback as pb
    >>> pb.divergence(lambda x: x**2 + pb.flip(x))(np.array([1.0, 2.0]))
    array(6.)
    """
    check_functions("divergence", f)

    def derivative(f: Callable[[Any], Any], x: Any, direction: Any) -> Any:
        out, tangent = jvp(f, (x,), (direction,))
        _check_field(out, spec_of(x))
        return reshape(tangent, (spec_of(x).size,))

    # Row i is the derivative along axis first + i, of which that same element counts.
    return _sum_over_directions(
        f, batch_size, "divergence", derivative, lambda rows, first: diagonal(rows, offset=first)
    )


def _sum_over_directions(
    f: Callable[..., Any],
    batch_size: int | None,
    what: str,
    derive: Callable[[Callable[[Any], Any], Any, Any], Any],
    select: Callable[[Any, int], Any],
) -> Callable[..., Any]:
    """The function that sums what is selected of the derivatives along all unit directions, a batch at a time."""
    if batch_size is not None and (type(batch_size) is not int or batch_size < 1):
        raise ArgumentError(f"{what}: batch_size is {batch_size!r}, wanted a positive whole number or None.")

    @functools.wraps(f)
    def trace_of(x: Any, *rest: Any, **kwargs: Any) -> Any:
        x = _as_real_array(x, what)
        total = None
        for first, directions in _unit_directions(spec_of(x), batch_size):
            # One batch of directions: the function's own values are computed once for all of them.
            with take_unit_directions(what):
                rows = vmap(lambda direction: derive(lambda y: f(y, *rest, **kwargs), x, direction))(directions)
            total = add_or_none(total, summed(select(rows, first), axis=0))
        return total

    return trace_of


def _unit_directions(spec: Spec, batch_size: int | None) -> Iterator[tuple[int, Any]]:
    """Unit directions along each element, in batches, each with the number of its first."""
    step = spec.size if batch_size is None else batch_size
    for first in range(0, max(spec.size, 1), max(step, 1)):  # no elements: one batch of no directions
        yield first, unit_rows(spec, first, min(step, spec.size - first))


def _as_real_array(x: Any, what: str) -> Any:
    if flatten(x)[1] is not LEAF:
        raise ArgumentError(f"{what}: the argument is a {type(x).__name__}, wanted one array.")
    x = as_differentiable(x, what)
    # A complex number moves in two directions, and a trace has one entry for it.
    if spec_of(x).dtype.kind == "c":
        raise DtypeError(f"{what}: the argument is {spec_of(x)}, wanted real numbers.")
    return x


def _check_scalar(out: Any) -> None:
    if flatten(out)[1] is not LEAF:
        raise ArgumentError(f"laplacian: the function returned a {type(out).__name__}, wanted a scalar.")
    if spec_of(out).size != 1:
        raise ShapeError(
            f"laplacian: the function returned {spec_of(out)}, wanted a scalar.\n"
            "  Reduce it (pb.sum), or batch over points: pb.vmap(pb.laplacian(f))."
        )


def _check_field(out: Any, spec: Spec) -> None:
    if flatten(out)[1] is not LEAF:
        raise ArgumentError(f"divergence: the function returned a {type(out).__name__}, wanted one array.")
    if spec_of(out).shape != spec.shape:
        raise ShapeError(
            f"divergence: the function maps shape {spec.shape} to {spec_of(out).shape}, wanted the same shape.\n"
            "  To batch over points: pb.vmap(pb.divergence(f))."
        )
