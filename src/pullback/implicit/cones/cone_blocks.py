"""The cones a vector may have to lie in: numbers that are not negative, vectors (t, v) with v no longer than t.

Both are cones of squares of a product: a b by element, and (a^T b, a_0 b_1 + b_0 a_1) for (a_0, a_1). An interior-point
method needs no more than this product, a scaling W with W z = W^-1 s, and how far one may go before the boundary.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from ...arrays.spec import spec_of
from ...ops.elementwise import pointwise
from ...ops.reduce import reductions
from ...ops.shape.arrange import concat
from ...ops.shape.reshaping import reshape

#: Where a point lies that is projected: what is projected to zero, to the boundary, and what is in the cone.
OUTSIDE, BESIDE, INSIDE = 0, 1, 2

Scaling = tuple[Any, ...]


class ConeBlock(ABC):
    """Cones of one kind and size. Functions take and return vectors of `length` elements."""

    length: int
    #: How many cones there are: s^T z / degree is what a centered pair has in each.
    degree: int
    #: How many elements one cone has.
    size: int

    @abstractmethod
    def unit(self, xp: Any, dtype: Any) -> Any:
        """The one of the product."""

    @abstractmethod
    def product(self, a: Any, b: Any) -> Any:
        """The product of two vectors."""

    @abstractmethod
    def divide(self, a: Any, b: Any) -> Any:
        """x whose product with a is b, for a inside of the cone."""

    @abstractmethod
    def barrier(self, s: Any) -> Any:
        """The logarithm whose slope is the inverse of s in the product."""

    @abstractmethod
    def scaling(self, s: Any, z: Any) -> Scaling:
        """The symmetric W that keeps the cone, with W z = W^-1 s."""

    @abstractmethod
    def scale(self, scaling: Scaling, v: Any) -> Any:
        """W v."""

    @abstractmethod
    def unscale(self, scaling: Scaling, v: Any) -> Any:
        """W^-1 v."""

    @abstractmethod
    def depth(self, v: Any) -> Any:
        """The smallest eigenvalue of a vector, for each cone: negative outside."""

    @abstractmethod
    def fastest_exit(self, s: Any, ds: Any) -> Any:
        """1 / t for the largest t with s + t ds in the cone, over all cones; not positive where no t is too large."""

    @abstractmethod
    def pieces(self, u: Any, margin: float) -> Any:
        """OUTSIDE, BESIDE or INSIDE for each cone; with a margin, a point so close to INSIDE belongs to it, and one so
        close to OUTSIDE does not (a negative one: the other way round).
        """

    @abstractmethod
    def project(self, u: Any, pieces: Any) -> Any:
        """The closest point of the cone, by the smooth formula of the piece that u lies in."""

    @abstractmethod
    def apply_slope(self, u: Any, pieces: Any, function: Callable[[Any], Any], v: Any) -> Any:
        """A function of the slope of the projection at u, times v: the slope is a symmetric matrix D with eigenvalues
        between zero and one, and the function of numbers is applied to these.
        """


@final
@dataclass(frozen=True)
class Orthant(ConeBlock):
    """So many numbers that are not negative."""

    length: int
    size = 1

    @property
    def degree(self) -> int:  # type: ignore[override]
        return self.length

    def unit(self, xp: Any, dtype: Any) -> Any:
        return xp.ones(self.length, dtype)

    def product(self, a: Any, b: Any) -> Any:
        return a * b

    def divide(self, a: Any, b: Any) -> Any:
        return b / a

    def barrier(self, s: Any) -> Any:
        return reductions.sum(pointwise.log(s))

    def scaling(self, s: Any, z: Any) -> Scaling:
        return (pointwise.sqrt(s / z),)

    def scale(self, scaling: Scaling, v: Any) -> Any:
        return scaling[0] * v

    def unscale(self, scaling: Scaling, v: Any) -> Any:
        return v / scaling[0]

    def depth(self, v: Any) -> Any:
        return v

    def fastest_exit(self, s: Any, ds: Any) -> Any:
        return reductions.max(-ds / s)

    def pieces(self, u: Any, margin: float) -> Any:
        return pointwise.where(u > -margin, INSIDE, OUTSIDE)

    def project(self, u: Any, pieces: Any) -> Any:
        return pointwise.where(pointwise.equal(pieces, INSIDE), u, 0.0)

    def apply_slope(self, u: Any, pieces: Any, function: Callable[[Any], Any], v: Any) -> Any:
        return pointwise.where(pointwise.equal(pieces, INSIDE), function(1.0) * v, function(0.0) * v)


@final
@dataclass(frozen=True)
class SecondOrderCones(ConeBlock):
    """So many vectors (t, v) of one size with |v| <= t, one after the other.

    With J = diag(1, -1, ..., -1) and det s = s^T J s, the scaling is W = eta (w_0, w_1^T; w_1, I + w_1 w_1^T / (1 +
    w_0)) for w on the unit hyperboloid: s and z brought there, and the point half way between s and J z.
    """

    degree: int
    size: int

    @property
    def length(self) -> int:  # type: ignore[override]
        return self.degree * self.size

    def _rows(self, v: Any) -> tuple[Any, Any]:
        """The first elements, as a column, and the rest of each cone."""
        rows = reshape(v, (self.degree, self.size))
        return rows[:, :1], rows[:, 1:]

    def _join(self, first: Any, rest: Any) -> Any:
        return reshape(concat([first, rest], 1), (self.length,))

    def unit(self, xp: Any, dtype: Any) -> Any:
        rows = xp.zeros((self.degree, self.size), dtype)
        rows[:, 0] = 1
        return rows.reshape(-1)

    def product(self, a: Any, b: Any) -> Any:
        (a0, a1), (b0, b1) = self._rows(a), self._rows(b)
        return self._join(a0 * b0 + _dot(a1, b1), a0 * b1 + b0 * a1)

    def divide(self, a: Any, b: Any) -> Any:
        (a0, a1), (b0, b1) = self._rows(a), self._rows(b)
        x0 = (a0 * b0 - _dot(a1, b1)) / _det(a0, a1)
        return self._join(x0, (b1 - x0 * a1) / a0)

    def barrier(self, s: Any) -> Any:
        return 0.5 * reductions.sum(pointwise.log(_det(*self._rows(s))))

    def scaling(self, s: Any, z: Any) -> Scaling:
        (s0, s1), (z0, z1) = self._rows(s), self._rows(z)
        s_root, z_root = (pointwise.sqrt(_det(*v)) for v in ((s0, s1), (z0, z1)))
        s0, s1, z0, z1 = s0 / s_root, s1 / s_root, z0 / z_root, z1 / z_root
        across = pointwise.sqrt(2 * (1 + s0 * z0 + _dot(s1, z1)))  # twice the cosine of half the angle between them
        return pointwise.sqrt(s_root / z_root), (s0 + z0) / across, (s1 - z1) / across

    def scale(self, scaling: Scaling, v: Any) -> Any:
        eta, w0, w1 = scaling
        v0, v1 = self._rows(v)
        along = _dot(w1, v1)
        return self._join(eta * (w0 * v0 + along), eta * (v1 + (v0 + along / (1 + w0)) * w1))

    def unscale(self, scaling: Scaling, v: Any) -> Any:
        eta, w0, w1 = scaling
        v0, v1 = self._rows(v)
        along = _dot(w1, v1)
        return self._join((w0 * v0 - along) / eta, (v1 + (along / (1 + w0) - v0) * w1) / eta)

    def depth(self, v: Any) -> Any:
        v0, v1 = self._rows(v)
        return reshape(v0 - _length(v1), (self.degree,))

    def fastest_exit(self, s: Any, ds: Any) -> Any:
        """s is brought to the unit, and what that makes of ds leaves at its largest negative eigenvalue."""
        (s0, s1), (d0, d1) = self._rows(s), self._rows(ds)
        root = pointwise.sqrt(_det(s0, s1))
        s0, s1 = s0 / root, s1 / root
        along = s0 * d0 - _dot(s1, d1)
        return reductions.max((_length(d1 - (along + d0) / (s0 + 1) * s1) - along) / root)

    def pieces(self, u: Any, margin: float) -> Any:
        u0, u1 = self._rows(u)
        size = _length(u1)
        beside = pointwise.where(u0 + size > -margin, BESIDE, OUTSIDE)
        return reshape(pointwise.where(u0 - size > -margin, INSIDE, beside), (self.degree,))

    def project(self, u: Any, pieces: Any) -> Any:
        u0, u1 = self._rows(u)
        pieces = reshape(pieces, (self.degree, 1))
        is_beside = pointwise.equal(pieces, BESIDE)
        # where another formula is taken, that of the boundary gets a vector whose length has a derivative
        safe = pointwise.where(is_beside, u1, 1.0)
        size = pointwise.sqrt(_dot(safe, safe))
        half = 0.5 * (1 + u0 / size)
        boundary = reshape(concat([half * size, half * safe], 1), (self.length,))
        is_inside = pointwise.equal(pieces, INSIDE)
        chosen = [
            _spread(mask, value, self.degree, self.size) for mask, value in ((is_beside, boundary), (is_inside, u))
        ]
        return chosen[0] + chosen[1]

    def apply_slope(self, u: Any, pieces: Any, function: Callable[[Any], Any], v: Any) -> Any:
        """Beside the cone, with w the direction of u_1, D is 1 along (1, w), 0 along (1, -w), and (1 + u_0 / |u_1|) / 2
        across.
        """
        (u0, u1), (v0, v1) = self._rows(u), self._rows(v)
        pieces = reshape(pieces, (self.degree, 1))
        is_beside = pointwise.equal(pieces, BESIDE)
        size = pointwise.where(is_beside, _length(u1), 1.0)
        w, across = u1 / size, pointwise.where(is_beside, 0.5 * (1 + u0 / size), 0.5)
        along = _dot(w, v1)
        up, down = function(1.0) * 0.5 * (v0 + along), function(0.0) * 0.5 * (v0 - along)
        rest = function(across) * (v1 - along * w)
        is_inside = pointwise.equal(pieces, INSIDE)
        plain = (pointwise.where(is_inside, function(1.0) * x, function(0.0) * x) for x in (v0, v1))
        return self._join(
            pointwise.where(is_beside, up + down, next(plain)),
            pointwise.where(is_beside, (up - down) * w + rest, next(plain)),
        )


def _spread(mask: Any, value: Any, rows: int, size: int) -> Any:
    return reshape(pointwise.where(mask, reshape(value, (rows, size)), 0.0), (rows * size,))


def _dot(a: Any, b: Any) -> Any:
    return reductions.sum(a * b, axis=1, keepdims=True)


def _length(v: Any) -> Any:
    return pointwise.sqrt(_dot(v, v))


def _det(first: Any, rest: Any) -> Any:
    """t^2 - |v|^2 as a product, which is not lost to rounding near the boundary."""
    size = _length(rest)
    least = float(np.finfo(spec_of(first).dtype).tiny)
    return pointwise.maximum((first - size) * (first + size), least)
