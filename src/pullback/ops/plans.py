"""Call plans: what a call of an op on plain tensors needs, found once for its specs and static parameters.

A plan holds the NumPy function with its parameters bound, the result's spec and the rules for each choice of tracked
arguments, so a call computes, fills in a node and returns. `record` (`ops/record.py`) is the general path beside it,
and a test holds the two equal. A plan is made the second time that a call is seen: many calls are made once. On a GPU
the function is CuPy's, or a kernel of the op that is launched directly.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np

from ..arrays.call_site import known_files, user_line
from ..arrays.node import Node, PlannedCall
from ..arrays.protect import as_immutable
from ..arrays.spec import Spec, make_spec, spec_of
from ..arrays.tensor import Tensor
from ..settings import (
    COMMON_MODES,
    INFERENCE,
    PLAIN,
    UNRECORDED,
    Modes,
    modes,
    modes_below_timer,
    override_modes,
)  # fmt: skip
from .binding import bind_function, converter
from .op import BOTH, OUT, PURE, SECOND, Op, StaticMark
from .timed_calls import time_planned

_getframe = sys._getframe
_ndarray = np.ndarray
_NUMBERS = (float, int, bool)
#: What static parameters of a planned call consist of; each of them equals nothing that means something else.
_STATICS = (bool, int, str, np.dtype, type(None), StaticMark)
#: Beyond so many entries a table of plans is emptied: its program keeps calling with other specs or parameters.
_MOST_PLANS = 1 << 12


class CallPlan(NamedTuple):
    """How a call runs in the default modes, under `no_grad` and under `inference_mode`; None: by the general path.
    `spec` is that of its result, or a tuple.
    """

    op: Op
    spec: Any
    record: Callable[..., Any] | None
    evaluate: Callable[..., Any] | None
    infer: Callable[..., Any]

    def in_mode(self, mode: Modes) -> Callable[..., Any] | None:
        if mode is PLAIN:
            return self.record
        return self.evaluate if mode is UNRECORDED else self.infer if mode is INFERENCE else self._timed(mode)

    def _timed(self, mode: Modes) -> Callable[..., Any] | None:
        """The same with a timer around it."""
        instruments = mode.instruments
        if instruments is None or (timer := instruments.timer) is None:
            return None
        if mode is timer.plain:
            run = self.record
        else:
            run = self.evaluate if mode is timer.unrecorded else self.infer if mode is timer.inference else None
        return None if run is None else partial(time_planned, timer, self.op, run)


#: Plans by what determines them; None where a call was seen once, False where there can be no plan.
Plans = dict[Any, CallPlan | bool | None]
_tables: list[Plans] = []


def new_table() -> Plans:
    """An empty table of plans."""
    table: Plans = {}
    _tables.append(table)
    return table


def forget_plans() -> None:
    """Empty every table of plans."""
    for table in _tables:
        table.clear()


_plans = new_table()


def learn(plans: Plans, key: Any, make: Callable[[], CallPlan | None]) -> None:
    """Note that a call was seen; the second time, make its plan."""
    if not _MOST_PLANS or (modes() not in COMMON_MODES and modes_below_timer(modes()) is None):
        return
    if key not in plans:
        if len(plans) >= _MOST_PLANS:
            plans.clear()
        plans[key] = None
    elif plans[key] is None:
        with override_modes(instruments=None):  # it may try the op, which is none of the program's calls
            plans[key] = make() or False


def call_key(op: Op, args: Sequence[Any], static: dict[str, Any]) -> tuple[Any, ...] | None:
    """What determines the plan of a call; None if it can have none."""
    key: list[Any] = [op]
    for x in args:
        kind = type(x)
        if kind is Tensor:
            number = x.spec.number
            if not number:
                return None
            key.append(number)
        elif kind is _ndarray:
            key.append((x.dtype.num, x.shape))
        elif kind in _NUMBERS:
            key.append(kind)
        else:
            return None
    for name, value in static.items():
        key.append((name, _freeze(value) if type(value) is tuple and slice in map(type, value) else value))
    return tuple(key)


def _freeze(index: tuple[Any, ...]) -> tuple[Any, ...]:
    """An index as it may stand in a key: before Python 3.12 slices have no hash."""
    return tuple([(slice, i.start, i.stop, i.step) if type(i) is slice else i for i in index])


def find_plan(key: tuple[Any, ...] | None) -> CallPlan | bool | None:
    """The plan of a call by its key; False if it can have none, None if it is not made yet."""
    try:
        return False if key is None else _plans.get(key)
    except TypeError:  # a static parameter without a hash
        return False


def learn_call(key: Any, make: Callable[[], CallPlan | None]) -> None:
    """Note a call of an op that went by the general path."""
    learn(_plans, key, make)


def specs_of_call(op: Op, args: Sequence[Any], static: dict[str, Any]) -> tuple[tuple[Spec, ...], Any] | None:
    """The specs of arguments and results (several as a tuple) of a call that can have a plan."""
    if op.statics is None or op.spec is None or op.effects is not PURE or op.meet is not None or op.stops_tapes:
        return None
    if not all(map(_is_fixed, static.values())) or not all(map(_is_common, args)):
        return None
    given = [spec_of(x) for x in args]
    specs = tuple([make_spec(s.shape, s.dtype, s.device) if s.number < 0 else s for s in given])
    out = op.spec(*specs, **static)
    devices = {s.device for s in (out if type(out) is tuple else (out,))}
    devices |= {s.device for s in specs if s.weak is None}
    return (specs, out) if len(devices) == 1 else None


def make_plan(op: Op, args: Sequence[Any], static: dict[str, Any]) -> CallPlan | None:
    """The plan of a call with arguments like these (tensors, bare arrays, numbers) and one result, None if it can have
    none.
    """
    found = specs_of_call(op, args, static)
    if found is None or type(found[1]) is not Spec:
        return None
    specs, out = found
    compute = bind_function(op, specs, static)
    calls = _PlannedCalls(op, specs, static, out)
    bare = any(type(x) is not Tensor for x in args)
    evaluate = _evaluator(compute, out, 0 if bare else len(args))
    infer = _evaluator(compute, out.as_inference(), 0, "inference")
    if any(spec_of(x).number < 0 for x in args):
        return CallPlan(op, out, None, None, infer)
    if not (op.differentiable and out.inexact):
        return CallPlan(op, out, evaluate, evaluate, infer)
    if bare or len(args) > 2:
        return CallPlan(op, out, _recorder(compute, calls), evaluate, infer)
    record = (_unary_recorder if len(args) == 1 else _binary_recorder)(compute, calls)
    return CallPlan(op, out, record, evaluate, infer)


def _is_fixed(value: Any) -> bool:
    if type(value) is slice:
        value = (value.start, value.stop, value.step)
    return all(map(_is_fixed, value)) if type(value) is tuple else isinstance(value, _STATICS)


def _is_common(x: Any) -> bool:
    """Whether NumPy's functions alone know what to do with an argument: no dtype of another package."""
    return type(x) is not _ndarray or x.dtype.kind in "biuf"


class _PlannedCalls:
    """What nodes of a planned call point at, for each choice of tracked arguments."""

    __slots__ = ("_known", "_op", "_specs", "_static", "spec")

    def __init__(self, op: Op, specs: tuple[Spec, ...], static: dict[str, Any], spec: Spec) -> None:
        self._op, self._specs, self._static, self.spec = op, specs, static, spec
        self._known: dict[tuple[int, ...], PlannedCall] = {}

    def tracking(self, *needs: int) -> PlannedCall:
        found = self._known.get(needs)
        if found is None:
            rule = self._op.rule(needs, len(self._specs))
            found = self._known[needs] = PlannedCall(rule, self._specs, self._static, self.spec)
        return found


@lru_cache(256)
def tracked_call(op: Op, spec: Spec, dtype: Any) -> PlannedCall:
    """What nodes of a cast of a tracked tensor point at."""
    static = {"dtype": dtype}
    return _PlannedCalls(op, (spec,), static, op.spec_of((spec,), static)).tracking(0)


def _evaluator(compute: Callable[..., Any], spec: Spec, tensors: int, status: str = "") -> Callable[..., Any]:
    """What only computes; with a status, its results are marked."""
    as_array = converter(spec)

    def evaluate_one(x: Tensor) -> Tensor:
        value = compute(x.value)
        out = Tensor()
        out.value = value if type(value) is _ndarray else as_array(value)
        out.spec = spec
        out.node = None
        return out

    def evaluate_two(x: Tensor, y: Tensor) -> Tensor:
        value = compute(x.value, y.value)
        out = Tensor()
        out.value = value if type(value) is _ndarray else as_array(value)
        out.spec = spec
        out.node = None
        return out

    def evaluate(*args: Any) -> Tensor:
        value = compute(*[x.value if type(x) is Tensor else x for x in args])
        out = Tensor()
        out.value = value if type(value) is _ndarray else as_array(value)
        out.spec = spec
        out.node = None
        if status:
            out._status = status
        return out

    if status or not 1 <= tensors <= 2:
        return evaluate
    return evaluate_one if tensors == 1 else evaluate_two


def choose_kept(keeps: tuple[int, ...], out: Any, x: Any, y: Any) -> tuple[Any, ...]:
    """What a rule of two arguments saves. A function of its own: where a comprehension refers to variables, they become
    cells, which are slower.
    """
    return tuple([out if k == OUT else y if k else x for k in keeps])


def _unary_recorder(compute: Callable[..., Any], calls: _PlannedCalls) -> Callable[[Tensor], Tensor]:
    call, spec = calls.tracking(0), calls.spec
    rule, as_array = call.rule, converter(spec)
    keeps_out, keeps_nothing, keeps_both = rule.keeps == (OUT,), not rule.keeps, rule.keeps == (0, OUT)

    def record(x: Tensor) -> Tensor:
        a = x.value
        value = compute(a)
        if type(value) is not _ndarray:
            value = as_array(value)
        out = Tensor()
        out.value = value
        out.spec = spec
        parent = x.node
        if parent is None:
            out.node = None
            return out
        out.node = node = Node()
        node.order = parent.order + 1
        node.rule = rule
        node.parents = (parent,)
        node.kept = () if keeps_nothing else (value,) if keeps_out else (a, value) if keeps_both else (a,)
        node.spec = spec
        node.bar = None
        node.call = call
        frame = _getframe(2)
        node.code = code = frame.f_code
        node.lasti = frame.f_lasti
        if known_files.get(code.co_filename) is not False:  # the caller is not known to be the user's code
            node.code, node.lasti = user_line(frame)
        return out

    return record


def _binary_recorder(compute: Callable[..., Any], calls: _PlannedCalls) -> Callable[[Tensor, Tensor], Tensor]:
    both, left, right, spec = calls.tracking(0, 1), calls.tracking(0), calls.tracking(1), calls.spec
    as_array = converter(spec)

    def record(x: Tensor, y: Tensor) -> Tensor:
        a, b = x.value, y.value
        value = compute(a, b)
        if type(value) is not _ndarray:
            value = as_array(value)
        out = Tensor()
        out.value = value
        out.spec = spec
        n, m = x.node, y.node
        if n is None and m is None:
            out.node = None
            return out
        out.node = node = Node()
        if n is None:
            node.call = call = right
            node.parents = (m,)  # type: ignore[assignment]
            node.order = m.order + 1  # type: ignore[union-attr]
        elif m is None:
            node.call = call = left
            node.parents = (n,)
            node.order = n.order + 1
        else:
            node.call = call = both
            node.parents = (n, m)
            node.order = (n.order if n.order > m.order else m.order) + 1
        node.rule = rule = call.rule
        keeps = rule.keeps
        if keeps is BOTH:
            node.kept = (a, b)
        elif keeps is SECOND:
            node.kept = (b,)
        else:
            node.kept = choose_kept(keeps, value, a, b) if keeps else ()
        node.spec = spec
        node.bar = None
        frame = _getframe(2)
        node.code = code = frame.f_code
        node.lasti = frame.f_lasti
        if known_files.get(code.co_filename) is not False:
            node.code, node.lasti = user_line(frame)
        return out

    return record


def keep_values(keeps: tuple[int, ...], out: Any, values: list[Any], args: Sequence[Any]) -> tuple[Any, ...]:
    """What a rule saves; the user may still write to a bare array."""
    for k in keeps:
        if k != OUT and type(args[k]) is _ndarray:
            values[k] = as_immutable(values[k])
    return tuple([out if k == OUT else values[k] for k in keeps])


def _recorder(compute: Callable[..., Any], calls: _PlannedCalls) -> Callable[..., Tensor]:
    """The same for any number of arguments, of which some may be bare."""
    spec = calls.spec
    as_array = converter(spec)

    def record(*args: Any) -> Tensor:
        values = []
        needs = []
        parents = []
        depth = 0
        for i, x in enumerate(args):
            if type(x) is Tensor:
                values.append(x.value)
                parent = x.node
                if parent is not None:
                    needs.append(i)
                    parents.append(parent)
                    if parent.order > depth:
                        depth = parent.order
            else:
                values.append(x)
        value = compute(*values)
        out = Tensor()
        out.value = value = value if type(value) is _ndarray else as_array(value)
        out.spec = spec
        if not needs:
            out.node = None
            return out
        out.node = node = Node()
        node.call = call = calls.tracking(*needs)
        node.rule = rule = call.rule
        node.parents = tuple(parents)
        node.order = depth + 1
        node.kept = keep_values(rule.keeps, value, values, args) if rule.keeps else ()
        node.spec = spec
        node.bar = None
        node.code, node.lasti = user_line(_getframe(2))
        return out

    return record
