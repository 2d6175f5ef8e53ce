"""Kronecker factors of the blocks of a curvature matrix (K-FAC, K-FLR), and their solves.

The gradient of a matrix is, for one sample, a^T b for what came in (a) and what came back (b); so its block of J^T B J
is the mean of (a a^T) kron (b B b^T), and is taken to be the product of the means (Martens and Grosse, 2015). It is
exact where b does not depend on the sample (a linear model with squared error), and for a batch of one.

A matrix that one sample is multiplied with at several places (a sequence, the windows of a convolution) has rows of a
and b. They are treated as samples of their own ("expand"), or a is averaged and b summed over them ("reduce"), as in
Eschenhagen et al., 2023: exact, for a linear model, where the loss is a sum over places, or where the model averages
over places first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

from ..arrays.argument_checks import check_functions
from ..arrays.backends import namespace_on
from ..arrays.picklable import picklable
from ..arrays.spec import spec_of
from ..arrays.trees import register_tree
from ..errors import ArgumentError
from ..ops.contract.einsum import einsum
from ..ops.contract.matrix_products import matmul
from ..ops.dispatch import shape
from ..ops.elementwise.pointwise import sqrt
from ..ops.linalg.eigen import eigh
from ..ops.reduce.reductions import mean
from ..ops.reduce.reductions import sum as total
from ..ops.shape.reshaping import astype, expand_dims, matrix_transpose, reshape
from .factored import Rows
from .layout import Layout
from .likelihoods import Likelihood
from .pulled import Drawn, Exact, Loss, Pulled, choose_exact, choose_for_likelihood, flatten_rows, pull_samples

#: Parameters whose gradient has no factors have their whole block up to this size, and the diagonal of it beyond.
LARGEST_BLOCK = 512


@final
@dataclass(frozen=True, slots=True)
class KroneckerBlock:
    """The block of one parameter: `left` (stack, m, m) kron `right` (stack, n, n), where `layout` says how matrices
    (stack, m, n) make up the parameter. A parameter without factors has a left of ones, and its whole block on the
    right; a large one only the diagonal of that, (stack, n).
    """

    left: Any
    right: Any
    layout: Layout

    @property
    def is_diagonal(self) -> bool:
        return len(shape(self.right)) == 2

    def multiply(self, v: Any) -> Any:
        """The block times something in the shape of the parameter."""
        x = self.layout.to_matrices(v)
        if self.is_diagonal:
            return self.layout.to_array(x * expand_dims(self.right, 1))
        return self.layout.to_array(matmul(matmul(self.left, x), self.right))

    def solve(self, v: Any, damping: Any = 0.0) -> Any:
        """(left kron right + damping I)^-1 v, by the eigenvectors of both; v is in the shape of the parameter."""
        x = self.layout.to_matrices(v)
        if self.is_diagonal:
            return self.layout.to_array(x / (expand_dims(self.right, 1) + damping))
        (a, u), (b, w) = eigh(self.left), eigh(self.right)
        turned = matmul(matmul(matrix_transpose(u), x), w)
        scaled = turned / (expand_dims(a, 2) * expand_dims(b, 1) + damping)
        return self.layout.to_array(matmul(matmul(u, scaled), matrix_transpose(w)))

    def damp(self, damping: Any) -> KroneckerBlock:
        """The block with damping on each factor, sqrt(damping) times pi and its inverse: about that of the whole. pi
        is the root of the ratio of mean eigenvalues, which makes the error least (Martens and Grosse, 2015).
        """
        if self.is_diagonal:
            return KroneckerBlock(self.left, self.right + damping, self.layout)
        if self.layout.sizes[1] == 1:  # a block that is whole
            return KroneckerBlock(self.left, self.right + damping * _identity(self.right), self.layout)
        scales = [total(_diagonals(x), axis=-1) / shape(x)[-1] for x in (self.left, self.right)]
        pi = sqrt((scales[0] + _TINY) / (scales[1] + _TINY))
        root = astype(sqrt(damping), spec_of(pi).dtype)
        left, right = (
            x + reshape(root * p, (-1, 1, 1)) * _identity(x) for x, p in ((self.left, pi), (self.right, 1 / pi))
        )
        return KroneckerBlock(left, right, self.layout)


#: A factor of zeros (a unit that never fires) has no scale.
_TINY = 1e-30

register_tree(
    KroneckerBlock,
    lambda block: ((block.left, block.right), block.layout),
    lambda layout, children: KroneckerBlock(children[0], children[1], layout),
)


def _identity(x: Any) -> Any:
    return namespace_on(spec_of(x).device).eye(shape(x)[-1], dtype=spec_of(x).dtype)


def _diagonals(x: Any) -> Any:
    return total(x * _identity(x), axis=-1)


@picklable
def kfac_factors(
    model: Callable[..., Any], loss: Loss, reduction: str = "mean", sharing: str = "expand"
) -> Callable[..., Any]:
    """Kronecker factors of the blocks of the Gauss-Newton matrix (K-FLR): `kfac_factors(model, loss)(params, inputs,
    targets)` is a tree like the parameters with a `KroneckerBlock` at each leaf; arguments as of `ggn_diagonal`.
    `sharing` says what is done with a matrix that a sample is multiplied with several times: "expand" or "reduce".

    >>> import numpy as np, pullback as pb
    >>> model, x = (lambda w, x: x @ w), np.array([[1.0, 2.0], [3.0, 0.0]])
    >>> block = pb.curvature.kfac_factors(model, pb.curvature.normal)(np.zeros((2, 2)), x, np.zeros((2, 2)))
    >>> block.left, block.right
    (array([[[5., 1.],
            [1., 2.]]]), array([[[1., 0.],
            [0., 1.]]]))
    """
    check_functions("kfac_factors", model, loss)
    check_options("kfac_factors", reduction, sharing)

    def factors(params: Any, inputs: Any, targets: Any) -> Any:
        return find_factors(choose_exact("kfac_factors", model, loss, targets), params, inputs, reduction, sharing)

    return factors


@picklable
def fisher_factors(
    model: Callable[..., Any],
    likelihood: Likelihood,
    samples: int | None = None,
    reduction: str = "mean",
    sharing: str = "expand",
) -> Callable[..., Any]:
    """Kronecker factors of the blocks of the Fisher matrix: `fisher_factors(model, likelihood)(params, inputs)` is
    exact in the outputs (K-FLR), `fisher_factors(model, likelihood, samples=1)(params, inputs, key)` draws so many
    labels for each input (K-FAC).

    >>> import numpy as np, pullback as pb
    >>> model, x = (lambda w, x: x @ w), np.array([[1.0, 2.0], [3.0, 0.0]])
    >>> pb.curvature.fisher_factors(model, pb.curvature.normal)(np.zeros((2, 2)), x).solve(np.eye(2)).round(3)
    array([[ 0.222, -0.111],
           [-0.111,  0.556]])
    """
    check_functions("fisher_factors", model)
    check_options("fisher_factors", reduction, sharing)

    def factors(params: Any, inputs: Any, key: Any = None) -> Any:
        choice = choose_for_likelihood("fisher_factors", model, likelihood, samples, inputs, key)
        return find_factors(choice, params, inputs, reduction, sharing)

    return factors


def check_options(what: str, reduction: str, sharing: str) -> None:
    if reduction not in ("mean", "sum"):
        raise ArgumentError(f'{what}: reduction is "mean" or "sum" over the samples, got {reduction!r}.')
    if sharing not in ("expand", "reduce"):
        raise ArgumentError(f'{what}: sharing is "expand" or "reduce", got {sharing!r}.')


def find_factors(choice: Exact | Drawn, params: Any, inputs: Any, reduction: str, sharing: str) -> Any:
    """The block of each parameter, as a tree like the parameters."""

    def measure(pulled: Pulled) -> list[Any]:
        return [_measure_leaf(x, pulled, sharing) for x in pulled.leaves]

    batch, layouts, found = pull_samples(choice, params, inputs, measure)
    times = 1.0 / batch.size if reduction == "mean" else 1.0
    shapes = [spec_of(p).shape for p in batch.params]
    pairs = zip(found, layouts, shapes, strict=True)
    return batch.as_params([_make_block(x, layout, wanted, times, batch.size) for x, layout, wanted in pairs])


def _measure_leaf(x: Any, pulled: Pulled, sharing: str) -> Any:
    """What a sample has for the factors: rows left, right and B right; or J and B J of a leaf without factors."""
    if not isinstance(x, Rows):
        flat = flatten_rows(x)
        mixed = pulled.mix(flat)
        return (flat, mixed) if shape(flat)[1] <= LARGEST_BLOCK else total(flat * mixed, axis=0)
    if sharing == "reduce":
        x = Rows(mean(x.left, axis=-2, keepdims=True), total(x.right, axis=-2, keepdims=True))
    return x.left, x.right, pulled.mix(x.right)


def _make_block(found: Any, layout: Layout | None, wanted: Sequence[int], times: float, size: int) -> KroneckerBlock:
    """The block of one parameter, of what each sample has for it. `times` is on the right, left is a mean over rows."""
    if layout is not None:
        left, right, mixed = found
        rows = size * shape(left)[-2]
        return KroneckerBlock(
            einsum("bsrm,bsrn->smn", left, left) / rows, times * einsum("bksrm,bksrn->smn", right, mixed), layout
        )
    whole = Layout(tuple((("n", n),) for n in wanted))
    one = namespace_on(spec_of(found[0] if isinstance(found, tuple) else found).device).ones((1, 1, 1))
    if not isinstance(found, tuple):
        return KroneckerBlock(one, times * total(found, axis=0, keepdims=True), whole)
    flat, mixed = found
    return KroneckerBlock(
        one.astype(spec_of(flat).dtype), times * expand_dims(einsum("bkm,bkn->mn", flat, mixed), 0), whole
    )
