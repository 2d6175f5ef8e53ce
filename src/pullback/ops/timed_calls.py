"""Ops on their fast paths while a time profile looks on: each call, and one event about it (`arrays/timing.py`).

What runs is what runs without a profile, so bits are the same; the user's line is read here, since the fast path would
take this module's.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from threading import get_ident
from typing import Any

import numpy as np

from ..arrays.call_site import known_files, user_line
from ..arrays.spec import spec_of
from ..arrays.tensor import Tensor
from ..arrays.timing import GPU, OP, GpuWork, clock
from ..instrument import Timer
from ..settings import Modes, put_modes
from .op import Op

_getframe = sys._getframe
_ndarray = np.ndarray


def end_timed(timer: Timer, op: Op, start: int, out: Any, depth: int) -> Any:
    """The end of an elementwise function of tensors, whose caller is so many calls away from it."""
    end = clock()
    node = out.node
    if node is None:
        timer.write((OP, op, start, end, *user_line(_getframe(depth + 1)), out.spec, 0, get_ident()))
        return out
    code = node.code
    if code is not timer.user_code:
        # the caller is not known to be the user's code
        if known_files.get(code.co_filename) is not False:
            code, node.lasti = user_line(_getframe(depth + 1))
            node.code = code
        timer.user_code = code
    timer.write((OP, op, start, end, code, node.lasti, out.spec, id(node), get_ident()))
    return out


def time_raw(mode: Modes, below: Modes, op: Op, function: Callable[..., Any], *args: Any) -> Any:
    """A function of an op and bare arrays."""
    put_modes(below)
    start = clock()
    try:
        out = function(op, *args)
    finally:
        end = clock()
        put_modes(mode)
    code, lasti = user_line(_getframe(2))
    mode.instruments.timer.write((OP, op, start, end, code, lasti, out.nbytes, 0, get_ident()))  # type: ignore[union-attr]
    return out


def time_planned(timer: Timer, op: Op, run: Callable[..., Any], *args: Any) -> Any:
    """A call that has a plan."""
    before = None if timer.mark is None else timer.mark()
    start = clock()
    out = run(*args)
    end = clock()
    node = out.node if type(out) is Tensor else None
    # `base` tells a view; nothing is computed here that can be computed later
    code: Any
    size = out.spec if node is not None and getattr(out.value, "base", None) is None else new_bytes(out)
    if node is None:
        code, lasti = user_line(_getframe(2))
        timer.write((OP, op, start, end, code, lasti, size, 0, get_ident()))
    else:
        code, lasti = node.code, node.lasti
        timer.write((OP, op, start, end, code, lasti, size, id(node), get_ident()))
    if before is not None:
        write_gpu_work(timer, op.name, before, out, code, lasti)
    return out


def time_compute(
    timer: Timer, compute: Callable[..., Any], op: Op, values: Sequence[Any], static: dict[str, Any]
) -> Any:
    """The value of an op on bare arrays; if a node is made of it, another event says so."""
    before = None if timer.mark is None else timer.mark()
    start = clock()
    out = compute(op, values, static)
    end = clock()
    code, lasti = user_line(_getframe(2))
    timer.write((OP, op, start, end, code, lasti, new_bytes(out), 0, get_ident()))
    if before is not None:
        write_gpu_work(timer, op.name, before, out, code, lasti)
    return out


def write_gpu_work(timer: Timer, name: str, before: Any, out: Any, code: Any, lasti: int) -> None:
    """Write that work was launched since an event, if the result is on a GPU."""
    found = out[0] if type(out) in (tuple, list) and out else out
    if spec_of(found).device != "cpu" and timer.mark is not None:
        now = clock()
        timer.write((GPU, GpuWork(name, before, timer.mark()), now, now, code, lasti, 0, 0, get_ident()))


def new_bytes(out: Any) -> int:
    """The bytes of a result, of what is no view."""
    if type(out) is tuple:
        return sum(map(new_bytes, out))
    if type(out) is Tensor:
        out = out.value
    if type(out) is _ndarray:
        return 0 if out.base is not None else int(out.nbytes)
    return 0 if getattr(out, "base", None) is not None else int(getattr(out, "nbytes", 0))
