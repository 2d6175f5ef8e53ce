"""What a mutant of the machinery around a call must not survive: arguments, keys, state, libraries, code on disk.

Each check asks a part for what it promises, where a wrong result of a compiled function would come late or never.
"""

from __future__ import annotations

import ast
import contextlib
import ctypes
import itertools
import os
import sys
import sysconfig
import tempfile
import threading
import time
import types
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import pullback as pb
from pullback.arrays.closures import is_library
from pullback.arrays.trees import flatten
from pullback.compile import cache
from pullback.compile.cpu.runner import CpuRunner
from pullback.compile.cpu.runtime import link
from pullback.compile.reference.checked_runner import CheckedRunner
from pullback.compile.schedule import arena
from pullback.compile.stage.arguments import make_flattener, static_key
from pullback.compile.stage.locations import (
    MISSING,
    CellLocation,
    ClassLocation,
    ItemLocation,
    Location,
    SlotLocation,
)
from pullback.compile.stage.residuals import is_cheap
from pullback.errors import ArgumentError, GraphError, IndexingError, LeakError, MiscompiledError
from pullback.program.constants import Constants
from pullback.program.fingerprint import fingerprint
from pullback.program.hoist import hoist
from pullback.program.ir import Program
from pullback.program.passes import merge_equal, replace_full_scatters
from pullback.program.split import split_forward_backward
from pullback.program.stage import stage

__all__ = ["calls"]

Check = Callable[[], None]
X = np.array([1.0, 2.0, 3.0])


def calls() -> Iterator[Check]:
    yield _arguments_by_plan
    yield _static_arguments
    yield _keys_of_static_arguments
    yield _donated_memory
    yield _keys_of_constants
    yield _places
    yield _state
    yield _state_that_begins
    yield _state_of_a_class
    yield _first_calls
    yield _state_of_another_kind
    yield _state_of_tensors
    yield _state_under_transforms
    yield _captured_views
    yield _libraries
    yield _branches_out_of_range
    yield _ops_of_numpy_in_loops
    yield _scattered_wholly
    yield _equal_equations
    yield _ops_written_in_others
    yield _batches_of_products
    yield _results_of_two_kinds
    yield _forms_are_kept
    yield _captured_duals
    yield _checked_code
    yield _kept_for_backward
    yield _recomputed_in_backward
    yield _captured_values
    yield _arena
    yield _lock_at_fork
    yield _circumstances
    yield _code_made_once
    yield _pool_where_named
    yield _directories
    yield _private_directories
    yield _oldest_files


def _close(found: Any, wanted: Any) -> None:
    np.testing.assert_allclose(np.asarray(found), np.asarray(wanted), rtol=1e-12, atol=1e-12)


def _raises(kind: type[Exception], call: Callable[[], Any]) -> str:
    try:
        call()
    except kind as error:
        return str(error)
    raise AssertionError(f"no {kind.__name__}")


@contextlib.contextmanager
def _set(holder: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(holder, name)
    setattr(holder, name, value)
    try:
        yield
    finally:
        setattr(holder, name, before)


@contextlib.contextmanager
def _environment(**wanted: str | None) -> Iterator[None]:
    before = {name: os.environ.pop(name, None) for name in wanted}
    os.environ.update({name: value for name, value in wanted.items() if value is not None})
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            os.environ.update({} if value is None else {name: value})


@contextlib.contextmanager
def _own_cache() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder, _environment(PULLBACK_CACHE_DIR=folder):
        yield Path(folder) / "code"


class _Point(NamedTuple):
    x: Any
    y: Any


class _Odd(tuple[Any, ...]):
    __slots__ = ()


class _Array(np.ndarray[Any, Any]):
    pass


def _arguments_by_plan() -> None:
    """A flattener takes apart what it was made for, as the tree package would, and nothing else."""
    a, b = np.ones(2), np.zeros(3)
    trees: list[tuple[Any, ...]] = [
        (a,), (a, b), ([a, b],), ((a, b),), (_Point(a, b),), ({"x": a, "y": b},), ({"y": b, "x": a},), ({"x": a},),
        (a, None), (a, ()), (a, []), (a, {}), (a, [b]), (a, (b,)), (a, {"x": [None, b]}), (a, {"x": [b]}),
        (pb.implicit.Diagonal(a), b), (pb.sparse.diagonal(b),), (pb.sparse.diagonal(b).T,),
    ]  # fmt: skip
    for one, other in itertools.product(range(len(trees)), repeat=2):
        flattener = make_flattener(trees[one])
        assert flattener is not None
        leaves = flattener(trees[other])
        if one == other:
            assert leaves is not None
            assert [id(x) for x in leaves] == [id(x) for x in flatten(trees[one])[0]]
        else:  # what is taken for an array, native code refuses
            assert leaves is None or any(type(x) is not np.ndarray for x in leaves), (trees[one], trees[other])
    for strange in (_Odd((a,)), types.SimpleNamespace(_fields=("x",), x=a), {1: a, "x": b}, 1.0, _Array(2)):
        assert make_flattener((a, strange)) is None


def _static_arguments() -> None:
    f = pb.jit(lambda x, n: x * n[0], static_argnums=1)
    _close(f(X, (2.0,)), 2 * X)
    assert "hashable" in _raises(ArgumentError, lambda: f(X, [2.0]))


def _keys_of_static_arguments() -> None:
    """Settings that are equal but not the same have keys of their own, and each is found again."""
    nan = float("nan")
    settings: list[Any] = [
        1, True, 1.0, 1 + 0j, 0.0, -0.0, 0, nan, "1", None, (1,), (1.0,), (True,), (0.0,), (-0.0,), ((1,),), (nan,), (),
        (1, 2), (2, 1), (1, 1), frozenset({1}), frozenset({1.0}), frozenset(), -0j, complex(0.0, -0.0), int, abs,
    ]  # fmt: skip
    known = {static_key(x): i for i, x in enumerate(settings)}
    assert list(known.values()) == list(range(len(settings)))
    assert [known[static_key(x)] for x in settings] == list(known.values())
    assert known[static_key((float("nan"),))] == settings.index((nan,))


def _donated_memory() -> None:
    """A donated array is written over; one in another order of bytes, or of no elements, is none the worse for it."""
    f = pb.jit(lambda x: x * 2, donate_argnums=0)
    for x in (X.copy(), X[None].astype("f4")):
        wanted = x * 2
        found = f(x)
        assert found is x
        _close(found, wanted)
    swapped = X.astype(">f8")
    _close(f(swapped), 2 * X)
    _close(swapped, X)
    for constant in (np.broadcast_to(2.0, (1,)), np.broadcast_to(2.0, 3), np.broadcast_to(2.0, (0, 3))):
        _close(pb.jit(lambda x, c=constant: pb.sum(x) * c)(X), 6 * constant)


def _keys_of_constants() -> None:
    """Programs that differ in a static parameter alone have keys of their own; what cannot be compared has none."""
    one, same = np.float32([1, 0]), np.arange(2)
    values: list[Any] = [
        1, True, 1.0, 1 + 0j, "1", b"1", None, ..., 0.0, -0.0, np.float64(1), np.int64(1), np.dtype("f8"), float, int,
        (1, 2), [1, 2], (1, (2,)), slice(1, 2), slice(1, 2, 1), one, one.view("i4"), one.view("u4"), one[None], same,
        same.view("f8"), one[:1],
    ]  # fmt: skip
    keys = [_key_with(v) for v in values]
    assert None not in keys
    assert all((a == b) == (i == j) for (i, a), (j, b) in itertools.product(enumerate(keys), repeat=2))
    assert _key_with(one.copy()) == _key_with(one)
    assert _key_with(np.array([object()])) is _key_with(object()) is None
    keys_inside: list[Any] = []  # of a program that captured a value of another one
    _traced(lambda x: [keys_inside.append(fingerprint(_traced(lambda y: [y + x], X)))], X)
    assert keys_inside == [None]


def _key_with(value: Any) -> Any:
    program = _traced(lambda x: [x + 1], X)
    lines = tuple(replace(e, static={"setting": value}) for e in program.equations)
    return fingerprint(replace(program, equations=lines))


def _traced(f: Callable[..., list[Any]], *args: Any) -> Program:
    return stage(f, *map(pb.spec_of, args))


class _Slotted:
    __slots__ = ("__weakref__", "hidden", "scale")


class _Shared:
    """Attributes of a class: one that is there and one that is not."""

    total: Any = None


def _places() -> None:
    """What is put into a place stands there, and nothing stands where nothing was put."""
    cell = types.CellType(1)
    holders: list[Location] = [
        CellLocation(cell), ItemLocation({"a": 1}, "a"), ItemLocation({"b": 1}, "a"), ItemLocation([1, 2, 3], 1),
        ItemLocation([1], 1 - 1), SlotLocation(vars(_Slotted)["hidden"], _Slotted()),
        ClassLocation(type("Own", (), {}), "a"),
    ]  # fmt: skip
    for place in holders:
        for value in (MISSING, MISSING):
            place.put(value)
            assert place.get() is MISSING
        if not isinstance(place, ItemLocation) or isinstance(place.holder, dict):
            for value in (X, None, MISSING, 0):
                place.put(value)
                assert place.get() is value
    full = ItemLocation([1, 2, 3], 2)
    full.put(X)
    assert full.get() is X
    assert full.holder[:2] == [1, 2]


class _Recurrent:
    def __init__(self) -> None:
        self.hidden: Any = None
        self.parts: dict[str, Any] = {"a": [np.zeros(3), 2.0], "b": np.zeros(3), "c": 3.0}
        self.only = [np.zeros(3)]
        self.settings = {"scale": 1.0}
        self.slotted = _Slotted()
        self.slotted.scale = 1.0

    def __call__(self, x: Any) -> Any:
        first = not hasattr(self.slotted, "hidden")
        self.only[0] = self.only[0] * x - 1
        self.slotted.hidden = x if first else self.slotted.hidden * 0.5 + x
        self.hidden = x if self.hidden is None else pb.tanh(self.hidden + x)
        self.parts["a"][0] = self.parts["a"][0] * 0.5 + self.hidden
        self.parts["b"] = self.parts["b"] - self.hidden
        scale = self.slotted.scale * self.settings["scale"]
        return self.hidden * self.parts["a"][1] * self.parts["c"] + self.slotted.hidden * scale

    def numbers(self) -> list[Any]:
        return [self.hidden, self.only[0], self.parts["a"][0], self.parts["b"], self.slotted.hidden]


def _state() -> None:
    """State in attributes, slots, items and variables moves on at each call, by code that is made once; what stands
    beside it is watched.
    """
    one, other = _Recurrent(), _Recurrent()
    total = np.zeros(3)

    def f(x: Any) -> Any:
        nonlocal total
        total = total + x
        return one(x)

    compiled = pb.jit(f)
    forms = []
    changes: dict[int, Callable[[_Recurrent], Any]] = {
        4: lambda net: net.parts.update(c=5.0), 6: lambda net: net.parts["a"].__setitem__(1, 7.0),
        8: lambda net: setattr(net.slotted, "scale", 3.0), 10: lambda net: net.settings.update(scale=0.5),
    }  # fmt: skip
    for i in range(12):
        for net in (one, other):
            changes.get(i, lambda net: None)(net)
        _close(compiled(X * i), other(X * i))
        _close(one.numbers(), other.numbers())
        _close(total, X * sum(range(i + 1)))
        forms.append(compiled.last)
    assert all(forms[i] is forms[i + 1] for i in range(2, 12, 2))
    assert all(forms[i] is not forms[i + 1] for i in range(3, 11, 2))


def _state_of_a_class() -> None:
    """An attribute of a class is state as well, and no trace leaves a symbol in it."""

    def f(x: Any) -> Any:
        _Shared.total = x if _Shared.total is None else _Shared.total * 0.5 + x
        return _Shared.total * 2

    try:
        compiled, wanted = pb.jit(f), X
        for i in range(4):
            wanted = X if i == 0 else wanted * 0.5 + X
            _close(compiled(X), wanted * 2)
            _close(_Shared.total, wanted)
    finally:
        _Shared.total = None


def _first_calls() -> None:
    """A function that changes what it reads: once, in another way each time, or to what is equal."""
    holder = types.SimpleNamespace(state=np.zeros(3), parts={"n": 0, "state": np.zeros(3)})

    def begins(x: Any) -> Any:
        if not hasattr(holder, "scale"):
            holder.scale = 3.0
            return x * 1.0
        return x * holder.scale

    def equal(x: Any) -> Any:
        holder.again = np.full(3, 2.0)
        return x * holder.again

    def counts(x: Any) -> Any:
        holder.parts["n"] += 1
        holder.parts["state"] = holder.parts["state"] + x
        return x * holder.parts["n"]

    f, g, h = pb.jit(begins), pb.jit(equal), pb.jit(counts)
    for i in range(4):
        _close(f(X), X * (3 if i else 1))
        _close(g(X), X * 2)
    assert sum(map(len, g.entries.values())) <= 2
    _close(h(X), X)
    said = _raises(GraphError, lambda: h(X))
    assert "('n')" in said, said


def _state_that_begins() -> None:
    """State of a variable and of a slot that nothing stands in before the first call, and of a trace that fails."""
    slotted, fails = _Slotted(), True
    if not fails:
        unset: Any = None

    def f(x: Any) -> Any:
        nonlocal unset
        try:
            unset = unset * x
        except NameError:
            unset = x
        slotted.hidden = unset
        if fails:
            raise ValueError("on purpose")
        return unset + 1

    assert "on purpose" in _raises(ValueError, lambda: pb.jit(f)(X))
    assert not hasattr(slotted, "hidden")
    _raises(NameError, lambda: unset)
    fails = False
    compiled = pb.jit(f)
    for i in range(4):
        _close(compiled(X), X ** (i + 1) + 1)
        _close(slotted.hidden, unset)
        _close(unset, X ** (i + 1))


def _moved_on(holder: Any, x: Any) -> Any:
    holder.hidden = holder.hidden + x / x
    return x * 2


def _state_of_another_kind() -> None:
    """State that a user replaces by one of the same arrays in another container is traced anew."""
    odd = types.SimpleNamespace(hidden=np.ones((3, 2)).T.view(_Array))
    _close(pb.jit(lambda x: _moved_on(odd, x))(X), 2 * X)
    _close(odd.hidden, 2 * np.ones((2, 3)))
    holder = types.SimpleNamespace(hidden=(X, X + 1))

    def f(x: Any) -> Any:
        kind = type(holder.hidden)
        holder.hidden = kind(h + x for h in holder.hidden)
        return x * (2 if kind is list else 3)

    compiled = pb.jit(f)
    for kind, scale in ((tuple, 3), (tuple, 3), (list, 2), (list, 2), (tuple, 3)):
        holder.hidden = kind(holder.hidden)
        before = holder.hidden
        _close(compiled(X), scale * X)
        assert type(holder.hidden) is kind
        _close(holder.hidden, np.stack(before) + X)


def _state_of_tensors() -> None:
    """Tensors updated in place: a parameter stays one, a value on the tape keeps its graph, a bare one is bare."""
    found = {}
    for way in (lambda f: f, pb.jit):
        w = pb.tensor(X, requires_grad=True)
        h, t = w * 2.0, pb.tensor(X)

        def f(x: Any) -> Any:
            nonlocal w, h, t
            y = pb.sum(w * x) + pb.sum(h * x)
            with pb.no_grad():
                w -= 0.1 * x
            h += x * 3
            t *= x
            return y + pb.sum(t)

        g = way(f)
        outs = [g(X).item() for _ in range(3)]
        kinds = [(v.requires_grad, v.is_leaf) for v in (w, h, t)]
        pb.sum(h * h).backward()
        found[way] = [*outs, *w.detach().numpy(), *w.grad.numpy(), *h.detach().numpy(), *t.numpy()], kinds
    (eager, kinds), (compiled, others) = found.values()
    assert kinds == others
    _close(compiled, eager)
    holder = types.SimpleNamespace(last=None)
    fixed = pb.tensor(X)

    def remembers(x: Any) -> Any:
        holder.last = fixed
        return x * 2

    _close(pb.jit(remembers)(X), 2 * X)
    assert holder.last is fixed


def _state_under_transforms() -> None:
    """What a transform leaves in a place is an array, or the transform is refused and the place stays whole."""
    holder = types.SimpleNamespace(hidden=np.zeros(3))

    def kept(x: Any) -> Any:
        holder.hidden = pb.stop_gradient(x * 2)
        return x * x

    f = pb.jit(kept)
    ways: list[Callable[[], Any]] = [
        lambda: f(X), lambda: f(pb.tensor(X)), lambda: pb.grad(lambda x: pb.sum(f(x)))(X),
        lambda: pb.jvp(f, (X,), (X,)), lambda: pb.vmap(lambda y: f(X) * y)(X),
        lambda: pb.vmap(lambda y: pb.grad(lambda x: pb.sum(f(x)))(X) * y)(X),
    ]  # fmt: skip
    sine = pb.jit(pb.sin)

    def unrecorded(y: Any) -> Any:
        with pb.no_grad():
            return sine(y * 1.0)

    _close(pb.jvp(lambda x: pb.vjp(unrecorded, x)[0], (X,), (X,))[1], X * np.cos(X))  # forward mode goes through
    for way in ways:
        holder.hidden = np.zeros(3)
        way()
        assert type(holder.hidden) is np.ndarray
        _close(holder.hidden, 2 * X)

    def moving(x: Any) -> Any:
        holder.hidden = holder.hidden + x
        return x * x

    g = pb.jit(moving)
    refused: list[Callable[[], Any]] = [
        lambda: pb.vmap(f)(X[None]), lambda: pb.vmap(pb.grad(lambda x: pb.sum(f(x))))(X[None]),
        lambda: pb.vmap(g)(X[None]), lambda: pb.vmap(pb.grad(lambda x: pb.sum(g(x))))(X[None]),
        lambda: pb.jvp(g, (X,), (X,)), lambda: pb.jvp(pb.grad(lambda x: pb.sum(g(x))), (X,), (X,)),
    ]  # fmt: skip
    for way in refused:
        holder.hidden = before = np.ones(3)
        assert "'hidden'" in _raises(LeakError, way)
        assert holder.hidden is before


def _captured_views() -> None:
    """A view of a large array is read at each call by the code that was made for it."""
    whole = np.arange(60_000.0)
    half = whole[::2]
    f = pb.jit(lambda x: x * half[3:6])
    _close(f(X), X * [6, 8, 10])
    form = f.last
    whole += 1.0
    _close(f(X), X * [7, 9, 11])
    assert f.last is form
    table = np.arange(60_000.0).reshape(20_000, 3)
    g = pb.jit(lambda x: x * table[1][:3])
    for shape in (None, (3, 20_000)):
        table.shape = shape or table.shape
        _close(g(X), X * table[1][:3])


def _libraries() -> None:
    """Code of installed packages and of Python is taken for fixed, the user's is not."""
    for number, (file, wanted) in enumerate({
        "/usr/lib/python3/site-packages/p.py": True, "/usr/lib/python3/dist-packages/p.py": True,
        "/home/me/packages/p.py": False, None: False,
    }.items()):  # fmt: skip
        module = types.ModuleType(f"made_for_a_check_{number}")
        module.__file__ = file
        sys.modules[module.__name__] = module
        try:
            assert is_library(f"{module.__name__}.inner") == wanted, file
        finally:
            del sys.modules[module.__name__]
    assert is_library("numpy.linalg")
    assert is_library("functools")
    assert not any((is_library("functools", False), is_library("__main__"), is_library(None)))


def _branches_out_of_range() -> None:
    f = pb.jit(lambda i, x: pb.switch(i, [pb.sin, pb.cos], x))
    for i in (2, -1, 7):
        _raises(IndexingError, lambda i=i: f(np.array(i), X))
    for i, wanted in enumerate((np.sin(X), np.cos(X))):
        _close(f(np.array(i), X), wanted)


def _ops_of_numpy_in_loops() -> None:
    """Ops that have no native code, inside a loop, with arrays and numbers that are constant among their arguments."""

    def f(x: Any) -> Any:
        def body(c: Any, y: Any) -> Any:
            sides = np.array([[2.0, 1.0, 0.0], [0.0, 1.0, 1.0], [1.0, 0.0, 3.0]])
            return pb.linalg.solve(sides, c) + y, pb.special.betainc(pb.abs(c) + 1, 2.0, 0.5)

        return pb.scan(body, x, np.ones((4, 3)))

    for found, wanted in zip(pb.jit(f)(X), f(X), strict=True):
        _close(found, wanted)


def _scattered_wholly() -> None:
    """Zeros with a value added at every place are the value; at some places, or in another order, they are not."""
    x, order = np.arange(6.0).reshape(2, 3), np.array([1, 0])
    indices: list[tuple[Any, bool]] = [
        ((slice(None), None), True), ((None,), True), ((slice(0, 1),), False), ((slice(None, None, -1),), False),
        ((order,), False), ((slice(None), 1), False),
    ]  # fmt: skip
    for index, whole in indices:
        bar = np.cos(x[index])
        program = lambda bar, index=index: list(pb.vjp(lambda x: x[index], x)[1](bar))  # noqa: E731
        graph = replace_full_scatters(_traced(program, bar))
        assert ("scatter" not in [e.op.name for e in graph.equations]) == whole
        wanted = np.zeros((2, 3))
        wanted[index] = bar
        _close(graph.run(bar), wanted)


def _equal_equations() -> None:
    """The same op on the same values is computed once, on others that only look the same it is not."""
    one, other = np.zeros(3000), np.zeros(3000)
    other[1500] = 1.0
    x = np.ones(3000)
    lines = lambda x: [x + one, x + other, x + one, x + 1, x + 1.0, x + np.float32(1)]  # noqa: E731
    graph = _traced(lines, x)
    merged = merge_equal(graph)
    assert len(merged.equations) == len(graph.equations) - 1
    for found, wanted in zip(merged.run(x), lines(x), strict=True):
        _close(found, wanted)


def _ops_written_in_others() -> None:
    """Ops that are written in other ops when they are compiled, of one result and of two."""
    one = lambda a: pb.root(lambda y: y * y * y - a, np.ones(3))  # noqa: E731
    two = lambda a: pb.root(lambda y: (y[0] * y[0] - a, y[1] - y[0] - 1), (np.ones(3), np.ones(3)))  # noqa: E731
    np.testing.assert_allclose(pb.jit(one)(X), np.cbrt(X), rtol=1e-6)
    np.testing.assert_allclose(pb.jit(two)(X), (np.sqrt(X), np.sqrt(X) + 1), rtol=1e-6)


def _batches_of_products() -> None:
    rng = np.random.default_rng(0)
    for count, n in itertools.product((1, 3), (2, 5, 40, 90)):
        a, b = rng.normal(size=(count, n, n + 1)), rng.normal(size=(count, n + 1, n))
        np.testing.assert_allclose(pb.jit(pb.matmul)(a, b), a @ b, rtol=1e-9, atol=1e-9)


def _results_of_two_kinds() -> None:
    """Whole numbers beside a result with a derivative, and none."""
    f = pb.jit(lambda x: (pb.sum(x * x), pb.argmax(x), pb.sin(x)))
    x = pb.tensor(X, requires_grad=True)
    total, at, sine = f(x)
    assert int(at) == 2
    (total + pb.sum(sine)).backward()
    _close(x.grad.numpy(), 2 * X + np.cos(X))


def _forms_are_kept() -> None:
    """A function that goes back and forth between two settings is compiled once for each."""
    setting = [2.0]
    f = pb.jit(lambda x: x * setting[0])
    forms = []
    for scale in (2.0, 3.0) * 3:
        setting[0] = scale
        _close(f(X), scale * X)
        forms.append(f.last)
    assert forms[:2] * 2 == forms[2:]


def _captured_duals() -> None:
    """A compiled function that closes over a value of a transform around it, and names `grad`."""

    def f(a: Any) -> Any:
        return pb.jit(lambda x: pb.grad(lambda z: pb.sum(z * z * a))(x))(X)

    _close(pb.jvp(f, (X,), (X,))[1], 2 * X * X)


def _checked_code() -> None:
    """`check=True` runs the reference beside native code, and nothing else does."""
    plain, checked = pb.jit(pb.sin), pb.jit(pb.sin, check=True)
    for f, kind in ((plain, CpuRunner), (checked, CheckedRunner)):
        _close(f(X), np.sin(X))
        assert type(f.last.code) is kind
    with _environment(PULLBACK_CHECK="1"):
        assert type(pb.jit(pb.sin).lower(X).code) is CheckedRunner


def _kept_for_backward() -> None:
    """Beside the results only what is neither an argument nor a result is kept for the backward pass."""
    w = np.ones((3, 2))
    cases: list[tuple[Any, tuple[Any, ...], set[tuple[str, int]]]] = [
        (pb.tanh, (X,), {("result", 0)}),
        (lambda x, w: pb.tanh(x @ w), (X, w), {("result", 0), ("argument", 0), ("argument", 1)}),
        (lambda x: pb.sin(x), (X,), {("result", 1)}),
        (lambda x: x * 2.0, (X,), set()),
    ]
    for f, args, held in cases:

        def both(*symbols: Any, f: Any = f) -> list[Any]:
            out, pull = pb.vjp(f, *symbols[:-1])
            return [out, *pull(symbols[-1])]

        parts = split_forward_backward(_traced(both, *args, f(*args)), len(args), 1, is_cheap)
        assert set(parts.residual_sources) == held
        assert len(parts.forward.outputs) == (2 if ("result", 1) in held else 1)


def _captured_values() -> None:
    """Arrays with axes and values of ours become inputs: live tensors themselves, those that died as their arrays."""
    spec, number, constants = pb.spec_of(X), np.array(2.0), Constants()
    assert hoist(stage(lambda x: [x * number], spec))[1] == []
    live, tracked = pb.tensor(X), pb.tensor(X, requires_grad=True)
    program = stage(lambda x: [x * live * pb.tensor(X + 1.0)], spec, constants=constants)
    found = hoist(program, origin=constants.origin)[1]
    assert found[0] is live
    assert [type(v) for v in found] == [pb.Tensor, np.ndarray]
    (value,) = hoist(stage(lambda x: [x * tracked], spec))[1]
    assert value.node is tracked.node
    assert hoist(stage(lambda: [X + 1.0]))[1] == []  # no inputs, no scope
    inner: list[Any] = []
    outer = stage(lambda x: inner.extend(hoist(stage(lambda: [x]))) or [x], spec)
    assert [len(inner[0].inputs), inner[1][0] is outer.inputs[0]] == [1, True]


def _recomputed_in_backward() -> None:
    """A residual is recomputed if that needs no more bytes; what is at hand, or has another result, is not."""
    every, products = (lambda e: True), (lambda e: e.op.name in ("multiply", "stop_gradient"))
    cases: list[tuple[Any, Any, list[int]]] = [
        (pb.tanh, every, [0]),
        (lambda x: pb.sin(pb.split(x, [1])[0]), every, [1]),
        (lambda x: (pb.sin(x) * pb.exp(x)) ** 2, products, [1, 2, 3]),  # of two values that are saved anyway: r = a b
        (lambda x: pb.stop_gradient(pb.sin(x) * pb.exp(x)) * x, products, [1]),  # of two values that are not
    ]
    for f, cheap, held in cases:

        def both(*symbols: Any, f: Any = f) -> list[Any]:
            out, pull = pb.vjp(f, symbols[0])
            return [out, *pull(symbols[1])]

        parts = split_forward_backward(_traced(both, X, f(X)), 1, 1, cheap)
        assert sorted(parts.residual_sources) == [("result", i) for i in held], (held, str(parts.forward))
        found = parts.forward.run(X)
        forward = found if isinstance(found, tuple) else (found,)
        residuals = [X if where == "argument" else forward[i] for where, i in parts.residual_sources]
        bar = np.cos(forward[0])
        _close(parts.backward.run(*residuals, bar), pb.vjp(f, X)[1](bar)[0])


def _arena() -> None:
    """A mistake in planning memory is seen before the code runs."""
    real = arena.plan_arena

    def wrong(steps: Any, alignment: int) -> int:
        size: int = real(steps, alignment)
        for step in steps:
            for buffer in step.writes():
                buffer.offset = 0
        return size

    f = lambda x, w: pb.sum((x @ w) * (x @ w.T), axis=0) @ w  # noqa: E731
    x, w = np.ones((4, 3)), np.eye(3)
    _close(pb.jit(f)(x, w), f(x, w))
    with _set(arena, "plan_arena", wrong):
        assert "share bytes of the arena" in _raises(MiscompiledError, lambda: pb.jit(f)(x, w))


def _lock_at_fork() -> None:
    """A process that is forked while a thread is inside LLVM finds its lock free."""
    lock, inside = threading.Lock(), threading.Event()
    link._hold_lock_at_fork(lock)

    def work() -> None:
        with lock:
            inside.set()
            time.sleep(0.2)

    thread = threading.Thread(target=work)
    thread.start()
    inside.wait()
    child = os.fork()
    if not child:
        os._exit(not lock.acquire(timeout=2))
    thread.join()
    assert os.waitpid(child, 0)[1] == 0
    assert lock.acquire(timeout=2)


def _circumstances() -> None:
    """A key names all that machine code depends on."""
    said = [part for row in link.code_environment.__wrapped__() for part in ast.literal_eval(row)]
    llvm = link._initialized_llvm()
    machine = link._target_machine(llvm)
    wanted = (
        pb.__version__, sys.modules["llvmlite"].__version__, llvm.llvm_version_info, np.__version__,
        sys.implementation.cache_tag, sysconfig.get_config_var("SOABI"), machine.triple, llvm.get_host_cpu_name(),
        llvm.get_host_cpu_features().flatten(),
    )  # fmt: skip
    assert all(part in said for part in wanted), said


def _code_made_once() -> None:
    """Code that is not on disk is made and kept; code that is there is not made again."""
    made: list[str] = []
    real = link.compile_object
    text = "define i64 @one() {\nentry:\n  ret i64 %d\n}\n"
    with (
        _own_cache() as place,
        _set(link, "compile_object", lambda text, *effort: made.append(text) or real(text, *effort)),
    ):
        for number in (11, 11, 12, 11):
            code = link.link(text % number, ["one"])
            assert ctypes.CFUNCTYPE(ctypes.c_int64)(code.addresses["one"])() == number
        assert made == [text % 11, text % 12]
        assert len(list(place.glob("*.code"))) == 2


def _pool_where_named() -> None:
    """The pool of threads is made for programs that call it, and for no others."""
    asked: list[Any] = []
    pool = types.SimpleNamespace(entries=lambda link, real=link.POOL: asked.append(link) or real.entries(link))
    with _set(link, "POOL", pool):
        link.link("define i64 @two() {\nentry:\n  ret i64 2\n}\n", ["two"])
        assert not asked
        link.link("declare void @pb_parallel()\ndefine ptr @its() {\nentry:\n  ret ptr @pb_parallel\n}\n", ["its"])
        assert len(asked) == 1


def _directories() -> None:
    """Where code lies on disk: where the user says, nowhere, or under the user's cache."""
    for word in ("", "0", "off", "OFF", " no "):
        with _environment(PULLBACK_CACHE_DIR=word):
            assert cache.directory() is None
    with _environment(PULLBACK_CACHE_DIR="/here"):
        assert cache.directory() == Path("/here/code")
    with _environment(PULLBACK_CACHE_DIR=None, XDG_CACHE_HOME="/there"):
        assert cache.directory() == Path("/there/pullback/code")


def _private_directories() -> None:
    """Machine code is read from directories that no other user may write to, whatever else others may do."""
    with _own_cache() as place:
        assert cache.why_refused(place) is None
        cache.store("00" * 32, b"code")
        for bit in range(9):
            place.chmod(0o700 | 1 << bit)
            assert bool(cache.why_refused(place)) == (1 << bit in (0o020, 0o002))
        place.chmod(0o700)
        with _set(os, "geteuid", lambda: place.stat().st_uid + 1):
            assert cache.why_refused(place) == "it belongs to another user"
        assert cache.fetch("00" * 32) == b"code"


def _oldest_files() -> None:
    """Above the largest total, the files that were not used for longest go until there is room."""
    with _own_cache() as place:
        for i in range(8):
            cache.store(f"{i:064x}", bytes(1000))
            os.utime(place / f"{i:064x}.code", (1000 + i, 1000 + i))
        each = next(place.glob("*.code")).stat().st_size
        with _set(cache, "MAX_BYTES", 8 * each):
            cache.store(f"{8:064x}", bytes(1000))
        left = sorted(int(f.stem, 16) for f in place.glob("*.code"))
        assert left == [3, 4, 5, 6, 7, 8]  # three quarters
