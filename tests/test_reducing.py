"""Reductions and scans: their keywords against NumPy, and their derivatives at zeros, ties and infinities."""

import numpy as np
import pytest

import pullback as pb

rng = np.random.default_rng(3)
X = rng.normal(size=(3, 4))
MASK = X > -0.4


@pytest.mark.parametrize("axis", [None, 0, 1, -1, (0, 1), ()])
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("name", ["sum", "prod", "mean", "var", "std", "max", "min", "any", "all"])
def test_axes_and_keepdims(name, axis, keepdims):
    found = getattr(pb, name)(X, axis=axis, keepdims=keepdims)
    np.testing.assert_allclose(found, getattr(np, name)(X, axis=axis, keepdims=keepdims), atol=1e-15)


@pytest.mark.parametrize("name", ["sum", "prod", "mean", "var", "std", "any", "all"])
def test_where_leaves_elements_out(name):
    np.testing.assert_allclose(getattr(pb, name)(X, axis=0, where=MASK), getattr(np, name)(X, axis=0, where=MASK))
    row = MASK[:, :1]
    np.testing.assert_allclose(getattr(pb, name)(X, axis=0, where=row), getattr(np, name)(X, axis=0, where=row))
    with pytest.raises(pb.errors.DtypeError, match="booleans"):
        getattr(pb, name)(X, where=X)


@pytest.mark.parametrize(("name", "initial"), [("sum", 2.0), ("prod", 2.0), ("max", 0.1), ("min", 0.1)])
def test_initial_counts_as_one_more(name, initial):
    options = {"axis": 1, "initial": initial, "where": MASK}
    np.testing.assert_allclose(getattr(pb, name)(X, **options), getattr(np, name)(X, **options))
    assert bool(pb.gradcheck(lambda x: getattr(pb, name)(x, **options), X))
    empty = getattr(pb, name)(np.zeros((0, 2)), axis=0, initial=initial)
    np.testing.assert_array_equal(empty, getattr(np, name)(np.zeros((0, 2)), axis=0, initial=initial))


def test_masked_extremes_want_an_initial():
    with pytest.raises(pb.errors.ArgumentError, match="initial"):
        pb.max(X, where=MASK)


def naive_products(x):
    """Gradient and Hessian of the product of a vector, by leaving factors out."""
    n = len(x)
    first = np.array([np.prod(np.delete(x, i)) for i in range(n)])
    second = np.array([[0.0 if i == j else np.prod(np.delete(x, [i, j])) for j in range(n)] for i in range(n)])
    return first, second


@pytest.mark.parametrize("zeros", [(), (1,), (0, 3), (0, 1, 2, 3)])
def test_products_with_zeros_to_second_order(zeros):
    x = rng.normal(size=4)
    x[list(zeros)] = 0
    first, second = naive_products(x)
    np.testing.assert_allclose(pb.grad(pb.prod)(x), first, atol=1e-15)
    np.testing.assert_allclose(pb.hessian(pb.prod)(x), second, atol=1e-14)
    for mode in ("forward-over-forward", "reverse-over-reverse"):
        np.testing.assert_allclose(pb.hessian(pb.prod, mode=mode)(x), second, atol=1e-14)


def test_products_that_underflow_do_not_divide():
    x = np.array([1e-200, 1e-200, 1e300])
    np.testing.assert_allclose(pb.grad(pb.prod)(x), [1e100, 1e100, 0.0])
    huge = np.array([1e200, 1e200, 1e-300])
    with np.errstate(over="ignore"):
        np.testing.assert_allclose(pb.grad(pb.prod)(huge), [1e-100, 1e-100, np.inf])


@pytest.mark.parametrize("zeros", [(), (1,), (0, 2)])
def test_running_products_with_zeros(zeros):
    x, weights = rng.normal(size=5), rng.normal(size=5)
    x[list(zeros)] = 0

    def by_parts(v):
        total, product = 0.0, 1.0
        for i in range(5):
            product = product * v[i]
            total = total + weights[i] * product
        return total

    ours = lambda v: pb.sum(pb.cumprod(v) * weights)  # noqa: E731
    np.testing.assert_allclose(pb.grad(ours)(x), pb.grad(by_parts)(x), atol=1e-14)
    np.testing.assert_allclose(pb.hessian(ours)(x), pb.hessian(by_parts)(x), atol=1e-13)


def test_long_recurrences_run_in_blocks():
    a, b = rng.uniform(-1, 1, size=(2, 1000))
    a[17] = 0.0
    expected, y = [], 0.0
    for p, q in zip(a, b, strict=True):
        y = p * y + q
        expected.append(y)
    np.testing.assert_allclose(pb.linear_recurrence(a, b), expected, rtol=1e-12)
    np.testing.assert_allclose(pb.linear_recurrence(np.full(1000, 1e3), np.zeros(1000)), 0.0)


def test_logcumsumexp_without_overflow_and_with_minus_infinity():
    x = np.array([-np.inf, 1000.0, 1000.0, -1000.0])
    np.testing.assert_allclose(pb.logcumsumexp(x), np.logaddexp.accumulate(x))
    slope = pb.grad(lambda v: pb.logcumsumexp(v)[2])(x)
    np.testing.assert_allclose(slope, [0.0, 0.5, 0.5, 0.0])
    assert bool(pb.gradgradcheck(lambda v: pb.logcumsumexp(v, axis=0), X))


def test_logsumexp_of_nothing_does_not_move():
    x = np.full(3, -np.inf)
    assert pb.logsumexp(x) == -np.inf
    np.testing.assert_array_equal(pb.grad(pb.logsumexp)(x), 0.0)


@pytest.mark.parametrize(("ours", "ufunc"), [(pb.cummax, np.maximum), (pb.cummin, np.minimum)])
def test_running_extremes(ours, ufunc):
    for axis in (0, 1):
        np.testing.assert_array_equal(ours(X, axis=axis), ufunc.accumulate(X, axis=axis))
    with_nan = np.array([1.0, np.nan, 5.0, -5.0])
    np.testing.assert_array_equal(ours(with_nan), ufunc.accumulate(with_nan))
    tied = pb.grad(lambda v: ours(v)[2])(np.array([2.0, 2.0, 2.0]))
    assert tied.tolist() == [0.0, 0.0, 1.0]
    assert bool(pb.gradcheck(lambda v: ours(v, axis=1), X))


def test_ties_split_evenly_along_each_axis():
    x = np.array([[1.0, 1.0], [1.0, 0.0]])
    np.testing.assert_allclose(pb.grad(pb.max)(x), [[1 / 3, 1 / 3], [1 / 3, 0]])
    np.testing.assert_allclose(pb.grad(lambda v: pb.sum(pb.max(v, axis=0)))(x), [[0.5, 1.0], [0.5, 0.0]])
    np.testing.assert_allclose(pb.jvp(pb.max, (x,), (np.eye(2),))[1], 1 / 3)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_narrow_dtypes_stay(dtype):
    x = X.astype(dtype)
    for f in (pb.prod, pb.std, pb.logsumexp, pb.max, lambda v: pb.sum(pb.cumprod(v, axis=0)), pb.median):
        assert f(x).dtype == dtype
        assert pb.grad(f)(x).dtype == dtype


def test_a_branch_not_taken_keeps_its_nan():
    x = np.array([[1.0, 2.0], [np.nan, 3.0]])
    taken = np.array([True, False])
    for f in (pb.prod, pb.max, pb.logsumexp, pb.sum):
        slope = pb.grad(lambda v, f=f: pb.sum(pb.where(taken, f(v, axis=1), 0.0)))(x)
        np.testing.assert_array_equal(slope[1], 0.0)
        assert np.isfinite(slope).all()


def test_averages_trapezoids_and_counts():
    w = rng.uniform(size=4)
    found, total = pb.average(X, axis=1, weights=w, returned=True)
    expected = np.average(X, axis=1, weights=w, returned=True)
    np.testing.assert_allclose(found, expected[0])
    np.testing.assert_allclose(total, expected[1])
    assert bool(pb.gradgradcheck(lambda x, v: pb.average(x, axis=1, weights=v), X, w))
    at = np.sort(rng.normal(size=4))
    assert bool(pb.gradgradcheck(lambda y, x: pb.trapezoid(y, x), X, at))
    np.testing.assert_allclose(pb.trapezoid(X, at), np.trapezoid(X, at))
    assert pb.grad(lambda v: pb.sum(pb.bincount([0, 2, 2], v) ** 2))(np.array([1.0, 2.0, 3.0])).tolist() == [2, 10, 10]
    with pytest.raises(pb.errors.IndexingError, match="negative"):
        pb.bincount([-1])


@pytest.mark.parametrize("sparse", [10**9, 1])
@pytest.mark.parametrize("shape", [(7,), (6, 5), (4, 6, 3)])
def test_additions_at_an_index_by_every_road(shape, sparse, monkeypatch):
    """The roads of `accumulate` agree with np.add.at, whatever is repeated, negative or sliced."""
    monkeypatch.setattr("pullback.ops.index.accumulate._FEW", 0)
    monkeypatch.setattr("pullback.ops.index.accumulate._SPARSE", sparse)
    n = shape[0]
    arrays = [np.array([0, 2, 2, -1]), rng.permutation(n)[:4], rng.integers(-n, n, size=(9, 2)).astype(np.int8)]
    x = rng.normal(size=shape)
    for array in arrays:
        places = [(array,)]
        if len(shape) > 1:
            places += [(slice(None), array % shape[1]), (array, array % shape[1]), (array, slice(1, None))]
        for index in places:
            weights = rng.normal(size=x[index].shape)
            expected = np.zeros(shape)
            np.add.at(expected, index, weights)
            for dtype in (np.float64, np.complex128):
                got = pb.add_at(np.zeros(shape, dtype), index, weights.astype(dtype))
                np.testing.assert_allclose(got, expected, atol=1e-13)
