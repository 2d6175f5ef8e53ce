"""The Jacobian of a call: directions pushed or pulled a batch at a time, and rebuilt as trees."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any

from ...arrays.backends import namespace_on
from ...arrays.scope import Scope, current_scope
from ...arrays.spec import Spec, ones, spec_of, zeros
from ...arrays.tensor import Tensor, wrap
from ...arrays.trees import LEAF, flatten, is_plain_leaf, map_tree, unflatten
from ...arrays.value import Value
from ...errors import DtypeError
from ...ops.elementwise import pointwise
from ...ops.index.indexing import getitem
from ...ops.replay.rehearsal import rehearse
from ...ops.shape.arrange import concat
from ...ops.shape.reshaping import astype, expand_dims, moveaxis, reshape
from ..boundary import as_array_leaf, as_differentiable, split_aux, unwrap_to_level
from ..forward import jvp
from ..reverse import Pullback, argument_positions
from ..vectorize import Batched, batch_scope, unbatch


class FlatCall:
    """A call of f as a function from the arrays in its chosen arguments, `xs`, to the list of those in its result.

    Called with values for `xs` it returns (results, aux), and remembers the structure of the result.
    """

    __slots__ = ("_args", "_chosen", "_f", "_has_aux", "_kwargs", "_many", "_results", "_structure", "_what", "xs")

    def __init__(
        self, f: Callable[..., Any], argnums: Any, args: tuple[Any, ...], kwargs: Any, has_aux: bool, what: str
    ) -> None:
        self._f, self._args, self._kwargs, self._has_aux, self._what = f, args, kwargs, has_aux, what
        self._chosen = argument_positions(argnums, len(args), what)
        self._many = isinstance(argnums, (tuple, list))
        picked = tuple(args[i] for i in self._chosen)
        self._structure: Any = LEAF
        leaves = list(picked)
        # One bare array, the usual case, needs no tree.
        if len(picked) != 1 or not is_plain_leaf(picked[0]):
            leaves, self._structure = flatten(picked)
        self.xs = [_as_real(x, what, self._structure, i) for i, x in enumerate(leaves)]
        self._results: Any = LEAF

    def __call__(self, *inputs: Any) -> tuple[list[Any], Any]:
        filled = list(self._args)
        values = inputs if self._structure is LEAF else unflatten(self._structure, inputs)
        for i, value in zip(self._chosen, values, strict=True):
            filled[i] = value
        out, aux = self._f(*filled, **self._kwargs), None
        if self._has_aux:
            out, aux = split_aux(out, self._what)
        leaves, self._results = flatten(out)
        return [self._check_output(as_array_leaf(x, self._what)) for x in leaves], aux

    def _check_output(self, out: Any) -> Any:
        if not spec_of(out).inexact:
            raise DtypeError(
                f"{self._what}: the function returned {spec_of(out)}, which has no derivative.\n"
                "  Return it as aux, with has_aux=True."
            )
        return out

    @property
    def holders(self) -> tuple[Any, ...]:
        """The function, and what it is called with."""
        return self._f, self._args, self._kwargs

    def to_trees(self, blocks: Sequence[Sequence[Any]], aux: Any) -> Any:
        """Blocks by result and input as the user sees them: trees of trees, tensors if tensors were given."""
        tensors = any(isinstance(x, Tensor) for x in self.xs)
        rows = [[_as_tensor(b) if tensors else b for b in row] for row in blocks]
        answer = unflatten(self._results, [self._input_tree(row) for row in rows])
        return (answer, aux) if self._has_aux else answer

    def _input_tree(self, row: Sequence[Any]) -> Any:
        trees = tuple(row) if self._structure is LEAF else unflatten(self._structure, row)
        return trees if self._many else trees[0]


def _as_real(leaf: Any, what: str, structure: Any, number: int) -> Any:
    value = as_differentiable(leaf, what, structure, number)
    if spec_of(value).dtype.kind == "c":
        raise DtypeError(
            f"{what}: an argument is {spec_of(value)}; a complex number moves in two directions, and a Jacobian has "
            "one entry.\n  Pass its real and imaginary parts as two arguments, or use pb.jvp and pb.vjp."
        )
    return value


def _as_tensor(x: Any) -> Any:
    return x if isinstance(x, Value) else wrap(x, spec_of(x))


def compute_jacobian(flat: FlatCall, mode: str, chunk: int | None) -> Any:
    """The Jacobian of a call, `chunk` directions at a time."""
    blocks, aux = (_forward_blocks if mode == "forward" else _reverse_blocks)(flat, chunk)
    return flat.to_trees(blocks, aux)


def _chunk_ranges(total: int, chunk: int | None) -> Iterator[tuple[int, int]]:
    # Without directions there is one empty run, which gives the results their shapes.
    size = chunk or max(total, 1)
    return ((start, min(start + size, total)) for start in range(0, max(total, 1), size))


def _unit_rows(spec: Spec, offset: int, units: Sequence[complex], start: int, stop: int) -> Any:
    """Rows `start` to `stop` of an identity, in the columns of one value: its elements have the rows from `offset`
    on, once for each unit. None if no row is among them.
    """
    if stop <= offset or offset + len(units) * spec.size <= start:
        return None
    xp = namespace_on(spec.device)
    rows = xp.zeros((stop - start, spec.size), spec.dtype)
    for unit in units:
        own = xp.arange(max(start, offset), min(stop, offset + spec.size))
        rows[own - start, own - offset] = unit
        offset += spec.size
    return rows.reshape((stop - start, *spec.shape))


def _offsets(sizes: Sequence[int]) -> list[int]:
    return [sum(sizes[:i]) for i in range(len(sizes) + 1)]


def _forward_blocks(flat: FlatCall, chunk: int | None) -> tuple[list[list[Any]], Any]:
    """Column by column: J e_i is the derivative along e_i, and f runs once for each chunk of them."""
    specs = [spec_of(x) for x in flat.xs]
    *offsets, total = _offsets([spec.size for spec in specs])
    if total == 1 == len(specs):  # nothing to stack, and nothing to split
        _, found, aux = jvp(flat, flat.xs, [ones(specs[0])], has_aux=True)
        return [[reshape(t, spec_of(t).shape + specs[0].shape)] for t in found], aux
    pieces: list[list[Any]] = []
    for start, stop in _chunk_ranges(total, chunk):
        tangents = [_unit_rows(s, o, (1.0,), start, stop) for s, o in zip(specs, offsets, strict=True)]
        with nullcontext() if stop >= total else rehearse(flat.holders, flat.xs):  # only the last run updates state
            found, aux = _push_directions(flat, tangents, stop - start)
        pieces.append(found)
    columns = [_join_chunks(piece) for piece in zip(*pieces, strict=True)]
    return [[_columns_as_block(c, o, s) for o, s in zip(offsets, specs, strict=True)] for c in columns], aux


def _push_directions(flat: FlatCall, tangents: list[Any], count: int) -> tuple[list[Any], Any]:
    """`count` tangents through f: for each result its derivatives, stacked along axis 0; and aux."""
    # A batch of one would cost every op an axis for nothing.
    if count == 1:
        alone = [None if t is None else t[0] for t in tangents]
        _, found, aux = jvp(flat, flat.xs, alone, has_aux=True)
        return [expand_dims(t, 0) for t in found], aux
    with batch_scope(count) as scope:
        batched = [None if t is None else Batched(t, 0, scope) for t in tangents]
        _, found, aux = jvp(flat, flat.xs, batched, has_aux=True)
        return [unbatch(t, scope, 0) for t in found], _lower_shared_aux(aux, scope)


def _lower_shared_aux(aux: Any, scope: Scope) -> Any:
    """The aux of f, which is the same for all directions."""
    return map_tree(lambda x: scope.lower(unwrap_to_level(x, scope)) if isinstance(x, Value) else x, aux)


def _join_chunks(pieces: Sequence[Any]) -> Any:
    return pieces[0] if len(pieces) == 1 else concat(pieces)


def _columns_as_block(columns: Any, offset: int, spec: Spec) -> Any:
    """The derivatives by the elements of one input: axis 0, which counts them, goes last and gets their shape."""
    part = _take_rows(columns, offset, spec.size)
    return reshape(moveaxis(part, 0, -1), (*spec_of(part).shape[1:], *spec.shape))


def _take_rows(stacked: Any, offset: int, size: int) -> Any:
    # A slice of everything would be an op on the tape of an outer derivative.
    if size == spec_of(stacked).shape[0]:
        return stacked
    return getitem(stacked, slice(offset, offset + size))


def _reverse_blocks(flat: FlatCall, chunk: int | None) -> tuple[list[list[Any]], Any]:
    """Row by row: e_i^T J is what pulling e_i back gives, and f runs once for all of them.

    A complex result has two rows for each element, since the inputs are real: with J = A + iB, pulling back 1 gives
    Re(conj(1) J) = A, and pulling back i gives Re(conj(i) J) = B.
    """
    pullback, aux = _record_call(flat)
    specs = [spec_of(x) for x in pullback.outs]
    units = [(1.0, 1.0j) if spec.dtype.kind == "c" else (1.0,) for spec in specs]
    *offsets, total = _offsets([spec.size * len(u) for spec, u in zip(specs, units, strict=True)])
    # One number: the plain backward pass, on its fast path.
    if total == 1 == len(specs):
        return [[_shape_block(bar, specs[0]) for bar in pullback.gradient(retain=False)]], aux
    pieces: list[list[Any]] = []
    for start, stop in _chunk_ranges(total, chunk):
        bars = [_unit_rows(s, o, u, start, stop) for s, o, u in zip(specs, offsets, units, strict=True)]
        pieces.append(_pull_directions(pullback, bars, specs, stop - start))
    rows = [_join_chunks(piece) for piece in zip(*pieces, strict=True)]
    return [[_rows_as_block(r, o, s) for r in rows] for o, s in zip(offsets, specs, strict=True)], aux


def _record_call(flat: FlatCall) -> tuple[Pullback, Any]:
    """One run of f on the tape, and its aux."""
    aux: Any = None

    def outs(*inputs: Any) -> list[Any]:
        nonlocal aux
        found, aux = flat(*inputs)
        return found

    pullback = Pullback(outs, flat.xs, current_scope())
    return pullback, pullback.lower_aux(aux)


def _pull_directions(pullback: Pullback, bars: list[Any], specs: Sequence[Spec], count: int) -> list[Any]:
    """`count` cotangents pulled back: for each input its shares, stacked along axis 0."""
    if count == 1:
        alone = [zeros(s) if b is None else b[0] for b, s in zip(bars, specs, strict=True)]
        return [expand_dims(x, 0) for x in pullback.pull(alone)]
    with batch_scope(count) as scope:
        batched = [zeros(s) if b is None else Batched(b, 0, scope) for b, s in zip(bars, specs, strict=True)]
        return [unbatch(x, scope, 0) for x in pullback.pull(batched)]


def _rows_as_block(rows: Any, offset: int, spec: Spec) -> Any:
    """The rows of one result, in its shape and dtype."""
    part = _take_rows(rows, offset, spec.size)
    if spec.dtype.kind == "c":
        part = pointwise.add(part, pointwise.multiply(_take_rows(rows, offset + spec.size, spec.size), 1.0j))
    return _shape_block(part, spec, 1)


def _shape_block(row: Any, spec: Spec, stacked: int = 0) -> Any:
    """What was pulled back from a result, in the result's dtype, with its axes in place of the stacked one."""
    found = spec_of(row)
    block = reshape(row, (*spec.shape, *found.shape[stacked:]))
    return block if found.dtype == spec.dtype else astype(block, spec.dtype)
