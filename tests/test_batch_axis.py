"""`vmap(axis_name=)`: values of all elements of a batch, against plain NumPy on whole arrays."""

import numpy as np
import pytest

import pullback as pb
from pullback import errors

ROWS = np.random.default_rng(0).normal(size=(5, 3))
SHIFT = [(0, 1), (1, 2), (4, 0)]

#: Functions of an element, and the same of the whole batch by NumPy.
CASES = {
    "sum": (lambda x: x * pb.batch_sum(pb.sin(x), "i"), lambda X: X * np.sin(X).sum(0)),
    "mean": (lambda x: x * pb.batch_mean(x * x, "i"), lambda X: X * (X * X).mean(0)),
    "max": (lambda x: x * pb.batch_max(x, "i"), lambda X: X * X.max(0)),
    "min": (lambda x: x * pb.batch_min(x, "i"), lambda X: X * X.min(0)),
    "gather": (
        lambda x: pb.sum(pb.cos(x - pb.batch_gather(x, "i")) * pb.batch_index("i"), axis=0),
        lambda X: np.cos(X[:, None] - X[None]).sum(1) * np.arange(5)[:, None],
    ),
    "permute": (
        lambda x: x * pb.batch_permute(x, "i", SHIFT),
        lambda X: X * np.stack([X[4], X[0], X[1], 0 * X[0], 0 * X[0]]),
    ),
    "own": (lambda x: pb.batch_gather(x * x, "i")[pb.batch_index("i")] * x, lambda X: X**3),
    "scan": (
        lambda x: pb.scan(lambda c, y: (c * pb.batch_mean(y, "i") + y, c), 1.0, x)[0],
        lambda X: ((1.0 * X[:, 0].mean() + X[:, 0]) * X[:, 1].mean() + X[:, 1]) * X[:, 2].mean() + X[:, 2],
    ),
    "loop": (
        lambda x: pb.while_loop(
            lambda c: c[1] < 3, lambda c: (pb.sin(c[0]) + pb.batch_sum(c[0], "i") / 5, c[1] + 1), (x, 0)
        )[0],
        lambda X: _loop(X),
    ),
}


def _loop(X):
    for _ in range(3):
        X = np.sin(X) + X.sum(0) / 5
    return X


def complex_step(whole, X):
    """The gradient of the sum of squares by NumPy alone, without an error of differences."""
    found = np.empty_like(X)
    for i in np.ndindex(*X.shape):
        moved = X.astype(complex)
        moved[i] += 1e-30j
        out = whole(moved)
        found[i] = (out * out).sum().imag / 1e-30
    return found


def named(f):
    return pb.vmap(f, axis_name="i")


def loss(f):
    return lambda X: pb.sum(named(f)(X) ** 2)


@pytest.mark.parametrize("name", CASES)
def test_values_and_derivatives_are_those_of_the_whole_batch(name):
    f, whole = CASES[name]
    np.testing.assert_allclose(named(f)(ROWS), whole(ROWS), rtol=1e-13)
    np.testing.assert_allclose(pb.jit(named(f))(ROWS), whole(ROWS), rtol=1e-13)
    if name in ("max", "min"):  # complex numbers have another order
        return
    wanted = complex_step(whole, ROWS)
    np.testing.assert_allclose(pb.grad(loss(f))(ROWS), wanted, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(pb.jit(pb.grad(loss(f)))(ROWS), wanted, rtol=1e-12, atol=1e-12)
    direction = np.cos(np.arange(15.0)).reshape(5, 3)
    _, along = pb.jvp(loss(f), (ROWS,), (direction,))
    np.testing.assert_allclose(along, (wanted * direction).sum(), rtol=1e-12)


@pytest.mark.parametrize("name", [n for n in CASES if n not in ("max", "min")])
def test_second_derivatives_of_all_four_compositions_agree_with_differences_of_the_first(name):
    f, whole = CASES[name]
    direction = np.cos(np.arange(15.0)).reshape(5, 3)
    h = 1e-6
    wanted = (complex_step(whole, ROWS + h * direction) - complex_step(whole, ROWS - h * direction)) / (2 * h)
    gradient = pb.grad(loss(f))
    np.testing.assert_allclose(pb.jvp(gradient, (ROWS,), (direction,))[1], wanted, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(pb.grad(lambda X: pb.sum(gradient(X) * direction))(ROWS), wanted, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(
        pb.grad(lambda X: pb.jvp(loss(f), (X,), (direction,))[1])(ROWS), wanted, rtol=1e-6, atol=1e-6
    )


@pytest.mark.parametrize("name", [n for n in CASES if n not in ("max", "min")])
def test_a_gradient_inside_is_that_of_the_sum_over_elements(name):
    """Each element's gradient is that of the sum of all results: what the sum over ranks has, too."""
    f, whole = CASES[name]
    wanted = complex_step(whole, ROWS)
    inside = named(pb.grad(lambda x: pb.sum(f(x) ** 2)))
    np.testing.assert_allclose(inside(ROWS), wanted, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(pb.jit(inside)(ROWS), wanted, rtol=1e-12, atol=1e-12)


def test_masked_cotangents_cross_the_batch():
    """The root of an element that is not selected has an infinite slope, which is unused."""
    X = np.array([4.0, 0.0, 9.0])
    inside = named(
        pb.grad(lambda x: pb.where(x > 0, pb.sqrt(x), 0.0) * pb.batch_sum(pb.where(x > 1, pb.sqrt(x), 1.0), "i"))
    )
    wanted = np.array([0.25, 0.0, 1 / 6]) * 6.0 + np.array([0.25, 0.0, 1 / 6]) * 5.0
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(inside(X), wanted, rtol=1e-14)
        np.testing.assert_allclose(pb.jit(inside)(X), wanted, rtol=1e-14)
        gathered = named(pb.grad(lambda x: pb.sum(pb.batch_gather(pb.where(x > 0, pb.sqrt(x), 0.0), "i"))))
        np.testing.assert_allclose(gathered(X), 3 * np.array([0.25, 0.0, 1 / 6]), rtol=1e-14)


def test_extremes_have_the_derivatives_of_max():
    found = pb.grad(lambda X: pb.sum(named(lambda x: pb.batch_max(x, "i") - 2.0 * pb.batch_min(x, "i"))(X)))(ROWS)
    wanted = 5.0 * ((ROWS.max(0) == ROWS) - 2.0 * (ROWS.min(0) == ROWS))
    np.testing.assert_allclose(found, wanted)


def test_what_all_elements_have_in_common_counts_for_each():
    w = np.array([1.0, 2.0])

    def f(x, w):
        return pb.batch_sum(w, "i") + x

    both = pb.vmap(f, (0, None), axis_name="i")
    np.testing.assert_array_equal(both(ROWS[:, :2], w), ROWS[:, :2] + 5 * w)
    np.testing.assert_array_equal(pb.grad(lambda w: pb.sum(both(ROWS[:, :2], w)))(w), [25.0, 25.0])
    scattered = pb.vmap(pb.grad(lambda w, x: pb.batch_gather(w, "i")[2] * x), (None, 0), axis_name="i")
    np.testing.assert_allclose(scattered(3.0, np.arange(5.0)), [0.0, 0.0, 10.0, 0.0, 0.0])


def test_names_nest_and_each_finds_its_own():
    X = np.random.default_rng(1).normal(size=(4, 5))

    def f(x):
        return x * pb.batch_sum(x, "rows") - pb.batch_mean(pb.sin(x), "columns") * pb.batch_index("rows")

    table = pb.vmap(pb.vmap(f, axis_name="columns"), axis_name="rows")
    wanted = X * X.sum(0) - np.sin(X).mean(1)[:, None] * np.arange(4)[:, None]
    np.testing.assert_allclose(table(X), wanted, rtol=1e-13)
    np.testing.assert_allclose(pb.jit(table)(X), wanted, rtol=1e-13)
    turned = pb.vmap(pb.vmap(f, axis_name="rows"), in_axes=1, out_axes=1, axis_name="columns")
    np.testing.assert_allclose(turned(X), wanted, rtol=1e-13)
    looped = pb.vmap(
        pb.vmap(lambda x: pb.scan(lambda c, _: (f(c), None), x, length=2)[0], axis_name="columns"), axis_name="rows"
    )
    again = wanted * wanted.sum(0) - np.sin(wanted).mean(1)[:, None] * np.arange(4)[:, None]
    np.testing.assert_allclose(looped(X), again, rtol=1e-12)
    np.testing.assert_allclose(pb.jit(looped)(X), again, rtol=1e-12)
    both = pb.vmap(pb.vmap(lambda x: x / pb.batch_sum(pb.batch_sum(x, "c"), "r"), axis_name="c"), axis_name="r")
    np.testing.assert_allclose(both(X), X / X.sum(), rtol=1e-12)


def test_an_unnamed_batch_around_or_inside_is_another_one():
    X = np.random.default_rng(2).normal(size=(2, 4, 3))
    inner = pb.vmap(pb.vmap(lambda x: x / pb.batch_sum(x * x, "i"), axis_name="i"))
    np.testing.assert_allclose(inner(X), X / (X * X).sum(1, keepdims=True), rtol=1e-13)
    outer = pb.vmap(pb.vmap(lambda x: x / pb.batch_sum(x * x, "i")), axis_name="i")
    np.testing.assert_allclose(outer(X), X / (X * X).sum(0), rtol=1e-13)
    gathered = pb.vmap(pb.vmap(lambda x: pb.batch_gather(x, "i"), out_axes=2), axis_name="i")
    np.testing.assert_array_equal(gathered(X), np.broadcast_to(np.moveaxis(X, 1, 2), (2, 2, 3, 4)))
    jacobian = pb.jacobian(named(lambda x: pb.batch_sum(x * x, "i")))(ROWS)
    wanted = 2 * np.einsum("jk,kl,i->iklj", ROWS, np.eye(3), np.ones(5)).swapaxes(2, 3)
    np.testing.assert_allclose(jacobian, wanted, rtol=1e-13)
    within = pb.vmap(pb.jacobian(named(lambda x: pb.batch_sum(x * x, "i"))))(ROWS[None])
    np.testing.assert_allclose(within[0], wanted, rtol=1e-13)


def test_dtypes_trees_tensors_and_checkpoints_go_along():
    def f(x):
        return {"a": pb.batch_mean({"b": x}, "i")["b"]}

    half = np.full((4, 2), 40000.0, np.float16)
    np.testing.assert_array_equal(named(f)(half)["a"], half)
    assert named(f)(half)["a"].dtype == np.float16
    np.testing.assert_array_equal(named(lambda x: pb.batch_sum(x > 0, "i"))(ROWS)[0], (ROWS > 0).sum(0))
    assert named(lambda x: pb.batch_sum(x, "i"))(ROWS.astype(np.float32)).dtype == np.float32
    x = pb.tensor(ROWS, requires_grad=True)

    def g(x):
        return pb.sum(x * pb.batch_mean(pb.exp(x), "i"))

    pb.sum(named(pb.checkpoint(g))(x)).backward()
    wanted = pb.grad(lambda X: pb.sum(named(g)(X)))(ROWS)
    np.testing.assert_allclose(x.grad.numpy(), wanted, rtol=1e-13)
    np.testing.assert_allclose(pb.grad(lambda X: pb.sum(pb.checkpoint(named(g))(X)))(ROWS), wanted, rtol=1e-13)
    assert named(lambda x: pb.batch_sum(x, "i"))(np.ones((1, 2))).tolist() == [[1.0, 1.0]]
    assert named(lambda x: pb.batch_sum(x, "i"))(np.ones((0, 2))).shape == (0, 2)


def test_batch_norm_of_parts_has_the_statistics_of_the_whole():
    """Statistics over elements of the batch and over those within each part, as ranks share them."""
    X = np.random.default_rng(3).normal(size=(4, 6, 3))

    def norm(x, scale):
        mean = pb.batch_mean(pb.mean(x, axis=0), "parts")
        square = pb.batch_mean(pb.mean(x * x, axis=0), "parts")
        return scale * (x - mean) / pb.sqrt(square - mean * mean + 1e-5)

    def whole(flat, scale):
        mean, var = pb.mean(flat, axis=0), pb.var(flat, axis=0)
        return scale * (flat - mean) / pb.sqrt(var + 1e-5)

    parts = pb.vmap(norm, (0, None), axis_name="parts")
    scale = np.array([1.0, 2.0, 0.5])
    flat = X.reshape(24, 3)
    np.testing.assert_allclose(parts(X, scale).reshape(24, 3), whole(flat, scale), rtol=1e-11)
    left = pb.grad(lambda X, s: pb.sum(parts(X, s) ** 3), (0, 1))(X, scale)
    right = pb.grad(lambda X, s: pb.sum(whole(X, s) ** 3), (0, 1))(flat, scale)
    np.testing.assert_allclose(left[0].reshape(24, 3), right[0], rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(left[1], right[1], rtol=1e-9)


def test_what_cannot_be_is_refused():
    with pytest.raises(errors.ArgumentError, match=r"no vmap of the name 'j'.*only 'i'"):
        named(lambda x: pb.batch_sum(x, "j"))(ROWS)
    with pytest.raises(errors.ArgumentError, match=r"no vmap of the name 'i' around this call"):
        pb.batch_mean(1.0, "i")
    with pytest.raises(errors.ArgumentError, match="that of a vmap around"):
        named(named(lambda x: x))(ROWS)
    with pytest.raises(errors.ArgumentError, match="exclude each other"):
        pb.vmap(lambda x: x, axis_name="i", chunk_size=2)
    with pytest.raises(errors.GraphError, match=r"pb\.jit\(pb\.vmap\(f, axis_name='i'\)\)"):
        named(pb.jit(lambda x: pb.batch_sum(x, "i")))(ROWS)
    with pytest.raises(errors.GraphError, match="some elements take"):
        named(lambda x: pb.cond(x[0] > 0, lambda: pb.batch_sum(x, "i"), lambda: x))(ROWS)
    for f in (
        lambda x: pb.cond(x[0] > 0, lambda: pb.batch_sum(x, "i"), lambda: x),
        lambda x: pb.while_loop(lambda c: c[0] < 10.0, lambda c: c + abs(pb.batch_sum(c, "i")), x),
    ):
        with pytest.raises(errors.GraphError, match="reads values of all elements"):
            pb.jit(named(f))(ROWS)
    for pairs, words in (([(0, 9)], "no elements"), ([(0, 1), (0, 2)], "twice"), ([3], "are \\(from, to\\)")):
        with pytest.raises(errors.ArgumentError, match=words):
            named(lambda x, pairs=pairs: pb.batch_permute(x, "i", pairs))(ROWS)
    with pytest.raises(errors.ArgumentError, match="axis_name must be a text"):
        pb.vmap(lambda x: x, axis_name=3)
    for derivative in (pb.jacobian, pb.jacfwd, pb.jacrev, pb.hessian, pb.laplacian):
        with pytest.raises(errors.GraphError, match=r"depends on all\."):
            named(derivative(lambda x: pb.sum(pb.batch_sum(x, "i"))))(ROWS)
    mean = lambda x: 0.3 * pb.batch_mean(x, "i") - x  # noqa: E731
    for solve in (
        lambda x: pb.ode.solve(lambda t, y: mean(y), x, (0.0, 1.0)).y,
        lambda x: pb.fixed_point(lambda z, x: mean(z) + x, x, x),
        lambda x: pb.root(lambda z, x: mean(z) + x, x, x),
        lambda x: pb.argmin(lambda z, x: pb.sum((mean(z) + x) ** 2), x, x),
        lambda x: pb.linear_solve(mean, x),
    ):
        for mode in (lambda f: f, pb.jit):
            with pytest.raises(errors.GraphError, match="solves for each of them by itself"):
                mode(named(solve))(ROWS)
    kept = []
    named(lambda x: (kept.append(pb.batch_index("i")), x)[1])(ROWS)
    with pytest.raises(errors.LeakError):
        kept[0] + 1
