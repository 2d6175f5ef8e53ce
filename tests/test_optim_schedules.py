"""Schedules: their values by hand, inside a compiled step, and as the rates of rules."""

import math

import numpy as np
import pytest

import pullback as pb

optim, schedules = pb.optim, pb.optim.schedules


def half_cosine(share):
    return (1 + math.cos(math.pi * share)) / 2


TABLE = [
    (schedules.constant(0.3), {0: 0.3, 99: 0.3}),
    (schedules.linear(1.0, 0.2, 4), {0: 1.0, 1: 0.8, 4: 0.2, 9: 0.2}),
    (schedules.polynomial(1.0, 0.1, 10, power=3), {0: 1.0, 5: 0.1 + 0.9 / 8, 10: 0.1, 11: 0.1}),
    (schedules.exponential(0.8, 0.5), {0: 0.8, 1: 0.4, 3: 0.1}),
    (schedules.exponential(0.8, 0.25, every=2), {1: 0.4, 2: 0.2}),
    (schedules.exponential(0.8, 0.5, end=0.3), {5: 0.3}),
    (schedules.step_decay(1.0, 0.5, every=3), {2: 1.0, 3: 0.5, 8: 0.25}),
    (schedules.piecewise(1.0, {2: 0.5, 4: 0.1}), {1: 1.0, 2: 0.5, 3: 0.5, 4: 0.05}),
    (schedules.cosine(1.0, 8, end=0.2), {0: 1.0, 2: 0.2 + 0.8 * half_cosine(0.25), 8: 0.2, 12: 0.2}),
    (schedules.cosine(1.0, 4, restart=1), {1: half_cosine(0.25), 4: 1.0, 6: 0.5, 4000: 1.0}),
    (schedules.cosine(1.0, 3, restart=3), {3: 1.0, 12: 1.0, 39: 1.0, 6: half_cosine(1 / 3), 120: 1.0}),
    (schedules.one_cycle(1.0, 11, rise=0.5), {0: 0.04, 4: 1 - 0.96 * half_cosine(4 / 4.5), 10: 4e-6, 99: 4e-6}),
    (schedules.inverse_sqrt(2.0, warmup_steps=4), {0: 0.5, 3: 2.0, 15: 1.0}),
    (schedules.warm_up(4, then=1.0, start=0.2), {0: 0.2, 2: 0.6, 4: 1.0, 9: 1.0}),
    (schedules.warm_up(4, then=schedules.exponential(1.0, 0.5)), {2: 0.5, 4: 1.0, 6: 0.25}),
    (schedules.join([schedules.linear(0.0, 1.0, 2), 0.7, schedules.exponential(1.0, 0.5)], at=[2, 5]),
     {0: 0.0, 1: 0.5, 2: 0.7, 4: 0.7, 5: 1.0, 6: 0.5}),
]  # fmt: skip


@pytest.mark.parametrize(("schedule", "wanted"), TABLE)
def test_schedules_have_the_values_of_their_formulas(schedule, wanted):
    for step, value in wanted.items():
        for given in (step, np.int64(step), np.array(step)):
            assert float(schedule(given)) == pytest.approx(value, abs=1e-12)


def test_schedules_are_the_rates_of_rules_inside_a_compiled_step():
    w, plans = np.zeros(2, np.float32), [schedule for schedule, _ in TABLE]
    rules = [optim.sgd(plan) for plan in plans]
    states = [rule.init(w) for rule in rules]

    @pb.jit
    def step(states):
        return [rule.update(np.ones(2, np.float32), state, w) for rule, state in zip(rules, states, strict=True)]

    for number in range(7):
        found = step(states)
        states = [state for _, state in found]
        for plan, (updates, state) in zip(plans, found, strict=True):
            assert updates.dtype == np.float32
            np.testing.assert_allclose(updates, -float(plan(number)), rtol=1e-6)
            assert int(state[0].steps) == number + 1


def test_schedules_are_batched_and_differentiated():
    found = pb.vmap(schedules.cosine(1.0, 10))(np.arange(4))
    np.testing.assert_allclose(found, [half_cosine(t / 10) for t in range(4)])
    assert float(pb.grad(lambda lr: schedules.cosine(lr, 10)(5))(np.array(1.0))) == pytest.approx(0.5)


def test_any_function_of_steps_is_a_schedule():
    rule, w = optim.adam(lambda t: 0.5 / (t + 1)), np.zeros(1)
    first, state = rule.update(np.ones(1), rule.init(w), w)
    second, _ = rule.update(np.ones(1), state, w)
    np.testing.assert_allclose([first[0], second[0]], [-0.5, -0.25], rtol=1e-6)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: schedules.constant(-1.0), "constant: rate must be a number"),
        (lambda: schedules.linear(1.0, 0.0, 0), "polynomial: steps must be an integer of at least 1"),
        (lambda: schedules.cosine(1.0, 2.5), "cosine: steps must be an integer"),
        (lambda: schedules.cosine(1.0, 4, restart=0.5), "restart"),
        (lambda: schedules.join([0.1, 0.2], at=[]), "2 schedules want 1 steps"),
        (lambda: schedules.join([0.1, 0.2, 0.3], at=[5, 2]), "in order"),
        (lambda: schedules.one_cycle(1.0, 10, rise=2.0), "rise"),
    ],
)
def test_schedules_that_make_no_sense(make, message):
    with pytest.raises(pb.errors.ArgumentError, match=message):
        make()


def plateau(losses, **settings):
    """The scale after each value, by hand: as PyTorch's ReduceLROnPlateau counts."""
    factor, patience, threshold = settings["factor"], settings["patience"], settings.get("threshold", 1e-4)
    best, bad, rest, scale, found = math.inf, 0, 0, 1.0, []
    for value in losses:
        if best == math.inf or value < best - threshold * abs(best):
            best, bad = value, 0
        else:
            bad += 1
        if rest:
            rest, bad = rest - 1, 0
        if bad > patience:
            scale, bad, rest = max(scale * factor, settings.get("least", 0)), 0, settings.get("cooldown", 0)
        found.append(scale)
    return found


@pytest.mark.parametrize(
    "settings",
    [
        {"factor": 0.5, "patience": 1},
        {"factor": 0.1, "patience": 0, "least": 0.05},
        {"factor": 0.5, "patience": 1, "cooldown": 2, "threshold": 0.1},
    ],
)
def test_plateau_counts_values_that_are_no_better(settings):
    losses = [3.0, 2.0, 2.0, 2.0, 1.99, 1.0, 1.0, 1.0, 1.0, 0.95, 0.5, 0.5, np.nan, 0.5, 0.5, 0.5]
    for larger in (False, True):
        rule, w = optim.reduce_on_plateau(**settings, larger_is_better=larger), np.zeros(1)
        state, compiled = rule.init(w), pb.jit(lambda g, s, w, loss, rule=rule: rule.update(g, s, w, value=loss))
        twin = state
        for loss, wanted in zip(losses, plateau(losses, **settings), strict=True):
            given = -loss if larger else loss
            updates, state = rule.update(np.ones(1), state, w, value=given)
            assert updates[0] == pytest.approx(wanted)
            again, twin = compiled(np.ones(1), twin, w, np.array(given))
            assert again[0] == pytest.approx(wanted)


def test_plateau_wants_the_loss():
    rule = optim.reduce_on_plateau()
    with pytest.raises(pb.errors.ArgumentError, match="value=loss"):
        rule.update(np.ones(1), rule.init(np.zeros(1)), np.zeros(1))
