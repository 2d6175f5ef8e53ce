"""`Program`: inputs, equations on symbols (values known by their spec), and outputs.

It is what `pb.stage` returns, what `jit` compiles, the body of a loop or a branch, an equation to be solved, the linear
function of `linearize`. Methods that later layers implement are imported at their first call.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..arrays.call_site import FailedCheck, format_line, is_package_code, user_frame, user_line
from ..arrays.origin import find_origin
from ..arrays.scope import Scope
from ..arrays.spec import Spec, spec_of
from ..arrays.trees import flatten, leaf_paths, unflatten
from ..arrays.value import SymbolicValue, Value
from ..errors import (
    ArgumentError,
    ConversionError,
    DtypeError,
    GraphError,
    IndexingError,
    PullbackError,
    ShapeError,
)  # fmt: skip
from ..instrument import OpCall
from ..ops import basis
from ..ops.dispatch import as_value
from ..ops.forms import Flow, Gather, ScatterAdd, Write
from ..ops.lazy import lazy_function
from ..ops.op import PURE, Effects, Op
from ..settings import installed, modes
from .constants import Constants
from .loop_rewrites import suggest_loop
from .run import run

if TYPE_CHECKING:
    from pathlib import Path
    from types import CodeType, FrameType

#: What to do where Python needs a number that is known only when the program runs.
_ADVICE = {
    "bool()": "Choose by pb.where(condition, x, y) or pb.cond, loop by pb.while_loop",
    "hash()": "Sets, dicts and caches look up by hash. Compare instead, any(x == v for v in values), or choose by "
    "pb.take(values, i) or pb.switch; the value itself is known by id(x)",
    "float()": "Leave float() out: a traced number computes, compares and branches as it is; call pb.sin for math.sin",
    "item()": "Leave .item() out: a traced number computes, compares and branches as it is",
    "int()": "An index needs no int(): write x[i] for x[int(i)]. Sizes and counts must be known beforehand: take them "
    "from x.shape",
    "index()": "A list cannot be indexed by it: write pb.take(values, i), or pb.switch(i, functions) for functions. "
    "Sizes and counts must be known beforehand: take them from x.shape",
}

#: Forms of ops whose indices, or number of a branch, may be out of range when the program runs.
_INDEXED = frozenset((Flow, Gather, ScatterAdd, Write))

_format_program = lazy_function("text", "format_program", "program")
_format_spec = lazy_function("text", "format_spec", "program")
_parse_program = lazy_function("parse", "parse_program", "program")
_program_to_json = lazy_function("serial", "program_to_json", "program")
_parse_json = lazy_function("serial", "parse_json", "program")
_extract_subgraph = lazy_function("subgraph", "extract_subgraph", "program")
_cut_into_stages = lazy_function("subgraph", "cut_into_stages", "program")
_verify_program = lazy_function("verify", "verify_program", "program")
_stage_gradients = lazy_function("stage", "stage_gradients", "transforms")
_stage_jvp = lazy_function("stage", "stage_jvp", "transforms")
_save_drawing = lazy_function("draw", "save_drawing", "graph")
_program_html = lazy_function("draw", "program_html", "graph")
_jit = lazy_function("jit", "jit", "compile")


@dataclass(frozen=True, slots=True)
class Equation:
    """One line of a program: `results = op(*args, **static)`."""

    results: tuple[Symbol, ...]
    op: Op
    args: tuple[Any, ...]
    static: dict[str, Any]

    @property
    def effects(self) -> Effects:
        """What passes may do with it, also for the sake of the programs it runs."""
        return self.op.effects_of(self.static)

    @property
    def site(self) -> tuple[CodeType, int] | FailedCheck | None:
        """The user's line, of an op with indices, or what is raised where they are out of range; of any op the
        `Origin`, where the program was traced for that.
        """
        return getattr(self.results[0], "site", None) if self.results else None


@functools.lru_cache(maxsize=4096)
def pointwise_spec(op: Op, specs: tuple[Spec, ...]) -> Any:
    """The result spec of an elementwise op, cached: most equations are elementwise, and NumPy's promotion is slow."""
    return op.spec_of(specs, {})


class Symbol(SymbolicValue):
    """A value known only by its spec. Ops on it are traced instead of computed."""

    #: `site` is the user's line, of results that depend on indices: set on these alone.
    __slots__ = ("constants", "equations", "level", "now", "recorded", "scope", "site", "spec")
    site: tuple[CodeType, int] | FailedCheck
    level: int
    scope: Scope
    is_variable = True
    is_unknown = True

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
        if (instruments := modes().instruments) is not None and not op.effects_of(static).repeat:
            # traced inside a checkpoint: both runs share one equation, so that the program runs it once
            return instruments.compute(OpCall(op, args, list(args), static, 0, False), self._append)
        return self._append(op, args, static)

    def _append(self, op: Op, args: Sequence[Any], static: dict[str, Any]) -> Any:
        if op.stops_tapes and self.is_tangent:
            return resolve_symbol(args[0])
        given = tuple([spec_of(x) for x in args])
        made = op.spec_of(given, static) if static or op.family != "elementwise" else pointwise_spec(op, given)
        specs = made if type(made) is tuple else (made,)
        results = tuple(Symbol(spec, self.scope, self.equations, self.constants) for spec in specs)
        if op.form.__class__ in _INDEXED and len(args) > 1:
            results[0].site = user_line(sys._getframe(1))
        if modes().locates and results and (origin := find_origin(sys._getframe(1))) is not None:
            results[0].site = origin
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

    def __bool__(self) -> bool:
        decisions, frame = self.scope.decisions, _user_decision(sys._getframe(1))
        if decisions is None or frame is None or not self.scope.open:
            raise self._branch_error(frame is not None)  # no local name for it: its frame would keep itself alive
        if self.size != 1:
            raise ShapeError(
                f"the truth of an array of shape {self.shape} is ambiguous.\n  Use pb.any(x) or pb.all(x)."
            )

        def decide() -> bool:
            truth = self if self.spec.dtype.kind == "b" else self != 0
            found: bool = decisions.decide(resolve_symbol(truth if not self.shape else basis.reshape(truth, ())), frame)
            return found

        return installed().branch(decide)

    def _branch_error(self, by_user: bool) -> ConversionError:
        error = self.conversion_error("bool()")
        error.asked_by_branch = by_user
        return error

    def conversion_error(self, what: str) -> ConversionError:
        """Tracing has no concrete values: the error names the line that needs one, and what works instead."""
        instead = _ADVICE.get(
            what, "Use functions of pullback on it; its values are known when the compiled program runs"
        )
        rewrite = suggest_loop(user_frame(sys._getframe(1)))
        return ConversionError(
            f"{what}: {self!r} has no concrete values while the function is being traced.\n"
            f"  at {format_line(*user_line(sys._getframe(1)))}\n"
            f"  {instead}, or make the argument it comes from static (static_argnums).{rewrite}"
        )

    def __repr__(self) -> str:
        return f"<symbol {self.spec}>"


_CONVERSIONS = frozenset(("__bool__", "__float__", "__int__"))


def _user_decision(frame: Any) -> FrameType | None:
    """The frame that asks for the truth of a symbol, if it is not one of the package: the package itself decides
    nothing by values that are not known.
    """
    # of a tensor, or a dual, above the symbol
    while frame.f_code.co_name in _CONVERSIONS and frame.f_back is not None:
        frame = frame.f_back
    return None if is_package_code(frame.f_code) else frame


def _unrecorded(op: Op, args: Sequence[Any], results: tuple[Symbol, ...]) -> Sequence[Any]:
    """The arguments of an op under `no_grad`, such that no derivative of the program ever goes back through them."""
    for result in results:
        result.recorded = False
    return args if op.stops_tapes else [basis.unrecorded(x) if _is_recorded(x) else x for x in args]


def _is_recorded(x: Any) -> bool:
    """Whether a derivative may go back to an argument; to a captured tensor it may once that requires one."""
    return isinstance(x, Value) and spec_of(x).inexact and (type(x) is not Symbol or x.recorded)


def resolve_symbol(x: Any) -> Any:
    """The symbol that a symbol was last rebound to; anything else as it is."""
    return x if type(x) is not Symbol or x.now is None else x.now


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Program:
    """Inputs, equations in their order, outputs. `pb.stage` makes one of a function.

    `arguments` is the structure of (args, kwargs) that the inputs are the leaves of, `results` that of the outputs;
    without them a program takes its inputs one by one and returns one output, or a tuple.

    >>> import numpy as np, pullback as pb
    >>> program = pb.stage(lambda x, y: pb.sum(x * y))(pb.Spec((3,), "float32"), np.float32(2))
    >>> print(program)
    graph(x0: float32[3], x1: float32[])
      t0: float32[3] = multiply(x0, x1)
      t1: float32[] = sum(t0, axis=(0,), keepdims=False)
      return t1
    >>> program.run(np.ones(3, "float32"), np.float32(2))
    array(6., dtype=float32)
    """

    inputs: tuple[Symbol, ...]
    equations: tuple[Equation, ...]
    outputs: tuple[Any, ...]
    arguments: Any = None
    results: Any = None
    #: What was made from this program, once for each key: how it runs, its push, pull and batch.
    derived: dict[Any, Any] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        _check_definitions(self)

    @property
    def input_specs(self) -> tuple[Spec, ...]:
        return tuple([s.spec for s in self.inputs])

    @property
    def output_specs(self) -> tuple[Spec, ...]:
        return tuple([spec_of(o) for o in self.outputs])

    @property
    def effects(self) -> Effects:
        """What may be done with a run of the program: what all of its equations allow."""
        if "effects" not in self.derived:
            self.derived["effects"] = functools.reduce(Effects.with_inner, (e.effects for e in self.equations), PURE)
        found: Effects = self.derived["effects"]
        return found

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program on arrays, or on anything else ops take: tensors, and values of any transform."""
        values = self._check_arguments(args, kwargs)
        try:
            found = run(self, values)
        except PullbackError:
            raise
        except IndexError as error:
            raise IndexingError(f"this program: {error}.") from error
        except (TypeError, ValueError, KeyError, ArithmeticError) as error:
            raise GraphError(f"this program: {error}.") from error
        if self.results is not None:
            return unflatten(self.results, found)
        return found[0] if len(found) == 1 else tuple(found)

    __call__ = run

    def _check_arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """The leaves of the arguments, checked against the inputs' specs before anything runs."""
        leaves, structure = flatten((args, kwargs))
        if self.arguments is not None and structure != self.arguments:
            wanted, got = (f"{unflatten(s, ['*'] * s.num_leaves)}" for s in (self.arguments, structure))
            raise ArgumentError(f"this program wants arguments (args, kwargs) like {wanted}, got {got}.")
        if len(leaves) != len(self.inputs):
            raise ArgumentError(f"this program wants {len(self.inputs)} inputs, got {len(leaves)}.")
        values = [as_value(x) for x in leaves]
        for i, (symbol, x) in enumerate(zip(self.inputs, values, strict=True)):
            spec, found = symbol.spec, spec_of(x)
            if (found.shape, found.dtype) != (spec.shape, spec.dtype):
                kind = ShapeError if found.shape != spec.shape else DtypeError
                wanted, got = _format_spec(spec), _format_spec(found)
                raise kind(f"input {i}{self._place(i)} of this program is {wanted}, got {got}.")
        return values

    def _place(self, number: int) -> str:
        return "" if self.arguments is None else f" (arguments{leaf_paths(self.arguments)[number]})"

    def specs(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """(args, kwargs) with the spec of each input in its place: what `pb.stage` can be given again."""
        if self.arguments is None:
            return self.input_specs, {}
        found: tuple[tuple[Any, ...], dict[str, Any]] = unflatten(self.arguments, self.input_specs)
        return found

    def text(self) -> str:
        """The whole program as text, a line for each equation; `Program.parse` reads it back."""
        return str(_format_program(self))

    @staticmethod
    def parse(text: str, *, ops: Any = ()) -> Program:
        """The program that a text shows. Custom ops in it are given by `ops`, a list of them.

        >>> import pullback as pb
        >>> program = pb.Program.parse('''
        ... graph(x: float64[])
        ...   y: float64[] = multiply(x, 2.0)
        ...   return y''')
        >>> program.run(3.0)
        array(6.)
        """
        program: Program = _parse_program(text, ops)
        return program.verify()

    def to_json(self) -> str:
        """The program as JSON text, with the bytes of its constants; `Program.from_json` reads it back."""
        return str(_program_to_json(self))

    @staticmethod
    def from_json(text: str | bytes, *, ops: Any = ()) -> Program:
        """The program that `to_json` wrote. Nothing in it is evaluated, so the text may come from anywhere.

        >>> import numpy as np, pullback as pb
        >>> program = pb.stage(pb.sin)(np.zeros(2))
        >>> pb.Program.from_json(program.to_json()).text() == program.text()
        True
        """
        program: Program = _parse_json(text, ops)
        return program.verify()

    def verify(self) -> Program:
        """This program, if every spec is what its op infers; else an error. That every argument is defined before its
        use was checked when it was made.
        """
        program: Program = _verify_program(self)
        return program

    def draw(self, path: str | Path | None = None) -> str:
        """A drawing: written to a self-contained `.svg` or `.html` file. Returns its text."""
        return str(_save_drawing(self, path))

    def gradients(self, outputs: Any = None, wrt: Any = None) -> Program:
        """The program of the gradient of the sum of some outputs (numbers; all of them) with respect to some arguments
        (numbers; all that are floating). Each output must be one number.

        >>> import numpy as np, pullback as pb
        >>> program = pb.stage(lambda w, x: pb.sum((x @ w) ** 2))(np.zeros(2), np.zeros((3, 2)))
        >>> program.gradients(wrt=0).run(np.ones(2), np.eye(3, 2))
        array([2., 2.])
        """
        program: Program = _stage_gradients(self, outputs, wrt)
        return program

    def jvp(self, wrt: Any = None) -> Program:
        """The program of the derivative along tangents: it takes the arguments, then a tangent for each in `wrt` (all
        that are floating), and returns (results, their tangents).

        >>> import numpy as np, pullback as pb
        >>> pb.stage(lambda x: x * x)(np.zeros(2)).jvp().run(np.array([1.0, 3.0]), np.ones(2))
        (array([1., 9.]), array([2., 6.]))
        """
        program: Program = _stage_jvp(self, wrt)
        return program

    def subgraph(self, inputs: Any = None, outputs: Any = None) -> Program:
        """The part of the program between some values: a program of `inputs`, and then of those arguments of this one
        that are needed besides, that returns `outputs` (all of this one's). Values are named by `pb.name`, or as the
        text of the program shows them; one name or a list. What the outputs do not need, as a print, is left out.

        >>> import numpy as np, pullback as pb
        >>> program = pb.stage(lambda w, x: pb.sum(pb.name(x @ w, "hidden") ** 2))(np.zeros(2), np.zeros((3, 2)))
        >>> program.subgraph("hidden").run(np.ones(3)), program.subgraph(outputs="hidden").run(np.ones(2), np.eye(3, 2))
        (array(3.), array([1., 1., 0.]))
        """
        program: Program = _extract_subgraph(self, inputs, outputs)
        return program

    def stages(self, count: int, cost: Any = None) -> list[Any]:
        """The program as `count` programs one after the other, each of the values that the one before returns and of
        the arguments of this program whose numbers are its `arguments`: cut where few bytes cross and no stage costs
        much more than the mean. `cost(equation)` is its time in any unit, by default about its multiplications.

        >>> import numpy as np, pullback as pb
        >>> program = pb.stage(lambda v, w, x: pb.tanh(x @ v) @ w)(np.ones((4, 2)), np.ones((2, 9)), np.ones((3, 4)))
        >>> for stage in program.stages(2):
        ...     print([e.op.name for e in stage.program.equations], stage.arguments)
        ['matmul', 'tanh'] (0, 2)
        ['matmul'] (1,)
        """
        stages: list[Any] = _cut_into_stages(self, count, cost)
        return stages

    def compile(self, *, donate_argnums: Any = ()) -> Any:
        """The program as a compiled function of the same arguments; see `pb.jit`.

        >>> import numpy as np, pullback as pb
        >>> pb.stage(lambda x: pb.sum(x * x))(np.zeros(2)).compile()(np.array([3.0, 4.0]))
        array(25.)
        """
        return _jit(self.run, donate_argnums=donate_argnums)

    def __str__(self) -> str:
        return str(_format_program(self, data=False))

    def __repr__(self) -> str:
        ins = ", ".join(map(_format_spec, self.input_specs))
        outs = ", ".join(map(_format_spec, self.output_specs))
        return f"<program of {len(self.equations)} equations: ({ins}) -> ({outs})>"

    def _repr_html_(self) -> str:
        return str(_program_html(self))

    def __copy__(self) -> Program:
        return self

    def __deepcopy__(self, memo: Any) -> Program:
        return self

    def __reduce__(self) -> Any:
        return Program.from_json, (self.to_json(),)


def _check_definitions(program: Program) -> None:
    """Raise `GraphError` unless symbols are made once, and before their use. A symbol of an enclosing trace, which is
    still open, may be captured.
    """
    known: set[int] = set()
    for symbol in program.inputs:
        _define(known, symbol, "inputs")
    for number, e in enumerate(program.equations):
        for i, a in enumerate(e.args):
            if type(a) is Symbol and id(a) not in known and not a.scope.open:
                raise GraphError(
                    f"{describe_equation(number, e)}: argument {i} ({a.spec}) is no input and no earlier result."
                )
        for symbol in e.results:
            if type(symbol) is not Symbol or id(symbol) in known:
                _define(known, symbol, describe_equation(number, e))
            known.add(id(symbol))
    for i, o in enumerate(program.outputs):
        if type(o) is Symbol and id(o) not in known and not o.scope.open:
            raise GraphError(f"output {i} ({o.spec}) is no input and no result of an equation.")


def _define(known: set[int], symbol: Any, where: str) -> None:
    if type(symbol) is not Symbol:
        raise GraphError(f"{where}: a {type(symbol).__name__} stands where a symbol should be made.")
    if id(symbol) in known:
        raise GraphError(f"{where}: {symbol.spec} is made twice.")
    known.add(id(symbol))


def describe_equation(number: int, e: Equation) -> str:
    """An equation by its number and its op, for errors."""
    return f"equation {number}, {e.op.name}"


def nested_programs(equations: Iterable[Equation]) -> Iterator[Program]:
    """The programs that equations refer to (bodies of loops, branches), inner ones first, each once."""
    seen: set[int] = set()

    def walk(lines: Iterable[Equation]) -> Iterator[Program]:
        for e in lines:
            for v in e.static.values():
                for r in v if type(v) is tuple else (v,):
                    if isinstance(r, Program) and id(r) not in seen:
                        seen.add(id(r))
                        yield from walk(r.equations)
                        yield r

    return walk(equations)
