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

from composed import folds, try_program
from composed_programs import drawn, drawn_chain
from networks import WAYS, drawn_network
from networks import find_fault as find_training_fault
from random_programs import program, scalar_of
from stale_rows import ROWS, Pair, X

import pullback as pb
from pullback.compile import cache
from pullback.compile.cpu import link
from pullback.errors import PullbackError

__all__ = ["JUDGES"]

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
    yield _disk


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
    _same(pb.jit(g)(flat), g(flat), 1e-9)


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
        (np.zeros(0), {}), (2.0, {}), (2, {}),
    ]  # fmt: skip
    for _ in range(2):
        for x, options in calls:
            found, wanted = f(x, **options), plain(np.asarray(x), **options)
            assert np.asarray(found).dtype == wanted.dtype or not np.ndim(x)
            np.testing.assert_array_equal(found, wanted)
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
    for bad in (np.array([4, 0, 0]), np.array([-5, 0, 0])):
        target = x.copy()
        try:
            pb.jit(lambda x, i: pb.set_at(x, i, 0.0), donate_argnums=0)(target, bad)
        except IndexError:
            assert np.array_equal(target, x)
        else:
            raise AssertionError("an index out of range was not refused")


def _disk() -> None:
    """Code on disk is found again for the same text alone, and damaged code never."""
    before = cache.directory()
    if before is None:
        return
    text = "define i64 @one() {\nentry:\n  ret i64 %d\n}\n"
    linked = [link.link(text % number, ["one"]) for number in (1, 2)]
    assert [ctypes.CFUNCTYPE(ctypes.c_int64)(code.addresses["one"])() for code in linked] == [1, 2]
    key = cache.key_of(text % 1, repr(link.EFFORT), *link.circumstances())
    assert cache.key_of(text % 1, "other", *link.circumstances()) != key
    assert cache.key_of(text % 2, repr(link.EFFORT), *link.circumstances()) != key
    code = cache.fetched(key)
    assert code is not None
    path = next(Path(before).rglob(f"{key}*"))
    whole = path.read_bytes()
    for damaged in (whole[:-1], whole[:-8] + bytes(8), bytes([whole[0] ^ 1]) + whole[1:], b""):
        path.write_bytes(damaged)
        assert cache.fetched(key) is None
    path.write_bytes(whole)
    assert cache.fetched(key) in (code, None)


JUDGES: dict[str, Callable[[], Iterator[Check]]] = {
    "machinery": machinery, "generators": generators, "reference": reference, "staleness": staleness,
    "networks": networks,
}  # fmt: skip
