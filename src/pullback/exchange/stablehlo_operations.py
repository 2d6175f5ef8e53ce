"""Words and routines that StableHLO has in a form of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .graph_writer import Ref
from .mlir_text import names_of, signature, truth, type_of
from .words import GraphWords

if TYPE_CHECKING:
    from .stablehlo_writer import StableHloWriter

_BOOL: np.dtype[Any] = np.dtype(bool)


def _abs(w: StableHloWriter, x: Ref) -> Ref:
    return x if x.dtype.kind in "ub" else w.emit(f"stablehlo.abs {x.name}", type_of(x), x.shape, x.dtype)


def _sign(w: StableHloWriter, x: Ref) -> Ref:
    if x.dtype.kind == "u":
        return w.word("minimum", x.dtype, x, w.constant(np.ones((), x.dtype)))
    return w.emit(f"stablehlo.sign {x.name}", type_of(x), x.shape, x.dtype)


def _select(w: StableHloWriter, condition: Ref, x: Ref, y: Ref) -> Ref:
    given = [condition, x, y]
    return w.emit(f"stablehlo.select {names_of(given)}", f"{type_of(condition)}, {type_of(x)}", x.shape, x.dtype)


def _isnan(w: StableHloWriter, x: Ref) -> Ref:
    types = signature([x, x], [Ref("", x.shape, _BOOL)])
    return w.emit(f"stablehlo.compare NE, {x.name}, {x.name}, FLOAT", types, x.shape, _BOOL)


def _isinf(w: StableHloWriter, x: Ref) -> Ref:
    return w.word("equal", _BOOL, _abs(w, x), w.constant(np.asarray(np.inf, x.dtype)))


def _shift_right(w: StableHloWriter, x: Ref, y: Ref) -> Ref:
    kind = "logical" if x.dtype.kind == "u" else "arithmetic"
    return w.emit(f"stablehlo.shift_right_{kind} {names_of([x, y])}", type_of(x), x.shape, x.dtype)


SPECIAL_WORDS: dict[str, Callable[..., Ref]] = {
    "abs": _abs, "sign": _sign, "select": _select, "isnan": _isnan, "isinf": _isinf,
    "bitwise_right_shift": _shift_right,
}  # fmt: skip


def _cholesky(w: StableHloWriter, xs: Sequence[Ref], static: dict[str, Any], made: Any) -> Ref:
    """Of the Hermitian part; above the diagonal StableHLO leaves anything."""
    (x,), k = xs, GraphWords(w, xs[0].dtype)
    axes = (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2)
    x = k.multiply(k.add(x, k.conj(w.transpose(x, axes))), k.constant(0.5))
    found = w.emit(f"stablehlo.cholesky {x.name}, lower = true", type_of(x), x.shape, x.dtype)
    lower = w.constant(np.tril(np.ones(x.shape[-2:], bool)))
    chosen: Ref = k.select(lower, found, k.constant(0))
    return chosen


def _triangular_solve(w: StableHloWriter, xs: Sequence[Ref], static: dict[str, Any], made: Any) -> Ref:
    (a, b), stack = xs, made.shape[:-2]
    given = [w.expand(x, (*stack, *x.shape[-2:])) for x in (a, b)]
    how = f"left_side = true, lower = {truth(static['lower'])}, unit_diagonal = {truth(static['unit'])}"
    how += ", transpose_a = #stablehlo<transpose NO_TRANSPOSE>"
    return w.plain("triangular_solve", given, made.shape, a.dtype, how)


ROUTINES: dict[str, Callable[..., Ref]] = {"cholesky": _cholesky, "triangular_solve": _triangular_solve}
