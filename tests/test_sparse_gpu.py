"""Sparse arrays and row-sparse gradients on CuPy's arrays: a GPU's where there is one, else the stand-in's."""

import numpy as np
import scipy.sparse as ss
from gpu import cupy, installed_cupy  # noqa: F401 - a fixture

import pullback as pb

S = pb.sparse
rng = np.random.default_rng(0)
M = ss.random_array((30, 20), density=0.2, rng=rng, format="csr")
A, D = S.from_scipy(M), M.toarray()
X = rng.normal(size=(20, 3))
x = X[:, 0]


def close(found, wanted):
    np.testing.assert_allclose(pb.tensor(found).cpu().numpy(), wanted, rtol=1e-9, atol=1e-12)


def on_gpu(matrix):
    return matrix.with_data(cupy.asarray(matrix.data))


def loss(A, x):
    return pb.sum(pb.sin(A @ x) ** 2)


def test_operations():
    G, v = on_gpu(A), cupy.asarray(x)
    assert G.device == "cuda:0"
    for found, wanted in (
        (G @ v, D @ x), (G @ cupy.asarray(X), D @ X), (G.T @ (G @ v), D.T @ (D @ x)), (G.sum(0), D.sum(0)),
        (G[3:9].todense(), D[3:9]), ((G @ G.T).todense(), D @ D.T), ((G * 2.0 + G).todense(), 3 * D),
        (np.sin(G).todense(), np.sin(D)), (G.tobsr((2, 2)) @ v, D @ x), (G.tocsc().T.todense(), D.T),
    ):  # fmt: skip
        close(found, wanted)


def test_derivatives():
    wanted = pb.grad(loss, (0, 1))(A, x)
    found = pb.grad(loss, (0, 1))(on_gpu(A), cupy.asarray(x))
    close(found[0].data, wanted[0].data)
    close(found[1], wanted[1])
    jacobian = S.jacobian(lambda v: v[1:] * v[:-1])
    close(jacobian(cupy.asarray(x)).data, jacobian(x).data)


def test_solve():
    K = S.from_scipy((M.T @ M + 4 * ss.eye_array(20)).tocsr())
    close(S.solve(on_gpu(K), cupy.asarray(x)), np.linalg.solve(K.todense(), x))
    found = pb.grad(lambda K: pb.sum(S.solve(K, cupy.asarray(x)) ** 2))(on_gpu(K))
    close(found.data, pb.grad(lambda K: pb.sum(S.solve(K, x) ** 2))(K).data)


def test_rows_of_gradients():
    table = pb.tensor(cupy.zeros((50, 4)), requires_grad=True)
    optimizer = pb.optim.SparseAdam([table], lr=0.5)
    pb.sum(pb.nn.embedding(cupy.asarray([3, 7, 3]), table, sparse=True)).backward()
    assert table.grad.coalesce().rows.get().tolist() == [3, 7]
    optimizer.step()
    assert np.flatnonzero(table.detach().cpu().numpy()[:, 0]).tolist() == [3, 7]
