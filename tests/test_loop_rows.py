"""Compiled scans whose results are carries: what a round was given is stored by the round before."""

import numpy as np
import pytest

import pullback as pb

RNG = np.random.default_rng(0)
ROWS, W = RNG.standard_normal((6, 3, 3)), RNG.standard_normal((3, 3)) / 2


def old_and_new(c, x):
    new = pb.tanh(c @ W + x)
    return new, (c, new, c * 2, c)


def swap(c, x):
    (a, b), new = c, pb.sin(c[0]) * x
    return (b, new), (a, b, new)


def numbers(c, x):
    return (c[0] + 1, c[1] @ W), (c[0], c[1], pb.sum(x))


def kept(c, x):
    return (c[0], c[1] * x), (c[0], c[1])


def constant(c, x):
    return (c[0] * 0.5, np.ones((3, 3))), c


STEPS = {
    "old and new": (old_and_new, ROWS[0] * 1.0),
    "swap": (swap, (ROWS[0] * 1.0, ROWS[1] * 2)),
    "numbers": (numbers, (0, ROWS[0] * 1.0)),
    "kept": (kept, (ROWS[0] * 1.0, ROWS[1] * 2)),
    "constant": (constant, (ROWS[0] * 1.0, ROWS[1] * 2)),
}


def agree(found, wanted):
    for a, b in zip(pb.tree.leaves([found]), pb.tree.leaves([wanted]), strict=True):
        assert np.shape(a) == np.shape(b)
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", STEPS)
def test_carries_as_rows(name, reverse):
    step, start = STEPS[name]
    for length in (0, 1, 2, 5):
        f = lambda xs: pb.scan(step, start, xs, reverse=reverse)  # noqa: E731
        agree(pb.jit(f, check=length == 5)(ROWS[:length]), f(ROWS[:length]))


@pytest.mark.parametrize("reverse", [False, True])
def test_derivatives_of_what_has_carries_as_rows(reverse):
    def loss(w, xs):
        last, (old, _, twice, _) = pb.scan(
            lambda c, x: ((new := pb.tanh(c @ w + x)), (c, new, c * 2, c)), xs[0], xs, reverse=reverse
        )
        return pb.sum(last * pb.mean(old * twice, axis=0)) + pb.sum(old[0] * old[-1])

    for f in (pb.grad(loss, (0, 1)), lambda w, xs: pb.jvp(pb.grad(loss), (w, xs), (w * 2, xs))[1]):
        agree(pb.jit(f, check=True)(W, ROWS), f(W, ROWS))


def test_a_product_is_computed_where_the_carry_is():
    f = lambda xs: pb.scan(lambda c, x: (c @ x, None), xs[0], xs)[0]  # noqa: E731
    g = lambda xs: pb.scan(lambda c, x: ((c[1] @ x, c[0] @ W), c[0]), (xs[0], xs[1]), xs)  # noqa: E731
    for h in (f, g):
        agree(pb.jit(h, check=True)(ROWS), h(ROWS))
    update = pb.jit(lambda a, b: b @ b, donate_argnums=0)
    a = np.ones((3, 3))
    agree(update(a, W), W @ W)
    agree(pb.jit(lambda a, b: (b @ b, a * 2), donate_argnums=0)(np.ones((3, 3)), W), (W @ W, np.full((3, 3), 2.0)))
    agree(pb.jit(lambda a: a @ a, donate_argnums=0)(W.copy()), W @ W)
