"""Random streams under recomputation: a second run draws what the first drew, and no stream notices."""

import collections
import contextvars
import functools
import random
import sys
import threading
import types
from typing import NamedTuple

import numpy as np
import pytest

import pullback as pb
from pullback.errors import RecomputeError
from pullback.ops.replay import default_stream
from pullback.ops.replay.reach import Reach

X = np.linspace(-1.0, 1.0, 6).reshape(2, 3)
ELSEWHERE = types.ModuleType("elsewhere")
sys.modules["elsewhere"] = ELSEWHERE  # a module of a user's own


class Slotted:
    __slots__ = ("rng",)

    def __init__(self, rng):
        self.rng = rng


def masked(x, draw):
    return pb.sin(pb.exp(x) * (draw() < 0.6))


def numbers(generator):
    """Numbers between 0 and 1 of a Python generator, in the shape of the data."""
    return lambda: np.array([generator.random() for _ in range(X.size)]).reshape(X.shape)


def seeded():
    """Every stream at its start: (a function that draws, what the stream draws next)."""
    pb.random.seed(1)
    np.random.seed(1)
    random.seed(1)
    one, two, three = (np.random.default_rng(k) for k in (1, 2, 3))
    own = random.Random(1)
    slotted, net = Slotted(two), pb.nn.Sequential(pb.nn.Dropout(0.5))
    ELSEWHERE.rng = three
    bits = np.random.PCG64(4)
    of_bits = np.random.Generator(bits)
    legacy = np.random.RandomState(6)
    ours = lambda: float(pb.random.uniform())  # noqa: E731
    keyless = lambda: pb.random.uniform(size=X.shape)  # noqa: E731
    return {
        "ours": (lambda x: masked(x, keyless), ours),
        "ours, seeded inside": (lambda x: pb.random.seed(3) or masked(x, keyless), ours),
        "dropout": (lambda x: pb.sin(pb.nn.dropout(pb.exp(x), 0.5)), ours),
        "a module's dropout": (lambda x: pb.sin(net(pb.exp(x))), ours),
        "gumbel_softmax": (lambda x: pb.sin(pb.random.gumbel_softmax(pb.exp(x))), ours),
        "NumPy's": (lambda x: masked(x, lambda: np.random.random(X.shape)), np.random.normal),
        "Python's": (lambda x: masked(x, numbers(random)), lambda: random.gauss(0, 1)),
        "a random.Random": (lambda x: masked(x, numbers(own)), own.random),
        "a Generator": (lambda x: masked(x, lambda: one.random(X.shape)), one.random),
        "in a slot": (lambda x: masked(x, lambda: slotted.rng.random(X.shape)), two.random),
        "of another module": (lambda x: masked(x, lambda: ELSEWHERE.rng.random(X.shape)), three.random),
        "bits": (lambda x: masked(x, lambda: np.random.Generator(bits).random(X.shape)), of_bits.random),
        "RandomState": (lambda x: masked(x, lambda: legacy.random_sample(X.shape)), legacy.normal),
        "several": (lambda x: masked(masked(x, lambda: one.random(X.shape)), keyless), ours),
    }  # fmt: skip


def looped(f, x):
    return pb.checkpoint_loop(lambda i, x: f(x), x, 3, snapshots=2)


def until(f, x):
    return pb.checkpoint_loop(lambda i, x: f(x), x, until=lambda i, x: i == 3, snapshots=2)


def repeated(f, x, times=3):
    for _ in range(times):
        x = f(x)
    return x


def within_budget(f, x):
    with pb.memory_budget("1 MiB"):
        return repeated(f, x)


#: Ways to run f three times, one after the other, so that it is computed again; `repeated` is the reference.
WAYS = {
    "checkpoint": lambda f, x: repeated(pb.checkpoint(f), x),
    "one checkpoint": lambda f, x: pb.checkpoint(lambda x: repeated(f, x))(x),
    "nested": lambda f, x: pb.checkpoint(lambda x: repeated(pb.checkpoint(f), x))(x),
    "thrice nested": lambda f, x: pb.checkpoint(lambda x: pb.checkpoint(lambda x: repeated(pb.checkpoint(f), x))(x))(x),
    "contractions": lambda f, x: repeated(pb.checkpoint(f, policy=pb.save_contractions), x),
    "verified": lambda f, x: repeated(pb.checkpoint(f, verify=True), x),
    "sequential": lambda f, x: pb.checkpoint_sequential([f] * 3, x, segments=2),
    "loop": looped,
    "loop in a checkpoint": lambda f, x: pb.checkpoint(lambda x: looped(f, x))(x),
    "checkpoint in a loop": lambda f, x: looped(pb.checkpoint(f), x),
    "loop until": until,
    "budget": within_budget,
}


def outcome(name, way, kind):
    """The derivative, and what the stream draws in between and afterwards."""
    f, following = seeded()[name]
    x = pb.tensor(X, requires_grad=True)
    if kind == "backward":
        loss = pb.sum(way(f, x))
        between = following()
        loss.backward()
        return x.grad.numpy(), between, following()
    if kind == "twice":
        loss = pb.sum(way(f, x))
        loss.backward(retain_graph=True)
        between = following()
        loss.backward()
        return x.grad.numpy(), between, following()
    g = pb.grad(lambda x: pb.sum(way(f, x) ** 2))
    found = pb.grad(lambda x: pb.sum(g(x) * X))(X) if kind == "second order" else pb.jvp(g, (X,), (X,))[1]
    return found, following()


@pytest.mark.parametrize("kind", ["backward", "twice", "second order", "forward over reverse"])
@pytest.mark.parametrize("way", WAYS)
def test_a_second_run_draws_what_the_first_drew_and_no_stream_notices(way, kind):
    for name in seeded():
        found, wanted = outcome(name, WAYS[way], kind), outcome(name, repeated, kind)
        for a, b in zip(found, wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12, err_msg=name)


def test_dropout_without_a_key_inside_a_checkpoint():
    f = lambda x: pb.nn.dropout(pb.exp(x), 0.5)  # noqa: E731
    g = lambda f: (pb.random.seed(0), pb.grad(lambda x: pb.sum(f(x)))(np.zeros(8)))[1]  # noqa: E731
    np.testing.assert_array_equal(g(f), g(pb.checkpoint(f)))


def test_threads_that_draw_at_the_same_time_do_not_disturb_each_other():
    """Each thread's gradient belongs to the mask that its own value has."""
    wrong, start = [], threading.Barrier(4)

    def work():
        start.wait()
        for _ in range(40):
            x = pb.tensor(np.zeros(50), requires_grad=True)
            y = pb.checkpoint(lambda x: pb.nn.dropout(pb.nn.dropout(pb.exp(x), 0.5), 0.5))(x)
            loop = pb.checkpoint_loop(lambda i, x: pb.nn.dropout(x * x, 0.9), x + 1.0, 3, snapshots=2)
            pb.sum(y).backward()
            if not np.array_equal(x.grad.numpy(), y.detach().numpy()):
                wrong.append("checkpoint")
            x.grad = None
            pb.sum(loop).backward()
            if not np.allclose(x.grad.numpy(), 8 * loop.detach().numpy()):
                wrong.append("loop")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_no_key_is_handed_out_twice_while_another_thread_recomputes():
    pb.random.seed(0)
    before = pb.random.state().drawn
    x = pb.tensor(np.zeros(10), requires_grad=True)
    loss = pb.sum(pb.checkpoint(lambda x: pb.nn.dropout(pb.exp(x), 0.5))(x))
    seen = []

    def drawing_meanwhile(bar):
        thread = threading.Thread(target=lambda: seen.append(float(pb.random.uniform())))
        thread.start()
        thread.join()
        seen.append(float(pb.random.uniform()))
        return bar

    x.register_hook(drawing_meanwhile)
    loss.backward()
    assert len(set(seen)) == 2
    assert pb.random.state().drawn == before + 3


@pytest.mark.parametrize("draw", [np.random.random, random.random])
def test_workers_that_recompute_at_the_same_time_do_not_mix_up_shared_streams(draw):
    """Two branches whose second runs rewind one global stream, in two threads."""

    def gradient(wrap, workers):
        np.random.seed(0)
        random.seed(0)
        x = pb.tensor(np.ones((300, 300)), requires_grad=True)
        f = wrap(lambda x: pb.sin(pb.exp(x * draw()) * draw()) @ x)
        loss = pb.sum(f(x)) + pb.sum(f(x)) + pb.sum(f(x))
        loss.backward(workers=workers)
        return x.grad.numpy(), draw()

    wanted, following = gradient(lambda f: f, 1)
    for _ in range(5):
        found, mine = gradient(pb.checkpoint, 2)
        np.testing.assert_allclose(found, wanted, rtol=1e-12)
        assert mine == following


def test_a_second_run_that_draws_more_than_the_first_is_found():
    count = [1]

    def f(x):
        for _ in range(count[0]):
            x = pb.nn.dropout(pb.exp(x), 0.5)
        return x

    x = pb.tensor(np.zeros(3), requires_grad=True)
    loss = pb.sum(pb.checkpoint(lambda x: pb.exp(f(x)), verify=True)(x))
    count[0] = 2
    state = pb.random.state()
    with pytest.raises(RecomputeError):
        loss.backward()
    assert pb.random.state() == state


def test_a_record_of_draws_takes_one_entry_for_each_run_of_numbers():
    record = default_stream.Draws()
    states = [pb.random.State((1, 2), n) for n in (4, 5, 6, 9, 10, 3)] + [pb.random.State((1, 3), 4)]
    for state in states:
        record.append(state)
    assert [record[i] for i in range(record.count)] == states
    assert len(record._firsts) == 4


def test_a_state_read_in_a_second_run_is_that_of_the_first():
    pb.random.seed(2)
    seen = []

    def f(x):
        seen.append(pb.random.state())
        return pb.nn.dropout(pb.exp(pb.exp(x)), 0.5)

    x = pb.tensor(np.zeros(3), requires_grad=True)
    loss = pb.sum(pb.checkpoint(f, verify=True)(x))
    pb.random.uniform()
    loss.backward()
    assert seen[0] == seen[1]


def test_the_context_of_a_checkpoint_does_not_leak():
    pb.grad(lambda x: pb.sum(pb.checkpoint(lambda x: pb.nn.dropout(x, 0.5))(x)))(X)
    assert default_stream.cursor() is None
    assert contextvars.copy_context().run(default_stream.cursor) is None


def test_the_operating_systems_generator_has_no_state_to_read():
    system = random.SystemRandom()
    assert Reach((lambda x: system.random(),)).generators == []
    assert np.isfinite(pb.grad(lambda x: pb.checkpoint(lambda x: pb.exp(x) + system.random())(x))(1.0))


def test_what_a_function_reaches():
    one, two, three = (np.random.default_rng(k) for k in range(3))
    t = pb.tensor([1.0])
    holder = types.SimpleNamespace(parts={"a": [one]})
    partial = functools.partial(lambda rng, x: x, two)
    found = Reach((lambda x, rng=three: (holder, partial, t),))
    assert {id(g) for g in found.generators} == {id(one), id(two), id(three)}
    assert found.tensors == [t] or found.tensors[0] is t


class Pair(NamedTuple):
    rng: np.random.Generator
    scale: float


class Own(list):
    """A container that has attributes too."""


@pytest.mark.parametrize(
    "hold",
    [
        lambda rng: Pair(rng, 1.0),
        lambda rng: collections.deque([rng]),
        lambda rng: collections.OrderedDict(rng=rng),
        lambda rng: Own([rng]),
        lambda rng: types.SimpleNamespace(inner=Own([rng])),
        lambda rng: functools.partial(max, key=rng),
        lambda rng: rng.random,
    ],
)
@pytest.mark.parametrize("make", [np.random.default_rng, random.Random])
def test_generators_in_holders_of_many_kinds_are_reached(make, hold):
    rng = make(0)
    held = hold(rng)
    assert [id(x) for x in Reach((lambda x: held,)).generators] == [id(rng)]
    assert Reach((lambda x: hold,)).generators == []


def test_attributes_of_a_container_are_reached():
    held, rng = Own(), np.random.default_rng(0)
    held.rng = rng
    found = Reach((lambda x: held,))
    assert found.generators[0] is rng
    assert found.objects[0] is held


def test_how_far_a_function_reaches():
    rng = np.random.default_rng(0)
    held = rng
    for depth in range(6):
        held = [held]
        found = Reach((lambda x, held=held: held,)).generators
        assert found == ([rng] if depth < 3 else [])
    many = [rng] + [None] * 4096
    assert Reach((lambda x: many,)).generators == []
    del many[-1]
    assert Reach((lambda x: many,)).generators == [rng]


def test_the_draws_of_a_bound_method_are_repeated():
    draw = np.random.default_rng(0).normal
    x = pb.tensor(X, requires_grad=True)
    drawn = []

    def noisy(x):
        drawn.append(draw())
        return pb.exp(x) * drawn[-1]

    pb.sum(pb.checkpoint(noisy)(x)).backward()
    assert len(drawn) == 2
    assert drawn[0] == drawn[1]
