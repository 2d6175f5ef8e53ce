"""The op record: one statement that says what an op computes and how it differentiates, batches and renders."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..arrays.spec import Spec
from ..errors import ArgumentError

__all__ = ["OPS", "OUT", "Op", "Rule", "Selected", "Terms", "terms"]

#: Every op by its name.
OPS: dict[str, Op] = {}
#: Stands for the result among the things a rule keeps; the arguments stand as their positions.
OUT = -1
#: What rules of two arguments mostly keep; one object each, so that the fast path may ask `keeps is BOTH`.
BOTH, FIRST, SECOND = (0, 1), (0,), (1,)


@dataclass(frozen=True, slots=True)
class Terms:
    """A formula and the names it uses: `bar` the cotangent, `out` the result, an argument, `x_spec` the spec of
    argument x, a static parameter; for ops of many arguments `position` (which one), `others`, `specs`.

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
    result without computing, `pulls` maps an argument to its cotangent's formula (None: derivative zero),
    `push(tangents, out, args, static)` is the forward derivative, `batch(op, size, args, axes, static)` answers
    (result, axis), `kernel(k, *scalars)` writes the op in the scalar vocabulary `k`, `samples(rng)` lists
    (arguments, static) to test on. `motion` is "pointwise", "rearrange" (a
    pull moves, copies, drops or adds up elements with weights that are not negative, so it can carry a mask along: what
    comes out not zero is where some cotangent can be), "contract" (the same with ones for the other arguments) or "".
    """

    name: str
    family: str
    args: tuple[str, ...]
    value: Callable[..., Any]
    spec: Callable[..., Any]
    pulls: Mapping[str, Terms | None]
    push: Callable[..., Any]
    batch: Callable[..., Any]
    samples: Callable[..., Any]
    kernel: Callable[..., Any] | None = None
    doc: str = ""
    ufunc: str | None = None
    motion: str = ""
    differentiable: bool = True
    rules: dict[Any, Rule] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.name in OPS:
            raise ArgumentError(f"op {self.name!r} is already defined.")
        OPS[self.name] = self

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

    def __repr__(self) -> str:
        return f"<op {self.name}>"


class Rule:
    """An op seen from the arguments that need a cotangent: what to keep for them, and how to pull back.

    `plain` holds for each plain kind of spec a function made by `specialise` that takes a step back.
    """

    __slots__ = ("_lookups", "count", "keeps", "needs", "op", "plain")

    def __init__(self, op: Op, needs: tuple[int, ...], count: int) -> None:
        self.op = op
        self.needs = needs
        self.count = count
        self._lookups = {i: self._lookups_of(i) for i in needs}
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
        wanted: set[int] = set()
        for position, lookups in self._lookups.items():
            for kind, key in lookups:
                if kind == "out":
                    wanted.add(OUT)
                elif kind == "argument":
                    wanted.add(key)
                elif kind == "rest":
                    wanted.update(range(key, self.count))
                elif kind == "others":
                    wanted.update(set(range(self.count)) - {position})
        keeps = tuple(sorted(wanted - {OUT})) + ((OUT,) if OUT in wanted else ())
        return next((common for common in (BOTH, FIRST, SECOND) if common == keeps), keeps)

    def share(
        self, position: int, bar: Any, out: Any, args: list[Any], specs: tuple[Spec, ...], static: dict[str, Any]
    ) -> Any:
        """The cotangent of one argument, before it is summed to that argument's shape."""
        pull = self.op.pull_of(position)
        if pull is None:
            return None
        values: list[Any] = []
        for kind, key in self._lookups[position]:
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
        return pull.formula(*values)

    def _static(self, name: str, static: dict[str, Any]) -> Any:
        if name not in static:
            raise ArgumentError(f"the rule of {self.op.name} uses {name!r}, which is no argument or static of it.")
        return static[name]

    def _of_many(self, kind: str, start: int, position: int, args: list[Any], specs: tuple[Spec, ...]) -> Any:
        """What only ops of any number of arguments name."""
        if kind == "others":
            return [a for i, a in enumerate(args) if i != position]
        return position if kind == "position" else specs if kind == "specs" else args[start:]
