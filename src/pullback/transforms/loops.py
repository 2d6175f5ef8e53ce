"""A function of one step and a sequence in, the results of all steps out; and the carry that all loops hand on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..arrays.checks import wants_functions
from ..arrays.spec import Spec, make_spec, spec_of, zeros
from ..arrays.tensor import Tensor, wrap
from ..arrays.trees import flatten, listed, paths, unflatten
from ..errors import ArgumentError, ConversionError, DtypeError, ShapeError
from ..ops.arranging import concat, split, stack
from ..ops.axes import whole
from ..ops.dispatch import shape
from ..ops.shaping import reshape
from ..ops.specialise import write_down
from .carry import Carry, alike, as_arrays
from .masks import own
from .staged import is_staged, is_staging, staged_scan

__all__ = ["map", "scan"]

#: How many pieces an array is cut into, or joined from, by one op: the work per piece grows with their number.
_FAN = 32


def scan(
    f: Callable[[Any, Any], Any], init: Any, xs: Any = None, length: int | None = None, reverse: bool = False
) -> Any:
    """`carry, y = f(carry, x)` for each x along the leading axis of `xs`: the last carry, and the ys stacked. With
    `reverse`, from the last x to the first; each y stands where its x stood. Without `xs` (None), `length` steps.

    >>> import numpy as np, pullback as pb
    >>> pb.scan(lambda total, x: (total + x, total + x), 0.0, np.array([1.0, 2.0, 3.0]))
    (array(6.), array([1., 3., 6.]))
    """
    return _scanned("scan", f, init, xs, length, reverse)


def map(f: Callable[[Any], Any], xs: Any) -> Any:
    """f of each x along the leading axis of `xs`, one after the other, the results stacked. `vmap` does the same at
    once, which is faster and takes more memory.

    >>> import numpy as np, pullback as pb
    >>> pb.map(pb.sum, np.array([[1.0, 2.0], [3.0, 4.0]]))
    array([3., 7.])
    """
    wants_functions("map", f)
    return _scanned("map", lambda _, x: (None, f(x)), None, xs, None, False)[1]


def _scanned(
    what: str, f: Callable[[Any, Any], Any], init: Any, xs: Any, length: int | None, reverse: bool
) -> tuple[Any, Any]:
    wants_functions(what, f)
    given, structure = flatten(xs)
    carry = Carry(what, init, given)
    sequences = as_arrays(given, what)
    count = _length(what, sequences, structure, length)
    if not count:
        return carry.tree(carry.leaves), _no_results(what, f, carry, sequences, structure)
    if is_staged(*carry.leaves, *sequences) or is_staging():
        try:
            return staged_scan(what, lambda c, x: _pair(what, f(c, x)), carry, sequences, structure, count, reverse)
        except ConversionError:  # the function wants numbers: it is written out step by step, where they may be known
            pass
    rows = [_unstacked(x) for x in sequences]
    leaves, ys = carry.leaves, Results(what)
    for i in range(count)[:: -1 if reverse else 1]:
        after, y = _pair(what, f(carry.given(leaves), unflatten(structure, [own(row[i]) for row in rows])))
        leaves = carry.after(after)
        ys.add(y)
    return carry.tree(leaves), ys.stacked(reverse)


def _pair(what: str, out: Any) -> tuple[Any, Any]:
    if not isinstance(out, tuple) or len(out) != 2:
        raise ArgumentError(f"{what}: the function returns (carry, y), got a {type(out).__name__}.")
    return out


def _length(what: str, sequences: list[Any], structure: Any, length: int | None) -> int:
    """The number of steps, on which all sequences and `length` must agree."""
    sizes = {} if length is None else {"length": whole(length, f"{what}: length")}
    for path, x in zip(paths(structure), sequences, strict=True):
        if not shape(x):
            raise ShapeError(f"{what}: xs{path} is {spec_of(x)} and has no axis to go along.")
        sizes[f"xs{path}"] = shape(x)[0]
    if not sizes:
        raise ArgumentError(f"{what}: xs holds no arrays.\n  Say how many steps there are: length=n.")
    if len(set(sizes.values())) > 1:
        raise ShapeError(f"{what}: lengths differ: {', '.join(f'{name} has {n}' for name, n in sizes.items())}.")
    count = next(iter(sizes.values()))
    if count < 0:
        raise ArgumentError(f"{what}: length must not be negative, got {count}.")
    return count


def _unstacked(x: Any) -> list[Any]:
    """The entries along the leading axis, by a tree of splits: on the way back they come together by a few concats."""
    count, *rest = shape(x)
    if count > _FAN:
        width = _FAN
        while width * _FAN < count:
            width *= _FAN
        cuts = list(range(width, count, width))
        return [entry for block in split(x, cuts) for entry in _unstacked(block)]
    return [reshape(piece, tuple(rest)) for piece in split(x, count)]


class Results:
    """The ys of a scan, all of one structure, shape and dtype."""

    __slots__ = ("_columns", "_specs", "_structure", "_what")

    def __init__(self, what: str) -> None:
        self._what = what
        self._columns: list[list[Any]] | None = None
        self._specs: list[Spec] = []
        self._structure: Any = None

    def add(self, y: Any) -> None:
        """One more step's result."""
        if self._columns is None:
            leaves, self._structure = flatten(y)
            leaves = as_arrays(leaves, self._what)
            self._specs = [spec_of(x) for x in leaves]
            self._columns = [[x] for x in leaves]
            return
        leaves = as_arrays(listed(self._structure, y, f"{self._what}: the results of two steps"), self._what)
        for i, (x, spec, column) in enumerate(zip(leaves, self._specs, self._columns, strict=True)):
            if not alike(spec_of(x), spec):
                kind = ShapeError if shape(x) != spec.shape else DtypeError
                raise kind(
                    f"{self._what}: result{paths(self._structure)[i]} was {spec} at first and {spec_of(x)} "
                    f"in step {len(column) + 1}.\n  All steps return one shape and dtype."
                )
            column.append(x)

    def stacked(self, reverse: bool) -> Any:
        """All results, one array for each leaf."""
        columns = self._columns or []
        return unflatten(self._structure, [_stacked(column[:: -1 if reverse else 1]) for column in columns])


def _stacked(entries: list[Any]) -> Any:
    parts = [stack(entries[i : i + _FAN]) for i in range(0, len(entries), _FAN)]
    while len(parts) > 1:
        parts = [concat(parts[i : i + _FAN]) for i in range(0, len(parts), _FAN)]
    return parts[0]


def _no_results(what: str, f: Callable[[Any, Any], Any], carry: Carry, sequences: list[Any], structure: Any) -> Any:
    """The ys of no steps: f runs once on symbols, which tells the shapes of its results."""
    specs = [make_spec(shape(x)[1:], spec_of(x).dtype, spec_of(x).device) for x in sequences]
    tensors = any(isinstance(x, Tensor) for x in (*carry.leaves, *sequences))
    found: list[Any] = []

    def step(*symbols: Any) -> None:
        before, x = symbols[: len(carry.specs)], symbols[len(carry.specs) :]
        after, y = _pair(what, f(unflatten(carry.structure, before), unflatten(structure, x)))
        carry.after(after)
        leaves, shape_of_y = flatten(y)
        results = [spec_of(leaf) for leaf in as_arrays(leaves, what)]
        found.extend((shape_of_y, [make_spec((0, *s.shape), s.dtype, s.device) for s in results]))

    try:
        write_down(step, *carry.specs, *specs)
    except Exception as error:
        raise ArgumentError(
            f"{what}: no steps to take, and running the function on shapes alone to find those of its results failed:\n"
            f"  {error}"
        ) from error
    arrays = [zeros(spec) for spec in found[1]]
    return unflatten(found[0], [wrap(x, spec_of(x)) if tensors else x for x in arrays])
