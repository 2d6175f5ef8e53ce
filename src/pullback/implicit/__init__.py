"""Derivatives through equations: fixed points, roots, minima and linear systems, however they were found."""

from .custom_solvers import custom_fixed_point, custom_root
from .derivative_policies import Implicit, OneStep, PhantomGradient, Unrolled
from .linear.direct import Dense, Sparse
from .linear.krylov import GMRES
from .linear.methods import Auto, Neumann
from .linear.recurrences import CG, LSMR, MINRES, BiCGStab
from .linear_systems import linear_solve
from .solve_functions import argmin, fixed_point, least_squares, root, solve
from .solve_report import Report, Solution
from .solvers.descent_methods import BFGS, LBFGS, GradientDescent
from .solvers.fixed_point_methods import Accelerated, Anderson, Picard
from .solvers.least_squares_methods import GaussNewton, LevenbergMarquardt
from .solvers.root_methods import Bisection, Broyden, Chord, Newton, NewtonKrylov

__all__ = [
    "Accelerated", "Anderson", "Auto", "BFGS", "BiCGStab", "Bisection", "Broyden", "CG", "Chord", "Dense", "GMRES",
    "GaussNewton",
    "GradientDescent", "Implicit", "LBFGS", "LSMR", "LevenbergMarquardt", "MINRES", "Neumann", "Newton", "NewtonKrylov",
    "OneStep", "PhantomGradient", "Picard", "Report", "Solution", "Sparse", "Unrolled", "argmin", "custom_fixed_point",
    "custom_root", "fixed_point", "least_squares", "linear_solve", "root", "solve",
]  # fmt: skip
