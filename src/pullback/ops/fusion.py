"""`pb.fuse`: a function that runs eagerly as one native op for each kind of arguments, where there is a compiler.

Which calls run natively is fixed by what is seen before anything runs: the arguments' kinds and the modes. So a call
returns the same bits whenever it is made, also in a checkpoint or within a memory budget. What native code cannot take,
and what must be seen op by op (transforms, programs being traced), runs the function itself.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import fields, is_dataclass
from importlib.util import find_spec
from typing import Any, ParamSpec, TypeVar, overload

import numpy as np

from ..arrays.argument_checks import check_functions
from ..arrays.backends import device_of, is_array
from ..arrays.buffers import unwrap_tracked
from ..arrays.tensor import Tensor
from ..arrays.trees import dict_key_order, flatten
from ..arrays.value import Value
from ..errors import ArgumentError, IndexingError, PullbackError
from ..settings import PLAIN, Modes, get_matmul_precision, modes, override_native, uses_native_code
from .lazy import lazy_function

P = ParamSpec("P")
R = TypeVar("R")
_ndarray = np.ndarray
#: Arguments of these classes are settings, which a form is made for, as are tuples of them.
_SETTINGS = frozenset((type(None), bool, int, str, bytes, type, type(...)))
#: The most kinds of arguments of one function that are remembered, the latest ones.
MAX_FORMS = 256
_compile_form = lazy_function("native_form", "compile_form", "compile")


@functools.cache
def has_compiler() -> bool:
    """Whether llvmlite is installed; it is not imported for that."""
    return find_spec("llvmlite") is not None


class Declined:
    """A kind of arguments that runs op by op, and why."""

    __slots__ = ("why",)

    def __init__(self, why: str) -> None:
        self.why = why

    def is_current(self) -> bool:
        return True


#: Reasons that need no search.
SWITCHED_OFF = Declined("pb.native(False) is on")
_WITHOUT_COMPILER = Declined('there is no compiler (pip install "pullback[jit]")')
_TRACED = Declined("a program is being traced, which takes its ops one by one")
_CHOSEN = Declined("a checkpoint chooses by ops or names what it saves, so it has to see each op")
_INFERENCE = Declined("an argument was made under inference_mode, so it cannot be saved; single ops may not have to")
_TRANSFORMED = Declined("an argument belongs to a transform, which sees each op")


class Call:
    """The arguments of one call: `key` says of which kind they are, `values` are the arrays and tensors among them."""

    __slots__ = ("is_on_gpu", "key", "values")

    def __init__(self) -> None:
        self.key: list[Any] = []
        self.values: list[Any] = []
        self.is_on_gpu = False

    def read(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Declined | None:
        """Read the arguments; the reason if they cannot run natively, whatever their numbers."""
        for x in args:
            if (why := self._add(x)) is not None:
                return why
        for name, x in kwargs.items():
            self.key.append(name)
            if (why := self._add(x)) is not None:
                return why
        return None

    def _add(self, x: Any) -> Declined | None:
        # an array adds its shape and dtype to the key, a tensor with plans the number of its spec, a setting its class
        # and value: no two kinds have one key
        kind = type(x)
        if kind is Tensor:
            if x.spec.number > 0:
                self.key.append(x.spec.number)
                self.values.append(x)
                if x.spec.device != "cpu":
                    self.is_on_gpu = True
                return None
            if type(x.value) is not _ndarray and (why := self._add_place(x.value)) is not None:
                return why
            spec = x.spec
            if spec.plain is None and x.is_inference and modes().grad:
                return _INFERENCE
            self.key += (spec.shape, spec.dtype)
            self.values.append(x)
        elif kind is _ndarray:
            self.key += (x.shape, x.dtype)
            self.values.append(x)
        elif kind is float:
            # 0.0 equals -0.0, and NaN is unequal to itself
            self.key += (float, x if x == x and x else repr(x))
        elif kind in _SETTINGS:
            self.key += (kind, x)
        else:
            return self._add_tree(x)
        return None

    def _add_place(self, x: Any) -> Declined | None:
        """The device of an array that is not NumPy's."""
        if isinstance(x, Value):
            return _TRANSFORMED
        if not is_array(x):
            return Declined("an argument is no NumPy array")
        self.is_on_gpu = True
        self.key.append(device_of(x))
        return None

    def _add_tree(self, tree: Any) -> Declined | None:
        """A container, or a module: its structure is part of the kind."""
        if isinstance(tree, Value):
            return _TRANSFORMED
        if (tensor := unwrap_tracked(tree)) is not tree:
            return self._add(tensor)
        if is_array(tree):
            why = self._add_place(tree)
            self.key += (tree.shape, tree.dtype)
            self.values.append(tree)
            return why
        try:
            leaves, structure = flatten(tree)
            hash(structure)
        except (PullbackError, TypeError, ValueError):
            leaves, structure = [tree], None
        if structure is None:
            return self._add_record(tree)
        self.key += (Call, structure, dict_key_order(tree))
        for leaf in leaves:
            if (why := self._add(leaf)) is not None:
                return why
        return None

    def _add_record(self, x: Any) -> Declined | None:
        """A dtype, or a frozen dataclass of settings, which is one setting."""
        if isinstance(x, np.dtype):
            self.key += (np.dtype, x)
            return None
        count = len(self.values)
        if is_dataclass(x) and x.__dataclass_params__.frozen:  # type: ignore[union-attr]
            self.key.append(type(x))
            if all(self._add(getattr(x, f.name)) is None for f in fields(x)) and len(self.values) == count:
                return None
        return Declined(f"an argument is a {type(x).__name__}, no array and no setting")


class OpByOp:
    """The switch under which fused functions run as they stand, while single ops may be native."""

    @staticmethod
    def call(fusion: Fusion, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        return fusion.function(*args, **kwargs)


def run_op_by_op() -> AbstractContextManager[None]:
    """For what runs now and again inside of a transform, which sees each op: both must give the same bits."""
    return override_native(uses_native_code() and OpByOp)


class Fusion:
    """The native forms of one function, by the kinds of its arguments."""

    __slots__ = ("autocast", "compiler", "forms", "function", "name")

    def __init__(self, function: Callable[..., Any], autocast: str = "", name: str = "") -> None:
        self.function = function
        #: What the whole function does under `pb.autocast`; empty: its ops decide.
        self.autocast, self.name = autocast, name or getattr(function, "__name__", "")
        self.forms: dict[tuple[Any, ...], Any] = {}
        #: What the compiler keeps for all forms of this function.
        self.compiler: Any = None

    def find(self, args: Sequence[Any], kwargs: dict[str, Any], mode: Modes) -> tuple[Any, list[Any]]:
        """The form that this call runs in, and its arrays; or the reason why it runs op by op."""
        if mode is not PLAIN:
            if mode.tracing is not None:
                return _TRACED, []
            if mode.instruments is not None and mode.instruments.chooses_ops:
                return _CHOSEN, []
        call = Call()
        why = call.read(args, kwargs)
        if why is None and not call.is_on_gpu and not has_compiler():
            why = _WITHOUT_COMPILER
        if why is not None:
            return why, []
        key = (*call.key, get_matmul_precision()) if call.is_on_gpu else tuple(call.key)
        if mode.autocast is not None:
            key = (*key, mode.autocast.key)
        form = self.forms.get(key)
        if form is None or not form.is_current():
            form = self._add_form(key, args, kwargs)
        return form, call.values

    def _add_form(self, key: tuple[Any, ...], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        form = _compile_form(self, args, kwargs)
        self.forms.pop(key, None)
        self.forms[key] = form
        if len(self.forms) > MAX_FORMS:  # compiled again if it comes back, with the same bits
            del self.forms[next(iter(self.forms))]
        return form

    def run(self, args: Sequence[Any], kwargs: dict[str, Any], form: Any, values: list[Any]) -> Any:
        """The result of a call in its form. Where native code refuses numbers (an index out of range), the function
        itself runs, and raises its own error.
        """
        if type(form) is Declined:
            return self.function(*args, **kwargs)
        try:
            return form.run(values)
        except IndexingError:
            return self.function(*args, **kwargs)


#: Functions that `pb.autocast` decides as a whole, by name.
WHOLES: dict[str, Any] = {}


class Whole:
    """A function that is no op and not fused, but is decided as a whole under `pb.autocast`."""

    __slots__ = ("autocast", "name")

    def __init__(self, name: str, autocast: str) -> None:
        self.name, self.autocast = name, autocast
        WHOLES.setdefault(name, self)


def cast_whole(autocast: str, name: str = "") -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A decorator of a function of several ops: under `pb.autocast` its arguments are cast, and its ops run as they
    are. `name` is what users call it, if not by its own name.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        whole = Whole(name or function.__name__, autocast)

        @functools.wraps(function)
        def decided(*args: Any, **kwargs: Any) -> Any:
            if (mode := modes()) is not PLAIN and mode.autocast is not None:
                return mode.autocast.call(whole, function, args, kwargs)
            return function(*args, **kwargs)

        decided.whole = whole  # type: ignore[attr-defined]
        return decided

    return decorate


@overload
def fuse(function: Callable[P, R], *, autocast: str = ..., name: str = ...) -> Callable[P, R]: ...
@overload
def fuse(
    function: None = None, *, autocast: str = ..., name: str = ...
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def fuse(function: Callable[..., Any] | None = None, *, autocast: str = "", name: str = "") -> Any:
    """A function that runs as one native op, forward and backward, for each kind of arguments (shapes, dtypes,
    settings), where llvmlite is installed; else, and inside transforms or `pb.jit`, it runs as it stands.
    Numbers, strings and tuples of them are settings: the code is made for each of their values.

    It suits functions of a few ops on arrays, which then cost one op; unlike `pb.jit` it is meant for the eager loop.
    `pb.native(False)` turns it off, and `pb.explain(f, *args)` shows how a call runs.

    `autocast` says what the function does as a whole under `pb.autocast`: "low" and "high" cast its arguments to the
    low dtype or to float32, "promote" takes them as they are. If it is not said, each op inside decides for itself.
    `name` is what `keep` and `lower` of `pb.autocast` call it, if not by its own name.

    >>> import numpy as np, pullback as pb
    >>> @pb.fuse
    ... def huber(x, delta=1.0):
    ...     return pb.where(abs(x) < delta, x * x / 2, delta * (abs(x) - delta / 2)).sum()
    >>> x = pb.tensor([0.5, 3.0], requires_grad=True)
    >>> huber(x).backward()
    >>> x.grad
    tensor([0.5, 1. ], dtype=float64)
    """
    if function is None:
        return functools.partial(fuse, autocast=autocast, name=name)
    check_functions("fuse", function)
    if autocast not in ("", "low", "high", "promote"):
        raise ArgumentError(f'fuse: autocast is "low", "high" or "promote", got {autocast!r}.')
    fusion = Fusion(function, autocast, name)
    if autocast:
        WHOLES.setdefault(fusion.name, fusion)
    find, run = fusion.find, fusion.run

    @functools.wraps(function)
    def fused(*args: Any, **kwargs: Any) -> Any:
        if (mode := modes()) is not PLAIN and mode.autocast is not None and mode.autocast.takes_over(fusion):
            return mode.autocast.call(fusion, fused, args, kwargs)
        if (switch := uses_native_code()) is not True:
            return function(*args, **kwargs) if switch is False else switch.call(fusion, args, kwargs)
        form, values = find(args, kwargs, mode)
        return run(args, kwargs, form, values)

    fused.fusion = fusion  # type: ignore[attr-defined]
    return fused
