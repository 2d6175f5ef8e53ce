"""LSTM, GRU and plain recurrent networks against loops of NumPy, in every mode and compiled."""

from __future__ import annotations

import numpy as np
import pytest

import pullback as pb
from pullback import errors

RNG = np.random.default_rng(2)
STEPS, BATCH, FEATURES, HIDDEN = 5, 2, 3, 4
X = RNG.normal(size=(STEPS, BATCH, FEATURES))
GATES = {"lstm": 4, "gru": 3, "rnn": 1}


def weights(name):
    n = GATES[name] * HIDDEN
    return [RNG.normal(size=s) / 2 for s in ((n, FEATURES), (n, HIDDEN), (n,), (n,))]


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def by_loop(name, x, w, u, b, d, order):
    h, c = np.zeros((BATCH, HIDDEN)), np.zeros((BATCH, HIDDEN))
    hs = np.zeros((STEPS, BATCH, HIDDEN))
    for t in order:
        a, e = x[t] @ w.T + b, h @ u.T + d
        if name == "lstm":
            i, f, g, o = np.split(a + e, 4, -1)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(c)
        elif name == "gru":
            (r, z, n), (s, y, m) = np.split(a, 3, -1), np.split(e, 3, -1)
            z = sigmoid(z + y)
            h = (1 - z) * np.tanh(n + sigmoid(r + s) * m) + z * h
        else:
            h = np.tanh(a + e)
        hs[t] = h
    return hs, h, c


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", GATES)
def test_values_are_those_of_a_loop(name, reverse):
    p = weights(name)
    hs, last = getattr(pb.nn, name)(X, *p, reverse=reverse)
    wanted, h, c = by_loop(name, X, *p, range(STEPS)[:: -1 if reverse else 1])
    np.testing.assert_allclose(hs, wanted, rtol=1e-12)
    np.testing.assert_allclose(last[0] if name == "lstm" else last, h, rtol=1e-12)
    if name == "lstm":
        np.testing.assert_allclose(last[1], c, rtol=1e-12)
    cell = getattr(pb.nn, f"{name}_cell")
    zero = np.zeros((BATCH, HIDDEN))
    one = cell(X[0], (zero, zero) if name == "lstm" else zero, *p)
    np.testing.assert_allclose(one[0] if name == "lstm" else one, by_loop(name, X, *p, [0])[1], rtol=1e-12)


@pytest.mark.parametrize("name", GATES)
def test_derivatives_batches_and_compiled_code_agree(name):
    p = weights(name)

    def loss(x, *p):
        return pb.sum(pb.sin(getattr(pb.nn, name)(x, *p)[0]))

    assert pb.gradcheck(loss, X, *p)
    gradient = pb.grad(loss, tuple(range(5)))
    for found, wanted in zip(pb.jit(gradient)(X, *p), gradient(X, *p), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-12)
    second = lambda x: pb.jvp(lambda x: pb.grad(loss)(x, *p), (x,), (np.cos(x),))[1]  # noqa: E731
    np.testing.assert_allclose(pb.jit(second)(X), second(X), rtol=1e-9, atol=1e-12)
    stacked = np.stack([X, X * 2])
    np.testing.assert_allclose(pb.vmap(lambda x: loss(x, *p))(stacked), [loss(X, *p), loss(X * 2, *p)], rtol=1e-12)


@pytest.mark.parametrize("name", GATES)
def test_steps_after_a_sequence_leave_its_state_alone(name):
    p = weights(name)
    run = getattr(pb.nn, name)
    hs, last = run(X, *p, lengths=np.array([2, 5]))
    short, end = run(X[:2, :1], *p)
    np.testing.assert_allclose(hs[:2, :1], short, rtol=1e-12)
    assert not hs[2:, 0].any()
    pick = (lambda s: s[0]) if name == "lstm" else (lambda s: s)
    np.testing.assert_allclose(pick(last)[:1], pick(end), rtol=1e-12)
    back, _ = run(X, *p, lengths=np.array([2, 5]), reverse=True)
    np.testing.assert_allclose(back[:2, :1], run(X[:2, :1], *p, reverse=True)[0], rtol=1e-12)


def test_float32_and_a_state_to_start_from():
    p = [a.astype(np.float32) for a in weights("gru")]
    x = X.astype(np.float32)
    hs, last = pb.nn.gru(x, *p)
    assert hs.dtype == last.dtype == np.float32
    first, middle = pb.nn.gru(x[:3], *p)
    rest, _ = pb.nn.gru(x[3:], *p, state=middle)
    np.testing.assert_allclose(np.concatenate([first, rest]), hs, rtol=1e-6)


def test_mistakes_are_named():
    w, u, *_ = weights("lstm")
    with pytest.raises(errors.ShapeError, match="4 hidden"):
        pb.nn.lstm(X, w[:3], u)
    with pytest.raises(errors.ShapeError, match="other features"):
        pb.nn.lstm(X[..., :2], w, u)
    with pytest.raises(errors.ArgumentError, match="pair"):
        pb.nn.lstm(X, w, u, state=np.zeros((2, 4)))
    with pytest.raises(errors.ShapeError, match="lengths"):
        pb.nn.lstm(X, w, u, lengths=np.array([1, 2, 3]))
    with pytest.raises(errors.ShapeError, match="steps"):
        pb.nn.lstm(X[0, 0], w, u)
