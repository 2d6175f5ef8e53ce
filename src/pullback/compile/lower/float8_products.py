"""Products of numbers of eight bits that were widened: the matrices as they were, where a target multiplies such."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from ...arrays.dtypes import narrow_dtype
from ...arrays.spec import spec_of
from ...ops.forms import Cast
from ...program.ir import Equation, Symbol
from ..loop_ir import Layout
from ..vocabulary import is_float8
from .fuse import Fuser
from .matrices import ProductAxes, as_matrices, copy_as_matrices

#: Sizes of matrices of eight bits are multiples of this.
_MULTIPLE = 16


def find_float8_factors(f: Fuser, e: Equation, axes: ProductAxes) -> tuple[Layout, Layout] | None:
    """The factors of a product in float32 of widened numbers of eight bits: as they were, with K innermost, or where
    the target or the sizes do not allow that in bfloat16. None for other products, or if the target has neither.
    """
    sources = [x for a in e.args if (x := _find_source(f, a)) is not None]
    if not f.target.has_half_products or len(sources) < len(e.args):
        return None
    groups = (axes.batch, axes.rows, axes.summed), (axes.batch, axes.columns, axes.summed)
    labelled = [*zip(sources, axes.labels, groups, strict=True)]
    is_large = math.prod(axes.sizes.values()) >= f.target.min_float8_product
    if is_large and _has_sizes(axes) and _are_multiplied(sources):
        left, right = (_with_k_innermost(f, *given, axes) for given in labelled)
    else:
        left, right = (as_matrices(f, *given, axes, narrow_dtype("bfloat16")) for given in labelled)
    shape, strides = right.shape, right.strides
    turned = replace(
        right, shape=(*shape[:-2], shape[-1], shape[-2]), strides=(*strides[:-2], strides[-1], strides[-2])
    )
    return left, turned


def _find_source(f: Fuser, x: Any) -> Symbol | None:
    """The numbers of eight bits that a value is, widened."""
    made = f.producer.get(id(x))
    if made is None or not isinstance(made.op.form, Cast) or not isinstance(made.args[0], Symbol):
        return None
    return made.args[0] if is_float8(spec_of(made.args[0]).dtype) else None


def _has_sizes(axes: ProductAxes) -> bool:
    return all(
        math.prod(axes.sizes[c] for c in side) % _MULTIPLE == 0 for side in (axes.rows, axes.columns, axes.summed)
    )


def _are_multiplied(sources: list[Symbol]) -> bool:
    """Whether there are instructions for two dtypes: not for twice the one with fewer digits."""
    return any(x.spec.dtype.name == "float8_e4m3fn" for x in sources)


def _with_k_innermost(f: Fuser, x: Symbol, label: str, groups: tuple[list[str], ...], axes: ProductAxes) -> Layout:
    """A factor as (*batch, rows or columns, K), its elements along K side by side and rows 16 bytes apart."""
    found = as_matrices(f, x, label, groups, axes, x.spec.dtype)
    aligned = all(s % _MULTIPLE == 0 for s in (*found.strides[:-1], found.offset))
    if found.strides[-1] == 1 and aligned:
        return found
    return copy_as_matrices(f, f.layout_of(x), label, groups, axes.sizes)
