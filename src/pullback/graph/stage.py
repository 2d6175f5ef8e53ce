"""`pb.stage`, function and specs in, graph out: the same ops, traced instead of computed."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ..arrays.backends import is_array
from ..arrays.dtypes import NAMES
from ..arrays.picklable import picklable
from ..arrays.protect import as_immutable
from ..arrays.spec import Spec, spec_of
from ..arrays.tensor import Tensor
from ..arrays.trees import flatten, unflatten
from ..errors import ArgumentError, DtypeError, PullbackError
from ..ops.dispatch import as_value
from ..ops.specialize import Equation, stage_equations
from ..transforms.boundary import unwrap_to_level
from ..transforms.forward import jvp
from ..transforms.reverse import grad
from .ir import Graph, _derivative_slots


@picklable
def stage(f: Callable[..., Any]) -> Callable[..., Graph]:
    """A function of examples (trees of arrays or of specs) that traces f on symbols and returns its graph.

    >>> import numpy as np, pullback as pb
    >>> print(pb.stage(lambda x: pb.sum(pb.sin(x) * 2.0))(np.zeros(3)).text())
    graph(x0: float64[3])
      t0: float64[3] = sin(x0)
      t1: float64[3] = multiply(t0, 2.0)
      t2: float64[] = sum(t1, axis=(0,), keepdims=False)
      return t2
    """
    if not callable(f):
        raise ArgumentError(f"stage: wants a function, got a {type(f).__name__}.\n  Write stage(f)(*examples).")

    def stage_on(*args: Any, **kwargs: Any) -> Graph:
        leaves, arguments = flatten((args, kwargs))
        specs = [x if isinstance(x, Spec) else spec_of(_check_leaf(x, "argument")) for x in leaves]
        shape: list[Any] = []

        def flat(*symbols: Any) -> list[Any]:
            given, named = unflatten(arguments, symbols)
            outs, structure = flatten(f(*given, **named))
            shape.append(structure)
            results = [_check_leaf(x, "result") for x in outs]
            return [unwrap_to_level(x, symbols[0].scope) for x in results] if symbols else results

        inputs, equations, outs = stage_equations(flat, *specs)
        lines = tuple(Equation(e.results, e.op, tuple(map(_as_constant, e.args)), e.static) for e in equations)
        outputs = tuple(_as_constant(as_immutable(o) if is_array(o) else o) for o in outs)
        graph: Graph = Graph(tuple(inputs), lines, outputs, arguments, shape[0])
        return graph

    return functools.update_wrapper(stage_on, f) if hasattr(f, "__name__") else stage_on


def _check_leaf(x: Any, what: str) -> Any:
    try:
        value = as_value(x)
        if spec_of(value).dtype.name in NAMES:
            return value
        raise DtypeError(f"{spec_of(value).dtype} is no dtype of ours.")
    except PullbackError:
        raise ArgumentError(
            f"stage: each {what} is a tree of arrays, got a {type(x).__name__}.\n"
            "  Close over settings: stage(lambda x: f(x, setting))(x)."
        ) from None


def _as_constant(x: Any) -> Any:
    """An untracked tensor is a constant like its array, which never changes."""
    return x.value if type(x) is Tensor and x.node is None and is_array(x.value) else x


def _check_positions(given: Any, count: int, what: str) -> list[int]:
    """Positions as non-negative numbers."""
    numbers = [given] if isinstance(given, int) else list(given)
    for n in numbers:
        if not isinstance(n, int) or not -count <= n < count:
            raise ArgumentError(f"{what}: there is no {n!r}; the graph has {count}, counted from 0.")
    return [n % count for n in numbers]


def _float_arguments(args: tuple[Any, ...], wrt: Any, what: str) -> list[int]:
    if wrt is None:
        leaves = [flatten(a)[0] for a in args]
        return [i for i, specs in enumerate(leaves) if specs and all(s.inexact for s in specs)]
    return _check_positions(wrt, len(args), f"{what}: wrt")


def _derive_gradients(graph: Graph, outputs: Any = None, wrt: Any = None) -> Graph:
    args, kwargs = graph.specs()
    chosen = _float_arguments(args, wrt, "gradients")
    count = len(graph.outputs)
    picked = list(range(count)) if outputs is None else _check_positions(outputs, count, "gradients: outputs")
    for i in picked:
        spec = spec_of(graph.outputs[i])
        if spec.size != 1 or not spec.inexact:
            raise ArgumentError(
                f"gradients: output {i} is {spec}, wanted one floating number.\n"
                "  Stage a function that sums it up, or name the outputs to differentiate."
            )
    if not picked or not chosen:
        raise ArgumentError("gradients: there is nothing to differentiate.")

    def total(*given: Any, **named: Any) -> Any:
        outs = flatten(graph.run(*given, **named))[0]
        return functools.reduce(lambda x, y: x + y, [outs[i].reshape(()) for i in picked])

    one = isinstance(wrt, int) or (wrt is None and len(chosen) == 1)
    return stage(grad(total, argnums=chosen[0] if one else tuple(chosen)))(*args, **kwargs)


def _derive_jvp(graph: Graph, wrt: Any = None) -> Graph:
    args, kwargs = graph.specs()
    chosen = _float_arguments(args, wrt, "jvp")
    if not chosen:
        raise ArgumentError("jvp: no argument is floating.")

    def push(*given: Any, **named: Any) -> Any:
        primals, dots = given[: len(args)], iter(given[len(args) :])
        tangents = [next(dots) if i in chosen else None for i in range(len(args))]
        return jvp(functools.partial(graph.run, **named), primals, tangents)

    return stage(push)(*args, *(args[i] for i in chosen), **kwargs)


_derivative_slots += [_derive_gradients, _derive_jvp]
