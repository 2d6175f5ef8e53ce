"""Corners, empty and single things, NaN, and the errors of functions of networks."""

import numpy as np
import pytest

import pullback as pb

nn = pb.nn
ERRORS = pb.errors


def slope(f, x):
    return pb.grad(lambda v: pb.sum(f(v)))(np.asarray(x, float)).tolist()


@pytest.mark.parametrize(
    ("f", "places", "slopes"),
    [
        (nn.relu, [0.0], [0]),
        (nn.relu6, [0.0, 6.0, 3.0], [0, 0, 1]),
        (nn.hardtanh, [-1.0, 1.0, 0.0], [0, 0, 1]),
        (nn.hardsigmoid, [-3.0, 3.0], [0, 0]),
        (nn.hardswish, [-3.0, 3.0], [0, 1]),
        (nn.hardshrink, [-0.5, 0.5, 0.6], [0, 0, 1]),
        (nn.softshrink, [-0.5, 0.5, 0.6], [0, 0, 1]),
        (nn.leaky_relu, [0.0], [0.01]),
        (nn.elu, [0.0], [1]),
        (nn.celu, [0.0], [1]),
        (nn.softsign, [0.0], [1]),
        (nn.squareplus, [0.0], [0.5]),
        (nn.reglu, [5.0, 0.0], [0, 0]),
        (lambda x: nn.threshold(x, 1.0, 7.0), [1.0, 2.0], [0, 1]),
        (lambda x: nn.l1_loss(x, x * 0.0, reduction="sum"), [0.0], [0]),
        (lambda x: nn.quantile_loss(x, np.zeros(1), 0.9), [0.0], [0]),
        (lambda x: nn.huber_loss(x, np.zeros(1)), [1.0], [1]),
        (lambda x: nn.hinge_loss(x, np.ones(1)), [1.0], [0]),
        (lambda x: nn.log_cosh_loss(x, np.zeros(1)), [0.0], [0]),
    ],
)
def test_slopes_at_corners(f, places, slopes):
    assert slope(f, places) == pytest.approx(slopes, abs=1e-15)


def test_curvature_of_log_cosh_at_zero_is_one():
    assert float(pb.grad(pb.grad(lambda x: nn.log_cosh_loss(x, 0.0)))(0.0)) == 1.0


NAN_THROUGH = (
    *("relu", "relu6", "leaky_relu", "elu", "celu", "selu", "gelu", "quick_gelu", "silu", "mish", "softplus"),
    *("softsign", "logsigmoid", "squareplus", "hardswish", "hardsigmoid", "hardtanh", "hardshrink", "softshrink"),
    *("tanhshrink", "relu_squared", "star_relu", "rrelu", "tanh", "sigmoid"),
)


@pytest.mark.parametrize("name", NAN_THROUGH)
def test_nan_stays_nan(name):
    with np.errstate(invalid="ignore"):
        out = getattr(nn, name)(np.array([np.nan, 1.0]))
    assert np.isnan(out).tolist() == [True, False]


@pytest.mark.parametrize("name", [*NAN_THROUGH, "prelu", "dropout", "alpha_dropout"])
def test_empty_and_single_numbers(name):
    call = (lambda x: nn.prelu(x, 0.25)) if name == "prelu" else getattr(nn, name)
    assert call(np.zeros((2, 0))).shape == (2, 0)
    assert call(np.array(-1.5)).shape == ()
    assert call(-1.5).shape == ()
    assert isinstance(call(pb.tensor(0.5)), pb.Tensor)


def test_norms_of_nothing_one_and_equal_elements_are_finite_to_third_order():
    for x in (np.zeros((2, 1)), np.full((2, 3), 7.0), np.full((1, 3), -2.0)):
        for f in (
            nn.layer_norm,
            lambda v: nn.layer_norm(v, eps=0.0),
            nn.rms_norm,
            lambda v: nn.group_norm(v, 1),
            lambda v: nn.instance_norm(v[:, :, None]),
            lambda v: nn.batch_norm(v, training=True)[0],
            nn.normalize,
        ):
            total = lambda v, f=f: pb.sum(f(v) ** 2 + f(v))  # noqa: E731
            for order in (total, pb.grad(total)):
                push = lambda v, g=order: pb.jvp(g, (v,), (np.cos(np.arange(v.size)).reshape(v.shape),))[1]  # noqa: E731
                assert np.isfinite(push(x)).all()
                assert np.isfinite(pb.jvp(push, (x,), (np.ones_like(x),))[1]).all()
    assert nn.layer_norm(np.zeros((0, 3))).shape == (0, 3)
    assert (nn.batch_norm(np.full((1, 3), 4.0), np.zeros(3), np.ones(3), training=True)[0] == 0).all()


@pytest.mark.parametrize("f", [nn.cosine_similarity, lambda x, y: nn.normalize(x) * y, nn.weight_norm])
def test_zero_vectors_have_finite_slopes(f):
    y = np.ones((1, 3)) if f is not nn.weight_norm else np.ones(1)
    for g in pb.grad(lambda a, b: pb.sum(f(a, b)), argnums=(0, 1))(np.zeros((1, 3)), y):
        assert np.isfinite(g).all()


def test_weight_that_is_zero_has_a_spectral_norm():
    assert (nn.spectral_norm(np.zeros((2, 3)), np.ones(2))[0] == 0).all()


def test_narrow_floats_are_summed_in_wide_ones():
    x = np.full((2, 4000), 60.0, np.float16)
    x[:, ::2] = 20
    for y in (nn.layer_norm(x), nn.rms_norm(x), nn.group_norm(x, 1), nn.batch_norm(x.T, training=True)[0].T):
        assert y.dtype == np.float16
        assert np.isfinite(y).all()
    np.testing.assert_allclose(nn.layer_norm(x)[0, :2], [-1, 1], rtol=1e-3)


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
def test_ignored_labels_count_nothing(reduction):
    x, labels = np.ones((3, 4)), np.full(3, -100)
    out = nn.cross_entropy(x, labels, reduction=reduction)
    assert (out == 0).all()
    assert (pb.grad(lambda v: pb.sum(nn.cross_entropy(v, labels, reduction=reduction)))(x) == 0).all()
    assert (pb.jit(lambda v, t: nn.cross_entropy(v, t, reduction=reduction))(x, labels) == 0).all()
    weighed = nn.nll_loss(x, labels, weight=np.ones(4), reduction=reduction)
    assert (weighed == 0).all()


def test_an_ignored_row_may_hold_anything():
    x = np.array([[np.nan, np.inf], [1.0, 2.0]])
    with np.errstate(invalid="ignore"):
        slopes = pb.grad(lambda v: nn.cross_entropy(v, np.array([-100, 1])))(x)
    assert (slopes[0] == 0).all()
    assert np.isfinite(slopes[1]).all()


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("loss", [nn.cross_entropy, lambda v, t, **o: nn.nll_loss(nn.log_softmax(v, axis=1), t, **o)])
def test_ignored_rows_of_anything_in_every_derivative(loss, compiled):
    x, labels, w = np.array([[np.nan, np.inf, 0.0], [1.0, 2.0, 0.5]]), np.array([-100, 1]), np.array([1.0, 2.0, 3.0])
    run = pb.jit if compiled else lambda f: f

    def f(v, w, t):
        return loss(v, t, weight=w, reduction="sum")

    p = np.exp(x[1]) / np.exp(x[1]).sum()
    with np.errstate(invalid="ignore"), pb.native(False):
        slopes, by_weight = run(pb.grad(f, (0, 1)))(x, w, labels)
        curved = run(lambda v, w, t: pb.jvp(lambda v: pb.grad(f)(v, w, t), (v,), (np.ones_like(x),))[1])(x, w, labels)
    np.testing.assert_allclose(slopes, [[0, 0, 0], 2 * (p - [0, 1, 0])], atol=1e-12)
    np.testing.assert_allclose(by_weight, [0, -np.log(p[1]), 0], atol=1e-12)
    np.testing.assert_allclose(curved[1], np.zeros(3), atol=1e-12)  # a shift of all scores changes nothing


def test_ignored_labels_mask_nothing_below_the_loss():
    """Where labels are known only when code runs, any may be one to ignore; gradients of layers are plain all the
    same, so that an update runs inside the product that is its gradient.
    """
    rng = np.random.default_rng(0)
    w, x, labels = [rng.normal(size=(4, 4)) for _ in range(2)], rng.normal(size=(5, 4)), np.array([0, -100, 2, 3, 1])

    def loss(w, x, labels):
        return nn.cross_entropy(pb.tanh(x @ w[0]) @ w[1], labels)

    def step(w, x, labels):
        return [a - 0.1 * g for a, g in zip(w, pb.grad(loss)(w, x, labels), strict=True)]

    compiled = pb.jit(step, donate_argnums=0)
    text = compiled.lower(w, x, labels).explain()
    assert "logical_or" not in text
    assert text.count("added to what is there") == 2
    counted = [0, 2, 3, 4]
    wanted = step(w, x[counted], labels[counted])
    for found, expected in zip(compiled([a.copy() for a in w], x, labels), wanted, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_impossible_classes_without_probability_cost_nothing():
    x = np.array([[-np.inf, 0.0, 0.0]])
    p = np.array([[0.0, 0.5, 0.5]])
    np.testing.assert_allclose(nn.cross_entropy(x, p), np.log(2))
    np.testing.assert_allclose(nn.cross_entropy(x, np.array([1])), np.log(2))
    assert np.isfinite(pb.grad(lambda v: nn.cross_entropy(v, p))(x)).all()


def test_sure_and_wrong_probabilities():
    p, y = np.array([0.0, 1.0, 0.0, 1.0]), np.array([0.0, 1.0, 1.0, 0.0])
    np.testing.assert_allclose(nn.binary_cross_entropy(p, y, reduction="none"), [0, 0, 100, 100])
    assert np.isfinite(pb.grad(lambda v: nn.binary_cross_entropy(v, y))(p)).all()
    zero = np.array([[1.0, 0.0]])
    for f in (lambda v: nn.kl_div(np.log(np.full((1, 2), 0.5)), v), lambda v: nn.js_div(v, zero[:, ::-1])):
        assert np.isfinite(pb.grad(f)(zero)).all()
    assert np.isfinite(nn.kl_div(np.zeros((1, 2)), np.array([[0.0, -np.inf]]), log_target=True))


def bad_label(label):
    return np.array([0, label, 1])


@pytest.mark.parametrize("label", [3, -1])
@pytest.mark.parametrize(
    "loss",
    [
        lambda x, t: nn.cross_entropy(x, t, ignore_index=-5),
        lambda x, t: nn.nll_loss(x, t, ignore_index=-5),
        lambda x, t: nn.multi_margin_loss(x, t),
        lambda x, t: nn.embedding(t, x),
        lambda x, t: nn.embedding_bag(t, x, np.array([0])),
        lambda x, t: nn.ctc_loss(x[:, None], t[None]),
    ],
)
def test_labels_out_of_range_raise_eager_batched_and_compiled(loss, label):
    x, labels = np.ones((3, 3)), bad_label(label)
    loss(x, np.array([0, 2, 1]))
    with pytest.raises(ERRORS.IndexingError, match=f"(label|index) {label} at"):
        loss(x, labels)
    with pytest.raises(ERRORS.IndexingError):
        pb.jit(loss)(x, labels)
    with pytest.raises(ERRORS.IndexingError):
        pb.jit(pb.grad(lambda v, t: pb.sum(loss(v, t))))(x, labels)
    with pytest.raises(ERRORS.IndexingError):
        pb.vmap(loss, in_axes=(None, 0))(x, np.stack([labels, labels]))


X = np.ones((2, 3))
WRONG = {
    "labels that are floats": (ERRORS.IndexingError, lambda: nn.nll_loss(X, np.zeros(2))),
    "labels of another shape": (ERRORS.ShapeError, lambda: nn.cross_entropy(X, np.zeros(3, int))),
    "probabilities of another shape": (ERRORS.ShapeError, lambda: nn.cross_entropy(X, np.zeros(3))),
    "weights of another size": (ERRORS.ShapeError, lambda: nn.cross_entropy(X, np.zeros(2, int), weight=np.ones(2))),
    "smoothing": (ERRORS.ArgumentError, lambda: nn.cross_entropy(X, np.zeros(2, int), label_smoothing=2.0)),
    "reduction": (ERRORS.ArgumentError, lambda: nn.mse_loss(X, X, reduction="average")),
    "a column and a row": (ERRORS.ShapeError, lambda: nn.mse_loss(np.ones((3, 1)), np.ones(3))),
    "complex": (ERRORS.DtypeError, lambda: nn.mse_loss(X * 1j, X)),
    "margin shapes": (ERRORS.ShapeError, lambda: nn.triplet_margin_loss(X, X, np.ones((2, 2)))),
    "probabilities above one": (ERRORS.ArgumentError, lambda: nn.binary_cross_entropy(2 * X, X)),
    "negative variance": (ERRORS.ArgumentError, lambda: nn.gaussian_nll_loss(X, X, -X)),
    "variances": (ERRORS.ShapeError, lambda: nn.gaussian_nll_loss(X, X, np.ones((5, 2, 3)))),
    "no halves": (ERRORS.ShapeError, lambda: nn.glu(X)),
    "norm weights": (ERRORS.ShapeError, lambda: nn.layer_norm(X, np.ones(2))),
    "group count": (ERRORS.ShapeError, lambda: nn.group_norm(X, 2)),
    "group rank": (ERRORS.ShapeError, lambda: nn.group_norm(np.ones(3), 1)),
    "instance rank": (ERRORS.ShapeError, lambda: nn.instance_norm(X)),
    "batch statistics": (ERRORS.ArgumentError, lambda: nn.batch_norm(X)),
    "batch channels": (ERRORS.ShapeError, lambda: nn.batch_norm(X, np.ones(2), np.ones(2))),
    "batch of nothing": (ERRORS.ShapeError, lambda: nn.batch_norm(np.ones((0, 2)), training=True)),
    "eps": (ERRORS.ArgumentError, lambda: nn.layer_norm(X, eps=-1.0)),
    "window": (ERRORS.ArgumentError, lambda: nn.local_response_norm(X, 0)),
    "probability": (ERRORS.ArgumentError, lambda: nn.dropout(X, 1.5)),
    "spatial rank": (ERRORS.ShapeError, lambda: nn.dropout3d(X)),
    "table rank": (ERRORS.ShapeError, lambda: nn.embedding(np.zeros(2, int), np.ones(3))),
    "padding row": (ERRORS.ArgumentError, lambda: nn.embedding(np.zeros(2, int), X, padding_idx=2)),
    "bag mode": (ERRORS.ArgumentError, lambda: nn.embedding_bag(np.zeros((1, 2), int), X, mode="min")),
    "bag shape": (ERRORS.ShapeError, lambda: nn.embedding_bag(np.zeros(2, int), X)),
    "bag offsets": (ERRORS.ArgumentError, lambda: nn.embedding_bag(np.zeros(2, int), X, np.array([1]))),
    "bag weights": (
        ERRORS.ArgumentError,
        lambda: nn.embedding_bag(np.zeros((1, 2), int), X, mode="max", per_sample_weights=np.ones((1, 2))),
    ),
    "linear": (ERRORS.ShapeError, lambda: nn.linear(X, np.ones((4, 2)))),
    "linear bias": (ERRORS.ShapeError, lambda: nn.linear(X, np.ones((4, 3)), np.ones(3))),
    "bilinear": (ERRORS.ShapeError, lambda: nn.bilinear(X, X, np.ones((4, 3, 2)))),
    "prelu": (ERRORS.ShapeError, lambda: nn.prelu(X, np.ones(2))),
    "interpolation mode": (ERRORS.ArgumentError, lambda: nn.interpolate(np.ones((1, 1, 2)), 3, mode="cubic")),
    "interpolation rank": (ERRORS.ShapeError, lambda: nn.interpolate(np.ones((1, 1, 2)), 3, mode="bilinear")),
    "interpolation size": (ERRORS.ArgumentError, lambda: nn.interpolate(np.ones((1, 1, 2)))),
    "interpolation to nothing": (ERRORS.ShapeError, lambda: nn.interpolate(np.ones((1, 1, 2)), 0)),
    "interpolation sizes": (ERRORS.ArgumentError, lambda: nn.interpolate(np.ones((1, 1, 2)), (2, 2))),
    "antialias": (ERRORS.ArgumentError, lambda: nn.interpolate(np.ones((1, 1, 2)), 3, mode="linear", antialias=True)),
    "grid": (ERRORS.ShapeError, lambda: nn.grid_sample(np.ones((1, 1, 2, 2)), np.ones((1, 2, 2, 3)))),
    "grid mode": (
        ERRORS.ArgumentError,
        lambda: nn.grid_sample(np.ones((1, 1, 2, 2)), np.ones((1, 2, 2, 2)), padding_mode="wrap"),
    ),
    "affine": (ERRORS.ShapeError, lambda: nn.affine_grid(np.ones((1, 2, 2)), (1, 1, 2, 2))),
    "ctc rank": (ERRORS.ShapeError, lambda: nn.ctc_loss(X, np.zeros((1, 1), int))),
    "ctc lengths": (
        ERRORS.ArgumentError,
        lambda: nn.ctc_loss(np.ones((2, 1, 3)), np.ones((1, 2), int), np.array([3]), np.array([1])),
    ),
    "contrast": (ERRORS.ShapeError, lambda: nn.info_nce(X, X[:1])),
    "kl": (ERRORS.ArgumentError, lambda: nn.kl_div(X, X, reduction="batch")),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_does_not_fit_is_said(wrong):
    kind, call = WRONG[wrong]
    with pytest.raises(kind):
        call()


def test_whole_numbers_as_targets_keep_the_precision_of_the_prediction():
    x = np.ones((2, 3), np.float32)
    for loss in (nn.mse_loss, nn.binary_cross_entropy_with_logits, nn.hinge_loss, nn.soft_margin_loss, nn.focal_loss):
        assert loss(x, np.ones((2, 3), int)).dtype == np.float32
        assert loss(x, np.ones((2, 3), bool)).dtype == np.float32
        assert loss(x, 1.0).dtype == np.float32
    assert nn.quantile_loss(x, x, 0.3).dtype == np.float32
    assert nn.binary_cross_entropy_with_logits(x, x, pos_weight=2.0).dtype == np.float32


def test_grids_far_away_and_without_a_place():
    image = np.ones((1, 1, 3, 3))
    far = np.full((1, 1, 1, 2), 1e30)
    for padding, seen in (("zeros", 0.0), ("border", 1.0), ("reflection", 1.0)):
        assert nn.grid_sample(image, far, padding_mode=padding).item() == seen
        nowhere = nn.grid_sample(image, np.array([[[[np.nan, 0.0], [0.0, 0.0]]]]), padding_mode=padding)
        assert np.isnan(nowhere[0, 0, 0]).tolist() == [True, False]


def test_what_a_grid_does_not_look_at_cannot_spoil_it():
    image = np.array([[[[np.inf, 1.0, 2.0, np.nan]]]])
    grid = np.array([[[[0.0, 0.0], [5.0, 0.0]]]])
    assert nn.grid_sample(image, grid, align_corners=True)[0, 0, 0].tolist() == [1.5, 0.0]
    assert np.isfinite(pb.grad(lambda g: pb.sum(nn.grid_sample(image, g, align_corners=True)))(grid)).all()


def test_where_of_many_numbers_is_numpys_to_the_bit():
    rng = np.random.default_rng(3)
    for dtype in (np.float32, np.float64):
        x, y = rng.normal(size=(2, 40, 500)).astype(dtype)
        x[0, :3], y[1, :3] = [np.nan, np.inf, -0.0], [-np.nan, -np.inf, 0.0]
        c = rng.random((40, 500)) > 0.5
        for a, b in ((x, y), (x, 0), (0.0, y), (x, -0.0), (x, 2.5), (x[::-1], y[:, ::-1]), (x, y[0])):
            found, wanted = pb.where(c, a, b), np.where(c, a, b)
            assert found.dtype == wanted.dtype
            assert found.tobytes() == wanted.tobytes()
