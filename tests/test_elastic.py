"""Jobs that lose a rank: they start again with those that are left, or these go on in place. Every wait is bounded."""

import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from ranks import elastic_train

from pullback import distributed
from pullback.distributed.elastic import Sizes, choose_first, drop_hosts, parse_sizes, run_elastic
from pullback.distributed.engines.peers import RAISED
from pullback.distributed.engines.shared_slots import SLOT_BYTES, SharedSlots
from pullback.distributed.engines.survivors import Survivors
from pullback.distributed.job import Outcome, find_lost
from pullback.distributed.job_reports import Report
from pullback.distributed.launch import find_launcher
from pullback.errors import ArgumentError, WorldError

ROOT = Path(__file__).resolve().parent.parent
MPICH = Path(os.environ.get("PULLBACK_TEST_MPICH") or Path(sys.prefix) / "mpich")
#: Seconds that a job may take.
LIMIT = 120.0


def why_missing():
    try:
        import mpi4py  # noqa: F401

        find_launcher()
    except (ImportError, WorldError) as error:
        return str(error)
    return ""


needs_mpi = pytest.mark.skipif(bool(why_missing()), reason=why_missing())


def variables_of(engine):
    found = {"PULLBACK_SHARED_MEMORY": "0" if "messages" in engine else "1"}
    if "mpich" not in engine:
        return found
    if not (MPICH / "bin" / "mpiexec").exists():
        pytest.skip(f"there is no MPICH in {MPICH}")
    library = next((MPICH / "lib").glob("libmpi.so.*"))
    return found | {"PULLBACK_MPIEXEC": str(MPICH / "bin" / "mpiexec"), "MPI4PY_LIBMPI": str(library)}


def start_job(options, script, *arguments, engine="openmpi"):
    environment = {
        **os.environ,
        **variables_of(engine),
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests")]),
    }
    path = str(ROOT / "tests" / "ranks" / f"{script}.py")
    command = [sys.executable, "-m", "pullback.cli", "run", *options, path, *map(str, arguments)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True, start_new_session=True)


def finish(process, folder):
    """The exit status of a job and what it printed. None of its processes is left."""
    try:
        out, errors = process.communicate(timeout=LIMIT)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        left = [p for p in processes_of(folder) if is_alive(p)]
        for p in left:
            os.kill(p, signal.SIGKILL)
    assert not left, f"{left} were left running\n{out}{errors}"
    return process.returncode, out + errors


def processes_of(folder):
    return [int(path.name.partition("-")[2]) for path in folder.glob("process-*")]


def is_alive(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def check_result(folder, parts):
    """The parameters have the bits of a training that loses nobody: `parts` are runs from the last checkpoint, of some
    ranks to some step, here by threads.
    """
    path = folder / "expected"
    for ranks, until in parts:
        alone, *_ = distributed.run(functools.partial(elastic_train.train, path, until=until), ranks)
    with np.load(folder / "result.npz") as found:
        assert {name: x.tobytes() for name, x in found.items()} == {name: x.tobytes() for name, x in alone.items()}


@needs_mpi
@pytest.mark.slow
@pytest.mark.parametrize(
    "engine",
    [
        "openmpi",
        *(pytest.param(engine, marks=pytest.mark.sweep) for engine in ("messages", "mpich", "mpich messages")),
    ],
)
def test_a_job_that_loses_a_rank_starts_again_with_those_left(tmp_path, engine):
    job = start_job(["--elastic", "2:4"], "elastic_train", tmp_path, "restart", "2:10:compute", engine=engine)
    status, text = finish(job, tmp_path)
    assert status == 0, text
    assert "rank 2 of 4 was lost (process" in text
    assert "The job starts again with 3 ranks." in text
    check_result(tmp_path, [(4, 8), (3, 24)])
    assert json.loads((tmp_path / "events.json").read_text()) == [3]


@needs_mpi
@pytest.mark.slow
@pytest.mark.parametrize("engine", ["openmpi", "messages", "mpich"])
def test_ranks_go_on_in_place_whenever_one_is_killed(tmp_path, engine):
    """Of 4 ranks one is killed while it computes, of 3 one in a collective, of 2 one in a save."""
    losses = ["2:6:compute", "0:10:collective", "3:15:save"]
    status, text = finish(start_job(["-n", "4"], "elastic_train", tmp_path, "shrink", *losses, engine=engine), tmp_path)
    assert status == 0, text
    check_result(tmp_path, [(4, 4), (3, 8), (2, 12), (1, 24)])
    assert json.loads((tmp_path / "events.json").read_text()) == [4, 3, 2, 1], text


@needs_mpi
@pytest.mark.sweep
@pytest.mark.parametrize("engine", ["openmpi", "messages", "mpich"])
@pytest.mark.parametrize("loss", ["0:7:index", "0:7:save", "1:7:save", "0:5:compute", "3:0:collective"])
def test_ranks_go_on_in_place_from_any_moment(tmp_path, engine, loss):
    status, text = finish(start_job(["-n", "4"], "elastic_train", tmp_path, "shrink", loss, engine=engine), tmp_path)
    assert status == 0, text
    saved = int(loss.split(":")[1]) // 4 * 4
    check_result(tmp_path, [(4, saved), (3, 24)] if saved else [(3, 24)])
    assert json.loads((tmp_path / "events.json").read_text()) == [4, 3], text


@needs_mpi
@pytest.mark.slow
def test_an_error_of_the_program_ends_the_job(tmp_path):
    status, text = finish(start_job(["--elastic", "1:3"], "elastic_ends", tmp_path, "raise"), tmp_path)
    assert status == 1
    assert "shrink: rank 1 was not lost, it raised ValueError: no such sample" in text
    assert "starts again" not in text
    assert (tmp_path / "starts").read_text() == "3\n"


@needs_mpi
@pytest.mark.slow
def test_restarts_without_a_checkpoint_are_bounded(tmp_path):
    options = ["--elastic", "2:2", "--restarts", "1"]
    status, text = finish(start_job(options, "elastic_ends", tmp_path, "die"), tmp_path)
    assert status != 0
    assert (tmp_path / "starts").read_text() == "2\n2\n"
    assert "It was started again 1 times without a checkpoint" in text


@needs_mpi
@pytest.mark.slow
def test_too_few_ranks_do_not_go_on_in_place(tmp_path):
    status, text = finish(start_job(["--elastic", "2:4"], "elastic_ends", tmp_path, "below"), tmp_path)
    assert status == 0, text
    assert "1 are left, and the job wants 2 at least" in text
    assert (tmp_path / "starts").read_text() == "4\n2\n"


@needs_mpi
@pytest.mark.sweep
@pytest.mark.parametrize("engine", ["openmpi", "messages", "mpich"])
def test_a_late_rank_is_not_lost(tmp_path, engine):
    status, text = finish(start_job(["--elastic", "1:2"], "elastic_ends", tmp_path, "late", engine=engine), tmp_path)
    assert status != 0
    assert "CollectiveTimeoutError" in text
    assert (tmp_path / "starts").read_text() == "2\n"


@needs_mpi
@pytest.mark.slow
@pytest.mark.parametrize(
    ("engine", "number"),
    [
        ("openmpi", signal.SIGINT),
        pytest.param("openmpi", signal.SIGTERM, marks=pytest.mark.sweep),
        pytest.param("mpich", signal.SIGINT, marks=pytest.mark.sweep),
        pytest.param("mpich", signal.SIGTERM, marks=pytest.mark.sweep),
    ],
)
def test_an_interrupt_ends_everything(tmp_path, engine, number):
    job = start_job(["--elastic", "1:2"], "elastic_ends", tmp_path, "wait", engine=engine)
    deadline = time.monotonic() + LIMIT
    while len(processes_of(tmp_path)) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    if number == signal.SIGINT:  # as a terminal does: all processes of the command get it
        os.killpg(job.pid, number)
    else:
        os.kill(job.pid, number)
    status, text = finish(job, tmp_path)
    assert status == 128 + number, text
    assert "starts again" not in text


# Why a job ended, from the reports of its ranks.


def report(rank, outcome="running", error="", **more):
    return Report(rank, 1000 + rank, "here", outcome, error, **more)


LOSSES = {
    "all ended": ([report(0, "ended"), report(1, "ended")], 0, []),
    "one was killed": ([report(0, "failed", "RankLostError"), report(1)], 1, [1]),
    "one raised": ([report(0, "failed", "RankLostError"), report(1, "raised", "ValueError")], 1, []),
    "one raised, one was killed": ([report(0), report(1, "raised", "ValueError")], 1, []),
    "one ended early": ([report(0, "failed", "RankLostError"), report(1, "ended")], 1, []),
    "one was late": ([report(0, "failed", "CollectiveTimeoutError"), report(1)], 1, []),
    "one was gone": ([report(0, "failed", "CollectiveTimeoutError", gone=(1,)), report(1), report(2)], 1, [1]),
    "a mismatch": ([report(0, "failed", "MismatchError"), report(1, "failed", "MismatchError")], 1, []),
    "all were killed": ([report(0), report(1)], 137, [0, 1]),
    "all were killed, MPICH": ([report(0), report(1)], 9, [0, 1]),
    "all left by os._exit": ([report(0), report(1)], 3, []),
    "killed after the last collective": ([report(0, "ended"), report(1)], 0, [1]),
    "the others went on": ([report(0, "ended", without=(1,)), report(1)], 137, []),
    "the others went on, and lost one more": ([report(0, "ended", without=(1,)), report(1), report(2)], 137, [2]),
    "none came to init": ([], 1, []),
}


@pytest.mark.parametrize("case", LOSSES)
def test_lost_ranks(case):
    reports, status, lost = LOSSES[case]
    assert [r.rank for r in find_lost({r.rank: r for r in reports}, status)] == lost


# With how many ranks a job starts, and starts again.


def play(outcomes, sizes, ranks=0, hosts="", restarts=3):
    """Run jobs that end in a given way; with how many ranks and where each was started, and the status."""
    started, left = [], iter(outcomes)

    def start(ranks, arguments, *, hosts, environment):
        assert environment["PULLBACK_LEAST_RANKS"] == str(sizes[0])
        started.append((ranks, hosts))
        return next(left)

    status = run_elastic(Sizes(*sizes), ranks, ["x.py"], hosts=hosts, restarts=restarts, start=start)
    return started, status


def lose(*ranks, saved=False):
    return Outcome(1, tuple(report(r) for r in ranks), saved)


DONE = Outcome(0)


def test_ranks_are_as_many_as_are_left_and_never_below_the_least():
    assert play([DONE], (2, 4)) == ([(4, "")], 0)
    assert play([DONE], (2, 4), 3) == ([(3, "")], 0)
    assert play([lose(1), lose(0), lose(1), DONE], (2, 4)) == ([(4, ""), (3, ""), (2, ""), (2, "")], 0)
    assert play([lose(0, 1, 2, 3), DONE], (2, 4)) == ([(4, ""), (2, "")], 0)
    assert play([Outcome(3)], (2, 4)) == ([(4, "")], 3)
    assert play([Outcome(130, interrupted=True)], (2, 4)) == ([(4, "")], 130)


def test_a_checkpoint_in_between_counts_as_progress(capsys):
    assert len(play([lose(0)] * 4, (1, 1))[0]) == 4
    assert "started again 3 times without a checkpoint" in capsys.readouterr().err
    assert len(play([*[lose(0, saved=True)] * 8, DONE], (1, 1))[0]) == 9
    assert len(play([lose(0), lose(0), lose(0, saved=True), *[lose(0)] * 3], (1, 1))[0]) == 6


def test_a_machine_that_lost_all_of_its_ranks_is_left_out(capsys):
    started, status = play([lose(2, 3), DONE], (2, 4), hosts="a:2,b:2")
    assert (started, status) == ([(4, "a:2,b:2"), (2, "a:2")], 0)
    assert play([lose(0, 3), DONE], (2, 4), hosts="a:2,b:2")[0] == [(4, "a:2,b:2"), (2, "a:2,b:2")]
    assert play([lose(2, 3)], (3, 4), hosts="a:2,b:2") == ([(4, "a:2,b:2")], 1)
    assert "have room for less than 3 ranks" in capsys.readouterr().err
    assert play([lose(0, 1)], (1, 2), hosts="a:2") == ([(2, "a:2")], 1)
    assert drop_hosts("a,b:3,c:2", 5, [0]) == "b:3,c:2"
    assert drop_hosts("a:4,b:4", 4, [0, 1, 2]) == "a:4,b:4"


@pytest.mark.parametrize("text", ["", "4", "0:2", "3:2", "a:b", "2:", "-1:2"])
def test_sizes_are_checked(text):
    with pytest.raises(ArgumentError, match="--elastic"):
        parse_sizes(text)


@pytest.mark.parametrize("ranks", [1, 5])
def test_the_first_number_of_ranks_lies_in_the_range(ranks):
    with pytest.raises(ArgumentError, match="wants a number in that range"):
        choose_first(Sizes(2, 4), ranks)


# How those that are left agree on who they are: ranks that die at every point of the agreement.


class Died(BaseException):
    pass


class Mortals:
    """Ranks as threads that agree on who is left. `dies` says at which of its points each dies; others see that."""

    def __init__(self, ranks, dies, dead=()):
        self.dead, self.dies, self.found = set(dead), dict(dies), {}
        memories = [bytearray(SLOT_BYTES) for _ in range(ranks)]
        self.slots = [SharedSlots(memories, r, self.point_of(r)) for r in range(ranks)]
        for slots in self.slots:
            slots.is_gone = self.dead.__contains__

    def point_of(self, rank):
        def pass_point():
            self.dies[rank] = self.dies.get(rank, 0) - 1
            if self.dies[rank] == 0:
                raise Died

        return pass_point

    def agree(self, rank):
        try:
            self.found[rank] = Survivors(self.slots[rank], 10.0).agree()
        except Died:
            self.dead.add(rank)
        except WorldError as error:
            self.found[rank] = error

    def run(self):
        threads = [threading.Thread(target=self.agree, args=(r,)) for r in range(len(self.slots)) if r not in self.dead]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for slots in self.slots:
            slots.close()
        return [self.found[r] for r in sorted(self.found)]


@pytest.mark.parametrize("victim", range(4))
@pytest.mark.parametrize("second", [None, (0, 2), (2, 1), (3, 3)])
@pytest.mark.parametrize("point", range(1, 6))
def test_those_left_agree_whenever_others_die(victim, second, point):
    dies = {victim: point} | ({second[0]: second[1]} if second else {})
    mortals = Mortals(5, dies, dead=[1] if victim != 1 else [])
    lists = mortals.run()
    assert lists
    assert all(found == lists[0] for found in lists), lists
    living = [r for r in range(5) if r not in mortals.dead]
    # one that died after it had joined is on the list: the world it is in finds that out at the first collective
    assert set(living) <= set(lists[0])
    assert all(r not in lists[0] or r in dies for r in mortals.dead)
    assert sorted(mortals.found) == living


def test_a_rank_that_raised_is_not_left_behind():
    mortals = Mortals(3, {}, dead=[1])
    mortals.slots[1].announce(RAISED, "ValueError: bad")
    errors = mortals.run()
    assert [str(e) for e in errors] == ["shrink: rank 1 was not lost, it raised ValueError: bad"] * 2


def test_shrink_says_where_it_makes_no_sense():
    with pytest.raises(WorldError, match="no rank among others"):
        distributed.shrink()
    with pytest.raises(WorldError, match="threads of a process do not die apart"):
        distributed.run(distributed.shrink, 2)


# One of 4 ranks is killed from outside at a random moment.


@needs_mpi
@pytest.mark.sweep
@pytest.mark.parametrize("engine", ["openmpi", "messages", "mpich"])
def test_ranks_go_on_from_random_moments(tmp_path, engine):
    rng = np.random.default_rng(0)
    rows = []
    for number in range(50):
        folder = tmp_path / str(number)
        folder.mkdir()
        job = start_job(["-n", "4"], "elastic_moments", folder, engine=engine)
        deadline = time.monotonic() + LIMIT
        while len(processes_of(folder)) < 4 and time.monotonic() < deadline and job.poll() is None:
            time.sleep(0.01)
        time.sleep(rng.uniform(0.0, 0.4))
        victim = processes_of(folder)[rng.integers(4)]
        os.kill(victim, signal.SIGKILL)
        killed = time.time()
        status, text = finish(job, folder)
        assert status == 0, f"{number}: {text}"
        told = [json.loads(path.read_text()) for path in folder.glob("told-*")]
        assert [t["ranks"] for t in told] == [3] * 3
        assert len({t["digest"] for t in told}) == 1
        rows += [(t["caught"] - killed, t["went_on"] - t["caught"]) for t in told]
    for name, column in zip(("noticed", "went on"), np.array(rows).T, strict=True):
        marks = np.percentile(column, [0, 50, 90, 100]) * 1e3
        print(f"{engine}: {name} after {marks.round(1).tolist()} ms (least, median, 90%, most) of {len(column)}")
