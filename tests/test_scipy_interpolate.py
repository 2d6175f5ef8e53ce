"""`scipy.interpolate` in functions that a transform runs: at points and of data that carry derivatives."""

import numpy as np
import pytest
from scipy import interpolate

import pullback as pb
from pullback import errors

T = np.array([0.0, 0.4, 1.0, 1.7, 2.1, 3.0])
DATA = np.sin(T)
TABLE = np.stack([DATA, np.cos(T), T**2])
AT = np.array([[0.1, 0.9], [1.65, 2.95]])
BEYOND = np.array([-0.3, 0.55, 3.2])
KNOTS = np.array([0, 0, 0, 0, 1.0, 2.0, 3, 3, 3, 3])

#: (made of data, the data, the points).
SPLINES = {
    "CubicSpline": (lambda y: interpolate.CubicSpline(T, y), DATA, AT),
    "natural": (lambda y: interpolate.CubicSpline(T, y, bc_type="natural"), DATA, AT),
    "rows": (lambda y: interpolate.CubicSpline(T, y, axis=1), TABLE, AT),
    "columns, cut": (lambda y: interpolate.CubicSpline(T, y, extrapolate=False), TABLE.T, BEYOND[1]),
    "beyond": (lambda y: interpolate.CubicSpline(T, y), DATA, BEYOND),
    "periodic": (lambda y: interpolate.CubicSpline(T, np.append(y, y[0]), bc_type="periodic"), DATA[:-1], BEYOND),
    "linear": (lambda y: interpolate.interp1d(T, y), DATA, AT),
    "linear, rows": (lambda y: interpolate.interp1d(T, y), TABLE, AT),
    "filled": (lambda y: interpolate.interp1d(T, y, bounds_error=False, fill_value=(-1.0, 2.0)), DATA, BEYOND),
    "filled by ends": (
        lambda y: interpolate.interp1d(T, y, fill_value=(y[0], y[-1]), bounds_error=False),
        DATA,
        BEYOND,
    ),
    "filled, rows": (
        lambda y: interpolate.interp1d(T, y, bounds_error=False, fill_value=(np.array([1.0, 2.0, 3.0]), 0.5)),
        TABLE,
        BEYOND,
    ),
    "unsorted": (lambda y: interpolate.interp1d(T[::-1], y), DATA, AT),
    "extrapolated": (lambda y: interpolate.interp1d(T, y, fill_value="extrapolate"), DATA, BEYOND),
    "cubic": (lambda y: interpolate.interp1d(T, y, kind="cubic"), DATA, AT),
    "quadratic, rows": (lambda y: interpolate.interp1d(T, y, kind="quadratic"), TABLE, AT),
    "BSpline": (lambda y: interpolate.BSpline(KNOTS, y, 3), DATA, AT),
    "BSpline, columns": (lambda y: interpolate.BSpline(KNOTS, y, 3), TABLE.T, BEYOND),
    "make_interp_spline": (lambda y: interpolate.make_interp_spline(T, y, k=5), DATA, AT),
    "of second order": (lambda y: interpolate.make_interp_spline(T, y, k=2, axis=1), TABLE, AT),
    "PPoly": (lambda y: interpolate.PPoly(y.reshape(2, 3), T[[0, 2, 4, 5]]), DATA, BEYOND),
    "PPoly of constants": (lambda y: interpolate.CubicHermiteSpline(T, y * 1.0, T), DATA, AT),
    "Pchip": (lambda y: interpolate.PchipInterpolator(T, y), DATA, AT),
    "Akima": (lambda y: interpolate.Akima1DInterpolator(T, y), DATA, AT),
}
#: Not linear in their data.
OF_CONSTANTS = ("PPoly of constants", "Pchip", "Akima")


def differences(f, x, step=1e-4):
    x = np.asarray(x)
    units = (step * np.eye(x.size)).reshape(x.size, *x.shape)
    rows = [(8 * (f(x + e) - f(x - e)) - (f(x + 2 * e) - f(x - 2 * e))) / (12 * step) for e in units]
    return np.array(rows).reshape(x.shape)


def weighted(values):
    return np.sum(values * np.cos(np.arange(1.0, np.size(values) + 1)).reshape(np.shape(values)))


@pytest.mark.parametrize("name", SPLINES)
def test_values_and_derivatives_at_points(name):
    make, data, at = SPLINES[name]
    spline = make(data)

    def f(t):
        return weighted(make(data)(t))

    value, slope = pb.value_and_grad(f)(at)
    np.testing.assert_allclose(value, f(at), rtol=1e-12)
    np.testing.assert_allclose(slope, differences(f, at), rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(pb.grad(lambda t: weighted(spline(t)))(at), slope)  # made outside
    np.testing.assert_allclose(pb.jvp(f, (at,), (np.ones_like(at),))[1], np.sum(slope), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", [name for name in SPLINES if name not in OF_CONSTANTS])
def test_values_and_derivatives_of_data(name):
    make, data, at = SPLINES[name]

    def f(y):
        return weighted(make(y)(at))

    value, slope = pb.value_and_grad(f)(data)
    np.testing.assert_allclose(value, f(data), rtol=1e-12)
    np.testing.assert_allclose(slope, differences(f, data, 1e-2), rtol=1e-9, atol=1e-10)  # linear
    both = pb.grad(lambda y, t: weighted(make(y)(t)), (0, 1))(data, at)
    np.testing.assert_allclose(both[0], slope)
    np.testing.assert_allclose(both[1], pb.grad(lambda t: weighted(make(data)(t)))(at))


@pytest.mark.parametrize("name", ["CubicSpline", "BSpline", "PPoly"])
def test_derivatives_of_splines(name):
    make, data, at = SPLINES[name]
    at = np.clip(at, 0.1, 2.9)
    for nu in (1, 2, 3, 4):
        wanted = make(data)(at, nu)
        np.testing.assert_allclose(pb.jvp(lambda y, nu=nu: make(y)(at, nu), (data,), (data,))[0], wanted, atol=1e-12)
    first = pb.elementwise_grad(lambda t: make(data)(t))
    np.testing.assert_allclose(first(at), make(data)(at, 1), rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(pb.elementwise_grad(first)(at), make(data)(at, 2), rtol=1e-12, atol=1e-13)


def test_compiled_and_in_batches():
    def f(p):
        spline = interpolate.CubicSpline(T, p[0] * DATA + p[1])
        table = interpolate.interp1d(T, DATA, bounds_error=False, fill_value=0.0)
        return weighted(spline(AT * p[2])) + weighted(table(AT + p[0]))

    p = np.array([0.2, 0.5, 0.9])
    wanted = differences(f, p)
    np.testing.assert_allclose(pb.jit(pb.grad(f))(p), wanted, rtol=1e-7)
    np.testing.assert_allclose(pb.vmap(pb.grad(f))(np.stack([p + 0.01, p]))[1], wanted, rtol=1e-7)
    np.testing.assert_allclose(
        pb.hessian(f)(p),
        np.array([differences(lambda q, i=i: pb.grad(f)(q)[i], p) for i in range(3)]),
        rtol=1e-5,
        atol=1e-9,
    )


AXES = (np.array([0.0, 1.0, 3.0]), np.array([-1.0, 0.5, 1.0, 2.0]))
GRID = np.sin(AXES[0])[:, None] * np.exp(AXES[1])


@pytest.mark.parametrize("fill", [np.nan, None, -5.0])
def test_tables_of_several_variables(fill):
    inside = np.array([[0.2, 0.7], [2.9, -0.9], [1.4, 1.4]])
    points = inside if fill is np.nan else np.vstack([inside, [[3.5, 0.1], [0.1, -3.0]]])
    values = np.stack([GRID, GRID**2], axis=-1)

    def f(x, v):
        table = interpolate.RegularGridInterpolator(AXES, v, bounds_error=fill is np.nan, fill_value=fill)
        return weighted(table(x))

    for v in (GRID, values):
        value, slopes = pb.value_and_grad(f, (0, 1))(points, v)
        np.testing.assert_allclose(value, f(points, v), rtol=1e-12)
        np.testing.assert_allclose(slopes[0], differences(lambda x, v=v: f(x, v), points), rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(slopes[1], differences(lambda v: f(points, v), v, 1e-2), rtol=1e-8, atol=1e-10)


def test_what_has_no_rule_says_so_and_points_outside_raise():
    refused = {
        "integrate": lambda y: interpolate.CubicSpline(T, y).integrate(0.0, 1.0),
        "nearest": lambda y: interpolate.interp1d(T, DATA, kind="nearest")(y).sum(),
        "bc_type": lambda y: interpolate.CubicSpline(T, y, bc_type=((1, 0.0), (1, 0.0)))(1.0),
        "CubicSpline": lambda y: interpolate.PchipInterpolator(T, y)(1.0),
        "make_interp_spline": lambda y: interpolate.splev(1.0, interpolate.splrep(T, y)),
    }
    for named, f in refused.items():
        with pytest.raises((errors.UnsupportedFunction, errors.ConversionError), match=named):
            pb.grad(f)(DATA)
    for f in (
        lambda t: interpolate.interp1d(T, DATA)(t),
        lambda t: interpolate.RegularGridInterpolator((T,), DATA)(t[None]),
    ):
        with pytest.raises(ValueError, match="outside"):
            pb.grad(lambda t, f=f: np.sum(f(t)))(np.float64(3.5))
    with pytest.raises(errors.UnsupportedFunction, match="bounds_error=False"):
        pb.jit(lambda t: interpolate.interp1d(T, DATA)(t))(1.0)
