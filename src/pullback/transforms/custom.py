"""A function of arrays and its derivative rules in, an op like any other out."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from ..arrays.backends import is_array
from ..arrays.node import Node
from ..arrays.protect import read_only, settled
from ..arrays.spec import Spec, spec_of, zeros
from ..arrays.tensor import Tensor
from ..arrays.trees import flatten
from ..arrays.value import Value
from ..errors import ArgumentError, DtypeError, GraphError, PullbackError, ShapeError
from ..ops.arranging import stack
from ..ops.dispatch import apply, as_value
from ..ops.indexing import getitem
from ..ops.op import Op, Terms, terms
from .linear import transposed

__all__ = ["CustomOp", "custom_op"]

Rule = Callable[..., Any]


def custom_op(function: Callable[..., Any]) -> CustomOp:
    """A function of bare arrays as an op with derivative rules of your own; a decorator.

    Positional parameters are arrays, keyword-only ones are static; the body may be any code. Give it `def_vjp` or
    `def_jvp`: the other is derived, and derivatives of every order follow, as long as the rule is written in functions
    of pullback. `def_batch` and `def_spec` are optional: without them `vmap` goes element by element, and the op cannot
    be staged.

    The parameters of a rule say what it uses, and what it names is what the tape keeps: `bar` (the cotangent, a tuple
    for several results) or `tangents` (one for each argument), `out`, arguments, and static parameters.

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
    return CustomOp(function)


class CustomOp:
    """What `custom_op` makes; call it like the function it was made of."""

    def __init__(self, function: Callable[..., Any]) -> None:
        if not callable(function):
            raise ArgumentError(f"custom_op: wants a function, got a {type(function).__name__}.")
        self.name: str = getattr(function, "__name__", "custom")
        self._function = function
        self._signature = inspect.signature(function)
        self._args = _argument_names(self._signature, self.name)
        self._rules: dict[str, Rule] = {}
        self._op: Op | None = None
        functools.update_wrapper(self, function)

    def def_vjp(self, rule: Rule) -> Rule:
        """The cotangents of the arguments, a tuple with one for each (None: zero), or just one for one argument."""
        return self._define("vjp", rule, {"bar"})

    def def_jvp(self, rule: Rule) -> Rule:
        """The tangent of the result (a tuple for several) from `tangents`, a tuple; zeros for what does not move."""
        return self._define("jvp", rule, {"tangents"})

    def def_batch(self, rule: Rule) -> Rule:
        """`rule(size, axes, *arguments, **static)` answers (result, axis): the op on a batch, whose elements lie along
        `axes` of the arguments (None: one for all).
        """
        self._rules["batch"], self._op = rule, None
        return rule

    def def_spec(self, rule: Rule) -> Rule:
        """`rule(*specs, **static)` answers the `Spec` of the result, a tuple for several, without computing it."""
        self._rules["spec"], self._op = rule, None
        return rule

    def _define(self, kind: str, rule: Rule, extra: set[str]) -> Rule:
        statics = {p.name for p in self._signature.parameters.values() if p.kind is p.KEYWORD_ONLY}
        arguments = {a.lstrip("*") for a in self._args}
        known = extra | {"out"} | arguments | {f"{a}_spec" for a in arguments} | statics
        unknown = [name for name in terms(rule).names if name not in known]
        if unknown:
            raise ArgumentError(
                f"{self.name}: the {kind} rule names {', '.join(unknown)}.\n  It may name {', '.join(sorted(known))}."
            )
        refuse_captured(rule, self.name)
        self._rules[kind], self._op = rule, None
        return rule

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        given = self._signature.bind(*args, **kwargs)
        given.apply_defaults()
        return apply(self.record(), *(self._array(x, i) for i, x in enumerate(given.args)), **given.kwargs)

    def _array(self, x: Any, position: int) -> Any:
        try:
            return as_value(x)
        except PullbackError:
            name = self._args[min(position, len(self._args) - 1)]
            raise ArgumentError(
                f"{self.name}: argument {name} is a {type(x).__name__}, wanted an array.\n"
                "  Make parameters that are no arrays keyword-only."
            ) from None

    def record(self) -> Op:
        """The record of the op, as any other op has one."""
        if self._op is None:
            rules = self._rules
            vjp, jvp = rules.get("vjp"), rules.get("jvp")
            self._op = custom_record(
                self.name,
                self._args,
                lambda xp, *xs, **static: _bare(self._function(*map(_guarded, xs), **static), self.name),
                None if vjp is None else terms(vjp),
                None if jvp is None else terms(jvp),
                rules.get("batch"),
                rules.get("spec"),
            )
        return self._op

    def __repr__(self) -> str:
        return f"<custom op {self.name}>"


def _argument_names(signature: inspect.Signature, name: str) -> tuple[str, ...]:
    names = []
    for p in signature.parameters.values():
        if p.kind is p.VAR_KEYWORD:
            raise ArgumentError(f"custom_op: {name} takes **{p.name}; name its static parameters.")
        if p.kind is not p.KEYWORD_ONLY:
            names.append(f"*{p.name}" if p.kind is p.VAR_POSITIONAL else p.name)
    if not names:
        raise ArgumentError(f"custom_op: {name} takes no positional parameters, so it has no arrays.")
    if {"bar", "out", "tangents"} & set(names):
        raise ArgumentError(
            f"custom_op: {name} has a parameter named bar, out or tangents, which rules mean otherwise."
        )
    return tuple(names)


def custom_record(
    name: str,
    args: tuple[str, ...],
    value: Callable[..., Any],
    vjp: Terms | None,
    jvp: Terms | None,
    batch: Rule | None,
    spec: Rule | None,
) -> Op:
    """The record of an op from the rules that are there; of vjp and jvp, the missing one is the other's transpose."""
    joint = None
    if vjp is not None:
        joint = Terms(functools.partial(_pulled, name, vjp), ("specs", "bar", *_without(vjp.names, "bar")))
    elif jvp is not None:
        joint = Terms(functools.partial(_pulled_by_jvp, name, jvp), ("specs", "bar", *_without(jvp.names, "tangents")))
    else:
        joint = Terms(functools.partial(_no_rule, name), ())

    def push(tangents: Sequence[Any], out: Any, primals: Sequence[Any], static: dict[str, Any]) -> Any:
        known = _Known(args, primals, out, static)
        if jvp is not None:
            return _pushed(name, jvp, tangents, known)
        return _no_rule(name) if vjp is None else _pushed_by_vjp(name, vjp, tangents, known)

    def batched(op: Op, size: int, xs: Sequence[Any], axes: Sequence[int | None], static: dict[str, Any]) -> Any:
        return _one_by_one(op, size, xs, axes, static) if batch is None else batch(size, tuple(axes), *xs, **static)

    return Op(
        name=name, family="custom", args=args, value=value, spec=spec, pulls={}, joint=joint, push=push, batch=batched,
        samples=lambda rng: [], doc="",
    )  # fmt: skip


class _Known:
    """What a rule may name, by its name."""

    __slots__ = ("args", "out", "primals", "static")

    def __init__(self, args: tuple[str, ...], primals: Sequence[Any], out: Any, static: dict[str, Any]) -> None:
        self.args, self.primals, self.out, self.static = args, primals, out, static

    def values(self, rule: Terms, name: str, special: Any) -> list[Any]:
        """What the rule named, in its order; `special` stands for `name`."""
        return [special if n == name else self._value(n) for n in rule.names]

    def _value(self, name: str) -> Any:
        if name == "out":
            return self.out
        if name in self.static:
            return self.static[name]
        for i, argument in enumerate(self.args):
            if argument == name:
                return self.primals[i]
            if argument == f"*{name}":
                return tuple(self.primals[i:])
            if f"{argument}_spec" == name:
                return spec_of(self.primals[i])
        raise ArgumentError(f"a rule names {name!r}, which is no argument or static parameter.")

    @property
    def specs(self) -> list[Spec]:
        return [spec_of(x) for x in self.primals]

    @property
    def out_specs(self) -> list[Spec]:
        return [spec_of(x) for x in self.out] if type(self.out) is tuple else [spec_of(self.out)]


def _without(names: tuple[str, ...], special: str) -> tuple[str, ...]:
    return tuple(n for n in names if n != special)


def _named(rule: Terms, special_name: str, special: Any, rest: Sequence[Any]) -> list[Any]:
    """The arguments of a rule: the special one in its place among the rest."""
    others = iter(rest)
    return [special if n == special_name else next(others) for n in rule.names]


def _pulled(name: str, rule: Terms, specs: Sequence[Spec], bar: Any, *rest: Any) -> tuple[Any, ...]:
    """The cotangents of all arguments by the user's vjp rule, checked."""
    bar, rest = _guarded(bar), tuple(map(_guarded, rest))
    found = rule.formula(*_named(rule, "bar", bar, rest))
    shares = found if isinstance(found, (tuple, list)) else (found,)
    if len(shares) != len(specs):
        raise ArgumentError(
            f"{name}: the vjp rule returned {len(shares)} cotangents for {len(specs)} arguments.\n  {_line(rule)}"
        )
    refuse_foreign(shares, [bar, *rest], name, rule)
    return tuple(
        None if share is None else _checked(share, spec, f"the cotangent of argument {i}", name, rule)
        for i, (share, spec) in enumerate(zip(shares, specs, strict=True))
    )


def _guarded(x: Any) -> Any:
    """What the user's code is given: arrays it cannot write to, and zeros where the engine has no cotangent."""
    if isinstance(x, tuple):
        return tuple(map(_guarded, x))
    if isinstance(x, Spec):
        return zeros(x)
    return read_only(x) if is_array(x) else x


def _checked(value: Any, spec: Spec, what: str, name: str, rule: Terms) -> Any:
    """A cotangent or tangent of the right shape and kind."""
    value = as_value(value)
    found = spec_of(value)
    if found.shape != spec.shape:
        raise ShapeError(f"{name}: {what} has shape {found.shape}, wanted {spec.shape}.\n  {_line(rule)}")
    if not spec.inexact:
        return None
    if not found.inexact or (found.dtype.kind == "c" and spec.dtype.kind != "c"):
        raise DtypeError(f"{name}: {what} is {found.dtype}, wanted {spec.dtype}.\n  {_line(rule)}")
    return value


def _line(rule: Terms) -> str:
    code = getattr(rule.formula, "__code__", None)
    return f"the rule stands at {code.co_filename.rsplit('/', 1)[-1]}:{code.co_firstlineno}" if code else "in its rule"


def _pushed(name: str, rule: Terms, tangents: Sequence[Any], known: _Known) -> Any:
    """The tangent of the result by the user's jvp rule, checked."""
    pairs = zip(tangents, known.specs, strict=True)
    filled = tuple(t if t is not None or not s.inexact else zeros(s) for t, s in pairs)
    found = rule.formula(*map(_guarded, known.values(rule, "tangents", filled)))
    several = type(known.out) is tuple
    outs = tuple(found) if several else (found,)
    if len(outs) != len(known.out_specs):
        raise ArgumentError(
            f"{name}: the jvp rule returned {len(outs)} tangents for {len(known.out_specs)} results.\n  {_line(rule)}"
        )
    refuse_foreign(outs, [*filled, *known.primals, known.out], name, rule)
    checked = tuple(
        None if t is None else _checked(t, spec, f"the tangent of result {i}", name, rule)
        for i, (t, spec) in enumerate(zip(outs, known.out_specs, strict=True))
    )
    return checked if several else checked[0]


def _pushed_by_vjp(name: str, rule: Terms, tangents: Sequence[Any], known: _Known) -> Any:
    """The vjp rule is linear in `bar`: bar -> J^T bar. Its transpose is the tangent: t -> J t."""
    moving = [i for i, t in enumerate(tangents) if t is not None]
    several = type(known.out) is tuple

    def pulled(*bars: Any) -> list[Any]:
        values = known.values(rule, "bar", bars if several else bars[0])
        shares = _pulled(name, Terms(rule.formula, rule.names), known.specs, values[rule.names.index("bar")],
                         *(v for n, v in zip(rule.names, values, strict=True) if n != "bar"))  # fmt: skip
        return [zeros(known.specs[i]) if shares[i] is None else shares[i] for i in moving]

    push = transposed(pulled, known.out_specs, f"{name}: the tangent is the transpose of the vjp rule")
    found = push([tangents[i] for i in moving])
    return tuple(found) if several else found[0]


def _pulled_by_jvp(name: str, rule: Terms, specs: Sequence[Spec], bar: Any, *rest: Any) -> tuple[Any, ...]:
    """The jvp rule is linear in `tangents`: t -> J t. Its transpose is the cotangent: bar -> J^T bar."""
    moving = [i for i, spec in enumerate(specs) if spec.inexact]
    bars = [_guarded(b) for b in (bar if isinstance(bar, tuple) else (bar,))]
    rest = tuple(map(_guarded, rest))

    def pushed(*tangents: Any) -> list[Any]:
        given = dict(zip(moving, tangents, strict=True))
        found = rule.formula(*_named(rule, "tangents", tuple(given.get(i) for i in range(len(specs))), rest))
        outs = list(found) if isinstance(found, (tuple, list)) else [found]
        refuse_foreign(outs, [*tangents, *rest], name, rule)
        return [
            _checked(t, spec_of(b), f"the tangent of result {i}", name, rule)
            for i, (t, b) in enumerate(zip(outs, bars, strict=True))
        ]

    pull = transposed(pushed, [specs[i] for i in moving], f"{name}: the cotangent is the transpose of the jvp rule")
    shares = dict(zip(moving, pull(bars), strict=True))
    return tuple(shares.get(i) for i in range(len(specs)))


def _no_rule(name: str) -> Any:
    raise GraphError(f"{name}: this custom op has no derivative.\n  Give it one: def_vjp or def_jvp.")


def _one_by_one(op: Op, size: int, xs: Sequence[Any], axes: Sequence[int | None], static: dict[str, Any]) -> Any:
    """A batch element by element, for code that knows nothing of batches."""
    if size == 0:
        raise ArgumentError(f"{op.name}: a batch of no elements needs a rule of its own.\n  Give it def_batch.")
    rows = []
    for i in range(size):
        picked = [
            x if axis is None else getitem(x, (*(slice(None),) * axis, i)) for x, axis in zip(xs, axes, strict=True)
        ]
        rows.append(apply(op, *picked, **static))
    if type(rows[0]) is tuple:
        return tuple(stack(parts) for parts in zip(*rows, strict=True)), (0,) * len(rows[0])
    return stack(rows), 0


def _bare(out: Any, name: str) -> Any:
    """What the user's function returned, as bare arrays."""
    if isinstance(out, (tuple, list)):
        return tuple(_bare(x, name) for x in out)
    if isinstance(out, Value):
        if not isinstance(out, Tensor) or out.node is not None or not is_array(out.value):
            raise GraphError(
                f"{name}: the function used a value that carries derivatives but is no argument of it, "
                "so its gradient would be lost.\n  Pass it as an argument."
            )
        out = out.value
    return settled(out)  # the function may hand out one buffer again and again, or what it was given


def refuse_captured(rule: Rule, name: str) -> None:
    """A rule that closes over a value with derivatives would drop a term without a word."""
    cells = [c.cell_contents for c in getattr(rule, "__closure__", None) or () if _is_set(c)]
    defaults = [*(getattr(rule, "__defaults__", None) or ()), *(getattr(rule, "__kwdefaults__", None) or {}).values()]
    code = getattr(rule, "__code__", None)
    named = [rule.__globals__[n] for n in code.co_names if n in rule.__globals__] if code else []
    for held in (*cells, *defaults, *named):
        for leaf in flatten(held)[0] if isinstance(held, (tuple, list, dict, Value)) else ():
            if isinstance(leaf, Value) and (not isinstance(leaf, Tensor) or leaf.node is not None):
                raise _captured(name)


def _is_set(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - an empty cell raises
    except ValueError:
        return False
    return True


def _captured(name: str) -> GraphError:
    return GraphError(
        f"{name}: a rule uses a value that carries derivatives but is no argument of the op, so a term of the "
        "derivative would be lost.\n  Pass it as an argument of the op."
    )


def refuse_foreign(found: Sequence[Any], given: Sequence[Any], name: str, rule: Terms) -> None:
    """The same at first use: what a rule returns may depend on nothing but what it was given."""
    known = [x for x in flatten(list(given))[0] if isinstance(x, Value)]
    level = max((x.level for x in known), default=0)
    nodes = {x.node for x in known if isinstance(x, Tensor)}
    for x in flatten(list(found))[0]:
        if isinstance(x, Value) and (x.level > max(level, 0) or _has_other_roots(x, nodes)):
            raise _captured(name)


def _has_other_roots(x: Value, known: set[Node | None]) -> bool:
    """Whether a path from this value ends in a leaf without passing a known node."""
    start = x.node if isinstance(x, Tensor) else None
    stack_, seen = [start] if start is not None and start not in known else [], set()
    while stack_:
        node = stack_.pop()
        if node.is_leaf:
            return True
        for parent in node.parents:
            if parent not in known and parent not in seen:
                seen.add(parent)
                stack_.append(parent)
    return False
