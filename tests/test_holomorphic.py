"""Complex derivatives of complex functions: against closed forms and differences in the plane."""

import numpy as np
import pytest

import pullback as pb
from pullback.errors import DtypeError

Z = np.array([0.5 + 1.0j, -0.3 - 0.2j, 1.2 - 0.7j])
A = np.array([[1.0 + 1j, 2.0, -1j], [0.5, 1j, 3.0]])
MODES = [lambda f: f, pb.jit]


def vector(z):
    return pb.exp(A @ z) * pb.sum(z * z)


def vector_jacobian(z):
    e = np.exp(A @ z)
    return (e * np.sum(z * z))[:, None] * A + e[:, None] * (2 * z)


@pytest.mark.parametrize("mode", MODES, ids=["eager", "jit"])
def test_gradients_are_complex_derivatives(mode):
    f = lambda z: pb.sum(pb.sin(z) * z**2)  # noqa: E731
    wanted = np.cos(Z) * Z**2 + 2 * Z * np.sin(Z)
    np.testing.assert_allclose(mode(pb.grad(f, holomorphic=True))(Z), wanted, rtol=1e-13)
    value, found = mode(pb.value_and_grad(f, holomorphic=True))(Z)
    np.testing.assert_allclose(value, np.sum(np.sin(Z) * Z**2), rtol=1e-13)
    np.testing.assert_allclose(found, wanted, rtol=1e-13)
    low = pb.grad(f, holomorphic=True)(Z.astype(np.complex64))
    assert low.dtype == np.complex64
    np.testing.assert_allclose(low, wanted, rtol=1e-5)


@pytest.mark.parametrize("mode", MODES, ids=["eager", "jit"])
@pytest.mark.parametrize("derivative", [pb.jacobian, pb.jacfwd, pb.jacrev])
def test_jacobians(derivative, mode):
    np.testing.assert_allclose(mode(derivative(vector, holomorphic=True))(Z), vector_jacobian(Z), rtol=1e-12)
    one = mode(derivative(lambda z: z**3, holomorphic=True))(1.0 + 1.0j)
    np.testing.assert_allclose(one, 3 * (1 + 1j) ** 2, rtol=1e-14)


@pytest.mark.parametrize("order", ["forward-over-reverse", "forward-over-forward", "reverse-over-reverse", "auto"])
def test_hessians(order):
    cubic = lambda z: z[0] ** 2 * z[1] * pb.exp(z[2])  # noqa: E731
    a, b, c = Z
    e = np.exp(c)
    wanted = e * np.array([[2 * b, 2 * a, 2 * a * b], [2 * a, 0, a * a], [2 * a * b, a * a, a * a * b]])
    np.testing.assert_allclose(pb.hessian(cubic, mode=order, holomorphic=True)(Z), wanted, rtol=1e-12, atol=1e-12)


def test_compositions_trees_and_aux():
    third = pb.grad(pb.grad(pb.grad(lambda z: z**4, holomorphic=True), holomorphic=True), holomorphic=True)
    np.testing.assert_allclose(third(0.5 + 1j), 24 * (0.5 + 1j), rtol=1e-13)
    rows = np.stack([Z, 2 * Z])
    found = pb.vmap(pb.jacobian(vector, holomorphic=True))(rows)
    np.testing.assert_allclose(found, np.stack([vector_jacobian(z) for z in rows]), rtol=1e-12)
    tree, aux = pb.grad(lambda p: (p["a"] * p["b"] ** 2, "seen"), has_aux=True, holomorphic=True)(
        {"a": 1j, "b": 2 + 1j}
    )
    assert aux == "seen"
    np.testing.assert_allclose([tree["a"], tree["b"]], [(2 + 1j) ** 2, 2j * (2 + 1j)], rtol=1e-14)
    both = pb.grad(lambda a, b: a * b, (0, 1), holomorphic=True)(1 + 1j, 2 - 1j)
    np.testing.assert_allclose(both, [2 - 1j, 1 + 1j])
    t = pb.tensor(Z, requires_grad=True)
    size = pb.sum(pb.abs(pb.grad(lambda z: pb.sum(z**3), holomorphic=True)(t)) ** 2)
    size.backward()
    h, wanted = 1e-6, []
    norm = lambda z: np.sum(np.abs(3 * z * z) ** 2)  # noqa: E731
    for i in range(3):
        e = np.eye(3)[i] * h
        wanted.append((norm(Z + e) - norm(Z - e)) / (2 * h) + 1j * (norm(Z + 1j * e) - norm(Z - 1j * e)) / (2 * h))
    np.testing.assert_allclose(t.grad.numpy(), wanted, rtol=1e-6)


@pytest.mark.parametrize(
    "f", [pb.conj, lambda z: z * pb.abs(z), lambda z: pb.real(z) + 0j * z, lambda z: pb.conj(z) * z]
)
def test_what_is_not_holomorphic_is_refused(f):
    for derivative in (pb.jacobian, pb.jacfwd, pb.jacrev):
        with pytest.raises(DtypeError, match="not holomorphic"):
            derivative(f, holomorphic=True)(Z)
    for derivative in (pb.grad, pb.value_and_grad, pb.hessian):
        with pytest.raises(DtypeError, match="not holomorphic"):
            derivative(lambda z: pb.sum(f(z)), holomorphic=True)(Z)
    with pytest.raises(DtypeError, match="not holomorphic"):
        pb.vmap(pb.grad(f, holomorphic=True))(Z)


def test_a_conjugate_beside_a_large_result_is_refused():
    """What is wrong in one element is no rounding of the largest one."""
    with pytest.raises(DtypeError, match="not holomorphic"):
        pb.jacobian(lambda z: pb.stack([1e9 * z[0], pb.conj(z[1])]), holomorphic=True)(Z)
    found = pb.jacobian(lambda z: pb.stack([1e9 * z[0], z[1], 1e-9 * (z[2] + 1e6) ** 2]), holomorphic=True)(Z)
    np.testing.assert_allclose(np.diag(found), [1e9, 1, 2e-9 * (Z[2] + 1e6)], rtol=1e-13)


def test_real_arguments_and_results_are_refused():
    for derivative in (pb.grad, pb.jacobian, pb.jacfwd, pb.jacrev, pb.hessian):
        with pytest.raises(DtypeError, match="wants complex arguments, got float64"):
            derivative(lambda x: pb.sum(x * x), holomorphic=True)(Z.real)
        with pytest.raises(DtypeError, match="wants a complex result"):
            derivative(lambda z: pb.sum(pb.abs(z)), holomorphic=True)(Z)
    with pytest.raises(DtypeError, match="holomorphic=True"):
        pb.grad(lambda z: pb.sum(z * z))(Z)
    with pytest.raises(DtypeError, match="holomorphic"):
        pb.jacobian(lambda z: z)(Z)


def test_f_runs_as_often_as_it_seems_to():
    """The check is an extra run, of which nothing is kept."""
    state = pb.tensor(0.0)

    def f(z):
        state.fill_(state + 1.0)
        return pb.sum(z * z) * pb.random.normal(dtype=np.float64)

    pb.random.seed(1)
    found = pb.grad(f, holomorphic=True)(Z)
    assert float(state) == 1.0
    pb.random.seed(1)
    np.testing.assert_allclose(found, 2 * Z * pb.random.normal(), rtol=1e-13)
