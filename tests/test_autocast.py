"""Autocast against casts written by hand: which dtype ops run in, in every mode, transform and compiled program."""

import numpy as np
import pytest

import pullback as pb

RNG = np.random.default_rng(19)
BF16, F16 = pb.bfloat16, np.dtype("float16")
X, W, V = (RNG.normal(size=s).astype("f4") for s in ((4, 3), (3, 5), (5, 2)))


def low(x, dtype="bfloat16"):
    return pb.astype(x, dtype)


def network(x, w, v):
    """Ops of all kinds: products, an exponential, a fold, the rest."""
    return pb.sum(pb.exp(pb.tanh(x @ w) @ v / 8))


def network_by_hand(x, w, v, dtype="bfloat16"):
    hidden = pb.tanh(low(x, dtype) @ low(w, dtype)) @ low(v, dtype) / 8
    return pb.sum(pb.exp(hidden.astype("float32")))


def parameters():
    return pb.tensor(W, requires_grad=True), pb.tensor(V, requires_grad=True)


def equal(a, b):
    a, b = (np.asarray(x.value if isinstance(x, pb.Tensor) else x) for x in (a, b))
    assert a.dtype == b.dtype, (a.dtype, b.dtype)
    np.testing.assert_array_equal(a.astype("f8"), b.astype("f8"))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_on_the_tape(dtype):
    w, v = parameters()
    with pb.autocast(dtype):
        loss = network(X, w, v)
    loss.backward()
    w2, v2 = parameters()
    other = network_by_hand(X, w2, v2, dtype)
    other.backward()
    equal(loss, other)
    equal(w.grad, w2.grad)
    equal(v.grad, v2.grad)
    assert w.grad.dtype == np.float32


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_every_kind_of_op(dtype):
    x = pb.tensor(X)
    square = pb.tensor(np.eye(3, dtype="f4") * 4)
    half = pb.abs(x).astype(dtype)
    with pb.autocast(dtype):
        found = {
            "matmul": x @ x.T, "einsum": pb.einsum("ij,kj->ik", x, x), "conv": pb.nn.conv1d(X[None], X[None, :, :2]),
            "linear": pb.nn.linear(x, pb.tensor(W.T), pb.tensor(W[0])),
            "attention": pb.nn.scaled_dot_product_attention(x, x, x),
        }  # fmt: skip
        high = {
            "exp": pb.exp(half), "log": pb.log(half), "power": half**1.5, "sum": pb.sum(half), "mean": pb.mean(half),
            "solve": pb.linalg.solve(square.astype(dtype), half[:3, :1]), "softmax": pb.softmax(half),
            "layer_norm": pb.nn.layer_norm(half), "mse": pb.nn.mse_loss(half, half), "cumsum": pb.cumulative_sum(half),
            "cross_entropy": pb.nn.cross_entropy(half, np.zeros(4, int)), "var": pb.var(half),
            "std": pb.std(half), "norm": pb.linalg.norm(half), "logsumexp": pb.logsumexp(half), "prod": pb.prod(half),
            "softplus": pb.nn.softplus(half), "rms_norm": pb.nn.rms_norm(half),
            "bce": pb.nn.binary_cross_entropy_with_logits(half, half),
        }  # fmt: skip
        rest = {
            "add": half + half, "relu": pb.relu(half), "gelu": pb.nn.gelu(half), "tanh": pb.tanh(half),
            "max": pb.max(half), "reshape": half.reshape(-1), "getitem": half[0],
            "where": pb.where(half > 0, half, 0.0),
        }  # fmt: skip
        mixed = half + x
    assert {k: v.dtype.name for k, v in found.items()} == dict.fromkeys(found, dtype)
    assert {k: v.dtype.name for k, v in high.items()} == dict.fromkeys(high, "float32")
    assert {k: v.dtype.name for k, v in rest.items()} == dict.fromkeys(rest, dtype)
    assert mixed.dtype == np.float32


def test_what_takes_no_part():
    double = X.astype("f8")
    with pb.autocast():
        assert (double @ W.astype("f8")).dtype == np.float64
        assert pb.matmul(double, pb.tensor(W)).dtype == np.float64  # the float32 operand is not rounded first
        equal(pb.matmul(double, pb.tensor(W)), double @ W)
        whole = pb.tensor(np.arange(4).reshape(2, 2))
        assert (whole @ whole).dtype == whole.dtype
        assert pb.matmul(X.astype("c8"), W).dtype == np.complex64
        assert pb.matmul(X, W).dtype == BF16  # bare arrays take part


def test_by_name_and_by_scope():
    x = pb.tensor(X)
    with pb.autocast(keep={"matmul"}, lower={"add", pb.softmax}):
        assert (x @ x.T).dtype == np.float32
        assert (x + x).dtype == BF16
        assert pb.softmax(x).dtype == BF16
        with pb.autocast("float16"):
            assert (x @ x.T).dtype == F16
            assert (x + x).dtype == np.float32
            with pb.autocast(enabled=False):
                assert (x @ x.T).dtype == np.float32
                assert not pb.is_autocast_enabled()
            assert (x @ x.T).dtype == F16
        assert (x + x).dtype == BF16
    assert (x + x).dtype == np.float32
    assert not pb.is_autocast_enabled()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": "float32"}, "bfloat16"),
        ({"device": "tpu"}, "cpu"),
        ({"keep": {"sofmax"}}, "softmax"),
        ({"keep": {"mean"}}, "made of other ops"),
        ({"keep": "add"}, "a set of names"),
        ({"keep": {3}}, "names or functions"),
        ({"enabled": 1}, "True or False"),
        ({"keep": {"add"}, "lower": {"add"}}, "in keep and in lower"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(pb.errors.PullbackError, match=message):
        pb.autocast(**options)


def test_a_device():
    with pb.autocast(device="cuda"):
        assert pb.matmul(X, W).dtype == np.float32
    with pb.autocast(device="cpu"):
        assert pb.matmul(X, W).dtype == BF16


def test_as_a_decorator_also_of_generators():
    @pb.autocast()
    def product(x):
        return x @ x.T

    @pb.autocast()
    def products(x):
        for _ in range(2):
            yield x @ x.T

    assert product(pb.tensor(X)).dtype == BF16
    for y in products(pb.tensor(X)):
        assert y.dtype == BF16
        assert not pb.is_autocast_enabled()


def test_under_jit_and_inside():
    w, v = parameters()
    compiled = pb.jit(network)
    plain = compiled(X, w, v)
    with pb.autocast():
        found = compiled(X, w, v)
        again = compiled(X, w, v)
    assert compiled.traces == 2
    equal(plain, compiled(X, w, v))
    assert compiled.traces == 2
    by_hand = pb.jit(network_by_hand)(X, w, v)
    inside = pb.jit(pb.autocast()(network))(X, w, v)
    for each in (found, again, inside):
        equal(each, by_hand)
    (found + inside).backward()
    w2, v2 = parameters()
    (2 * pb.jit(network_by_hand)(X, w2, v2)).backward()
    np.testing.assert_allclose(w.grad.value, w2.grad.value, rtol=2e-2, atol=1e-2)


def test_gradients_of_several_uses_are_added_in_float32():
    w = pb.tensor(np.ones((1, 1), "f4"), requires_grad=True)
    big, small = np.full((1, 1), 256, "f4"), np.full((1, 1), 0.5, "f4")
    with pb.autocast():
        loss = pb.sum(big @ w) + pb.sum(small @ w)
    loss.backward()
    assert w.grad.item() == 256.5  # in bfloat16 it would be 256


def test_casts_are_shared_and_follow_the_parameter(monkeypatch):
    from pullback.ops import casting

    casts = []
    run = casting.run
    monkeypatch.setattr(
        casting, "run", lambda op, args, static: (op.name == "astype" and casts.append(1), run(op, args, static))[1]
    )
    w = pb.tensor(np.eye(3, dtype="f4"), requires_grad=True)
    x = pb.tensor(X)
    with pb.autocast():
        first = x @ w
        second = x @ w
        assert len(casts) == 2  # x and w, once each
        with pb.no_grad():
            assert not (x @ w).requires_grad
            w -= 0.5 * w  # rebound: its cast is another
            equal(x @ w, (low(x) @ low(w.detach())))
        assert (x @ w).requires_grad
    pb.sum(first).backward()
    pb.sum(second).backward()  # each use has a node of its own
    equal(
        w.grad, 2 * np.repeat(pb.sum(low(x).astype("f4"), axis=0).value[:, None], 3, axis=1).astype(BF16).astype("f4")
    )
