"""Direct calls of compiled functions on the tape: one node, one native call each way, every order, no leaks."""

import gc
import sys
import threading
import weakref

import numpy as np
import pytest
from direct_layer import B, W, X, close, gradients_by_hand, layer, leaf

import pullback as pb
from pullback.arrays.node import Node
from pullback.arrays.tensor import Tensor
from pullback.compile.cpu.runner import CpuRunner
from pullback.compile.target import RECORDED, UNRECORDED, UNTRACKED

pytest.importorskip("llvmlite")
pytestmark = pytest.mark.usefixtures("quick_code")


def count_native_calls(monkeypatch):
    calls = []
    make_call = CpuRunner.make_call

    def counted(self, takes, *rest):
        call = make_call(self, takes, *rest)
        return lambda *inputs: calls.append(takes) or call(*inputs)

    monkeypatch.setattr(CpuRunner, "make_call", counted)
    run = CpuRunner.run
    monkeypatch.setattr(CpuRunner, "run", lambda self, arrays: calls.append("run") or run(self, arrays))
    return calls


def test_native_calls_are_one_forward_and_one_backward(monkeypatch):
    calls = count_native_calls(monkeypatch)
    f = pb.jit(lambda x, w, b: pb.sum(layer(x, w, b)))
    x, w, b = leaf(X), leaf(W), leaf(B)
    f(x, w, b).backward()
    calls.clear()
    y = f(x, w, b)
    assert calls == [RECORDED]
    y.backward()
    assert calls == [RECORDED, UNTRACKED]  # gradients are made as tensors
    calls.clear()
    f(pb.tensor(X), W, b.detach())
    f(pb.tensor(X), W, b.detach())
    with pb.no_grad():
        f(x, w, b)
    assert calls == [RECORDED, UNTRACKED, UNTRACKED, UNRECORDED]  # the first shows that nothing is tracked now


def test_one_node_without_tensors_for_residuals():
    f = pb.jit(lambda x: pb.sum(pb.sin(x) * pb.exp(x)))
    x = leaf(X)
    f(x)
    y = f(x)
    assert y.node.parents == (x.node,)
    assert y.node.call is f(x).node.call  # shared, and with a step of its own
    assert y.node.call.step is not None
    assert all(type(kept) is np.ndarray for kept in y.node.kept)
    assert "y = f(x)" in y.node.where()


def test_several_results_each_with_a_cotangent_or_without():
    f = pb.jit(lambda x, w: (pb.tanh(x @ w), pb.sum(x * x), pb.exp(x)))
    h = np.tanh(X @ W)
    parts = ((1 - h * h) @ W.T, 2 * X, np.exp(X))
    for some in ((0,), (1,), (2,), (0, 2), (1, 2, 2), (0, 1, 2)):
        x = leaf(X)
        outs = f(x, W)
        sum(pb.sum(outs[i].T) for i in some).backward()
        close(x.grad, sum(parts[i] for i in some))
    x = leaf(X)
    outs, seen = f(x, leaf(W)), []
    outs[0].register_hook(lambda bar: seen.append(bar.shape))
    outs[0].node.parents[0].register_hook(lambda shares, bar: seen.append(len(shares)))
    pb.sum(pb.where(h > 0, outs[0], 0.0)).backward()
    close(x.grad, ((1 - h * h) * (h > 0)) @ W.T)
    assert seen == [(4, 3), 2]


def test_hooks():
    f = pb.jit(lambda x: pb.exp(x))
    x, seen = leaf(X), []
    f(x)
    y = f(x)
    y.register_hook(lambda bar: seen.append("grad") or bar * 3.0)
    y.node.register_pre_hook(lambda bar: seen.append("pre"))
    y.node.register_hook(lambda shares, bar: seen.append(len(shares)) or (shares[0] * 2.0,))
    y.retain_grad()
    y.backward(np.ones_like(X))
    close(x.grad, 6 * np.exp(X))
    close(y.grad, 3 * np.ones_like(X))
    assert seen == ["grad", "pre", 1]


def test_a_graph_is_freed_or_kept():
    f = pb.jit(lambda x: pb.sum(pb.exp(x)))
    x = leaf(X)
    f(x)
    y = f(x)
    y.backward(retain_graph=True)
    y.backward()
    close(x.grad, 2 * np.exp(X))
    with pytest.raises(pb.errors.GraphError, match="freed"):
        y.backward()


@pytest.mark.parametrize("workers", [1, 2])
def test_some_inputs_alone(workers):
    f = pb.jit(lambda x, w, b: pb.sum(layer(x, w, b)))
    for _ in range(2):
        x, w, b = leaf(X), leaf(W), leaf(B)
        f(x, w, b).backward(inputs=[w], workers=workers)
        assert x.grad is b.grad is None
        close(w.grad, gradients_by_hand(np.ones((4, 3)))[1])


def test_every_order():
    f = pb.jit(lambda x, w: pb.sum(pb.tanh(x @ w) ** 2))
    g = lambda x, w: pb.sum(pb.tanh(x @ w) ** 2)  # noqa: E731

    def third(f):
        x, w = leaf(X), leaf(W)
        f(x, w)
        (first,) = pb.gradients(f(x, w), w, create_graph=True)
        (second,) = pb.gradients(pb.sum(first * first), x, create_graph=True)
        return pb.gradients(pb.sum(pb.sin(second)), [x, w])

    for mine, theirs in zip(third(f), third(g), strict=True):
        close(mine, theirs.numpy(), 1e-9)


def test_a_backward_pass_that_is_differentiated_later():
    """Whether a pass is differentiated is known only when it runs: the node of a direct call serves both."""
    f = pb.jit(lambda x: pb.sum(x * pb.exp(x)))
    x = leaf(X)
    for create_graph in (False, True, False, True):
        x.grad = None
        y = f(x)
        y.backward(create_graph=create_graph)
        close(x.grad, np.exp(X) * (1 + X))
        if create_graph:
            (second,) = pb.gradients(pb.sum(x.grad), x)
            close(second, np.exp(X) * (2 + X))


def test_grad_of_a_function_that_calls_compiled_ones():
    f, g = pb.jit(lambda x, w: pb.tanh(x @ w)), pb.jit(lambda h: pb.sum(h * h))
    whole = lambda w: g(f(X, w)) + pb.sum(f(X, w))  # noqa: E731
    h = np.tanh(X @ W)
    for _ in range(2):
        close(pb.grad(whole)(W), X.T @ ((2 * h + 1) * (1 - h * h)))


def test_masked_cotangents():
    f = pb.jit(lambda x: pb.log(x))
    for _ in range(2):
        x = leaf(np.array([1.0, 2.0]))
        pb.sum(pb.where(np.array([True, False]), f(x), 0.0)).backward()
        close(x.grad, [1.0, 0.0])


@pytest.mark.parametrize("compiled", [pb.jit, pb.fuse])
def test_masked_cotangents_of_an_argument_given_twice(compiled):
    """Of the two places one gets the cotangent, or a pass that is differentiated itself would count it twice."""
    f = compiled(lambda x, y: x * y * y)  # x**3 here
    chosen = np.array([True, False])
    for _ in range(2):
        x = leaf(np.array([1.5, 2.0]))
        y = pb.sum(pb.where(chosen, f(x, x), 0.0))
        (first,) = pb.gradients(y, [x], create_graph=True)
        close(first.detach(), [3 * 1.5**2, 0.0])
        pb.sum(first).backward()
        close(x.grad, [6 * 1.5, 0.0])


def test_saved_values_are_freed_by_the_backward_pass():
    f = pb.jit(lambda x: pb.sum(pb.sin(x) * pb.exp(x)))
    x = leaf(X)
    f(x)
    y = f(x)
    held = [weakref.ref(kept) for kept in y.node.kept if kept is not x.value]
    assert held
    y.backward()
    assert [r() for r in held] == [None] * len(held)
    z = f(x)
    held = [weakref.ref(kept) for kept in z.node.kept if kept is not x.value]
    del z
    assert [r() for r in held] == [None] * len(held)


def test_calls_leave_nothing_behind():
    f = pb.jit(lambda x, w: (x @ w, pb.sum(x)))
    x, w = leaf(X), pb.tensor(W)

    def calls():
        for _ in range(200):
            out = f(x, w)
            pb.sum(out[0]).backward()
            f(X, W)
            f(X, w)
            with pb.no_grad():
                f(x, w)
        x.grad = None
        del out
        gc.collect()
        return [sys.getrefcount(a) for a in (None, True, x.value, w.value, X, np.dtype("d"), Tensor, x.spec)]

    calls()
    before, objects = calls(), sum(isinstance(o, (Tensor, Node)) for o in gc.get_objects())
    after = calls()
    assert all(abs(a - b) < 50 for a, b in zip(before, after, strict=True))
    assert sum(isinstance(o, (Tensor, Node)) for o in gc.get_objects()) == objects


def test_compiled_functions_are_freed():
    def make():
        f = pb.jit(lambda x: pb.sum(pb.sin(x)))
        f(leaf(X)).backward()
        f(X)
        return weakref.ref(f), weakref.ref(f.last.code)

    found = make()
    gc.collect()
    assert [r() for r in found] == [None, None]


def test_threads_with_tensors_of_all_kinds():
    f = pb.jit(lambda x, w: pb.sum(pb.tanh(x @ w)))
    f(X, W)
    h = np.tanh(X @ W)
    grad_w, wrong = X.T @ (1 - h * h), []

    def work(kind):
        for _ in range(100):
            if kind == "recorded":
                w = leaf(W)
                f(X, w).backward()
                if not np.allclose(w.grad.numpy(), grad_w):
                    wrong.append(kind)
            else:
                out = f(X, pb.tensor(W) if kind is Tensor else W)
                wrong.extend([kind] if type(out) is not kind else [])

    threads = [threading.Thread(target=work, args=(kind,)) for kind in ("recorded", Tensor, np.ndarray, "recorded")]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert wrong == []
