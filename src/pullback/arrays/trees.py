"""Nested containers in, a flat list of leaves out, and back. `None` is an empty container.

Tuples, named tuples, lists, dicts, deques, and whatever was registered. The package that knows them is loaded at the
first container; a bare array never needs it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ..errors import ArgumentError, ArgumentTypeError
from .checks import short, wants_functions
from .value import Value

__all__ = [
    "LEAF", "flatten", "listed", "map_tree", "one_level", "paths", "register_tree", "registered", "spread", "unflatten",
]  # fmt: skip

_NAMESPACE = "pullback"
_BARE = frozenset((np.ndarray, bool, int, float, complex))
_BUILT_IN = frozenset((tuple, list, dict, type(None)))

#: The structure of a tree that is one leaf.
LEAF = None


@functools.cache
def _optree() -> Any:
    """The package, by an import statement: it waits for another thread that is still importing it."""
    import optree

    return optree


def is_bare(tree: Any) -> bool:
    return type(tree) in _BARE or isinstance(tree, Value)


def flatten(tree: Any) -> tuple[list[Any], Any]:
    """The leaves from left to right, and the structure they stand in (dicts in the order of their keys)."""
    if is_bare(tree):
        return [tree], LEAF
    leaves, structure = _optree().tree_flatten(tree, namespace=_NAMESPACE)
    return leaves, LEAF if structure.is_leaf() else structure


def unflatten(structure: Any, leaves: Iterable[Any]) -> Any:
    """The leaves put back into a structure."""
    if structure is LEAF:
        (leaf,) = leaves
        return leaf
    return _optree().tree_unflatten(structure, leaves)


def map_tree(function: Callable[..., Any], tree: Any, *others: Any, what: str = "trees") -> Any:
    """A tree of the function's answers at each leaf; other trees must have the same structure."""
    leaves, structure = flatten(tree)
    rows = [leaves, *(listed(structure, other, what) for other in others)]
    return unflatten(structure, [function(*row) for row in zip(*rows, strict=True)])


def listed(structure: Any, tree: Any, what: str) -> list[Any]:
    """The leaves of a tree that must have a structure."""
    leaves, found = flatten(tree)
    if found != structure:
        raise ArgumentError(f"{what}: the trees differ: {_shown(found)} and {_shown(structure)}.")
    return leaves


def _shown(structure: Any) -> str:
    return "a single array" if structure is LEAF else str(structure).removeprefix("PyTreeSpec(").removesuffix(")")


def paths(structure: Any) -> list[str]:
    """Where each leaf stands, as one would write it after the name of the tree: "", "[0]['w']"."""
    if structure is LEAF:
        return [""]
    return [accessor.codify("") for accessor in structure.accessors()]


def spread(prefix: Any, tree: Any, what: str) -> list[Any]:
    """One entry of `prefix` for each leaf of the tree: a plain entry (a number, None) holds for all leaves below it,
    a container of entries must look like the tree there.
    """
    leaves, structure = flatten(tree)
    if prefix is None or isinstance(prefix, (int, np.integer, str)):
        return [prefix] * len(leaves)
    if structure is LEAF:
        raise ArgumentError(f"{what}: {prefix!r} is a tree where the argument is a single array.")
    one_level = _optree().tree_flatten_one_level
    children, below, *_ = one_level(tree, namespace=_NAMESPACE)
    if type(prefix) is not type(tree):
        raise ArgumentError(f"{what}: a {type(prefix).__name__} stands where the tree has a {type(tree).__name__}.")
    entries, given, *_ = one_level(prefix, namespace=_NAMESPACE, none_is_leaf=True)
    if below != given or len(entries) != len(children):
        raise ArgumentError(f"{what}: {prefix!r} does not look like the tree it is for.")
    pairs = zip(entries, children, strict=True)
    return [entry for one, child in pairs for entry in spread(one, child, what)]


def register_tree(kind: type, flatten: Callable[[Any], tuple[Any, ...]], unflatten: Callable[[Any, Any], Any]) -> type:
    """Let a class of yours be a tree: `flatten(tree)` answers (children, rest), `unflatten(rest, children)` undoes it.
    A third answer, if there is one, names the children in error messages.

    >>> import numpy as np, pullback as pb
    >>> class Line:
    ...     def __init__(self, slope, height):
    ...         self.slope, self.height = slope, height
    >>> _ = pb.register_tree(Line, lambda line: ((line.slope, line.height), None), lambda rest, both: Line(*both))
    >>> pb.grad(lambda line: line.slope * 2.0 + line.height)(Line(1.0, 1.0)).slope
    array(2.)
    """
    if not isinstance(kind, type):
        raise ArgumentTypeError(f"register_tree: wants a class, got {short(kind)}.")
    wants_functions("register_tree", flatten, unflatten)
    try:
        _optree().register_pytree_node(kind, flatten, unflatten, namespace=_NAMESPACE)
    except ValueError:
        raise ArgumentError(f"register_tree: {kind.__qualname__} is a tree already.") from None
    return kind


def registered(kind: type) -> Callable[[Any, Any], Any] | None:
    """What puts a class of one's own together again from (rest, children); None if it was never registered here."""
    if kind in _BUILT_IN:
        return None
    found = _optree().register_pytree_node.get(kind, namespace=_NAMESPACE)
    return None if found is None or found.namespace != _NAMESPACE else found.unflatten_func


def one_level(tree: Any) -> tuple[list[Any], Any]:
    """The children of a registered node, and the rest of it."""
    children, rest, *_ = _optree().tree_flatten_one_level(tree, namespace=_NAMESPACE)
    return children, rest
