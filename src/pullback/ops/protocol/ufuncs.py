"""NumPy's ufuncs and their methods on our ops: call, reduce, accumulate, reduceat, outer, at, with options."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ...arrays.buffers import Buffer
from ...arrays.imported import imported_module
from ...arrays.spec import is_inexact, spec_of
from ...errors import ArgumentError, DtypeError, UnsupportedFunction
from ..axes import normalize_axes, normalize_axis
from ..concrete import as_bare_array
from ..contract import dot_products, matrix_products
from ..dispatch import as_value, ndim, shape
from ..elementwise import arithmetic, pointwise, rounding, transcendental
from ..index import indexing
from ..lazy import load_module
from ..reduce import reductions, scans
from ..shape import arrange, reshaping
from .nested import as_array_or_value, is_variable, rebind
from .unsupported import NOT_GIVEN, package_function, refuse, unsupported_error

#: Our function for each ufunc.
FUNCTIONS: dict[Any, Callable[..., Any]] = {}
_PRODUCTS = ("matmul", "vecdot", "matvec", "vecmat")


def _collect_ufuncs() -> None:
    """Every op whose value is a ufunc, and the composites that implement one."""
    for module in (arithmetic, transcendental, rounding, pointwise):
        for function in vars(module).values():
            op = getattr(function, "op", None)
            if op is not None and op.ufunc and isinstance(getattr(np, op.ufunc), np.ufunc):
                FUNCTIONS[getattr(np, op.ufunc)] = function
    FUNCTIONS.update({
        np.divmod: arithmetic.divmod, np.float_power: arithmetic.float_power, np.ldexp: rounding.ldexp,
        np.frexp: rounding.frexp, np.modf: rounding.modf, np.fabs: pointwise.abs, np.degrees: transcendental.rad2deg,
        np.radians: transcendental.deg2rad, np.matmul: matrix_products.matmul, np.conjugate: pointwise.conj,
        np.absolute: pointwise.abs, np.sign: pointwise.sign, np.power: _power,
    })  # fmt: skip
    for name in ("vecdot", "matvec", "vecmat"):
        if hasattr(np, name):  # newer than NumPy 2.0
            FUNCTIONS[getattr(np, name)] = getattr(dot_products, name)


def _power(x: Any, y: Any) -> Any:
    """x ** y; integers and booleans promote as NumPy's ufunc does, which the operator's `square` would not."""
    return pointwise.power_operator(x, y) if is_inexact(spec_of(x).dtype) else pointwise.power(x, y)


def function_of(ufunc: Any) -> Callable[..., Any]:
    """Our function for a ufunc of NumPy or scipy.special."""
    found = FUNCTIONS.get(ufunc)
    if found is not None:
        return found
    name = ufunc.__name__
    special = imported_module("scipy.special")
    if special is not None and getattr(special, name, None) is ufunc:
        ours = load_module("protocol.special_ufuncs").FUNCTIONS.get(name)
        FUNCTIONS[ufunc] = _with_arrays(ours) if ours else package_function(f"special.{name}", name)
        return FUNCTIONS[ufunc]
    ours = load_module("protocol.special_ufuncs").PRIVATE.get(name)
    if ours is not None:
        return ours  # type: ignore[no-any-return]
    if set("".join(ufunc.types)) <= set("O->"):
        return functools.partial(load_module("protocol.creation").call_python_ufunc, ufunc)
    raise unsupported_error(name)


def _with_arrays(ours: Callable[..., Any]) -> Callable[..., Any]:
    """A function of formulas, which want arrays where SciPy takes lists too."""
    return lambda *inputs: ours(*map(as_array_or_value, inputs))


def call_with_options(
    ufunc: np.ufunc, method: str, inputs: tuple[Any, ...], options: dict[str, Any], out: Any, into: Callable[..., Any]
) -> Any:
    """A ufunc with keywords, or one of its methods."""
    name = ufunc.__name__
    if method == "at":
        return _at(ufunc, *inputs)
    if method != "__call__" and ufunc.nin != 2:
        raise unsupported_error(f"{name}.{method}")
    if method == "__call__":
        mask = options.pop("where", True)
        found = _call_ufunc(ufunc, inputs, options)
        if mask is not True:
            found = _apply_where(name, mask, found, out)
    else:
        found = _METHODS[method](ufunc, *inputs, **options)
    if out is None or (type(out) is tuple and all(o is None for o in out)):
        return found
    if type(found) is tuple:
        return tuple(f if o is None else into(o, f, name) for f, o in zip(found, out, strict=True))
    return into(out, found, name)


def _apply_where(name: str, mask: Any, found: Any, out: Any) -> Any:
    """Elsewhere the result keeps what `out` held; without `out` NumPy leaves it undefined."""
    if out is None or out[0] is None or type(found) is tuple:
        raise UnsupportedFunction(
            f"np.{name} with where= has no rule here without out=: the other elements would be undefined.\n"
            "  Use pb.where(mask, result, other)."
        )
    return pointwise.where(mask, found, out[0])


def _call_ufunc(ufunc: Any, inputs: tuple[Any, ...], options: dict[str, Any]) -> Any:
    function = function_of(ufunc)
    if ufunc.__name__ in _PRODUCTS:
        return _call_product(ufunc, function, inputs, options)
    signature = options.pop("signature", options.pop("sig", None))
    dtype, casting = options.pop("dtype", None), options.pop("casting", "same_kind")
    refuse(ufunc.__name__, **options)
    if dtype is None and signature is None and casting == "same_kind":
        return function(*inputs)
    return function(*_cast_inputs(ufunc, inputs, dtype, signature, casting))


def _cast_inputs(ufunc: Any, inputs: tuple[Any, ...], dtype: Any, signature: Any, casting: str) -> list[Any]:
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
    return [reshaping.astype(x, d) for x, d in zip(values, loop, strict=False)]


def _call_product(ufunc: Any, function: Callable[..., Any], inputs: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """The generalized ufuncs (matmul, vecdot and the like): `axis` moves the core axis of vectors."""
    dtype = options.pop("dtype", None)
    values = [as_value(x) if dtype is None else reshaping.astype(as_value(x), dtype) for x in inputs]
    axis, keepdims = options.pop("axis", -1), options.pop("keepdims", False)
    if ufunc.__name__ != "vecdot" and (axis != -1 or keepdims):
        refuse(ufunc.__name__, axis=axis, keepdims=keepdims)
    refuse(ufunc.__name__, **options)
    found = function(*values) if axis == -1 else function(*values, axis=axis)
    return reshaping.expand_dims(found, axis) if keepdims else found


_REDUCTIONS: dict[Any, Callable[..., Any]] = {
    np.add: reductions.sum, np.multiply: reductions.prod, np.maximum: reductions.max, np.minimum: reductions.min,
    np.logical_and: reductions.all, np.logical_or: reductions.any, np.logaddexp: reductions.logsumexp,
}  # fmt: skip


def _reduce(
    ufunc: Any, array: Any, axis: Any = 0, dtype: Any = None, keepdims: bool = False, initial: Any = NOT_GIVEN,
    where: Any = True,
) -> Any:  # fmt: skip
    """`ufunc.reduce` along axes, from the first element to the last."""
    x = as_value(array)
    if dtype is not None:
        x = reshaping.astype(x, dtype)
    if where is not True:
        neutral = initial if ufunc.identity is None and initial is not NOT_GIVEN else ufunc.identity
        if neutral is None:
            raise ArgumentError(f"np.{ufunc.__name__}.reduce: where= needs initial=, since there is no identity.")
        x = pointwise.where(where, x, neutral)
    axes = normalize_axes(axis, ndim(x), f"{ufunc.__name__}.reduce")
    found = (
        _REDUCTIONS[ufunc](x, axis=axes, keepdims=keepdims)
        if ufunc in _REDUCTIONS
        else _fold_in_order(ufunc, x, axes, keepdims)
    )
    found = scans.cast_if_asked(found, dtype)
    return found if initial in (NOT_GIVEN, None) else function_of(ufunc)(initial, found)


def _fold_in_order(ufunc: Any, x: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    if len(axes) != 1:
        raise ArgumentError(f"np.{ufunc.__name__}.reduce: not reorderable, so one axis is needed, got {axes}.")
    (axis,) = axes
    parts = _slices_along(x, axis)
    if not parts:
        raise ArgumentError(f"np.{ufunc.__name__}.reduce: an empty axis has no result.")
    total = parts[0]
    for part in parts[1:]:
        total = function_of(ufunc)(total, part)
    return reshaping.expand_dims(total, axis) if keepdims else total


def _slices_along(x: Any, axis: int) -> list[Any]:
    return [x[(slice(None),) * axis + (i,)] for i in range(shape(x)[axis])]


def _accumulate(ufunc: Any, array: Any, axis: int = 0, dtype: Any = None) -> Any:
    """`ufunc.accumulate`: all partial results of a reduction."""
    x = as_value(array)
    if dtype is not None:
        x = reshaping.astype(x, dtype)
    axis = normalize_axis(axis, ndim(x), f"{ufunc.__name__}.accumulate")
    if ufunc in (np.add, np.multiply):
        return (scans.cumulative_sum if ufunc is np.add else scans.cumulative_prod)(x, axis=axis, dtype=dtype)
    parts = _slices_along(x, axis)
    if not parts:
        return reshaping.pass_through(x)
    totals = [parts[0]]
    for part in parts[1:]:
        totals.append(function_of(ufunc)(totals[-1], part))
    return arrange.stack(totals, axis=axis)


def _reduceat(ufunc: Any, array: Any, indices: Any, axis: int = 0, dtype: Any = None) -> Any:
    """A reduction from each index to the next; where the next is not greater, the element alone."""
    x = as_value(array)
    axis = normalize_axis(axis, ndim(x), f"{ufunc.__name__}.reduceat")
    starts = [int(i) for i in as_bare_array(indices, "reduceat")]
    ends = [*starts[1:], shape(x)[axis]]
    pieces = []
    for start, end in zip(starts, ends, strict=True):
        piece = x[(slice(None),) * axis + (slice(start, end if end > start else start + 1),)]
        pieces.append(_reduce(ufunc, piece, axis=axis, dtype=dtype))
    return arrange.stack(pieces, axis=axis)


def _outer(ufunc: Any, x: Any, y: Any, **options: Any) -> Any:
    """Every element of x with every one of y."""
    x, y = as_value(x), as_value(y)
    return _call_ufunc(ufunc, (reshaping.reshape(x, shape(x) + (1,) * ndim(y)), y), options)


_METHODS: dict[str, Callable[..., Any]] = {
    "reduce": _reduce, "accumulate": _accumulate, "reduceat": _reduceat, "outer": _outer,
}  # fmt: skip


def _at(ufunc: Any, target: Any, index: Any, *values: Any) -> None:
    """`ufunc.at`: in place, one element after the other, so that repeated places count each time."""
    name = ufunc.__name__
    if isinstance(target, Buffer):
        target.rewrite(lambda x: _at(ufunc, x, index, *values))
        return
    if not is_variable(target):
        raise UnsupportedFunction(
            f"np.{name}.at has no rule here for a {type(target).__name__}, which cannot hold a derivative.\n"
            "  Make it a tensor first: target = pb.tensor(target)."
        )
    if ufunc in (np.add, np.subtract):
        change = values[0] if ufunc is np.add else pointwise.negative(values[0])
        rebind(target, indexing.add_at(target, index, change), f"np.{name}.at")
        return
    flat: Any = reshaping.reshape(target, (-1,))
    places = np.arange(target.size).reshape(target.shape)[_bare_index(index)]
    rows = [reshaping.reshape(reshaping.broadcast_to(as_value(v), places.shape), (-1,)) for v in values]
    for n, place in enumerate(places.ravel()):
        flat = indexing.set_at(flat, int(place), function_of(ufunc)(flat[int(place)], *(row[n] for row in rows)))
    rebind(target, reshaping.reshape(flat, target.shape), f"np.{name}.at")


def _bare_index(index: Any) -> Any:
    """An index whose arrays are bare."""
    if isinstance(index, tuple):
        return tuple(_bare_index(i) for i in index)
    return (
        index if isinstance(index, (int, slice)) or index is None or index is Ellipsis else as_bare_array(index, "at")
    )


_collect_ufuncs()
