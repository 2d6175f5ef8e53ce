"""Everything else inside jit: draws, transforms, plans, solves, checkpoints, custom rules; and what is refused."""

from collections import deque

import numpy as np
import pytest

import pullback as pb
from pullback.arrays.trees import flatten, unflatten
from pullback.errors import ArgumentError, ConversionError, GraphError, LeakError

pytest.importorskip("llvmlite")
pytestmark = pytest.mark.usefixtures("quick_code")
RNG = np.random.default_rng(0)
X = RNG.normal(size=(4, 5))
V = RNG.normal(size=5)
A = np.eye(4) * 4 + RNG.normal(size=(4, 4))
S = A @ A.T
KEY = pb.random.key(3)


def same(found, wanted, tolerance=1e-10):
    found, wanted = flatten(found)[0], flatten(wanted)[0]
    for a, b in zip(map(np.asarray, found), map(np.asarray, wanted), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


# Draws

R = pb.random
#: Draws that are whole numbers, or exact sums and products of the bits.
EXACT = {
    "bits of 32": lambda key: R.bits((5, 7), key=key),
    "bits of 64": lambda key: R.bits(9, width=64, key=key),
    "no bits": lambda key: R.bits((0, 3), key=key),
    "one word": lambda key: R.bits(key=key),
    "uniform": lambda key: R.uniform(-1.0, 2.0, size=(3, 33), key=key),
    "uniform of float32": lambda key: R.uniform(size=33, key=key, dtype="float32"),
    "integers": lambda key: R.integers(-3, 9, size=11, key=key),
    "integers between arrays": lambda key: R.integers(np.array([0, 5]), np.array([3, 90]), key=key),
    "bernoulli": lambda key: R.bernoulli(0.3, size=11, key=key),
    "normal": lambda key: R.normal(1.0, 2.0, size=17, key=key),
    "multivariate normal": lambda key: R.multivariate_normal(np.zeros(2), np.eye(2) + 0.1, size=4, key=key),
    "logistic": lambda key: R.logistic(size=5, key=key),
    "poisson": lambda key: R.poisson(3.0, size=11, key=key),
    "binomial": lambda key: R.binomial(9, 0.4, size=11, key=key),
    "categorical": lambda key: R.categorical(np.arange(5.0), size=11, key=key),
    "permutation": lambda key: R.permutation(10, key=key),
    "choice": lambda key: R.choice(np.arange(10.0), 4, key=key),
    "choice without putting back": lambda key: R.choice(10, 4, replace=False, key=key),
    "one-hot": lambda key: R.gumbel_softmax(np.arange(4.0), hard=True, key=key),
    "split": lambda key: R.split(key, 5),
    "fold": lambda key: R.fold_in(key, 7),
    "fold of many": lambda key: R.fold_in(key, np.array([1, -2, 2**40])),
    "of keys made inside": lambda key: pb.vmap(lambda k: R.uniform(size=3, key=k))(R.split(key, 4)),
}
#: Draws by elementary functions, which compiled code rounds in its own way.
ROUNDED = {
    "lognormal": lambda key, dtype: R.lognormal(0.0, 0.5, size=17, key=key, dtype=dtype),
    "laplace": lambda key, dtype: R.laplace(size=17, key=key, dtype=dtype),
    "gumbel": lambda key, dtype: R.gumbel(size=17, key=key, dtype=dtype),
    "cauchy": lambda key, dtype: R.cauchy(size=17, key=key, dtype=dtype),
    "exponential": lambda key, dtype: R.exponential(2.0, size=17, key=key, dtype=dtype),
    "weibull": lambda key, dtype: R.weibull(1.5, size=17, key=key, dtype=dtype),
    "pareto": lambda key, dtype: R.pareto(2.0, size=17, key=key, dtype=dtype),
    "truncated normal": lambda key, dtype: R.truncated_normal(-1.0, 2.0, size=17, key=key, dtype=dtype),
    "gamma": lambda key, dtype: R.gamma(0.7, size=17, key=key, dtype=dtype),
    "chi2": lambda key, dtype: R.chi2(3.0, size=17, key=key, dtype=dtype),
    "beta": lambda key, dtype: R.beta(2.0, 3.0, size=17, key=key, dtype=dtype),
    "student": lambda key, dtype: R.student_t(3.0, size=17, key=key, dtype=dtype),
    "dirichlet": lambda key, dtype: R.dirichlet([1.0, 2.0, 3.0], size=4, key=key, dtype=dtype),
}


@pytest.mark.parametrize("what", EXACT)
def test_draws_are_the_same_to_the_bit(what):
    f = pb.jit(EXACT[what])
    for key in (KEY, R.key(2**40 + 1)):
        found, wanted = np.asarray(f(key)), np.asarray(EXACT[what](key))
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
        assert found.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("what", ROUNDED)
def test_draws_by_elementary_functions_differ_in_their_last_digits(what, dtype):
    def f(key):
        return ROUNDED[what](key, np.dtype(dtype))

    same(pb.jit(f)(KEY), f(KEY), 1e-13 if dtype == "float64" else 3e-6)


def test_words_are_computed_natively():
    text = pb.jit(lambda key: R.uniform(size=100, key=R.fold_in(R.split(key)[0], 3))).lower(KEY).explain()
    assert "host" not in text


def test_a_draw_has_derivatives_in_compiled_form():
    def f(scale, key):
        return pb.sum(R.normal(1.0, scale, size=5, key=key) ** 2)

    same(pb.jit(pb.grad(f))(2.0, KEY), pb.grad(f)(2.0, KEY))
    same(pb.grad(pb.jit(f))(2.0, KEY), pb.grad(f)(2.0, KEY))


def test_a_draw_without_a_key_is_refused():
    before = R.state()
    with pytest.raises(ArgumentError, match=r"test_jit_parts.py(.|\n)*Pass a key"):
        pb.jit(lambda x: x + R.normal(size=5))(V)
    assert R.state() == before


# Transforms


def f(x):
    return pb.sum(pb.sin(x) * pb.exp(0.1 * x)) + pb.prod(x)


@pb.custom_op
def squared(x):
    return np.multiply(x, x)


squared.def_spec(lambda x: x)
squared.def_vjp(lambda bar, x: bar * 2.0 * x)


def chained(x):
    return pb.sum((x[1:] - x[:-1] ** 2) ** 2)


def by_backward(x):
    t = pb.tensor(x, requires_grad=True)
    f(t).backward()
    return t.grad


def by_tape(x):
    with pb.GradientTape() as tape:
        t = tape.variable(x)
        y = f(t)
    return tape.gradient(y, t)


PARTS = {
    "jet": (lambda x, d: pb.jet(f, (x,), ([d, None, None],)), V, np.cos(V)),
    "hvp": (lambda x, d: pb.hvp(f, (x,), (d,)), V, np.cos(V)),
    "jvp of grad": (lambda x, d: pb.jvp(pb.grad(f), (x,), (d,)), V, np.cos(V)),
    "grad of jvp": (lambda x, d: pb.grad(lambda y: pb.jvp(f, (y,), (d,))[1])(x), V, np.cos(V)),
    "hessian": (pb.hessian(f), V),
    "jacobian": (pb.jacobian(lambda x: pb.tanh(X @ x)), V),
    "jacfwd": (pb.jacfwd(lambda x: pb.tanh(X @ x)), V),
    "laplacian": (pb.laplacian(f), V),
    "linearize": (lambda x: pb.linearize(f, x)[1](pb.cos(x)), V),
    "vmap of grad": (pb.vmap(pb.grad(f)), X),
    "vmap of hessian": (pb.vmap(pb.hessian(f)), X),
    "vmap of solve": (pb.vmap(lambda b: pb.linalg.solve(A, b)), X.T),
    "vmap of vmap": (pb.vmap(pb.vmap(lambda x: pb.sin(x) * x, 1, 1)), np.stack([X, 2 * X])),
    "vmap of an index": (pb.vmap(lambda x, i: x[i]), X, np.array([0, 3, 2, 4])),
    "checkpoint": (lambda x: pb.grad(pb.checkpoint(f))(x), V),
    "custom": (lambda x: pb.grad(lambda y: pb.sum(squared(y) ** 2))(x), V),
    "fft": (lambda x: pb.abs(pb.fft.fft(x)) ** 2, V),
    "grad of rfft": (pb.grad(lambda x: pb.sum(pb.abs(pb.fft.rfft(x)) ** 2)), V),
    "inverse": (pb.linalg.inv, A),
    "slogdet": (pb.grad(lambda a: pb.linalg.slogdet(a)[1]), A),
    "eigh": (pb.grad(lambda a: pb.sum(pb.linalg.eigh(a)[0] ** 2)), S),
    "svd": (pb.grad(lambda a: pb.sum(pb.linalg.svd(a)[1] ** 2)), A),
    "cholesky": (pb.grad(lambda a: pb.sum(pb.linalg.cholesky(a))), S),
    "qr": (pb.grad(lambda a: pb.sum(pb.linalg.qr(a)[1] ** 2)), A),
    "expm": (pb.grad(lambda a: pb.sum(pb.linalg.expm(a * 0.1))), A),
    "fixed point": (
        pb.grad(lambda a: pb.sum(pb.fixed_point(lambda x, a: pb.cos(x * a), np.ones(5), a))),
        0.1 * V + 0.5,
    ),
    "root": (pb.grad(lambda a: pb.sum(pb.root(lambda x, a: x**3 - a, np.ones(5), a))), np.abs(V) + 0.5),
    "sort": (pb.grad(lambda x: pb.sum(pb.sort(x) ** 3)), X),
    "median": (pb.grad(pb.median), X),
    "cumulative": (pb.grad(lambda x: pb.sum(pb.cumulative_prod(x, axis=1) ** 2)), X),
    "backward": (by_backward, V),
    "tape": (by_tape, V),
    "scan": (lambda x: pb.scan(lambda c, x: (c + x, c * x), 0.0, x), V),
}


@pytest.mark.parametrize("what", PARTS)
def test_every_part_compiles(what):
    function, *args = PARTS[what]
    wanted = function(*args)
    same(pb.jit(function)(*args), _plain(wanted), 1e-8 if what in ("fixed point", "root") else 1e-10)


def _plain(tree):
    leaves, structure = flatten(tree)
    return unflatten(structure, [x.detach().numpy() if isinstance(x, pb.Tensor) else x for x in leaves])


def test_sparse_plans_of_compiled_functions():
    """A SciPy matrix is no array that a program could answer; its products run compiled."""
    x = RNG.normal(size=9)
    compiled = pb.jit(chained)
    same(pb.sparse_hessian(compiled)(x).toarray(), pb.hessian(chained)(x))
    plan = pb.sparse_hessian.plan(compiled, x)
    for y in (x, 2 * x):
        same(plan(y).toarray(), pb.hessian(chained)(y))
    same(pb.hessian_diagonal(compiled)(x), np.diag(pb.hessian(chained)(x)))
    pairs = pb.jit(lambda x: x[1:] * pb.sin(x[:-1]))
    same(pb.sparse_jacobian(pairs)(x).toarray(), pb.jacobian(pairs)(x))
    with pytest.raises(ConversionError, match="outside of the transform"):
        pb.jit(lambda x: pb.sparse_hessian(chained)(x).toarray())(x)


# Masks


def test_masked_assignment():
    def assigned(x):
        y = pb.tensor(x)
        y[y > 0] = 0.25
        return y

    def plain(x):
        y = x.copy()
        y[y > 0] = 0.25
        return y

    same(pb.jit(assigned)(X), plain(X))
    same(pb.jit(lambda x: pb.set_at(x, x > 0, 0.25))(X), plain(X))
    same(pb.jit(lambda x: pb.add_at(x, x > 0, 0.25))(X), np.where(X > 0, X + 0.25, X))
    rows = pb.jit(lambda x, v: pb.set_at(x, x[:, 0] > 0, v))
    same(rows(X, V), np.where((X[:, 0] > 0)[:, None], V, X))
    same(rows(X, V[None]), np.where((X[:, 0] > 0)[:, None], V, X))
    g = pb.jit(pb.grad(lambda x: pb.sum(pb.set_at(x, x > 0, pb.sum(x)) ** 2)))
    same(g(X), pb.grad(lambda x: pb.sum(pb.where(x > 0, pb.sum(x), x) ** 2))(X))
    same(pb.vmap(lambda x: pb.set_at(x, x > 0, 0.25))(X), plain(X))


def test_a_complex_number_selected_twice_by_one_mask():
    def f(z, zero):
        there = pb.real(z) > 0
        return pb.where(there, 2 * pb.where(there, z, zero), zero)

    z = X + 1j
    for zero in (0j, complex(0.0, -0.0), complex(-0.0, 0.0)):
        found = pb.jit(lambda z, zero=zero: f(z, zero))(z)
        assert str(found.tolist()) == str(f(z, zero).tolist())


def test_masks_whose_count_would_have_to_be_known_are_refused():
    with pytest.raises(ConversionError, match=r"pb\.where"):
        pb.jit(lambda x: x[x > 0])(X)
    with pytest.raises(ConversionError, match=r"pb\.where"):
        pb.jit(lambda x: pb.set_at(x, x > 0, V))(X)
    with pytest.raises(pb.errors.IndexingError, match="mask of shape"):
        pb.jit(lambda x: pb.set_at(x, x[:3, 0] > 0, 1.0))(X)
    with pytest.raises(ConversionError, match="number of elements that are selected depends on values"):
        pb.jit(pb.nonzero)(X)


# What is refused


@pytest.mark.parametrize(
    ("function", "what", "instead"),
    [
        (lambda x: x * pb.sum(x).item(), "item()", "when the compiled program runs"),
        (lambda x: x * float(pb.sum(x)), "float()", "when the compiled program runs"),
        (lambda x: x[int(pb.sum(x))], "int()", "x.shape"),
        (lambda x: x.tolist(), "tolist()", "functions of pullback"),
    ],
)
def test_numbers_that_are_not_there_yet(function, what, instead):
    with pytest.raises(ConversionError) as error:
        pb.jit(function)(X)
    text = str(error.value)
    assert text.startswith(what)
    assert "test_jit_parts.py" in text  # the line
    assert instead in text
    assert "static" in text


def test_values_that_leave_the_function_by_the_back_door():
    held = []
    with pytest.raises(LeakError, match="return the value"):
        pb.jit(lambda x: held.append(x * 2) or x)(X)
    assert not held

    class Hidden:  # an object that cannot be looked into
        def __init__(self):
            self.put, self.get = (lambda held: (held.append, lambda: held[0]))(deque())

    hidden = Hidden()
    pb.jit(lambda x: hidden.put(x * 2) or x)(X)
    with pytest.raises(LeakError, match="jit that is over"):
        hidden.get() + 1
    leaf = []
    with pytest.raises(GraphError, match="leaf that was made inside"):
        pb.jit(lambda x: leaf.append(pb.tensor(x, requires_grad=True)) or leaf[0] * 2)(X)


def test_a_custom_op_without_a_spec_says_what_is_missing():
    @pb.custom_op
    def unknown(x):
        return np.multiply(x, 2.0)

    with pytest.raises(ArgumentError, match="def_spec"):
        pb.jit(unknown)(X)
