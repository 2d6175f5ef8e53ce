"""Dispatch of every op call: to NumPy or CuPy, or to the interpreter that owns the argument of the highest level."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from ..arrays.backends import (
    as_array,
    as_gpu_operands,
    current_gpu,
    device_context,
    find_gpu,
    is_array,
    namespace_of,
)
from ..arrays.buffers import Buffer
from ..arrays.call_site import UNTYPED, as_typed_error, format_line, user_line
from ..arrays.size import has_unknowns, recorder_of
from ..arrays.spec import FLOAT8_CODES, HALF_CODES, LEAST_NATIVE, Spec, is_half, spec_of
from ..arrays.value import Value
from ..errors import DeviceError, DtypeError, GraphError, IndexingError, PullbackError
from ..instrument import OpCall
from ..settings import PLAIN, modes
from .lazy import lazy_function
from .op import OPS, Op
from .timed_calls import time_compute

_SCALARS = frozenset((bool, int, float, complex))
_ndarray = np.ndarray
_SCALAR_RESULTS = (np.generic, bool)
_asarray = np.asarray
_modules = sys.modules
_compute_natively = lazy_function("half_ops", "compute_natively", "compile")
_cast_natively = lazy_function("half_ops", "cast_natively", "compile")
#: The largest number of float16.
_LARGEST_HALF = 65504.0


def apply(op: Op, *args: Any, **static: Any) -> Any:
    """Run an op: arrays positional, static parameters by keyword.

    Without tensors the value is computed at once. Otherwise the argument of the highest level interprets, in
    terms of the levels below it.
    """
    return run(op, args, static)


def run(op: Op, args: Sequence[Any], static: dict[str, Any]) -> Any:
    """`apply` for interpreters, which have their arguments as a list."""
    if (mode := modes()) is not PLAIN and mode.autocast is not None:
        return mode.autocast.run(op, args, static)  # casts are ops, so every level sees them
    top, level = None, 0
    for x in args:
        if type(x) is not _ndarray and isinstance(x, Value):
            found = x.level
            if found > level:
                top, level = x, found
    if top is not None:
        return top.interpret(op, args, static)
    if mode is PLAIN:  # one identity test: an attribute costs as much again
        return compute(op, args, static)
    if (staging := mode.staging) is not None and op.effects.runs_once and staging.scope.open:
        return staging.interpret(op, args, static)  # on constants alone: it runs when the program does
    instruments = mode.instruments
    if instruments is None or not instruments.sees(op):
        return compute(op, args, static)
    if instruments.timer is not None:
        return time_compute(instruments.timer, compute, op, args, static)
    return instruments.compute(OpCall(op, args, list(args), static, 0, False), compute)


def compute(op: Op, arrays: Sequence[Any], static: dict[str, Any]) -> Any:
    """The value on bare arrays, unseen by instruments. Results are arrays, also where NumPy would return a scalar."""
    xp = np
    if "cupy" in _modules and (xp := namespace_of(arrays)) is not np:
        device, has_numbers = find_gpu(arrays)
        if device is None:
            raise mixed_devices_error(op.name, [spec_of(x) for x in arrays])
        if device != current_gpu():
            with device_context(f"cuda:{device}"):
                return compute(op, arrays, static)
        if has_numbers:
            arrays = as_gpu_operands(arrays, op.ufunc is not None)
    if "ml_dtypes" in _modules:
        arrays = adapt_narrow_dtypes(op, xp, arrays)
    try:
        if (op.wide_value or op.ufunc is not None) and has_half(arrays):
            out = compute_half(op, xp, *arrays, **static)
        else:
            out = op.value(xp, *arrays, **static)
    except GraphError:
        if op.family != "linear" or not has_unknowns(static):
            raise
        return recorder_of(next(filter(has_unknowns, static.values()))).write(op, arrays, static)
    except PullbackError:
        raise
    except Exception as error:
        _raise_explained(op, arrays, static, error)
    if type(out) is _ndarray:
        return out
    if type(out) is tuple:
        return tuple([x if type(x) is _ndarray or is_array(x) else xp.asarray(x) for x in out])
    # an array that an op moved stays where it is
    return xp.asarray(out) if isinstance(out, _SCALAR_RESULTS) or not is_array(out) else out


def mixed_devices_error(name: str, specs: Sequence[Spec]) -> DeviceError:
    """The error for arguments on several devices: which argument is where, and the user's line."""
    op = OPS.get(name)
    names = [f"argument {i}" if op is None else op.argument(i).lstrip("*") for i in range(len(specs))]
    held = [(each, spec) for each, spec in zip(names, specs, strict=True) if not counts_as_number(spec)]
    listed = ", ".join(f"{each} is {spec}" + ("" if spec.device != "cpu" else " on cpu") for each, spec in held)
    return DeviceError(
        f"{name}: {listed}; one op computes on one device.\n"
        f"  at {format_line(*user_line(sys._getframe(1)))}\n"
        f'  Move one of them: x.to("{held[0][1].device}"); bare arrays by cupy.asarray(a) or cupy.asnumpy(a) of CuPy.'
    )


def counts_as_number(spec: Spec) -> bool:
    """Whether such a value takes part in ops on any device: a Python scalar, or an array without axes on the CPU."""
    return spec.weak is not None or (spec.device == "cpu" and not spec.shape)


def has_half(arrays: Sequence[Any]) -> bool:
    """Whether any argument is an array of half precision."""
    for x in arrays:  # noqa: SIM110 - a generator costs more than the test
        if type(x) not in _SCALARS and x.dtype.char in HALF_CODES:
            return True
    return False


def compute_half(op: Op, xp: Any, *arrays: Any, **static: Any) -> Any:
    """The value of an op on arrays of half precision: computed in float32, and rounded once to what its spec says.
    Ufuncs do so themselves, slowly, so large arrays are left to native code.
    """
    if xp is np and any(type(x) is _ndarray and x.size >= LEAST_NATIVE for x in arrays):
        found = _compute_natively(op, _match_numbers(arrays), static)
        if found is not None:
            return found
    return _compute_in_single(op, xp, arrays, static) if op.wide_value else op.value(xp, *arrays, **static)


def _match_numbers(arrays: Sequence[Any]) -> Sequence[Any]:
    """The arguments with Python numbers in the half dtype of all others but masks, where it has such numbers."""
    dtypes = {x.dtype for x in arrays if type(x) not in _SCALARS and x.dtype.kind != "b"}
    if len(dtypes) > 1:
        return arrays
    (dtype,) = dtypes
    return [_asarray(x, dtype) if type(x) in (int, float) and abs(x) <= _LARGEST_HALF else x for x in arrays]


def _compute_in_single(op: Op, xp: Any, arrays: Sequence[Any], static: dict[str, Any]) -> Any:
    if xp is not np and op.family == "contraction":
        return op.value(xp, *arrays, **static)  # a GPU multiplies them as they are, adding up in float32
    specs = [spec_of(x) for x in arrays]
    wanted = op.spec_of(specs, static)
    wide = [cast_array(x, np.dtype(np.float32)) if s.half else x for x, s in zip(arrays, specs, strict=True)]
    out = op.value(xp, *wide, **static)
    if type(out) is tuple:
        return tuple([cast_array(xp.asarray(x), s.dtype) for x, s in zip(out, wanted, strict=True)])
    return cast_array(xp.asarray(out), wanted.dtype)


def cast_array(x: Any, dtype: Any) -> Any:
    """An array in a dtype, the same one if it has it."""
    if type(x) is _ndarray and x.size >= LEAST_NATIVE and x.dtype != dtype and (is_half(dtype) or is_half(x.dtype)):
        found = _cast_natively(x, dtype)
        if found is not None:
            return found
    return x.astype(dtype, copy=False)


def adapt_narrow_dtypes(op: Op, xp: Any, arrays: Sequence[Any]) -> Sequence[Any]:
    """The arguments of an op where dtypes of `ml_dtypes` may be among them; float8 is refused by ops that compute."""
    if op.family == "elementwise" or op.wide_value:
        for x in arrays:
            if type(x) not in _SCALARS and x.dtype.char in FLOAT8_CODES:
                raise float8_error(op.name, x.dtype)
    return arrays if op.ufunc is None or len(arrays) < 2 else match_bfloat16(xp, arrays)


def float8_error(name: str, dtype: Any) -> DtypeError:
    """The error for arithmetic on numbers of eight bits."""
    return DtypeError(
        f"{name}: {dtype} only stores numbers, ops do not compute with it.\n"
        "  Convert it first: x.astype(pb.float32); products of scaled values are pb.amp.scaled_matmul."
    )


def match_bfloat16(xp: Any, arrays: Sequence[Any]) -> Sequence[Any]:
    """Elementwise arguments as NumPy promotes them: it does not treat Python scalars as weak beside bfloat16, and has
    no common dtype for it and float16, or integers of more than a byte. There bfloat16 counts as float32, into which
    each of its values fits, so that it promotes as float16 does.
    """
    dtypes = [x.dtype for x in arrays if type(x) not in _SCALARS]
    narrow = next((d for d in dtypes if d.char == "E"), None)
    if narrow is None:
        return arrays
    if any(map(widens_bfloat16, dtypes)):
        return [x.astype(np.float32) if getattr(x, "dtype", None) == narrow else x for x in arrays]
    if any(d.kind in "fc" for d in dtypes):
        return arrays
    return [xp.asarray(x, narrow) if type(x) in (int, float) else x for x in arrays]


def widens_bfloat16(dtype: Any) -> bool:
    """Whether bfloat16 beside this dtype counts as float32."""
    return dtype.char == "e" or (dtype.kind in "iu" and dtype.itemsize > 1)


def _raise_explained(op: Op, arrays: Sequence[Any], static: dict[str, Any], error: Exception) -> NoReturn:
    """Raise the spec's error, which names the op's requirement; if the spec raises none, NumPy's error."""
    try:
        if op.spec is not None and op.family != "custom":  # an error in the user's own function is kept
            op.spec(*(spec_of(as_array(x)) for x in arrays), **static)
    except PullbackError as ours:
        raise ours from None
    if op.family == "custom" or not isinstance(error, UNTYPED):
        raise error
    if isinstance(error, IndexError):
        shapes = ", ".join(str(np.shape(x)) for x in arrays)
        raise IndexingError(f"{op.name}: {error}.\n  Its arguments have shapes {shapes}.") from None
    raise as_typed_error(op.name, error)


def as_value(x: Any) -> Any:
    """Convert an argument of a public function: values, arrays and scalars stay, lists become arrays, or values where
    they hold some.
    """
    kind = type(x)
    if kind is _ndarray or kind in _SCALARS or isinstance(x, Value):
        return x
    if isinstance(x, np.generic):
        return np.asarray(x)
    return _join_nested(x) if (kind is list or kind is tuple) and _holds_values(x) else as_array(x)


def _holds_values(parts: Any) -> bool:
    return any(
        _holds_values(part) if isinstance(part, (list, tuple)) else isinstance(part, (Value, Buffer)) for part in parts
    )


def _join_nested(parts: Any) -> Any:
    """Nested lists that hold values as one value, by NumPy's function, which asks the values."""
    return np.stack([x if isinstance(x, Value) else np.asarray(x) for x in map(as_value, parts)])


def shape(x: Any) -> tuple[int, ...]:
    """The shape of anything an op takes."""
    found: tuple[int, ...] = x.shape if type(x) is _ndarray else spec_of(x).shape
    return found


def ndim(x: Any) -> int:
    """The number of axes of anything an op takes."""
    return x.ndim if type(x) is _ndarray else len(spec_of(x).shape)


def promotion_argument(spec: Spec) -> Any:
    """What NumPy's promotion takes for an argument: its dtype, or the Python type of a weak scalar. A bool yields
    to everything anyway, and NumPy has no weak one.
    """
    return spec.dtype if spec.weak is None or spec.weak is bool else spec.weak
