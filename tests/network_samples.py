"""One record for each call of a function of networks: what it is called with, from which every role is tested."""

from dataclasses import dataclass, replace

import numpy as np

import pullback as pb

nn = pb.nn
RNG = np.random.default_rng(5)
KEY = pb.random.key(3)


def normal(*shape):
    return RNG.normal(size=shape)


def positive(*shape):
    return 0.1 + RNG.random(shape)


def probabilities(*shape):
    p = positive(*shape)
    return p / p.sum(axis=-1, keepdims=True)


def signs(*shape):
    return RNG.choice([-1.0, 1.0], size=shape)


def labels(count, *shape):
    return RNG.integers(0, count, size=shape)


@dataclass(frozen=True)
class Sample:
    """A call of a function. Arrays of floats among its places are differentiated; the rest stays as it is.

    `far`: it must hold at 1e4 and -1e4 too. `drawn`: its numbers hang on the dtype. `held`: a part of it is a
    constant to derivatives on purpose, so differences do not agree.
    """

    name: str
    places: tuple
    options: dict
    far: bool = False
    drawn: bool = False
    held: bool = False

    def __str__(self):
        return self.name

    @property
    def arrays(self):
        return tuple(p for p in self.places if is_moving(p))

    def call(self, *given):
        left, function = iter(given), getattr(nn, self.name.split(":")[0])
        return function(*(next(left) if is_moving(p) else p for p in self.places), **self.options)

    def narrowed(self):
        """The same with every number in float32."""

        def narrow(p):
            return p.astype(np.float32) if is_moving(p) else p

        options = {name: narrow(option) for name, option in self.options.items()}
        return replace(self, places=tuple(map(narrow, self.places)), options=options)


def is_moving(place):
    return type(place) is np.ndarray and place.dtype.kind == "f"


def sample(name, *places, label="", far=False, drawn=False, held=False, **options):
    return Sample(name + label, places, options, far, drawn, held)


BENT = (
    *("relu", "sigmoid", "tanh", "silu", "swish", "leaky_relu", "elu", "celu", "selu", "gelu", "quick_gelu", "mish"),
    *("softplus", "logsigmoid", "squareplus", "softsign", "tanhshrink", "relu6", "hardtanh", "hardsigmoid"),
    *("hardswish", "hardshrink", "softshrink", "rrelu"),
)
ACTIVATIONS = [
    *(sample(name, 2 * normal(2, 3), far=True) for name in BENT),
    sample("gelu", normal(3), approximate="tanh", label=":tanh", far=True),
    sample("celu", normal(4), alpha=0.5, label=":alpha", far=True),
    sample("elu", normal(4), alpha=2.0, label=":alpha", far=True),
    sample("softplus", normal(4), beta=3.0, threshold=1.0, label=":threshold", far=True),
    sample("squareplus", normal(4), b=0.25, label=":b", far=True),
    sample("prelu", normal(2, 3, 2), positive(3)),
    sample("prelu", normal(2, 3), positive(1), label=":one"),
    sample("rrelu", normal(6), training=True, key=KEY, label=":training", drawn=True),
    sample("threshold", normal(5), threshold=0.1, value=20.0),
    sample("relu_squared", normal(4)),
    sample("star_relu", normal(4), np.array(0.9), np.array(-0.4)),
    *(sample(name, normal(2, 6), far=True) for name in ("glu", "geglu", "swiglu", "reglu")),
    sample("glu", normal(4, 2), axis=0, label=":axis"),
    *(sample(name, normal(2, 4), far=True) for name in ("softmax", "log_softmax", "softmin")),
    sample("softmax", normal(3, 4), axis=0, label=":axis"),
    sample("gumbel_softmax", normal(2, 4), key=KEY, drawn=True),
]
NORMS = [
    sample("layer_norm", normal(2, 4), normal(4), normal(4)),
    sample("layer_norm", normal(2, 3, 4), normal(3, 4), axis=(1, 2), label=":axes"),
    sample("layer_norm", np.ones((2, 3)), normal(3), label=":equal"),
    sample("layer_norm", normal(3, 1), label=":one"),
    sample("rms_norm", normal(2, 4), normal(4)),
    sample("rms_norm", np.zeros((1, 3)), eps=1e-2, label=":zero"),
    sample("group_norm", normal(2, 6, 3), 3, normal(6), normal(6)),
    sample("group_norm:single", normal(2, 3), 3),
    sample("instance_norm", normal(2, 3, 4), normal(3), normal(3)),
    sample("batch_norm:training", normal(4, 3, 2), None, None, normal(3), normal(3), training=True),
    sample("batch_norm:inference", normal(4, 3), normal(3), positive(3), normal(3), normal(3)),
    sample("batch_norm:single", normal(1, 3), None, None, training=True),
    sample("local_response_norm", normal(2, 5, 3), size=3, alpha=0.5),
    sample("normalize", normal(3, 4)),
    sample("normalize", positive(3, 4), p=3.0, axis=0, label=":cubes"),
    sample("cosine_similarity", normal(2, 4), normal(4)),
    sample("weight_norm", normal(3, 2, 2), positive(3)),
    sample("spectral_norm", normal(3, 4), u=normal(3), steps=2, held=True),
]
DROPOUTS = [
    *(sample(name, normal(4, 5), p=0.3, key=KEY) for name in ("dropout", "alpha_dropout", "drop_path")),
    *(sample(name, normal(2, 3, 4), key=KEY) for name in ("feature_dropout", "feature_alpha_dropout", "dropout1d")),
    sample("dropout2d", normal(2, 3, 2, 2), key=KEY),
    sample("dropout3d", normal(2, 3, 2, 2, 1), key=KEY),
    sample("dropout", normal(4), training=False, label=":inference"),
    sample("dropout", normal(4), p=1.0, label=":all"),
]
TABLES = [
    sample("embedding", labels(5, 2, 3), normal(5, 4)),
    sample("embedding:short", labels(3, 6), normal(3, 2), max_norm=0.5),
    sample("embedding:padding", labels(3, 6), normal(3, 2), padding_idx=1, held=True),
    *(sample(f"embedding_bag:{m}", labels(5, 2, 3), normal(5, 4), mode=m) for m in ("sum", "mean", "max")),
    *(
        sample(f"embedding_bag:{m} offsets", labels(5, 6), normal(5, 2), np.array([0, 2, 2]), mode=m, padding_idx=0)
        for m in ("sum", "mean", "max")
    ),
    sample("linear", normal(2, 3), normal(4, 3), normal(4)),
    sample("bilinear", normal(2, 3), normal(2, 2), normal(4, 3, 2), normal(4)),
    sample("embedding_bag:weights", labels(3, 2, 2), normal(3, 2), mode="sum", per_sample_weights=normal(2, 2)),
]
IMAGES = [
    *(sample("interpolate", normal(1, 2, 5), size=n, mode="linear", label=f":linear {n}") for n in (3, 8)),
    *(sample("interpolate", normal(1, 2, 5), size=n, mode="nearest", label=f":nearest {n}") for n in (3, 8)),
    sample("interpolate", normal(1, 1, 70), size=75, mode="linear", label=":long"),
    sample("interpolate", normal(1, 2, 4, 5), size=(6, 3), mode="bilinear", align_corners=True, label=":bilinear"),
    sample("interpolate", normal(1, 1, 4, 5), size=(6, 3), mode="bicubic", label=":bicubic"),
    sample("interpolate", normal(1, 1, 6, 6), size=(2, 4), mode="bicubic", antialias=True, label=":smooth"),
    sample("interpolate", normal(1, 1, 3, 3, 3), scale_factor=2, mode="trilinear", label=":trilinear"),
    sample("interpolate", normal(1, 1, 5, 4), size=(2, 3), mode="area", label=":area"),
    sample("upsample", normal(1, 1, 2, 3), scale_factor=(2, 3)),
    *(
        sample("grid_sample", normal(1, 2, 3, 4), 0.7 * normal(1, 2, 2, 2), mode=m, padding_mode=p, label=f":{m} {p}")
        for m in ("bilinear", "nearest", "bicubic")
        for p in ("zeros", "border", "reflection")
    ),
    sample("grid_sample", normal(1, 1, 2, 3, 2), 0.5 * normal(1, 1, 2, 1, 3), label=":volume"),
    sample("affine_grid", normal(2, 2, 3), size=(2, 1, 3, 2)),
]
_PAIR = (normal(2, 3), normal(2, 3))
LOSSES = [
    *(
        sample(name, *_PAIR, far=True)
        for name in ("mse_loss", "l1_loss", "huber_loss", "smooth_l1_loss", "log_cosh_loss", "quantile_loss")
    ),
    *(sample("mse_loss", *_PAIR, reduction=r, label=f":{r}") for r in ("none", "sum")),
    sample("mse_loss", normal(2, 3), normal(3), weight=positive(3), label=":weight"),
    sample("smooth_l1_loss", *_PAIR, beta=0.0, label=":l1"),
    sample("quantile_loss", *_PAIR, q=0.9, label=":q"),
    sample("poisson_nll_loss", normal(4), positive(4), full=True),
    sample("poisson_nll_loss", positive(4), 3 * positive(4), log_input=False, full=True, label=":rate"),
    sample("gaussian_nll_loss", normal(2, 3), normal(2, 3), positive(2, 3), full=True),
    sample("gaussian_nll_loss", normal(2, 3), normal(2, 3), positive(2), label=":rows"),
    sample("cross_entropy", normal(4, 3), labels(3, 4)),
    sample("cross_entropy:none", normal(4, 3), labels(3, 4), reduction="none"),
    sample("cross_entropy:one", normal(3), np.array(2)),
    sample("cross_entropy:places", normal(2, 3, 2, 2), labels(3, 2, 2, 2), ignore_index=1),
    sample("cross_entropy:last", normal(2, 4, 3), labels(3, 2, 4), axis=-1, label_smoothing=0.1),
    sample("cross_entropy:ignored", normal(3, 4), np.array([-100, 2, -100]), weight=positive(4), label_smoothing=0.2),
    sample("cross_entropy:all ignored", normal(2, 4), np.array([-100, -100])),
    sample("cross_entropy", normal(2, 4), probabilities(2, 4), label=":probabilities", label_smoothing=0.1),
    sample("cross_entropy", normal(2, 4), probabilities(2, 4), label=":weighed", weight=positive(4)),
    sample("nll_loss", normal(4, 3), labels(3, 4), weight=positive(3)),
    sample("nll_loss:ignored", normal(2, 3, 2), labels(3, 2, 2), ignore_index=0, reduction="sum"),
    sample("binary_cross_entropy", 0.8 * positive(2, 3), RNG.random((2, 3))),
    sample("binary_cross_entropy_with_logits", normal(2, 3), RNG.random((2, 3)), pos_weight=positive(3), far=True),
    sample("soft_margin_loss", normal(4), signs(4), far=True),
    sample("multilabel_soft_margin_loss", normal(2, 3), RNG.random((2, 3)), far=True),
    sample("focal_loss", normal(2, 3), RNG.random((2, 3)), far=True),
    sample("focal_loss", normal(4), RNG.random(4), alpha=None, gamma=0.5, label=":gamma", far=True),
    sample("dice_loss", RNG.random((2, 5)), RNG.random((2, 5))),
    sample("hinge_loss", normal(5), signs(5), far=True),
    sample("squared_hinge_loss", normal(5), signs(5), far=True),
    sample("hinge_embedding_loss", normal(5), signs(5).astype(int)),
    sample("margin_ranking_loss", normal(5), normal(5), signs(5).astype(int), margin=0.5),
    sample("cosine_embedding_loss", normal(4, 3), normal(4, 3), signs(4).astype(int), margin=-0.5),
    sample("triplet_margin_loss", normal(4, 3), normal(4, 3), normal(4, 3), margin=2.0),
    sample("triplet_margin_loss", normal(4, 3), normal(4, 3), normal(4, 3), swap=True, margin=2.0, label=":swap"),
    sample("multi_margin_loss", normal(4, 3), labels(3, 4), p=2, weight=positive(3)),
    sample("multilabel_margin_loss", normal(2, 4), np.array([[3, 0, -1, 1], [1, -1, 2, 2]])),
    sample("kl_div", np.log(probabilities(2, 3)), probabilities(2, 3), reduction="batchmean"),
    sample("kl_div", np.log(probabilities(2, 3)), np.log(probabilities(2, 3)), log_target=True, label=":logs"),
    sample("js_div", probabilities(2, 3), probabilities(2, 3), reduction="batchmean"),
    sample("info_nce", normal(3, 4), normal(5, 4), temperature=0.5),
    sample("info_nce", normal(3, 4), normal(3, 4), symmetric=True, temperature=0.5, label=":symmetric"),
    sample("ctc_loss", np.log(probabilities(4, 2, 3)), np.array([[1, 1], [2, 1]])),
    sample(
        "ctc_loss:lengths", np.log(probabilities(4, 2, 3)), np.array([[1, 2, 1], [2, 0, 0]]), np.array([4, 3]),
        np.array([3, 1]), reduction="sum",
    ),
]  # fmt: skip
SAMPLES = [*ACTIVATIONS, *NORMS, *DROPOUTS, *TABLES, *IMAGES, *LOSSES]
