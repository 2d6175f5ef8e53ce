"""Function in, its pullback out: reverse mode over the tape, which nests because each call has leaves of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..arrays.protect import settled
from ..arrays.spec import spec_of, zeros
from ..arrays.tensor import Tensor, wrap
from ..arrays.value import Value, fresh_level
from ..errors import ArgumentError, DtypeError
from ..ops import elementwise as pointwise
from ..ops.dispatch import as_value
from ..settings import enable_grad
from ..tape.backward import gradients
from ..tape.sweep import deepest_first
from .lifted import Lifted, inside_transform, lowered

__all__ = ["grad", "vjp"]


def vjp(f: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[[Any], tuple[Any, ...]]]:
    """The value of f, and the function that pulls a cotangent of it back to the primals.

    >>> import numpy as np, pullback as pb
    >>> from pullback.transforms import vjp
    >>> value, pull = vjp(lambda x: x * x, np.array([1.0, 3.0]))
    >>> pull(np.array([1.0, 10.0]))
    (array([ 2., 60.]),)
    """
    xs = [as_value(x) for x in primals]
    level = fresh_level() if inside_transform() else 0
    with enable_grad():
        inputs = [_variable(Lifted(x, level) if level else x) for x in xs]
        out = f(*inputs)
    if not isinstance(out, Tensor) or out.level != max(x.level for x in inputs) or out.node is None:
        return out, lambda bar: tuple(zeros(spec_of(x)) for x in xs)
    mine = {x.node for x in inputs}
    # Leaves of calls that are over lead nowhere; any other leaf is somebody's who may differentiate the answer again.
    outside = any(n.rule is None and n not in mine and n.kept() is not None for n in deepest_first([out.node]))

    def pull(bar: Any) -> tuple[Any, ...]:
        found = gradients(out, inputs, bar, create_graph=outside, retain_graph=True, allow_unused=True)
        return tuple(_given_back(g, x, level) for g, x in zip(found, xs, strict=True))

    return (out if outside else lowered(out.value, level)), pull


def _variable(x: Any) -> Tensor:
    """A tensor that this call alone differentiates: a leaf over a value, a new node over a tensor that has one."""
    if not spec_of(x).inexact:
        raise DtypeError(f"only floating-point and complex values can be differentiated, got {spec_of(x)}.")
    if isinstance(x, Tensor) and x.node is not None:
        linked: Tensor = pointwise.positive(x)
        return linked
    if isinstance(x, Tensor):
        return wrap(x.value, x.spec).requires_grad_()
    value = x if isinstance(x, Value) else settled(x)  # the caller may write to it before pulling back
    return wrap(value, spec_of(value)).requires_grad_()


def _given_back(gradient: Tensor | None, x: Any, level: int) -> Any:
    if gradient is None:
        return zeros(spec_of(x))
    if gradient.node is not None or (isinstance(x, Tensor) and not level):
        return gradient
    return lowered(gradient.value, level)


def grad(f: Callable[..., Any], argnum: int = 0) -> Callable[..., Any]:
    """The gradient of a scalar function with respect to one argument.

    >>> import numpy as np, pullback as pb
    >>> from pullback.transforms import grad
    >>> grad(lambda x: x * grad(lambda y: x + y)(2.0))(1.0)
    array(1.)
    """

    def gradient(*args: Any) -> Any:
        values = [as_value(a) for a in args]

        def of_one(x: Any) -> Any:
            return f(*values[:argnum], x, *values[argnum + 1 :])

        out, pull = vjp(of_one, _as_float_array(values[argnum]))
        spec = spec_of(out)
        if spec.size != 1:
            raise ArgumentError(f"grad: the function returned {spec}, wanted a scalar.")
        return pull(pointwise.add(zeros(spec), 1.0))[0]

    return gradient


def _as_float_array(x: Any) -> Any:
    return pointwise.positive(x) if type(x) in (float, complex) else x
