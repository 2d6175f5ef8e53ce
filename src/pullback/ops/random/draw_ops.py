"""The random ops: bits from keys, uniform numbers from bits, and draws that need several of them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...arrays.backends import special_namespace_of, to_host
from ...arrays.spec import Spec, make_spec, spec_of
from ...arrays.value import Value
from ...errors import ArgumentError, DtypeError, GraphError, ShapeError
from ...settings import modes
from .. import basis, batching, statics
from ..dispatch import apply
from ..elementwise.pointwise import multiply, negative, unrecorded
from ..families import broadcast_shape, common_device, general
from ..forms import Expand
from ..special.incomplete_gamma import gamma_moment
from .expansions import MAX_EXPANDED, expand_bits, expand_range, expand_unit
from .threefry import BITS, DRAWS, HIGH, generate_words, join_words, key_batch_shape, sample_key, threefry


def _bits_value(xp: Any, key: Any, shape: tuple[int, ...], width: int) -> Any:
    """A 64-bit word is both words of one block, a 32-bit word is one of them, in order."""
    size, lead = math.prod(shape), key.shape[:-1]
    if width == 32:
        found = generate_words(xp, key, -(-size // 2), BITS).reshape(*lead, -1)[..., :size]
        return found.reshape((*lead, *shape))
    return join_words(generate_words(xp, key, size, BITS, HIGH)).reshape((*lead, *shape))


random_bits = general(
    "random_bits",
    statics={"shape": statics.shape._replace(batching=""), "width": statics.choice(32, 64)},
    value=_bits_value,
    spec=lambda key, shape, width: make_spec((*key_batch_shape(key), *shape), np.dtype(f"uint{width}"), key.device),
    form=Expand(lambda key, shape, width: expand_bits(key, shape, width) if math.prod(shape) <= MAX_EXPANDED else None),
    samples=lambda rng: [
        ((sample_key(rng),), {"shape": shape, "width": width})
        for shape in ((), (5,), (2, 3), (0,))
        for width in (32, 64)
    ],
)


def _unit_value(xp: Any, bits: Any, dtype: Any) -> Any:
    """(k + 1/2) / 2^m of the m highest bits k, m being the mantissa digits of the dtype: exact, never 0 and never 1."""
    digits = _mantissa_digits(dtype)
    wide = np.dtype("float64") if dtype.itemsize == 8 else np.dtype("float32")
    top = (bits >> bits.dtype.type(8 * bits.dtype.itemsize - digits)).astype(wide)
    top += wide.type(0.5)
    top *= wide.type(2.0**-digits)
    return top.astype(dtype, copy=False)


def _unit_spec(bits: Spec, dtype: Any) -> Spec:
    if bits.dtype.name not in ("uint32", "uint64") or 8 * bits.dtype.itemsize < _mantissa_digits(dtype):
        raise DtypeError(f"random_unit: words must have the bits of {dtype}'s mantissa, got {bits.dtype}.")
    return make_spec(bits.shape, dtype, bits.device)


def _mantissa_digits(dtype: Any) -> int:
    return {"float64": 52, "float32": 23, "float16": 10, "bfloat16": 7}[dtype.name]


# Random words as numbers between 0 and 1.
unit = general(
    "random_unit",
    statics={"dtype": statics.floating_dtype},
    value=lambda xp, bits, dtype: _unit_value(xp, xp.atleast_1d(bits), dtype).reshape(bits.shape),
    spec=_unit_spec,
    batch=batching.batch_pointwise,
    form=Expand(lambda bits, dtype: expand_unit(bits, dtype, _mantissa_digits(dtype))),
    samples=lambda rng: [
        ((rng.integers(0, 2**64 - 1, size=shape, dtype=np.uint64),), {"dtype": np.dtype("float64")})
        for shape in ((3,), (2, 0))
    ],
)


#: Elements at a time, so that attempts stay in the cache.
_BLOCK = 1 << 13


def _log_gamma_value(xp: Any, key: Any, a: Any) -> Any:
    """log x with x ~ gamma(a): Marsaglia and Tsang's method ("A simple method for generating gamma variables", 2000).

    x = d v, v = (1 + z / sqrt(9 d))^3, d = a - 1/3, accepted if log u < z^2 / 2 + d (1 - v + log v). Below a = 1 a draw
    for
    a + 1 times u^(1/a) is taken, in logs since it may underflow. Attempt t of element i reads counters (2t, i)
    and (2t + 1, i), so an element depends on its key, its index and its own a alone.
    """
    if a.dtype.kind == "c":
        raise DtypeError(f"random.gamma: the shape must be real, got {a.dtype}.")
    rank = key.ndim - 1
    lead = np.broadcast_shapes(key.shape[:-1], a.shape[:rank])
    shape = (*lead, *a.shape[rank:])
    inner = math.prod(a.shape[rank:])
    place = xp.broadcast_to(xp.arange(inner, dtype="uint32"), (math.prod(lead), inner)).reshape(-1)
    keys = xp.broadcast_to(key.reshape(*key.shape[:-1], 1, 2), (*lead, inner, 2)).reshape(-1, 2)
    wide = xp.broadcast_to(a, shape).astype("float64").reshape(-1)
    out = xp.empty(wide.shape)
    with np.errstate(all="ignore"):
        for start in range(0, wide.size, _BLOCK):
            part = slice(start, start + _BLOCK)
            out[part] = _log_gamma_block(xp, keys[part], place[part], wide[part])
    return out.reshape(shape).astype(a.dtype, copy=False)


def _log_gamma_block(xp: Any, keys: Any, place: Any, a: Any) -> Any:
    out = _accept_attempts(xp, keys, place, xp.where(a < 1, a + 1, a))
    boost = xp.log(_uniform_at(xp, keys, place, 0x00FFFFFF)) / a
    return xp.where(a > 0, xp.where(a < 1, out + boost, out), xp.nan)


def _accept_attempts(xp: Any, keys: Any, place: Any, a: Any) -> Any:
    """Attempts for all elements, then for the rejected ones, until none are left."""
    out = xp.full(a.shape, xp.nan)
    left = xp.nonzero((a >= 1) & (a < xp.inf))[0]
    attempt = 0
    while left.size:
        d = a[left] - 1 / 3
        z = special_namespace_of(xp).ndtri(_uniform_at(xp, keys[left], place[left], 2 * attempt))
        u = _uniform_at(xp, keys[left], place[left], 2 * attempt + 1)
        v = (1 + z / xp.sqrt(9 * d)) ** 3
        # For huge shapes the proposal is exact to rounding, and the test would only measure rounding.
        kept = (v > 0) & ((d > 1e10) | (xp.log(u) < z * z / 2 + d * (1 - v + xp.log(v))))
        out[left[kept]] = xp.log(d[kept]) + xp.log(v[kept])
        left, attempt = left[~kept], attempt + 1
    return out


def _uniform_at(xp: Any, keys: Any, place: Any, number: int) -> Any:
    high = xp.full(place.shape, DRAWS | number, "uint32")
    a, b = threefry(xp, (keys[:, 0], keys[:, 1]), (high, place))
    pairs = xp.stack((b, a) if HIGH else (a, b), axis=-1)
    return _unit_value(xp, join_words(pairs), np.dtype("float64"))


def _log_gamma_spec(key: Spec, a: Spec) -> Spec:
    rank = len(key_batch_shape(key))
    return make_spec((*broadcast_shape("gamma", key.shape[:-1], a.shape[:rank]), *a.shape[rank:]), a.dtype, a.device)


def _batch_log_gamma(op: Any, size: int, args: Any, axes: Any, static: dict[str, Any]) -> tuple[Any, int]:
    """Both get one more axis in front: the batch axis, or one of size one."""
    moved = [
        basis.reshape(x, (1, *spec_of(x).shape)) if axis is None else batching.move_batch_first(x, axis)
        for x, axis in zip(args, axes, strict=True)
    ]
    return apply(op, *moved), 0


# At a fixed probability P_a + P_x dx/da = 0, which in y = log x is dy/da = -T_1(a, y); see `incomplete_gamma`.
def _log_gamma_slope(factor: Any, out: Any, a: Any) -> Any:
    return negative(multiply(factor, gamma_moment(1)(a, out)))


# The log of a gamma variable; its derivative in the shape is implicit, at a fixed probability.
log_gamma = general(
    "log_gamma_draw",
    value=_log_gamma_value,
    spec=_log_gamma_spec,
    pulls={"a": lambda bar, out, a: _log_gamma_slope(bar, out, a)},
    push=lambda tangents, out, primals, static: (
        None if tangents[1] is None else _log_gamma_slope(tangents[1], out, primals[1])
    ),
    batch=_batch_log_gamma,
    samples=lambda rng: [((sample_key(rng), rng.uniform(0.5, 4.0, size=shape)), {}) for shape in ((3,), (), (2, 0))],
)


def _integer_draw(name: str, quantile: Any, args: tuple[str, ...], samples: Any) -> Any:
    """An op for integer draws from uniform numbers between 0 and 1, without derivative. The host computes them: CuPy
    has no inverses of these distribution functions.
    """

    def value(xp: Any, *arrays: Any) -> Any:
        on_host = [np.asarray(to_host(x), "float64") for x in arrays]
        found = quantile(special_namespace_of(np), *on_host)
        if not np.all(found < 2.0**63):
            got = ", ".join(f"{arg} from {x.min()} to {x.max()}" for arg, x in zip(args[1:], on_host[1:], strict=True))
            raise ArgumentError(f"random.{name.removesuffix('_draw')}: no int64 is a draw of these parameters: {got}.")
        return xp.asarray(found.astype("int64"))

    def spec(*specs: Spec) -> Spec:
        shape = broadcast_shape(name, *(s.shape for s in specs))
        return make_spec(shape, np.dtype("int64"), common_device(name, specs))

    return general(name, args=args, value=value, spec=spec, batch=batching.batch_pointwise, samples=samples)


def _least_integer(found: Any, below: Any, u: Any) -> Any:
    """The least integer whose distribution function reaches u, from a real solution of that equation."""
    up = np.ceil(found)
    down = np.maximum(up - 1, 0)
    return np.where(below(down) >= u, down, up)


def _poisson_quantile(library: Any, u: Any, rate: Any) -> Any:
    with np.errstate(all="ignore"):
        is_large = rate > 1e9
        near = np.where((rate > 0) & ~is_large, rate, 1.0)
        found = _least_integer(library.pdtrik(u, near), lambda k: library.pdtr(k, near), u)
        # where SciPy's search fails: the normal quantile and its first correction, right to 1 / rate in probability
        z = library.ndtri(u)
        far = np.ceil(rate + z * np.sqrt(rate) + (z * z - 1.0) / 6.0 - 0.5)
        return np.where(is_large, far, np.where(rate > 0, found, np.where(rate == 0, 0.0, np.nan)))


def _binomial_quantile(library: Any, u: Any, n: Any, p: Any) -> Any:
    with np.errstate(all="ignore"):
        inside = (p > 0) & (p < 1)
        q = np.where(inside, p, 0.5)
        found = _least_integer(library.bdtrik(u, n, q), lambda k: library.bdtr(k, np.round(n).astype("int64"), q), u)
        return np.where(n <= 0, 0.0, np.where(inside, np.minimum(found, n), np.where(p >= 1, n, 0.0)))


poisson_draw = _integer_draw(
    "poisson_draw",
    _poisson_quantile,
    ("u", "rate"),
    lambda rng: [((rng.random(3), rng.uniform(0.5, 9.0, size=3)), {}), ((rng.random((2, 1)), rng.random(3) + 20), {})],
)
binomial_draw = _integer_draw(
    "binomial_draw",
    _binomial_quantile,
    ("u", "n", "p"),
    lambda rng: [((rng.random(3), np.array([3, 9, 20]), rng.uniform(0.1, 0.9, size=3)), {})],
)
# Random words as integers from low up to, not including, high.
range_draw = general(
    "random_ranged",
    value=lambda xp, bits, low, high: (
        xp.asarray(low, "int64") + (bits % xp.asarray(xp.asarray(high) - xp.asarray(low), "uint64")).astype("int64")
    ),
    spec=lambda bits, low, high: make_spec(
        broadcast_shape("integers", bits.shape, low.shape, high.shape), np.dtype("int64"), bits.device
    ),
    batch=batching.batch_pointwise,
    form=Expand(expand_range),
    samples=lambda rng: [
        ((rng.integers(0, 2**64 - 1, size=4, dtype=np.uint64), np.asarray(-3), np.asarray([5, 6, 7, 8])), {})
    ],
)


#: What functions of distributions have no derivative by, and what to do.
_MISSING = {
    "measure_valued": "it has first derivatives by the parameters of the distribution, and a second is asked for.\n"
    "  pb.distributions.score_function has derivatives of every order.",
    "mcmc": "draws are accepted or refused by chance, so they jump as what the density depends on moves: the "
    "derivative of a mean over them is not that of the expectation.\n  Hold it constant (pb.stop_gradient); for "
    "derivatives use pb.distributions.elbo or laplace_approximation, or weigh fixed draws by a ratio of densities.",
    "kl_divergence": "the closed form for counts is that of equal total_counts, and has no derivative by them.\n"
    "  Pass pb.stop_gradient(total_count), or differentiate by the probabilities alone.",
}


def refuse_derivatives(*parameters: Any, what: str) -> None:
    """Raise where a parameter of a draw that is constant carries a derivative: the draw has none, while its mean does.
    `what` is a sampler of `pb.random`, or a method of a distribution ("Normal.sample").
    """
    if not any(isinstance(p, Value) and p.is_tracked for p in parameters):
        return
    if what in _MISSING:
        raise GraphError(f"{what}: {_MISSING[what]}")
    if "." in what:
        raise GraphError(
            f"distributions.{what}: a drawn value is a constant, and the derivative that a parameter carries would be "
            "lost.\n  Use rsample for a draw that moves with its parameters, where there is one; detach().sample(...) "
            "to hold them constant, as an estimator by log-probabilities does; or pb.distributions.score_function."
        )
    raise GraphError(
        f"random.{what}: a discrete draw has no derivative in its parameters, and one of them carries one.\n"
        "  Write pb.stop_gradient(p) to hold it constant, as an estimator by log-probabilities does; or relax the "
        "draw: pb.random.gumbel_softmax, pb.straight_through."
    )


# The value itself, which a discrete draw has for a parameter: no program may be differentiated by it.
discrete_parameter = general(
    "discrete_parameter",
    statics={"what": statics.text},
    value=lambda xp, x, what: x,
    samples=lambda rng: [((rng.random(shape),), {"what": "bernoulli"}) for shape in ((3,), (2, 2), ())],
    form=Expand(lambda x, what: x),
    meet=refuse_derivatives,
)


def held(what: str, p: Any) -> Any:
    """A parameter of a discrete draw, which carries no derivative; a program that is written here remembers that. Under
    `no_grad` nothing goes back through a draw, as through any op.
    """
    p = p if modes().grad or not isinstance(p, Value) else unrecorded(p)
    refuse_derivatives(p, what=what)
    return apply(discrete_parameter, p, what=what) if isinstance(p, Value) and spec_of(p).inexact else p


def _order_spec(bits: Spec) -> Spec:
    if not bits.shape:
        raise ShapeError(f"random_order: wants words along an axis, got {bits}.")
    return make_spec(bits.shape, np.dtype(np.intp), bits.device)


# The indices of random words in ascending order along the last axis: a permutation.
order_draw = general(
    "random_order",
    value=lambda xp, bits: xp.argsort(bits, axis=-1, kind="stable"),
    spec=_order_spec,
    samples=lambda rng: [((rng.integers(0, 2**64 - 1, size=shape, dtype=np.uint64),), {}) for shape in ((4,), (2, 3))],
)
