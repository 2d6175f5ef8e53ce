"""What a scope of `pb.autocast` does to ops: which dtype each computes in, by family or by name, and shared casts."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..arrays.call_site import user_line
from ..arrays.dtypes import float16, float32
from ..arrays.node import Node
from ..arrays.spec import Spec, spec_of
from ..arrays.tensor import Tensor, wrap
from ..arrays.trees import flatten, unflatten
from ..arrays.value import Value
from ..settings import Modes, as_common, modes, put_modes
from .dispatch import run
from .forms import Check, Reduce
from .fusion import Fusion, Whole
from .op import Op
from .plans import tracked_call
from .shape.reshaping import astype_op

#: What autocast does with arguments: cast them to the low dtype, to float32, or leave them to promotion.
LOW, HIGH, PROMOTE = "low", "high", "promote"
#: Reductions that round nothing: the result is one of the elements, or says whether some of them hold.
_EXACT_FOLDS = frozenset(("maximum", "minimum", "logical_and", "logical_or"))


class Decision(NamedTuple):
    """What autocast does with the arguments of an op, and why."""

    kind: str
    why: str


def family_rule(op: Op) -> Decision:
    """What an op does under autocast: what its record states, else what its family and form say."""
    if op.autocast:
        return Decision(op.autocast, "on its record")
    if not op.differentiable or isinstance(op.form, Check):
        return Decision(PROMOTE, "rounds nothing")
    if op.family == "contraction":
        return Decision(LOW, "a contraction")
    if op.family == "matrix":
        return Decision(HIGH, "a factorization or a solve")
    if isinstance(op.form, Reduce) and op.form.word in _EXACT_FOLDS:
        return Decision(PROMOTE, "rounds nothing")
    if op.family == "reduction" or isinstance(op.form, Reduce):
        return Decision(HIGH, "a fold")
    return Decision(PROMOTE, f"{op.family}")


class SharedCasts:
    """Arrays that were cast already, by the tensors that hold them: one cast of a parameter serves a whole step.

    Each use has a node of its own, so gradients of several uses are added up in the parameter's dtype. An entry holds
    the array that was cast: nothing overwrites that in place then, and a tensor that was rebound is cast again.
    """

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: dict[tuple[int, Any], tuple[weakref.ref[Tensor], Any, Any]] = {}

    def clear(self) -> None:
        self._entries.clear()

    def find(self, x: Tensor, dtype: Any) -> Any:
        """The array of a tensor in a dtype, if it is here."""
        found = self._entries.get((id(x), dtype))
        return found[2] if found is not None and found[0]() is x and found[1] is x.value else None

    def add(self, x: Tensor, dtype: Any, cast: Any) -> None:
        key, entries = (id(x), dtype), self._entries
        entries[key] = (weakref.ref(x, lambda _: entries.pop(key, None)), x.value, cast)


def _link_cast(x: Tensor, cast: Any, dtype: Any) -> Tensor:
    """A tensor over an array that was cast, on the tape if x is."""
    mode = modes()
    out = wrap(cast, spec_of(cast))
    if mode.inference:
        out.mark("inference")
    elif x.node is not None and mode.grad:
        out.node = node = Node()
        node.call = call = tracked_call(astype_op, x.spec, dtype)
        node.rule, node.parents, node.order, node.kept = call.rule, (x.node,), x.node.order + 1, ()
        node.spec, node.bar = out.spec, None
        node.code, node.lasti = user_line(sys._getframe(1))
    return out


class Casting:
    """What is cast in a scope: the dtype of low ops (None: autocast is off, and only noted), the names that are decided
    otherwise, the device it concerns. `key` is what compiled forms depend on; `log` notes decisions.
    """

    __slots__ = ("_decisions", "_off", "device", "high", "key", "log", "low", "lowered", "shared")

    def __init__(
        self,
        low: Any,
        high: frozenset[str],
        lowered: frozenset[str],
        device: str | None,
        shared: SharedCasts,
        log: Any = None,
    ) -> None:
        self.low, self.high, self.lowered, self.device = low, high, lowered, device
        self.key = None if low is None else (low, high, lowered, device)
        self.shared, self.log = shared, log
        self._decisions: dict[Any, Decision] = {}
        self._off: tuple[Modes | None, Modes | None] = (None, None)

    def run(self, op: Op, args: Sequence[Any], static: dict[str, Any]) -> Any:
        """Cast the arguments of an op, and run it as it is."""
        decision = self._decisions.get(op)
        if decision is None:
            decision = self._decisions[op] = self._decide_by_name(op.name) or family_rule(op)
        mode = modes()
        put_modes(self._without_autocast(mode))
        try:
            cast = args if decision.kind == PROMOTE else self._cast_all(args, decision, "iufc")
            return run(op, cast, static)
        finally:
            put_modes(mode)

    def call(
        self, whole: Fusion | Whole, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
    ) -> Any:
        """Call a function that is decided as a whole."""
        decision = self._decisions.get(whole)
        if decision is None:
            known = self._decide_by_name(whole.name)
            decision = self._decisions[whole] = known or Decision(whole.autocast, "as a whole")
        mode = modes()
        put_modes(self._without_autocast(mode))
        try:
            if decision.kind != PROMOTE:
                cast = self._cast_trees([*args, *kwargs.values()], decision)
                args, kwargs = cast[: len(args)], dict(zip(kwargs, cast[len(args) :], strict=True))
            return function(*args, **kwargs)
        finally:
            put_modes(mode)

    def _cast_trees(self, trees: Sequence[Any], decision: Decision) -> list[Any]:
        """Arguments of a function, each the same object if nothing in it is cast."""
        flat = [flatten(tree) for tree in trees]
        every = self._cast_all([x for leaves, _ in flat for x in leaves], decision, "fc")
        found, at = [], 0
        for tree, (leaves, structure) in zip(trees, flat, strict=True):
            cast = every[at : at + len(leaves)]
            at += len(leaves)
            is_same = all(x is y for x, y in zip(leaves, cast, strict=True))
            found.append(tree if is_same else unflatten(structure, cast))
        return found

    def decides_whole(self, fusion: Fusion) -> bool:
        """Whether a fused function is decided as one, not by its ops."""
        return bool(fusion.autocast) or self._decide_by_name(fusion.name) is not None

    def _decide_by_name(self, name: str) -> Decision | None:
        if self.low is None:
            return Decision(PROMOTE, "autocast is off")
        return Decision(HIGH, "keep") if name in self.high else Decision(LOW, "lower") if name in self.lowered else None

    def _without_autocast(self, mode: Modes) -> Modes:
        """The modes of the op itself."""
        before, off = self._off
        if before is not mode or off is None:
            off = as_common(mode._replace(autocast=None))
            self._off = (mode, off)
        return off

    def _cast_all(self, args: Sequence[Any], decision: Decision, others: str) -> Sequence[Any]:
        """The arguments, those that take part cast as decided. Beside an operand that takes no part, of the kinds in
        `others`, a low one would be promoted again, rounded for nothing: all stay as they are then.
        """
        specs = [_spec_or_none(x) for x in args]
        arrays = [s for s in specs if s is not None]
        if self.device is not None and not any(s.device.partition(":")[0] == self.device for s in arrays):
            return args
        wanted = float32 if decision.kind == HIGH else self.low
        if wanted is self.low and any(s.dtype.kind in others and not takes_part(s) for s in arrays):
            return args
        return [
            x if s is None or s.dtype == wanted or not takes_part(s) else self._cast(x, s, wanted)
            for x, s in zip(args, specs, strict=True)
        ]

    def _cast(self, x: Any, spec: Spec, dtype: Any) -> Any:
        mode = modes()
        # instruments see every cast, and a traced program merges equal ones itself
        if type(x) is not Tensor or spec.number <= 0 or mode.instruments is not None or mode.tracing is not None:
            return run(astype_op, (x,), {"dtype": dtype})
        cast = self.shared.find(x, dtype)
        if cast is None:
            cast = run(astype_op, (x.value,), {"dtype": dtype})
            self.shared.add(x, dtype, cast)
        return _link_cast(x, cast, dtype)


def _spec_or_none(x: Any) -> Spec | None:
    """The spec of an array or a value; None for numbers, which take the dtype of what they meet, and for settings."""
    if not isinstance(x, Value) and not (hasattr(x, "dtype") and hasattr(x, "shape")):
        return None
    spec = spec_of(x)
    return spec if spec.weak is None else None


def takes_part(spec: Spec) -> bool:
    """Whether autocast concerns values of a spec: float32 and the half types."""
    dtype = spec.dtype
    return dtype in (float32, float16) or (dtype.kind == "V" and dtype.name == "bfloat16")
