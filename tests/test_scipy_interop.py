"""SciPy's optimisers and solvers over trees, with exact derivatives."""

import numpy as np
import pytest
from scipy import optimize

import pullback as pb

sp = pb.interop.scipy
START = {"x": np.array([0.2, 1.0]), "y": (np.array([[0.5]]), 2.0)}
SMOOTH = [
    "CG",
    "BFGS",
    "L-BFGS-B",
    "TNC",
    "SLSQP",
    "Newton-CG",
    "trust-ncg",
    "trust-krylov",
    "trust-exact",
    "trust-constr",
]


def valley(p):
    z = pb.concat([p["x"], p["y"][0][0], pb.reshape(p["y"][1], (1,))])
    return pb.sum((1 - z[:-1]) ** 2 + 20 * (z[1:] - z[:-1] ** 2) ** 2)


@pytest.mark.parametrize("method", SMOOTH)
def test_methods_find_the_minimum_over_a_tree(method):
    found = sp.minimize(
        valley, START, method=method, tol=1e-9, options={"maxfun" if method == "TNC" else "maxiter": 2000}
    )
    assert found.x["x"].shape == (2,)
    assert found.x["y"][0].shape == (1, 1)
    assert found.x["y"][1].shape == ()
    for leaf in (found.x["x"], *found.x["y"]):
        np.testing.assert_allclose(leaf, 1.0, atol=1e-4)
    assert found.fun < 1e-8


def test_dogleg_and_methods_without_derivatives():
    def bowl(p):
        return pb.sum(pb.exp(p["a"]) - p["a"]) + (p["b"] - 2) ** 4 + (p["b"] - 2) ** 2

    for method in ("dogleg", "Nelder-Mead", "Powell", "COBYLA", "COBYQA", None):
        found = sp.minimize(bowl, {"a": np.ones(2), "b": 0.0}, method=method, tol=1e-6)
        np.testing.assert_allclose(found.x["a"], 0.0, atol=2e-3)
        np.testing.assert_allclose(found.x["b"], 2.0, atol=2e-3)


def test_derivatives_are_exact_and_asked_for_once(monkeypatch):
    seen = {}
    real = optimize.minimize

    def watched(f, x0, **given):
        seen.update(given, f=f)
        return real(f, x0, **given)

    monkeypatch.setattr(optimize, "minimize", watched)
    sp.minimize(valley, START, method="trust-ncg")
    x = np.array([0.3, -0.2, 0.7, 1.1])
    _, gradient = seen["f"](x)
    flat = pb.hessian(lambda z: pb.sum((1 - z[:-1]) ** 2 + 20 * (z[1:] - z[:-1] ** 2) ** 2))(x)
    np.testing.assert_allclose(gradient, optimize.approx_fprime(x, lambda v: seen["f"](v)[0], 1e-7), rtol=1e-4)
    np.testing.assert_allclose(seen["hessp"](x, np.arange(4.0)), flat @ np.arange(4.0))
    assert "hess" not in seen
    sp.minimize(valley, START, method="trust-exact")
    np.testing.assert_allclose(seen["hess"](x), flat)


@pytest.mark.parametrize("method", ["L-BFGS-B", "trust-krylov"])
def test_compiled_functions_find_the_same(method):
    plain = sp.minimize(valley, START, method=method)
    compiled = sp.minimize(valley, START, method=method, jit=True)
    assert compiled.nit == plain.nit
    np.testing.assert_allclose(compiled.x["x"], plain.x["x"], rtol=1e-5)


def test_bounds_are_trees():
    def f(p):
        return pb.sum((p["a"] - 3) ** 2) + pb.sum((p["b"] + 3) ** 2)

    start = {"a": np.zeros(2), "b": np.zeros((1, 2))}
    found = sp.minimize(
        f, start, bounds=({"a": None, "b": np.array([-1.0, -9.0])}, {"a": np.array([1.0, 9.0]), "b": None})
    )
    np.testing.assert_allclose(found.x["a"], [1.0, 3.0], atol=1e-5)
    np.testing.assert_allclose(found.x["b"], [[-1.0, -3.0]], atol=1e-5)
    found = sp.minimize(f, start, method="SLSQP", bounds=(-0.5, 0.5))
    np.testing.assert_allclose(found.x["b"], -0.5, atol=1e-6)
    with pytest.raises(pb.errors.ArgumentError, match="lower, upper"):
        sp.minimize(f, start, bounds=[(0, 1), (0, 1), (0, 1)])
    with pytest.raises(pb.errors.ArgumentError, match="bounds do not look like x0"):
        sp.minimize(f, start, bounds=({"a": 0}, None))


@pytest.mark.parametrize("jit", [False, True])
def test_constraints_are_functions_of_the_tree(jit):
    """The nearest point to the origin on x + y = 2, x y <= 0.75, x >= y: (1.5, 0.5)."""

    def f(p):
        return p["x"] ** 2 + p["y"] ** 2

    def product(p):
        return p["x"] * p["y"]

    held = [
        {"type": "eq", "fun": lambda p: p["x"] + p["y"] - 2},
        {"type": "ineq", "fun": lambda p, most: most - product(p), "args": (0.75,)},
        {"type": "ineq", "fun": lambda p: {"order": p["x"] - p["y"]}},
    ]
    found = sp.minimize(f, {"x": 3.0, "y": 0.0}, constraints=held, jit=jit)
    assert found.success
    np.testing.assert_allclose([found.x["x"], found.x["y"]], [1.5, 0.5], atol=1e-6)
    held = [
        optimize.LinearConstraint([[1, 1], [1, -1]], [2, 0], [2, np.inf]),
        optimize.NonlinearConstraint(product, -np.inf, 0.75),
    ]
    found = sp.minimize(f, {"x": 3.0, "y": 0.0}, method="trust-constr", constraints=held, jit=jit, tol=1e-9)
    np.testing.assert_allclose([found.x["x"], found.x["y"]], [1.5, 0.5], atol=1e-3)
    by_hand = optimize.NonlinearConstraint(
        lambda v: v[0] * v[1], -np.inf, 0.75, jac=lambda v: v[None, ::-1], hess=lambda v, w: w * (1 - np.eye(2))
    )
    wanted = optimize.minimize(
        lambda v: v @ v, [3.0, 0.0], jac=lambda v: 2 * v, hess=lambda v: 2 * np.eye(2), method="trust-constr",
        constraints=[held[0], by_hand], tol=1e-9,
    )  # fmt: skip
    np.testing.assert_allclose([found.x["x"], found.x["y"]], wanted.x, rtol=1e-7)


def test_float32_tensors_arguments_and_callbacks():
    seen = []
    start = pb.tensor(np.zeros(2, np.float32), requires_grad=True)
    found = sp.minimize(lambda x, a: pb.sum((x - a) ** 2), start, args=(3.0,), callback=seen.append)
    assert isinstance(found.x, pb.Tensor)
    assert found.x.dtype == np.float32
    np.testing.assert_allclose(found.x.tolist(), 3.0, rtol=1e-5)
    assert seen[-1].shape == (2,)
    assert start.tolist() == [0.0, 0.0]


def test_least_squares_and_roots():
    t = np.linspace(0, 2, 15)
    data = 2.5 * np.exp(-1.3 * t) + 0.5

    def residuals(p):
        return {"fit": p["a"] * pb.exp(-p["k"] * t) + p["c"] - data}

    for method in ("trf", "lm", "dogbox"):
        found = sp.least_squares(residuals, {"a": 1.0, "k": 0.5, "c": 0.0}, method=method, xtol=1e-12)
        np.testing.assert_allclose([found.x["a"], found.x["k"], found.x["c"]], [2.5, 1.3, 0.5], rtol=1e-6)
    found = sp.least_squares(residuals, {"a": 1.0, "k": 0.5, "c": 0.0}, bounds=(0.0, {"a": None, "k": 1.0, "c": None}))
    assert found.x["k"] == pytest.approx(1.0)
    for method in ("hybr", "lm", "broyden1", "krylov"):
        found = sp.root(lambda p: [pb.cos(p[0]) - p[1], p[1] - p[0]], [np.array([0.5]), np.array([0.5])], method=method)
        np.testing.assert_allclose(found.x[0], 0.739085, atol=1e-4)


def test_what_is_refused():
    with pytest.raises(pb.errors.ArgumentError, match="one floating-point number"):
        sp.minimize(lambda x: x, np.ones(2))
    with pytest.raises(pb.errors.ArgumentError, match="wants a function"):
        sp.minimize(3, np.ones(2))
    with pytest.raises(pb.errors.DtypeError, match="real"):
        sp.minimize(lambda x: pb.sum(pb.abs(x)), np.ones(2) * 1j)
    with pytest.raises(pb.errors.ArgumentError, match="nothing to solve for"):
        sp.minimize(lambda x: 0.0, {})
    with pytest.raises(pb.errors.ConversionError, match=r"pb\.argmin"):
        pb.vmap(lambda x: sp.minimize(lambda y: y**2, x).x)(np.ones(2))
    with pytest.raises(pb.errors.ArgumentError, match="'type' and 'fun'"):
        sp.minimize(lambda x: x**2, 1.0, constraints={"fun": lambda x: x})
