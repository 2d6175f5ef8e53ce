"""Which values of a program are cheaper to compute again than to load from memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...arrays.spec import spec_of
from ...ops.forms import Cast
from ...program.ir import Equation, Symbol
from ..loop_ir import Layout
from ..target import Limits
from ..vocabulary import Weigher


class Recomputation:
    """What it costs to compute values again from those that have `places` in memory, which grow while a program is
    lowered. `base_value` looks through views.
    """

    def __init__(
        self,
        producer: Mapping[int, Equation],
        places: Mapping[int, Layout],
        base_value: Callable[[Any], Any],
        limits: Limits,
    ) -> None:
        self._producer, self._places, self._base_value, self._limits = producer, places, base_value, limits
        self._costs: dict[int, int] = {}
        self._known: dict[int, tuple[int, bool]] = {}

    def is_cheap(self, x: Any) -> bool:
        """Whether recomputing the value costs less than loading it; cached until another value is given a place in
        memory.
        """
        count, is_cheap = self._known.get(id(x), (-1, False))
        if count != len(self._places):
            is_cheap = self._is_cheap(x)
            self._known[id(x)] = len(self._places), is_cheap
        return is_cheap

    def _is_cheap(self, x: Any) -> bool:
        leaves: dict[int, int] = {}
        weight, stack, size = 0, [x], spec_of(x).size
        while stack:
            base = self._base_value(stack.pop())
            # a leaf: it is in memory, or a number
            if id(base) in self._places or not isinstance(base, Symbol):
                if spec_of(base).size > 1:
                    leaves[id(base)] = spec_of(base).size
                continue
            e = self._producer[id(base)]
            weight += self._cost(e)
            # with two arrays to load, recomputing moves more memory than loading the result; statistics of rows are few
            if weight > self._limits.max_recompute_weight or (len(leaves) > 1 and 4 * sum(leaves.values()) > 5 * size):
                return False
            stack.extend(e.args)
        return len(leaves) <= 1 or 4 * sum(leaves.values()) <= 5 * size

    def _cost(self, e: Equation) -> int:
        """What an equation weighs in a kernel; more than the limit for recomputing if it can be in none."""
        found = self._costs.get(id(e))
        if found is None:
            found = Weigher.weigh(e.op, len(e.args)) if e.op.kernel is not None else 1
            if e.op.family != "elementwise" and not isinstance(e.op.form, Cast):
                found = self._limits.max_recompute_weight + 1
            self._costs[id(e)] = found
        return found
