"""The Jacobian of a call: directions pushed or pulled a batch at a time, and rebuilt as trees."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any

from ...arrays.backends import device_context, namespace_on
from ...arrays.scope import Scope, current_scope
from ...arrays.spec import Spec, ones, spec_of, zeros
from ...arrays.tensor import Tensor, wrap
from ...arrays.trees import map_tree, unflatten
from ...arrays.value import Value
from ...errors import DtypeError
from ...ops.elementwise import pointwise
from ...ops.index.indexing import getitem
from ...ops.replay.rehearsal import rehearse
from ...ops.shape.arrange import concat
from ...ops.shape.reshaping import astype, expand_dims, moveaxis, reshape
from ..boundary import unwrap_to_level
from ..flat_call import FlatCall
from ..forward import jvp
from ..reverse import Pullback
from ..vectorize import Batched, batch_scope, unbatch


def check_real(call: FlatCall) -> FlatCall:
    """The call, if its arguments are real."""
    for x in call.xs:
        if spec_of(x).dtype.kind == "c":
            raise DtypeError(
                f"{call.what}: an argument is {spec_of(x)}; a complex number moves in two directions, and a Jacobian "
                "has one entry.\n  Pass its real and imaginary parts as two arguments, or use pb.jvp and pb.vjp; "
                "for a holomorphic function holomorphic=True."
            )
    return call


def with_aux(call: FlatCall) -> Callable[..., tuple[list[Any], Any]]:
    """The call as a function that returns its results, if they have derivatives, and its aux."""

    def run(*inputs: Any) -> tuple[list[Any], Any]:
        outs = call(*inputs)
        for out in outs:
            if not spec_of(out).inexact:
                raise DtypeError(
                    f"{call.what}: the function returned {spec_of(out)}, which has no derivative.\n"
                    "  Return it as aux, with has_aux=True."
                )
        return outs, call.aux

    return run


def to_trees(call: FlatCall, blocks: Sequence[Sequence[Any]]) -> Any:
    """Blocks by result and input as the user sees them: trees of trees, tensors if tensors were given."""
    tensors = any(isinstance(x, Tensor) for x in call.xs)
    rows = [[_as_tensor(b) if tensors else b for b in row] for row in blocks]
    return unflatten(call.results, [call.like_arguments(row) for row in rows])


def _as_tensor(x: Any) -> Any:
    return x if isinstance(x, Value) else wrap(x, spec_of(x))


def compute_jacobian(flat: FlatCall, mode: str, chunk: int | None, holomorphic: bool = False) -> Any:
    """The Jacobian of a call, `chunk` directions at a time."""
    blocks, aux = find_blocks(flat, mode, chunk, holomorphic)
    found = to_trees(flat, blocks)
    return (found, aux) if flat.has_aux else found


def find_blocks(flat: FlatCall, mode: str, chunk: int | None, holomorphic: bool = False) -> tuple[list[list[Any]], Any]:
    """The Jacobian by result and input, and aux."""
    return _forward_blocks(flat, chunk) if mode == "forward" else _reverse_blocks(flat, chunk, holomorphic)


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
    with device_context(spec.device):
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
        _, found, aux = jvp(with_aux(flat), flat.xs, [ones(specs[0])], has_aux=True)
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
        _, found, aux = jvp(with_aux(flat), flat.xs, alone, has_aux=True)
        return [expand_dims(t, 0) for t in found], aux
    with batch_scope(count) as scope:
        batched = [None if t is None else Batched(t, 0, scope) for t in tangents]
        _, found, aux = jvp(with_aux(flat), flat.xs, batched, has_aux=True)
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


def _reverse_blocks(flat: FlatCall, chunk: int | None, holomorphic: bool) -> tuple[list[list[Any]], Any]:
    """Row by row: e_i^T J is what pulling e_i back gives, and f runs once for all of them.

    A complex result has two rows for each element, if the inputs are real: with J = A + iB, pulling back 1 gives
    Re(conj(1) J) = A, and pulling back i gives Re(conj(i) J) = B. That of a holomorphic function has one: pulling back
    1 gives conj(J).
    """
    pullback = Pullback(lambda *inputs: with_aux(flat)(*inputs)[0], flat.xs, current_scope())
    aux = pullback.lower_aux(flat.aux)
    specs = [spec_of(x) for x in pullback.outs]
    units = [(1.0, 1.0j) if spec.dtype.kind == "c" and not holomorphic else (1.0,) for spec in specs]
    *offsets, total = _offsets([spec.size * len(u) for spec, u in zip(specs, units, strict=True)])
    # One number: the plain backward pass, on its fast path.
    if total == 1 == len(specs) and not holomorphic:
        return [[_shape_block(bar, specs[0]) for bar in pullback.gradient(retain=False)]], aux
    pieces: list[list[Any]] = []
    for start, stop in _chunk_ranges(total, chunk):
        bars = [_unit_rows(s, o, u, start, stop) for s, o, u in zip(specs, offsets, units, strict=True)]
        pieces.append(_pull_directions(pullback, bars, specs, stop - start))
    rows = [_join_chunks(piece) for piece in zip(*pieces, strict=True)]
    if holomorphic:
        return [[pointwise.conj(_shape_block(_take_rows(r, o, s.size), s, 1)) for r in rows]
                for o, s in zip(offsets, specs, strict=True)], aux  # fmt: skip
    return [[_rows_as_block(r, o, s) for r in rows] for o, s in zip(offsets, specs, strict=True)], aux


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
