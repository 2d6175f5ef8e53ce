"""The parts of a `Graph`: values, and the lines that define them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..arrays.scope import Scope
from ..arrays.size import Size
from ..arrays.spec import Spec
from ..arrays.value import SymbolicValue
from ..errors import ShapeError
from ..ops.op import Op
from .builder_sizes import show_shape

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

    @property
    def shape(self) -> Any:
        """The sizes; None or a name where one is not known yet."""
        return show_shape(self.spec.shape)

    @property
    def size(self) -> Any:
        """The number of elements; None if it is not known yet."""
        return None if None in self.shape or any(isinstance(n, str) for n in self.shape) else self.spec.size

    def __len__(self) -> int:
        n = self.shape[0] if self.shape else 0
        if not isinstance(n, int):
            raise ShapeError("len: the size of this axis is not known yet.")
        return self.spec.shape[0]

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

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


@dataclass(frozen=True, slots=True, eq=False)
class GradientLine:
    """`results = d loss / d wrt`, to be derived from the lines before."""

    results: tuple[GraphValue, ...]
    loss: GraphValue
    wrt: tuple[GraphValue, ...]

    @property
    def needs(self) -> list[GraphValue]:
        return [self.loss, *self.wrt]


class SizeLine:
    """`result = size`, a number as soon as the sizes are known."""

    __slots__ = ("results", "size")
    needs: tuple[GraphValue, ...] = ()

    def __init__(self, result: GraphValue, size: Size) -> None:
        self.results = (result,)
        self.size = size
