"""Function and arguments in, the random streams it may draw from out, so that a second run draws the same numbers."""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import FunctionType, MethodType
from typing import Any

import numpy as np

from ..arrays.backends import is_array
from ..arrays.spec import spec_of
from ..arrays.value import Value
from ..settings import random_states

__all__ = ["Streams", "common_streams", "rewound", "same", "stream_of"]

State = Any
Stream = tuple[Callable[[], State], Callable[[State], None]]

#: How far to look for generators in what a function closes over: functions in functions, objects in lists.
_DEPTH = 3
#: The memory of the global Mersenne twister: 624 words and a position.
_TWISTER_BYTES = 625 * 4


class Streams:
    """The states that a first run started from, of the streams it drew from."""

    __slots__ = ("_device", "_found", "_states")

    def __init__(self, function: Any, leaves: Sequence[Any]) -> None:
        self._device = _DeviceStream() if _on_device(leaves) else None
        self._found = streams_of(function, leaves)
        self._states = [get() for get, _ in self._found]

    def settle(self) -> None:
        """The run is over: forget the streams that it did not draw from."""
        pairs = zip(self._found, self._states, strict=True)
        drawn = [(stream, state) for stream, state in pairs if not same(state, stream[0]())]
        self._found, self._states = [stream for stream, _ in drawn], [state for _, state in drawn]

    def rewind(self) -> None:
        for (_, put), state in zip(self._found, self._states, strict=True):
            put(state)

    @property
    def found(self) -> list[Stream]:
        return self._found

    def device(self) -> AbstractContextManager[None]:
        """The stream of the GPU as the first run met it, for a while."""
        return nullcontext() if self._device is None else self._device.rewound()


@contextmanager
def rewound(streams: Streams) -> Iterator[None]:
    """Every stream as it was at the first run; afterwards all go on as if nothing had been rewound."""
    own = [*(put for _, put in streams.found)]
    touched = [*streams.found, *(stream for stream in common_streams() if stream[1] not in own)]
    before = [(put, get()) for get, put in touched]
    with streams.device():
        try:
            streams.rewind()
            yield
        finally:
            for put, state in before:
                put(state)


def streams_of(function: Any, leaves: Sequence[Any]) -> list[Stream]:
    """The common streams and every generator object that the function is given or closes over."""
    generators: dict[int, Any] = {}
    seen: set[int] = set()
    for leaf in leaves:
        if isinstance(leaf, (np.random.Generator, np.random.RandomState, np.random.BitGenerator)):
            generators[id(leaf)] = leaf
    _search(function, _DEPTH, generators, seen)
    return [*common_streams(), *(stream_of(generator) for generator in generators.values())]


def common_streams() -> list[Stream]:
    """The streams that every function can reach: NumPy's global one and our own."""
    return [(global_state, set_global_state), *random_states]


def stream_of(generator: Any) -> Stream:
    if isinstance(generator, np.random.RandomState):
        return functools.partial(generator.get_state, legacy=False), generator.set_state
    bits = generator.bit_generator if isinstance(generator, np.random.Generator) else generator
    return functools.partial(getattr, bits, "state"), functools.partial(setattr, bits, "state")


def _search(holder: Any, depth: int, generators: dict[int, Any], seen: set[int]) -> None:
    """Collect the generators within reach of a function, an object or a container."""
    seen.add(id(holder))
    for value in _inside(holder):
        kind = type(value)
        if kind in _hollow:
            continue
        if isinstance(value, (np.random.Generator, np.random.RandomState)):
            generators[id(value)] = value
        elif depth and id(value) not in seen:
            _search(value, depth - 1, generators, seen)


#: Classes whose objects hold nothing to look into; it grows, since every call of a checkpoint searches.
_hollow: set[type] = {int, float, complex, bool, str, bytes, type(None), np.ndarray, type, type(sys), type(len)}


def _inside(holder: Any) -> Collection[Any]:
    """What a function closes over and names; the parts of a partial, a method, a container, an object of a class."""
    kind = type(holder)
    if kind is FunctionType:
        return _of_function(holder)
    if kind is MethodType:
        return holder.__func__, holder.__self__
    if kind is functools.partial:
        return holder.func, *holder.args, *holder.keywords.values()
    if kind is list or kind is tuple:
        return holder  # type: ignore[no-any-return]
    if kind is dict:
        return holder.values()  # type: ignore[no-any-return]
    if hasattr(holder, "__dict__") and not isinstance(holder, type):
        return list(vars(holder).values())
    _hollow.add(kind)
    return ()


def _of_function(function: FunctionType) -> list[Any]:
    found = [cell.cell_contents for cell in function.__closure__ or () if not _is_empty(cell)]
    found += function.__defaults__ or ()
    if function.__kwdefaults__:
        found += function.__kwdefaults__.values()
    if not _is_library(function):
        known = function.__globals__
        found += [known[name] for name in function.__code__.co_names if name in known]
    return found


def _is_empty(cell: Any) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:
        return True
    return False


def _is_library(function: FunctionType) -> bool:
    """Functions of NumPy and of ours hold no generators of the user's."""
    return str(function.__module__ or "").partition(".")[0] in ("numpy", "scipy", "cupy", "pullback")


_last: tuple[Any, bytes, dict[str, Any]] | None = None


def global_state() -> dict[str, Any]:
    """NumPy's global stream. Asking NumPy costs 30 microseconds, so its answer is used again while the twister's memory
    is the same; a normal deviate held back may be handed out without a trace there, so not if there is one.
    """
    global _last
    bits = np.random.mtrand.get_bit_generator()
    memory = b""
    if type(bits) is np.random.MT19937:
        memory = ctypes.string_at(bits.ctypes.state_address, _TWISTER_BYTES)
        if _last is not None and _last[0] is bits and _last[1] == memory and not _last[2]["has_gauss"]:
            return _last[2]
    state: dict[str, Any] = np.random.get_state(legacy=False)
    if memory:
        _last = bits, memory, state
    return state


def set_global_state(state: dict[str, Any]) -> None:
    global _last
    if state is not global_state():
        np.random.set_state(state)
        _last = None


def same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    if isinstance(one, (tuple, list)) and isinstance(other, (tuple, list)):
        return len(one) == len(other) and all(same(a, b) for a, b in zip(one, other, strict=True))
    return bool(np.array_equal(one, other))


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
