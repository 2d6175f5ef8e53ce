"""Derivatives through equations: fixed points, roots, minima and linear systems, however they were found."""

from ..public_names import explain_missing_names
from .constrained.constraints import AtLeast, AtMost, Equal, NormAtMost
from .constrained.quadratic import qp
from .custom_solvers import custom_fixed_point, custom_root
from .derivative_policies import Implicit, OneStep, PhantomGradient, Unrolled
from .linear.direct import Dense, Sparse
from .linear.krylov import GMRES
from .linear.methods import Auto, Neumann, Structured
from .linear.recurrences import CG, LSMR, MINRES, BiCGStab
from .linear_systems import linear_solve
from .solve_functions import argmin, fixed_point, least_squares, root, solve
from .solve_report import Report, Solution
from .solvers.descent_methods import BFGS, LBFGS, GradientDescent
from .solvers.fixed_point_methods import Accelerated, Anderson, Picard
from .solvers.interior_point import InteriorPoint
from .solvers.least_squares_methods import GaussNewton, LevenbergMarquardt
from .solvers.predictor_corrector import PredictorCorrector
from .solvers.root_methods import Bisection, Broyden, Chord, Newton, NewtonKrylov
from .solvers.trust_region import Dogleg
from .structured.banded import Banded
from .structured.operator import Diagonal
from .structured.products import BlockDiagonal, Kronecker
from .structured.updates import BlockMatrix, LowRankPlusDiagonal

__all__ = [
    "Accelerated", "Anderson", "AtLeast", "AtMost", "Auto", "BFGS", "Banded", "BiCGStab", "Bisection",
    "BlockDiagonal", "BlockMatrix", "Broyden", "CG", "Chord", "Dense", "Diagonal", "Dogleg", "Equal", "GMRES",
    "GaussNewton", "GradientDescent", "Implicit", "InteriorPoint", "Kronecker", "LBFGS", "LSMR", "LevenbergMarquardt",
    "LowRankPlusDiagonal", "MINRES", "Neumann", "Newton", "NewtonKrylov", "NormAtMost", "OneStep", "PhantomGradient",
    "Picard", "PredictorCorrector", "Report", "Solution", "Sparse", "Structured", "Unrolled", "argmin",
    "custom_fixed_point", "custom_root", "fixed_point", "least_squares", "linear_solve", "qp", "root", "solve",
]  # fmt: skip

explain_missing_names(__name__, "implicit")
