"""Function of one element in, function of a whole batch out: every op runs once, with one more axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..arrays.spec import Spec, make_spec, spec_of
from ..arrays.value import Value, fresh_level
from ..errors import ArgumentError, ConversionError, ShapeError
from ..ops.axes import one_axis
from ..ops.dispatch import as_value
from ..ops.op import Op
from ..ops.shaping import broadcast_to, moveaxis
from .lifted import running

__all__ = ["Batched", "vmap"]


class Batched(Value):
    """A value for each element of a batch, which lies along one axis that the function does not see."""

    __slots__ = ("axis", "level", "size_of_batch", "spec", "value")
    level: int

    def __init__(self, value: Any, axis: int, size: int, level: int) -> None:
        self.value = value
        self.axis = axis
        self.size_of_batch = size
        full = spec_of(value)
        self.spec: Spec = make_spec(full.shape[:axis] + full.shape[axis + 1 :], full.dtype, full.device).guarded()
        self.level = level

    def interpret(self, op: Op, args: tuple[Any, ...], static: dict[str, Any]) -> Any:
        """Hand the op its arguments with their batch axes; its record says how to run them at once."""
        level, size = self.level, self.size_of_batch
        mine = [type(x) is Batched and x.level == level for x in args]
        values = [x.value if own else x for x, own in zip(args, mine, strict=True)]
        axes = [x.axis if own else None for x, own in zip(args, mine, strict=True)]
        out, axis = op.batch(op, size, values, axes, static)
        if type(out) is tuple:
            return tuple(Batched(x, a, size, level) for x, a in zip(out, axis, strict=True))
        return Batched(out, axis, size, level)

    def __bool__(self) -> bool:
        raise ConversionError(
            f"vmap: an `if` or `while` asks for the truth of a value that differs by element ({self.spec}).\n"
            "  Use pb.where(condition, x, y), which takes both branches."
        )

    def __repr__(self) -> str:
        return f"batched({self.spec}, {self.size_of_batch} of them)"


def vmap(f: Callable[..., Any], in_axes: Any = 0, out_axes: int = 0) -> Callable[..., Any]:
    """f over a batch: `in_axes` says which axis of each argument counts the elements, None for arguments in common.

    >>> import numpy as np, pullback as pb
    >>> from pullback.transforms import vmap
    >>> vmap(lambda x, w: pb.sum(x * w), (0, None))(np.ones((2, 3)), np.arange(3.0))
    array([3., 3.])
    """

    def batched(*args: Any) -> Any:
        values = [as_value(a) for a in args]
        axes = list(in_axes) if isinstance(in_axes, (tuple, list)) else [in_axes] * len(values)
        if len(axes) != len(values):
            raise ArgumentError(f"vmap: in_axes names {len(axes)} arguments, got {len(values)}.")
        axes = [
            None if ax is None else one_axis(ax, spec_of(v).ndim, "vmap") for v, ax in zip(values, axes, strict=True)
        ]
        sizes = {spec_of(v).shape[ax] for v, ax in zip(values, axes, strict=True) if ax is not None}
        if len(sizes) != 1:
            raise ShapeError(f"vmap: the batch axes have sizes {sorted(sizes)}, they must be one and the same.")
        (size,), level = sizes, fresh_level()
        inputs = [v if ax is None else Batched(v, ax, size, level) for v, ax in zip(values, axes, strict=True)]
        with running():
            out = f(*inputs)
        return _unwrap(out, level, size, out_axes)

    return batched


def _unwrap(out: Any, level: int, size: int, out_axis: int) -> Any:
    if isinstance(out, (tuple, list)):
        return type(out)(_unwrap(x, level, size, out_axis) for x in out)
    if type(out) is Batched and out.level == level:
        value, axis = out.value, out.axis
    else:
        value, axis = broadcast_to(out, (size, *spec_of(out).shape)), 0
    wanted = one_axis(out_axis, spec_of(value).ndim, "vmap")
    return value if axis == wanted else moveaxis(value, axis, wanted)
