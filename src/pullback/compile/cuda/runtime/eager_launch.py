"""One kernel of a varying size, launched on arrays of the array library as directly as Python can."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .driver import Parameters, find_driver

_THREADS = 256
#: So many blocks keep a large GPU busy; each thread then computes several elements.
_MAX_BLOCKS = 4096


class _OfThread(threading.local):
    """Memory of each thread for the parameters of a launch."""

    def __init__(self, count: int) -> None:
        self.parameters = Parameters([0] * count)


def make_launch(
    text: str, name: str, device: int, size: int, inputs: int, results: Sequence[tuple[tuple[int, ...], np.dtype[Any]]]
) -> Callable[[Sequence[Any]], list[Any] | None]:
    """A function of arrays that launches a kernel whose parameters are pointers to them, pointers to its new results
    and the number of elements; it returns the results, or None if an array is not contiguous.
    """
    import cupy

    driver = find_driver(device)
    with cupy.cuda.Device(device):
        module, _ = driver.load_module(text, False)
        function = driver.find_function(module, name, 0)
    blocks = min(-(-size // _THREADS), _MAX_BLOCKS)
    of_thread = _OfThread(inputs + len(results) + 1)
    launch, new = driver.launch_line, cupy.ndarray
    current_stream, current_device = cupy.cuda.get_current_stream, cupy.cuda.runtime.getDevice

    def call(arrays: Sequence[Any]) -> list[Any] | None:
        if current_device() != device:
            with cupy.cuda.Device(device):
                return call(arrays)
        outs = [new(shape, dtype) for shape, dtype in results]
        parameters, i = of_thread.parameters, 0
        values = parameters.values
        for x in arrays:
            if not x._c_contiguous:  # what `x.flags` reads, in a tenth of the time
                return None
            values[i] = x.data.ptr
            i += 1
        for x in outs:
            values[i] = x.data.ptr
            i += 1
        values[i] = size
        launch(function, blocks, _THREADS, parameters, current_stream().ptr)
        return outs

    return call
