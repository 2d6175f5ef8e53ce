"""Derivative rules of a custom op in, its record out: of vjp and jvp, a missing one is the other's transpose."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from ..arrays.backends import is_array, namespace_on
from ..arrays.node import Node, call_of
from ..arrays.protect import read_only, settled
from ..arrays.scope import aside
from ..arrays.spec import Spec, spec_of, zeros
from ..arrays.tensor import Tensor, another
from ..arrays.trees import flatten
from ..arrays.value import Value
from ..errors import ArgumentError, DtypeError, GraphError, PullbackError, ShapeError
from ..ops.arranging import stack
from ..ops.dispatch import as_value, run
from ..ops.indexing import getitem
from ..ops.op import Op, Terms
from ..ops.shaping import astype
from ..settings import switched
from .linear import transposed

__all__ = ["CALL", "Unknown", "bare_results", "captured", "carries", "custom_record", "guarded"]

#: The static parameter of an op in class form; no parameter of Python has such a name.
CALL = "@call"
_NUMBERS = (bool, int, float, complex)


def custom_record(
    name: str,
    args: tuple[str, ...],
    value: Callable[..., Any],
    vjp: Terms | None,
    jvp: Terms | None,
    batch: Callable[..., Any] | None,
    spec: Callable[..., Any] | None,
) -> Op:
    """The record of an op from the rules that are there. A rule finds the spec where there is no cotangent.

    Where a static parameter `CALL` is given, the last results are not the function's but saved ones, of which the rules
    know nothing; it says how many there are.
    """
    if vjp is not None:
        joint = Terms(functools.partial(_pulled, name, vjp), ("specs", "bar", *_but(vjp.names, "bar")))
    elif jvp is not None:
        joint = Terms(functools.partial(_pulled_by_jvp, name, jvp), ("specs", "bar", *_but(jvp.names, "tangents")))
    else:
        joint = Terms(functools.partial(_no_rule, name), ())

    def computed(xp: Any, *arrays: Any, **static: Any) -> Any:
        with aside():
            return value(xp, *arrays, **static)

    def push(tangents: Sequence[Any], out: Any, primals: Sequence[Any], static: dict[str, Any]) -> Any:
        known = _Known(args, primals, out, static)
        if not any(s.inexact for s in known.out_specs):
            return None
        if jvp is None and vjp is None:
            return _no_rule(name)
        pushed = _pushed(name, jvp, tangents, known) if jvp else _pushed_by_vjp(name, vjp, tangents, known)  # type: ignore[arg-type]
        _refuse_higher(pushed, [*tangents, *primals, out], name)
        return pushed

    def batched(op: Op, size: int, xs: Sequence[Any], axes: Sequence[int | None], static: dict[str, Any]) -> Any:
        if batch is None:
            return _one_by_one(op, size, xs, axes, static)
        return _checked_batch(batch(size, tuple(axes), *xs, **static), size, name)

    return Op(
        name=name, family="custom", args=args, value=computed, spec=spec, pulls={}, joint=joint, push=push,
        batch=batched, samples=lambda rng: [], doc="",
    )  # fmt: skip


class Spare(Protocol):
    """What is known of the further results of an op: how many are the function's own, and the tangents of the rest."""

    results: int

    def spare_tangents(self, out: tuple[Any, ...]) -> list[Any]:
        """What stands for the tangents of the further results."""

    def refuse_spare(self, bars: Sequence[Any]) -> None:
        """Raise if one of the further results has a cotangent."""


class Unknown(Value):
    """The tangent of a value whose derivative nobody knows: any op on it raises."""

    __slots__ = ("error", "spec")

    def __init__(self, spec: Spec, error: GraphError) -> None:
        self.spec = spec.guarded()
        self.error = error

    @property
    def level(self) -> int:
        return sys.maxsize

    def interpret(self, op: Any, args: Sequence[Any], static: dict[str, Any]) -> Any:
        raise self.error


class _Known:
    """What a rule may name, by its name."""

    __slots__ = ("args", "out", "out_specs", "primals", "specs", "static")

    def __init__(self, args: tuple[str, ...], primals: Sequence[Any], out: Any, static: dict[str, Any]) -> None:
        self.args, self.primals, self.out, self.static = args, primals, out, static
        self.specs = [spec_of(x) for x in primals]
        self.out_specs = [spec_of(x) for x in out] if type(out) is tuple else [spec_of(out)]

    @property
    def several(self) -> bool:
        return type(self.out) is tuple

    def named(self, names: Sequence[str]) -> list[Any]:
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


def _but(names: tuple[str, ...], special: str) -> tuple[str, ...]:
    return tuple(n for n in names if n != special)


def _call(rule: Terms, special: str, value: Any, rest: Sequence[Any]) -> Any:
    """The answer of a rule: the special one of its arguments in its place among the rest."""
    others = iter(map(guarded, rest))
    return rule.formula(*(guarded(value) if n == special else next(others) for n in rule.names))


def guarded(x: Any) -> Any:
    """What the user's code is given: arrays it cannot write to, and tensors of its own."""
    if isinstance(x, tuple):
        return tuple(map(guarded, x))
    return read_only(x) if is_array(x) else another(x)


def _pulled(name: str, rule: Terms, specs: Sequence[Spec], bar: Any, *rest: Any) -> tuple[Any, ...]:
    """The cotangents of all arguments by the user's vjp rule, checked."""
    found = _call(rule, "bar", bar, rest)
    shares = found if isinstance(found, (tuple, list)) else (found,)
    if len(shares) != len(specs):
        raise ArgumentError(
            f"{name}: the vjp rule returned {len(shares)} cotangents for {len(specs)} arguments.\n  {_line(rule)}"
        )
    _refuse_foreign(shares, [bar, *rest], name)
    return tuple(
        None if share is None else _checked(share, spec, f"the cotangent of argument {i}", name, rule)
        for i, (share, spec) in enumerate(zip(shares, specs, strict=True))
    )


def _checked(value: Any, spec: Spec, what: str, name: str, rule: Terms) -> Any:
    """A cotangent or tangent of the right shape and kind, in memory of its own."""
    try:
        value = as_value(value)
    except PullbackError:
        raise ArgumentError(f"{name}: {what} is a {type(value).__name__}, wanted an array.\n  {_line(rule)}") from None
    value = _unwrapped(value)
    found = spec_of(value)
    if found.shape != spec.shape:
        raise ShapeError(f"{name}: {what} has shape {found.shape}, wanted {spec.shape}.\n  {_line(rule)}")
    if not spec.inexact:
        return None
    if found.weak is None and (not found.inexact or (found.dtype.kind == "c" and spec.dtype.kind != "c")):
        raise DtypeError(f"{name}: {what} is {found.dtype}, wanted {spec.dtype}.\n  {_line(rule)}")
    if found.weak is not None:
        number = isinstance(value, int | float | complex)  # a weak symbol has no numbers yet
        return namespace_on(spec.device).asarray(value, spec.dtype) if number else astype(value, spec.dtype)
    return settled(value) if is_array(value) else value


def _unwrapped(value: Any) -> Any:
    """What a tensor that is not tracked stands for."""
    while isinstance(value, Tensor) and value.node is None:
        value = value.value
    return value


def _line(rule: Terms) -> str:
    code = getattr(inspect.unwrap(rule.formula), "__code__", None)
    return f"the rule stands at {code.co_filename.rsplit('/', 1)[-1]}:{code.co_firstlineno}" if code else "in its rule"


def _tangents_out(found: Any, specs: Sequence[Spec], name: str, rule: Terms) -> list[Any]:
    """The tangents that a jvp rule returned, checked; None for zero."""
    outs = list(found) if isinstance(found, (tuple, list)) else [found]
    if len(outs) != len(specs):
        raise ArgumentError(
            f"{name}: the jvp rule returned {len(outs)} tangents for {len(specs)} results.\n  {_line(rule)}"
        )
    return [
        None if t is None else _checked(t, spec, f"the tangent of result {i}", name, rule)
        for i, (t, spec) in enumerate(zip(outs, specs, strict=True))
    ]


def _pushed(name: str, rule: Terms, tangents: Sequence[Any], known: _Known) -> Any:
    """The tangent of the result by the user's jvp rule, checked."""
    pairs = zip(tangents, known.specs, strict=True)
    filled = tuple(t if t is not None or not s.inexact else zeros(s) for t, s in pairs)
    rest = known.named(_but(rule.names, "tangents"))
    found = _call(rule, "tangents", filled, rest)
    outs = _tangents_out(found, known.out_specs, name, rule)
    _refuse_foreign(outs, [*filled, *rest], name)
    return tuple(outs) if known.several else outs[0]


def _pushed_by_vjp(name: str, rule: Terms, tangents: Sequence[Any], known: _Known) -> Any:
    """The vjp rule is linear in `bar`: bar -> J^T bar. Its transpose is the tangent: t -> J t."""
    moving = [i for i, t in enumerate(tangents) if t is not None]
    rest = known.named(_but(rule.names, "bar"))
    spare: Spare | None = known.static.get(CALL)
    count = len(known.out_specs) if spare is None else spare.results
    floats = [i for i, spec in enumerate(known.out_specs[:count]) if spec.inexact]

    def pulled(*bars: Any) -> list[Any]:
        given = dict(zip(floats, bars, strict=True))
        bar = tuple(given.get(i, spec) for i, spec in enumerate(known.out_specs)) if known.several else bars[0]
        shares = _pulled(name, rule, known.specs, bar, *rest)
        return [zeros(known.specs[i]) if shares[i] is None else shares[i] for i in moving]

    along = [tangents[i] for i in moving]
    what = f"{name}: the tangent is the transpose of the vjp rule"
    answers = transposed(pulled, [known.out_specs[i] for i in floats], what)(along)
    if not known.several:
        return answers[0]
    found = dict(zip(floats, answers, strict=True))
    return (*map(found.get, range(count)), *(() if spare is None else spare.spare_tangents(known.out)))


def _pulled_by_jvp(name: str, rule: Terms, specs: Sequence[Spec], bar: Any, *rest: Any) -> tuple[Any, ...]:
    """The jvp rule is linear in `tangents`: t -> J t. Its transpose is the cotangent: bar -> J^T bar."""
    moving = [i for i, spec in enumerate(specs) if spec.inexact]
    several = isinstance(bar, tuple)
    given_bars = bar if several else (bar,)
    spare: Spare | None = dict(zip(_but(rule.names, "tangents"), rest, strict=True)).get(CALL)
    count = len(given_bars) if spare is None else spare.results
    if spare is not None:
        spare.refuse_spare(given_bars)
    bars = [zeros(b) if isinstance(b, Spec) else b for b in given_bars[:count]]
    every = [b if isinstance(b, Spec) else spec_of(b) for b in given_bars]

    def pushed(*tangents: Any) -> list[Any]:
        given = dict(zip(moving, tangents, strict=True))
        found = _call(rule, "tangents", tuple(given.get(i) for i in range(len(specs))), rest)
        outs = _tangents_out(found, every, name, rule)[:count]
        _refuse_foreign(outs, [*tangents, *rest], name)
        return [zeros(spec) if t is None else t for t, spec in zip(outs, every[:count], strict=True)]

    what = f"{name}: the cotangent is the transpose of the jvp rule"
    pull = transposed(pushed, [specs[i] for i in moving], what)
    with switched(anomaly=False):  # what is wrong with the answer is found where it arrives
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
        pairs = zip(xs, axes, strict=True)
        picked = [x if axis is None else getitem(x, (*(slice(None),) * axis, i)) for x, axis in pairs]
        rows.append(run(op, picked, static))
    if type(rows[0]) is tuple:
        return tuple(stack(parts) for parts in zip(*rows, strict=True)), (0,) * len(rows[0])
    return stack(rows), 0


def _checked_batch(found: Any, size: int, name: str) -> tuple[Any, Any]:
    """What a def_batch rule answered: results whose axes count the elements."""
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


def bare_results(out: Any, name: str) -> Any:
    """What the user's function returned, as bare arrays that nobody can write to any more."""
    if isinstance(out, (tuple, list)):
        if not out:
            raise ArgumentError(f"{name}: the function returned no results.")
        return tuple(_bare(x, name) for x in out)
    return _bare(out, name)


def _bare(x: Any, name: str) -> Any:
    if isinstance(x, Value):
        if carries(x):
            raise GraphError(
                f"{name}: the function used a value that carries derivatives but is no argument of it, "
                "so its gradient would be lost.\n  Pass it as an argument."
            )
        x = x.value  # type: ignore[attr-defined]
    if (
        not (is_array(x) or isinstance(x, (np.generic, *_NUMBERS)))
        or getattr(x, "dtype", np.dtype(float)).kind in "OSU"
    ):
        raise ArgumentError(f"{name}: the function returned a {type(x).__name__}, wanted arrays.")
    return settled(x)  # the function may hand out one buffer again and again, or what it was given


def carries(x: Any) -> bool:
    """Whether a value may carry derivatives: tracked, or of a transform."""
    return isinstance(x, Value) and (not isinstance(x, Tensor) or x.node is not None or isinstance(x.value, Value))


def captured(name: str) -> GraphError:
    """The error of a rule that uses what it was not given."""
    return GraphError(
        f"{name}: a rule uses a value that carries derivatives but is no argument of the op, so a term of the "
        "derivative would be lost.\n  Pass it as an argument of the op."
    )


def _values_in(given: Any) -> list[Any]:
    return [x for x in flatten(list(given))[0] if isinstance(x, Value) and type(x) is not Unknown]


def _refuse_higher(found: Any, given: Sequence[Any], name: str) -> None:
    """The answer may lie no higher than what it was computed from."""
    level = max((x.level for x in _values_in(given)), default=0)
    for x in map(_unwrapped, _values_in(found if isinstance(found, tuple) else [found])):
        if carries(x) and x.level > level:
            raise captured(name)


def _refuse_foreign(found: Sequence[Any], given: Sequence[Any], name: str) -> None:
    """What a rule returns may depend on nothing but what it was given; asked at each use."""
    _refuse_higher(tuple(found), given, name)
    nodes = {x.node for x in _values_in(given) if isinstance(x, Tensor)}
    for x in _values_in(found):
        if isinstance(x, Tensor) and _has_other_roots(x.node, nodes):
            raise captured(name)


def _has_other_roots(start: Node | None, known: set[Node | None]) -> bool:
    """Whether a path from a node ends in a leaf without passing a known node; a variable of a call inside the rule
    that is over is none.
    """
    found = [] if start is None or start in known else [start]
    seen: set[Node] = set(found)
    for node in found:  # grows as it goes
        if node.is_leaf and call_of(node) != "over":
            return True
        fresh = [parent for parent in node.parents if parent not in known and parent not in seen]
        seen.update(fresh)
        found += fresh
    return False
