"""Reverse mode: `vjp`, `grad` and their like, over the tape, which nests because each call has its own leaves."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar, overload

from ..arrays.argument_checks import check_argnums, check_functions, explains_arguments
from ..arrays.call_site import is_package_code, propagate_call_site, user_line
from ..arrays.node import DifferentiatedCall, Node
from ..arrays.picklable import Bound, picklable
from ..arrays.protect import as_immutable
from ..arrays.scope import Scope, current_scope
from ..arrays.spec import ones, spec_of, zeros
from ..arrays.tensor import Tensor, alias, wrap
from ..arrays.trees import LEAF, flatten, leaves_matching, unflatten
from ..arrays.value import Value
from ..errors import ArgumentError, DtypeError, LeakError
from ..ops.elementwise import pointwise
from ..settings import enable_grad, modes
from ..tape.backward import gradients, gradients_of_call
from .boundary import as_array_leaf, has_leaves, owned_copy
from .flat_call import FlatCall, by_argument
from .holomorphic import as_complex_results, check_complex, check_holomorphic
from .vectorize import Batched

P = ParamSpec("P")
R = TypeVar("R")
X = TypeVar("X", bound=Any)  # to pyright the parameter of a lambda is an X, which must have arithmetic
Aux = TypeVar("Aux")
_GRADIENTS = "\n  For tensors that are computed already: pb.gradients(outputs, inputs)."


@overload
def grad(
    f: Callable[Concatenate[X, P], Any], argnums: Literal[0] = 0, *, has_aux: Literal[False] = False
) -> Callable[Concatenate[X, P], X]: ...
@overload
def grad(
    f: Callable[Concatenate[X, P], tuple[Any, Aux]], argnums: Literal[0] = 0, *, has_aux: Literal[True]
) -> Callable[Concatenate[X, P], tuple[X, Aux]]: ...
@overload
def grad(f: Callable[P, Any], argnums: int | Sequence[int], *, has_aux: bool = False) -> Callable[P, Any]: ...
@overload
def grad(f: Callable[..., Any], argnums: Any = 0, *, has_aux: bool = False, holomorphic: bool = False) -> Any: ...
@picklable
@explains_arguments("grad")
def grad(
    f: Callable[..., Any], argnums: Any = 0, *, has_aux: bool = False, holomorphic: bool = False
) -> Callable[..., Any]:
    """The gradient of a scalar function, with respect to one argument or several (`argnums` an integer or a tuple),
    each a tree of arrays. With `has_aux`, f returns (value, aux) and the gradient comes as (gradient, aux).

    `holomorphic=True` is for complex functions of complex numbers, and gives their complex derivative; a function that
    is not holomorphic at the argument raises.

    >>> import numpy as np, pullback as pb
    >>> pb.grad(lambda p: pb.sum(p["w"] ** 2 * 3.0) + p["b"])({"w": np.array([1.0, 2.0]), "b": 1.0})
    {'w': array([ 6., 12.]), 'b': array(1.)}
    >>> pb.grad(lambda x: x * pb.grad(lambda y: x + y)(2.0))(1.0)
    array(1.)
    """
    check_functions("grad", f, hint=_GRADIENTS)
    check_argnums("grad", argnums)
    differentiate = _differentiate_holomorphic if holomorphic else _differentiate

    @functools.wraps(f)
    def gradient(*args: Any, **kwargs: Any) -> Any:
        _, aux, found = differentiate(f, argnums, args, kwargs, has_aux, "grad", False)
        return (found, aux) if has_aux else found

    return gradient


@overload
def value_and_grad(  # type: ignore[overload-overlap]
    f: Callable[Concatenate[X, P], R], argnums: Literal[0] = 0, *, has_aux: Literal[False] = False
) -> Callable[Concatenate[X, P], tuple[R, X]]: ...
@overload
def value_and_grad(  # type: ignore[overload-overlap]
    f: Callable[Concatenate[X, P], tuple[R, Aux]], argnums: Literal[0] = 0, *, has_aux: Literal[True]
) -> Callable[Concatenate[X, P], tuple[tuple[R, Aux], X]]: ...
@overload
def value_and_grad(
    f: Callable[P, R], argnums: int | Sequence[int], *, has_aux: bool = False
) -> Callable[P, tuple[R, Any]]: ...
@overload
def value_and_grad(
    f: Callable[..., Any], argnums: Any = 0, *, has_aux: bool = False, holomorphic: bool = False
) -> Any: ...
@picklable
@explains_arguments("value_and_grad")
def value_and_grad(
    f: Callable[..., Any], argnums: Any = 0, *, has_aux: bool = False, holomorphic: bool = False
) -> Callable[..., Any]:
    """Like `grad`, with the value beside the gradient: (value, gradient), or ((value, aux), gradient).

    >>> import numpy as np, pullback as pb
    >>> pb.value_and_grad(lambda x: pb.sum(x * x))(np.array([1.0, 2.0]))
    (array(5.), array([2., 4.]))
    """
    check_functions("value_and_grad", f, hint=_GRADIENTS)
    check_argnums("value_and_grad", argnums)
    differentiate = _differentiate_holomorphic if holomorphic else _differentiate

    @functools.wraps(f)
    def both(*args: Any, **kwargs: Any) -> Any:
        value, aux, found = differentiate(f, argnums, args, kwargs, has_aux, "value_and_grad", True)
        return ((value, aux), found) if has_aux else (value, found)

    return both


@picklable
def elementwise_grad(f: Callable[P, R], argnums: int = 0) -> Callable[P, R]:
    """The derivative of a function that maps each element alone: element by element, in the shape of the argument.

    >>> import numpy as np, pullback as pb
    >>> pb.elementwise_grad(pb.square)(np.array([1.0, 2.0, 3.0]))
    array([2., 4., 6.])
    """
    check_functions("elementwise_grad", f)
    check_argnums("elementwise_grad", argnums)

    @functools.wraps(f)
    def derivative(*args: P.args, **kwargs: P.kwargs) -> Any:
        if isinstance(argnums, (tuple, list)):
            raise ArgumentError(f"elementwise_grad: argnums is one integer, got {argnums}.")
        call = FlatCall("elementwise_grad", f, args, argnums, kwargs)
        pullback = Pullback(call, call.xs, current_scope())
        return call.like_arguments(pullback.pull([ones(spec_of(x)) for x in pullback.outs]))

    return derivative


@overload
def vjp(
    f: Callable[..., R], *primals: Any, has_aux: Literal[False] = False
) -> tuple[R, Callable[[Any], tuple[Any, ...]]]: ...
@overload
def vjp(
    f: Callable[..., tuple[R, Aux]], *primals: Any, has_aux: Literal[True]
) -> tuple[R, Callable[[Any], tuple[Any, ...]], Aux]: ...
@explains_arguments("vjp")
def vjp(f: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """The value of f and the function that pulls a cotangent of it back to the primals: (value, pull), or
    (value, pull, aux) with `has_aux`. Primals and results are trees; `pull` returns a tuple, one tree for each primal.

    One backward pass, whatever the number of inputs: the mode for many inputs and few outputs.

    >>> import numpy as np, pullback as pb
    >>> value, pull = pb.vjp(lambda x: x * x, np.array([1.0, 3.0]))
    >>> pull(np.array([1.0, 10.0]))
    (array([ 2., 60.]),)
    """
    check_functions("vjp", f)
    call = FlatCall("vjp", f, primals, has_aux=has_aux)
    pullback = Pullback(call, call.xs, current_scope())
    arguments, results = call.structure, call.results  # not the call itself, which holds f and its aux

    def pull(bar: Any) -> tuple[Any, ...]:
        return by_argument(arguments, pullback.pull(leaves_matching(results, bar, "vjp: the cotangent")))

    value = unflatten(results, [owned_copy(x) for x in pullback.values()])
    return (value, Bound(pull), pullback.lower_aux(call.aux)) if has_aux else (value, Bound(pull))


def _differentiate(
    f: Callable[..., Any],
    argnums: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    has_aux: bool,
    what: str,
    want_value: bool,
) -> tuple[Any, Any, Any]:
    """(value, aux, gradient) of a scalar function at its arguments."""
    call = FlatCall(what, f, args, argnums, kwargs, has_aux)
    pullback = Pullback(lambda *inputs: [_check_scalar(call.run(*inputs), what)], call.xs, current_scope())
    gradient = call.like_arguments(pullback.gradient(retain=has_aux))
    return (pullback.values()[0] if want_value else None), pullback.lower_aux(call.aux), gradient


def _differentiate_holomorphic(
    f: Callable[..., Any],
    argnums: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    has_aux: bool,
    what: str,
    want_value: bool,
) -> tuple[Any, Any, Any]:
    """The same of a holomorphic function: what pulls 1 back is the conjugate of its derivative."""
    call = check_complex(FlatCall(what, f, args, argnums, kwargs, has_aux))

    def numbers(*inputs: Any) -> list[Any]:
        return as_complex_results(what, [_one_number(call.run(*inputs), what)])

    pullback = Pullback(numbers, call.xs, current_scope())
    value, aux = pullback.values()[0], pullback.lower_aux(call.aux)
    found = [pointwise.conj(x) for x in pullback.pull([ones(spec_of(pullback.outs[0]))])]
    check_holomorphic(call, numbers)
    return (value if want_value else None), aux, call.like_arguments(found)


def _check_scalar(out: Any, what: str) -> Any:
    """The one real number that a gradient is of."""
    value = _one_number(out, what)
    spec = spec_of(value)
    if not spec.inexact or spec.dtype.kind == "c":
        raise DtypeError(
            f"{what}: the function returned {spec}, wanted a real floating-point number.\n"
            "  Return a real number of it, such as pb.real(out) or pb.abs(out), or convert it: out.astype(pb.float64)."
            "\n  Of a holomorphic function: holomorphic=True."
        )
    return value


def _one_number(out: Any, what: str) -> Any:
    leaves, structure = flatten(out)
    if out is None:
        raise ArgumentError(f"{what}: the function returned None, wanted a scalar.\n  Is a `return` missing?")
    if structure is not LEAF:
        shown = f"a {type(out).__name__} of {len(leaves)}"
        advice = getattr(type(out), "SCALAR_ADVICE", "For (value, aux) pass has_aux=True")
        raise ArgumentError(f"{what}: the function returned {shown}, wanted a scalar.\n  {advice}.")
    value = as_array_leaf(out, what)
    spec = spec_of(value)
    if spec.size != 1:
        raise ArgumentError(
            f"{what}: the function returned {spec}, wanted a scalar.\n"
            "  Reduce it (pb.sum), or use pb.jacobian, pb.vjp or pb.elementwise_grad."
        )
    return value


class Pullback:
    """What f did with its variables, ready to pull cotangents of its results back to them."""

    __slots__ = (
        "_call", "_given", "_inputs", "_own_nodes", "_scope", "_tracked", "_uses_foreign", "_xs", "outs", "recording",
    )  # fmt: skip

    def __init__(self, f: Callable[..., Any], xs: list[Any], scope: Scope | None) -> None:
        self._xs = xs
        self._scope = scope = _highest_scope(xs, scope)
        self.recording = modes().grad
        with enable_grad(), DifferentiatedCall() as self._call:
            # held: a leaf points at its tensor weakly, and a tape inside f asks whether that is alive
            self._given = [_make_variable(x, scope, self._call) for x in xs]
            self._inputs = [alias(x) for x in self._given]  # f may rebind its own
            self.outs: list[Any] = f(*self._given)
        for out in self.outs:
            if isinstance(out, Tensor) and out.node is not None and is_package_code(out.node.code):
                propagate_call_site(out.node, user_line(sys._getframe(2)))  # f is one of our own ops
        # whatever else f returned is no function of the variables, of which an empty tree has none
        level = max((x.level for x in self._inputs), default=None)
        self._tracked = [level is not None and _is_tracked(out, level) for out in self.outs]
        self._own_nodes = {x.node for x in self._inputs}
        self._uses_foreign: bool | None = None

    @property
    def uses_foreign_leaves(self) -> bool:
        """Whether another caller may differentiate the result again, because f also used foreign leaves."""
        if self._uses_foreign is None:
            nodes = [out.node for out, tracked in zip(self.outs, self._tracked, strict=True) if tracked]
            self._uses_foreign = any(has_leaves(node, self._own_nodes) for node in nodes)
        return self._uses_foreign

    def variables(self) -> frozenset[Node]:
        """The nodes that cotangents are pulled back to."""
        return frozenset(node for node in self._own_nodes if node is not None)

    def gradient(self, retain: bool) -> list[Any]:
        """The gradients of the one real number that f returned; its graph is freed, unless `retain`."""
        found: Sequence[Tensor | None] = [None] * len(self._xs)  # which stands for zeros
        if self._tracked[0] and self._inputs:
            found, self._uses_foreign = gradients_of_call(self.outs[0], self._inputs, retain)
        self._call.is_over = True
        return [self._return_gradient(g, x) for g, x in zip(found, self._xs, strict=True)]

    def pull(
        self, bars: Sequence[Any], create_graph: bool | None = None, only: Sequence[int] | None = None
    ) -> list[Any]:
        """The gradients with respect to each variable, or to `only` some, zeros where no path leads. With
        `create_graph` they can be differentiated again; None means: if another caller may do so.
        """
        chosen = range(len(self._xs)) if only is None else only
        xs, inputs = [self._xs[i] for i in chosen], [self._inputs[i] for i in chosen]
        pairs = [(out, bar) for out, bar, tracked in zip(self.outs, bars, self._tracked, strict=True) if tracked]
        found: Sequence[Tensor | None] = [None] * len(xs)
        if pairs and inputs:
            roots, seeds = [out for out, _ in pairs], [bar for _, bar in pairs]
            level = max(x.level for x in inputs)  # a cotangent of a lower level is a constant of this tape
            tracked = any(isinstance(bar, Tensor) and bar.node is not None and bar.level >= level for bar in seeds)
            create_graph = (tracked or self.uses_foreign_leaves) if create_graph is None else create_graph
            # what was recorded when f ran is recorded here too, though the caller may pull under `no_grad`
            with enable_grad() if self.recording and not modes().grad else nullcontext():
                found = gradients(roots, inputs, seeds, create_graph=create_graph, retain_graph=True, allow_unused=True)
        return [self._return_gradient(g, x) for g, x in zip(found, xs, strict=True)]

    def values(self) -> list[Any]:
        """The results as the caller sees them: tracked only if they depend on the caller's own leaves."""
        return [
            self._lower_result(out, self.uses_foreign_leaves) if tracked else out
            for out, tracked in zip(self.outs, self._tracked, strict=True)
        ]

    def lower_aux(self, aux: Any) -> Any:
        """The aux of the function, lowered in the same way."""
        if aux is None:
            return None
        leaves, structure = flatten(aux)
        return unflatten(structure, [owned_copy(self._lower_aux_leaf(x)) for x in leaves])

    def _lower_aux_leaf(self, x: Any) -> Any:
        is_tracked = isinstance(x, Tensor) and x.node is not None
        return self._lower_result(x, has_leaves(x.node, self._own_nodes)) if is_tracked else x

    def _lower_result(self, out: Tensor, stays_tracked: bool) -> Any:
        return self._lower(out, stays_tracked, any(isinstance(x, Tensor) for x in self._xs))

    def _return_gradient(self, gradient: Tensor | None, x: Any) -> Any:
        """A tensor for a tensor, an array for an array; a tracked one where it can be differentiated again."""
        if gradient is None:
            gradient = wrap(zeros(spec_of(x)), spec_of(x))
        return self._lower(gradient, gradient.node is not None, isinstance(x, Tensor))

    def _lower(self, out: Tensor, stays_tracked: bool, as_tensor: bool) -> Any:
        """A value at the level of the caller, which records nothing of it under `no_grad`, also in a program."""
        if stays_tracked:
            return out if self.recording else pointwise.unrecorded(out).detach()
        value = out.value if self._scope is None else _lower_below(out.value, self._scope)
        if isinstance(value, Value) and not self.recording:
            value = pointwise.unrecorded(value)
        return wrap(value, spec_of(value)) if as_tensor and not isinstance(value, Tensor) else value


def _lower_below(value: Any, scope: Scope) -> Any:
    """The value that a constant of the scope stands for; also inside a batch of a later vmap that it was pulled in."""
    if type(value) is Batched and value.level > scope.level:
        return value.with_parts(_lower_below(value.value, scope))
    return scope.lower(value)


def _highest_scope(xs: list[Any], scope: Scope | None) -> Scope | None:
    """The scope that variables are lifted to: the running one, or, in a context that does not know it, the one that an
    argument belongs to.
    """
    for x in xs:
        value = x.value if isinstance(x, Tensor) else x
        found = value.scope if isinstance(value, Value) else None
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


def _make_variable(x: Any, scope: Scope | None, call: DifferentiatedCall) -> Tensor:
    """A tensor that this call alone differentiates: a leaf over a value, a new node over a tensor that has one."""
    # a tape inside a transform lies above the transform's values, so lower ones are lifted first
    if scope is not None and (not isinstance(x, Value) or x.level < scope.level):
        x = scope.lift(scope, x if isinstance(x, Value) else as_immutable(x))
    elif not isinstance(x, Tensor):
        x = x.alias() if isinstance(x, Value) else as_immutable(x)  # the caller may write to it before pulling back
    if isinstance(x, Tensor) and x.node is not None:  # the enclosing tape sees how it is used
        variable: Tensor = pointwise.positive(x)
    else:
        value = x.value if isinstance(x, Tensor) else x
        variable = wrap(value, spec_of(x)).requires_grad_()
    if variable.node is not None:
        variable.node.leave_fast_path().variable_of = call
    return variable
