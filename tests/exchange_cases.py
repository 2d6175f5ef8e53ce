"""Every sample of every op as a program to export, and whole programs; with what they compute here.

`python tests/exchange_cases.py --write` writes the table of docs/exchange.md.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections import defaultdict
from pathlib import Path

import numpy as np
from records import cases

import pullback as pb
from pullback.ops.dispatch import apply

PAGE = Path(__file__).resolve().parent.parent / "docs" / "exchange.md"
BEGIN, END = "<!-- begin of the table -->\n", "<!-- end of the table -->\n"
FORMATS = {"ONNX": pb.exchange.to_onnx, "StableHLO": pb.exchange.to_stablehlo}
#: How far results may be from ours, by dtype: other systems compute in another order, with other functions.
TOLERANCES = {
    "bfloat16": 2e-2, "float16": 4e-3, "float32": 4e-5, "float64": 1e-9, "complex64": 4e-5, "complex128": 1e-9,
}  # fmt: skip


def _split_complex(results):
    """The leaves of results, complex ones as their parts: an ONNX model returns no others."""
    leaves = pb.tree.leaves(results)
    return [y for x in leaves for y in ([pb.real(x), pb.imag(x)] if x.dtype.kind == "c" else [x])]


def op_cases(every=1):
    """(name, program, arguments, results) of each sample of each op; of all samples every `every`-th."""
    for case in cases()[::every]:
        args = [np.asarray(a) for a in case.args]
        try:
            with np.errstate(all="ignore"):
                # of a partial order the whole one is exported
                eager = {**case.static, "kth": ()} if "kth" in case.static else case.static
                wanted = _split_complex(apply(case.op, *args, **eager))
                program = pb.stage(lambda *xs, case=case: _split_complex(apply(case.op, *xs, **case.static)))(*args)
        except pb.errors.PullbackError as error:
            yield case.name, error, args, None
            continue
        yield case.name, program, args, [np.asarray(w) for w in wanted]


def leaves_of(results):
    """The arrays of a tree of results."""
    return [np.asarray(x.detach() if isinstance(x, pb.Tensor) else x) for x in pb.tree.leaves(results)]


def is_near(found, wanted):
    """Whether results agree in dtype, shape and, up to rounding, in value."""
    found = np.asarray(found)
    if found.dtype != wanted.dtype or found.shape != wanted.shape:
        return False
    if wanted.dtype.kind in "biu":
        return bool(np.array_equal(found, wanted))
    bound = TOLERANCES[wanted.dtype.name]
    if wanted.dtype.name == "bfloat16":
        found, wanted = found.astype(np.float32), wanted.astype(np.float32)
    return bool(np.allclose(found, wanted, rtol=bound, atol=bound, equal_nan=True))


def _mlp(params, x):
    (w, b), (v, c) = params
    return pb.tanh(x @ w + b) @ v + c


def _mlp_parameters(rng):
    sizes = [(4, 5), (5,), (5, 3), (3,)]
    w, b, v, c = (rng.normal(size=s).astype(np.float32) for s in sizes)
    return ((w, b), (v, c))


def _mlp_loss(params, x, y):
    return pb.nn.functional.cross_entropy(_mlp(params, x), y)


def _adam_step(params, state, x, y):
    grads = pb.grad(_mlp_loss)(params, x, y)
    return pb.optim.adam(0.01).update(grads, state, params)


def _cnn(w, v, x):
    h = pb.nn.relu(pb.nn.conv2d(x, w, padding=1))
    h = pb.nn.functional.max_pool2d(h, 2)
    h = pb.nn.functional.avg_pool2d(pb.nn.conv2d(h, v, stride=2), 2, stride=1)
    return pb.reshape(h, (h.shape[0], -1))


def _cnn_loss(w, v, x):
    return pb.sum(pb.square(_cnn(w, v, x)))


def _transformer():
    pb.random.seed(3)
    layer = pb.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0)
    return lambda x: layer(x)


def _scan(c, xs):
    return pb.scan(lambda h, x: (pb.tanh(h + x), h * x), c, xs)


def _while(x):
    return pb.while_loop(lambda s: pb.sum(s) < 100.0, lambda s: s * 1.5 + 1.0, x)


def _cond(x):
    ways = [lambda x: x * 2.0, lambda x: pb.sin(x) - 1.0]
    return pb.cond(pb.sum(x) > 0.0, *ways, x) + pb.cond(pb.sum(x) < -5.0, *ways, x)


def _embedding_gradient(table, places):
    return pb.grad(lambda t: pb.sum(pb.square(pb.nn.embedding(places, t))))(table)


def _statistics(x):
    return pb.median(x, axis=0), pb.std(x, axis=1), pb.sort(x, axis=1), pb.argmax(x, axis=0), pb.cumsum(x, axis=1)


def whole_programs():
    """(name, function, arguments) of programs of many ops."""
    rng = np.random.default_rng(5)
    params, x = _mlp_parameters(rng), rng.normal(size=(6, 4)).astype(np.float32)
    y = rng.integers(0, 3, 6)
    images = rng.normal(size=(2, 3, 8, 8)).astype(np.float32)
    w, v = (rng.normal(size=s).astype(np.float32) for s in [(4, 3, 3, 3), (2, 4, 2, 2)])
    tokens = rng.normal(size=(2, 5, 8)).astype(np.float32)
    row, rows = rng.normal(size=3), rng.normal(size=(4, 3))
    layer = _transformer()
    return [
        ("MLP", _mlp, (params, x)),
        ("MLP, gradient of the loss", pb.grad(_mlp_loss), (params, x, y)),
        ("MLP, a step of Adam", _adam_step, (params, pb.optim.adam(0.01).init(params), x, y)),
        ("MLP, Hessian-vector product", lambda p, q, x, y: pb.hvp(_mlp_loss, (p, x, y), (q, None, None))[1],
         (params, _mlp_parameters(rng), x, y)),
        ("CNN with pooling", _cnn, (w, v, images)),
        ("CNN, gradients of the weights", pb.grad(_cnn_loss, argnums=(0, 1, 2)), (w, v, images)),
        ("transformer block", layer, (tokens,)),
        ("transformer block, gradient", pb.grad(lambda x: pb.sum(pb.square(layer(x)))), (tokens,)),
        ("scan", _scan, (row, rows)),
        ("scan, gradient", pb.grad(lambda c, xs: pb.sum(_scan(c, xs)[0]), argnums=(0, 1)), (row, rows)),
        ("while_loop", _while, (row,)),
        ("cond", _cond, (row,)),
        ("embedding, gradient", _embedding_gradient, (rows, np.array([2, 0, 2]))),
        ("order statistics", _statistics, (rows,)),
        ("vmap", pb.vmap(lambda r: pb.softmax(r) @ np.ones(3)), (rows,)),
        ("jit inside", lambda x: pb.jit(lambda z: pb.sin(z) * 2.0)(x) + 1.0, (row,)),
        ("random numbers from a key", lambda key: pb.random.uniform(key=key, size=4), (pb.random.key(4),)),
    ]  # fmt: skip


def _booleans(b, c):
    return (b & c, b | c, b ^ c, ~b, pb.sum(b), pb.any(b, axis=0), pb.all(b, axis=1), pb.cumsum(b), pb.sort(b, axis=0),
            pb.abs(b), pb.where(b, 1.0, 2.0), pb.argmax(b, axis=0), b < c, pb.maximum(b, c),
            pb.matmul(b, c.T))  # fmt: skip


def _empty(x):
    return (pb.sum(x, axis=0), x + 1, pb.concatenate([x, x]), pb.sort(x, axis=1), pb.matmul(x.T, x), pb.matmul(x, x.T),
            pb.cumsum(x, axis=0), x[:, ::-1])  # fmt: skip


def _no_axes(x):
    return pb.sum(x), pb.max(x), pb.reshape(x, (1, 1)), pb.sort(x[None]), pb.cumsum(x[None]), pb.exp(x)


def _single(x):
    return pb.sum(x, axis=0), pb.sort(x, axis=0), pb.softmax(x), x @ x


def _sums_of_products(x):
    square = pb.matmul(x, x.T)
    ways = [("ij,ij->i", x, x), ("ii->i", square), ("ii->", square), ("ij,kj,kl->il", x, x, x), ("i,j->ji", x[0], x[1])]
    return [pb.einsum(*way) for way in ways] + [pb.einsum("ij,k->j", x, x[0])]


def _rows_and_places(x, i):
    return x[i], x[:, i], x[i, i], x[i][:, None], x[-1], x[..., -2], x[::-2, 1:3]


def _orders(x):
    ways = [{}, {"descending": True}]
    return [f(x, axis=1, **way) for f in (pb.sort, pb.argsort) for way in ways] + [pb.max(x, axis=1)]


def _products(x):
    return [pb.prod(x), pb.prod(x, axis=0), pb.prod(x, axis=(0, 1), keepdims=True), pb.grad(pb.prod)(x)]


def _running_extremes(x):
    return pb.cummax(x, axis=1), pb.cummin(x, axis=1), pb.logcumsumexp(x[1])


def _searches(x, values):
    return [pb.searchsorted(x, values, side=side) for side in ("left", "right")]


def _quantiles(x):
    methods = ("linear", "lower", "nearest", "midpoint", "inverted_cdf", "closest_observation", "hazen")
    return [pb.quantile(x, np.array([0.1, 0.5, 0.75]), axis=0, method=method) for method in methods]


def corner_programs():
    """(name, function, arguments) of programs that are easily wrong."""
    x = np.random.default_rng(8).normal(size=(3, 4))
    held = x[::-1].copy()
    small = np.arange(1, 8, dtype=np.int8)[None]
    spd = np.array([[4, 1, 0], [1, 3, 1], [0, 1, 2]])
    unordered = np.array([[3.0, np.nan, 1.0, np.nan, -np.inf], [np.inf, 0.0, -0.0, 2.0, 1.0]])
    return [
        ("an output that is an input, and twice", lambda x: (x, x, x + 1, x + 1), (x,)),
        ("outputs that are constants", lambda x: (np.arange(3.0), 2.5, x), (x,)),
        ("an argument that is not used", lambda x, y: x, (x, x)),
        ("Python's numbers", lambda x, y: (x * y, x + y, x > y), (2.0, 3)),
        ("no axes", _no_axes, (np.array(2.0),)),
        ("axes of one element", _single, (np.ones((1, 1)),)),
        ("no elements", _empty, (np.zeros((0, 4)),)),
        ("no rows are read", pb.grad(lambda x: pb.sum(x[np.zeros(0, int)])), (x,)),
        ("booleans", _booleans, (x > 0, x < 0.5)),
        ("numbers of other kinds", lambda x: (pb.astype(x, bool), pb.logical_not(x), pb.astype(x, np.int32)),
         (np.array([0.0, -0.0, 0.3, 1.9]),)),
        ("orders with NaN", _orders, (unordered,)),
        ("products", _products, (x,)),
        ("products of integers", lambda x: (pb.prod(x, axis=1), pb.prod(x > 1)), (small,)),
        ("products of nothing", lambda x: (pb.prod(x, axis=0), pb.prod(x)), (np.zeros((0, 3), np.float32),)),
        ("running extremes", _running_extremes, (unordered,)),
        ("places in sorted arrays", _searches, (np.array([-np.inf, 0.0, 1.0, 1.0, np.nan]), unordered)),
        ("places in nothing", _searches, (np.zeros(0), x)),
        ("quantiles", _quantiles, (x,)),
        ("sums of products", _sums_of_products, (x,)),
        ("rows and places", _rows_and_places, (x, np.array([-1, 0, 2]))),
        ("captured by a scan", lambda x: pb.scan(lambda c, r: (c * held[0] + x[1], c), x[0], x), (x,)),
        ("captured by a while_loop", lambda x: pb.while_loop(
            lambda s: pb.sum(s) < 50, lambda s: s + x * x + held, x), (x,)),
        ("rows in trees, an integer carried", lambda x: pb.scan(lambda c, r: (c + 1, (r, c > 1)), 0, x), (x,)),
        ("a scan from the end", lambda x: pb.scan(lambda c, r: (c / 2 + pb.sum(r), c), 0.0, x, reverse=True), (x,)),
        ("a scan over nothing", lambda x: pb.scan(lambda c, r: (c + pb.sum(r), c), 0.0, x), (np.zeros((0, 3)),)),
        ("a scan in a scan", lambda x: pb.scan(
            lambda c, r: (pb.scan(lambda d, q: (d + q * c, d), c, r)[0], c), 1.0, x), (x,)),
        ("a cond in a scan", lambda x: pb.scan(
            lambda c, r: (pb.cond(c > 0, lambda: c - 1, lambda: c + pb.sum(r)), c), 0.0, x), (x,)),
        ("one of three", lambda i, x: pb.switch(i, [lambda x: x + 1, lambda x: x * 2, pb.sin], x), (2, x)),
        ("a way with one result twice", lambda x: pb.cond(
            pb.sum(x) > 0, lambda x: (x, x), lambda x: (x, x + 1), x), (x,)),
        ("systems", _systems, (np.random.default_rng(9).normal(size=(4, 4)), x.T)),
        ("spectra", lambda b: _spectra(b[:, :3], b), (x,)),
        ("a matrix exponential", lambda a: pb.linalg.expm(pb.stack([3 * a, 0.1 * a])), (x[:, :3],)),
        *((f"factors of {t}", _factors, (spd.astype(t), x[:, 0].astype(t))) for t in ("int32", "float16")),
        ("singular matrices", _singular, (np.array([[0.0, 0, 1], [0, 0, 2], [0, 0, 3]]),)),
        ("matrices of no elements", lambda x: (pb.linalg.det(x), pb.linalg.inv(x)), (np.zeros((0, 0)),)),
        ("convolutions", _convolutions, (x[0].astype(np.float32), np.arange(3, dtype=np.float32))),
        ("convolutions of integers", lambda x: pb.convolve(x, x), (np.arange(4),)),
        ("extremes by place", _extremes_by_place, (x, np.array([1, 1, 3]))),
        ("a normal draw from a key", lambda key: pb.random.normal(key=key, size=5), (pb.random.key(4),)),
        ("a Jacobian", pb.jacobian(lambda v: pb.tanh(v) * pb.sum(v)), (x[0],)),
    ]  # fmt: skip


def _of_each_kind(x):
    return x + x, pb.sum(x, axis=1), pb.max(x), pb.sort(x, axis=1), pb.astype(x, np.float32) / 2, x > 1, pb.isnan(x)


def _of_half(x):
    return pb.multiply(x, x), pb.sum(x), pb.sort(x, axis=1), pb.isnan(x), pb.astype(x, np.float32), pb.cumsum(x)


def _divisions(a, b):
    return pb.floor_divide(a, b), pb.remainder(a, b), pb.fmod(a, b), a // 3, a % 3, pb.bitwise_right_shift(a, 1)


def _ends(dtype):
    """The least and greatest integers and what they are divided by, known and not."""
    ends = np.iinfo(dtype)
    a = np.array([ends.min, ends.min, ends.min, ends.min + 1, ends.max, ends.max, ends.min, 0], dtype)
    yield a, np.array([-1, 3, -3, 7, 7, -7, 0, -1], dtype)
    yield a, np.full(8, 3, dtype)


def _powers(x, y):
    return x**y, x**0, x**1, x**7, y ** np.array([2]), pb.power(x[0], y)


def _factors(a, b):
    """Of matrices in a dtype that is computed in another one."""
    n = pb.linalg
    return n.solve(a, b), n.inv(a), n.slogdet(a), n.lu(a), n.pinv(a), n.eigvalsh(a), n.cholesky(a), n.expm(a)


def _systems(a, b):
    spd, n = a @ a.T + np.eye(len(a)), pb.linalg
    return (n.solve(pb.stack([a, spd]), b), n.slogdet(a), n.lu(a), n.qr(a), n.cholesky(spd),
            pb.grad(lambda a: pb.sum(pb.sin(n.solve(a, b))))(a))  # fmt: skip


def _spectra(a, b):
    w, v = pb.linalg.eigh(np.stack([a + a.T, np.eye(len(a)), 0 * a]))
    u, d, vh = pb.linalg.svd(b, full_matrices=False)
    # the rank is one less than it could be
    return v * w[:, None] @ pb.matrix_transpose(v), u * d @ vh, w, d, pb.grad(pb.linalg.det)(a - a[:1])


def _singular(x):
    return pb.linalg.slogdet(x), pb.linalg.lu(x), pb.linalg.qr(x, mode="complete")


def _convolutions(x, y):
    return pb.convolve(x, y), pb.correlate(x, y, "same"), pb.grad(lambda x: pb.sum(pb.convolve(x, y) ** 2))(x)


def _extremes_by_place(x, i):
    found = pb.segment_max(x, i, 4), pb.segment_min(x, i, 4)
    return *found, pb.grad(lambda x: pb.sum(pb.segment_max(x, i, 4)[1]))(x), pb.partition(x, 1, axis=0)[1]


def likelihoods():
    """(name, function, arguments) of losses by special functions, with their gradients."""
    d, x = pb.distributions, np.array([0.3, 1.7, 6.0])
    ways = {
        "Gamma": lambda a, v: d.Gamma(a, 2.0).log_prob(v), "Beta": lambda a, v: d.Beta(a, 2.0).log_prob(v / 10),
        "Poisson": lambda a, v: d.Poisson(a).log_prob(pb.rint(v)), "StudentT": lambda a, v: d.StudentT(a).log_prob(v),
    }  # fmt: skip
    return [
        (name, lambda a, v, f=f: pb.value_and_grad(lambda a: pb.sum(f(a, v)))(a), (x + 0.9, x))
        for name, f in ways.items()
    ]


def digits():
    """(name, function, arguments) of special functions, compared to nearly all digits."""
    s, p = pb.special, np.array([1e-300, 1e-12, 0.01, 0.2, 0.25, 0.499, 0.53, 0.7, 0.77, 0.999999, 1.0 - 1e-15])
    x = np.concatenate([np.linspace(-6.5, 6.5, 131), [0.0, 1e-300, np.inf, -np.inf, np.nan]])
    right = np.array([1e-300, 1e-9, 0.3, 0.5, 0.9, 0.99, 1.3, 1.5, 2.4, 2.6, 7.9, 8.1, 20.0, 33.3, 150.5])
    left = np.array([-0.3, -0.98, -1.5, -5.25, -20.4, 0.0, -1.0, -2.0, np.inf, np.nan])

    def normal(x, p):
        return (s.erfc(x), s.erfcx(x), s.log_ndtr(5 * pb.minimum(x, 1.0)), s.erfinv(2 * p - 1), s.erfcinv(2 * p),
                s.ndtri_exp(pb.log(p)))  # fmt: skip

    def gammas(x, y):
        sides = [f(z) for f in (s.gamma, s.rgamma, s.lgamma, s.digamma) for z in (x, y)]
        pairs = s.polygamma(1, x), s.polygamma(2, y), s.zeta(3, x), s.betaln(x, 2.5), s.beta(0.3, x)
        return *sides, *pairs, s.i0e(x), s.i1(x)

    functions = ("erf", pb.erf, (x,)), ("normals", normal, (x, p)), ("gammas", gammas, (right, left))
    return [(f"digits of {name}", *rest) for name, *rest in functions]


def complex_programs():
    """(name, function, arguments) of programs with complex numbers inside."""
    rng = np.random.default_rng(6)
    x, y, grid = rng.normal(size=(4, 4)), rng.normal(size=(4, 4)), rng.normal(size=(2, 3, 2, 3, 2))
    words = (pb.exp, pb.expm1, pb.log, pb.log1p, pb.sqrt, pb.sin, pb.cos, pb.tan, pb.tanh, pb.sinh, pb.cosh, pb.square,
             pb.abs, pb.real, pb.conj, pb.angle, pb.sign, pb.log2, pb.isnan, pb.isinf)  # fmt: skip
    flags = np.array([[0.0, 1.0, -1.0, 0.0]] * 4)
    far = np.array([0.0, 1e-9, -1e-9, 1.0, -1.0, 0.6, 0.8, 3.0, -40.0, 1e200])
    a, b = (m.reshape(-1)[1:] for m in np.meshgrid(far[:-2], far[:-2]))
    power = pb.value_and_grad(lambda x: pb.sum(pb.abs(pb.fft.rfft(x)) ** 2))

    def of(f):
        return lambda x, y: _split_complex(f(x + 1j * y))

    def transforms(z):
        return pb.fft.fftn(z, norm="ortho"), pb.fft.ifft(z, n=6), pb.fft.irfft(z, n=5, axis=0), pb.fft.hfft(z)

    def systems(z):
        return pb.linalg.solve(z, z.T), pb.linalg.slogdet(z), pb.linalg.cholesky(z @ pb.conj(z.T) + np.eye(4))

    def moves(z):
        places = np.array([2, 0])
        return z.T, z[::-1, 1], z[places], pb.sum(z), pb.cumsum(z, axis=0), pb.grad(lambda x: pb.sum(
            pb.abs((x + z)[places])))(z.real), pb.concat([z, z]), pb.einsum("ij,jk,lk->il", z, z.real, z)  # fmt: skip

    def carried(z):
        n = pb.while_loop(lambda c: pb.abs(c[0]) < 9, lambda c: c * z[0], z[0])
        return pb.scan(lambda c, r: (c * r, c), z[0], z), n, pb.cond(pb.abs(z[0, 0]) > 1, lambda z: z, pb.conj, z)

    return [
        ("words of complex numbers", of(lambda z: [f(z) for f in words]), (a, b)),
        ("the same in single precision", of(lambda z: [f(z) for f in words[::5]]), (np.float32(a), np.float32(b))),
        ("pairs", of(lambda z: (z + x, z * 1j, x / z, z / (1e200 * z), z == x, z @ x.T)), (x, y)),
        ("powers", of(lambda z: (z**x, z**0, (z * 0) ** 2, z ** (1 + 2j))), (x, y)),
        ("moves", of(moves), (x, y)),
        ("constants", of(lambda z: (z + np.array([1j, 2, 0, 1]), np.full(3, 2j), pb.astype(z.real, complex))), (x, y)),
        ("truth", of(lambda z: (pb.any(z), pb.all(z, axis=0), pb.logical_not(z), pb.where(z, z, x))), (flags, flags)),
        ("a spectrum, and its gradient", power, (x,)),
        ("the same of an odd number of points", power, (np.float32(x[:, :3]),)),
        ("transforms", of(transforms), (x, y)),
        ("transforms over many axes", lambda x: _split_complex((pb.fft.fftn(x), pb.fft.rfftn(x))), (grid,)),
        ("a convolution by transforms", lambda x: pb.fft.irfft(pb.fft.rfft(x, 8) * pb.fft.rfft(x[::-1], 8), 8), (x,)),
        ("no signals", lambda x: _split_complex(pb.fft.fft(x)), (np.zeros((0, 3)),)),
        ("complex systems", of(systems), (x, y)),
        ("loops with complex numbers", of(carried), (x, y)),
    ]  # fmt: skip


def corners_of_words():
    """(name, function, arguments) of elementwise ops where formulas are easily wrong, and of each dtype."""
    x = np.array([0.0, -0.0, 1e-12, -1e-12, 1.0, -1.0, 50.0, -50.0, 1e300, np.inf, -np.inf, np.nan])
    a, b = (m.reshape(-1) for m in np.meshgrid(x, x))
    finite = ~(np.isnan(a) | np.isnan(b))
    fine = np.concatenate([np.linspace(-1, 1, 41), [1e-300, 1e-9, 0.999999, 3.0, 19.0, 21.0, 709.9, 1e9, -np.inf]])
    words = (pb.log1p, pb.expm1, pb.cbrt, pb.trunc, pb.signbit, pb.isfinite, pb.log2, pb.exp2)
    curves = (pb.asin, pb.acos, pb.atan, pb.sinh, pb.cosh, pb.asinh, pb.acosh, pb.atanh, pb.tan, pb.tanh, pb.sigmoid)
    pairs = (pb.hypot, pb.atan2, pb.logaddexp, pb.copysign, pb.fmax, pb.fmin, pb.heaviside, pb.remainder, pb.power,
             pb.floor_divide)  # fmt: skip
    edges = np.array(
        [0.0, -0.0, 1e-300, 0.25, 0.4999999, 0.5, 0.7, 1.0 - 1e-12, 1.0, 40.0, -1.0, np.inf, -np.inf, np.nan]
    )
    both = tuple(m.reshape(-1) for m in np.meshgrid(edges[[0, 2, 3, 5, 8, 9, 10, 13]], edges[[0, 3, 5, 8, 9, 10, 13]]))
    signed, by = np.array([-7, 7, -7, 7, -8, 0]), np.array([2, -2, -2, 0, 0, 0])
    dtypes = ("float16", "float32", "float64", "int8", "uint8", "int16", "int32", "uint32", "int64", "uint64", "bool")
    counts = np.array([[0, 1, 3], [1, 0, 2]])
    half = np.asarray(pb.tensor([[3.0, 2.5, 1.0], [0.5, -2.0, np.inf]]).astype(pb.bfloat16).value)
    return [
        *((f.__name__, f, (x,)) for f in words),
        *((f.__name__, f, (t,)) for f in curves for t in (fine, fine.astype(np.float32))),
        *((f.__name__, f, (a, b)) for f in pairs),
        *((f.__name__, f, (edges,)) for f in (pb.special.entr, pb.special.logit, pb.special.log_expit)),
        *(
            (f.__name__, f, both)
            for f in (pb.special.rel_entr, pb.special.kl_div, pb.special.xlogy, pb.special.xlog1py)
        ),
        *((f"signs of {f.__name__}", f, (a[finite], b[finite])) for f in (pb.atan2, pb.copysign)),
        *((name, _of_each_kind, (counts.astype(name),)) for name in dtypes),
        ("bfloat16", _of_half, (half,)),
        ("division of integers", _divisions, (signed, by)),
        *((f"division of ends of {t}", _divisions, pair) for t in ("int8", "int32", "int64") for pair in _ends(t)),
        ("running sums of unsigned integers", lambda x: (pb.cumsum(x), pb.max(x)), (np.array([3, 250, 9], np.uint8),)),
        *((f"powers of {t}", _powers, (counts.astype(t) - 1, 9 * counts.astype(t))) for t in ("int8", "uint64")),
        ("division of small integers", _divisions, (abs(signed).astype(np.uint8), by.astype(np.uint8))),
    ]


def refusals(export):
    """For each op the reasons why its samples are refused, None for those that are not. Derivatives by their order are
    left out: there are as many as the process asked for.
    """
    found = defaultdict(list)
    for name, program, _, wanted in op_cases():
        if re.search(r"_\d+-\d+$", name):
            continue
        try:
            if wanted is None:
                raise pb.errors.ExportError("", why="its result is not known without computing it")
            export(program)
        except pb.errors.ExportError as error:
            found[name.rpartition("-")[0]].append(error.why)
        else:
            found[name.rpartition("-")[0]].append(None)
    return found


#: Reasons that differ in a name alone, in the words of the table.
SHORT = {
    "its kernel needs": "needs a word of the scalar vocabulary that the format lacks",
    "for the routine": "a routine of linear algebra that the format lacks",
    "its value is not made": "computed by a library: the record says nothing of how",
    "have an effect": "meets other ranks, or raises",
    "partial orders": "a partial order that is NumPy's own",
    "result is not known": "the shape of the result depends on values",
}


def _shorten(why):
    return next((text for part, text in SHORT.items() if part in why), why)


def table():
    """What each format takes of the ops, as Markdown."""
    lines = ["| | ops | exported | in part | refused |", "|---|---|---|---|---|"]
    by_reason = defaultdict(lambda: defaultdict(set))
    for name, export in FORMATS.items():
        found = refusals(export)
        refused = {op: next(w for w in why if w) for op, why in found.items() if any(why)}
        whole = [op for op in refused if all(found[op])]
        counts = (len(found), len(found) - len(refused), len(refused) - len(whole), len(whole))
        lines.append(f"| {name} | {' | '.join(map(str, counts))} |")
        for op, why in refused.items():
            by_reason[_shorten(why)][op].add(name)
    lines += ["", "Refused, in whole or in part:", ""]
    for why, ops in sorted(by_reason.items()):
        texts = [
            op if len(names) == len(FORMATS) else f"{op} ({', '.join(names)})" for op, names in sorted(ops.items())
        ]
        lines += textwrap.wrap(f"- {why}: {', '.join(texts)}", 120, subsequent_indent="  ")
    return "\n".join(lines) + "\n"


def page_with_table(text):
    """The page with the table of today."""
    before, rest = text.split(BEGIN)
    return before + BEGIN + table() + END + rest.split(END)[1]


if __name__ == "__main__" and "--write" in sys.argv:
    PAGE.write_text(page_with_table(PAGE.read_text()))
