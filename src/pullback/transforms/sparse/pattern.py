"""Function and a point in, the sparsity pattern of its Jacobian out: index sets carried through the ops.

`Traced` is an interpreter like `Dual`: it holds the value below, so that Python decisions work, and for each element
the set of inputs it depends on, as a row of a boolean matrix. The pattern of a Hessian needs nothing more: it is the
pattern of the gradient's Jacobian, and `grad` runs on traced values as on any.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, cast, final

import numpy as np

from ...arrays.backends import is_array
from ...arrays.checks import wants_functions
from ...arrays.scope import Scope
from ...arrays.spec import Spec, spec_of
from ...arrays.tensor import Tensor
from ...arrays.trees import LEAF, flatten
from ...arrays.value import Value
from ...errors import ArgumentError, ConversionError, GraphError
from ...ops.dispatch import apply
from ...ops.op import Op
from ..border import as_float, brought_out, scalars_become_arrays
from .calls import Call
from .rows import matrix_of
from .structure import patterns_of

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

    Matrix = csr_matrix[Any]

__all__ = ["Kind", "Traced", "as_pattern", "bare_point", "precision_of", "sparsity", "traced"]

Kind = Literal["global", "local"]


@final
class Tracing:
    """What all values of one run share: whether zero partials count, and the coarsest precision met so far."""

    __slots__ = ("local", "precision")

    def __init__(self, local: bool, precision: float) -> None:
        self.local = local
        self.precision = precision

    def meet(self, outs: Sequence[Any]) -> None:
        """Results of an op on the way."""
        self.precision = max(self.precision, *(precision_of(spec_of(x)) for x in outs))


def precision_of(spec: Spec) -> float:
    """The relative distance of neighbouring floating-point numbers, by how many bytes they have (0 for integers)."""
    if not spec.inexact:
        return 0.0
    width = spec.dtype.itemsize // (2 if spec.dtype.kind == "c" else 1)
    return 2.0 ** {2: -7, 4: -23}.get(width, -52)


class Traced(Value):
    """A value and the inputs each of its elements depends on; `sources` is None for a constant."""

    __slots__ = ("level", "scope", "sources", "spec", "tracing", "value")
    level: int
    looks_inside = True

    def __init__(self, value: Any, sources: Matrix | None, scope: Scope, tracing: Tracing) -> None:
        self.value = value
        self.sources = sources
        self.spec: Spec = spec_of(value).guarded()
        self.scope = scope
        self.level = scope.level
        self.tracing = tracing

    def interpret(self, op: Op, args: Sequence[Any], static: dict[str, Any]) -> Any:
        """Compute the value below, then hand the index sets on as the op's record says."""
        scope = self.scope
        if not scope.open:
            scope.check()
        own = [type(x) is Traced and x.level == self.level for x in args]
        values = [x.value if mine else x for x, mine in zip(args, own, strict=True)]
        below = [x.sources if mine else None for x, mine in zip(args, own, strict=True)]
        out = apply(op, *values, **static)
        if not op.differentiable:
            return out
        outs = out if type(out) is tuple else (out,)
        found: list[Matrix | None] = [None] * len(outs)
        if any(sources is not None for sources in below):
            fixed = [not mine and is_array(x) for x, mine in zip(args, own, strict=True)]
            found = patterns_of(Call(op, values, fixed, outs, static, self.tracing.local), below)
            self.tracing.meet(outs)
        results = [Traced(x, sources, scope, self.tracing) for x, sources in zip(outs, found, strict=True)]
        return tuple(results) if type(out) is tuple else results[0]

    def __bool__(self) -> bool:
        return bool(self.value)

    def __index__(self) -> int:
        return int(self.value.__index__())

    def refusal(self, what: str) -> ConversionError:
        """A bare number would lose the index sets."""
        return ConversionError(
            f"{what}: {self.spec} is being traced for its sparsity, a bare array would lose what it depends on.\n"
            "  Use functions of pullback on it."
        )

    def __repr__(self) -> str:
        return f"traced({self.value!r})"


def _inside(x: Any) -> Any:
    return x.value if type(x) is Traced and x.sources is None else x


def bare_point(x: Any, what: str) -> Any:
    """The point to differentiate at, as a bare floating-point array."""
    while isinstance(x, Tensor):
        if x.node is not None:
            raise GraphError(
                f"{what}: x requires a gradient, but a SciPy matrix carries no derivatives.\n"
                "  Pass x.detach(); for a Jacobian that can be differentiated use pb.jvp or pb.vjp."
            )
        x = x.value
    x = as_float(x, what)
    if not is_array(x):
        raise ConversionError(
            f"{what}: x is {x!r}, a value of another transform, and a SciPy matrix cannot follow it.\n"
            "  Call it outside of the transform."
        )
    return x


def traced(f: Callable[[Any], Any], x: Any, local: bool, what: str) -> tuple[Any, Matrix, float]:
    """The value of f at a bare point, its pattern, and the precision of the coarsest numbers on the way."""
    from scipy.sparse import identity

    tracing = Tracing(local, precision_of(spec_of(x)))
    scope = Scope(what, lambda scope, value: Traced(value, None, scope, tracing), _inside)
    count = spec_of(x).size
    with scope:
        out, structure = flatten(f(Traced(x, identity(count, bool, "csr"), scope, tracing)))
        if structure is not LEAF:
            raise ArgumentError(f"{what}: the function returned a tree of {len(out)} arrays, wanted one array.")
        result = brought_out(scalars_become_arrays(out[0], what), scope)
    own = type(result) is Traced and result.scope is scope
    value, pattern = (result.value, result.sources) if own else (result, None)
    if pattern is None:
        return value, matrix_of([], [], spec_of(value).size, count), tracing.precision
    pattern = pattern.copy()  # one matrix may stand for several values
    pattern.sum_duplicates()
    pattern.eliminate_zeros()
    return value, pattern, tracing.precision


def sparsity(f: Callable[[Any], Any], x: Any, kind: Kind = "global") -> Matrix:
    """Where the Jacobian of f at x can be other than zero: a boolean SciPy matrix, a row for each element of the result
    and a column for each of x, both in C order. f takes and returns one array.

    It covers every nonzero, and may hold more. "global" is what the ops can make of any values, so it holds at every x
    at which f takes the same decisions (`if`, comparisons, computed indices); "local" leaves out what is multiplied by
    an exact zero at this x. For a Hessian ask for the pattern of `pb.grad(f)`.

    >>> import numpy as np, pullback as pb
    >>> pb.sparsity(lambda x: x[1:] * x[:-1], np.ones(3)).toarray().astype(int)
    array([[1, 1, 0],
           [0, 1, 1]])
    """
    wants_functions("sparsity", f)
    if kind not in ("global", "local"):
        raise ArgumentError(f'sparsity: kind is "global" or "local", got {kind!r}.')
    return traced(f, bare_point(_detached(x), "sparsity"), kind == "local", "sparsity")[1]


def _detached(x: Any) -> Any:
    """A pattern has no derivative, so a tracked point is as good as its value."""
    return x.detach() if isinstance(x, Tensor) else x


def as_pattern(given: Any, shape: tuple[int, int], what: str) -> Matrix:
    """A pattern that the caller knows: "diagonal", or a matrix whose nonzeros are the pattern."""
    from scipy.sparse import csr_matrix, identity, issparse

    if isinstance(given, str):
        if given != "diagonal":
            raise ArgumentError(f'{what}: pattern is "diagonal", a matrix or None, got {given!r}.')
        if shape[0] != shape[1]:
            raise ArgumentError(f"{what}: a Jacobian of shape {shape} is not square, so its pattern is not a diagonal.")
        return identity(shape[0], bool, "csr")
    found: Matrix = csr_matrix(cast(Any, given) if issparse(given) else np.asarray(given))
    if found.shape != shape:
        raise ArgumentError(f"{what}: the pattern has shape {found.shape}, the matrix has {shape}.")
    found.eliminate_zeros()
    found.sum_duplicates()
    return csr_matrix((np.ones(found.nnz, bool), found.indices, found.indptr), shape=shape)
