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
    argument x, a static parameter; for ops of many arguments `index` (which one), `others`, `specs`.

    The names are the declaration: what a formula names is what the tape keeps for it, and nothing else.
    """

    formula: Callable[..., Any]
    names: tuple[str, ...]

    def __call__(self, *values: Any) -> Any:
        return self.formula(*values)


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
    pull only moves, copies or drops elements, so it can move a mask too) or "".
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

    __slots__ = ("count", "keeps", "needs", "op", "plain")

    def __init__(self, op: Op, needs: tuple[int, ...], count: int) -> None:
        self.op = op
        self.needs = needs
        self.count = count
        self.keeps = self._what_to_keep()
        self.plain: list[Any] = [None] * 6

    def _what_to_keep(self) -> tuple[int, ...]:
        wanted: set[int] = set()
        for position in self.needs:
            pull = self.op.pull_of(position)
            for name in pull.names if pull else ():
                wanted |= self._positions(name, position)
        keeps = tuple(sorted(wanted - {OUT})) + ((OUT,) if OUT in wanted else ())
        return next((common for common in (BOTH, FIRST, SECOND) if common == keeps), keeps)

    def _positions(self, name: str, position: int) -> set[int]:
        if name == "out":
            return {OUT}
        if name == "others":
            return set(range(self.count)) - {position}
        for i, argument in enumerate(self.op.args):
            if argument == name:
                return {i}
            if argument == "*" + name:
                return set(range(i, self.count))
        return set()

    def share(
        self, position: int, bar: Any, out: Any, args: list[Any], specs: tuple[Spec, ...], static: dict[str, Any]
    ) -> Any:
        """The cotangent of one argument, before it is summed to that argument's shape."""
        pull = self.op.pull_of(position)
        if pull is None:
            return None
        values = [self._resolve(name, position, bar, out, args, specs, static) for name in pull.names]
        return pull.formula(*values)

    def _resolve(
        self,
        name: str,
        position: int,
        bar: Any,
        out: Any,
        args: list[Any],
        specs: tuple[Spec, ...],
        static: dict[str, Any],
    ) -> Any:
        if name == "bar":
            return bar
        if name == "out":
            return out
        if name in static:
            return static[name]
        if name == "specs":
            return specs
        if name == "index":
            return position
        if name == "others":
            return [a for i, a in enumerate(args) if i != position]
        for i, argument in enumerate(self.op.args):
            if name == argument:
                return args[i]
            if name == argument + "_spec":
                return specs[i]
            if argument == "*" + name:
                return args[i:]
        raise ArgumentError(f"the rule of {self.op.name} uses {name!r}, which is no argument or static of it.")
