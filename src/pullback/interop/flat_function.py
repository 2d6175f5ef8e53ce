"""A function of trees as functions of one float64 vector, as SciPy takes them, with exact derivatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..arrays.spec import spec_of
from ..arrays.tensor import Tensor, tensor
from ..arrays.trees import flatten, unflatten
from ..arrays.value import Value
from ..compile.jit import jit
from ..errors import ArgumentError, ConversionError
from ..implicit.vector_layout import VectorLayout
from ..ops.dispatch import as_value
from ..ops.reduce.reductions import sum as total
from ..ops.shape.arrange import concat
from ..ops.shape.reshaping import astype, reshape
from ..transforms.curvature_products import hvp
from ..transforms.jacobian.functions import hessian, jacobian
from ..transforms.reverse import value_and_grad


class UnknownTree:
    """The tree that is solved for, as a float64 vector and back."""

    def __init__(self, x0: Any, what: str) -> None:
        self.what = what
        leaves, structure = flatten(x0)
        plain = [self._concrete_leaf(x) for x in leaves]
        self.layout, values = VectorLayout.from_tree(unflatten(structure, plain), what)
        self.tensors = [isinstance(x, Tensor) for x in leaves]
        self.start = np.array(self.layout.join_leaves(values), np.float64)

    def _concrete_leaf(self, x: Any) -> Any:
        x = x.detach().value if isinstance(x, Tensor) else x
        if isinstance(x, Value):
            raise ConversionError(
                f"{self.what}: SciPy needs concrete values, and {x!r} is inside a transform.\n"
                "  pb.argmin, pb.root and pb.least_squares can be differentiated and batched."
            )
        return x

    def to_tree(self, vector: Any) -> Any:
        """A vector as the tree, whose leaves have their own shapes and dtypes."""
        return self.layout.to_tree(astype(vector, self.layout.dtype))

    def from_vector(self, vector: Any) -> Any:
        """SciPy's result as a tree like x0: tensors where there were tensors."""
        leaves, structure = flatten(self.to_tree(np.asarray(vector)))
        pairs = zip(leaves, self.tensors, strict=True)
        return unflatten(structure, [tensor(x) if wanted else np.array(x) for x, wanted in pairs])


class FlatFunction:
    """A function of the tree as a function of the vector; derivatives are built, and compiled, on demand."""

    def __init__(self, unknown: UnknownTree, f: Callable[..., Any], args: tuple[Any, ...], compiled: bool) -> None:
        if not callable(f):
            raise ArgumentError(f"{unknown.what}: wants a function, got a {type(f).__name__}.")
        self.unknown = unknown
        self.f = f
        self.args = args
        self.maybe_jit: Callable[[Any], Any] = jit if compiled else lambda g: g

    def call_scalar(self, v: Any) -> Any:
        out = as_value(self.f(self.unknown.to_tree(v), *self.args))
        if spec_of(out).size != 1 or not spec_of(out).inexact:
            raise ArgumentError(
                f"{self.unknown.what}: the function should return one floating-point number, got {spec_of(out)}."
            )
        return reshape(out, ())

    def call_vector(self, v: Any) -> Any:
        """All results, concatenated."""
        leaves = [as_value(x) for x in flatten(self.f(self.unknown.to_tree(v), *self.args))[0]]
        flat = [reshape(x, (spec_of(x).size,)) for x in leaves]
        return flat[0] if len(flat) == 1 else concat(flat)

    def value(self) -> Callable[[Any], float]:
        found = self.maybe_jit(self.call_scalar)
        return lambda v: float(found(v))

    def value_and_gradient(self) -> Callable[[Any], tuple[float, Any]]:
        found = self.maybe_jit(value_and_grad(self.call_scalar))

        def evaluate(v: Any) -> tuple[float, Any]:
            value, gradient = found(v)
            return float(value), np.asarray(gradient, np.float64)

        return evaluate

    def hessian(self) -> Callable[[Any], Any]:
        return _with_float64(self.maybe_jit(hessian(self.call_scalar)))

    def hessian_product(self) -> Callable[[Any, Any], Any]:
        return _with_float64(self.maybe_jit(lambda v, along: hvp(self.call_scalar, (v,), (along,))))

    def residuals(self) -> Callable[[Any], Any]:
        return _with_float64(self.maybe_jit(self.call_vector))

    def jacobian(self) -> Callable[[Any], Any]:
        return _with_float64(self.maybe_jit(jacobian(self.call_vector)))

    def weighted_hessian_product(self) -> Callable[[Any, Any, Any], Any]:
        """The Hessian of a weighted sum of the results times a vector."""
        return _with_float64(
            self.maybe_jit(lambda v, w, along: hvp(lambda x: total(w * self.call_vector(x)), (v,), (along,)))
        )


def _with_float64(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: np.asarray(f(*(np.asarray(a, np.float64) for a in args)), np.float64)


def bounds_as_vectors(unknown: UnknownTree, bounds: Any) -> tuple[Any, Any]:
    """Lower and upper bounds as vectors: each a number, None, or a tree like the unknown whose entries broadcast."""
    if not isinstance(bounds, (tuple, list)) or len(bounds) != 2:
        raise ArgumentError(
            f"{unknown.what}: bounds are (lower, upper), each None, a number or a tree like x0, got {bounds!r}."
        )
    return _bound_as_vector(unknown, bounds[0], -np.inf), _bound_as_vector(unknown, bounds[1], np.inf)


def _bound_as_vector(unknown: UnknownTree, bound: Any, nothing: float) -> Any:
    specs, structure = unknown.layout.specs, unknown.layout.structure
    if bound is None or isinstance(bound, (int, float)):
        entries: list[Any] = [bound] * len(specs)
    elif structure is None:
        entries = [bound]
    else:
        try:
            entries = list(structure.flatten_up_to(bound))
        except ValueError as error:
            raise ArgumentError(f"{unknown.what}: bounds do not look like x0: {error}") from None
    full = [nothing if e is None else e for e in entries]
    pairs = zip(full, specs, strict=True)
    return np.concatenate([np.broadcast_to(np.asarray(e, np.float64), s.shape).ravel() for e, s in pairs])
