"""One step of the chain rule: a node and its cotangent in, the cotangent shares of its parents out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..arrays.backends import is_array
from ..arrays.node import Node
from ..arrays.origin import Trail, register_reader
from ..arrays.protect import as_immutable
from ..arrays.scope import current_scope
from ..arrays.spec import spec_of
from ..arrays.tensor import wrap
from ..errors import GraphError
from ..ops.op import OUT, PartRule
from ..ops.record import part_node
from ..ops.saved_values import SavedValue
from .cotangent_masks import RuleCall, cotangent_mask, fit_share, pull_masked
from .cotangents import ResultCotangents, strip_mask
from .row_sparse import row_share


def pull(
    node: Node,
    bar: Any,
    wanted: Callable[[Node], bool] | None = None,
    create_graph: bool = False,
    takes_rows: bool = False,
) -> tuple[Any, ...]:
    """The shares of a node's parents, each in its parent's shape and dtype; None where there is none.

    With `create_graph`, saved values are loaded as tensors on their original graph, so that the result can be
    differentiated again. With `takes_rows` a leaf may get the rows of its gradient alone.
    """
    kept = node.kept  # read once: another thread's pass over the same graph may release it
    if kept is None:
        raise freed_graph_error(node)
    # one result of many: its cotangent only takes its place among the others
    if type(node.rule) is PartRule:
        return (ResultCotangents(node.rule.index, len(node.parents[0].spec), bar),)
    rule, needs = node.rule, node.rule.needs
    asked = needs if wanted is None else [i for i, p in zip(needs, node.parents, strict=True) if wanted(p)]
    # a node of the fast path has no call: all arguments have the result's spec, and there are no statics
    specs, static = (node.call.specs, node.call.static) if node.call else ((node.spec,) * rule.count, {})
    out, args = _load_values(node, kept, specs, create_graph)
    mask = cotangent_mask(bar) if rule.carries_masks else None
    whole, bar = bar, _result_bars(bar, node) if type(bar) is ResultCotangents else strip_mask(bar)
    if takes_rows and rule.op.picks_rows and _is_plain_leaf(node.parents[0]) and is_array(strip_mask(bar)):
        return (row_share(bar, args[1], specs[0]),)
    if mask is None:
        shares = rule.shares(asked, bar, out, args, specs, static)
    elif rule.op.masked is not None:
        shares = rule.op.masked(whole.bars if type(whole) is ResultCotangents else (whole,), args, asked)
    else:
        shares = pull_masked(RuleCall(rule, out, args, specs, static), asked, bar, mask)
    shares = [None if s is None else fit_share(s, specs[i]) for i, s in zip(asked, shares, strict=True)]
    # the usual case
    if wanted is None:
        return tuple(shares)
    found = dict(zip(asked, shares, strict=True))
    return tuple(map(found.get, needs))


def _is_plain_leaf(node: Node) -> bool:
    """Whether it is a leaf outside of transforms, which would lower the gradients of theirs at their end."""
    return node.rule is None and current_scope() is None


def _read_pull(trail: Trail, local: Mapping[str, Any]) -> None:
    """An op of a rule comes from the line that made the node."""
    node = local["node"]
    if trail.line is None:
        trail.rules.append(f"the pull of {node.name}")
    trail.adopt(getattr(node.call, "origin", None) or (node.code, node.lasti))


register_reader(pull, _read_pull)


def _result_bars(parts: ResultCotangents, node: Node) -> tuple[Any, ...]:
    """The cotangents of several results; a joint rule gets the spec in place of a missing one."""
    bars = parts.bars
    # a joint rule makes zeros of the spec itself, if it needs any
    absent = node.spec if node.rule.op.joint is not None else (None,) * len(bars)
    return tuple(spec if b is None else strip_mask(b) for b, spec in zip(bars, absent, strict=True))


def _load_values(
    node: Node, kept: tuple[Any, ...], specs: tuple[Any, ...], create_graph: bool
) -> tuple[Any, list[Any]]:
    """The result and the arguments as the rule sees them; a value that it did not save is replaced by its spec."""
    rule, args, out = node.rule, list(specs), None
    for position, value in zip(rule.keeps, kept, strict=True):
        if type(value) is tuple:
            value = tuple([_load_kept(part, True) for part in value])
        elif isinstance(value, SavedValue):
            value = _load_kept(value, create_graph or len(kept) > 1)
        if position == OUT:
            out = _link_result(node, value) if create_graph else value
        else:
            # an argument that has no cotangent is a constant of the rule
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


def freed_graph_error(node: Node) -> GraphError:
    # the usual cause in a training loop, which shows only a step later
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
