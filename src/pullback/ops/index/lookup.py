"""Rows of a table by their numbers, as an op whose gradient a leaf can take as rows alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...arrays.spec import Spec, make_spec
from ...errors import IndexingError
from ..batching import move_batch_first
from ..dispatch import apply, ndim
from ..families import linear
from ..forms import Expand
from ..op import Op
from . import indexing


def _spec(table: Spec, rows: Spec) -> Spec:
    if not table.ndim or (rows.dtype.kind not in "iu" and rows.size):
        raise IndexingError(f"lookup_rows: wants a table and integers, got {table} and {rows}.")
    return make_spec((*rows.shape, *table.shape[1:]), table.dtype, table.device)


def _batch(op: Op, size: int, args: Sequence[Any], axes: Sequence[int | None], static: Any) -> tuple[Any, int]:
    """One table serves all numbers at once; tables that differ are indexed as any array is."""
    (table, rows), (of_table, of_rows) = args, axes
    rows = rows if of_rows is None else move_batch_first(rows, of_rows)
    if of_table is None:
        return apply(op, table, rows), 0
    table = move_batch_first(table, of_table)
    if of_rows is None:
        return indexing.take(table, rows, axis=1), 0
    steps = np.arange(size).reshape((size,) + (1,) * (ndim(rows) - 1))
    return indexing.getitem(table, (steps, rows)), 0


def _samples(rng: Any) -> Any:
    table = rng.normal(size=(4, 3))
    return [
        ((table, np.array([2, 0, 2])), {}), ((table, np.array([[1], [3]])), {}), ((table, np.zeros(0, int)), {}),
        ((table[:, 0], np.array(1)), {}),
    ]  # fmt: skip


_lookup: Op = linear(
    "lookup_rows",
    value=lambda xp, table, rows: xp.asarray(table[rows]),
    spec=_spec,
    transpose={
        "table": lambda bar, rows, table_spec: indexing.scatter_at(bar, (rows,), table_spec.shape),
    },
    batch=_batch,
    samples=_samples,
    form=Expand(lambda table, rows: indexing.take(table, rows, axis=0)),
    picks_rows=True,
)


def lookup_rows(table: Any, rows: Any) -> Any:
    """table[rows]."""
    return apply(_lookup, table, rows)
