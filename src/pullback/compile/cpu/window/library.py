"""Native functions over windows, loaded when first needed: one module for each kind and dtype, whatever the sizes."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ...computed_once import computed_once
from ..program.parallel_call import PARALLEL
from ..runtime import link as linking
from ..runtime.link import LinkedCode, has_llvm, link
from ..runtime.pool import POOL
from .direct import render_direct, render_direct_weight
from .maxima import render_places, render_put, render_spread, render_sum, render_take
from .patch_tile import TILE_ROWS
from .products import render_forward, render_weight

_MODULES: dict[str, Callable[[np.dtype[Any], int], str]] = {
    "products": render_forward,
    "product sums": render_weight,
    "direct": render_direct,
    "direct sums": render_direct_weight,
    "places": render_places,
    "take": render_take,
    "put": render_put,
    "sum": render_sum,
    "spread": render_spread,
}
_NAMES = ["before", "task", "after", "run"]


def vector_bytes() -> int:
    """The bytes of the vectors that window functions are made for: the same for plans and for the code."""
    return linking.vector_bytes()


@functools.cache
def can_run_natively() -> bool:
    """Whether there is a compiler, and a processor with the vectors that the tiles are made for."""
    return has_llvm() and vector_bytes() in TILE_ROWS


class WindowFunction:
    """A function of jobs. It runs their tasks on the pool if there are several, else on this thread."""

    def __init__(self, kind: str, dtype: np.dtype[Any]) -> None:
        self.code: LinkedCode = link(_MODULES[kind](dtype, vector_bytes()), _NAMES)
        take = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
        self.run, self.before, self.after = (take(self.code.addresses[name]) for name in ("run", "before", "after"))

    def __call__(self, job: int, tasks: int) -> None:
        if tasks == 1 or POOL.wanted == 1:
            self.run(job)
            return
        parallel = _parallel_function()
        if POOL.idle:
            POOL.start()
        self.before(job)
        parallel(self.code.addresses["task"], job, tasks)
        self.after(job)


@computed_once
def window_function(kind: str, dtype: np.dtype[Any]) -> WindowFunction:
    return WindowFunction(kind, dtype)


@computed_once
def _parallel_function() -> Any:
    return ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(POOL.entries(link)[PARALLEL])
