"""Convolutions and poolings of random geometries: the arrays of each op, and its value by NumPy."""

import numpy as np

import pullback as pb
from pullback.errors import ShapeError
from pullback.ops import load_all_ops
from pullback.ops.window.patches import window_counts

OPS = load_all_ops()
SIZES = {1: 40, 2: 19, 3: 8}


def geometry(rng, most_window=4):
    """Sizes and a window that fits them, with stride, padding and dilation."""
    rank = int(rng.integers(1, 4))
    while True:
        several = lambda low, high: tuple(map(int, rng.integers(low, high, rank)))  # noqa: E731
        sizes, window = several(1, SIZES[rank]), several(1, most_window + 1)
        how = {"stride": several(1, 4), "padding": tuple(zip(several(0, 4), several(0, 4), strict=True))}
        how["dilation"] = several(1, 4)
        if rng.random() < 0.4:
            how["padding"] = ((0, 0),) * rank
        try:
            return sizes, window, window_counts("", sizes, window, **how), how
        except ShapeError:
            continue


def normal(rng, shape, dtype):
    x = rng.normal(size=shape).astype(dtype)
    if rng.random() < 0.15:
        return x[..., ::-1]
    return np.asfortranarray(x) if rng.random() < 0.15 else x


def convolution_calls(rng):
    """(op, arrays, statics) for the three ops of one geometry."""
    sizes, window, many, how = geometry(rng)
    groups = how["groups"] = int(rng.choice([1, 1, 2, 3, 8]))
    inside, filters, n = (int(rng.choice(some)) for some in ([1, 1, 2, 5], [1, 2, 4, 8, 9, 17, 33], [1, 2, 3, 6]))
    dtype = rng.choice(["float32", "float64"])
    x = normal(rng, (n, groups * inside, *sizes), dtype)
    w = normal(rng, (groups * filters, inside, *window), dtype)
    y = normal(rng, (n, groups * filters, *many), dtype)
    return [
        (OPS["convolution"], (x, w), how),
        (OPS["convolution_back"], (y, w), {"sizes": sizes, **how}),
        (OPS["convolution_weight"], (x, y), {"sizes": window, **how}),
    ]


def pooling_calls(rng):
    """(op, arrays, statics) for the five ops of one geometry; some arrays have NaN, infinities and equal elements."""
    sizes, window, many, how = geometry(rng)
    how = {"window": window, **how}
    n, channels, dtype = int(rng.integers(1, 4)), int(rng.integers(1, 5)), rng.choice(["float32", "float64"])
    x = normal(rng, (n, channels, *sizes), dtype)
    if rng.random() < 0.3:
        x = np.round(x)
        x[rng.random(x.shape) < 0.2] = np.nan
        x[rng.random(x.shape) < 0.3] = -np.inf
    y, index = normal(rng, (n, channels, *many), dtype), numpy_value(OPS["window_place"], (x,), how)
    back = {"sizes": sizes, **how}
    return [
        (OPS["window_place"], (x,), how),
        (OPS["window_take"], (x, index), how),
        (OPS["window_put"], (y, index), back),
        (OPS["window_sum"], (x,), how),
        (OPS["window_spread"], (y,), back),
    ]


def numpy_value(op, arrays, static):
    with pb.native(False):
        return op.value(np, *arrays, **static)


def assert_close(found, expected):
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    if found.dtype.kind != "f":
        np.testing.assert_array_equal(found, expected)
        return
    size = np.abs(np.where(np.isfinite(expected), expected, 0)).max(initial=1.0)
    tolerance = 1e-4 if found.dtype == np.float32 else 1e-11
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance * size)
