"""Messages of Protocol Buffers as bytes: enough of the wire format to write ONNX models and TensorBoard events.

A message is a row of fields, each a key (number and kind) and a value: an integer of seven bits a byte (0), eight bytes
(1), a length and so many bytes (2), or four bytes (5).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable


def encode_varint(number: int) -> bytes:
    """An integer, seven bits in each byte, the lowest first; a negative one as its 64 bits."""
    number &= (1 << 64) - 1
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def integer(field: int, number: int) -> bytes:
    """An integer, a boolean or a name of an enumeration."""
    return encode_varint(field << 3) + encode_varint(number)


def data(field: int, value: bytes | str) -> bytes:
    """Bytes, text or a message inside this one."""
    content = value.encode() if isinstance(value, str) else value
    return encode_varint(field << 3 | 2) + encode_varint(len(content)) + content


def double(field: int, number: float) -> bytes:
    return encode_varint(field << 3 | 1) + struct.pack("<d", number)


def single(field: int, number: float) -> bytes:
    return encode_varint(field << 3 | 5) + struct.pack("<f", number)


def packed_integers(field: int, numbers: Iterable[int]) -> bytes:
    return data(field, b"".join(map(encode_varint, numbers)))


def packed_doubles(field: int, numbers: Iterable[float]) -> bytes:
    return data(field, b"".join(struct.pack("<d", x) for x in numbers))
