# The public names of `pullback.optim` and where they live; read at run time too, by `public_names`.
# fmt: off
# ruff: noqa: I001
from . import schedules as schedules
from .algorithms.adafactor import adafactor as adafactor
from .algorithms.adagrad import adadelta as adadelta, adagrad as adagrad, rmsprop as rmsprop
from .algorithms.adam import (
    adam as adam, adamax as adamax, adamw as adamw, nadam as nadam, radam as radam, scale_by_adam as scale_by_adam,
)
from .algorithms.kfac import kfac as kfac
from .algorithms.layerwise import lamb as lamb, lars as lars, scale_by_trust_ratio as scale_by_trust_ratio
from .algorithms.lbfgs import lbfgs as lbfgs
from .algorithms.momentum import lion as lion, rprop as rprop, sgd as sgd, trace as trace
from .algorithms.muon import muon as muon, newton_schulz as newton_schulz
from .algorithms.natural_gradient import natural_gradient as natural_gradient
from .algorithms.shampoo import shampoo as shampoo
from .rule import (
    apply_updates as apply_updates, chain as chain, leafwise_rule as leafwise_rule, Rule as Rule, State as State,
    stateless_rule as stateless_rule,
)
from .stateful.constructors import (
    AdaDelta as AdaDelta, Adafactor as Adafactor, AdaGrad as AdaGrad, Adam as Adam, Adamax as Adamax, AdamW as AdamW,
    LAMB as LAMB, LARS as LARS, LBFGS as LBFGS, Lion as Lion, Muon as Muon, NAdam as NAdam, RAdam as RAdam,
    RMSProp as RMSProp, Rprop as Rprop, SGD as SGD, SGLD as SGLD, Shampoo as Shampoo,
)
from .stateful.gradient_clipping import clip_grad_norm_ as clip_grad_norm_, clip_grad_value_ as clip_grad_value_
from .stateful.optimizer import Optimizer as Optimizer
from .stateful.sparse_adam import SparseAdam as SparseAdam
from .transformations.averaging import Average as Average, ema as ema, lookahead as lookahead, swa as swa
from .transformations.clipping import (
    adaptive_clip as adaptive_clip, add_noise as add_noise, centralize as centralize,
    clip_by_global_norm as clip_by_global_norm, clip_by_norm as clip_by_norm, clip_by_value as clip_by_value,
    global_norm as global_norm, sgld as sgld,
)
from .transformations.conditional import apply_if_finite as apply_if_finite, multi_steps as multi_steps
from .transformations.loss_scaling import (
    loss_scale as loss_scale, scale_loss as scale_loss, scaled as scaled, unscale as unscale,
)
from .transformations.masking import freeze as freeze, masked as masked, multi_transform as multi_transform
from .transformations.master_weights import (
    master_weights as master_weights, stochastic_rounding as stochastic_rounding,
)
from .transformations.scaling import (
    add_decayed_weights as add_decayed_weights, reduce_on_plateau as reduce_on_plateau, scale as scale,
    scale_by_learning_rate as scale_by_learning_rate,
)
