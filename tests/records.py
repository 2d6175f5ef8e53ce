"""Op records in, test cases out: what the generated tests run on."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import pullback as pb
from pullback.ops import Op, everything
from pullback.ops.dispatch import apply


@dataclass(frozen=True)
class Case:
    """One sample of one op: its arguments, and which of them carry derivatives."""

    op: Op
    number: int
    args: tuple[Any, ...]
    static: dict[str, Any]

    @property
    def moving(self) -> list[int]:
        """Positions of floating-point arguments."""
        return [i for i, a in enumerate(self.args) if np.asarray(a).dtype.kind == "f"]

    @property
    def floats(self) -> list[Any]:
        return [self.args[i] for i in self.moving]

    def function(self, *floats: Any) -> Any:
        """The op of its floating-point arguments, the others held fixed."""
        args = list(self.args)
        for i, value in zip(self.moving, floats, strict=True):
            args[i] = value
        return phaseless(self.op, apply(self.op, *args, **self.static))

    def scalar(self, *floats: Any) -> Any:
        """A weighted sum of the results: one number to differentiate, in which no direction is special."""
        outs = self.function(*floats)
        outs = outs if isinstance(outs, tuple) else (outs,)
        rng = np.random.default_rng(7)
        total: Any = 0.0
        for out in outs:
            total = total + weighted(out, drawn(rng, out))
        return total

    def direction(self, seed: int) -> list[Any]:
        rng = np.random.default_rng(seed)
        return [np.asarray(rng.normal(size=np.shape(a))) for a in self.floats]

    def cast(self, dtype: Any) -> Case:
        args = tuple(np.asarray(a).astype(dtype) if i in self.moving else a for i, a in enumerate(self.args))
        return Case(self.op, self.number, args, self.static)


#: What is left of complex results when their free phases are taken away: only that has a derivative in reverse mode.
PHASELESS = {
    "eig": lambda w, v: (w, pb.abs(v)),
    "eigh": lambda w, v: (w, pb.abs(v)),
    "qr": lambda q, r: (pb.abs(q), q[..., : r.shape[-1]], r),
    "svd": lambda u, s, vh: (pb.abs(u), s, pb.abs(vh), pb.matmul(u[..., :, : s.shape[-1]], vh[..., : s.shape[-1], :])),
}


def phaseless(op: Op, outs: Any) -> Any:
    """The results of an op that have a derivative, without phases that it was free to choose."""
    if isinstance(outs, tuple) and op.differentiable:
        outs = tuple(x for x in outs if x.dtype.kind not in "iu")
    free = op.name in PHASELESS and any(x.dtype.kind == "c" for x in outs)
    return PHASELESS[op.name](*outs) if free else outs


def cases(wanted: Callable[[Op], bool] = lambda op: True) -> list[Case]:
    """Every sample of every op that is wanted, the same ones each time."""
    found = []
    for op in everything().values():
        if wanted(op):
            rng = np.random.default_rng(zlib.crc32(op.name.encode()))
            found += [Case(op, i, args, static) for i, (args, static) in enumerate(op.samples(rng))]
    return found


def name(case: Case) -> str:
    return f"{case.op.name}-{case.number}"


def flat(values: Any) -> Any:
    """Arrays and tuples of arrays as one vector, for comparing."""
    values = values if isinstance(values, (tuple, list)) else (values,)
    return np.concatenate([np.asarray(v).ravel() for v in values]) if values else np.zeros(0)


def inner(left: Any, right: Any) -> float:
    """Re <left, right>, the product in which a pull is the transpose of a push."""
    return float(np.real(np.vdot(flat(left), flat(right))))


def drawn(rng: Any, like: Any) -> Any:
    """Random numbers in the shape of a value, complex where it is."""
    real = np.asarray(rng.normal(size=like.shape))
    return real + 1j * rng.normal(size=like.shape) if like.dtype.kind == "c" else real


def weighted(out: Any, weights: Any) -> Any:
    """Re <weights, out>: a real number, whatever the dtype of the result."""
    if out.dtype.kind != "c":
        return pb.sum(out * weights)
    return pb.sum(pb.real(out) * weights.real + pb.imag(out) * weights.imag)
