"""Forward mode: `jvp`, `linearize`, and duals, which nest by level."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar, overload

from ..arrays.argument_checks import check_functions, explains_arguments
from ..arrays.backends import is_array
from ..arrays.origin import Trail, register_reader
from ..arrays.picklable import Bound
from ..arrays.protect import as_immutable
from ..arrays.scope import Scope
from ..arrays.spec import Spec, derivative_dtype, spec_of, zeros
from ..arrays.tensor import Tensor, alias, wrap
from ..arrays.trees import flatten, leaves_matching, map_tree, unflatten
from ..arrays.value import Value
from ..errors import ArgumentError, ConversionError, DtypeError, ShapeError
from ..ops.dispatch import as_value, run
from ..ops.op import Op
from ..ops.shape.reshaping import astype, broadcast_checked, expand_dims, narrow
from ..ops.user_calls import call_function
from ..program.ir import Symbol
from ..program.run import run as run_program
from ..program.stage import stage
from ..settings import PLAIN, installed, modes
from .boundary import as_array_leaf, as_differentiable, check_paired, owned_copy, split_aux, unwrap_to_level
from .flat_call import FlatCall
from .vectorize import unbatch

R = TypeVar("R")
Aux = TypeVar("Aux")


class Dual(Value):
    """A value with its derivative along a direction, or a constant: then `along` is None, which is zero."""

    __slots__ = ("along", "level", "primal", "scope", "spec")
    level: int
    scope: Scope
    is_variable = True
    is_its_parts = True

    def __init__(self, primal: Any, along: Any, scope: Scope) -> None:
        self.primal = primal
        self.along = along
        # Guarded: tensors over duals stay off the fast path, which knows bare arrays alone.
        spec = spec_of(primal)
        self.spec: Spec = spec.guarded_twin or spec.as_guarded()
        self.scope = scope
        self.level = scope.level

    def point_at(self, new: Any, what: str) -> None:
        if isinstance(new, Value) and new.level >= self.level:
            if type(new) is not Dual or new.scope is not self.scope:
                raise self.rebind_error(what)
            self.primal, self.along = new.primal, new.along
        else:
            self.primal, self.along = new, None

    def parts(self) -> tuple[Any, ...]:
        return self.primal, self.along

    def with_parts(self, *parts: Any) -> Dual:
        primal, along = parts
        return Dual(primal, along, self.scope)

    @property
    def tangent(self) -> Any:
        """The derivative along the direction, zeros for a constant."""
        directions = self.scope.directions
        if directions is not None and directions.size:
            raise ArgumentError(f"tangent: this dual has {directions.size} directions; read x.tangents.")
        return zeros(self.spec) if self.along is None else self.along

    @property
    def tangents(self) -> Any:
        """The derivatives along all directions, one after the other along the first axis."""
        directions = self.scope.directions
        if directions is None or not directions.size:
            return _add_leading_axis(self.tangent)
        return unbatch(zeros(self.spec) if self.along is None else self.along, directions, 0)

    def interpret(self, op: Op, args: Sequence[Any], static: dict[str, Any]) -> Any:
        """Compute the value below, then push the tangents through the op's rule."""
        scope = self.scope
        if not scope.open:
            scope.check()
        level = self.level
        primals: list[Any] = []
        tangents: list[Any] = []
        constant = True
        for x in args:
            # A dual of another level is a constant here, so that perturbations are never confused.
            if type(x) is Dual and x.level == level:
                primals.append(x.primal)
                tangents.append(x.along)
                constant = constant and x.along is None
            else:
                primals.append(x)
                tangents.append(None)
        out = run(op, primals, static)
        # What a comparison returns has no tangent, and decides branches like any array.
        if not op.differentiable:
            return out
        # None is zero until the result leaves: constants cost no arithmetic.
        pushed = None if constant else op.push(tangents, out, primals, static)
        if type(out) is tuple:
            pushed = (None,) * len(out) if pushed is None else pushed
            if modes() is not PLAIN:
                installed().pushed(op.name, pushed)
            return tuple(_make_dual(x, t, scope) for x, t in zip(out, pushed, strict=True))
        if pushed is not None and modes() is not PLAIN:
            installed().pushed(op.name, (pushed,))
        return _make_dual(out, pushed, scope)

    @property
    def is_tracked(self) -> bool:
        return self.along is not None or (isinstance(self.primal, Value) and self.primal.is_tracked)

    def __bool__(self) -> bool:
        return bool(self.primal)

    def __format__(self, form: str) -> str:
        return format(self.primal, form) if form else str(self)

    def conversion_error(self, what: str) -> ConversionError:
        """Raise: a bare array would lose the tangent."""
        return ConversionError(
            f"{what}: {self.spec} carries a tangent, a bare array would lose it.\n"
            "  Use functions of pullback on it, or x.detach() for a constant."
        )

    def __repr__(self) -> str:
        return f"dual({self.primal!r}, {self.along!r})"


def _read_push(trail: Trail, local: Mapping[str, Any]) -> None:
    """Once the value is known, it is the rule of the derivative that runs."""
    if trail.line is None and "out" in local:
        trail.rules.append(f"the push of {local['op'].name}")


register_reader(Dual.interpret, _read_push)


def _make_dual(primal: Any, tangent: Any, scope: Scope) -> Any:
    spec = spec_of(primal)
    if tangent is None or not spec.inexact:
        return Dual(primal, None, scope)
    found = spec_of(tangent)
    if found.shape != spec.shape:
        # Rules leave broadcasting out; most tangents are added up before they need their full shape.
        tangent = broadcast_checked(tangent, spec.shape)
    wanted = derivative_dtype(spec.dtype)
    return Dual(primal, tangent if found.dtype == wanted else narrow(tangent, wanted), scope)


def _add_leading_axis(x: Any) -> Any:
    """With a leading axis; also for duals of a finished context, on which no op can run."""
    if type(x) is not Dual:
        return expand_dims(x, 0)
    return Dual(_add_leading_axis(x.primal), None if x.along is None else _add_leading_axis(x.along), x.scope)


def _lift_constant(scope: Scope, x: Any) -> Dual:
    return Dual(x, None, scope)


def _lower_constant(x: Any) -> Any:
    return x.primal if type(x) is Dual and x.along is None else x


def forward_scope(name: str, directions: Scope | None = None) -> Scope:
    """A run of forward mode, along one direction or along a batch of them."""
    scope = Scope(name, _lift_constant, _lower_constant)
    scope.directions = directions
    return scope


def check_tangent(primal: Any, tangent: Any, what: str) -> Any:
    """A tangent in the dtype of its primal, of the same shape."""
    tangent = as_array_leaf(tangent, what)
    spec, found = spec_of(primal), spec_of(tangent)
    if spec.shape != found.shape:
        raise ShapeError(f"{what}: a tangent has shape {found.shape}, its primal {spec.shape}.")
    if found.dtype.kind == "c" and spec.dtype.kind != "c":
        raise DtypeError(f"{what}: a tangent is {found.dtype}, its primal {spec.dtype}.")
    return tangent if found.dtype == spec.dtype else astype(tangent, spec.dtype)


@overload
def jvp(
    f: Callable[..., R], primals: Sequence[Any], tangents: Sequence[Any], *, has_aux: Literal[False] = False
) -> tuple[R, R]: ...
@overload
def jvp(
    f: Callable[..., tuple[R, Aux]], primals: Sequence[Any], tangents: Sequence[Any], *, has_aux: Literal[True]
) -> tuple[R, R, Aux]: ...
@explains_arguments("jvp")
def jvp(f: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any], *, has_aux: bool = False) -> Any:
    """The value of f and its derivative along the tangents: (value, tangent), or (value, tangent, aux) with `has_aux`.

    `primals` are the arguments of f, `tangents` look the same; None stands for an argument without a tangent. One
    pass forward, whatever the number of results: the mode for few inputs and many outputs.

    >>> import numpy as np, pullback as pb
    >>> pb.jvp(lambda x: pb.sin(x) * x, (np.array(2.0),), (np.array(1.0),))
    (array(1.81859485), array(0.07700375))
    """
    check_functions("jvp", f)
    check_paired("jvp", primals, tangents, "tangents")
    scope = forward_scope("jvp")
    # Inside the scope, since leaves that f makes must lie above its duals.
    with scope:
        inputs = [_make_duals(p, t, scope) for p, t in zip(primals, tangents, strict=True)]
        out = call_function(f, inputs, {})
        out, aux = split_aux(out, "jvp") if has_aux else (out, None)
        leaves, structure = flatten(out)
        pairs = [_split_dual(unwrap_to_level(as_array_leaf(x, "jvp"), scope), scope) for x in leaves]
        value, tangent = (unflatten(structure, [pair[i] for pair in pairs]) for i in (0, 1))
        return (value, tangent, _lower_aux(aux, scope)) if has_aux else (value, tangent)


def _lower_aux(aux: Any, scope: Scope) -> Any:
    """The aux of a function: the primals of duals, anything else unchanged."""
    return map_tree(lambda x: _split_dual(unwrap_to_level(x, scope), scope)[0] if isinstance(x, Value) else x, aux)


def _make_duals(primal: Any, tangent: Any, scope: Scope) -> Any:
    """One argument as duals, leaf by leaf."""
    if tangent is None:
        return map_tree(lambda x: alias(as_value(x)), primal)
    leaves, structure = flatten(primal)
    duals = []
    for i, (x, t) in enumerate(zip(leaves, leaves_matching(structure, tangent, "jvp"), strict=True)):
        # An alias: f may rebind its own variables, not the caller's.
        x = alias(as_differentiable(x, "jvp", structure, i))
        duals.append(Dual(x, alias(check_tangent(x, t, "jvp")), scope))
    return unflatten(structure, duals)


def _split_dual(out: Any, scope: Scope) -> tuple[Any, Any]:
    """Value and tangent of a result, each in its own memory; a tensor has a tensor for its tangent."""
    own = type(out) is Dual and out.scope is scope
    primal, tangent = (out.primal, out.tangent) if own else (out, zeros(spec_of(out)))
    primal, tangent = owned_copy(primal), owned_copy(tangent)
    if isinstance(primal, Tensor) and is_array(tangent):
        tangent = wrap(tangent, spec_of(tangent))
    return primal, tangent


def linearize(f: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """The value of f at the primals, and the linear function of tangents that is its derivative there.

    f runs once; the derivative is traced as a program, so that pushing many tangents does not run f again.

    >>> import numpy as np, pullback as pb
    >>> value, push = pb.linearize(lambda x: pb.sin(x) * x, np.array(2.0))
    >>> push(np.array(1.0)), push(np.array(2.0))
    (array(0.07700375), array(0.15400751))
    """
    check_functions("linearize", f)
    call = FlatCall("linearize", f, primals)
    values = [as_immutable(x) if is_array(x) else x for x in call.xs]  # the program keeps them
    value: Any = None

    def push_flat(*tangents: Symbol) -> list[Any]:
        nonlocal value
        value, tangent = jvp(call, values, tangents)
        outs: list[Any] = tangent
        return outs

    program = stage(push_flat, *map(spec_of, values), name="linearize")
    arguments, results = call.structure, call.results

    def push(*tangents: Any) -> Any:
        given = leaves_matching(arguments, tangents, "linearize")
        checked = [check_tangent(x, t, "linearize") for x, t in zip(values, given, strict=True)]
        outs = run_program(program, checked)
        if modes() is not PLAIN:
            installed().pushed("linearize", outs)
        return unflatten(results, [owned_copy(x) for x in outs])

    return unflatten(results, value), Bound(push)
