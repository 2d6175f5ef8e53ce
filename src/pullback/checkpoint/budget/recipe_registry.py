"""The registry of a budget: which value every array is, how it was made, and which arrays are taken as given."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from types import CodeType
from typing import Any

import numpy as np

from ...arrays.backends import is_array
from ...arrays.protect import lock_array
from ...arrays.spec import spec_of
from ...arrays.tensor import Tensor
from ...ops.op import Op
from .value_recipes import ValueRecipe

SourceLine = tuple[CodeType, int]


class RecipeRegistry:
    """The values whose arrays live, by the identity of the array.

    A value with a recipe is known as long as its array lives; a given one holds its array itself, and is known as
    long as a recipe needs it.
    """

    __slots__ = ("_given", "_known")

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, ValueRecipe]] = {}
        self._given: weakref.WeakValueDictionary[int, ValueRecipe] = weakref.WeakValueDictionary()

    def recipe_of(self, array: Any) -> ValueRecipe | None:
        """The value of an array, if it has a recipe."""
        entry = self._known.get(id(array))
        return entry[1] if entry is not None and entry[0]() is array else None

    def has_any_recipe(self, values: Sequence[Any]) -> bool:
        """Whether one of these has a recipe."""
        return any(is_array(v) and self.recipe_of(v) is not None for v in values)

    def find_or_add(self, array: Any, line: SourceLine) -> tuple[ValueRecipe, bool]:
        """The value of an array, and whether it was just added: an array from elsewhere is taken as given."""
        # a given value holds its array, so its id is not reused
        recipe = self.recipe_of(array) or self._given.get(id(array))
        if recipe is not None:
            return recipe, False
        recipe = self._given[id(array)] = ValueRecipe(array, line)
        recipe.given_array = array
        return recipe, True

    def remember(self, array: Any, recipe: ValueRecipe) -> None:
        """Record that an array holds a value, for as long as the array lives."""
        key, known = id(array), self._known

        def forget(dead: Any) -> None:
            entry = known.get(key)
            # a new array may have the id by now
            if entry is not None and entry[0] is dead:
                known.pop(key, None)

        recipe.array_ref = weakref.ref(array, forget)
        known[key] = recipe.array_ref, recipe

    def register(self, array: Any, recipe: ValueRecipe) -> None:
        """A new value with a recipe; its inputs record their user."""
        self.remember(array, recipe)
        # once for each, however often the op takes it
        for x in {id(x): x for x in recipe.inputs if type(x) is ValueRecipe}.values():
            x.user_refs.append(weakref.ref(recipe))

    def forget_unheld(self) -> None:
        """Values that no node saves become given ones, so that their recipes do not keep the past alive."""
        for key, (reference, recipe) in self._known.copy().items():
            if recipe.holder() is None:
                recipe.given_array, recipe.inputs, recipe.op = reference(), (), None
                self._known.pop(key, None)


def protect_inputs(args: Sequence[Any], values: list[Any]) -> None:
    """A recipe runs later, so an array that the user can write to is copied, or locked if it was shared."""
    for i, (arg, value) in enumerate(zip(args, values, strict=True)):
        if type(arg) is Tensor:
            # the user can still write to it
            if arg.spec.plain is None and arg.status == "shared" and is_array(value):
                values[i] = lock_array(value)
        elif is_array(value) and getattr(value.flags, "writeable", True):
            values[i] = value.copy()
            if type(value) is np.ndarray:
                values[i].flags.writeable = False


def result_nbytes(op: Op, args: Sequence[Any], static: dict[str, Any]) -> int:
    """The bytes of the result, 0 if that is not known before."""
    if op.spec is None:
        return 0
    try:
        found = op.spec_of([spec_of(x) for x in args], static)
    except Exception:  # the call itself raises the right error
        return 0
    return sum(s.nbytes for s in (found if type(found) is tuple else (found,)))


def workspace_nbytes(op: Op, values: Sequence[Any]) -> int:
    """Bytes that an op may need besides its result: ufuncs and products none, others about their largest argument."""
    if op.ufunc or op.family in ("contraction", "linear"):
        return 0
    return max((int(v.nbytes) for v in values if is_array(v)), default=0)
