"""Every way in which something a function reads can change between calls, each with its promise.

A row is a function that makes a function of an array and a change; the promise says what `jit` does about the change:
"noticed" (the next call computes what the function itself would), "refused" (by an error when it is traced), or "not
seen", with the reason.
"""

import collections
import contextvars
import functools
import io
import itertools
import os
import random
import sys
import time
import types
import warnings
import weakref
from typing import Any, NamedTuple

import numpy as np

import pullback as pb


class Row(NamedTuple):
    what: str
    promise: str
    build: Any
    why: str = ""


ROWS: list[Row] = []
X = np.array([1.0, 2.0, 3.0])


def row(what, promise="noticed", why=""):
    def add(build):
        ROWS.append(Row(what, promise, build, why))
        return build

    return add


def setting(holder, key, value):
    return functools.partial(holder.__setitem__, key, value)


# Variables

GLOBAL = 2.0


@row("a global name")
def _():
    def change():
        global GLOBAL
        GLOBAL += 1.0

    return lambda x: x * GLOBAL, change


@row("a global name that shadows a builtin")
def _():
    space = {"__name__": "user"}
    exec("def f(x):\n    return x * max(1.0, 2.0)", space)
    return space["f"], setting(space, "max", min)


@row("a variable of an enclosing function")
def _():
    a = 2.0

    def change():
        nonlocal a
        a = 3.0

    return lambda x: x * a, change


@row("a function that is called, redefined")
def _():
    space = {"__name__": "user"}
    exec("def g(x):\n    return x * 2\ndef f(x):\n    return g(x)", space)
    return space["f"], functools.partial(exec, "def g(x):\n    return x * 3", space)


@row("a variable that a function reads which is a key of a dict")
def _():
    a = [2.0]
    table = {lambda x: x * a[0]: 1.0}
    return lambda x: sum(g(x) * scale for g, scale in table.items()), setting(a, 0, 3.0)


@row("an attribute of a module within a module")
def _():
    outer, inner = types.ModuleType("outer_of_a_user"), types.ModuleType("inner_of_a_user")
    outer.inner, inner.scale = inner, 2.0
    return lambda x: x * outer.inner.scale, functools.partial(setattr, inner, "scale", 3.0)


@row("a variable that a helper of a helper reads")
def _():
    a = [2.0]

    def inner(x):
        return x * a[0]

    def outer(x):
        return inner(x) + 1

    return lambda x: outer(x), setting(a, 0, 3.0)


# Functions


@row("a default argument that is a list")
def _():
    s = [2.0]

    def f(x, s=s):
        return x * s[0]

    return f, setting(s, 0, 3.0)


@row("`__defaults__`")
def _():
    def f(x, s=2.0):
        return x * s

    return f, lambda: setattr(f, "__defaults__", (3.0,))


@row("a keyword-only default")
def _():
    def f(x, *, s=2.0):
        return x * s

    return f, setting(f.__kwdefaults__, "s", 3.0)


@row("an attribute of a function")
def _():
    def f(x):
        return x * f.alpha

    f.alpha = 2.0
    return f, lambda: setattr(f, "alpha", 3.0)


@row("`__code__`")
def _():
    def f(x):
        return x * 2.0

    return f, lambda: setattr(f, "__code__", (lambda x: x * 3.0).__code__)


@row("the keywords of a `functools.partial`")
def _():
    f = functools.partial(lambda x, s: x * s, s=2.0)
    return f, setting(f.keywords, "s", 3.0)


@row("the closure of a wrapper made with `functools.wraps`")
def _():
    s = [2.0]

    def g(x):
        return x + 1

    @functools.wraps(g)
    def f(x):
        return g(x) * s[0]

    return f, setting(s, 0, 3.0)


@row("the closure of a function under `pb.grad`, `vmap`, `checkpoint`")
def _():
    s = [2.0]
    f = pb.grad(lambda x: pb.sum(pb.checkpoint(pb.vmap(lambda x: x * x * s[0]))(x)))
    return lambda x: f(x), setting(s, 0, 3.0)


@row("the closure of a compiled function inside")
def _():
    s = [2.0]
    g = pb.jit(lambda x: x * s[0])
    return lambda x: g(x) + 1, setting(s, 0, 3.0)


# Containers


@row("an item of a list")
def _():
    s = [2.0, 3.0]
    return lambda x: x * s[1], setting(s, 1, 4.0)


@row("a list that grew")
def _():
    s = [2.0]
    return lambda x: x * sum(s), lambda: s.append(3.0)


@row("a list that shrank")
def _():
    s = [2.0, 3.0]
    return lambda x: x * sum(s), s.pop


@row("a list of 1,000 items")
def _():
    s = [2.0] * 1000
    return lambda x: x * sum(s), setting(s, 900, 3.0)


@row("a key added to a dict")
def _():
    s = {"a": 2.0}
    return lambda x: x * s.get("scale", 1.0), setting(s, "scale", 3.0)


@row("the order of a dict")
def _():
    s = {"a": 2.0, "b": 3.0}
    return lambda x: x * next(iter(s.values())), lambda: s.update(a=s.pop("a"))


@row("a nested container")
def _():
    s = {"a": [{"b": (1.0, [2.0])}]}
    return lambda x: x * s["a"][0]["b"][1][0], setting(s["a"][0]["b"][1], 0, 3.0)


@row("a set")
def _():
    s = {2.0}
    return lambda x: x * sum(s), lambda: s.add(3.0)


@row("a deque")
def _():
    s = collections.deque([2.0])
    return lambda x: x * sum(s), lambda: s.append(3.0)


@row("a `ChainMap`, a `defaultdict`, a `UserDict`")
def _():
    a, b = collections.defaultdict(float, a=2.0), collections.UserDict(b=2.0)
    chain = collections.ChainMap({}, a)

    def change():
        a["a"] = 3.0
        b["b"] = 5.0

    return lambda x: x * chain["a"] * b["b"], change


@row(
    "a container of more than 65,536 items", "not seen", "so many places are looked at at most; pass it as an argument"
)
def _():
    s = [2.0] * 70_000
    return lambda x: x * s[1], setting(s, 1, 3.0)


# Objects


class Plain:
    shared = 2.0

    def __init__(self):
        self.a = 2.0
        self._x = 2.0

    @property
    def x(self):
        return self._x

    def __getitem__(self, name):
        return self.a if name == "a" else None

    def method(self, x):
        return x * self.a

    @classmethod
    def made(cls, x):
        return x * cls.shared


class Child(Plain):
    def method(self, x):
        return super().method(x) + 1


class Slotted:
    __slots__ = ("a",)

    def __init__(self):
        self.a = 2.0


class Called(Plain):
    def __call__(self, x):
        return x * self.a


class Inherits(Called):
    pass


def changing(thing, name="a", value=3.0):
    return functools.partial(setattr, thing, name, value)


@row("an attribute of an object")
def _():
    c = Plain()
    return lambda x: x * c.a, changing(c)


@row("an attribute of an object that a helper reads")
def _():
    c = Plain()

    def helper(thing, x):
        return x * thing.a

    return lambda x: helper(c, x), changing(c)


@row("an attribute read by `getattr` with a constant name, or through `vars`")
def _():
    c, d = Plain(), Plain()

    def change():
        c.a = 3.0
        d.a = 5.0

    return lambda x: x * getattr(c, "a") * vars(d)["a"], change  # noqa: B009


@row("an attribute read by `getattr` with a computed name", "not seen", "names are read off the code")
def _():
    c = types.SimpleNamespace(alpha=2.0)
    return lambda x: x * getattr(c, "al" + "pha"[:]), changing(c, "alpha")


@row("an attribute behind a property")
def _():
    c = Plain()
    return lambda x: x * c.x, changing(c, "_x")


@row("an attribute behind `__getitem__`")
def _():
    c = Plain()
    return lambda x: x * c["a"], changing(c)


@row("an attribute in `__slots__`")
def _():
    c = Slotted()
    return lambda x: x * c.a, changing(c)


@row("an attribute of a class")
def _():
    class C(Plain):
        a_class = 2.0

    return lambda x: x * C.a_class, changing(C, "a_class")


@row("an attribute of a class, read through an instance")
def _():
    class C:
        a = 2.0

    c = C()
    return lambda x: x * c.a, changing(C)


@row("the default of a class, shadowed on the instance")
def _():
    class C:
        training = True

    c = C()
    return lambda x: x * (2.0 if c.training else 3.0), changing(c, "training", False)


@row("a method, redefined on the class")
def _():
    class C(Plain):
        pass

    c = C()
    return lambda x: c.method(x), changing(C, "method", lambda self, x: x * 7)


@row("what a method of the class above reads, by `super()`")
def _():
    c = Child()
    return c.method, changing(c)


@row("what a classmethod reads")
def _():
    class C(Plain):
        pass

    return lambda x: C.made(x), changing(C, "shared")


@row("what an inherited `__call__` reads")
def _():
    c = Inherits()
    return lambda x: c(x), changing(c)


@row("the target of a weak reference")
def _():
    c = Plain()
    r = weakref.ref(c)
    return lambda x: x * r().a, changing(c)


@row("an attribute of a module of Python")
def _():
    m = types.ModuleType("config")
    m.scale = 2.0
    return lambda x: x * m.scale, changing(m, "scale")


@row("a function of pullback or NumPy, replaced")
def _():
    kept = pb.sin

    def change():
        pb.sin = pb.cos

    def restore():
        pb.sin = kept

    return lambda x: pb.sin(x), change, restore


@row("the environment")
def _():
    os.environ["PULLBACK_TEST_SCALE"] = "2"
    return (
        lambda x: x * float(os.environ["PULLBACK_TEST_SCALE"]),
        setting(os.environ, "PULLBACK_TEST_SCALE", "3"),
        functools.partial(os.environ.pop, "PULLBACK_TEST_SCALE"),
    )


@row("a context variable")
def _():
    v = contextvars.ContextVar("v", default=2.0)
    return lambda x: x * v.get(), functools.partial(v.set, 3.0)


# Arrays and tensors


@row("the content of an array")
def _():
    a = np.full(3, 2.0)
    return lambda x: x * a, functools.partial(a.__setitem__, 0, 5.0)


@row("the content of an array without axes")
def _():
    a = np.array(2.0)
    return lambda x: x * a, functools.partial(a.__setitem__, (), 5.0)


@row("an array in NumPy's own arithmetic")
def _():
    a = np.full(3, 2.0)
    return lambda x: x * (2 * a), functools.partial(a.__setitem__, 0, 5.0)


@row("an element of an array, or a number made of it")
def _():
    a = np.full(3, 2.0)
    return lambda x: x * a[0] * float(a.sum()), functools.partial(a.__setitem__, 0, 5.0)


@row("a view of an array")
def _():
    a = np.arange(10.0)
    return lambda x: x * a[2:5], functools.partial(a.__setitem__, 3, 5.0)


@row("the content of an array of more than 64 KiB that ops use as it is")
def _():
    a = np.full((3, 10_000), 2.0)
    return lambda x: x @ a, functools.partial(a.__setitem__, (0, 0), 5.0)


@row("NumPy's arithmetic on an array of more than 64 KiB")
def _():
    a = np.full((3, 10_000), 2.0)
    return lambda x: x @ (2 * a), functools.partial(a.__setitem__, (0, 0), 5.0)


@row(
    "NumPy's arithmetic on an array of more than 64 KiB that ops use as it is besides", "not seen",
    "comparing it would take longer than the call; use `pb` functions on it, or pass it as an argument",
)  # fmt: skip
def _():
    a = np.full((3, 10_000), 2.0)
    return lambda x: x @ a * float(a[0, 0]), functools.partial(a.__setitem__, (slice(None), 0), [5.0, 2.0, 2.0])


@row("an array of more than 64 KiB that the function writes to", "refused")
def _():
    a = np.zeros((3, 10_000))

    def f(x):
        a[0] += 1.0
        return x @ a

    return f, None


@row("an array in an attribute, replaced")
def _():
    c = Plain()
    c.a = np.full(3, 2.0)
    return lambda x: x * c.a, changing(c, "a", np.full(3, 4.0))


@row("the dtype or the shape of an array, set in place")
def _():
    a = np.full((1, 3), 2.0)

    def reshape_in_place():
        with warnings.catch_warnings():  # NumPy 2.5 deprecates it
            warnings.simplefilter("ignore", DeprecationWarning)
            a.shape = (3, 1)

    return lambda x: x * a, reshape_in_place


@row("a tensor, updated in place")
def _():
    w = pb.tensor(np.full(3, 2.0), requires_grad=True)

    def change():
        with pb.no_grad():
            w.__iadd__(1.0)

    return lambda x: x * w, change


@row("what is computed of a tensor alone")
def _():
    w = pb.tensor(np.full((3, 3), 2.0), requires_grad=True)

    def change():
        with pb.no_grad():
            w.__iadd__(1.0)

    return lambda x: x @ w.T * pb.sum(w * w), change


@row("a number taken from a tensor")
def _():
    w = pb.tensor(2.0)
    return lambda x: x * w.item() * float(w), lambda: w.__iadd__(1.0)


@row("the gradient of a tensor")
def _():
    w = pb.tensor(np.full(3, 2.0), requires_grad=True)
    pb.sum(w * w).backward()
    return lambda x: x * w.grad, lambda: pb.sum(w * w).backward()


@row("a constant, a copy or a dtype of a tensor")
def _():
    w = pb.tensor(np.full(3, 2.0))
    return lambda x: x * w.detach() * w.copy() * w.astype(np.float64) * pb.tensor(w), lambda: w.__iadd__(1.0)


# Modules


def network(*layers):
    return pb.nn.Sequential(*layers)


def linear(dtype=np.float64):
    return pb.nn.Linear(3, 3, key=pb.random.key(1), dtype=dtype)


@row("the parameters of a module after `opt.step()`")
def _():
    net = network(linear(), pb.tanh)
    opt = pb.optim.Optimizer(pb.optim.sgd, net.parameters(), lr=0.1)

    def change():
        pb.sum(net(X)).backward()
        opt.step()

    return lambda x: net(x), change


@row("`load_state_dict`")
def _():
    net = linear()
    return net, lambda: net.load_state_dict({"weight": np.ones((3, 3)), "bias": np.zeros(3)})


@row("a parameter of a module, replaced or set to None")
def _():
    net = linear()

    def change():
        net.weight = pb.tensor(np.ones((3, 3)))
        net.bias = None

    return lambda x: net(x), change


@row("`net.eval()`")
def _():
    net, key = network(pb.nn.Dropout(0.5)), pb.random.key(3)
    return lambda x: net(x, key=key), net.eval


@row("a setting of a layer")
def _():
    net, key = pb.nn.Dropout(0.5), pb.random.key(3)
    return lambda x: net(x, key=key), changing(net, "p", 0.0)


@row("a hook of a module")
def _():
    net = linear()
    return lambda x: net(x), lambda: net.register_forward_hook(lambda module, args, out: out * 0)


@row("the running statistics of a layer in training")
def _():
    net = pb.nn.BatchNorm(3, dtype=np.float64)
    net(np.arange(12.0).reshape(4, 3))
    return lambda x: net(pb.stack([x, 2 * x])) + 0.0 * net.mean, lambda: None


@row("an item of a list beside one that the function sets")
def _():
    return beside_state([np.zeros(3), 2.0], 0, 1)


@row("an item of a dict beside one that the function sets")
def _():
    return beside_state({"state": np.zeros(3), "a": 2.0}, "state", "a")


def beside_state(parts, state, other):
    def f(x):
        parts[state] = parts[state] * 0.5 + x
        return x * parts[other]

    return f, setting(parts, other, 5.0)


@row("the order of a dict in which the function sets an item")
def _():
    parts = {"state": np.zeros(3), "a": 2.0, "b": 3.0}

    def f(x):
        parts["state"] = parts["state"] + x
        return x * next(v for v in parts.values() if isinstance(v, float))

    return f, lambda: parts.update(a=parts.pop("a"))


@row("the length of a list in which the function sets an item")
def _():
    parts = [np.zeros(3), np.ones(3)]

    def f(x):
        parts[0] = parts[0] + x
        return x * len(parts)

    return f, lambda: parts.append(np.ones(3))


# Settings of ours, random numbers, time


@row("`set_num_threads`")
def _():
    threads = pb.get_num_threads() if hasattr(pb, "get_num_threads") else 1
    return lambda x: pb.sum(x), lambda: pb.set_num_threads(1), lambda: pb.set_num_threads(threads)


@row("NumPy's global random stream", "refused")
def _():
    return lambda x: x * np.random.rand(), None


@row("a random generator of NumPy", "refused")
def _():
    rng = np.random.default_rng(0)
    return lambda x: x * rng.random(), None


@row("Python's `random`", "refused")
def _():
    return lambda x: x * random.random(), None


@row("`pb.random` without a key", "refused")
def _():
    return lambda x: x * pb.random.normal(size=(3,)), None


@row("an iterator", "refused")
def _():
    numbers = iter([2.0, 3.0, 4.0])
    return lambda x: x * next(numbers), None


@row("`itertools.count`, a generator", "refused")
def _():
    numbers = itertools.count()
    return lambda x: x * next(numbers), None


@row("an array that the function writes to", "refused")
def _():
    buffer = np.zeros(3)

    def f(x):
        buffer[:] += 1.0
        return x * buffer

    return f, None


@row("a counter that the function itself moves on", "refused")
def _():
    c = Plain()

    def f(x):
        c.a += 1.0
        return x * c.a

    return f, None


@row("an array that the function replaces by what NumPy makes of it", "refused")
def _():
    holder = Plain()
    holder.a = np.ones(3)

    def f(x):
        holder.a = holder.a * 2.0
        return x * holder.a

    return f, None


@row("a list of traced values", "refused")
def _():
    seen = []

    def f(x):
        seen.append(x * 2)
        return x

    return f, None


@row("the clock", "not seen", "nothing tells that it was read; pass the time as an argument")
def _():
    return lambda x: x * time.perf_counter_ns(), lambda: None


@row("files and objects of extension modules", "not seen", "their state cannot be looked into")
def _():
    file = io.StringIO("2")
    return lambda x: x * float(file.getvalue()), functools.partial(file.write, "34")


@row("what functions of installed packages read", "not seen", "packages are taken for fixed; there is no end to them")
def _():
    installed = types.ModuleType("installed_for_a_test")
    installed.__file__ = "/usr/lib/site-packages/installed_for_a_test.py"
    sys.modules[installed.__name__] = installed
    exec("scale = 2.0\ndef f(x):\n    return x * scale", vars(installed))
    f = installed.f
    return lambda x: f(x), functools.partial(setattr, installed, "scale", 3.0)


# Arguments


class Pair(NamedTuple):
    """A function of X and its compiled form, where that is not `pb.jit` of it."""

    f: Any
    compiled: Any

    def __call__(self, x):
        return self.f(x)


@row("the order of a dict that is an argument")
def _():
    given = {"a": 1.0 * X, "b": 2.0 * X}
    f = lambda d: pb.concat(list(d.values()))  # noqa: E731
    g = pb.jit(f)
    return Pair(lambda x: f(given), lambda x: g(given)), lambda: given.update(a=given.pop("a"))


@row("static arguments that are equal but not the same: 1 and True, 2 and 2.0, 0.0 and -0.0")
def _():
    given = [(2, 0.0)]
    f = lambda x, n: x * (1 if isinstance(n[0], int) else 3) + np.copysign(1.0, n[1])  # noqa: E731
    g = pb.jit(f, static_argnums=-1)
    return Pair(lambda x: f(x, given[0]), lambda x: g(x, given[0])), setting(given, 0, (2.0, -0.0))


@row("an attribute of a static argument, the closure of a static function")
def _():
    c, s = Plain(), [2.0]
    h = lambda x: x * s[0]  # noqa: E731
    f = lambda x, c, h: h(x) * c.a  # noqa: E731
    g = pb.jit(f, static_argnums=(1, 2))

    def change():
        c.a = 5.0
        s[0] = 7.0

    return Pair(lambda x: f(x, c, h), lambda x: g(x, c, h)), change


def table():
    """The rows as they stand in the documentation."""
    lines = ["| what changes | `jit` | |", "|---|---|---|"]
    return "\n".join([*lines, *(f"| {r.what} | {r.promise} | {r.why} |" for r in ROWS)])
