"""What lowering saves, counted in steps and bytes of the arena; the numbers are those of NumPy, op by op."""

import numpy as np
import pytest

import pullback as pb
from pullback.compile.loop_ir import Host, Kernel, Product

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
    np.testing.assert_allclose(slope, (there - back) / (2 * step), rtol=1e-5, atol=1e-5)


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


CLASSES = 20_000
LOGITS = rng.normal(size=(6, CLASSES)).astype(np.float32)
LABELS = np.array([0, 3, CLASSES - 1, -2, 3, 17])


def softmax_rows(x):
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def cross_entropy_one_by_one(x, labels):
    """The mean loss and its gradient, row by row, in double precision."""
    slopes, losses = softmax_rows(x.astype(float)), []
    for i, label in enumerate(labels):
        losses.append(-np.log(slopes[i, label]))
        slopes[i, label] -= 1
    return np.mean(losses), slopes / len(labels)


def picked(x, labels):
    return -pb.mean(pb.take_along_axis(pb.nn.log_softmax(x, axis=1), labels[:, None], axis=1))


@pytest.mark.parametrize(
    ("loss", "most"),
    [
        (picked, 4),
        (pb.nn.cross_entropy, 3),
        (lambda x, y: pb.nn.cross_entropy(x, y, ignore_index=None), 3),
        (lambda x, y: pb.nn.cross_entropy(x, y, label_smoothing=0.1), 4),
    ],
    ids=["picked", "ignoring", "plain", "smoothed"],
)
def test_cross_entropy_keeps_nothing_of_the_size_of_the_logits(loss, most):
    """Two passes over them, value and gradient: labels are compared with places, and never scattered."""
    steps, arena = plan(pb.value_and_grad(loss), LOGITS, LABELS % CLASSES)
    whole = [s for s in steps if isinstance(s, Kernel) and LOGITS.shape == s.extents]
    assert len(whole) == 1
    assert len(steps) <= most
    assert arena < LOGITS.nbytes // 50


def test_ignored_labels_cost_no_step():
    labels = LABELS % CLASSES
    plain = plan(pb.value_and_grad(lambda x, y: pb.nn.cross_entropy(x, y, ignore_index=None)), LOGITS, labels)[0]
    ignoring = plan(pb.value_and_grad(pb.nn.cross_entropy), LOGITS, labels)[0]
    assert len(ignoring) <= len(plain)


def test_cross_entropy_against_numpy():
    value, slope = pb.jit(pb.value_and_grad(picked))(LOGITS, LABELS)
    want, slopes = cross_entropy_one_by_one(LOGITS, LABELS)
    np.testing.assert_allclose(value, want, rtol=1e-6)
    np.testing.assert_allclose(slope, slopes, rtol=1e-5, atol=1e-9)


STRANGE = np.array([[1.0, np.nan, 2.0, -0.0], [np.inf, 1.0, -np.inf, 0.0], [-0.0, 0.0, 3.0, np.inf]]).repeat(4, axis=1)


@pytest.mark.parametrize("columns", [[0, 4, 8], [4, 8, 12], [15, 0, 1], [-1, -16, -5]])
def test_elements_picked_from_computed_values_are_those_of_numpy(columns):
    """Only what is picked counts: not a number and infinity beside it stay out, and zeros keep their signs."""
    y = np.array(columns)[:, None]

    def f(x):
        return pb.take_along_axis(pb.negative(pb.sqrt(x * x) * x) - 0.0, y, axis=1), pb.sum(x)

    with np.errstate(invalid="ignore"):
        want = np.take_along_axis(-(np.sqrt(STRANGE * STRANGE) * STRANGE) - 0.0, y, axis=1)
    found = pb.jit(f)(STRANGE)[0]
    np.testing.assert_array_equal(found, want)
    is_number = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(found)[is_number], np.signbit(want)[is_number])
    slope = pb.jit(pb.grad(lambda x: pb.sum(pb.take_along_axis(3.0 * x + x, y, axis=1))))(STRANGE)
    expected = np.zeros_like(STRANGE)
    np.put_along_axis(expected, y, 4.0, axis=1)
    np.testing.assert_array_equal(slope, expected)


GATHERS = {
    "rows": (lambda x, w, i: pb.take(pb.exp(x) * w, i, axis=0), lambda x, w, i: (np.exp(x) * w)[i]),
    "two indices": (lambda x, w, i: (x * w + 1)[i, i + 1], lambda x, w, i: (x * w + 1)[i, i + 1]),
    "of a row of numbers": (lambda x, w, i: (x + w[0])[i, 2], lambda x, w, i: (x + w[0])[i, 2]),
    "twice": (
        lambda x, w, i: (lambda y: pb.take(y, i, axis=0) - pb.take(y, i + 1, axis=0))(pb.tanh(x) + w),
        lambda x, w, i: (np.tanh(x) + w)[i] - (np.tanh(x) + w)[i + 1],
    ),
    "beside a sum": (
        lambda x, w, i: (lambda y: pb.take(y, i, axis=0) - pb.sum(y, axis=0))(x / w),
        lambda x, w, i: (x / w)[i] - np.sum(x / w, axis=0),
    ),
    "of a comparison": (
        lambda x, w, i: pb.where(pb.take(x > w, i, axis=0), 1.0, 2.0),
        lambda x, w, i: np.where((x > w)[i], 1.0, 2.0),
    ),
    "of whole numbers": (
        lambda x, w, i: pb.take(pb.astype(10 * x, "int64") + 1, i, axis=0),
        lambda x, w, i: ((10 * x).astype("int64") + 1)[i],
    ),
}


@pytest.mark.parametrize("name", GATHERS)
def test_gathers_of_computed_values(name):
    f, plain = GATHERS[name]
    x, w, i = rng.normal(size=(40, 6)), 1 + rng.random(size=(1, 6)), np.array([3, 0, -1 if name == "rows" else 1])
    np.testing.assert_allclose(pb.jit(f)(x, w, i), plain(x, w, i), rtol=1e-13, atol=1e-13)
    if name not in ("of a comparison", "of whole numbers"):
        bar = rng.normal(size=plain(x, w, i).shape)
        found = pb.jit(pb.grad(lambda x, w: pb.sum(bar * f(x, w, i)), argnums=(0, 1)))(x, w)
        along = [rng.normal(size=z.shape) for z in (x, w)]
        there, back = (np.sum(bar * plain(x + t * along[0], w + t * along[1], i)) for t in (1e-5, -1e-5))
        slope = sum(np.sum(g * d) for g, d in zip(found, along, strict=True))
        np.testing.assert_allclose(slope, (there - back) / 2e-5, rtol=1e-5, atol=1e-5)


def test_indices_out_of_range_raise_where_the_gather_moved():
    f = pb.jit(lambda x, i: (pb.take(2.0 * x + 1.0, i, axis=0), pb.sum(x)))
    x = rng.normal(size=(40, 6))
    np.testing.assert_array_equal(f(x, np.array([39, -40]))[0], (2.0 * x + 1.0)[[39, -40]])
    for wrong in (40, -41):
        with pytest.raises(IndexError):
            f(x, np.array([0, wrong]))
    with pytest.raises(IndexError):
        pb.jit(pb.grad(picked))(LOGITS, np.where(LABELS == 17, CLASSES, LABELS))


FILLS = {
    "one number": (lambda: np.full((8, 6), 0.125), []),
    "minus zero": (lambda: np.full((8, 6), -0.0), []),
    "rows": (lambda: np.repeat(rng.normal(size=(1, 6)), 8, axis=0), [6]),
    "columns": (lambda: np.repeat(rng.normal(size=(8, 1)), 6, axis=1), [8]),
    "planes": (lambda: np.repeat(rng.normal(size=(3, 1, 1)), 8, axis=1) + np.zeros((8, 6)), [3]),
    "all different": (lambda: rng.normal(size=(8, 6)), [48]),
    "signs of zero": (lambda: np.where(np.arange(48).reshape(8, 6) == 47, -0.0, 0.0), [48]),
    "not numbers": (lambda: np.full((8, 6), np.nan), []),
}


@pytest.mark.parametrize("name", FILLS)
def test_captured_constants_are_as_small_as_what_they_repeat(name):
    """What a function makes itself, such as the share of each element in a mean, is not read as a whole."""
    make, sizes = FILLS[name]
    value = make()
    x = rng.normal(size=value.shape)
    f = pb.jit(lambda x: pb.copysign(x, value.copy()) + value.copy())
    assert sum((s.size for s in f.lower(x)._compilation().specs[1:]), 0) == sum(sizes) * (2 if sizes else 1)
    np.testing.assert_array_equal(f(x), np.copysign(x, value) + value)


def test_arrays_that_repeat_in_memory_are_read_once_and_seen_when_they_change():
    row, column, x = rng.normal(size=6), rng.normal(size=8), rng.normal(size=(8, 6))
    wide, tall = np.broadcast_to(row, (8, 6)), np.broadcast_to(column[:, None], (8, 6))
    f = pb.jit(lambda x: x * wide + tall)
    assert sorted(s.size for s in f.lower(x)._compilation().specs[1:]) == [6, 8]
    np.testing.assert_allclose(f(x), x * row + column[:, None], rtol=1e-14)
    row[2], column[3] = 7.0, -5.0
    np.testing.assert_allclose(f(x), x * row + column[:, None], rtol=1e-14)


def test_the_cotangent_of_a_mean_over_an_axis_is_a_number():
    x = rng.normal(size=(40, 30))
    f = pb.grad(lambda x: pb.sum(pb.mean(pb.sin(x), axis=1)))
    assert len(pb.jit(f).lower(x)._compilation().specs) == 1
    np.testing.assert_allclose(pb.jit(f)(x), np.cos(x) / 30, rtol=1e-13)


@pytest.fixture
def gpu():
    driver = pytest.importorskip("fake_cuda_driver")
    if not driver.cuda_emulator.has_compiler():
        pytest.skip("the emulator needs g++")
    with driver.installed() as (cupy, _):
        yield cupy


def test_what_counts_an_axis_is_known_on_a_gpu_too(gpu):
    """Labels are compared with places there, and shares of a mean are numbers."""
    x, y = LOGITS[:, :500].astype(float), np.array([0, 3, 499, -2, 3, 17])
    f = pb.value_and_grad(picked)
    given = gpu.asarray(x), gpu.asarray(y)
    compiled = pb.jit(f).lower(*given)._compilation()
    assert compiled.target.name == "cuda"
    assert len(compiled.planned.inputs) == 2
    assert compiled.planned.arena < x.nbytes // 4
    # numbers of places are computed, not read
    assert all(b.kind != "constant" for launch in compiled.code.plan.actions for b in launch.buffers)
    value, slope = pb.jit(f)(*given)
    want, slopes = cross_entropy_one_by_one(x, y)
    np.testing.assert_allclose(value.get(), want, rtol=1e-12)
    np.testing.assert_allclose(slope.get(), slopes, rtol=1e-10, atol=1e-14)


def test_captured_arrays_that_repeat_on_a_gpu(gpu):
    row, x = rng.normal(size=6), rng.normal(size=(8, 6))
    own = gpu.asarray(row)
    wide = gpu.broadcast_to(own, (8, 6))
    f = pb.jit(lambda x: x * wide + gpu.broadcast_to(gpu.asarray(2.5), (8, 6)).copy())
    assert sorted(s.size for s in f.lower(gpu.asarray(x))._compilation().specs[1:]) == [6]
    np.testing.assert_allclose(f(gpu.asarray(x)).get(), x * row + 2.5, rtol=1e-14)


UPDATES = {
    "a bias": (lambda b, x: b - 0.1 * pb.sum(x, axis=0), (6,), 1),
    "a mean": (lambda b, x: b + pb.mean(x), (), 1),
    "two sums": (lambda b, x: b * pb.sum(x, axis=0) + pb.sum(pb.sin(x), axis=0), (6,), 1),
    "a largest": (lambda b, x: pb.exp(b - pb.max(x, axis=0)), (6,), 1),
    "whole numbers": (lambda b, x: b + pb.sum(x > 0, axis=0), (6,), 1),
    "shifted places": (lambda b, x: b + pb.flip(pb.sum(x, axis=0)), (6,), 2),
    "another shape": (lambda b, x: b + pb.sum(x, axis=0)[:, None], (6, 3), 2),
}


@pytest.mark.parametrize("donated", [(), (0,)], ids=["new", "in place"])
@pytest.mark.parametrize("name", UPDATES)
def test_what_follows_a_sum_shares_its_launch(gpu, name, donated):
    f, shape, most = UPDATES[name]
    b, x = rng.normal(size=shape), rng.normal(size=(9, 6))
    jitted = pb.jit(f, donate_argnums=donated)
    given = gpu.asarray(b), gpu.asarray(x)
    assert len(jitted.lower(*given)._compilation().code.plan.actions) <= most
    np.testing.assert_allclose(jitted(*given).get(), f(b, x), rtol=1e-12, atol=1e-12)


def test_attention_by_blocks_is_native():
    """No op is left to NumPy, and the weights of one block make room for those of the next."""
    q, k, v = (rng.normal(size=(64, 8)) for _ in range(3))
    f = pb.jit(lambda q, k, v: pb.nn.scaled_dot_product_attention(q, k, v, is_causal=True, block_size=8))
    planned = f.lower(q, k, v)._compilation().planned
    assert not count(planned.steps, Host)
    assert planned.arena < 64 * 64 * 8
    scores = np.where(np.tril(np.ones((64, 64), bool)), q @ k.T / np.sqrt(8), -np.inf)
    np.testing.assert_allclose(f(q, k, v), softmax_rows(scores) @ v, rtol=1e-12, atol=1e-12)
