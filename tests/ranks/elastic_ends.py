"""Ranks of `test_elastic.py` that end in some way: `elastic_ends.py FOLDER HOW`."""

import os
import signal
import sys
import time
from pathlib import Path

import pullback as pb
from pullback import distributed


def die():
    if distributed.rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    distributed.barrier()


def raise_own():
    """An error of the program: the others may not go on without the rank that met it first."""
    try:
        if distributed.rank() == 1:
            raise ValueError("no such sample")
        distributed.barrier()
    except pb.errors.RankLostError:
        try:
            distributed.shrink()
        except pb.errors.WorldError as error:
            print(error, flush=True)
            raise


def wait_for_ever():
    while True:
        distributed.barrier()
        time.sleep(0.01)


def die_below_least():
    """Three die of four, where two must be left: the rest does not go on, and the job starts again."""
    if distributed.rank() > 0 and distributed.world_size() == 4:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        distributed.barrier()
    except pb.errors.RankLostError:
        distributed.shrink()


def late():
    """A rank that is late is not lost."""
    if distributed.rank() == 1:
        time.sleep(30.0)
    distributed.barrier()


HOW = {"die": die, "raise": raise_own, "wait": wait_for_ever, "below": die_below_least, "late": late}


def main():
    folder, how = Path(sys.argv[1]), sys.argv[2]
    distributed.init(timeout=2.0 if how == "late" else 20.0)
    (folder / f"process-{os.getpid()}").touch()
    if distributed.rank() == 0:
        with open(folder / "starts", "a") as file:
            file.write(f"{distributed.world_size()}\n")
    HOW[how]()


if __name__ == "__main__":
    main()
