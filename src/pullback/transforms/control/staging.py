"""Control flow while tracing: the user's functions in, one equation with programs out.

Where a predicate or a carry is a symbol, a branch or a loop cannot run in Python. Its functions are traced as programs,
each once, and the whole is one op (`flow`), which the compiler turns into a native loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ...arrays.backends import is_array, namespace_on
from ...arrays.scope import current_scope
from ...arrays.spec import Spec, make_spec, spec_of
from ...arrays.tensor import Tensor
from ...arrays.trees import flatten, unflatten
from ...arrays.value import Value
from ...ops.dispatch import as_value, shape
from ...ops.elementwise import pointwise
from ...ops.shape.reshaping import astype
from ...program.ir import Program, Symbol
from ...program.run import run
from ...settings import Modes, modes, override_modes
from .batch_masks import check_boolean, check_integer, to_int
from .branch_results import check_one_structure, unify_results
from .captures import Captures
from .carry import LoopCarry, as_arrays
from .flow.branch import apply_branch_programs
from .flow.derive import float_places, stage_derived
from .flow.iterate import add_residual_outputs, apply_iterate
from .flow.repeat import apply_repeat
from .paths import stage_function

_COUNT_DTYPE = np.dtype(np.int64)
_COUNTER_SPEC = Spec((), _COUNT_DTYPE, weak=int)


def _layers(x: Any) -> Iterator[Any]:
    """A value and those inside it, from the outside in, without tangents."""
    while isinstance(x, Value):
        yield x
        x = next(iter(x.parts()), None)


def is_staged(*values: Any) -> bool:
    """Whether one of some values is a symbol below tapes, duals and batches."""
    return any(type(layer) is Symbol for x in values for layer in _layers(x))


def is_staging() -> bool:
    """Whether a program is being traced here, so that a loop may close over its symbols."""
    scope = current_scope()
    return scope is not None and any(s.name in ("staging", "jit") and s.open for s in scope.and_enclosing())


def _is_any_tracked(values: Sequence[Any]) -> bool:
    """Whether a backward pass may follow an op on these values."""
    return any(type(layer) is Tensor and layer.is_tracked for x in values for layer in _layers(x))


def as_called(f: Callable[..., Any], now: Modes | None = None) -> Callable[..., Any]:
    """A function of the user's in the modes of the call: a program is traced as one that records."""
    now = now or modes()
    return f if now.grad else override_modes(grad=False, inference=now.inference)(f)


def stage_scan(
    what: str, f: Callable[[Any, Any], tuple[Any, Any]], carry: LoopCarry, sequences: Sequence[Any], structure: Any,
    count: int, reverse: bool, counts: bool = False,
) -> tuple[Any, Any]:  # fmt: skip
    """The scan as one equation; `f` returns a pair. If it `counts`, its sequence stands for Python's own numbers, which
    are weak in promotion.
    """
    f = as_called(f)
    carries = len(carry.leaves)
    shape_of_y: list[Any] = []

    def step(*symbols: Any) -> list[Any]:
        x = unflatten(structure, symbols[carries:])
        after, y = f(carry.as_rebindable_tree(symbols[:carries]), x)
        leaves, found = flatten(y)
        shape_of_y.append(found)
        check_one_structure(f"{what}: the function", shape_of_y)
        return [*carry.check_step_result(after), *as_arrays(leaves, what)]

    rows = [make_spec(shape(x)[1:], spec_of(x).dtype, spec_of(x).device) for x in sequences]
    # a Python int is weak in promotion, and stays so as the counter of a staged loop
    rows = [_COUNTER_SPEC] if counts else rows
    body, closed = stage_function(what, step, *carry.specs, *rows)
    # `iterate` wants captured values between the carry and the rows
    held = len(closed)
    rest = body.inputs[carries:]
    inputs = (*body.inputs[:carries], *rest[len(rest) - held :], *rest[: len(rest) - held])
    body = Program(inputs, body.equations, body.outputs)
    ends = len(body.outputs)
    # a backward pass may follow: save its residuals now, instead of running the loop again
    if _is_any_tracked([*carry.leaves, *closed, *sequences]):
        body = add_residual_outputs(body, carries, float_places(body.input_specs), float_places(body.output_specs))
    found = apply_iterate(body, carry.leaves, closed, sequences, count, reverse)
    return unflatten(carry.structure, found[:carries]), unflatten(shape_of_y[0], found[carries:ends])


def stage_while(condition: Callable[[Any], Any], body: Callable[[Any], Any], carry: LoopCarry) -> Any:
    """The loop as one equation."""
    condition, body = as_called(condition), as_called(body)
    carries = len(carry.leaves)
    test, tested = stage_function(
        carry.what,
        lambda *xs: [check_boolean(condition(carry.as_rebindable_tree(xs)), f"{carry.what}: the condition")],
        *carry.specs,
    )
    step, stepped = stage_function(
        carry.what, lambda *xs: carry.check_step_result(body(carry.as_rebindable_tree(xs))), *carry.specs
    )
    # condition and body captured different values; as one op both take all of them
    constants = [*tested, *stepped]
    first = len(tested)
    shapes = [*carry.specs, *map(spec_of, constants)]
    goes_on = stage_derived(lambda *xs: run(test, xs[: carries + first]), *shapes)
    onward = stage_derived(lambda *xs: run(step, (*xs[:carries], *xs[carries + first :])), *shapes)
    found = apply_repeat(goes_on, onward, carry.leaves, constants)
    return unflatten(carry.structure, found[:-1])


def stage_fori(start: Any, stop: Any, body: Callable[[Any, Any], Any], carry: LoopCarry) -> Any:
    """`fori_loop` as one equation: a scan over the numbers if they are known, else a loop that counts."""
    if not isinstance(start, Value) and not isinstance(stop, Value):
        numbers = np.arange(*(to_int(x, f"{carry.what}: {name}") for x, name in ((start, "lower"), (stop, "upper"))))
        step = lambda c, i: (body(i, c), None)  # noqa: E731
        return stage_scan(carry.what, step, carry, [numbers], None, len(numbers), False, counts=True)[0]
    specs = [*(spec_of(x) for x in (start, stop) if isinstance(x, Value)), *carry.specs]
    xp = namespace_on(next((s.device for s in specs if s.device != "cpu"), "cpu"))
    first, last = (_as_count(xp, x, f"{carry.what}: {name}") for x, name in ((start, "lower"), (stop, "upper")))
    # the bounds are not known: the counter is part of the carry
    counting = LoopCarry(carry.what, (first, unflatten(carry.structure, carry.leaves)))
    found = stage_while(lambda c: pointwise.less(c[0], last), lambda c: (c[0] + 1, body(c[0], c[1])), counting)
    return found[1]


def _as_count(xp: Any, x: Any, what: str) -> Any:
    return astype(x, _COUNT_DTYPE) if isinstance(check_integer(x, what), Value) else xp.asarray(x, _COUNT_DTYPE)


def stage_branch(what: str, names: Sequence[str], which: Any, functions: Sequence[Callable[..., Any]],
                  operands: tuple[Any, ...]) -> Any:  # fmt: skip
    """`cond` or `switch` as one equation. Captures become operands: what a function computes from them belongs to its
    branch, and must not run, or be differentiated, where the branch is not taken.
    """
    leaves, structure = flatten(operands)
    moving = [i for i, x in enumerate(leaves) if isinstance(x, Value) or is_array(x)]
    captures, now = Captures(functions), modes()
    count = len(moving)
    specs = [spec_of(x) for x in (*(leaves[i] for i in moving), *captures.values)]
    structures: list[list[Any]] = [[] for _ in functions]

    def make_branch(number: int) -> Callable[..., list[Any]]:
        def run(*symbols: Any) -> list[Any]:
            given = list(leaves)
            for i, x in zip(moving, symbols, strict=False):
                given[i] = x
            # its captures are operands too: otherwise they would be differentiated where the branch is not taken
            function = captures.rebind(symbols[count:])[number]
            out, found = flatten(as_called(function, now)(*unflatten(structure, given)))
            structures[number].append(found)
            check_one_structure(f"{what}: {names[number]}", structures[number])
            return [as_value(x) for x in out]

        return run

    codes = [stage_function(what, make_branch(i), *specs) for i in range(len(functions))]
    programs = unify_results(what, names, [code for code, _ in codes], [found[0] for found in structures])
    found = apply_branch_programs(
        programs, [closed for _, closed in codes], which, [*(leaves[i] for i in moving), *captures.values]
    )
    return unflatten(structures[0][0], found)
