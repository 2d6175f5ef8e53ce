"""An index equation and arrays in, their sum of products out: the op for two operands, and the order for more."""

from __future__ import annotations

import itertools
import math
import string
from collections.abc import Sequence
from typing import Any

from ..arrays.node import signed
from ..arrays.spec import Spec, make_spec, spec_of
from ..errors import ArgumentError, ShapeError
from . import arranging, batching, reducing, shaping, statics
from . import elementwise as pointwise
from .axes import whole
from .dispatch import apply, as_value, ndim, shape
from .families import common_device, contraction, is_complex, result_dtype
from .forms import Contract

__all__ = ["contract", "einsum", "ordered_pairs"]


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
    if len(xs) == 2:
        return _pair(xp, xs, labels, result)
    return xp.einsum(f"{','.join(labels)}->{result}", *xs, optimize=len(xs) > 1)


def _pair(xp: Any, xs: Sequence[Any], labels: Sequence[str], result: str) -> Any:
    """Two operands as one matrix product: shared axes that stay, own axes, shared axes that go."""
    (x, y), (of_x, of_y) = xs, labels
    stay = [c for c in of_x if c in of_y and c in result]
    gone = [c for c in of_x if c in of_y and c not in result]
    own_x, own_y = [c for c in of_x if c not in of_y], [c for c in of_y if c not in of_x]
    if not gone or not (own_x or own_y) or x.dtype.kind not in "fc":
        return xp.einsum(f"{of_x},{of_y}->{result}", x, y)
    sizes = dict(zip(of_x + of_y, x.shape + y.shape, strict=True))

    def laid(v: Any, label: str, *groups: list[str]) -> Any:
        order = [label.index(c) for group in groups for c in group]
        return v.transpose(order).reshape([sizes[c] for c in stay] + [_volume(g, sizes) for g in groups[1:]])

    out = xp.matmul(laid(x, of_x, stay, own_x, gone), laid(y, of_y, stay, gone, own_y))
    named = [*stay, *own_x, *own_y]
    return out.reshape([sizes[c] for c in named]).transpose([named.index(c) for c in result])


def _volume(letters: Any, sizes: dict[str, int]) -> int:
    return math.prod(sizes[c] for c in letters)


def _einsum_share(bar: Any, position: int, others: list[Any], labels: tuple[str, ...], result: str) -> Any:
    """Exchange the result and one operand: the equation stays true read from either side."""
    beside = [pointwise.conj(x) if is_complex(x) else x for x in others]
    rest = tuple(label for i, label in enumerate(labels) if i != position)
    return contract([bar, *beside], (result, *rest), labels[position])


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
    statics={"labels": statics.labels, "result": statics.result},
    doc="A sum of products written as an index equation.",
    value=_einsum_value,
    spec=_einsum_spec,
    pull={"*xs": _einsum_share},
    batch=_batch_einsum,
    samples=_equations,
    form=Contract(lambda specs, static: (static["labels"], static["result"])),
)


@signed
def einsum(*operands: Any, optimize: Any = "auto") -> Any:
    """A sum of products written as an index equation, with everything NumPy's has: `...`, repeats, implicit results.

    An equation and arrays, or arrays each with a list of integers for its axes and at the end, if not implied, one for
    the result. Many operands are contracted pair by pair: in the cheapest order up to four of them, else (or with
    "greedy") always the pair that shrinks most; "optimal", or a list of pairs as of `np.einsum_path`, says otherwise.

    >>> import numpy as np, pullback as pb
    >>> pb.einsum("ij,j->i", np.ones((2, 3)), np.arange(3.0))
    array([3., 3.])
    >>> pb.einsum(np.ones((2, 3)), [0, 1], np.arange(3.0), [1], [0])
    array([3., 3.])
    """
    if not operands:
        raise ArgumentError("einsum: wants an equation and arrays.")
    if not isinstance(operands[0], str):
        operands = _spelled(operands)
    subscripts, xs = operands[0], [as_value(x) for x in operands[1:]]
    labels, result = _parse(subscripts, [ndim(x) for x in xs])
    return _in_order(xs, labels, result, optimize)


def _spelled(operands: Sequence[Any]) -> tuple[Any, ...]:
    """Arrays with lists of integers for their axes as an equation of letters and arrays."""
    xs, lists = operands[0::2], list(operands[1::2])
    explicit = len(operands) % 2 == 1
    if explicit:
        xs, lists = xs[:-1], [*lists, operands[-1]]
    numbers = sorted({n for axes in lists for n in _axes_list(axes) if n is not Ellipsis})
    if len(numbers) > len(string.ascii_letters):
        raise ArgumentError(f"einsum: {len(numbers)} different axes are more than {len(string.ascii_letters)}.")
    letter = dict(zip(numbers, string.ascii_letters, strict=False))
    terms = ["".join("..." if n is Ellipsis else letter[n] for n in axes) for axes in lists]
    left, right = (terms[:-1], "->" + terms[-1]) if explicit else (terms, "")
    return (",".join(left) + right, *xs)


def _axes_list(axes: Any) -> Sequence[Any]:
    if not isinstance(axes, (list, tuple)):
        raise ArgumentError(f"einsum: expected a list of axes, got {type(axes).__name__}.")
    return [n if n is Ellipsis else whole(n, "einsum: axis") for n in axes]


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
        if missing < 0 or ("..." not in label and missing) or label.count(".") not in (0, 3):
            raise ShapeError(f"einsum: operand {label!r} of {subscripts!r} has {rank} axes.")
        full.append(label.replace("...", spelled[len(spelled) - missing :]))
    if not arrow:
        once = sorted(c for c in set(left) - set(",.") if left.count(c) == 1)
        result = "..." * ("..." in left) + "".join(once)
    result = result.replace("...", spelled)
    if len(set(result)) < len(result) or not set(result) <= set("".join(full)):
        raise ArgumentError(f"einsum: the result of {subscripts!r} repeats an index or names one no operand has.")
    return tuple(full), result


def _in_order(xs: Sequence[Any], labels: Sequence[str], result: str, optimize: Any) -> Any:
    """Contract pair by pair, so that the way back contracts pairs too and shares what lies between."""
    values, names = list(xs), list(labels)
    if len(values) < 3:
        return contract(values, names, result)
    sizes = _widest(values, names)
    for pair in ordered_pairs(names, result, sizes, optimize):
        taken = sorted(pair, reverse=True)
        if max(taken, default=0) >= len(names) or len(set(taken)) < len(taken):
            raise ArgumentError(f"einsum: optimize names operands {tuple(pair)} of {len(names)}.")
        parts = [(values.pop(i), names.pop(i)) for i in taken]
        after = _left_over("".join(label for _, label in parts), names, result)
        values.append(contract([x for x, _ in parts], [label for _, label in parts], after if names else result))
        names.append(after if names else result)
    return contract(values, names, result) if names != [result] else values[0]


def _left_over(letters: str, others: Sequence[str], result: str) -> str:
    """The indices of a partial product that somebody still needs."""
    needed = set(result).union(*others)
    return "".join(sorted(c for c in set(letters) if c in needed))


def _widest(xs: Sequence[Any], labels: Sequence[str]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for x, label in zip(xs, labels, strict=True):
        for letter, n in zip(label, shape(x), strict=True):
            sizes[letter] = n if sizes.get(letter, 1) == 1 else sizes[letter]
    return sizes


#: Up to this many operands every order is tried; there are n! (n - 1)! / 2^(n - 1) of them.
_FEW = 4


def ordered_pairs(labels: Sequence[str], result: str, sizes: dict[str, int], optimize: Any = "auto") -> list[Any]:
    """Which operands to contract next, as positions in the list that shrinks; what came out is put at its end."""
    if isinstance(optimize, (list, tuple)):
        return [p for p in optimize if p != "einsum_path" and not isinstance(p, str)]
    if optimize not in ("auto", "greedy", "optimal", True, False):
        raise ArgumentError(
            f"einsum: optimize must be greedy, optimal, a boolean or a list of pairs, got {optimize!r}."
        )
    if optimize == "optimal" or (optimize != "greedy" and len(labels) <= _FEW):
        return _cheapest(tuple(labels), result, sizes)[1]
    path, names = [], list(labels)
    while len(names) > 1:
        i, j = min(itertools.combinations(range(len(names)), 2), key=lambda p: _gain(names, p, result, sizes))
        path.append((i, j))
        names = _after(names, (i, j), result)
    return path


def _after(names: Sequence[str], pair: tuple[int, int], result: str) -> list[str]:
    rest = [n for k, n in enumerate(names) if k not in pair]
    return [*rest, _left_over(names[pair[0]] + names[pair[1]], rest, result)]


def _gain(names: Sequence[str], pair: tuple[int, int], result: str, sizes: dict[str, int]) -> tuple[int, int]:
    """What a pair adds to the memory in use, then the multiplications it takes: less is better."""
    made = _after(names, pair, result)[-1]
    grown = _volume(made, sizes) - sum(_volume(names[k], sizes) for k in pair)
    return grown, _volume(set(names[pair[0]] + names[pair[1]]), sizes)


def _cheapest(names: tuple[str, ...], result: str, sizes: dict[str, int]) -> tuple[int, list[tuple[int, int]]]:
    """The order with the fewest multiplications, by trying all."""
    if len(names) < 2:
        return 0, []
    best: tuple[int, list[tuple[int, int]]] | None = None
    for pair in itertools.combinations(range(len(names)), 2):
        own = _volume(set(names[pair[0]] + names[pair[1]]), sizes)
        if best is not None and own >= best[0]:
            continue
        cost, rest = _cheapest(tuple(_after(names, pair, result)), result, sizes)
        if best is None or own + cost < best[0]:
            best = own + cost, [pair, *rest]
    return best or (0, [])


def contract(xs: Sequence[Any], labels: Sequence[str], result: str) -> Any:
    """Bring operands into the form the op wants: no index twice in one operand, none that only it has, no
    stretched axes. What is left is an equation that can be read from any side.
    """
    pairs = [_diagonals(x, label) for x, label in zip(xs, labels, strict=True)]
    widest = _widest([x for x, _ in pairs], [label for _, label in pairs])
    pairs = [_squeezed(x, label, widest) for x, label in pairs]
    tidy = []
    for i, (x, label) in enumerate(pairs):
        elsewhere = set(result).union(*(other for j, (_, other) in enumerate(pairs) if j != i))
        alone = tuple(n for n, c in enumerate(label) if c not in elsewhere)
        tidy.append((reducing.sum(x, axis=alone) if alone else x, "".join(c for c in label if c in elsewhere)))
    have = set("".join(label for _, label in tidy))
    present = "".join(c for c in result if c in have)
    values, names = [x for x, _ in tidy], tuple(label for _, label in tidy)
    if len(values) == 1:
        order = tuple(names[0].index(c) for c in present)
        out = shaping.permute_dims(values[0], order)
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
