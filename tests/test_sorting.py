"""Order: sorts, picks, quantiles and what is unique, with the cotangent going back by the permutation."""

import numpy as np
import pytest

import pullback as pb
from pullback.ops.order.quantiles import PLACES

rng = np.random.default_rng(5)
X = rng.normal(size=(4, 5))


def gradient(function, x):
    return pb.grad(
        lambda v: pb.sum(function(v) * np.arange(1.0, 1 + np.size(function(x))).reshape(np.shape(function(x))))
    )(x)


@pytest.mark.parametrize("axis", [0, 1, -1, None])
@pytest.mark.parametrize("descending", [False, True])
def test_sort_and_its_permutation(axis, descending):
    found = pb.sort(X, axis=axis, descending=descending)
    expected = np.sort(X, axis=axis)
    np.testing.assert_array_equal(found, np.flip(expected, axis if axis is not None else 0) if descending else expected)
    assert bool(pb.gradgradcheck(lambda x: pb.sort(x, axis=axis, descending=descending) ** 3, X))


@pytest.mark.parametrize("size", [6, 3000])
def test_equal_elements_stay_in_their_order(size):
    x = np.array([1.0, 0.0, 1.0, 0.0, -0.0, np.nan] * (size // 6))
    np.testing.assert_array_equal(pb.argsort(x), np.argsort(x, kind="stable"))
    turned = pb.argsort(x, descending=True)
    ones = turned[x[turned] == 1]
    np.testing.assert_array_equal(ones, np.sort(ones))


def test_a_tie_sends_its_cotangent_to_the_first():
    assert pb.grad(lambda x: pb.topk(x, 1)[0][0])(np.array([1.0, 3.0, 3.0])).tolist() == [0.0, 1.0, 0.0]
    assert pb.grad(lambda x: pb.sort(x)[0])(np.array([1.0, 1.0])).tolist() == [1.0, 0.0]


def test_topk_and_kthvalue():
    values, indices = pb.topk(X, 2, axis=0)
    np.testing.assert_array_equal(values, -np.sort(-X, axis=0)[:2])
    np.testing.assert_array_equal(np.take_along_axis(X, indices, 0), values)
    least, _ = pb.topk(X, 3, largest=False)
    np.testing.assert_array_equal(least, np.sort(X)[:, :3])
    assert pb.topk(X, 0)[0].shape == (4, 0)
    np.testing.assert_array_equal(pb.kthvalue(X, 2, axis=1, keepdims=True)[0][:, 0], np.sort(X)[:, 1])
    with pytest.raises(pb.errors.ArgumentError, match="k = 6 of 5"):
        pb.topk(X, 6)


def test_partition_puts_the_kth_in_place():
    found = pb.partition(X, (1, 3), axis=1)
    np.testing.assert_array_equal(found[:, [1, 3]], np.sort(X)[:, [1, 3]])
    assert gradient(lambda x: pb.partition(x, 2), X).sum() == np.arange(1, 21).sum()
    with pytest.raises(pb.errors.ArgumentError):
        pb.partition(X, 9)


@pytest.mark.parametrize("side", ["left", "right"])
def test_searchsorted_also_for_each_its_own(side):
    table = np.sort(X, axis=1)
    values = np.concatenate([table[:, :2], X[:, :3]], axis=1)
    found = pb.vmap(lambda t, v: pb.searchsorted(t, v, side=side))(table, values)
    np.testing.assert_array_equal(found, [np.searchsorted(t, v, side) for t, v in zip(table, values, strict=True)])


@pytest.mark.parametrize("method", PLACES)
@pytest.mark.parametrize("axis", [None, 0, (0, 1)])
def test_quantile_is_numpys_by_every_method(method, axis):
    for q in (0.0, 0.3, 0.5, 1.0, [0.1, 0.25, 0.9]):
        expected = np.quantile(X, q, axis=axis, method=method, keepdims=True)
        np.testing.assert_allclose(pb.quantile(X, q, axis=axis, method=method, keepdims=True), expected)
    assert bool(pb.gradcheck(lambda x: pb.quantile(x, [0.21, 0.77], axis=axis, method=method), X))


@pytest.mark.parametrize("method", PLACES)
def test_nanquantile_leaves_nans_out(method):
    x = X.copy()
    x[0, 1] = x[2, 1] = np.nan
    expected = np.nanquantile(x, [0.3, 0.5], axis=0, method=method)
    np.testing.assert_allclose(pb.nanquantile(x, [0.3, 0.5], axis=0, method=method), expected)
    slope = pb.grad(lambda v: pb.sum(pb.nanquantile(v, 0.3, axis=0, method=method)))(x)
    assert np.isfinite(slope).all()
    np.testing.assert_array_equal(slope[[0, 2], 1], 0)
    assert np.isnan(pb.nanmedian(np.array([np.nan, np.nan])))


def test_quantiles_move_with_q_where_they_interpolate():
    x = np.array([0.0, 1.0, 3.0])
    assert pb.grad(lambda q: pb.quantile(x, q))(0.75) == pytest.approx(4.0)  # two steps over one, slope 2 * 2
    assert pb.grad(lambda q: pb.quantile(x, q, method="lower"))(0.75) == 0.0
    assert pb.quantile(x.astype(np.float32), 0.5).dtype == np.float32


def test_a_nan_makes_the_median_nan_and_gets_the_cotangent():
    x = np.array([1.0, np.nan, 2.0])
    assert np.isnan(pb.median(x))
    assert pb.grad(pb.median)(x).tolist() == [0.0, 1.0, 0.0]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: pb.quantile(X, 1.5), "between 0 and 1"),
        (lambda: pb.percentile(X, -1), "between 0 and 100"),
        (lambda: pb.quantile(X, 0.5, method="best"), "method 'best'"),
        (lambda: pb.quantile(X, 0.5, weights=X), "weights"),
        (lambda: pb.median(np.zeros((0, 2)), axis=0), "no elements"),
        (lambda: pb.sort(X, order="a"), "order"),
    ],
)
def test_refusals_say_what_they_got(call, words):
    with pytest.raises(pb.errors.PullbackError, match=words):
        call()


def test_unique_values_keep_their_gradient():
    x = np.array([2.0, 1.0, 2.0])
    assert pb.grad(lambda v: pb.sum(pb.unique(v) * np.array([10.0, 1.0])))(x).tolist() == [1.0, 10.0, 0.0]
    whole = pb.unique_all(x)
    assert [part.tolist() for part in whole] == [[1.0, 2.0], [1, 0], [1, 0, 1], [1, 2]]
    with pytest.raises(pb.errors.ConversionError, match="unique"):
        pb.vmap(pb.unique)(X)


@pytest.mark.parametrize("name", ["nansum", "nanprod", "nanmean", "nanvar", "nanstd", "nanmax", "nanmin", "nanmedian"])
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_reductions_without_nans(name, axis):
    x = X.copy()
    x[0, 1] = x[2, 3] = np.nan
    np.testing.assert_allclose(getattr(pb, name)(x, axis=axis), getattr(np, name)(x, axis=axis))
    slope = pb.grad(lambda v: pb.sum(getattr(pb, name)(v, axis=axis)))(x)
    assert np.isfinite(slope).all()
    assert slope[0, 1] == slope[2, 3] == 0
