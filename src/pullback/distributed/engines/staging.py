"""Arrays on GPUs that travel through memory of the host, where nothing moves them from GPU to GPU."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...arrays.backends import is_device_array, raise_device_errors
from ...ops.collective.world import Started


def copy_to_host(xp: Any, arrays: Sequence[Any]) -> list[Any]:
    """Copies of CuPy's arrays in pinned memory, which GPUs write to directly; one wait for all of them."""
    empty_pinned = importlib.import_module("cupyx").empty_pinned
    copies = [empty_pinned(x.shape, x.dtype) if x.size else np.empty(x.shape, x.dtype) for x in arrays]
    for x, copy in zip(arrays, copies, strict=True):
        if is_device_array(x):
            x.get(out=copy, blocking=False)
        else:
            copy[...] = x
    xp.cuda.get_current_stream().synchronize()
    raise_device_errors()
    return copies


class Staged(Started):
    """A collective on copies of arrays; its results go back to the GPU of the caller."""

    def __init__(self, xp: Any, started: Started) -> None:
        self._xp, self._started = xp, started

    def wait(self) -> list[Any]:
        return [self._xp.asarray(x) for x in self._started.wait()]
