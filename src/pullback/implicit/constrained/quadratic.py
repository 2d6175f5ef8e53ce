"""Quadratic and cone programs as layers: matrices and vectors in, the solution out, differentiable in all of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...arrays.argument_checks import explains_arguments
from ...arrays.backends import is_array, namespace_on
from ...arrays.spec import is_real_float, spec_of
from ...errors import ArgumentError, ConvergenceError, DtypeError, ShapeError
from ...ops.concrete import strip_derivatives
from ...ops.contract.matrix_products import matmul
from ...ops.dispatch import shape
from ...ops.elementwise import pointwise
from ...ops.fusion import cast_whole
from ...ops.reduce import reductions
from ...ops.shape.arrange import concat
from ...ops.shape.reshaping import astype, expand_dims
from ...transforms.boundary import as_array_leaf
from ..cones.cones import Cones
from ..cones.program_shape import ProgramShape
from ..derivative_policies import Implicit
from ..equation.problem import SolveOptions
from ..solve_report import Solution
from ..solvers.predictor_corrector import PredictorCorrector
from ..vector_layout import VectorLayout
from .minimum import solve_program
from .scaling import choose_units

#: The most steps, more than a program with a solution takes.
_MAX_STEPS = 200


@explains_arguments("qp")
def qp(
    P: Any, q: Any, A: Any = None, b: Any = None, G: Any = None, h: Any = None, *, cones: Sequence[int] = (),
    solver: Any = None, derivative: Any = None, tol: float | None = None, max_steps: int = _MAX_STEPS,
) -> Any:  # fmt: skip
    """x at which x^T P x / 2 + q^T x is least, with A x = b and G x <= h. P is symmetric and positive semidefinite, or
    None for a linear program; pairs A, b and G, h may be left out, and elements of h may be infinite.

    The last rows of h - G x may be `cones` of these sizes instead: vectors (t, v) with |v| <= t. Derivatives with
    respect to all matrices and vectors are those of the conditions of the optimum, of any order; `pb.vmap` solves
    batches. Options are those of `pb.argmin`, and `solve.qp` returns the multipliers "A" and "G" too.

    A solution whose active rows are about to change has no derivative: asking for one is a `DegenerateError`, or the
    one-sided derivative of `Implicit(weakly_active=...)`.

    >>> import numpy as np, pullback as pb
    >>> onto_simplex = lambda p: pb.implicit.qp(np.eye(3), -p, np.ones((1, 3)), np.ones(1), -np.eye(3), np.zeros(3))
    >>> np.round(onto_simplex(np.array([0.7, 0.5, -0.4])), 6) + 0.0
    array([0.6, 0.4, 0. ])
    >>> np.round(pb.jacobian(onto_simplex)(np.array([0.7, 0.5, -0.4])), 6) + 0.0
    array([[ 0.5, -0.5,  0. ],
           [-0.5,  0.5,  0. ],
           [ 0. ,  0. ,  0. ]])
    """
    options = SolveOptions(solver, derivative, tol, max_steps)
    return solve_quadratic(P, q, A, b, G, h, cones, options).value


def solve_qp(
    P: Any, q: Any, A: Any = None, b: Any = None, G: Any = None, h: Any = None, *, cones: Sequence[int] = (),
    solver: Any = None, derivative: Any = None, tol: float | None = None, max_steps: int = _MAX_STEPS,
) -> Solution:  # fmt: skip
    """The same as a `Solution`, converged or not."""
    return solve_quadratic(P, q, A, b, G, h, cones, SolveOptions(solver, derivative, tol, max_steps, strict=False))


@cast_whole("high")
def solve_quadratic(
    P: Any, q: Any, A: Any, b: Any, G: Any, h: Any, cones: Sequence[int], options: SolveOptions
) -> Solution:
    """Check the program, solve it in units in which its numbers are about one, and return the solution in its own."""
    q = as_array_leaf(q, "qp")
    if len(shape(q)) != 1 or not shape(q)[0]:
        raise ShapeError(f"qp: q is a vector, got the shape {shape(q)}.\n  For a batch of programs use pb.vmap.")
    size = shape(q)[0]
    P = None if P is None else _check_matrix("P", P, size, size)
    A, b = _check_pair("A", A, "b", b, size)
    G, h = _check_pair("G", G, "h", h, size)
    given = [x for x in (P, q, A, b, G, h) if x is not None]
    dtype = np.result_type(*(spec_of(x).dtype for x in given), np.float32)
    if any(spec_of(x).dtype.kind not in "biuf" and not is_real_float(spec_of(x).dtype) for x in given):
        raise DtypeError("qp: matrices and vectors are real numbers.")
    data = tuple(None if x is None else astype(x, dtype) for x in (P, q, A, b, G, h))
    rows = shape(h)[0] if h is not None else 0
    program = QuadraticProgram(VectorLayout(None, [spec_of(data[1])]), _check_cones(cones, rows))
    start = namespace_on(spec_of(q).device).zeros(size, dtype)
    policy = Implicit() if options.derivative is None else options.derivative
    units = choose_units(data, program.measure(start, (data,)).cones)
    try:
        found = solve_program(
            program, [start], start, (units.scale_program(data),), options, policy, PredictorCorrector()
        )
    except ConvergenceError as error:
        best: Any = error.best
        known = strip_derivatives(units.x)
        if is_array(known) and is_array(best) and best.shape == known.shape:
            error.best = best * known
        raise
    return replace(found, value=found.value * units.x, multipliers=units.restore_multipliers(found.multipliers))


@dataclass(frozen=True, eq=False)
class QuadraticProgram:
    """The program of `qp` for `solve_program`; its parameter is the tuple of matrices and vectors."""

    layout: VectorLayout
    cones: tuple[int, ...]
    what = "qp"

    def measure(self, x: Any, params: tuple[Any, ...]) -> ProgramShape:
        """The shape of the program."""
        _, _, _, b, _, h = params[0]
        rows = 0 if h is None else shape(h)[0]
        numbers = rows - sum(self.cones)
        return ProgramShape(self.layout.size, 0 if b is None else shape(b)[0], Cones.of(numbers, self.cones))

    def conditions(self, program: ProgramShape) -> Callable[..., Any]:
        """The function of (w, data) that `ProgramShape` describes."""

        def evaluate_conditions(w: Any, data: tuple[Any, ...]) -> Any:
            P, q, A, b, G, h = data
            x, y, z = program.cut_unknown(w)
            # the slope of x^T P x / 2, whichever half of P is given
            bent = None if P is None else 0.5 * (matmul(P, x) + matmul(P.T, x))
            gradient = q if bent is None else bent + q
            value = reductions.sum((q if bent is None else 0.5 * bent + q) * x, keepdims=True)
            rows = []
            if A is not None:
                gradient = gradient - matmul(A.T, y)
                rows.append(matmul(A, x) - b)
            if G is not None:
                left, (limited, met) = matmul(G, x), self._find_limited(h)
                # without a limit a row or a cone is always fulfilled, and no function of anything
                rows.append(pointwise.where(limited, pointwise.where(limited, h, 0.0) - left, met))
                gradient = gradient + matmul(G.T, pointwise.where(limited, z, 0.0))
            return concat([gradient, *rows, value])

        return evaluate_conditions

    def slopes(self, program: ProgramShape) -> Callable[..., Any]:
        """The matrices themselves are the derivatives of the conditions by x."""

        def evaluate_slopes(w: Any, data: tuple[Any, ...]) -> Any:
            P, q, A, _, G, h = data
            if P is None:
                rows = [namespace_on(spec_of(q).device).zeros((program.variables,) * 2, spec_of(q).dtype)]
                slope = q
            else:
                rows = [0.5 * (P + P.T)]
                slope = matmul(rows[0], program.cut_unknown(w)[0]) + q
            if A is not None:
                rows.append(A)
            if G is not None:
                rows.append(pointwise.where(expand_dims(self._find_limited(h)[0], 1), -G, 0.0))
            return concat([*rows, expand_dims(slope, 0)])

        return evaluate_slopes

    def _find_limited(self, h: Any) -> tuple[Any, Any]:
        """Which rows have a limit, all or none of a cone, and what else stands for h - G x: the unit of the cones."""
        limited, rows = pointwise.not_equal(h, math.inf), shape(h)[0]
        if not self.cones:
            return limited, 1.0
        numbers, sizes = rows - sum(self.cones), np.array(self.cones)
        deciding = np.concatenate([np.arange(numbers), np.repeat(numbers + np.cumsum(sizes) - sizes, sizes)])
        spec = spec_of(h)
        unit = namespace_on(spec.device).asarray(deciding == np.arange(rows), spec.dtype)
        return limited[deciding], unit

    def name_equation(self, row: int) -> str:
        """What the user calls a row of A."""
        return f"row {row} of A"

    def name_inequality(self, row: int) -> str:
        """What the user calls a row of G."""
        return f"row {row} of G"

    def multipliers(self, y: Any, z: Any) -> dict[str, Any]:
        """Multipliers by the name of their matrix."""
        return {"A": y, "G": z}


def _check_matrix(name: str, matrix: Any, rows: int | None, columns: int) -> Any:
    matrix = as_array_leaf(matrix, "qp")
    found = shape(matrix)
    if len(found) != 2 or found[1] != columns or rows not in (None, found[0]):
        raise ShapeError(f"qp: {name} has shape {found}, wanted ({'rows' if rows is None else rows}, {columns}).")
    return matrix


def _check_pair(name: str, matrix: Any, side: str, vector: Any, columns: int) -> tuple[Any, Any]:
    """A matrix and its right side, None for both where they are left out or have no rows."""
    if (matrix is None) != (vector is None):
        raise ArgumentError(f"qp: {name} and {side} belong together: give both, or neither.")
    if matrix is None:
        return None, None
    matrix, vector = _check_matrix(name, matrix, None, columns), as_array_leaf(vector, "qp")
    if shape(vector) != shape(matrix)[:1]:
        raise ShapeError(
            f"qp: {name} has shape {shape(matrix)} and {side} {shape(vector)}, wanted a number for each row."
        )
    return (matrix, vector) if shape(matrix)[0] else (None, None)


def _check_cones(cones: Any, rows: int) -> tuple[int, ...]:
    given = tuple(cones) if isinstance(cones, (tuple, list)) else (cones,)
    if not all(isinstance(n, (int, np.integer)) and not isinstance(n, bool) and n > 0 for n in given):
        raise ArgumentError(f"qp: cones is a list of sizes, got {cones!r}.")
    if sum(given) > rows:
        raise ArgumentError(f"qp: cones of {sum(given)} rows in all, but G has {rows}.")
    return tuple(int(n) for n in given)
