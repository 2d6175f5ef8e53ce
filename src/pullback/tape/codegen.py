"""The generator of backward steps: rule and specs in, a plain Python function on NumPy arrays out.

The rule is run once on symbols, which traces the ops it uses, the sums over broadcast axes included; the program is
rendered as one would write it by hand, with temporaries reused. For tanh:

    def step(kept, parents, bar, waiting):
        k1, = kept
        parent0, = parents
        t0 = multiply(k1, k1)
        t1 = subtract(c1, t0, t0)
        t2 = multiply(bar, t1, t1)
        held = parent0.bar
        if held is waiting: parent0.bar = t2
        elif type(held) is ndarray and getrefcount(held) == 3 and held.base is None: add(held, t2, held)
        else: parent0.bar = accumulate(held, t2)

Three references to a held sum are the node's, the variable's and the call's own: it is not visible elsewhere, so it
may be added to in place; likewise `bar` may be overwritten at its last use. A view refers to the array it is of, so
what has views is never alone, and a view itself is never written to. The counts are measured for the
interpreter at hand (`_count_own_references`). A rule that does not fit is interpreted, on raw arrays.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from types import CodeType, SimpleNamespace
from typing import Any

import numpy as np

from ..arrays.backends import array_class_of_gpus
from ..arrays.node import PlannedCall
from ..arrays.spec import PLAIN_KINDS, Spec, make_spec, spec_of
from ..ops.binding import bind_function, bind_to_views
from ..ops.elementwise import pointwise
from ..ops.lazy import lazy_function
from ..ops.op import OUT, MaskedCotangent, PartRule, PullRule
from ..ops.reduce.reductions import fit_to_spec
from ..ops.shape.reshaping import narrow
from ..program.ir import Equation, Program, Symbol
from ..program.run import run
from ..program.stage import stage
from .cotangent_masks import fit_share
from .cotangents import step_of_part
from .view_folding import View, fold_views

BackwardStep = Callable[[tuple[Any, ...], tuple[Any, ...], Any, Any], None]
Accumulate = Callable[[Any, Any], Any]
#: A program of elementwise ops as one kernel of a GPU: a function of arrays; None if it cannot be one.
_bind_program = lazy_function("cuda.eager", "bind_program", "compile")
#: Families of ops whose rules depend on specs and static parameters alone, and not on the values.
_RENDERED = frozenset(("elementwise", "linear", "contraction"))


def plain_step(rule: PullRule, kind: int, accumulate: Accumulate) -> BackwardStep:
    """The backward step of a rule for one plain kind: generated code where possible, else the rule interpreted."""
    spec = make_spec(() if kind % 2 else (2,), PLAIN_KINDS[kind // 2])
    call = PlannedCall(rule, (spec,) * rule.count, {}, spec)
    return _render_step(call, accumulate) or _interpreted_step(call, accumulate, fits=True)


def planned_step(call: PlannedCall, accumulate: Accumulate) -> BackwardStep:
    """The same for a planned call, whose specs and static parameters are known."""
    if type(call.rule) is PartRule:
        return step_of_part(call.rule.index)
    rendered = None
    if call.rule.op.family in _RENDERED and all(s.weak is None for s in call.specs):
        rendered = None if _device_of(call) == "cpu" else _kernel_step(call, accumulate)
        rendered = rendered or _render_step(call, accumulate)
    interpreted = _interpreted_step(call, accumulate)
    return _step_of_many(call, rendered, interpreted) if type(call.out) is tuple else rendered or interpreted


def _device_of(call: PlannedCall) -> str:
    device: str = (call.out[0] if type(call.out) is tuple else call.out).device
    return device


def _step_of_many(call: PlannedCall, rendered: BackwardStep | None, interpreted: BackwardStep) -> BackwardStep:
    """The step of an op with several results: generated code is for the case that all of them have a cotangent."""
    # a joint rule makes zeros of the spec itself, if it needs any
    absent = call.out if call.rule.op.joint is not None else (None,) * len(call.out)

    def step(kept: tuple[Any, ...], parents: tuple[Any, ...], bar: Any, waiting: Any) -> None:
        bars = bar.bars
        if rendered is not None and all(b is not None for b in bars):
            rendered(kept, parents, bars, waiting)
        else:
            bars = tuple([spec if b is None else b for b, spec in zip(bars, absent, strict=True)])
            interpreted(kept, parents, bars, waiting)

    return step


def _kernel_step(call: PlannedCall, accumulate: Accumulate) -> BackwardStep | None:
    """On a GPU a rule is one kernel, if all its ops are elementwise; it also adds to the cotangents that are there."""
    if type(call.out) is tuple:
        return None
    program, fed = _stage_shares(call)
    shares_alone = _bind_program(program)
    if shares_alone is None:
        return None
    kernels: dict[tuple[bool, ...], Any] = {}
    none = (False,) * len(fed)
    can_overwrite = program.outputs[0].spec == program.inputs[0].spec

    def step(kept: tuple[Any, ...], parents: tuple[Any, ...], bar: Any, waiting: Any) -> None:
        alone = can_overwrite and sys.getrefcount(bar) == _BAR_ALONE_OUTSIDE and bar.base is None
        takers = [parents[i] for i in fed]
        held = [node.bar for node in takers]
        kind = type(bar)
        adds = tuple([type(h) is kind for h in held])
        if adds != none and len({*map(id, takers)}) < len(takers):
            adds = none  # a later share is added to an earlier one
        kernel = None if adds == none else kernels.get(adds)
        if kernel is None and adds != none:
            kernel = kernels[adds] = _bind_program(_add_to_shares(program, adds))
        if kernel is None:
            adds = none
            found = shares_alone((bar, *kept), bar if alone else None)
        else:
            found = kernel((bar, *kept, *[h for h, is_added in zip(held, adds, strict=True) if is_added]))
        for node, share, is_added in zip(takers, found, adds, strict=True):
            before = node.bar
            node.bar = share if is_added or before is waiting else accumulate(before, share)

    return step


def _add_to_shares(program: Program, adds: Sequence[bool]) -> Program:
    """The program with further arguments, to which the marked results are added."""
    count = len(program.inputs)
    chosen = [i for i, is_added in enumerate(adds) if is_added]

    def add_up(*args: Any) -> list[Any]:
        shares = run(program, args[:count])
        for i, held in zip(chosen, args[count:], strict=True):
            shares[i] = pointwise.add(held, shares[i])
        return shares

    return stage(add_up, *(s.spec for s in program.inputs), *(program.outputs[i].spec for i in chosen))


def _interpreted_step(call: PlannedCall, accumulate: Accumulate, fits: bool = False) -> BackwardStep:
    """The step that evaluates the rule; `fits`: shares have the shapes of their arguments, whatever these are, and
    their dtypes unless those are of half precision.
    """
    rule, specs, static = call.rule, call.specs, call.static
    needs = rule.needs
    wanted = [specs[i] for i in needs]

    def step(kept: tuple[Any, ...], parents: tuple[Any, ...], bar: Any, waiting: Any) -> None:
        out, args = _unpack_kept(rule, kept, specs)
        shares = rule.shares(needs, bar, out, args, specs, static)
        for parent, share, spec in zip(parents, shares, wanted, strict=True):
            if share is not None:
                held = parent.bar
                if fits:
                    share = _round_share(share, spec) if spec.half else share
                elif not (type(share) is np.ndarray and share.shape == spec.shape and share.dtype is spec.dtype):
                    share = fit_share(share, spec)
                parent.bar = share if held is waiting else accumulate(held, share)

    return step


def _round_share(share: Any, spec: Spec) -> Any:
    """A share that was computed in float32, in half precision."""
    if type(share) is MaskedCotangent:
        return MaskedCotangent(narrow(share.bar, spec.dtype), share.mask)
    return narrow(share, spec.dtype)


def _unpack_kept(rule: PullRule, kept: Sequence[Any], specs: Sequence[Any]) -> tuple[Any, list[Any]]:
    """The result and the arguments as the rule sees them: for a value that was not saved, its spec."""
    args: list[Any] = list(specs)
    out = None
    for position, value in zip(rule.keeps, kept, strict=True):
        if position == OUT:
            out = value
        else:
            args[position] = value
    return out, args


def _stage_shares(call: PlannedCall) -> tuple[Program, list[int]]:
    """The rule as a program of the cotangents and the saved values, and which parents its results are for."""
    rule, specs = call.rule, call.specs
    outs = call.out if type(call.out) is tuple else (call.out,)
    fed: list[int] = []

    def compute_shares(*symbols: Symbol) -> tuple[Any, ...]:
        bar: Any = symbols[: len(outs)] if type(call.out) is tuple else symbols[0]
        out, args = _unpack_kept(rule, symbols[len(outs) :], specs)
        shares = rule.shares(rule.needs, bar, out, args, specs, call.static)
        fed.extend(n for n, share in enumerate(shares) if share is not None)
        return tuple(_fit_to_argument(shares[n], specs[rule.needs[n]]) for n in fed)

    program = stage(compute_shares, *outs, *(call.out if k == OUT else specs[k] for k in rule.keeps))
    return program, fed


def _render_step(call: PlannedCall, accumulate: Accumulate) -> BackwardStep | None:
    rule, results = call.rule, len(call.out) if type(call.out) is tuple else 0
    if results and OUT in rule.keeps:
        return None
    program, fed = _stage_shares(call)
    if not all(map(_can_render, program.equations)) or not all(isinstance(o, Symbol) for o in program.outputs):
        return None
    names: dict[str, Any] = {"getrefcount": sys.getrefcount, "accumulate": accumulate}
    if _device_of(call) == "cpu":
        names |= {"asarray": np.asarray, "ndarray": np.ndarray, "add": np.add}
    else:
        names |= {"ndarray": array_class_of_gpus()}
    text = _render_text(program, results, len(rule.needs), fed, names)
    exec(_compile(text, rule.op.name), names)
    step: BackwardStep = names["step"]
    return step


def _fit_to_argument(share: Any, spec: Spec) -> Any:
    return fit_to_spec(share, spec) if isinstance(share, Symbol) else share


def _can_render(equation: Equation) -> bool:
    op = equation.op
    bound = ("linear", "contraction") if equation.results[0].spec.device == "cpu" else _RENDERED
    return len(equation.results) == 1 and (_find_ufunc(equation) is not None or op.family in bound)


def _find_ufunc(equation: Equation) -> np.ufunc | None:
    """NumPy's ufunc for an equation; on a GPU every function is bound to its specs."""
    if equation.results[0].spec.device != "cpu":
        return None
    found = getattr(np, equation.op.ufunc) if equation.op.ufunc and not equation.static else None
    return found if isinstance(found, np.ufunc) else None


@functools.lru_cache(maxsize=1024)
def _compile(text: str, name: str) -> CodeType:
    """Steps that differ only in the objects they refer to share their code."""
    return compile(text, f"<pullback: the rule of {name}>", "exec")


def _render_text(program: Program, bars: int, parents: int, fed: Sequence[int], names: dict[str, Any]) -> str:
    """The source of the step, which adds shares to the parents in `fed`; what it refers to is added to `names`. With
    several results, `bar` is the tuple of so many cotangents.
    """
    inputs, results = program.inputs, program.outputs
    called = {id(s): f"k{i}" for i, s in enumerate(inputs)}
    lines = ["def step(kept, parents, bar, waiting):"]
    if bars:
        lines.append(f"    {', '.join(called[id(s)] for s in inputs[:bars])}, = bar")
    else:
        called[id(inputs[0])] = "bar"
    if len(inputs) > max(bars, 1):
        lines.append(f"    {', '.join(called[id(s)] for s in inputs[max(bars, 1) :])}, = kept")
    lines.append(f"    {', '.join(f'parent{i}' for i in range(parents))}, = parents")
    lines += _render_equations(program, None if bars else inputs[0], called, names)
    for i, result in zip(fed, results, strict=True):
        is_array = result.spec.shape or result.spec.device != "cpu"
        share = called[id(result)] if is_array else f"asarray({called[id(result)]})"
        lines += _render_accumulation(f"parent{i}", share, result.spec, names)
    return "\n".join(lines)


def _render_equations(program: Program, bar: Symbol | None, called: dict[int, str], names: dict[str, Any]) -> list[str]:
    """A line for each equation; a ufunc writes into a temporary, or into `bar`, that is unused from there on."""
    equations = program.equations
    folded = fold_views(program)
    last_use = {id(a): n for n, e in enumerate(equations) for a in e.args}
    last_use |= {id(r): len(equations) for r in program.outputs}
    own: set[int] = set()  # results in memory of their own, without views
    lines = []
    for n, equation in enumerate(equations):
        (result,), ufunc = equation.results, _find_ufunc(equation)
        if id(result) in folded:
            continue
        sources = [folded.get(id(a), View(a, None)) for a in equation.args]
        if any(view is not None for _, view in sources):
            names[f"f{n}"] = bind_to_views(
                equation.op, [spec_of(a) for a in equation.args], equation.static, [view for _, view in sources]
            )
            called[id(result)] = f"t{n}"
            lines.append(f"    t{n} = f{n}({', '.join(called[id(source)] for source, _ in sources)})")
            continue
        args = [called[id(a)] if isinstance(a, Symbol) else _bind_constant(a, equation, names) for a in equation.args]
        reuse: list[str] = []
        if ufunc is None:
            function = f"f{n}"
            names[function] = bind_function(equation.op, [spec_of(a) for a in equation.args], equation.static)
            own.difference_update(map(id, equation.args))
        else:
            function = ufunc.__name__
            names[function] = ufunc
            if result.spec.shape:
                over = [a for a in equation.args if id(a) in own and last_use[id(a)] == n and a.spec == result.spec]
                reuse = [called[id(a)] for a in over[:1]]
                if not reuse and bar is not None and result.spec == bar.spec and last_use.get(id(bar)) == n:
                    reuse = [f"bar if getrefcount(bar) == {_BAR_ALONE} and bar.base is None else None"]
        if ufunc is not None or equation.op.family == "contraction":
            own.add(id(result))
        called[id(result)] = f"t{n}"
        line = f"{function}({', '.join(args + reuse)})"
        is_array = result.spec.shape or ufunc is not None or result.spec.device != "cpu"
        lines.append(f"    t{n} = {line if is_array else f'asarray({line})'}")
    return lines


def _render_accumulation(parent: str, share: str, spec: Spec, names: dict[str, Any]) -> list[str]:
    if spec.device != "cpu":
        # a new array each time: a kernel of ours costs no more than one in place
        names[f"add_{parent}"] = bind_function(pointwise.add.op, (spec, spec), {})
        return [
            f"    held = {parent}.bar",
            f"    if held is waiting: {parent}.bar = {share}",
            f"    elif type(held) is ndarray: {parent}.bar = add_{parent}(held, {share})",
            f"    else: {parent}.bar = accumulate(held, {share})",
        ]
    alone = f"type(held) is ndarray and getrefcount(held) == {_HELD_ALONE} and held.base is None"
    return [
        f"    held = {parent}.bar",
        f"    if held is waiting: {parent}.bar = {share}",
        f"    elif {alone}: add(held, {share}, held)",
        f"    else: {parent}.bar = accumulate(held, {share})",
    ]


def _bind_constant(value: Any, equation: Equation, names: dict[str, Any]) -> str:
    """The name of a constant; a number takes the dtype of the arrays beside it, since NumPy's conversion costs more."""
    name = f"c{len(names)}"
    beside = {a.spec.dtype for a in equation.args if isinstance(a, Symbol)}
    on_cpu = equation.results[0].spec.device == "cpu"
    if on_cpu and type(value) in (int, float) and len(beside) == 1 and next(iter(beside)).kind == "f":
        value = np.asarray(value, next(iter(beside)))
    names[name] = value
    return name


def _count_own_references() -> tuple[int, int, int]:
    """What `getrefcount` returns in a step for a `bar` and a held sum that only the engine refers to: of `bar` among
    the arguments of a call, and by itself.

    Interpreters differ in which references they count, so the engine's loop is imitated with one array.
    """
    counts: list[int] = []
    names: dict[str, Any] = {"getrefcount": sys.getrefcount, "note": lambda bar, k1, count: counts.append(count)}
    text = """
def step(kept, parents, bar, waiting):
    k1, = kept
    parent0, = parents
    note(None, None, getrefcount(bar))
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
    return counts[1], counts[0], counts[2]


_BAR_ALONE, _BAR_ALONE_OUTSIDE, _HELD_ALONE = _count_own_references()
