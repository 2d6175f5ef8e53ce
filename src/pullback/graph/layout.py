"""Nodes and edges in, a place for each out: layers by longest path, few crossings, short edges.

The three steps of layered drawing. An edge over several layers is a chain of bends, one in each layer between, so that
it goes around nodes; a very long one would need too many of them and runs straight.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

__all__ = ["Box", "Layout", "laid_out"]

_LONG_EDGE = 8
_ROUNDS = 6
_GAP, _BEND = 24.0, 16.0


@dataclass(slots=True, eq=False)
class Box:
    """A node, or a bend of an edge: its size, its layer, where it lies (the middle), and its neighbours."""

    width: float
    layer: int = 0
    x: float = 0.0
    above: list[Box] = field(default_factory=list)
    below: list[Box] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Layout:
    """The boxes of the nodes in their order, and for each edge the boxes that it goes through."""

    boxes: list[Box]
    routes: list[list[Box]]
    layers: list[list[Box]]


def laid_out(widths: Sequence[float], edges: Sequence[tuple[int, int]]) -> Layout:
    """Nodes are given in an order in which edges go from earlier to later ones."""
    boxes = [Box(width) for width in widths]
    _choose_layers(boxes, edges)
    layers: list[list[Box]] = [[] for _ in range(1 + max((b.layer for b in boxes), default=0))]
    for box in boxes:
        layers[box.layer].append(box)
    routes = [_route(boxes[a], boxes[b], layers) for a, b in edges]
    for _ in range(_ROUNDS):
        for layer in layers[1:]:
            _order(layer, up=True)
        for layer in reversed(layers[:-1]):
            _order(layer, up=False)
    for _ in range(_ROUNDS):
        for layer in layers:
            _spread(layer)
        for layer in reversed(layers):
            _spread(layer)
    left = min((b.x - b.width / 2 for layer in layers for b in layer), default=0.0)
    for layer in layers:
        for box in layer:
            box.x -= left
    return Layout(boxes, routes, layers)


def _choose_layers(boxes: list[Box], edges: Sequence[tuple[int, int]]) -> None:
    """As early as possible; what has nothing above it (an input) moves down to just above its first use."""
    for a, b in sorted(edges, key=lambda edge: edge[1]):
        boxes[b].layer = max(boxes[b].layer, boxes[a].layer + 1)
    entered = {b for _, b in edges}
    first: dict[int, int] = {}
    for a, b in edges:
        first[a] = min(first.get(a, boxes[b].layer), boxes[b].layer)
    for a, layer in first.items():
        if a not in entered:
            boxes[a].layer = layer - 1


def _route(start: Box, end: Box, layers: list[list[Box]]) -> list[Box]:
    route = [start]
    if end.layer - start.layer <= _LONG_EDGE:
        for number in range(start.layer + 1, end.layer):
            bend = Box(_BEND, number)
            layers[number].append(bend)
            route.append(bend)
    route.append(end)
    for one, other in itertools.pairwise(route):
        one.below.append(other)
        other.above.append(one)
    return route


def _order(layer: list[Box], up: bool) -> None:
    """By the mean place of the neighbours in one direction; the order stays where they say nothing."""
    for i, box in enumerate(layer):
        neighbours = box.above if up else box.below
        box.x = sum(n.x for n in neighbours) / len(neighbours) if neighbours else float(i)
    layer.sort(key=lambda box: box.x)
    for i, box in enumerate(layer):
        box.x = float(i)


def _spread(layer: list[Box]) -> None:
    """The places nearest to what the boxes want, in the least squares sense, at which none overlaps its neighbour.

    With the room that the boxes before need taken off, this is the nearest rising sequence: neighbours that want to
    pass each other are pooled and share their mean.
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
