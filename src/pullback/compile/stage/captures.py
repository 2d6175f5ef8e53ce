"""Arrays at the border of a compiled program: captured ones become inputs, arguments are laid out for native code."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ...arrays.backends import is_array, to_host
from ...arrays.spec import Spec, make_spec, spec_of
from ...ops.shape.reshaping import broadcast_op
from ...program.hoist import hoist, is_array_or_value
from ...program.ir import Equation, Program, Symbol
from ...program.scatters import counted_axis
from ...program.taps import has_taps
from .trace import TracedProgram

_ndarray = np.ndarray
#: Arrays of a device with no more elements are looked at on the host.
_FEW = 1 << 16


def as_native_contiguous(value: Any, spec: Spec) -> Any:
    """A contiguous array of the wanted dtype. Native code compares dtypes by address, so it has NumPy's own object for
    it: `newbyteorder` and unpickling make others.
    """
    if is_array(value) and not isinstance(value, _ndarray):
        return value if value.flags.c_contiguous else value.copy()
    array = np.asarray(value) if is_array(value) else np.asarray(value, spec.dtype)
    if not array.dtype.isnative:
        array = to_native_byte_order(array)
    elif array.dtype is not (own := np.dtype(array.dtype.type)):
        array = array.view(own)
    if not array.flags.aligned:
        return array.copy()
    return array if array.flags.c_contiguous else np.ascontiguousarray(array)


def to_native_byte_order(array: Any) -> Any:
    """An array in this machine's byte order, which native code and most libraries require."""
    return array.astype(np.dtype(array.dtype.type))


def hoist_captures(found: TracedProgram) -> tuple[Program, list[Any]]:
    """Arrays and tensors that f captured become inputs, so that later writes to them are seen, and tensors keep their
    graph. What f made itself stays a constant.
    """

    def is_captured(x: Any) -> bool:
        # numbers that count an axis are known, which turns a lookup into a stride, as are taps
        return is_array_or_value(x) and not (found.constants.owns(x) and (counted_axis(x) is not None or has_taps(x)))

    program, captured = hoist(found.program, is_captured, found.constants.origin, native_spec)
    first = len(program.inputs) - len(captured)
    inputs, kept, repeats = list(program.inputs[:first]), [], []
    # one number seen as an array, such as the cotangent of a sum, takes no memory, and a row that is repeated its own
    for symbol, x in zip(program.inputs[first:], captured, strict=True):
        small = _drop_repeats(x, found.constants.owns(x))
        source: Any = small
        if small is x or small.ndim:
            source = symbol if small is x else Symbol(native_spec(small), symbol.scope, [], None)
            inputs.append(source)
            kept.append(small)
        if source is not symbol:
            repeats.append(Equation((symbol,), broadcast_op, (source,), {"shape": x.shape}))
    if not repeats:
        return program, captured
    return replace(program, inputs=tuple(inputs), equations=(*repeats, *program.equations)), kept


def native_spec(x: Any) -> Spec:
    spec = spec_of(x)
    return spec if spec.dtype.isnative else make_spec(spec.shape, np.dtype(spec.dtype.type), spec.device)


def _drop_repeats(x: Any, is_constant: bool) -> Any:
    """An array without the axes along which it only repeats itself (they stay, of size one). Of a constant, all of
    whose elements are copies of one number, that number.
    """
    if not is_array(x) or not x.size:
        return x
    # what may be written to repeats itself for certain only where its memory does
    axes = _repeating_axes(x) if is_constant else {i for i, n in enumerate(x.shape) if n > 1 and not x.strides[i]}
    if is_constant and _has_bits(x) and all(n == 1 or i in axes for i, n in enumerate(x.shape)):
        number = x[(0,) * x.ndim]
        return np.array(number) if type(x) is _ndarray else number.copy()
    small = x[tuple(slice(0, 1) if i in axes else slice(None) for i in range(x.ndim))] if axes else x
    return small.copy() if is_constant and axes else small


def _has_bits(x: Any) -> bool:
    return x.dtype.kind in "biuf" and x.dtype.itemsize <= 8 and bool(x.dtype.isnative)


def _repeating_axes(x: Any) -> set[int]:
    """The axes along which all elements are copies of the first, to the last bit."""
    if not _has_bits(x):
        return set()
    # CuPy compiles each op when it is first used, which takes longer than to copy a few numbers
    x = to_host(x) if x.size <= _FEW else x
    bits = (
        x.copy(order="C").view(f"u{x.dtype.itemsize}") if not x.flags.c_contiguous else x.view(f"u{x.dtype.itemsize}")
    )
    found = set()
    for axis, n in enumerate(x.shape):
        first, second, whole = ((slice(None),) * axis + (part,) for part in (slice(0, 1), slice(1, 2), slice(None)))
        # most arrays that differ do so at once
        if n > 1 and bool((bits[first] == bits[second]).all()) and bool((bits[first] == bits[whole]).all()):
            found.add(axis)
            bits = bits[first]
    return found
