"""The generator of backward steps: rule in, a plain Python function on NumPy floats out.

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

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from ..arrays.spec import PLAIN_KINDS, Spec, make_spec
from ..ops.op import OUT, PullRule
from ..program.ir import Program, Symbol
from ..program.stage import stage

BackwardStep = Callable[[tuple[Any, ...], tuple[Any, ...], Any, Any], None]
Accumulate = Callable[[Any, Any], Any]


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

    program = stage(compute_shares, *[spec] * (1 + len(rule.keeps)))
    fits = all(e.op.ufunc and not e.static and e.results[0].spec in (spec, _as_bool(spec)) for e in program.equations)
    if not fits or not all(isinstance(o, Symbol) and o.spec == spec for o in program.outputs):
        return None
    names = {
        "asarray": np.asarray,
        "ndarray": np.ndarray,
        "getrefcount": sys.getrefcount,
        "accumulate": accumulate,
        "add": np.add,
    }
    text = _render_text(program, spec, names)
    exec(compile(text, f"<pullback: the rule of {rule.op.name}>", "exec"), names)
    step: BackwardStep = names["step"]  # type: ignore[assignment]
    return step


def _as_bool(spec: Spec) -> Spec:
    return make_spec(spec.shape, np.dtype(bool))


def _render_text(program: Program, spec: Spec, names: dict[str, Any]) -> str:
    """The source of the step; the objects it refers to are added to `names`."""
    inputs, equations, results = program.inputs, program.equations, program.outputs
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
