"""Moving values between devices: an op with a derivative, whose cotangent moves back."""

from __future__ import annotations

import re
from typing import Any

from ..arrays.backends import is_array, move_array
from ..arrays.devices import normalize_device
from ..arrays.spec import Spec, make_spec, spec_of
from ..arrays.value import Value
from ..errors import ArgumentError
from . import batching
from .dispatch import apply, as_value, counts_as_number
from .families import linear
from .op import Op
from .statics import Static

_DEVICE = re.compile("cpu|cuda:[0-9]{1,4}")


def _move_samples(rng: Any) -> Any:
    return [((rng.normal(size=shape),), {"device": "cpu"}) for shape in ((2, 3), (), (0,))]


def _pull_move(bar: Any, x_spec: Spec) -> Any:
    return move(bar, x_spec.device)


move_op: Op = linear(
    "to_device",
    statics={"device": Static("a device", lambda v, specs, static: _DEVICE.fullmatch(v) is not None)},
    value=lambda xp, x, device: move_array(x, device),
    spec=lambda x, device: make_spec(x.shape, x.dtype, device),
    transpose=_pull_move,
    batch=batching.batch_pointwise,
    samples=_move_samples,
)


def move(x: Any, device: str) -> Any:
    """A value on a device; itself if it lies there."""
    return x if spec_of(x).device == device else apply(move_op, x, device=device)


def as_value_beside(x: Any, given: Any) -> Any:
    """What goes with x, as a value: a number or a list on x's device, since it is about to get axes or has some."""
    value = as_value(given)
    is_plain = not isinstance(given, Value) and not is_array(given)
    return move(value, spec_of(x).device) if is_plain or counts_as_number(spec_of(value)) else value


def to_device(x: Any, device: Any, /, *, stream: Any = None) -> Any:
    """x on a device. The derivative moves back with its cotangent.

    >>> import pullback as pb
    >>> pb.ones(2).to_device("cpu").device
    'cpu'
    """
    if stream is not None:
        raise ArgumentError("to_device: a copy runs on CuPy's current stream; leave stream out.")
    return move(as_value(x), normalize_device(device, "to_device"))
