"""Equal eigenvalues and free phases: what a factorisation was free to choose, and whether a derivative hangs on it.

Eigenvectors of one eigenvalue may be turned into each other, and each complex one has a free phase. A loss that knows
only the spaces they span has a derivative all the same; its cotangent has no part along such a turn. That is checked
where the cotangent is pulled, by an op, so that it is checked under every transform and in staged programs too.
"""

from __future__ import annotations

import math
from typing import Any

from ...arrays.backends import is_array
from ...errors import GaugeError, SingularError
from .. import arranging, batching, reducing, shaping, statics
from .. import elementwise as pointwise
from ..contracting import matmul
from ..dispatch import apply, shape
from ..families import general
from ..index import namespace_for
from ..op import Op
from .matrices import eps, identity

__all__ = [
    "all_apart",
    "checked",
    "equal_ones",
    "evenly",
    "in_the_way",
    "over_gaps",
    "joined_text",
    "once",
    "others",
    "split_text",
    "uneven",
    "unequal",
]

_ERRORS = {"gauge": GaugeError, "singular": SingularError}


def _spec(x: Any, bad: Any, kind: str, text: str) -> Any:
    return x


def _samples(rng: Any) -> Any:
    static = {"kind": "gauge", "text": "never"}
    return [((rng.normal(size=s), rng.random(s) > 2), static) for s in ((3,), (2, 2), (0,))]


def _checked_value(xp: Any, x: Any, bad: Any, kind: str, text: str) -> Any:
    if bad.any() and x.any():
        raise _ERRORS[kind](text)
    return x


_checked: Op = general(
    "checked",
    statics={"kind": statics.choice(*_ERRORS), "text": statics.text},
    doc="The value itself, or an error where a flag is set.",
    args=("x", "bad"),
    value=_checked_value,
    spec=_spec,
    pulls={"x": lambda bar: bar, "bad": None},
    push=lambda tangents, out, primals, static: tangents[0],
    batch=batching.shifted(),
    samples=_samples,
    family="matrix",
)


def checked(x: Any, bad: Any, kind: str, text: str) -> Any:
    """x, or an error if any flag is set and x is not zero throughout."""
    return apply(_checked, x, bad, kind=kind, text=text)


_once: Op = general(
    "once",
    statics={"kind": statics.choice(*_ERRORS), "text": statics.text},
    doc="The value itself, whose derivative is an error where a flag is set.",
    args=("x", "bad"),
    value=lambda xp, x, bad, kind, text: x,
    spec=_spec,
    pulls={"x": lambda bar, bad, kind, text: checked(bar, bad, kind, text), "bad": None},
    push=lambda tangents, out, primals, static: (
        None if tangents[0] is None else checked(tangents[0], primals[1], **static)
    ),
    batch=batching.shifted(),
    samples=_samples,
    family="matrix",
)


def once(x: Any, bad: Any, what: str) -> Any:
    """x inside a rule that is right, but not to be differentiated again where a flag is set."""
    text = (
        f"{what}: a second derivative where values are equal{' or vanish' if what == 'svd' else ''}: it depends on how "
        "they part, which the factors do not tell, also if the loss looks at other values alone. The first is right.\n"
        "  Write the loss as a function of the matrix (trace, det, inv, matrix functions), or define the values and "
        "vectors that it looks at by their equations, with pb.implicit.custom_root."
    )
    return apply(_once, x, bad, kind="gauge", text=text)


def equal_ones(w: Any) -> Any:
    """Which pairs along the last axis are equal to working precision; each is equal to itself."""
    if is_array(w) and w.dtype.kind == "f":
        xp = namespace_for(w)  # sorted: if neighbours are apart, all are
        steps, near = xp.abs(xp.diff(w)), 16 * eps(w.dtype) * xp.abs(w).sum(axis=-1, keepdims=True)
        if (steps > near).all():
            return xp.broadcast_to(xp.eye(w.shape[-1], dtype=bool), (*w.shape, w.shape[-1]))
    size = reducing.sum(pointwise.abs(w), axis=-1, keepdims=True)
    near = pointwise.multiply(shaping.expand_dims(size, -1), 16 * eps(w.dtype))
    return pointwise.less_equal(pointwise.abs(_differences(w)), near)


def _differences(w: Any) -> Any:
    """w_j - w_i in row i and column j."""
    return pointwise.subtract(shaping.expand_dims(w, -2), shaping.expand_dims(w, -1))


def over_gaps(x: Any, w: Any, equal: Any) -> Any:
    """x_ij / (w_j - w_i), and zero where they are equal: what is equal does not turn into each other."""
    return pointwise.divide(x, pointwise.where(equal, math.inf, _differences(w)))


def all_apart(equal: Any) -> bool:
    """Whether it is known that no two values are equal; then most checks need not be made."""
    return is_array(equal) and int(equal.sum()) == equal.size // max(equal.shape[-1], 1)


def others(equal: Any) -> Any:
    """The equal pairs without those of each with itself."""
    return pointwise.logical_and(equal, pointwise.logical_not(identity(equal, dtype=bool)))


def evenly(x: Any, equal: Any) -> Any:
    """Numbers along the last axis, those that belong to equal values replaced by their mean: as ties share alike."""
    if all_apart(equal):
        return x
    weights = shaping.astype(equal, x.dtype)
    shares = pointwise.divide(weights, reducing.sum(weights, axis=-1, keepdims=True))
    return shaping.squeeze(matmul(shares, shaping.expand_dims(x, -1)), -1) if shape(x)[-1] else x


def _beyond_rounding(x: Any, whole: Any) -> Any:
    """Where x is more than rounding could make of a matrix `whole`."""
    size = reducing.sum(pointwise.abs(whole), axis=(-2, -1), keepdims=True)
    return pointwise.greater(pointwise.abs(x), pointwise.multiply(size, eps(x.dtype) ** 0.5))


def in_the_way(part: Any, free: Any, whole: Any) -> Any:
    """Where a cotangent has more than rounding along what is free; `whole` is what its size is measured by."""
    return pointwise.logical_and(free, _beyond_rounding(part, whole))


def uneven(x: Any, equal: Any, whole: Any) -> Any:
    """Where a matrix is no multiple of one on the space of equal values: it tells its vectors apart."""
    middle = _differences(arranging.diagonal(x, axis1=-2, axis2=-1))
    told = pointwise.logical_or(_beyond_rounding(x, whole), _beyond_rounding(middle, whole))
    return pointwise.logical_and(others(equal), told)


def unequal(bars: Any, equal: Any) -> Any:
    """Where the cotangents of equal values differ."""
    return in_the_way(_differences(bars), others(equal), shaping.expand_dims(bars, -1))


def split_text(what: str) -> str:
    """Forward mode does not see the loss, so it must be right for all of them."""
    return (
        f"{what}: along this direction equal or vanishing values part, and the vectors have no derivative.\n"
        "  Use reverse mode for a loss of the spaces alone, or the values without vectors."
    )


def joined_text(what: str) -> str:
    """v f(w) v^H and f(w) + v v^H can have the same cotangents, and differ in what happens when equal values part."""
    return (
        f"{what}: the loss joins equal (or vanishing) values and their vectors, and its derivative cannot be told from "
        "the factors.\n  Write it as a function of the matrix: expm, logm, sqrtm, inv, matrix_power, or a product."
    )
