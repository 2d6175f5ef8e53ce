"""What a recomputation reads may have changed since: its gradient is that of the first run, or it raises."""

import itertools
import sys
import time
import types

import numpy as np
import pytest

import pullback as pb
from pullback.checkpoint.loops.trail import Trail
from pullback.checkpoint.recompute.fingerprint import Fingerprint
from pullback.errors import GraphError, RecomputeError

X = np.linspace(0.1, 1.0, 5)
ELSEWHERE = types.ModuleType("elsewhere_changed")
sys.modules["elsewhere_changed"] = ELSEWHERE


class Open:
    scale = 0.5


class Slotted:
    __slots__ = ("scale",)


def wavy(x, scale):
    return pb.sin(pb.exp(x * scale)) * scale


def update(tensor):
    with pb.no_grad():
        tensor *= 1.5


def write(array, place=slice(None)):
    array[place] = 0.7


def changes():
    """(function, what happens before the backward pass): each made anew, so that a plain run starts from the same."""
    numbers, table, grown = [0.5], {"a": 0.5}, [0.5]
    thing, slotted = Open(), Slotted()
    slotted.scale = ELSEWHERE.scale = 0.5
    array, large, nothing = np.full(5, 0.5), np.full(100_000, 0.5), np.array(0.5)
    order = np.arange(5)[::-1].copy()
    constant, parameter = pb.tensor(np.full(5, 0.5)), pb.tensor(np.full(5, 0.5), requires_grad=True)
    pb.random.seed(0)
    net = pb.nn.Sequential(pb.nn.Linear(5, 5), pb.nn.Sequential(pb.nn.Linear(5, 5)))
    calls, count, waiting, shift = [0], itertools.count(1), [0.1 * k for k in range(40)], [1]
    memo: dict = {}

    def counted(x):
        calls[0] += 1
        return wavy(x, 0.1 * calls[0])

    def remembered(x):
        memo["seen"] = memo.get("seen", 0.0) + 0.1
        return wavy(x, memo["seen"])

    def default(x, scale=numbers):
        return wavy(x, scale[0])

    return {
        "a list": (lambda x: wavy(x, numbers[0]), lambda: numbers.__setitem__(0, 0.7)),
        "a mutable default": (default, lambda: numbers.__setitem__(0, 0.7)),
        "a dict": (lambda x: wavy(x, table["a"]), lambda: table.update(a=0.7)),
        "a list that grew": (lambda x: wavy(x, sum(grown)), lambda: grown.append(0.2)),
        "an attribute": (lambda x: wavy(x, thing.scale), lambda: setattr(thing, "scale", 0.7)),
        "a slot": (lambda x: wavy(x, slotted.scale), lambda: setattr(slotted, "scale", 0.7)),
        "a module's attribute": (lambda x: wavy(x, ELSEWHERE.scale), lambda: setattr(ELSEWHERE, "scale", 0.7)),
        "an array": (lambda x: wavy(x, array), lambda: write(array)),
        "one element": (lambda x: wavy(x, array), lambda: write(array, 3)),
        "one of many": (lambda x: x * pb.mean(wavy(x[0], large)), lambda: write(large, 77)),
        "a 0-d array": (lambda x: wavy(x, nothing), lambda: write(nothing, ())),
        "an index": (lambda x: wavy(x[order], x), lambda: order.sort()),
        "a constant tensor": (lambda x: wavy(x, constant), lambda: update(constant)),
        "a parameter": (lambda x: wavy(x, parameter), lambda: update(parameter)),
        "a module's parameters": (lambda x: pb.sin(net(pb.exp(x))), lambda: [update(p) for p in net.parameters()]),
        "a shift": (lambda x: wavy(pb.roll(x, shift[0]), x), lambda: shift.__setitem__(0, 2)),
        "a counter": (counted, lambda: None),
        "an iterator": (lambda x: wavy(x, 0.1 * next(count)), lambda: None),
        "a list that is used up": (lambda x: wavy(x, waiting.pop()), lambda: None),
        "a cache": (remembered, lambda: None),
        "a clock": (lambda x: wavy(x, time.perf_counter() % 1.0), lambda: None),
    }


def loop(f, x):
    return pb.checkpoint_loop(lambda i, x: f(x), x, 4, snapshots=2)


#: Those whose loops are refused: parameters in attributes of objects.
REFUSED = {("loop", "a module's parameters"), ("loop, all snapshots", "a module's parameters")}
#: No two runs agree, so there is no reference.
NEVER_ALIKE = {"a clock"}
WAYS = {
    "checkpoint": lambda f, x: pb.checkpoint(f)(x),
    "twice": lambda f, x: pb.checkpoint(f)(pb.checkpoint(f)(x)),
    "one of two": lambda f, x: pb.checkpoint(lambda x: f(f(x)))(x),
    "nested": lambda f, x: pb.checkpoint(lambda x: pb.checkpoint(f)(f(x)))(x),
    "contractions": lambda f, x: pb.checkpoint(f, policy=pb.save_contractions)(x),
    "sequential": lambda f, x: pb.checkpoint_sequential([f] * 4, x, segments=2),
    "loop": loop,
    "loop, all snapshots": lambda f, x: pb.checkpoint_loop(lambda i, x: f(x), x, 4, snapshots=4),
}
PLAIN = {"checkpoint": 1, "twice": 2, "one of two": 2, "nested": 2, "contractions": 1, "sequential": 4, "loop": 4}


def plain_run(times):
    def run(f, x):
        for _ in range(times):
            x = f(x)
        return x

    return run


def gradient(name, run, order):
    f, change = changes()[name]
    x = pb.tensor(X, requires_grad=True)
    loss = pb.sum(run(f, x))
    if order == "linked":
        (loss,) = pb.gradients(loss, x, create_graph=True)
        loss = pb.sum(loss**2)
        x.grad = None
    change()
    loss.backward()
    return x.grad.numpy()


@pytest.mark.parametrize("order", ["first", "linked"])
@pytest.mark.parametrize("way", WAYS)
def test_a_change_is_found_or_has_no_effect(way, order):
    outcomes = {}
    for name in changes():
        if (way, name) in REFUSED:
            continue
        try:
            found = gradient(name, WAYS[way], order)
        except (RecomputeError, GraphError):
            outcomes[name] = "found"
            continue
        assert name not in NEVER_ALIKE
        wanted = gradient(name, plain_run(PLAIN.get(way, 4)), order)
        np.testing.assert_allclose(found, wanted, rtol=1e-10, err_msg=name)
        outcomes[name] = "right"
    assert outcomes["a constant tensor"] == outcomes["a parameter"] == "right"
    if order == "first":
        assert outcomes["a list"] == outcomes["one of many"] == outcomes["a counter"] == "found"


def test_numbers_are_not_compared_where_that_is_said():
    f, change = changes()["a list"]
    x = pb.tensor(X, requires_grad=True)
    loss = pb.sum(pb.checkpoint(f, verify=False)(x))
    change()
    loss.backward()
    assert np.isfinite(x.grad.numpy()).all()


# Fingerprints


LAYOUTS = {
    "plain": lambda a: a,
    "Fortran": np.asfortranarray,
    "transposed": lambda a: a.T,
    "spaced": lambda a: np.repeat(a, 2, axis=0)[::2],
    "broadcast": lambda a: np.broadcast_to(a[0], a.shape),
    "odd": lambda a: a.reshape(-1)[:-1],
    "reversed": lambda a: a[::-1, ::-1],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "complex64", "complex128", "int64", "int8", "bool"])
def test_a_fingerprint_sees_any_single_element(dtype, layout):
    rng = np.random.default_rng(0)
    whole = (rng.normal(size=(30, 40)) * 3).astype(dtype)
    then = Fingerprint(LAYOUTS[layout](whole))
    assert then.agrees(Fingerprint(LAYOUTS[layout](whole.copy())), exact=True)
    assert then.agrees(Fingerprint(np.array(LAYOUTS[layout](whole), order="C")), exact=True)
    for place in rng.integers(0, 40 if layout == "broadcast" else whole.size - 1, 20):
        other = whole.copy()
        other.reshape(-1)[place] = not other.reshape(-1)[place] if dtype == "bool" else 77
        assert not then.agrees(Fingerprint(LAYOUTS[layout](other)))


def test_a_fingerprint_sees_a_rearrangement():
    rng = np.random.default_rng(1)
    array = rng.normal(size=5000)
    assert not Fingerprint(array).agrees(Fingerprint(rng.permutation(array)))


def test_a_fingerprint_lets_rounding_pass_and_nothing_else():
    rng = np.random.default_rng(2)
    for dtype in (np.float64, np.float32, np.complex128):
        array = rng.normal(size=3000).astype(dtype)
        noisy = (array * (1 + 4 * np.finfo(dtype).eps * rng.normal(size=3000))).astype(dtype)
        assert Fingerprint(array).agrees(Fingerprint(noisy))
        assert not Fingerprint(array).agrees(Fingerprint(noisy), exact=True)
        assert not Fingerprint(array).agrees(Fingerprint(array * dtype(1.01)))
        odd = array.copy()
        odd[::20] = np.nan
        assert not Fingerprint(array).agrees(Fingerprint(odd))
        assert Fingerprint(odd).agrees(Fingerprint(odd.copy()), exact=True)


def test_a_trail_lets_rounding_pass_once_and_then_compares_nothing():
    trail, state = Trail(1), np.linspace(1.0, 2.0, 7)
    trail.check_state(0, [state])
    trail.check_state(1, [state * 2])
    with pytest.raises(RecomputeError, match="step 0"):
        trail.check_state(0, [state * 1.1])
    trail.check_state(0, [state * (1 + 1e-15)])
    trail.check_state(1, [state * 3])


def test_bits_of_an_argument_in_another_layout_are_no_change():
    """A checkpoint copies the arrays it is given; the copy lies as the array did."""
    a = np.asfortranarray(np.random.default_rng(0).normal(size=(50, 60)))
    f = lambda x, g: pb.exp(pb.sin(pb.sum(g * x, axis=0)))  # noqa: E731
    for given in (a, a.T, a[::2, ::3], np.broadcast_to(a[0], (9, 60))):
        exact = True if given.flags.forc else None
        pb.grad(lambda x, g, verify: pb.sum(pb.checkpoint(f, verify=verify)(x, g)))(1.0, given, exact)
