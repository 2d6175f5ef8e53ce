"""Derivatives inside derivatives: every nesting of every mode gives the same number, and no two are confused."""

import cmath
import itertools

import numpy as np
import pytest

import pullback as pb
from pullback import errors
from pullback.transforms.taylor.jet import jet

ALONG = complex(0.3, 1.7)  # Im exp(c x) has the n-th derivative Im c^n exp(c x)


def wave(x):
    return pb.exp(ALONG.real * x) * pb.sin(ALONG.imag * x)


def wave_derivative(x, order):
    return (ALONG**order * cmath.exp(ALONG * x)).imag


def by_grad(f):
    return pb.grad(f)


def by_vjp(f):
    return lambda x: pb.vjp(f, x)[1](np.ones(()))[0]


def by_elementwise(f):
    return pb.elementwise_grad(f)


def by_jvp(f):
    return lambda x: pb.jvp(f, (x,), (1.0,))[1]


def by_linearize(f):
    return lambda x: pb.linearize(f, x)[1](1.0)


def dual_of(y, context):
    """A result of plain code as a dual: a tape inside the context answers with a tensor over one."""
    return y.value if isinstance(y, pb.Tensor) and isinstance(y.value, pb.Dual) else y + context.dual(0.0)


def by_context(f):
    def derivative(x):
        with pb.ForwardContext() as context:
            return dual_of(f(context.dual(x, 1.0)), context).tangent

    return derivative


def by_directions(f):
    def derivative(x):
        with pb.ForwardContext() as context:
            return dual_of(f(context.dual(x, tangents=[1.0, -2.0])), context).tangents[0]

    return derivative


def by_tape(f):
    def derivative(x):
        tracked = isinstance(x, pb.Tensor) and x.requires_grad
        x = pb.positive(x) if tracked else pb.tensor(x, requires_grad=True)
        return pb.gradients(f(x), x, create_graph=True)[0]

    return derivative


def by_jet(f):
    return lambda x: jet(f, (x,), ([1.0],))[1][0]


def in_a_batch(d):
    """A derivative at x, taken in a batch whose other element is elsewhere."""
    return lambda f: lambda x: pb.vmap(d(f))(pb.stack([x + 1.0, x]))[1]


WAYS = {
    "grad": by_grad,
    "jvp": by_jvp,
    "vmap(grad)": in_a_batch(by_grad),
    "vmap(jvp)": in_a_batch(by_jvp),
    "vjp": by_vjp,
    "elementwise_grad": by_elementwise,
    "linearize": by_linearize,
    "context": by_context,
    "directions": by_directions,
    "tape": by_tape,
    "jet": by_jet,
    "vmap(tape)": in_a_batch(by_tape),
    "vmap(context)": in_a_batch(by_context),
}
MODES = {"forward": by_jvp, "reverse": by_grad}
PAIRS = list(itertools.product(WAYS, WAYS))
FEW = ["grad", "jvp", "vmap(grad)", "context", "tape", "linearize", "jet"]
FEW_PAIRS = list(itertools.product(FEW, FEW))
FOUR = list(itertools.product(MODES, MODES))


def number(x):
    """A derivative as a float, wherever it was taken."""
    return float(x.detach() if isinstance(x, pb.Tensor) else x)


@pytest.mark.parametrize("way", WAYS)
def test_first_derivative(way):
    assert number(WAYS[way](wave)(0.7)) == pytest.approx(wave_derivative(0.7, 1), rel=1e-13)


@pytest.mark.parametrize(("outer", "inner"), PAIRS)
def test_second_derivative_in_every_pair(outer, inner):
    assert number(WAYS[outer](WAYS[inner](wave))(0.7)) == pytest.approx(wave_derivative(0.7, 2), rel=1e-12)


@pytest.mark.parametrize("ways", list(itertools.product(["grad", "jvp", "vmap(grad)"], repeat=3)), ids="-".join)
def test_third_derivative_in_all_27_triples(ways):
    outer, middle, inner = (WAYS[way] for way in ways)
    assert number(outer(middle(inner(wave)))(0.7)) == pytest.approx(wave_derivative(0.7, 3), rel=1e-12)


@pytest.mark.parametrize(
    "ways", list(itertools.product(["context", "tape", "linearize", "jet"], repeat=3)), ids="-".join
)
def test_third_derivative_by_other_ways(ways):
    outer, middle, inner = (WAYS[way] for way in ways)
    assert number(outer(middle(inner(wave)))(0.7)) == pytest.approx(wave_derivative(0.7, 3), rel=1e-12)


@pytest.mark.parametrize("way", ["grad", "jvp", "context", "tape"])
def test_fifth_derivative(way):
    f = wave
    for _ in range(5):
        f = WAYS[way](f)
    assert number(f(0.7)) == pytest.approx(wave_derivative(0.7, 5), rel=1e-11)


# Perturbation confusion: the inner derivative must see the outer variable as a constant of its own.


@pytest.mark.parametrize(("outer", "inner"), FEW_PAIRS)
def test_inner_derivative_of_a_sum_is_one(outer, inner):
    assert number(WAYS[outer](lambda x: x * WAYS[inner](lambda y: x + y)(1.0))(1.0)) == 1.0


@pytest.mark.parametrize(("outer", "inner"), FEW_PAIRS)
def test_inner_derivative_at_the_outer_variable_itself(outer, inner):
    # d/dx [x d/dy (x y^2) at y = x] = d/dx 2 x^3 = 6 x^2
    found = WAYS[outer](lambda x: x * WAYS[inner](lambda y: x * y * y)(x))(3.0)
    assert number(found) == pytest.approx(54.0, rel=1e-14)


@pytest.mark.parametrize(("outer", "inner"), FEW_PAIRS)
def test_inner_derivative_with_respect_to_a_constant(outer, inner):
    # d/dx d/dy (x^2 y^3) at y = 2: 24 x
    found = WAYS[outer](lambda x: WAYS[inner](lambda y: x * x * y * y * y)(2.0))(5.0)
    assert number(found) == pytest.approx(120.0, rel=1e-14)


@pytest.mark.parametrize(("outer", "inner"), FEW_PAIRS)
def test_inner_derivative_does_not_depend_on_the_inner_variable(outer, inner):
    # the inner function is x alone, so its derivative is zero, though x moves outside
    def f(x):
        return x * x + WAYS[inner](lambda y: x * x + 0.0 * y)(2.0)

    assert number(WAYS[outer](f)(3.0)) == 6.0


@pytest.mark.parametrize("ways", list(itertools.product(MODES, repeat=3)), ids="-".join)
def test_three_levels_do_not_mix(ways):
    outer, middle, inner = (MODES[way] for way in ways)

    def f(x):
        return x * middle(lambda y: y * inner(lambda z: x * y * z)(x + y))(2.0 * x)

    # inner: x y; y * x y = x y^2, middle: 2 x y at y = 2x: 4 x^2; f = 4 x^3
    assert number(outer(f)(1.5)) == pytest.approx(12 * 1.5**2, rel=1e-14)


@pytest.mark.parametrize("ways", list(itertools.product(["grad", "jvp", "vmap(jvp)"], repeat=3)), ids="-".join)
def test_mixed_partials_of_three_variables(ways):
    dx, dy, dz = (WAYS[way] for way in ways)

    def f(x, y, z):
        return pb.sin(x * y) * pb.exp(y * z)

    found = dx(lambda x: dy(lambda y: dz(lambda z: f(x, y, z))(0.4))(0.3))(0.2)
    # f_z = y sin(xy) e^(yz); with s = sin(xy), c = cos(xy), e = e^(yz):
    # f_zy = e (s + x y c + y z s);  f_zyx = e (y c + y c - x y^2 s + y^2 z c)
    x, y, z = 0.2, 0.3, 0.4
    s, c, e = np.sin(x * y), np.cos(x * y), np.exp(y * z)
    assert number(found) == pytest.approx(e * (2 * y * c - x * y * y * s + y * y * z * c), rel=1e-13)


@pytest.mark.parametrize(("outer", "inner"), FOUR)
def test_a_derivative_inside_a_loop_and_a_branch(outer, inner):
    def f(x):
        total = x
        for _ in range(3):
            slope = MODES[inner](lambda y, total=total: y * total)(x)  # = total
            total = total + slope * x if slope > 0 else total
        return total

    # total <- total (1 + x), three times: x (1 + x)^3
    x = 0.5
    assert number(MODES[outer](f)(x)) == pytest.approx((1 + x) ** 3 + 3 * x * (1 + x) ** 2, rel=1e-14)


# Closures and mutable state, where a tag that is attached too early or too late gives a wrong number.


@pytest.mark.parametrize(("outer", "inner"), FEW_PAIRS)
def test_curried_derivative_operator(outer, inner):
    """The shift operator s(u)(f)(x) = f(x + u), differentiated by u at 0, is differentiation; twice it is the second
    derivative. Systems that give the tag to the operator and not to its use find zero here.
    """

    def differentiation(way):
        def operator(f):
            return lambda x: way(lambda u: f(x + u))(0.0)

        return operator

    second = differentiation(WAYS[outer])(differentiation(WAYS[inner])(wave))
    assert number(second(0.7)) == pytest.approx(wave_derivative(0.7, 2), rel=1e-12)


@pytest.mark.parametrize("way", ["grad", "jvp", "vjp", "linearize", "jet"])
def test_a_function_valued_result_is_refused(way):
    with pytest.raises(errors.PullbackError):
        WAYS[way](lambda u: lambda x: x + u)(0.0)


@pytest.mark.parametrize("way", ["jvp", "context", "linearize", "jet"])
def test_a_closure_that_kept_a_perturbation_raises_when_called_later(way):
    kept = []

    def f(u):
        kept.append(lambda x: x * u)
        return u * u

    WAYS[way](f)(3.0)
    with pytest.raises(errors.LeakError):
        kept[0](2.0)


@pytest.mark.parametrize(("outer", "inner"), FOUR)
def test_a_cell_written_by_the_inner_function_carries_the_outer_derivative(outer, inner):
    def f(x):
        cell = {}

        def g(y):
            cell["seen"] = x * x  # the outer variable only
            return x * y

        return MODES[inner](g)(2.0) + cell["seen"]

    assert number(MODES[outer](f)(3.0)) == 1.0 + 6.0


def test_a_cell_with_an_inner_perturbation_is_not_taken_for_an_outer_one():
    def f(x):
        cell = []

        def g(y):
            cell.append(y * x)
            return y * x

        pb.jvp(g, (2.0,), (1.0,))
        return cell[0]

    with pytest.raises(errors.LeakError):
        pb.jvp(f, (3.0,), (1.0,))
    with pytest.raises(errors.LeakError):
        pb.grad(f)(3.0)


def test_a_variable_of_an_inner_gradient_that_escapes_is_a_tensor_with_the_outer_derivative():
    def f(x):
        cell = []

        def g(y):
            cell.append(y * x)
            return y * x

        pb.grad(g)(2.0)
        return cell[0]

    assert number(pb.grad(f)(3.0)) == 2.0


@pytest.mark.parametrize(("outer", "inner"), FOUR)
def test_an_accumulator_across_calls(outer, inner):
    """A running product kept outside of the inner function, which multiplies it at each call."""

    def f(x):
        product = [x]

        def g(y):
            product[0] = product[0] * x
            return product[0] * y

        first = MODES[inner](g)(1.0)  # x^2
        second = MODES[inner](g)(1.0)  # x^3
        return first * second

    assert number(MODES[outer](f)(2.0)) == pytest.approx(5 * 2.0**4)


@pytest.mark.parametrize("outer", MODES)
def test_a_derivative_made_outside_and_called_inside(outer):
    slope = pb.grad(wave)
    assert number(MODES[outer](lambda x: x * slope(x))(0.7)) == pytest.approx(
        wave_derivative(0.7, 1) + 0.7 * wave_derivative(0.7, 2), rel=1e-13
    )


@pytest.mark.parametrize("outer", ["grad", "jvp", "context", "vmap(grad)", "jet"])
def test_a_pullback_made_outside_and_pulled_inside(outer):
    _, pull = pb.vjp(lambda y: y * y * y, 2.0)  # pulls back by 12
    found = WAYS[outer](lambda x: pull(x * x)[0])(3.0)
    assert number(found) == 72.0


@pytest.mark.parametrize("outer", ["grad", "jvp", "context", "vmap(grad)", "jet"])
def test_a_linear_map_made_outside_and_pushed_inside(outer):
    _, push = pb.linearize(lambda y: y * y * y, 2.0)
    assert number(WAYS[outer](lambda x: push(x * x))(3.0)) == 72.0


@pytest.mark.parametrize("outer", ["grad", "jvp", "context", "vmap(jvp)"])
def test_a_pullback_made_inside_and_pulled_twice(outer):
    def f(x):
        value, pull = pb.vjp(lambda y: x * y * y, x)
        return value + pull(x)[0] + pull(2.0 * np.ones(()))[0]

    # x^3 + 2 x^3 + 4 x^2
    assert number(WAYS[outer](f)(3.0)) == pytest.approx(9 * 9.0 + 8 * 3.0)


# vmap between derivatives.

POINTS = np.array([0.2, 0.7, -1.1])


@pytest.mark.parametrize(("outer", "inner"), FOUR)
def test_vmap_outside_of_both(outer, inner):
    found = pb.vmap(MODES[outer](MODES[inner](wave)))(POINTS)
    np.testing.assert_allclose(found, [wave_derivative(x, 2) for x in POINTS], rtol=1e-12)


@pytest.mark.parametrize("outer", MODES)
@pytest.mark.parametrize("inner", MODES)
def test_vmap_between(outer, inner):
    def f(x):
        return pb.sum(pb.vmap(MODES[inner](lambda y: wave(y) * x))(POINTS) * pb.arange(3.0) * x)

    # x^2 sum k wave'(p_k)
    slopes = sum(k * wave_derivative(p, 1) for k, p in enumerate(POINTS))
    assert number(MODES[outer](f)(1.5)) == pytest.approx(3.0 * slopes, rel=1e-13)


@pytest.mark.parametrize("mode", MODES)
def test_vmap_of_vmap_of_a_derivative(mode):
    grid = np.arange(6.0).reshape(2, 3) / 5
    found = pb.vmap(pb.vmap(MODES[mode](wave)))(grid)
    np.testing.assert_allclose(found, np.vectorize(lambda x: wave_derivative(x, 1))(grid), rtol=1e-13)


@pytest.mark.parametrize("mode", MODES)
def test_derivative_of_a_batch_in_which_only_some_elements_move(mode):
    def f(x):
        return pb.sum(pb.vmap(lambda p: pb.where(p > 0.0, p * x * x, p))(POINTS))

    assert number(MODES[mode](f)(2.0)) == pytest.approx(4.0 * 0.9)


@pytest.mark.parametrize(("outer", "inner"), FOUR)
def test_batched_closure_inside_nested_derivatives(outer, inner):
    """The value in common to both derivatives is the batched one."""
    found = pb.vmap(lambda p: MODES[outer](lambda x: x * MODES[inner](lambda y: x * y * p)(p))(p))(POINTS)
    np.testing.assert_allclose(found, 2 * POINTS * POINTS, rtol=1e-14)


def test_batch_of_pullbacks_is_a_jacobian():
    def f(x):
        return pb.stack([x[0] * x[1], pb.sin(x[0]), x[1] ** 3])

    x = np.array([0.4, 1.3])
    wanted = np.array([[1.3, 0.4], [np.cos(0.4), 0.0], [0.0, 3 * 1.3**2]])
    _, pull = pb.vjp(f, x)
    np.testing.assert_allclose(pb.vmap(pull)(np.eye(3))[0], wanted, rtol=1e-14)
    _, push = pb.linearize(f, x)
    np.testing.assert_allclose(pb.vmap(push, out_axes=1)(np.eye(2)), wanted, rtol=1e-14)


# Contexts.


def test_duals_of_duals():
    with pb.ForwardContext() as outer:
        x = outer.dual(0.7, 1.0)
        with pb.ForwardContext() as inner:
            y = wave(inner.dual(x, 1.0))
            slope = y.tangent
        assert number(slope.primal) == pytest.approx(wave_derivative(0.7, 1), rel=1e-13)
        assert number(slope.tangent) == pytest.approx(wave_derivative(0.7, 2), rel=1e-13)
        assert number(y.primal.tangent) == pytest.approx(wave_derivative(0.7, 1), rel=1e-13)


def test_two_open_contexts_keep_their_directions_apart():
    with pb.ForwardContext() as first, pb.ForwardContext() as second:
        x, y = first.dual(2.0, 1.0), second.dual(3.0, 1.0)
        z = x * x * y  # second is the higher one
        assert number(z.tangent.primal) == 4.0
        assert number(z.tangent.tangent) == 4.0
        assert number(z.primal.tangent) == 12.0


def test_a_dual_of_an_outer_context_over_an_inner_one_is_right_or_refused():
    """The tangent must be that of all that moves; an order of levels that would lose one is an error."""
    with pb.ForwardContext() as outer, pb.ForwardContext() as inner:
        y = inner.dual(2.0, 1.0)
        try:
            x = outer.dual(y, 1.0)
        except errors.PullbackError:
            return
        z = x * y  # (2 + b + a) (2 + b): by b it is 4 + a
        along = z.tangent if z.level == y.level else z.primal.tangent
        assert number(along.primal if isinstance(along, pb.Dual) else along) == 4.0


def test_gradient_of_what_a_context_computes():
    def f(x):
        with pb.ForwardContext() as context:
            return wave(context.dual(x, x)).tangent  # x wave'(x)

    assert number(pb.grad(f)(0.7)) == pytest.approx(wave_derivative(0.7, 1) + 0.7 * wave_derivative(0.7, 2), rel=1e-13)


def test_gradient_inside_a_context():
    with pb.ForwardContext() as context:
        x = context.dual(0.7, 1.0)
        slope = pb.grad(wave)(x)
        constant = pb.grad(wave)(0.7)
    assert number(slope.tangent) == pytest.approx(wave_derivative(0.7, 2), rel=1e-13)
    assert number(constant) == pytest.approx(wave_derivative(0.7, 1), rel=1e-13)


# The tape under and over transforms.


@pytest.mark.parametrize("mode", [*MODES, "vmap"])
def test_backward_through_a_transform_of_a_function_with_a_parameter(mode):
    w = pb.tensor(1.3, requires_grad=True)
    ways = {**MODES, "vmap": in_a_batch(by_grad)}
    ways[mode](lambda x: pb.sin(w * x))(0.7).backward()
    # d/dw [w cos(w x)] = cos(w x) - w x sin(w x)
    assert w.grad.item() == pytest.approx(np.cos(0.91) - 0.91 * np.sin(0.91), rel=1e-13)


@pytest.mark.parametrize("mode", MODES)
def test_backward_to_the_argument_of_a_transform(mode):
    x = pb.tensor(0.7, requires_grad=True)
    MODES[mode](wave)(x).backward()
    assert x.grad.item() == pytest.approx(wave_derivative(0.7, 2), rel=1e-13)


@pytest.mark.parametrize(("outer", "inner"), FOUR)
def test_backward_through_two_transforms(outer, inner):
    x = pb.tensor(0.7, requires_grad=True)
    MODES[outer](MODES[inner](wave))(x).backward()
    assert x.grad.item() == pytest.approx(wave_derivative(0.7, 3), rel=1e-12)


# Two problems that need a derivative of a solver that itself differentiates.


def potential(position, w):
    """Two charges, one of which is moved by the control w."""
    x, y = position[0], position[1]
    above = pb.sqrt((x - 10.0) ** 2 + (y - 10.0 + w) ** 2)
    below = pb.sqrt((x - 10.0) ** 2 + y**2)
    return 1.0 / above + 1.0 / below


def by_coordinates(d):
    """The gradient in two variables by derivatives in one."""
    return lambda f: (
        lambda p: pb.stack([d(lambda x: f(pb.stack([x, p[1]])))(p[0]), d(lambda y: f(pb.stack([p[0], y])))(p[1])])
    )


GRADIENTS = {"reverse": pb.grad, "forward": by_coordinates(by_jvp)}
CONTROL = 0.38197627447344923  # by bisection of the same path, with the forces written out


def landing(w, gradient):
    """The squared distance from the origin at which a particle falls through the line y = 0, by explicit Euler."""
    position, velocity, step = np.array([0.0, 8.0]), np.array([0.75, 0.0]), 1.0
    while True:
        acceleration = -1.0 * gradient(lambda p: potential(p, w))(position)
        following = position + step * velocity
        if following[1] <= 0.0:
            fall = position[1] / (position[1] - following[1])
            there = position + fall * (following - position)
            return there[0] ** 2
        position, velocity = following, velocity + step * acceleration


@pytest.mark.parametrize("outer", MODES)
@pytest.mark.parametrize("inner", GRADIENTS)
def test_particle_steered_to_its_target_by_newton(outer, inner):
    d = MODES[outer]
    energy = lambda w: landing(w, GRADIENTS[inner])  # noqa: E731
    w = 0.3
    for _ in range(5):
        w = w - number(d(energy)(w)) / number(d(d(energy))(w))
    assert number(energy(w)) == pytest.approx(0.0, abs=1e-20)
    assert w == pytest.approx(CONTROL, rel=1e-12)


@pytest.mark.parametrize("outer", GRADIENTS)
@pytest.mark.parametrize("inner", GRADIENTS)
def test_saddle_point_by_nested_descent(outer, inner):
    """min over p of max over q of p.p - q.q + p.q / 2, each by gradient steps, the outer through all inner ones."""

    def best_answer(p):
        q = np.array([1.0, 1.0])
        for _ in range(6):
            q = q + 0.3 * GRADIENTS[inner](lambda q: value(p, q))(q)
        return q

    def value(p, q):
        return pb.sum(p * p) - pb.sum(q * q) + 0.5 * pb.sum(p * q)

    p = np.array([1.0, -0.5])
    for _ in range(8):
        p = p - 0.3 * np.asarray(GRADIENTS[outer](lambda p: value(p, best_answer(p)))(p))
    # q after 6 steps of 0.3: q = c + (1 - c) r with r = 0.4^6, c = p / 4; then the same steps for p in closed form
    r, q = 0.4**6, np.array([1.0, -0.5])
    for _ in range(8):
        c, answer = (1 - r) / 4, (1 - r) / 4 * q + r
        q = q - 0.3 * (2 * q - 2 * answer * c + 0.5 * answer + 0.5 * q * c)
    np.testing.assert_allclose(p, q, rtol=1e-12, atol=1e-15)
