"""Tests generated from the op records: every op, every sample, every role."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from random_oracles import RANDOM
from records import Case, cases, drawn, flat, inner, name, phaseless, weighted
from special_oracles import DIGITS, PLANE, SPECIAL

import pullback as pb
from pullback.arrays.spec import spec_of
from pullback.graph import stage
from pullback.ops import everything
from pullback.ops.dispatch import apply
from pullback.ops.eager import entry
from pullback.ops.index import filled
from pullback.transforms import grad, jvp, vjp, vmap

ALL = cases()
SMOOTH = [case for case in cases(lambda op: op.differentiable) if case.moving]

#: What each op that is no NumPy ufunc should compute, said in plain NumPy.
ORACLES = {
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "relu": lambda x: np.where(x > 0, x, 0),
    "softplus": lambda x: np.logaddexp(x, 0),
    "gelu_by_tanh": lambda x: x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))) / 2,
    "erf": lambda x: np.vectorize(__import__("math").erf, otypes=[float])(x),
    "real": np.real,
    "imag": np.imag,
    "stop_gradient": lambda x: x,
    "name": lambda x, **static: x,
    "again": lambda x: x,
    "straight_through_round": np.round,
    "where": np.where,
    "clip": np.clip,
    "astype": lambda x, dtype: np.asarray(x, dtype),
    "reshape": lambda x, shape: np.asarray(list(x.flat)).reshape(shape),
    "permute_dims": lambda x, axes: np.einsum(x, list(range(x.ndim)), list(axes)),
    "broadcast_to": lambda x, shape: x + np.zeros(shape),
    "concat": lambda *xs, axis: np.concatenate(xs, axis),
    "split": lambda x, cuts, axis: tuple(np.split(x, cuts, axis)),
    "flip": lambda x, axis: x[tuple(slice(None, None, -1) if i in axis else slice(None) for i in range(x.ndim))],
    "roll": lambda x, shift, axis: np.roll(x, shift, axis),
    "getitem": lambda x, *indices, index: x[filled(index, indices)],
    "scatter": lambda x, *indices, index, wanted: _added(np.zeros(wanted), x, filled(index, indices)),
    "set_at": lambda x, v, *indices, index: _written(x.copy(), v, filled(index, indices)),
    "sum": lambda x, axis, keepdims: np.add.reduce(x, axis=axis, keepdims=keepdims),
    "max": lambda x, axis, keepdims: np.maximum.reduce(x, axis=axis, keepdims=keepdims),
    "min": lambda x, axis, keepdims: np.minimum.reduce(x, axis=axis, keepdims=keepdims),
    "prod": lambda x, axis, keepdims: np.multiply.reduce(x, axis=axis, keepdims=keepdims),
    "linear_recurrence": lambda a, b, axis: _recurred(a, b, axis),
    "cumulative_prod": lambda x, axis: np.multiply.accumulate(x, axis=axis),
    "logcumsumexp": lambda x, axis: np.log(np.cumsum(np.exp(x), axis=axis)),
    "running_index": lambda x, axis, least: _running_index(-x if least else x, axis),
    "cumulative_sum": lambda x, axis: np.add.accumulate(x, axis=axis),
    "argmax": lambda x, axis, keepdims: np.argmax(x, axis=axis, keepdims=keepdims),
    "argmin": lambda x, axis, keepdims: np.argmin(x, axis=axis, keepdims=keepdims),
    "any": lambda x, axis, keepdims: np.logical_or.reduce(x, axis=axis, keepdims=keepdims),
    "all": lambda x, axis, keepdims: np.logical_and.reduce(x, axis=axis, keepdims=keepdims),
    "argsort": lambda x, axis, descending, kth: _order(x, axis, descending, kth),
    "searchsorted": lambda x, v, side: np.sum(
        np.less(x, v[..., None]) if side == "left" else np.less_equal(x, v[..., None]), axis=-1
    ),
    "quantile_neighbours": lambda place, method: _neighbours(place, method),
    "scatter_extreme": lambda x, v, *indices, index, least: _outdone(x.copy(), v, filled(index, indices), least),
    "windows": lambda x, axis, size, step, dilation: _windows(x, axis, size, step, dilation),
    "overlap_add": lambda y, axis, length, step, dilation: _overlapped(y, axis, length, step, dilation),
    "matmul": lambda x, y: np.einsum("...ij,...jk->...ik", x, y),
    "matvec": lambda x, y: np.einsum("...ij,j->...i", x, y),
    "checked": lambda x, bad, kind, text: x,
    "once": lambda x, bad, kind, text: x,
    "solve": np.linalg.solve,
    "triangular_solve": lambda a, b, lower, unit: np.linalg.solve(_one_triangle(a, lower, unit), b),
    "inv": lambda x: np.linalg.solve(x, np.broadcast_to(np.eye(x.shape[-1]), x.shape)),
    "pinv": lambda x, rtol: np.linalg.pinv(x, rtol=rtol),
    "cholesky": lambda x: np.linalg.cholesky((x + np.swapaxes(x, -1, -2)) / 2),
    "qr": lambda x, complete: tuple(np.linalg.qr(x, "complete" if complete else "reduced")),
    "lu": lambda x: _eliminated(x),
    "eigh": lambda x, vectors: tuple(np.linalg.eigh((x + np.swapaxes(x, -1, -2)) / 2)),
    "eig": lambda x, vectors: tuple(np.linalg.eig(x)),
    "svd": lambda x, full, vectors: tuple(np.linalg.svd(x, full_matrices=full)),
    "det": lambda x: _leibniz(x),
    "slogdet": lambda x: (np.sign(_leibniz(x)), np.log(np.abs(_leibniz(x)))),
    "lift": lambda x: _lifted(x),
    "expm": lambda x: _by_eigenvalues(x, np.exp),
    "logm": lambda x: _by_eigenvalues(x, np.log),
    "sqrtm": lambda x: _by_eigenvalues(x, np.sqrt),
    "fft": lambda x, axes, inverse, norm: _fourier(x, axes, inverse, norm),
    "rfft": lambda x, axis, norm: _half(_fourier(x, (axis,), False, norm), axis, x.shape[axis] // 2 + 1),
    "irfft": lambda x, n, axis, norm: _fourier(_mirrored(x, n, axis), (axis,), True, norm).real,
    "rsqrt": lambda x: x**-0.5,
    "numbers": lambda x: x,
    "convolve": lambda x, y: np.polymul(x, y) if x[0] and y[0] else None,
    "convolution": lambda x, w, **how: _form("y", x=x, w=w, **how),
    "convolution_back": lambda y, w, sizes, **how: _form("x", sizes, y=y, w=w, **how),
    "convolution_weight": lambda x, y, sizes, **how: _form("w", sizes, x=x, y=y, **how),
    "window_place": lambda x, **how: _each_window(x, lambda seen: max(seen, key=lambda pair: pair[1])[0], **how),
    "window_take": lambda x, index, **how: _at_places(x, index, **how),
    "window_put": lambda y, index, sizes, **how: _put_in_windows(y, sizes, index, **how),
    "window_sum": lambda x, **how: _each_window(x, lambda seen: sum(v for _, v in seen), **how),
    "window_spread": lambda y, sizes, **how: _put_in_windows(y, sizes, None, **how),
    "exponent": lambda x: np.floor(np.log2(np.abs(x))) + 1,
    "power_of_two": lambda x, dtype: 2.0**x,
    "sinc": lambda x, order: _sinc_by_complex_circle(x, order),
    "einsum": lambda *xs, labels, result: np.einsum(f"{','.join(labels)}->{result}", *xs),
}
ORACLES |= SPECIAL | RANDOM


def _seen_by(window, stride, padding, dilation, sizes, at):
    """The places of one window that lie inside the grid, with where they lie."""
    for number, place in enumerate(np.ndindex(window)):
        where = tuple(
            p * s + k * d - low for p, s, k, d, (low, _) in zip(at, stride, place, dilation, padding, strict=True)
        )
        if all(0 <= i < n for i, n in zip(where, sizes, strict=True)):
            yield number, place, where


def _count_windows(sizes, window, stride, padding, dilation):
    return tuple(
        len(range(0, n + sum(p) - (k - 1) * d, s))
        for n, k, s, p, d in zip(sizes, window, stride, padding, dilation, strict=True)
    )


def _form(result, sizes=(), x=None, w=None, y=None, stride=(), padding=(), dilation=(), groups=1):
    """The trilinear form of a convolution summed term by term into the one array that is left out."""
    if x is None:
        x = np.zeros((y.shape[0], w.shape[1] * groups, *sizes))
    if w is None:
        w = np.zeros((y.shape[1], x.shape[1] // groups, *sizes))
    if y is None:
        y = np.zeros((x.shape[0], w.shape[0], *_count_windows(x.shape[2:], w.shape[2:], stride, padding, dilation)))
    for n, f, c in np.ndindex(x.shape[0], *w.shape[:2]):
        channel = f // (w.shape[0] // groups) * w.shape[1] + c
        for at in np.ndindex(y.shape[2:]):
            for _, k, where in _seen_by(w.shape[2:], stride, padding, dilation, x.shape[2:], at):
                i, j, p = (n, channel, *where), (f, c, *k), (n, f, *at)
                if result == "y":
                    y[p] += x[i] * w[j]
                elif result == "x":
                    x[i] += y[p] * w[j]
                else:
                    w[j] += x[i] * y[p]
    return {"x": x, "w": w, "y": y}[result]


def _each_window(x, answer, window, stride, padding, dilation):
    sizes = x.shape[2:]
    out = np.zeros((*x.shape[:2], *_count_windows(sizes, window, stride, padding, dilation)))
    for i in np.ndindex(out.shape):
        seen = _seen_by(window, stride, padding, dilation, sizes, i[2:])
        out[i] = answer([(number, x[(*i[:2], *where)]) for number, _, where in seen])
    return out


def _at_places(x, index, **how):
    out = np.zeros(index.shape)
    for i in np.ndindex(out.shape):
        seen = {number: where for number, _, where in _seen_by(sizes=x.shape[2:], at=i[2:], **how)}
        out[i] = x[(*i[:2], *seen[index[i]])] if index[i] in seen else 0.0
    return out


def _put_in_windows(y, sizes, index, **how):
    out = np.zeros((*y.shape[:2], *sizes))
    for i in np.ndindex(y.shape):
        for number, _, where in _seen_by(sizes=sizes, at=i[2:], **how):
            if index is None or index[i] == number:
                out[(*i[:2], *where)] += y[i]
    return out


def _recurred(a, b, axis):
    out, before = [], 0.0
    for p, q in zip(np.moveaxis(a, axis, 0), np.moveaxis(b, axis, 0), strict=True):
        before = p * before + q
        out.append(before)
    return np.moveaxis(np.array(out).reshape(np.moveaxis(b, axis, 0).shape), 0, axis)


def _running_index(x, axis):
    counts = range(1, x.shape[axis] + 1)
    found = [np.argmax(np.take(x, range(n), axis=axis), axis=axis) for n in counts]
    return np.stack(found, axis=axis) if found else np.zeros(x.shape, int)


def _order(x, axis, descending, kth):
    if kth:
        return np.argpartition(x, kth, axis=axis)
    return np.argsort(-x if descending else x, axis=axis, kind="stable")


def _neighbours(place, method):
    low, high, part = np.floor(place), np.ceil(place), place % 1
    alone = {
        "lower": low,
        "higher": high,
        "nearest": np.round(place),
        "inverted_cdf": high,
        "closest_observation": high,
    }
    if method in alone:
        return alone[method], alone[method], 0 * part
    fixed = {"midpoint": 0.5, "averaged_inverted_cdf": 1.0}
    return low, high, 0 * part + fixed.get(method, part)


def _outdone(target, values, index, least):
    (np.minimum if least else np.maximum).at(target, index, values)
    return target


def _windows(x, axis, size, step, dilation):
    reach = (size - 1) * dilation + 1
    if x.shape[axis] < reach:
        return np.zeros(0)
    view = np.lib.stride_tricks.sliding_window_view(x, reach, axis)
    return np.take(view, range(0, view.shape[axis], step), axis=axis)[..., ::dilation]


def _overlapped(y, axis, length, step, dilation):
    out = np.zeros((*y.shape[:axis], length, *y.shape[axis + 1 : -1]))
    for place in np.ndindex(*y.shape):
        to = list(place[:-1])
        to[axis] = place[axis] * step + place[-1] * dilation
        out[tuple(to)] += y[place]
    return out


def _one_triangle(a, lower, unit):
    part = np.tril(a) if lower else np.triu(a)
    return part - part * np.eye(a.shape[-1]) + np.eye(a.shape[-1]) if unit else part


def _each_matrix(function, x, *shapes):
    """A function of one matrix for each of a stack; `shapes` are those of its results."""
    results = [np.zeros((*x.shape[:-2], *shape)) for shape in shapes]
    for i in np.ndindex(x.shape[:-2]):
        for out, found in zip(results, function(x[i]), strict=True):
            out[i] = found
    return tuple(results)


def _eliminated(x):
    """Gauss's elimination with row exchanges, one column after the other."""
    m, n = x.shape[-2:]
    k = min(m, n)

    def one(a):
        upper, lower, order = a.copy(), np.zeros((m, k)), list(range(m))
        for j in range(k):
            pivot = j + int(np.argmax(np.abs(upper[j:, j])))
            for rows in (upper, lower):
                rows[[j, pivot]] = rows[[pivot, j]]
            order[j], order[pivot] = order[pivot], order[j]
            lower[j, j] = 1.0
            lower[j + 1 :, j] = upper[j + 1 :, j] / upper[j, j]
            upper[j + 1 :] -= np.outer(lower[j + 1 :, j], upper[j])
        return np.argsort(order), order, lower, np.triu(upper[:k])

    return _each_matrix(one, x, (m,), (m,), (m, k), (k, n))


def _leibniz(x):
    """The determinant as the sum over permutations."""
    n = x.shape[-1]
    total = np.zeros(x.shape[:-2])
    for order in itertools.permutations(range(n)):
        sign = (-1) ** sum(a > b for a, b in itertools.combinations(order, 2))
        total = total + sign * np.prod([x[..., i, j] for i, j in enumerate(order)], axis=0)
    return total


def _lifted(x):
    """The samples are ones of two rows, which the difference lifts, and zeros, which the unit matrix does."""
    n = x.shape[-1]
    r = min(n, 3)
    u, s, vh = np.linalg.svd(x)
    amounts = np.where(s < 1e-8, np.where(s[..., :1] > 0, s[..., :1], 1.0) - s, 0.0)[..., None, :] if n else s
    left, right = u * amounts, np.swapaxes(vh, -1, -2)
    rest = left[..., : n - r] @ np.swapaxes(right[..., : n - r], -1, -2)
    return np.concatenate([left[..., n - r :], right[..., n - r :], rest], axis=-1)


def _by_eigenvalues(x, function):
    w, v = np.linalg.eig(x.astype(complex))
    return (v * function(w)[..., None, :] @ np.linalg.inv(v)).real


def _fourier(x, axes, inverse, norm):
    """The transform by its definition, one matrix for each axis."""
    for axis in axes:
        n = x.shape[axis]
        matrix = np.exp((2j if inverse else -2j) * np.pi / n * np.outer(np.arange(n), np.arange(n)))
        scaled = norm == ("backward" if inverse else "forward")
        matrix *= 1 / n if scaled else n**-0.5 if norm == "ortho" else 1.0
        x = np.moveaxis(np.tensordot(matrix, x, axes=(1, axis)), 0, axis)
    return x


def _half(x, axis, size):
    return np.take(x, np.arange(size), axis=axis)


def _mirrored(x, n, axis):
    """The whole spectrum of a real signal from its half."""
    x = np.moveaxis(x, axis, 0)
    rest = np.conj(x[1 : (n + 1) // 2][::-1])
    return np.moveaxis(np.concatenate([x, rest]), 0, axis)


def _sinc_by_complex_circle(x, order):
    """Cauchy's formula: a derivative is a mean over a circle, on which sin(pi z) / (pi z) has no trouble."""
    turns = np.exp(2j * np.pi * (np.arange(64) + 0.5) / 64)
    z = np.pi * (np.asarray(x)[..., None] + turns)
    values = np.sin(z) / z
    return __import__("math").factorial(order) * np.mean(values * turns**-order, axis=-1).real


def _added(target, x, index):
    np.add.at(target, index, x)
    return target


def _written(target, values, index):
    target[index] = values
    return target


def test_every_op_has_samples():
    without = [op.name for op in everything().values() if not op.samples(np.random.default_rng(0))]
    assert without == []


@pytest.mark.parametrize("case", ALL, ids=name)
def test_value_agrees_with_numpy(case: Case):
    oracle = getattr(np, case.op.ufunc) if case.op.ufunc else ORACLES[case.op.name]
    out = apply(case.op, *case.args, **case.static)
    for x in out if isinstance(out, tuple) else (out,):
        assert type(x) is np.ndarray, "0-d results stay arrays"
    np.testing.assert_allclose(
        flat(out),
        flat(oracle(*case.args, **case.static)),
        rtol=DIGITS.get(case.op.name, 1e-13),
        atol=2e-15 if case.op.family != "matrix" else 1e-13,
    )


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
@pytest.mark.parametrize("case", ALL, ids=name)
def test_spec_says_what_the_value_is(case: Case, dtype: str):
    case = case.cast(dtype)
    out = apply(case.op, *case.args, **case.static)
    said = case.op.spec(*map(spec_of, case.args), **case.static)
    for spec, x in zip(said, out, strict=True) if isinstance(out, tuple) else [(said, out)]:
        assert (spec.shape, spec.dtype) == (x.shape, x.dtype)


@pytest.mark.parametrize("case", SMOOTH, ids=name)
def test_push_agrees_with_differences(case: Case):
    step, along = 1e-6, case.direction(1)
    high = case.scalar(*(a + step * v for a, v in zip(case.floats, along, strict=True)))
    low = case.scalar(*(a - step * v for a, v in zip(case.floats, along, strict=True)))
    _, tangent = jvp(case.scalar, case.floats, along)
    # Two lie by design, one drops digits, and one has its slope at a fixed probability instead of fixed bits.
    if case.op.name not in ("stop_gradient", "straight_through_round", "astype", "log_gamma_draw"):
        np.testing.assert_allclose(tangent, (high - low) / (2 * step), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("case", SMOOTH, ids=name)
def test_pull_is_the_transpose_of_push(case: Case):
    """<u, J v> = <J^T u, v> to the last digits."""
    along = case.direction(2)
    out, tangent = jvp(case.function, case.floats, along)
    rng = np.random.default_rng(3)
    outs = out if isinstance(out, tuple) else (out,)
    bars = [np.asarray(drawn(rng, o)).astype(o.dtype) for o in outs]
    shares = vjp(lambda *xs: _combined(case.function(*xs), bars), *case.floats)[1](np.asarray(1.0))
    for share, a in zip(shares, case.floats, strict=True):
        assert (share.shape, share.dtype) == (np.shape(a), np.asarray(a).dtype)
    scale = 1 + np.abs(flat(bars) * flat(tangent)).sum()
    tolerance = 1e-6 if case.static.get("dtype") == np.float32 else 1e-13
    assert abs(inner(bars, tangent) - inner(shares, along)) <= tolerance * scale


def _combined(out, bars):
    outs = out if isinstance(out, tuple) else (out,)
    total = 0.0
    for o, bar in zip(outs, bars, strict=True):
        total = total + weighted(o, bar)
    return total


@pytest.mark.parametrize("case", SMOOTH, ids=name)
def test_four_second_orders_agree(case: Case):
    """v^T H w by forward-forward, forward-reverse, reverse-forward and reverse-reverse."""
    v, w, xs = case.direction(4), case.direction(5), case.floats
    count = range(len(xs))

    def pushed(*ys):
        return jvp(case.scalar, ys, v)[1]

    def pulled(*ys):
        total = 0.0
        for i in count:
            total = total + pb.sum(grad(case.scalar, i)(*ys) * v[i])
        return total

    ff = jvp(pushed, xs, w)[1]
    fr = jvp(pulled, xs, w)[1]
    rf = sum(inner(grad(pushed, i)(*xs), w[i]) for i in count)
    rr = sum(inner(grad(pulled, i)(*xs), w[i]) for i in count)
    found = np.array([float(np.asarray(f)) for f in (ff, fr, rf, rr)])
    np.testing.assert_allclose(found, found[0], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("case", ALL, ids=name)
def test_vmap_agrees_with_a_loop(case: Case):
    size, rng = 3, np.random.default_rng(6)
    slots = range(len(case.args))
    choices = [c for c in itertools.product((None, 0, -1), repeat=len(case.args)) if any(a is not None for a in c)]
    if len(choices) > 8:
        choices = [choices[i] for i in sorted(rng.choice(len(choices), 8, replace=False))]
    for axes in choices:
        rows = [[_varied(case, i, rng) if axes[i] is not None else case.args[i] for i in slots] for _ in range(size)]
        stacked = [
            case.args[i] if axes[i] is None else np.moveaxis(np.stack([r[i] for r in rows]), 0, axes[i]) for i in slots
        ]
        found = vmap(lambda *xs: apply(case.op, *xs, **case.static), axes)(*stacked)
        looped = [apply(case.op, *row, **case.static) for row in rows]
        if isinstance(found, tuple):
            expected = tuple(np.stack(parts) for parts in zip(*looped, strict=True))
        else:
            expected = np.stack(looped)
        np.testing.assert_allclose(flat(found), flat(expected), rtol=1e-12, atol=1e-14)


def _varied(case, i, rng):
    """Another array of the same kind, inside the same domain; a matrix keeps its shape of spectrum."""
    a = np.asarray(case.args[i])
    if case.op.family == "matrix" and a.dtype.kind == "f":
        return a * rng.uniform(0.5, 1.5)
    return a if a.dtype.kind == "b" else np.asarray(rng.permutation(a.ravel()).reshape(a.shape))


@pytest.mark.parametrize("case", SMOOTH, ids=name)
def test_staged_program_computes_the_same(case: Case):
    program = stage(case.function)(*case.floats)
    np.testing.assert_array_equal(flat(program.run(*case.floats)), flat(case.function(*case.floats)))
    pulled = stage(grad(case.scalar))(*case.floats)
    np.testing.assert_allclose(flat(pulled.run(*case.floats)), flat(grad(case.scalar)(*case.floats)), rtol=1e-14)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("case", SMOOTH, ids=name)
def test_gradients_keep_their_dtype(case: Case, dtype: str):
    case = case.cast(dtype)
    xs = [pb.tensor(a, requires_grad=True) for a in case.floats]
    outs = case.function(*xs)
    for out in outs if isinstance(outs, tuple) else (outs,):
        found = pb.gradients(out, xs, np.ones(out.shape), retain_graph=True, allow_unused=True)
        for g, x in zip(found, xs, strict=True):
            assert g is not None
            assert (g.dtype, g.shape) == (x.dtype, x.shape)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("case", [c for c in SMOOTH if c.op.family == "elementwise"], ids=name)
def test_fast_path_is_the_general_path(case: Case, dtype: str):
    """Saved-value hooks force the general path; both must give the same bits. All arguments get one shape."""
    case = case.cast(dtype)
    shape = np.broadcast_shapes(*(np.shape(a) for a in case.args))
    values = [np.array(np.broadcast_to(a, shape)) for a in case.args]
    public = entry(case.op)

    def both_ways():
        xs = [pb.tensor(v, requires_grad=v.dtype.kind == "f") for v in values]
        out = public(*xs)
        tracked = [x for x in xs if x.requires_grad]
        return [out.detach(), *pb.gradients(out, tracked, np.full(shape, 0.7, dtype), allow_unused=True)]

    fast = both_ways()
    with pb.saved_tensors_hooks(lambda t: t, lambda t: t):
        general = both_ways()
    for a, b in zip(fast, general, strict=True):
        assert a is not None
        assert b is not None
        np.testing.assert_array_equal(a.numpy(), b.numpy())


#: Ops that have no complex derivative.
ONLY_REAL = {
    "atan2", "cbrt", "ceil", "copysign", "deg2rad", "floor", "floor_divide", "fmax", "fmin", "fmod", "heaviside",
    "hypot", "log_gamma_draw", "logaddexp", "logaddexp2", "logcumsumexp", "maximum", "minimum", "nextafter", "rad2deg",
    "relu", "remainder", "rfft", "sigmoid", "softplus", "spacing", "trunc",
} | (SPECIAL.keys() - PLANE)  # fmt: skip


def _turned(case: Case) -> Case:
    """The sample with its floating-point arguments turned into the complex plane."""
    args = tuple(np.asarray(a * np.exp(0.4j) + 0.05j) if i in case.moving else a for i, a in enumerate(case.args))
    return Case(case.op, case.number, args, case.static)


@pytest.mark.parametrize("case", SMOOTH, ids=name)
def test_complex_pull_is_the_transpose_of_push(case: Case):
    """Re <u, J v> = Re <J^H u, v>; ops that need an order, and those that SciPy has for reals only, say so."""
    if case.op.name in ONLY_REAL:
        with pytest.raises(pb.errors.DtypeError):
            _complex_products(case, _turned(case))
        return
    left, right = _complex_products(case, _turned(case))
    single = case.static.get("dtype") == np.float32
    assert abs(left - right) <= (1e-5 if single else 1e-12) * (1 + abs(left))


def _complex_products(case: Case, turned: Case) -> tuple[float, float]:
    def function(*values):
        args = list(turned.args)
        for i, value in zip(case.moving, values, strict=True):
            args[i] = value
        return phaseless(turned.op, apply(turned.op, *args, **turned.static))

    rng = np.random.default_rng(8)
    floats = [turned.args[i] for i in case.moving]
    along = [drawn(rng, a) for a in floats]
    out, tangents = jvp(function, floats, along)
    bars = [drawn(rng, o) for o in (out if isinstance(out, tuple) else (out,))]
    tensors = [pb.tensor(a, requires_grad=True) for a in floats]
    results = function(*tensors)
    shares = pb.gradients(list(results) if isinstance(results, tuple) else [results], tensors, bars)
    pulled = [g.numpy() for g in shares if g is not None]
    return np.sum(np.conj(flat(bars)) * flat(tangents)).real, np.sum(np.conj(flat(pulled)) * flat(along)).real
