"""Convolutions, windows and Fourier transforms, term by term as they are defined."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

Ints = tuple[int, ...]


def _window_places(window: Ints, stride: Ints, padding: Any, dilation: Ints, sizes: Ints, at: Ints) -> Iterator[Any]:
    """The places of one window that lie inside the grid: their number, the place in the window, and in the grid."""
    for number, place in enumerate(np.ndindex(window)):
        where = tuple(
            p * s + k * d - low for p, s, k, d, (low, _) in zip(at, stride, place, dilation, padding, strict=True)
        )
        if all(0 <= i < n for i, n in zip(where, sizes, strict=True)):
            yield number, place, where


def _count_windows(sizes: Ints, window: Ints, stride: Ints, padding: Any, dilation: Ints) -> Ints:
    return tuple(
        len(range(0, n + sum(p) - (k - 1) * d, s))
        for n, k, s, p, d in zip(sizes, window, stride, padding, dilation, strict=True)
    )


def _convolve(x: Any, w: Any, stride: Ints, padding: Any, dilation: Ints, groups: int) -> Any:
    spots = _count_windows(x.shape[2:], w.shape[2:], stride, padding, dilation)
    y = np.zeros((x.shape[0], w.shape[0], *spots), np.result_type(x, w))
    for i, j, p in _convolution_terms(x.shape, w.shape, y.shape, stride, padding, dilation, groups):
        y[p] += x[i] * w[j]
    return y


def _convolve_back(y: Any, w: Any, sizes: Ints, stride: Ints, padding: Any, dilation: Ints, groups: int) -> Any:
    x = np.zeros((y.shape[0], w.shape[1] * groups, *sizes), np.result_type(y, w))
    for i, j, p in _convolution_terms(x.shape, w.shape, y.shape, stride, padding, dilation, groups):
        x[i] += y[p] * w[j]
    return x


def _convolve_weight(x: Any, y: Any, sizes: Ints, stride: Ints, padding: Any, dilation: Ints, groups: int) -> Any:
    w = np.zeros((y.shape[1], x.shape[1] // groups, *sizes), np.result_type(x, y))
    for i, j, p in _convolution_terms(x.shape, w.shape, y.shape, stride, padding, dilation, groups):
        w[j] += x[i] * y[p]
    return w


def _convolution_terms(
    x: Ints, w: Ints, y: Ints, stride: Ints, padding: Any, dilation: Ints, groups: int
) -> Iterator[Any]:
    """The places in x, w and y of each term of the trilinear form that a convolution is."""
    for n, f, c in np.ndindex(x[0], *w[:2]):
        channel = f // (w[0] // groups) * w[1] + c
        for at in np.ndindex(y[2:]):
            for _, k, where in _window_places(w[2:], stride, padding, dilation, x[2:], at):
                yield (n, channel, *where), (f, c, *k), (n, f, *at)


def _fold_windows(fold: Callable[[list[Any]], Any]) -> Callable[..., Any]:
    """A function of the (number, value) pairs in each window."""

    def oracle(x: Any, window: Ints, stride: Ints, padding: Any, dilation: Ints) -> Any:
        sizes = x.shape[2:]
        shape = (*x.shape[:2], *_count_windows(sizes, window, stride, padding, dilation))
        found = []
        for i in np.ndindex(shape):
            seen = _window_places(window, stride, padding, dilation, sizes, i[2:])
            found.append(fold([(number, x[(*i[:2], *where)].item()) for number, _, where in seen]))
        return np.array(found).reshape(shape)

    return oracle


def _first_greatest(seen: list[Any]) -> int:
    """The number of the first NaN, else of the first of the greatest."""
    return int(next((n for n, v in seen if v != v), None) or max(seen, key=lambda pair: (pair[1], -pair[0]))[0])


def _take_in_windows(x: Any, index: Any, **how: Any) -> Any:
    out = np.zeros(index.shape, x.dtype)
    for i in np.ndindex(out.shape):
        seen = {number: where for number, _, where in _window_places(sizes=x.shape[2:], at=i[2:], **how)}
        out[i] = x[(*i[:2], *seen[index[i]])] if index[i] in seen else 0.0
    return out


def _put_in_windows(y: Any, index: Any, sizes: Ints, **how: Any) -> Any:
    out = np.zeros((*y.shape[:2], *sizes), y.dtype)
    for i in np.ndindex(y.shape):
        for number, _, where in _window_places(sizes=sizes, at=i[2:], **how):
            if index is None or index[i] == number:
                out[(*i[:2], *where)] += y[i]
    return out


def _windows(x: Any, axis: int, size: int, step: int, dilation: int) -> Any:
    count = len(range(0, x.shape[axis] - (size - 1) * dilation, step))
    out = np.zeros((*x.shape[:axis], count, *x.shape[axis + 1 :], size), x.dtype)
    for place in np.ndindex(out.shape):
        source = list(place[:-1])
        source[axis] = place[axis] * step + place[-1] * dilation
        out[place] = x[tuple(source)]
    return out


def _overlap_add(y: Any, axis: int, length: int, step: int, dilation: int) -> Any:
    out = np.zeros((*y.shape[:axis], length, *y.shape[axis + 1 : -1]), y.dtype)
    for place in np.ndindex(y.shape):
        to = list(place[:-1])
        to[axis] = place[axis] * step + place[-1] * dilation
        out[tuple(to)] += y[place]
    return out


def _polynomial_product(x: Any, y: Any) -> Any:
    out = np.zeros(len(x) + len(y) - 1, np.result_type(x, y))
    for i, j in np.ndindex(len(x), len(y)):
        out[i + j] += x[i] * y[j]
    return out


def _fourier(x: Any, axes: Ints, inverse: bool, norm: str) -> Any:
    """The transform by its definition, one matrix for each axis."""
    for axis in axes:
        n = x.shape[axis]
        turns = np.outer(np.arange(n), np.arange(n)) % n  # reduced mod n, against roundoff
        matrix = np.exp((2j if inverse else -2j) * np.pi / n * turns)
        scaled = norm == ("backward" if inverse else "forward")
        matrix *= 1 / n if scaled else n**-0.5 if norm == "ortho" else 1.0
        x = np.moveaxis(np.tensordot(matrix, x, axes=(1, axis)), 0, axis)
    return x


def _half_fourier(x: Any, axis: int, norm: str) -> Any:
    return np.take(_fourier(x, (axis,), False, norm), np.arange(x.shape[axis] // 2 + 1), axis=axis)


def _inverse_half(x: Any, n: int, axis: int, norm: str) -> Any:
    """The whole spectrum of a real signal from its half, transformed back and cropped."""
    half = np.moveaxis(x, axis, 0)
    whole = np.zeros((n, *half.shape[1:]), complex)
    count = min(len(half), n // 2 + 1)
    whole[:count] = half[:count]
    for k in range(1, (n + 1) // 2):
        whole[n - k] = np.conj(whole[k])
    whole[0] = whole[0].real
    if n % 2 == 0:
        whole[n // 2] = whole[n // 2].real
    return np.moveaxis(_fourier(whole, (0,), True, norm).real, 0, axis)


def _sinc(x: Any, order: int) -> Any:
    """Cauchy's formula: a derivative is a mean over a circle, on which sin(pi z) / (pi z) is regular."""
    turns = np.exp(2j * np.pi * (np.arange(64) + 0.5) / 64)
    z = np.pi * (np.asarray(x)[..., None] + turns)
    found = math.factorial(order) * np.mean(np.sin(z) / z * turns**-order, axis=-1)
    return found if np.iscomplexobj(x) else found.real


WINDOW_ORACLES: dict[str, Callable[..., Any]] = {
    "convolution": _convolve,
    "convolution_back": _convolve_back,
    "convolution_weight": _convolve_weight,
    "convolve": _polynomial_product,
    "window_place": _fold_windows(_first_greatest),
    "window_sum": _fold_windows(lambda seen: sum(v for _, v in seen)),
    "window_take": _take_in_windows,
    "window_put": _put_in_windows,
    "window_spread": lambda y, **how: _put_in_windows(y, None, **how),
    "windows": _windows,
    "overlap_add": _overlap_add,
    "fft": _fourier,
    "rfft": _half_fourier,
    "irfft": _inverse_half,
    "sinc": _sinc,
}
