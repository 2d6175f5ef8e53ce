"""Node and cotangent in, shares of its parents out: one step of the chain rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..arrays.backends import is_array
from ..arrays.node import Node
from ..arrays.protect import settled
from ..arrays.spec import spec_of
from ..arrays.tensor import Tensor, wrap
from ..arrays.value import Value
from ..errors import AnomalyError, GraphError
from ..ops import elementwise as pointwise
from ..ops.keeping import Kept
from ..ops.op import OUT, Rule, Selected
from ..ops.record import PartRule, part_of
from ..ops.shaping import any_to, fit, stretched
from .cotangents import Parts, plain_bar
from .masks import moved, touched

__all__ = ["check_finite", "freed", "pull"]


def pull(
    node: Node, bar: Any, wanted: Callable[[Node], bool] | None, linked: bool, watched: bool = False
) -> tuple[Any, ...]:
    """The shares of a node's parents, each in its parent's shape and dtype; None where there is none.

    With `linked`, kept values come back as tensors on the graph they were on, so that the result can be
    differentiated again. With `watched`, the rule runs on tensors that are on no graph, so that an observer sees each
    op of it; a user's own rule gets what it always gets.
    """
    kept = node.kept  # read once: another thread's pass over the same graph may release it
    if kept is None:
        raise freed(node)
    if type(node.rule) is PartRule:
        return (Parts(node.rule.index, len(node.parents[0].spec), bar),)
    rule: Rule = node.rule
    specs, static = (node.call.specs, node.call.static) if node.call else ((node.spec,) * rule.count, {})
    out, args = _kept_values(node, kept, rule, specs, linked)
    mask = _mask_of(bar) if rule.op.motion else None
    bar = _bars(bar, node) if type(bar) is Parts else plain_bar(bar)
    if mask is not None and rule.op.motion == "contract":
        args = touched(mask, rule, args, specs, static)
    watched = watched and not linked and rule.op.joint is None
    watched = watched and not any(isinstance(x, Value) for x in (bar if type(bar) is tuple else (bar, *args)))
    if watched:
        bar, out, args = _in_sight(bar), _in_sight(out), [_in_sight(x) for x in args]
    needs = rule.needs
    asked = needs if wanted is None else [i for i, p in zip(needs, node.parents, strict=True) if wanted(p)]
    shares = []
    for position, share in zip(asked, rule.shares(asked, bar, out, args, specs, static), strict=True):
        if mask is not None and share is not None:
            by_labels = spec_of(plain_bar(share)).ndim == specs[position].ndim
            share = _narrowed(share, moved(mask, rule, position, out, args, specs, static, by_labels))
        share = None if share is None else _fitted(share, specs[position])
        shares.append(_out_of_sight(share) if watched else share)
    if len(shares) == len(needs):
        return tuple(shares)
    found = dict(zip(asked, shares, strict=True))
    return tuple([found.get(position) for position in needs])


def _in_sight(x: Any) -> Any:
    """A bare array as a tensor on no graph."""
    if type(x) is tuple:
        return tuple([_in_sight(part) for part in x])
    return wrap(x, spec_of(x)) if is_array(x) else x


def _out_of_sight(x: Any) -> Any:
    if type(x) is Selected:
        return Selected(_out_of_sight(x.bar), _out_of_sight(x.mask))
    return x.value if type(x) is Tensor else x


def _bars(parts: Parts, node: Node) -> tuple[Any, ...]:
    """The cotangents of several results; a joint rule finds the spec where there is none."""
    bars = parts.bars
    absent = node.spec if node.rule.op.joint is not None else (None,) * len(bars)
    return tuple(spec if b is None else plain_bar(b) for b, spec in zip(bars, absent, strict=True))


def _kept_values(
    node: Node, kept: tuple[Any, ...], rule: Rule, specs: tuple[Any, ...], linked: bool
) -> tuple[Any, list[Any]]:
    """The result and the arguments as the rule sees them; what it did not ask to keep stands as its spec."""
    args, out = list(specs), None
    for position, value in zip(rule.keeps, kept, strict=True):
        if type(value) is tuple:
            value = tuple([_brought_back(part, True) for part in value])
        elif isinstance(value, Kept):
            value = _brought_back(value, linked or len(kept) > 1)
        if position == OUT:
            out = _linked_result(node, value) if linked else value
        else:
            tracked = linked and position in rule.needs
            args[position] = wrap(value, spec_of(value), node.parents[rule.needs.index(position)]) if tracked else value
    return out, args


def _brought_back(kept: Any, settle: bool) -> Any:
    if not isinstance(kept, Kept):
        return kept
    value = kept.value()
    return settled(value) if settle and kept.lends else value


def _linked_result(node: Node, value: Any) -> Any:
    if type(value) is tuple:
        return tuple(wrap(v, spec_of(v), part_of(node, i, spec_of(v))) for i, v in enumerate(value))
    return wrap(value, spec_of(value), node)


def _mask_of(bar: Any) -> Any:
    """Where a cotangent can be other than zero, in its own shape; None for everywhere."""
    if type(bar) is Parts:
        bars = bar.bars
        masks = [None if b is None else _mask_of(b) for b in bars]
        whole = any(b is not None and m is None for b, m in zip(bars, masks, strict=True))
        return None if whole else tuple(masks)
    return stretched(bar.mask, spec_of(bar.bar).shape) if type(bar) is Selected else None


def _narrowed(share: Any, mask: Any) -> Any:
    """A share of a selected cotangent: computed everywhere, but there only where the mask holds."""
    if type(share) is Selected:
        return Selected(pointwise.where(mask, share.bar, 0), pointwise.logical_and(mask, share.mask))
    return Selected(pointwise.where(mask, share, 0), mask)


def _fitted(share: Any, spec: Any) -> Any:
    if type(share) is not Selected:
        return fit(share, spec)
    mask = stretched(share.mask, spec_of(share.bar).shape)
    return Selected(fit(share.bar, spec), mask if spec_of(mask).shape == spec.shape else any_to(mask, spec.shape))


def freed(node: Node) -> GraphError:
    if node.call is not None and node.call.is_update:
        return GraphError(
            "backward: a parameter was updated in place while the tape was recording, so the update became part of the "
            f"next step's graph, and an earlier backward freed it.\n  updated at {node.where()}\n"
            "  Put the update under `with pb.no_grad():`, or use an optimizer of pb.optim."
        )
    return GraphError(
        f"backward: this graph was freed; what {node.name} kept was released by an earlier backward.\n"
        f"  made at {node.where()}\n"
        "  Pass retain_graph=True to the earlier backward, or compute the output anew."
    )


def _numbers_of(x: Any) -> Any:
    """The bare array below tapes, duals and batches; None where there are no numbers, as in a program being traced."""
    while isinstance(x, Value):
        x = getattr(x, "value", getattr(x, "primal", None))
    return x if is_array(x) else None


def check_finite(node: Node, shares: tuple[Any, ...], nan_only: bool) -> None:
    """Raise at the first NaN (or infinity) among the shares of a node."""
    for i, share in enumerate(shares):
        value = _numbers_of(plain_bar(share))
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
