"""Rows of records in a file, as TensorFlow's tools read them: each with its length, and checksums of both."""

from __future__ import annotations

import struct

#: The polynomial of CRC-32C (Castagnoli), lowest bit first.
_POLYNOMIAL = 0x82F63B78


def _make_table() -> tuple[int, ...]:
    """What eight steps of the division make of each byte."""
    found = []
    for byte in range(256):
        rest = byte
        for _ in range(8):
            rest = rest >> 1 ^ (_POLYNOMIAL if rest & 1 else 0)
        found.append(rest)
    return tuple(found)


_TABLE = _make_table()


def crc32c(content: bytes) -> int:
    """The checksum of bytes."""
    rest, table = 0xFFFFFFFF, _TABLE
    for byte in content:
        rest = table[rest & 0xFF ^ byte] ^ rest >> 8
    return rest ^ 0xFFFFFFFF


def _mask_checksum(content: bytes) -> bytes:
    """The checksum, turned and shifted: of bytes that hold checksums themselves the plain one would say little."""
    rest = crc32c(content)
    return struct.pack("<I", ((rest >> 15 | rest << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def encode_record(content: bytes) -> bytes:
    """A record as it stands in the file."""
    length = struct.pack("<Q", len(content))
    return length + _mask_checksum(length) + content + _mask_checksum(content)
