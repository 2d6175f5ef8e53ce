"""Programs as TensorFlow's messages of graphs, for TensorBoard to draw."""

from __future__ import annotations

from typing import Any

from ..arrays.spec import spec_of
from ..program.ir import Program, Symbol
from .protobuf import data, integer


def encode_graph(program: Program) -> bytes:
    """A node for each input, constant, op and output, by names that are paths of their kinds."""
    names: dict[int, str] = {}
    nodes = []
    for number, symbol in enumerate(program.inputs):
        names[id(symbol)] = f"inputs/x{number}"
        nodes.append(_encode_node(names[id(symbol)], "input", [], [symbol.spec]))
    for number, e in enumerate(program.equations):
        name = f"{e.op.name}_{number}"
        sources = []
        for place, arg in enumerate(e.args):
            if isinstance(arg, Symbol):
                sources.append(names[id(arg)])
            else:
                sources.append(f"constants/{name}_{place}")
                nodes.append(_encode_node(sources[-1], "constant", [], [spec_of(arg)]))
        nodes.append(_encode_node(name, e.op.name, sources, [s.spec for s in e.results]))
        for place, symbol in enumerate(e.results):
            names[id(symbol)] = f"{name}:{place}" if place else name
    for number, out in enumerate(program.outputs):
        source = [names[id(out)]] if isinstance(out, Symbol) else []
        nodes.append(_encode_node(f"outputs/y{number}", "output", source, [spec_of(out)]))
    return b"".join(data(1, node) for node in nodes) + data(4, integer(1, 22))


def _encode_node(name: str, op: str, sources: list[str], specs: list[Any]) -> bytes:
    shapes = b"".join(data(7, b"".join(data(2, integer(1, n)) for n in spec.shape)) for spec in specs)
    shape = data(1, "_output_shapes") + data(2, data(1, shapes))
    return data(1, name) + data(2, op) + b"".join(data(3, s) for s in sources) + data(5, shape)
