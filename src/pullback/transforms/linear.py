"""Linear function in, its transpose out; a function that is not linear is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..arrays.backends import is_array
from ..arrays.node import Node
from ..arrays.scope import running
from ..arrays.spec import Spec, spec_of, zeros
from ..arrays.tensor import Tensor
from ..arrays.trees import flatten, listed, unflatten
from ..errors import ArgumentError
from ..ops.op import OUT
from ..ops.record import PartRule
from ..tape.sweep import deepest_first
from .border import as_float, scalars_become_arrays
from .reverse import Pullback

__all__ = ["linear_transpose", "transposed"]


def linear_transpose(f: Callable[..., Any], *primals: Any) -> Callable[[Any], tuple[Any, ...]]:
    """The transpose of a linear function: cotangents of its result in, a tuple of cotangents of its arguments out.

    The primals say only shapes and dtypes (arrays or specs); f must be linear in all of them together, and that is
    checked.

    >>> import numpy as np, pullback as pb
    >>> pb.linear_transpose(lambda x: 2.0 * x[1:] - x[:-1], np.zeros(3))(np.array([1.0, 1.0]))
    (array([-1.,  1.,  2.]),)
    """
    leaves, structure = flatten(primals)
    specs = [
        x if isinstance(x, Spec) else spec_of(as_float(x, "linear_transpose", structure, i))
        for i, x in enumerate(leaves)
    ]
    shape: Any = None

    def flat(*inputs: Any) -> list[Any]:
        nonlocal shape
        outs, shape = flatten(f(*unflatten(structure, inputs)))
        return [scalars_become_arrays(x, "linear_transpose") for x in outs]

    pull = transposed(flat, specs, "linear_transpose")

    def transpose(bar: Any) -> tuple[Any, ...]:
        answer: tuple[Any, ...] = unflatten(structure, pull(listed(shape, bar, "linear_transpose: the cotangent")))
        return answer

    return transpose


def transposed(f: Callable[..., list[Any]], specs: list[Spec], what: str) -> Callable[[list[Any]], list[Any]]:
    """The transpose of a linear function of arrays and lists. Run at zero, where a linear function is zero."""
    pullback = Pullback(f, [zeros(spec) for spec in specs], running())
    nodes = [out.node for out in pullback.outs if isinstance(out, Tensor) and out.node is not None]
    _refuse_nonlinear(nodes, pullback.variables(), what)
    for out in pullback.values():
        bare = out.value if isinstance(out, Tensor) else out
        if is_array(bare) and bool((bare != 0).any()):
            raise ArgumentError(f"{what}: the function is not linear: it is not zero at zero.")
    return pullback.pull


def _refuse_nonlinear(roots: list[Node], variables: frozenset[Node], what: str) -> None:
    """A step is linear in the variables if its cotangents are computed from nothing that depends on them."""
    moving = set(variables)
    for node in reversed(deepest_first(roots)):
        if node in variables or not any(parent in moving for parent in node.parents):
            continue
        moving.add(node)
        if type(node.rule) is PartRule:
            continue
        along = {i for i, parent in zip(node.rule.needs, node.parents, strict=True) if parent in moving}
        if any(node.rule.uses(i) & (along | {OUT}) for i in along):
            raise ArgumentError(f"{what}: the function is not linear: {node.name} is not.\n  made at {node.where()}")
