"""Cases to certify: a sample of an op or a call of a function, and which arguments carry derivatives."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ...arrays.spec import is_inexact
from ...ops.contract.matrix_products import matmul
from ...ops.dispatch import apply
from ...ops.elementwise.pointwise import abs as magnitude
from ...ops.elementwise.pointwise import imag, real
from ...ops.op import Op
from ...ops.reduce.reductions import sum as total_of


@dataclass(frozen=True)
class Case:
    """One sample of one op, or (without an op) one call of `body`: its arguments, and which of them are differentiated.

    `kinds` are the kinds of dtype that carry derivatives here.
    """

    op: Op | None
    number: int
    args: tuple[Any, ...]
    static: dict[str, Any] = field(default_factory=dict)
    body: Callable[..., Any] | None = None
    kinds: str = "f"

    @property
    def name(self) -> str:
        return f"{'call' if self.op is None else self.op.name}-{self.number}"

    @property
    def moving(self) -> list[int]:
        """Positions of the arguments that carry derivatives."""
        return [i for i, a in enumerate(self.args) if np.asarray(a).dtype.kind in self.kinds]

    @property
    def floats(self) -> list[Any]:
        return [self.args[i] for i in self.moving]

    def call(self, *args: Any) -> Any:
        """The op or function of all its arguments."""
        return self.body(*args) if self.op is None and self.body else apply(self.op, *args, **self.static)  # type: ignore[arg-type]

    def call_on_moving(self, *floats: Any) -> Any:
        """All results, as a function of the differentiated arguments; the others are constants."""
        args = list(self.args)
        for i, value in zip(self.moving, floats, strict=True):
            args[i] = value
        return self.call(*args)

    def function(self, *floats: Any) -> Any:
        """The differentiable results, as a function of the differentiated arguments."""
        return drop_free_phases(self.op, self.call_on_moving(*floats))

    def scalar(self, *floats: Any) -> Any:
        """A weighted sum of the results: one scalar to differentiate, in which no direction is special."""
        return random_combination(self.function(*floats))

    def direction(self, seed: int) -> list[Any]:
        """A random tangent for the differentiated arguments."""
        rng = np.random.default_rng(seed)
        return [random_like(rng, np.asarray(a)) for a in self.floats]

    def cast(self, dtype: Any) -> Case:
        """The same case with the differentiated arguments in another real dtype, or its complex one."""
        kinds = {"f": dtype, "c": np.result_type(dtype, "complex64")}
        return self._map_moving(lambda a: a.astype(kinds[a.dtype.kind]))

    def rotate_into_complex(self) -> Case:
        """The same case with its real differentiated arguments rotated into the complex plane."""
        rotated = self._map_moving(lambda a: np.asarray(a * np.exp(0.4j) + 0.05j) if a.dtype.kind == "f" else a)
        return replace(rotated, kinds="c")

    def _map_moving(self, change: Callable[[Any], Any]) -> Case:
        args = tuple(change(np.asarray(a)) if i in self.moving else a for i, a in enumerate(self.args))
        return replace(self, args=args)


#: Complex results without their free phases: only these have a derivative in reverse mode.
PHASE_INVARIANTS: dict[str, Callable[..., Any]] = {
    "eig": lambda w, v: (w, magnitude(v)),
    "eigh": lambda w, v: (w, magnitude(v)),
    "qr": lambda q, r: (magnitude(q), q[..., : r.shape[-1]], r),
    "svd": lambda u, s, vh: (magnitude(u), s, magnitude(vh), matmul(u[..., : s.shape[-1]], vh[..., : s.shape[-1], :])),
}


def drop_free_phases(op: Op | None, outs: Any) -> Any:
    """The results that have a derivative, without phases that the op was free to choose."""
    if isinstance(outs, tuple) and (op is None or op.differentiable):
        outs = tuple(x for x in outs if x.dtype.kind not in "iub")
    if op is None or op.name not in PHASE_INVARIANTS:
        return outs
    return PHASE_INVARIANTS[op.name](*outs) if any(x.dtype.kind == "c" for x in outs) else outs


def cases_of(op: Op, kinds: str = "f") -> list[Case]:
    """Every sample of an op, the same ones each time."""
    rng = np.random.default_rng(zlib.crc32(op.name.encode()))
    return [Case(op, i, args, static, kinds=kinds) for i, (args, static) in enumerate(op.samples(rng))]


def as_results(values: Any) -> Sequence[Any]:
    """One result or several, as several."""
    return values if isinstance(values, (tuple, list)) else (values,)


def flat_vector(values: Any) -> Any:
    """Arrays and tuples of arrays as one vector, for comparing."""
    listed = as_results(values)
    return np.concatenate([np.asarray(v).ravel() for v in listed]) if listed else np.zeros(0)


def real_inner_product(left: Any, right: Any) -> float:
    """Re <left, right>, the product in which a pull is the transpose of a push."""
    return float(np.real(np.vdot(flat_vector(left), flat_vector(right))))


def random_like(rng: Any, like: Any) -> Any:
    """Random values in the shape of a value, complex where it is."""
    found = np.asarray(rng.normal(size=like.shape))
    return found + 1j * rng.normal(size=like.shape) if like.dtype.kind == "c" else found


def random_combination(outs: Any) -> Any:
    """The same random combination of several results each time."""
    rng = np.random.default_rng(7)
    return sum(weighted_real_sum(out, random_like(rng, out)) for out in as_results(outs))


def weighted_real_sum(out: Any, weights: Any) -> Any:
    """Re <weights, out>: a real number, whatever the dtype of the result."""
    if out.dtype.kind != "c":
        return total_of(out * weights)
    return total_of(real(out) * weights.real + imag(out) * weights.imag)


def can_carry_derivative(x: Any) -> bool:
    """Whether an argument can carry derivatives."""
    return is_inexact(np.asarray(x).dtype)
