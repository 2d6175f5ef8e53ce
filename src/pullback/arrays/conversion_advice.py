"""Advice for a failed conversion to a bare number or array: what to write instead, judged by the user's line."""

from __future__ import annotations

import linecache
import re
from types import FrameType

from .node import is_package_code

_STACK = "To join tensors, write np.stack([a, b]) or pb.stack([a, b]) in place of np.array([a, b])."
_LIKE = "To write tensors into an array, make it with np.zeros(n, like=x) or np.zeros_like(x) in place of np.zeros(n)."
_NUMPY = "For mathematics, call NumPy's function or pullback's (np.sin, pb.sin) in place of math's."

_WRITES = r"\]\s*[-+*/]?=(?!=)"
_JOINS = r"\bnp\.\w+\(\s*[\[(]|\bnumpy\.\w+\(\s*[\[(]"
_MATH = r"\bmath\.\w+\("


def advise_on_conversion(frame: FrameType | None) -> str:
    """The lines of advice, the one that fits the calling line first."""
    while frame is not None and (is_package_code(frame.f_code) or _package_of(frame) == "numpy"):
        frame = frame.f_back
    if frame is None:
        return _format_lines(_STACK, _LIKE)
    package = _package_of(frame)
    if package == "scipy":
        return _format_lines(
            "SciPy's functions work on bare arrays: use pb.special, pb.linalg, pb.fft, pb.interop.scipy or pb.root, or "
            "wrap the function with pb.custom_op."
        )
    if "site-packages" in frame.f_code.co_filename:
        return _format_lines(f"{package} works on bare arrays: wrap its function with pb.custom_op.")
    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
    if re.search(_WRITES, line):
        return _format_lines(_LIKE)
    if re.search(_JOINS, line):
        return _format_lines(_STACK)
    if re.search(_MATH, line):
        return _format_lines(_NUMPY)
    return _format_lines(_STACK, _LIKE)


def _package_of(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def _format_lines(*advice: str) -> str:
    return "".join(f"\n  {line}" for line in advice)
