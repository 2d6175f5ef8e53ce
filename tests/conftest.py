"""What all tests share: hypothesis is repeatable, and compiled code is kept in a directory of the run's own."""

from __future__ import annotations

import atexit
import gc
import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))
settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=60)
settings.load_profile("repeatable")

#: Suites of other packages, run by a script of their own.
collect_ignore = ["external"]

#: The steps of every program that a test compiles are looked at: kernels have a meaning, memory is written before read.
os.environ.setdefault("PULLBACK_VERIFY", "1")

#: No test may find what lies in the user's own cache, or leave something there; processes that tests start inherit it,
#: and so do the workers of a run, which compile much of the same code.
if "PYTEST_XDIST_WORKER" not in os.environ:
    os.environ["PULLBACK_CACHE_DIR"] = tempfile.mkdtemp(prefix="pullback-tests-")
    atexit.register(shutil.rmtree, os.environ["PULLBACK_CACHE_DIR"], ignore_errors=True)


def pytest_collection_finish() -> None:
    """What collecting made (some ten thousand items a process) stays: searches for garbage need not walk over it."""
    gc.collect()
    gc.freeze()


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """So does what the tests of a module leave behind, such as compiled code that later tests may find."""
    if nextitem is None or nextitem.path != item.path:
        gc.collect()
        gc.freeze()


@pytest.fixture
def quick_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of which programs run, not of how fast: LLVM optimizes nothing."""
    monkeypatch.setattr("pullback.compile.cpu.runtime.link.EFFORT", ((), 0))
