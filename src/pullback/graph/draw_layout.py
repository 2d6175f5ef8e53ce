"""Layered drawing, nodes and edges in, positions out: layers by longest path, few crossings, short edges.

An edge over several layers is a chain of bends, one in each layer between, so that
it goes around nodes; a very long one would need too many of them and runs straight.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

_LONG_EDGE = 8
_ROUNDS = 6
_GAP, _BEND_WIDTH = 24.0, 16.0


@dataclass(slots=True, eq=False)
class Box:
    """A node, or a bend of an edge: its size, its layer, its middle, and its neighbours."""

    width: float
    layer: int = 0
    x: float = 0.0
    above: list[Box] = field(default_factory=list)
    below: list[Box] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class DrawingLayout:
    """The boxes of the nodes in their order, and for each edge the boxes that it goes through."""

    boxes: list[Box]
    routes: list[list[Box]]
    layers: list[list[Box]]


def lay_out(widths: Sequence[float], edges: Sequence[tuple[int, int]]) -> DrawingLayout:
    """Nodes are given in an order in which edges go from earlier to later ones."""
    boxes = [Box(width) for width in widths]
    _choose_layers(boxes, edges)
    layers: list[list[Box]] = [[] for _ in range(1 + max((b.layer for b in boxes), default=0))]
    for box in boxes:
        layers[box.layer].append(box)
    routes = [_make_route(boxes[a], boxes[b], layers) for a, b in edges]
    for _ in range(_ROUNDS):
        for layer in layers[1:]:
            _order_layer(layer, up=True)
        for layer in reversed(layers[:-1]):
            _order_layer(layer, up=False)
    for _ in range(_ROUNDS):
        for layer in layers:
            _spread_layer(layer)
        for layer in reversed(layers):
            _spread_layer(layer)
    left = min((b.x - b.width / 2 for layer in layers for b in layer), default=0.0)
    for layer in layers:
        for box in layer:
            box.x -= left
    return DrawingLayout(boxes, routes, layers)


def _choose_layers(boxes: list[Box], edges: Sequence[tuple[int, int]]) -> None:
    """As early as possible; a node without predecessors (an input) moves down to just above its first use."""
    for a, b in sorted(edges, key=lambda edge: edge[1]):
        boxes[b].layer = max(boxes[b].layer, boxes[a].layer + 1)
    entered = {b for _, b in edges}
    first: dict[int, int] = {}
    for a, b in edges:
        first[a] = min(first.get(a, boxes[b].layer), boxes[b].layer)
    for a, layer in first.items():
        if a not in entered:
            boxes[a].layer = layer - 1


def _make_route(start: Box, end: Box, layers: list[list[Box]]) -> list[Box]:
    route = [start]
    if end.layer - start.layer <= _LONG_EDGE:
        for number in range(start.layer + 1, end.layer):
            bend = Box(_BEND_WIDTH, number)
            layers[number].append(bend)
            route.append(bend)
    route.append(end)
    for one, other in itertools.pairwise(route):
        one.below.append(other)
        other.above.append(one)
    return route


def _order_layer(layer: list[Box], up: bool) -> None:
    """Sort by the mean position of the neighbours in one direction; boxes without any keep their place."""
    for i, box in enumerate(layer):
        neighbours = box.above if up else box.below
        box.x = sum(n.x for n in neighbours) / len(neighbours) if neighbours else float(i)
    layer.sort(key=lambda box: box.x)
    for i, box in enumerate(layer):
        box.x = float(i)


def _spread_layer(layer: list[Box]) -> None:
    """The positions nearest to the preferred ones, in the least squares sense, at which no boxes overlap.

    With the width of the boxes before subtracted, this is isotonic regression: neighbours whose preferences cross are
    pooled and share their mean.
    """
    offsets = [0.0]
    for one, other in itertools.pairwise(layer):
        offsets.append(offsets[-1] + (one.width + other.width) / 2 + _GAP)
    pools: list[tuple[float, int]] = []
    for box, offset in zip(layer, offsets, strict=True):
        near = [*box.above, *box.below]
        total, count = (sum(n.x for n in near) / len(near) if near else box.x) - offset, 1
        while pools and pools[-1][0] / pools[-1][1] > total / count:
            more, size = pools.pop()
            total, count = total + more, count + size
        pools.append((total, count))
    places = [total / count for total, count in pools for _ in range(count)]
    for box, place, offset in zip(layer, places, offsets, strict=True):
        box.x = place + offset
