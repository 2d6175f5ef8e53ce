"""The building blocks of networks: functions of arrays first, and a thin `Module` for those who want one."""

from ..ops.elementwise import (
    relu,
    sigmoid,
    tanh,
)
from ..ops.functions import (
    log_softmax,
    silu,
    softmax,
)
from ..ops.random import (
    gumbel_softmax,
)
from ..ops.selecting import (
    one_hot,
)
from . import init
from .activations import (
    gelu,
    logsigmoid,
    mish,
    quick_gelu,
    softplus,
    softsign,
    swish,
    tanhshrink,
)
from .adaptive import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_avg_pool3d,
    adaptive_max_pool1d,
    adaptive_max_pool2d,
    adaptive_max_pool3d,
    fractional_max_pool2d,
    fractional_max_pool3d,
)
from .attention import (
    multi_head_attention,
    scaled_dot_product_attention,
)
from .convolution import (
    conv1d,
    conv2d,
    conv3d,
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
)
from .dropping import (
    alpha_dropout,
    drop_path,
    dropout,
    dropout1d,
    dropout2d,
    dropout3d,
    feature_alpha_dropout,
    feature_dropout,
)
from .embeddings import (
    bilinear,
    embedding,
    embedding_bag,
    linear,
)
from .folding import (
    fold,
    pixel_shuffle,
    pixel_unshuffle,
    unfold,
)
from .gates import (
    geglu,
    glu,
    reglu,
    softmin,
    swiglu,
)
from .layers import (
    Dropout,
    Embedding,
    LayerNorm,
    Linear,
    MultiHeadAttention,
    RMSNorm,
    Sequential,
)
from .lengths import (
    cosine_similarity,
    normalize,
    spectral_norm,
    weight_norm,
)
from .losses.binary import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    dice_loss,
    focal_loss,
    multilabel_soft_margin_loss,
    soft_margin_loss,
)
from .losses.classes import (
    cross_entropy,
    nll_loss,
)
from .losses.divergences import (
    info_nce,
    js_div,
    kl_div,
)
from .losses.margins import (
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
from .losses.sequences import (
    ctc_loss,
)
from .module import (
    LoadReport,
    Module,
)
from .normalising import (
    batch_norm,
    group_norm,
    instance_norm,
    layer_norm,
    local_response_norm,
    rms_norm,
)
from .piecewise import (
    hardshrink,
    hardsigmoid,
    hardswish,
    hardtanh,
    relu6,
    softshrink,
    threshold,
)
from .pooling import (
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
)
from .positions import (
    alibi_bias,
    rotary_embedding,
    sinusoidal_positions,
)
from .rectifiers import (
    celu,
    elu,
    leaky_relu,
    prelu,
    relu_squared,
    rrelu,
    selu,
    squareplus,
    star_relu,
)
from .recurrent import (
    gru,
    gru_cell,
    lstm,
    lstm_cell,
    rnn,
    rnn_cell,
)
from .recurrent_layers import (
    GRU,
    LSTM,
    RNN,
)
from .resampling import (
    interpolate,
    upsample,
)
from .spatial_layers import (
    BatchNorm,
    Conv1d,
    Conv2d,
    Conv3d,
    GroupNorm,
)
from .unpooling import (
    max_unpool1d,
    max_unpool2d,
    max_unpool3d,
)
from .warping import (
    affine_grid,
    grid_sample,
)

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
