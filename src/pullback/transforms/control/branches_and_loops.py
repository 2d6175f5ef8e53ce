"""`cond`, `switch`, `while_loop`, `fori_loop`: branches and loops that transforms can follow.

Where the truth of a predicate is known, Python runs: one branch, or a loop, on the tape like anything else. Where it
differs by element of a `vmap`, masks run: every branch that some element takes is computed for all elements and each
selects its own by `where`; a loop continues while some element is active, and the others keep their carry.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...arrays.argument_checks import check_functions
from ...arrays.call_site import attributed_to_caller
from ...arrays.origin import register_round
from ...arrays.spec import spec_of
from ...arrays.tensor import Tensor, alias
from ...arrays.trees import flatten, leaf_paths, leaves_matching, map_tree, unflatten
from ...arrays.value import Value
from ...errors import ArgumentError, ConversionError, DtypeError, IndexingError, ShapeError
from ...ops.dispatch import as_value
from ...ops.elementwise import pointwise
from ...ops.families import result_dtype
from ...ops.user_calls import run_with_buffers, with_buffers
from ...program.ir import resolve_symbol
from ..vectorize import Batched
from .batch_masks import (
    BatchMask,
    as_rebindable,
    check_boolean,
    check_integer,
    mask_operand,
    narrow_mask,
    replace_inactive,
    run_under_mask,
    to_bool,
    to_int,
)
from .carry import LoopCarry, differ_by_autocast
from .staging import is_staged, is_staging, stage_branch, stage_fori, stage_while

_WHERE_HINT = "\n  To choose between values, use pb.where."


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
    check_functions("cond", true_function, false_function, hint=_WHERE_HINT)
    # In a program that is traced the predicate is unknown: both functions become programs inside one op.
    if is_staged(predicate):
        which = check_boolean(predicate, "cond: the predicate")
        names = "false_function", "true_function"
        return stage_branch("cond", names, which, (false_function, true_function), operands)
    holds = to_bool(predicate, "cond: the predicate")
    if not isinstance(holds, Batched):
        return with_buffers(true_function if holds else false_function)(*map_tree(alias, operands))
    ways = [
        ("true_function", narrow_mask(holds, None), true_function),
        ("false_function", narrow_mask(pointwise.logical_not(holds), None), false_function),
    ]
    return _merge_branches("cond", ways, operands)


@attributed_to_caller
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
    check_functions("switch", *functions, hint=_WHERE_HINT)
    if is_staged(index):
        names = [f"functions[{i}]" for i in range(len(functions))]
        return stage_branch("switch", names, check_integer(index, "switch: the index"), functions, operands)
    place = to_int(index, "switch: the index")
    if not isinstance(place, Batched):
        if not 0 <= place < len(functions):
            raise IndexingError(f"switch: index {place} is out of range for {len(functions)} functions.")
        return with_buffers(functions[place])(*map_tree(alias, operands))
    inside = pointwise.logical_and(pointwise.greater_equal(place, 0), pointwise.less(place, len(functions)))
    # Elements that take no part may have any index, so the mask decides whether one is wrong.
    if narrow_mask(pointwise.logical_not(inside), None).some:
        raise IndexingError(f"switch: the index of some element is out of range for {len(functions)} functions.")
    ways = [
        (f"functions[{i}]", narrow_mask(pointwise.equal(place, i), None), function)
        for i, function in enumerate(functions)
    ]
    return _merge_branches("switch", ways, operands)


def _merge_branches(
    what: str, ways: Sequence[tuple[str, BatchMask, Callable[..., Any]]], operands: tuple[Any, ...]
) -> Any:
    """For each element the result of the function it takes; functions that none takes do not run."""
    taken = [way for way in ways if way[1].some] or ways[-1:]  # a batch of no elements still has a result
    first, mask, function = taken[0]
    outs, structure = flatten(_call_under_mask(mask, function, operands))
    for name, mask, function in taken[1:]:
        where = f"{what}: {name} and {first}"
        found = leaves_matching(structure, _call_under_mask(mask, function, operands), where)
        for i, (new, old) in enumerate(zip(found, outs, strict=True)):
            _check_branches_agree(new, old, where, structure, i)
        outs = [
            # One object from both functions is the same for all elements.
            old if new is old else pointwise.where(mask.value, new, old)
            for new, old in zip(found, outs, strict=True)
        ]
    return unflatten(structure, outs)


def _call_under_mask(mask: BatchMask, function: Callable[..., Any], operands: tuple[Any, ...]) -> Any:
    given = (
        operands if mask.all else map_tree(lambda x: mask_operand(mask, x, x) if isinstance(x, Value) else x, operands)
    )
    with run_under_mask(mask):
        return with_buffers(function)(*map_tree(as_rebindable, given))


def _check_branches_agree(new: Any, old: Any, where: str, structure: Any, number: int) -> None:
    """Raise unless a leaf has one shape and dtype in two branches; a Python number is weak, as everywhere."""
    specs = [spec_of(as_value(x)) for x in (new, old)]
    one, other = (spec.shape for spec in specs)
    if differ_by_autocast(*specs):
        return  # promoted
    # Where the result is selected by element, promotion would make its dtype depend on the data.
    if one == other and all(s.weak or s.dtype == result_dtype(specs) for s in specs):
        return
    kind = ShapeError if one != other else DtypeError
    raise kind(
        f"{where} must return one shape and dtype: result{leaf_paths(structure)[number]} is {specs[0]} and {specs[1]}."
    )


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
    check_functions("while_loop", condition, body)
    carry = LoopCarry("while_loop", init)
    if is_staged(*carry.leaves) or is_staging():
        return stage_while(condition, body, carry)
    with run_with_buffers(body, condition) as (body, condition):
        return _run_while(carry, condition, body)


def fori_loop(lower: Any, upper: Any, body: Callable[[Any, Any], Any], init: Any) -> Any:
    """`carry = body(i, carry)` for i from `lower` up to, not including, `upper`; the last carry. Bounds may differ by
    element of a `vmap`. i is a Python int, or an integer that differs by element if `lower` does.

    >>> import numpy as np, pullback as pb
    >>> power = lambda x, n: pb.fori_loop(0, n, lambda i, y: y * x, 1.0)
    >>> pb.vmap(power)(np.array([2.0, 3.0]), np.array([10, 2]))
    array([1024.,    9.])
    """
    check_functions("fori_loop", body)
    carry = LoopCarry("fori_loop", init)
    if is_staged(lower, upper, *carry.leaves) or is_staging():
        try:
            return stage_fori(lower, upper, body, carry)
        except ConversionError:  # the body needs concrete values: it is unrolled, where they may be known
            if is_staged(lower, upper):
                raise
    start, stop = to_int(lower, "fori_loop: lower"), to_int(upper, "fori_loop: upper")
    with run_with_buffers(body) as (body,):
        if not isinstance(start, Batched) and not isinstance(stop, Batched):
            leaves = carry.leaves
            for i in range(start, stop):
                leaves = _run_step(carry, None, functools.partial(body, i), leaves, leaves)
            return carry.to_tree(leaves)
        return _run_rounds(carry, body, start, stop)


def _run_rounds(carry: LoopCarry, body: Callable[[Any, Any], Any], start: Any, stop: Any) -> Any:
    """A loop whose bounds differ by element."""
    i = start
    rounds = itertools.count(1)

    def step(tree: Any) -> Any:
        nonlocal i
        out = body(replace_inactive(i), tree)
        i = start + next(rounds)
        return out

    return _run_while(carry, lambda tree: pointwise.less(i, stop), step)


def _run_while(carry: LoopCarry, condition: Callable[[Any], Any], body: Callable[[Any], Any]) -> Any:
    """The loop itself. `active` is None while the predicate was the same for all elements.

    A finished element runs the body again on the carry of its last round, where it is known to be valid; only one that
    never began runs it on a carry it may not be defined for.
    """
    leaves = entered = carry.leaves
    active: BatchMask | None = None
    rounds = 0  # where an op comes from is read from this frame
    while True:
        with run_under_mask(active):
            holds = to_bool(condition(carry.as_rebindable_tree(leaves)), f"{carry.what}: the condition")
        # Once elements differ they do so to the end, since those that have finished stay so.
        if isinstance(holds, Batched):
            active = narrow_mask(holds, active)
            holds = active.some
        if not holds:
            return carry.to_tree(leaves)
        if active is None or active.all:
            entered = leaves
        else:
            entered = [mask_operand(active, now, last) for now, last in zip(leaves, entered, strict=True)]
        leaves = _run_step(carry, active, body, entered, leaves)
        rounds += 1


register_round(_run_while, "rounds", "while_loop")
register_round(fori_loop, "i", "fori_loop")
register_round(_run_rounds, "i", "fori_loop")


def _run_step(
    carry: LoopCarry, active: BatchMask | None, body: Callable[[Any], Any], entered: list[Any], leaves: list[Any]
) -> list[Any]:
    """One step for the active elements, the others keep their leaves; a leaf that the body returns unchanged stays the
    same object.
    """
    given = [as_rebindable(x) for x in entered]
    with run_under_mask(active):
        found = carry.check_step_result(body(unflatten(carry.structure, given)))

    def merge(new: Any, mine: Any, came: Any, old: Any) -> Any:
        if new is mine and _is_unwritten(mine, came):
            return old
        # As long as all are active no `where` is needed.
        return new if active is None or active.all else pointwise.where(active.value, new, old)

    return [merge(*row) for row in zip(found, given, entered, leaves, strict=True)]


def _is_unwritten(mine: Any, came: Any) -> bool:
    """Whether the variable that a body was given still has the value that came, after `n += 1` it has not."""
    if type(mine) is np.ndarray:  # what is not a number is read-only
        return bool(mine.ndim) or mine.tobytes() == came.tobytes()  # -0.0 equals 0.0
    if type(mine) is Tensor:
        return mine.value is came.value and mine.node is came.node
    if isinstance(mine, Value) and mine.parts():
        return all(map(operator.is_, mine.parts(), came.parts()))
    return resolve_symbol(mine) is resolve_symbol(came)
