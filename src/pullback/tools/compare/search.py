"""`compare`: two functions run once each, on the same arguments or on two sets of them, and their steps aligned."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import Any

import numpy as np

from ...arrays.argument_checks import check_functions
from ...arrays.backends import is_array
from ...arrays.tensor import Tensor, tensor
from ...arrays.trees import flatten, leaf_paths, map_tree
from ...arrays.value import unwrap_array
from ...compile.jit import Jitted, trace_located
from ...errors import ArgumentError
from ...settings import override_modes
from ..find_nan.classify import summarize
from ..observed_build import Observation, options_of
from .difference import Tolerance, largest_relative, measure
from .programs import ProgramPair, as_step, run_on_numpy
from .report import Comparison, Difference
from .run_log import ProgramLog, RunLog, Step


def compare(
    f: Callable[..., Any],
    g: Callable[..., Any],
    *args: Any,
    others: tuple[Any, ...] | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    **kwargs: Any,
) -> Comparison:
    """Run f and g once each and name the first step in which they differ by more than `atol + rtol * |right|`: a
    function and `pb.jit` of it, a function and what `pb.autocast` makes of it, two implementations of the same ops.
    `others` are arguments for g where these differ, as for float32 and float64, or for a CPU and a GPU.

    Of a compiled function and the function itself, equations of one program are compared: NumPy computes each, and a
    checked build of the compiled program shows what native code computed. Other runs are aligned by the ops they call,
    as long as these are the same, conversions left out; from where they are not, only results are compared.

    Without `rtol` and `atol`, both are the square root of the spacing of the coarsest dtype, relative to the largest
    number of an array.

    >>> import numpy as np, pullback as pb
    >>> def f(x):
    ...     y = pb.exp(x)
    ...     return pb.sum(y * y)
    >>> bool(pb.tools.compare(f, pb.jit(f), np.ones(3)))
    True
    >>> found = pb.tools.compare(f, f, np.ones(3), others=(np.ones(3, "float16"),), rtol=1e-6)
    >>> found.first.name, found.compared
    ('exp', 1)
    """
    check_functions("compare", f, g)
    tolerance = Tolerance(rtol, atol)
    right = args if others is None else others
    with trace_located(), np.errstate(all="ignore"):
        if others is None and _is_same_program(f, g):
            return _compare_program(f, g, args, kwargs, tolerance)
        return _align(_run(f, args, kwargs), _run(g, right, kwargs), tolerance)


Run = tuple[list[Step], Any, str]


def _is_same_program(f: Any, g: Any) -> bool:
    """Whether one function is the compiled form of the other."""
    return (isinstance(f, Jitted) and f.f is g) or (isinstance(g, Jitted) and g.f is f)


def _compare_program(f: Any, g: Any, args: Any, kwargs: Any, tolerance: Tolerance) -> Comparison:
    """A function and its compiled form: one program."""
    is_left = isinstance(f, Jitted)
    form, given, seen = _call_compiled(f if is_left else g, args, kwargs)
    program = form.staged
    pair = ProgramPair(options_of(form), tolerance.of([s.spec.dtype for e in program.equations for s in e.results]))
    left, wanted = run_on_numpy(program, given)
    found = pair.find(program, left, seen)
    first = None
    if found is not None:
        first = _describe_step(*((found[1], found[0]) if is_left else found), pair.tolerance)
    sides = (seen.outputs, wanted) if is_left else (wanted, seen.outputs)
    results = _compare_results(*sides, pair.tolerance, [f"result {i}" for i in range(len(wanted))])
    count = len(program.equations)
    note = f"one program of {count} equations: NumPy computes each, native code a checked build of it"
    note += f"; {pair.note}" if pair.note else ""
    return Comparison(first, tuple(results), pair.compared, (count, count), note)


def _call_compiled(f: Jitted[..., Any], args: Any, kwargs: Any) -> tuple[Any, list[Any], Observation]:
    """The compiled form that a call ran, its arguments and its values."""
    bare = map_tree(_as_bare, (args, kwargs))
    log = ProgramLog()
    with override_modes(log, grad=False):
        f(*bare[0], **bare[1])
    if not log.calls:
        raise ArgumentError("compare: this call of a compiled function runs no program: it has no arrays.")
    return log.calls[-1]


def _as_bare(x: Any) -> Any:
    return x.detach().value if isinstance(x, Tensor) else x


def _run(f: Callable[..., Any], args: Any, kwargs: Any) -> Run:
    """The steps of a run, its result, and how they were seen."""
    if not isinstance(f, Jitted):
        log = RunLog()
        args, kwargs = map_tree(lambda x: tensor(x) if is_array(x) else x, (args, kwargs))
        with override_modes(log):
            out = f(*args, **kwargs)
        return log.steps, out, "op by op"
    form, _, seen = _call_compiled(f, args, kwargs)
    how = "by a checked build" + (f" ({seen.doubt})" if seen.doubt else "")
    return [as_step(e, seen, ()) for e in form.staged.equations], seen.outputs, how


def _align(left: Run, right: Run, tolerance: Tolerance) -> Comparison:
    """Compare the steps that both runs begin with, then their results."""
    lefts, rights = ([s for s in run[0] if not s.is_conversion] for run in (left, right))
    pairs = list(takewhile(lambda pair: pair[0].key == pair[1].key, zip(lefts, rights, strict=False)))
    first, compared = None, 0
    tolerance = tolerance.of([x.dtype for run in (left, right) for s in run[0] for x in s.outs if is_array(x)])
    for x, y in pairs:
        compared += 1
        first = _describe_step(x, y, tolerance)
        if first is not None:
            break
    names = [f"result{path}" for path in leaf_paths(flatten(left[1])[1])]
    results = tuple(_compare_results(flatten(left[1])[0], flatten(right[1])[0], tolerance, names))
    note = f"left was seen {left[2]}, right {right[2]}; {len(pairs)} steps are the same ops on the same shapes"
    if len(pairs) < max(len(lefts), len(rights)):
        note += f", what follows (of {len(lefts)} and {len(rights)}) is not aligned: there only results are compared"
    return Comparison(first, results, compared, (len(lefts), len(rights)), note)


def _describe_step(left: Step, right: Step, tolerance: Tolerance) -> Difference | None:
    """The difference of two steps, if it is more than asked."""
    for x, y in zip(left.outs, right.outs, strict=True):
        apart = None if x is None or y is None else measure(x, y, tolerance)
        if apart is not None and apart.is_more:
            arguments = largest_relative(left.args, right.args)
            origin = right.origin or left.origin
            return Difference(
                left.op.name, origin, apart.index, (apart.left, apart.right), apart.relative,
                (summarize(x), summarize(y)), arguments,
            )  # fmt: skip
    return None


def _compare_results(
    lefts: Sequence[Any], rights: Sequence[Any], tolerance: Tolerance, names: Sequence[str]
) -> list[Difference]:
    if len(lefts) != len(rights):
        raise ArgumentError(f"compare: the functions return {len(lefts)} and {len(rights)} arrays.")
    found = []
    for name, x, y in zip(names, map(unwrap_array, lefts), map(unwrap_array, rights), strict=True):
        apart = measure(np.asarray(x) if np.isscalar(x) else x, np.asarray(y) if np.isscalar(y) else y, tolerance)
        if apart is None:
            raise ArgumentError(f"compare: {name} is {summarize(x)} and {summarize(y)}.")
        if apart.is_more:
            sides = summarize(x), summarize(y)
            found.append(Difference(name, None, apart.index, (apart.left, apart.right), apart.relative, sides))
    return found
