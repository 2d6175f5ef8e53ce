"""`pb.random`: published bits, distributions, derivatives of draws, and the same numbers on every road."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from scipy import special as scipy_special
from scipy import stats

import pullback as pb
from pullback import random
from pullback.errors import GraphError
from pullback.ops.random.threefry import threefry
from pullback.transforms.stage import stage

KEY = random.key(20260101)


def words(*numbers):
    return np.array(numbers, np.uint32)


@pytest.mark.parametrize(
    ("key", "counter", "answer"),
    [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_published_vectors_of_threefry(key, counter, answer):
    """The known answers that come with the authors' own library, for 2x32 words and 20 rounds."""
    found = threefry(np, (words(key[0]), words(key[1])), (words(counter[0]), words(counter[1])))
    assert tuple(int(w[0]) for w in found) == answer


def test_bits_begin_alike_whatever_their_number():
    for width in (32, 64):
        long = random.bits(20_001, width=width, key=KEY)
        np.testing.assert_array_equal(long[:77], random.bits(77, width=width, key=KEY))
    np.testing.assert_array_equal(long[:6].reshape(2, 3), random.bits((2, 3), width=64, key=KEY))


def test_keys():
    assert random.key(2**40 + 7).tolist() == [256, 7]
    assert random.key(-1).tolist() == [2**32 - 1, 2**32 - 1]
    many = random.split(KEY, 1000)
    assert len({tuple(k) for k in many.tolist()}) == 1000
    folded = random.fold_in(KEY, np.arange(-500, 500))
    assert len({tuple(k) for k in folded.tolist()} | {tuple(k) for k in many.tolist()}) == 2000
    np.testing.assert_array_equal(folded[503], random.fold_in(KEY, 3))
    with pytest.raises(pb.errors.ArgumentError, match="must be an integer"):
        random.key(1.5)
    with pytest.raises(pb.errors.ShapeError, match=r"pb\.random\.key"):
        random.normal(key=np.zeros(2))


#: sampler, its parameters, SciPy's distribution
DISTRIBUTIONS = {
    "uniform": ((-1.0, 3.0), stats.uniform(-1, 4)),
    "normal": ((1.0, 2.0), stats.norm(1, 2)),
    "lognormal": ((0.5, 0.7), stats.lognorm(0.7, scale=np.exp(0.5))),
    "laplace": ((1.0, 2.0), stats.laplace(1, 2)),
    "gumbel": ((1.0, 2.0), stats.gumbel_r(1, 2)),
    "logistic": ((1.0, 2.0), stats.logistic(1, 2)),
    "cauchy": ((1.0, 2.0), stats.cauchy(1, 2)),
    "exponential": ((2.0,), stats.expon(scale=2)),
    "weibull": ((1.7,), stats.weibull_min(1.7)),
    "pareto": ((2.5,), stats.lomax(2.5)),
    "truncated_normal": ((-0.5, 2.0, 0.3, 1.5), stats.truncnorm(-0.8 / 1.5, 1.7 / 1.5, 0.3, 1.5)),
    "gamma": ((2.5, 2.0), stats.gamma(2.5, scale=2)),
    "gamma below one": ((0.3, 1.0), stats.gamma(0.3)),
    "chi2": ((3.0,), stats.chi2(3)),
    "beta": ((0.7, 2.0), stats.beta(0.7, 2)),
    "student_t": ((4.0, 1.0, 2.0), stats.t(4, 1, 2)),
}


def sampler(name):
    return getattr(random, name.split()[0])


@pytest.mark.parametrize("name", DISTRIBUTIONS)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_distribution(name, dtype):
    parameters, expected = DISTRIBUTIONS[name]
    x = sampler(name)(*parameters, size=(100, 100), key=KEY, dtype=dtype)
    assert (x.shape, x.dtype) == ((100, 100), np.dtype(dtype))
    assert np.isfinite(x).all()
    assert stats.kstest(x.ravel().astype("float64"), expected.cdf).pvalue > 1e-3


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_neighbours_are_independent(name):
    parameters, expected = DISTRIBUTIONS[name]
    u = expected.cdf(sampler(name)(*parameters, size=20_000, key=KEY))
    assert abs(np.corrcoef(u[:-1], u[1:])[0, 1]) < 0.03


WHOLE = {
    "poisson": ((3.5,), stats.poisson(3.5)),
    "poisson large": ((400.0,), stats.poisson(400)),
    "binomial": ((12, 0.3), stats.binom(12, 0.3)),
    "integers": ((3, 11), stats.randint(3, 11)),
}


@pytest.mark.parametrize("name", WHOLE)
def test_whole_distribution(name):
    parameters, expected = WHOLE[name]
    x = sampler(name)(*parameters, size=20_000, key=KEY)
    assert x.dtype == np.int64
    values = np.arange(int(expected.ppf(1e-3)), int(expected.ppf(1 - 1e-3)) + 1)
    seen = np.array([(x == v).sum() for v in values])
    wanted = 20_000 * expected.pmf(values)
    good = wanted > 8
    assert stats.chi2.sf(np.sum((seen - wanted)[good] ** 2 / wanted[good]), good.sum()) > 1e-3
    assert x.min() >= expected.support()[0]
    assert x.max() <= expected.support()[1]


def test_bernoulli_and_categorical():
    assert abs(random.bernoulli(0.3, 20_000, key=KEY).mean() - 0.3) < 0.015
    logits = np.log(np.array([[0.2, 0.5, 0.3], [0.6, 0.1, 0.3]]))
    x = random.categorical(logits, 20_000, key=KEY)
    assert x.shape == (20_000, 2)
    shares = np.stack([(x == i).mean(0) for i in range(3)], axis=-1)
    np.testing.assert_allclose(shares, np.exp(logits), atol=0.015)
    assert random.categorical(logits.T, axis=0, key=KEY).shape == (2,)


def test_permutation_and_choice():
    orders = np.stack([random.permutation(3, key=k) for k in random.split(KEY, 1200)])
    _, counts = np.unique(orders, axis=0, return_counts=True)
    assert len(counts) == 6
    assert counts.min() > 150
    x = np.arange(12.0).reshape(3, 4)
    moved = random.permutation(x, axis=1, key=KEY)
    np.testing.assert_array_equal(np.sort(moved, axis=1), x)
    assert sorted(random.choice(9, (3, 3), replace=False, key=KEY).ravel().tolist()) == list(range(9))
    assert random.choice(5, key=KEY).shape == ()
    p = np.array([0.0, 0.9, 0.1])
    with np.errstate(divide="ignore"):
        assert abs((random.choice(3, 10_000, p=p, key=KEY) == 1).mean() - 0.9) < 0.02
        assert set(random.choice(3, 2, p=p, replace=False, key=KEY).tolist()) == {1, 2}
    with pytest.raises(pb.errors.ArgumentError, match="without replacement"):
        random.choice(3, 4, replace=False, key=KEY)


def test_choice_of_a_tensor_is_differentiable():
    x = pb.tensor([1.0, 2.0, 3.0], requires_grad=True)
    random.permutation(x, key=KEY).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), np.ones(3))


def close_in_mean(samples, exact):
    """Within five standard errors."""
    error = samples.std(axis=0) / np.sqrt(len(samples))
    np.testing.assert_array_less(np.abs(samples.mean(axis=0) - exact), 5 * error + 1e-12)


@pytest.mark.parametrize("a", [0.2, 1.0, 6.5])
def test_gradients_of_gamma_moments(a):
    """E[x] = a, E[log x] = digamma(a), E[x^2] = a (a + 1): the mean of the draws' slopes is the slope of the mean."""
    shape = np.full(20_000, a)
    for f, exact in (
        (lambda x: x, 1.0),
        (pb.log, scipy_special.polygamma(1, a)),
        (pb.square, 2 * a + 1),
    ):
        close_in_mean(pb.grad(lambda s: pb.sum(f(random.gamma(s, key=KEY))))(shape), exact)  # noqa: B023


def test_second_derivatives_of_gamma_moments():
    """(d/da)^2 E[x^2] = 2 and (d/da)^2 E[log x] = polygamma(2, a), by differentiating the draw twice."""
    shape = np.full(20_000, 2.5)
    for f, exact in ((pb.square, 2.0), (pb.log, scipy_special.polygamma(2, 2.5))):
        total = lambda s: pb.sum(f(random.gamma(s, key=KEY)))  # noqa: E731, B023
        close_in_mean(pb.hvp(total, (shape,), (np.ones_like(shape),)), exact)


def test_gradient_of_a_gamma_draw_is_that_of_its_quantile():
    for a in (0.4, 3.0, 80.0):
        x = float(random.gamma(a, key=KEY))
        p = scipy_special.gammainc(a, x)
        along = pb.grad(lambda s: pb.special.gammaincinv(s, p))(a)  # noqa: B023
        np.testing.assert_allclose(pb.grad(lambda s: random.gamma(s, key=KEY))(a), along, rtol=1e-9)


def test_gradients_of_beta_moments():
    a, b = np.full(20_000, 0.8), np.full(20_000, 2.0)
    da, db = pb.grad(lambda a, b: pb.sum(random.beta(a, b, key=KEY)), (0, 1))(a, b)
    close_in_mean(da, 2.0 / 2.8**2)
    close_in_mean(db, -0.8 / 2.8**2)


def test_gradients_of_dirichlet_moments():
    """E[x_0] = a_0 / sum(a)."""
    alpha = np.array([0.5, 1.0, 2.5])
    slopes = pb.grad(lambda a: pb.sum(random.dirichlet(a, key=KEY)[:, 0]))(np.tile(alpha, (20_000, 1)))
    total = alpha.sum()
    close_in_mean(slopes, (np.array([1.0, 0, 0]) * total - alpha[0]) / total**2)
    x = random.dirichlet(alpha, 10_000, key=KEY)
    assert stats.kstest(x[:, 0], stats.beta(0.5, 3.5).cdf).pvalue > 1e-3


def test_small_shapes_do_not_underflow():
    x = random.dirichlet(np.full(4, 1e-4), 50, key=KEY)
    np.testing.assert_allclose(x.sum(-1), 1.0)
    slopes = pb.grad(lambda a: pb.sum(random.dirichlet(a, 50, key=KEY)[:, 0]))(np.full(4, 1e-3))
    assert np.isfinite(slopes).all()
    slopes = pb.grad(lambda a: pb.sum(random.beta(a, 1e-3, 50, key=KEY)))(1e-3)
    assert np.isfinite(slopes)


@pytest.mark.parametrize(
    "name", [n for n in DISTRIBUTIONS if "gamma" not in n and n not in ("chi2", "beta", "student_t")]
)
def test_draws_move_with_their_parameters(name):
    """For draws made by a formula the derivative agrees with differences at fixed bits."""
    parameters = DISTRIBUTIONS[name][0]
    f = lambda *p: sampler(name)(*p, size=5, key=KEY)  # noqa: E731
    for i in range(len(parameters)):
        step = np.eye(len(parameters))[i] * 1e-6
        high, low = f(*(np.array(parameters) + step)), f(*(np.array(parameters) - step))
        tangents = [np.asarray(float(i == j)) for j in range(len(parameters))]
        pushed = pb.jvp(f, [np.asarray(p) for p in parameters], tangents)[1]
        np.testing.assert_allclose(pushed, (high - low) / 2e-6, rtol=1e-6, atol=1e-8)


def test_truncated_normal_far_out():
    x = random.truncated_normal(np.array([-41.0, 40.0]), np.array([-40.0, 41.0]), size=(100, 2), key=KEY)
    assert ((x[:, 0] > -41) & (x[:, 0] < -40) & (x[:, 1] > 40) & (x[:, 1] < 41)).all()
    slope = pb.grad(lambda low: pb.sum(random.truncated_normal(low, 50.0, size=10, key=KEY)))(40.0)
    np.testing.assert_allclose(slope, 10.0, rtol=0.01)


def test_truncated_normal_with_an_open_end():
    for low, high in ((-np.inf, 1.0), (0.5, np.inf), (-np.inf, np.inf)):
        f = lambda loc, scale: pb.sum(random.truncated_normal(low, high, loc, scale, 5, key=KEY))  # noqa: E731, B023
        slopes = [float(pb.grad(f, i)(0.3, 1.5)) for i in (0, 1)]
        pushed = [float(pb.jvp(f, (0.3, 1.5), t)[1]) for t in ((1.0, 0.0), (0.0, 1.0))]
        step = 1e-6
        differences = [
            (f(0.3 + step, 1.5) - f(0.3 - step, 1.5)) / 2e-6,
            (f(0.3, 1.5 + step) - f(0.3, 1.5 - step)) / 2e-6,
        ]
        np.testing.assert_allclose(slopes, differences, rtol=1e-6)
        np.testing.assert_allclose(pushed, slopes, rtol=1e-12)
    np.testing.assert_allclose(slopes[0], 5.0)


def test_multivariate_normal():
    factor = np.array([[1.0, 0.0], [0.5, 2.0]])
    x = random.multivariate_normal(np.array([1.0, -1.0]), factor, 20_000, key=KEY)
    np.testing.assert_allclose(x.mean(0), [1.0, -1.0], atol=0.06)
    np.testing.assert_allclose(np.cov(x.T), factor @ factor.T, atol=0.15)
    slope = pb.grad(lambda m: pb.sum(random.multivariate_normal(m, factor, 3, key=KEY)))(np.zeros(2))
    np.testing.assert_array_equal(slope, [3.0, 3.0])
    with pytest.raises(pb.errors.ArgumentError, match="matrix"):
        random.multivariate_normal(0.0, 1.0)


def test_gumbel_softmax():
    logits = np.log(np.array([0.2, 0.5, 0.3]))
    hard = random.gumbel_softmax(np.tile(logits, (10_000, 1)), 0.5, hard=True, key=KEY)
    assert set(np.unique(hard)) == {0.0, 1.0}
    np.testing.assert_allclose(hard.mean(0), np.exp(logits), atol=0.02)
    soft = lambda hard: pb.jacobian(lambda v: random.gumbel_softmax(v, 0.5, hard=hard, key=KEY))(logits)  # noqa: E731
    np.testing.assert_array_equal(soft(True), soft(False))


def test_vmap_over_keys_is_independent_and_over_parameters_shares_the_noise():
    keys = random.split(KEY, 4)
    for f in (
        lambda k: random.normal(size=3, key=k),
        lambda k: random.gamma(0.7, size=3, key=k),
        lambda k: random.beta(0.7, 2.0, key=k),
        lambda k: random.permutation(5, key=k),
        lambda k: random.uniform(key=random.fold_in(k, 3)),
        lambda k: random.split(k)[0],
    ):
        np.testing.assert_array_equal(pb.vmap(f)(keys), np.stack([f(k) for k in keys]))
    a = np.array([0.5, 0.5, 2.0])
    shared = pb.vmap(lambda s: random.gamma(s, size=2, key=KEY))(a)
    np.testing.assert_array_equal(shared, np.stack([random.gamma(s, size=2, key=KEY) for s in a]))
    np.testing.assert_array_equal(shared[0], shared[1])
    both = pb.vmap(pb.vmap(lambda k, s: random.gamma(s, size=2, key=k), (None, 0)), (0, None))(keys, a)
    looped = [[random.gamma(s, size=2, key=k) for s in a] for k in keys]
    np.testing.assert_array_equal(both, looped)
    slopes = pb.vmap(pb.grad(lambda s, k: random.gamma(s, key=k)), (0, 0))(a, keys[:3])
    np.testing.assert_allclose(slopes, [pb.grad(lambda s: random.gamma(s, key=k))(s) for s, k in zip(a, keys)])  # noqa: B023, B905


def test_vmap_over_folded_numbers():
    steps = np.arange(4)
    found = pb.vmap(lambda i: random.normal(size=2, key=random.fold_in(KEY, i)))(steps)
    np.testing.assert_array_equal(found, [random.normal(size=2, key=random.fold_in(KEY, int(i))) for i in steps])


def test_the_same_numbers_eager_and_staged():
    def noisy(x):
        return x * random.normal(size=3, key=KEY) + random.gamma(x, key=random.fold_in(KEY, 1))

    x = np.array([1.0, 2.0, 0.5])
    np.testing.assert_array_equal(stage(noisy)(x).run(x), noisy(x))
    of_key = lambda k: random.uniform(size=2, key=k)  # noqa: E731
    np.testing.assert_array_equal(stage(of_key)(KEY).run(random.key(5)), of_key(random.key(5)))

    def stateful(x):
        return x + random.normal(size=3)

    random.seed(11)
    eager = stateful(x)
    random.seed(11)
    np.testing.assert_array_equal(stage(stateful)(x).run(x), eager)


def test_state_can_be_put_back():
    random.seed(5)
    first = [random.normal(size=2) for _ in range(3)]
    assert not np.array_equal(first[0], first[1])
    random.seed(5)
    random.normal(size=2)
    kept = random.state()
    later = [random.normal(size=2) for _ in range(2)]
    np.testing.assert_array_equal(later, first[1:])
    random.restore(kept)
    np.testing.assert_array_equal(random.normal(size=2), first[1])
    assert kept == ((0, 5), 1)


def test_a_key_leaves_the_default_generator_alone():
    random.seed(5)
    before = random.state()
    random.gamma(2.0, key=KEY)
    assert random.state() == before


def test_threads_never_get_the_same_key():
    random.seed(1)
    found = []
    threads = [
        threading.Thread(target=lambda: found.extend(random.bits(width=64).item() for _ in range(50))) for _ in range(4)
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(set(found)) == 200
    assert random.state().drawn == 200


def test_shapes_and_dtypes():
    assert random.normal(key=KEY).shape == ()
    assert random.normal(np.zeros((2, 1)), np.ones(3), key=KEY).shape == (2, 3)
    assert random.normal(np.zeros(3), size=(4, 3), key=KEY).shape == (4, 3)
    assert random.normal(size=(0, 2), key=KEY).shape == (0, 2)
    assert random.gamma(np.zeros(0), key=KEY).shape == (0,)
    with pytest.raises(pb.errors.ShapeError, match="broadcast"):
        random.normal(np.zeros(3), size=2, key=KEY)
    with pytest.raises(pb.errors.ShapeError, match="do not fit"):
        random.normal(np.zeros((2, 3)), size=3, key=KEY)
    with pytest.raises(pb.errors.DtypeError, match="floating-point"):
        random.normal(dtype=int, key=KEY)
    single = np.ones(3, np.float32)
    assert random.normal(single, key=KEY).dtype == np.float32
    assert pb.grad(lambda a: pb.sum(random.gamma(a, key=KEY)))(single).dtype == np.float32
    assert random.normal(single, dtype="float64", key=KEY).dtype == np.float64
    assert random.normal(dtype="float16", size=9, key=KEY).dtype == np.float16


def test_plain_in_plain_out_and_tensors_stay_tensors():
    assert type(random.normal(np.zeros(2), key=KEY)) is np.ndarray
    loc = pb.tensor([1.0, 2.0], requires_grad=True)
    x = random.normal(loc, 2.0, key=KEY)
    assert isinstance(x, pb.Tensor)
    x.sum().backward()
    np.testing.assert_array_equal(loc.grad.numpy(), [1.0, 1.0])


def test_impossible_parameters():
    assert np.isnan(random.gamma(-1.0, key=KEY))
    with pytest.raises(pb.errors.ArgumentError, match="below high"):
        random.integers(3, 3, key=KEY)
    with pytest.raises(pb.errors.ArgumentError, match="must be integers"):
        random.integers(3.5, key=KEY)
    with pytest.raises(pb.errors.ShapeError, match="vector"):
        random.dirichlet(1.0, key=KEY)
    with pytest.raises(pb.errors.ArgumentError, match="32 or 64"):
        random.bits(width=8, key=KEY)


def test_unit_numbers_never_reach_their_ends():
    from pullback.ops.dispatch import apply
    from pullback.ops.random.draw_ops import unit

    for dtype in ("float64", "float32", "float16"):
        ends = np.array([0, 2**64 - 1], np.uint64) if dtype == "float64" else np.array([0, 2**32 - 1], np.uint32)
        low, high = apply(unit, ends, dtype=np.dtype(dtype))
        assert 0 < low < high < 1
        assert low == 1 - high


DISCRETE = {
    "bernoulli": lambda p: pb.random.bernoulli(p, key=KEY),
    "poisson": lambda p: pb.random.poisson(p, key=KEY),
    "binomial": lambda p: pb.random.binomial(5, p, key=KEY),
    "categorical": lambda p: pb.random.categorical(p, key=KEY),
    "choice": lambda p: pb.random.choice(3, 2, p=p / pb.sum(p), key=KEY),
}


@pytest.mark.parametrize("name", DISCRETE)
def test_a_discrete_draw_in_a_program_refuses_derivatives_as_it_does_outside(name):
    x = np.array([0.2, 0.5, 0.9])

    def drawn(p):
        return pb.sum(DISCRETE[name](p) * 1.0)

    asked = (
        lambda: pb.grad(drawn)(x),
        lambda: pb.grad(pb.jit(drawn))(x),
        lambda: pb.jit(pb.grad(drawn))(x),
        lambda: pb.jvp(pb.jit(drawn), (x,), (x,)),
        lambda: pb.vmap(pb.grad(pb.jit(drawn)))(np.stack([x, x])),
        lambda: pb.grad(pb.stage(drawn)(x).run)(x),
        lambda: pb.stage(drawn)(x).gradients(),
    )
    for ask in asked:
        with pytest.raises(GraphError, match=f"random.{name}: a discrete draw has no derivative"):
            ask()
    assert pb.jit(drawn)(x) == drawn(x)


def test_a_compiled_discrete_draw_has_derivatives_by_everything_but_its_parameters():
    x, p = np.array([0.2, 0.5, 0.9]), np.array([0.3, 0.9, 0.9])

    def kept(x, p):
        return pb.sum(x**3 * pb.random.bernoulli(p, key=KEY))

    mask = np.asarray(pb.random.bernoulli(p, key=KEY))
    compiled = pb.jit(kept)
    np.testing.assert_allclose(pb.grad(compiled)(x, p), 3 * x**2 * mask)
    np.testing.assert_allclose(pb.jvp(lambda x: compiled(x, p), (x,), (x,))[1], np.sum(3 * x**3 * mask))
    np.testing.assert_allclose(pb.hvp(lambda x: compiled(x, p), (x,), (x,)), 6 * x**2 * mask)
    with pb.memory_budget("1 MiB"):
        np.testing.assert_allclose(pb.grad(compiled)(x, p), 3 * x**2 * mask)
    held = pb.jit(lambda p: kept(p, pb.stop_gradient(p)))
    mask = np.asarray(pb.random.bernoulli(x, key=KEY))
    np.testing.assert_allclose(pb.grad(held)(x), 3 * x**2 * mask)


def test_an_order_of_no_axis_is_refused_when_a_program_is_read():
    with pytest.raises(GraphError, match=r"random_order: wants words along an axis, got uint64\[\]"):
        pb.Program.parse("graph(x: uint64[])\n  y: int64[] = random_order(x)\n  return y")


@pytest.mark.parametrize("count", [7, 8, 21, 64, 65])
def test_long_draws_count_in_rows_and_columns(count, monkeypatch):
    """Compiled, counters of many blocks are sums of two tables; the words are those of eager calls."""
    from pullback.ops.random import expansions

    monkeypatch.setattr(expansions, "_TABLE", 8)
    monkeypatch.setattr(expansions, "_COLUMNS", 4)
    key, keys = pb.random.key(5), pb.random.split(pb.random.key(1), 3)

    def draw(key):
        bits = [pb.random.bits(count, width=width, key=key) for width in (32, 64)]
        return [*bits, pb.random.split(key, count), pb.random.uniform(size=(count, 2), key=key, dtype="float32")]

    for f, given in ((draw, key), (pb.vmap(draw), keys)):
        for found, wanted in zip(pb.jit(f)(given), f(given), strict=True):
            np.testing.assert_array_equal(found, wanted)
        assert "host" not in pb.explain(pb.jit(f), given)


def test_counts_of_great_rates():
    """Where SciPy's inverse of the distribution function fails; a rate of no distribution has no draws."""
    for rate in (2e9, 1e12, 1e17):
        x = pb.random.poisson(rate, 2000, key=KEY)
        assert stats.kstest((x - rate) / np.sqrt(rate), "norm").pvalue > 1e-3
    for rate in (1e19, np.inf, np.nan, -1.0):
        for draw in (pb.random.poisson, pb.jit(lambda rate, key: pb.random.poisson(rate, key=key))):
            with pytest.raises(pb.errors.ArgumentError, match=r"poisson: no int64 .* rate from"):
                draw(rate, key=KEY)
