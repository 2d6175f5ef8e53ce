"""Backward on several threads: the same bits as on one, the caller's modes, the first error, and never a hang."""

import sys
import threading

import numpy as np
import pytest

import pullback as pb
from pullback import errors
from pullback.tape import threads

LARGE = threads._MIN_THREAD_ELEMENTS
ROWS = 512
SHAPE = (ROWS, LARGE // ROWS)


@pytest.fixture(autouse=True)
def no_thread_is_left():
    before = threading.active_count()
    yield
    assert threading.active_count() == before


def leaf(data):
    return pb.tensor(data, requires_grad=True)


def within(seconds, f):
    """Run f in a thread of its own and fail if it does not end: a hang must not hang the tests."""
    outcome = []

    def run():
        try:
            outcome.append((f(), None))
        except BaseException as error:
            outcome.append((None, error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    assert not thread.is_alive(), "backward hangs"
    value, error = outcome[0]
    if error is not None:
        raise error
    return value


UNARY = [
    pb.sin, pb.tanh, pb.exp, pb.square, pb.relu, pb.sigmoid, pb.abs, lambda x: x * 0.5, lambda x: -x, lambda x: x[::-1],
    lambda x: pb.reshape(pb.reshape(x, (-1,)), SHAPE),
]  # fmt: skip
BINARY = [
    pb.add, pb.subtract, pb.multiply, pb.maximum, lambda a, b: a / (b * b + 1.5),
    lambda a, b: pb.where(a > b, a, pb.sin(b)), lambda a, b: a + pb.sum(b, axis=0, keepdims=True) * 0.01,
]  # fmt: skip


def random_graph(seed, leaves, ops=14):
    """A loss over random ops, in which values are used many times and everything leads to the loss."""
    rng = np.random.default_rng(seed)
    values = list(leaves)
    for _ in range(ops):
        if rng.random() < 0.4:
            out = UNARY[rng.integers(len(UNARY))](values[rng.integers(len(values))])
        else:
            i, j = rng.integers(len(values), size=2)
            out = BINARY[rng.integers(len(BINARY))](values[i], values[j])
        values.append(pb.tanh(out))
    total = pb.sum(values[0])
    for value in values[1:]:
        total = total + pb.sum(value * 0.1)
    return total


def gradients_of(seed, *, workers, linked=False, retain=False):
    rng = np.random.default_rng(seed + 1000)
    leaves = [leaf(rng.normal(size=SHAPE)) for _ in range(3)]
    loss = random_graph(seed, leaves)
    within(60, lambda: loss.backward(workers=workers, create_graph=linked, retain_graph=retain))
    return [x.grad.detach().numpy() for x in leaves]


@pytest.fixture
def restless():
    """Threads change places as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("workers", [2, 5])
def test_gradients_are_bitwise_those_of_one_worker(seed, workers, restless):
    for one, many in zip(gradients_of(seed, workers=1), gradients_of(seed, workers=workers), strict=True):
        np.testing.assert_array_equal(one, many)
        assert np.isfinite(one).all()
        assert one.any()


def test_linked_gradients_are_bitwise_those_of_one_worker():
    for one, many in zip(gradients_of(3, workers=1, linked=True), gradients_of(3, workers=3, linked=True), strict=True):
        np.testing.assert_array_equal(one, many)


@pytest.mark.parametrize("size", [1, 8, 1000])
def test_small_graphs_are_bitwise_the_same_and_start_no_thread(size, monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("a thread for a small graph")

    monkeypatch.setattr(threads.threading, "Thread", refuse)
    found = []
    for workers in (1, 4):
        x = leaf(np.linspace(0.1, 1.0, size))
        h = x
        for _ in range(20):
            h = pb.tanh(h * x + 0.5)
        pb.sum(h).backward(workers=workers)
        found.append(x.grad.numpy())
    np.testing.assert_array_equal(*found)


def test_many_shares_of_one_value_are_summed_in_one_order():
    scale = 10.0 ** np.arange(-8, 9, 2)
    data = np.random.default_rng(0).normal(size=LARGE)

    def run(workers):
        x = leaf(data)
        parts = [pb.sin(x * s) * (1 / s) for s in scale]
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        within(60, lambda: total.backward(data[::-1].copy(), workers=workers))
        return x.grad.numpy()

    wanted = run(1)
    for workers in (2, 3, 8):
        np.testing.assert_array_equal(run(workers), wanted)


def test_second_pass_over_a_retained_graph_adds():
    x = leaf(np.full(LARGE, 0.5))
    loss = pb.sum(pb.sin(x) * pb.cos(x))
    loss.backward(workers=2, retain_graph=True)
    once = x.grad.numpy()
    loss.backward(workers=2)
    np.testing.assert_array_equal(x.grad.numpy(), 2 * once)
    with pytest.raises(errors.GraphError, match="retain_graph=True"):
        loss.backward(workers=2)


def test_inputs_and_gradients_take_workers_too():
    x, w = leaf(np.full(LARGE, 0.5)), leaf(np.full(LARGE, 2.0))
    loss = pb.sum(pb.sin(x) * w)
    loss.backward(inputs=[x], workers=3, retain_graph=True)
    assert w.grad is None
    (found,) = pb.gradients(loss, x, workers=3)
    np.testing.assert_array_equal(found.numpy(), x.grad.numpy())


def branches(count=4, spoil=None):
    """Independent large branches of one loss; `spoil(branch_node)` may hang something on one of them."""
    leaves = [leaf(np.full(LARGE, 0.1 * (i + 1))) for i in range(count)]
    tops = []
    for i, x in enumerate(leaves):
        top = pb.sin(pb.exp(x) * x)
        if spoil is not None and i == count // 2:
            spoil(top)
        tops.append(top)
    total = tops[0]
    for top in tops[1:]:
        total = total + top
    return leaves, pb.sum(total)


class BoomError(Exception):
    """What a failing hook raises."""


def boom(*args):
    raise BoomError("here")


FAILURES = {
    "gradient hook": lambda top: top.register_hook(boom),
    "pre hook": lambda top: top.node.register_pre_hook(boom),
    "post hook": lambda top: top.node.register_hook(boom),
    "wrong answer": lambda top: top.register_hook(lambda g: np.ones(3)),
    "interrupt": lambda top: top.node.register_pre_hook(interrupt),
    "freed": lambda top: setattr(top.node, "kept", None),
}


def interrupt(bar):
    raise KeyboardInterrupt


@pytest.mark.parametrize("case", FAILURES)
@pytest.mark.parametrize("workers", [2, 8])
def test_error_on_a_worker_is_raised_in_the_caller_and_nothing_is_written(case, workers):
    leaves, loss = branches(4, FAILURES[case])
    kind = {"wrong answer": errors.HookError, "interrupt": KeyboardInterrupt, "freed": errors.GraphError}.get(
        case, BoomError
    )
    for _ in range(3):
        with pytest.raises(kind):
            within(60, lambda: loss.backward(workers=workers, retain_graph=True))
        assert [x.grad for x in leaves] == [None] * 4


def test_error_in_every_branch_at_once_is_one_error():
    leaves, loss = branches(6)
    for x in leaves:
        x.register_hook(boom)
    with pytest.raises(BoomError, match="here"):
        within(60, lambda: loss.backward(workers=6))


def test_error_in_a_rule_names_the_line_that_made_the_node():
    x = leaf(np.ones(LARGE))
    with pb.saved_tensors_hooks(lambda t: t, boom):
        hidden = pb.sin(x)
    with pytest.raises(BoomError) as caught:
        within(60, lambda: pb.sum(hidden + x).backward(workers=2))
    assert any("sin" in note and "test_workers.py" in note for note in caught.value.__notes__)


def test_anomaly_is_found_on_a_worker():
    x = leaf(np.zeros(LARGE))
    y = leaf(np.ones(LARGE))
    loss = pb.sum(pb.sqrt(x) + pb.sin(y))
    with pb.detect_anomaly(), pytest.raises(errors.AnomalyError, match="sqrt"):
        loss.backward(workers=2)
    assert y.grad is None


def test_workers_run_in_the_modes_of_the_caller():
    seen = []
    _, loss = branches(6, lambda top: top.node.register_pre_hook(lambda bar: seen.append(pb.is_grad_enabled())))
    with pb.no_grad():
        within_here = loss.backward(workers=6, retain_graph=True)
    loss.backward(workers=6, create_graph=True)
    assert within_here is None
    assert seen == [False, True]


def test_large_branches_are_pulled_at_the_same_time():
    """Two hooks wait for each other: this ends only if two threads are inside at once."""
    barrier = threading.Barrier(2, timeout=30)
    leaves = [leaf(np.full(LARGE, 0.5)) for _ in range(2)]
    tops = [pb.sin(x) * x for x in leaves]
    for top in tops:
        top.node.register_pre_hook(lambda bar: (barrier.wait(), None)[1])
    loss = pb.sum(tops[0] + tops[1])
    within(60, lambda: loss.backward(workers=2))
    assert all(x.grad is not None for x in leaves)


def test_backward_on_workers_inside_a_hook_of_a_worker():
    inner = []

    def again(gradient):
        x = leaf(np.full(LARGE, 2.0))
        pb.sum(x * x).backward(workers=2)
        inner.append(float(x.grad.numpy()[0]))

    _, loss = branches(3, lambda top: top.register_hook(again))
    within(60, lambda: loss.backward(workers=3))
    assert inner == [4.0]


def test_hooks_on_workers_are_called_once_each():
    calls = []
    leaves, loss = branches(5)
    for i, x in enumerate(leaves):
        x.register_hook(lambda g, i=i: calls.append(("grad", i)))
        x.register_post_accumulate_grad_hook(lambda t, i=i: calls.append(("accumulated", i)))
    pb.register_multi_grad_hook(leaves, lambda gs: calls.append(("all", len([g for g in gs if g is not None]))))
    within(60, lambda: loss.backward(workers=5))
    assert sorted(map(str, calls)) == sorted(
        map(str, [("grad", i) for i in range(5)] + [("accumulated", i) for i in range(5)] + [("all", 5)])
    )
