"""Rule in, one plain Python function out: a step back for NumPy floats of one spec, with temporaries reused.

The rule is run once on symbols, which writes down the ops it uses; if all of them are NumPy ufuncs the program
is rendered to the lines one would write by hand. For tanh:

    def step(kept, parents, bar, waiting):
        out, = kept
        parent0, = parents
        t0 = multiply(out, out)
        t1 = subtract(c1, t0, t0)
        t2 = multiply(bar, t1, t1)
        held = parent0.bar
        if held is waiting: parent0.bar = t2
        elif type(held) is ndarray and getrefcount(held) == 3 and held.base is None: add(held, t2, held)
        else: parent0.bar = accumulate(held, t2)

Three references to a held sum are the node's, the variable's and the call's own: nobody else can see it, so it
may be added to in place; likewise `bar` may be overwritten where it is used last. The numbers are measured for the
interpreter at hand (`_counted_alone`). A rule that does not fit runs as it stands, on raw arrays.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable, Sequence, Set
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from ..arrays.backends import is_array
from ..arrays.node import show_line, user_line
from ..arrays.protect import settled
from ..arrays.scope import Scope
from ..arrays.spec import PLAIN_KINDS, Spec, make_spec, spec_of
from ..arrays.tensor import Tensor, copy_variable
from ..arrays.value import Value
from ..errors import ConversionError
from ..settings import enable_grad, modes, switched
from . import basis
from .dispatch import apply
from .op import OUT, Op, Rule

__all__ = [
    "Constants", "Equation", "Symbol", "is_as_it_was", "owner_of", "plain_step", "pointwise_spec", "replay",
    "write_down",
]  # fmt: skip

#: What to do where Python wants a number that only the running program will know.
_INSTEAD = {
    "bool()": "Choose by pb.where(condition, x, y) or pb.cond, loop by pb.while_loop",
    "int()": "Sizes and counts must be known beforehand: take them from x.shape, index with pb.take",
    "index()": "Sizes and counts must be known beforehand: take them from x.shape, index with pb.take",
}
Step = Callable[[tuple[Any, ...], tuple[Any, ...], Any, Any], None]
Accumulate = Callable[[Any, Any], Any]


@dataclass(frozen=True, slots=True)
class Equation:
    """One line of a program: `results = op(*args, **static)`."""

    results: tuple[Symbol, ...]
    op: Op
    args: tuple[Any, ...]
    static: dict[str, Any]


@functools.lru_cache(maxsize=4096)
def pointwise_spec(op: Op, specs: tuple[Spec, ...]) -> Any:
    """What an elementwise op makes of these: most equations, and NumPy takes its time to say what dtype comes out."""
    return op.spec_of(specs, {})


class Constants:
    """What a program that is being traced uses besides its symbols, each by the value it had where it was used: the
    user's function may write to an array, or point a tensor at another value, in its next line. `live` holds the ids of
    arrays whose owners read them anew at each run, so that they stand for themselves.
    """

    __slots__ = ("_kept", "_live", "_origins", "numbers")

    def __init__(self, live: Set[int] = frozenset()) -> None:
        self._kept: dict[int, tuple[weakref.ref[Any], Any]] = {}
        self._origins: dict[int, tuple[Any, weakref.ref[Any]]] = {}
        self._live = live
        self.numbers: list[Tensor] = []  # tensors whose numbers the function asked for

    def keep(self, x: Any) -> Any:
        """A stand-in that nothing can change; the same one as long as x is as it was."""
        if type(x) is not Tensor and not is_array(x):
            return x
        if id(x) in self._live or id(owner_of(x)) in self._live:
            return x
        found = self._kept.get(id(x))
        if found is not None and found[0]() is x and is_as_it_was(x, found[1]):
            return found[1]
        kept = copy_variable(x) if type(x) is Tensor else settled(x)
        self._kept[id(x)] = weakref.ref(x), kept
        self._origins[id(kept)] = kept, weakref.ref(x)
        return kept

    def origin(self, kept: Any) -> Any:
        """What a stand-in stands for, if something outside of the program still holds it as it was; else itself."""
        x = self._origins[id(kept)][1]() if id(kept) in self._origins else None
        return x if x is not None and is_as_it_was(x, kept) else kept


def owner_of(x: Any) -> Any:
    """The array whose memory this one is a view of."""
    while isinstance(base := getattr(x, "base", None), np.ndarray):
        x = base
    return x


def is_as_it_was(x: Any, kept: Any) -> bool:
    """Whether a tensor or an array has the value of its stand-in."""
    if Tensor in (type(x), type(kept)):
        return type(x) is type(kept) and x.value is kept.value and x.node is kept.node
    return x is kept or _has_content(x, kept)


def _has_content(x: Any, other: Any) -> bool:
    """Whether two arrays are equal to the last bit, signs of zeros and kinds of NaN included."""
    if x.shape != other.shape or x.dtype != other.dtype:
        return False
    if not isinstance(x, np.ndarray):
        return bool((x == other).all())
    return bool(x.tobytes() == other.tobytes())


class Symbol(Value):
    """A value known only by its spec. Ops on it are written down instead of computed."""

    __slots__ = ("constants", "equations", "level", "now", "recorded", "scope", "spec")
    level: int
    is_variable = True

    def __init__(self, spec: Spec, scope: Scope, equations: list[Equation], constants: Constants | None) -> None:
        self.spec = spec.guarded()
        self.scope = scope
        self.level = scope.level
        self.equations = equations
        self.constants = constants
        self.recorded = True  # False of what was computed under `no_grad`
        self.now: Symbol | None = None  # the symbol it stands for since `x += y`, whose equation has that one's name

    def point_at(self, new: Any, what: str) -> None:
        found = new if isinstance(new, Symbol) else None
        if found is None and (not isinstance(new, Value) or new.level < self.level):
            found = self.scope.lift(self.scope, new)
        if found is None or found.scope is not self.scope:
            raise self.unmovable(what)
        self.now = current(found)

    def alias(self) -> Symbol:
        twin = Symbol(self.spec, self.scope, self.equations, self.constants)
        twin.now = current(self)
        return twin

    def interpret(self, op: Op, args: Sequence[Any], static: dict[str, Any]) -> Any:
        self.scope.check()
        if op is basis.unrecorded.op and self.is_tangent:
            return current(args[0])
        given = tuple([spec_of(x) for x in args])
        made = op.spec_of(given, static) if static or op.family != "elementwise" else pointwise_spec(op, given)
        specs = made if type(made) is tuple else (made,)
        results = tuple(Symbol(spec, self.scope, self.equations, self.constants) for spec in specs)
        constants = self.constants
        args = [current(x) for x in args]
        if not modes().grad and not self.is_tangent:
            args = _unrecorded(op, args, results)
        kept = tuple(args) if constants is None else tuple([constants.keep(x) for x in args])
        self.equations.append(Equation(results, op, kept, static))
        return results if type(made) is tuple else results[0]

    @property
    def is_tangent(self) -> bool:
        """Whether it stands for a tangent of `linearize`, which passes where no tape records."""
        return self.scope.name == "linearize"

    def kept_references(self) -> int:
        return sum(x is self for equation in self.equations for x in (*equation.results, *equation.args))

    def refusal(self, what: str) -> ConversionError:
        """A program is written down before there are numbers: say where one was asked for, and what works instead."""
        instead = _INSTEAD.get(what, "Use functions of pullback on it; its numbers are there when the function returns")
        return ConversionError(
            f"{what}: {self!r} has no numbers yet, the function is being written down as a program.\n"
            f"  at {show_line(*user_line(sys._getframe(1)))}\n"
            f"  {instead}, or make the argument it comes from static (static_argnums)."
        )

    def __repr__(self) -> str:
        return f"<symbol {self.spec}>"


def _unrecorded(op: Op, args: Sequence[Any], results: tuple[Symbol, ...]) -> Sequence[Any]:
    """The arguments of an op under `no_grad`, such that no derivative of the program ever goes back through them."""
    for result in results:
        result.recorded = False
    return args if op is basis.unrecorded.op else [basis.unrecorded(x) if _is_recorded(x) else x for x in args]


def _is_recorded(x: Any) -> bool:
    """Whether a derivative may go back to an argument; to a captured tensor it may once that requires one."""
    return isinstance(x, Value) and spec_of(x).inexact and (type(x) is not Symbol or x.recorded)


class _Located(list[Equation]):
    """Equations with the user's line of each, by the id of its first result."""

    def __init__(self, lines: dict[int, Any]) -> None:
        self.lines = lines

    def append(self, equation: Equation) -> None:
        list.append(self, equation)
        self.lines[id(equation.results[0])] = user_line(sys._getframe(1))


def current(x: Any) -> Any:
    """What a symbol was last pointed at; anything else as it is."""
    return x if type(x) is not Symbol or x.now is None else x.now


def write_down(
    function: Callable[..., Any],
    *specs: Spec,
    shared: bool = False,
    name: str = "staging",
    constants: Constants | None = None,
    lines: dict[int, Any] | None = None,
) -> tuple[list[Symbol], list[Equation], Any]:
    """Run a function on symbols: its inputs, the equations it wrote, and what it returned. A function of ours, which
    writes to no array, may have its constants `shared` instead of copied. Another `name` says that the function has
    numbers to decide by, and symbols only for tangents. For "jit", ops on tensors from outside are traced as well.
    `lines` is filled with the user's line of each equation.
    """
    equations: list[Equation] = [] if lines is None else _Located(lines)
    constants = None if shared else constants or Constants()

    def lift(scope: Scope, x: Any) -> Symbol:
        result = Symbol(spec_of(x), scope, equations, constants)
        kept = x if constants is None else constants.keep(x)
        equations.append(Equation((result,), basis.positive.op, (kept,), {}))
        return result

    with Scope(name, lift, _itself) as scope:
        inputs = [Symbol(spec, scope, equations, constants) for spec in specs]
        with _modes_inside(name, inputs):
            out = function(*inputs)
        out = [current(x) for x in out] if isinstance(out, (list, tuple)) else current(out)
    scope.lift = _itself  # what was written down points back at its list no more: no cycle is left
    for symbol in (*inputs, *(s for e in equations for s in e.results)):
        symbol.equations, symbol.constants = [], None
    return inputs, equations, out


def _modes_inside(name: str, inputs: Sequence[Symbol]) -> AbstractContextManager[None]:
    """A program is the same one whether or not the place it is traced at records: that place runs it."""
    if name == "jit" and inputs:
        return switched(tracing=inputs[0])
    return enable_grad() if name == "staging" and not modes().grad else nullcontext()


def _itself(*x: Any) -> Any:
    return x[-1]


def replay(inputs: Sequence[Symbol], equations: Sequence[Equation], outputs: Any, values: Sequence[Any]) -> list[Any]:
    """Run what was written down, on values for its inputs: the values of its outputs."""
    known: dict[int, Any] = {id(symbol): value for symbol, value in zip(inputs, values, strict=True)}
    for equation in equations:
        args = [known.get(id(a), a) for a in equation.args]
        if equation.op.meet is not None:
            equation.op.meet(*args, **equation.static)
        made = apply(equation.op, *args, **equation.static)
        made = made if type(made) is tuple else (made,)
        known |= {id(s): value for s, value in zip(equation.results, made, strict=True)}
    return [known.get(id(o), o) for o in outputs]


def plain_step(rule: Rule, kind: int, accumulate: Accumulate) -> Step:
    """The step back of a rule for one plain kind: rendered where that is possible, else the rule itself."""
    spec = make_spec(() if kind % 2 else (2,), PLAIN_KINDS[kind // 2])
    return _rendered(rule, spec, accumulate) or _as_it_stands(rule, accumulate)


def _as_it_stands(rule: Rule, accumulate: Accumulate) -> Step:
    def step(kept: tuple[Any, ...], parents: tuple[Any, ...], bar: Any, waiting: Any) -> None:
        out, args = _unpack(rule, kept)
        for i, parent in zip(rule.needs, parents, strict=True):
            share = rule.share(i, bar, out, args, (), {})
            if share is not None:
                held = parent.bar
                parent.bar = share if held is waiting else accumulate(held, share)

    return step


def _unpack(rule: Rule, kept: tuple[Any, ...]) -> tuple[Any, list[Any]]:
    args: list[Any] = [None] * rule.count
    out = None
    for position, value in zip(rule.keeps, kept, strict=True):
        if position == OUT:
            out = value
        else:
            args[position] = value
    return out, args


def _rendered(rule: Rule, spec: Spec, accumulate: Accumulate) -> Step | None:
    def shares(bar: Symbol, *kept: Symbol) -> tuple[Any, ...]:
        out, args = _unpack(rule, kept)
        return tuple(rule.share(i, bar, out, args, (), {}) for i in rule.needs)

    inputs, equations, results = write_down(shares, *[spec] * (1 + len(rule.keeps)))
    fits = all(e.op.ufunc and not e.static and e.results[0].spec in (spec, _as_bool(spec)) for e in equations)
    if not fits or not all(isinstance(r, Symbol) and r.spec == spec for r in results):
        return None
    names = {
        "asarray": np.asarray,
        "ndarray": np.ndarray,
        "getrefcount": sys.getrefcount,
        "accumulate": accumulate,
        "add": np.add,
    }
    text = _text(inputs, equations, results, spec, names)
    exec(compile(text, f"<pullback: the rule of {rule.op.name}>", "exec"), names)
    step: Step = names["step"]  # type: ignore[assignment]
    return step


def _as_bool(spec: Spec) -> Spec:
    return make_spec(spec.shape, np.dtype(bool))


def _text(
    inputs: list[Symbol], equations: list[Equation], results: tuple[Any, ...], spec: Spec, names: dict[str, Any]
) -> str:
    """The lines of the function; what they refer to is put into `names`."""
    called = {id(s): f"k{i}" for i, s in enumerate(inputs)}
    called[id(inputs[0])] = "bar"
    last_use = {id(a): n for n, e in enumerate(equations) for a in e.args}
    last_use |= {id(r): len(equations) for r in results}
    lines = ["def step(kept, parents, bar, waiting):"]
    if len(inputs) > 1:
        lines.append(f"    {', '.join(called[id(s)] for s in inputs[1:])}, = kept")
    lines.append(f"    {', '.join(f'parent{i}' for i in range(len(results)))}, = parents")
    for n, equation in enumerate(equations):
        ufunc = str(equation.op.ufunc)
        names[ufunc] = getattr(np, ufunc)
        args = [called[id(a)] if isinstance(a, Symbol) else _constant(a, spec, names) for a in equation.args]
        done = [a for a in equation.args if called.get(id(a), "").startswith("t") and last_use[id(a)] == n]
        reuse = [called[id(a)] for a in done if a.spec == equation.results[0].spec][:1] if spec.shape else []
        if not reuse and spec.shape and equation.results[0].spec == spec and last_use.get(id(inputs[0])) == n:
            reuse = [f"bar if getrefcount(bar) == {_BAR_ALONE} and bar.base is None else None"]
        called[id(equation.results[0])] = f"t{n}"
        lines.append(f"    t{n} = {ufunc}({', '.join(args + reuse)})")
    for i, result in enumerate(results):
        share = called[id(result)] if spec.shape else f"asarray({called[id(result)]})"
        lines += _adding(f"parent{i}", share)
    return "\n".join(lines)


def _adding(parent: str, share: str) -> list[str]:
    alone = f"type(held) is ndarray and getrefcount(held) == {_HELD_ALONE} and held.base is None"
    return [
        f"    held = {parent}.bar",
        f"    if held is waiting: {parent}.bar = {share}",
        f"    elif {alone}: add(held, {share}, held)",
        f"    else: {parent}.bar = accumulate(held, {share})",
    ]


def _constant(number: Any, spec: Spec, names: dict[str, Any]) -> str:
    name = f"c{len(names)}"
    names[name] = np.asarray(number, spec.dtype)
    return name


def _counted_alone() -> tuple[int, int]:
    """What `getrefcount` says in a step of a `bar` and of a held sum that nobody but the engine can see.

    Interpreters differ in which references they count, so the engine's own loop is played with one array.
    """
    counts: list[int] = []
    names: dict[str, Any] = {"getrefcount": sys.getrefcount, "note": lambda bar, k1, count: counts.append(count)}
    text = """
def step(kept, parents, bar, waiting):
    k1, = kept
    parent0, = parents
    t0 = note(bar, k1, getrefcount(bar))
    held = parent0.bar
    note(None, None, getrefcount(held))
"""
    exec(compile(text, "<pullback: counting references>", "exec"), names)
    child, parent = SimpleNamespace(bar=np.empty(1)), SimpleNamespace(bar=np.empty(1))
    for node in (child,):
        bar = node.bar
        node.bar = None
        names["step"]((None,), (parent,), bar, None)
    return counts[0], counts[1]


_BAR_ALONE, _HELD_ALONE = _counted_alone()
