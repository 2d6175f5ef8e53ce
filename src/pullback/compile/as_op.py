"""A compiled function seen from a tape or a transform: an op like any other, whose rules are compiled functions too."""

from __future__ import annotations

import functools
import logging
import operator
from collections.abc import Callable, Sequence
from typing import Any

from ..arrays.call_site import UNTYPED
from ..arrays.spec import Spec, spec_of, zeros
from ..arrays.tensor import Tensor
from ..arrays.value import Value
from ..errors import PullbackError
from ..ops.dispatch import apply
from ..ops.forms import Flow
from ..ops.op import Op, as_formula
from ..program.ir import Program, nested_programs
from ..program.run import run
from ..settings import modes
from ..tape.pull_through import pull_through
from ..transforms.forward import Dual, jvp
from ..transforms.reverse import vjp
from ..transforms.vectorize import vmap
from .lazy import lazy
from .recording import Recording, scatter

_LOG = logging.getLogger("pullback")


class CompiledOp:
    """A staged program as an op. `compute` runs it on arrays and overwrites none of them; `compile` makes a compiled
    function with the options of the original, so that a derivative keeps them too. Where it `is_optional` that native
    code runs at all, a call whose derivative cannot be staged is recorded op by op.
    """

    def __init__(
        self,
        name: str,
        staged: Program,
        compute: Callable[..., list[Any]],
        compile: Callable[[Callable[..., Any]], Any],
        saves_residuals: bool,
        is_optional: bool = False,
    ) -> None:
        self.name = name
        self.staged = staged
        self.compute = compute
        self.compile = compile
        self.saves_residuals = saves_residuals
        self.is_optional = is_optional
        self.specs = [s.spec for s in staged.inputs]
        self.out_specs = tuple(spec_of(o) for o in staged.outputs)
        #: The results that have derivatives.
        self.floating = [i for i, s in enumerate(self.out_specs) if s.inexact]
        self.derived: dict[tuple[Any, ...], Any] = {}

    def apply(self, values: Sequence[Any]) -> list[Any]:
        """The results on any values; those that no tracked argument reaches carry no gradient."""
        if self.meets_arguments:  # what refuses derivatives is asked for those alone that there are
            values = [
                x.detach() if type(x) is Tensor and x.node is not None and not x.is_tracked else x for x in values
            ]
        needs = self._tracked_arguments(values)
        # a tape wants the residuals too, other transforms only the results
        records = needs and self.saves_residuals
        recording = self.recording(needs) if records else None
        if records and recording is None:
            return self.replay(*values)
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
            return tuple(scatter(shares, wanted, len(xs)))

        def push(tangents: Any, out: Any, primals: Any, static: Any) -> Any:
            moving = tuple(i for i, t in enumerate(tangents) if t is not None and self.specs[i].inexact)
            found = self.push_from(moving)(list(primals), [tangents[i] for i in moving])
            every = scatter(found, self.floating, len(self.out_specs))
            return every[0] if one else tuple(every)

        def batch(op: Any, size: int, args: Any, axes: Any, static: Any) -> Any:
            found = self.batch_over(tuple(axes))(*args)
            return (found[0], 0) if one else (tuple(found), (0,) * len(found))

        return Op(
            name=f"jit {self.name}", family="custom", args=("*xs",), value=value,
            spec=lambda *xs: self.out_specs[0] if one else self.out_specs, pulls={}, joint=as_formula(joint),
            push=push, batch=batch, samples=lambda rng: [], effects=self.staged.effects, masked=self.pull_masked,
        )  # fmt: skip

    @functools.cached_property
    def meets_arguments(self) -> bool:
        """Whether an op of the program, or of a loop or branch in it, looks at its arguments, and may refuse to be
        recorded.
        """
        programs = (self.staged, *nested_programs(self.staged.equations))
        return any(e.op.meet is not None for program in programs for e in program.equations)

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

    def recording(self, needs: tuple[int, ...]) -> Recording | None:
        """What a tape records where some arguments are tracked; None if its ops."""
        found: Recording | None = self._derive("record", needs, lambda: self._make_recording(needs))
        return found

    def _make_recording(self, needs: tuple[int, ...]) -> Recording | None:
        try:
            return Recording(self, needs)
        except (PullbackError, *UNTYPED) as error:
            if not self.is_optional:
                raise
            why = str(error).partition("\n")[0]
            _LOG.info("fuse: %s is recorded op by op: its derivative cannot be traced: %s", self.name, why)
            return None

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
        return _find_reach(self.staged, [s.spec.inexact << i for i, s in enumerate(self.staged.inputs)], passes)

    def _tracked_arguments(self, values: Sequence[Any]) -> tuple[int, ...]:
        """The arguments that a tape at the top will ask for cotangents."""
        level = max(v.level for v in values if isinstance(v, Value))
        if not modes().grad or not self.floating:
            return ()
        tensors = [i for i, v in enumerate(values) if type(v) is Tensor and v.level == level and v.node is not None]
        return self.reached_arguments(tensors)


def _find_reach(program: Program, given: Sequence[int], passes: Callable[[Op, int], bool]) -> list[int]:
    """What each output depends on, as bits, from what each input does."""
    bits = {id(s): bit for s, bit in zip(program.inputs, given, strict=True)}
    for e in program.equations:
        found = [bits.get(id(a), 0) if passes(e.op, i) else 0 for i, a in enumerate(e.args)]
        if isinstance(e.op.form, Flow) and e.op.form.kind == "branch":  # a result depends on what its own ways read
            ways = [_find_reach(way, found[1:], passes) for way in e.static["ways"]]
            reaches = [functools.reduce(operator.or_, each) for each in zip(*ways, strict=True)]
        else:
            reaches = [functools.reduce(operator.or_, found, 0)] * len(e.results)
        bits |= {id(s): reach for s, reach in zip(e.results, reaches, strict=True) if s.spec.inexact}
    return [bits.get(id(o), 0) for o in program.outputs]


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
