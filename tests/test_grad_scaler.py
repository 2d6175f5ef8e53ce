"""Dynamic loss scaling, on the tape (`pb.amp.GradScaler`) and as a rule (`pb.optim.scaled`), against loops by hand."""

import contextlib
import copy
import pickle
import threading

import numpy as np
import pytest

import pullback as pb

optim = pb.optim
#: PyTorch 2.13: the scale after each step below, and the parameters after the last one, by Adam at a rate of 0.1.
BAD = {2, 3, 9}
SCALES = [1024.0, 1024.0, 512.0, 256.0, 256.0, 256.0, 512.0, 512.0, 512.0, 256.0, 256.0, 256.0]
LAST = [0.15358462929725647, 1.4295347929000854]
SETTINGS = {"init_scale": 1024.0, "growth_interval": 3}


def loss_at(w, k):
    """A loss whose gradient is infinite, in one element, at some steps."""
    loss = pb.sum((w * np.array([1.0, k % 4], "f")) ** 2)
    return loss + w[1] * np.float32(np.inf) if k in BAD else loss


def weights(*values, dtype="float32"):
    return [pb.tensor(np.array(v, dtype), requires_grad=True) for v in values]


def train(scaler, opt, w, steps=range(12)):
    scales = []
    for k in steps:
        opt.zero_grad()
        scaler.scale(loss_at(w, k)).backward()
        scaler.step(opt)
        scaler.update()
        scales.append(scaler.get_scale())
    return scales


@pytest.mark.parametrize("jit", [None, False, True])
def test_the_scaler_steps_as_pytorch_does(jit):
    (w,) = weights([1.0, 2.0])
    scaler = pb.amp.GradScaler(**SETTINGS)
    assert train(scaler, optim.Adam([w], lr=0.1, jit=jit), w) == SCALES
    np.testing.assert_allclose(w.detach().numpy(), LAST, rtol=1e-6)
    found = scaler.state_dict()
    assert (float(found["scale"]), int(found["growth_tracker"]), found["growth_interval"]) == (256.0, 2, 3)


def advance(rule, k, w, state):
    grads = pb.grad(lambda w: optim.scale_loss(loss_at(w, k), state))(w)
    updates, state = rule.update(grads, state, w)
    return optim.apply_updates(w, updates), state


def test_the_rule_steps_as_pytorch_does():
    rule, w = optim.scaled(optim.adam(0.1), **SETTINGS), np.array([1.0, 2.0], "f")
    state, scales = rule.init(w), []
    for k in range(len(SCALES)):
        before, inner = w, state[1]
        w, state = advance(rule, k, w, state)
        scales.append(float(optim.loss_scale(state)))
        if k in BAD:
            assert np.array_equal(w, before)
            for a, b in zip(pb.tree.leaves(inner), pb.tree.leaves(state[1]), strict=True):
                assert np.array_equal(a, b)
    assert scales == SCALES
    assert int(state[0].steps) == len(BAD)
    np.testing.assert_allclose(w, LAST, rtol=1e-6)


def test_a_compiled_step_is_one_program_whatever_happens():
    rule, traced = optim.scaled(optim.adam(0.1), **SETTINGS), []

    @pb.jit
    def step(w, state, k, worst):
        traced.append(1)

        def loss(w):
            value = pb.sum((w * pb.stack([1.0, k % 4]).astype("float32")) ** 2) + w[1] * worst
            return optim.scale_loss(value, state)

        updates, state = rule.update(pb.grad(loss)(w), state, w)
        return optim.apply_updates(w, updates), state

    w = np.array([1.0, 2.0], "f")
    state, scales = rule.init(w), []
    for k in range(len(SCALES)):
        w, state = step(w, state, np.float32(k), np.float32(np.inf if k in BAD else 0.0))
        scales.append(float(optim.loss_scale(state)))
    assert scales == SCALES
    np.testing.assert_allclose(w, LAST, rtol=1e-6)
    calls = len(traced)
    step(w, state, np.float32(1), np.float32(np.nan))
    assert len(traced) == calls <= 2


def test_defaults_are_pytorchs():
    scaler, state = pb.amp.GradScaler(), optim.scaled(optim.sgd(0.1)).init(np.zeros(1, "f"))
    assert scaler.get_scale() == float(optim.loss_scale(state)) == 65536.0
    known = scaler.state_dict()
    assert (known["growth_factor"], known["backoff_factor"], known["growth_interval"]) == (2.0, 0.5, 2000)


def test_a_native_optimizer_steps_by_the_rule_as_op_by_op():
    found = []
    for jit in (None, False):
        tensors = weights([[1.0, -2.0]], [3.0, 4.0, 5.0], 6.0)
        rule = optim.scaled(optim.chain(optim.clip_by_global_norm(0.5), optim.adam(0.1)), **SETTINGS)
        opt = optim.Optimizer(rule, tensors, jit=jit)
        for k in range(8):
            for i, p in enumerate(tensors):
                p.grad = pb.tensor(np.full(p.shape, np.nan if (k, i) == (3, 1) else 100.0 * k + i, "f"))
            opt.step()
        assert (opt.groups[0]._native is not None) == (jit is None)
        found.append(([t.tolist() for t in tensors], [x.tolist() for x in pb.tree.leaves(opt.groups[0].state)]))
    for one, other in zip(found[0][0], found[1][0], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)  # the norm is added up in another order
    # three finite steps, one skip, four finite steps: 1024 -> 2048 -> 1024 -> 2048
    assert found[0][1][:3] == found[1][1][:3] == [1, 2048.0, 1]


def test_one_overflow_skips_one_optimizer_and_shrinks_the_scale():
    a, b = weights([1.0, 1.0], [2.0])
    one, other = optim.SGD([a], lr=0.1, momentum=0.9), optim.SGD([b], lr=0.1)
    scaler = pb.amp.GradScaler(init_scale=8.0)
    scaler.scale(pb.sum(a * np.array([1.0, np.inf], "f"))).backward()
    scaler.scale(pb.sum(b * b)).backward()
    scaler.step(one)
    scaler.step(other)
    assert (a.tolist(), b.tolist()) == ([1.0, 1.0], pytest.approx([1.6]))
    assert scaler.get_scale() == 8.0
    scaler.update()
    assert scaler.get_scale() == 4.0
    assert np.all(one.groups[0].state[0].slots["momentum"][0] == 0)


def test_accumulation_clipping_and_two_losses_are_those_of_plain_gradients():
    x, y = np.random.default_rng(0).normal(size=(2, 8, 3)).astype("f")

    def run(scaler, opt, w):
        for k in range(4):
            opt.zero_grad()
            for rows in (slice(0, 4), slice(4, 8)):
                scaler.scale(pb.sum((x[rows] @ w - y[rows, :1]) ** 2) / 2).backward()
            scaler.scale(pb.sum(pb.abs(w))).backward()
            scaler.unscale_(opt)
            norm = optim.clip_grad_norm_([w], 0.5 + k)
            scaler.step(opt)
            scaler.update()
        return w.tolist(), norm.item()

    found = []
    for enabled in (True, False):
        (w,) = weights(np.ones((3, 1)))
        found.append(run(pb.amp.GradScaler(enabled=enabled), optim.Adam([w], lr=0.1), w))
    assert found[0] == found[1]  # the scale is a power of two: the same bits


def test_clipping_and_accumulation_in_a_rule():
    w = np.ones(3, "f")
    g = np.array([3.0, 4.0, 0.0], "f")
    clipped = optim.scaled(optim.chain(optim.clip_by_global_norm(1.0), optim.sgd(1.0)), init_scale=256.0)
    np.testing.assert_allclose(clipped.update(256 * g, clipped.init(w), w)[0], -g / 5, rtol=1e-6)
    sgd = optim.sgd(1.0)
    for rule in (optim.scaled(optim.multi_steps(sgd, 2), 256.0), optim.multi_steps(optim.scaled(sgd, 256.0), 2)):
        first, state = rule.update(256 * g, rule.init(w), w)
        assert not np.any(first)
        assert np.array_equal(rule.update(256 * 3 * g, state, w)[0], -2 * g)
        assert float(optim.loss_scale(state)) == 256.0


def test_gradient_penalties_see_true_gradients():
    w = pb.tensor(np.array([1.0, -2.0], "f"), requires_grad=True)
    opt, scaler = optim.SGD([w], lr=1.0), pb.amp.GradScaler()
    loss = pb.sum(w**3)
    (g,) = scaler.gradients(loss, [w], create_graph=True)
    np.testing.assert_allclose(g.detach().numpy(), 3 * w.detach().numpy() ** 2)
    scaler.scale(loss + pb.sum(g * g)).backward()
    scaler.step(opt)
    v = np.array([1.0, -2.0])
    np.testing.assert_allclose(w.detach().numpy(), v - (3 * v**2 + 36 * v**3), rtol=1e-6)

    rule = optim.scaled(optim.sgd(1.0))
    state = rule.init(v)

    def penalized(w):
        inner = pb.grad(lambda w: optim.scale_loss(pb.sum(w**3), state))(w)
        return optim.scale_loss(pb.sum(w**3) + pb.sum(optim.unscale(inner, state) ** 2), state)

    updates, _ = rule.update(pb.grad(penalized)(v), state, v)
    np.testing.assert_allclose(updates, -(3 * v**2 + 36 * v**3), rtol=1e-12)


def test_gradients_with_a_graph_are_unscaled_on_the_tape():
    (w,) = weights([1.0, 3.0])
    scaler, opt = pb.amp.GradScaler(init_scale=64.0), optim.SGD([w], lr=1.0)
    scaler.scale(pb.sum(w**3)).backward(create_graph=True)
    scaler.unscale_(opt)
    (second,) = pb.gradients(pb.sum(w.grad), [w])
    np.testing.assert_allclose(second.numpy(), [6.0, 18.0])


def test_a_backward_into_unscaled_gradients_is_refused_by_name():
    (w,) = weights([1.0])
    scaler, opt = pb.amp.GradScaler(), optim.SGD([w], lr=1.0)
    scaler.scale(pb.sum(w * w)).backward()
    scaler.unscale_(opt)
    with pytest.raises(pb.errors.GraphError, match=r"params\[0\] was unscaled"):
        scaler.scale(pb.sum(w)).backward()
    assert w.grad.tolist() == [2.0]
    scaler.step(opt)
    scaler.update()
    scaler.scale(pb.sum(w)).backward()


def test_what_is_called_out_of_order_is_refused():
    a, b = weights([1.0], [1.0])
    scaler, opt = pb.amp.GradScaler(), optim.SGD([a, b], lr=1.0)
    with pytest.raises(pb.errors.GraphError, match="no optimizer was stepped"):
        scaler.update()
    with pytest.raises(pb.errors.GraphError, match="has a gradient"):
        scaler.step(opt)
    scaler.scale(pb.sum(a)).backward()
    with pytest.raises(pb.errors.GraphError, match=r"params\[1\] has no gradient"):
        scaler.step(opt)
    scaler = pb.amp.GradScaler()
    scaler.scale(pb.sum(a * b)).backward()
    scaler.unscale_(opt)
    for again in (scaler.unscale_, lambda _: scaler.step(optim.SGD([b], lr=1.0))):
        with pytest.raises(pb.errors.GraphError, match="unscaled already"):
            again(opt)
    scaler.step(opt)
    with pytest.raises(pb.errors.GraphError, match="stepped already"):
        scaler.step(opt)
    with pytest.raises(pb.errors.ArgumentError, match="wants an optimizer"):
        scaler.step(None)


@pytest.mark.parametrize(
    "settings",
    [
        {"init_scale": 1000.0},
        {"growth_factor": 1.5},
        {"growth_factor": 0.5},
        {"backoff_factor": 0.3},
        {"backoff_factor": 2.0},
        {"growth_interval": 0},
        {"init_scale": float("inf")},
        {"init_scale": "large"},
    ],
)
def test_settings_that_would_round_are_refused(settings):
    for make in (pb.amp.GradScaler, lambda **s: optim.scaled(optim.sgd(0.1), **s)):
        with pytest.raises(pb.errors.ArgumentError, match=next(iter(settings))):
            make(**settings)
    with pytest.raises(pb.errors.ArgumentError, match="the first argument is a device"):
        pb.amp.GradScaler(1024.0)


def test_the_scale_stays_a_number_of_float32():
    rule, w = optim.scaled(optim.sgd(0.1), 2.0**63, growth_interval=1), np.zeros(1, "f")
    state = rule.init(w)
    for _ in range(4):
        _, state = rule.update(w, state, w)
    assert float(optim.loss_scale(state)) == 2.0**64
    for _ in range(100):
        _, state = rule.update(np.full(1, np.nan, "f"), state, w)
    assert float(optim.loss_scale(state)) == 2.0**-32


def test_a_run_that_is_saved_and_restored_is_the_same(tmp_path):
    (w,), (v,) = weights([1.0, 2.0]), weights([0.0, 0.0])
    one, other = pb.amp.GradScaler(**SETTINGS), pb.amp.GradScaler()
    opt, resumed = optim.Adam([w], lr=0.1), optim.Adam([v], lr=0.7)
    train(one, opt, w, range(5))
    pb.save(tmp_path / "run.safetensors", {"w": w, "opt": opt.state_dict(), "scaler": one.state_dict()})
    saved = pb.load(tmp_path / "run.safetensors")
    with pb.no_grad():
        v[...] = saved["w"]
    resumed.load_state_dict(saved["opt"])
    other.load_state_dict(saved["scaler"])
    assert train(one, opt, w, range(5, 12)) == train(other, resumed, v, range(5, 12)) == SCALES[5:]
    assert w.tolist() == v.tolist()

    rule, w = optim.scaled(optim.adam(0.1), **SETTINGS), np.array([1.0, 2.0], "f")
    state = rule.init(w)
    for k in range(4):
        w, state = advance(rule, k, w, state)
    pb.save(tmp_path / "state.safetensors", {"w": w, "state": state})
    again = pb.load(tmp_path / "state.safetensors")
    for k in range(4, 12):
        w, state = advance(rule, k, w, state)
        again["w"], again["state"] = advance(rule, k, again["w"], again["state"])
    assert np.array_equal(w, again["w"])
    assert float(optim.loss_scale(state)) == float(optim.loss_scale(again["state"])) == SCALES[-1]


def test_a_batch_of_seeds_skips_by_element():
    rule = optim.scaled(optim.adam(0.1), **SETTINGS)
    w = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], "f")
    g = np.array([[1.0, 2.0], [np.inf, 1.0], [1.0, 1.0]], "f")

    def two_steps(w, g):
        state = rule.init(w)
        for factor in (1.0, 2.0):
            updates, state = rule.update(factor * pb.where(pb.isfinite(g), g, g / factor), state, w)
            w = optim.apply_updates(w, updates)
        return w, optim.loss_scale(state)

    together = pb.vmap(two_steps)(w, g)
    for i in range(3):
        found, scale = two_steps(w[i], g[i])
        np.testing.assert_allclose(together[0][i], found, rtol=1e-6)
        assert together[1][i] == scale == (256.0 if i == 1 else 1024.0)


def test_checkpoints_compiled_losses_and_disabled_scalers():
    x = np.random.default_rng(0).normal(size=(4, 3)).astype("f")
    found, traced = [], []

    def loss(w):
        traced.append(1)
        return pb.sum(pb.tanh(x @ w) ** 2)

    ways = [
        lambda s, f: lambda v: s.scale(f(v)),
        lambda s, f: lambda v: s.scale(pb.checkpoint(f)(v)),
        lambda s, f: pb.jit(lambda v: s.scale(f(v))),
        lambda s, f: (lambda g: lambda v: s.scale(g(v)))(pb.jit(f)),
    ]
    for make in ways:
        (w,) = weights(np.full((3, 2), 0.1))
        scaler, opt = pb.amp.GradScaler(init_scale=4.0, growth_interval=1), optim.SGD([w], lr=0.1)
        scaled = make(scaler, loss)
        counts = []
        for _ in range(5):
            opt.zero_grad()
            scaled(w).backward()
            scaler.step(opt)
            scaler.update()
            counts.append(len(traced))
        found.append(w.detach().numpy())
        assert scaler.get_scale() == 128.0
    assert counts[1] == counts[-1], "the scale changes, the program does not"
    for other in found[1:]:
        np.testing.assert_allclose(found[0], other, rtol=1e-5)
    off = pb.amp.GradScaler(enabled=False)
    value = pb.tensor(1.0)
    assert off.scale(value) is value
    off.update()
    assert (off.state_dict(), off.get_scale(), off.is_enabled()) == ({}, 1.0, False)
    off.load_state_dict({})


def test_threads_have_scalers_of_their_own():
    def run(number, results):
        (w,) = weights([1.0, 2.0 + number])
        results[number] = (train(pb.amp.GradScaler(**SETTINGS), optim.Adam([w], lr=0.1), w), w.tolist())

    alone, together = {}, {}
    for i in range(3):
        run(i, alone)
    threads = [threading.Thread(target=run, args=(i, together)) for i in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert together == alone


def test_losses_and_gradients_of_half_types_are_scaled_in_float32():
    loss = pb.tensor(np.float16(3.0), requires_grad=True)
    out = pb.amp.GradScaler().scale({"a": loss, "b": [pb.tensor(2.0)]})
    assert (out["a"].dtype, out["a"].item(), out["b"][0].item()) == (np.float32, 3 * 65536.0, 131072.0)
    w = pb.tensor(np.ones(2, "float16"), requires_grad=True)
    scaler, opt = pb.amp.GradScaler(init_scale=2.0**10), optim.Optimizer(optim.master_weights(optim.sgd(1.0)), [w])
    w.grad = pb.tensor(np.array([2.0**-15, 1.0], "float16"))  # unscaled it is 2^-25, below float16
    scaler.step(opt)
    np.testing.assert_array_equal(opt.groups[0].state[0].slots["master"][0], np.float32([1 - 2.0**-25, 1 - 2.0**-10]))
    scaler.update()
    w.grad = pb.tensor(np.ones(2, "float16"))
    with pytest.raises(pb.errors.DtypeError, match=r"params\[0\] is float16"):
        scaler.unscale_(opt)


def test_a_state_without_or_with_two_scales_is_refused():
    w = {"a": np.zeros(1), "b": np.zeros(1)}
    with pytest.raises(pb.errors.ArgumentError, match="holds 0 scales"):
        optim.loss_scale(optim.adam(0.1).init(w))
    rules = {name: optim.scaled(optim.sgd(0.1)) for name in w}
    state = optim.multi_transform(rules, {"a": "a", "b": "b"}).init(w)
    with pytest.raises(pb.errors.ArgumentError, match="holds 2 scales"):
        optim.scale_loss(1.0, state)
    assert float(optim.loss_scale(state["a"])) == 65536.0
    with pytest.raises(pb.errors.ArgumentError, match="state"):
        rules["a"].update(w, optim.apply_if_finite(optim.sgd(0.1)).init(w), w)


def test_a_step_that_fails_leaves_the_scaled_gradients():
    a, b = weights([1.0], [1.0])
    scaler, opt = pb.amp.GradScaler(init_scale=4.0), optim.SGD([a, b], lr=1.0)
    scaler.scale(pb.sum(a)).backward()
    with pytest.raises(pb.errors.GraphError, match=r"params\[1\] has no gradient"):
        scaler.step(opt)
    assert a.grad.tolist() == [4.0]
    scaler.scale(pb.sum(b)).backward()
    scaler.step(opt)
    assert (a.tolist(), b.tolist()) == ([0.0], [0.0])
    scaler.update()
    # after unscale_ the gradients stay guarded
    opt.zero_grad()
    scaler.scale(pb.sum(a)).backward()
    scaler.unscale_(opt)
    with pytest.raises(pb.errors.GraphError, match=r"params\[1\] has no gradient"):
        scaler.step(opt)
    with pytest.raises(pb.errors.GraphError, match="unscaled"):
        scaler.scale(pb.sum(a + b)).backward()
    scaler.update()
    opt.zero_grad()
    scaler.scale(pb.sum(a + b)).backward()
    with pytest.raises(pb.errors.ArgumentError, match="a closure"):
        scaler.step(opt, closure=lambda: None)


def test_a_scaler_that_is_gone_guards_nothing():
    (w,) = weights([1.0])
    scaler, opt = pb.amp.GradScaler(), optim.SGD([w], lr=1.0)
    scaler.scale(pb.sum(w)).backward()
    scaler.unscale_(opt)
    with pytest.raises(pb.errors.GraphError, match="after update"):
        copy.deepcopy(scaler)
    del scaler  # an interrupted loop is started again
    opt.zero_grad()
    pb.sum(w).backward()
    assert w.grad.tolist() == [1.0]


def test_rules_that_would_see_scaled_gradients_are_refused():
    w, scaled = np.ones(2, "f"), optim.scaled(optim.sgd(0.1))
    for inner in (scaled, optim.chain(scaled), optim.multi_transform({"a": scaled}, "a")):
        with pytest.raises(pb.errors.ArgumentError, match="scaled comes after other rules"):
            optim.chain(optim.clip_by_global_norm(1.0), inner).init(w)
    with pytest.raises(pb.errors.ArgumentError, match="never shrink"):
        optim.apply_if_finite(scaled).init(w)
    optim.chain(scaled, optim.freeze(False)).init(w)
    (p,) = weights([1.0])
    scaler, opt = pb.amp.GradScaler(), optim.Optimizer(optim.chain(scaled), [p])
    scaler.scale(pb.sum(p)).backward()
    for method in (scaler.unscale_, scaler.step):
        with pytest.raises(pb.errors.ArgumentError, match="done twice"):
            method(opt)


def test_a_skipped_step_leaves_schedules_and_masters_as_they_were():
    plan = optim.schedules.exponential(0.5, 0.5)
    rules = [
        optim.scaled(optim.adam(plan), init_scale=64.0),
        optim.scaled(optim.chain(optim.clip_by_global_norm(1.0), optim.master_weights(optim.sgd(plan))), 64.0),
        optim.scaled(optim.stochastic_rounding(optim.sgd(plan)), 64.0),
    ]
    good, bad = np.full(3, 2.0, "float16"), np.array([2.0, np.nan, 2.0], "float16")
    for rule in rules:
        ends = []
        for grads in ([good, good, good], [good, bad, good, bad, good]):
            for wrap in (lambda f: f, pb.jit, lambda f: pb.jit(f, donate_argnums=(0, 1))):

                @wrap
                def step(w, state, g, rule=rule):
                    # the same true gradient, whatever the scale
                    updates, state = rule.update(g.astype("float32") * optim.loss_scale(state) / 64, state, w)
                    return optim.apply_updates(w, updates), state

                w = np.array([1.0, 2.0, 3.0], "float16")
                state = rule.init(w)
                for g in grads:
                    w, state = step(w, state, g)
                ends.append(pb.tree.map(np.asarray, (w, state[1])))
                assert int(state[0].steps) == len(grads) - 3
        for other in ends[1:]:
            for a, b in zip(pb.tree.leaves(ends[0]), pb.tree.leaves(other), strict=True):
                np.testing.assert_allclose(a.astype("f"), b.astype("f"), rtol=1e-6)


def test_losses_may_be_scaled_in_several_threads():
    scaler = pb.amp.GradScaler(init_scale=8.0)
    tensors = weights([1.0], [2.0], [3.0])
    optimizers = [optim.SGD([w], lr=1.0) for w in tensors]

    def run(w):
        for _ in range(20):
            w.grad = None
            scaler.scale(pb.sum(2 * w)).backward()

    threads = [threading.Thread(target=run, args=(w,)) for w in tensors]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for opt in optimizers:
        scaler.step(opt)
    scaler.update()
    assert [w.tolist() for w in tensors] == [[-1.0], [0.0], [1.0]]


def test_autocast_around_the_loop_or_around_the_loss_is_the_same():
    x, found = np.random.default_rng(1).normal(size=(4, 3)).astype("f"), []
    loss = lambda w: pb.mean((pb.tanh(x @ w) @ w - 1.0) ** 2)  # noqa: E731

    def run(around, inside, f):
        (w,) = weights(0.5 * np.eye(3))
        scaler, opt = pb.amp.GradScaler(init_scale=256.0), optim.Adam([w], lr=0.1)
        with around():
            for _ in range(3):
                opt.zero_grad()
                with inside():
                    value = f(w)
                scaler.scale(value).backward()
                scaler.step(opt)
                scaler.update()
        return w.detach().numpy()

    lower, nothing = lambda: pb.autocast("float16"), contextlib.nullcontext
    for around, inside, f in (
        (nothing, lower, loss),
        (lower, nothing, loss),
        (nothing, lower, pb.checkpoint(loss)),
        (nothing, lower, pb.jit(loss)),
    ):
        found.append(run(around, inside, f))
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])
    np.testing.assert_allclose(found[0], found[3], rtol=2e-3)


def test_a_scale_of_ones_own():
    scaler = pb.amp.GradScaler()
    scaler.update(new_scale=256.0)
    assert scaler.get_scale() == 256.0
    assert repr(scaler) == "<GradScaler: 256>"
    with pytest.raises(pb.errors.ArgumentError, match="power of two"):
        scaler.update(100.0)
    with pytest.raises(pb.errors.ArgumentError, match="state_dict"):
        scaler.load_state_dict({"scale": 2.0})
    with pytest.raises(pb.errors.ArgumentError, match="power of two"):
        scaler.update("large")
    for wrong in (-5, float("nan"), "x", np.arange(3)):
        with pytest.raises(pb.errors.PullbackError, match="growth_tracker"):
            scaler.load_state_dict({**scaler.state_dict(), "growth_tracker": wrong})
    assert scaler.get_scale() == 256.0


@pytest.mark.parametrize("wrap", ["scaled", "master_weights", "stochastic_rounding", "apply_if_finite", "lookahead"])
def test_rules_around_rules_want_rules(wrap):
    for wrong in (None, "adam", optim.adam):
        with pytest.raises(pb.errors.ArgumentError, match=f"{wrap}: wants a rule"):
            getattr(optim, wrap)(wrong)
    with pytest.raises(pb.errors.ArgumentError, match="seed"):
        optim.stochastic_rounding(optim.sgd(0.1), seed=1.5)


def test_small_gradients_survive_float16_with_a_scale_alone():
    x, found = np.full((4, 3), 1e-3, "f"), []
    for scaler in (pb.amp.GradScaler(enabled=False), pb.amp.GradScaler()):
        (w,) = weights(np.full((3, 2), 0.5))
        with pb.autocast("float16"):
            loss = 1e-6 * pb.sum(x @ w)
        scaler.scale(loss).backward()
        scaler.unscale_(optim.SGD([w]))
        found.append(w.grad.numpy())
    assert not np.any(found[0])  # 4e-9 is nothing in float16
    np.testing.assert_allclose(found[1], 4e-9, rtol=2e-3)


def test_training_can_be_differentiated_through_the_scale():
    def after(lr, wrap):
        w = np.array([1.0, 2.0])
        rule = wrap(optim.sgd(lr, momentum=0.9))
        state = rule.init(w)
        for _ in range(3):
            scaled = lambda w: optim.scale_loss(pb.sum(w**4), state) if wrap is optim.scaled else pb.sum(w**4)  # noqa: E731, B023
            updates, state = rule.update(pb.grad(scaled)(w), state, w)
            w = optim.apply_updates(w, updates)
        return pb.sum(w**2)

    one, other = (pb.grad(lambda lr, wrap=wrap: after(lr, wrap))(0.01) for wrap in (optim.scaled, lambda rule: rule))
    assert one == pytest.approx(other, rel=1e-12)


def test_rules_and_scalers_can_be_copied():
    for make in (optim.scaled, optim.master_weights, optim.stochastic_rounding):
        rule = pickle.loads(pickle.dumps(make(optim.adam(0.1))))
        w = np.ones(2, "float16")
        assert rule.update(w, rule.init(w), w)[0].dtype == np.float32
    (w,) = weights([1.0, 2.0])
    scaler, opt = pb.amp.GradScaler(**SETTINGS), optim.Adam([w], lr=0.1)
    train(scaler, opt, w, range(4))
    twin = copy.deepcopy(scaler)
    assert pickle.loads(pickle.dumps(scaler)).state_dict() == twin.state_dict() == scaler.state_dict()
    train(scaler, opt, w, range(4, 8))
    assert (twin.get_scale(), scaler.get_scale()) == (SCALES[3], SCALES[7])


def test_a_graph_cannot_scale_its_loss_later():
    g = pb.Graph()
    w = g.variable("w", np.ones(2, "f"))
    (dw,) = g.gradients(pb.sum(w * w), [w])
    with pytest.raises(pb.errors.ArgumentError, match="before the rule has a scale"):
        optim.scaled(optim.sgd(0.1)).updates([(w, dw)])
