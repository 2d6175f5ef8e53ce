"""Sizes that are not known when a graph is built: what it computes later is what eager code computes, or refused."""

import warnings

import network_samples
import numpy as np
import pytest
from records import cases, name

import pullback as pb
from pullback.arrays.size import evaluate
from pullback.arrays.trees import flatten
from pullback.errors import GraphError, PullbackError, ShapeError
from pullback.ops.dispatch import apply

SIZES = (1, 2, 3, 5, 7, 8, 16, 17)
REFUSED = "refused"


def with_leading(x, size):
    """x with another number of rows, its own over and over."""
    return x[np.arange(size) % len(x)]


def grown(args, leading, size):
    return [with_leading(a, size) if i in leading else a for i, a in enumerate(args)]


def built(f, args, leading):
    """(graph, result, names) of f over placeholders whose leading size is unknown, or what was raised."""
    graph = pb.Graph()
    given = []
    for i, a in enumerate(args):
        shape = (None, *a.shape[1:]) if i in leading else a.shape
        given.append(graph.placeholder(f"x{i}", shape, a.dtype))
    try:
        return graph, f(*given)
    except PullbackError as error:
        return None, error


def compare(f, args):
    """How often a graph over an unknown size computed what eager code does; it may refuse, it must not differ."""
    args = [np.asarray(a) for a in args]
    first = next((a.shape[0] for a in args if a.ndim and a.shape[0]), None)
    leading = {i for i, a in enumerate(args) if a.ndim and a.shape[0] == first}
    if first is None:
        return None
    graph, result = built(f, args, leading)
    if graph is None:
        return REFUSED
    leaves = flatten(result)[0]
    right = 0
    for size in SIZES:
        now = grown(args, leading, size)
        feeds = {f"x{i}": a for i, a in enumerate(now)}
        try:
            wanted = flatten(f(*now))[0]
        except PullbackError:
            wanted = None
        try:
            found = [quiet(graph.run)(x, feeds) if hasattr(x, "builder") else x for x in leaves]
        except PullbackError:
            continue
        assert wanted is not None, f"eager refuses {size} rows, the graph does not"
        for a, b in zip(found, wanted, strict=True):
            np.testing.assert_allclose(np.asarray(a, complex), np.asarray(b, complex), rtol=1e-9, atol=1e-12)
        right += 1
    return right


def quiet(f):
    def call(*args):
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return f(*args)

    return call


@pytest.mark.parametrize("case", cases(lambda op: op.spec is not None and op.name not in ("checked", "once")), ids=name)
def test_every_op_over_an_unknown_size_is_right_or_refused(case):
    compare(quiet(lambda *a: apply(case.op, *a, **case.static)), case.args)


@pytest.mark.parametrize("sample", network_samples.SAMPLES, ids=str)
def test_every_network_function_over_an_unknown_size_is_right_or_refused(sample):
    compare(quiet(sample.call), sample.arrays)


#: Public functions of one array that are no mathematics, or want what a value of a graph does not have.
APART = {
    "asarray", "astype", "from_dlpack", "jit", "load", "result_type", "save", "spec_of", "stage", "tensor", "to_numpy",
}  # fmt: skip


def public():
    for home in (pb, pb.nn, pb.linalg, pb.special, pb.fft):
        for called in home.__all__:
            f = getattr(home, called)
            if called not in APART and callable(f) and not isinstance(f, type):
                yield f


def test_every_public_function_of_a_matrix_is_right_or_refused():
    """Those that take one array (with 0 or 1, or the array again, beside it) and return arrays."""
    x = np.random.default_rng(0).random((3, 3))
    x, tried, right = x @ x.T + 0.1, 0, 0
    for f in public():
        ways = [quiet(lambda a, f=f, more=more: f(a, *more)) for more in ((), (0,), (1,))]
        for call in (*ways, quiet(lambda a, f=f: f(a, a))):
            try:
                leaves = flatten(call(x))[0]
            except Exception:  # it wants other arguments
                continue
            if leaves and all(isinstance(leaf, (np.ndarray, pb.Tensor)) for leaf in leaves):
                tried, right = tried + 1, right + (compare(call, [x]) == len(SIZES))
    assert tried > 800
    assert right > 700


def unknown(*shapes):
    graph = pb.Graph()
    return graph, *(graph.placeholder(f"x{i}", shape) for i, shape in enumerate(shapes))


#: What primes in the place of sizes got wrong.
GUESSED = {
    "mean of all but the first": lambda x: pb.mean(x[1:]), "std of all but the first": lambda x: pb.std(x[1:]),
    "mean of differences": lambda x: pb.mean(pb.diff(x)), "mean of padded": lambda x: pb.mean(pb.pad(x, (1, 2))),
    "mse of neighbours": lambda x: pb.nn.mse_loss(x[1:], x[:-1]), "median": pb.median, "every third": lambda x: x[::3],
    "variance of every second": lambda x: pb.var(x[::2], correction=1), "quantile": lambda x: pb.quantile(x, 0.3),
}  # fmt: skip


@pytest.mark.parametrize("f", GUESSED.values(), ids=GUESSED)
def test_what_was_guessed_is_computed(f):
    graph, x = unknown((None,))
    result = f(x)
    step = graph.compile(result)
    for size in (5, 8, 17):
        a = np.random.default_rng(size).normal(size=size)
        np.testing.assert_allclose(graph.run(result, x0=a), f(a), rtol=1e-12)
        np.testing.assert_allclose(step(x0=a), f(a), rtol=1e-12)


def test_running_statistics_of_a_batch_norm():
    def stats(x):
        return pb.nn.batch_norm(x, np.zeros(3), np.ones(3), training=True)

    assert compare(quiet(stats), [np.random.default_rng(0).normal(size=(4, 3))]) == len(SIZES) - 1  # one row is refused


def test_softmax_regression_with_whole_number_labels():
    rng = np.random.default_rng(1)
    graph = pb.Graph()
    x, y = graph.placeholder("x", (None, 4)), graph.placeholder("y", (None,), "int64")
    w = graph.variable("w", np.zeros((4, 3)))
    loss = pb.nn.cross_entropy(x @ w, y)
    (slope,) = graph.gradients(loss, [w])
    step = graph.compile(loss, updates=[(w, w - 0.5 * slope)])
    weights = np.zeros((4, 3))
    for size in (1, 2, 3, 7, 32):
        a, labels = rng.normal(size=(size, 4)), rng.integers(0, 3, size)
        wanted = pb.nn.cross_entropy(a @ weights, labels)
        weights = weights - 0.5 * pb.grad(lambda w, a=a, t=labels: pb.nn.cross_entropy(pb.matmul(a, w), t))(weights)
        np.testing.assert_allclose(step(x=a, y=labels), wanted, rtol=1e-12)
        np.testing.assert_allclose(graph.read(w), weights, rtol=1e-12, atol=1e-15)


def test_a_decision_that_a_size_would_change_is_refused_at_that_size():
    """`squeeze` hands its argument on unless the size is one, and leaves no line in the graph."""
    graph, x = unknown((None, 3))
    same = pb.squeeze(x)
    assert graph.run(same, x0=np.ones((2, 3))).shape == (2, 3)
    with pytest.raises(ShapeError, match="built for sizes with None != 1"):
        graph.run(same, x0=np.ones((1, 3)))


def test_what_needs_the_number_itself_is_refused():
    _, x = unknown((None,))
    n = x.spec.shape[0]
    for use in (range, np.zeros, float, int, np.asarray, lambda n: np.ones(3) * n, lambda n: np.arange(3) < n, round):
        with pytest.raises(GraphError, match="not known yet"):
            use(n)


def test_expressions_of_sizes_are_exact():
    """Random expressions, worked out for sizes, against the same on integers; comparisons against their guards."""
    rng = np.random.default_rng(2)
    for _ in range(300):
        graph, x, y = unknown(("n",), ("m",))
        real = {"n": int(rng.integers(1, 40)), "m": int(rng.integers(1, 40))}
        pairs = [(x.spec.shape[0], real["n"]), (y.spec.shape[0], real["m"]), (3, 3), (2, 2)]
        for _ in range(6):
            (a, u), (b, v) = (pairs[i] for i in rng.integers(0, len(pairs), 2))
            kind = rng.integers(0, 5)
            if kind > 2 and v == 0:
                continue
            operate = [lambda p, q: p + q, lambda p, q: p - q, lambda p, q: p * q, lambda p, q: p // q,
                       lambda p, q: p % q][kind]  # fmt: skip
            try:
                pairs.append((operate(a, b), operate(u, v)))
            except ZeroDivisionError:
                continue
        for a, u in pairs:
            assert evaluate(a, real) == u
        (a, u), (b, v) = pairs[-1], pairs[-2]
        try:
            decided = a < b
        except PullbackError:  # a division by what is zero for a large size
            continue
        guards = list(graph.unknowns.guards.values())
        assert decided == (u < v) or not all(g.holds(real) for g in guards)
