"""Attention as one op, and its gradients as another, which compiled code on a GPU does with scores kept on the chip.

Elsewhere, and for derivatives of the gradients, both are computed in bands of queries.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...arrays.scope import outside_transforms
from ...arrays.spec import Spec, make_spec, spec_of, zeros
from ...ops import batching
from ...ops.dispatch import apply, shape
from ...ops.forms import Attend
from ...ops.op import Formula, Op
from ...ops.shape.reshaping import broadcast_to
from ...transforms.forward import jvp
from ...transforms.reverse import vjp
from .blockwise import AttentionConfig, attend_block, block_ranges, pull_bands, push_bands, query_block

#: Widths that the GPU's code has, the least length that is worth it, and the queries of a band elsewhere.
_WIDTHS, _MIN_LENGTH, _BAND = (32, 64), 512, 512


def can_stay_on_chip(xs: Sequence[Any], extras: Sequence[str]) -> bool:
    """Whether a GPU's code takes the arguments: of float32, without masks, alike but for their length."""
    specs = [spec_of(x) for x in xs]
    q, *others = specs
    alike = all((*s.shape[:-2], s.shape[-1]) == (*q.shape[:-2], q.shape[-1]) for s in others)
    is_float32 = all(s.dtype.name == "float32" for s in specs)
    long = min(s.shape[-2] for s in specs) >= _MIN_LENGTH
    return q.device != "cpu" and not extras and alike and is_float32 and long and q.shape[-1] in _WIDTHS


def attend_on_chip(q: Any, k: Any, v: Any, scale: float, is_causal: bool) -> Any:
    return apply(_attend, q, k, v, scale=scale, is_causal=is_causal)


def _rule_of(scale: float, is_causal: bool) -> AttentionConfig:
    return AttentionConfig(scale, is_causal, 0.0, ())


def _value(xp: Any, *xs: Any, scale: float, is_causal: bool) -> Any:
    rule = _rule_of(scale, is_causal)
    with outside_transforms():
        parts = [attend_block(query_block(xs, rule, *ends), rule) for ends in block_ranges(xs, _BAND)]
    return xp.concatenate(parts, axis=-2)


def _spec(q: Spec, k: Spec, v: Spec, scale: float, is_causal: bool) -> Spec:
    return make_spec(q.shape, q.dtype, q.device)


def _pull(bar: Any, q: Any, k: Any, v: Any, scale: float, is_causal: bool) -> Any:
    return apply(_gradients, bar, q, k, v, scale=scale, is_causal=is_causal)


def _push(tangents: Sequence[Any], out: Any, xs: Sequence[Any], static: dict[str, Any]) -> Any:
    return push_bands(tangents, xs, _rule_of(**static), _BAND)


def _pull_in_bands(bar: Any, *xs: Any, scale: float, is_causal: bool) -> tuple[Any, ...]:
    return tuple(pull_bands(bar, xs, _rule_of(scale, is_causal), _BAND))


def _gradients_value(xp: Any, *xs: Any, **static: Any) -> tuple[Any, ...]:
    with outside_transforms():
        return _pull_in_bands(*xs, **static)


def _gradients_spec(bar: Spec, q: Spec, k: Spec, v: Spec, scale: float, is_causal: bool) -> tuple[Spec, ...]:
    return tuple(make_spec(s.shape, s.dtype, s.device) for s in (q, k, v))


def _gradients_pull(bar: Any, xs: Any, static: dict[str, Any]) -> Any:
    given = tuple(zeros(b) if isinstance(b, Spec) else b for b in bar)
    return vjp(lambda *xs: _pull_in_bands(*xs, **static), *xs)[1](given)


def _gradients_push(tangents: Sequence[Any], out: Any, xs: Sequence[Any], static: dict[str, Any]) -> Any:
    filled = tuple(zeros(spec_of(x)) if t is None else t for t, x in zip(tangents, xs, strict=True))
    return jvp(lambda *xs: _pull_in_bands(*xs, **static), tuple(xs), filled)[1]


def _batch(op: Op, size: int, xs: Sequence[Any], axes: Sequence[int | None], static: dict[str, Any]) -> Any:
    """The batch axis in front of all others."""
    led = [
        broadcast_to(x, (size, *shape(x))) if axis is None else batching.move_batch_first(x, axis)
        for x, axis in zip(xs, axes, strict=True)
    ]
    out = apply(op, *led, **static)
    return (out, (0,) * len(out)) if type(out) is tuple else (out, 0)


_attend = Op(
    name="attention_on_chip", family="general", args=("q", "k", "v"), value=_value, spec=_spec, pulls={}, push=_push,
    batch=_batch, samples=lambda rng: [], form=Attend("attend"),
    joint=Formula(_pull, ("bar", "q", "k", "v", "scale", "is_causal")),
)  # fmt: skip
_gradients = Op(
    name="attention_on_chip_gradients", family="general", args=("*xs",), value=_gradients_value,
    spec=_gradients_spec, pulls={}, push=_gradients_push, batch=_batch, samples=lambda rng: [],
    form=Attend("attend_back"), joint=Formula(_gradients_pull, ("bar", "xs", "static")),
)  # fmt: skip
