"""`sparsity`: the pattern of the Jacobian of a function at a point, by index sets carried through the ops.

`TracedValue` is an interpreter like `Dual`: it holds the value below, so that Python decisions work, and for each
element the set of inputs it depends on, as a row of a boolean matrix. The pattern of a Hessian is the
pattern of the gradient's Jacobian, and `grad` runs on traced values as on any.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, cast, final

import numpy as np

from ...arrays.argument_checks import check_functions
from ...arrays.backends import is_array
from ...arrays.scope import Scope
from ...arrays.spec import Spec, spec_of
from ...arrays.tensor import Tensor
from ...arrays.trees import LEAF, flatten
from ...arrays.value import Value
from ...errors import ArgumentError, ConversionError, GraphError
from ...ops.dispatch import apply
from ...ops.op import Op
from ...ops.user_calls import call_function
from ..boundary import as_array_leaf, as_differentiable, unwrap_to_level
from .op_call import OpCall
from .op_pattern import patterns_of
from .probe import Matrix, boolean_matrix

PatternKind = Literal["global", "local"]


@final
class TraceState:
    """What all values of one run share: whether zero partials count, and the coarsest precision met so far."""

    __slots__ = ("local", "precision")

    def __init__(self, local: bool, precision: float) -> None:
        self.local = local
        self.precision = precision

    def note_precision(self, outs: Sequence[Any]) -> None:
        """Note the precision of the results of an op."""
        self.precision = max(self.precision, *(precision_of(spec_of(x)) for x in outs))


def precision_of(spec: Spec) -> float:
    """The relative distance of neighboring floating-point numbers, by how many bytes they have (0 for integers)."""
    if not spec.inexact:
        return 0.0
    # bfloat16 has the fewest digits of two bytes, so it speaks for float16 too.
    width = spec.dtype.itemsize // (2 if spec.dtype.kind == "c" else 1)
    return 2.0 ** {2: -7, 4: -23}.get(width, -52)


class TracedValue(Value):
    """A value and the inputs each of its elements depends on; `sources` is None for a constant."""

    __slots__ = ("level", "scope", "sources", "spec", "trace_state", "value")
    level: int
    scope: Scope
    runs_op_by_op = True

    def __init__(self, value: Any, sources: Matrix | None, scope: Scope, tracing: TraceState) -> None:
        self.value = value
        self.sources = sources
        self.spec: Spec = spec_of(value).as_guarded()
        self.scope = scope
        self.level = scope.level
        self.trace_state = tracing

    def interpret(self, op: Op, args: Sequence[Any], static: dict[str, Any]) -> Any:
        """Compute the value below, then propagate the index sets by the record of the op."""
        scope = self.scope
        if not scope.open:
            scope.check()
        own = [type(x) is TracedValue and x.level == self.level for x in args]
        values = [x.value if mine else x for x, mine in zip(args, own, strict=True)]
        below = [x.sources if mine else None for x, mine in zip(args, own, strict=True)]
        out = apply(op, *values, **static)
        if not op.differentiable:
            return out
        outs = out if type(out) is tuple else (out,)
        found: list[Matrix | None] = [None] * len(outs)
        if any(sources is not None for sources in below):
            # A bare array of the function is the same at every x, so its zeros count for good.
            fixed = [not mine and is_array(x) for x, mine in zip(args, own, strict=True)]
            found = patterns_of(OpCall(op, values, fixed, outs, static, self.trace_state.local), below)
            # A step in float32 limits what a check of float64 results can ask for.
            self.trace_state.note_precision(outs)
        results = [TracedValue(x, sources, scope, self.trace_state) for x, sources in zip(outs, found, strict=True)]
        return tuple(results) if type(out) is tuple else results[0]

    def parts(self) -> tuple[Any, ...]:
        return (self.value,)

    def with_parts(self, *parts: Any) -> TracedValue:
        (value,) = parts
        return TracedValue(value, self.sources, self.scope, self.trace_state)

    def __bool__(self) -> bool:
        return bool(self.value)

    def __index__(self) -> int:
        return int(self.value.__index__())

    def conversion_error(self, what: str) -> ConversionError:
        """Raise: a bare array would lose the index sets."""
        return ConversionError(
            f"{what}: {self.spec} is being traced for its sparsity, a bare array would lose what it depends on.\n"
            "  Use functions of pullback on it."
        )

    def __repr__(self) -> str:
        return f"traced({self.value!r})"


def _lower_constant(x: Any) -> Any:
    return x.value if type(x) is TracedValue and x.sources is None else x


def bare_point(x: Any, what: str) -> Any:
    """The point to differentiate at, as a bare floating-point array."""
    advice = "Pass x.detach(); for a Jacobian that can be differentiated use pb.jvp or pb.vjp."
    return as_differentiable(untracked_array(x, what, "x is", "x requires a gradient", advice), what)


def untracked_array(x: Any, what: str, shown: str, tracked: str, advice: str) -> Any:
    """A value that a SciPy matrix can hold: untracked tensors are looked through, all else would lose something."""
    while isinstance(x, Tensor):
        if x.node is not None:
            raise GraphError(f"{what}: {tracked}, but a SciPy matrix carries no derivatives.\n  {advice}")
        x = x.value
    if isinstance(x, Value):
        raise ConversionError(
            f"{what}: {shown} {x!r}, a value of another transform, and a SciPy matrix cannot follow it.\n"
            "  Call it outside of the transform."
        )
    return x


def trace_pattern(f: Callable[[Any], Any], x: Any, local: bool, what: str) -> tuple[Any, Matrix, float]:
    """The value of f at a bare point, its pattern, and the coarsest precision of its intermediate values."""
    from scipy.sparse import identity

    tracing = TraceState(local, precision_of(spec_of(x)))
    scope = Scope(what, lambda scope, value: TracedValue(value, None, scope, tracing), _lower_constant)
    count = spec_of(x).size
    with scope:
        # At first each input depends on itself alone: the identity.
        out, structure = flatten(call_function(f, (TracedValue(x, identity(count, bool, "csr"), scope, tracing),), {}))
        if structure is not LEAF:
            raise ArgumentError(f"{what}: the function returned a tree of {len(out)} arrays, wanted one array.")
        result = unwrap_to_level(as_array_leaf(out[0], what), scope)
    own = type(result) is TracedValue and result.scope is scope
    value, pattern = (result.value, result.sources) if own else (result, None)
    if pattern is None:
        return value, boolean_matrix([], [], spec_of(value).size, count), tracing.precision
    pattern = pattern.copy()  # one matrix may belong to several values
    pattern.sum_duplicates()
    pattern.eliminate_zeros()
    return value, pattern, tracing.precision


def sparsity(f: Callable[[Any], Any], x: Any, kind: PatternKind = "global") -> Matrix:
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
    check_functions("sparsity", f)
    if kind not in ("global", "local"):
        raise ArgumentError(f'sparsity: kind is "global" or "local", got {kind!r}.')
    return trace_pattern(f, bare_point(_detach(x), "sparsity"), kind == "local", "sparsity")[1]


def _detach(x: Any) -> Any:
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
