"""Loops with snapshots against plain loops: values, counts of steps, every order and mode, tiers, randomness; and kept
values on disk.
"""

# ruff: noqa: E731 - a function of one line beside the same one with a plain loop

import errno
import functools
import gc
import os
import tempfile
import tracemalloc

import numpy as np
import pytest

import pullback as pb
from pullback.arrays.text import parse_bytes
from pullback.checkpoint.loops.revolve import (
    OnlineSchedule,
    count_touches,
    fewest_advances,
    first_snapshots,
    min_repetitions,
    most_touched,
    next_snapshot_distance,
)
from pullback.checkpoint.offload import disk, offload_to_disk
from pullback.errors import ArgumentError, DtypeError, GraphError, RecomputeError, ShapeError, StorageError
from pullback.instrument import Instrument

X0, A = np.array([0.3, 0.7]), np.array([1.1, 0.9])


def step(i, x, a):
    return pb.sin(x * a) + 0.1 * x + 0.01 * i


def plain(x, n, *params, step=step):
    for i in range(n):
        x = step(i, x, *params)
    return x


def norm(x):
    return pb.sum(x**2)


def looped(n=7, **how):
    return lambda x, a: norm(pb.checkpoint_loop(step, x, n, a, **how))


def unrolled(n=7):
    return lambda x, a: norm(plain(x, n, a))


def agree(found, wanted, rtol=1e-12):
    found, wanted = (x if isinstance(x, tuple) else (x,) for x in (found, wanted))
    for mine, theirs in zip(found, wanted, strict=True):
        if isinstance(mine, tuple):
            agree(mine, theirs, rtol)
        else:
            np.testing.assert_allclose(mine, theirs, rtol=rtol, atol=1e-14)


# schedules


@functools.cache
def least(n, s):
    """t(n, s) by trying every place of the next snapshot."""
    if n < 2:
        return 0
    if s == 1:
        return n * (n - 1) // 2
    return min(m + least(n - m, s - 1) + least(m, s) for m in range(1, n))


@pytest.mark.parametrize("s", range(1, 6))
def test_the_formula_is_the_minimum_and_split_reaches_it(s):
    for n in range(1, 60):
        assert fewest_advances(n, s) == least(n, s)
        if n > 1 and s > 1:
            m = next_snapshot_distance(n, s)
            assert m + least(n - m, s - 1) + least(m, s) == least(n, s)


def test_known_counts():
    assert fewest_advances(1024, 10) == 3755
    assert fewest_advances(10, 3) == 15
    assert [fewest_advances(n, 1) for n in (0, 1, 2, 5)] == [0, 0, 1, 10]
    assert first_snapshots(5, 9) == [1, 2, 3, 4]


def reversing(held, end, s):
    """How often each step is taken forward, in the first sweep and then back from what is held."""
    counts = [1] * end
    end -= 1  # its state is at hand
    held = [h for h in held if h < end]
    while held:
        at, free = held[-1], s - len(held)
        if end == at:
            held.pop()
            continue
        to = at + next_snapshot_distance(end - at, free + 1) if free > 0 and end - at > 1 else end - 1
        for i in range(at, to):
            counts[i] += 1
        if free > 0 and end - at > 1:
            held.append(to)
        else:
            end -= 1
    return counts


@pytest.mark.parametrize("s", range(1, 7))
def test_an_unknown_number_of_steps_repeats_none_more_often_than_the_best_schedule(s):
    for n in range(2, 160):
        levels, held = OnlineSchedule(s), []
        for i in range(n):
            dropped = levels.reach(i)
            if dropped is not None:
                held.remove(dropped)
            held.append(i)
            assert len(held) <= s + 1  # one is the state at hand
        counts = reversing(held, n, s)
        assert max(counts) <= min_repetitions(n, s)
        assert sum(counts) <= 1.35 * (fewest_advances(n, s) + 1)


def test_the_snapshots_in_memory_are_those_that_are_touched_most():
    counts = count_touches(100, 6)
    assert len(counts) == 6
    assert sum(counts) > 100
    quick = most_touched(counts, 3)
    assert 0 in quick
    assert len(quick) == 3
    assert min(counts[k] for k in quick - {0}) >= max(counts[k] for k in set(range(6)) - quick)


# first order


@pytest.mark.parametrize("n", [0, 1, 2, 3, 11, 40])
@pytest.mark.parametrize("how", [{"snapshots": s} for s in (1, 2, 3, 10, 60)] + [{}, {"ram": 1, "disk": 3}])
def test_gradient_and_the_number_of_steps(n, how):
    calls = 0

    def counted(i, x, a):
        nonlocal calls
        calls += 1
        return step(i, x, a)

    found = pb.grad(lambda x, a: norm(pb.checkpoint_loop(counted, x, n, a, **how)), (0, 1))(X0, A)
    agree(found, pb.grad(unrolled(n), (0, 1))(X0, A))
    count = sum(how.values())
    if count:
        assert calls == (fewest_advances(n, count) + 1 + n if n else 0)


def test_value_without_derivatives_takes_each_step_once():
    seen = []
    out = pb.checkpoint_loop(lambda i, x: seen.append(i) or x + i, np.zeros(2), 6, snapshots=2)
    assert type(out) is np.ndarray
    assert out.tolist() == [15.0, 15.0]
    assert seen == list(range(6))


def test_trees_integers_numbers_and_unused_parameters():
    def tree_step(i, state, p, scale):
        x, (k, y) = state["x"], state["rest"]
        return {"x": x + scale * p["w"] * y, "rest": (k + 1, y * pb.cos(x) + 0.0 * k)}

    def f(start, p):
        out = pb.checkpoint_loop(tree_step, {"x": start, "rest": (3, start * 2)}, 9, p, 0.5, snapshots=3)
        assert out["rest"][0] == 12
        return norm(out["x"]) + norm(out["rest"][1])

    def g(start, p):
        state = {"x": start, "rest": (3, start * 2)}
        for i in range(9):
            state = tree_step(i, state, p, 0.5)
        return norm(state["x"]) + norm(state["rest"][1])

    p = {"w": A, "unused": np.ones(3)}
    (mine, mine_p), (theirs, theirs_p) = (pb.grad(h, (0, 1))(X0, p) for h in (f, g))
    agree(mine, theirs)
    agree(mine_p["w"], theirs_p["w"])
    assert mine_p["unused"].tolist() == [0, 0, 0]


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_dtypes_stay(dtype):
    x, a = X0.astype(dtype), A.astype(dtype)
    f = lambda x, a: pb.sum(pb.abs(pb.checkpoint_loop(lambda i, x, a: pb.sin(x * a) * 0.5, x, 6, a, snapshots=2)))
    g = lambda x, a: pb.sum(pb.abs(plain(x, 6, a, step=lambda i, x, a: pb.sin(x * a) * 0.5)))
    found = pb.grad(f, (0, 1))(x, a)
    assert {v.dtype.name for v in found} == {dtype}
    agree(found, pb.grad(g, (0, 1))(x, a), 1e-6 if dtype == "float32" else 1e-12)


def test_empty_and_0d_states_and_python_floats():
    assert pb.grad(lambda a: pb.checkpoint_loop(lambda i, x: x * a, 1.0, 10, snapshots=3))(1.0) == 10
    empty = pb.grad(lambda x: norm(pb.checkpoint_loop(lambda i, x: x * 2.0, x, 5, snapshots=2)))(np.zeros((0, 3)))
    assert empty.shape == (0, 3)


def test_on_the_tape_with_hooks_and_twice():
    x, a = pb.tensor(X0, requires_grad=True), pb.tensor(A, requires_grad=True)
    seen = []
    y = pb.checkpoint_loop(step, x, 12, a, snapshots=3)
    y.register_hook(lambda g: seen.append(g.shape))
    assert "test_checkpoint_loops.py" in y.node.where()
    loss = norm(y)
    loss.backward(retain_graph=True)
    first = x.grad.numpy().copy(), a.grad.numpy().copy()
    agree(first, pb.grad(unrolled(12), (0, 1))(X0, A))
    loss.backward()
    assert seen == [(2,), (2,)]
    assert np.array_equal(x.grad.numpy(), 2 * first[0])  # the second time from x0 on, with the same bits
    assert np.array_equal(a.grad.numpy(), 2 * first[1])
    with pytest.raises(GraphError, match="freed"):
        loss.backward()


@pytest.mark.parametrize(("how", "states"), [({"snapshots": 4}, 4), ({"ram": 2, "disk": 4}, 2)])
def test_memory_is_that_of_the_snapshots_and_of_one_step(how, states):
    x = np.linspace(0.0, 1.0, 50_000)
    f = lambda x: norm(pb.checkpoint_loop(lambda i, x: x + 0.01 * pb.sin(x), x, 40, **how))
    pb.grad(f)(x[:2])
    tracemalloc.start()
    try:
        pb.grad(f)(x)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < (states + 12) * x.nbytes  # plain keeps 80 states


def test_taylor_series_linearization_and_sparsity_go_through():
    f, g = (lambda x: pb.checkpoint_loop(step, x, 5, A, snapshots=2)), (lambda x: plain(x, 5, A))
    for kind in (
        lambda f: pb.linearize(f, X0)[1](A),
        lambda f: pb.jet(f, (X0,), ((A, X0),))[0],
        lambda f: pb.sparse_jacobian(f)(X0).toarray(),
        lambda f: pb.laplacian(lambda x: norm(f(x)))(X0),
    ):
        agree(kind(f), kind(g), 1e-11)


def test_hooks_inside_fire_once_per_step():
    fired = []

    def hooked(i, x, a):
        y = pb.sin(x * a)
        if y.requires_grad:
            y.register_hook(lambda g: fired.append(i))
        return y

    pb.grad(lambda x: norm(pb.checkpoint_loop(hooked, x, 8, A, snapshots=2)))(X0)
    assert fired == list(range(8))[::-1]


def test_no_grad_is_a_plain_loop():
    calls = []
    x = pb.tensor(X0, requires_grad=True)
    with pb.no_grad():
        y = pb.checkpoint_loop(lambda i, x: calls.append(i) or x * 2.0, x, 4, snapshots=2)
    assert not y.requires_grad
    assert y.tolist() == (X0 * 16).tolist()
    assert len(calls) == 4


def test_writing_to_arguments_afterwards_changes_nothing():
    x0, a = X0.copy(), A.copy()
    value, pull = pb.vjp(lambda x: pb.checkpoint_loop(lambda i, x: pb.sin(x * a), x, 6, snapshots=2), x0)
    expected = pb.vjp(lambda x: plain(x, 6, step=lambda i, x: pb.sin(x * A)), X0)[1](np.ones(2))
    x0[:] = 7.0
    value[:] = 5.0
    agree(pull(np.ones(2)), expected)


def test_a_step_may_rebind_what_it_is_given_or_hand_it_through():
    def rebinding(i, x, a):
        x *= a
        a += 1.0
        return x

    f = lambda x, a: norm(pb.checkpoint_loop(rebinding, x, 5, a, snapshots=2))
    agree(pb.grad(f, (0, 1))(X0, A), pb.grad(lambda x, a: norm(x * a**5), (0, 1))(X0, A))
    same = pb.checkpoint_loop(lambda i, x: x, X0, 3, snapshots=2)
    assert same is not X0
    assert np.array_equal(same, X0)
    agree(pb.grad(lambda x: norm(pb.checkpoint_loop(lambda i, x: x, x, 3, snapshots=2)))(X0), 2 * X0)


# every order and mode

SECOND = {
    "reverse over reverse": lambda f: pb.jacrev(pb.grad(f, (0, 1)), (0, 1)),
    "forward over reverse": lambda f: pb.jacfwd(pb.grad(f, (0, 1)), (0, 1)),
    "reverse over forward": lambda f: pb.grad(lambda x, a: pb.jvp(f, (x, a), (A, X0))[1], (0, 1)),
    "forward over forward": lambda f: lambda x, a: pb.jvp(lambda *v: pb.jvp(f, v, (A, X0))[1], (x, a), (X0, A))[1],
    "hvp": lambda f: lambda x, a: pb.hvp(lambda x: f(x, a), (x,), (A,)),
    "hessian": lambda f: pb.hessian(f, (0, 1)),
}


@pytest.mark.parametrize("how", [{"snapshots": 1}, {"snapshots": 3}, {"snapshots": 50}, {"ram": 2, "disk": 2}])
@pytest.mark.parametrize("order", SECOND)
def test_second_order(order, how):
    agree(SECOND[order](looped(**how))(X0, A), SECOND[order](unrolled())(X0, A))


def test_third_order_and_the_tape_at_any_order():
    third = lambda f: pb.grad(lambda x: norm(pb.grad(lambda y: norm(pb.grad(lambda z: f(z, A))(y)))(x)))
    agree(third(looped(5, snapshots=2))(X0), third(unrolled(5))(X0), 1e-11)
    mixed = lambda f: pb.jacfwd(pb.jacrev(pb.jacfwd(lambda a: f(X0, a))))
    agree(mixed(looped(5, snapshots=2))(A), mixed(unrolled(5))(A), 1e-11)
    x = pb.tensor(X0, requires_grad=True)
    (first,) = pb.gradients(looped(5, snapshots=2)(x, A), x, create_graph=True)
    (second,) = pb.gradients(norm(first), x, create_graph=True)
    wanted = pb.grad(lambda x: norm(pb.grad(lambda y: unrolled(5)(y, A))(x)))(X0)
    agree(second.detach().numpy(), wanted)


def test_second_order_repeats_steps_and_keeps_no_graph_of_them():
    alive = []

    class Watched(Instrument):
        def hold(self, value, slot):
            alive.append(slot.name)
            return value

    with pb.settings.override_modes(Watched()):
        pb.grad(lambda x: norm(pb.grad(lambda y: looped(40, snapshots=3)(y, A))(x)))(X0)
    assert "sin" not in alive


def test_a_batch_takes_no_more_steps_than_one_element():
    calls = []

    def counted(i, x, a):
        calls.append(i)
        return step(i, x, a)

    f = lambda x: norm(pb.checkpoint_loop(counted, x, 20, A, snapshots=3))
    pb.vmap(pb.grad(f))(np.stack([X0, A, X0]))
    assert len(calls) == fewest_advances(20, 3) + 1 + 20


def test_vmap_around_and_inside():
    xs, scale = np.stack([X0, 2 * X0, -X0]), np.array([0.5, 1.0, 2.0])
    for axes, a in (((0, None), A), ((0, 0), scale[:, None] * A), ((None, 0), scale[:, None] * A)):
        x = xs if axes[0] == 0 else X0
        for kind in (lambda f: f, lambda f: pb.grad(f, (0, 1)), lambda f: pb.hessian(f)):
            mine, theirs = (pb.vmap(kind(f), axes)(x, a) for f in (looped(snapshots=3), unrolled()))
            agree(mine, theirs)
    sums = lambda f: lambda xs, a: pb.sum(pb.vmap(f, (0, None))(xs, a))
    agree(pb.grad(sums(looped(snapshots=2)), (0, 1))(xs, A), pb.grad(sums(unrolled()), (0, 1))(xs, A))
    inner = lambda i, x, a: pb.vmap(lambda y: pb.sin(y * a))(x)
    f = lambda x: norm(pb.checkpoint_loop(inner, x, 5, A, snapshots=2))
    agree(pb.grad(f)(xs), pb.grad(lambda x: norm(plain(x, 5, A, step=inner)))(xs))


def test_a_gradient_inside_the_step():
    def descent(i, w, target):
        return w - 0.1 * pb.grad(lambda w: pb.sum((pb.tanh(w) - target) ** 2))(w)

    f = lambda w, t: norm(pb.checkpoint_loop(descent, w, 20, t, snapshots=3))
    g = lambda w, t: norm(plain(w, 20, t, step=descent))
    agree(pb.grad(f, (0, 1))(X0, A), pb.grad(g, (0, 1))(X0, A))


def test_a_loop_inside_a_loop():
    def outer(i, x, a):
        return pb.checkpoint_loop(step, x, 4, a, snapshots=2)

    f = lambda x, a: norm(pb.checkpoint_loop(outer, x, 3, a, snapshots=2))
    g = lambda x, a: norm(plain(x, 3, a, step=lambda i, x, a: plain(x, 4, a)))
    agree(pb.grad(f, (0, 1))(X0, A), pb.grad(g, (0, 1))(X0, A))
    agree(pb.hessian(f)(X0, A), pb.hessian(g)(X0, A))


# what a step closes over

W = pb.tensor([1.1, 0.9], requires_grad=True)


def global_step(i, x):
    return pb.sin(x * scaled(W))


def scaled(w):
    return w * 2.0 + 0.0 * W


def closures(a):
    inner = lambda x: pb.sin(x * a)
    default = lambda i, x, *, b=a: pb.sin(x * b)
    yield lambda i, x: pb.sin(x * a)
    yield lambda i, x: inner(x)
    yield default
    yield functools.partial(lambda b, i, x: pb.sin(x * b), a)
    yield lambda i, x: pb.vmap(lambda x, b: pb.sin(x * b))(x, a)
    yield pb.vmap(lambda i, x: pb.sin(x * pb.sum(a)) * a[0], (None, 0))
    box = {"w": [a, (a,)]}
    yield lambda i, x: pb.sin(x * box["w"][0]) + 0.0 * box["w"][1][0]


@pytest.mark.parametrize("number", range(7))
@pytest.mark.parametrize("kind", ["grad", "jvp", "vmap", "hessian"])
def test_closures_get_their_derivatives(number, kind):
    def f(a):
        return norm(pb.checkpoint_loop(list(closures(a))[number], X0, 6, snapshots=2))

    def g(a):
        return norm(plain(X0, 6, step=list(closures(a))[number]))

    apply = {
        "grad": lambda f: pb.grad(f)(A),
        "jvp": lambda f: pb.jvp(f, (A,), (X0,)),
        "vmap": lambda f: pb.vmap(pb.grad(f))(np.stack([A, X0])),
        "hessian": lambda f: pb.hessian(f)(A),
    }[kind]
    agree(apply(f), apply(g))


def test_global_tensors_and_functions_that_use_them():
    expected = pb.grad(lambda w: norm(plain(X0, 6, step=lambda i, x: pb.sin(x * (w * 2.0)))))(W.detach().numpy())
    W.grad = None
    norm(pb.checkpoint_loop(global_step, X0, 6, snapshots=2)).backward()
    agree(W.grad.numpy(), expected)


class Layer:
    def __init__(self):
        self.w = pb.tensor(A, requires_grad=True)

    def __call__(self, i, x):
        return pb.sin(x * self.w) if i == 3 else pb.sin(x)


@pytest.mark.parametrize("tracked", [False, True])
def test_what_is_not_found_is_refused(tracked):
    start = pb.tensor(X0, requires_grad=tracked)
    with pytest.raises(GraphError, match=r"tracked value.*\n.*Pass it as one of the params"):
        pb.checkpoint_loop(Layer(), start, 6, snapshots=2)
    with pytest.raises(GraphError, match="tracked value"):
        pb.jvp(lambda a: pb.checkpoint_loop(type("Held", (), {"__call__": lambda s, i, x: x * s.a, "a": a})(), X0, 2),
               (A,), (X0,))  # fmt: skip


def test_an_array_in_the_closure_that_changes_is_refused_and_a_log_is_not():
    table, log = A.copy(), np.zeros(6)

    def logging(i, x):
        log[i] = float(i)
        return pb.sin(x * table)

    f = lambda x: pb.checkpoint_loop(logging, x, 6, snapshots=2)
    agree(pb.grad(lambda x: norm(f(x)))(X0), pb.grad(lambda x: norm(plain(x, 6, step=logging)))(X0))
    assert log.tolist() == list(range(6))
    _, pull = pb.vjp(f, X0)
    table[0] = 5.0
    with pytest.raises(GraphError, match="written to since the loop ran"):
        pull(np.ones(2))


def test_a_tensor_in_the_closure_may_be_pointed_elsewhere():
    w = pb.tensor(A)
    _, pull = pb.vjp(lambda x: pb.checkpoint_loop(lambda i, x: pb.sin(x * w), x, 6, snapshots=2), X0)
    expected = pb.vjp(lambda x: plain(x, 6, step=lambda i, x: pb.sin(x * A)), X0)[1](np.ones(2))
    w *= 3.0
    agree(pull(np.ones(2)), expected)


# an unknown number of steps


@pytest.mark.parametrize("s", [1, 2, 5])
def test_until(s):
    calls = 0

    def halved(i, x, a):
        nonlocal calls
        calls += 1
        return x * a

    small = lambda i, x, a: pb.max(pb.abs(x)) < 1e-3
    f = lambda x, a: norm(1e3 * pb.checkpoint_loop(halved, x, None, a, until=small, snapshots=s))
    a = np.array([0.7, 0.8])
    n = int(np.ceil(np.log(1e-3 / X0[1]) / np.log(0.8)))
    g = lambda x, a: norm(1e3 * x * a**n)
    agree(pb.grad(f, (0, 1))(X0, a), pb.grad(g, (0, 1))(X0, a), 1e-11)
    assert calls <= n * (min_repetitions(n, s) + 1)
    agree(pb.hessian(f, (0, 1))(X0, a), pb.hessian(g, (0, 1))(X0, a), 1e-11)
    agree(pb.checkpoint_loop(halved, X0, 3, a, until=small), X0 * a**3)
    assert pb.checkpoint_loop(halved, X0, None, a, until=lambda i, x, a: True).tolist() == X0.tolist()
    agree(
        pb.grad(lambda x: norm(pb.checkpoint_loop(halved, x, None, a, until=lambda i, x, a: i == 1)))(X0),
        2 * X0 * a * a,
    )
    agree(pb.grad(lambda x: norm(pb.checkpoint_loop(halved, x, None, a, until=lambda i, x, a: True)))(X0), 2 * X0)


def test_until_in_a_batch_ends_for_each_element_by_itself():
    def root(a, loop):
        improve = lambda i, x, a: (x + a / x) / 2
        near = lambda i, x, a: abs(x * x - a) < 1e-10 * a
        if loop:
            return pb.checkpoint_loop(improve, a, None, a, until=near, snapshots=2)
        return pb.while_loop(lambda x: abs(x * x - a) >= 1e-10 * a, lambda x: (x + a / x) / 2, a)

    a = np.array([1.0, 4.0, 9.0, 1e8])
    for kind in (lambda f: f, pb.grad, lambda f: pb.grad(pb.grad(f))):
        agree(*(pb.vmap(kind(functools.partial(root, loop=loop)))(a) for loop in (True, False)))


# randomness


def test_random_numbers_are_drawn_again_and_the_stream_goes_on():
    def noisy(i, x, generator, a):
        mask = np.random.random(2) < 0.7
        return pb.where(mask, pb.sin(x * a), x) + 0.1 * generator.normal(size=2)

    def results(loop):
        np.random.seed(5)
        generator = np.random.default_rng(7)
        if loop:
            f = lambda x, a: norm(pb.checkpoint_loop(noisy, x, 12, generator, a, snapshots=3))
        else:
            f = lambda x, a: norm(plain(x, 12, generator, a, step=noisy))
        found = pb.value_and_grad(f, (0, 1))(X0, A)
        return (*found[1], found[0], np.random.random(), generator.random())

    agree(results(True), results(False))


def test_random_numbers_at_second_order_and_from_a_closure():
    generator = np.random.default_rng(3)

    def f(x, loop):
        generator.bit_generator.state = np.random.default_rng(3).bit_generator.state
        noisy = lambda i, x: pb.sin(x) * (1.0 + generator.random())
        return norm(pb.checkpoint_loop(noisy, x, 6, snapshots=2) if loop else plain(x, 6, step=noisy))

    for kind in (pb.grad, pb.hessian, lambda f: pb.jacrev(pb.grad(f))):
        agree(*(kind(functools.partial(f, loop=loop))(X0) for loop in (True, False)))


# errors


def test_arguments_are_checked():
    loop = functools.partial(pb.checkpoint_loop, lambda i, x: x, X0)
    for wrong, message in (
        ((), "number of steps"), ((-1,), "not negative"), ((2.5,), "wanted an integer"), ((True,), "not negative"),
        ((A,), "wanted an integer"),
    ):  # fmt: skip
        with pytest.raises(ArgumentError, match=message):
            loop(*wrong)
    for how in ({"snapshots": 0}, {"snapshots": 2.0}, {"ram": 0}, {"disk": -1}, {"snapshots": 2, "ram": 1}):
        with pytest.raises(ArgumentError, match=r"wanted an integer|pass snapshots"):
            loop(3, **how)
    with pytest.raises(ArgumentError, match="no arrays"):
        pb.checkpoint_loop(lambda i, x: x, (), 3)
    with pytest.raises(ArgumentError, match="wants a function"):
        pb.checkpoint_loop(3.0, X0, 3)
    with pytest.raises(StorageError, match="no directory"):
        pb.grad(lambda x: norm(loop(3, ram=1, disk=1, directory="/nowhere")) + norm(x))(X0)


def test_a_step_that_changes_the_state_is_refused():
    with pytest.raises(ShapeError, match="carry"):
        pb.checkpoint_loop(lambda i, x: pb.sum(x), X0, 3)
    with pytest.raises(DtypeError, match="carry"):
        pb.checkpoint_loop(lambda i, x: x > 0, X0, 3)
    with pytest.raises(ArgumentError, match="trees differ"):
        pb.checkpoint_loop(lambda i, x: (x, x), X0, 3)


def test_an_error_in_a_replayed_step_leaves_nothing_behind(tmp_path):
    runs = []

    def failing(i, x):
        runs.append(i)
        if len(runs) > 14:
            raise ValueError("on the way back")
        return pb.sin(x)

    before = open_files()
    np.random.seed(1)
    state = np.random.get_state()[1].copy()
    x = pb.tensor(X0, requires_grad=True)
    y = norm(pb.checkpoint_loop(failing, x, 10, ram=1, disk=3, directory=tmp_path))
    assert open_files() > before
    assert os.listdir(tmp_path) == []
    with pytest.raises(ValueError, match="on the way back"):
        y.backward()
    assert x.grad is None
    assert np.array_equal(np.random.get_state()[1], state)
    del y
    gc.collect()
    assert open_files() == before


def open_files():
    return len(os.listdir("/proc/self/fd"))


# kept values on disk


def network(x, w):
    for _ in range(6):
        x = pb.tanh(x @ w) * pb.sin(x.T).T + x[::-1]
    return norm(x)


def test_offloaded_gradients_are_the_same_to_the_last_bit(tmp_path):
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(60, 60)), np.asfortranarray(rng.normal(size=(60, 60)) / 8)
    expected = pb.grad(network, (0, 1))(x, w)
    before = open_files()
    with pb.offload_to_disk(tmp_path, at_least=1000):
        found = pb.grad(network, (0, 1))(x, w)
        second = pb.grad(lambda x: norm(pb.grad(network)(x, w)))(x)
    assert all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))
    agree(second, pb.grad(lambda x: norm(pb.grad(network)(x, w)))(x))
    assert os.listdir(tmp_path) == []
    gc.collect()
    assert open_files() == before


def test_each_array_is_written_once_and_read_from_disk(monkeypatch):
    written, read = [], []
    write, take = disk.DiskSlot.write, disk.DiskSlot.read
    monkeypatch.setattr(disk.DiskSlot, "write", lambda self, x: written.append(id(self)) or write(self, x))
    monkeypatch.setattr(disk.DiskSlot, "read", lambda self: read.append(id(self)) or take(self))
    x = pb.tensor(np.linspace(0, 1, 1000), requires_grad=True)
    with pb.offload_to_disk(at_least=100):
        y = x * 2.0
        loss = pb.sum(pb.sin(y) * pb.cos(y) * pb.exp(y))
        del y
    offload_done(loss)
    loss.backward()
    assert len(written) == len(set(written))
    assert read
    assert set(read) <= set(written)
    z = 2 * x.detach().numpy()
    agree(x.grad.numpy(), 2 * np.exp(z) * (np.cos(2 * z) + np.sin(2 * z) / 2), 1e-11)


def offload_done(tensor):
    """Wait until everything is on disk."""
    nodes, seen = [tensor.node], set()
    for node in nodes:
        for kept in node.kept if isinstance(node.kept, tuple) else ():
            if isinstance(kept, offload_to_disk._OffloadedValue):
                while kept._stored._array is not None:
                    pass
        nodes += [p for p in node.parents if p not in seen]
        seen.update(node.parents)


def test_backward_outside_of_the_block_and_after_an_error():
    before = open_files()
    x = pb.tensor(np.linspace(0, 1, 5000), requires_grad=True)
    made = []

    def failing():
        made.append(pb.sum(pb.exp(x) * pb.sin(x)))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), pb.offload_to_disk(at_least="1 KiB"):
        failing()
    y = made.pop()
    offload_done(y)
    y.backward()
    agree(x.grad.numpy(), np.exp(x.detach().numpy()) * (np.sin(x.detach().numpy()) + np.cos(x.detach().numpy())))
    del y
    gc.collect()
    assert open_files() == before


def test_a_full_disk_is_an_error_of_ours_and_loses_nothing(monkeypatch, tmp_path):
    x = pb.tensor(np.linspace(0, 1, 5000), requires_grad=True)
    with pb.offload_to_disk(tmp_path, at_least="1 KiB"):
        y = pb.sum(pb.exp(x) * pb.sin(x))

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(disk, "_preallocate", full)
    with pytest.raises(StorageError, match=r"no room for 64\.0 MiB"), pb.offload_to_disk(tmp_path, at_least="1 KiB"):
        pb.sum(pb.exp(x) * pb.sin(x))
    with pytest.raises(StorageError, match="no room"):
        pb.grad(lambda x: norm(pb.checkpoint_loop(lambda i, x: pb.sin(x), x, 9, ram=1, disk=3)))(X0)
    y.backward()
    assert np.isfinite(x.grad.numpy()).all()
    assert os.listdir(tmp_path) == []


def test_room_on_disk_is_used_again():
    room = disk.Disk(None)
    places = [room.allocate(np.zeros(1000)) for _ in range(4)]
    starts = sorted(p._start for p in places)
    del places[1:]
    more = [room.allocate(np.zeros(1000)) for _ in range(3)]
    assert sorted(p._start for p in (*places, *more)) == starts
    del places, more
    assert not room._files


@pytest.mark.parametrize(
    "array", [np.zeros((0, 3)), np.asarray(2.5), np.arange(24.0).reshape(2, 3, 4).transpose(2, 0, 1)]
)
def test_what_is_stored_comes_back_as_it_lay(array):
    place = disk.Disk(None).allocate(array)
    place.write(array)
    found = place.read()
    assert np.array_equal(found, array)
    assert found.strides == array.strides or array.size == 0


def test_sizes_and_directories_are_checked():
    for size, wanted in ((10, 10), ("2 KiB", 2048), ("1.5 MB", 1_500_000), ("7 B", 7)):
        assert parse_bytes(size, "at_least") == wanted
    for wrong in ("much", "1 mile", -1, None, True):
        with pytest.raises(ArgumentError, match="at_least"):
            pb.offload_to_disk(at_least=wrong)
    with pytest.raises(StorageError, match="no directory"):
        pb.offload_to_disk("/nowhere/at/all")
    assert tempfile.gettempdir() == disk.Disk(None).directory


# One loop that runs on other numbers


def _mixing(z, snapshots=2):
    return pb.checkpoint_loop(lambda i, c, p: 0.6 * pb.sin(c) + 0.3 * p, z, 3, z, snapshots=snapshots)


def test_a_compiled_loop_may_start_from_other_numbers_at_the_next_call():
    f, x = pb.jit(_mixing), np.linspace(0.1, 1, 3)
    for scale in (1.0, 0.9, 1.0):
        np.testing.assert_allclose(f(scale * x), _mixing(scale * x), rtol=1e-14)
    slope = pb.jit(pb.grad(lambda x: pb.sum(_mixing(x))))
    for scale in (1.0, 0.9):
        np.testing.assert_allclose(slope(scale * x), pb.grad(lambda x: pb.sum(_mixing(x)))(scale * x), rtol=1e-14)


def test_an_equation_may_run_a_loop_at_every_guess():
    def f(mixed):
        return lambda x: pb.sum(pb.fixed_point(lambda z, x: 0.2 * pb.tanh(mixed(z)) + x, np.zeros(3), x))

    def unrolled(z):
        c = z
        for _ in range(3):
            c = 0.6 * pb.sin(c) + 0.3 * z
        return c

    x = np.linspace(0.1, 1, 3)
    np.testing.assert_allclose(pb.grad(f(_mixing))(x), pb.grad(f(unrolled))(x), rtol=1e-7)


def test_a_loop_that_reads_what_changed_is_noticed_after_runs_from_other_numbers():
    scale = [0.6]
    x = pb.tensor([0.2, 0.4], requires_grad=True)

    def run(start):
        return pb.checkpoint_loop(lambda i, c: scale[0] * pb.sin(c), start, 5, snapshots=2)

    kept = run(x)
    run(x * 2.0)
    scale[0] = 0.5
    with pytest.raises(RecomputeError, match="other values"):
        pb.sum(kept).backward()


def _in_python(step, x):
    for i in range(4):
        x = step(i, x)
    return x


@pytest.mark.parametrize(
    "taken",
    [
        lambda f, x: pb.grad(lambda x: pb.sum(f(x)))(x),
        lambda f, x: pb.jvp(f, (x,), (x,)),
        lambda f, x: pb.hvp(lambda x: pb.sum(f(x)), (x,), (x,)),
    ],
    ids=["grad", "jvp", "hvp"],
)
def test_running_statistics_in_a_step_advance_once(taken):
    x, found = np.linspace(-1, 1, 9).reshape(3, 3), []
    for loop in (_in_python, lambda step, x: pb.checkpoint_loop(step, x, 4, snapshots=2)):
        layer = pb.nn.BatchNorm(3, dtype=np.float64).arrays()
        taken(lambda x, loop=loop, layer=layer: loop(lambda i, c: pb.sin(layer(c)), x), x)
        found.append(np.asarray(layer.mean))
    np.testing.assert_allclose(found[1], found[0], rtol=1e-14)
    assert abs(found[0]).max() > 0


def test_the_push_of_a_loop_has_a_transpose():
    x, bar = np.linspace(0.1, 1.0, 3), np.array([1.0, 2.0, 3.0])

    def loop(x):
        return pb.checkpoint_loop(lambda i, c, p: 0.5 * pb.sin(c) * p, x, 4, x, snapshots=2)

    def transposed(x):
        return pb.linear_transpose(lambda d: pb.jvp(loop, (x,), (d,))[1], x)(bar)[0]

    def pulled(x):
        return pb.vjp(loop, x)[1](bar)[0]

    np.testing.assert_allclose(pb.linear_transpose(pb.linearize(loop, x)[1], x)(bar)[0], pulled(x), rtol=1e-14)
    np.testing.assert_allclose(pb.jacfwd(transposed)(x), pb.jacfwd(pulled)(x), rtol=1e-13)
    np.testing.assert_allclose(pb.jit(transposed)(x), pulled(x), rtol=1e-14)
    stack = np.stack([x, 2 * x])
    np.testing.assert_allclose(pb.vmap(transposed)(stack), pb.vmap(pulled)(stack), rtol=1e-14)
    back = pb.linear_transpose(lambda b: pb.linear_transpose(pb.linearize(loop, x)[1], x)(b)[0], bar)
    np.testing.assert_allclose(back(bar)[0], pb.jvp(loop, (x,), (bar,))[1], rtol=1e-14)


def test_transposing_a_loop_checks_its_steps_and_names_the_one_that_is_not_linear():
    x, bar = np.zeros(3), np.ones(3)

    def halves(c):
        return pb.checkpoint_loop(lambda i, c, p: 0.5 * c + p, c, 9, 2.0 * c, until=lambda i, c, p: i >= 2)

    np.testing.assert_allclose(pb.linear_transpose(halves, x)(bar)[0], 3.25 * bar)
    for step, name in [(lambda i, c, p: pb.sin(c), "sin"), (lambda i, c, p: c * p, "multiply")]:
        with pytest.raises(ArgumentError, match=f"not linear: {name} is not"):
            pb.linear_transpose(lambda c, step=step: pb.checkpoint_loop(step, c, 2, c), x)
    with pytest.raises(ArgumentError, match="greater_equal"):
        pb.linear_transpose(lambda c: pb.checkpoint_loop(lambda i, c: 2.0 * c, c, 2, until=lambda i, c: c[0] >= 1.0), x)
    with pytest.raises(ArgumentError, match="multiply"):  # the pull of a loop depends on where it is taken
        pb.linear_transpose(pb.grad(lambda c: pb.sum(pb.checkpoint_loop(lambda i, c: c * c, c, 2))), x)


def test_transposing_a_noisy_loop_draws_what_the_loop_drew():
    x, bar = np.linspace(0.1, 1.0, 3), np.ones(3)

    def noisy(x):
        return pb.checkpoint_loop(lambda i, c: pb.sin(c) * pb.random.normal(size=3), x, 3)

    pb.random.seed(0)
    wanted, after = pb.vjp(noisy, x)[1](bar)[0], pb.random.uniform()
    pb.random.seed(0)
    found = pb.linear_transpose(pb.linearize(noisy, x)[1], x)(bar)[0]
    np.testing.assert_allclose(found, wanted, rtol=1e-14)
    assert pb.random.uniform() == after
