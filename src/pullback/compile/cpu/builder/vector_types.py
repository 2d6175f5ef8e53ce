"""LLVM types and numbers of NumPy dtypes; a value of the text is an `IRValue`."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...varying import Operand, VaryingFloat, placeholder

_INTEGERS = {1: "i8", 2: "i16", 4: "i32", 8: "i64"}
_FLOATS = {4: "float", 8: "double"}
_SUFFIX = {"float": "f32", "double": "f64"}


@dataclass(frozen=True, slots=True)
class IRValue:
    """A value in the text: its name, its dtype, and its number of lanes."""

    name: str
    dtype: np.dtype[Any]
    lanes: int = 1


BOOL = np.dtype(bool)


def llvm_element_type(dtype: np.dtype[Any], in_memory: bool = False) -> str:
    """The LLVM type of one element; booleans are single bits, but bytes in memory."""
    if dtype.kind == "b":
        return "i8" if in_memory else "i1"
    # half dtypes are bits: see `half_types`
    return _FLOATS[dtype.itemsize] if dtype.kind == "f" and dtype.itemsize > 2 else _INTEGERS[dtype.itemsize]


def type_suffix(element: str) -> str:
    """How the names of intrinsics spell a type."""
    return _SUFFIX.get(element, element)


def llvm_type(dtype: np.dtype[Any], lanes: int, in_memory: bool = False) -> str:
    element = llvm_element_type(dtype, in_memory)
    return element if lanes == 1 else f"<{lanes} x {element}>"


def format_number(number: Any, dtype: np.dtype[Any], lanes: int = 1, prefix: str = "") -> str:
    """A number as LLVM writes it: floats by their bits. One that varies is an operand, for all lanes."""
    if isinstance(number, (Operand, VaryingFloat)) and dtype.kind != "b":
        kind = prefix + llvm_element_type(dtype)
        return placeholder(_format_literal(number, dtype), number.identity, kind, lanes)
    text = _format_literal(number, dtype)
    return text if lanes == 1 else f"splat ({llvm_element_type(dtype)} {text})"


def _format_literal(number: Any, dtype: np.dtype[Any]) -> str:
    if dtype.kind == "b":
        return "true" if number else "false"
    if dtype.kind == "f":
        # rounded to the dtype first; LLVM writes a float32 by the bits of the same float64
        value = float(np.asarray(number).astype(dtype))
        return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
    return str(int(np.asarray(number).astype(dtype)))


def conversion_instruction(source: np.dtype[Any], target: np.dtype[Any]) -> str | None:
    """The instruction that converts between two dtypes; None where the bits stay."""
    wider = target.itemsize > source.itemsize
    if source.kind == "f" and target.kind == "f":
        return "fpext" if wider else "fptrunc"
    if source.kind == "f":
        return "fptoui" if target.kind == "u" else "fptosi"
    if target.kind == "f":
        return "sitofp" if source.kind == "i" else "uitofp"
    if source.kind == "b":
        return "zext"
    if source.itemsize == target.itemsize:
        return None
    return ("sext" if source.kind == "i" else "zext") if wider else "trunc"
