"""What a kernel reads several times against the order of memory is copied first: once, and only where it pays."""

import numpy as np
import pytest

import pullback as pb
from pullback.compile.loop_ir import Kernel

rng = np.random.default_rng(0)
TALL = rng.normal(size=(300, 120)).astype("f")
STACK = rng.normal(size=(4, 120, 300)).astype("f")


def copies(compiled, *args):
    """The kernels that only copy to the arena."""
    steps = [s for s in compiled.lower(*args)._compilation().steps.steps if isinstance(s, Kernel)]
    return [s for s in steps if len(s.lines) == 1 and s.lines[0].kind == "load" and s.writes()[0].kind == "arena"]


def test_an_array_that_is_read_for_each_matrix_of_a_stack_is_transposed_once():
    f = pb.jit(lambda b, a: b * a.T)
    np.testing.assert_array_equal(f(STACK, TALL), STACK * TALL.T)
    assert len(copies(f, STACK, TALL)) == 1


def test_two_kernels_share_a_copy():
    def two_sums(b, a, c):
        first = pb.sum(b * a.T, axis=(1, 2), keepdims=True)
        return pb.sum((b + first) * a.T, axis=2) + c

    f, c = pb.jit(two_sums), np.ones((4, 120), "f")
    assert len(copies(f, STACK, TALL, c)) == 1
    wide = STACK.astype("d")
    first = (wide * TALL.T).sum(axis=(1, 2), keepdims=True)
    expected = ((wide + first) * TALL.T).sum(axis=2) + c
    assert np.abs(f(STACK, TALL, c) - expected).max() <= 1e-4 * np.abs(expected).max()


@pytest.mark.parametrize(
    ("b", "a"),
    [
        (STACK[:1], TALL),  # read once
        (STACK[:, :10, :30].copy(), TALL[:30, :10].copy()),  # in near memory however it lies
    ],
)
def test_what_a_copy_would_not_help_is_read_where_it_is(b, a):
    f = pb.jit(lambda b, a: b * a.T)
    np.testing.assert_array_equal(f(b, a), b * a.T)
    assert not copies(f, b, a)


def test_rows_are_read_in_their_order():
    f, rows = pb.jit(lambda b, a: b * a), TALL.T.copy()
    np.testing.assert_array_equal(f(STACK, rows), STACK * rows)
    assert not copies(f, STACK, rows)


def test_a_copy_is_made_again_after_its_source_was_overwritten():
    def step(a, b):
        first = b * a.T
        a = a + 1
        return a, first, b - a.T

    f = pb.jit(step, donate_argnums=(0,))
    a, first, second = f(TALL.copy(), STACK)
    np.testing.assert_array_equal(a, TALL + 1)
    np.testing.assert_array_equal(first, STACK * TALL.T)
    np.testing.assert_array_equal(second, STACK - (TALL + 1).T)


def test_gradients_of_grid_sample_agree_with_op_by_op_calls():
    x, grid = rng.normal(size=(2, 16, 40, 64)).astype("f"), rng.uniform(-1.1, 1.1, (2, 40, 64, 2)).astype("f")
    bar = rng.normal(size=(2, 16, 40, 64)).astype("f")

    def gradients(x, grid, bar):
        return pb.vjp(pb.nn.grid_sample, x, grid)[1](bar)

    assert any(s.extents[-1] == 16 for s in copies(pb.jit(gradients), x, grid, bar))
    leaves = [pb.tensor(v, requires_grad=True) for v in (x, grid)]
    pb.nn.grid_sample(*leaves).backward(bar)
    with pb.native(False):
        expected = gradients(x, grid, bar)
    for leaf, want in zip(leaves, expected, strict=True):
        assert np.abs(leaf.grad.numpy() - want).max() <= 2e-5 * np.abs(want).max()
