"""Rules that use curvature: L-BFGS and its line search, natural gradient, Shampoo, Muon."""

import numpy as np
import pytest

import pullback as pb
from pullback.optim.algorithms.lbfgs import strong_wolfe

optim = pb.optim
rng = np.random.default_rng(2)


def rosenbrock(x):
    return pb.sum((1 - x[:-1]) ** 2 + 100 * (x[1:] - x[:-1] ** 2) ** 2)


def minimised(rule, f, x, steps):
    both = pb.value_and_grad(f)
    state = rule.init(x)
    for _ in range(steps):
        value, grads = both(x)
        updates, state = rule.update(grads, state, x, value=value, value_and_grad=both)
        x = optim.apply_updates(x, updates)
    return x, state


@pytest.mark.parametrize("n", [2, 10])
def test_lbfgs_finds_the_minimum_of_a_curved_valley(n):
    start = np.tile([-1.2, 1.0], n)[:n]
    x, _ = minimised(optim.lbfgs(), rosenbrock, start, 40 if n == 2 else 90)
    np.testing.assert_allclose(x, 1.0, atol=1e-6)


def test_lbfgs_and_its_search_are_compiled_as_one_function():
    rule, both = optim.lbfgs(memory=5), pb.value_and_grad(rosenbrock)

    def step(x, state):
        value, grads = both(x)
        updates, state = rule.update(grads, state, x, value=value, value_and_grad=both)
        return optim.apply_updates(x, updates), state

    x, compiled = np.array([-1.2, 1.0, 0.5]), pb.jit(step)
    state = rule.init(x)
    for _ in range(10):
        found, _ = compiled(x, state)
        x, state = step(x, state)
        np.testing.assert_allclose(found, x, rtol=1e-9)


def two_loops(grads, points, memory):
    """-H g by the textbook's recursion over lists."""
    pairs = []
    for i in range(1, len(grads)):
        s, y = points[i] - points[i - 1], grads[i] - grads[i - 1]
        if s @ y > 1e-10 * (y @ y):
            pairs.append((s, y))
    pairs = pairs[-memory:]
    q, alphas = grads[-1].copy(), []
    for s, y in reversed(pairs):
        alphas.append((s @ q) / (s @ y))
        q -= alphas[-1] * y
    if pairs:
        s, y = pairs[-1]
        q *= (s @ y) / (y @ y)
    for (s, y), a in zip(pairs, reversed(alphas), strict=True):
        q += (a - (y @ q) / (s @ y)) * s
    return -q


@pytest.mark.parametrize("memory", [1, 3, 20])
def test_lbfgs_steps_are_those_of_the_textbook(memory):
    a = rng.normal(size=(6, 6))
    a = a @ a.T + np.eye(6)

    def pull(x):
        return a @ x + np.sin(x)

    rule, x = optim.lbfgs(0.3, memory=memory, line_search=False), np.ones(6)
    state, compiled = rule.init(x), pb.jit(rule.update)
    grads, points = [], []
    for i in range(12):
        grads.append(pull(x))
        points.append(x)
        length = 0.3 * (min(1, 1 / np.abs(grads[0]).sum()) if i == 0 else 1)
        updates, after = rule.update(grads[-1], state, x)
        np.testing.assert_allclose(compiled(grads[-1], state, x)[0], updates, rtol=1e-9)
        np.testing.assert_allclose(updates, length * two_loops(grads, points, memory), rtol=1e-8)
        state, x = after, optim.apply_updates(x, updates)


def test_lbfgs_on_trees_in_float32_and_batched():
    def f(p):
        return pb.sum((p["a"] - 3) ** 2) + 10 * pb.sum((p["b"] + 1) ** 4) + p["a"][0] * pb.sum(p["b"])

    start = {"a": np.zeros(2, np.float32), "b": np.zeros((2, 1), np.float32)}
    x, _ = minimised(optim.lbfgs(), f, start, 30)
    assert x["b"].dtype == np.float32
    assert np.max(abs(np.concatenate([g.ravel() for g in pb.grad(f)(x).values()]))) < 2e-3
    starts = np.array([[-1.2, 1.0], [0.5, 0.0]])
    many = pb.vmap(lambda x: minimised(optim.lbfgs(memory=3), rosenbrock, x, 8)[0])(starts)
    for start, found in zip(starts, many, strict=True):
        np.testing.assert_allclose(found, minimised(optim.lbfgs(memory=3), rosenbrock, start, 8)[0], rtol=1e-6)


def test_lbfgs_wants_what_it_searches_with():
    rule, x = optim.lbfgs(), np.ones(2)
    with pytest.raises(pb.errors.ArgumentError, match="value_and_grad=f"):
        rule.update(x, rule.init(x), x)


@pytest.mark.parametrize("first", [1e-3, 0.1, 1.0, 10.0, 1e3])
@pytest.mark.parametrize(
    "f",
    [
        lambda t: (t - 1) ** 2,
        lambda t: -t / (t * t + 2),
        lambda t: (t + 0.004) ** 5 - 2 * (t + 0.004) ** 4,
        lambda t: pb.where(t < 2, -pb.log1p(-t / 2 + 1e-300) - 3 * t, np.inf),
    ],
)
def test_the_line_search_meets_both_conditions(f, first):
    both = pb.value_and_grad(f)
    value, slope = both(np.array(0.0))
    with np.errstate(all="ignore"):
        t = strong_wolfe(both, value, slope, np.array(first), 60)
    found, left = both(np.asarray(t))
    assert found <= value + 1e-4 * t * slope
    assert abs(left) <= 0.9 * abs(slope)
    assert t > 0


def test_a_search_that_gains_nothing_stays():
    t = strong_wolfe(lambda t: (1 + t, np.array(1.0)), np.array(0.0), np.array(-1.0), np.array(1.0), 5)
    assert t == 0


def test_natural_gradient_solves_least_squares_in_one_step():
    x, y = rng.normal(size=(20, 4)) * [1, 10, 0.1, 1], rng.normal(size=20)
    w = np.zeros(4)

    def model(w, x):
        return x @ w

    def squares(out, y):
        return pb.sum((out - y) ** 2) / 2

    rule = optim.natural_gradient(1.0, model, squares, damping=0.0, iterations=12, tolerance=0.0)
    grads = pb.grad(lambda w: squares(model(w, x), y))(w)
    updates, _ = rule.update(grads, rule.init(w), w, batch=((x,), (y,)))
    np.testing.assert_allclose(updates, np.linalg.lstsq(x, y, rcond=None)[0], rtol=1e-6)
    damped = optim.natural_gradient(0.5, model, squares, damping=3.0, iterations=12, tolerance=0.0)
    compiled = pb.jit(lambda g, w, x, y: damped.update(g, damped.init(w), w, batch=((x,), (y,)))[0])
    wanted = -0.5 * np.linalg.solve(x.T @ x + 3 * np.eye(4), grads)
    np.testing.assert_allclose(compiled(grads, w, x, y), wanted, rtol=1e-6)


def test_natural_gradient_of_a_classifier_is_by_its_fisher_matrix():
    x, labels = rng.normal(size=(30, 3)), rng.integers(0, 2, 30)
    params = {"w": 0.1 * rng.normal(size=(3, 2)), "b": np.zeros(2)}

    def model(p, x):
        return x @ p["w"] + p["b"]

    def cross_entropy(logits, labels):
        return -pb.mean(pb.take_along_axis(pb.log_softmax(logits, axis=-1), labels[:, None], axis=1))

    fisher = np.zeros((8, 8))
    for row in x:  # E over the model's own labels of the score's outer product
        p = np.exp(model(params, row))
        p = p / p.sum()
        for k in range(2):
            e = np.eye(2)[k] - p
            score = np.concatenate([e, np.outer(row, e).ravel()])
            fisher += p[k] * np.outer(score, score) / len(x)
    grads = pb.grad(lambda p: cross_entropy(model(p, x), labels))(params)
    flat = np.concatenate([grads["b"], grads["w"].ravel()])
    rule = optim.natural_gradient(1.0, model, cross_entropy, damping=0.01, iterations=30, tolerance=1e-12)
    found, _ = rule.update(grads, rule.init(params), params, batch=((x,), (labels,)))
    wanted = -np.linalg.solve(fisher + 0.01 * np.eye(8), flat)
    np.testing.assert_allclose(np.concatenate([found["b"], found["w"].ravel()]), wanted, rtol=1e-6)
    with pytest.raises(pb.errors.ArgumentError, match="batch="):
        rule.update(grads, rule.init(params), params)


def test_shampoo_and_muon_converge_where_plain_descent_crawls():
    left, right = (np.diag(np.geomspace(1, 30, 4)), np.diag(np.geomspace(1, 30, 3)))
    wanted = rng.normal(size=(4, 3))

    def f(w):
        return pb.sum((left @ (w - wanted) @ right) ** 2)

    start = np.zeros((4, 3))
    ours, _ = minimised(optim.shampoo(3.0), f, start, 100)
    crawl, _ = minimised(optim.sgd(1e-6), f, start, 100)
    assert f(ours) < 1e-3 * f(crawl)
    step, _ = minimised(optim.muon(optim.schedules.linear(0.3, 0.0, 100)), f, start, 100)
    assert f(step) < 0.05 * f(start)


def test_newton_schulz_keeps_singular_vectors_of_tall_wide_and_stacked_matrices():
    for shape in ((5, 3), (3, 5), (2, 4, 4)):
        g = rng.normal(size=shape)
        u, _, vt = np.linalg.svd(g, full_matrices=False)
        found = optim.newton_schulz(g, steps=25, coefficients=(1.5, -0.5, 0.0))
        np.testing.assert_allclose(found, u @ vt, atol=1e-6)
    assert np.all(optim.newton_schulz(np.zeros((2, 2))) == 0)
    with pytest.raises(pb.errors.ShapeError, match="multi_transform"):
        optim.muon(0.1).init(np.zeros(3))
