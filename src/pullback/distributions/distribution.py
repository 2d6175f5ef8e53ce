"""`Distribution`: what all distributions have in common, over the law that each states."""

from __future__ import annotations

import dataclasses
import functools
import math
from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from ..arrays.argument_checks import explains_arguments, short_repr
from ..arrays.spec import spec_of
from ..arrays.trees import flatten, map_tree
from ..errors import ArgumentError, ShapeError, UnsupportedFunction
from ..ops.axes import as_integer, as_shape
from ..ops.concrete import strip_derivatives
from ..ops.dispatch import as_value
from ..ops.elementwise.pointwise import exp, isinf, logical_and, logical_or, sqrt, where
from ..ops.families import result_dtype
from ..ops.placement import move
from ..ops.random.draw_ops import held
from ..ops.random.keys import key_on_device
from ..ops.shape.reshaping import astype, broadcast_to, expand_dims, reshape
from ..ops.value_objects import hold_constant, map_leaves, set_fields, with_fields
from ..public_names import explain_missing_attributes
from .constraints import Constraint
from .law import Law, Shape


def parameter(constraint: Constraint, default: Any = dataclasses.MISSING) -> Any:
    """A field of a distribution that must lie in a set."""
    return dataclasses.field(default=default, metadata={"constraint": constraint, "rank": constraint.rank})


def ranked(rank: int) -> Any:
    """A field of a class with a constructor of its own: so many of its last axes are one parameter."""
    return dataclasses.field(metadata={"rank": rank})


class Distribution(ABC):
    """A distribution: a value whose parameters are arrays, a tree for every transform.

    Its parameters broadcast to `batch_shape`; `event_shape` is the shape of one draw. Samples have the shape
    `sample shape + batch shape + event shape`.
    """

    @abstractmethod
    def law(self) -> Law:
        """What the family states about itself."""

    def __post_init__(self) -> None:
        fields = [f for f in dataclasses.fields(self) if "constraint" in f.metadata]  # type: ignore[arg-type]
        for field in fields:
            value = as_value(getattr(self, field.name))
            value = float(value) if isinstance(value, int) else value
            set_fields(self, {field.name: value})
            check_parameter(type(self).__name__, field.name, value, field.metadata["constraint"])
        if fields:
            set_parameters(self, {})

    def _stated_law(self) -> Law:
        """The law; zeros among probabilities have infinite logarithms, which are no reason to warn."""
        with np.errstate(all="ignore"):
            return self.law()

    def _law_beside(self, value: Any) -> Law:
        """The law beside a value: if all parameters are Python numbers, they have its dtype (a function of a number
        alone would be a float64, and so would a density of float32 values).
        """
        found = spec_of(value)
        is_narrow = found.weak is None and found.inexact and found.dtype != np.float64 and found.device == "cpu"
        shown: Any = cast_numbers(self, found.dtype) if is_narrow and not float_arrays_of(self) else self
        return shown._stated_law()  # type: ignore[no-any-return]

    @property
    def batch_shape(self) -> Shape:
        """The shape of independent distributions that the parameters make together."""
        return self._stated_law().batch_shape

    @property
    def event_shape(self) -> Shape:
        """The shape of a single draw of one of them."""
        return self._stated_law().event_shape

    @property
    def support(self) -> Constraint:
        """Where the density is not zero."""
        return self._stated_law().support

    @property
    def dtype(self) -> Any:
        """The dtype of draws: that of the parameters which are floating-point arrays, else float64."""
        strong = float_arrays_of(self)
        return result_dtype(strong) if strong else np.dtype("float64")

    @property
    def has_rsample(self) -> bool:
        """Whether draws move smoothly with the parameters."""
        law = self._stated_law()
        return law.moves and law.draw is not None

    @property
    def has_enumerate_support(self) -> bool:
        """Whether `enumerate_support` has all its values."""
        return self._stated_law().values is not None

    def log_prob(self, value: Any) -> Any:
        """The logarithm of the density, or of the probability, at a value; minus infinity outside the support."""
        value = as_value(value)
        law = self._law_beside(value)
        x = self._as_point(value, law)
        with np.errstate(all="ignore"):
            if law.support.outside is None:
                return law.log_density(x)
            outside = law.support.outside(x)
            if not law.support.rank:
                outside = logical_or(outside, isinf(x))
            return where(outside, -math.inf, law.log_density(_replace_outside(outside, x, law)))

    def prob(self, value: Any) -> Any:
        """The density, or the probability, at a value."""
        return exp(self.log_prob(value))

    @explains_arguments("sample")
    def sample(self, shape: Any = (), *, key: Any = None) -> Any:
        """Draws that are constants. Refused while a parameter carries a derivative, which would be lost: use `rsample`
        for draws that move with the parameters, or `detach().sample` where constants are meant.
        """
        what = f"{type(self).__name__}.sample"
        return map_leaves(functools.partial(held, what), self)._draw("sample", shape, key)

    @explains_arguments("rsample")
    def rsample(self, shape: Any = (), *, key: Any = None) -> Any:
        """Draws that move smoothly with the parameters, for derivatives of expectations."""
        law = self._stated_law()
        if not law.moves:
            raise UnsupportedFunction(
                f"{type(self).__name__}.rsample: draws jump as the parameters move, so they have no derivative.\n"
                "  Use pb.distributions.score_function, straight_through or relaxed (Gumbel-softmax) for derivatives "
                "of an expectation, and sample for draws."
            )
        return self._draw("rsample", shape, key)

    def _draw(self, method: str, shape: Any, key: Any) -> Any:
        law = self._stated_law()
        if law.draw is None:
            raise UnsupportedFunction(f"{type(self).__name__}.{method}: no sampler for this distribution.")
        what = f"{type(self).__name__}.{method}"
        size = (*as_shape(shape, what), *law.batch_shape)
        if min(size, default=0) < 0:
            raise ShapeError(f"{what}: a shape has no negative numbers, got {shape}.")
        with np.errstate(all="ignore"):
            return law.draw(size, key_on_device(key, self._device(), method), self.dtype)

    def _device(self) -> str | None:
        """Where the parameters lie, and draws will; None if they are numbers."""
        specs = [spec_of(leaf) for leaf in flatten(self)[0]]
        return next((s.device for s in specs if s.weak is None), None)

    @property
    def mean(self) -> Any:
        """The expectation; NaN or infinite where it is not defined or not finite."""
        return self._constant("mean")

    @property
    def variance(self) -> Any:
        """The variance of each element; NaN or infinite where it is not defined or not finite."""
        return self._constant("variance")

    @property
    def stddev(self) -> Any:
        """The standard deviation of each element."""
        return sqrt(self.variance)

    @property
    def mode(self) -> Any:
        """Where the density is greatest."""
        return self._constant("mode")

    def entropy(self) -> Any:
        """The expectation of minus log_prob: of a discrete distribution its entropy, else the differential one."""
        law = self._stated_law()
        with np.errstate(all="ignore"):
            return self._fill(self._stated(law, "entropy")(), law.batch_shape)

    def perplexity(self) -> Any:
        """The exponential of the entropy: of so many equal choices the entropy would be the same."""
        return exp(self.entropy())

    def cdf(self, value: Any) -> Any:
        """The probability of a draw that is not above the value."""
        value = as_value(value)
        law = self._law_beside(value)
        cdf, x = self._stated(law, "cdf"), self._as_point(value, law)
        with np.errstate(all="ignore"):
            # the ends of the support decide, wherever the value lies: not between integers too
            low, above = law.support.low, x >= law.support.high
            below = x <= low if isinstance(low, float) and math.isinf(low) else x < low
            if law.support.outside is not None:  # an end that does not belong to it
                below = logical_or(below, logical_and(x <= low, law.support.outside(x)))
            inner = where(logical_or(below, above), astype(as_value(law.inside), spec_of(x).dtype), x)
            return where(below, 0.0, where(above, 1.0, cdf(inner)))

    def icdf(self, value: Any) -> Any:
        """The value that a draw does not exceed with this probability: the inverse of `cdf`."""
        p = as_value(value)
        law = self._law_beside(p)
        icdf, p = self._stated(law, "icdf"), self._as_floats(p)
        with np.errstate(all="ignore"):
            outside = logical_or(p < 0, p > 1)
            return where(outside, math.nan, icdf(where(outside, 0.5, p)))

    def enumerate_support(self, expand: bool = True) -> Any:
        """All values of a distribution that has finitely many, along a new first axis; for each of the batch, or once
        with axes of size one in its place.
        """
        law = self._stated_law()
        if law.values is None:
            raise UnsupportedFunction(f"{type(self).__name__}.enumerate_support: its values are not finitely many.")
        values = as_value(law.values())
        count = spec_of(values).shape[:1]
        lead = law.batch_shape if expand else (1,) * len(law.batch_shape)
        once = reshape(values, (*count, *(1,) * len(law.batch_shape), *law.event_shape))
        return astype(broadcast_to(once, (*count, *lead, *law.event_shape)), self.dtype)

    def expand(self, batch_shape: Any) -> Any:
        """The same distribution with parameters that are broadcast to a larger batch, whose draws are independent."""
        wanted = as_shape(batch_shape, f"{type(self).__name__}.expand")
        try:
            fits = np.broadcast_shapes(self.batch_shape, wanted) == wanted
        except ValueError:
            fits = False
        if not fits:
            raise ShapeError(
                f"{type(self).__name__}.expand: batches of shape {self.batch_shape} do not broadcast to {wanted}."
            )
        return self._expand_to(wanted)

    def _expand_to(self, batch: Shape) -> Any:
        def widen(x: Any, rank: int) -> Any:
            own = spec_of(x).shape
            return broadcast_to(x, (*batch, *own[len(own) - rank :]))

        parts = {}
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            part, rank = getattr(self, field.name), field.metadata.get("rank")
            # a field without a rank belongs to the structure
            parts[field.name] = part if rank is None else map_tree(lambda x: widen(as_value(x), rank), part)  # noqa: B023
        return with_fields(self, parts)

    def detach(self) -> Any:
        """The same distribution with parameters that are constants to every derivative."""
        return hold_constant(self)

    def _constant(self, name: str) -> Any:
        law = self._stated_law()
        with np.errstate(all="ignore"):
            return self._fill(self._stated(law, name)(), (*law.batch_shape, *law.event_shape))

    def _fill(self, constant: Any, shape: Shape) -> Any:
        """A constant of the law for each element; one that follows from numbers lies where the parameters do."""
        wide = broadcast_to(as_value(constant), shape)
        devices = [d for leaf in flatten(self)[0] if (d := spec_of(leaf).device) != "cpu"]
        return astype(move(wide, devices[0]) if devices and spec_of(wide).device == "cpu" else wide, self.dtype)

    def _stated(self, law: Law, name: str) -> Any:
        found = getattr(law, name)
        if found is None:
            raise UnsupportedFunction(f"{type(self).__name__}.{name}: there is no formula for it.")
        return found

    def _as_point(self, value: Any, law: Law) -> Any:
        """A value as floating-point numbers, of a shape that fits."""
        name, found = type(self).__name__, spec_of(value)
        if found.dtype.kind not in "biuf":
            raise ArgumentError(f"{name}: a value must be real, got {found}.")
        rank = len(law.event_shape)
        if rank and (found.shape[-rank:] != law.event_shape):
            raise ShapeError(f"{name}: a value has shape {law.event_shape} at the end, got {found.shape}.")
        outer = found.shape[: len(found.shape) - rank]
        try:
            np.broadcast_shapes(outer, law.batch_shape)
        except ValueError:
            raise ShapeError(
                f"{name}: a value of shape {found.shape} does not fit batches {law.batch_shape}."
            ) from None
        return self._as_floats(value)

    def _as_floats(self, value: Any) -> Any:
        """Python numbers and integers in the dtype of the parameters."""
        found = spec_of(value)
        return value if found.inexact and found.weak is None else astype(value, self.dtype)


explain_missing_attributes(
    Distribution,
    "Distribution",
    """
    arg_constraints base_dist component_distribution covariance fit interval isf logcdf logpdf logpmf logsf median
    mixture_distribution moment param_shape pdf pmf ppf quantile reinterpreted_batch_ndims rvs sample_n
    set_default_validate_args sf std survival_function to_event transforms validate_sample var
    """,
)


def _replace_outside(outside: Any, x: Any, law: Law) -> Any:
    """x, with a point of the support wherever it is outside: neither value nor derivative there is to be seen."""
    for _ in range(law.support.rank):
        outside = expand_dims(outside, axis=-1)
    return where(outside, astype(as_value(law.inside), spec_of(x).dtype), x)


def check_distribution(what: str, x: Any) -> None:
    """Refuse what is no distribution."""
    if not isinstance(x, Distribution):
        raise ArgumentError(f"{what}: wants a distribution, got {short_repr(x)}.")


def sample_count(samples: Any, what: str) -> int:
    """How many draws a mean is to be taken over: one or more."""
    count = as_integer(samples, f"{what}: samples")
    if count < 1:
        raise ArgumentError(f"{what}: samples must be 1 or more, got {count}.")
    return count


def check_parameter(family: str, name: str, value: Any, constraint: Constraint) -> None:
    """Refuse a parameter outside of its set, where its elements are known; those of a transform are not."""
    found = spec_of(value)
    if found.dtype.kind not in "biuf":
        raise ArgumentError(f"{family}: {name} must be real, got {found}.")
    if len(found.shape) < constraint.rank:
        raise ShapeError(f"{family}: {name} needs {constraint.rank} axes or more, got shape {found.shape}.")
    known = strip_derivatives(value)
    if not isinstance(known, np.ndarray | int | float):
        return
    with np.errstate(all="ignore"):
        good = np.asarray(constraint.check(known))
    if not good.all():
        wrong = known if np.ndim(known) == 0 or constraint.rank else np.asarray(known)[~good].ravel()[0].item()
        raise ArgumentError(f"{family}: {name} must be in: {constraint.name}; got {short_repr(wrong)}.")


def set_parameters(distribution: Distribution, values: dict[str, Any]) -> None:
    """Set fields, then see to it that all fit together."""
    set_fields(distribution, values)
    align_dtypes(distribution)
    check_broadcast(distribution)


def float_arrays_of(tree: Any) -> list[Any]:
    """The specs of the floating-point arrays of a tree: Python numbers have no dtype to ask for."""
    return [s for s in map(spec_of, flatten(tree)[0]) if s.weak is None and s.inexact]


def align_dtypes(distribution: Distribution) -> None:
    """Python numbers in the dtype of the array parameters beside them: a function of a number alone is a float64."""
    arrays = float_arrays_of(distribution)
    if arrays and all(s.device == "cpu" for s in arrays):
        set_fields(distribution, vars(cast_numbers(distribution, result_dtype(arrays))))


def cast_numbers(tree: Any, dtype: Any) -> Any:
    """The tree with Python's floating-point numbers, those of a transform too, as arrays of a dtype."""

    def cast(x: Any) -> Any:
        found = spec_of(x)
        return astype(x, dtype) if found.inexact and found.weak is not None else x

    return map_leaves(cast, tree)


def check_broadcast(distribution: Distribution) -> None:
    """Refuse parameters whose shapes do not broadcast."""
    try:
        distribution.law()
    except ValueError as error:
        shapes = {
            f.name: next(spec_of(leaf).shape for leaf in flatten(getattr(distribution, f.name))[0])
            for f in dataclasses.fields(distribution)  # type: ignore[arg-type]
        }
        raise ShapeError(f"{type(distribution).__name__}: parameters do not fit together: {shapes}.") from error
