"""Partials in, a special function out: SciPy's values (or our own) in the dtype NumPy would answer, our rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from threading import Lock
from typing import Any, NoReturn

import numpy as np

from ...arrays.backends import special_of
from ...arrays.spec import is_inexact, spec_of
from ...errors import DeviceError, DtypeError, UnsupportedFunction
from ..elementwise import add
from ..families import elementwise, result_dtype, unwritten

__all__ = ["by_order", "in_double", "known", "over", "refused", "special"]

Formula = Callable[..., Any]
Domain = tuple[float, float] | range

#: Fewer shapes than the elementary ops have: what broadcasting does is the family's, and is tested there.
_SHAPES: dict[int, tuple[tuple[tuple[int, ...], ...], ...]] = {
    1: (((3,),), ((),)),
    2: (((2, 1), (3,)), ((2,), (2,))),
    3: (((2, 1), (3,), ()), ((2,), (2,), (2,))),
    4: (((2, 1), (3,), (), ()), ((2,), (2,), (2,), (2,))),
    5: (((), (), (2, 1), (3,), ()), ((2,), (2,), (2,), (2,), (2,))),
}


def special(
    name: str,
    partials: Mapping[str, Formula | None],
    *,
    samples: Formula,
    doc: str = "",
    example: tuple[str, str] | None = None,
    value: str | Formula | None = None,
    plane: bool = False,
) -> Any:
    """A special function: `value` is its name in SciPy or a function of (xp, *arrays) that is given float64.

    `plane` says that it is also computed for complex arguments.
    """
    wanted = value if callable(value) else _from_library(value or name)
    return elementwise(
        name,
        partials,
        value=in_double(name, wanted, plane),
        dtype="inexact",
        kernel=unwritten,
        samples=samples,
        doc=doc,
        example=example,
        home="pb.special",
    )


def in_double(name: str, function: Formula, plane: bool = False) -> Formula:
    """The function computed in double precision, its result cast to what the arguments promote to."""

    def value(xp: Any, *args: Any) -> Any:
        dtype = _answer(name, args, plane)
        wide = [_widened(xp, x) for x in args]
        return function(xp, *wide).astype(dtype, copy=False)

    return value


def _answer(name: str, args: tuple[Any, ...], plane: bool) -> Any:
    dtype = result_dtype([spec_of(x) for x in args])
    if dtype.kind == "c" and not plane:
        raise DtypeError(f"{name}: complex arguments are not supported, got {dtype}.")
    return dtype if is_inexact(dtype) else np.sin.resolve_dtypes((dtype, None))[-1]


def _widened(xp: Any, x: Any) -> Any:
    x = xp.asarray(x)
    if x.dtype.kind in "iub":
        return x
    return x.astype("complex128" if x.dtype.kind == "c" else "float64", copy=False)


def known(xp: Any, name: str) -> Formula:
    """The function of that name for the arrays of `xp`; CuPy lacks some, which is said by name."""
    library = special_of(xp)
    if not hasattr(library, name):
        raise DeviceError(f"{name}: {library.__name__} has no such function.\n  Move the array to the CPU.")
    found: Formula = getattr(library, name)
    return found


def moved(n: Any, by: int) -> Any:
    """n + by. A Python number stays one, so that it meets the arrays of any library."""
    return n + by if isinstance(n, (int, float)) else add(n, by)


def _from_library(name: str) -> Formula:
    return lambda xp, *args: known(xp, name)(*args)


def by_order(make: Formula) -> Formula:
    """A family of ops, one for each order of derivative, made when it is first asked for, whatever thread asks."""
    made: dict[tuple[int, ...], Any] = {}
    lock = Lock()

    @wraps(make)
    def of(*orders: int) -> Any:
        if orders not in made:
            with lock:
                if orders not in made:
                    made[orders] = make(*orders)
        return made[orders]

    return of


def refused(name: str, argument: str) -> Formula:
    """The partial of an argument in which no accurate derivative is known: it says so, instead of a guess."""

    def partial() -> NoReturn:
        raise UnsupportedFunction(
            f"{name}: no derivative with respect to {argument} is known.\n"
            f"  Hold {argument} constant (pb.stop_gradient), or write a rule for it with pb.custom_op."
        )

    return partial


def over(*domains: Domain) -> Formula:
    """Samples for one argument per domain: an interval of reals, or a range of integers."""

    def draw(rng: Any, domain: Domain, shape: tuple[int, ...]) -> Any:
        if isinstance(domain, range):
            return np.asarray(rng.integers(domain.start, domain.stop, size=shape))
        return np.asarray(rng.uniform(*domain, size=shape))

    return lambda rng: [
        (tuple(draw(rng, d, shape) for d, shape in zip(domains, shapes, strict=True)), {})
        for shapes in _SHAPES[len(domains)]
    ]
