"""SciPy's functions for global optimizers (213 in SciPy 1.17.1), unmodified, under `pb.grad`. They are in the source of
SciPy, not in what is installed: name the folder `benchmarks/benchmarks/go_benchmark_functions` in
PULLBACK_GO_BENCHMARKS.
"""

import contextlib
import importlib
import os
import sys
import types
from pathlib import Path

import numpy as np
import pytest

import pullback as pb
from pullback import errors

PLACE = os.environ.get("PULLBACK_GO_BENCHMARKS", "")
#: What asks for an integer, which has no derivative.
REFUSED = {"Mishra10": "int()"}
#: Those of steps, and one that is below the smallest number: others might be flat only as far as rounding shows.
CONSTANT = ("Easom", "Gear", "Katsuura", "Plateau", "Step", "Step2")


def load_problems():
    folder = Path(PLACE).resolve()
    outer = types.ModuleType("go_benchmarks")
    outer.__path__ = [str(folder.parent)]
    common = types.ModuleType("go_benchmarks.common")
    common.safe_import = contextlib.nullcontext
    sys.modules |= {"go_benchmarks": outer, "go_benchmarks.common": common}
    package = importlib.import_module(f"go_benchmarks.{folder.name}")
    univariate = importlib.import_module(f"{package.__name__}.go_funcs_univariate")
    known = (*vars(package).values(), *vars(univariate).values())
    kinds = [x for x in known if isinstance(x, type) and issubclass(x, package.Benchmark)]
    return sorted({k for k in kinds if k is not package.Benchmark}, key=lambda k: k.__name__)


def value(problem, x):
    np.random.seed(5)  # some draw numbers
    return np.asarray(problem.fun(x)).reshape(())[()]


def extrapolated(f, x, unit):
    """A derivative by Richardson's extrapolation, and how far the last two agree."""
    best, error = np.nan, np.inf
    for start in (1e-2, 1e-3, 1e-4):
        rows = []
        for k in range(6):
            h = start * max(1.0, abs(x @ unit)) / 2**k
            rows.append([(f(x + h * unit) - f(x - h * unit)) / (2 * h)])
            for j in range(1, k + 1):
                rows[k].append(rows[k][j - 1] + (rows[k][j - 1] - rows[k - 1][j - 1]) / (4**j - 1))
                gap = abs(rows[k][j] - rows[k][j - 1]) + abs(rows[k][j] - rows[k - 1][j - 1])
                if gap < error:
                    best, error = rows[k][j], gap
    return best, error


def is_right(problem, x, found):
    """By complex steps where these make sense; else by differences that are sharp; or constant around x."""

    def f(x):
        return float(value(problem, x))

    if not found.any():
        near = all(f(x + step) == f(x) for step in (-2e-12, -1e-12, 1e-12, 2e-12))
        return near and type(problem).__name__ in CONSTANT
    with contextlib.suppress(Exception):
        steps = np.array([np.imag(value(problem, x + 1e-30j * unit)) / 1e-30 for unit in np.eye(x.size)])
        if steps.any() and np.allclose(found, steps, rtol=1e-9, atol=1e-12 * np.abs(steps).max()):
            return True
    wanted, error = np.array([extrapolated(f, x, unit) for unit in np.eye(x.size)]).T
    scale = np.maximum(np.abs(wanted), 1e-8 * max(1.0, abs(f(x))))
    return bool(np.all(error <= 1e-4 * scale) and np.all(np.abs(found - wanted) <= 1e-6 * scale + 100 * error))


@pytest.mark.skipif(not PLACE, reason="needs the source of SciPy")
@pytest.mark.filterwarnings("ignore")
def test_each_is_right_or_refused_by_name():
    wrong, refused = [], {}
    for kind in load_problems():
        problem, rng = kind(), np.random.default_rng(7)
        low, high = np.array(problem.bounds, float).T
        x = low + (high - low) * rng.uniform(0.3, 0.7, problem.N)
        try:
            found = pb.grad(lambda x, p=problem: value(p, x))(x)
        except errors.PullbackError as error:
            refused[kind.__name__] = str(error)
            continue
        if not is_right(problem, x, found):
            wrong.append(kind.__name__)
    assert not wrong
    assert refused.keys() == REFUSED.keys()
    assert all(REFUSED[name] in text for name, text in refused.items())
