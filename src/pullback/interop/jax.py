"""JAX: functions of ours as functions of its arrays, and its functions as ops of ours."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ..arrays.argument_checks import check_functions
from ..arrays.picklable import picklable
from .array_function import TreeFunction
from .foreign_op import TreeOp
from .jax_arrays import import_jax, narrow_number
from .jax_border import call_tree
from .jax_function import make_jax_function

__all__ = ["as_op", "wrap"]


@picklable
def wrap(f: Callable[..., Any], *, jit: bool = True) -> Callable[..., Any]:
    """A function of ours as a function of JAX's arrays, in trees, which returns such arrays: a `jax.custom_vjp` around
    a call back to the host. `jax.grad`, to any order, `jax.vmap` and `jax.jit` go through it; forward mode does not.

    f must be one that `pb.stage` can trace, since JAX asks for the shapes of its results. Leaves of the arguments that
    are no arrays or floats are settings. `jit=False` leaves f uncompiled on the host.

    >>> import pullback as pb
    >>> f = pb.interop.jax.wrap(lambda x: pb.sum(pb.sin(x) ** 2))
    >>> jax.grad(f)(jax.numpy.ones(3))  # doctest: +SKIP
    Array([0.9092974, 0.9092974, 0.9092974], dtype=float32)
    """
    what = "interop.jax.wrap"
    check_functions(what, f)
    trees = TreeFunction(f, jit, what)

    def call(*args: Any, **kwargs: Any) -> Any:
        arrays = (import_jax(what).Array, np.ndarray, np.generic, float)
        function, given = trees.split(args, kwargs, lambda x: isinstance(x, arrays), "an array of JAX or NumPy")
        return call_tree(function, what, given)

    return functools.update_wrapper(call, f) if hasattr(f, "__name__") else call


@picklable
def as_op(f: Callable[..., Any], *, pure: bool = False, jit: bool = True) -> Callable[..., Any]:
    """A function of JAX's arrays, in trees, as an op of ours: of arrays or tensors of ours, with derivatives of every
    order by `jax.vjp` and `jax.jvp`, batches by `jax.vmap`, and a place in compiled programs, which call back for it.

    What f closes over is constant. A backward pass computes f again. `jit=False` leaves f and its derivatives to run
    without `jax.jit`. `pure=True` says that f only computes its result, so that compiled programs may run it early and
    budgets again. Arrays of 64 bits are refused unless JAX is set to keep them.

    >>> import pullback as pb
    >>> softplus = pb.interop.jax.as_op(jax.nn.softplus)  # doctest: +SKIP
    >>> pb.grad(lambda x: pb.sum(softplus(x)))(np.zeros(2, np.float32))  # doctest: +SKIP
    array([0.5, 0.5], dtype=float32)
    """
    what = "interop.jax.as_op"
    import_jax(what)
    check_functions(what, f)
    name = getattr(f, "__name__", type(f).__name__)
    return TreeOp(functools.partial(make_jax_function, f, name, jit), pure, what, narrow_number)
