"""The forms that programs are composed of: each op as two lines of text, one for the package and one for plain NumPy.

In a text `$0` and `$1` are the operands, `M` is `pb` or `np`, `R` the module of plain NumPy references.
"""

import itertools
import math
import re
from dataclasses import dataclass

import numpy as np

__all__ = ["FORMS", "Move", "moves"]

LARGEST = 400


@dataclass(frozen=True)
class Move:
    """One op with its static parameters. `brief`: it takes part in exhaustive triples. `exact`: whole numbers stay
    whole numbers, so that compiled and eager results are equal whatever the order of additions."""

    form: str
    code: str
    plain: str
    arity: int
    brief: bool = False
    exact: bool = False


def _move(code, plain=None, *, brief=False, exact=False, form=""):
    plain = code if plain is None else plain
    arity = 1 + max(map(int, re.findall(r"\$(\d)", code)))
    return Move(
        form,
        re.sub(r"\bM\.", "pb.", code),
        re.sub(r"\bM\.", "np.", re.sub(r"\bR\.", "ref.", plain)),
        arity,
        brief,
        exact,
    )


def _axes(x):
    return range(x.ndim)


def _axis_sets(x):
    """Every axis, every pair of axes, all axes."""
    sets = [(a,) for a in _axes(x)] + [p for p in itertools.combinations(_axes(x), 2) if x.ndim > 2]
    return [s[0] if len(s) == 1 else s for s in sets] + [None]


def _as3(x):
    """How a value of any rank is written as (n, channels, width)."""
    return {1: "$0[None, None]", 2: "$0[None]", 3: "$0"}.get(x.ndim)


def is_float(x):
    return x.dtype.kind == "f"


def pointwise(x):
    if x.dtype.kind == "b":
        yield _move("M.logical_not($0)", brief=True, exact=True)
        yield _move("pb.astype($0, pb.float64)", "$0.astype(np.float64)", exact=True)
        return
    if x.dtype.kind == "i":
        yield _move("$0 * 3 - 1", brief=True, exact=True)
        yield _move("pb.astype($0, pb.float64)", "$0.astype(np.float64)", exact=True)
        yield _move("$0 > 1", exact=True)
        return
    yield _move("M.tanh($0)", brief=True)
    yield _move("$0 * 0.5 - 1.0")
    yield _move("M.sin($0)")
    yield _move("M.exp(-($0 * $0))")
    yield _move("M.abs($0)", exact=True)
    yield _move("M.maximum($0, 0.0)", exact=True)
    yield _move("pb.relu($0)", "np.maximum($0, 0.0)", brief=True, exact=True)
    yield _move("M.clip($0, -1.0, 2.0)", exact=True)
    yield _move("M.sqrt(M.abs($0) + 0.5)")
    yield _move("pb.sigmoid($0)", "ref.sigmoid($0)")
    yield _move("1.0 - $0", exact=True)
    yield _move("$0 > 0.5", exact=True)
    yield _move("pb.astype($0 > 0.5, $0.dtype) * $0", "($0 > 0.5).astype($0.dtype) * $0", exact=True)
    yield _move("pb.astype($0, pb.float32)", "$0.astype(np.float32)", exact=True)
    yield _move("pb.astype($0, pb.float64)", "$0.astype(np.float64)", exact=True)


def meeting(x, y):
    """Two values pointwise, one perhaps broadcast."""
    if not fits(x.shape, y.shape):
        return
    if "b" in (x.dtype.kind, y.dtype.kind):
        if x.dtype.kind == y.dtype.kind == "b":
            yield _move("M.logical_or($0, $1)", exact=True)
        elif x.dtype.kind == "b":
            yield _move("M.where($0, $1, 0)", exact=True)
        else:
            yield _move("$0 * $1", exact=True)
        return
    yield _move("$0 + $1", brief=True, exact=True)
    yield _move("$0 * $1", brief=True, exact=True)
    yield _move("$0 - $1", exact=True)
    yield _move("M.maximum($0, $1)", exact=True)
    yield _move("$0 > $1", exact=True)
    if is_float(x) and is_float(y):
        yield _move("$0 / (M.abs($1) + 1.5)")
        yield _move("M.hypot($0, M.abs($1) + 0.5)")


def fold(x):
    if not x.size or not x.ndim:
        return
    for axis, keep in itertools.product(_axis_sets(x), (False, True)):
        how = f"$0, axis={axis}, keepdims={keep}"
        if x.dtype.kind == "b":
            yield _move(f"M.any({how})", brief=True, exact=True)
            yield _move(f"M.all({how})", exact=True)
            continue
        yield _move(f"M.sum({how})", brief=True, exact=True)
        yield _move(f"M.max({how})", exact=True)
        if is_float(x):
            yield _move(f"M.mean({how})")
            yield _move(f"M.min({how})", exact=True)
            yield _move(f"M.var({how})")
            yield _move(f"M.prod({how})" if axis is None or isinstance(axis, int) else f"M.sum({how})", exact=True)
            yield _move(f"M.any($0 > 0.5, axis={axis}, keepdims={keep})", exact=True)


def spread(x):
    if x.size > LARGEST // 4:
        return
    yield _move("M.broadcast_to($0, (2, *$0.shape))", exact=True)
    yield _move(
        "M.expand_dims($0, -1) + M.zeros((3,), dtype=$0.dtype)" if x.dtype.kind != "b" else "M.expand_dims($0, 0)",
        exact=True,
    )
    for axis in _axes(x):
        if x.shape[axis] == 1:
            for n in (2, 3, 8):
                yield _move(
                    f"M.broadcast_to($0, {(*x.shape[:axis], n, *x.shape[axis + 1 :])})", exact=True, brief=n == 3
                )
        yield _move(f"M.repeat($0, 2, axis={axis})", exact=True, brief=axis == 0)
        yield _move(f"M.expand_dims($0, {axis})", exact=True)
    if x.ndim:
        yield _move(f"M.tile($0, {(2,) + (1,) * (x.ndim - 1)})", exact=True)


def spread_like(x, y):
    """Broadcast to the shape of another value: against it, or as it is."""
    try:
        fitting = np.broadcast_shapes(x.shape, y.shape) == y.shape
    except ValueError:
        fitting = False
    if fitting and y.size <= LARGEST:
        yield _move("M.broadcast_to($0, $1.shape)", brief=True, exact=True)
    for axis in _axes(y):
        if x.shape == (*y.shape[:axis], *y.shape[axis + 1 :]):
            yield _move(f"M.broadcast_to(M.expand_dims($0, {axis}), $1.shape)", brief=True, exact=True)
    if is_float(x) and is_float(y) and x.ndim == y.ndim == 1:
        yield _move("$0[:, None] - $1[None, :]", exact=True)


_PRODUCTS = (
    "ij,jk->ik", "ij,kj->ik", "ji,jk->ik", "ij,ij->i", "ij,ij->j", "ij,ij->", "ij,j->i", "i,ij->j", "i,j->ij", "i,i->",
    "ij,j->ij", "ij,i->ij", "ij,ji->ij", "bij,bjk->bik", "bij,bkj->bik", "bij,jk->bik", "bij,bij->ij", "bij,bi->bj",
    "ijk,kl->jil", "bij,cij->bc",
)  # fmt: skip


def contraction(x, y):
    if not (is_float(x) and is_float(y)):
        return
    for labels in _PRODUCTS:
        left, right = labels.split("->")[0].split(",")
        if (len(left), len(right)) != (x.ndim, y.ndim):
            continue
        sizes = dict(zip(left, x.shape, strict=True))
        if (
            all(sizes.get(c, n) == n for c, n in zip(right, y.shape, strict=True))
            and math.prod(x.shape + y.shape) <= 20000
        ):
            yield _move(
                f'M.einsum("{labels}", $0, $1)', exact=True, brief=labels in ("ij,jk->ik", "ij,kj->ik", "ij,ij->i")
            )
    if x.ndim and y.ndim and x.shape[-1] == y.shape[-2:][0] and min(x.ndim, y.ndim) <= 2:
        yield _move("$0 @ $1", brief=x.ndim != 2 or y.ndim != 2, exact=True)


def gather(x):
    for axis in _axes(x):
        n = x.shape[axis]
        if not n:
            continue
        places = [0, n - 1, -1, n // 2]
        yield _move(f"M.take($0, np.array({places}), axis={axis})", exact=True, brief=axis == 0)
        yield _move(f"M.take($0, np.array({places[1]}), axis={axis})", exact=True)
        if is_float(x):
            order = f"M.argsort($0, axis={axis})"
            yield _move(f"M.take_along_axis($0, {order}, axis={axis})", brief=axis == x.ndim - 1)
            yield _move(f"M.take_along_axis($0, M.argmax($0, axis={axis}, keepdims=True), axis={axis})")
    if x.ndim == 2 and x.shape[0]:
        yield _move(
            f"$0[np.arange({x.shape[0]}), np.arange({x.shape[0]}) % {x.shape[1]}]" if x.shape[1] else "$0", exact=True
        )


def gather_at(x, y):
    """Rows at computed places."""
    if y.dtype.kind == "i" and y.ndim <= 2 and x.ndim and x.shape[0] and y.size * x.size <= LARGEST * 8:
        yield _move(f"M.take($0, $1 % {x.shape[0]}, axis=0)", brief=True, exact=True)
        yield _move(f"pb.getitem($0, $1 % {x.shape[0]})", f"$0[$1 % {x.shape[0]}]", exact=True)
        if x.ndim == 2 and y.ndim == 1 and y.shape[0] == x.shape[0] and x.shape[1]:
            yield _move(f"M.take_along_axis($0, ($1 % {x.shape[1]})[:, None], axis=1)", exact=True)


def scatter(x):
    if not is_float(x) or not x.ndim or not x.shape[0]:
        return
    n = x.shape[0]
    yield _move(
        f"pb.add_at($0, (np.array([0, {n - 1}, 0]),), 0.5)",
        f"ref.add_at($0, (np.array([0, {n - 1}, 0]),), 0.5)",
        brief=True,
    )
    yield _move(
        f"pb.set_at($0, (np.array([{n - 1}]),), $0[:1] * 2)",
        f"ref.set_at($0, (np.array([{n - 1}]),), $0[:1] * 2)",
        exact=True,
    )
    segments = f"np.arange({n}) % 2"
    yield _move(
        f"pb.segment_sum($0, {segments}, num_segments=3)", f"ref.segment_sum($0, {segments}, 3)", brief=True, exact=True
    )
    last = x.ndim - 1
    if x.shape[last]:
        at = f"M.argmax($0, axis={last}, keepdims=True)"
        yield _move(
            f"pb.put_along_axis($0, {at.replace('M', 'pb')}, 0.25, axis={last})", f"R.put_along($0, {at}, 0.25, {last})"
        )


def scatter_at(x, y):
    """Rows added or written at computed places."""
    if y.dtype.kind == "i" and y.ndim == 1 and is_float(x) and x.ndim and x.shape[0] == y.shape[0] and x.shape[0]:
        n = x.shape[0]
        yield _move(f"pb.add_at($0, ($1 % {n},), $0)", f"ref.add_at($0, ($1 % {n},), $0)", brief=True, exact=True)
        yield _move("pb.segment_sum($0, $1 % 3, num_segments=3)", "ref.segment_sum($0, $1 % 3, 3)", exact=True)
        yield _move(f"pb.set_at($0, ($1 % {n},), 0.5)", f"ref.set_at($0, ($1 % {n},), 0.5)", exact=True)


def window(x):
    if not is_float(x) or x.ndim not in (1, 2, 3, 4) or not x.size:
        return
    wide, x3 = x.shape[-1], _as3(x)
    if x.ndim < 4:
        for size, stride in {(min(2, wide), 1), (wide, 1), (min(3, wide), 2), (min(3, wide), 1)}:
            key = size == wide or size == 2
            yield _move(
                f"pb.nn.max_pool1d({x3}, {size}, {stride})",
                f"ref.pool1d({x3}, np.max, {size}, {stride})",
                brief=key,
                exact=True,
            )
            yield _move(
                f"pb.nn.avg_pool1d({x3}, {size}, {stride})", f"ref.pool1d({x3}, np.mean, {size}, {stride})", brief=key
            )
        yield _move(f"pb.nn.avg_pool1d({x3}, 2, 1, 1)", f"ref.pool1d({x3}, np.mean, 2, 1, 1)")
        yield _move(f"pb.nn.max_pool1d({x3}, 2, 1, 1)", f"ref.pool1d({x3}, np.max, 2, 1, 1)")
    if x.ndim > 1:
        x4 = {2: "$0[None, None]", 3: "$0[None]", 4: "$0"}[x.ndim]
        for size in {min(2, *x.shape[-2:]), min(x.shape[-2:])}:
            yield _move(f"pb.nn.max_pool2d({x4}, {size}, 1)", f"ref.pool2d({x4}, np.max, {size}, 1)", exact=True)
            yield _move(f"pb.nn.avg_pool2d({x4}, {size}, 1)", f"ref.pool2d({x4}, np.mean, {size}, 1)")
    size = min(2, wide)
    yield _move(
        f"pb.sliding_window_view($0, {size}, axis=-1)",
        f"np.lib.stride_tricks.sliding_window_view($0, {size}, axis=-1)",
        brief=True,
        exact=True,
    )
    if wide >= 3:
        yield _move("$0[..., :-2] * 0.25 + $0[..., 1:-1] * 0.5 - $0[..., 2:]", "ref.correlated($0, (0.25, 0.5, -1.0))")


def convolution(x, y):
    if is_float(x) and x.dtype == y.dtype and x.ndim == y.ndim == 3 and x.shape[1] == y.shape[1] and x.size and y.size:
        pad = 1 if x.shape[2] < y.shape[2] else 0
        if x.shape[2] + 2 * pad >= y.shape[2]:
            yield _move(f"pb.nn.conv1d($0, $1, padding={pad})", f"ref.conv1d($0, $1, {pad})", brief=True, exact=True)


def loop(x):
    if not is_float(x) or not x.ndim or not x.shape[0] or not x.size:
        return
    yield _move(
        "(lambda c, r: r + c)(*pb.scan(lambda c, r: (c * 0.5 + r, c * r), pb.zeros_like($0[0]), $0))",
        "ref.scan($0)",
        brief=True,
    )
    yield _move(
        "pb.scan(lambda c, r: (c * 0.5 + pb.sum(r), r - (c * 0.5 + pb.sum(r))), "
        "pb.zeros_like($0[(0,) * $0.ndim]), $0)[1]",
        "ref.scan_rows($0)",
    )
    yield _move("pb.fori_loop(0, 3, lambda i, c: pb.sin(c) + $0 * 0.5, $0)", "ref.fori($0, 3)", brief=True)
    yield _move(
        f"pb.fori_loop(0, {x.shape[0]}, lambda i, c: c * 0.5 + $0[i], pb.zeros_like($0[0]))", "ref.gathered_rows($0)"
    )
    yield _move(
        "pb.while_loop(lambda c: pb.sum(pb.abs(c)) > 1, lambda c: c * 0.5, $0)", "ref.while_halved($0)", brief=True
    )
    yield _move(
        "pb.while_loop(lambda c: pb.sum(pb.abs(c[0])) > 1, lambda c: (c[0] * 0.25, c[1] + c[0]), "
        "($0, pb.zeros_like($0)))[1]",
        "ref.while_pair($0)",
    )
    yield _move("pb.map(lambda r: r - pb.sum(r), $0)", "ref.map_rows($0)", brief=True)


def loop_with(x, y):
    """A loop that reads a value from outside of it."""
    if not (is_float(x) and x.dtype == y.dtype and x.ndim and x.shape[0] and x.size):
        return
    if fits(x.shape[1:], y.shape) and np.broadcast_shapes(x.shape[1:], y.shape) == x.shape[1:]:
        yield _move(
            "pb.scan(lambda c, r: (pb.tanh(c + r) + $1,) * 2, pb.zeros_like($0[0]), $0)[1]",
            "ref.scan_with($0, $1)",
            brief=True,
        )
    if x.shape == y.shape:
        yield _move("pb.linear_recurrence(pb.tanh($0), $1)", "ref.recurrence(np.tanh($0), $1)")


def branch(x):
    if not is_float(x):
        return
    yield _move("M.where($0 > 0.25, $0, $0 * 0.125)", exact=False)
    yield _move("M.where($0 > 0.0, $0, 0.0)", brief=True, exact=True)
    yield _move("pb.cond(pb.sum($0) > 0, lambda v: v * 2, pb.tanh, $0)", "ref.branch($0)", brief=True)


def branch_on(x, y):
    if is_float(x) and is_float(y) and fits(x.shape, y.shape):
        yield _move("M.where($0 > $1, $0, $1)", exact=True)
        yield _move("M.where($1 > 0, $0, 0)", brief=True, exact=True)
    if is_float(x) and y.dtype.kind == "i" and y.shape == ():
        yield _move(
            "pb.switch($1 % 3, [pb.sin, lambda v: v * v, lambda v: -v], $0)", "ref.switched($1 % 3, $0)", brief=True
        )
    if is_float(x) and y.dtype.kind == "b" and fits(x.shape, y.shape):
        yield _move("M.where($1, $0, -1.0)", brief=True, exact=True)
        if y.shape == ():
            yield _move(
                "pb.cond($1, lambda v: v * 2, lambda v: v - 1.0, $0)",
                "np.where($1, $0 * 2, $0 - 1.0).astype($0.dtype)",
                exact=True,
            )


def update(x):
    if not is_float(x) or not x.size or not x.ndim:
        return
    places = ["0", "slice(None, None, 2)", "slice(0, 1)"] + (
        ["(slice(None), 0)", "(slice(None), slice(0, 1))"] if x.ndim > 1 else []
    )
    for number, place in enumerate(places):
        yield _move(f"pb.set_at($0, {place}, 0.5)", f"ref.set_at($0, {place}, 0.5)", exact=True)
        taken = f"$0[{place}] * 2"
        yield _move(
            f"pb.add_at($0, {place}, {taken})", f"ref.add_at($0, {place}, {taken})", exact=True, brief=number in (1, 4)
        )
    yield _move("pb.set_at($0, $0 > 0.5, 0.25)", "ref.set_mask($0, $0 > 0.5, 0.25)", exact=True, brief=True)
    if x.ndim > 1:
        yield _move("M.tril($0)", exact=True)


def update_by(x, y):
    if is_float(x) and x.dtype == y.dtype and x.ndim and x.shape[0] and x.shape[1:] == y.shape:
        yield _move("pb.set_at($0, 0, $1)", "ref.set_at($0, 0, $1)", brief=True, exact=True)
    if is_float(x) and x.dtype == y.dtype and x.shape == y.shape and x.ndim:
        yield _move(
            "pb.set_at($0, slice(None, None, 2), $1[::2])",
            "ref.set_at($0, slice(None, None, 2), $1[::2])",
            brief=True,
            exact=True,
        )


def view(x):
    if not x.ndim:
        yield _move("M.reshape($0, (1, 1))", exact=True)
        return
    yield _move("M.reshape($0, (-1,))", exact=True, brief=x.ndim > 1)
    for axis in _axes(x):
        whole = [":"] * x.ndim
        for piece in ("1:", "::2", "::-1", ":1"):
            whole[axis] = piece
            yield _move(f"$0[{', '.join(whole)}]", exact=True, brief=(piece, axis) in (("::-1", 0), (":1", x.ndim - 1)))
        if x.shape[axis]:
            whole[axis] = "0"
            yield _move(f"$0[{', '.join(whole)}]", exact=True)
        if x.shape[axis] == 1:
            yield _move(f"M.squeeze($0, axis={axis})", exact=True)
        yield _move(f"M.flip($0, axis={axis})", exact=True)
    if x.ndim > 1:
        yield _move(
            "$0.T" if x.ndim == 2 else f"M.permute_dims($0, {tuple(range(x.ndim))[::-1]})", exact=True, brief=True
        )
        yield _move(f"M.reshape($0, {x.shape[::-1]})", exact=True)
        yield _move("M.moveaxis($0, 0, -1)", exact=True)
        yield _move(f"M.reshape($0, ({x.shape[0] * x.shape[1]}, *$0.shape[2:]))", exact=True)
    if x.ndim == 2:
        yield _move("M.diagonal($0)", exact=True)
    if x.size % 2 == 0 and x.size:
        yield _move(f"M.reshape($0, (2, {x.size // 2}))", exact=True)


def join(x):
    for axis in _axes(x):
        yield _move(f"M.concat([$0, $0], axis={axis})", exact=True, brief=axis == x.ndim - 1)
        if x.dtype.kind != "b":
            yield _move(f"M.stack([$0, $0 * 2], axis={axis})", exact=True)
            pad = [(int(a == axis), 0) for a in _axes(x)]
            yield _move(f"M.pad($0, {pad})", exact=True, brief=axis == 0)
        yield _move(f"M.roll($0, 1, axis={axis})", exact=True)


def join_with(x, y):
    if x.dtype == y.dtype and x.ndim == y.ndim:
        for axis in _axes(x):
            if all(n == m for a, (n, m) in enumerate(zip(x.shape, y.shape, strict=True)) if a != axis):
                yield _move(f"M.concat([$0, $1], axis={axis})", exact=True, brief=axis == 0)
        if x.shape == y.shape:
            yield _move("M.stack([$0, $1], axis=0)", exact=True)


def sorting(x):
    if x.dtype.kind == "b" or not x.size:
        return
    for axis in _axes(x):
        yield _move(f"M.sort($0, axis={axis})", exact=True, brief=axis == x.ndim - 1)
        yield _move(f"M.argmax($0, axis={axis})", exact=True)
        if is_float(x):
            yield _move(f"pb.argsort($0, axis={axis})", f'np.argsort($0, axis={axis}, kind="stable")', exact=True)
    if is_float(x) and x.ndim:
        yield _move("pb.topk($0, 1)[0]", "ref.topk($0, 1)", exact=True)
        yield _move("M.median($0, axis=-1)", exact=True, brief=True)


def cumulative(x):
    if not is_float(x) or not x.size:
        return
    for axis in _axes(x):
        yield _move(f"pb.cumulative_sum($0, axis={axis})", f"np.cumsum($0, axis={axis})", exact=True, brief=axis == 0)
        yield _move(f"pb.cumulative_prod(pb.tanh($0), axis={axis})", f"np.cumprod(np.tanh($0), axis={axis})")
        yield _move(f"pb.cummax($0, axis={axis})", f"np.maximum.accumulate($0, axis={axis})", exact=True)
        yield _move(f"M.diff($0, axis={axis})", exact=True, brief=axis == x.ndim - 1)


def soft(x):
    if not is_float(x) or not x.size or not x.ndim:
        return
    for axis in _axes(x):
        key = axis == x.ndim - 1
        yield _move(f"pb.softmax($0, axis={axis})", f"ref.softmax($0, {axis})", brief=key)
        yield _move(f"pb.log_softmax($0, axis={axis})", f"ref.log_softmax($0, {axis})")
        yield _move(f"pb.logsumexp($0, axis={axis}, keepdims={key})", f"ref.logsumexp($0, {axis}, {key})", brief=True)
    yield _move("pb.nn.layer_norm($0)", "ref.layer_norm($0)", brief=True)


#: Each form's functions by how many operands they take.
FORMS = {
    "pointwise": (pointwise, meeting),
    "fold": (fold,),
    "spread": (spread, spread_like),
    "contraction": (contraction,),
    "gather": (gather, gather_at),
    "scatter": (scatter, scatter_at),
    "window": (window, convolution),
    "loop": (loop, loop_with),
    "branch": (branch, branch_on),
    "update": (update, update_by),
    "view": (view,),
    "join": (join, join_with),
    "sort": (sorting,),
    "cumulative": (cumulative,),
    "soft": (soft,),
}
_BINARY = {
    meeting,
    spread_like,
    contraction,
    gather_at,
    scatter_at,
    convolution,
    loop_with,
    branch_on,
    update_by,
    join_with,
}


def fits(a, b):
    return all(n == m or 1 in (n, m) for n, m in zip(a[::-1], b[::-1], strict=False))


def moves(form, x, y=None):
    """What a form can do with a value, or with a value and another."""
    found = []
    for function in FORMS[form]:
        if function in _BINARY:
            found += function(x, y) if y is not None else ()
        elif y is None:
            found += function(x)
    return [Move(form, m.code, m.plain, m.arity, m.brief, m.exact) for m in found]
