"""A problem and a point in, its objective and its constraints out, by the problem's own functions of elements."""

from typing import Any

import numpy as np


def objective(problem: Any, x: Any) -> Any:
    """x^T H x / 2 and the sum of the objective's groups."""
    total = sum((_group(problem, int(ig), x) for ig in problem.objgrps), 0.0)
    if hasattr(problem, "H"):
        total = total + 0.5 * np.dot(x, np.dot(problem.H.toarray(), x))
    return total


def constraints(problem: Any, x: Any) -> Any:
    """The values of the constraints' groups."""
    return np.stack([_group(problem, int(ig), x) + 0.0 * x[0] for ig in problem.congrps])


def _group(problem: Any, ig: int, x: Any) -> Any:
    """g(a^T x - c + sum of weighted elements) / scale."""
    inner = _inner(problem, ig, x)
    kind = _entry(problem, "grftype", ig)
    if kind is not None and kind != "TRIVIAL":
        inner = getattr(problem, kind)(problem, 1, inner, ig)
    scale = _entry(problem, "gscale", ig)
    return inner / scale if scale is not None and abs(scale) > 1e-15 else inner


def _inner(problem: Any, ig: int, x: Any) -> Any:
    constant = _entry(problem, "gconst", ig)
    total = 0.0 if constant is None else -float(np.ravel(constant)[0])
    if hasattr(problem, "A") and ig < problem.A.shape[0]:
        row = np.zeros(len(x))
        row[: problem.A.shape[1]] = problem.A[[ig], :].toarray().ravel()
        total = total + np.dot(row, x)
    elements = _entry(problem, "grelt", ig)
    weights = _entry(problem, "grelw", ig)
    for i, element in enumerate([] if elements is None else elements):
        iel = int(element)
        part = x[np.array([int(v) for v in problem.elvar[iel]])].reshape((-1, 1))
        value = getattr(problem, problem.elftype[iel])(problem, 1, part, iel)
        total = total + (value if weights is None else weights[i] * value)
    return total


def _entry(problem: Any, name: str, i: int) -> Any:
    """An entry of one of the problem's lists, which may be missing, short or empty there."""
    found = getattr(problem, name, None)
    return None if found is None or i >= len(found) else found[i]
