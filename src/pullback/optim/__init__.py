"""Optimisers: rules as values, which turn gradients and a state into updates; chained, compiled and differentiated."""

from . import schedules
from .adafactor import adafactor
from .adam import adam, adamax, adamw, nadam, radam, scale_by_adam
from .adaptive import adadelta, adagrad, rmsprop
from .averaging import Average, ema, lookahead, swa
from .clipping import (
    adaptive_clip,
    add_noise,
    centralise,
    clip_by_global_norm,
    clip_by_norm,
    clip_by_value,
    global_norm,
    sgld,
)
from .gates import apply_if_finite, multi_steps
from .layerwise import lamb, lars, scale_by_trust_ratio
from .lbfgs import lbfgs
from .momentum import lion, rprop, sgd, trace
from .muon import muon, newton_schulz
from .named import (
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
from .natural import natural_gradient
from .optimizer import Optimizer
from .plateau import reduce_on_plateau
from .rule import Rule, State, apply_updates, chain
from .scaling import add_decayed_weights, scale, scale_by_learning_rate
from .selecting import freeze, masked, multi_transform
from .shampoo import shampoo

__all__ = [
    "AdaDelta", "AdaGrad", "Adafactor", "Adam", "AdamW", "Adamax", "Average", "LAMB", "LARS", "LBFGS", "Lion", "Muon",
    "NAdam", "Optimizer", "RAdam", "RMSProp", "Rprop", "Rule", "SGD", "SGLD", "Shampoo", "State", "adadelta",
    "adafactor", "adagrad", "adam", "adamax", "adamw", "adaptive_clip", "add_decayed_weights", "add_noise",
    "apply_if_finite", "apply_updates", "centralise", "chain", "clip_by_global_norm", "clip_by_norm", "clip_by_value",
    "ema", "freeze", "global_norm", "lamb", "lars", "lbfgs", "lion", "lookahead", "masked", "multi_steps",
    "multi_transform", "muon", "nadam", "natural_gradient", "newton_schulz", "radam", "reduce_on_plateau", "rmsprop",
    "rprop", "scale", "scale_by_adam", "scale_by_learning_rate", "scale_by_trust_ratio", "schedules", "sgd", "sgld",
    "shampoo", "swa", "trace",
]  # fmt: skip
