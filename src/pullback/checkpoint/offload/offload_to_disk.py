"""`offload_to_disk`: saved values written to disk while the program runs, read ahead in the backward pass."""

from __future__ import annotations

import queue
import threading
import weakref
from contextlib import nullcontext
from typing import Any

import numpy as np

from ...arrays.backends import current_place, device_of
from ...arrays.spec import Spec, spec_of
from ...arrays.text import parse_bytes
from ...instrument import Instrument, SavedSlot
from ...ops.saved_values import SavedValue
from ...settings import override_modes
from .disk import Disk, DiskSlot, is_dense

#: The most values that wait to be written; saving one more blocks.
_QUEUE_LENGTH = 8
#: How many values are read ahead of the one requested.
_READ_AHEAD = 2
#: Seconds without work after which the writer ends.
_IDLE_SECONDS = 0.5


def offload_to_disk(directory: Any = None, *, at_least: int | str = "1 MiB") -> override_modes:
    """Store what backward saves in memory-mapped files in `directory` (that of temporary files if None), for values of
    `at_least` so many bytes.

    Gradients are the same to the last bit. Files have no names and are gone when the graph is, also after an error. The
    values are on disk for as long as the graph lives; backward may run outside of the `with` block.

    >>> import numpy as np, pullback as pb
    >>> x = pb.tensor(np.ones(1000), requires_grad=True)
    >>> with pb.offload_to_disk(at_least="4 KiB"):
    ...     y = pb.sum(pb.exp(x) * x)
    >>> y.backward(); x.grad[0].item() / np.e
    2.0
    """
    return override_modes(_DiskOffloader(Disk(directory), parse_bytes(at_least, "offload_to_disk: at_least", least=0)))


class _DiskOffloader(Instrument):
    """Sends large arrays to disk, each once however many nodes save it."""

    __slots__ = ("_at_least", "_disk", "_known", "_last", "_writer")

    def __init__(self, disk: Disk, at_least: int) -> None:
        self._disk, self._at_least = disk, at_least
        self._known: weakref.WeakValueDictionary[int, _StoredArray] = weakref.WeakValueDictionary()
        self._last: weakref.ref[_StoredArray] | None = None
        self._writer = _BackgroundWriter()

    def hold(self, value: Any, slot: SavedSlot) -> Any:
        if type(value) is not np.ndarray or value.nbytes < max(self._at_least, 1) or not is_dense(value):
            return value
        # ids are reused, so the entry must still be of this very array
        stored = self._known.get(id(value))
        if stored is None or not stored.is_copy_of(value):
            stored = _StoredArray(value, self._disk.allocate(value), self._last)
            self._known[id(value)] = stored
            # a chain from the last one stored back to the first: the order of the backward pass
            self._last = weakref.ref(stored)
            self._writer.write(stored)
        return _OffloadedValue(stored, spec_of(value))


class _StoredArray:
    """One array being written to disk, or on disk."""

    __slots__ = ("__weakref__", "_array", "_before", "_given", "_place", "_stream")

    def __init__(self, array: Any, place: DiskSlot, before: weakref.ref[_StoredArray] | None) -> None:
        self._array: Any = array
        self._given = weakref.ref(array)
        self._place = place
        self._before = before
        #: Where the array is being computed: what reads it in another thread must come after that.
        self._stream = None if device_of(array) == "cpu" else current_place()

    def is_copy_of(self, array: Any) -> bool:
        return self._given() is array

    def write(self) -> None:
        """Write the array to its place; until that is done, it is read from memory."""
        with nullcontext() if self._stream is None else self._stream.enter():
            self._place.write(self._array)
        self._array = None

    def value(self) -> Any:
        """The array; those stored just before it are needed next, so they are read ahead."""
        # weak references: what the pass has released is skipped
        before = self._before
        for _ in range(_READ_AHEAD):
            earlier = before() if before is not None else None
            if earlier is None:
                break
            earlier._prefetch()
            before = earlier._before
        held = self._array  # read once: the writer may drop it
        held = self._given() if held is None else held
        return self._place.read() if held is None else held

    def _prefetch(self) -> None:
        if self._array is None:
            self._place.prefetch()


class _OffloadedValue(SavedValue):
    """What a node holds for an array on disk."""

    __slots__ = ("_stored", "spec")

    def __init__(self, stored: _StoredArray, spec: Spec) -> None:
        self._stored = stored
        self.spec = spec

    def value(self) -> Any:
        return self._stored.value()


class _BackgroundWriter:
    """Writes in its own thread, which ends after a while without work."""

    __slots__ = ("_guard", "_thread", "_waiting")

    def __init__(self) -> None:
        self._waiting: queue.Queue[weakref.ref[_StoredArray]] = queue.Queue(_QUEUE_LENGTH)
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None

    def write(self, stored: _StoredArray) -> None:
        """Queue an array to be written, unless its graph dies first."""
        with self._guard:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._write_all, name="pullback-offload", daemon=True)
                self._thread.start()
            # weakly: an array whose graph is gone need not be written
            self._waiting.put(weakref.ref(stored))

    def _write_all(self) -> None:
        while True:
            try:
                stored = self._waiting.get(timeout=_IDLE_SECONDS)()
            except queue.Empty:
                with self._guard:  # nothing may be queued while the writer decides to end
                    if self._waiting.empty():
                        self._thread = None
                        return
                continue
            if stored is not None:
                stored.write()
            del stored
