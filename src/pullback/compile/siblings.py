"""Programs that were compiled already, by what they are apart from sizes."""

from __future__ import annotations

import weakref
from typing import Any

from ..program.ir import Program
from .target import Compilation
from .varying import mark_steps

#: The most kinds of programs that are remembered, and forms of each (other steps: a size of one, many blocks).
_KINDS, _FORMS = 512, 8


class KnownSizes:
    """Compilations by the kind of their program. They are held weakly: the functions own them."""

    def __init__(self) -> None:
        self.known: dict[Any, list[weakref.ref[Compilation]]] = {}

    def compare(self, c: Compilation) -> None:
        """Mark the numbers of a compilation's steps that are others for other sizes of its program."""
        kind = _kind_of(c)
        known = self._alive(kind)
        for other in known:
            if _shapes(other) != _shapes(c):
                marked = mark_steps(c.steps, other.steps)
                if marked is not None:
                    c.sibling, c.planned = other, marked
                    c.scope = f"any sizes with these steps: there was a call with {_format_sizes(other)}"
                    return
        c.scope = f"these sizes alone: {'others have other steps' if known else 'the first of their kind'}"
        self.known.pop(kind, None)  # the most recent last
        self.known[kind] = [*map(weakref.ref, known[-_FORMS + 1 :]), weakref.ref(c)]
        for oldest in list(self.known)[:-_KINDS]:
            self.known.pop(oldest, None)  # another thread may have done it

    def _alive(self, kind: Any) -> list[Compilation]:
        return [c for found in self.known.get(kind, ()) if (c := found()) is not None]


def _shapes(c: Compilation) -> list[tuple[int, ...]]:
    return [spec.shape for spec in (*c.specs, *c.out_specs)]


def _format_sizes(c: Compilation) -> str:
    return ", ".join(f"({', '.join(map(str, spec.shape))})" for spec in c.specs)


def _kind_of(c: Compilation) -> Any:
    """What programs have in common that differ in sizes alone, and some others: their steps decide."""
    assert c.program is not None
    specs = tuple((s.ndim, s.dtype) for s in (*c.specs, *c.out_specs))
    return c.target.name, tuple(c.options.donated.items()), c.options.limit, specs, _names_of(c.program)


def _names_of(program: Program) -> int:
    # a number, since ops themselves must not be kept alive
    return hash(tuple(e.op.name for e in program.equations))


SIZES = KnownSizes()
