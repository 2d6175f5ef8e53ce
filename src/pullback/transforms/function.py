"""A class with `forward`, `backward` and `jvp` in, an op out: custom rules for people who come from PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..arrays.backends import is_array
from ..arrays.spec import Spec, spec_of
from ..arrays.tensor import Tensor, wrap
from ..arrays.value import Value
from ..errors import ArgumentError, GraphError
from ..ops.dispatch import apply
from ..ops.elementwise import stop_gradient
from ..ops.op import Op, Terms
from .custom import custom_record

__all__ = ["Function", "FunctionContext"]


class FunctionContext:
    """What `forward` leaves for `backward` and `jvp`: tensors by `save_for_backward`, anything else as an attribute.

    A saved input or result carries its history, so that derivatives of every order are right. Any other saved value is
    an intermediate whose own derivative nobody knows: a second derivative that needs it raises, unless it was saved
    with `save_constant`, which says that it does not depend on the inputs.
    """

    def __init__(self) -> None:
        self._saved: list[tuple[Any, bool]] = []
        self.saved_tensors: tuple[Any, ...] = ()

    def save_for_backward(self, *tensors: Any) -> None:
        """Keep inputs, results or intermediates for the rules."""
        self._saved += [(t, False) for t in tensors]

    def save_constant(self, *tensors: Any) -> None:
        """Keep values that do not depend on the inputs, such as a random mask."""
        self._saved += [(t, True) for t in tensors]


class Function:
    """The abstract parent of a custom op in class form: static methods `forward(ctx, *args)` and one or both of
    `backward(ctx, *bars)` and `jvp(ctx, *tangents)`; the missing one is derived. Call it by `apply`.

    >>> import numpy as np, pullback as pb
    >>> class Exp(pb.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         y = pb.exp(x)
    ...         ctx.save_for_backward(y)
    ...         return y
    ...     @staticmethod
    ...     def backward(ctx, bar):
    ...         (y,) = ctx.saved_tensors
    ...         return bar * y
    >>> pb.grad(pb.grad(Exp.apply))(0.0), pb.jvp(Exp.apply, (0.0,), (2.0,))
    (array(1.), (array(1.), array(2.)))
    """

    @staticmethod
    def forward(ctx: FunctionContext, *args: Any) -> Any:
        """The value; arrays come as tensors without history, anything else as it was given."""
        raise NotImplementedError

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """Run the function as an op."""
        call = _Call(cls, args)
        out = apply(call.record(), *call.arrays)
        outs = out if type(out) is tuple else (out,)
        results = outs[: call.results]
        return results if call.several else results[0]


class _Call:
    """One call: which arguments are arrays, and after `forward` has run, where each saved value is to be found."""

    def __init__(self, kind: type[Function], args: tuple[Any, ...]) -> None:
        self.kind = kind
        self.name = kind.__name__
        self.given = args
        self.places = [i for i, x in enumerate(args) if isinstance(x, Value) or is_array(x) or type(x) is float]
        if not self.places:
            raise ArgumentError(f"{self.name}.apply: no argument is an array or a float.")
        self.arrays = [args[i] for i in self.places]
        self.attributes: dict[str, Any] = {}
        self.saved: list[tuple[str, int]] = []
        self.results = 1
        self.several = False

    def record(self) -> Op:
        """The record of this call; derivatives of a class come from its methods."""
        backward, jvp = _method(self.kind, "backward"), _method(self.kind, "jvp")
        return custom_record(
            self.name, ("*xs",), lambda xp, *xs: self._forward(xs),
            None if backward is None else Terms(self._backward, ("bar", "out", "xs")),
            None if jvp is None else Terms(self._jvp, ("tangents", "out", "xs")),
            None, None,
        )  # fmt: skip

    def _forward(self, xs: tuple[Any, ...]) -> Any:
        ctx = FunctionContext()
        tensors = [wrap(x, spec_of(x)) for x in map(_as_array, xs)]
        found = self.kind.forward(ctx, *self._filled(tensors))
        outs = tuple(found) if isinstance(found, (tuple, list)) else (found,)
        self.several, self.results = isinstance(found, (tuple, list)), len(outs)
        self.attributes = {k: v for k, v in vars(ctx).items() if k not in ("_saved", "saved_tensors")}
        extras: list[Any] = []
        self.saved = [self._place(t, constant, tensors, outs, extras) for t, constant in ctx._saved]
        bare = tuple(_bare_result(x, self.name) for x in (*outs, *extras))
        return bare if len(bare) > 1 else bare[0]

    def _place(self, x: Any, constant: bool, inputs: list[Any], outs: tuple[Any, ...], extras: list[Any]) -> Any:
        """Inputs and results are where they are; other values travel as further results of the op."""
        for where, values in (("input", inputs), ("result", outs)):
            for i, value in enumerate(values):
                if x is value:
                    return where, i
        extras.append(x)
        return "constant" if constant else "intermediate", self.results + len(extras) - 1

    def _filled(self, arrays: Any) -> list[Any]:
        args = list(self.given)
        for i, x in zip(self.places, arrays, strict=True):
            args[i] = x
        return args

    def _context(self, out: Any, xs: Any) -> FunctionContext:
        """The context as a rule sees it: saved values in terms of what the rule was given, history and all."""
        outs = out if type(out) is tuple else (out,)
        ctx = FunctionContext()
        vars(ctx).update(self.attributes)
        found = {"input": xs, "result": outs, "intermediate": outs, "constant": [stop_gradient(x) for x in outs]}
        ctx.saved_tensors = tuple(_as_tensor(found[where][i]) for where, i in self.saved)
        return ctx

    def _backward(self, bar: Any, out: Any, xs: Any) -> Any:
        bars = bar if type(bar) is tuple else (bar,)
        for i, spare in enumerate(bars[self.results :]):
            if not _is_absent(spare):
                raise GraphError(
                    f"{self.name}: this derivative needs that of a value which forward saved but did not return "
                    f"(number {i} of them), and nobody knows it.\n  Save inputs and results and compute it again in "
                    "backward, or ctx.save_constant it if it does not depend on the inputs."
                )
        found = self.kind.backward(self._context(out, xs), *map(_as_tensor, bars[: self.results]))  # type: ignore[attr-defined]
        shares = found if isinstance(found, (tuple, list)) else (found,)
        if len(shares) != len(self.given):
            raise ArgumentError(
                f"{self.name}: backward returned {len(shares)} cotangents for {len(self.given)} arguments."
            )
        return [_unwrapped(shares[i]) for i in self.places]

    def _jvp(self, tangents: Any, out: Any, xs: Any) -> Any:
        along = self._filled(tangents)
        along = [_as_tensor(t) if i in self.places else None for i, t in enumerate(along)]
        found = self.kind.jvp(self._context(out, xs), *along)  # type: ignore[attr-defined]
        outs = list(found) if isinstance(found, (tuple, list)) else [found]
        spare = [None] * ((len(out) if type(out) is tuple else 1) - len(outs))
        pushed = (*map(_unwrapped, outs), *spare)
        return pushed if type(out) is tuple else pushed[0]


def _method(kind: type, name: str) -> Callable[..., Any] | None:
    found: Callable[..., Any] | None = getattr(kind, name, None)
    return found


def _as_array(x: Any) -> Any:
    return x if is_array(x) else stop_gradient(x)


def _bare_result(x: Any, name: str) -> Any:
    if isinstance(x, Tensor):
        if x.node is not None:
            raise GraphError(
                f"{name}: forward used a tensor that carries derivatives but is no argument.\n  Pass it to apply."
            )
        return x.value
    return x


def _as_tensor(x: Any) -> Any:
    """Arrays as tensors, so that their methods are there; anything else as it is."""
    return wrap(x, spec_of(x)) if is_array(x) else x


def _unwrapped(x: Any) -> Any:
    return x.value if isinstance(x, Tensor) and x.node is None else x


def _is_absent(bar: Any) -> bool:
    return bar is None or isinstance(bar, Spec)
