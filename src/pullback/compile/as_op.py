"""A compiled function seen from a tape or a transform: an op like any other, whose rules are compiled functions too."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..arrays.node import PlannedCall
from ..arrays.spec import Spec, spec_of, zeros
from ..arrays.tensor import Tensor
from ..arrays.value import Value
from ..ops.dispatch import apply
from ..ops.elementwise.pointwise import multiply, where
from ..ops.op import UNKNOWN, Op, as_formula
from ..ops.record import PartRule
from ..program.ir import Equation, Program, Symbol
from ..program.run import run
from ..program.split import split_forward_backward
from ..program.stage import stage
from ..settings import PLAIN, modes, override_modes
from ..tape.cotangents import ResultCotangents, accumulate
from ..tape.pull_through import pull_through
from ..transforms.boundary import unwrap_to_level
from ..transforms.forward import Dual, jvp
from ..transforms.reverse import vjp
from ..transforms.vectorize import vmap
from .lazy import lazy
from .stage.captures import as_native_contiguous
from .stage.residuals import is_cheap
from .target import ARRAYS

_SELECT = where.op  # type: ignore[attr-defined]


class CompiledOp:
    """A staged program as an op. `compute` runs it on arrays and overwrites none of them; `compile` makes a compiled
    function with the options of the original, so that a derivative keeps them too.
    """

    def __init__(
        self,
        name: str,
        staged: Program,
        compute: Callable[..., list[Any]],
        compile: Callable[[Callable[..., Any]], Any],
        saves_residuals: bool,
    ) -> None:
        self.name = name
        self.staged = staged
        self.compute = compute
        self.compile = compile
        self.saves_residuals = saves_residuals
        self.specs = [s.spec for s in staged.inputs]
        self.out_specs = tuple(spec_of(o) for o in staged.outputs)
        #: The results that have derivatives.
        self.floating = [i for i, s in enumerate(self.out_specs) if s.inexact]
        self.derived: dict[tuple[Any, ...], Any] = {}

    def apply(self, values: Sequence[Any]) -> list[Any]:
        """The results on any values; those that no tracked argument reaches carry no gradient."""
        needs = self._tracked_arguments(values)
        # a tape wants the residuals too, other transforms only the results
        recording = self.recording(needs) if needs and self.saves_residuals else None
        outs = apply(self.op, *values) if recording is None else recording.apply(values)
        found = list(outs)[: len(self.out_specs)] if isinstance(outs, tuple) else [outs]
        tracked = sum(1 << i for i, v in enumerate(values) if _is_tracked(v))
        each = zip(found, self.reaches, self.moves, strict=True)
        return [x if back & tracked else _without_gradient(x, ahead & tracked) for x, back, ahead in each]

    @lazy
    def op(self) -> Op:
        one = len(self.out_specs) == 1

        def value(xp: Any, *xs: Any) -> Any:
            found = self.compute(*xs)
            return found[0] if one else tuple(found)

        def joint(bar: Any, xs: Any, position: Any) -> Any:
            given = [zeros(b) if isinstance(b, Spec) else b for b in ([bar] if one else bar)]
            # integers have no cotangents
            wanted = tuple(i for i in position if self.specs[i].inexact)
            shares = self.pull_to(wanted)(list(xs), [given[i] for i in self.floating])
            return tuple(_scatter(shares, wanted, len(xs)))

        def push(tangents: Any, out: Any, primals: Any, static: Any) -> Any:
            moving = tuple(i for i, t in enumerate(tangents) if t is not None and self.specs[i].inexact)
            found = self.push_from(moving)(list(primals), [tangents[i] for i in moving])
            every = _scatter(found, self.floating, len(self.out_specs))
            return every[0] if one else tuple(every)

        def batch(op: Any, size: int, args: Any, axes: Any, static: Any) -> Any:
            found = self.batch_over(tuple(axes))(*args)
            return (found[0], 0) if one else (tuple(found), (0,) * len(found))

        return Op(
            name=f"jit {self.name}", family="custom", args=("*xs",), value=value,
            spec=lambda *xs: self.out_specs[0] if one else self.out_specs, pulls={}, joint=as_formula(joint),
            push=push, batch=batch, samples=lambda rng: [], effects=UNKNOWN, masked=self.pull_masked,
        )  # fmt: skip

    @functools.cached_property
    def meets_arguments(self) -> bool:
        """Whether an op of the program looks at its arguments, and may refuse to be recorded."""
        return any(e.op.meet is not None for e in self.staged.equations)

    def pull_to(self, some: tuple[int, ...]) -> Any:
        """The compiled pull to some arguments. The others are constants, which a program may want of them."""

        def pull(xs: list[Any], bars: list[Any]) -> Any:
            return list(vjp(self.as_function_of(xs, some), *(xs[i] for i in some))[1](bars))

        return self._derive("pull", some, lambda: self.compile(pull))

    def pull_masked(self, bars: Sequence[Any], xs: Sequence[Any], some: Sequence[int]) -> list[Any]:
        """The shares of masked cotangents. Where a mask is zero the program may hold infinities, which only its ops,
        one by one, keep out of sums.
        """
        assert all(b is None for b in bars[len(self.out_specs) :]), "a residual's cotangent has no mask"
        return pull_through(self.replay, bars, list(xs[: len(self.specs)]), some)

    def push_from(self, some: tuple[int, ...]) -> Any:
        def push(xs: list[Any], dots: list[Any]) -> Any:
            return jvp(self.as_function_of(xs, some), tuple(xs[i] for i in some), tuple(dots))[1]

        return self._derive("push", some, lambda: self.compile(push))

    def batch_over(self, axes: tuple[Any, ...]) -> Any:
        return self._derive("batch", axes, lambda: self.compile(vmap(self.replay, in_axes=axes)))

    def _derive(self, kind: str, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        if (kind, key) not in self.derived:
            self.derived[kind, key] = make()
        return self.derived[kind, key]

    def recording(self, needs: tuple[int, ...]) -> Recording:
        """What a tape records where some arguments are tracked."""
        found: Recording = self._derive("record", needs, lambda: Recording(self, needs))
        return found

    def is_elementwise(self, needs: tuple[int, ...]) -> bool:
        """Whether the one result depends on some arguments, of its own spec, element by element."""
        (out, *others), inputs = self.out_specs, [self.specs[i] for i in needs]
        alike = all((s.shape, s.dtype) == (out.shape, out.dtype) for s in inputs)
        return not others and alike and all(e.op.family == "elementwise" for e in self.staged.equations)

    def reached_arguments(self, some: Sequence[int]) -> tuple[int, ...]:
        """Those of some arguments that a cotangent of any result reaches; the others get none, rather than zeros."""
        if self.meets_arguments:  # what refuses derivatives must be asked for them
            return tuple(some)
        every = functools.reduce(operator.or_, self.reaches, 0)
        return tuple(i for i in some if every >> i & 1)

    def reached(self, needs: tuple[int, ...]) -> list[int]:
        """The results from which a cotangent reaches one of some arguments."""
        tracked = sum(1 << i for i in needs)
        return [i for i, reach in enumerate(self.reaches) if reach & tracked]

    def replay(self, *xs: Any) -> list[Any]:
        """The program as it was staged (passes may drop what only derivatives see) on any values, op by op."""
        return run(self.staged, xs)

    def as_function_of(self, xs: Sequence[Any], some: Sequence[int]) -> Callable[..., list[Any]]:
        """The floating results as a function of some inputs, the others held fixed."""

        def float_results(*moving: Any) -> list[Any]:
            every = list(xs)
            for i, x in zip(some, moving, strict=True):
                every[i] = x
            found = self.replay(*every)
            return [found[i] for i in self.floating]

        return float_results

    @functools.cached_property
    def reaches(self) -> list[int]:
        """The inputs that a cotangent of each output reaches, one bit for each: none for comparisons, and for what is
        held fixed.
        """
        return self._find_reach(_passes_back)

    @functools.cached_property
    def moves(self) -> list[int]:
        """The inputs whose tangents each output moves with: those too that `no_grad` hides from cotangents."""
        return self._find_reach(lambda op, i: op.stops_tapes or _passes_back(op, i))

    def _find_reach(self, passes: Callable[[Op, int], bool]) -> list[int]:
        # one bit an input, so that a program of many equations is walked once
        bits = {id(s): s.spec.inexact << i for i, s in enumerate(self.staged.inputs)}
        for e in self.staged.equations:
            found = [bits.get(id(a), 0) for i, a in enumerate(e.args) if passes(e.op, i)]
            reach = functools.reduce(operator.or_, found, 0)
            bits |= {id(s): reach for s in e.results if s.spec.inexact}
        return [bits.get(id(o), 0) for o in self.staged.outputs]

    def _tracked_arguments(self, values: Sequence[Any]) -> tuple[int, ...]:
        """The arguments that a tape at the top will ask for cotangents."""
        level = max(v.level for v in values if isinstance(v, Value))
        if not modes().grad or not self.floating:
            return ()
        tensors = [i for i, v in enumerate(values) if type(v) is Tensor and v.level == level and v.node is not None]
        return self.reached_arguments(tensors)


class Recording:
    """A compiled function as a tape records it, given which arguments are tracked: a forward program that returns the
    results and then residuals, and a backward one from residuals and cotangents to those arguments.
    """

    def __init__(self, of: CompiledOp, needs: tuple[int, ...]) -> None:
        self.of, self.needs = of, needs
        xs, outs = of.staged.inputs, of.out_specs
        bars = [s for s in outs if s.inexact]

        # results and cotangents in one program, so that the split finds what the two share
        def both(*symbols: Any) -> list[Any]:
            given, cotangents = symbols[: len(xs)], symbols[len(xs) :]
            found, pull = vjp(of.as_function_of(given, needs), *(given[i] for i in needs))
            floats, every = iter(found), found if len(bars) == len(outs) else of.replay(*given)
            results = [next(floats) if s.inexact else x for s, x in zip(outs, every, strict=True)]
            return [unwrap_to_level(x, symbols[0].scope) for x in (*results, *pull(list(cotangents)))]

        staged = _stage_in_plain_modes(both, [*(s.spec for s in xs), *bars])
        if of.is_elementwise(needs) and not _selects_cotangents(staged, len(xs)):
            staged = _save_slopes(staged)
        self.split = split_forward_backward(staged, len(xs), len(outs), is_cheap)
        # two programs: the forward one runs now, the backward one when and if it is asked for
        self.forward = of.compile(_as_function(self.split.forward, of.name)).lower(*xs)
        self.run_backward = of.compile(_as_function(self.split.backward, of.name))

    def apply(self, values: Sequence[Any]) -> Any:
        """The results and residuals on values of any kind."""
        return apply(self.op, *values, *self.forward.captured)

    @lazy
    def op(self) -> Op:
        """The op that the general path records. It returns residuals as results, so they have derivatives too."""
        outs = self.of.out_specs
        forward: Op = self.forward.op
        pull_forward: Any = forward.joint

        def joint(bar: Any, out: Any, xs: Any, position: Any) -> Any:
            bar, out = (bar, out) if type(out) is tuple else ((bar,), (out,))
            if any(not isinstance(b, Spec) for b in bar[len(outs) :]):  # the residuals are differentiated themselves
                return pull_forward.function(bar, xs, position)
            residuals = [xs[i] if where == "argument" else out[i] for where, i in self.split.residual_sources]
            return _scatter(self.run_backward(*residuals, *self._given(bar)), self.needs, len(xs))

        return replace(forward, joint=as_formula(joint), rules={})

    def _given(self, bars: Sequence[Any]) -> list[Any]:
        """The cotangents of the floating results, zero where there is none."""
        pairs = zip(bars, self.of.out_specs, strict=False)
        return [zeros(b) if isinstance(b, Spec) else b for b, s in pairs if s.inexact]

    # The node of a direct call saves the inputs, then the residuals, then results that are residuals too: they are
    # arguments of its op. No residual is a result of it, so the graph of a backward pass starts from the inputs.

    @functools.cached_property
    def reused_results(self) -> list[int]:
        """The results that the backward program reads."""
        count = len(self.of.out_specs)
        return sorted({i for where, i in self.split.residual_sources if where == "result" and i < count})

    @functools.cached_property
    def residual_places(self) -> list[int]:
        """Where a node has each residual among what it saves."""
        inputs, count = len(self.forward.specs), len(self.of.out_specs)
        last = inputs + len(self.split.forward.outputs) - count
        results = {i: last + n for n, i in enumerate(self.reused_results)}
        return [
            i if where == "argument" else results[i] if i < count else inputs + i - count
            for where, i in self.split.residual_sources
        ]

    @lazy
    def call(self) -> PlannedCall:
        """What all nodes of direct calls share: their rule, its arguments' specs, and the step of a backward pass."""
        of, count = self.of, len(self.of.staged.inputs)
        outs = [spec_of(x) for x in self.split.forward.outputs]
        specs = (*self.forward.specs, *outs[len(of.out_specs) :], *(outs[i] for i in self.reused_results))

        def joint(bar: Any, xs: Any, position: Any) -> Any:
            bars = self._given(bar if type(bar) is tuple else (bar,))
            if any(type(x) is Tensor and x.node is not None for x in (*xs, *bars)):  # the pass is differentiated itself
                return _scatter(of.pull_to(position)(list(xs[:count]), bars), position, len(xs))
            return _scatter(self.run_backward(*(xs[i] for i in self.residual_places), *bars), self.needs, len(xs))

        rule = replace(of.op, joint=as_formula(joint), rules={}).rule(self.needs, len(specs))
        found = PlannedCall(rule, specs, {}, of.out_specs[0] if len(of.out_specs) == 1 else of.out_specs)
        found.step = self.step
        return found

    @lazy
    def parts(self) -> list[PlannedCall]:
        """The same for each result's own node, if there are several."""
        made = []
        for i, spec in enumerate(self.of.out_specs):
            made.append(PlannedCall(PartRule(self.call.rule.op, i), (), {}, spec))
            made[i].step = functools.partial(_step_of_part, i, len(self.of.out_specs))
        return made

    def step(self, kept: tuple[Any, ...], parents: tuple[Any, ...], bar: Any, waiting: Any) -> None:
        """One step of a plain backward pass: pull and accumulate."""
        given = [kept[i] for i in self.residual_places]
        if type(bar) is ResultCotangents:
            pairs = zip(bar.bars, self.of.out_specs, strict=True)
            given += [zeros(s) if b is None else b for b, s in pairs if s.inexact]
        else:
            given.append(bar)
        call, constants = self.backward
        shares = call(*given, *constants)
        if shares is False:  # cotangents that are views
            given = [as_native_contiguous(x, spec_of(x)) for x in given]
            shares = call(*given, *constants)
        if type(shares) is not list:
            shares = self.run_backward(*given)
        for parent, share in zip(parents, shares, strict=True):
            held = parent.bar
            parent.bar = share if held is waiting else accumulate(held, share)

    @lazy
    def backward(self) -> tuple[Callable[..., Any], Sequence[Any]]:
        """A direct call of the backward program, and its last arguments."""
        found = self.run_backward.find(*self.split.backward.inputs)
        direct = found.code.direct if found.is_prepared else None
        return (_refuse if direct is None else direct.make_call(ARRAYS), found.captured)


def _step_of_part(
    index: int, count: int, kept: tuple[Any, ...], parents: tuple[Any, ...], bar: Any, waiting: Any
) -> None:
    """The cotangent of one result takes its place among those of the others."""
    (parent,) = parents
    found, held = ResultCotangents(index, count, bar), parent.bar
    parent.bar = found if held is waiting else accumulate(held, found)


def _selects_cotangents(staged: Program, inputs: int) -> bool:
    """Whether a pull selects from cotangents: where an element is not selected, an infinite one must stay out, and a
    slope of zero times infinity would not be zero.
    """
    moving = {id(s) for s in staged.inputs[inputs:]}
    for e in staged.equations:
        if any(id(a) in moving for a in e.args):
            if e.op is _SELECT:
                return True
            moving |= {id(s) for s in e.results}
    return False


def _save_slopes(staged: Program) -> Program:
    """A result that depends on arguments element by element, with their cotangents as slopes times the result's: a
    slope is one array to save, where the chain of its factors may be several.
    """
    *xs, bar = staged.inputs
    one = np.ones((), bar.spec.dtype)

    def scaled(*symbols: Any) -> list[Any]:
        out, *slopes = run(staged, (*symbols[: len(xs)], one))
        return [out, *(multiply(slope, symbols[-1]) for slope in slopes)]

    found = _stage_in_plain_modes(scaled, [*(s.spec for s in xs), bar.spec])
    return replace(found, equations=tuple(map(_write_numbers, found.equations)))


def _write_numbers(e: Equation) -> Equation:
    """An equation with Python numbers for constant scalars, which passes see, if another argument says the dtype."""
    typed = {a.spec.dtype for a in e.args if isinstance(a, Symbol) and a.spec.inexact}
    args = [a.item() if type(a) is np.ndarray and not a.ndim and {a.dtype} == typed else a for a in e.args]
    return replace(e, args=tuple(args))


def _refuse(*inputs: Any) -> None:
    """No direct call."""


def _scatter(values: Sequence[Any], at: Sequence[int], count: int) -> list[Any]:
    """Values at their positions among `count`, None at the others."""
    found: list[Any] = [None] * count
    for i, value in zip(at, values, strict=True):
        found[i] = value
    return found


def _without_gradient(x: Any, moves: int) -> Any:
    """A result that no cotangent comes back from; it has a tangent if it `moves`."""
    if type(x) is Dual:
        return x if moves else _without_gradient(x.primal, moves)
    return x.detach() if type(x) is Tensor else x


def _is_tracked(x: Any) -> bool:
    """Whether a value may carry a derivative of its own transform; the graph of a tensor is not searched."""
    return x.node is not None if type(x) is Tensor else isinstance(x, Value)


def _passes_back(op: Op, position: int) -> bool:
    """Whether a cotangent of the op's result reaches an argument."""
    return op.differentiable and (op.joint is not None or op.pull_of(position) is not None)


def _stage_in_plain_modes(function: Callable[..., Any], specs: Sequence[Spec]) -> Program:
    """A function as equations, the same ones whatever modes the call is in: instruments see what runs."""
    with override_modes(**PLAIN._asdict()):
        return stage(function, *specs, shared=True, name="jit")


def _as_function(program: Program, name: str) -> Callable[..., list[Any]]:
    """A program as a named function."""

    def run_program(*values: Any) -> list[Any]:
        return run(program, values)

    run_program.__name__ = name
    return run_program
