"""The NIST nonlinear-regression sets in lmfit's source distribution: Newton's step at the certified parameters."""

import importlib.util
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np

import pullback as pb

from .fetching import fetched

VERSION, WANTED, SETS = "1.3.4", 1e-9, 27


def run(place: Path) -> bool:
    """One line for each set."""
    source = fetched("lmfit", VERSION, place)
    models = _models(source)
    print(f"lmfit {VERSION}\n{'set':12}{'parameters':>12}{'step':>12}{'rss':>12}  why")
    good = 0
    for name in sorted(models.Models):
        step, rss = _step(models, name)
        good += step < WANTED
        print(f"{name:12}{models.Models[name][1]:12}{step:12.1e}{rss:12.1e}  {'' if step < WANTED else 'too far'}")
    print(f"{good} of {len(models.Models)} below {WANTED:g}")
    return good == len(models.Models) == SETS


def _models(source: Path) -> Any:
    """lmfit's module with the models and the reader of the files; all that it wants of lmfit is one class."""
    sys.modules["lmfit"] = types.SimpleNamespace(Parameters=dict)  # type: ignore[assignment]
    found = importlib.util.spec_from_file_location("nist_models", source / "tests" / "NISTModels.py")
    if found is None or found.loader is None:
        raise OSError(f"{source} has no tests/NISTModels.py")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def _step(models: Any, name: str) -> tuple[float, float]:
    """The largest Newton step relative to its parameter, and the relative error of the sum of squares."""
    data = models.ReadNistData(name)
    model = models.Models[name][0]

    def loss(b: Any) -> Any:
        return np.sum(model(b, data["x"], data["y"]) ** 2)

    b = np.array(data["cert"])
    step = np.linalg.solve(pb.hessian(loss)(b), pb.grad(loss)(b))
    rss = abs(float(loss(b)) / data["sum_squares"] - 1)
    return float(np.max(np.abs(step / b))), rss
