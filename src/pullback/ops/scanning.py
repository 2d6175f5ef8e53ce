"""Running sums and products along an axis, and the recurrence that the derivatives of every scan are made of."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..arrays.node import signed
from ..arrays.spec import Spec, make_spec, ones, spec_of, zeros
from ..errors import ShapeError
from . import arranging, batching, indexing, reducing, shaping, statics
from . import elementwise as pointwise
from .axes import one_axis
from .dispatch import apply, as_value, ndim
from .families import common_device, general, linear, result_dtype
from .op import Op
from .sampling import one, several

__all__ = ["cumulative_prod", "cumulative_sum", "linear_recurrence"]


def cut(x: Any, axis: int, start: int | None, stop: int | None) -> Any:
    return indexing.getitem(x, (*(slice(None),) * axis, slice(start, stop)))


def edge(x: Any, axis: int, number: int) -> Any:
    """One slice of zeros or ones, to stand before or after x."""
    spec = spec_of(x)
    thin = make_spec((*spec.shape[:axis], min(1, spec.shape[axis]), *spec.shape[axis + 1 :]), spec.dtype, spec.device)
    return ones(thin) if number else zeros(thin)


def shifted_in(x: Any, axis: int, number: int) -> Any:
    """x moved on by one along an axis, with a constant in front: what each place has before it."""
    return arranging.concat([edge(x, axis, number), cut(x, axis, None, -1)], axis=axis)


def shifted_out(x: Any, axis: int, number: int) -> Any:
    """x moved back by one along an axis, with a constant at the end: what each place has after it."""
    return arranging.concat([cut(x, axis, 1, None), edge(x, axis, number)], axis=axis)


def _from_the_end(function: Any, axis: int, *xs: Any) -> Any:
    """A scan run from the last element to the first."""
    turned = [arranging.flip(x, axis=axis) for x in xs]
    return arranging.flip(function(*turned), axis=axis)


def _reached(bar: Any, axis: int) -> Any:
    """Each element reaches all results from its own place on."""
    return _from_the_end(lambda b: apply(_cumsum, b, axis=axis), axis, bar)


_cumsum: Op = linear(
    "cumulative_sum",
    statics={"axis": statics.axis},
    doc="Running sums along an axis.",
    value=lambda xp, x, axis: xp.cumsum(x, axis=axis),
    spec=lambda x, axis: make_spec(x.shape, reducing.summed_dtype(x.dtype), x.device),
    transpose=lambda bar, axis: _reached(bar, axis),
    batch=batching.shifted(axis="axis"),
    samples=several(one(3, axis=0), one(2, 3, axis=1), one(0, axis=0), one(2, 1, 3, axis=0)),
    motion="rearrange",
)


def along(x: Any, axis: int | None, dtype: Any, what: str) -> tuple[Any, int]:
    """The array and the axis of a scan; without an axis, the flattened array."""
    x = as_value(x) if dtype is None else shaping.astype(as_value(x), dtype)
    if axis is None:
        return shaping.reshape(x, (-1,)), 0
    return x, one_axis(axis, ndim(x), what)


def _begun(out: Any, axis: int, number: int, include_initial: bool) -> Any:
    if not include_initial:
        return out
    spec = spec_of(out)
    thin = make_spec((*spec.shape[:axis], 1, *spec.shape[axis + 1 :]), spec.dtype, spec.device)
    return arranging.concat([ones(thin) if number else zeros(thin), out], axis=axis)


@signed
def cumulative_sum(x: Any, /, axis: int | None = None, dtype: Any = None, *, include_initial: bool = False) -> Any:
    """Running sums along an axis (of the flattened array where none is named); `include_initial` starts with 0.

    >>> import numpy as np, pullback as pb
    >>> pb.cumulative_sum(np.array([1, 2, 3]))
    array([1, 3, 6])
    """
    x, axis = along(x, axis, dtype, "cumulative_sum")
    return _begun(reducing.in_asked_dtype(apply(_cumsum, x, axis=axis), dtype), axis, 0, include_initial)


# y_i = a_i y_(i-1) + b_i with y_(-1) = 0. Its derivatives are such recurrences again:
#   dy_i = a_i dy_(i-1) + (da_i y_(i-1) + db_i)
#   s_i = bar_i + a_(i+1) s_(i+1),  b_bar = s,  a_bar_i = s_i y_(i-1)
# so the derivatives of every scan below close over this one op, and no order needs a division.
def swept(bar: Any, a: Any, axis: int) -> Any:
    """s_i = bar_i + conj(a_(i+1)) s_(i+1)."""
    ahead = shifted_out(reducing.conjugate(a), axis, 0)
    return _from_the_end(lambda p, q: linear_recurrence(p, q, axis=axis), axis, ahead, bar)


def _pull_factor(bar: Any, a: Any, out: Any, axis: int) -> Any:
    return pointwise.multiply(swept(bar, a, axis), reducing.conjugate(shifted_in(out, axis, 0)))


def _push_recurrence(tangents: Any, out: Any, primals: Any, static: dict[str, Any]) -> Any:
    (a_dot, b_dot), axis = tangents, static["axis"]
    moved = None if a_dot is None else pointwise.multiply(a_dot, shifted_in(out, axis, 0))
    moved = b_dot if moved is None else moved if b_dot is None else pointwise.add(moved, b_dot)
    return apply(recurrence, primals[0], moved, axis=axis)


def _stepped(xp: Any, a: Any, b: Any) -> Any:
    """The recurrence along the first axis, step by step."""
    out = xp.empty(b.shape, b.dtype)
    out[0] = b[0]
    for i in range(1, len(b)):
        xp.multiply(a[i], out[i - 1], out=out[i, ...])
        out[i] += b[i]
    return out


def _in_blocks(xp: Any, a: Any, b: Any) -> Any:
    """The recurrence along a first axis that is long and narrow: blocks side by side, then what each hands on.

    Inside a block y = z + c y_before, where z starts at zero and c is the product of the factors so far.
    """
    n = len(b)
    size = math.isqrt(n) + 1
    count = -(-n // size)
    rest = b.shape[1:]

    def laid(x: Any, number: int) -> Any:
        filled = xp.full((count * size, *rest), number, b.dtype)
        filled[:n] = x
        return xp.ascontiguousarray(xp.moveaxis(filled.reshape(count, size, *rest), 1, 0))

    a, b = laid(a, 1), laid(b, 0)
    inside = _stepped(xp, a, b)
    factors = xp.cumprod(a, axis=0)
    handed = _stepped(xp, xp.concatenate([a[:1, 0], factors[-1, :-1]]), xp.concatenate([b[:1, 0] * 0, inside[-1, :-1]]))
    inside += xp.where(handed == 0, 0, factors * handed)
    return xp.moveaxis(inside, 0, 1).reshape(count * size, *rest)[:n]


def _recurred(xp: Any, a: Any, b: Any, axis: int) -> Any:
    dtype = xp.result_type(a, b)
    a, b = (xp.moveaxis(xp.asarray(x, dtype), axis, 0) for x in (a, b))
    if not b.size:
        return xp.moveaxis(xp.zeros(b.shape, dtype), 0, axis)
    if axis:
        a, b = xp.ascontiguousarray(a), xp.ascontiguousarray(b)
    is_long = len(b) > 256 and b.size < 8 * len(b)
    return xp.moveaxis(_in_blocks(xp, a, b) if is_long else _stepped(xp, a, b), 0, axis)


def _recurrence_spec(a: Spec, b: Spec, axis: int) -> Spec:
    if a.shape != b.shape:
        raise ShapeError(f"linearrecurrence: factors have shape {a.shape}, terms {b.shape}.")
    return make_spec(b.shape, result_dtype((a, b)), common_device("linear_recurrence", (a, b)))


def _pairs(rng: Any) -> Any:
    drawn = [(rng.normal(size=s), rng.normal(size=s)) for s in ((4,), (2, 3), (3, 2), (1,), (0, 2), (300,))]
    drawn[0][0][2] = 0
    return [(pair, {"axis": 1 if pair[0].shape == (2, 3) else 0}) for pair in drawn]


recurrence: Op = general(
    "linear_recurrence",
    statics={"axis": statics.axis},
    args=("a", "b"),
    doc="y[i] = a[i] y[i-1] + b[i] along an axis.",
    value=_recurred,
    spec=_recurrence_spec,
    pulls={"a": _pull_factor, "b": swept},
    push=_push_recurrence,
    batch=batching.shifted(axis="axis"),
    samples=_pairs,
)


def linear_recurrence(a: Any, b: Any, /, *, axis: int = -1) -> Any:
    """y[i] = a[i] y[i-1] + b[i] along an axis, starting from zero: an average that forgets, a filter.

    >>> import numpy as np, pullback as pb
    >>> pb.linear_recurrence(np.full(4, 0.5), np.ones(4))
    array([1.   , 1.5  , 1.75 , 1.875])
    """
    a, b = shaping.broadcast_together(as_value(a), as_value(b))
    return apply(recurrence, a, b, axis=one_axis(axis, ndim(b), "linear_recurrence"))


# p_i = x_i p_(i-1), so dp_i = x_i dp_(i-1) + p_(i-1) dx_i.
def _pull_product(bar: Any, x: Any, out: Any, axis: int) -> Any:
    if type(x) is np.ndarray and reducing.is_safe_divisor(out) and x.dtype == out.dtype:
        later = _reached(pointwise.multiply(bar, reducing.conjugate(out)), axis)
        return pointwise.divide(later, reducing.conjugate(x))
    return pointwise.multiply(swept(bar, x, axis), reducing.conjugate(shifted_in(out, axis, 1)))


def _push_product(tangents: Any, out: Any, primals: Any, static: dict[str, Any]) -> Any:
    axis = static["axis"]
    return apply(recurrence, primals[0], pointwise.multiply(tangents[0], shifted_in(out, axis, 1)), axis=axis)


def _factors(rng: Any) -> Any:
    zeros_in = rng.normal(size=(5, 2))
    zeros_in[[1, 3], 0] = 0
    plain = [((rng.normal(size=s),), {"axis": a}) for s, a in (((4,), 0), ((2, 3), 1), ((0,), 0), ((2, 1, 3), 0))]
    return [*plain, ((zeros_in,), {"axis": 0})]


_cumprod: Op = general(
    "cumulative_prod",
    statics={"axis": statics.axis},
    args=("x",),
    doc="Running products along an axis.",
    value=lambda xp, x, axis: xp.cumprod(x, axis=axis),
    spec=lambda x, axis: make_spec(x.shape, reducing.summed_dtype(x.dtype), x.device),
    pulls={"x": _pull_product},
    push=_push_product,
    batch=batching.shifted(axis="axis"),
    samples=_factors,
)


@signed
def cumulative_prod(x: Any, /, axis: int | None = None, dtype: Any = None, *, include_initial: bool = False) -> Any:
    """Running products along an axis (of the flattened array where none is named), right at zeros to every order.

    >>> import numpy as np, pullback as pb
    >>> pb.cumulative_prod(np.array([1, 2, 3]), include_initial=True)
    array([1, 1, 2, 6])
    """
    x, axis = along(x, axis, dtype, "cumulative_prod")
    return _begun(reducing.in_asked_dtype(apply(_cumprod, x, axis=axis), dtype), axis, 1, include_initial)
