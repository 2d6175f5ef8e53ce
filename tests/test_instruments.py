"""Instruments nest without hiding each other, and see everything that computes."""

import itertools
import threading
from collections import Counter
from contextlib import ExitStack, contextmanager

import numpy as np
import pytest

import pullback as pb
from pullback.instrument import Instrument
from pullback.settings import PLAIN, installed, modes, override_modes
from pullback.tape.anomaly import AnomalyCheck

X = np.linspace(0.1, 0.9, 64).reshape(8, 8)
W = np.cos(np.arange(64.0)).reshape(8, 8)


class Counting(Instrument):
    """Counts everything an instrument is told."""

    measures = True

    def __init__(self):
        self.ops, self.programs, self.events = Counter(), [], Counter()
        self.guard = threading.Lock()

    def compute(self, call, below):
        with self.guard:
            self.ops[call.op.name] += call.level <= 1
        return below()

    def run_program(self, call, below):
        outs = below()
        self.programs.append((call.name, len(call.arrays), len(outs)))
        return outs

    def node_made(self, node):
        self.events["node"] += 1

    def backward_begins(self):
        self.events["begin"] += 1

    def backward_ends(self, released):
        self.events["end"] += 1

    def pull_begins(self, node, bar):
        self.events["pull"] += 1

    def pulled(self, node, shares):
        self.events["pulled"] += 1

    def summed(self, total):
        self.events["sum"] += 1

    def delivered(self, tensors):
        self.events["delivered"] += len(tensors)


@contextmanager
def counting():
    counter = Counting()
    with override_modes(counter):
        yield lambda: (counter.ops, counter.events)


@contextmanager
def profile():
    with pb.memory.profile() as seen:
        made = lambda: Counter(e.origin.op for e in seen._events if e.holder not in ("", "input", "parameter"))  # noqa: E731
        yield lambda: (seen.peak, seen.peak_of("backward"), made())


@contextmanager
def budget():
    with pb.memory_budget("1 GiB") as used:
        yield lambda: used.report().peak


@contextmanager
def hooks():
    packed = []

    def pack(t):
        packed.append(t.shape)
        return t

    with pb.saved_tensors_hooks(pack, lambda t: t):
        yield lambda: Counter(packed)


@contextmanager
def anomaly():
    with pb.detect_anomaly():
        yield lambda: installed().innermost(AnomalyCheck) is not None


@contextmanager
def offload():
    with pb.offload_to_disk(at_least=1):
        yield lambda: None


CONTEXTS = {f.__name__: f for f in (counting, profile, budget, hooks, anomaly, offload)}
WRAPS = {
    "plain": lambda f: f,
    "checkpoint": pb.checkpoint,
    "policy": lambda f: pb.checkpoint(f, policy=pb.save_contractions),
    "named": lambda f: pb.checkpoint(f, policy=pb.save_named("h")),
}
#: Both decide what a node holds: the inner one does.
REPLACING = {"hooks", "offload"}


def loss(x, w):
    h = pb.name(pb.tanh(x @ w + w), "h")
    return pb.sum(pb.where(h > 0, pb.sin(pb.exp(h)) * h, 0.5 * h))


def run(wrap, names):
    """The gradient's bytes, and the readings of the contexts, the first one outermost."""
    x, w = pb.tensor(X, requires_grad=True), pb.tensor(W, requires_grad=True)
    with ExitStack() as stack:
        readings = {name: stack.enter_context(CONTEXTS[name]()) for name in names}
        WRAPS[wrap](loss)(x, w).backward()
        found = {name: read() for name, read in readings.items()}
    assert modes() is PLAIN
    return (x.grad.numpy().tobytes(), w.grad.numpy().tobytes()), found


@pytest.fixture(scope="module")
def alone():
    return {(wrap, name): run(wrap, (name,)) for wrap in WRAPS for name in CONTEXTS}


@pytest.mark.parametrize("wrap", WRAPS)
@pytest.mark.parametrize("names", list(itertools.permutations(CONTEXTS, 2)), ids="-".join)
def test_two_instruments_see_what_each_sees_alone(wrap, names, alone):
    bits, found = run(wrap, names)
    assert bits == run(wrap, ())[0]
    replaced = REPLACING.intersection(names)
    for name in names:
        if name in ("profile", "budget") and replaced:
            assert found[name]  # what is packed or on disk takes other memory
        elif name == "hooks" and names[-1] == "offload":
            assert found[name] == {}
        else:
            assert found[name] == alone[wrap, name][1][name]


@pytest.mark.parametrize("wrap", ["checkpoint", "policy", "named"])
@pytest.mark.parametrize("name", ["counting", "profile", "anomaly", "budget", "hooks", "offload"])
def test_an_instrument_inside_of_a_checkpoint_changes_no_gradient(wrap, name):
    def inside(x, w):
        with CONTEXTS[name]():
            return loss(x, w)

    x, w = pb.tensor(X, requires_grad=True), pb.tensor(W, requires_grad=True)
    WRAPS[wrap](inside)(x, w).backward()
    assert (x.grad.numpy().tobytes(), w.grad.numpy().tobytes()) == run("plain", ())[0]


def test_all_at_once():
    bits, found = run("policy", tuple(CONTEXTS))
    assert bits == run("plain", ())[0]
    assert found["counting"] == run("policy", ("counting",))[1]["counting"]


def test_small_values_that_are_not_offloaded_go_to_the_hooks_around():
    packed = []
    with pb.saved_tensors_hooks(lambda t: packed.append(t.shape) or t, lambda t: t), pb.offload_to_disk(at_least=100):
        pb.sin(pb.tensor(X, requires_grad=True))
        pb.sin(pb.tensor(X[0, :2], requires_grad=True))
    assert packed == [(2,)]


def counts(f, *args):
    with counting() as read:
        f(*args)
    return read()[0]


def test_ops_on_bare_arrays_are_seen():
    assert counts(pb.sin, X) == {"sin": 1}
    assert counts(pb.add, X, W) == {"add": 1}
    assert counts(pb.sum, X)["sum"] == 1
    pushed = counts(lambda: pb.jvp(lambda x: pb.sin(x) @ W, (X,), (W,)))
    assert (pushed["sin"], pushed["cos"], pushed["matmul"]) == (1, 1, 2)
    assert counts(pb.vmap(lambda x: pb.sin(x) @ W), X)["sin"] == 1
    assert counts(pb.linearize, pb.sin, X)["sin"] == 1


def test_the_ops_of_rules_are_seen():
    x = pb.tensor(X, requires_grad=True)
    with counting() as read:
        pb.sum(pb.sin(x) @ W).backward()
    ops, events = read()
    assert (ops["sin"], ops["cos"], ops["matmul"]) == (1, 1, 2)
    assert events == {"begin": 1, "end": 1, "node": 3, "pull": 3, "pulled": 3, "delivered": 1}


def test_what_a_checkpoint_supplies_is_not_computed():
    for wrap, products in (("checkpoint", 2), ("policy", 1)):
        ops = run(wrap, ("counting",))[1]["counting"][0]
        assert ops["matmul"] - 2 == products, wrap  # two are the pull's
        assert ops["exp"] == 2


def test_an_instrument_around_the_backward_pass_alone_sees_the_recomputation():
    x = pb.tensor(X, requires_grad=True)
    y = pb.sum(pb.checkpoint(lambda x: pb.sin(pb.exp(pb.sin(x))))(x))
    with counting() as read, pb.memory.profile() as seen:
        y.backward()
    assert read()[0]["exp"] == 1
    assert seen.peak >= 3 * X.nbytes


def test_recomputations_of_a_budget_are_seen():
    x = pb.tensor(np.ones(4096), requires_grad=True)
    with counting() as read, pb.memory_budget(8 * x.nbytes) as used:
        y = x
        for _ in range(20):
            y = pb.sin(y)
        pb.sum(y).backward()
    report = used.report()
    assert report.recomputations > 0
    assert read()[0]["sin"] == 20 + report.recomputations


def test_a_compiled_program_is_one_step():
    f = pb.jit(lambda x, w: (pb.sin(x) @ w, pb.exp(x)))
    f(X, W)
    counter = Counting()
    with override_modes(counter):
        f(X, W)
    assert counter.programs == [("jit <lambda>", 2, 2)]
    assert not counter.ops
    x = pb.tensor(X, requires_grad=True)
    with override_modes(counter):
        pb.sum(f(x, W)[0]).backward()
    assert len(counter.programs) == 3  # and the forward and the backward program of the tape
    assert not {"sin", "cos", "exp", "matmul"} & set(counter.ops)


def test_an_inner_run_decides_alone_what_is_saved():
    seen = []

    class Holding(Instrument):
        def hold(self, value, slot):
            seen.append(str(slot))
            return value

    x = pb.tensor(X, requires_grad=True)
    with override_modes(Holding()):
        y = pb.sum(pb.checkpoint(lambda x: pb.sin(pb.exp(pb.sin(x))))(x))
        y.backward()
    assert seen == ["checkpoint saves argument xs"]
    with override_modes(Holding()), pb.detect_anomaly():
        pb.exp(pb.sin(x))
    assert seen[1:] == ["sin saves argument x", "exp saves its result"]


def test_an_anomaly_is_found_around_and_inside():
    x = pb.tensor(0.0, requires_grad=True)
    y = pb.checkpoint(pb.sqrt)(x)
    raises = pytest.raises(pb.errors.AnomalyError, match="sqrt")
    with pb.memory.profile(), pb.detect_anomaly(), pb.memory_budget("1 GiB"), counting(), raises:
        y.backward()
    assert modes() is PLAIN


def test_instruments_of_workers_are_those_of_the_caller():
    leaves = [pb.tensor(np.full(1 << 17, 0.5), requires_grad=True) for _ in range(3)]
    branches = [pb.sin(x) * x for x in leaves]
    with counting() as read:
        pb.sum(branches[0] + branches[1] + branches[2]).backward(workers=3)
    assert read()[0]["cos"] == 3
    assert read()[1]["delivered"] == 3
