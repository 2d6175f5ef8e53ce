"""Derivatives through equations: fixed points, roots, minima and linear systems, however they were found."""

from .descent_methods import BFGS, LBFGS, GaussNewton, GradientDescent, LevenbergMarquardt
from .fixed_point_methods import Accelerated, Anderson, Picard
from .layers import custom_fixed_point, custom_root
from .linear_methods import CG, GMRES, LSMR, MINRES, Auto, BiCGStab, Dense, Neumann, Sparse
from .policies import Implicit, OneStep, PhantomGradient, Unrolled
from .report import Report, Solution
from .root_methods import Bisection, Broyden, Chord, Newton, NewtonKrylov
from .solving import argmin, fixed_point, least_squares, root, solve
from .systems import linear_solve

__all__ = [
    "Accelerated", "Anderson", "Auto", "BFGS", "BiCGStab", "Bisection", "Broyden", "CG", "Chord", "Dense", "GMRES",
    "GaussNewton",
    "GradientDescent", "Implicit", "LBFGS", "LSMR", "LevenbergMarquardt", "MINRES", "Neumann", "Newton", "NewtonKrylov",
    "OneStep", "PhantomGradient", "Picard", "Report", "Solution", "Sparse", "Unrolled", "argmin", "custom_fixed_point",
    "custom_root", "fixed_point", "least_squares", "linear_solve", "root", "solve",
]  # fmt: skip
