"""Types of functions of arrays: what a call returns, given what kind of array goes in. For type checkers alone.

A function is declared with `Any` for its arrays, and one of these decorators says which parameters those are. A tensor
(or a value of a graph) gives one of its own kind, plain arrays, numbers and nested lists give a NumPy array.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import Concatenate, ParamSpec, Protocol, TypeAlias, TypeVar, overload

    import numpy as np
    from numpy.typing import NDArray

    from ..arrays.value import Value
    from .op import Op

    P = ParamSpec("P")
    V = TypeVar("V", bound=Value)

    class SupportsArray(Protocol):
        """What NumPy can convert, such as a data frame: its functions may return their own kind."""

        def __array__(self) -> Any: ...

    Number: TypeAlias = bool | int | float | complex | np.generic
    Nested: TypeAlias = "Sequence[Number | NDArray[Any] | Nested]"
    #: What becomes a NumPy array.
    Plain: TypeAlias = NDArray[Any] | Number | Nested
    AnyArray: TypeAlias = Value | Plain | SupportsArray

    class Named(Protocol):
        """A function; `op` is there for those that are one op."""

        __name__: str
        __qualname__: str
        op: Op

    class ArrayFunction(Named, Protocol[P]):
        """Of one array and settings."""

        @overload
        def __call__(self, x: V, /, *args: P.args, **kwargs: P.kwargs) -> V: ...
        @overload
        def __call__(self, x: Plain, /, *args: P.args, **kwargs: P.kwargs) -> NDArray[Any]: ...
        @overload
        def __call__(self, x: SupportsArray, /, *args: P.args, **kwargs: P.kwargs) -> Any: ...

    class TwoArrayFunction(Named, Protocol[P]):
        """Of two arrays and settings."""

        @overload
        def __call__(self, x: V, y: V | Plain, /, *args: P.args, **kwargs: P.kwargs) -> V: ...
        @overload
        def __call__(self, x: Plain, y: V, /, *args: P.args, **kwargs: P.kwargs) -> V: ...
        @overload
        def __call__(self, x: Plain, y: Plain, /, *args: P.args, **kwargs: P.kwargs) -> NDArray[Any]: ...
        @overload
        def __call__(self, x: AnyArray, y: AnyArray, /, *args: P.args, **kwargs: P.kwargs) -> Any: ...

    class ThreeArrayFunction(Named, Protocol[P]):
        """Of three arrays and settings."""

        @overload
        def __call__(self, x: V, y: V | Plain, z: V | Plain, /, *args: P.args, **kwargs: P.kwargs) -> V: ...
        @overload
        def __call__(self, x: Plain, y: V, z: V | Plain, /, *args: P.args, **kwargs: P.kwargs) -> V: ...
        @overload
        def __call__(self, x: Plain, y: Plain, z: V, /, *args: P.args, **kwargs: P.kwargs) -> V: ...
        @overload
        def __call__(self, x: Plain, y: Plain, z: Plain, /, *args: P.args, **kwargs: P.kwargs) -> NDArray[Any]: ...
        @overload
        def __call__(self, x: AnyArray, y: AnyArray, z: AnyArray, /, *args: P.args, **kwargs: P.kwargs) -> Any: ...

    class MixedFunction(Named, Protocol[P]):
        """Of an array and settings, among them arrays that may be tensors where the first one is not."""

        @overload
        def __call__(self, x: V, /, *args: P.args, **kwargs: P.kwargs) -> V: ...
        @overload
        def __call__(self, x: Plain | SupportsArray, /, *args: P.args, **kwargs: P.kwargs) -> Any: ...

    class JoinFunction(Named, Protocol[P]):
        """Of a sequence of arrays, or of one array along its first axis."""

        @overload
        def __call__(self, arrays: V | Sequence[V], /, *args: P.args, **kwargs: P.kwargs) -> V: ...
        @overload
        def __call__(self, arrays: Plain, /, *args: P.args, **kwargs: P.kwargs) -> NDArray[Any]: ...
        @overload
        def __call__(self, arrays: Any, /, *args: P.args, **kwargs: P.kwargs) -> Any: ...

    class PairFunction(Named, Protocol[P]):
        """Of one array, with two for results."""

        @overload
        def __call__(self, x: V, /, *args: P.args, **kwargs: P.kwargs) -> tuple[V, V]: ...
        @overload
        def __call__(self, x: Plain, /, *args: P.args, **kwargs: P.kwargs) -> tuple[NDArray[Any], NDArray[Any]]: ...
        @overload
        def __call__(self, x: SupportsArray, /, *args: P.args, **kwargs: P.kwargs) -> tuple[Any, Any]: ...

    class TupleFunction(Named, Protocol[P]):
        """Of one array, with a tuple of them for a result."""

        @overload
        def __call__(self, x: V, /, *args: P.args, **kwargs: P.kwargs) -> tuple[V, ...]: ...
        @overload
        def __call__(self, x: Plain, /, *args: P.args, **kwargs: P.kwargs) -> tuple[NDArray[Any], ...]: ...
        @overload
        def __call__(self, x: SupportsArray, /, *args: P.args, **kwargs: P.kwargs) -> tuple[Any, ...]: ...

    class ListFunction(Named, Protocol[P]):
        """Of one array, with a list of them for a result."""

        @overload
        def __call__(self, x: V, /, *args: P.args, **kwargs: P.kwargs) -> list[V]: ...
        @overload
        def __call__(self, x: Plain, /, *args: P.args, **kwargs: P.kwargs) -> list[NDArray[Any]]: ...
        @overload
        def __call__(self, x: SupportsArray, /, *args: P.args, **kwargs: P.kwargs) -> list[Any]: ...

    class Declarations(Protocol):
        """A decorator of declarations of elementwise ops."""

        @overload
        def __call__(self, declared: Callable[[Any], Any], /) -> ArrayFunction[[]]: ...
        @overload
        def __call__(self, declared: Callable[[Any, Any], Any], /) -> TwoArrayFunction[[]]: ...
        @overload
        def __call__(self, declared: Callable[[Any, Any, Any], Any], /) -> ThreeArrayFunction[[]]: ...
        @overload
        def __call__(self, declared: Callable[[Any, Any, Any, Any], Any], /) -> Any: ...
        @overload
        def __call__(self, declared: Callable[[Any, Any, Any, Any, Any], Any], /) -> Any: ...

    UnaryOp: TypeAlias = ArrayFunction[[]]
    BinaryOp: TypeAlias = TwoArrayFunction[[]]
    First: TypeAlias = Callable[Concatenate[Any, P], Any]

    def of_array(function: First[P]) -> ArrayFunction[P]: ...
    def of_two_arrays(function: Callable[Concatenate[Any, Any, P], Any]) -> TwoArrayFunction[P]: ...
    def of_three_arrays(function: Callable[Concatenate[Any, Any, Any, P], Any]) -> ThreeArrayFunction[P]: ...
    def of_mixed_arrays(function: First[P]) -> MixedFunction[P]: ...
    def of_sequence(function: First[P]) -> JoinFunction[P]: ...
    def to_pair(function: Callable[Concatenate[Any, P], tuple[Any, Any]]) -> PairFunction[P]: ...
    def to_tuple(function: Callable[Concatenate[Any, P], tuple[Any, ...]]) -> TupleFunction[P]: ...
    def to_list(function: Callable[Concatenate[Any, P], list[Any]]) -> ListFunction[P]: ...

else:

    def _same(function):
        return function

    of_array = of_two_arrays = of_three_arrays = of_mixed_arrays = of_sequence = to_pair = to_tuple = to_list = _same
    UnaryOp = BinaryOp = Declarations = ArrayFunction = ListFunction = MixedFunction = Any
