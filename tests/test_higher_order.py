"""Gradients of gradients: known values to the fourth order, and rules that are right where the value is not smooth."""

import math

import numpy as np
import pytest

import pullback as pb
from pullback import errors


def leaf(data, dtype=np.float64):
    return pb.tensor(data, dtype=dtype, requires_grad=True)


def derivatives(f, x, order):
    """f and its first `order` derivatives in one number x."""
    x = leaf(x)
    found = [f(x)]
    for _ in range(order):
        last = found[-1]
        found += pb.gradients(last, x, create_graph=True) if last.requires_grad else [pb.zeros_like(x)]
    return [d.item() for d in found]


def orders(f, points, order=2, weights=None):
    """The gradients of sum(f), of sum(of its gradient), and so on, at an array."""
    x = leaf(points)
    current, found = pb.sum(f(x)), []
    for _ in range(order):
        (g,) = pb.gradients(current, x, create_graph=True) if current.requires_grad else [pb.zeros_like(x)]
        found.append(g.detach().numpy())
        current = pb.sum(g if weights is None else g * weights)
    return found


FUNCTIONS = {
    "x^3": (lambda x: x**3, 2.0, [8.0, 12.0, 12.0, 6.0, 0.0]),
    "x^3 by products": (lambda x: x * x * x, 2.0, [8.0, 12.0, 12.0, 6.0, 0.0]),
    "x^2": (lambda x: x**2, 5.0, [25.0, 10.0, 2.0, 0.0, 0.0]),
    "x^2.5": (lambda x: x**2.5, 4.0, [32.0, 20.0, 7.5, 0.9375, -0.1171875]),
    "exp": (pb.exp, 0.5, [math.exp(0.5)] * 5),
    "sin": (pb.sin, 0.3, [math.sin(0.3), math.cos(0.3), -math.sin(0.3), -math.cos(0.3), math.sin(0.3)]),
    "log": (pb.log, 2.0, [math.log(2), 0.5, -0.25, 0.25, -0.375]),
    "1/x": (lambda x: 1 / x, 2.0, [0.5, -0.25, 0.25, -0.375, 0.75]),
    "sqrt": (pb.sqrt, 4.0, [2.0, 0.25, -1 / 32, 3 / 256, -15 / 2048]),
    "2^x": (lambda x: 2.0**x, 1.0, [2 * math.log(2) ** k for k in range(5)]),
    "tanh at 0": (pb.tanh, 0.0, [0.0, 1.0, 0.0, -2.0, 0.0]),
    "atan at 0": (pb.atan, 0.0, [0.0, 1.0, 0.0, -2.0, 0.0]),
    "sigmoid at 0": (pb.sigmoid, 0.0, [0.5, 0.25, 0.0, -0.125, 0.0]),
    "softplus": (pb.softplus, 0.0, [math.log(2), 0.5, 0.25, 0.0, -0.125]),
    "erf at 0": (pb.erf, 0.0, [0.0, 2 / math.sqrt(math.pi), 0.0, -4 / math.sqrt(math.pi), 0.0]),
    "logsumexp": (lambda x: pb.logsumexp(pb.stack([x, -x])), 0.0, [math.log(2), 0.0, 1.0, 0.0, -2.0]),
    "x^0": (lambda x: x**0.0, 0.0, [1.0, 0.0, 0.0, 0.0, 0.0]),
    "x^1": (lambda x: x**1.0, 0.0, [0.0, 1.0, 0.0, 0.0, 0.0]),
    "x^2 at 0": (lambda x: x**2.0, 0.0, [0.0, 0.0, 2.0, 0.0, 0.0]),
    "prod with itself": (lambda x: pb.prod(pb.stack([x, x, x, x])), 1.0, [1.0, 4.0, 12.0, 24.0, 24.0]),
    "prod with itself at 0": (lambda x: pb.prod(pb.stack([x, x, x])), 0.0, [0.0, 0.0, 0.0, 6.0, 0.0]),
    "through an index": (lambda x: pb.stack([x, x * x])[np.array([1, 1, 0])][0] * x, 3.0, [27.0, 27.0, 18.0, 6.0, 0.0]),
    "through where": (lambda x: pb.where(x > 0, x**3, x), 1.0, [1.0, 3.0, 6.0, 6.0, 0.0]),
    "through max": (lambda x: pb.max(pb.stack([x**3, x])), 2.0, [8.0, 12.0, 12.0, 6.0, 0.0]),
    "through einsum": (lambda x: pb.einsum("i,i->", pb.stack([x, x]), pb.stack([x, x * x])), 1.0, [2, 5, 8, 6, 0]),
    "through set_at": (lambda x: pb.sum(pb.set_at(pb.stack([x * x, x]), 0, x**3)), 2.0, [10.0, 13.0, 12.0, 6.0, 0.0]),
}  # fmt: skip


@pytest.mark.parametrize("case", FUNCTIONS)
def test_four_orders(case):
    f, x, wanted = FUNCTIONS[case]
    np.testing.assert_allclose(derivatives(f, x, 4), wanted, rtol=1e-12, atol=1e-14)


P = np.array([0.5, 2.0, 5.0])


@pytest.mark.parametrize(
    ("f", "points", "first", "second"),
    [
        (lambda x: x * x, [2.0, 3.0], [4.0, 6.0], [2.0, 2.0]),
        (lambda x: pb.mean(x * x), [2.0, 4.0], [2.0, 4.0], [1.0, 1.0]),
        (lambda x: pb.sum(x * x, axis=1), [[1.0, 2.0], [3.0, 4.0]], [[2.0, 4.0], [6.0, 8.0]], [[2.0, 2.0], [2.0, 2.0]]),
        (lambda x: pb.mean(x * x, axis=1), [[1.5, 3, 4.5], [6, 7.5, 9]], [[1, 2, 3], [4, 5, 6]], [[2 / 3] * 3] * 2),
        (pb.relu, [-1.0, 0.0, 2.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]),
        (pb.abs, [-2.0, 0.0, 3.0], [-1.0, 0.0, 1.0], [0.0, 0.0, 0.0]),
        (pb.sqrt, [0.5, 2.0, 5.0], P**-0.5 / 2, -(P**-1.5) / 4),
        (lambda x: 1 / pb.sqrt(x), [0.5, 2.0, 5.0], -(P**-1.5) / 2, P**-2.5 * 0.75),
        (lambda x: 1 / x, [0.5, 2.0, 5.0], [-4.0, -0.25, -0.04], [16.0, 0.25, 0.016]),
        (lambda x: x**0.0, [0.0, 2.0, -1.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]),
        (lambda x: pb.power(x, np.zeros(3)), [0.0, 2.0, -1.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]),
        (lambda x: pb.sign(x) * x, [-2.0, 3.0], [-1.0, 1.0], [0.0, 0.0]),
        (lambda x: pb.maximum(x, 1.0) ** 2, [0.0, 2.0], [0.0, 4.0], [0.0, 2.0]),
        (lambda x: pb.clip(x, 0.0, 1.0) ** 2, [-1.0, 0.5, 3.0], [0.0, 1.0, 0.0], [0.0, 2.0, 0.0]),
        (lambda x: pb.cumulative_sum(x) ** 2, [1.0, 2.0], [8.0, 6.0], [6.0, 4.0]),
        (lambda x: pb.pad(x, 1, constant_values=2.0) ** 2, [3.0], [6.0], [2.0]),
        (lambda x: x[np.array([0, 0, 1])] ** 2, [3.0, 4.0], [12.0, 8.0], [4.0, 2.0]),
    ],
)  # fmt: skip
def test_first_and_second_gradient(f, points, first, second):
    found = orders(f, points)
    np.testing.assert_allclose(found[0], first, rtol=1e-9)
    np.testing.assert_allclose(found[1], second, rtol=1e-8)


CONNECTED = {
    "relu": pb.relu, "abs": pb.abs, "max": pb.max, "clip": lambda x: pb.clip(x, 0.0, 1.0),
    "maximum": lambda x: pb.maximum(x, 0.5), "power 0": lambda x: pb.power(x, 0.0) * x,
}  # fmt: skip


@pytest.mark.parametrize("f", CONNECTED.values(), ids=CONNECTED)
def test_second_gradient_of_a_piecewise_linear_function_is_zeros_or_plainly_absent(f):
    x = leaf([-1.0, 0.0, 2.0])
    (g,) = pb.gradients(pb.sum(f(x)), x, create_graph=True)
    if g.requires_grad:
        assert pb.gradients(pb.sum(g * x), x)[0].tolist() == g.tolist()
    else:
        with pytest.raises(errors.GraphError, match="does not require"):
            pb.gradients(pb.sum(g), x)


def test_second_gradient_of_relu_is_connected_zeros():
    x = leaf([-1.0, 0.0, 2.0])
    (g,) = pb.gradients(pb.sum(pb.relu(x)), x, create_graph=True)
    assert pb.gradients(pb.sum(g), x)[0].tolist() == [0.0, 0.0, 0.0]


def test_gradient_that_is_constant_is_no_fake_leaf():
    x = leaf([1.0])
    (g,) = pb.gradients(x + x, x, create_graph=True)
    assert (g.tolist(), g.requires_grad) == ([2.0], False)


def test_without_create_graph_a_gradient_is_a_constant():
    x = leaf(2.0)
    (g,) = pb.gradients(x**3, x)
    assert not g.requires_grad


def test_mixed_second_derivatives():
    x, y = leaf(2.0), leaf(3.0)
    (of_x,) = pb.gradients(x * y, x, create_graph=True)
    assert pb.gradients(of_x, y)[0].item() == 1.0
    f = pb.sin(x * y) * y
    (of_x,) = pb.gradients(f, x, create_graph=True)
    (of_y,) = pb.gradients(f, y, create_graph=True)
    np.testing.assert_allclose(
        pb.gradients(of_x, y, retain_graph=True)[0].item(), pb.gradients(of_y, x)[0].item(), rtol=1e-14
    )


def test_mixed_derivatives_of_a_broadcast_product():
    x = leaf([[2.0], [3.0]])
    y = leaf([[5.0, 7.0, 11.0], [13.0, 17.0, 19.0]])
    (g,) = pb.gradients(pb.sum(x * y), x, create_graph=True)
    assert g.tolist() == [[23.0], [49.0]]
    assert pb.gradients(pb.sum(g), y)[0].tolist() == [[1.0] * 3] * 2


def test_products_with_a_factor():
    a, b, value = leaf([1.0, 2.0, 3.0]), leaf([4.0, 5.0, 6.0]), 1.7
    (g,) = pb.gradients(pb.sum(value * a * b), a, create_graph=True)
    np.testing.assert_allclose(g.detach().numpy(), [6.8, 8.5, 10.2])
    np.testing.assert_allclose(pb.gradients(pb.sum(g), b)[0].numpy(), [1.7] * 3)
    of_a, of_b = pb.gradients(pb.sum(value * a / b), [a, b], create_graph=True)
    np.testing.assert_allclose(of_a.detach().numpy(), [0.425, 0.34, 0.2833333333], rtol=1e-9)
    np.testing.assert_allclose(of_b.detach().numpy(), [-0.10625, -0.136, -0.1416666667], rtol=1e-9)
    np.testing.assert_allclose(pb.gradients(pb.sum(of_a), b)[0].numpy(), [-0.10625, -0.068, -0.0472222222], rtol=1e-8)


def jacobian(f, x):
    x = leaf(x)
    y = f(x)
    rows = [pb.gradients(y, x, seed, retain_graph=True, allow_unused=True)[0] for seed in np.eye(y.size)]
    return np.array([r.numpy() if r is not None else np.zeros(x.size) for r in rows])


def hessian(f, x):
    x = leaf(x)
    (g,) = pb.gradients(f(x), x, create_graph=True)
    return np.array([pb.gradients(g, x, seed, retain_graph=True)[0].numpy() for seed in np.eye(x.size)])


@pytest.mark.parametrize(
    ("how", "f", "x", "wanted"),
    [
        (jacobian, lambda x: pb.stack([x[0] ** 2, x[0] * x[1]]), [2.0, 3.0], [[4.0, 0.0], [3.0, 2.0]]),
        (jacobian, lambda x: x * 1.0, [2.0, 3.0], np.eye(2)),
        (jacobian, lambda x: 3.0 * x, [2.0, 3.0], 3 * np.eye(2)),
        (hessian, lambda x: pb.sum(x**2), [2.0, 3.0], 2 * np.eye(2)),
        (hessian, lambda x: pb.sum(x**3), [2.0], [[12.0]]),
        (hessian, lambda x: x[0] * x[1], [2.0, 3.0], [[0.0, 1.0], [1.0, 0.0]]),
        (hessian, pb.prod, [0.0, 3.0, 5.0], [[0.0, 5.0, 3.0], [5.0, 0.0, 0.0], [3.0, 0.0, 0.0]]),
        (hessian, pb.prod, [0.0, 0.0, 5.0], [[0.0, 5.0, 0.0], [5.0, 0.0, 0.0], [0.0, 0.0, 0.0]]),
        (hessian, lambda x: pb.logsumexp(x), [0.0, 0.0], [[0.25, -0.25], [-0.25, 0.25]]),
        (hessian, lambda x: pb.max(x) * x[0], [2.0, 1.0], [[2.0, 0.0], [0.0, 0.0]]),
        (hessian, lambda x: pb.sum(pb.take(x, [0, 0, 1]) ** 2), [1.0, 2.0], [[4.0, 0.0], [0.0, 2.0]]),
        (hessian, lambda x: pb.sum((x @ np.array([[1.0, 2.0], [3.0, 4.0]])) ** 2), [1.0, 2.0], [[10, 22], [22, 50]]),
        (hessian, lambda x: pb.var(x), [1.0, 3.0], [[0.5, -0.5], [-0.5, 0.5]]),
    ],
)  # fmt: skip
def test_jacobians_and_hessians_by_rows(how, f, x, wanted):
    np.testing.assert_allclose(how(f, x), wanted, rtol=1e-12, atol=1e-14)


def test_gradient_penalties():
    def penalty(critic, point, scale):
        x = leaf(point)
        (g,) = pb.gradients(pb.sum(critic(x)), x, create_graph=True)
        return scale * (pb.sqrt(pb.sum(g * g)) - 1.0) ** 2

    assert penalty(lambda x: x, np.ones(4), 10.0).item() == 10.0
    assert penalty(lambda x: x * x, [2.0], 5.0).item() == 45.0
    w = leaf([2.0, 3.0])
    penalty(lambda x: w * x, [1.0, 1.0], 10.0).backward()
    np.testing.assert_allclose(
        w.grad.numpy(), 20 * (math.sqrt(13) - 1) / math.sqrt(13) * np.array([2.0, 3.0]), rtol=1e-14
    )


@pytest.mark.parametrize(("f", "x", "wanted"), [(lambda x: x**2, [3.0, 4.0], 10.0), (lambda x: x**3, [2.0], 12.0)])
def test_norm_of_a_gradient(f, x, wanted):
    x = leaf(x)
    (g,) = pb.gradients(pb.sum(f(x)), x, create_graph=True)
    assert math.isclose(pb.sqrt(pb.sum(g * g)).item(), wanted)


def test_gradient_flows_through_an_update_to_the_first_parameters():
    start = leaf(2.0)
    w = start
    for _ in range(3):
        (g,) = pb.gradients(w**2, w, create_graph=True)
        w = w - 0.1 * g
    w.backward()
    assert math.isclose(start.grad.item(), 0.8**3)


def test_backward_with_create_graph_hangs_grad_on_the_graph():
    x = leaf(2.0)
    (x**3).backward(create_graph=True)
    assert x.grad.requires_grad
    (second,) = pb.gradients(x.grad, x, retain_graph=True)
    assert second.item() == 12.0
    (x.grad * x.grad).backward(inputs=[x])
    assert x.grad.item() == 12.0 + 2 * 12.0 * 12.0


def test_freed_gradient_graph_names_the_line_that_asked_for_it():
    x = leaf(2.0)
    (g,) = pb.gradients(x * x * x, x, create_graph=True)
    g.backward()
    with pytest.raises(errors.GraphError, match=r"made at (tests/)?test_higher_order\.py"):
        g.backward()


def test_linked_and_plain_gradients_are_the_same_numbers():
    rng = np.random.default_rng(3)
    x, w = leaf(rng.normal(size=(3, 4))), leaf(rng.normal(size=(4, 2)))
    h = pb.tanh(x @ w)
    loss = pb.sum(pb.softmax(h) * pb.log_softmax(h)) + pb.std(x) + pb.sum(pb.where(x > 0, pb.sqrt(pb.abs(x)), x**3))
    plain = pb.gradients(loss, [x, w], retain_graph=True)
    linked = pb.gradients(loss, [x, w], create_graph=True)
    for p, l in zip(plain, linked, strict=True):  # noqa: E741
        np.testing.assert_array_equal(p.numpy(), l.detach().numpy())


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_higher_orders_stay_in_their_dtype(dtype):
    x = leaf([0.5, 1.5], dtype)
    current = pb.sum(pb.exp(x) * x**2 / (x + 1) + pb.sigmoid(x) * pb.max(x) + pb.std(x))
    for _ in range(3):
        (g,) = pb.gradients(current, x, create_graph=True)
        assert g.dtype == dtype
        current = pb.sum(g)


def test_complex_second_order():
    z = leaf(1 + 2j, np.complex128)
    (g,) = pb.gradients(pb.real(z * pb.conj(z)) ** 2, z, create_graph=True)
    assert g.item() == 4 * 5 * (1 + 2j)
    (h,) = pb.gradients(pb.real(g), z)
    # Re g = 4 (a^2 + b^2) a: its derivative along a is 12 a^2 + 4 b^2, along b 8 a b
    assert h.item() == (12 + 16) + 16j


@pytest.mark.parametrize("times", [2, 3])
def test_interleaved_levels_do_not_mix(times):
    """d/dx (x * d/dy (x + y)) is 1: the inner derivative must not see the outer variable's own path."""
    x = leaf(1.0)
    total = x
    for _ in range(times):
        y = leaf(2.0)
        (inner,) = pb.gradients(x + y, y, create_graph=True)
        total = total * inner
    assert pb.gradients(total, x)[0].item() == 1.0
