"""What the ranks of `test_elastic.py` run: a training that saves, loses ranks at given moments, and goes on.

`elastic_train.py FOLDER HOW [RANK:STEP:MOMENT ...]`: at each of these moments the rank of that number is killed, once.
HOW is "restart" (errors end the job) or "shrink" (the ranks that are left go on). Numbers are those of the first world.
"""

import functools
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np

import pullback as pb
from pullback import distributed, optim
from pullback.distributed import files

STEPS, SAVES, ROWS, TIMEOUT = 24, 4, 24, 20.0


def make_step():
    def error(params, x, y):
        return pb.sum((pb.tanh(x @ params["w"]) @ params["v"] - y) ** 2), len(x)

    rule = optim.adam(0.05)
    loss = distributed.data_parallel(error, slices=2 * distributed.world_size())

    @pb.jit
    def step(params, state, x, y):
        value, gradients = pb.value_and_grad(loss)(params, x, y)
        updates, state = rule.update(gradients, state, params)
        return optim.apply_updates(params, updates), state, value

    return step, rule


def first_params():
    rng = np.random.default_rng(0)
    return {"w": rng.normal(size=(5, 8)), "v": rng.normal(size=8)}


def rows_of(number):
    """This rank's rows of the batch of a step."""
    rng = np.random.default_rng(100 + number)
    x, y = rng.normal(size=(ROWS, 5)), rng.normal(size=ROWS)
    ranks, rank = distributed.world_size(), distributed.rank()
    return np.split(x, ranks)[rank], np.split(y, ranks)[rank]


def train(path, at_step=lambda number: None, until=STEPS):
    """Train from the last checkpoint to a step; the parameters."""
    step, rule = make_step()
    params = first_params()
    tree = {"params": params, "state": rule.init(params), "step": 0}
    if distributed.any_rank((path / "index.json").exists()):
        tree = distributed.load(path, tree)
    params, state = tree["params"], tree["state"]
    for number in range(int(tree["step"]), until):
        at_step(number)
        params, state, _ = step(params, state, *rows_of(number))
        if (number + 1) % SAVES == 0:
            distributed.save(path, {"params": params, "state": state, "step": number + 1})
    return params


def kill():
    os.kill(os.getpid(), signal.SIGKILL)


def kill_in_compute():
    np.linalg.svd(np.ones((50, 50)))
    kill()


def kill_in_collective():
    """The others come later, so this rank waits in its next collective when it is killed."""
    threading.Timer(0.1, kill).start()


def kill_in_save():
    files.write_pieces = lambda *given: kill()


def kill_before_index():
    files._commit = lambda *given: kill()


MOMENTS = {
    "compute": kill_in_compute,
    "collective": kill_in_collective,
    "save": kill_in_save,
    "index": kill_before_index,
}


def strike(folder, losses, me, number):
    """Kill this rank, if one of the moments is now and was not before."""
    for text in losses:
        rank, step, moment = text.split(":")
        mark = folder / f"killed-{rank}-{step}"
        if int(step) != number:
            continue
        if int(rank) != me:
            time.sleep(0.3 if moment == "collective" else 0.0)
        elif not mark.exists():
            mark.touch()
            MOMENTS[moment]()


def main():
    folder, how, losses = Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
    distributed.init(timeout=TIMEOUT)
    me, events = distributed.rank(), [distributed.world_size()]
    (folder / f"process-{os.getpid()}").touch()
    while True:
        try:
            params = train(folder / "checkpoint", functools.partial(strike, folder, losses, me))
            break
        except pb.errors.RankLostError:
            if how == "restart":
                raise
            distributed.shrink()
            events.append(distributed.world_size())
    if distributed.rank() == 0:
        np.savez(folder / "result.npz", **params)
        (folder / "events.json").write_text(json.dumps(events))


if __name__ == "__main__":
    main()
