"""The values that functions close over, and the same functions rebound to other values.

Searched are: variables of enclosing functions, defaults, global names, the arguments of a `partial`, and
lists, tuples, dicts and functions in these. Attributes of objects are not; the caller sees that something was missed
when a result is tracked that should not be.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Sequence
from types import CellType, FunctionType
from typing import Any

import numpy as np

from ...arrays.closures import MISSING, content_of, names_in_code
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
        for function in functions:
            _CaptureWalk(self._note_capture).visit(function)

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
        return [walk.visit(function) for function in self.functions]


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


class _CaptureWalk:
    """Walks what a function can see and replaces each value by what `change` returns."""

    def __init__(self, change: Callable[[Any], Any]) -> None:
        self._change = change
        self._done: dict[int, Any] = {}

    def visit(self, x: Any) -> Any:
        """The same object if nothing in it changed."""
        if isinstance(x, _CAPTURED_TYPES):
            return self._change(x)
        if type(x) in (list, tuple):
            items = [self.visit(item) for item in x]
            return x if all(a is b for a, b in zip(items, x, strict=True)) else type(x)(items)
        if type(x) is dict:
            values = {key: self.visit(value) for key, value in x.items()}
            return x if all(values[key] is x[key] for key in x) else values
        if isinstance(x, functools.partial):
            return self._visit_partial(x)
        return self._visit_function(x) if type(x) is FunctionType else x

    def _visit_partial(self, x: functools.partial[Any]) -> Any:
        function, args, keywords = self.visit(x.func), self.visit(x.args), self.visit(x.keywords)
        same = function is x.func and args is x.args and keywords is x.keywords
        return x if same else functools.partial(function, *args, **keywords)

    def _visit_function(self, x: FunctionType) -> Any:
        if id(x) in self._done:
            return self._done[id(x)]
        self._done[id(x)] = x  # a function may see itself
        cells = tuple(self._visit_cell(cell) for cell in x.__closure__ or ())
        defaults, keywords = self.visit(x.__defaults__ or ()), self.visit(x.__kwdefaults__ or {})
        names = self._changed_globals(x)
        same = defaults is x.__defaults__ or not defaults, keywords is x.__kwdefaults__ or not keywords
        if not names and all(same) and all(a is b for a, b in zip(cells, x.__closure__ or (), strict=True)):
            return x
        # the function itself is never changed: another thread may run it
        seen = {**x.__globals__, **names} if names else x.__globals__
        made = FunctionType(x.__code__, seen, x.__name__, defaults or None, cells or None)
        made.__kwdefaults__ = keywords or None
        self._done[id(x)] = made
        return made

    def _visit_cell(self, cell: CellType) -> CellType:
        held = content_of(cell)
        found = held if held is MISSING else self.visit(held)
        return cell if found is held else CellType(found)

    def _changed_globals(self, x: FunctionType) -> dict[str, Any]:
        """Global names whose values changed. A function that sets global names needs the true ones, and those of
        libraries are no values of the user's.
        """
        names = names_in_code(x.__code__)
        used = [name for name in names.globals if name in x.__globals__]
        library = str(x.__globals__.get("__name__")).split(".")[0] in ("pullback", "numpy")
        if not used or library or names.sets_globals:
            return {}
        changed = {name: self._visit_global(x.__globals__[name], x.__globals__) for name in used}
        return {name: value for name, value in changed.items() if value is not x.__globals__[name]}

    def _visit_global(self, x: Any, around: dict[str, Any]) -> Any:
        """Functions of other modules are not searched: there would be no end to it."""
        return x if type(x) is FunctionType and x.__globals__ is not around else self.visit(x)
