"""The abstract parent of everything that stands for an array: tensors and the wrappers of transforms."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .spec import Spec

__all__ = ["Value", "fresh_level"]

_levels = itertools.count(2, 2)


def fresh_level() -> int:
    """A level above all that exist. Raw arrays are at 0, a transform that starts now gets an even number, and
    tensors over values of level k are at k + 1, so that between any two transforms lies exactly one tape.
    """
    return next(_levels)


class Value:
    """Something that stands for an array in an op call. The highest level among the arguments interprets.

    The spec of a wrapper is a guarded one, so that tensors over it stay off the fast path.

    Abstract, but not an ABC: `isinstance` runs in every op call, and an ABC makes it ten times slower.
    """

    __slots__ = ()
    __array_priority__ = 1000
    spec: Spec

    @property
    def level(self) -> int:
        """Which transform this value belongs to; see `fresh_level`."""
        raise NotImplementedError

    def interpret(self, op: Any, args: tuple[Any, ...], static: dict[str, Any]) -> Any:
        """Run an op in which this value has the highest level."""
        raise NotImplementedError

    @property
    def shape(self) -> tuple[int, ...]:
        """The size of each axis."""
        return self.spec.shape

    @property
    def dtype(self) -> Any:
        """The type of the elements."""
        return self.spec.dtype

    @property
    def device(self) -> str:
        """Where the elements live: "cpu", "cuda:0"."""
        return self.spec.device

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.spec.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return self.spec.size

    @property
    def nbytes(self) -> int:
        """The number of bytes the elements take."""
        return self.spec.nbytes

    def __len__(self) -> int:
        if not self.spec.shape:
            raise TypeError("len() of a 0-d tensor")
        return self.spec.shape[0]

    def __hash__(self) -> int:
        return id(self)

    if TYPE_CHECKING:  # given by `ops.operators`, which lies below this layer

        def __add__(self, other: Any) -> Any: ...
        def __radd__(self, other: Any) -> Any: ...
        def __sub__(self, other: Any) -> Any: ...
        def __rsub__(self, other: Any) -> Any: ...
        def __mul__(self, other: Any) -> Any: ...
        def __rmul__(self, other: Any) -> Any: ...
        def __truediv__(self, other: Any) -> Any: ...
        def __rtruediv__(self, other: Any) -> Any: ...
        def __pow__(self, other: Any) -> Any: ...
        def __rpow__(self, other: Any) -> Any: ...
        def __matmul__(self, other: Any) -> Any: ...
        def __rmatmul__(self, other: Any) -> Any: ...
        def __neg__(self) -> Any: ...
        def __pos__(self) -> Any: ...
        def __abs__(self) -> Any: ...
        def __invert__(self) -> Any: ...
        def __and__(self, other: Any) -> Any: ...
        def __or__(self, other: Any) -> Any: ...
        def __lt__(self, other: Any) -> Any: ...
        def __le__(self, other: Any) -> Any: ...
        def __gt__(self, other: Any) -> Any: ...
        def __ge__(self, other: Any) -> Any: ...
        def __getitem__(self, index: Any) -> Any: ...
        def __iter__(self) -> Iterator[Any]: ...
        def sum(self, axis: Any = None, *, dtype: Any = None, keepdims: bool = False) -> Any: ...
        def mean(self, axis: Any = None, *, keepdims: bool = False) -> Any: ...
        def max(self, axis: Any = None, *, keepdims: bool = False) -> Any: ...
        def min(self, axis: Any = None, *, keepdims: bool = False) -> Any: ...
        def reshape(self, *shape: Any) -> Any: ...
        def astype(self, dtype: Any) -> Any: ...
        @property
        def T(self) -> Any: ...
        @property
        def mT(self) -> Any: ...
