"""The random streams that a function may draw from: their states at its first run, so that a second run draws the same.

Our own default generator is replayed from a record (`default_stream.py`). Every other stream that can be rewound is
a `Stream`: the global ones register in `STREAMS`; generators are found by `reach`.
"""

from __future__ import annotations

import ctypes
import functools
import random
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple

import numpy as np

from ...arrays.backends import is_array
from ...arrays.spec import spec_of
from ...arrays.value import Value
from .default_stream import Draws, use_draws

StreamState = Any


class Stream(NamedTuple):
    """A stream of random numbers that can be rewound, by reading and writing all of its state."""

    name: str
    get: Callable[[], StreamState]
    put: Callable[[StreamState], None]


#: Held while streams shared by all threads are rewound, so that two second runs do not interfere.
rewind_lock = threading.RLock()


class Streams:
    """The states at the start of a first run, of the streams it drew from."""

    __slots__ = ("_device", "_draws", "_found", "_states")

    def __init__(self, generators: Sequence[Any], leaves: Sequence[Any]) -> None:
        self._draws = Draws()
        self._device = _DeviceStream() if _has_device_leaves(leaves) else None
        self._found = [*STREAMS, *map(stream_of, generators)]
        self._states = [stream.get() for stream in self._found]

    @contextmanager
    def record(self) -> Iterator[None]:
        """The first run; at its end, streams it did not draw from are dropped."""
        try:
            with use_draws(self._draws):
                yield
        finally:
            self._draws.complete = True
            pairs = zip(self._found, self._states, strict=True)
            drawn = [(stream, state) for stream, state in pairs if not is_same_state(state, stream.get())]
            self._found, self._states = [stream for stream, _ in drawn], [state for _, state in drawn]

    @property
    def were_used(self) -> bool:
        """Whether the run that was recorded drew anything."""
        return bool(self._found or self._draws.count)

    def replay(self) -> AbstractContextManager[Any]:
        """Replay our own stream from the first run, in the context of the second."""
        return use_draws(self._draws)

    @contextmanager
    def rewind(self) -> Iterator[None]:
        """Rewind every stream to the first run; afterwards all continue as if nothing had been rewound."""
        with rewind_lock if self._found else nullcontext(), self._rewind_device():
            before = [stream.get() for stream in self._found]
            try:
                _write_states(self._found, self._states)
                yield
            finally:
                _write_states(self._found, before)

    def _rewind_device(self) -> AbstractContextManager[None]:
        return nullcontext() if self._device is None else self._device.rewind()


@contextmanager
def preserve_streams(generators: Sequence[Any], leaves: Sequence[Any]) -> Iterator[None]:
    """Restore every stream but our own at exit."""
    device = _DeviceStream() if _has_device_leaves(leaves) else None
    streams = [*STREAMS, *map(stream_of, generators)]
    before = [stream.get() for stream in streams]
    with nullcontext() if device is None else device.rewind():
        try:
            yield
        finally:
            moved = [(s, state) for s, state in zip(streams, before, strict=True) if not is_same_state(state, s.get())]
            _write_states([stream for stream, _ in moved], [state for _, state in moved])


def _write_states(streams: Sequence[Stream], states: Sequence[StreamState]) -> None:
    for stream, state in zip(streams, states, strict=True):
        stream.put(state)


def stream_of(generator: Any) -> Stream:
    """A generator's own stream."""
    name = type(generator).__name__
    if isinstance(generator, np.random.RandomState):
        return Stream(name, functools.partial(generator.get_state, legacy=False), generator.set_state)
    if isinstance(generator, random.Random):
        return Stream(name, generator.getstate, generator.setstate)
    bits = generator.bit_generator if isinstance(generator, np.random.Generator) else generator
    return Stream(name, functools.partial(getattr, bits, "state"), functools.partial(setattr, bits, "state"))


class _Twister:
    """A global Mersenne twister. Reading its state costs 10 to 30 microseconds, so the last read is reused while
    its memory, a position and 624 words, is the same; `witness` returns a fingerprint, None where it cannot.
    """

    __slots__ = ("_last", "_read", "_witness", "_write")

    def __init__(
        self, witness: Callable[[], Any], read: Callable[[], StreamState], write: Callable[[StreamState], None]
    ) -> None:
        self._witness, self._read, self._write = witness, read, write
        self._last: tuple[Any, StreamState] | None = None

    def get(self) -> StreamState:
        witness, last = self._witness(), self._last
        if last is not None and witness is not None and last[0] == witness and not _has_spare_deviate(last[1]):
            return last[1]
        state = self._read()
        self._last = witness, state
        return state

    def put(self, state: StreamState) -> None:
        if state is not self.get():
            self._write(state)
            self._last = None


def _has_spare_deviate(state: StreamState) -> bool:
    """NumPy may return a cached normal deviate, without a trace in the twister's memory."""
    return isinstance(state, dict) and bool(state.get("has_gauss"))


_TWISTER_BYTES = 625 * 4


def _numpy_fingerprint() -> Any:
    bits = np.random.mtrand.get_bit_generator()
    return (
        (bits, ctypes.string_at(bits.ctypes.state_address, _TWISTER_BYTES)) if type(bits) is np.random.MT19937 else None
    )


def _python_fingerprint() -> Any:
    """CPython's twister lies directly after its object header."""
    twister: Any = random.getstate.__self__  # type: ignore[attr-defined]
    if not _PYTHON_IN_PLACE:
        return None
    return twister.gauss_next, ctypes.string_at(id(twister) + object.__basicsize__, _TWISTER_BYTES)


_PYTHON_IN_PLACE = (
    sys.implementation.name == "cpython"
    and 0 <= random.Random.__base__.__basicsize__ - object.__basicsize__ - _TWISTER_BYTES < 8  # type: ignore[union-attr]
)
_numpy = _Twister(_numpy_fingerprint, functools.partial(np.random.get_state, legacy=False), np.random.set_state)
_python = _Twister(_python_fingerprint, random.getstate, random.setstate)
#: The global streams besides our own: each registers here once.
STREAMS = [Stream("numpy.random", _numpy.get, _numpy.put), Stream("random", _python.get, _python.put)]


def is_same_state(one: StreamState, other: StreamState) -> bool:
    """Whether two states are equal: dicts may hold arrays, tuples hold plain numbers."""
    if one is other:
        return True
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(is_same_state(value, other[key]) for key, value in one.items())
    if isinstance(one, np.ndarray):
        return np.array_equal(one, other)
    return bool(one == other)


def _has_device_leaves(leaves: Sequence[Any]) -> bool:
    return "cupy" in sys.modules and any(
        str(getattr(spec_of(x), "device", "cpu")) != "cpu" for x in _array_leaves(leaves)
    )


def _array_leaves(leaves: Sequence[Any]) -> Iterator[Any]:
    return (x for x in leaves if isinstance(x, Value) or is_array(x))


class _DeviceStream:
    """CuPy's global stream on the current device. Its state cannot be read, so the first run reseeds it with a seed
    derived from its old one, and a second run draws from another stream with the same seed.
    """

    __slots__ = ("_device", "_seed")

    def __init__(self) -> None:
        import cupy

        stream = cupy.random.get_random_state()
        old = getattr(stream, "_rk_seed", None)
        drawn = int(stream.randint(1 << 31)) if old is None else int(old)
        self._seed = (drawn * 6364136223846793005 + 1442695040888963407) % (1 << 32)
        self._device = cupy.cuda.Device()
        stream.seed(self._seed)

    @contextmanager
    def rewind(self) -> Iterator[None]:
        import cupy

        with self._device:
            stream = cupy.random.get_random_state()
            cupy.random.set_random_state(cupy.random.RandomState(self._seed))
        try:
            yield
        finally:
            with self._device:
                cupy.random.set_random_state(stream)
