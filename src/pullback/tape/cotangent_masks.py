"""Masks of cotangents: where a share can be nonzero, given where the cotangent can, without computing the products.

The mask of a share is that of the product with ones for the other arguments. Along an axis
that the share lacks, only whether the mask holds anywhere matters; along one that the cotangent
lacks, it is the same everywhere. So the product need not run over axes of either kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..arrays.spec import Spec, make_spec, ones, spec_of
from ..ops.elementwise import pointwise
from ..ops.forms import Contract, Convolve
from ..ops.op import MaskedCotangent, PullRule
from ..ops.placement import move
from ..ops.reduce import reductions
from ..ops.reduce.reductions import any_to, fit_to_spec
from ..ops.shape.reshaping import astype, broadcast_checked, permute_dims, reshape
from .cotangents import ResultCotangents, strip_mask

#: The first two axes of the arrays of a convolution: images, channels and filters. Those in capitals lie in groups.
_CONVOLUTION_AXES = {"x": "nC", "w": "Fc", "y": "nF"}


class RuleCall(NamedTuple):
    """A rule, and what it was recorded with: the result and the arguments that were saved (specs for the others)."""

    rule: PullRule
    out: Any
    args: list[Any]
    specs: tuple[Spec, ...]
    static: dict[str, Any]

    def shares(self, positions: Sequence[int], bar: Any) -> list[Any]:
        return self.rule.shares(positions, bar, self.out, self.args, self.specs, self.static)

    def share(self, position: int, bar: Any) -> Any:
        return strip_mask(self.rule.share(position, bar, self.out, self.args, self.specs, self.static))


def cotangent_mask(bar: Any) -> Any:
    """Where a cotangent can be nonzero, in its own shape; None for everywhere."""
    if type(bar) is ResultCotangents:
        bars = bar.bars
        masks = [None if b is None else cotangent_mask(b) for b in bars]
        whole = any(b is not None and m is None for b, m in zip(bars, masks, strict=True))
        return None if whole else tuple(masks)
    return _broadcast_mask(bar) if type(bar) is MaskedCotangent else None


def _broadcast_mask(masked: MaskedCotangent) -> Any:
    """A mask in the shape of its cotangent, and where that lies: one boolean of the host may mask an array of a GPU."""
    bar = spec_of(masked.bar)
    return broadcast_checked(move(masked.mask, bar.device), bar.shape)


def pull_masked(call: RuleCall, positions: Sequence[int], bar: Any, mask: Any) -> list[Any]:
    """The shares of a masked cotangent: computed everywhere, but valid only where their masks hold."""
    # the shares themselves, not only their masks, are sums over masked places
    if call.rule.op.family == "contraction":
        call = _zero_untouched(call, mask)
    shares = zip(positions, call.shares(positions, bar), strict=True)
    return [None if share is None else _mask_share(call, position, share, mask) for position, share in shares]


def fit_share(share: Any, spec: Spec) -> Any:
    """A share summed over broadcast axes and cast, as its argument has it; its mask likewise."""
    if type(share) is not MaskedCotangent:
        return fit_to_spec(share, spec)
    # summed over broadcast axes, a share is nonzero where any summand is
    mask = _broadcast_mask(share)
    return MaskedCotangent(
        fit_to_spec(share.bar, spec), mask if spec_of(mask).shape == spec.shape else any_to(mask, spec.shape)
    )


def _mask_share(call: RuleCall, position: int, share: Any, mask: Any) -> Any:
    by_labels = spec_of(strip_mask(share)).ndim == call.specs[position].ndim
    mask = propagate_mask(call, mask, position, by_labels)
    valid = MaskedCotangent(pointwise.where(mask, strip_mask(share), 0), mask)
    if type(share) is not MaskedCotangent:
        return valid
    return MaskedCotangent(valid.bar, pointwise.logical_and(mask, share.mask))


def propagate_mask(call: RuleCall, mask: Any, position: int, by_labels: bool = True) -> Any:
    """Where the share of an argument can be nonzero, given where the cotangent can. With `by_labels` the share has the
    axes of its argument.
    """
    op, specs = call.rule.op, call.specs
    if op.family == "elementwise":
        return mask
    if by_labels and isinstance(op.form, Contract):
        labels, result = op.form.equation(specs, call.static)
        return _propagate_by_labels(mask, result, labels[position], specs[position].shape)
    if isinstance(op.form, Convolve):
        return _propagate_convolution(call, mask, position)
    if op.family == "contraction":  # a product with ones is nonzero wherever the mask meets it
        mask = astype(mask, specs[position].dtype)
        call = call._replace(args=[ones(s) for s in specs])
    found = call.share(position, mask)
    return found if spec_of(found).dtype.kind == "b" else pointwise.not_equal(found, 0)


def _zero_untouched(call: RuleCall, mask: Any) -> RuleCall:
    """The arguments of a contraction with zero where no cotangent meets them: a sum over masked places would meet
    0 * NaN there.
    """
    count = call.rule.count
    every = call._replace(rule=call.rule.op.rule(tuple(range(count)), count), out=None)
    found = list(call.args)
    for i in call.rule.keeps:
        met, shape = propagate_mask(every, mask, i), call.specs[i].shape
        found[i] = pointwise.where(met if spec_of(met).shape == shape else any_to(met, shape), call.args[i], 0)
    return call._replace(args=found)


def _propagate_by_labels(mask: Any, result: str, label: str, sizes: tuple[int, ...]) -> Any:
    # axes that the share lacks are summed: nonzero if anything along them is
    gone = tuple(i for i, c in enumerate(result) if c not in label)
    left = [c for c in result if c in label]
    mask = permute_dims(reductions.any(mask, axis=gone), tuple(left.index(c) for c in label if c in left))
    kept = iter(spec_of(mask).shape)
    thin = tuple(next(kept) if c in left else 1 for c in label)
    wide = tuple(m if c in left else n for c, m, n in zip(label, thin, sizes, strict=True))
    return broadcast_checked(reshape(mask, thin), wide)


def _propagate_convolution(call: RuleCall, mask: Any, position: int) -> Any:
    """Windows must be computed, but with one channel for each group, one filter or one image."""
    op, specs, groups = call.rule.op, call.specs, call.static["groups"]
    result, wanted = _CONVOLUTION_AXES[op.form.result], _CONVOLUTION_AXES[op.argument(position)]
    for axis, label in enumerate(result):
        if label.lower() not in wanted.lower():
            parts = groups if label.isupper() else 1
            mask = reductions.any(_split_groups(mask, axis, parts), axis=axis + 1)
    # one element for each axis that does not matter: windows alone are computed in full
    thin = []
    for i, spec in enumerate(specs):
        lead = tuple(groups if label.isupper() else 1 for label in _CONVOLUTION_AXES[op.argument(i)])
        thin.append(ones(make_spec((*lead, *spec.shape[2:]), spec.dtype, spec.device)))
    found = call._replace(out=None, args=thin).share(position, astype(mask, specs[position].dtype))
    found = pointwise.not_equal(found, 0)
    # an axis that the cotangent lacks: the mask is the same all along it
    for axis, label in enumerate(wanted):
        if label.lower() not in result.lower():
            whole = specs[position].shape
            sizes = (*whole[:axis], *_group_sizes(whole[axis], groups if label.isupper() else 1), *whole[axis + 1 :])
            shape = spec_of(found).shape
            found = reshape(found, (*shape[: axis + 1], 1, *shape[axis + 1 :]))
            found = reshape(broadcast_checked(found, sizes), whole)
    return found


def _split_groups(mask: Any, axis: int, parts: int) -> Any:
    """An axis as two: the groups, and what is in one of them."""
    sizes = spec_of(mask).shape
    return reshape(mask, (*sizes[:axis], *_group_sizes(sizes[axis], parts), *sizes[axis + 1 :]))


def _group_sizes(size: int, parts: int) -> tuple[int, int]:
    return parts, size // parts
