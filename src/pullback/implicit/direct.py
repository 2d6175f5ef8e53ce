"""A linear system in, its solution out by factorising its matrix: dense, or sparse by SciPy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, final

import numpy as np

from ..errors import ArgumentError
from ..ops.batching import lead, padded
from ..ops.dispatch import apply, ndim
from ..ops.op import Op
from ..transforms.rules import custom_record
from ..transforms.sparse import sparse_jacobian
from .krylov import State, answer, finished, improved, powers, started
from .linear import System

__all__ = ["Dense", "Sparse"]

_PROBES = 3


def _factored_solve(xp: Any, matrix: Any, b: Any, kind: str) -> Any:
    """x with matrix x = b over the last axes; NaN where the matrix is singular to working precision."""
    size = b.shape[-1]
    wide = np.result_type(b.dtype, np.float32)
    shared = matrix.ndim == 2
    columns = b.reshape(-1, size).T if shared else b[..., None]
    one = _by_cholesky if kind == "cholesky" else _by_elimination
    if not shared:
        matrix = xp.broadcast_to(matrix, (*b.shape, size))
    x = one(xp, matrix.astype(wide), columns.astype(wide))
    return (x.T.reshape(b.shape) if shared else x[..., 0]).astype(b.dtype)


def _by_elimination(xp: Any, matrix: Any, columns: Any) -> Any:
    """Rows and columns are scaled by powers of two first, so that a matrix is not called singular for its units.

    Then the matrix is singular to working precision where |A| |A^-1| exceeds that: |A^-1| is estimated from below by
    what it makes of some random vectors, which are solved for along with the rest.
    """
    size = matrix.shape[-1]
    down = powers(xp, xp.max(xp.abs(matrix), axis=-1, keepdims=True))
    across = powers(xp, xp.max(xp.abs(matrix / down), axis=-2, keepdims=True))
    even = matrix / down / across
    probes = xp.asarray(np.random.default_rng(size).normal(size=(size, _PROBES)), matrix.dtype)
    probes = xp.broadcast_to(probes / xp.sqrt(xp.sum(probes**2, axis=0)), (*matrix.shape[:-2], size, _PROBES))
    found = _each_solved(xp, even, xp.concatenate([columns / down, probes], axis=-1))
    reach = xp.sqrt(xp.sum(found[..., -_PROBES:] ** 2, axis=-2, keepdims=True)).max(axis=-1, keepdims=True)
    height = xp.sqrt(xp.sum(even**2, axis=(-2, -1), keepdims=True))
    sound = reach * height * (8 * float(np.finfo(matrix.dtype).eps)) < 1
    return xp.where(sound, found[..., :-_PROBES] / xp.swapaxes(across, -1, -2), xp.nan)


def _each_solved(xp: Any, matrix: Any, columns: Any) -> Any:
    """NumPy gives up on all matrices if one is singular; then each is tried by itself."""
    try:
        return xp.linalg.solve(matrix, columns)
    except np.linalg.LinAlgError:
        if matrix.ndim == 2:
            return xp.full_like(columns, xp.nan)
        return xp.stack([_each_solved(xp, *pair) for pair in zip(matrix, columns, strict=True)])


def _by_cholesky(xp: Any, matrix: Any, columns: Any) -> Any:
    if matrix.ndim > 2:
        return xp.stack([_by_cholesky(xp, *pair) for pair in zip(matrix, columns, strict=True)])
    try:
        lower = xp.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        return xp.full_like(columns, xp.nan)
    if xp is not np:
        return xp.linalg.solve(lower.T, xp.linalg.solve(lower, columns))
    from scipy.linalg import cho_solve

    return cho_solve((lower, True), columns, check_finite=False)


def _batch_solve(size: int, axes: tuple[int | None, ...], matrix: Any, b: Any, kind: str) -> tuple[Any, int]:
    """A matrix that all share stays one matrix, factorised once; other axes broadcast from the right."""
    b = lead(b, axes[1], size)
    return apply(_solve, padded(matrix, axes[0], ndim(b)), b, kind=kind), 0


_solve: Op = custom_record(
    "dense_solve", ("matrix", "b"), _factored_solve, None, None, _batch_solve, lambda matrix, b, kind: b
)  # fmt: skip


@final
@dataclass(frozen=True)
class Dense:
    """The whole matrix, by as many products as it has columns, and its factors: "lu" for any matrix, "cholesky" for a
    symmetric positive definite one. Steps after the first refine the solution. A singular matrix is not solved with.
    """

    kind: Literal["lu", "cholesky"] = "lu"

    def __post_init__(self) -> None:
        if self.kind not in ("lu", "cholesky"):
            raise ArgumentError(f'Dense: kind is "lu" or "cholesky", got {self.kind!r}.')

    def init(self, system: System, b: Any) -> State:
        state = started(b)
        return {**state, "r": state["b"], "matrix": system.dense()}

    def step(self, system: System, state: State) -> State:
        return improved(system, state, apply(_solve, state["matrix"], state["r"], kind=self.kind))

    done = staticmethod(finished)
    value = staticmethod(answer)


@final
@dataclass(frozen=True)
class Sparse:
    """The sparse matrix, by as many products as its columns need colours, and SciPy's direct solver. Steps after the
    first refine the solution. For plain NumPy arrays, not inside `vmap`.
    """

    def init(self, system: System, b: Any) -> State:
        if not isinstance(b, np.ndarray):
            raise ArgumentError(
                f"Sparse: SciPy solves with one matrix of NumPy arrays at a time, got {b!r}.\n"
                "  Use Dense or GMRES inside vmap and on other devices."
            )
        state = started(b)
        solve = _sparse_factors(system)
        return {**state, "r": state["b"], "going": state["going"] & np.asarray(solve is not None), "solve": solve}

    def step(self, system: System, state: State) -> State:
        return improved(system, state, state["solve"](state["r"]))

    done = staticmethod(finished)
    value = staticmethod(answer)


def _sparse_factors(system: System) -> Any:
    """The function that solves with the matrix; None where it is singular."""
    from scipy.sparse.linalg import splu

    before, somewhere = system.products, np.zeros(system.size, system.dtype)
    plan = sparse_jacobian.plan(system.apply, somewhere)
    matrix = plan(somewhere)
    system.products = before + plan.products + 1  # one by colour and one of the check, in batches
    try:
        return splu(matrix.tocsc()).solve
    except RuntimeError:
        return None
