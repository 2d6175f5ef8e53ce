"""Lowers einsum-like contractions to matrix products, with transposes and broadcasts absorbed into strides."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...arrays.spec import Spec, spec_of
from ...ops.forms import Cast, Contract
from ...program.ir import Equation, Symbol
from ..loop_ir import Buffer, KernelLine, Layout, Product
from ..target import Target
from ..vocabulary import HALF_DTYPES, value_dtype
from .axes import layout_in_order
from .destinations import layout_for_use
from .float8_products import find_float8_factors
from .fuse import Fuser
from .half_values import product_dtype
from .matrices import ProductAxes, copy_as_matrices, merge_batch, view_as_matrices, with_one_batch_axis

#: The dtypes of products; those of half dtypes are computed in float32.
PRODUCT_DTYPES = frozenset(("float32", "float64", *HALF_DTYPES))


def can_lower_contraction(f: Fuser, e: Equation) -> bool:
    dtype = e.results[0].spec.dtype
    arrays = all(spec_of(a).weak is None for a in e.args)
    return (
        dtype.name in PRODUCT_DTYPES
        and arrays
        and len(e.args) == 2
        and bool(e.results[0].spec.size and all(spec_of(a).size for a in e.args))
    )


def _axes_of(e: Equation, target: Target | None = None) -> ProductAxes:
    specs = [spec_of(a) for a in e.args]
    labels, result = e.op.form.equation(specs, e.static)
    left, right = labels
    sizes: dict[str, int] = {}
    for label, spec in zip(labels, specs, strict=True):
        for c, n in zip(label, spec.shape, strict=True):
            sizes[c] = max(sizes.get(c, 1), n)  # an axis of one element repeats
    return ProductAxes(
        [c for c in result if c in left and c in right],
        [c for c in result if c in left and c not in right],
        [c for c in result if c not in left],
        [c for c in left if c in right and c not in result],
        labels,
        result,
        sizes,
        product_dtype(e.results[0].spec.dtype, target),
    )


def lower_contraction(f: Fuser, e: Equation, into: Layout | None = None, alpha: float = 1.0) -> None:
    """A matrix product, or with `into` one that is added there, scaled."""
    axes = _axes_of(e, f.target)
    if not axes.summed:
        lower_outer_product(f, e, axes.labels, axes.result)
        return
    factors = find_float8_factors(f, e, axes) or _find_factors(f, e, axes)
    if into is not None:
        f.last.append(Product(*_in_own_order(f, axes, into.buffer, factors)[1], alpha, 1.0))
        return
    place, layouts = _place_product(f, e, axes, factors)
    f.steps.append(Product(*layouts))
    f.note(len(f.steps) - 1, place.buffer)
    f.set_place(e.results[0], place)


def lower_outer_product(f: Fuser, e: Equation, labels: tuple[str, ...], result: str) -> None:
    """A product without a sum is elementwise."""
    out = e.results[0].spec
    own = [(a, tuple(result.index(c) for c in label)) for a, label in zip(e.args, labels, strict=True)]

    def make(args: tuple[KernelLine, ...], phase: int) -> KernelLine:
        axes = frozenset().union(*(a.axes for a in args))
        return KernelLine("apply", out.dtype, axes, phase, args, lambda k, x, y: k.multiply(x, y), out.dtype)

    f.add_elementwise(e.results[0], out.shape, own, make)


def _find_factors(f: Fuser, e: Equation, axes: ProductAxes) -> tuple[Layout, Layout]:
    dtype = _factor_dtype(f, e, axes)
    left = _as_factor(f, e.args[0], axes.labels[0], (axes.batch, axes.rows, axes.summed), axes, dtype)
    return left, _as_factor(f, e.args[1], axes.labels[1], (axes.batch, axes.summed, axes.columns), axes, dtype)


def _factor_dtype(f: Fuser, e: Equation, axes: ProductAxes) -> np.dtype[Any]:
    """The dtype in which a product takes its matrices: their own, if the target multiplies such matrices."""
    given = [spec_of(a).dtype for a in e.args]
    sizes = [math.prod(axes.sizes[c] for c in group) for group in (axes.rows, axes.columns, axes.summed)]
    is_taken = given[0] == given[1] != axes.dtype and f.target.takes_half_factors(given[0], *sizes)
    return given[0] if is_taken else axes.dtype


def _as_factor(
    f: Fuser, x: Any, label: str, groups: Sequence[list[str]], axes: ProductAxes, dtype: np.dtype[Any]
) -> Layout:
    """An argument of a product as (*batch, rows, columns); copied only where strides do not allow it."""
    layout = f.widened_layout(x, dtype)
    found = view_as_matrices(layout, label, groups, axes.sizes)
    if found is not None and (dtype == axes.dtype or _has_pairs(found, groups[-1] is axes.summed)):
        return found
    return copy_as_matrices(f, layout, label, groups, axes.sizes)


def _has_pairs(matrices: Layout, is_left: bool) -> bool:
    """Whether numbers along the depth are side by side, each pair at an even place; a right matrix may instead have its
    columns so.
    """
    along, across = (matrices.strides[-1], matrices.strides[-2]) if is_left else matrices.strides[-2:]
    apart = (*matrices.strides[:-2], across if is_left else matrices.strides[-1], matrices.offset)
    return (along == 1 and not any(n % 2 for n in apart)) or (not is_left and matrices.strides[-1] == 1)


#: The layouts of a product: out, left and right.
_Layouts = tuple[Layout, Layout, Layout]


def _place_product(f: Fuser, e: Equation, axes: ProductAxes, factors: tuple[Layout, Layout]) -> tuple[Layout, _Layouts]:
    """Where the result is stored, and the layouts of the product: as its use wants it if a product can write there,
    else in the product's own order.
    """
    wanted = layout_for_use(f, e.results[0])
    if wanted is not None and wanted.buffer.dtype == axes.dtype:
        layouts = _with_result(axes, wanted, factors)
        if layouts is not None and len(layouts[0].shape) - 2 <= f.limits.max_batch_axes:
            return wanted, layouts
    return _in_own_order(f, axes, Buffer("arena", e.results[0].spec.size, axes.dtype), factors)


def _in_own_order(
    f: Fuser, axes: ProductAxes, buffer: Buffer, factors: tuple[Layout, Layout]
) -> tuple[Layout, _Layouts]:
    """A result by batch, rows and columns; factors whose batch has too many axes are copied."""
    order = [axes.result.index(c) for c in (*axes.batch, *axes.rows, *axes.columns)]
    place = layout_in_order(buffer, tuple(axes.sizes[c] for c in axes.result), order)
    layouts = _with_result(axes, place, factors)
    if layouts is None or len(layouts[0].shape) - 2 > f.limits.max_batch_axes:
        left, right = (with_one_batch_axis(f, x) for x in factors)
        layouts = _with_result(axes, place, (left, right))
    assert layouts is not None
    return place, layouts


def _with_result(axes: ProductAxes, place: Layout, factors: tuple[Layout, Layout]) -> _Layouts | None:
    """The layouts of a product with its result in a place; None if its columns are not contiguous there."""
    found = view_as_matrices(place, axes.result, (axes.batch, axes.rows, axes.columns), axes.sizes)
    if found is None or found.strides[-1] != 1:
        return None
    out, left, right = merge_batch((found, *factors))
    return out, left, right


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
    # a product that has another use cannot be skipped
    uses = {x: len(found) for x, found in f.uses.items()}
    found: dict[int, tuple[Equation, float]] = {}
    given = {id(inputs[number]) for number in f.donated.values()}
    for output, number in f.donated.items():
        match = _match_update(f.outputs[output], inputs[number], f.producer, uses)
        if match is not None:
            product, alpha, equations = match
            if any(_rearranged_from(a, f.producer) in given for a in product.args):
                continue  # another update may overwrite what this product reads
            own, spec = product.results[0].spec, inputs[number].spec
            # sums of half dtypes are float32 before they are rounded
            has_dtype = spec.dtype in (product_dtype(own.dtype, f.target), value_dtype(own.dtype))
            same = has_dtype and (own.shape, own.device) == (spec.shape, spec.device)
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
    # between target and product there may be only scalar factors and casts that widen, each used nowhere else
    while isinstance(step, Symbol) and uses[id(step)] == 1 and id(step) in producer:
        inner = producer[id(step)]
        if isinstance(inner.op.form, Contract):
            return inner, scale, tuple(between)
        if isinstance(inner.op.form, Cast) and inner.results[0].spec.dtype == value_dtype(inner.args[0].spec.dtype):
            between.append(inner)
            step = inner.args[0]
            continue
        numbers = [a for a in inner.args if not isinstance(a, Symbol) and _is_real_number(spec_of(a))]
        if not inner.op.algebra.is_product or len(numbers) != 1:
            return None
        scale *= float(numbers[0])
        between.append(inner)
        step = next(a for a in inner.args if isinstance(a, Symbol))
    return None


def _is_real_number(spec: Spec) -> bool:
    return not spec.ndim and spec.dtype.kind != "c"
