"""Pictures as PNG files."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np

from ..errors import DtypeError, ShapeError

#: How PNG calls gray, gray with opacity, color, and color with opacity, by the number of channels.
_COLOR_TYPES = {1: 0, 2: 4, 3: 2, 4: 6}


def as_pixels(image: Any, what: str) -> Any:
    """A picture (height, width, channels) of bytes: of numbers from 0 to 1, of bytes or of booleans, a gray one
    without channels too.
    """
    pixels = image[:, :, None] if image.ndim == 2 else image
    if pixels.ndim != 3 or pixels.shape[2] not in _COLOR_TYPES or not pixels.size:
        raise ShapeError(
            f"{what}: a picture is (height, width), or (height, width, channels) with up to 4 channels, got "
            f"{image.shape}."
        )
    if pixels.dtype == np.uint8:
        return pixels
    if pixels.dtype.kind not in "fb":
        raise DtypeError(f"{what}: a picture is uint8, or floating-point numbers from 0 to 1, got {image.dtype}.")
    return np.rint(255 * np.clip(np.nan_to_num(pixels.astype(np.float64)), 0, 1)).astype(np.uint8)


def encode_png(pixels: Any) -> bytes:
    """The file of a picture (height, width, channels) of bytes."""
    height, width, channels = pixels.shape
    # each row begins with the number of its filter, here none
    rows = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, width * channels)], axis=1)
    head = struct.pack(">IIBBBBB", width, height, 8, _COLOR_TYPES[channels], 0, 0, 0)
    chunks = [(b"IHDR", head), (b"IDAT", zlib.compress(rows.tobytes())), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(_encode_chunk(kind, content) for kind, content in chunks)


def _encode_chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
