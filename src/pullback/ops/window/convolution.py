"""Convolution and its two transposes: one trilinear form, and an op for its gradient by each argument.

With x (n, channels, *sizes), w (filters, channels / groups, *window) and y (n, filters, *counts) the form is

    <x, w, y> = sum over n, filter f, its group's channels c, windows p, places k of
                x[n, c, p stride + k dilation - padding] w[f, c, k] y[n, f, p],

where x outside its sizes is zero. Each op is the gradient of the form by one of them: `convolution(x, w)` by y,
`convolution_back(y, w)` by x, `convolution_weight(x, y)` by w. So the pulls of each are the other two, at any order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ...arrays.spec import Spec, make_spec
from ...errors import ShapeError
from .. import statics
from ..batching import move_batch_first
from ..dispatch import apply, shape
from ..families import common_device, conjugate_if_complex, contraction, result_dtype
from ..forms import Convolve
from ..native_values import native_value
from ..op import Op
from ..shape import reshaping
from .patches import Pairs, Sizes, inner_slices, pad_grid, patch_view, window_counts, window_slices, without_sizes

#: Bytes of patches laid out at a time: on a CPU what fits the second-level cache, on a GPU a share of memory.
_CPU_BLOCK_BYTES, _GPU_BLOCK_BYTES = 1 << 20, 1 << 28


def _image_blocks(xp: Any, n: int, bytes_each: int) -> Iterator[slice]:
    step = max(1, (_CPU_BLOCK_BYTES if xp is np else _GPU_BLOCK_BYTES) // max(bytes_each, 1))
    return (slice(i, min(i + step, n)) for i in range(0, n, step))


def _patch_columns(xp: Any, x: Any, window: Sizes, many: Sizes, how: dict[str, Any]) -> Any:
    """The patches of some images as matrices (n, groups, channels * places, windows)."""
    seen = patch_view(xp, pad_grid(xp, x, how["padding"]), window, how["stride"], how["dilation"], many)
    n, channels, groups = x.shape[0], x.shape[1], how["groups"]
    return seen.reshape((n, groups, channels // groups * math.prod(window), math.prod(many)))


def _convolution_value(xp: Any, x: Any, w: Any, **how: Any) -> Any:
    dtype, groups, window = np.result_type(x.dtype, w.dtype), how["groups"], w.shape[2:]
    many = window_counts("convolution", x.shape[2:], window, how["stride"], how["padding"], how["dilation"])
    out = xp.zeros((x.shape[0], groups, w.shape[0] // groups, math.prod(many)), dtype)
    if out.size and w.size:
        filters = w.astype(dtype, copy=False).reshape((groups, w.shape[0] // groups, -1))
        for block in _image_blocks(xp, x.shape[0], x.shape[1] * math.prod(window) * math.prod(many) * dtype.itemsize):
            columns = _patch_columns(xp, x[block].astype(dtype, copy=False), window, many, how)
            xp.matmul(filters, columns, out=out[block])
    return out.reshape((x.shape[0], w.shape[0], *many))


def _weight_value(xp: Any, x: Any, y: Any, sizes: Sizes, **how: Any) -> Any:
    """Patches laid out window by window, window elements and channels innermost: the order the product reads, and
    in which a patch is a few long pieces of memory.
    """
    dtype, groups, many = np.result_type(x.dtype, y.dtype), how["groups"], y.shape[2:]
    channels, filters, rank = x.shape[1] // groups, y.shape[1] // groups, len(sizes)
    places, rows = math.prod(sizes), math.prod(many)
    out = xp.zeros((groups, filters, places * channels), dtype)
    if channels == filters == 1:
        return _depthwise_weight_value(xp, x, y, sizes, dtype, how)
    if out.size and y.size:
        y = y.astype(dtype, copy=False).reshape((y.shape[0], groups, filters, rows))
        for block in _image_blocks(xp, x.shape[0], x.shape[1] * places * rows * dtype.itemsize):
            wide = pad_grid(xp, x[block].astype(dtype, copy=False), how["padding"])
            wide = wide.reshape((wide.shape[0] * groups, channels, *wide.shape[2:]))
            wide = xp.moveaxis(xp.ascontiguousarray(xp.moveaxis(wide, 1, -1)), -1, 1)
            seen = patch_view(xp, wide, sizes, how["stride"], how["dilation"], many)
            seen = seen.transpose((0, *range(2 + rank, 2 + 2 * rank), *range(2, 2 + rank), 1))
            seen = seen.reshape((-1, groups, rows, places * channels))
            out += xp.matmul(y[block], seen).sum(0)
    out = out.reshape((groups * filters, *sizes, channels))
    return xp.ascontiguousarray(xp.moveaxis(out, -1, 1))


def _depthwise_weight_value(xp: Any, x: Any, y: Any, sizes: Sizes, dtype: Any, how: dict[str, Any]) -> Any:
    """Depthwise convolutions are too small for matrix products."""
    out = xp.zeros((x.shape[1], 1, *sizes), dtype)
    for block in _image_blocks(xp, x.shape[0], x[:1].nbytes):
        wide = pad_grid(xp, x[block], how["padding"])
        for place, index in window_slices(sizes, how["stride"], how["dilation"], y.shape[2:]):
            terms = wide[index] * y[block]
            out[(slice(None), 0, *place)] += terms.sum((0, *range(2, terms.ndim)))
    return out


def _transposed_value(xp: Any, y: Any, w: Any, sizes: Sizes, **how: Any) -> Any:
    """Each y times each filter, added up at the window's elements."""
    dtype, groups, window, many = np.result_type(y.dtype, w.dtype), how["groups"], w.shape[2:], y.shape[2:]
    channels = w.shape[1] * groups
    wide = tuple(n + low + high for n, (low, high) in zip(sizes, how["padding"], strict=True))
    out = xp.zeros((y.shape[0], channels, *wide), dtype)
    if w.shape[1] == 1 and w.shape[0] == groups:
        w = w.reshape((groups, *window, *(1,) * len(many)))
        for block in _image_blocks(xp, y.shape[0], y[:1].nbytes):
            for place, index in window_slices(window, how["stride"], how["dilation"], many):
                out[block][index] += y[block] * w[(slice(None), *place)]
    elif out.size and y.size:
        filters = w.astype(dtype, copy=False).reshape((groups, w.shape[0] // groups, -1))
        filters = xp.ascontiguousarray(filters.swapaxes(-1, -2))
        y = y.astype(dtype, copy=False).reshape((y.shape[0], groups, w.shape[0] // groups, math.prod(many)))
        for block in _image_blocks(xp, y.shape[0], channels * math.prod(window) * math.prod(many) * dtype.itemsize):
            columns = xp.matmul(filters, y[block]).reshape((-1, channels, *window, *many))
            target = out[block]
            for place, index in window_slices(window, how["stride"], how["dilation"], many):
                target[index] += columns[(slice(None), slice(None), *place)]
    return out[inner_slices(sizes, how["padding"])]


def check_shapes(x: Sizes, w: Sizes, y: Sizes, stride: Sizes, padding: Pairs, dilation: Sizes, groups: int) -> None:
    """Check that three shapes fit together, one of them just computed."""
    if not len(x) == len(w) == len(y) or len(x) < 3:
        raise ShapeError(f"convolution: shapes {x}, {w} and {y} must have the same rank, three at least.")
    if x[1] != w[1] * groups or w[0] % groups or w[0] != y[1] or x[0] != y[0]:
        raise ShapeError(
            f"convolution: an input of shape {x} and a weight of shape {w} do not fit {groups} groups: the input's "
            f"channels must be {groups} times {w[1]}, and the {w[0]} filters a multiple of {groups}."
        )
    found = window_counts("convolution", x[2:], w[2:], stride, padding, dilation)
    if found != y[2:]:
        raise ShapeError(f"convolution: shapes {x} and {w} make windows {found}, but {y[2:]} were given.")


def _convolution_spec(x: Spec, w: Spec, **how: Any) -> Spec:
    many = window_counts("convolution", x.shape[2:], w.shape[2:], how["stride"], how["padding"], how["dilation"])
    out = (x.shape[0], w.shape[0], *many)
    check_shapes(x.shape, w.shape, out, **how)
    return _joint_spec(out, x, w)


def _transposed_spec(y: Spec, w: Spec, sizes: Sizes, **how: Any) -> Spec:
    out = (y.shape[0], w.shape[1] * how["groups"], *sizes)
    check_shapes(out, w.shape, y.shape, **how)
    return _joint_spec(out, y, w)


def _weight_spec(x: Spec, y: Spec, sizes: Sizes, **how: Any) -> Spec:
    if x.shape[1] % how["groups"]:
        raise ShapeError(f"convolution: {x.shape[1]} channels cannot be cut into {how['groups']} groups.")
    out = (y.shape[1], x.shape[1] // how["groups"], *sizes)
    check_shapes(x.shape, out, y.shape, **how)
    return _joint_spec(out, x, y)


def _joint_spec(out: Sizes, *specs: Spec) -> Spec:
    return make_spec(out, result_dtype(specs), common_device("convolution", specs))


def convolve_grid(x: Any, w: Any, stride: Sizes, padding: Pairs, dilation: Sizes, groups: int) -> Any:
    return apply(_convolution, x, w, stride=stride, padding=padding, dilation=dilation, groups=groups)


def convolve_grid_transposed(
    y: Any, w: Any, sizes: Sizes, stride: Sizes, padding: Pairs, dilation: Sizes, groups: int
) -> Any:
    return apply(_transposed_op, y, w, sizes=sizes, stride=stride, padding=padding, dilation=dilation, groups=groups)


def _run(op: Op, x: Any, y: Any, static: dict[str, Any], made: Spec | None = None) -> Any:
    """One of the three ops, with the geometry of another; `made` is what its sizes are of, where it is told them."""
    sizes = {} if made is None else {"sizes": made.shape[2:]}
    return apply(op, x, y, **without_sizes(static), **sizes)


def _merge_batch_axis(x: Any, axis: int | None, at: int, size: int, parts: int) -> Any:
    """The batch axis merged into axis `at`, after its first `parts` pieces (the groups, or 1)."""
    x = move_batch_first(x, axis, size)
    rest = shape(x)[1:]
    x = reshaping.reshape(x, (size, *rest[:at], parts, rest[at] // parts, *rest[at + 1 :]))
    x = reshaping.moveaxis(x, 0, at + 1)
    return reshaping.reshape(x, (*rest[:at], size * rest[at], *rest[at + 1 :]))


def _split_batch_axis(out: Any, at: int, size: int, parts: int) -> Any:
    """The batch axis split off axis `at`, in front."""
    sizes = shape(out)
    out = reshaping.reshape(out, (*sizes[:at], parts, size, sizes[at] // parts // size, *sizes[at + 1 :]))
    out = reshaping.moveaxis(out, at + 1, 0)
    return reshaping.reshape(out, (size, *sizes[:at], sizes[at] // size, *sizes[at + 1 :]))


#: Where a batch is merged: (axis, whether after the groups there) of an argument, then the same of the result.
_BatchRoute = tuple[tuple[int, bool], tuple[int, bool]]


def _make_batch_rule(
    first: _BatchRoute, second: _BatchRoute, both: tuple[int, int, int]
) -> Callable[..., tuple[Any, int]]:
    """A batch of one argument becomes more images, channels or filters; where both have one, each element of the
    batch is a group of its own, on the axes `both` of the arguments and of the result.
    """

    def batch(op: Op, size: int, args: Sequence[Any], axes: Any, static: dict[str, Any]) -> tuple[Any, int]:
        groups, given = static["groups"], list(args)
        if None not in axes:
            given = [_merge_batch_axis(x, a, at, size, 1) for x, a, at in zip(args, axes, both[:2], strict=True)]
            return _split_batch_axis(apply(op, *given, **{**static, "groups": groups * size}), both[2], size, 1), 0
        which = 0 if axes[1] is None else 1
        (at, grouped), (to, grouped_there) = (first, second)[which]
        given[which] = _merge_batch_axis(args[which], axes[which], at, size, groups if grouped else 1)
        return _split_batch_axis(apply(op, *given, **static), to, size, groups if grouped_there else 1), 0

    return batch


_GEOMETRIES: tuple[tuple[Sizes, Sizes, dict[str, Any]], ...] = (
    ((2, 2, 5), (3, 2, 3), {"stride": (1,), "padding": ((1, 1),), "dilation": (1,), "groups": 1}),
    ((1, 4, 7), (2, 2, 2), {"stride": (2,), "padding": ((0, 1),), "dilation": (3,), "groups": 2}),
    ((2, 2, 4, 3), (2, 2, 2, 2), {"stride": (1, 2), "padding": ((1, 0), (0, 0)), "dilation": (1, 1), "groups": 1}),
    ((1, 2, 3, 3), (4, 1, 2, 1), {"stride": (1, 1), "padding": ((0, 0), (0, 0)), "dilation": (2, 1), "groups": 2}),
    ((2, 3, 2, 2), (2, 3, 1, 1), {"stride": (1, 1), "padding": ((0, 0), (0, 0)), "dilation": (1, 1), "groups": 1}),
    ((1, 1, 2, 3, 2), (1, 1, 2, 2, 1), {
        "stride": (1, 1, 2), "padding": ((0, 1), (0, 0), (0, 0)), "dilation": (1, 1, 1), "groups": 1,
    }),
    ((0, 2, 3), (1, 2, 2), {"stride": (1,), "padding": ((0, 0),), "dilation": (1,), "groups": 1}),
)  # fmt: skip


def _samples(first: str, second: str, sizes_of: str = "") -> Callable[[Any], Any]:
    """Arrays for two of x, w and y in each geometry, with the sizes of the third where they cannot be inferred."""

    def samples(rng: Any) -> Any:
        found = []
        for x, w, how in _GEOMETRIES:
            many = window_counts("convolution", x[2:], w[2:], how["stride"], how["padding"], how["dilation"])
            shapes = {"x": x, "w": w, "y": (x[0], w[0], *many)}
            static = {"sizes": shapes[sizes_of][2:], **how} if sizes_of else how
            found.append(((rng.normal(size=shapes[first]), rng.normal(size=shapes[second])), static))
        return found

    return samples


# Sums of windows of x (n, channels, *sizes) with filters w (filters, channels / groups, *window).
_convolution: Op = contraction(
    "convolution",
    statics={**statics.WINDOW, "groups": statics.integer(1)},
    value=native_value(_convolution_value, "cpu.window.convolution", "convolve"),
    spec=_convolution_spec,
    pull={
        "x": lambda bar, w, x_spec, static: _run(_transposed_op, bar, conjugate_if_complex(w), static, x_spec),
        "w": lambda bar, x, w_spec, static: _run(_weight, conjugate_if_complex(x), bar, static, w_spec),
    },
    batch=_make_batch_rule(((0, False), (0, False)), ((0, True), (1, True)), (1, 0, 1)),
    samples=_samples("x", "w"),
    form=Convolve("y"),
)
# The transpose in the input: each y times the filters, added up where the windows lie.
_transposed_op: Op = contraction(
    "convolution_back",
    statics={**statics.GRID, **statics.WINDOW, "groups": statics.integer(1)},
    value=native_value(_transposed_value, "cpu.window.convolution", "convolve_back"),
    spec=_transposed_spec,
    pull={
        "y": lambda bar, w, static: _run(_convolution, bar, conjugate_if_complex(w), static),
        "w": lambda bar, y, w_spec, static: _run(_weight, bar, conjugate_if_complex(y), static, w_spec),
    },
    batch=_make_batch_rule(((0, False), (0, False)), ((1, False), (1, True)), (1, 0, 1)),
    samples=_samples("y", "w", "x"),
    form=Convolve("x"),
)
# The transpose in the filters: sums of windows of x times y.
_weight: Op = contraction(
    "convolution_weight",
    statics={**statics.GRID, **statics.WINDOW, "groups": statics.integer(1)},
    value=native_value(_weight_value, "cpu.window.convolution", "convolve_weight"),
    spec=_weight_spec,
    pull={
        "x": lambda bar, y, x_spec, static: _run(_transposed_op, conjugate_if_complex(y), bar, static, x_spec),
        "y": lambda bar, x, static: _run(_convolution, conjugate_if_complex(x), bar, static),
    },
    batch=_make_batch_rule(((1, True), (1, False)), ((1, True), (0, True)), (1, 1, 0)),
    samples=_samples("x", "y", "w"),
    form=Convolve("w"),
)
