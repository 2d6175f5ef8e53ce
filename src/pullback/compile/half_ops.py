"""Single ops on large arrays of half precision in native code: NumPy computes these one number at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..arrays.spec import Spec, spec_of
from ..ops.dispatch import apply
from ..ops.forms import Cast, Contract, Reduce
from ..ops.fusion import has_compiler
from ..ops.op import Op
from ..ops.shape.reshaping import astype_op
from ..program.stage import stage
from ..settings import PLAIN, modes, put_modes, uses_native_code
from .loop_ir import Kernel, Product
from .stage.captures import as_native_contiguous
from .target import Options, Runner
from .targets import find_target, make_runner, takes_arrays_of

#: The most calls that are remembered, and the most bytes that they work in together.
_CALLS, _BYTES = 256, 1 << 27
#: The calls seen: by op, static parameters and specs, what runs them, if anything.
_known: dict[Any, Runner | None] = {}


def compute_natively(op: Op, arrays: Sequence[Any], static: dict[str, Any]) -> Any:
    """The value of an op on arrays, some of which are large and of half precision; None where it has no native code."""
    if uses_native_code() is False or not has_compiler():
        return None
    try:
        key = (op, tuple(static.items()), specs := tuple(map(spec_of, arrays)))
        runner = _known[key]
    except KeyError:
        runner = _add_runner(key, specs)
    except TypeError:
        return None  # a static parameter that cannot be compared
    if runner is None:
        return None
    found = runner.run([as_native_contiguous(x, s) for x, s in zip(arrays, specs, strict=True)])
    return None if found is None else found[0]


def cast_natively(x: Any, dtype: Any) -> Any:
    """An array in another dtype."""
    return compute_natively(astype_op, (x,), {"dtype": dtype})


def _add_runner(key: Any, specs: Sequence[Spec]) -> Runner | None:
    before = modes()
    put_modes(PLAIN)
    try:
        runner = _make_runner(key[0], dict(key[1]), specs)
    finally:
        put_modes(before)
    held = list(_known.items())
    total = _workspace(runner) + sum(_workspace(r) for _, r in held)
    # the oldest are dropped, if another thread has not done it
    while held and (len(held) >= _CALLS or total > _BYTES):
        oldest, dropped = held.pop(0)
        total -= _workspace(dropped)
        _known.pop(oldest, None)
    _known[key] = runner
    return runner


def _workspace(runner: Runner | None) -> int:
    """The bytes that a runner keeps from call to call."""
    return 0 if runner is None else sum(x.nbytes for x in runner.workspace)


def _make_runner(op: Op, static: dict[str, Any], specs: Sequence[Spec]) -> Runner | None:
    """Native code for an op that is one kernel, or a few with a product between them."""
    if op.kernel is None and not isinstance(op.form, (Cast, Contract, Reduce)):
        return None
    if any(s.weak is not None for s in specs) or not all(map(takes_arrays_of, specs)):
        return None
    program = stage(lambda *args: apply(op, *args, **static), *specs)
    if find_target(program) is None:
        return None
    runner = make_runner(program, Options())
    compilation = runner.compilation
    is_native = compilation is not None and all(isinstance(s, (Kernel, Product)) for s in compilation.planned.steps)
    return runner if is_native and _workspace(runner) <= _BYTES // 2 else None
