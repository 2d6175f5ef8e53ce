"""Parameters of half types: rules in float32, master weights, stochastic rounding."""

import ml_dtypes
import numpy as np
import pytest

import pullback as pb

optim = pb.optim
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
HALF = [np.dtype("float16"), BFLOAT16]
rng = np.random.default_rng(0)


def train(rule, w, grads, maybe_jit=lambda f: f):
    @maybe_jit
    def step(w, state, g):
        updates, state = rule.update(g, state, w)
        return optim.apply_updates(w, updates), state

    state = rule.init(w)
    for g in grads:
        w, state = step(w, state, g)
    return w, state


def gradients(shape, dtype, count=20):
    return [(1e-2 * rng.normal(size=shape)).astype(dtype) for _ in range(count)]


@pytest.mark.parametrize("dtype", HALF)
def test_the_master_is_the_float32_run_and_the_parameter_its_rounding(dtype):
    start = rng.normal(size=(5, 4)).astype(dtype)
    grads = gradients(start.shape, dtype)
    inner = optim.adam(1e-3)
    wanted, _ = train(inner, start.astype("f"), [g.astype("f") for g in grads])
    for maybe_jit in (lambda f: f, pb.jit):
        found, state = train(optim.master_weights(inner), start, grads, maybe_jit)
        master = np.asarray(state[0].slots["master"])
        assert (found.dtype, master.dtype) == (dtype, np.float32)
        np.testing.assert_allclose(master, wanted, rtol=2e-6)
        assert np.array_equal(np.asarray(found), master.astype(dtype))


def test_masters_are_kept_of_half_types_alone_and_follow_changed_parameters():
    params = {"a": np.ones(2, "f"), "b": np.ones(2, "float16"), "c": np.ones(1)}
    grads = {"a": np.full(2, 1e-4, "f"), "b": np.full(2, 1e-4, "f"), "c": np.full(1, 1e-4)}
    rule = optim.master_weights(optim.sgd(1.0))
    params, state = train(rule, params, [grads] * 3)
    assert [p.dtype.name for p in params.values()] == ["float32", "float16", "float64"]
    np.testing.assert_allclose(params["a"], 0.9997)
    np.testing.assert_allclose(state[0].slots["master"]["b"], 0.9997)
    assert len(pb.tree.leaves(state[0])) == 1
    params["b"] = np.array([5.0, params["b"][1]], "float16")  # loaded, or clamped
    _, state = rule.update(grads, state, params)
    np.testing.assert_allclose(state[0].slots["master"]["b"], [5.0 - 1e-4, 0.9996])


def test_a_large_step_arrives_too():
    start, grads = np.array([1.0, -3.0, 1e-4, 100.0], "float16"), [np.array([0.99999, -9.0, 50.0, 99.9999], "f")]
    found, state = train(optim.master_weights(optim.sgd(1.0)), start, grads)
    np.testing.assert_allclose(found, state[0].slots["master"], rtol=2e-3)


@pytest.mark.parametrize("dtype", HALF)
def test_every_flat_rule_computes_in_float32(dtype):
    start, grads = np.ones((2, 3), dtype), [np.full((2, 3), 2e-4, dtype)] * 2
    rules = [
        optim.adam(1e-3), optim.adamw(1e-3), optim.sgd(0.1, momentum=0.9), optim.rmsprop(1e-3), optim.lamb(1e-3),
        optim.lion(1e-3), optim.adafactor(1e-3), optim.chain(optim.clip_by_global_norm(1e-4), optim.sgd(0.1)),
        optim.multi_steps(optim.adam(1e-3), 2), optim.lookahead(optim.adam(1e-3), 2), optim.muon(1e-3),
        optim.adam(optim.schedules.exponential(1e-3, 0.5)), optim.sgd(optim.schedules.constant(0.1)),
        optim.apply_if_finite(optim.adam(1e-3)), optim.chain(optim.sgd(0.1), optim.freeze(False)),
    ]  # fmt: skip
    for rule in rules:
        found, state = train(rule, start, grads)
        wanted, reference = train(rule, start.astype("f"), [g.astype("f") for g in grads])
        assert found.dtype == dtype
        # rounded after each of two steps
        np.testing.assert_allclose(np.asarray(found, "f"), wanted, rtol=2 * float(ml_dtypes.finfo(dtype).eps))
        for a, b in zip(pb.tree.leaves(state), pb.tree.leaves(reference), strict=True):
            assert a.dtype == b.dtype, rule.name
    for average in (optim.ema(0.999), optim.swa()):
        assert average.update(start, average.init(start)).slots["average"].dtype == np.float32


@pytest.mark.parametrize("jit", [None, True])
def test_stateful_optimizers_have_masters_too(jit):
    w = pb.tensor(np.ones(3, BFLOAT16), requires_grad=True)
    b = pb.tensor(np.ones(2, "f"), requires_grad=True)
    opt = optim.Optimizer(optim.scaled(optim.master_weights(optim.sgd(0.5)), init_scale=4.0), [w, b], jit=jit)
    for k in range(4):  # the third is skipped, the fourth has half the scale
        w.grad = pb.tensor(np.full(3, np.inf if k == 2 else 4e-3).astype(BFLOAT16))
        b.grad = pb.tensor(np.full(2, 4e-3, "f"))
        opt.step()
    state = opt.groups[0].state
    np.testing.assert_allclose(state[1][0].slots["master"][0], 1 - 2e-3, rtol=1e-4)
    np.testing.assert_allclose(b.tolist(), 1 - 2e-3, rtol=1e-6)
    assert np.array_equal(w.detach().numpy(), np.asarray(state[1][0].slots["master"][0]).astype(BFLOAT16))
    assert (int(state[0].steps), float(optim.loss_scale(state))) == (1, 2.0)
    again = optim.Optimizer(optim.scaled(optim.master_weights(optim.sgd(0.5))), [w, b])
    again.load_state_dict(opt.state_dict())
    assert float(optim.loss_scale(again.groups[0].state)) == 2.0


def neighbours(x, dtype):
    """The numbers of a half type around each x, by bits."""
    near = x.astype(dtype)
    bits = near.view(np.int16)
    away = (bits + np.where(np.abs(near.astype("f")) < np.abs(x), 1, -1).astype(np.int16)).view(dtype)
    return near.astype("f"), np.where(near.astype("f") == x, near, away).astype("f")


@pytest.mark.parametrize("dtype", HALF)
def test_stochastic_rounding_is_to_a_neighbour_and_right_on_average(dtype):
    sizes = 10.0 ** rng.uniform(-7 if dtype == "float16" else -38, 4, size=200)
    x = (rng.choice([-1.0, 1.0], 200) * sizes).astype("f")
    x[:5] = [0.0, 1.0, -2.5, 1 + 2.0**-11, -(1 + 2.0**-8)]
    rounded = pb.jit(pb.vmap(lambda key: pb.amp.stochastic_round(x, dtype, key=key)))(
        pb.random.split(pb.random.key(1), 500)
    )
    rounded = np.asarray(rounded).astype("f")
    near, other = neighbours(x, dtype)
    assert np.all((rounded == near) | (rounded == other))
    distance = np.abs(near.astype("d") - other)
    moved = distance > 0
    chance = np.abs(x.astype("d") - near)[moved] / distance[moved]
    share = np.mean(rounded != near, axis=0)[moved]
    sigma = np.sqrt(np.maximum(chance * (1 - chance), 1e-4) / 500)
    assert np.max(np.abs(share - chance) / sigma) < 5


@pytest.mark.parametrize("dtype", HALF)
def test_stochastic_rounding_at_the_ends_and_its_derivative(dtype):
    x = np.array([np.inf, -np.inf, np.nan, 0.0, 1.0], "f")
    key = pb.random.key(0)
    found = pb.amp.stochastic_round(x, dtype, key=key)
    np.testing.assert_array_equal(np.asarray(found).astype("f"), x)
    top = float(ml_dtypes.finfo(dtype).max)
    beyond = np.full(64, np.nextafter(np.float32(top), np.float32(np.inf)), "f")
    assert np.all(np.asarray(pb.amp.stochastic_round(beyond, dtype, key=key)).astype("f") == top)
    y = rng.normal(size=7).astype("f")
    round_y = lambda y: pb.amp.stochastic_round(y, dtype, key=key)  # noqa: E731
    assert np.array_equal(np.asarray(round_y(y)), np.asarray(pb.jit(round_y)(y)))
    slope = pb.grad(lambda y: pb.sum(pb.amp.stochastic_round(y, dtype, key=key).astype("float32")))(y)
    assert np.all(slope == 1)
    for wrong in ("float32", "float64"):
        with pytest.raises(pb.errors.ArgumentError, match="float16 or bfloat16"):
            pb.amp.stochastic_round(y, wrong, key=key)
    with pytest.raises(pb.errors.DtypeError, match="rounds float32"):
        pb.amp.stochastic_round(y.astype("d"), dtype, key=key)


@pytest.mark.parametrize("dtype", HALF)
def test_small_steps_are_not_lost_on_average_and_runs_repeat(dtype):
    start, grads = np.ones(2000, dtype), [np.full(2000, 2e-4, dtype)] * 10
    plain, _ = train(optim.sgd(1.0), start, grads)
    assert np.all(plain == start)
    rule = optim.stochastic_rounding(optim.sgd(1.0), seed=3)
    found, state = train(rule, start, grads)
    eps = float(ml_dtypes.finfo(dtype).eps)
    # a sum of ten draws with chances near 0.002 / eps
    assert abs(np.mean(np.asarray(found, "d")) - (1 - 10 * float(grads[0][0]))) < 5 * np.sqrt(10 * 2e-4 * eps / 2000)
    assert int(state[0].steps) == 10
    again, _ = train(rule, start, grads, pb.jit)
    assert np.array_equal(np.asarray(found), np.asarray(again))
    half, middle = train(rule, start, grads[:5])
    for g in grads[5:]:
        updates, middle = rule.update(g, middle, half)
        half = optim.apply_updates(half, updates)
    assert np.array_equal(np.asarray(found), np.asarray(half))
    other, _ = train(optim.stochastic_rounding(optim.sgd(1.0), seed=4), start, grads)
    assert not np.array_equal(np.asarray(found), np.asarray(other))


def test_stochastic_rounding_leaves_other_parameters_and_runs_in_batches():
    rule = optim.stochastic_rounding(optim.sgd(1.0))
    params = {"a": np.ones(3, "f"), "b": np.ones(3, "float16")}
    grads = {"a": np.full(3, 1e-4, "f"), "b": np.full(3, 1e-4, "float16")}
    found, _ = train(rule, params, [grads])
    np.testing.assert_allclose(found["a"], 1 - 1e-4)
    seeds = pb.vmap(lambda p: train(rule, {**params, "b": p}, [grads])[0]["b"])(np.ones((4, 3), "float16"))
    assert (seeds.shape, seeds.dtype) == ((4, 3), np.float16)


def test_graphs_round_half_parameters_once():
    g = pb.Graph()
    w = g.variable("w", np.ones(2, "float16"))
    loss = pb.sum(w.astype("float32") * np.float32(1e-4))
    (dw,) = g.gradients(loss, [w])
    step = g.compile(loss, updates=optim.master_weights(optim.sgd(1.0)).updates([(w, dw)]))
    for _ in range(10):
        step()
    np.testing.assert_allclose(g.read(w).astype("f"), 0.999, rtol=1e-3)


def test_states_of_other_rules_are_refused():
    w = np.ones(2, "float16")
    for rule in (optim.master_weights(optim.sgd(0.1)), optim.stochastic_rounding(optim.sgd(0.1))):
        with pytest.raises(pb.errors.ArgumentError, match="state"):
            rule.update(w, optim.adam(0.1).init(w), w)
