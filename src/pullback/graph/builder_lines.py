"""The parts of a `Graph`: values, and the lines that define them; each line computes its results from numbers."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..arrays.call_site import format_line, user_line
from ..arrays.scope import Scope
from ..arrays.size import Size, evaluate, has_unknowns
from ..arrays.spec import Spec, ones, spec_of, zeros
from ..arrays.tensor import Tensor
from ..arrays.value import SymbolicValue
from ..errors import ConversionError, ShapeError
from ..ops.dispatch import apply
from ..ops.op import Op
from ..tape.backward import gradients

if TYPE_CHECKING:
    from .builder import Graph


class GraphValue(SymbolicValue):
    """A value of a graph that is being built: a placeholder, a variable, or the result of an op on them."""

    __slots__ = ("builder", "level", "name", "number", "scope", "spec")
    level: int
    scope: Scope

    def __init__(self, builder: Graph, spec: Spec, name: str = "") -> None:
        self.builder = builder
        self.spec = spec.as_guarded()
        self.name = name
        self.scope = builder.scope
        self.level = builder.scope.level
        self.number = len(builder.lines)  # the lines before its definition

    def interpret(self, op: Op, args: Sequence[Any], static: dict[str, Any]) -> Any:
        """Record the op as a line of the graph."""
        return self.builder.write(op, args, static)

    @property  # type: ignore[misc]
    def shape(self) -> Any:
        """The sizes; where one is not known yet its name, and None for what was computed from such."""
        return tuple(n if not isinstance(n, Size) else n.name[0] if n.name else None for n in self.spec.shape)

    @property
    def size(self) -> Any:
        """The number of elements; None if it is not known yet."""
        return None if has_unknowns(self.spec.shape) else self.spec.size

    def __len__(self) -> int:
        if has_unknowns(self.spec.shape[:1]):
            raise ShapeError("len: the size of this axis is not known yet.")
        return self.spec.shape[0]

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def conversion_error(self, what: str) -> ConversionError:
        """A graph is computed when it runs: building it, there is no value to look at."""
        return ConversionError(
            f"{what}: {self!r} has no value while the graph is built.\n"
            f"  at {format_line(*user_line(sys._getframe(1)))}\n"
            "  Compute it: g.run(value, feeds); to choose by it inside the graph, use pb.where or pb.cond."
        )

    def __repr__(self) -> str:
        shape = ", ".join("None" if n is None else str(n) for n in self.shape)
        return f"<{self.name or 'value'}: {self.spec.dtype.name}[{shape}] of a graph>"


@dataclass(frozen=True, slots=True, eq=False)
class OpLine:
    """`results = op(*args, **static)`."""

    results: tuple[GraphValue, ...]
    op: Op
    args: tuple[Any, ...]
    static: dict[str, Any]

    @property
    def needs(self) -> list[GraphValue]:
        return [a for a in self.args if isinstance(a, GraphValue)]

    def compute(self, values: Mapping[int, Any], sizes: Mapping[Any, int]) -> tuple[Any, ...]:
        """The results, from the values of what the line needs, by id, and the unknown sizes."""
        args = [values[id(a)] if isinstance(a, GraphValue) else evaluate(a, sizes) for a in self.args]
        made = apply(self.op, *args, **evaluate(self.static, sizes))
        found = made if type(made) is tuple else (made,)
        for value, result in zip(found, self.results, strict=True):
            shape, wanted = spec_of(value).shape, evaluate(result.spec.shape, sizes)
            if shape != wanted:
                raise ShapeError(
                    f"line {result.number} of the graph, {self.op.name}: its result has shape {shape} where the graph "
                    f"expects {wanted}: its shape depends on an unknown size in a way that is not followed.\n"
                    "  Give the placeholder its whole shape."
                )
        return found


@dataclass(frozen=True, slots=True, eq=False)
class GradientLine:
    """`results = d loss / d wrt`, to be derived from the lines before."""

    results: tuple[GraphValue, ...]
    loss: GraphValue
    wrt: tuple[GraphValue, ...]

    @property
    def needs(self) -> list[GraphValue]:
        return [self.loss, *self.wrt]

    def compute(self, values: Mapping[int, Any], create_graph: bool) -> tuple[Any, ...]:
        """The gradients, from the tape on which the loss was computed of the variables in `wrt`."""
        loss, wrt = values[id(self.loss)], [values[id(w)] for w in self.wrt]
        found: Sequence[Any] = [None] * len(wrt)
        if isinstance(loss, Tensor) and loss.node is not None:  # else all paths end in ops without a derivative
            found = gradients(
                loss, wrt, ones(loss.spec), create_graph=create_graph, retain_graph=True, allow_unused=True
            )
        return tuple(zeros(w.spec) if bar is None else bar for bar, w in zip(found, wrt, strict=True))


@dataclass(frozen=True, slots=True, eq=False)
class SizeLine:
    """`result = size`, a number as soon as the sizes are known."""

    results: tuple[GraphValue, ...]
    size: Size
    needs: tuple[GraphValue, ...] = ()
