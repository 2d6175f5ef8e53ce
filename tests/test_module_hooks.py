"""Hooks on the backward pass of modules: what they see and replace, on the tape, in transforms and compiled."""

import gc
import weakref

import numpy as np
import pytest

import pullback as pb
from pullback.errors import GraphError, HookError

W = np.array([[0.5, -1.0], [2.0, 0.3]])
X = np.array([0.4, -0.7])


class Layer(pb.nn.Module):
    weight: pb.Tensor

    def forward(self, x):
        return pb.tanh(self.weight @ x)


class Pair(pb.nn.Module):
    """Of a tree and a number that is no array, with two results and labels beside them."""

    def forward(self, both, power):
        return {"sum": both["a"] + both["b"], "power": both["a"] ** power, "count": np.array([2])}


def layer():
    return Layer(pb.tensor(W, requires_grad=True))


def slope(x=X):
    """d sum(tanh(W x)) / d (W x)."""
    return 1 - np.tanh(W @ x) ** 2


def doubled(module, grad_input, grad_output):
    return tuple(2 * g for g in grad_input)


def test_a_hook_sees_both_gradients_once_and_may_replace_those_of_the_arguments():
    net, seen = layer(), []
    net.register_full_backward_hook(lambda m, given, wanted: seen.append((m, given, wanted)))
    handle = net.register_full_backward_hook(doubled)
    x = pb.tensor(X, requires_grad=True)
    (net(x) * 3).sum().backward()
    ((module, (given,), (wanted,)),) = seen
    assert module is net
    assert np.allclose(wanted, 3 * np.ones(2))
    assert np.allclose(given, 3 * W.T @ slope())
    assert np.allclose(x.grad, 6 * W.T @ slope())
    assert np.allclose(net.weight.grad, 3 * np.outer(slope(), X)), "those of parameters stay"
    handle.remove()
    x.grad = None
    net(x).sum().backward()
    assert np.allclose(x.grad, W.T @ slope())
    assert len(seen) == 2


def test_a_pre_hook_replaces_gradients_of_results_before_all_others_see_them():
    net, seen = layer(), []
    x = pb.tensor(X, requires_grad=True)
    net.register_full_backward_hook(lambda m, given, wanted: seen.append(wanted[0].tolist()))
    with net.register_full_backward_pre_hook(lambda m, wanted: wanted[0] * np.array([0.0, 5.0])):
        net(x).sum().backward()
    assert seen == [[0.0, 5.0]]
    assert np.allclose(x.grad, W.T @ (slope() * [0, 5]))
    assert np.allclose(net.weight.grad, np.outer(slope() * [0, 5], X))
    net(x).sum().backward()
    assert seen[1] == [1.0, 1.0]


def test_hooks_run_in_the_order_of_registration_and_modules_from_the_last_to_the_first():
    net, seen = pb.nn.Sequential(layer(), layer()), []
    for i in (1, 0):
        net[i].register_full_backward_hook(lambda m, g, h, i=i: seen.append(f"after {i}"))
        net[i].register_full_backward_hook(lambda m, g, h, i=i: seen.append(f"again {i}"))
        net[i].register_full_backward_pre_hook(lambda m, h, i=i: seen.append(f"before {i}"))
    net(pb.tensor(X, requires_grad=True)).sum().backward()
    assert seen == ["before 1", "after 1", "again 1", "before 0", "after 0", "again 0"]


def test_arguments_without_gradients():
    net, seen = layer(), []
    net.register_full_backward_hook(lambda m, given, wanted: seen.append((given, wanted[0].tolist())))
    net(X).sum().backward()
    assert seen == [((None,), [1.0, 1.0])]
    with (
        net.register_full_backward_hook(lambda *found: (X,)),
        pytest.raises(HookError, match="arguments that have none"),
    ):
        net(X).sum().backward()
    with pb.no_grad():
        net(X)
    assert isinstance(net.arrays()(X), np.ndarray)
    assert len(seen) == 2


def test_trees_and_results_that_are_not_used():
    net, seen = Pair(), []
    net.register_full_backward_hook(lambda m, given, wanted: seen.append((given, wanted)))
    a, b = pb.tensor(2.0, requires_grad=True), pb.tensor(3.0)
    out = net({"a": a, "b": b}, 2)
    assert isinstance(out["count"], np.ndarray)
    out["power"].backward()
    given, wanted = seen[0]
    assert [None if g is None else g.item() for g in given] == [4.0, None]
    assert [None if g is None else g.item() for g in wanted] == [None, 1.0, None], "count, power, sum"
    assert a.grad.item() == 4.0


def test_hooks_are_differentiated_with_the_pass():
    net = layer()
    net.register_full_backward_hook(lambda m, given, wanted: (given[0] ** 2,))
    x = pb.tensor(X, requires_grad=True)
    (g,) = pb.gradients(net(x).sum(), [x], create_graph=True)
    assert np.allclose(g.detach(), (W.T @ slope()) ** 2)
    g.sum().backward()
    wanted = [np.sum((W.T @ slope(X + 1e-30j * e)) ** 2).imag / 1e-30 for e in np.eye(2)]
    assert np.allclose(x.grad, np.square(wanted)), "the second pass goes through the module, and its hook, again"


TAKERS = {
    "grad": lambda f: pb.grad(f)(X),
    "compiled": lambda f: pb.jit(pb.grad(f))(X),
    "checkpoint": lambda f: pb.grad(pb.checkpoint(f))(X),
    "vmap": lambda f: pb.vmap(pb.grad(f))(np.stack([X, X]))[1],
    "loop": lambda f: pb.grad(lambda x: pb.fori_loop(0, 1, lambda i, s: f(x), 0.0))(X),
    "workers": lambda f: _by_workers(f),
}


def _by_workers(f):
    x = pb.tensor(X, requires_grad=True)
    f(x).backward(workers=2)
    return x.grad


@pytest.mark.parametrize("taker", TAKERS)
def test_in_transforms_and_compiled(taker):
    net = Layer(W)
    net.register_full_backward_hook(doubled)
    net.register_full_backward_pre_hook(lambda m, wanted: (wanted[0] * 3,))
    assert np.allclose(TAKERS[taker](lambda x: pb.sum(net(x))), 6 * W.T @ slope())


def test_forward_mode_goes_around_hooks_and_through_their_gradients():
    net = Layer(W)
    net.register_full_backward_hook(doubled)
    f = lambda x: pb.sum(net(x))  # noqa: E731
    assert np.allclose(pb.jvp(f, (X,), (np.ones(2),))[1], np.sum(W.T @ slope()))
    twice = np.array([(2 * W.T @ slope(X + 1e-30j * e)).imag / 1e-30 for e in np.eye(2)])
    assert np.allclose(pb.jvp(pb.grad(f), (X,), (np.ones(2),))[1], twice @ np.ones(2))
    assert np.allclose(pb.jit(lambda x: pb.jvp(pb.grad(f), (x,), (np.ones(2),))[1])(X), twice @ np.ones(2))


def test_compiled_they_are_traced_once_and_never_stale():
    net, seen = Layer(W), []
    net.register_full_backward_hook(lambda m, given, wanted: seen.append(1))
    compiled = pb.jit(pb.grad(lambda net, x: pb.sum(net(x)), argnums=1))
    assert np.allclose(compiled(net, X), W.T @ slope())
    assert np.allclose(compiled(net, X), W.T @ slope())
    assert seen == [1]
    with net.register_full_backward_hook(doubled):
        assert np.allclose(compiled(net, X), 2 * W.T @ slope())
    assert np.allclose(compiled(net, X), W.T @ slope())


def test_a_trace_without_a_backward_pass_is_refused():
    net = Layer(W)
    net.register_full_backward_hook(doubled)
    with pytest.raises(GraphError, match="traced without its backward pass"):
        pb.jit(net)(X)

    @pb.jit
    def infer(x):
        with pb.no_grad():
            return net(x)

    assert np.allclose(infer(X), np.tanh(W @ X))


def test_mistakes():
    net = layer()
    x = pb.tensor(X, requires_grad=True)
    for found, message in (
        ((X, X), "returned 2 gradients, wanted one for each of the 1 arrays among the arguments"),
        ("text", "returned a str"), (np.ones(3), r"returned float64\[3\], wanted float64\[2\]"),
    ):  # fmt: skip
        with net.register_full_backward_hook(lambda *_, found=found: found), pytest.raises(HookError, match=message):
            net(x).sum().backward()
        assert x.grad is None
    with pytest.raises(pb.errors.ArgumentError, match="must be callable"):
        net.register_full_backward_hook(3)


def test_nothing_stays_alive():
    net = layer()
    net.register_full_backward_hook(doubled)
    x = pb.tensor(X, requires_grad=True)
    out = net(x)
    out.sum().backward()
    seen = weakref.ref(out)
    gc.disable()
    del out
    assert seen() is None
    gc.enable()
