"""Predicates and functions of trees in, what the chosen ones answer out: branches and loops that transforms can follow.

Where the truth of a predicate is known, Python runs: one branch, or a loop, on the tape like anything else. Where it
differs by element of a `vmap`, masks run: every branch that some element takes is computed for all elements and each
gets its own by `where`; a loop goes on while some element is active, and the others keep what they have.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

from ..arrays.checks import wants_functions
from ..arrays.node import signed
from ..arrays.spec import spec_of
from ..arrays.tensor import Tensor, another
from ..arrays.trees import flatten, listed, map_tree, paths, unflatten
from ..arrays.value import Value
from ..errors import ArgumentError, ConversionError, DtypeError, IndexingError, ShapeError
from ..ops import elementwise as pointwise
from ..ops.dispatch import as_value
from ..ops.families import result_dtype
from .batching import Batched
from .carry import Carry
from .masks import Mask, among_live, entering, integer, narrowed, one_integer, one_truth, own, taking_part, truth
from .staged import is_staged, is_staging, staged_branch, staged_rounds, staged_while

__all__ = ["cond", "fori_loop", "switch", "while_loop"]

_WHERE = "\n  To choose between values, use pb.where."


def cond(predicate: Any, true_function: Callable[..., Any], false_function: Callable[..., Any], *operands: Any) -> Any:
    """`true_function(*operands)` if the predicate holds, else `false_function(*operands)`. Inside a `vmap` each element
    goes its own way.

    >>> import numpy as np, pullback as pb
    >>> f = lambda x: pb.cond(x > 0, pb.sqrt, lambda x: -x, x)
    >>> pb.vmap(f)(np.array([4.0, -3.0]))
    array([2., 3.])
    >>> pb.vmap(pb.grad(f))(np.array([4.0, -3.0]))
    array([ 0.25, -1.  ])
    """
    wants_functions("cond", true_function, false_function, hint=_WHERE)
    if is_staged(predicate):
        which = one_truth(predicate, "cond: the predicate")
        names = "false_function", "true_function"
        return staged_branch("cond", names, which, (false_function, true_function), operands)
    holds = truth(predicate, "cond: the predicate")
    if not isinstance(holds, Batched):
        return (true_function if holds else false_function)(*map_tree(another, operands))
    ways = [
        ("true_function", narrowed(holds, None), true_function),
        ("false_function", narrowed(pointwise.logical_not(holds), None), false_function),
    ]
    return _chosen("cond", ways, operands)


@signed
def switch(index: Any, functions: Sequence[Callable[..., Any]], *operands: Any) -> Any:
    """`functions[index](*operands)`. Inside a `vmap` each element has its own index. An index outside of
    0 .. len(functions) - 1 is an error.

    >>> import numpy as np, pullback as pb
    >>> f = lambda i, x: pb.switch(i, [pb.sin, pb.square, lambda x: -x], x)
    >>> f(1, 3.0), pb.vmap(f)(np.array([1, 2]), np.array([3.0, 5.0]))
    (array(9.), array([ 9., -5.]))
    """
    functions = list(functions)
    if not functions:
        raise ArgumentError("switch: wants at least one function.")
    wants_functions("switch", *functions, hint=_WHERE)
    if is_staged(index):
        names = [f"functions[{i}]" for i in range(len(functions))]
        return staged_branch("switch", names, one_integer(index, "switch: the index"), functions, operands)
    place = integer(index, "switch: the index")
    if not isinstance(place, Batched):
        if not 0 <= place < len(functions):
            raise IndexingError(f"switch: index {place} is out of range for {len(functions)} functions.")
        return functions[place](*map_tree(another, operands))
    inside = pointwise.logical_and(pointwise.greater_equal(place, 0), pointwise.less(place, len(functions)))
    if narrowed(pointwise.logical_not(inside), None).some:
        raise IndexingError(f"switch: the index of some element is out of range for {len(functions)} functions.")
    ways = [
        (f"functions[{i}]", narrowed(pointwise.equal(place, i), None), function) for i, function in enumerate(functions)
    ]
    return _chosen("switch", ways, operands)


def _chosen(what: str, ways: Sequence[tuple[str, Mask, Callable[..., Any]]], operands: tuple[Any, ...]) -> Any:
    """For each element the answer of the function it takes; functions that none takes do not run."""
    taken = [way for way in ways if way[1].some] or ways[-1:]  # a batch of no elements still has a result
    first, mask, function = taken[0]
    outs, structure = flatten(_under(mask, function, operands))
    for name, mask, function in taken[1:]:
        where = f"{what}: {name} and {first}"
        found = listed(structure, _under(mask, function, operands), where)
        for i, (new, old) in enumerate(zip(found, outs, strict=True)):
            _compare(new, old, where, structure, i)
        outs = [
            old if new is old else pointwise.where(mask.value, new, old) for new, old in zip(found, outs, strict=True)
        ]
    return unflatten(structure, outs)


def _under(mask: Mask, function: Callable[..., Any], operands: tuple[Any, ...]) -> Any:
    given = operands if mask.all else map_tree(lambda x: entering(mask, x, x) if isinstance(x, Value) else x, operands)
    with taking_part(mask):
        return function(*map_tree(own, given))


def _compare(new: Any, old: Any, where: str, structure: Any, number: int) -> None:
    """The same leaf of the results of two branches; a Python number gives way to an array, as everywhere."""
    specs = [spec_of(as_value(x)) for x in (new, old)]
    one, other = (spec.shape for spec in specs)
    if one == other and all(s.weak or s.dtype == result_dtype(specs) for s in specs):
        return
    kind = ShapeError if one != other else DtypeError
    raise kind(f"{where} must answer alike: result{paths(structure)[number]} is {specs[0]} and {specs[1]}.")


def while_loop(condition: Callable[[Any], Any], body: Callable[[Any], Any], init: Any) -> Any:
    """`carry = body(carry)` from `init` on, while `condition(carry)` holds; the last carry. Inside a `vmap` each
    element goes as many rounds as it needs.

    >>> import numpy as np, pullback as pb
    >>> def root(a):
    ...     return pb.while_loop(lambda x: abs(x * x - a) > 1e-9 * a, lambda x: (x + a / x) / 2, a)
    >>> pb.vmap(root)(np.array([4.0, 9.0, 1e8]))
    array([2.e+00, 3.e+00, 1.e+04])
    >>> pb.vmap(pb.grad(root))(np.array([4.0, 9.0]))
    array([0.25      , 0.16666667])
    """
    wants_functions("while_loop", condition, body)
    carry = Carry("while_loop", init)
    if is_staged(*carry.leaves) or is_staging():
        return staged_while(condition, body, carry)
    return _repeated(carry, condition, body)


def fori_loop(lower: Any, upper: Any, body: Callable[[Any, Any], Any], init: Any) -> Any:
    """`carry = body(i, carry)` for i from `lower` up to, not including, `upper`; the last carry. Bounds may differ by
    element of a `vmap`. i is a Python int, or an integer that differs by element if `lower` does.

    >>> import numpy as np, pullback as pb
    >>> power = lambda x, n: pb.fori_loop(0, n, lambda i, y: y * x, 1.0)
    >>> pb.vmap(power)(np.array([2.0, 3.0]), np.array([10, 2]))
    array([1024.,    9.])
    """
    wants_functions("fori_loop", body)
    carry = Carry("fori_loop", init)
    if is_staged(lower, upper, *carry.leaves) or is_staging():
        try:
            return staged_rounds(lower, upper, body, carry)
        except ConversionError:  # the body wants numbers: it is written out round by round, where they may be known
            if is_staged(lower, upper):
                raise
    start, stop = integer(lower, "fori_loop: lower"), integer(upper, "fori_loop: upper")
    if not isinstance(start, Batched) and not isinstance(stop, Batched):
        leaves = carry.leaves
        for i in range(start, stop):
            leaves = _whole_step(carry, None, functools.partial(body, i), leaves)
        return carry.tree(leaves)
    i = start
    rounds = itertools.count(1)

    def step(tree: Any) -> Any:
        nonlocal i
        out = body(among_live(i), tree)
        i = start + next(rounds)
        return out

    return _repeated(carry, lambda tree: pointwise.less(i, stop), step)


def _repeated(carry: Carry, condition: Callable[[Any], Any], body: Callable[[Any], Any]) -> Any:
    """The loop itself. `active` is None while the predicate was the same for all elements.

    An element that is done runs the body again on the carry of its last round, where it is known to be good; only one
    that never began runs it on a carry it may not be made for.
    """
    leaves = entered = carry.leaves
    active: Mask | None = None
    while True:
        with taking_part(active):
            holds = truth(condition(carry.given(leaves)), f"{carry.what}: the condition")
        if isinstance(holds, Batched):
            active = narrowed(holds, active)
            holds = active.some
        if not holds:
            return carry.tree(leaves)
        if active is None or active.all:
            entered = leaves
            leaves = _whole_step(carry, active, body, leaves)
        else:
            entered = [entering(active, now, last) for now, last in zip(leaves, entered, strict=True)]
            leaves = _masked_step(carry, active, body, entered, leaves)


def _whole_step(carry: Carry, active: Mask | None, body: Callable[[Any], Any], leaves: list[Any]) -> list[Any]:
    """One step for all elements; a leaf that the body hands through stays the one it was."""
    given = [own(x) for x in leaves]
    with taking_part(active):
        found = carry.after(body(unflatten(carry.structure, given)))
    rows = zip(found, given, leaves, strict=True)
    return [old if new is mine and _unwritten(mine, old) else new for new, mine, old in rows]


def _masked_step(
    carry: Carry, active: Mask, body: Callable[[Any], Any], entered: list[Any], leaves: list[Any]
) -> list[Any]:
    """One step for the active elements; a leaf that the body hands through as it was stays as it was."""
    given = [own(x) for x in entered]
    with taking_part(active):
        found = carry.after(body(unflatten(carry.structure, given)))
    rows = zip(found, given, entered, leaves, strict=True)
    return [
        old if new is mine and _unwritten(mine, came) else pointwise.where(active.value, new, old)
        for new, mine, came, old in rows
    ]


def _unwritten(mine: Any, came: Any) -> bool:
    return type(mine) is not Tensor or (mine.value is came.value and mine.node is came.node)
