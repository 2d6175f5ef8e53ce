"""`FlatCall`: a call of a function of trees, as a function of the arrays in its chosen arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..arrays.trees import LEAF, flatten, is_plain_leaf, unflatten
from ..errors import ArgumentError
from ..ops.user_calls import call_function
from .boundary import as_array_leaf, as_differentiable, split_aux

_NO_KEYWORDS: Mapping[str, Any] = {}


class FlatCall:
    """A call of f as a function from the arrays in its chosen arguments, `xs`, to the list of those in its result.

    Without `argnums` all arguments are chosen. `structure` is that of the tuple of chosen ones, LEAF for one array that
    `argnums` names. Each run remembers the structure of its result, `results`, and with `has_aux` the aux beside it.
    """

    __slots__ = (
        "_argnums", "_args", "_chosen", "_f", "_kwargs", "aux", "has_aux", "results", "structure", "what", "xs",
    )  # fmt: skip
    aux: Any
    results: Any

    def __init__(
        self,
        what: str,
        f: Callable[..., Any],
        args: tuple[Any, ...],
        argnums: Any = None,
        kwargs: Mapping[str, Any] = _NO_KEYWORDS,
        has_aux: bool = False,
    ) -> None:
        self.what, self._f, self._args, self._kwargs, self.has_aux = what, f, args, kwargs, has_aux
        self._argnums, self.aux = argnums, None
        if argnums is None:
            leaves, structure = flatten(args)
        else:
            self._chosen = chosen = argument_positions(argnums, len(args), what)
            # One array alone, the common case, is no tree.
            one = len(chosen) == 1 and is_plain_leaf(args[chosen[0]])
            leaves, structure = ([args[chosen[0]]], LEAF) if one else flatten(tuple([args[i] for i in chosen]))
        self.structure = structure
        self.xs = [as_differentiable(x, what, structure, i) for i, x in enumerate(leaves)]

    def run(self, *inputs: Any) -> Any:
        """The result of f as it is, for values of `xs`."""
        structure = self.structure
        filled: Any = inputs if structure is LEAF else unflatten(structure, inputs)
        if self._argnums is not None:
            chosen, filled = filled, list(self._args)
            for i, value in zip(self._chosen, chosen, strict=True):
                filled[i] = value
        try:
            out = call_function(self._f, filled, self._kwargs)
        except TypeError as error:
            _note_lists(error, filled)
            raise
        if self.has_aux:
            out, self.aux = split_aux(out, self.what)
        return out

    def __call__(self, *inputs: Any) -> list[Any]:
        leaves, self.results = flatten(self.run(*inputs))
        return [as_array_leaf(x, self.what) for x in leaves]

    @property
    def holders(self) -> tuple[Any, ...]:
        """The function, and what it is called with."""
        return self._f, self._args, self._kwargs

    def like_arguments(self, row: Sequence[Any]) -> Any:
        """One entry for each of `xs` in the place of its array: a tree for one of `argnums`, a tuple for several."""
        trees = by_argument(self.structure, row)
        return trees if self._argnums is None or isinstance(self._argnums, (tuple, list)) else trees[0]


def _note_lists(error: TypeError, args: Sequence[Any]) -> None:
    """A list is a tree of arrays, where a user of NumPy may mean a vector."""
    for i, x in enumerate(args):
        if type(x) is list and "'list'" in str(error):
            error.add_note(f"  argument {i} is a list, which is a tree of arrays; a vector is np.array([...]).")


def by_argument(structure: Any, row: Sequence[Any]) -> tuple[Any, ...]:
    """The entries of a row by argument, given the structure of a `FlatCall`."""
    return tuple(row) if structure is LEAF else unflatten(structure, row)


def argument_positions(argnums: Any, count: int, what: str) -> tuple[int, ...]:
    """The arguments that `argnums` names, counted from the front."""
    if type(argnums) is int and 0 <= argnums < count:  # the common case
        return (argnums,)
    named = argnums if isinstance(argnums, (tuple, list)) else (argnums,)
    for i in named:
        if not isinstance(i, (int, np.integer)) or isinstance(i, bool):
            raise ArgumentError(f"{what}: argnums must be integers, got {i!r}.")
        if not -count <= i < count:
            raise ArgumentError(
                f"{what}: argnums names argument {i}, the call has {count} positional ones.\n"
                "  Arguments to differentiate are passed by position."
            )
    chosen = tuple(int(i) % count for i in named)
    if len(set(chosen)) < len(chosen):
        raise ArgumentError(f"{what}: argnums {argnums} names an argument twice.")
    return chosen
