"""`call_function`: a transform's call of a user's function, in which NumPy's creation functions make arrays that
derivatives can be written into.

`y = np.zeros(n); y[i] = x[i]` asks NumPy for memory before any of our values takes part, so no protocol of NumPy's is
asked. Hence, while a transform runs a function, the names in NumPy's namespace, and those that the user's modules
imported from it, stand for functions that look who calls: a line of the user's in the thread that runs the function
gets a buffer (`buffers.py`), everyone else what NumPy makes. Afterwards the names are as before. Functions that mention
no such name and call nothing that could are run without all this.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from operator import itemgetter
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any
from weakref import ref

import numpy as np

from ..arrays.buffers import WITHOUT_BUFFERS, Buffer, Run, current_run, unwrap_tracked
from ..arrays.call_site import is_library_code, known_files
from ..arrays.closures import content_of, is_library, names_in_code
from ..arrays.imported import imported_module
from ..arrays.tensor import Tensor
from ..arrays.trees import map_tree
from ..arrays.value import Value
from .lazy import load_module

#: NumPy's creation functions; what stands for them is in `protocol/creation.py`.
NAMES = """
    zeros ones empty full eye identity tri arange linspace logspace geomspace zeros_like ones_like empty_like full_like
    copy array asarray asanyarray ascontiguousarray asfortranarray fromiter r_ c_ vectorize
"""
_names = frozenset(NAMES.split())
#: Those that return their argument, or a copy, as an array.
_CONVERTERS = frozenset(("array", "asarray", "asanyarray", "ascontiguousarray", "asfortranarray"))


#: Modules of NumPy and SciPy with formulas in NumPy's functions, which run as a user's do.
_FORMULAS = """
    scipy.stats._distn_infrastructure scipy.stats._continuous_distns scipy.stats._discrete_distns
    numpy.polynomial.polynomial numpy.polynomial.chebyshev numpy.polynomial.legendre numpy.polynomial.hermite
    numpy.polynomial.hermite_e numpy.polynomial.laguerre numpy.polynomial.polyutils numpy.polynomial._polybase
"""
_LIKE_USERS = frozenset(_FORMULAS.split())


_getframe = sys._getframe


def _is_inside() -> bool:
    run = current_run.get()
    return run is not None and run.makes_buffers and not run.is_over


def call_function(function: Callable[..., Any], args: Any, kwargs: Mapping[str, Any]) -> Any:
    """The result of a user's function under a transform."""
    if _is_inside():
        out = _pairs.get(id(function), (None, function))[1](*args, **kwargs)
    elif _needs_no_buffers(function, args):
        before = current_run.get()
        try:
            current_run.set(WITHOUT_BUFFERS)
            out = function(*args, **kwargs)
        finally:
            current_run.set(before)
    else:
        before, replacements = current_run.get(), _Replacements(function)
        try:
            replacements.enter()
            function = _pairs.get(id(function), (None, function))[1]  # as in pb.grad(scipy.optimize.rosen)
            out = _unwrap_result(function(*args, **kwargs))
        except Exception as error:
            _explain(error)
            raise
        finally:
            current_run.set(before)  # first, in one step: a signal may stop what follows, and the next call does it
            replacements.leave()
    return _unwrap_result(out)


def _unwrap_result(out: Any) -> Any:
    kind = type(out)
    if kind is tuple or kind is dict or kind is list:
        return map_tree(_unwrap, out) if any(map(_holds_buffer, out.values() if kind is dict else out)) else out
    return out.unwrap() if isinstance(out, Buffer) else out


def with_buffers(function: Callable[..., Any]) -> Callable[..., Any]:
    """A user's function, of arguments by position, that is called so each time."""
    return lambda *args: call_function(function, args, {})


@contextmanager
def run_with_buffers(*functions: Callable[..., Any]) -> Iterator[list[Callable[..., Any]]]:
    """The time of a loop that calls functions of the user's, each as `with_buffers` does: names are replaced once."""
    before, replacements = current_run.get(), None if _is_inside() else _Replacements(functions[0])
    try:
        if replacements is not None:
            replacements.enter()
        yield [with_buffers(f) for f in functions]
    finally:
        current_run.set(before)
        if replacements is not None:
            replacements.leave()


def _holds_buffer(x: Any) -> bool:
    return isinstance(x, (Buffer, tuple, list, dict))


def _unwrap(x: Any) -> Any:
    return x.unwrap() if isinstance(x, Buffer) else x


class _Namespace:
    """A namespace in which names stand for other functions while some transform runs, in whatever thread."""

    def __init__(self, names: dict[str, Any], changes: dict[str, tuple[Any, Any]]) -> None:
        self.names = names
        self._originals = {name: original for name, (original, _) in changes.items()}
        self._ours = {name: ours for name, (_, ours) in changes.items()}
        # of one name too, a tuple of values
        self._values_of = itemgetter(*changes, next(iter(changes)))

    def enter(self) -> None:
        self._replace(self._originals, self._ours)

    def leave(self) -> None:
        self._replace(self._ours, self._originals)

    def _replace(self, old: dict[str, Any], new: dict[str, Any]) -> None:
        names = self.names
        try:
            # tuples compare by identity first: all at once, the common case
            unchanged = self._values_of(names)[:-1] == tuple(old.values())
        except Exception:  # a name is gone, or is an array now
            unchanged = False
        if unchanged:
            names.update(new)
            return
        for name, x in old.items():  # other code has replaced some: these stay
            if names.get(name) is x:
                names[name] = new[name]


def _replace_methods(kind: type, methods: dict[str, Any]) -> None:
    """Let other functions stand for methods of a class, objects of which may have been made long ago. They stay: to
    change a class at each call would empty the interpreter's caches. With bare arguments they are what they were.
    """
    for name, ours in methods.items():
        setattr(kind, name, ours)


class _State:
    """The calls that run in all threads, and which namespaces are changed meanwhile."""

    lock = threading.RLock()
    #: By id. Weak: a call that was interrupted while it ended is forgotten with its frame.
    running: dict[int, ref[Run]] = {}  # noqa: RUF012
    #: By the id of its dictionary.
    changed: dict[int, _Namespace] = {}  # noqa: RUF012
    #: The modules that were imported when the namespaces were last searched, and those that still ran.
    modules: frozenset[str] = frozenset()
    unfinished: tuple[ModuleType, ...] = ()


#: What functions raise that know nothing of our values.
_UNEXPLAINED = frozenset((TypeError, ValueError, AttributeError, IndexError, Exception))


class _Replacements:
    """The time of a call in which names are replaced."""

    __slots__ = ("_function", "_run")

    def __init__(self, function: Any) -> None:
        self._function, self._run = function, Run()

    def enter(self) -> None:
        _import_first(getattr(self._function, "__code__", None))  # not under the lock, which a module's code may want
        with _State.lock:
            _State.running[id(self._run)] = ref(self._run)
            _enter_namespaces(self._function)
        current_run.set(self._run)

    def leave(self) -> None:
        self._run.is_over = True
        with _State.lock:
            _State.running.pop(id(self._run), None)
            if all(other() is None for other in _State.running.values()):
                _leave_namespaces()
        if self._run.tracked:
            load_module("protocol.buffers").release(self._run.tracked)


def _explain(error: Exception) -> None:
    """Raise what an error that knows nothing of our values is due to."""
    if type(error) in _UNEXPLAINED and error.__traceback__ is not None:
        load_module("protocol.scipy_functions").explain(error, error.__traceback__)


def _enter_namespaces(function: Any) -> None:
    """Replace the names; while another call runs, those of modules that were imported since."""
    known = id(getattr(function, "__globals__", None))
    if not _State.changed or len(sys.modules) != _user_modules[0] or known not in _State.changed:
        for namespace in _namespaces(function):
            if _State.changed.setdefault(id(namespace.names), namespace) is namespace:
                namespace.enter()


def _leave_namespaces() -> None:
    for namespace in _State.changed.values():
        namespace.leave()
    _State.running.clear()
    _State.changed.clear()
    _restore_imported()


def _reset_in_fork() -> None:
    """A child process has one thread: the calls of others do not run there, and the lock may be theirs."""
    run = current_run.get()
    _State.lock = threading.RLock()
    _State.running = {id(run): ref(run)} if run is not None and _is_inside() else {}
    if not _State.running:
        _leave_namespaces()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_in_fork)


class _Replacement:
    """What stands for a function of NumPy: `ours` for lines of the user's, in a call of a transform. It equals the
    function, so that in a table of functions that another thread makes meanwhile the function is found.
    """

    def __init__(self, function: Callable[..., Any], ours: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self._function, self._ours = function, ours
        self._converts = function.__name__ in _CONVERTERS

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not _is_inside() or not _is_user_frame(frame := _getframe(1)):
            return self._function(*args, **kwargs)
        takes_value = self._converts and args and isinstance(unwrap_tracked(args[0]), Value)
        if takes_value and not _is_caller(frame, self._function):
            return self._function(*args, **kwargs)
        return self._ours(*args, **kwargs)

    def __eq__(self, other: object) -> bool:
        return other is self or other is self._function

    def __hash__(self) -> int:
        return hash(self._function)

    def __repr__(self) -> str:
        return repr(self._function)

    def __reduce__(self) -> str:
        return self._function.__name__


def _is_caller(frame: Any, function: Any) -> bool:
    """Whether a user's line calls a function itself: compiled code has no frame, and takes nothing but arrays."""
    code, known = frame.f_code, frame.f_globals
    if function.__name__ in code.co_names:
        return True
    mentioned = (*map(known.get, code.co_names), *frame.f_locals.values())
    return any(_originals.get(id(getattr(x, "func", x))) is function for x in mentioned)


def _is_user_frame(frame: Any) -> bool:
    code = frame.f_code
    known = known_files.get(code.co_filename)
    if not (is_library_code(code) if known is None else known):
        return True
    return frame.f_globals.get("__name__") in _LIKE_USERS


#: For each function of NumPy, by its id: it, and what stands for it.
_pairs: dict[int, tuple[Any, Any]] = {}
#: By the id of either, the former.
_originals: dict[int, Any] = {}
_libraries: list[_Namespace] = []
#: For each namespace of the user's, by its id: how many names it had when they were searched, what was found, and it.
_searched: dict[int, tuple[int, _Namespace | None, Any]] = {}
#: The ids of what stands for functions of NumPy for good.
_staying: set[int] = set()
#: Modules of SciPy whose rules are among them; with parentheses, those of methods.
_prepared: set[str] = set()
#: Modules of SciPy whose classes have rules for methods, and where these are.
_METHODS = {"scipy.stats": "scipy_stats", "scipy.interpolate": "scipy_interpolate"}
#: By id, the code of functions whose imports were looked at.
_imported: dict[int, CodeType] = {}
#: How many modules there were, the namespaces of those of the user's, and their ids.
_user_modules: tuple[int, list[dict[str, Any]], frozenset[int]] = (0, [], frozenset())


def _namespaces(function: Any) -> list[_Namespace]:
    if not _libraries:
        _prepare()
    modules, found = _namespaces_of_user(), list(_libraries)
    known = _user_modules[2]
    if type(function) is not FunctionType or function.__closure__ or id(function.__globals__) not in known:
        modules = [*modules, *(names for names in _globals_of(function) if id(names) not in known)]
    for names in modules:
        count, namespace, _ = _searched.get(id(names), (-1, None, None))
        if count != len(names):
            namespace = _search(names)
            _searched[id(names)] = len(names), namespace, names  # held, so that no other gets its id
        if namespace is not None:
            found.append(namespace)
    return found


def _globals_of(function: Any) -> list[dict[str, Any]]:
    """The namespaces of a function, and of those that it wraps: `exec` makes some that belong to no module."""
    found: dict[int, dict[str, Any]] = {}
    stack, seen = [function], set()
    while stack:
        x = stack.pop()
        if id(x) in seen or isinstance(x, (type, ModuleType, np.ndarray)):
            continue
        seen.add(id(x))
        if isinstance(x, FunctionType):
            if not is_library(x.__globals__.get("__name__")):
                found[id(x.__globals__)] = x.__globals__
            stack += filter(callable, map(content_of, x.__closure__ or ()))
        elif isinstance(x, functools.partial):
            stack += filter(callable, (x.func, *x.args, *x.keywords.values()))
        else:  # a method, or an object
            stack.append(x.__func__ if isinstance(x, MethodType) else type(x).__call__)
    return list(found.values())


def _prepare() -> None:
    creation = load_module("protocol.creation")
    changes = {name: (getattr(np, name), ours) for name, ours in creation.JOINERS.items()}
    for name, ours in creation.CREATION.items():
        original = getattr(np, name)
        changes[name] = original, _Replacement(original, ours)
    _register(changes)
    tricks = np.lib.stride_tricks
    shown = {"as_strided": (tricks.as_strided, _Replacement(tricks.as_strided, creation.SHOW_MEMORY))}
    _register(shown)
    _libraries.append(_Namespace(vars(tricks), shown))
    call = np.vectorize.__call__

    @functools.wraps(call)
    def of_elements(*args: Any, **kwargs: Any) -> Any:
        return creation.call_vectorized(call, *args, **kwargs) if _is_inside() else call(*args, **kwargs)

    _libraries.append(_Namespace(vars(np), changes))
    _replace_methods(np.vectorize, {"__call__": of_elements})


def _prepare_scipy() -> bool:
    """The rules for modules of SciPy, and of NumPy's polynomials, that were imported since; whether other threads are
    done with importing such modules.
    """
    functions, series = load_module("protocol.scipy_functions"), load_module("protocol.series")
    for name, rules in functions.RULES.items():
        module = None if name in _prepared else imported_module(name)
        if module is None:
            continue
        _prepared.add(name)
        pairs = [(key, getattr(module, key, None), rule) for key, rule in rules.items()]
        changes = {key: (x, functions.rule_for(f"{name}.{key}", x, rule)) for key, x, rule in pairs if x is not None}
        for key, instead in functions.INSTEAD.get(name, {}).items():
            x = getattr(module, key, None)
            if x is not None:
                changes[key] = x, functions.refusal_for(f"{name}.{key}", x, instead)
        _register(changes)
        _libraries.append(_Namespace(vars(module), changes))
    for name in series.FAMILIES.keys() - _prepared:
        module = imported_module(name)
        if module is None:
            continue
        _prepared.add(name)
        changes = series.changes_of(name, module)
        _register(changes)  # for who imported them by name
        for key, (_, ours) in changes.items():  # they stay, as methods do
            setattr(module, key, ours)
            _staying.add(id(ours))
    for name, rules in _METHODS.items():
        module = None if f"{name}()" in _prepared else imported_module(name)
        if module is not None:
            _prepared.add(f"{name}()")
            for kind, of_kind in load_module(f"protocol.{rules}").replaced_methods(module).items():
                _replace_methods(kind, of_kind)
    wanted = {*functions.RULES, *series.FAMILIES, *(f"{name}()" for name in _METHODS)}
    return {x for x in wanted if x.removesuffix("()") in sys.modules} <= _prepared


def _import_first(code: CodeType | None) -> None:
    """Import the modules of SciPy that have rules and that a function imports where it uses them."""
    if code is None or _imported.get(id(code)) is code:
        return
    _imported[id(code)] = code
    if any(name.startswith("scipy") for name in names_in_code(code).imports):
        ruled = {*load_module("protocol.scipy_functions").RULES, *_METHODS}
        for name in ruled & {*code.co_names, *(f"scipy.{name}" for name in code.co_names)}:
            importlib.import_module(name)


def numpys_own(x: Any) -> Any:
    """The function of NumPy or SciPy that another stands for, and that function for itself; None for anything else."""
    if getattr(x, "__name__", None) not in _names and id(x) not in _originals:
        return None
    if not _libraries:
        with _State.lock:  # names that another thread has replaced are not NumPy's
            if not _libraries:
                _prepare()
    return _originals.get(id(x))


def _register(changes: dict[str, tuple[Any, Any]]) -> None:
    for original, ours in changes.values():
        _pairs[id(original)] = original, ours
        _originals[id(original)] = _originals[id(ours)] = original


def _search(names: dict[str, Any]) -> _Namespace | None:
    """The names of a module that are functions it imported from NumPy, or what stands for these just now."""
    changes = {name: pair for name, x in list(names.items()) if (pair := _pair_of(x)) is not None}
    return _Namespace(names, changes) if changes else None


def _pair_of(x: Any) -> tuple[Any, Any] | None:
    pair = _pairs.get(id(x))
    if pair is None and id(x) in _originals and id(x) not in _staying:
        pair = _pairs[id(_originals[id(x)])]
    return pair if pair is not None and (pair[0] is x or pair[1] is x) else None


def _namespaces_of_user() -> list[dict[str, Any]]:
    global _user_modules
    if _user_modules[0] != len(sys.modules):
        count = len(sys.modules)
        is_complete = _prepare_scipy()
        _searched.clear()
        named = [(name, m) for name, m in list(sys.modules.items()) if isinstance(m, ModuleType)]
        _State.modules = frozenset(name for name, _ in named)
        _State.unfinished = tuple(m for _, m in named if getattr(m.__spec__, "_initializing", False))
        modules = [vars(m) for name, m in named if not is_library(name) or name in _LIKE_USERS]
        _user_modules = count if is_complete else -1, modules, frozenset(map(id, modules))
    return _user_modules[1]


def _restore_imported() -> None:
    """Modules that were imported meanwhile may have taken over what stood for NumPy's functions."""
    modules = list(_State.unfinished)
    if len(sys.modules) != _user_modules[0]:
        modules += [m for name, m in list(sys.modules.items()) if name not in _State.modules]
    for module in modules:
        names = vars(module) if isinstance(module, ModuleType) else {}
        for name, x in list(names.items()):
            if id(x) in _originals and id(x) not in _staying and _originals[id(x)] is not x:
                names[name] = _originals[id(x)]


# What follows only saves time: a function about which it is wrong gets NumPy's arrays, which refuse derivatives.

_PLAIN = (int, float, complex, str, bytes, type(None), np.ndarray, np.generic, Value)
_ARGUMENTS = (*_PLAIN, dict, list, tuple)
#: Found faster than by `isinstance`.
_USUAL_ARGUMENTS = frozenset((*_ARGUMENTS, Tensor))
#: (namespace, name, function) of each.
Helpers = tuple[tuple[dict[str, Any], str, FunctionType], ...]
_MODULES = frozenset(("numpy", "pullback", "math", "cmath", "scipy.special"))
_LOOKUPS = frozenset(("getattr", "eval", "exec", "globals", "vars"))
#: By the id of its code: that code, and the functions that one calls by names of its modules, if it creates no arrays.
_without_buffers: dict[int, tuple[CodeType, Helpers | None]] = {}


def _needs_no_buffers(function: Any, args: Any) -> bool:
    """Whether a function is known to create no arrays: it mentions no such function, and calls libraries alone, or
    functions of which the same is known; or it is compiled, and calls what it was made of as a transform does.
    """
    if getattr(type(function), "prepares_calls", False):
        return True
    for x in args:
        if type(x) not in _USUAL_ARGUMENTS and not isinstance(x, _ARGUMENTS):
            return False
    return type(function) is FunctionType and _creates_no_arrays(function)


def _creates_no_arrays(function: FunctionType) -> bool:
    code = function.__code__
    found = _without_buffers.get(id(code))
    if found is None or not all(known.get(name) is helper for known, name, helper in found[1] or ()):
        found = _without_buffers[id(code)] = code, _find_helpers(function, {})
    return found[1] is not None and _holds_plain_values(function)


def _holds_plain_values(function: FunctionType) -> bool:
    cells = function.__closure__
    return cells is None or all(_is_plain(content_of(cell)) for cell in cells)


def _find_helpers(function: FunctionType, seen: dict[int, FunctionType]) -> Helpers | None:
    """The functions that one calls by names of modules, and those that these call; None if it may create arrays."""
    seen[id(function)] = function
    names, known = names_in_code(function.__code__), function.__globals__
    reads = [(name, known[name]) for name in names.globals if name in known]
    reads += [("", x) for x in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())]
    helpers = [(known, name, x) for name, x in reads if type(x) is FunctionType]
    if (
        names.imports
        or names.globals & _LOOKUPS
        or _names & names.attributes
        or not all(_is_plain(x) for _, x in reads if type(x) is not FunctionType)
        or not all(hasattr(np, name) or hasattr(np.ndarray, name) for name in names.attributes)
    ):
        return None
    for _, name, helper in list(helpers):
        if id(helper) in seen:
            continue
        # functions of libraries may have rules, for which the names are replaced
        is_users = name and not is_library(helper.__globals__.get("__name__"))
        theirs = _find_helpers(helper, seen) if is_users and _holds_plain_values(helper) else None
        if theirs is None:
            return None
        helpers += theirs
    return tuple(helpers)


def _is_plain(x: Any) -> bool:
    """Whether reading a value creates no arrays: of a known library, the names that are called are looked at."""
    return isinstance(x, _PLAIN) or (isinstance(x, ModuleType) and x.__name__ in _MODULES)
