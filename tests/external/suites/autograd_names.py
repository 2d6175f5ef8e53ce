"""autograd's names, each mapped to the function of NumPy, SciPy or pullback that means the same; nothing is adapted."""

import builtins
import functools
import importlib
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import pullback as pb

LIBRARIES = ("integrate", "linalg", "signal", "special", "stats")
DISTRIBUTIONS = ("beta", "gamma", "multivariate_normal", "norm", "t")


def put_in_place(source: Path) -> None:
    """autograd as a package of these names; `misc`, the optimizers and `flatten`, is its own, from its source."""
    scipy = importlib.import_module("scipy")
    misc = _module("autograd.misc", __path__=[str(source / "autograd" / "misc")])
    operators = {f.__name__: f for f in (grad, value_and_grad, elementwise_grad, hessian_vector_product, make_vjp)}
    _module("autograd", __path__=[], numpy=np, scipy=scipy, misc=misc, **operators)
    _module("autograd.builtins", **vars(builtins))
    _module("autograd.wrap_util", wraps=functools.wraps)
    _module("autograd.test_util", check_grads=check_grads)
    sys.modules |= {"autograd.numpy": np, "autograd.numpy.linalg": np.linalg, "autograd.numpy.random": np.random}
    libraries = {name: importlib.import_module(f"scipy.{name}") for name in LIBRARIES}
    sys.modules |= {f"autograd.scipy.{name}": library for name, library in libraries.items()}
    sys.modules |= {f"autograd.scipy.stats.{name}": getattr(libraries["stats"], name) for name in DISTRIBUTIONS}
    sys.modules["autograd.scipy"] = scipy
    vars(misc)["flatten"] = importlib.import_module("autograd.misc.flatten").flatten


def _module(name: str, **names: Any) -> types.ModuleType:
    module = sys.modules[name] = types.ModuleType(name)
    vars(module).update(names)
    return module


def grad(f: Callable[..., Any], argnum: Any = 0) -> Any:
    return pb.grad(f, argnums=argnum)


def value_and_grad(f: Callable[..., Any], argnum: Any = 0) -> Any:
    return pb.value_and_grad(f, argnums=argnum)


def elementwise_grad(f: Callable[..., Any], argnum: Any = 0) -> Any:
    return pb.grad(lambda *args: np.sum(f(*args)), argnums=argnum)


def hessian_vector_product(f: Callable[[Any], Any]) -> Any:
    return lambda x, v: pb.hvp(f, (x,), (v,))


def make_vjp(f: Callable[[Any], Any]) -> Any:
    def made(x: Any) -> Any:
        value, pull = pb.vjp(f, x)
        return lambda bar: pull(bar)[0], value

    return made


def check_grads(f: Callable[..., Any], modes: Any = ()) -> Any:
    def check(*args: Any) -> None:
        report = pb.gradcheck(f, *args)
        assert report, report

    return check
