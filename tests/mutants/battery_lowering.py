"""What lowering must not get wrong: results that NumPy gives by hand, and the steps that a program must come to.

A mistake of lowering often costs only speed: an op left to NumPy, a loop that no longer takes another, a copy. Numbers
do not tell, so some programs have their steps and their memory stated here.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import pullback as pb
from pullback.arrays.spec import make_spec
from pullback.ops.dispatch import apply
from pullback.ops.op import Op

__all__ = ["lowering"]

Check = Callable[[], None]


def lowering() -> Iterator[Check]:
    yield from (
        _updates_by_products, _donated_and_read_later, _written_over, _written_over_what_names_places,
        _folds_of_nothing, _products_of_integers, _comparisons_of_integers, _computed_again, _results_as_they_are,
        _results_of_no_elements, _mixed_dtypes,
        _integers_beside_floats, _bytes_of_floats, _windows_of_nothing_but_the_lowest, _windows_beside_a_rest,
        _windows_of_one_place, _dtypes_of_convolutions, _scattered_values, _products_of_any_strides,
    )  # fmt: skip
    for index, word in itertools.product(_INDICES, ("get", "set", "add")):
        yield lambda index=index, word=word: _is_indexed(index, word)  # type: ignore[misc]
    for name in _PLANS:
        yield lambda name=name: _is_planned(name)  # type: ignore[misc]


def _random(*shape: int, dtype: Any = "f8") -> Any:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(dtype)


def _same(found: Any, wanted: Any, tolerance: float = 1e-12) -> None:
    """One array, or tuples of arrays: values, shapes and dtypes."""
    pairs = zip(found, wanted, strict=True) if isinstance(wanted, tuple) else [(found, wanted)]
    for a, b in pairs:
        assert (a.shape, a.dtype) == (np.shape(b), np.asarray(b).dtype), (a.shape, a.dtype, np.shape(b), b)
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def _called(f: Any, *args: Any, **how: Any) -> Any:
    """Compiled and called on copies, after others have left numbers in memory that no right program returns."""
    for size in (8, 24, 64, 300):
        np.full(size, 777.0)
    return pb.jit(f, **how)(*(np.array(a) for a in args))


def _updates_by_products() -> None:
    """A product added to a donated argument, in each way that may or may not run in place."""
    x, a, b = _random(3, 3), _random(3, 4), _random(4, 3)
    p = a @ b
    for f, wanted in (
        (lambda x, a, b: x - 0.1 * (a @ b), x - 0.1 * p), (lambda x, a, b: x + (a @ b) * 3 * 0.5, x + 1.5 * p),
        (lambda x, a, b: x * (a @ b), x * p), (lambda x, a, b: pb.maximum(x, a @ b), np.maximum(x, p)),
        (lambda x, a, b: (a @ b) - x, p - x), (lambda x, a, b: x - (a @ b) * x, x - p * x),
        (lambda x, a, b: x + pb.einsum("ij,jk->ki", a, b), x + p.T),
        (lambda x, a, b: x - np.array(2.0) * (a @ b), x - 2 * p), (lambda x, a, b: x + pb.tanh(a @ b), x + np.tanh(p)),
        (lambda x, a, b: x - np.arange(3.0) * (a @ b), x - np.arange(3) * p),
        (lambda x, a, b: x + pb.einsum("i,j->ij", a[:, 0], b[0]), x + np.outer(a[:, 0], b[0])),
    ):  # fmt: skip
        _same(_called(f, x, a, b, donate_argnums=0), wanted)
    z = x + 1j
    _same(_called(lambda x, a, b: x - 1j * (a @ b), z, a, b, donate_argnums=0), z - 1j * p)


def _donated_and_read_later() -> None:
    """Results over arguments that another result still needs: in the same loop, in a later one, in a cut chain."""
    x, y = _random(4, 4), _random(4)
    t = np.tanh(x)
    for f, wanted in (
        (lambda x, y: (x * 2, y + x[0]), (x * 2, y + x[0])),
        (lambda x, y: (x + 1, y + pb.sum(x, axis=0)), (x + 1, y + x.sum(axis=0))),
        (lambda x, y: (x.T + 1, y * 2), (x.T + 1, y * 2)),
        (lambda x, y: (pb.tanh(x), pb.tanh(pb.tanh(x)) * x), (t, np.tanh(t) * x)),
        (lambda x, y: (pb.sin(pb.tanh(x)), pb.tanh(x) * x), (np.sin(t), t * x)),
    ):
        _same(_called(f, x, y, donate_argnums=(0, 1)), wanted)
        _same(_called(f, x, y, donate_argnums=0), wanted)


def _written_over() -> None:
    """Entries written into a donated argument, which is read before, after, by the write itself, or not at all."""
    x, y, i, v = _random(3), _random(3) * 2, np.array([2, 0]), np.array([10.0, 20.0])

    def by_hand(x: Any, index: Any, values: Any) -> Any:
        found = x.copy()
        found[index] = values
        return found

    turn = np.array([1, 2, 0])
    cut, of_x, of_y = slice(0, 2), by_hand(x, i, v), by_hand(y, i, v)
    for f, wanted in (
        (lambda x, y, i, v: (pb.set_at(x, i, v), y), (of_x, y)),
        (lambda x, y, i, v: (pb.set_at(x, i, v), x), (of_x, x)),
        (lambda x, y, i, v: (pb.set_at(y, i, v), pb.set_at(x, i, v)), (of_y, of_x)),
        (lambda x, y, i, v: (y * 2, pb.set_at(x, i, v)), (y * 2, of_x)),
        (lambda x, y, i, v: (pb.set_at(x, i, v), x * 2), (of_x, x * 2)),
        (lambda x, y, i, v: (x * 2, pb.set_at(x, i, v)), (x * 2, of_x)),
        (lambda x, y, i, v: (pb.set_at(x, i, v), x[i - 1]), (of_x, x[i - 1])),
        (lambda x, y, i, v: (pb.set_at(x, i, v), y[:2] + x[i]), (of_x, y[:2] + x[i])),
        (lambda x, y, i, v: (pb.set_at(x, i, x[i - 1] * 2), y), (by_hand(x, i, x[i - 1] * 2), y)),
        (lambda x, y, i, v: (pb.set_at(x, i, x[1:]), y), (by_hand(x, i, x[1:]), y)),
        (lambda x, y, i, v: (pb.set_at(x, i, x[1:] + 1), x[:2]), (by_hand(x, i, x[1:] + 1), x[:2])),
        (lambda x, y, i, v: (pb.set_at(x, turn, x), y), (by_hand(x, turn, x), y)),
        (lambda x, y, i, v: (pb.set_at(x, slice(0, 2), x[1:]), y), (by_hand(x, cut, x[1:]), y)),
        (lambda x, y, i, v: (pb.set_at(x, slice(0, 2), v), x[i]), (by_hand(x, cut, v), x[i])),
        (lambda x, y, i, v: (pb.set_at(pb.set_at(x, i, v), 1, y[0]), x[1]), (by_hand(of_x, 1, y[0]), x[1])),
        (lambda x, y, i, v: (pb.set_at(x, i, v) * 2, y), (of_x * 2, y)),
        (lambda x, y, i, v: (pb.set_at(x * 2, i, v), y), (by_hand(x * 2, i, v), y)),
    ):  # fmt: skip
        for donated in ((0,), (0, 1), ()):
            _same(_called(f, x, y, i, v, donate_argnums=donated), wanted)


def _written_over_what_names_places() -> None:
    x = np.array([1, 2, 0, 3])
    _same(_called(lambda x: pb.set_at(x, x, 7 - x), x, donate_argnums=0), np.array([7, 6, 5, 4]))


def _folds_of_nothing() -> None:
    """Folds over no elements are the word's identity, or refused."""
    for shape, axis in itertools.product(((0, 3), (3, 0), (0, 0)), (0, 1, None)):
        x = np.ones(shape)
        f = lambda x, a=axis: (pb.sum(x, axis=a), pb.prod(x * 2, axis=a), pb.any(x > 0, axis=a), pb.all(x > 0, axis=a))  # noqa: E731
        wanted = x.sum(axis=axis), x.prod(axis=axis), (x > 0).any(axis=axis), (x > 0).all(axis=axis)
        _same(_called(f, x), wanted)
    for pool in (pb.nn.max_pool1d, pb.nn.avg_pool1d):
        _same(_called(lambda x, pool=pool: pool(x, 2), np.ones((0, 2, 5))), np.ones((0, 2, 2)))


def _products_of_integers() -> None:
    """Products without a routine of their own: integers, truths, no elements, Python numbers beside arrays."""
    n, m = np.arange(6).reshape(2, 3), np.arange(12).reshape(3, 4)
    for a, b in ((n, m), (n.astype("u1"), m.astype("u1")), (n > 2, m > 5), (n.astype("f4"), m), (n * 1j, m)):
        _same(_called(lambda a, b: a @ b, a, b), a @ b)
    for k in (0, 1):
        _same(_called(lambda a, b: a @ b, np.ones((2, k)), np.ones((k, 3))), np.full((2, 3), float(k)))
    _same(_called(lambda a, b: a @ b, np.ones((0, 2)), np.ones((2, 3))), np.ones((0, 3)))


def _comparisons_of_integers() -> None:
    """Signed beside unsigned integers have no dtype in common, and are compared exactly."""
    a, b = np.array([-1, 2**62, 5]), np.array([2**64 - 1, 2**62 + 1, 5], "u8")
    _same(_called(lambda a, b: (a < b, a == b, a >= b), a, b), (np.array([1, 1, 0], bool), np.array([0, 0, 1], bool),
          np.array([0, 0, 1], bool)))  # fmt: skip


def _computed_again() -> None:
    """What a checkpoint computes once more is not shared with before."""
    x = _random(4, 4)
    inside = lambda x: pb.tanh(pb.tanh(x) @ x)  # noqa: E731
    t = np.tanh(x) @ x
    bar = 1 - np.tanh(t) ** 2
    wanted = (bar @ x.T) * (1 - np.tanh(x) ** 2) + np.tanh(x).T @ bar
    for f in (inside, pb.checkpoint(inside)):
        _same(_called(pb.grad(lambda x, f=f: pb.sum(f(x))), x), wanted)


def _results_as_they_are() -> None:
    """Arguments, constants and one value more than once as results, of dtypes with and without a native form."""
    spread = lambda x: (x, x, x.T, pb.broadcast_to(x[0], (2, 3)), x[:, :1], x[::-1])  # noqa: E731
    for dtype in ("f8", "f4", "i8", "u1", "?", "c16", "f2"):
        x = (_random(2, 3) * 3).astype(dtype)
        _same(_called(spread, x), _spread_by_hand(x))
        _same(_called(lambda x: spread(x + x), x), _spread_by_hand(x + x))
        constants = lambda x, dtype=dtype: (x, np.ones(3, dtype), np.zeros((), dtype), np.ones(0, dtype))  # noqa: E731
        _same(_called(constants, x), (x, np.ones(3, dtype), np.zeros((), dtype), np.ones(0, dtype)))
    found = _called(lambda x: (1, 2.5, True, 1j, x), np.ones(2))
    _same(found, (np.array(1), np.array(2.5), np.array(True), np.array(1j), np.ones(2)))


def _spread_by_hand(x: Any) -> tuple[Any, ...]:
    return x, x, x.T, np.broadcast_to(x[0], (2, 3)), x[:, :1], x[::-1]


def _results_of_no_elements() -> None:
    """Views of nothing keep the dtype that the op gives them."""
    for x in (np.ones((0, 3)), np.ones((0, 3), "f4"), np.ones((0, 3), "i2")):
        f = lambda x: (pb.argmax(x * 2, axis=1), pb.argsort(x * 2, axis=1), pb.sum(x * 2, axis=1), (x * 2).T, x > 0)  # noqa: E731
        y = x * 2
        _same(_called(f, x), (y.argmax(axis=1), y.argsort(axis=1), y.sum(axis=1), y.T, x > 0))


def _integers_beside_floats() -> None:
    """An odd number that no float64 holds is put into memory of float64 and used beyond a cut of the chain."""

    def f(x: Any) -> Any:
        odd = pb.astype(pb.tanh(x) * 1e18, "i8") + 1
        return pb.concat([odd, x]), pb.tanh(pb.astype(odd & 1, "f8"))

    x = np.linspace(0.5, 1.0, 5)
    odd = (np.tanh(x) * 1e18).astype("i8") + 1
    _same(_called(f, x), (np.concatenate([odd, x]), np.full(5, np.tanh(1.0))))


def _mixed_dtypes() -> None:
    """Computed values of one dtype put into memory of another, and folded in another."""
    x, y, n = _random(2, 3), _random(2, 3, dtype="f4"), np.arange(6, dtype="u1").reshape(2, 3) + 100
    _same(_called(lambda x, y: pb.concat([pb.tanh(y), x * 2]), x, y), np.concatenate([np.tanh(y), x * 2]), 1e-6)
    _same(_called(lambda x, n: pb.stack([x * 2, n + n]), x, n), np.stack([x * 2, n + n]))
    _same(_called(lambda y, n: pb.concat([n + n, pb.tanh(y)]), y, n), np.concatenate([n + n, np.tanh(y)]), 1e-6)
    _same(_called(lambda n: (pb.sum(n), pb.sum(n, axis=0), pb.any(n), pb.all(n - 100, axis=1)), n),
          (n.sum(), n.sum(axis=0), n.any(), (n - 100).all(axis=1)))  # fmt: skip
    _same(_called(lambda n: (pb.sum(n > 102, axis=1), pb.prod(n, axis=1)), n), ((n > 102).sum(axis=1), n.prod(axis=1)))
    truths = lambda x: pb.astype(pb.any(x[:1], axis=0), "f8") + pb.astype(pb.all(x[:1]), "f8")  # noqa: E731
    _same(_called(truths, x), np.full(3, 2.0))
    set_rows = lambda x, y: (pb.set_at(x, 0, pb.tanh(y)[0]), pb.set_at(y, 1, pb.tanh(x)[0]))  # noqa: E731
    wide, narrow = x.copy(), y.copy()
    wide[0], narrow[1] = np.tanh(y)[0], np.tanh(x)[0]
    _same(_called(set_rows, x, y), (wide, narrow), 1e-6)


def _bytes_of_floats() -> None:
    """An op that sees the bytes of its argument as another dtype is no view that compiled code could read."""
    x = _random(2, 3)
    for dtype in ("i1", "u1", "i8", "f4"):
        made = make_spec((2, 24 // np.dtype(dtype).itemsize), np.dtype(dtype))
        bits = Op("bits", "general", ("x",), lambda xp, x, d=dtype: x.view(d), lambda x, s=made: s, {}, *[_nothing] * 3)
        found = _called(lambda x, bits=bits: (apply(bits, x * 2), apply(bits, x)), x)
        for a, b in zip(found, ((x * 2).view(dtype), x.view(dtype)), strict=True):
            assert (a.dtype, a.tobytes()) == (b.dtype, b.tobytes())


def _nothing(*_: Any, **__: Any) -> None:
    return None


def _pools(x: Any, padding: tuple[int, int], window: int, stride: int) -> tuple[Any, Any]:
    """The maxima of windows of a row by hand, and how often each place was the first of them."""
    n, counts = x.shape[-1], np.zeros(x.shape)
    many = (n + sum(padding) - window) // stride + 1
    best = np.empty((*x.shape[:-1], many), x.dtype)
    for at in np.ndindex(best.shape):
        start = at[-1] * stride - padding[0]
        inside = range(max(0, start), min(n, start + window))
        chosen = max(inside, key=lambda i: (x[(*at[:-1], i)], -i))
        best[at] = x[(*at[:-1], chosen)]
        counts[(*at[:-1], chosen)] += 1
    return best, counts


def _is_pooled(x: Any, window: int, stride: int, padding: int) -> None:
    best, counts = _pools(x, (padding, padding), window, stride)
    pool = lambda x: pb.nn.max_pool1d(x, window, stride, padding)  # noqa: E731
    _same(_called(pool, x), best)
    if x.dtype.kind == "f":
        _same(_called(pb.grad(lambda x: pb.sum(pool(x))), x), counts.astype(x.dtype))


def _windows_of_nothing_but_the_lowest() -> None:
    """A padded window whose elements are all as low as padding finds a place that is none."""
    low = np.full((1, 2, 5), -np.inf)
    mixed = np.where(np.arange(5) == 3, 1.0, low)
    for x in (low, mixed, low.astype("f4"), np.full((1, 2, 5), np.iinfo("i4").min, "i4")):
        for window, stride, padding in ((2, 1, 1), (2, 2, 1), (3, 2, 1), (4, 4, 2)):
            _is_pooled(x, window, stride, padding)


def _windows_beside_a_rest() -> None:
    """Windows side by side leave elements over at the end, between them, or none: those over have no cotangent."""
    for n, window, stride in ((5, 2, 2), (6, 2, 2), (7, 3, 3), (7, 2, 3), (6, 1, 2), (5, 3, 1)):
        x = _random(2, 3, n)
        _is_pooled(x, window, stride, 0)
        starts = range(0, n - window + 1, stride)
        spread = sum((np.arange(n) >= s) & (np.arange(n) < s + window) for s in starts) / window
        mean = pb.grad(lambda x, w=window, s=stride: pb.sum(pb.nn.avg_pool1d(x, w, s)))
        _same(_called(lambda x, mean=mean: mean(pb.tanh(x)), x), np.broadcast_to(spread, x.shape))


def _windows_of_one_place() -> None:
    """Every element is the greatest of its own window, and its place there is the first."""
    for shape, stride in itertools.product(((1, 1, 4), (2, 3, 5), (1, 2, 1)), (1, 2)):
        _is_pooled(_random(*shape), 1, stride, 0)
        x = _random(*shape)
        found = _called(lambda x, stride=stride: pb.nn.max_pool1d(x, 1, stride, return_indices=True), x)
        places = np.broadcast_to(np.arange(shape[-1])[::stride], x[..., ::stride].shape)
        np.testing.assert_array_equal(found[0], x[..., ::stride])
        np.testing.assert_array_equal(found[1], places)


def _dtypes_of_convolutions() -> None:
    """Correlations by hand, of integers, of two dtypes, and of rows of filters."""
    for of_x, of_w in itertools.product(("f8", "f4", "i8", "i2"), ("f8", "f4", "i8")):
        x, w = (_random(2, 3, 7) * 4).astype(of_x), (_random(4, 3, 2) * 4).astype(of_w)
        seen = np.lib.stride_tricks.sliding_window_view(x, 2, axis=2)
        _same(_called(pb.nn.conv1d, x, w), np.einsum("nctk,fck->nft", seen, w), 1e-5)


def _scattered_values() -> None:
    """Values and places that are computed just before, cheaply or not, some of them by a view that must be copied."""
    x, i = _random(3, 4), np.array([1, 0, 2])
    turned = np.tanh(x).T.reshape(3, 4)
    for f, places, values in (
        (lambda x, i: pb.set_at(x, (i + 1) % 3, x * 2), (i + 1) % 3, x * 2),
        (lambda x, i: pb.set_at(x, 2 - i, pb.tanh(x).T.reshape(3, 4)), 2 - i, turned),
        (lambda x, i: pb.set_at(x, pb.argsort(x[:, 0]), -x[i]), np.argsort(x[:, 0]), -x[i]),
        (lambda x, i: pb.set_at(x, i[:2], x[i[1:]] * 2 + 1), i[:2], x[i[1:]] * 2 + 1),
        (lambda x, i: pb.set_at(x, -i, pb.broadcast_to(pb.sum(x), (4,))), -i, np.sum(x)),
    ):
        wanted = x.copy()
        wanted[places] = values
        for donated in ((), (0,)):
            _same(_called(f, x, i, donate_argnums=donated), wanted)


def _products_of_any_strides() -> None:
    """Rows, columns and matrices that are views with steps of any length, backwards and repeated."""
    a, b = _random(6, 6), _random(6, 6)
    views: list[Callable[[Any], Any]] = [
        lambda x: x, lambda x: x.T, lambda x: x[::2, ::2], lambda x: x[::-1], lambda x: x[:, ::-1], lambda x: x[:1],
        lambda x: x[:, :1], lambda x: x[::2, :1], lambda x: x[:1, ::2], lambda x: x[:1, ::-1], lambda x: x[:1, :1],
        lambda x: pb.broadcast_to(x[:1], (6, 6)), lambda x: pb.broadcast_to(x[:, :1], (6, 6)),
    ]  # fmt: skip
    for first in views:
        u = np.asarray(first(a))
        fitting = [second for second in views if np.shape(second(b))[0] == u.shape[1]]
        f = lambda a, b, first=first, fitting=fitting: tuple(first(a) @ second(b) for second in fitting)  # noqa: E731
        _same(_called(f, a, b), tuple(u @ np.asarray(second(b)) for second in fitting))


_I, _J = np.array([2, 0, 2]), np.array([[1], [0]])
#: Into (3, 4, 3): arrays alone, before and behind slices, numbers and new axes; side by side, and apart.
_INDICES: dict[str, Any] = {
    "first": (_I,), "second": (slice(None), _I), "last": (..., _I), "pair": (_I, _I),
    "apart": (_I, slice(None), _I), "apart by a slice": (_I, slice(1, 3), _J), "behind a number": (1, slice(None), _I),
    "before a number": (slice(None), _I, 1), "apart by a number": (slice(None, None, 2), 1, _I),
    "new axis": (None, slice(None), _I), "apart by a new axis": (_I, None, _I), "later pair": (slice(None), _I, _I),
    "wide": (slice(None), _J, _I), "backwards": (slice(None, None, -1), _I[:1]),
    "none": (slice(None), _I[:0]), "negative": (slice(None), -_I),
}  # fmt: skip


def _is_indexed(name: str, word: str) -> None:
    """x[index] read and written, with places that come more than once, as NumPy does in order."""
    index, x = _INDICES[name], _random(3, 4, 3)
    arrays = [k for k, i in enumerate(index) if isinstance(i, np.ndarray)]

    def f(x: Any, values: Any, *given: Any) -> Any:
        found = list(index)
        for k, array in zip(arrays, given, strict=True):
            found[k] = array
        if word == "get":
            return x[tuple(found)]
        return (pb.set_at if word == "set" else pb.add_at)(x, tuple(found), values)

    values, wanted = _random(*x[index].shape), x.copy()
    if word == "get":
        wanted = x[index]
    elif word == "set":
        wanted[index] = values
    else:
        np.add.at(wanted, index, values)
    _same(_called(f, x, values, *(index[k] for k in arrays)), wanted)


_X, _Y, _V, _IMAGES, _FILTERS = _random(4, 5), _random(5, 4), _random(4), _random(2, 3, 5, 5), _random(2, 3, 2, 2)
_SQUARE, _CUBE = _random(4, 4), _random(2, 4, 4)
#: Programs, their arguments (the first is donated where `donated` says so), the steps they come to, those inside of
#: others behind them, and the bytes of the arena if they are few.
_PLANS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], bool, str, int | None]] = {
    "elementwise": (lambda x: pb.tanh(x) * 2 + x, (_X,), False, "kernel", 0),
    "a row of results": (lambda x: (x + 1, x * x, pb.sum(x, axis=1)), (_X,), False, "kernel", 0),
    "a spread fold": (lambda x: x - pb.broadcast_to(pb.sum(x, axis=1)[:, None], x.shape), (_X,), False, "kernel", None),
    "a chain": (lambda x: pb.tanh(pb.tanh(pb.tanh(x))), (_X,), False, "kernel kernel kernel", None),
    "a chain behind a gather": (lambda x: pb.tanh(pb.tanh(x[np.arange(3)])), (_X,), False, "kernel kernel", None),
    "views": (lambda x: x[1:].reshape(2, 8).T + 1, (_Y,), False, "kernel", 0),
    "a view that is copied": (lambda x: x.T.reshape(5, 4) + 1, (_Y,), False, "kernel kernel", None),
    "product": (lambda x, y: x @ y, (_X, _Y), False, "product", 0),
    "turned product": (lambda x, y: x.T @ y.T, (_X, _Y), False, "product", 0),
    "product of columns": (lambda x: x[:1, ::2] @ x[:, :3].T, (_X,), False, "product", 0),
    "products of a batch": (lambda x: pb.einsum("bij,bkj->bik", x, x), (_CUBE,), False, "product", 0),
    "convolution": (pb.nn.conv2d, (_IMAGES, _FILTERS), False, "kernel kernel product kernel", None),
    "padded windows": (lambda x: pb.nn.max_pool2d(x, 2, 2, 1), (_IMAGES,), False, "kernel kernel kernel", None),
    "mean of windows": (lambda x: pb.nn.avg_pool2d(x, 2, 2), (_IMAGES,), False, "kernel", 0),
    "scan": (lambda x: pb.scan(lambda c, r: (c + x[0] * r, c), x[0], x)[0], (_X,), False, "kernel loop kernel", None),
    "scan of arguments": (
        lambda w, x: pb.scan(lambda c, r: (pb.tanh(w @ c) + r, c), x[0], x)[0], (_SQUARE, _SQUARE), False,
        "kernel loop product kernel", 64,
    ),
    "donated": (lambda x: pb.tanh(x) * 2, (_X,), True, "kernel", 0),
    "cast": (lambda x: pb.astype(x, "f4"), (_X,), False, "kernel", 0),
    "places written over": (lambda x, i: pb.set_at(x, i, 1.0), (_V, np.arange(2)), True, "kernel", 0),
    "places read and written over": (lambda x, i: pb.set_at(x, i, x[i]), (_V, np.arange(2)), True, "kernel kernel", 64),
    "a slice written over": (lambda x: pb.set_at(x, slice(0, 2), 1.0), (_V,), True, "kernel", 0),
    "a slice written beside": (lambda x: pb.set_at(x, slice(0, 2), 1.0), (_V,), False, "kernel kernel", 0),
    "donated and turned": (lambda x: x.T + 1, (_SQUARE,), True, "kernel kernel", None),
    "update": (lambda x, a: x - 0.1 * (a @ a), (_SQUARE, _SQUARE), True, "product", 0),
    "update by a constant": (lambda x, a: x - np.array(0.1) * (a @ a), (_SQUARE, _SQUARE), True, "product", 0),
    "update of a row": (lambda x, a, v: x + a @ v, (_V, _SQUARE, _V), True, "product", 0),
    "updates of a batch": (lambda x, a: x + pb.einsum("bij,bjk->bik", a, a), (_CUBE, _CUBE), True, "product", 0),
    "updates of rows": (
        lambda x, a: x + pb.einsum("bj,bjk->bk", a[:, 0], a), (_CUBE[0, :2], _CUBE), True, "product", 0,
    ),
    "no update": (lambda x, a: x * (a @ a), (_SQUARE, _SQUARE), True, "product kernel", None),
}  # fmt: skip


def _is_planned(name: str) -> None:
    f, args, donated, steps, arena = _PLANS[name]
    lowered = pb.jit(f, donate_argnums=0 if donated else ()).lower(*(np.array(a) for a in args))
    assert " ".join(_kinds(lowered.code.compilation.steps)) == steps
    assert arena is None or lowered.memory().arena == arena


def _kinds(program: Any) -> Iterator[str]:
    for step in program.steps:
        yield type(step).__name__.lower()
        for inner in getattr(step, "programs", ()):
            yield from _kinds(inner)
