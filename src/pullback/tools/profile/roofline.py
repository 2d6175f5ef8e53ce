"""The roofline of this machine: the operations and bytes it can do in a second, measured once and kept on disk."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...arrays.timing import clock
from ...compile import cache
from ...compile.threads import get_num_threads
from ...errors import PullbackError

_FILE = "machine.json"
#: How long each rate is measured: the best counts, since others use the machine too.
_SECONDS = 0.7
#: Rows of the products; bytes of the arrays that are copied, more than the caches hold.
_ROWS, _BYTES = 768, 1 << 27


@dataclass(frozen=True, slots=True)
class Roofline:
    """What the machine can do: operations a second of float32 and float64 products, and bytes a second of memory."""

    processor: str
    threads: int
    float32: float
    float64: float
    bandwidth: float

    def share(self, operations: float, moved: float, seconds: float, is_double: bool) -> float:
        """How much of what the machine can do was reached: of its operations, or of its bandwidth, whichever limits
        such work first. What stays in a cache may reach more than 1.
        """
        least = max(operations / (self.float64 if is_double else self.float32), moved / self.bandwidth)
        return least / seconds if seconds > 0 else 0.0

    def __str__(self) -> str:
        rates = f"float32 {self.float32 * 1e-9:.0f}, float64 {self.float64 * 1e-9:.0f} GFLOP/s"
        return f"{rates}, memory {self.bandwidth * 1e-9:.1f} GB/s, {self.threads} threads, {self.processor}"


def measure_roofline() -> Roofline:
    """Measure this machine; takes about two seconds."""
    return Roofline(
        platform.processor() or platform.machine(), get_num_threads(), _product_rate(np.float32),
        _product_rate(np.float64), _copy_rate(),
    )  # fmt: skip


def _product_rate(dtype: Any) -> float:
    x: Any = np.ones((_ROWS, _ROWS), dtype)
    out = np.empty_like(x)
    return 2.0 * _ROWS**3 / _best_seconds(lambda: np.matmul(x, x, out=out))


def _copy_rate() -> float:
    x = np.zeros(_BYTES // 8)
    out = np.ones_like(x)
    return 2.0 * _BYTES / _best_seconds(lambda: np.copyto(out, x))


def _best_seconds(work: Callable[[], Any]) -> float:
    def time_once() -> float:
        start = clock()
        work()
        return (clock() - start) * 1e-9

    best, until = time_once(), clock() + int(1e9 * _SECONDS)
    while clock() < until:
        best = min(best, time_once())
    return best


def _file() -> Path | None:
    place = cache.directory()
    return None if place is None else place.parent / _FILE


def save_roofline(found: Roofline) -> Path:
    """Keep a measurement beside the cached machine code."""
    path = _file()
    if path is None:
        raise PullbackError("doctor: nothing is kept on disk, since PULLBACK_CACHE_DIR turns it off.")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(asdict(found)), encoding="utf-8")
    return path


def load_roofline() -> Roofline | None:
    """What was measured on this machine, None if nothing was, or another number of threads runs now."""
    path = _file()
    try:
        found = None if path is None else Roofline(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
    return found if found is not None and found.threads == get_num_threads() else None
