"""Whose line made a call: the user's own, for errors, warnings and nodes, never one of this or another package."""

from __future__ import annotations

import functools
import linecache
import os
import re
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType, FrameType, TracebackType
from typing import Any, ParamSpec, TypeVar

from ..errors import ArgumentTypeError, AxisError, IndexingError
from .argument_checks import is_misfit, keywords_of, misfit_error, read_unknown_keyword, unknown_keyword

P = ParamSpec("P")
R = TypeVar("R")
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
#: A program inside the package that uses it as a user does: its lines count as the user's.
_DEMO = os.path.join(_PACKAGE, "demo")

#: For each file whether its lines are not the user's: of this package, of an installed one, of the standard library.
known_files: dict[str, bool] = {}
_package_files: dict[str, bool] = {}
_INSTALLED_FILE = re.compile(r"[/\\](site|dist)-packages[/\\]|<__array_function__")
_STANDARD_LIBRARY = os.path.dirname(os.__file__) + os.sep


@dataclass(frozen=True, eq=False)
class FailedCheck:
    """In place of a user's line: the error of a check whose outcome a device notes while a program runs."""

    make_error: Callable[[], Exception]


def is_package_code(code: CodeType | None) -> bool:
    """Whether a line belongs to this package, and not to its user."""
    if code is None:
        return False
    known = _package_files.get(code.co_filename)
    if known is None:
        inside = code.co_filename.startswith((_PACKAGE, "<pullback"))
        known = _package_files[code.co_filename] = inside and not code.co_filename.startswith(_DEMO)
    return known


def is_library_code(code: CodeType) -> bool:
    """Whether a line belongs to this package, to an installed one or to the standard library: not to the user."""
    name = code.co_filename
    known = known_files.get(name)
    if known is None:
        is_standard = name.startswith((_STANDARD_LIBRARY, "<frozen ")) and not name.startswith(_DEMO)
        known = known_files[name] = is_package_code(code) or is_standard or is_installed_code(code)
    return known


def is_installed_code(code: CodeType) -> bool:
    """Whether a line belongs to another package, which pip or the system installed."""
    name = code.co_filename
    return _INSTALLED_FILE.search(name) is not None and not name.startswith(_PACKAGE)


def user_frame(frame: FrameType) -> FrameType:
    """The innermost frame of the user's code; if there is none, the innermost outside this package."""
    found: FrameType | None = frame
    # a stack may be deep inside the package, so files that are known cost no call
    while found is not None and (known_files.get(found.f_code.co_filename) or is_library_code(found.f_code)):
        found = found.f_back
    if found is not None:
        return found
    while is_package_code(frame.f_code) and frame.f_back is not None:
        frame = frame.f_back
    return frame


def user_line(frame: FrameType) -> tuple[CodeType, int]:
    """The innermost line of the user's code, as code and instruction."""
    frame = user_frame(frame)
    return frame.f_code, frame.f_lasti


def warn_at_user_line(message: str) -> None:
    """A RuntimeWarning that shows the user's line, however deep in the package it is found out; once a line, unless
    filters say otherwise.
    """
    frame = user_frame(sys._getframe(1))
    name = str(frame.f_globals.get("__name__", ""))
    seen = frame.f_globals.setdefault("__warningregistry__", {})
    warnings.warn_explicit(message, RuntimeWarning, frame.f_code.co_filename, frame.f_lineno, name, seen)


def set_call_site(node: Any, frame: FrameType) -> None:
    """Store the user's line on a node."""
    node.code, node.lasti = user_line(frame)


def propagate_call_site(node: Any, line: tuple[CodeType, int]) -> None:
    """Store the user's line on a node and on its ancestors whose line is the package's own."""
    code = getattr(node, "code", None)  # an object of someone else may have a node too
    stack = [node] if isinstance(code, CodeType) and is_package_code(code) else []
    while stack:
        node = stack.pop()
        node.code, node.lasti = line
        stack += [parent for parent in node.parents if is_package_code(parent.code)]


#: A call into these with arguments that do not fit is the package's own doing.
_LIBRARIES = frozenset(("numpy", "scipy", "cupy", "cupyx"))

#: What invalid arguments raise where no check came first.
UNTYPED = (TypeError, ValueError, IndexError, AttributeError, ZeroDivisionError, AssertionError)


def as_typed_error(what: str, error: Exception, function: Callable[..., Any] | None = None) -> Exception:
    """A built-in error raised inside the package as one of our classes; a user's function keeps its own errors.
    `function` is the one whose arguments may be to blame.
    """
    if isinstance(error, AxisError) and error.args:
        error.args = (f"{what}:{str(error).partition(':')[2]}",)  # the axis was passed on to an op of another name
    own = type(error).__module__ not in ("builtins", "numpy._core._exceptions", "numpy.exceptions")
    if own or not _is_raised_by_package(error.__traceback__):
        return error
    if function is not None and is_misfit(function, error):
        made: Exception = misfit_error(what, function, error)
    elif unknown := read_unknown_keyword(error):
        name, keyword = unknown
        made = unknown_keyword(name, keyword, keywords_of(function) if function and name == what else None)
    else:
        kind = IndexingError if isinstance(error, IndexError) else ArgumentTypeError
        made = kind(f"{what}: the arguments do not fit: {error}.")
    made.__cause__ = error
    return made


def _is_raised_by_package(step: TracebackType | None) -> bool:
    """Whether the innermost line outside third-party libraries is the package's."""
    ours = False
    while step is not None:
        if str(step.tb_frame.f_globals.get("__name__", "")).partition(".")[0] not in _LIBRARIES:
            ours = is_package_code(step.tb_frame.f_code)
        step = step.tb_next
    return ours


def attributed_to_caller(function: Callable[P, R]) -> Callable[P, R]:
    """For functions of the package that call ops: the nodes they make get the user's line as their call site.

    The fast path stores its caller's line without checking whose it is; the check would cost every op.
    """

    @functools.wraps(function)
    def composite(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            out = function(*args, **kwargs)
        except UNTYPED as error:
            raise as_typed_error(function.__name__, error, function)  # noqa: B904 - it is the same error, or chains it
        node = getattr(out, "node", None)
        if node is not None and is_package_code(node.code):
            propagate_call_site(node, user_line(sys._getframe(1)))
        return out

    return composite


def format_line(code: CodeType, lasti: int) -> str:
    """A line as `folder/file.py:12: y = x * 2`."""
    number = next((line for start, end, line in code.co_lines() if start <= lasti < end and line), None)
    if number is None:
        return _format_path(code.co_filename)
    text = linecache.getline(code.co_filename, number).strip()
    return f"{_format_path(code.co_filename)}:{number}" + (f": {text}" if text else "")


def _format_path(name: str) -> str:
    """A file as seen from the working directory where that is shorter; of the package's own programs, the name."""
    if name.startswith((_DEMO, "<")):
        return os.path.basename(name)
    try:
        return min(os.path.relpath(name), name, key=len)
    except (OSError, ValueError):  # the directory is gone, or on another drive
        return name
