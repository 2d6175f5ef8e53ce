"""`linear_transpose`: the transpose of a linear function; a function that is not linear is refused."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..arrays.argument_checks import check_functions
from ..arrays.backends import is_array
from ..arrays.call_site import format_line, user_line
from ..arrays.picklable import Bound
from ..arrays.scope import Scope
from ..arrays.spec import Spec, ones, spec_of, zeros
from ..arrays.tensor import Tensor
from ..arrays.trees import flatten, leaves_matching, unflatten
from ..arrays.value import Value, unwrap_array
from ..errors import ArgumentError, ConversionError
from ..ops.dispatch import run
from ..ops.op import OUT, Op
from ..ops.user_calls import call_function
from .boundary import as_array_leaf, as_differentiable
from .reverse import Pullback


def linear_transpose(f: Callable[..., Any], *primals: Any) -> Callable[[Any], tuple[Any, ...]]:
    """The transpose of a linear function: cotangents of its result in, a tuple of cotangents of its arguments out.

    The primals give only shapes and dtypes (arrays or specs); f must be linear in all of them together, and that is
    checked.

    >>> import numpy as np, pullback as pb
    >>> pb.linear_transpose(lambda x: 2.0 * x[1:] - x[:-1], np.zeros(3))(np.array([1.0, 1.0]))
    (array([-1.,  1.,  2.]),)
    """
    check_functions("linear_transpose", f)
    leaves, structure = flatten(primals)
    specs = [
        x if isinstance(x, Spec) else spec_of(as_differentiable(x, "linear_transpose", structure, i))
        for i, x in enumerate(leaves)
    ]
    shape: Any = None

    def flat(*inputs: Any) -> list[Any]:
        nonlocal shape
        outs, shape = flatten(call_function(f, unflatten(structure, inputs), {}))
        return [as_array_leaf(x, "linear_transpose") for x in outs]

    pull = transpose_linear(flat, specs, "linear_transpose")

    def transpose(bar: Any) -> tuple[Any, ...]:
        answer: tuple[Any, ...] = unflatten(
            structure, pull(leaves_matching(shape, bar, "linear_transpose: the cotangent"))
        )
        return answer

    return Bound(transpose)


def transpose_linear(
    f: Callable[..., list[Any]], specs: Sequence[Spec], what: str
) -> Callable[[Sequence[Any]], list[Any]]:
    """The transpose of a linear function of arrays and lists. It runs at zero, where a linear function is zero, on
    values that check each step. They have a level of their own, so that whatever else the function uses is a constant
    to this tape and is differentiated below it.
    """
    scope = Scope(what, _lift_constant, _lower_constant)
    # At zero a step may well compute 0 * inf, which says nothing against it.
    with scope, np.errstate(all="ignore"):
        pullback = Pullback(f, [LinearVariable(zeros(spec), True, scope) for spec in specs], scope)
    scope.open = True  # its values stay on the tape, to be pulled back later
    for out in pullback.outs:
        refuse_offset(out, what)
    return lambda bars: pullback.pull(bars, create_graph=False)


class LinearVariable(Value):
    """A value that depends on the variables of a linear function, if it `moves`; then only linear steps take it."""

    __slots__ = ("level", "moves", "scope", "spec", "value")
    level: int
    scope: Scope

    def __init__(self, value: Any, moves: bool, scope: Scope) -> None:
        self.value = value
        self.moves = moves
        self.scope = scope
        self.level = scope.level
        self.spec: Spec = spec_of(value).as_guarded()

    def interpret(self, op: Op, args: Sequence[Any], static: dict[str, Any]) -> Any:
        """Compute below, after making sure that the step is linear in what moves."""
        scope = self.scope
        own = [type(x) is LinearVariable and x.scope is scope for x in args]
        values = [x.value if mine else x for x, mine in zip(args, own, strict=True)]
        along = {i for i, (x, mine) in enumerate(zip(args, own, strict=True)) if mine and x.moves}
        out = run(op, values, static)
        moves = bool(along)
        # A probe follows what moves through a rule, which need not be linear.
        if along and scope.name is not _PROBE_NAME:
            if op.follow is not None:
                return _follow_steps(op, along, out, values, static, scope)
            _check_linear_step(op, along, out, values, static, scope.name)
        if type(out) is tuple:
            return tuple([LinearVariable(part, moves, scope) for part in out])
        return LinearVariable(out, moves, scope) if moves or op.differentiable else out

    def parts(self) -> tuple[Any, ...]:
        return (self.value,)

    def with_parts(self, *parts: Any) -> LinearVariable:
        (value,) = parts
        return LinearVariable(value, self.moves, self.scope)

    def __bool__(self) -> bool:
        if not self.moves:
            return bool(self.value)
        raise _not_linear_error(self.scope.name, "a branch asks for the truth of a value")

    def conversion_error(self, what: str) -> ConversionError:
        """Raise: a bare array would no longer depend on the variables."""
        return ConversionError(
            f"{what}: {self.spec} is a variable of a linear function.\n  Use functions of pullback on it."
        )

    def __repr__(self) -> str:
        return f"moving({self.spec})"


#: The name of scopes that only follow what moves.
_PROBE_NAME = "a probe"


def _lift_constant(scope: Scope, x: Any) -> LinearVariable:
    return LinearVariable(x, False, scope)


def _lower_constant(x: Any) -> Any:
    return x.value if type(x) is LinearVariable and not x.moves else x


def _check_linear_step(op: Op, along: set[int], out: Any, values: list[Any], static: dict[str, Any], what: str) -> None:
    """A step is linear in what moves if its derivative is there and is computed from nothing that moves."""
    outs = out if type(out) is tuple else (out,)
    if not op.differentiable or not all(spec_of(x).inexact for x in outs):
        raise _not_linear_error(what, op.name)
    rule = op.rule(tuple(sorted(along)), len(values))
    # A joint rule names all arguments, so ask what it computes; other formulas name what they depend on.
    if op.joint is not None:
        if _depends_on_variables(op, along, out, values, static):
            raise _not_linear_error(what, op.name)
    elif any(op.pull_of(i) is None or rule.uses(i) & (along | {OUT}) for i in along):
        raise _not_linear_error(what, op.name)


def _follow_steps(op: Op, along: set[int], out: Any, values: list[Any], static: dict[str, Any], scope: Scope) -> Any:
    """The results of an op whose own steps are checked one by one; each moves if it depends on what does."""
    assert op.follow is not None
    inside = Scope(scope.name, _lift_constant, _lower_constant)
    with inside:
        given = [LinearVariable(x, True, inside) if i in along else x for i, x in enumerate(values)]
        # The op's own steps are checked as they run, one level further in.
        linear_in = op.follow(*given, **static)
    return tuple(
        [LinearVariable(x, any(_is_moving(v, inside) for v in on), scope) for x, on in zip(out, linear_in, strict=True)]
    )


def _depends_on_variables(op: Op, along: set[int], out: Any, values: list[Any], static: dict[str, Any]) -> bool:
    """Whether a rule that gives all cotangents together computes those of what moves from something that moves."""
    scope = Scope(_PROBE_NAME, _lift_constant, _lower_constant)
    probes = [LinearVariable(x, True, scope) if i in along else x for i, x in enumerate(values)]
    if type(out) is tuple:
        result: Any = tuple([LinearVariable(x, True, scope) for x in out])
        bar: Any = tuple([ones(spec_of(x)) for x in out])
    else:
        result, bar = LinearVariable(out, True, scope), ones(spec_of(out))
    # Ones for cotangents: only which values move is looked at, never the numbers.
    order = sorted(along)
    specs = tuple([spec_of(x) for x in values])
    with scope:  # transforms inside of the rule lie above it
        shares = op.rule(tuple(order), len(values)).shares(order, bar, result, probes, specs, static)
    return any(_is_moving(share, scope) for share in shares)


def _is_moving(x: Any, scope: Scope) -> bool:
    while type(x) is Tensor:
        x = x.value
    return type(x) is LinearVariable and x.scope is scope and x.moves


def refuse_offset(out: Any, what: str) -> None:
    """A step may add a constant; then the function is not zero at zero. A NaN there says nothing: 0 * inf is one."""
    out = unwrap_array(out)
    if is_array(out) and bool(((out != 0) & (out == out)).any()):
        raise ArgumentError(f"{what}: the function is not linear: it is not zero at zero.")


def _not_linear_error(what: str, step: str) -> ArgumentError:
    line = format_line(*user_line(sys._getframe(1)))
    return ArgumentError(f"{what}: the function is not linear: {step} is not.\n  at {line}")
