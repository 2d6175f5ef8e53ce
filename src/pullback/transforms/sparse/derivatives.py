"""`sparse_jacobian`, `sparse_hessian` and their diagonals, by as few products as the pattern allows."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, ParamSpec, final

from ...arrays.argument_checks import check_functions
from ...arrays.backends import namespace_on
from ...arrays.picklable import MakerCall, attach_maker, picklable
from ...arrays.spec import make_spec, spec_of
from ...arrays.trees import LEAF, flatten
from ...errors import ArgumentError, DtypeError
from ...ops.replay.rehearsal import dry_run
from ...ops.user_calls import call_function
from ..boundary import as_array_leaf
from ..reverse import grad
from .coloring import ColoringMethod, color_hessian, color_jacobian
from .pattern import PatternKind, as_pattern, bare_point, precision_of, trace_pattern
from .probe import Matrix
from .sparse_plan import DerivativeKind, SparsePlan

P = ParamSpec("P")
Q = ParamSpec("Q")
Function = Callable[[Any], Any]


@final
class PlannedTransform(Generic[P, Q]):
    """A transform that plans: called with a function it returns the derivative, and `plan` makes the plan alone."""

    def __init__(self, transform: Callable[P, Callable[[Any], Matrix]], plan: Callable[Q, SparsePlan]) -> None:
        functools.update_wrapper(self, transform)
        self._transform = transform
        self.plan = plan

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Callable[[Any], Matrix]:
        found: Callable[[Any], Matrix] = attach_maker(self._transform(*args, **kwargs), MakerCall(self, args, kwargs))
        return found

    def __reduce__(self) -> str:
        return self._transform.__qualname__


def _with_plan(
    plan: Callable[Q, SparsePlan],
) -> Callable[[Callable[P, Callable[[Any], Matrix]]], PlannedTransform[P, Q]]:
    return lambda transform: PlannedTransform(transform, plan)


@final
@dataclass(frozen=True, slots=True)
class _PlanCache:
    """The plans of one function, by the spec of x. Where f takes another path than where a plan was made, what it
    depends on there is added to the pattern.
    """

    f: Function
    derivative: DerivativeKind
    coloring: ColoringMethod = "auto"
    pattern: Any = None
    kind: PatternKind = "global"
    plans: dict[Any, SparsePlan] = field(default_factory=dict)

    def at(self, x: Any) -> SparsePlan:
        """The plan for arrays like x."""
        plan = self.plans.get(spec_of(x))
        return self._plan(x, self.pattern) if plan is None else plan

    def matrix(self, x: Any, check: bool) -> Matrix:
        """The matrix at x."""
        plan = self.at(x)
        matrix, wrong = plan.evaluate(x, check)
        if not wrong.size:
            return matrix
        # f took another path here: from now on the plan covers both.
        if self.pattern is None:
            plan = self._plan(x, plan.pattern + self._plan(x, None).pattern)
        return plan(x, check=check)

    def _plan(self, x: Any, pattern: Any) -> SparsePlan:
        plan = _make_plan(self.f, self.derivative, x, self.coloring, pattern, self.kind)
        self.plans[spec_of(x)] = plan
        return plan


def _make_plan(
    f: Function, derivative: DerivativeKind, x: Any, coloring: ColoringMethod, pattern: Any, kind: PatternKind
) -> SparsePlan:
    """A plan for f at x: its pattern, found or given, and a coloring of it."""
    what = f"sparse_{derivative}"
    if kind not in ("global", "local"):
        raise ArgumentError(f'{what}: kind is "global" or "local", got {kind!r}.')
    x = bare_point(x, what)
    spec = spec_of(x)
    mapped = grad(f) if derivative == "hessian" else f
    if pattern is None:
        # Planning must not draw random numbers or update state that the real run needs.
        with dry_run((f,), (x,)):
            value, matrix, precision = trace_pattern(mapped, x, kind == "local", what)
    else:
        with dry_run((f,), (x,)):
            value = _evaluate(mapped, x, what)
        matrix = as_pattern(pattern, (spec_of(value).size, spec.size), what)
        # Without a trace the intermediate values are unknown; the ends bound what can be expected.
        precision = max(precision_of(spec), precision_of(spec_of(value)))
    out = make_spec(spec_of(value).shape, spec_of(value).dtype, spec.device)
    for one in (spec, out):
        if one.dtype.kind != "f" or one.dtype.itemsize < 4:
            raise DtypeError(
                f"{what}: SciPy's matrices hold float32 and float64, here x is {spec} and the result {out}."
            )
    if derivative == "hessian":
        # Cautious rules need not find a symmetric pattern, and the coloring relies on one.
        matrix = (matrix + matrix.T).tocsr()
    matrix.sort_indices()
    return SparsePlan(f, derivative, spec, out, matrix, _color_pattern(matrix, derivative, coloring), precision)


def _color_pattern(pattern: Matrix, derivative: DerivativeKind, coloring: ColoringMethod) -> Any:
    return color_hessian(pattern) if derivative == "hessian" else color_jacobian(pattern, coloring)


def _evaluate(f: Function, x: Any, what: str) -> Any:
    leaves, structure = flatten(call_function(f, (x,), {}))
    if structure is not LEAF:
        raise ArgumentError(f"{what}: the function returned a tree of {len(leaves)} arrays, wanted one array.")
    return as_array_leaf(leaves[0], what)


def _jacobian_plan(
    f: Function, x: Any, *, coloring: ColoringMethod = "auto", pattern: Any = None, kind: PatternKind = "global"
) -> SparsePlan:
    """The plan of `sparse_jacobian` at arrays like x."""
    return _make_plan(f, "jacobian", x, coloring, pattern, kind)


def _hessian_plan(f: Function, x: Any, *, pattern: Any = None, kind: PatternKind = "global") -> SparsePlan:
    """The plan of `sparse_hessian` at arrays like x."""
    return _make_plan(f, "hessian", x, "auto", pattern, kind)


@_with_plan(_jacobian_plan)
def sparse_jacobian(
    f: Function,
    *,
    coloring: ColoringMethod = "auto",
    pattern: Any = None,
    kind: PatternKind = "global",
    check: bool = True,
) -> Callable[[Any], Matrix]:
    """The Jacobian of a function of one array, as a SciPy CSR matrix: a row for each element of the result, a column
    for each of x. Columns that share no row are found by one product together, and rows likewise.

    The pattern is found at the first x of each shape and dtype (`kind` as in `sparsity`), or given: a matrix whose
    nonzeros are the pattern, or "diagonal". `coloring` is "column", "row", "bidirectional" (some of both), or "auto":
    whichever makes the fewest products. Each call checks the result against a product in one more direction, and where
    f took another path, plans again; `check=False` leaves that out. `sparse_jacobian.plan(f, x)` is the plan itself.

    >>> import numpy as np, pullback as pb
    >>> pb.sparse_jacobian(lambda x: x[1:] * x[:-1])(np.array([1.0, 2.0, 3.0])).toarray()
    array([[2., 1., 0.],
           [0., 3., 2.]])
    """
    check_functions("sparse_jacobian", f)
    known = _PlanCache(f, "jacobian", coloring, pattern, kind)
    return lambda x: known.matrix(bare_point(x, "sparse_jacobian"), check)


@_with_plan(_hessian_plan)
def sparse_hessian(
    f: Function, *, pattern: Any = None, kind: PatternKind = "global", check: bool = True
) -> Callable[[Any], Matrix]:
    """The Hessian of a scalar function of one array, as a SciPy CSR matrix. Columns are grouped by a star coloring, so
    that an entry or its mirror image is found by itself; each group is one product with the Hessian.

    `pattern`, `kind` and `check` are as in `sparse_jacobian`, and `sparse_hessian.plan(f, x)` is the plan itself.

    >>> import numpy as np, pullback as pb
    >>> pb.sparse_hessian(lambda x: pb.sum(x[1:] * x[:-1] ** 2))(np.array([1.0, 2.0, 3.0])).toarray()
    array([[4., 2., 0.],
           [2., 6., 4.],
           [0., 4., 0.]])
    """
    check_functions("sparse_hessian", f)
    known = _PlanCache(f, "hessian", "auto", pattern, kind)
    return lambda x: known.matrix(bare_point(x, "sparse_hessian"), check)


@picklable
def jacobian_diagonal(f: Function) -> Callable[[Any], Any]:
    """The diagonal of the Jacobian of a function whose result has as many elements as x, in the shape of x. One product
    if the function maps each element alone, a few if its Jacobian is sparse, else one for each element.

    >>> import numpy as np, pullback as pb
    >>> pb.jacobian_diagonal(lambda x: x**2 * 3.0)(np.array([1.0, 2.0]))
    array([ 6., 12.])
    """
    check_functions("jacobian_diagonal", f)
    return _make_diagonal(f, "jacobian")


@picklable
def hessian_diagonal(f: Function) -> Callable[[Any], Any]:
    """The diagonal of the Hessian of a scalar function, in the shape of x.

    >>> import numpy as np, pullback as pb
    >>> pb.hessian_diagonal(lambda x: pb.sum(x**3))(np.array([1.0, 2.0]))
    array([ 6., 12.])
    """
    check_functions("hessian_diagonal", f)
    return _make_diagonal(f, "hessian")


def _make_diagonal(f: Function, derivative: DerivativeKind) -> Callable[[Any], Any]:
    known = _PlanCache(f, derivative)
    what = f"{derivative}_diagonal"

    def diagonal(x: Any) -> Any:
        x = bare_point(x, what)
        plan = known.at(x)
        if plan.out.size != plan.spec.size:
            raise ArgumentError(f"{what}: {plan.spec} is mapped to {plan.out}, so the Jacobian is not square.")
        # With nearly as many groups as columns, the diagonal is simpler by columns.
        sparse = 2 * plan.products <= plan.spec.size or plan.products == 1
        found = known.matrix(x, True).diagonal() if sparse else plan.diagonal(x)
        return namespace_on(plan.spec.device).asarray(found.reshape(plan.spec.shape))

    return diagonal
