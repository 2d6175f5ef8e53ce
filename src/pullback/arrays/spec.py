"""`Spec`: the shape, dtype and device of a value, without the value."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from ..errors import ArgumentTypeError, GraphError
from .backends import device_of, namespace_on
from .size import Size, recorder_of

#: Dtypes whose eager ops have a fast path; a plain spec's `plain` indexes (dtype, 0-d or not).
PLAIN_KINDS = (np.dtype("float16"), np.dtype("float32"), np.dtype("float64"))


#: Type codes of float16 and bfloat16, which every op computes in float32; comparing one character costs least.
HALF_CODES = frozenset("eE")
#: Arrays of half precision with so many elements are left to native code; compiling it takes longer than fewer do.
LEAST_NATIVE = 1 << 15
#: Those of float8_e4m3fn and float8_e5m2, which only store, and all codes of `ml_dtypes`.
FLOAT8_CODES = frozenset("45")
_NARROW_CODES = FLOAT8_CODES | {"E"}


def is_inexact(dtype: Any) -> bool:
    """Whether values of this dtype can carry derivatives."""
    return bool(dtype.kind in "fc" or dtype.char in _NARROW_CODES)


def is_half(dtype: Any) -> bool:
    """Whether this is float16 or bfloat16."""
    return dtype.char in HALF_CODES


def derivative_dtype(dtype: Any) -> Any:
    """The dtype of cotangents and tangents: that of the value, but float32 for float8, whose few bits hold no slope."""
    return np.dtype(np.float32) if dtype.char in FLOAT8_CODES else dtype


def is_real_float(dtype: Any) -> bool:
    """Whether ops compute with this dtype as with real numbers: float16, bfloat16, float32 or float64."""
    return dtype.char in "eEfd"


def _canonical_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """NumPy's own object for a dtype, which compiled code compares by identity: unpickling makes equal copies."""
    own: np.dtype[Any] = np.dtype(dtype.type)
    return own if own == dtype else dtype


_numbers = itertools.count(1)


class Spec:
    """Shape, dtype and device. `weak` is the Python type of a scalar, which yields in promotion.

    `half`: float16 or bfloat16. `plain` is a small number where the eager fast path applies (real NumPy floats), else
    None; `inexact` says whether such values can carry derivatives. `number` is the spec's own where call plans apply
    (`ops/plans.py`): to real arrays, and with a minus sign to such tensors made under `inference_mode`; else it is 0.
    """

    __slots__ = (
        "device", "dtype", "element", "guarded_twin", "half", "inexact", "inference_twin", "number", "plain", "scalars",
        "shape", "weak",
    )  # fmt: skip

    def __init__(self, shape: tuple[int, ...], dtype: Any, device: str = "cpu", weak: type | None = None) -> None:
        self.shape = tuple(shape)
        self.dtype = _canonical_dtype(np.dtype(dtype))
        self.device = device
        self.weak = weak
        self.inexact = is_inexact(self.dtype)
        self.half = is_half(self.dtype)
        self.plain: int | None = None
        stores_only = self.dtype.char in FLOAT8_CODES
        # on a GPU, kernels of our own know bfloat16 too
        has_plans = (self.dtype.kind in "biuf" or (self.half and device != "cpu")) and not stores_only
        self.number = next(_numbers) if weak is None and has_plans else 0
        if device == "cpu" and weak is None and self.dtype in PLAIN_KINDS and not self.is_large_half:
            self.plain = 2 * PLAIN_KINDS.index(self.dtype) + (not self.shape)
        self.scalars: dict[float, Any] = {}
        self.guarded_twin: Spec | None = None
        self.inference_twin: Spec | None = None
        self.element: Spec | None = None

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * int(self.dtype.itemsize)

    @property
    def is_large_half(self) -> bool:
        """Whether native code computes ops on such arrays; unknown sizes do not count."""
        return self.half and all(isinstance(n, int) for n in self.shape) and self.size >= LEAST_NATIVE

    def as_guarded(self) -> Spec:
        """The same spec, excluded from the fast path: for tensors whose use must be checked each time."""
        if self.guarded_twin is None:
            twin = Spec(self.shape, self.dtype, self.device, self.weak)
            twin.plain, twin.number, twin.guarded_twin = None, 0, twin
            self.guarded_twin = twin
        return self.guarded_twin

    def as_inference(self) -> Spec:
        """The same spec for tensors made under `inference_mode`: guarded, but call plans know it."""
        if self.inference_twin is None:
            if not self.number:
                return self.as_guarded()
            twin = Spec(self.shape, self.dtype, self.device, self.weak)
            twin.plain, twin.number, twin.inference_twin = None, -self.number, twin
            self.inference_twin = twin
        return self.inference_twin

    def element_spec(self) -> Spec:
        """The guarded spec of one element along the first axis; cached, since every step of a batch needs it."""
        if self.element is None:
            self.element = Spec(self.shape[1:], self.dtype, self.device).as_guarded()
        return self.element

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Spec) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[Any, ...]:
        return self.shape, self.dtype, self.device, self.weak

    def __repr__(self) -> str:
        name = self.weak.__name__ if self.weak else self.dtype.name
        place = "" if self.device == "cpu" else f" on {self.device}"
        return f"{name}[{', '.join(map(str, self.shape))}]{place}"


_specs: dict[tuple[Any, ...], Spec] = {}
_MAX_CACHED_SPECS = 1 << 16
_scalar_specs = {kind: Spec((), np.dtype(kind), weak=kind) for kind in (bool, int, float, complex)}


def make_spec(shape: tuple[int, ...], dtype: Any, device: str = "cpu") -> Spec:
    """The one `Spec` object for these facts, so that the fast path may compare by identity."""
    key = (shape, dtype, device)
    found = _specs.get(key)
    if found is None:
        # a hostile file may ask for 1.0 rows: equal to 1, it must not stand in the cache for it
        if any(isinstance(n, (bool, float)) for n in shape):
            return Spec(shape, dtype, device)
        if len(_specs) > _MAX_CACHED_SPECS:
            _specs.clear()
        found = _specs[key] = Spec(shape, dtype, device)
    return found


def spec_of(x: Any) -> Spec:
    """The spec of a tensor, an array or a Python scalar.

    >>> spec_of(np.zeros((2, 3), "float32"))
    float32[2, 3]
    """
    if type(x) is np.ndarray:
        key = (x.shape, x.dtype, "cpu")
        return _specs.get(key) or make_spec(*key)
    spec = getattr(x, "spec", None)
    if type(spec) is Spec:
        return spec
    scalar = _scalar_specs.get(type(x))
    if scalar is not None:
        return scalar
    if type(x) is Size:
        return _scalar_specs[int if x.is_integral else float]
    if not hasattr(x, "shape") or not hasattr(x, "dtype"):
        raise ArgumentTypeError(f"expected an array, a tensor or a number, got a {type(x).__name__}.")
    return make_spec(x.shape, x.dtype, device_of(x))


def zeros(spec: Spec, dtype: Any = None) -> Any:
    """Zeros of a spec, as a bare array on its device."""
    return _full(spec, 0, dtype)


def ones(spec: Spec, dtype: Any = None) -> Any:
    """Ones of a spec, as a bare array on its device."""
    return _full(spec, 1, dtype)


def _full(spec: Spec, number: int, dtype: Any) -> Any:
    xp = namespace_on(spec.device)
    try:
        return (xp.ones if number else xp.zeros)(spec.shape, dtype or spec.dtype)
    except GraphError:
        return recorder_of(spec.shape).full_array(xp.asarray(number, dtype or spec.dtype), spec.shape)
