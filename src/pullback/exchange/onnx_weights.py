"""Arrays of an ONNX model: in it, or in a file beside it, where models of more than 2 GB must have theirs."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..errors import ExportError
from ..saving.atomic_write import remove_replaced, write_atomically
from .onnx_model import as_bytes, encode_tensor

#: A message of Protocol Buffers has no more bytes.
MAX_MODEL_BYTES = (1 << 31) - 1
#: Arrays of fewer bytes stay in the model.
LEAST_BYTES = 1024
#: Where arrays begin in their file, so that a reader can map them.
_ALIGNMENT = 4096


class Weights:
    """The arrays of a model at a path, if it has one; all but the small ones `beside` it if that is wanted."""

    def __init__(self, model: Path | None, beside: bool) -> None:
        self.model = model
        # of each export another one: the model that is there goes on reading its own until it is replaced
        self.file = f"{model.name}.{secrets.token_hex(4)}.data" if model is not None and beside else None
        self._arrays: list[tuple[int, Any]] = []
        self._inside = self._beside = 0

    def encode(self, array: Any, name: str) -> bytes:
        """An array as a tensor of the model."""
        if self.file is None or array.nbytes < LEAST_BYTES:
            self._inside += array.nbytes
            if self._inside > MAX_MODEL_BYTES:
                raise ExportError(
                    "to_onnx: the arrays of this model take more than 2 GB, which no such file can have.\n"
                    "  Write them beside it: to_onnx(..., path=path, external_data=True).",
                    why="more than 2 GB",
                )
            return encode_tensor(array, name)
        start = -(-self._beside // _ALIGNMENT) * _ALIGNMENT
        self._arrays.append((start, array))
        self._beside = start + array.nbytes
        return encode_tensor(array, name, (self.file, start))

    def write(self) -> None:
        """Write the file with the arrays."""
        if self.model is not None and self.file is not None and self._arrays:
            write_atomically(self.model.with_name(self.file), self._chunks(), "to_onnx")

    def _chunks(self) -> Iterator[Any]:
        at = 0
        for start, array in self._arrays:
            yield bytes(start - at)
            yield as_bytes(array)
            at = start + array.nbytes

    def remove_old(self) -> None:
        """Remove the arrays of models that were at this path before, and what a killed export left of some."""
        if self.model is not None:
            remove_replaced(self.model.parent, rf"{re.escape(self.model.name)}\.[0-9a-f]{{8}}\.data", [self.file])
