"""A function compiled for one kind of arguments: its programs, how calls of it run, and what they show of it."""

from __future__ import annotations

import functools
import logging
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays.backends import device_of, is_device_array, namespace_of
from ..arrays.html_text import escape, html_folded
from ..arrays.spec import Spec, spec_of
from ..arrays.tensor import Tensor
from ..arrays.text import format_seconds
from ..arrays.timing import COMPILE, span
from ..arrays.trees import flatten, unflatten
from ..arrays.value import Value
from ..checkpoint.budget.memory_budget import Budget
from ..errors import ArgumentError, GraphError
from ..instrument import ProgramCall
from ..ops.collective.world import current_world
from ..ops.dispatch import as_value
from ..ops.lazy import lazy_function
from ..ops.op import Op
from ..program.agreement import agree_first
from ..program.constants import is_unchanged
from ..program.fingerprint import fingerprint
from ..program.ir import Program, Symbol
from ..program.overlap import start_sums_early
from ..program.passes import optimize
from ..settings import context_key, get_matmul_precision, installed, is_deterministic, modes, override_modes
from ..transforms.boundary import unwrap_to_level
from ..transforms.control.branch_results import check_one_structure
from . import cache
from .as_op import CompiledOp
from .direct_call import DirectCall
from .inspect import explain, format_steps
from .lazy import lazy
from .pipeline import is_variable_set
from .reference.check import CHECK
from .schedule.memory_budget import CallMemory, memory_of
from .stage.arguments import Flattener
from .stage.captures import as_native_contiguous, hoist_captures, native_spec
from .stage.closure import ClosureSnapshot
from .stage.closure_walk import snapshot_closure
from .stage.trace import refuse_side_effects, trace_function
from .target import ANOTHER_SIZE, COMPILER, Compilation, Options, Runner
from .targets import library_of, make_runner

if TYPE_CHECKING:
    from .jit import Jitted

_ndarray = np.ndarray
_program_html = lazy_function("draw", "program_html", "graph")
_LOG = logging.getLogger("pullback")
#: The most programs of one function whose code is shared.
_CODES = 256


class Specialization:
    """f compiled for one kind of arguments."""

    def __init__(
        self,
        jitted: Jitted[..., Any],
        static: Any,
        structure: Any,
        values: Sequence[Any],
        donated: tuple[int, ...],
    ) -> None:
        start = time.perf_counter()
        self.closure: ClosureSnapshot = snapshot_closure(jitted.f, *(value for _, value in static))
        self.fast, self.deterministic = jitted.fast, jitted.deterministic
        self.ambient_limit = ambient_memory_limit()
        self.context_key = context_key(modes())
        self.limit = min((x for x in (jitted.limit, self.ambient_limit) if x is not None), default=None)
        self.is_optional = jitted.is_optional
        self.compile_alike = jitted.make_alike(self.limit)
        specs = [native_spec(v) for v in values]
        shape_of_result: list[Any] = []

        def flat(*symbols: Any) -> Any:
            out = jitted.call_on_leaves(static, structure, symbols)
            leaves, found = flatten(out)
            shape_of_result.append(found)
            check_one_structure(f"jit: {self.name}", shape_of_result)
            return [unwrap_to_level(as_value(x), modes().staging.scope) for x in leaves]

        self.name = function_name(jitted.f)
        self.lines: dict[int, Any] | None = {} if jitted.check or is_variable_set(CHECK) else None
        with span(COMPILE, "trace"):
            found = trace_function(flat, specs, self.closure, self.name, self.lines)
        refuse_side_effects(self.closure, self.name)
        self.structure = shape_of_result[-1]
        self.states = found.states
        self.staged, self.captured = hoist_captures(found)
        self.closure.guard_large(self.captured)
        self.closure.tensors += [(tensor, tensor.value) for tensor in found.constants.numbers]
        places = [s.place for s in self.states if s.specs]
        self.closure.forget(places)
        self.after = self.closure
        if not self.closure.is_unchanged():
            self.after = snapshot_closure(jitted.f, *(value for _, value in static))
            self.after.forget(places)
        self.specs = [s.spec for s in self.staged.inputs]
        self.donated_inputs = donated
        self.flatten: Flattener | None = None
        self.count = len(self.staged.outputs) - sum(state.count for state in self.states)
        self.finish = _make_finisher(self.structure, self.count)
        self.codes = jitted.codes
        #: Seconds spent on tracing and compiling.
        self.seconds = time.perf_counter() - start

    def __repr__(self) -> str:
        specs = ", ".join(map(str, self.argument_specs))
        return f"<{self.name}({specs}) compiled: {self.describe_runner()}, {format_seconds(self.seconds)}>"

    def _repr_html_(self) -> str:
        steps = [html_folded("steps", self.explain())] if self.code.compilation is not None else []
        return str(_program_html(self.graph, f"<div>{escape(repr(self).strip('<>'), 2000)}</div>", *steps))

    @property
    def argument_specs(self) -> list[Spec]:
        """The specs of the inputs that are arguments of the call."""
        return self.specs[: len(self.specs) - len(self.captured)]

    def describe_runner(self) -> str:
        """What runs it, without compiling it."""
        runner = vars(self).get("code")
        if runner is None:
            return "only traced yet"
        return library_of(self.staged) if runner.compilation is None else "native code"

    @lazy
    def graph(self) -> Program:
        """What computes results: the program after all passes. Derivatives are taken of what was staged."""
        with span(COMPILE, "passes"):
            program = optimize(self.staged)
        if current_world().runs_beside:
            program = start_sums_early(program)
        return agree_first(program, self.name)

    @lazy
    def donated(self) -> dict[int, int]:
        """The input that each result overwrites: a donated one with the first result of its spec that has none yet."""
        pairs: dict[int, int] = {}
        for number in self.donated_inputs:
            spec = self.specs[number]
            for i, out in enumerate(self.graph.outputs):
                # a result that is the input itself would be overwritten by itself
                same = isinstance(out, Symbol) and (out.spec.shape, out.spec.dtype) == (spec.shape, spec.dtype)
                if same and i not in pairs and out is not self.graph.inputs[number]:
                    pairs[i] = number
                    break
        return pairs

    @lazy
    def as_op(self) -> CompiledOp:
        """What a tape or a transform sees. Within a budget nothing is saved for the backward pass."""
        compute = functools.partial(self.compute, keep=True)  # the memory of tensors never changes
        return CompiledOp(self.name, self.staged, compute, self.compile_alike, self.limit is None, self.is_optional)

    @property
    def op(self) -> Op:
        return self.as_op.op

    def is_current(self) -> bool:
        """Whether nothing that f read when it was traced has changed."""
        return self.closure.is_unchanged() and self._read_states() is not None

    def check_self_changes(self, before: Sequence[Specialization]) -> None:
        """If f itself changed what it reads while it was traced (a counter, a cache), a second trace shows whether its
        program depends on that. If not, what it leaves behind counts as unchanged; if so, no program can follow it.
        `before` are forms after whose trace nothing but f changed anything.
        """
        if not before or self.after is self.closure:
            return
        if fingerprint(self.staged) != fingerprint(before[0].staged) or not self._captures_same(before[0]):
            places = ", ".join(str(place) for place, _ in self.closure.changes())
            raise GraphError(
                f"jit: {self.name} changes what it reads while it runs ({places}), and computes something else each "
                "time.\n  A compiled function runs no Python at later calls: pass the value and return the new one."
            )
        self.closure = self.after

    def _captures_same(self, other: Specialization) -> bool:
        """Whether two forms of one program run on the same arrays: f may have made new ones."""
        return all(map(is_unchanged, self.captured, other.captured))

    @lazy
    def code(self) -> Runner:
        """The program to run on bare arrays, compiled when first needed: a tape may need only the recording op."""
        return self._find_runner()

    @lazy
    def is_prepared(self) -> bool:
        """Whether native code takes the inputs as they are: captured arrays, and arguments that fit."""
        arrays = [c for c in self.captured if type(c) is not Tensor]
        known = all(type(c) is _ndarray or is_device_array(c) for c in arrays)
        prepared = known and all(as_native_contiguous(c, spec_of(c)) is c for c in arrays)
        return prepared and self.ambient_limit is None and all(s.weak is None for s in self.specs)

    @lazy
    def direct(self) -> Callable[[Sequence[Any]], list[Any] | None]:
        """The program on arrays and tensors as they are; None where only `run` is right."""
        if not self.is_prepared:
            return _call_never
        # the memory of tensors is never overwritten; ops that run once are not repeated by a derivative
        takes_tensors = not self.donated and not self.has_impure_ops
        form = weakref.ref(self)  # no cycle: native code is freed with the function
        count, key = len(self.staged.outputs), self.context_key
        code, op = (lambda: form().code), (lambda: form().as_op)  # type: ignore[union-attr]
        return DirectCall(self.name, code, op, self.captured, count, takes_tensors, key)

    def call_with_states(self, leaves: Sequence[Any]) -> list[Any] | None:
        """A direct call of a function that sets variables besides."""
        given = self._read_states()
        found = None if given is None else self.direct([*leaves, *given])
        return None if found is None else self._store_states(found)

    def _read_states(self) -> list[Any] | None:
        """What the states are now, as inputs of the program; None if one is not of the kind that was traced."""
        found: list[Any] = []
        for state in self.states:
            if state.specs:
                leaves = state.read()
                if leaves is None:
                    return None
                found += leaves
        return found

    @property
    def has_fast_path(self) -> bool:
        """Whether later calls go to native code without the tree package."""
        return self.flatten is not None and self.is_prepared

    def _find_runner(self) -> Runner:
        """The runner of an equal program, such as that from before a captured array was overwritten; else a new one."""
        options = Options(self.donated, self.fast, self.limit, self.deterministic)
        # a form that is traced again often gives the same program, which need not be compiled again
        key = fingerprint(self.graph)
        if key is None:
            return self._make_runner(options)
        products = products_on(self.specs)
        how = self.fast, self.deterministic, self.limit, self.lines is None, products
        whole = (key, tuple(self.donated.items()), *how)
        if whole not in self.codes:
            if len(self.codes) >= _CODES:
                self.codes.clear()
            self.codes[whole] = self._make_runner(options)
        return self.codes[whole]

    @property
    def shares_code(self) -> bool:
        """Whether it runs machine code that was compiled for another size."""
        runner = vars(self).get("code")
        return runner is not None and runner.compilation is not None and runner.compilation.source == ANOTHER_SIZE

    def _make_runner(self, options: Options) -> Runner:
        start = time.perf_counter()
        label = cache.LABEL.set(f"{self.name}({', '.join(map(str, self.argument_specs))})")
        try:
            with span(COMPILE, f"compile {self.name}"):
                runner = make_runner(self.graph, options, self.lines)
        finally:
            cache.LABEL.reset(label)
        self.seconds += time.perf_counter() - start
        if (c := runner.compilation) is None:
            _LOG.info(
                "jit: %s(%s) runs on %s, op by op: %s",
                self.name,
                ", ".join(map(str, self.specs)),
                library_of(self.staged),
                runner.why_fallback,
            )
        else:
            # what takes long is news
            level = logging.INFO if c.source == COMPILER else logging.DEBUG
            specs, milliseconds = ", ".join(map(str, self.specs)), 1e3 * (time.perf_counter() - start)
            _LOG.log(
                level, "jit: %s(%s) in %.0f ms, machine code from %s; code for %s",
                self.name, specs, milliseconds, c.source, c.scope,
            )  # fmt: skip
        return runner

    def run(self, values: Sequence[Any]) -> list[Any]:
        every = [*values, *(self._read_states() or ()), *self.captured]
        if not any(isinstance(v, Value) for v in every):
            return self._store_states(self.compute(*every))
        if self.has_impure_ops:  # the programs of its derivatives would run them again
            return self._store_states(self.as_op.replay(*every))
        return self._store_states(self.as_op.apply(every))

    @functools.cached_property
    def has_impure_ops(self) -> bool:
        return any(e.effects.has_side_effects for e in self.staged.equations)

    def _store_states(self, outs: list[Any]) -> list[Any]:
        """The results, after the new states of f have been stored."""
        at = self.count
        for state in self.states:
            state.write(outs[at : at + state.count])
            at += state.count
        return outs[: self.count]

    def compute(self, *values: Any, keep: bool = False) -> list[Any]:
        """The results on bare arrays of the right kind, whatever their layout. With `keep`, donated arrays are copied
        instead of overwritten.
        """
        arrays = [as_native_contiguous(v, s) for v, s in zip(values, self.specs, strict=True)]
        taken: set[int] = set()
        for number in self.donated.values():
            array = arrays[number]
            shared = any(_may_share_memory(array, a) for i, a in enumerate(arrays) if i != number)
            if keep or shared or id(array) in taken or not getattr(array.flags, "writeable", True):
                arrays[number] = array.copy()
            taken.add(id(arrays[number]))
        call = ProgramCall(f"jit {self.name}", arrays, lambda: self.code.workspace, self)
        return installed().run_program(call, functools.partial(self._run_code, call))

    def _run_code(self, call: ProgramCall) -> list[Any]:
        runner = self.code if call.clocked is None else call.clocked
        # a program is one step, also where NumPy runs it op by op
        with override_modes(instruments=installed().inside_program()):
            found = runner.run(call.arrays)
        if found is None:
            raise ArgumentError(f"jit: {self.name} was compiled for other arguments; please report this.")
        return found

    # Inspection

    def explain(self) -> str:
        """A line for each step: what was fused in it, over which domain, bytes and operations; what was not, and why.

        >>> import numpy as np, pullback as pb
        >>> print(pb.jit(lambda x: pb.sum(pb.sin(x) * 2)).lower(np.ones(100)).explain())
        step      domain  moves  operations  runs
        0 kernel  100     808 B  1.9 k       sin, multiply, add
        code for these sizes alone: the first of their kind
        compiled for cpu: lower, order, split, fit, vary, divide, plan_memory, verify, render, link
        """
        return explain(self._compilation())

    def memory(self) -> CallMemory:
        """The bytes a call works with, known before it runs."""
        found = self._compilation()
        return memory_of(found.steps, found.planned.workspace + found.scratch)

    @property
    def kernels(self) -> str:
        """The loops as text of the loop IR, which names no machine."""
        return format_steps(self._compilation().steps)

    @property
    def llvm(self) -> str:
        """The LLVM text before it is optimised."""
        return self.text

    @property
    def text(self) -> str:
        """What the target's compiler takes: LLVM text for a CPU, CUDA C for a GPU."""
        return self._compilation().runner.text  # type: ignore[no-any-return]

    @property
    def assembly(self) -> str:
        """The machine code as text."""
        disassemble = self._compilation().target.disassemble
        if disassemble is None:
            raise ArgumentError(f"jit: the target {self._compilation().target.name} shows no assembly.")
        return disassemble(self.llvm)

    def _compilation(self) -> Compilation:
        if self.code.compilation is None:
            raise ArgumentError(
                f"jit: {self.name} runs on {library_of(self.staged)}, and there is no native code to show: "
                f"{self.code.why_fallback}."
            )
        return self.code.compilation


def products_on(specs: Iterable[Spec]) -> tuple[str, bool] | None:
    """How matrix products are rounded where arrays of these specs are, and whether a rule decides how each is computed;
    None where that cannot be chosen.
    """
    return (get_matmul_precision(), is_deterministic()) if any(s.device != "cpu" for s in specs) else None


def ambient_memory_limit() -> int | None:
    """The bytes of the enclosing `pb.memory_budget`, if there is one."""
    budget = installed().innermost(Budget)
    return None if budget is None else budget.limit


def function_name(f: Any) -> str:
    return getattr(f, "__name__", type(f).__name__)


def _may_share_memory(a: Any, b: Any) -> bool:
    """Whether two arrays may overlap; on different devices they do not."""
    return device_of(a) == device_of(b) and bool(namespace_of([a]).may_share_memory(a, b))


def _call_never(leaves: Sequence[Any]) -> None:
    """No direct call is right."""


def _make_finisher(structure: Any, count: int) -> Callable[[list[Any]], Any]:
    """A function that rebuilds the result's structure, without the tree package for the common ones."""
    if structure is None:
        return lambda found: found[0]
    if structure == flatten((0,) * count)[1]:
        return tuple
    if structure == flatten([0] * count)[1]:
        return lambda found: found
    keys: list[Any] = []
    text = _render_container(unflatten(structure, list(range(count))), keys)
    if text is None:
        return functools.partial(unflatten, structure)
    # a line of Python takes a tenth of the tree package's time
    made: Callable[[list[Any]], Any] = eval(f"lambda found: {text}", {"keys": keys})
    return made


def _render_container(x: Any, keys: list[Any]) -> str | None:
    """An expression that makes tuples, lists and dicts of `found`, at whose places x has numbers; None if x has others.
    Keys of dicts are appended to `keys`.
    """
    if type(x) is int:
        return f"found[{x}]"
    if x is None:
        return "None"
    if type(x) not in (tuple, list, dict):
        return None
    parts = [_render_container(y, keys) for y in (x.values() if type(x) is dict else x)]
    if None in parts:
        return None
    if type(x) is dict:
        first = len(keys)
        keys += x
        return f"{{{', '.join(f'keys[{first + i}]: {part}' for i, part in enumerate(parts))}}}"
    inside = ", ".join(map(str, parts))
    return f"[{inside}]" if type(x) is list else f"({inside}{',' * (len(parts) == 1)})"
