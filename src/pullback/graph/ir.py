"""The program as data, in three small types: symbols (values known by their spec), equations, and the graph of them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..arrays.spec import spec_of
from ..arrays.trees import flatten, paths, unflatten
from ..errors import ArgumentError, DtypeError, GraphError, IndexingError, PullbackError, ShapeError
from ..ops.dispatch import as_value
from ..ops.specialise import Equation, Symbol, replay
from .draw import drawn_to
from .parse import parsed
from .serial import json_of, parts_from
from .text import graph_text, spec_text
from .verify import verified

__all__ = ["Equation", "Graph", "Symbol"]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Graph:
    """A program: inputs, equations in their order, outputs. `pb.stage` makes one of a function.

    `arguments` is the structure of (args, kwargs) that the inputs are the leaves of, `results` that of the outputs;
    without them a graph takes its inputs one by one and answers one output, or a tuple. `pb.Graph()` without anything
    starts an empty graph to be built by hand, a `GraphBuilder`.

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
        return object.__new__(cls) if fields or named else _empty[0]()

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
        """The leaves of the arguments, compared with what the graph was staged for before anything runs."""
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
                raise kind(f"input {i}{self._place(i)} of this graph is {spec_text(spec)}, got {spec_text(found)}.")
        return values

    def _place(self, number: int) -> str:
        return "" if self.arguments is None else f" (arguments{paths(self.arguments)[number]})"

    def specs(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """(args, kwargs) with the spec of each input in its place: what `pb.stage` can be given again."""
        leaves = [s.spec for s in self.inputs]
        if self.arguments is None:
            return tuple(leaves), {}
        found: tuple[tuple[Any, ...], dict[str, Any]] = unflatten(self.arguments, leaves)
        return found

    def text(self) -> str:
        """The whole graph as text, a line for each equation; `Graph.parse` reads it back."""
        return graph_text(self)

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
        graph: Graph = Graph(*parsed(text, ops))
        return graph.verify()

    def to_json(self) -> str:
        """The graph as JSON text, with the bytes of its constants; `Graph.from_json` reads it back."""
        return json_of(self)

    @staticmethod
    def from_json(text: str | bytes, *, ops: Any = ()) -> Graph:
        """The graph that `to_json` wrote. Nothing in it is evaluated, so the text may come from anywhere.

        >>> import numpy as np, pullback as pb
        >>> graph = pb.stage(pb.sin)(np.zeros(2))
        >>> pb.Graph.from_json(graph.to_json()).text() == graph.text()
        True
        """
        graph: Graph = Graph(*parts_from(text, ops))
        return graph.verify()

    def verify(self) -> Graph:
        """This graph, if every argument is known where it is used and every spec is what its op says; else an error."""
        return verified(self)

    def draw(self, path: str | Path | None = None) -> str:
        """A picture: written to an `.svg` or `.html` file, which needs nothing but itself. Answers the text of it."""
        return drawn_to(self, path)

    def gradients(self, outputs: Any = None, wrt: Any = None) -> Graph:
        """The graph of the gradient of the sum of some outputs (numbers; all of them) with respect to some arguments
        (numbers; all that are floating). Each output must be one number.

        >>> import numpy as np, pullback as pb
        >>> graph = pb.stage(lambda w, x: pb.sum((x @ w) ** 2))(np.zeros(2), np.zeros((3, 2)))
        >>> graph.gradients(wrt=0).run(np.ones(2), np.eye(3, 2))
        array([2., 2.])
        """
        return _derive[0](self, outputs, wrt)

    def jvp(self, wrt: Any = None) -> Graph:
        """The graph of the derivative along tangents: it takes the arguments, then a tangent for each in `wrt` (all
        that are floating), and answers (results, their tangents).

        >>> import numpy as np, pullback as pb
        >>> pb.stage(lambda x: x * x)(np.zeros(2)).jvp().run(np.array([1.0, 3.0]), np.ones(2))
        (array([1., 9.]), array([2., 6.]))
        """
        return _derive[1](self, wrt)

    def compile(self, *, donate_argnums: Any = ()) -> Any:
        """The graph as a compiled function of the same arguments; see `pb.jit`.

        >>> import numpy as np, pullback as pb
        >>> pb.stage(lambda x: pb.sum(x * x))(np.zeros(2)).compile()(np.array([3.0, 4.0]))
        array(25.)
        """
        # the compiler lies below this layer; the package knows where to find it
        return sys.modules["pullback"].jit(_Call(self), donate_argnums=donate_argnums)

    def __str__(self) -> str:
        return graph_text(self, data=False)

    def __repr__(self) -> str:
        ins = ", ".join(spec_text(s.spec) for s in self.inputs)
        outs = ", ".join(spec_text(spec_of(o)) for o in self.outputs)
        return f"<graph of {len(self.equations)} equations: ({ins}) -> ({outs})>"

    def __copy__(self) -> Graph:
        return self

    def __deepcopy__(self, memo: Any) -> Graph:
        return self

    def __reduce__(self) -> Any:
        return Graph.from_json, (self.to_json(),)


class _Call:
    """The graph as a function whose arguments are checked when it is called, also by compiled code."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.__name__ = "graph"
        self.__doc__ = repr(graph)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.graph.run(*args, **kwargs)


#: Given by `builder` and by `stage`, which are made of graphs: what an empty graph is, and how one is derived.
_empty: list[Callable[[], Any]] = []
_derive: list[Callable[..., Graph]] = []
