"""`pb.sparse` against SciPy and dense NumPy: values, derivatives, every transform, edges, and errors."""

import copy
import pickle
import threading

import numpy as np
import pytest
import scipy.sparse as ss
import scipy.sparse.linalg

import pullback as pb
from pullback.ops.linalg import sparse_factors

S = pb.sparse
FORMATS = ("coo", "csr", "csc", "bsr")
close = np.testing.assert_allclose


def random_matrix(m, n, form="csr", seed=0, density=0.4):
    found = ss.random_array((m, n), density=density, rng=np.random.default_rng(seed), format="csr")
    return found.tobsr((2, 2)) if form == "bsr" else found.asformat(form)


def both(m, n, form="csr", seed=0):
    """A sparse array and the dense matrix that it stands for."""
    given = random_matrix(m, n, form, seed)
    return S.from_scipy(given), given.toarray()


X = np.random.default_rng(1).normal(size=(4, 3))
x, y = X[:, 0], np.random.default_rng(2).normal(size=6)


@pytest.mark.parametrize("form", FORMATS)
def test_products(form):
    A, D = both(6, 4, form)
    B, E = both(4, 6, "csc", 3)
    close(A @ x, D @ x)
    close(A @ X, D @ X)
    close(y @ A, y @ D)
    close(X.T @ A.T, (D @ X).T)
    close((A @ B).todense(), D @ E)
    close((B.to_scipy() @ A).todense(), E @ D)
    close((A @ B.to_scipy()).todense(), D @ E)
    assert A.dot(pb.tensor(x)).dtype == np.float64


@pytest.mark.parametrize("form", FORMATS)
def test_formats(form):
    A, D = both(6, 4, form)
    for other in ("csr", "csc", "coo"):
        made = getattr(A, f"to{other}")()
        assert made.format == other
        close(made.todense(), D)
        close(made.to_scipy().toarray(), D)
        assert made.to_scipy().format == other
    close(A.tobsr((3, 2)).todense(), D)
    close(A.to_scipy().toarray(), D)
    close(A.T.todense(), D.T)
    close(A.T.to_scipy().toarray(), D.T)
    assert A.T.T.pattern == A.pattern


@pytest.mark.parametrize("form", FORMATS)
def test_arithmetic(form):
    A, D = both(6, 4, form)
    B, E = both(6, 4, "csc", 3)
    for found, wanted in (
        (A + B, D + E), (A - B, D - E), (A * B, D * E), (A + A, 2 * D), (2 * A, 2 * D), (A / 2, D / 2), (-A, -D),
        (A * E, D * E), (E * A, D * E), (A * x, D * x), (A * y[:, None], D * y[:, None]),
        (A / (1 + x**2), D / (1 + x**2)),
        (A**2, D**2), (abs(A), abs(D)), (np.sin(A), np.sin(D)), (A.map(pb.tanh), np.tanh(D)),
        (A.to_scipy() + 0 * B.to_scipy(), D), (sum([A, B]), D + E), (np.multiply(2.0, A), 2 * D),
    ):  # fmt: skip
        close(found.toarray() if ss.issparse(found) else found.todense(), wanted)
    for found, wanted in (
        (A + E, D + E), (E - A, E - D), (A.sum(), D.sum()), (A.sum(0), D.sum(0)), (A.sum(-1), D.sum(1)),
        (A.mean(1), D.mean(1)), (A.diagonal(), np.diagonal(D)), (A.trace(), np.trace(D)),
    ):  # fmt: skip
        close(found, wanted)


INDICES = [
    np.s_[2], np.s_[-1, :], np.s_[:, 1], np.s_[1:4], np.s_[:, ::-1], np.s_[1:5:2, 1:], np.s_[2, 3], np.s_[[0, 0, 3]],
    np.s_[:, [3, 1]], np.s_[[0, 5], [1, 2]], np.s_[np.array([True, False, True, False, False, True])], np.s_[..., 1],
    np.s_[1, [0, 2]], np.s_[[1, 3], 1:3], np.s_[0:0], np.s_[[], :], np.s_[[[0], [1]], [0, 2]], np.s_[...],
]  # fmt: skip


@pytest.mark.parametrize("form", FORMATS)
def test_slices(form):
    A, D = both(6, 4, form)
    for index in INDICES:
        found = A[index]
        if isinstance(found, S.SparseArray):
            assert found.format == ("csr" if form == "bsr" else form)
            found = found.todense()
        close(found, D[index])
        assert np.shape(found) == D[index].shape
    close([row.tolist() for row in A], D.tolist())
    weights = np.arange(8.0).reshape(2, 4)
    slope = pb.grad(lambda A: pb.sum(A[[0, 0]] @ weights.T) + A[1, 2])(A)
    dense = pb.grad(lambda D: pb.sum(D[np.array([0, 0])] @ weights.T) + D[1, 2])(D)
    close(slope.todense(), dense * (A.with_data(np.ones_like(A.data)).todense()))


def composed(A, x):
    """Most operations at once."""
    B = (A @ A.T + S.diagonal(x[0] * np.ones(6))) * 0.5
    return pb.sum(pb.sin(A @ x) * (x @ A.T)) + np.tanh(B[1:4]).sum() + pb.sum((A * x).sum(1) ** 2)


@pytest.mark.parametrize("form", FORMATS)
def test_derivatives_in_every_way(form):
    A, _ = both(6, 4, form)

    def of_numbers(data, x):
        return composed(A.with_data(data), x)

    assert pb.gradgradcheck(of_numbers, A.data, x)
    slope = pb.grad(composed, (0, 1))(A, x)
    assert slope[0].pattern is A.pattern
    compiled = pb.jit(pb.grad(composed, (0, 1)))(A, x)
    close(compiled[0].data, slope[0].data, rtol=1e-10)
    close(compiled[1], slope[1], rtol=1e-10)
    leaf = A.with_data(pb.tensor(A.data, requires_grad=True))
    pb.checkpoint(composed)(leaf, x).backward()
    close(leaf.grad.data, slope[0].data, rtol=1e-10)
    step = A.with_data(np.cos(A.data))
    value, pushed = pb.jvp(composed, (A, x), (step, x))
    close(pushed, np.sum(step.data * slope[0].data) + slope[1] @ x, rtol=1e-10)
    close(value, composed(A, x))
    hvp = pb.jvp(lambda A: pb.grad(composed)(A, x), (A,), (step,))[1]
    h = 1e-6
    moved = [pb.grad(composed)(A + step * (s * h), x).data for s in (1, -1)]
    close(hvp.data, (moved[0] - moved[1]) / (2 * h), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("form", FORMATS)
def test_vmap_over_numbers_and_vectors(form):
    A, D = both(6, 4, form)
    many = S.SparseArray(np.stack([A.data, 2 * A.data]), A.pattern)
    close(pb.vmap(lambda A, x: A @ x, (0, None))(many, x), np.stack([D @ x, 2 * D @ x]))
    close(pb.vmap(lambda A, x: A @ x)(many, X.T[:2]), np.stack([D @ X[:, 0], 2 * D @ X[:, 1]]))
    close(pb.vmap(lambda x: A @ x)(X.T), (D @ X).T)
    slopes = pb.jit(pb.vmap(pb.grad(composed), (0, None)))(many, x)
    close(slopes.data[1], pb.grad(composed)(A * 2.0, x).data, rtol=1e-10)
    with pytest.raises(pb.errors.ShapeError, match="batch of matrices"):
        many @ x


MAKERS = (
    ss.csr_array, ss.csr_matrix, ss.coo_array, ss.coo_matrix, ss.csc_matrix, ss.bsr_array, ss.dia_array, ss.lil_array,
    ss.dok_array,
)  # fmt: skip


@pytest.mark.parametrize("make", MAKERS, ids=lambda m: m.__name__)
def test_scipy_matrices_multiply_values(make):
    M = make(ss.diags_array([1.0, 2.0, -1.0], offsets=[-1, 0, 2], shape=(6, 4)))
    D = M.toarray()
    t = pb.tensor(x, requires_grad=True)
    (M @ t).backward(y)
    close(t.grad, D.T @ y)
    t = pb.tensor(y, requires_grad=True)
    (t @ M).backward(x)
    close(t.grad, D @ x)

    def square(v):
        return pb.sum((M @ v) ** 2)

    close(pb.grad(square)(x), 2 * D.T @ D @ x)
    close(pb.hessian(square)(x), 2 * D.T @ D)
    close(pb.jit(pb.grad(lambda v: pb.sum((v @ M) ** 2)))(y), 2 * D @ D.T @ y)
    close(pb.jvp(lambda v: M @ v, (x,), (y[:4],))[1], D @ y[:4])
    close(pb.vmap(lambda v: M @ v)(X.T), (D @ X).T)
    close(pb.vmap(lambda v: v @ M)(np.stack([y, 2 * y])), np.stack([y, 2 * y]) @ D)
    close((M @ pb.tensor(X)).numpy(), D @ X)
    close((pb.tensor(X.T) @ M.T).numpy(), (D @ X).T)
    for wrong in (lambda: M @ t, lambda: pb.tensor(x) @ M, lambda: M @ pb.tensor(2.0)):
        with pytest.raises(pb.errors.ShapeError):
            wrong()
    t = pb.tensor(x, requires_grad=True)
    M.dot(t).backward(y)
    close(t.grad, D.T @ y)
    if make.__name__.endswith("_matrix"):  # there * is the product of matrices
        close(pb.jit(lambda v: M * v)(x), D @ x)
        close(pb.jit(lambda v: v * M)(y), y @ D)
    else:
        close(pb.jit(lambda v: v * M)(x).todense(), D * x)
    close(pb.vmap(lambda v: v[0] * M @ v)(X.T), [v[0] * D @ v for v in X.T])
    for run in (lambda M, v: M + v, lambda M, v: v + M, lambda M, v: M - v, lambda M, v: v - M):
        close(pb.jit(lambda v, run=run: run(M, v))(x), run(D, x))
    for refused in (lambda t: M.multiply(t), lambda t: M / t):
        with pytest.raises(pb.errors.ConversionError, match=r"pb\.sparse\.from_scipy"):
            refused(pb.tensor(x, requires_grad=True))
    with pytest.raises(pb.errors.ConversionError, match=r"pb\.sparse\.solve"):
        scipy.sparse.linalg.spsolve(ss.csc_array(M), pb.tensor(y, requires_grad=True))


@pytest.mark.parametrize("size", [5, 300])
@pytest.mark.parametrize("form", ["csr", "csc", "coo", "bsr", "lil", "dok"])
def test_a_compiled_product_sees_changes_of_the_matrix(form, size):
    M = (random_matrix(size, size) + ss.eye_array(size)).tocsr().asformat(form)
    v = np.arange(1.0, size + 1)
    f = pb.jit(lambda v: M @ v)
    changes = {
        "csr": [lambda: M.indices.__setitem__(slice(None), (M.indices + 1) % size), lambda: M.sort_indices()],
        "coo": [lambda: M.row.__setitem__(slice(None), (M.row + 1) % size)],
        "lil": [lambda: M.__setitem__((0, 1), 17.0)],
        "dok": [lambda: M.__setitem__((0, 1), 17.0)],
    }.get(form, [])
    if form in ("csr", "csc", "coo", "bsr"):
        changes = [lambda: M.data.__setitem__(0, 3.0), *changes]
    close(f(v), M @ v)
    for change in changes:
        change()
        close(f(v), M @ v)


def test_duplicates_add_up_wherever_they_meet():
    A = S.coo(np.array([1.0, 2.0, 4.0, 8.0]), np.array([2, 0, 0, 2], np.uint8), [1, 0, 0, 0], (4, 3))
    D = A.todense()
    assert D.tolist() == [[6, 0, 0], [0, 0, 0], [8, 1, 0], [0, 0, 0]]
    for found, wanted in (
        (A.tocsr(), D), (A.tocsc(), D), (A.T.tocsr(), D.T), (A * A, D * D), (A**2, D**2), (np.sin(A), np.sin(D)),
        (A.sum_duplicates(), D), (A @ A.T, D @ D.T), (A + A, 2 * D), (A + A.tocsr(), 2 * D), (A[1:], D[1:]),
        (A.tobsr((2, 3)), D),
    ):  # fmt: skip
        close(found.todense(), wanted)
    close(A[0], D[0])
    close(A[0, 0], 6.0)
    slope = pb.grad(lambda A: (A**2).sum())(A)
    close(slope.data, 2 * np.array([1.0, 6.0, 6.0, 8.0]))


def test_what_is_not_linear_sees_one_number_a_place():
    halves = S.coo(np.array([0.5, 0.5, 3.0]), [0, 0, 1], [1, 1, 0], (2, 2))
    assert halves.astype(int).todense().tolist() == [[0, 1], [3, 0]]
    assert halves.astype(bool).astype(int).sum() == 2
    truths = S.coo(np.ones(2, bool), [0, 0], [1, 1], (2, 2))  # true and true are true, as in the dense matrix
    for found in (truths.sum(), truths.sum(1)[0], (truths @ np.ones(2))[0], (truths * 1.0).sum(), truths.mean(0)[1] * 2,
                  truths.astype(float).sum(), truths.conj().astype(int).sum()):  # fmt: skip
        assert found == 1


def test_sums_and_differences_of_integers_do_not_wrap():
    A = S.from_dense(np.array([[200, 0], [100, 3]], np.uint8))
    assert A.sum(0).tolist() == [300, 3]
    assert A.mean(1).tolist() == [100.0, 51.5]
    close(np.ones((2, 2)) - A, [[-199.0, 1.0], [-99.0, -2.0]])
    close(A.astype(float) - np.ones((2, 2), np.uint8), [[199.0, -1.0], [99.0, 2.0]])
    close((A.astype(float) - A).todense(), np.zeros((2, 2)))


def test_sums_keep_axes():
    A, D = both(6, 4)
    for axis in (None, 0, 1, -1, (0, 1)):
        close(A.sum(axis, keepdims=True), D.sum(axis, keepdims=True))
        close(A.mean(axis, keepdims=True), D.mean(axis, keepdims=True))
    close(pb.jit(lambda A: A / (1.0 + A.sum(1, keepdims=True)))(A).todense(), D / (1.0 + D.sum(1, keepdims=True)))


@pytest.mark.parametrize("shape", [(3, 4), (0, 3), (3, 0), (0, 0), (1, 1)])
def test_nothing_stored(shape):
    for A in (S.coo(np.zeros(0), [], [], shape), S.coo(np.zeros(0), [], [], shape).tocsr()):
        m, n = shape
        assert (A @ np.ones(n)).tolist() == [0.0] * m
        assert (np.ones(m) @ A).tolist() == [0.0] * n
        assert (A @ np.ones((n, 2))).shape == (m, 2)
        assert (A.tobsr((1, 1)) @ np.ones((n, 0))).shape == (m, 0)
        assert A.sum() == 0
        assert A.sum(1).shape == (m,)
        for other in (A @ A.T, A + A, A * np.ones(shape), A.T, A[:, :0], A.map(pb.sin)):
            assert not np.any(other.todense())
        close(pb.jit(pb.grad(lambda A, v: pb.sum(A @ v), 1))(A, np.ones(n)), np.zeros(n))
        assert pb.grad(lambda A, v: pb.sum(A @ v))(A, np.ones(n)).data.shape == (0,)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "complex64", "int32"])
def test_dtypes(dtype):
    A, D = both(6, 4)
    dtype = getattr(pb, dtype)
    B, v = A.astype(dtype), np.ones(4, dtype)
    for found in (B @ v, (B.T @ B).data, B.todense(), (B + B.T.T).data):
        assert found.dtype == dtype, found.dtype
    assert B.sum(0).dtype == B.sum().dtype == np.sum(np.ones(1, dtype)).dtype
    close((B @ v).astype(complex), D.astype(dtype).astype(complex).sum(1), rtol=2e-2)
    if dtype is not pb.int32:
        assert pb.grad(lambda B: pb.sum(pb.real(B @ v)))(B).dtype == dtype


@pytest.mark.parametrize("form", FORMATS)
def test_solve(form):
    M = (random_matrix(6, 6) + 4 * ss.eye_array(6)).tocsr()
    M = M.tobsr((2, 2)) if form == "bsr" else M.asformat(form)
    A, D, b = S.from_scipy(M), M.toarray(), np.stack([y, y**2, np.sin(y)], 1)
    close(S.solve(A, y), np.linalg.solve(D, y))
    close(S.solve(M, b), np.linalg.solve(D, b))
    close(S.solve(A.T, y), np.linalg.solve(D.T, y))

    def numbers(data, b):
        return S.solve(A.with_data(data), b)

    assert pb.gradgradcheck(numbers, A.data, y)
    slope = pb.grad(lambda A, b: pb.sum(pb.sin(S.solve(A, b))), (0, 1))
    dense = pb.grad(lambda D, b: pb.sum(pb.sin(pb.linalg.solve(D, b))), (0, 1))(D, b)
    for found in (slope(A, b), pb.jit(slope)(A, b)):
        places = A.with_data(np.ones_like(A.data)).todense()
        close(found[0].todense(), dense[0] * places, rtol=1e-8, atol=1e-12)
        close(found[1], dense[1], rtol=1e-8)
    for method, known in ((pb.implicit.GMRES(), {}), (pb.implicit.BiCGStab(), {"preconditioner": lambda v: v / 4})):

        def by_steps(data, b, method=method, known=known):
            return S.solve(A.with_data(data), b, method=method, tol=1e-13, **known)

        close(by_steps(A.data, b), np.linalg.solve(D, b))
        close(
            pb.grad(lambda d: pb.sum(by_steps(d, b) ** 2))(A.data),
            pb.grad(lambda d: pb.sum(numbers(d, b) ** 2))(A.data),
        )
    close(pb.linear_solve(A, y, tol=1e-13), np.linalg.solve(D, y))
    slopes = [pb.grad(lambda A, s=s: pb.sum(s(A, y) ** 2))(A).data for s in (pb.linear_solve, S.solve)]
    close(*slopes, rtol=1e-5)
    many = S.SparseArray(np.stack([A.data, 2 * A.data]), A.pattern)
    close(pb.vmap(S.solve)(many, np.stack([y, y])), np.stack([np.linalg.solve(D, y), np.linalg.solve(2 * D, y)]))
    close(pb.vmap(lambda b: S.solve(A, b))(b.T), np.linalg.solve(D, b).T)
    turned = A.astype(complex) * (1 + 0.3j)
    for solve in (S.solve, pb.linear_solve, lambda A, b: S.solve(A, b, method=pb.implicit.GMRES())):
        close(solve(turned, y), np.linalg.solve(turned.todense(), y))
    assert pb.gradcheck(lambda d, b: S.solve(turned.with_data(d), b), turned.data, y + 1j)
    assert S.solve(A.astype(pb.float32), y.astype(np.float32)).dtype == np.float32


def test_factors_serve_their_own_matrix_in_any_thread():
    n = 40
    L = random_matrix(n, n, density=0.1)
    A = S.from_scipy((L @ L.T + 2 * ss.eye_array(n)).tocsr())
    wrong = []

    def work(number):
        for i in range(8):
            scaled = A * (1.0 + number + i % 2)
            if not np.allclose(scaled @ S.solve(scaled, np.ones(n)), 1.0):
                wrong.append((number, i))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(5)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not wrong


@pytest.fixture
def factorizations(monkeypatch):
    """How each factorization since was asked to order the columns."""
    made, splu = [], scipy.sparse.linalg.splu

    def counted(*args, **settings):
        made.append(settings["permc_spec"])
        return splu(*args, **settings)

    monkeypatch.setattr(scipy.sparse.linalg, "splu", counted)
    return made


def test_a_backward_pass_solves_with_the_factors_of_the_solution(factorizations, monkeypatch):
    A = S.from_scipy((random_matrix(12, 12, seed=8) + 5 * ss.eye_array(12)).tocsr())
    batch = A.data * np.linspace(1.0, 2.0, 6)[:, None]

    def loss(data):
        return pb.sum(S.solve(A.with_data(data), np.ones(12)) ** 2)

    found = pb.vmap(pb.grad(loss))(batch)
    assert factorizations == ["COLAMD"] + 5 * ["NATURAL"]
    close(pb.jit(pb.vmap(pb.grad(loss)))(batch), found)
    pb.hvp(loss, (batch[3],), (batch[0],))
    assert len(factorizations) == 6
    # large ones are not all kept
    monkeypatch.setattr(sparse_factors, "_MAX_NUMBERS", 1)
    close(pb.vmap(pb.grad(loss))(batch), found)
    assert 12 < len(factorizations) < 20
    assert len(sparse_factors._store.known) == 2


def test_solve_refuses_what_has_no_solution():
    with pytest.raises(pb.errors.SingularError, match="NaN"):
        S.solve(S.diagonal(np.array([1.0, np.nan])), np.ones(2))
    with pytest.raises(pb.errors.SingularError, match="singular"):
        S.solve(S.coo(np.ones(2), [0, 0], [0, 1], (2, 2)), np.ones(2))
    with pytest.raises(pb.errors.ShapeError, match="square"):
        S.solve(S.coo(np.ones(2), [0, 0], [0, 1], (2, 3)), np.ones(2))
    with pytest.raises(pb.errors.ArgumentTypeError, match="linalg"):
        S.solve(np.eye(2), np.ones(2))


def test_a_sparse_array_is_a_tree(tmp_path):
    A, D = both(6, 4)
    assert pb.tree.leaves(A) == [A.data] or pb.tree.leaves(A)[0] is A.data
    pb.save(tmp_path / "a", {"A": A, "B": A.tobsr((2, 2))})
    loaded = pb.load(tmp_path / "a")
    for other in (pickle.loads(pickle.dumps(A)), copy.deepcopy(A), loaded["A"]):
        assert other.pattern == A.pattern
        assert hash(other.pattern) == hash(A.pattern)
        close(other.todense(), D)
    close(loaded["B"].todense(), D)
    rule = pb.optim.adam(0.1)

    def loss(A):
        return pb.sum((A @ x) ** 2)

    state = rule.init(A)

    @pb.jit
    def step(A, state):
        updates, state = rule.update(pb.grad(loss)(A), state, A)
        return pb.optim.apply_updates(A, updates), state

    before = loss(A)
    for _ in range(5):
        A, state = step(A, state)
    assert loss(A) < before
    parameters = {"A": A.with_data(pb.tensor(A.data, requires_grad=True))}
    optimizer = pb.optim.SGD(parameters, lr=0.01)
    loss(parameters["A"]).backward()
    optimizer.step()
    assert loss(parameters["A"]).item() < loss(A)
    f = pb.jit(lambda B: B @ x)
    close(f(A), A @ x)
    close(f(A.T.T.tocsc()), A @ x)


def test_from_dense_and_diagonal_carry_derivatives():
    D = np.array([[1.0, 0.0], [2.0, 3.0]])
    A = S.from_dense(D)
    for pattern in (A, A.pattern, D != 0, A.to_scipy(), A.tobsr((1, 2))):
        slope = pb.jit(pb.grad(lambda D, p=pattern: (S.from_dense(D, p) ** 2).sum()))(D)
        close(slope, 2 * D)
    close(pb.grad(lambda d: pb.sum(S.diagonal(d) @ np.array([3.0, 4.0])))(np.ones(2)), [3.0, 4.0])
    close(S.from_dense(pb.tensor(D)).todense().numpy(), D)


A0, D0 = both(4, 3)
WRONG = [
    (lambda: A0 @ np.ones(4), "ShapeError"), (lambda: np.ones(3) @ A0, "ShapeError"), (lambda: A0 @ A0, "ShapeError"),
    (lambda: A0 + A0.T, "ShapeError"), (lambda: A0 * np.ones((2, 4, 3)), "ShapeError"),
    (lambda: A0 * np.ones(4), "ShapeError"), (lambda: A0 + np.ones((3, 4)), "ShapeError"),
    (lambda: A0 + 1, "ArgumentError"), (lambda: np.cos(A0), "ArgumentError"), (lambda: A0**0, "ArgumentError"),
    (lambda: A0**-1, "ArgumentError"), (lambda: A0 / A0, "ArgumentError"), (lambda: pb.sin(A0), "ConversionError"),
    (lambda: np.asarray(A0), "ConversionError"), (lambda: np.sum(A0), "UnsupportedFunction"),
    (lambda: D0 / A0, "UnsupportedFunction"), (lambda: np.add.reduce(A0), "UnsupportedFunction"),
    (lambda: bool(A0), "ArgumentTypeError"), (lambda: len(A0), "ArgumentTypeError"), (lambda: A0[7], "IndexingError"),
    (lambda: A0[0, 0, 0], "IndexingError"), (lambda: A0[None], "IndexingError"), (lambda: A0[1.5], "IndexingError"),
    (lambda: A0[D0 > 0], "IndexingError"), (lambda: A0[[0, 1], [0, 1, 2]], "ShapeError"),
    (lambda: A0[np.ones(3, bool)], "IndexingError"), (lambda: setattr(A0, "data", 1), "ArgumentError"),
    (lambda: A0.with_data(np.ones(2)), "ShapeError"), (lambda: A0.tobsr((3, 3)), "ShapeError"),
    (lambda: A0.tocoo().indptr, "ArgumentError"), (lambda: A0.map(pb.sum), "ShapeError"),
    (lambda: A0.map(lambda x: x * np.ones(A0.nnz)), "ShapeError"), (lambda: A0 ** np.ones(A0.nnz), "ArgumentError"),
    (lambda: A0[:, [[0], [1]]], "IndexingError"), (lambda: A0.sum(()), "ArgumentError"),
    (lambda: S.coo(np.ones(2), [0, 9], [0, 0], (2, 2)), "IndexingError"),
    (lambda: S.coo(np.ones(2), [0, -1], [0, 0], (2, 2)), "IndexingError"),
    (lambda: S.coo(np.ones(2), [0.0, 1.0], [0, 0], (2, 2)), "IndexingError"),
    (lambda: S.coo(np.ones(3), [0, 1], [0, 0], (2, 2)), "ShapeError"),
    (lambda: S.coo(np.ones(1), [0], [0], 3), "ArgumentError"),
    (lambda: S.coo(np.array(["a"]), [0], [0], (1, 1)), "DtypeError"),
    (lambda: S.csr(np.ones(2), [0, 1], [0, 2], (2, 2)), "ShapeError"),
    (lambda: S.csr(np.ones(2), [0, 1], [0, 2, 1], (2, 2)), "ArgumentError"),
    (lambda: S.bsr(np.ones((1, 2, 2)), [0], [0, 1], (3, 3)), "ShapeError"),
    (lambda: ss.coo_array(np.ones(3)) @ pb.tensor(np.ones(3)), "ShapeError"),
    (lambda: S.from_scipy(D0), "ArgumentError"), (lambda: S.from_dense(np.ones(3)), "ShapeError"),
    (lambda: pb.jit(lambda i: A0[i])(1), "ConversionError"),
    (lambda: pb.jit(lambda r: S.coo(np.ones(2), r, [0, 0], (2, 2)).data)(np.array([0, 1])), "ConversionError"),
    (lambda: A0.with_data(pb.tensor(A0.data, requires_grad=True)).to_scipy(), "ConversionError"),
    (lambda: S.solve(S.diagonal(np.ones(2, np.clongdouble)), np.ones(2)), "DtypeError"),
    (lambda: A0.tocsr() == A0, "ArgumentTypeError"), (lambda: A0 != 0, "ArgumentTypeError"),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(WRONG)))
def test_wrong_calls_say_what_is_wrong(number):
    call, error = WRONG[number]
    with pytest.raises(getattr(pb.errors, error)) as caught:
        call()
    assert len(str(caught.value)) > 20


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (("csr", (2, 2), [0, 5], [0, 0]), "IndexingError"), (("csr", (2, 2), [1, 0], [0, 0]), "ArgumentError"),
        (("coo", (2, 2), [0, 1], [0]), "ShapeError"), (("coo", (2, -2), [], []), "ArgumentError"),
        (("coo", (2**40, 2**40), [], []), "ArgumentError"), (("bsr", (2, 3), [], [], (2, 2)), "ShapeError"),
        (("dia", (2, 2), [], []), "ArgumentError"), (("coo", (2, 2), [0.5], [0]), "IndexingError"),
    ],
)  # fmt: skip
def test_patterns_are_checked_whoever_makes_them(given, error):
    with pytest.raises(getattr(pb.errors, error)):
        S.Pattern(*given)
    with pytest.raises(pb.errors.ShapeError, match="entries"):
        S.SparseArray(np.ones(3), A0.pattern) @ np.ones(3)


def test_functions_of_dense_arrays_say_what_a_matrix_of_scipy_becomes():
    M = ss.eye_array(3).tocsr()
    for call in (lambda: pb.sum(M), lambda: pb.grad(lambda M: pb.sum(M @ np.ones(3)))(M), lambda: pb.jit(pb.abs)(M)):
        with pytest.raises(pb.errors.PullbackError, match=r"pb\.sparse\.from_scipy"):
            call()


def test_sparsity_goes_through():
    A, D = both(6, 4)
    assert ((pb.sparsity(lambda v: A @ v, x).toarray() != 0) == (D != 0)).all()
    close(pb.sparse_jacobian(lambda v: (A @ v) ** 2)(x).toarray(), 2 * (D @ x)[:, None] * D)
