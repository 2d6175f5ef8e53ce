"""A script run under a profile, as `pullback profile` does."""

from __future__ import annotations

import runpy
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from ...errors import ArgumentError
from .time_profile import Profile, profile


def run_profiled(program: Sequence[str], steps: bool = False) -> tuple[int, Profile]:
    """The exit status of a script that runs as the main program, and its profile. An error of the script is printed,
    and what was seen until then is still shown.
    """
    path = Path(program[0])
    if not path.is_file():
        raise ArgumentError(f"profile: there is no file {program[0]}.")
    before = sys.argv, sys.path[:]
    sys.argv, sys.path[0:0] = list(program), [str(path.resolve().parent)]
    try:
        with profile(steps=steps) as seen:
            status = _run(str(path))
    finally:
        sys.argv, sys.path[:] = before
    return status, seen


def _run(path: str) -> int:
    try:
        runpy.run_path(path, run_name="__main__")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except Exception:
        traceback.print_exc()
        return 1
    return 0
