"""The constants of a program for a GPU: NumPy arrays for code that is made of their numbers, CuPy's for ops."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ...arrays.backends import is_device_array, move_array, to_host
from ...program.ir import Program


def move_constants_to_host(program: Program) -> Program:
    """A program without arrays of a device among its constants."""
    if all(s.spec.device == "cpu" for s in program.inputs):
        return program
    return _map_constants(program, lambda x: to_host(x) if is_device_array(x) else x)


def move_constants_to(device: str, program: Program) -> Program:
    """A program whose constants are on a device, where its ops will run one by one."""
    return _map_constants(program, lambda x: move_array(x, device) if type(x) is np.ndarray else x)


def _map_constants(program: Program, change: Callable[[Any], Any]) -> Program:
    changed: dict[int, Any] = {}

    def mapped(x: Any) -> Any:
        # lowering knows constants by their identity
        if id(x) not in changed:
            changed[id(x)] = change(x)
        return changed[id(x)]

    equations = [replace(e, args=tuple(map(mapped, e.args))) for e in program.equations]
    return replace(program, equations=tuple(equations), outputs=tuple(map(mapped, program.outputs)))
