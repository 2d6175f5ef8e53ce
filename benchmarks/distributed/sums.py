"""Sums of float32 over ranks of one machine: MPI_Allreduce, and ours by shared memory and by messages.

Ours are compared with what they must reach: 3 times as fast as MPI_Allreduce from 256 KB on. Each takes and leaves
arrays in memory of the rank. Contestants take turns, the slowest rank counts, and of all calls the fastest one.

    python benchmarks/distributed/sums.py             ranks: as many as cores, at most 8
    python benchmarks/distributed/sums.py -n 4 --quick
"""

import argparse
import json
import os
import subprocess
import sys
import time

SIZES_KB = (1, 16, 64, 256, 1024, 4096, 16384, 65536)
#: From so many kilobytes on the sum has to be so many times as fast.
FROM_KB, GOAL = 256, 3.0
ENGINES = {"shared memory": "1", "messages": "0"}


def measure(size_kb, rounds):
    """Seconds of a sum by MPI and by ours, as the slowest rank has them, and how far they are apart."""
    import numpy as np
    from mpi4py import MPI

    from pullback import distributed
    from pullback.ops.collective.exchange import Sum
    from pullback.ops.collective.records import meet_many

    ranks = distributed.world_size()
    x = np.random.default_rng(distributed.rank()).normal(size=size_kb * 256).astype("f")
    theirs, ours = np.empty_like(x), np.empty_like(x)

    def by_mpi():
        MPI.COMM_WORLD.Allreduce(x, theirs)

    def by_us():
        meet_many(np, "total", [x], ranks, Sum(), [ours])

    best = {by_mpi: [], by_us: []}
    for _ in range(rounds):
        for contestant, seconds in best.items():
            distributed.barrier()
            start = time.perf_counter()
            contestant()
            seconds.append(time.perf_counter() - start)
    if os.environ["PULLBACK_SHARED_MEMORY"] == "0":  # that engine makes its own memory
        (ours,) = meet_many(np, "total", [x], ranks, Sum())
    slowest = [np.asarray(distributed.largest(np.array(seconds))).min() for seconds in best.values()]
    return [*map(float, slowest), float(np.abs(ours - theirs).max())]


def run_rank(quick):
    from pullback import distributed

    distributed.init()
    for size_kb in SIZES_KB:
        rounds = max(10, (2_000 if quick else 20_000) // (4 + size_kb // 8))
        found = measure(size_kb, rounds)
        if distributed.rank() == 0:
            print(json.dumps([size_kb, *found]), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-n", "--ranks", type=int, default=min(8, len(os.sched_getaffinity(0))))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--as-rank", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.as_rank:
        run_rank(chosen.quick)
        return
    options = ["--quick"] if chosen.quick else []
    for engine, setting in ENGINES.items():
        command = [sys.executable, "-m", "pullback", "run", "-n", str(chosen.ranks), __file__, "--as-rank", *options]
        environment = {**os.environ, "PULLBACK_SHARED_MEMORY": setting}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900)
        rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
        if len(rows) < len(SIZES_KB):
            sys.exit(f"{engine} failed:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
        print(f"\n{chosen.ranks} ranks, by {engine}: microseconds, the best call of the slowest rank")
        for size_kb, theirs, ours, error in rows:
            assert error < 1e-4, f"sums differ by {error}"
            goal = f"goal {GOAL:.0f}" if engine == "shared memory" and size_kb >= FROM_KB else ""
            print(
                f"  {size_kb:6d} KB   MPI_Allreduce {1e6 * theirs:9.1f}   ours {1e6 * ours:9.1f}   "
                f"{theirs / ours:5.2f} times as fast  {goal}"
            )


if __name__ == "__main__":
    main()
