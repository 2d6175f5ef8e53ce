"""Norms of gradients as something to minimize: `grad_norm` and `gradient_penalty`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..arrays.argument_checks import check_functions, explains_arguments
from ..arrays.picklable import picklable
from ..arrays.spec import Spec, spec_of
from ..arrays.trees import flatten, unflatten
from ..errors import ArgumentError, ShapeError
from ..implicit.vector_layout import VectorLayout
from ..ops.dispatch import as_value, shape
from ..ops.elementwise.pointwise import equal, sqrt, where
from ..ops.random.samplers import uniform
from ..ops.reduce.reductions import mean
from ..ops.reduce.reductions import sum as total
from ..transforms.reverse import grad
from ..transforms.vectorize import vmap


@picklable
@explains_arguments("grad_norm")
def grad_norm(f: Callable[..., Any]) -> Callable[..., Any]:
    """The norm of the gradient of a scalar function by its first argument, a tree: `grad_norm(f)(x, *args)`. Where the
    gradient vanishes, its own derivative is 0.

    >>> import numpy as np, pullback as pb
    >>> pb.curvature.grad_norm(lambda x: pb.sum(x * x) / 2)(np.array([3.0, 4.0]))
    array(5.)
    """
    check_functions("grad_norm", f)

    def norm(x: Any, *args: Any) -> Any:
        layout, _ = VectorLayout.from_tree(x, "grad_norm")
        return safe_norm(layout.to_vector(grad(f)(x, *args), "grad_norm"))

    return norm


def safe_norm(v: Any) -> Any:
    """The root of the sum of squares, with derivative 0 at 0."""
    squares = total(v * v)
    is_zero = equal(squares, 0)
    return where(is_zero, 0, sqrt(where(is_zero, 1, squares)))


@picklable
@explains_arguments("gradient_penalty")
def gradient_penalty(
    f: Callable[..., Any], x: Any, *args: Any, target: Any = 1.0, toward: Any = None, key: Any = None
) -> Any:
    """The mean over samples of (norm of the gradient of `f(x, *args)` by x - target)^2, for samples along the first
    axis of x, where f takes one sample and returns a number: added to the loss of a critic f, it keeps f from being
    steep (Gulrajani et al., 2017). With `toward`, a tree like x, and a key, gradients are taken at random points
    between both. It can be differentiated by whatever f depends on.

    >>> import numpy as np, pullback as pb
    >>> pb.curvature.gradient_penalty(lambda x, w: pb.sum(w * x), np.ones((4, 2)), np.array([3.0, 4.0]))
    array(16.)
    """
    check_functions("gradient_penalty", f)
    if (toward is None) != (key is None):
        raise ArgumentError(
            "gradient_penalty: random points between x and toward= are drawn by key=: give both or none."
        )
    if toward is not None:
        x = _between(x, toward, key)
    norms = vmap(lambda one: grad_norm(f)(one, *args))(x)
    return mean((norms - target) ** 2)


def _between(x: Any, y: Any, key: Any) -> Any:
    """Points of the segments between samples of both, which may be trees: one for each sample."""
    xs, structure = flatten(x)
    ys, others = flatten(y)
    specs = [spec_of(as_value(z)) for z in xs]
    shapes = [s.shape for s in specs]
    if structure != others or shapes != [shape(as_value(z)) for z in ys] or len({s[:1] for s in shapes}) > 1:
        raise ShapeError(
            "gradient_penalty: toward= is like x, with one sample for each place of the first axis: got arrays of "
            f"shapes {shapes} and {[shape(as_value(z)) for z in ys]}."
        )
    return unflatten(structure, [_mix(u, v, s, key) for u, v, s in zip(xs, ys, specs, strict=True)])


def _mix(x: Any, y: Any, spec: Spec, key: Any) -> Any:
    from_y = uniform(size=(*spec.shape[:1], *(1,) * (spec.ndim - 1)), key=key, dtype=spec.dtype)
    return x + from_y * (y - x)
