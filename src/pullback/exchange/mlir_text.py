"""Types, constants and attributes of StableHLO as MLIR text."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

import numpy as np

from ..errors import DtypeError
from .graph_writer import Ref, Shape

#: The names of dtypes.
ELEMENT_TYPES = {
    "bool": "i1", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64", "uint8": "ui8", "uint16": "ui16",
    "uint32": "ui32", "uint64": "ui64", "float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64",
    "float8_e4m3fn": "f8E4M3FN", "float8_e5m2": "f8E5M2",
    "complex64": "complex<f32>", "complex128": "complex<f64>",
}  # fmt: skip


@functools.cache
def tensor_type(shape: Shape, dtype: np.dtype[Any]) -> str:
    """The type of an array."""
    if dtype.name not in ELEMENT_TYPES:
        raise DtypeError(f"to_stablehlo: StableHLO has no operations on {dtype} here.")
    return f"tensor<{'x'.join([*map(str, shape), ELEMENT_TYPES[dtype.name]])}>"


def type_of(x: Ref) -> str:
    return tensor_type(x.shape, x.dtype)


def signature(xs: Iterable[Ref], results: Iterable[Ref]) -> str:
    """The types of arguments and results of an operation in its plain form."""
    return f"({types_of(xs)}) -> ({types_of(results)})"


def types_of(xs: Iterable[Ref]) -> str:
    return ", ".join(map(type_of, xs))


def names_of(xs: Iterable[Ref]) -> str:
    return ", ".join(x.name for x in xs)


def dense(array: Any) -> str:
    """The elements of an array as an attribute; floating-point numbers by their bits, so that none changes."""
    host = np.asarray(array)
    if not host.size:
        return "dense<>"
    flat = np.ascontiguousarray(host).reshape(-1)
    raw = flat.view(np.uint8).reshape(host.size, -1)
    if (raw == raw[0]).all() and host.dtype.kind != "c":  # one element stands for all
        return f"dense<{_element(flat[:1])}>"
    if host.dtype.kind == "b":  # their bits are packed differently from one version to the next
        return f"dense<{_render_nested(host)}>"
    little = flat.astype(flat.dtype.newbyteorder("<"), copy=False)
    return f'dense<"0x{little.tobytes().hex().upper()}">'


def _element(one: Any) -> str:
    """The only element of a row."""
    if one.dtype.kind in "iu":
        return str(int(one[0]))
    if one.dtype.kind == "b":
        return truth(one[0])
    bits = int(one.view(f"u{one.dtype.itemsize}")[0])
    return f"0x{bits:0{2 * one.dtype.itemsize}X}"


def _render_nested(x: Any) -> str:
    if not x.ndim:
        return truth(x)
    return f"[{', '.join(map(_render_nested, x))}]"


def truth(flag: Any) -> str:
    return "true" if flag else "false"


def integers(numbers: Iterable[object]) -> str:
    return f"[{', '.join(map(str, numbers))}]"


def array_of(numbers: Iterable[int]) -> str:
    """A row of integers as an attribute of an operation in its plain form."""
    listed = list(numbers)
    return f"array<i64: {', '.join(map(str, listed))}>" if listed else "array<i64>"
