"""The switch that refuses what is not the same in every run, and digests that show it."""

import subprocess
import sys
import textwrap

import numpy as np
import pytest
from gpu import cupy, installed_cupy  # noqa: F401

import pullback as pb
from pullback.errors import ArgumentTypeError, ConversionError, DeterminismError
from pullback.ops.replay import default_stream

RNG = np.random.default_rng(0)
W, X = RNG.normal(size=(3, 4)), RNG.normal(size=(5, 3))


@pytest.fixture
def unseeded(monkeypatch):
    monkeypatch.setattr(default_stream, "_state", None)
    monkeypatch.setattr(default_stream, "_unseeded", None)


def test_the_switch():
    assert not pb.is_deterministic()
    with pb.use_deterministic():
        assert pb.is_deterministic()
        with pb.use_deterministic(False):
            assert not pb.is_deterministic()
        assert pb.is_deterministic()
    assert not pb.is_deterministic()
    pb.use_deterministic(True)
    assert pb.is_deterministic()
    pb.use_deterministic(False)
    assert not pb.is_deterministic()
    with pytest.raises(ArgumentTypeError, match="True or False"):
        pb.use_deterministic("yes")
    with pytest.raises(ZeroDivisionError), pb.use_deterministic():
        1 / 0  # noqa: B018
    assert not pb.is_deterministic()


@pytest.mark.parametrize("draw", [
    lambda: pb.random.normal(size=2), lambda: pb.nn.dropout(np.ones(4), 0.5), pb.random.state,
    lambda: pb.nn.Linear(2, 2),
])  # fmt: skip
def test_draws_without_a_seed_are_refused(unseeded, draw):
    with pb.use_deterministic(), pytest.raises(DeterminismError, match=r"no seed(.|\n)*test_determinism.py"):
        draw()
    draw()  # from the operating system's numbers
    with pb.use_deterministic():
        with pytest.raises(DeterminismError, match="no seed"):
            draw()
        pb.random.seed(0)
        draw()


def test_what_is_deterministic_runs(unseeded):
    x, key = RNG.normal(size=(6, 3)), pb.random.key(0)
    f = lambda x: pb.sum(x[np.array([0, 0, 1])] ** 2) + pb.sum(pb.nn.dropout(x, 0.5, key=key))  # noqa: E731
    wanted = pb.grad(f)(x)
    with pb.use_deterministic():
        assert np.array_equal(pb.grad(f)(x), wanted)
        assert np.allclose(pb.jit(pb.grad(f))(x), wanted)
        assert pb.jit(lambda x: x * 2, deterministic=False)(x) is not None, "on a CPU the order is fixed all the same"


def test_functions_compiled_for_any_order_are_refused_on_a_gpu():
    x = cupy.asarray(np.ones(4, np.float32))
    f = pb.jit(lambda x: x * 2, deterministic=False)
    f(x)
    with pb.use_deterministic(), pytest.raises(DeterminismError, match=r"deterministic=False(.|\n)*test_determinism"):
        f(x)
    f(x)


def test_digests_of_trees():
    tree = {"a": W, "b": [X, 3]}
    assert pb.digest(tree) == pb.digest({"b": [X.copy(), 3], "a": np.asfortranarray(W)})
    assert len(pb.digest(tree)) == 32
    changed = [
        {"a": W, "b": [X, 4]}, {"a": W, "c": [X, 3]}, {"a": W, "b": (X[:4], 3)}, {"a": W.astype("f4"), "b": [X, 3]},
        {"a": W.T, "b": [X, 3]}, {"a": np.nextafter(W, 9), "b": [X, 3]},
    ]  # fmt: skip
    assert len({pb.digest(t) for t in (tree, *changed)}) == 7
    w = pb.tensor(W, requires_grad=True)
    assert pb.digest(w) == pb.digest(w * 1.0) == pb.digest(W)
    net = pb.nn.Linear(2, 2, key=pb.random.key(0))
    assert pb.digest(net) == pb.digest(net.arrays())
    swapped = W.astype(">f8")
    assert pb.digest(swapped) == pb.digest(W) != pb.digest(swapped.view("<f8"))
    assert pb.digest(np.zeros((0, 2))) != pb.digest(np.zeros((2, 0)))
    assert pb.digest({"a": W[:1]}) != pb.digest({"a": W[:1], "b": W[:0]})
    for array in (np.array([None, 1]), np.ones(2, np.longdouble), np.zeros(2, [("a", "i1"), ("b", "f8")])):
        with pytest.raises(pb.errors.DtypeError, match="bits besides those of its values"):
            pb.digest(array)
    with pytest.raises((ConversionError, pb.errors.ArgumentError)):
        pb.jit(pb.digest)(W)


def run(f, *args):
    with pb.tools.RunDigest() as found:
        f(*args)
    return found


def loss(w, x):
    return pb.sum(pb.tanh(x @ w) ** 2)


def step(w, x):
    w = pb.tensor(w, requires_grad=True)
    loss(w, x).backward()
    return w.grad


def test_digests_of_runs():
    one = run(step, W, X)
    assert {"matmul", "tanh", "sum"} <= {s.name for s in one.steps}
    assert len(one.steps) > 5, "the backward pass is seen too"
    assert one.digest == run(step, W, X).digest
    assert one.compare(run(step, W, X)) is None
    assert all("test_determinism.py" in s.line for s in one.steps)
    moved = X.copy()
    moved[2, 1] = np.nextafter(moved[2, 1], 9)
    found = one.compare(run(step, W, moved))
    assert found.left.name == found.right.name == "matmul"
    assert "returns other bits" in str(found)
    assert "pb.tanh(x @ w)" in str(found)
    longer = run(lambda: (step(W, X), pb.exp(pb.tensor(X))))
    found = one.compare(longer)
    assert (found.number, found.left, found.right.name) == (len(one.steps), None, "exp")
    assert "other ops run" in str(found)
    assert one.digest != longer.digest


def test_transforms_and_compiled_programs():
    for take in (pb.grad(loss), pb.jit(pb.grad(loss)), pb.vmap(pb.grad(loss), (None, 0))):
        x = np.stack([X, -X]) if "vmap" in repr(take) or take.__name__ == "batched" else X
        one, two = run(take, W, x), run(take, W, x)
        assert one.steps
        assert one.digest == two.digest
        assert one.digest != run(take, 2 * W, x).digest
    assert [s.name.split()[0] for s in run(pb.jit(pb.grad(loss)), W, X).steps] == ["program"]
    wanted = pb.grad(loss)(W, X)
    with pb.tools.RunDigest():
        assert np.array_equal(pb.grad(loss)(W, X), wanted)


def test_threads_have_the_same_digests():
    x, w = RNG.normal(size=(400, 300)), RNG.normal(size=(300, 40))
    f = pb.jit(lambda w, x: pb.grad(loss)(w, x))
    found = []
    for count in (1, 2):
        before = pb.get_num_threads()
        pb.set_num_threads(count)
        try:
            found.append(run(f, w, x).digest)
        finally:
            pb.set_num_threads(before)
    assert found[0] == found[1]

    def branches(workers):
        a = pb.tensor(x, requires_grad=True)
        (pb.sum(a @ w) + pb.sum(pb.exp(-a * a) @ w)).backward(workers=workers)
        return a.grad

    assert run(branches, 1).unordered == run(branches, 2).unordered


def test_processes_agree():
    text = """
        import numpy as np, pullback as pb
        pb.use_deterministic(True)
        pb.random.seed(3)
        net = pb.nn.Sequential(pb.nn.Linear(3, 4), pb.relu, pb.nn.Dropout(0.5), pb.nn.Linear(4, 1))
        opt = pb.optim.Adam(net.parameters(), lr=0.1)
        with pb.tools.RunDigest() as found:
            for _ in range(3):
                pb.sum(net(np.ones((2, 3), np.float32)) ** 2).backward()
                opt.step()
        print(found.digest, pb.digest(net))
    """
    call = [sys.executable, "-c", textwrap.dedent(text)]
    both = [subprocess.Popen(call, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    one, other = (process.communicate()[0] for process in both)
    assert one
    assert one == other
    assert not any(process.returncode for process in both)
