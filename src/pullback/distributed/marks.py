"""Marks: what a rank has of each leaf of a tree, for those who look at the tree of one rank and mean that of all.

A leaf without a mark is common, the same on all ranks. A marked tree is a tuple of the tree and its marks, which have
no leaves of their own; so it goes through rules, compiled functions and files like any other tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import numpy as np

from ..arrays.spec import Spec, spec_of
from ..arrays.trees import flatten, leaves_matching, register_tree, tree_package, unflatten
from ..errors import ArgumentError, ShapeError
from ..ops.collective.world import current_world
from ..ops.dispatch import as_value
from ..optim.rule import Rule, check_rule

#: Lengths of vectors that spell the number of a parameter, a digit of this base at a time; the shortest length.
_BASE, _SHORTEST = 64, 2


class Row(NamedTuple):
    """The mark of a row of the elements of an array, which has this shape as a whole."""

    shape: tuple[int, ...]


class Owned(NamedTuple):
    """The mark of an array that no other rank has; where it stands in the tree of a program alone, as dotted keys."""

    name: str


class Summed(NamedTuple):
    """The mark of a value of each rank's own, of which the sum over ranks matters."""

    kind: str = "summed"


Mark = Row | Owned | Summed | None


@final
@dataclass(frozen=True, slots=True)
class Marks:
    """One mark for each leaf of a tree, None for those that all ranks have in common."""

    leaves: tuple[Mark, ...]


class MarkedTree(NamedTuple):
    """A tree, and what this rank has of each of its leaves. The state of `sharded` is one.

    >>> import numpy as np, pullback as pb
    >>> rule = pb.distributed.sharded(pb.optim.sgd(0.1, momentum=0.9))
    >>> state = pb.distributed.run(lambda: rule.init(np.zeros((2, 3))), 2)[0]
    >>> state.tree[0].slots["momentum"].shape, state.marks.leaves
    ((3,), (Row(shape=(2, 3)),))
    """

    tree: Any
    marks: Marks


class Leaf(NamedTuple):
    """A leaf of a tree: its name, the dotted keys that lead to it in the tree of a program alone; and its mark."""

    name: str
    value: Any
    mark: Mark


register_tree(Marks, lambda marks: ((), marks.leaves), lambda leaves, children: Marks(leaves))


def part_size(size: int, ranks: int) -> int:
    """Elements of a row of an array, the last of which may be padding."""
    return -(-size // ranks)


def row_range(size: int, rank: int, ranks: int) -> tuple[int, int]:
    """Which elements of an array the row of a rank has."""
    own = part_size(size, ranks)
    return min(rank * own, size), min((rank + 1) * own, size)


def mark_parts(tree: Any, like: Any) -> MarkedTree:
    """A tree of parts, as `shard` returns them, marked as such: `like` is a tree of the same structure whose leaves
    have the shapes of the whole arrays (arrays, or specs). `save` and `load` want to know.

    >>> import numpy as np, pullback as pb
    >>> w = np.arange(6.0).reshape(2, 3)
    >>> pb.distributed.run(lambda: pb.distributed.mark_parts(pb.distributed.shard(w), w).tree.tolist(), 2)
    [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    """
    leaves, structure = flatten(tree)
    wholes = leaves_matching(structure, like, "mark_parts: parts and whole arrays")
    pairs = zip(leaves, wholes, strict=True)
    return MarkedTree(tree, Marks(tuple(_mark_part(leaf_spec(x), leaf_spec(whole)) for x, whole in pairs)))


def _mark_part(own: Spec, whole: Spec) -> Mark:
    ranks = current_world().size
    if own.shape == (part_size(whole.size, ranks),):
        return Row(whole.shape)
    if own.shape == whole.shape:
        return None
    raise ShapeError(f"mark_parts: {own} is no row of {whole} on {ranks} rank{'s' if ranks > 1 else ''}.")


def mark_state(state: Any, rule: Rule, like: Any) -> MarkedTree:
    """The state of a rule that steps parts, as `rule.init(shard(params))` makes it, marked as such: `like` has the
    shapes of the whole parameters (arrays, or specs). The state of `sharded` is marked already.

    >>> import numpy as np, pullback as pb
    >>> rule, w = pb.optim.adam(0.1), np.zeros((2, 3))
    >>> def marks():
    ...     state = rule.init(pb.distributed.shard(w))
    ...     return pb.distributed.mark_state(state, rule, w).marks.leaves
    >>> pb.distributed.run(marks, 2)[1]
    (None, Row(shape=(2, 3)), Row(shape=(2, 3)))
    """
    leaves, structure = flatten(like)
    found = mark_rows_of_state(check_rule(rule, "mark_state"), structure, [leaf_spec(x) for x in leaves])
    if len(flatten(state)[0]) != len(found):
        raise ArgumentError(
            f"mark_state: the state has {len(flatten(state)[0])} leaves, that of {rule.name} has {len(found)}."
        )
    return MarkedTree(state, Marks(found))


def mark_summed(tree: Any) -> MarkedTree:
    """A tree of values of each rank's own, of which the sum over ranks is what matters, marked as such: `save` writes
    the sum, and `load` gives it to the first rank, zeros to the others.

    >>> import numpy as np, pullback as pb
    >>> pb.distributed.mark_summed({"residual": np.zeros(2)}).tree
    {'residual': array([0., 0.])}
    """
    return MarkedTree(tree, Marks((Summed(),) * len(flatten(tree)[0])))


def mark_rows_of_state(rule: Rule, structure: Any, specs: Sequence[Spec]) -> tuple[Mark, ...]:
    """The marks of the state of a rule that steps rows of parameters element by element: which of its leaves are rows
    too, and of which parameter. Found by starting the rule on vectors whose lengths spell the parameter's number.
    """

    def shapes_of_state(lengths: list[int]) -> list[tuple[int, ...]]:
        params = [np.zeros(n, s.dtype) for n, s in zip(lengths, specs, strict=True)]
        return [spec_of(as_value(x)).shape for x in flatten(rule.start(unflatten(structure, params)))[0]]

    count, places = len(specs), 1
    while _BASE**places < count:
        places += 1
    by_digit = [shapes_of_state([_SHORTEST + i // _BASE**p % _BASE for i in range(count)]) for p in range(places)]
    ones = shapes_of_state([1] * count)
    return tuple(
        Row(specs[_spell(shapes)].shape) if one == (1,) and shapes[0] != (1,) else None
        for one, *shapes in zip(ones, *by_digit, strict=True)
    )


def _spell(shapes: Sequence[tuple[int, ...]]) -> int:
    """The number whose digits are the lengths of vectors, the lowest first."""
    return sum((n - _SHORTEST) * _BASE**place for place, (n,) in enumerate(shapes))


def mark_owned_state(state: Any, names: dict[str, str]) -> tuple[Mark, ...]:
    """The marks of the state of a rule over a dict of some parameters: leaves below a key of the dict are this rank's
    own. `names` has for each key the dotted keys of the parameter.
    """
    # a rule that divides parameters names them by what leads to them
    known = names | {f"[{key!r}]": key for key in names}

    def mark(keys: tuple[Any, ...]) -> Mark:
        if not any(key in known for key in keys):
            return None
        return Owned(join_keys(known.get(key, key) for key in keys))

    return tuple(mark(keys) for keys in leaf_keys(state))


def list_leaves(tree: Any, prefix: str = "") -> list[Leaf]:
    """The leaves of a tree in their order, each with its name and mark. Marked trees may be inside of others."""
    optree, namespace = tree_package()
    stops = optree.tree_leaves(tree, _is_marked, namespace=namespace)
    found: list[Leaf] = []
    for keys, value in zip(leaf_keys(tree, _is_marked), stops, strict=True):
        name = join_keys((prefix, *keys) if prefix else keys)
        if not _is_marked(value):
            found.append(Leaf(name, value, None))
            continue
        inner = list_leaves(value.tree, name)
        if len(inner) != len(value.marks.leaves):
            raise ArgumentError(f"{name}: a tree of {len(inner)} leaves has {len(value.marks.leaves)} marks.")
        found += [_apply_mark(leaf, mark, name) for leaf, mark in zip(inner, value.marks.leaves, strict=True)]
    return found


def _apply_mark(leaf: Leaf, mark: Mark, prefix: str) -> Leaf:
    if leaf.mark is not None or mark is None:  # an inner mark says more
        return leaf
    if isinstance(mark, Owned):
        return leaf._replace(name=join_keys((prefix, mark.name) if prefix else (mark.name,)), mark=mark)
    return leaf._replace(mark=mark)


def _is_marked(x: Any) -> bool:
    return type(x) is MarkedTree


def leaf_keys(tree: Any, is_leaf: Any = None) -> list[tuple[Any, ...]]:
    """The keys that lead to each leaf: keys of dicts, numbers in sequences, names of fields."""
    optree, namespace = tree_package()
    accessors = optree.tree_accessors(tree, is_leaf, namespace=namespace)
    return [tuple(getattr(entry, "field", entry.entry) for entry in accessor) for accessor in accessors]


def join_keys(keys: Any) -> str:
    """Keys as one name: `state.0.slots.mean.w`."""
    return ".".join(str(key) for key in keys if key != "")


def leaf_spec(x: Any) -> Spec:
    """The spec of an array, or of what is one."""
    return x if isinstance(x, Spec) else spec_of(as_value(x))
