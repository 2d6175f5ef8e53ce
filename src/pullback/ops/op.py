"""The op record: one statement that says what an op computes and how it differentiates, batches and renders."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..arrays.spec import Spec
from ..errors import ArgumentError

__all__ = ["OPS", "OUT", "Op", "Rule", "Selected", "Terms", "enlisted", "terms"]

#: Every op by its name.
OPS: dict[str, Op] = {}
#: Stands for the result among the things a rule keeps; the arguments stand as their positions.
OUT = -1
#: What rules of two arguments mostly keep; one object each, so that the fast path may ask `keeps is BOTH`.
BOTH, FIRST, SECOND = (0, 1), (0,), (1,)


@dataclass(frozen=True, slots=True)
class Terms:
    """A formula and the names it uses: `bar` the cotangent, `out` the result, an argument, `x_spec` the spec of
    argument x, a static parameter; for ops of many arguments `position` (which one), `others`, `specs`. A joint
    formula finds in `position` all those that are wanted, and may answer None for the rest.

    The names are the declaration: what a formula names is what the tape keeps for it, and nothing else.
    """

    formula: Callable[..., Any]
    names: tuple[str, ...]


def terms(formula: Callable[..., Any] | Terms) -> Terms:
    """Read the names off a plain function."""
    if isinstance(formula, Terms):
        return formula
    code = formula.__code__
    return Terms(formula, code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])


@dataclass(frozen=True, slots=True)
class Selected:
    """A cotangent that is structurally zero off its mask, as `where` sends to the branch not taken.

    Pointwise rules compute on it and mask again, so 0 * inf off the mask never becomes NaN.
    """

    bar: Any
    mask: Any


@dataclass(frozen=True, slots=True, eq=False)
class Op:
    """One op. Families fill in what an op need not say; see `families`.

    `value(xp, *arrays, **static)` computes with the arrays' own library, `spec(*specs, **static)` says the
    result without computing (None: not known, so it cannot be staged), `pulls` maps an argument to its cotangent's
    formula (None: derivative zero), or `joint` is one formula for all of them together, `push(tangents, out, args,
    static)` is the forward derivative, `batch(op, size, args, axes, static)` answers (result, axis), `kernel(k,
    *scalars)` writes the op in the scalar vocabulary `k`, `samples(rng)` lists (arguments, static) to test on.

    `motion` is "pointwise", "rearrange" (a pull moves, copies, drops or adds up elements with weights that are not
    negative, so it can carry a mask along: what comes out not zero is where some cotangent can be), "contract" (the
    same with ones for the other arguments) or "".

    `form` says how an op that is not elementwise becomes loops (`forms`); one without it that is no view of its
    argument either is run by the array library, also in compiled programs.

    `statics` says for each static parameter what it may be (`statics`), which is asked of programs that were read;
    None is a custom op's, which checks its own.

    `follow(*args, **static)` belongs to an op that runs steps of its own, and runs them on values of any kind: it
    returns for each result the values that this one is linear in, if every step is (`linear_transpose` asks).

    `meet(*args, **static)` is shown the arguments wherever a program runs op by op, and may refuse them.
    """

    name: str
    family: str
    args: tuple[str, ...]
    value: Callable[..., Any]
    spec: Callable[..., Any] | None
    pulls: Mapping[str, Terms | None]
    push: Callable[..., Any]
    batch: Callable[..., Any]
    samples: Callable[..., Any]
    kernel: Callable[..., Any] | None = None
    doc: str = ""
    ufunc: str | None = None
    motion: str = ""
    differentiable: bool = True
    joint: Terms | None = None
    form: Any = None
    statics: Mapping[str, Any] | None = None
    follow: Callable[..., Any] | None = None
    meet: Callable[..., None] | None = None
    rules: dict[Any, Rule] = field(default_factory=dict)

    def argument(self, position: int) -> str:
        """The name of the argument at a position; the last name may stand for many, as `*xs`."""
        return self.args[position] if position < len(self.args) - 1 else self.args[-1]

    def pull_of(self, position: int) -> Terms | None:
        return self.pulls.get(self.argument(position))

    def rule(self, needs: tuple[int, ...], count: int) -> Rule:
        """The rule for the arguments that need a cotangent, of `count` in all."""
        found = self.rules.get((needs, count))
        if found is None:
            found = self.rules[needs, count] = Rule(self, needs, count)
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


def enlisted(op: Op) -> Op:
    """An op of the package, found by its name in `OPS`."""
    if op.name in OPS:
        raise ArgumentError(f"op {op.name!r} is already defined.")
    OPS[op.name] = op
    return op


class Rule:
    """An op seen from the arguments that need a cotangent: what to keep for them, and how to pull back.

    `plain` holds for each plain kind of spec a function made by `specialise` that takes a step back.
    """

    __slots__ = ("_joint", "_lookups", "count", "keeps", "needs", "op", "plain")

    def __init__(self, op: Op, needs: tuple[int, ...], count: int) -> None:
        self.op = op
        self.needs = needs
        self.count = count
        self._joint = None if op.joint is None else tuple(self._lookup(name) for name in op.joint.names)
        self._lookups = {i: self._lookups_of(i) for i in needs} if self._joint is None else {}
        self.keeps = self._what_to_keep()
        self.plain: list[Any] = [None] * 6

    def _lookups_of(self, position: int) -> tuple[tuple[str, Any], ...]:
        """For each name in a formula, where its value will be found."""
        pull = self.op.pull_of(position)
        return () if pull is None else tuple(self._lookup(name) for name in pull.names)

    def _lookup(self, name: str) -> tuple[str, Any]:
        if name in ("bar", "out", "position", "others", "specs"):
            return name, None
        for i, argument in enumerate(self.op.args):
            if name == argument:
                return "argument", i
            if name == argument + "_spec":
                return "spec", i
            if "*" + name == argument:
                return "rest", i
        return "static", name

    def _what_to_keep(self) -> tuple[int, ...]:
        wanted = set().union(*(self.uses(position) for position in self.needs))
        keeps = tuple(sorted(wanted - {OUT})) + ((OUT,) if OUT in wanted else ())
        return next((common for common in (BOTH, FIRST, SECOND) if common == keeps), keeps)

    def reaches(self, number: int) -> bool:
        """Whether a cotangent goes on to the argument of that number among those that need one."""
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
        """The cotangents of some arguments, before they are summed to the arguments' shapes."""
        if self._joint is None or self.op.joint is None:
            return [self.share(i, bar, out, args, specs, static) for i in positions]
        together = self.op.joint.formula(*self._values(self._joint, tuple(positions), bar, out, args, specs, static))
        return [together[i] for i in positions]

    def share(
        self, position: int, bar: Any, out: Any, args: list[Any], specs: tuple[Spec, ...], static: dict[str, Any]
    ) -> Any:
        """The cotangent of one argument, before it is summed to that argument's shape."""
        pull = self.op.pull_of(position)
        if pull is None:
            return None
        return pull.formula(*self._values(self._lookups[position], position, bar, out, args, specs, static))

    def _values(
        self,
        lookups: Sequence[tuple[str, Any]],
        position: int | tuple[int, ...],
        bar: Any,
        out: Any,
        args: list[Any],
        specs: tuple[Spec, ...],
        static: dict[str, Any],
    ) -> list[Any]:
        """What a formula named, in its order."""
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
                values.append(self._static(key, static))
            else:
                values.append(self._of_many(kind, key, position, args, specs))
        return values

    def _static(self, name: str, static: dict[str, Any]) -> Any:
        if name not in static:
            raise ArgumentError(f"the rule of {self.op.name} uses {name!r}, which is no argument or static of it.")
        return static[name]

    def _of_many(self, kind: str, start: int, position: Any, args: list[Any], specs: tuple[Spec, ...]) -> Any:
        """What only ops of any number of arguments name."""
        if kind == "others":
            return [a for i, a in enumerate(args) if i != position]
        return position if kind == "position" else specs if kind == "specs" else args[start:]
