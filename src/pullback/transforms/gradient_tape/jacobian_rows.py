"""Gradients and Jacobians of targets on a tape: all rows are pulled back as one batch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ...arrays.backends import namespace_on
from ...arrays.spec import make_spec, spec_of
from ...arrays.tensor import Tensor, wrap
from ...arrays.value import Value
from ...errors import ArgumentError
from ...ops.shape.arrange import concat
from ...ops.shape.reshaping import moveaxis, reshape
from ...tape.backward import gradients
from ...tape.sweep import order_deepest_first
from ..boundary import unit_rows
from ..vectorize import vmap

_MAX_ROWS = 1024  # of a Jacobian are pulled back at once by default


def pull_to_sources(
    targets: Sequence[Tensor], twins: list[Tensor], seeds: Sequence[Any], create_graph: bool, retain: bool
) -> Sequence[Any]:
    """Seeds of the targets pulled back to the sources; None where no path leads."""
    pairs = [(y, seed) for y, seed in zip(targets, seeds, strict=True) if y.node is not None]
    if not pairs or not twins:
        return [None] * len(twins)
    roots, bars = [y for y, _ in pairs], [bar for _, bar in pairs]
    return gradients(
        roots, twins, bars, create_graph=create_graph, retain_graph=retain or create_graph, allow_unused=True
    )


def release_graph(targets: Sequence[Tensor]) -> None:
    """Release what the nodes below the targets saved, as backward without retain_graph does."""
    for node in order_deepest_first(y.node for y in targets if y.node is not None):
        if node.rule is not None:
            node.kept = None


def jacobian_rows(y: Tensor, twins: list[Tensor], create_graph: bool, chunk: int | None, shared: int = 0) -> list[Any]:
    """The gradients of the elements of y, in the shape of y and then of each source. With `shared` = 1 the first axis
    counts examples: each element is pulled back in all of them at once.
    """
    size, step = math.prod(y.shape[shared:]), _MAX_ROWS if chunk is None else chunk
    if not isinstance(step, int) or step < 1:
        raise ArgumentError(f"chunk_size must be a positive integer, got {chunk!r}.")
    if y.node is None or not twins:
        return [None] * len(twins)
    if y.size == 0:
        return [zeros_on_device(y.shape + x.shape[shared:], x) for x in twins]
    pull = vmap(lambda bar: list(pull_to_sources([y], twins, [bar], create_graph, True)))
    parts = [pull(_identity_rows(y, shared, start, min(step, size - start))) for start in range(0, size, step)]
    columns = zip(*parts, strict=True)
    return [_join_rows(c, shared, y.shape + x.shape[shared:]) for c, x in zip(columns, twins, strict=True)]


def _join_rows(parts: Sequence[Any], shared: int, shape: tuple[int, ...]) -> Any:
    """Chunks of rows as one array of a shape; None if no path led to the source."""
    if parts[0] is None:
        return None
    rows = parts[0] if len(parts) == 1 else concat(parts)
    return reshape(moveaxis(rows, 0, 1) if shared else rows, shape)


def _identity_rows(y: Tensor, shared: int, start: int, count: int) -> Any:
    """Some rows of the identity, each in the shape of y and the same in all its examples."""
    one = unit_rows(make_spec(y.shape[shared:], y.dtype, y.device), start, count)
    shape = (count, *(1,) * shared, *y.shape[shared:])
    return namespace_on(y.device).broadcast_to(one.reshape(shape), (count, *y.shape))


def as_tensor(x: Any) -> Tensor:
    """A derivative as a tensor whose spec is that of its value, which may be a batch."""
    if isinstance(x, Tensor):
        return wrap(x.value, spec_of(x.value), x.node) if isinstance(x.value, Value) else x
    return wrap(x, spec_of(x))


def zeros_on_device(shape: tuple[int, ...], x: Tensor) -> Any:
    """Zeros of a shape, of the dtype and on the device of a tensor."""
    return namespace_on(x.device).zeros(shape, x.dtype)
