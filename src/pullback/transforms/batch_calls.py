"""`vmap`, all elements at once or in chunks."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, ParamSpec, TypeVar

import numpy as np

from ..arrays.argument_checks import check_count, check_functions, explains_arguments
from ..arrays.picklable import picklable
from ..arrays.scope import enclosing_scopes
from ..arrays.spec import spec_of
from ..arrays.trees import broadcast_prefix, flatten, unflatten
from ..errors import ArgumentError
from ..ops.axes import normalize_axis
from ..ops.index.indexing import getitem
from ..ops.replay.rehearsal import rehearse
from ..ops.shape.arrange import concat
from ..ops.shape.reshaping import moveaxis, reshape
from .control.scan import map as map_in_turn
from .control.staging import is_staged, is_staging
from .vectorize import BatchArguments, read_batch
from .vectorize import vmap as vmap_at_once

P = ParamSpec("P")
R = TypeVar("R")


@picklable
@explains_arguments("vmap")
def vmap(
    f: Callable[P, R],
    in_axes: Any = 0,
    out_axes: Any = 0,
    *,
    axis_size: int | None = None,
    axis_name: str | None = None,
    chunk_size: int | None = None,
) -> Callable[P, R]:
    """f over a batch. `in_axes` says which axis of each argument counts the elements, None for arguments in common;
    one entry for all arguments, one for each, or a tree of entries that looks like an argument. `out_axes` says the
    same of the results. Keyword arguments have their elements along axis 0. `axis_size` is needed only if no
    argument has a batch axis.

    By `axis_name` f can ask for values of all elements: `pb.batch_sum(x, axis_name)` and its like. With a `chunk_size`
    so many elements run at once, one chunk after the other, which needs less memory; compiled, they are a loop.

    >>> import numpy as np, pullback as pb
    >>> pb.vmap(lambda x, w: pb.sum(x * w), (0, None))(np.ones((2, 3)), np.arange(3.0))
    array([3., 3.])
    >>> pb.vmap(lambda x: x - pb.batch_mean(x, "rows"), axis_name="rows")(np.array([1.0, 2.0, 6.0]))
    array([-2., -1.,  3.])
    """
    check_functions("vmap", f)
    if axis_name is not None:
        _check_name(axis_name)
        if chunk_size is not None:
            raise ArgumentError(
                "vmap: axis_name and chunk_size exclude each other: elements of one chunk do not see those of another."
                "\n  Leave out one of them."
            )
    if chunk_size is None:
        at_once = vmap_at_once(f, in_axes, out_axes, axis_size=axis_size, axis_name=axis_name)
        return at_once if axis_name is None else _refuse_hidden_name(at_once, axis_name)
    size = check_count(chunk_size, "vmap: chunk_size")

    @functools.wraps(f)
    def in_chunks(*args: P.args, **kwargs: P.kwargs) -> Any:
        batch = read_batch(in_axes, args, kwargs, axis_size)
        if batch.size <= size:
            return vmap_at_once(f, in_axes, out_axes, axis_size=axis_size)(*args, **kwargs)
        return _run_chunks(f, in_axes, out_axes, size, batch)

    return in_chunks


def _check_name(axis_name: Any) -> None:
    if not isinstance(axis_name, str) or not axis_name:
        raise ArgumentError(f"vmap: axis_name must be a text such as 'batch', got {axis_name!r}.")


def _refuse_hidden_name(f: Callable[P, R], axis_name: str) -> Callable[P, R]:
    @functools.wraps(f)
    def batched(*args: P.args, **kwargs: P.kwargs) -> R:
        if any(scope.open and scope.axis_name == axis_name for scope in enclosing_scopes()):
            raise ArgumentError(
                f"vmap: axis_name {axis_name!r} is that of a vmap around this one.\n  Give each of them its own name."
            )
        return f(*args, **kwargs)

    return batched


def _run_chunks(f: Callable[..., Any], in_axes: Any, out_axes: Any, size: int, batch: BatchArguments) -> Any:
    """The whole chunks by a loop, then the elements that are left."""
    holders = (f, batch.values)

    def run_some(rows: list[Any], count: int, is_last: bool) -> Any:
        """The function on some elements of each argument that has elements; the others are as they were. As on the
        whole batch it draws once, for all elements, and sets things once: only the last run counts.
        """
        found = iter(rows)
        leaves = [x if a is None else next(found) for x, a in zip(batch.values, batch.axes, strict=True)]
        args, *named = unflatten(batch.structure, leaves)
        with nullcontext() if is_last else rehearse(holders, batch.values):
            return vmap_at_once(f, in_axes, out_axes, axis_size=count)(*args, **(named[0] if named else {}))

    batched = [(x, a) for x, a in zip(batch.values, batch.axes, strict=True) if a is not None]
    whole = batch.size // size
    rest = batch.size - whole * size
    stacks = [_stack_chunks(x, a, whole, size) for x, a in batched]
    # a loop that is traced runs once for all
    left = 1 if is_staging() or is_staged(*batch.values) else whole

    def run_chunk(rows: Any) -> Any:
        nonlocal left
        left -= 1
        return run_some(rows if stacks else [], size, is_last=left <= 0 and not rest)

    out = map_in_turn(run_chunk, stacks or np.arange(whole))
    parts, shape = flatten(out)
    ends = broadcast_prefix(out_axes, out, "vmap: out_axes")
    parts = [_join_chunks(x, end) for x, end in zip(parts, ends, strict=True)]
    if rest:
        tail = [_slice(x, a, whole * size, batch.size) for x, a in batched]
        last = flatten(run_some(tail, rest, is_last=True))[0]
        parts = [x if end is None else concat([x, y], axis=end) for x, y, end in zip(parts, last, ends, strict=True)]
    return unflatten(shape, parts)


def _stack_chunks(x: Any, axis: int, whole: int, size: int) -> Any:
    """Chunk by chunk along the first axis, the elements of each where they were."""
    shape = spec_of(x).shape
    parts = reshape(_slice(x, axis, 0, whole * size), (*shape[:axis], whole, size, *shape[axis + 1 :]))
    return moveaxis(parts, axis, 0) if axis else parts


def _slice(x: Any, axis: int, start: int, stop: int) -> Any:
    return getitem(x, (*(slice(None),) * axis, slice(start, stop)))


def _join_chunks(stack: Any, end: int | None) -> Any:
    """The results of chunks, stacked, as those of one batch whose elements lie along an axis."""
    if end is None:
        return getitem(stack, 0)
    axis = normalize_axis(end, spec_of(stack).ndim - 1, "vmap")
    moved = moveaxis(stack, 0, axis) if axis else stack
    shape = spec_of(moved).shape
    return reshape(moved, (*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :]))
