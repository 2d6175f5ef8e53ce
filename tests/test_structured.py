"""Matrices with structure against the dense matrices that they stand for, in every transform and order."""

import numpy as np
import pytest
import scipy.linalg

import pullback as pb
from pullback import implicit
from pullback.errors import ConvergenceError, PullbackError

SIZE = 6


def draw(seed, *shape, shift=0.0):
    rng = np.random.default_rng(seed)
    found = rng.normal(size=shape)
    return found + shift * np.eye(*shape) if len(shape) == 2 and shape[0] == shape[1] else found


def positive(seed, size):
    return np.random.default_rng(seed).uniform(1.0, 3.0, size=size)


def banded(seed, size, lower, upper):
    bands = draw(seed, lower + upper + 1, size)
    bands[upper] += 6.0
    return implicit.Banded(bands, lower, upper)


def stacked(*blocks):
    return scipy.linalg.block_diag(*blocks)


DIAGONAL, LEFT, RIGHT = positive(0, SIZE), draw(1, SIZE, 2), 0.3 * draw(2, SIZE, 2)
A3, A2, TWO = draw(3, 3, 3, shift=4.0), draw(4, 2, 2, shift=4.0), draw(5, 2, 4)
BAND = banded(6, SIZE, 1, 2)
BAND_DENSE = np.array([
    [BAND.bands[2 + i - j, j] if -2 <= i - j <= 1 else 0.0 for j in range(SIZE)] for i in range(SIZE)
])  # fmt: skip
#: Name: the operator, and the dense matrix by NumPy alone.
CASES = {
    "diagonal": (implicit.Diagonal(DIAGONAL), np.diag(DIAGONAL)),
    "banded": (BAND, BAND_DENSE),
    "one band": (implicit.Banded(DIAGONAL[None], 0, 0), np.diag(DIAGONAL)),
    "symmetric rank": (implicit.LowRankPlusDiagonal(DIAGONAL, LEFT), np.diag(DIAGONAL) + LEFT @ LEFT.T),
    "rank": (implicit.LowRankPlusDiagonal(DIAGONAL, LEFT, RIGHT), np.diag(DIAGONAL) + LEFT @ RIGHT.T),
    "kronecker": (implicit.Kronecker(A3, A2), np.kron(A3, A2)),
    "kronecker of operators": (
        implicit.Kronecker(implicit.Diagonal(DIAGONAL[:3]), implicit.LowRankPlusDiagonal(DIAGONAL[:2], LEFT[:2])),
        np.kron(np.diag(DIAGONAL[:3]), np.diag(DIAGONAL[:2]) + LEFT[:2] @ LEFT[:2].T),
    ),
    "blocks": (
        implicit.BlockDiagonal([A3, implicit.Diagonal(DIAGONAL[:1]), A2]), stacked(A3, np.diag(DIAGONAL[:1]), A2)
    ),
    "one block": (implicit.BlockDiagonal([draw(8, SIZE, SIZE, shift=5.0)]), draw(8, SIZE, SIZE, shift=5.0)),
    "two by two": (
        implicit.BlockMatrix(implicit.Diagonal(DIAGONAL[:4]), TWO.T, 0.5 * TWO, A2),
        np.block([[np.diag(DIAGONAL[:4]), TWO.T], [0.5 * TWO, A2]]),
    ),
}  # fmt: skip
B, MANY = draw(9, SIZE), draw(10, SIZE, 3)


@pytest.fixture(params=CASES)
def case(request):
    return CASES[request.param]


def leaves(tree):
    return pb.tree.flatten(tree)[0]


def loss(A, b):
    return pb.sum(pb.sin(pb.linear_solve(A, b)))


def dense_loss(A, b):
    return pb.sum(pb.sin(pb.linalg.solve(A.to_dense(), b)))


def assert_close(found, wanted, tol=1e-11):
    for a, b in zip(leaves(found), leaves(wanted), strict=True):
        np.testing.assert_allclose(a, b, rtol=tol, atol=tol)


def test_products_transposes_and_dense_copies(case):
    A, dense = case
    np.testing.assert_allclose(A.to_dense(), dense, atol=1e-14)
    np.testing.assert_allclose(A.T.to_dense(), dense.T, atol=1e-14)
    np.testing.assert_allclose(A @ B, dense @ B, atol=1e-13)
    np.testing.assert_allclose(A @ MANY, dense @ MANY, atol=1e-13)
    assert A.shape == dense.shape


def test_solves(case):
    A, dense = case
    for b in (B, MANY):
        np.testing.assert_allclose(pb.linear_solve(A, b), np.linalg.solve(dense, b), atol=1e-12)
    np.testing.assert_allclose(pb.jit(pb.linear_solve)(A, MANY), np.linalg.solve(dense, MANY), atol=1e-12)


def test_gradients_have_the_form_of_the_matrix(case):
    A, _ = case
    found = pb.grad(loss, argnums=(0, 1))(A, B)
    assert type(found[0]) is type(A)
    assert_close(found, pb.grad(dense_loss, argnums=(0, 1))(A, B))
    assert_close(pb.jit(pb.grad(loss, argnums=(0, 1)))(A, B), found)


def test_second_derivatives_and_forward_mode(case):
    A, _ = case

    def size_of_gradient(f):
        return lambda A: sum(pb.sum(pb.cos(x)) for x in leaves(pb.grad(f)(A, B)))

    assert_close(pb.grad(size_of_gradient(loss))(A), pb.grad(size_of_gradient(dense_loss))(A))
    along = pb.tree.map(lambda x: np.cos(x), A)
    assert_close(pb.jvp(lambda A: loss(A, B), (A,), (along,)), pb.jvp(lambda A: dense_loss(A, B), (A,), (along,)))


def test_batches_of_matrices_and_of_right_sides(case):
    A, dense = case
    np.testing.assert_allclose(
        pb.vmap(pb.linear_solve, (None, 1), 1)(A, MANY), np.linalg.solve(dense, MANY), atol=1e-12
    )
    several = pb.tree.map(lambda x: np.stack([x, x + 0.1, x - 0.1]), A)
    wanted = [np.linalg.solve(pb.tree.map(lambda x, i=i: x[i], several).to_dense(), B) for i in range(3)]
    np.testing.assert_allclose(pb.vmap(pb.linear_solve, (0, None))(several, B), wanted, atol=1e-11)
    both = pb.vmap(pb.vmap(pb.linear_solve, (0, None)), (None, 1))(several, MANY)
    np.testing.assert_allclose(both[:, 0], np.linalg.solve(dense, MANY).T, atol=1e-11)
    np.testing.assert_allclose(
        pb.vmap(pb.vmap(pb.linear_solve, (None, 1)), (0, None))(several, MANY)[0], both[:, 0], atol=1e-11
    )
    pulled = pb.vmap(pb.grad(loss), (0, None))(several, B)
    assert_close(pb.tree.map(lambda x: x[0], pulled), pb.grad(loss)(A, B))


def test_determinants_and_inverse_diagonals(case):
    A, dense = case
    if not hasattr(A, "logdet"):
        pytest.skip("the structure gives no determinant")
    np.testing.assert_allclose(A.logdet(), np.linalg.slogdet(dense)[1], rtol=1e-12)
    np.testing.assert_allclose(A.inverse_diagonal(), np.diag(np.linalg.inv(dense)), atol=1e-12)
    wanted = pb.grad(lambda A: pb.linalg.slogdet(A.to_dense())[1])(A)
    assert_close(pb.grad(lambda A: A.logdet())(A), wanted)


def test_complex_parts(case):
    A = pb.tree.map(lambda x: x * np.exp(0.3j * np.arange(x.size)).reshape(x.shape), case[0])
    dense, b, bar = A.to_dense(), B + 1j * MANY[:, 0], 0.7 + 1j * draw(11, SIZE)
    np.testing.assert_allclose(pb.linear_solve(A, b), np.linalg.solve(dense, b), atol=1e-12)
    np.testing.assert_allclose(pb.linear_solve(A.T, MANY), np.linalg.solve(dense.T, MANY), atol=1e-12)
    larger = pb.tree.map(lambda x: 1.5 * x, A)
    many = pb.tree.map(lambda *x: np.stack(x), A, larger)
    both = np.stack([np.linalg.solve(dense, b), np.linalg.solve(larger.to_dense(), b)])
    np.testing.assert_allclose(pb.vmap(pb.linear_solve, (0, None))(many, b), both, atol=1e-12)

    def slopes(solve):
        return pb.grad(lambda A, b: pb.real(pb.sum(bar * solve(A, b) ** 2)), argnums=(0, 1))

    found = slopes(pb.linear_solve)(A, b)
    assert_close(found, slopes(lambda A, b: pb.linalg.solve(A.to_dense(), b))(A, b))
    assert_close(pb.jit(slopes(pb.linear_solve))(A, b), found)


def test_other_methods_take_them_too(case):
    A, dense = case
    for method in (implicit.GMRES(), implicit.LSMR(), implicit.Dense()):
        np.testing.assert_allclose(pb.linear_solve(A, B, method=method), np.linalg.solve(dense, B), atol=1e-7)


def test_corners_of_bands_are_not_read():
    bands = BAND.bands.copy()
    bands[0, :2] = bands[1, 0] = bands[3, -1] = 1e6
    A = implicit.Banded(bands, 1, 2)
    np.testing.assert_allclose(A.to_dense(), BAND_DENSE)
    np.testing.assert_allclose(pb.linear_solve(A, B), np.linalg.solve(BAND_DENSE, B), atol=1e-12)
    slope = pb.grad(loss)(A, B).bands
    assert slope[0, 0] == slope[0, 1] == slope[1, 0] == slope[3, -1] == 0


def test_a_compiled_batch_and_a_compiled_failure():
    several = pb.tree.map(lambda x: np.stack([x, x + 0.1]), BAND)
    solve = pb.vmap(pb.linear_solve, (0, None))
    np.testing.assert_allclose(pb.jit(solve)(several, B), solve(several, B), atol=1e-12)
    with pytest.raises(ConvergenceError):
        pb.jit(pb.linear_solve)(implicit.Diagonal(np.array([1.0, 0.0])), np.ones(2))


def test_a_band_is_solved_in_linear_time():
    """A dense matrix of this size would take 80 GB."""
    size = 100_000
    A = implicit.Banded(np.stack([np.full(size, -1.0), np.full(size, 2.5), np.full(size, -1.0)]), 1, 1)
    x = pb.linear_solve(A, np.ones(size))
    np.testing.assert_allclose(A @ x, 1.0)
    slope = pb.grad(lambda b: pb.sum(pb.linear_solve(A, b)))(np.ones(size))
    np.testing.assert_allclose(slope, x, atol=1e-10)


def test_dtypes_and_tensors():
    single = pb.tree.map(lambda x: x.astype(np.float32), BAND)
    assert pb.linear_solve(single, B.astype(np.float32)).dtype == np.float32
    assert pb.linear_solve(single, B).dtype == np.float64
    d = pb.tensor([1.0, 2.0], requires_grad=True)
    pb.sum(pb.linear_solve(implicit.Diagonal(d), np.ones(2))).backward()
    np.testing.assert_allclose(d.grad, [-1.0, -0.25])
    np.testing.assert_allclose(pb.linear_solve(implicit.Diagonal(np.array([2, 4])), np.array([1, 1])), [0.5, 0.25])


SINGULAR = [
    implicit.Diagonal(np.array([1.0, 0.0])),
    implicit.Banded(np.array([[0.0, 1.0], [1.0, 1.0], [1.0, 0.0]]), 1, 1),
    implicit.LowRankPlusDiagonal(np.ones(2), np.array([[1.0], [0.0]]), np.array([[-1.0], [0.0]])),
    implicit.Kronecker(np.ones((2, 2)), np.eye(1)),
    implicit.BlockDiagonal([np.ones((2, 2))]),
    implicit.BlockMatrix(np.eye(1), np.eye(1), np.eye(1), np.eye(1)),
]


@pytest.mark.parametrize("A", SINGULAR, ids=lambda A: type(A).__name__)
def test_singular_matrices_have_no_solution(A):
    with pytest.raises(ConvergenceError, match="Structured: NOT converged"):
        pb.linear_solve(A, np.array([1.0, 2.0]))


@pytest.mark.parametrize(
    "make",
    [
        lambda: implicit.Diagonal(np.eye(2)),
        lambda: implicit.Diagonal(np.zeros(0)),
        lambda: implicit.Banded(np.ones((2, 3)), 1, 1),
        lambda: implicit.Banded(np.ones((3, 3)), 3, -1),
        lambda: implicit.LowRankPlusDiagonal(np.ones(3), np.ones((2, 1))),
        lambda: implicit.LowRankPlusDiagonal(np.ones(3), np.ones((3, 1)), np.ones((3, 2))),
        lambda: implicit.Kronecker(np.ones((2, 3)), np.eye(2)),
        lambda: implicit.BlockDiagonal([]),
        lambda: implicit.BlockDiagonal(np.eye(2)),
        lambda: implicit.BlockMatrix(np.eye(2), np.ones((1, 2)), np.ones((2, 1)), np.eye(1)),
        lambda: pb.linear_solve(BAND, np.ones(3)),
        lambda: pb.linear_solve(BAND, np.ones(SIZE, np.longdouble)),
        lambda: BAND @ np.ones(3),
        lambda: implicit.Kronecker(BAND, A2).logdet(),
        lambda: pb.linear_solve(np.eye(2), np.ones(2), method=implicit.Structured()),
    ],
)
def test_wrong_parts_are_refused(make):
    with pytest.raises(PullbackError) as error:
        make()
    assert len(str(error.value)) > 20


def test_an_array_does_not_multiply_an_operator():
    with pytest.raises(TypeError):
        np.eye(SIZE) @ BAND
