"""The record of a custom op from its derivative rules: of vjp and jvp, a missing one is the transpose of the other."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...arrays.argument_checks import short_repr
from ...arrays.backends import is_array, namespace_on
from ...arrays.conversion_advice import mark_ruled_call
from ...arrays.node import Node
from ...arrays.protect import as_immutable, read_only_view
from ...arrays.scope import outside_transforms
from ...arrays.spec import Spec, spec_of, zeros
from ...arrays.tensor import Tensor, alias
from ...arrays.trees import flatten
from ...arrays.value import SymbolicValue, Value
from ...errors import ArgumentError, DtypeError, GraphError, PullbackError, ShapeError
from ...ops.dispatch import as_value, run
from ...ops.index.indexing import getitem
from ...ops.op import PURE, UNKNOWN, Formula, Op
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
    vjp: Formula | None = None,
    jvp: Formula | None = None,
    batch: Callable[..., Any] | None = None,
    spec: Callable[..., Any] | None = None,
    form: Any = None,
) -> Op:
    """The record of an op from the given rules. A rule gets the spec in place of a missing cotangent. One of the
    package's own has a `form`, and no side effects.

    With a static parameter `CALL_PARAMETER`, the last results are saved values, which the rules do not see; it holds
    the number of the others.
    """
    by_vjp = None if vjp is None else _Rule(name, vjp, "vjp", "bar", "cotangent", "argument")
    by_jvp = None if jvp is None else _Rule(name, jvp, "jvp", "tangents", "tangent", "result")

    def compute(xp: Any, *arrays: Any, **static: Any) -> Any:
        # The function sees bare arrays: tensors that it makes belong to no transform around the op.
        with outside_transforms():
            return value(xp, *arrays, **static)

    mark_ruled_call(compute)

    def push(tangents: Sequence[Any], out: Any, primals: Sequence[Any], static: dict[str, Any]) -> Any:
        outs = [spec_of(x) for x in (out if type(out) is tuple else (out,))]
        if not any(s.inexact for s in outs):
            return None
        specs, rule = tuple(map(spec_of, primals)), by_jvp or by_vjp
        if rule is None:
            return _raise_no_rule(name)
        pull_rule = record.rule(tuple(range(len(specs))), len(specs))
        rest = pull_rule.values_of(rule.other_names, out, tuple(primals), specs, static)
        pushed = (_push_by_jvp if by_jvp else _push_by_vjp)(rule, tangents, specs, out, outs, rest)
        # What a rule closes over would lie above all that it was given.
        _refuse_higher(pushed, [*tangents, *primals, out], name)
        return pushed

    def batch_op(op: Op, size: int, xs: Sequence[Any], axes: Sequence[int | None], static: dict[str, Any]) -> Any:
        if batch is None:
            return _batch_one_by_one(op, size, xs, axes, static)
        return _check_batch(batch(size, tuple(axes), *xs, **static), size, name)

    record = Op(
        name=name, family="custom", args=args, value=compute, spec=spec, pulls={}, push=push, batch=batch_op,
        joint=_joint_pull(name, by_vjp, by_jvp), samples=lambda rng: [], form=form,
        effects=UNKNOWN if form is None else PURE,
    )  # fmt: skip
    return record


def check_autocast(given: Any, what: str) -> str:
    """What an op of the user's does under `pb.autocast`."""
    if given not in ("low", "high", "promote"):
        raise ArgumentError(f'{what} is "low", "high" or "promote", got {short_repr(given)}.')
    return str(given)


def _joint_pull(name: str, by_vjp: _Rule | None, by_jvp: _Rule | None) -> Formula:
    """The formula for the cotangents of all arguments together: the vjp rule, or the transpose of the jvp rule."""
    if by_vjp is not None:
        return Formula(lambda specs, bar, *rest: tuple(by_vjp(bar, rest, specs)), ("specs", "bar", *by_vjp.other_names))
    if by_jvp is not None:
        return Formula(functools.partial(_pull_by_jvp, by_jvp), ("specs", "bar", *by_jvp.other_names))
    return Formula(functools.partial(_raise_no_rule, name), ())


class UnknownTangent(SymbolicValue):
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


class _Rule(NamedTuple):
    """A user's rule, linear in its `special` argument: a vjp makes cotangents, a jvp tangents."""

    name: str
    formula: Formula
    kind: str
    special: str
    made: str
    owner: str

    @property
    def other_names(self) -> tuple[str, ...]:
        """What the rule names beside the cotangents or tangents that it is linear in."""
        return tuple(n for n in self.formula.names if n != self.special)

    def __call__(self, given: Any, rest: Sequence[Any], specs: Sequence[Spec]) -> list[Any]:
        """What the rule makes of cotangents or tangents, checked against the specs; None is zero."""
        others = iter(map(guard_argument, rest))
        names = self.formula.names
        found = self.formula.function(*(guard_argument(given) if n == self.special else next(others) for n in names))
        made = found if isinstance(found, (tuple, list)) else (found,)
        if len(made) != len(specs):
            raise ArgumentError(
                f"{self.name}: the {self.kind} rule returned {len(made)} {self.made}s for {len(specs)} "
                f"{self.owner}s.\n  {self.location}"
            )
        # At each use, since a rule may come to close over a tracked value after it was defined.
        _refuse_foreign(made, [given, *rest], self.name)
        return [self._check(x, spec, i) for i, (x, spec) in enumerate(zip(made, specs, strict=True))]

    def _check(self, value: Any, spec: Spec, number: int) -> Any:
        """A cotangent or tangent of the right shape and kind, in its own memory."""
        if value is None:
            return None
        what = f"{self.name}: the {self.made} of {self.owner} {number}"
        try:
            value = _unwrap(as_value(value))
        except PullbackError:
            raise ArgumentError(f"{what} is a {type(value).__name__}, wanted an array.\n  {self.location}") from None
        found = spec_of(value)
        if found.shape != spec.shape:
            raise ShapeError(f"{what} has shape {found.shape}, wanted {spec.shape}.\n  {self.location}")
        # An integer argument has no cotangent, whatever the rule returns for it.
        if not spec.inexact:
            return None
        if found.weak is None and (not found.inexact or (found.dtype.kind == "c" and spec.dtype.kind != "c")):
            raise DtypeError(f"{what} is {found.dtype}, wanted {spec.dtype}.\n  {self.location}")
        if found.weak is not None:
            is_number = isinstance(value, int | float | complex)  # a weak symbol is checked by its spec
            return namespace_on(spec.device).asarray(value, spec.dtype) if is_number else astype(value, spec.dtype)
        return as_immutable(value) if is_array(value) else value

    @property
    def location(self) -> str:
        code = getattr(inspect.unwrap(self.formula.function), "__code__", None)
        return f"rule defined at {code.co_filename.rsplit('/', 1)[-1]}:{code.co_firstlineno}" if code else "in its rule"

    def transpose(
        self,
        given: Sequence[Any],
        pack: Callable[[dict[int, Any]], Any],
        ins: Sequence[Spec],
        outs: Sequence[Spec],
        used: Sequence[int],
        rest: Sequence[Any],
    ) -> dict[int, Any]:
        """The transpose of the linear map from what the rule takes (of specs `ins`, which `pack` puts together) to the
        `used` ones of what it makes (of specs `outs`), applied to `given`.
        """
        # The map is transposed over the whole space of its inputs, so a None that it makes is filled with zeros.
        varying = [i for i, spec in enumerate(ins) if spec.inexact]

        def apply_rule(*values: Any) -> list[Any]:
            made = self(pack(dict(zip(varying, values, strict=True))), rest, outs)
            return [zeros(outs[i]) if made[i] is None else made[i] for i in used]

        derived = {"cotangent": "tangent", "tangent": "cotangent"}[self.made]
        what = f"{self.name}: the {derived} is the transpose of the {self.kind} rule"
        found = transpose_linear(apply_rule, [ins[i] for i in varying], what)(given)
        return dict(zip(varying, found, strict=True))


def guard_argument(x: Any) -> Any:
    """A value as user code gets it: arrays it cannot write to, and its own tensors."""
    # Several results, or the arguments of a variadic op.
    if isinstance(x, tuple):
        return tuple(map(guard_argument, x))
    return read_only_view(x) if is_array(x) else alias(x)


def _unwrap(value: Any) -> Any:
    """The value of an untracked tensor."""
    while isinstance(value, Tensor) and value.node is None:
        value = value.value
    return value


def _push_by_jvp(
    rule: _Rule, tangents: Sequence[Any], specs: Sequence[Spec], out: Any, outs: list[Spec], rest: Sequence[Any]
) -> Any:
    """The tangent of the result by the user's jvp rule."""
    filled = tuple(t if t is not None or not s.inexact else zeros(s) for t, s in zip(tangents, specs, strict=True))
    pushed = rule(filled, rest, outs)
    return tuple(pushed) if type(out) is tuple else pushed[0]


def _push_by_vjp(
    rule: _Rule, tangents: Sequence[Any], specs: Sequence[Spec], out: Any, outs: list[Spec], rest: Sequence[Any]
) -> Any:
    """The vjp rule is linear in `bar`: bar -> J^T bar. Its transpose is the tangent: t -> J t."""
    moving = [i for i, t in enumerate(tangents) if t is not None]
    along = [tangents[i] for i in moving]
    # A single result stands alone as `bar`; several are a tuple, with the specs of those without cotangent.
    if type(out) is not tuple:
        return rule.transpose(along, lambda bars: bars[0], outs, specs, moving, rest)[0]
    call = _function_call(rule, rest)
    count = len(outs) if call is None else call.results

    def pack(bars: dict[int, Any]) -> tuple[Any, ...]:
        return tuple(bars.get(i, spec) for i, spec in enumerate(outs))

    found = rule.transpose(along, pack, outs[:count], specs, moving, rest)
    return (*map(found.get, range(count)), *(() if call is None else call.spare_tangents(out)))


def _pull_by_jvp(rule: _Rule, specs: Sequence[Spec], bar: Any, *rest: Any) -> tuple[Any, ...]:
    """The jvp rule is linear in `tangents`: t -> J t. Its transpose is the cotangent: bar -> J^T bar."""
    bars = bar if isinstance(bar, tuple) else (bar,)
    call = _function_call(rule, rest)
    if call is not None:
        call.refuse_spare_cotangents(bars)
    used = range(len(bars) if call is None else call.results)
    filled = [zeros(bars[i]) if isinstance(bars[i], Spec) else bars[i] for i in used]
    outs = [b if isinstance(b, Spec) else spec_of(b) for b in bars]

    def pack(tangents: dict[int, Any]) -> tuple[Any, ...]:
        return tuple(map(tangents.get, range(len(specs))))

    with pause_anomaly_checks():
        shares = rule.transpose(filled, pack, specs, outs, used, rest)
    return tuple(map(shares.get, range(len(specs))))


def _function_call(rule: _Rule, rest: Sequence[Any]) -> Any:
    """The call of a `Function` that a rule belongs to: it knows how many results are the function's own, and refuses
    derivatives of the others, which `forward` only saved.
    """
    return dict(zip(rule.other_names, rest, strict=True)).get(CALL_PARAMETER)


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
        if node.is_owned_leaf:
            return True
        fresh = [parent for parent in node.parents if parent not in known and parent not in seen]
        seen.update(fresh)
        found += fresh
    return False
