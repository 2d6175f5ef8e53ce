"""Interpolation by `scipy.interpolate` at points, and of data, that carry derivatives.

Splines are piecewise polynomials, and linear in their data. SciPy makes the coefficients for each unit vector of data;
here they are multiplied with the data, and the polynomials are evaluated at the points.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ...errors import UnsupportedFunction
from ..concrete import is_concrete, strip_derivatives
from ..dispatch import ndim, shape
from ..elementwise import pointwise
from ..index import indexing
from ..lazy import find_public
from ..shape import reshaping
from .nested import as_array_or_value, with_rule
from .scipy_functions import as_argument


class Pieces(NamedTuple):
    """`c[j, i]` is the coefficient of (x - x[i])^(k - j) between x[i] and x[i + 1]; points replace an axis."""

    x: Any
    c: Any
    axis: int = 0
    extrapolate: Any = True
    #: In place of values below and above, where they are not extrapolated.
    fill: tuple[Any, Any] = (np.nan, np.nan)
    bounds_error: bool = False

    def differentiate(self, order: int) -> Pieces:
        if order < 0:
            raise UnsupportedFunction(f"scipy.interpolate: nu={order} has no rule here.\n  Use pb.trapezoid on a grid.")
        c = self.c
        for _ in range(order):
            if shape(c)[0] == 1:
                return self._replace(c=pointwise.multiply(c, 0.0))
            powers = np.arange(shape(c)[0] - 1, 0, -1.0).reshape(-1, *(1,) * (ndim(c) - 1))
            c = pointwise.multiply(c[:-1], powers)
        return self._replace(c=c)

    def evaluate(self, x: Any, name: str) -> Any:
        """The polynomial of the piece that each point lies in; beyond the ends what is to stand there."""
        if not np.all(np.diff(self.x) > 0):
            raise UnsupportedFunction(f"{name}: breakpoints that decrease have no rule here.\n  Reverse the order.")
        first, last = self.x[0], self.x[-1]
        if self.extrapolate == "periodic":
            x = first + (x - first) % (last - first)
        outside = check_bounds(x, first, last, name) if self.bounds_error else None
        rank, rest = ndim(x), ndim(self.c) - 2
        i = place_of(self.x, x)
        h = reshaping.reshape(x - find_public("take")(self.x, i), (*shape(x), *(1,) * rest))
        c = indexing.take(self.c, i, axis=1)
        found = c[0]  # Horner's rule
        for row in range(1, shape(c)[0]):
            found = found * h + c[row]
        axes = range(ndim(found))
        order = [*axes[rank : rank + self.axis], *axes[:rank], *axes[rank + self.axis :]]
        found = reshaping.permute_dims(found, order)
        if self.extrapolate or outside is False:
            return found
        below, above = (
            reshaping.reshape(side, (*(1,) * self.axis, *shape(x), *(1,) * (rest - self.axis)))
            for side in (x < first, x > last)
        )
        low, high = (self._at_points(side, rank) for side in self.fill)
        return np.where(below, low, np.where(above, high, found))

    def _at_points(self, fill: Any, rank: int) -> Any:
        """A filling with the axes of points among its own."""
        if shape(fill) in ((), (1,)):
            return reshaping.reshape(fill, ())
        sizes = shape(self.c)[2:]
        return reshaping.reshape(np.broadcast_to(fill, sizes), (*sizes[: self.axis], *(1,) * rank, *sizes[self.axis :]))


def place_of(knots: Any, x: Any) -> Any:
    """In which interval a point lies; beyond the ends, in the first or the last."""
    return np.clip(np.searchsorted(knots, x, side="right") - 1, 0, len(knots) - 2)


def check_bounds(x: Any, first: Any, last: Any, name: str) -> bool:
    """Raise as SciPy does if a point lies outside; False."""
    if not is_concrete(x):
        raise UnsupportedFunction(
            f"{name}: whether a point lies outside is not known while the function is traced.\n"
            "  Pass bounds_error=False, with a fill_value."
        )
    numbers = np.asarray(strip_derivatives(x))
    if np.any(numbers < first) or np.any(numbers > last):
        raise ValueError(f"{name}: a value is outside of the range of interpolation, {first} to {last}.")
    return False


def _combine(basis: Any, y: Any) -> Any:
    """The coefficients for data, from those for each unit vector along their last axis."""
    return np.tensordot(basis, y, axes=(basis.ndim - 1, 0))


def _of_spline(spline: Any) -> tuple[Any, Any]:
    """Breakpoints and coefficients of a B-spline with constants."""
    t, k = spline.t, spline.k
    knots = np.unique(t[k : len(t) - k])
    rows = [spline(knots[:-1], nu=k - j, extrapolate=True) / np.prod(np.arange(1.0, k - j + 1)) for j in range(k + 1)]
    return knots, np.stack([np.moveaxis(row, spline.axis, 0) for row in rows])


def _data(y: Any, axis: int) -> tuple[Any, int]:
    y = as_array_or_value(as_argument(y))
    axis = axis % ndim(y)
    return reshaping.moveaxis(y, axis, 0), axis


def _refuse_conditions(name: str, bc_type: Any) -> None:
    if bc_type is not None and not isinstance(bc_type, str):
        raise UnsupportedFunction(f"{name}: bc_type={bc_type!r} has no rule here.\n  Use a name, as 'natural'.")


def make_cubic(self: Any, x: Any, y: Any, axis: int = 0, bc_type: Any = "not-a-knot", extrapolate: Any = None) -> None:
    _refuse_conditions("scipy.interpolate.CubicSpline", bc_type)
    data, axis = _data(y, axis)
    units = np.eye(shape(data)[0])
    if bc_type == "periodic":
        if is_concrete(data) and not np.allclose(strip_derivatives(data[0]), strip_derivatives(data[-1]), atol=1e-15):
            raise ValueError("scipy.interpolate.CubicSpline: for bc_type='periodic' the last datum must be the first.")
        units[-1] = units[0]
    basis = type(self)(x, units, bc_type=bc_type)
    extrapolate = basis.extrapolate if extrapolate is None else extrapolate
    vars(self)["pieces"] = Pieces(basis.x, _combine(basis.c, data), axis, extrapolate)


def make_polynomial(self: Any, c: Any, x: Any, extrapolate: Any = None, axis: int = 0) -> None:
    c = reshaping.moveaxis(as_array_or_value(as_argument(c)), (axis, axis + 1), (0, 1))
    x = np.ascontiguousarray(x, float)
    vars(self)["pieces"] = Pieces(x, c, axis, True if extrapolate is None else extrapolate)


def make_b_spline(self: Any, t: Any, c: Any, k: int, extrapolate: Any = True, axis: int = 0) -> None:
    data, axis = _data(c, axis)
    knots, basis = _of_spline(type(self)(t, np.eye(shape(data)[0]), k))
    vars(self)["pieces"] = Pieces(knots, _combine(basis, data), axis, extrapolate)


def make_interp_spline(x: Any, y: Any, k: int = 3, t: Any = None, bc_type: Any = None, axis: int = 0) -> Any:
    from scipy import interpolate  # it is imported: its function was called

    _refuse_conditions("scipy.interpolate.make_interp_spline", bc_type)
    data, axis = _data(y, axis)
    original = interpolate.make_interp_spline
    spline = getattr(original, "__wrapped__", original)(x, np.eye(shape(data)[0]), k, t, bc_type)
    knots, basis = _of_spline(spline)
    made = interpolate.BSpline.__new__(interpolate.BSpline)
    vars(made)["pieces"] = Pieces(knots, _combine(basis, data), axis)
    return made


def make_interpolation(
    self: Any, x: Any, y: Any, kind: Any = "linear", axis: int = -1, copy: bool = True, bounds_error: Any = None,
    fill_value: Any = np.nan, assume_sorted: bool = False,
) -> None:  # fmt: skip
    data, axis = _data(y, axis)
    units = np.eye(shape(data)[0])
    basis = type(self)(
        x, units, kind, 0, copy, bounds_error, fill_value if isinstance(fill_value, str) else np.nan, assume_sorted
    )
    pieces = _of_interpolation(basis)
    vars(self)["pieces"] = pieces._replace(c=_combine(pieces.c, data), axis=axis, **_outside(fill_value, bounds_error))


def _outside(fill_value: Any, bounds_error: Any) -> dict[str, Any]:
    extrapolates = isinstance(fill_value, str)
    is_pair = isinstance(fill_value, tuple) and len(fill_value) == 2
    fill = (np.nan, np.nan) if extrapolates else fill_value if is_pair else (fill_value, fill_value)
    checks = not extrapolates and (bounds_error or (bounds_error is None and not is_pair and np.all(np.isnan(fill[0]))))
    return {"extrapolate": extrapolates, "fill": fill, "bounds_error": bool(checks)}


def _of_interpolation(law: Any) -> Pieces:
    """`interp1d` of constants."""
    kind, y = law._kind, np.moveaxis(law.y, law.axis, 0)
    fill = {"extrapolate": law._extrapolate, "bounds_error": bool(law.bounds_error)}
    fill["fill"] = (np.nan, np.nan) if law._extrapolate else (law._fill_value_below, law._fill_value_above)
    if kind == "linear":
        gaps = np.diff(law.x).reshape(-1, *(1,) * (y.ndim - 1))
        return Pieces(law.x, np.stack([np.diff(y, axis=0) / gaps, y[:-1]]), law.axis, **fill)
    if not hasattr(law, "_spline"):
        raise UnsupportedFunction(f"scipy.interpolate.interp1d: kind={kind!r} has no derivative.\n  Use 'linear'.")
    knots, c = _of_spline(law._spline)
    return Pieces(knots, reshaping.reshape(c, (*c.shape[:2], *y.shape[1:])), law.axis, **fill)


def _evaluate(read: Callable[[Any], Pieces], self: Any, x: Any, nu: int = 0, extrapolate: Any = None) -> Any:
    pieces = vars(self).get("pieces")
    pieces = read(self) if pieces is None else pieces
    pieces = pieces if extrapolate is None else pieces._replace(extrapolate=extrapolate)
    x = pointwise.multiply(as_array_or_value(as_argument(x)), 1.0)
    return pieces.differentiate(nu).evaluate(x, f"scipy.interpolate.{type(self).__name__}")


def make_grid(self: Any, points: Any, values: Any, method: str = "linear", bounds_error: bool = True,
              fill_value: Any = np.nan, **options: Any) -> None:  # fmt: skip
    """`RegularGridInterpolator` of data."""
    values = as_array_or_value(as_argument(values))
    if any(np.any(np.diff(grid) < 0) for grid in points):
        raise UnsupportedFunction(
            "scipy.interpolate.RegularGridInterpolator: points that decrease have no rule here.\n  Reverse the order."
        )
    type(self).__init__(self, points, np.zeros(shape(values)), method, bounds_error, fill_value, **options)
    vars(self)["pieces"] = values


def evaluate_grid(self: Any, xi: Any, method: Any = None, *, nu: Any = None) -> Any:
    """`RegularGridInterpolator`: the corners of the cell, by their shares of it."""
    if (method or self.method) != "linear" or nu is not None:
        raise UnsupportedFunction(
            f"scipy.interpolate.RegularGridInterpolator: method={method or self.method!r} has no rule here.\n"
            "  Use method='linear'."
        )
    xi = np.stack(np.broadcast_arrays(*xi), axis=-1) if isinstance(xi, tuple) else as_array_or_value(as_argument(xi))
    columns = [xi[..., d] for d in range(len(self.grid))]
    known = vars(self).get("pieces", self.values)
    places, shares = [], []
    outside: Any = np.zeros(shape(columns[0]), bool)
    for grid, x in zip(self.grid, columns, strict=True):
        if self.bounds_error:
            check_bounds(x, grid[0], grid[-1], "scipy.interpolate.RegularGridInterpolator")
        i = place_of(grid, x)
        low, high = (find_public("take")(grid, i + side) for side in (0, 1))
        places.append(i)
        shares.append((x - low) / (high - low))
        outside = np.logical_or(outside, np.logical_or(x < grid[0], x > grid[-1]))
    rest = ndim(known) - len(self.grid)
    total: Any = 0.0
    for corner in itertools.product((0, 1), repeat=len(self.grid)):
        weight: Any = 1.0
        for side, share in zip(corner, shares, strict=True):
            weight = weight * (share if side else 1.0 - share)
        values = indexing.getitem(known, tuple(i + side for i, side in zip(places, corner, strict=True)))
        total = total + reshaping.reshape(weight, (*shape(weight), *(1,) * rest)) * values
    if self.fill_value is None:
        return total
    return np.where(reshaping.reshape(outside, (*shape(outside), *(1,) * rest)), self.fill_value, total)


def _refusal(name: str) -> Callable[..., Any]:
    def refuse(self: Any, *args: Any, **kwargs: Any) -> Any:
        raise UnsupportedFunction(
            f"scipy.interpolate.{type(self).__name__}.{name}: has no rule for values that carry derivatives.\n"
            "  Call the spline itself, spline(x, nu) for a derivative of it, and sum for an integral: pb.trapezoid."
        )

    return refuse


def replaced_methods(interpolate: Any) -> dict[type, dict[str, Callable[..., Any]]]:
    """For each class, the methods that take values that carry derivatives."""
    others = ("derivative", "antiderivative", "integrate", "roots", "solve")
    polynomial, spline = interpolate.PPoly, interpolate.BSpline
    rules: dict[type, dict[str, Callable[..., Any]]] = {
        polynomial: {"__init__": make_polynomial, "__call__": functools.partial(_evaluate, _of_polynomial)},
        interpolate.CubicSpline: {"__init__": make_cubic},
        spline: {"__init__": make_b_spline, "__call__": functools.partial(_evaluate, _of_b_spline)},
        interpolate.interp1d: {
            "__init__": make_interpolation,
            "__call__": functools.partial(_evaluate, _of_interpolation),
        },
        interpolate.RegularGridInterpolator: {"__init__": make_grid, "__call__": evaluate_grid},
    }
    found = {}
    for kind, methods in rules.items():
        methods |= {name: _refusal(name) for name in others if hasattr(kind, name)}
        found[kind] = {name: with_rule(getattr(kind, name), rule, "pieces") for name, rule in methods.items()}
    return found


def _of_polynomial(law: Any) -> Pieces:
    return Pieces(law.x, law.c, law.axis, law.extrapolate)


def _of_b_spline(law: Any) -> Pieces:
    return Pieces(*_of_spline(law), law.axis, law.extrapolate)
