"""`SparseAdam`: Adam that steps the rows of large tables that a gradient has reached, and no others."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import numpy as np

from ...arrays.argument_checks import check_number
from ...arrays.backends import namespace_on
from ...arrays.spec import spec_of
from ...arrays.tensor import Tensor, wrap
from ...arrays.trees import flatten
from ...errors import ArgumentError, GraphError
from ...settings import no_grad
from ...tape.row_sparse import RowSparse


class _Moments:
    """The state of one table: steps taken, and running means of gradients and of their squares, row by row."""

    def __init__(self, p: Tensor) -> None:
        xp = namespace_on(p.device)
        self.count = 0
        self.mean, self.square = (xp.zeros(p.shape, p.dtype) for _ in range(2))


@final
class SparseAdam:
    """Adam for tables whose gradients are rows (`pb.nn.embedding(..., sparse=True)`): means and parameters of the rows
    in a gradient are updated, all others stay as they are. `params` is a tree of tensors.

    A step costs what its rows cost, whatever the size of the table. It is PyTorch's algorithm of that name; a row that
    is not reached keeps its means, where Adam would let them fade and move the row on.

    >>> import numpy as np, pullback as pb
    >>> table = pb.tensor(np.zeros((4, 2)), requires_grad=True)
    >>> opt = pb.optim.SparseAdam([table], lr=0.5)
    >>> pb.sum(pb.nn.embedding(np.array([1, 3, 1]), table, sparse=True)).backward()
    >>> opt.step()
    >>> table.detach().numpy().round(6).tolist()
    [[0.0, 0.0], [-0.5, -0.5], [0.0, 0.0], [-0.5, -0.5]]
    """

    def __init__(
        self, params: Any, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8
    ) -> None:
        self.lr = check_number("SparseAdam: lr", lr, above=0.0)
        self.eps = check_number("SparseAdam: eps", eps, above=0.0)
        if not isinstance(betas, (tuple, list)) or len(betas) != 2 or not all(0 <= b < 1 for b in betas):
            raise ArgumentError(f"SparseAdam: betas are two numbers from 0 to 1, got {betas!r}.")
        self.betas: tuple[float, float] = (float(betas[0]), float(betas[1]))
        self.tensors: list[Tensor] = flatten(params)[0]
        if not self.tensors or not all(isinstance(p, Tensor) and p.requires_grad for p in self.tensors):
            raise ArgumentError("SparseAdam: wants a tree of tensors that require a gradient.")
        if any(spec_of(p).dtype.kind != "f" or not p.ndim for p in self.tensors):
            raise ArgumentError("SparseAdam: wants tables of real floating-point numbers, with one row or more.")
        if len({id(p) for p in self.tensors}) < len(self.tensors):
            raise ArgumentError("SparseAdam: a table is listed twice; it is stepped once.")
        self._moments = [_Moments(p) for p in self.tensors]

    def __repr__(self) -> str:
        return f"<optimizer: sparse adam of {len(self.tensors)} tensors>"

    def zero_grad(self) -> None:
        """Clear the gradients of all tables."""
        for p in self.tensors:
            p.grad = None

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Step the rows in the gradient of each table; a table without a gradient stays as it is. A closure computes
        the loss, with `zero_grad` and `backward`, and is called first.
        """
        loss = None if closure is None else closure()
        gradients = [self._gradient_of(p) for p in self.tensors]
        with no_grad():
            for p, gradient, moments in zip(self.tensors, gradients, self._moments, strict=True):
                if gradient is not None:
                    self._step_rows(p, gradient.coalesce(), moments)
        return loss

    def _gradient_of(self, p: Tensor) -> RowSparse | None:
        found: Any = p.grad
        if found is None or type(found) is RowSparse:
            return found
        raise GraphError(
            f"SparseAdam: the gradient of a table of shape {p.shape} is dense.\n"
            "  Look rows up by pb.nn.embedding(..., sparse=True), and nothing else of the table; or use pb.optim.Adam."
        )

    def _step_rows(self, p: Tensor, gradient: RowSparse, moments: _Moments) -> None:
        rows, g = gradient.rows, gradient.values
        first, second = self.betas
        moments.count += 1
        # m <- m + (1 - b1) (g - m), v <- v + (1 - b2) (g^2 - v), and both are divided by
        # what they miss since they began at zero
        mean = moments.mean[rows]
        mean += (1 - first) * (g - mean)
        square = moments.square[rows]
        square += (1 - second) * (g * g - square)
        moments.mean[rows], moments.square[rows] = mean, square
        rate = self.lr * (1 - second**moments.count) ** 0.5 / (1 - first**moments.count)
        step = rate * mean / (namespace_on(p.device).sqrt(square) + self.eps)
        _subtract_rows(p, rows, step.astype(p.dtype, copy=False))

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to resume: a tree of arrays and scalars, copied."""
        return {"tables": [{"count": m.count, "mean": m.mean.copy(), "square": m.square.copy()} for m in self._moments]}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Resume from what `state_dict` returned, for the same tables."""
        tables: Sequence[Any] = saved.get("tables", ()) if isinstance(saved, Mapping) else ()
        if [np.shape(t["mean"]) for t in tables] != [p.shape for p in self.tensors]:
            raise ArgumentError("load_state_dict: wants the state of a SparseAdam of the same tables.")
        for moments, p, table in zip(self._moments, self.tensors, tables, strict=True):
            xp = namespace_on(p.device)
            moments.count = int(table["count"])
            moments.mean, moments.square = (xp.array(table[n], p.dtype) for n in ("mean", "square"))


def _is_alone(array: Any) -> bool:
    """Whether nothing but one tensor refers to an array, so that it may be written to: counted in this very call."""
    return array.base is None and not weakref.getweakrefcount(array) and sys.getrefcount(array) <= _ALONE


def _subtract_rows(p: Tensor, rows: Any, step: Any) -> None:
    """p[rows] -= step: in place where only the tensor refers to its array, as other optimizers do."""
    if type(p.value) is np.ndarray and p.value.flags.writeable and _is_alone(p.value):
        p.value[rows] -= step
        return
    new = p.value.copy()
    new[rows] -= step
    p.rebind(wrap(new, spec_of(new)), "step")


def _count_alone() -> int:
    """The references to an array that one attribute refers to, as `_is_alone` sees them."""

    class Holder:
        value = None

    holder: Any = Holder()
    holder.value = np.zeros(1)
    return _references(holder.value)


def _references(array: Any) -> int:
    return sys.getrefcount(array)


_ALONE = _count_alone()
