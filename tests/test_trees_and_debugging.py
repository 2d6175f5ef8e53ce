"""`pb.tree`, `pb.ravel_pytree`, `pb.debug.print`, `pb.disable_jit`, `pb.histogram`."""

import threading
from collections import namedtuple

import numpy as np
import pytest

import pullback as pb

Pair = namedtuple("Pair", "left right")
TREE = {"b": [np.ones(2), Pair(np.zeros((1, 2)), None)], "a": np.float32(3.0) * np.ones((), np.float32)}


def test_trees_are_flattened_and_rebuilt():
    leaves, structure = pb.tree.flatten(TREE)
    assert [x.shape for x in leaves] == [(), (2,), (1, 2)]
    rebuilt = pb.tree.unflatten(structure, leaves)
    assert isinstance(rebuilt["b"][1], Pair)
    assert list(rebuilt) == ["b", "a"]
    assert pb.tree.structure(rebuilt) == structure
    assert pb.tree.leaves(3.0) == [3.0]
    assert pb.tree.unflatten(pb.tree.structure(3.0), [4.0]) == 4.0
    assert pb.tree.leaves(None) == []
    assert pb.tree.leaves([1, (2, 3)], is_leaf=lambda x: isinstance(x, tuple)) == [1, (2, 3)]


def test_functions_of_trees():
    assert pb.tree.map(lambda a, b: a + sum(b), [1, 2], [(3, 4), [5]]) == [8, 7]
    net = pb.nn.Linear(2, 1)
    doubled = pb.tree.map(lambda p: 2 * p.detach(), net)
    assert isinstance(doubled, pb.nn.Linear)
    np.testing.assert_array_equal(doubled.weight.numpy(), 2 * net.weight.detach().numpy())
    grads = pb.grad(lambda t: pb.sum(pb.tree.map(lambda a: a**2, t)["w"]))({"w": np.arange(3.0)})
    assert grads["w"].tolist() == [0.0, 2.0, 4.0]
    stacked = pb.jit(lambda ts: pb.tree.map(lambda *a: pb.stack(a), *ts))([{"w": np.ones(2)}, {"w": np.zeros(2)}])
    assert stacked["w"].shape == (2, 2)


def test_mistakes_with_trees_are_explained():
    with pytest.raises(pb.errors.ArgumentError, match="the trees differ"):
        pb.tree.map(lambda a, b: a, [1, 2], [1])
    with pytest.raises(pb.errors.ArgumentError, match="wants 2 leaves, got 1"):
        pb.tree.unflatten(pb.tree.structure([1, 2]), [1])
    with pytest.raises(pb.errors.ArgumentError, match="wants a structure"):
        pb.tree.unflatten([1, 2], [1])
    with pytest.raises(TypeError, match="wants a function"):
        pb.tree.map(3, [1])


def test_a_tree_as_a_vector():
    tree = {"w": np.arange(4.0).reshape(2, 2), "n": (np.float32(7.0) * np.ones(1, np.float32), pb.tensor(2.0))}
    vector, unravel = pb.ravel_pytree(tree)
    assert vector.detach().tolist() == [7.0, 2.0, 0.0, 1.0, 2.0, 3.0]
    back = unravel(np.arange(6.0))
    assert (back["n"][0].dtype, back["n"][1].shape, back["w"].tolist()) == (np.float32, (), [[2.0, 3.0], [4.0, 5.0]])
    grad = pb.grad(lambda v: pb.sum(unravel(v)["w"] ** 2))(np.arange(6.0))
    assert grad.tolist() == [0.0, 0.0, 4.0, 6.0, 8.0, 10.0]
    assert pb.jit(lambda v: pb.ravel_pytree(unravel(v))[0] * 2)(np.arange(6.0)).tolist() == [0, 2, 4, 6, 8, 10]
    assert pb.vmap(lambda v: unravel(v)["w"])(np.ones((3, 6))).shape == (3, 2, 2)
    assert pb.ravel_pytree(())[0].shape == (0,)
    with pytest.raises(pb.errors.ShapeError, match="wants a vector of 6 elements"):
        unravel(np.zeros(5))


def test_printing_in_programs(capsys):
    def f(x):
        pb.debug.print("x {x} {}", "text", x=x)
        return pb.sum(x * x)

    x = np.array([1.0, 2.0])
    cases = {
        "eager": f,
        "jit": pb.jit(f),
        "grad": pb.grad(f),
        "jit of grad": pb.jit(pb.grad(f)),
        "jvp": lambda x: pb.jvp(f, (x,), (x,)),
        "checkpoint": pb.grad(pb.checkpoint(f)),
        "second order": pb.jit(lambda x: pb.hvp(f, (x,), (x,))),
    }
    for name, g in cases.items():
        g(x)
        g(x)
        assert capsys.readouterr().out == "x [1. 2.] text\n" * 2, name
    pb.vmap(f)(np.array([[1.0, 2.0], [3.0, 4.0]]))
    assert capsys.readouterr().out == "x [[1. 2.]\n [3. 4.]] text\n"
    with pytest.raises(TypeError, match="wants a text"):
        pb.debug.print(x)


def test_printing_keeps_its_order_in_loops(capsys):
    def step(carry, x):
        pb.debug.print("{}", carry)
        return carry + x, carry

    pb.jit(lambda x: pb.scan(step, 0.0, x)[0])(np.ones(3))
    assert capsys.readouterr().out.split() == ["0.0", "1.0", "2.0"]


def test_compiled_functions_run_as_python():
    calls = []

    @pb.jit
    def f(x):
        calls.append(type(x))
        return x * 2

    x = np.ones(2)
    f(x)
    assert np.ndarray not in calls
    with pb.disable_jit():
        assert f(x).tolist() == [2.0, 2.0]
        f(x)
        with pb.disable_jit(False):
            f(x)
        assert calls.count(np.ndarray) == 2
        assert pb.grad(lambda x: pb.sum(f(x)))(x).tolist() == [2.0, 2.0]
    f(x)
    assert calls.count(np.ndarray) == 2


def test_other_threads_stay_compiled():
    calls = []

    @pb.jit
    def f(x):
        calls.append(threading.current_thread().name)
        return x * 2

    f(np.ones(2))
    calls.clear()
    with pb.disable_jit():
        other = threading.Thread(target=f, args=(np.ones(2),), name="other")
        other.start()
        other.join()
        f(np.ones(2))
    assert calls == [threading.current_thread().name]


def test_disabling_is_a_decorator_and_ends_with_an_error():
    @pb.jit
    def f(x):
        if isinstance(x, np.ndarray) and x[0] > 0:
            raise ZeroDivisionError
        return x

    @pb.disable_jit()
    def g(x):
        return f(x)

    with pytest.raises(ZeroDivisionError):
        g(np.ones(1))
    assert f(np.ones(1)).tolist() == [1.0]


def test_histograms():
    x = np.array([0.1, 0.4, 0.4, 0.9, 1.0])
    for given in (x, pb.tensor(x)):
        counts, edges = pb.histogram(given, bins=2, range=(0, 1))
        assert (np.asarray(counts).tolist(), np.asarray(edges).tolist()) == ([3, 2], [0.0, 0.5, 1.0])
    weights = pb.grad(lambda w: pb.histogram(x, bins=2, weights=w)[0][1])(np.ones(5))
    assert weights.tolist() == [0.0, 0.0, 0.0, 1.0, 1.0]
