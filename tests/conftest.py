"""What all tests share: hypothesis is repeatable, and compiled code is kept in a directory of the run's own."""

from __future__ import annotations

import atexit
import gc
import importlib
import itertools
import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))
settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=60)
settings.load_profile("repeatable")

#: Suites of other packages, run by a script of their own, and what ranks run, which are started by tests.
collect_ignore = ["external", "ranks"]

#: The steps of every program that a test compiles are looked at: kernels have a meaning, memory is written before read.
os.environ.setdefault("PULLBACK_VERIFY", "1")

#: Workers take all processors; threads of the BLAS would wait for each other in turns, for many times the time.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

#: No test may find what lies in the user's own cache, or leave something there; processes that tests start inherit it,
#: and so do the workers of a run, some of whose tests compile the same.
if "PYTEST_XDIST_WORKER" not in os.environ:
    os.environ["PULLBACK_CACHE_DIR"] = tempfile.mkdtemp(prefix="pullback-tests-")
    atexit.register(shutil.rmtree, os.environ["PULLBACK_CACHE_DIR"], ignore_errors=True)


#: Counts the tests of this process.
tests = itertools.count(1)


def freeze() -> None:
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def _freeze_what_stays() -> None:
    """What lives when a module begins (items, plans, compiled programs: millions of objects after some modules) mostly
    stays: searches for garbage, and tests that count objects, need not walk over it again and again.
    """
    freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """A worker reports a test once if it passed: six messages a test would cost as much as many tests do."""
    if next(tests) % 500 == 0:  # some modules have thousands
        freeze()
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return None
    for report in runtestprotocol(item, log=False, nextitem=nextitem):
        if report.when == "call" or not report.passed:
            item.ihook.pytest_runtest_logreport(report=report)
    return True


@pytest.fixture
def quick_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of which programs run, not of how fast: LLVM optimizes nothing."""
    link = importlib.import_module("pullback.compile.cpu.runtime.link")  # `pullback.compile` is hidden from users
    monkeypatch.setattr(link, "EFFORT", ((), 0))
