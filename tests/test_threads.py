"""Graphs on many threads at once: each its own answer, and shared leaves the sum of all."""

import sys
import threading

import numpy as np
import pytest

import pullback as pb
from pullback import errors

THREADS = 8


@pytest.fixture(autouse=True)
def restless():
    """Threads change places as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def leaf(data):
    return pb.tensor(data, requires_grad=True)


def on_threads(f, count=THREADS, seconds=120):
    """f(0), f(1), ... each on a thread of its own, started together; the first error is raised here."""
    start = threading.Barrier(count)
    results, problems = [None] * count, []

    def run(i):
        try:
            start.wait()
            results[i] = f(i)
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=run, args=(i,), daemon=True) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(seconds)
        assert not thread.is_alive(), "a thread hangs"
    if problems:
        raise problems[0]
    return results


def nested(point):
    """First and second derivative of x^3 sin(x) at a number, by tape."""
    x = leaf(point)
    (first,) = pb.gradients(x * x * x * pb.sin(x), x, create_graph=True)
    (second,) = pb.gradients(first, x)
    return first.item(), second.item()


def wrong_answers(count):
    """How many of `count` nested gradients, on eight threads, differ from the same done alone."""
    points = [0.1 + 0.01 * k for k in range(50)]
    wanted = [nested(p) for p in points]

    def run(i):
        wrong = 0
        for k in range(count // THREADS):
            at = (k * (i + 1) + i) % len(points)
            wrong += nested(points[at]) != wanted[at]
        return wrong

    return sum(on_threads(run))


def test_independent_nested_gradients_on_eight_threads():
    assert wrong_answers(2_000) == 0


@pytest.mark.sweep
def test_a_hundred_thousand_nested_gradients_on_eight_threads():
    assert wrong_answers(100_000) == 0


def test_different_shapes_dtypes_and_constants_on_eight_threads():
    """Specs, remembered scalars and specialised rules are made on first use, by whoever comes first."""

    def run(i):
        found = []
        for k in range(150):
            shape, dtype = (k % 7 + 1, i % 3 + 1), (np.float16, np.float32, np.float64)[(i + k) % 3]
            x = pb.tensor(np.full(shape, 0.5), dtype=dtype, requires_grad=True)
            scale = 1.0 + (i * 150 + k) / 1024
            pb.sum(pb.tanh(x * scale) / (x + scale)).backward()
            found.append((x.grad.dtype == dtype, x.grad.numpy().copy(), x.detach().numpy(), scale))
        return found

    for found in on_threads(run):
        for same, gradient, x, scale in found:
            assert same
            x = x.astype(np.float64)
            t = np.tanh(x * scale)
            wanted = (1 - t * t) * scale / (x + scale) - t / (x + scale) ** 2
            np.testing.assert_allclose(gradient, wanted, atol=5e-3 if gradient.dtype == np.float16 else 1e-5)


def test_threads_that_share_a_leaf_lose_no_gradient():
    x = leaf(np.zeros(4))

    def run(i):
        for _ in range(200):
            pb.sum(x * float(i + 1) + x).backward()

    on_threads(run)
    assert x.grad.tolist() == [200.0 * sum(i + 2 for i in range(THREADS))] * 4


def shared_graph():
    x, w = leaf(np.linspace(0.1, 1.0, 5)), leaf(np.linspace(1.0, 2.0, 5))
    h = x
    for _ in range(12):
        h = pb.tanh(h * w + x) + pb.where(h > 0.5, h, 0.0)
    return x, w, pb.sum(h)


@pytest.mark.parametrize("linked", [False, True])
def test_threads_that_share_one_retained_graph(linked):
    x, w, loss = shared_graph()
    wanted = [g.numpy() for g in pb.gradients(loss, [x, w], retain_graph=True)]

    def run(i):
        return [
            [g.detach().numpy() for g in pb.gradients(loss, [x, w], retain_graph=True, create_graph=linked)]
            for _ in range(10 if linked else 60)
        ]

    for found in on_threads(run):
        for gradients in found:
            np.testing.assert_array_equal(gradients, wanted)


def test_threads_that_go_back_over_one_retained_graph_add_up():
    x, w, loss = shared_graph()
    wanted = [g.numpy() for g in pb.gradients(loss, [x, w], retain_graph=True)]
    times = 40

    def run(i):
        for _ in range(times):
            loss.backward(retain_graph=True)

    on_threads(run)
    for t, once in zip((x, w), wanted, strict=True):
        np.testing.assert_allclose(t.grad.numpy(), once * THREADS * times, rtol=1e-12)


def test_threads_over_overlapping_parts_of_one_graph():
    x = leaf(np.linspace(0.1, 1.0, 5))
    trunk = x
    for _ in range(20):
        trunk = pb.sin(trunk) + x
    heads = [pb.sum(trunk * float(i + 1)) for i in range(THREADS)]
    wanted = [pb.gradients(head, x, retain_graph=True)[0].numpy() for head in heads]

    def run(i):
        return [pb.gradients(heads[i], x, retain_graph=True)[0].numpy() for _ in range(60)]

    for found, once in zip(on_threads(run), wanted, strict=True):
        for gradient in found:
            np.testing.assert_array_equal(gradient, once)


def test_graph_that_is_not_retained_serves_whole_passes_or_says_it_was_freed():
    def build():
        x = leaf(2.0)
        y = x
        for _ in range(10):
            y = pb.sin(y) * y
        return x, y

    x, y = build()
    y.backward()
    once = x.grad.item()
    for _ in range(40):
        x, y = build()

        def run(i, y=y):
            try:
                y.backward()
            except errors.GraphError as error:
                return 0 if "retain_graph=True" in str(error) else None
            return 1

        passes = sum(on_threads(run, 3))
        np.testing.assert_allclose(0.0 if x.grad is None else x.grad.item(), passes * once)


def test_failing_threads_leave_the_others_alone():
    x, w, loss = shared_graph()
    wanted = pb.gradients(loss, x, retain_graph=True)[0].numpy()

    def run(i):
        if i % 2:
            for _ in range(30):
                other = leaf(1.0)
                y = pb.exp(other * pb.sum(w))
                y.register_hook(lambda g: 1 / 0)
                with pytest.raises(ZeroDivisionError):
                    y.backward()
            return []
        return [pb.gradients(loss, x, retain_graph=True)[0].numpy() for _ in range(40)]

    for found in on_threads(run):
        for gradient in found:
            np.testing.assert_array_equal(gradient, wanted)


def test_backward_inside_a_hook_on_the_same_graph_from_several_threads():
    x = leaf(0.7)
    middle = pb.exp(x)
    loss = pb.sin(middle) * middle
    (wanted,) = pb.gradients(loss, x, retain_graph=True)
    depth = threading.local()
    inner = []

    def again(gradient):
        if not getattr(depth, "inside", False):
            depth.inside = True
            inner.append(pb.gradients(loss, x, retain_graph=True)[0].item())
            depth.inside = False

    middle.register_hook(again)
    found = on_threads(lambda i: [pb.gradients(loss, x, retain_graph=True)[0].item() for _ in range(40)])
    assert {value for each in found for value in each} | set(inner) == {wanted.item()}
    assert len(inner) == THREADS * 40


def test_hooks_may_come_and_go_while_other_threads_go_back():
    x = leaf(np.ones(3))

    def run(i):
        for _ in range(150):
            if i % 2:
                x.register_hook(lambda g: None).remove()
            else:
                pb.gradients(pb.sum(pb.sin(x) * x), x)

    on_threads(run)
    assert pb.gradients(pb.sum(x * 2.0), x)[0].tolist() == [2.0] * 3


def test_arrays_shared_between_threads_are_unlocked_at_the_end():
    data = np.ones(4)

    def run(i):
        w = leaf(np.ones(4))
        for _ in range(100):
            pb.sum(w * pb.asarray(data, copy=False)).backward()
        return w.grad.tolist()

    assert on_threads(run) == [[100.0] * 4] * THREADS
    assert data.flags.writeable
