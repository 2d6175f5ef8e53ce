"""What is put around rules: clipping, decay, masks, labels, averages, lookahead, accumulation, noise."""

import numpy as np
import pytest

import pullback as pb

optim = pb.optim
rng = np.random.default_rng(1)
PARAMS = {"w": rng.normal(size=(3, 2)), "b": rng.normal(size=2)}
GRADS = {"w": rng.normal(size=(3, 2)), "b": rng.normal(size=2)}


def once(rule, grads=GRADS, params=PARAMS, **extra):
    return rule.update(grads, rule.init(params), params, **extra)[0]


def same(found, wanted):
    for name in wanted:
        np.testing.assert_allclose(found[name], wanted[name], rtol=1e-12)


def test_clipping_by_value_and_by_norms():
    same(once(optim.clip_by_value(0.3)), {k: np.clip(g, -0.3, 0.3) for k, g in GRADS.items()})
    size = {k: np.linalg.norm(g) for k, g in GRADS.items()}
    same(once(optim.clip_by_norm(0.5)), {k: g * min(1, 0.5 / size[k]) for k, g in GRADS.items()})
    whole = np.hypot(size["w"], size["b"])
    assert float(optim.global_norm(GRADS)) == pytest.approx(whole)
    same(once(optim.clip_by_global_norm(0.5)), {k: g * 0.5 / whole for k, g in GRADS.items()})
    same(once(optim.clip_by_global_norm(100.0)), GRADS)


def test_adaptive_clipping_is_by_unit():
    found = once(optim.adaptive_clip(0.1, eps=0.5))
    for name, axes in (("w", 0), ("b", ())):
        g, p = GRADS[name], PARAMS[name]
        size = np.sqrt(np.sum(g**2, axis=axes, keepdims=True))
        bound = 0.1 * np.maximum(np.sqrt(np.sum(p**2, axis=axes, keepdims=True)), 0.5)
        np.testing.assert_allclose(found[name], np.where(size > bound, g * bound / size, g))


@pytest.mark.parametrize(
    "rule",
    [optim.clip_by_norm(1.0), optim.clip_by_global_norm(1.0), optim.adaptive_clip(), optim.lamb(0.1), optim.lars(0.1)],
)
def test_a_gradient_of_zero_is_no_trouble_and_can_be_differentiated(rule):
    zero = {k: np.zeros_like(g) for k, g in GRADS.items()}
    assert all(np.all(np.isfinite(u)) for u in once(rule, zero).values())
    slope = pb.grad(lambda g: pb.sum(once(rule, g)["w"]))(zero)
    assert np.all(np.isfinite(slope["w"]))


def test_a_nan_is_handed_on_unless_steps_must_be_finite():
    bad = {"w": GRADS["w"], "b": np.array([np.nan, 1.0])}
    assert np.isnan(once(optim.chain(optim.clip_by_global_norm(1.0), optim.adam(0.1)), bad)["w"]).all()
    assert np.isnan(once(optim.sgd(0.1), bad)["b"][0])
    rule = optim.apply_if_finite(optim.sgd(0.1, momentum=0.9))
    for update in (rule.update, pb.jit(rule.update)):
        state = rule.init(PARAMS)
        updates, state = update(GRADS, state, PARAMS)
        same(updates, {k: -0.1 * g for k, g in GRADS.items()})
        updates, after = update(bad, state, PARAMS)
        same(updates, {k: 0 * g for k, g in GRADS.items()})
        assert int(after[0].steps) == 1
        np.testing.assert_array_equal(after[1][0].slots["momentum"]["w"], GRADS["w"])
        same(update(GRADS, after, PARAMS)[0], {k: -0.19 * g for k, g in GRADS.items()})


def test_gradients_are_centred_over_all_axes_but_the_last():
    same(once(optim.centralize()), {"w": GRADS["w"] - GRADS["w"].mean(0), "b": GRADS["b"]})


def test_weights_decay_where_the_mask_says():
    for mask in ({"w": True, "b": False}, lambda p: {k: v.ndim > 1 for k, v in p.items()}):
        found = once(optim.adamw(0.1, weight_decay=0.5, mask=mask))
        plain = once(optim.adamw(0.1, weight_decay=0.0))
        same(found, {"w": plain["w"] - 0.05 * PARAMS["w"], "b": plain["b"]})


def test_rules_by_label_and_frozen_parameters():
    rules = {"a": optim.adam(0.1), "b": optim.sgd(1.0, momentum=0.9)}
    rule = optim.multi_transform(rules, {"w": "a", "b": "b"})
    state = rule.init(PARAMS)
    compiled = pb.jit(rule.update)
    for _ in range(3):
        updates, state = compiled(GRADS, state, PARAMS)
    assert updates["b"] == pytest.approx(-(1 + 0.9 + 0.81) * GRADS["b"])
    np.testing.assert_allclose(updates["w"], -0.1 * np.sign(GRADS["w"]), rtol=1e-6)
    found = once(optim.chain(optim.sgd(1.0), optim.freeze({"w": True, "b": False})))
    same(found, {"w": 0 * GRADS["w"], "b": -GRADS["b"]})
    with pytest.raises(pb.errors.ArgumentError, match="no rule for the label 'c'; there are 'a', 'b'"):
        optim.multi_transform(rules, {"w": "c", "b": "a"}).init(PARAMS)
    with pytest.raises(pb.errors.ArgumentError, match="labels"):
        optim.multi_transform(rules, {"w": "a"}).init(PARAMS)


def test_accumulated_steps_are_those_of_the_mean_gradient():
    inner = optim.adam(0.1)
    rule = optim.multi_steps(inner, every=3)
    gradients = rng.normal(size=(9, 4))
    means = gradients.reshape(3, 3, 4).mean(1)
    for update in (rule.update, pb.jit(rule.update)):
        w = np.ones(4)
        there, mine, state = np.ones(4), inner.init(w), rule.init(w)
        for i, g in enumerate(gradients):
            updates, state = update(g, state, w)
            w = optim.apply_updates(w, updates)
            if i % 3 == 2:
                step, mine = inner.update(means[i // 3], mine, there)
                there = optim.apply_updates(there, step)
            np.testing.assert_allclose(w, there, rtol=1e-12)


def test_lookahead_returns_part_of_the_way():
    rule = optim.lookahead(optim.sgd(0.1, momentum=0.9), every=3, step_size=0.25)
    for update in (rule.update, pb.jit(rule.update)):
        w, state = np.array([1.0]), rule.init(np.array([1.0]))
        fast = slow = 1.0
        m = 0.0
        for t in range(1, 8):
            updates, state = update(2 * w, state, w)
            w = optim.apply_updates(w, updates)
            m = 0.9 * m + 2 * fast
            fast -= 0.1 * m
            if t % 3 == 0:
                slow += 0.25 * (fast - slow)
                fast = slow
            assert w[0] == pytest.approx(fast)


def test_averages_of_parameters():
    values = rng.normal(size=(10, 3))
    decay = 0.8
    weights = decay ** np.arange(9, -1, -1)
    for average, wanted in (
        (optim.ema(decay), (weights[:, None] * values).sum(0) / weights.sum()),
        (optim.ema(decay, debias=False), 0.2 * (weights[:, None] * values).sum(0) + decay**10 * values[0]),
        (optim.swa(), values.mean(0)),
        (optim.swa(first=3, every=2), values[3::2].mean(0)),
    ):
        state = twin = average.init(values[0])
        compiled = pb.jit(average.update)
        for value in values:
            state, twin = average.update(value, state), compiled(value, twin)
        np.testing.assert_allclose(average.read(state), wanted)
        np.testing.assert_allclose(average.read(twin), wanted)


def test_noise_has_the_variance_it_should_and_comes_from_its_seed():
    w = np.zeros(20000)
    rule = optim.add_noise(4.0, gamma=1.0, seed=3)
    state = rule.init(w)
    first, state = rule.update(w, state, w)
    second, _ = rule.update(w, state, w)
    assert np.std(first) == pytest.approx(2.0, rel=0.03)
    assert np.std(second) == pytest.approx(2 / np.sqrt(2), rel=0.03)
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.03
    np.testing.assert_array_equal(first, rule.update(w, rule.init(w), w)[0])
    assert np.any(first != once(optim.add_noise(4.0, seed=4), w, w))
    two = once(rule, [np.zeros(5), np.zeros(5)], [np.zeros(5), np.zeros(5)])
    assert np.all(two[0] != two[1])


def test_langevin_dynamics_samples_from_the_distribution():
    """Of exp(-x^2 / 2 T) by many walkers at once: a variance of T / (1 - lr / 2)."""
    rule, x = optim.sgld(0.1, temperature=2.0), np.zeros(4000)
    state, update = rule.init(x), rule.update
    for _ in range(80):
        updates, state = update(x, state, x)
        x = optim.apply_updates(x, updates)
    assert np.var(x) == pytest.approx(2.0 / (1 - 0.05), rel=0.08)


def test_chains_hand_extra_arguments_on_and_nest():
    rule = optim.chain(optim.clip_by_value(1.0), optim.chain(optim.scale(2.0), optim.reduce_on_plateau()))
    same(once(rule, value=1.0), {k: 2 * np.clip(g, -1, 1) for k, g in GRADS.items()})
    same(once(optim.chain()), GRADS)
    with pytest.raises(pb.errors.ArgumentError, match="wants a rule"):
        optim.chain(optim.adam)
