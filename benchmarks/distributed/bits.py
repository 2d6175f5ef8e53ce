"""The bits of parameters after 100 steps, on 1, 2, 4 and 8 ranks, for three sizes of buckets, on the tape and compiled.

    python benchmarks/distributed/bits.py

Ranks are processes, by shared memory and by messages; more of them than cores take turns.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys

RANKS, SLICES, STEPS = (1, 2, 4, 8), 8, 100
WAYS = {"jit": [25.0], "tape": [25.0, 0.05, 0.001]}


def train(way, bucket_mb):
    import numpy as np

    import pullback as pb
    from pullback import distributed, optim
    from pullback.distributed.data_parallel import _cut, _sum_over

    distributed.init()
    images, labels = pb.data.digits()
    rows = slice(
        distributed.rank() * 512 // distributed.world_size(), (distributed.rank() + 1) * 512 // distributed.world_size()
    )
    x, y = images[:512][rows], labels[:512][rows]
    random = np.random.default_rng(0)
    shapes = {"w1": (64, 48), "b1": (48,), "w2": (48, 32), "b2": (32,), "w3": (32, 10), "b3": (10,)}
    start = {name: (random.normal(size=s) / 8 * (len(s) == 2)).astype("float32") for name, s in shapes.items()}

    def error(p, x, y):
        h = pb.nn.relu(x @ p["w1"] + p["b1"])
        h = pb.nn.relu(h @ p["w2"] + p["b2"])
        return pb.nn.cross_entropy(h @ p["w3"] + p["b3"], y, reduction="sum"), len(x)

    if way == "jit":
        loss = distributed.data_parallel(error, slices=SLICES)
        rule = optim.chain(optim.clip_by_global_norm(1.0), optim.adam(3e-3))

        @pb.jit
        def step(p, s):
            updates, s = rule.update(pb.grad(loss)(p, x, y), s, p)
            return optim.apply_updates(p, updates), s

        p, s = start, rule.init(start)
        for _ in range(STEPS):
            p, s = step(p, s)
        final = p
    else:
        p = {name: pb.tensor(a, requires_grad=True) for name, a in start.items()}
        distributed.DistributedGradient(p, bucket_mb=bucket_mb)
        optimizer = optim.Adam(p, lr=3e-3)
        for _ in range(STEPS):
            optimizer.zero_grad()
            sums = _sum_over(_cut((x, y), SLICES), p, lambda p, piece: error(p, *piece)[:1])
            (sums[0] / 512).backward()
            optimizer.step()
        final = {name: t.detach().numpy() for name, t in p.items()}
    digest = hashlib.sha256(b"".join(np.asarray(final[name]).tobytes() for name in shapes)).hexdigest()[:16]
    print(json.dumps([distributed.rank(), digest]), flush=True)


def launch(ranks, way, bucket_mb, shared):
    environment = {**os.environ, "PULLBACK_SHARED_MEMORY": str(int(shared))}
    command = [sys.executable, "-m", "pullback", "run", "-n", str(ranks), __file__, "--as-rank", way, str(bucket_mb)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900)
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    if len(rows) != ranks:
        sys.exit(f"{ranks} ranks, {way}, failed:\n{done.stdout[-1000:]}\n{done.stderr[-2000:]}")
    return sorted({digest for _, digest in rows})


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--as-rank", nargs=2, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.as_rank:
        train(chosen.as_rank[0], float(chosen.as_rank[1]))
        return
    for way, sizes in WAYS.items():
        every = set()
        for bucket_mb in sizes:
            for shared in (True, False):
                for ranks in RANKS:
                    if ranks == 1 and not shared:
                        continue
                    found = launch(ranks, way, bucket_mb, shared)
                    every.update(found)
                    engine = "alone" if ranks == 1 else "shared memory" if shared else "messages"
                    print(
                        f"{way:5s} buckets of {bucket_mb:g} MB, {ranks} ranks, {engine:13s}: {', '.join(found)}",
                        flush=True,
                    )
        print(f"{way}: {len(every)} digest{'s' if len(every) > 1 else ''}")


if __name__ == "__main__":
    main()
