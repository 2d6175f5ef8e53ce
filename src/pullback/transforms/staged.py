"""Control flow in a program that is being written down: the user's functions in, one equation with routines out.

Where a predicate or a carry has no numbers yet, a branch or a loop cannot run in Python. Its functions are written down
as routines, each once, and the whole is one op (`flow`), which the compiler makes a native loop of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ..arrays.backends import is_array
from ..arrays.scope import running
from ..arrays.spec import Spec, make_spec, spec_of
from ..arrays.tensor import Tensor
from ..arrays.trees import flatten, listed, paths, unflatten
from ..arrays.value import Value
from ..errors import ArgumentError, DtypeError, ShapeError
from ..ops import elementwise as pointwise
from ..ops.dispatch import as_value, shape
from ..ops.families import result_dtype
from ..ops.routine import Routine, routine
from ..ops.shaping import astype
from ..ops.specialise import Symbol
from ..settings import Modes, modes, switched
from .batching import Batched
from .captures import Captures
from .carry import Carry, alike, as_arrays
from .flow.branch import chosen
from .flow.derived import floating
from .flow.iterate import iterated, keeping
from .flow.repeat import repeated
from .forward import Dual
from .masks import integer, one_integer, one_truth

__all__ = ["is_staged", "is_staging", "staged_branch", "staged_rounds", "staged_scan", "staged_while"]

_COUNT = np.dtype(np.int64)
_COUNTED = Spec((), _COUNT, weak=int)


def _layers(x: Any) -> Iterator[Any]:
    """A value and those it is made of, from the outside in; tangents are none of them."""
    while isinstance(x, Value):
        yield x
        x = x.primal if isinstance(x, Dual) else x.value if isinstance(x, (Tensor, Batched)) else None


def is_staged(*values: Any) -> bool:
    """Whether one of some values has no numbers yet, seen through tapes, duals and batches."""
    return any(type(layer) is Symbol for x in values for layer in _layers(x))


def is_staging() -> bool:
    """Whether a program is being written down here, so that a loop may close over its symbols."""
    scope = running()
    return scope is not None and any(s.name in ("staging", "jit") and s.open for s in scope.around())


def _tracked(values: Sequence[Any]) -> bool:
    """Whether somebody may want to go back through an op on these values."""
    return any(type(layer) is Tensor and layer.node is not None for x in values for layer in _layers(x))


def _as_called(f: Callable[..., Any], now: Modes | None = None) -> Callable[..., Any]:
    """A function of the user's in the modes of the call: a routine is traced as one that records."""
    now = now or modes()
    return f if now.grad else switched(grad=False, inference=now.inference)(f)


def staged_scan(
    what: str, f: Callable[[Any, Any], tuple[Any, Any]], carry: Carry, sequences: Sequence[Any], structure: Any,
    count: int, reverse: bool, counts: bool = False,
) -> tuple[Any, Any]:  # fmt: skip
    """The scan as one equation; `f` returns a pair. If it `counts`, its sequence stands for Python's own numbers, which
    give way in promotion.
    """
    f = _as_called(f)
    carries = len(carry.leaves)
    shape_of_y: list[Any] = []

    def step(*symbols: Any) -> list[Any]:
        x = unflatten(structure, symbols[carries:])
        after, y = f(carry.given(symbols[:carries]), x)
        leaves, found = flatten(y)
        shape_of_y.append(found)
        return [*carry.after(after), *as_arrays(leaves, what)]

    rows = [make_spec(shape(x)[1:], spec_of(x).dtype, spec_of(x).device) for x in sequences]
    rows = [_COUNTED] if counts else rows
    body, closed = routine(step, *carry.specs, *rows)
    held = len(closed)
    rest = body.inputs[carries:]
    inputs = (*body.inputs[:carries], *rest[len(rest) - held :], *rest[: len(rest) - held])
    body = Routine(inputs, body.equations, body.outputs)
    ends = len(body.outputs)
    if _tracked([*carry.leaves, *closed, *sequences]):
        body = keeping(body, carries, floating(body.specs), floating(body.results))
    found = iterated(body, carry.leaves, closed, sequences, count, reverse)
    return unflatten(carry.structure, found[:carries]), unflatten(shape_of_y[0], found[carries:ends])


def staged_while(condition: Callable[[Any], Any], body: Callable[[Any], Any], carry: Carry) -> Any:
    """The loop as one equation."""
    condition, body = _as_called(condition), _as_called(body)
    carries = len(carry.leaves)
    test, tested = routine(
        lambda *xs: [one_truth(condition(carry.given(xs)), f"{carry.what}: the condition")], *carry.specs
    )
    step, stepped = routine(lambda *xs: carry.after(body(carry.given(xs))), *carry.specs)
    constants = [*tested, *stepped]
    first = len(tested)
    shapes = [*carry.specs, *map(spec_of, constants)]
    goes_on = routine(lambda *xs: test.run(*xs[: carries + first]), *shapes, hoisted=False)[0]
    onward = routine(lambda *xs: step.run(*xs[:carries], *xs[carries + first :]), *shapes, hoisted=False)[0]
    found = repeated(goes_on, onward, carry.leaves, constants)
    return unflatten(carry.structure, found[:-1])


def staged_rounds(start: Any, stop: Any, body: Callable[[Any, Any], Any], carry: Carry) -> Any:
    """`fori_loop` as one equation: a scan over the numbers if they are known, else a loop that counts."""
    if not isinstance(start, Value) and not isinstance(stop, Value):
        numbers = np.arange(*(integer(x, f"{carry.what}: {name}") for x, name in ((start, "lower"), (stop, "upper"))))
        step = lambda c, i: (body(i, c), None)  # noqa: E731
        return staged_scan(carry.what, step, carry, [numbers], None, len(numbers), False, counts=True)[0]
    first, last = (_as_count(x, f"{carry.what}: {name}") for x, name in ((start, "lower"), (stop, "upper")))
    counting = Carry(carry.what, (first, unflatten(carry.structure, carry.leaves)))
    found = staged_while(lambda c: pointwise.less(c[0], last), lambda c: (c[0] + 1, body(c[0], c[1])), counting)
    return found[1]


def _as_count(x: Any, what: str) -> Any:
    return astype(x, _COUNT) if isinstance(one_integer(x, what), Value) else np.asarray(x, _COUNT)


def staged_branch(what: str, names: Sequence[str], which: Any, functions: Sequence[Callable[..., Any]],
                  operands: tuple[Any, ...]) -> Any:  # fmt: skip
    """`cond` or `switch` as one equation. What a function closes over goes in with the operands: what it computes of it
    belongs to its branch, and must not run, or be differentiated, where the branch is not taken.
    """
    leaves, structure = flatten(operands)
    moving = [i for i, x in enumerate(leaves) if isinstance(x, Value) or is_array(x)]
    captures, now = Captures(functions), modes()
    count = len(moving)
    specs = [spec_of(x) for x in (*(leaves[i] for i in moving), *captures.values)]
    structures: list[Any] = []

    def way(number: int) -> Callable[..., list[Any]]:
        def run(*symbols: Any) -> list[Any]:
            given = list(leaves)
            for i, x in zip(moving, symbols, strict=False):
                given[i] = x
            function = captures.over(symbols[count:])[number]
            out, found = flatten(_as_called(function, now)(*unflatten(structure, given)))
            structures.append(found)
            return [as_value(x) for x in out]

        return run

    codes = [routine(way(i), *specs) for i in range(len(functions))]
    routines = _alike(what, names, [code for code, _ in codes], structures)
    found = chosen(routines, [closed for _, closed in codes], which, [*(leaves[i] for i in moving), *captures.values])
    return unflatten(structures[0], found)


def _alike(what: str, names: Sequence[str], codes: list[Routine], structures: list[Any]) -> list[Routine]:
    """Routines that answer one structure, shape and dtype; a Python number gives way to an array, as everywhere."""
    for name, found in zip(names[1:], structures[1:], strict=True):
        if found != structures[0]:
            listed(structures[0], unflatten(found, [0.0] * found.num_leaves if found is not None else [0.0]),
                   f"{what}: {name} and {names[0]}")  # fmt: skip
            raise ArgumentError(f"{what}: {name} and {names[0]} must return one structure.")
    wanted = []
    for i, specs in enumerate(zip(*(code.results for code in codes), strict=True)):
        strong = [s for s in specs if s.weak is None]
        dtype = result_dtype(list(specs))
        number = specs.index((strong or specs)[0])
        for name, spec in zip(names, specs, strict=True):
            first = specs[number]
            if spec.shape != first.shape or (spec.weak is None and spec.dtype != first.dtype):
                kind = ShapeError if spec.shape != first.shape else DtypeError
                raise kind(
                    f"{what}: {names[number]} and {name} must return one shape and dtype: "
                    f"result{paths(structures[0])[i]} is {first} and {spec}."
                )
        wanted.append(make_spec(specs[0].shape, dtype, (strong or specs)[0].device))
    return [_with_results(code, wanted) for code in codes]


def _with_results(code: Routine, wanted: Sequence[Any]) -> Routine:
    outputs = tuple(
        o if isinstance(o, Symbol) and alike(o.spec, spec) and o.spec.weak is None
        else np.asarray(o, spec.dtype) if not isinstance(o, Value) else o
        for o, spec in zip(code.outputs, wanted, strict=True)
    )  # fmt: skip
    return Routine(code.inputs, code.equations, outputs)
