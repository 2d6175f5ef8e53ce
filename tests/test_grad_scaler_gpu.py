"""Loss scaling on a GPU: whether a step is skipped is decided there, and nothing waits for it."""

import contextlib

import fake_cuda_driver
import numpy as np
import pytest
from cuda_emulator import has_compiler
from gpu import REAL, cupy, installed_cupy  # noqa: F401

import pullback as pb

pytestmark = pytest.mark.gpu
SCALES = [1024.0, 512.0, 512.0, 1024.0]


@pytest.fixture
def refuses_to_wait(monkeypatch):
    """Reading a number of the device raises, except in the block that the fixture opens."""
    if REAL:
        yield lambda: pytest.MonkeyPatch.context()
        return
    kind = type(cupy.zeros(1))
    kept = {name: getattr(kind, name) for name in ("__bool__", "__float__", "__int__", "get", "item")}

    def refuse(*args, **options):
        raise AssertionError("the host waits for the device")

    class Allowed:
        def __enter__(self):
            for name, function in kept.items():
                monkeypatch.setattr(kind, name, function)

        def __exit__(self, *_):
            for name in kept:
                monkeypatch.setattr(kind, name, refuse)

    allowed = Allowed()
    allowed.__exit__()
    yield Allowed
    allowed.__enter__()


def gradient(k):
    return np.array([1.0, np.inf if k == 1 else 2.0 + k], "f")


def plain_run():
    w, m = np.array([1.0, 2.0]), np.zeros(2)
    for k in (0, 2, 3):
        m = 0.5 * m + gradient(k)
        w = w - 0.1 * m
    return w


def test_the_scaler_steps_where_its_parameters_are(refuses_to_wait):
    x = [cupy.asarray(gradient(k)) for k in range(4)]
    with refuses_to_wait():
        w = pb.tensor(cupy.asarray(np.array([1.0, 2.0], "f")), requires_grad=True)
        opt = pb.optim.SGD([w], lr=0.1, momentum=0.5)
    scaler, scales = pb.amp.GradScaler(init_scale=1024.0, growth_interval=2), []
    for k in range(4):
        opt.zero_grad()
        loss = pb.sum(w * x[k])
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()
        with refuses_to_wait():
            scales.append(scaler.get_scale())
    with refuses_to_wait():
        assert scales == SCALES
        assert w.device == "cuda:0"
        np.testing.assert_allclose(cupy.asnumpy(w.detach().value), plain_run(), rtol=1e-6)


def test_the_rule_steps_where_its_parameters_are(refuses_to_wait):
    rule = pb.optim.scaled(pb.optim.sgd(0.1, momentum=0.5), init_scale=1024.0, growth_interval=2)
    x = [cupy.asarray(gradient(k)) for k in range(4)]
    w = cupy.asarray(np.array([1.0, 2.0], "f"))
    state, scales = rule.init(w), []
    for k in range(4):
        grads = pb.grad(lambda w, k=k, state=state: pb.optim.scale_loss(pb.sum(w * x[k]), state))(w)
        updates, state = rule.update(grads, state, w)
        w = pb.optim.apply_updates(w, updates)
        scales.append(pb.optim.loss_scale(state))
    with refuses_to_wait():
        assert [float(s) for s in scales] == SCALES
        np.testing.assert_allclose(cupy.asnumpy(w), plain_run(), rtol=1e-6)


@pytest.fixture
def compiled():
    if not REAL and not has_compiler():
        pytest.skip("the text is compiled by g++")
    with contextlib.nullcontext() if REAL else fake_cuda_driver.installed():
        yield


def on_host(tree):
    return pb.tree.map(lambda x: cupy.asnumpy(x) if isinstance(x, cupy.ndarray) else np.asarray(x), tree)


def run(step, place, rule, start, grads):
    w = pb.tree.map(place, start)
    state = rule.init(w)
    for g in grads:
        w, state = step(w, state, pb.tree.map(place, g))
    assert place is np.asarray or all(isinstance(x, cupy.ndarray) for x in pb.tree.leaves((w, state)))
    return on_host((w, state))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_stochastic_rounding_draws_where_the_parameters_are(compiled, dtype):
    rule = pb.optim.scaled(pb.optim.stochastic_rounding(pb.optim.sgd(1.0), seed=3), init_scale=4.0)
    start = [
        np.linspace(0.5, 2.0, 40, dtype="f").astype(getattr(pb, dtype)),
        np.ones((3, 2), "f"),
        np.ones(7, "float16"),
    ]
    rng = np.random.default_rng(0)
    grads = [[(1e-3 * rng.normal(size=p.shape)).astype("f") for p in start] for _ in range(3)]
    grads[1][1][2, 1] = np.inf

    def step(w, state, g):
        updates, state = rule.update(g, state, w)
        return pb.optim.apply_updates(w, updates), state

    wanted = run(step, np.asarray, rule, start, grads)
    jitted = pb.jit(step, donate_argnums=(0, 1))
    for way in (step, pb.jit(step), jitted):
        found = run(way, cupy.asarray, rule, start, grads)
        for a, b in zip(pb.tree.leaves(found), pb.tree.leaves(wanted), strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a.astype("d"), b.astype("d"))
    w = pb.tree.map(cupy.asarray, start)
    text = pb.explain(jitted, w, rule.init(w), pb.tree.map(cupy.asarray, grads[0]))
    assert "launched as 1 graph" in text
    assert "host" not in text


def test_keys_follow_the_numbers_that_are_folded_in(compiled):
    key = pb.random.key(7)
    for data in (np.int64(3), np.arange(4)):
        wanted = pb.random.fold_in(key, data)
        for fold in (pb.random.fold_in, pb.jit(pb.random.fold_in)):
            found = fold(key, cupy.asarray(data))
            assert isinstance(found, cupy.ndarray)
            np.testing.assert_array_equal(cupy.asnumpy(found), wanted)
    drawn = pb.amp.stochastic_round(cupy.asarray(np.linspace(1, 2, 9, dtype="f")), pb.bfloat16, key=key)
    assert (type(drawn), drawn.dtype) == (cupy.ndarray, pb.bfloat16)


def test_a_compiled_step_under_autocast_is_one_graph_and_skips_there(compiled):
    rule = pb.optim.scaled(
        pb.optim.chain(pb.optim.clip_by_global_norm(1.0), pb.optim.adam(0.1)), init_scale=1024.0, growth_interval=2
    )
    rng = np.random.default_rng(0)
    start = {"a": rng.normal(size=(5, 6)).astype("f"), "b": rng.normal(size=(6, 2)).astype("f")}
    batches = [
        {"x": rng.normal(size=(8, 5)).astype("f"), "worst": np.float32(np.inf if k == 2 else 1)} for k in range(5)
    ]

    def step(w, state, batch):
        @pb.autocast("float16")
        def loss(w):
            return pb.mean(pb.square(pb.tanh(batch["x"] @ w["a"]) @ w["b"])) * batch["worst"]

        grads = pb.grad(lambda w: pb.optim.scale_loss(loss(w), state))(w)
        updates, state = rule.update(grads, state, w)
        return pb.optim.apply_updates(w, updates), state

    wanted = run(step, np.asarray, rule, start, batches)
    jitted = pb.jit(step, donate_argnums=(0, 1))
    for way in (step, jitted):
        found = run(way, cupy.asarray, rule, start, batches)
        assert float(pb.optim.loss_scale(found[1])) == float(pb.optim.loss_scale(wanted[1])) == 2048.0
        assert int(found[1][0].steps) == 1
        for a, b in zip(pb.tree.leaves(found), pb.tree.leaves(wanted), strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-2, atol=2e-3)
    w = pb.tree.map(cupy.asarray, start)
    assert "launched as 1 graph" in pb.explain(jitted, w, rule.init(w), pb.tree.map(cupy.asarray, batches[0]))
