"""Views that a product on a GPU need not be given: transposes and reshapes, which only say how its arguments lie.

To make a view costs CuPy as much time as a launch; the product of what was looked at so before needs the address alone.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import methodcaller
from typing import Any, NamedTuple

import numpy as np

from ..arrays.spec import spec_of
from ..program.ir import Equation, Program, Symbol


class View(NamedTuple):
    """A value as a function of another that looks at all of it in another way; None: the other itself."""

    source: Any
    function: Callable[[Any], Any] | None


def fold_views(program: Program) -> dict[int, View]:
    """The values of a program on a GPU that are only multiplied, and are views of others if these are contiguous, which
    begin where they do: products take the others instead.
    """
    found: dict[int, View] = {}
    probes: dict[int, Any] = {}
    users: dict[int, list[Equation]] = {}
    for e in program.equations:
        for a in e.args:
            users.setdefault(id(a), []).append(e)
        if e.results[0].spec.device != "cpu":
            _add_view(e, found, probes)
    for output in program.outputs:
        found.pop(id(output), None)
    # from the last on: what is used otherwise has to be made
    for e in reversed(program.equations):
        key = id(e.results[0])
        if key in found and not all(_multiplies(u) or id(u.results[0]) in found for u in users.get(key, ())):
            del found[key]
    return found


def _add_view(e: Equation, found: dict[int, View], probes: dict[int, Any]) -> None:
    """Note the result if it is a view, which NumPy shows on an array of bytes of the source's shape."""
    (source, *others) = e.args
    if others or len(e.results) != 1 or not isinstance(source, Symbol) or e.op.direct is None:
        return
    method = e.op.direct(spec_of(source), **e.static)
    if type(method) is not methodcaller:
        return
    before = found.get(id(source)) or View(source, None)
    whole = probes.setdefault(id(before.source), np.empty(before.source.spec.shape, np.int8))
    result = method(probes.get(id(source), whole))
    if result.size == whole.size and result.__array_interface__["data"] == whole.__array_interface__["data"]:
        probes[id(e.results[0])] = result
        found[id(e.results[0])] = View(before.source, _chain(before.function, method))


def _multiplies(e: Equation) -> bool:
    return e.op.family == "contraction" and e.op.on_gpu is not None and all(isinstance(a, Symbol) for a in e.args)


def _chain(first: Callable[[Any], Any] | None, second: Callable[[Any], Any]) -> Callable[[Any], Any]:
    if first is None:
        return second
    return lambda x: second(first(x))
