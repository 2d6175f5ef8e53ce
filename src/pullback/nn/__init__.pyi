# The public names of `pullback.nn` and where they live; read at run time too, by `public_names`.
# fmt: off
# ruff: noqa: I001
from ..ops.elementwise.pointwise import relu as relu, sigmoid as sigmoid, tanh as tanh
from ..ops.functions import log_softmax as log_softmax, silu as silu, softmax as softmax
from ..ops.index.selection import one_hot as one_hot
from ..ops.random import gumbel_softmax as gumbel_softmax
from . import functional as functional, init as init
from .activations import (
    geglu as geglu, gelu as gelu, glu as glu, logsigmoid as logsigmoid, mish as mish, quick_gelu as quick_gelu,
    reglu as reglu, softmin as softmin, softplus as softplus, softsign as softsign, swiglu as swiglu, swish as swish,
    tanhshrink as tanhshrink,
)
from .attention.block_mask import BlockMask as BlockMask, create_block_mask as create_block_mask
from .attention.dot_product import (
    multi_head_attention as multi_head_attention, scaled_dot_product_attention as scaled_dot_product_attention,
)
from .attention.flex import flex_attention as flex_attention
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
from .layers.containers import Dropout as Dropout, Identity as Identity, Sequential as Sequential
from .layers.convolution import (
    Conv1d as Conv1d, Conv2d as Conv2d, Conv3d as Conv3d, ConvTranspose1d as ConvTranspose1d,
    ConvTranspose2d as ConvTranspose2d, ConvTranspose3d as ConvTranspose3d,
)
from .layers.function_layers import (
    AdaptiveAvgPool1d as AdaptiveAvgPool1d, AdaptiveAvgPool2d as AdaptiveAvgPool2d, AdaptiveAvgPool3d
    as AdaptiveAvgPool3d, AdaptiveMaxPool1d as AdaptiveMaxPool1d, AdaptiveMaxPool2d as AdaptiveMaxPool2d,
    AdaptiveMaxPool3d as AdaptiveMaxPool3d, AlphaDropout as AlphaDropout, AvgPool1d as AvgPool1d, AvgPool2d
    as AvgPool2d, AvgPool3d as AvgPool3d, BCELoss as BCELoss, BCEWithLogitsLoss as BCEWithLogitsLoss, CELU
    as CELU, CTCLoss as CTCLoss, CosineEmbeddingLoss as CosineEmbeddingLoss, CosineSimilarity as CosineSimilarity,
    CrossEntropyLoss as CrossEntropyLoss, DiceLoss as DiceLoss, DropPath as DropPath, Dropout1d as Dropout1d,
    Dropout2d as Dropout2d, Dropout3d as Dropout3d, ELU as ELU, FeatureAlphaDropout as FeatureAlphaDropout,
    Flatten as Flatten, FocalLoss as FocalLoss, Fold as Fold, FractionalMaxPool2d as FractionalMaxPool2d,
    FractionalMaxPool3d as FractionalMaxPool3d, GEGLU as GEGLU, GELU as GELU, GLU as GLU, GaussianNLLLoss
    as GaussianNLLLoss, Hardshrink as Hardshrink, Hardsigmoid as Hardsigmoid, Hardswish as Hardswish, Hardtanh
    as Hardtanh, HingeEmbeddingLoss as HingeEmbeddingLoss, HingeLoss as HingeLoss, HuberLoss as HuberLoss,
    KLDivLoss as KLDivLoss, L1Loss as L1Loss, LPPool1d as LPPool1d, LPPool2d as LPPool2d, LPPool3d as LPPool3d,
    LeakyReLU as LeakyReLU, LocalResponseNorm as LocalResponseNorm, LogCoshLoss as LogCoshLoss, LogSigmoid
    as LogSigmoid, LogSoftmax as LogSoftmax, MSELoss as MSELoss, MarginRankingLoss as MarginRankingLoss, MaxPool1d
    as MaxPool1d, MaxPool2d as MaxPool2d, MaxPool3d as MaxPool3d, MaxUnpool1d as MaxUnpool1d, MaxUnpool2d
    as MaxUnpool2d, MaxUnpool3d as MaxUnpool3d, Mish as Mish, MultiLabelMarginLoss as MultiLabelMarginLoss,
    MultiLabelSoftMarginLoss as MultiLabelSoftMarginLoss, MultiMarginLoss as MultiMarginLoss, NLLLoss as NLLLoss,
    PairwiseDistance as PairwiseDistance, PixelShuffle as PixelShuffle, PixelUnshuffle as PixelUnshuffle,
    PoissonNLLLoss as PoissonNLLLoss, QuantileLoss as QuantileLoss, QuickGELU as QuickGELU, RReLU as RReLU, ReGLU
    as ReGLU, ReLU as ReLU, ReLU6 as ReLU6, SELU as SELU, SiLU as SiLU, Sigmoid as Sigmoid, SmoothL1Loss
    as SmoothL1Loss, SoftMarginLoss as SoftMarginLoss, Softmax as Softmax, Softmin as Softmin, Softplus
    as Softplus, Softshrink as Softshrink, Softsign as Softsign, SwiGLU as SwiGLU, Tanh as Tanh, Tanhshrink
    as Tanhshrink, Threshold as Threshold, TripletMarginLoss as TripletMarginLoss, Unflatten as Unflatten, Unfold
    as Unfold, Upsample as Upsample,
)
from .layers.linear import Embedding as Embedding, Linear as Linear, MultiHeadAttention as MultiHeadAttention
from .layers.norm import (
    BatchNorm as BatchNorm, BatchNorm1d as BatchNorm1d, BatchNorm2d as BatchNorm2d, BatchNorm3d as BatchNorm3d,
    GroupNorm as GroupNorm, LayerNorm as LayerNorm, RMSNorm as RMSNorm, SyncBatchNorm as SyncBatchNorm,
)
from .layers.recurrent import GRU as GRU, LSTM as LSTM, RNN as RNN
from .layers.prelu import PReLU as PReLU
from .layers.transformer import TransformerEncoderLayer as TransformerEncoderLayer
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
    normalize as normalize, rms_norm as rms_norm, spectral_norm as spectral_norm, sync_batch_norm as sync_batch_norm,
    weight_norm as weight_norm,
)
from .parameter import Parameter as Parameter
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
