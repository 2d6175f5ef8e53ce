"""What lowering saves, counted in steps and bytes of the arena; the numbers are those of NumPy, op by op."""

import numpy as np
import pytest

import pullback as pb
from pullback.compile.loop_ir import Kernel, Product

rng = np.random.default_rng(0)


def plan(f, *args, **options):
    """The steps of a compiled function, and the bytes of its arena."""
    planned = pb.jit(f, **options).lower(*args)._compilation().planned
    return planned.steps, planned.arena


def count(steps, kind):
    return sum(isinstance(s, kind) for s in steps)


BATCH, LENGTH, HEADS, WIDTH = 3, 6, 4, 8
X = rng.normal(size=(BATCH, LENGTH, HEADS * WIDTH))
W = rng.normal(size=(HEADS * WIDTH, 3 * HEADS * WIDTH)) * 0.3


def attend(x, w):
    """Attention with several heads, from one product for queries, keys and values."""
    queries, keys, values = (
        pb.permute_dims(pb.reshape(part, (BATCH, LENGTH, HEADS, WIDTH)), (0, 2, 1, 3))
        for part in pb.split(x @ w, 3, axis=-1)
    )
    weights = pb.nn.softmax(queries @ pb.matrix_transpose(keys), axis=-1)
    return pb.reshape(pb.permute_dims(weights @ values, (0, 2, 1, 3)), (BATCH, LENGTH, HEADS * WIDTH))


def attend_one_by_one(x, w):
    """The same in NumPy: each sample and each head alone."""
    found = np.empty_like(x)
    for b in range(BATCH):
        q, k, v = np.split(x[b] @ w, 3, axis=1)
        for h in range(HEADS):
            own = slice(h * WIDTH, (h + 1) * WIDTH)
            scores = q[:, own] @ k[:, own].T
            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
            found[b, :, own] = weights / weights.sum(axis=1, keepdims=True) @ v[:, own]
    return found


def test_heads_of_attention_are_strides():
    """No kernel copies heads: three products and a softmax forward, and six more products with the gradients."""
    steps, _ = plan(attend, X, W)
    assert (count(steps, Product), count(steps, Kernel)) == (3, 1)
    steps, _ = plan(pb.grad(lambda x, w: pb.sum(pb.sin(attend(x, w))), argnums=(0, 1)), X, W)
    assert count(steps, Product) == 9
    assert not [s for s in steps if isinstance(s, Kernel) and {line.kind for line in s.live_lines()} == {"load"}]


def test_values_of_heads():
    np.testing.assert_allclose(pb.jit(attend)(X, W), attend_one_by_one(X, W), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("direction", range(3))
def test_slopes_of_heads(direction):
    """Gradients by jit against differences of what NumPy computes."""
    along = [np.random.default_rng(direction).normal(size=z.shape) for z in (X, W)]
    bar = rng.normal(size=X.shape)
    found = pb.jit(pb.grad(lambda x, w: pb.sum(bar * attend(x, w)), argnums=(0, 1)))(X, W)
    step = 1e-5
    there, back = (np.sum(bar * attend_one_by_one(X + t * along[0], W + t * along[1])) for t in (step, -step))
    slope = sum(np.sum(g * d) for g, d in zip(found, along, strict=True))
    np.testing.assert_allclose(slope, (there - back) / (2 * step), rtol=1e-6)


#: Shapes of two stacks of matrices with two axes of batch each, and the orders in which they lie.
STACKS = [
    ((2, 3, 4, 5), (2, 3, 5, 6)),
    ((2, 1, 4, 5), (2, 3, 5, 6)),
    ((2, 3, 4, 5), (1, 3, 5, 6)),
    ((3, 4, 5), (2, 3, 5, 6)),
    ((2, 3, 1, 5), (2, 3, 5, 6)),
    ((2, 3, 4, 5), (2, 3, 5, 1)),
    ((2, 3, 1, 5), (2, 3, 5, 1)),
    ((2, 1, 4, 5), (1, 3, 5, 6)),
    ((1, 1, 20, 17), (2, 3, 17, 33)),
    ((2, 2, 24, 40), (2, 2, 40, 48)),
]


ORDERS = [(0, 2, 1, 3), (2, 0, 1, 3), (1, 0, 3, 2), (0, 1, 2, 3), (3, 2, 1, 0)]


@pytest.mark.parametrize("number", range(len(STACKS)), ids=lambda i: f"{STACKS[i]} {ORDERS[i % len(ORDERS)]}")
def test_stacks_of_matrices_in_any_order(number):
    """Factors and result each in another order of their axes, alone and as parts of one array."""
    order, dtype = ORDERS[number % len(ORDERS)], ("float32", "float64")[number // 2 % 2]
    left, right = (rng.normal(size=s).astype(dtype) for s in STACKS[number])
    back = tuple(np.argsort(order))

    def f(x, y):
        made = pb.permute_dims(x @ pb.permute_dims(y, back), order)
        return made, pb.concat([pb.permute_dims(2 * x @ pb.permute_dims(y, back), order), made], axis=1)

    found = pb.jit(f)(left, np.ascontiguousarray(np.transpose(right, order)))
    want = np.transpose(left.astype(float) @ right.astype(float), order)
    bound = 1e-4 if dtype == "float32" else 1e-12
    np.testing.assert_allclose(found[0], want, rtol=bound, atol=bound)
    np.testing.assert_allclose(found[1], np.concatenate([2 * want, want], axis=1), rtol=bound, atol=bound)


def test_products_are_computed_where_they_are_joined():
    x, y, z = (rng.normal(size=(5, 4)) for _ in range(3))
    w = rng.normal(size=(4, 3))

    def f(x, y, z, w):
        return pb.concat([x @ w, pb.reshape(y @ w, (5, 3)), pb.sin(z @ w)], axis=1)

    steps, arena = plan(f, x, y, z, w)
    assert (count(steps, Product), count(steps, Kernel)) == (3, 1)
    assert arena <= 5 * 3 * 8 + 64
    want = np.concatenate([x @ w, y @ w, np.sin(z @ w)], axis=1)
    np.testing.assert_allclose(pb.jit(f)(x, y, z, w), want, rtol=1e-12)

    # what is used elsewhere too, or joined twice, is copied
    def twice(x, w):
        v = x @ w
        return pb.concat([v, v], axis=0) + 0 * pb.sum(v)

    np.testing.assert_allclose(pb.jit(twice)(x, w), np.concatenate([x @ w, x @ w]), rtol=1e-12)
