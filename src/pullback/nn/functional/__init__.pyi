# PyTorch's functions that `pullback.nn` has with the same arguments, and where they live; read at run time too.
# fmt: off
# ruff: noqa: I001
from ...ops.elementwise.pointwise import relu as relu, sigmoid as sigmoid, tanh as tanh
from ...ops.functions import log_softmax as log_softmax, silu as silu, softmax as softmax
from ...ops.index.selection import one_hot as one_hot
from ...ops.random import gumbel_softmax as gumbel_softmax
from ..activations import (
    gelu as gelu, glu as glu, logsigmoid as logsigmoid, mish as mish, softmin as softmin, softplus as softplus,
    softsign as softsign, tanhshrink as tanhshrink,
)
from ..attention.dot_product import scaled_dot_product_attention as scaled_dot_product_attention
from ..convolution import (
    conv1d as conv1d, conv2d as conv2d, conv3d as conv3d, conv_transpose1d as conv_transpose1d,
    conv_transpose2d as conv_transpose2d, conv_transpose3d as conv_transpose3d,
)
from ..dropout import (
    dropout as dropout, dropout1d as dropout1d, dropout2d as dropout2d,
    dropout3d as dropout3d,
)
from ..embeddings import embedding as embedding, embedding_bag as embedding_bag
from ..image.fold import (
    fold as fold, pixel_shuffle as pixel_shuffle, pixel_unshuffle as pixel_unshuffle, unfold as unfold,
)
from ..image.grid_sample import affine_grid as affine_grid, grid_sample as grid_sample
from ..image.interpolate import interpolate as interpolate, upsample as upsample
from ..linear import bilinear as bilinear, linear as linear
from ..losses.classification import (
    binary_cross_entropy as binary_cross_entropy,
    binary_cross_entropy_with_logits as binary_cross_entropy_with_logits, cross_entropy as cross_entropy,
    multilabel_soft_margin_loss as multilabel_soft_margin_loss, nll_loss as nll_loss,
    soft_margin_loss as soft_margin_loss,
)
from ..losses.ctc import ctc_loss as ctc_loss
from ..losses.divergence import kl_div as kl_div
from ..losses.margin import (
    cosine_embedding_loss as cosine_embedding_loss, hinge_embedding_loss as hinge_embedding_loss,
    margin_ranking_loss as margin_ranking_loss, multi_margin_loss as multi_margin_loss,
    multilabel_margin_loss as multilabel_margin_loss, triplet_margin_loss as triplet_margin_loss,
)
from ..losses.regression import (
    gaussian_nll_loss as gaussian_nll_loss, l1_loss as l1_loss, mse_loss as mse_loss,
    poisson_nll_loss as poisson_nll_loss, smooth_l1_loss as smooth_l1_loss,
)
from ..norm import group_norm as group_norm, local_response_norm as local_response_norm
from ..pooling.adaptive import (
    adaptive_avg_pool1d as adaptive_avg_pool1d, adaptive_avg_pool2d as adaptive_avg_pool2d,
    adaptive_avg_pool3d as adaptive_avg_pool3d, adaptive_max_pool1d as adaptive_max_pool1d,
    adaptive_max_pool2d as adaptive_max_pool2d, adaptive_max_pool3d as adaptive_max_pool3d,
    fractional_max_pool2d as fractional_max_pool2d, fractional_max_pool3d as fractional_max_pool3d,
)
from ..pooling.core import (
    avg_pool1d as avg_pool1d, avg_pool2d as avg_pool2d, avg_pool3d as avg_pool3d, lp_pool1d as lp_pool1d,
    lp_pool2d as lp_pool2d, lp_pool3d as lp_pool3d, max_pool1d as max_pool1d, max_pool2d as max_pool2d,
    max_pool3d as max_pool3d, max_unpool1d as max_unpool1d, max_unpool2d as max_unpool2d,
    max_unpool3d as max_unpool3d,
)
from ..rectifiers import (
    celu as celu, elu as elu, hardshrink as hardshrink, hardsigmoid as hardsigmoid, hardswish as hardswish,
    hardtanh as hardtanh, leaky_relu as leaky_relu, prelu as prelu, relu6 as relu6, rrelu as rrelu, selu as selu,
    softshrink as softshrink, threshold as threshold,
)
