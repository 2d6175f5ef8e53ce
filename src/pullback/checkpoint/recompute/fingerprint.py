"""Fingerprints of values: whether a recomputation has the values of the first run, at the cost of one read.

All bytes go into a sum of words, which sees every single change. A sample of elements, in their places, sees most
rearrangements, and tells rounding from other values: products run in another order where threads are divided
differently, or on a GPU. So values agree if sum and sample do, or if the sample differs by no more than rounding.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arrays.backends import is_array, namespace_of
from ...arrays.value import Value
from ..loops.snapshots import is_ticket

#: How many elements are compared one by one; all of them where there are no more.
_SAMPLE = 128
_UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


class Fingerprint:
    """Of one array: the sum of its words, and a sample. On a GPU both stay there until they are compared, so that the
    first run does not wait for them.
    """

    __slots__ = ("_dtype", "_layout", "_sample", "_words")

    def __init__(self, array: Any) -> None:
        self._dtype = array.dtype
        self._sample = _take_sample(array)
        self._layout: Any = None
        self._words: Any = 0
        if array.size > _SAMPLE:
            self._layout, self._words = _sum_words(array)
        # bytes compare fast, and do not keep the array alive as a view would
        if isinstance(array, (np.ndarray, np.generic)):
            self._sample = self._sample.tobytes()

    def agrees(self, now: Fingerprint, exact: bool = False) -> bool:
        """Whether another run has the same values; up to rounding, unless `exact`."""
        # the sum decides only together with the layout, since it counts words as they lie
        same = self.sample() == now.sample()
        if same or exact:
            return same and (self._layout != now._layout or self.words() == now.words())
        return _is_rounding(self._dtype, self.numbers(), now.numbers())

    def sample(self) -> bytes:
        """The bytes of the sample, on the host."""
        return self._sample if isinstance(self._sample, bytes) else bytes(self._sample.get().tobytes())

    def numbers(self) -> Any:
        """The sample in double precision."""
        return np.frombuffer(self.sample(), self._dtype).astype(
            np.complex128 if self._dtype.kind == "c" else np.float64
        )

    def words(self) -> int:
        return int(self._words)


def epsilon(dtype: Any) -> float:
    """The rounding of a dtype: none for integers."""
    if dtype.kind in "biu":
        return 0.0
    return float(np.finfo(dtype).eps) if dtype.kind in "fc" else 2.0**-7  # bfloat16


def _take_sample(array: Any) -> Any:
    """Elements at places that depend on the shape alone."""
    # evenly spread, so that a change of a row or a column is met
    step = max(1, array.size // _SAMPLE)
    if array.flags.c_contiguous:
        found = array.reshape(-1)[::step]
        return found.copy() if step == 1 else found
    xp = namespace_of([array])
    return array[xp.unravel_index(xp.arange(0, array.size, step), array.shape)]


def _sum_words(array: Any) -> tuple[Any, Any]:
    """The sum of all bytes as words of 64 bits, and the layout, without which it means little. Broadcast axes count
    once; where elements lie with gaps, each is a word.
    """
    lean = array[tuple([slice(1) if step == 0 else slice(None) for step in array.strides])]
    dense = lean.flags.c_contiguous or lean.flags.f_contiguous
    layout = lean.shape, lean.flags.c_contiguous, lean.flags.f_contiguous
    if dense and lean.nbytes % 8 == 0:
        return layout, lean.ravel(order="K").view(np.uint64).sum()
    parts = (lean.real, lean.imag) if lean.dtype.kind == "c" else (lean,)
    return layout, sum(part.view(_UNSIGNED[part.dtype.itemsize]).sum(dtype=np.uint64) for part in parts)


def _is_rounding(dtype: Any, then: Any, now: Any) -> bool:
    """Whether values differ by no more than another order of additions may cause."""
    # infinities and NaN must lie in the same places
    eps, finite = epsilon(dtype), np.isfinite(then)
    if not eps or then.shape != now.shape or not np.isfinite(now[finite]).all():
        return False
    apart, size = np.abs(then[finite] - now[finite]), np.abs(then[finite])
    near = bool((apart <= np.sqrt(eps) * size + 64 * eps * size.max(initial=0.0)).all())
    return near and np.array_equal(then[~finite], now[~finite], equal_nan=True)


def fingerprint_value(value: Any) -> tuple[Fingerprint, ...]:
    """Of all arrays that a value is made of: a dual has two, a symbol none. Tickets differ from run to run."""
    if is_array(value):
        return () if is_ticket(value) else (Fingerprint(value),)
    parts = value.parts() if isinstance(value, Value) else ()
    return tuple(found for part in parts if part is not None for found in fingerprint_value(part))
