"""Lowers einsum-like contractions to matrix products, with transposes and broadcasts absorbed into strides."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...arrays.spec import Spec, spec_of
from ...ops.forms import Contract
from ...program.ir import Equation, Symbol
from ..loop_ir import Buffer, KernelLine, Layout, Product, contiguous_layout, row_major_strides
from .fuse import Fuser


def can_lower_contraction(f: Fuser, e: Equation) -> bool:
    dtype = e.results[0].spec.dtype
    arrays = all(spec_of(a).weak is None for a in e.args)
    return (
        dtype.name in ("float32", "float64")
        and arrays
        and len(e.args) == 2
        and bool(e.results[0].spec.size and all(spec_of(a).size for a in e.args))
    )


@dataclass(frozen=True, slots=True)
class _ProductAxes:
    """The axes of a contraction by their letters: those of both arguments and the result, of one argument and the
    result, and those that are summed; with the letters of the arguments and the result, and all sizes.
    """

    batch: list[str]
    rows: list[str]
    columns: list[str]
    summed: list[str]
    labels: tuple[str, str]
    result: str
    sizes: dict[str, int]


def _axes_of(e: Equation) -> _ProductAxes:
    specs = [spec_of(a) for a in e.args]
    labels, result = e.op.form.equation(specs, e.static)
    left, right = labels
    sizes: dict[str, int] = {}
    for label, spec in zip(labels, specs, strict=True):
        for c, n in zip(label, spec.shape, strict=True):
            sizes[c] = max(sizes.get(c, 1), n)  # an axis of one element repeats
    return _ProductAxes(
        [c for c in result if c in left and c in right],
        [c for c in result if c in left and c not in right],
        [c for c in result if c not in left],
        [c for c in left if c in right and c not in result],
        labels,
        result,
        sizes,
    )


def lower_contraction(f: Fuser, e: Equation, into: Layout | None = None, alpha: float = 1.0) -> None:
    """A matrix product, or with `into` one that is added there, scaled."""
    axes, dtype = _axes_of(e), e.results[0].spec.dtype
    if not axes.summed:
        lower_outer_product(f, e, axes.labels, axes.result)
        return
    sizes = axes.sizes
    a = _as_matrix(f, e.args[0], axes.labels[0], (axes.batch, axes.rows, axes.summed), sizes, dtype)
    b = _as_matrix(f, e.args[1], axes.labels[1], (axes.batch, axes.summed, axes.columns), sizes, dtype)
    shape = tuple(math.prod(sizes[c] for c in group) for group in (axes.batch, axes.rows, axes.columns))
    if into is not None:
        f.last.append(Product(contiguous_layout(into.buffer, shape), a, b, alpha, 1.0))
        return
    out = contiguous_layout(Buffer("arena", math.prod(shape), dtype), shape)
    f.steps.append(Product(out, a, b))
    f.note(len(f.steps) - 1, out.buffer)
    # the product's own axes, in the order of the result
    order = [*axes.batch, *axes.rows, *axes.columns]
    strides = dict(zip(order, row_major_strides(tuple(sizes[c] for c in order)), strict=True))
    result = axes.result
    f.places[id(e.results[0])] = Layout(out.buffer, tuple(sizes[c] for c in result), tuple(strides[c] for c in result))


def lower_outer_product(f: Fuser, e: Equation, labels: tuple[str, ...], result: str) -> None:
    """A product without a sum is elementwise."""
    out = e.results[0].spec
    own = [(a, tuple(result.index(c) for c in label)) for a, label in zip(e.args, labels, strict=True)]

    def make(args: tuple[KernelLine, ...], phase: int) -> KernelLine:
        axes = frozenset().union(*(a.axes for a in args))
        return KernelLine("apply", out.dtype, axes, phase, args, lambda k, x, y: k.multiply(x, y), out.dtype)

    f.add_elementwise(e.results[0], out.shape, own, make)


def _as_matrix(
    f: Fuser, x: Any, label: Sequence[str], groups: Sequence[list[str]], sizes: dict[str, int], dtype: Any
) -> Layout:
    """An argument of a product as (batch, rows, columns), each one axis; copied only where strides do not allow it."""
    layout = f.layout_of(x)
    if layout.buffer.dtype != dtype:
        layout = f.copy_layout(layout, dtype)
    strides = {c: 0 if n == 1 else s for c, n, s in zip(label, layout.shape, layout.strides, strict=True)}
    found = _merge_groups(layout, strides, groups, sizes)
    if found is None or not _is_blas_matrix(found):
        # a copy in the order of the groups, whose axes always merge
        order = [c for group in groups for c in group]
        shape = tuple(sizes[c] for c in order)
        layout = f.copy_layout(Layout(layout.buffer, shape, tuple(strides.get(c, 0) for c in order), layout.offset))
        found = _merge_groups(layout, dict(zip(order, row_major_strides(shape), strict=True)), groups, sizes)
        assert found is not None
    return found


def _merge_groups(
    layout: Layout, strides: dict[str, int], groups: Sequence[list[str]], sizes: dict[str, int]
) -> Layout | None:
    """A layout with one axis for each group of axes, if each group has a single stride."""
    merged = [_merge_axes([(sizes[c], strides.get(c, 0)) for c in group]) for group in groups]
    found = [m for m in merged if m is not None]
    if len(found) < len(groups):
        return None
    return Layout(layout.buffer, tuple(n for n, _ in found), tuple(s for _, s in found), layout.offset)


def _merge_axes(axes: Sequence[tuple[int, int]]) -> tuple[int, int] | None:
    """Several axes (size, stride) as one, if a single stride covers them."""
    # from the innermost axis outwards: each stride must be the length of all inside
    size, stride = 1, 0
    for n, s in reversed(axes):
        if n == 1:
            continue
        if size > 1 and s != stride * size:
            return None
        stride = s if size == 1 else stride
        size *= n
    return size, stride if size > 1 else 1


def _is_blas_matrix(matrix: Layout) -> bool:
    """Whether one axis is contiguous and the other's stride at least its length, or there is one row or column."""
    (_, rows, columns), (_, by_row, by_column) = matrix.shape, matrix.strides
    by_columns, by_rows = by_row == 1 and by_column >= rows, by_column == 1 and by_row >= columns
    return by_columns or by_rows or (columns == 1 and by_row > 0) or (rows == 1 and by_column > 0)


def _is_in_product_order(product: Equation) -> bool:
    """Whether a sum of products has its result's axes in the order of a matrix product: batch, rows, columns."""
    axes = _axes_of(product)
    return bool(axes.summed) and [*axes.batch, *axes.rows, *axes.columns] == list(axes.result)


def _rearranged_from(x: Any, producer: dict[int, Equation]) -> int:
    """The id of the value that x is a rearrangement of: x itself, or the source of its chain of one-argument ops."""
    while id(x) in producer and len(producer[id(x)].args) == 1:
        x = producer[id(x)].args[0]
    return id(x)


def find_in_place_updates(f: Fuser, inputs: Sequence[Symbol]) -> dict[int, tuple[Equation, float]]:
    """Products whose only use is to be added, scaled, to a donated input: they run in place, at the end."""
    # how often each value is used: a product that has another use cannot be skipped
    uses: dict[int, int] = {}
    for x in [a for e in f.equations for a in e.args] + list(f.outputs):
        uses[id(x)] = uses.get(id(x), 0) + 1
    found: dict[int, tuple[Equation, float]] = {}
    given = {id(inputs[number]) for number in f.donated.values()}
    for output, number in f.donated.items():
        match = _match_update(f.outputs[output], inputs[number], f.producer, uses)
        if match is not None:
            product, alpha, equations = match
            if any(_rearranged_from(a, f.producer) in given for a in product.args):
                continue  # another update may overwrite what this product reads
            same = product.results[0].spec == inputs[number].spec
            if same and can_lower_contraction(f, product) and _is_in_product_order(product):
                found |= {id(e): (product, alpha) for e in (product, *equations)}
                # its memory is the input's, whatever view it was
                f.views.pop(id(f.outputs[output]), None)
    return found


def _match_update(
    x: Any, target: Symbol, producer: dict[int, Equation], uses: dict[int, int]
) -> tuple[Equation, float, tuple[Equation, ...]] | None:
    """Match x = target - c * product (or plus), its product otherwise unused: product, -c, equations in between."""
    e = producer.get(id(x))
    if e is None:
        return None
    weights = e.op.algebra.weights
    if weights[:1] != (1.0,) or len(weights) != 2 or e.args[0] is not target or uses[id(x)] != 1:
        return None
    step, between, scale = e.args[1], [e], weights[1]
    # between target and product there may be only scalar factors, each used nowhere else
    while isinstance(step, Symbol) and uses[id(step)] == 1 and id(step) in producer:
        inner = producer[id(step)]
        if isinstance(inner.op.form, Contract):
            return inner, scale, tuple(between)
        numbers = [a for a in inner.args if not isinstance(a, Symbol) and _is_real_number(spec_of(a))]
        if not inner.op.algebra.is_product or len(numbers) != 1:
            return None
        scale *= float(numbers[0])
        between.append(inner)
        step = next(a for a in inner.args if isinstance(a, Symbol))
    return None


def _is_real_number(spec: Spec) -> bool:
    return not spec.ndim and spec.dtype.kind != "c"
