"""`hvp` and `ggnvp`: products with second derivatives that never form a matrix."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..arrays.argument_checks import check_functions
from ..arrays.spec import spec_of, zeros
from ..arrays.trees import flatten, map_tree
from ..errors import ArgumentError
from ..ops.dispatch import as_value
from .boundary import check_paired, restrict_arguments
from .forward import jvp
from .reverse import grad, vjp


def hvp(f: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
    """The product of the Hessian of a scalar function with a vector: forward over reverse, about four times f.

    `primals` and `tangents` are tuples as in `jvp`; the result is one tree for one argument, else a tuple of trees. It
    has None for arguments that cannot be differentiated, whose tangent is None.

    >>> import numpy as np, pullback as pb
    >>> pb.hvp(lambda x: pb.sum(x**3), (np.array([1.0, 2.0]),), (np.array([1.0, 0.0]),))
    array([6., 0.])
    """
    check_functions("hvp", f)
    floats = _float_positions(primals, tangents, "hvp")
    # Forward over reverse: one tangent through the gradient, no matrix.
    product = jvp(grad(f, floats), primals, tangents)[1]
    return _restore_positions(product, floats, len(primals))


def ggnvp(
    model: Callable[..., Any], loss: Callable[[Any], Any], primals: Sequence[Any], tangents: Sequence[Any]
) -> Any:
    """The product of the generalised Gauss-Newton matrix J^T H J with a vector, for loss(model(*primals)): J is the
    Jacobian of the model and H the Hessian of the loss in the model's result. It is positive semi-definite where the
    loss is convex, which the Hessian need not be.

    >>> import numpy as np, pullback as pb
    >>> model, loss = lambda w: w**2, lambda y: pb.sum(y**2)
    >>> pb.ggnvp(model, loss, (np.array([1.0, 2.0]),), (np.array([1.0, 1.0]),))
    array([ 8., 32.])
    """
    check_functions("ggnvp", model, loss)
    floats = _float_positions(primals, tangents, "ggnvp")
    moving = restrict_arguments(model, primals, floats)
    dots = tuple(tangents[i] for i in floats)
    # the model runs once, on duals on the tape: a second run could draw other random numbers
    (out, along), pull = vjp(lambda *xs: jvp(moving, xs, dots), *(primals[i] for i in floats))  # J v
    curved = hvp(loss, (out,), (along,))  # H J v
    still = map_tree(lambda x: zeros(spec_of(x)), along)
    return _restore_positions(pull((curved, still)), floats, len(primals))  # J^T H J v


def _float_positions(primals: Any, tangents: Any, what: str) -> tuple[int, ...]:
    """The arguments to differentiate: those with a tangent, and all that could have one."""
    check_paired(what, primals, tangents, "tangents")
    floats = tuple(i for i, x in enumerate(primals) if tangents[i] is not None or _is_inexact(x))
    if not floats:
        raise ArgumentError(f"{what}: all tangents are None.")
    return floats


def _is_inexact(tree: Any) -> bool:
    return all(spec_of(as_value(x)).inexact for x in flatten(tree)[0])


def _restore_positions(product: Sequence[Any], floats: tuple[int, ...], count: int) -> Any:
    """The product of each argument in its place, None where there is none."""
    found = dict(zip(floats, product, strict=True))
    return found.get(0) if count == 1 else tuple(map(found.get, range(count)))
