"""PyTorch's functions of networks by ours: `dim` is `axis`, and shapes of norms are the axes they stand for."""

import numpy as np

import pullback as pb

from .forms import lifted

nn = pb.nn


def _last(shape):
    """The axes that a normalized_shape means."""
    return tuple(range(-len(shape), 0))


def _rms_norm(x, shape, weight=None, eps=None):
    return nn.rms_norm(x, weight, axis=_last(shape), eps=np.finfo(np.float64).eps if eps is None else eps)


def _batch_norm(x, mean, var, weight=None, bias=None, *, training=False, momentum=0.1, eps=1e-5):
    return nn.batch_norm(x, mean, var, weight, bias, training=training, momentum=momentum, eps=eps)[0]


def _instance_norm(x, *, running_mean=None, running_var=None, weight=None, bias=None, eps=1e-5, **momentum):
    return nn.instance_norm(x, weight, bias, eps=eps)


def _interpolate(x, size=None, *, scale_factor=None, align_corners=None, recompute_scale_factor=None, **mode):
    if scale_factor is not None and (recompute_scale_factor or mode.get("mode") == "area"):
        size, scale_factor = [int(n * scale_factor) for n in x.shape[2:]], None
    return nn.interpolate(x, size, scale_factor=scale_factor, align_corners=bool(align_corners), **mode)


def _embedding_bag(weight, indices, offsets=None, **options):
    return nn.embedding_bag(indices, weight, offsets, **options)


def _of_rows(loss):
    """A loss whose scores have an axis of classes: torch lets a 0-d tensor pass for one class."""

    def call(x, labels, **options):
        x = x if x.ndim else pb.reshape(x, (1,))
        return loss(x, labels.reshape(x.shape[:-1] if loss is nn.multi_margin_loss else x.shape), **options)

    return call


def _target_stretched(loss):
    """Where torch's sample has a target, or an input, that broadcasts to the other."""

    def call(x, y, *rest, **options):
        shape = np.broadcast_shapes(x.shape, y.shape, *(r.shape for r in rest))
        return loss(pb.broadcast_to(x, shape), y, *rest, **options)

    return call


_PLAIN = (
    *("celu", "elu", "gelu", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu", "logsigmoid", "mish", "prelu"),
    *("relu", "relu6", "selu", "silu", "softplus", "softshrink", "softsign", "tanhshrink", "threshold", "bilinear"),
    *("binary_cross_entropy", "binary_cross_entropy_with_logits", "cosine_embedding_loss", "cross_entropy"),
    *("grid_sample", "group_norm", "hinge_embedding_loss", "huber_loss", "kl_div", "linear", "local_response_norm"),
    *("margin_ranking_loss", "mse_loss", "multilabel_soft_margin_loss", "nll_loss", "poisson_nll_loss"),
    *("smooth_l1_loss", "soft_margin_loss", "triplet_margin_loss"),
)

NETWORKS = {f"nn.functional.{name}": getattr(nn, name) for name in _PLAIN} | {
    "nn.functional.softmin": lambda x, dim, *, dtype=None: lifted(lambda v: nn.softmin(v, axis=dim), x),
    "nn.functional.glu": lambda x, dim=-1: nn.glu(x, axis=dim),
    "nn.functional.hardshrink": lambda x, lambd=0.5: nn.hardshrink(x, lambd),
    "nn.functional.layer_norm": lambda x, shape, weight=None, bias=None, eps=1e-5: nn.layer_norm(
        x, weight, bias, axis=_last(shape), eps=eps
    ),
    "nn.functional.rms_norm": _rms_norm,
    "nn.functional.batch_norm": _batch_norm,
    "nn.functional.instance_norm": _instance_norm,
    "nn.functional.normalize": lambda x, p=2.0, dim=1: nn.normalize(x, p, axis=dim),
    "nn.functional.cosine_similarity": lambda x, y, *, dim=1, eps=1e-8: nn.cosine_similarity(x, y, axis=dim, eps=eps),
    "nn.functional.embedding": lambda weight, indices, **options: nn.embedding(indices, weight, **options),
    "nn.functional.embedding_bag": _embedding_bag,
    "nn.functional.interpolate": _interpolate,
    "nn.functional.upsample_bilinear": lambda x, size=None, scale_factor=None: nn.interpolate(
        x, size, scale_factor=scale_factor, mode="bilinear", align_corners=True
    ),
    "nn.functional.upsample_nearest": lambda x, size=None, scale_factor=None: nn.upsample(
        x, size, scale_factor=scale_factor
    ),
    "nn.functional.multi_margin_loss": _of_rows(nn.multi_margin_loss),
    "nn.functional.multilabel_margin_loss": _of_rows(nn.multilabel_margin_loss),
    "nn.functional.gaussian_nll_loss": _target_stretched(nn.gaussian_nll_loss),
}
