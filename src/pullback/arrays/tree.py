"""Trees of arrays for users: `pb.tree.map` and its kin, over the containers that transforms and optimizers take.

>>> import pullback as pb
>>> pb.tree.map(lambda x: 2 * x, {"w": 1.0, "b": (2.0, 3.0)})
{'w': 2.0, 'b': (4.0, 6.0)}
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ..errors import ArgumentError
from ..public_names import explain_missing_names
from .argument_checks import check_functions
from .trees import tree_package

__all__ = ["flatten", "leaves", "map", "structure", "unflatten"]
explain_missing_names(__name__, "tree")

IsLeaf = Callable[[Any], bool] | None


def flatten(tree: Any, is_leaf: IsLeaf = None) -> tuple[list[Any], Any]:
    """The leaves of a tree from left to right, and its structure. `is_leaf(x)` may stop at a container.

    >>> import pullback as pb
    >>> leaves, structure = pb.tree.flatten({"b": [1, 2], "a": 3})
    >>> leaves
    [3, 1, 2]
    >>> pb.tree.unflatten(structure, [30, 10, 20])
    {'b': [10, 20], 'a': 30}
    """
    optree, namespace = tree_package()
    found, spec = optree.tree_flatten(tree, is_leaf, namespace=namespace)
    return list(found), spec


def leaves(tree: Any, is_leaf: IsLeaf = None) -> list[Any]:
    """The leaves of a tree from left to right. None is an empty container, not a leaf.

    >>> import pullback as pb
    >>> pb.tree.leaves([1, (2, None), {"x": 3}])
    [1, 2, 3]
    """
    return flatten(tree, is_leaf)[0]


def structure(tree: Any, is_leaf: IsLeaf = None) -> Any:
    """The structure of a tree, without its leaves: equal for trees of one form.

    >>> import pullback as pb
    >>> pb.tree.structure([1, (2, 3)]) == pb.tree.structure([4, (5, 6)])
    True
    """
    return flatten(tree, is_leaf)[1]


def unflatten(structure: Any, leaves: Iterable[Any]) -> Any:
    """The tree of a structure with these leaves.

    >>> import pullback as pb
    >>> pb.tree.unflatten(pb.tree.structure((1, [2])), "ab")
    ('a', ['b'])
    """
    given = list(leaves)
    count = getattr(structure, "num_leaves", None)
    if count != len(given):
        wanted = "a structure of pb.tree.structure" if count is None else f"{count} leaves"
        got = type(structure).__name__ if count is None else len(given)
        raise ArgumentError(f"tree.unflatten: wants {wanted}, got {got}.")
    return tree_package()[0].tree_unflatten(structure, given)


def map(function: Callable[..., Any], tree: Any, /, *others: Any, is_leaf: IsLeaf = None) -> Any:
    """A tree like the first one of the function's results, each from a leaf of every tree.

    The other trees must have the form of the first; below its leaves they may go deeper.

    >>> import pullback as pb
    >>> pb.tree.map(lambda p, g: p - 0.5 * g, {"w": 1.0}, {"w": 4.0})
    {'w': -1.0}
    """
    check_functions("tree.map", function)
    first, spec = flatten(tree, is_leaf)
    try:
        rows = [first, *(spec.flatten_up_to(other) for other in others)]
    except ValueError as error:
        raise ArgumentError(f"tree.map: the trees differ: {error}") from None
    return unflatten(spec, [function(*row) for row in zip(*rows, strict=True)])
