"""What a tape records of a compiled function: a forward program with residuals, and a backward one that reads them."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays.backends import move_array
from ..arrays.node import PlannedCall
from ..arrays.spec import Spec, make_spec, spec_of, zeros
from ..arrays.tensor import Tensor, wrap
from ..ops.dispatch import apply
from ..ops.elementwise.pointwise import multiply, where
from ..ops.op import Op, PartRule, as_formula
from ..program.constants import Constants
from ..program.decisions import Decisions
from ..program.ir import Equation, Program, Symbol
from ..program.run import run
from ..program.split import split_forward_backward
from ..program.stage import stage
from ..settings import PLAIN, modes, override_modes
from ..tape.cotangents import ResultCotangents, adder_of, step_of_part
from ..transforms.boundary import unwrap_to_level
from ..transforms.control.paths import stage_with_branches
from ..transforms.reverse import vjp
from .lazy import lazy
from .stage.captures import as_native_contiguous
from .stage.residuals import is_cheap
from .target import SAVED_ARRAYS, UNTRACKED

if TYPE_CHECKING:
    from .as_op import CompiledOp

_SELECT = where.op


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
        level = values[self.needs[0]].level
        # as in a direct call, an argument that no cotangent reaches gets none, rather than zeros
        given = [
            x.detach() if i not in self.needs and type(x) is Tensor and x.level == level and x.node is not None else x
            for i, x in enumerate(values)
        ]
        return apply(self.op, *given, *self.forward.captured)

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
            return scatter(self.run_backward(*residuals, *self._given(bar)), self.needs, len(xs))

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
                return scatter(of.pull_to(position)(list(xs[:count]), bars), position, len(xs))
            return scatter(self.run_backward(*(xs[i] for i in self.residual_places), *bars), self.needs, len(xs))

        rule = replace(of.op, joint=as_formula(joint), rules={}).rule(self.needs, len(specs))
        found = PlannedCall(rule, specs, {}, of.out_specs[0] if len(of.out_specs) == 1 else of.out_specs)
        found.step = self.step
        if self._has_gradient:
            found.gradient = functools.partial(self._find_gradient, found)
        return found

    @lazy
    def parts(self) -> list[PlannedCall]:
        """The same for each result's own node, if there are several."""
        made = []
        for i, spec in enumerate(self.of.out_specs):
            made.append(PlannedCall(PartRule(self.call.rule.op, i), (), {}, spec))
            made[i].step = step_of_part(i)
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
        for parent, share, add in zip(parents, shares, self.adders, strict=True):
            held = parent.bar
            parent.bar = share if held is waiting else add(held, share)

    @lazy
    def adders(self) -> list[Callable[[Any, Any], Any]]:
        """What adds a share to a cotangent, for each tracked argument."""
        return [adder_of(make_spec(s.shape, s.dtype, s.device)) for s in (self.forward.specs[i] for i in self.needs)]

    @property
    def _has_gradient(self) -> bool:
        """Whether the result is one real number."""
        (out, *others) = self.of.out_specs
        return not others and out.size == 1 and out.dtype.kind == "f"

    def _find_gradient(self, call: PlannedCall, kept: tuple[Any, ...]) -> list[Tensor] | None:
        """The backward program is compiled when it is first asked for."""
        call.gradient = self.make_gradient()
        return call.gradient(kept)

    def make_gradient(self) -> Callable[[tuple[Any, ...]], list[Tensor] | None]:
        """What computes the shares of the cotangent one as tensors, by one native call; None where it did not run."""
        program = self.run_backward.find(*self.split.backward.inputs)
        direct = program.code.direct if program.is_prepared else None
        call = _refuse if direct is None else direct.make_call(UNTRACKED, len(self.needs))
        out = self.of.out_specs[0]
        one = np.ones(out.shape, out.dtype)
        seed = wrap(move_array(one, out.device), make_spec(out.shape, out.dtype, out.device))
        residuals, others = _getter_of(self.residual_places), (seed, *program.captured)

        def gradient(kept: tuple[Any, ...]) -> list[Tensor] | None:
            found = call(*residuals(kept), *others)
            return found if type(found) is list else None

        return gradient

    @lazy
    def backward(self) -> tuple[Callable[..., Any], Sequence[Any]]:
        """A direct call of the backward program, and its last arguments."""
        found = self.run_backward.find(*self.split.backward.inputs)
        direct = found.code.direct if found.is_prepared else None
        return (_refuse if direct is None else direct.make_call(SAVED_ARRAYS), found.captured)


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


def _getter_of(places: Sequence[int]) -> Callable[[Any], Sequence[Any]]:
    """A function that picks values at some places."""
    if len(places) > 1:
        return operator.itemgetter(*places)
    return lambda values: [values[i] for i in places]


def _refuse(*inputs: Any) -> None:
    """No direct call."""


def _stage_in_plain_modes(function: Callable[..., Any], specs: Sequence[Spec]) -> Program:
    """A function as equations, the same ones whatever modes the call is in: instruments see what runs. A rule may run a
    function of the user's, as that of a root does, and this may branch on its values.
    """

    def along(constants: Constants, decisions: Decisions) -> Program:
        return stage(function, *specs, name="jit", constants=constants, decisions=decisions)

    with override_modes(**PLAIN._replace(locates=modes().locates)._asdict()):
        at_once = functools.partial(stage, function, *specs, shared=True, name="jit")
        return stage_with_branches("jit: a derivative", at_once, along)


def _as_function(program: Program, name: str) -> Callable[..., list[Any]]:
    """A program as a named function."""

    def run_program(*values: Any) -> list[Any]:
        return run(program, values)

    run_program.__name__ = name
    return run_program


def scatter(values: Sequence[Any], at: Sequence[int], count: int) -> list[Any]:
    """Values at their positions among `count`, None at the others."""
    found: list[Any] = [None] * count
    for i, value in zip(at, values, strict=True):
        found[i] = value
    return found
