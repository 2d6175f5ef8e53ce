"""Queries to a gradient tape: targets, sources and seeds, checked; and the rows of their derivatives."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from ...arrays.backends import namespace_on
from ...arrays.scope import current_scope
from ...arrays.spec import make_spec, ones, spec_of
from ...arrays.tensor import Tensor, wrap
from ...arrays.trees import leaf_paths, leaves_matching
from ...arrays.value import Value
from ...errors import ArgumentError, DtypeError, GraphError, ShapeError
from ...ops.shape.arrange import concat
from ...ops.shape.reshaping import moveaxis, reshape
from ...tape.backward import gradients
from ...tape.sweep import order_deepest_first
from ..boundary import unit_rows
from ..vectorize import vmap

_MAX_ROWS = 1024  # of a Jacobian are pulled back at once by default
_MAKE_VARIABLE = "  Make a variable of it first: x = tape.variable(x)."


class LeafPlace(NamedTuple):
    """Which leaf of which tree, for an error; formatted only if there is one."""

    name: str
    structure: Any
    number: int

    def __str__(self) -> str:
        return f"{self.name}{leaf_paths(self.structure)[self.number]}"


class TapeQuery(NamedTuple):
    """A query: tensors to differentiate, and for each source an alias on the node that the tape watches."""

    what: str
    targets: list[Tensor]
    shape: Any
    sources: list[Tensor]
    twins: list[Tensor]
    structure: Any
    zero: bool

    def as_tensors(self, found: Sequence[Any], lead: tuple[int, ...], shared: int) -> list[Tensor | None]:
        """One derivative for each source, of the shape `lead` and then the source's without its `shared` axes."""
        pairs = zip(found, self.sources, strict=True)
        filled = [_zeros_on_device(lead + x.shape[shared:], x) if g is None and self.zero else g for g, x in pairs]
        return [None if g is None else _as_tensor(g) for g in filled]


def _describe_kind(x: Any) -> str:
    return "value of a transform" if isinstance(x, Value) else type(x).__name__


def check_watchable(x: Any, what: LeafPlace) -> None:
    if not isinstance(x, Tensor):
        raise ArgumentError(f"{what} is a {_describe_kind(x)}, and only a tensor can be watched.\n{_MAKE_VARIABLE}")
    if not x.spec.inexact:
        raise DtypeError(f"{what} is {x.spec}; only floating-point and complex tensors have gradients.")
    scope = current_scope()
    if scope is not None and x.level < scope.level:
        raise GraphError(
            f"{what} ({x.spec}) lies outside of the {scope.name} that runs, and is a constant there.\n{_MAKE_VARIABLE}"
        )


def check_target(y: Any, what: LeafPlace) -> None:
    if not isinstance(y, Tensor):
        inside = "Make the variable inside of the transform: x = tape.variable(x)."
        plain = "Compute it from tensors that the tape watches, with functions of pullback."
        advice = inside if isinstance(y, Value) else plain
        raise GraphError(f"{what} is a {_describe_kind(y)}, which is on no tape.\n  {advice}")
    if not y.spec.inexact:
        raise DtypeError(f"{what} is {y.spec}; only floating-point and complex values can be differentiated.")


def check_source(x: Any, what: LeafPlace, level: int) -> None:
    """A tensor that lies no lower than the targets: a lower one is a constant to the tape that they are on."""
    if not isinstance(x, Tensor):
        raise ArgumentError(f"{what} is a {_describe_kind(x)}, and only a tensor can be a source.\n{_MAKE_VARIABLE}")
    if x.level < level:
        raise GraphError(
            f"{what} ({x.spec}) lies outside of the transform that the target was computed in, and is a constant "
            f"there.\n{_MAKE_VARIABLE}"
        )


def check_real(y: Tensor, what: LeafPlace) -> None:
    if y.dtype.kind == "c":
        raise DtypeError(
            f"{what} is {y.spec}; its derivatives are no single complex numbers in general.\n"
            "  Differentiate pb.real(y) and pb.imag(y) instead, or use gradient with output_gradients."
        )


def check_one_batch(ask: TapeQuery) -> Tensor:
    """The one target, after a check that it and the sources count the same examples."""
    if len(ask.targets) != 1:
        raise ArgumentError(f"batch_jacobian: wants one target, got {len(ask.targets)}.")
    (y,) = ask.targets
    check_real(y, LeafPlace("batch_jacobian: target", ask.shape, 0))
    for x in ask.sources:
        if not y.shape or not x.shape or x.shape[0] != y.shape[0]:
            raise ShapeError(
                f"batch_jacobian: the target is {y.spec} and a source {x.spec}; wanted first axes of one size.\n"
                "  Use jacobian where there are no examples."
            )
    return y


def seeds_of(ask: TapeQuery, given: Any) -> list[Any]:
    """The seed of each target; a single element needs none."""
    if given is not None:
        return leaves_matching(ask.shape, given, f"{ask.what}: output_gradients")
    for i, y in enumerate(ask.targets):
        if y.dtype.kind == "c":
            what = LeafPlace(f"{ask.what}: target", ask.shape, i)
            raise DtypeError(
                f"{what} is {y.spec}; only a real number has a default seed.\n"
                "  Pass output_gradients, or differentiate pb.real(y) or pb.abs(y)."
            )
    # The gradient of several elements is that of their sum.
    return [None if y.spec.size == 1 else ones(y.spec) for y in ask.targets]


def pull_to_sources(
    targets: Sequence[Tensor], twins: list[Tensor], seeds: Sequence[Any], create_graph: bool, retain: bool
) -> Sequence[Any]:
    """Seeds of the targets pulled back to the sources; None where no path leads."""
    # A target that was recorded nowhere depends on nothing.
    pairs = [(y, seed) for y, seed in zip(targets, seeds, strict=True) if y.node is not None]
    if not pairs or not twins:
        return [None] * len(twins)
    roots, bars = [y for y, _ in pairs], [bar for _, bar in pairs]
    return gradients(
        roots, twins, bars, create_graph=create_graph, retain_graph=retain or create_graph, allow_unused=True
    )


def release_graph(targets: Sequence[Tensor]) -> None:
    """Release what the nodes below the targets saved, as backward without retain_graph does."""
    # A batch of rows retained the graph, so it is released here as one backward pass would.
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
        return [_zeros_on_device(y.shape + x.shape[shared:], x) for x in twins]
    # The graph is retained for the next chunk; the tape releases it after the query.
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


def _as_tensor(x: Any) -> Tensor:
    """A derivative as a tensor whose spec is that of its value, which may be a batch."""
    # Under vmap the spec of the tensor is that of one element.
    if isinstance(x, Tensor):
        return wrap(x.value, spec_of(x.value), x.node) if isinstance(x.value, Value) else x
    return wrap(x, spec_of(x))


def _zeros_on_device(shape: tuple[int, ...], x: Tensor) -> Any:
    """Zeros of a shape, of the dtype and on the device of a tensor."""
    return namespace_on(x.device).zeros(shape, x.dtype)
