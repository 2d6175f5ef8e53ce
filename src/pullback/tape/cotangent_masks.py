"""Masks of cotangents: where a share can be nonzero, given where the cotangent can, without computing the products.

The mask of a share is that of the product with ones for the other arguments. Along an axis
that the share lacks, only whether the mask holds anywhere matters; along one that the cotangent
lacks, it is the same everywhere. So the product need not run over axes of either kind.
"""

from __future__ import annotations

from typing import Any

from ..arrays.spec import make_spec, ones, spec_of
from ..ops.elementwise import pointwise
from ..ops.forms import Contract, Convolve
from ..ops.op import PullRule
from ..ops.reduce import reductions
from ..ops.reduce.reductions import any_to
from ..ops.shape.reshaping import astype, broadcast_checked, permute_dims, reshape
from .cotangents import strip_mask

#: The first two axes of the arrays of a convolution: images, channels and filters. Those in capitals lie in groups.
_CONVOLUTION_AXES = {"x": "nC", "w": "Fc", "y": "nF"}


def propagate_mask(
    mask: Any,
    rule: PullRule,
    position: int,
    out: Any,
    args: list[Any],
    specs: tuple[Any, ...],
    static: dict[str, Any],
    by_labels: bool = True,
) -> Any:
    """Where the share of an argument can be nonzero, given where the cotangent can. With `by_labels` the share has the
    axes of its argument.
    """
    if rule.op.motion == "pointwise":
        return mask
    if by_labels and isinstance(rule.op.form, Contract):
        labels, result = rule.op.form.equation(specs, static)
        return _propagate_by_labels(mask, result, labels[position], specs[position].shape)
    if isinstance(rule.op.form, Convolve):
        return _propagate_convolution(mask, rule, position, specs, static)
    if rule.op.motion == "contract":
        mask = astype(mask, specs[position].dtype)
        args = [ones(s) for s in specs]
    found = strip_mask(rule.share(position, mask, out, args, specs, static))
    return found if spec_of(found).dtype.kind == "b" else pointwise.not_equal(found, 0)


def zero_untouched(
    mask: Any, rule: PullRule, args: list[Any], specs: tuple[Any, ...], static: dict[str, Any]
) -> list[Any]:
    """The arguments of a contraction with zero where no cotangent meets them: a sum over masked places would meet
    0 * NaN there.
    """
    every = rule.op.rule(tuple(range(rule.count)), rule.count)
    found = list(args)
    for i in rule.keeps:
        met = propagate_mask(mask, every, i, None, args, specs, static)
        met = met if spec_of(met).shape == specs[i].shape else any_to(met, specs[i].shape)
        found[i] = pointwise.where(met, args[i], 0)
    return found


def _propagate_by_labels(mask: Any, result: str, label: str, sizes: tuple[int, ...]) -> Any:
    gone = tuple(i for i, c in enumerate(result) if c not in label)
    left = [c for c in result if c in label]
    mask = permute_dims(reductions.any(mask, axis=gone), tuple(left.index(c) for c in label if c in left))
    kept = iter(spec_of(mask).shape)
    thin = tuple(next(kept) if c in left else 1 for c in label)
    wide = tuple(m if c in left else n for c, m, n in zip(label, thin, sizes, strict=True))
    return broadcast_checked(reshape(mask, thin), wide)


def _propagate_convolution(
    mask: Any, rule: PullRule, position: int, specs: tuple[Any, ...], static: dict[str, Any]
) -> Any:
    """Windows must be computed, but with one channel for each group, one filter or one image."""
    result, wanted, groups = (
        _CONVOLUTION_AXES[rule.op.form.result],
        _CONVOLUTION_AXES[rule.op.argument(position)],
        static["groups"],
    )
    for axis, label in enumerate(result):
        if label.lower() not in wanted.lower():
            parts = groups if label.isupper() else 1
            mask = reductions.any(_split_groups(mask, axis, parts), axis=axis + 1)
    thin = []
    for i, spec in enumerate(specs):
        lead = tuple(groups if label.isupper() else 1 for label in _CONVOLUTION_AXES[rule.op.argument(i)])
        thin.append(ones(make_spec((*lead, *spec.shape[2:]), spec.dtype, spec.device)))
    found = rule.share(position, astype(mask, specs[position].dtype), None, thin, specs, static)
    found = pointwise.not_equal(strip_mask(found), 0)
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
