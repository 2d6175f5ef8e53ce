"""`pb.autocast`: which dtype each op computes in, decided once, before any level interprets the op.

Casts are ops on the arguments, so tapes, transforms and traces see them. The op itself then runs with autocast off, and
so do its rules: a derivative is computed in the dtype of the op that it belongs to, at every order.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, ParamSpec, TypeVar, overload

from ..arrays.argument_checks import short_repr
from ..arrays.dtypes import as_dtype
from ..errors import ArgumentError, ArgumentTypeError
from ..settings import modes, run_inside, set_modes
from .casting import Casting
from .fusion import WHOLES
from .lazy import find_public
from .op import OPS

P = ParamSpec("P")
R = TypeVar("R")
_HALF = ("bfloat16", "float16")
_DEVICES = (None, "cpu", "cuda")
#: Where functions are looked up by name; those of a module that is not loaded yet are among them.
_SPACES = ("", "nn.", "linalg.", "special.", "fft.")


def _accept_pytorch(construct: Callable[..., None]) -> Callable[..., None]:
    """A decorator of the constructor, which then takes PyTorch's arguments too: the device is the first of them."""

    @functools.wraps(construct)
    def init(self: Any, *args: Any, **options: Any) -> None:
        if "device_type" in options or (args and isinstance(args[0], str) and args[0] in _DEVICES):
            args, options = (), _read_pytorch(*args, **options)
        construct(self, *args, **options)

    return init


def _read_pytorch(
    device_type: str, dtype: Any = None, enabled: bool = True, cache_enabled: bool | None = None, **own: Any
) -> dict[str, Any]:
    """Our options for PyTorch's; casts are always shared."""
    if "device" in own:
        raise ArgumentTypeError("autocast: device_type is device, and both are given.")
    return {"dtype": dtype, "device": device_type, "enabled": enabled, **own}


class autocast:
    """Run ops in the dtype that suits them, inside a `with` block or a decorated function: contractions and
    convolutions in `dtype` ("bfloat16" or "float16"), folds, exponentials, norms, losses, solves and factorizations in
    float32, the rest in what their arguments promote to. Parameters stay float32, and so do their gradients.

    `keep` names ops and functions that run in float32 instead, `lower` those that run in `dtype`; `device` ("cpu" or
    "cuda") restricts it to arrays there; `enabled=False` turns it off inside. Only float32 and the half types take
    part: what has a float64, complex or integer operand promotes as ever.

    >>> import numpy as np, pullback as pb
    >>> w = pb.tensor(np.ones((3, 2), "float32"), requires_grad=True)
    >>> x = np.ones((4, 3), "float32")
    >>> with pb.autocast("float16"):
    ...     y = x @ w
    ...     loss = pb.sum(y)
    >>> y.dtype, loss.dtype
    (dtype('float16'), dtype('float32'))
    >>> loss.backward()
    >>> w.grad.dtype
    dtype('float32')
    """

    @overload
    def __init__(
        self,
        dtype: Any = ...,
        device: str | None = ...,
        *,
        enabled: bool = ...,
        keep: Iterable[Any] = ...,
        lower: Iterable[Any] = ...,
    ) -> None: ...
    @overload
    def __init__(
        self, device_type: str, dtype: Any = ..., enabled: bool = ..., cache_enabled: bool | None = ...
    ) -> None: ...
    @_accept_pytorch
    def __init__(
        self,
        dtype: Any = "bfloat16",
        device: str | None = None,
        *,
        enabled: bool = True,
        keep: Iterable[Any] = (),
        lower: Iterable[Any] = (),
    ) -> None:
        if callable(dtype) and not isinstance(dtype, type):
            raise ArgumentTypeError("autocast: wants a dtype, got a function.\n  As a decorator it is @pb.autocast().")
        self._dtype = as_dtype("bfloat16" if dtype is None else dtype)
        if self._dtype.name not in _HALF:
            raise ArgumentError(f'autocast: the dtype is "bfloat16" or "float16", got {self._dtype.name}.')
        _check_device(device, "autocast")
        if not isinstance(enabled, bool):
            raise ArgumentTypeError(f"autocast: enabled is True or False, got {short_repr(enabled)}.")
        self._device, self._enabled = device, enabled
        self._keep, self._lower = _names_of(keep, "keep"), _names_of(lower, "lower")
        if both := self._keep & self._lower:
            raise ArgumentError(f"autocast: {', '.join(sorted(both))} is in keep and in lower.")
        self._around: list[Casting | None] = []

    def __enter__(self) -> None:
        before = modes()
        around: Casting | None = before.autocast
        self._around.append(around)
        if not self._enabled and (around is None or around.log is None):
            set_modes(before._replace(autocast=None))
            return
        dtype = self._dtype if self._enabled else None
        inside = Casting(dtype, self._keep, self._lower, self._device, around=around)
        set_modes(before._replace(autocast=inside))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        now, around = modes(), self._around.pop()
        if around is None and now.autocast is not None:
            now.autocast.shared.clear()
        set_modes(now._replace(autocast=around))

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        return run_inside(self._copy, function)

    def _copy(self) -> autocast:
        return autocast(self._dtype, self._device, enabled=self._enabled, keep=self._keep, lower=self._lower)


def is_autocast_enabled(device: str | None = None) -> bool:
    """Whether `pb.autocast` is on here; for arrays on a device ("cpu" or "cuda"), if one is named.

    >>> import pullback as pb
    >>> with pb.autocast("float16"):
    ...     pb.is_autocast_enabled()
    True
    """
    _check_device(device, "is_autocast_enabled")
    found: Casting | None = modes().autocast
    if found is None or found.low is None or found.parameters is not None:
        return False
    return device is None or found.device in (None, device)


def _check_device(device: Any, what: str) -> None:
    if not (device is None or isinstance(device, str)) or device not in _DEVICES:
        raise ArgumentError(f'{what}: the device is "cpu", "cuda" or None for both, got {short_repr(device)}.')


def _names_of(given: Iterable[Any], what: str) -> frozenset[str]:
    """The names of ops and functions, which are given by name or themselves."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ArgumentTypeError(f"autocast: {what} is a set of names or functions, got {short_repr(given)}.")
    return frozenset(_name_of(x, what) for x in given)


def _name_of(given: Any, what: str) -> str:
    fusion, op = getattr(given, "fusion", None) or getattr(given, "whole", None), getattr(given, "op", None)
    name = given if isinstance(given, str) else getattr(fusion or op, "name", None) or getattr(given, "__name__", None)
    if not isinstance(name, str):
        raise ArgumentTypeError(f"autocast: {what} holds names or functions, got {short_repr(given)}.")
    # a `pb.Function`, or what `pb.custom_op` made
    of_user = (isinstance(given, type) and hasattr(given, "autocast")) or hasattr(given, "record")
    if fusion is not None or op is not None or of_user or name in OPS or name in WHOLES:
        return name
    public = next((f for space in _SPACES if (f := find_public(space + name)) is not None), None)
    if name in OPS or name in WHOLES:  # known now that its module is loaded
        return name
    if public is not None and (known := getattr(getattr(public, "op", None), "name", None)):
        return str(known)
    if public is not None or callable(given):
        raise ArgumentError(f"autocast: {name} in {what} is made of other ops; name those.")
    close = difflib.get_close_matches(name, [*OPS, *WHOLES], 3)
    hint = f"  Did you mean {' or '.join(close)}?" if close else "  Pass an op of your own itself."
    raise ArgumentError(f"autocast: {what} names {name!r}, which is no op or function of pullback.\n{hint}")
