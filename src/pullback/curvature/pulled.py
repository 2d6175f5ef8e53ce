"""Cotangents of a model's output, chosen for a curvature matrix and pulled back to the parameters, sample by sample.

The Gauss-Newton and the Fisher matrix are means over samples of J^T B J, where J is the Jacobian of the model's output
z and B a matrix in z: the Hessian of the loss, or the covariance of its gradient. Rows of J are unit cotangents pulled
back. Where B is estimated from draws, as the mean of s s^T, it is the draws s that are pulled back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..arrays.argument_checks import check_count
from ..arrays.backends import namespace_on
from ..arrays.spec import spec_of
from ..arrays.trees import unflatten
from ..errors import ArgumentError
from ..ops.contract.matrix_products import tensordot
from ..ops.dispatch import shape
from ..ops.random.keys import split
from ..ops.shape.reshaping import reshape
from ..transforms.jacobian.functions import hessian
from ..transforms.vectorize import vmap
from .layout import Layout
from .likelihoods import Likelihood
from .staging import Batch, read_batch, stage_pull

Loss = Callable[..., Any]


class Pulled(NamedTuple):
    """Of one sample: cotangents pulled back to each parameter, as rows or arrays with an axis of cotangents in front,
    and the matrix between cotangents (None: the identity).
    """

    leaves: list[Any]
    layouts: list[Layout | None]
    between: Any

    def mix(self, x: Any) -> Any:
        """The matrix between cotangents applied to something that is pulled back, along its first axis."""
        return x if self.between is None else tensordot(self.between, x, axes=1)


class Exact(NamedTuple):
    """Unit cotangents, with the Hessian of a loss of the output and of what else a sample has between them."""

    what: str
    model: Callable[..., Any]
    loss: Loss
    extra: tuple[Any, ...]

    def choose(self, z: Any, *target: Any) -> tuple[Any, Any]:
        spec = spec_of(z)
        unit = namespace_on(spec.device).eye(spec.size, dtype=spec.dtype).reshape((spec.size, *spec.shape))
        return unit, hessian(lambda v: self.loss(reshape(v, spec.shape), *target))(reshape(z, (spec.size,)))


class Drawn(NamedTuple):
    """Gradients of a likelihood for labels that are drawn by a key for each sample."""

    what: str
    model: Callable[..., Any]
    likelihood: Likelihood
    samples: int
    extra: tuple[Any, ...]

    def choose(self, z: Any, key: Any) -> tuple[Any, Any]:
        scores = vmap(lambda k: self.likelihood.score(k, z))(split(key, self.samples))
        return scores / math.sqrt(self.samples), None


def choose_exact(what: str, model: Callable[..., Any], loss: Loss, targets: Any) -> Exact:
    return Exact(what, model, loss, as_arguments(targets))


def choose_for_likelihood(
    what: str, model: Callable[..., Any], likelihood: Any, samples: int | None, inputs: Any, key: Any
) -> Exact | Drawn:
    """Unit cotangents, or some for labels that are drawn."""
    if not isinstance(likelihood, Likelihood):
        raise ArgumentError(
            f"{what}: wants a likelihood such as pb.curvature.categorical, got a {type(likelihood).__name__}.\n"
            "  The Gauss-Newton matrix of any loss has pb.curvature.ggn_diagonal and ggn_blocks."
        )
    if samples is None and key is None:
        return Exact(what, model, likelihood.log_partition, ())
    if samples is None or key is None:
        raise ArgumentError(
            f"{what}: an estimate wants both samples=, the number of labels drawn for each input, and a key.\n"
            "  Pass pb.random.key(seed) after the inputs; without both the matrix is exact."
        )
    size = read_batch(what, (), as_arguments(inputs)).size
    return Drawn(what, model, likelihood, check_count(samples, f"{what}: samples"), (split(key, size),))


def as_arguments(given: Any) -> tuple[Any, ...]:
    """A tuple is several arguments, anything else is one."""
    return given if isinstance(given, tuple) else (given,)


def pull_samples(
    choice: Exact | Drawn, params: Any, inputs: Any, reduce: Callable[[Pulled], Any]
) -> tuple[Batch, list[Layout | None], Any]:
    """`reduce` of what is pulled back, for each sample; with the batch and the layouts of the parameters' gradients."""
    batch = read_batch(choice.what, params, (as_arguments(inputs), choice.extra))
    staged = stage_pull(lambda own, given, _: choice.model(own, *given), batch)

    def measure(values: Sequence[Any]) -> Any:
        z, pull = staged.run(values)
        _, extra = unflatten(batch.samples_structure, values[len(batch.params) :])
        bars, between = choice.choose(z, *extra)
        return reduce(Pulled(pull(bars), staged.layouts, between))

    return batch, staged.layouts, batch.over_samples(measure)


def flatten_rows(x: Any) -> Any:
    """(k, ...) as (k, n)."""
    return reshape(x, (shape(x)[0], math.prod(shape(x)[1:])))
