"""What a mutant must not survive: programs and calls whose right results are known without the compiler.

Each judge is a slice of one of the suite: legality and the reference interpreter beside native code, composed programs,
networks, staleness, and the machinery around compiled code (threads, budgets, donation, the cache on disk).
"""

from __future__ import annotations

import ctypes
import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))
sys.path.insert(0, str(Path(__file__).parent))

from battery_calls import calls
from battery_lowering import lowering
from battery_native import native
from composed import folds, try_program
from composed_programs import drawn, drawn_chain
from networks import WAYS, drawn_network
from networks import find_fault as find_training_fault
from random_programs import program, scalar_of
from stale_rows import ROWS, Pair, X

import pullback as pb
from pullback.compile import cache
from pullback.compile.cpu.runtime import link
from pullback.compile.legality import check_legality
from pullback.compile.loop_ir import Blocks, Buffer, Kernel, KernelLine, Store
from pullback.errors import MiscompiledError, PullbackError

__all__ = ["JUDGES", "SHORT"]

Check = Callable[[], None]


def _composed(found: Any, number: int) -> Check:
    def check() -> None:
        faults = try_program(found, number, extra=False)
        assert not faults, str(faults[0])

    return check


def generators() -> Iterator[Check]:
    """Chains of folds and spreads, chains of all forms, random programs; each in two modes of derivative."""
    for number, found in enumerate(itertools.islice(folds(), 0, None, 701)):
        yield _composed(found, number)
    for number in range(120):
        yield _composed(drawn_chain(number), number)
    for number in range(24):
        yield _composed(drawn(number, 5, 25), number)


def reference() -> Iterator[Check]:
    """Native code beside the interpreter, in value and gradient."""
    for seed in range(24):
        f, args = program(seed)
        yield lambda f=f, args=args: pb.jit(f, check=True)(*args)  # type: ignore[misc]
        floats = tuple(range(len(args)))
        yield lambda f=f, args=args, floats=floats: pb.jit(pb.grad(scalar_of(f), floats), check=True)(*args)  # type: ignore[misc]


def networks() -> Iterator[Check]:
    for seed in range(12):
        for way in list(WAYS)[seed % 2 :: 2]:
            yield lambda seed=seed, way=way: _no_fault(find_training_fault(drawn_network(seed), way))  # type: ignore[misc]


def _no_fault(fault: Any) -> None:
    assert fault is None, str(fault)


def staleness() -> Iterator[Check]:
    for row in ROWS:
        if row.promise in ("noticed", "refused"):
            yield lambda row=row: _is_kept(row)  # type: ignore[misc]


def _is_kept(row: Any) -> None:
    f, change, *restore = row.build()
    compiled = f.compiled if isinstance(f, Pair) else pb.jit(f)
    try:
        if row.promise == "refused":
            _refused(compiled)
            return
        for step in (lambda: None, change):
            step()
            for _ in range(2):
                np.testing.assert_allclose(_numbers(compiled(X)), _numbers(f(X)), rtol=1e-12)
    finally:
        for undo in restore:
            undo()


def _refused(compiled: Any) -> None:
    try:
        for _ in range(3):
            compiled(X)
    except PullbackError:
        return
    raise AssertionError("not refused")


def _numbers(out: Any) -> Any:
    return np.asarray(out.detach().numpy() if hasattr(out, "detach") else out)


def machinery() -> Iterator[Check]:
    yield _long_rows
    yield _budget
    yield _donation
    yield _keys_of_calls
    yield _scans
    yield _indices
    yield _indices_out_of_range
    yield _images
    yield _integers_out_of_range
    yield _other_dtypes
    yield _kernels_alike
    yield _kept_rows
    yield _mixed_products
    yield _containers
    yield _refusals_of_budgets
    yield _disk


def legality() -> Iterator[Check]:
    """Kernels without a meaning, each refused for its reason, and kernels with one."""
    yield _legal_kernels
    for message, break_it in _ILLEGAL.items():
        yield lambda message=message, break_it=break_it: _is_refused(message, break_it)  # type: ignore[misc]


_F8, _F4 = np.dtype("f8"), np.dtype("f4")


def _small() -> tuple[Kernel, KernelLine, KernelLine, Buffer]:
    """A sum over the rows of (2, 3): its load, its fold, and memory for a result."""
    source, out = Buffer("arena", 6, _F8, 0, 0), Buffer("arena", 6, _F8, 1, 64)
    x = KernelLine("load", _F8, frozenset({0, 1}), buffer=source, strides=(3, 1))
    return Kernel((2, 3), 1, [x]), x, KernelLine("fold", _F8, frozenset({0}), 0, (x,), word="add"), out


def _cast(x: KernelLine, axes: set[int], phase: int = 0) -> KernelLine:
    return KernelLine("cast", _F8, frozenset(axes), phase, (x,))


def _over(kernel: Kernel, x: KernelLine, strides: tuple[int, ...] = (3, 1), **how: Any) -> None:
    """A store over what is loaded, in one loop."""
    kernel.inner = 0
    kernel.stores.append(Store(_cast(x, {0, 1}), how.pop("buffer", x.buffer), strides, **how))


def _no_rows(k: Kernel, x: KernelLine, total: KernelLine, out: Buffer) -> None:
    k.inner = 0
    k.stores.append(Store(total, out, (1, 0)))


def _early(k: Kernel, x: KernelLine, total: KernelLine, out: Buffer) -> None:
    late = _cast(total, {0}, 1)
    k.stores.append(Store(_cast(late, {0}, 0), out, (1, 0)))


def _twice_visited(k: Kernel, x: KernelLine, total: KernelLine, out: Buffer) -> None:
    k.inner = 0
    one = KernelLine("load", _F8, frozenset({1}), buffer=x.buffer, strides=(0, 1))
    k.stores.append(Store(_cast(one, {1}), one.buffer or out, (0, 1)))


def _half_over(k: Kernel, x: KernelLine, total: KernelLine, out: Buffer) -> None:
    out.offset = 40
    _over(k, x, buffer=out)


def _beyond(k: Kernel, x: KernelLine, total: KernelLine, out: Buffer) -> None:
    assert x.buffer is not None
    x.buffer.offset, out.offset = 40, 0
    _over(k, x, buffer=out, offset=0, strides=(1, 2))


def _narrow(k: Kernel, x: KernelLine, total: KernelLine, out: Buffer) -> None:
    _over(k, x, buffer=Buffer("arena", 6, _F4, 1, 0))


def _gathered(k: Kernel, x: KernelLine, total: KernelLine, out: Buffer) -> None:
    index = KernelLine("number", np.dtype("i8"), frozenset(), number=0)
    y = KernelLine("gather", _F8, frozenset({0, 1}), 0, (index,), buffer=x.buffer, strides=(3, 1), places=((1, 2),))
    _over(k, y)


_ILLEGAL: dict[str, Callable[[Kernel, KernelLine, KernelLine, Buffer], None]] = {
    "there are no rows": _no_rows,
    "differs along the row": lambda k, x, a, out: k.stores.append(
        Store(KernelLine("fold", _F8, frozenset({0, 1}), 0, (x,), word="add"), out, (3, 1))
    ),
    "depends on axes [0, 1], and is declared on [0]": lambda k, x, a, out: k.stores.append(
        Store(_cast(x, {0}), out, (3, 1))
    ),
    "depends on axes [0], and is declared on []": lambda k, x, a, out: k.stores.append(
        Store(KernelLine("fold", _F8, frozenset(), 0, (x,), word="add"), out, (0, 0))
    ),
    "depends on axes [1], and is declared on []": lambda k, x, a, out: k.stores.append(
        Store(KernelLine("load", _F8, frozenset(), buffer=x.buffer, strides=(0, 1)), out, (0, 1))
    ),
    "in phase 0, and its arguments are known in 1": lambda k, x, a, out: k.stores.append(
        Store(_cast(a, {0}), out, (1, 0))
    ),
    "is in phase 0, and its arguments": _early,
    "2 elements folded at 6 points": lambda k, x, a, out: k.stores.append(Store(a, out, (0, 0), word="add", points=2)),
    "stored along": lambda k, x, a, out: k.stores.append(Store(x, out, (1, 0))),
    "repeat a place": lambda k, x, a, out: k.stores.append(Store(x, out, (2, 1))),
    "(1, -1) repeat a place": lambda k, x, a, out: k.stores.append(Store(x, out, (1, -1), 2)),
    "written over arena0": lambda k, x, a, out: _over(k, x, (1, 2)),
    "reads elsewhere or again": lambda k, x, a, out: _over(k, x, offset=1),
    "which the kernel reads": lambda k, x, a, out: k.stores.append(Store(x, x.buffer or out, (3, 1))),
    "written over arena0, which": lambda k, x, a, out: _over(k, x, word="add", points=6),
    "written over": _twice_visited,
    "arena1 is written over arena0": _half_over,
    "arena1 is written over arena0, which": _beyond,
    "arena1 is written over arena0, which the": _narrow,
    "arena0 is written over arena0": _gathered,
}


def _is_refused(message: str, break_it: Callable[..., None]) -> None:
    kernel, x, total, out = _small()
    break_it(kernel, x, total, out)
    for steps in ([kernel], [Blocks(2, [kernel], {})]):
        assert message in _raises(MiscompiledError, lambda steps=steps: check_legality(steps))  # type: ignore[misc]


def _legal_kernels() -> None:
    kernel, x, total, out = _small()
    kernel.stores += [Store(total, out, (1, 0)), Store(x, Buffer("output", 1, _F8), (0, 0), word="add", points=6)]
    wide = KernelLine(
        "load", _F8, frozenset({0}), buffer=x.buffer, strides=(3, 1)
    )  # an axis of one element moves nowhere
    alone = Kernel((2, 1), 0, [wide], [Store(wide, out, (1, 7))])
    over, y, _, _ = _small()
    _over(over, y)
    apart, z, _, beside = _small()
    beside.offset = 48  # right behind what is read
    _over(apart, z, buffer=beside)
    unplaced, v, _, there = _small()
    there.offset = -1
    _over(unplaced, v, (1, 2), buffer=there)
    empty = Kernel((0, 3), 0, [x], [Store(x, out, (0, 0))])
    check_legality([kernel, alone, over, apart, unplaced, empty, Blocks(2, [over], {})])


def _same(found: Any, wanted: Any, tolerance: float = 1e-10) -> None:
    for a, b in zip(_leaves(found), _leaves(wanted), strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def _leaves(tree: Any) -> list[Any]:
    return [x for part in tree for x in _leaves(part)] if isinstance(tree, (tuple, list)) else [tree]


def _long_rows() -> None:
    """Kernels long enough to be cut into blocks: along rows, across them, with folds that cross the cut."""
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(700, 600)), rng.normal(size=(600, 64))

    def f(x: Any, w: Any) -> Any:
        y = pb.tanh(x) * 2
        total = pb.sum(y, axis=0)
        return pb.softmax(y, axis=1), total, pb.max(y), pb.exp(pb.broadcast_to(pb.mean(x), x.shape)), y @ w

    _same(pb.jit(f)(x, w), f(x, w))
    flat = x.reshape(-1)
    g = lambda x: (pb.sum(x), x - pb.mean(x), pb.negative(pb.broadcast_to(pb.sum(x), x.shape)))  # noqa: E731
    for long in (flat, flat[:-5].copy()):  # blocks of whole vectors, and a rest
        _same(pb.jit(g)(long), g(long), 1e-9)
        _same(pb.jit(lambda x: pb.tanh(x) * 2)(long), np.tanh(long) * 2)


def _budget() -> None:
    rng = np.random.default_rng(1)
    ws = [rng.normal(size=(32, 32)) / 6 for _ in range(6)]
    x = rng.normal(size=(256, 32))

    def loss(ws: Any, x: Any) -> Any:
        for w in ws:
            x = pb.tanh(x @ w)
        return pb.sum(x**2)

    wanted = pb.grad(loss)(ws, x)
    whole = pb.jit(pb.grad(loss)).lower(ws, x).memory().peak
    for share in (0.95, 0.85):
        _same(pb.jit(pb.grad(loss), memory_budget=int(whole * share))(ws, x), wanted)


def _donation() -> None:
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=(4, 4)), rng.normal(size=(4, 4))
    for f in (
        lambda x, y: (x + y, x - y), lambda x, y: (y, x), lambda x, y: (x @ y, x.T + y),
        lambda x, y: (x - 0.1 * (x.T @ y), y + pb.sum(x, axis=0)), lambda x, y: (pb.set_at(x, 0, y[1]), x[0] + y),
    ):  # fmt: skip
        kept = x.copy(), y.copy()
        found = pb.jit(f, donate_argnums=(0, 1))(*kept)
        _same([np.array(a) for a in found], f(x, y))
        a, b = x.copy(), y.copy()
        pb.jit(f)(a, b)
        assert np.array_equal(a, x)
        assert np.array_equal(b, y)


def _keys_of_calls() -> None:
    """One compiled function called with other kinds of arguments, one after the other."""
    f = pb.jit(lambda x, n=1, flag=True: (x * n if flag else x + n) + 1, static_argnames=("n", "flag"))
    plain = lambda x, n=1, flag=True: (x * n if flag else x + n) + 1  # noqa: E731
    calls = [
        (np.ones(3), {}), (np.ones(4), {}), (np.ones((3, 1)), {}), (np.ones(3, np.float32), {}), (np.ones(3), {"n": 2}),
        (np.ones(3), {"n": 2.5}), (np.ones(3, int), {"n": 2}), (np.ones(3, int), {"n": 2.0}),
        (np.ones(3), {"n": True}), (np.ones(3), {"flag": False}), (np.ones((3, 3)).T, {}), (np.ones(6)[::2], {}),
        (np.zeros(0), {}), (2.0, {}), (2, {}), (np.ones(3, ">f8"), {}),
    ]  # fmt: skip
    for _ in range(2):
        for x, options in calls:
            found, wanted = f(x, **options), plain(np.asarray(x), **options)
            assert np.asarray(found).dtype == wanted.dtype or not np.ndim(x)
            np.testing.assert_array_equal(found, wanted)
    h = pb.jit(lambda x, n, shape=None: x if shape is None else x.reshape(shape) * len(n), static_argnums=(1, 2))
    for n, shape in (
        ((1, 2), None),
        ((1, 2), (2, 3)),
        ((1,), (3, 2)),
        ([1, 2], (3, 2)),
        (None or (), (6,)),
        ((1, 2), (3, 2)),
    ):
        wanted = np.arange(6.0) if shape is None else np.arange(6.0).reshape(shape) * len(n)
        np.testing.assert_array_equal(h(np.arange(6.0), tuple(n), shape), wanted)
    k = pb.jit(lambda t: sum(x * 2 for x in (t.values() if isinstance(t, dict) else t) if x is not None))
    for t in (
        (1.0, None),
        [1.0, None],
        (None, 2.0),
        {"a": 3.0},
        {"b": 3.0, "a": None},
        (1.0, 2.0),
        (1.0, (2.0)),
        [5.0],
    ):
        leaves = t.values() if isinstance(t, dict) else t
        assert float(k(t)) == sum(x * 2 for x in leaves if x is not None)
    g = pb.jit(lambda d: pb.concat(list(d.values())))
    a, b = np.ones(2), np.zeros(2)
    np.testing.assert_array_equal(g({"a": a, "b": b}), [1, 1, 0, 0])
    np.testing.assert_array_equal(g({"b": b, "a": a}), [0, 0, 1, 1])


def _scans() -> None:
    rng = np.random.default_rng(3)
    w, xs = rng.normal(size=(3, 3)), rng.normal(size=(5, 3))

    def f(w: Any, xs: Any) -> Any:
        last, ys = pb.scan(lambda c, x: (pb.tanh(c @ w + x), c * x), xs[0], xs)
        rounds = pb.while_loop(lambda c: pb.sum(c) < 20, lambda c: c * 1.5 + 1, pb.abs(last))
        return pb.sum(ys) + pb.sum(pb.cond(last[0] > 0, lambda: last * 2, lambda: last - 1)) + pb.sum(pb.sin(rounds))

    _same(pb.jit(f)(w, xs), f(w, xs))
    _same(pb.jit(pb.grad(f, (0, 1)))(w, xs), pb.grad(f, (0, 1))(w, xs), 1e-8)
    _same(pb.grad(pb.jit(f), (0, 1))(w, xs), pb.grad(f, (0, 1))(w, xs), 1e-8)


def _indices() -> None:
    x, i = np.arange(12.0).reshape(4, 3), np.array([3, 0, -1])
    f = lambda x, i: (x[i], pb.add_at(x, i, 1.0), pb.set_at(x, (i, slice(0, 2)), 0.0))  # noqa: E731
    _same(pb.jit(f)(x, i), f(x, i))
    often = np.array([1, 1, 1, 2, 1, 1, 1, 1, 0, 1, 1, 1, 4, 1, 1, 1, 1])  # one place in every lane
    add = lambda v, i: pb.add_at(v, i, v[i] + 1)  # noqa: E731
    _same(pb.jit(add)(np.arange(5.0), often), add(np.arange(5.0), often))
    for f in (
        lambda x, i: pb.set_at(pb.set_at(x, i * 2, 0.0), i, 1.0),
        lambda x, i: pb.set_at(pb.set_at(x, i, 0.0), i * 2, 1.0),
        lambda x, i: pb.set_at(pb.scan(lambda c, j: (pb.add_at(c, j, 1.0), c), x, i * 2)[0], i, 1.0),
        lambda x, i: pb.scan(lambda c, j: (c + 1, c), pb.set_at(x, i * 2, 0.0), i)[0],
    ):  # fmt: skip
        _raises(IndexError, lambda f=f: pb.jit(f, donate_argnums=0)(x.copy(), np.array([2, 0, 1])))
        _same(pb.jit(f, donate_argnums=0)(x.copy(), np.array([1, 0, 1])), f(x, np.array([1, 0, 1])))
    for bad in (np.array([4, 0, 0]), np.array([-5, 0, 0])):
        target = x.copy()
        try:
            pb.jit(lambda x, i: pb.set_at(x, i, 0.0), donate_argnums=0)(target, bad)
        except IndexError:
            assert np.array_equal(target, x)
        else:
            raise AssertionError("an index out of range was not refused")


def _raises(kind: type[Exception], call: Callable[[], Any]) -> str:
    """What an error says that must come."""
    try:
        call()
    except kind as error:
        return str(error)
    raise AssertionError(f"no {kind.__name__}")


def _indices_out_of_range() -> None:
    """In a gather of each lane's own, one for a row, a scatter, a loop and a branch; nothing donated."""
    x, bad = np.arange(12.0).reshape(4, 3), np.array([1, 0, 2, 3, 1, 0, 2, 4, 1])
    for f in (
        lambda x, i: x[i], lambda x, i: pb.sum(x[i[7]]), lambda x, i: x[i, 1], lambda x, i: pb.add_at(x, i, 1.0),
        lambda x, i: pb.scan(lambda c, j: (c + x[j], c), x[0], i)[0],
        lambda x, i: pb.cond(x[0, 0] < 1, lambda: x[i], lambda: x[i] * 2),
        lambda x, i: pb.while_loop(lambda c: c[0] < 5, lambda c: c + 1 + x[i[7]], x[0]),
    ):  # fmt: skip
        for wrong in (bad, np.where(bad == 4, -5, bad)):
            _raises(IndexError, lambda f=f, wrong=wrong: pb.jit(f)(x, wrong))
        right = np.where(bad == 4, -4, bad)
        _same(pb.jit(f)(x, right), f(x, right))


def _images() -> None:
    """Convolutions of pictures large enough for blocks, strided, dilated, padded, in groups of images, and pools."""
    rng = np.random.default_rng(4)
    x, w = rng.normal(size=(5, 3, 24, 24)), rng.normal(size=(4, 3, 3, 3))
    for how in ({}, {"stride": 2, "padding": 1}, {"dilation": 2}, {"stride": (1, 3), "padding": (0, 2)}):
        f = lambda x, w, how=how: pb.sum(pb.sin(pb.nn.conv2d(x, w, **how)))  # noqa: E731
        _same(pb.jit(pb.value_and_grad(f, (0, 1)))(x, w), pb.value_and_grad(f, (0, 1))(x, w), 1e-9)
    tall = rng.normal(size=(24, 3, 64, 64))
    f = lambda x, w: pb.nn.conv2d(x, w)  # noqa: E731
    _same(pb.jit(f)(tall, w), f(tall, w), 1e-9)
    for stride, padding in ((2, 0), (1, 1), (3, 0)):
        p = lambda x, s=stride, p=padding: pb.sum(pb.cos(pb.nn.max_pool2d(x, 2, s, p)) * 2)  # noqa: E731
        _same(pb.jit(pb.value_and_grad(p))(x[:2]), pb.value_and_grad(p)(x[:2]))


def _integers_out_of_range() -> None:
    x = np.array([-100, 1, 100], np.int8)
    for n in (128, -129, 300):
        _raises(OverflowError, lambda n=n: pb.jit(lambda x: x + n)(x))
        _same(pb.jit(lambda x, n=n: (x < n, x > n))(x), (x < n, x > n))
    for n in (127, -128):
        np.testing.assert_array_equal(pb.jit(lambda x, n=n: x + n)(x), x + np.int8(n))


def _other_dtypes() -> None:
    """Dtypes that compiled code has no words for, unsigned folds, bytes in the other order, booleans, mixed."""
    rng = np.random.default_rng(5)
    z, h = rng.normal(size=(3, 3)) + 1j, rng.normal(size=(3, 3)).astype(np.float16)
    u = rng.integers(0, 255, (3, 40)).astype(np.uint8)
    b = u > 100
    f = lambda z, h, u, b: (  # noqa: E731
        z * 2, z.T, h + 1, h.T, pb.max(u, axis=1), pb.min(u), pb.sum(u), pb.any(b, axis=0), pb.all(b), ~b,
        pb.where(b, u, u + 1),
        pb.astype(u, "float32") * 0.5, pb.astype(h, "float64") + 1, pb.sum(b), pb.real(z) * 3,
    )  # fmt: skip
    _same(pb.jit(f)(z, h, u, b), f(z, h, u, b), 1e-3)
    for x in (z, h, u, b):
        for g in (lambda x, y: (y, x), lambda x, y: (x[::-1], y.T), lambda x, y: (y + y, x)):
            _same(pb.jit(g, donate_argnums=(0, 1))(x[:3, :3].copy(), x[:3, :3].copy()), g(x[:3, :3], x[:3, :3]), 1e-3)
    swapped = np.arange(6.0).astype(">f8")
    _same(pb.jit(lambda x: x * 2)(swapped), swapped * 2)
    _same(pb.jit(lambda x: x * 2)(np.arange(6.0)), np.arange(6.0) * 2)


def _kernels_alike() -> None:
    """Kernels of one program that differ only in which line goes where, where memory begins, or what is folded."""
    rng = np.random.default_rng(6)
    x, y = rng.normal(size=7), rng.normal(size=(7, 2))

    def f(x: Any, y: Any) -> Any:
        a, c = x + 1, y[:, 0] + 1
        b, d = a * a, c * c
        m = x[:3] + 1, x[1:4] + 1, x[:3] - 1
        return a, b, pb.sum(y, axis=0), d, c, *m, pb.max(y, axis=0), pb.sum(x[:4] * 2), pb.sum(x[2:6] * 2)

    _same(pb.jit(f)(x, y), f(x, y))
    w = rng.normal(size=(7, 7))

    def in_turn(x: Any, w: Any) -> Any:
        """Two kernels of the same lines: the first stores what the product reads before the other."""
        a = x + 1
        b = a * a
        c = w @ b + 1
        return a, b, c, c * c

    _same(pb.jit(in_turn)(x, w), in_turn(x, w))


def _kept_rows() -> None:
    """Values of a row that a later loop over it needs, in rows that fill whole lines of the cache and do not."""
    for n in (1, 7, 8, 16, 33):
        x = np.random.default_rng(n).normal(size=(3, n))

        def f(x: Any) -> Any:
            a, b, c = pb.tanh(x), pb.exp(x), pb.sin(x)
            total = pb.sum(a * b * c, axis=1, keepdims=True)
            return a * total + b / total - c, pb.sum(b * total, axis=1), pb.max(c - total, axis=1), total

        _same(pb.jit(f)(x), f(x))


def _mixed_products() -> None:
    """Products and convolutions of two dtypes, of single rows and columns, of one image, of groups."""
    rng = np.random.default_rng(7)
    wide, narrow = rng.normal(size=(4, 4)), rng.normal(size=(4, 4)).astype(np.float32)
    f = lambda a, b: (a @ b, b.T @ a, a[:1] @ b, b @ a[:, :1], a[:, 0] @ b, pb.sum(a[:, None] * b, axis=0))  # noqa: E731
    _same(pb.jit(f)(wide, narrow), f(wide, narrow), 1e-5)
    x, w = rng.normal(size=(1, 4, 6, 6)), rng.normal(size=(4, 4, 2, 2))
    for a, b, how in ((x, w, {}), (x.astype("f4"), w, {}), (x, w.astype("f4"), {}), (x, w[:, :2], {"groups": 2})):
        g = lambda a, b, how=how: pb.sum(pb.sin(pb.nn.conv2d(a, b, **how) * 2))  # noqa: E731
        _same(pb.jit(pb.value_and_grad(g, (0, 1)))(a, b), pb.value_and_grad(g, (0, 1))(a, b), 1e-4)


def _containers() -> None:
    """One compiled function whose arrays come in containers of other kinds, one after another, and in other dtypes."""

    def f(t: Any) -> Any:
        if t is None or not len(t):
            return pb.ones(1) * {type(None): 1, list: 2, tuple: 3, dict: 4}[type(t)]
        inner = list(t.values()) if isinstance(t, dict) else list(t)
        return sum(pb.sum(x) * (i + 1) for i, x in enumerate(inner) if x is not None) + len(type(t).__name__)

    a, b = np.ones(2), np.full(2, 3.0)
    trees = [(a, b), [a, b], {"x": a, "y": b}, {"y": a, "x": b}, {"u": a, "v": b}, (a, None), (None, a), [a], (a,)]
    nothing: list[Any] = [(), [], None, {}]
    compiled = pb.jit(f)
    for _ in range(2):
        for tree in (*trees, *nothing):
            _same(compiled(tree), f(tree))
    nested = pb.jit(lambda t: f(t[0]) + 10 * f(t[1]))
    for tree in ((a, b), [a, b], (), None, [], {"x": a}):
        _same(nested(((a,), tree)), f((a,)) + 10 * f(tree))
    positive = pb.jit(lambda x: pb.sum(x > 0))
    for x in (
        np.array([-1, 1]),
        np.array([-1.5, 0.5]),
        np.array([0.5, -1], "f4"),
        np.array([1, 2], "u1"),
        np.ones((2, 2)),
    ):
        assert int(positive(x)) == np.sum(x > 0)


def _refusals_of_budgets() -> None:
    """What a budget cannot hold is refused, and says what could."""
    x = np.ones((64, 64))
    f = lambda x: pb.sum(pb.tanh(x @ x) @ x)  # noqa: E731
    for limit, said in ((1000, "Arguments and results alone do not fit"), (x.nbytes + 200, "Raise it to")):
        assert said in _raises(pb.errors.MemoryBudgetError, lambda limit=limit: pb.jit(f, memory_budget=limit)(x))


def _disk() -> None:
    """Code on disk is found again for the same text alone, and damaged code never."""
    before = cache.directory()
    if before is None:
        return
    text = "define i64 @one() {\nentry:\n  ret i64 %d\n}\n"
    linked = [link.link(text % number, ["one"]) for number in (1, 2)]
    assert [ctypes.CFUNCTYPE(ctypes.c_int64)(code.addresses["one"])() for code in linked] == [1, 2]
    key = cache.key_of(text % 1, repr(link.EFFORT), *link.code_environment())
    assert cache.key_of(text % 1, "other", *link.code_environment()) != key
    assert cache.key_of(text % 2, repr(link.EFFORT), *link.code_environment()) != key
    code = cache.fetch(key)
    assert code is not None
    path = next(Path(before).rglob(f"{key}*"))
    whole = path.read_bytes()
    for damaged in (whole[:-1], whole[:-8] + bytes(8), bytes([whole[0] ^ 1]) + whole[1:], b""):
        path.write_bytes(damaged)
        assert cache.fetch(key) is None
    path.write_bytes(whole)
    assert cache.fetch(key) in (code, None)


JUDGES: dict[str, Callable[[], Iterator[Check]]] = {
    "legality": legality, "machinery": machinery, "generators": generators, "reference": reference,
    "staleness": staleness, "networks": networks, "calls": calls, "lowering": lowering, "native": native,
}  # fmt: skip
#: Judges whose checks are all different.
SHORT = ("legality", "machinery", "staleness", "calls", "lowering", "native")
