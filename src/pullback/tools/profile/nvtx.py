"""Ranges of NVTX, by CuPy: what NVIDIA's tools show of a program."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from ...errors import DeviceError


def find_ranges() -> tuple[Callable[[str], None], Callable[[], None]]:
    """What begins a range of a name, and what ends it."""
    try:
        nvtx: Any = import_module("cupy").cuda.nvtx
        return nvtx.RangePush, nvtx.RangePop
    except (ImportError, AttributeError):
        raise DeviceError(
            "profile: nvtx=True marks ranges by CuPy's NVTX, which is not there.\n  pip install cupy-cuda12x"
        ) from None
