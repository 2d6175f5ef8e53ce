"""Prints what a rank is told by its launcher; then ends as its first argument says."""

from __future__ import annotations

import json
import os
import sys

from pullback import distributed

VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "PULLBACK_NUM_THREADS", "PULLBACK_RANKS")


def main(how: str) -> None:
    distributed.init(timeout=30)
    told = {name: os.environ.get(name) for name in VARIABLES}
    cores = len(os.sched_getaffinity(0))
    row = {"rank": distributed.rank(), "ranks": distributed.world_size(), "arguments": sys.argv[1:], "cores": cores}
    for number in range(5):
        print(json.dumps({"line": number} | row | told))  # all at once; few enough that launchers pass them on whole
    print(f"rank {distributed.rank()} complains", file=sys.stderr)
    if how == "raise" and distributed.rank() == 1:
        raise KeyError("a mistake on rank 1")
    distributed.barrier()
    if how == "exit":
        sys.exit(3)


if __name__ == "__main__":
    main(sys.argv[1])
