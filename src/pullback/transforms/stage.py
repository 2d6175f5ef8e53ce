"""`pb.stage`, function and examples in, program out; derivatives of programs, and programs of one unknown."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ..arrays.backends import is_array
from ..arrays.dtypes import NAMES
from ..arrays.picklable import picklable
from ..arrays.protect import as_immutable
from ..arrays.spec import Spec, spec_of
from ..arrays.tensor import Tensor
from ..arrays.trees import flatten, unflatten
from ..errors import ArgumentError, ConversionError, DtypeError, PullbackError
from ..ops.dispatch import as_value
from ..program.constants import Constants
from ..program.decisions import Decisions
from ..program.hoist import hoist
from ..program.ir import Program
from ..program.run import prepare, run
from ..program.stage import stage as trace
from ..settings import modes
from .boundary import unwrap_to_level
from .control.branch_results import check_one_structure
from .control.flow.derive import stage_unseen
from .control.paths import stage_paths, stage_with_branches
from .custom.rules import is_tracked
from .forward import jvp
from .reverse import grad


@picklable
def stage(f: Callable[..., Any]) -> Callable[..., Program]:
    """A function of examples (trees of arrays or of specs) that traces f on symbols and returns its program.

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

    def stage_on(*args: Any, **kwargs: Any) -> Program:
        leaves, arguments = flatten((args, kwargs))
        # Only specs count: the program holds at every value of these shapes and dtypes.
        specs = [x if isinstance(x, Spec) else spec_of(_check_leaf(x, "argument")) for x in leaves]
        shape: list[Any] = []

        def flat(*symbols: Any) -> list[Any]:
            given, named = unflatten(arguments, symbols)
            outs, structure = flatten(f(*given, **named))
            shape.append(structure)
            check_one_structure("stage: the function", shape)
            results = [_check_leaf(x, "result") for x in outs]
            return [unwrap_to_level(x, symbols[0].scope) for x in results] if symbols else results

        staged = stage_paths(lambda decisions: trace(flat, *specs, decisions=decisions), "stage")
        program, _ = hoist(staged, lambda x: False)  # what f captures stays as it is now
        outputs = tuple(as_immutable(o) if is_array(o) else o for o in program.outputs)
        return replace(program, outputs=outputs, arguments=arguments, results=shape[0])

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


def _check_positions(given: Any, count: int, what: str) -> list[int]:
    """Positions as non-negative numbers."""
    numbers = [given] if isinstance(given, int) else list(given)
    for n in numbers:
        if not isinstance(n, int) or not -count <= n < count:
            raise ArgumentError(f"{what}: there is no {n!r}; the program has {count}, counted from 0.")
    return [n % count for n in numbers]


def _float_arguments(args: tuple[Any, ...], wrt: Any, what: str) -> list[int]:
    if wrt is None:
        leaves = [flatten(a)[0] for a in args]
        return [i for i, specs in enumerate(leaves) if specs and all(s.inexact for s in specs)]
    return _check_positions(wrt, len(args), f"{what}: wrt")


def stage_gradients(program: Program, outputs: Any = None, wrt: Any = None) -> Program:
    """The program of the gradient of the sum of some outputs with respect to some arguments."""
    args, kwargs = program.specs()
    chosen = _float_arguments(args, wrt, "gradients")
    count = len(program.outputs)
    picked = list(range(count)) if outputs is None else _check_positions(outputs, count, "gradients: outputs")
    for i in picked:
        spec = spec_of(program.outputs[i])
        if spec.size != 1 or not spec.inexact:
            raise ArgumentError(
                f"gradients: output {i} is {spec}, wanted one floating number.\n"
                "  Stage a function that sums it up, or name the outputs to differentiate."
            )
    if not picked or not chosen:
        raise ArgumentError("gradients: there is nothing to differentiate.")

    def total(*given: Any, **named: Any) -> Any:
        outs = flatten(program.run(*given, **named))[0]
        return functools.reduce(lambda x, y: x + y, [outs[i].reshape(()) for i in picked])

    # As `pb.grad` does: one argument gives its gradient, several give a tuple.
    one = isinstance(wrt, int) or (wrt is None and len(chosen) == 1)
    return stage(grad(total, argnums=chosen[0] if one else tuple(chosen)))(*args, **kwargs)


def stage_jvp(program: Program, wrt: Any = None) -> Program:
    """The program of the derivative along tangents of some arguments."""
    args, kwargs = program.specs()
    chosen = _float_arguments(args, wrt, "jvp")
    if not chosen:
        raise ArgumentError("jvp: no argument is floating.")

    def push(*given: Any, **named: Any) -> Any:
        primals, dots = given[: len(args)], iter(given[len(args) :])
        tangents = [next(dots) if i in chosen else None for i in range(len(args))]
        return jvp(functools.partial(program.run, **named), primals, tangents)

    return stage(push)(*args, *(args[i] for i in chosen), **kwargs)


def trace_with_captures(
    function: Callable[..., Any], *specs: Spec, shared: bool = False
) -> tuple[Program, list[Any], bool]:
    """A function as a program of its arguments and of what it captured, those values, and whether it met a tensor.
    Captured is what carries derivatives, and inside of `jit` any tensor: a compiled function rereads it at each call.
    """
    traced = _trace_with_branches(lambda *xs: unwrap_to_level(function(*xs), xs[0].scope), specs, shared)
    # Asked before hoisting, which replaces captured tensors by symbols.
    met_tensors = any(type(a) is Tensor for e in traced.equations for a in e.args)
    around = modes().tracing
    if around is None:
        program, found = hoist(traced, is_tracked)
    else:
        program, found = hoist(traced, _is_argument, around.constants.origin)
    prepare(program)  # a solver runs it many times
    return program, found, met_tensors


def _trace_with_branches(function: Callable[..., Any], specs: Sequence[Spec], shared: bool) -> Program:
    """A function as equations; where it branches on its values, both ways are followed."""

    def along(constants: Constants, decisions: Decisions) -> Program:
        return stage_unseen(function, *specs, constants=constants, decisions=decisions)

    return stage_with_branches("a function of the user's", lambda: trace(function, *specs, shared=shared), along)


def _is_argument(x: Any) -> bool:
    return isinstance(x, Tensor) or is_tracked(x)


def stage_with_captures(
    function: Callable[[Any], Any], x: Any, shared: bool = False
) -> tuple[Callable[..., Any], list[Any], bool] | None:
    """A function of x as a program of (x, *found), what was found (all tracked values that it uses, given or closed
    over), and whether it met a tensor. None for a function that cannot be traced, since it loops on values; an op that
    runs the function itself refuses what it closes over, so no term is ever lost.
    """
    try:
        program, found, met_tensors = trace_with_captures(function, spec_of(x), shared=shared)
    except Exception as error:  # whatever is wrong is raised when the function runs on arrays
        if parts_elements(error):
            raise
        return None
    return lambda *values: run(program, values)[0], found, met_tensors


def parts_elements(error: Exception) -> bool:
    """Whether a function could not be traced in a program since it branches by element of a batch: it would do so at
    each run, but the compiled function around it can follow both ways.
    """
    return isinstance(error, ConversionError) and error.asked_by_branch and modes().tracing is not None
