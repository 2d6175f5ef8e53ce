"""Function, primals and tangents in, value and tangent out: forward mode by duals that nest by level."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..arrays.spec import Spec, spec_of, zeros
from ..arrays.value import Value, fresh_level
from ..errors import ArgumentError, ShapeError
from ..ops.dispatch import apply, as_value
from ..ops.op import Op
from ..ops.shaping import astype, stretched
from .lifted import running

__all__ = ["Dual", "jvp"]


class Dual(Value):
    """A value with its derivative along one direction."""

    __slots__ = ("level", "primal", "spec", "tangent")
    level: int

    def __init__(self, primal: Any, tangent: Any, level: int) -> None:
        self.primal = primal
        self.tangent = tangent
        self.spec: Spec = spec_of(primal).guarded()
        self.level = level

    def interpret(self, op: Op, args: tuple[Any, ...], static: dict[str, Any]) -> Any:
        """Compute the value below, then push the tangents through the op's rule."""
        level = self.level
        mine = [type(x) is Dual and x.level == level for x in args]
        primals = [x.primal if own else x for x, own in zip(args, mine, strict=True)]
        tangents = [x.tangent if own else None for x, own in zip(args, mine, strict=True)]
        out = apply(op, *primals, **static)
        if not op.differentiable:
            return out
        pushed = op.push(tangents, out, primals, static)
        if type(out) is tuple:
            return tuple(_dual(x, t, level) for x, t in zip(out, pushed, strict=True))
        return _dual(out, pushed, level)

    def __repr__(self) -> str:
        return f"dual({self.primal!r}, {self.tangent!r})"


def _dual(primal: Any, tangent: Any, level: int) -> Any:
    if tangent is None:
        return primal
    spec = spec_of(primal)
    tangent = stretched(tangent, spec.shape)
    return Dual(primal, astype(tangent, spec.dtype) if spec_of(tangent).dtype != spec.dtype else tangent, level)


def jvp(f: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    """The value of f and its derivative along the tangents.

    >>> import numpy as np, pullback as pb
    >>> from pullback.transforms import jvp
    >>> jvp(lambda x: pb.sin(x) * x, (np.array(2.0),), (np.array(1.0),))
    (array(1.81859485), array(0.07700375))
    """
    if len(primals) != len(tangents):
        raise ArgumentError(f"jvp: got {len(primals)} primals and {len(tangents)} tangents.")
    level = fresh_level()
    inputs = []
    for primal, tangent in zip(map(as_value, primals), map(as_value, tangents), strict=True):
        if spec_of(primal).shape != spec_of(tangent).shape:
            raise ShapeError(f"jvp: a tangent has shape {spec_of(tangent).shape}, its primal {spec_of(primal).shape}.")
        inputs.append(Dual(primal, tangent, level))
    with running():
        out = f(*inputs)
    return _parts(out, level)


def _parts(out: Any, level: int) -> tuple[Any, Any]:
    if isinstance(out, (tuple, list)):
        pairs = [_parts(x, level) for x in out]
        return tuple(p for p, _ in pairs), tuple(t for _, t in pairs)
    if type(out) is Dual and out.level == level:
        return out.primal, out.tangent
    return out, zeros(spec_of(out))
