"""What collectives make of arrays of every dtype, shape and layout, on this rank and in NumPy: to the last bit."""

from __future__ import annotations

import time

import numpy as np

import pullback as pb
from pullback import distributed
from pullback.distributed.engines.node import NodeWorld
from pullback.ops.collective.exchange import Sum
from pullback.ops.collective.world import current_world, make_call

DTYPES = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "bfloat16", "float32",
    "float64", "longdouble", "complex64", "complex128", "clongdouble",
)  # fmt: skip
#: Bytes that go through shared memory at a time.
CHUNK = 1 << 20


def arrays_of_ranks(shape, dtype, seed=0):
    """The arrays of all ranks."""
    rng = np.random.default_rng([seed, *shape])
    found = 8.0 * rng.normal(size=(distributed.world_size(), *shape))
    if np.dtype(as_dtype(dtype)).kind == "c":
        found = found + 1j * found[..., ::-1] if shape else found * (1 + 0.5j)
    with np.errstate(invalid="ignore"):  # negative numbers that become unsigned
        return list(found.astype(as_dtype(dtype)))


def as_dtype(name):
    return pb.bfloat16 if name == "bfloat16" else np.dtype(name)


def add_by_tree(xs):
    """Pairs, pairs of pairs; halves in float32, rounded once."""
    dtype = xs[0].dtype
    terms = [x.astype(np.float32) for x in xs] if dtype.name in ("float16", "bfloat16") else xs
    while len(terms) > 1:
        terms = [sum_of(terms[i : i + 2]) for i in range(0, len(terms), 2)]
    return terms[0].astype(dtype)


def sum_of(pair):
    return np.add(*pair) if len(pair) == 2 else pair[0]


#: What a rank gets, by the arrays of all ranks and its number: of any shape, and of matrices whose sizes ranks divide.
SHAPELESS = {
    "total": (distributed.total, lambda xs, r: add_by_tree(xs)),
    "broadcast": (
        lambda x: distributed.broadcast(x, root=distributed.world_size() - 1), lambda xs, r: xs[-1]
    ),
    "shift": (distributed.shift, lambda xs, r: xs[r - 1] if r else np.zeros_like(xs[0])),
    "shift around": (lambda x: distributed.shift(x, -1, wrap=True), lambda xs, r: xs[(r + 1) % len(xs)]),
    "nowhere": (lambda x: distributed.permute(x, []), lambda xs, r: np.zeros_like(xs[0])),
    "largest": (distributed.largest, lambda xs, r: np.maximum.reduce(xs)),
    "smallest": (distributed.smallest, lambda xs, r: np.minimum.reduce(xs)),
    "any_rank": (distributed.any_rank, lambda xs, r: np.any([x != 0 for x in xs], axis=0)),
    "all_ranks": (distributed.all_ranks, lambda xs, r: np.all([x != 0 for x in xs], axis=0)),
}  # fmt: skip
DIVIDED = {
    "all_gather": (distributed.all_gather, lambda xs, r: np.concatenate(xs)),
    "whole": (lambda x: distributed.whole(x, axis=1), lambda xs, r: np.concatenate(xs, 1)),
    "reduce_scatter": (distributed.reduce_scatter, lambda xs, r: np.split(add_by_tree(xs), len(xs))[r]),
    "reduce_scatter axis 1": (
        lambda x: distributed.reduce_scatter(x, 1), lambda xs, r: np.split(add_by_tree(xs), len(xs), 1)[r]
    ),
    "part": (lambda x: distributed.part(distributed.total(x)), lambda xs, r: np.split(add_by_tree(xs), len(xs))[r]),
    "all_to_all": (
        lambda x: distributed.all_to_all(x, 0, 1),
        lambda xs, r: np.concatenate([np.split(x, len(xs))[r] for x in xs], 1),
    ),
    "halo": (
        lambda x: distributed.halo(x, 1, wrap=True),
        lambda xs, r: np.concatenate([xs[r - 1][-1:], xs[r], xs[(r + 1) % len(xs)][:1]]),
    ),
}  # fmt: skip


def has_same_bits(a, b):
    """Long doubles have bytes that mean nothing."""
    return np.array_equal(a, b) if a.dtype.char in "gG" else a.tobytes() == b.tobytes()


class Results:
    """Results that are compared when others have come after them: each has memory of its own."""

    def __init__(self):
        self._found = []

    def compare(self, what, calls, xs, mine=None):
        """Call collectives on this rank's array, or on another with its values."""
        mine = xs[distributed.rank()] if mine is None else mine
        for name, (call, expect) in calls.items():
            kept = mine.copy()
            self._found.append((f"{name} of {what}", call(mine), np.asarray(expect(xs, distributed.rank()))))
            assert has_same_bits(mine, kept), f"{name} of {what} changed its argument"

    def check(self):
        for what, found, wanted in self._found:
            found = np.asarray(found)
            assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape), what
            assert has_same_bits(found, wanted), f"{what}\n{found}\n{wanted}"
        assert self._found


def check_small():
    """Every dtype, empty arrays, numbers, sizes of one."""
    n = distributed.world_size()
    for dtype in DTYPES:
        results = Results()
        for shape in ((), (0,), (1,), (7,), (0, 3), (2 * n, n), (1, 1, 3)):
            results.compare(f"{dtype}{list(shape)}", SHAPELESS, arrays_of_ranks(shape, dtype))
        for shape in ((n, n), (2 * n, 3 * n), (n, 0), (n, n, 2)):
            results.compare(f"{dtype}{list(shape)}", DIVIDED, arrays_of_ranks(shape, dtype))
        results.check()


def check_large():
    """Arrays of several chunks, and of sizes next to that of one."""
    n = distributed.world_size()
    for dtype in ("float32", "float64", "bfloat16", "int8", "clongdouble"):
        size = CHUNK // np.dtype(as_dtype(dtype)).itemsize
        results = Results()
        for shape in ((size - 1,), (size,), (size + 1,), (3 * size + 5,)):
            results.compare(f"{dtype}{list(shape)}", SHAPELESS, arrays_of_ranks(shape, dtype))
        rows = n * (size // 600)
        results.compare(f"{dtype}[{rows}, {360 * n}]", DIVIDED, arrays_of_ranks((rows, 360 * n), dtype))
        results.check()


LAYOUTS = {
    "transposed": lambda x: np.ascontiguousarray(x.T).T,
    "reversed": lambda x: np.ascontiguousarray(x[::-1])[::-1],
    "every other": lambda x: np.repeat(x, 2, axis=1)[:, ::2],
    "read-only": lambda x: np.frombuffer(x.tobytes(), x.dtype).reshape(x.shape),
    "not aligned": lambda x: np.frombuffer(b"0" + x.tobytes(), np.uint8)[1:].view(x.dtype).reshape(x.shape),
    "of other byte order": lambda x: x.astype(x.dtype.newbyteorder()),
    "subclass": lambda x: x.view(np.recarray) if distributed.rank() else x,
}


def check_layouts():
    """Memory as it may lie: not contiguous, not aligned, in one number, of the other byte order on one rank alone."""
    n = distributed.world_size()
    for shape in ((2 * n, 4 * n), (100 * n, 600 * n)):
        xs = arrays_of_ranks(shape, "float64")
        for name, lay in LAYOUTS.items():
            results = Results()
            for who in (range(n), [n - 1]):
                mine = xs[distributed.rank()]
                lain = lay(mine) if distributed.rank() in who else mine
                results.compare(f"{name}, ranks {[*who]}", SHAPELESS | DIVIDED, xs, lain)
            results.check()
        one = np.broadcast_to(np.arange(1.0, 1.0 + n)[distributed.rank()], shape)
        np.testing.assert_array_equal(distributed.total(one), np.full(shape, n * (n + 1) / 2))


def check_trees():
    """Many arrays of many dtypes in one meeting, eager and compiled; with donated memory, several calls."""
    rng = np.random.default_rng(5)
    sizes = [0, 1, *rng.integers(0, 90_000, 30), CHUNK // 4 - 3, CHUNK // 8 + 1]
    names = [DTYPES[i % len(DTYPES)] for i in range(len(sizes))]
    of_ranks = [arrays_of_ranks((int(size),), name) for size, name in zip(sizes, names, strict=True)]
    mine = {f"{i}": xs[distributed.rank()] for i, xs in enumerate(of_ranks)}
    native = {i: x for i, x in mine.items() if not x.dtype.name.endswith(("float128", "complex256"))}
    for found in (distributed.total(mine), pb.jit(lambda tree: distributed.total(tree))(native)):
        for i, x in found.items():
            assert has_same_bits(np.asarray(x), add_by_tree(of_ranks[int(i)])), names[int(i)]


def check_donated():
    """A compiled step that overwrites its arguments, of several chunks and of few elements, as one that does not."""
    rng = np.random.default_rng(distributed.rank())
    start = [rng.normal(size=s) for s in ((300, 1000), (7,), (), (0, 2))]

    def step(tree):
        sums = distributed.total(tree)
        return [0.5 * x + pb.sin(s) + distributed.shift(x, wrap=True) for x, s in zip(tree, sums, strict=True)]

    found, plain = [x.copy() for x in start], start
    run, run_plain = pb.jit(step, donate_argnums=0), pb.jit(step)
    for _ in range(4):
        found, plain = run(found), run_plain(plain)
    for x, y, z in zip(found, plain, eager(step, start), strict=True):
        np.testing.assert_array_equal(x, y)
        np.testing.assert_allclose(x, z, rtol=1e-12, atol=1e-13)


def eager(step, tree):
    for _ in range(4):
        tree = step(tree)
    return tree


def check_random(rounds=200):
    """Collectives one after the other as they come, some of them beside the others, on ranks that are late at times."""
    world, n, r = current_world(), distributed.world_size(), distributed.rank()
    world.runs_beside, normally = True, world.runs_beside
    rng, own = np.random.default_rng(9), np.random.default_rng(r)
    calls, results, under_way = SHAPELESS | DIVIDED, Results(), []
    for number in range(rounds):
        dtype = DTYPES[rng.integers(len(DTYPES))]
        shape = (n * int(rng.integers(1, 40)), n * int(4 ** rng.uniform(0, 5)))
        xs = arrays_of_ranks(shape, dtype, number)
        if rng.random() < 0.4:
            call = make_call("total", Sum(), ((dtype, shape),), f" ({number})")
            under_way.append((world.start(call, np, [xs[r]], Sum()), add_by_tree(xs)))
        name = list(calls)[rng.integers(len(calls))]
        results.compare(f"{dtype}{list(shape)}", {name: calls[name]}, xs)
        if own.random() < 0.1:
            time.sleep(own.uniform(0.0, 0.003))
        if len(under_way) > 3 or number == rounds - 1:
            for started, wanted in under_way:
                assert has_same_bits(started.wait()[0], wanted)
            under_way.clear()
    results.check()
    world.runs_beside = normally


def check_many_sizes():
    """What is kept to sum arrays of a shape again does not grow without bound."""
    world = current_world()
    for size in range(1, 3000):
        assert distributed.total(np.ones(size, np.int8))[-1] == world.size
    assert not isinstance(world, NodeWorld) or len(world._main.sum_plans) <= 1024
