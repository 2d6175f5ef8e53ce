"""Derivatives of holomorphic functions: one complex number for each element of the argument, as for real functions.

A complex function changes along z and along its conjugate, df = a dz + b conj(dz). Holomorphic means b = 0 (the
equations of Cauchy and Riemann), and a is the derivative. It follows from any one direction, so two decide whether the
function is one: the derivative along i dz is i times that along dz.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..arrays.backends import is_array, namespace_on
from ..arrays.exchange import to_numpy
from ..arrays.spec import spec_of
from ..arrays.value import unwrap_array
from ..errors import DtypeError
from ..ops.replay.rehearsal import dry_run
from .flat_call import FlatCall
from .forward import jvp

#: How far i J v and J (i v) may be apart, of the largest element: some hundred roundings, in the precision at hand.
_TOLERANCE = {np.dtype(np.complex64): 1e-3, np.dtype(np.complex128): 1e-8}
#: And of their own size, where they are not tiny beside the largest: a conjugate is no rounding.
_OWN_TOLERANCE, _TINY = 0.01, 0.01


def check_complex(call: FlatCall) -> FlatCall:
    """The call, if its arguments are complex."""
    for x in call.xs:
        if spec_of(x).dtype.kind != "c":
            raise DtypeError(
                f"{call.what}: holomorphic=True wants complex arguments, got {spec_of(x)}.\n"
                "  Convert it, x.astype(complex), or leave out holomorphic for the derivative of a real function."
            )
    return call


def as_complex_results(what: str, outs: Sequence[Any]) -> list[Any]:
    """The results, if they are complex."""
    for out in outs:
        if spec_of(out).dtype.kind != "c":
            raise DtypeError(
                f"{what}: holomorphic=True wants a complex result, got {spec_of(out)}: a function that maps complex "
                "numbers to real ones is holomorphic only where it is constant.\n"
                "  Leave out holomorphic for the gradient of a real number."
            )
    return list(outs)


def check_holomorphic(call: FlatCall, f: Callable[..., list[Any]]) -> None:
    """Raise unless the derivative of f, the function of a call, along i v is i times that along v, for some v. Where no
    numbers are known, as in a program that is traced, nothing is checked.
    """
    what = call.what
    directions = [_direction(x) for x in call.xs]
    if any(v is None for v in directions):
        return
    along, turned = [_push_aside(call, f, [unit * v for v in directions]) for unit in (1.0, 1j)]
    for one, other in zip(along, turned, strict=True):
        here, there = unwrap_array(one), unwrap_array(other)
        if is_array(here) and is_array(there) and not _agree(to_numpy(here, what), to_numpy(there, what)):
            raise DtypeError(
                f"{what}: the function is not holomorphic: along i v it changes by something else than i times its "
                "change along v.\n"
                "  It has a conjugate, a real part or an absolute value in it. Pass real and imaginary parts as two "
                "real arguments, or use pb.jvp and pb.vjp."
            )


def _push_aside(call: FlatCall, f: Callable[..., list[Any]], tangents: list[Any]) -> Any:
    """The derivative along some tangents, by an extra run of which nothing is kept."""
    with dry_run(call.holders, call.xs):
        return jvp(f, tuple(call.xs), tuple(tangents))[1]


def _direction(x: Any) -> Any:
    """A direction that is special in no way, None for a value without numbers."""
    array, spec = unwrap_array(x), spec_of(x)
    if not is_array(array):
        return None
    angles = np.cos(1.7 * np.arange(spec.size) + 0.3) + 1j * np.sin(2.3 * np.arange(spec.size) + 0.9)
    return namespace_on(spec.device).asarray(angles.reshape(spec.shape).astype(spec.dtype))


def _agree(along: Any, turned: Any) -> bool:
    apart, size = np.abs(turned - 1j * along), np.maximum(np.abs(along), np.abs(turned))
    finite = np.isfinite(apart)
    apart, size = apart[finite], size[finite]
    limit = _TOLERANCE[along.dtype] * max(float(np.max(size, initial=0.0)), np.finfo(along.dtype).tiny)
    return bool(np.all((apart <= limit) & ((apart <= _OWN_TOLERANCE * size) | (size <= _TINY * limit))))
