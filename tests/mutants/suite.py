"""The suite as a judge of mutants: which lines of the compiler each test reaches, and tests run in a forked child."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

__all__ = ["FILES", "run_tests", "traced"]

TESTS = Path(__file__).parent.parent
#: Tests that start processes of their own.
SLOW = "not fork and not processes and not several_threads"
#: Tests of the compiler itself that are quick to run. The composed programs and the networks are in the battery.
FILES = (
    "test_jit.py", "test_jit_parts.py", "test_jit_state.py", "test_fusion.py", "test_reference.py",
    "test_code_cache.py", "test_convolution.py", "test_pooling.py",
)  # fmt: skip


Watch = Callable[[str], AbstractContextManager[None]]


class _Session:
    """What a run of pytest is asked and says: each test under `watch`, the first that fails."""

    def __init__(self, watch: Watch | None) -> None:
        self.watch = watch
        self.failed = ""
        self.place = os.environ["PULLBACK_CACHE_DIR"]

    def pytest_configure(self) -> None:
        own = os.environ.get("PULLBACK_CACHE_DIR", "")
        if own != self.place:  # conftest has made one for the tests
            shutil.rmtree(own, ignore_errors=True)
            os.environ["PULLBACK_CACHE_DIR"] = self.place

    @pytest.hookimpl(wrapper=True)
    def pytest_pyfunc_call(self, pyfuncitem: Any) -> Generator[None, Any, Any]:
        if self.watch is None:
            return (yield)
        with self.watch(pyfuncitem.nodeid):
            return (yield)

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed and not self.failed:
            self.failed = f"{report.nodeid.partition('::')[2]}: {str(report.longrepr).strip().splitlines()[-1]}"

    def run(self, tests: list[str]) -> int:
        asked = [
            "-q",
            "-x",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:randomly",
            "-p",
            "no:xdist",
            "-k",
            SLOW,
            f"--rootdir={TESTS.parent}",
        ]
        return int(pytest.main([*asked, *(str(TESTS.parent / t) for t in tests)], plugins=[self]))


def run_tests(tests: list[str]) -> str:
    """What the first test says that fails; nothing if all pass."""
    session = _Session(None)
    code = session.run(tests)
    return session.failed or (f"pytest ended with {code}" if code else "")


def traced(watch: Watch) -> str:
    """Run all tests, each under `watch`; says what failed."""
    session = _Session(watch)
    code = session.run([f"tests/{name}" for name in FILES])
    return session.failed or (f"pytest ended with {code}" if code else "")
