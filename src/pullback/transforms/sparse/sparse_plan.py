"""Pattern and coloring in, a plan out: which products to make, and where in them each nonzero is found."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, final

import numpy as np

from ...arrays.backends import namespace_on, to_host
from ...arrays.spec import Spec, make_spec, spec_of
from ...errors import ArgumentError, DtypeError, ShapeError
from ...ops.replay.rehearsal import rehearse
from ..boundary import unit_rows
from ..forward import jvp
from ..reverse import grad, vjp
from ..vectorize import vmap
from .coloring import Coloring, entry_places
from .pattern import bare_point, untracked_array
from .probe import Matrix

DerivativeKind = Literal["jacobian", "hessian"]

#: The most numbers in a batch of tangents or cotangents.
_MAX_BATCH_NUMBERS = 1 << 22
_FORMAT = "pullback sparse plan 1"


@final
@dataclass(frozen=True, eq=False, repr=False)
class SparsePlan:
    """How to compute a sparse Jacobian or Hessian of f with few products: `plan(x)` is the matrix, at any x of the
    shape and dtype it was made for.

    Make one with `sparse_jacobian.plan(f, x)` or `sparse_hessian.plan(f, x)`. `pattern` is where the matrix can be
    other than zero, `colors` the groups of columns (and rows) that share a product, `products` their number.

    Each call makes one product more, in a fixed random direction, and compares it with that of the matrix: if f has a
    nonzero outside of the pattern at this x, the two differ and it raises. `check=False` leaves that out.

    >>> import numpy as np, pullback as pb
    >>> plan = pb.sparse_hessian.plan(lambda x: pb.sum(x[1:] * x[:-1] ** 2), np.ones(4))
    >>> plan.products
    3
    >>> plan(np.array([1.0, 2.0, 3.0, 4.0])).toarray()
    array([[4., 2., 0., 0.],
           [2., 6., 4., 0.],
           [0., 4., 8., 6.],
           [0., 0., 6., 0.]])
    """

    f: Callable[[Any], Any]
    derivative: DerivativeKind
    spec: Spec
    out: Spec
    pattern: Matrix
    colors: Coloring
    precision: float

    @property
    def products(self) -> int:
        """The number of products with the Jacobian, from either side, or with the Hessian that a call makes, not
        counting the one of the check.
        """
        return self.colors.products

    @cached_property
    def _mapped(self) -> Callable[[Any], Any]:
        """The function whose Jacobian the matrix is."""
        return grad(self.f) if self.derivative == "hessian" else self.f

    @cached_property
    def _places(self) -> Any:
        """Where each entry of the matrix is found in the products, laid one after the other."""
        return entry_places(self.pattern, self.colors, self.derivative == "hessian")

    @cached_property
    def _directions(self) -> tuple[Any, Any]:
        """The directions of the products, columns' and rows', and among them, last, the one of the check."""
        forward = color_indicators(self.colors.columns, self.colors.column_count)
        back = color_indicators(self.colors.rows, self.colors.row_count)
        # The check joins a batch that runs anyway.
        if len(forward) or not len(back):
            forward = np.vstack((forward, check_direction(forward.shape[1])))
        else:
            back = np.vstack((back, check_direction(back.shape[1])))
        xp = namespace_on(self.spec.device)
        return (
            xp.asarray(forward.reshape(len(forward), *self.spec.shape), self.spec.dtype),
            xp.asarray(back.reshape(len(back), *self.out.shape), self.out.dtype),
        )

    def __call__(self, x: Any, *, check: bool = True) -> Matrix:
        """The matrix at x, as a SciPy CSR matrix with the plan's pattern."""
        matrix, wrong = self.evaluate(x, check)
        if wrong.size:
            raise ArgumentError(
                f"plan: the {self.derivative} at this x has entries outside of the plan's pattern.\n"
                "  f took another path here than where the plan was made.\n"
                f"  Make a plan for this x: pb.sparse_{self.derivative}.plan(f, x)."
            )
        return matrix

    def evaluate(self, x: Any, check: bool) -> tuple[Matrix, Any]:
        """The matrix at x, and the rows (columns, if only products from the left were made) that the check refutes."""
        from scipy.sparse import csr_matrix

        x = self._check_point(x)
        columns, rows = self.colors.column_count, self.colors.row_count
        forward, back = self._directions
        if not check:
            forward, back = forward[:columns], back[:rows]
        shown = (
            self._push_products(x, forward, not len(back))
            if len(forward)
            else np.zeros((0, self.out.size), self.out.dtype)
        )
        seen = self._pull_products(x, back) if len(back) else shown[:0]
        found = shown[:columns].reshape(-1)
        found = np.concatenate((found, seen[:rows].reshape(-1))) if rows else found
        pattern = self.pattern
        # Copies of the structure: the caller may sort or sum the matrix in place.
        entries = found[self._places], pattern.indices.copy(), pattern.indptr.copy()
        matrix = csr_matrix(entries, shape=pattern.shape)
        # One product more than there are groups: the last is the check.
        if len(shown) > columns:
            return matrix, find_wrong_rows(matrix, to_host(forward[-1]).reshape(-1), shown[-1], self.precision)
        if len(seen) > rows:
            return matrix, find_wrong_rows(matrix.T.tocsr(), to_host(back[-1]).reshape(-1), seen[-1], self.precision)
        return matrix, np.zeros(0, np.intp)

    def _check_point(self, x: Any) -> Any:
        x = bare_point(x, "plan")
        found = spec_of(x)
        if found.shape != self.spec.shape:
            raise ShapeError(
                f"plan: x has shape {found.shape}, the plan was made for {self.spec.shape}.\n  Make one for this shape."
            )
        if found.dtype != self.spec.dtype or found.device != self.spec.device:
            raise DtypeError(
                f"plan: x is {found}, the plan was made for {self.spec}.\n  Convert x, or make a new plan."
            )
        return x

    def _push_products(self, x: Any, directions: Any, last: bool = True) -> Any:
        """Products from the right, as rows: J v for a Jacobian, H v (forward over reverse) for a Hessian. f runs
        once for each batch; only the `last` run may draw and update state.
        """
        found = self._run_in_batches(
            vmap(lambda v: jvp(self._mapped, (x,), (v,))[1]),
            directions,
            lambda end: nullcontext() if end and last else rehearse((self.f,), (x,)),
        )
        # f may return another size at another x; the places would then read wrong numbers.
        if found.shape[1] != self.out.size:
            raise ShapeError(
                f"plan: f returned {found.shape[1]} elements here, and {self.out.size} where the plan was made.\n"
                "  Make a plan for this x."
            )
        return found

    def _pull_products(self, x: Any, directions: Any) -> Any:
        """Products from the left, as rows: u J."""
        _, pull = vjp(self._mapped, x)
        return self._run_in_batches(vmap(lambda u: pull(u)[0]), directions, lambda end: nullcontext())

    @property
    def _batch(self) -> int:
        return max(1, _MAX_BATCH_NUMBERS // max(1, *self.pattern.shape))

    def _run_in_batches(
        self,
        products: Callable[[Any], Any],
        directions: Any,
        around: Callable[[bool], AbstractContextManager[None]],
    ) -> Any:
        """Products in all directions, a batch at a time, each inside of `around(whether it is the last)`."""
        count, step = len(directions), self._batch
        parts = []
        for i in range(0, count, step):
            with around(i + step >= count):
                parts.append(_numbers_of(products(directions[i : i + step])))
        return (parts[0] if len(parts) == 1 else np.concatenate(parts)).reshape(count, math.prod(parts[0].shape[1:]))

    def diagonal(self, x: Any) -> Any:
        """The diagonal of a square matrix at x whatever its pattern is, by a product for each column."""
        x, size = self._check_point(x), self.spec.size
        parts = []
        for i in range(0, size, self._batch):
            directions = unit_rows(self.spec, i, min(self._batch, size - i))
            shown = self._push_products(x, directions, i + self._batch >= size)
            parts.append(np.diagonal(shown, i))
        return np.concatenate(parts or [np.zeros(0, self.out.dtype)])

    def to_json(self) -> str:
        """The plan without f, as text; `SparsePlan.from_json(text, f)` makes it work again."""
        return json.dumps(
            {
                "format": _FORMAT,
                "derivative": self.derivative,
                "shape": self.spec.shape,
                "dtype": self.spec.dtype.name,
                "device": self.spec.device,
                "out_shape": self.out.shape,
                "out_dtype": self.out.dtype.name,
                "precision": self.precision,
                "starts": self.pattern.indptr.tolist(),
                "entries": self.pattern.indices.tolist(),
                "columns": self.colors.columns.tolist(),
                "rows": self.colors.rows.tolist(),
            }
        )

    @staticmethod
    def from_json(text: str, f: Callable[[Any], Any]) -> SparsePlan:
        """The plan that `to_json` saved, for the same function."""
        from scipy.sparse import csr_matrix

        try:
            given = json.loads(text)
            if given["format"] != _FORMAT or given["derivative"] not in ("jacobian", "hessian"):
                raise ValueError("it is of another format")
            spec = make_spec(tuple(given["shape"]), np.dtype(given["dtype"]), given["device"])
            out = make_spec(tuple(given["out_shape"]), np.dtype(given["out_dtype"]), given["device"])
            entries = np.array(given["entries"], np.int32)
            size = (out.size, spec.size)
            pattern: Matrix = csr_matrix(
                (np.ones(entries.size, bool), entries, np.array(given["starts"], np.int32)), shape=size
            )
            pattern.check_format()
            colors = Coloring(np.array(given["columns"], np.intp), np.array(given["rows"], np.intp))
            # The text comes from outside: all that it claims is checked before it is believed.
            plan = SparsePlan(f, given["derivative"], spec, out, pattern, colors, float(given["precision"]))
            _ = plan._places  # raises if the colors do not show every entry
            return plan
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise ArgumentError(f"SparsePlan.from_json: this text is no plan: {error}.") from None

    def __repr__(self) -> str:
        height, width = self.pattern.shape
        share = self.pattern.nnz / max(1, height * width)
        name = getattr(self.f, "__name__", type(self.f).__name__)
        return (
            f"SparsePlan: {self.derivative.capitalize()} of {name} at {self.spec}\n"
            f"  {height} x {width}, {self.pattern.nnz} entries ({share:.2%})\n  {self._describe_work()}"
        )

    def _describe_work(self) -> str:
        columns, rows = self.colors.column_count, self.colors.row_count
        if self.derivative == "hessian":
            return f"{columns} products with the Hessian (star coloring)"
        sides = [f"{n} from the {side}" for n, side in ((columns, "right"), (rows, "left")) if n]
        return f"{self.products} products with the Jacobian{': ' * bool(sides)}{', '.join(sides)}"


def color_indicators(colors: Any, count: int) -> Any:
    """For each color, ones where it is."""
    return (colors == np.arange(count)[:, None]).astype(np.float64)


def check_direction(size: int) -> Any:
    """A generic direction, the same at every run; away from zero, so that no column is missed."""
    # A fixed seed: a plan must not depend on, or disturb, the user's random numbers.
    rng = np.random.default_rng(20)
    return rng.uniform(0.5, 1.5, size) * rng.choice((-1.0, 1.0), size)


def _numbers_of(value: Any) -> Any:
    """The elements of a product; a SciPy matrix can hold nothing else."""
    tracked, advice = "f uses tensors that require a gradient", "Run it under pb.no_grad(), or detach them."
    return to_host(untracked_array(value, "plan", "f uses", tracked, advice))


def find_wrong_rows(matrix: Matrix, direction: Any, product: Any, precision: float) -> Any:
    """The rows in which the matrix did not make the product. (J - M) v = 0 at a direction picked before J was known
    means J = M, up to rounding; there is room for that by row, and by the size of the whole.
    """
    made = matrix @ direction
    size = abs(matrix) @ np.abs(direction)
    with np.errstate(invalid="ignore"):
        off = np.abs(product - made)
    known = np.isfinite(off)
    # A nonzero outside of the pattern is missed only if it is smaller than this.
    room = precision**0.5 * size + 100 * precision * np.max(size[known], initial=0.0)
    return np.flatnonzero(known & (off > room))
