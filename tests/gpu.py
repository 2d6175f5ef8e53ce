"""CuPy for tests: the real one where there is a GPU, else the stand-in, installed while a module of tests runs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import fake_cupy
import pytest


def _find_cupy() -> Any:
    try:
        import cupy

        cupy.cuda.runtime.getDeviceCount()
    except Exception:  # not installed, no driver, no device
        return fake_cupy.cupy
    return cupy


cupy: Any = _find_cupy()
#: Whether a GPU computes.
REAL = cupy is not fake_cupy.cupy


@pytest.fixture(autouse=True, scope="module")
def installed_cupy() -> Iterator[Any]:
    """Tests of a module that imports this see CuPy; other tests do not."""
    with contextlib.nullcontext(cupy) if REAL else fake_cupy.installed() as found:
        yield found
