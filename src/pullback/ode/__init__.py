"""Differential equations: solutions with derivatives of any order, of the steps or of the equation."""

from ..public_names import explain_missing_names
from .brownian import BrownianTree
from .continuous_policies import ContinuousAdjoint, ForwardSensitivity
from .dense import DenseOutput
from .events import Event, EventRecord
from .explicit_methods import Bosh3, Dopri5, Dopri8, RungeKutta, Tsit5
from .implicit_methods import Esdirk, Kvaerno3, Kvaerno5
from .interpolated_adjoint import InterpolatedAdjoint
from .multistep_methods import BDF
from .report import Report, Solution
from .solve_function import solve
from .solve_stochastic import Path, solve_sde
from .step_control import PID, FixedSteps
from .stochastic_methods import EulerMaruyama, Heun, Milstein, StochasticRungeKutta
from .symplectic_methods import Leapfrog, Yoshida4
from .tableaux import Tableau
from .through_steps import ThroughSteps

__all__ = [
    "BDF", "Bosh3", "BrownianTree", "ContinuousAdjoint", "DenseOutput", "Dopri5", "Dopri8", "Esdirk", "EulerMaruyama",
    "Event", "EventRecord", "FixedSteps", "ForwardSensitivity", "Heun", "InterpolatedAdjoint", "Kvaerno3", "Kvaerno5",
    "Leapfrog", "Milstein", "PID", "Path", "Report", "RungeKutta", "Solution", "StochasticRungeKutta", "Tableau",
    "ThroughSteps", "Tsit5", "Yoshida4", "solve", "solve_sde",
]  # fmt: skip

explain_missing_names(__name__, "ode")
