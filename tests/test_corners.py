"""Where a function has no derivative, several, or an infinite one: the choices of docs/corners.md, to second order."""

import math
import struct

import numpy as np
import pytest

import pullback as pb
from pullback import errors, jvp, ops
from pullback.arrays.spec import spec_of
from pullback.ops.op import OPS
from pullback.ops.reduce.reductions import any_to
from pullback.tape.cotangent_masks import RuleCall, propagate_mask

INF, NAN = math.inf, math.nan

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*:RuntimeWarning"
)  # NumPy's words about infinities in the forward pass


def leaf(data, dtype=np.float64):
    return pb.tensor(data, dtype=dtype, requires_grad=True)


def slopes(f, *points, dtype=np.float64, **options):
    """The gradient of sum(f) at each argument."""
    leaves = [leaf(p, dtype) for p in points]
    found = pb.gradients(pb.sum(f(*leaves)), leaves, allow_unused=True, **options)
    return [g.detach().tolist() for g in found]


CORNERS = {
    "relu": (pb.relu, [[-1.0, 0.0, -0.0, 2.0]], [[0.0, 0.0, 0.0, 1.0]]),
    "abs": (pb.abs, [[-2.0, 0.0, -0.0, 3.0]], [[-1.0, 0.0, 0.0, 1.0]]),
    "sign": (pb.sign, [[-2.0, 0.0, 3.0]], [[0.0, 0.0, 0.0]]),
    "maximum": (pb.maximum, [[1.0, 2.0, 4.0], [1.0, 3.0, 3.0]], [[0.5, 0.0, 1.0], [0.5, 1.0, 0.0]]),
    "minimum": (pb.minimum, [[1.0, 2.0, 4.0], [1.0, 3.0, 3.0]], [[0.5, 1.0, 0.0], [0.5, 0.0, 1.0]]),
    "maximum of equal infinities": (pb.maximum, [[INF, -INF], [INF, -INF]], [[0.5, 0.5], [0.5, 0.5]]),
    "maximum with a number": (lambda x: pb.maximum(x, 1.0), [[0.0, 1.0, 2.0]], [[0.0, 0.5, 1.0]]),
    "max": (pb.max, [[3.0, 1.0, 3.0]], [[0.5, 0.0, 0.5]]),
    "max of all equal": (pb.max, [[2.0, 2.0, 2.0, 2.0]], [[0.25] * 4]),
    "max along an axis": (lambda x: pb.max(x, axis=1), [[[1.0, 1.0], [2.0, 3.0]]], [[[0.5, 0.5], [0.0, 1.0]]]),
    "max of infinities": (pb.max, [[INF, 1.0, INF]], [[0.5, 0.0, 0.5]]),
    "min": (pb.min, [[3.0, 1.0, 1.0, 1.0, 1.0]], [[0.0, 0.25, 0.25, 0.25, 0.25]]),
    "sqrt": (pb.sqrt, [[0.0, 4.0]], [[INF, 0.25]]),
    "clip": (lambda x: pb.clip(x, 0.0, 1.0), [[-1.0, 0.0, 0.5, 1.0, 2.0, NAN]], [[0.0, 1.0, 1.0, 1.0, 0.0, 0.0]]),
    "clip below only": (lambda x: pb.clip(x, min=0.0), [[-1.0, 0.0, 9.0]], [[0.0, 1.0, 1.0]]),
    "clip above only": (lambda x: pb.clip(x, max=0.0), [[-1.0, 0.0, 9.0]], [[1.0, 1.0, 0.0]]),
    "power 0": (lambda x: x**0.0, [[0.0, 2.0, -3.0]], [[0.0, 0.0, 0.0]]),
    "power 0 as an integer": (lambda x: x**0, [[0.0, 2.0]], [[0.0, 0.0]]),
    "power 0 as an array": (lambda x: pb.power(x, np.array([0.0, 0.0, 2.0])), [[0.0, 2.0, 0.0]], [[0.0, 0.0, 0.0]]),
    "power 1 at 0": (lambda x: x**1.0, [[0.0]], [[1.0]]),
    "power 2 at 0": (lambda x: pb.power(x, 2.0), [[0.0]], [[0.0]]),
    "power of a negative base": (lambda x: x**3.0, [[-2.0]], [[12.0]]),
    "square root as a power": (lambda x: x**0.5, [[4.0, 0.0]], [[0.25, INF]]),
    "exponent at base 0": (pb.power, [[0.0, 0.0], [2.0, 0.0]], [[0.0, 0.0], [0.0, 0.0]]),
    "exponent over the number 0": (lambda y: 0.0**y, [[2.0]], [[0.0]]),
    "where, branch not taken": (lambda x: pb.where(x > 0, pb.sqrt(x), 0.0), [[0.0, 4.0]], [[0.0, 0.25]]),
    "where, log of a negative": (lambda x: pb.where(x > 0, pb.log(x), x), [[-1.0, 2.0]], [[1.0, 0.5]]),
    "where, sin(x)/x": (lambda x: pb.where(x == 0, 1.0, pb.sin(x) / x), [[0.0, math.pi]], [[0.0, -1 / math.pi]]),
    "where, a NaN that counts": (lambda x: pb.where(x > 0, x * NAN, x), [[-1.0]], [[1.0]]),
    "atan2 at the origin": (pb.atan2, [[0.0, 1.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, -1.0]]),
    "std of equal elements": (pb.std, [[2.0, 2.0, 2.0]], [[0.0, 0.0, 0.0]]),
    "std of one element": (pb.std, [[2.0]], [[0.0]]),
    "var of equal elements": (pb.var, [[2.0, 2.0]], [[0.0, 0.0]]),
    "logsumexp with -inf": (pb.logsumexp, [[-INF, 0.0, 0.0]], [[0.0, 0.5, 0.5]]),
    "logsumexp of large numbers": (pb.logsumexp, [[1000.0, 1000.0]], [[0.5, 0.5]]),
    "softmax of large numbers": (lambda x: pb.softmax(x)[0], [[1000.0, 0.0]], [[0.0, 0.0]]),
    "log_softmax with -inf": (lambda x: pb.log_softmax(x)[1], [[-INF, 0.0, 0.0]], [[0.0, 0.5, -0.5]]),
    "prod with one zero": (pb.prod, [[0.0, 2.0, 3.0]], [[6.0, 0.0, 0.0]]),
    "prod with two zeros": (pb.prod, [[0.0, 2.0, 0.0]], [[0.0, 0.0, 0.0]]),
    "prod of one": (pb.prod, [[0.0]], [[1.0]]),
    "softplus at 0": (pb.softplus, [[0.0]], [[0.5]]),
    "softplus far out": (pb.softplus, [[-1000.0, 1000.0]], [[0.0, 1.0]]),
    "sigmoid far out": (pb.sigmoid, [[-1000.0, 1000.0]], [[0.0, 0.0]]),
    "silu far out": (pb.silu, [[-1000.0, 1000.0]], [[0.0, 1.0]]),
    "gelu far out": (pb.gelu, [[-1000.0, 1000.0]], [[0.0, 1.0]]),
    "gelu by tanh far out": (lambda x: pb.gelu(x, approximate=True), [[-30.0, 30.0]], [[0.0, 1.0]]),
    "tanh far out": (pb.tanh, [[-1000.0, 1000.0]], [[0.0, 0.0]]),
    "log1p": (pb.log1p, [[-0.4, 0.0, 1.5]], [[1 / 0.6, 1.0, 0.4]]),
    "asin at 1": (pb.asin, [[0.0, 1.0]], [[1.0, INF]]),
    "log at 0": (pb.log, [[0.0]], [[INF]]),
    "heaviside": (lambda x: pb.heaviside(x, 0.5), [[-1.0, 0.0, 1.0]], [[0.0, 0.0, 0.0]]),
    "mean of float16 does not overflow": (pb.mean, [[6e4, 6e4]], [[0.5, 0.5]]),
    "divide": (pb.divide, [[3.0, 5.0], [2.0]], [[0.5, 0.5], [-2.0]]),
    "hypot at the origin": (pb.hypot, [[0.0, 3.0], [0.0, 4.0]], [[0.0, 0.6], [0.0, 0.8]]),
    "sinc at 0": (pb.sinc, [[0.0]], [[0.0]]),
    "logaddexp of nothing": (pb.logaddexp, [[-INF, -INF], [-INF, 0.0]], [[0.5, 0.0], [0.5, 1.0]]),
    "logaddexp2 of nothing": (pb.logaddexp2, [[-INF], [-INF]], [[0.5], [0.5]]),
    "xlogy at 0": (pb.xlogy, [[0.0, 0.0, 2.0], [0.0, -1.0, 4.0]], [[0.0, 0.0, math.log(4)], [0.0, 0.0, 0.5]]),
    "xlogy at x = 0, y > 0": (pb.xlogy, [[0.0], [math.e**2]], [[2.0], [0.0]]),
    "cbrt": (pb.cbrt, [[0.0, 8.0]], [[INF, 1 / 12]]),
    "atanh at 1": (pb.atanh, [[0.0, 1.0]], [[1.0, INF]]),
    "acosh at 1": (pb.acosh, [[1.0]], [[INF]]),
    "reciprocal at 0": (pb.reciprocal, [[0.0, 2.0]], [[-INF, -0.25]]),
    "rsqrt at 0": (pb.rsqrt, [[0.0, 4.0]], [[-INF, -0.0625]]),
    "copysign": (pb.copysign, [[2.0, 0.0, -3.0], [-1.0, 1.0, -1.0]], [[-1.0, 0.0, 1.0], [0.0, 0.0, 0.0]]),
    "nextafter": (lambda x: pb.nextafter(x, 9.0), [[1.0]], [[1.0]]),
    "rounding": (
        lambda x: pb.floor(x) + pb.ceil(x) + pb.trunc(x) + pb.round(x) + pb.round(x, 1) + pb.floor_divide(x, 2.0),
        [[0.5, 1.0, -2.5]], [[0.0, 0.0, 0.0]],
    ),
    "remainder at a multiple": (pb.remainder, [[4.0, -3.0], [2.0, 2.0]], [[1.0, 1.0], [-2.0, 2.0]]),
    "fmod at a multiple": (pb.fmod, [[4.0, -3.0], [2.0, 2.0]], [[1.0, 1.0], [-2.0, 1.0]]),
    "fmax passes NaN over": (pb.fmax, [[NAN, 1.0, 1.0], [2.0, NAN, 1.0]], [[0.0, 1.0, 0.5], [1.0, 0.0, 0.5]]),
    "fmin passes NaN over": (pb.fmin, [[NAN, 1.0, 1.0], [2.0, NAN, 1.0]], [[0.0, 1.0, 0.5], [1.0, 0.0, 0.5]]),
    "nan_to_num": (pb.nan_to_num, [[NAN, INF, -INF, 2.0]], [[0.0, 0.0, 0.0, 1.0]]),
    "interp at a sample": (
        lambda x: pb.interp(x, np.array([0.0, 1.0, 2.0]), np.array([0.0, 1.0, 4.0])),
        [[-1.0, 0.0, 1.0, 2.0, 3.0]], [[0.0, 1.0, 3.0, 3.0, 0.0]],
    ),
    "cumulative_sum with a zero": (pb.cumulative_sum, [[0.0, 1.0]], [[2.0, 1.0]]),
}  # fmt: skip


@pytest.mark.parametrize("case", CORNERS)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_corners_in_every_float(case, dtype):
    f, points, wanted = CORNERS[case]
    leaves = [leaf(p, dtype) for p in points]
    found = pb.gradients(pb.sum(f(*leaves)), leaves)
    for g, w in zip(found, wanted, strict=True):
        assert g.dtype == dtype
        np.testing.assert_allclose(g.numpy(), np.asarray(w, dtype), rtol=3 * np.finfo(dtype).eps, atol=1e-12)


@pytest.mark.parametrize("case", CORNERS)
def test_corners_are_the_same_linked_and_on_workers_and_forward(case):
    f, points, wanted = CORNERS[case]
    linked = slopes(f, *points, create_graph=True)
    threaded = slopes(f, *points, workers=2)
    for w, a, b in zip(wanted, linked, threaded, strict=True):
        np.testing.assert_allclose(a, w, rtol=1e-14)
        np.testing.assert_allclose(b, w, rtol=1e-14)
    for i, w in enumerate(wanted):
        if np.isinf(w).any():  # forward, an infinite partial meets a tangent of zero, and 0 * inf has no answer
            continue
        point = np.asarray(points[i])
        for index in np.ndindex(point.shape):
            along = np.zeros(point.shape)
            along[index] = 1.0
            args = [np.asarray(p) for p in points]
            _, tangent = jvp(lambda x, i=i, args=args: pb.sum(f(*args[:i], x, *args[i + 1 :])), (point,), (along,))
            np.testing.assert_allclose(np.asarray(tangent), np.asarray(w)[index], rtol=1e-14)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x > 0,
        pb.isnan,
        pb.argmax,
        pb.isfinite,
        lambda x: x == x,
        pb.any,
        lambda x: x.astype(int),
        pb.logical_not,
    ],
)
def test_results_that_count_or_compare_are_not_tracked(f):
    assert not f(leaf([1.0, 2.0])).requires_grad


SECOND = {
    "relu": (pb.relu, [-1.0, 0.0, 2.0], [0.0, 0.0, 0.0]),
    "abs": (pb.abs, [-2.0, 0.0, 3.0], [0.0, 0.0, 0.0]),
    "max": (pb.max, [3.0, 1.0, 3.0], [0.0, 0.0, 0.0]),
    "square of max": (lambda x: pb.max(x) ** 2, [3.0, 1.0, 3.0], [1.0, 0.0, 1.0]),
    "maximum squared": (lambda x: pb.maximum(x, 1.0) ** 2, [0.0, 2.0], [0.0, 2.0]),
    "where, branch not taken": (lambda x: pb.where(x > 0, pb.sqrt(x), 0.0), [0.0, 4.0], [0.0, -1 / 32]),
    "where, log": (lambda x: pb.where(x > 0, pb.log(x), x**2), [-1.0, 2.0], [2.0, -0.25]),
    "clip squared": (lambda x: pb.clip(x, 0.0, 1.0) ** 2, [-1.0, 0.0, 1.0, 2.0], [0.0, 2.0, 2.0, 0.0]),
    "power 2 at 0": (lambda x: pb.power(x, 2.0), [0.0], [2.0]),
    "power 1 at 0": (lambda x: pb.power(x, 1.0) * 1.0, [0.0], [0.0]),
    "power 3 at 0": (lambda x: x**3.0, [0.0], [0.0]),
    "prod with two zeros": (lambda x: pb.prod(x), [0.0, 2.0, 0.0], [2.0, 0.0, 2.0]),
    "softplus at 0": (pb.softplus, [0.0, 1.0], [0.25, 0.19661193324148185]),
    "silu at 0": (pb.silu, [0.0], [0.5]),
    "logsumexp with -inf": (pb.logsumexp, [-INF, 0.0, 0.0], [0.0, 0.0, 0.0]),
    "atan2 along one side": (lambda y: pb.atan2(y, 1.0), [0.0], [0.0]),
    "log_softmax far out": (lambda x: pb.log_softmax(x)[0], [1000.0, 0.0], [0.0, 0.0]),
    "tanh far out": (pb.tanh, [-1000.0, 1000.0], [0.0, 0.0]),
    "sinc at 0": (pb.sinc, [0.0, 1e-9], [-math.pi**2 / 3, -math.pi**2 / 3]),
    "hypot along one side": (lambda x: pb.hypot(x, 2.0), [0.0], [0.5]),
    "rounding": (lambda x: pb.floor(x) * x, [0.5, 2.5], [0.0, 0.0]),
    "logaddexp of nothing": (lambda x: pb.logaddexp(x, x), [-INF], [0.0]),
    "xlogy at 0": (lambda x: pb.xlogy(x, x), [0.0, 2.0], [0.0, 0.5]),
    "asinh far out": (pb.asinh, [1e200], [0.0]),
}  # fmt: skip


@pytest.mark.parametrize("case", SECOND)
def test_corners_to_second_order(case):
    f, point, wanted = SECOND[case]
    x = leaf(point)
    (g,) = pb.gradients(pb.sum(f(x)), x, create_graph=True)
    (h,) = pb.gradients(pb.sum(g), x) if g.requires_grad else [pb.zeros_like(x)]
    np.testing.assert_allclose(h.numpy(), wanted, rtol=1e-12, atol=1e-12)


BETWEEN = {
    "nothing": lambda s: s,
    "sum": lambda s: pb.sum(s) + pb.zeros(2),
    "sum of a part": lambda s: pb.sum(s[:1]),
    "mean along an axis": lambda s: pb.mean(s.reshape((2, 1)), axis=1),
    "reshape": lambda s: s.reshape((2, 1)).reshape(2),
    "flip": lambda s: pb.flip(pb.flip(s)),
    "basic index": lambda s: s[:],
    "index array": lambda s: s[np.array([0, 1])],
    "concat": lambda s: pb.concat([s[:1], s[1:]]),
    "stack": lambda s: pb.stack([s, s])[0],
    "split": lambda s: pb.concat(pb.split(s, 2)),
    "broadcast": lambda s: pb.broadcast_to(s, (3, 2)),
    "matmul": lambda s: s @ np.eye(2),
    "einsum": lambda s: pb.einsum("i,ij->j", s, np.eye(2)),
    "cumulative_sum": lambda s: pb.cumulative_sum(s) - pb.concat([pb.zeros(1), pb.cumulative_sum(s)[:1]]),
    "pointwise chain": lambda s: pb.exp(pb.log(s) * 2.0) / s,
    "astype": lambda s: s.astype(np.float32).astype(np.float64),
    "max with itself": lambda s: pb.maximum(s, s),
    "another where": lambda s: pb.where(np.array([True, True]), s, 1.0),
    "pad": lambda s: pb.pad(s, 1)[1:-1],
    "roll": lambda s: pb.roll(pb.roll(s, 1), -1),
    "take": lambda s: pb.take(s, [0, 1]),
    "set_at": lambda s: pb.set_at(s, slice(0, 0), 0.0),
    "max": lambda s: pb.max(s.reshape((2, 1)), axis=1),
    "prod": lambda s: pb.prod(s.reshape((2, 1)), axis=1),
    "logsumexp": lambda s: pb.logsumexp(s.reshape((2, 1)), axis=1),
}


@pytest.mark.parametrize("between", BETWEEN.values(), ids=BETWEEN)
@pytest.mark.parametrize("linked", [False, True])
def test_no_nan_comes_from_the_branch_not_taken_whatever_lies_between(between, linked):
    """sqrt'(0) is infinite; where nothing of the branch is taken, nothing may come back from it."""
    x = leaf([0.0, 4.0])
    out = pb.where(np.array([False, False]), between(pb.sqrt(x)), x * 3.0)
    (g,) = pb.gradients(out, x, np.ones(out.shape), create_graph=linked)
    assert g.tolist() == [3.0 * out.size / 2] * 2


def test_cotangent_that_does_arrive_is_not_hidden():
    x = leaf([0.0, 4.0])
    pb.sum(pb.where(np.array([True, False]), pb.sqrt(x), 0.0)).backward()
    assert x.grad.tolist() == [INF, 0.0]
    x = leaf([0.0])
    pb.sum(pb.where(True, pb.sqrt(x), 0.0) + pb.where(False, pb.sqrt(x), 0.0)).backward()
    assert x.grad.tolist() == [INF]


def bits(hex_text):
    return struct.unpack(">f", bytes.fromhex(hex_text))[0]


@pytest.mark.parametrize(
    ("dtype", "a", "b", "wanted"),
    [
        (np.float32, 1e10, 1e20, bits("8DA24260")),
        (np.float32, 1.0, 1e20, -9.99995e-41),
        (np.float32, 1.0, -1e20, -9.99995e-41),
        (np.float32, 1e-13, 1e-25, -1e37),
        (np.float64, 1.0, 1e160, -1e-320),
        (np.float64, 1e-200, 1e-180, -1e160),
    ],
)
def test_division_does_not_square_the_divisor(dtype, a, b, wanted):
    x, y = leaf(a, dtype), leaf(b, dtype)
    (x / y).backward()
    np.testing.assert_allclose(y.grad.item(), wanted, rtol=1e-4 if abs(wanted) < 1e-37 else 1e-6)
    np.testing.assert_allclose(x.grad.item(), 1 / dtype(b), rtol=1e-6)


def test_clip_with_bounds_that_are_tensors():
    x = leaf([[-1.0, 0.0, 2.0], [4.0, 1.0, NAN]])
    low, high = leaf([0.0, 0.0, 3.0]), leaf([[1.0], [2.0]])
    y = pb.clip(x, low, high)
    np.testing.assert_array_equal(y.detach().numpy(), [[0.0, 0.0, 1.0], [2.0, 1.0, NAN]])
    pb.sum(y).backward()
    assert x.grad.tolist() == [[0.0, 1.0, 0.0], [0.0, 1.0, 0.0]]
    assert low.grad.tolist() == [1.0, 0.0, 0.0]
    assert high.grad.tolist() == [[1.0], [2.0]]


def test_clip_from_below_with_nan_on_either_side():
    x, low = leaf([NAN, -1.0, 0.0, 2.0]), leaf([0.0, 0.0, 0.0, NAN])
    pb.sum(pb.clip(x, min=low)).backward()
    assert x.grad.tolist() == [0.0, 0.0, 1.0, 0.0]
    assert low.grad.tolist() == [0.0, 1.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("f", "z", "wanted"),
    [
        (lambda z: pb.real(z * pb.conj(z)), 3 + 4j, 6 + 8j),
        (pb.abs, 3 + 4j, 0.6 + 0.8j),
        (pb.abs, 0j, 0j),
        (pb.real, 3 + 4j, 1),
        (pb.imag, 3 + 4j, 1j),
        (lambda z: pb.real(z * z), 3 + 4j, np.conj(2 * (3 + 4j))),
        (lambda z: pb.real(pb.exp(z)), 0.5 + 1j, np.conj(np.exp(0.5 + 1j))),
    ],
)
def test_complex_gradient_is_the_direction_of_steepest_ascent(f, z, wanted):
    x = leaf(z, np.complex128)
    f(x).backward()
    np.testing.assert_allclose(x.grad.item(), wanted, rtol=1e-14)


def test_descending_along_a_complex_gradient_descends():
    z = leaf(3 + 4j, np.complex128)
    before = abs(z.item())
    pb.real(z * pb.conj(z)).backward()
    with pb.no_grad():
        z -= 0.1 * z.grad
    assert abs(z.item()) < before


@pytest.mark.parametrize(
    ("x", "value"), [([-INF, -INF], -INF), ([INF, 0.0], INF), ([INF, INF], INF), ([INF, -INF], INF)]
)
def test_value_of_logsumexp_at_infinities(x, value):
    assert pb.logsumexp(leaf(x)).item() == value
    assert pb.logsumexp(np.array(x)) == value


@pytest.mark.parametrize(
    "f",
    [
        pb.relu,
        pb.abs,
        pb.exp,
        lambda x: pb.maximum(x, 0.0),
        lambda x: pb.clip(x, -1.0, 1.0),
        pb.tanh,
        pb.max,
        lambda x: x * 2,
    ],
)
def test_nan_in_gives_nan_out_and_spoils_no_neighbour(f):
    x = leaf([[NAN], [0.5]])
    out = f(x) if f is not pb.max else pb.max(x, axis=1)
    assert np.isnan(out.detach().numpy().ravel()[0])
    (g,) = pb.gradients(out, x, np.ones(out.shape))
    assert np.isfinite(g.numpy()[1, 0])


PAIRS = [
    pb.add, pb.subtract, pb.multiply, pb.divide, pb.power, pb.maximum, pb.minimum, pb.atan2, pb.hypot, pb.logaddexp,
    pb.remainder, pb.fmod, pb.copysign, pb.fmax, pb.where, pb.matmul, pb.addcmul,
]  # fmt: skip
FLOATS = ["float16", "float32", "float64", "complex64", "complex128"]


@pytest.mark.parametrize("f", PAIRS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("left", FLOATS)
@pytest.mark.parametrize("right", [*FLOATS, "int8", "int64", "bool"])
def test_gradients_have_the_dtype_of_their_inputs_for_all_pairs(f, left, right):
    x = pb.tensor([1.5, 2.0], dtype=left, requires_grad=True)
    y = pb.tensor([2.5, 3.0], dtype=right, requires_grad=right in FLOATS)
    call = {pb.where: lambda a, b: pb.where([True, False], a, b), pb.addcmul: lambda a, b: pb.addcmul(a, b, a)}.get(
        f, f
    )
    try:
        pb.sum(pb.real(call(x, y))).backward()
    except (errors.DtypeError, TypeError):  # an op that needs an order, or has no loop for these
        assert "complex" in left + right or right == "bool"
        return
    assert x.grad.dtype == x.dtype
    if y.requires_grad:
        assert y.grad.dtype == y.dtype


CONTRACTIONS = {
    "matrices": (lambda x, y: x @ y, (2, 3), (3, 4)),
    "many by one": (lambda x, y: x @ y, (5, 2, 3), (3, 4)),
    "one by many": (lambda x, y: x @ y, (2, 3), (5, 3, 4)),
    "stretched batches": (lambda x, y: x @ y, (1, 2, 3), (4, 3, 2)),
    "matrix and vector": (lambda x, y: x @ y, (5, 2, 3), (3,)),
    "turned": (lambda x, y: pb.einsum("ij,jk->ki", x, y), (2, 3), (3, 4)),
    "pairwise": (lambda x, y: pb.einsum("ij,ij->ij", x, y), (2, 3), (2, 3)),
    "nothing in common": (lambda x, y: pb.einsum("i,j->ji", x, y), (2,), (3,)),
}


@pytest.mark.parametrize(("f", "a", "b"), CONTRACTIONS.values(), ids=CONTRACTIONS)
@pytest.mark.parametrize("compiled", [False, True])
def test_contractions_meet_no_nan_where_no_cotangent_comes(f, a, b, compiled):
    """A row of the result is left out; so is what it alone was made of, NaN or not."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=a), rng.normal(size=b)
    counts = np.ones(np.shape(f(x, y)), bool)
    counts[..., 0, :] = False  # a row of the result
    slope = pb.grad(lambda x, y, counts: pb.sum(pb.where(counts, f(x, y) ** 2, 0.0)), (0, 1))
    if compiled:
        slope = pb.jit(slope)
    expected = slope(x, y, counts)
    alone = [np.nan_to_num(e, nan=1.0) == 0.0 for e in expected]  # elements that only rows left out are made of
    found = slope(np.where(alone[0], NAN, x), np.where(alone[1], NAN, y), counts)
    for g, e in zip(found, expected, strict=True):
        np.testing.assert_allclose(g, e, rtol=1e-13)


def test_where_behind_products_costs_no_more_products_when_compiled():
    """Whether a cotangent can arrive is a question of rows and columns, not one more product."""
    x, w = np.ones((6, 4)), np.ones((4, 5))

    def products(loss):
        slope = pb.jit(pb.grad(lambda w, x, counts: loss(pb.tanh(pb.tanh(x @ w) @ w.T), counts)))
        return slope.lower(w, x, np.ones((6, 4), bool)).explain().count("matrix product")

    assert products(lambda y, counts: pb.sum(pb.where(counts, y, 0.0))) == products(lambda y, counts: pb.sum(y))


def contractions():
    ops.load_all_ops()
    return [op for op in OPS.values() if op.family == "contraction"]


@pytest.mark.parametrize("op", contractions(), ids=lambda op: op.name)
def test_a_mask_moves_as_its_product_with_ones_does(op):
    """The mask of a share, found without a product, is where the share of the mask is not zero."""
    rng = np.random.default_rng(0)
    for args, static in op.samples(rng):
        specs = tuple(spec_of(np.asarray(a)) for a in args)
        rule = op.rule(tuple(range(len(args))), len(args))
        for density in (0.0, 0.1, 0.5, 1.0):
            mask = rng.uniform(size=op.spec_of(specs, static).shape) < density
            for i, spec in enumerate(specs):
                share = rule.share(i, mask.astype(float), None, [np.ones(s.shape) for s in specs], specs, static)
                found = propagate_mask(RuleCall(rule, None, list(args), specs, static), mask, i)
                assert np.array_equal(_reduced(found, spec.shape), _reduced(np.asarray(share) != 0, spec.shape))


def _reduced(mask, shape):
    return mask if mask.shape == shape else any_to(mask, shape)
