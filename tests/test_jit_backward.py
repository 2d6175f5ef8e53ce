"""The way back through a compiled function: forward runs once, what is cheap is not kept, and every order holds."""

import numpy as np
import pytest

import pullback as pb
from pullback.arrays.trees import flatten
from pullback.compile.stage.residuals import is_cheap
from pullback.program.split import split_forward_backward
from pullback.program.stage import stage

pytest.importorskip("llvmlite")
pytestmark = pytest.mark.usefixtures("quick_code")
RNG = np.random.default_rng(0)
X = RNG.normal(size=(4, 5))
W = RNG.normal(size=(5, 3))


def close(a, b, tolerance=1e-11):
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=tolerance, atol=tolerance)


def split_up(f, *args):
    """The two programs of a function's way back to all its arguments."""

    def both(*symbols):
        out, pull = pb.vjp(f, *symbols[:-1])
        return [out, *pull(symbols[-1])]

    specs = [pb.spec_of(a) for a in args]
    return split_forward_backward(stage(both, *specs, pb.spec_of(f(*args))), len(args), 1, is_cheap)


def names(graph):
    return [e.op.name for e in graph.equations]


def test_what_needs_no_cotangent_runs_with_the_forward_pass():
    parts = split_up(lambda x, w: pb.tanh(x @ w), X, W)
    assert names(parts.forward) == ["matmul", "tanh"]
    assert "tanh" not in names(parts.backward)
    assert set(parts.residual_sources) == {("result", 0), ("argument", 0), ("argument", 1)}
    assert len(parts.forward.outputs) == 1  # 1 - tanh^2 is computed again


def test_what_is_dear_is_kept_and_what_is_cheap_is_computed_again():
    parts = split_up(lambda x: pb.sum(pb.exp(x) * pb.sin(x)), X)
    assert sorted(names(parts.forward)) == ["cos", "exp", "multiply", "sin", "sum"]
    assert not {"exp", "sin", "cos"} & set(names(parts.backward))
    kept = parts.forward.outputs[1:]
    assert len(kept) <= 3
    cheap = split_up(lambda x: pb.sum(pb.relu(2.0 * x) ** 2), X)
    assert len(cheap.forward.outputs) == 1  # all of it follows from x by a few multiplications


def test_a_function_runs_forward_once():
    calls = []

    @pb.custom_op
    def counted(x):
        calls.append(1)
        return np.multiply(x, x)

    counted.def_spec(lambda x: x)
    counted.def_vjp(lambda bar, x: bar * 2.0 * x)
    f = pb.jit(lambda x: pb.sum(pb.exp(counted(x))))
    close(pb.grad(f)(X), 2 * X * np.exp(X * X))
    assert len(calls) == 1
    x = pb.tensor(X, requires_grad=True)
    y = f(x)
    y.backward()
    assert len(calls) == 2
    close(x.grad.numpy(), 2 * X * np.exp(X * X))


def several(x, w, n):
    """Results of all kinds: two that carry derivatives, whole numbers, and a constant."""
    h = pb.softmax(x @ w, axis=-1) * pb.stop_gradient(pb.exp(x[:, :1]))
    return {"h": h, "at": pb.argmax(h, axis=1), "s": pb.sum(pb.sort(h, axis=1) ** n), "c": np.ones(2)}


def number(f):
    def g(x, w):
        out = f(x, w, np.asarray(3))
        return pb.sum(pb.sin(out["h"])) * out["s"]

    return g


ORDERS = {
    "grad": lambda f: pb.grad(f, argnums=(0, 1))(X, W),
    "grad of one": lambda f: pb.grad(f, argnums=1)(X, W),
    "grad of grad": lambda f: pb.grad(lambda x: pb.sum(pb.grad(f, argnums=1)(x, W) ** 2))(X),
    "jvp of grad": lambda f: pb.jvp(lambda w: pb.grad(f, argnums=1)(X, w), (W,), (np.cos(W),)),
    "grad of jvp": lambda f: pb.grad(lambda w: pb.jvp(lambda x: f(x, w), (X,), (np.cos(X),))[1])(W),
    "third": lambda f: pb.grad(lambda v: pb.sum(pb.grad(lambda w: pb.sum(pb.grad(f, argnums=1)(X, w) ** 2))(v)))(W),
    "vmap of grad": lambda f: pb.vmap(lambda x: pb.grad(lambda w: f(x[None], w))(W))(X),
    "grad of vmap": lambda f: pb.grad(lambda w: pb.sum(pb.vmap(lambda x: f(x[None], w))(X) ** 2))(W),
    "hessian": lambda f: pb.hessian(lambda b: f(X, W + b))(np.zeros(3)),
    "checkpointed": lambda f: pb.grad(pb.checkpoint(f), argnums=(0, 1))(X, W),
    "compiled": lambda f: pb.jit(pb.value_and_grad(f, argnums=(0, 1)))(X, W),
}


@pytest.mark.parametrize("what", ORDERS)
def test_every_order_through_a_compiled_function(what):
    found, wanted = (ORDERS[what](number(way(several))) for way in (pb.jit, lambda f: f))
    for a, b in zip(flatten(found)[0], flatten(wanted)[0], strict=True):
        close(a, b, 1e-9)


def test_a_nested_compiled_function_is_part_of_the_program_around_it():
    f = pb.jit(lambda x: pb.sum(pb.tanh(x)))
    text = pb.jit(lambda x: pb.value_and_grad(f)(x)).lower(X).explain()
    assert "host" not in text


def test_hooks_on_several_results():
    x = pb.tensor(X, requires_grad=True)
    out = pb.jit(lambda x: (pb.exp(x), pb.sum(pb.sin(x))))(x)
    seen = []
    out[1].register_hook(lambda bar: seen.append(float(bar)) or 3.0 * bar)
    (pb.sum(out[0]) + 2.0 * out[1]).backward()
    assert seen == [2.0]
    close(x.grad.numpy(), np.exp(X) + 6 * np.cos(X))


def test_results_that_no_cotangent_reaches():
    x = pb.tensor(X, requires_grad=True)
    first, _ = pb.jit(lambda x: (pb.exp(x), pb.sum(pb.log(x))))(x)
    pb.sum(first).backward()
    assert x.grad is not None


def test_tensors_are_never_written_over():
    x = pb.tensor(X.copy(), requires_grad=True)
    y = pb.sum(x * x)
    step = pb.jit(lambda x: x + 1.0, donate_argnums=0)
    step(x)
    step(x.detach())
    with pb.no_grad():
        step(x)
    y.backward()
    close(x.grad.numpy(), 2 * X)


def test_a_graph_may_be_kept_and_gone_back_through_twice():
    x = pb.tensor(X, requires_grad=True)
    y = pb.jit(lambda x: pb.sum(pb.exp(x)))(x)
    y.backward(retain_graph=True)
    y.backward()
    close(x.grad.numpy(), 2 * np.exp(X))


@pytest.mark.parametrize("check", [False, True])
def test_an_argument_that_no_cotangent_reaches_gets_none(check):
    """By a direct call, and by the general path, which a checked function takes."""
    f = pb.jit(lambda x, y: x * pb.floor(y), check=check)
    x, y = pb.tensor([1.0, 2.0], requires_grad=True), pb.tensor([3.5, 4.5], requires_grad=True)
    f(x, y).sum().backward()
    assert x.grad.tolist() == [3.0, 4.0]
    assert y.grad is None
