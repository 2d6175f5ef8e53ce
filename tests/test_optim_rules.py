"""Rules against what their papers say, and in every role: compiled, batched, in float32, differentiated."""

import numpy as np
import optimisers as plain
import pytest

import pullback as pb
from pullback.arrays.trees import flatten

optim = pb.optim
rng = np.random.default_rng(0)
INPUTS, TARGETS = rng.normal(size=(10, 4)), rng.normal(size=(10, 3))
PARAMS = {"w": rng.normal(size=(4, 3)), "v": rng.normal(size=(3, 3))}


def loss(params):
    return pb.mean((pb.tanh(INPUTS.astype(params["w"].dtype) @ params["w"]) @ params["v"] - TARGETS) ** 2)


def gradient(params):
    """By hand, in NumPy."""
    hidden = np.tanh(INPUTS @ params["w"])
    bar = 2 * (hidden @ params["v"] - TARGETS) / TARGETS.size
    return {"w": INPUTS.T @ (bar @ params["v"].T * (1 - hidden**2)), "v": hidden.T @ bar}


SETTINGS = [
    ("sgd", {"lr": 0.3}),
    ("sgd", {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}),
    ("sgd", {"lr": 0.1, "momentum": 0.5, "nesterov": True}),
    ("adam", {"lr": 0.05}),
    ("adam", {"lr": 0.5, "betas": (0.5, 0.6), "eps": 1e-3, "weight_decay": 0.1}),
    ("adam", {"lr": 0.5, "betas": (0.5, 0.6), "amsgrad": True}),
    ("adamax", {"lr": 0.05}),
    ("adamax", {"lr": 0.5, "betas": (0.5, 0.6)}),
    ("nadam", {"lr": 0.05}),
    ("nadam", {"lr": 0.05, "betas": (0.5, 0.6), "momentum_decay": 0.5}),
    ("radam", {"lr": 0.05}),
    ("radam", {"lr": 0.05, "betas": (0.5, 0.9)}),
    ("adagrad", {"lr": 0.1}),
    ("adagrad", {"lr": 0.1, "eps": 0.1, "initial": 0.5}),
    ("rmsprop", {"lr": 0.05}),
    ("rmsprop", {"lr": 0.05, "decay": 0.5, "centered": True, "momentum": 0.9, "eps": 1e-2}),
    ("adadelta", {}),
    ("adadelta", {"lr": 0.5, "decay": 0.5, "eps": 1e-2}),
    ("adafactor", {}),
    ("adafactor", {"lr": 1.0, "decay": 0.5, "clip": 0.5, "weight_decay": 0.01}),
    ("lion", {"lr": 0.01}),
    ("lion", {"lr": 0.01, "betas": (0.5, 0.6), "weight_decay": 0.1}),
    ("lamb", {"lr": 0.05}),
    ("lamb", {"lr": 0.05, "betas": (0.5, 0.6), "weight_decay": 0.0}),
    ("lars", {"lr": 10.0}),
    ("lars", {"lr": 10.0, "momentum": 0.5, "weight_decay": 0.1, "trust": 0.01}),
    ("rprop", {}),
    ("rprop", {"lr": 0.1, "factors": (0.3, 2.0), "limits": (0.05, 0.2)}),
    ("muon", {"lr": 0.05}),
    ("muon", {"lr": 0.05, "momentum": 0.5, "nesterov": False, "steps": 3, "weight_decay": 0.1}),
    ("shampoo", {"lr": 0.1}),
    ("shampoo", {"lr": 0.1, "eps": 1e-2}),
]  # fmt: skip
IDS = [f"{name}-{i}" for i, (name, _) in enumerate(SETTINGS)]
#: One setting of each, for roles that hang on how a rule is written.
EACH = dict(reversed(SETTINGS)) | {"adamw": {"lr": 0.05, "weight_decay": 0.1}}


def made(name):
    return getattr(optim, name)(**EACH[name])


gradient_of_loss = pb.grad(loss)


def trained(rule, params, steps, grad=gradient_of_loss):
    state = rule.init(params)
    for _ in range(steps):
        updates, state = rule.update(grad(params), state, params)
        params = optim.apply_updates(params, updates)
    return params, state


@pytest.mark.parametrize(("name", "settings"), SETTINGS, ids=IDS)
def test_a_rule_goes_where_its_paper_goes(name, settings):
    wanted = plain.run(getattr(plain, name)(**settings), PARAMS, gradient, 12)
    rule = getattr(optim, name)(**settings)
    params, state = PARAMS, rule.init(PARAMS)
    for there in wanted:
        updates, state = rule.update(gradient(params), state, params)
        params = optim.apply_updates(params, updates)
        for leaf in params:
            np.testing.assert_allclose(params[leaf], there[leaf], rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(
    "settings", [{"lr": 0.05, "weight_decay": 0.1}, {"lr": 0.2, "betas": (0.5, 0.6), "amsgrad": True}]
)
def test_adamw_decays_weights_apart_from_the_gradient(settings):
    decay = settings.pop("weight_decay", 0.01)
    wanted = plain.run(plain.adam(**settings, decoupled=decay), PARAMS, gradient, 10)[-1]
    found, _ = trained(optim.adamw(**settings, weight_decay=decay), PARAMS, 10)
    np.testing.assert_allclose(found["w"], wanted["w"], rtol=1e-9)


def test_shampoo_and_adafactor_of_vectors_and_of_three_axes():
    params = {"a": rng.normal(size=5), "b": rng.normal(size=(2, 3, 4))}

    def pull(p):
        return {"a": np.sin(p["a"]), "b": p["b"] ** 3}

    for name, settings in (("shampoo", {"lr": 0.1}), ("adafactor", {"lr": 0.1})):
        wanted = plain.run(getattr(plain, name)(**settings), params, pull, 6)[-1]
        rule, found = getattr(optim, name)(**settings), params
        state = rule.init(found)
        for _ in range(6):
            updates, state = rule.update(pull(found), state, found)
            found = optim.apply_updates(found, updates)
        for leaf in params:
            np.testing.assert_allclose(found[leaf], wanted[leaf], rtol=1e-7)


def test_shampoo_leaves_long_axes_alone():
    rule, w = optim.shampoo(1.0, largest=2), np.zeros((3, 2))
    g = rng.normal(size=(3, 2))
    values, vectors = np.linalg.eigh(1e-4 * np.eye(2) + g.T @ g)  # of the short axis alone, a root of order 4
    np.testing.assert_allclose(
        rule.update(g, rule.init(w), w)[0], -g @ (vectors * values**-0.25 @ vectors.T), rtol=1e-7
    )


@pytest.mark.parametrize("name", EACH)
def test_compiled_steps_are_the_same_and_happen_in_place(name):
    rule = made(name)
    params = {k: v.copy() for k, v in PARAMS.items()}
    state = rule.init(params)

    def step(params, state):
        updates, state = rule.update(pb.grad(loss)(params), state, params)
        return optim.apply_updates(params, updates), state

    compiled, first = pb.jit(step, donate_argnums=(0, 1)), params["w"]
    for _ in range(3):
        params, state = compiled(params, state)
    assert params["w"] is first
    wanted, there = trained(rule, PARAMS, 3)
    np.testing.assert_allclose(params["w"], wanted["w"], rtol=1e-8, atol=1e-12)
    for one, other in zip(leaves(state), leaves(there), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-12)
        assert one.dtype == other.dtype


def leaves(tree):
    return flatten(tree)[0]


@pytest.mark.parametrize("name", EACH)
def test_a_float32_program_stays_one(name):
    small = {k: v.astype(np.float32) for k, v in PARAMS.items()}
    rule = made(name)
    found, state = trained(rule, small, 2, pb.grad(lambda p: loss(p).astype(np.float32)))
    assert {x.dtype for x in found.values()} == {np.dtype(np.float32)}
    kinds = {x.dtype.name for x in leaves(state) if x.ndim}
    assert kinds <= {"float32"}
    assert all(type(x) is np.ndarray for x in leaves(state))


@pytest.mark.parametrize("name", EACH)
def test_rules_are_batched(name):
    rule = made(name)
    many = {k: np.stack([v, 2 * v, v - 1]) for k, v in PARAMS.items()}
    grads = {k: np.cos(v) for k, v in many.items()}

    def step(params, grads):
        updates, state = rule.update(grads, rule.init(params), params)
        return rule.update(grads, state, params)[0] if updates else None

    found = pb.vmap(step)(many, grads)
    for i in range(3):
        wanted = step({k: v[i] for k, v in many.items()}, {k: v[i] for k, v in grads.items()})
        for leaf in wanted:
            np.testing.assert_allclose(found[leaf][i], wanted[leaf], rtol=1e-8, atol=1e-12)


#: Signs do not move with the gradient, so lengths of rprop and lion are tested by what they are.
SMOOTH = [name for name in EACH if name not in ("rprop", "adafactor")]


@pytest.mark.parametrize("name", SMOOTH)
def test_training_is_differentiated_by_the_rate(name):
    settings = {k: v for k, v in EACH[name].items() if k != "lr"}
    lr = EACH[name].get("lr", 1.0)

    def after(lr):
        return loss(trained(getattr(optim, name)(lr=lr, **settings), PARAMS, 4)[0])

    slope = float(pb.grad(after)(np.array(lr)))
    h = 1e-6 * lr
    assert slope == pytest.approx(float(after(lr + h) - after(lr - h)) / (2 * h), rel=2e-4, abs=1e-9)
    assert float(pb.jvp(after, (np.array(lr),), (np.array(1.0),))[1]) == pytest.approx(slope, rel=1e-6)


@pytest.mark.parametrize("name", SMOOTH)
def test_training_is_differentiated_by_its_start(name):
    rule, direction = made(name), {k: np.cos(np.arange(v.size)).reshape(v.shape) for k, v in PARAMS.items()}

    def after(params):
        return loss(trained(rule, params, 3)[0])

    found = pb.grad(after)(PARAMS)
    slope = sum(float(np.sum(found[k] * direction[k])) for k in PARAMS)
    h = 1e-6
    ahead, behind = ({k: PARAMS[k] + s * h * direction[k] for k in PARAMS} for s in (1, -1))
    assert slope == pytest.approx(float(after(ahead) - after(behind)) / (2 * h), rel=5e-4, abs=1e-8)


def test_training_is_differentiated_through_gradients_that_are_zero():
    rule = optim.adam(0.1)

    def after(w):
        params = w
        state = rule.init(w)
        for _ in range(3):
            g = params * np.array([1.0, 0.0])  # the second element never gets a gradient
            updates, state = rule.update(g, state, params)
            params = optim.apply_updates(params, updates)
        return pb.sum(params)

    assert pb.grad(after)(np.array([1.0, 2.0]))[1] == 1.0


def test_settings_of_adam_are_differentiated():
    def after(beta):
        return loss(trained(optim.adam(0.1, betas=(beta, 0.99)), PARAMS, 4)[0])

    h = 1e-6
    wanted = float(after(0.8 + h) - after(0.8 - h)) / (2 * h)
    assert float(pb.grad(after)(np.array(0.8))) == pytest.approx(wanted, rel=1e-4)


def test_complex_parameters_descend():
    z = np.array([1 + 2j, -3j])
    for rule in (optim.sgd(0.1, momentum=0.5), optim.adam(0.3), optim.rmsprop(0.1), optim.adagrad(1.0)):
        params, _ = trained(rule, z, 60, pb.grad(lambda z: pb.sum(pb.abs(z) ** 2)))
        assert np.max(abs(params)) < 0.5
    with pytest.raises(pb.errors.DtypeError, match="real"):
        optim.lion(0.1).init(z)


def test_scalars_empty_arrays_and_nested_trees():
    params = {"a": [np.array(1.0), ()], "b": (np.zeros((0, 2)), None)}
    rule = optim.adam(0.1)
    updates, state = rule.update(params, rule.init(params), params)
    new = optim.apply_updates(params, updates)
    assert new["b"][0].shape == (0, 2)
    assert new["b"][1] is None
    assert type(new["a"][0]) is np.ndarray
    assert state[0].steps.dtype == np.int64


def test_the_state_of_no_parameters_is_a_count():
    rule = optim.adam(0.1)
    assert rule.update({}, rule.init({}), {})[0] == {}
