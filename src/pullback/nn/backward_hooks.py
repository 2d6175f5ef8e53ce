"""Hooks on the backward pass of modules: what goes into a module and what comes out pass through an identity, whose
pulls call the hooks, so that every order and transform meets them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..arrays.backends import copy_array, is_array
from ..arrays.protect import as_immutable
from ..arrays.spec import Spec, spec_of
from ..arrays.tensor import Tensor, alias, wrap
from ..arrays.trees import flatten, unflatten
from ..arrays.value import Value
from ..errors import GraphError, HookError
from ..ops.dispatch import apply
from ..ops.forms import Expand
from ..ops.op import Formula, Op
from ..ops.statics import Static
from ..program.ir import Symbol
from ..settings import modes


class BackwardCall:
    """One call of a module with hooks: the hooks as they were then, and the cotangents of the results, which the pull
    of the results leaves for that of the arguments.
    """

    __slots__ = ("_after", "_before", "_grad_output", "_module", "_places")

    def __init__(self, module: Any, entries: Sequence[tuple[str, Callable[..., Any]]]) -> None:
        self._module = module
        self._before = [hook for kind, hook in entries if kind == "backward_pre"]
        self._after = [hook for kind, hook in entries if kind == "backward"]
        self._places: dict[str, list[int | None]] = {}
        self._grad_output: tuple[Any, ...] = ()

    def mark(self, side: str, tree: Any) -> Any:
        """The tree with what is tracked in it led through the identity."""
        leaves, structure = flatten(tree)
        chosen = [i for i, x in enumerate(leaves) if isinstance(x, Value) and x.is_tracked and x.spec.inexact]
        arrays = [i for i, x in enumerate(leaves) if isinstance(x, Value) or is_array(x)]
        self._places[side] = [chosen.index(i) if i in chosen else None for i in arrays]
        if not chosen:
            return tree
        made = apply(_boundary, *(leaves[i] for i in chosen), call=self, side=side)
        for i, x in zip(chosen, made, strict=True):
            leaves[i] = x
        return unflatten(structure, leaves)

    def pull(self, bar: tuple[Any, ...], side: str) -> tuple[Any, ...]:
        """The cotangents, after the hooks of this side of the module have seen them."""
        bars = [None if isinstance(b, Spec) else b for b in bar]
        specs = [b if isinstance(b, Spec) else spec_of(b) for b in bar]
        if side == "results":
            for hook in self._before:
                bars = self._call(hook, bars, specs, side)
            self._grad_output = self._list_gradients(bars, side)
            if self._places["arguments"].count(None) == len(self._places["arguments"]):
                for hook in self._after:  # no argument has a cotangent, so this is all there is
                    self._refuse_any(hook(self._module, self._list_gradients([], "arguments"), self._grad_output))
        else:
            for hook in self._after:
                bars = self._call(hook, bars, specs, side)
            self._grad_output = ()  # a graph that is retained should not hold gradients
        return tuple(bars)

    def _list_gradients(self, bars: Sequence[Any], side: str) -> tuple[Any, ...]:
        """One entry for each array of that side, as a tensor that the user may keep; None without a cotangent."""
        return tuple(None if i is None or bars[i] is None else _as_tensor(bars[i]) for i in self._places[side])

    def _call(self, hook: Callable[..., Any], bars: list[Any], specs: list[Spec], side: str) -> list[Any]:
        shown = self._list_gradients(bars, side)
        found = hook(self._module, shown) if side == "results" else hook(self._module, shown, self._grad_output)
        if found is None:
            return bars
        given = found if isinstance(found, tuple | list) else (found,)
        places = self._places[side]
        if len(given) != len(places):
            raise HookError(
                f"backward hook of {type(self._module).__name__}: returned {len(given)} gradients, wanted one for each "
                f"of the {len(places)} arrays among the {side}, None where there is none."
            )
        is_linked = any(isinstance(b, Value) for b in bars)
        new = list(bars)
        for x, place in zip(given, places, strict=True):
            if place is not None:
                new[place] = None if x is None else self._check_gradient(x, specs[place], is_linked)
        return new

    def _check_gradient(self, given: Any, wanted: Spec, is_linked: bool) -> Any:
        if not (isinstance(given, Value) or is_array(given)):
            raise HookError(
                f"backward hook of {type(self._module).__name__}: returned a {type(given).__name__}, wanted tensors."
            )
        found = spec_of(given)
        if (found.shape, found.dtype) != (wanted.shape, wanted.dtype):
            raise HookError(f"backward hook of {type(self._module).__name__}: returned {found}, wanted {wanted}.")
        value = given.value if isinstance(given, Tensor) and not is_linked else given
        return value if isinstance(value, Value) else copy_array(value, "C")  # the engine may add to it

    def _refuse_any(self, found: Any) -> None:
        if found is not None and any(x is not None for x in (found if isinstance(found, tuple | list) else (found,))):
            raise HookError(
                f"backward hook of {type(self._module).__name__}: returned gradients of arguments that have none."
            )


def _as_tensor(bar: Any) -> Any:
    if isinstance(bar, Tensor):
        return alias(bar)
    return wrap(bar if isinstance(bar, Value) else copy_array(bar, "C"), spec_of(bar))


def call_with_backward_hooks(
    module: Any, entries: Sequence[tuple[str, Callable[..., Any]]], args: tuple[Any, ...], run: Callable[..., Any]
) -> Any:
    """`run(*args)`, the forward pass of a module, between the two identities."""
    call = BackwardCall(module, entries)
    out = run(*call.mark("arguments", args))
    leaves = flatten(out)[0]
    if modes().grad and not any(isinstance(x, Value) and x.is_tracked for x in leaves) and any(map(_is_symbol, leaves)):
        raise GraphError(
            f"{type(module).__name__} has backward hooks, and is traced without its backward pass, so that they would "
            "never run.\n  Compile the gradient with it, as in pb.jit(pb.grad(loss)), where they are traced; or remove "
            "the hooks; or, where no gradient is wanted, call the module in a `with pb.no_grad():` of the function."
        )
    return call.mark("results", out)


def _is_symbol(x: Any) -> bool:
    """Whether this is a value of a program that is traced, below the values of transforms."""
    return type(x) is Symbol or (isinstance(x, Value) and any(map(_is_symbol, x.parts())))


def _pull(bar: Any, static: dict[str, Any]) -> tuple[Any, ...]:
    pulled: tuple[Any, ...] = static["call"].pull(bar, static["side"])
    return pulled


def _push(tangents: Sequence[Any], out: Any, xs: Sequence[Any], static: dict[str, Any]) -> Any:
    return tuple(tangents)


def _batch(op: Op, size: int, xs: Sequence[Any], axes: Sequence[Any], static: dict[str, Any]) -> Any:
    return apply(op, *xs, **static), tuple(axes)


_boundary = Op(
    name="module_boundary", family="general", args=("*xs",),
    value=lambda xp, *xs, call, side: tuple(as_immutable(x) for x in xs),
    spec=lambda *specs, call, side: specs, pulls={}, push=_push, batch=_batch, samples=lambda rng: [],
    form=Expand(lambda *xs, call, side: xs), joint=Formula(_pull, ("bar", "static")),
    statics={
        "call": Static("a call of a module", lambda v, specs, static: isinstance(v, BackwardCall)),
        "side": Static("a side", lambda v, specs, static: v in ("arguments", "results")),
    },
)  # fmt: skip
