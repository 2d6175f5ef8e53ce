"""The values that functions close over, and the same functions rebound to other values.

Searched are: variables of enclosing functions, defaults, global names, the arguments of a `partial`, and
lists, tuples, dicts and functions in these. Attributes of objects are not; the caller sees that something was missed
when a result is tracked that should not be.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Iterable, Sequence
from types import CellType, FunctionType
from typing import Any

import numpy as np

from ...arrays.closures import CodeNames, Walk, is_library, names_in_code
from ...arrays.value import Value
from ...errors import GraphError

#: The captures that matter: values of ours, arrays of the user.
_CAPTURED_TYPES = (Value, np.ndarray)


class Captures:
    """What some `functions` close over: `values`, and the user's own `arrays`."""

    def __init__(self, functions: Sequence[Any]) -> None:
        self.functions = functions
        self._places: dict[int, int] = {}
        self.values: list[Any] = []
        self.arrays: list[np.ndarray] = []
        _CaptureWalk(self._note_capture).run(functions)

    def _note_capture(self, x: Any) -> Any:
        if isinstance(x, np.ndarray):
            self.arrays.append(x)
        elif id(x) not in self._places:
            self._places[id(x)] = len(self.values)
            self.values.append(x)
        return x

    def rebind(self, values: Sequence[Any]) -> list[Any]:
        """The functions with other values in place of those found."""
        if not self.values:
            return list(self.functions)
        walk = _CaptureWalk(lambda x: values[self._places[id(x)]] if isinstance(x, Value) else x)
        return [walk.rebuild(function) for function in self.functions]


class UnchangedArrays:
    """Watches arrays that a function closes over, which must be unchanged when it runs again. Those that the function
    itself writes to are not inputs, and are ignored.
    """

    def __init__(self, arrays: Sequence[np.ndarray]) -> None:
        self._sums = [(array, checksum(array)) for array in arrays]
        self._has_run = False

    def check(self) -> None:
        """After the first run, drop what it wrote to; before any later one, raise if an array was changed."""
        changed = [array for array, before in self._sums if checksum(array) != before]
        if self._has_run and changed:
            raise GraphError(
                f"checkpoint_loop: an array of shape {changed[0].shape} that the step closes over was written to "
                "since the loop ran, so running it again would give other values.\n"
                "  Pass it as one of the params, or write to it after the backward pass."
            )
        if not self._has_run:
            self._sums = [pair for pair in self._sums if not any(pair[0] is array for array in changed)]
            self._has_run = True


def checksum(array: Any) -> int:
    """A number that another content would not have; always zero for an array of objects."""
    if not array.size or array.dtype.hasobject:
        return 0
    return zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


class _CaptureWalk(Walk):
    """Walks what a function can see, as far as it can be rebuilt, and replaces each value by what `change` returns."""

    def __init__(self, change: Callable[[Any], Any]) -> None:
        Walk.__init__(self)
        self._change = change
        self._rebuilt: dict[int, Any] = {}

    def takes(self, thing: Any) -> bool:
        if isinstance(thing, _CAPTURED_TYPES):
            self._change(thing)
        return not _can_rebuild(thing)

    def global_names(self, function: Any, facts: CodeNames) -> Iterable[str]:
        """A function that sets global names needs the true ones, and those of libraries are no values of the user's.
        Functions of other modules are not searched: there would be no end to it.
        """
        known = function.__globals__
        if facts.sets_globals or is_library(str(known.get("__name__")), False, False):
            return ()
        values = {name: known[name] for name in facts.globals if name in known}
        return [n for n, x in values.items() if type(x) is not FunctionType or x.__globals__ is known]

    def rebuild(self, x: Any) -> Any:
        """x with the other values in it; the same object if nothing in it changed."""
        if isinstance(x, _CAPTURED_TYPES):
            return self._change(x)
        if not _can_rebuild(x):
            return x
        if id(x) not in self.seen:
            self.seen[id(x)] = self._rebuilt[id(x)] = x  # a function may see itself
            self._rebuilt[id(x)] = self._rebuild_parts(x)
        return self._rebuilt[id(x)]

    def _rebuild_parts(self, x: Any) -> Any:
        if type(x) is FunctionType:
            return self._rebuild_function(x)
        parts = [x.func, x.args, x.keywords] if isinstance(x, functools.partial) else self.items_of(x)
        made = [self.rebuild(part) for part in parts]
        if all(a is b for a, b in zip(made, parts, strict=True)):
            return x
        if isinstance(x, functools.partial):
            return functools.partial(made[0], *made[1], **made[2])
        return dict(zip(x, made, strict=True)) if type(x) is dict else type(x)(made)

    def _rebuild_function(self, x: FunctionType) -> Any:
        reads = self.reads_of(x, names_in_code(x.__code__))
        cells, defaults, keywords, names = made = [self.rebuild(part) for part in reads]
        if all(a is b for a, b in zip(made, reads, strict=True)):
            return x
        # the function itself is never changed: another thread may run it
        known = x.__globals__ if names is reads.globals else {**x.__globals__, **names}
        kept = zip(x.__closure__ or (), cells, reads.cells, strict=True)
        variables = tuple(cell if now is was else CellType(now) for cell, now, was in kept)
        function = FunctionType(x.__code__, known, x.__name__, defaults or None, variables or None)
        function.__kwdefaults__ = keywords or None
        return function


def _can_rebuild(x: Any) -> bool:
    return type(x) in (list, tuple, dict, FunctionType) or isinstance(x, functools.partial)
