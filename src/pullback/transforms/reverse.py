"""Function in, its pullback out: reverse mode over the tape, which nests because each call has leaves of its own."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from ..arrays.checks import wants_argnums, wants_functions
from ..arrays.node import Node, running_calls, sign_back, user_line
from ..arrays.protect import settled
from ..arrays.remade import Bound, remade
from ..arrays.scope import Scope, running
from ..arrays.spec import ones, spec_of, zeros
from ..arrays.tensor import Tensor, another, wrap
from ..arrays.trees import LEAF, flatten, is_bare, listed, unflatten
from ..arrays.value import Value
from ..errors import ArgumentError, DtypeError, LeakError
from ..ops import elementwise as pointwise
from ..settings import enable_grad, modes
from ..tape.backward import gradients, gradients_of_call
from .batching import Batched
from .border import as_float, fresh, has_leaves, scalars_become_arrays, with_aux

__all__ = ["elementwise_grad", "grad", "value_and_grad", "vjp"]


class Pullback:
    """What f did with its variables, ready to pull cotangents of its results back to them."""

    __slots__ = ("_given", "_inputs", "_mine", "_outside", "_scope", "_tracked", "_xs", "outs", "recording")

    def __init__(self, f: Callable[..., Any], xs: list[Any], scope: Scope | None) -> None:
        self._xs = xs
        self._scope = scope = _highest(xs, scope)
        self.recording = modes().grad
        with enable_grad():
            self._given = [_variable(x, scope) for x in xs]  # held, since a leaf counts while its tensor lives
            self._inputs = [another(x) for x in self._given]  # f may point its own at new values
            running_calls.add(id(self))
            try:
                self.outs: list[Any] = f(*self._given)
            finally:
                running_calls.discard(id(self))
                for x in self._inputs:
                    _mark(x.node, "over")
        for out in self.outs:  # a function of ours may have been given as it is
            sign_back(getattr(out, "node", None), user_line(sys._getframe(2)))
        level = max((x.level for x in self._inputs), default=0)
        self._tracked = [_is_tracked(out, level) for out in self.outs]
        self._mine = {x.node for x in self._inputs}
        self._outside: bool | None = None

    @property
    def outside(self) -> bool:
        """Whether somebody else may differentiate the answer again, because f also used leaves of others."""
        if self._outside is None:
            nodes = [out.node for out, tracked in zip(self.outs, self._tracked, strict=True) if tracked]
            self._outside = any(has_leaves(node, self._mine) for node in nodes)
        return self._outside

    def gradient(self, retain: bool) -> list[Any]:
        """The gradients of the one real number that f returned; its graph is of no more use then, unless `retain`."""
        found: Sequence[Tensor | None] = [None] * len(self._xs)
        if self._tracked[0] and self._inputs:
            found, self._outside = gradients_of_call(self.outs[0], self._inputs, retain)
        return [self._handed_back(g, x) for g, x in zip(found, self._xs, strict=True)]

    def variables(self) -> frozenset[Node]:
        """The nodes that cotangents are pulled back to."""
        return frozenset(node for node in self._mine if node is not None)

    def values(self) -> list[Any]:
        """The results, as whoever called sees them: tracked only if the caller's own leaves are in them."""
        return [
            self._seen(out, self.outside) if tracked else out
            for out, tracked in zip(self.outs, self._tracked, strict=True)
        ]

    def beside(self, aux: Any) -> Any:
        """What the function returned beside its value, seen in the same way."""
        if aux is None:
            return None
        leaves, structure = flatten(aux)
        return unflatten(
            structure,
            [self._beside(x) if isinstance(x, Tensor) and x.node is not None else fresh(x) for x in leaves],
        )

    def _beside(self, x: Tensor) -> Any:
        return fresh(self._seen(x, has_leaves(x.node, self._mine)))

    def _seen(self, out: Tensor, outside: bool) -> Any:
        if outside:
            return out if self.recording else pointwise.unrecorded(out).detach()
        lowered = self._settled(out.value)
        return wrap(lowered, spec_of(lowered)) if self._any_tensor() and not isinstance(lowered, Tensor) else lowered

    def _any_tensor(self) -> bool:
        return any(isinstance(x, Tensor) for x in self._xs)

    def _settled(self, value: Any) -> Any:
        """A value at the level of the caller, which records nothing of it under `no_grad`, also in a program."""
        lowered = self._lowered(value)
        return lowered if self.recording or not isinstance(lowered, Value) else pointwise.unrecorded(lowered)

    def _lowered(self, value: Any) -> Any:
        if self._scope is None:
            return value
        if type(value) is Batched and value.level > self._scope.level:  # pulled back inside of a later vmap
            return Batched(self._lowered(value.value), value.axis, value.scope, value.made_by)
        return self._scope.lower(value)

    def pull(self, bars: Sequence[Any], linked: bool | None = None, only: Sequence[int] | None = None) -> list[Any]:
        """The gradients with respect to each variable, or to `only` some, zeros where no path leads; `linked` if they
        are to be differentiated again, which None leaves to whether somebody can.
        """
        chosen = range(len(self._xs)) if only is None else only
        xs, inputs = [self._xs[i] for i in chosen], [self._inputs[i] for i in chosen]
        pairs = [(out, bar) for out, bar, tracked in zip(self.outs, bars, self._tracked, strict=True) if tracked]
        found: Sequence[Tensor | None] = [None] * len(xs)
        if pairs and inputs:
            roots, seeds = [out for out, _ in pairs], [bar for _, bar in pairs]
            level = max(x.level for x in inputs)  # a cotangent of a lower level is a constant of this tape
            tracked = any(isinstance(bar, Tensor) and bar.node is not None and bar.level >= level for bar in seeds)
            linked = (tracked or self.outside) if linked is None else linked
            with enable_grad() if self.recording and not modes().grad else nullcontext():
                found = gradients(roots, inputs, seeds, create_graph=linked, retain_graph=True, allow_unused=True)
        return [self._handed_back(g, x) for g, x in zip(found, xs, strict=True)]

    def _handed_back(self, gradient: Tensor | None, x: Any) -> Any:
        """A tensor for a tensor, an array for an array; a tracked one where it can be differentiated again."""
        if gradient is None:
            value = zeros(spec_of(x))
        elif gradient.node is not None:
            return gradient if self.recording else pointwise.unrecorded(gradient).detach()
        else:
            value = self._settled(gradient.value)
        return wrap(value, spec_of(value)) if isinstance(x, Tensor) and not isinstance(value, Tensor) else value


def _highest(xs: list[Any], scope: Scope | None) -> Scope | None:
    """The scope that variables are lifted to: the running one, or, in a context that does not know it, the one that an
    argument belongs to.
    """
    for x in xs:
        value = x.value if isinstance(x, Tensor) else x
        found = getattr(value, "scope", None) if isinstance(value, Value) else None
        if found is not None and (scope is None or found.level > scope.level):
            scope = found
    return scope


def _is_tracked(out: Any, level: int) -> bool:
    """Whether a result is on the tape of this call."""
    if not isinstance(out, Value):
        return False
    if out.level > level:
        raise LeakError(
            f"vjp: the function returned {out!r}, a value of a transform that this call does not know of.\n"
            "  It was started in another thread or context; run it inside of the function, or outside of vjp."
        )
    return isinstance(out, Tensor) and out.level == level and out.node is not None


def _variable(x: Any, scope: Scope | None) -> Tensor:
    """A tensor that this call alone differentiates: a leaf over a value, a new node over a tensor that has one."""
    if scope is not None and (not isinstance(x, Value) or x.level < scope.level):
        lifted = scope.lift(scope, x if isinstance(x, Value) else settled(x))
        return _leaf(lifted, lifted.spec)
    if isinstance(x, Tensor) and x.node is not None:
        linked: Tensor = pointwise.positive(x)
        _mark(linked.node, "running")
        return linked
    if isinstance(x, Tensor):
        return _leaf(x.value, x.spec)
    value = x.alias() if isinstance(x, Value) else settled(x)  # the caller may write to it before pulling back
    return _leaf(value, spec_of(value))


def _leaf(value: Any, spec: Any) -> Tensor:
    variable = wrap(value, spec).requires_grad_()
    _mark(variable.node, "running")
    return variable


def _mark(node: Node | None, state: str) -> None:
    """Note on the node of a variable whether its call is running or over."""
    if node is not None:
        call = node.leave_fast_path()
        call.static = {**call.static, "of_call": state}  # the dict itself may belong to an equation


def vjp(f: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """The value of f and the function that pulls a cotangent of it back to the primals: (value, pull), or
    (value, pull, aux) with `has_aux`. Primals and results are trees; `pull` answers a tuple, one tree for each primal.

    One pass back, whatever the number of inputs: the mode for many inputs and few outputs.

    >>> import numpy as np, pullback as pb
    >>> value, pull = pb.vjp(lambda x: x * x, np.array([1.0, 3.0]))
    >>> pull(np.array([1.0, 10.0]))
    (array([ 2., 60.]),)
    """
    wants_functions("vjp", f)
    leaves, structure = flatten(primals)
    xs = [as_float(x, "vjp", structure, i) for i, x in enumerate(leaves)]
    found: dict[str, Any] = {"aux": None}

    def flat(*inputs: Tensor) -> list[Any]:
        out = f(*unflatten(structure, inputs))
        if has_aux:
            out, found["aux"] = with_aux(out, "vjp")
        outs, found["structure"] = flatten(out)
        return [scalars_become_arrays(x, "vjp") for x in outs]

    pullback = Pullback(flat, xs, running())
    shape = found["structure"]

    def pull(bar: Any) -> tuple[Any, ...]:
        bars = listed(shape, bar, "vjp: the cotangent")
        answer: tuple[Any, ...] = unflatten(structure, pullback.pull(bars))
        return answer

    value = unflatten(shape, [fresh(x) for x in pullback.values()])
    return (value, Bound(pull), pullback.beside(found["aux"])) if has_aux else (value, Bound(pull))


@remade
def grad(f: Callable[..., Any], argnums: Any = 0, *, has_aux: bool = False) -> Callable[..., Any]:
    """The gradient of a scalar function, with respect to one argument or several (`argnums` an integer or a tuple),
    each a tree of arrays. With `has_aux`, f returns (value, aux) and the gradient comes as (gradient, aux).

    >>> import numpy as np, pullback as pb
    >>> pb.grad(lambda p: pb.sum(p["w"] ** 2 * 3.0) + p["b"])({"w": np.array([1.0, 2.0]), "b": 1.0})
    {'w': array([ 6., 12.]), 'b': array(1.)}
    >>> pb.grad(lambda x: x * pb.grad(lambda y: x + y)(2.0))(1.0)
    array(1.)
    """
    wants_functions("grad", f)
    wants_argnums("grad", argnums)

    @functools.wraps(f)
    def gradient(*args: Any, **kwargs: Any) -> Any:
        _, aux, found = _differentiated(f, argnums, args, kwargs, has_aux, "grad", False)
        return (found, aux) if has_aux else found

    return gradient


@remade
def value_and_grad(f: Callable[..., Any], argnums: Any = 0, *, has_aux: bool = False) -> Callable[..., Any]:
    """Like `grad`, with the value beside the gradient: (value, gradient), or ((value, aux), gradient).

    >>> import numpy as np, pullback as pb
    >>> pb.value_and_grad(lambda x: pb.sum(x * x))(np.array([1.0, 2.0]))
    (array(5.), array([2., 4.]))
    """
    wants_functions("value_and_grad", f)
    wants_argnums("value_and_grad", argnums)

    @functools.wraps(f)
    def both(*args: Any, **kwargs: Any) -> Any:
        value, aux, found = _differentiated(f, argnums, args, kwargs, has_aux, "value_and_grad", True)
        return ((value, aux), found) if has_aux else (value, found)

    return both


def _differentiated(
    f: Callable[..., Any],
    argnums: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    has_aux: bool,
    what: str,
    want_value: bool,
) -> tuple[Any, Any, Any]:
    """(value, aux, gradient) of a scalar function at its arguments."""
    chosen = positions(argnums, len(args), what)
    picked = tuple(args[i] for i in chosen)
    leaves, structure = ([picked[0]], LEAF) if len(chosen) == 1 and is_bare(picked[0]) else flatten(picked)
    xs = [as_float(x, what, structure, i) for i, x in enumerate(leaves)]
    aux: Any = None

    def scalar(*inputs: Tensor) -> list[Any]:
        nonlocal aux
        filled = list(args)
        for i, value in zip(chosen, inputs if structure is LEAF else unflatten(structure, inputs), strict=True):
            filled[i] = value
        out = f(*filled, **kwargs)
        if has_aux:
            out, aux = with_aux(out, what)
        return [_checked_scalar(out, what)]

    pullback = Pullback(scalar, xs, running())
    found = pullback.gradient(retain=has_aux)
    answer = found[0] if structure is LEAF else unflatten(structure, found)
    answer = answer[0] if structure is not LEAF and not isinstance(argnums, (tuple, list)) else answer
    answer = (answer,) if structure is LEAF and isinstance(argnums, (tuple, list)) else answer
    return (pullback.values()[0] if want_value else None), pullback.beside(aux), answer


def _checked_scalar(out: Any, what: str) -> Any:
    """The one real number that a gradient is of."""
    leaves, structure = flatten(out)
    if structure is not LEAF:
        shown = f"a {type(out).__name__} of {len(leaves)}"
        raise ArgumentError(
            f"{what}: the function returned {shown}, wanted a scalar.\n  For (value, aux) say has_aux=True."
        )
    value = scalars_become_arrays(out, what)
    spec = spec_of(value)
    if spec.size != 1:
        raise ArgumentError(
            f"{what}: the function returned {spec}, wanted a scalar.\n"
            "  Reduce it (pb.sum), or use pb.jacobian, pb.vjp or pb.elementwise_grad."
        )
    if not spec.inexact or spec.dtype.kind == "c":
        raise DtypeError(f"{what}: the function returned {spec}, wanted a real floating-point number.")
    return value


def positions(argnums: Any, count: int, what: str) -> tuple[int, ...]:
    """The arguments that `argnums` names, counted from the front."""
    named = argnums if isinstance(argnums, (tuple, list)) else (argnums,)
    for i in named:
        if not isinstance(i, (int, np.integer)) or isinstance(i, bool):
            raise ArgumentError(f"{what}: argnums must be integers, got {i!r}.")
        if not -count <= i < count:
            raise ArgumentError(
                f"{what}: argnums names argument {i}, the call has {count} positional ones.\n"
                "  Arguments to differentiate are passed by position."
            )
    chosen = tuple(int(i) % count for i in named)
    if len(set(chosen)) < len(chosen):
        raise ArgumentError(f"{what}: argnums {argnums} names an argument twice.")
    return chosen


@remade
def elementwise_grad(f: Callable[..., Any], argnums: int = 0) -> Callable[..., Any]:
    """The derivative of a function that maps each element alone: element by element, in the shape of the argument.

    >>> import numpy as np, pullback as pb
    >>> pb.elementwise_grad(pb.square)(np.array([1.0, 2.0, 3.0]))
    array([2., 4., 6.])
    """
    wants_functions("elementwise_grad", f)
    wants_argnums("elementwise_grad", argnums)

    @functools.wraps(f)
    def derivative(*args: Any, **kwargs: Any) -> Any:
        if isinstance(argnums, (tuple, list)):
            raise ArgumentError(f"elementwise_grad: argnums is one integer, got {argnums}.")
        (position,) = positions(argnums, len(args), "elementwise_grad")
        value, pull = vjp(lambda x: f(*args[:position], x, *args[position + 1 :], **kwargs), args[position])
        leaves, structure = flatten(value)
        (answer,) = pull(unflatten(structure, [ones(spec_of(x)) for x in leaves]))
        return answer

    return derivative
