"""Products of sparse matrices with a vector and with 16 columns, float64, and the gradient of the product's square in
numbers and vector: compiled and eager, against SciPy, torch.sparse and jax.experimental.sparse; then a solve by factors
with its gradient, against what SciPy takes for a factorization and two solves.

The product may take half as long again as SciPy's, which is C code, and its gradient no longer than either peer's.
"""

import numpy as np
import scipy.sparse as ss
from contest import OURS, Limit, check_agreement, gather, machine, race, report, start
from scipy.sparse.linalg import splu

import pullback as pb

EAGER = "pullback, eager"
SIZES = ((2_000, 10), (100_000, 10))
PEERS = (Limit("torch.sparse", 1.0), Limit("jax BCOO", 1.0))


def data(size, per_row, columns):
    rng = np.random.default_rng(0)
    matrix = ss.random_array((size, size), density=per_row / size, rng=rng, format="csr")
    return matrix, rng.normal(size=size if columns == 1 else (size, columns))


def square(A, x):
    return pb.sum((A @ x) ** 2)


def ours(matrix, x):
    A, product = pb.sparse.from_scipy(matrix), pb.jit(lambda A, x: A @ x)
    return lambda: [product(A, x)]


def ours_eager(matrix, x):
    A = pb.sparse.from_scipy(matrix)
    return lambda: [A @ x]


def our_gradient(matrix, x):
    A, slope = pb.sparse.from_scipy(matrix), pb.jit(pb.grad(square, (0, 1)))

    def step():
        of_matrix, of_vector = slope(A, x)
        return [of_matrix.data, of_vector]

    return step


def our_eager_gradient(matrix, x):
    pattern = pb.sparse.from_scipy(matrix).pattern
    data, vector = pb.tensor(matrix.data, requires_grad=True), pb.tensor(x, requires_grad=True)

    def step():
        data.grad = vector.grad = None
        square(pb.sparse.SparseArray(data, pattern), vector).backward()
        return [data.grad, vector.grad]

    return step


def scipy_product(matrix, x):
    return lambda: [matrix @ x]


def torch_product(matrix, x):
    import torch

    torch.set_num_threads(1)
    parts = (torch.tensor(part) for part in (matrix.indptr, matrix.indices, matrix.data))
    A, vector = torch.sparse_csr_tensor(*parts, matrix.shape), torch.tensor(x)
    return lambda: [A @ vector]


def torch_gradient(matrix, x):
    """In its format COO: of CSR the gradient is a dense matrix."""
    import torch

    torch.set_num_threads(1)
    places = torch.tensor(np.stack([matrix.tocoo().row, matrix.indices]))
    A = torch.sparse_coo_tensor(places, torch.tensor(matrix.data), matrix.shape).coalesce().requires_grad_()
    vector = torch.tensor(x if x.ndim == 2 else x[:, None]).requires_grad_()

    def step():
        A.grad = vector.grad = None
        (torch.sparse.mm(A, vector) ** 2).sum().backward()
        return [A.grad.coalesce().values(), vector.grad.reshape(x.shape)]

    return step


def jax_matrix(matrix):
    import jax
    from jax.experimental import sparse

    jax.config.update("jax_enable_x64", True)
    return jax, sparse.BCOO.from_scipy_sparse(matrix.tocoo())


def jax_product(matrix, x):
    jax, A = jax_matrix(matrix)
    product = jax.jit(lambda A, x: A @ x)
    return lambda: [product(A, x).block_until_ready()]


def jax_gradient(matrix, x):
    jax, A = jax_matrix(matrix)
    from jax.experimental import sparse

    def loss(data, x):
        return (((sparse.BCOO((data, A.indices), shape=A.shape)) @ x) ** 2).sum()

    slope = jax.jit(jax.grad(loss, (0, 1)))
    return lambda: [g.block_until_ready() for g in slope(A.data, x)]


def grid_system():
    """The five-point matrix of a grid of 60 x 60."""
    line = ss.diags_array([-1.0, 2.1, -1.0], offsets=[-1, 0, 1], shape=(60, 60))
    unit = ss.eye_array(60)
    matrix = (ss.kron(unit, line) + ss.kron(line, unit)).tocsr()
    return matrix, np.random.default_rng(0).normal(size=3600)


def our_solve(matrix, b):
    A = pb.sparse.from_scipy(matrix)
    slope = pb.grad(lambda A, b: pb.sum(pb.sparse.solve(A, b) ** 2), (0, 1))
    count = iter(range(1, 1 << 40))

    def step():
        of_matrix, of_vector = slope(A * (1.0 + next(count) * 1e-12), b)  # other numbers in every call
        return [of_matrix.data, of_vector]

    return step


def scipy_solves(matrix, b):
    by_columns = matrix.tocsc()
    rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))

    def step():
        factors = splu(by_columns)
        x = factors.solve(b)
        y = factors.solve(2 * x, "T")
        return [-y[rows] * x[matrix.indices], y]

    return step


def main():
    options = start(__doc__)
    print(machine())
    seconds = 2 if options.quick else 6
    for size, per_row in SIZES:
        for columns in (1, 16) if size <= 20_000 else (1,):
            given, what = data(size, per_row, columns), f"{size:,} rows of {per_row}, {columns} column(s)"
            steps = gather(
                {OURS: ours, EAGER: ours_eager, "SciPy": scipy_product, "torch.sparse": torch_product,
                 "jax BCOO": jax_product}, *given,
            )  # fmt: skip
            check_agreement(steps, 1e-10)
            report(f"product, {what}", race(steps, seconds), (Limit("SciPy", 1.5),), reference="SciPy")
            makers = {OURS: our_gradient, EAGER: our_eager_gradient, "jax BCOO": jax_gradient}
            if size <= 20_000:  # its gradient goes through a dense matrix
                makers["torch.sparse"] = torch_gradient
            steps = gather(makers, *given)
            check_agreement(steps, 1e-9)
            report(f"gradient, {what}", race(steps, seconds), PEERS)
    steps = gather({OURS: our_solve, "SciPy": scipy_solves}, *grid_system())
    check_agreement(steps, 1e-6)
    report("solve with its gradient, 3,600 unknowns", race(steps, seconds), (Limit("SciPy", 1.1),))


if __name__ == "__main__":
    main()
