"""Where a cotangent can be other than zero in, where the shares of its arguments can be out, without their products.

A mask goes through a sum of products as the mask does in the product with ones for the other arguments. Along an axis
that the share does not have the question is only whether the mask holds anywhere; along one that the cotangent does
not have the answer is the same everywhere. So no axis of either kind need be gone through.
"""

from __future__ import annotations

from typing import Any

from ..arrays.spec import make_spec, ones, spec_of
from ..ops import elementwise as pointwise
from ..ops import reducing
from ..ops.forms import Contract, Convolve
from ..ops.op import Rule
from ..ops.shaping import any_to, astype, permute_dims, reshape, stretched
from .cotangents import plain_bar

__all__ = ["moved", "touched"]

#: The first two axes of the arrays of a convolution: images, channels and filters. Those in capitals lie in groups.
_AXES = {"x": "nC", "w": "Fc", "y": "nF"}


def moved(
    mask: Any,
    rule: Rule,
    position: int,
    out: Any,
    args: list[Any],
    specs: tuple[Any, ...],
    static: dict[str, Any],
    by_labels: bool = True,
) -> Any:
    """Where the share of an argument can be other than zero, given where the cotangent can. `by_labels` says that the
    share has the axes of its argument.
    """
    if rule.op.motion == "pointwise":
        return mask
    if by_labels and isinstance(rule.op.form, Contract):
        labels, result = rule.op.form.equation(specs, static)
        return _along_labels(mask, result, labels[position], specs[position].shape)
    if isinstance(rule.op.form, Convolve):
        return _convolved(mask, rule, position, specs, static)
    if rule.op.motion == "contract":
        mask = astype(mask, specs[position].dtype)
        args = [ones(s) for s in specs]
    found = plain_bar(rule.share(position, mask, out, args, specs, static))
    return found if spec_of(found).dtype.kind == "b" else pointwise.not_equal(found, 0)


def touched(mask: Any, rule: Rule, args: list[Any], specs: tuple[Any, ...], static: dict[str, Any]) -> list[Any]:
    """The arguments of a contraction with zero where no cotangent meets them: a sum over masked places would meet
    0 * NaN there.
    """
    every = rule.op.rule(tuple(range(rule.count)), rule.count)
    found = list(args)
    for i in rule.keeps:
        met = moved(mask, every, i, None, args, specs, static)
        met = met if spec_of(met).shape == specs[i].shape else any_to(met, specs[i].shape)
        found[i] = pointwise.where(met, args[i], 0)
    return found


def _along_labels(mask: Any, result: str, label: str, sizes: tuple[int, ...]) -> Any:
    gone = tuple(i for i, c in enumerate(result) if c not in label)
    left = [c for c in result if c in label]
    mask = permute_dims(reducing.any(mask, axis=gone), tuple(left.index(c) for c in label if c in left))
    kept = iter(spec_of(mask).shape)
    thin = tuple(next(kept) if c in left else 1 for c in label)
    wide = tuple(m if c in left else n for c, m, n in zip(label, thin, sizes, strict=True))
    return stretched(reshape(mask, thin), wide)


def _convolved(mask: Any, rule: Rule, position: int, specs: tuple[Any, ...], static: dict[str, Any]) -> Any:
    """Windows must be gone through, but with one channel for each group, one filter or one image."""
    result, wanted, groups = _AXES[rule.op.form.result], _AXES[rule.op.argument(position)], static["groups"]
    for axis, label in enumerate(result):
        if label.lower() not in wanted.lower():
            parts = groups if label.isupper() else 1
            mask = reducing.any(_grouped(mask, axis, parts), axis=axis + 1)
    thin = []
    for i, spec in enumerate(specs):
        lead = tuple(groups if label.isupper() else 1 for label in _AXES[rule.op.argument(i)])
        thin.append(ones(make_spec((*lead, *spec.shape[2:]), spec.dtype, spec.device)))
    found = rule.share(position, astype(mask, specs[position].dtype), None, thin, specs, static)
    found = pointwise.not_equal(plain_bar(found), 0)
    for axis, label in enumerate(wanted):
        if label.lower() not in result.lower():
            whole = specs[position].shape
            sizes = (*whole[:axis], *_halves(whole[axis], groups if label.isupper() else 1), *whole[axis + 1 :])
            shape = spec_of(found).shape
            found = reshape(found, (*shape[: axis + 1], 1, *shape[axis + 1 :]))
            found = reshape(stretched(found, sizes), whole)
    return found


def _grouped(mask: Any, axis: int, parts: int) -> Any:
    """An axis as two: the groups, and what is in one of them."""
    sizes = spec_of(mask).shape
    return reshape(mask, (*sizes[:axis], *_halves(sizes[axis], parts), *sizes[axis + 1 :]))


def _halves(size: int, parts: int) -> tuple[int, int]:
    return parts, size // parts
