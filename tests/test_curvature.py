"""`pb.curvature` and K-FAC against dense Jacobians and Hessians, taken sample by sample."""

import pickle
import threading

import numpy as np
import pytest

import pullback as pb
from pullback.curvature.staging import read_batch, stage_gradient, stage_pull
from pullback.errors import ArgumentError, DtypeError, ShapeError

C = pb.curvature

rng = np.random.default_rng(5)
TIGHT = {"rtol": 1e-10, "atol": 1e-10}


def mlp(p, x):
    h = pb.tanh(x @ p["w1"] + p["b1"])
    return p["w2"] @ pb.tanh(h) + p["b2"]


def conv(p, x):
    y = pb.tanh(pb.nn.conv2d(x[None], p["w"], p["b"], stride=2, padding=1))
    return pb.mean(y, axis=(2, 3))[0]


def grouped(p, x):
    return pb.sum(pb.tanh(pb.nn.conv2d(x[None], p, padding=(1, 0), dilation=(1, 2), groups=3)), axis=(0, 2, 3))


def norm(p, x):
    """A layer norm with gain and shift over each row of a sequence, then a projection."""
    y = pb.nn.layer_norm(x, p["gain"], p["shift"])
    return pb.sum(pb.tanh(y @ p["w"]), axis=0)


def embedding(p, i):
    return pb.sum(pb.tanh(p["table"][i]) @ p["out"], axis=0)


def twice(w, x):
    return pb.tanh(x @ w) @ w


def both_ways(w, x):
    return pb.tanh(x @ w) @ w.T


def heads(w, x):
    return pb.sum(pb.tanh(pb.einsum("thd,hde->the", x, w)), axis=(0, 1))


def reshaped(w, x):
    return (x @ pb.reshape(w, (6, 4))) * 0.5 - pb.tanh(x @ pb.reshape(w, (6, 4))) * x[0]


def split_letter(w, x):
    return pb.tanh(pb.einsum("ab,abn->n", pb.reshape(x, (2, 3)), pb.reshape(w, (2, 3, 4))))


def number(p, x):
    return p * pb.tanh(p * x)


MLP = {"w1": rng.normal(size=(5, 4)), "b1": rng.normal(size=4), "w2": rng.normal(size=(3, 4)), "b2": rng.normal(size=3)}
NORM = {"gain": rng.normal(size=4), "shift": rng.normal(size=4), "w": rng.normal(size=(4, 3))}
#: (model of one sample, parameters, inputs, how many outputs)
MODELS = {
    "mlp": (mlp, MLP, rng.normal(size=(6, 5)), 3),
    "one sample": (mlp, MLP, rng.normal(size=(1, 5)), 3),
    "batch as wide as a layer": (mlp, MLP, rng.normal(size=(4, 5)), 3),
    "conv": (conv, {"w": rng.normal(size=(2, 3, 3, 3)), "b": rng.normal(size=2)}, rng.normal(size=(3, 3, 6, 5)), 2),
    "grouped conv": (grouped, rng.normal(size=(6, 1, 3, 2)), rng.normal(size=(3, 3, 4, 5)), 6),
    "layer norm": (norm, NORM, rng.normal(size=(5, 6, 4)), 3),
    "embedding": (
        embedding, {"table": rng.normal(size=(7, 3)), "out": rng.normal(size=(3, 2))},
        rng.integers(0, 7, (5, 4)), 2,
    ),
    "a matrix used twice": (twice, rng.normal(size=(3, 3)), rng.normal(size=(5, 3)), 3),
    "a matrix and its transpose": (both_ways, rng.normal(size=(3, 4)), rng.normal(size=(5, 3)), 3),
    "heads": (heads, rng.normal(size=(2, 3, 4)), rng.normal(size=(5, 4, 2, 3)), 4),
    "reshaped": (reshaped, rng.normal(size=(2, 3, 4)), rng.normal(size=(5, 6)), 4),
    "split axes": (split_letter, rng.normal(size=(6, 4)), rng.normal(size=(5, 6)), 4),
    "a number": (number, np.array(0.7), rng.normal(size=(5, 2)), 2),
}  # fmt: skip
CHEAP = ("mlp", "conv", "a matrix and its transpose")
LOSSES = {
    "categorical": (C.categorical, lambda n, k: rng.integers(0, k, n)),
    "normal": (C.normal, lambda n, k: rng.normal(size=(n, k))),
    "bernoulli": (C.bernoulli, lambda n, k: rng.integers(0, 2, (n, k))),
    "not convex": (lambda z, y: pb.sum(pb.sin(z) * y) * z[0], lambda n, k: rng.normal(size=(n, k))),
}


def flat(tree):
    return np.concatenate([np.ravel(x) for x in pb.tree.leaves(tree)])


def sample_gradients(f, params, *batch):
    """One flat gradient for each sample, by a loop."""
    return np.stack([flat(pb.grad(f)(params, *one)) for one in zip(*batch, strict=True)])


def dense_ggn(model, loss, params, x, y):
    """J^T H J of each sample."""
    vector, unravel = pb.ravel_pytree(params)
    found = []
    for one, target in zip(x, y, strict=True):
        z = model(params, one)
        jac = pb.jacobian(lambda v, one=one: model(unravel(v), one), mode="forward")(vector)
        found.append(jac.T @ pb.hessian(lambda z, target=target: loss(z, target))(z) @ jac)
    return np.stack(found)


def blocks_of(whole, params):
    ends = np.cumsum([np.size(x) for x in pb.tree.leaves(params)])
    return [whole[a:b, a:b] for a, b in zip([0, *ends], ends, strict=False)]


def case(name, loss="categorical"):
    model, params, x, k = MODELS[name]
    of, draw = LOSSES[loss]
    return model, of, params, x, draw(len(x), k)


@pytest.mark.parametrize("name", MODELS)
def test_statistics_are_those_of_a_loop_over_samples(name):
    model, loss, params, x, y = case(name)

    def f(p, x, y):
        return loss(model(p, x), y)

    grads = sample_gradients(f, params, x, y)
    for run in (C.gradient_statistics(f), pb.jit(C.gradient_statistics(f))):
        found = run(params, x, y)
        np.testing.assert_allclose(found.norms, np.linalg.norm(grads, axis=1), **TIGHT)
        np.testing.assert_allclose(flat(found.gradient), grads.mean(0), **TIGHT)
        np.testing.assert_allclose(flat(found.second_moment), (grads**2).mean(0), **TIGHT)
        np.testing.assert_allclose(flat(found.variance), grads.var(0), **TIGHT)
    each = C.per_sample_grad(f)(params, x, y)
    apart = np.concatenate([np.reshape(g, (len(x), -1)) for g in pb.tree.leaves(each)], axis=1)
    np.testing.assert_allclose(apart, grads, **TIGHT)
    np.testing.assert_allclose(C.per_sample_norms(f)(params, x, y), np.linalg.norm(grads, axis=1), **TIGHT)


@pytest.mark.parametrize(
    ("name", "loss"), [*((m, "categorical") for m in MODELS), *((m, kind) for m in CHEAP for kind in LOSSES)]
)
def test_gauss_newton_is_that_of_dense_jacobians(name, loss):
    model, of, params, x, y = case(name, loss)
    whole = dense_ggn(model, of, params, x, y)
    runs = (lambda f: f, pb.jit) if name in CHEAP else (pb.jit,)
    for run in runs:
        np.testing.assert_allclose(flat(run(C.ggn_diagonal(model, of))(params, x, y)), np.diag(whole.mean(0)), **TIGHT)
    found = C.ggn_blocks(model, of, reduction="sum")(params, x, y)
    for block, wanted in zip(pb.tree.leaves(found), blocks_of(whole.sum(0), params), strict=True):
        np.testing.assert_allclose(block, wanted, **TIGHT)


@pytest.mark.parametrize("likelihood", [C.normal, C.categorical, C.bernoulli, C.poisson], ids=lambda x: x.name)
def test_exact_fisher_is_the_covariance_of_scores(likelihood):
    """For the normal likelihood the mean over labels is known; the others' labels are few enough, or made so."""
    z = np.array([0.3, -0.4, 1.1])
    labels = {
        "categorical": [(np.exp(z[i]) / np.exp(z).sum(), i) for i in range(3)],
        "bernoulli": [
            (np.prod([1 / (1 + np.exp(-s * v)) for s, v in zip(signs, z, strict=True)]), (np.array(signs) + 1) // 2)
            for signs in np.ndindex(2, 2, 2) for signs in [tuple(2 * s - 1 for s in signs)]
        ],
    }.get(likelihood.name)  # fmt: skip
    if labels is not None:
        scores = [(p, pb.grad(lambda z, y=y: likelihood(z, y))(z)) for p, y in labels]
        wanted = sum(p * np.outer(s, s) for p, s in scores)
    else:  # independent elements: a variance of 1, or of the rate
        wanted = np.diag(np.ones(3) if likelihood.name == "normal" else np.exp(z))
    found = C.fisher_blocks(lambda w, x: w * x, likelihood)(z, np.ones((1, 3)))
    np.testing.assert_allclose(found, wanted, **TIGHT)


@pytest.mark.parametrize("likelihood", [C.normal, C.categorical, C.bernoulli, C.poisson], ids=lambda x: x.name)
def test_drawn_fisher_is_reproducible_and_unbiased(likelihood):
    model, params, x, _ = MODELS["mlp"]
    exact = flat(C.fisher_diagonal(model, likelihood)(params, x))
    drawn = pb.jit(C.fisher_diagonal(model, likelihood, samples=8))
    draws = np.stack([flat(drawn(params, x, key)) for key in pb.random.split(pb.random.key(3), 60)])
    error = draws.std(0, ddof=1) / np.sqrt(len(draws))
    assert np.all(np.abs(draws.mean(0) - exact) <= 4.5 * error + 1e-12)
    again = C.fisher_diagonal(model, likelihood, samples=8)(params, x, pb.random.split(pb.random.key(3), 60)[0])
    np.testing.assert_allclose(flat(again), draws[0], **TIGHT)
    blocks = C.fisher_blocks(model, likelihood, samples=8)(params, x, pb.random.split(pb.random.key(3), 60)[0])
    np.testing.assert_allclose(np.concatenate([np.diag(b) for b in pb.tree.leaves(blocks)]), draws[0], **TIGHT)


def test_factored_gradients_are_found_where_they_should_be():
    """Without this, everything above would hold for gradients that are multiplied out."""
    sizes = {}
    for name in MODELS:
        model, loss, params, x, y = case(name)
        batch = read_batch("test", params, (x, y))
        leaves = stage_gradient(lambda p, x, y: loss(model(p, x), y), batch).leaves  # noqa: B023
        sizes[name] = [leaf.layout and sorted(leaf.layout.sizes[1:]) for leaf in leaves]
    assert sizes["mlp"] == [None, None, [4, 5], [3, 4]]  # b1, b2, w1, w2
    assert sizes["conv"] == [None, [2, 27]]
    assert sizes["grouped conv"] == [[2, 6]]
    assert sizes["layer norm"][-1] in ([3, 4], None)
    assert [3, 4] in sizes["layer norm"]
    assert [2, 3] in sizes["embedding"]
    assert None in sizes["embedding"]
    assert sizes["a matrix used twice"] == [[3, 3]]
    assert sizes["a matrix and its transpose"] == [[3, 4]]
    assert sizes["heads"] == [[3, 4]]
    assert sizes["reshaped"] == sizes["split axes"] == [[4, 6]]
    assert sizes["a number"] == [None]


def test_what_depends_on_cotangents_is_on_one_side():
    twice_used = stage_pull(twice, read_batch("test", MODELS["a matrix used twice"][1], (rng.normal(size=(2, 3)),)))
    assert twice_used.leaves[0].terms
    mixed = stage_pull(both_ways, read_batch("test", rng.normal(size=(3, 4)), (rng.normal(size=(2, 3)),)))
    assert not mixed.leaves[0].terms


def test_norms_by_products_of_rows_and_multiplied_out():
    """Few rows of large matrices, many rows of small ones: each takes the other way."""
    for rows, m, n in ((2, 9, 8), (9, 2, 3), (1, 3, 3)):
        w, x = rng.normal(size=(m, n)), rng.normal(size=(4, rows, m))

        def f(w, x):
            return pb.sum(pb.tanh(x @ w) ** 2)

        wanted = np.linalg.norm(sample_gradients(f, w, x), axis=1)
        np.testing.assert_allclose(C.per_sample_norms(f)(w, x), wanted, **TIGHT)


def test_an_mlp_by_hand():
    """Backpropagation written in NumPy."""
    x, y = rng.normal(size=(6, 5)), rng.integers(0, 3, 6)
    h = np.tanh(x @ MLP["w1"] + MLP["b1"])
    z = np.tanh(h) @ MLP["w2"].T + MLP["b2"]
    p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    dz = p - np.eye(3)[y]
    dh = (dz @ MLP["w2"]) * (1 - np.tanh(h) ** 2) * (1 - h**2)
    squares = (dz**2).sum(1) * ((np.tanh(h) ** 2).sum(1) + 1) + (dh**2).sum(1) * ((x**2).sum(1) + 1)
    found = C.per_sample_norms(lambda w, x, y: C.categorical(mlp(w, x), y))(MLP, x, y)
    np.testing.assert_allclose(found, np.sqrt(squares), **TIGHT)


def test_modules_are_parameters():
    net = pb.nn.Sequential(
        pb.nn.Linear(4, 3, key=pb.random.key(0)), pb.nn.Tanh(), pb.nn.Linear(3, 2, key=pb.random.key(1))
    )
    params = net.arrays()
    x, y = rng.normal(size=(5, 4)).astype("float32"), rng.integers(0, 2, 5)

    def f(net, x, y):
        return C.categorical(net(x), y)

    wanted = np.linalg.norm(sample_gradients(f, params, x, y), axis=1)
    found = pb.jit(C.per_sample_norms(f))(params, x, y)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    assert type(C.ggn_diagonal(lambda net, x: net(x), C.categorical)(params, x, y)) is type(params)


def test_second_order_of_norms_and_diagonals():
    """The gradient of a penalty on per-sample norms, and of a Gauss-Newton diagonal, by the parameters."""
    model, loss, params, x, y = case("mlp")

    def f(p, x, y):
        return loss(model(p, x), y)

    def by_loop(p):
        return sum(pb.sum(g**2) for a, b in zip(x, y, strict=True) for g in pb.tree.leaves(pb.grad(f)(p, a, b)))

    wanted = flat(pb.grad(by_loop)(params))

    def found(p):
        return pb.sum(C.per_sample_norms(f)(p, x, y) ** 2)

    np.testing.assert_allclose(flat(pb.grad(found)(params)), wanted, **TIGHT)
    np.testing.assert_allclose(flat(pb.jit(pb.grad(found))(params)), wanted, **TIGHT)

    def trace(p):
        return sum(pb.sum(d) for d in pb.tree.leaves(C.ggn_diagonal(model, loss)(p, x, y)))

    direction = pb.tree.map(lambda v: rng.normal(size=v.shape), params)
    ahead, behind = (trace(pb.tree.map(lambda v, d: v + s * d, params, direction)) for s in (1e-5, -1e-5))  # noqa: B023
    along = flat(pb.grad(trace)(params)) @ flat(direction)
    np.testing.assert_allclose(along, (ahead - behind) / 2e-5, rtol=1e-6)


def test_under_vmap_and_jvp_over_parameters():
    model, loss, params, x, y = case("mlp")

    def f(p, x, y):
        return loss(model(p, x), y)

    many = pb.tree.map(lambda v: np.stack([v, 2 * v]), params)
    found = pb.vmap(lambda p: C.per_sample_norms(f)(p, x, y))(many)
    np.testing.assert_allclose(found[0], C.per_sample_norms(f)(params, x, y), **TIGHT)
    twofold = pb.tree.map(lambda v: 2 * v, params)
    np.testing.assert_allclose(found[1], C.per_sample_norms(f)(twofold, x, y), **TIGHT)
    _, along = pb.jvp(lambda p: C.per_sample_norms(f)(p, x, y), (params,), (params,))
    ahead, behind = (C.per_sample_norms(f)(pb.tree.map(lambda v: s * v, params), x, y) for s in (1 + 1e-5, 1 - 1e-5))  # noqa: B023
    np.testing.assert_allclose(along, (ahead - behind) / 2e-5, rtol=1e-7)


def captured_norms(w, x, y, c):
    return C.per_sample_norms(lambda w, x: pb.sum(pb.tanh(x @ w) * c))(w, x)


def captured_diagonal(w, x, y, c):
    return C.ggn_diagonal(lambda w, x: pb.tanh(x @ w) * c, C.normal)(w, x, y)


def captured_factor(w, x, y, c):
    return C.kfac_factors(lambda w, x: pb.tanh(x @ w) * c, C.normal)(w, x, y).right


@pytest.mark.parametrize("f", [captured_norms, captured_diagonal, captured_factor])
def test_values_of_transforms_may_be_captured(f):
    """A function of one sample closes over a value that is traced, batched or differentiated around it."""
    w, x, y, c = rng.normal(size=(4, 3)), rng.normal(size=(5, 4)), rng.normal(size=(5, 3)), rng.normal(size=3)
    wanted = f(w, x, y, c)
    np.testing.assert_allclose(pb.jit(f)(w, x, y, c), wanted, **TIGHT)
    for run in (lambda g: g, pb.jit):
        both = run(pb.vmap(lambda c: f(w, x, y, c)))(np.stack([c, 2 * c]))
        np.testing.assert_allclose(both, [wanted, f(w, x, y, 2 * c)], **TIGHT)
        slope = run(pb.grad(lambda c: pb.sum(f(w, x, y, c))))(c)
        step = 1e-5 * np.array([1.0, 2.0, 3.0])
        ahead, behind = (np.sum(f(w, x, y, c + s * step)) for s in (0.5, -0.5))
        np.testing.assert_allclose(slope @ step, ahead - behind, rtol=1e-6, atol=1e-12)


def test_loops_keys_and_networks_of_attention():
    def recurrent(w, x):
        return pb.sum(pb.scan(lambda h, v: (pb.tanh(h @ w + v), h), np.zeros(3), x)[0])

    w, x = rng.normal(size=(3, 3)), rng.normal(size=(4, 6, 3))
    wanted = np.linalg.norm(sample_gradients(recurrent, w, x), axis=1)
    np.testing.assert_allclose(C.per_sample_norms(recurrent)(w, x), wanted, **TIGHT)

    def dropped(w, x, key):
        return pb.sum(pb.nn.dropout(x @ w, 0.5, key=key) ** 2)

    keys = pb.random.split(pb.random.key(0), 4)
    wanted = np.linalg.norm(sample_gradients(dropped, w, x, keys), axis=1)
    np.testing.assert_allclose(C.per_sample_norms(dropped)(w, x, keys), wanted, **TIGHT)

    params = pb.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, key=pb.random.key(0)).arrays()
    x = rng.normal(size=(3, 5, 8)).astype("float32")

    def encoded(net, x):
        return pb.sum(pb.tanh(net(x[None])))

    leaves = stage_gradient(encoded, read_batch("test", params, (x,))).leaves
    matrices = [p.ndim == 2 for p in pb.tree.leaves(params)]
    assert [leaf.layout is not None for leaf in leaves] == matrices
    wanted = np.linalg.norm(sample_gradients(encoded, params, x), axis=1)
    np.testing.assert_allclose(C.per_sample_norms(encoded)(params, x), wanted, rtol=1e-4)


def test_no_parameters_and_vanishing_gradients():
    x = rng.normal(size=(3, 2))
    np.testing.assert_array_equal(C.per_sample_norms(lambda p, x: pb.sum(x))({}, x), np.zeros(3))
    assert C.per_sample_grad(lambda p, x: pb.sum(x))({}, x) == {}
    assert C.ggn_diagonal(lambda p, x: x, C.normal)({}, x, x) == {}

    def zero(w):
        return pb.sum(C.per_sample_norms(lambda w, x: pb.sum((x @ w) ** 2))(w, x))

    assert float(zero(np.zeros((2, 2)))) == 0
    np.testing.assert_array_equal(pb.grad(zero)(np.zeros((2, 2))), np.zeros((2, 2)))  # and not NaN


def test_half_precision_is_widened_before_it_is_squared():
    w, x = np.full((4, 3), 0.25, np.float16), np.full((2, 4), 64, np.float16)

    def f(w, x):
        return pb.sum(x @ w)

    found = C.gradient_statistics(f)(w, x)
    assert found.norms.dtype == np.float32
    np.testing.assert_allclose(found.norms, 64 * np.sqrt(12), rtol=1e-6)

    def f(w, x):
        return pb.sum(x @ w) * 16  # 1024 squared is no float16

    np.testing.assert_allclose(C.gradient_statistics(f)(w, x).second_moment, 1024.0**2, rtol=1e-6)


def test_threads_share_nothing():
    model, loss, params, x, y = case("mlp")

    def f(p, x, y):
        return loss(model(p, x), y)

    wanted, found = C.per_sample_norms(f)(params, x, y), {}

    def work(i):
        found[i] = C.per_sample_norms(f)(params, x * (1 + i), y) if i else C.per_sample_norms(f)(params, x, y)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    np.testing.assert_array_equal(found[0], wanted)
    np.testing.assert_allclose(found[2], C.per_sample_norms(f)(params, x * 3, y), **TIGHT)


def test_captured_tensors_and_checkpoints():
    """What a function closes over stays differentiable; checkpoints inside it change nothing."""
    model, loss, params, x, y = case("mlp")
    scale = pb.tensor(1.5, requires_grad=True)
    total = pb.sum(C.per_sample_norms(lambda p, x, y: scale * loss(model(p, x), y))(params, x, y))
    total.backward()
    np.testing.assert_allclose(float(scale.grad) * 1.5, total.item(), rtol=1e-12)
    plain = C.per_sample_norms(lambda p, x, y: loss(model(p, x), y))(params, x, y)
    again = C.per_sample_norms(lambda p, x, y: loss(pb.checkpoint(model)(p, x), y))(params, x, y)
    np.testing.assert_allclose(again, plain, **TIGHT)


def test_long_sums_are_not_followed_for_ever():
    """A matrix used in each of many steps of an unrolled loop: the gradient is multiplied out."""

    def recurrent(w, x):
        h = x[0]
        for row in x[1:]:
            h = pb.tanh(h @ w) + row
        return pb.sum(h)

    for steps in (5, 200):
        w, x = rng.normal(size=(3, 3)) / 2, rng.normal(size=(2, steps, 3))

        def f(w, x):
            return recurrent(w, [x[i] for i in range(steps)])  # noqa: B023

        wanted = np.linalg.norm(sample_gradients(f, w, x), axis=1)
        np.testing.assert_allclose(C.per_sample_norms(f)(w, x), wanted, **TIGHT)


def kron_block(block):
    """The block of a parameter whose layout is its own order, as a dense matrix."""
    size = int(np.prod(block.layout.shape))
    return np.stack([np.ravel(block.multiply(v.reshape(block.layout.shape))) for v in np.eye(size)], axis=1)


def test_kronecker_factors_are_exact_for_one_sample_and_for_linear_models():
    for name in ("one sample", "batch as wide as a layer"):
        model, loss, params, x, y = case(name)
        x, y = x[:1], y[:1]
        whole = dense_ggn(model, loss, params, x, y).mean(0)
        found = C.kfac_factors(model, loss)(params, x, y)
        blocks = pb.tree.leaves(found, is_leaf=lambda b: isinstance(b, C.KroneckerBlock))
        for block, wanted in zip(blocks, blocks_of(whole, params), strict=True):
            np.testing.assert_allclose(kron_block(block), wanted, **TIGHT)
    w, x, y = rng.normal(size=(4, 3)), rng.normal(size=(7, 4)), rng.normal(size=(7, 3))

    def linear(w, x):
        return x @ w

    block = pb.jit(C.kfac_factors(linear, C.normal))(w, x, y)
    whole = dense_ggn(linear, C.normal, w, x, y).mean(0)
    np.testing.assert_allclose(kron_block(block), whole, **TIGHT)
    v = rng.normal(size=w.shape)
    wanted = np.linalg.solve(whole + 0.1 * np.eye(12), v.ravel())
    np.testing.assert_allclose(np.ravel(block.solve(v, 0.1)), wanted, **TIGHT)
    block = C.fisher_factors(linear, C.normal, reduction="sum")(w, x)
    np.testing.assert_allclose(kron_block(block), 7 * whole, **TIGHT)


def test_shared_matrices_are_expanded_or_reduced():
    """Exact for linear models: expanded if the loss is a sum over places, reduced if the model averages them."""
    w, x = rng.normal(size=(3, 2)), rng.normal(size=(5, 4, 3))
    each, pooled = (lambda w, x: x @ w), (lambda w, x: pb.mean(x @ w, axis=0))
    y, means = rng.normal(size=(5, 4, 2)), rng.normal(size=(5, 2))

    def flat_each(w, x):
        return pb.reshape(x @ w, (8,))

    expanded = C.kfac_factors(each, C.normal)(w, x, y)
    np.testing.assert_allclose(
        kron_block(expanded), dense_ggn(flat_each, C.normal, w, x, y.reshape(5, 8)).mean(0), **TIGHT
    )
    reduced = C.kfac_factors(pooled, C.normal, sharing="reduce")(w, x, means)
    np.testing.assert_allclose(kron_block(reduced), dense_ggn(pooled, C.normal, w, x, means).mean(0), **TIGHT)


def test_factors_of_stacks_and_of_large_parameters_without_factors():
    model, loss, params, x, y = case("heads")
    block = C.kfac_factors(model, loss)(params, x[:1, :1], y[:1])
    whole = blocks_of(dense_ggn(model, loss, params, x[:1, :1], y[:1]).mean(0), params)[0].reshape(2, 12, 2, 12)
    found = kron_block(block).reshape(2, 12, 2, 12)
    for i in range(2):  # each head has a block of its own; what is between heads is left out
        np.testing.assert_allclose(found[i, :, i], whole[i, :, i], **TIGHT)
    assert np.abs(found[0, :, 1]).max() == 0
    gain, x = rng.normal(size=600), rng.normal(size=(3, 600))
    scaled = C.kfac_factors(lambda g, x: pb.reshape(pb.sum(g * x), (1,)), C.normal)(gain, x, np.zeros((3, 1)))
    assert scaled.is_diagonal
    np.testing.assert_allclose(scaled.multiply(np.ones(600)), (x**2).mean(0), **TIGHT)
    np.testing.assert_allclose(scaled.solve(np.ones(600), 0.5), 1 / ((x**2).mean(0) + 0.5), **TIGHT)


def train(rule, model, loss, params, x, y, steps):
    def step(params, state):
        def f(p):
            return pb.mean(pb.vmap(lambda a, b: loss(model(p, a), b))(x, y))

        value, grads = pb.value_and_grad(f)(params)
        updates, state = rule.update(grads, state, params, batch=((x,), (y,)))
        return pb.optim.apply_updates(params, updates), state, value

    compiled, state, values = pb.jit(step), rule.init(params), []
    for _ in range(steps):
        params, state, value = compiled(params, state)
        values.append(float(value))
    return params, values


def test_kfac_solves_least_squares_in_one_step():
    x, y, w = rng.normal(size=(20, 4)), rng.normal(size=(20, 3)), rng.normal(size=(4, 3))

    def linear(w, x):
        return x @ w

    rule = pb.optim.kfac(1.0, linear, C.normal, example=((x[:2],), (y[:2],)), damping=1e-24, period=1)
    found, _ = train(rule, linear, C.normal, w, x, y, 1)
    np.testing.assert_allclose(found, np.linalg.lstsq(x, y, rcond=None)[0], **TIGHT)


def test_kfac_is_the_exact_natural_gradient_of_a_linear_softmax_model_of_one_sample():
    x, y, w = rng.normal(size=(1, 4)), np.array([2]), rng.normal(size=(4, 3))

    def linear(w, x):
        return x @ w

    rule = pb.optim.kfac(1.0, linear, C.categorical, example=((x,), (y,)), damping=1e-2)
    grads = pb.grad(lambda w: C.categorical(linear(w, x[0]), 2))(w)
    updates, _ = rule.update(grads, rule.init(w), w, batch=((x,), (y,)))
    block = C.kfac_factors(linear, C.categorical)(w, x, y).damp(1e-2)
    dense = np.kron(np.asarray(block.left[0]), np.asarray(block.right[0]))
    np.testing.assert_allclose(np.ravel(updates), -np.linalg.solve(dense, np.ravel(grads)), **TIGHT)
    assert np.linalg.eigvalsh(dense).min() >= 0.99e-2  # the damping, split between both factors


@pytest.mark.parametrize("settings", [{}, {"samples": 2, "key": pb.random.key(0)}], ids=["exact", "drawn"])
def test_kfac_trains_faster_than_gradient_descent(settings):
    own = np.random.default_rng(1)
    scales = np.array([1, 10, 0.03, 1, 0.1])
    x = own.normal(size=(60, 5)) * scales
    y = (x @ (own.normal(size=(5, 3)) / scales[:, None])).argmax(1)
    start = {name: own.normal(size=v.shape) / 3 for name, v in MLP.items()}
    rule = pb.optim.kfac(0.3, mlp, C.categorical, ((x[:3],), (y[:3],)), damping=0.01, period=3, **settings)
    _, ours = train(rule, mlp, C.categorical, start, x, y, 40)
    plain = [train(pb.optim.sgd(lr), mlp, C.categorical, start, x, y, 40)[1][-1] for lr in (0.1, 0.3, 1.0, 3.0)]
    assert ours[-1] < 0.5 * min(plain)


def test_kfac_inverts_only_every_so_many_steps_and_keeps_running_averages():
    x, y, w = rng.normal(size=(6, 4)), rng.normal(size=(6, 3)), rng.normal(size=(4, 3))

    def linear(w, x):
        return x @ w

    rule = pb.optim.kfac(0.1, linear, C.normal, ((x,), (y,)), decay=0.5, period=2)
    state, factors, inverses = rule.init(w), [], []
    for i in range(4):
        _, state = rule.update(np.ones_like(w), state, w, batch=((x * (i + 1),), (y,)))
        inner = next(s for s in pb.tree.leaves(state, is_leaf=lambda s: isinstance(s, pb.optim.State)) if s.slots)
        factors.append(np.asarray(inner.slots["factors"][0].left[0]))
        inverses.append(np.asarray(inner.slots["inverses"][0].left[0]))
    first = x.T @ x / 6
    np.testing.assert_allclose(factors[1], 0.5 * 0.5 * first + 0.5 * 4 * first, **TIGHT)
    assert np.array_equal(inverses[0], inverses[1])
    assert np.array_equal(inverses[2], inverses[3])
    assert not np.array_equal(inverses[1], inverses[2])


def test_kfac_can_be_pickled_and_refuses_what_it_cannot_use():
    x, y, w = np.ones((2, 3)), np.ones((2, 1)), np.ones((3, 1))
    rule = pickle.loads(pickle.dumps(pb.optim.kfac(0.1, np.matmul, pb.nn.mse_loss, ((x,), (y,)))))
    assert rule.name == "kfac"
    rule = pb.optim.kfac(0.1, lambda w, x: x @ w, C.normal, ((x,), (y,)))
    with pytest.raises(ArgumentError, match="batch= is \\(inputs, targets\\)"):
        rule.update(w, rule.init(w), w)
    with pytest.raises(ArgumentError, match="is a likelihood"):
        pb.optim.kfac(0.1, lambda w, x: x @ w, lambda z, y: z, ((x,), (y,)), samples=1, key=pb.random.key(0))


def symmetric(n, values):
    q, _ = np.linalg.qr(np.random.default_rng(n).normal(size=(n, n)))
    return (q * values) @ q.T


def test_hutchinson_is_unbiased_and_says_its_error():
    a = symmetric(12, np.linspace(-1, 3, 12))
    found = pb.jit(lambda key: C.hutchinson_trace(lambda v: a @ v, np.zeros(12), key, samples=500))(pb.random.key(1))
    assert abs(found.value - np.trace(a)) <= 4 * found.standard_error
    spread = np.sqrt(2 * ((a - np.diag(np.diag(a))) ** 2).sum() / 500)
    np.testing.assert_allclose(found.standard_error, spread, rtol=0.2)
    each = C.hutchinson_diagonal(lambda v: {"x": a[:4, :4] @ v["x"]}, {"x": np.zeros(4)}, pb.random.key(2), 800)
    assert np.all(np.abs(each.value["x"] - np.diag(a)[:4]) <= 4.5 * each.standard_error["x"])
    assert np.isnan(C.hutchinson_trace(lambda v: v, np.zeros(3), pb.random.key(0), 1).standard_error)


@pytest.mark.parametrize("chunk", [1, 4, 64])
def test_hessian_diagonal_is_that_of_the_dense_hessian(chunk):
    model, loss, params, x, y = case("mlp")

    def f(p, x):
        return pb.mean(pb.vmap(lambda a, b: loss(model(p, a), b))(x, y))

    vector, unravel = pb.ravel_pytree(params)
    wanted = np.diag(pb.hessian(lambda v: f(unravel(v), x))(vector))
    np.testing.assert_allclose(flat(pb.jit(C.hessian_diagonal(f, chunk))(params, x)), wanted, **TIGHT)


def test_lanczos_finds_all_eigenvalues_also_equal_ones():
    values = np.array([-2.0, 0.0, 0.0, 1.0, 1.0, 1.0, 5.0, 7.5])
    a = symmetric(8, values)
    found = pb.jit(lambda key: C.lanczos(lambda v: a @ v, np.zeros(8), key, 8))(pb.random.key(0))
    np.testing.assert_allclose(np.linalg.eigvalsh(found.matrix()), values, atol=1e-9)
    np.testing.assert_allclose(found.vectors @ found.vectors.T, np.eye(8), atol=1e-12)
    np.testing.assert_allclose(found.vectors.T @ found.matrix() @ found.vectors, a, atol=1e-9)
    one = C.lanczos(lambda v: 3.0 * v, np.zeros(1), pb.random.key(0), 1)
    np.testing.assert_allclose(one.matrix(), [[3.0]])


def test_top_eigenpairs_of_a_hessian():
    model, loss, params, x, y = case("mlp")

    def f(p):
        return pb.mean(pb.vmap(lambda a, b: loss(model(p, a), b))(x, y))

    vector, unravel = pb.ravel_pytree(params)
    whole = pb.hessian(lambda v: f(unravel(v)))(vector)
    values = np.linalg.eigvalsh(whole)

    def product(v):
        return pb.hvp(f, (params,), (v,))

    found = pb.jit(lambda key: C.top_eigenpairs(product, params, key, 3, by="value"))(pb.random.key(0))
    np.testing.assert_allclose(found.values, values[::-1][:3], atol=1e-10)
    assert np.max(found.residuals) < 1e-9
    for i in range(3):
        v = flat(pb.tree.map(lambda t: t[i], found.vectors))  # noqa: B023
        np.testing.assert_allclose(whole @ v, found.values[i] * v, atol=1e-9)
    largest = C.top_eigenpairs(product, params, pb.random.key(1), 2, steps=25)
    wanted = values[np.argsort(-np.abs(values))][:2]
    assert np.all(np.abs(largest.values - wanted) <= largest.residuals + 1e-10)


def test_spectral_density_has_the_moments_and_counts_of_the_spectrum(tmp_path):
    values = np.concatenate([np.zeros(60), np.ones(30), [10.0, 20.0]])
    a = symmetric(92, values)
    spectrum = C.spectral_density(lambda v: a @ v, np.zeros(92), pb.random.key(0), steps=12, probes=40)
    np.testing.assert_allclose(spectrum.weights.sum(1), 1.0, rtol=1e-9)
    assert abs(float(spectrum.trace()) - 60) < 15
    grid = np.linspace(-3, 24, 2001)
    density = spectrum.density(grid, 0.2)
    np.testing.assert_allclose(np.trapezoid(density, grid), 1.0, rtol=1e-3)
    near_zero = np.trapezoid(np.where(np.abs(grid) < 0.5, density, 0), grid)
    assert abs(near_zero - 60 / 92) < 0.05
    text = spectrum.plot(tmp_path / "spectrum.svg")
    assert text.startswith("<svg")
    assert (tmp_path / "spectrum.svg").read_text() == text
    assert "Density of 92 eigenvalues" in text


def test_penalties():
    w, x, other = rng.normal(size=(3, 4)), rng.normal(size=(5, 3)), rng.normal(size=(5, 3))

    def critic(x, w):
        return pb.sum(pb.tanh(x @ w))

    def by_hand(w):
        slopes = (1 - np.tanh(x @ w) ** 2) @ w.T
        return ((np.linalg.norm(slopes, axis=1) - 1) ** 2).mean()

    np.testing.assert_allclose(C.gradient_penalty(critic, x, w), by_hand(w), **TIGHT)
    d = rng.normal(size=w.shape)
    slope = np.sum(pb.jit(pb.grad(lambda w: C.gradient_penalty(critic, x, w)))(w) * d)
    np.testing.assert_allclose(slope, (by_hand(w + 1e-5 * d) - by_hand(w - 1e-5 * d)) / 2e-5, rtol=1e-7)
    between = C.gradient_penalty(critic, x, w, toward=x, key=pb.random.key(0))
    np.testing.assert_allclose(between, by_hand(w), **TIGHT)
    drawn = [C.gradient_penalty(critic, x, w, toward=other, key=pb.random.key(s)) for s in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]
    ends = {"u": x, "v": other}, {"u": other, "v": x}
    both = [C.gradient_penalty(lambda z, w: critic(z["u"], w) + critic(z["v"], w), ends[0], w, toward=ends[1],
                               key=pb.random.key(s)) for s in (0, 0, 1)]  # fmt: skip
    assert both[0] == both[1] != both[2]
    tree = {"a": np.array([3.0]), "b": np.array(4.0)}
    norm = C.grad_norm(lambda p: p["a"][0] ** 2 / 2 + p["b"] ** 2 / 2)
    assert float(norm(tree)) == 5.0
    np.testing.assert_allclose(pb.grad(norm)(tree)["b"], 0.8)
    assert float(pb.grad(C.grad_norm(lambda x: x * x))(0.0)) == 0.0


def test_wrong_arguments_are_named():
    def f(w, x):
        return pb.sum(x @ w)

    w, x = np.ones((2, 2)), np.ones((3, 2))
    with pytest.raises(ShapeError, match="one sample for each place of their first axis"):
        C.per_sample_norms(f)(w, 1.0)
    with pytest.raises(ShapeError, match="first axis"):
        C.gradient_statistics(lambda w, x, y: f(w, x))(w, x, np.ones(4))
    with pytest.raises(ShapeError, match="got none"):
        C.per_sample_grad(lambda w: pb.sum(w))(w)
    with pytest.raises(DtypeError, match="parameters are real"):
        C.per_sample_norms(lambda w, x: pb.sum(pb.abs(x @ w)))(w + 0j, x)
    with pytest.raises(ArgumentError, match="wanted a scalar"):
        C.per_sample_norms(lambda w, x: x @ w)(w, x)
    with pytest.raises(ArgumentError, match="returns one array"):
        C.ggn_diagonal(lambda w, x: (x, x), C.normal)(w, x, x)
    with pytest.raises(ArgumentError, match='"mean" or "sum"'):
        C.ggn_diagonal(f, C.normal, reduction="none")
    with pytest.raises(ArgumentError, match="wants a likelihood"):
        C.fisher_diagonal(f, pb.nn.mse_loss)(w, x)
    with pytest.raises(ArgumentError, match="both samples="):
        C.fisher_diagonal(f, C.normal, samples=2)(w, x)
    with pytest.raises(ArgumentError, match="more than the 2 elements"):
        C.lanczos(lambda v: v, np.zeros(2), pb.random.key(0), 3)
    with pytest.raises(ArgumentError, match="give both or none"):
        C.gradient_penalty(lambda x: pb.sum(x), x, toward=x)
    with pytest.raises(ShapeError, match="toward= is like x"):
        C.gradient_penalty(lambda x: pb.sum(x), x, toward=x[:2], key=pb.random.key(0))
