"""Complex numbers for formats without them: each array of them is two, of real and of imaginary parts."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from .complex_words import real_dtype
from .graph_writer import GraphWriter, NoEquivalent, Ref, Shape
from .words import GraphWords

_BOOL: np.dtype[Any] = np.dtype(bool)


@dataclass(frozen=True, slots=True)
class PairRef(Ref):
    """An array of complex numbers as those of its parts."""

    re: Ref = None  # type: ignore[assignment]
    im: Ref = None  # type: ignore[assignment]


def _pair(re: Ref, im: Ref) -> PairRef:
    return PairRef("", re.shape, np.dtype(f"c{2 * re.dtype.itemsize}"), None, re, im)


def _split(xs: Sequence[Ref]) -> list[Ref]:
    """Arrays with the parts of complex ones in their places."""
    return [part for x in xs for part in ((x.re, x.im) if isinstance(x, PairRef) else (x,))]


def _join(parts: Sequence[Ref], like: Sequence[Ref]) -> list[Ref]:
    """The inverse of `_split`: parts as pairs where the array in that place is one."""
    given = iter(parts)
    return [_pair(next(given), next(given)) if isinstance(x, PairRef) else next(given) for x in like]


@final
class PairWriter(GraphWriter):
    """A writer for a format of real numbers that takes complex ones too."""

    def __init__(self, real: GraphWriter) -> None:
        self.real = real
        self.format, self.words = real.format, real.words

    def constant(self, array: Any) -> Ref:
        array = np.asarray(array)
        if array.dtype.kind != "c":
            return self.real.constant(array)
        return _pair(self.real.constant(array.real.copy()), self.real.constant(array.imag.copy()))

    def word(self, word: str, dtype: np.dtype[Any], *xs: Ref) -> Ref:
        if not any(isinstance(x, PairRef) for x in xs):
            return self.real.word(word, dtype, *xs)
        if word not in _WORDS:
            raise NoEquivalent(f"its kernel needs {word!r} of complex numbers")
        k = GraphWords(self, real_dtype(next(x.dtype for x in xs if isinstance(x, PairRef))))
        return _WORDS[word](k, *xs)

    def cast(self, x: Ref, dtype: np.dtype[Any]) -> Ref:
        if dtype.kind == "c":
            part = real_dtype(dtype)
            if isinstance(x, PairRef):
                return _pair(self.real.cast(x.re, part), self.real.cast(x.im, part))
            zero = self.real.expand(self.real.constant(np.zeros((), part)), x.shape)
            return _pair(self.real.cast(x, part), zero)
        return self.real.cast(x.re if isinstance(x, PairRef) else x, dtype)

    def make_complex(self, re: Ref, im: Ref) -> Ref:
        shape = np.broadcast_shapes(re.shape, im.shape)
        return _pair(self.real.expand(re, shape), self.real.expand(im, shape))

    def complex_part(self, which: str, x: Ref) -> Ref:
        assert isinstance(x, PairRef)
        if which == "abs":
            found: Ref = GraphWords(self, real_dtype(x.dtype)).hypot(x.re, x.im)
            return found
        return x.re if which == "real" else x.im

    def _each(self, x: Ref, change: Callable[[Ref], Ref]) -> Ref:
        """What is done to each part."""
        return _pair(change(x.re), change(x.im)) if isinstance(x, PairRef) else change(x)

    def fourier(self, x: Ref, kind: str, sizes: Shape) -> Ref:
        """One axis after the other; half a spectrum is completed by its mirror image."""
        if kind == "rfft":
            return self._join_last(self.real.fourier(x, kind, sizes))
        assert isinstance(x, PairRef)
        if kind == "irfft":
            (n,) = sizes
            count = n - x.shape[-1]
            starts, stops = (0,) * (x.ndim - 1) + (1,), (*x.shape[:-1], 1 + count)
            mirror = self.reverse(self.slice(x, starts, stops, (1,) * x.ndim), (x.ndim - 1,))
            assert isinstance(mirror, PairRef)
            im = GraphWords(self, mirror.im.dtype).negative(mirror.im)
            whole = self.concat([x, _pair(mirror.re, im)], x.ndim - 1) if count else x
            return self.complex_part("real", self.fourier(whole, "ifft", sizes))
        found: Ref = x
        for axis in range(x.ndim - len(sizes), x.ndim):
            order = (*(i for i in range(x.ndim) if i != axis), axis)
            moved = found if axis == x.ndim - 1 else self.transpose(found, order)
            assert isinstance(moved, PairRef)
            column = [self.real.reshape(part, (*part.shape, 1)) for part in (moved.re, moved.im)]
            found = self._join_last(self.real.fourier(self.real.concat(column, x.ndim), kind, (x.shape[axis],)))
            if axis != x.ndim - 1:
                found = self.transpose(found, tuple(order.index(i) for i in range(x.ndim)))
        return found

    def _join_last(self, x: Ref) -> Ref:
        """Complex numbers of an array with their parts along its last axis."""
        shape, rank = x.shape[:-1], x.ndim - 1
        parts = [
            self.real.reshape(self.real.slice(x, (0,) * rank + (i,), (*shape, i + 1), (1,) * x.ndim), shape)
            for i in (0, 1)
        ]
        return _pair(*parts)

    def reshape(self, x: Ref, shape: Shape) -> Ref:
        return self._each(x, lambda part: self.real.reshape(part, shape))

    def transpose(self, x: Ref, axes: Shape) -> Ref:
        return self._each(x, lambda part: self.real.transpose(part, axes))

    def expand(self, x: Ref, shape: Shape) -> Ref:
        return self._each(x, lambda part: self.real.expand(part, shape))

    def slice(self, x: Ref, starts: Shape, stops: Shape, steps: Shape) -> Ref:
        return self._each(x, lambda part: self.real.slice(part, starts, stops, steps))

    def reverse(self, x: Ref, axes: Shape) -> Ref:
        return self._each(x, lambda part: self.real.reverse(part, axes))

    def concat(self, xs: Sequence[Ref], axis: int) -> Ref:
        if not isinstance(xs[0], PairRef):
            return self.real.concat(xs, axis)
        parts = _split(xs)
        return _pair(self.real.concat(parts[::2], axis), self.real.concat(parts[1::2], axis))

    def iota(self, count: int) -> Ref:
        return self.real.iota(count)

    def take(self, x: Ref, indices: Ref) -> Ref:
        return self._each(x, lambda part: self.real.take(part, indices))

    def put(self, x: Ref, indices: Ref, rows: Ref, word: str | None) -> Ref:
        if not isinstance(x, PairRef) or not isinstance(rows, PairRef):
            return self.real.put(x, indices, rows, word)
        _refuse_order(word not in (None, "add"))
        return _pair(self.real.put(x.re, indices, rows.re, word), self.real.put(x.im, indices, rows.im, word))

    def reduce(self, word: str, x: Ref, axes: Shape) -> Ref:
        _refuse_order(isinstance(x, PairRef) and word != "add", f"{word!r} over an axis of complex numbers")
        return self._each(x, lambda part: self.real.reduce(word, part, axes))

    def contract(self, labels: Sequence[str], result: str, xs: Sequence[Ref]) -> Ref:
        return self._multiply(xs, lambda *parts: self.real.contract(labels, result, parts))

    def convolve(self, x: Ref, w: Ref, stride: Shape, padding: Any, dilation: Shape, groups: int) -> Ref:
        return self._multiply([x, w], lambda a, b: self.real.convolve(a, b, stride, padding, dilation, groups))

    def _multiply(self, xs: Sequence[Ref], product: Callable[..., Ref]) -> Ref:
        """What is linear in each argument, as a sum over the choices of a part of each: i i = -1."""
        if not any(isinstance(x, PairRef) for x in xs):
            return product(*xs)
        sums: list[Ref | None] = [None, None]
        for choice in itertools.product((0, 1), repeat=len(xs)):
            if any(c and not isinstance(x, PairRef) for c, x in zip(choice, xs, strict=True)):
                continue
            parts = [(x.im if c else x.re) if isinstance(x, PairRef) else x for c, x in zip(choice, xs, strict=True)]
            term, turns = product(*parts), sum(choice)
            k, before = GraphWords(self, term.dtype), sums[turns % 2]
            minus = turns % 4 > 1
            if before is None:
                sums[turns % 2] = k.negative(term) if minus else term
            else:
                sums[turns % 2] = k.subtract(before, term) if minus else k.add(before, term)
        re, im = sums
        assert re is not None
        assert im is not None
        return _pair(re, im)

    def sort_places(self, x: Ref, axis: int, descending: bool) -> Ref:
        _refuse_order(isinstance(x, PairRef))
        return self.real.sort_places(x, axis, descending)

    def accumulate(self, word: str, x: Ref, axis: int) -> Ref:
        _refuse_order(isinstance(x, PairRef) and word != "add", f"{word!r} along an axis of complex numbers")
        return self._each(x, lambda part: self.real.accumulate(word, part, axis))

    def has_routine(self, routine: str, dtype: np.dtype[Any]) -> bool:
        return dtype.kind != "c" and self.real.has_routine(routine, dtype)

    def matrix(self, routine: str, xs: Sequence[Ref], static: dict[str, Any], made: Sequence[Any]) -> list[Ref]:
        return self.real.matrix(routine, xs, static, made)

    def branch(self, which: Ref, ways: Sequence[Callable[[], Sequence[Ref]]]) -> list[Ref]:
        found: Sequence[Ref] = ()

        def split(way: Callable[[], Sequence[Ref]]) -> list[Ref]:
            nonlocal found
            found = way()
            return _split(found)

        parts = self.real.branch(which, [lambda way=way: split(way) for way in ways])  # type: ignore[misc]
        return _join(parts, found)

    def repeat(
        self, carry: Sequence[Ref], condition: Callable[..., Ref], step: Callable[..., Sequence[Ref]]
    ) -> list[Ref]:
        found = self.real.repeat(
            _split(carry),
            lambda *parts: condition(*_join(parts, carry)),
            lambda *parts: _split(step(*_join(parts, carry))),
        )
        return _join(found, carry)

    def iterate(
        self, length: int, carry: Sequence[Ref], step: Callable[..., tuple[Sequence[Ref], Sequence[Ref]]],
        rows: Sequence[tuple[Shape, np.dtype[Any]]],
    ) -> tuple[list[Ref], list[Ref]]:  # fmt: skip
        made = [self.constant(np.zeros((), dtype)) for _, dtype in rows]

        def run(number: Ref, *parts: Ref) -> tuple[list[Ref], list[Ref]]:
            new, found = step(number, *_join(parts, carry))
            return _split(new), _split(found)

        kinds = [(s, part.dtype) for (s, _), x in zip(rows, made, strict=True) for part in _split([x])]
        new, stacked = self.real.iterate(length, _split(carry), run, kinds)
        return _join(new, carry), _join(stacked, made)


def _refuse_order(holds: bool, what: str = "an order of complex numbers") -> None:
    if holds:
        raise NoEquivalent(f"{what} has no equivalent")


def _parts_of(k: GraphWords, x: Ref) -> tuple[Ref, Ref]:
    return (x.re, x.im) if isinstance(x, PairRef) else (k.coerce(x), k.constant(0))


def _per_part(word: str) -> Callable[..., Ref]:
    def apply(k: GraphWords, *xs: Ref) -> Ref:
        res, ims = zip(*(_parts_of(k, x) for x in xs), strict=True)
        return k.writer.make_complex(getattr(k, word)(*res), getattr(k, word)(*ims))

    return apply


def _multiply(k: GraphWords, x: Ref, y: Ref) -> Ref:
    (a, b), (c, d) = _parts_of(k, x), _parts_of(k, y)
    re = k.subtract(k.multiply(a, c), k.multiply(b, d))
    return k.writer.make_complex(re, k.add(k.multiply(a, d), k.multiply(b, c)))


def _divide(k: GraphWords, x: Ref, y: Ref) -> Ref:
    """By the divisor over its greater part, whose square does not overflow."""
    (a, b), (c, d) = _parts_of(k, x), _parts_of(k, y)
    scale = k.maximum(k.abs(c), k.abs(d))
    c, d = k.divide(c, scale), k.divide(d, scale)
    size = k.multiply(scale, k.add(k.multiply(c, c), k.multiply(d, d)))
    re = k.add(k.multiply(a, c), k.multiply(b, d))
    im = k.subtract(k.multiply(b, c), k.multiply(a, d))
    return k.writer.make_complex(k.divide(re, size), k.divide(im, size))


def _exp(k: GraphWords, x: Ref) -> Ref:
    a, b = _parts_of(k, x)
    size = k.exp(a)
    return k.writer.make_complex(k.multiply(size, k.cos(b)), k.multiply(size, k.sin(b)))


def _expm1(k: GraphWords, x: Ref) -> Ref:
    """exp(a) cos(b) - 1 = expm1(a) cos(b) - 2 sin(b / 2)^2."""
    a, b = _parts_of(k, x)
    half = k.sin(k.multiply(b, k.constant(0.5)))
    re = k.subtract(k.multiply(k.expm1(a), k.cos(b)), k.multiply(k.constant(2), k.multiply(half, half)))
    return k.writer.make_complex(re, k.multiply(k.exp(a), k.sin(b)))


def _log(k: GraphWords, x: Ref) -> Ref:
    """Near the unit circle log|z| = log1p((p - 1) (p + 1) + q^2) / 2 of the greater part p and the lesser."""
    a, b = _parts_of(k, x)
    size, one = k.hypot(a, b), k.constant(1)
    most, least = k.maximum(k.abs(a), k.abs(b)), k.minimum(k.abs(a), k.abs(b))
    excess = k.add(k.multiply(k.subtract(most, one), k.add(most, one)), k.multiply(least, least))
    near = k.less(k.abs(k.subtract(size, one)), k.constant(0.25))
    inside = k.multiply(k.log1p(k.select(near, excess, k.constant(0))), k.constant(0.5))
    return k.writer.make_complex(k.select(near, inside, k.log(size)), k.atan2(b, a))


def _log1p(k: GraphWords, x: Ref) -> Ref:
    """For a small z log|1 + z| = log1p(a (a + 2) + b^2) / 2."""
    a, b = _parts_of(k, x)
    whole = k.add(a, k.constant(1))
    near = k.less(k.hypot(a, b), k.constant(0.5))
    excess = k.add(k.multiply(a, k.add(a, k.constant(2))), k.multiply(b, b))
    inside = k.multiply(k.log1p(k.select(near, excess, k.constant(0))), k.constant(0.5))
    far = k.writer.complex_part("real", _log(k, k.writer.make_complex(whole, b)))
    return k.writer.make_complex(k.select(near, inside, far), k.atan2(b, whole))


def _sqrt(k: GraphWords, x: Ref) -> Ref:
    """The greater part is sqrt((|a| + |z|) / 2), the other one |b| over twice that."""
    a, b = _parts_of(k, x)
    half = k.constant(0.5)
    most = k.sqrt(k.add(k.multiply(k.abs(a), half), k.multiply(k.hypot(a, b), half)))
    zero = k.equal(most, k.constant(0))
    least = k.divide(k.multiply(k.abs(b), half), k.select(zero, k.constant(1), most))
    left = k.less(a, k.constant(0))
    return k.writer.make_complex(k.select(left, least, most), k.copysign(k.select(left, most, least), b))


def _by_products(*four: str, minus: bool = False) -> Callable[..., Ref]:
    """f(a) g(b) + i u(a) v(b), or minus that."""
    f, g, u, v = four

    def apply(k: GraphWords, x: Ref) -> Ref:
        a, b = _parts_of(k, x)
        im = k.multiply(getattr(k, u)(a), getattr(k, v)(b))
        re = k.multiply(getattr(k, f)(a), getattr(k, g)(b))
        return k.writer.make_complex(re, k.negative(im) if minus else im)

    return apply


def _tanh(k: GraphWords, x: Ref) -> Ref:
    """(s c + i p q) / (s^2 + q^2) of s, c = sinh(a), cosh(a) and p, q = sin(b), cos(b). Beyond 20 the real part is 1 or
    -1 and the imaginary one vanishes.
    """
    a, b = _parts_of(k, x)
    bound = k.constant(20)
    a = k.minimum(k.maximum(a, k.negative(bound)), bound)
    s, q = k.sinh(a), k.cos(b)
    size = k.add(k.multiply(s, s), k.multiply(q, q))
    re, im = k.multiply(s, k.cosh(a)), k.multiply(k.sin(b), q)
    return k.writer.make_complex(k.divide(re, size), k.divide(im, size))


def _tan(k: GraphWords, x: Ref) -> Ref:
    """-i tanh(i z)."""
    a, b = _parts_of(k, x)
    turned = _tanh(k, k.writer.make_complex(k.negative(b), a))
    assert isinstance(turned, PairRef)
    return k.writer.make_complex(turned.im, k.negative(turned.re))


def _power(k: GraphWords, x: Ref, y: Ref) -> Ref:
    """exp(y log(x)); of zero zero, and to the power of zero one."""
    found = _exp(k, _multiply(k, y, _log(k, x)))
    assert isinstance(found, PairRef)
    (a, b), (c, d) = _parts_of(k, x), _parts_of(k, y)
    nothing = k.logical_and(k.equal(a, k.constant(0)), k.equal(b, k.constant(0)))
    flat = k.logical_and(k.equal(c, k.constant(0)), k.equal(d, k.constant(0)))
    re = k.select(flat, k.constant(1), k.select(nothing, k.constant(0), found.re))
    return k.writer.make_complex(re, k.select(k.logical_or(nothing, flat), k.constant(0), found.im))


def _sign(k: GraphWords, x: Ref) -> Ref:
    a, b = _parts_of(k, x)
    size = k.hypot(a, b)
    size = k.select(k.equal(size, k.constant(0)), k.constant(1), size)
    return k.writer.make_complex(k.divide(a, size), k.divide(b, size))


def _equal(k: GraphWords, x: Ref, y: Ref) -> Ref:
    (a, b), (c, d) = _parts_of(k, x), _parts_of(k, y)
    return k.logical_and(k.equal(a, c), k.equal(b, d))


def _select(k: GraphWords, condition: Ref, x: Ref, y: Ref) -> Ref:
    (a, b), (c, d) = _parts_of(k, x), _parts_of(k, y)
    return k.writer.make_complex(k.select(condition, a, c), k.select(condition, b, d))


_WORDS: dict[str, Callable[..., Ref]] = {
    "add": _per_part("add"), "subtract": _per_part("subtract"), "negative": _per_part("negative"),
    "multiply": _multiply, "divide": _divide, "exp": _exp, "expm1": _expm1, "log": _log, "log1p": _log1p,
    "sqrt": _sqrt, "sin": _by_products("sin", "cosh", "cos", "sinh"), "tanh": _tanh, "tan": _tan, "power": _power,
    "cos": _by_products("cos", "cosh", "sin", "sinh", minus=True), "sign": _sign, "equal": _equal, "select": _select,
}  # fmt: skip
