"""The carry of a loop: leaves of one structure, shape and dtype, checked after each step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...arrays.backends import is_array, namespace_on
from ...arrays.spec import Spec, spec_of
from ...arrays.tensor import alias
from ...arrays.trees import flatten, leaf_paths, leaves_matching, unflatten
from ...arrays.value import Value
from ...errors import DtypeError, ShapeError
from ...ops.casting import takes_part
from ...ops.families import result_dtype
from ...ops.shape.reshaping import astype
from ...settings import modes
from ..boundary import as_array_leaf, owned_copy
from .batch_masks import PYTHON_NUMBERS, as_rebindable


class LoopCarry:
    """The carry of a loop: leaves of one structure, shape and dtype from beginning to end."""

    __slots__ = ("leaves", "specs", "structure", "what")

    def __init__(self, what: str, init: Any, near: Sequence[Any] = ()) -> None:
        """Python numbers among the leaves become arrays like the other leaves, or else like those `near`."""
        given, self.structure = flatten(init)
        self.what = what
        self.leaves = [alias(x) for x in as_arrays(given, what, near)]
        self.specs = [spec_of(x) for x in self.leaves]

    def to_tree(self, leaves: Sequence[Any]) -> Any:
        """The leaves as the loop returns them, in their own memory."""
        return unflatten(self.structure, [owned_copy(x) for x in leaves])

    def as_rebindable_tree(self, leaves: Sequence[Any]) -> Any:
        """The leaves as the user's functions get them: rebindable, but not writable."""
        return unflatten(self.structure, [as_rebindable(x) for x in leaves])

    def check_step_result(self, tree: Any) -> list[Any]:
        """The leaves that a step returned, each as it must be."""
        leaves = leaves_matching(self.structure, tree, f"{self.what}: the carry after a step and the initial one")
        return [self._fit_leaf(i, x) for i, x in enumerate(leaves)]

    def _fit_leaf(self, number: int, leaf: Any) -> Any:
        wanted = self.specs[number]
        value = leaf if type(leaf) in PYTHON_NUMBERS else as_array_leaf(leaf, self.what)
        found = spec_of(value)
        # Specs are interned, so that the usual case is one comparison of objects.
        if found is wanted or (found.weak is None and has_same_type(found, wanted)):
            return value
        # A Python number that a step returns takes the dtype of the carry, as it would in arithmetic.
        if found.weak and not wanted.shape and result_dtype([found, wanted]) == wanted.dtype:
            return astype(value, wanted.dtype) if isinstance(value, Value) else _array_like(value, wanted)
        if differ_by_autocast(found, wanted):
            return astype(value, wanted.dtype)
        kind = ShapeError if found.shape != wanted.shape else DtypeError
        raise kind(
            f"{self.what}: the carry{leaf_paths(self.structure)[number]} was {wanted} and became {found}.\n"
            "  A step returns the shape and dtype it was given: convert the result, or start with what it becomes."
        )


def _array_like(number: Any, wanted: Spec) -> Any:
    return namespace_on(wanted.device).asarray(number, wanted.dtype)


def differ_by_autocast(a: Spec, b: Spec) -> bool:
    """Whether two specs may differ by what autocast decided in a function, which is no decision of the user's."""
    return modes().autocast is not None and a.shape == b.shape and takes_part(a) and takes_part(b)


def has_same_type(a: Spec, b: Spec) -> bool:
    """Whether two specs have one shape and dtype."""
    return a.shape == b.shape and bool(a.dtype == b.dtype)


def as_arrays(leaves: Sequence[Any], what: str, near: Sequence[Any] = ()) -> list[Any]:
    """Leaves as values. A Python float or complex number takes the precision of the floating-point arrays beside it,
    float64 if there are none; a bool or an int becomes a 0-d array of its own dtype.
    """
    values = [x if type(x) in PYTHON_NUMBERS else as_array_leaf(x, what) for x in leaves]
    beside = [spec_of(x) for x in values if type(x) not in PYTHON_NUMBERS]
    around = [spec.device for spec in (*beside, *(spec_of(x) for x in near if is_array(x) or isinstance(x, Value)))]
    xp = namespace_on(around[0] if around else "cpu")
    # Only floating-point neighbors count: an int64 beside float32 would promote the number to float64.
    floats = [spec for spec in beside if spec.inexact]

    def array(x: Any) -> Any:
        return xp.asarray(x, result_dtype([spec_of(x), *floats]) if type(x) in (float, complex) else None)

    return [array(x) if type(x) in PYTHON_NUMBERS else x for x in values]
