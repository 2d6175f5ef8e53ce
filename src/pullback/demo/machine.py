"""The machine and the versions that a run was timed with."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from time import strftime

import pullback as pb


def describe_machine(packages: Iterable[str]) -> str:
    """One line: processor, system, versions of Python and of the packages that are installed, and the date."""
    found = [f"pullback {pb.__version__}", f"Python {platform.python_version()}"]
    for package in packages:
        with suppress(PackageNotFoundError):
            found.append(f"{package} {version(package)}")
    system = f"{processor_name()}, {os.cpu_count()} cores, {platform.system()}"
    return f"{system}; {', '.join(found)}; one thread, which JAX alone cannot be told; {strftime('%Y-%m-%d')}"


def processor_name() -> str:
    """The model of the processor, or only its architecture where the system does not say."""
    with suppress(OSError), open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        for line in file:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
