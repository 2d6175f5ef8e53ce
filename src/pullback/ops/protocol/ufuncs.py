"""NumPy's ufuncs and their methods in, our ops out: call, reduce, accumulate, reduceat, outer, at, with options."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from ...arrays.spec import spec_of
from ...arrays.tensor import Tensor
from ...errors import ArgumentError, DtypeError, UnsupportedFunction
from .. import arithmetic, arranging, contracting, curves, indexing, reducing, rounding, scanning, shaping
from .. import elementwise as pointwise
from ..axes import all_axes, one_axis
from ..dispatch import as_value, ndim, shape
from ..families import is_complex
from ..known import bare
from .refusing import NOT_GIVEN, library, refuse, unknown

__all__ = ["FUNCTIONS", "function_of", "with_options"]

#: Ufuncs by themselves, ours behind them.
FUNCTIONS: dict[Any, Callable[..., Any]] = {}
_PRODUCTS = ("matmul", "vecdot", "matvec", "vecmat")


def _collected() -> None:
    """Every op that computes by a ufunc, and the composites that stand for one."""
    for module in (arithmetic, curves, rounding, pointwise):
        for function in vars(module).values():
            op = getattr(function, "op", None)
            if op is not None and op.ufunc and isinstance(getattr(np, op.ufunc), np.ufunc):
                FUNCTIONS[getattr(np, op.ufunc)] = function
    FUNCTIONS.update({
        np.divmod: arithmetic.divmod, np.float_power: arithmetic.float_power, np.ldexp: rounding.ldexp,
        np.frexp: rounding.frexp, np.modf: rounding.modf, np.fabs: pointwise.abs, np.degrees: curves.rad2deg,
        np.radians: curves.deg2rad, np.matmul: contracting.matmul, np.conjugate: pointwise.conj,
        np.absolute: pointwise.abs, np.sign: pointwise.sign, np.power: _power,
    })  # fmt: skip
    for name, ours in (("vecdot", _vecdot), ("matvec", _matvec), ("vecmat", _vecmat)):
        if hasattr(np, name):  # newer than NumPy 2.0
            FUNCTIONS[getattr(np, name)] = ours


def _power(x: Any, y: Any) -> Any:
    """x ** y, with the square and the root by their own ops."""
    if type(y) in (int, float) and y in (2, 0.5):
        return pointwise.square(x) if y == 2 else pointwise.sqrt(x)
    return pointwise.power(x, y)


def _vecdot(x: Any, y: Any) -> Any:
    """The inner product along the last axes, the first argument conjugated."""
    products = pointwise.multiply(pointwise.conj(x) if is_complex(x) else x, y)
    return reducing.sum(products, axis=-1, dtype=spec_of(products).dtype)


def _matvec(x: Any, y: Any) -> Any:
    return shaping.squeeze(contracting.matmul(x, shaping.expand_dims(as_value(y), -1)), -1)


def _vecmat(x: Any, y: Any) -> Any:
    return shaping.squeeze(contracting.matmul(shaping.expand_dims(pointwise.conj(x), -2), y), -2)


def function_of(ufunc: Any) -> Callable[..., Any]:
    """Ours for a ufunc of NumPy or of scipy.special."""
    found = FUNCTIONS.get(ufunc)
    if found is not None:
        return found
    name = ufunc.__name__
    special = sys.modules.get("scipy.special")
    if special is not None and getattr(special, name, None) is ufunc:
        FUNCTIONS[ufunc] = library(f"special.{name}", name)
        return FUNCTIONS[ufunc]
    raise unknown(name)


def with_options(
    ufunc: np.ufunc, method: str, inputs: tuple[Any, ...], options: dict[str, Any], out: Any, into: Callable[..., Any]
) -> Any:
    """A ufunc with keywords, or one of its methods."""
    name = ufunc.__name__
    if method == "at":
        return _at(ufunc, *inputs)
    if method != "__call__" and ufunc.nin != 2:
        raise unknown(f"{name}.{method}")
    if method == "__call__":
        mask = options.pop("where", True)
        found = _called(ufunc, inputs, options)
        if mask is not True:
            found = _where(name, mask, found, out)
    else:
        found = _METHODS[method](ufunc, *inputs, **options)
    if out is None or (type(out) is tuple and all(o is None for o in out)):
        return found
    if type(found) is tuple:
        return tuple(f if o is None else into(o, f, name) for f, o in zip(found, out, strict=True))
    return into(out, found, name)


def _where(name: str, mask: Any, found: Any, out: Any) -> Any:
    """Elsewhere the result keeps what `out` held; without `out` NumPy would leave it to chance."""
    if out is None or out[0] is None or type(found) is tuple:
        raise UnsupportedFunction(
            f"np.{name} with where= has no rule here without out=: the other elements would be left to chance.\n"
            "  Use pb.where(mask, result, other)."
        )
    return pointwise.where(mask, found, out[0])


def _called(ufunc: Any, inputs: tuple[Any, ...], options: dict[str, Any]) -> Any:
    function = function_of(ufunc)
    if ufunc.__name__ in _PRODUCTS:
        return _product(ufunc, function, inputs, options)
    signature = options.pop("signature", options.pop("sig", None))
    dtype, casting = options.pop("dtype", None), options.pop("casting", "same_kind")
    refuse(ufunc.__name__, **options)
    if dtype is None and signature is None and casting == "same_kind":
        return function(*inputs)
    return function(*_cast(ufunc, inputs, dtype, signature, casting))


def _cast(ufunc: Any, inputs: tuple[Any, ...], dtype: Any, signature: Any, casting: str) -> list[Any]:
    """The inputs in the dtypes of the loop that NumPy would choose."""
    values = [as_value(x) for x in inputs]
    given = tuple(spec_of(x).weak or spec_of(x).dtype for x in values) + (None,) * ufunc.nout
    if signature is None:
        signature = (None,) * ufunc.nin + (None if dtype is None else np.dtype(dtype),) * ufunc.nout
    elif isinstance(signature, str):
        signature = tuple(np.dtype(c) for c in signature.replace("->", ""))
    try:
        loop = ufunc.resolve_dtypes(given, signature=signature, casting=casting)
    except TypeError as error:
        raise DtypeError(f"np.{ufunc.__name__}: {error}") from None
    return [shaping.astype(x, d) for x, d in zip(values, loop, strict=False)]


def _product(ufunc: Any, function: Callable[..., Any], inputs: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """The products, which sum over axes of their own choosing: `axis` moves those of vectors."""
    dtype = options.pop("dtype", None)
    values = [as_value(x) if dtype is None else shaping.astype(as_value(x), dtype) for x in inputs]
    axis, keepdims = options.pop("axis", -1), options.pop("keepdims", False)
    if ufunc.__name__ != "vecdot" and (axis != -1 or keepdims):
        refuse(ufunc.__name__, axis=axis, keepdims=keepdims)
    refuse(ufunc.__name__, **options)
    if axis != -1:
        values = [shaping.moveaxis(x, axis, -1) for x in values]
    found = function(*values)
    return shaping.expand_dims(found, axis) if keepdims else found


_SUMS: dict[Any, Callable[..., Any]] = {
    np.add: reducing.sum, np.multiply: reducing.prod, np.maximum: reducing.max, np.minimum: reducing.min,
    np.logical_and: reducing.all, np.logical_or: reducing.any, np.logaddexp: reducing.logsumexp,
}  # fmt: skip


def _reduce(
    ufunc: Any, array: Any, axis: Any = 0, dtype: Any = None, keepdims: bool = False, initial: Any = NOT_GIVEN,
    where: Any = True,
) -> Any:  # fmt: skip
    """The ufunc between all elements along axes, from the first to the last."""
    x = as_value(array)
    if dtype is not None:
        x = shaping.astype(x, dtype)
    if where is not True:
        neutral = initial if ufunc.identity is None and initial is not NOT_GIVEN else ufunc.identity
        if neutral is None:
            raise ArgumentError(
                f"np.{ufunc.__name__}.reduce: where= wants initial=, since there is no neutral element."
            )
        x = pointwise.where(where, x, neutral)
    axes = all_axes(axis, ndim(x), f"{ufunc.__name__}.reduce")
    found = _SUMS[ufunc](x, axis=axes, keepdims=keepdims) if ufunc in _SUMS else _folded(ufunc, x, axes, keepdims)
    found = reducing.in_asked_dtype(found, dtype)
    return found if initial in (NOT_GIVEN, None) else function_of(ufunc)(initial, found)


def _folded(ufunc: Any, x: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    if len(axes) != 1:
        raise ArgumentError(f"np.{ufunc.__name__}.reduce: the order matters, so one axis is wanted, got {axes}.")
    (axis,) = axes
    parts = _parts(x, axis)
    if not parts:
        raise ArgumentError(f"np.{ufunc.__name__}.reduce: an empty axis has no result.")
    total = parts[0]
    for part in parts[1:]:
        total = function_of(ufunc)(total, part)
    return shaping.expand_dims(total, axis) if keepdims else total


def _parts(x: Any, axis: int) -> list[Any]:
    return [x[(slice(None),) * axis + (i,)] for i in range(shape(x)[axis])]


def _accumulate(ufunc: Any, array: Any, axis: int = 0, dtype: Any = None) -> Any:
    """All the partial results of a reduction."""
    x = as_value(array)
    if dtype is not None:
        x = shaping.astype(x, dtype)
    axis = one_axis(axis, ndim(x), f"{ufunc.__name__}.accumulate")
    if ufunc in (np.add, np.multiply):
        return (scanning.cumulative_sum if ufunc is np.add else scanning.cumulative_prod)(x, axis=axis, dtype=dtype)
    parts = _parts(x, axis)
    if not parts:
        return shaping.unchanged(x)
    totals = [parts[0]]
    for part in parts[1:]:
        totals.append(function_of(ufunc)(totals[-1], part))
    return arranging.stack(totals, axis=axis)


def _reduceat(ufunc: Any, array: Any, indices: Any, axis: int = 0, dtype: Any = None) -> Any:
    """A reduction from each index to the next; where the next is not greater, the element alone."""
    x = as_value(array)
    axis = one_axis(axis, ndim(x), f"{ufunc.__name__}.reduceat")
    starts = [int(i) for i in bare(indices, "reduceat")]
    ends = [*starts[1:], shape(x)[axis]]
    pieces = []
    for start, end in zip(starts, ends, strict=True):
        piece = x[(slice(None),) * axis + (slice(start, end if end > start else start + 1),)]
        pieces.append(_reduce(ufunc, piece, axis=axis, dtype=dtype))
    return arranging.stack(pieces, axis=axis)


def _outer(ufunc: Any, x: Any, y: Any, **options: Any) -> Any:
    """Every element of x with every one of y."""
    x, y = as_value(x), as_value(y)
    return _called(ufunc, (shaping.reshape(x, shape(x) + (1,) * ndim(y)), y), options)


_METHODS: dict[str, Callable[..., Any]] = {
    "reduce": _reduce, "accumulate": _accumulate, "reduceat": _reduceat, "outer": _outer,
}  # fmt: skip


def _at(ufunc: Any, target: Any, index: Any, *values: Any) -> None:
    """`ufunc.at`: in place, one element after the other, so that repeated places count each time."""
    name = ufunc.__name__
    if not isinstance(target, Tensor):
        raise UnsupportedFunction(
            f"np.{name}.at has no rule here for a {type(target).__name__}, which cannot hold a derivative.\n"
            "  Make it a tensor first: target = pb.tensor(target)."
        )
    if ufunc in (np.add, np.subtract):
        change = values[0] if ufunc is np.add else pointwise.negative(values[0])
        target.rebind(indexing.add_at(target, index, change), f"np.{name}.at")
        return
    flat: Any = shaping.reshape(target, (-1,))
    places = np.arange(target.size).reshape(target.shape)[_plain(index)]
    rows = [shaping.reshape(shaping.broadcast_to(as_value(v), places.shape), (-1,)) for v in values]
    for n, place in enumerate(places.ravel()):
        flat = indexing.set_at(flat, int(place), function_of(ufunc)(flat[int(place)], *(row[n] for row in rows)))
    target.rebind(shaping.reshape(flat, target.shape), f"np.{name}.at")


def _plain(index: Any) -> Any:
    """An index whose arrays are bare."""
    if isinstance(index, tuple):
        return tuple(_plain(i) for i in index)
    return index if isinstance(index, (int, slice)) or index is None or index is Ellipsis else bare(index, "at")


_collected()
