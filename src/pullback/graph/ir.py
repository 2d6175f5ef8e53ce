"""`Graph`, the program as data: inputs, equations on symbols (values known by their spec), and outputs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..arrays.spec import spec_of
from ..arrays.trees import flatten, leaf_paths, unflatten
from ..errors import ArgumentError, DtypeError, GraphError, IndexingError, PullbackError, ShapeError
from ..ops.dispatch import as_value
from ..ops.specialize import Equation, Symbol, replay
from .draw import save_drawing
from .parse import parse_graph
from .serial import graph_to_json, parse_json
from .text import format_graph, format_spec
from .verify import verify_graph

__all__ = ["Equation", "Graph", "Symbol"]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Graph:
    """A program: inputs, equations in their order, outputs. `pb.stage` makes one of a function.

    `arguments` is the structure of (args, kwargs) that the inputs are the leaves of, `results` that of the outputs;
    without them a graph takes its inputs one by one and returns one output, or a tuple. `pb.Graph()` without arguments
    is an empty graph to be built by hand, a `GraphBuilder`.

    >>> import numpy as np, pullback as pb
    >>> graph = pb.stage(lambda x, y: pb.sum(x * y))(pb.Spec((3,), "float32"), np.float32(2))
    >>> print(graph)
    graph(x0: float32[3], x1: float32[])
      t0: float32[3] = multiply(x0, x1)
      t1: float32[] = sum(t0, axis=(0,), keepdims=False)
      return t1
    >>> graph.run(np.ones(3, "float32"), np.float32(2))
    array(6., dtype=float32)
    """

    inputs: tuple[Symbol, ...]
    equations: tuple[Equation, ...]
    outputs: tuple[Any, ...]
    arguments: Any = None
    results: Any = None

    def __new__(cls, *fields: Any, **named: Any) -> Any:
        return object.__new__(cls) if fields or named else _builder_slot[0]()

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Replay the graph on arrays, or on anything else ops take: tensors, and values of any transform."""
        values = self._values(args, kwargs)
        try:
            found = replay(self.inputs, self.equations, self.outputs, values)
        except PullbackError:
            raise
        except IndexError as error:
            raise IndexingError(f"this graph: {error}.") from error
        except (TypeError, ValueError, KeyError, ArithmeticError) as error:
            raise GraphError(f"this graph: {error}.") from error
        if self.results is not None:
            return unflatten(self.results, found)
        return found[0] if len(found) == 1 else tuple(found)

    __call__ = run

    def _values(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """The leaves of the arguments, checked against the inputs' specs before anything runs."""
        leaves, structure = flatten((args, kwargs))
        if self.arguments is not None and structure != self.arguments:
            wanted, got = (f"{unflatten(s, ['*'] * s.num_leaves)}" for s in (self.arguments, structure))
            raise ArgumentError(f"this graph wants arguments (args, kwargs) like {wanted}, got {got}.")
        if len(leaves) != len(self.inputs):
            raise ArgumentError(f"this graph wants {len(self.inputs)} inputs, got {len(leaves)}.")
        values = [as_value(x) for x in leaves]
        for i, (symbol, x) in enumerate(zip(self.inputs, values, strict=True)):
            spec, found = symbol.spec, spec_of(x)
            if (found.shape, found.dtype) != (spec.shape, spec.dtype):
                kind = ShapeError if found.shape != spec.shape else DtypeError
                raise kind(f"input {i}{self._place(i)} of this graph is {format_spec(spec)}, got {format_spec(found)}.")
        return values

    def _place(self, number: int) -> str:
        return "" if self.arguments is None else f" (arguments{leaf_paths(self.arguments)[number]})"

    def specs(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """(args, kwargs) with the spec of each input in its place: what `pb.stage` can be given again."""
        leaves = [s.spec for s in self.inputs]
        if self.arguments is None:
            return tuple(leaves), {}
        found: tuple[tuple[Any, ...], dict[str, Any]] = unflatten(self.arguments, leaves)
        return found

    def text(self) -> str:
        """The whole graph as text, a line for each equation; `Graph.parse` reads it back."""
        return format_graph(self)

    @staticmethod
    def parse(text: str, *, ops: Any = ()) -> Graph:
        """The graph that a text shows. Custom ops in it are given by `ops`, a list of them.

        >>> import pullback as pb
        >>> graph = pb.Graph.parse('''
        ... graph(x: float64[])
        ...   y: float64[] = multiply(x, 2.0)
        ...   return y''')
        >>> graph.run(3.0)
        array(6.)
        """
        graph: Graph = Graph(*parse_graph(text, ops))
        return graph.verify()

    def to_json(self) -> str:
        """The graph as JSON text, with the bytes of its constants; `Graph.from_json` reads it back."""
        return graph_to_json(self)

    @staticmethod
    def from_json(text: str | bytes, *, ops: Any = ()) -> Graph:
        """The graph that `to_json` wrote. Nothing in it is evaluated, so the text may come from anywhere.

        >>> import numpy as np, pullback as pb
        >>> graph = pb.stage(pb.sin)(np.zeros(2))
        >>> pb.Graph.from_json(graph.to_json()).text() == graph.text()
        True
        """
        graph: Graph = Graph(*parse_json(text, ops))
        return graph.verify()

    def verify(self) -> Graph:
        """This graph, if every argument is defined before use and every spec is what its op infers; else an error."""
        return verify_graph(self)

    def draw(self, path: str | Path | None = None) -> str:
        """A drawing: written to a self-contained `.svg` or `.html` file. Returns its text."""
        return save_drawing(self, path)

    def gradients(self, outputs: Any = None, wrt: Any = None) -> Graph:
        """The graph of the gradient of the sum of some outputs (numbers; all of them) with respect to some arguments
        (numbers; all that are floating). Each output must be one number.

        >>> import numpy as np, pullback as pb
        >>> graph = pb.stage(lambda w, x: pb.sum((x @ w) ** 2))(np.zeros(2), np.zeros((3, 2)))
        >>> graph.gradients(wrt=0).run(np.ones(2), np.eye(3, 2))
        array([2., 2.])
        """
        return _derivative_slots[0](self, outputs, wrt)

    def jvp(self, wrt: Any = None) -> Graph:
        """The graph of the derivative along tangents: it takes the arguments, then a tangent for each in `wrt` (all
        that are floating), and returns (results, their tangents).

        >>> import numpy as np, pullback as pb
        >>> pb.stage(lambda x: x * x)(np.zeros(2)).jvp().run(np.array([1.0, 3.0]), np.ones(2))
        (array([1., 9.]), array([2., 6.]))
        """
        return _derivative_slots[1](self, wrt)

    def compile(self, *, donate_argnums: Any = ()) -> Any:
        """The graph as a compiled function of the same arguments; see `pb.jit`.

        >>> import numpy as np, pullback as pb
        >>> pb.stage(lambda x: pb.sum(x * x))(np.zeros(2)).compile()(np.array([3.0, 4.0]))
        array(25.)
        """
        # the compiler is a lower layer; the package resolves it lazily
        return sys.modules["pullback"].jit(_GraphFunction(self), donate_argnums=donate_argnums)

    def __str__(self) -> str:
        return format_graph(self, data=False)

    def __repr__(self) -> str:
        ins = ", ".join(format_spec(s.spec) for s in self.inputs)
        outs = ", ".join(format_spec(spec_of(o)) for o in self.outputs)
        return f"<graph of {len(self.equations)} equations: ({ins}) -> ({outs})>"

    def __copy__(self) -> Graph:
        return self

    def __deepcopy__(self, memo: Any) -> Graph:
        return self

    def __reduce__(self) -> Any:
        return Graph.from_json, (self.to_json(),)


class _GraphFunction:
    """The graph as a function whose arguments are checked when it is called, also by compiled code."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.__name__ = "graph"
        self.__doc__ = repr(graph)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.graph.run(*args, **kwargs)


#: Set by `builder` and by `stage`, which import this module: what an empty graph is, and how one is derived.
_builder_slot: list[Callable[[], Any]] = []
_derivative_slots: list[Callable[..., Graph]] = []
