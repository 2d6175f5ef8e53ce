"""Products that are computed where and how they are used: transposed results, matrices of loops, the BLAS."""

import numpy as np
import pytest
from machines import cpu_with

import pullback as pb
from pullback.compile.cpu.runtime import blas
from pullback.program.transposes import transpose_products


def normal(*shape, dtype="float64", seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def ops_of(program):
    return [e.op.name for e in program.equations]


def close(found, wanted):
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-9)


def test_the_gradient_of_a_transposed_weight_is_one_product():
    x, w = normal(7, 5), normal(6, 5)
    gradient = pb.jit(pb.grad(lambda w: pb.sum((x @ w.T) ** 2)))
    assert "copy" not in gradient.lower(w).explain()
    close(gradient(w), 2 * (x @ w.T).T @ x)


def test_a_donated_transposed_weight_is_updated_inside_its_product():
    x, w = normal(7, 5), normal(6, 5)

    def step(w):
        return w - 0.1 * pb.grad(lambda w: pb.sum((x @ w.T) ** 2))(w)

    wanted = w - 0.2 * (x @ w.T).T @ x
    compiled = pb.jit(step, donate_argnums=0)
    assert "added to what is there" in compiled.lower(w).explain()
    close(compiled(w.copy()), wanted)


CASES = {
    "plain": (lambda x, y: (x @ y).T, (3, 4), (4, 5)),
    "of transposes": (lambda x, y: (x.T @ y.T).T, (4, 3), (5, 4)),
    "a square": (lambda x, y: (x @ y).T @ x, (4, 4), (4, 4)),
    "stacks": (lambda x, y: pb.matrix_transpose(x @ y), (2, 3, 4), (2, 4, 5)),
    "a stack and a matrix": (lambda x, y: pb.matrix_transpose(x @ y), (2, 3, 4), (4, 5)),
    "stacks that broadcast": (lambda x, y: pb.matrix_transpose(x @ y), (2, 1, 3, 4), (5, 4, 2)),
    "other axes": (lambda x, y: pb.permute_dims(x @ y, (1, 0, 2)), (2, 3, 4), (2, 4, 5)),
    "all axes": (lambda x, y: pb.permute_dims(x @ y), (2, 3, 4), (2, 4, 5)),
    "one row": (lambda x, y: (x @ y).T, (1, 4), (4, 5)),
    "one column": (lambda x, y: (x @ y).T, (3, 4), (4, 1)),
    "no depth": (lambda x, y: (x @ y).T, (3, 0), (0, 5)),
    "no rows": (lambda x, y: (x @ y).T, (0, 4), (4, 5)),
    "twice": (lambda x, y: ((x @ y).T * 2.0).T, (3, 4), (4, 5)),
    "used as it is too": (lambda x, y: ((x @ y).T, x @ y), (3, 4), (4, 5)),
    "transposed in two places": (lambda x, y: (pb.square((x @ y).T), (x @ y).T), (3, 4), (4, 5)),
}


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "complex128"])
@pytest.mark.parametrize("name", CASES)
def test_transposed_products(name, dtype):
    f, a, b = CASES[name]
    x, y = (3 * normal(*a, seed=1)).astype(dtype), (3 * normal(*b, seed=2)).astype(dtype)
    found, wanted = pb.jit(f)(x, y), f(x, y)
    for one, other in zip(*((v if isinstance(v, tuple) else (v,)) for v in (found, wanted)), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=1e-5 if dtype == "float32" else 1e-12)


def test_what_is_rewritten():
    x, y = normal(3, 4), normal(4, 5)
    once = pb.stage(lambda x, y: (x @ y).T)(x, y)
    assert ops_of(transpose_products(once)) == ["permute_dims", "permute_dims", "matmul"]
    # its factors are transposes already
    both = pb.stage(lambda x, y: (x.T @ y.T).T)(x.T, y.T)
    assert ops_of(transpose_products(both)) == ["permute_dims", "permute_dims", "matmul"]
    assert transpose_products(both).equations[-1].args == (both.inputs[1], both.inputs[0])
    for f in (lambda x, y: pb.sin(x @ y).T, lambda x, y: pb.permute_dims((x @ y)[None], (2, 0, 1))):
        program = pb.stage(f)(x, y)
        assert transpose_products(program) is program


def test_a_product_that_is_a_result_too_is_kept():
    def f(x, y):
        z = x @ y
        return z, z.T

    program = pb.stage(f)(normal(3, 4), normal(4, 5))
    assert transpose_products(program) is program


LOOPS = {
    "scan": lambda w, x: pb.scan(lambda h, a: (pb.tanh(h @ w.T + a), None), x[0], x)[0],
    "while": lambda w, x: pb.while_loop(lambda s: s[1] < 3, lambda s: (pb.tanh(s[0] @ w.T), s[1] + 1), (x[0], 0))[0],
    "fori": lambda w, x: pb.fori_loop(0, 3, lambda i, h: pb.tanh(h @ w.T), x[0]),
    "cond": lambda w, x: pb.cond(x[0, 0, 0] > 0, lambda h: h @ w.T, lambda h: pb.sin(h) @ w.T + w.T[0], x[0]),
    "elementwise too": lambda w, x: pb.scan(lambda h, a: (pb.tanh(h @ w.T + a * w.T[0]), pb.sum(w.T)), x[0], x)[0],
    "returned": lambda w, x: pb.scan(lambda h, a: (pb.tanh(h @ w.T), w.T), x[0], x)[1],
    "nested": lambda w, x: pb.scan(
        lambda h, a: (pb.fori_loop(0, 2, lambda i, g: pb.tanh(g @ w.T + a), h), None), x[0], x
    )[0],
    "a branch in a loop": lambda w, x: pb.scan(
        lambda h, a: (pb.cond(pb.sum(a) > 0, lambda g: g @ w.T, lambda g: g - w.T[1], h), None), x[0], x
    )[0],
    "both ways": lambda w, x: pb.scan(lambda h, a: (pb.tanh(h @ w.T @ w + a), None), x[0], x)[0],
    "no rounds": lambda w, x: pb.scan(lambda h, a: (pb.tanh(h @ w.T + a), None), x[0], x[:0])[0],
    "a stack": lambda w, x: pb.scan(
        lambda h, a: (pb.tanh(pb.stack([h, a]) @ pb.matrix_transpose(pb.stack([w, w])))[0], None), x[0], x
    )[0],
}


@pytest.mark.parametrize("name", LOOPS)
def test_matrices_that_loops_multiply_with(name, monkeypatch):
    cpu_with(monkeypatch, large_domain=1)
    w, x, f = normal(4, 4), normal(3, 2, 4, seed=1), LOOPS[name]
    wanted = f(w, x)
    close(pb.jit(f)(w, x), wanted)
    if name == "while":
        return  # its gradient wants a number of rounds
    gradient = pb.grad(lambda w, x: pb.sum(f(w, x) ** 2), (0, 1))
    for found, expected in zip(pb.jit(gradient)(w, x), gradient(w, x), strict=True):
        close(found, expected)


def test_a_loop_that_only_multiplies_copies_no_matrix():
    w, x = normal(160, 128), normal(5, 8, 128, seed=1)

    def f(w, x):
        return pb.scan(lambda h, a: (h + pb.tanh(a @ w.T), None), np.zeros((8, 160)), x)[0]

    text = pb.jit(f).lower(w, x).explain()
    assert "128x160" not in "".join(line for line in text.splitlines() if "copy" in line)
    close(pb.jit(f)(w, x), f(w, x))


#: Rows, depth, columns; whether each matrix is transposed: on both sides of the limits between tiles and the BLAS.
SIZES = [
    (128, 1024, 512, True, False), (512, 1024, 128, True, False), (1024, 128, 512, False, False),
    (40, 300, 300, False, False), (40, 200, 200, False, False), (33, 20, 1024, False, False),
    (33, 12, 1024, False, False), (200, 600, 40, True, False), (64, 256, 1000, False, True),
]  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_products_by_tiles_and_by_the_blas(size, dtype):
    rows, depth, columns, left, right = size
    x, y = normal(rows, depth, dtype=dtype), normal(depth, columns, dtype=dtype, seed=1)
    a, b = (x.T.copy() if left else x), (y.T.copy() if right else y)
    found = pb.jit(lambda a, b: (a.T if left else a) @ (b.T if right else b))(a, b)
    np.testing.assert_allclose(found, x @ y, rtol=0, atol=(1e-4 if dtype == "float32" else 1e-12) * depth)


def test_the_blas_is_numpys_or_scipys(monkeypatch):
    found = blas.find_products()
    assert set(found.addresses) == set(blas.PRODUCTS)
    assert all(found.addresses.values())
    monkeypatch.setattr(blas, "find_in_numpy", lambda names: None)
    other = blas.find_products.__wrapped__()
    assert other.integer == np.int32
    assert all(other.addresses.values())
    assert blas.blas_thread_functions.__wrapped__() is not None or blas.blas_thread_functions() is None


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("shape", [(70, 300, 260), (16, 1025, 96), (257, 129, 513), (20, 2100, 40), (300, 20, 1100)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_products_that_tiles_take_from_a_blas_with_narrow_vectors(shape, dtype, threads, monkeypatch):
    """All orders of both matrices, and the product added to an array, whatever BLAS this machine has."""
    rows, depth, columns = shape
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(rows, depth)).astype(dtype), rng.normal(size=(depth, columns)).astype(dtype)
    c = rng.normal(size=(rows, columns)).astype(dtype)

    def products(a, b, at, bt, c):
        return a @ b, at.T @ b, a @ bt.T, at.T @ bt.T, c - 0.5 * (a @ b)

    given = a, b, np.ascontiguousarray(a.T), np.ascontiguousarray(b.T), c
    before = pb.get_num_threads()
    pb.set_num_threads(threads)
    try:
        for is_wider in (True, False):
            cpu_with(monkeypatch, is_wider_than_blas=is_wider)
            for found, wanted in zip(pb.jit(products)(*given), products(*given), strict=True):
                np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-4 if dtype == np.float32 else 1e-12)
    finally:
        pb.set_num_threads(before)
