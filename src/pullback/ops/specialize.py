"""Tracing to equations, and the generator of backward steps: rule in, a plain Python function on NumPy floats out.

The rule is run once on symbols, which traces the ops it uses; if all of them are NumPy ufuncs the program
is rendered as one would write it by hand, with temporaries reused. For tanh:

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

Three references to a held sum are the node's, the variable's and the call's own: it is not visible elsewhere, so it
may be added to in place; likewise `bar` may be overwritten at its last use. The counts are measured for the
interpreter at hand (`_count_own_references`). A rule that does not fit is interpreted, on raw arrays.
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
from ..arrays.memory_ledger import owner_of
from ..arrays.node import format_line, user_line
from ..arrays.protect import as_immutable
from ..arrays.scope import Scope
from ..arrays.spec import PLAIN_KINDS, Spec, make_spec, spec_of
from ..arrays.tensor import Tensor, copy_variable
from ..arrays.value import Value
from ..errors import ConversionError
from ..instrument import OpCall
from ..settings import enable_grad, modes, override_modes
from . import basis
from .dispatch import apply
from .op import OUT, Op, PullRule

#: What to do where Python needs a number that is known only when the program runs.
_ADVICE = {
    "bool()": "Choose by pb.where(condition, x, y) or pb.cond, loop by pb.while_loop",
    "int()": "Sizes and counts must be known beforehand: take them from x.shape, index with pb.take",
    "index()": "Sizes and counts must be known beforehand: take them from x.shape, index with pb.take",
}
BackwardStep = Callable[[tuple[Any, ...], tuple[Any, ...], Any, Any], None]
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
    """The result spec of an elementwise op, cached: most equations are elementwise, and NumPy's promotion is slow."""
    return op.spec_of(specs, {})


class Constants:
    """The constants of a program being traced, each with its value at the point of use: the
    user's function may write to an array, or rebind a tensor, in its next line. `live` holds the ids of
    arrays that are reread at each run, so they are used directly.
    """

    __slots__ = ("_kept", "_live", "_origins", "numbers")

    def __init__(self, live: Set[int] = frozenset()) -> None:
        self._kept: dict[int, tuple[weakref.ref[Any], Any]] = {}
        self._origins: dict[int, tuple[Any, weakref.ref[Any]]] = {}
        self._live = live
        self.numbers: list[Tensor] = []  # tensors whose concrete values the function read

    def keep(self, x: Any) -> Any:
        """An immutable stand-in for x; the same one as long as x is unchanged."""
        if type(x) is not Tensor and not is_array(x):
            return x
        if id(x) in self._live or id(owner_of(x)) in self._live:
            return x
        found = self._kept.get(id(x))
        if found is not None and found[0]() is x and is_unchanged(x, found[1]):
            return found[1]
        kept = copy_variable(x) if type(x) is Tensor else as_immutable(x)
        self._kept[id(x)] = weakref.ref(x), kept
        self._origins[id(kept)] = kept, weakref.ref(x)
        return kept

    def origin(self, kept: Any) -> Any:
        """The original of a stand-in, if it is still alive and unchanged; else the stand-in."""
        x = self._origins[id(kept)][1]() if id(kept) in self._origins else None
        return x if x is not None and is_unchanged(x, kept) else kept


def is_unchanged(x: Any, kept: Any) -> bool:
    """Whether a tensor or an array has the value of its stand-in."""
    if Tensor in (type(x), type(kept)):
        return type(x) is type(kept) and x.value is kept.value and x.node is kept.node
    return x is kept or _is_bitwise_equal(x, kept)


def _is_bitwise_equal(x: Any, other: Any) -> bool:
    """Whether two arrays are equal to the last bit, signs of zeros and NaN payloads included."""
    if x.shape != other.shape or x.dtype != other.dtype:
        return False
    if not isinstance(x, np.ndarray):
        return bool((x == other).all())
    return bool(x.tobytes() == other.tobytes())


class Symbol(Value):
    """A value known only by its spec. Ops on it are traced instead of computed."""

    __slots__ = ("constants", "equations", "level", "now", "recorded", "scope", "spec")
    level: int
    is_variable = True

    def __init__(self, spec: Spec, scope: Scope, equations: list[Equation], constants: Constants | None) -> None:
        self.spec = spec.as_guarded()
        self.scope = scope
        self.level = scope.level
        self.equations = equations
        self.constants = constants
        self.recorded = True  # False for what was computed under `no_grad`
        self.now: Symbol | None = None  # the symbol it is rebound to since `x += y`

    def point_at(self, new: Any, what: str) -> None:
        found = new if isinstance(new, Symbol) else None
        if found is None and (not isinstance(new, Value) or new.level < self.level):
            found = self.scope.lift(self.scope, new)
        if found is None or found.scope is not self.scope:
            raise self.rebind_error(what)
        self.now = resolve_symbol(found)

    def alias(self) -> Symbol:
        twin = Symbol(self.spec, self.scope, self.equations, self.constants)
        twin.now = resolve_symbol(self)
        return twin

    def interpret(self, op: Op, args: Sequence[Any], static: dict[str, Any]) -> Any:
        self.scope.check()
        if not op.effects.repeat and (instruments := modes().instruments) is not None:
            # traced inside a checkpoint: both runs share one equation, so that the program runs it once
            return instruments.compute(OpCall(op, args, list(args), static, 0, False), self._append)
        return self._append(op, args, static)

    def _append(self, op: Op, args: Sequence[Any], static: dict[str, Any]) -> Any:
        if op is basis.unrecorded.op and self.is_tangent:
            return resolve_symbol(args[0])
        given = tuple([spec_of(x) for x in args])
        made = op.spec_of(given, static) if static or op.family != "elementwise" else pointwise_spec(op, given)
        specs = made if type(made) is tuple else (made,)
        results = tuple(Symbol(spec, self.scope, self.equations, self.constants) for spec in specs)
        constants = self.constants
        args = [resolve_symbol(x) for x in args]
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

    def conversion_error(self, what: str) -> ConversionError:
        """Tracing has no concrete values: the error names the line that needs one, and what works instead."""
        instead = _ADVICE.get(
            what, "Use functions of pullback on it; its values are known when the compiled program runs"
        )
        return ConversionError(
            f"{what}: {self!r} has no concrete values while the function is being traced.\n"
            f"  at {format_line(*user_line(sys._getframe(1)))}\n"
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


class _LocatedEquations(list[Equation]):
    """Equations with the user's line of each, by the id of its first result."""

    def __init__(self, lines: dict[int, Any]) -> None:
        self.lines = lines

    def append(self, equation: Equation) -> None:
        list.append(self, equation)
        self.lines[id(equation.results[0])] = user_line(sys._getframe(1))


def resolve_symbol(x: Any) -> Any:
    """The symbol that a symbol was last rebound to; anything else as it is."""
    return x if type(x) is not Symbol or x.now is None else x.now


def stage_equations(
    function: Callable[..., Any],
    *specs: Spec,
    shared: bool = False,
    name: str = "staging",
    constants: Constants | None = None,
    lines: dict[int, Any] | None = None,
) -> tuple[list[Symbol], list[Equation], Any]:
    """Trace a function on symbols: returns its inputs, its equations, and its result. A function of the package, which
    writes to no array, may have its constants `shared` instead of copied. Another `name` means that the function has
    concrete primals to decide by, and symbols only for tangents. For "jit", ops on captured tensors are traced as well.
    `lines` is filled with the user's line of each equation.
    """
    equations: list[Equation] = [] if lines is None else _LocatedEquations(lines)
    constants = None if shared else constants or Constants()

    def lift(scope: Scope, x: Any) -> Symbol:
        result = Symbol(spec_of(x), scope, equations, constants)
        kept = x if constants is None else constants.keep(x)
        equations.append(Equation((result,), basis.positive.op, (kept,), {}))
        return result

    with Scope(name, lift, _last_argument) as scope:
        inputs = [Symbol(spec, scope, equations, constants) for spec in specs]
        with _modes_inside(name, inputs):
            out = function(*inputs)
        out = [resolve_symbol(x) for x in out] if isinstance(out, (list, tuple)) else resolve_symbol(out)
    scope.lift = _last_argument  # equations no longer refer to their list: no reference cycle is left
    for symbol in (*inputs, *(s for e in equations for s in e.results)):
        symbol.equations, symbol.constants = [], None
    return inputs, equations, out


def _modes_inside(name: str, inputs: Sequence[Symbol]) -> AbstractContextManager[None]:
    """A program is the same one whether or not the place it is traced at records: that place runs it."""
    if name == "jit" and inputs:
        return override_modes(tracing=inputs[0])
    return enable_grad() if name == "staging" and not modes().grad else nullcontext()


def _last_argument(*x: Any) -> Any:
    return x[-1]


def replay(inputs: Sequence[Symbol], equations: Sequence[Equation], outputs: Any, values: Sequence[Any]) -> list[Any]:
    """Run traced equations on values for the inputs: the values of the outputs."""
    known: dict[int, Any] = {id(symbol): value for symbol, value in zip(inputs, values, strict=True)}
    for equation in equations:
        args = [known.get(id(a), a) for a in equation.args]
        if equation.op.meet is not None:
            equation.op.meet(*args, **equation.static)
        made = apply(equation.op, *args, **equation.static)
        made = made if type(made) is tuple else (made,)
        known |= {id(s): value for s, value in zip(equation.results, made, strict=True)}
    return [known.get(id(o), o) for o in outputs]


def live_equations(equations: Sequence[Equation], outputs: Sequence[Any]) -> tuple[Equation, ...]:
    """The equations that outputs depend on, and those whose effects forbid to drop them."""
    wanted = {id(o) for o in outputs}
    live = []
    for e in reversed(equations):
        if not e.op.effects.drop or any(id(s) in wanted for s in e.results):
            live.append(e)
            wanted |= {id(a) for a in e.args}
    return tuple(reversed(live))


def plain_step(rule: PullRule, kind: int, accumulate: Accumulate) -> BackwardStep:
    """The backward step of a rule for one plain kind: generated code where possible, else the rule interpreted."""
    spec = make_spec(() if kind % 2 else (2,), PLAIN_KINDS[kind // 2])
    return _render_step(rule, spec, accumulate) or _interpreted_step(rule, accumulate)


def _interpreted_step(rule: PullRule, accumulate: Accumulate) -> BackwardStep:
    def step(kept: tuple[Any, ...], parents: tuple[Any, ...], bar: Any, waiting: Any) -> None:
        out, args = _unpack_kept(rule, kept)
        for i, parent in zip(rule.needs, parents, strict=True):
            share = rule.share(i, bar, out, args, (), {})
            if share is not None:
                held = parent.bar
                parent.bar = share if held is waiting else accumulate(held, share)

    return step


def _unpack_kept(rule: PullRule, kept: tuple[Any, ...]) -> tuple[Any, list[Any]]:
    args: list[Any] = [None] * rule.count
    out = None
    for position, value in zip(rule.keeps, kept, strict=True):
        if position == OUT:
            out = value
        else:
            args[position] = value
    return out, args


def _render_step(rule: PullRule, spec: Spec, accumulate: Accumulate) -> BackwardStep | None:
    def compute_shares(bar: Symbol, *kept: Symbol) -> tuple[Any, ...]:
        out, args = _unpack_kept(rule, kept)
        return tuple(rule.share(i, bar, out, args, (), {}) for i in rule.needs)

    inputs, equations, results = stage_equations(compute_shares, *[spec] * (1 + len(rule.keeps)))
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
    text = _render_text(inputs, equations, results, spec, names)
    exec(compile(text, f"<pullback: the rule of {rule.op.name}>", "exec"), names)
    step: BackwardStep = names["step"]  # type: ignore[assignment]
    return step


def _as_bool(spec: Spec) -> Spec:
    return make_spec(spec.shape, np.dtype(bool))


def _render_text(
    inputs: list[Symbol], equations: list[Equation], results: tuple[Any, ...], spec: Spec, names: dict[str, Any]
) -> str:
    """The source of the step; the objects it refers to are added to `names`."""
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
        args = [called[id(a)] if isinstance(a, Symbol) else _bind_constant(a, spec, names) for a in equation.args]
        done = [a for a in equation.args if called.get(id(a), "").startswith("t") and last_use[id(a)] == n]
        reuse = [called[id(a)] for a in done if a.spec == equation.results[0].spec][:1] if spec.shape else []
        if not reuse and spec.shape and equation.results[0].spec == spec and last_use.get(id(inputs[0])) == n:
            reuse = [f"bar if getrefcount(bar) == {_BAR_ALONE} and bar.base is None else None"]
        called[id(equation.results[0])] = f"t{n}"
        lines.append(f"    t{n} = {ufunc}({', '.join(args + reuse)})")
    for i, result in enumerate(results):
        share = called[id(result)] if spec.shape else f"asarray({called[id(result)]})"
        lines += _render_accumulation(f"parent{i}", share)
    return "\n".join(lines)


def _render_accumulation(parent: str, share: str) -> list[str]:
    alone = f"type(held) is ndarray and getrefcount(held) == {_HELD_ALONE} and held.base is None"
    return [
        f"    held = {parent}.bar",
        f"    if held is waiting: {parent}.bar = {share}",
        f"    elif {alone}: add(held, {share}, held)",
        f"    else: {parent}.bar = accumulate(held, {share})",
    ]


def _bind_constant(number: Any, spec: Spec, names: dict[str, Any]) -> str:
    name = f"c{len(names)}"
    names[name] = np.asarray(number, spec.dtype)
    return name


def _count_own_references() -> tuple[int, int]:
    """What `getrefcount` returns in a step for a `bar` and a held sum that only the engine refers to.

    Interpreters differ in which references they count, so the engine's loop is imitated with one array.
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


_BAR_ALONE, _HELD_ALONE = _count_own_references()
