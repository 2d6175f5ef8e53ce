"""The values of a solve that can have derivatives, among all that it is given."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, final

from ..arrays.spec import spec_of


@final
class Differentiable:
    """Those of `values` that can have derivatives, by their `places`."""

    def __init__(self, values: Sequence[Any]) -> None:
        self.values = values
        self.places = [i for i, x in enumerate(values) if spec_of(x).inexact]

    @property
    def own(self) -> tuple[Any, ...]:
        """Those values alone."""
        return self.select(self.values)

    def select(self, others: Sequence[Any]) -> tuple[Any, ...]:
        """What stands in their places among others, such as tangents."""
        return tuple(others[i] for i in self.places)

    def fill(self, own: Iterable[Any]) -> list[Any]:
        """All values, with others for those that can have derivatives."""
        filled = list(self.values)
        for i, x in zip(self.places, own, strict=True):
            filled[i] = x
        return filled

    def place(self, cotangents: Iterable[Any]) -> list[Any]:
        """Cotangents in their places among all values, None elsewhere."""
        at = dict(zip(self.places, cotangents, strict=True))
        return [at.get(i) for i in range(len(self.values))]
