"""Arrays at the border of a compiled program: captured ones become inputs, arguments are laid out for native code."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arrays.backends import is_array
from ...arrays.spec import Spec, make_spec, spec_of
from ...arrays.tensor import Tensor
from ...arrays.value import Value
from ...graph.ir import Graph
from ...ops.op import OPS
from ...ops.specialize import Equation, Symbol
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


def hoist_captures(found: TracedProgram) -> tuple[Graph, list[Any]]:
    """Arrays and tensors that f captured become inputs, so that later writes to them are seen, and tensors keep their
    graph. What f made itself stays a constant.
    """
    captured: dict[int, Symbol] = {}
    held: list[Any] = []
    given: list[Symbol] = []
    repeats: list[Equation] = []
    scope = found.inputs[0].scope

    def symbol_for(constant: Any) -> Any:
        x = found.constants.origin(constant)
        if type(x) is Tensor and x is constant and x.node is None and is_array(x.value):
            x = x.value  # a tensor that f made
        outside = isinstance(x, Value) and not (isinstance(x, Symbol) and x.scope is scope)
        if not outside and not (is_array(x) and x.ndim):
            return x
        if id(x) not in captured:
            captured[id(x)] = Symbol(native_spec(x), scope, [], None)
            held.append(_drop_repeats(x))
            given.append(captured[id(x)])
            if held[-1] is not x:  # one number seen as an array, such as the cotangent of a sum
                given[-1] = Symbol(native_spec(held[-1]), scope, [], None)
                repeats.append(Equation((captured[id(x)],), OPS["broadcast_to"], (given[-1],), {"shape": x.shape}))
        return captured[id(x)]

    equations = [Equation(e.results, e.op, tuple(symbol_for(a) for a in e.args), e.static) for e in found.equations]
    outputs = tuple(symbol_for(o) for o in found.outputs)
    return Graph((*found.inputs, *given), (*repeats, *equations), outputs), held


def native_spec(x: Any) -> Spec:
    spec = spec_of(x)
    return spec if spec.dtype.isnative else make_spec(spec.shape, np.dtype(spec.dtype.type), spec.device)


def _drop_repeats(x: Any) -> Any:
    """An array without the axes along which it only repeats itself (they stay, of size one)."""
    if type(x) is not _ndarray or any(x.strides):
        return x
    return x[(slice(0, 1),) * x.ndim]
