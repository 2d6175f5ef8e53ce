"""`detect_anomaly`: the first NaN or infinity of a backward pass, with the op and the line that made it."""

from __future__ import annotations

from typing import Any

from ..arrays.backends import is_array
from ..arrays.node import Node
from ..arrays.value import unwrap_array
from ..errors import AnomalyError
from ..instrument import Instrument
from ..ops.dispatch import compute
from ..ops.elementwise import pointwise
from ..settings import installed, override_modes
from .cotangents import strip_mask


def detect_anomaly(*, nan_only: bool = False) -> override_modes:
    """Stop at the first NaN or infinity of a backward pass, naming the op and the line that made it.

    >>> import pullback as pb
    >>> x = pb.tensor(0.0, requires_grad=True)
    >>> with pb.detect_anomaly():
    ...     pb.sqrt(x).backward()
    Traceback (most recent call last):
    pullback.errors.AnomalyError: backward: the rule of sqrt returned inf for argument x.
    ...
    """
    return override_modes(AnomalyCheck(nan_only))


def pause_anomaly_checks() -> override_modes:
    """For a pass inside a rule: an anomaly is found where the rule's result arrives."""
    return override_modes(instruments=installed().without(AnomalyCheck))


class AnomalyCheck(Instrument):
    """Raises at the first NaN (or infinity, unless `nan_only`) among the shares of a node."""

    __slots__ = ("_nan_only",)
    measures = True

    def __init__(self, nan_only: bool) -> None:
        self._nan_only = nan_only

    def pulled(self, node: Node, shares: tuple[Any, ...]) -> None:
        for position, share in zip(node.rule.needs, shares, strict=True):
            value = unwrap_array(strip_mask(share))
            if not is_array(value):  # several results wait to be joined, or a program is traced
                continue
            # computed below the instruments: these ops are none of the program's
            if not self._nan_only and compute(pointwise.isfinite.op, (value,), {}).all():
                continue
            is_nan = compute(pointwise.isnan.op, (value,), {}).any()
            if is_nan or not self._nan_only:
                raise AnomalyError(
                    f"backward: the rule of {node.name} returned {'nan' if is_nan else 'inf'} "
                    f"for argument {node.rule.op.argument(position)}.\n  made at {node.where()}"
                )
