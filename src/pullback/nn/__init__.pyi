# The public names of `pullback.nn` and where they live; read at run time too, by `public_names`.
# fmt: off
# ruff: noqa: I001
from ..ops.elementwise.pointwise import relu as relu, sigmoid as sigmoid, tanh as tanh
from ..ops.functions import log_softmax as log_softmax, silu as silu, softmax as softmax
from ..ops.index.selection import one_hot as one_hot
from ..ops.random import gumbel_softmax as gumbel_softmax
from . import init as init
from .activations import (
    geglu as geglu, gelu as gelu, glu as glu, logsigmoid as logsigmoid, mish as mish, quick_gelu as quick_gelu,
    reglu as reglu, softmin as softmin, softplus as softplus, softsign as softsign, swiglu as swiglu, swish as swish,
    tanhshrink as tanhshrink,
)
from .attention.dot_product import (
    multi_head_attention as multi_head_attention, scaled_dot_product_attention as scaled_dot_product_attention,
)
from .attention.positions import (
    alibi_bias as alibi_bias, rotary_embedding as rotary_embedding, sinusoidal_positions as sinusoidal_positions,
)
from .convolution import (
    conv1d as conv1d, conv2d as conv2d, conv3d as conv3d, conv_transpose1d as conv_transpose1d,
    conv_transpose2d as conv_transpose2d, conv_transpose3d as conv_transpose3d,
)
from .dropout import (
    alpha_dropout as alpha_dropout, drop_path as drop_path, dropout as dropout, dropout1d as dropout1d,
    dropout2d as dropout2d, dropout3d as dropout3d, feature_alpha_dropout as feature_alpha_dropout,
    feature_dropout as feature_dropout,
)
from .embeddings import embedding as embedding, embedding_bag as embedding_bag
from .image.fold import (
    fold as fold, pixel_shuffle as pixel_shuffle, pixel_unshuffle as pixel_unshuffle, unfold as unfold,
)
from .image.grid_sample import affine_grid as affine_grid, grid_sample as grid_sample
from .image.interpolate import interpolate as interpolate, upsample as upsample
from .layers.containers import Dropout as Dropout, Sequential as Sequential
from .layers.convolution import Conv1d as Conv1d, Conv2d as Conv2d, Conv3d as Conv3d
from .layers.linear import Embedding as Embedding, Linear as Linear, MultiHeadAttention as MultiHeadAttention
from .layers.norm import BatchNorm as BatchNorm, GroupNorm as GroupNorm, LayerNorm as LayerNorm, RMSNorm as RMSNorm
from .layers.recurrent import GRU as GRU, LSTM as LSTM, RNN as RNN
from .linear import bilinear as bilinear, linear as linear
from .losses.classification import (
    binary_cross_entropy as binary_cross_entropy, binary_cross_entropy_with_logits as binary_cross_entropy_with_logits,
    cross_entropy as cross_entropy, dice_loss as dice_loss, focal_loss as focal_loss,
    multilabel_soft_margin_loss as multilabel_soft_margin_loss, nll_loss as nll_loss,
    soft_margin_loss as soft_margin_loss,
)
from .losses.ctc import ctc_loss as ctc_loss
from .losses.divergence import info_nce as info_nce, js_div as js_div, kl_div as kl_div
from .losses.margin import (
    cosine_embedding_loss as cosine_embedding_loss, hinge_embedding_loss as hinge_embedding_loss,
    hinge_loss as hinge_loss, margin_ranking_loss as margin_ranking_loss, multi_margin_loss as multi_margin_loss,
    multilabel_margin_loss as multilabel_margin_loss, squared_hinge_loss as squared_hinge_loss,
    triplet_margin_loss as triplet_margin_loss,
)
from .losses.regression import (
    gaussian_nll_loss as gaussian_nll_loss, huber_loss as huber_loss, l1_loss as l1_loss,
    log_cosh_loss as log_cosh_loss, mse_loss as mse_loss, poisson_nll_loss as poisson_nll_loss,
    quantile_loss as quantile_loss, smooth_l1_loss as smooth_l1_loss,
)
from .module import LoadReport as LoadReport, Module as Module
from .norm import (
    batch_norm as batch_norm, cosine_similarity as cosine_similarity, group_norm as group_norm,
    instance_norm as instance_norm, layer_norm as layer_norm, local_response_norm as local_response_norm,
    normalize as normalize, rms_norm as rms_norm, spectral_norm as spectral_norm, weight_norm as weight_norm,
)
from .pooling.adaptive import (
    adaptive_avg_pool1d as adaptive_avg_pool1d, adaptive_avg_pool2d as adaptive_avg_pool2d,
    adaptive_avg_pool3d as adaptive_avg_pool3d, adaptive_max_pool1d as adaptive_max_pool1d,
    adaptive_max_pool2d as adaptive_max_pool2d, adaptive_max_pool3d as adaptive_max_pool3d,
    fractional_max_pool2d as fractional_max_pool2d, fractional_max_pool3d as fractional_max_pool3d,
)
from .pooling.core import (
    avg_pool1d as avg_pool1d, avg_pool2d as avg_pool2d, avg_pool3d as avg_pool3d, global_avg_pool as global_avg_pool,
    global_max_pool as global_max_pool, lp_pool1d as lp_pool1d, lp_pool2d as lp_pool2d, lp_pool3d as lp_pool3d,
    max_pool1d as max_pool1d, max_pool2d as max_pool2d, max_pool3d as max_pool3d, max_unpool1d as max_unpool1d,
    max_unpool2d as max_unpool2d, max_unpool3d as max_unpool3d,
)
from .rectifiers import (
    celu as celu, elu as elu, hardshrink as hardshrink, hardsigmoid as hardsigmoid, hardswish as hardswish,
    hardtanh as hardtanh, leaky_relu as leaky_relu, prelu as prelu, relu6 as relu6, relu_squared as relu_squared,
    rrelu as rrelu, selu as selu, softshrink as softshrink, squareplus as squareplus, star_relu as star_relu,
    threshold as threshold,
)
from .recurrent import (
    gru as gru, gru_cell as gru_cell, lstm as lstm, lstm_cell as lstm_cell, rnn as rnn, rnn_cell as rnn_cell,
)
