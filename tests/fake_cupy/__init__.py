"""A stand-in for CuPy without a GPU: arrays over NumPy memory that refuse what CuPy's refuse.

`installed()` puts the modules `cupy` and `cupyx` in place for a while. Two devices; an array is used on its own device
only. What CuPy has under NumPy's names is computed by NumPy, on CuPy's conditions.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.linalg
import scipy.special

from pullback.arrays.spec import _specs as known_specs
from pullback.ops.plans import forget_plans

from . import nccl
from .array import DEVICES, CUDARuntimeError, Device, FakeCapsule, ndarray, unwrap, wrap
from .restrictions import ADD_AT, EXTREME_AT, LINALG_MISSING, MISSING, SCIPY_LINALG_MISSING, SPECIAL_MISSING
from .streams import Event, Stream, current_stream, get_elapsed_time, settle

#: Functions that take memory of the host, which all others refuse.
_FROM_HOST = ("array", "asarray", "ascontiguousarray", "asanyarray")


class _Ufunc:
    """A ufunc of CuPy: callable, with `at` for some dtypes, and no `resolve_dtypes`."""

    def __init__(self, own: np.ufunc) -> None:
        self._own, self.__name__, self.nin, self.nout = own, own.__name__, own.nin, own.nout

    def __call__(self, *args: Any, **options: Any) -> Any:
        for x in args:
            if hasattr(x, "__cupy_override_elementwise_kernel__"):
                kernel = types.SimpleNamespace(name=f"cupy_{self.__name__}")
                return x.__cupy_override_elementwise_kernel__(kernel, *args, **options)
            if not isinstance(x, (ndarray, bool, int, float, complex, np.generic)):
                raise TypeError(f"Unsupported type {type(x)}")
        return wrap(self._own(*map(unwrap, args), **{k: unwrap(v) for k, v in options.items()}))

    def at(self, a: ndarray, indices: Any, b: Any = None) -> None:
        allowed = {"add": ADD_AT, "maximum": EXTREME_AT, "minimum": EXTREME_AT}.get(self.__name__, ())
        if a.dtype.name not in allowed:
            raise TypeError(f"cupy.{self.__name__}.at only supports {', '.join(allowed)} as data type")
        if not isinstance(b, ndarray):
            raise TypeError(f"Unsupported type {type(b)}")
        self._own.at(unwrap(a), unwrap(indices), unwrap(b))

    def reduce(self, a: Any, *args: Any, **options: Any) -> Any:
        return wrap(self._own.reduce(unwrap(a), *args, **options))

    def outer(self, a: Any, b: Any) -> Any:
        return wrap(self._own.outer(unwrap(a), unwrap(b)))


def _function(own: Any) -> Any:
    """NumPy's function for arrays of ours."""

    @functools.wraps(own)
    def call(*args: Any, **options: Any) -> Any:
        return wrap(own(*map(unwrap, args), **{k: unwrap(v) for k, v in options.items()}))

    return call


def _from_host(name: str) -> Any:
    def make(a: Any, dtype: Any = None, **options: Any) -> ndarray:
        interface = getattr(a, "__cuda_array_interface__", None)
        if isinstance(a, ndarray):
            is_as_wanted = name != "ascontiguousarray" or a.flags.c_contiguous
            if a.device.id == Device().id and name != "array" and dtype in (None, a.dtype) and is_as_wanted:
                return a
            settle()
            return wrap(np.array(a._memory, dtype, **({"order": "C"} if name == "ascontiguousarray" else options)))
        if interface is not None:
            holder = types.SimpleNamespace(__array_interface__={k: v for k, v in interface.items() if k != "stream"})
            holder.owner = a
            return wrap(getattr(np, name)(np.asarray(holder), dtype))
        if hasattr(type(a), "__cupy_get_ndarray__"):
            return make(eval("a.__cupy_get_ndarray__()", {"__name__": "cupy", "a": a}), dtype, **options)
        if isinstance(a, (list, tuple)) and any(isinstance(x, ndarray) for x in a):
            a = unwrap(a)
        return wrap(np.array(a, dtype, **{k: v for k, v in options.items() if k in ("order", "ndmin")}))

    return make


def _where(condition: Any, *branches: Any) -> Any:
    if not branches:
        return wrap(np.where(unwrap(condition)))
    return wrap(np.where(unwrap(condition.astype(bool)), *map(unwrap, branches)))


def _reduction(name: str, *order: str) -> Any:
    """A reduction of CuPy, which calls the method of its argument with parameters in this order."""

    def reduce(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False) -> Any:
        given = {"axis": axis, "dtype": dtype, "out": out, "keepdims": keepdims}
        return getattr(a, name)(*(given[each] for each in order))

    return reduce


def _from_dlpack(x: Any) -> ndarray:
    capsule = x.__dlpack__()
    if not isinstance(capsule, FakeCapsule):
        raise TypeError("from_dlpack: not memory of a (pretended) GPU")
    with Device(capsule.device):
        return wrap(capsule.memory)


class _Library(types.ModuleType):
    """A module that has NumPy's functions under their names, but for those that CuPy lacks."""

    def __init__(self, name: str, source: Any, missing: str = "") -> None:
        types.ModuleType.__init__(self, name)
        self._source, self._missing = source, missing.split()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name in self._missing or not hasattr(self._source, name):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        own = getattr(self._source, name)
        if isinstance(own, np.ufunc):
            found: Any = _Ufunc(own)
        elif isinstance(own, type) or not callable(own):
            return own
        else:
            found = _function(own)
        setattr(self, name, found)
        return found


class _Pool:
    def used_bytes(self) -> int:
        return 1024

    def total_bytes(self) -> int:
        return 4096

    def free_all_blocks(self) -> None: ...


class _Random(_Library):
    """The global stream of random numbers, whose state cannot be read."""

    def __init__(self) -> None:
        _Library.__init__(self, "cupy.random", np.random, "Generator default_rng")
        self.set_random_state(self.RandomState())

    class RandomState:
        def __init__(self, seed: Any = None) -> None:
            self._own = np.random.RandomState(seed)

        def tomaxint(self) -> Any:
            return self._own.randint(1 << 30)

        def __getattr__(self, name: str) -> Any:
            return _function(getattr(self._own, name))

    def seed(self, number: Any = None) -> None:
        self._state = self.RandomState(number)

    def get_random_state(self) -> Any:
        return self._state

    def set_random_state(self, state: Any) -> None:
        self._state = state

    def random(self, size: Any = None, dtype: Any = float) -> Any:
        return self._state.random_sample(size)


def _runtime() -> Any:
    return types.SimpleNamespace(
        getDeviceCount=lambda: DEVICES, CUDARuntimeError=CUDARuntimeError, getDevice=lambda: Device().id,
        memGetInfo=lambda: (1 << 30, 2 << 30), getDeviceProperties=lambda i: {"name": b"Fake"},
        runtimeGetVersion=lambda: 13000,
        deviceGetPCIBusId=lambda i: f"0000:0{i}:00.0", deviceSynchronize=lambda: Stream.log.append("synchronize"),
    )  # fmt: skip


def _make_modules() -> dict[str, types.ModuleType]:
    cupy = _Library("cupy", np, MISSING)
    cupy.__version__ = "14.0.fake"  # type: ignore[attr-defined]
    special = _Library("cupyx.scipy.special", scipy.special, SPECIAL_MISSING)
    linalg = _Library("cupyx.scipy.linalg", scipy.linalg, SCIPY_LINALG_MISSING)
    own: dict[str, Any] = {
        "ndarray": ndarray, "where": _where, "from_dlpack": _from_dlpack, "is_available": lambda: True,
        "asnumpy": lambda x, *args, **options: x.get() if isinstance(x, ndarray) else np.asarray(x),
        "get_default_memory_pool": _Pool, "get_default_pinned_memory_pool": _Pool,
        "linalg": _Library("cupy.linalg", np.linalg, LINALG_MISSING), "fft": _Library("cupy.fft", np.fft),
        "random": _Random(),
        "lib": types.SimpleNamespace(stride_tricks=_Library("cupy.lib.stride_tricks", np.lib.stride_tricks)),
        **{name: _from_host(name) for name in _FROM_HOST},
        **{name: _reduction(name, "axis", "dtype", "out", "keepdims") for name in ("sum", "mean", "prod")},
        **{name: _reduction(name, "axis", "out", "keepdims") for name in ("max", "min")},
        "cuda": types.SimpleNamespace(
            Device=Device, Stream=Stream, Event=Event, runtime=_runtime(), get_current_stream=current_stream,
            get_elapsed_time=get_elapsed_time, alloc_pinned_memory=lambda size: memoryview(bytearray(size)), nccl=nccl,
        ),
    }  # fmt: skip
    for name, value in own.items():
        setattr(cupy, name, value)
    cupyx, scipy_ = types.ModuleType("cupyx"), types.ModuleType("cupyx.scipy")
    cupyx.scipy, scipy_.special, scipy_.linalg = scipy_, special, linalg  # type: ignore[attr-defined]
    cupyx.empty_pinned = np.empty  # type: ignore[attr-defined]
    modules = (cupy, cupyx, scipy_, special, linalg)
    named = {module.__name__: module for module in modules}
    return {**named, "cupy.cuda": cupy.cuda, "cupy.cuda.nccl": nccl}


_modules = _make_modules()
#: The module `cupy` itself, for tests that are collected before it is installed.
cupy: Any = _modules["cupy"]


def _forget_arrays() -> None:
    """Forget plans and constants, which are arrays of a real GPU or of the stand-in."""
    forget_plans()
    for spec in list(known_specs.values()):
        if spec.device != "cpu":
            spec.scalars.clear()


@contextlib.contextmanager
def installed() -> Iterator[Any]:
    """`import cupy` finds the stand-in; afterwards nothing is left of it."""
    before = {name: sys.modules.get(name) for name in _modules}
    _forget_arrays()
    sys.modules.update(_modules)
    try:
        yield cupy
    finally:
        _forget_arrays()
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module
