"""Arrays at the border of a compiled program: captured ones become inputs, arguments are laid out for native code."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ...arrays.backends import is_array
from ...arrays.spec import Spec, make_spec, spec_of
from ...ops.shape.reshaping import broadcast_op
from ...program.hoist import hoist, is_array_or_value
from ...program.ir import Equation, Program, Symbol
from ...program.scatters import counted_axis
from ...program.taps import has_taps
from .trace import TracedProgram

_ndarray = np.ndarray


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
    # one number seen as an array, such as the cotangent of a sum, takes no memory
    for symbol, x in zip(program.inputs[first:], captured, strict=True):
        small = _repeated_number(x) if found.constants.owns(x) else _drop_repeats(x)
        number: Any = small
        if small is None or small is x or small.ndim:
            kept.append(x if small is None else small)
            number = symbol if small is None or small is x else Symbol(native_spec(small), symbol.scope, [], None)
            inputs.append(number)
        if number is not symbol:
            repeats.append(Equation((symbol,), broadcast_op, (number,), {"shape": x.shape}))
    if not repeats:
        return program, captured
    return replace(program, inputs=tuple(inputs), equations=(*repeats, *program.equations)), kept


def native_spec(x: Any) -> Spec:
    spec = spec_of(x)
    return spec if spec.dtype.isnative else make_spec(spec.shape, np.dtype(spec.dtype.type), spec.device)


def _drop_repeats(x: Any) -> Any:
    """An array without the axes along which it only repeats itself (they stay, of size one)."""
    if type(x) is not _ndarray or any(x.strides):
        return x
    return x[(slice(0, 1),) * x.ndim]


def _repeated_number(x: Any) -> Any:
    """The number of which all elements of an array are copies, to the last bit; None if they differ."""
    if (
        type(x) is not _ndarray
        or not x.size
        or x.dtype.kind not in "biuf"
        or x.dtype.itemsize > 8
        or not x.dtype.isnative
    ):
        return None
    bits = np.ascontiguousarray(x).reshape(-1).view(f"u{x.dtype.itemsize}")
    # most arrays that differ do so at once
    if not (bits[:8] == bits[0]).all() or not (bits == bits[0]).all():
        return None
    return np.array(x[(0,) * x.ndim])
