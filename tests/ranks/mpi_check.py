"""What ranks that are processes are to do, by the names of checks: `pullback run -n 2 tests/ranks/mpi_check.py values`.

A check that fails on one rank ends all of them; one that holds is printed by every rank.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import training
import values
from collective_cases import (
    COLLECTIVES,
    COMPILED,
    MAPS,
    MEETINGS,
    PROGRAMS,
    WAYS,
    adjoint_error,
    adjoint_products,
    derive_alone,
    derive_on_rank,
)

from pullback import distributed
from pullback.ops.collective.world import current_world

#: Of compiled programs these stand for the others.
LEADING = ("total", "reduce_scatter axis 1", "all_to_all axes", "halo", "tree")


def compare(names, ways):
    """Derivatives over ranks are those of the same function of one array."""
    for name in names:
        for way in ways:
            found, wanted = derive_on_rank(name, way), derive_alone(name, way, distributed.world_size())
            mine = wanted[distributed.rank()]
            np.testing.assert_allclose(found, mine, rtol=1e-12, atol=1e-12, err_msg=f"{name}, {way}")


def check_adjoints():
    for name in MAPS:
        sides = distributed.all_gather(np.array([adjoint_products(name)]))
        assert adjoint_error(name, sides) <= 1e-14, name


def check_programs():
    """Loops and masks; these are of three ranks."""
    for name, (on_rank, alone) in PROGRAMS.items():
        for meeting, derive in MEETINGS.items():
            with np.errstate(all="ignore"):
                found, wanted = np.asarray(derive(on_rank)), np.asarray(derive(alone))
            np.testing.assert_allclose(found, wanted, rtol=1e-11, atol=1e-12, err_msg=f"{name}, {meeting}")


CHECKS = {
    "values": values.check_small,
    "large": values.check_large,
    "layouts": values.check_layouts,
    "trees": values.check_trees,
    "donated": values.check_donated,
    "random": values.check_random,
    "many sizes": values.check_many_sizes,
    "adjoints": check_adjoints,
    "derivatives": lambda: compare(COLLECTIVES, [way for way in WAYS if way not in COMPILED]),
    "compiled": lambda: compare(LEADING, COMPILED),
    "all compiled": lambda: compare(COLLECTIVES, COMPILED),
    "programs": check_programs,
    **training.CHECKS,
}


def main(names):
    wants_overlap = "--overlap" in names
    distributed.init(timeout=60, overlap=True if wants_overlap else None)
    from mpi4py import MPI

    world = current_world()
    assert world.runs_beside or not wants_overlap
    library = MPI.Get_library_version().split("\n")[0].strip("\0 ")
    print(f"rank {world.rank} of {world.size}: {type(world).__name__}, {library}", flush=True)
    for name in names:
        if name.startswith("--"):
            continue
        start = time.perf_counter()
        CHECKS[name]()
        print(f"rank {world.rank}: {name}: ok, {time.perf_counter() - start:.1f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
