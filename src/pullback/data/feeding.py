"""Batches on a device: copied ahead from pinned memory, beside the work of the step before."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Generator, Iterator
from typing import Any, NamedTuple

import numpy as np

from ..arrays import tree
from ..arrays.backends import device_context, is_array, move_array
from ..arrays.value import Value
from ..ops.placement import move


def place_batch(batch: Any, device: str) -> Any:
    """A batch with its arrays on a device."""
    return tree.map(lambda x: move(x, device) if isinstance(x, Value) else _move_leaf(x, device), batch)


def _move_leaf(x: Any, device: str) -> Any:
    return move_array(x, device) if is_array(x) else x


def pin_batch(batch: Any) -> Any:
    """A batch with NumPy's arrays in memory that a GPU can read by itself; made in the thread that prefetches."""
    empty = importlib.import_module("cupyx").empty_pinned

    def pin(x: Any) -> Any:
        if not isinstance(x, np.ndarray):
            return x
        pinned = empty(x.shape, x.dtype)
        pinned[...] = x
        return pinned

    return tree.map(pin, batch)


class _Upload(NamedTuple):
    """A batch on its way: the arrays on the GPU, the memory they are copied from, and what tells the end of it."""

    batch: Any
    source: Any
    done: Any


def feed_ahead(batches: Iterator[Any], device: str, close: Callable[[], None]) -> Generator[Any, None, None]:
    """Pinned batches as batches on a GPU, one of them being copied while the one before is used.

    An array is allocated on the current stream, to which it returns when it is freed, and the copy waits for what this
    stream was asked before, which may still use that memory. The stream in turn waits for the copy.
    """
    with device_context(device):
        cuda = importlib.import_module("cupy").cuda
        stream = cuda.Stream(non_blocking=True)
    sources: list[_Upload] = []
    try:
        ahead: _Upload | None = None
        for batch in batches:
            with device_context(device):
                upload = _start_upload(batch, stream)
            # pinned memory is used again as soon as it is free
            sources = [each for each in [*sources, upload] if not each.done.done]
            if ahead is not None:
                yield _hand_over(ahead, device)
            ahead = upload
        if ahead is not None:
            yield _hand_over(ahead, device)
    finally:
        close()
        for each in sources:
            each.done.synchronize()


def _start_upload(batch: Any, stream: Any) -> _Upload:
    cupy = importlib.import_module("cupy")
    event, done = (cupy.cuda.Event(disable_timing=True) for _ in range(2))

    def start(x: Any) -> Any:
        if not isinstance(x, np.ndarray):
            return x
        there = cupy.empty(x.shape, x.dtype)
        there.set(x, stream=stream)
        return there

    cupy.cuda.get_current_stream().record(event)
    stream.wait_event(event)
    found = tree.map(start, batch)
    stream.record(done)
    return _Upload(found, batch, done)


def _hand_over(upload: _Upload, device: str) -> Any:
    with device_context(device):
        importlib.import_module("cupy").cuda.get_current_stream().wait_event(upload.done)
    return place_batch(upload.batch, device)
