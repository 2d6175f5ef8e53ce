"""One of autograd's example scripts, run as it stands: how it ended and its first gradients are written to a file.

python -m suites.example_script autograd|pullback|shim SOURCE SCRIPT COUNT FILE
"""

import importlib
import os
import pickle
import runpy
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from . import stand_ins

OPERATORS = ("grad", "value_and_grad", "elementwise_grad", "hessian_vector_product")


class EnoughError(BaseException):
    """Ends the script; no script catches it."""


def main(names: str, source: Path, script: Path, count: int, report: Path) -> None:
    """The script under autograd itself, under the names mapped to pullback's, or under the shim's."""
    warnings.simplefilter("ignore")
    stand_ins.put_in_place()
    if names == "pullback":
        importlib.import_module("suites.autograd_names").put_in_place(source)
    autograd = importlib.import_module("autograd")
    if names == "shim":
        importlib.import_module("autograd.misc").__path__.append(str(source / "autograd" / "misc"))
    gradients: list[list[np.ndarray]] = []
    for name in OPERATORS:
        setattr(autograd, name, recorded(getattr(autograd, name), gradients, count))
    sys.path[0] = str(script.parent)
    os.chdir(script.parent)
    report.write_bytes(pickle.dumps((*run(script), gradients)))


def run(script: Path) -> tuple[str, str]:
    """How it ended and why: "ended", "refused" by an error of pullback's, or "failed" by another."""
    try:
        runpy.run_path(str(script), run_name="__main__")
    except EnoughError:
        pass
    except Exception as error:
        refused = type(error).__module__.startswith("pullback.")
        return "refused" if refused else "failed", f"{type(error).__name__}: {' '.join(str(error).split())}"
    return "ended", ""


def recorded(operator: Callable[..., Any], gradients: list[list[np.ndarray]], count: int) -> Callable[..., Any]:
    """The operator, whose functions note what they return, until there are enough of it."""

    def made(*args: Any, **kwargs: Any) -> Any:
        function = operator(*args, **kwargs)

        def call(*points: Any, **keywords: Any) -> Any:
            answer = function(*points, **keywords)
            found = [*leaves(answer)]
            if not any(map(is_traced, [*leaves(points), *found])):  # not inside another derivative
                numbers = [np.array(leaf) for leaf in found]
                gradients.extend([numbers] if all(x.dtype.kind in "fc" for x in numbers) else [])
            if len(gradients) == count:
                raise EnoughError
            return answer

        return call

    return made


def leaves(tree: Any) -> Any:
    """What is in lists, tuples and dictionaries."""
    if isinstance(tree, dict):
        tree = [tree[key] for key in sorted(tree)]
    if not isinstance(tree, (list, tuple)):
        return iter([tree])
    return (leaf for part in tree for leaf in leaves(part))


def is_traced(leaf: Any) -> bool:
    """Whether it is a box of autograd's or a value of pullback's."""
    return type(leaf).__module__.startswith(("autograd.", "pullback."))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]), Path(sys.argv[5]))
