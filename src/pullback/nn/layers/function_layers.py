"""Activations, losses, pooling and the like as modules, each made from its function."""

from ...ops.elementwise.pointwise import relu, sigmoid, tanh
from ...ops.functions import log_softmax, silu, softmax
from ...ops.reduce.distances import pairwise_distance
from ...ops.shape.stack_split import flatten, unflatten
from ..activations import (
    geglu,
    gelu,
    glu,
    logsigmoid,
    mish,
    quick_gelu,
    reglu,
    softmin,
    softplus,
    softsign,
    swiglu,
    tanhshrink,
)
from ..dropout import alpha_dropout, drop_path, dropout1d, dropout2d, dropout3d, feature_alpha_dropout
from ..image.fold import fold, pixel_shuffle, pixel_unshuffle, unfold
from ..image.interpolate import upsample
from ..losses.classification import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    cross_entropy,
    dice_loss,
    focal_loss,
    multilabel_soft_margin_loss,
    nll_loss,
    soft_margin_loss,
)
from ..losses.ctc import ctc_loss
from ..losses.divergence import kl_div
from ..losses.margin import (
    cosine_embedding_loss,
    hinge_embedding_loss,
    hinge_loss,
    margin_ranking_loss,
    multi_margin_loss,
    multilabel_margin_loss,
    triplet_margin_loss,
)
from ..losses.regression import (
    gaussian_nll_loss,
    huber_loss,
    l1_loss,
    log_cosh_loss,
    mse_loss,
    poisson_nll_loss,
    quantile_loss,
    smooth_l1_loss,
)
from ..norm import cosine_similarity, local_response_norm
from ..pooling.adaptive import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_avg_pool3d,
    adaptive_max_pool1d,
    adaptive_max_pool2d,
    adaptive_max_pool3d,
    fractional_max_pool2d,
    fractional_max_pool3d,
)
from ..pooling.core import (
    avg_pool1d,
    avg_pool2d,
    avg_pool3d,
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
from ..rectifiers import (
    celu,
    elu,
    hardshrink,
    hardsigmoid,
    hardswish,
    hardtanh,
    leaky_relu,
    relu6,
    rrelu,
    selu,
    softshrink,
    threshold,
)
from .make_layer import make_layer

CELU = make_layer("CELU", celu)
ELU = make_layer("ELU", elu)
GEGLU = make_layer("GEGLU", geglu)
GELU = make_layer("GELU", gelu)
GLU = make_layer("GLU", glu)
Hardshrink = make_layer("Hardshrink", hardshrink)
Hardsigmoid = make_layer("Hardsigmoid", hardsigmoid)
Hardswish = make_layer("Hardswish", hardswish)
Hardtanh = make_layer("Hardtanh", hardtanh)
LeakyReLU = make_layer("LeakyReLU", leaky_relu)
LogSigmoid = make_layer("LogSigmoid", logsigmoid)
LogSoftmax = make_layer("LogSoftmax", log_softmax)
Mish = make_layer("Mish", mish)
QuickGELU = make_layer("QuickGELU", quick_gelu)
ReGLU = make_layer("ReGLU", reglu)
ReLU = make_layer("ReLU", relu)
ReLU6 = make_layer("ReLU6", relu6)
RReLU = make_layer("RReLU", rrelu)
SELU = make_layer("SELU", selu)
SiLU = make_layer("SiLU", silu)
Sigmoid = make_layer("Sigmoid", sigmoid)
Softmax = make_layer("Softmax", softmax)
Softmin = make_layer("Softmin", softmin)
Softplus = make_layer("Softplus", softplus)
Softshrink = make_layer("Softshrink", softshrink)
Softsign = make_layer("Softsign", softsign)
SwiGLU = make_layer("SwiGLU", swiglu)
Tanh = make_layer("Tanh", tanh)
Tanhshrink = make_layer("Tanhshrink", tanhshrink)
Threshold = make_layer("Threshold", threshold, 1, "threshold=0.1, value=0.0")

BCELoss = make_layer("BCELoss", binary_cross_entropy, 2)
BCEWithLogitsLoss = make_layer("BCEWithLogitsLoss", binary_cross_entropy_with_logits, 2)
CTCLoss = make_layer("CTCLoss", ctc_loss, 4)
CosineEmbeddingLoss = make_layer("CosineEmbeddingLoss", cosine_embedding_loss, 3)
CrossEntropyLoss = make_layer("CrossEntropyLoss", cross_entropy, 2, "label_smoothing=0.1")
DiceLoss = make_layer("DiceLoss", dice_loss, 2)
FocalLoss = make_layer("FocalLoss", focal_loss, 2)
GaussianNLLLoss = make_layer("GaussianNLLLoss", gaussian_nll_loss, 3)
HingeEmbeddingLoss = make_layer("HingeEmbeddingLoss", hinge_embedding_loss, 2)
HingeLoss = make_layer("HingeLoss", hinge_loss, 2)
HuberLoss = make_layer("HuberLoss", huber_loss, 2)
KLDivLoss = make_layer("KLDivLoss", kl_div, 2)
L1Loss = make_layer("L1Loss", l1_loss, 2)
LogCoshLoss = make_layer("LogCoshLoss", log_cosh_loss, 2)
MSELoss = make_layer("MSELoss", mse_loss, 2, "reduction='sum'")
MarginRankingLoss = make_layer("MarginRankingLoss", margin_ranking_loss, 3)
MultiLabelMarginLoss = make_layer("MultiLabelMarginLoss", multilabel_margin_loss, 2)
MultiLabelSoftMarginLoss = make_layer("MultiLabelSoftMarginLoss", multilabel_soft_margin_loss, 2)
MultiMarginLoss = make_layer("MultiMarginLoss", multi_margin_loss, 2)
NLLLoss = make_layer("NLLLoss", nll_loss, 2)
PoissonNLLLoss = make_layer("PoissonNLLLoss", poisson_nll_loss, 2)
QuantileLoss = make_layer("QuantileLoss", quantile_loss, 2)
SmoothL1Loss = make_layer("SmoothL1Loss", smooth_l1_loss, 2)
SoftMarginLoss = make_layer("SoftMarginLoss", soft_margin_loss, 2)
TripletMarginLoss = make_layer("TripletMarginLoss", triplet_margin_loss, 3)

CosineSimilarity = make_layer("CosineSimilarity", cosine_similarity, 2, axis=1)
PairwiseDistance = make_layer("PairwiseDistance", pairwise_distance, 2, eps=1e-6)

AdaptiveAvgPool1d = make_layer("AdaptiveAvgPool1d", adaptive_avg_pool1d, 1, "output_size=4")
AdaptiveAvgPool2d = make_layer("AdaptiveAvgPool2d", adaptive_avg_pool2d, 1, "output_size=4")
AdaptiveAvgPool3d = make_layer("AdaptiveAvgPool3d", adaptive_avg_pool3d, 1, "output_size=4")
AdaptiveMaxPool1d = make_layer("AdaptiveMaxPool1d", adaptive_max_pool1d, 1, "output_size=4")
AdaptiveMaxPool2d = make_layer("AdaptiveMaxPool2d", adaptive_max_pool2d, 1, "output_size=4")
AdaptiveMaxPool3d = make_layer("AdaptiveMaxPool3d", adaptive_max_pool3d, 1, "output_size=4")
AvgPool1d = make_layer("AvgPool1d", avg_pool1d, 1, "kernel_size=2")
AvgPool2d = make_layer("AvgPool2d", avg_pool2d, 1, "kernel_size=2")
AvgPool3d = make_layer("AvgPool3d", avg_pool3d, 1, "kernel_size=2")
FractionalMaxPool2d = make_layer("FractionalMaxPool2d", fractional_max_pool2d, 1, "kernel_size=2, output_size=4")
FractionalMaxPool3d = make_layer("FractionalMaxPool3d", fractional_max_pool3d, 1, "kernel_size=2, output_size=4")
LPPool1d = make_layer("LPPool1d", lp_pool1d, 1, "norm_type=2.0, kernel_size=2")
LPPool2d = make_layer("LPPool2d", lp_pool2d, 1, "norm_type=2.0, kernel_size=2")
LPPool3d = make_layer("LPPool3d", lp_pool3d, 1, "norm_type=2.0, kernel_size=2")
MaxPool1d = make_layer("MaxPool1d", max_pool1d, 1, "kernel_size=2")
MaxPool2d = make_layer("MaxPool2d", max_pool2d, 1, "kernel_size=2")
MaxPool3d = make_layer("MaxPool3d", max_pool3d, 1, "kernel_size=2")
MaxUnpool1d = make_layer("MaxUnpool1d", max_unpool1d, 2, "kernel_size=2")
MaxUnpool2d = make_layer("MaxUnpool2d", max_unpool2d, 2, "kernel_size=2")
MaxUnpool3d = make_layer("MaxUnpool3d", max_unpool3d, 2, "kernel_size=2")

AlphaDropout = make_layer("AlphaDropout", alpha_dropout)
DropPath = make_layer("DropPath", drop_path)
Dropout1d = make_layer("Dropout1d", dropout1d)
Dropout2d = make_layer("Dropout2d", dropout2d)
Dropout3d = make_layer("Dropout3d", dropout3d)
FeatureAlphaDropout = make_layer("FeatureAlphaDropout", feature_alpha_dropout)
Flatten = make_layer("Flatten", flatten, 1, "start_axis=2", start_axis=1)
Fold = make_layer("Fold", fold, 1, "output_size=(4, 4), kernel_size=2")
LocalResponseNorm = make_layer("LocalResponseNorm", local_response_norm, 1, "size=2")
PixelShuffle = make_layer("PixelShuffle", pixel_shuffle, 1, "upscale_factor=2")
PixelUnshuffle = make_layer("PixelUnshuffle", pixel_unshuffle, 1, "downscale_factor=2")
Unflatten = make_layer("Unflatten", unflatten, 1, "axis=1, sizes=(2, -1)")
Unfold = make_layer("Unfold", unfold, 1, "kernel_size=2")
Upsample = make_layer("Upsample", upsample, 1, "scale_factor=2")
