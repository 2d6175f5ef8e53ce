"""`sparse.jacobian` and `sparse.hessian`: sparse arrays whose numbers carry derivatives, of functions of trees."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from ..arrays.argument_checks import check_functions
from ..arrays.backends import is_array
from ..arrays.spec import is_real_float, spec_of
from ..arrays.tensor import wrap
from ..arrays.trees import flatten, map_tree
from ..errors import ArgumentError, DtypeError, ShapeError
from ..ops.concrete import as_bare_array, is_concrete
from ..ops.dispatch import shape
from ..ops.elementwise import pointwise
from ..ops.index import indexing
from ..ops.index.normalize import namespace_for
from ..ops.reduce import reductions
from ..ops.replay.rehearsal import dry_run
from ..ops.shape.arrange import concat
from ..ops.shape.ravel_tree import ravel_pytree
from ..ops.shape.reshaping import astype, reshape
from ..transforms.forward import jvp
from ..transforms.reverse import grad, vjp
from ..transforms.sparse.coloring import Coloring, ColoringMethod, color_hessian, color_jacobian, entry_places
from ..transforms.sparse.pattern import as_pattern, precision_of, trace_pattern
from ..transforms.sparse.probe import Matrix
from ..transforms.sparse.sparse_plan import check_direction, color_indicators
from ..transforms.vectorize import vmap
from .array import SparseArray
from .pattern import Pattern
from .products import add_rows

Function = Callable[..., Any]
#: The most numbers in a batch of tangents or cotangents.
_MAX_BATCH_NUMBERS = 1 << 22


@final
@dataclass(frozen=True, eq=False)
class _Plan:
    """A pattern, the groups of columns and rows that share a product, and where each entry is found in the products."""

    matrix: Matrix
    pattern: Pattern
    colors: Coloring
    places: Any
    precision: float


def _make_plan(matrix: Matrix, symmetric: bool, coloring: ColoringMethod, precision: float) -> _Plan:
    if symmetric:
        matrix = (matrix + matrix.T).tocsr()
    matrix.sort_indices()
    colors = color_hessian(matrix) if symmetric else color_jacobian(matrix, coloring)
    height, width = map(int, matrix.shape)
    rows = np.repeat(np.arange(height), np.diff(matrix.indptr))
    pattern = Pattern("csr", (height, width), rows, matrix.indices)
    return _Plan(matrix, pattern, colors, entry_places(matrix, colors, symmetric), precision)


@final
class _SparseDerivative:
    """The derivative of f(x, *args) by x; plans are kept by what x is."""

    def __init__(
        self, f: Function, symmetric: bool, coloring: ColoringMethod, pattern: Any, check: bool, what: str
    ) -> None:
        self.f, self.symmetric, self.coloring = f, symmetric, coloring
        self.given, self.check, self.what = pattern, check, what
        self.plans: dict[Any, _Plan] = {}

    def at(self, x: Any, args: tuple[Any, ...]) -> SparseArray:
        """The matrix at x."""
        vector, unravel = ravel_pytree(x)
        if not is_real_float(spec_of(vector).dtype):
            raise DtypeError(f"{self.what}: wants arrays of real floating-point numbers, got {spec_of(vector)}.")

        mapped = self._on_vectors(unravel, args)
        # zeros of bare arrays count for good, and those of arguments may be other numbers in the next call
        to_plan = self._on_vectors(unravel, map_tree(_as_variable, args))
        leaves, structure = flatten(x)
        key = structure, tuple([spec_of(leaf) for leaf in leaves])
        plan = self.plans.get(key)
        if plan is None:
            plan = self.plans[key] = self._plan(to_plan, vector, None)
        data, wrong = self._compute(mapped, vector, plan)
        if wrong:  # f took another path here: from now on the plan covers both
            if self.given is not None:
                raise ArgumentError(f"{self.what}: the derivative at this x has entries outside of the given pattern.")
            plan = self.plans[key] = self._plan(to_plan, vector, plan.matrix)
            data, _ = self._compute(mapped, vector, plan)
        return SparseArray(data, plan.pattern)

    def _on_vectors(self, unravel: Function, args: tuple[Any, ...]) -> Function:
        """The function of a vector whose Jacobian the matrix is."""

        def on_vector(v: Any) -> Any:
            return ravel_pytree(self.f(unravel(v), *args))[0]

        def scalar(v: Any) -> Any:
            found = on_vector(v)
            if shape(found) != (1,):
                raise ShapeError(f"{self.what}: f returns one number, here it returned {shape(found)[0]} elements.")
            return reshape(found, ())

        return grad(scalar) if self.symmetric else on_vector

    def _plan(self, mapped: Function, vector: Any, known: Matrix | None) -> _Plan:
        precision = precision_of(spec_of(vector))
        if self.given is not None:
            return self._plan_given(vector, precision)
        if not is_concrete(vector):
            raise ArgumentError(
                f"{self.what}: the pattern is found at numbers, and here they are hidden inside a transform.\n"
                "  Call it once outside, at arrays of these shapes, or give a pattern=."
            )
        point = as_bare_array(vector, self.what)
        with dry_run((self.f,), (point,)):
            _, matrix, precision = trace_pattern(mapped, point, False, self.what)
        return _make_plan(matrix if known is None else matrix + known, self.symmetric, self.coloring, precision)

    def _plan_given(self, vector: Any, precision: float) -> _Plan:
        given = self.given.to_scipy() if isinstance(self.given, SparseArray) else self.given
        width = spec_of(vector).size
        height = width if self.symmetric or isinstance(given, str) else int(np.shape(given)[0])
        matrix = as_pattern(given, (height, width), self.what)
        return _make_plan(matrix, self.symmetric, self.coloring, precision)

    def _compute(self, mapped: Function, vector: Any, plan: _Plan) -> tuple[Any, bool]:
        """The numbers of the matrix, and whether one product more refutes them."""
        colors, (height, width) = plan.colors, plan.pattern.shape
        forward = color_indicators(colors.columns, colors.column_count)
        back = color_indicators(colors.rows, colors.row_count)
        by_columns = len(forward) > 0 or not len(back)
        if self.check and by_columns:
            forward = np.vstack((forward, check_direction(width)))
        elif self.check:
            back = np.vstack((back, check_direction(height)))
        products = []
        if len(forward):
            push = vmap(lambda v: jvp(mapped, (vector,), (v,))[1])
            products.append(self._run(push, forward, vector, height))
        if len(back):
            pull = vjp(mapped, vector)[1]

            def pull_row(u: Any) -> Any:
                return pull(u)[0]

            products.append(self._run(vmap(pull_row), back, vector, width))
        part = 0 if by_columns else -1
        if self.check:
            shown, products[part] = products[part][-1], products[part][:-1]
        found = concat([reshape(p, (-1,)) for p in products]) if products else vector[:0]
        data = indexing.take(found, plan.places, axis=0)
        if not self.check:
            return data, False
        refuted = _is_refuted(plan, data, (forward if by_columns else back)[-1], shown, by_columns)
        if is_concrete(refuted):
            return data, bool(as_bare_array(refuted, "check"))
        # a factor, so that derivatives of a wrong matrix are NaN too
        return data * astype(pointwise.where(refuted, np.nan, 1.0), spec_of(data).dtype), False

    def _run(self, products: Function, directions: Any, vector: Any, size: int) -> Any:
        """Products in all directions, in batches of bounded size."""
        given = namespace_for(vector).asarray(directions, spec_of(vector).dtype)
        step = max(1, _MAX_BATCH_NUMBERS // max(1, *directions.shape, size))
        parts = [products(given[i : i + step]) for i in range(0, len(given), step)]
        found = parts[0] if len(parts) == 1 else concat(parts)
        if shape(found) != (len(directions), size):
            raise ShapeError(
                f"{self.what}: f returned {shape(found)[-1]} elements here, and the pattern has {size} rows."
            )
        return found


def _as_variable(x: Any) -> Any:
    return wrap(x, spec_of(x)) if is_array(x) else x


def _is_refuted(plan: _Plan, data: Any, direction: Any, shown: Any, by_columns: bool) -> Any:
    """Whether a product of the derivative is not that of the matrix: by the rule of `find_wrong_rows`, on values of any
    transform.
    """
    data, shown = (astype(pointwise.stop_gradient(x), np.float64) for x in (data, shown))
    rows, cols = plan.pattern.places_for(data)
    to, at = (rows, cols) if by_columns else (cols, rows)
    met = data * namespace_for(data).asarray(direction)[at]
    made, size = (add_rows(x, to, *shape(shown)) for x in (met, pointwise.abs(met)))
    off = pointwise.abs(shown - made)
    known = pointwise.isfinite(off)
    room = plan.precision**0.5 * size + 100 * plan.precision * reductions.max(
        pointwise.where(known, size, 0.0), initial=0.0
    )
    return reductions.any(pointwise.logical_and(known, off > room))


def jacobian(
    f: Function, *, coloring: ColoringMethod = "auto", pattern: Any = None, check: bool = True
) -> Callable[..., SparseArray]:
    """The Jacobian of f(x, *args) by x as a sparse array: `pb.sparse_jacobian` whose numbers carry derivatives, by x,
    by further arguments, by what f closes over. x and the result are trees: rows and columns count their elements in
    the order of `pb.ravel_pytree`.

    The pattern is found at the first x of its shapes, by the rules of `pb.sparsity`, or given. Where numbers are
    hidden, as in `pb.jit`, it must be known by then. `coloring` and `check` are as in `pb.sparse_jacobian`; a matrix
    that the check refutes where numbers are hidden is NaN.

    >>> import numpy as np, pullback as pb
    >>> def f(x, scale):
    ...     return {"steps": x["a"][1:] * x["a"][:-1] * scale, "sum": x["b"] + x["a"]}
    >>> x = {"a": np.array([1.0, 2.0, 3.0]), "b": np.ones(3)}
    >>> J = pb.sparse.jacobian(f)
    >>> J(x, 2.0).todense()[:2]
    array([[4., 2., 0., 0., 0., 0.],
           [0., 6., 4., 0., 0., 0.]])
    >>> pb.grad(lambda s: (J(x, s) ** 2).sum())(2.0)
    array(72.)
    """
    check_functions("sparse.jacobian", f)
    known = _SparseDerivative(f, False, coloring, pattern, check, "sparse.jacobian")
    return lambda x, *args: known.at(x, args)


def hessian(f: Function, *, pattern: Any = None, check: bool = True) -> Callable[..., SparseArray]:
    """The Hessian of a scalar f(x, *args) by x, as a sparse array that carries derivatives; x is a tree. The rest is as
    in `sparse.jacobian`.

    >>> import numpy as np, pullback as pb
    >>> H = pb.sparse.hessian(lambda x, s: pb.sum(s * x[1:] * x[:-1] ** 2))
    >>> H(np.array([1.0, 2.0, 3.0]), 1.0).todense()
    array([[4., 2., 0.],
           [2., 6., 4.],
           [0., 4., 0.]])
    >>> pb.grad(lambda x: pb.sum(pb.sparse.solve(H(x, 1.0) + pb.sparse.diagonal(np.full(3, 9.0)), x)))(np.ones(3)).shape
    (3,)
    """
    check_functions("sparse.hessian", f)
    known = _SparseDerivative(f, True, "auto", pattern, check, "sparse.hessian")
    return lambda x, *args: known.at(x, args)
