"""`Adam(params)` and its kin: constructors of stateful optimizers, one for each rule."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

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


def _make_constructor(rule: Callable[..., Rule], name: str) -> Callable[..., Optimizer]:
    def construct(params: Any, *args: Any, **settings: Any) -> Optimizer:
        bound = signature.bind(params, *args, **settings)
        return Optimizer(rule, params, **{n: v for n, v in bound.arguments.items() if n != "params"})

    first = inspect.Parameter("params", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    last = inspect.Parameter("jit", inspect.Parameter.KEYWORD_ONLY, default=None)
    inner = inspect.signature(rule).parameters.values()
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


LAMB = _make_constructor(lamb, "LAMB")
LARS = _make_constructor(lars, "LARS")
LBFGS = _make_constructor(lbfgs, "LBFGS")
SGD = _make_constructor(sgd, "SGD")
SGLD = _make_constructor(sgld, "SGLD")
AdaDelta = _make_constructor(adadelta, "AdaDelta")
AdaGrad = _make_constructor(adagrad, "AdaGrad")
Adafactor = _make_constructor(adafactor, "Adafactor")
Adam = _make_constructor(adam, "Adam")
AdamW = _make_constructor(adamw, "AdamW")
Adamax = _make_constructor(adamax, "Adamax")
Lion = _make_constructor(lion, "Lion")
Muon = _make_constructor(muon, "Muon")
NAdam = _make_constructor(nadam, "NAdam")
RAdam = _make_constructor(radam, "RAdam")
RMSProp = _make_constructor(rmsprop, "RMSProp")
Rprop = _make_constructor(rprop, "Rprop")
Shampoo = _make_constructor(shampoo, "Shampoo")
