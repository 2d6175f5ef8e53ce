"""`einsum`: the op for two operands, and the contraction order for more."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

from ...arrays.call_site import attributed_to_caller
from ...arrays.spec import Spec, make_spec, spec_of
from ...errors import ArgumentError, ShapeError
from .. import batching, statics
from ..axes import as_integer
from ..dispatch import apply, as_value, ndim, shape
from ..families import common_device, conjugate_if_complex, contraction, result_dtype
from ..forms import Contract
from ..reduce import reductions
from ..shape import arrange, reshaping
from ..signatures import of_subscripts
from .multiply import multiply_matrices


def _label_sizes(labels: Sequence[str], specs: Sequence[Spec]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for label, spec in zip(labels, specs, strict=True):
        for letter, n in zip(label, spec.shape, strict=True):
            if sizes.setdefault(letter, n) != n:
                raise ShapeError(f"einsum: index {letter!r} has sizes {sizes[letter]} and {n}.")
    return sizes


def _einsum_spec(*xs: Spec, labels: tuple[str, ...], result: str) -> Spec:
    sizes = _label_sizes(labels, xs)
    return make_spec(tuple(sizes[c] for c in result), result_dtype(xs), common_device("einsum", xs))


def _einsum_value(xp: Any, *xs: Any, labels: tuple[str, ...], result: str) -> Any:
    if len(xs) == 2:
        return _contract_pair(xp, xs, labels, result)
    return xp.einsum(f"{','.join(labels)}->{result}", *xs, optimize=len(xs) > 1)


def _contract_pair(xp: Any, xs: Sequence[Any], labels: Sequence[str], result: str) -> Any:
    """Two operands as one matrix product: batch axes, own axes, contracted axes."""
    (x, y), (of_x, of_y) = xs, labels
    batch_labels = [c for c in of_x if c in of_y and c in result]
    contracted = [c for c in of_x if c in of_y and c not in result]
    own_x, own_y = [c for c in of_x if c not in of_y], [c for c in of_y if c not in of_x]
    if not contracted or not (own_x or own_y) or x.dtype.kind not in "fc":
        return xp.einsum(f"{of_x},{of_y}->{result}", x, y)
    sizes = dict(zip(of_x + of_y, x.shape + y.shape, strict=True))

    def lay_out(v: Any, label: str, *groups: list[str]) -> Any:
        order = [label.index(c) for group in groups for c in group]
        return v.transpose(order).reshape([sizes[c] for c in batch_labels] + [_volume(g, sizes) for g in groups[1:]])

    left = lay_out(x, of_x, batch_labels, own_x, contracted)
    out = multiply_matrices(xp, left, lay_out(y, of_y, batch_labels, contracted, own_y))
    named = [*batch_labels, *own_x, *own_y]
    return out.reshape([sizes[c] for c in named]).transpose([named.index(c) for c in result])


def _volume(letters: Any, sizes: dict[str, int]) -> int:
    return math.prod(sizes[c] for c in letters)


def _pull_einsum(bar: Any, position: int, others: list[Any], labels: tuple[str, ...], result: str) -> Any:
    """Exchange the result and one operand, which gives the equation of that operand's cotangent."""
    factors = [conjugate_if_complex(x) for x in others]
    rest = tuple(label for i, label in enumerate(labels) if i != position)
    return contract_operands([bar, *factors], (result, *rest), labels[position])


def _batch_einsum(op: Any, size: int, args: Any, axes: Any, static: Any) -> tuple[Any, int]:
    used = set("".join(static["labels"]))
    letter = next(c for c in statics.LETTERS if c not in used)
    labels = tuple(
        letter + label if ax is not None else label for label, ax in zip(static["labels"], axes, strict=True)
    )
    moved = [batching.move_batch_first(x, ax) for x, ax in zip(args, axes, strict=True)]
    return apply(op, *moved, labels=labels, result=letter + static["result"]), 0


def _einsum_samples(rng: Any) -> Any:
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
    value=_einsum_value,
    spec=_einsum_spec,
    pull={"*xs": _pull_einsum},
    batch=_batch_einsum,
    samples=_einsum_samples,
    form=Contract(lambda specs, static: (static["labels"], static["result"])),
)


@of_subscripts
@attributed_to_caller
def einsum(*operands: Any, optimize: Any = "auto") -> Any:
    """A sum of products written as an index equation, with everything NumPy's has: `...`, repeats, implicit results.

    An equation and arrays, or arrays each with a list of integers for its axes and at the end, if not implied, one for
    the result. Many operands are contracted pair by pair: in the cheapest order up to four of them, else (or with
    "greedy") always the pair that shrinks most; "optimal", or a list of pairs as of `np.einsum_path`, overrides that.

    >>> import numpy as np, pullback as pb
    >>> pb.einsum("ij,j->i", np.ones((2, 3)), np.arange(3.0))
    array([3., 3.])
    >>> pb.einsum(np.ones((2, 3)), [0, 1], np.arange(3.0), [1], [0])
    array([3., 3.])
    """
    if not operands:
        raise ArgumentError("einsum: wants an equation and arrays.")
    if not isinstance(operands[0], str):
        operands = _spell_letters(operands)
    subscripts, xs = operands[0], [as_value(x) for x in operands[1:]]
    labels, result = _parse(subscripts, [ndim(x) for x in xs])
    return _contract_pairwise(xs, labels, result, optimize)


def _spell_letters(operands: Sequence[Any]) -> tuple[Any, ...]:
    """Arrays with lists of integers for their axes as an equation of letters and arrays."""
    xs, lists = operands[0::2], list(operands[1::2])
    explicit = len(operands) % 2 == 1
    if explicit:
        xs, lists = xs[:-1], [*lists, operands[-1]]
    numbers = sorted({n for axes in lists for n in _axes_list(axes) if n is not Ellipsis})
    if len(numbers) > len(statics.LETTERS):
        raise ArgumentError(f"einsum: {len(numbers)} different axes are more than {len(statics.LETTERS)}.")
    letter = dict(zip(numbers, statics.LETTERS, strict=False))
    terms = ["".join("..." if n is Ellipsis else letter[n] for n in axes) for axes in lists]
    left, right = (terms[:-1], "->" + terms[-1]) if explicit else (terms, "")
    return (",".join(left) + right, *xs)


def _axes_list(axes: Any) -> Sequence[Any]:
    if not isinstance(axes, (list, tuple)):
        raise ArgumentError(f"einsum: expected a list of axes, got {type(axes).__name__}.")
    return [n if n is Ellipsis else as_integer(n, "einsum: axis") for n in axes]


def _parse(subscripts: str, ranks: Sequence[int]) -> tuple[tuple[str, ...], str]:
    """The labels of each operand and of the result, the ellipsis expanded to letters."""
    text = subscripts.replace(" ", "")
    left, arrow, result = text.partition("->")
    labels = left.split(",")
    if len(labels) != len(ranks):
        raise ArgumentError(f"einsum: {subscripts!r} names {len(labels)} operands, got {len(ranks)}.")
    if not set(text.replace("...", "").replace("->", "")) <= set(statics.LETTERS + ","):
        raise ArgumentError(f"einsum: {subscripts!r} may hold letters, commas, '->' and '...'.")
    free = [c for c in statics.LETTERS if c not in text][::-1]
    dots = max(
        (rank - len(label.replace("...", "")) for label, rank in zip(labels, ranks, strict=True) if "..." in label),
        default=0,
    )
    expanded = "".join(free.pop() for _ in range(max(dots, 0)))
    full = []
    for label, rank in zip(labels, ranks, strict=True):
        missing = rank - len(label.replace("...", ""))
        if missing < 0 or ("..." not in label and missing) or label.count(".") not in (0, 3):
            raise ShapeError(f"einsum: operand {label!r} of {subscripts!r} has {rank} axes.")
        full.append(label.replace("...", expanded[len(expanded) - missing :]))
    if not arrow:
        once = sorted(c for c in set(left) - set(",.") if left.count(c) == 1)
        result = "..." * ("..." in left) + "".join(once)
    result = result.replace("...", expanded)
    if len(set(result)) < len(result) or not set(result) <= set("".join(full)):
        raise ArgumentError(f"einsum: the result of {subscripts!r} repeats an index or names one no operand has.")
    return tuple(full), result


def _contract_pairwise(xs: Sequence[Any], labels: Sequence[str], result: str, optimize: Any) -> Any:
    """Contract pair by pair, so that the backward pass contracts pairs too and shares the intermediates."""
    values, names = list(xs), list(labels)
    if len(values) < 3:
        return contract_operands(values, names, result)
    sizes = _widest_sizes(values, names)
    for pair in contraction_path(names, result, sizes, optimize):
        taken = sorted(pair, reverse=True)
        if max(taken, default=0) >= len(names) or len(set(taken)) < len(taken):
            raise ArgumentError(f"einsum: optimize names operands {tuple(pair)} of {len(names)}.")
        parts = [(values.pop(i), names.pop(i)) for i in taken]
        after = _remaining_labels("".join(label for _, label in parts), names, result)
        values.append(
            contract_operands([x for x, _ in parts], [label for _, label in parts], after if names else result)
        )
        names.append(after if names else result)
    return contract_operands(values, names, result) if names != [result] else values[0]


def _remaining_labels(letters: str, others: Sequence[str], result: str) -> str:
    """The indices of a partial product that are still needed."""
    needed = set(result).union(*others)
    return "".join(sorted(c for c in set(letters) if c in needed))


def _widest_sizes(xs: Sequence[Any], labels: Sequence[str]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for x, label in zip(xs, labels, strict=True):
        for letter, n in zip(label, shape(x), strict=True):
            sizes[letter] = n if sizes.get(letter, 1) == 1 else sizes[letter]
    return sizes


#: Up to this many operands every order is tried; there are n! (n - 1)! / 2^(n - 1) of them.
_FEW = 4


def contraction_path(labels: Sequence[str], result: str, sizes: dict[str, int], optimize: Any = "auto") -> list[Any]:
    """Which operands to contract next, as positions in the shrinking list; each result is appended to it."""
    if isinstance(optimize, (list, tuple)):
        return [p for p in optimize if p != "einsum_path" and not isinstance(p, str)]
    if optimize not in ("auto", "greedy", "optimal", True, False):
        raise ArgumentError(
            f"einsum: optimize must be greedy, optimal, a boolean or a list of pairs, got {optimize!r}."
        )
    if optimize == "optimal" or (optimize != "greedy" and len(labels) <= _FEW):
        return _cheapest_path(tuple(labels), result, sizes)[1]
    path, names = [], list(labels)
    while len(names) > 1:
        i, j = min(itertools.combinations(range(len(names)), 2), key=lambda p: _pair_cost(names, p, result, sizes))
        path.append((i, j))
        names = _labels_after(names, (i, j), result)
    return path


def _labels_after(names: Sequence[str], pair: tuple[int, int], result: str) -> list[str]:
    rest = [n for k, n in enumerate(names) if k not in pair]
    return [*rest, _remaining_labels(names[pair[0]] + names[pair[1]], rest, result)]


def _pair_cost(names: Sequence[str], pair: tuple[int, int], result: str, sizes: dict[str, int]) -> tuple[int, int]:
    """The growth in memory use of a pair, then its multiplications: less is better."""
    made = _labels_after(names, pair, result)[-1]
    grown = _volume(made, sizes) - sum(_volume(names[k], sizes) for k in pair)
    return grown, _volume(set(names[pair[0]] + names[pair[1]]), sizes)


def _cheapest_path(names: tuple[str, ...], result: str, sizes: dict[str, int]) -> tuple[int, list[tuple[int, int]]]:
    """The order with the fewest multiplications, by trying all."""
    if len(names) < 2:
        return 0, []
    best: tuple[int, list[tuple[int, int]]] | None = None
    for pair in itertools.combinations(range(len(names)), 2):
        own = _volume(set(names[pair[0]] + names[pair[1]]), sizes)
        if best is not None and own >= best[0]:
            continue
        cost, rest = _cheapest_path(tuple(_labels_after(names, pair, result)), result, sizes)
        if best is None or own + cost < best[0]:
            best = own + cost, [pair, *rest]
    return best or (0, [])


def contract_operands(xs: Sequence[Any], labels: Sequence[str], result: str) -> Any:
    """Normalize operands for the op: no index twice in one operand, none that only one has, no
    broadcast axes. The result and any operand of such an equation can be exchanged.
    """
    pairs = [_take_diagonals(x, label) for x, label in zip(xs, labels, strict=True)]
    widest = _widest_sizes([x for x, _ in pairs], [label for _, label in pairs])
    pairs = [_squeeze_broadcast(x, label, widest) for x, label in pairs]
    tidy = []
    for i, (x, label) in enumerate(pairs):
        elsewhere = set(result).union(*(other for j, (_, other) in enumerate(pairs) if j != i))
        alone = tuple(n for n, c in enumerate(label) if c not in elsewhere)
        tidy.append((reductions.sum(x, axis=alone) if alone else x, "".join(c for c in label if c in elsewhere)))
    have = set("".join(label for _, label in tidy))
    present = "".join(c for c in result if c in have)
    values, names = [x for x, _ in tidy], tuple(label for _, label in tidy)
    if len(values) == 1:
        order = tuple(names[0].index(c) for c in present)
        out = reshaping.permute_dims(values[0], order)
    else:
        _label_sizes(names, [spec_of(x) for x in values])
        out = apply(_einsum, *values, labels=names, result=present)
    missing = tuple(n for n, c in enumerate(result) if c not in have)  # axes of size one everywhere
    out = reshaping.expand_dims(out, missing) if missing else out
    return reshaping.broadcast_to(out, tuple(widest[c] for c in result))


def _take_diagonals(x: Any, label: str) -> tuple[Any, str]:
    """An index twice in one operand means its diagonal."""
    for letter in sorted(set(label)):
        while label.count(letter) > 1:
            first = label.index(letter)
            second = label.index(letter, first + 1)
            if shape(x)[first] != shape(x)[second]:
                raise ShapeError(f"einsum: index {letter!r} has sizes {shape(x)[first]} and {shape(x)[second]}.")
            x = arrange.diagonal(x, axis1=first, axis2=second)
            label = label[:first] + label[first + 1 : second] + label[second + 1 :] + letter
    return x, label


def _squeeze_broadcast(x: Any, label: str, widest: dict[str, int]) -> tuple[Any, str]:
    """An axis of size one that is wider elsewhere broadcasts: drop it here."""
    narrow = tuple(n for n, c in enumerate(label) if shape(x)[n] == 1 and widest[c] != 1)
    if not narrow:
        return x, label
    return reshaping.squeeze(x, narrow), "".join(c for n, c in enumerate(label) if n not in narrow)
