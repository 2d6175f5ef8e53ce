"""Ranks that are processes, by Open MPI and MPICH, with shared memory and with messages (`ranks/mpi_check.py`)."""

import json
import os
import re
import sys
import time

import pytest
import sliced_training
from mpi_jobs import RANKS, ROOT, Engine, run_bounded, run_job, why_missing

from pullback import distributed
from pullback.distributed.engines.processes import process_state

sys.path.insert(0, str(RANKS))
import training

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are looked after by /proc")

SHARED, MESSAGES = Engine("openmpi"), Engine("openmpi", False)
MPICH, MPICH_MESSAGES = Engine("mpich"), Engine("mpich", False)
WORLDS = {True: "NodeWorld", False: "ClusterWorld"}
LIBRARIES = {"openmpi": "Open MPI", "mpich": "MPICH"}

VALUES = ("values", "large", "layouts", "trees", "donated", "random", "adjoints")
TRAINING = ("refusals", "losses", "aggregation", "tape", "normalization", "sharding", "codecs", "prediction")
BRIEF = ("values", "trees", "random", "donated", "adjoints", "derivatives", "losses", "tape", "sharding", "codecs")
ALL = (*VALUES, "derivatives", "all compiled", *TRAINING)


def check(ranks, engine, *names, **variables):
    """Run checks on ranks, and see that all of them ran, by the engine and the library that were meant."""
    job = run_job(ranks, [RANKS / "mpi_check.py", *names], engine, **variables)
    assert job.status == 0, str(job)
    for rank in range(ranks):
        assert f"rank {rank} of {ranks}: {WORLDS[engine.shares_memory]}, {LIBRARIES[engine.mpi]}" in job.out, str(job)
        done = [name for name in names if f"rank {rank}: {name}: ok" in job.out]
        assert done == [name for name in names if not name.startswith("--")], str(job)
    return job


#: Starting ranks takes seconds, so few jobs do many checks.
JOBS = [
    (2, SHARED, (*VALUES, "derivatives", "compiled", *TRAINING)),
    (3, MESSAGES, ("--overlap", "values", "layouts", "derivatives", "programs", "losses", "tape")),
    (
        3,
        SHARED,
        ("large", "random", "many sizes", "adjoints", "derivatives", "programs", "aggregation", "tape", "sharding"),
    ),
    (2, MPICH, BRIEF),
    (2, MPICH_MESSAGES, ("--overlap", *BRIEF)),
]
SWEEP = [
    *((n, engine, ALL) for n in (2, 3, 4) for engine in (SHARED, MESSAGES)),
    *((n, engine, ("--overlap", *ALL)) for n in (2, 4) for engine in (SHARED, MESSAGES)),
    *((n, engine, ALL) for n in (2, 4) for engine in (MPICH, MPICH_MESSAGES)),
    *((3, engine, ("programs",)) for engine in (MPICH, MPICH_MESSAGES)),
    (8, SHARED, ("values", "adjoints", "derivatives", *TRAINING)),
    (8, MESSAGES, ("values", "adjoints", "derivatives", *TRAINING)),
]


def name_of(case):
    return case if isinstance(case, (int, str)) else str(case) if isinstance(case, Engine) else f"{len(case)} checks"


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "engine", "names"), JOBS, ids=name_of)
def test_collectives_and_training(ranks, engine, names):
    check(ranks, engine, *names)


@pytest.mark.sweep
@pytest.mark.parametrize(("ranks", "engine", "names"), SWEEP, ids=name_of)
def test_everything_on_every_engine(ranks, engine, names):
    check(ranks, engine, *names)


# bits and files


@pytest.fixture(scope="module")
def bits_alone():
    """What a single process learns, which is this one."""
    return sliced_training.digests(steps=100)


def assert_same_bits(job, ranks, wanted):
    for way, digests in wanted.items():
        found = re.findall(rf"digests by {way}: (.*)", job.out)
        assert found == [" ".join(digests)] * ranks, str(job)
        assert len(digests) == 1


@pytest.mark.slow
def test_two_and_four_ranks_learn_the_bits_of_one_and_read_each_others_files(bits_alone, tmp_path):
    """Also what one process saved is read by all, and the other way round."""
    training.save_half(tmp_path / "by-1")
    for ranks, engine in ((2, MESSAGES), (4, SHARED)):
        names = ("save", "load", "bits", *(("adjoints", "derivatives") if ranks == 4 else ()))
        job = check(ranks, engine, *names, MPI_CHECK_FOLDER=str(tmp_path))
        assert_same_bits(job, ranks, bits_alone)
    for ranks in (1, 2, 4):
        assert training.load_half(tmp_path / f"by-{ranks}") == training.whole_training()
    found = distributed.run(lambda: training.load_half(tmp_path / "by-4"), 2)
    assert found == [training.whole_training()] * 2


@pytest.mark.sweep
@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("engine", [SHARED, MESSAGES, MPICH, MPICH_MESSAGES], ids=str)
def test_ranks_learn_the_bits_of_one(bits_alone, engine, ranks):
    if engine.mpi == "mpich" and ranks == 8:
        pytest.skip("its ranks wait busily, and there are fewer cores")
    assert_same_bits(check(ranks, engine, "bits"), ranks, bits_alone)


# `pullback run`


def rows_of(job):
    """What ranks printed, by rank and line."""
    found = [json.loads(line) for line in job.out.splitlines() if line.startswith("{")]
    return sorted(found, key=lambda row: (row["rank"], row["line"]))


@pytest.mark.slow
@pytest.mark.parametrize("engine", [SHARED, MPICH], ids=str)
def test_ranks_get_arguments_threads_and_cores_and_the_job_their_exit_status(engine):
    job = run_job(2, [RANKS / "told.py", "exit", "--steps", "3", "a b"], engine, OMP_NUM_THREADS="7")
    assert job.status == 3, str(job)
    cores = len(os.sched_getaffinity(0))
    threads = str(max(cores // 2, 1))
    assert [(row["rank"], row["line"]) for row in rows_of(job)] == [(r, i) for r in range(2) for i in range(5)]
    for row in rows_of(job):
        assert (row["ranks"], row["PULLBACK_RANKS"]) == (2, "2"), str(job)
        assert row["arguments"] == ["exit", "--steps", "3", "a b"]
        assert row["OPENBLAS_NUM_THREADS"] == row["PULLBACK_NUM_THREADS"] == threads
        assert row["OMP_NUM_THREADS"] == "7"  # what the user says counts
        assert row["cores"] == max(cores // 2, 1)
    assert job.errors.count("complains") == 2


@pytest.mark.slow
def test_a_module_that_raises_on_one_rank_fails_the_job():
    job = run_job(2, ["-m", "told", "raise"], PYTHONPATH=os.pathsep.join([str(ROOT / "src"), str(RANKS)]))
    assert job.status != 0
    assert "a mistake on rank 1" in job.errors, str(job)
    assert "RankLostError: rank 1 of 2 raised KeyError" in job.errors
    assert [row["arguments"] for row in rows_of(job)] == [["raise"]] * 10


@pytest.mark.slow
@pytest.mark.parametrize("example", ["data_parallel", "tensor_parallel", "pipeline"])
def test_examples_run_on_processes(example):
    job = run_job(2, [ROOT / "examples" / f"{example}.py"])
    assert job.status == 0, str(job)
    assert job.out.count("loss") == 1  # one rank prints


def test_jobs_that_do_not_end_are_ended_with_all_they_started(tmp_path):
    """What bounds the other tests."""
    pid = tmp_path / "pid"
    inner = f"import os, time; os.setpgid(0, 0); open({str(pid)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    program = f"import subprocess, sys; print('begun', flush=True); subprocess.run([sys.executable, '-c', {inner!r}])"
    with pytest.raises(pytest.fail.Exception, match=r"was not over within 3 s(.|\n)*begun"):
        run_bounded([sys.executable, "-c", program], dict(os.environ), 3.0)
    deadline = time.monotonic() + 10.0  # a process that was killed may take a moment to be gone
    while process_state(int(pid.read_text())) not in "ZX":
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.skipif(os.environ.get("PULLBACK_TEST_MPI") != "required", reason="elsewhere tests are skipped")
def test_both_engines_are_there():
    assert [why_missing(mpi) for mpi in LIBRARIES] == ["", ""]
