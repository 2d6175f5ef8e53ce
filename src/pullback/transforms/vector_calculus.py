"""`laplacian` and `divergence`: traces of derivatives.

Both need a derivative along each of the n axes, and nothing between different axes: all directions run at once, as one
batch, and the function's own values are computed once for all of them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

from ..arrays.argument_checks import check_functions
from ..arrays.backends import namespace_on
from ..arrays.picklable import picklable
from ..arrays.spec import Spec, spec_of
from ..arrays.trees import LEAF, flatten
from ..errors import ArgumentError, DtypeError, ShapeError
from ..ops.reduce.reductions import sum as summed
from ..ops.shape.arrange import diagonal
from ..ops.shape.reshaping import reshape
from .boundary import as_differentiable
from .forward import jvp
from .taylor.coefficient_rules import add_or_none
from .taylor.jet import jet
from .vectorize import vmap


@picklable
def laplacian(f: Callable[..., Any], *, batch_size: int | None = None) -> Callable[..., Any]:
    """The sum of the second derivatives of a scalar function along each element of its first argument: the trace of
    the Hessian, without the Hessian. `batch_size` limits how many elements are worked on at once, to save memory.

    >>> import numpy as np, pullback as pb
    >>> pb.laplacian(lambda x: pb.sum(x**3))(np.array([1.0, 2.0]))
    array(18.)
    """
    check_functions("laplacian", f)
    _check_batch_size(batch_size, "laplacian")

    @functools.wraps(f)
    def trace_of(x: Any, *rest: Any, **kwargs: Any) -> Any:
        x = _as_real_array(x, "laplacian")

        def second_derivative(direction: Any) -> Any:
            out, (_, second) = jet(lambda y: f(y, *rest, **kwargs), (x,), ([direction, None],))
            _check_scalar(out)
            return second

        total = None
        for _, directions in _unit_directions(spec_of(x), batch_size):
            total = add_or_none(total, summed(vmap(second_derivative)(directions), axis=0))
        return total

    return trace_of


@picklable
def divergence(f: Callable[..., Any], *, batch_size: int | None = None) -> Callable[..., Any]:
    """The sum of the derivatives of each element of f(x) by the same element of x, its first argument: the trace of
    the Jacobian, without the Jacobian. `batch_size` limits how many elements are worked on at once, to save memory.

    >>> import numpy as np, pullback as pb
    >>> pb.divergence(lambda x: x**2 + pb.flip(x))(np.array([1.0, 2.0]))
    array(6.)
    """
    check_functions("divergence", f)
    _check_batch_size(batch_size, "divergence")

    @functools.wraps(f)
    def trace_of(x: Any, *rest: Any, **kwargs: Any) -> Any:
        x = _as_real_array(x, "divergence")
        spec = spec_of(x)

        def push(direction: Any) -> Any:
            out, tangent = jvp(lambda y: f(y, *rest, **kwargs), (x,), (direction,))
            _check_field(out, spec)
            return reshape(tangent, (spec.size,))

        total = None
        for first, directions in _unit_directions(spec, batch_size):
            # Row i is the derivative along axis first + i, of which that same element counts.
            total = add_or_none(total, summed(diagonal(vmap(push)(directions), offset=first), axis=0))
        return total

    return trace_of


def _unit_directions(spec: Spec, batch_size: int | None) -> Iterator[tuple[int, Any]]:
    """Unit directions along each element, in batches, each with the number of its first."""
    xp, n = namespace_on(spec.device), spec.size
    step = n if batch_size is None else batch_size
    for first in range(0, max(n, 1), max(step, 1)):  # no elements: one batch of no directions
        rows = xp.eye(min(step, n - first), n, first, spec.dtype)
        yield first, rows.reshape(len(rows), *spec.shape)


def _check_batch_size(batch_size: int | None, what: str) -> None:
    if batch_size is not None and (type(batch_size) is not int or batch_size < 1):
        raise ArgumentError(f"{what}: batch_size is {batch_size!r}, wanted a positive whole number or None.")


def _as_real_array(x: Any, what: str) -> Any:
    if flatten(x)[1] is not LEAF:
        raise ArgumentError(f"{what}: the argument is a {type(x).__name__}, wanted one array.")
    x = as_differentiable(x, what)
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
