"""Checks of derivatives against differences, both modes, any order, with autograd's tolerances."""

import itertools
from collections.abc import Callable
from typing import Any

from .core import make_jvp, make_vjp, vspace
from .wrap_util import get_name, unary_to_nary

TOLERANCE, STEP = 1e-6, 1e-6


def scalar_close(a: Any, b: Any) -> bool:
    """Equal to 1e-6, absolutely or relatively."""
    return bool(abs(a - b) < TOLERANCE or abs(a - b) / abs(a + b) < TOLERANCE)


def difference(f: Callable[[Any], Any], x: Any, v: Any) -> Any:
    """The central difference of f along v."""
    xs = vspace(x)
    above, below = (f(xs.add(x, xs.scalar_mul(v, sign * STEP / 2))) for sign in (1.0, -1.0))
    ys = vspace(above)
    return ys.scalar_mul(ys.add(above, ys.scalar_mul(below, -1.0)), 1 / STEP)


def check_equivalent(x: Any, y: Any) -> None:
    """The same space, and the same value along a random direction."""
    xs, ys = vspace(x), vspace(y)
    assert xs == ys, f"VSpace mismatch:\nx: {xs}\ny: {ys}"
    v = xs.randn()
    assert scalar_close(xs.inner_prod(x, v), xs.inner_prod(y, v)), f"Value mismatch:\nx: {x}\ny: {y}"


def check_vjp(f: Callable[[Any], Any], x: Any) -> None:
    """<u, J v> by differences against <J^T u, v> by the pull."""
    pull, y = make_vjp(f, x)
    xs, ys = vspace(x), vspace(y)
    v, u = xs.randn(), ys.randn()
    pulled = xs.covector(pull(ys.covector(u)))
    assert vspace(pulled) == xs, f"{vspace(pulled)} is not {xs}"
    exact, numeric = xs.inner_prod(v, pulled), ys.inner_prod(u, difference(f, x, v))
    message = f"Derivative (VJP) check of {get_name(f)} failed with arg {x}:\nanalytic: {exact}\nnumeric: {numeric}"
    assert scalar_close(numeric, exact), message


def check_jvp(f: Callable[[Any], Any], x: Any) -> None:
    """The push against a difference."""
    v = vspace(x).randn()
    check_equivalent(make_jvp(f, x)(v)[1], difference(f, x, v))


@unary_to_nary
def check_grads(f: Callable[[Any], Any], x: Any, modes: Any = ("fwd", "rev"), order: int = 2) -> None:
    """Both modes, and the derivatives of the derivatives in the point and the direction."""
    if "fwd" in modes:
        check_jvp(f, x)
        _deeper(f, x, vspace(x).randn(), lambda at, v: make_jvp(f, at)(v)[1], "jvp", modes, order)
    if "rev" in modes:
        check_vjp(f, x)
        _deeper(f, x, vspace(f(x)).randn(), lambda at, u: make_vjp(f, at)[0](u), "vjp", modes, order)


def _deeper(f: Any, x: Any, v: Any, derivative: Any, kind: str, modes: Any, order: int) -> None:
    if order > 1:
        derivative.__name__ = f"{kind}_{get_name(f)}"
        check_grads(derivative, (0, 1), modes, order=order - 1)(x, v)


def combo_check(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> Callable[..., None]:
    """`check_grads` for every combination of the alternatives given for each argument."""

    def check(*choices: Any, **named: Any) -> None:
        for chosen in itertools.product(*choices):
            for values in itertools.product(*named.values()):
                check_grads(fun, *args, **kwargs)(*chosen, **dict(zip(named, values, strict=True)))

    return check
