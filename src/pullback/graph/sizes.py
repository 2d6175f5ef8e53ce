"""A size that is not known yet in, an integer that stands for it out, and what was computed from it put right later.

Ops need whole shapes, so a graph that is built by hand is written down with a prime for each unknown size. A number
that comes from a size then shows it: 30089, 784 * 30089 or 30089 - 1 are hardly ever meant as such. When the size is
known such numbers are computed again; that this was right is checked on the shape of every result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from ..arrays.backends import is_array, namespace_on
from ..arrays.spec import Spec, spec_of
from ..errors import ArgumentError, ShapeError

__all__ = ["Sizes"]

#: Far from each other, and chosen so that no number of up to three digits times a power of ten, no power of two and no
#: size that is common in practice lies near a multiple of one.
_PRIMES = (30089, 31013, 32117, 33161, 34141, 35081, 35983, 36919, 37847, 38747)
#: How far from a multiple of an unknown size a number may lie and still come from it, as n - 1 does. Sizes are checked
#: by the shapes of results and may lie further off; nothing checks a factor.
_NEAR_SIZE, _NEAR_FACTOR = 16, 2


class Sizes:
    """The unknown sizes of a graph by name (None is a name too), each with its prime."""

    def __init__(self) -> None:
        self.primes: dict[Any, int] = {}
        self.given: set[int] = set()  # sizes that the user wrote are what they are

    def shape(self, given: Any) -> tuple[int, ...]:
        """A shape in which None and names stand for unknown sizes, with their primes."""
        entries = given if isinstance(given, (tuple, list)) else (given,)
        self.given |= {_size(n) for n in entries if n is not None and not isinstance(n, str)}
        return tuple(self._prime(n) if n is None or isinstance(n, str) else n for n in entries)

    def _prime(self, name: Any) -> int:
        if name not in self.primes:
            if len(self.primes) == len(_PRIMES):
                raise ArgumentError(f"a graph has at most {len(_PRIMES)} unknown sizes.")
            self.primes[name] = _PRIMES[len(self.primes)]
        return self.primes[name]

    def shown(self, shape: tuple[int, ...]) -> tuple[Any, ...]:
        """A shape with unknown sizes as their names, and None for what was computed from them."""
        names = {prime: name for name, prime in self.primes.items()}
        return tuple(names[n] if n in names else None if self._terms(n) else n for n in shape)

    def _terms(self, number: int, near: int = _NEAR_SIZE) -> tuple[int, tuple[tuple[Any, int], ...], int] | None:
        """(a, powers of unknown sizes, b) if the number is a times the powers, plus b; else None."""
        if not self.primes or abs(number) < _PRIMES[0] - near or number in self.given:
            return None
        for b in sorted(range(-near, near + 1), key=abs):
            rest, powers = number - b, []
            for name, prime in self.primes.items():
                power = 0
                while rest and rest % prime == 0:
                    rest, power = rest // prime, power + 1
                if power:
                    powers.append((name, power))
            if powers:
                return rest, tuple(powers), b
        return None

    def integer(self, number: int, known: Mapping[Any, int], near: int = _NEAR_SIZE) -> int:
        """An integer as it is for sizes that are known now."""
        terms = self._terms(number, near)
        if terms is None:
            return number
        a, powers, b = terms
        missing = [name for name, _ in powers if name not in known]
        if missing:
            raise ArgumentError(f"no array that is fed says how large the unknown size {missing[0]} is.")
        size: int = math.prod(known[name] ** power for name, power in powers)
        return a * size + b

    def real(self, number: float, known: Mapping[Any, int]) -> float:
        """A float: an integer, one over an integer, or the root of one of those, if it comes from a size."""
        for forth, back, near in _FORMS:
            inner = forth(number) if number and math.isfinite(number) else 0.0
            whole = round(inner) if abs(inner) < 2**53 else 0
            if whole and abs(inner - whole) <= 1e-13 * abs(inner) and self._terms(whole, near):
                return math.copysign(back(float(self.integer(whole, known, near))), number)
        return number

    def argument(self, v: Any, known: Mapping[Any, int], where: str) -> Any:
        """A constant among the arguments of an op: a factor, or an array."""
        if type(v) is int:
            return self.integer(v, known, _NEAR_FACTOR)
        return self.value(v, known, where)

    def value(self, v: Any, known: Mapping[Any, int], where: str) -> Any:
        """A static parameter."""
        if type(v) is bool or v is None or isinstance(v, str):
            return v
        if isinstance(v, int):
            return self.integer(v, known)
        if isinstance(v, float):
            return self.real(v, known)
        if type(v) in (tuple, list):
            return type(v)(self.value(x, known, where) for x in v)
        if isinstance(v, slice):
            return slice(*(self.value(x, known, where) for x in (v.start, v.stop, v.step)))
        return self.constant(v, known, where) if is_array(v) else v

    def constant(self, array: Any, known: Mapping[Any, int], where: str) -> Any:
        """An array of one number over an unknown size is made again; any other cannot be."""
        if not array.ndim and array.dtype.kind in "if":
            kept = array.item()
            found = self.argument(kept, known, where)
            return (
                array
                if found == kept or kept != kept
                else namespace_on(spec_of(array).device).asarray(found, array.dtype)
            )
        if not any(self._terms(n) for n in array.shape):
            return array
        shape = tuple(self.integer(n, known) for n in array.shape)
        first = array.ravel()[:1]
        if not bool((array == first).all()):
            raise ShapeError(
                f"{where}: a constant of shape {self.shown(array.shape)} has an unknown size.\n"
                "  Feed it by a placeholder, or compute it from one."
            )
        return namespace_on(spec_of(array).device).broadcast_to(first.reshape(()), shape).copy()

    def check(self, found: Spec, recorded: Spec, known: Mapping[Any, int], where: str) -> None:
        """Whether a result has the shape that it should have for the sizes known now."""
        wanted = tuple(self.integer(n, known) for n in recorded.shape)
        if found.shape != wanted:
            raise ShapeError(
                f"{where}: its result has shape {found.shape} where the graph expects {wanted}: its shape depends "
                f"on an unknown size in a way that is not followed.\n  Give the placeholder its whole shape."
            )


def _size(n: Any) -> int:
    if not isinstance(n, int) or isinstance(n, bool) or n < 0:
        raise ArgumentError(f"a shape is made of sizes, None and names of unknown sizes, got {n!r}.")
    return n


#: From a factor to an integer, back again, and how near to a multiple of a size that integer must be.
_FORMS: tuple[tuple[Callable[[float], float], Callable[[float], float], int], ...] = (
    (lambda v: v, lambda n: n, _NEAR_FACTOR),
    (lambda v: 1 / v, lambda n: 1 / n, _NEAR_FACTOR),
    (lambda v: v * v, math.sqrt, 0),
    (lambda v: 1 / (v * v), lambda n: 1 / math.sqrt(n), 0),
)
