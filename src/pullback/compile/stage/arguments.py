"""The fast path of argument flattening, without the tree package: it runs at every call of a compiled function."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ...arrays.backends import is_device_array
from ...arrays.tensor import Tensor
from ...arrays.trees import registered_flatten

_ndarray = np.ndarray


#: The arrays in a call's arguments, in the order of a tree; None if these are no longer as they were.
Flattener = Callable[[tuple[Any, ...]], list[Any] | None]


def make_flattener(args: tuple[Any, ...]) -> Flattener | None:
    """A function that flattens arguments of the structure of these, written out: half of the time of a walk over it.
    None if they have anything but arrays in dicts, lists, tuples, named tuples, registered classes and None. That
    leaves are arrays is checked by native code.
    """
    text = _FlattenerText()
    if not text.add(args, "args"):
        return None
    made: Flattener = _compile_flattener("\n        ".join(text.lines), ", ".join(text.leaves), len(text.known))(
        *text.known
    )
    return made


class _FlattenerText:
    """The lines of a flattener, expressions for its leaves, and what it compares with."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.leaves: list[str] = []
        self.known: list[Any] = []
        self.count = 0

    def add(self, x: Any, name: str) -> bool:
        """Add what `name` stands for; False if nothing but the tree package can flatten it."""
        if _is_leaf(x):
            self.leaves.append(name)
            return True
        if x is None:
            self.lines.append(f"if {name} is not None: return None")
            return True
        if type(x) is dict:
            keys = _sorted_keys(x)
            return keys is not None and self._add_dict(x, name, keys)
        if type(x) in (list, tuple) or (isinstance(x, tuple) and hasattr(x, "_fields")):
            return self._add_sequence(x, name)
        take_apart = registered_flatten(type(x))
        return take_apart is not None and self._add_registered(x, name, take_apart)

    def _add_dict(self, x: dict[Any, Any], name: str, keys: list[Any]) -> bool:
        # a function sees the order of its dicts
        self.lines.append(f"if type({name}) is not dict or list({name}) != {self._know(list(x))}: return None")
        names = [self._name() for _ in keys]
        self.lines += [f"{own} = {name}[{self._know(key)}]" for own, key in zip(names, keys, strict=True)]
        return all(self.add(x[key], own) for own, key in zip(names, keys, strict=True))

    def _add_sequence(self, x: Any, name: str) -> bool:
        kind = x.__class__.__name__ if type(x) in (list, tuple) else self._know(type(x))
        self.lines.append(f"if type({name}) is not {kind} or len({name}) != {len(x)}: return None")
        if all(map(_is_leaf, x)):
            self.leaves += [f"*{name}"] if x else []
            return True
        names = [self._name() for _ in x]
        self.lines.append(f"{', '.join(names)}, = {name}")
        return all(self.add(item, own) for own, item in zip(names, x, strict=True))

    def _add_registered(self, x: Any, name: str, take_apart: Callable[[Any], tuple[Any, ...]]) -> bool:
        children, rest, *_ = take_apart(x)
        if type(children) not in (list, tuple):
            return False
        parts, kept, known = self._name(), self._name(), self._know(rest)
        self.lines += [
            f"if type({name}) is not {self._know(type(x))}: return None",
            f"{parts}, {kept}, *_ = {self._know(take_apart)}({name})",
            f"if {kept} is not {known} and {kept} != {known}: return None",
        ]
        return self._add_sequence(children, parts)

    def _name(self) -> str:
        self.count += 1
        return f"x{self.count}"

    def _know(self, thing: Any) -> str:
        self.known.append(thing)
        return f"v{len(self.known) - 1}"


def _is_leaf(x: Any) -> bool:
    return type(x) is _ndarray or type(x) is Tensor or is_device_array(x)


@functools.lru_cache(maxsize=256)
def _compile_flattener(lines: str, leaves: str, count: int) -> Callable[..., Any]:
    """Arguments of one structure share their code, whatever keys and classes they have."""
    names: dict[str, Any] = {}
    given = ", ".join(f"v{i}" for i in range(count))
    exec(
        f"def make({given}):\n    def flatten(args):\n        {lines}\n        return [{leaves}]\n    return flatten",
        names,
    )
    return names["make"]  # type: ignore[no-any-return]


def _sorted_keys(x: dict[Any, Any]) -> list[Any] | None:
    """The keys in a tree's order; None if they cannot be sorted."""
    try:
        return sorted(x)
    except TypeError:
        return None


def static_key(x: Any) -> Any:
    """The key of a static argument: values that are equal but not the same (1 and True, 0.0 and -0.0) differ, and NaN
    equals itself.
    """
    if isinstance(x, (tuple, frozenset)):
        return type(x), tuple(map(static_key, x)) if isinstance(x, tuple) else frozenset(map(static_key, x))
    if isinstance(x, (float, complex)):
        return type(x), repr(x)
    return type(x), x
