"""Ranks that fail: every other rank raises an error that names it, in time, and nothing of the job is left.

Real processes by MPI (`fault_jobs.py`); the whole matrix is a sweep, and `benchmarks/distributed/faults.py` prints it.
"""

import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from fault_jobs import ENGINES, FAULTS, Job, find_mpis, list_jobs, run_job

from pullback import errors
from pullback.distributed import supervision
from pullback.distributed.engines.node import MEMORY_BYTES, NodeWorld
from pullback.distributed.engines.peers import ENDED, RAISED, wait_until
from pullback.distributed.engines.processes import Processes
from pullback.distributed.engines.shared_slots import SLOT_BYTES, SharedSlots
from pullback.distributed.launch import find_launcher
from pullback.ops.collective.exchange import Sum
from pullback.ops.collective.world import make_call

MPIS = ["Open MPI", "MPICH"]


def check(mpi, job):
    pytest.importorskip("mpi4py")
    try:
        find_launcher()
    except errors.WorldError as error:
        pytest.skip(str(error))
    found = find_mpis()
    if mpi not in found or (job.fault == "launcher" and len(found) < 2):
        pytest.skip("MPICH is not installed beside Python, nor where PULLBACK_TEST_MPICH says")
    job = next(
        j for j in list_jobs(mpi, job.ranks, job.engine, job.deadline) if (j.fault, j.mode) == (job.fault, job.mode)
    )
    outcome = run_job(job)
    assert not outcome.problems, "\n".join([*outcome.problems, outcome.text])


#: One of each kind of end, over both engines, modes and MPIs; most of their time is Python's start.
CHOSEN = [
    ("Open MPI", Job("kill", "compiled", 2, "shared memory", deadline=4.0)),
    ("Open MPI", Job("stop", "eager", 2, "shared memory", deadline=1.0)),
    ("Open MPI", Job("raise beside", "compiled", 2, "shared memory", deadline=4.0)),
    ("Open MPI", Job("recompile", "compiled", 2, "shared memory", deadline=4.0)),
    ("Open MPI", Job("nan", "compiled", 2, "shared memory", deadline=4.0)),
    ("Open MPI", Job("kill", "eager", 2, "messages", deadline=4.0)),
    ("Open MPI", Job("loop", "compiled", 2, "messages", deadline=1.0)),
    ("Open MPI", Job("order", "eager", 2, "messages", deadline=4.0)),
    ("Open MPI", Job("return", "eager", 2, "messages", deadline=4.0)),
    ("Open MPI", Job("stuck at start", "eager", 2, "shared memory", deadline=3.0)),
    ("MPICH", Job("kill", "eager", 2, "shared memory", deadline=4.0)),
    ("MPICH", Job("stop", "compiled", 2, "messages", deadline=1.0)),
    ("MPICH", Job("unused", "compiled", 2, "messages", deadline=4.0)),
]


def describe(value):
    return value if isinstance(value, str) else f"{value.fault} {value.mode} {value.engine}"


@pytest.mark.slow
@pytest.mark.parametrize(("mpi", "job"), CHOSEN, ids=describe)
def test_faults_are_errors_in_time(mpi, job):
    check(mpi, job)


@pytest.mark.sweep
@pytest.mark.parametrize("mpi", MPIS)
@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("fault", "mode"), [(f, mode) for f, wanted in FAULTS.items() for mode in wanted.modes])
def test_every_fault_is_an_error_in_time(mpi, ranks, engine, fault, mode):
    check(mpi, Job(fault, mode, ranks, engine))


# what a rank knows of the others


def make_slots(ranks):
    memories = [bytearray(SLOT_BYTES) for _ in range(ranks)]
    return [SharedSlots(memories, r) for r in range(ranks)]


def test_what_became_of_a_rank_after_it_came_is_no_trouble_there():
    """It is at the next collective, and each channel counts its own."""
    first, second = make_slots(2)
    second.post(0, 7, 1)
    second.post(1, 2, 1)
    for state in (RAISED, ENDED):
        second.announce(state, "KeyError: 'mine'")
        assert first.find_absence(7, 0, str) is None
        assert first.find_absence(2, 1, str) is None
        for number, channel in [(8, 0), (3, 1), (7, 1)]:
            error = first.find_absence(number, channel, lambda: "total at x.py:1")
            assert type(error) is errors.RankLostError
            assert f"rank 1 of 2 {state}" in str(error)
            assert f"rank 0 waits for it at collective {number}: total at x.py:1" in str(error)
    # one that the ranks do not go on together concerns all of them
    second.announce("MismatchError", "not the same")
    assert type(first.find_absence(7, 0, str)) is errors.MismatchError
    assert type(second.find_absence(7, 0, str)) is errors.MismatchError  # its other channel too


def test_a_wait_ends_well_if_the_last_rank_failed_after_it_came():
    came = []

    def check():
        came.append(True)
        raise errors.RankLostError("it raised")

    wait_until(lambda: bool(came), 1.0, check, TimeoutError)
    with pytest.raises(errors.RankLostError):
        wait_until(lambda: False, 1.0, check, TimeoutError)


def run_ranks(ranks, on_rank, timeout=20.0):
    """What each rank of one process returned or raised, all of them in shared memory."""
    memories = [bytearray(MEMORY_BYTES) for _ in range(ranks)]
    found = [None] * ranks

    def work(rank):
        world = NodeWorld(memories, rank, timeout)
        try:
            found[rank] = on_rank(world)
        except Exception as error:
            found[rank] = error
            if world.error is None:
                world.peers.announce(RAISED, f"{type(error).__name__}: {error}")
        world.peers.close()

    threads = [threading.Thread(target=work, args=(r,), daemon=True) for r in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60.0)
    return found


def total(world, size, name="total", through="meet"):
    x = np.full(size, 1.0 + world.rank)
    call = make_call(name, Sum(), (("float64", x.shape),))
    if through == "meet":
        return world.meet(call, np, [x], Sum())[0]
    return world.start(call, np, [x], Sum()).wait()[0]


@pytest.mark.parametrize("size", [3, 40_000])  # added up by all, and divided
def test_a_rank_that_raises_right_after_a_collective_spoils_none(size):
    """However the threads take turns, the last collective that all came to goes well on all of them."""
    for turn in range(20):

        def on_rank(world, turn=turn):
            found = [total(world, size).sum() for _ in range(1 + turn % 3)]
            if world.rank == 1:
                raise KeyError("mine")
            try:
                total(world, size)
            except errors.RankLostError as error:
                return found, str(error)

        first, second, third = run_ranks(3, on_rank)
        assert isinstance(second, KeyError)
        for found, text in (first, third):
            assert found == [6.0 * size] * (1 + turn % 3)
            assert "rank 1 of 3 raised KeyError: 'mine'" in text


def test_both_channels_fail_together():
    """One that goes on beside the program waits for a rank that has other ideas in the program."""

    def on_rank(world):
        world.runs_beside = True
        started = None
        if world.rank == 0:
            call = make_call("beside", Sum(), (("float64", (2,)),))
            started = world.start(call, np, [np.ones(2)], Sum())
        try:
            total(world, 3 + world.rank)
        except errors.MismatchError:
            start = time.monotonic()
            if started is not None:
                with pytest.raises(errors.MismatchError):
                    started.wait()
            return time.monotonic() - start < 5.0

    assert run_ranks(2, on_rank) == [True, True]


def test_errors_of_the_thread_beside_name_the_line_that_started_it():
    def on_rank(world):
        world.runs_beside = True
        total(world, 2 + world.rank, through="start")

    first, second = run_ranks(2, on_rank)
    for error in (first, second):
        assert type(error) is errors.MismatchError
        assert "test_faults.py" in str(error)
        assert "world.start(call" in str(error)


def test_processes_that_are_gone_or_stopped_are_seen():
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        watched = Processes({3: process.pid, 5: 2**22 + 1})  # the second one is not there
        assert watched.find_gone() == set()
        assert not watched.is_stopped(3)
        process.send_signal(19)
        deadline = time.monotonic() + 10.0
        while not watched.is_stopped(3) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert watched.is_stopped(3)
        watched.kill(3)
        while not watched.find_gone() and time.monotonic() < deadline:
            time.sleep(0.03)
        assert watched.find_gone() == {3}
    finally:
        process.kill()
        process.wait()


# jobs that end


def start_job(folder, script):
    environment = {**os.environ, supervision.FOLDER: str(folder)}
    return subprocess.Popen(["/bin/sh", "-c", script], env=environment)


def test_what_a_launcher_leaves_behind_is_killed(tmp_path):
    assert supervision.wait_for_end(start_job(tmp_path, "sleep 300 & exit 4"), tmp_path) == 4
    supervision.end_leftovers(tmp_path)
    assert not supervision._find_processes(tmp_path)


@pytest.mark.parametrize("stubborn", [False, True])
def test_a_job_ends_where_ranks_ask_for_it(tmp_path, stubborn):
    script = ("trap '' TERM; " if stubborn else "") + "sleep 300; exit 0"
    start = time.monotonic()
    process = start_job(tmp_path, script)
    supervision.ask_for_end(0.1, {supervision.FOLDER: str(tmp_path)})
    assert supervision.wait_for_end(process, tmp_path) != 0
    supervision.end_leftovers(tmp_path)
    assert time.monotonic() - start < 60.0
    assert not supervision._find_processes(tmp_path)


def test_who_has_not_come_to_the_start_is_known(tmp_path):
    ranks = [{supervision.FOLDER: str(tmp_path), "PMI_RANK": str(r)} for r in range(3)]
    assert supervision.find_missing(3, ranks[0]) == []  # nobody says anything
    for rank in (0, 2):
        supervision.note_arrival(ranks[rank])
    assert supervision.find_missing(3, ranks[0]) == [1]
    leaving = threading.Thread(target=supervision.leave_start, args=(20.0, ranks[0]))
    leaving.start()
    leaving.join(0.2)
    assert leaving.is_alive()  # until the other one that came gives up too
    supervision.leave_start(20.0, ranks[2])
    leaving.join(20.0)
    assert not leaving.is_alive()
    assert supervision._find_end(tmp_path) is not None
    assert supervision.find_missing(3, {}) == []
