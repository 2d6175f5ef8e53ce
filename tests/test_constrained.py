"""Minima with constraints against SciPy and closed forms: values, multipliers, derivatives or why there are none."""

import numpy as np
import pytest
import scipy.optimize

import pullback as pb
from pullback import implicit
from pullback.compile.reference.recording import find_hosts
from pullback.errors import ArgumentError, ConvergenceError, DegenerateError, PullbackError
from pullback.implicit import AtLeast, AtMost, Equal, Implicit, NormAtMost


def draw(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape)


def program(seed, n=6, equations=2, rows=9):
    """A quadratic program with a point inside, and its six arrays."""
    rng = np.random.default_rng(seed)
    L, A, G = rng.normal(size=(n, n)), rng.normal(size=(equations, n)), rng.normal(size=(rows, n))
    inside = rng.normal(size=n)
    return L @ L.T + 0.1 * np.eye(n), rng.normal(size=n), A, A @ inside, G, G @ inside + rng.uniform(0.1, 1, size=rows)


def by_scipy(P, q, A, b, G, h):
    found = scipy.optimize.minimize(
        lambda x: 0.5 * x @ P @ x + q @ x, np.linalg.lstsq(A, b)[0], jac=lambda x: P @ x + q, method="SLSQP",
        constraints=[
            {"type": "eq", "fun": lambda x: A @ x - b, "jac": lambda x: A},
            {"type": "ineq", "fun": lambda x: h - G @ x, "jac": lambda x: -G},
        ], options={"ftol": 1e-14, "maxiter": 500},
    )  # fmt: skip
    return found.x


def by_active_set(P, q, A, b, G, h, active):
    """The solution with these rows of G as equations: a linear system of NumPy."""
    rows, right = np.concatenate([A, G[active]]), np.concatenate([b, h[active]])
    corner = np.zeros((len(rows), len(rows)))
    return np.linalg.solve(np.block([[P, rows.T], [rows, corner]]), np.concatenate([-q, right]))[: len(q)]


# Quadratic programs


@pytest.mark.parametrize("seed", range(6))
def test_quadratic_programs_agree_with_scipy(seed):
    data = program(seed)
    found = implicit.solve.qp(*data)
    P, q, A, _, G, h = data
    assert found.report.converged
    np.testing.assert_allclose(found.value, by_scipy(*data), atol=1e-6)
    y, z = found.multipliers["A"], found.multipliers["G"]
    np.testing.assert_allclose(P @ found.value + q - A.T @ y + G.T @ z, 0, atol=1e-9)
    np.testing.assert_allclose(np.minimum(z, h - G @ found.value), 0, atol=1e-9)


@pytest.mark.parametrize("name", ["P", "q", "A", "b", "G", "h"])
def test_derivatives_with_respect_to_all_data(name):
    data = program(1)
    place = "PqAbGh".index(name)
    solved = implicit.qp(*data)
    active = data[5] - data[4] @ solved < 1e-6
    assert active.any()
    along = draw(7, *data[place].shape)
    along = along + along.T if name == "P" else along

    def moved(t):
        return [x + t * along if i == place else x for i, x in enumerate(data)]

    step = 1e-5
    wanted = (by_active_set(*moved(step), active) - by_active_set(*moved(-step), active)) / (2 * step)

    def f(x):
        return implicit.qp(*(x if i == place else d for i, d in enumerate(data)))

    value, pushed = pb.jvp(f, (data[place],), (along,))
    np.testing.assert_allclose(pushed, wanted, atol=1e-7)
    bar = draw(8, len(value))
    pulled = pb.vjp(f, data[place])[1](bar)[0]
    assert abs(np.sum(pulled * along) - bar @ pushed) < 1e-11 * (1 + abs(bar @ pushed))


def test_a_compiled_gradient_with_respect_to_all_data():
    data, places = program(1), tuple(range(6))

    def gradients(*data):
        return pb.grad(lambda *data: pb.sum(pb.sin(implicit.qp(*data))), argnums=places)(*data)

    for a, b in zip(pb.jit(gradients)(*data), gradients(*data), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-10)


def test_an_asymmetric_matrix_counts_by_its_symmetric_part():
    P, q, *rest = program(2)
    skew = draw(3, 6, 6)
    np.testing.assert_allclose(implicit.qp(P + skew - skew.T, q, *rest), implicit.qp(P, q, *rest), atol=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_linear_programs_agree_with_scipy(seed):
    _, c, A, b, G, h = program(seed)
    G, h = np.concatenate([G, np.eye(6), -np.eye(6)]), np.concatenate([h, np.full(12, 5.0)])
    wanted = scipy.optimize.linprog(c, G, h, A, b, bounds=(None, None)).x
    np.testing.assert_allclose(implicit.qp(None, c, A, b, G, h), wanted, atol=1e-8)
    # a corner does not move with the costs, and moves with the active rows
    np.testing.assert_allclose(pb.jacobian(lambda c: implicit.qp(None, c, A, b, G, h))(c), 0, atol=1e-9)
    active = h - G @ wanted < 1e-7
    rows = np.concatenate([A, G[active]])
    slope = pb.jacobian(lambda h: implicit.qp(None, c, A, b, G, h))(h)[:, active]
    np.testing.assert_allclose(rows @ slope, np.eye(len(rows))[:, len(A) :], atol=1e-9)


def test_batches_and_compiled_batches():
    P, _, A, b, G, h = program(4)
    q = draw(5, 7, 6)
    wanted = np.stack([implicit.qp(P, one, A, b, G, h) for one in q])
    solve = pb.vmap(lambda q: implicit.qp(P, q, A, b, G, h))
    np.testing.assert_allclose(solve(q), wanted, atol=1e-9)
    np.testing.assert_allclose(pb.jit(solve)(q), wanted, atol=1e-9)

    def loss(q):
        return pb.sum(pb.sin(solve(q)))

    single = [pb.grad(lambda q: pb.sum(pb.sin(implicit.qp(P, q, A, b, G, h))))(one) for one in q]
    np.testing.assert_allclose(pb.grad(loss)(q), single, atol=1e-9)


def test_second_derivatives_of_a_program():
    P, q, A, b, G, h = program(1)

    def gradient(G):
        return pb.grad(lambda G: pb.sum(pb.sin(implicit.qp(P, q, A, b, G, h))))(G)

    along, step = draw(6, *G.shape), 1e-5
    wanted = (gradient(G + step * along) - gradient(G - step * along)) / (2 * step)
    np.testing.assert_allclose(pb.jvp(gradient, (G,), (along,))[1], wanted, atol=1e-6 * np.abs(wanted).max())
    through = pb.grad(lambda G: pb.sum(gradient(G) * along))(G)
    np.testing.assert_allclose(through, wanted, atol=1e-6 * np.abs(wanted).max())


@pytest.mark.parametrize("sizes", [(8, 3, 40), (9, 2, 5)])
def test_many_inequalities_of_which_few_are_active(sizes):
    """First and second derivatives with respect to all data by the active rows alone."""
    data = program(3, *sizes)
    _, q, _, _, G, h = data
    x = implicit.qp(*data)
    active = h - G @ x < 1e-7
    numbers = np.flatnonzero(active)

    def by_rows(P, q, A, b, G, h):
        P, rows, right = 0.5 * (P + P.T), pb.concat([A, G[numbers]]), pb.concat([b, h[numbers]])
        matrix = pb.concat([pb.concat([P, rows.T], 1), pb.concat([rows, np.zeros((len(right),) * 2)], 1)])
        return pb.linalg.solve(matrix, pb.concat([-q, right]))[: len(q)]

    places, along = tuple(range(6)), [draw(4, *np.shape(a)) for a in data]

    def derivatives(solve):
        slopes = pb.grad(lambda *data: pb.sum(pb.sin(solve(*data)) * np.arange(1.0, len(q) + 1)), places)
        return lambda *data: (slopes(*data), pb.jvp(slopes, data, tuple(along))[1])

    wanted = derivatives(by_rows)(*data)
    for found in (derivatives(implicit.qp)(*data), pb.jit(derivatives(implicit.qp))(*data)):
        for order, exact in zip(found, wanted, strict=True):
            for a, c in zip(order, exact, strict=True):
                np.testing.assert_allclose(a, c, atol=1e-8 * (1 + np.abs(c).max(initial=0.0)))


@pytest.mark.parametrize("rows", [4, 40])
def test_the_system_of_a_derivative_has_room_for_active_rows_only(rows):
    compiled = pb.jit(pb.grad(lambda q, *rest: pb.sum(implicit.qp(rest[0], q, *rest[1:]) ** 2)))
    P, q, A, b, G, h = program(0, 6, 2, rows)
    compiled(q, P, A, b, G, h)
    routines = [x for x in find_hosts(compiled.last.code.compilation.planned.steps) if x.routine is not None]
    (size,) = {x.args[0].shape[-1] for x in routines if x.routine.name == "guarded_solve"}
    assert size == 6 + 2 + 4


def test_more_active_inequalities_than_unknowns():
    """Five facets meet in a corner of three dimensions: it has a place, and no derivative."""
    G = np.concatenate([np.eye(3), [[1.0, 1, 0], [1, 1, 1]]])
    h = G @ np.ones(3)
    corner = lambda q: implicit.qp(np.eye(3), q, None, None, G, h)  # noqa: E731
    q = -np.array([4.0, 5, 6])
    np.testing.assert_allclose(corner(q), 1, atol=1e-8)
    for gradient in (pb.grad(lambda q: pb.sum(corner(q))), pb.jit(pb.grad(lambda q: pb.sum(corner(q))))):
        with pytest.raises((ConvergenceError, DegenerateError), match="derivative"):
            gradient(q)


def test_cones_beside_many_numbers_have_the_derivatives_of_the_whole_matrix():
    n, cones = 5, (3, 2)
    G, x = draw(0, 45, n), draw(1, n)
    s = np.concatenate([np.random.default_rng(2).uniform(0.1, 1, 40), [0.7, 0.4, -0.3], [0.2, 0.1]])
    data = (draw(5, n), G, G @ x + s)

    def slopes(policy):
        loss = lambda q, G, h: pb.sum(  # noqa: E731
            pb.sin(implicit.qp(0.1 * np.eye(n), q, None, None, G, h, cones=cones, derivative=policy))
        )
        return pb.grad(loss, (0, 1, 2))(*data), pb.hessian(loss)(*data)

    (first, second), (wanted, curved) = slopes(Implicit()), slopes(Implicit(adjoint=implicit.Dense()))
    for a, c in [*zip(first, wanted, strict=True), (second, curved)]:
        np.testing.assert_allclose(a, c, atol=1e-8 * (1 + np.abs(c).max()))


def test_higher_orders_against_the_closed_form():
    """Of (x - 2)^2 with x^2 <= c the solution is sqrt(c)."""

    def f(c):
        return pb.argmin(lambda x: (x - 2.0) ** 2, 0.5, constraints=[AtMost(lambda x: x * x, c)])

    wanted = [1.2, 0.5 / 1.2, -0.25 / 1.2**3, 0.375 / 1.2**5]
    for order, value in enumerate(wanted):
        np.testing.assert_allclose(f(1.44), value, rtol=10.0 ** (order - 9))
        f = pb.grad(f)


def nearly_degenerate(seed, n=12, equations=2, rows=30):
    """A program whose slacks and multipliers go down to 1e-12, some of both to zero, with its solution."""
    rng = np.random.default_rng(seed)
    L, A, G, x = (rng.normal(size=shape) for shape in ((n, n), (equations, n), (rows, n), n))
    slack, z, active = np.zeros(rows), np.zeros(rows), rng.integers(5, n - equations)
    slack[active:], z[2:active] = (10.0 ** rng.uniform(-12, 0, size=k) for k in (rows - active, active - 2))
    P = L @ L.T / n
    return (P, A.T @ rng.normal(size=equations) - P @ x - G.T @ z, A, A @ x, G, G @ x + slack), x


def test_nearly_degenerate_programs_are_solved():
    for seed in range(8):
        data, x = nearly_degenerate(seed)
        found = implicit.solve.qp(*data)
        assert found.report.converged
        assert found.report.steps < 60
        np.testing.assert_allclose(found.value, x, atol=1e-7)


def test_a_nearly_degenerate_program_with_constraints_that_bend():
    (P, q, A, b, G, h), x = nearly_degenerate(3, 8, 1, 11)
    bent = AtMost(lambda y: G @ y + 0.1 * (G @ (y - x)) ** 2, h)
    found = implicit.solve.argmin(lambda y: 0.5 * y @ P @ y + q @ y, np.zeros(8), constraints=[Equal(A, b), bent])
    assert found.report.converged
    np.testing.assert_allclose(found.value, x, atol=1e-7)


@pytest.mark.parametrize(
    ("objective", "size", "rows"), [(1e6, 1, 1), (1e-6, 1, 1), (1, 1e6, 1), (1, 1, 1e7), (1e9, 1e4, 1e-6)]
)
def test_the_units_of_a_program_do_not_matter(objective, size, rows):
    P, q, A, b, G, h = program(2)
    given = (
        P * (objective / size**2),
        q * (objective / size),
        A * (rows / size),
        b * rows,
        G * (rows / size),
        h * rows,
    )
    units = [objective / size**2, objective / size, rows / size, rows, rows / size, rows]
    for cones in ((), (3,)):
        plain = implicit.solve.qp(P, q, A, b, G, h, cones=cones)
        found = implicit.solve.qp(*given, cones=cones)
        assert found.report.converged
        np.testing.assert_allclose(found.value, plain.value * size, rtol=1e-8)
        for name, wanted in plain.multipliers.items():
            np.testing.assert_allclose(
                found.multipliers[name], wanted * (objective / rows), atol=1e-8 * objective / rows
            )
    slopes = pb.grad(lambda *data: pb.sum(implicit.qp(*data) / size), tuple(range(6)))(*given)
    plain = pb.grad(lambda *data: pb.sum(implicit.qp(*data)), tuple(range(6)))(P, q, A, b, G, h)
    for slope, wanted, unit in zip(slopes, plain, units, strict=True):
        np.testing.assert_allclose(slope * unit, wanted, atol=1e-7)


@pytest.mark.parametrize("size", [1.0, 1e6])
def test_an_error_has_the_best_x_as_an_array(size):
    def f(b):
        return implicit.qp(np.eye(1), np.zeros(1), G=np.array([[1.0], [-1.0]]), h=pb.stack([b, 0 * b - 1.0]) * size)

    calls = (f, pb.grad(lambda b: pb.sum(f(b))), lambda b: pb.jvp(f, (b,), (b,)), lambda b: pb.vmap(f)(np.full(2, b)))
    for call in calls:
        with pytest.raises(ConvergenceError) as caught:
            call(0.0)
        assert type(caught.value.best) is np.ndarray
        if caught.value.best.shape == (1,):
            np.testing.assert_allclose(caught.value.best, [0.5 * size], rtol=1e-3)


def test_unknowns_may_have_units_of_their_own():
    P, q, A, b, G, h = program(3)
    units = 10.0 ** np.linspace(-3, 3, 6)
    found = implicit.qp(P * units * units[:, None], q * units, A * units, b, G * units, h)
    np.testing.assert_allclose(found * units, implicit.qp(P, q, A, b, G, h), rtol=1e-8)


def test_programs_without_some_of_their_parts():
    np.testing.assert_allclose(implicit.qp(2 * np.eye(1), np.ones(1)), [-0.5])
    np.testing.assert_allclose(implicit.qp(np.eye(2), np.zeros(2), np.ones((1, 2)), np.ones(1)), [0.5, 0.5])
    np.testing.assert_allclose(
        implicit.qp(np.eye(2), -np.ones(2), np.zeros((0, 2)), np.zeros(0), np.zeros((0, 2)), np.zeros(0)), [1, 1]
    )


def test_rows_without_a_limit():
    h = np.array([np.inf, 0.5])

    def f(G, h):
        return implicit.qp(np.eye(2), -np.ones(2), G=G, h=h)

    np.testing.assert_allclose(f(np.eye(2), h), [1.0, 0.5])
    slopes = pb.grad(lambda G, h: pb.sum(f(G, h)), argnums=(0, 1))(np.eye(2), h)
    np.testing.assert_allclose(slopes[0][0], 0)
    np.testing.assert_allclose(slopes[1], [0.0, 1.0])


def test_a_cone_without_a_limit_does_not_matter():
    h = np.array([0.1, np.inf, 0.0, 0.0, 0.2, 0.0, 0.0])

    def f(h):
        return implicit.qp(np.eye(7), np.ones(7), G=-np.eye(7), h=h, cones=[3, 3])

    with_one = implicit.qp(np.eye(3), np.ones(3), G=-np.eye(3), h=h[4:], cones=[3])
    for solve in (f, pb.jit(f)):
        np.testing.assert_allclose(solve(h), [-0.1, -1, -1, -1, *with_one], atol=1e-9)
    assert not pb.jacobian(f)(h)[:, 1:4].any()


def test_redundant_equations_have_a_solution_and_no_derivative():
    A, b = np.array([[1.0, 1.0], [2.0, 2.0]]), np.array([1.0, 2.0])
    np.testing.assert_allclose(implicit.qp(np.eye(2), np.zeros(2), A, b), [0.5, 0.5], atol=1e-9)
    with pytest.raises(ConvergenceError, match="depend on each other: row 0 of A, row 1 of A"):
        pb.grad(lambda b: pb.sum(implicit.qp(np.eye(2), np.zeros(2), A, b)))(b)


# Projections


def onto_simplex(p):
    ordered = np.sort(p)[::-1]
    shares = (np.cumsum(ordered) - 1) / np.arange(1, len(p) + 1)
    return np.maximum(p - shares[np.flatnonzero(ordered > shares)[-1]], 0)


@pytest.mark.parametrize("seed", range(3))
def test_the_simplex(seed):
    p = draw(seed, 8)

    def f(p):
        limits = [Equal(lambda x, p: pb.sum(x), 1.0)]
        return pb.argmin(lambda x, p: pb.sum((x - p) ** 2), np.zeros(8), p, bounds=(0.0, None), constraints=limits)

    wanted = onto_simplex(p)
    np.testing.assert_allclose(f(p), wanted, atol=1e-9)
    on = wanted > 0
    slope = np.diag(on * 1.0) - np.outer(on, on) / on.sum()
    np.testing.assert_allclose(pb.jacobian(f)(p), slope, atol=1e-9)
    if seed == 0:
        np.testing.assert_allclose(pb.jit(pb.jacobian(f))(p), slope, atol=1e-9)


def test_the_box_and_its_bounds():
    p, low, high = np.array([-2.0, 0.3, 5.0, 1.0]), np.array([-1.0, -np.inf, 0.0, 0.0]), np.array([1, 2, 3, np.inf])

    def f(p, low, high):
        return pb.argmin(lambda x: pb.sum((x - p) ** 2), np.zeros(4), bounds=(low, high))

    np.testing.assert_allclose(f(p, low, high), np.clip(p, low, high), atol=1e-9)
    for place, wanted in enumerate(([0, 1, 0, 1], [1, 0, 0, 0], [0, 0, 1, 0])):
        np.testing.assert_allclose(pb.jacobian(f, argnums=place)(p, low, high), np.diag(wanted), atol=1e-9)


def test_bounds_that_fix_elements_are_equations():
    low, high = np.array([1.0, -np.inf, 3.0]), np.array([1.0, np.inf, 3.0])

    def f(p):
        return pb.argmin(lambda x: pb.sum((x - p) ** 2) + x[0] * x[1], np.zeros(3), bounds=(low, high))

    np.testing.assert_allclose(f(2.0), [1.0, 1.5, 3.0], atol=1e-9)
    for slope in (pb.jacobian(f), pb.jit(pb.jacobian(f))):
        np.testing.assert_allclose(slope(2.0), [0.0, 1.0, 0.0], atol=1e-9)
    found = implicit.solve.argmin(lambda x: pb.sum((x - 2.0) ** 2), np.zeros(3), bounds=(low, high)).multipliers
    np.testing.assert_allclose(found["lower bounds"], [0, 0, 2], atol=1e-9)
    np.testing.assert_allclose(found["upper bounds"], [2, 0, 0], atol=1e-9)


def test_a_fixed_element_that_is_fixed_again_is_named():
    def f(p):
        once_more = Equal(lambda x: x[1], 1.0)
        bounds = (np.array([-9.0, 1.0]), np.array([9.0, 1.0]))
        return pb.argmin(lambda x: pb.sum((x - p) ** 2), np.zeros(2), bounds=bounds, constraints=[once_more])

    with pytest.raises(ConvergenceError, match=r"bounds\[1\], constraints\[0\]; leave one out, or write"):
        pb.jacobian(f)(0.0)


@pytest.mark.parametrize("start", [[0.0, 1.0], [-3.0, 5.0]])
def test_a_start_where_the_function_is_not_defined(start):
    def f(p):
        return pb.argmin(lambda x: pb.sum(p * x - pb.log(x) - pb.log(1 - x)), np.array(start), bounds=(0.0, 1.0))

    wanted = (7 - 29**0.5) / 10  # of p x (1 - x) = 1 - 2 x
    np.testing.assert_allclose(f(5.0), wanted, atol=1e-9)
    if start[0] == 0:
        np.testing.assert_allclose(pb.jit(f)(5.0), wanted, atol=1e-9)
    else:
        np.testing.assert_allclose(pb.vmap(f)(np.array([5.0, 5.0])), np.full((2, 2), wanted), atol=1e-9)


def project_cone(p):
    t, size = p[0], pb.sqrt(pb.sum(p[1:] ** 2))
    return 0.5 * (1 + t / size) * pb.concat([pb.reshape(size, (1,)), p[1:]])


@pytest.mark.parametrize(
    "p", [[0.5, 1.0, 2.0, -0.3], [-1.0, 1.0, 2.0, 0.5], [4.0, 1.0, 1.0, 1.0], [-4.0, 1.0, 1.0, 1.0]]
)
def test_the_second_order_cone(p):
    p = np.array(p)
    size = np.linalg.norm(p[1:])

    def f(p):
        return implicit.qp(np.eye(4), -p, G=-np.eye(4), h=np.zeros(4), cones=[4])

    wanted = project_cone if abs(p[0]) < size else (lambda p: p) if p[0] > 0 else (lambda p: 0 * p)
    np.testing.assert_allclose(f(p), wanted(p), atol=1e-9)
    np.testing.assert_allclose(pb.jacobian(f)(p), pb.jacobian(wanted)(p), atol=1e-9)
    if p[0] == 0.5:
        np.testing.assert_allclose(pb.jit(pb.jacobian(f))(p), pb.jacobian(wanted)(p), atol=1e-9)
    bar = np.arange(4.0)
    second, by_hand = (pb.hessian(lambda p, g=g: pb.sum(g(p) * bar))(p) for g in (f, wanted))
    np.testing.assert_allclose(second, by_hand, atol=1e-8)


@pytest.mark.parametrize("first", [25.0, -25.0])
def test_a_slack_and_its_multiplier_on_the_boundary_of_their_cones(first):
    """Where the point to project lies on the boundary of the cone or of its polar, beside a cone where it does not."""
    p = np.array([first, 7.0, 24.0, 0.0, -1.324358995628145, -0.24836162209524854])
    found = implicit.qp(np.eye(6), -p, G=-np.eye(6), h=np.zeros(6), cones=[3, 3])
    np.testing.assert_allclose(found, [*(p[:3] if first > 0 else np.zeros(3)), *project_cone(p[3:])], atol=1e-9)
    alone = implicit.qp(np.eye(3), -p[:3], G=-np.eye(3), h=np.zeros(3), cones=[3])
    np.testing.assert_allclose(alone, found[:3], atol=1e-9)
    with pytest.raises(pb.errors.DegenerateError, match="row 0 of G"):
        pb.grad(lambda p: pb.sum(implicit.qp(np.eye(3), -p, G=-np.eye(3), h=np.zeros(3), cones=[3])))(p[:3])


def test_several_cones_beside_numbers():
    """Conditions of the optimum, checked by NumPy: sizes that repeat, that differ, and one that is a number."""
    n, cones = 7, (3, 3, 2, 1)
    G, x = draw(0, 12, n), draw(1, n)
    s = np.concatenate(
        [[0.5, 0.1, 0.7], *([np.linalg.norm(v) + 0.3, *v] for v in (draw(2, 2), draw(3, 2), draw(4, 1), []))]
    )
    found = implicit.solve.qp(0.1 * np.eye(n), draw(5, n), G=G, h=G @ x + s, cones=cones)
    assert found.report.converged
    s, z = G @ x + s - G @ found.value, found.multipliers["G"]
    np.testing.assert_allclose(0.1 * found.value + draw(5, n) + G.T @ z, 0, atol=1e-9)
    assert np.minimum(s[:3], z[:3]).min() > -1e-9
    first = 3
    for size in cones:
        for v in (s, z):
            assert v[first] - np.linalg.norm(v[first + 1 : first + size]) > -1e-9
        first += size
    assert abs(s @ z) < 1e-8


# Constraints that bend: problems of Hock and Schittkowski, by number


def rosenbrock(x):
    return 100 * (x[1] - x[0] ** 2) ** 2 + (1 - x[0]) ** 2


BENT = {
    1: (rosenbrock, [-2, 1], (np.array([-np.inf, -1.5]), None), [], 0.0),
    6: (lambda x: (1 - x[0]) ** 2, [-1.2, 1], None, [Equal(lambda x: 10 * (x[1] - x[0] ** 2))], 0.0),
    7: (
        lambda x: pb.log(1 + x[0] ** 2) - x[1], [2, 2], None,
        [Equal(lambda x: (1 + x[0] ** 2) ** 2 + x[1] ** 2, 4.0)], -(3**0.5),
    ),
    10: (
        lambda x: x[0] - x[1], [-10, 10], None,
        [AtLeast(lambda x: -3 * x[0] ** 2 + 2 * x[0] * x[1] - x[1] ** 2 + 1)], -1.0,
    ),
    14: (
        lambda x: (x[0] - 2) ** 2 + (x[1] - 1) ** 2, [2, 2], None,
        [AtLeast(lambda x: -(x[0] ** 2) / 4 - x[1] ** 2 + 1), Equal(np.array([[1.0, -2.0]]), -1.0)],
        9 - 2.875 * 7**0.5,
    ),
    29: (
        lambda x: -x[0] * x[1] * x[2], [1, 1, 1], None,
        [AtMost(lambda x: x[0] ** 2 + 2 * x[1] ** 2 + 4 * x[2] ** 2, 48.0)], -16 * 2**0.5,
    ),
    71: (
        lambda x: x[0] * x[3] * (x[0] + x[1] + x[2]) + x[2], [1, 5, 5, 1], (1, 5),
        [AtLeast(lambda x: x[0] * x[1] * x[2] * x[3], 25.0), Equal(lambda x: pb.sum(x * x), 40.0)], 17.0140173,
    ),
    76: (
        lambda x: x[0] ** 2 + 0.5 * x[1] ** 2 + x[2] ** 2 + 0.5 * x[3] ** 2 - x[0] * x[2] + x[2] * x[3]
        - x[0] - 3 * x[1] + x[2] - x[3], [0.5] * 4, (0, None),
        [AtMost(np.array([[1, 2, 1, 1.0], [3, 1, 2, -1]]), np.array([5, 4.0])),
         AtLeast(np.array([[0, 1, 4, 0.0]]), 1.5)], -4.681818181,
    ),
}  # fmt: skip


@pytest.mark.parametrize("number", BENT)
def test_bent_problems(number):
    f, start, bounds, limits, least = BENT[number]
    x = pb.argmin(f, np.array(start, float), bounds=bounds, constraints=limits)
    assert abs(f(x) - least) < 1e-7 * max(1, abs(least))


@pytest.mark.parametrize(
    ("number", "objective", "rows"), [(10, 1e-6, 1), (14, 1e-6, 1), (7, 1, 1e3), (71, 1, 1e3), (71, 1, 1e-3)]
)
def test_steps_along_constraints_that_bend_do_not_depend_on_units(number, objective, rows):
    f, start, bounds, limits, least = BENT[number]
    bound_of = {Equal: "value", AtLeast: "bound", AtMost: "bound"}
    limits = [
        type(c)(lambda x, g=c.g: rows * (g(x) if callable(g) else g @ x), rows * getattr(c, bound_of[type(c)]))
        for c in limits
    ]
    found = implicit.solve.argmin(
        lambda x: objective * f(x), np.array(start, float), bounds=bounds, constraints=limits, max_steps=80
    )
    assert found.report.converged
    assert abs(f(found.value) - least) < 1e-6 * max(1, abs(least))


def test_a_compiled_and_a_batched_search():
    f, start, bounds, limits, _ = BENT[71]

    def solve(scale):
        return pb.argmin(lambda x: f(x) * scale + pb.sum(x), np.array(start, float), bounds=bounds, constraints=limits)

    scales = np.array([0.5, 1.0, 3.0])
    wanted = np.stack([solve(s) for s in scales])
    np.testing.assert_allclose(pb.vmap(solve)(scales), wanted, atol=1e-8)
    slope = pb.jacobian(solve)(1.0)
    step = 1e-4
    np.testing.assert_allclose(slope, (solve(1 + step) - solve(1 - step)) / (2 * step), atol=1e-6)
    np.testing.assert_allclose(pb.jit(pb.jacobian(solve))(np.array(1.0)), slope, atol=1e-8)


def test_trees_parameters_and_closures():
    c = 1.5

    def f(c):
        start = {"a": 0.5, "b": np.ones(2)}
        limits = [AtMost(lambda x, c: {"size": x["a"] ** 2 + pb.sum(x["b"] ** 2)}, c * c)]
        bounds = ({"a": 0.1, "b": -1.0}, {"a": np.inf, "b": np.array([5.0, 6.0])})
        return pb.argmin(
            lambda x, c: (x["a"] - c) ** 2 + pb.sum((x["b"] + c) ** 2), start, c, bounds=bounds, constraints=limits
        )

    found = f(c)
    np.testing.assert_allclose([found["a"], *found["b"]], np.array([1, -1, -1]) * c / 3**0.5, atol=1e-8)
    np.testing.assert_allclose(pb.grad(lambda c: f(c)["a"])(c), 3**-0.5, atol=1e-8)


def test_multipliers_are_slopes_of_the_minimum():
    target = np.array([3.0, 4.0])

    def minimum(radius, floor):
        limits = [NormAtMost(lambda x: x, radius), AtLeast(lambda x: x[0] - x[1], floor)]
        found = implicit.solve.argmin(lambda x: pb.sum((x - target) ** 2), np.zeros(2), constraints=limits)
        return pb.sum((found.value - target) ** 2), found.multipliers

    _, multipliers = minimum(1.0, 0.0)
    slopes = pb.grad(lambda r, c: minimum(r, c)[0], argnums=(0, 1))(1.0, 0.0)
    np.testing.assert_allclose(slopes[0], -multipliers["constraints[0]"][0], atol=1e-7)
    np.testing.assert_allclose(slopes[1], multipliers["constraints[1]"], atol=1e-7)
    by_hand = 2 * (49 / 98) ** 0.5 * 7 - 2  # at (1, 1) / sqrt(2), along it
    np.testing.assert_allclose(multipliers["constraints[0]"][0], by_hand, atol=1e-7)
    second = pb.grad(lambda r: minimum(r, 0.0)[1]["constraints[0]"][0])(1.0)
    np.testing.assert_allclose(second, -2.0, atol=1e-6)


def test_a_minimum_inside_a_minimum():
    """The weight that a constrained fit should have, itself found by a minimizer with a bound."""
    X, y = draw(0, 9, 3), draw(1, 9)

    def fit(weight):
        return pb.argmin(lambda w: pb.sum((X @ w - y) ** 2) + weight * pb.sum(w * w), np.zeros(3), bounds=(0.0, None))

    wanted = fit(2.0)
    assert (wanted > 0).any()
    best = pb.argmin(lambda weight: pb.sum((fit(weight) - wanted) ** 2), 1.0, bounds=(0.01, None), tol=1e-9)
    np.testing.assert_allclose(best, 2.0, atol=1e-5)


def test_dtypes_tensors_and_checkpoints():
    single = pb.argmin(
        lambda x: pb.sum((x - np.float32(2)) ** 2), np.zeros(3, np.float32), bounds=(None, np.float32(1))
    )
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, 1.0, atol=1e-5)
    p = pb.tensor([1.0, 2.0, -1.0], requires_grad=True)

    def f(p):
        return pb.argmin(lambda x: pb.sum((x - p) ** 2), np.zeros(3), bounds=(0.0, None))

    pb.sum(f(p)).backward()
    np.testing.assert_allclose(p.grad, [1, 1, 0], atol=1e-9)
    bare = np.array([1.0, 2.0, -1.0])
    np.testing.assert_allclose(pb.grad(lambda p: pb.sum(pb.checkpoint(f)(p)))(bare), [1, 1, 0], atol=1e-9)


# Where there is no derivative


def relu(p, **options):
    return pb.argmin(lambda x, p: pb.sum((x - p) ** 2), np.zeros(3), p, bounds=(0.0, None), **options)


CORNER = np.array([1.0, 0.0, -1.0])


def test_a_corner_has_a_value_and_raises_where_it_is_differentiated():
    np.testing.assert_allclose(relu(CORNER), [1, 0, 0], atol=1e-9)
    for f in (pb.jacobian(relu), pb.jit(pb.jacobian(relu)), lambda p: pb.jvp(relu, (p,), (p + 1,))):
        with pytest.raises(DegenerateError, match=r"lower bounds\[1\] is active with a multiplier of zero"):
            f(CORNER)
    with pytest.raises(DegenerateError, match=r"lower bounds\[1\]"):
        pb.vmap(pb.jacobian(relu))(np.stack([CORNER + 0.5, CORNER]))


@pytest.mark.parametrize(("weakly_active", "slope"), [("active", 0.0), ("inactive", 1.0)])
def test_declared_one_sided_derivatives(weakly_active, slope):
    def f(p):
        return relu(p, derivative=Implicit(weakly_active=weakly_active))

    wanted = np.diag([1.0, slope, 0.0])
    np.testing.assert_allclose(pb.jacobian(f)(CORNER), wanted, atol=1e-9)
    if weakly_active == "active":
        np.testing.assert_allclose(pb.jit(pb.jacobian(f))(CORNER), wanted, atol=1e-9)
    np.testing.assert_allclose(pb.vmap(pb.jacobian(f))(np.stack([CORNER, CORNER + 3]))[0], wanted, atol=1e-9)
    side = 1e-6 * (1 if weakly_active == "inactive" else -1)
    np.testing.assert_allclose((relu(CORNER + side) - relu(CORNER)) / side, [1, slope, 0], atol=1e-3)


@pytest.mark.parametrize("p", [[5.0, 3, 4], [-5.0, 3, 4], [0.0, 0, 0]])
def test_corners_of_cones(p):
    """One-sided derivatives are limits of derivatives: from where the cone is left alone, and from where it is not."""
    p = np.array(p)

    def f(p, **options):
        return implicit.qp(np.eye(3), -p, G=-np.eye(3), h=np.zeros(3), cones=[3], **options)

    with pytest.raises(DegenerateError, match="row 0 of G"):
        pb.jacobian(f)(p)
    for weakly_active, side in (("inactive", 1e-3), ("active", -1e-3)):
        there = p + side * np.array([1.0, 0, 0])
        found = pb.jacobian(lambda p, w=weakly_active: f(p, derivative=Implicit(weakly_active=w)))(p)
        np.testing.assert_allclose(found, pb.jacobian(f)(there), atol=1e-3)


def test_dependent_constraints_are_named():
    def f(c):
        limits = [
            AtMost(lambda x: x[0] + x[1], c),
            AtMost(lambda x: 2 * (x[0] + x[1]), 2 * c),
            AtLeast(lambda x: x[0], -5.0),
        ]
        return pb.argmin(lambda x: pb.sum((x - 2.0) ** 2), np.zeros(2), constraints=limits)

    np.testing.assert_allclose(f(1.0), [0.5, 0.5], atol=1e-8)
    for derivative in (pb.jacobian(f), lambda c: pb.jvp(f, (c,), (np.ones(()),))):
        with pytest.raises(
            ConvergenceError, match=r"depend on each other: constraints\[0\], constraints\[1\]; leave one out"
        ):
            derivative(np.array(1.0))


def test_a_minimum_that_is_not_isolated():
    def f(c):
        return pb.argmin(lambda x: (x[0] - c) ** 2, np.zeros(2), bounds=(-1.0, 1.0))

    np.testing.assert_allclose(f(0.3)[0], 0.3, atol=1e-9)
    with pytest.raises(ConvergenceError, match="not isolated"):
        pb.jacobian(f)(np.array(0.3))


# Where there is no minimum


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ((None, np.ones(2), None, None, np.eye(2), np.ones(2)), "unbounded"),
        ((np.eye(2), np.ones(2), None, None, np.array([[1.0, 1], [-1, -1]]), np.array([-1.0, 0])), "infeasible"),
        ((np.eye(2), np.ones(2), np.ones((2, 2)), np.array([0.0, 1.0])), "infeasible"),
    ],
)
def test_programs_without_a_solution(data, words):
    with pytest.raises(ConvergenceError, match=words) as error:
        implicit.qp(*data)
    assert error.value.best.shape == (2,)
    found = implicit.solve.qp(*data)
    assert not found.report.converged
    assert words in str(found.report)
    if words == "unbounded":
        with pytest.raises(ConvergenceError):
            pb.jit(implicit.qp)(*data)


def test_constraints_that_contradict():
    low, high = AtLeast(lambda x: x[0] + x[1], 1.0), AtMost(lambda x: x[0] + x[1], 0.0)
    with pytest.raises(ConvergenceError, match="infeasible"):
        pb.argmin(lambda x: pb.sum(x * x), np.zeros(2), constraints=[low, high])
    with pytest.raises(ConvergenceError, match="infeasible, at least near by"):
        pb.argmin(lambda x: pb.sum(x * x), np.ones(2), constraints=[Equal(lambda x: pb.sum(x * x), -1.0)])


def test_no_room_inside_is_doubted_though_the_conditions_hold():
    """At (1, 0) both slopes point along x[1], and no multipliers make up for that of the function."""
    cusp = AtLeast(lambda x: (1 - x[0]) ** 3 - x[1])
    with pytest.raises(ConvergenceError, match="multipliers grow without bound"):
        pb.argmin(lambda x: (x[0] - 2) ** 2 + x[1] ** 2, np.array([-2.0, -2.0]), bounds=(0.0, None), constraints=[cusp])


def test_a_system_that_is_solved_but_for_rounding_is_not_called_singular():
    A = draw(0, 5, 5)

    def f(p):
        policy = Implicit(tol=1e-20)
        return pb.argmin(lambda x: pb.sum((A @ (x - p)) ** 2), np.ones(5), bounds=(0, 9), derivative=policy)

    with pytest.raises(ConvergenceError, match="solved but for rounding"):
        pb.jacobian(f)(np.array([1.0, 2.0, 3.0, 4.0, 5.0]))


def test_no_unknowns():
    assert pb.argmin(lambda x: pb.sum(x * x), np.zeros(0), bounds=(0.0, None)).shape == (0,)


def test_a_maximum_is_no_minimum():
    with pytest.raises(ConvergenceError, match="a maximum or saddle"):
        pb.argmin(lambda x: -pb.sum(x * x), np.zeros(2), bounds=(-1.0, 1.0))
    np.testing.assert_allclose(
        pb.argmin(lambda x: -pb.sum(x * x), np.array([0.1, -0.2]), bounds=(-1.0, 1.0)), [1, -1], atol=1e-8
    )


@pytest.mark.parametrize("bad", [np.nan, np.inf, np.array([0.0, np.nan])])
def test_bounds_that_nothing_fulfills_are_not_forgotten(bad):
    with pytest.raises(ConvergenceError):
        pb.argmin(lambda x: pb.sum(x * x), np.ones(2), bounds=(bad, None), max_steps=50)
    with pytest.raises(ConvergenceError):
        implicit.qp(np.eye(2), np.ones(2), G=np.eye(2), h=-bad * np.ones(2))


def minimize(**options):
    return pb.argmin(lambda x: pb.sum((x - 2.0) ** 2), np.zeros(2), **options)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: minimize(bounds=1.0),
        lambda: minimize(bounds=(np.zeros(3), None)),
        lambda: minimize(constraints=[lambda x: x]),
        lambda: minimize(constraints=[AtMost(lambda x: None)]),
        lambda: minimize(constraints=[AtMost(lambda x: 1j * x)]),
        lambda: minimize(constraints=[NormAtMost(lambda x: x, 1j)]),
        lambda: minimize(bounds=(1j, None)),
        lambda: minimize(bounds=(np.zeros(2), np.full(2, 1j))),
        lambda: minimize(constraints=[Equal(np.ones((1, 3)), 0.0)]),
        lambda: minimize(constraints=[AtMost(lambda x: x, np.zeros(3))]),
        lambda: minimize(constraints=[AtMost(lambda x: x, [0.0, 1.0])]),
        lambda: minimize(constraints=[NormAtMost(lambda x: x, np.ones(2))]),
        lambda: minimize(bounds=(0, 1), solver=implicit.BFGS()),
        lambda: minimize(bounds=(0, 1), derivative=implicit.Unrolled(3)),
        lambda: minimize(solver=implicit.InteriorPoint()),
        lambda: minimize(solver=implicit.PredictorCorrector()),
        lambda: minimize(bounds=(0, 1), color="red"),
        lambda: pb.argmin(lambda x: x, np.zeros(2), bounds=(0, 1)),
        lambda: implicit.InteriorPoint(barrier=-1.0),
        lambda: Implicit(weakly_active="perhaps"),
        lambda: implicit.qp(np.eye(2), np.ones(3)),
        lambda: implicit.qp(np.eye(2), np.ones((2, 2))),
        lambda: implicit.qp(np.eye(2), np.ones(2), np.ones((1, 2))),
        lambda: implicit.qp(np.eye(2), np.ones(2), np.ones((1, 3)), np.ones(1)),
        lambda: implicit.qp(np.eye(2), np.ones(2), G=np.ones((1, 2)), h=np.ones(2)),
        lambda: implicit.qp(np.eye(2), np.ones(2), G=np.ones((1, 2)), h=np.ones(1), cones=[2]),
        lambda: implicit.qp(np.eye(2), np.ones(2), G=np.ones((1, 2)), h=np.ones(1), cones=[0.5]),
        lambda: implicit.qp(np.eye(2) * 1j, np.ones(2)),
    ],
)
def test_wrong_arguments_are_refused(wrong):
    with pytest.raises(PullbackError) as error:
        wrong()
    assert not isinstance(error.value, ConvergenceError)


def test_newton_may_solve_the_conditions_near_the_solution():
    np.testing.assert_allclose(minimize(bounds=(0, 1), solver=implicit.Newton()), [1, 1])


def test_a_report_and_a_callback():
    seen = []
    found = implicit.solve.argmin(
        lambda x: pb.sum((x - 2.0) ** 2), np.zeros(2), bounds=(0, 1), callback=lambda step, left: seen.append(left)
    )
    assert len(seen) == found.report.steps
    assert "InteriorPoint: converged" in str(found.report)
    np.testing.assert_allclose(found.multipliers["upper bounds"], [2, 2], atol=1e-8)
    with pytest.raises(ArgumentError, match="callback"):
        minimize(bounds=(0, 1), callback=3)
