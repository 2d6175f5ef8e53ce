"""The scalar vocabulary as operations of a graph: a kernel of an op record writes its nodes.

A word that the format lacks is composed of others here, in a way that is accurate where the formula of the textbook
is not.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..compile.cpu.math.coefficients import ERF, ERFC
from ..compile.vocabulary import VOCABULARY
from .complex_words import real_dtype, write_complex_word
from .graph_writer import GraphWriter, NoEquivalent, Ref

_BOOL: np.dtype[Any] = np.dtype(bool)
_INT64: np.dtype[Any] = np.dtype(np.int64)
_COMPARISONS = frozenset(("equal", "less", "less_equal", "greater", "greater_equal"))
_TESTS = frozenset(("isnan", "isinf"))
_ROUNDINGS = {"floor": "floor", "ceil": "ceil", "rint": "rint", "round": "rint", "trunc": "trunc"}
#: What arithmetic of booleans is.
_OF_BOOLEANS = {"add": "logical_or", "multiply": "logical_and", "maximum": "logical_or", "minimum": "logical_and"}


def is_floating(dtype: np.dtype[Any]) -> bool:
    """Whether a dtype has a NaN; those that NumPy lacks are of a kind of their own."""
    return dtype.kind in "fV"


class GraphWords:
    """The words of one equation, which computes in a dtype; values of other dtypes are converted first."""

    def __init__(self, writer: GraphWriter, dtype: np.dtype[Any]) -> None:
        self.writer = writer
        self.dtype = dtype

    def constant(self, number: Any) -> Ref:
        with np.errstate(all="ignore"):
            return self.writer.constant(np.asarray(number).astype(self.dtype))

    def coerce(self, x: Ref) -> Ref:
        return x if x.dtype == self.dtype else self.writer.cast(x, self.dtype)

    def of_parts(self) -> GraphWords:
        """The words of the parts of complex numbers."""
        return GraphWords(self.writer, real_dtype(self.dtype))

    def to_bool(self, x: Ref) -> Ref:
        if x.dtype.kind == "c":
            return GraphWords(self.writer, x.dtype).not_equal(x, self.writer.constant(np.zeros((), x.dtype)))
        return x if x.dtype == _BOOL else self.writer.cast(x, _BOOL)

    def __getattr__(self, word: str) -> Callable[..., Ref]:
        """A word of the format itself, else a composition."""

        def apply(*xs: Ref) -> Ref:
            if self.dtype.kind == "c":
                if all(x.dtype.kind != "c" for x in xs):  # what was made of parts
                    return getattr(self.of_parts(), word)(*xs)  # type: ignore[no-any-return]
                return write_complex_word(self, word, *xs)
            if word in _COMPARISONS:
                return self._compare(word, *xs)
            if word in _TESTS:
                return self._test(word, *xs)
            if word in _ROUNDINGS and self.dtype.kind != "f":
                return self.coerce(xs[0])
            given = [self.coerce(x) for x in xs]
            if self.dtype.kind == "b" and word in _OF_BOOLEANS:
                return self.writer.word(_OF_BOOLEANS[word], _BOOL, *given)
            name = _ROUNDINGS.get(word, word)
            if name == "fmod" and self.dtype.kind != "f":
                given[1] = safe_divisor(self, given[1])
            if name == "power" and self.dtype.kind in "iu":
                return _power_of_integers(self, *given)
            if name in self.writer.words:
                return self.writer.word(name, self.dtype, *given)
            if name in COMPOSITIONS:
                return COMPOSITIONS[name](self, *given)
            what = "a word" if word in VOCABULARY else "no word of the scalar vocabulary"
            raise NoEquivalent(f"its kernel needs {word!r}, {what} that {self.writer.format} has no operation for")

        return apply

    def _compare(self, word: str, x: Ref, y: Ref) -> Ref:
        x, y = self.coerce(x), self.coerce(y)
        if self.dtype.kind == "b":  # an order of booleans is that of 0 and 1
            x, y = (self.writer.cast(v, np.dtype(np.int32)) for v in (x, y))
        return self.writer.word(word, _BOOL, x, y)

    def _test(self, word: str, x: Ref) -> Ref:
        if not is_floating(x.dtype):
            return self.writer.expand(self.writer.constant(np.zeros((), bool)), x.shape)
        return self.writer.word(word, _BOOL, self.coerce(x))

    def not_equal(self, x: Ref, y: Ref) -> Ref:
        return self.logical_not(self.equal(x, y))

    def isfinite(self, x: Ref) -> Ref:
        return self.logical_not(self.logical_or(self.isnan(x), self.isinf(x)))

    def select(self, condition: Ref, x: Ref, y: Ref) -> Ref:
        return self.writer.word("select", self.dtype, self.to_bool(condition), self.coerce(x), self.coerce(y))

    def logical_not(self, x: Ref) -> Ref:
        return self.writer.word("logical_not", _BOOL, self.to_bool(x))

    def logical_and(self, x: Ref, y: Ref) -> Ref:
        return self.writer.word("logical_and", _BOOL, self.to_bool(x), self.to_bool(y))

    def logical_or(self, x: Ref, y: Ref) -> Ref:
        return self.writer.word("logical_or", _BOOL, self.to_bool(x), self.to_bool(y))

    def logical_xor(self, x: Ref, y: Ref) -> Ref:
        return self.writer.word("logical_xor", _BOOL, self.to_bool(x), self.to_bool(y))

    def signbit(self, x: Ref) -> Ref:
        """Whether the sign is minus; of a zero its reciprocal shows it."""
        if self.dtype.kind != "f":
            return self.less(x, self.constant(0))
        x = self.coerce(x)
        minus_zero = self.logical_and(
            self.equal(x, self.constant(0)), self.less(self.divide(self.constant(1), x), self.constant(0))
        )
        return self.logical_or(self.less(x, self.constant(0)), minus_zero)

    def copysign(self, x: Ref, y: Ref) -> Ref:
        if self.dtype.kind != "f":
            return self.coerce(x)
        # a product, since runtimes lose the sign of a zero that they choose
        return self.multiply(self.abs(x), self.select(self.signbit(y), self.constant(-1), self.constant(1)))


def _identity(k: GraphWords, x: Ref) -> Ref:
    return x


def _negative(k: GraphWords, x: Ref) -> Ref:
    return k.subtract(k.constant(0), x)


def _heaviside(k: GraphWords, x: Ref, y: Ref) -> Ref:
    zero = k.constant(0)
    at_zero = k.select(k.equal(x, zero), y, x)
    return k.select(k.greater(x, zero), k.constant(1), k.select(k.less(x, zero), zero, at_zero))


def _trunc(k: GraphWords, x: Ref) -> Ref:
    return k.select(k.less(x, k.constant(0)), k.ceil(x), k.floor(x))


def _fmax(k: GraphWords, x: Ref, y: Ref) -> Ref:
    keeps = k.logical_or(k.greater_equal(x, y), k.isnan(y))
    return k.select(keeps, x, y)


def _fmin(k: GraphWords, x: Ref, y: Ref) -> Ref:
    keeps = k.logical_or(k.less_equal(x, y), k.isnan(y))
    return k.select(keeps, x, y)


def safe_divisor(k: GraphWords, y: Ref) -> Ref:
    """A divisor of integers with 1 in place of 0 and -1. By 0 other systems make anything, or an error; by -1 the least
    integer has no quotient, which ends the process of some. The rest by 1 is zero, as NumPy's is by all three.
    """
    difficult = (0,) if k.dtype.kind == "u" else (0, -1)
    if y.known is not None and not np.isin(y.known, difficult).any():
        return y
    for number in difficult:
        y = k.select(k.equal(y, k.constant(number)), k.constant(1), y)
    return y


def _remainder(k: GraphWords, x: Ref, y: Ref) -> Ref:
    """The sign is that of y; fmod has that of x."""
    y = y if k.dtype.kind == "f" else safe_divisor(k, y)
    rest, zero = k.writer.word("fmod", k.dtype, x, y), k.constant(0)
    return k.select(
        differ_in_sign(k, rest, y), k.add(rest, y), k.select(k.equal(rest, zero), k.copysign(zero, y), rest)
    )


def _floor_divide(k: GraphWords, x: Ref, y: Ref) -> Ref:
    """(x - rest) / y, which is an integer but for rounding, less one where the signs of the rest and of y differ; by
    zero it is the quotient.
    """
    if k.dtype.kind != "f":
        return _floor_divide_integers(k, x, y)
    rest = k.fmod(x, y)
    found = k.rint(k.divide(k.subtract(x, rest), y))
    found = k.select(differ_in_sign(k, rest, y), k.subtract(found, k.constant(1)), found)
    return k.select(k.equal(y, k.constant(0)), k.divide(x, y), found)


def _floor_divide_integers(k: GraphWords, x: Ref, y: Ref) -> Ref:
    """The quotient towards zero, less one where the signs of the rest and of y differ: nothing overflows. By 0 NumPy
    makes 0, by -1 the negative, which of the least integer is itself.
    """
    by, zero = safe_divisor(k, y), k.constant(0)
    found = k.divide(x, by)
    if k.dtype.kind == "i":
        rest = k.subtract(x, k.multiply(found, by))
        found = k.select(differ_in_sign(k, rest, by), k.subtract(found, k.constant(1)), found)
    if by is y:
        return found
    if k.dtype.kind == "i":
        found = k.select(k.equal(y, k.constant(-1)), k.negative(x), found)
    return k.select(k.equal(y, zero), zero, found)


def differ_in_sign(k: GraphWords, rest: Ref, y: Ref) -> Ref:
    zero = k.constant(0)
    return k.logical_and(k.not_equal(rest, zero), k.not_equal(k.less(rest, zero), k.less(y, zero)))


def _power_of_integers(k: GraphWords, x: Ref, y: Ref) -> Ref:
    """By squares, which wrap as NumPy's do: other systems go by floating numbers, or have no such power."""
    w, one, shape = k.writer, k.constant(1), np.broadcast_shapes(x.shape, y.shape)
    if y.known is not None and y.known.size == 1:
        found, exponent = one, max(int(y.known.item()), 0)
        while exponent:
            found = (x if found is one else k.multiply(found, x)) if exponent % 2 else found
            exponent //= 2
            x = k.multiply(x, x) if exponent else x
        return w.expand(found, shape)

    def step(_: Ref, found: Ref, base: Ref, rest: Ref) -> tuple[list[Ref], list[Ref]]:
        factor = k.select(k.equal(k.bitwise_and(rest, one), one), base, one)
        return [k.multiply(found, factor), k.multiply(base, base), k.bitwise_right_shift(rest, one)], []

    return w.iterate(8 * k.dtype.itemsize, [w.expand(v, shape) for v in (one, x, y)], step, [])[0][0]


def _log1p(k: GraphWords, x: Ref) -> Ref:
    """log(u) x / (u - 1) with u = 1 + x rounded: the error of u in the numerator cancels that in the denominator."""
    one = k.constant(1)
    u = k.add(one, x)
    change = k.subtract(u, one)
    exact = k.logical_or(k.equal(change, k.constant(0)), k.equal(x, k.constant(np.inf)))
    return k.select(exact, x, k.divide(k.multiply(k.log(u), x), change))


def _expm1(k: GraphWords, x: Ref) -> Ref:
    """(u - 1) x / log(u) with u = exp(x) rounded, for the same reason."""
    one = k.constant(1)
    u = k.exp(x)
    less = k.subtract(u, one)
    near = k.select(k.equal(u, one), x, k.divide(k.multiply(less, x), k.log(u)))
    ends = k.logical_or(k.equal(less, k.constant(-1)), k.equal(u, k.constant(np.inf)))
    return k.select(ends, less, near)


def _logaddexp(k: GraphWords, x: Ref, y: Ref) -> Ref:
    """The greater one plus log1p(exp(-distance)); equal infinities have no distance."""
    apart = k.add(k.maximum(x, y), k.log1p(k.exp(k.negative(k.abs(k.subtract(x, y))))))
    return k.select(k.equal(x, y), k.add(x, k.constant(math.log(2))), apart)


def _logaddexp2(k: GraphWords, x: Ref, y: Ref) -> Ref:
    apart = k.add(k.maximum(x, y), k.divide(k.log1p(k.exp2(k.negative(k.abs(k.subtract(x, y))))), _ln(k, 2)))
    return k.select(k.equal(x, y), k.add(x, k.constant(1)), apart)


def _ln(k: GraphWords, number: float) -> Ref:
    return k.constant(math.log(number))


def _hypot(k: GraphWords, x: Ref, y: Ref) -> Ref:
    """The greater side times sqrt(1 + ratio^2), so that squares do not overflow."""
    x, y, zero = k.abs(x), k.abs(y), k.constant(0)
    most, least = k.maximum(x, y), k.minimum(x, y)
    ratio = k.divide(least, k.select(k.equal(most, zero), k.constant(1), most))
    finite = k.multiply(most, k.sqrt(k.add(k.constant(1), k.multiply(ratio, ratio))))
    endless = k.logical_or(k.isinf(x), k.isinf(y))
    return k.select(endless, k.constant(np.inf), finite)


def _atan2(k: GraphWords, y: Ref, x: Ref) -> Ref:
    """The angle of |y| / |x| in the first quadrant, mirrored by the signs of x, then of y."""
    down, across, zero = k.abs(y), k.abs(x), k.constant(0)
    both = k.logical_and(k.isinf(x), k.isinf(y))
    ratio = k.divide(k.select(both, k.constant(1), down), k.select(both, k.constant(1), across))
    angle = k.select(k.equal(down, zero), zero, k.atan(ratio))
    angle = k.select(k.logical_or(k.isnan(x), k.isnan(y)), k.add(x, y), angle)
    return k.copysign(k.select(k.signbit(x), k.subtract(k.constant(math.pi), angle), angle), y)


def _sinh(k: GraphWords, x: Ref) -> Ref:
    """(u + u / (u + 1)) / 2 with u = exp(|x|) - 1; exp(|x| - ln 2) where u could overflow."""
    size = k.abs(x)
    u = k.expm1(size)
    near = k.multiply(k.add(u, k.divide(u, k.add(u, k.constant(1)))), k.constant(0.5))
    far = _half_exp(k, size)
    return k.copysign(k.select(k.greater(size, k.constant(20)), far, near), x)


def _half_exp(k: GraphWords, x: Ref) -> Ref:
    """exp(x) / 2, which may be finite where exp(x) is not."""
    root = k.exp(k.multiply(x, k.constant(0.5)))
    return k.multiply(k.multiply(root, k.constant(0.5)), root)


def _cosh(k: GraphWords, x: Ref) -> Ref:
    half = _half_exp(k, k.abs(x))
    return k.add(half, k.divide(k.constant(0.25), half))


def _asinh(k: GraphWords, x: Ref) -> Ref:
    """log1p(a + a^2 / (1 + sqrt(a^2 + 1))) of a = |x|; log(a) + ln 2 where a^2 could overflow."""
    a, one = k.abs(x), k.constant(1)
    large = k.greater(a, k.constant(1e8 if k.dtype.itemsize == 8 else 1e4))
    safe = k.select(large, one, a)
    square = k.multiply(safe, safe)
    near = k.log1p(k.add(safe, k.divide(square, k.add(one, k.sqrt(k.add(square, one))))))
    return k.copysign(k.select(large, k.add(k.log(a), _ln(k, 2)), near), x)


def _acosh(k: GraphWords, x: Ref) -> Ref:
    """log1p(t + sqrt(2 t + t^2)) with t = x - 1; log(x) + ln 2 where t^2 could overflow."""
    one = k.constant(1)
    large = k.greater(x, k.constant(1e8 if k.dtype.itemsize == 8 else 1e4))
    t = k.subtract(k.select(large, one, x), one)
    near = k.log1p(k.add(t, k.sqrt(k.multiply(t, k.add(t, k.constant(2))))))
    return k.select(large, k.add(k.log(x), _ln(k, 2)), near)


def _atanh(k: GraphWords, x: Ref) -> Ref:
    size = k.abs(x)
    ratio = k.divide(k.add(size, size), k.subtract(k.constant(1), size))
    return k.copysign(k.multiply(k.constant(0.5), k.log1p(ratio)), x)


def _asin(k: GraphWords, x: Ref) -> Ref:
    """The angle of the sine x beside the cosine sqrt((1 - x) (1 + x)), in which nothing cancels."""
    one = k.constant(1)
    return k.atan2(x, k.sqrt(k.multiply(k.subtract(one, x), k.add(one, x))))


def _acos(k: GraphWords, x: Ref) -> Ref:
    """Twice the angle of half the arc: its sine and cosine are sqrt((1 - x) / 2) and sqrt((1 + x) / 2)."""
    one = k.constant(1)
    half = k.atan2(k.sqrt(k.subtract(one, x)), k.sqrt(k.add(one, x)))
    return k.add(half, half)


def _polynomial(k: GraphWords, x: Ref, coefficients: tuple[float, ...]) -> Ref:
    """By Horner's rule, the lowest power first."""
    found = k.constant(coefficients[-1])
    for number in coefficients[-2::-1]:
        found = k.add(k.multiply(found, x), k.constant(number))
    return found


def _erfc_of_size(k: GraphWords, size: Ref) -> Ref:
    """The formula of `compile/cpu/math/special.py`, in the precision of the dtype."""
    t = k.divide(k.subtract(size, k.constant(3.75)), k.add(size, k.constant(3.75)))
    quotient = k.divide(_polynomial(k, t, ERFC[8]), k.add(k.constant(1), k.add(size, size)))
    return k.multiply(k.exp(k.negative(k.multiply(size, size))), quotient)


def _small_erf(k: GraphWords, x: Ref) -> Ref:
    return k.add(x, k.multiply(x, _polynomial(k, k.multiply(x, x), ERF[8])))


def _erf(k: GraphWords, x: Ref) -> Ref:
    size, half = k.abs(x), k.constant(0.5)
    far = k.subtract(k.constant(1), _erfc_of_size(k, _clamp(k, size, 0.5, 7)))
    near = _small_erf(k, k.minimum(size, half))
    return k.copysign(k.select(k.greater(size, half), far, near), x)


def _erfc(k: GraphWords, x: Ref) -> Ref:
    size, half = k.abs(x), k.constant(0.5)
    far = _erfc_of_size(k, _clamp(k, size, 0.5, 28))
    far = k.select(k.less(x, k.constant(0)), k.subtract(k.constant(2), far), far)
    near = k.subtract(k.constant(1), _small_erf(k, _clamp(k, x, -0.5, 0.5)))
    return k.select(k.greater(size, half), far, near)


def _clamp(k: GraphWords, x: Ref, low: float, high: float) -> Ref:
    return k.minimum(k.maximum(x, k.constant(low)), k.constant(high))


def _rotate_left(k: GraphWords, x: Ref, y: Ref) -> Ref:
    size = 8 * k.dtype.itemsize
    if y.known is not None:
        up, down = k.constant(np.asarray(y.known) % size), k.constant(-np.asarray(y.known, np.int64) % size)
    else:
        bits = k.constant(size)
        up = k.remainder(y, bits)
        down = k.remainder(k.subtract(bits, up), bits)
    return k.bitwise_or(k.bitwise_left_shift(x, up), k.bitwise_right_shift(x, down))


def _cbrt(k: GraphWords, x: Ref) -> Ref:
    return k.multiply(k.sign(x), k.power(k.abs(x), k.constant(1 / 3)))


#: Words in terms of others, for formats that lack them.
COMPOSITIONS: dict[str, Callable[..., Ref]] = {
    "negative": _negative, "heaviside": _heaviside, "trunc": _trunc, "fmax": _fmax, "fmin": _fmin,
    "remainder": _remainder, "floor_divide": _floor_divide, "log1p": _log1p, "expm1": _expm1,
    "logaddexp": _logaddexp, "logaddexp2": _logaddexp2, "hypot": _hypot, "atan2": _atan2, "cbrt": _cbrt,
    "rotate_left": _rotate_left, "sinh": _sinh, "cosh": _cosh, "asinh": _asinh, "acosh": _acosh, "atanh": _atanh,
    "asin": _asin, "acos": _acos, "erf": _erf, "erfc": _erfc,
    **dict.fromkeys(("positive", "conj", "real", "stop_gradient"), _identity),
    "imag": lambda k, x: k.writer.expand(k.constant(0), x.shape),
    "square": lambda k, x: k.multiply(x, x),
    "relu": lambda k, x: k.maximum(x, k.constant(0)),
    "exp2": lambda k, x: k.power(k.constant(2), x),
    "log2": lambda k, x: k.divide(k.log(x), _ln(k, 2)),
    "log10": lambda k, x: k.divide(k.log(x), _ln(k, 10)),
    "atan": lambda k, x: k.atan2(x, k.constant(1)),
}  # fmt: skip
