"""The instrument of `find_nan`: it sees each op that computes, and follows numbers that are not finite."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...arrays.backends import is_array, namespace_of, to_host
from ...arrays.origin import Origin, find_origin
from ...arrays.spec import spec_of
from ...arrays.value import Value, unwrap_array
from ...instrument import Instrument, OpCall, ProgramCall
from ...ops.op import Op
from ...transforms.vectorize import Batched, axis_in_array
from .classify import find_new, is_finite, kind_of
from .records import Fault, Source

#: The most arrays whose numbers are compared to find what an array is a copy of.
_MOST_COMPARED = 256


class NanWatch(Instrument):
    """Notes each op that made a NaN or an infinity, and from where those in each array came."""

    measures = True

    def __init__(self, search_program: Callable[[NanWatch, ProgramCall, Callable[[], Any]], Any]) -> None:
        self.faults: list[Fault] = []
        #: Ops whose results are not finite because their arguments were not: name, and line.
        self.passed: list[tuple[str, Origin | None]] = []
        # by the id of an array that is not finite: the array, which keeps the id valid, and the source of its numbers
        self._sources: dict[int, tuple[Any, Source | Fault]] = {}
        self._search_program = search_program
        self._guard = threading.RLock()

    def compute(self, call: OpCall, below: Callable[[], Any]) -> Any:
        before = len(self.faults)
        out = below()
        outs = out if type(out) is tuple else (out,)
        # an op on values of a transform is seen again, as ops on their arrays
        if not any(isinstance(x, Value) for x in (*call.values, *outs)) and not all(map(is_finite, outs)):
            frame = sys._getframe(1)
            self.look(call.op, call.values, outs, lambda: find_origin(frame), before)
        return out

    def run_program(self, call: ProgramCall, below: Callable[[], Any]) -> Any:
        return self._search_program(self, call, below)

    def look(
        self,
        op: Op,
        args: Sequence[Any],
        outs: Sequence[Any],
        origin: Callable[[], Origin | None],
        before: int | None = None,
        compiled: str = "",
        doubt: str = "",
    ) -> Fault | None:
        """Note what an op did. `before`: faults from this one on were noted while it ran, as by ops of a solver that it
        is. Returns the fault if it is a new one.
        """
        bad = [x for x in outs if is_array(x) and not is_finite(x)]
        with self._guard:
            if all(id(x) in self._sources for x in bad):
                return None
            inner = self.faults[before] if before is not None and before < len(self.faults) else None
            fault, source = (None, inner) if inner is not None else self._judge(op, args, outs, origin, compiled, doubt)
            for x in bad:
                self.note(x, source)
            return fault

    def _judge(
        self,
        op: Op,
        args: Sequence[Any],
        outs: Sequence[Any],
        origin: Callable[[], Origin | None],
        compiled: str,
        doubt: str,
    ) -> tuple[Fault | None, Source | Fault]:
        """The fault, if it is the op's own, and the source of what is not finite in its results."""
        line = origin()
        given = [(x, self.source_of(x, line)) for x in args if not is_finite(x)]
        found = find_new(op, args, outs)
        if found is None:
            self.passed.append((op.name, line))
            return None, _choose_cause(given, outs) or Source("unseen", f"{op.name}, in a way not seen")
        fault = Fault(
            len(self.faults), found.kind, op.name, line, found.index, found.count, found.spec,
            "" if doubt else found.given, tuple(dict.fromkeys(source for _, source in given)), compiled, doubt=doubt,
        )  # fmt: skip
        for level, axis in line.batches.items() if line is not None else ():
            fault.note_sample(level, fault.index[axis])
        self.faults.append(fault)
        return fault, fault

    def note(self, x: Any, source: Source | Fault) -> None:
        """Remember where the numbers of an array came from."""
        self._sources[id(x)] = x, source

    def source_of(self, x: Any, met: Origin | None = None) -> Source | Fault:
        """Where what is not finite in an argument came from: known by the array, by what it is a view of, or by an
        array of equal numbers, which it is a copy of.
        """
        if not is_array(x):
            return Source("constant", f"the number {x}" + ("" if met is None else f" at {met.line}"))
        base = x
        while base is not None:
            if id(base) in self._sources:
                return self._sources[id(base)][1]
            base = getattr(base, "base", None)
        recent = list(self._sources.values())[-_MOST_COMPARED:]
        equal = next((source for y, source in reversed(recent) if _is_copy(x, y)), None)
        where = "" if met is None else f", met at {met.line}"
        return equal or Source("unseen", f"an array {x.shape} with {kind_of(x)} that no op seen made{where}")

    def batched(self, value: Batched) -> None:
        """An op of a `vmap` has its result: which element of the batch is concerned?"""
        array = unwrap_array(value.value)
        if value.axis is None or not is_array(array) or id(array) not in self._sources:
            return
        source = self._sources[id(array)][1]
        if isinstance(source, Fault):
            axis = axis_in_array(value)
            bad = to_host(~namespace_of([array]).isfinite(array))
            others = tuple(i for i in range(bad.ndim) if i != axis)
            named = len(source.index) == bad.ndim and source.spec == str(spec_of(array))
            source.note_sample(value.level, source.index[axis] if named else int(np.argmax(bad.any(axis=others))))


def _choose_cause(given: Sequence[tuple[Any, Source | Fault]], outs: Sequence[Any]) -> Source | Fault | None:
    """Of several arguments that are not finite, the one that explains the results: a NaN comes from a NaN; of several
    the first fault, since what an argument of the run brought may be meant.
    """
    if any(kind_of(x) == "nan" for x in outs if not is_finite(x)):
        given = [(x, source) for x, source in given if kind_of(x) == "nan"] or given
    faults = [source for _, source in given if isinstance(source, Fault)]
    return min(faults, key=lambda fault: fault.number, default=given[0][1] if given else None)


def _is_copy(x: Any, y: Any) -> bool:
    same = x is y or (x.shape == y.shape and x.dtype == y.dtype and type(x) is type(y))
    return same and bool(np.array_equal(to_host(x), to_host(y), equal_nan=True))
