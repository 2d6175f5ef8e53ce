"""Functions of three numbers in the ways people write NumPy: arrays made first and filled, lists joined, `out=`, views,
methods, recursion. Each returns one number, and works on bare arrays alone.
"""

import functools

import numpy as np
from numpy import array, zeros

WEIGHTS = np.array([1.0, -2.0, 0.5])


def filled(x):
    y = np.zeros(3)
    for i in range(3):
        y[i] = np.sin(x[i]) * x[i - 1]
    return np.sum(y * WEIGHTS)


def filled_matrix(x):
    a = np.zeros((3, 3))
    for i in range(3):
        for j in range(3):
            a[i, j] += x[i] * np.exp(-x[j])
    return np.linalg.det(a + np.eye(3)) + a.T[0] @ a[:, 1]


def rows_are_windows(x):
    a = np.zeros((3, 2))
    for i, row in enumerate(a):
        row[0] = x[i]
        row *= 2.0
        row[1] += row[0] ** 2
    a.T[1, 2:] = 0.5 * a[2, 0]
    corner = a[::-1, ::-1][0]
    corner[:] += x[:2]
    return np.sum(a * a) + a.reshape(-1)[3]


def an_older_view_follows(x):
    y = np.ones(4)
    head, back = y[:2], y[::-1]
    y[1] = x[0] * x[1]
    head += x[2]
    back[0] = x[1] ** 2
    return head @ head + np.prod(y)


def joined(x):
    return np.sum(np.array([np.sin(x[0]), 2.0, x[1] * x[2]]) ** 2)


def joined_matrix(x):
    turn = array([[np.cos(x[0]), -np.sin(x[0])], [np.sin(x[0]), np.cos(x[0])]])
    return (turn @ np.asarray([x[1], x[2]]))[1] ** 2 + turn[0, 1]


def accumulated(x):
    total = np.zeros(3)
    for k in range(1, 4):
        total += np.cos(k * x)
    total -= 0.5
    total /= x
    return np.sum(total**3)


def written_out(x):
    out, other = np.empty(3), np.full(3, 2.0)
    np.multiply(x, WEIGHTS, out=out)
    np.add(out, other, out=other)
    np.maximum(other, out, out=other)
    return np.sum(other * np.tanh(out, out=out))


def constants_stay_arrays(x):
    grid = np.linspace(0.0, 1.0, 5)
    mask = np.zeros(5)
    mask[grid > 0.4] = 1.0
    row = mask[1:]
    row[0] = 0.25
    assert isinstance(mask, np.ndarray)
    assert float(mask[1]) == 0.25
    return np.sum(mask * np.interp(grid, [0.0, 1.0], [2.0, 3.0])) * np.sum(x**2)


def full_of_one(x):
    return np.sum(np.full(4, x[0]) * np.full_like(np.ones(4), x[1])) + np.sum(np.full((2, 2), x[2]) ** 2)


def diagonal_filled(x):
    a = np.ones((3, 3))
    np.fill_diagonal(a, x)
    np.put(a, [1, 2], x[:2])
    np.copyto(a[2], x**2)
    np.add.at(a, (np.array([0, 0]), np.array([2, 2])), x[1:])
    return np.sum(np.linalg.inv(a) * WEIGHTS) + np.trace(a)


def vectorized(x):
    return np.sum(np.vectorize(lambda t, c: np.sqrt(t) if t > 1.0 else c * t)(x, WEIGHTS))


cube = np.frompyfunc(lambda t: t**3 if t > 0.6 else t, 1, 1)


def of_a_python_ufunc(x):
    return np.sum(cube(x)) + cube(x[0])


def concatenated_by_index(x):
    return np.sum(np.r_[x, 1.0, x[0] * x[1]] ** 2) + np.sum(np.c_[x, WEIGHTS] ** 3)


def in_lists(x):
    y = np.append(x, [x[0] * x[1], 1.0]) * [1.0, x[1], 2.0, x[2] ** 2, 3.0]
    a = np.zeros((2, 2))
    np.fill_diagonal(a, [x[0], 2.0])
    np.put(a, [1, 2], [x[1], np.exp(x[0])])
    product = np.matmul([[x[1], 2.0], [1.0, 3.0]], a[0])
    return np.sum(np.concatenate([[x[2], 1.0], y, [x[0] * x[2]]]) ** 2) + y[:2] @ product


def from_an_iterable(x):
    return np.prod(np.fromiter((np.exp(-t) for t in x), float)) + np.sum(np.fromiter(iter(range(3)), float) * x)


def recursive(x, depth=3):
    if not depth:
        return np.sum(x)
    y = zeros(3)
    y[:2] = np.sin(x[1:])
    y[2] = x[0]
    return recursive(y, depth - 1)


def doubled(function):
    @functools.wraps(function)
    def call(x):
        scaled = np.empty_like(WEIGHTS)
        scaled[:] = 2.0 * x
        return function(scaled)

    return call


@doubled
def decorated(x):
    return filled(x)


class Model:
    """Methods that call each other."""

    def __init__(self):
        self.steps = 4

    def energy(self, x):
        path = np.zeros((self.steps, 3))
        path[0] = x
        for i in range(1, self.steps):
            path[i] = self.advance(path[i - 1])
        return np.sum(path[-1] ** 2)

    def advance(self, state):
        new = np.copy(WEIGHTS)
        new[...] = state + 0.1 * np.array([state[1], -state[0], state[2] ** 2])
        return new


def generated(x):
    def values():
        y = np.zeros(2)
        for t in x:
            y[0], y[1] = t, y[0] * t
            yield y[0] * y[1]

    return sum(values())


def of_small_numbers(x):
    y = np.zeros(3, dtype=np.float32)
    y[...] = x
    return np.sum(y * y)


def of_complex_numbers(x):
    z = np.zeros(3, complex)
    z[0] = x[0] + 1j * x[1]
    z[1:] = np.exp(1j * x[1:])
    return np.sum(np.abs(z) ** 2 * WEIGHTS) + np.sum(z.real)


HABITS = {
    **{f.__name__: f for f in (
        filled, filled_matrix, rows_are_windows, an_older_view_follows, joined, joined_matrix, accumulated, written_out,
        constants_stay_arrays, full_of_one, diagonal_filled, vectorized, of_a_python_ufunc, concatenated_by_index,
        in_lists, from_an_iterable, recursive, decorated, generated, of_complex_numbers,
    )},
    "method": Model().energy,
    "partial": functools.partial(recursive, depth=2),
}  # fmt: skip
#: Python's own branches on values, which a batch does not follow.
BRANCHING = frozenset(("vectorized", "of_a_python_ufunc"))
