"""What an element of a `vmap(axis_name=)` can ask of all elements: sums, means, extremes, values, its own number.

Each is an op of x and of the element's number (`ops/collective/over_batch.py`), which belongs to the named `vmap`. So
the op reaches that `vmap` whatever lies in between, a tape, another batch, a loop that is staged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..arrays.backends import namespace_on
from ..arrays.call_site import attributed_to_caller
from ..arrays.scope import Scope, enclosing_scopes
from ..arrays.spec import spec_of
from ..arrays.tensor import alias
from ..arrays.trees import flatten, map_tree, unflatten
from ..errors import ArgumentError, ArgumentTypeError, GraphError
from ..ops.axes import as_integer
from ..ops.collective.over_batch import gather_op, permute_op, sum_op
from ..ops.dispatch import apply
from ..ops.elementwise import pointwise
from ..ops.op import Op
from ..ops.reduce.reductions import max as max_of
from ..ops.reduce.reductions import min as min_of
from ..ops.shape.reshaping import astype
from ..settings import modes
from .boundary import as_array_leaf
from .control.batch_masks import runs_for_some
from .vectorize import Batched, kept_apart


@attributed_to_caller
def batch_sum(x: Any, /, axis_name: str) -> Any:
    """The sum of x over all elements of the `vmap` of that name; of a tree, leaf by leaf. Booleans are counted.

    >>> import numpy as np, pullback as pb
    >>> pb.vmap(lambda x: x / pb.batch_sum(x, "i"), axis_name="i")(np.array([1.0, 3.0]))
    array([0.25, 0.75])
    """
    return map_tree(lambda leaf: _sum(_as_summand(leaf, "batch_sum"), axis_name, "batch_sum"), x)


@attributed_to_caller
def batch_mean(x: Any, /, axis_name: str) -> Any:
    """The mean of x over all elements of the `vmap` of that name; of a tree, leaf by leaf.

    >>> import numpy as np, pullback as pb
    >>> pb.vmap(lambda x: x - pb.batch_mean(x, "i"), axis_name="i")(np.array([1.0, 3.0]))
    array([-1.,  1.])
    """
    return map_tree(lambda leaf: _mean(_as_summand(leaf, "batch_mean"), axis_name), x)


@attributed_to_caller
def batch_max(x: Any, /, axis_name: str) -> Any:
    """The largest x among all elements of the `vmap` of that name, place by place; derivatives are those of `pb.max`.

    >>> import numpy as np, pullback as pb
    >>> pb.vmap(lambda x: x == pb.batch_max(x, "i"), axis_name="i")(np.array([1.0, 3.0]))
    array([False,  True])
    """
    return map_tree(lambda leaf: max_of(_gather(leaf, axis_name, "batch_max"), axis=0), x)


@attributed_to_caller
def batch_min(x: Any, /, axis_name: str) -> Any:
    """The least x among all elements of the `vmap` of that name, place by place; derivatives are those of `pb.min`.

    >>> import numpy as np, pullback as pb
    >>> pb.vmap(lambda x: x - pb.batch_min(x, "i"), axis_name="i")(np.array([1.0, 3.0]))
    array([0., 2.])
    """
    return map_tree(lambda leaf: min_of(_gather(leaf, axis_name, "batch_min"), axis=0), x)


@attributed_to_caller
def batch_gather(x: Any, /, axis_name: str) -> Any:
    """The x of all elements of the `vmap` of that name, stacked along a new first axis; of a tree, leaf by leaf.

    >>> import numpy as np, pullback as pb
    >>> pb.vmap(lambda x: pb.sum(abs(x - pb.batch_gather(x, "i"))), axis_name="i")(np.array([1.0, 3.0, 4.0]))
    array([5., 3., 4.])
    """
    return map_tree(lambda leaf: _gather(leaf, axis_name, "batch_gather"), x)


@attributed_to_caller
def batch_permute(x: Any, /, axis_name: str, pairs: Sequence[tuple[int, int]]) -> Any:
    """The x of another element of the `vmap` of that name: `pairs` says (from, to), each element once at most on either
    side. Elements that nothing is sent to get zeros.

    >>> import numpy as np, pullback as pb
    >>> shift = [(0, 1), (1, 2)]
    >>> pb.vmap(lambda x: pb.batch_permute(x, "i", shift), axis_name="i")(np.array([1.0, 3.0, 4.0]))
    array([0., 1., 3.])
    """
    scope = _find_batch(axis_name, "batch_permute")
    sources = _read_pairs(pairs, scope.size)
    leaves, structure = flatten(x)
    values = [as_array_leaf(leaf, "batch_permute") for leaf in leaves]
    return unflatten(structure, [apply(permute_op, v, _number(scope, v), sources=sources) for v in values])


@attributed_to_caller
def batch_index(axis_name: str, /) -> Any:
    """The number of the element among those of the `vmap` of that name, counted from 0.

    >>> import numpy as np, pullback as pb
    >>> pb.vmap(lambda x: x * pb.batch_index("i"), axis_name="i")(np.array([1.0, 3.0]))
    array([0., 3.])
    """
    return alias(_number(_find_batch(axis_name, "batch_index", reads=False)))  # the caller may rebind its own


@attributed_to_caller
def batch_size(axis_name: str, /) -> int:
    """How many elements the `vmap` of that name has.

    >>> import numpy as np, pullback as pb
    >>> pb.vmap(lambda x: x * pb.batch_size("i"), axis_name="i")(np.array([1.0, 3.0]))
    array([2., 6.])
    """
    return _find_batch(axis_name, "batch_size", reads=False).size


def _find_batch(axis_name: Any, what: str, reads: bool = True) -> Scope:
    """The run of the `vmap` of a name; one that `reads` other elements must be where all of them come."""
    if not isinstance(axis_name, str):
        raise ArgumentTypeError(f"{what}: axis_name is the text that vmap was given, got {axis_name!r}.")
    named = [scope for scope in enclosing_scopes() if scope.open and scope.axis_name is not None]
    for scope in named:
        if scope.axis_name == axis_name:
            _refuse_outliving(scope, what)
            if reads:
                _refuse_where_apart(scope.level, what)
            if reads and runs_for_some():
                raise GraphError(
                    f"{what}: is called in a branch or loop that some elements take and others do not.\n"
                    "  Call it before, for all elements, and use its result inside."
                )
            return scope
    if reads and not named:  # a solver may run outside of all transforms
        _refuse_where_apart(0, what)
    known = ", ".join(repr(scope.axis_name) for scope in named)
    raise ArgumentError(
        f"{what}: there is no vmap of the name {axis_name!r} around this call"
        + (f", only {known}" if known else "")
        + f".\n  Name it: pb.vmap(f, axis_name={axis_name!r})."
    )


def _refuse_outliving(scope: Scope, what: str) -> None:
    """A function that is compiled inside the batch is called again in other ones."""
    trace = modes().tracing
    if trace is not None and trace.level > scope.level:
        raise GraphError(
            f"{what}: is called in a function that is compiled inside of the vmap, and outlives it.\n"
            f"  Compile the whole: pb.jit(pb.vmap(f, axis_name={scope.axis_name!r}))."
        )


def _refuse_where_apart(level: int, what: str) -> None:
    """Raise where the elements of batches of a level stand each for itself."""
    apart = kept_apart.get()
    if apart is not None and level < apart.level:
        raise GraphError(
            f"{what}: is called in a function of one element {apart.reason}, and depends on all.\n  {apart.instead}"
        )


def _number(scope: Scope, x: Any = 0) -> Batched:
    """The number of the element, on the device of x."""
    device = spec_of(x).device
    if device not in scope.places:
        scope.places[device] = Batched(namespace_on(device).arange(scope.size), 0, scope, "batch_index")
    place: Batched = scope.places[device]
    return place


def _as_summand(leaf: Any, what: str) -> Any:
    """A leaf in the dtype that NumPy sums it in."""
    x = as_array_leaf(leaf, what)
    dtype = spec_of(x).dtype
    return astype(x, np.add.reduce(np.empty(0, dtype)).dtype) if dtype.kind in "biu" else x


def _apply_over_batch(op: Op, x: Any, axis_name: str, what: str) -> Any:
    scope = _find_batch(axis_name, what)
    return apply(op, x, _number(scope, x), size=scope.size)


def _sum(x: Any, axis_name: str, what: str) -> Any:
    return _apply_over_batch(sum_op, x, axis_name, what)


def _gather(leaf: Any, axis_name: str, what: str) -> Any:
    return _apply_over_batch(gather_op, as_array_leaf(leaf, what), axis_name, what)


def _mean(x: Any, axis_name: str) -> Any:
    spec = spec_of(x)
    # the sum of many halves may be larger than the largest half
    total = _sum(astype(x, np.float32) if spec.half else x, axis_name, "batch_mean")
    mean = pointwise.divide(total, _find_batch(axis_name, "batch_mean").size)
    return astype(mean, spec.dtype) if spec.half else mean


def _read_pairs(pairs: Any, size: int) -> tuple[int, ...]:
    """For each element where its value comes from, -1 for nowhere."""
    sources = [-1] * size
    sent: set[int] = set()
    for pair in pairs:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise ArgumentError(f"batch_permute: pairs are (from, to), got {pair!r}.")
        source, target = (as_integer(n, "batch_permute: pairs") for n in pair)
        if not (0 <= source < size and 0 <= target < size):
            raise ArgumentError(f"batch_permute: the pair {pair!r} names no elements of a batch of {size}.")
        if source in sent or sources[target] >= 0:
            raise ArgumentError(f"batch_permute: {pair!r} names an element twice on one side.")
        sent.add(source)
        sources[target] = source
    return tuple(sources)
