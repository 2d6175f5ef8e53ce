"""Row-sparse gradients: of a large table, the rows that a pass has reached, as a cotangent and as `.grad`."""

from __future__ import annotations

from typing import Any, final

from ..arrays.spec import Spec, spec_of
from ..errors import ConversionError
from ..ops.index import indexing
from ..ops.lazy import lazy_function
from ..ops.shape.arrange import concat
from ..ops.shape.reshaping import astype, reshape

_unique = lazy_function("order.sorting", "unique")


@final
class RowSparse:
    """Zeros of a shape but for some rows: `values[k]` is added to row `rows[k]`, which may be listed more than once.

    It is what `pb.nn.embedding(..., sparse=True)` leaves in `.grad` of a table, and what `pb.optim.SparseAdam` takes.

    >>> import numpy as np, pullback as pb
    >>> table = pb.tensor(np.ones((1000, 2)), requires_grad=True)
    >>> pb.sum(pb.nn.embedding(np.array([7, 3, 7]), table, sparse=True)).backward()
    >>> table.grad
    <rows of float64[1000, 2]: 3 listed>
    >>> table.grad.coalesce().rows, table.grad.coalesce().values
    (array([3, 7]), array([[1., 1.],
           [2., 2.]]))
    """

    __slots__ = ("__weakref__", "rows", "spec", "values")
    #: `x.grad` may hold it.
    is_gradient = True

    def __init__(self, rows: Any, values: Any, spec: Spec) -> None:
        self.rows, self.values, self.spec = rows, values, spec

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the whole."""
        return self.spec.shape

    @property
    def dtype(self) -> Any:
        """The type of the numbers."""
        return self.spec.dtype

    @property
    def device(self) -> str:
        """Where the numbers live."""
        return self.spec.device

    def add_rows(self, other: RowSparse) -> RowSparse:
        """The sum, which lists the rows of both."""
        return RowSparse(concat([self.rows, other.rows]), concat([self.values, other.values]), self.spec)

    def with_values(self, values: Any) -> RowSparse:
        """The same rows with other numbers."""
        return RowSparse(self.rows, values, self.spec)

    def coalesce(self) -> RowSparse:
        """The same with each row listed once, in rising order.

        >>> import numpy as np, pullback as pb
        >>> table = pb.tensor(np.ones((5, 1)), requires_grad=True)
        >>> pb.sum(pb.nn.embedding(np.array([4, 4]), table, sparse=True)).backward()
        >>> table.grad.coalesce().values.tolist()
        [[2.0]]
        """
        found = _unique(self.rows, return_inverse=True)
        rows, places = found[0], reshape(found[1], (-1,))
        values = indexing.scatter_at(self.values, (places,), (*spec_of(rows).shape, *self.shape[1:]))
        return RowSparse(rows, values, self.spec)

    def todense(self) -> Any:
        """The whole array."""
        return indexing.scatter_at(self.values, (self.rows,), self.shape)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        raise ConversionError(
            "this function takes dense arrays, and a row-sparse gradient is not made dense unasked.\n"
            "  Use x.grad.todense(), or embed with sparse=False."
        )

    def __repr__(self) -> str:
        return f"<rows of {self.spec}: {spec_of(self.rows).size} listed>"


def row_share(bar: Any, rows: Any, spec: Spec) -> RowSparse:
    """The cotangent of a table, from that of the rows taken from it."""
    listed = reshape(rows, (-1,))
    values = reshape(bar, (spec_of(listed).size, *spec.shape[1:]))
    return RowSparse(listed, astype(values, spec.dtype), spec)
