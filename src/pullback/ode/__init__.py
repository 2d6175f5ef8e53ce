"""Differential equations: solutions with derivatives of any order, of the steps or of the equation."""

from .continuous_policies import ContinuousAdjoint, ForwardSensitivity
from .explicit_methods import Bosh3, Dopri5, Dopri8, RungeKutta, Tsit5
from .implicit_methods import Esdirk, Kvaerno3, Kvaerno5
from .report import Report, Solution
from .solve_function import solve
from .step_control import PID, FixedSteps
from .symplectic_methods import Leapfrog, Yoshida4
from .tableaux import Tableau
from .through_steps import ThroughSteps

__all__ = [
    "Bosh3", "ContinuousAdjoint", "Dopri5", "Dopri8", "Esdirk", "FixedSteps", "ForwardSensitivity", "Kvaerno3",
    "Kvaerno5", "Leapfrog", "PID", "Report", "RungeKutta", "Solution", "Tableau", "ThroughSteps", "Tsit5", "Yoshida4",
    "solve",
]  # fmt: skip
