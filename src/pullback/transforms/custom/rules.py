"""The record of a custom op from its derivative rules: of vjp and jvp, a missing one is the transpose of the other."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from ...arrays.backends import is_array, namespace_on
from ...arrays.node import Node, call_status
from ...arrays.protect import as_immutable, read_only_view
from ...arrays.scope import outside_transforms
from ...arrays.spec import Spec, spec_of, zeros
from ...arrays.tensor import Tensor, alias
from ...arrays.trees import flatten
from ...arrays.value import Value
from ...errors import ArgumentError, DtypeError, GraphError, PullbackError, ShapeError
from ...ops.dispatch import as_value, run
from ...ops.index.indexing import getitem
from ...ops.op import UNKNOWN, Formula, Op
from ...ops.shape.arrange import stack
from ...ops.shape.reshaping import astype
from ...tape.anomaly import pause_anomaly_checks
from ..linear_functions import transpose_linear

#: The static parameter of an op in class form; no parameter of Python has such a name.
CALL_PARAMETER = "@call"
_NUMBERS = (bool, int, float, complex)


def make_custom_record(
    name: str,
    args: tuple[str, ...],
    value: Callable[..., Any],
    vjp: Formula | None,
    jvp: Formula | None,
    batch: Callable[..., Any] | None,
    spec: Callable[..., Any] | None,
) -> Op:
    """The record of an op from the given rules. A rule gets the spec in place of a missing cotangent.

    With a static parameter `CALL_PARAMETER`, the last results are saved values, which the rules do not see; it holds
    the number of the others.
    """
    if vjp is not None:
        joint = Formula(functools.partial(_pull_by_vjp, name, vjp), ("specs", "bar", *_without_name(vjp.names, "bar")))
    elif jvp is not None:
        joint = Formula(
            functools.partial(_pull_by_jvp, name, jvp), ("specs", "bar", *_without_name(jvp.names, "tangents"))
        )
    else:
        joint = Formula(functools.partial(_raise_no_rule, name), ())

    def compute(xp: Any, *arrays: Any, **static: Any) -> Any:
        with outside_transforms():
            return value(xp, *arrays, **static)

    def push(tangents: Sequence[Any], out: Any, primals: Sequence[Any], static: dict[str, Any]) -> Any:
        known = _NamedValues(args, primals, out, static)
        if not any(s.inexact for s in known.out_specs):
            return None
        if jvp is None and vjp is None:
            return _raise_no_rule(name)
        pushed = _push_by_jvp(name, jvp, tangents, known) if jvp else _push_by_vjp(name, vjp, tangents, known)  # type: ignore[arg-type]
        _refuse_higher(pushed, [*tangents, *primals, out], name)
        return pushed

    def batch_op(op: Op, size: int, xs: Sequence[Any], axes: Sequence[int | None], static: dict[str, Any]) -> Any:
        if batch is None:
            return _batch_one_by_one(op, size, xs, axes, static)
        return _check_batch(batch(size, tuple(axes), *xs, **static), size, name)

    return Op(
        name=name, family="custom", args=args, value=compute, spec=spec, pulls={}, joint=joint, push=push,
        batch=batch_op, samples=lambda rng: [], doc="", effects=UNKNOWN,
    )  # fmt: skip


class SpareResults(Protocol):
    """The further results of an op: how many are the function's own, and the tangents of the rest."""

    results: int

    def spare_tangents(self, out: tuple[Any, ...]) -> list[Any]:
        """The tangents of the further results."""

    def refuse_spare_cotangents(self, bars: Sequence[Any]) -> None:
        """Raise if one of the further results has a cotangent."""


class UnknownTangent(Value):
    """The tangent of a value whose derivative is unknown: any op on it raises."""

    __slots__ = ("error", "spec")

    def __init__(self, spec: Spec, error: GraphError) -> None:
        self.spec = spec.as_guarded()
        self.error = error

    @property
    def level(self) -> int:
        return sys.maxsize

    def interpret(self, op: Any, args: Sequence[Any], static: dict[str, Any]) -> Any:
        raise self.error


class _NamedValues:
    """What a rule may name, by its name."""

    __slots__ = ("args", "out", "out_specs", "primals", "specs", "static")

    def __init__(self, args: tuple[str, ...], primals: Sequence[Any], out: Any, static: dict[str, Any]) -> None:
        self.args, self.primals, self.out, self.static = args, primals, out, static
        self.specs = [spec_of(x) for x in primals]
        self.out_specs = [spec_of(x) for x in out] if type(out) is tuple else [spec_of(out)]

    @property
    def has_several_results(self) -> bool:
        return type(self.out) is tuple

    def look_up(self, names: Sequence[str]) -> list[Any]:
        """The values of names, in their order."""
        return [self._value(name) for name in names]

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
                return self.specs[i]
        raise ArgumentError(f"a rule names {name!r}, which is no argument or static parameter.")


def _without_name(names: tuple[str, ...], special: str) -> tuple[str, ...]:
    return tuple(n for n in names if n != special)


def _call_rule(rule: Formula, special: str, value: Any, rest: Sequence[Any]) -> Any:
    """Call a rule, with its special argument in its place among the rest."""
    others = iter(map(guard_argument, rest))
    return rule.function(*(guard_argument(value) if n == special else next(others) for n in rule.names))


def guard_argument(x: Any) -> Any:
    """A value as user code gets it: arrays it cannot write to, and its own tensors."""
    if isinstance(x, tuple):
        return tuple(map(guard_argument, x))
    return read_only_view(x) if is_array(x) else alias(x)


def _pull_by_vjp(name: str, rule: Formula, specs: Sequence[Spec], bar: Any, *rest: Any) -> tuple[Any, ...]:
    """The cotangents of all arguments by the user's vjp rule, checked."""
    found = _call_rule(rule, "bar", bar, rest)
    shares = found if isinstance(found, (tuple, list)) else (found,)
    if len(shares) != len(specs):
        raise ArgumentError(
            f"{name}: the vjp rule returned {len(shares)} cotangents for {len(specs)} arguments.\n"
            f"  {_rule_location(rule)}"
        )
    _refuse_foreign(shares, [bar, *rest], name)
    return tuple(
        None if share is None else _check_value(share, spec, f"the cotangent of argument {i}", name, rule)
        for i, (share, spec) in enumerate(zip(shares, specs, strict=True))
    )


def _check_value(value: Any, spec: Spec, what: str, name: str, rule: Formula) -> Any:
    """A cotangent or tangent of the right shape and kind, in its own memory."""
    try:
        value = as_value(value)
    except PullbackError:
        raise ArgumentError(
            f"{name}: {what} is a {type(value).__name__}, wanted an array.\n  {_rule_location(rule)}"
        ) from None
    value = _unwrap(value)
    found = spec_of(value)
    if found.shape != spec.shape:
        raise ShapeError(f"{name}: {what} has shape {found.shape}, wanted {spec.shape}.\n  {_rule_location(rule)}")
    if not spec.inexact:
        return None
    if found.weak is None and (not found.inexact or (found.dtype.kind == "c" and spec.dtype.kind != "c")):
        raise DtypeError(f"{name}: {what} is {found.dtype}, wanted {spec.dtype}.\n  {_rule_location(rule)}")
    if found.weak is not None:
        number = isinstance(value, int | float | complex)  # a weak symbol is checked by its spec
        return namespace_on(spec.device).asarray(value, spec.dtype) if number else astype(value, spec.dtype)
    return as_immutable(value) if is_array(value) else value


def _unwrap(value: Any) -> Any:
    """The value of an untracked tensor."""
    while isinstance(value, Tensor) and value.node is None:
        value = value.value
    return value


def _rule_location(rule: Formula) -> str:
    code = getattr(inspect.unwrap(rule.function), "__code__", None)
    return f"rule defined at {code.co_filename.rsplit('/', 1)[-1]}:{code.co_firstlineno}" if code else "in its rule"


def _check_tangents(found: Any, specs: Sequence[Spec], name: str, rule: Formula) -> list[Any]:
    """The tangents that a jvp rule returned, checked; None for zero."""
    outs = list(found) if isinstance(found, (tuple, list)) else [found]
    if len(outs) != len(specs):
        raise ArgumentError(
            f"{name}: the jvp rule returned {len(outs)} tangents for {len(specs)} results.\n  {_rule_location(rule)}"
        )
    return [
        None if t is None else _check_value(t, spec, f"the tangent of result {i}", name, rule)
        for i, (t, spec) in enumerate(zip(outs, specs, strict=True))
    ]


def _push_by_jvp(name: str, rule: Formula, tangents: Sequence[Any], known: _NamedValues) -> Any:
    """The tangent of the result by the user's jvp rule, checked."""
    pairs = zip(tangents, known.specs, strict=True)
    filled = tuple(t if t is not None or not s.inexact else zeros(s) for t, s in pairs)
    rest = known.look_up(_without_name(rule.names, "tangents"))
    found = _call_rule(rule, "tangents", filled, rest)
    outs = _check_tangents(found, known.out_specs, name, rule)
    _refuse_foreign(outs, [*filled, *rest], name)
    return tuple(outs) if known.has_several_results else outs[0]


def _push_by_vjp(name: str, rule: Formula, tangents: Sequence[Any], known: _NamedValues) -> Any:
    """The vjp rule is linear in `bar`: bar -> J^T bar. Its transpose is the tangent: t -> J t."""
    moving = [i for i, t in enumerate(tangents) if t is not None]
    rest = known.look_up(_without_name(rule.names, "bar"))
    spare: SpareResults | None = known.static.get(CALL_PARAMETER)
    count = len(known.out_specs) if spare is None else spare.results
    floats = [i for i, spec in enumerate(known.out_specs[:count]) if spec.inexact]

    def pull_flat(*bars: Any) -> list[Any]:
        given = dict(zip(floats, bars, strict=True))
        bar = (
            tuple(given.get(i, spec) for i, spec in enumerate(known.out_specs))
            if known.has_several_results
            else bars[0]
        )
        shares = _pull_by_vjp(name, rule, known.specs, bar, *rest)
        return [zeros(known.specs[i]) if shares[i] is None else shares[i] for i in moving]

    along = [tangents[i] for i in moving]
    what = f"{name}: the tangent is the transpose of the vjp rule"
    results = transpose_linear(pull_flat, [known.out_specs[i] for i in floats], what)(along)
    if not known.has_several_results:
        return results[0]
    found = dict(zip(floats, results, strict=True))
    return (*map(found.get, range(count)), *(() if spare is None else spare.spare_tangents(known.out)))


def _pull_by_jvp(name: str, rule: Formula, specs: Sequence[Spec], bar: Any, *rest: Any) -> tuple[Any, ...]:
    """The jvp rule is linear in `tangents`: t -> J t. Its transpose is the cotangent: bar -> J^T bar."""
    moving = [i for i, spec in enumerate(specs) if spec.inexact]
    several = isinstance(bar, tuple)
    given_bars = bar if several else (bar,)
    spare: SpareResults | None = dict(zip(_without_name(rule.names, "tangents"), rest, strict=True)).get(CALL_PARAMETER)
    count = len(given_bars) if spare is None else spare.results
    if spare is not None:
        spare.refuse_spare_cotangents(given_bars)
    bars = [zeros(b) if isinstance(b, Spec) else b for b in given_bars[:count]]
    every = [b if isinstance(b, Spec) else spec_of(b) for b in given_bars]

    def push_flat(*tangents: Any) -> list[Any]:
        given = dict(zip(moving, tangents, strict=True))
        found = _call_rule(rule, "tangents", tuple(given.get(i) for i in range(len(specs))), rest)
        outs = _check_tangents(found, every, name, rule)[:count]
        _refuse_foreign(outs, [*tangents, *rest], name)
        return [zeros(spec) if t is None else t for t, spec in zip(outs, every[:count], strict=True)]

    what = f"{name}: the cotangent is the transpose of the jvp rule"
    pull = transpose_linear(push_flat, [specs[i] for i in moving], what)
    with pause_anomaly_checks():
        shares = dict(zip(moving, pull(bars), strict=True))
    return tuple(shares.get(i) for i in range(len(specs)))


def _raise_no_rule(name: str) -> Any:
    raise GraphError(f"{name}: this custom op has no derivative.\n  Give it one: def_vjp or def_jvp.")


def _batch_one_by_one(op: Op, size: int, xs: Sequence[Any], axes: Sequence[int | None], static: dict[str, Any]) -> Any:
    """A batch element by element, for an op without a batch rule."""
    if size == 0:
        raise ArgumentError(f"{op.name}: a batch of no elements needs a rule of its own.\n  Give it def_batch.")
    rows = []
    for i in range(size):
        pairs = zip(xs, axes, strict=True)
        picked = [x if axis is None else getitem(x, (*(slice(None),) * axis, i)) for x, axis in pairs]
        rows.append(run(op, picked, static))
    if type(rows[0]) is tuple:
        return tuple(stack(parts) for parts in zip(*rows, strict=True)), (0,) * len(rows[0])
    return stack(rows), 0


def _check_batch(found: Any, size: int, name: str) -> tuple[Any, Any]:
    """The checked result of a def_batch rule: results whose axes count the elements."""
    if not isinstance(found, tuple) or len(found) != 2:
        raise ArgumentError(f"{name}: the batch rule returns (result, axis), got a {type(found).__name__}.")
    out, axis = found
    several = isinstance(out, (tuple, list))
    outs = tuple(out) if several else (out,)
    along = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    if len(outs) != len(along):
        raise ArgumentError(f"{name}: the batch rule returned {len(outs)} results and {len(along)} axes.")
    for x, a in zip(outs, along, strict=True):
        shape = spec_of(as_value(x)).shape
        if a is not None and (not isinstance(a, int) or not 0 <= a < len(shape) or shape[a] != size):
            raise ShapeError(f"{name}: the batch rule returned shape {shape} with axis {a} for {size} elements.")
    return (outs, along) if several else (outs[0], along[0])


def as_bare_results(out: Any, name: str) -> Any:
    """The results of the user's function, as immutable bare arrays."""
    if isinstance(out, (tuple, list)):
        if not out:
            raise ArgumentError(f"{name}: the function returned no results.")
        return tuple(_as_bare_array(x, name) for x in out)
    return _as_bare_array(out, name)


def _as_bare_array(x: Any, name: str) -> Any:
    if isinstance(x, Value):
        if is_tracked(x):
            raise GraphError(
                f"{name}: the function used a tracked value that is not an argument of it, "
                "so its gradient would be lost.\n  Pass it as an argument."
            )
        x = x.value  # type: ignore[attr-defined]
    if (
        not (is_array(x) or isinstance(x, (np.generic, *_NUMBERS)))
        or getattr(x, "dtype", np.dtype(float)).kind in "OSU"
    ):
        raise ArgumentError(f"{name}: the function returned a {type(x).__name__}, wanted arrays.")
    return as_immutable(x)  # the function may return one buffer again and again, or an argument


def is_tracked(x: Any) -> bool:
    """Whether a value may carry derivatives: tracked, or of a transform."""
    return isinstance(x, Value) and (not isinstance(x, Tensor) or x.node is not None or isinstance(x.value, Value))


def captured_value_error(name: str) -> GraphError:
    """The error of a rule that uses a tracked value which is not an argument."""
    return GraphError(
        f"{name}: a rule uses a tracked value that is not an argument of the op, so a term of the "
        "derivative would be lost.\n  Pass it as an argument of the op."
    )


def _values_in(given: Any) -> list[Any]:
    return [x for x in flatten(list(given))[0] if isinstance(x, Value) and type(x) is not UnknownTangent]


def _refuse_higher(found: Any, given: Sequence[Any], name: str) -> None:
    """Raise if a result has a higher level than what it was computed from."""
    level = max((x.level for x in _values_in(given)), default=0)
    for x in map(_unwrap, _values_in(found if isinstance(found, tuple) else [found])):
        if is_tracked(x) and x.level > level:
            raise captured_value_error(name)


def _refuse_foreign(found: Sequence[Any], given: Sequence[Any], name: str) -> None:
    """Raise if the result of a rule depends on anything but its arguments; checked at each use."""
    _refuse_higher(tuple(found), given, name)
    nodes = {x.node for x in _values_in(given) if isinstance(x, Tensor)}
    for x in _values_in(found):
        if isinstance(x, Tensor) and _has_other_roots(x.node, nodes):
            raise captured_value_error(name)


def _has_other_roots(start: Node | None, known: set[Node | None]) -> bool:
    """Whether a path from a node ends in a leaf without passing a known node; a variable of a finished call inside the
    rule does not count.
    """
    found = [] if start is None or start in known else [start]
    seen: set[Node] = set(found)
    for node in found:  # grows during the loop
        if node.is_leaf and call_status(node) != "over":
            return True
        fresh = [parent for parent in node.parents if parent not in known and parent not in seen]
        seen.update(fresh)
        found += fresh
    return False
