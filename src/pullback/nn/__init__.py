"""Neural-network functions of arrays, and a thin `Module` over them."""

from ..ops.elementwise.pointwise import relu, sigmoid, tanh
from ..ops.functions import log_softmax, silu, softmax
from ..ops.index.selection import one_hot
from ..ops.random import gumbel_softmax
from . import init
from .activations.gated import geglu, glu, reglu, softmin, swiglu
from .activations.piecewise import hardshrink, hardsigmoid, hardswish, hardtanh, relu6, softshrink, threshold
from .activations.rectifiers import celu, elu, leaky_relu, prelu, relu_squared, rrelu, selu, squareplus, star_relu
from .activations.smooth import gelu, logsigmoid, mish, quick_gelu, softplus, softsign, swish, tanhshrink
from .attention.dot_product import multi_head_attention, scaled_dot_product_attention
from .attention.positions import alibi_bias, rotary_embedding, sinusoidal_positions
from .convolution import conv1d, conv2d, conv3d, conv_transpose1d, conv_transpose2d, conv_transpose3d
from .dropout import (
    alpha_dropout,
    drop_path,
    dropout,
    dropout1d,
    dropout2d,
    dropout3d,
    feature_alpha_dropout,
    feature_dropout,
)
from .embeddings import embedding, embedding_bag
from .image.fold import fold, pixel_shuffle, pixel_unshuffle, unfold
from .image.grid_sample import affine_grid, grid_sample
from .image.interpolate import interpolate, upsample
from .layers.containers import Dropout, Sequential
from .layers.convolution import Conv1d, Conv2d, Conv3d
from .layers.linear import Embedding, Linear, MultiHeadAttention
from .layers.norm import BatchNorm, GroupNorm, LayerNorm, RMSNorm
from .layers.recurrent import GRU, LSTM, RNN
from .linear import bilinear, linear
from .losses.binary import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    dice_loss,
    focal_loss,
    multilabel_soft_margin_loss,
    soft_margin_loss,
)
from .losses.classification import cross_entropy, nll_loss
from .losses.ctc import ctc_loss
from .losses.divergence import info_nce, js_div, kl_div
from .losses.margin import (
    cosine_embedding_loss,
    hinge_embedding_loss,
    hinge_loss,
    margin_ranking_loss,
    multi_margin_loss,
    multilabel_margin_loss,
    squared_hinge_loss,
    triplet_margin_loss,
)
from .losses.regression import (
    gaussian_nll_loss,
    huber_loss,
    l1_loss,
    log_cosh_loss,
    mse_loss,
    poisson_nll_loss,
    quantile_loss,
    smooth_l1_loss,
)
from .module import LoadReport, Module
from .norm.standardize import batch_norm, group_norm, instance_norm, layer_norm, local_response_norm, rms_norm
from .norm.vectors import cosine_similarity, normalize, spectral_norm, weight_norm
from .pooling.adaptive import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_avg_pool3d,
    adaptive_max_pool1d,
    adaptive_max_pool2d,
    adaptive_max_pool3d,
    fractional_max_pool2d,
    fractional_max_pool3d,
)
from .pooling.core import (
    avg_pool1d,
    avg_pool2d,
    avg_pool3d,
    global_avg_pool,
    global_max_pool,
    lp_pool1d,
    lp_pool2d,
    lp_pool3d,
    max_pool1d,
    max_pool2d,
    max_pool3d,
    max_unpool1d,
    max_unpool2d,
    max_unpool3d,
)
from .recurrent import gru, gru_cell, lstm, lstm_cell, rnn, rnn_cell

__all__ = [
    "BatchNorm", "Conv1d", "Conv2d", "Conv3d", "Dropout", "Embedding", "GRU", "GroupNorm", "LSTM", "LayerNorm",
    "Linear", "LoadReport", "Module", "MultiHeadAttention", "RMSNorm", "RNN", "Sequential", "adaptive_avg_pool1d",
    "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d", "adaptive_max_pool2d",
    "adaptive_max_pool3d", "affine_grid", "alibi_bias", "alpha_dropout", "avg_pool1d", "avg_pool2d", "avg_pool3d",
    "batch_norm", "bilinear", "binary_cross_entropy", "binary_cross_entropy_with_logits", "celu", "conv1d",
    "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "cosine_embedding_loss",
    "cosine_similarity", "cross_entropy", "ctc_loss", "dice_loss", "drop_path", "dropout", "dropout1d",
    "dropout2d", "dropout3d", "elu", "embedding", "embedding_bag", "feature_alpha_dropout", "feature_dropout",
    "focal_loss", "fold", "fractional_max_pool2d", "fractional_max_pool3d", "gaussian_nll_loss", "geglu", "gelu",
    "global_avg_pool", "global_max_pool", "glu", "grid_sample", "group_norm", "gru", "gru_cell", "gumbel_softmax",
    "hardshrink", "hardsigmoid", "hardswish", "hardtanh", "hinge_embedding_loss", "hinge_loss", "huber_loss",
    "info_nce", "init", "instance_norm", "interpolate", "js_div", "kl_div", "l1_loss", "layer_norm", "leaky_relu",
    "linear", "local_response_norm", "log_cosh_loss", "log_softmax", "logsigmoid", "lp_pool1d", "lp_pool2d",
    "lp_pool3d", "lstm", "lstm_cell", "margin_ranking_loss", "max_pool1d", "max_pool2d", "max_pool3d",
    "max_unpool1d", "max_unpool2d", "max_unpool3d", "mish", "mse_loss", "multi_head_attention",
    "multi_margin_loss", "multilabel_margin_loss", "multilabel_soft_margin_loss", "nll_loss", "normalize",
    "one_hot", "pixel_shuffle", "pixel_unshuffle", "poisson_nll_loss", "prelu", "quantile_loss", "quick_gelu",
    "reglu", "relu", "relu6", "relu_squared", "rms_norm", "rnn", "rnn_cell", "rotary_embedding", "rrelu",
    "scaled_dot_product_attention", "selu", "sigmoid", "silu", "sinusoidal_positions", "smooth_l1_loss",
    "soft_margin_loss", "softmax", "softmin", "softplus", "softshrink", "softsign", "spectral_norm",
    "squared_hinge_loss", "squareplus", "star_relu", "swiglu", "swish", "tanh", "tanhshrink", "threshold",
    "triplet_margin_loss", "unfold", "upsample", "weight_norm",
]  # fmt: skip
