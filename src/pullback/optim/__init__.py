"""Optimizers: pure rules from gradients and a state to updates, and stateful optimizers over tensors."""

from . import schedules
from .algorithms.adafactor import adafactor
from .algorithms.adagrad import adadelta, adagrad, rmsprop
from .algorithms.adam import adam, adamax, adamw, nadam, radam, scale_by_adam
from .algorithms.layerwise import lamb, lars, scale_by_trust_ratio
from .algorithms.lbfgs import lbfgs
from .algorithms.momentum import lion, rprop, sgd, trace
from .algorithms.muon import muon, newton_schulz
from .algorithms.natural_gradient import natural_gradient
from .algorithms.shampoo import shampoo
from .rule import Rule, State, apply_updates, chain
from .stateful.constructors import (
    LAMB,
    LARS,
    LBFGS,
    SGD,
    SGLD,
    AdaDelta,
    Adafactor,
    AdaGrad,
    Adam,
    Adamax,
    AdamW,
    Lion,
    Muon,
    NAdam,
    RAdam,
    RMSProp,
    Rprop,
    Shampoo,
)
from .stateful.optimizer import Optimizer
from .transformations.averaging import Average, ema, lookahead, swa
from .transformations.clipping import (
    adaptive_clip,
    add_noise,
    centralize,
    clip_by_global_norm,
    clip_by_norm,
    clip_by_value,
    global_norm,
    sgld,
)
from .transformations.conditional import apply_if_finite, multi_steps
from .transformations.masking import freeze, masked, multi_transform
from .transformations.plateau import reduce_on_plateau
from .transformations.scaling import add_decayed_weights, scale, scale_by_learning_rate

__all__ = [
    "AdaDelta", "AdaGrad", "Adafactor", "Adam", "AdamW", "Adamax", "Average", "LAMB", "LARS", "LBFGS", "Lion", "Muon",
    "NAdam", "Optimizer", "RAdam", "RMSProp", "Rprop", "Rule", "SGD", "SGLD", "Shampoo", "State", "adadelta",
    "adafactor", "adagrad", "adam", "adamax", "adamw", "adaptive_clip", "add_decayed_weights", "add_noise",
    "apply_if_finite", "apply_updates", "centralize", "chain", "clip_by_global_norm", "clip_by_norm", "clip_by_value",
    "ema", "freeze", "global_norm", "lamb", "lars", "lbfgs", "lion", "lookahead", "masked", "multi_steps",
    "multi_transform", "muon", "nadam", "natural_gradient", "newton_schulz", "radam", "reduce_on_plateau", "rmsprop",
    "rprop", "scale", "scale_by_adam", "scale_by_learning_rate", "scale_by_trust_ratio", "schedules", "sgd", "sgld",
    "shampoo", "swa", "trace",
]  # fmt: skip
