"""What shares memory in NumPy, in functions that a transform runs: a write to one shows in the other, or is refused."""

import copy

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided, sliding_window_view

import pullback as pb
from pullback import errors

X = np.array([0.7, 1.3, 0.9, 0.4])
WEIGHTS = np.arange(1.0, 100.0)


def square(y):
    return y.reshape(2, 2)


#: Of a vector of four: the array itself, views, copies.
TAKEN = {
    "asarray": lambda y: np.asarray(y),
    "asarray of a dtype": lambda y: np.asarray(y, dtype=float),
    "by place": lambda y: np.asarray(y, float),
    "ascontiguousarray": lambda y: np.ascontiguousarray(y, dtype=float),
    "ascontiguousarray of columns": lambda y: np.ascontiguousarray(square(y).T),
    "asfortranarray": lambda y: np.asfortranarray(square(y)),
    "asfortranarray of columns": lambda y: np.asfortranarray(square(y).T),
    "asarray in order": lambda y: np.asarray(square(y).T, order="C"),
    "array, no copy": lambda y: np.array(y, copy=False),
    "array, copy if needed": lambda y: np.array(y, copy=None, ndmin=2),
    "array": lambda y: np.array(y),
    "astype": lambda y: y.astype(float),
    "astype, no copy": lambda y: y.astype(float, copy=False),
    "np.astype": lambda y: np.astype(y, float, copy=False),
    "atleast_2d": np.atleast_2d,
    "squeeze": lambda y: y.squeeze(),
    "ravel": lambda y: y.ravel(),
    "flatten": lambda y: y.flatten(),
    "reshape": square,
    "reshape by columns": lambda y: y.reshape((2, 2), order="F"),
    "reshape of columns": lambda y: square(y).T.reshape(-1),
    "ravel of columns": lambda y: np.ravel(square(y).T),
    "ravel by columns": lambda y: square(y).ravel("F"),
    "ravel of columns, by columns": lambda y: square(y).T.ravel(order="F"),
    "flatten by columns": lambda y: square(y).flatten("F"),
    "columns copied, and as a vector": lambda y: square(y).T.copy().ravel(),
    "copy, reshaped": lambda y: y.reshape(2, 2, copy=True),
    "view": lambda y: y.view(),
    "T": lambda y: square(y).T,
    "mT": lambda y: square(y).mT,
    "swapaxes": lambda y: square(y).swapaxes(0, 1),
    "matrix_transpose": lambda y: np.matrix_transpose(square(y)),
    "moveaxis": lambda y: np.moveaxis(square(y), 0, 1),
    "real": lambda y: y.real,
    "np.real": np.real,
    "conj": lambda y: y.conj(),
    "np.conj": np.conj,
    "slice": lambda y: y[1:],
    "slice of a slice": lambda y: y[1:][::-1],
    "all": lambda y: y[...],
    "new axis": lambda y: y[:, None],
    "elements": lambda y: y[[0, 1]],
    "row": lambda y: square(y)[0],
    "rows": lambda y: list(square(y))[0],  # noqa: RUF015
    "split": lambda y: np.split(y, 2)[0],
    "unstack": lambda y: np.unstack(square(y))[0],
    "copy": lambda y: y.copy(),
    "np.copy": lambda y: np.copy(y),
    "copy.copy": copy.copy,
    "copy.deepcopy": copy.deepcopy,
    "broadcast_to": lambda y: np.broadcast_to(y, (2, 4)),
    "broadcast_arrays": lambda y: np.broadcast_arrays(y, WEIGHTS[:2, None])[0],
    "windows": lambda y: sliding_window_view(y, 2),
    "windows to write": lambda y: sliding_window_view(y, 2, writeable=True),
    "as_strided": lambda y: as_strided(y, (2, 2), (8, 8)),
    "einsum": lambda y: np.einsum("ii->i", square(y)),
    "diag": lambda y: np.diag(square(y)),
    "diagonal": lambda y: square(y).diagonal(),
    "flip": np.flip,
    "trim_zeros": np.trim_zeros,
    "clip": lambda y: np.clip(y, 0.0, 1.0, out=y),
}


def write_to_view(y, v, x):
    v[(0,) * v.ndim] = 5.0 * x[1]


def write_to_source(y, v, x):
    y[0] = 7.0 * x[2]


def write_in_place(y, v, x):
    v *= 2.0


def as_argument(x):
    return x, lambda: None


def as_result(x):
    return x * 1.0, lambda: None


def as_buffer(x):
    y = np.zeros(4)
    return y, lambda: y.__setitem__(slice(None), x)


def as_written_buffer(x):
    y, fill = as_buffer(x)
    fill()
    return y, lambda: None


def program(make, take, write):
    def f(x):
        y, fill = make(x)
        v = take(y)
        fill()  # after the view was taken
        write(y, v, x)
        return sum(np.nansum(np.ravel(a) * WEIGHTS[: a.size]) for a in (y, v))  # NaNs would pass unseen

    return f


def cases(make):
    for name, take in TAKEN.items():
        for write in (write_to_view, write_to_source, write_in_place):
            f = program(make, take, write)
            try:
                value = f(X.copy())
            except (IndexError, ValueError):  # NumPy's own views that are read-only, or empty
                continue
            yield f"{name}, {write.__name__}", f, value


def gradient_of(f):
    return np.array([(f(X + e) - f(X - e)) / 2e-6 for e in np.eye(4) * 1e-6])


MAKE = (as_argument, as_result, as_buffer, as_written_buffer)


@pytest.mark.filterwarnings("ignore:Numpy has detected", "ignore:future versions will not create")
@pytest.mark.parametrize("make", MAKE)
def test_memory_is_shared_as_in_numpy_or_the_write_is_refused(make):
    right = 0
    for name, f, value in cases(make):
        try:
            found, gradient = pb.value_and_grad(f)(X)
            pushed = pb.jvp(f, (X,), (X,))
        except (errors.PullbackError, TypeError, ValueError):
            continue
        np.testing.assert_allclose(found, value, rtol=1e-12, err_msg=name)
        np.testing.assert_allclose(gradient, gradient_of(f), rtol=1e-6, atol=1e-6, err_msg=name)
        np.testing.assert_allclose([pushed[0], pushed[1]], [value, gradient @ X], rtol=1e-6, err_msg=name)
        right += 1
    assert right > 60  # of some 130


@pytest.mark.sweep
@pytest.mark.filterwarnings("ignore:Numpy has detected", "ignore:future versions will not create")
@pytest.mark.parametrize("make", MAKE)
def test_memory_is_shared_in_compiled_functions_and_batches(make):
    for name, f, value in cases(make):
        for run in (pb.jit(f), lambda x, f=f: pb.vmap(f)(x[None])[0], pb.checkpoint(f)):
            try:
                found = run(X.copy())
            except (errors.PullbackError, TypeError, ValueError):
                continue
            np.testing.assert_allclose(found, value, rtol=1e-12, err_msg=name)


def slices_follow(x):
    u = x * 1.0
    inner, ends = u[1:-1], u[::3]
    for _ in range(3):
        u[1:-1] += 0.1 * (u[2:] - 2 * inner + u[:-2])
    u *= x[0]
    return np.sum(inner**2) + ends[0] * ends[1]


def rows_are_written(x):
    y = x.reshape(2, 2) * 1.0
    corner = y.T[::-1, 0]
    for i, row in enumerate(y):
        row -= row.mean()
        row[0] += x[i] * row[1]
        np.multiply(row, 2.0, out=row)
    np.copyto(y[1, :1], x[3])
    corner[0] *= 3.0
    np.add.at(y.reshape(-1), [0, 0], x[:2])
    return np.sum(y**2 * WEIGHTS[:4].reshape(2, 2))


def the_argument_is_written(x):
    left, right = x[:2], x[2:]
    left += right**2
    right[:] = left[::-1] * right
    return np.sum(x * WEIGHTS[:4])


def swapped_rows(x):
    a = x.reshape(2, 2) * 1.0
    a[0], a[1] = a[1], a[0]  # both are the second row afterwards
    return np.sum(a * WEIGHTS[:4].reshape(2, 2) ** 2)


def copied_rows_are_swapped(x):
    a = np.outer(x, x[:2] + 1.0)
    a[0], a[2] = a[2].copy(), np.copy(a[0])
    a[[1, 3]] = a[[3, 1]]
    return np.sum(a * WEIGHTS[:8].reshape(4, 2))


def columns_lie_one_after_the_other(x):
    a = np.zeros((2, 2), order="F")
    a[:] = x.reshape(2, 2)
    by_columns, a_copy = a.ravel("K"), a.reshape(-1)
    by_columns[1] *= 3.0
    a_copy[:] = a_copy * 2.0 + a[1, 0]
    a.T[::2].reshape(-1)[1:] += x[0]
    return np.sum(by_columns * WEIGHTS[:4]) + np.sum(a_copy**2 * WEIGHTS[:4]) + np.sum(a.reshape(-1, order="A") ** 3)


def the_source_is_gone(x):
    u = x * 1.0
    inner = u[1:].reshape(3, 1)
    u[2] = x[0] ** 2
    del u
    return np.sum(inner**2 * WEIGHTS[:3, None])


@pytest.mark.parametrize(
    "f",
    [
        slices_follow, rows_are_written, the_argument_is_written, swapped_rows, copied_rows_are_swapped,
        columns_lie_one_after_the_other, the_source_is_gone,
    ],
)  # fmt: skip
def test_slices_follow_later_writes_in_every_transform(f):
    wanted = gradient_of(f)
    value = f(X.copy())
    calls = {
        "grad": pb.grad(f),
        "jvp": lambda x: np.array([pb.jvp(f, (x,), (e,))[1] for e in np.eye(4)]),
        "jit": pb.jit(pb.grad(f)),
        "vmap": lambda x: pb.vmap(pb.grad(f))(np.stack([x + 1, x]))[1],
        "checkpoint": pb.grad(pb.checkpoint(f)),
        "second order": lambda x: pb.jvp(lambda s: pb.grad(lambda t: f(t) * s)(x), (1.0,), (1.0,))[1],
    }
    for name, call in calls.items():
        np.testing.assert_allclose(call(X), wanted, rtol=1e-6, err_msg=name)
    np.testing.assert_allclose(pb.jit(f)(X), value)


def test_on_a_tape_a_slice_is_a_value_of_its_own():
    x = pb.tensor(X, requires_grad=True)
    y = x * 1.0
    head = y[:2]
    y[0] = 9.0
    assert head.tolist() == [0.7, 1.3]


def test_a_checkpoint_is_recomputed_as_it_was_run():
    x = pb.tensor(X, requires_grad=True)
    pb.checkpoint(slices_follow)(x).backward()
    np.testing.assert_allclose(x.grad.numpy(), gradient_of(slices_follow), rtol=1e-6)


def test_views_of_a_trace_do_not_follow_what_is_written_outside():
    w = pb.tensor(np.ones(4))

    def f(x):
        return np.sum(w[1:] * x)

    compiled = pb.jit(f)
    assert compiled(2.0) == 6.0
    w += 1.0
    assert compiled(2.0) == 12.0

    def g(x):
        tail = w[1:]
        w[2] = 5.0
        return np.sum(tail * x)

    assert g(1.0) == 6.0  # on a tape the slice is a value of its own
    w[2] = 2.0
    assert pb.jit(g)(1.0) == 9.0


def number_and_copy(x):
    y = x * 1.0
    a = y[0]
    b, d = np.broadcast_to(a, (2,)), np.diag(y.reshape(2, 2)).ravel()
    a += 1.0  # a number is another one then
    d[-1] += x[1]  # not contiguous: a copy
    return np.sum(b) + np.sum(d**2) + np.sum(y) * a


def test_what_numpy_copies_is_no_window():
    assert pb.value_and_grad(number_and_copy)(X)[0] == number_and_copy(X)
    np.testing.assert_allclose(pb.grad(number_and_copy)(X), gradient_of(number_and_copy), rtol=1e-6)


def test_read_only_views_stay_read_only():
    def f(x):
        y = np.zeros(4)
        y[:] = x
        np.broadcast_to(y, (2, 4))[0, 0] = 1.0
        return np.sum(y)

    with pytest.raises((errors.PullbackError, ValueError)):
        pb.grad(f)(X)


def test_operands_whose_operators_mean_something_else_are_refused():
    m = np.array([[1.0, 2.0], [3.0, 4.0]]).view(np.matrix)
    for f in (lambda x: np.sum(m * x), lambda x: np.sum(x + m), lambda x: np.sum(np.multiply(x, m))):
        for call in (lambda f: pb.grad(f)(np.ones((2, 2))), lambda f: pb.jit(f)(np.ones((2, 2)))):
            with pytest.raises(errors.DtypeError, match=r"np\.matrix.*\n.*@"):
                call(f)


def test_parts_of_complex_arrays_are_written():
    def f(x):
        z = np.empty(4, complex)
        z.real = x
        z.imag = 1.0
        z.imag = x[::-1] * 2
        z.real = x**2
        return np.sum(np.abs(z) ** 2 * WEIGHTS[:4])

    np.testing.assert_allclose(pb.grad(f)(X), gradient_of(f), rtol=1e-6)
    np.testing.assert_allclose(pb.jit(pb.grad(f))(X), gradient_of(f), rtol=1e-6)


def test_what_is_made_like_an_argument_may_be_written_by_windows():
    def f(x):
        a = np.zeros_like(x.reshape(2, 2))
        b, c = np.full_like(a, 2.0), np.ones_like(x, dtype=complex)
        for i, row in enumerate(a):
            row[:] = x[2 * i : 2 * i + 2] * b[i]
            row /= row.sum()
        c.real[1:] += 1.0
        c *= x
        return np.sum(a * WEIGHTS[:4].reshape(2, 2)) + np.sum(np.abs(c))

    for call in (pb.grad(f), pb.jit(pb.grad(f)), lambda x: pb.jacfwd(f)(x)):
        np.testing.assert_allclose(call(X), gradient_of(f), rtol=1e-6)
    assert type(pb.jit(np.zeros_like)(X)) is np.ndarray


def test_places_that_depend_on_values_are_swapped_by_lists():
    def f(x):
        a, k = x * 1.0, np.argmax(x)
        a[[0, k]] = a[[k, 0]]
        return np.sum(a**2 * WEIGHTS[:4])

    for call in (pb.grad(f), pb.jit(pb.grad(f)), lambda x: pb.vmap(pb.grad(f))(x[None])[0]):
        np.testing.assert_allclose(call(X), gradient_of(f), rtol=1e-6)


def test_compiled_code_of_libraries_gets_arrays_or_an_error():
    """It has no frame of its own, so that the line that calls it seems to call NumPy; once it broke the process."""
    spatial = pytest.importorskip("scipy.spatial")
    for make in (as_argument, as_written_buffer):
        for kind in (spatial.ConvexHull, spatial.cKDTree):

            def f(x, make=make, kind=kind):
                return kind(make(x)[0].reshape(2, 2)) and 1.0

            with pytest.raises((errors.ConversionError, TypeError)):
                pb.grad(f)(X)
