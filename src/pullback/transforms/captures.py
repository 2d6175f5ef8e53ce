"""Functions in, the values that they close over out, and the same functions over other values.

What is looked through: variables of enclosing functions, defaults, global names, the arguments of a `partial`, and
lists, tuples, dicts and functions in these. Attributes of objects are not; who runs the function sees that something
was missed when a result carries derivatives that it should not.
"""

from __future__ import annotations

import dis
import functools
import zlib
from collections.abc import Callable, Sequence
from types import CellType, CodeType, FunctionType
from typing import Any

import numpy as np

from ..arrays.value import Value
from ..errors import GraphError

__all__ = ["Captures", "Unchanged"]

#: What a function may close over that matters: values of ours, arrays of the user's.
_NOTED = (Value, np.ndarray)


class Captures:
    """What some `functions` close over: `values`, and the user's own `arrays`."""

    def __init__(self, functions: Sequence[Any]) -> None:
        self.functions = functions
        self._places: dict[int, int] = {}
        self.values: list[Any] = []
        self.arrays: list[np.ndarray] = []
        for function in functions:
            _Walk(self._noted).through(function)

    def _noted(self, x: Any) -> Any:
        if isinstance(x, np.ndarray):
            self.arrays.append(x)
        elif id(x) not in self._places:
            self._places[id(x)] = len(self.values)
            self.values.append(x)
        return x

    def over(self, values: Sequence[Any]) -> list[Any]:
        """The functions with other values in the places of those found."""
        if not self.values:
            return list(self.functions)
        walk = _Walk(lambda x: values[self._places[id(x)]] if isinstance(x, Value) else x)
        return [walk.through(function) for function in self.functions]


class Unchanged:
    """Watches arrays that a function closes over, which must be the same when it is run again. Those that the function
    itself writes to are no input of it, and are left alone.
    """

    def __init__(self, arrays: Sequence[np.ndarray]) -> None:
        self._sums = [(array, _sum(array)) for array in arrays]
        self._settled = False

    def check(self) -> None:
        """After the first run, drop what it wrote to; before any later one, raise if somebody else wrote."""
        changed = [array for array, before in self._sums if _sum(array) != before]
        if self._settled and changed:
            raise GraphError(
                f"checkpoint_loop: an array of shape {changed[0].shape} that the step closes over was written to "
                "since the loop ran, so running it again would give other values.\n"
                "  Pass it as one of the params, or write to it after the way back."
            )
        if not self._settled:
            self._sums = [pair for pair in self._sums if not any(pair[0] is array for array in changed)]
            self._settled = True


def _sum(array: Any) -> int:
    if not array.size or array.dtype.hasobject:
        return 0
    return zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


class _Walk:
    """Goes through what a function can see and puts what `change` answers in the place of each value."""

    def __init__(self, change: Callable[[Any], Any]) -> None:
        self._change = change
        self._done: dict[int, Any] = {}

    def through(self, x: Any) -> Any:
        """The thing itself if nothing in it changed."""
        if isinstance(x, _NOTED):
            return self._change(x)
        if type(x) in (list, tuple):
            items = [self.through(item) for item in x]
            return x if all(a is b for a, b in zip(items, x, strict=True)) else type(x)(items)
        if type(x) is dict:
            values = {key: self.through(value) for key, value in x.items()}
            return x if all(values[key] is x[key] for key in x) else values
        if isinstance(x, functools.partial):
            return self._partial(x)
        return self._function(x) if type(x) is FunctionType else x

    def _partial(self, x: functools.partial[Any]) -> Any:
        function, args, keywords = self.through(x.func), self.through(x.args), self.through(x.keywords)
        same = function is x.func and args is x.args and keywords is x.keywords
        return x if same else functools.partial(function, *args, **keywords)

    def _function(self, x: FunctionType) -> Any:
        if id(x) in self._done:
            return self._done[id(x)]
        self._done[id(x)] = x  # a function may see itself
        cells = tuple(self._cell(cell) for cell in x.__closure__ or ())
        defaults, keywords = self.through(x.__defaults__ or ()), self.through(x.__kwdefaults__ or {})
        names = self._globals(x)
        same = defaults is x.__defaults__ or not defaults, keywords is x.__kwdefaults__ or not keywords
        if not names and all(same) and all(a is b for a, b in zip(cells, x.__closure__ or (), strict=True)):
            return x
        seen = {**x.__globals__, **names} if names else x.__globals__
        made = FunctionType(x.__code__, seen, x.__name__, defaults or None, cells or None)
        made.__kwdefaults__ = keywords or None
        self._done[id(x)] = made
        return made

    def _cell(self, cell: CellType) -> CellType:
        try:
            held = cell.cell_contents
        except ValueError:  # not set yet
            return cell
        found = self.through(held)
        return cell if found is held else CellType(found)

    def _globals(self, x: FunctionType) -> dict[str, Any]:
        """Global names whose values changed. A function that sets global names needs the true ones, and those of
        libraries are no values of the user's.
        """
        used = {name for name in _names(x.__code__) if name in x.__globals__}
        library = str(x.__globals__.get("__name__")).split(".")[0] in ("pullback", "numpy")
        if not used or library or _sets_globals(x.__code__):
            return {}
        changed = {name: self._global(x.__globals__[name], x.__globals__) for name in used}
        return {name: value for name, value in changed.items() if value is not x.__globals__[name]}

    def _global(self, x: Any, around: dict[str, Any]) -> Any:
        """Functions of other modules are not looked through: there would be no end to it."""
        return x if type(x) is FunctionType and x.__globals__ is not around else self.through(x)


@functools.lru_cache(256)
def _sets_globals(code: CodeType) -> bool:
    return any(i.opname == "STORE_GLOBAL" for i in dis.get_instructions(code))


@functools.lru_cache(256)
def _names(code: CodeType) -> frozenset[str]:
    """The names that a function, or one inside of it, may look up among the global ones."""
    inner = [c for c in code.co_consts if isinstance(c, CodeType)]
    return frozenset(code.co_names).union(*map(_names, inner))
