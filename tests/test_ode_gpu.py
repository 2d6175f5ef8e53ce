"""Differential equations of CuPy arrays, a GPU's where there is one, else the stand-in's, against those of NumPy's."""

import contextlib

import fake_cuda_driver
import numpy as np
import pytest
from cuda_emulator import has_compiler
from gpu import REAL, cupy, installed_cupy  # noqa: F401 - a fixture

import pullback as pb

O = pb.ode  # noqa: E741
Y = np.array([1.0, 0.5, 0.2])
K = np.array([0.7, 1.3])


def f(t, y, k):
    """Three numbers that turn and decay, with a parameter that is an array."""
    return pb.stack([k[0] * y[1], -k[1] * y[0] * pb.cos(t), y[0] * y[1] - y[2]])


def stiff(t, y, k):
    return pb.stack([-200 * (y[0] - pb.cos(t)), k[0] * y[0] - y[1], -k[1] * y[2]])


def agree(function, *args, rtol=1e-9, change=lambda f: f):
    """The same of CuPy's arrays as of NumPy's, and on the GPU; Python numbers stay what they are."""
    given = [cupy.asarray(a) if isinstance(a, np.ndarray) else a for a in args]
    found, wanted = pb.tree.leaves([change(function)(*given)]), pb.tree.leaves([function(*args)])
    assert any(isinstance(x, cupy.ndarray) for x in found)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(cupy.asnumpy(a), b, rtol=rtol, atol=1e-11)


def total(y, k, **options):
    return pb.sum(O.solve(f, y, (0.0, 1.5), k, **{"rtol": 1e-4, **options}).y ** 2)


POLICIES = {
    "through steps": O.ThroughSteps(),
    "snapshots": O.ThroughSteps(snapshots=3),
    "continuous": O.ContinuousAdjoint(),
    "interpolated": O.InterpolatedAdjoint(),
    "forward": O.ForwardSensitivity(),
}


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("saveat", [None, np.array([0.0, 0.4, 1.5])], ids=["end", "times"])
def test_policies(name, saveat):
    agree(pb.grad(lambda y, k: total(y, k, saveat=saveat, derivative=POLICIES[name]), (0, 1)), Y, K, rtol=1e-7)


METHODS = {
    "Dopri8": (f, O.Dopri8()),
    "Bosh3": (f, O.Bosh3()),
    "Kvaerno3": (stiff, O.Kvaerno3()),
    "Kvaerno5": (stiff, O.Kvaerno5()),
    "BDF": (stiff, O.BDF()),
}


@pytest.mark.parametrize("name", METHODS)
def test_methods(name):
    slope, method = METHODS[name]
    options = {"method": method, "rtol": 1e-4, "saveat": (0.1, 0.3)}
    agree(lambda y, k: O.solve(slope, y, (0.0, 0.3), k, **options).y, Y, K, rtol=1e-7)
    if name in ("Kvaerno3", "BDF"):
        loss = lambda y, k: pb.sum(O.solve(slope, y, (0.0, 0.1), k, method=method, rtol=1e-3).y)  # noqa: E731
        agree(pb.grad(loss, (0, 1)), Y, K, rtol=1e-6)


def test_symplectic_steps():
    def end(q, p):
        steps = {"method": O.Yoshida4(), "control": O.FixedSteps(10)}
        return O.solve(lambda t, y: (y[1], -pb.sin(y[0])), (q, p), (0.0, 1.0), **steps).y

    agree(end, Y, Y[::-1].copy())
    agree(pb.grad(lambda q, p: pb.sum(end(q, p)[0]), (0, 1)), Y, Y[::-1].copy())


def test_numbers_beside_arrays():
    """Numbers of the host among the state, the slope, the span, the parameters and what is closed over."""

    def end(y, k, t1, c):
        shift = pb.sin(c)
        return O.solve(lambda t, y, k: (y[1] * k, -9.81 + shift), (y, 0.5), (0.0, t1), k).y[0]

    agree(end, np.array(2.0), 0.7, 1.2, 0.3)
    agree(pb.grad(end, (0, 1, 2, 3)), np.array(2.0), 0.7, 1.2, 0.3)
    agree(lambda y: pb.jvp(lambda t1: end(y, 0.7, t1, 0.3), (1.2,), (1.0,)), np.array(2.0))
    agree(lambda y: pb.vmap(lambda k: end(y, k, 1.2, 0.3))(np.array([0.7, 0.9])), np.array(2.0))


def fall(height, g, **options):
    landing = O.Event(lambda t, y, g: y[0], direction=-1)
    mark = O.Event(lambda t, y, g: y[1] + 5.0 + 0.0 * t, terminal=False, most=2)
    return O.solve(lambda t, y, g: (y[1], -g), (height, 0.0), (0.0, 9.0), g, events=[landing, mark], **options)


def test_events():
    def seen(height, g, **options):
        found = fall(height, g, **options)
        return found.t, found.y, found.events[1].t, found.events[0].y, found.report.steps

    agree(seen, np.array(20.0), np.array(9.81))
    agree(lambda h, g: seen(h, g, saveat=(0.5, 1.0, 8.0), method=O.Kvaerno3())[:2], np.array(20.0), np.array(9.81))

    def when(height, g):
        found = fall(height, g)
        return found.t + found.events[1].t[0] * found.y[1]

    agree(pb.grad(when, (0, 1)), np.array(20.0), np.array(9.81))
    agree(lambda h, g: pb.jvp(when, (h, g), (g, h)), np.array(20.0), np.array(9.81))


def test_dense_output():
    def read(y, k, t):
        return O.solve(f, y, (0.0, 1.5), k, dense=True)(t)

    agree(read, Y, K, np.array([[0.2, 1.1]]))
    agree(read, Y, K, 0.9)
    agree(pb.grad(lambda y, k, t: pb.sum(read(y, k, t) ** 2), (0, 1, 2)), Y, K, 0.9)
    with pytest.raises(pb.errors.ArgumentError, match=r"from t = 0\.0 to 1\.5"):
        read(cupy.asarray(Y), cupy.asarray(K), 2.0)


def test_a_batch():
    many = np.stack([Y, 2 * Y])
    solve = lambda y, k: O.solve(f, y, (0.0, 1.0), k)  # noqa: E731
    agree(lambda y, k: pb.vmap(solve, (0, None))(y, k).y, many, K)
    agree(pb.grad(lambda y, k: pb.sum(pb.vmap(solve, (0, None))(y, k).y), 1), many, K)
    assert "reached the end" in str(pb.vmap(solve, (0, None))(cupy.asarray(many), cupy.asarray(K)).report)


def test_tensors():
    y, k = (pb.tensor(cupy.asarray(x), requires_grad=True) for x in (Y, K))
    total(y, k).backward()
    for found, wanted in zip((y.grad, k.grad), pb.grad(total, (0, 1))(Y, K), strict=True):
        assert found.device == "cuda:0"
        np.testing.assert_allclose(found.cpu().numpy(), wanted, rtol=1e-9)


def test_small_cases():
    """Single precision, checkpoints, no parameters, no steps, functions that cannot be traced."""
    agree(pb.grad(total, (0, 1)), Y.astype("f4"), K.astype("f4"), rtol=1e-5)
    agree(pb.grad(pb.checkpoint(total)), Y, K)
    for policy in (O.ContinuousAdjoint(), O.InterpolatedAdjoint()):
        loss = lambda y: pb.sum(O.solve(lambda t, y: -y, y, (0.0, 1.0), derivative=policy).y)  # noqa: B023, E731
        agree(pb.grad(loss), Y)
    agree(pb.grad(lambda y: pb.sum(O.solve(lambda t, y: -y, y, (1.0, 1.0), saveat=[1.0, 1.0]).y)), Y)
    agree(lambda y: O.solve(lambda t, y: -y * float(t), y, (0.0, 1.0)).y, Y)


COMPILED = {
    "adjoint": (f, O.Bosh3(), O.ContinuousAdjoint()),
    "times": (f, O.Tsit5(), O.ThroughSteps()),
    "stiff": (stiff, O.Kvaerno5(), None),
    "multistep": (stiff, O.BDF(), None),
}


@pytest.fixture
def device():
    if not REAL and not has_compiler():
        pytest.skip("the text is compiled by g++")
    with contextlib.nullcontext() if REAL else fake_cuda_driver.installed():
        yield


@pytest.mark.parametrize("name", COMPILED)
def test_compiled(device, name):
    slope, method, policy = COMPILED[name]
    saveat = np.array([0.1, 0.3]) if name == "times" else None

    def loss(y, k):
        options = {"method": method, "derivative": policy, "saveat": saveat, "rtol": 1e-3, "max_steps": 64}
        return pb.sum(O.solve(slope, y, (0.0, 0.3), k, **options).y ** 2)

    agree(pb.grad(loss, (0, 1)) if policy else loss, Y, K, change=pb.jit, rtol=1e-7)


def test_a_compiled_event(device):
    event = O.Event(lambda t, y, k: y[0] - 0.3)
    when = lambda y, k: O.solve(f, y, (0.0, 9.0), k, rtol=1e-3, method=O.Bosh3(), events=event).t  # noqa: E731
    agree(pb.grad(when, (0, 1)), Y, K, change=pb.jit, rtol=1e-7)


def test_second_order():
    slow = {"rtol": 1e-3, "method": O.Bosh3()}
    inner = pb.grad(lambda k, y: total(y, k, **slow))
    agree(pb.grad(lambda k, y: pb.sum(inner(k, y) * k)), K, Y)


def test_what_fails_says_so():
    with pytest.raises(pb.errors.TooManyStepsError, match="after 2 steps"):
        O.solve(f, cupy.asarray(Y), (0.0, 9.0), cupy.asarray(K), max_steps=2)
    assert O.solve(f, cupy.asarray(Y), (0.0, 9.0), cupy.asarray(K), max_steps=2, strict=False).report.status == 1
    with pytest.raises(pb.errors.DeviceError):
        O.solve(lambda t, y, k: k * y, cupy.asarray(Y), (0.0, 1.0), Y)
