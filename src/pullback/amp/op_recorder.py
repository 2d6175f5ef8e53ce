"""An instrument that records what ops return, and what a half type lost of it: the raw material of `pb.amp.report`."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any, NamedTuple

import numpy as np

from ..arrays.call_site import format_line, is_package_code, user_line
from ..arrays.exchange import to_numpy
from ..arrays.node import Node
from ..arrays.spec import is_inexact
from ..arrays.tensor import Tensor
from ..instrument import Instrument, OpCall
from ..ops.casting import Casting
from ..ops.dispatch import compute
from ..ops.dtype_info import finfo
from ..ops.forms import Cast
from ..tape.cotangents import arrays_in

#: What ops before the first parameter belong to.
INPUT = "input"


@dataclass(frozen=True, slots=True)
class RangeLoss:
    """What rounding to a half type lost beyond digits: elements that became zero, that have fewer digits (subnormal),
    that became infinite; of how many; and the largest before rounding.
    """

    underflow: int = 0
    subnormal: int = 0
    overflow: int = 0
    size: int = 0
    largest: float = 0.0

    def __add__(self, other: RangeLoss) -> RangeLoss:
        return RangeLoss(
            self.underflow + other.underflow,
            self.subnormal + other.subnormal,
            self.overflow + other.overflow,
            self.size + other.size,
            max(self.largest, other.largest),
        )


class Place(NamedTuple):
    """Which op it is, or which function that `pb.autocast` decides as a whole; by which line of the user, and in which
    layer.
    """

    name: str
    line: str
    layer: str


class OpRecord(NamedTuple):
    """One result of an op: where, forward or in the backward pass; which records its arguments are; what it lost."""

    op: str
    place: Place
    is_backward: bool
    value: Any
    parents: tuple[int, ...]
    loss: RangeLoss

    @property
    def key(self) -> tuple[str, tuple[int, ...]]:
        """What the same op in another precision has too."""
        return self.op, self.value.shape


class OpRecorder(Instrument):
    """Records ops on floating-point arrays. `layers` says which layer each parameter belongs to, by the id of its
    array; an op belongs to the layer whose parameter was used last. A cast is no op of its own, since another precision
    has others: its result stands for its argument, and what it lost is counted with the op that reads it.
    """

    measures = True
    chooses_ops = True

    def __init__(self, layers: Mapping[int, str]) -> None:
        self.records: list[OpRecord] = []
        self._layers = dict(layers)
        self._layer = INPUT
        self._place: Place | None = None
        self._node: Node | None = None
        #: The ops that made the nodes, which are held so that no other gets their ids; so are arrays.
        self._nodes: dict[int, tuple[Place, Node]] = {}
        self._held: list[Any] = []
        #: Which record made an array, and what a cast lost to make it.
        self._makers: dict[int, int] = {}
        self._cast_losses: dict[int, RangeLoss] = {}
        #: Arrays that depend on a cotangent; others of the backward pass are values from before, moved.
        self._cotangents: set[int] = set()
        self._guard = threading.Lock()

    def node_made(self, node: Node) -> None:
        if self._place is not None and self._node is None:
            self._nodes[id(node)] = self._place, node

    def pull_begins(self, node: Node, bar: Any) -> None:
        self._node = node
        self._add_cotangents(list(arrays_in(bar)))

    def backward_ends(self, released: bool) -> None:
        self._node = None

    def compute(self, call: OpCall, below: Callable[[], Any]) -> Any:
        out = below()
        if call.level <= 1:
            results = [_bare(x) for x in (out if isinstance(out, tuple) else (out,))]
            with self._guard:
                self._record(call, results, sys._getframe(1))
        return out

    def _record(self, call: OpCall, results: Sequence[Any], frame: FrameType) -> None:
        values = [_bare(x) for x in call.values]
        if self._node is not None:
            if self._cotangents.isdisjoint(map(id, values)):
                return
            self._add_cotangents(results)
        place = self._find_place(call.op.name, frame, values)
        parents = tuple(self._makers[id(x)] for x in values if id(x) in self._makers)
        for result, loss in zip(results, _range_losses(call, values, results), strict=True):
            if not is_inexact(getattr(result, "dtype", np.dtype(bool))):
                continue
            self._held.append(result)
            if isinstance(call.op.form, Cast) and self._node is None:
                self._stand_for(values[0], result, loss)
                continue
            if self._node is None:
                loss = sum((self._cast_losses.get(id(x), RangeLoss()) for x in values), loss)
            self._makers[id(result)] = len(self.records)
            self.records.append(OpRecord(call.op.name, place, self._node is not None, result, parents, loss))

    def _add_cotangents(self, arrays: Sequence[Any]) -> None:
        self._held += arrays
        self._cotangents.update(map(id, arrays))

    def _find_place(self, name: str, frame: FrameType, values: Sequence[Any]) -> Place:
        if self._node is not None:
            known = self._nodes.get(id(self._node))
            return Place(self._node.name, self._node.where(), INPUT) if known is None else known[0]
        for value in values:
            self._layer = self._layers.get(id(value), self._layer)
        self._place = Place(_whole_around(frame) or name, format_line(*user_line(frame)), self._layer)
        return self._place

    def _stand_for(self, value: Any, result: Any, loss: RangeLoss) -> None:
        if id(value) in self._makers:
            self._makers[id(result)] = self._makers[id(value)]
        if id(value) in self._layers:
            self._layers[id(result)] = self._layers[id(value)]
        self._cast_losses[id(result)] = loss


def _whole_around(frame: FrameType | None) -> str:
    """The name of the function around an op that `pb.autocast` decided as a whole, empty if there is none."""
    while frame is not None and is_package_code(frame.f_code):
        if frame.f_code is Casting.call.__code__:
            return str(frame.f_locals["whole"].name)
        frame = frame.f_back
    return ""


def _bare(x: Any) -> Any:
    while isinstance(x, Tensor):
        x = x.value
    return x


def _range_losses(call: OpCall, values: Sequence[Any], results: Sequence[Any]) -> list[RangeLoss]:
    """What rounding to a half type lost, by comparison with the op on the same arguments in float32."""
    exact: Any = [None] * len(results)
    if any(map(is_half_array, results)):
        if isinstance(call.op.form, Cast):
            exact = [values[0]]
        elif call.effects.repeat:
            wide = [x.astype(np.float32) if is_half_array(x) else x for x in values]
            found = compute(call.op, wide, call.static)
            exact = found if isinstance(found, tuple) else [found]
    pairs = zip(results, exact, strict=True)
    return [_range_loss(low, high) if is_half_array(low) and _is_wide(high) else RangeLoss() for low, high in pairs]


def is_half_array(x: Any) -> bool:
    """Whether x is an array of a half type."""
    dtype = getattr(x, "dtype", None)
    return dtype is not None and is_inexact(dtype) and dtype.itemsize == 2


def _is_wide(x: Any) -> bool:
    return x is not None and not is_half_array(x)


def _range_loss(low: Any, high: Any) -> RangeLoss:
    smallest = finfo(low.dtype).smallest_normal
    low, high = (np.abs(to_numpy(x, "amp.report").astype(np.float64)) for x in (low, high))
    finite = np.isfinite(high)
    return RangeLoss(
        int(np.sum((low == 0) & (high > 0))),
        int(np.sum((low > 0) & (low < smallest))),
        int(np.sum(finite & ~np.isfinite(low))),
        low.size,
        float(np.max(high[finite], initial=0.0)),
    )
