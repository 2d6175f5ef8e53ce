"""Arrays at the border of a compiled program: captured ones become inputs, arguments are laid out for native code."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ...arrays.backends import is_array
from ...arrays.spec import Spec, make_spec, spec_of
from ...ops.shape.reshaping import broadcast_op
from ...program.hoist import hoist
from ...program.ir import Equation, Program, Symbol
from .trace import TracedProgram

_ndarray = np.ndarray


def as_native_contiguous(value: Any, spec: Spec) -> Any:
    """A contiguous array of the wanted dtype. Native code compares dtypes by address, so it has NumPy's own object for
    it: `newbyteorder` and unpickling make others.
    """
    if is_array(value) and not isinstance(value, _ndarray):
        return value  # another library runs the ops, on any layout
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
    program, captured = hoist(found.program, origin=found.constants.origin, spec=native_spec)
    # one element instead of a whole array crosses the border, and is broadcast inside
    first = len(program.inputs) - len(captured)
    inputs, repeats = list(program.inputs), []
    for i, x in enumerate(captured):
        small = _drop_repeats(x)
        if small is not x:  # one number seen as an array, such as the cotangent of a sum
            seen, captured[i] = inputs[first + i], small
            inputs[first + i] = Symbol(native_spec(small), seen.scope, [], None)
            repeats.append(Equation((seen,), broadcast_op, (inputs[first + i],), {"shape": x.shape}))
    if not repeats:
        return program, captured
    return replace(program, inputs=tuple(inputs), equations=(*repeats, *program.equations)), captured


def native_spec(x: Any) -> Spec:
    spec = spec_of(x)
    return spec if spec.dtype.isnative else make_spec(spec.shape, np.dtype(spec.dtype.type), spec.device)


def _drop_repeats(x: Any) -> Any:
    """An array without the axes along which it only repeats itself (they stay, of size one)."""
    if type(x) is not _ndarray or any(x.strides):
        return x
    return x[(slice(0, 1),) * x.ndim]
