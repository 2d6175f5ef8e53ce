"""A query to a gradient tape, checked: targets, sources, seeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ...arrays.scope import current_scope
from ...arrays.spec import ones
from ...arrays.tensor import Tensor
from ...arrays.trees import leaf_paths, leaves_matching
from ...arrays.value import Value
from ...errors import ArgumentError, DtypeError, GraphError, ShapeError
from .jacobian_rows import as_tensor, zeros_on_device

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
        filled = [zeros_on_device(lead + x.shape[shared:], x) if g is None and self.zero else g for g, x in pairs]
        return [None if g is None else as_tensor(g) for g in filled]


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
    return [None if y.spec.size == 1 else ones(y.spec) for y in ask.targets]
