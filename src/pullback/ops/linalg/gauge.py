"""Equal eigenvalues and free phases: what a factorization was free to choose, and whether a derivative depends on it.

Eigenvectors of one eigenvalue may be rotated into each other, and each complex one has a free phase. A loss that uses
only the spaces they span still has a derivative; its cotangent has no component along such a rotation. That is checked
where the cotangent is pulled, by an op, so that it is checked under every transform and in staged programs too.
"""

from __future__ import annotations

import math
from typing import Any

from ...arrays.backends import is_array
from ...errors import GaugeError, SingularError
from .. import statics
from ..contract.matrix_products import matmul
from ..dispatch import apply, shape
from ..elementwise import pointwise
from ..families import general, is_complex
from ..forms import Check, Expand
from ..index.normalize import namespace_for
from ..op import Op
from ..reduce import reductions
from ..shape import arrange, reshaping
from .common import eps, identity_like, real_dtype

_ERRORS = {"gauge": GaugeError, "singular": SingularError}


def _samples(rng: Any) -> Any:
    static = {"kind": "gauge", "text": "never"}
    return [((rng.normal(size=s), rng.random(s) > 2), static) for s in ((3,), (2, 2), (0,))]


def _checked_value(xp: Any, x: Any, bad: Any, kind: str, text: str) -> Any:
    if bad.any() and x.any():
        raise _ERRORS[kind](text)
    return x


# The value itself, or an error where a flag is set.
_checked: Op = general(
    "checked",
    statics={"kind": statics.choice(*_ERRORS), "text": statics.text},
    value=_checked_value,
    pulls={"x": lambda bar: bar, "bad": None},
    push=lambda tangents, out, primals, static: tangents[0],
    samples=_samples,
    family="matrix",
    form=Check(),
)


def raise_where(x: Any, bad: Any, text: str, kind: str = "gauge") -> Any:
    """x, or an error if any flag is set and x is not identically zero."""
    return apply(_checked, x, bad, kind=kind, text=text)


# The value itself, whose derivative is an error where a flag is set.
_once: Op = general(
    "once",
    statics={"kind": statics.choice(*_ERRORS), "text": statics.text},
    value=lambda xp, x, bad, kind, text: x,
    pulls={"x": lambda bar, bad, kind, text: raise_where(bar, bad, text, kind), "bad": None},
    push=lambda tangents, out, primals, static: (
        None if tangents[0] is None else raise_where(tangents[0], primals[1], **static)
    ),
    samples=_samples,
    family="matrix",
    form=Expand(lambda x, bad, kind, text: x),
)


def forbid_second_derivative(x: Any, bad: Any, what: str) -> Any:
    """x inside a rule that must not be differentiated again where a flag is set."""
    text = (
        f"{what}: a second derivative where values are equal{' or vanish' if what == 'svd' else ''}: it depends on how "
        "they part, which the factors do not tell, also if the loss looks at other values alone. The first is right.\n"
        "  Write the loss as a function of the matrix (trace, det, inv, matrix functions), or define the values and "
        "vectors that it looks at by their equations, with pb.implicit.custom_root."
    )
    return apply(_once, x, bad, kind="gauge", text=text)


def equal_pairs(w: Any) -> Any:
    """Which pairs along the last axis are equal to working precision; each is equal to itself."""
    if is_array(w) and w.dtype.kind == "f":
        xp = namespace_for(w)  # sorted: if neighbors are distinct, all are
        steps, near = xp.abs(xp.diff(w)), 16 * eps(w.dtype) * xp.abs(w).sum(axis=-1, keepdims=True)
        if (steps > near).all():
            return xp.broadcast_to(xp.eye(w.shape[-1], dtype=bool), (*w.shape, w.shape[-1]))
    size = reductions.sum(pointwise.abs(w), axis=-1, keepdims=True)
    near = pointwise.multiply(reshaping.expand_dims(size, -1), 16 * eps(w.dtype))
    return pointwise.less_equal(pointwise.abs(_differences(w)), near)


def _differences(w: Any) -> Any:
    """w_j - w_i in row i and column j."""
    return pointwise.subtract(reshaping.expand_dims(w, -2), reshaping.expand_dims(w, -1))


def divide_by_gaps(x: Any, w: Any, equal: Any) -> Any:
    """x_ij / (w_j - w_i), and zero where they are equal: vectors of equal values do not rotate into each other."""
    return divide_unless(x, _differences(w), equal)


def divide_unless(x: Any, y: Any, vanishes: Any) -> Any:
    """x / y, and zero where a flag is set."""
    if not is_complex(x) and not is_complex(y):
        return pointwise.divide(x, pointwise.where(vanishes, math.inf, y))
    # of complex numbers, CuPy's quotient by infinity is not a number
    found = pointwise.divide(x, pointwise.where(vanishes, 1.0, y))
    return pointwise.multiply(found, reshaping.astype(pointwise.logical_not(vanishes), real_dtype(found.dtype)))


def are_all_distinct(equal: Any) -> bool:
    """Whether all values are known to be distinct; then most checks are skipped."""
    return is_array(equal) and int(equal.sum()) == equal.size // max(equal.shape[-1], 1)


def equal_distinct_pairs(equal: Any) -> Any:
    """The equal pairs of different indices."""
    return pointwise.logical_and(equal, pointwise.logical_not(identity_like(equal, dtype=bool)))


def average_over_equal(x: Any, equal: Any) -> Any:
    """Entries along the last axis, those of equal values replaced by their mean: ties share evenly."""
    if are_all_distinct(equal):
        return x
    weights = reshaping.astype(equal, x.dtype)
    shares = pointwise.divide(weights, reductions.sum(weights, axis=-1, keepdims=True))
    return reshaping.squeeze(matmul(shares, reshaping.expand_dims(x, -1)), -1) if shape(x)[-1] else x


def _exceeds_rounding(x: Any, whole: Any) -> Any:
    """Where x exceeds the rounding error of a matrix `whole`."""
    size = reductions.sum(pointwise.abs(whole), axis=(-2, -1), keepdims=True)
    return pointwise.greater(pointwise.abs(x), pointwise.multiply(size, eps(x.dtype) ** 0.5))


def depends_on_gauge(part: Any, free: Any, whole: Any) -> Any:
    """Where a cotangent exceeds rounding along a free rotation; `whole` sets the scale."""
    return pointwise.logical_and(free, _exceeds_rounding(part, whole))


def separates_equal(x: Any, equal: Any, whole: Any) -> Any:
    """Where a matrix is no multiple of the identity on the space of equal values: it distinguishes its vectors."""
    middle = _differences(arrange.diagonal(x, axis1=-2, axis2=-1))
    exceeds = pointwise.logical_or(_exceeds_rounding(x, whole), _exceeds_rounding(middle, whole))
    return pointwise.logical_and(equal_distinct_pairs(equal), exceeds)


def differs_on_equal(bars: Any, equal: Any) -> Any:
    """Where the cotangents of equal values differ."""
    return depends_on_gauge(_differences(bars), equal_distinct_pairs(equal), reshaping.expand_dims(bars, -1))


def split_error_text(what: str) -> str:
    """Forward mode does not see the loss, so it must be correct for every loss."""
    return (
        f"{what}: along this direction equal or zero values split, and the vectors have no derivative.\n"
        "  Use reverse mode for a loss that depends on the spaces alone, or the values without vectors."
    )


def joint_error_text(what: str) -> str:
    """v f(w) v^H and f(w) + v v^H can have the same cotangents, and differ where equal values split."""
    return (
        f"{what}: the loss combines equal (or zero) values and their vectors, and its derivative does not follow from "
        "the factors.\n  Write it as a function of the matrix: expm, logm, sqrtm, inv, matrix_power, or a product."
    )
