"""What a scope of `pb.autocast` or `pb.Policy` does to ops: which dtype each computes in, and casts that are shared."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from ..arrays.call_site import user_line
from ..arrays.dtypes import float16, float32
from ..arrays.node import Node
from ..arrays.spec import Spec, spec_of
from ..arrays.tensor import Tensor, wrap
from ..arrays.trees import flatten, unflatten
from ..arrays.value import Value
from ..settings import Modes, as_common, modes, put_modes
from .dispatch import run
from .forms import Cast, Check, Reduce
from .fusion import Fusion, Whole
from .op import Op
from .plans import tracked_call
from .shape.reshaping import astype_op

#: What is done with arguments: all cast to the low dtype or to float32, left to promotion, or parameters alone cast.
LOW, HIGH, PROMOTE, PARAMETERS = "low", "high", "promote", "parameters"
#: Reductions that round nothing: the result is one of the elements, or says whether some of them hold.
_EXACT_FOLDS = frozenset(("maximum", "minimum", "logical_and", "logical_or"))
#: Arguments without anything inside.
_LEAVES = (Value, np.ndarray, str, int, float, bool, type(None))


class Decision(NamedTuple):
    """What is done with the arguments of an op, and why."""

    kind: str
    why: str


def family_rule(op: Op) -> Decision:
    """What an op does under autocast: what its record states, else what its family and form say."""
    if op.autocast:
        return Decision(op.autocast, "declared" if op.family == "custom" else "sensitive to rounding")
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
    return Decision(PROMOTE, "by promotion")


class CastLog(Protocol):
    """What `pb.amp.explain` notes: a call with the specs it was made on, those it ran on, how many were cast and how
    many of these casts were there already, and its result.
    """

    def note(
        self, name: str, decision: Decision, given: Sequence[Any], cast: Sequence[Any], shared: int, out: Any
    ) -> None: ...


class SharedCasts:
    """Arrays that were cast already, by the tensors that hold them: one cast of a parameter serves a whole step.

    Each use has a node of its own, so gradients of several uses are added up in the parameter's dtype. An entry holds
    the array that was cast: nothing overwrites that in place then, and a tensor that was rebound is cast again.
    """

    __slots__ = ("_entries", "hits")

    def __init__(self) -> None:
        self._entries: dict[tuple[int, Any], tuple[weakref.ref[Tensor], Any, Any]] = {}
        #: How many casts were found here.
        self.hits = 0

    def clear(self) -> None:
        self._entries.clear()

    def cast(self, x: Tensor, dtype: Any) -> Tensor:
        key, entries = (id(x), dtype), self._entries
        found = entries.get(key)
        if found is not None and found[0]() is x and found[1] is x.value:
            self.hits += 1
            return _link_cast(x, found[2], dtype)
        cast = run(astype_op, (x.value,), {"dtype": dtype})
        entries[key] = (weakref.ref(x, lambda _: entries.pop(key, None)), x.value, cast)
        return _link_cast(x, cast, dtype)


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
    """What is cast in a scope: to which low dtype (None: nothing, decisions are only noted), which names are decided
    otherwise, on which device. With `parameters`, these values are cast wherever they are used, and nothing else.
    `key` is what compiled forms depend on.
    """

    __slots__ = (
        "_decisions", "_off", "_owned", "device", "high", "key", "log", "low", "lowered", "parameters", "shared",
    )  # fmt: skip

    def __init__(
        self,
        low: Any,
        high: frozenset[str] = frozenset(),
        lowered: frozenset[str] = frozenset(),
        device: str | None = None,
        parameters: Sequence[Any] | None = None,
        around: Casting | None = None,
    ) -> None:
        self.low, self.high, self.lowered, self.device = low, high, lowered, device
        self._owned = parameters  # held, so that nothing else takes an id of theirs
        self.parameters = None if parameters is None else frozenset(map(id, parameters))
        self.shared = SharedCasts() if around is None else around.shared
        self.log: CastLog | None = None if around is None else around.log
        self.key: Any = None if low is None else (low, high, lowered, device, self.parameters)
        if self.log is not None:
            self.key = object()  # no compiled form is found: what runs is to be noted op by op
        self._decisions: dict[Any, Decision] = {}
        self._off: tuple[Modes | None, Modes | None] = (None, None)

    def noted_by(self, log: CastLog) -> Casting:
        """The same scope, whose decisions a log notes."""
        noted = Casting(self.low, self.high, self.lowered, self.device, self._owned, self)
        noted.log, noted.key = log, object()
        return noted

    def run(self, op: Op, args: Sequence[Any], static: dict[str, Any]) -> Any:
        """Cast the arguments of an op, and run it as it is."""
        decision = self._decisions.get(op)
        if decision is None:
            decision = self._decisions[op] = self._decide(op.name, op) or family_rule(op)
        mode, hits = modes(), self.shared.hits
        put_modes(self._without_autocast(mode))
        try:
            cast = args if decision.kind == PROMOTE else self._cast_all(args, decision, "iufc")
            out = run(op, cast, static)
        finally:
            put_modes(mode)
        if self.log is not None:
            self.log.note(op.name, decision, args, cast, self.shared.hits - hits, out)
        return out

    def call(
        self, whole: Fusion | Whole, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
    ) -> Any:
        """Call a function that is decided as a whole; one that its ops decide runs op by op, to be noted."""
        decision = self._decisions.get(whole)
        if decision is None:
            stated = Decision(whole.autocast, "the whole function") if whole.autocast else None
            decision = self._decisions[whole] = self._decide(whole.name) or stated or Decision("", "by its ops")
        if not decision.kind and isinstance(whole, Fusion):
            return whole.function(*args, **kwargs)
        given = [*args, *kwargs.values()]
        mode, hits = modes(), self.shared.hits
        put_modes(self._without_autocast(mode))
        try:
            cast = given if decision.kind == PROMOTE else self._cast_trees(given, decision)
            out = function(*cast[: len(args)], **dict(zip(kwargs, cast[len(args) :], strict=True)))
        finally:
            put_modes(mode)
        if self.log is not None:
            self.log.note(whole.name, decision, given, cast, self.shared.hits - hits, out)
        return out

    def takes_over(self, fusion: Fusion) -> bool:
        """Whether a fused function goes by `call`, and not by its native form for this scope."""
        return bool(fusion.autocast) or self.log is not None or self._decide(fusion.name) is not None

    def cast_parameters(self, trees: Sequence[Any]) -> list[Any]:
        """Arguments of a compiled function, parameters among them cast."""
        return self._cast_trees(trees, Decision(PARAMETERS, "a parameter"))

    def _decide(self, name: str, op: Op | None = None) -> Decision | None:
        """What the scope says of an op or a function, whatever it is."""
        if self.low is None:
            return Decision(PROMOTE, "autocast is off")
        if self.parameters is not None:
            explicit = op is not None and isinstance(op.form, Cast)
            return Decision(PROMOTE, "a cast of yours") if explicit else Decision(PARAMETERS, "the module's policy")
        return Decision(HIGH, "keep") if name in self.high else Decision(LOW, "lower") if name in self.lowered else None

    def _without_autocast(self, mode: Modes) -> Modes:
        """The modes of the op itself."""
        before, off = self._off
        if before is mode and off is not None:
            return off
        off = as_common(mode._replace(autocast=None))
        if mode.instruments is None and mode.tracing is None:  # which would live as long as this scope
            self._off = (mode, off)
        return off

    def _cast_trees(self, trees: Sequence[Any], decision: Decision) -> list[Any]:
        """Arguments of a function, each the same object if nothing in it is cast."""
        flat = [_flatten_argument(tree) for tree in trees]
        every = self._cast_all([x for leaves, _ in flat for x in leaves], decision, "fc")
        found, at = [], 0
        for tree, (leaves, structure) in zip(trees, flat, strict=True):
            cast = every[at : at + len(leaves)]
            at += len(leaves)
            found.append(_replace_leaves(tree, leaves, structure, cast))
        return found

    def _cast_all(self, args: Sequence[Any], decision: Decision, others: str) -> Sequence[Any]:
        """The arguments, those that take part cast as decided. Beside an operand that takes no part, of the kinds in
        `others`, a low one would be promoted again, rounded for nothing: all stay as they are then.
        """
        specs = [_spec_or_none(x) for x in args]
        if decision.kind == PARAMETERS:
            specs = [s if self._is_parameter(x) else None for x, s in zip(args, specs, strict=True)]
        arrays = [s for s in specs if s is not None]
        # numbers of the CPU go along with arrays of a GPU
        if self.device is not None and self.device != ("cuda" if any(s.device != "cpu" for s in arrays) else "cpu"):
            return args
        wanted = float32 if decision.kind == HIGH else self.low
        if decision.kind == LOW and any(s.dtype.kind in others and not takes_part(s) for s in arrays):
            return args
        return [
            x if s is None or s.dtype == wanted or not takes_part(s) else self.cast(x, s, wanted)
            for x, s in zip(args, specs, strict=True)
        ]

    def _is_parameter(self, x: Any) -> bool:
        """Whether a value is a parameter of the module, or a view of one, which NumPy made of a bare array."""
        chosen = self.parameters or frozenset()
        return id(x) in chosen or (type(x) is np.ndarray and x.base is not None and id(x.base) in chosen)

    def cast(self, x: Any, spec: Spec, dtype: Any) -> Any:
        """A value in another dtype, shared with other uses of it."""
        mode = modes()
        # instruments see every cast, and a traced program merges equal ones itself
        if type(x) is not Tensor or spec.number <= 0 or mode.instruments is not None or mode.tracing is not None:
            return run(astype_op, (x,), {"dtype": dtype})
        return self.shared.cast(x, dtype)


def cast_leaves(tree: Any, dtype: Any) -> Any:
    """A tree with all arrays that take part in autocast in a dtype."""
    leaves, structure = _flatten_argument(tree)
    specs = [_spec_or_none(x) for x in leaves]
    cast = [
        x if s is None or s.dtype == dtype or not takes_part(s) else run(astype_op, (x,), {"dtype": dtype})
        for x, s in zip(leaves, specs, strict=True)
    ]
    return _replace_leaves(tree, leaves, structure, cast)


def _flatten_argument(tree: Any) -> tuple[list[Any], Any]:
    """The leaves of an argument; most are one, for which the tree package is slow."""
    if isinstance(tree, _LEAVES):
        return [tree], None
    return flatten(tree)


def _replace_leaves(tree: Any, before: Sequence[Any], structure: Any, after: Sequence[Any]) -> Any:
    """A tree over other leaves; the same object if they are the same."""
    if all(x is y for x, y in zip(before, after, strict=True)):
        return tree
    return after[0] if structure is None else unflatten(structure, after)


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
