"""Words of the scalar vocabulary for complex numbers, in formats that have these."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from .graph_writer import NoEquivalent, Ref

if TYPE_CHECKING:
    from .words import GraphWords

#: Words that a format with complex numbers has for them too.
_NATIVE = frozenset((
    "add", "subtract", "multiply", "divide", "negative", "exp", "expm1", "log", "log1p", "sqrt", "sin", "cos", "tan",
    "tanh", "power", "sign",
))  # fmt: skip


def real_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype of the parts of a complex number."""
    return np.dtype(f"f{dtype.itemsize // 2}")


def write_complex_word(k: GraphWords, word: str, *xs: Ref) -> Ref:
    """A word applied to numbers of which some are complex."""
    if word in _NATIVE:
        return k.writer.word(word, k.dtype, *map(k.coerce, xs))
    if word in _COMPOSITIONS:
        return _COMPOSITIONS[word](k, *map(k.coerce, xs))
    raise NoEquivalent(f"its kernel needs {word!r} of complex numbers, which {k.writer.format} has no operation for")


def _parts(k: GraphWords, x: Ref) -> tuple[Ref, Ref]:
    return k.writer.complex_part("real", x), k.writer.complex_part("imag", x)


def _test_parts(word: str) -> Callable[..., Ref]:
    def test(k: GraphWords, x: Ref) -> Ref:
        re, im = _parts(k, x)
        return k.logical_or(getattr(k, word)(re), getattr(k, word)(im))

    return test


def _by_parts(along: tuple[str, str], across: tuple[str, str]) -> Callable[..., Ref]:
    """f(a) g(b) + i u(a) v(b) of x = a + i b, for (f, g) and (u, v)."""

    def combine(k: GraphWords, x: Ref) -> Ref:
        re, im = _parts(k, x)
        part = k.of_parts()
        products = [part.multiply(getattr(part, f)(re), getattr(part, g)(im)) for f, g in (along, across)]
        return k.writer.make_complex(*products)

    return combine


def _conj(k: GraphWords, x: Ref) -> Ref:
    re, im = _parts(k, x)
    return k.writer.make_complex(re, k.of_parts().negative(im))


def _scaled_log(base: float) -> Callable[..., Ref]:
    return lambda k, x: k.multiply(k.log(x), k.constant(1 / math.log(base)))


_COMPOSITIONS: dict[str, Callable[..., Ref]] = {
    "real": lambda k, x: k.writer.complex_part("real", x),
    "imag": lambda k, x: k.writer.complex_part("imag", x),
    "abs": lambda k, x: k.writer.complex_part("abs", x),
    "conj": _conj,
    "positive": lambda k, x: x,
    "stop_gradient": lambda k, x: x,
    "square": lambda k, x: k.multiply(x, x),
    "exp2": lambda k, x: k.exp(k.multiply(x, k.constant(math.log(2)))),
    "log2": _scaled_log(2),
    "log10": _scaled_log(10),
    "sinh": _by_parts(("sinh", "cos"), ("cosh", "sin")),
    "cosh": _by_parts(("cosh", "cos"), ("sinh", "sin")),
    "equal": lambda k, x, y: k.writer.word("equal", np.dtype(bool), x, y),
    "isnan": _test_parts("isnan"),
    "isinf": _test_parts("isinf"),
}
