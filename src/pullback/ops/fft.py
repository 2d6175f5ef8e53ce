"""The discrete Fourier transforms of `numpy.fft`: any axes, lengths and norm.

Three ops: complex to complex, real to half a spectrum, and half a spectrum to real. Each is linear, and its
transpose is another of the three with the scale on the other side.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arrays.backends import device_context, namespace_on
from ..arrays.call_site import attributed_to_caller
from ..arrays.devices import normalize_device
from ..arrays.dtypes import as_dtype
from ..arrays.spec import Spec, is_half, make_spec, spec_of
from ..arrays.tensor import Tensor, wrap_new
from ..errors import ArgumentError, DtypeError, ShapeError
from ..public_names import explain_missing_names
from . import statics
from .axes import as_integer, axes_tuple, normalize_axes, normalize_axis
from .dispatch import apply, as_value, ndim, shape
from .elementwise import pointwise
from .families import is_complex, linear
from .forms import Fourier
from .index.normalize import namespace_for
from .op import Op
from .op_samples import normal_samples
from .shape import arrange, reshaping
from .signatures import of_array

__all__ = [
    "fft", "fft2", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifft2", "ifftn", "ifftshift", "ihfft", "irfft",
    "irfft2", "irfftn", "rfft", "rfft2", "rfftfreq", "rfftn",
]  # fmt: skip
explain_missing_names(__name__, "fft")

#: Where the factor 1/n goes; the transpose of a transform has it on the other side.
_OPPOSITE = {"backward": "forward", "ortho": "ortho", "forward": "backward"}


def _complex_dtype(dtype: Any) -> Any:
    """The dtype of a spectrum: single precision stays single."""
    return np.dtype(np.complex64 if is_half(dtype) or dtype in (np.float32, np.complex64) else np.complex128)


def _real_dtype(dtype: Any) -> Any:
    return np.empty(0, _complex_dtype(dtype)).real.dtype


def _check_points(x: Spec, axes: tuple[int, ...], what: str) -> None:
    for axis in axes:
        if not x.shape[axis]:
            raise ShapeError(f"{what}: shape {x.shape} has no points along axis {axis}.")


def _fft_spec(x: Spec, axes: tuple[int, ...], inverse: bool, norm: str) -> Spec:
    _check_points(x, axes, "fft")
    return make_spec(x.shape, _complex_dtype(x.dtype), x.device)


def _fft_value(xp: Any, x: Any, axes: tuple[int, ...], inverse: bool, norm: str) -> Any:
    out = (xp.fft.ifftn if inverse else xp.fft.fftn)(x, axes=axes, norm=norm)
    return out.astype(_complex_dtype(x.dtype), copy=False)


# The matrix of the transform is symmetric, so its conjugate transpose is its conjugate: the unscaled inverse transform.
_fft: Op = linear(
    "fft",
    rearranges=False,
    sums=True,
    form=Fourier("fft"),
    statics={"axes": statics.axes, "inverse": statics.flag, "norm": statics.choice(*_OPPOSITE)},
    value=_fft_value,
    spec=_fft_spec,
    transpose=lambda bar, axes, inverse, norm: apply(_fft, bar, axes=axes, inverse=not inverse, norm=_OPPOSITE[norm]),
    samples=normal_samples(
        [(4,), (2, 3), (3, 2, 2), (0, 2)],
        axes=[(0,), (0, 1), (1,), (1,)],
        inverse=[False, True, True, False],
        norm=["backward", "forward", "ortho", "backward"],
    ),
    autocast="high",
)


def _rfft_spec(x: Spec, axis: int, norm: str) -> Spec:
    if x.dtype.kind == "c":
        raise DtypeError(f"rfft: wants real numbers, got {x.dtype}.\n  Use fft, or take the real part first.")
    _check_points(x, (axis,), "rfft")
    half = (*x.shape[:axis], x.shape[axis] // 2 + 1, *x.shape[axis + 1 :])
    return make_spec(half, _complex_dtype(x.dtype), x.device)


def _weight_paired_coefficients(x: Any, axis: int, n: int, factor: float) -> Any:
    """`factor` times the coefficients that represent both k and n - k: all but the first and the middle one."""
    kind = spec_of(x)
    size = n // 2 + 1
    weights = np.full(size, factor)
    weights[0] = 1.0
    if n % 2 == 0:
        weights[-1] = 1.0
    column = weights.astype(_real_dtype(kind.dtype)).reshape((size,) + (1,) * (kind.ndim - 1 - axis))
    return pointwise.multiply(x, namespace_for(x).asarray(column))


# y_k = sum_j x_j w^(jk) for k <= n/2, so x_bar_j = Re sum_k conj(w)^(jk) y_bar_k over those k alone; `irfft` adds the
# mirror image of each k that has one, hence the halves.
def _rfft_transpose(bar: Any, x_spec: Spec, axis: int, norm: str) -> Any:
    n = x_spec.shape[axis]
    return apply(_irfft, _weight_paired_coefficients(bar, axis, n, 0.5), n=n, axis=axis, norm=_OPPOSITE[norm])


def _irfft_transpose(bar: Any, n: int, axis: int, norm: str) -> Any:
    return _weight_paired_coefficients(apply(_rfft, bar, axis=axis, norm=_OPPOSITE[norm]), axis, n, 2.0)


_rfft: Op = linear(
    "rfft",
    rearranges=False,
    sums=True,
    form=Fourier("rfft"),
    statics={"axis": statics.axis, "norm": statics.choice(*_OPPOSITE)},
    value=lambda xp, x, axis, norm: xp.fft.rfft(x, axis=axis, norm=norm).astype(_complex_dtype(x.dtype), copy=False),
    spec=_rfft_spec,
    transpose=_rfft_transpose,
    samples=normal_samples(
        [(4,), (2, 5), (3, 2), (1,), (0, 3)],
        axis=[0, 1, 0, 0, 1],
        norm=["backward", "ortho", "forward", "backward", "backward"],
    ),
    autocast="high",
)


def _irfft_spec(x: Spec, n: int, axis: int, norm: str) -> Spec:
    if x.shape[axis] != n // 2 + 1:
        raise ShapeError(f"irfft: {n} points come from {n // 2 + 1} coefficients, got {x.shape[axis]}.")
    return make_spec((*x.shape[:axis], n, *x.shape[axis + 1 :]), _real_dtype(x.dtype), x.device)


def _irfft_value(xp: Any, x: Any, n: int, axis: int, norm: str) -> Any:
    wide = x.astype(_complex_dtype(x.dtype), copy=False)
    return xp.fft.irfft(wide, n, axis=axis, norm=norm)


_irfft: Op = linear(
    "irfft",
    rearranges=False,
    sums=True,
    form=Fourier("irfft"),
    statics={"n": statics.integer(1), "axis": statics.axis, "norm": statics.choice(*_OPPOSITE)},
    value=_irfft_value,
    spec=_irfft_spec,
    transpose=_irfft_transpose,
    samples=normal_samples(
        [(3,), (2, 3), (2, 2), (1,)],
        n=[4, 5, 2, 1],
        axis=[0, 1, 0, 0],
        norm=["backward", "ortho", "forward", "backward"],
    ),
    autocast="high",
)


def _check_norm(norm: str | None, what: str) -> str:
    if norm is not None and norm not in _OPPOSITE:
        raise ArgumentError(f"{what}: norm must be 'backward', 'ortho' or 'forward', got {norm!r}.")
    return norm or "backward"


def _check_length(n: Any, what: str) -> int:
    count = as_integer(n, f"{what}: n")
    if count < 1:
        raise ArgumentError(f"{what}: wants at least one point, got n = {count}.")
    return count


def _fit_length(x: Any, axis: int, size: int) -> Any:
    """Truncated to a length along an axis, or padded with zeros."""
    have = shape(x)[axis]
    if have > size:
        return x[(slice(None),) * axis + (slice(size),)]
    return arrange.pad(x, [(0, size - have) if i == axis else (0, 0) for i in range(ndim(x))]) if have < size else x


def _axes_and_lengths(x: Any, s: Any, axes: Any, what: str) -> tuple[list[int], list[int | None]]:
    """The axes to transform, in order, and the length of each, None for the length it has."""
    rank = ndim(x)
    if axes is None:
        chosen = list(range(rank)) if s is None else list(range(rank - len(tuple(s)), rank))
    else:
        chosen = list(axes_tuple(axes, rank, what))
    if any(a < 0 for a in chosen):
        raise ShapeError(f"{what}: s {s} has more lengths than the {rank} axes.")
    if s is None:
        return chosen, [None] * len(chosen)
    if len(tuple(s)) != len(chosen):
        raise ShapeError(f"{what}: s {tuple(s)} and axes {axes} differ in number.")
    pairs = zip(s, chosen, strict=True)
    return chosen, [_check_length(shape(x)[a] if as_integer(n, f"{what}: s") == -1 else n, what) for n, a in pairs]


def _transform(x: Any, axes: list[int], sizes: list[int | None], norm: str, inverse: bool) -> Any:
    """Complex transforms over axes; an axis named twice is transformed twice."""
    for axis, size in zip(axes, sizes, strict=True):
        if size is not None:
            x = _fit_length(x, axis, size)
    if len(set(axes)) == len(axes) and axes:
        return apply(_fft, x, axes=tuple(axes), inverse=inverse, norm=norm)
    for axis in reversed(axes):
        x = apply(_fft, x, axes=(axis,), inverse=inverse, norm=norm)
    return x if is_complex(x) else reshaping.astype(x, _complex_dtype(spec_of(x).dtype))


@of_array
@attributed_to_caller
def fft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """The discrete Fourier transform along an axis, of `n` points: truncated, or padded with zeros.

    >>> import pullback as pb
    >>> pb.fft.fft([1.0, 0.0, 0.0])
    array([1.+0.j, 1.+0.j, 1.+0.j])
    """
    x = as_value(a)
    return _transform(x, *_single_axis(x, n, axis, "fft"), _check_norm(norm, "fft"), False)


@of_array
@attributed_to_caller
def ifft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """The inverse of `fft`.

    >>> import pullback as pb
    >>> pb.fft.ifft([3.0, 0.0, 0.0])
    array([1.+0.j, 1.+0.j, 1.+0.j])
    """
    x = as_value(a)
    return _transform(x, *_single_axis(x, n, axis, "ifft"), _check_norm(norm, "ifft"), True)


def _single_axis(x: Any, n: Any, axis: Any, what: str) -> tuple[list[int], list[int | None]]:
    return [normalize_axis(axis, ndim(x), what)], [None if n is None else _check_length(n, what)]


@of_array
@attributed_to_caller
def fftn(a: Any, s: Any = None, axes: Any = None, norm: str | None = None) -> Any:
    """The transform over several axes, all of them by default.

    >>> import numpy as np, pullback as pb
    >>> pb.fft.fftn(np.ones((2, 2))).real
    array([[4., 0.],
           [0., 0.]])
    """
    x = as_value(a)
    return _transform(x, *_axes_and_lengths(x, s, axes, "fftn"), _check_norm(norm, "fftn"), False)


@of_array
@attributed_to_caller
def ifftn(a: Any, s: Any = None, axes: Any = None, norm: str | None = None) -> Any:
    """The inverse of `fftn`.

    >>> import numpy as np, pullback as pb
    >>> pb.fft.ifftn(np.ones((2, 2))).real
    array([[1., 0.],
           [0., 0.]])
    """
    x = as_value(a)
    return _transform(x, *_axes_and_lengths(x, s, axes, "ifftn"), _check_norm(norm, "ifftn"), True)


@of_array
@attributed_to_caller
def fft2(a: Any, s: Any = None, axes: Any = (-2, -1), norm: str | None = None) -> Any:
    """The transform over two axes.

    >>> import numpy as np, pullback as pb
    >>> pb.fft.fft2(np.ones((3, 2, 2))).shape
    (3, 2, 2)
    """
    return fftn(a, s, axes, norm)


@of_array
@attributed_to_caller
def ifft2(a: Any, s: Any = None, axes: Any = (-2, -1), norm: str | None = None) -> Any:
    """The inverse of `fft2`.

    >>> import numpy as np, pullback as pb
    >>> pb.fft.ifft2(np.ones((3, 2, 2))).shape
    (3, 2, 2)
    """
    return ifftn(a, s, axes, norm)


@of_array
@attributed_to_caller
def rfft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """The spectrum of a real signal, up to the middle: the rest is its mirror image.

    >>> import pullback as pb
    >>> pb.fft.rfft([1.0, 0.0, 0.0])
    array([1.+0.j, 1.+0.j])
    """
    return rfftn(a, None if n is None else (_check_length(n, "rfft"),), (axis,), norm)


@of_array
@attributed_to_caller
def irfft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """The inverse of `rfft`: a real signal of `n` points, even by default.

    >>> import pullback as pb
    >>> pb.fft.irfft([4.0, 0.0, 0.0])
    array([1., 1., 1., 1.])
    """
    return irfftn(a, None if n is None else (_check_length(n, "irfft"),), (axis,), norm)


@of_array
@attributed_to_caller
def rfftn(a: Any, s: Any = None, axes: Any = None, norm: str | None = None) -> Any:
    """The transform of real numbers over several axes, the last of which is halved.

    >>> import numpy as np, pullback as pb
    >>> pb.fft.rfftn(np.ones((2, 4))).shape
    (2, 3)
    """
    x = as_value(a)
    chosen, sizes = _axes_and_lengths(x, s, axes, "rfftn")
    norm = _check_norm(norm, "rfftn")
    if not chosen:
        raise ArgumentError("rfftn: wants at least one axis.")
    x = x if sizes[-1] is None else _fit_length(x, chosen[-1], sizes[-1])
    half = apply(_rfft, x, axis=chosen[-1], norm=norm)
    return _transform(half, chosen[:-1], sizes[:-1], norm, False) if len(chosen) > 1 else half


@of_array
@attributed_to_caller
def irfftn(a: Any, s: Any = None, axes: Any = None, norm: str | None = None) -> Any:
    """The inverse of `rfftn`.

    >>> import numpy as np, pullback as pb
    >>> pb.fft.irfftn(np.ones((2, 3))).shape
    (2, 4)
    """
    x = as_value(a)
    chosen, sizes = _axes_and_lengths(x, s, axes, "irfftn")
    norm = _check_norm(norm, "irfftn")
    if not chosen:
        raise ArgumentError("irfftn: wants at least one axis.")
    last = chosen[-1]
    n = 2 * (shape(x)[last] - 1) if sizes[-1] is None else sizes[-1]
    _check_length(n, "irfftn")
    x = _transform(x, chosen[:-1], sizes[:-1], norm, True) if len(chosen) > 1 else x
    return apply(_irfft, _fit_length(x, last, n // 2 + 1), n=n, axis=last, norm=norm)


@of_array
@attributed_to_caller
def rfft2(a: Any, s: Any = None, axes: Any = (-2, -1), norm: str | None = None) -> Any:
    """The transform of real numbers over two axes.

    >>> import numpy as np, pullback as pb
    >>> pb.fft.rfft2(np.ones((2, 4))).shape
    (2, 3)
    """
    return rfftn(a, s, axes, norm)


@of_array
@attributed_to_caller
def irfft2(a: Any, s: Any = None, axes: Any = (-2, -1), norm: str | None = None) -> Any:
    """The inverse of `rfft2`.

    >>> import numpy as np, pullback as pb
    >>> pb.fft.irfft2(np.ones((2, 3))).shape
    (2, 4)
    """
    return irfftn(a, s, axes, norm)


@of_array
@attributed_to_caller
def hfft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """The real spectrum of a signal with Hermitian symmetry, of which half is given.

    >>> import pullback as pb
    >>> pb.fft.hfft([1.0, 1.0])
    array([2., 0.])
    """
    return irfft(pointwise.conj(as_value(a)), n, axis, _OPPOSITE[_check_norm(norm, "hfft")])


@of_array
@attributed_to_caller
def ihfft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """The inverse of `hfft`.

    >>> import pullback as pb
    >>> pb.fft.ihfft([2.0, 0.0]).real
    array([1., 1.])
    """
    return pointwise.conj(rfft(a, n, axis, _OPPOSITE[_check_norm(norm, "ihfft")]))


@attributed_to_caller
def fftfreq(n: int, d: float = 1.0, *, dtype: Any = None, device: Any = None) -> Tensor:
    """The frequency of each coefficient of `fft`, for points at distance `d`.

    >>> import pullback as pb
    >>> pb.fft.fftfreq(4)
    tensor([ 0.  ,  0.25, -0.5 , -0.25], dtype=float64)
    """
    return _frequency_tensor(np.fft.fftfreq(_check_length(n, "fftfreq"), d), dtype, device, "fftfreq")


@attributed_to_caller
def rfftfreq(n: int, d: float = 1.0, *, dtype: Any = None, device: Any = None) -> Tensor:
    """The frequency of each coefficient of `rfft`, for points at distance `d`.

    >>> import pullback as pb
    >>> pb.fft.rfftfreq(4)
    tensor([0.  , 0.25, 0.5 ], dtype=float64)
    """
    return _frequency_tensor(np.fft.rfftfreq(_check_length(n, "rfftfreq"), d), dtype, device, "rfftfreq")


def _frequency_tensor(values: Any, dtype: Any, device: Any, what: str) -> Tensor:
    place = normalize_device(device, what)
    with device_context(place):
        array = namespace_on(place).asarray(values, None if dtype is None else as_dtype(dtype))
    return wrap_new(array)


def _roll_by_half(x: Any, axes: Any, sign: int, what: str) -> Any:
    x = as_value(x)
    chosen = normalize_axes(axes, ndim(x), what)
    shifts = tuple(sign * (shape(x)[a] // 2) for a in chosen)
    return arrange.roll(x, shifts, axis=chosen) if chosen else x


@of_array
@attributed_to_caller
def fftshift(x: Any, axes: Any = None) -> Any:
    """The coefficient of frequency zero moved to the middle.

    >>> import numpy as np, pullback as pb
    >>> pb.fft.fftshift(np.arange(5))
    array([3, 4, 0, 1, 2])
    """
    return _roll_by_half(x, axes, 1, "fftshift")


@of_array
@attributed_to_caller
def ifftshift(x: Any, axes: Any = None) -> Any:
    """The inverse of `fftshift`.

    >>> import numpy as np, pullback as pb
    >>> pb.fft.ifftshift(np.array([3, 4, 0, 1, 2]))
    array([0, 1, 2, 3, 4])
    """
    return _roll_by_half(x, axes, -1, "ifftshift")
