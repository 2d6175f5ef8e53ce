"""Gather, scatter, segments and masks: against loops, with duplicates, negatives, empties and places out of range."""

import numpy as np
import pytest

import pullback as pb

rng = np.random.default_rng(1)
X, V = rng.normal(size=(3, 4)), rng.normal(size=(2, 4))
INDEX = np.array([[1, 0, -1, 2], [1, 2, -1, 0]])
FOLDS = {"sum": np.sum, "prod": np.prod, "mean": np.mean, "amax": np.max, "amin": np.min}


def looped(x, axis, index, values, reduce, include_self):
    out = x.copy()
    sent = {}
    for place in np.ndindex(*index.shape):
        to = list(place)
        to[axis] = int(index[place]) % x.shape[axis]
        sent.setdefault(tuple(to), []).append(values[place])
    for to, found in sent.items():
        out[to] = FOLDS[reduce](([x[to]] if include_self else []) + found)
    return out


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("reduce", FOLDS)
@pytest.mark.parametrize("values", [V, V * np.array([[0.0], [0.0]]), V * np.array([[1.0], [0.0]])])
def test_scatter_reduce(reduce, include_self, values):
    def f(x, v):
        return pb.scatter_reduce(x, 0, INDEX, v, reduce=reduce, include_self=include_self)

    np.testing.assert_allclose(f(X, values), looped(X, 0, INDEX, values, reduce, include_self))
    if reduce in ("sum", "mean", "prod") or values is V:
        assert bool(pb.gradgradcheck(lambda x, v: f(x, v) ** 2, X, values))
    stacked = pb.vmap(f)(np.stack([X, 2 * X]), np.stack([values, -values]))
    np.testing.assert_allclose(stacked[1], looped(2 * X, 0, INDEX, -values, reduce, include_self))


def test_each_element_of_a_batch_may_have_its_own_index():
    other = np.array([[0, 0, 1, 1], [2, 2, 2, 2]])
    for reduce in FOLDS:
        found = pb.vmap(lambda i, r=reduce: pb.scatter_reduce(X, 0, i, V, reduce=r))(np.stack([INDEX, other]))
        np.testing.assert_allclose(found[1], looped(X, 0, other, V, reduce, True))


def test_ties_of_extremes_share_with_what_was_there():
    slopes = pb.grad(lambda x, v: pb.sum(pb.scatter_reduce(x, 0, np.array([0, 0]), v, reduce="amax")), argnums=(0, 1))
    x, v = slopes(np.array([1.0, 5.0]), np.array([1.0, 1.0]))
    np.testing.assert_allclose(x, [1 / 3, 1.0])
    np.testing.assert_allclose(v, [1 / 3, 1 / 3])


def test_gather_and_scatter():
    np.testing.assert_array_equal(pb.gather(X, 0, INDEX), np.take_along_axis(X, INDEX, 0))
    short = np.array([[3], [0]])
    np.testing.assert_array_equal(pb.gather(X, 1, short), X[[0, 1], [3, 0]][:, None])
    assert bool(pb.gradgradcheck(lambda x: pb.gather(x, 0, INDEX) ** 2, X))
    last = pb.scatter(np.zeros(2), 0, np.array([1, 1]), np.array([5.0, 7.0]))
    assert last.tolist() == [0.0, 7.0]
    slope = pb.grad(lambda v: pb.sum(pb.scatter(np.zeros(2), 0, np.array([1, 1]), v)))(np.array([5.0, 7.0]))
    assert slope.tolist() == [0.0, 1.0]
    assert pb.scatter(np.float64(1.0), 0, np.array([0]), 3.0).tolist() == 3.0


def test_slices_by_index():
    rows = np.array([0, 2, 0])
    values = rng.normal(size=(3, 4))
    expected = X.copy()
    np.add.at(expected, rows, 2 * values)
    np.testing.assert_allclose(pb.index_add(X, 0, rows, values, alpha=2), expected)
    np.testing.assert_array_equal(pb.index_copy(X, 1, np.array([3]), np.ones((3, 1)))[:, 3], 1.0)
    np.testing.assert_array_equal(pb.index_fill(X, 0, np.array([-1]), 9.0)[2], 9.0)
    expected = X.copy()
    np.maximum.at(expected, rows, values)
    np.testing.assert_array_equal(pb.index_reduce(X, 0, rows, values, reduce="amax"), expected)
    for reduce in FOLDS:
        f = lambda x, v, r=reduce: pb.index_reduce(x, 0, rows, v, reduce=r)  # noqa: E731
        assert bool(pb.gradgradcheck(f, X, values))


@pytest.mark.parametrize("name", ["sum", "mean", "prod", "max", "min"])
def test_segments(name):
    ids, x = np.array([2, 0, 2, 0, 2]), rng.normal(size=(5, 2))
    f = getattr(pb, f"segment_{name}")
    found = f(x, ids, 4)
    for k in (0, 2):
        np.testing.assert_allclose(found[k], getattr(np, name)(x[ids == k], axis=0))
    empty = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "max": -np.inf, "min": np.inf}[name]
    np.testing.assert_array_equal(found[[1, 3]], empty)
    assert (
        bool(pb.gradgradcheck(lambda v: f(v, ids), np.delete(x, 1, 1)[[0, 1, 2, 3, 4]]))
        if name in ("sum", "mean")
        else True
    )
    assert bool(pb.gradcheck(lambda v: f(v, ids, 3)[::2], x))
    assert f(np.zeros((0, 2)), np.zeros(0, int), 3).shape == (3, 2)
    with pytest.raises(pb.errors.PullbackError):
        f(x, ids, 2)


def test_segment_products_with_zeros():
    x, ids = np.array([2.0, 0.0, 0.0, 3.0, 0.0]), np.array([0, 0, 1, 1, 1])
    np.testing.assert_array_equal(pb.grad(lambda v: pb.sum(pb.segment_prod(v, ids)))(x), [0, 2, 0, 0, 0])
    second = pb.hessian(lambda v: pb.sum(pb.segment_prod(v, ids)))(x)
    assert second[2, 4] == second[4, 2] == 3.0
    assert second[0, 1] == 1.0
    assert np.count_nonzero(second) == 4


def test_masks():
    mask = X > 0
    np.testing.assert_array_equal(pb.masked_select(X, mask), X[mask])
    np.testing.assert_array_equal(pb.masked_select(X, mask[:, :1]), X[np.broadcast_to(mask[:, :1], X.shape)])
    np.testing.assert_array_equal(pb.masked_fill(X, mask, 0), np.where(mask, 0.0, X))
    values = rng.normal(size=(4, 4))
    expected = X.copy()
    expected[mask] = values.ravel()[: mask.sum()]
    np.testing.assert_array_equal(pb.masked_scatter(X, mask, values), expected)
    assert bool(pb.gradcheck(lambda x, v: pb.masked_scatter(x, mask, v) ** 2, X, values))
    assert bool(pb.gradcheck(lambda x, v: pb.masked_fill(x, mask, v) ** 2, X, np.asarray(0.7)))
    assert pb.one_hot([2, 0, 5], 3).tolist() == [[0, 0, 1], [1, 0, 0], [0, 0, 0]]
    assert pb.one_hot(np.array([[1]]), axis=0).shape == (2, 1, 1)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: pb.scatter_add(X, 0, INDEX + 9, V), pb.errors.IndexingError, "out of bounds"),
        (lambda: pb.gather(X, 0, INDEX - 9), pb.errors.IndexingError, "out of bounds"),
        (lambda: pb.gather(X, 0, X), pb.errors.IndexingError, "integers"),
        (lambda: pb.gather(X, 0, np.array([1])), pb.errors.ShapeError, "axes"),
        (lambda: pb.gather(X, 1, np.zeros((5, 1), int)), pb.errors.ShapeError, "does not fit"),
        (lambda: pb.scatter(X, 0, INDEX, V[:1]), pb.errors.ShapeError, "values of shape"),
        (lambda: pb.scatter_reduce(X, 0, INDEX, V, reduce="middle"), pb.errors.ArgumentError, "reduce must be"),
        (lambda: pb.index_add(X, 0, [0], V), pb.errors.ShapeError, "the slices"),
        (lambda: pb.segment_sum(X, [0, 1]), pb.errors.ShapeError, "segments"),
        (lambda: pb.masked_fill(X, X > 0, V), pb.errors.ShapeError, "one value"),
        (lambda: pb.masked_scatter(X, X > -9, V), pb.errors.ShapeError, "12 elements"),
        (lambda: pb.put(X, [99], 0.0), pb.errors.IndexingError, "out of bounds"),
        (lambda: pb.one_hot(X), pb.errors.IndexingError, "integers"),
    ],
)
def test_refusals(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_nothing_sent_changes_nothing():
    none = np.zeros((0, 4), int)
    for reduce in FOLDS:
        np.testing.assert_array_equal(pb.scatter_reduce(X, 0, none, np.zeros((0, 4)), reduce=reduce), X)
    assert pb.gather(X, 0, none).shape == (0, 4)


def test_fake_quantisation_passes_straight_through():
    x = np.array([-30.0, -0.26, 0.12, 0.5, 40.0])
    found = pb.fake_quantize(x, 0.1, 0, -128, 127)
    np.testing.assert_allclose(found, [-12.8, -0.3, 0.1, 0.5, 12.7])
    np.testing.assert_array_equal(pb.grad(lambda v: pb.sum(pb.fake_quantize(v, 0.1)))(x), [0, 1, 1, 1, 0])
    rows = pb.fake_quantize(np.stack([x, x]), np.array([0.1, 1.0]), np.array([0, 3]), axis=0)
    np.testing.assert_allclose(rows[1], [-30.0, 0.0, 0.0, 0.0, 40.0])
    learned = pb.grad(lambda s: pb.sum(pb.fake_quantize(x, s)))(0.1)
    np.testing.assert_allclose(learned, -128 + 127 + (-3 + 2.6) + (1 - 1.2) + (5 - 5.0))
    assert pb.fake_quantize(x.astype(np.float32), 0.1).dtype == np.float32
    with pytest.raises(pb.errors.ArgumentError, match="not below"):
        pb.fake_quantize(x, 0.1, 0, 5, 5)


@pytest.mark.parametrize("width", [2, 37])
@pytest.mark.parametrize(
    "index",
    [lambda k, n: np.full(n, 1), lambda k, n: pb.broadcast_to(k, (n,)), lambda k, n: np.full((1, n), 1)],
    ids=["constant", "broadcast", "constant with an axis more"],
)
def test_compiled_scatters_to_one_place_of_a_row_add_all_of_it(index, width):
    """The index is one number for the row, so it is no array any more; the lanes of a vector have one place."""
    x, k = np.random.default_rng(0).integers(-3, 4, (3, width)).astype(float), np.array([1])
    wanted = np.zeros((3, 4))
    wanted[:, 1] = x.sum(axis=1)
    given = lambda k: (slice(None), index(k, width))  # noqa: E731
    values = x.reshape(3, *np.shape(index(k, width)))
    added = pb.jit(lambda x, k: pb.add_at(np.zeros((3, 4)), given(k), x))(values, k)
    np.testing.assert_array_equal(added, wanted)
    pulled = pb.jit(pb.grad(lambda a, x, k: pb.sum(a[given(k)] * x)))(np.zeros((3, 4)), values, k)
    np.testing.assert_array_equal(pulled, wanted)
    wanted[:, 1] = x[:, -1]
    put = pb.jit(lambda x, k: pb.set_at(np.zeros((3, 4)), given(k), x))(values, k)
    np.testing.assert_array_equal(put, wanted)


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.uint64])
def test_compiled_indices_one_at_a_time(dtype):
    """A scatter goes through its indices one by one: those that are not in the axis as they stand take a way apart."""
    own = np.random.default_rng(2)
    index = own.integers(0 if dtype == np.uint64 else -7, 7, 50).astype(dtype)
    x, table = own.normal(size=50), own.normal(size=7)
    wanted = np.zeros(7)
    np.add.at(wanted, index, x * np.take(table, index.astype(int)))
    add = pb.jit(lambda x, table, i: pb.add_at(np.zeros(7), (i,), x * table[i]))
    np.testing.assert_allclose(add(x, table, index), wanted, rtol=1e-15)
    # without a gather before it, the scatter itself has to see what is out of range
    alone = pb.jit(lambda x, i: pb.add_at(np.zeros(7), (i,), x))
    for place, bad in ((0, 7), (49, 100), (20, -8)):
        wrong = index.copy()
        wrong[place] = bad if bad > 0 or dtype != np.uint64 else 7
        with pytest.raises(pb.errors.IndexingError):
            alone(x, wrong)
        with pytest.raises(pb.errors.IndexingError):
            add(x, table, wrong)
    np.testing.assert_allclose(add(x, table, index), wanted, rtol=1e-15)


def _send(x, table, i, j, use):
    moved = x * table[j]
    return use(pb.add_at(np.zeros(table.shape), (i,), moved), moved)


@pytest.mark.parametrize("columns", [(), (4,), (16,), (37,)])
def test_what_is_only_scattered_goes_through_no_memory(columns):
    own = np.random.default_rng(3)
    i, j = own.integers(-9, 9, 5000), own.integers(-9, 9, 5000)
    x, table = own.normal(size=(5000, *(1 for _ in columns))), own.normal(size=(9, *columns))
    wanted = np.zeros(table.shape)
    np.add.at(wanted, i, x * table[j])
    alone = pb.jit(lambda *given: _send(*given, lambda sums, moved: sums))
    np.testing.assert_allclose(alone(x, table, i, j), wanted, rtol=1e-12)
    assert alone.lower(x, table, i, j).memory().arena < wanted.nbytes + 4096
    besides = pb.jit(lambda *given: _send(*given, lambda sums, moved: (sums, moved)))(x, table, i, j)
    np.testing.assert_allclose(besides[0], wanted, rtol=1e-12)
    np.testing.assert_allclose(besides[1], x * table[j])
    slopes = pb.jit(pb.grad(lambda *given: pb.sum(alone(*given) ** 2), (0, 1)))(x, table, i, j)
    bar = 2 * wanted
    np.testing.assert_allclose(slopes[0], (table[j] * bar[i]).reshape(5000, -1).sum(1).reshape(x.shape), rtol=1e-9)
    pulled = np.zeros(table.shape)
    np.add.at(pulled, j, x * bar[i])
    np.testing.assert_allclose(slopes[1], pulled, rtol=1e-9)


def test_a_gather_is_not_moved_behind_what_overwrites_its_source():
    i, j, k = np.array([0, 1, 1]), np.array([2, 0, 1]), np.array([2, 1])

    def f(table, i, j, k):
        taken = table[j]
        changed = pb.set_at(table, (k,), np.array([7.0, 8.0]))
        return changed, pb.add_at(np.zeros(3), (i,), taken * 2.0)

    table = np.array([1.0, 2.0, 3.0])
    for donated in ((), (0,)):
        changed, sums = pb.jit(f, donate_argnums=donated)(table.copy(), i, j, k)
        np.testing.assert_array_equal(changed, [1.0, 8.0, 7.0])
        np.testing.assert_array_equal(sums, [6.0, 6.0, 0.0])
