"""SciPy's functions for global optimizers, from its source distribution, unmodified: gradients at three points each."""

import contextlib
import importlib
import sys
import types
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import pullback as pb

from .fetching import fetched

VERSION, FUNCTIONS, SEEDS = "1.17.1", 213, (7, 8, 9)
WANTED = 630  # of the 639 points
VERDICTS = ("right", "constant", "refused", "not confirmed", "wrong")


def run(place: Path) -> bool:
    """A line for each point that is neither right nor constant, then the counts."""
    kinds = _functions(fetched("scipy", VERSION, place) / "benchmarks" / "benchmarks" / "go_benchmark_functions")
    counts: Counter[str] = Counter()
    print(f"scipy {VERSION}: {len(kinds)} functions at {len(SEEDS)} points")
    for kind in kinds:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            for seed, (verdict, why) in zip(SEEDS, _judged(kind), strict=True):
                counts[verdict] += 1
                if verdict not in ("right", "constant"):
                    print(f"  {kind.__name__:20} {seed}  {verdict}: {why}", flush=True)
    print(", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS))
    return len(kinds) == FUNCTIONS and counts["wrong"] == 0 and counts["right"] + counts["constant"] >= WANTED


def _functions(folder: Path) -> list[Any]:
    """The classes of the package in the folder, and of the module of functions of one variable, which it leaves out."""
    outer, common = types.ModuleType("go_benchmarks"), types.ModuleType("go_benchmarks.common")
    outer.__path__ = [str(folder.parent)]
    vars(common)["safe_import"] = contextlib.nullcontext
    sys.modules |= {"go_benchmarks": outer, "go_benchmarks.common": common}
    package = importlib.import_module(f"go_benchmarks.{folder.name}")
    univariate = importlib.import_module(f"{package.__name__}.go_funcs_univariate")
    known = {x for x in (*vars(package).values(), *vars(univariate).values()) if isinstance(x, type)}
    kinds = [x for x in known if issubclass(x, package.Benchmark) and x is not package.Benchmark]
    return sorted(kinds, key=lambda kind: kind.__name__)


def _judged(kind: Any) -> Iterator[tuple[str, str]]:
    """A verdict and its reason at each of the points; the compiled gradient is one for all of them."""
    problem = kind()
    low, high = np.array(problem.bounds, float).T

    def f(x: Any) -> Any:
        np.random.seed(5)  # some draw numbers
        return np.asarray(problem.fun(x)).reshape(())[()]

    compiled = pb.jit(pb.grad(f))
    for seed in SEEDS:
        x = low + (high - low) * np.random.default_rng(seed).uniform(0.1, 0.9, problem.N)
        yield _judged_at(f, compiled, x)


def _judged_at(f: Callable[[Any], Any], compiled: Callable[[Any], Any], x: np.ndarray) -> tuple[str, str]:
    try:
        found = pb.grad(f)(x)
        pushed = np.array([pb.jvp(f, (x,), (unit,))[1] for unit in np.eye(x.size)])
        others = {"jvp": pushed, "jit(grad)": compiled(x)}
    except pb.errors.PullbackError as error:
        return "refused", str(error).splitlines()[0]
    except Exception as error:
        return "wrong", f"{type(error).__name__}: {error}"
    for name, other in others.items():
        if not np.allclose(other, found, rtol=1e-8, atol=1e-8 * np.max(np.abs(found))):
            return "wrong", f"{name} {other}, grad {found}"
    if not found.any() and _is_flat(f, x):
        return "constant", ""
    return ("right", "") if _equals_complex_steps(f, x, found) else _beside_differences(f, x, found)


def _is_flat(f: Callable[[Any], Any], x: np.ndarray) -> bool:
    """Whether f does not change next to x, though a slope like the one around x would show above rounding."""
    near, wide = 2e-12, 1e-2
    level = float(f(x))
    for step in (*np.eye(x.size), *-np.eye(x.size)):
        change = abs(float(f(x + wide * step)) - level) / wide * near
        if float(f(x + near * step)) != level or 0 < change < 16 * np.spacing(abs(level)):
            return False
    return True


def _equals_complex_steps(f: Callable[[Any], Any], x: np.ndarray, found: np.ndarray) -> bool:
    """False as well where the function makes no sense of complex numbers."""
    with contextlib.suppress(Exception):
        steps = np.array([np.imag(f(x + 1e-30j * unit)) / 1e-30 for unit in np.eye(x.size)])
        return bool(steps.any()) and np.allclose(found, steps, rtol=1e-9, atol=1e-12 * np.abs(steps).max())
    return False


def _beside_differences(f: Callable[[Any], Any], x: np.ndarray, found: np.ndarray) -> tuple[str, str]:
    """Wrong where a sharp difference says so; not confirmed where one is not sharp."""
    wanted, error = np.array([_extrapolated(f, x, unit) for unit in np.eye(x.size)]).T
    scale = np.maximum(np.abs(wanted), 1e-8 * max(1.0, abs(float(f(x)))))
    sharp = error <= 1e-4 * scale
    if np.any(sharp & ~(np.abs(found - wanted) <= 1e-6 * scale + 100 * error)):
        return "wrong", f"{found}, wanted {wanted}"
    return ("right", "") if sharp.all() else ("not confirmed", f"{found}, differences {wanted} ± {error}")


def _extrapolated(f: Callable[[Any], Any], x: np.ndarray, unit: np.ndarray) -> tuple[float, float]:
    """A derivative by Richardson's extrapolation, and how far the last two agree, no closer than rounding lets them."""
    best, error = np.nan, np.inf
    rounding = np.spacing(abs(float(f(x))))
    for start in (1e-2, 1e-3, 1e-4):
        rows: list[list[float]] = []
        for k in range(6):
            h = start * max(1.0, abs(x @ unit)) / 2**k
            rows.append([(float(f(x + h * unit)) - float(f(x - h * unit))) / (2 * h)])
            for j in range(1, k + 1):
                rows[k].append(rows[k][j - 1] + (rows[k][j - 1] - rows[k - 1][j - 1]) / (4**j - 1))
                gap = abs(rows[k][j] - rows[k][j - 1]) + abs(rows[k][j] - rows[k - 1][j - 1]) + rounding / h
                if gap < error:
                    best, error = rows[k][j], gap
    return best, error
