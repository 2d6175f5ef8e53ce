"""autograd's primitives with rules of the user's, as custom ops of pullback."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import pullback as pb
from pullback.arrays.value import Value

from .trees import conjugate
from .vspaces import VSpace, vspace

__all__ = ["Primitive", "VSpace", "defjvp", "defvjp", "defvjp_argnum", "primitive", "primitive_vjps", "vspace"]

primitive_vjps: dict[Any, Any] = {}


class Primitive:
    """A function of bare arrays whose derivatives are the rules given later."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.vjps: dict[int, Any] = {}
        self.jvps: dict[int, Any] = {}
        functools.update_wrapper(self, function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not any(isinstance(x, Value) for x in args):
            return self.function(*args, **kwargs)
        return _kind(self, kwargs).apply(*args)

    def rule(self, table: dict[int, Any], place: int) -> Any:
        """The rule for one argument, or autograd's error."""
        if place not in table:
            raise NotImplementedError(f"no derivative of {self.__name__} with respect to argument {place}")
        return table[place]

    def defgrad(self, maker: Any, argnum: int = 0) -> None:
        """The oldest form of a rule: maker(ans, *args) answers the pull."""
        self.vjps[argnum] = maker

    def defvjp(self, rule: Any, argnum: int = 0) -> None:
        """An old form of a rule: rule(g, ans, vs, gvs, *args)."""
        self.vjps[argnum] = lambda ans, *args, **kwargs: lambda g: rule(g, ans, None, None, *args, **kwargs)

    def defvjp_is_zero(self, argnums: Sequence[int] = (0,)) -> None:
        """Arguments whose cotangent is zero."""
        for argnum in argnums:
            self.vjps[argnum] = lambda ans, *args, argnum=argnum, **kwargs: lambda g: np.zeros_like(args[argnum])


def _kind(op: Primitive, kwargs: dict[str, Any]) -> type[pb.Function]:
    """A class of custom op for one call's keywords; the rules read the arguments as they were given."""

    class Called(pb.Function):
        @staticmethod
        def forward(ctx: Any, *args: Any) -> Any:
            ctx.arrays = [isinstance(x, Value) for x in args]
            ctx.others = args
            out = op.function(*(x.numpy() if isinstance(x, Value) else x for x in args), **kwargs)
            ctx.save_for_backward(*(x for x in args if isinstance(x, Value)))
            return np.asarray(out)

        @staticmethod
        def backward(ctx: Any, bar: Any) -> Any:
            args = _arguments(ctx)
            ans = Called.apply(*args)
            wanted = [is_array and need for is_array, need in zip(ctx.arrays, ctx.needs_input_grad, strict=True)]
            return tuple(
                conjugate(op.rule(op.vjps, i)(ans, *args, **kwargs)(conjugate(bar))) if wanted[i] else None
                for i in range(len(args))
            )

    if op.jvps:
        Called.jvp = staticmethod(functools.partial(_push, op, kwargs, Called))  # type: ignore[attr-defined]
    Called.__name__ = op.__name__
    return Called


def _push(op: Primitive, kwargs: dict[str, Any], called: Any, ctx: Any, *tangents: Any) -> Any:
    args = _arguments(ctx)
    ans = called.apply(*args)
    terms = [op.rule(op.jvps, i)(t, ans, *args, **kwargs) for i, t in enumerate(tangents) if t is not None]
    return functools.reduce(lambda a, b: a + b, terms)


def _arguments(ctx: Any) -> list[Any]:
    saved = iter(ctx.saved_tensors)
    return [next(saved) if is_array else x for is_array, x in zip(ctx.arrays, ctx.others, strict=True)]


def primitive(function: Callable[..., Any]) -> Primitive:
    """A function as a primitive; a decorator."""
    return Primitive(function)


def defvjp(op: Primitive, *makers: Any, argnums: Sequence[int] | None = None) -> None:
    """Pulls for the arguments in order, or for those named; None is zero."""
    for place, maker in zip(argnums or range(len(makers)), makers, strict=False):
        if maker is None:
            op.defvjp_is_zero((place,))
        else:
            op.vjps[place] = maker


def defvjp_argnum(op: Primitive, maker: Any) -> None:
    """One rule for every argument: maker(argnum, ans, args, kwargs)."""
    for place in range(32):
        op.vjps[place] = lambda ans, *args, place=place, **kwargs: maker(place, ans, args, kwargs)


def defjvp(op: Primitive, *rules: Any, argnums: Sequence[int] | None = None) -> None:
    """Pushes for the arguments in order, or for those named."""
    for place, rule in zip(argnums or range(len(rules)), rules, strict=False):
        op.jvps[place] = rule
