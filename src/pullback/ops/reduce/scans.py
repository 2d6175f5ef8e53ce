"""Running sums and products along an axis, and the linear recurrence that gives the derivatives of every scan."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...arrays.call_site import attributed_to_caller
from ...arrays.dtypes import as_dtype
from ...arrays.spec import Spec, make_spec, ones, spec_of, zeros
from ...errors import ShapeError
from .. import statics
from ..axes import normalize_axis
from ..dispatch import apply, as_value, ndim
from ..elementwise import pointwise
from ..families import common_device, conjugate_if_complex, general, linear, result_dtype
from ..forms import Running
from ..index import indexing
from ..op import Op
from ..op_samples import normal_samples
from ..shape import arrange, reshaping
from ..signatures import of_array, of_two_arrays

#: Elements per block, so that a block stays in the processor's cache.
_IN_CACHE = 1 << 14


def sum_dtype(dtype: Any) -> Any:
    """NumPy sums small integers in the machine's integer type."""
    if dtype.kind in "biu" and dtype.itemsize < 8:
        return np.dtype(np.uint64 if dtype.kind == "u" else np.int64)
    return dtype


def cast_if_asked(out: Any, dtype: Any) -> Any:
    """A reduction in the dtype that `dtype=` names. Small integers are reduced in the machine's type; cast back they
    wrap around to what a reduction in their own would give.
    """
    return out if dtype is None or spec_of(out).dtype == as_dtype(dtype) else reshaping.astype(out, dtype)


def is_safe_divisor(out: Any) -> bool:
    """Whether concrete products may be divided by their factors: none is zero, tiny or infinite."""
    if type(out) is not np.ndarray or out.dtype.kind not in "fc" or out.dtype.itemsize < 4:
        return False
    limits, flat = np.finfo(out.dtype), out.reshape(-1)
    for start in range(0, flat.size, _IN_CACHE):
        sizes = np.abs(flat[start : start + _IN_CACHE])
        if not (sizes.min() >= limits.smallest_normal and sizes.max() <= limits.max):
            return False
    return True


def edge_slice(x: Any, axis: int, number: int) -> Any:
    """One slice of zeros or ones, to put before or after x."""
    spec = spec_of(x)
    thin = make_spec((*spec.shape[:axis], min(1, spec.shape[axis]), *spec.shape[axis + 1 :]), spec.dtype, spec.device)
    return ones(thin) if number else zeros(thin)


def shift_forward(x: Any, axis: int, number: int) -> Any:
    """x shifted forward by one along an axis, with a constant in front: the predecessor of each element."""
    return arrange.concat([edge_slice(x, axis, number), indexing.slice_along(x, axis, None, -1)], axis=axis)


def shift_backward(x: Any, axis: int, number: int) -> Any:
    """x shifted back by one along an axis, with a constant at the end: the successor of each element."""
    return arrange.concat([indexing.slice_along(x, axis, 1, None), edge_slice(x, axis, number)], axis=axis)


def _scan_reversed(function: Any, axis: int, *xs: Any) -> Any:
    """A scan run from the last element to the first."""
    flipped = [arrange.flip(x, axis=axis) for x in xs]
    return arrange.flip(function(*flipped), axis=axis)


def _reverse_cumsum(bar: Any, axis: int) -> Any:
    """The pull of a running sum: each element affects all results from its own index on."""
    return _scan_reversed(lambda b: apply(cumulative_sum_op, b, axis=axis), axis, bar)


cumulative_sum_op: Op = linear(
    "cumulative_sum",
    statics={"axis": statics.axis},
    value=lambda xp, x, axis: xp.cumsum(x, axis=axis),
    spec=lambda x, axis: make_spec(x.shape, sum_dtype(x.dtype), x.device),
    transpose=lambda bar, axis: _reverse_cumsum(bar, axis),
    samples=normal_samples([(3,), (2, 3), (0,), (2, 1, 3)], axis=[0, 1, 0, 0]),
    sums=True,
    autocast="high",
    form=Running("add"),
)


def prepare_scan(x: Any, axis: int | None, dtype: Any, what: str) -> tuple[Any, int]:
    """The array and the axis of a scan; without an axis, the flattened array."""
    x = as_value(x) if dtype is None else reshaping.astype(as_value(x), dtype)
    if axis is None:
        return reshaping.reshape(x, (-1,)), 0
    return x, normalize_axis(axis, ndim(x), what)


def _prepend_initial(out: Any, axis: int, number: int, include_initial: bool) -> Any:
    if not include_initial:
        return out
    spec = spec_of(out)
    thin = make_spec((*spec.shape[:axis], 1, *spec.shape[axis + 1 :]), spec.dtype, spec.device)
    return arrange.concat([ones(thin) if number else zeros(thin), out], axis=axis)


@of_array
@attributed_to_caller
def cumulative_sum(x: Any, /, axis: int | None = None, dtype: Any = None, *, include_initial: bool = False) -> Any:
    """Running sums along an axis (of the flattened array by default); `include_initial` starts with 0.

    >>> import numpy as np, pullback as pb
    >>> pb.cumulative_sum(np.array([1, 2, 3]))
    array([1, 3, 6])
    """
    x, axis = prepare_scan(x, axis, dtype, "cumulative_sum")
    return _prepend_initial(cast_if_asked(apply(cumulative_sum_op, x, axis=axis), dtype), axis, 0, include_initial)


# y_i = a_i y_(i-1) + b_i with y_(-1) = 0. Its derivatives are such recurrences again:
#   dy_i = a_i dy_(i-1) + (da_i y_(i-1) + db_i)
#   s_i = bar_i + a_(i+1) s_(i+1),  b_bar = s,  a_bar_i = s_i y_(i-1)
# so the derivatives of every scan below use this one op, and no order needs a division.
def reverse_recurrence(bar: Any, a: Any, axis: int) -> Any:
    """s_i = bar_i + conj(a_(i+1)) s_(i+1)."""
    next_factors = shift_backward(conjugate_if_complex(a), axis, 0)
    return _scan_reversed(lambda p, q: linear_recurrence(p, q, axis=axis), axis, next_factors, bar)


def _pull_factor(bar: Any, a: Any, out: Any, axis: int) -> Any:
    return pointwise.multiply(reverse_recurrence(bar, a, axis), conjugate_if_complex(shift_forward(out, axis, 0)))


def _push_recurrence(tangents: Any, out: Any, primals: Any, static: dict[str, Any]) -> Any:
    (a_dot, b_dot), axis = tangents, static["axis"]
    moved = None if a_dot is None else pointwise.multiply(a_dot, shift_forward(out, axis, 0))
    moved = b_dot if moved is None else moved if b_dot is None else pointwise.add(moved, b_dot)
    return apply(recurrence, primals[0], moved, axis=axis)


def _recur_stepwise(xp: Any, a: Any, b: Any) -> Any:
    """The recurrence along the first axis, step by step."""
    out = xp.empty(b.shape, b.dtype)
    out[0] = b[0]
    for i in range(1, len(b)):
        xp.multiply(a[i], out[i - 1], out=out[i, ...])
        out[i] += b[i]
    return out


def _recur_in_blocks(xp: Any, a: Any, b: Any) -> Any:
    """The recurrence along a first axis that is long and narrow: blocks in parallel, then the carry between them.

    Inside a block y = z + c y_before, where z starts at zero and c is the product of the factors so far.
    """
    n = len(b)
    size = math.isqrt(n) + 1
    count = -(-n // size)
    rest = b.shape[1:]

    def lay_out(x: Any, number: int) -> Any:
        filled = xp.full((count * size, *rest), number, b.dtype)
        filled[:n] = x
        return xp.ascontiguousarray(xp.moveaxis(filled.reshape(count, size, *rest), 1, 0))

    a, b = lay_out(a, 1), lay_out(b, 0)
    inside = _recur_stepwise(xp, a, b)
    factors = xp.cumprod(a, axis=0)
    carry = _recur_stepwise(
        xp, xp.concatenate([a[:1, 0], factors[-1, :-1]]), xp.concatenate([b[:1, 0] * 0, inside[-1, :-1]])
    )
    inside += xp.where(carry == 0, 0, factors * carry)
    return xp.moveaxis(inside, 0, 1).reshape(count * size, *rest)[:n]


def _recurrence_value(xp: Any, a: Any, b: Any, axis: int) -> Any:
    dtype = xp.result_type(a, b)
    a, b = (xp.moveaxis(xp.asarray(x, dtype), axis, 0) for x in (a, b))
    if not b.size:
        return xp.moveaxis(xp.zeros(b.shape, dtype), 0, axis)
    if axis:
        a, b = xp.ascontiguousarray(a), xp.ascontiguousarray(b)
    is_long = len(b) > 256 and b.size < 8 * len(b)
    return xp.moveaxis(_recur_in_blocks(xp, a, b) if is_long else _recur_stepwise(xp, a, b), 0, axis)


def _recurrence_spec(a: Spec, b: Spec, axis: int) -> Spec:
    if a.shape != b.shape:
        raise ShapeError(f"linearrecurrence: factors have shape {a.shape}, terms {b.shape}.")
    return make_spec(b.shape, result_dtype((a, b)), common_device("linear_recurrence", (a, b)))


def _recurrence_samples(rng: Any) -> Any:
    drawn = [(rng.normal(size=s), rng.normal(size=s)) for s in ((4,), (2, 3), (3, 2), (1,), (0, 2), (300,))]
    drawn[0][0][2] = 0
    return [(pair, {"axis": 1 if pair[0].shape == (2, 3) else 0}) for pair in drawn]


recurrence: Op = general(
    "linear_recurrence",
    statics={"axis": statics.axis},
    value=_recurrence_value,
    spec=_recurrence_spec,
    pulls={"a": _pull_factor, "b": reverse_recurrence},
    push=_push_recurrence,
    samples=_recurrence_samples,
    autocast="high",
    form=Running("recurrence"),
)


@of_two_arrays
def linear_recurrence(a: Any, b: Any, /, *, axis: int = -1) -> Any:
    """y[i] = a[i] y[i-1] + b[i] along an axis, starting from zero: an average that forgets, a filter.

    >>> import numpy as np, pullback as pb
    >>> pb.linear_recurrence(np.full(4, 0.5), np.ones(4))
    array([1.   , 1.5  , 1.75 , 1.875])
    """
    a, b = reshaping.broadcast_together(as_value(a), as_value(b))
    return apply(recurrence, a, b, axis=normalize_axis(axis, ndim(b), "linear_recurrence"))


# p_i = x_i p_(i-1), so dp_i = x_i dp_(i-1) + p_(i-1) dx_i.
def _pull_product(bar: Any, x: Any, out: Any, axis: int) -> Any:
    if type(x) is np.ndarray and is_safe_divisor(out) and x.dtype == out.dtype:
        later = _reverse_cumsum(pointwise.multiply(bar, conjugate_if_complex(out)), axis)
        return pointwise.divide(later, conjugate_if_complex(x))
    return pointwise.multiply(reverse_recurrence(bar, x, axis), conjugate_if_complex(shift_forward(out, axis, 1)))


def _push_product(tangents: Any, out: Any, primals: Any, static: dict[str, Any]) -> Any:
    axis = static["axis"]
    return apply(recurrence, primals[0], pointwise.multiply(tangents[0], shift_forward(out, axis, 1)), axis=axis)


def _cumprod_samples(rng: Any) -> Any:
    zeros_in = rng.normal(size=(5, 2))
    zeros_in[[1, 3], 0] = 0
    plain = [((rng.normal(size=s),), {"axis": a}) for s, a in (((4,), 0), ((2, 3), 1), ((0,), 0), ((2, 1, 3), 0))]
    return [*plain, ((zeros_in,), {"axis": 0})]


_cumprod: Op = general(
    "cumulative_prod",
    statics={"axis": statics.axis},
    value=lambda xp, x, axis: xp.cumprod(x, axis=axis),
    spec=lambda x, axis: make_spec(x.shape, sum_dtype(x.dtype), x.device),
    pulls={"x": _pull_product},
    push=_push_product,
    samples=_cumprod_samples,
    autocast="high",
    form=Running("multiply"),
)


@of_array
@attributed_to_caller
def cumulative_prod(x: Any, /, axis: int | None = None, dtype: Any = None, *, include_initial: bool = False) -> Any:
    """Running products along an axis (of the flattened array by default), with correct derivatives at zeros.

    >>> import numpy as np, pullback as pb
    >>> pb.cumulative_prod(np.array([1, 2, 3]), include_initial=True)
    array([1, 1, 2, 6])
    """
    x, axis = prepare_scan(x, axis, dtype, "cumulative_prod")
    return _prepend_initial(cast_if_asked(apply(_cumprod, x, axis=axis), dtype), axis, 1, include_initial)
