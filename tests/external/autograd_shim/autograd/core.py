"""autograd's two makers, made of `pb.vjp` and `pb.jvp`; its convention for complex numbers is the conjugate of ours."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import pullback as pb
from pullback.arrays.value import Value

from .extend import primitive, primitive_vjps
from .trees import conjugate, is_inexact, leaves, tree_map
from .vspaces import VSpace, vspace

__all__ = ["VSpace", "make_jvp", "make_vjp", "primitive", "primitive_vjps", "vspace"]


def make_vjp(fun: Callable[[Any], Any], x: Any) -> tuple[Callable[[Any], Any], Any]:
    """(pull, value); a result that is no float or complex number has a pull of zeros."""
    facts: list[Any] = []

    def watched(v: Any) -> Any:
        out = fun(v)
        if all(map(is_inexact, leaves(out))):
            return tree_map(as_array, out)
        warnings.warn("Output seems independent of input.", stacklevel=2)
        facts.append(out)
        return np.zeros(())

    value, pull = pb.vjp(watched, x)
    if facts:
        return lambda g: vspace(x).zeros(), facts[0]
    return lambda g: bare(conjugate(pull(conjugate(g))[0])), bare(value)


def make_jvp(fun: Callable[[Any], Any], x: Any) -> Callable[[Any], tuple[Any, Any]]:
    """The push at x: a tangent in, (value, tangent) out."""
    return lambda v: tuple(map(bare, pb.jvp(lambda at: tree_map(as_array, fun(at)), (x,), (v,))))


def as_array(leaf: Any) -> Any:
    """A leaf that pullback takes as a result."""
    return leaf if isinstance(leaf, Value) else np.asarray(leaf)


def bare(tree: Any) -> Any:
    """NumPy's scalars instead of its 0-d arrays, as autograd has it."""
    return tree_map(lambda leaf: leaf[()] if isinstance(leaf, np.ndarray) and leaf.ndim == 0 else leaf, tree)
