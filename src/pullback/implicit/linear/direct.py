"""Direct solvers of linear systems: dense factorisations, and SciPy's for sparse matrices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, final

import numpy as np

from ...errors import ArgumentError
from ...ops.batching import align_rank, move_batch_first
from ...ops.dispatch import apply, ndim
from ...ops.forms import Matrix
from ...ops.op import Op
from ...transforms.custom.rules import make_custom_record
from ...transforms.sparse import sparse_jacobian
from ..solvers.method_loop import PackageMethod, State
from .krylov import apply_correction, initial_state, is_finished, nearest_powers_of_two, solution_of
from .operator import LinearSystem

_PROBES = 3


def _solve_dense(xp: Any, matrix: Any, b: Any, kind: str) -> Any:
    """x with matrix x = b over the last axes; NaN where the matrix is singular to working precision."""
    size = b.shape[-1]
    wide = np.result_type(b.dtype, np.float32)
    shared = matrix.ndim == 2
    columns = b.reshape(-1, size).T if shared else b[..., None]
    one = _solve_by_cholesky if kind == "cholesky" else _solve_by_elimination
    if not shared:
        matrix = xp.broadcast_to(matrix, (*b.shape, size))
    x = one(xp, matrix.astype(wide), columns.astype(wide))
    return (x.T.reshape(b.shape) if shared else x[..., 0]).astype(b.dtype)


def _solve_by_elimination(xp: Any, matrix: Any, columns: Any) -> Any:
    """Rows and columns are scaled by powers of two first, so that a matrix is not called singular for its units.

    Then the matrix is singular to working precision where |A| |A^-1| exceeds that: |A^-1| is estimated from below by
    what it makes of some random vectors, which are solved for along with the rest.
    """
    size = matrix.shape[-1]
    down = nearest_powers_of_two(xp, xp.max(xp.abs(matrix), axis=-1, keepdims=True))
    across = nearest_powers_of_two(xp, xp.max(xp.abs(matrix / down), axis=-2, keepdims=True))
    even = matrix / down / across
    probes = xp.asarray(np.random.default_rng(size).normal(size=(size, _PROBES)), matrix.dtype)
    probes = xp.broadcast_to(probes / xp.sqrt(xp.sum(probes**2, axis=0)), (*matrix.shape[:-2], size, _PROBES))
    found = _solve_each(xp, even, xp.concatenate([columns / down, probes], axis=-1))
    reach = xp.sqrt(xp.sum(xp.abs(found[..., -_PROBES:]) ** 2, axis=-2, keepdims=True)).max(axis=-1, keepdims=True)
    height = xp.sqrt(xp.sum(xp.abs(even) ** 2, axis=(-2, -1), keepdims=True))
    sound = reach * height * (8 * float(np.finfo(matrix.dtype).eps)) < 1
    return xp.where(sound, found[..., :-_PROBES] / xp.swapaxes(across, -1, -2), xp.nan)


def _solve_each(xp: Any, matrix: Any, columns: Any) -> Any:
    """NumPy gives up on all matrices if one is singular; then each is tried by itself."""
    try:
        return xp.linalg.solve(matrix, columns)
    except np.linalg.LinAlgError:
        if matrix.ndim == 2:
            return xp.full_like(columns, xp.nan)
        return xp.stack([_solve_each(xp, *pair) for pair in zip(matrix, columns, strict=True)])


def _solve_by_cholesky(xp: Any, matrix: Any, columns: Any) -> Any:
    if matrix.ndim > 2:
        return xp.stack([_solve_by_cholesky(xp, *pair) for pair in zip(matrix, columns, strict=True)])
    try:
        lower = xp.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        return xp.full_like(columns, xp.nan)
    if xp is not np:
        return xp.linalg.solve(lower.T, xp.linalg.solve(lower, columns))
    from scipy.linalg import cho_solve

    return cho_solve((lower, True), columns, check_finite=False)


def _batch_solve(size: int, axes: tuple[int | None, ...], matrix: Any, b: Any, kind: str) -> tuple[Any, int]:
    """A matrix shared by the batch stays one matrix, factorised once; other axes broadcast from the right."""
    b = move_batch_first(b, axes[1], size)
    return apply(_dense_solve_op, align_rank(matrix, axes[0], ndim(b)), b, kind=kind), 0


_dense_solve_op: Op = make_custom_record(
    "dense_solve", ("matrix", "b"), _solve_dense, None, None, _batch_solve, lambda matrix, b, kind: b,
    form=Matrix("guarded_solve", 2.0),
)  # fmt: skip


def solve_dense(matrix: Any, b: Any) -> Any:
    """x with matrix x = b over the last axis of b; NaN where the matrix is singular. It has no derivative."""
    return apply(_dense_solve_op, matrix, b, kind="lu")


@final
@dataclass(frozen=True)
class Dense(PackageMethod):
    """The whole matrix, by as many products as it has columns, and its factors: "lu" for any matrix, "cholesky" for a
    symmetric positive definite one. Steps after the first refine the solution. A singular matrix is not solved with.
    """

    kind: Literal["lu", "cholesky"] = "lu"

    def __post_init__(self) -> None:
        if self.kind not in ("lu", "cholesky"):
            raise ArgumentError(f'Dense: kind is "lu" or "cholesky", got {self.kind!r}.')

    def init(self, system: LinearSystem, b: Any) -> State:
        state = initial_state(b)
        return {**state, "r": state["b"], "matrix": system.to_dense()}

    def step(self, system: LinearSystem, state: State) -> State:
        return apply_correction(system, state, apply(_dense_solve_op, state["matrix"], state["r"], kind=self.kind))

    done = staticmethod(is_finished)
    value = staticmethod(solution_of)


@final
@dataclass(frozen=True)
class Sparse(PackageMethod):
    """The sparse matrix, by as many products as its columns need colors, and SciPy's direct solver. Steps after the
    first refine the solution. For plain NumPy arrays, not inside `vmap`.
    """

    def init(self, system: LinearSystem, b: Any) -> State:
        if not isinstance(b, np.ndarray):
            raise ArgumentError(
                f"Sparse: SciPy solves with one matrix of NumPy arrays at a time, got {b!r}.\n"
                "  Use Dense or GMRES inside vmap and on other devices."
            )
        state = initial_state(b)
        solve = _factor_sparse(system)
        return {**state, "r": state["b"], "going": state["going"] & np.asarray(solve is not None), "solve": solve}

    def step(self, system: LinearSystem, state: State) -> State:
        return apply_correction(system, state, state["solve"](state["r"]))

    done = staticmethod(is_finished)
    value = staticmethod(solution_of)


def _factor_sparse(system: LinearSystem) -> Any:
    """The function that solves with the matrix; None where it is singular."""
    from scipy.sparse.linalg import splu

    before, somewhere = system.products, np.zeros(system.size, system.dtype)
    plan = sparse_jacobian.plan(system.apply, somewhere)
    matrix = plan(somewhere)
    system.products = before + plan.products + 1  # one for each color and one of the check, in batches
    try:
        return splu(matrix.tocsc()).solve
    except RuntimeError:
        return None
