"""A network trained with sums over eight slices: its bits are the same on any number of ranks, on the tape for every
size of buckets, and in compiled steps, whose sums may go on beside.
"""

from __future__ import annotations

import contextlib
import hashlib

import numpy as np

import pullback as pb
from pullback import distributed, optim
from pullback.distributed.data_parallel import _cut, _sum_over
from pullback.ops.collective import buckets
from pullback.ops.collective.world import current_world
from pullback.program.overlap import start_sums_early

SLICES, SAMPLES = 8, 64
#: Megabytes: all at once, two buckets, one for each parameter.
BUCKETS = (25.0, 0.0005, 0.00001)
SHAPES = {"w1": (16, 24), "b1": (24,), "w2": (24, 12), "b2": (12,), "w3": (12, 4), "b3": (4,)}


def start_params():
    rng = np.random.default_rng(0)
    return {name: (rng.normal(size=s) / 3 * (len(s) == 2)).astype("float32") for name, s in SHAPES.items()}


def own_samples():
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(SAMPLES, 16)).astype("float32"), rng.integers(0, 4, SAMPLES)
    share = SAMPLES // distributed.world_size()
    mine = slice(distributed.rank() * share, (distributed.rank() + 1) * share)
    return x[mine], y[mine]


def error(p, x, y):
    h = pb.tanh(x @ p["w1"] + p["b1"])
    h = pb.nn.relu(h @ p["w2"] + p["b2"])
    return pb.nn.cross_entropy(h @ p["w3"] + p["b3"], y, reduction="sum"), len(x)


def digest(tree):
    return hashlib.sha256(b"".join(np.asarray(x).tobytes() for x in pb.tree.leaves(tree))).hexdigest()[:16]


def train_taped(bucket_mb, steps):
    """Each rank's own slices, whose gradients travel in buckets."""
    x, y = own_samples()
    p = {name: pb.tensor(a, requires_grad=True) for name, a in start_params().items()}
    sums = distributed.DistributedGradient(p, bucket_mb=bucket_mb)
    optimizer = optim.Adam(p, lr=3e-3)
    for _ in range(steps):
        optimizer.zero_grad()
        own = _sum_over(_cut((x, y), SLICES), p, lambda p, piece: error(p, *piece)[:1])[0]
        (own / SAMPLES).backward()
        optimizer.step()
    sums.remove()
    return digest({name: t.detach().numpy() for name, t in p.items()})


def train_compiled(steps, has_buckets=False):
    """One program for a step; with buckets it starts sums beside what it computes."""
    x, y = own_samples()
    loss = distributed.data_parallel(error, slices=SLICES)
    rule = optim.adam(3e-3)

    @pb.jit
    def step(p, s):
        updates, s = rule.update(pb.grad(loss)(p, x, y), s, p)
        return optim.apply_updates(p, updates), s

    p, s = start_params(), rule.init(start_params())
    ops = [e.op.name for e in step.lower(p, s).graph.equations]
    assert ("start_totals" in ops) == has_buckets
    for _ in range(steps):
        p, s = step(p, s)
    return digest(p)


@contextlib.contextmanager
def compiled_buckets(bucket_mb):
    """Sums of compiled steps begin in buckets of a size, beside what is computed."""
    world, first, defaults = current_world(), buckets.FIRST_MB, start_sums_early.__defaults__
    beside = world.runs_beside
    world.runs_beside = True
    buckets.FIRST_MB, start_sums_early.__defaults__ = min(first, bucket_mb), (bucket_mb,)
    try:
        yield
    finally:
        world.runs_beside, buckets.FIRST_MB, start_sums_early.__defaults__ = beside, first, defaults


def digests(steps):
    """By the way of training, the digests of all sizes of buckets: one if all is well."""
    found = {"tape": {train_taped(b, steps) for b in BUCKETS}, "jit": {train_compiled(steps)}}
    if distributed.world_size() > 1:
        for bucket_mb in BUCKETS:
            with compiled_buckets(bucket_mb):
                found["jit"].add(train_compiled(steps, bucket_mb < BUCKETS[0]))
                found["tape"].add(train_taped(bucket_mb, steps))
    return found
