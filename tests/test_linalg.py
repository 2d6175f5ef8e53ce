"""Linear algebra: NumPy's values, derivatives against differences and other formulas, and what happens in corners."""

import itertools
import math
from typing import Any

import mpmath
import numpy as np
import pytest
import scipy.linalg

import pullback as pb
from pullback import linalg
from pullback.errors import ArgumentError, GaugeError, PullbackError, ShapeError, SingularError
from pullback.transforms.stage import stage

INF = math.inf


def rng(seed=0):
    return np.random.default_rng(seed)


def regular(*shape, seed=0, kind=float):
    x = rng(seed).normal(size=shape) + 3 * np.eye(*shape[-2:])
    return x + 1j * rng(seed + 1).normal(size=shape) if kind is complex else x


def definite(*shape, seed=0, kind=float):
    x = regular(*shape, seed=seed, kind=kind)
    return x @ np.conj(np.swapaxes(x, -1, -2))


def spectrum(*values, seed=0):
    """A symmetric matrix with these eigenvalues."""
    q = np.linalg.qr(rng(seed).normal(size=(len(values),) * 2))[0]
    return q @ np.diag(values) @ q.T


def turned(*values, seed=0):
    """A matrix with these singular values."""
    left, right = (np.linalg.qr(rng(seed + k).normal(size=(len(values),) * 2))[0] for k in (0, 1))
    return left @ np.diag(values) @ right


def slopes(loss, x, step=1e-6):
    """The gradient by differences, along real and for complex x along imaginary directions."""
    found = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        for unit in (1.0, 1j) if x.dtype.kind == "c" else (1.0,):
            e = np.zeros_like(x)
            e[i] = unit * step
            found[i] += unit * float(np.asarray(loss(x + e) - loss(x - e))) / (2 * step)
    return found


def close(found, expected, tolerance=1e-7):
    np.testing.assert_allclose(np.asarray(found), expected, rtol=tolerance, atol=tolerance)


def weigh(out, seed=9):
    """A real number in which no element is special, of all results."""
    total = 0.0
    for x in out if isinstance(out, tuple) else (out,):
        total = total + pb.sum(pb.real(x) * rng(seed).normal(size=x.shape))
        if x.dtype.kind == "c":
            total = total + pb.sum(pb.imag(x) * rng(seed + 1).normal(size=x.shape))
    return total


# Values.

VALUES = {
    "solve vector": (lambda m, a, b: m.solve(a, b), regular(3, 3), rng().normal(size=3)),
    "solve stack": (lambda m, a, b: m.solve(a, b), regular(2, 3, 3), rng().normal(size=(3, 2))),
    "inv": (lambda m, a: m.inv(a), regular(2, 3, 3)),
    "pinv": (lambda m, a: m.pinv(a), rng().normal(size=(2, 4, 3))),
    "pinv rcond": (lambda m, a: m.pinv(a, 0.5), regular(3, 3)),
    "pinv hermitian": (lambda m, a: m.pinv(a, hermitian=True), definite(3, 3)),
    "lstsq tall": (lambda m, a, b: m.lstsq(a, b), rng().normal(size=(5, 3)), rng(1).normal(size=(5, 2))),
    "lstsq wide": (lambda m, a, b: m.lstsq(a, b), rng().normal(size=(2, 3)), rng(1).normal(size=2)),
    "lstsq deficient": (lambda m, a, b: m.lstsq(a, b), np.ones((4, 2)), rng(1).normal(size=4)),
    "lstsq rcond": (lambda m, a, b: m.lstsq(a, b, rcond=-1), rng().normal(size=(5, 3)), rng(1).normal(size=5)),
    "tensorsolve": (lambda m, a, b: m.tensorsolve(a, b), rng().normal(size=(2, 3, 6)), rng().normal(size=(2, 3))),
    "tensorsolve axes": (
        lambda m, a, b: m.tensorsolve(a, b, axes=(0, 2)), rng().normal(size=(3, 2, 2, 3)), rng().normal(size=(2, 3)),
    ),
    "tensorinv": (lambda m, a: m.tensorinv(a, ind=1), rng().normal(size=(6, 2, 3))),
    "cholesky": (lambda m, a: m.cholesky(a), definite(2, 3, 3)),
    "cholesky upper": (lambda m, a: m.cholesky(a, upper=True), definite(3, 3, kind=complex)),
    **{
        f"qr {mode} {shape}": (lambda m, a, mode=mode: m.qr(a, mode), rng().normal(size=shape))
        for mode in ("reduced", "complete", "r", "raw")
        for shape in ((4, 3), (3, 3), (2, 4), (2, 3, 2))
    },
    "qr raw complex": (lambda m, a: m.qr(a, "raw"), regular(3, 3, kind=complex)),
    "eigh": (lambda m, a: m.eigh(a), definite(2, 3, 3)),
    "eigh lower": (lambda m, a: m.eigh(a, "L"), regular(3, 3)),
    "eigvalsh upper": (lambda m, a: m.eigvalsh(a, UPLO="U"), regular(3, 3, kind=complex)),
    "eigvals": (lambda m, a: m.eigvals(a), np.array([[0.0, 1.0], [-1.0, 0.0]])),
    "svd": (lambda m, a: m.svd(a), rng().normal(size=(4, 3))),
    "svd thin": (lambda m, a: m.svd(a, full_matrices=False), rng().normal(size=(2, 3, 4))),
    "svd values": (lambda m, a: m.svd(a, compute_uv=False), rng().normal(size=(4, 3))),
    "svdvals": (lambda m, a: m.svdvals(a), rng().normal(size=(4, 3))),
    "det": (lambda m, a: m.det(a), regular(2, 4, 4, kind=complex)),
    "slogdet": (lambda m, a: m.slogdet(a), -regular(2, 3, 3)),
    "slogdet singular": (lambda m, a: m.slogdet(a), np.zeros((2, 2))),
    **{f"power {n}": (lambda m, a, n=n: m.matrix_power(a, n), regular(2, 3, 3)) for n in (-3, -1, 0, 1, 2, 5, 6)},
    "rank": (lambda m, a: m.matrix_rank(a), np.stack([np.ones((3, 3)), np.eye(3)])),
    "rank vector": (lambda m, a: m.matrix_rank(a), np.ones(3)),
    "rank tol": (lambda m, a: m.matrix_rank(a, tol=2.0), np.diag([1.0, 3.0])),
    "rank rtol": (lambda m, a: m.matrix_rank(a, rtol=0.5, hermitian=True), np.diag([1.0, 3.0])),
    **{
        f"cond {p}": (lambda m, a, p=p: m.cond(a, p), regular(2, 3, 3))
        for p in (None, 2, -2, 1, -1, INF, "fro", "nuc")
    },
    "trace": (lambda m, a: m.trace(a, offset=1), rng().normal(size=(2, 3, 4))),
    "diagonal": (lambda m, a: m.diagonal(a, offset=-1), rng().normal(size=(2, 3, 4))),
    "cross": (lambda m, a, b: m.cross(a, b, axis=0), rng().normal(size=(3, 2)), rng(1).normal(size=(3, 2))),
    "vecdot": (lambda m, a, b: m.vecdot(a, b), regular(3, 3, kind=complex), rng(1).normal(size=(3,))),
    "outer": (lambda m, a, b: m.outer(a, b), rng().normal(size=3), rng(1).normal(size=2)),
    "multi_dot": (
        lambda m, *xs: m.multi_dot(xs), rng().normal(size=4), regular(4, 3), regular(3, 5), rng().normal(size=5),
    ),
    **{
        f"norm {ord} {axis}": (lambda m, a, ord=ord, axis=axis: m.norm(a, ord, axis), rng().normal(size=(3, 4)))
        for ord in (None, 1, -1, 2, -2, INF, -INF)
        for axis in (None, 0, (1, 0))
    },
    **{f"norm {ord}": (lambda m, a, ord=ord: m.norm(a, ord, keepdims=True), regular(3, 4)) for ord in ("fro", "nuc")},
    **{
        f"vector norm {ord}": (lambda m, a, ord=ord: m.vector_norm(a, ord=ord, axis=(0, 2)), regular(2, 3, 4))
        for ord in (0, 0.5, 1, 2, 3, 3.5, -0.5, -2, INF, -INF)
    },
    **{
        f"matrix norm {ord}": (lambda m, a, ord=ord: m.matrix_norm(a, ord=ord, keepdims=True), regular(2, 3, 4))
        for ord in ("fro", "nuc", 1, -1, 2, -2, INF, -INF)
    },
}  # fmt: skip


@pytest.mark.parametrize("name", VALUES)
def test_values_are_numpys(name):
    function, *args = VALUES[name]
    found, expected = function(linalg, *args), function(np.linalg, *args)
    pairs = zip(found, expected, strict=True) if isinstance(expected, tuple) else [(found, expected)]
    for mine, theirs in pairs:
        assert mine.shape == np.shape(theirs)
        np.testing.assert_allclose(mine, theirs, rtol=1e-11, atol=1e-12)


def test_scipys_functions():
    a, b = regular(3, 3), rng().normal(size=(3, 2))
    for trans, lower, unit in itertools.product((0, "T", 2), (False, True), (False, True)):
        expected = scipy.linalg.solve_triangular(a, b, trans=trans, lower=lower, unit_diagonal=unit)
        close(linalg.triangular_solve(a, b, trans, lower, unit), expected, 1e-13)
    close(linalg.solve_triangular(a, b[:, 0]), scipy.linalg.solve_triangular(a, b[:, 0]), 1e-13)
    for shape in ((3, 3), (4, 2), (2, 4)):
        x = rng(3).normal(size=shape)
        for mine, theirs in zip(linalg.lu(x), scipy.linalg.lu(x), strict=True):
            close(mine, theirs, 1e-13)
        for mine, theirs in zip(linalg.lu(x, permute_l=True), scipy.linalg.lu(x, permute_l=True), strict=True):
            close(mine, theirs, 1e-13)
        p, lower, upper = linalg.lu(x, p_indices=True)
        close((lower @ upper)[p], x, 1e-13)
    h, tau = linalg.qr(a, "raw")
    close(linalg.householder_product(h.T, tau), np.linalg.qr(a).Q, 1e-12)


def test_matrix_functions_to_forty_digits():
    x = definite(3, 3) / 8
    with mpmath.workdps(40):
        for mine, theirs in ((linalg.expm, mpmath.expm), (linalg.logm, mpmath.logm), (linalg.sqrtm, mpmath.sqrtm)):
            expected = np.array(theirs(mpmath.matrix(x.tolist())).tolist(), complex).real
            close(mine(x), expected, 1e-12)


# Derivatives.

DERIVATIVES = {
    "solve": (linalg.solve, regular(3, 3), rng().normal(size=3)),
    "solve broadcast": (linalg.solve, regular(2, 2, 2), rng().normal(size=(2, 2))),
    "triangular": (lambda a, b: linalg.triangular_solve(a, b, "T", lower=True), regular(3, 3), rng().normal(size=3)),
    "lstsq tall": (lambda a, b: linalg.lstsq(a, b)[:2], rng().normal(size=(4, 2)), rng(1).normal(size=4)),
    "lstsq wide": (lambda a, b: linalg.lstsq(a, b)[0], rng().normal(size=(2, 3)), rng(1).normal(size=(2, 1))),
    "lstsq of rank one": (
        lambda u, v, b: linalg.lstsq(pb.outer(u, v), b)[0],
        rng().normal(size=4), rng(1).normal(size=2), rng(2).normal(size=4),
    ),
    "pinv": (linalg.pinv, rng().normal(size=(3, 2))),
    "pinv of rank two": (lambda u, v: linalg.pinv(u @ v, rtol=1e-8), regular(3, 2), regular(2, 3)),
    "tensorsolve": (linalg.tensorsolve, rng().normal(size=(2, 1, 2)), rng().normal(size=(2, 1))),
    "tensorinv": (lambda a: linalg.tensorinv(a, 1), rng().normal(size=(4, 2, 2))),
    "cholesky": (lambda a: linalg.cholesky(a, upper=True), definite(3, 3)),
    "qr wide": (lambda a: tuple(linalg.qr(a)), regular(2, 3)),
    "qr r": (lambda a: linalg.qr(a, "r"), regular(3, 2)),
    "qr raw": (lambda a: linalg.qr(a, "raw"), regular(3, 2)),
    "qr raw wide": (lambda a: linalg.qr(a, "raw")[0], regular(2, 3)),
    "lu tall": (lambda a: linalg.lu(a)[1:], regular(4, 2)),
    "lu wide permuted": (lambda a: linalg.lu(a, permute_l=True), regular(2, 3)[::-1].copy()),
    "householder": (linalg.householder_product, rng().normal(size=(4, 3)), rng(1).normal(size=2)),
    "eigh lower": (lambda a: tuple(linalg.eigh(a, "L")), regular(3, 3)),
    "eigvalsh": (linalg.eigvalsh, regular(3, 3)),
    "eigvals": (lambda a: pb.abs(linalg.eigvals(a)), rng(5).normal(size=(3, 3))),
    "eig": (lambda a: pb.abs(linalg.eig(a)[1]), rng(5).normal(size=(3, 3))),
    "svd full": (lambda a: tuple(linalg.svd(a)), regular(3, 2)),
    "svd hermitian": (lambda a: linalg.svd(a, hermitian=True)[1], regular(3, 3)),
    "power": (lambda a: linalg.matrix_power(a, -3), regular(2, 2)),
    "power zero": (lambda a: linalg.matrix_power(a, 0), regular(2, 2)),
    "slogdet": (lambda a: linalg.slogdet(a)[1], regular(3, 3)),
    **{f"cond {p}": (lambda a, p=p: linalg.cond(a, p), regular(3, 3)) for p in (None, -2, 1, -INF, "fro", "nuc")},
    **{f"norm {p}": (lambda a, p=p: linalg.norm(a, p), regular(3, 2)) for p in (None, "nuc", 1, -1, 2, -2, INF, -INF)},
    **{f"order {p}": (lambda a, p=p: linalg.vector_norm(a, ord=p), regular(2, 2)) for p in (0, 0.5, 2.5, 3, -1, -2.5)},
    "multi_dot": (lambda *xs: linalg.multi_dot(xs), rng().normal(size=2), regular(2, 3), regular(3, 2)),
    "cross": (linalg.cross, rng().normal(size=(2, 3)), rng(1).normal(size=3)),
    "expm": (linalg.expm, rng().normal(size=(2, 2))),
    "sqrtm": (linalg.sqrtm, regular(2, 2)),
}  # fmt: skip


@pytest.mark.parametrize("name", DERIVATIVES)
def test_derivatives_agree_with_differences(name):
    function, *args = DERIVATIVES[name]
    assert pb.gradcheck(lambda *xs: weigh(function(*xs)), *args)
    assert pb.gradgradcheck(lambda *xs: weigh(function(*xs)), *args)


COMPLEX = {
    "solve": lambda z: linalg.solve(z, pb.conj(z[0])),
    "triangular": lambda z: linalg.triangular_solve(z, z[1], 2, unit_diagonal=True),
    "inv": linalg.inv,
    "pinv": lambda z: linalg.pinv(z[:, :2]),
    "cholesky": lambda z: linalg.cholesky(z @ pb.conj(z.mT)),
    "qr": lambda z: tuple(linalg.qr(z)),
    "qr tall": lambda z: tuple(linalg.qr(z[:, :2])),
    "qr wide": lambda z: tuple(linalg.qr(z[:2])),
    "qr raw": lambda z: linalg.qr(z, "raw"),
    "lu": lambda z: linalg.lu(z)[1:],
    "eigh": lambda z: (lambda w, v: (w, pb.abs(v), (v * pb.exp(w / 9)) @ pb.conj(v.mT)))(*linalg.eigh(z)),
    "eig": lambda z: (lambda w, v: (w, pb.abs(v), (v * w) @ linalg.inv(v)))(*linalg.eig(z)),
    "svd": lambda z: (lambda u, s, vh: (pb.abs(u), s, u @ vh, pb.abs(vh)))(*linalg.svd(z, full_matrices=False)),
    "svd tall": lambda z: (lambda u, s, vh: (pb.abs(u), s, u[:, :2] @ vh))(*linalg.svd(z[:, :2])),
    "det": linalg.det,
    "slogdet": lambda z: tuple(linalg.slogdet(z)),
    "power": lambda z: linalg.matrix_power(z, -2),
    "expm": lambda z: linalg.expm(z / 4),
    "logm": linalg.logm,
    "sqrtm": linalg.sqrtm,
    "householder": lambda z: linalg.householder_product(z, z[0, :2]),
    **{f"norm {p}": lambda z, p=p: linalg.norm(z, p) for p in (None, "nuc", 2, 1, -INF)},
    **{f"order {p}": lambda z, p=p: linalg.vector_norm(z, ord=p) for p in (3, 0.5, -1)},
}


@pytest.mark.parametrize("name", COMPLEX)
def test_complex_gradients_are_the_steepest_ascent(name):
    z = regular(3, 3, kind=complex, seed=2)
    f = COMPLEX[name]

    def real(x):
        return pb.tensor(x) if not isinstance(x, pb.Tensor) else x

    def loss(x):
        return weigh(f(real(x))).detach().numpy() if isinstance(x, np.ndarray) else weigh(f(x))

    found = pb.grad(loss)(pb.tensor(z)).numpy()
    close(found, slopes(loss, z), 2e-6)
    direction = regular(3, 3, kind=complex, seed=4)
    _, pushed = pb.jvp(lambda x: weigh(f(x)), (pb.tensor(z),), (pb.tensor(direction),))
    close(np.vdot(found, direction).real, pushed.numpy(), 1e-9)


# Equal and vanishing eigenvalues and singular values.

REPEATED = spectrum(1.0, 1.0, 2.0, 3.0)
WEIGHTS = rng(7).normal(size=(4, 4))


def space(a):
    """A loss of the space that the equal eigenvalues have, by way of `eigh`."""
    v = linalg.eigh(a).eigenvectors[:, :2]
    return pb.sum(pb.matmul(v, pb.matrix_transpose(v)) * WEIGHTS)


@pytest.mark.parametrize(
    "loss",
    [
        lambda a: pb.sum(linalg.eigvalsh(a)),
        lambda a: pb.sum(pb.sin(linalg.eigvalsh(a))),
        lambda a: pb.sum(pb.exp(linalg.eigh(a).eigenvalues)),
        space,
        lambda a: space(a) ** 2,
        lambda a: linalg.eigh(a).eigenvectors[0, 2] ** 2 * linalg.eigh(a).eigenvalues[3],
    ],
)
def test_equal_eigenvalues_where_the_basis_does_not_matter(loss):
    close(pb.grad(loss)(REPEATED), slopes(loss, REPEATED), 1e-7)


def test_equal_eigenvalues_share_their_derivative():
    """As `max` does with ties; so forward and reverse mode agree."""
    smallest = pb.grad(lambda a: linalg.eigvalsh(a)[0])(REPEATED)
    v = np.linalg.eigh(REPEATED)[1][:, :2]
    close(smallest, v @ v.T / 2, 1e-12)
    direction = rng(3).normal(size=(4, 4))
    _, pushed = pb.jvp(lambda a: linalg.eigvalsh(a)[0], (REPEATED,), (direction,))
    close(pushed, np.sum(smallest * direction), 1e-12)


@pytest.mark.parametrize(
    "loss",
    [
        lambda a: linalg.eigh(a).eigenvectors[0, 0],
        lambda a: pb.sum(linalg.eigh(a).eigenvectors[:, 1] ** 2 * np.arange(4.0)),
        lambda a: weigh(tuple(linalg.eigh(a))),
        lambda a: (lambda w, v: pb.sum((v * pb.exp(w)) @ pb.matrix_transpose(v) * WEIGHTS))(*linalg.eigh(a)),
    ],
)
def test_equal_eigenvalues_where_the_basis_matters(loss):
    with pytest.raises(GaugeError, match="eigh"):
        pb.grad(loss)(REPEATED)


def test_a_function_of_a_matrix_rebuilt_from_equal_eigenvalues_is_refused_everywhere():
    """Not one element of the Jacobian is guessed: also where all cotangents look harmless."""

    def rebuilt(a):
        w, v = linalg.eigh(a)
        return pb.matmul(v * (w * w), pb.matrix_transpose(v))

    for i, j in itertools.product(range(2), repeat=2):
        with pytest.raises(GaugeError, match="combines"):
            pb.grad(lambda a, i=i, j=j: rebuilt(a)[i, j])(np.eye(2))
    with pytest.raises(GaugeError, match="split"):
        pb.jvp(rebuilt, (np.eye(2),), (np.array([[0.0, 1.0], [1.0, 0.0]]),))


def test_second_derivatives_at_equal_values_are_refused():
    for loss in (lambda a: pb.sum(linalg.eigvalsh(a) ** 2), lambda a: linalg.norm(a, "nuc")):
        for hessian in (pb.hessian(loss), lambda a, f=loss: pb.jacrev(pb.grad(f))(a)):
            with pytest.raises(GaugeError, match="second"):
                hessian(np.eye(3))


SINGULAR = np.linalg.qr(rng(3).normal(size=(4, 4)))[0][:, :2] @ np.diag([3.0, 2.0]) @ rng(4).normal(size=(2, 3))


@pytest.mark.parametrize(
    "loss",
    [
        lambda a: linalg.svdvals(a)[0],
        lambda a: pb.sum(linalg.svdvals(a) ** 2),  # smooth, but the factors say of it what they say of other losses
        lambda a: (lambda u, s, vh: pb.sum((u[:, :2] * s[:2]) @ vh[:2] * WEIGHTS[:4, :3]))(*linalg.svd(a)),
    ],
    ids=["the largest", "the sum of squares", "the leading part"],
)
def test_second_derivatives_of_leading_singular_values_of_a_singular_matrix_are_refused(loss):
    assert np.isfinite(pb.grad(loss)(SINGULAR)).all()
    along = rng(5).normal(size=SINGULAR.shape)
    asked = (
        lambda: pb.hessian(loss)(SINGULAR),
        lambda: pb.jacrev(pb.grad(loss))(SINGULAR),
        lambda: pb.hvp(loss, (SINGULAR,), (along,)),
        lambda: pb.jvp(lambda a: pb.jvp(loss, (a,), (along,))[1], (SINGULAR,), (along,)),
    )
    for ask in asked:
        with pytest.raises(
            GaugeError, match=r"(?s)a second derivative where .* vanish: .*custom_root|equal or zero values split"
        ):
            ask()


def test_leading_singular_vectors_by_their_equations_have_second_derivatives_at_a_singular_matrix():
    weights, along, h = rng(6).normal(size=SINGULAR.shape), rng(7).normal(size=SINGULAR.shape), 1e-4

    def first(a):
        u, s, vh = np.linalg.svd(a)
        return u[:, 0], vh[0], s[0]

    def equations(x, a):
        u, v, s = x
        return a @ v - s * u, pb.matrix_transpose(a) @ u - s * v, pb.sum(u * u) - 1.0

    def loss(a, factors):
        u, v, s = factors(a)
        return pb.sum(weights * (u[:, None] * v[None, :])) * s

    found = pb.hvp(lambda a: loss(a, pb.implicit.custom_root(equations)(first)), (SINGULAR,), (along,))
    there = [loss(SINGULAR + k * h * along, first) for k in (-1, 0, 1)]
    np.testing.assert_allclose(np.sum(found * along), (there[0] - 2 * there[1] + there[2]) / h**2, rtol=1e-5)


def test_unused_equal_eigenvalues_do_no_harm():
    """The usual case: the leading vectors of a matrix of low rank."""
    x = rng(1).normal(size=(2, 5))

    def loss(a):
        w, v = linalg.eigh(pb.matmul(pb.matrix_transpose(a), a))
        return pb.sum(pb.abs(v[:, -1]) * np.arange(5.0)) * w[-1]

    close(pb.grad(loss)(x), slopes(loss, x), 1e-6)


def test_the_phase_of_complex_vectors_is_free():
    z = definite(3, 3, kind=complex)
    with pytest.raises(GaugeError, match="phase"):
        pb.grad(lambda a: pb.real(linalg.eigh(a).eigenvectors[1, 0]))(z)
    with pytest.raises(GaugeError, match="phase"):
        pb.grad(lambda a: pb.imag(linalg.eig(a).eigenvectors[1, 0]))(regular(3, 3))
    with pytest.raises(GaugeError, match="phase"):
        pb.grad(lambda a: pb.real(linalg.svd(a).U[1, 0]))(z)


def test_the_check_holds_in_batches_and_programs():
    def loss(a):
        return linalg.eigh(a).eigenvectors[1, 0]

    with pytest.raises(GaugeError):
        pb.vmap(pb.grad(loss))(np.stack([np.diag([1.0, 2.0]), np.eye(2)]))
    program = stage(pb.grad(loss))(np.diag([1.0, 2.0]))
    assert np.isfinite(program.run(np.array([[1.0, 0.5], [0.5, 2.0]]))).all()
    with pytest.raises(GaugeError):
        program.run(np.eye(2))


def test_defective_matrices_are_refused():
    jordan = np.array([[1.0, 1.0], [0.0, 1.0]])
    with pytest.raises(SingularError):
        pb.grad(lambda a: pb.real(pb.sum(linalg.eigvals(a) ** 2)))(jordan)
    with pytest.raises(GaugeError):
        pb.grad(lambda a: (lambda w, v: pb.real(pb.sum(pb.abs(v)) + pb.sum(w)))(*linalg.eig(a)))(np.eye(2))
    close(pb.grad(lambda a: pb.real(pb.sum(linalg.eigvals(a) ** 2)))(2 * np.eye(2)), 4 * np.eye(2), 1e-12)


@pytest.mark.parametrize("values", [(2.0, 2.0, 2.0), (3.0, 1.0, 1.0), (2.0, 2.0, 1.0)])
def test_equal_singular_values_where_the_basis_does_not_matter(values):
    a = turned(*values)
    weights = rng(3).normal(size=(3, 3))
    losses = [
        lambda x: linalg.norm(x, "nuc"),
        lambda x: pb.sum(pb.log(linalg.svdvals(x))),
        lambda x: (lambda u, s, vh: pb.sum(pb.matmul(u, vh) * weights))(*linalg.svd(x)),
    ]
    for loss in losses:
        close(pb.grad(loss)(a), slopes(loss, a), 1e-7)


def test_vanishing_singular_values():
    a = turned(3.0, 1.0, 0.0, 0.0)
    u, _, vh = np.linalg.svd(a)
    close(pb.grad(lambda x: linalg.norm(x, "nuc"))(a), u[:, :2] @ vh[:2], 1e-12)
    close(pb.grad(lambda x: linalg.norm(x, -2))(a), np.zeros((4, 4)), 1e-12)
    with pytest.raises(GaugeError):
        pb.grad(lambda x: (lambda u, s, vh: pb.sum(pb.matmul(u, vh) * WEIGHTS))(*linalg.svd(x)))(a)
    with pytest.raises(GaugeError):
        pb.grad(lambda x: (lambda u, s, vh: pb.sum(pb.matmul(u * s, vh) * WEIGHTS))(*linalg.svd(x)))(a)

    def leading(x):
        u, s, vh = linalg.svd(x)
        return pb.sum(pb.matmul(u[:, :2] * s[:2], vh[:2]) * WEIGHTS)

    low = turned(3.0, 1.0, 0.2, 0.0)
    close(pb.grad(leading)(low), slopes(leading, low), 1e-6)


def test_columns_beyond_the_rank_are_free():
    a = regular(4, 2)
    for factor in (lambda x: linalg.qr(x, "complete")[0], lambda x: linalg.svd(x)[0]):

        def outside(x, factor=factor):
            q = factor(x)[:, 2:]
            return pb.sum(pb.matmul(q, pb.matrix_transpose(q)) * WEIGHTS)

        close(pb.grad(outside)(a), slopes(outside, a), 1e-7)
        with pytest.raises(GaugeError):
            pb.grad(lambda x, factor=factor: factor(x)[0, 3])(a)


def test_ties_of_matrix_norms_are_shared():
    close(pb.grad(lambda a: linalg.norm(a, 2))(np.eye(3)), np.eye(3) / 3, 1e-12)
    close(pb.grad(lambda a: linalg.norm(a, -2))(np.eye(3)), np.eye(3) / 3, 1e-12)
    close(pb.grad(lambda a: linalg.norm(a, 1))(np.eye(2)), np.eye(2) / 2, 1e-12)
    close(pb.grad(lambda a: linalg.norm(a, INF))(np.ones((2, 3))), np.full((2, 3), 0.5), 1e-12)
    direction = rng().normal(size=(3, 3))
    close(pb.jvp(lambda a: linalg.norm(a, 2), (np.eye(3),), (direction,))[1], np.trace(direction) / 3, 1e-12)


@pytest.mark.parametrize("ord", [None, 1, 2, 3, 0.5, 0, INF, -INF, -1, -2.5])
def test_vector_norms_at_zero(ord):
    """At a corner the derivative is zero, and of every order."""

    def f(x):
        return linalg.norm(x, ord)

    close(pb.grad(f)(np.zeros(3)), np.zeros(3), 0)
    close(pb.hessian(f)(np.zeros(3)), np.zeros((3, 3)), 0)
    some = pb.grad(f)(np.array([0.0, 3.0, 4.0]))
    assert np.isfinite(some).all()
    assert some[0] == 0


@pytest.mark.parametrize("ord", ["fro", "nuc", 1, -1, 2, -2, INF, -INF])
def test_matrix_norms_at_zero(ord):
    close(pb.grad(lambda x: linalg.matrix_norm(x, ord=ord))(np.zeros((2, 3))), np.zeros((2, 3)), 0)


# Singular matrices.


def by_permutations(a):
    """The determinant as a sum of products: its derivatives are right everywhere."""
    n = a.shape[-1]
    total = 0.0
    for order in itertools.permutations(range(n)):
        term = (-1.0) ** sum(x > y for x, y in itertools.combinations(order, 2))
        for i, j in enumerate(order):
            term = term * a[i, j]
        total = total + term
    return total


def pushed(f, v):
    return lambda x: pb.jvp(f, (x,), (v,))[1]


@pytest.mark.parametrize("rank", range(5))
@pytest.mark.parametrize("kind", [float, complex])
def test_determinant_of_any_rank_to_third_order(rank, kind):
    left, right = regular(4, rank, kind=kind), regular(rank, 4, seed=5, kind=kind)
    a = left @ right if rank else np.zeros((4, 4), kind)
    along = [regular(4, 4, seed=20 + k, kind=kind) for k in range(3)]

    def nested(f, order):
        for k in range(order):
            f = pushed(f, along[k])
        return f(a)

    for order in range(4):
        np.testing.assert_allclose(nested(linalg.det, order), nested(by_permutations, order), rtol=1e-9, atol=1e-9)

    def loss(f):
        return lambda x: pb.real(f(x)) if kind is complex else f(x)

    close(pb.grad(loss(linalg.det))(a), pb.grad(loss(by_permutations))(a), 1e-10)
    if kind is float:
        close(pb.hessian(linalg.det)(a), pb.hessian(by_permutations)(a), 1e-9)


def test_determinant_of_badly_scaled_matrices():
    """Regular to the eye, singular to working precision, and tiny: the cofactors stay exact."""
    for a in (np.diag([1e-9, 1.0, 2.0]), np.diag([1e-160, 1e-170]), np.array([[1.0, 1.0], [1.0, 1.0 + 1e-15]])):
        np.testing.assert_allclose(pb.grad(linalg.det)(a), pb.grad(by_permutations)(a), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize(
    "call",
    [
        lambda a: linalg.inv(a),
        lambda a: linalg.solve(a, np.ones(2)),
        lambda a: linalg.matrix_power(a, -1),
        lambda a: pb.grad(lambda x: linalg.slogdet(x)[1])(a),
        lambda a: linalg.cholesky(a - np.eye(2)),
        lambda a: pb.grad(lambda x: weigh(tuple(linalg.qr(x))))(a),
        lambda a: pb.grad(lambda x: weigh(linalg.lu(x)[1:]))(a),
        lambda a: linalg.triangular_solve(np.triu(a) * [[1, 1], [1, 0]], np.ones(2)),
    ],
)
def test_singular_matrices_raise_an_error_of_both_kinds(call):
    with pytest.raises(np.linalg.LinAlgError) as caught:
        call(np.ones((2, 2)))
    assert isinstance(caught.value, SingularError)
    assert isinstance(caught.value, PullbackError)


def test_hermitian_parts():
    """Of what is not Hermitian the Hermitian part counts, so gradients are Hermitian; a triangle if it is named."""
    a = definite(3, 3) + 0.1 * np.triu(np.ones((3, 3)), 1)
    sym = (a + a.T) / 2
    close(linalg.cholesky(a), np.linalg.cholesky(sym), 1e-13)
    close(linalg.eigvalsh(a), np.linalg.eigvalsh(sym), 1e-13)
    for f in (lambda x: weigh(linalg.cholesky(x)), lambda x: weigh(linalg.eigvalsh(x))):
        g = pb.grad(f)(a)
        close(g, g.T, 1e-12)
    upper = pb.grad(lambda x: pb.sum(linalg.eigvalsh(x, "U") * np.arange(3.0)))(a)
    assert not np.tril(upper, -1).any()


# Shapes.

SQUARE = (
    "inv", "cholesky", "eigh", "eigvalsh", "eig", "eigvals", "det", "slogdet", "expm", "logm", "sqrtm",
)  # fmt: skip
ANY = ("qr", "lu", "svd", "svdvals", "pinv", "matrix_norm")


@pytest.mark.parametrize("name", SQUARE)
def test_square_functions_of_other_shapes(name):
    for shape in ((2, 3), (3,), ()):
        with pytest.raises(ShapeError, match=r"square|matrices"):
            getattr(linalg, name)(np.ones(shape))


@pytest.mark.parametrize("name", [*SQUARE, *ANY])
@pytest.mark.parametrize("shape", [(0, 0), (0, 2, 2), (2, 0, 0)])
def test_empty_matrices(name, shape):
    def loss(x):
        out = getattr(linalg, name)(x)
        parts = [p for p in (out if isinstance(out, tuple) else (out,)) if p.dtype.kind in "fc"]
        return sum((pb.sum(pb.abs(p)) for p in parts), 0.0 * pb.sum(x))

    x = np.zeros(shape)
    assert pb.grad(loss)(x).shape == shape
    assert pb.jvp(loss, (x,), (x,))[1].shape == ()


@pytest.mark.parametrize("name", ANY)
@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (2, 3, 0)])
def test_empty_rectangles(name, shape):
    out = getattr(linalg, name)(np.zeros(shape))
    if name == "lu":
        m, n = shape[-2:]
        assert [x.shape[-2:] for x in out] == [(m, m), (m, 0), (0, n)]
        return
    expected = getattr(np.linalg, name)(np.zeros(shape))
    for mine, theirs in zip(out, expected, strict=True) if isinstance(out, tuple) else [(out, expected)]:
        assert mine.shape == np.shape(theirs)


def test_shapes_that_do_not_fit():
    for call in (
        lambda: linalg.solve(np.eye(2), np.ones(3)),
        lambda: linalg.solve(np.eye(2), np.ones((3, 2))),
        lambda: linalg.lstsq(np.ones((3, 2)), np.ones(2)),
        lambda: linalg.triangular_solve(np.eye(2), np.ones(3)),
        lambda: linalg.cross(np.ones(2), np.ones(2)),
        lambda: linalg.outer(np.ones((2, 2)), np.ones(2)),
        lambda: linalg.vecdot(np.ones(2), np.ones(3)),
        lambda: linalg.tensorsolve(np.ones((2, 3)), np.ones(2)),
        lambda: linalg.norm(np.ones((2, 2, 2)), 2),
        lambda: linalg.householder_product(np.ones((2, 3)), np.ones(2)),
        lambda: linalg.multi_dot([np.ones((2, 2)), np.ones(2), np.ones((2, 2))]),
        lambda: linalg.diagonal(np.ones(3)),
    ):
        with pytest.raises(ShapeError):
            call()


def test_arguments_that_make_no_sense():
    for call in (
        lambda: linalg.qr(np.eye(2), "full"),
        lambda: linalg.eigh(np.eye(2), "X"),
        lambda: linalg.norm(np.eye(2), 3),
        lambda: linalg.norm(np.ones(2), "nuc"),
        lambda: linalg.pinv(np.eye(2), rcond=0.1, rtol=0.1),
        lambda: linalg.matrix_rank(np.eye(2), tol=1, rtol=1),
        lambda: linalg.triangular_solve(np.eye(2), np.ones(2), trans="X"),
        lambda: linalg.sqrtm(-np.eye(2)),
        lambda: linalg.logm(-np.eye(2)),
    ):
        with pytest.raises(ArgumentError):
            call()
    close(linalg.sqrtm(-np.eye(2) + 0j), 1j * np.eye(2), 1e-12)


@pytest.mark.parametrize("function", [linalg.sqrtm, linalg.logm])
def test_matrix_functions_on_their_branch_cut_pull_back_what_they_push(function: Any) -> None:
    """Eigenvalues on the negative axis: f(x^H) is not f(x)^H there, so a rule at the adjoint takes the other branch."""
    rng = np.random.default_rng(3)
    turn, _ = np.linalg.qr(rng.normal(size=(3, 3)))
    x = turn @ np.diag([-2.0, -0.5, 1.5]) @ turn.T
    v, w, u = (rng.normal(size=(3, 3)) for _ in range(3))

    def f(x: Any) -> Any:
        return function(pb.astype(0.5 * (x + x.T), np.complex128))

    def pushed(x: Any) -> Any:
        return pb.jvp(f, (x,), (v,))[1]

    for g in (f, pushed):
        tangent = pb.jvp(g, (x,), (w,))[1]
        cotangent = pb.vjp(g, x)[1](u + 0j)[0]
        close(np.sum(cotangent * w), np.sum(u * tangent.real), 1e-8)


SINGLE = (
    "inv", "pinv", "cholesky", "qr", "lu", "eigh", "eigvalsh", "svd", "svdvals", "det", "slogdet", "expm", "logm",
    "sqrtm", "norm", "cond", "matrix_norm", "vector_norm",
)  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
@pytest.mark.parametrize("name", SINGLE)
def test_single_precision_stays_single(name, dtype):
    x = definite(3, 3).astype(dtype)
    t = pb.tensor(x, requires_grad=True)
    out = getattr(linalg, name)(t)
    parts = [p for p in (out if isinstance(out, tuple) else (out,)) if p.dtype.kind in "fc"]
    assert {p.dtype.itemsize * (1 if p.dtype.kind == "c" else 2) for p in parts} == {8}
    pb.sum(pb.abs(parts[-1])).backward()
    assert t.grad.dtype == x.dtype
    assert np.isfinite(t.grad.numpy()).all()


def test_integers_become_floats():
    whole = np.array([[2, 1], [1, 3]])
    assert linalg.det(whole).dtype == np.float64
    assert linalg.eigh(whole).eigenvectors.dtype == np.float64
    assert linalg.norm(whole).dtype == np.float64
    assert linalg.matrix_power(whole, 2).dtype == whole.dtype


def test_layouts_and_repeats():
    a = regular(3, 3)
    strided = np.asfortranarray(np.kron(a, np.ones((2, 2))))[::2, ::2]
    for f in (linalg.inv, linalg.det, linalg.svdvals, lambda x: linalg.solve(x, x @ x)):
        close(f(strided), f(a), 1e-13)
        close(pb.grad(lambda x, f=f: weigh(f(x)))(strided), pb.grad(lambda x, f=f: weigh(f(x)))(a), 1e-11)
    close(pb.grad(lambda x: weigh(linalg.solve(x, x)))(a), np.zeros((3, 3)), 1e-12)


def test_solve_asks_only_for_what_is_needed():
    a, b = regular(3, 3), rng().normal(size=(3, 2))
    t = pb.tensor(b, requires_grad=True)
    weigh(linalg.solve(a, t)).backward()
    close(t.grad.numpy(), pb.grad(lambda y: weigh(linalg.solve(a, y)))(b), 1e-14)


def test_results_have_names():
    a = definite(2, 2)
    assert linalg.eigh(a)._fields == ("eigenvalues", "eigenvectors")
    assert linalg.svd(a)._fields == ("U", "S", "Vh")
    assert linalg.qr(a)._fields == ("Q", "R")
    assert linalg.slogdet(a)._fields == ("sign", "logabsdet")
