"""Function and specs in, a graph out: the same ops, written down instead of computed."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ..arrays.backends import is_array
from ..arrays.dtypes import NAMES
from ..arrays.protect import settled
from ..arrays.remade import remade
from ..arrays.spec import Spec, spec_of
from ..arrays.tensor import Tensor
from ..arrays.trees import flatten, unflatten
from ..errors import ArgumentError, DtypeError, PullbackError
from ..ops.dispatch import as_value
from ..ops.specialise import Equation, write_down
from ..transforms.border import brought_out
from ..transforms.forward import jvp
from ..transforms.reverse import grad
from .ir import Graph, _derive

__all__ = ["stage"]


@remade
def stage(f: Callable[..., Any]) -> Callable[..., Graph]:
    """A function of examples (trees of arrays or of specs) that runs f on symbols and answers what it did as a graph.

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

    def staged(*args: Any, **kwargs: Any) -> Graph:
        leaves, arguments = flatten((args, kwargs))
        specs = [x if isinstance(x, Spec) else spec_of(_leaf(x, "argument")) for x in leaves]
        shape: list[Any] = []

        def flat(*symbols: Any) -> list[Any]:
            given, named = unflatten(arguments, symbols)
            outs, structure = flatten(f(*given, **named))
            shape.append(structure)
            results = [_leaf(x, "result") for x in outs]
            return [brought_out(x, symbols[0].scope) for x in results] if symbols else results

        inputs, equations, outs = write_down(flat, *specs)
        lines = tuple(Equation(e.results, e.op, tuple(map(_bare, e.args)), e.static) for e in equations)
        outputs = tuple(_bare(settled(o) if is_array(o) else o) for o in outs)
        graph: Graph = Graph(tuple(inputs), lines, outputs, arguments, shape[0])
        return graph

    return functools.update_wrapper(staged, f) if hasattr(f, "__name__") else staged


def _leaf(x: Any, what: str) -> Any:
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


def _bare(x: Any) -> Any:
    """An untracked tensor is a constant like its array, which never changes."""
    return x.value if type(x) is Tensor and x.node is None and is_array(x.value) else x


def _numbers(given: Any, count: int, what: str) -> list[int]:
    """Positions counted from the front."""
    numbers = [given] if isinstance(given, int) else list(given)
    for n in numbers:
        if not isinstance(n, int) or not -count <= n < count:
            raise ArgumentError(f"{what}: there is no {n!r}; the graph has {count}, counted from 0.")
    return [n % count for n in numbers]


def _floating(args: tuple[Any, ...], wrt: Any, what: str) -> list[int]:
    if wrt is None:
        leaves = [flatten(a)[0] for a in args]
        return [i for i, specs in enumerate(leaves) if specs and all(s.inexact for s in specs)]
    return _numbers(wrt, len(args), f"{what}: wrt")


def _gradients(graph: Graph, outputs: Any = None, wrt: Any = None) -> Graph:
    args, kwargs = graph.specs()
    chosen = _floating(args, wrt, "gradients")
    count = len(graph.outputs)
    picked = list(range(count)) if outputs is None else _numbers(outputs, count, "gradients: outputs")
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


def _pushed(graph: Graph, wrt: Any = None) -> Graph:
    args, kwargs = graph.specs()
    chosen = _floating(args, wrt, "jvp")
    if not chosen:
        raise ArgumentError("jvp: no argument is floating.")

    def push(*given: Any, **named: Any) -> Any:
        primals, dots = given[: len(args)], iter(given[len(args) :])
        tangents = [next(dots) if i in chosen else None for i in range(len(args))]
        return jvp(functools.partial(graph.run, **named), primals, tangents)

    return stage(push)(*args, *(args[i] for i in chosen), **kwargs)


_derive += [_gradients, _pushed]
