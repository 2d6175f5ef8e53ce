"""`detect_anomaly`: the first NaN or infinity of a derivative, with the op and the line that made it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from ..arrays.backends import is_array
from ..arrays.call_site import format_line, user_line
from ..arrays.node import Node
from ..arrays.value import unwrap_array
from ..errors import AnomalyError
from ..instrument import Instrument, ProgramCall
from ..ops.dispatch import compute
from ..ops.elementwise import pointwise
from ..ops.lazy import lazy_function
from ..settings import installed, override_modes
from .cotangents import strip_mask

_run_checked = lazy_function("find_nan.stop", "run_checked", "tools")


def detect_anomaly(*, nan_only: bool = False) -> override_modes:
    """Stop at the first NaN or infinity of a derivative, naming the op and the line that made it: of a cotangent in a
    backward pass, of a tangent in forward mode or a coefficient in Taylor mode, and of any value in a compiled function
    whose results are not finite.

    >>> import pullback as pb
    >>> x = pb.tensor(0.0, requires_grad=True)
    >>> with pb.detect_anomaly():
    ...     pb.sqrt(x).backward()
    Traceback (most recent call last):
    pullback.errors.AnomalyError: backward: the rule of sqrt returned inf for argument x.
    ...
    """
    # compiled functions are traced again, with the line of each equation
    return override_modes(AnomalyCheck(nan_only), locates=True)


def pause_anomaly_checks() -> override_modes:
    """For a pass inside a rule: an anomaly is found where the rule's result arrives."""
    return override_modes(instruments=installed().without(AnomalyCheck))


class AnomalyCheck(Instrument):
    """Raises at the first NaN (or infinity, unless `nan_only`) among the shares of a node, the tangents of an op, or
    the results of a compiled program.
    """

    __slots__ = ("_nan_only",)
    measures = True

    def __init__(self, nan_only: bool) -> None:
        self._nan_only = nan_only

    def pulled(self, node: Node, shares: tuple[Any, ...]) -> None:
        for position, share in zip(node.rule.needs, shares, strict=True):
            if found := self._kind(strip_mask(share)):
                raise AnomalyError(
                    f"backward: the rule of {node.name} returned {found} "
                    f"for argument {node.rule.op.argument(position)}.\n  made at {node.where()}"
                )

    def pushed(self, name: str, tangents: Sequence[Any]) -> None:
        for tangent in tangents:
            if found := self._kind(tangent):
                line = format_line(*user_line(sys._getframe(1)))
                raise AnomalyError(f"forward mode: the rule of {name} returned {found} for a tangent.\n  at {line}")

    def run_program(self, call: ProgramCall, below: Callable[[], Any]) -> Any:
        return _run_checked(call, below, self._nan_only)

    def _kind(self, x: Any) -> str:
        """ "nan" or "inf" if that is an anomaly."""
        value = unwrap_array(x)
        if not is_array(value) or value.dtype.kind not in "fcV":  # several results wait to be joined, or it is traced
            return ""
        # computed below the instruments: these ops are none of the program's
        if not self._nan_only and compute(pointwise.isfinite.op, (value,), {}).all():
            return ""
        is_nan = compute(pointwise.isnan.op, (value,), {}).any()
        return ("nan" if is_nan else "inf") if is_nan or not self._nan_only else ""
