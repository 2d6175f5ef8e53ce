"""`checkpoint`: a function that saves only its inputs and recomputes the rest in the backward pass."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar, overload

from ...arrays.picklable import picklable
from ...arrays.trees import flatten
from ...errors import ArgumentError
from ...settings import modes
from .arguments import Arguments
from .region import Region
from .save_policies import SavePolicy, as_policy, save_everything, save_nothing

P = ParamSpec("P")
R = TypeVar("R")
Function = Callable[..., Any]
PolicyLike = SavePolicy | Callable[[Any, int], Any]


@overload
def checkpoint(f: Callable[P, R], *, policy: PolicyLike = ..., verify: bool | None = ...) -> Callable[P, R]: ...
@overload
def checkpoint(
    f: None = None, *, policy: PolicyLike = ..., verify: bool | None = ...
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
@picklable
def checkpoint(f: Any = None, *, policy: PolicyLike = save_nothing, verify: bool | None = None) -> Any:
    """f, but what backward needs of it is recomputed from its arguments: memory for time. As a function of a function,
    or a decorator with or without options.

    `policy` says which results are saved all the same. A recomputation that differs in ops, shapes, dtypes or, by more
    than rounding, in the values that are needed raises `RecomputeError`. With `verify=True` all of f runs again and
    every bit counts; with `verify=False` no values are compared.

    >>> import numpy as np, pullback as pb
    >>> f = pb.checkpoint(lambda x: pb.sum(pb.sin(pb.exp(x))))
    >>> pb.grad(f)(np.array([0.0, 1.0]))
    array([ 0.54030231, -2.47834973])
    """
    if f is None:
        return functools.partial(checkpoint, policy=policy, verify=verify)
    if not callable(f):
        raise ArgumentError(f"checkpoint: wants a function, got {type(f).__name__}.")
    chosen = as_policy(policy)

    @functools.wraps(f, updated=())
    def checkpointed(*args: Any, **kwargs: Any) -> Any:
        return _run_checkpointed(f, args, kwargs, chosen, verify)

    return checkpointed


def _run_checkpointed(
    f: Function, args: tuple[Any, ...], kwargs: dict[str, Any], policy: SavePolicy, verify: bool | None
) -> Any:
    """Where nothing is recorded the function runs unchanged."""
    # checked also where nothing is recorded: a mistake should not wait for training
    arguments = Arguments(args, kwargs)
    arguments.require_arrays()
    if not modes().grad or policy is save_everything:
        return f(*args, **kwargs)
    return Region(f, arguments, verify).run(args, kwargs, policy)


def checkpoint_sequential(
    functions: Sequence[Function],
    x: Any,
    segments: int | None = None,
    *,
    policy: PolicyLike = save_nothing,
    verify: bool | None = None,
) -> Any:
    """The functions one after the other, each on the result of the one before, in `segments` checkpoints of about
    equal length; without a number about the square root of how many there are, which saves least.

    The backward pass begins with the last segment, so it runs without a checkpoint. A tuple is passed as one argument.

    >>> import pullback as pb
    >>> pb.grad(lambda x: pb.checkpoint_sequential([pb.sin] * 9, x, segments=3))(0.0)
    array(1.)
    """
    try:
        steps = list(functions)
    except TypeError:
        steps = []
    if not steps or not all(map(callable, steps)):
        raise ArgumentError("checkpoint_sequential: wants one function or more, in a list.")
    if not flatten(x)[0]:
        raise ArgumentError("checkpoint_sequential: the input holds no array; at least one is needed.")
    # s inputs of segments and the n/s values inside one: their sum is least at the square root
    count = max(1, round(math.sqrt(len(steps)))) if segments is None else segments
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise ArgumentError(f"checkpoint_sequential: segments is a positive integer, got {segments!r}.")
    count = min(count, len(steps))
    bounds = [len(steps) * i // count for i in range(count + 1)]
    # all but the last, whose values are needed at once
    for i in range(count - 1):
        x = checkpoint(_compose(steps[bounds[i] : bounds[i + 1]]), policy=policy, verify=verify)(x)
    return _compose(steps[bounds[count - 1] :])(x)


def _compose(steps: list[Function]) -> Function:
    def segment(x: Any) -> Any:
        for step in steps:
            x = step(x)
        return x

    return segment
