"""Ops that multiply and sum over shared axes: matrix products and `einsum`, and the composites over them."""

from __future__ import annotations

import math
import string
from collections.abc import Sequence
from typing import Any

from ..arrays.node import signed
from ..arrays.spec import Spec, make_spec, spec_of
from ..errors import ArgumentError, ShapeError
from . import arranging, batching, reducing, shaping
from . import elementwise as pointwise
from .axes import one_axis, whole
from .dispatch import apply, as_value, ndim, shape
from .families import broadcast_shape, common_device, contraction, is_complex, result_dtype

__all__ = ["einsum", "matmul", "outer", "tensordot"]


def _matmul_spec(x: Spec, y: Spec) -> Spec:
    if x.shape[-1] != y.shape[-2]:
        raise ShapeError(
            f"matmul: shapes {x.shape} and {y.shape} differ in the axis to sum over ({x.shape[-1]} and {y.shape[-2]})."
        )
    batch = broadcast_shape("matmul", x.shape[:-2], y.shape[:-2])
    return make_spec((*batch, x.shape[-2], y.shape[-1]), result_dtype((x, y)), common_device("matmul", (x, y)))


def _adjoint(x: Any) -> Any:
    swapped = shaping.swapped(x)
    return pointwise.conj(swapped) if is_complex(x) else swapped


def _batch_matmul(op: Any, size: int, args: Any, axes: Any, static: Any) -> tuple[Any, int]:
    rank = max(ndim(a) - (ax is not None) for a, ax in zip(args, axes, strict=True))
    return apply(op, *(batching.padded(a, ax, rank) for a, ax in zip(args, axes, strict=True))), 0


def _matrices(rng: Any) -> Any:
    shapes = (((2, 3), (3, 4)), ((5, 2, 3), (3, 1)), ((2, 2), (4, 2, 2)), ((2, 1, 2, 3), (3, 3, 2)), ((2, 0), (0, 3)))
    return [((rng.normal(size=a), rng.normal(size=b)), {}) for a, b in shapes]


_matmul = contraction(
    "matmul",
    doc="The matrix product over the last two axes, broadcasting the others.",
    value=lambda xp, x, y: xp.matmul(x, y),
    spec=_matmul_spec,
    pull={"x": lambda bar, y: matmul(bar, _adjoint(y)), "y": lambda bar, x: matmul(_adjoint(x), bar)},
    batch=_batch_matmul,
    samples=_matrices,
)


def _matvec_spec(x: Spec, y: Spec) -> Spec:
    if x.shape[-1] != y.shape[0]:
        raise ShapeError(f"matmul: shapes {x.shape} and {y.shape} differ in the axis to sum over.")
    return make_spec(x.shape[:-1], result_dtype((x, y)), common_device("matmul", (x, y)))


def _share_of_matrix(bar: Any, y: Any) -> Any:
    column = shaping.reshape(bar, (*shape(bar), 1))
    return pointwise.multiply(column, pointwise.conj(y) if is_complex(y) else y)


def _share_of_vector(bar: Any, x: Any) -> Any:
    if ndim(x) > 2:
        rows = math.prod(shape(x)[:-1])
        x, bar = shaping.reshape(x, (rows, shape(x)[-1])), shaping.reshape(bar, (rows,))
    return apply(_matvec, _adjoint(x), bar)


def _batch_matvec(op: Any, size: int, args: Any, axes: Any, static: Any) -> tuple[Any, int]:
    (x, y), (x_axis, y_axis) = args, axes
    if y_axis is None:
        return apply(op, batching.lead(x, x_axis), y), 0
    y = batching.lead(y, y_axis)
    if x_axis is None and ndim(x) == 2:
        return apply(_matmul, y, shaping.swapped(x)), 0  # all vectors in one product
    rank = ndim(x) - (x_axis is not None)
    columns = shaping.reshape(y, (size, *(1,) * (rank - 2), shape(y)[1], 1))
    out = apply(_matmul, batching.lead(x, x_axis), columns)
    return shaping.reshape(out, shape(out)[:-1]), 0


def _matrices_and_vectors(rng: Any) -> Any:
    shapes = (((2, 3), (3,)), ((5, 2, 3), (3,)), ((2, 0), (0,)), ((0, 2), (2,)), ((2, 3, 0), (0,)))
    return [((rng.normal(size=a), rng.normal(size=b)), {}) for a, b in shapes]


_matvec = contraction(
    "matvec",
    doc="The product of matrices with one vector.",
    value=lambda xp, x, y: xp.matmul(x, y),
    spec=_matvec_spec,
    pull={"x": _share_of_matrix, "y": _share_of_vector},
    batch=_batch_matvec,
    samples=_matrices_and_vectors,
)


def matmul(x: Any, y: Any, /) -> Any:
    """The matrix product; a vector on the left is a row, on the right a column, other axes broadcast.

    >>> import numpy as np, pullback as pb
    >>> pb.matmul(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([1.0, 1.0]))
    array([3., 7.])
    """
    x, y = as_value(x), as_value(y)
    ranks = ndim(x), ndim(y)
    if min(ranks) > 1:
        return apply(_matmul, x, y)
    if not min(ranks):
        raise ShapeError(
            f"matmul: wants arrays of one axis or more, got shapes {shape(x)} and {shape(y)}.\n  Use * for numbers."
        )
    row, column = ranks[0] == 1, ranks[1] == 1
    if column and not row:
        return apply(_matvec, x, y)
    if shape(x)[-1] != shape(y)[0 if column else -2]:
        raise ShapeError(f"matmul: shapes {shape(x)} and {shape(y)} differ in the axis to sum over.")
    out = apply(_matmul, shaping.expand_dims(x, 0) if row else x, shaping.expand_dims(y, 1) if column else y)
    gone = ((-2,) if row else ()) + ((-1,) if column else ())
    return shaping.squeeze(out, gone)


def tensordot(x: Any, y: Any, /, *, axes: Any = 2) -> Any:
    """The sum of products over pairs of axes: the last `axes` of x with the first of y, or two lists of axes.

    >>> import numpy as np, pullback as pb
    >>> pb.tensordot(np.ones((2, 3)), np.ones((3, 4)), axes=1).shape
    (2, 4)
    """
    x, y = as_value(x), as_value(y)
    if isinstance(axes, (tuple, list)):
        of_x, of_y = ((a,) if isinstance(a, int) else tuple(a) for a in axes)
    else:
        n = whole(axes, "tensordot: axes")
        if not 0 <= n <= min(ndim(x), ndim(y)):
            raise ArgumentError(f"tensordot: axes {n} is more than shapes {shape(x)} and {shape(y)} have.")
        of_x, of_y = tuple(range(ndim(x) - n, ndim(x))), tuple(range(n))
    of_x = tuple(one_axis(a, ndim(x), "tensordot") for a in of_x)
    of_y = tuple(one_axis(a, ndim(y), "tensordot") for a in of_y)
    if [shape(x)[a] for a in of_x] != [shape(y)[a] for a in of_y]:
        raise ShapeError(f"tensordot: shapes {shape(x)} and {shape(y)} differ in the axes to sum over.")
    letters = iter(string.ascii_letters)
    names_x = [next(letters) for _ in shape(x)]
    names_y = [names_x[of_x[of_y.index(i)]] if i in of_y else next(letters) for i in range(ndim(y))]
    kept = [n for i, n in enumerate(names_x) if i not in of_x] + [n for i, n in enumerate(names_y) if i not in of_y]
    return einsum(f"{''.join(names_x)},{''.join(names_y)}->{''.join(kept)}", x, y)


@signed
def outer(x: Any, y: Any, /) -> Any:
    """The product of each element of x with each of y, both flattened.

    >>> import numpy as np, pullback as pb
    >>> pb.outer(np.array([1, 2]), np.array([3, 4]))
    array([[3, 4],
           [6, 8]])
    """
    return pointwise.multiply(shaping.reshape(as_value(x), (-1, 1)), shaping.reshape(as_value(y), (1, -1)))


def _sizes(labels: Sequence[str], specs: Sequence[Spec]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for label, spec in zip(labels, specs, strict=True):
        for letter, n in zip(label, spec.shape, strict=True):
            if sizes.setdefault(letter, n) != n:
                raise ShapeError(f"einsum: index {letter!r} has sizes {sizes[letter]} and {n}.")
    return sizes


def _einsum_spec(*xs: Spec, labels: tuple[str, ...], result: str) -> Spec:
    sizes = _sizes(labels, xs)
    return make_spec(tuple(sizes[c] for c in result), result_dtype(xs), common_device("einsum", xs))


def _einsum_value(xp: Any, *xs: Any, labels: tuple[str, ...], result: str) -> Any:
    return xp.einsum(f"{','.join(labels)}->{result}", *xs, optimize=len(xs) > 1)


def _einsum_share(bar: Any, position: int, others: list[Any], labels: tuple[str, ...], result: str) -> Any:
    """Exchange the result and one operand: the equation stays true read from either side."""
    beside = [pointwise.conj(x) if is_complex(x) else x for x in others]
    rest = tuple(label for i, label in enumerate(labels) if i != position)
    return _contract([bar, *beside], (result, *rest), labels[position])


def _batch_einsum(op: Any, size: int, args: Any, axes: Any, static: Any) -> tuple[Any, int]:
    used = set("".join(static["labels"]))
    letter = next(c for c in string.ascii_letters if c not in used)
    labels = tuple(
        letter + label if ax is not None else label for label, ax in zip(static["labels"], axes, strict=True)
    )
    moved = [batching.lead(x, ax) for x, ax in zip(args, axes, strict=True)]
    return apply(op, *moved, labels=labels, result=letter + static["result"]), 0


def _equations(rng: Any) -> Any:
    cases = (
        ("ij,jk->ik", (2, 3), (3, 4)),
        ("i,j->ij", (2,), (3,)),
        ("bij,bkj->bik", (2, 3, 2), (2, 4, 2)),
        ("ij->ji", (2, 3)),
        (",i->i", (), (3,)),
        ("ij,jk,kl->il", (2, 3), (3, 2), (2, 2)),
    )
    return [
        (
            tuple(rng.normal(size=s) for s in shapes),
            {"labels": tuple(eq.split("->")[0].split(",")), "result": eq.split("->")[1]},
        )
        for eq, *shapes in cases
    ]


_einsum = contraction(
    "einsum",
    doc="A sum of products written as an index equation.",
    value=_einsum_value,
    spec=_einsum_spec,
    pull={"*xs": _einsum_share},
    batch=_batch_einsum,
    samples=_equations,
)


def einsum(subscripts: str, /, *operands: Any) -> Any:
    """A sum of products written as an index equation, with everything NumPy's has: `...`, repeats, implicit results.

    >>> import numpy as np, pullback as pb
    >>> pb.einsum("ij,j->i", np.ones((2, 3)), np.arange(3.0))
    array([3., 3.])
    """
    xs = [as_value(x) for x in operands]
    labels, result = _parse(subscripts, [ndim(x) for x in xs])
    return _contract(xs, labels, result)


def _parse(subscripts: str, ranks: Sequence[int]) -> tuple[tuple[str, ...], str]:
    """The labels of each operand and of the result, the ellipsis spelled out in letters."""
    text = subscripts.replace(" ", "")
    left, arrow, result = text.partition("->")
    labels = left.split(",")
    if len(labels) != len(ranks):
        raise ArgumentError(f"einsum: {subscripts!r} names {len(labels)} operands, got {len(ranks)}.")
    if not set(text.replace("...", "").replace("->", "")) <= set(string.ascii_letters + ","):
        raise ArgumentError(f"einsum: {subscripts!r} may hold letters, commas, '->' and '...'.")
    free = [c for c in string.ascii_letters if c not in text][::-1]
    dots = max(
        (rank - len(label.replace("...", "")) for label, rank in zip(labels, ranks, strict=True) if "..." in label),
        default=0,
    )
    spelled = "".join(free.pop() for _ in range(max(dots, 0)))
    full = []
    for label, rank in zip(labels, ranks, strict=True):
        missing = rank - len(label.replace("...", ""))
        if missing < 0 or ("..." not in label and missing):
            raise ShapeError(f"einsum: operand {label!r} of {subscripts!r} has {rank} axes.")
        full.append(label.replace("...", spelled[len(spelled) - missing :]))
    if not arrow:
        once = sorted(c for c in set(left) - set(",.") if left.count(c) == 1)
        result = "..." * ("..." in left) + "".join(once)
    result = result.replace("...", spelled)
    if len(set(result)) < len(result) or not set(result) <= set("".join(full)):
        raise ArgumentError(f"einsum: the result of {subscripts!r} repeats an index or names one no operand has.")
    return tuple(full), result


def _contract(xs: Sequence[Any], labels: Sequence[str], result: str) -> Any:
    """Bring operands into the form the op wants: no index twice in one operand, none that only it has, no
    stretched axes. What is left is an equation that can be read from any side.
    """
    pairs = [_diagonals(x, label) for x, label in zip(xs, labels, strict=True)]
    widest: dict[str, int] = {}
    for x, label in pairs:
        for letter, n in zip(label, shape(x), strict=True):
            widest[letter] = n if widest.get(letter, 1) == 1 else widest[letter]
    pairs = [_squeezed(x, label, widest) for x, label in pairs]
    tidy = []
    for i, (x, label) in enumerate(pairs):
        elsewhere = set(result).union(*(other for j, (_, other) in enumerate(pairs) if j != i))
        alone = tuple(n for n, c in enumerate(label) if c not in elsewhere)
        tidy.append((reducing.sum(x, axis=alone) if alone else x, "".join(c for c in label if c in elsewhere)))
    have = set("".join(label for _, label in tidy))
    present = "".join(c for c in result if c in have)
    values, names = [x for x, _ in tidy], tuple(label for _, label in tidy)
    if len(values) == 1 and names[0] == present:
        out = shaping.unchanged(values[0])
    else:
        _sizes(names, [spec_of(x) for x in values])
        out = apply(_einsum, *values, labels=names, result=present)
    missing = tuple(n for n, c in enumerate(result) if c not in have)  # axes that are one everywhere
    out = shaping.expand_dims(out, missing) if missing else out
    return shaping.broadcast_to(out, tuple(widest[c] for c in result))


def _diagonals(x: Any, label: str) -> tuple[Any, str]:
    """An index twice in one operand means its diagonal."""
    for letter in sorted(set(label)):
        while label.count(letter) > 1:
            first = label.index(letter)
            second = label.index(letter, first + 1)
            if shape(x)[first] != shape(x)[second]:
                raise ShapeError(f"einsum: index {letter!r} has sizes {shape(x)[first]} and {shape(x)[second]}.")
            x = arranging.diagonal(x, axis1=first, axis2=second)
            label = label[:first] + label[first + 1 : second] + label[second + 1 :] + letter
    return x, label


def _squeezed(x: Any, label: str, widest: dict[str, int]) -> tuple[Any, str]:
    """An axis of size one that is wider elsewhere only repeats: drop it here."""
    narrow = tuple(n for n, c in enumerate(label) if shape(x)[n] == 1 and widest[c] != 1)
    if not narrow:
        return x, label
    return shaping.squeeze(x, narrow), "".join(c for n, c in enumerate(label) if n not in narrow)
