"""What of a program for a GPU lies elsewhere: constants, which are NumPy arrays for code that is made of their numbers
and CuPy's for ops; and small arguments of the host, which are on the device when the code runs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ...arrays.backends import is_device_array, move_array, to_host
from ...ops.placement import move_op
from ...program.ir import Equation, Program


def move_constants_to_host(program: Program) -> Program:
    """A program without arrays of a device among its constants."""
    if all(s.spec.device == "cpu" for s in program.inputs):
        return program
    changed: dict[int, Any] = {}

    def mapped(x: Any) -> Any:
        # lowering knows constants by their identity
        if id(x) not in changed:
            changed[id(x)] = to_host(x) if is_device_array(x) else x
        return changed[id(x)]

    equations = [replace(e, args=tuple(map(mapped, e.args))) for e in program.equations]
    return replace(program, equations=tuple(equations), outputs=tuple(map(mapped, program.outputs)))


def drop_moves(program: Program) -> Program:
    """A program without moves between devices: all that it computes is where it runs."""
    moves = {id(e.results[0]): e.args[0] for e in program.equations if e.op is move_op}
    if not moves:
        return program

    def source(x: Any) -> Any:
        while id(x) in moves:
            x = moves[id(x)]
        return x

    kept = [replace(e, args=tuple(map(source, e.args))) for e in program.equations if e.op is not move_op]
    return replace(program, equations=tuple(kept), outputs=tuple(map(source, program.outputs)))


def move_constants_to_devices(program: Program) -> Program:
    """A program whose constants are where its ops will run, one by one: on the device of their results."""

    def moved(e: Equation) -> Equation:
        device = e.results[0].spec.device if e.results else "cpu"
        if device == "cpu":
            return e
        return replace(e, args=tuple(move_array(x, device) if type(x) is np.ndarray else x for x in e.args))

    return replace(program, equations=tuple(map(moved, program.equations)))
