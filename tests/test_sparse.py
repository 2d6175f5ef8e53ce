"""Sparse derivatives: patterns that miss no entry, colorings that show each, plans that say when they fail."""

import json

import numpy as np
import pytest
from hypothesis import given, seed
from hypothesis import strategies as st
from records import cases, flat_vector, name
from scipy import sparse

import pullback as pb
from pullback.errors import ArgumentError, ConversionError, DtypeError, GraphError, LeakError, ShapeError
from pullback.ops.dispatch import apply
from pullback.ops.families import general, linear
from pullback.ops.op import OPS
from pullback.transforms.sparse import (
    SparsePlan,
    hessian_diagonal,
    jacobian_diagonal,
    sparse_hessian,
    sparse_jacobian,
    sparsity,
)
from pullback.transforms.sparse.coloring import color_hessian, color_jacobian

RNG = np.random.default_rng(5)
A = RNG.normal(size=(4, 6)) * (RNG.random((4, 6)) < 0.4)
BAND = np.diag(np.full(6, 2.0)) - np.diag(np.ones(5), 1) - np.diag(np.ones(5), -1)


def dense_jacobian(f, x):
    """One jvp for each input, as a matrix of the flattened result by the flattened x."""
    columns = []
    for i in range(x.size):
        direction = np.zeros(x.size, x.dtype)
        direction[i] = 1
        columns.append(flat_vector(pb.jvp(f, (x,), (direction.reshape(x.shape),))[1]))
    return np.stack(columns, 1) if columns else np.zeros((np.size(f(x)), 0), x.dtype)


def pattern(f, x, kind="global"):
    found = sparsity(f, x, kind)
    assert isinstance(found, sparse.csr_matrix)
    assert found.dtype == bool
    return found.toarray()


def rosenbrock(x):
    return pb.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def tridiagonal(n):
    return np.abs(np.subtract.outer(np.arange(n), np.arange(n))) <= 1


STENCIL = np.array([[0.0, 1.0, 0.0], [1.0, -4.0, 1.0], [0.0, 1.0, 0.0]])[None, None]


def stencil_energy(x):
    return pb.sum(pb.nn.conv2d(x, STENCIL, padding=1) ** 3)


# Functions whose pattern is exactly where the Jacobian is not zero at a point in general position.
TIGHT = {
    "banded": (lambda x: x[1:] * x[:-1] + pb.sin(x[1:]), 7),
    "block": (lambda x: pb.sum(pb.reshape(x, (3, 2)) ** 2, axis=1), 6),
    "permutation": (lambda x: pb.exp(x[np.array([3, 0, 2, 1])]), 4),
    "broadcast": (lambda x: pb.reshape(x[:2], (2, 1)) * x[2:], 5),
    "outer sum": (lambda x: pb.broadcast_to(x, (3, 4)) * 2.0, 4),
    "sum": (lambda x: pb.sum(x * x), 5),
    "sum of an axis": (lambda x: pb.sum(pb.reshape(x, (2, 3, 2)), axis=(0, 2)), 12),
    "mean": (lambda x: pb.mean(pb.reshape(x, (2, 3)), axis=0, keepdims=True), 6),
    "cumsum": (lambda x: pb.cumsum(x**2), 6),
    "cumsum of an axis": (lambda x: pb.cumsum(pb.reshape(x, (3, 2)), axis=0), 6),
    "matmul": (lambda x: A @ x, 6),
    "matmul from the right": (lambda x: pb.reshape(x, (2, 4)) @ A, 8),
    "matmul of two": (lambda x: pb.matmul(pb.reshape(x[:4], (2, 2)), pb.reshape(x[4:], (2, 3))), 10),
    "einsum": (lambda x: pb.einsum("ij,kj,k->ik", pb.reshape(x, (3, 6)), A, np.array([1.0, 0.0, 2.0, 3.0])), 18),
    "convolve": (lambda x: pb.convolve(x, np.array([1.0, 0.0, -2.0]), mode="same"), 8),
    "convolve with itself": (lambda x: pb.convolve(x[:4], x[4:]), 6),
    "stencil": (lambda x: pb.nn.conv2d(pb.reshape(x, (1, 1, 4, 5)) ** 2, STENCIL, padding=1), 20),
    "strided channels": (lambda x: pb.nn.conv2d(pb.reshape(x, (1, 2, 3, 4)), np.ones((2, 2, 2, 2)), stride=2), 24),
    "gradient of a stencil": (lambda x: pb.grad(stencil_energy)(pb.reshape(x, (1, 1, 3, 4))), 12),
    "repeated index": (lambda x: x[np.array([0, 0, 2, 2, 1])] ** 2, 4),
    "mask": (lambda x: x[x > -9] * 3.0, 4),
    "concat": (lambda x: pb.concat([x[3:], x[:1], np.ones(2)]), 5),
    "split": (lambda x: pb.split(x, [2, 3])[0] * pb.split(x, [2, 3])[2], 5),
    "stack": (lambda x: pb.stack([x, x**2], axis=1), 3),
    "pad": (lambda x: pb.pad(x, (2, 1)) * 3.0, 3),
    "roll": (lambda x: pb.roll(x, 2) + x, 5),
    "flip": (lambda x: pb.flip(x) * x, 5),
    "tile": (lambda x: pb.tile(x, (2, 2)), 3),
    "transpose": (lambda x: pb.permute_dims(pb.reshape(x, (2, 3))) ** 2, 6),
    "float32": (lambda x: pb.astype(pb.astype(x, np.float32) ** 2, np.float64), 5),
    "scatter": (lambda x: pb.add_at(np.zeros(4), np.array([0, 0, 3]), x[:3]), 4),
    "assignment": (lambda x: pb.set_at(x * x, np.array([1, 3]), x[:2]), 5),
    "vmap": (lambda x: pb.vmap(lambda row: row[1:] * row[:-1])(pb.reshape(x, (2, 3))), 6),
    "jvp inside": (lambda x: pb.jvp(pb.sin, (x,), (x,))[1], 4),
    "prod": (lambda x: pb.prod(pb.reshape(x, (2, 3)), axis=1), 6),
    "stop": (lambda x: pb.stop_gradient(x) * pb.flip(x), 4),
    "constant": (lambda x: np.ones(3), 4),
    "rounded": (lambda x: pb.sign(x) + pb.heaviside(x, 0.5), 4),
}


@pytest.mark.parametrize("kind", ["global", "local"])
@pytest.mark.parametrize("f", TIGHT)
def test_patterns_of_simple_functions_are_exact(f, kind):
    function, n = TIGHT[f]
    x = np.random.default_rng(1).uniform(0.5, 1.5, n)
    assert np.array_equal(pattern(function, x, kind), dense_jacobian(function, x) != 0)


@pytest.mark.parametrize("kind", ["global", "local"])
@pytest.mark.parametrize("case", cases(lambda op: op.differentiable), ids=name)
def test_every_record_is_covered(case, kind):
    """No nonzero of a Jacobian lies outside of the pattern, for any op and any of its arguments."""
    for number, x in enumerate(case.floats):

        def function(value, number=number):
            floats = [value if i == number else x for i, x in enumerate(case.floats)]
            outs = case.function(*floats)
            parts = [pb.reshape(out, (-1,)) for out in (outs if isinstance(outs, tuple) else (outs,))]
            return pb.concat([pb.astype(part, np.float64) for part in parts])

        x = np.asarray(x)
        found = pattern(function, x, kind)
        jacobian = dense_jacobian(function, x)
        assert found.shape == jacobian.shape
        assert not (jacobian != 0)[~found].any()
        if kind == "local" and (case.op.rearranges or case.op.family == "elementwise"):
            assert np.array_equal(found, jacobian != 0)


@pytest.mark.parametrize("case", cases(lambda op: op.differentiable), ids=name)
def test_every_record_is_covered_when_all_arguments_move(case):
    """One input moves every argument, so that patterns are united and second derivatives run over them too."""
    x = np.random.default_rng(2).normal(size=3)
    weights = [np.random.default_rng(i).normal(size=(*np.shape(a), 3)) for i, a in enumerate(case.floats)]

    def function(value):
        floats = [a + pb.sum(w * pb.sin(value) * 1e-3, axis=-1) for a, w in zip(case.floats, weights, strict=True)]
        return pb.astype(case.scalar(*floats), np.float64)

    for f in (function, pb.grad(function)):
        assert not (dense_jacobian(f, x) != 0)[~pattern(f, x)].any()


STEPS = [
    lambda x: pb.sin(x) * x,
    lambda x: x[::-1] + 1.0,
    lambda x: pb.concat([x[2:], x[:2] ** 2]),
    lambda x: pb.reshape(pb.permute_dims(pb.reshape(x, (2, 3))), (6,)),
    lambda x: pb.pad(x[1:] * x[:-1], (1, 0)),
    lambda x: pb.where(x > 0, x, pb.flip(x)),
    lambda x: BAND @ x,
    lambda x: x * pb.sum(x[:2]),
    lambda x: x[np.array([0, 0, 1, 3, 5, 5])],
    lambda x: pb.maximum(x, pb.roll(x, 1)),
    lambda x: pb.set_at(x, np.array([4, 1]), x[:2] * 3.0),
    lambda x: pb.cumsum(x) * np.array([1.0, 0.0, 1.0, 0.0, 2.0, 1.0]),
    lambda x: x - pb.max(x),
]


@seed(3)
@given(st.lists(st.sampled_from(STEPS), min_size=1, max_size=4), st.integers(0, 100))
def test_compositions_are_covered_and_computed(steps, number):
    def f(x):
        for step in steps:
            x = step(x)
        return x

    def energy(x):
        return pb.sum(pb.cos(f(x)))

    x = np.random.default_rng(number).normal(size=6)
    jacobian, hessian = dense_jacobian(f, x), dense_jacobian(pb.grad(energy), x)
    for kind in ("global", "local"):
        assert not (jacobian != 0)[~pattern(f, x, kind)].any()
        assert not (np.abs(hessian) > 1e-12 * np.abs(hessian).max())[~pattern(pb.grad(energy), x, kind)].any()
    assert np.allclose(sparse_jacobian(f)(x).toarray(), jacobian)
    assert np.allclose(sparse_hessian(energy)(x).toarray(), hessian)


def test_complex_values_have_patterns_too():
    x = np.array([1.0 + 2.0j, 0.0, -1.0j])
    for f in (lambda x: pb.exp(x) * pb.flip(x), pb.abs, lambda x: pb.imag(x) + pb.real(x), lambda x: x @ x):
        both = (dense_jacobian(f, x) != 0) | (dense_jacobian(lambda x, f=f: f(1j * x), -1j * x) != 0)
        for kind in ("global", "local"):
            assert not both[~pattern(f, x, kind)].any()


def test_a_traced_value_that_was_kept_is_of_no_use():
    kept = []
    sparsity(lambda x: kept.append(x) or x, np.ones(2))
    with pytest.raises(LeakError, match="sparsity"):
        kept[0] + 1.0


def test_global_keeps_what_local_drops():
    x = np.array([-1.0, 2.0, 0.0])
    for f, there in (
        (pb.relu, [False, True, False]),
        (lambda x: pb.where(x > 0, x, 1.0), [False, True, False]),
        (lambda x: x * np.array([1.0, 0.0, 2.0]), [True, False, True]),
        (lambda x: x * x, [True, True, False]),
        (lambda x: pb.clip(x, max=1.0), [True, False, True]),
    ):
        assert np.array_equal(pattern(f, x, "local"), np.diag(there))
        assert np.array_equal(pattern(f, x, "global"), np.eye(3, dtype=bool))


def test_an_extreme_reads_all_it_might_have_taken():
    x = np.array([[1.0, 3.0, 2.0], [5.0, 5.0, 0.0]])
    f = lambda x: pb.max(x, axis=1)  # noqa: E731
    assert np.array_equal(pattern(f, x), np.kron(np.eye(2, dtype=bool), np.ones((1, 3), bool)))
    assert pattern(f, x, "local").astype(int).tolist() == [[0, 1, 0, 0, 0, 0], [0, 0, 0, 1, 1, 0]]


def test_zeros_of_a_factor_that_moves_count_only_locally():
    x = np.array([1.0, 0.0, 3.0, 4.0])
    f = lambda x: pb.matmul(pb.reshape(x, (2, 2)), x[:2])  # noqa: E731
    assert pattern(f, x).all(axis=1).tolist() == [False, True]
    assert pattern(f, x)[0].tolist() == [True, True, False, False]
    local = pattern(f, x, "local")
    assert not local[~(dense_jacobian(f, x) != 0)].any()
    assert not (dense_jacobian(f, x) != 0)[~local].any()


def test_decisions_are_those_at_x():
    def f(x):
        return x[1:] * 2.0 if x[0] > 0 else x[:-1] * x[0]

    assert np.array_equal(pattern(f, np.ones(3)), np.eye(2, 3, 1, dtype=bool))
    assert np.array_equal(pattern(f, -np.ones(3)), np.array([[1, 0, 0], [1, 1, 0]], bool))


def test_value_dependent_indices_follow_x():
    f = lambda x: x[pb.argmax(x)] * x  # noqa: E731
    found = pattern(f, np.array([1.0, 5.0, 2.0]))
    assert np.array_equal(found, np.eye(3, dtype=bool) | (np.arange(3) == 1))


def test_an_unknown_op_reads_everything():
    op = general(
        "sparse_test_fold",
        value=lambda xp, x, y: xp.cumsum(x) * y,
        spec=lambda x, y: x,
        pulls={"x": lambda bar, y: bar * y, "y": lambda bar, x: bar * pb.cumsum(x)},
        push=lambda tangents, out, primals, static: tangents[0] * primals[1],
        batch=lambda *a: None,
        samples=lambda rng: [],
    )
    try:
        found = pattern(lambda x: apply(op, x[:3] * 2.0, x[1:4]), np.ones(5))
    finally:
        del OPS["sparse_test_fold"]
    assert np.array_equal(found, np.broadcast_to([True, True, True, True, False], (3, 5)))


def test_a_custom_op_reads_everything():
    @pb.custom_op
    def smear(x):
        return np.full(x.shape, x[0])

    @smear.def_vjp
    def _(bar, x):
        return pb.concat([pb.reshape(pb.sum(bar), (1,)), np.zeros(x.size - 1) + 0.0 * x[1:]])

    assert pattern(lambda x: smear(x[:3]), np.ones(4)).tolist() == [[True, True, True, False]] * 3


def test_a_linear_op_with_signs_is_run_element_by_element():
    """Weights that cancel: the first moments would call [1, -1, 1] a copy."""
    weights = np.array([[1.0, -1.0, 1.0, 0.0], [0.0, 0.0, 0.0, 2.0]])
    op = linear(
        "sparse_test_signs",
        rearranges=False,
        value=lambda xp, x: weights @ x,
        spec=lambda x: x,
        transpose=lambda bar: pb.matmul(weights.T, bar),
        batch=lambda *a: None,
        samples=lambda rng: [],
    )
    try:
        found = pattern(lambda x: apply(op, x), np.ones(4))
    finally:
        del OPS["sparse_test_signs"]
    assert np.array_equal(found, weights != 0)


@pytest.mark.parametrize("n", [2, 3, 6, 40])
def test_rosenbrock_hessian_is_tridiagonal(n):
    assert np.array_equal(pattern(pb.grad(rosenbrock), np.linspace(-1, 1, n)), tridiagonal(n))


HESSIANS = {
    "where": (lambda x: pb.sum(pb.where(x > 0, x**3, pb.sin(x))), np.eye(5)),
    "gather": (lambda x: pb.sum(x[np.array([0, 0, 3])] ** 3 * x[np.array([1, 2, 4])]), None),
    "assignment": (lambda x: pb.sum(pb.set_at(x, slice(0, 2), x[2:4] * x[1:3]) ** 2), None),
    "max": (lambda x: pb.sum(pb.max(pb.reshape(x[:4], (2, 2)) ** 2, axis=1)), None),
    "least squares": (lambda x: pb.sum(pb.matmul(A[:, :5], x) ** 2), None),
    "mean": (lambda x: pb.mean(pb.exp(x)), np.eye(5)),
    "linear": (lambda x: pb.sum(x * np.arange(5.0)), np.zeros((5, 5))),
    "product": (lambda x: pb.prod(x[:3]) + x[3] * x[4], None),
}


@pytest.mark.parametrize("f", HESSIANS)
def test_hessian_patterns_cover_and_are_tight(f):
    function, expected = HESSIANS[f]
    x = np.random.default_rng(4).uniform(0.5, 1.5, 5)
    found, hessian = pattern(pb.grad(function), x), dense_jacobian(pb.grad(function), x)
    assert not (np.abs(hessian) > 1e-12)[~found].any()
    if expected is not None:
        assert np.array_equal(found, expected.astype(bool))
    assert np.allclose(sparse_hessian(function)(x).toarray(), hessian)


def test_large_banded_problems_stay_sparse():
    """Five thousand unknowns: any array of n x n numbers on the way would be noticed in memory."""
    n = 5000
    f = lambda x: pb.sin(x[2:]) * x[:-2] + pb.pad(pb.sum(pb.reshape(x, (n // 2, 2)), axis=1), (0, n - 2 - n // 2))  # noqa: E731
    found = sparsity(f, np.ones(n))
    assert (
        found.nnz == 2 * (n - 2) + n - 3
    )  # two bands, and two elements in each row of the sum, of which three are the same
    assert sparsity(pb.grad(rosenbrock), np.ones(n)).nnz == 3 * n - 2


# Colourings


@st.composite
def patterns(draw, square=False):
    height = draw(st.integers(0, 9))
    width = height if square else draw(st.integers(0, 9))
    density = draw(st.sampled_from([0.1, 0.3, 0.6, 1.0]))
    found = np.random.default_rng(draw(st.integers(0, 10**6))).random((height, width)) < density
    if draw(st.booleans()) and height and width:  # a dense row and a dense column
        found[0], found[:, 0] = True, True
    return found | found.T if square else found


def is_alone(found, colors, r, c):
    """Whether column c is the only one of its color with an entry in row r."""
    return colors[c] >= 0 and sum(found[r, k] and colors[k] == colors[c] for k in range(found.shape[1])) == 1


@seed(1)
@given(patterns(), st.sampled_from(["auto", "column", "row", "bidirectional"]))
def test_colorings_show_every_entry(found, how):
    coloring = color_jacobian(sparse.csr_matrix(found), how)
    for r, c in np.argwhere(found):
        assert is_alone(found, coloring.columns, r, c) or is_alone(found.T, coloring.rows, c, r)
    if how == "column":
        assert (coloring.rows == -1).all()
    if how == "row":
        assert (coloring.columns == -1).all()
    for colors in (coloring.columns, coloring.rows):
        assert set(colors[colors >= 0]) == set(range(colors.max(initial=-1) + 1))


@seed(2)
@given(patterns(square=True))
def test_star_colorings_have_no_path_of_two_colors(found):
    colors = color_hessian(sparse.csr_matrix(found)).columns
    n = len(found)
    edge = found & ~np.eye(n, dtype=bool)
    assert ((colors >= 0) == found.any(axis=0)).all()
    for u, v in np.argwhere(edge):
        assert colors[u] != colors[v]
        for w in np.flatnonzero(edge[v]):
            for x in np.flatnonzero(edge[w]):
                if len({u, v, w, x}) == 4:
                    assert len({colors[u], colors[v], colors[w], colors[x]}) > 2
    for r, c in np.argwhere(found):
        assert is_alone(found, colors, r, c) or is_alone(found, colors, c, r)


@pytest.mark.parametrize(
    ("found", "how", "products"),
    [
        (tridiagonal(50), "column", 3),
        (tridiagonal(50), "row", 3),
        (np.eye(30, dtype=bool), "auto", 1),
        (np.ones((3, 20), bool), "auto", 3),
        (np.ones((20, 3), bool), "auto", 3),
        (np.eye(30, dtype=bool) | (np.arange(30) == 0) | (np.arange(30) == 0)[:, None], "auto", 3),
        (np.eye(30, dtype=bool) | (np.arange(30) == 0) | (np.arange(30) == 0)[:, None], "column", 30),
        (np.zeros((4, 5), bool), "auto", 0),
        (np.zeros((0, 0), bool), "bidirectional", 0),
    ],
)
def test_colorings_of_known_patterns_are_the_best(found, how, products):
    assert color_jacobian(sparse.csr_matrix(found), how).products == products


def test_star_colorings_of_known_graphs_are_the_best():
    arrow = np.eye(30, dtype=bool) | (np.arange(30) == 0) | (np.arange(30) == 0)[:, None]
    for found, products in ((tridiagonal(50), 3), (arrow, 2), (np.eye(9, dtype=bool), 1), (np.ones((5, 5), bool), 5)):
        assert color_hessian(sparse.csr_matrix(found)).products == products


def test_an_unknown_coloring_is_refused():
    with pytest.raises(ArgumentError, match="diagonals"):
        color_jacobian(sparse.csr_matrix(np.eye(2)), "diagonals")


# Derivatives


def arrow(x):
    """A dense row, a dense column and a diagonal."""
    return pb.concat([pb.reshape(pb.sum(x**2), (1,)), x[1:] ** 2 * x[0] + pb.sin(x[1:])])


@pytest.mark.parametrize("coloring", ["auto", "column", "row", "bidirectional"])
@pytest.mark.parametrize("f", [*TIGHT, "arrow"])
def test_sparse_jacobian_is_the_jacobian(f, coloring):
    function, n = TIGHT.get(f, (arrow, 8))
    x = np.random.default_rng(3).uniform(0.5, 1.5, n)
    found = sparse_jacobian(function, coloring=coloring)(x)
    assert isinstance(found, sparse.csr_matrix)
    expected = dense_jacobian(function, x)
    assert found.shape == expected.shape
    assert np.allclose(found.toarray(), expected, rtol=1e-6 if f == "float32" else 1e-12)


def test_an_arrow_takes_three_products_from_both_sides():
    plan = sparse_jacobian.plan(arrow, np.ones(50))
    assert (plan.products, plan.colors.column_count, plan.colors.row_count) == (3, 2, 1)
    assert sparse_jacobian.plan(arrow, np.ones(50), coloring="column").products == 50


def test_arguments_of_any_shape_are_flattened_in_c_order():
    x = np.random.default_rng(0).normal(size=(2, 3))
    f = lambda x: pb.permute_dims(x) ** 2  # noqa: E731
    assert np.allclose(sparse_jacobian(f)(x).toarray(), dense_jacobian(f, x))
    assert np.allclose(sparse_hessian(lambda x: pb.sum(f(x) ** 2))(x).toarray(), np.diag(12 * x.ravel() ** 2))


@pytest.mark.parametrize("n", [2, 5, 60])
def test_rosenbrock_hessian_takes_three_products(n):
    x = np.random.default_rng(n).normal(size=n)
    plan = sparse_hessian.plan(rosenbrock, x)
    assert plan.products == min(n, 3)
    found = plan(x)
    assert np.allclose(found.toarray(), dense_jacobian(pb.grad(rosenbrock), x))
    assert np.array_equal(found.toarray(), sparse_hessian(rosenbrock)(x).toarray())


@pytest.mark.parametrize("x", [np.array(2.0), np.array([2.0]), np.zeros(0), np.zeros((0, 3))])
def test_smallest_arguments(x):
    jacobian = sparse_jacobian(lambda x: x**3)(x)
    hessian = sparse_hessian(lambda x: pb.sum(x**3))(x)
    assert jacobian.shape == hessian.shape == (x.size, x.size)
    assert np.allclose(jacobian.toarray(), np.diag(3 * x.ravel() ** 2))
    assert np.allclose(hessian.toarray(), np.diag(6 * x.ravel()))
    assert jacobian_diagonal(lambda x: x**3)(x).shape == hessian_diagonal(lambda x: pb.sum(x**3))(x).shape == x.shape


def test_float32_stays_float32():
    x = np.linspace(-1, 1, 9, dtype=np.float32)
    for found in (sparse_hessian(rosenbrock)(x), sparse_jacobian(arrow)(x), sparse_jacobian(arrow, coloring="row")(x)):
        assert found.dtype == np.float32
    assert np.allclose(sparse_hessian(rosenbrock)(x).toarray(), dense_jacobian(pb.grad(rosenbrock), x), rtol=1e-4)


@pytest.mark.parametrize("dtype", [np.float16, np.complex128])
def test_dtypes_that_scipy_cannot_hold_are_refused(dtype):
    with pytest.raises(DtypeError, match="float32 and float64"):
        sparse_jacobian(lambda x: x * x)(np.ones(3, dtype))


def test_integers_are_refused():
    with pytest.raises(DtypeError, match="int64"):
        sparse_jacobian(lambda x: x * x)(np.arange(3))


def test_a_function_of_several_arrays_is_refused():
    with pytest.raises(ArgumentError, match="one array"):
        sparse_jacobian(lambda x: (x, x))(np.ones(2))
    with pytest.raises(ArgumentError, match="one array"):
        sparse_jacobian(lambda x: (x, x), pattern="diagonal")(np.ones(2))
    with pytest.raises(ArgumentError, match="scalar"):
        sparse_hessian(lambda x: x)(np.ones(2))


def test_nan_and_inf_pass_through():
    x = np.array([1.0, np.nan, 3.0, 4.0])
    found = sparse_jacobian(lambda x: x**2)(x).toarray()
    assert np.array_equal(np.diag(found), 2 * x, equal_nan=True)


def test_many_products_go_in_batches(monkeypatch):
    monkeypatch.setattr("pullback.transforms.sparse.sparse_plan._MAX_BATCH_NUMBERS", 20)
    x = np.random.default_rng(8).normal(size=8)
    f = lambda x: pb.cumsum(x**2)  # noqa: E731
    for coloring in ("column", "row"):
        assert np.allclose(sparse_jacobian(f, coloring=coloring)(x).toarray(), dense_jacobian(f, x))
    assert np.allclose(jacobian_diagonal(f)(x), 2 * x)


# Plans


def test_a_plan_serves_many_points_and_counts_its_products():
    calls = []

    def f(x):
        calls.append(x)
        return rosenbrock(x)

    plan = sparse_hessian.plan(f, np.ones(12))
    planned = len(calls)
    for i in range(3):
        x = np.random.default_rng(i).normal(size=12)
        assert np.allclose(plan(x).toarray(), dense_jacobian(pb.grad(rosenbrock), x))
    assert len(calls) == planned + 3


def test_the_plan_is_remembered_for_each_shape_and_dtype():
    traced = []

    def f(x):
        if "traced" in repr(x):
            traced.append(x.shape)
        return x[1:] * x[:-1]

    jacobian = sparse_jacobian(f)
    for x in (np.ones(3), np.zeros(3), np.ones(4), np.ones(3, np.float32), np.ones(4)):
        jacobian(x)
    assert traced == [(3,), (4,), (3,)]


def test_results_do_not_share_their_structure_with_the_plan():
    plan = sparse_jacobian.plan(lambda x: x[1:] * x[:-1], np.ones(4))
    first = plan(np.zeros(4))
    first.eliminate_zeros()
    first.indices[:] = 0
    assert np.allclose(plan(np.ones(4)).toarray(), dense_jacobian(lambda x: x[1:] * x[:-1], np.ones(4)))


def test_a_plan_prints_what_it_will_do():
    text = str(sparse_hessian.plan(rosenbrock, np.ones(100)))
    assert "Hessian of rosenbrock" in text
    assert "float64[100]" in text
    assert "100 x 100, 298 entries (2.98%)" in text
    assert "3 products" in text
    assert "2 from the right, 1 from the left" in str(sparse_jacobian.plan(arrow, np.ones(9)))


@pytest.mark.parametrize("x", [np.linspace(-1, 1, 7), np.linspace(-1, 1, 7, dtype=np.float32)])
def test_a_plan_goes_through_json(x):
    for plan in (
        sparse_hessian.plan(rosenbrock, x),
        sparse_jacobian.plan(arrow, x),
        sparse_jacobian.plan(arrow, x, coloring="row"),
    ):
        again = SparsePlan.from_json(plan.to_json(), plan.f)
        assert str(again) == str(plan)
        assert again.products == plan.products
        assert (again.pattern != plan.pattern).nnz == 0
        assert np.array_equal(again(x).toarray(), plan(x).toarray())
        assert again.to_json() == plan.to_json()


def test_a_text_that_is_no_plan_is_refused():
    good = json.loads(sparse_hessian.plan(rosenbrock, np.ones(4)).to_json())
    for change in (
        {"format": "other"},
        {"derivative": "gradient"},
        {"columns": [0, 0, 0, 0]},
        {"columns": [0, 1]},
        {"entries": [9] * len(good["entries"])},
        {"starts": [0, 1]},
        {"dtype": "nonsense"},
    ):
        with pytest.raises(ArgumentError, match=r"no plan|does not show"):
            SparsePlan.from_json(json.dumps({**good, **change}), rosenbrock)
    for text in ("{}", "[]", "not json"):
        with pytest.raises(ArgumentError, match="no plan"):
            SparsePlan.from_json(text, rosenbrock)


def test_another_shape_or_dtype_needs_another_plan():
    plan = sparse_hessian.plan(rosenbrock, np.ones(4))
    with pytest.raises(ShapeError, match=r"\(5,\).*\(4,\)"):
        plan(np.ones(5))
    with pytest.raises(DtypeError, match="float32"):
        plan(np.ones(4, np.float32))


def turning(x):
    """Reads its neighbour on one side, or on the other."""
    return x[1:] * x[:-1] if x[0] > 0 else pb.concat([x[1:-1], x[:1]]) * x[0]


@pytest.mark.parametrize("coloring", ["auto", "column", "row", "bidirectional"])
def test_a_pattern_that_changed_is_noticed(coloring):
    x = np.random.default_rng(0).normal(size=9)
    x[0] = 1.0
    plan = sparse_jacobian.plan(turning, x, coloring=coloring)
    plan(x)
    x[0] = -1.0
    with pytest.raises(ArgumentError, match="outside of the plan's pattern"):
        plan(x)
    plan(x, check=False)


def test_a_result_of_another_size_is_noticed():
    plan = sparse_jacobian.plan(lambda x: x[x > 0] * 2.0, np.array([1.0, 2.0, -1.0]))
    with pytest.raises(ShapeError, match="1 elements here, and 2"):
        plan(np.array([1.0, -2.0, -1.0]))


def test_one_small_entry_outside_of_the_pattern_is_noticed():
    x = np.random.default_rng(0).normal(size=40)
    f = lambda x: rosenbrock(x) + 1e-4 * x[3] * x[30]  # noqa: E731
    with pytest.raises(ArgumentError, match="hessian at this x has entries outside"):
        sparse_hessian.plan(f, x, pattern=tridiagonal(40))(x)


def test_the_function_form_plans_again_where_f_turns():
    jacobian = sparse_jacobian(turning)
    x = np.random.default_rng(0).normal(size=9)
    for first in (1.0, -1.0, 1.0):
        x[0] = first
        assert np.allclose(jacobian(x).toarray(), dense_jacobian(turning, x))


def test_a_local_plan_that_grows():
    hessian = sparse_hessian(lambda x: pb.sum(pb.relu(x) ** 2 * pb.flip(x)), kind="local")
    for x in (np.array([1.0, -2.0, 3.0]), np.array([-1.0, 2.0, 3.0]), np.array([1.0, 2.0, 3.0])):
        assert np.allclose(
            hessian(x).toarray(), dense_jacobian(pb.grad(lambda x: pb.sum(pb.relu(x) ** 2 * pb.flip(x))), x)
        )


def test_a_given_pattern_is_used_and_checked():
    x = np.random.default_rng(0).normal(size=6)
    found = sparse_jacobian(pb.sin, pattern="diagonal")(x)
    assert np.allclose(found.toarray(), np.diag(np.cos(x)))
    assert np.allclose(
        sparse_hessian(rosenbrock, pattern=tridiagonal(6))(x).toarray(), sparse_hessian(rosenbrock)(x).toarray()
    )
    with pytest.raises(ArgumentError, match="outside of the plan's pattern"):
        sparse_jacobian(lambda x: pb.flip(x), pattern="diagonal")(x)
    with pytest.raises(ArgumentError, match="not square"):
        sparse_jacobian(lambda x: x[1:], pattern="diagonal")(x)
    with pytest.raises(ArgumentError, match="shape"):
        sparse_jacobian(pb.sin, pattern=np.eye(3))(x)
    with pytest.raises(ArgumentError, match="banded"):
        sparse_jacobian(pb.sin, pattern="banded")(x)


def test_kinds_are_named():
    with pytest.raises(ArgumentError, match="kind"):
        sparsity(pb.sin, np.ones(2), "everywhere")
    with pytest.raises(ArgumentError, match="kind"):
        sparse_jacobian(pb.sin, kind="everywhere")(np.ones(2))


# Tensors and other transforms


def test_tensors_that_are_not_tracked_are_values():
    x = pb.tensor([1.0, 2.0, 3.0])
    assert np.allclose(sparse_jacobian(pb.sin)(x).toarray(), np.diag(np.cos([1.0, 2.0, 3.0])))
    assert sparsity(pb.sin, pb.tensor([1.0], requires_grad=True)).nnz == 1


def test_a_tracked_point_is_refused():
    x = pb.tensor([1.0, 2.0], requires_grad=True)
    for derivative in (sparse_jacobian(pb.sin), sparse_hessian(rosenbrock), jacobian_diagonal(pb.sin)):
        with pytest.raises(GraphError, match=r"detach"):
            derivative(x)


def test_tracked_parameters_are_refused_not_lost():
    weight = pb.tensor([2.0, 3.0], requires_grad=True)
    jacobian = sparse_jacobian(lambda x: x * weight)
    with pytest.raises(GraphError, match="no_grad"):
        jacobian(np.ones(2))
    with pb.no_grad():
        assert np.allclose(jacobian(np.ones(2)).toarray(), np.diag([2.0, 3.0]))


def test_zeros_of_a_parameter_may_change():
    weight = pb.tensor(np.zeros((2, 2)))
    assert pattern(lambda x: pb.matmul(weight, x), np.ones(2)).all()


def test_inside_of_another_transform_it_is_refused():
    with pytest.raises(ConversionError, match="another transform"):
        pb.jvp(lambda x: sparse_jacobian(pb.sin)(x), (np.ones(2),), (np.ones(2),))
    with pytest.raises(ConversionError, match="another transform"):
        pb.vmap(lambda s: sparse_jacobian(lambda x: x * s)(np.ones(2)))(np.ones(3))


def test_traced_values_do_not_become_bare():
    assert np.array_equal(sparsity(lambda x: np.asarray(x), np.ones(2)).toarray(), np.eye(2))  # as in every transform
    with pytest.raises(ConversionError, match="traced"):
        sparsity(lambda x: x * float(x[0]), np.ones(2))


# Diagonals


def test_diagonals_take_the_products_the_pattern_needs():
    x = np.random.default_rng(0).normal(size=30)
    products = []

    def counted(f):
        def g(v):
            if "dual" in repr(v):
                products.append(v.along.scope.size)
            return f(v)

        return g

    assert np.allclose(jacobian_diagonal(counted(pb.sin))(x), np.cos(x))
    assert products == [2]  # one product, and the one of the check
    assert np.allclose(hessian_diagonal(rosenbrock)(x), np.diag(dense_jacobian(pb.grad(rosenbrock), x)))


@pytest.mark.parametrize("n", [1, 2, 7])
def test_dense_diagonals_are_exact(n):
    x = np.random.default_rng(n).normal(size=n)
    f = lambda x: pb.cumsum(pb.exp(x)) * x  # noqa: E731
    assert np.allclose(jacobian_diagonal(f)(x), np.diag(dense_jacobian(f, x)))
    g = lambda x: pb.sum(pb.exp(x)) ** 2  # noqa: E731
    assert np.allclose(hessian_diagonal(g)(x), np.diag(dense_jacobian(pb.grad(g), x)))


def test_a_diagonal_has_the_shape_of_x():
    x = np.random.default_rng(0).normal(size=(2, 3))
    assert np.allclose(jacobian_diagonal(lambda x: x**2)(x), 2 * x)
    with pytest.raises(ArgumentError, match="square"):
        jacobian_diagonal(lambda x: x[1:])(np.ones(3))
