"""Messages of ONNX as bytes: tensors, attributes, nodes, graphs and the model, by the numbers of their fields."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..errors import DtypeError
from .graph_writer import Ref
from .protobuf import data, integer, packed_integers, single

#: The version of the operators that are used, and of the file format that goes with it.
OPSET, IR_VERSION = 18, 8
#: The numbers of dtypes.
ELEMENT_TYPES = {
    "float32": 1, "uint8": 2, "int8": 3, "uint16": 4, "int16": 5, "int32": 6, "int64": 7, "bool": 9, "float16": 10,
    "float64": 11, "uint32": 12, "uint64": 13, "bfloat16": 16, "float8_e4m3fn": 17, "float8_e5m2": 19,
}  # fmt: skip


def element_type(dtype: np.dtype[Any]) -> int:
    """The number of a dtype."""
    if dtype.name not in ELEMENT_TYPES:
        raise DtypeError(f"to_onnx: ONNX has no operations on {dtype}.")
    return ELEMENT_TYPES[dtype.name]


@dataclass(slots=True)
class OnnxGraph:
    """The parts of a graph while it is written: nodes, and the names that its results have inside."""

    nodes: list[bytes] = field(default_factory=list)

    def encode(self, name: str, inputs: Sequence[Ref], outputs: Sequence[Ref], tensors: Iterable[bytes] = ()) -> bytes:
        parts = [data(1, node) for node in self.nodes]
        parts.append(data(2, name))
        parts += [data(5, tensor) for tensor in tensors]
        parts += [data(11, encode_value_info(x)) for x in inputs]
        parts += [data(12, encode_value_info(x)) for x in outputs]
        return b"".join(parts)


def as_bytes(array: Any) -> bytes:
    """The elements of an array, little-endian and row by row."""
    host = np.ascontiguousarray(array)
    return bytes(host.astype(host.dtype.newbyteorder("<"), copy=False).tobytes())


def encode_tensor(array: Any, name: str = "", place: tuple[str, int] | None = None) -> bytes:
    """An array with its elements, or with where they are: a file beside the model, and how far into it."""
    head = b"".join(integer(1, n) for n in array.shape) + integer(2, element_type(array.dtype)) + data(8, name)
    if place is None:
        return head + data(9, as_bytes(array))
    where = {"location": place[0], "offset": f"{place[1]}", "length": f"{array.nbytes}"}
    return head + b"".join(data(13, data(1, key) + data(2, text)) for key, text in where.items()) + integer(14, 1)


def encode_value_info(x: Ref) -> bytes:
    dims = b"".join(data(1, integer(1, n)) for n in x.shape)
    return data(1, x.name) + data(2, data(1, integer(1, element_type(x.dtype)) + data(2, dims)))


def encode_attribute(name: str, value: Any) -> bytes:
    """An attribute of a node; bytes are a graph."""
    if isinstance(value, bytes):
        return data(1, name) + data(6, value) + integer(20, 5)
    if isinstance(value, str):
        return data(1, name) + data(4, value) + integer(20, 3)
    if isinstance(value, float):
        return data(1, name) + single(2, value) + integer(20, 1)
    if isinstance(value, int):
        return data(1, name) + integer(3, value) + integer(20, 2)
    return data(1, name) + packed_integers(8, value) + integer(20, 7)


def encode_node(kind: str, inputs: Iterable[str], outputs: Iterable[str], attributes: dict[str, Any]) -> bytes:
    parts = [data(1, name) for name in inputs] + [data(2, name) for name in outputs]
    parts += [data(4, kind), *(data(5, encode_attribute(n, v)) for n, v in attributes.items())]
    return b"".join(parts)


def encode_model(graph: bytes) -> bytes:
    opset = data(1, "") + integer(2, OPSET)
    return integer(1, IR_VERSION) + data(2, "pullback") + data(7, graph) + data(8, opset)
