"""Every collective, differentiated in every way, on ranks that are threads or processes; and the same on one array of
the values of all ranks, without a collective.
"""

from __future__ import annotations

import math

import numpy as np

import pullback as pb
from pullback import distributed


def joined(xs, axis=0):
    """All parts along an axis, once for each rank."""
    whole = pb.concat([xs[r] for r in range(len(xs))], axis=axis)
    return pb.stack([whole] * len(xs))


def parts(x, n, axis):
    return [
        pb.take(x, np.arange(r, r + 1) if n == x.shape[axis] else part_of(x, n, axis, r), axis=axis) for r in range(n)
    ]


def part_of(x, n, axis, rank):
    size = x.shape[axis] // n
    return np.arange(rank * size, (rank + 1) * size)


def moved(xs, by):
    zero = 0.0 * xs[0]
    return pb.stack([xs[r - by] if 0 <= r - by < len(xs) else zero for r in range(len(xs))])


def haloed(xs):
    zero = 0.0 * xs[0][:1]
    n = len(xs)
    return pb.stack([
        pb.concat([xs[r - 1][-1:] if r else zero, xs[r], xs[r + 1][:1] if r < n - 1 else zero]) for r in range(n)
    ])  # fmt: skip


def mirror(n):
    """Each rank to the one opposite; nothing comes to the first."""
    return [(r, n - 1 - r) for r in range(n - 1)]


def joined_terms(a, b):
    return pb.concat([pb.reshape(a, (-1,)), pb.reshape(b, (-1,))])


def sum_tree(x):
    """Several values of different shapes in one meeting, there and back."""
    sums = distributed.shared(distributed.total({"a": x, "b": [x[:1] ** 2]}))
    return joined_terms(sums["a"], sums["b"][0])


#: For each collective the call of a rank, whose result is its own, and what it does to an array of all ranks' values.
COLLECTIVES = {
    "total": (lambda x: distributed.shared(distributed.total(x)), lambda xs: pb.stack([pb.sum(xs, 0)] * len(xs))),
    "all_reduce": (distributed.all_reduce, lambda xs: pb.stack([pb.sum(xs, 0)] * len(xs))),
    "all_gather": (distributed.all_gather, joined),
    "all_gather axis 1": (lambda x: distributed.all_gather(x, axis=-1), lambda xs: joined(xs, 1)),
    "reduce_scatter": (distributed.reduce_scatter, lambda xs: pb.stack(parts(pb.sum(xs, 0), len(xs), 0))),
    "reduce_scatter axis 1": (
        lambda x: distributed.reduce_scatter(x, axis=1), lambda xs: pb.stack(parts(pb.sum(xs, 0), len(xs), 1))
    ),
    "whole": (lambda x: distributed.shared(distributed.whole(x)), joined),
    "part": (
        lambda x: distributed.part(distributed.total(x)), lambda xs: pb.stack(parts(pb.sum(xs, 0), len(xs), 0))
    ),
    "broadcast": (
        lambda x: distributed.shared(distributed.broadcast(x, root=distributed.world_size() - 1)),
        lambda xs: pb.stack([xs[-1]] * len(xs)),
    ),
    "all_to_all": (
        distributed.all_to_all,
        lambda xs: pb.stack([
            pb.concat([parts(xs[s], len(xs), 0)[r] for s in range(len(xs))]) for r in range(len(xs))
        ]),
    ),
    "all_to_all axes": (
        lambda x: distributed.all_to_all(x, 0, 1),
        lambda xs: pb.stack([
            pb.concat([parts(xs[s], len(xs), 0)[r] for s in range(len(xs))], axis=1) for r in range(len(xs))
        ]),
    ),
    "shift": (distributed.shift, lambda xs: moved(xs, 1)),
    "shift back": (lambda x: distributed.shift(x, -1), lambda xs: moved(xs, -1)),
    "shift around": (
        lambda x: distributed.shift(x, 2, wrap=True), lambda xs: pb.stack([xs[r - 2 % len(xs)] for r in range(len(xs))])
    ),
    "permute": (
        lambda x: distributed.permute(x, mirror(distributed.world_size())),
        lambda xs: pb.stack([0.0 * xs[0], *(xs[len(xs) - 1 - r] for r in range(1, len(xs)))]),
    ),
    "halo": (distributed.halo, haloed),
    "tree": (sum_tree, lambda xs: pb.stack([joined_terms(pb.sum(xs, 0), pb.sum(xs[:, :1] ** 2, 0))] * len(xs))),
}  # fmt: skip


def hvp(f, x, v):
    return pb.jvp(pb.grad(f), (x,), (v,))[1]


def taped(f, x):
    x = pb.tensor(x, requires_grad=True)
    f(x).backward()
    return x.grad.numpy()


def taped_twice(f, x, v):
    x = pb.tensor(x, requires_grad=True)
    f(x).backward(create_graph=True)
    first, x.grad = x.grad, None
    pb.sum(first * v).backward()
    return x.grad.numpy()


def with_budget(f, x):
    with pb.memory_budget("64 KiB"):
        return taped(f, x)


def push(f, v):
    """The directional derivative, a function again."""
    return lambda x: pb.jvp(f, (x,), (v,))[1]


def third(f, x, v):
    return pb.grad(lambda x: pb.sum(hvp(f, x, v) * v))(x)


#: Ways to differentiate a function of x, along v where it takes a direction.
WAYS = {
    "value": lambda f, x, v: f(x),
    "grad": lambda f, x, v: pb.grad(f)(x),
    "tape": lambda f, x, v: taped(f, x),
    "jvp": lambda f, x, v: push(f, v)(x),
    "second": hvp,
    "second on tape": taped_twice,
    "third": third,
    "third by jvp": lambda f, x, v: push(push(push(f, v), v), v)(x),
    "vmap": lambda f, x, v: pb.vmap(pb.grad(f))(pb.stack([x, v, -x])),
    "vmap of second": lambda f, x, v: pb.vmap(lambda x: hvp(f, x, v))(pb.stack([x, v, -x])),
    "jit": lambda f, x, v: pb.jit(pb.grad(f))(x),
    "through jit": lambda f, x, v: pb.grad(pb.jit(f))(x),
    "second in jit": lambda f, x, v: pb.jit(lambda x: hvp(f, x, v))(x),
    "third in jit": lambda f, x, v: pb.jit(lambda x: third(f, x, v))(x),
    "vmap in jit": lambda f, x, v: pb.jit(pb.vmap(pb.grad(f)))(pb.stack([x, v, -x])),
    "checkpoint": lambda f, x, v: pb.grad(pb.checkpoint(f))(x),
    "budget": lambda f, x, v: with_budget(f, x),
}
#: In order, as ranks must go through them.
COMPILED = ("jit", "through jit", "second in jit", "third in jit", "vmap in jit")
#: What alone is computed without a compiler, a checkpoint or a budget.
PLAIN = {
    "jit": "grad",
    "through jit": "grad",
    "second in jit": "second",
    "third in jit": "third",
    "vmap in jit": "vmap",
    "checkpoint": "grad",
    "budget": "tape",
}


def case_values(name, n):
    """Values and directions of all ranks, and weights of their results; sizes coincide."""
    rng = np.random.default_rng(n)
    xs, vs = rng.normal(size=(2, n, n, n))
    return xs, vs, rng.normal(size=COLLECTIVES[name][1](xs).shape)


def derive_on_rank(name, way):
    """A derivative on this rank of a function of the values of all ranks."""
    xs, vs, ws = case_values(name, distributed.world_size())
    call, r = COLLECTIVES[name][0], distributed.rank()

    def f(x):
        return distributed.total(pb.sum(pb.sin(call(pb.tanh(x))) * ws[r]))

    return np.asarray(WAYS[way](f, xs[r], vs[r]))


def derive_alone(name, way, n):
    """The derivative of the same function of one array: for each rank its part."""
    xs, vs, ws = case_values(name, n)
    together = COLLECTIVES[name][1]
    found = np.asarray(WAYS[PLAIN.get(way, way)](lambda xs: pb.sum(pb.sin(together(pb.tanh(xs))) * ws), xs, vs))
    return [found] * n if found.ndim == 0 else list(found.swapaxes(0, 1) if "vmap" in way else found)


#: Linear maps, and whether their result is common.
MAPS = {
    "total": (distributed.total, True),
    "shared": (distributed.shared, False),
    "all_reduce": (distributed.all_reduce, False),
    "all_gather": (distributed.all_gather, False),
    "reduce_scatter": (distributed.reduce_scatter, False),
    "whole": (distributed.whole, True),
    "part": (distributed.part, False),
    "broadcast": (distributed.broadcast, True),
    "all_to_all": (distributed.all_to_all, False),
    "shift": (distributed.shift, False),
    "permute": (lambda x: distributed.permute(x, mirror(distributed.world_size())), False),
    "halo": (distributed.halo, False),
}
#: Those that take a common value.
FROM_COMMON = {"shared", "part"}


def adjoint_products(name):
    """On this rank <F x, y>, <x, F' y>, and <|F x|, |y|>."""
    call, gives_common = MAPS[name]
    n, r = distributed.world_size(), distributed.rank()
    rng = np.random.default_rng(n)
    x = rng.normal(size=(n, n, 2))[0 if name in FROM_COMMON else r]
    y = rng.normal(size=(n, n * n + 2, 2))[0 if gives_common else r]
    out, pull = pb.vjp(call, x)
    out, y = np.asarray(out), y[: out.shape[0]]
    (back,) = pull(y)
    return float(np.sum(out * y)), float(np.sum(np.asarray(back) * x)), float(np.sum(np.abs(out * y)))


def adjoint_error(name, sides):
    """How far <F x, y> is from <x, F' y>, by the products of all ranks: own values count on every rank, common ones
    once.
    """
    lefts, rights, sizes = zip(*sides, strict=True)
    left, size = (lefts[0], sizes[0]) if MAPS[name][1] else (math.fsum(lefts), math.fsum(sizes))
    right = rights[0] if name in FROM_COMMON else math.fsum(rights)
    return abs(left - right) / max(size, 1.0)


# programs of several collectives on three ranks

MATRIX = np.random.default_rng(3).normal(size=(3, 3))
MATRIX[0, 0] = 0.0
PARTS = np.random.default_rng(4).normal(size=(3, 3, 3))


def loop_on_rank(w):
    """Rounds in which each rank sees the sum over all and its neighbour's part."""
    mine = PARTS[distributed.rank()]

    def advance(c, _):
        return pb.tanh(
            c @ distributed.shared(w) + 0.1 * distributed.all_reduce(c) + distributed.shift(mine, wrap=True)
        ), None

    return distributed.total(pb.sum(pb.scan(advance, mine, np.zeros(4))[0]))


def loop_alone(w):
    carries = list(PARTS)
    for _ in range(4):
        everything = sum(carries)
        carries = [pb.tanh(c @ w + 0.1 * everything + PARTS[r - 1]) for r, c in enumerate(carries)]
    return sum(pb.sum(c) for c in carries)


def masked_on_rank(w):
    """What `where` does not select is minus infinity, and its slope infinite."""
    w = distributed.shared(w)
    return distributed.total(pb.sum(pb.where(w > 0, pb.log(pb.abs(w)) * PARTS[distributed.rank()], 0.0)))


def masked_alone(w):
    return sum(pb.sum(pb.where(w > 0, pb.log(pb.abs(w)) * part, 0.0)) for part in PARTS)


def taped_by_workers(f, x):
    x = pb.tensor(x, requires_grad=True)
    f(x).backward(workers=2)
    return x.grad.numpy()


#: Ways to differentiate a program.
MEETINGS = {
    "grad": lambda f: pb.grad(f)(MATRIX),
    "workers": lambda f: taped_by_workers(f, MATRIX),
    "second": lambda f: hvp(f, MATRIX, PARTS[0]),
    "compiled gradient": lambda f: pb.jit(pb.grad(f))(MATRIX),
    "batched and compiled": lambda f: pb.jit(pb.vmap(pb.grad(f)))(PARTS),
    "through compiled": lambda f: pb.grad(pb.jit(f))(MATRIX),
    "second, through compiled": lambda f: hvp(pb.jit(f), MATRIX, PARTS[0]),
    "checkpoint": lambda f: pb.grad(pb.checkpoint(f))(MATRIX),
}
#: What three ranks compute together, and the same alone.
PROGRAMS = {"loop": (loop_on_rank, loop_alone), "mask": (masked_on_rank, masked_alone)}
