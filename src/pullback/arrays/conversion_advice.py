"""Conversions of tracked tensors to bare numbers and arrays: which lose a derivative, and what to write instead."""

from __future__ import annotations

import itertools
import linecache
import re
from dis import opmap
from types import CodeType, FrameType, ModuleType
from typing import Any

import numpy as np

from ..public_names import read_stub
from .buffers import current_run
from .call_site import is_installed_code, is_library_code, is_package_code, user_frame

_STACK = "To join tensors, write np.stack([a, b]) or pb.stack([a, b]) in place of np.array([a, b])."
_LIKE = (
    "A NumPy array cannot hold a derivative. To write tensors into an array, make it with np.zeros(n, like=x) or "
    "np.zeros_like(x) in place of np.zeros(n)."
)
_COPY = (
    "Arrays that were made outside of the function, and copies of them by y.copy(), hold numbers alone: write into "
    "np.array(y), or np.zeros_like(x)."
)
_TAKE = "A NumPy array cannot be indexed by it: write pb.take(array, i), or make the array a tensor."
_NUMPY = "For mathematics, call NumPy's function or pullback's (np.sin, pb.sin) in place of math's."
_CUSTOM = "wrap the function with pb.custom_op"
_DRAW = (
    "Numbers are drawn without derivatives: move what is drawn, as in mean + scale * rng.standard_normal(n), or use "
    "pb.random."
)

#: Functions of SciPy that are called something else here.
_INSTEAD = {
    "brentq": "pb.root", "bisect": "pb.root", "newton": "pb.root", "fsolve": "pb.root", "root_scalar": "pb.root",
    "minimize": "pb.interop.scipy.minimize or pb.argmin", "curve_fit": "pb.least_squares",
    "interp1d": "pb.interp", "quad": "pb.trapezoid on a grid", "solve_ivp": "pb.ode.solve", "odeint": "pb.ode.solve",
    "root": "pb.root", "least_squares": "pb.least_squares", "fixed_point": "pb.fixed_point",
    "spsolve": "pb.sparse.solve", "splu": "pb.sparse.solve", "factorized": "pb.sparse.solve", "cg": "pb.sparse.solve",
    "gmres": "pb.sparse.solve", "bicgstab": "pb.sparse.solve", "spsolve_triangular": "pb.sparse.solve",
    "array": "x.copy()", "asarray": "the tensor itself",
    **dict.fromkeys(
        ("PchipInterpolator", "Akima1DInterpolator", "UnivariateSpline", "InterpolatedUnivariateSpline", "splrep",
         "splev", "KroghInterpolator", "BarycentricInterpolator", "barycentric_interpolate", "krogh_interpolate"),
        "scipy.interpolate.CubicSpline or make_interp_spline in a function that pb.grad runs",
    ),
    **dict.fromkeys(
        ("lfilter", "filtfilt", "sosfilt", "sosfiltfilt"), "pb.scan, or pb.convolve with the response to an impulse"
    ),
    **dict.fromkeys(
        ("fftconvolve", "oaconvolve", "savgol_filter", "gaussian_filter1d", "convolve1d", "uniform_filter1d"),
        "pb.convolve with the weights",
    ),
    "euclidean": "pb.linalg.norm(a - b)",
}  # fmt: skip


#: Functions of NumPy of lists of arrays, which ours take as lists of lists too.
_JOINING = frozenset(("append", "column_stack", "concatenate", "dstack", "hstack", "meshgrid", "stack", "vstack"))

#: Modules of which compiled code replaces an error by one that tells nothing ("Unable to parse arguments").
_REPLACING_ERRORS = frozenset(("scipy.optimize._zeros_py",))

#: The code of functions that call a user's function on bare arrays, whose derivative is given by a rule.
_RULED_CALLS: set[CodeType] = set()


def stand_in_for_product(x: Any, caller: FrameType) -> Any:
    """What SciPy's product of a sparse matrix is to see of its other factor; None if that is not who asks."""
    # while a transform runs, what stands for np.asanyarray lies in between (`ops/user_calls.py`)
    is_between = caller.f_globals.get("__name__", "") == "pullback.ops.user_calls"
    found = caller.f_back if is_between and caller.f_back is not None else caller
    if not found.f_globals.get("__name__", "").startswith("scipy.sparse"):
        return None
    if found.f_code.co_name == "_matmul_dispatch":  # leaves what becomes an array of one object to its own operator
        one = np.empty((), object)
        one[()] = x
        return one
    if found.f_code.co_name == "dot":  # of "coo": refuses an object, and goes on with what has a shape itself
        return np.empty(0)
    return None


def mark_ruled_call(function: Any) -> None:
    """Declare that what the functions it calls read of tracked tensors is lost: a rule stands for their derivative."""
    _RULED_CALLS.add(function.__code__)


def loses_derivative(frame: FrameType) -> bool:
    """Whether a line computes with the number of a tensor, in place of reading it: where a package asks for it, where
    it is written into an array, where a function of `math` or NumPy takes it, in the function of a custom op.
    """
    code = frame.f_code
    if is_package_code(code) or is_installed_code(code) or _is_item_assignment(frame):
        return True
    outer: FrameType | None = frame
    while outer is not None:
        if outer.f_code in _RULED_CALLS:
            return True
        outer = outer.f_back
    called = _called_function(frame)[1]
    module = getattr(called, "__module__", None) or ""
    # np.fromiter computes with numbers; a class, as in np.float64(x), is asked for one
    return module in ("math", "cmath") or (module.partition(".")[0] == "numpy" and not isinstance(called, type))


def replaces_errors(frame: FrameType) -> bool:
    """Whether what a frame calls will replace an error raised now, so that it is to be told in another way too."""
    outer: FrameType | None = frame
    while outer is not None and is_package_code(outer.f_code):
        outer = outer.f_back
    return outer is not None and outer.f_globals.get("__name__") in _REPLACING_ERRORS


def advise_on_conversion(frame: FrameType | None, *, is_array: bool = False) -> str:
    """The lines of advice that fit the calling line; with `is_array` an array is wanted, not a number."""
    while frame is not None and is_package_code(frame.f_code):
        frame = frame.f_back
    if frame is None:
        return _format_lines(_STACK, _LIKE)
    outside = user_frame(frame)
    taken = re.match(r"((?:np|numpy)\.[\w.]+)\(\s*[\[(]", _call_text(outside))
    if taken is not None:
        return _format_lines(_advise_on_list(taken[1]))
    if is_installed_code(frame.f_code):
        return _format_lines(_advise_on_library(outside, _outermost_library_frame(frame)))
    if _is_item_assignment(outside):
        return _format_lines(_LIKE if current_run.get() is None else _COPY)
    if _is_at(outside, "BINARY_SUBSCR"):
        return _format_lines(_TAKE)
    text, function = _called_function(outside)
    module = str(getattr(function, "__module__", None) or "")
    owner = type(_look_up(text.partition(".")[0], outside))
    if any(name.startswith("numpy.random") for name in (module, owner.__module__)) or ".random." in text:
        return _format_lines(_DRAW)
    if module in ("math", "cmath"):
        return _format_lines(_NUMPY)
    if not module.startswith("numpy"):
        return _format_lines(_STACK, _LIKE) if is_array and not module.startswith("pullback") else ""
    return _format_lines(f"{text} works on bare arrays: {_suggest('numpy', text) or _CUSTOM}.")


def _advise_on_list(text: str) -> str:
    """What to write in place of a call of NumPy with a list of tensors."""
    name = text.rpartition(".")[2]
    if name.endswith("array"):
        return _STACK
    if name in _JOINING:
        return f"{text} sees bare numbers in lists of lists: use pb.{name}."
    return f"{text} sees bare numbers in a list: join the tensors first, {text}(np.stack([a, b]))."


def _advise_on_library(outside: FrameType, frame: FrameType) -> str:
    """What to use in place of a function of another package."""
    module = str(frame.f_globals.get("__name__", ""))
    package = module.partition(".")[0]
    name = _called_function(outside)[0] or frame.f_code.co_name
    instead = _suggest(module, name)
    if package != "scipy":
        return f"{name} works on bare arrays: {instead or _CUSTOM}."
    if module.startswith("scipy.sparse"):
        better = _INSTEAD.get(name.rpartition(".")[2], "pb.sparse.from_scipy(A), whose operators take tensors")
        return f"{name} works on bare arrays: use {better}, or {_CUSTOM}. Products A @ x take tensors as they are."
    other = "use pb.special, pb.linalg, pb.fft, pb.interop.scipy or pb.root"
    return (
        f"{name} works on bare arrays: {instead or other}, or {_CUSTOM}. Some functions of SciPy take tensors if "
        "SCIPY_ARRAY_API=1 is set before it is imported."
    )


def _suggest(module: str, name: str) -> str:
    """The function of this package that has the name of another package's."""
    last = name.rpartition(".")[2]
    if ".polynomial" in name:
        return "use np.polyval and the like, which take the coefficients of the highest powers first"
    if ".ma." in name:
        return "use pb.masked"
    if last in _INSTEAD:
        return f"use {_INSTEAD[last]}"
    scalar = getattr(np, last, None)
    if isinstance(scalar, type) and issubclass(scalar, np.generic):
        return f"use x.astype(np.{last})"
    homes = read_stub("pullback")
    namespace = next((n for n in ("special", "linalg", "fft") if n in module.split(".")), None)
    if namespace is not None and hasattr(homes[namespace].load("pullback"), last):
        return f"use pb.{namespace}.{last}"
    return f"use pb.{last}" if last in homes else ""


def _outermost_library_frame(frame: FrameType) -> FrameType:
    """The frame of what the user's code called."""
    while frame.f_back is not None and is_library_code(frame.f_back.f_code):
        frame = frame.f_back
    return frame


def _is_item_assignment(frame: FrameType) -> bool:
    """Whether a frame is at `x[i] = v`."""
    return _is_at(frame, "STORE_SUBSCR")


def _is_at(frame: FrameType, instruction: str) -> bool:
    return frame.f_lasti >= 0 and frame.f_code.co_code[frame.f_lasti] == opmap.get(instruction)


def _called_function(frame: FrameType) -> tuple[str, Any]:
    """What a frame calls at its instruction: as its line writes it, and the function itself; ("", None) if unknown."""
    found = re.match(r"(\w+(?:\.\w+)*)\(", _call_text(frame))
    return (found[1], _look_up(found[1], frame)) if found else ("", None)


def _call_text(frame: FrameType) -> str:
    """The line that a frame is at, from where its instruction begins."""
    position = next(itertools.islice(frame.f_code.co_positions(), frame.f_lasti // 2, None), (None,) * 4)
    line, _, start, _ = position
    if line is None or start is None:
        return ""
    return linecache.getline(frame.f_code.co_filename, line).encode()[start:].decode(errors="replace")


def _look_up(name: str, frame: FrameType) -> Any:
    """A dotted name as a frame sees it; attributes of modules alone are read, which runs no one's code."""
    first, *others = name.split(".")
    found = frame.f_globals.get(first)
    found = frame.f_locals.get(first) if found is None else found
    for other in others:
        found = getattr(found, other, None) if isinstance(found, ModuleType) else None
    return found


def _format_lines(*advice: str) -> str:
    return "".join(f"\n  {line}" for line in advice)
