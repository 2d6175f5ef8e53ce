"""One step of the chain rule: a node and its cotangent in, the cotangent shares of its parents out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..arrays.backends import is_array
from ..arrays.node import Node
from ..arrays.protect import as_immutable
from ..arrays.spec import spec_of
from ..arrays.tensor import Tensor, wrap
from ..arrays.value import Value, unwrap_array
from ..errors import AnomalyError, GraphError
from ..ops.elementwise import pointwise
from ..ops.op import OUT, MaskedCotangent, PullRule
from ..ops.record import PartRule, part_node
from ..ops.saved_values import SavedValue
from ..ops.shape.reshaping import any_to, broadcast_checked, fit_to_spec
from .cotangent_masks import propagate_mask, zero_untouched
from .cotangents import ResultCotangents, strip_mask


def pull(
    node: Node, bar: Any, wanted: Callable[[Node], bool] | None, create_graph: bool, observed: bool = False
) -> tuple[Any, ...]:
    """The shares of a node's parents, each in its parent's shape and dtype; None where there is none.

    With `create_graph`, saved values are loaded as tensors on their original graph, so that the result can be
    differentiated again. With `observed`, the rule runs on untracked tensors, so that an observer sees each of its
    ops; a custom rule gets its usual arguments.
    """
    kept = node.kept  # read once: another thread's pass over the same graph may release it
    if kept is None:
        raise freed_graph_error(node)
    if type(node.rule) is PartRule:
        return (ResultCotangents(node.rule.index, len(node.parents[0].spec), bar),)
    rule: PullRule = node.rule
    specs, static = (node.call.specs, node.call.static) if node.call else ((node.spec,) * rule.count, {})
    out, args = _kept_values(node, kept, rule, specs, create_graph)
    mask = _cotangent_mask(bar) if rule.op.motion else None
    bar = _result_bars(bar, node) if type(bar) is ResultCotangents else strip_mask(bar)
    if mask is not None and rule.op.motion == "contract":
        args = zero_untouched(mask, rule, args, specs, static)
    observed = observed and not create_graph and rule.op.joint is None
    observed = observed and not any(isinstance(x, Value) for x in (bar if type(bar) is tuple else (bar, *args)))
    if observed:
        bar, out, args = _wrap_for_observer(bar), _wrap_for_observer(out), [_wrap_for_observer(x) for x in args]
    needs = rule.needs
    asked = needs if wanted is None else [i for i, p in zip(needs, node.parents, strict=True) if wanted(p)]
    shares = []
    for position, share in zip(asked, rule.shares(asked, bar, out, args, specs, static), strict=True):
        if mask is not None and share is not None:
            by_labels = spec_of(strip_mask(share)).ndim == specs[position].ndim
            share = _mask_share(share, propagate_mask(mask, rule, position, out, args, specs, static, by_labels))
        share = None if share is None else _fit_share(share, specs[position])
        shares.append(_unwrap_from_observer(share) if observed else share)
    if len(shares) == len(needs):
        return tuple(shares)
    found = dict(zip(asked, shares, strict=True))
    return tuple([found.get(position) for position in needs])


def _wrap_for_observer(x: Any) -> Any:
    """A bare array as an untracked tensor."""
    if type(x) is tuple:
        return tuple([_wrap_for_observer(part) for part in x])
    return wrap(x, spec_of(x)) if is_array(x) else x


def _unwrap_from_observer(x: Any) -> Any:
    if type(x) is MaskedCotangent:
        return MaskedCotangent(_unwrap_from_observer(x.bar), _unwrap_from_observer(x.mask))
    return x.value if type(x) is Tensor else x


def _result_bars(parts: ResultCotangents, node: Node) -> tuple[Any, ...]:
    """The cotangents of several results; a joint rule gets the spec in place of a missing one."""
    bars = parts.bars
    absent = node.spec if node.rule.op.joint is not None else (None,) * len(bars)
    return tuple(spec if b is None else strip_mask(b) for b, spec in zip(bars, absent, strict=True))


def _kept_values(
    node: Node, kept: tuple[Any, ...], rule: PullRule, specs: tuple[Any, ...], create_graph: bool
) -> tuple[Any, list[Any]]:
    """The result and the arguments as the rule sees them; a value that it did not save is replaced by its spec."""
    args, out = list(specs), None
    for position, value in zip(rule.keeps, kept, strict=True):
        if type(value) is tuple:
            value = tuple([_load_kept(part, True) for part in value])
        elif isinstance(value, SavedValue):
            value = _load_kept(value, create_graph or len(kept) > 1)
        if position == OUT:
            out = _link_result(node, value) if create_graph else value
        else:
            tracked = create_graph and position in rule.needs
            args[position] = wrap(value, spec_of(value), node.parents[rule.needs.index(position)]) if tracked else value
    return out, args


def _load_kept(kept: Any, immutable: bool) -> Any:
    if not isinstance(kept, SavedValue):
        return kept
    value = kept.value()
    return as_immutable(value) if immutable and kept.may_be_overwritten else value


def _link_result(node: Node, value: Any) -> Any:
    if type(value) is tuple:
        return tuple(wrap(v, spec_of(v), part_node(node, i, spec_of(v))) for i, v in enumerate(value))
    return wrap(value, spec_of(value), node)


def _cotangent_mask(bar: Any) -> Any:
    """Where a cotangent can be nonzero, in its own shape; None for everywhere."""
    if type(bar) is ResultCotangents:
        bars = bar.bars
        masks = [None if b is None else _cotangent_mask(b) for b in bars]
        whole = any(b is not None and m is None for b, m in zip(bars, masks, strict=True))
        return None if whole else tuple(masks)
    return broadcast_checked(bar.mask, spec_of(bar.bar).shape) if type(bar) is MaskedCotangent else None


def _mask_share(share: Any, mask: Any) -> Any:
    """A share of a masked cotangent: computed everywhere, but valid only where the mask holds."""
    if type(share) is MaskedCotangent:
        return MaskedCotangent(pointwise.where(mask, share.bar, 0), pointwise.logical_and(mask, share.mask))
    return MaskedCotangent(pointwise.where(mask, share, 0), mask)


def _fit_share(share: Any, spec: Any) -> Any:
    if type(share) is not MaskedCotangent:
        return fit_to_spec(share, spec)
    mask = broadcast_checked(share.mask, spec_of(share.bar).shape)
    return MaskedCotangent(
        fit_to_spec(share.bar, spec), mask if spec_of(mask).shape == spec.shape else any_to(mask, spec.shape)
    )


def freed_graph_error(node: Node) -> GraphError:
    if node.call is not None and node.call.is_update:
        return GraphError(
            "backward: a parameter was updated in place while the tape was recording, so the update became part of the "
            f"next step's graph, and an earlier backward freed it.\n  updated at {node.where()}\n"
            "  Put the update under `with pb.no_grad():`, or use an optimizer of pb.optim."
        )
    return GraphError(
        f"backward: this graph was freed; the values saved by {node.name} were released by an earlier backward.\n"
        f"  made at {node.where()}\n"
        "  Pass retain_graph=True to the earlier backward, or compute the output anew."
    )


def check_finite(node: Node, shares: tuple[Any, ...], nan_only: bool) -> None:
    """Raise at the first NaN (or infinity) among the shares of a node."""
    for i, share in enumerate(shares):
        value = unwrap_array(strip_mask(share))
        if value is None:
            continue
        bad = pointwise.isnan(value) if nan_only else pointwise.logical_not(pointwise.isfinite(value))
        if bad.any():
            position = node.rule.needs[i]
            kind = "nan" if pointwise.isnan(value).any() else "inf"
            raise AnomalyError(
                f"backward: the rule of {node.name} returned {kind} for argument {node.rule.op.argument(position)}.\n"
                f"  made at {node.where()}"
            )
