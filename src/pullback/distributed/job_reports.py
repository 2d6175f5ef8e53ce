"""What became of each rank of a job, for its launcher: a small file for each rank, in a folder that the launcher made.

A rank says when it begins and how it ends; one that is killed says nothing more, and that is how it is known.
"""

from __future__ import annotations

import dataclasses
import json
import os
import platform
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from .engines.processes import process_state
from .supervision import FOLDER

#: The variable that says with how few ranks the job may go on.
LEAST = "PULLBACK_LEAST_RANKS"
#: How a rank can stand: it runs (or was killed), came to its end, raised an error of its own, or one of the world's.
RUNNING, ENDED, RAISED, FAILED = "running", "ended", "raised", "failed"
#: The file in which it is noted that a rank ended by a signal, by the launcher's own means, begins like this.
SIGNAL = "signal"
_SAVED = "saved"


@dataclasses.dataclass(frozen=True)
class Report:
    """How a rank stands, by the number that the launcher gave it; the class of its error; which others it found gone;
    and without which ranks it went on (`shrink`).
    """

    rank: int
    process: int
    host: str
    outcome: str = RUNNING
    error: str = ""
    gone: tuple[int, ...] = ()
    without: tuple[int, ...] = ()

    def write(self, folder: Path) -> None:
        """A reader finds the report before this one, or this one."""
        path = folder / f"rank-{self.rank}"
        draft = path.with_suffix(".new")
        with suppress(OSError):  # the folder is gone with its launcher, or is not seen from this machine
            draft.write_text(json.dumps(dataclasses.asdict(self)))
            draft.replace(path)

    def is_gone(self) -> bool:
        """Whether its process was on this machine and is no more."""
        return self.host == platform.node() and process_state(self.process) in "ZX"


def read_reports(folder: Path) -> dict[int, Report]:
    """The reports of all ranks that began, by their numbers."""
    found = {}
    for path in folder.glob("rank-*"):
        if not path.suffix:
            fields: dict[str, Any] = json.loads(path.read_text())
            fields |= {name: tuple(fields[name]) for name in ("gone", "without")}
            found[fields["rank"]] = Report(**fields)
    return found


def read_signals(folder: Path) -> list[int]:
    """The exit statuses of ranks that ended by a signal, where the launcher noted them."""
    return [int(path.read_text() or 0) for path in folder.glob(f"{SIGNAL}-*")]


class OwnReport:
    """The report of this process. Without a launcher that reads it, nothing is written."""

    def __init__(self, rank: int, environment: Mapping[str, str] = os.environ) -> None:
        folder = environment.get(FOLDER)
        self._folder = Path(folder) if folder else None
        self._report = Report(rank, os.getpid(), platform.node())
        self._write()

    def end(self) -> None:
        self._write(outcome=ENDED)

    def raised(self, error: BaseException) -> None:
        self._write(outcome=RAISED, error=type(error).__name__)

    def failed(self, error: BaseException) -> None:
        """The world came apart. Processes that are gone now were not ended because of that."""
        self._write(outcome=FAILED, error=type(error).__name__, gone=self._find_gone())

    def went_on(self, without: tuple[int, ...]) -> None:
        self._write(without=without)

    def _find_gone(self) -> tuple[int, ...]:
        if self._folder is None:
            return ()
        reports = read_reports(self._folder)
        return tuple(r for r, report in sorted(reports.items()) if report.outcome == RUNNING and report.is_gone())

    def _write(self, **changes: object) -> None:
        self._report = dataclasses.replace(self._report, **changes)  # type: ignore[arg-type]
        if self._folder is not None:
            self._report.write(self._folder)


def note_checkpoint(environment: Mapping[str, str] = os.environ) -> None:
    """Tell the launcher that a checkpoint was written: a job that starts again from it does not repeat itself."""
    if folder := environment.get(FOLDER):
        with suppress(OSError):
            Path(folder, _SAVED).touch()


def has_saved(folder: Path) -> bool:
    return Path(folder, _SAVED).exists()


def least_ranks(environment: Mapping[str, str] = os.environ) -> int:
    """With how few ranks the job may go on."""
    text = environment.get(LEAST, "")
    return int(text) if text.isdecimal() else 1
