"""`scan` and `map`: a function of one step applied along a sequence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...arrays.argument_checks import check_functions
from ...arrays.backends import is_array
from ...arrays.origin import register_round
from ...arrays.spec import Spec, make_spec, spec_of, zeros
from ...arrays.tensor import Tensor, alias, wrap_new
from ...arrays.trees import flatten, leaf_paths, leaves_matching, unflatten
from ...errors import ArgumentError, ConversionError, DtypeError, ShapeError
from ...ops.axes import as_integer
from ...ops.dispatch import shape
from ...ops.shape.arrange import concat, split, stack
from ...ops.shape.reshaping import reshape
from ...ops.user_calls import run_with_buffers
from ...program.stage import stage
from .batch_masks import as_rebindable
from .carry import LoopCarry, as_arrays, has_same_type
from .staging import is_staged, is_staging, stage_scan

#: How many pieces an array is cut into, or joined from, by one op: the work per piece grows with their number.
_FAN_OUT = 32


def scan(
    f: Callable[[Any, Any], Any], init: Any, xs: Any = None, length: int | None = None, reverse: bool = False
) -> Any:
    """`carry, y = f(carry, x)` for each x along the leading axis of `xs`: the last carry, and the ys stacked. With
    `reverse`, from the last x to the first; each y stands where its x stood. Without `xs` (None), `length` steps.

    >>> import numpy as np, pullback as pb
    >>> pb.scan(lambda total, x: (total + x, total + x), 0.0, np.array([1.0, 2.0, 3.0]))
    (array(6.), array([1., 3., 6.]))
    """
    return _run_scan("scan", f, init, xs, length, reverse)


def map(f: Callable[[Any], Any], xs: Any) -> Any:
    """f of each x along the leading axis of `xs`, one after the other, the results stacked. `vmap` does the same in one
    batch, which is faster and takes more memory.

    >>> import numpy as np, pullback as pb
    >>> pb.map(pb.sum, np.array([[1.0, 2.0], [3.0, 4.0]]))
    array([3., 7.])
    """
    check_functions("map", f)
    return _run_scan("map", lambda _, x: (None, f(x)), None, xs, None, False)[1]


def _run_scan(
    what: str, f: Callable[[Any, Any], Any], init: Any, xs: Any, length: int | None, reverse: bool
) -> tuple[Any, Any]:
    check_functions(what, f)
    given, structure = flatten(xs)
    carry = LoopCarry(what, init, given)
    sequences = as_arrays(given, what)
    count = _scan_length(what, sequences, structure, length)
    if not count:
        return carry.to_tree(carry.leaves), _empty_results(what, f, carry, sequences, structure)
    if is_staged(*carry.leaves, *sequences) or is_staging():
        try:
            return stage_scan(
                what, lambda c, x: _check_pair(what, f(c, x)), carry, sequences, structure, count, reverse
            )
        except ConversionError:  # the function needs concrete values: it is unrolled, where they may be known
            pass
    # Cut up front: an index at each step would be a scatter each in the backward pass.
    rows = [_split_rows(x) for x in sequences]
    leaves, ys = carry.leaves, ScanResults(what)
    with run_with_buffers(f) as (step,):
        for i in range(count)[:: -1 if reverse else 1]:
            x = unflatten(structure, [as_rebindable(row[i]) for row in rows])
            after, y = _check_pair(what, step(carry.as_rebindable_tree(leaves), x))
            leaves = carry.check_step_result(after)
            ys.add(y)
    return carry.to_tree(leaves), ys.stack_all(reverse)


register_round(_run_scan, "i")


def _check_pair(what: str, out: Any) -> tuple[Any, Any]:
    if not isinstance(out, tuple) or len(out) != 2:
        raise ArgumentError(f"{what}: the function returns (carry, y), got a {type(out).__name__}.")
    return out


def _scan_length(what: str, sequences: list[Any], structure: Any, length: int | None) -> int:
    """The number of steps, on which all sequences and `length` must agree."""
    sizes = {} if length is None else {"length": as_integer(length, f"{what}: length")}
    for path, x in zip(leaf_paths(structure), sequences, strict=True):
        if not shape(x):
            raise ShapeError(f"{what}: xs{path} is {spec_of(x)} and has no axis to go along.")
        sizes[f"xs{path}"] = shape(x)[0]
    if not sizes:
        raise ArgumentError(f"{what}: xs holds no arrays.\n  Pass the number of steps: length=n.")
    if len(set(sizes.values())) > 1:
        raise ShapeError(f"{what}: lengths differ: {', '.join(f'{name} has {n}' for name, n in sizes.items())}.")
    count = next(iter(sizes.values()))
    if count < 0:
        raise ArgumentError(f"{what}: length must not be negative, got {count}.")
    return count


def _split_rows(x: Any) -> list[Any]:
    """The entries along the leading axis, by a tree of splits: in the backward pass a few concats join them."""
    count, *rest = shape(x)
    if count > _FAN_OUT:
        width = _FAN_OUT
        # Blocks of nearly one depth, so that no entry goes through more splits than another.
        while width * _FAN_OUT < count:
            width *= _FAN_OUT
        cuts = list(range(width, count, width))
        return [entry for block in split(x, cuts) for entry in _split_rows(block)]
    return [reshape(piece, tuple(rest)) for piece in split(x, count)]


class ScanResults:
    """The ys of a scan, all of one structure, shape and dtype."""

    __slots__ = ("_columns", "_specs", "_structure", "_what")

    def __init__(self, what: str) -> None:
        self._what = what
        self._columns: list[list[Any]] | None = None
        self._specs: list[Spec] = []
        self._structure: Any = None

    def add(self, y: Any) -> None:
        """Add the result of a step."""
        if self._columns is None:
            leaves, self._structure = flatten(y)
            leaves = as_arrays(leaves, self._what)
            self._specs = [spec_of(x) for x in leaves]
            self._columns = [[_hold(x)] for x in leaves]
            return
        leaves = as_arrays(leaves_matching(self._structure, y, f"{self._what}: the results of two steps"), self._what)
        for i, (x, spec, column) in enumerate(zip(leaves, self._specs, self._columns, strict=True)):
            if not has_same_type(spec_of(x), spec):
                kind = ShapeError if shape(x) != spec.shape else DtypeError
                raise kind(
                    f"{self._what}: result{leaf_paths(self._structure)[i]} was {spec} at first and {spec_of(x)} "
                    f"in step {len(column) + 1}.\n  All steps return one shape and dtype."
                )
            column.append(_hold(x))

    def stack_all(self, reverse: bool) -> Any:
        """All results, one array for each leaf."""
        columns = self._columns or []
        return unflatten(self._structure, [_stack_entries(column[:: -1 if reverse else 1]) for column in columns])


def _hold(x: Any) -> Any:
    """The numbers of a result as they are now: the function may write to the same array in each step."""
    return x.copy() if is_array(x) else alias(x)


def _stack_entries(entries: list[Any]) -> Any:
    parts = [stack(entries[i : i + _FAN_OUT]) for i in range(0, len(entries), _FAN_OUT)]
    # Joined by a tree of ops with few arguments, since the tape visits every argument of every op.
    while len(parts) > 1:
        parts = [concat(parts[i : i + _FAN_OUT]) for i in range(0, len(parts), _FAN_OUT)]
    return parts[0]


def _empty_results(
    what: str, f: Callable[[Any, Any], Any], carry: LoopCarry, sequences: list[Any], structure: Any
) -> Any:
    """The ys of no steps: f is traced once for the shapes of its results."""
    specs = [make_spec(shape(x)[1:], spec_of(x).dtype, spec_of(x).device) for x in sequences]
    tensors = any(isinstance(x, Tensor) for x in (*carry.leaves, *sequences))
    found: list[Any] = []

    def step(*symbols: Any) -> list[Any]:
        before, x = symbols[: len(carry.specs)], symbols[len(carry.specs) :]
        after, y = _check_pair(what, f(unflatten(carry.structure, before), unflatten(structure, x)))
        carry.check_step_result(after)
        leaves, shape_of_y = flatten(y)
        results = [spec_of(leaf) for leaf in as_arrays(leaves, what)]
        found.extend((shape_of_y, [make_spec((0, *s.shape), s.dtype, s.device) for s in results]))
        return []

    try:
        stage(step, *carry.specs, *specs)
    except Exception as error:
        raise ArgumentError(
            f"{what}: no steps to take, and running the function on shapes alone to find those of its results failed:\n"
            f"  {error}"
        ) from error
    arrays = [zeros(spec) for spec in found[1]]
    return unflatten(found[0], [wrap_new(x) if tensors else x for x in arrays])
