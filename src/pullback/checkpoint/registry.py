"""Arrays in, how they were made out: which value every array of a budget is, and what is taken as given."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from types import CodeType
from typing import Any

import numpy as np

from ..arrays.backends import is_array
from ..arrays.protect import locked
from ..arrays.spec import spec_of
from ..arrays.tensor import Tensor
from ..ops.op import OPS, Op
from .recipes import Made

__all__ = ["Registry", "make_steady", "may_run_again", "size_of_result", "workspace"]

Line = tuple[CodeType, int]


class Registry:
    """The values whose arrays live, by the identity of the array.

    A value with a recipe is known as long as its array lives; one that is given holds its array itself, and is
    known as long as a recipe needs it.
    """

    __slots__ = ("_given", "_known")

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, Made]] = {}
        self._given: weakref.WeakValueDictionary[int, Made] = weakref.WeakValueDictionary()

    def derived(self, array: Any) -> Made | None:
        """The value that an array is, if it has a recipe."""
        entry = self._known.get(id(array))
        return entry[1] if entry is not None and entry[0]() is array else None

    def know_any(self, values: Sequence[Any]) -> bool:
        """Whether one of these has a recipe."""
        return any(is_array(v) and self.derived(v) is not None for v in values)

    def find(self, array: Any, line: Line) -> tuple[Made, bool]:
        """The value that an array is; one that came from elsewhere is given, and whether that is new."""
        made = self.derived(array) or self._given.get(id(array))
        if made is not None:
            return made, False
        made = self._given[id(array)] = Made(array, line)
        made.fixed = array
        return made, True

    def know(self, array: Any, made: Made) -> None:
        """This array is that value, for as long as it lives."""
        key, known = id(array), self._known

        def forget(dead: Any) -> None:
            entry = known.get(key)
            if entry is not None and entry[0] is dead:
                known.pop(key, None)

        made.seen = weakref.ref(array, forget)
        known[key] = made.seen, made

    def enter(self, array: Any, made: Made) -> None:
        """A new value with a recipe: its inputs learn who uses them."""
        self.know(array, made)
        for x in {id(x): x for x in made.inputs if type(x) is Made}.values():
            x.users.append(weakref.ref(made))

    def cut(self) -> None:
        """Values that no node keeps become given ones, so that they do not keep their past alive as a recipe."""
        for key, (reference, made) in self._known.copy().items():
            if made.holder() is None:
                made.fixed, made.inputs, made.op = reference(), (), None
                self._known.pop(key, None)


def may_run_again(op: Op, static: dict[str, Any]) -> bool:
    """Whether an op is ours, and so answers the same whenever it runs; a user's own may have effects beside."""
    return OPS.get(op.name) is op and not any(map(callable, static.values()))


def make_steady(args: Sequence[Any], values: list[Any]) -> None:
    """A recipe may be run later, so what a user can write to becomes a copy, or is locked if it was shared."""
    for i, (arg, value) in enumerate(zip(args, values, strict=True)):
        if type(arg) is Tensor:
            if arg.spec.plain is None and arg.status == "shared" and is_array(value):
                values[i] = locked(value)
        elif is_array(value) and getattr(value.flags, "writeable", True):
            values[i] = value.copy()
            if type(value) is np.ndarray:
                values[i].flags.writeable = False


def size_of_result(op: Op, args: Sequence[Any], static: dict[str, Any]) -> int:
    """The bytes of the result, 0 if that is not known before."""
    if op.spec is None:
        return 0
    try:
        found = op.spec_of([spec_of(x) for x in args], static)
    except Exception:  # the call itself will say what is wrong with it
        return 0
    return sum(s.nbytes for s in (found if type(found) is tuple else (found,)))


def workspace(op: Op, values: Sequence[Any]) -> int:
    """Bytes that an op may need beside its result: ufuncs and products none, others about their largest argument."""
    if op.ufunc or op.family in ("contraction", "linear"):
        return 0
    return max((int(v.nbytes) for v in values if is_array(v)), default=0)
