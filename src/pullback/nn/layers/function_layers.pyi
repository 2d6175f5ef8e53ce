"""Constructors of the layers made from functions, for type checkers; a test compares the two."""

# Written by tests/function_layer_stub.py, then formatted by ruff.
from typing import Any, overload

from .make_layer import FunctionLayer

class CELU(FunctionLayer):
    def __init__(self, alpha: Any = 1.0, *, inplace: bool = ...) -> None: ...

class ELU(FunctionLayer):
    def __init__(self, alpha: Any = 1.0, *, inplace: bool = ...) -> None: ...

class GEGLU(FunctionLayer):
    @overload
    def __init__(self, axis: int = -1, *, inplace: bool = ...) -> None: ...
    @overload
    def __init__(self, dim: int = -1, *, inplace: bool = ...) -> None: ...

class GELU(FunctionLayer):
    def __init__(self, approximate: Any = False, *, inplace: bool = ...) -> None: ...

class GLU(FunctionLayer):
    @overload
    def __init__(self, axis: int = -1, *, inplace: bool = ...) -> None: ...
    @overload
    def __init__(self, dim: int = -1, *, inplace: bool = ...) -> None: ...

class Hardshrink(FunctionLayer):
    def __init__(self, lambd: float = 0.5, *, inplace: bool = ...) -> None: ...

class Hardsigmoid(FunctionLayer):
    def __init__(self, *, inplace: bool = ...) -> None: ...

class Hardswish(FunctionLayer):
    def __init__(self, *, inplace: bool = ...) -> None: ...

class Hardtanh(FunctionLayer):
    def __init__(self, min_val: float = -1.0, max_val: float = 1.0, *, inplace: bool = ...) -> None: ...

class LeakyReLU(FunctionLayer):
    def __init__(self, negative_slope: Any = 0.01, *, inplace: bool = ...) -> None: ...

class LogSigmoid(FunctionLayer):
    def __init__(self, *, inplace: bool = ...) -> None: ...

class LogSoftmax(FunctionLayer):
    @overload
    def __init__(self, axis: Any = -1, *, inplace: bool = ...) -> None: ...
    @overload
    def __init__(self, dim: Any = -1, *, inplace: bool = ...) -> None: ...

class Mish(FunctionLayer):
    def __init__(self, *, inplace: bool = ...) -> None: ...

class QuickGELU(FunctionLayer):
    def __init__(self, *, inplace: bool = ...) -> None: ...

class ReGLU(FunctionLayer):
    @overload
    def __init__(self, axis: int = -1, *, inplace: bool = ...) -> None: ...
    @overload
    def __init__(self, dim: int = -1, *, inplace: bool = ...) -> None: ...

class ReLU(FunctionLayer):
    def __init__(self, *, inplace: bool = ...) -> None: ...

class ReLU6(FunctionLayer):
    def __init__(self, *, inplace: bool = ...) -> None: ...

class RReLU(FunctionLayer):
    def __init__(self, lower: float = 0.125, upper: float = 0.3333333333333333, *, inplace: bool = ...) -> None: ...

class SELU(FunctionLayer):
    def __init__(self, *, inplace: bool = ...) -> None: ...

class SiLU(FunctionLayer):
    def __init__(self, *, inplace: bool = ...) -> None: ...

class Sigmoid(FunctionLayer):
    def __init__(self, *, inplace: bool = ...) -> None: ...

class Softmax(FunctionLayer):
    @overload
    def __init__(self, axis: Any = -1, *, inplace: bool = ...) -> None: ...
    @overload
    def __init__(self, dim: Any = -1, *, inplace: bool = ...) -> None: ...

class Softmin(FunctionLayer):
    @overload
    def __init__(self, axis: Any = -1, *, inplace: bool = ...) -> None: ...
    @overload
    def __init__(self, dim: Any = -1, *, inplace: bool = ...) -> None: ...

class Softplus(FunctionLayer):
    def __init__(self, beta: Any = 1.0, threshold: float | None = None, *, inplace: bool = ...) -> None: ...

class Softshrink(FunctionLayer):
    def __init__(self, lambd: float = 0.5, *, inplace: bool = ...) -> None: ...

class Softsign(FunctionLayer):
    def __init__(self, *, inplace: bool = ...) -> None: ...

class SwiGLU(FunctionLayer):
    @overload
    def __init__(self, axis: int = -1, *, inplace: bool = ...) -> None: ...
    @overload
    def __init__(self, dim: int = -1, *, inplace: bool = ...) -> None: ...

class Tanh(FunctionLayer):
    def __init__(self, *, inplace: bool = ...) -> None: ...

class Tanhshrink(FunctionLayer):
    def __init__(self, *, inplace: bool = ...) -> None: ...

class Threshold(FunctionLayer):
    def __init__(self, threshold: float, value: float, *, inplace: bool = ...) -> None: ...

class BCELoss(FunctionLayer):
    def __init__(self, weight: Any = None, reduction: str = "mean", *, inplace: bool = ...) -> None: ...

class BCEWithLogitsLoss(FunctionLayer):
    def __init__(
        self, weight: Any = None, pos_weight: Any = None, reduction: str = "mean", *, inplace: bool = ...
    ) -> None: ...

class CTCLoss(FunctionLayer):
    def __init__(
        self, blank: int = 0, zero_infinity: bool = False, reduction: str = "mean", *, inplace: bool = ...
    ) -> None: ...

class CosineEmbeddingLoss(FunctionLayer):
    @overload
    def __init__(
        self, margin: float = 0.0, axis: int = -1, eps: float = 1e-08, reduction: str = "mean", *, inplace: bool = ...
    ) -> None: ...
    @overload
    def __init__(
        self, margin: float = 0.0, dim: int = -1, eps: float = 1e-08, reduction: str = "mean", *, inplace: bool = ...
    ) -> None: ...

class CrossEntropyLoss(FunctionLayer):
    @overload
    def __init__(
        self,
        weight: Any = None,
        ignore_index: int | None = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
        axis: int | None = None,
        *,
        inplace: bool = ...,
    ) -> None: ...
    @overload
    def __init__(
        self,
        weight: Any = None,
        ignore_index: int | None = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
        dim: int | None = None,
        *,
        inplace: bool = ...,
    ) -> None: ...

class DiceLoss(FunctionLayer):
    @overload
    def __init__(
        self, axis: Any = None, smooth: float = 1.0, reduction: str = "mean", *, inplace: bool = ...
    ) -> None: ...
    @overload
    def __init__(
        self, dim: Any = None, smooth: float = 1.0, reduction: str = "mean", *, inplace: bool = ...
    ) -> None: ...

class FocalLoss(FunctionLayer):
    def __init__(
        self,
        alpha: float | None = 0.25,
        gamma: float = 2.0,
        weight: Any = None,
        reduction: str = "mean",
        *,
        inplace: bool = ...,
    ) -> None: ...

class GaussianNLLLoss(FunctionLayer):
    def __init__(
        self,
        full: bool = False,
        eps: float = 1e-06,
        weight: Any = None,
        reduction: str = "mean",
        *,
        inplace: bool = ...,
    ) -> None: ...

class HingeEmbeddingLoss(FunctionLayer):
    def __init__(self, margin: float = 1.0, reduction: str = "mean", *, inplace: bool = ...) -> None: ...

class HingeLoss(FunctionLayer):
    def __init__(self, margin: float = 1.0, reduction: str = "mean", *, inplace: bool = ...) -> None: ...

class HuberLoss(FunctionLayer):
    def __init__(
        self, delta: float = 1.0, weight: Any = None, reduction: str = "mean", *, inplace: bool = ...
    ) -> None: ...

class KLDivLoss(FunctionLayer):
    def __init__(self, log_target: bool = False, reduction: str = "mean", *, inplace: bool = ...) -> None: ...

class L1Loss(FunctionLayer):
    def __init__(self, weight: Any = None, reduction: str = "mean", *, inplace: bool = ...) -> None: ...

class LogCoshLoss(FunctionLayer):
    def __init__(self, weight: Any = None, reduction: str = "mean", *, inplace: bool = ...) -> None: ...

class MSELoss(FunctionLayer):
    def __init__(self, weight: Any = None, reduction: str = "mean", *, inplace: bool = ...) -> None: ...

class MarginRankingLoss(FunctionLayer):
    def __init__(self, margin: float = 0.0, reduction: str = "mean", *, inplace: bool = ...) -> None: ...

class MultiLabelMarginLoss(FunctionLayer):
    def __init__(self, reduction: str = "mean", *, inplace: bool = ...) -> None: ...

class MultiLabelSoftMarginLoss(FunctionLayer):
    def __init__(self, weight: Any = None, reduction: str = "mean", *, inplace: bool = ...) -> None: ...

class MultiMarginLoss(FunctionLayer):
    def __init__(
        self, p: int = 1, margin: float = 1.0, weight: Any = None, reduction: str = "mean", *, inplace: bool = ...
    ) -> None: ...

class NLLLoss(FunctionLayer):
    @overload
    def __init__(
        self,
        weight: Any = None,
        ignore_index: int | None = -100,
        reduction: str = "mean",
        axis: int | None = None,
        *,
        inplace: bool = ...,
    ) -> None: ...
    @overload
    def __init__(
        self,
        weight: Any = None,
        ignore_index: int | None = -100,
        reduction: str = "mean",
        dim: int | None = None,
        *,
        inplace: bool = ...,
    ) -> None: ...

class PoissonNLLLoss(FunctionLayer):
    def __init__(
        self,
        log_input: bool = True,
        full: bool = False,
        eps: float = 1e-08,
        weight: Any = None,
        reduction: str = "mean",
        *,
        inplace: bool = ...,
    ) -> None: ...

class QuantileLoss(FunctionLayer):
    def __init__(self, q: Any = 0.5, weight: Any = None, reduction: str = "mean", *, inplace: bool = ...) -> None: ...

class SmoothL1Loss(FunctionLayer):
    def __init__(
        self, beta: float = 1.0, weight: Any = None, reduction: str = "mean", *, inplace: bool = ...
    ) -> None: ...

class SoftMarginLoss(FunctionLayer):
    def __init__(self, weight: Any = None, reduction: str = "mean", *, inplace: bool = ...) -> None: ...

class TripletMarginLoss(FunctionLayer):
    def __init__(
        self,
        margin: float = 1.0,
        p: float = 2.0,
        eps: float = 1e-06,
        swap: bool = False,
        reduction: str = "mean",
        *,
        inplace: bool = ...,
    ) -> None: ...

class CosineSimilarity(FunctionLayer):
    @overload
    def __init__(self, axis: int = 1, eps: float = 1e-08, *, inplace: bool = ...) -> None: ...
    @overload
    def __init__(self, dim: int = 1, eps: float = 1e-08, *, inplace: bool = ...) -> None: ...

class PairwiseDistance(FunctionLayer):
    def __init__(self, p: float = 2.0, eps: float = 1e-06, keepdims: bool = False, *, inplace: bool = ...) -> None: ...

class AdaptiveAvgPool1d(FunctionLayer):
    def __init__(self, output_size: Any, *, inplace: bool = ...) -> None: ...

class AdaptiveAvgPool2d(FunctionLayer):
    def __init__(self, output_size: Any, *, inplace: bool = ...) -> None: ...

class AdaptiveAvgPool3d(FunctionLayer):
    def __init__(self, output_size: Any, *, inplace: bool = ...) -> None: ...

class AdaptiveMaxPool1d(FunctionLayer):
    def __init__(self, output_size: Any, return_indices: bool = False, *, inplace: bool = ...) -> None: ...

class AdaptiveMaxPool2d(FunctionLayer):
    def __init__(self, output_size: Any, return_indices: bool = False, *, inplace: bool = ...) -> None: ...

class AdaptiveMaxPool3d(FunctionLayer):
    def __init__(self, output_size: Any, return_indices: bool = False, *, inplace: bool = ...) -> None: ...

class AvgPool1d(FunctionLayer):
    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
        *,
        inplace: bool = ...,
    ) -> None: ...

class AvgPool2d(FunctionLayer):
    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
        *,
        inplace: bool = ...,
    ) -> None: ...

class AvgPool3d(FunctionLayer):
    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
        *,
        inplace: bool = ...,
    ) -> None: ...

class FractionalMaxPool2d(FunctionLayer):
    def __init__(
        self,
        kernel_size: Any,
        output_size: Any = None,
        output_ratio: Any = None,
        return_indices: bool = False,
        samples: Any = None,
        *,
        inplace: bool = ...,
    ) -> None: ...

class FractionalMaxPool3d(FunctionLayer):
    def __init__(
        self,
        kernel_size: Any,
        output_size: Any = None,
        output_ratio: Any = None,
        return_indices: bool = False,
        samples: Any = None,
        *,
        inplace: bool = ...,
    ) -> None: ...

class LPPool1d(FunctionLayer):
    def __init__(
        self, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False, *, inplace: bool = ...
    ) -> None: ...

class LPPool2d(FunctionLayer):
    def __init__(
        self, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False, *, inplace: bool = ...
    ) -> None: ...

class LPPool3d(FunctionLayer):
    def __init__(
        self, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False, *, inplace: bool = ...
    ) -> None: ...

class MaxPool1d(FunctionLayer):
    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
        *,
        inplace: bool = ...,
    ) -> None: ...

class MaxPool2d(FunctionLayer):
    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
        *,
        inplace: bool = ...,
    ) -> None: ...

class MaxPool3d(FunctionLayer):
    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
        *,
        inplace: bool = ...,
    ) -> None: ...

class MaxUnpool1d(FunctionLayer):
    def __init__(
        self, kernel_size: Any, stride: Any = None, padding: Any = 0, output_size: Any = None, *, inplace: bool = ...
    ) -> None: ...

class MaxUnpool2d(FunctionLayer):
    def __init__(
        self, kernel_size: Any, stride: Any = None, padding: Any = 0, output_size: Any = None, *, inplace: bool = ...
    ) -> None: ...

class MaxUnpool3d(FunctionLayer):
    def __init__(
        self, kernel_size: Any, stride: Any = None, padding: Any = 0, output_size: Any = None, *, inplace: bool = ...
    ) -> None: ...

class AlphaDropout(FunctionLayer):
    def __init__(self, p: float = 0.5, *, inplace: bool = ...) -> None: ...

class DropPath(FunctionLayer):
    def __init__(self, p: float = 0.5, *, inplace: bool = ...) -> None: ...

class Dropout1d(FunctionLayer):
    def __init__(self, p: float = 0.5, *, inplace: bool = ...) -> None: ...

class Dropout2d(FunctionLayer):
    def __init__(self, p: float = 0.5, *, inplace: bool = ...) -> None: ...

class Dropout3d(FunctionLayer):
    def __init__(self, p: float = 0.5, *, inplace: bool = ...) -> None: ...

class FeatureAlphaDropout(FunctionLayer):
    @overload
    def __init__(self, p: float = 0.5, axis: Any = (0, 1), *, inplace: bool = ...) -> None: ...
    @overload
    def __init__(self, p: float = 0.5, dim: Any = (0, 1), *, inplace: bool = ...) -> None: ...

class Flatten(FunctionLayer):
    @overload
    def __init__(self, start_axis: int = 1, end_axis: int = -1, *, inplace: bool = ...) -> None: ...
    @overload
    def __init__(self, start_dim: int = 1, end_dim: int = -1, *, inplace: bool = ...) -> None: ...

class Fold(FunctionLayer):
    def __init__(
        self,
        output_size: Any,
        kernel_size: Any,
        dilation: Any = 1,
        padding: Any = 0,
        stride: Any = 1,
        *,
        inplace: bool = ...,
    ) -> None: ...

class LocalResponseNorm(FunctionLayer):
    @overload
    def __init__(
        self,
        size: int,
        alpha: float = 0.0001,
        beta: float = 0.75,
        k: float = 1.0,
        axis: int = 1,
        *,
        inplace: bool = ...,
    ) -> None: ...
    @overload
    def __init__(
        self, size: int, alpha: float = 0.0001, beta: float = 0.75, k: float = 1.0, dim: int = 1, *, inplace: bool = ...
    ) -> None: ...

class PixelShuffle(FunctionLayer):
    def __init__(self, upscale_factor: int, *, inplace: bool = ...) -> None: ...

class PixelUnshuffle(FunctionLayer):
    def __init__(self, downscale_factor: int, *, inplace: bool = ...) -> None: ...

class Unflatten(FunctionLayer):
    @overload
    def __init__(self, axis: int, sizes: Any, *, inplace: bool = ...) -> None: ...
    @overload
    def __init__(self, dim: int, unflattened_size: Any, *, inplace: bool = ...) -> None: ...

class Unfold(FunctionLayer):
    def __init__(
        self, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1, *, inplace: bool = ...
    ) -> None: ...

class Upsample(FunctionLayer):
    def __init__(
        self,
        size: Any = None,
        scale_factor: Any = None,
        mode: str = "nearest",
        align_corners: bool = False,
        *,
        inplace: bool = ...,
    ) -> None: ...
