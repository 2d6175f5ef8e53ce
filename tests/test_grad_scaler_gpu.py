"""Loss scaling on a GPU: whether a step is skipped is decided there, and nothing waits for it."""

import numpy as np
import pytest
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
