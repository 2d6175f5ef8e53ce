"""`pb.autocast`: which dtype each op computes in, decided once, before any level interprets the op.

Casts are ops on the arguments, so tapes, transforms and traces see them. The op itself then runs with autocast off, and
so do its rules: a derivative is computed in the dtype of the op that it belongs to, at every order.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from ..arrays.argument_checks import short_repr
from ..arrays.dtypes import as_dtype
from ..errors import ArgumentError, ArgumentTypeError
from ..settings import Modes, modes, run_inside, set_modes
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

    def __init__(
        self,
        dtype: Any = "bfloat16",
        device: str | None = None,
        *,
        enabled: bool = True,
        keep: Iterable[Any] = (),
        lower: Iterable[Any] = (),
    ) -> None:
        self._dtype = as_dtype(dtype)
        if self._dtype.name not in _HALF:
            raise ArgumentError(f'autocast: the dtype is "bfloat16" or "float16", got {self._dtype.name}.')
        if device not in _DEVICES:
            raise ArgumentError(f'autocast: the device is "cpu", "cuda" or None for both, got {short_repr(device)}.')
        if not isinstance(enabled, bool):
            raise ArgumentTypeError(f"autocast: enabled is True or False, got {short_repr(enabled)}.")
        self._device, self._enabled = device, enabled
        self._keep, self._lower = _names_of(keep, "keep"), _names_of(lower, "lower")
        if both := self._keep & self._lower:
            raise ArgumentError(f"autocast: {', '.join(sorted(both))} is in keep and in lower.")
        self._before: list[Modes] = []

    def __enter__(self) -> None:
        before = modes()
        self._before.append(before)
        around: Casting | None = before.autocast
        if not self._enabled and (around is None or around.log is None):
            set_modes(before._replace(autocast=None))
            return
        dtype = self._dtype if self._enabled else None
        inside = Casting(dtype, self._keep, self._lower, self._device, around=around)
        set_modes(before._replace(autocast=inside))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        inside, before = modes().autocast, self._before.pop()
        if before.autocast is None and inside is not None:
            inside.shared.clear()
        set_modes(before)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        return run_inside(self._copy, function)

    def _copy(self) -> autocast:
        return autocast(self._dtype, self._device, enabled=self._enabled, keep=self._keep, lower=self._lower)


def is_autocast_enabled() -> bool:
    """Whether `pb.autocast` is on here.

    >>> import pullback as pb
    >>> with pb.autocast("float16"):
    ...     pb.is_autocast_enabled()
    True
    """
    found: Casting | None = modes().autocast
    return found is not None and found.low is not None


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
    of_user = isinstance(given, type) or hasattr(given, "record")  # a `pb.Function`, or what `pb.custom_op` made
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
