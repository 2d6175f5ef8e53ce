"""Rearranging, reducing and repeating by patterns of named axes: `"b (h w) c -> b c h w"`.

Both sides of the arrow name axes; parentheses merge several to one, `1` is an axis of size one, `...` all that are not
named. The array is split into the elementary axes of the left side, then merged as the right side says.
"""

from __future__ import annotations

import functools
import math
import re
from dataclasses import dataclass
from typing import Any

from ...arrays.call_site import attributed_to_caller
from ...arrays.spec import spec_of
from ...errors import ArgumentError, DtypeError, ShapeError
from ..axes import as_integer
from ..dispatch import as_value, ndim, shape
from ..reduce import reductions
from . import arrange, reshaping

__all__ = ["rearrange", "reduce", "repeat"]

_DOTS = "..."
#: A `...` that is its own group of axes; inside parentheses it is one name of a group.
_DOTS_GROUP = (_DOTS, _DOTS)
_TOKEN = re.compile(r"\s*(\.\.\.|…|[A-Za-z_]\w*|\d+|[()]|\S)")

#: One axis of a side: the names joined in it, none for an axis of size one.
AxisGroup = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pattern:
    """Both sides of a pattern, as groups of names."""

    left: tuple[AxisGroup, ...]
    right: tuple[AxisGroup, ...]


@functools.lru_cache(512)
def parse_pattern(pattern: str) -> Pattern:
    """The groups of both sides of an arrow."""
    left, arrow, right = pattern.partition("->")
    if not arrow or "->" in right:
        raise ArgumentError(f"einops: {pattern!r} must have one '->' between its sides.")
    return Pattern(_parse_side(left, pattern), _parse_side(right, pattern))


def _parse_side(text: str, pattern: str) -> tuple[AxisGroup, ...]:
    groups: list[AxisGroup] = []
    inside: list[str] | None = None
    for token in _TOKEN.findall(text):
        token = _DOTS if token == "…" else token
        if token == "(" and inside is None:
            inside = []
        elif token == ")" and inside is not None:
            groups.append(tuple(inside))
            inside = None
        elif token in "()" or not (token == _DOTS or token.isidentifier() or token.isdigit()):
            raise ArgumentError(f"einops: {pattern!r} has {token!r} where an axis should be.")
        elif inside is not None:
            inside.extend(() if token == "1" else (token,))
        else:
            groups.append(() if token == "1" else _DOTS_GROUP if token == _DOTS else (token,))
    if inside is not None:
        raise ArgumentError(f"einops: {pattern!r} has a parenthesis that is not closed.")
    names = [name for group in groups for name in (group if group != _DOTS_GROUP else (_DOTS,))]
    repeated = sorted({n for n in names if names.count(n) > 1})
    if repeated:
        raise ArgumentError(f"einops: {pattern!r} names {', '.join(repeated)} twice on one side.")
    return tuple(groups)


def _expand_dots(groups: tuple[AxisGroup, ...], extra: int) -> tuple[AxisGroup, ...]:
    """A side with its `...` expanded to that many axes; inside parentheses they are merged with the rest."""
    names = tuple(f"...{i}" for i in range(extra))
    found: list[AxisGroup] = []
    for group in groups:
        if group == _DOTS_GROUP:
            found.extend((name,) for name in names)
        else:
            found.append(tuple(n for part in group for n in (names if part == _DOTS else (part,))))
    return tuple(found)


def _has_dots(groups: tuple[AxisGroup, ...]) -> bool:
    return any(_DOTS in group for group in groups)


def _split_axes(
    x: Any, pattern: str, sizes: dict[str, int]
) -> tuple[Any, list[str], tuple[AxisGroup, ...], dict[str, int]]:
    """x with one axis for each name of the left side; the names; the right side; the size of every name."""
    sides = parse_pattern(pattern)
    dots = _has_dots(sides.left)
    named = len(sides.left) - (_DOTS_GROUP in sides.left)
    extra = ndim(x) - named if _DOTS_GROUP in sides.left else 0
    if extra < 0 or (not dots and named != ndim(x)) or (dots and _DOTS_GROUP not in sides.left):
        raise ShapeError(f"einops: the left side of {pattern!r} does not fit an array of shape {shape(x)}.")
    if _has_dots(sides.right) and not dots:
        raise ArgumentError(f"einops: {pattern!r} has '...' on its right side alone.")
    left, right = _expand_dots(sides.left, extra), _expand_dots(sides.right, extra)
    known = {name: as_integer(n, f"einops: size of {name}") for name, n in sizes.items()}
    strangers = set(known) - {n for group in (*left, *right) for n in group}
    if strangers:
        raise ArgumentError(f"einops: sizes given for {', '.join(sorted(strangers))}, not named in {pattern!r}.")
    for group, n in zip(left, shape(x), strict=True):
        _solve_sizes(group, n, known, pattern)
    names = [name for group in left for name in group]
    return reshaping.reshape(x, tuple(known[name] for name in names)), names, right, known


def _solve_sizes(group: AxisGroup, n: int, known: dict[str, int], pattern: str) -> None:
    """Infer the one unknown size of a group; check the rest."""
    for name in group:
        if name.isdigit():
            raise ArgumentError(f"einops: {pattern!r} has the number {name} on its left side.")
    missing = [name for name in group if name not in known]
    rest = math.prod(known[name] for name in group if name in known)
    if len(missing) > 1:
        raise ArgumentError(f"einops: the sizes of {', '.join(missing)} in {pattern!r} cannot all be inferred.")
    if missing and rest and n % rest == 0:
        known[missing[0]] = n // rest
    elif missing or rest != n:
        raise ShapeError(f"einops: an axis of size {n} does not fit ({' '.join(group) or '1'}) in {pattern!r}.")


def _join_axes(x: Any, names: list[str], right: tuple[AxisGroup, ...], known: dict[str, int]) -> Any:
    """Axes in the order of the right side, joined as its groups say."""
    order = tuple(names.index(name) for group in right for name in group)
    x = reshaping.permute_dims(x, order)
    return reshaping.reshape(x, tuple(math.prod(known[name] for name in group) for group in right))


def _one_sided_names(left: list[str], right: tuple[AxisGroup, ...]) -> tuple[list[str], list[str]]:
    """Names on the left side alone, and on the right side alone."""
    after = [name for group in right for name in group]
    return [n for n in left if n not in after], [n for n in after if n not in left]


def _stack_if_list(x: Any) -> Any:
    """A list of arrays is stacked."""
    return arrange.stack(x) if isinstance(x, (list, tuple)) and any(hasattr(v, "shape") for v in x) else as_value(x)


@attributed_to_caller
def rearrange(x: Any, pattern: str, /, **sizes: int) -> Any:
    """x with its axes split, joined and reordered as a pattern says.

    >>> import numpy as np, pullback as pb
    >>> pb.einops.rearrange(np.zeros((2, 12, 3)), "b (h w) c -> b c h w", h=3).shape
    (2, 3, 3, 4)
    """
    opened, names, right, known = _split_axes(_stack_if_list(x), pattern, sizes)
    gone, new = _one_sided_names(names, right)
    if gone or new:
        raise ArgumentError(f"rearrange: {pattern!r} names {', '.join(gone + new)} on one side alone.")
    return _join_axes(opened, names, right, known)


_FOLDS: dict[str, Any] = {
    "sum": reductions.sum, "mean": reductions.mean, "max": reductions.max, "min": reductions.min,
    "prod": reductions.prod,
    "any": reductions.any, "all": reductions.all, "logsumexp": reductions.logsumexp,
}  # fmt: skip


@attributed_to_caller
def reduce(x: Any, pattern: str, reduction: Any, /, **sizes: int) -> Any:
    """x with the axes that only the left side names reduced by sum, mean, max, min, prod, any, all or logsumexp.

    >>> import numpy as np, pullback as pb
    >>> pb.einops.reduce(np.arange(6.0), "(n pair) -> n", "max", pair=2)
    array([1., 3., 5.])
    """
    opened, names, right, known = _split_axes(_stack_if_list(x), pattern, sizes)
    gone, new = _one_sided_names(names, right)
    if new:
        raise ArgumentError(f"reduce: {pattern!r} names {', '.join(new)} on its right side alone.")
    fold = _FOLDS.get(reduction) if isinstance(reduction, str) else reduction
    if fold is None:
        raise ArgumentError(f"reduce: reduction must be one of {', '.join(_FOLDS)} or a function, got {reduction!r}.")
    if reduction == "mean" and not spec_of(opened).inexact:
        raise DtypeError(f"reduce: a mean needs floating-point numbers, got {spec_of(opened).dtype}.")
    axes = tuple(i for i, name in enumerate(names) if name in gone)
    folded = fold(opened, axis=axes) if axes else opened
    return _join_axes(folded, [n for n in names if n not in gone], right, known)


@attributed_to_caller
def repeat(x: Any, pattern: str, /, **sizes: int) -> Any:
    """x repeated along the axes that only the right side names.

    >>> import numpy as np, pullback as pb
    >>> pb.einops.repeat(np.array([1, 2]), "n -> (n twice)", twice=2)
    array([1, 1, 2, 2])
    """
    opened, names, right, known = _split_axes(_stack_if_list(x), pattern, sizes)
    gone, new = _one_sided_names(names, right)
    known |= {name: int(name) for name in new if name.isdigit()}
    unknown = [name for name in new if name not in known]
    if gone or unknown:
        raise ArgumentError(
            f"repeat: {pattern!r} " + (f"drops {', '.join(gone)}." if gone else f"needs the size of {unknown[0]}.")
        )
    wide = reshaping.reshape(opened, (*shape(opened), *(1,) * len(new)))
    wide = reshaping.broadcast_to(wide, (*shape(opened), *(known[name] for name in new)))
    return _join_axes(wide, names + new, right, known)
