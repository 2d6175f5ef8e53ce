"""Trees (nested containers): flattening to a list of leaves, and unflattening. `None` is an empty container.

Tuples, named tuples, lists, dicts, deques, and registered classes. The tree package is imported at the
first container; a bare array never needs it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ..errors import ArgumentError, ArgumentTypeError
from .argument_checks import check_functions, short_repr
from .buffers import Buffer
from .value import Value

_NAMESPACE = "pullback"
_PLAIN_TYPES = frozenset((np.ndarray, bool, int, float, complex))
_BUILT_IN = frozenset((tuple, list, dict, type(None)))

#: The structure of a single leaf.
LEAF = None


@functools.cache
def _optree() -> Any:
    """The tree package, by an import statement: that waits for another thread still importing it."""
    import optree

    return optree


def tree_package() -> tuple[Any, str]:
    """The tree package, and the namespace in which classes are registered with it."""
    return _optree(), _NAMESPACE


def is_plain_leaf(tree: Any) -> bool:
    return type(tree) in _PLAIN_TYPES or isinstance(tree, Value)


def flatten(tree: Any) -> tuple[list[Any], Any]:
    """The leaves from left to right, and the tree structure (dicts in the order of their keys)."""
    if is_plain_leaf(tree):
        return [tree], LEAF
    leaves, structure = _optree().tree_flatten(tree, namespace=_NAMESPACE)
    return leaves, LEAF if structure.is_leaf() else structure


def unflatten(structure: Any, leaves: Iterable[Any]) -> Any:
    """The tree of a structure with these leaves."""
    if structure is LEAF:
        (leaf,) = leaves
        return leaf
    return _optree().tree_unflatten(structure, leaves)


def map_tree(function: Callable[..., Any], tree: Any, *others: Any, what: str = "trees") -> Any:
    """A tree of the function's results at each leaf; other trees must have the same structure."""
    leaves, structure = flatten(tree)
    rows = [leaves, *(leaves_matching(structure, other, what) for other in others)]
    return unflatten(structure, [function(*row) for row in zip(*rows, strict=True)])


def leaves_matching(structure: Any, tree: Any, what: str) -> list[Any]:
    """The leaves of a tree, which must have this structure."""
    leaves, found = flatten(tree)
    if found != structure:
        advice = (
            "\n  Numbers are made an array by pb.stack([a, b])." if structure is LEAF and _holds_leaves(tree) else ""
        )
        raise ArgumentError(
            f"{what}: the trees differ: {_format_structure(found)} and {_format_structure(structure)}.{advice}"
        )
    return [x.unwrap() if isinstance(x, Buffer) else x for x in leaves]  # of a function that a transform runs


def _holds_leaves(tree: Any) -> bool:
    return isinstance(tree, (list, tuple)) and all(flatten(x)[1] is LEAF for x in tree)


def _format_structure(structure: Any) -> str:
    return "a single array" if structure is LEAF else str(structure).removeprefix("PyTreeSpec(").removesuffix(")")


def dict_key_order(tree: Any) -> Any:
    """The keys of dicts in insertion order, which the structure of a tree omits; falsy where there are none."""
    if isinstance(tree, dict):
        return (*tree, *filter(None, map(dict_key_order, tree.values())))
    if isinstance(tree, (list, tuple)):
        return tuple(filter(None, map(dict_key_order, tree)))
    return None


def leaf_paths(structure: Any) -> list[str]:
    """The path of each leaf, as written after the name of the tree: "", "[0]['w']"."""
    if structure is LEAF:
        return [""]
    return ["".join(map(_format_entry, accessor)) for accessor in structure.accessors()]


def _format_entry(entry: Any) -> str:
    """One step of a path; children that a registered class names are attributes, or items if the name is a number."""
    name = entry.entry
    if not isinstance(name, str) or type(entry) is not _optree().FlattenedEntry:
        return str(entry.codify(""))
    return f".{name}" if name.isidentifier() else f"[{name}]"


def broadcast_prefix(prefix: Any, tree: Any, what: str) -> list[Any]:
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
        raise ArgumentError(f"{what}: a {type(prefix).__name__} where the tree has a {type(tree).__name__}.")
    entries, given, *_ = one_level(prefix, namespace=_NAMESPACE, none_is_leaf=True)
    if below != given or len(entries) != len(children):
        raise ArgumentError(f"{what}: {prefix!r} does not match the structure of its tree.")
    pairs = zip(entries, children, strict=True)
    return [entry for one, child in pairs for entry in broadcast_prefix(one, child, what)]


def register_tree(kind: type, flatten: Callable[[Any], tuple[Any, ...]], unflatten: Callable[[Any, Any], Any]) -> type:
    """Register a class as a tree: `flatten(tree)` returns (children, rest), `unflatten(rest, children)` rebuilds it.
    A third result, if any, names the children in error messages.

    >>> import numpy as np, pullback as pb
    >>> class Line:
    ...     def __init__(self, slope, height):
    ...         self.slope, self.height = slope, height
    >>> _ = pb.register_tree(Line, lambda line: ((line.slope, line.height), None), lambda rest, both: Line(*both))
    >>> pb.grad(lambda line: line.slope * 2.0 + line.height)(Line(1.0, 1.0)).slope
    array(2.)
    """
    if not isinstance(kind, type):
        raise ArgumentTypeError(f"register_tree: wants a class, got {short_repr(kind)}.")
    check_functions("register_tree", flatten, unflatten)
    try:
        _optree().register_pytree_node(kind, flatten, unflatten, namespace=_NAMESPACE)
    except ValueError:
        raise ArgumentError(f"register_tree: {kind.__qualname__} is a tree already.") from None
    return kind


def registered_unflatten(kind: type) -> Callable[[Any, Any], Any] | None:
    """The function that rebuilds a registered class from (rest, children); None if it is not registered here."""
    found = _registration(kind)
    return None if found is None else found.unflatten_func


def registered_flatten(kind: type) -> Callable[[Any], tuple[Any, ...]] | None:
    """The function that takes a registered class apart; None if it is not registered here."""
    found = _registration(kind)
    return None if found is None else found.flatten_func


def _registration(kind: type) -> Any:
    if kind in _BUILT_IN:
        return None
    found = _optree().register_pytree_node.get(kind, namespace=_NAMESPACE)
    return None if found is None or found.namespace != _NAMESPACE else found


def name_children(tree: Any) -> tuple[list[tuple[Any, Any]], Callable[[list[Any]], Any]]:
    """The children of a node with their names, and a function that builds the node of others; of a leaf no children."""
    if _optree().tree_is_leaf(tree, namespace=_NAMESPACE):
        return [], lambda _: tree
    children, rest, names, rebuild = _optree().tree_flatten_one_level(tree, namespace=_NAMESPACE)
    return list(zip(names, children, strict=True)), lambda others: rebuild(rest, others)


def flatten_one_level(tree: Any) -> tuple[list[Any], Any]:
    """The children of a registered node, and its auxiliary data."""
    children, rest, *_ = _optree().tree_flatten_one_level(tree, namespace=_NAMESPACE)
    return children, rest
