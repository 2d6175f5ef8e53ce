"""NumPy's functions that join, reshape and factor arrays with NumPy's signatures, where ours differ."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arrays.backends import is_array
from ...arrays.spec import spec_of
from ...arrays.value import Value
from ...arrays.views import as_view
from ...errors import ArgumentError
from ..concrete import as_bare_array, is_concrete
from ..dispatch import as_value, ndim, shape
from ..elementwise import pointwise
from ..linalg.eigen import eigh as hermitian_eigh
from ..linalg.eigen import eigvalsh as hermitian_eigvalsh
from ..linalg.eigen import symmetrize_from
from ..linalg.factorizations import cholesky as factor
from ..reduce import reductions
from ..shape import arrange, reshaping
from .unsupported import package_function, refuse


def copy(a: Any, order: str = "K", subok: bool = False) -> Any:
    refuse("copy", order=order)
    return reshaping.writable_copy(as_value(a), order)


def _cast_parts(parts: Any, dtype: Any, casting: str) -> list[Any]:
    """The parts in the dtype that was asked for, if NumPy would cast them so."""
    xs = [as_value(x) for x in parts]
    if dtype is None:
        return xs
    for x in xs:
        if not np.can_cast(spec_of(x).dtype, dtype, casting=casting):  # type: ignore[arg-type]
            raise ArgumentError(f"concatenate: {spec_of(x).dtype} cannot be cast to {dtype} with casting={casting!r}.")
    return [reshaping.astype(x, dtype) for x in xs]


def concatenate(arrays: Any, /, axis: Any = 0, out: Any = None, *, dtype: Any = None,
                casting: str = "same_kind") -> Any:  # fmt: skip
    return arrange.concat(_cast_parts(arrays, dtype, casting), axis=axis)


def stack(arrays: Any, axis: int = 0, out: Any = None, *, dtype: Any = None, casting: str = "same_kind") -> Any:
    return arrange.stack(_cast_parts(arrays, dtype, casting), axis=axis)


def vstack(tup: Any, *, dtype: Any = None, casting: str = "same_kind") -> Any:
    return package_function("vstack", "vstack")(_cast_parts(tup, dtype, casting))


def hstack(tup: Any, *, dtype: Any = None, casting: str = "same_kind") -> Any:
    return package_function("hstack", "hstack")(_cast_parts(tup, dtype, casting))


def dot(a: Any, b: Any, out: Any = None) -> Any:
    return package_function("dot", "dot")(_as_strong_array(a), _as_strong_array(b))


def _as_strong_array(x: Any) -> Any:
    """A Python number as the array NumPy makes of it here, which is not weak in promotion."""
    x = as_value(x)
    return np.asarray(x) if spec_of(x).weak else x


def einsum(*operands: Any, out: Any = None, optimize: Any = False, **kwargs: Any) -> Any:
    dtype = kwargs.pop("dtype", None)
    refuse("einsum", **{n: v for n, v in kwargs.items() if (n, v) != ("casting", "safe")})
    if dtype is not None:
        at = slice(1, None) if isinstance(operands[0], str) else slice(0, len(operands) // 2 * 2, 2)
        converted = list(operands)
        converted[at] = [reshaping.astype(x, dtype) for x in operands[at]]
        operands = tuple(converted)
    options = {} if optimize is False else {"optimize": optimize}
    found = package_function("einsum", "einsum")(*operands, **options)
    arrays = [n for n, x in enumerate(operands) if isinstance(x, Value) or is_array(x)]
    if dtype is None and len(arrays) == 1 and _shows_memory(np.einsum, operands, arrays[0]):
        before, after = operands[: arrays[0]], operands[arrays[0] + 1 :]
        return as_view(
            found, operands[arrays[0]], lambda x: (einsum if isinstance(x, Value) else np.einsum)(*before, x, *after)
        )
    return found


def _shows_memory(function: Any, args: Any, place: int) -> bool:
    """Whether a function of NumPy's returns a view of the argument at a place, the only array among them."""
    source = np.empty(spec_of(args[place]).shape, np.int8)
    return np.may_share_memory(source, function(*args[:place], source, *args[place + 1 :]))


def broadcast_arrays(*args: Any, subok: bool = False) -> tuple[Any, ...]:
    sizes = np.broadcast_shapes(*(spec_of(as_value(x)).shape for x in args))
    return tuple(np.broadcast_to(x, sizes) for x in args)


def diag(v: Any, k: int = 0) -> Any:
    found = package_function("diag", "diag")(v, k)
    return (
        as_view(found, v, lambda v: diag(v, k) if isinstance(v, Value) else np.diagonal(v, k))
        if ndim(as_value(v)) == 2
        else found
    )


def pad(array: Any, pad_width: Any, mode: Any = "constant", **kwargs: Any) -> Any:
    x = as_value(array)
    if mode in _STATISTICS:
        length = kwargs.pop("stat_length", None)
        refuse("pad", **kwargs)
        return _pad_with_statistics(x, arrange.pad_pairs(pad_width, ndim(x), "pad_width"), _STATISTICS[mode], length)
    if mode not in ("constant", "edge", "reflect", "symmetric", "wrap"):
        refuse("pad", mode=mode)
    if kwargs.get("reflect_type", "even") != "even":
        refuse("pad", reflect_type=kwargs["reflect_type"])
    refuse("pad", **{n: v for n, v in kwargs.items() if n not in ("constant_values", "reflect_type")})
    return arrange.pad(x, pad_width, mode, **kwargs)


def _constant_block(value: Any, x: Any, axis: int, size: int) -> Any:
    wanted = tuple(size if i == axis else n for i, n in enumerate(shape(x)))
    return reshaping.broadcast_to(reshaping.astype(value, spec_of(x).dtype), wanted)


_STATISTICS: dict[Any, Any] = {"maximum": reductions.max, "minimum": reductions.min, "mean": reductions.mean}


def _pad_with_statistics(x: Any, pairs: list[tuple[int, int]], statistic: Any, length: Any) -> Any:
    lengths = None if length is None else arrange.pad_pairs(length, ndim(x), "stat_length")
    for axis, (before, after) in enumerate(pairs):
        size = shape(x)[axis]
        first, last = (size, size) if lengths is None else (min(n, size) for n in lengths[axis])
        front = (slice(None),) * axis
        head = statistic(x[(*front, slice(0, first))], axis=axis, keepdims=True)
        tail = statistic(x[(*front, slice(size - last, None))], axis=axis, keepdims=True)
        x = arrange.concat(
            [_constant_block(head, x, axis, before), x, _constant_block(tail, x, axis, after)], axis=axis
        )
    return x


def eigvals(a: Any) -> Any:
    found = package_function("linalg.eigvals", "linalg.eigvals")(a)
    return pointwise.real(found) if _are_real(a, found) else found


def eig(a: Any) -> Any:
    found = package_function("linalg.eig", "linalg.eig")(a)
    return type(found)(*map(pointwise.real, found)) if _are_real(a, found[0]) else found


def _are_real(a: Any, values: Any) -> bool:
    """Whether NumPy's eigenvalues are real numbers: of a real matrix, none with an imaginary part. Where they are not
    known yet they are complex.
    """
    if spec_of(as_value(a)).dtype.kind == "c" or not is_concrete(values):
        return False
    return not np.any(as_bare_array(pointwise.imag(values), "linalg.eigvals"))


def eigh(a: Any, UPLO: str = "L") -> Any:
    return hermitian_eigh(a, UPLO=UPLO)


def eigvalsh(a: Any, UPLO: str = "L") -> Any:
    return hermitian_eigvalsh(a, UPLO=UPLO)


def cholesky(a: Any, /, *, upper: bool = False) -> Any:
    return factor(symmetrize_from(a, "U" if upper else "L", "cholesky"), upper=upper)
