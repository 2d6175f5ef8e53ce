"""The roles of a device: value, pull and push there, eager and compiled, against the CPU's eager calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ...arrays.backends import is_array, move_array, to_host
from ...arrays.devices import normalize_device
from ...arrays.tensor import Tensor
from ...compile.jit import jit
from ...errors import ArgumentError, DeviceError
from ...transforms.forward import jvp
from ...transforms.reverse import vjp
from .cases import PHASE_INVARIANTS, Case, as_results
from .roles import Measurement, Role, compare_each, direction_in_dtype, is_smooth, random_cotangents, stages

#: What a refusal says of a function that the device's library lacks: no result is no wrong result.
_REFUSALS = ("no such function", "CPU only", "arrays on the CPU")
#: What is determined of results in whose factors a library chooses signs or phases.
_DETERMINED: dict[str, Callable[..., Any]] = {**PHASE_INVARIANTS, "lift": lambda packed: _lifted_by(packed)}
#: Ops whose purpose is to leave the device.
_MOVES = ("to_device",)


def device_roles(device: str) -> tuple[Role, ...]:
    """The roles that certify on a device what the CPU computes.

    >>> from pullback.tools.certify import certify_ops, device_roles
    >>> [role.name for role in device_roles("cpu")]
    ['on cpu', 'compiled on cpu']
    >>> bool(certify_ops(["sinh"], ["float64"], device_roles("cpu")))
    True
    """
    device = normalize_device(device, "certify")
    eager, compiled = (partial(check_on_device, device=device, through=through) for through in (_as_it_is, jit))
    what = f"value, pull and push on {device} against the CPU"
    return (
        Role(f"on {device}", what, eager, 1e-10, 1e-3),
        Role(f"compiled on {device}", f"the same, compiled for {device}", compiled, 1e-10, 1e-3),
    )


def _as_it_is(f: Callable[..., Any]) -> Callable[..., Any]:
    return f


def check_on_device(
    case: Case, device: str, through: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> Measurement | None:
    """Everything a case computes, on the device and on the CPU; None where the device's library lacks the op."""
    if case.kinds == "c" or (case.op and case.op.name in _MOVES) or (through is jit and not stages(case)):
        return None
    program, args = _program_of(case)
    try:
        found = through(program)(*(_moved(a, device) for a in args))
    except (ArgumentError, DeviceError) as error:
        if any(words in str(error) for words in _REFUSALS):
            return None
        raise
    return compare_each([_on_host(x, device) for x in found], program(*args), f"on {device}", "on the CPU")


def _program_of(case: Case) -> tuple[Callable[..., Any], list[Any]]:
    """A function of arrays that returns everything to compare, and its arguments."""
    if not is_smooth(case):
        return lambda *args: _determined(case, case.call(*args)), list(case.args)
    count, held = len(case.floats), {i: a for i, a in enumerate(case.args) if i not in case.moving}
    constants = {i: a for i, a in held.items() if is_array(a)}  # these move to the device; integers and strings do not
    bars = as_results(random_cotangents(tuple(_determined(case, case.call(*case.args)))))

    def value_pull_push(*given: Any) -> list[Any]:
        floats, along, moved, given_bars = _cut(given, count, count, len(constants))

        def function(*floats: Any) -> Any:
            args = {**held, **dict(zip((*constants, *case.moving), (*moved, *floats), strict=True))}
            return tuple(_determined(case, case.call(*(args[i] for i in range(len(args))))))

        out, pull = vjp(function, *floats)
        return [*out, *pull(tuple(given_bars)), *jvp(function, list(floats), list(along))[1]]

    return value_pull_push, [*case.floats, *direction_in_dtype(case, 2), *constants.values(), *bars]


def _cut(values: Sequence[Any], *lengths: int) -> list[Sequence[Any]]:
    """Parts of so many values each, and the rest."""
    parts, at = [], 0
    for length in lengths:
        parts.append(values[at : at + length])
        at += length
    return [*parts, values[at:]]


def _determined(case: Case, outs: Any) -> list[Any]:
    """The results that no library is free to choose: factors without their signs or phases, and what has a derivative
    where there are derivatives.
    """
    if is_smooth(case):
        outs = [x for x in as_results(outs) if x.dtype.kind not in "iub"]
    if case.op is not None and case.op.name in _DETERMINED:
        outs = _DETERMINED[case.op.name](*as_results(outs))
    return list(as_results(outs))


def _lifted_by(packed: Any) -> Any:
    """|W Z^H + rest| of what `lift` returns, (W, Z, rest) side by side; the sign is free."""
    count = (packed.shape[-1] - packed.shape[-2]) // 2
    left, right, rest = packed[..., :count], packed[..., count : 2 * count], packed[..., 2 * count :]
    return abs(left @ right.swapaxes(-1, -2).conj() + rest)


def _moved(x: Any, device: str) -> Any:
    return move_array(np.asarray(x), device) if is_array(x) or isinstance(x, np.generic) else x


def _on_host(x: Any, device: str) -> Any:
    """A result as a NumPy array; one that did not stay on its device is a failure."""
    array = x.value if isinstance(x, Tensor) else x
    if isinstance(array, np.ndarray) and device != "cpu":
        raise DeviceError(f"a result of shape {array.shape} is on the CPU, its arguments were on {device}")
    return to_host(array)
