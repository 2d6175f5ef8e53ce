"""LDL factors: LAPACK's form against SciPy's outer factor, solves, derivatives of matrices that need blocks of two."""

import numpy as np
import pytest
import scipy.linalg

import pullback as pb
from pullback.errors import DtypeError, PullbackError, ShapeError

N = 4
KINDS = [(hermitian, dtype) for hermitian in (False, True) for dtype in (np.float64, np.complex128)]


def matrices(hermitian, dtype, *lead, n=N, seed=0):
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(*lead, n, n)) + (1j * rng.normal(size=(*lead, n, n)) if dtype is np.complex128 else 0)
    turned = np.swapaxes(a, -1, -2)
    return (a + (turned.conj() if hermitian else turned)) * (1 - 0.9 * np.eye(n))


@pytest.mark.parametrize(("hermitian", "dtype"), KINDS)
def test_values(hermitian, dtype):
    a = matrices(hermitian, dtype, 4)
    found = pb.linalg.ldl_factor(a, hermitian=hermitian)
    assert (found.pivots < 0).any()
    for one, ld, pivots in zip(a, *found, strict=True):
        outer, middle, order = scipy.linalg.ldl(one, hermitian=hermitian)
        lower = outer[order]
        assert np.allclose(np.diag(ld), np.diag(middle))
        at_pairs = [i for i in range(N - 1) if middle[i + 1, i]]
        assert [i for i in range(N) if pivots[i] < 0] == sorted({*at_pairs, *(i + 1 for i in at_pairs)})
        assert all(np.isclose(ld[i + 1, i], middle[i + 1, i]) for i in at_pairs)
        assert np.allclose(np.sort(np.abs(np.tril(ld, -1))[:, 0]), np.sort(np.abs(np.tril(lower + middle, -1))[:, 0]))
    above = a + np.triu(np.full((N, N), 7.0), 1)
    assert all(
        np.array_equal(x, y) for x, y in zip(pb.linalg.ldl_factor(above, hermitian=hermitian), found, strict=True)
    )


@pytest.mark.parametrize(("hermitian", "dtype"), KINDS)
def test_solves_and_their_derivatives(hermitian, dtype):
    a, rng = matrices(hermitian, dtype, 2), np.random.default_rng(1)
    solve = lambda a, b: pb.linalg.ldl_solve(*pb.linalg.ldl_factor(a, hermitian=hermitian), b, hermitian=hermitian)  # noqa: E731
    for b in (rng.normal(size=(2, N, 3)), rng.normal(size=N), rng.normal(size=(N, 2))):
        wanted = np.linalg.solve(a, b[:, None] if b.ndim == 1 else b)
        wanted = wanted[..., 0] if b.ndim == 1 else wanted
        for take in (solve, pb.jit(solve)):
            assert np.allclose(take(a, b), wanted)
    b = rng.normal(size=(2, N, 3))
    assert np.allclose(pb.vmap(solve)(a, b), np.linalg.solve(a, b))
    assert pb.gradcheck(solve, a, b, points=6, eps=1e-4, rtol=1e-6)
    assert pb.gradgradcheck(solve, a[0], b[0], fast=True)
    # the derivative of a solve does not depend on how it is done
    moved = matrices(hermitian, dtype, 2, seed=3)
    x, slope = pb.jvp(solve, (a, b), (moved, 0 * b))
    assert np.allclose(slope, np.linalg.solve(a, -moved @ x))


@pytest.mark.parametrize(("hermitian", "dtype"), KINDS)
def test_derivatives_of_the_factors(hermitian, dtype):
    a = matrices(hermitian, dtype, 2)
    factor = lambda a: pb.linalg.ldl_factor(a, hermitian=hermitian).LD  # noqa: E731
    assert pb.gradcheck(factor, a, points=6, eps=1e-4, rtol=1e-6)
    assert pb.gradgradcheck(factor, a, fast=True)
    loss = lambda a: pb.sum(pb.abs(factor(a)) ** 2)  # noqa: E731
    assert np.allclose(pb.jit(pb.grad(loss))(a), pb.grad(loss)(a))
    assert np.allclose(pb.vmap(pb.grad(loss))(a), pb.grad(loss)(a))


def test_sizes_and_dtypes():
    for n in (0, 1):
        a = matrices(False, np.float64, 3, n=n) + np.eye(n)
        factors = pb.linalg.ldl_factor(a)
        assert factors.LD.shape == (3, n, n)
        assert np.allclose(pb.linalg.ldl_solve(*factors, np.ones((3, n, 2))), np.linalg.solve(a, np.ones((3, n, 2))))
    half = matrices(False, np.float64).astype(np.float32)
    assert pb.linalg.ldl_factor(half).LD.dtype == np.float32
    assert np.allclose(pb.linalg.ldl_factor(half).LD, pb.linalg.ldl_factor(half.astype(float)).LD, atol=1e-5)
    assert pb.linalg.ldl_factor(np.array([[2, 1], [1, 3]])).LD.dtype == np.float64
    singular = pb.linalg.ldl_factor(np.ones((2, 2)))
    with pytest.raises(PullbackError, match="singular"):
        pb.linalg.ldl_solve(*singular, np.ones(2))


def test_mistakes():
    a = matrices(False, np.float64)
    ld, pivots = pb.linalg.ldl_factor(a)
    with pytest.raises(ShapeError, match="square"):
        pb.linalg.ldl_factor(a[:2])
    with pytest.raises(DtypeError, match="one integer for each row"):
        pb.linalg.ldl_solve(ld, pivots * 1.0, a)
    with pytest.raises(ShapeError, match="counted from one"):
        pb.linalg.ldl_solve(ld, pivots * 0, a)
    with pytest.raises(ShapeError, match="4 rows for b of shape"):
        pb.linalg.ldl_solve(ld, pivots, np.ones(3))
