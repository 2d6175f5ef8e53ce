"""A compiled loss of leaves alone: its backward pass is one native call, and differs from a sweep in nothing else."""

import threading
import weakref

import numpy as np
import pytest

import pullback as pb
from pullback.compile.cpu.runtime import link
from pullback.errors import GraphError
from pullback.tape import backward as backward_module

pytest.importorskip("llvmlite")
RNG = np.random.default_rng(2)
X, W, B = RNG.normal(size=(4, 5)), RNG.normal(size=(5, 3)), RNG.normal(size=3)


@pytest.fixture(autouse=True)
def quick_code(monkeypatch):
    """What is tested is which programs run, not how fast."""
    monkeypatch.setattr(link, "EFFORT", ((), 0))


@pytest.fixture
def sweeps(monkeypatch):
    """The sweeps that wrote gradients since the test began; tracing makes others."""
    made = []
    real = backward_module.Sweep

    def counted(receiver, *args, **kwargs):
        if isinstance(receiver, backward_module._GradientLog):
            made.append(receiver)
        return real(receiver, *args, **kwargs)

    monkeypatch.setattr(backward_module, "Sweep", counted)
    return made


def leaf(a):
    return pb.tensor(a, requires_grad=True)


@pb.jit
def loss(x, w, b):
    h = pb.tanh(x @ w + b)
    return pb.sum(h * h) / 2


def wanted_gradients():
    """In NumPy."""
    h = np.tanh(X @ W + B)
    inner = h * (1 - h * h)
    return inner @ W.T, X.T @ inner, inner.sum(0)


def assert_gradients(tensors, wanted, times=1):
    for t, g in zip(tensors, wanted, strict=True):
        assert type(t.grad.value) is np.ndarray
        assert t.grad.node is None
        assert t.grad.spec is t.spec
        np.testing.assert_allclose(t.grad.numpy(), times * g, rtol=1e-11, atol=1e-11)


def test_gradients_go_to_the_leaves_without_a_sweep(sweeps):
    leaves = [leaf(X), leaf(W), leaf(B)]
    for round_ in range(1, 4):
        loss(*leaves).backward()
        assert_gradients(leaves, wanted_gradients(), times=round_)
    assert not sweeps
    arrays = [t.grad.value for t in leaves]
    assert all(a.base is None and a.flags.writeable for a in arrays)
    assert not any(np.shares_memory(a, t.value) for a, t in zip(arrays, leaves, strict=True))


def test_the_bits_are_those_of_a_sweep(sweeps, monkeypatch):
    found = []
    for direct in (True, False):
        if not direct:
            monkeypatch.setattr(backward_module, "_deliver_directly", lambda root, retain: False)
        leaves = [leaf(X), leaf(W), leaf(B)]
        for _ in range(3):
            loss(*leaves).backward()
        found.append(b"".join(t.grad.value.tobytes() for t in leaves))
    assert found[0] == found[1]
    assert len(sweeps) == 3


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_any_result_of_one_number(shape, dtype, sweeps):
    f = pb.jit(lambda x: pb.reshape(pb.sum(x * x), shape))
    for size in (1, 3):
        x = leaf(np.arange(1, size + 1, dtype=dtype))
        f(x).backward()
        assert x.grad.dtype == dtype
        np.testing.assert_array_equal(x.grad.numpy(), 2 * np.arange(1, size + 1, dtype=dtype))
    assert not sweeps


def test_arguments_that_are_arrays_constants_strided_or_read_only(sweeps):
    w = leaf(W)
    strided = np.asfortranarray(X)
    for x in (X, pb.tensor(X), strided, pb.tensor(strided), np.broadcast_to(X, X.shape)):
        w.grad = None
        loss(x, w, B).backward()
        np.testing.assert_allclose(w.grad.numpy(), wanted_gradients()[1], rtol=1e-11)
    view = leaf(np.asfortranarray(W))
    loss(X, view, B).backward()
    np.testing.assert_allclose(view.grad.numpy(), wanted_gradients()[1], rtol=1e-11)


def test_a_leaf_given_twice_gets_the_sum():
    f = pb.jit(lambda a, b: pb.sum(a * b * b))
    x = leaf(B)
    f(x, x).backward()
    np.testing.assert_allclose(x.grad.numpy(), 3 * B * B, rtol=1e-12)
    f(x, x).backward()
    np.testing.assert_allclose(x.grad.numpy(), 6 * B * B, rtol=1e-12)


def test_intermediate_arguments_and_later_ops_take_a_sweep(sweeps):
    x, w, b = leaf(X), leaf(W), leaf(B)
    loss(x, w * 1.0, b).backward()
    (loss(x, w, b) * 1.0).backward()
    assert len(sweeps) == 2
    assert_gradients((x, w, b), wanted_gradients(), times=2)


def test_hooks_of_leaves_and_of_the_loss_are_called():
    x, w, b = leaf(X), leaf(W), leaf(B)
    log = []
    handles = [
        w.register_hook(lambda g: log.append("grad") or g * 2),
        b.register_post_accumulate_grad_hook(lambda t: log.append(t.grad.numpy().copy())),
    ]
    loss(x, w, b).backward()
    wx, ww, wb = wanted_gradients()
    assert log[0] == "grad"
    np.testing.assert_allclose(log[1], wb, rtol=1e-11)
    assert_gradients((x, w, b), (wx, 2 * ww, wb))
    for handle in handles:
        handle.remove()
    y = loss(x, w, b)
    y.retain_grad()
    y.backward()
    assert y.grad.item() == 1.0
    y = loss(x, w, b)
    y.register_hook(lambda g: g * 3)
    y.backward()
    assert_gradients((x, b), (wx, wb), times=5)


def test_a_graph_is_freed_or_retained():
    leaves = [leaf(X), leaf(W), leaf(B)]
    y = loss(*leaves)
    y.backward(retain_graph=True)
    y.backward()
    assert_gradients(leaves, wanted_gradients(), times=2)
    with pytest.raises(GraphError, match=r"freed|released"):
        y.backward()
    assert_gradients(leaves, wanted_gradients(), times=2)
    y = loss(*leaves)
    saved = [weakref.ref(a) for a in y.node.kept if all(a is not t.value for t in leaves)]
    y.backward()
    assert saved
    assert all(ref() is None for ref in saved)


def test_seeds_inputs_graphs_and_workers_as_ever():
    x, w, b = leaf(X), leaf(W), leaf(B)
    wx, ww, wb = wanted_gradients()
    loss(x, w, b).backward(2.0)
    assert_gradients((x, w, b), (wx, ww, wb), times=2)
    loss(x, w, b).backward(inputs=[w])
    assert_gradients((w,), (ww,), times=3)
    loss(x, w, b).backward(workers=2)
    assert_gradients((x, w, b), (wx, ww * 4 / 3, wb), times=3)
    b.grad = None
    loss(x, w, b).backward(create_graph=True)
    assert b.grad.node is not None
    kept = b.grad
    loss(x, w, b).backward()  # adds to a gradient that has a graph
    np.testing.assert_allclose(b.grad.numpy(), 2 * wb, rtol=1e-11)
    assert kept.node is not None


def test_inside_a_function_that_grad_runs_the_pass_is_differentiated():
    def inner(w):
        leaf_w = w * 1.0
        y = loss(X, leaf_w, B)
        return pb.gradients(y, leaf_w)[0].sum()

    def inner_backward(b):
        w = leaf(W)
        loss(X, w, b).backward()
        return w.grad.sum()

    step = 1e-6
    for f, at in ((inner, W), (inner_backward, B)):
        found = pb.grad(f)(at)  # a leaf made inside may still be differentiated
        found = found.detach().numpy() if isinstance(found, pb.Tensor) else found
        direction = RNG.normal(size=at.shape)

        def value(t, f=f, at=at, direction=direction):
            with pb.native(False):
                return float(np.asarray(f(pb.tensor(at + t * direction, requires_grad=True)).detach()))

        slope = (value(step) - value(-step)) / (2 * step)
        np.testing.assert_allclose(np.sum(found * direction), slope, rtol=1e-5)


def test_instruments_and_modes_see_the_pass():
    x, w, b = leaf(X), leaf(W), leaf(B)
    y = loss(x, w, b)
    with pb.detect_anomaly():
        y.backward()
    with pb.no_grad():
        loss_value = loss(x, w, b)
    assert loss_value.node is None
    y = loss(x, w, b)
    with pb.no_grad():
        y.backward()
    assert_gradients((x, w, b), wanted_gradients(), times=2)


def test_a_leaf_that_died_and_one_that_was_rebound():
    x, w = leaf(X), leaf(W)
    y = loss(x, w, leaf(B))
    y.backward()
    y = loss(x, w, B)
    with pb.no_grad():
        w -= 0.5
    y.backward()  # at the values that the loss was computed at
    wx, ww, _ = wanted_gradients()
    np.testing.assert_allclose(w.grad.numpy(), 2 * ww, rtol=1e-11)
    np.testing.assert_allclose(x.grad.numpy(), 2 * wx, rtol=1e-11)


def test_a_shared_leaf_keeps_its_own_spec():
    memory = W.copy()
    w = pb.asarray(memory, copy=False)
    w.requires_grad = True
    loss(X, w, B).backward()
    np.testing.assert_allclose(w.grad.numpy(), wanted_gradients()[1], rtol=1e-11)
    assert w.grad.spec.plain is not None


def test_an_error_leaves_every_gradient_as_it_was():
    f = pb.jit(lambda a, b: pb.sum(a * a * b))
    a, b = leaf(np.ones(3)), leaf(np.ones(3))
    f(a, b).backward()
    before = a.grad, b.grad
    b._grad = pb.tensor(np.ones(4))  # no sum with a gradient of another shape
    y = f(a, b)
    with pytest.raises(ValueError, match=r"shape|broadcast"):
        y.backward()
    assert a.grad is before[0]
    assert b.grad.shape == (4,)


def test_a_fused_loss_is_delivered_directly_too(sweeps):
    x = leaf(X)
    labels = np.array([0, 4, 2, 1])
    pb.nn.cross_entropy(x, labels).backward()
    assert not sweeps
    p = np.exp(X - X.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    p[np.arange(4), labels] -= 1
    np.testing.assert_allclose(x.grad.numpy(), p / 4, rtol=1e-10)


def test_threads_add_to_one_leaf():
    w = leaf(np.ones((5, 3)))
    rounds, f = 50, pb.jit(lambda w, s: pb.sum(w * s))
    f(w, np.ones((5, 3))).backward()
    w.grad = None

    def work():
        for _ in range(rounds):
            f(w, np.ones((5, 3))).backward()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    np.testing.assert_array_equal(w.grad.numpy(), 4 * rounds * np.ones((5, 3)))
