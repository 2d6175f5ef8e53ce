"""`custom_op`: a function of arrays and its derivative rules as an op."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any, overload

from ...arrays.backends import is_array
from ...arrays.picklable import name_of
from ...arrays.protect import as_immutable
from ...arrays.spec import Spec, zeros
from ...arrays.trees import flatten
from ...arrays.value import Value
from ...errors import ArgumentError, GraphError, PullbackError
from ...ops.dispatch import apply, as_value
from ...ops.lazy import lazy_function
from ...ops.op import IMPURE, PURE, UNKNOWN, Formula, Op
from .rules import (
    as_bare_results,
    captured_value_error,
    check_autocast,
    guard_argument,
    is_tracked,
    make_custom_record,
)

RuleFunction = Callable[..., Any]
_values_read_by = lazy_function("closures", "values_read_by", "arrays")

#: Parameter names reserved by rules and records.
_RESERVED = {"bar", "out", "tangents", "position", "others", "specs", "xp", "op", "size", "axes"}


@overload
def custom_op(function: Callable[..., Any], *, pure: bool | None = ..., autocast: str = ...) -> CustomOp: ...
@overload
def custom_op(
    function: None = None, *, pure: bool | None = ..., autocast: str = ...
) -> Callable[[Callable[..., Any]], CustomOp]: ...
def custom_op(
    function: Callable[..., Any] | None = None, *, pure: bool | None = None, autocast: str = "promote"
) -> Any:
    """A function of bare arrays as an op with derivative rules of your own; a decorator.

    Positional parameters are arrays, keyword-only ones are static; the body may be any code. Give it `def_vjp` or
    `def_jvp`: the other is derived, and derivatives of every order follow, as long as the rule is written in functions
    of pullback. `def_batch` and `def_spec` are optional: without them `vmap` goes element by element, and the op cannot
    be staged.

    The parameters of a rule name what it uses, and that is what the tape saves: `bar` (the cotangent, a tuple
    for several results) or `tangents` (one for each argument), `out`, arguments, and static parameters.

    `pure=True` says that the function only computes its result: budgets may run it again, compiled programs may run it
    early. `pure=False` says that its calls matter, as those of a counter or of a message do: each runs exactly once, in
    order, also if it is unused, equal to another, or inside a checkpoint. If neither is said, it runs no more often
    than it is called, and checkpoints repeat it.

    `autocast` says what happens to its arguments under `pb.autocast`: "low" casts them to the low dtype, "high" to
    float32, and "promote" leaves them as they are. The function and its rules run with autocast off.

    >>> import numpy as np, pullback as pb
    >>> @pb.custom_op
    ... def cube(x):
    ...     return np.asarray(x) ** 3
    >>> @cube.def_vjp
    ... def _(bar, x):
    ...     return 3.0 * x**2 * bar
    >>> pb.grad(cube)(2.0), pb.grad(pb.grad(cube))(2.0), pb.jvp(cube, (2.0,), (1.0,))
    (array(12.), array(12.), (array(8.), array(12.)))
    """
    if function is None:
        return functools.partial(custom_op, pure=pure, autocast=autocast)
    return CustomOp(function, pure, autocast)


class CustomOp:
    """The result of `custom_op`; call it like the function it was made from."""

    def __init__(self, function: Callable[..., Any], pure: bool | None = None, autocast: str = "promote") -> None:
        if not callable(function):
            raise ArgumentError(f"custom_op: wants a function, got a {type(function).__name__}.")
        self.name: str = getattr(function, "__name__", "custom")
        self._function = function
        self._signature = inspect.signature(function)
        self._args = _argument_names(self._signature, self.name)
        self._autocast = check_autocast(autocast, f"custom_op: autocast of {self.name}")
        self._effects = UNKNOWN if pure is None else PURE if pure else IMPURE
        self._rules: dict[str, RuleFunction] = {}
        self._terms: dict[str, Formula] = {}
        self._op: Op | None = None
        functools.update_wrapper(self, function)

    def def_vjp(self, rule: RuleFunction) -> RuleFunction:
        """The cotangents of the arguments, a tuple with one for each (None: zero), or just one for one argument."""
        return self._define("vjp", rule, "bar")

    def def_jvp(self, rule: RuleFunction) -> RuleFunction:
        """The tangent of the result (a tuple for several) from `tangents`, a tuple; zeros where there is none."""
        return self._define("jvp", rule, "tangents")

    def def_batch(self, rule: RuleFunction) -> RuleFunction:
        """`rule(size, axes, *arguments, **static)` returns (result, axis): the op on a batch, whose elements lie along
        `axes` of the arguments (None: shared by all).
        """
        self._rules["batch"], self._op = rule, None
        return rule

    def def_spec(self, rule: RuleFunction) -> RuleFunction:
        """`rule(*specs, **static)` returns the `Spec` of the result, a tuple for several, without computing it."""
        self._rules["spec"], self._op = rule, None
        return rule

    def _define(self, kind: str, rule: RuleFunction, special: str) -> RuleFunction:
        statics = {p.name for p in self._signature.parameters.values() if p.kind is p.KEYWORD_ONLY}
        arguments = {a.lstrip("*") for a in self._args}
        known = {special, "out"} | arguments | {f"{a}_spec" for a in arguments} | statics
        names = _rule_parameters(rule, f"{self.name}: the {kind} rule")
        unknown = [name for name in names if name not in known]
        if unknown:
            raise ArgumentError(
                f"{self.name}: the {kind} rule names {', '.join(unknown)}.\n  It may name {', '.join(sorted(known))}."
            )
        _refuse_captured(rule, self.name)
        # Values come in the order of the names: that is how the tape saves them.
        self._terms[kind] = Formula(_bind_by_name(rule, names, special), names)
        self._rules[kind], self._op = rule, None
        return rule

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        given = self._signature.bind(*args, **kwargs)
        # A default of a static parameter is part of the op like one that is given.
        given.apply_defaults()
        static = {name: self._static(name, value) for name, value in given.kwargs.items()}
        return apply(self.record(), *(self._array(x, i) for i, x in enumerate(given.args)), **static)

    def _array(self, x: Any, position: int) -> Any:
        try:
            return as_value(x)
        except PullbackError:
            name = self._args[min(position, len(self._args) - 1)]
            raise ArgumentError(
                f"{self.name}: argument {name} is a {type(x).__name__}, wanted an array.\n"
                "  Make parameters that are no arrays keyword-only."
            ) from None

    def _static(self, name: str, value: Any) -> Any:
        """A static parameter, made immutable; a tracked value is refused."""
        if isinstance(value, (Value, tuple, list, dict)) and any(map(is_tracked, flatten(value)[0])):
            raise GraphError(
                f"{self.name}: the static parameter {name} is tracked, and its gradient would be lost.\n"
                "  Make it a positional parameter."
            )
        # The tape holds static parameters too: a later write would change what was recorded.
        return as_immutable(value) if is_array(value) else value

    def record(self) -> Op:
        """The record of the op, as any other op has one."""
        if self._op is None:
            terms = self._terms
            self._op = replace(make_custom_record(
                self.name, self._args, self._value, terms.get("vjp"), terms.get("jvp"), self._rules.get("batch"),
                self._rules.get("spec"),
            ), effects=self._effects, autocast=self._autocast)  # fmt: skip
        return self._op

    def _value(self, xp: Any, *xs: Any, **static: Any) -> Any:
        try:
            return as_bare_results(self._function(*map(guard_argument, xs), **static), self.name)
        except Exception as error:
            error.add_note(f"  in the custom op {self.name}")
            raise

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Like a function, an op made by a decorator is looked up by its name."""
        return name_of(self) or object.__reduce_ex__(self, protocol)

    def __repr__(self) -> str:
        return f"<custom op {self.name}>"


def _argument_names(signature: inspect.Signature, name: str) -> tuple[str, ...]:
    names = []
    for p in signature.parameters.values():
        if p.kind is p.VAR_KEYWORD:
            raise ArgumentError(f"custom_op: {name} takes **{p.name}; name its static parameters.")
        if p.name in _RESERVED or p.name.endswith("_spec"):
            raise ArgumentError(f"custom_op: {name} has a parameter named {p.name}, which is reserved for rules.")
        if p.name == "self":
            raise ArgumentError(f"custom_op: {name} has a parameter self; make an op of a function, not of a method.")
        if p.kind is not p.KEYWORD_ONLY:
            names.append(f"*{p.name}" if p.kind is p.VAR_POSITIONAL else p.name)
    if not names:
        raise ArgumentError(f"custom_op: {name} takes no positional parameters, so it has no arrays.")
    return tuple(names)


def _rule_parameters(rule: RuleFunction, what: str) -> tuple[str, ...]:
    """The parameters of a rule, whatever kind of callable it is."""
    if not callable(rule):
        raise ArgumentError(f"{what}: wants a function, got a {type(rule).__name__}.")
    parameters = inspect.signature(rule).parameters.values()
    if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters):
        raise ArgumentError(f"{what} takes * or **: name what it uses, since that is what the tape saves.")
    return tuple(p.name for p in parameters if p.default is p.empty or not isinstance(rule, functools.partial))


def _bind_by_name(rule: RuleFunction, names: tuple[str, ...], special: str) -> RuleFunction:
    """The rule as a function of values in the order of its names; it sees zeros where there is no cotangent."""
    kinds = inspect.signature(rule).parameters
    # All others go by keyword: a rule may list them in any order.
    alone = [name for name in names if kinds[name].kind is inspect.Parameter.POSITIONAL_ONLY]

    @functools.wraps(rule)
    def formula(*values: Any) -> Any:
        given = dict(zip(names, values, strict=True))
        given[special] = _fill_zeros(given[special]) if special in given else None
        return rule(*(given[n] for n in alone), **{n: given[n] for n in names if n not in alone})

    return formula


def _fill_zeros(bar: Any) -> Any:
    if isinstance(bar, tuple):
        return tuple(map(_fill_zeros, bar))
    return zeros(bar) if isinstance(bar, Spec) else bar


def _refuse_captured(rule: RuleFunction, name: str) -> None:
    """A rule that closes over a tracked value would silently drop a term."""
    for x in _values_read_by(inspect.unwrap(rule)):
        if isinstance(x, (Value, tuple, list, dict)) and any(map(is_tracked, flatten(x)[0])):
            raise captured_value_error(name)
