"""Answers of equations and their derivatives: against closed forms, to third order, in every mode, and the errors."""

import itertools
import math
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from scipy import optimize, sparse, special

import pullback as pb
from pullback import errors, implicit
from pullback.implicit.linear_systems import linear_solve
from pullback.implicit.solve_functions import argmin, fixed_point, least_squares, root

rng = np.random.default_rng(0)


def leaf(data, dtype=np.float64):
    return pb.tensor(data, dtype=dtype, requires_grad=True)


def close(found, wanted, rtol=1e-9, atol=1e-10):
    np.testing.assert_allclose(found, wanted, rtol=rtol, atol=atol)


def push(f):
    """The derivative of a scalar function by forward mode."""
    return lambda x: pb.jvp(f, (x,), (pb.ones_like(x),))[1]


def tape(f):
    """The derivative of a scalar function by the tape."""

    def derivative(x):
        x = leaf(x)
        return pb.gradients(f(x), [x])[0].numpy()

    return derivative


def affine(x, b):
    return 0.5 * x + b


# What is asked for first: values and slopes known by heart.


def test_half_x_plus_one_is_two():
    close(fixed_point(lambda x: 0.5 * x + 1, 0.0), 2.0)


@pytest.mark.parametrize("derivative", [pb.grad, push, tape], ids=["reverse", "forward", "tape"])
def test_the_slope_of_an_affine_fixed_point(derivative):
    close(fixed_point(affine, 0.0, 3.0), 6.0, rtol=0, atol=1e-9)
    close(derivative(lambda b: fixed_point(affine, 0.0, b))(3.0), 2.0, rtol=0, atol=1e-10)


@pytest.mark.parametrize("derivative", [pb.grad, push, tape], ids=["reverse", "forward", "tape"])
def test_a_fixed_point_that_stays_at_zero_has_slope_zero(derivative):
    close(fixed_point(lambda x, a: a * x, 1.0, 0.5), 0.0, atol=1e-9)
    close(derivative(lambda a: fixed_point(lambda x, a: a * x, 0.0, a))(0.5), 0.0)
    close(derivative(lambda a: fixed_point(lambda x, a: a * x, 1.0, a))(0.5), 0.0, atol=1e-8)


def test_no_node_where_no_parameter_needs_a_gradient():
    b = pb.tensor(3.0)
    found = fixed_point(affine, 0.0, b)
    assert isinstance(found, pb.Tensor)
    assert not found.requires_grad
    assert fixed_point(affine, 0.0, leaf(3.0)).requires_grad
    with pb.no_grad():
        assert not fixed_point(affine, 0.0, leaf(3.0)).requires_grad
    assert type(fixed_point(affine, 0.0, np.array(3.0))) is np.ndarray


@pytest.mark.parametrize("derivative", [pb.grad, push, tape], ids=["reverse", "forward", "tape"])
def test_a_contraction_of_one_percent(derivative):
    found = derivative(lambda b: fixed_point(lambda x, b: 0.99 * x + b, 0.0, b, max_steps=5000))(1.0)
    close(found, 100.0, rtol=0, atol=1e-8)


def test_too_few_steps_raise_and_say_how_far_they_got():
    with pytest.raises(errors.ConvergenceError, match="NOT converged in 3 steps") as caught:
        fixed_point(lambda x: 0.9 * x + 1, 0.0, solver=implicit.Picard(), max_steps=3)
    assert caught.value.report.steps == 3
    assert not caught.value.report.converged
    close(caught.value.report.residual, 0.9**3)
    close(caught.value.best, 10 * (1 - 0.9**3))


def test_the_best_found_looks_like_the_unknown():
    with pytest.raises(errors.ConvergenceError) as caught:
        fixed_point(lambda x: {"u": 0.9 * x["u"] + 1}, {"u": 0.0}, solver=implicit.Picard(), max_steps=2)
    close(caught.value.best["u"], 1.9)


@pytest.mark.parametrize("pose", [fixed_point, root, argmin, least_squares])
def test_every_form_raises_what_it_could_not_reach(pose):
    with pytest.raises(errors.ConvergenceError) as caught:
        pose(lambda x: pb.sum(pb.exp(x)) if pose is argmin else pb.exp(x) + x * x + 1, np.zeros(1), max_steps=4)
    assert not caught.value.report.converged
    assert caught.value.report.tolerance < caught.value.report.residual
    assert np.shape(caught.value.best) == (1,)


# Against closed forms.


def ridge(X, y, lam):
    """w with (X^T X + lam) w = X^T y, and dw/dlam = -(X^T X + lam)^-1 w."""
    H = X.T @ X + lam * np.eye(X.shape[1])
    w = np.linalg.solve(H, X.T @ y)
    return w, -np.linalg.solve(H, w)


X, y = rng.normal(size=(20, 4)) / 4, rng.normal(size=20)


def ridge_by_argmin(lam):
    def loss(w, lam):
        return 0.5 * pb.sum((X @ w - y) ** 2) + 0.5 * lam * pb.sum(w * w)

    policy = implicit.Implicit(tol=1e-14)
    return argmin(loss, np.zeros(4), lam, tol=1e-14, derivative=policy, solver=implicit.Newton())


def ridge_by_linear_solve(lam):
    return linear_solve(X.T @ X + lam * np.eye(4), X.T @ y, symmetric=True, definite=True, tol=1e-14)


@pytest.mark.parametrize("answer", [ridge_by_argmin, ridge_by_linear_solve])
def test_ridge_regression_against_its_closed_form(answer):
    w, slope = ridge(X, y, 0.7)
    close(answer(0.7), w, rtol=0, atol=1e-12)
    close(pb.jacrev(answer)(0.7), slope, rtol=0, atol=1e-12)
    close(pb.jacfwd(answer)(0.7), slope, rtol=0, atol=1e-12)


def test_ridge_regression_by_the_methods_for_minima():
    def loss(w, lam):
        return 0.5 * pb.sum((X @ w - y) ** 2) + 0.5 * lam * pb.sum(w * w)

    w, slope = ridge(X, y, 0.7)
    for solver in (implicit.BFGS(), implicit.LBFGS()):
        close(argmin(loss, np.zeros(4), 0.7, solver=solver), w, atol=1e-8)
        close(pb.jacrev(lambda lam, s=solver: argmin(loss, np.zeros(4), lam, solver=s))(0.7), slope, atol=1e-8)


def eigenpair(A, start):
    """The pair near a start: A v = l v, with v of length one."""

    def equation(pair, A):
        return {"v": A @ pair["v"] - pair["l"] * pair["v"], "l": pair["v"] @ pair["v"] - 1}

    return root(equation, start, A, tol=1e-13)


def test_the_derivative_of_an_eigenvalue_and_its_vector():
    A = rng.normal(size=(5, 5))
    A = A + A.T
    values, vectors = np.linalg.eigh(A)
    v = vectors[:, 2]
    start = {"v": v + 0.01, "l": values[2] + 0.01}
    found = eigenpair(A, start)
    close(found["l"], values[2])
    close(pb.grad(lambda A: eigenpair(A, start)["l"])(A), np.outer(v, v))

    S = rng.normal(size=(5, 5))
    S = S + S.T
    _, moved = pb.jvp(lambda A: eigenpair(A, start), (A,), (S,))
    close(moved["l"], v @ S @ v)
    close(moved["v"], sum(vectors[:, j] * (vectors[:, j] @ S @ v) / (values[2] - values[j]) for j in (0, 1, 3, 4)))

    second = pb.grad(pb.grad(lambda t: eigenpair(A + t * S, start)["l"]))(0.0)
    close(second, sum(2 * (vectors[:, j] @ S @ v) ** 2 / (values[2] - values[j]) for j in (0, 1, 3, 4)), rtol=1e-8)


def kepler(M, e=0.3):
    return root(lambda E, M, e: E - e * pb.sin(E) - M, M, M, e, tol=1e-13)


def kepler_series(M, e, order):
    """E = M + sum_n 2/n J_n(n e) sin(n M), differentiated term by term."""
    n = np.arange(1, 60)
    turned = np.sin(n * M + order * np.pi / 2)
    return (M, 1.0, 0.0, 0.0)[order] + np.sum(2 * n ** (order - 1.0) * special.jv(n, n * e) * turned)


@pytest.mark.parametrize("order", [0, 1, 2, 3])
@pytest.mark.parametrize("derivative", [pb.grad, push], ids=["reverse", "forward"])
def test_keplers_equation_by_its_series(order, derivative):
    f = kepler
    for _ in range(order):
        f = derivative(f)
    close(f(1.1), kepler_series(1.1, 0.3, order), rtol=1e-9, atol=1e-11)


def test_keplers_equation_by_closed_forms():
    M, e = 1.1, 0.3
    E = float(kepler(M))
    q = 1 - e * math.cos(E)
    by_M, by_e = pb.grad(kepler, (0, 1))(M, e)
    close(by_M, 1 / q)
    close(by_e, math.sin(E) / q)
    mixed = pb.grad(lambda e: pb.grad(kepler)(M, e))(e)
    # d/de of 1/q, with q_e = -cos E + e sin E E_e
    close(mixed, -(-math.cos(E) + e * math.sin(E) * math.sin(E) / q) / q**2)
    third = pb.grad(pb.grad(pb.grad(kepler)))(M, e)
    close(third, (-e * math.cos(E) * q + 3 * (e * math.sin(E)) ** 2) / q**5)


def sinkhorn(cost, a, b, eps=0.5):
    """Potentials of entropic transport; f is fixed up to a constant, so its mean is taken off."""

    def other(f):
        return eps * pb.log(b) - eps * pb.logsumexp((f[:, None] - cost) / eps, axis=0)

    def map_(f, cost, a, b):
        g = eps * pb.log(b) - eps * pb.logsumexp((f[:, None] - cost) / eps, axis=0)
        f = eps * pb.log(a) - eps * pb.logsumexp((g[None, :] - cost) / eps, axis=1)
        return f - pb.mean(f)

    f = fixed_point(map_, np.zeros(5), cost, a, b, tol=1e-13, derivative=implicit.Implicit(tol=1e-13))
    return f, other(f)


def test_sinkhorn_by_the_envelope_theorem_and_by_unrolling():
    cost = rng.uniform(size=(5, 6))
    a, b = np.full(5, 1 / 5), np.full(6, 1 / 6)

    def dual(cost):
        f, g = sinkhorn(cost, a, b)
        return f @ a + g @ b - 0.5 * pb.sum(pb.exp((f[:, None] + g[None, :] - cost) / 0.5))

    f, g = sinkhorn(cost, a, b)
    plan = np.exp((f[:, None] + g[None, :] - cost) / 0.5)
    close(plan.sum(1), a, atol=1e-11)
    close(plan.sum(0), b, atol=1e-11)
    close(pb.grad(dual)(cost), plan, atol=1e-10)

    def by_steps(cost):
        f = np.zeros(5)
        for _ in range(200):
            g = 0.5 * pb.log(b) - 0.5 * pb.logsumexp((f[:, None] - cost) / 0.5, axis=0)
            f = 0.5 * pb.log(a) - 0.5 * pb.logsumexp((g[None, :] - cost) / 0.5, axis=1)
            f = f - pb.mean(f)
        return pb.sum(f**3)

    close(pb.grad(lambda c: pb.sum(sinkhorn(c, a, b)[0] ** 3))(cost), pb.grad(by_steps)(cost))


def test_bilevel_gradient_of_a_validation_loss():
    held_X, held_y = rng.normal(size=(10, 4)), rng.normal(size=10)

    def validation(log_lam):
        def loss(w, lam):
            return 0.5 * pb.sum((X @ w - y) ** 2) + 0.5 * lam * pb.sum(w * w)

        w = argmin(loss, np.zeros(4), pb.exp(log_lam), tol=1e-12)
        return 0.5 * pb.sum((held_X @ w - held_y) ** 2)

    w, slope = ridge(X, y, math.exp(-0.3))
    close(pb.grad(validation)(-0.3), (held_X @ w - held_y) @ held_X @ slope * math.exp(-0.3), rtol=1e-8)
    eps = 1e-4
    change = (pb.grad(validation)(-0.3 + eps) - pb.grad(validation)(-0.3 - eps)) / (2 * eps)
    close(pb.grad(pb.grad(validation))(-0.3), change, rtol=1e-5)


def test_an_outer_argmin_over_an_inner_one_finds_the_best_ridge():
    held_X, held_y = X + 0.1 * rng.normal(size=X.shape), y + 0.5 * rng.normal(size=y.shape)

    def validation(log_lam, held_y):
        def loss(w, lam):
            return 0.5 * pb.sum((X @ w - y) ** 2) + 0.5 * lam * pb.sum(w * w)

        w = argmin(loss, np.zeros(4), pb.exp(log_lam), tol=1e-12, solver=implicit.Newton())
        return 0.5 * pb.sum((held_X @ w - held_y) ** 2)

    found = argmin(validation, 0.0, held_y, tol=1e-9)
    close(pb.grad(validation)(float(found), held_y), 0.0, atol=1e-8)


def test_an_equation_within_an_equation():
    """x = 0.5 cos(y(x, a)) with y = 0.3 sin(y) + a x, against both solved as one."""

    def inner(x, a):
        return fixed_point(lambda y, x, a: 0.3 * pb.sin(y) + a * x, 0.0, x, a, tol=1e-13)

    def nested(a):
        return fixed_point(lambda x, a: 0.5 * pb.cos(inner(x, a)), 0.0, a, tol=1e-12)

    def at_once(a):
        def map_(xy, a):
            x, y = xy
            return 0.5 * pb.cos(y), 0.3 * pb.sin(y) + a * x

        return fixed_point(map_, (0.0, 0.0), a, tol=1e-13)[0]

    for derivative in (pb.grad, push):
        close(derivative(nested)(0.8), derivative(at_once)(0.8))
    close(pb.grad(pb.grad(nested))(0.8), pb.grad(pb.grad(at_once))(0.8), rtol=1e-7)


# Every form, every order, every composition.


def system(a):
    A = pb.stack([pb.stack([2.0 + a * 0, a]), pb.stack([a * a, 3.0 + a * 0])])
    x = linear_solve(A, pb.stack([1.0 + a * 0, pb.sin(a)]), tol=1e-13)
    return x[0] * x[1]


def system_by_function(a):
    def multiply(v):
        return {"u": 2.0 * v["u"] + a * v["w"], "w": a * a * v["u"] + 3.0 * v["w"]}

    x = linear_solve(multiply, {"u": 1.0 + a * 0, "w": pb.sin(a)}, tol=1e-13)
    return x["u"] * x["w"]


def system_by_cramer(a):
    determinant = 6.0 - a**3
    return (3.0 - a * pb.sin(a)) * (2.0 * pb.sin(a) - a * a) / determinant**2


EXACT = implicit.Implicit(tol=1e-13)
TOLD = {"tol": 1e-12, "derivative": EXACT}

# Two unknowns u = M x, each x with a formula: the equation of u is coupled, and its answer still known.
M = np.array([[1.0, 0.3], [-0.2, 0.8]])
N = np.linalg.inv(M)
C = np.array([1.0, 1.3])
FIRST = M @ np.ones(2)


def weighed(u):
    return pb.sum(u * u * np.array([1.0, 2.0]))


#: name: (answer as a function of a scalar, the same as a formula)
FORMS = {
    "fixed_point": (lambda a: fixed_point(lambda x, a: x + 0.3 * (a - x * x), 1.0, a, **TOLD), pb.sqrt),
    "root": (lambda a: root(lambda x, a: x**3 - a * a, 1.0, a, **TOLD), lambda a: a ** (2 / 3)),
    "argmin": (lambda a: argmin(lambda x, a: 0.25 * x**4 - a * x, 1.0, a, **TOLD), lambda a: a ** (1 / 3)),
    "least_squares": (
        lambda a: least_squares(lambda x, a: (x * x - a, x * x - a * a), 1.0, a, **TOLD),
        lambda a: pb.sqrt((a + a * a) / 2),
    ),
    "linear_solve": (system, system_by_cramer),
    "linear_solve by a function": (system_by_function, system_by_cramer),
    "fixed_point of two": (
        lambda a: weighed(fixed_point(lambda u, a: u + 0.3 * (M @ (C * a - (N @ u) ** 2)), FIRST, a, **TOLD)),
        lambda a: weighed(M @ pb.sqrt(C * a)),
    ),
    "root of two": (
        lambda a: weighed(root(lambda u, a: (N @ u) ** 3 - C * a * a, FIRST, a, **TOLD)),
        lambda a: weighed(M @ (C * a * a) ** (1 / 3)),
    ),
    "argmin of two": (
        lambda a: weighed(argmin(lambda u, a: pb.sum(0.25 * (N @ u) ** 4 - C * a * (N @ u)), FIRST, a, **TOLD)),
        lambda a: weighed(M @ (C * a) ** (1 / 3)),
    ),
    "least_squares of two": (
        lambda a: weighed(
            least_squares(lambda u, a: ((N @ u) ** 2 - C * a, (N @ u) ** 2 - C * a * a), FIRST, a, **TOLD)
        ),
        lambda a: weighed(M @ pb.sqrt(C * (a + a * a) / 2)),
    ),
}
WAYS = {"r": pb.grad, "f": push}
ORDERS = ["".join(way) for order in (1, 2, 3) for way in itertools.product("rf", repeat=order)]


@pytest.mark.parametrize("ways", ORDERS)
@pytest.mark.parametrize("form", FORMS)
def test_every_form_in_every_composition_of_modes(form, ways):
    answer, formula = FORMS[form]
    for way in ways:
        answer, formula = WAYS[way](answer), pb.grad(formula)
    close(answer(1.2), formula(1.2), rtol=1e-7)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_on_the_tape_to_third_order(form):
    answer, formula = FORMS[form]
    a = leaf(1.2)
    value = answer(a)
    close(value.item(), formula(1.2))
    for _ in range(3):
        (value,) = pb.gradients(value, [a], create_graph=True)
        formula = pb.grad(formula)
        close(value.item(), formula(1.2), rtol=1e-7)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_in_a_batch(form):
    answer, formula = FORMS[form]
    points = np.array([0.9, 1.2, 1.6])
    for f, g in ((answer, formula), (pb.grad(answer), pb.grad(formula)), (push(answer), push(formula))):
        close(pb.vmap(f)(points), [g(p) for p in points], rtol=1e-7)
    close(pb.grad(lambda p: pb.sum(pb.vmap(answer)(p)))(points), [pb.grad(formula)(p) for p in points], rtol=1e-7)
    close(pb.vmap(pb.grad(pb.grad(answer)))(points), [pb.grad(pb.grad(formula))(p) for p in points], rtol=1e-7)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_has_jacobians_and_hessians(form):
    answer, formula = FORMS[form]
    a = np.array([0.9, 1.2])

    def several(f):
        return lambda a: pb.stack([f(a[0]), f(a[0] * a[1])])

    for jacobian in (pb.jacobian, pb.jacrev, pb.jacfwd):
        close(jacobian(several(answer))(a), jacobian(several(formula))(a), rtol=1e-7)
    close(
        pb.hessian(lambda a: pb.sum(several(answer)(a)))(a),
        pb.hessian(lambda a: pb.sum(several(formula)(a)))(a),
        rtol=1e-7,
    )


def test_solutions_of_more_unknowns_by_differences():
    W = 0.2 * rng.normal(size=(4, 4))
    U, x = rng.normal(size=(4, 3)), rng.normal(size=3)

    def layer(W, U, x):
        return fixed_point(lambda z, W, U, x: pb.tanh(W @ z + U @ x), np.zeros(4), W, U, x, tol=1e-13)

    assert pb.gradcheck(layer, W, U, x)
    assert pb.gradgradcheck(layer, W, U, x)


ADJOINTS = ("Dense", "GMRES", "BiCGStab", "LSMR", "Neumann")


@pytest.mark.parametrize("adjoint", ADJOINTS)
@pytest.mark.parametrize("derivative", [pb.jacrev, pb.jacfwd])
def test_every_adjoint_of_a_fixed_point(adjoint, derivative):
    W = 0.2 * np.random.default_rng(5).normal(size=(4, 4))
    policy = implicit.Implicit(adjoint=getattr(implicit, adjoint)(), tol=1e-11)

    def answer(b):
        return fixed_point(lambda x, b: W @ x + b, np.zeros(4), b, derivative=policy)

    close(derivative(answer)(np.ones(4)), np.linalg.inv(np.eye(4) - W), atol=1e-8)
    close(derivative(pb.vmap(answer))(np.ones((2, 4)))[1, :, 1], np.linalg.inv(np.eye(4) - W), atol=1e-8)


@pytest.mark.parametrize("adjoint", [*ADJOINTS[:-1], "CG", "MINRES"])
def test_every_adjoint_of_a_minimum(adjoint):
    H = X.T @ X + np.eye(4)
    policy = implicit.Implicit(adjoint=getattr(implicit, adjoint)(), tol=1e-11)

    def answer(b):
        return argmin(lambda x, b: 0.5 * x @ (H @ x) - b @ x, np.zeros(4), b, derivative=policy)

    close(pb.jacrev(answer)(np.ones(4)), np.linalg.inv(H), atol=1e-8)


SOLVERS = {
    fixed_point: [implicit.Picard(), implicit.Picard(damping=0.5), implicit.Anderson(), implicit.Anderson(memory=1)],
    root: [implicit.Newton(), implicit.NewtonKrylov(), implicit.Broyden(), implicit.Chord(), implicit.Bisection(0, 3)],
    argmin: [implicit.BFGS(), implicit.LBFGS(), implicit.GradientDescent(), implicit.Newton()],
    least_squares: [implicit.LevenbergMarquardt(), implicit.GaussNewton(), implicit.Newton()],
}


@pytest.mark.parametrize(
    ("pose", "solver"),
    [(pose, solver) for pose, solvers in SOLVERS.items() for solver in solvers],
    ids=lambda x: getattr(x, "__name__", str(x)),
)
def test_the_derivative_does_not_depend_on_the_solver(pose, solver):
    """Each poses x^2 = a in its own way."""
    functions = {
        fixed_point: lambda x, a: x + 0.3 * (a - x * x),
        root: lambda x, a: x * x - a,
        argmin: lambda x, a: x**3 / 3 - a * x,
        least_squares: lambda x, a: x * x - a,
    }

    def answer(a):
        return pose(functions[pose], 1.2, a, solver=solver)

    close(answer(2.0), math.sqrt(2.0), rtol=1e-8)
    close(pb.grad(answer)(2.0), 0.5 / math.sqrt(2.0), rtol=1e-7)
    close(push(push(answer))(2.0), -0.25 * 2.0**-1.5, rtol=1e-6)
    close(pb.vmap(pb.grad(answer))(np.array([1.5, 2.0])), 0.5 / np.sqrt([1.5, 2.0]), rtol=1e-7)


def test_many_unknowns_are_solved_by_products_alone():
    n = 1000
    a = 1.0 + rng.uniform(size=n)

    def around(x):
        return 0.1 * (pb.roll(x, 1) + pb.roll(x, -1))

    poses = {
        "root": lambda x, a: x + x**3 - around(x) - a,
        "fixed_point": lambda x, a: pb.tanh(around(x) + a),
        "argmin": lambda x, a: pb.sum(0.5 * x * x + 0.25 * x**4 - 0.5 * x * around(x) - a * x),
    }
    for name, f in poses.items():
        tracked = leaf(a)
        tracemalloc.start()
        found = getattr(implicit.solve, name)(f, np.zeros(n), tracked)
        bar = rng.normal(size=n)
        found.value.backward(bar)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert found.report.converged
        assert found.report.adjoint.converged
        assert found.report.adjoint.products < 100
        assert peak < n * n * 8 / 4, name
        x = found.value.detach().numpy()
        shift = 0.1 * (np.roll(np.eye(n), 1, 0) + np.roll(np.eye(n), -1, 0))
        if name == "fixed_point":
            slope = np.diag(1 - x**2)
            wanted = slope @ np.linalg.solve(np.eye(n) - shift.T @ slope, bar)
        else:
            wanted = np.linalg.solve((np.diag(1 + 3 * x**2) - shift).T, bar)
        close(tracked.grad.numpy(), wanted, atol=1e-7)


# Trees, closures, starts, integers.


def test_trees_of_unknowns_and_parameters():
    def map_(x, p):
        return {"u": 0.5 * x["u"] + p["b"][0], "v": (0.25 * x["v"][0] + pb.sum(x["u"]) * p["b"][1],)}

    start = {"u": np.zeros((2, 3)), "v": (0.0,)}
    p = {"b": [np.arange(6.0).reshape(2, 3), 3.0]}
    found = fixed_point(map_, start, p)
    close(found["u"], 2 * p["b"][0])
    close(found["v"][0], 4 / 3 * 3.0 * 30.0)
    slope = pb.grad(lambda p: fixed_point(map_, start, p)["v"][0])(p)
    close(slope["b"][0], np.full((2, 3), 8.0))
    close(slope["b"][1], 40.0)


def test_unknowns_of_several_dtypes_keep_them():
    start = {"u": np.zeros(2, np.float32), "v": 0.0}
    found = fixed_point(lambda x, b: {"u": 0.5 * x["u"] + b, "v": 0.5 * x["v"] + b}, start, 1.0, tol=1e-6)
    assert found["u"].dtype == np.float32
    assert found["v"].dtype == np.float64
    close(found["u"], [2.0, 2.0], rtol=1e-5)


def test_closures_over_tracked_tensors():
    b, c = leaf(3.0), leaf(0.5)
    found = fixed_point(lambda x: c * x + b, 0.0)
    found.backward()
    close(b.grad.item(), 2.0)
    close(c.grad.item(), 12.0, rtol=1e-8)

    a = leaf([2.0, 3.0])
    for answer in (
        root(lambda x: x * x - a, np.ones(2)),
        argmin(lambda x: pb.sum(x**3 / 3 - a * x), np.ones(2)),
        least_squares(lambda x: (x * x - a, x * 0), np.ones(2)),
    ):
        (slope,) = pb.gradients(pb.sum(answer), [a])
        close(slope.numpy(), 0.5 / np.sqrt([2.0, 3.0]), rtol=1e-7)


def test_closures_that_are_computed_on_the_way_in():
    b = leaf(3.0)
    middle = b * b
    (slope,) = pb.gradients(fixed_point(lambda x: 0.5 * x + middle, 0.0), [b])
    close(slope.item(), 12.0)


@pytest.mark.parametrize("ways", ["r", "f", "rr", "rf", "fr", "ff", "rrr"])
def test_closures_over_variables_of_transforms(ways):
    def answer(a):
        return root(lambda x: x**3 - a * a, 1.0, tol=1e-13)

    f, g = answer, FORMS["root"][1]
    for way in ways:
        f, g = WAYS[way](f), pb.grad(g)
    close(f(1.2), g(1.2), rtol=1e-7)


def test_closures_over_elements_of_a_batch():
    b = np.array([1.0, 2.0, 3.0])
    close(pb.vmap(lambda b: fixed_point(lambda x: 0.5 * x + b, 0.0))(b), 2 * b)
    close(pb.vmap(pb.grad(lambda b: fixed_point(lambda x: 0.5 * x + b * b, 0.0)))(b), 4 * b)
    close(pb.grad(lambda b: pb.sum(pb.vmap(lambda c: fixed_point(lambda x: 0.5 * x + c * c, 0.0))(b)))(b), 4 * b)
    close(pb.vmap(lambda c: linear_solve(lambda v: c * v, np.ones(2)))(b), 1 / b[:, None] * np.ones(2))


def test_a_closure_and_a_parameter_together():
    def answer(a, b):
        return fixed_point(lambda x, b: a * x + b, 0.0, b)

    by_a, by_b = pb.grad(answer, (0, 1))(0.5, 3.0)
    close(by_a, 12.0, rtol=1e-8)
    close(by_b, 2.0)


def test_what_is_closed_over_and_passed_counts_twice():
    b = leaf(3.0)
    found = fixed_point(lambda x, c: 0.5 * x + b + c, 0.0, b)
    close(pb.gradients(found, [b])[0].item(), 4.0)


def test_second_derivatives_of_what_is_closed_over_on_the_tape():
    a = leaf(3.0)
    (first,) = pb.gradients(root(lambda x: x**3 - a, 1.0, tol=1e-13), [a], create_graph=True)
    (second,) = pb.gradients(first, [a])
    close([first.item(), second.item()], [3 ** (-2 / 3) / 3, -2 / 9 * 3 ** (-5 / 3)])


@pytest.mark.parametrize("derivative", [pb.grad, push, tape], ids=["reverse", "forward", "tape"])
def test_loops_inside_of_functions_that_close_over_variables(derivative):
    def by_scan(a):
        return fixed_point(lambda x: pb.scan(lambda c, b: (0.5 * c + b * a, None), x, np.ones(3))[0], 0.0)

    def by_fori_loop(a):
        return fixed_point(lambda x: pb.fori_loop(0, 3, lambda i, c: 0.5 * c + a, x), 0.0)

    def by_while_loop(x, a):
        return pb.while_loop(lambda y: y > 1, lambda y: 0.5 * y, 0.5 * x + a)

    close(derivative(by_scan)(0.2), 2.0)
    close(derivative(by_fori_loop)(0.2), 2.0)
    close(derivative(lambda a: fixed_point(by_while_loop, 0.0, a))(0.2), 2.0)


@pytest.mark.parametrize("derivative", [pb.grad, push, tape], ids=["reverse", "forward", "tape"])
def test_an_equation_within_an_equation_by_closures(derivative):
    def nested(a):
        return fixed_point(lambda x: 0.5 * pb.cos(fixed_point(lambda y: 0.3 * pb.sin(y) + a * x, 0.0)), 0.0)

    def at_once(a):
        def map_(xy, a):
            return 0.5 * pb.cos(xy[1]), 0.3 * pb.sin(xy[1]) + a * xy[0]

        return fixed_point(map_, (0.0, 0.0), a, tol=1e-13)[0]

    close(nested(0.8), at_once(0.8))
    close(derivative(nested)(0.8), derivative(at_once)(0.8), rtol=1e-7)


def test_branches_on_values_are_followed_where_all_is_passed():
    def map_(x, a):
        return 0.5 * x + a if x > 1 else 0.25 * x + 2 * a

    close(fixed_point(map_, 0.0, 3.0), 6.0)
    close(pb.grad(lambda a: fixed_point(map_, 0.0, a))(3.0), 2.0)


def test_branches_on_values_may_close_over_tracked_values():
    a = leaf(3.0)
    found = fixed_point(lambda x: 0.5 * x + (a if x < 1 else 2 * a), 0.0)
    close([found.item(), *(g.item() for g in pb.gradients(found, [a]))], [12.0, 4.0])
    unused = fixed_point(lambda x: 0.5 * x + (a if x < 1 else 3.0), 0.0)
    close([unused.item(), *(g.item() for g in pb.gradients(unused, [a]))], [6.0, 0.0])
    close(pb.grad(lambda b: fixed_point(lambda x: 0.5 * x + b if x < 1 else 0.5 * x + 2 * b, 0.0))(3.0), 4.0)


def test_a_branch_that_reaches_a_tracked_value_late_is_refused_by_a_function_of_a_scalar():
    a = leaf(3.0)
    with pytest.raises(errors.PullbackError, match="argument"):
        fixed_point(lambda x: 0.5 * x + (3.0 if x < 1 else a), 0.0)


def test_a_branch_that_reaches_a_tracked_value_only_at_the_answer_is_refused():
    a = leaf(4.0)

    def equation(x):  # from 10 the first steps never see a
        return x - 4.0 if x > 4.5 else x - a

    with pytest.raises(errors.PullbackError):
        root(equation, 10.0)


def test_the_start_has_no_derivative():
    start, b = leaf(0.3), leaf(3.0)
    assert not fixed_point(lambda x: 0.5 * x + 1, start).requires_grad
    found = fixed_point(affine, start, b)
    close([g if g is None else g.item() for g in pb.gradients(found, [b])], [2.0])
    assert pb.gradients(found * 1.0, [start], allow_unused=True) == (None,)
    close(pb.grad(lambda s: fixed_point(affine, s, 3.0))(0.3), 0.0)
    close(push(lambda s: fixed_point(affine, s, 3.0))(0.3), 0.0)
    for pose in (root, least_squares):
        close(pb.grad(lambda s, pose=pose: pose(lambda x: x - 2.0, s))(0.3), 0.0)
    close(pb.vmap(lambda s: root(lambda x: x * x - 4.0, s))(np.array([1.0, -1.0])), [2.0, -2.0])


def test_integer_parameters():
    n, where = 3, np.array([2, 0])

    def map_(x, n, where, b):
        return 0.5 * x + n * b[where]

    b = np.array([1.0, 2.0, 3.0])
    close(fixed_point(map_, np.zeros(2), n, where, b), [18.0, 6.0])
    jacobian = np.zeros((2, 3))
    jacobian[[0, 1], [2, 0]] = 6.0
    for transform in (pb.jacrev, pb.jacfwd):
        close(transform(lambda b: fixed_point(map_, np.zeros(2), n, where, b))(b), jacobian)
    close(pb.vmap(lambda n: fixed_point(lambda x, n: 0.5 * x + n, 0.0, n))(np.array([1, 2])), [2.0, 4.0])


# Batches.


def test_each_element_converges_by_itself():
    slopes = np.array([0.0, 0.5, 0.99, -0.9])

    def map_(x, c):
        return c * x + pb.cos(x) * 0.01 + 1.0

    def alone(c):
        return fixed_point(map_, 0.0, c, solver=implicit.Picard(), max_steps=5000)

    together = pb.vmap(alone)(slopes)
    close(together, [alone(c) for c in slopes], rtol=0, atol=0)


def test_one_hard_element_does_not_spoil_the_rest():
    slopes = np.array([0.5, 1.5, 0.25])

    def map_(x, c):
        return c * x + 1.0

    def answer(c):
        return implicit.solve.fixed_point(map_, 0.0, c, solver=implicit.Picard(), max_steps=200).value

    found = pb.vmap(answer)(slopes)
    close(found[[0, 2]], [2.0, 4 / 3])
    assert found[1] > 1e9  # as far as it got, not an answer
    with pytest.raises(errors.ConvergenceError):
        pb.vmap(lambda c: fixed_point(map_, 0.0, c, solver=implicit.Picard(), max_steps=200))(slopes)


def test_batches_of_batches_and_mixed_axes():
    A, b = rng.normal(size=(3, 2, 2)) + 3 * np.eye(2), rng.normal(size=(2, 4, 3))

    def answer(A, b):
        return root(lambda x, A, b: A @ x + 0.1 * pb.sin(x) - b, np.zeros(2), A, b)

    found = pb.vmap(pb.vmap(answer, (None, 1), 1), (0, 2))(A, b)
    assert found.shape == (3, 2, 4)
    for i in range(3):
        for j in range(4):
            close(found[i, :, j], answer(A[i], b[:, j, i]))


LAYER = {
    "passed": lambda W, U, x: fixed_point(lambda z, W, U, x: pb.tanh(W @ z + U @ x), np.zeros(3), W, U, x, **TOLD),
    "closed over": lambda W, U, x: fixed_point(lambda z: pb.tanh(W @ z + U @ x), np.zeros(3), **TOLD),
    "some of each": lambda W, U, x: fixed_point(lambda z, U: pb.tanh(W @ z + U @ x), np.zeros(3), U, **TOLD),
}


@pytest.mark.parametrize("one", LAYER)
def test_a_batch_that_shares_parameters(one):
    """Against all rows as one equation on the tape, unrolled."""
    random = np.random.default_rng(3)
    W, U, xs, V = 0.2 * random.normal(size=(3, 3)), *random.normal(size=(3, 3, 3))

    def by_steps(W, U, xs):
        z = np.zeros((3, 3))
        for _ in range(60):
            z = pb.tanh(z @ W.T + xs @ U.T)
        return pb.sum(z**3)

    def by_rows(W, U, xs):
        return pb.sum(pb.vmap(LAYER[one], (None, None, 0))(W, U, xs) ** 3)

    def by_columns(W, U, xs):
        return pb.sum(pb.vmap(lambda x: LAYER[one](W, U, x), 1, 1)(xs.T) ** 3)

    for f in (by_rows, by_columns):
        for found, wanted in zip(pb.grad(f, (0, 1, 2))(W, U, xs), pb.grad(by_steps, (0, 1, 2))(W, U, xs), strict=True):
            close(found, wanted)
        close(pb.jacfwd(pb.grad(f))(W, U, xs), pb.jacfwd(pb.grad(by_steps))(W, U, xs))
        wanted = pb.hvp(lambda W: by_steps(W, U, xs), (W,), (V,))
        close(pb.grad(lambda W, f=f: pb.sum(V * pb.grad(f)(W, U, xs)))(W), wanted)
        close(pb.grad(lambda W, f=f: pb.jvp(lambda W: f(W, U, xs), (W,), (V,))[1])(W), wanted)


# Inside of other things.


def test_inside_of_scan():
    b = np.array([1.0, 2.0, 3.0])

    def walk(b):
        def step(carry, b):
            x = fixed_point(lambda x, c, b: 0.5 * x + 0.1 * c + b, 0.0, carry, b)
            return x, x

        return pb.scan(step, 0.0, b)[0]

    close(walk(b), 2 * 3.0 + 0.4 * 2.0 + 0.08 * 1.0)
    close(pb.grad(walk)(b), [0.08, 0.4, 2.0])
    close(pb.jacfwd(walk)(b), [0.08, 0.4, 2.0])


def test_under_a_gradient_tape():
    with pb.GradientTape() as tape:
        b = tape.variable(3.0)
        found = fixed_point(affine, 0.0, b * b)
    close(tape.gradient(found, b).item(), 12.0)


def test_the_derivative_of_a_solution_by_linearize_and_vjp():
    value, pull = pb.vjp(lambda b: fixed_point(affine, np.zeros(2), b), np.array([1.0, 2.0]))
    close(value, [2.0, 4.0])
    close(pull(np.array([1.0, 10.0]))[0], [2.0, 20.0])
    value, forward = pb.linearize(lambda b: fixed_point(affine, np.zeros(2), b), np.array([1.0, 2.0]))
    close(forward(np.array([1.0, 10.0])), [2.0, 20.0])


def test_by_taylor_mode_and_hessian_products():
    value, terms = pb.jet(FORMS["root"][0], (1.2,), ((1.0, 0.0, 0.0),))
    close([value, *terms], [value, *pb.jet(FORMS["root"][1], (1.2,), ((1.0, 0.0, 0.0),))[1]], rtol=1e-8)
    a = np.array([1.0, 2.0])

    def total(a):
        return pb.sum(root(lambda x, a: x**3 - a, np.ones(2), a))

    close(pb.hvp(total, (a,), (np.ones(2),)), -2 / 9 * a ** (-5 / 3))
    close(pb.laplacian(total)(a), np.sum(-2 / 9 * a ** (-5 / 3)))


def test_jacobians_in_batches():
    def answer(a):
        return root(lambda x, a: x**3 - a * a[::-1], np.ones(2), a)

    def formula(a):
        return (a * a[::-1]) ** (1 / 3)

    a = np.array([[1.0, 2.0], [3.0, 4.0], [0.5, 2.0]])
    for jacobian in (pb.jacrev, pb.jacfwd):
        close(pb.vmap(jacobian(answer))(a), pb.vmap(jacobian(formula))(a))
        close(jacobian(pb.vmap(answer))(a), jacobian(pb.vmap(formula))(a))
    close(pb.vmap(pb.hessian(lambda a: pb.sum(answer(a))))(a), pb.vmap(pb.hessian(lambda a: pb.sum(formula(a))))(a))


# Reports, callbacks, and forms that do not raise.


def test_the_forms_that_do_not_raise_report():
    poses = {
        "fixed_point": lambda x: 0.9 * x + 1,
        "root": lambda x: pb.exp(x) + 1,
        "argmin": lambda x: pb.exp(x),
        "least_squares": lambda x: (pb.exp(x), pb.exp(0.5 * x)),
    }
    for name, f in poses.items():
        found = getattr(implicit.solve, name)(f, 0.0, max_steps=1)
        assert isinstance(found, implicit.Solution)
        assert not found.report.converged
        assert found.report.residual > found.report.tolerance
        assert np.isfinite(found.value)
    found = implicit.solve.fixed_point(lambda x: 0.9 * x + 1, 0.0)
    assert found.report.converged
    close(found.value, 10.0, atol=1e-8)
    with pytest.raises(errors.ArgumentError, match="patience"):
        implicit.solve.fixed_point(lambda x: x, 0.0, patience=3)


def test_the_report_counts_and_prints():
    found = implicit.solve.fixed_point(lambda x, b: 0.5 * x + b, 0.0, leaf(1.0), solver=implicit.Picard())
    report = found.report
    assert report.method == "Picard"
    assert report.adjoint is None
    assert report.steps == len(report.history)
    assert report.functions >= report.steps
    close(report.contraction, 0.5, rtol=1e-3)
    close(report.residual, abs(1.0 - 0.5 * found.value.item()), atol=1e-15)
    text = str(report)
    for words in ("Picard: converged in", "true residual", "tolerance 1.0e-10", "contraction     about 0.5 a step"):
        assert words in text
    assert "derivative" not in text
    found.value.backward()
    assert report.adjoint.converged
    assert "for the derivative:" in str(report)
    assert report.gradient_error < 1e-9


def test_the_error_estimate_bounds_the_error():
    b = leaf(1.0)
    found = implicit.solve.fixed_point(lambda x, b: pb.sin(0.9 * x) + b, 0.0, b, solver=implicit.Picard(), tol=1e-4)
    found.value.backward()
    exact = pb.grad(lambda b: fixed_point(lambda x, b: pb.sin(0.9 * x) + b, 0.0, b, tol=1e-13))(1.0)
    error = abs(b.grad.item() - exact) / exact
    assert 1e-9 < error < found.report.gradient_error


def test_the_callback_sees_each_step():
    seen = []
    fixed_point(lambda x: 0.5 * x + 1, 0.0, solver=implicit.Picard(), callback=lambda *now: seen.append(now))
    assert [step for step, _ in seen] == list(range(1, len(seen) + 1))
    close([residual for _, residual in seen], 0.5 ** np.arange(1, len(seen) + 1))


def test_a_callback_may_stop_a_solve():
    def impatient(step, residual):
        if step == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fixed_point(lambda x: 0.5 * x + 1, 0.0, solver=implicit.Picard(), callback=impatient)


# What is refused.


@pytest.mark.parametrize("pose", [fixed_point, root, argmin, least_squares])
@pytest.mark.parametrize("tol", [0, 0.0, -1e-3, math.nan, math.inf, "small", [1e-3]])
def test_tolerances_that_make_no_sense(pose, tol):
    with pytest.raises(errors.ArgumentError, match="tol"):
        pose(lambda x: 0.5 * x * x, 0.5, tol=tol)


@pytest.mark.parametrize("pose", [fixed_point, root, argmin, least_squares])
@pytest.mark.parametrize("steps", [0, -3, 2.5, math.nan, "many", True, None])
def test_numbers_of_steps_that_make_no_sense(pose, steps):
    with pytest.raises(errors.ArgumentError, match="max_steps"):
        pose(lambda x: 0.5 * x * x, 0.5, max_steps=steps)


@pytest.mark.parametrize("option", [{"tol": 0}, {"tol": math.nan}, {"tol": "x"}, {"max_steps": 0}, {"max_steps": 1.5}])
def test_linear_solve_checks_what_it_is_told(option):
    with pytest.raises(errors.ArgumentError, match=next(iter(option))):
        linear_solve(np.eye(2), np.ones(2), **option)


def test_policies_check_what_they_are_told():
    for make in (
        lambda: implicit.Unrolled(0),
        lambda: implicit.Unrolled(2.5),
        lambda: implicit.Unrolled(True),
        lambda: implicit.PhantomGradient(steps=0),
        lambda: implicit.PhantomGradient(damping=0.0),
        lambda: implicit.PhantomGradient(damping=1.5),
        lambda: implicit.PhantomGradient(damping=math.nan),
    ):
        with pytest.raises(errors.ArgumentError):
            make()
    for policy in (implicit.Unrolled(3), implicit.OneStep(), "implicit", 3):
        with pytest.raises(errors.ArgumentError, match="derivative"):
            root(lambda x: x - 1.0, 0.0, derivative=policy)
    with pytest.raises(errors.ArgumentError, match="derivative"):
        fixed_point(lambda x: 0.5 * x, 1.0, derivative="implicit")


@pytest.mark.parametrize("tol", [0.0, -1.0, math.nan, "small"])
def test_the_tolerance_of_the_adjoint_is_checked(tol):
    with pytest.raises(errors.ArgumentError, match="tol"):
        pb.grad(lambda b: fixed_point(affine, 0.0, b, derivative=implicit.Implicit(tol=tol)))(1.0)


def test_answers_of_another_shape_are_refused():
    with pytest.raises(errors.ShapeError, match=r"shape \(3,\), the unknown \(2,\)"):
        fixed_point(lambda x: np.zeros(3), np.zeros(2))
    with pytest.raises(errors.PullbackError):
        root(lambda x: {"v": x["u"]}, {"u": np.zeros(2)})
    with pytest.raises(errors.PullbackError):
        root(lambda x: (x, x), np.zeros(2))
    with pytest.raises(errors.PullbackError):
        argmin(lambda x: x * x, np.zeros(2))
    with pytest.raises(errors.ShapeError):
        linear_solve(lambda v: v[:1], np.ones(2))


def test_unknowns_that_cannot_be():
    with pytest.raises(errors.ArgumentError, match="nothing to solve for"):
        fixed_point(lambda x: x, {})
    with pytest.raises(errors.DtypeError, match="real"):
        fixed_point(lambda x: 0.5 * x, 1j)
    with pytest.raises(errors.DtypeError):
        fixed_point(lambda x: 0.5 * x, np.array([1, 2]))
    with pytest.raises(errors.PullbackError):
        fixed_point(lambda x: 0.5 * x, "one")


def test_no_unknowns_at_all():
    found = fixed_point(affine, np.zeros(0), leaf(np.zeros(0)))
    assert found.shape == (0,)
    pb.sum(found).backward()


@pytest.mark.parametrize("solver", [implicit.Picard(), implicit.Anderson(), None])
@pytest.mark.parametrize(
    "f",
    [lambda x: 10 * x * x, lambda x: x * math.nan, lambda x: pb.log(x - 100.0), lambda x: x + math.inf],
    ids=["grows", "nan", "outside", "inf"],
)
def test_iterates_that_are_not_finite_are_no_answer(f, solver):
    with np.errstate(all="ignore"), pytest.raises(errors.ConvergenceError) as caught:
        fixed_point(f, 10.0, solver=solver)
    assert not caught.value.report.converged


@pytest.mark.parametrize("pose", [fixed_point, root, argmin, least_squares])
def test_a_parameter_that_is_nan_is_no_answer(pose):
    with pytest.raises(errors.ConvergenceError):
        pose(lambda x, a: (0.5 * x - a) ** 2 if pose is argmin else 0.5 * x - a, 1.0, math.nan)


def test_an_equation_without_a_derivative_is_refused_only_when_asked_for_one():
    def answer(a):  # F_x = 0 and F_a = 1: no x follows a
        return root(lambda x, a: 0.0 * x + a, 0.0, a)

    close(answer(0.0), 0.0)
    for derivative in (pb.grad, push, tape):
        with pytest.raises(errors.ConvergenceError, match="derivative"):
            derivative(answer)(0.0)

    def every_point(b):  # each x is a fixed point
        return fixed_point(lambda x, b: x + b, 2.0, b)

    close(every_point(0.0), 2.0)
    for derivative in (pb.grad, push, tape):
        with pytest.raises(errors.ConvergenceError, match="derivative"):
            derivative(every_point)(0.0)


# Memory.


def peak_of(contraction):
    def answer(b):
        policy = implicit.Implicit(adjoint=implicit.GMRES())  # the same for all, whatever the contraction
        solver = implicit.Picard()
        start = np.zeros(20_000)
        return pb.sum(fixed_point(lambda x, b: contraction * x + b, start, b, solver=solver, derivative=policy))

    b = np.ones(20_000)
    tracemalloc.start()
    pb.grad(answer)(b)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def test_memory_does_not_depend_on_the_steps():
    def steps(c):
        return implicit.solve.fixed_point(lambda x: c * x + 1, np.zeros(3), solver=implicit.Picard()).report.steps

    few, many = 0.1, 0.977
    assert steps(few) <= 11
    assert steps(many) >= 950
    peak_of(few)  # what is loaded once
    assert peak_of(many) < 1.2 * peak_of(few) + 100_000


# Policies.


@pytest.mark.parametrize("derivative", [pb.grad, push, tape], ids=["reverse", "forward", "tape"])
def test_policies_against_their_formulas(derivative):
    c, b = 0.7, 3.0

    def slope(policy):
        return derivative(lambda b: fixed_point(lambda x, b: c * x + b, 0.0, b, derivative=policy))(b)

    close(slope(implicit.Unrolled(4)), (1 - c**4) / (1 - c))
    close(slope(implicit.OneStep()), 1.0)
    close(slope(implicit.PhantomGradient(steps=3)), 1 + c + c * c)
    q = 1 - 0.4 + 0.4 * c
    close(slope(implicit.PhantomGradient(steps=3, damping=0.4)), 0.4 * (1 + q + q * q))
    close(slope(implicit.Implicit()), 1 / (1 - c))


def test_policies_answer_the_fixed_point_and_unrolled_its_steps():
    for policy in (implicit.OneStep(), implicit.PhantomGradient(), implicit.Implicit()):
        close(fixed_point(affine, 0.0, 3.0, derivative=policy), 6.0)
    close(fixed_point(affine, 1.0, 3.0, derivative=implicit.Unrolled(2)), 0.25 + 4.5)


def test_policies_of_a_map_of_many_are_the_neumann_series():
    W, b = 0.3 * rng.normal(size=(4, 4)), rng.normal(size=4)
    bar = rng.normal(size=4)

    def slope(policy):
        def answer(b):
            return bar @ fixed_point(lambda x, b: pb.tanh(W @ x + b), np.zeros(4), b, derivative=policy, tol=1e-13)

        return pb.grad(answer)(b)

    x = fixed_point(lambda x: pb.tanh(W @ x + b), np.zeros(4), tol=1e-13)
    D = np.diag(1 - np.tanh(W @ x + b) ** 2)
    J = D @ W
    powers = [np.linalg.matrix_power(J, k) for k in range(40)]
    close(slope(implicit.OneStep()), bar @ D)
    close(slope(implicit.PhantomGradient(3)), bar @ sum(powers[:3]) @ D)
    close(slope(implicit.Implicit()), bar @ np.linalg.solve(np.eye(4) - J, D))


def test_unrolled_steps_are_those_of_a_loop():
    def by_loop(a):
        x = 1.0
        for _ in range(5):
            x = 0.5 * (x + a / x)
        return x

    def unrolled(a):
        return fixed_point(lambda x, a: 0.5 * (x + a / x), 1.0, a, derivative=implicit.Unrolled(5))

    f, g = unrolled, by_loop
    for _ in range(3):
        close(f(3.0), g(3.0))
        f, g = pb.grad(f), pb.grad(g)
    close(pb.vmap(unrolled)(np.array([2.0, 3.0])), [by_loop(2.0), by_loop(3.0)])


def test_policies_differentiate_what_the_map_closes_over():
    b = leaf(3.0)
    for policy, slope in ((implicit.Unrolled(2), 1.5), (implicit.OneStep(), 1.0), (implicit.PhantomGradient(2), 1.5)):
        found = fixed_point(lambda x: 0.5 * x + b, 0.0, derivative=policy)
        close(pb.gradients(found, [b])[0].item(), slope)


# Solvers that somebody already has.


@implicit.custom_root(lambda x, a: x**3 - pb.stack([a[0], a[0] * a[1]]), tol=1e-8)
def by_scipy(a):
    wanted = np.array([a[0], a[0] * a[1]])
    return optimize.root(lambda x: x**3 - wanted, np.ones(2), tol=1e-14).x


def test_a_root_by_scipy():
    def formula(a):
        return pb.stack([a[0], a[0] * a[1]]) ** (1 / 3)

    a = np.array([2.0, 3.0])
    close(by_scipy(a), formula(a))
    for jacobian in (pb.jacrev, pb.jacfwd):
        close(jacobian(by_scipy)(a), jacobian(formula)(a))
    close(pb.hessian(lambda a: pb.sum(by_scipy(a)))(a), pb.hessian(lambda a: pb.sum(formula(a)))(a))
    third = pb.grad(pb.grad(pb.grad(lambda t: pb.sum(by_scipy(pb.stack([t, t]))))))(1.5)
    close(third, pb.grad(pb.grad(pb.grad(lambda t: pb.sum(formula(pb.stack([t, t]))))))(1.5), rtol=1e-7)
    t = leaf(a)
    pb.sum(by_scipy(t)).backward()
    close(t.grad.numpy(), pb.grad(lambda a: pb.sum(formula(a)))(a))


def test_a_root_by_scipy_in_a_batch():
    a = np.array([[2.0, 3.0], [1.0, 5.0]])
    close(pb.vmap(by_scipy)(a), [by_scipy(row) for row in a])
    close(pb.vmap(pb.jacrev(by_scipy))(a), [pb.jacrev(by_scipy)(row) for row in a])


def test_a_minimum_by_scipy():
    def energy(x, p):
        return pb.sum((x - p["at"]) ** 2) + p["weight"] * pb.sum(x**4)

    @implicit.custom_root(pb.grad(energy), tol=1e-5)
    def minimum(p):
        found = optimize.minimize(
            energy, np.zeros(3), args=(p,), jac=lambda x, p: 2 * (x - p["at"]) + 4 * p["weight"] * x**3, tol=1e-14
        )
        return found.x

    p = {"at": np.array([1.0, -2.0, 0.5]), "weight": np.array(0.2)}
    slope = pb.grad(lambda p: pb.sum(minimum(p)))(p)
    x = minimum(p)
    curvature = 2 + 12 * 0.2 * x**2
    close(slope["at"], 2 / curvature, rtol=1e-5)
    close(slope["weight"], np.sum(-4 * x**3 / curvature), rtol=1e-5)


def test_a_fixed_point_by_a_loop_of_ones_own():
    @implicit.custom_fixed_point(lambda x, a: 0.5 * (x + a / x))
    def heron(a):
        out = np.empty_like(a)
        for i in range(a.size):
            x = 1.0
            for _ in range(60):
                x = 0.5 * (x + a.flat[i] / x)
            out.flat[i] = x
        return out

    a = np.array([2.0, 9.0])
    close(pb.grad(lambda a: pb.sum(heron(a)))(a), 0.5 / np.sqrt(a))
    close(pb.jvp(heron, (a,), (np.ones(2),))[1], 0.5 / np.sqrt(a))
    close(pb.hessian(lambda a: pb.sum(heron(a)))(a), np.diag(-0.25 * a**-1.5))


def test_answers_of_black_boxes_are_checked():
    @implicit.custom_root(lambda x, a: x * x - a)
    def wrong(a):
        return a

    with pytest.raises(errors.ConvergenceError, match="does not fulfil"):
        wrong(2.0)
    close(wrong(1.0), 1.0)

    @implicit.custom_root(lambda x, a: x * x - a)
    def broken(a):
        return np.full_like(a, np.nan)

    with pytest.raises(errors.ConvergenceError):
        broken(np.array([2.0]))


def test_black_boxes_whose_equation_closes_over_tracked_values_lose_nothing():
    c = leaf(2.0)

    @implicit.custom_root(lambda x, a: c * x - a)
    def layer(a):
        return a / 2.0

    try:
        found = layer(leaf(3.0))
    except errors.PullbackError:
        return
    close(pb.gradients(found, [c])[0].item(), -0.75)


def test_black_boxes_are_given_bare_arrays_and_run_once():
    seen = []

    @implicit.custom_root(lambda x, a: x**3 - a)
    def layer(a):
        seen.append(type(a))
        return np.cbrt(a)

    close(pb.grad(pb.grad(layer))(2.0), -2 / 9 * 2.0 ** (-5 / 3))
    assert seen == [np.ndarray]


def test_trees_out_of_black_boxes():
    @implicit.custom_root(lambda x, a: {"u": x["u"] - a, "v": x["v"] - x["u"] ** 2})
    def layer(a):
        return {"u": a, "v": a**2}

    slope = pb.grad(lambda a: layer(a)["v"])(3.0)
    close(slope, 6.0)


# Linear systems.


def test_linear_systems_with_one_and_several_right_sides():
    A, b, B = rng.normal(size=(5, 5)) + 5 * np.eye(5), rng.normal(size=5), rng.normal(size=(5, 3))
    close(linear_solve(A, b), np.linalg.solve(A, b))
    close(linear_solve(A, B), np.linalg.solve(A, B))
    inverse = np.linalg.inv(A)
    close(pb.jacrev(lambda b: linear_solve(A, b))(b), inverse)
    close(pb.jacfwd(lambda b: linear_solve(A, b))(b), inverse)
    bar, x = rng.normal(size=(5, 3)), np.linalg.solve(A, B)
    by_A, by_B = pb.grad(lambda A, B: pb.sum(bar * linear_solve(A, B)), (0, 1))(A, B)
    close(by_A, -inverse.T @ bar @ x.T)
    close(by_B, inverse.T @ bar)


def test_linear_systems_in_batches():
    A, b = rng.normal(size=(4, 3, 3)) + 4 * np.eye(3), rng.normal(size=(4, 3))
    close(pb.vmap(linear_solve)(A, b), np.linalg.solve(A, b[..., None])[..., 0])
    close(pb.vmap(linear_solve, (None, 0))(A[0], b), [np.linalg.solve(A[0], row) for row in b])
    slopes = pb.vmap(pb.grad(lambda b, A: pb.sum(linear_solve(A, b))))(b, A)
    close(slopes, [np.linalg.inv(a).T.sum(1) for a in A])
    by_columns = pb.grad(lambda b: pb.sum(pb.vmap(linear_solve, (None, 1))(A[0], b) ** 2))(b.T)
    close(by_columns, 2 * np.linalg.solve(A[0].T, np.linalg.solve(A[0], b.T)))
    by_columns = pb.jvp(lambda A: pb.vmap(linear_solve, (None, 1), 1)(A, b.T), (A[0],), (A[1],))[1]
    close(by_columns, -np.linalg.solve(A[0], A[1] @ np.linalg.solve(A[0], b.T)))


def test_integer_matrices_become_real():
    close(linear_solve(np.array([[2, 1], [1, 3]]), np.array([3, 4])), [1.0, 1.0])


@pytest.mark.parametrize("make", [sparse.csr_matrix, sparse.csc_array, sparse.coo_array])
def test_sparse_matrices(make):
    n = 300
    dense = np.diag(np.full(n, 2.5)) - np.diag(np.ones(n - 1), 1) - 0.5 * np.diag(np.ones(n - 1), -1)
    b = rng.normal(size=n)
    close(linear_solve(make(dense), b), np.linalg.solve(dense, b), atol=1e-8)
    slope = pb.grad(lambda b: pb.sum(linear_solve(make(dense), b) ** 2))(b)
    close(slope, 2 * np.linalg.solve(dense.T, np.linalg.solve(dense, b)), atol=1e-7)
    moved = pb.jvp(lambda b: linear_solve(make(dense), b), (b,), (np.ones(n),))[1]
    close(moved, np.linalg.solve(dense, np.ones(n)), atol=1e-8)
    close(
        pb.vmap(lambda b: linear_solve(make(dense), b))(np.stack([b, 2 * b]))[1],
        2 * np.linalg.solve(dense, b),
        atol=1e-7,
    )


def test_functions_of_trees_as_matrices():
    c = np.array([2.0, 3.0, 4.0])

    def answer(c, b):
        def multiply(v):
            return {"u": c * v["u"] + 0.1 * v["w"], "w": v["w"] * 2.0 + pb.sum(v["u"])}

        return linear_solve(multiply, b)

    def by_matrix(c, b):
        A = np.zeros((4, 4))
        A[:3, :3], A[:3, 3], A[3, :3], A[3, 3] = np.diag(c), 0.1, 1.0, 2.0
        return np.linalg.solve(A, np.append(b["u"], b["w"]))

    b = {"u": np.array([1.0, 2.0, 3.0]), "w": 1.0}
    found = answer(c, b)
    close(np.append(found["u"], found["w"]), by_matrix(c, b))
    slope = pb.grad(lambda c: answer(c, b)["w"])(c)
    eps = 1e-6
    for i in range(3):
        e = eps * np.eye(3)[i]
        close(slope[i], (by_matrix(c + e, b) - by_matrix(c - e, b))[3] / (2 * eps), rtol=1e-6)
    twice = pb.jacfwd(pb.grad(lambda c: answer(c, b)["w"]))(c)
    close(twice, twice.T)


@pytest.mark.parametrize(
    "A", [np.ones((2, 2)), np.zeros((2, 2)), np.full((2, 2), np.nan)], ids=["singular", "zero", "nan"]
)
def test_singular_systems_raise(A):
    b = np.array([1.0, 2.0])
    for matrix in (A, lambda v: A @ v, sparse.csr_array(A)):
        with pytest.raises(errors.ConvergenceError) as caught:
            linear_solve(matrix, b)
        assert not caught.value.report.converged
    with pytest.raises(errors.ConvergenceError):
        pb.vmap(linear_solve, (0, None))(np.stack([np.eye(2), A]), b)


def test_a_singular_system_has_no_answer_even_where_there_are_many():
    with pytest.raises(errors.ConvergenceError):
        linear_solve(np.ones((2, 2)), np.ones(2))


def test_a_right_side_of_zeros():
    close(linear_solve(np.eye(3), np.zeros(3)), np.zeros(3))
    close(linear_solve(lambda v: 2 * v, np.zeros(3)), np.zeros(3))
    close(pb.jacrev(lambda b: linear_solve(2 * np.eye(3), b))(np.zeros(3)), 0.5 * np.eye(3))


@pytest.mark.parametrize(
    ("A", "b"), [(np.ones((2, 3)), np.ones(2)), (np.eye(2), np.ones(3)), (np.ones(4), np.ones(4)), (np.eye(2), 1.0)]
)
def test_linear_systems_whose_shapes_do_not_fit(A, b):
    with pytest.raises(errors.ShapeError):
        linear_solve(A, b)


# Single precision.


def test_single_precision():
    b = np.array([1.0, 2.0], np.float32)
    half = np.float32(0.5)

    def answer(b):
        return fixed_point(lambda x, b: half * x + b * b, np.zeros(2, np.float32), b)

    assert answer(b).dtype == np.float32
    slope = pb.grad(lambda b: pb.sum(answer(b)))(b)
    assert slope.dtype == np.float32
    close(slope, 4 * b, rtol=1e-4)
    moved = pb.jvp(answer, (b,), (np.ones(2, np.float32),))[1]
    assert moved.dtype == np.float32
    close(moved, 4 * b, rtol=1e-4)


def test_gradients_have_the_dtype_of_their_parameter():
    for unknown, parameter in ((np.float32, np.float64), (np.float64, np.float32)):
        b = np.ones(2, parameter)
        slope = pb.grad(lambda b, d=unknown: pb.sum(fixed_point(affine, np.zeros(2, d), b, tol=1e-5)))(b)
        assert slope.dtype == parameter
        close(slope, [2.0, 2.0], rtol=1e-5)


def test_single_precision_in_every_form():
    a = np.array([2.0, 3.0], np.float32)
    start = np.ones(2, np.float32)
    for answer in (
        lambda a: root(lambda x, a: x * x - a, start, a),
        lambda a: argmin(lambda x, a: pb.sum(x**3 / 3 - a * x), start, a),
        lambda a: least_squares(lambda x, a: x * x - a, start, a),
    ):
        assert answer(a).dtype == np.float32
        close(answer(a), np.sqrt(a), rtol=1e-4)
        slope = pb.grad(lambda a, answer=answer: pb.sum(answer(a)))(a)
        assert slope.dtype == np.float32
        close(slope, 0.5 / np.sqrt(a), rtol=1e-3)
    A = np.array([[2.0, 1.0], [1.0, 3.0]], np.float32)
    assert linear_solve(A, a).dtype == np.float32
    close(linear_solve(A, a), np.linalg.solve(A, a), rtol=1e-4)


# What is no linear system is refused.


def test_a_function_that_is_not_linear_is_no_matrix():
    with pytest.raises(errors.ArgumentError, match="not linear"):
        linear_solve(lambda v: 2 * v + 1, np.ones(2))
    with pytest.raises(errors.DtypeError, match="real"):
        linear_solve(lambda v: 1j * v, np.ones(2))


def test_the_residual_of_a_division_is_measured():
    found = implicit.solve.root(lambda x, a: x * x - a, 1.0, leaf(4.0))
    found.value.backward()
    assert found.report.adjoint.method == "division"
    assert found.report.adjoint.products == 1
    assert found.report.adjoint.residual <= 1e-10


@pytest.mark.parametrize("adjoint", [implicit.LSMR(), implicit.GMRES()], ids=repr)
def test_an_adjoint_may_use_both_products(adjoint):
    W = np.array([[0.2, 0.5, 0.0], [0.0, 0.3, 0.4], [0.1, 0.0, 0.2]])
    policy = implicit.Implicit(adjoint=adjoint, tol=1e-11)
    slope = pb.grad(lambda b: fixed_point(lambda x, b: W @ x + b, np.zeros(3), b, derivative=policy)[0])(np.ones(3))
    np.testing.assert_allclose(slope, np.linalg.inv(np.eye(3) - W)[0], rtol=1e-9)


# A function is written down once, and what does not depend on the unknown is computed once.


def test_a_function_is_called_once_and_what_it_prepares_is_not_repeated():
    calls = []

    def f(z, W, U, x):
        calls.append(z)
        return pb.tanh(W @ z + U @ x)

    rng = np.random.default_rng(0)
    W, U, x = 0.2 * rng.normal(size=(4, 4)), rng.normal(size=(4, 3)), rng.normal(size=3)
    slopes = pb.grad(lambda *p: pb.sum(fixed_point(f, np.zeros(4), *p)), (0, 1, 2))(W, U, x)
    assert len(calls) == 1
    z = fixed_point(f, np.zeros(4), W, U, x)
    D = 1 - z**2
    y = np.linalg.solve(np.eye(4) - W.T * D, np.ones(4)) * D
    for found, expected in zip(slopes, (np.outer(y, z), np.outer(y, x), U.T @ y), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-7)


def test_a_function_that_branches_is_traced_once_for_each_path():
    calls = []

    def f(x, b):
        calls.append(x)
        return 0.5 * x + b if x[0] < 100 else 0.25 * x + b

    slope = pb.grad(lambda b: pb.sum(fixed_point(f, np.zeros(2), b)))(np.array([3.0, 1.0]))
    assert len(calls) == 3  # the first of which finds that it branches
    np.testing.assert_allclose(slope, [2.0, 2.0], rtol=1e-9)
    slope = pb.grad(lambda b: pb.sum(fixed_point(lambda x: f(x, b), np.zeros(2))))(np.array([3.0, 1.0]))
    np.testing.assert_allclose(slope, [2.0, 2.0], rtol=1e-9)


def test_a_function_that_loops_on_values_is_called_at_each_step():
    calls = []

    def f(x, b):
        calls.append(x)
        y = 0.5 * x + b
        while y[0] > 100.0:
            y = y / 2
        return y

    slope = pb.grad(lambda b: pb.sum(fixed_point(f, np.zeros(2), b)))(np.array([3.0, 1.0]))
    assert len(calls) > 3
    np.testing.assert_allclose(slope, [2.0, 2.0], rtol=1e-9)
    with pytest.raises(errors.GraphError):  # what it closes over cannot be found then
        pb.grad(lambda b: pb.sum(fixed_point(lambda x: f(x, b), np.zeros(2))))(np.array([3.0, 1.0]))


def test_arrays_written_to_later_do_not_change_a_derivative():
    W, b = np.array([[0.2, 0.1], [0.0, 0.3]]), leaf([1.0, 2.0])
    z = fixed_point(lambda z, b: W @ z + b, np.zeros(2), b)
    expected = np.linalg.inv(np.eye(2) - W).sum(0)
    W[:] = 7.0
    pb.sum(z).backward()
    np.testing.assert_allclose(b.grad.numpy(), expected, rtol=1e-9)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, c: (lambda t: pb.reshape(t, (4,)) * 0.1 + pb.reshape(pb.transpose(t + 1.0), (4,)) * 0.2)(
            pb.matmul(pb.reshape(x, (2, 2)), c)
        ),
        lambda x, c: (lambda t: pb.tanh(t) * 0.2 + pb.einsum("ij->ji", t) * 0.3)(pb.matmul(pb.reshape(x, (2, 2)), c)),
        lambda x, c: (lambda t: (t + t) * 0.1 + t * 0.1)(pb.matmul(c, pb.reshape(x, (2, 2)))),
        lambda x, c: 0.3 * pb.sin(x) + pb.exp(-pb.sum(pb.square(x))) * 0.1,
    ],
)
def test_memory_that_a_program_reuses_is_nobody_elses(function):
    from pullback.transforms.stage import stage_with_captures

    x, c = np.array([0.3, -0.2, 0.5, 0.1]), np.array([[0.4, 0.2], [0.1, 0.3]])
    program, found, _ = stage_with_captures(lambda x: pb.reshape(function(x, c), (4,)), x)
    before = x.copy(), c.copy()
    for _ in range(2):
        np.testing.assert_array_equal(program(x, *found), np.reshape(function(x, c), (4,)))
    np.testing.assert_array_equal(x, before[0])
    np.testing.assert_array_equal(c, before[1])


# One unknown has a road of its own, which answers what the general one does.

EQUATIONS = {
    "line": (lambda x, a: 0.5 * x + a, 0.0),
    "slow": (lambda x, a: 0.99 * x + a, 0.0),
    "curve": (lambda x, a: pb.cos(a * x), 0.5),
    "repelling": (lambda x, a: 3.0 * x - a, 1.0),
    "constant": (lambda x, a: a * a + 0.0 * x, 0.0),
    "there already": (lambda x, a: x * 0.5 + a * 0.0, 0.0),
}


@pytest.mark.parametrize("name", EQUATIONS)
def test_one_unknown_as_a_number_and_as_a_vector(name):
    f, start = EQUATIONS[name]
    one = implicit.solve.fixed_point(f, start, 0.7)
    other = implicit.solve.fixed_point(f, np.full(1, start), 0.7)
    np.testing.assert_allclose(one.value, other.value[0], atol=1e-8)
    assert one.value.shape == ()
    for order in range(1, 4):
        mine, theirs = (lambda a: fixed_point(f, start, a)), (lambda a: fixed_point(f, np.full(1, start), a)[0])
        for _ in range(order):
            mine, theirs = pb.grad(mine), pb.grad(theirs)
        np.testing.assert_allclose(mine(0.7), theirs(0.7), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("start", [1.0, 30.0, -0.2])
def test_one_root_from_near_and_afar(start):
    def cube(a):
        return root(lambda x, a: x**3 + x - a, start, a)

    x = float(cube(10.0))
    assert abs(x - 2.0) < 1e-9
    np.testing.assert_allclose(pb.grad(cube)(10.0), 1 / 13, rtol=1e-8)
    np.testing.assert_allclose(pb.jvp(cube, (10.0,), (2.0,))[1], 2 / 13, rtol=1e-8)
    np.testing.assert_allclose(pb.grad(pb.grad(cube))(10.0), -12 / 13**3, rtol=1e-6)


def test_one_unknown_with_parameters_that_are_arrays():
    w = np.array([0.1, 0.2, 0.3])
    slope = pb.grad(lambda w: fixed_point(lambda x, w: pb.sum(w * pb.cos(x + w)), 0.0, w))(w)
    x = float(fixed_point(lambda x: pb.sum(w * pb.cos(x + w)), 0.0))
    pivot = 1 + np.sum(w * np.sin(x + w))
    np.testing.assert_allclose(slope, (np.cos(x + w) - w * np.sin(x + w)) / pivot, rtol=1e-8)


def test_one_unknown_finds_what_it_closes_over_and_what_it_is_given():
    def both(a, b):
        return fixed_point(lambda x, b: 0.5 * x + a * b, 0.0, b)

    np.testing.assert_allclose(pb.grad(both, (0, 1))(2.0, 3.0), (6.0, 4.0), rtol=1e-9)


def test_one_unknown_in_single_precision_and_its_report():
    found = implicit.solve.fixed_point(lambda x: np.float32(0.9) * x + np.float32(1.0), np.float32(0.0))
    assert found.value.dtype == np.float32
    assert found.report.method == "secants"
    assert found.report.converged
    assert abs(found.report.contraction - 0.9) < 1e-2
    assert found.report.functions >= found.report.steps == len(found.report.history)


def test_one_unknown_without_a_slope_has_no_derivative():
    with pytest.raises(errors.ConvergenceError, match="slope"):
        pb.grad(lambda a: root(lambda x, a: (x - a) ** 2 * 0.0 + 0.0 * x, 1.0, a))(2.0)


def test_a_callback_hears_of_one_unknown():
    heard = []
    fixed_point(lambda x: 0.5 * x + 1.0, 0.0, callback=lambda step, residual: heard.append((step, residual)))
    assert [step for step, _ in heard] == list(range(1, len(heard) + 1))
    assert heard[-1][1] <= 1e-10


# Higher orders solve with one matrix again and again: what was found is where the next solve starts.


def counted_products(run, monkeypatch):
    from pullback.implicit.linear import operator as linear

    counts = []
    checked = linear.LinearOperator._check_converged

    def noting(self, report, *rest):
        counts.append((self.is_transposed, report.products, report.note))
        return checked(self, report, *rest)

    monkeypatch.setattr(linear.LinearOperator, "_check_converged", noting)
    run()
    return counts


@pytest.mark.parametrize("adjoint", [implicit.GMRES(), implicit.Dense(), implicit.Neumann()], ids=repr)
def test_higher_orders_start_from_the_solutions_of_lower_ones(adjoint, monkeypatch):
    rng = np.random.default_rng(0)
    W = 0.3 * rng.normal(size=(8, 8)) / 8**0.5
    policy = implicit.Implicit(adjoint=adjoint)

    def loss(s):
        return pb.sum(fixed_point(lambda z, s: pb.tanh(s * (W @ z) + s), np.zeros(8), s, derivative=policy) ** 2)

    def twice():
        pb.jvp(lambda s: pb.jvp(loss, (s,), (1.0,))[1], (1.0,), (1.0,))

    forth = [(products, note) for back, products, note in counted_products(twice, monkeypatch) if not back]
    assert len(forth) == 3
    assert forth[1] == (1, "started from systems solved before")  # the same system once more
    third = pb.grad(pb.grad(pb.grad(loss)))(1.0)
    step = 1e-4
    second = pb.grad(pb.grad(loss))
    np.testing.assert_allclose(third, (second(1 + step) - second(1 - step)) / (2 * step), rtol=1e-5)


def test_a_start_of_another_matrix_does_no_harm():
    from pullback.implicit.linear.operator import LinearOperator, SolutionCache, solve_operator

    memory = SolutionCache()
    b = np.array([1.0, 2.0, 3.0])
    for matrix in (np.eye(3) * 2.0, np.diag([1.0, -3.0, 5.0]), np.eye(3) * 1e-8):
        operator = LinearOperator(lambda v, m: m @ v, implicit.Dense(), 1e-12, 100, "a test", memory=memory)
        np.testing.assert_allclose(solve_operator(operator, b, matrix), np.linalg.solve(matrix, b), rtol=1e-11)


def test_what_is_kept_of_solved_systems():
    from pullback.implicit.linear.operator import SolutionCache

    memory = SolutionCache()
    assert memory.initial_guess(False, np.ones(2)) is None
    memory.keep(False, np.array([1.0, 0.0]), np.array([2.0, 0.0]))
    memory.keep(False, np.array([1.0, np.nan]), np.array([2.0, 0.0]))
    np.testing.assert_allclose(memory.initial_guess(False, np.array([3.0, 0.1])), [6.0, 0.0])
    assert memory.initial_guess(False, np.array([0.1, 3.0])) is None
    assert memory.initial_guess(True, np.array([3.0, 0.1])) is None
    assert memory.initial_guess(False, np.ones(3)) is None
    for i in range(9):
        memory.keep(True, np.eye(9)[i], np.eye(9)[i])
    assert memory.initial_guess(True, np.eye(9)[0]) is None  # only the latest are kept
    assert memory.initial_guess(True, np.eye(9)[8]) is not None


# The report says how near to a singular equation an answer is, also where no contraction was seen.


@pytest.mark.parametrize("slope", [1.0, 1e-3])
def test_the_error_of_a_derivative_of_a_root_is_estimated(slope):
    a = leaf(1.0)
    found = implicit.solve.root(lambda x, a: slope * (x - a), np.zeros(()), a)
    assert found.report.gradient_error is None
    found.value.backward()
    np.testing.assert_allclose(found.report.adjoint.amplification, 1 / slope, rtol=1e-9)
    expected = (found.report.residual + found.report.adjoint.residual) / slope
    assert found.report.gradient_error >= 0.99 * expected
    assert "amplification" in str(found.report)


def test_the_amplification_of_a_system_is_a_bound_from_below():
    rng = np.random.default_rng(3)
    A = rng.normal(size=(6, 6))
    a = leaf(rng.normal(size=6))
    found = implicit.solve.root(lambda x, a: A @ x - a, np.zeros(6), a)
    pb.sum(found.value).backward()
    norm = np.linalg.norm(np.linalg.inv(A), 2)
    assert 0.05 * norm < found.report.adjoint.amplification <= norm * (1 + 1e-9)


@pytest.mark.parametrize("seed", [0, 1])
def test_products_of_the_adjoint_against_the_neumann_series(seed):
    n, rng = 400, np.random.default_rng(seed)
    W = rng.normal(size=(n, n))
    W *= 0.95 / np.abs(np.linalg.eigvals(W)).max()
    b, bar = leaf(rng.normal(size=n)), rng.normal(size=n)
    counts = []
    for adjoint in (None, implicit.Neumann()):
        policy = implicit.Implicit(adjoint=adjoint, tol=1e-6)
        found = implicit.solve.fixed_point(lambda z, b: W @ z + b, np.zeros(n), b, derivative=policy, tol=1e-6)
        found.value.backward(bar)
        assert found.report.adjoint.converged
        counts.append(found.report.adjoint.products)
    assert counts[0] <= 0.6 * counts[1]


def test_the_figures_show_every_solver():
    figures = Path(__file__).resolve().parent.parent / "docs" / "figures"
    shown = " ".join(path.read_text() for path in sorted(figures.glob("*.svg")))
    solvers = {name for name in implicit.__all__ if hasattr(getattr(implicit, name), "step")} - {"Auto"}
    assert len(solvers) > 15
    assert {name for name in solvers if f">{name}(" not in shown} == set()


def test_unrolled_steps_with_checkpoints_agree_with_those_without():
    rng = np.random.default_rng(5)
    W, b = 0.3 * rng.normal(size=(6, 6)), rng.normal(size=6)
    factor = pb.tensor(0.9, requires_grad=True)

    def loss(W, b, checkpoints=None):
        policy = pb.implicit.Unrolled(20, checkpoints)
        z = pb.fixed_point(lambda z, W, b: pb.tanh(W @ z + b) * factor, np.zeros(6), W, b, derivative=policy)
        return pb.sum(z * z)

    def bent(W, b, checkpoints=None):
        return pb.hvp(lambda b: loss(W, b, checkpoints), (b,), (b,))

    for find in (pb.grad(loss, argnums=(0, 1)), bent):
        for plain, kept in zip(find(W, b), find(W, b, 3), strict=True):
            np.testing.assert_allclose(kept.detach().numpy(), plain.detach().numpy(), rtol=1e-12, atol=1e-13)
    with pytest.raises(pb.errors.ArgumentError, match="checkpoints"):
        pb.implicit.Unrolled(3, 0)


# Where equations meet other features


def _settling(x):
    return pb.fixed_point(lambda z, x: 0.1 * pb.sin(z) + x, np.zeros(3), x)


AT = np.linspace(0.1, 1.0, 3)


def _slope(z):
    t = pb.tensor(z, requires_grad=True)
    pb.sum(pb.sin(t)).backward()
    return t.grad


def test_a_tape_inside_an_equation():
    found = pb.fixed_point(lambda z: 0.1 * _slope(z) + 1.0, np.zeros(3))
    np.testing.assert_allclose(found, pb.fixed_point(lambda z: 0.1 * pb.cos(z) + 1.0, np.zeros(3)), rtol=1e-10)
    mine = pb.grad(lambda x: pb.sum(pb.fixed_point(lambda z, x: 0.1 * _slope(z) + x, np.zeros(3), x)))(AT)
    plain = pb.grad(lambda x: pb.sum(pb.fixed_point(lambda z, x: 0.1 * pb.cos(z) + x, np.zeros(3), x)))(AT)
    np.testing.assert_allclose(mine, plain, rtol=1e-10)


def test_an_equation_over_a_tensor_has_a_tensor_as_its_root():
    t = pb.tensor(np.ones(3))
    assert isinstance(pb.root(lambda z: 0.2 * pb.tanh(z) + t - z, np.zeros(3)), pb.Tensor)
    assert isinstance(pb.root(lambda z: 0.2 * pb.tanh(z) + 1.0 - z, np.zeros(3)), np.ndarray)
    assert pb.gradcheck(lambda t: pb.root(lambda z: 0.2 * pb.tanh(z) + t - z, np.zeros(3)), np.ones(3))


def test_the_jacobian_of_an_equation_by_rows_can_be_differentiated():
    by_rows = pb.grad(lambda x: pb.sum(pb.jacrev(_settling)(x)))(AT)
    np.testing.assert_allclose(by_rows, pb.grad(lambda x: pb.sum(pb.jacfwd(_settling)(x)))(AT), rtol=1e-9)


def test_the_push_of_an_equation_has_a_transpose():
    (found,) = pb.linear_transpose(pb.linearize(_settling, AT)[1], np.zeros(3))(np.ones(3))
    np.testing.assert_allclose(found, pb.grad(lambda x: pb.sum(_settling(x)))(AT), rtol=1e-9)


# A derivative policy is an object that solves the problem itself.


@pytest.mark.parametrize("policy", [implicit.Unrolled(3), implicit.OneStep(), implicit.PhantomGradient()], ids=repr)
@pytest.mark.parametrize("form", [root, argmin, least_squares])
def test_only_a_fixed_point_has_steps_to_differentiate(form, policy):
    with pytest.raises(errors.ArgumentError, match=rf"{form.__name__}: derivative must be .*{type(policy).__name__}"):
        form(lambda x: x * x, 1.0, derivative=policy)


def test_any_policy_may_solve_a_problem():
    from pullback.implicit.derivative_policies import DerivativePolicy

    class Halved(DerivativePolicy):
        def solve(self, problem):
            found = implicit.Implicit().solve(problem)
            return implicit.Solution(pb.stop_gradient(found.value) * 0.5 + found.value * 0.5, found.report)

    def solved(b, policy):
        return fixed_point(lambda x, b: 0.5 * x + b, 0.0, b, derivative=policy)

    close(solved(3.0, Halved()), 6.0, atol=1e-8)
    close(pb.grad(solved)(3.0, Halved()), 1.0, atol=1e-8)
    with pytest.raises(errors.ArgumentError, match="derivative must be"):
        solved(3.0, Halved)


@pytest.mark.parametrize("form", [fixed_point, root, argmin, least_squares])
def test_an_unknown_option_is_named(form):
    with pytest.raises(TypeError, match=f"{form.__name__}: unknown option patience"):
        form(lambda x: x, 0.0, patience=3)
    for strict in (form, getattr(implicit.solve, form.__name__)):
        with pytest.raises(
            errors.ArgumentTypeError, match=f"option strict.\n  pb.implicit.solve.{form.__name__} returns"
        ):
            strict(lambda x: x, 0.0, strict=False)


def test_no_two_ops_of_solvers_have_one_name():
    from pullback.ops.op import Op

    spaces = [vars(module) for name, module in sys.modules.items() if name.startswith("pullback.implicit")]
    found = {id(x): x.name for space in spaces for x in space.values() if type(x) is Op}
    names = sorted(found.values())
    assert "dense_solve" in names
    # the linear solve has a twin that is not expanded in compiled programs
    assert [name for name in set(names) if names.count(name) > 1] == ["linear_solve"]
