"""The interior-point method for quadratic and cone programs, whose derivatives are the same everywhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

from ...ops.elementwise import pointwise
from ...ops.shape.arrange import concat
from .constrained_steps import (
    FIRST_TRIAL,
    TO_BOUNDARY,
    advance,
    constrained_state_at,
    differentiate_conditions,
    finish_exactly,
    is_constrained_done,
    linearize,
    move_unknown,
    require_program,
)
from .method_loop import PackageMethod, SolverProblem, State
from .method_tools import current_point, dot

#: Where s^T z is below so many squared tolerances, steps have nothing to gain but rounding.
_LEAST_GAP = 1e-4
#: The least mu of a step, relative to the last: cones where s and z meet on the boundary fall no faster than so, and
#: others that were far below them would be lost to rounding.
_LEAST_AIM = 1e-2


@final
@dataclass(frozen=True)
class PredictorCorrector(PackageMethod):
    """For quadratic and cone programs: a first step with mu = 0 shows how far that can go, and the second one aims at a
    mu that fits, and at where the first one missed because s z is not linear. Ten to twenty steps are usual.

    >>> import numpy as np, pullback as pb
    >>> solver = pb.implicit.PredictorCorrector()
    >>> np.round(pb.implicit.qp(np.eye(2), np.array([-2.0, 1.0]), G=-np.eye(2), h=np.zeros(2), solver=solver), 6) + 0.0
    array([2., 0.])
    """

    def init(self, problem: SolverProblem, start: Any) -> State:
        """The point that is closest to fulfilling C = 0, with s and z moved inside."""
        shape = require_program(problem, self)
        x, y, z = shape.cut_unknown(start)
        unit = shape.cones.unit(problem.xp, problem.dtype)
        derivatives = differentiate_conditions(problem, start)
        conditions, scalings = problem.conditions(start), shape.cones.scaling(unit, unit)
        inside = shape.cut_conditions(conditions)[2]
        plain = linearize(problem, conditions, 0 * inside, z, derivatives, scalings)
        step = plain.direction(0 * z)
        s, x = shape.cones.move_inside(step["ds"], unit), x + step["dx"]
        w = concat([x, y + step["dy"], shape.cones.move_inside(-step["ds"], unit)])
        trial = problem.xp.asarray(problem.eps**FIRST_TRIAL, problem.dtype)
        return constrained_state_at(problem, w, s, {"derivatives": derivatives, "trial": trial})

    def step(self, problem: SolverProblem, state: State) -> State:
        shape, s, w = problem.program, state["s"], state["x"]
        cones, z = shape.cones, shape.cut_unknown(w)[2]
        unit = cones.unit(problem.xp, problem.dtype)
        here = linearize(problem, state["conditions"], s, z, state["derivatives"])
        first = here.direction(-here.scaled_s)
        reach = pointwise.minimum(*here.reach(first))
        aim = pointwise.maximum((1 - reach) * (1 - reach) * (1 - reach), _LEAST_AIM)
        mu = aim * dot(s, z) / max(cones.degree, 1)
        missed = cones.product(first["scaled_ds"], first["scaled_dz"])
        step = here.direction(here.aim(mu * unit - missed))
        reach = TO_BOUNDARY * pointwise.minimum(*here.reach(step, 1 / TO_BOUNDARY))
        after = advance(problem, state, move_unknown(w, shape, step, reach, reach), s + reach * step["ds"])
        gap = dot(after["s"], shape.cut_unknown(after["x"])[2])
        lost = gap < _LEAST_GAP * problem.tolerance * problem.tolerance if cones.length else after["stuck"]
        return finish_exactly(problem, after | {"stuck": after["stuck"] | lost}, state["derivatives"])

    done = staticmethod(is_constrained_done)
    value = staticmethod(current_point)
