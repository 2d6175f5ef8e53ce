"""A job: the launcher of an MPI with the ranks it started, until all of them have ended."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import tempfile
import threading
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from .job_reports import ENDED, FAILED, RAISED, RUNNING, Report, has_saved, read_reports, read_signals
from .supervision import FOLDER, end_launcher, end_leftovers, wait_for_end

#: What a launcher returns where a rank was ended by a signal: its number (MPICH), or 128 and that (Open MPI).
_SIGNALS = (signal.SIGILL, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM)


class JobInterruptedError(Exception):
    """Someone wants the job to end, by a signal of this number."""

    def __init__(self, number: int) -> None:
        Exception.__init__(self, number)
        self.number = number


class Outcome(NamedTuple):
    """How a job ended: its exit status, which ranks were lost (and that is why it ended), and whether it saved."""

    status: int
    lost: tuple[Report, ...] = ()
    saved: bool = False
    interrupted: bool = False


def run_job(command: Sequence[str], environment: Mapping[str, str], *, near: str | None = None) -> Outcome:
    """Run a launcher to its end. Ranks report to a folder in `near`, which all machines must see; by default it is a
    temporary one of this machine.
    """
    with tempfile.TemporaryDirectory(prefix=".pullback-job-", dir=near, ignore_cleanup_errors=True) as name:
        folder = Path(name)
        process = subprocess.Popen(command, env={**environment, FOLDER: name})
        interruption = 0
        try:
            with _raise_signals():
                status = wait_for_end(process, folder)
        except JobInterruptedError as stop:
            interruption = stop.number
            end_launcher(process, stop.number)
        finally:
            end_leftovers(folder)
        reports = read_reports(folder)
        if interruption:
            return Outcome(128 + interruption, saved=has_saved(folder), interrupted=True)
        status = status or max(read_signals(folder), default=0)
        lost = find_lost(reports, status)
        return Outcome(_status_of(status, reports, lost), lost, has_saved(folder))


def find_lost(reports: Mapping[int, Report], status: int) -> tuple[Report, ...]:
    """The ranks that a job ended for, or without: those that were killed while others needed them. None if a rank
    raised an error of the program, or if the others went on without them.
    """
    outcomes = {report.outcome for report in reports.values()}
    if RAISED in outcomes:
        return ()
    silent = [report for _, report in sorted(reports.items()) if report.outcome == RUNNING]
    failed = [report for report in reports.values() if report.outcome == FAILED]
    if failed and all(report.error != "RankLostError" for report in failed):
        # one that was late or stopped was ended with the job: lost are those that were gone before
        gone = {rank for report in failed for rank in report.gone}
        silent = [report for report in silent if report.rank in gone]
    if not failed and ENDED not in outcomes and not _is_signal(status):
        return ()  # they left by `os._exit`
    done_without = {rank for report in reports.values() if report.outcome == ENDED for rank in report.without}
    return tuple(report for report in silent if report.rank not in done_without)


def _status_of(status: int, reports: Mapping[int, Report], lost: tuple[Report, ...]) -> int:
    """The exit status of a job: launchers may count a rank that the others went on without as a failure, or one that
    was lost as none.
    """
    if lost:
        return status or 1
    went_on = any(report.without and report.outcome == ENDED for report in reports.values())
    has_failed = any(report.outcome in (RAISED, FAILED) for report in reports.values())
    if went_on and not has_failed and _is_signal(status):
        return 0
    return status or int(has_failed)


def _is_signal(status: int) -> bool:
    return status < 0 or status in _SIGNALS or status - 128 in _SIGNALS


@contextlib.contextmanager
def _raise_signals() -> Generator[None, None, None]:
    """Ctrl-C, and a scheduler that ends this process, end the job in order."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise JobInterruptedError(number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
