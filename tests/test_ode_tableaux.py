"""Every tableau against the order conditions of all rooted trees, and every method against its order, measured."""

import functools
import itertools

import numpy as np
import pytest

import pullback as pb
from pullback.ode import tableaux

EXPLICIT = {"Bosh3": tableaux.BOSH3, "Tsit5": tableaux.TSIT5, "Dopri5": tableaux.DOPRI5, "Dopri8": tableaux.DOPRI8}
#: The coefficients of RK8(7)13M were published as quotients of 9 or 10 digits.
DIGITS = {"Dopri8": 1e-13}


@functools.cache
def rooted_trees(order):
    """All rooted trees of so many vertices, as sorted tuples of their subtrees."""
    if order == 1:
        return ((),)
    found = set()
    for parts in partitions(order - 1):
        for chosen in itertools.product(*(rooted_trees(p) for p in parts)):
            found.add(tuple(sorted(chosen)))
    return tuple(sorted(found))


def partitions(n, most=None):
    most = most or n
    if n == 0:
        yield ()
    for first in range(min(n, most), 0, -1):
        for rest in partitions(n - first, first):
            yield (first, *rest)


def size(tree):
    return 1 + sum(map(size, tree))


def density(tree):
    return size(tree) * int(np.prod([density(t) for t in tree], dtype=object))


def elementary_weights(tree, a):
    """The vector whose product with b is the weight of the tree."""
    out = np.ones(len(a))
    for child in tree:
        out = out * (a @ elementary_weights(child, a))
    return out


def square(table):
    """The matrix of a tableau with the slope at the end as one more stage, and the weights with it."""
    stages = len(table.b) + 1
    a = np.zeros((stages, stages))
    for i, row in enumerate(table.a):
        a[i, : len(row)] = row
    a[-1, :-1] = table.b
    return a, np.append(table.b, 0.0)


def defects(weights, a, order, at=1.0):
    trees = [tree for n in range(1, order + 1) for tree in rooted_trees(n)]
    return [weights @ elementary_weights(t, a) - at ** size(t) / density(t) for t in trees]


def test_there_are_as_many_rooted_trees_as_known():
    assert [len(rooted_trees(n)) for n in range(1, 9)] == [1, 1, 2, 4, 9, 20, 48, 115]


@pytest.mark.parametrize("name", EXPLICIT)
def test_order_conditions_of_pairs(name):
    table, tol = EXPLICIT[name], DIGITS.get(name, 1e-14)
    a, b = square(table)
    c = np.append(table.c, 1.0)
    assert np.allclose(a.sum(1), c, rtol=0, atol=4 * tol)
    assert np.abs(defects(b, a, table.order)).max() < 4 * tol
    assert np.abs(defects(b, a, table.order + 1)).max() > 1e-6  # and not one more
    other = b - np.array((*table.error, *(0.0,) * (len(b) - len(table.error))))
    assert np.abs(defects(other, a, table.error_order)).max() < 4 * tol
    assert np.abs(defects(other, a, table.error_order + 1)).max() > 1e-6


@pytest.mark.parametrize("name", [name for name, table in EXPLICIT.items() if table.dense])
def test_order_conditions_of_dense_output(name):
    table = EXPLICIT[name]
    a, b = square(table)
    dense = np.array(table.dense)
    assert np.allclose(dense.sum(1), b, rtol=0, atol=2e-13)  # the end of the step
    for share in (0.1, 0.35, 0.5, 0.8, 1.0):
        weights = dense @ share ** np.arange(1, 5)
        assert np.abs(defects(weights, a, table.dense_order, share)).max() < 1e-13


def measured_order(method, y_at, f, y0, counts):
    end = 3.0
    errors = []
    for count in counts:
        y = pb.ode.solve(f, y0, (0.0, end), method=method, control=pb.ode.FixedSteps(count)).y
        errors.append(
            np.abs(np.concatenate([np.ravel(x) for x in (y if isinstance(y, tuple) else (y,))]) - y_at(end)).max()
        )
    return np.log(errors[0] / errors[-1]) / np.log(counts[-1] / counts[0])


def pendulum(t, y):
    return np.stack([y[1], -np.sin(y[0]) + 0.3 * np.cos(2 * t)])


@functools.cache
def pendulum_at(end):
    from scipy.integrate import solve_ivp

    found = solve_ivp(pendulum, (0, end), [1.0, 0.2], method="DOP853", rtol=1e-13, atol=1e-14)
    return found.y[:, -1]


@pytest.mark.parametrize(
    ("name", "counts"), [("Bosh3", (40, 160)), ("Tsit5", (20, 60)), ("Dopri5", (20, 60)), ("Dopri8", (5, 15))]
)
def test_order_of_convergence(name, counts):
    def f(t, y):
        return pb.stack([y[1], -pb.sin(y[0]) + 0.3 * pb.cos(2 * t)])

    method = getattr(pb.ode, name)()
    found = measured_order(method, pendulum_at, f, np.array([1.0, 0.2]), counts)
    assert found > method.order - 0.4


@pytest.mark.parametrize(("name", "order"), [("Leapfrog", 2), ("Yoshida4", 4)])
def test_symplectic_order_and_energy(name, order):
    def f(t, y):
        return (y[1], -pb.sin(y[0]))

    from scipy.integrate import solve_ivp

    exact = solve_ivp(lambda t, y: [y[1], -np.sin(y[0])], (0, 3.0), [1.0, 0.2], method="DOP853", rtol=1e-13, atol=1e-14)
    method = getattr(pb.ode, name)()
    found = measured_order(method, lambda t: exact.y[:, -1], f, (1.0, 0.2), (40, 160))
    assert abs(found - order) < 0.3

    def energy(q, p):
        return p * p / 2 - np.cos(q)

    times = np.linspace(0, 600, 61)
    control = pb.ode.FixedSteps(6000)
    q, p = pb.jit(lambda y: pb.ode.solve(f, y, (0, 600), method=method, control=control, saveat=times).y)(
        (np.array(1.0), np.array(0.2))
    )
    drift = np.abs(energy(q, p) - energy(1.0, 0.2))
    assert drift[-20:].max() < 1.5 * drift[1:21].max()  # it oscillates, and does not grow
    assert drift.max() < {2: 2e-3, 4: 2e-5}[order]
