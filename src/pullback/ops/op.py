"""The op record: what an op computes and how it differentiates, batches and compiles."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ..arrays.spec import HALF_CODES, Spec
from ..errors import ArgumentError
from . import basis

#: Every op by its name.
OPS: dict[str, Op] = {}
#: Marks the result among the values a rule saves; arguments are given by position.
OUT = -1
#: What rules of two arguments mostly save; one object each, so that the fast path can test `keeps is BOTH`.
BOTH, FIRST, SECOND = (0, 1), (0,), (1,)


class Formula(NamedTuple):
    """A formula and the names it uses: `bar` the cotangent, `out` the result, an argument, `x_spec` the spec of
    argument x, a static parameter, `static` all of them; for ops of many arguments `position` (which one), `others`,
    `specs`. A joint formula gets all wanted positions in `position`, and may return None for the rest.

    The names are the declaration: the tape saves what a formula names, and nothing else.
    """

    function: Callable[..., Any]
    names: tuple[str, ...]


def as_formula(formula: Callable[..., Any] | Formula) -> Formula:
    """Read the names from a plain function's parameters."""
    if isinstance(formula, Formula):
        return formula
    code = formula.__code__
    return Formula(formula, code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])


class StaticMark:
    """Abstract: an object of the package, one of its kind, that may stand in a static parameter."""


class MaskedCotangent:
    """A cotangent that is structurally zero off its mask, as `where` sends to the branch not selected.

    Pointwise rules compute on it and mask again, so 0 * inf off the mask never becomes NaN.
    """

    __slots__ = ("bar", "mask")

    def __init__(self, bar: Any, mask: Any) -> None:
        self.bar, self.mask = bar, mask


class Effects(NamedTuple):
    """What a program may do with calls of an op: merge equal ones, drop those that are unused, repeat one (or run it
    when the program is compiled), move one past another that must stay in place. `alone`: a call concerns this rank
    alone; one that is not meets calls of other ranks, which must all do the same. `by_element`: some elements of a
    batch may make it without the others.
    """

    merge: bool = True
    drop: bool = True
    repeat: bool = True
    reorder: bool = True
    alone: bool = True
    by_element: bool = True

    @property
    def runs_once(self) -> bool:
        """Whether a call runs exactly once: a checkpoint may not repeat it, though its user asked for that."""
        return not (self.repeat or self.drop)

    @property
    def has_side_effects(self) -> bool:
        """Whether a derivative may not run it again. A collective it may, since the derivatives of all ranks do."""
        return self.runs_once and self.alone

    def with_inner(self, inner: Effects) -> Effects:
        """The effects of a call that also runs something with effects of its own."""
        return self if inner is PURE else Effects(*(a and b for a, b in zip(self, inner, strict=True)))


class Algebra(NamedTuple):
    """What passes and rules may use of an op's arithmetic. `weights`: the result is the sum of the arguments times
    these. `neutral`: with the number at that position, the result is the other argument. A quotient times its second
    argument is the first.
    """

    weights: tuple[float, ...] = ()
    neutral: Mapping[int, float] = {}
    is_product: bool = False
    is_quotient: bool = False


#: An op of which passes know no arithmetic.
OPAQUE = Algebra()
#: An op whose result is its argument.
IDENTITY = Algebra(weights=(1.0,))
#: An op that only computes its result.
PURE = Effects()
#: An op that is not ours: it may count its calls or print, so it runs no more often than it is called.
UNKNOWN = Effects(repeat=False)
#: An op whose calls are what it is for: it counts, prints, or talks to others.
IMPURE = Effects(merge=False, drop=False, repeat=False, reorder=False)
#: An op whose calls meet those of other ranks.
COLLECTIVE = IMPURE._replace(alone=False)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Op:
    """One op. Families fill in what an op does not state; see `families`.

    `value(xp, *arrays, **static)` computes with NumPy or CuPy, `spec(*specs, **static)` gives the spec of the
    result (None: not known, so it cannot be staged), `pulls` maps an argument to its cotangent's
    formula (None: derivative zero), or `joint` is one formula for all of them together, `push(tangents, out, args,
    static)` is the forward derivative, `batch(op, size, args, axes, static)` returns (result, axis), `kernel(k,
    *scalars)` writes the op in the scalar vocabulary `k`, `samples(rng)` lists (arguments, static) to test on.

    `family` says how the result depends on the arguments: "elementwise", "linear" in all of them together,
    "contraction" (linear in each), "reduction", "matrix", "custom" (an op of the user) or "general".

    `rearranges`: a pull moves, copies, drops or adds up elements with weights that are not negative, so it can
    propagate a mask: where the result is nonzero a cotangent can be nonzero.

    `form` says how an op that is not elementwise becomes loops (`forms`); one without it that is no view of its
    argument either is executed by NumPy, also in compiled programs.

    `statics` says for each static parameter what it may be (`statics`), checked in programs read from files;
    None for a custom op, which checks its own.

    `follow(*args, **static)` belongs to an op that runs steps of its own, and runs them on values of any kind: it
    returns for each result the values that this one is linear in, if every step is (`linear_transpose` asks).

    `stops_tapes`: a tape sees no derivative, but tangents pass (what `no_grad` means in a program).

    `masked(bars, args, positions)` belongs to an op that runs a program: the shares of masked cotangents, one for each
    result, found op by op.

    `effects` says what passes, budgets and the scheduler may do with its calls. `kinds`, of a collective: whether it
    takes values that ranks have in common or of their own, and which of the two it gives.

    `picks_rows`: the result is the rows of the first argument that the second names, and a tape may give a leaf the
    rows of its gradient alone.

    `meet(*args, **static)` sees the arguments wherever a program runs op by op, and may refuse them.

    `wide_value`: on arrays of half precision the value is computed in float32 and rounded once; False for ops that only
    move elements, and for ufuncs, which do so themselves. `wide_rules`: so are its derivatives, whose rules have
    several steps: saved values and cotangents are widened, and each share or tangent is rounded once.
    `autocast` says what the op does under `pb.autocast` where its family does not (`ops/autocast.py`): "low", "high" or
    "promote".

    `direct(*specs, **static)` gives the NumPy function of the arrays alone that computes the op's value with the least
    overhead; None: `value` with its parameters bound. What it gives serves a GPU too if it only calls a method of the
    array. `on_gpu(*specs, **static)` gives a function of a GPU's arrays that is quicker than `value`, which is asked
    where it returns None; that of a contraction takes `views` too (`bind_to_views` in `ops/binding.py`). In programs
    `into(xp, outs, *arrays, **static)` computes the op in memory that is given.
    """

    name: str
    family: str
    args: tuple[str, ...]
    value: Callable[..., Any]
    spec: Callable[..., Any] | None
    pulls: Mapping[str, Formula | None]
    push: Callable[..., Any]
    batch: Callable[..., Any]
    samples: Callable[..., Any]
    kernel: Callable[..., Any] | None = None
    ufunc: str | None = None
    rearranges: bool = False
    differentiable: bool = True
    joint: Formula | None = None
    form: Any = None
    statics: Mapping[str, Any] | None = None
    follow: Callable[..., Any] | None = None
    meet: Callable[..., None] | None = None
    direct: Callable[..., Any] | None = None
    into: Callable[..., None] | None = None
    on_gpu: Callable[..., Any] | None = None
    effects: Effects = PURE
    algebra: Algebra = OPAQUE
    kinds: tuple[str, str] | None = None
    stops_tapes: bool = False
    autocast: str = ""
    masked: Callable[..., Any] | None = None
    picks_rows: bool = False
    wide_value: bool = False
    wide_rules: bool = False
    rules: dict[Any, PullRule] = field(default_factory=dict)

    def argument(self, position: int) -> str:
        """The name of the argument at a position; the last name may be variadic, as `*xs`."""
        return self.args[position] if position < len(self.args) - 1 else self.args[-1]

    def effects_of(self, static: dict[str, Any]) -> Effects:
        """The effects of a call: the op's own, and those of the programs that it runs (the body of a loop)."""
        found = self.effects
        for value in static.values():
            for part in value if type(value) is tuple else (value,):
                inner = getattr(part, "effects", None)
                found = found.with_inner(inner) if type(inner) is Effects else found
        return found

    def is_repeatable(self, static: dict[str, Any]) -> bool:
        """Whether a call may run again: functions among its static parameters may have side effects too."""
        functions = (value for value in static.values() if callable(value) and not hasattr(value, "effects"))
        return self.effects_of(static).repeat and next(functions, None) is None

    def pull_of(self, position: int) -> Formula | None:
        return self.pulls.get(self.argument(position))

    def rule(self, needs: tuple[int, ...], count: int) -> PullRule:
        """The rule for the arguments that need a cotangent, of `count` in all."""
        found = self.rules.get((needs, count))
        if found is None:
            found = self.rules[needs, count] = PullRule(self, needs, count)
        return found

    def spec_of(self, specs: Sequence[Spec], static: dict[str, Any]) -> Any:
        """The spec of the result, or an error that says what is missing."""
        if self.spec is None:
            raise ArgumentError(
                f"{self.name}: its result is not known without computing it.\n  Give it a def_spec rule."
            )
        return self.spec(*specs, **static)

    def __repr__(self) -> str:
        return f"<op {self.name}>"


def register(op: Op) -> Op:
    """Add an op of the package to `OPS`."""
    if op.name in OPS:
        raise ArgumentError(f"op {op.name!r} is already defined.")
    OPS[op.name] = op
    return op


def is_any_half(specs: Sequence[Spec]) -> bool:
    """Whether any argument is of half precision."""
    for spec in specs:  # noqa: SIM110 - a generator costs more than the test
        if spec.half:
            return True
    return False


def widen_halves(value: Any) -> Any:
    """A value, or each of several, in float32 if it has half precision; anything else (None, a spec) as it is."""
    if isinstance(value, (tuple, list)):
        return type(value)([widen_halves(part) for part in value])
    if isinstance(value, Spec) or getattr(getattr(value, "dtype", None), "char", "") not in HALF_CODES:
        return value
    return basis.astype(value, np.float32)


def widen_arguments(args: Any, dtype: Any) -> Any:
    """The arguments of a rule in float32 where they have half precision. Python numbers beside arrays of one half dtype
    are those that the op computed with, rounded to it.
    """
    return [_round_number(x, dtype) if type(x) in (int, float) else x for x in widen_halves(list(args))]


def _round_number(x: Any, dtype: Any) -> Any:
    with np.errstate(over="ignore"):
        rounded = float(np.asarray(x).astype(dtype))
    return x if rounded == x else rounded


class PullRule:
    """An op seen from the arguments that need a cotangent: what to save for them, and how to pull back.

    `carries_masks`: where its shares can be nonzero is known, given where the cotangent can.
    `plain` holds for each plain kind of spec the backward step generated by `tape/codegen.py`.
    """

    __slots__ = ("_joint", "_lookups", "carries_masks", "count", "keeps", "needs", "op", "plain")

    def __init__(self, op: Op, needs: tuple[int, ...], count: int) -> None:
        self.op = op
        self.needs = needs
        self.count = count
        self._joint = None if op.joint is None else tuple(self._lookup(name) for name in op.joint.names)
        self._lookups = {i: self._lookups_of(i) for i in needs} if self._joint is None else {}
        self.keeps = self._positions_to_keep()
        self.carries_masks = op.rearranges or op.family in ("elementwise", "contraction") or op.masked is not None
        self.plain: list[Any] = [None] * 6

    def _lookups_of(self, position: int) -> tuple[tuple[str, Any], ...]:
        """For each name in a formula, where its value will be found."""
        pull = self.op.pull_of(position)
        return () if pull is None else tuple(self._lookup(name) for name in pull.names)

    def _lookup(self, name: str) -> tuple[str, Any]:
        if name in ("bar", "out", "position", "others", "specs", "static"):
            return name, None
        for i, argument in enumerate(self.op.args):
            if name == argument:
                return "argument", i
            if name == argument + "_spec":
                return "spec", i
            if "*" + name == argument:
                return "rest", i
        return "static", name

    def _positions_to_keep(self) -> tuple[int, ...]:
        wanted = set().union(*(self.uses(position) for position in self.needs))
        keeps = tuple(sorted(wanted - {OUT})) + ((OUT,) if OUT in wanted else ())
        return next((common for common in (BOTH, FIRST, SECOND) if common == keeps), keeps)

    def reaches(self, number: int) -> bool:
        """Whether a cotangent reaches the argument of that number among those that need one."""
        return self.op.joint is not None or self.op.pull_of(self.needs[number]) is not None

    def uses(self, position: int) -> set[int]:
        """What the cotangent of one argument is computed from: positions of arguments, and `OUT`."""
        used: set[int] = set()
        for kind, key in self._lookups[position] if self._joint is None else self._joint:
            if kind == "out":
                used.add(OUT)
            elif kind == "argument":
                used.add(key)
            elif kind == "rest":
                used.update(range(key, self.count))
            elif kind == "others":
                used.update(set(range(self.count)) - {position})
        return used

    def shares(
        self,
        positions: Sequence[int],
        bar: Any,
        out: Any,
        args: list[Any],
        specs: tuple[Spec, ...],
        static: dict[str, Any],
    ) -> list[Any]:
        """The cotangents of some arguments, before they are summed to the arguments' shapes; in half precision float32
        ones, where the op has wide rules.
        """
        if self.op.wide_rules and is_any_half(specs) and not self._is_one_product(specs):
            dtypes = {s.dtype for s in specs if s.weak is None and s.dtype.kind != "b"}
            args = widen_halves(args) if len(dtypes) > 1 else widen_arguments(args, *dtypes)
            bar, out = widen_halves(bar), widen_halves(out)
        if self._joint is None or self.op.joint is None:
            return [self.share(i, bar, out, args, specs, static) for i in positions]
        together = self.op.joint.function(
            *self._formula_arguments(self._joint, tuple(positions), bar, out, args, specs, static)
        )
        return [together[i] for i in positions]

    def _is_one_product(self, specs: Sequence[Spec]) -> bool:
        """Whether a share is one product, rounded once as it is, and not summed afterwards."""
        return self.op.algebra.is_product and all(s.shape == specs[0].shape for s in specs)

    def share(
        self, position: int, bar: Any, out: Any, args: list[Any], specs: tuple[Spec, ...], static: dict[str, Any]
    ) -> Any:
        """The cotangent of one argument, before it is summed to that argument's shape."""
        pull = self.op.pull_of(position)
        if pull is None:
            return None
        return pull.function(*self._formula_arguments(self._lookups[position], position, bar, out, args, specs, static))

    def values_of(
        self, names: Sequence[str], out: Any, args: Sequence[Any], specs: tuple[Spec, ...], static: dict[str, Any]
    ) -> list[Any]:
        """The values of names that a formula for all arguments together may use, without a cotangent."""
        return self._formula_arguments(
            [self._lookup(name) for name in names], self.needs, None, out, args, specs, static
        )

    def _formula_arguments(
        self,
        lookups: Sequence[tuple[str, Any]],
        position: int | tuple[int, ...],
        bar: Any,
        out: Any,
        args: Sequence[Any],
        specs: tuple[Spec, ...],
        static: dict[str, Any],
    ) -> list[Any]:
        """The values of a formula's names, in order."""
        values: list[Any] = []
        for kind, key in lookups:
            if kind == "bar":
                values.append(bar)
            elif kind == "argument":
                values.append(args[key])
            elif kind == "out":
                values.append(out)
            elif kind == "spec":
                values.append(specs[key])
            elif kind == "static":
                values.append(static if key is None else self._static_value(key, static))
            else:
                values.append(self._variadic_value(kind, key, position, args, specs))
        return values

    def _static_value(self, name: str, static: dict[str, Any]) -> Any:
        if name not in static:
            raise ArgumentError(f"the rule of {self.op.name} uses {name!r}, not one of its arguments or statics.")
        return static[name]

    def _variadic_value(
        self, kind: str, start: int, position: Any, args: Sequence[Any], specs: tuple[Spec, ...]
    ) -> Any:
        """The value of a name that only variadic ops use."""
        if kind == "others":
            return [a for i, a in enumerate(args) if i != position]
        return position if kind == "position" else specs if kind == "specs" else args[start:]


class PartRule:
    """The rule of one result of many: its cotangent goes to its position among the node's."""

    __slots__ = ("index", "keeps", "needs", "op")

    def __init__(self, op: Op, index: int) -> None:
        self.op = op
        self.index = index
        self.needs = (0,)
        self.keeps = ()

    def reaches(self, number: int) -> bool:
        return True
