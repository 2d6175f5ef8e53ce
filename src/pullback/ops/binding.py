"""The function that computes an op on arrays of known specs, its static parameters bound: of NumPy, CuPy or ours."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from operator import itemgetter, methodcaller
from typing import Any

import numpy as np

from ..arrays.spec import Spec
from .dispatch import compute, compute_half
from .lazy import lazy_function
from .op import Op, is_any_half

#: An op's kernel on a GPU as a function of arrays; None if it has none for such specs.
bind_kernel = lazy_function("cuda.eager", "bind_kernel", "compile")
_log_failure = lazy_function("cuda.eager", "log_failure", "compile")


def bind_function(op: Op, specs: Sequence[Spec], static: dict[str, Any]) -> Callable[..., Any]:
    """The NumPy function that computes an op on arrays of these specs, its static parameters bound."""
    device = next((s.device for s in specs if s.weak is None), "cpu")
    if device != "cpu":
        return _bind_on_gpu(op, specs, static, device)
    if is_any_half(specs) and (op.wide_value or (op.ufunc is not None and any(s.is_large_half for s in specs))):
        return partial(compute_half, op, np, **static)
    if op.direct is not None and (found := op.direct(*specs, **static)) is not None:
        return found  # type: ignore[no-any-return]
    if op.ufunc is not None:
        return getattr(np, op.ufunc)  # type: ignore[no-any-return]
    return partial(op.value, np, **static)


def _bind_on_gpu(op: Op, specs: Sequence[Spec], static: dict[str, Any], device: str) -> Callable[..., Any]:
    """The same for arrays of a GPU; what fails there, or is called while another device is the current one, goes by
    the general path, which raises the proper error. If it does not, that is logged.
    """
    if any(s.weak is not None for s in specs):
        return lambda *arrays: compute(op, arrays, static)
    cupy, number = sys.modules["cupy"], int(device.partition(":")[2])
    direct = _find_direct_on_gpu(op, specs, static, cupy)
    current_device = cupy.cuda.runtime.getDevice

    def call(*arrays: Any) -> Any:
        try:
            return direct(*arrays) if current_device() == number else compute(op, arrays, static)
        except Exception as error:
            out = compute(op, arrays, static)
            _log_failure(op, error)
            return out

    return call


def bind_to_views(
    op: Op, specs: Sequence[Spec], static: dict[str, Any], views: Sequence[Callable[[Any], Any] | None]
) -> Callable[..., Any]:
    """The function of a contraction on a GPU that takes arrays of which `views` make the arguments (None: they are the
    arguments), by looking at them in another way; it need not make the views to know where they lie.
    """
    of_views = bind_function(op, specs, static)
    assert op.on_gpu is not None
    quick = op.on_gpu(*specs, views=views, **static)
    if quick is None:
        quick = _leave_to_views
    number, current_device = int(specs[0].device.partition(":")[2]), sys.modules["cupy"].cuda.runtime.getDevice

    def call(*arrays: Any) -> Any:
        found = quick(*arrays) if current_device() == number else None
        if found is None:
            found = of_views(*[x if view is None else view(x) for view, x in zip(views, arrays, strict=True)])
        return found

    return call


def _leave_to_views(*arrays: Any) -> None:
    """No quicker function."""


def _find_direct_on_gpu(op: Op, specs: Sequence[Spec], static: dict[str, Any], cupy: Any) -> Callable[..., Any]:
    """The quickest function there is, on the device of the specs."""
    if op.family == "elementwise" and not static and (kernel := bind_kernel(op, specs, static)) is not None:
        return kernel  # type: ignore[no-any-return]
    has_half = is_any_half(specs)
    if has_half and op.ufunc is not None:
        return lambda *arrays: compute(op, arrays, static)  # which knows how CuPy promotes bfloat16
    wide = op.wide_value and has_half
    value = partial(compute_half, op, cupy, **static) if wide else partial(op.value, cupy, **static)
    quick = None if op.on_gpu is None else op.on_gpu(*specs, **static)
    if quick is not None:
        return lambda *arrays: value(*arrays) if (found := quick(*arrays)) is None else found
    method: Any = None if op.direct is None else op.direct(*specs, **static)
    return method if type(method) in (methodcaller, itemgetter) else value


def converter(spec: Spec) -> Callable[[Any], Any]:
    """What turns results of a library's functions that are not NumPy arrays into arrays on the spec's device."""
    if spec.device == "cpu":
        return np.asarray
    cupy = sys.modules["cupy"]
    return lambda value: value if type(value) is cupy.ndarray else cupy.asarray(value)
