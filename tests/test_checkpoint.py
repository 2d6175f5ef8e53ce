"""Checkpoints: the same derivatives as without, from what is computed again; and nobody notices the second run."""

import contextvars
import gc
import os
import threading
import tracemalloc
import weakref
from collections import namedtuple

import numpy as np
import pytest

import pullback as pb
from pullback.errors import ArgumentError, RecomputeError
from pullback.ops import plans
from pullback.ops.op import Op
from pullback.ops.replay.streams import STREAMS, Stream
from pullback.settings import PLAIN, installed, modes
from pullback.tape.anomaly import AnomalyCheck
from pullback.transforms.custom.custom_op import custom_op

RNG = np.random.default_rng(7)
X = RNG.normal(size=(3, 4))
W = RNG.normal(size=(4, 4))


class Counted:
    """A function that counts how often it runs: in a list, since attributes are put back after a second run."""

    def __init__(self, function):
        self.function, self._calls = function, []

    @property
    def runs(self):
        return len(self._calls)

    def __call__(self, *args, **kwargs):
        self._calls.append(None)
        return self.function(*args, **kwargs)


def wavy(x):
    return pb.sin(pb.exp(pb.cos(x) * x)) + pb.tanh(x * x)


def scalar(f):
    return lambda *xs: pb.sum(f(*xs))


def same(mine, theirs):
    """To the last bit, structure and all."""
    mine, theirs = np.asarray(mine), np.asarray(theirs)
    assert mine.dtype == theirs.dtype
    assert mine.shape == theirs.shape
    np.testing.assert_array_equal(mine, theirs)


def leaf(value=X):
    return pb.tensor(value, requires_grad=True)


# What it must show


def test_seed_cases():
    x = leaf([1.0, 2.0, 3.0])
    y = pb.checkpoint(lambda x: x * x + x)(x)
    pb.sum(y).backward()
    assert pb.sum(y).item() == 20
    assert x.grad.tolist() == [3, 5, 7]
    a, b = leaf([1.0, 2.0, 3.0]), leaf([4.0, 5.0, 6.0])
    pb.sum(pb.checkpoint(lambda a, b: a * b + a)(a, b)).backward()
    assert a.grad.tolist() == [5, 6, 7]
    assert b.grad.tolist() == [1, 2, 3]


@pytest.mark.parametrize("value", [X, X.astype("float32"), X[0, 0], X[:0], X.T, X + 1j, X[::2, ::3]])
def test_the_gradient_is_the_plain_one_to_the_last_bit(value):
    def loss(f):
        return lambda x: pb.sum(pb.abs(f(x)))

    counted = Counted(wavy)
    same(pb.grad(loss(pb.checkpoint(counted)))(value), pb.grad(loss(wavy))(value))
    assert counted.runs == 2


def test_without_gradient_there_is_no_node_and_no_second_run():
    counted = Counted(wavy)
    f = pb.checkpoint(counted)
    assert isinstance(f(X), np.ndarray)
    assert f(pb.tensor(X)).node is None
    with pb.no_grad():
        assert f(leaf()).node is None
    with pb.inference_mode():
        assert f(leaf()).is_inference
    assert counted.runs == 4


def test_only_one_input_requires_its_gradient():
    a, b = leaf(), pb.tensor(X)
    pb.sum(pb.checkpoint(lambda a, b, s: pb.exp(pb.sin(a) * b) * s)(a, b, 2.0)).backward()
    plain = leaf()
    pb.sum(pb.exp(pb.sin(plain) * b) * 2.0).backward()
    same(a.grad, plain.grad)
    assert b.grad is None


def test_no_input_at_all_is_an_error():
    with pytest.raises(ArgumentError, match="without any array"):
        pb.checkpoint(lambda: 1.0)()
    with pytest.raises(ArgumentError, match="without any array"):
        pb.checkpoint(lambda xs: 1.0)([])
    with pytest.raises(ArgumentError, match="one function or more"):
        pb.checkpoint_sequential([], X)
    with pytest.raises(ArgumentError, match="holds no array"):
        pb.checkpoint_sequential([pb.sin], [])
    with pytest.raises(ArgumentError, match="wants a function"):
        pb.checkpoint(3)
    with pytest.raises(ArgumentError, match="policy wants"):
        pb.checkpoint(pb.sin, policy="dots")


# Calling it

Pair = namedtuple("Pair", "first second")


def test_trees_keywords_and_many_results():
    def f(p, *more, scale, flag="on"):
        h = pb.tanh(p["x"] @ p["w"]) * scale["s"]
        assert flag == "on"
        return Pair(pb.exp(h), {"sum": pb.sum(pb.sin(h)), "more": [pb.cos(m) for m in more]}), "text", None

    def loss(f):
        def run(p, m, s):
            pair, text, none = f(p, m, m, scale={"s": s})
            assert (text, none) == ("text", None)
            return pb.sum(pair.first) + pair.second["sum"] + pb.sum(pair.second["more"][1])

        return run

    args = {"x": X, "w": W}, X, 2.0
    mine = pb.grad(loss(pb.checkpoint(f)), (0, 1, 2))(*args)
    theirs = pb.grad(loss(f), (0, 1, 2))(*args)
    same(mine[0]["w"], theirs[0]["w"])
    same(mine[0]["x"], theirs[0]["x"])
    same(mine[1], theirs[1])
    same(mine[2], theirs[2])


def test_decorators_and_methods():
    class Layer:
        def __init__(self):
            self.w = leaf(W)

        @pb.checkpoint
        def __call__(self, x):
            """Doc."""
            return pb.tanh(pb.sin(x @ self.w))

        @pb.checkpoint(policy=pb.save_contractions, verify=True)
        def other(self, x, *, power=1):
            return pb.tanh(pb.sin(x @ self.w)) ** power

    layer = Layer()
    assert layer.__call__.__doc__ == "Doc."
    for run in (layer, layer.other, lambda x: layer.other(x, power=1)):
        layer.w.grad = None
        pb.sum(run(X)).backward()
        w = leaf(W)
        pb.sum(pb.tanh(pb.sin(X @ w))).backward()
        same(layer.w.grad, w.grad)


def test_closures_get_their_gradients():
    w = leaf(W)
    h = pb.exp(w)  # not a leaf, and outside

    def f(x):
        return pb.sin(pb.tanh(x @ w) @ h)

    pb.sum(pb.checkpoint(f)(X)).backward()
    mine, w.grad = w.grad, None
    h = pb.exp(w)
    pb.sum(f(X)).backward()
    same(mine, w.grad)


def test_the_same_tensor_twice_and_as_a_default():
    x = leaf()
    f = pb.checkpoint(lambda a, b: pb.sin(a * b) if a is b else a)
    pb.sum(f(x, x)).backward()
    plain = leaf()
    pb.sum(pb.sin(plain * plain)).backward()
    same(x.grad, plain.grad)


def test_a_result_that_is_an_argument_or_kept_by_the_caller():
    x = leaf()
    y, z = pb.checkpoint(lambda x: (x, pb.exp(pb.sin(x))))(x)
    assert y is x
    pb.sum(y * z).backward()
    plain = leaf()
    pb.sum(plain * pb.exp(pb.sin(plain))).backward()
    same(x.grad, plain.grad)


# Orders and transforms


def test_backward_twice_through_a_retained_graph():
    counted = Counted(wavy)
    x = leaf()
    y = pb.sum(pb.checkpoint(counted)(x))
    y.backward(retain_graph=True)
    first = x.grad.numpy().copy()
    y.backward()
    same(x.grad, first + first)
    assert counted.runs == 3


def test_reverse_over_reverse_on_the_tape():
    x, plain = leaf(), leaf()
    for t, f in ((x, pb.checkpoint(wavy)), (plain, wavy)):
        (g,) = pb.gradients(pb.sum(f(t)), t, create_graph=True)
        pb.sum(pb.sin(g)).backward()
    np.testing.assert_allclose(x.grad.numpy(), plain.grad.numpy(), rtol=1e-12)


HIGHER = {
    "grad of grad": lambda f: pb.grad(scalar(pb.grad(scalar(f)))),
    "jvp of grad": lambda f: lambda x: pb.jvp(pb.grad(scalar(f)), (x,), (x * 2,))[1],
    "grad of jvp": lambda f: pb.grad(lambda x: pb.sum(pb.jvp(f, (x,), (np.ones(x.shape),))[1])),
    "jvp of jvp": lambda f: lambda x: pb.jvp(lambda y: pb.jvp(f, (y,), (y * y,))[1], (x,), (x,))[1],
    "third": lambda f: pb.grad(scalar(pb.grad(scalar(pb.grad(scalar(f)))))),
    "hvp": lambda f: lambda x: pb.hvp(scalar(f), (x,), (x,)),
    "vmap of grad": lambda f: pb.vmap(pb.grad(scalar(f))),
    "grad of vmap": lambda f: pb.grad(scalar(pb.vmap(f))),
    "vmap of hessian": lambda f: pb.vmap(pb.hessian(scalar(f))),
    "jacrev": lambda f: lambda x: pb.jacrev(f)(x[0]),
    "jacfwd": lambda f: lambda x: pb.jacfwd(f)(x[0]),
    "hessian": lambda f: lambda x: pb.hessian(scalar(f))(x[0]),
    "jvp of vmap of grad": lambda f: lambda x: pb.jvp(pb.vmap(pb.grad(scalar(f))), (x,), (x,))[1],
    "linearize": lambda f: lambda x: pb.linearize(f, x)[1](x),
    "grad of linearize": lambda f: pb.grad(lambda x: pb.sum(pb.linearize(f, x)[1](x))),
    "jet": lambda f: lambda x: pb.jet(f, (x,), ((x, x),))[1][1],
    "vjp pulled twice": lambda f: lambda x: sum(pb.vjp(f, x)[1](x * k)[0] for k in (1.0, 2.0)),
}


@pytest.mark.parametrize("name", HIGHER)
@pytest.mark.parametrize("form", ["checkpoint", "nested", "inner", "contractions", "verified"])
def test_every_order_and_transform_agrees_with_plain(name, form):
    def halves(x):
        return pb.sin(pb.checkpoint(lambda h: pb.exp(pb.cos(h) * h))(x)) + pb.checkpoint(pb.tanh)(x * x)

    f = {
        "checkpoint": pb.checkpoint(wavy),
        "nested": pb.checkpoint(halves),
        "inner": halves,
        "contractions": pb.checkpoint(wavy, policy=lambda op, nbytes: op.name in ("exp", "multiply")),
        "verified": pb.checkpoint(wavy, verify=True),
    }[form]
    np.testing.assert_allclose(HIGHER[name](f)(X), HIGHER[name](wavy)(X), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("inside", [n for n in HIGHER if n not in ("third", "vmap of hessian")])
def test_transforms_inside_of_a_checkpoint(inside):
    def f(x):
        return pb.tanh(pb.sum(HIGHER[inside](pb.sin)(pb.exp(x)) * 0.5))

    same(pb.grad(pb.checkpoint(f))(X), pb.grad(f)(X))
    mine, theirs = (pb.grad(scalar(pb.grad(g)))(X) for g in (pb.checkpoint(f), f))
    np.testing.assert_allclose(mine, theirs, rtol=1e-12)


def test_a_tangent_is_pulled_back_after_its_jvp_is_over():
    x, plain = leaf(), leaf()
    counted = Counted(wavy)
    for t, f in ((x, pb.checkpoint(counted)), (plain, wavy)):
        y, dy = pb.jvp(f, (t,), (t * 2,))
        pb.sum(dy * y).backward()
    np.testing.assert_allclose(x.grad.numpy(), plain.grad.numpy(), rtol=1e-12)
    assert counted.runs == 2


def test_arguments_of_two_levels_keep_their_own_graph():
    w, plain = leaf(W), leaf(W)
    for t, wrapped in ((w, pb.checkpoint), (plain, lambda f: f)):
        f = wrapped(lambda x, w: pb.exp(pb.sin(x * w) * w))
        _, tangent = pb.jvp(lambda x, f=f, t=t: pb.grad(scalar(lambda x: f(x, t)))(x), (W,), (W,))
        pb.sum(tangent).backward()
    np.testing.assert_allclose(w.grad.numpy(), plain.grad.numpy(), rtol=1e-12)


def test_backward_and_gradients_inside_of_a_function_under_grad():
    def f(x):
        h = pb.exp(pb.sin(x))
        inner = pb.tensor(3.0, requires_grad=True)
        (pb.sum(h) * inner * inner).backward()
        (g,) = pb.gradients(pb.sum(h * h), h)
        return pb.sum(pb.sin(inner.grad) * g)

    same(pb.grad(pb.checkpoint(f))(X).detach(), pb.grad(f)(X).detach())


def test_gradient_tape():
    for persistent in (False, True):
        x = pb.tensor(X)
        with pb.GradientTape(persistent=persistent) as tape:
            tape.watch(x)
            y = pb.sum(pb.checkpoint(wavy)(x))
        same(tape.gradient(y, x), pb.grad(scalar(wavy))(X))


def test_staged_programs_hold_the_function_itself():
    from pullback.transforms.stage import stage

    counted = Counted(wavy)
    program = stage(pb.checkpoint(counted))(pb.spec_of(X))
    same(program.run(X), wavy(X))
    assert counted.runs == 1


def test_custom_ops_functions_and_equations_inside():
    @custom_op
    def cube(x):
        return x**3

    cube.def_vjp(lambda bar, x: bar * 3.0 * x * x)

    class Twice(pb.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, bar):
            (x,) = ctx.saved_tensors
            return bar * 2.0 * x

    def f(a):
        y = pb.fixed_point(lambda y, a: pb.cos(y) * a, 0.5, pb.sin(a) * 0.5)
        return Twice.apply(pb.sin(cube(pb.sin(a)))) * y

    same(pb.grad(pb.checkpoint(f))(0.7), pb.grad(f)(0.7))
    np.testing.assert_allclose(pb.grad(pb.grad(pb.checkpoint(f)))(0.7), pb.grad(pb.grad(f))(0.7), rtol=1e-12)


def test_masks_ties_and_control_flow():
    def f(x):
        h = pb.where(x > 0, pb.log(pb.where(x > 0, x, 1.0)), pb.exp(x))
        h = pb.maximum(h, 0.5) * pb.max(x) + pb.clip(h, -0.5, 0.5)
        return h if pb.sum(h) > -1e9 else x

    same(pb.grad(scalar(pb.checkpoint(f)))(X), pb.grad(scalar(f))(X))
    loop = pb.checkpoint(lambda x: pb.fori_loop(0, 4, lambda i, h: pb.sin(h) * 1.5, x))
    plain = lambda x: pb.fori_loop(0, 4, lambda i, h: pb.sin(h) * 1.5, x)  # noqa: E731
    same(pb.grad(scalar(loop))(X), pb.grad(scalar(plain))(X))


# Nobody notices the second run


def test_hooks_inside_fire_once():
    fired = []
    w = leaf(W)

    def f(x):
        h = pb.exp(x @ w)
        h.register_hook(lambda g: fired.append("h"))
        x.register_hook(lambda g: fired.append("x"))
        w.register_hook(lambda g: fired.append("w"))
        return pb.sin(pb.sin(h))

    x = leaf()
    pb.sum(pb.checkpoint(f)(x)).backward()
    assert sorted(fired) == ["h", "w", "x"]
    fired.clear()
    pb.sum(x @ w).backward()
    assert sorted(fired) == ["w", "x"], "the second run left no hooks behind"


def test_a_hook_inside_changes_the_gradient_and_an_inner_pass_sees_it():
    def f(x):
        h = pb.exp(pb.sin(x))
        h.register_hook(lambda g: g * 2.0)
        (g,) = pb.gradients(pb.sum(h * h * h), h, retain_graph=True, create_graph=True)
        return pb.sum(pb.sin(h) * g)

    same(pb.grad(pb.checkpoint(f))(X), pb.grad(f)(X))


def test_retained_gradients_of_intermediates():
    held = []

    def f(x):
        h = pb.exp(pb.sin(x))
        h.retain_grad()
        held.append(h)
        return pb.sin(h)

    x = leaf()
    pb.sum(pb.checkpoint(f)(x)).backward()
    same(held[0].grad, np.cos(np.exp(np.sin(X))))


def test_gradients_of_leaves_outside_are_written_once():
    w = leaf(2.0)

    def f(x):
        h = pb.exp(pb.sin(x))
        (pb.tensor(3.0) * w * w).backward()
        return pb.sin(pb.sin(h))

    x = leaf()
    y = pb.checkpoint(f)(x)
    assert w.grad.item() == 12
    pb.sum(y).backward()
    assert w.grad.item() == 12
    same(x.grad, pb.grad(scalar(lambda x: pb.sin(pb.sin(pb.exp(pb.sin(x))))))(X))


def test_running_statistics_move_once_and_the_second_run_starts_where_the_first_did():
    mean = pb.tensor(np.zeros(4))
    seen = []

    def f(x):
        with pb.no_grad():
            mean.__iadd__(pb.mean(x.detach(), axis=0) * 0.1)
        seen.append(mean.numpy().copy())
        return pb.exp(pb.sin(x - mean))

    x = leaf()
    y = pb.checkpoint(f, verify=True)(x)
    once = mean.numpy().copy()
    mean += 5.0
    pb.sum(y).backward()
    assert len(seen) == 2
    same(seen[0], seen[1])
    same(mean, once + 5.0)


def test_in_place_work_inside_and_on_an_argument():
    def f(x):
        h = pb.exp(pb.sin(x))
        h += x
        h *= h
        h[0] = pb.sin(x[1])
        x *= 2.0
        return pb.sin(h) * x

    def loss(f):
        return lambda x: pb.sum(f(x * 1.0))

    same(pb.grad(loss(pb.checkpoint(f)))(X), pb.grad(loss(f))(X))


def test_modes_are_replayed():
    seen = []
    note = contextvars.ContextVar("note", default="none")

    def f(x):
        seen.append((modes().grad, installed().innermost(AnomalyCheck) is not None, note.get(), np.geterr()["over"]))
        with pb.no_grad():
            k = pb.sum(pb.sin(x))
        return pb.exp(pb.sin(x)) * k

    x = leaf()
    with pb.detect_anomaly(), np.errstate(over="raise"):
        token = note.set("first")
        y = pb.sum(pb.checkpoint(f)(x))
        note.reset(token)
    with pb.no_grad():
        y.backward()
    assert seen[0] == seen[1] == (True, True, "first", "raise")
    same(x.grad, pb.grad(scalar(f))(X))


# Random streams


def dropped(x, rng=None):
    mask = (np.random if rng is None else rng).random(x.shape) > 0.5
    return pb.sin(pb.exp(pb.sin(x) * mask)) * mask


def expected_dropout(mask):
    return pb.grad(scalar(lambda x: pb.sin(pb.exp(pb.sin(x) * mask)) * mask))(X)


def test_the_global_stream_is_replayed_and_goes_on_as_if_nothing_had_been_rewound():
    for _ in range(2):  # with a normal deviate held back, and without
        np.random.seed(3)
        np.random.normal()
        state = np.random.get_state()
        mask = np.random.random(X.shape) > 0.5
        later = np.random.normal(size=3)
        np.random.set_state(state)
        x = leaf()
        y = pb.sum(pb.checkpoint(dropped, verify=True)(x))
        mine = [np.random.normal()]
        y.backward()
        mine += [np.random.normal(), np.random.normal()]
        same(x.grad, expected_dropout(mask))
        same(mine, later)


def normals(x):
    return pb.sin(pb.exp(pb.sin(x) * np.random.normal()))


def test_a_deviate_held_back_is_replayed():
    np.random.seed(5)
    f = pb.checkpoint(normals, verify=True)
    outs = [(x := leaf(), pb.sum(f(x))) for _ in range(4)]
    for _, y in outs:
        y.backward()
    np.random.seed(5)
    for x, _ in outs:
        plain = leaf()
        pb.sum(normals(plain)).backward()
        same(x.grad, plain.grad)


class Holder:
    def __init__(self):
        self.parts = {"rng": np.random.default_rng(11)}

    def __call__(self, x):
        return dropped(x, self.parts["rng"])


module_rng = np.random.default_rng(11)


def reads_global(x):
    return dropped(x, module_rng)


def through_helper(x):
    return reads_global(x)


def streams():
    closed, default, state = (np.random.default_rng(11) for _ in range(3))
    legacy = np.random.RandomState(11)
    holder = Holder()
    module_rng.bit_generator.state = state.bit_generator.state
    return {
        "argument": (lambda x: pb.checkpoint(dropped, verify=True)(x, closed), closed),
        "keyword": (lambda x: pb.checkpoint(dropped, verify=True)(x, rng=closed), closed),
        "closure": (pb.checkpoint(lambda x: dropped(x, closed), verify=True), closed),
        "default": (pb.checkpoint(lambda x, rng=default: dropped(x, rng), verify=True), default),
        "global": (pb.checkpoint(reads_global, verify=True), module_rng),
        "global of a helper": (pb.checkpoint(through_helper, verify=True), module_rng),
        "legacy": (pb.checkpoint(lambda x: dropped(x, legacy), verify=True), legacy),
        "object": (pb.checkpoint(holder, verify=True), holder.parts["rng"]),
        "method": (pb.checkpoint(holder.__call__, verify=True), holder.parts["rng"]),
    }


@pytest.mark.parametrize("name", streams())
def test_generators_are_replayed_wherever_they_are_found(name):
    f, rng = streams()[name]
    twin = np.random.RandomState(11) if name == "legacy" else np.random.default_rng(11)
    mask = twin.random(X.shape) > 0.5
    later = twin.random(3)
    x = leaf()
    y = pb.sum(f(x))
    mine = [rng.random()]
    y.backward()
    same(x.grad, expected_dropout(mask))
    same([*mine, *rng.random(2)], later)


def test_registered_streams_are_replayed():
    counter = [0]
    stream = Stream("counter", lambda: counter[0], lambda state: counter.__setitem__(0, state))
    STREAMS.append(stream)
    try:

        def f(x):
            counter[0] += 1
            return pb.sin(pb.exp(x * counter[0]))

        x = leaf()
        y = pb.sum(pb.checkpoint(f, verify=True)(x))
        counter[0] = 10
        y.backward()
        assert counter[0] == 10
        same(x.grad, pb.grad(scalar(lambda x: pb.sin(pb.exp(x))))(X))
    finally:
        STREAMS.remove(stream)


def test_an_exception_in_the_second_run_leaves_everything_as_it_was():
    broken = [False]
    rng = np.random.default_rng(1)
    mean = pb.tensor(1.0)

    def f(x):
        h = pb.exp(pb.sin(x) * rng.random())
        mean.__iadd__(1.0)
        if broken[0]:
            raise KeyError("broken")
        return pb.sin(pb.sin(h))

    x = leaf()
    y = pb.sum(pb.checkpoint(f)(x))
    broken[0] = True
    before, stream = rng.bit_generator.state, np.random.get_state()[1].copy()
    x.grad = np.ones(X.shape)
    with pytest.raises(KeyError, match="broken") as caught:
        y.backward(retain_graph=True)
    assert any("recomputed" in note for note in caught.value.__notes__)
    assert rng.bit_generator.state == before
    same(np.random.get_state()[1], stream)
    assert mean.item() == 2
    assert modes() is PLAIN
    same(x.grad, np.ones(X.shape))
    broken[0] = False
    x.grad = None
    y.backward()
    assert np.isfinite(x.grad.numpy()).all()


def test_an_exception_in_the_first_run_leaves_everything_as_it_was():
    def f(x):
        pb.exp(pb.sin(x))
        raise KeyError("first")

    with pytest.raises(KeyError, match="first"):
        pb.checkpoint(f)(leaf())
    assert modes() == type(modes())()


# Changes in between


def test_an_array_written_to_in_between_is_read_as_it_was():
    data = X.copy()
    x = leaf()
    y = pb.sum(pb.checkpoint(lambda x, d: pb.exp(pb.sin(x * d) * d))(x, data))
    data[:] = 0.0
    y.backward()
    same(x.grad, pb.grad(scalar(lambda x: pb.exp(pb.sin(x * X) * X)))(X))


def test_shared_memory_is_locked_while_a_checkpoint_needs_it():
    data = X.copy()
    x = pb.asarray(data, copy=False).requires_grad_()
    y = pb.sum(pb.checkpoint(wavy)(x))
    with pytest.raises(ValueError, match="read-only"):
        data[0] = 1.0
    y.backward()
    same(x.grad, pb.grad(scalar(wavy))(X))
    del y
    data[0] = 1.0


def test_a_tensor_pointed_elsewhere_in_between_is_read_as_it_was():
    x = leaf()
    y = pb.sum(pb.checkpoint(wavy)(x))
    with pb.no_grad():
        x *= 0.0
    y.backward()
    same(x.grad, pb.grad(scalar(wavy))(X))


def test_a_tensor_under_a_dual_is_read_as_it_was_too():
    def pulled(f):
        x = leaf()
        h = x * 1.0
        _, dh = pb.jvp(f, (h,), (h * 2.0,))
        h *= 0.0
        pb.sum(dh).backward()
        return x.grad

    np.testing.assert_allclose(pulled(pb.checkpoint(wavy)).numpy(), pulled(wavy).numpy(), rtol=1e-12)


@pytest.mark.parametrize("transform", ["vmap", "jvp"])
def test_an_array_under_a_transform_is_read_as_it_was_too(transform):
    def pulled(wrapped):
        w, data = leaf(), X.copy()
        f = wrapped(lambda x: pb.exp(pb.sin(x * w[0])))
        y = pb.vmap(f)(data) if transform == "vmap" else pb.jvp(f, (data,), (X,))[1]
        data[:] = 0.0
        pb.sum(y).backward()
        return w.grad

    np.testing.assert_allclose(pulled(pb.checkpoint).numpy(), pulled(lambda f: f).numpy(), rtol=1e-12)


def test_the_function_may_write_to_its_own_array():
    def f(x, buffer):
        buffer += 1.0
        return pb.exp(pb.sin(x * buffer))

    x, buffer = leaf(), np.zeros(4)
    y = pb.sum(pb.checkpoint(f, verify=True)(x, buffer))
    y.backward(retain_graph=True)
    y.backward()
    same(buffer, np.ones(4))
    same(x.grad, 2 * pb.grad(scalar(lambda x: pb.exp(pb.sin(x))))(X))


def test_a_parameter_updated_before_the_backward_pass_is_read_as_it_was():
    w = leaf(W)
    x = leaf()
    y = pb.sum(pb.checkpoint(lambda x: pb.exp(pb.sin(x @ w)))(x))
    with pb.no_grad():
        w -= 0.1
    y.backward()
    same(x.grad, pb.grad(scalar(lambda x: pb.exp(pb.sin(x @ W))))(X))
    same(w.detach(), W - 0.1)


def test_a_parameter_that_hides_and_was_updated_before_the_backward_pass_is_found():
    w = leaf(W)
    hidden = [[[[[[w]]]]]]
    y = pb.sum(pb.checkpoint(lambda x: pb.exp(pb.sin(x @ hidden[0][0][0][0][0][0])))(leaf()))
    with pb.no_grad():
        w -= 0.1
    with pytest.raises(RecomputeError, match="had another value"):
        y.backward()


def test_a_changed_op_is_named_with_both_lines():
    switch = [True]

    def f(x):
        h = pb.sin(x)
        h = pb.exp(h) if switch[0] else pb.tanh(h)
        return pb.sin(pb.sin(h))

    y = pb.sum(pb.checkpoint(f)(leaf()))
    switch[0] = False
    with pytest.raises(RecomputeError) as caught:
        y.backward()
    text = str(caught.value).replace("at tests/", "at ")  # as seen from the working directory
    assert "first run: exp saves its result, float64[3, 4], at test_checkpoint.py:" in text
    assert "recomputed: tanh saves its result, float64[3, 4], at test_checkpoint.py:" in text
    assert text.count("h = pb.exp(h) if switch[0] else pb.tanh(h)") == 2
    assert "Likely causes" in text


def changed_run(first, second, verify=False):
    now = [first]
    y = pb.sum(pb.checkpoint(lambda x: now[0](x), verify=verify)(leaf()))
    now[0] = second
    with pytest.raises(RecomputeError) as caught:
        y.backward()
    return str(caught.value)


def test_changed_shapes_and_dtypes_are_found():
    text = changed_run(lambda x: pb.sin(pb.sin(x[:2])), lambda x: pb.sin(pb.sin(x[:1])))
    assert "float64[2, 4]" in text
    assert "float64[1, 4]" in text
    narrow = lambda x: pb.sin(pb.sin(x.astype("float32")))  # noqa: E731
    assert "float32[3, 4]" in changed_run(lambda x: pb.sin(pb.sin(x)), narrow)


def test_missing_and_extra_ops_are_found():
    assert "ended before that" in changed_run(lambda x: pb.sin(pb.exp(pb.sin(x))), lambda x: pb.sin(x))
    extra = lambda x: pb.cos(pb.sin(pb.exp(pb.sin(x))))  # noqa: E731
    assert "nothing: it saved 3 values" in changed_run(lambda x: pb.sin(pb.exp(pb.sin(x))), extra, verify=True)
    inserted = lambda x: pb.sin(pb.exp(pb.cos(pb.sin(x))))  # noqa: E731
    assert "recomputed: cos" in changed_run(lambda x: pb.sin(pb.exp(pb.sin(x))), inserted)


@pytest.mark.parametrize("verify", [None, True])
def test_changed_numbers_are_found(verify):
    scale = [1.0]

    def f(x):
        return pb.sin(pb.exp(x * scale[0]))

    x = leaf()
    y = pb.sum(pb.checkpoint(f, verify=verify)(x))
    scale[0] = 2.0
    with pytest.raises(RecomputeError, match="other values"):
        y.backward(retain_graph=True)
    assert x.grad is None
    scale[0] = 1.0
    y.backward()
    same(x.grad, pb.grad(scalar(f))(X))


def test_what_is_still_alive_is_not_computed_again():
    x, w = leaf(), leaf(W)
    counted = Counted(lambda x: pb.tanh(x @ w))
    h = pb.checkpoint(counted)(x)
    pb.sum(h).backward()
    assert counted.runs == 1, "the argument and the result live on, and nothing else is needed"


def test_the_second_run_stops_where_nothing_more_is_needed():
    reached = []

    def f(x):
        h = pb.exp(pb.sin(x))
        reached.append("middle")
        h = h + 1.0
        reached.append("end")
        return h

    pb.sum(pb.checkpoint(f)(leaf())).backward()
    assert reached == ["middle", "end"]


def test_a_function_that_catches_everything_may_go_on():
    def f(x):
        try:
            h = pb.exp(pb.sin(x))
        except BaseException:
            h = x
        return pb.sin(h) if pb.sum(h) > 1e9 else pb.exp(pb.sin(x)) + 1.0

    same(pb.grad(scalar(pb.checkpoint(f)))(X), pb.grad(scalar(lambda x: pb.exp(pb.sin(x)) + 1.0))(X))


# Policies


class Products:
    """Counts the matrix products that are really computed."""

    def __init__(self, monkeypatch):
        self.count = 0
        original = Op.value

        def counted(op):
            def product(*args, **kwargs):
                self.count += 1
                return original.__get__(op)(*args, **kwargs)

            return product if op.name == "matmul" else original.__get__(op)

        monkeypatch.setattr(Op, "value", property(counted))
        plans.forget_plans()
        monkeypatch.setattr(plans, "_MOST_PLANS", 0)  # a plan has bound the function it calls


def mlp(x, w):
    for _ in range(4):
        x = pb.tanh(pb.sin(x @ w))
    return x


def runs_of(policy, products, f=mlp):
    x, w = leaf(), leaf(W)
    products.count = 0
    y = pb.sum(pb.checkpoint(f, policy=policy)(x, w))
    forward, products.count = products.count, 0
    y.backward()
    backward = products.count
    same(w.grad, pb.grad(scalar(mlp), 1)(X, W))
    return forward, backward


def test_saved_contractions_do_not_run_again(monkeypatch):
    products = Products(monkeypatch)
    plain = runs_of(pb.save_everything, products)
    assert plain == (4, 8)
    assert runs_of(pb.save_nothing, products) == (4, 12)
    assert runs_of(pb.save_contractions, products) == (4, 8)
    assert runs_of(lambda op, nbytes: op.name == "matmul" and nbytes > 1, products) == (4, 8)
    assert runs_of(lambda op, nbytes: op.name == "matmul" and nbytes > 1e6, products) == (4, 12)


def named(x, w):
    for i in range(4):
        x = pb.tanh(pb.sin(pb.name(x @ w, "odd" if i % 2 else "even")))
    return x


def test_named_values_are_saved_and_what_made_them_does_not_run_again(monkeypatch, tmp_path):
    products = Products(monkeypatch)
    assert runs_of(pb.save_named("odd"), products, named) == (4, 10)
    assert runs_of(pb.save_named("odd", "even"), products, named) == (4, 8)
    assert runs_of(pb.save_named("other"), products, named) == (4, 12)
    assert runs_of(pb.offload_named("odd"), products, named) == (4, 10)
    assert runs_of(pb.offload_named("odd", "even", to=tmp_path), products, named) == (4, 8)


def test_policies_say_what_they_are():
    assert repr(pb.save_named("a", "b")) == "save_named('a', 'b')"
    assert repr(pb.offload_named("a")) == "offload_named('a')"
    assert repr(pb.save_contractions) == "save_contractions"
    for wrong in (
        lambda: pb.save_named(),
        lambda: pb.save_named(3),
        lambda: pb.offload_named("a", to="/no/such/place"),
    ):
        with pytest.raises(ArgumentError):
            wrong()
    for wrong in ("", 3):
        with pytest.raises(ArgumentError, match="wants a name"):
            pb.name(X, wrong)


def test_policies_of_every_order():
    for policy in (pb.save_contractions, pb.save_named("odd"), pb.offload_named("even")):
        f = pb.checkpoint(named, policy=policy)
        for transform in (
            lambda f: pb.hvp(lambda w: pb.sum(f(X, w)), (W,), (W,)),
            lambda f: pb.grad(lambda w: pb.sum(pb.jvp(lambda w: f(X, w), (w,), (W,))[1]))(W),
            lambda f: pb.vmap(pb.grad(lambda x: pb.sum(f(x, W))))(X),
        ):
            np.testing.assert_allclose(transform(f), transform(mlp), rtol=1e-12)


def test_files_are_gone_whatever_happens(tmp_path):
    policy = pb.offload_named("h", to=tmp_path)
    seen = []

    def f(x):
        h = pb.name(pb.exp(pb.sin(x)), "h")
        seen.append(os.listdir(tmp_path))
        return pb.sin(pb.sin(h))

    x = leaf()
    y = pb.sum(pb.checkpoint(f, policy=policy)(x))
    y.backward(retain_graph=True)
    y.backward()
    same(x.grad, 2 * pb.grad(scalar(lambda x: pb.sin(pb.sin(pb.exp(pb.sin(x))))))(X))
    assert os.listdir(tmp_path) == []

    def fails(x):
        f(x)
        raise KeyError("after")

    with pytest.raises(KeyError):
        pb.checkpoint(fails, policy=policy)(leaf())
    assert os.listdir(tmp_path) == []


def test_a_saved_value_survives_a_policy_that_saves_while_a_generator_moves():
    rng = np.random.default_rng(0)
    f = pb.checkpoint(lambda x: pb.sin(dropped(x @ W, rng)), policy=pb.save_contractions, verify=True)
    x = leaf()
    pb.sum(f(x)).backward()
    mask = np.random.default_rng(0).random(X.shape) > 0.5
    plain = leaf()
    h = plain @ W
    pb.sum(pb.sin(pb.sin(pb.exp(pb.sin(h) * mask)) * mask)).backward()
    same(x.grad, plain.grad)


# Together with others


def test_nested_checkpoints_recompute_from_the_outside_in():
    inner_runs, outer_runs = Counted(wavy), []

    def outer(x):
        outer_runs.append(1)
        h = pb.exp(pb.sin(x) * 0.1)
        h = pb.checkpoint(inner_runs)(h)
        return pb.sin(pb.checkpoint(inner_runs)(pb.sin(h)))

    def plain(x):
        return pb.sin(wavy(pb.sin(wavy(pb.exp(pb.sin(x) * 0.1)))))

    for verify in (False, True):
        same(pb.grad(scalar(pb.checkpoint(outer, verify=verify)))(X), pb.grad(scalar(plain))(X))
    twice = pb.checkpoint(lambda x: pb.checkpoint(outer)(pb.sin(x)))
    same(pb.grad(scalar(twice))(X), pb.grad(scalar(lambda x: plain(pb.sin(x))))(X))


def test_deep_nesting():
    f = wavy
    for _ in range(20):
        f = pb.checkpoint(lambda x, f=f: pb.sin(f(pb.sin(x) * 1.5)))
    g = wavy
    for _ in range(20):
        g = lambda x, g=g: pb.sin(g(pb.sin(x) * 1.5))  # noqa: E731
    same(pb.grad(scalar(f))(X), pb.grad(scalar(g))(X))


def test_saved_value_hooks_around_see_the_arguments_and_hooks_inside_see_everything():
    packed = []

    def pack(t):
        packed.append(t.shape)
        return t.numpy().copy()

    x = leaf()
    with pb.saved_tensors_hooks(pack, pb.tensor):
        y = pb.sum(pb.checkpoint(wavy)(x))
    assert packed == [(3, 4)]
    y.backward()
    same(x.grad, pb.grad(scalar(wavy))(X))

    def hooked(x):
        h = pb.sin(x)
        with pb.saved_tensors_hooks(pack, pb.tensor):
            h = pb.exp(h)
        return pb.sin(pb.sin(h))

    packed.clear()
    x = leaf()
    pb.sum(pb.checkpoint(hooked)(x)).backward()
    same(x.grad, pb.grad(scalar(hooked))(X))


@pytest.mark.parametrize("workers", [2, 4])
def test_workers_recompute_a_region_once(workers):
    big = RNG.normal(size=(400, 400))
    counted = Counted(lambda x: (pb.sin(pb.exp(pb.sin(x))), pb.cos(pb.exp(pb.cos(x)))))
    x = leaf(big)
    a, b = pb.checkpoint(counted)(x)
    pb.sum(pb.sin(a) + pb.cos(b)).backward(workers=workers)
    assert counted.runs == 2
    plain = leaf(big)
    a, b = counted.function(plain)
    pb.sum(pb.sin(a) + pb.cos(b)).backward()
    same(x.grad, plain.grad)


def test_threads_over_one_graph():
    counted = Counted(wavy)
    x = leaf()
    y = pb.sum(pb.checkpoint(counted)(x))
    found, expected = [], pb.grad(scalar(wavy))(X)

    def work():
        for _ in range(10):
            (g,) = pb.gradients(y, x, retain_graph=True)
            found.append(g.numpy())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(found) == 40
    for g in found:
        same(g, expected)


def test_pieces_of_the_graph_by_themselves():
    x, z = leaf(), leaf()
    a, b = pb.checkpoint(lambda x, z: (pb.sin(pb.exp(x)), pb.cos(pb.exp(z * x))))(x, z)
    (first,) = pb.gradients(pb.sum(a), x, retain_graph=True)
    second = pb.gradients(pb.sum(b), (x, z))
    same(first, pb.grad(scalar(lambda x: pb.sin(pb.exp(x))))(X))
    theirs = pb.grad(scalar(lambda x, z: pb.cos(pb.exp(z * x))), (0, 1))(X, X)
    same(second[0], theirs[0])
    same(second[1], theirs[1])


# Depth and memory


def test_ten_thousand_checkpoints_in_a_chain():
    f = pb.checkpoint(lambda h: pb.sin(pb.exp(h)) * 0.5)
    x = leaf([0.1, 0.2])
    h = x
    for _ in range(10_000):
        h = f(h)
    pb.sum(h).backward()
    plain = leaf([0.1, 0.2])
    h = plain
    for _ in range(10_000):
        h = pb.sin(pb.exp(h)) * 0.5
    pb.sum(h).backward()
    same(x.grad, plain.grad)


def peak_of(run):
    gc.collect()
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_the_peak_is_boundaries_and_one_segment():
    steps, size = 64, 50_000

    def step(h):
        return pb.sin(h) * 1.01

    def run(sequential):
        h = leaf(np.ones(size))
        for _ in range(0 if sequential else steps):
            h = step(h)
        pb.sum(pb.checkpoint_sequential([step] * steps, h) if sequential else h).backward()

    one = size * 8
    plain, mine = peak_of(lambda: run(False)), peak_of(lambda: run(True))
    assert plain > steps * one
    assert mine < (8 + 8 + 6) * one


def test_a_recomputed_segment_is_released_as_the_pass_goes_on():
    live = []

    def watched(h):
        h = pb.sin(h) * 1.01
        h.register_hook(lambda g: live.append(tracemalloc.get_traced_memory()[0]))
        return h

    segment = pb.checkpoint(lambda h: pb.sin(watched(pb.sin(pb.exp(pb.sin(h))))) * 1.0)
    tracemalloc.start()
    try:
        h = leaf(np.ones(50_000))
        for _ in range(20):
            h = segment(h)
        pb.sum(h).backward()
    finally:
        tracemalloc.stop()
    assert live[-1] < live[0], "what was recomputed does not pile up"


def test_nothing_is_left_when_the_graph_goes():
    class Mark:
        pass

    mark = Mark()
    reference = weakref.ref(mark)
    gc.collect()
    gc.disable()
    try:

        def f(x, mark):
            return pb.sin(pb.exp(pb.checkpoint(lambda h: pb.sin(pb.exp(h)))(x)))

        x = leaf()
        y = pb.sum(pb.checkpoint(f)(x, mark))
        del mark, f
        y.backward(retain_graph=True)
        assert reference() is not None
        del y
        assert reference() is None, "no cycles"
    finally:
        gc.enable()


# A row of functions


@pytest.mark.parametrize("segments", [None, 1, 2, 3, 7, 100])
def test_sequential(segments):
    steps = [pb.sin, pb.exp, pb.tanh, lambda h: h @ W, pb.cos, pb.sin, pb.exp]

    def plain(x):
        for step in steps:
            x = step(x)
        return x

    f = lambda x: pb.checkpoint_sequential(steps, x, segments=segments)  # noqa: E731
    same(pb.grad(scalar(f))(X), pb.grad(scalar(plain))(X))
    same(pb.hvp(scalar(f), (X,), (X,)), pb.hvp(scalar(plain), (X,), (X,)))


def test_sequential_passes_trees_on_and_checks_its_numbers():
    swap = lambda pair: (pb.sin(pair[1]), pb.exp(pair[0]))  # noqa: E731
    f = lambda x: sum(map(pb.sum, pb.checkpoint_sequential([swap] * 4, (x, x), segments=2)))  # noqa: E731
    plain = lambda x: sum(map(pb.sum, swap(swap(swap(swap((x, x)))))))  # noqa: E731
    same(pb.grad(f)(X), pb.grad(plain)(X))
    for wrong in (0, -1, 1.5, True):
        with pytest.raises(ArgumentError, match="positive integer"):
            pb.checkpoint_sequential([pb.sin], X, segments=wrong)


def test_the_function_is_found_whatever_was_imported_first():
    import importlib

    importlib.import_module("pullback.checkpoint.recompute.save_policies")
    assert callable(pb.checkpoint)


# State that the function sets


@pytest.mark.parametrize(
    "options",
    [{}, {"verify": True}, {"policy": pb.save_contractions}, {"policy": pb.save_named("middle")}],
    ids=["plain", "verify", "contractions", "named"],
)
def test_running_statistics_of_a_layer_advance_once(options):
    x = np.linspace(-1, 1, 9).reshape(3, 3)

    def trained(around):
        layer = pb.nn.BatchNorm(3, dtype=np.float64)
        f = around(lambda x: pb.name(pb.sin(0.5 * layer(pb.tanh(x @ x))), "middle") * 1.0)
        gradient = pb.grad(lambda x: pb.sum(f(x)))(x)
        return gradient.detach().numpy(), np.asarray(layer.mean), np.asarray(layer.variance)

    for mine, plain in zip(trained(lambda f: pb.checkpoint(f, **options)), trained(lambda f: f), strict=True):
        same(mine, plain)


def test_attributes_of_the_users_objects_are_put_back_after_the_second_run():
    class Net:
        steps = 0

        def __call__(self, x):
            self.steps += 1
            self.seen = pb.tanh(x) * self.steps
            return pb.sin(x * x) * self.steps

    net, x = Net(), leaf()
    y = pb.sum(pb.checkpoint(net)(x))
    assert net.steps == 1
    left, net.steps = net.seen, 5
    y.backward()
    assert net.steps == 5
    assert net.seen is left
    same(x.grad, 2 * X * np.cos(X * X))


def test_an_attribute_that_the_second_run_makes_is_gone_afterwards():
    class Cached(pb.nn.Module):
        def forward(self, x):
            if not hasattr(self, "scale"):
                self.scale = pb.exp(x)
            return self.scale * pb.sin(x)

    net, x = Cached(), leaf()
    y = pb.sum(pb.checkpoint(net)(x))
    made = net.scale
    y.backward()
    assert net.scale is made
    same(x.grad, pb.grad(lambda x: pb.sum(pb.exp(x) * pb.sin(x)))(X))


def test_a_saved_result_is_not_handed_to_another_op():
    switch = [True]

    def f(x):
        y = x @ x if switch[0] else pb.sin(x) * 2.0
        return pb.exp(y)

    x = leaf(np.eye(3))
    y = pb.sum(pb.checkpoint(f, policy=pb.save_contractions)(x))
    switch[0] = False
    with pytest.raises(RecomputeError, match=r"(?s)saved the result of matmul.*recomputed: sin"):
        y.backward()


@pytest.mark.parametrize("policy", [lambda op, nbytes: True, pb.save_contractions])
def test_a_policy_saves_nothing_of_the_transforms_inside(policy):
    def f(x):
        inner = pb.argmin(lambda z, y: pb.sum(0.5 * z * z + 0.05 * z**4 - z * y), np.zeros((3, 3)), x)
        staged = pb.stage(lambda x: pb.sum(x @ x))(pb.spec_of(x)).gradients(wrt=0).run(x)
        return inner + staged + pb.jvp(lambda x: pb.sin(x @ x), (x,), (x,))[1]

    x = np.linspace(0.1, 1, 9).reshape(3, 3)
    np.testing.assert_allclose(
        pb.grad(scalar(pb.checkpoint(f, policy=policy)))(x), pb.grad(scalar(f))(x), rtol=1e-10, atol=1e-10
    )


def test_a_pass_goes_the_same_way_at_each_run():
    """The roots of a pass once came in the order of their addresses."""
    x = np.linspace(0.1, 1, 3)

    def core(x):
        return pb.sin(x), pb.tanh(x) * 0.8, pb.exp(-x), pb.cos(x)

    f = pb.checkpoint(lambda x: pb.ggnvp(core, lambda ys: sum(pb.sum(y * y) for y in ys), (x,), (x,)), verify=True)
    plain = pb.grad(lambda x: pb.sum(pb.ggnvp(core, lambda ys: sum(pb.sum(y * y) for y in ys), (x,), (x,))))(x)
    for _ in range(10):
        same(pb.grad(scalar(f))(x), plain)


@pytest.mark.parametrize("verify", [None, True])
def test_second_derivatives_of_a_checkpoint_of_each_element(verify):
    """Below the batch lies the variable of a gradient, over the duals of what is around that."""
    x = np.random.default_rng(0).normal(size=(4, 3))

    def total(wrap):
        one = wrap(lambda v: pb.sin(v) * pb.sum(v * v))
        return lambda x: pb.sum(pb.sin(pb.vmap(one)(x)))

    plain, recomputed = total(lambda f: f), total(lambda f: pb.checkpoint(f, verify=verify))
    np.testing.assert_allclose(pb.hessian(recomputed)(x), pb.hessian(plain)(x), rtol=1e-13)
    rows = np.stack([x, 2 * x], 1)
    found, wanted = (pb.vmap(pb.grad(f), in_axes=1)(rows) for f in (recomputed, plain))
    np.testing.assert_allclose(found, wanted, rtol=1e-13)


def test_regions_side_by_side_are_recomputed_one_after_the_other():
    """A backward pass goes by depth, and once recomputed all of them before the first was freed."""

    def waves(x):
        for _ in range(6):
            x = pb.sin(x) * 1.1
        return pb.split(x, 2)  # a node with parts

    def peak(parts, policy=pb.save_nothing):
        w = leaf(np.linspace(0, 1, 1 << 14))
        f = pb.checkpoint(lambda w: pb.sum(waves(w)[0] * waves(w)[1]), policy=policy)
        tracemalloc.start()
        try:
            sum(f(w) for _ in range(parts)).backward()
            return tracemalloc.get_traced_memory()[1], w.grad
        finally:
            tracemalloc.stop()

    peak(1)
    (one, slope), (many, slopes) = peak(1), peak(8)
    assert many < 1.5 * one
    np.testing.assert_allclose(slopes, 8 * slope, rtol=1e-12)
    f = pb.checkpoint(lambda w: sum(pb.checkpoint(lambda w: pb.sum(waves(w)[0] ** 2))(w) for _ in range(3)))
    np.testing.assert_allclose(
        pb.grad(lambda w: f(w) + f(w))(np.ones(4)),
        6 * pb.grad(lambda w: pb.sum(waves(w)[0] ** 2))(np.ones(4)),
        rtol=1e-12,
    )
