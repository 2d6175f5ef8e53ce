"""The constants of a program for a GPU, as NumPy arrays: code is made of their numbers, and runners upload the rest."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...arrays.backends import is_device_array, to_host
from ...program.ir import Program


def move_constants_to_host(program: Program) -> Program:
    """A program without arrays of a device among its constants."""
    if all(s.spec.device == "cpu" for s in program.inputs):
        return program
    moved: dict[int, Any] = {}

    def on_host(x: Any) -> Any:
        if not is_device_array(x):
            return x
        # lowering knows constants by their identity
        return moved[id(x)] if id(x) in moved else moved.setdefault(id(x), to_host(x))

    equations = [replace(e, args=tuple(map(on_host, e.args))) for e in program.equations]
    return replace(program, equations=tuple(equations), outputs=tuple(map(on_host, program.outputs)))
