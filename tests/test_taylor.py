"""Taylor mode against nested forward mode, known series and laws; its cost; and the traces built on it."""

from __future__ import annotations

import gc
import math

import numpy as np
import pytest
from records import Case, cases, flat_vector, name

import pullback as pb
from pullback import grad, jvp, linearize, vjp, vmap
from pullback.errors import ArgumentError, ConversionError, DtypeError, GraphError, LeakError, ShapeError
from pullback.ops import Op
from pullback.ops.dispatch import apply
from pullback.transforms.stage import stage
from pullback.transforms.taylor.jet import jet
from pullback.transforms.vector_calculus import divergence, laplacian

SMOOTH = [case for case in cases(lambda op: op.differentiable) if case.moving]


def straight(f, x, order):
    """The derivatives of f at x, of order 1 to n."""
    return jet(f, (x,), ([np.ones(pb.spec_of(x).shape)] + [None] * (order - 1),))[1]


def nested(f, order):
    """The n-th derivative of a function of a number, by forward mode n times."""
    return f if order == 0 else lambda t: jvp(nested(f, order - 1), (t,), (1.0,))[1]


def three_tanh(x):
    return pb.tanh(pb.tanh(pb.tanh(x)))


# Every op, from its record.


def along_curve(function, starts, *derivatives):
    """function(x + t v + t^2/2 w + ...) of t alone."""

    def of_t(t):
        inputs = list(starts)
        for k, along in enumerate(derivatives, 1):
            inputs = [x + t**k * (v / math.factorial(k)) for x, v in zip(inputs, along, strict=True)]
        return function(*inputs)

    return of_t


@pytest.mark.parametrize("case", SMOOTH, ids=name)
def test_three_orders_agree_with_nested_forward_mode(case: Case):
    derivatives = [case.direction(seed) for seed in (11, 12, 13)]
    value, found = jet(case.function, tuple(case.floats), tuple(map(list, zip(*derivatives, strict=True))))
    np.testing.assert_array_equal(flat_vector(value), flat_vector(case.function(*case.floats)))
    of_t = along_curve(case.function, case.floats, *derivatives)
    single = case.static.get("dtype") == np.float32
    for k in (1, 2, 3):
        expected = nested(of_t, k)(0.0)
        tolerance = 2e-5 if single else 1e-10
        scale = 1 + np.abs(flat_vector(expected)).max(initial=0)
        np.testing.assert_allclose(
            flat_vector(found[k - 1]), flat_vector(expected), rtol=tolerance, atol=tolerance * scale
        )


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("case", SMOOTH, ids=name)
def test_derivatives_have_the_shape_and_dtype_of_the_value(case: Case, dtype: str):
    case = case.cast(dtype)
    lists = tuple([v.astype(dtype), v.astype(dtype)] for v in case.direction(14))
    value, found = jet(case.function, tuple(case.floats), lists)
    values = value if isinstance(value, tuple) else (value,)
    for row in found:
        for v, d in zip(values, row if isinstance(row, tuple) else (row,), strict=True):
            assert (d.shape, d.dtype) == (v.shape, v.dtype)


@pytest.mark.parametrize("case", [c for c in SMOOTH if np.size(c.args[0]) and c.number == 0], ids=name)
def test_batched_jet_agrees_with_a_loop(case: Case):
    def second(*directions):
        return jet(case.function, tuple(case.floats), tuple([v, None] for v in directions))[1][1]

    rows = [case.direction(seed) for seed in (15, 16)]
    found = vmap(second)(*(np.stack(pair) for pair in zip(*rows, strict=True)))
    looped = [second(*row) for row in rows]
    expected = tuple(map(np.stack, zip(*looped, strict=True))) if isinstance(found, tuple) else np.stack(looped)
    np.testing.assert_allclose(flat_vector(found), flat_vector(expected), rtol=1e-11, atol=1e-12)


# Known series.

FALLING = [math.prod(2.5 - j for j in range(k)) for k in range(1, 13)]
TANGENT_NUMBERS = [1, 0, -2, 0, 16, 0, -272, 0, 7936, 0, -353792, 0]

KNOWN = {
    "exp": (pb.exp, 0.7, [math.exp(0.7)] * 12),
    "expm1": (pb.expm1, 0.7, [math.exp(0.7)] * 12),
    "sin": (pb.sin, 0.7, [math.sin(0.7 + k * math.pi / 2) for k in range(1, 13)]),
    "cos": (pb.cos, 0.7, [math.cos(0.7 + k * math.pi / 2) for k in range(1, 13)]),
    "sinh": (pb.sinh, 0.7, [math.cosh(0.7), math.sinh(0.7)] * 6),
    "log": (pb.log, 1.5, [-math.factorial(k - 1) / (-1.5) ** k for k in range(1, 13)]),
    "log1p": (pb.log1p, 0.5, [-math.factorial(k - 1) / (-1.5) ** k for k in range(1, 13)]),
    "tanh": (pb.tanh, 0.0, TANGENT_NUMBERS),
    "tan": (pb.tan, 0.0, [abs(n) for n in TANGENT_NUMBERS]),
    "atan": (pb.atan, 0.0, [0 if k % 2 == 0 else (-1) ** (k // 2) * math.factorial(k - 1) for k in range(1, 13)]),
    "power": (lambda x: x**2.5, 1.5, [c * 1.5 ** (2.5 - k) for k, c in enumerate(FALLING, 1)]),
    "power of an array": (
        lambda x: pb.sum(x ** np.array([2.5, 0.0])),
        1.5,
        [c * 1.5 ** (2.5 - k) for k, c in enumerate(FALLING, 1)],
    ),
    "exponential": (lambda x: 3.0**x, 0.7, [math.log(3) ** k * 3**0.7 for k in range(1, 13)]),
    "sqrt": (pb.sqrt, 1.5, [math.prod(0.5 - j for j in range(k)) * 1.5 ** (0.5 - k) for k in range(1, 13)]),
    "divide": (lambda x: 1 / (1 - x), 0.0, [math.factorial(k) for k in range(1, 13)]),
    "quotient": (lambda x: x / (1 - x), 0.0, [math.factorial(k) for k in range(1, 13)]),
    "multiply": (lambda x: x * pb.exp(x), 0.7, [(0.7 + k) * math.exp(0.7) for k in range(1, 13)]),
    "sigmoid": (
        lambda x: pb.sigmoid(2 * x),  # (1 + tanh x) / 2
        0.0,
        [n / 2 for n in TANGENT_NUMBERS],
    ),
}


@pytest.mark.parametrize("what", KNOWN)
def test_known_series_to_order_twelve(what):
    f, x, expected = KNOWN[what]
    np.testing.assert_allclose(straight(f, x, 12), expected, rtol=1e-11, atol=1e-9)


def derivatives_of_three_tanh(x, order):
    """With a = tanh x, b = tanh a, c = tanh b, derivatives of c are polynomials in a, b, c with whole coefficients:
    a' = 1 - a^2, b' = (1 - b^2) a', c' = (1 - c^2) b'.
    """
    point = (math.tanh(x), math.tanh(math.tanh(x)), math.tanh(math.tanh(math.tanh(x))))
    polynomial, found = {(0, 0, 1): 1}, []
    for _ in range(order):
        derived: dict[tuple[int, ...], int] = {}
        for powers, coefficient in polynomial.items():
            for i in range(3):
                terms = {tuple(p - (j == i) for j, p in enumerate(powers)): coefficient * powers[i]}
                for j in range(i + 1):  # times (1 - a^2), and (1 - b^2), and (1 - c^2)
                    terms |= {tuple(p + 2 * (j == n) for n, p in enumerate(k)): -c for k, c in terms.items()}
                for k, c in terms.items():
                    if c:
                        derived[k] = derived.get(k, 0) + c
        polynomial = derived
        found.append(math.fsum(c * math.prod(v**p for v, p in zip(point, k, strict=True)) for k, c in derived.items()))
    return found


def test_eight_orders_of_three_tanh():
    found = straight(three_tanh, 0.3, 8)
    np.testing.assert_allclose(found, derivatives_of_three_tanh(0.3, 8), rtol=1e-11)
    np.testing.assert_allclose(found[:5], [nested(three_tanh, k)(0.3) for k in range(1, 6)], rtol=1e-12)


def test_a_curve_that_bends():
    """sin(t^2 + t^3) = t^2 + t^3 - (t^2 + t^3)^3 / 6 + ..."""
    _, found = jet(pb.sin, (0.0,), ([0.0, 2.0, 6.0, None, None, None, None, None],))
    coefficients = [d / math.factorial(k) for k, d in enumerate(found, 1)]
    np.testing.assert_allclose(coefficients, [0, 1, 1, 0, 0, -1 / 6, -1 / 2, -1 / 2], atol=1e-15)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 4, 5, 2.0, 3.0])
def test_whole_powers_are_exact_at_zero(n):
    expected = [float(math.factorial(int(n))) if k == n else 0.0 for k in range(1, 7)]
    np.testing.assert_array_equal(straight(lambda x: x**n, 0.0, 6), expected)
    exponents = np.array([n, n], float)
    np.testing.assert_array_equal([d[1] for d in straight(lambda x: x**exponents, np.zeros(2), 6)], expected)
    np.testing.assert_array_equal(straight(lambda x: pb.prod(pb.stack([x] * 3)), 0.0, 4), [0, 0, 6, 0])


def test_the_root_is_steep_at_zero():
    with np.errstate(all="ignore"):
        first, second = straight(pb.sqrt, 0.0, 2)
        broken = straight(lambda x: x**1.5, 0.0, 2)
    assert first == np.inf
    assert not np.isfinite(second)
    assert broken[0] == 0
    assert broken[1] == np.inf


def test_a_branch_not_taken_spoils_nothing():
    def f(x):
        return pb.sum(pb.where(x > 0, pb.sqrt(x), x * 3.0))

    with np.errstate(all="ignore"):
        found = straight(f, np.array([0.0, 4.0]), 3)
    np.testing.assert_allclose(found, [3 + 1 / 4, -1 / 32, 3 / 256])


TIES = {
    "relu": pb.relu,
    "abs": pb.abs,
    "maximum": lambda x: pb.maximum(x * x, x * 2.0),
    "minimum": lambda x: pb.minimum(x * x, x * 2.0),
    "max": lambda x: pb.max(pb.stack([x * x, x * 2.0, pb.sin(x)])),
    "clip": lambda x: pb.clip(x, 0.0, 1.0) ** 2,
    "where": lambda x: pb.where(x >= 0, x**3, pb.exp(x)),
    "sign": lambda x: pb.sign(x) * x * x,
}


@pytest.mark.parametrize("what", TIES)
@pytest.mark.parametrize("x", [0.0, 2.0, 1.0])
def test_ties_are_shared_as_in_forward_mode(what, x):
    expected = [nested(TIES[what], k)(x) for k in (1, 2, 3)]
    np.testing.assert_allclose(straight(TIES[what], x, 3), expected, rtol=1e-13, atol=1e-15)


def test_complex_curves():
    def f(z):
        return pb.exp(z) * z**2 / (z + 1.0) + pb.abs(z) ** 2 * pb.conj(z)

    z, v, w = 0.3 + 0.4j, 1.0 - 0.5j, 0.2j
    _, found = jet(f, (z,), ([v, w, None, None],))
    of_t = along_curve(f, [z], [v], [w])
    np.testing.assert_allclose(found, [nested(of_t, k)(0.0) for k in (1, 2, 3, 4)], rtol=1e-12)


def test_a_real_curve_with_complex_values():
    expected = [(2j) ** k * np.exp(0.6j) for k in range(1, 6)]
    np.testing.assert_allclose(straight(lambda x: pb.exp(2j * x), 0.3, 5), expected, rtol=1e-13)


def test_factorials_do_not_overflow_half_precision():
    order = 10
    _, found = jet(lambda x: 2.0 * x, (np.float16(1.0),), ([None] * 8 + [np.float16(3.0), None],))
    assert len(found) == order
    assert {d.dtype for d in found} == {np.dtype("float16")}
    np.testing.assert_allclose(found[8], 6.0, rtol=0.05)


def test_orders_beyond_the_range_of_factorials():
    found = straight(lambda x: 1 / (1 - x * 0.5), 0.0, 180)
    assert math.isclose(found[-1], math.prod(k * 0.5 for k in range(1, 181)), rel_tol=1e-10)


def test_high_orders_of_powers_do_not_recurse():
    found = straight(lambda x: x**0.5, np.float64(4.0), 120)
    ratio = found[-1] / found[-2]
    assert math.isclose(ratio, (0.5 - 119) / 4, rel_tol=1e-9)


# Trees, lists and what does not move.


def test_arguments_and_results_are_trees():
    def f(p, scale):
        return {"sum": p["x"] + p["y"][0] * scale, "product": (p["x"] * p["y"][0],)}

    primals = ({"x": np.array(2.0), "y": [np.array(3.0)]}, 10.0)
    first = {"x": np.array(1.0), "y": [np.array(-1.0)]}
    value, found = jet(f, primals, ([first, None], None))
    assert (value["sum"], value["product"]) == (32.0, (6.0,))
    assert [d["sum"] for d in found] == [-9.0, 0.0]
    assert [d["product"] for d in found] == [(1.0,), (-2.0,)]


def test_short_lists_go_on_with_zeros():
    full = jet(lambda x, y: x * y, (2.0, 3.0), ([1.0, 0.0, 0.0], [5.0, 7.0, 1.0]))
    short = jet(lambda x, y: x * y, (2.0, 3.0), ([1.0], (5.0, 7.0, 1.0)))
    holes = jet(lambda x, y: x * y, (2.0, 3.0), ([1.0, None], [5.0, 7.0, 1.0]))
    assert full == short == holes


def test_what_does_not_move_may_be_of_any_dtype():
    value, found = jet(lambda x, i: x[i] ** 2, (np.array([1.0, 3.0]), np.array(1)), ([np.ones(2), None], None))
    assert value == 9.0
    assert found == [6.0, 2.0]


def test_results_that_do_not_move():
    value, found = jet(lambda x: (3, x > 0, pb.stop_gradient(x) * 2.0, pb.argmax(x)), (np.ones(2),), ([np.ones(2)],))
    assert value[0] == 3
    assert value[1].dtype == bool
    assert [np.asarray(d).tolist() for d in found[0]] == [0, [False, False], [0.0, 0.0], 0]


def test_order_zero_is_the_value():
    assert jet(pb.exp, (0.0,), ([],)) == (1.0, [])
    assert jet(lambda: 2.0, (), ()) == (2.0, [])


@pytest.mark.parametrize("shape", [(), (0,), (1,), (2, 0, 3)])
def test_edge_shapes(shape):
    x = np.full(shape, 0.5)
    value, found = jet(lambda x: pb.tanh(x) * x, (x,), ([np.ones(shape), None],))
    assert [value.shape, *(d.shape for d in found)] == [shape] * 3


def test_broadcasting_in_every_coefficient():
    x, y = np.array([1.0, 2.0]), np.array([[3.0], [4.0], [5.0]])
    value, found = jet(lambda x, y: (x + y, x * y, x / y), (x, y), ([np.ones(2), None], [None, np.ones((3, 1))]))
    assert all(part.shape == (3, 2) for row in (value, *found) for part in row)
    np.testing.assert_allclose(found[1][0], 1.0)
    np.testing.assert_allclose(found[1][1], np.broadcast_to(x, (3, 2)))
    np.testing.assert_allclose(found[1][2], -x / y**2)


def test_one_input_twice():
    x = np.array([1.0, 2.0])
    np.testing.assert_allclose(straight(lambda x: pb.matmul(x, x) * pb.sum(x * x), x, 4)[3], 24 * 4)


# Nesting.


def test_perturbations_are_not_confused():
    def f(x):
        return x * jet(lambda y: x * y, (1.0,), ([1.0],))[1][0]  # x * x

    assert jvp(f, (3.0,), (1.0,))[1] == 6.0
    assert grad(f)(3.0) == 6.0
    assert jet(f, (3.0,), ([1.0, None, None],))[1] == [6.0, 2.0, 0.0]
    inner = jet(lambda x: x * jvp(lambda y: x + y, (1.0,), (1.0,))[1], (3.0,), ([1.0, None],))[1]
    assert inner == [1.0, 0.0]
    pulled = jet(lambda x: x * grad(lambda y: x * y * y)(2.0), (3.0,), ([1.0, None],))[1]  # 4 x^2
    assert pulled == [24.0, 8.0]
    twice = jet(lambda x: x * jet(lambda y: x + y * y, (x,), ([1.0, None],))[1][0], (3.0,), ([1.0, None],))[1]  # 2 x^2
    assert twice == [12.0, 4.0]


def fourth(x):
    """sin(x)^3, differentiated four times, all elements summed."""
    return pb.sum(straight(lambda y: pb.sin(y) ** 3, x, 4)[3])


def test_derivatives_of_a_jet_and_a_jet_of_derivatives():
    x = np.array([0.3, -0.7])
    wanted = straight(lambda y: pb.sin(y) ** 3, x, 5)[4]
    np.testing.assert_allclose(grad(fourth)(x), wanted, rtol=1e-11)
    np.testing.assert_allclose(jvp(fourth, (x,), (np.ones(2),))[1], wanted.sum(), rtol=1e-11)
    np.testing.assert_allclose(jet(fourth, (x,), ([np.ones(2)],))[1][0], wanted.sum(), rtol=1e-11)
    np.testing.assert_allclose(linearize(fourth, x)[1](np.ones(2)), wanted.sum(), rtol=1e-11)
    np.testing.assert_allclose(vjp(fourth, x)[1](np.array(1.0))[0], wanted, rtol=1e-11)
    of_gradient = straight(grad(lambda y: pb.sum(pb.sin(y) ** 3)), x, 4)[3]
    np.testing.assert_allclose(of_gradient, wanted, rtol=1e-11)
    of_push = straight(lambda y: jvp(lambda z: pb.sin(z) ** 3, (y,), (np.ones(2),))[1], x, 4)[3]
    np.testing.assert_allclose(of_push, wanted, rtol=1e-11)
    np.testing.assert_allclose(grad(lambda y: pb.sum(grad(fourth)(y)))(x), straight(
        lambda y: pb.sin(y) ** 3, x, 6)[5], rtol=1e-10)  # fmt: skip


def test_jet_in_vmap_and_vmap_in_jet():
    xs = np.linspace(-1, 1, 5)
    expected = [straight(three_tanh, x, 4) for x in xs]
    np.testing.assert_allclose(np.stack(vmap(lambda x: straight(three_tanh, x, 4))(xs), 1), expected, rtol=1e-12)
    np.testing.assert_allclose(np.stack(straight(vmap(three_tanh), xs, 4), 1), expected, rtol=1e-12)
    np.testing.assert_allclose(vmap(grad(lambda x: straight(three_tanh, x, 3)[2]))(xs), [e[3] for e in expected])


def test_tensors_in_tensors_out_and_back_through_the_result():
    x = pb.tensor([0.3, 0.6], requires_grad=True)
    w = pb.tensor(2.0, requires_grad=True)
    value, found = jet(lambda y: pb.sin(w * y), (x,), ([np.ones(2), None, None],))
    assert all(isinstance(d, pb.Tensor) for d in (value, *found))
    pb.sum(found[2]).backward()  # -w^3 cos(w x)
    a = np.array([0.3, 0.6])
    np.testing.assert_allclose(x.grad.numpy(), 16 * np.sin(2 * a))
    np.testing.assert_allclose(w.grad.numpy(), np.sum(-12 * np.cos(2 * a) + 8 * a * np.sin(2 * a)))


def test_backward_inside_the_function():
    def f(x):
        leaf = pb.tensor(x, requires_grad=True)
        pb.sum(leaf**3).backward()
        return leaf.grad

    np.testing.assert_allclose(straight(f, np.array([2.0]), 3), [[12.0], [6.0], [0.0]])


def test_directions_that_carry_derivatives():
    assert grad(lambda v: jet(lambda x: x**3, (2.0,), ([v, None],))[1][1])(3.0) == 6 * 2 * 2 * 3


# The traps of control flow, and what has no numbers.


def test_branches_go_by_where_the_curve_starts():
    def f(x):
        return x**3 if x > 0 else -x if x else x * 5.0

    assert straight(f, 2.0, 2) == [12.0, 12.0]
    assert straight(f, -2.0, 2) == [-1.0, 0.0]
    assert straight(f, 0.0, 2) == [5.0, 0.0]


@pytest.mark.parametrize("convert", [float, int, complex, np.asarray, lambda x: x.item(), lambda x: [1, 2][x]])
def test_bare_numbers_are_refused(convert):
    with pytest.raises(ConversionError, match="along a curve"):
        jet(lambda x: x * convert(x), (2.0,), ([1.0],))


def test_a_series_that_escapes_is_refused():
    kept = []
    jet(lambda x: kept.append(x) or x, (2.0,), ([1.0],))
    with pytest.raises(LeakError, match="jet"):
        kept[0] * 2.0


def test_a_leaf_made_inside_is_not_lost_silently():
    leaf = []
    with pytest.raises(GraphError, match="made inside"):
        jet(lambda x: leaf.append(pb.tensor(x, requires_grad=True)) or leaf[0] * 2.0, (2.0,), ([1.0],))


ERRORS = {
    "no tuple of primals": (lambda: jet(pb.sin, 1.0, ([1.0],)), ArgumentError, "tuples"),
    "no tuple of series": (lambda: jet(pb.sin, (1.0,), 1.0), ArgumentError, "tuples"),
    "counts differ": (lambda: jet(pb.sin, (1.0,), ([1.0], [1.0])), ArgumentError, "1 primals"),
    "a direction, not a list": (lambda: jet(pb.sin, (1.0,), (1.0,)), ArgumentError, r"argument 0 .*wanted the list"),
    "other shape": (lambda: jet(pb.sin, (1.0,), ([np.ones(2)],)), ShapeError, r"\(2,\)"),
    "other tree": (lambda: jet(pb.sin, (1.0,), ([{"a": 1.0}],)), ArgumentError, "differ"),
    "integers": (lambda: jet(pb.sin, (np.array(1),), ([1.0],)), DtypeError, "int64"),
    "complex along real": (lambda: jet(pb.sin, (1.0,), ([1j],)), DtypeError, "complex"),
    "no array": (lambda: jet(lambda x: x, ("a",), ([1.0],)), DtypeError, "str"),
}


@pytest.mark.parametrize("what", ERRORS)
def test_errors_say_what_is_wrong(what):
    call, error, words = ERRORS[what]
    with pytest.raises(error, match=words):
        call()


# What it costs, counted in ops and not in time.


def count(f, order):
    x = np.array(0.3)
    return len(stage(lambda x: straight(f, x, order))(x).equations)


QUADRATIC = {
    "three tanh": three_tanh,
    "sin": pb.sin,
    "divide": lambda x: pb.exp(x) / pb.cos(x),
    "power": lambda x: x**2.5,
    "asin": pb.asin,
    "erf": pb.erf,
    "atan2": lambda x: pb.atan2(x, pb.exp(x)),
    "logaddexp": lambda x: pb.logaddexp(x, pb.sin(x)),
    "softmax": lambda x: pb.sum(pb.softmax(pb.stack([x, x * x, pb.sin(x)])) ** 2),
    "matmul": lambda x: pb.matmul(pb.stack([x, x * x]), pb.stack([pb.sin(x), x])),
}


@pytest.mark.parametrize("what", QUADRATIC)
def test_twice_the_order_is_four_times_the_work(what):
    at = {order: count(QUADRATIC[what], order) for order in (4, 8, 16)}
    assert at[8] <= 4 * at[4]
    assert at[16] <= 4.3 * at[8]
    assert at[16] < 1600


def test_a_power_of_itself_is_cubic():
    at = {order: count(lambda x: x**x, order) for order in (4, 8, 16)}
    assert at[16] <= 8 * at[8] <= 64 * at[4]


def test_linear_ops_go_coefficient_by_coefficient():
    assert count(lambda x: pb.sum(pb.reshape(pb.stack([x, 2.0 * x]), (2, 1))), 8) <= 30
    moving, still = np.array(0.5), np.eye(2)
    staged = stage(lambda x: straight(lambda y: pb.matmul(still, pb.stack([pb.exp(y), y])), x, 8))(moving)
    assert sum(e.op.family == "contraction" for e in staged.equations) == 1 + 8


def _cross(x, y):
    return apply(CROSS, x, y)


#: An op that says of itself only how it pushes, to go the way of the rule that is right for all.
CROSS = Op(
    name="cross",
    family="general",
    args=("x", "y"),
    value=lambda xp, x, y: xp.cross(x, y),
    spec=lambda x, y: x,
    pulls={},
    push=lambda tangents, out, primals, static: (
        (0.0 if tangents[0] is None else _cross(tangents[0], primals[1]))
        + (0.0 if tangents[1] is None else _cross(primals[0], tangents[1]))
    ),
    batch=lambda *args: None,
    samples=lambda rng: [],
)


def test_an_op_that_only_states_its_push():
    def f(t):
        return _cross(pb.stack([t, pb.sin(t), t * t]), pb.stack([pb.exp(t), t, pb.cos(t)]))

    found = straight(f, 0.4, 5)
    expected = [nested(f, k)(0.4) for k in range(1, 6)]
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13)
    at = {order: count(f, order) for order in (4, 8, 16)}
    assert at[16] <= 8.5 * at[8]


def test_ten_thousand_ops_deep():
    def f(x):
        y = x
        for _ in range(5000):
            y = y * 0.9999 + 1e-4
        return y * y

    slope = 0.9999**5000
    found = straight(f, 1.0, 2)
    np.testing.assert_allclose(found, [2 * slope, 2 * slope**2], rtol=1e-9)

    def g(x):
        for _ in range(1500):
            x = pb.sin(x)
        return x

    np.testing.assert_allclose(straight(g, 1e-4, 2), [nested(g, k)(1e-4) for k in (1, 2)], rtol=1e-10)


def test_no_memory_waits_for_the_collector():
    def f(x):
        return pb.sin(x) * pb.tanh(x) ** 2.5 / x + pb.split(pb.stack([x, x]), 2)[0][0]

    straight(f, 0.3, 4)
    gc.collect()
    gc.disable()
    try:
        straight(f, 0.3, 4)
        assert gc.collect() == 0
    finally:
        gc.enable()


# The Laplacian and the divergence.


def potential(x):
    """1 / |x| in three dimensions is harmonic."""
    return 1.0 / pb.sqrt(pb.sum(x * x))


def wave(x):
    return pb.sum(pb.sin(x) * pb.tanh(pb.flip(x))) * pb.exp(pb.mean(x))


def swirl(x):
    return pb.sin(x) * pb.sum(x**2) + pb.flip(x) ** 3


POINT = np.random.default_rng(17).normal(size=(2, 3))


def test_laplacians_of_known_functions():
    rng = np.random.default_rng(18)
    np.testing.assert_allclose(laplacian(potential)(rng.normal(size=3)), 0, atol=1e-12)
    np.testing.assert_allclose(laplacian(lambda x: x[0] ** 2 - x[1] ** 2 + x[0] * x[1])(rng.normal(size=2)), 0)
    for shape in ((), (1,), (4,), (2, 3)):
        assert laplacian(lambda x: pb.sum(x * x))(np.ones(shape)) == 2 * math.prod(shape)
    assert laplacian(lambda x: pb.sum(x))(np.ones(3)) == 0
    assert laplacian(lambda x: 3.0)(np.ones(3)) == 0


def test_laplacian_is_the_trace_of_the_hessian():
    directions = np.eye(6).reshape(6, 2, 3)
    hessian = [[jvp(lambda y, v=v: jvp(wave, (y,), (v,))[1], (POINT,), (w,))[1] for v in directions]
               for w in directions]  # fmt: skip
    np.testing.assert_allclose(laplacian(wave)(POINT), np.trace(np.array(hessian)), rtol=1e-12)


def test_divergence_is_the_trace_of_the_jacobian():
    rows = [jvp(swirl, (POINT,), (v,))[1].ravel() for v in np.eye(6).reshape(6, 2, 3)]
    np.testing.assert_allclose(divergence(swirl)(POINT), np.trace(np.array(rows)), rtol=1e-12)
    assert divergence(lambda x: 3.0 * x)(np.ones((2, 2))) == 12
    assert divergence(lambda x: np.ones(3))(np.ones(3)) == 0
    np.testing.assert_allclose(divergence(grad(wave))(POINT), laplacian(wave)(POINT), rtol=1e-12)


@pytest.mark.parametrize("batch_size", [1, 2, 4, 6, 100])
def test_chunks_add_up(batch_size):
    np.testing.assert_allclose(laplacian(wave, batch_size=batch_size)(POINT), laplacian(wave)(POINT), rtol=1e-12)
    found = divergence(swirl, batch_size=batch_size)(POINT)
    np.testing.assert_allclose(found, divergence(swirl)(POINT), rtol=1e-12)


@pytest.mark.parametrize("batch_size", [None, 2])
def test_traces_of_nothing_are_zero(batch_size):
    assert laplacian(lambda x: pb.sum(x * x), batch_size=batch_size)(np.zeros((0, 2))) == 0
    assert divergence(lambda x: x * x, batch_size=batch_size)(np.zeros((0, 2))) == 0


def test_traces_nest():
    points = np.stack([POINT, POINT * 0.5])
    np.testing.assert_allclose(vmap(laplacian(wave))(points), [laplacian(wave)(p) for p in points], rtol=1e-12)
    np.testing.assert_allclose(vmap(divergence(swirl))(points), [divergence(swirl)(p) for p in points], rtol=1e-12)
    np.testing.assert_allclose(grad(laplacian(lambda x: pb.sum(x**4)))(POINT), 24 * POINT, rtol=1e-12)
    bilaplacian = laplacian(laplacian(lambda x: pb.sum(x * x) ** 2))  # of r^4 in n dimensions: 8 n (n + 2)
    np.testing.assert_allclose(bilaplacian(np.array([0.3, 0.2, -0.5])), 8 * 3 * 5, rtol=1e-12)


def test_traces_on_the_tape():
    x, w = pb.tensor(POINT, requires_grad=True), pb.tensor(2.0, requires_grad=True)
    laplacian(lambda y: pb.sum(w * y**4), batch_size=4)(x).backward()
    np.testing.assert_allclose(x.grad.numpy(), 48 * POINT, rtol=1e-12)
    np.testing.assert_allclose(w.grad.numpy(), np.sum(12 * POINT**2), rtol=1e-12)


def test_traces_take_further_arguments_and_keep_the_dtype():
    found = laplacian(lambda x, w, power: pb.sum(w * x**power))(np.ones(3, "float32"), np.float32(2.0), power=3)
    assert (found, found.dtype) == (36.0, np.float32)
    assert divergence(lambda x, w: w * x)(np.ones(3, "float32"), np.float32(2.0)).dtype == np.float32


def test_the_function_runs_on_values_in_common():
    """What does not depend on the direction is computed once, without a batch axis."""
    shapes = []

    def f(x):
        shapes.append(x.shape)
        return pb.sum(x**3)

    laplacian(f)(np.ones(50))
    assert shapes == [(50,)]


TRACE_ERRORS = {
    "vector to laplacian": (lambda: laplacian(lambda x: x)(POINT), ShapeError, "scalar"),
    "tuple to laplacian": (lambda: laplacian(lambda x: (x, x))(POINT), ArgumentError, "tuple"),
    "tree": (lambda: laplacian(pb.sum)({"x": POINT}), ArgumentError, "dict"),
    "complex": (lambda: laplacian(pb.sum)(POINT + 0j), DtypeError, "real"),
    "integers": (lambda: laplacian(pb.sum)(np.arange(3)), DtypeError, "int64"),
    "scalar to divergence": (lambda: divergence(pb.sum)(POINT), ShapeError, "same shape"),
    "tuple to divergence": (lambda: divergence(lambda x: (x, x))(POINT), ArgumentError, "tuple"),
    "integers to divergence": (lambda: divergence(pb.sum)(np.arange(3)), DtypeError, "int64"),
    "batches of none": (lambda: laplacian(pb.sum, batch_size=0), ArgumentError, "batch_size"),
    "batches of a fraction": (lambda: divergence(pb.sin, batch_size=1.5), ArgumentError, "batch_size"),
}


@pytest.mark.parametrize("what", TRACE_ERRORS)
def test_trace_errors_say_what_is_wrong(what):
    call, error, words = TRACE_ERRORS[what]
    with pytest.raises(error, match=words):
        call()
