"""Program in, terms out: finds where an output is a sum of products of two smaller values, by the forms of its ops.

The gradient of a matrix for one sample is a sum of outer products of what came in and what came back. Multiplied out
for each sample of a batch it takes most of the time and memory of anything that is computed from it; the two factors
are much smaller, and norms, moments and Kronecker factors need nothing else. Nothing here knows layers: an op says by
its form that it is a sum of products (matrix products, `einsum`, convolutions) or a sum, by its algebra that it is a
product or a sum of its arguments; reshapes and transposes carry the axes along. What is neither has no terms.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ..arrays.spec import spec_of
from ..ops.forms import Contract, Convolve, Reduce
from ..ops.op import Op
from ..ops.shape.arrange import pad
from ..ops.shape.reshaping import permute_op, reshape_op
from ..ops.statics import LETTERS
from ..ops.window.sliding_window import unfold
from ..program.ir import Equation, Program

#: More equations than these are not followed for one output: it counts as one without terms.
_MOST_VISITS = 256


class Operand(NamedTuple):
    """One factor of a term: a value of the program, the letters of each of its axes (several where an axis is a product
    of axes, none where its size is one), and what is done with the value first.
    """

    value: Any
    axes: tuple[str, ...]
    prepare: Callable[[Any], Any] | None = None

    @property
    def letters(self) -> str:
        return "".join(self.axes)


@dataclass(frozen=True, slots=True)
class Term:
    """A sum of products of two operands, as an index equation: the letters of each axis of the result, the size of each
    letter, and numbers or values of the program that the whole is multiplied by.
    """

    operands: tuple[Operand, Operand]
    axes: tuple[str, ...]
    sizes: Mapping[str, int]
    scales: tuple[Any, ...] = ()

    def rename_axes(self, axes: Sequence[str]) -> Term:
        return replace(self, axes=tuple(axes))


Terms = tuple[Term, ...]
Walk = Callable[[Any], "Terms | None"]


def find_terms(program: Program, output: Any) -> Terms | None:
    """The terms that an output of a program is the sum of, or None where it is no such sum."""
    producer = {id(s): e for e in program.equations if len(e.results) == 1 for s in e.results}
    visits = iter(range(_MOST_VISITS))

    def walk(x: Any) -> Terms | None:
        e = producer.get(id(x))
        rule = None if e is None or next(visits, None) is None else _find_rule(e)
        return None if e is None or rule is None else rule(e, walk)

    return walk(output)


def _find_rule(e: Equation) -> Callable[[Equation, Walk], Terms | None] | None:
    if e.op in _MOVES:
        return _MOVES[e.op]
    if e.op.form is not None:
        return _FORMS.get(type(e.op.form))
    return _multiply if e.op.algebra.is_product else _add if e.op.algebra.weights else None


def _add(e: Equation, walk: Walk) -> Terms | None:
    """A sum with weights, of arguments that are not broadcast."""
    found: list[Term] = []
    for x, weight in zip(e.args, e.op.algebra.weights, strict=True):
        terms = walk(x) if spec_of(x).shape == e.results[0].spec.shape else None
        if terms is None:
            return None
        found += [t if weight == 1.0 else replace(t, scales=(*t.scales, weight)) for t in terms]
    return tuple(found)


def _multiply(e: Equation, walk: Walk) -> Terms | None:
    """An outer product, by broadcasting; or terms times one number."""
    shape = e.results[0].spec.shape
    for x, other in (e.args, e.args[::-1]):
        if spec_of(other).size == 1 and spec_of(x).shape == shape:
            terms = walk(x)
            return None if terms is None else tuple(replace(t, scales=(*t.scales, other)) for t in terms)
    letters = LETTERS[: len(shape)]
    labels = tuple(letters[len(shape) - spec_of(x).ndim :] for x in e.args)
    return _make_term(e.args, labels, letters)


def _contract(e: Equation, walk: Walk) -> Terms | None:
    form: Contract = e.op.form
    labels, result = form.equation([spec_of(x) for x in e.args], e.static)
    repeats = any(len(set(label)) < len(label) for label in labels)
    return None if len(e.args) != 2 or repeats else _make_term(e.args, labels, result)


def _make_term(args: Sequence[Any], labels: Sequence[str], result: str) -> Terms:
    """The term of an equation in which each letter is one axis; an axis of size one, which may broadcast, has none."""
    shapes = [spec_of(x).shape for x in args]
    sizes = {
        c: n for label, shape in zip(labels, shapes, strict=True) for c, n in zip(label, shape, strict=True) if n != 1
    }
    left, right = (
        Operand(x, tuple(c if n != 1 else "" for c, n in zip(label, shape, strict=True)))
        for x, label, shape in zip(args, labels, shapes, strict=True)
    )
    return (Term((left, right), tuple(c if c in sizes else "" for c in result), sizes),)


def _convolve(e: Equation, walk: Walk) -> Terms | None:
    """The gradient of a convolution's weight: patches of the input times the cotangent, summed over windows."""
    form: Convolve = e.op.form
    if form.result != "w":
        return None
    x, y = e.args
    how, rank = e.static, spec_of(x).ndim - 2
    places, windows = LETTERS[4 : 4 + rank], LETTERS[4 + rank : 4 + 2 * rank]
    groups, many = how["groups"], spec_of(y).shape[2:]
    channels, filters = spec_of(x).shape[1] // groups, spec_of(y).shape[1] // groups
    sizes = dict(zip(LETTERS, (spec_of(x).shape[0], groups, channels, filters), strict=False))
    sizes |= dict(zip(places + windows, (*how["sizes"], *many), strict=True))
    n, g, c, f = tuple(LETTERS[:4])
    patches = Operand(x, (n, g + c, *windows, *places), lambda v: _lay_out_patches(v, how))
    return (Term((patches, Operand(y, (n, g + f, *windows))), (g + f, c, *places), sizes),)


def _lay_out_patches(x: Any, how: Mapping[str, Any]) -> Any:
    """The windows of a padded grid: (n, channels, *windows, *places)."""
    x = pad(x, ((0, 0), (0, 0), *how["padding"])) if any(map(any, how["padding"])) else x
    settings = zip(how["sizes"], how["stride"], how["dilation"], strict=True)
    for axis, (size, step, dilation) in enumerate(settings, start=2):
        x = unfold(x, axis, size, step, dilation=dilation)
    return x


def _sum(e: Equation, walk: Walk) -> Terms | None:
    """Axes that are summed over are contracted."""
    form: Reduce = e.op.form
    terms = walk(e.args[0]) if form.word == "add" else None
    gone, keep = e.static["axis"], e.static["keepdims"]

    def contract(axes: tuple[str, ...]) -> list[str]:
        return ["" if i in gone else c for i, c in enumerate(axes) if keep or i not in gone]

    return None if terms is None else tuple(t.rename_axes(contract(t.axes)) for t in terms)


def _permute(e: Equation, walk: Walk) -> Terms | None:
    terms = walk(e.args[0])
    return None if terms is None else tuple(t.rename_axes([t.axes[i] for i in e.static["axes"]]) for t in terms)


def _reshape(e: Equation, walk: Walk) -> Terms | None:
    terms = walk(e.args[0])
    found = [] if terms is None else [_regroup(t, e.static["shape"]) for t in terms]
    whole = tuple(t for t in found if t is not None)
    return whole if terms is not None and len(whole) == len(terms) else None


def _regroup(term: Term, shape: Sequence[int]) -> Term | None:
    """A term as an array of another shape: letters join, or one is split in two; None where sizes do not divide."""
    if 0 in shape:
        return None
    rest, axes = "".join(term.axes), []
    for size in shape:
        taken, count = "", 1
        while count < size:
            letter, rest = rest[0], rest[1:]
            if (size // count) % term.sizes[letter]:
                split = _split_letter(term, letter, size // count) if size % count == 0 else None
                if split is None:
                    return None
                term, rest = split[0], split[1] + rest
            count *= term.sizes[letter]
            taken += letter
        axes.append(taken)
    return term.rename_axes(axes) if not rest else None


def _split_letter(term: Term, letter: str, first: int) -> tuple[Term, str] | None:
    """The term with one letter as two, of which the first keeps the name and has the size given; and the second."""
    free = next((c for c in LETTERS if c not in term.sizes), None)
    if free is None or term.sizes[letter] % first:
        return None
    sizes = {**term.sizes, letter: first, free: term.sizes[letter] // first}
    left, right = (o._replace(axes=tuple(a.replace(letter, letter + free) for a in o.axes)) for o in term.operands)
    return replace(term, operands=(left, right), sizes=sizes), free


#: How terms go through an op, by its form, or for ops that only move elements by the op itself.
_FORMS: dict[type, Callable[[Equation, Walk], Terms | None]] = {Contract: _contract, Convolve: _convolve, Reduce: _sum}
_MOVES: dict[Op, Callable[[Equation, Walk], Terms | None]] = {permute_op: _permute, reshape_op: _reshape}
