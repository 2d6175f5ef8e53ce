"""`pb.sparse.jacobian` and `hessian`: trees, and derivatives of their numbers, against dense Jacobians."""

import numpy as np
import pytest

import pullback as pb

close = np.testing.assert_allclose
rng = np.random.default_rng(0)
X = {"a": rng.normal(size=6), "b": rng.normal(size=(2, 3))}
P = {"k": 1.3, "m": rng.normal(size=2)}


def function(x, p):
    return {"r": pb.sin(x["a"][1:] * x["a"][:-1]) * p["k"], "q": (x["b"].T ** 3 + x["a"][:2] * p["m"],)}


def dense(x, p):
    vector, unravel = pb.ravel_pytree(x)
    return pb.jacobian(lambda v: pb.ravel_pytree(function(unravel(v), p))[0])(vector)


def agree(found, wanted):
    for one, other in zip(pb.tree.leaves(found), pb.tree.leaves(wanted), strict=True):
        close(one, other, atol=1e-12)


J = pb.sparse.jacobian(function)
W = rng.normal(size=(11, 12))


def of_sparse(x, p):
    return np.tanh(J(x, p) * W).sum()


def of_dense(x, p):
    return pb.sum(pb.tanh(dense(x, p) * W))


def test_trees():
    found = J(X, P)
    assert found.nnz == 22
    close(found.todense(), dense(X, P))


def test_derivatives_of_the_numbers():
    wanted = pb.grad(of_dense, (0, 1))(X, P)
    agree(pb.grad(of_sparse, (0, 1))(X, P), wanted)
    agree(pb.jit(pb.grad(of_sparse, (0, 1)))(X, P), wanted)
    close(pb.jvp(of_sparse, (X, P), (X, P))[1], pb.jvp(of_dense, (X, P), (X, P))[1])
    tensors = pb.tree.map(lambda v: pb.tensor(v, requires_grad=True), P)
    of_sparse(X, tensors).backward()
    agree(pb.tree.map(lambda t: t.grad.numpy(), tensors), wanted[1])
    many = pb.vmap(lambda k: J(X, {**P, "k": k}))(np.array([1.0, 2.0]))
    close(many.data[1], J(X, {**P, "k": 2.0}).data)


def test_what_the_function_closes_over_is_differentiated():
    def squares(k):
        return (pb.sparse.jacobian(lambda y: pb.sin(y[1:] * y[:-1]) * k)(X["a"]) ** 2).sum()

    close(pb.grad(squares)(1.7), 2 * squares(1.7) / 1.7)


def arrow(y):
    return pb.concat([pb.reshape(pb.sum(y**2), (1,)), y[1:] * y[0]])


@pytest.mark.parametrize("coloring", ["auto", "row", "column", "bidirectional"])
def test_colorings(coloring):
    y = rng.normal(size=7)
    found = pb.sparse.jacobian(arrow, coloring=coloring)
    close(found(y).todense(), pb.jacobian(arrow)(y))
    slope = pb.grad(lambda y: pb.sum(pb.jacobian(arrow)(y) ** 3))(y)
    close(pb.grad(lambda y: (found(y) ** 3).sum())(y), slope, atol=1e-12)


def energy(x, s=1.0):
    return pb.sum(100 * (x["v"][1:] - s * x["v"][:-1] ** 2) ** 2 + (1 - x["v"][:-1]) ** 2)


def test_hessian():
    H, y = pb.sparse.hessian(energy), rng.normal(size=7)
    whole = pb.hessian(lambda y, s: energy({"v": y}, s))
    close(H({"v": y}, 1.3).todense(), whole(y, 1.3))
    assert H({"v": y}).nnz == 19
    wanted = pb.grad(lambda y, s: pb.sum(whole(y, s) ** 2), (0, 1))(y, 1.3)
    agree(pb.grad(lambda y, s: (H({"v": y}, s) ** 2).sum(), (0, 1))(y, 1.3), wanted)


def test_newton_steps_are_differentiated():
    H = pb.sparse.hessian(lambda x, p: pb.sum(x**4 / 4 + (x[1:] - x[:-1]).sum() ** 2 + x**2 / 2 - p * x))
    slope = pb.grad(lambda x, p: pb.sum(x**4 / 4 + (x[1:] - x[:-1]).sum() ** 2 + x**2 / 2 - p * x))

    def minimizer(p):
        x = pb.zeros_like(p)
        for _ in range(8):
            x = x - pb.sparse.solve(H(x, p), slope(x, p))
        return x

    p = np.array([1.0, 2.0, -1.0, 0.5])
    close(slope(minimizer(p), p), np.zeros(4), atol=1e-12)
    # by the implicit function theorem the derivative of the minimizer is the inverse Hessian
    close(pb.jacobian(minimizer)(p), np.linalg.inv(H(minimizer(p), p).todense()), rtol=1e-8, atol=1e-10)


def turning(z):
    return z[1:] * 2.0 if z[0] > 0 else z[:-1] * z[1:]


def test_another_path_is_planned_anew():
    found = pb.sparse.jacobian(turning)
    for z in (np.array([1.0, 2.0, 3.0]), np.array([-1.0, 2.0, 3.0]), np.array([1.0, 2.0, 3.0])):
        close(found(z).todense(), pb.jacobian(turning)(z))


def test_another_path_where_numbers_are_hidden_is_nan():
    here, there = np.array([1.0, 2.0, 3.0]), np.array([-1.0, 2.0, 3.0])
    found, unchecked = pb.sparse.jacobian(turning), pb.sparse.jacobian(turning, check=False)
    found(here), unchecked(here)
    for f in (lambda z: found(z).sum(), pb.grad(lambda z: (found(z) ** 2).sum())):
        close(pb.jit(f)(here), f(here))
        assert np.isnan(pb.jit(f)(there)).any()
    assert np.isfinite(pb.jit(lambda z: unchecked(z).sum())(there))
    # one row of a batch does not spoil the others; in float32 rounding is no other path
    second = pb.sparse.hessian(lambda z, p: pb.sum(pb.where(p > 0, z[1:] * z[:-1], z[1:] ** 3)), pattern=np.eye(3))
    batch = pb.vmap(lambda p: second(here, p).sum())(np.array([1.0, -1.0]))
    assert np.isnan(batch).tolist() == [True, False]
    many = np.linspace(0.0, 1.0, 200, dtype=np.float32)
    smooth = pb.sparse.jacobian(lambda z: pb.sin(z[1:]) * pb.exp(z[:-1]))
    wanted = smooth(many).data
    close(pb.jit(lambda z: smooth(z).data)(many), wanted, rtol=1e-5)


def test_zeros_of_further_arguments_are_no_zeros_of_the_pattern():
    found = pb.sparse.jacobian(lambda z, M: M @ z)
    assert found(np.ones(3), np.eye(3)).nnz == 9
    close(pb.jit(lambda M: found(np.ones(3), M).todense())(np.ones((3, 3))), np.ones((3, 3)))


def test_a_given_pattern_serves_where_numbers_are_hidden():
    y = rng.normal(size=7)
    wanted = pb.jacobian(arrow)(y)
    for pattern in (wanted != 0, pb.sparse.from_dense(wanted), pb.sparsity(arrow, y)):
        close(pb.jit(lambda z, p=pattern: pb.sparse.jacobian(arrow, pattern=p)(z).todense())(y), wanted)
    close(pb.sparse.jacobian(pb.sin, pattern="diagonal")(y).data, np.cos(y))


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda y: pb.jit(lambda z: pb.sparse.jacobian(arrow)(z).data)(y), "ArgumentError", "hidden"),
        (lambda y: pb.sparse.jacobian(arrow, pattern="diagonal")(y), "ArgumentError", "outside"),
        (lambda y: pb.sparse.jacobian(arrow, pattern=np.eye(3))(y), "ArgumentError", "pattern"),
        (lambda y: pb.sparse.jacobian(arrow)(np.arange(3)), "DtypeError", "real"),
        (lambda y: pb.sparse.hessian(arrow)(y), "ShapeError", "one number"),
        (lambda y: pb.sparse.jacobian(3), "ArgumentTypeError", "function"),
    ],
)
def test_refusals(call, error, words):
    with pytest.raises(getattr(pb.errors, error), match=words):
        call(rng.normal(size=7))


def test_small_and_empty():
    assert pb.sparse.jacobian(lambda z: z * 0 + np.ones(3))(np.ones(3)).nnz == 3
    assert pb.sparse.jacobian(lambda z: np.ones(3))(np.ones(3)).nnz == 0
    assert pb.sparse.jacobian(lambda z: z)(np.zeros(0)).shape == (0, 0)
    assert pb.sparse.jacobian(lambda z: {"a": z})(np.float64(2.0)).shape == (1, 1)
    assert pb.sparse.jacobian(lambda z: z**2)(np.ones(3, np.float32)).dtype == np.float32
