"""Faults of ranks: each kind, on the tape and compiled, on 2 and 4 ranks, with each MPI and each engine.

    python benchmarks/distributed/faults.py                      # everything, in about an hour
    python benchmarks/distributed/faults.py --ranks 2 --engines messages --faults kill stop

Every rank that lives must raise the right error within the deadline and a second, with rank, collective and line in it;
its gradients must be as before; the launcher must end, and nothing of the job may be left.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parent.parent.parent / "tests"))

from fault_jobs import ENGINES, FAULTS, MODES, Job, Outcome, find_mpis, list_jobs, run_job


def choose_jobs(chosen: argparse.Namespace) -> list[tuple[str, Job]]:
    return [
        (mpi, job)
        for mpi in find_mpis()
        if mpi in chosen.mpis
        for ranks in chosen.ranks
        for engine in chosen.engines
        for job in list_jobs(mpi, ranks, engine, chosen.deadline)
        if job.fault in chosen.faults and job.mode in chosen.modes
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--deadline", type=float, default=2.0)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--mpis", nargs="+", default=["Open MPI", "MPICH"])
    parser.add_argument("--engines", nargs="+", default=[*ENGINES])
    parser.add_argument("--modes", nargs="+", default=[*MODES])
    parser.add_argument("--faults", nargs="+", default=[*FAULTS])
    parser.add_argument("--text", action="store_true", help="what the job printed, where something is wrong")
    chosen = parser.parse_args()
    results = []
    for mpi, job in choose_jobs(chosen):
        found = run_job(job)
        results.append((mpi, job, found))
        verdict = "; ".join(found.problems).replace("\n", " / ") or "ok"
        print(
            f"{mpi:8} {job.ranks} {job.engine:13} {job.fault:14} {job.mode:8} {found.seconds:5.2f} s"
            f" {found.job_seconds:5.1f} s  {verdict}",
            flush=True,
        )
        if chosen.text and found.problems:
            print(found.text)
    print_summary(results, chosen.deadline)


def print_summary(results: Sequence[tuple[str, Job, Outcome]], deadline: float) -> None:
    print(f"\n{'':8} {'ranks':5} {'engine':13} {'right':>8} {'longest wait':>13} {'job':>7}")
    for key in dict.fromkeys((mpi, job.ranks, job.engine) for mpi, job, _ in results):
        rows = [o for mpi, job, o in results if (mpi, job.ranks, job.engine) == key]
        right = sum(not o.problems for o in rows)
        print(
            f"{key[0]:8} {key[1]:<5} {key[2]:13} {right:>4}/{len(rows)} "
            f"{max(o.seconds for o in rows) - deadline:+8.2f} s {max(o.job_seconds for o in rows):6.1f} s"
        )


if __name__ == "__main__":
    main()
