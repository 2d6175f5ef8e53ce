"""Log-densities over all real numbers: each part of a point goes through the bijector onto its support."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

from ..arrays.trees import flatten, leaves_matching, unflatten
from ..errors import ArgumentError
from ..ops.reduce.reductions import sum as total
from .bijectors import Bijector
from .constraints import Constraint, biject_to
from .distribution import Distribution


@final
@dataclass(frozen=True, slots=True, eq=False)
class Unconstrained:
    """A log-density over trees of real numbers; `constrain` and `unconstrain` map points to and fro."""

    log_density: Any
    bijectors: Any

    def __call__(self, point: Any) -> Any:
        """The log-density at a point of real numbers, log-determinants included."""
        bijectors, structure = flatten_bijectors(self.bijectors)
        leaves = leaves_matching(structure, point, "to_unconstrained: the point")
        value = self.log_density(unflatten(structure, [b.forward(x) for b, x in zip(bijectors, leaves, strict=True)]))
        for bijector, x in zip(bijectors, leaves, strict=True):
            value = value + total(bijector.log_det(x))
        return value

    def constrain(self, point: Any) -> Any:
        """The point of the supports that belongs to real numbers."""
        return self._map(point, lambda b, x: b.forward(x))

    def unconstrain(self, point: Any) -> Any:
        """The real numbers that belong to a point of the supports."""
        return self._map(point, lambda b, x: b.inverse(x))

    def _map(self, point: Any, f: Callable[[Any, Any], Any]) -> Any:
        bijectors, structure = flatten_bijectors(self.bijectors)
        leaves = leaves_matching(structure, point, "to_unconstrained: the point")
        return unflatten(structure, [f(b, x) for b, x in zip(bijectors, leaves, strict=True)])


@final
class _Leaf:
    """A bijector as a leaf of a tree, though it is a tree itself."""

    __slots__ = ("bijector",)

    def __init__(self, bijector: Bijector) -> None:
        self.bijector = bijector


def flatten_bijectors(tree: Any) -> tuple[list[Bijector], Any]:
    """The bijectors of a tree of them, and the structure of the points."""
    leaves, structure = flatten(tree)
    return [leaf.bijector for leaf in leaves], structure


def to_unconstrained(log_density: Callable[[Any], Any], supports: Any) -> Unconstrained:
    """A log-density over supports as one over all real numbers, where samplers and optimizers need no bounds.
    `supports` is a tree like the points, of constraints, distributions or bijectors.

    >>> import pullback as pb
    >>> D = pb.distributions
    >>> density = D.to_unconstrained(lambda t: D.Gamma(2.0, 1.0).log_prob(t["rate"]), {"rate": D.constraints.positive})
    >>> point = density.unconstrain({"rate": 3.0})
    >>> bool(abs(density(point) - (D.Gamma(2.0, 1.0).log_prob(3.0) + pb.log(3.0))) < 1e-12)
    True
    """
    return Unconstrained(log_density, _as_leaves(supports))


def _as_leaves(supports: Any) -> Any:
    if isinstance(supports, (Constraint, Distribution, Bijector)):
        return _Leaf(_as_bijector(supports))
    if isinstance(supports, dict):
        return {name: _as_leaves(part) for name, part in supports.items()}
    if isinstance(supports, (list, tuple)):
        parts = [_as_leaves(part) for part in supports]
        is_named = isinstance(supports, tuple) and type(supports) is not tuple
        return type(supports)(*parts) if is_named else type(supports)(parts)
    raise ArgumentError(f"to_unconstrained: wants constraints, distributions or bijectors, got {supports!r}.")


def _as_bijector(support: Any) -> Bijector:
    if isinstance(support, Distribution):
        return biject_to(support.support)
    return biject_to(support) if isinstance(support, Constraint) else support
