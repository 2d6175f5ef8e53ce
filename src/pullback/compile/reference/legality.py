"""Which kernels have a meaning: conditions on axes, phases and stores, looked at before anything runs.

A line says on which axes it depends: along the others it is computed once. Then, of axes of more than one point,

1. a load or a gather says at least the axes along which its place moves, and (looked at when a kernel runs, since a
   value may have been stored once for each point of an axis that it does not depend on) the numbers of any line are the
   same along the axes it does not name;
2. a fold has inner axes to go over, does not depend on them, and what uses it is of a later phase;
3. a value stored without a word has one place for each of its values: its place moves along every axis it depends on;
4. the value of a fold is known once a row, and stored once a row: its place moves along no inner axis, and no word
   folds it again (that store would count rows, where the line itself counts points);
5. a store that is added to what is there (`onto`) happens at every point of the domain, so its value or its place must
   move along every axis: else the same value is added as often as the axis is long.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from ...errors import MiscompiledError
from ..loops import Kernel, Line, Store

__all__ = ["check_kernel"]


def check_kernel(kernel: Kernel) -> None:
    """Raise if a kernel has no meaning. One without points has none to be wrong at."""
    for problem in _problems(kernel):
        raise MiscompiledError(f"a kernel over {kernel.extents} that has no meaning: {problem}.")


def _problems(kernel: Kernel) -> Iterator[str]:
    rank = len(kernel.extents)
    wide = {i for i, n in enumerate(kernel.extents) if n > 1}
    inner = {i for i in wide if i >= rank - kernel.inner}
    for line in kernel.used() if math.prod(kernel.extents) else ():
        yield from _line_problems(line, wide, inner, kernel.inner)
    for store in kernel.stores if math.prod(kernel.extents) else ():
        place = {i for i in wide if store.strides[i]}.union(*(a.axes & wide for a in store.args))
        yield from _store_problems(store, place, wide, inner)


def _line_problems(line: Line, wide: set[int], inner: set[int], row: int) -> Iterator[str]:
    name = line.label or line.word or line.kind
    moves = {i for i in wide if line.strides and line.strides[i]}
    if not moves <= line.axes:
        yield f"{name} of {line.buffer!r} moves along axes {sorted(moves)} and says {sorted(line.axes)}"
    if line.kind == "fold" and not row:
        yield f"{name} folds a row, and there are no inner axes"
    if line.kind == "fold" and line.axes & inner:
        yield f"{name} folds a row, and says that it depends on its axes {sorted(line.axes & inner)}"
    if any(line.phase < a.phase + (a.kind == "fold") for a in line.args):
        yield f"{name} of phase {line.phase} uses what is not known yet"


def _store_problems(store: Store, place: set[int], wide: set[int], inner: set[int]) -> Iterator[str]:
    value = store.line.axes & wide
    what = f"the store of {store.line.label or store.line.word or store.line.kind} to {store.buffer!r}"
    if not store.word and not store.args and not value <= place:
        yield f"{what} has one place for several values, along axes {sorted(value - place)}"
    if store.line.kind == "fold" and (store.word or any(store.strides[i] for i in inner)):
        yield f"{what} is of a fold, known once a row, and happens at every point"
    if store.word and store.onto and not store.args and not wide <= value | place:
        yield f"{what} is added again along axes {sorted(wide - value - place)}, on which nothing depends"
