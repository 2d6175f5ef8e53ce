"""Sums of cotangents: how the contributions to one value are accumulated and handed to the user."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..arrays.backends import array_class_of_gpus, copy_array, is_array
from ..arrays.spec import Spec
from ..arrays.tensor import Tensor, alias
from ..arrays.value import Value
from ..ops.binding import bind_function
from ..ops.elementwise import pointwise
from ..ops.op import MaskedCotangent
from .row_sparse import RowSparse


class ResultCotangents:
    """The cotangents of an op with several results. It grows as they arrive, since there may be thousands."""

    __slots__ = ("_arrived", "_count")

    def __init__(self, index: int, count: int, bar: Any) -> None:
        self._count = count
        self._arrived = {index: bar}

    @property
    def bars(self) -> tuple[Any, ...]:
        """The cotangent of each result, None for those without one."""
        return tuple(map(self._arrived.get, range(self._count)))

    @property
    def is_masked(self) -> bool:
        return any(type(bar) is MaskedCotangent for bar in self._arrived.values())

    def add_parts(self, other: ResultCotangents) -> ResultCotangents:
        """Add the cotangents of another collection to these."""
        for index, bar in other._arrived.items():
            held = self._arrived.get(index)
            self._arrived[index] = bar if held is None else accumulate(held, bar)
        return self


def step_of_part(index: int) -> Callable[..., None]:
    """The step of a backward pass at the node of one result of many: its cotangent takes its place among the others."""

    def step(kept: tuple[Any, ...], parents: tuple[Any, ...], bar: Any, waiting: Any) -> None:
        (parent,) = parents
        found, held = ResultCotangents(index, len(parent.spec), bar), parent.bar
        parent.bar = found if held is waiting else accumulate(held, found)

    return step


def strip_mask(bar: Any) -> Any:
    """A cotangent as an array: without its mask, or with its rows in place."""
    if type(bar) is RowSparse:
        return bar.todense()
    return bar.bar if type(bar) is MaskedCotangent else bar


def accumulate(held: Any, share: Any) -> Any:
    """held + share, for everything a cotangent can be. Never writes into an array."""
    if type(held) is ResultCotangents:
        return held.add_parts(share)
    # a sum of two masked cotangents is zero where both are; with any other it is nonzero anywhere
    if type(held) is MaskedCotangent and type(share) is MaskedCotangent:
        return MaskedCotangent(pointwise.add(held.bar, share.bar), pointwise.logical_or(held.mask, share.mask))
    if type(held) is RowSparse and type(share) is RowSparse:
        return held.add_rows(share)
    return pointwise.add(strip_mask(held), strip_mask(share))


def adder_of(spec: Spec) -> Callable[[Any, Any], Any]:
    """`accumulate` for cotangents of a spec; on a GPU one kernel, launched directly."""
    if spec.device == "cpu":
        return accumulate
    add, kind = bind_function(pointwise.add.op, (spec, spec), {}), array_class_of_gpus()
    return lambda held, share: (
        add(held, share) if type(held) is kind and type(share) is kind else accumulate(held, share)
    )


def arrays_in(value: Any) -> Iterator[Any]:
    """The bare arrays inside an argument, a result or a cotangent, also inside values of transforms."""
    waiting = [value]
    while waiting:
        x = waiting.pop()
        if is_array(x):
            yield x
        elif isinstance(x, (tuple, list)):
            waiting.extend(x)
        elif isinstance(x, Value):
            waiting.extend(x.parts())
        elif type(x) is MaskedCotangent:
            waiting.extend((x.bar, x.mask))
        elif type(x) is RowSparse:
            waiting.extend((x.rows, x.values))
        elif type(x) is ResultCotangents:
            waiting.extend(x.bars)


class GradientDelivery:
    """Returns cotangents to the user, each in its own memory: a view, or what was returned before, is copied.

    Memory that the engine still uses is safe too: it writes only where it holds the only reference.
    """

    __slots__ = ("_given",)

    def __init__(self) -> None:
        self._given: dict[int, weakref.ref[Any]] = {}

    def owned_copy(self, bar: Any) -> Any:
        if type(bar) is not np.ndarray:
            bar = strip_mask(bar)
            if isinstance(bar, Value):
                return self._own_tensor(bar) if type(bar) is Tensor else bar
        # ids are reused: only a live reference says that it is the same array
        before = self._given.get(id(bar))
        if bar.base is not None or (before is not None and before() is bar):
            bar = copy_array(bar, "C")
        self._given[id(bar)] = weakref.ref(bar)
        return bar

    def _own_tensor(self, bar: Tensor) -> Tensor:
        if isinstance(bar.value, Value):
            return bar
        twin: Tensor = alias(bar)
        twin.value = self.owned_copy(bar.value)
        return twin
