"""Tuples, lists and dicts of numbers and arrays: mapped, flattened, and told apart."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from pullback.arrays.value import Value


def tree_map(f: Callable[..., Any], tree: Any, *others: Any) -> Any:
    """f at every leaf, in containers like the first tree's."""
    if isinstance(tree, dict):
        return {key: tree_map(f, tree[key], *(other[key] for other in others)) for key in tree}
    if isinstance(tree, (tuple, list)):
        return type(tree)([tree_map(f, *parts) for parts in zip(tree, *others, strict=True)])
    return f(tree, *others)


def leaves(tree: Any) -> Iterator[Any]:
    """The leaves from left to right, dicts by sorted key."""
    if isinstance(tree, dict):
        for key in sorted(tree):
            yield from leaves(tree[key])
    elif isinstance(tree, (tuple, list)):
        for part in tree:
            yield from leaves(part)
    else:
        yield tree


def dtype_of(leaf: Any) -> np.dtype[Any]:
    """The dtype of a leaf, Python's numbers counted as 0-d arrays."""
    return np.dtype(leaf.dtype) if isinstance(leaf, Value) else np.asarray(leaf).dtype


def is_inexact(leaf: Any) -> bool:
    """Whether a leaf can carry a derivative."""
    return dtype_of(leaf).kind in "fc"


def conjugate(tree: Any) -> Any:
    """The tree with complex leaves conjugated."""
    return tree_map(lambda leaf: np.conj(leaf) if dtype_of(leaf).kind == "c" else leaf, tree)
