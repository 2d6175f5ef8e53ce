"""Single ops on large arrays of half precision in native code: NumPy computes these one number at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..arrays.spec import LEAST_NATIVE, Spec, spec_of
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
#: The pieces in which elementwise ops run.
_PIECES = (1 << 20, 1 << 18, LEAST_NATIVE)
#: The calls seen: by op, static parameters and specs, what runs them, if anything.
_known: dict[Any, Runner | None] = {}


def compute_natively(op: Op, arrays: Sequence[Any], static: dict[str, Any]) -> Any:
    """The value of an op on arrays, some of which are large and of half precision; None where it has no native code."""
    if uses_native_code() is False or not has_compiler():
        return None
    specs = tuple(map(spec_of, arrays))
    try:
        hash(key := (op, tuple(static.items())))
    except TypeError:
        return None  # a static parameter that cannot be compared
    given = [as_native_contiguous(x, s) for x, s in zip(arrays, specs, strict=True) if s.weak is None]
    if len(given) < len(arrays):
        return None
    shapes = {s.shape for s in specs if s.shape}
    if (op.kernel is not None or isinstance(op.form, Cast)) and len(shapes) == 1:
        return _compute_in_pieces(key, given, *shapes)
    runner = _find_runner(key, specs)
    found = None if runner is None else runner.run(given)
    return None if found is None else found[0]


def _compute_in_pieces(key: Any, arrays: Sequence[Any], shape: tuple[int, ...]) -> Any:
    """An elementwise op on contiguous arrays of one shape, and numbers: piece by piece, so that all shapes run the same
    code. The last piece may begin before the end of the one before.
    """
    flat = [x.reshape(-1) if x.ndim else x for x in arrays]
    size, at, out = math.prod(shape), 0, None
    while at < size:
        length = next((n for n in _PIECES if n <= size - at), _PIECES[-1])
        at = min(at, size - length)
        given = [x[at : at + length] if x.ndim else x for x in flat]
        specs = tuple(map(spec_of, given))
        if out is None:
            out = np.empty(size, key[0].spec_of(specs, dict(key[1])).dtype)
        into = out[at : at + length]
        runner = _find_runner(key, (*specs, spec_of(into)), donates=True)
        if runner is None or runner.run([*given, into]) is None:
            return None
        at += length
    return None if out is None else out.reshape(shape)


def _find_runner(key: Any, specs: tuple[Spec, ...], donates: bool = False) -> Runner | None:
    """What runs an op on arrays of these specs; one that `donates` writes its result to the last of them."""
    whole = (*key, specs, donates)
    return _known[whole] if whole in _known else _add_runner(whole)


def cast_natively(x: Any, dtype: Any) -> Any:
    """An array in another dtype."""
    return compute_natively(astype_op, (x,), {"dtype": dtype})


def _add_runner(key: Any) -> Runner | None:
    op, static, specs, donates = key
    before = modes()
    put_modes(PLAIN)
    try:
        runner = _make_runner(op, dict(static), specs, donates)
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


def _make_runner(op: Op, static: dict[str, Any], specs: Sequence[Spec], donates: bool) -> Runner | None:
    """Native code for an op that is one kernel, or a few with a product between them."""
    if op.kernel is None and not isinstance(op.form, (Cast, Contract, Reduce)):
        return None
    if not all(map(takes_arrays_of, specs)):
        return None
    last = len(specs) - 1
    program = stage(lambda *args: apply(op, *(args[:last] if donates else args), **static), *specs)
    if find_target(program) is None:
        return None
    runner = make_runner(program, Options({0: last} if donates else {}))
    compilation = runner.compilation
    is_native = compilation is not None and all(isinstance(s, (Kernel, Product)) for s in compilation.planned.steps)
    return runner if is_native and _workspace(runner) <= _BYTES // 2 else None
