"""`Adam(params)` and its kin: constructors of stateful optimizers, one for each rule."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from ...errors import ArgumentTypeError
from ..algorithms.adafactor import adafactor
from ..algorithms.adagrad import adadelta, adagrad, rmsprop
from ..algorithms.adam import adam, adamax, adamw, nadam, radam
from ..algorithms.layerwise import lamb, lars
from ..algorithms.lbfgs import lbfgs
from ..algorithms.momentum import lion, rprop, sgd
from ..algorithms.muon import muon
from ..algorithms.shampoo import shampoo
from ..rule import Rule
from ..transformations.clipping import sgld
from .optimizer import Optimizer

#: What settings are called elsewhere.
_OTHER_NAMES = {
    "learning_rate": "lr", "rate": "lr", "alpha": "lr", "beta1": "betas", "beta2": "betas", "beta_1": "betas",
    "beta_2": "betas", "b1": "betas", "b2": "betas", "epsilon": "eps", "rho": "decay", "history_size": "memory",
    "etas": "factors", "step_sizes": "limits", "lr_decay": "lr",
}  # fmt: skip


def _make_constructor(rule: Callable[..., Rule], name: str, lr: float | None = None) -> Callable[..., Optimizer]:
    """The constructor for a rule; `lr` is PyTorch's default where the rule has none."""

    def construct(params: Any, *args: Any, **settings: Any) -> Optimizer:
        try:
            bound = signature.bind(params, *args, **settings)
        except TypeError as error:
            raise _wrong_settings(name, signature, settings, error) from None
        chosen = {n: v for n, v in bound.arguments.items() if n != "params"}
        return Optimizer(rule, params, **chosen if lr is None else {"lr": lr, **chosen})

    first = inspect.Parameter("params", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    last = inspect.Parameter("jit", inspect.Parameter.KEYWORD_ONLY, default=None)
    inner = list(inspect.signature(rule).parameters.values())
    if lr is not None:
        inner[0] = inner[0].replace(default=lr)
    signature = inspect.Signature([first, *inner, last], return_annotation=Optimizer)
    construct.__name__ = construct.__qualname__ = name
    construct.__module__ = __name__
    construct.__signature__ = signature  # type: ignore[attr-defined]
    construct.__doc__ = f"""An `Optimizer` that steps tensors by the rule `pb.optim.{rule.__name__}`, with its settings.

    >>> import pullback as pb
    >>> pb.optim.{name}(pb.tensor([[1.0]], requires_grad=True){", lr=0.1" if "lr" in signature.parameters else ""})
    <optimizer: {rule(0.1).name} of 1 tensors>
    """
    return construct


def _wrong_settings(
    name: str, signature: inspect.Signature, settings: dict[str, Any], error: TypeError
) -> ArgumentTypeError:
    known = [n for n in signature.parameters if n != "params"]
    for given in settings:
        if given not in known:
            ours = _OTHER_NAMES.get(given)
            meaning = f"here it is {ours}" if ours in known else f"settings are {', '.join(known)}"
            return ArgumentTypeError(f"{name}: got an unexpected keyword argument {given!r}; {meaning}.")
    return ArgumentTypeError(f"{name}: {error}.\n  Call it as pb.optim.{name}(params, lr=1e-3).")


LAMB = _make_constructor(lamb, "LAMB")
LARS = _make_constructor(lars, "LARS")
LBFGS = _make_constructor(lbfgs, "LBFGS")
SGD = _make_constructor(sgd, "SGD", 1e-3)
SGLD = _make_constructor(sgld, "SGLD")
AdaDelta = _make_constructor(adadelta, "AdaDelta")
AdaGrad = _make_constructor(adagrad, "AdaGrad", 1e-2)
Adafactor = _make_constructor(adafactor, "Adafactor")
Adam = _make_constructor(adam, "Adam", 1e-3)
AdamW = _make_constructor(adamw, "AdamW", 1e-3)
Adamax = _make_constructor(adamax, "Adamax", 2e-3)
Lion = _make_constructor(lion, "Lion")
Muon = _make_constructor(muon, "Muon", 1e-3)
NAdam = _make_constructor(nadam, "NAdam", 2e-3)
RAdam = _make_constructor(radam, "RAdam", 1e-3)
RMSProp = _make_constructor(rmsprop, "RMSProp", 1e-2)
Rprop = _make_constructor(rprop, "Rprop")
Shampoo = _make_constructor(shampoo, "Shampoo")
