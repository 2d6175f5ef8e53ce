"""An op call as a function of some of its arguments, to be run on other values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...arrays.backends import is_array, namespace_on, to_host
from ...arrays.spec import Spec, spec_of
from ...arrays.tensor import Tensor
from ...ops.dispatch import compute
from ...ops.op import Op
from ...ops.reduce.reductions import fit_to_spec
from ...tape.cotangents import strip_mask


@dataclass(frozen=True, slots=True)
class OpCall:
    """One op call: its arguments and results one level below; `fixed` marks the arguments that are bare arrays of the
    user's function. With `local`, partial derivatives that are zero at these values count as absent.
    """

    op: Op
    values: Sequence[Any]
    fixed: Sequence[bool]
    outs: Sequence[Any]
    static: dict[str, Any]
    local: bool

    def spec(self, position: int) -> Spec:
        return spec_of(self.values[position])

    def as_linear_function(self, position: int) -> Callable[[Any], list[Any]]:
        """The op as a function of one argument, flat in and out, the others that it is linear in being zero."""
        shape, xp = self.spec(position).shape, namespace_on(self.spec(position).device)
        # Arguments without a derivative, such as indices, stay as they are.
        args = [
            _as_bare_array(x) if self.op.pull_of(i) is None else xp.zeros(self.spec(i).shape)
            for i, x in enumerate(self.values)
        ]

        def run(flat: Any) -> list[Any]:
            args[position] = xp.asarray(flat.reshape(shape))
            out = compute(self.op, args, self.static)
            return [to_host(x).reshape(-1) for x in (out if type(out) is tuple else (out,))]

        return run

    def as_pull_function(self, position: int) -> Callable[[Any], list[Any]]:
        """The op's pull, from flat cotangents of its one result to flat ones of an argument."""
        specs = tuple(spec_of(x) for x in self.values)
        # The op's own rule, as the backward pass calls it: no second source of truth.
        rule, wanted = self.op.rule((position,), len(specs)), spec_of(self.outs[0]).shape
        values, xp = [_as_bare_array(x) for x in self.values], namespace_on(specs[position].device)

        def run(flat: Any) -> list[Any]:
            bar = xp.asarray(flat.reshape(wanted))
            (share,) = rule.shares((position,), bar, _as_bare_array(self.outs[0]), values, specs, self.static)
            return [to_host(fit_to_spec(strip_mask(share), specs[position])).reshape(-1)]

        return run

    def as_product_function(self, *positions: int) -> Callable[..., Any]:
        """The op as a function of some factors, ones standing for the others."""
        shapes = [spec_of(x).shape for x in self.values]
        xp = namespace_on(self.spec(positions[0]).device)

        def run(*factors: Any) -> Any:
            # Ones of no memory, since the factors may be large.
            args = [np.broadcast_to(np.float64(1), shape) for shape in shapes]
            for position, factor in zip(positions, factors, strict=True):
                args[position] = factor
            return to_host(compute(self.op, [xp.asarray(x) for x in args], self.static))

        return run


def _as_bare_array(x: Any) -> Any:
    """An argument as a bare array."""
    while isinstance(x, Tensor):
        x = x.value
    if not is_array(x) and not isinstance(x, (bool, int, float, complex)):
        raise TypeError(f"a {type(x).__name__} has no array of its own")
    return x


def known_numbers(x: Any) -> Any:
    """The elements of a value as a NumPy array; None if it belongs to another transform."""
    try:
        return to_host(_as_bare_array(x))
    except TypeError:
        return None
