"""Defining a special function: SciPy's values (or our own) in NumPy's dtypes, with our derivative rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from threading import Lock
from typing import Any, NoReturn

import numpy as np

from ...arrays.backends import special_namespace_of
from ...arrays.spec import is_inexact, spec_of
from ...errors import DeviceError, DtypeError, UnsupportedFunction
from ..elementwise.pointwise import add
from ..families import elementwise, no_kernel, result_dtype
from ..forms import elsewhere
from ..op import Formula
from ..signatures import Declarations
from .expansions import in_working_precision

FormulaFunction = Callable[..., Any]
Domain = tuple[float, float] | range

#: Fewer shapes than the elementary ops have: broadcasting is the family's, and is tested there.
_SHAPES: dict[int, tuple[tuple[tuple[int, ...], ...], ...]] = {
    1: (((3,),), ((),)),
    2: (((2, 1), (3,)), ((2,), (2,))),
    3: (((2, 1), (3,), ()), ((2,), (2,), (2,))),
    4: (((2, 1), (3,), (), ()), ((2,), (2,), (2,), (2,))),
    5: (((), (), (2, 1), (3,), ()), ((2,), (2,), (2,), (2,), (2,))),
}


def special(
    partials: Mapping[str, FormulaFunction],
    domains: Sequence[Domain],
    value: str | FormulaFunction | None = None,
    plane: bool = False,
    anywhere: FormulaFunction | None = None,
) -> Declarations:
    """A decorator of a declaration, which gives a special function its name, its arguments and its docstring. An
    argument without a partial has no known derivative: there it raises. The rest is as in `special_op`.
    """

    def define(declared: FormulaFunction) -> Any:
        name, args = declared.__name__, declared.__code__.co_varnames[: declared.__code__.co_argcount]
        stated = {a: partials[a] if a in partials else refuse_partial(name, a) for a in args}
        doc = declared.__doc__ or ""
        return special_op(name, stated, domains, value, plane, anywhere, doc)

    return define


def special_op(
    name: str,
    partials: Mapping[str, FormulaFunction | None],
    domains: Sequence[Domain],
    value: str | FormulaFunction | None = None,
    plane: bool = False,
    anywhere: FormulaFunction | None = None,
    doc: str = "",
) -> Any:
    """A special function, sampled over a domain for each argument: an interval of reals, or a range of integers.
    `value` is its name in SciPy or a function of (xp, *arrays) that receives float64; `plane`: whether it supports
    complex arguments too; `anywhere`, the same in other ops, is for programs that run without SciPy.
    """
    wanted = value if callable(value) else _library_value(value or name)
    return elementwise(
        name,
        partials,
        value=compute_in_double(name, wanted, plane),
        dtype="inexact",
        kernel=no_kernel,
        form=None if anywhere is None else elsewhere(in_working_precision(name, anywhere)),
        autocast="high",
        samples=_samples_over(domains),
        doc=doc,
    )


def compute_in_double(name: str, function: FormulaFunction, plane: bool = False) -> FormulaFunction:
    """The function computed in double precision, its result cast to what the arguments promote to."""

    def value(xp: Any, *args: Any) -> Any:
        dtype = _result_dtype(name, args, plane)
        wide = [_widen(xp, x) for x in args]
        return function(xp, *wide).astype(dtype, copy=False)

    return value


def _result_dtype(name: str, args: tuple[Any, ...], plane: bool) -> Any:
    dtype = result_dtype([spec_of(x) for x in args])
    if dtype.kind == "c" and not plane:
        raise DtypeError(f"{name}: complex arguments are not supported, got {dtype}.")
    return dtype if is_inexact(dtype) else np.sin.resolve_dtypes((dtype, None))[-1]


def _widen(xp: Any, x: Any) -> Any:
    x = xp.asarray(x)
    if x.dtype.kind in "iub":
        return x
    return x.astype("complex128" if x.dtype.kind == "c" else "float64", copy=False)


def library_function(xp: Any, name: str) -> FormulaFunction:
    """The function of that name for the arrays of `xp`; CuPy lacks some, which is an error."""
    library = special_namespace_of(xp)
    if not hasattr(library, name):
        raise DeviceError(f"{name}: {library.__name__} has no such function.\n  Move the array to the CPU.")
    found: FormulaFunction = getattr(library, name)
    return found


def shift_order(n: Any, by: int) -> Any:
    """n + by. A Python number stays one, so that it works with NumPy and CuPy."""
    return n + by if isinstance(n, (int, float)) else add(n, by)


def _library_value(name: str) -> FormulaFunction:
    return lambda xp, *args: library_function(xp, name)(*args)


def cache_by_order(make: FormulaFunction) -> FormulaFunction:
    """A family of ops, one for each order of derivative, made on first use, in any thread."""
    made: dict[tuple[int, ...], Any] = {}
    lock = Lock()

    @wraps(make)
    def op_of(*orders: int) -> Any:
        if orders not in made:
            with lock:
                if orders not in made:
                    made[orders] = make(*orders)
        return made[orders]

    return op_of


def derivative_ops(domains: Sequence[Domain]) -> Callable[[FormulaFunction], FormulaFunction]:
    """A decorator of a function of (xp, k, *arrays), the value of a k-th derivative in the last of them: it returns the
    op of each order, whose own derivative is the next.
    """

    def define(value: FormulaFunction) -> FormulaFunction:
        name, code = value.__name__, value.__code__
        *held, moving = code.co_varnames[2 : code.co_argcount]

        @cache_by_order
        def op_of(k: int) -> Any:
            slope: Any = Formula(lambda *arrays: op_of(k + 1)(*arrays), (*held, moving))
            partials = {a: refuse_partial(name, a) for a in held} | {moving: slope}
            return special_op(f"{name}_{k}", partials, domains, value=lambda xp, *arrays: value(xp, k, *arrays))

        return op_of

    return define


def refuse_partial(name: str, argument: str) -> FormulaFunction:
    """The partial of an argument without a known accurate derivative: it raises."""

    def partial() -> NoReturn:
        raise UnsupportedFunction(
            f"{name}: no derivative with respect to {argument} is known.\n"
            f"  Hold {argument} constant (pb.stop_gradient), or write a rule for it with pb.custom_op."
        )

    return partial


def _samples_over(domains: Sequence[Domain]) -> FormulaFunction:
    """Samples for one argument per domain."""

    def draw(rng: Any, domain: Domain, shape: tuple[int, ...]) -> Any:
        if isinstance(domain, range):
            return np.asarray(rng.integers(domain.start, domain.stop, size=shape))
        return np.asarray(rng.uniform(*domain, size=shape))

    return lambda rng: [
        (tuple(draw(rng, d, shape) for d, shape in zip(domains, shapes, strict=True)), {})
        for shapes in _SHAPES[len(domains)]
    ]
