"""Ranks that meet all the time, in compiled steps and saves, until one is killed from outside; then they go on."""

import hashlib
import json
import os
import sys
import time
from pathlib import Path

import numpy as np

import pullback as pb
from pullback import distributed


@pb.jit
def step(w, x):
    return w - 0.01 * distributed.total(x * w)


def go(folder, w, steps):
    for number in range(steps):
        w = step(w, np.full(w.shape, 0.1 * distributed.rank()))
        if number % 7 == 0:
            distributed.save(folder / "checkpoint", {"w": w})
    return w


def main():
    folder = Path(sys.argv[1])
    distributed.init(timeout=20.0)
    me = distributed.rank()
    w = step(np.ones(20_000), np.zeros(20_000))
    distributed.barrier()
    (folder / f"process-{os.getpid()}").touch()
    try:
        go(folder, w, 1_000_000)
    except pb.errors.RankLostError:
        caught = time.time()
        distributed.shrink()
        w = step(distributed.broadcast(w), np.zeros(20_000))
        went_on = time.time()
    w = go(folder, w, 10)
    digest = hashlib.sha256(w.tobytes()).hexdigest()
    told = {"ranks": distributed.world_size(), "caught": caught, "went_on": went_on, "digest": digest}
    (folder / f"told-{me}").write_text(json.dumps(told))


if __name__ == "__main__":
    main()
