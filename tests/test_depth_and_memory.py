"""Deep graphs without recursion, and graphs that leave nothing behind when dropped, also with the collector off."""

import gc
import subprocess
import sys
import weakref
from contextlib import suppress

import numpy as np
import pytest

import pullback as pb
from pullback import errors

DEPTH = 1_000_000


def run_alone(program, seconds=120):
    """A program in a process of its own, with a recursion limit that lets nothing deep through."""
    head = "import sys, faulthandler, numpy as np, pullback as pb\nfaulthandler.dump_traceback_later(100, exit=True)\n"
    head += f"sys.setrecursionlimit(200)\nDEPTH = {DEPTH}\n"
    done = subprocess.run(
        [sys.executable, "-c", head + program], capture_output=True, text=True, timeout=seconds, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.split()


def test_million_ops_forward_backward_and_freed():
    found = run_alone("""
x = pb.tensor(1.0, requires_grad=True)
y = x
for _ in range(DEPTH // 2):
    y = y * 1.0000001 + 0.0
y.backward()
print(y.item() == x.grad.item())
del y
x.grad = None
print("freed")
""")
    assert found == ["True", "freed"]


def test_million_ops_dropped_unused():
    found = run_alone("""
x = pb.tensor(1.0, requires_grad=True)
y = x
for _ in range(DEPTH):
    y = -y
y = None
print("dropped")
""")
    assert found == ["dropped"]


DEEP = {
    "general path": "y = pb.reshape(y, (1,)) if _ % 2 else pb.reshape(y, ())",
    "several results": "y, other = pb.split(pb.concat([y, y]), 2)",
    "in place": "y += x",
    "assignment": "y[0] = y[0] * 2.0",
    "retained": "y = y + x; y.retain_grad()",
    "hooked": "y = y * 1.0; y.register_hook(lambda g: None)",
    "saved": "y = pb.sin(y)",
}


@pytest.mark.parametrize("step", DEEP.values(), ids=DEEP)
def test_other_kinds_of_steps_are_deep_too(step):
    start = "pb.ones(1, requires_grad=True)"
    mode = "pb.saved_tensors_hooks(lambda t: t, lambda t: t)" if step == DEEP["saved"] else "pb.enable_grad()"
    found = run_alone(f"""
x = {start}
y = x * 1.0
with {mode}:
    for _ in range(20000):
        {step}
pb.sum(y).backward()
print(x.grad is not None)
y = x * 1.0
with {mode}:
    for _ in range(20000):
        {step}
del y
print("dropped")
""")
    assert found == ["True", "dropped"]


def test_deep_linked_gradients_and_nested_passes():
    found = run_alone("""
x = pb.tensor(0.5, requires_grad=True)
y = x
for _ in range(20000):
    y = pb.sin(y) * 1.0
(first,) = pb.gradients(y, x, create_graph=True)
(second,) = pb.gradients(first, x, create_graph=True)
print(np.isfinite(second.item()))
del first, second
y.backward(create_graph=True)
x.grad = None
del y
print("freed")
""")
    assert found == ["True", "freed"]


def test_deep_graph_on_workers():
    found = run_alone("""
x = pb.tensor(np.ones(1 << 17), requires_grad=True)
y = x
for _ in range(3000):
    y = y + 1.0
pb.sum(y).backward(workers=2)
print(x.grad.numpy()[0])
""")
    assert found == ["1.0"]


def test_depth_of_a_diamond_chain_is_walked_once():
    x = pb.tensor(1.0, requires_grad=True)
    y = x
    for _ in range(200):
        y = y + y
    y.backward()
    assert x.grad.item() == 2.0**200


@pytest.fixture
def collector_off():
    gc.collect()
    gc.disable()
    yield
    gc.enable()
    gc.collect()


def alive():
    """How many tensors and nodes there are."""
    return sum(type(o) in (pb.Tensor, pb.Node) for o in gc.get_objects())


def parameters():
    rng = np.random.default_rng(0)
    return [pb.tensor(rng.normal(size=s) * 0.3, requires_grad=True) for s in ((4, 8), (8,), (8, 2), (2,))]


def loss_of(w, data, target):
    h = pb.relu(data @ w[0] + w[1])
    out = pb.log_softmax(h @ w[2] + w[3])
    return -pb.mean(out[np.arange(len(target)), target]) + 0.01 * pb.sum(pb.where(w[0] > 0, w[0], -w[0]))


class BoomError(Exception):
    """What a failing hook raises."""


def boom(*args):
    raise BoomError


def plain_step(w, data, target):
    loss_of(w, data, target).backward()
    update(w)


def update(w):
    with pb.no_grad():
        for p in w:
            p -= 0.1 * p.grad
            p.grad = None


def linked_step(w, data, target):
    loss = loss_of(w, data, target)
    found = pb.gradients(loss, w, create_graph=True)
    penalty = pb.sum(pb.stack([pb.sum(g * g) for g in found]))
    (loss + penalty).backward()
    update(w)


def linked_grad_step(w, data, target):
    """`x.grad` hangs on a graph that ends in x itself."""
    loss_of(w, data, target).backward(create_graph=True)
    pb.sum(w[0].grad * w[0].grad).backward()
    update(w)


def hooked_step(w, data, target):
    loss = loss_of(w, data, target)
    middle = loss * 2.0
    middle.retain_grad()
    middle.register_hook(lambda g: g * 1.0)
    middle.node.register_pre_hook(lambda bar: None)
    middle.backward()
    update(w)


def dropped_step(w, data, target):
    loss_of(w, data, target)


def failing_hook_step(w, data, target):
    loss = loss_of(w, data, target)
    loss.register_hook(boom)
    with suppress(BoomError):
        loss.backward()


def failing_linked_step(w, data, target):
    with w[0].register_hook(boom), suppress(BoomError):
        loss_of(w, data, target).backward(create_graph=True)


def failing_op_step(w, data, target):
    with suppress(errors.ShapeError):
        loss_of(w, data[:, :3], target)


def twice_step(w, data, target):
    loss = loss_of(w, data, target)
    loss.backward()
    with suppress(errors.GraphError):
        loss.backward()
    update(w)


def anomaly_step(w, data, target):
    with pb.detect_anomaly(), suppress(errors.AnomalyError):
        pb.sum(pb.sqrt(w[0] * 0.0)).backward()


def saved_step(w, data, target):
    with pb.saved_tensors_hooks(lambda t: t, lambda t: t):
        loss = loss_of(w, data, target)
    loss.backward()
    update(w)


def in_place_step(w, data, target):
    h = data @ w[0]
    h += w[1]
    h[0] = h[1] * 2.0
    loss = pb.sum(h)
    loss += pb.sum(w[2]) + pb.sum(w[3])
    loss.backward()
    update(w)


def shared_step(w, data, target):
    loss_of(w, pb.asarray(data, copy=False), target).backward()
    update(w)


STEPS = [
    plain_step, linked_step, linked_grad_step, hooked_step, dropped_step, failing_hook_step, failing_linked_step,
    failing_op_step, twice_step, anomaly_step, saved_step, in_place_step, shared_step,
]  # fmt: skip


@pytest.mark.parametrize("step", STEPS, ids=lambda s: s.__name__)
def test_thousand_steps_leave_nothing_behind_with_the_collector_off(step, collector_off):
    rng = np.random.default_rng(1)
    data, target = rng.normal(size=(5, 4)), np.array([0, 1, 0, 1, 1])
    w = parameters()
    for _ in range(6):  # by then plans and backward steps are made
        step(w, data, target)
    before, objects = alive(), len(gc.get_objects())
    for _ in range(1000 if step is plain_step else 200):
        step(w, data, target)
    assert alive() == before
    assert len(gc.get_objects()) < objects + 50


@pytest.mark.parametrize("fails", [False, True])
def test_passes_on_workers_leave_nothing_behind(fails, collector_off):
    x = pb.tensor(np.ones(1 << 17), requires_grad=True)

    def step():
        loss = pb.sum(pb.sin(x) * x)
        if fails:
            loss.node.parents[0].register_pre_hook(boom)
        with suppress(BoomError):
            loss.backward(workers=2)
        x.grad = None

    step()
    before = alive()
    for _ in range(20):
        step()
    assert alive() == before


@pytest.mark.parametrize("workers", [1, 2])
def test_gradient_that_a_hook_drops_is_gone_before_the_next_comes(workers, collector_off):
    parameters = [pb.tensor(np.ones(1 << 17), requires_grad=True) for _ in range(8)]
    given, alive_then = [], []

    def drop(t):
        given.append(weakref.ref(t.grad.value))
        t.grad = None
        alive_then.append(sum(ref() is not None for ref in given))

    total = pb.zeros(())
    for w in parameters:
        w.register_post_accumulate_grad_hook(drop)
        total = total + pb.sum(pb.sin(w))
    total.backward(workers=workers)
    assert len(alive_then) == 8
    assert max(alive_then) <= 1 + workers


def test_tensor_dies_with_its_last_name(collector_off):
    x = pb.tensor([1.0, 2.0], requires_grad=True)
    y = x * x
    refs = [weakref.ref(y), weakref.ref(x)]
    z = pb.sum(y)
    del y
    assert refs[0]() is None
    z.backward(create_graph=True)
    del x
    assert refs[1]() is None
    z.backward()


def test_value_lives_as_long_as_a_graph_needs_it(collector_off):
    x = pb.tensor([1.0, 2.0], requires_grad=True)
    array = weakref.ref(x.value)
    y = pb.sum(x * x)
    del x
    assert array() is not None
    y.backward()
    assert array() is None


def test_retained_graph_is_freed_when_it_is_dropped(collector_off):
    x = pb.tensor([1.0, 2.0], requires_grad=True)
    before = alive()
    y = pb.sum(pb.exp(x) * x)
    for _ in range(3):
        y.backward(retain_graph=True)
        x.grad = None
    del y
    assert alive() == before
