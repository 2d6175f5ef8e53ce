"""Sharding: each rank has a part of the state of an optimizer (`sharded`), or of the parameters (`fully_sharded`).

A part of an array is a row of its elements: the array is laid out flat, filled up to a multiple of the number of ranks,
and cut into equal rows.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, final

from ..arrays.argument_checks import check_functions
from ..arrays.picklable import picklable
from ..arrays.spec import Spec, make_spec, spec_of, zeros
from ..arrays.trees import flatten, leaf_paths, leaves_matching, unflatten
from ..checkpoint.recompute.checkpoint import checkpoint
from ..errors import ArgumentError
from ..ops.collective.collectives import part, reduce_scatter
from ..ops.collective.records import all_gather_op, regather_op
from ..ops.collective.world import current_world
from ..ops.dispatch import apply, as_value
from ..ops.index.indexing import getitem
from ..ops.op import Op
from ..ops.shape.arrange import concat, pad
from ..ops.shape.reshaping import reshape
from ..optim.leaves import widen
from ..optim.rule import Rule, check_rule, wrong_state_error
from .aggregation import sum_leaves
from .marks import Mark, MarkedTree, Marks, join_keys, leaf_keys, mark_owned_state, mark_rows_of_state, part_size
from .rule_structure import is_elementwise, steps_leaves_alone


def as_rows(x: Any, ranks: int) -> Any:
    """An array as one row for each rank."""
    size = spec_of(x).size
    own = part_size(size, ranks)
    flat = reshape(x, (size,))
    return reshape(pad(flat, (0, own * ranks - size)) if own * ranks > size else flat, (ranks, own))


def own_parts(leaves: Sequence[Any]) -> list[Any]:
    """This rank's parts of values that all ranks have in common."""
    ranks = current_world().size
    return [reshape(part(as_rows(x, ranks), axis=0), (part_size(spec_of(x).size, ranks),)) for x in leaves]


def sum_parts(leaves: Sequence[Any]) -> list[Any]:
    """This rank's parts of the sums of the ranks' own values, in one meeting for each dtype."""
    ranks = current_world().size

    def meet(rows: Any) -> Any:
        return reduce_scatter(rows, axis=0)

    return _meet_as_rows([as_rows(x, ranks) for x in leaves], meet)


def gather_parts(parts: Sequence[Any], specs: Sequence[Spec], op: Op = all_gather_op) -> list[Any]:
    """Whole arrays from the parts of all ranks, in one meeting for each dtype."""
    ranks = current_world().size

    def meet(row: Any) -> Any:
        return apply(op, row, ranks=ranks, axis=0)

    rows = _meet_as_rows([reshape(p, (1, -1)) if spec_of(p).size else reshape(p, (1, 0)) for p in parts], meet)
    sizes = [s.size for s in specs]
    flat = [
        getitem(reshape(r, (-1,)), slice(0, n)) if n else reshape(r, (0,)) for r, n in zip(rows, sizes, strict=True)
    ]
    return [reshape(x, s.shape) for x, s in zip(flat, specs, strict=True)]


def _meet_as_rows(blocks: Sequence[Any], meet: Callable[[Any], Any]) -> list[Any]:
    """What a collective makes of blocks of rows, those of one dtype side by side. Single rows become vectors."""
    results: list[Any] = [None] * len(blocks)
    for dtype in dict.fromkeys(spec_of(b).dtype for b in blocks):
        places = [i for i, b in enumerate(blocks) if spec_of(b).dtype == dtype]
        joined = concat([blocks[i] for i in places], axis=1) if len(places) > 1 else blocks[places[0]]
        found, end = meet(joined), 0
        for i in places:
            start, end = end, end + spec_of(blocks[i]).shape[1]
            block = getitem(found, (slice(None), slice(start, end)))
            results[i] = reshape(block, (end - start,)) if spec_of(block).shape[0] == 1 else block
    return results


@picklable
def sharded(rule: Rule, *, aggregates: bool = False) -> Rule:
    """The rule, with its state divided among ranks: each rank steps its part of the parameters, and all gather the
    updates. Updates have the same bits as without it.

    The gradients are those of the whole loss, as `aggregate` makes them (ZeRO, stage 1). With `aggregates` they are
    each rank's own, and no rank ever has the sum of more than its part (stage 2). A rule that steps each element by
    itself, as most do, is divided by elements; one that steps whole parameters (`muon`, `shampoo`) by whole parameters.
    A rule over all parameters, such as `clip_by_global_norm`, stands outside:
    `chain(aggregate(), clip_by_global_norm(1.0), sharded(adam(1e-3)))`.

    The state is a marked tree: `state.tree` is what this rank has of the rule's state, and `pb.distributed.save` knows
    by the marks what it is a part of.

    >>> import numpy as np, pullback as pb
    >>> rule = pb.distributed.sharded(pb.optim.adam(0.5), aggregates=True)
    >>> def step():
    ...     w = np.zeros(4)
    ...     state = rule.init(w)
    ...     updates, state = rule.update(np.ones(4), state, w)
    ...     return state.tree[0].slots["mean"].shape, updates.round(3).tolist()
    >>> pb.distributed.run(step, 2)
    [((2,), [-0.5, -0.5, -0.5, -0.5]), ((2,), [-0.5, -0.5, -0.5, -0.5])]
    """
    check_rule(rule, "sharded")
    if rule.joint_folds:
        raise ArgumentError(
            f"sharded: {rule.name} computes with all parameters together.\n"
            "  Put what does that outside: chain(aggregate(), clip_by_global_norm(1.0), sharded(adam(1e-3)))."
        )

    @functools.cache
    def layout_for(specs: tuple[Spec, ...], ranks: int) -> ShardLayout:
        if is_elementwise(rule, specs):
            return ByElements(specs)
        if not steps_leaves_alone(rule, specs):
            raise ArgumentError(f"sharded: {rule.name} computes with all parameters together, so it cannot be divided.")
        return ByLeaves(specs, ranks)

    def layout_of(params: Any) -> ShardLayout:
        return layout_for(tuple(spec_of(as_value(p)) for p in flatten(params)[0]), current_world().size)

    def start(params: Any) -> Any:
        leaves, structure = flatten(params)
        layout = layout_of(params)
        state = rule.start(layout.tree_of(structure, layout.own(leaves)))
        return MarkedTree(state, Marks(layout.mark_state(rule, structure, state)))

    def advance(grads: Any, state: Any, params: Any, extra: Mapping[str, Any]) -> tuple[Any, Any]:
        if not isinstance(state, MarkedTree):
            raise wrong_state_error(f"sharded {rule.name}", state, "a marked tree")
        leaves, structure = flatten(params)
        layout = layout_of(params)
        given = leaves_matching(structure, grads, "sharded: gradients and parameters")
        own_grads = layout.own_sums(given) if aggregates else layout.own(given)
        own = layout.tree_of(structure, layout.own(leaves))
        updates, after = rule.advance(layout.tree_of(structure, own_grads), state.tree, own, extra)
        whole = layout.gather(layout.shares_of(structure, updates))
        return unflatten(structure, whole), state._replace(tree=after)

    return Rule(f"sharded {rule.name}", start, advance)


class ShardLayout(Protocol):
    """How parameters are divided among ranks: which rank has which share of them."""

    def own(self, leaves: Sequence[Any]) -> list[Any]:
        """This rank's share of values that all ranks have in common."""

    def own_sums(self, leaves: Sequence[Any]) -> list[Any]:
        """This rank's share of the sums of the ranks' own values."""

    def gather(self, shares: Sequence[Any]) -> list[Any]:
        """Whole values from the shares of all ranks."""

    def tree_of(self, structure: Any, shares: Sequence[Any]) -> Any:
        """The share as a tree, for the rule."""

    def shares_of(self, structure: Any, tree: Any) -> list[Any]:
        """The share in such a tree, in the order of the parameters."""

    def mark_state(self, rule: Rule, structure: Any, state: Any) -> tuple[Mark, ...]:
        """What this rank has of each leaf of the state of a rule."""


@final
class ByElements:
    """Each rank has a row of the elements of every parameter."""

    def __init__(self, specs: Sequence[Spec]) -> None:
        self.specs = specs

    def own(self, leaves: Sequence[Any]) -> list[Any]:
        return own_parts(leaves)

    def own_sums(self, leaves: Sequence[Any]) -> list[Any]:
        return sum_parts(leaves)

    def gather(self, shares: Sequence[Any]) -> list[Any]:
        return gather_parts(shares, self.specs)

    def tree_of(self, structure: Any, shares: Sequence[Any]) -> Any:
        return unflatten(structure, list(shares))

    def shares_of(self, structure: Any, tree: Any) -> list[Any]:
        return flatten(tree)[0]

    def mark_state(self, rule: Rule, structure: Any, state: Any) -> tuple[Mark, ...]:
        return mark_rows_of_state(rule, structure, self.specs)


@final
class ByLeaves:
    """Each rank has some parameters: the largest first, to the rank that has the fewest elements so far."""

    def __init__(self, specs: Sequence[Spec], ranks: int) -> None:
        self.specs = specs
        self.owners = assign_leaves([s.size for s in specs], ranks)

    def own(self, leaves: Sequence[Any]) -> list[Any]:
        return [leaves[i] for i in self._mine()]

    def own_sums(self, leaves: Sequence[Any]) -> list[Any]:
        return self.own(sum_leaves(list(leaves)))

    def gather(self, shares: Sequence[Any]) -> list[Any]:
        ranks = current_world().size
        own = dict(zip(self._mine(), shares, strict=True))
        results: list[Any] = [None] * len(self.specs)
        # updates of half types are in float32, on all ranks
        kinds = [spec_of(widen(zeros(s))).dtype for s in self.specs]
        for dtype in dict.fromkeys(kinds):
            of_ranks = [[i for i, k in enumerate(kinds) if k == dtype and self.owners[i] == r] for r in range(ranks)]
            width = max(sum(self.specs[i].size for i in numbers) for numbers in of_ranks)
            mine = [reshape(own[i], (-1,)) for i in of_ranks[current_world().rank] if self.specs[i].size]
            filled = sum(spec_of(x).size for x in mine)
            row = concat([*mine, zeros(make_spec((width - filled,), dtype))], axis=0)
            rows = apply(all_gather_op, reshape(row, (1, width)), ranks=ranks, axis=0)
            for r, numbers in enumerate(of_ranks):
                end = 0
                for i in numbers:
                    start, end = end, end + self.specs[i].size
                    results[i] = reshape(getitem(rows, (r, slice(start, end))), self.specs[i].shape)
        return results

    def tree_of(self, structure: Any, shares: Sequence[Any]) -> Any:
        paths = leaf_paths(structure)
        return {paths[i]: x for i, x in zip(self._mine(), shares, strict=True)}

    def shares_of(self, structure: Any, tree: Any) -> list[Any]:
        paths = leaf_paths(structure)
        return [tree[paths[i]] for i in self._mine()]  # flattened, "[10]" would come before "[2]"

    def mark_state(self, rule: Rule, structure: Any, state: Any) -> tuple[Mark, ...]:
        paths, keys = leaf_paths(structure), leaf_keys(unflatten(structure, self.specs))
        return mark_owned_state(state, {paths[i]: join_keys(keys[i]) for i in self._mine()})

    def _mine(self) -> list[int]:
        return [i for i, r in enumerate(self.owners) if r == current_world().rank]


def assign_leaves(sizes: Sequence[int], ranks: int) -> list[int]:
    """The rank of each parameter."""
    loads, owners = [0] * ranks, [0] * len(sizes)
    for i in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        owners[i] = loads.index(min(loads))
        loads[owners[i]] += sizes[i]
    return owners


def shard(params: Any) -> Any:
    """This rank's parts of parameters: a tree of vectors, each a row of the elements of a parameter (ZeRO, stage 3).
    Rules step them as they are, and `fully_sharded` makes a function of whole parameters one of parts.

    >>> import numpy as np, pullback as pb
    >>> pb.distributed.run(lambda: pb.distributed.shard({"w": np.arange(3.0)})["w"].tolist(), 2)
    [[0.0, 1.0], [2.0, 0.0]]
    """
    leaves, structure = flatten(params)
    return unflatten(structure, own_parts([as_value(x) for x in leaves]))


def unshard(parts: Any, like: Any) -> Any:
    """Whole parameters from the parts of all ranks; `like` is a tree of the same structure whose leaves have their
    shapes (arrays, or specs).

    >>> import numpy as np, pullback as pb
    >>> w = np.arange(3.0)
    >>> pb.distributed.run(lambda: pb.distributed.unshard(pb.distributed.shard(w), w).tolist(), 2)
    [[0.0, 1.0, 2.0], [0.0, 1.0, 2.0]]
    """
    return _gather_tree(parts, like, all_gather_op)


def _gather_tree(parts: Any, like: Any, op: Op) -> Any:
    leaves, structure = flatten(parts)
    wanted = leaves_matching(structure, like, "unshard: parts and parameters")
    specs = [x if isinstance(x, Spec) else spec_of(as_value(x)) for x in wanted]
    return unflatten(structure, gather_parts([as_value(x) for x in leaves], specs, op))


def fully_sharded(function: Callable[..., Any], like: Any) -> Callable[..., Any]:
    """A function of whole parameters as one of their parts: it gathers them when it runs, forgets them, and gathers
    them again in the backward pass, whose gradients are parts of the sums over ranks. Wrap each layer of a model by
    itself, and no rank has more than one layer whole. `like` has the shapes of the parameters, the first argument.

    >>> import numpy as np, pullback as pb
    >>> w = np.arange(4.0)
    >>> def gradient():
    ...     f = pb.distributed.fully_sharded(lambda w, x: pb.sum(w * w * x), w)
    ...     return pb.grad(f)(pb.distributed.shard(w), 1.0 + pb.distributed.rank()).tolist()
    >>> pb.distributed.run(gradient, 2)
    [[0.0, 6.0], [12.0, 18.0]]
    """
    check_functions("fully_sharded", function)
    leaves, structure = flatten(like)
    specs = unflatten(structure, [x if isinstance(x, Spec) else spec_of(as_value(x)) for x in leaves])

    def run(parts: Any, *rest: Any, **options: Any) -> Any:
        return function(_gather_tree(parts, specs, regather_op), *rest, **options)

    return functools.wraps(function)(checkpoint(run))
