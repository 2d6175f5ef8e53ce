"""Programs composed of forms, compiled against eager: a campaign from the command line.

`python tests/composed.py --programs 100000 --seed 0 --state FILE` tries them one after another and goes on where FILE
says that the last run ended; `--kind` is "chain" (two or three forms), "drawn" (five to twenty-five ops), "mixed", or
"pairs", "triples", "folds" for all of those over small shapes. What fails is shrunk and printed as Python.
"""

import argparse
import collections
import itertools
import json
import os
import sys
import time
from pathlib import Path

os.environ.setdefault("PULLBACK_CACHE_DIR", "off")
sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
from composed_modes import DERIVATIVES, VALUES, find_fault
from composed_programs import SHAPES, chains, drawn, drawn_chain
from composed_shrinking import reproduction, shrink

from pullback.compile.cpu.runtime import link

__all__ = ["campaign", "folds", "modes_of", "program_of", "try_program"]

#: What the known miscompilations were made of: exhaustive over all axes, in chains of three.
CORE = ("fold", "spread")


def program_of(kind, number):
    if kind == "chain" or (kind == "mixed" and number % 3):
        return drawn_chain(number)
    return drawn(number, 5, 25) if kind == "drawn" or number % 2 else drawn(number, 3, 8)


def folds(length=3, shapes=((2, 2), (3, 3), (8, 3), (1, 4), (4, 1), (2, 2, 2))):
    """Every chain of folds and spreads over every axis."""
    return (p for shape in shapes for p in chains(shape, length, True, CORE))


def enumerated(kind):
    if kind == "folds":
        return folds()
    length, brief = (2, False) if kind == "pairs" else (3, True)
    return (p for shape in SHAPES for p in chains(shape, length, brief))


def modes_of(number):
    """The value in one mode and a derivative in another. They are drawn: numbers in turn would go with the order in
    which programs are enumerated, and a mode never meet programs of every second kind.
    """
    rng = np.random.default_rng([3, number])
    return str(rng.choice(["value", *VALUES])), str(rng.choice(list(DERIVATIVES)))


def try_program(program, number, extra=True):
    """The faults of a program in the modes of its turn: with `extra` also of the eager call, every eighth time against
    differences; without, of the value or of the derivative alone.
    """
    modes = [*modes_of(number), "eager", *(("differences",) if number % 8 == 0 else ())]
    if not extra:
        modes = [modes[int(np.random.default_rng([4, number]).integers(2))]]
    return [fault for mode in modes if (fault := find_fault(program, mode)) is not None]


def campaign(kind, first, count, state, shown=2):
    if kind in ("folds", "pairs", "triples"):
        numbers = itertools.islice(enumerate(enumerated(kind)), first, first + count)
    else:
        numbers = ((n, program_of(kind, n)) for n in range(first, first + count))
    faults, start, tried = collections.Counter(), time.process_time(), 0
    for number, program in numbers:
        link.EFFORT = (link.PASSES, 3) if number % 10 == 0 else ((), 0)
        for fault in try_program(program, number):
            key = fault.kind, fault.mode, tuple(line.form for line in program.lines) if len(program.lines) < 4 else ()
            faults[key] += 1
            print(f"\n== {kind} {number}: {fault}", flush=True)
            if faults[key] <= shown:
                small = shrink(fault)
                print(reproduction(small), flush=True)
        tried += 1
        if tried % 100 == 0 and state:
            Path(state).write_text(json.dumps({"kind": kind, "next": number + 1}))
            print(
                f"{number + 1} tried, {sum(faults.values())} faults, {time.process_time() - start:.0f} s",
                file=sys.stderr,
                flush=True,
            )
    spent = time.process_time() - start
    print(f"{kind}: {tried} programs from {first}, {sum(faults.values())} faults, {spent:.0f} s of CPU")
    return faults


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", default="mixed", choices=("mixed", "chain", "drawn", "folds", "pairs", "triples"))
    parser.add_argument("--state", default="")
    given = parser.parse_args()
    first, end = given.seed, given.seed + given.programs
    if given.state and Path(given.state).exists():
        state = json.loads(Path(given.state).read_text())
        first = state["next"] if state["kind"] == given.kind else first
    sys.exit(bool(campaign(given.kind, first, end - first, given.state)))


if __name__ == "__main__":
    main()
