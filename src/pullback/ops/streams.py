"""The random streams that a function may draw from: where they stood at its first run, so that a second draws the same.

Our own default generator is replayed from a record (`ops/default_stream.py`). Every other stream that can be rewound is
a `Stream`: the common ones, which any function can reach, register in `STREAMS`; generators are found by `reach`.
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

from ..arrays.backends import is_array
from ..arrays.spec import spec_of
from ..arrays.value import Value
from .default_stream import Draws, drawing

__all__ = ["STREAMS", "Stream", "Streams", "stream_of", "unmoved"]

State = Any


class Stream(NamedTuple):
    """A stream of random numbers that can be rewound, by reading and writing all of its state."""

    name: str
    get: Callable[[], State]
    put: Callable[[State], None]


#: Held while streams that all threads share are rewound, so that two second runs do not mix them up.
rewinding = threading.RLock()


class Streams:
    """The states that a first run started from, of the streams it drew from."""

    __slots__ = ("_device", "_draws", "_found", "_states")

    def __init__(self, generators: Sequence[Any], leaves: Sequence[Any]) -> None:
        self._draws = Draws()
        self._device = _DeviceStream() if _on_device(leaves) else None
        self._found = [*STREAMS, *map(stream_of, generators)]
        self._states = [stream.get() for stream in self._found]

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """The first run; when it is over, streams that it did not draw from are forgotten."""
        try:
            with drawing(self._draws):
                yield
        finally:
            self._draws.complete = True
            pairs = zip(self._found, self._states, strict=True)
            drawn = [(stream, state) for stream, state in pairs if not same(state, stream.get())]
            self._found, self._states = [stream for stream, _ in drawn], [state for _, state in drawn]

    def replayed(self) -> AbstractContextManager[Any]:
        """Our own stream as it was at the first run: for the context in which the second one runs."""
        return drawing(self._draws)

    @contextmanager
    def rewound(self) -> Iterator[None]:
        """Every stream as it was at the first run; afterwards all go on as if nothing had been rewound."""
        with rewinding if self._found else nullcontext(), self._on_device():
            before = [stream.get() for stream in self._found]
            try:
                _put(self._found, self._states)
                yield
            finally:
                _put(self._found, before)

    def _on_device(self) -> AbstractContextManager[None]:
        return nullcontext() if self._device is None else self._device.rewound()


@contextmanager
def unmoved(generators: Sequence[Any], leaves: Sequence[Any]) -> Iterator[None]:
    """Every stream but our own is afterwards where it is now."""
    device = _DeviceStream() if _on_device(leaves) else None
    streams = [*STREAMS, *map(stream_of, generators)]
    before = [stream.get() for stream in streams]
    with nullcontext() if device is None else device.rewound():
        try:
            yield
        finally:
            moved = [(s, state) for s, state in zip(streams, before, strict=True) if not same(state, s.get())]
            _put([stream for stream, _ in moved], [state for _, state in moved])


def _put(streams: Sequence[Stream], states: Sequence[State]) -> None:
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
    """A global Mersenne twister. Reading its state costs 10 to 30 microseconds, so what was read is used again while
    its memory, a position and 624 words, is the same; `witness` tells, None where it cannot.
    """

    __slots__ = ("_last", "_read", "_witness", "_write")

    def __init__(self, witness: Callable[[], Any], read: Callable[[], State], write: Callable[[State], None]) -> None:
        self._witness, self._read, self._write = witness, read, write
        self._last: tuple[Any, State] | None = None

    def get(self) -> State:
        witness, last = self._witness(), self._last
        if last is not None and witness is not None and last[0] == witness and not _holds_back(last[1]):
            return last[1]
        state = self._read()
        self._last = witness, state
        return state

    def put(self, state: State) -> None:
        if state is not self.get():
            self._write(state)
            self._last = None


def _holds_back(state: State) -> bool:
    """NumPy may hand out a normal deviate that it held back, without a trace in the twister's memory."""
    return isinstance(state, dict) and bool(state.get("has_gauss"))


_TWISTER_BYTES = 625 * 4


def _numpy_witness() -> Any:
    bits = np.random.mtrand.get_bit_generator()
    return (
        (bits, ctypes.string_at(bits.ctypes.state_address, _TWISTER_BYTES)) if type(bits) is np.random.MT19937 else None
    )


def _python_witness() -> Any:
    """CPython's twister lies right behind the head of its object."""
    twister: Any = random.getstate.__self__  # type: ignore[attr-defined]
    if not _PYTHON_IN_PLACE:
        return None
    return twister.gauss_next, ctypes.string_at(id(twister) + object.__basicsize__, _TWISTER_BYTES)


_PYTHON_IN_PLACE = (
    sys.implementation.name == "cpython"
    and 0 <= random.Random.__base__.__basicsize__ - object.__basicsize__ - _TWISTER_BYTES < 8  # type: ignore[union-attr]
)
_numpy = _Twister(_numpy_witness, functools.partial(np.random.get_state, legacy=False), np.random.set_state)
_python = _Twister(_python_witness, random.getstate, random.setstate)
#: The streams that every function can reach beside our own: each registers here once.
STREAMS = [Stream("numpy.random", _numpy.get, _numpy.put), Stream("random", _python.get, _python.put)]


def same(one: State, other: State) -> bool:
    """Whether two states are one: dicts may hold arrays, tuples hold plain numbers."""
    if one is other:
        return True
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    if isinstance(one, np.ndarray):
        return np.array_equal(one, other)
    return bool(one == other)


def _on_device(leaves: Sequence[Any]) -> bool:
    return "cupy" in sys.modules and any(str(getattr(spec_of(x), "device", "cpu")) != "cpu" for x in _arrays(leaves))


def _arrays(leaves: Sequence[Any]) -> Iterator[Any]:
    return (x for x in leaves if isinstance(x, Value) or is_array(x))


class _DeviceStream:
    """CuPy's global stream on the current device. Its state cannot be read, so the first run starts it anew from a seed
    that follows from its old one, and a second run draws from another stream started from the same seed.
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
    def rewound(self) -> Iterator[None]:
        import cupy

        with self._device:
            stream = cupy.random.get_random_state()
            cupy.random.set_random_state(cupy.random.RandomState(self._seed))
        try:
            yield
        finally:
            with self._device:
                cupy.random.set_random_state(stream)
