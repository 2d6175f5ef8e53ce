"""Functions that make rules in, functions that make optimizers out, under the names that users of tapes know."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from .adafactor import adafactor
from .adam import adam, adamax, adamw, nadam, radam
from .adaptive import adadelta, adagrad, rmsprop
from .clipping import sgld
from .layerwise import lamb, lars
from .lbfgs import lbfgs
from .momentum import lion, rprop, sgd
from .muon import muon
from .optimizer import Optimizer
from .rule import Rule
from .shampoo import shampoo

__all__ = [
    "LAMB", "LARS", "LBFGS", "SGD", "SGLD", "AdaDelta", "AdaGrad", "Adafactor", "Adam", "AdamW", "Adamax", "Lion",
    "Muon", "NAdam", "RAdam", "RMSProp", "Rprop", "Shampoo",
]  # fmt: skip


def _of(rule: Callable[..., Rule], name: str) -> Callable[..., Optimizer]:
    def made(params: Any, *args: Any, **settings: Any) -> Optimizer:
        bound = signature.bind(params, *args, **settings)
        return Optimizer(rule, params, **{n: v for n, v in bound.arguments.items() if n != "params"})

    first = inspect.Parameter("params", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    last = inspect.Parameter("jit", inspect.Parameter.KEYWORD_ONLY, default=False)
    inner = inspect.signature(rule).parameters.values()
    signature = inspect.Signature([first, *inner, last], return_annotation=Optimizer)
    made.__name__ = made.__qualname__ = name
    made.__module__ = __name__
    made.__signature__ = signature  # type: ignore[attr-defined]
    made.__doc__ = f"""An `Optimizer` that steps tensors by the rule `pb.optim.{rule.__name__}`, with its settings.

    >>> import pullback as pb
    >>> pb.optim.{name}(pb.tensor([[1.0]], requires_grad=True){", lr=0.1" if "lr" in signature.parameters else ""})
    <optimizer: {rule(0.1).name} of 1 tensors>
    """
    return made


LAMB = _of(lamb, "LAMB")
LARS = _of(lars, "LARS")
LBFGS = _of(lbfgs, "LBFGS")
SGD = _of(sgd, "SGD")
SGLD = _of(sgld, "SGLD")
AdaDelta = _of(adadelta, "AdaDelta")
AdaGrad = _of(adagrad, "AdaGrad")
Adafactor = _of(adafactor, "Adafactor")
Adam = _of(adam, "Adam")
AdamW = _of(adamw, "AdamW")
Adamax = _of(adamax, "Adamax")
Lion = _of(lion, "Lion")
Muon = _of(muon, "Muon")
NAdam = _of(nadam, "NAdam")
RAdam = _of(radam, "RAdam")
RMSProp = _of(rmsprop, "RMSProp")
Rprop = _of(rprop, "Rprop")
Shampoo = _of(shampoo, "Shampoo")
