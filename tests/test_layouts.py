"""Layouts, picks and products under NumPy's names: values against NumPy, gradients against differences."""

import numpy as np
import pytest

import pullback as pb

rng = np.random.default_rng(0)
x, v, c, sq = rng.normal(size=(3, 4)), rng.normal(size=4), rng.normal(size=(2, 3, 4)), rng.normal(size=(3, 3))
three, other = rng.normal(size=(2, 5, 3))

CASES = [
    ("swapaxes", (c, 0, 2), {}),
    ("rollaxis", (c, 2), {}),
    ("rollaxis", (c, 0, 3), {}),
    ("rollaxis", (c, 2, 1), {}),
    ("ravel", (c,), {}),
    ("ravel", (c, "F"), {}),
    ("atleast_1d", (3.0,), {}),
    ("atleast_2d", (v,), {}),
    ("atleast_3d", (v,), {}),
    ("atleast_3d", (x,), {}),
    ("atleast_3d", (2.0,), {}),
    ("broadcast_arrays", (x, v), {}),
    ("meshgrid", (v, v[:3]), {}),
    ("meshgrid", (v, v[:3], v[:2]), {}),
    ("meshgrid", (v, v[:3], v[:2]), {"indexing": "ij"}),
    ("meshgrid", (v, v[:3]), {"sparse": True}),
    ("meshgrid", (v,), {}),
    ("array_split", (v, 3), {}),
    ("array_split", (x, 3, 1), {}),
    ("array_split", (x, [1, 3], 1), {}),
    ("array_split", (v, [3, 1]), {}),
    ("hsplit", (x, 2), {}),
    ("hsplit", (v, 2), {}),
    ("vsplit", (x, 3), {}),
    ("dsplit", (c, 2), {}),
    ("hstack", ([v, v],), {}),
    ("hstack", ([x, x],), {}),
    ("vstack", ([v, x],), {}),
    ("dstack", ([v, v],), {}),
    ("dstack", ([x, x],), {}),
    ("column_stack", ([v, v],), {}),
    ("column_stack", ([x, x],), {}),
    ("block", ([[x, x], [x, x]],), {}),
    ("block", ([x, 1.0 * x],), {}),
    ("block", ([[v, v]],), {}),
    ("block", (v,), {}),
    ("fliplr", (x,), {}),
    ("flipud", (x,), {}),
    *[("rot90", (x, k), {}) for k in range(-1, 5)],
    ("rot90", (c, 1, (1, 2)), {}),
    ("rot90", (c, 3, (2, 0)), {}),
    ("append", (x, v), {}),
    ("append", (x, x, 1), {}),
    ("delete", (x, 1), {}),
    ("delete", (x, [0, 2], 1), {}),
    ("delete", (x, slice(0, 2), 0), {}),
    ("delete", (v, np.array([True, False, True, False])), {}),
    ("insert", (v, 1, 9.0), {}),
    ("insert", (v, [1, 3], [7.0, 8.0]), {}),
    ("insert", (x, 1, 5.0, 1), {}),
    ("insert", (x, 1, np.array([1.0, 2, 3]), 1), {}),
    ("insert", (x, [1], [[1.0], [2], [3]], 1), {}),
    ("insert", (v, 2, [1.0, 2.0]), {}),
    ("insert", (x, 1, np.ones((2, 4)), 0), {}),
    ("insert", (v, [1, 1], 3.0), {}),
    ("insert", (v, slice(0, 2), 3.0), {}),
    ("resize", (v, (2, 3)), {}),
    ("resize", (v, (2,)), {}),
    ("trim_zeros", (np.array([0, 0, 1.0, 0, 2, 0]),), {}),
    ("trim_zeros", (np.array([0, 0, 1.0, 0, 2, 0]), "f"), {}),
    ("trim_zeros", (np.zeros(3),), {}),
    ("diag", (v,), {}),
    ("diag", (v, 1), {}),
    ("diag", (v, -2), {}),
    ("diag", (x,), {}),
    ("diag", (x, 1), {}),
    ("diagflat", (x,), {}),
    ("diagflat", (x, -1), {}),
    ("trace", (x,), {}),
    ("trace", (c, 1, 1, 2), {}),
    ("tri", (3, 4, 1), {}),
    ("tile", (x, (2, 1)), {}),
    ("repeat", (x, 2, 0), {}),
    ("kron", (x, sq), {}),
    ("kron", (v, x), {}),
    ("kron", (c, v), {}),
    ("dot", (x, v), {}),
    ("dot", (c, v), {}),
    ("dot", (c, rng.normal(size=(2, 4, 3))), {}),
    ("dot", (2.0, x), {}),
    ("inner", (x, v), {}),
    ("inner", (c, x), {}),
    ("vdot", (x, x), {}),
    ("vecdot", (c, x), {}),
    ("vecdot", (c, x), {"axis": -1}),
    ("matvec", (c, v), {}),
    ("vecmat", (rng.normal(size=(2, 3)), c), {}),
    ("tensordot", (c, c), {"axes": 3}),
    ("tensordot", (c, x), {"axes": ([1, 2], [0, 1])}),
    ("tensordot", (c, x), {"axes": 0}),
    ("outer", (x, v), {}),
    ("cross", (three, other), {}),
    ("cross", (three.T, other.T), {"axis": 0}),
    ("cross", (three.T, other), {"axisa": 0, "axisc": 0}),
    ("pad", (x, 1), {}),
    ("pad", (x, ((1, 2), (0, 1))), {"constant_values": 3.0}),
    ("pad", (x, ((1, 2), (0, 1))), {"constant_values": ((1.0, 2.0), (3.0, 4.0))}),
    ("pad", (x, 2), {"mode": "edge"}),
    ("pad", (x, ((0, 2), (1, 3))), {"mode": "reflect"}),
    ("pad", (x, (3, 2)), {"mode": "symmetric"}),
    ("pad", (x, 5), {"mode": "wrap"}),
    ("compress", ([True, False, True], x, 0), {}),
    ("compress", ([True, False, True], x), {}),
    ("extract", (x > 0, x), {}),
    ("nonzero", (x > 0,), {}),
    ("argwhere", (x > 0,), {}),
    ("flatnonzero", (x > 0,), {}),
    ("choose", (np.array([0, 1, 1, 0]), [v, 2 * v]), {}),
    (
        "choose",
        (
            np.array([0, 5, -1, 0]),
            [v, 2 * v],
        ),
        {"mode": "clip"},
    ),
    (
        "choose",
        (
            np.array([0, 5, -1, 0]),
            [v, 2 * v],
        ),
        {"mode": "wrap"},
    ),
    ("take", (x, [0, 9]), {"axis": 1, "mode": "clip"}),
    ("take", (x, [0, 9]), {"axis": 1, "mode": "wrap"}),
    ("sort", (x,), {}),
    ("sort", (x, 0), {}),
    ("sort", (x, None), {}),
    ("argsort", (x, 0), {}),
    ("partition", (v, 2), {}),
    ("searchsorted", (np.sort(v), x), {}),
    ("searchsorted", (np.sort(v), np.sort(v), "right"), {}),
    ("searchsorted", (v, x), {"sorter": np.argsort(v)}),
    ("lexsort", ((v, v > 0),), {}),
    ("unique", (np.array([3, 1, 1, 2]),), {"return_index": True, "return_inverse": True, "return_counts": True}),
    ("unique", (np.array([[1, 2], [1, 2], [0, 1]]),), {"axis": 0}),
    ("ptp", (x,), {"axis": 0}),
    ("count_nonzero", (x > 0,), {"axis": 1}),
    ("median", (x,), {"axis": 1}),
    ("median", (x,), {}),
    ("percentile", (x, [20, 30]), {"axis": 0, "keepdims": True}),
    ("bincount", (np.array([0, 1, 1]), np.array([1.0, 2, 3]), 5), {}),
    ("cumprod", (x, 1), {}),
    ("nancumsum", (x, 1), {}),
    ("trapezoid", (x,), {"dx": 2.0}),
    ("trapezoid", (x, v), {}),
    ("average", (x,), {"axis": 0, "weights": np.arange(3.0), "returned": True}),
    ("average", (c,), {"axis": (0, 1), "weights": np.arange(6.0).reshape(2, 3)}),
]


def same(found, expected):
    if isinstance(expected, list | tuple):
        assert len(found) == len(expected)
        for mine, theirs in zip(found, expected, strict=True):
            same(mine, theirs)
    else:
        assert np.shape(found) == np.shape(expected)
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def floats_of(args):
    """Places of floating-point arrays among the arguments."""
    return [i for i, a in enumerate(args) if isinstance(a, np.ndarray) and a.dtype.kind == "f" and a.size]


@pytest.mark.parametrize("number", range(len(CASES)), ids=lambda i: f"{CASES[i][0]}-{i}")
def test_agrees_with_numpy_and_differentiates(number):
    name, args, options = CASES[number]
    ours = getattr(pb, name)
    same(ours(*args, **options), getattr(np, name)(*args, **options))
    moving = floats_of(args)
    if not moving or name in WITHOUT:
        return

    def function(*values):
        given = list(args)
        for i, value in zip(moving, values, strict=True):
            given[i] = value
        out = ours(*given, **options)
        parts = list(out) if isinstance(out, list | tuple) else [out]
        return pb.concat([pb.reshape(part, (-1,)) for part in parts]) ** 2

    assert bool(pb.gradcheck(function, *(args[i] for i in moving)))


#: Answers without a derivative.
WITHOUT = {"nonzero", "argwhere", "flatnonzero", "argsort", "searchsorted", "lexsort", "count_nonzero", "trim_zeros"}


def test_what_numpy_does_in_place_answers_a_new_array():
    for shape, wrap in (((3, 3), False), ((5, 3), True), ((5, 3), False), ((3, 5), False), ((2, 2, 2), False)):
        theirs = np.zeros(shape)
        np.fill_diagonal(theirs, [1.0, 2.0], wrap=wrap)
        same(pb.fill_diagonal(np.zeros(shape), [1.0, 2.0], wrap=wrap), theirs)
    theirs = np.zeros((2, 3))
    np.put(theirs, [1, -1], [5.0, 6.0])
    same(pb.put(np.zeros((2, 3)), [1, -1], [5.0, 6.0]), theirs)
    assert pb.grad(lambda u: pb.sum(pb.put(u, [0, 0], [1.0, 2.0])))(x)[0].tolist() == [0, 1, 1, 1]


def test_windows_and_strides():
    same(pb.sliding_window_view(c, (2, 2), (1, 2)), np.lib.stride_tricks.sliding_window_view(c, (2, 2), (1, 2)))
    same(pb.sliding_window_view(v, 0), np.lib.stride_tricks.sliding_window_view(v, 0))
    overlapping = lambda u: pb.as_strided(u, (3, 3), (1, 2)) ** 2  # noqa: E731
    same(pb.as_strided(x, (3, 3), (1, 2)), np.lib.stride_tricks.as_strided(x, (3, 3), (8, 16)))
    assert bool(pb.gradgradcheck(overlapping, x))
    assert bool(pb.gradgradcheck(lambda u: pb.unfold(u, 1, 2, 2, dilation=1) ** 3, x))
    assert bool(pb.gradcheck(lambda u: pb.im2col(u, 2, stride=2, padding=1) ** 2, rng.normal(size=(2, 1, 3, 3))))
    with pytest.raises(pb.errors.ShapeError, match="reads beyond"):
        pb.as_strided(v, (3, 3), (1, 1))


def test_unstack_and_its_kin():
    same(pb.unstack(c, axis=1), [c[:, i] for i in range(3)])
    same(pb.tensor_split(v, [1, 9]), np.split(v, [1, 9]))
    same(pb.unflatten(pb.flatten(c, 1), 1, (3, -1)), c)
    same(pb.diag_embed(x, 1, 0, 2).shape, (5, 3, 5))
    same(pb.block_diag(x, v), np.block([[x, np.zeros((3, 4))], [np.zeros((1, 4)), v[None]]]))
    assert pb.combinations(v, 3).shape == (4, 3)
    assert pb.combinations(v, 2, with_replacement=True).shape == (10, 2)


def test_empty_and_0d():
    none = np.zeros((0, 3))
    assert pb.kron(none, np.ones((2, 2))).shape == (0, 6)
    assert pb.rot90(none).shape == (3, 0)
    assert pb.vstack([none, np.ones((1, 3))]).shape == (1, 3)
    assert pb.diagflat(2.0).tolist() == [[2.0]]
    assert pb.ravel(1.0).tolist() == [1.0]
    assert pb.meshgrid(1.0)[0].tolist() == [1.0]
    assert pb.sort(none, axis=0).shape == (0, 3)
    assert pb.cdist(none, np.ones((2, 3))).shape == (0, 2)
    assert pb.grad(lambda u: pb.sum(pb.cumprod(u, axis=0)))(none).shape == (0, 3)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: pb.pad(x, 1, mode="linear_ramp"), "linear_ramp"),
        (lambda: pb.swapaxes(x, 0, 2), "axis 2"),
        (lambda: pb.cross(v, v), "two or three"),
        (lambda: pb.vsplit(v, 2), "2 axes"),
        (lambda: pb.delete(v, 9), "delete"),
        (lambda: pb.take(v, [9]), "out of bounds"),
        (lambda: pb.choose([5], [v]), "out of bounds"),
        (lambda: pb.block([x, [x]]), "nested"),
        (lambda: pb.meshgrid(x), "vectors"),
    ],
)
def test_refusals(call, words):
    with pytest.raises(pb.errors.PullbackError, match=words):
        call()
