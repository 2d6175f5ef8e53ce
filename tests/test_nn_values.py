"""The values of functions of networks against formulas written out in NumPy, enumeration, or 40 digits."""

import itertools
import math

import mpmath
import numpy as np
import pytest

import pullback as pb

nn = pb.nn
RNG = np.random.default_rng(11)
X = np.concatenate([3 * RNG.normal(size=20), [0.0, -1e-9, 1e-9, 30.0, -30.0]])


def expit(x):
    return np.where(x >= 0, 1 / (1 + np.exp(-np.abs(x))), np.exp(-np.abs(x)) / (1 + np.exp(-np.abs(x))))


def erf(x):
    return np.array([math.erf(v) for v in x.ravel()]).reshape(x.shape)


def log1pexp(x):
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


#: Each activation and a formula of x.
FORMULAS = {
    "relu6": lambda x: np.minimum(np.maximum(x, 0), 6),
    "leaky_relu": lambda x: np.where(x > 0, x, 0.01 * x),
    "elu": lambda x: np.where(x > 0, x, np.exp(np.minimum(x, 0)) - 1),
    "celu": lambda x: np.maximum(x, 0) + np.minimum(0, np.exp(np.minimum(x, 0)) - 1),
    "selu": lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * (np.exp(np.minimum(x, 0)) - 1)),
    "gelu": lambda x: x * (1 + erf(x / math.sqrt(2))) / 2,
    "quick_gelu": lambda x: x * expit(1.702 * x),
    "silu": lambda x: x * expit(x),
    "swish": lambda x: x * expit(x),
    "mish": lambda x: x * np.tanh(log1pexp(x)),
    "softplus": log1pexp,
    "softsign": lambda x: x / (1 + np.abs(x)),
    "logsigmoid": lambda x: -log1pexp(-x),
    "hardswish": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    "hardsigmoid": lambda x: np.clip(x + 3, 0, 6) / 6,
    "hardtanh": lambda x: np.clip(x, -1, 1),
    "hardshrink": lambda x: np.where(np.abs(x) > 0.5, x, 0),
    "softshrink": lambda x: np.sign(x) * np.maximum(np.abs(x) - 0.5, 0),
    "tanhshrink": lambda x: x - np.tanh(x),
    "relu_squared": lambda x: np.maximum(x, 0) ** 2,
    "star_relu": lambda x: 0.8944271909999159 * np.maximum(x, 0) ** 2 - 0.4472135954999579,
    "rrelu": lambda x: np.where(x > 0, x, x * (1 / 8 + 1 / 3) / 2),
    "softmin": lambda x: np.exp(-x - np.max(-x)) / np.exp(-x - np.max(-x)).sum(),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_activations_are_their_formulas(name):
    np.testing.assert_allclose(getattr(nn, name)(X), FORMULAS[name](X), rtol=1e-12, atol=1e-15)


def test_gates():
    x = RNG.normal(size=(3, 4, 2))
    a, b = x[:, :2], x[:, 2:]
    gates = {"glu": expit, "geglu": FORMULAS["gelu"], "swiglu": FORMULAS["silu"], "reglu": lambda v: np.maximum(v, 0)}
    for name, gate in gates.items():
        np.testing.assert_allclose(getattr(nn, name)(x, axis=1), a * gate(b), rtol=1e-12)


@pytest.mark.parametrize("x", [-1e4, -1e3, -3.0, -1e-5, 0.0, 2e-6, 0.5, 0.999, 1.0, 7.0, 1e4])
def test_digits_where_a_formula_would_cancel(x):
    with mpmath.workdps(40):
        squareplus = float((mpmath.mpf(x) + mpmath.sqrt(mpmath.mpf(x) ** 2 + 4)) / 2)
        log_cosh = float(mpmath.log(mpmath.cosh(x)))
        logsigmoid = float(-mpmath.log1p(mpmath.exp(-mpmath.mpf(x))))
    np.testing.assert_allclose(nn.squareplus(x), squareplus, rtol=1e-15)
    np.testing.assert_allclose(nn.log_cosh_loss(np.array([x]), np.zeros(1)), log_cosh, rtol=4e-15)
    np.testing.assert_allclose(nn.logsigmoid(x), logsigmoid, rtol=1e-15)


def moments(x, axes):
    mean = x.mean(axis=axes, keepdims=True)
    return mean, ((x - mean) ** 2).mean(axis=axes, keepdims=True)


def test_norms():
    x, w, b = RNG.normal(size=(3, 4, 5)), RNG.normal(size=4), RNG.normal(size=4)
    along = (slice(None), None)
    for axes, found in (
        ((2,), nn.layer_norm(x)),
        ((1, 2), nn.layer_norm(x, axis=(1, 2))),
        ((2,), nn.instance_norm(x)),
        ((0, 2), nn.batch_norm(x, training=True)[0]),
        ((1, 2), nn.group_norm(x, 1)),
        ((2,), nn.group_norm(x, 4)),
    ):
        mean, var = moments(x, axes)
        np.testing.assert_allclose(found, (x - mean) / np.sqrt(var + 1e-5), rtol=1e-12)
    mean, var = moments(x.reshape(3, 2, 10), (2,))
    pairs = ((x.reshape(3, 2, 10) - mean) / np.sqrt(var + 1e-5)).reshape(x.shape)
    np.testing.assert_allclose(nn.group_norm(x, 2, w, b), pairs * w[along] + b[along], rtol=1e-12)
    np.testing.assert_allclose(nn.rms_norm(x), x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6), rtol=1e-12)


def test_batch_norm_hands_out_running_statistics_and_changes_nothing():
    x, mean, var = RNG.normal(size=(6, 3)), np.zeros(3), np.ones(3)
    _, new_mean, new_var = nn.batch_norm(x, mean, var, training=True, momentum=0.25)
    np.testing.assert_allclose(new_mean, 0.25 * x.mean(0), rtol=1e-12)
    np.testing.assert_allclose(new_var, 0.75 + 0.25 * x.var(0, ddof=1), rtol=1e-12)
    assert (mean == 0).all()
    assert (var == 1).all()
    y, same_mean, same_var = nn.batch_norm(x, new_mean, new_var)
    np.testing.assert_allclose(y, (x - new_mean) / np.sqrt(new_var + 1e-5), rtol=1e-12)
    assert same_mean is new_mean
    assert same_var is new_var


def test_running_statistics_carry_no_graph():
    x = pb.tensor(RNG.normal(size=(6, 3)), requires_grad=True)
    y, mean, var = nn.batch_norm(x, np.zeros(3), np.ones(3), training=True)
    assert y.requires_grad
    assert not mean.requires_grad
    assert not var.requires_grad


def test_lengths():
    w = RNG.normal(size=(3, 4))
    np.testing.assert_allclose(np.linalg.norm(nn.weight_norm(w, np.arange(1.0, 4)), axis=1), [1, 2, 3], rtol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(nn.weight_norm(w, np.array(2.0), axis=None)), 2, rtol=1e-12)
    scaled, u = nn.spectral_norm(w, steps=200, key=pb.random.key(0))
    np.testing.assert_allclose(np.linalg.norm(scaled, 2), 1, rtol=1e-10)
    exact = pb.grad(lambda m: pb.sum((m / pb.linalg.matrix_norm(m, ord=2)) ** 3))(w)
    found = pb.grad(lambda m: pb.sum(nn.spectral_norm(m, u)[0] ** 3))(w)
    np.testing.assert_allclose(found, exact, rtol=1e-8)


@pytest.mark.parametrize("p", [0.2, 0.5, 0.9])
def test_dropout_drops_its_share_and_keeps_the_mean(p):
    x = np.full(40_000, 3.0)
    y = nn.dropout(x, p, key=pb.random.key(1))
    np.testing.assert_allclose((y == 0).mean(), p, atol=0.01)
    np.testing.assert_allclose(np.unique(y), [0, 3 / (1 - p)])
    noise = np.random.default_rng(0).normal(size=40_000)
    after = nn.alpha_dropout(noise, p, key=pb.random.key(1))
    np.testing.assert_allclose([after.mean(), after.var()], [0, 1], atol=0.03)
    assert (nn.dropout(x, p, key=pb.random.key(1)) == y).all()
    assert (pb.jit(lambda v, k: nn.dropout(v, p, key=k))(x, pb.random.key(1)) == y).all()


def test_whole_channels_and_samples_are_dropped_together():
    x = np.ones((8, 5, 3, 4))
    by_channel = nn.dropout2d(x, key=pb.random.key(0)).reshape(40, 12)
    by_sample = nn.drop_path(x, key=pb.random.key(0)).reshape(8, 60)
    for rows in (by_channel, by_sample):
        assert (rows == rows[:, :1]).all()
        assert set(np.unique(rows)) == {0.0, 2.0}
    assert (nn.feature_dropout(x, key=pb.random.key(0)).reshape(40, 12) == by_channel).all()
    one = nn.dropout2d(x[0], key=pb.random.key(0)).reshape(5, 12)
    assert (one == one[:, :1]).all()


def test_default_generator_serves_without_a_key():
    pb.random.seed(4)
    first, second = nn.dropout(np.ones(64)), nn.dropout(np.ones(64))
    assert (first != second).any()
    pb.random.seed(4)
    assert (nn.dropout(np.ones(64)) == first).all()


def test_embeddings():
    table = RNG.normal(size=(6, 3))
    index = RNG.integers(0, 6, size=(2, 4))
    np.testing.assert_array_equal(nn.embedding(index, table), table[index])
    short = nn.embedding(index, table, max_norm=0.7)
    sizes = np.linalg.norm(table[index], axis=-1)
    np.testing.assert_allclose(np.linalg.norm(short, axis=-1), np.minimum(sizes, 0.7), rtol=1e-12)
    kept = pb.grad(lambda t: pb.sum(nn.embedding(index, t, padding_idx=-1)))(table)
    counts = np.bincount(index.ravel(), minlength=6)
    counts[5] = 0
    np.testing.assert_array_equal(kept, np.repeat(counts[:, None], 3, axis=1))


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags(mode):
    table, index, offsets = RNG.normal(size=(6, 3)), RNG.integers(0, 6, size=9), [0, 4, 4, 7]
    bags = [index[a:b] for a, b in itertools.pairwise([*offsets, 9])]
    fold = {"sum": np.sum, "mean": np.mean, "max": np.max}[mode]

    def of(bag):
        return fold(table[bag], axis=0) if len(bag) else np.zeros(3)

    found = nn.embedding_bag(index, table, np.array(offsets), mode=mode)
    np.testing.assert_allclose(found, [of(bag) for bag in bags], rtol=1e-12)
    last = nn.embedding_bag(index, table, np.array([*offsets, 9]), mode=mode, include_last_offset=True)
    np.testing.assert_allclose(last, found)
    padded = nn.embedding_bag(index, table, np.array(offsets), mode=mode, padding_idx=int(index[0]))
    np.testing.assert_allclose(padded, [of(bag[bag != index[0]]) for bag in bags], rtol=1e-12)
    rows = index.reshape(3, 3)
    np.testing.assert_allclose(nn.embedding_bag(rows, table, mode=mode), [of(bag) for bag in rows], rtol=1e-12)
    padded = nn.embedding_bag(rows, table, mode=mode, padding_idx=int(index[0]))
    np.testing.assert_allclose(padded, [of(bag[bag != index[0]]) for bag in rows], rtol=1e-12)
    assert (nn.embedding_bag(np.zeros((2, 0), int), table, mode=mode) == np.zeros((2, 3))).all()


def test_linear_maps():
    x, y, w, b = RNG.normal(size=(2, 5, 3)), RNG.normal(size=(2, 5, 4)), RNG.normal(size=(6, 3, 4)), RNG.normal(size=6)
    wanted = np.einsum("nki,oij,nkj->nko", x, w, y) + b
    np.testing.assert_allclose(nn.bilinear(x, y, w, b), wanted, rtol=1e-12)
    np.testing.assert_allclose(nn.linear(x, w[:, :, 0], b), x @ w[:, :, 0].T + b, rtol=1e-12)


def test_softmax_cross_entropy_by_hand():
    x = RNG.normal(size=(4, 5, 2))
    p = np.exp(x) / np.exp(x).sum(axis=1, keepdims=True)
    labels, w = np.array([[0, 4], [2, -1], [3, 3], [-1, 1]]), RNG.random(5)
    soft = np.full((4, 5, 2), 0.1 / 5)
    for n, k in np.argwhere(labels >= 0):
        soft[n, labels[n, k], k] += 0.9
    losses = -(soft * w[:, None] * np.log(p)).sum(axis=1) * (labels >= 0)
    found = nn.cross_entropy(x, labels, weight=w, ignore_index=-1, label_smoothing=0.1, reduction="none")
    np.testing.assert_allclose(found, losses, rtol=1e-12)
    share = (w[labels] * (labels >= 0)).sum()
    mean = nn.cross_entropy(x, labels, weight=w, ignore_index=-1, label_smoothing=0.1)
    np.testing.assert_allclose(mean, losses.sum() / share, rtol=1e-12)
    hard = np.eye(5)[np.maximum(labels, 0)].transpose(0, 2, 1)
    both = [nn.cross_entropy(x, t, weight=w, reduction="none") for t in (np.maximum(labels, 0), hard)]
    np.testing.assert_allclose(*both, rtol=1e-12)
    flat = nn.cross_entropy(x.transpose(0, 2, 1), np.maximum(labels, 0), weight=w, reduction="none", axis=-1)
    np.testing.assert_allclose(flat, both[0], rtol=1e-12)


def test_other_losses_are_their_formulas():
    x, t, p = RNG.normal(size=(3, 4)), RNG.normal(size=(3, 4)), RNG.random((3, 4))
    y, q = (p > 0.5).astype(float), RNG.random((3, 4))
    s = expit(x)
    truth = np.where(y == 1, s, 1 - s)
    middle, share = (p + q) / 2, np.where(y == 1, 0.25, 0.75)
    for found, wanted in (
        (nn.log_cosh_loss(x, t, reduction="none"), np.log(np.cosh(x - t))),
        (nn.quantile_loss(x, t, 0.3, reduction="none"), np.maximum(0.3 * (t - x), 0.7 * (x - t))),
        (nn.l1_loss(x, t, reduction="none"), np.abs(x - t)),
        (nn.focal_loss(x, y, gamma=1.5, reduction="none"), share * (1 - truth) ** 1.5 * -np.log(truth)),
        (nn.dice_loss(p, y), (1 - (2 * (p * y).sum(1) + 1) / ((p + y).sum(1) + 1)).mean()),
        (nn.hinge_loss(x, 2 * y - 1, reduction="none"), np.maximum(0, 1 - x * (2 * y - 1))),
        (nn.squared_hinge_loss(x, 2 * y - 1, reduction="none"), np.maximum(0, 1 - x * (2 * y - 1)) ** 2),
        (nn.js_div(p, q, reduction="none"), (p * np.log(p / middle) + q * np.log(q / middle)) / 2),
        (nn.kl_div(np.log(q), p, reduction="sum"), (p * np.log(p / q)).sum()),
        (nn.smooth_l1_loss(x, t, 0.0), np.abs(x - t).mean()),
        (nn.binary_cross_entropy(p, y), -np.log(np.where(y == 1, p, 1 - p)).mean()),
    ):  # fmt: skip
        np.testing.assert_allclose(found, wanted, rtol=1e-12)


def test_info_nce():
    q, k = RNG.normal(size=(3, 4)), RNG.normal(size=(3, 4))
    cosines = (q / np.linalg.norm(q, axis=1)[:, None]) @ (k / np.linalg.norm(k, axis=1)[:, None]).T / 0.1
    there = np.log(np.exp(cosines).sum(1)) - np.diag(cosines)
    back = np.log(np.exp(cosines).sum(0)) - np.diag(cosines)
    np.testing.assert_allclose(nn.info_nce(q, k, temperature=0.1), there.mean(), rtol=1e-12)
    np.testing.assert_allclose(
        nn.info_nce(q, k, temperature=0.1, symmetric=True), (there + back).mean() / 2, rtol=1e-12
    )


def read(path, blank):
    """What a path of symbols says: repeats once, blanks not at all."""
    return [s for i, s in enumerate(path) if s != blank and (i == 0 or s != path[i - 1])]


@pytest.mark.parametrize("blank", [0, 2])
@pytest.mark.parametrize("label", [[], [1], [1, 1], [1, 3, 1]])
def test_ctc_is_the_sum_over_all_paths(label, blank):
    p = RNG.random((5, 1, 4))
    p /= p.sum(axis=-1, keepdims=True)
    paths = [s for s in itertools.product(range(4), repeat=5) if read(s, blank) == label]
    total = sum(math.prod(p[t, 0, s] for t, s in enumerate(path)) for path in paths)
    target = np.array([label], dtype=int).reshape(1, len(label))
    found = nn.ctc_loss(np.log(p), target, blank=blank, reduction="none")
    np.testing.assert_allclose(found, [-math.log(total)], rtol=1e-12)
    longer = np.concatenate([np.log(p), np.full((2, 1, 4), 7.0)])  # what lies beyond the lengths does not count
    filled = np.concatenate([target, [[3, 1]]], axis=1)
    cut = nn.ctc_loss(longer, filled, np.array([5]), np.array([len(label)]), blank=blank, reduction="none")
    np.testing.assert_allclose(cut, found, rtol=1e-12)


def test_ctc_of_what_cannot_be():
    x = np.log(np.full((2, 2, 3), 1 / 3))
    targets = np.array([[1, 1, 2], [1, 2, 0]])
    lengths = np.array([2, 2]), np.array([3, 2])
    assert np.isinf(nn.ctc_loss(x, targets, *lengths, reduction="none")).tolist() == [True, False]
    found = nn.ctc_loss(x, targets, *lengths, reduction="none", zero_infinity=True)
    assert found[0] == 0
    slopes = pb.grad(lambda v: nn.ctc_loss(v, targets, *lengths, reduction="sum", zero_infinity=True))(x)
    assert (slopes[:, 0] == 0).all()
    assert np.isfinite(slopes).all()
    never = x.copy()
    never[:, 1, 0] = -np.inf  # a symbol that cannot come
    assert np.isfinite(pb.grad(lambda v: nn.ctc_loss(v[:, 1:], targets[1:, :2]))(never)).all()


def test_resampling_by_hand():
    x = np.array([[[1.0, 2.0, 4.0, 8.0]]])
    line = nn.interpolate(x, 7, mode="linear", align_corners=True)[0, 0]
    np.testing.assert_allclose(line, np.interp(np.linspace(0, 3, 7), np.arange(4), x[0, 0]))
    middles = np.clip((np.arange(6) + 0.5) * 4 / 6 - 0.5, 0, 3)
    np.testing.assert_allclose(nn.interpolate(x, 6, mode="linear")[0, 0], np.interp(middles, np.arange(4), x[0, 0]))
    np.testing.assert_allclose(nn.interpolate(x, 2, mode="area")[0, 0], [1.5, 6])
    np.testing.assert_allclose(nn.interpolate(x, 3, mode="nearest")[0, 0], [1, 2, 4])
    np.testing.assert_allclose(nn.interpolate(x, 2, mode="nearest-exact")[0, 0], [2, 8])
    image = np.fromfunction(lambda i, j: 2 * i - j, (9, 9))[None, None]
    for antialias in (False, True):  # a plane stays a plane, away from the edges
        small = nn.interpolate(image, (3, 3), mode="bicubic", antialias=antialias)[0, 0]
        np.testing.assert_allclose(small[1, 1], image[0, 0, 4, 4], atol=1e-12)


@pytest.mark.parametrize("mode", ["linear", "bilinear", "bicubic"])
def test_long_and_short_axes_take_two_roads_to_the_same_numbers(mode):
    spatial = 1 if mode == "linear" else 2
    x = RNG.normal(size=(1, 1, *(140,) * spatial))
    whole = nn.interpolate(x, (210,) * spatial, mode=mode)
    part = x[(slice(None), slice(None), *(slice(0, 10),) * spatial)]
    near = nn.interpolate(part, scale_factor=1.5, mode=mode)
    inner = (0, 0, *(slice(3, 10),) * spatial)
    np.testing.assert_allclose(whole[inner], near[inner], rtol=1e-10)


def test_a_still_grid_shows_the_image():
    x = RNG.normal(size=(2, 3, 4, 5))
    still = np.broadcast_to(np.array([[1.0, 0, 0], [0, 1, 0]]), (2, 2, 3))
    for align, mode in itertools.product((False, True), ("bilinear", "nearest", "bicubic")):
        grid = nn.affine_grid(still, x.shape, align_corners=align)
        seen = nn.grid_sample(x, grid, mode=mode, align_corners=align)
        np.testing.assert_allclose(seen, x, rtol=1e-9, atol=1e-9)
    turned = nn.affine_grid(-still, x.shape)
    np.testing.assert_allclose(nn.grid_sample(x, turned), x[:, :, ::-1, ::-1], rtol=1e-9, atol=1e-9)
    volume = RNG.normal(size=(1, 2, 2, 3, 4))
    grid = nn.affine_grid(np.eye(3, 4)[None], volume.shape)
    np.testing.assert_allclose(nn.grid_sample(volume, grid), volume, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("padding", "wanted"), [("zeros", 0.0), ("border", 3.0), ("reflection", 2.0)])
def test_what_lies_outside_a_grid(padding, wanted):
    x = np.array([[[[1.0, 2.0, 3.0]]]])
    place = np.array([[[[2.0, 0.0]]]])  # one element beyond the last
    found = nn.grid_sample(x, place, padding_mode=padding, align_corners=True)
    np.testing.assert_allclose(found, [[[[wanted]]]])
