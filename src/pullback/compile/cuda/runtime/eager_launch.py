"""One kernel of a varying size, launched on CuPy arrays as directly as Python can."""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from .driver import Driver, Parameters, find_driver
from .recycling import ResultArrays

_THREADS = 256
#: So many blocks keep a large GPU busy; each thread then computes several elements.
_MAX_BLOCKS = 4096


class _OfThread(threading.local):
    """Memory of each thread for the parameters of a launch."""

    def __init__(self, pointers: int, sizes: Sequence[int]) -> None:
        self.parameters = Parameters([*[0] * pointers, *sizes])


#: Functions that were loaded before, by their text, for each driver.
_functions: weakref.WeakKeyDictionary[Driver, dict[str, Any]] = weakref.WeakKeyDictionary()


def _find_function(driver: Driver, text: str, name: str) -> Any:
    """The only function of a text, which serves all shapes."""
    known = _functions.setdefault(driver, {})
    if text not in known:
        module, _ = driver.load_module(text, False)
        known[text] = driver.find_function(module, name, 0)
    return known[text]


class KernelLaunch(NamedTuple):
    """A kernel as functions of arrays: `run(arrays, out)` returns the results, the first of them in memory that may be
    given; `compute(*arrays)` returns the only one.
    """

    run: Callable[..., list[Any]]
    compute: Callable[..., Any]


def make_launch(
    text: str,
    name: str,
    device: int,
    sizes: Sequence[int],
    inputs: int,
    results: Sequence[tuple[tuple[int, ...], np.dtype[Any]]],
    grid: Sequence[int] | None = None,
    lay_out: Callable[[Any], Any] | None = None,
) -> KernelLaunch:
    """A launch of a kernel whose parameters are pointers to arrays, pointers to its results, and sizes. Arrays that are
    not contiguous go through `lay_out` first; without it the kernel knows how they lie. `grid` are the sizes of the
    launch (`Driver.prepare_launch`); without them the first size is the number of elements, over which a line of blocks
    walks.
    """
    import cupy

    driver = find_driver(device)
    with cupy.cuda.Device(device):
        function = _find_function(driver, text, name)
    grid = grid or (min(-(-sizes[0] // _THREADS), _MAX_BLOCKS), 1, 1, _THREADS, 1, 1, 0)
    of_thread = _OfThread(inputs + len(results), sizes)
    launch_on = driver.prepare_launch(function, grid)
    current_stream, current_device = cupy.cuda.get_current_stream, cupy.cuda.runtime.getDevice
    take, *others = [ResultArrays(cupy, shape, t, math.prod(shape) * t.itemsize).take for shape, t in results]

    def launch(arrays: Sequence[Any], out: Any = None) -> list[Any]:
        if current_device() != device:
            with cupy.cuda.Device(device):
                return launch(arrays, out)
        parameters = of_thread.parameters
        values, i = parameters.values, 0
        laid_out = []  # lives until the kernel is in the queue of its stream
        for x in arrays:
            if lay_out is not None and not x._c_contiguous:  # what `x.flags` reads, in a tenth of the time
                x = lay_out(x)
                laid_out.append(x)
            values[i] = x.data.ptr
            i += 1
        stream = current_stream().ptr
        if out is None or not out._c_contiguous:
            out, values[i] = take(stream)
        else:
            values[i] = out.data.ptr
        outs = [out]
        for take_next in others:
            i += 1
            found, values[i] = take_next(stream)
            outs.append(found)
        launch_on(stream, parameters.address)
        return outs

    def compute(*arrays: Any) -> Any:
        # as above, for the most frequent case
        if current_device() != device:
            return launch(arrays)[0]
        parameters = of_thread.parameters
        values, i = parameters.values, 0
        for x in arrays:
            if not x._c_contiguous and lay_out is not None:
                return launch(arrays)[0]
            values[i] = x.data.ptr
            i += 1
        stream = current_stream().ptr
        out, values[i] = take(stream)
        launch_on(stream, parameters.address)
        return out

    return KernelLaunch(launch, compute)
