"""The adjoint of a solve at all saved times, from that between two times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..arrays.spec import spec_of, zeros
from ..ops.shape.arrange import concat
from ..ops.shape.reshaping import reshape
from ..transforms.control.scan import scan
from .further_equations import Parameters, dot
from .loops import len_of
from .problem import Problem


def sweep_adjoint(problem: Problem, go_back: Callable[..., Any], bar: Any, y: Any, xs: Sequence[Any]) -> list[Any]:
    """The cotangents of y0, t0, t1, the times and the arguments: from saved time to saved time, each of which brings
    its own. `go_back(z, y, known, start, end)` follows the vector z = (a, g) from a time, where the state is y, to
    another, where it is known.
    """
    y0, t0, t1, times, *arguments = xs
    parameters, n = Parameters(arguments), problem.size
    f, none = problem.slope(tuple(arguments)), problem.place(np.zeros(n + parameters.size, problem.dtype))

    def step(z: Any, x: tuple[Any, ...]) -> tuple[Any, Any]:
        bar_k, y_k, known, start, end = x
        return go_back(concat([z[:n] + bar_k, z[n:]]), y_k, known, start, end), dot(bar_k, f(start, y_k))

    if problem.has_times:
        count = len_of(times) - 1
        before, ends = concat([reshape(y0, (1, n)), y[:count]]), concat([reshape(t0, (1,)), times[:count]])
        z, times_bar = scan(step, none, (bar, y, before, times, ends), reverse=True)
        t1_bar = zeros(spec_of(t1))
    else:
        z = go_back(concat([bar, none[n:]]), y, y0, t1, t0)
        times_bar, t1_bar = zeros(spec_of(times)), dot(bar, f(t1, y))
    return [z[:n], -dot(z[:n], f(t0, y0)), t1_bar, times_bar, *parameters.place(z[n:])]
