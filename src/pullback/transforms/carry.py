"""What all loops hand from step to step: leaves of one structure, shape and dtype, checked after each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..arrays.backends import is_array, namespace_on
from ..arrays.spec import Spec, spec_of
from ..arrays.tensor import another
from ..arrays.trees import flatten, listed, paths, unflatten
from ..arrays.value import Value
from ..errors import DtypeError, ShapeError
from ..ops.families import result_dtype
from ..ops.shaping import astype
from .border import fresh, scalars_become_arrays
from .masks import NUMBERS, own

__all__ = ["Carry", "alike", "as_arrays"]


class Carry:
    """What a loop hands from step to step: leaves of one structure, shape and dtype from beginning to end."""

    __slots__ = ("leaves", "specs", "structure", "what")

    def __init__(self, what: str, init: Any, near: Sequence[Any] = ()) -> None:
        """Python numbers among the leaves become arrays where those beside them are, or else those `near`."""
        given, self.structure = flatten(init)
        self.what = what
        self.leaves = [another(x) for x in as_arrays(given, what, near)]
        self.specs = [spec_of(x) for x in self.leaves]

    def tree(self, leaves: Sequence[Any]) -> Any:
        """The leaves as the loop answers them, in memory of their own."""
        return unflatten(self.structure, [fresh(x) for x in leaves])

    def given(self, leaves: Sequence[Any]) -> Any:
        """The leaves as the user's functions get them: to rebind, but not to write to."""
        return unflatten(self.structure, [own(x) for x in leaves])

    def after(self, tree: Any) -> list[Any]:
        """The leaves that a step returned, each as it must be."""
        leaves = listed(self.structure, tree, f"{self.what}: the carry after a step and the initial one")
        return [self._fitted(i, x) for i, x in enumerate(leaves)]

    def _fitted(self, number: int, leaf: Any) -> Any:
        wanted = self.specs[number]
        value = leaf if type(leaf) in NUMBERS else scalars_become_arrays(leaf, self.what)
        found = spec_of(value)
        if found is wanted or (found.weak is None and alike(found, wanted)):
            return value
        if found.weak and not wanted.shape and result_dtype([found, wanted]) == wanted.dtype:
            return astype(value, wanted.dtype) if isinstance(value, Value) else _array_of(value, wanted)
        kind = ShapeError if found.shape != wanted.shape else DtypeError
        raise kind(
            f"{self.what}: the carry{paths(self.structure)[number]} was {wanted} and became {found}.\n"
            "  A step returns the shape and dtype it was given: convert the result, or start with what it becomes."
        )


def _array_of(number: Any, wanted: Spec) -> Any:
    return namespace_on(wanted.device).asarray(number, wanted.dtype)


def alike(a: Spec, b: Spec) -> bool:
    """Whether two specs have one shape and dtype."""
    return a.shape == b.shape and bool(a.dtype == b.dtype)


def as_arrays(leaves: Sequence[Any], what: str, near: Sequence[Any] = ()) -> list[Any]:
    """Leaves as values. A Python float or complex number takes the precision of the floating-point arrays beside it,
    float64 if there are none; a bool or an int becomes a 0-d array of its own dtype.
    """
    values = [x if type(x) in NUMBERS else scalars_become_arrays(x, what) for x in leaves]
    beside = [spec_of(x) for x in values if type(x) not in NUMBERS]
    around = [spec.device for spec in (*beside, *(spec_of(x) for x in near if is_array(x) or isinstance(x, Value)))]
    xp = namespace_on(around[0] if around else "cpu")
    floats = [spec for spec in beside if spec.inexact]

    def array(x: Any) -> Any:
        return xp.asarray(x, result_dtype([spec_of(x), *floats]) if type(x) in (float, complex) else None)

    return [array(x) if type(x) in NUMBERS else x for x in values]
