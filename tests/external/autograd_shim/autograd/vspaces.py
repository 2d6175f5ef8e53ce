"""A value in, the real vector space that it lives in out: its zeros, basis, inner product."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from .trees import dtype_of, leaves, tree_map


class VSpace:
    """The space of trees that look like one given; a complex number counts as two real ones."""

    def __init__(self, value: Any) -> None:
        for leaf in leaves(value):
            if dtype_of(leaf).kind not in "fc":
                raise TypeError(f"no vector space for {leaf!r}")
        self.form = tree_map(lambda leaf: lambda: (np.shape(leaf), dtype_of(leaf)), value)

    def specs(self) -> list[tuple[tuple[int, ...], np.dtype[Any]]]:
        """Shape and dtype of each leaf."""
        return [spec() for spec in leaves(self.form)]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VSpace) and _described(self.form) == _described(other.form)

    def __repr__(self) -> str:
        return f"VSpace({_described(self.form)})"

    __hash__ = None  # type: ignore[assignment]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape, for spaces of one array."""
        return self.form()[0]  # type: ignore[no-any-return]

    @property
    def iscomplex(self) -> bool:
        """Whether a leaf is complex."""
        return any(dtype.kind == "c" for _, dtype in self.specs())

    @property
    def size(self) -> int:
        """The number of real directions."""
        return sum(int(np.prod(shape)) * (2 if dtype.kind == "c" else 1) for shape, dtype in self.specs())

    def _made(self, make: Any) -> Any:
        return tree_map(lambda spec: _bare(make(*spec()), spec()), self.form)

    def zeros(self) -> Any:
        """The origin."""
        return self._made(np.zeros)

    def ones(self) -> Any:
        """The sum of the basis."""
        return self._made(lambda shape, dtype: np.full(shape, 1 + 1j if dtype.kind == "c" else 1, dtype))

    def randn(self) -> Any:
        """A random direction."""

        def draw(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
            real = np.random.randn(*shape)
            return np.asarray(real + 1j * np.random.randn(*shape) if dtype.kind == "c" else real).astype(dtype)

        return self._made(draw)

    def standard_basis(self) -> Iterator[Any]:
        """One vector for each real direction."""
        for place, (shape, dtype) in enumerate(self.specs()):
            for index in np.ndindex(*shape):
                for unit in (1.0, 1j) if dtype.kind == "c" else (1.0,):
                    yield self._unit(place, index, unit)

    def _unit(self, place: int, index: tuple[int, ...], unit: complex) -> Any:
        count = iter(range(len(self.specs())))

        def make(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
            out = np.zeros(shape, dtype)
            if next(count) == place:
                out[index] = unit
            return out

        return _rebuilt(self.form, [_bare(make(*spec), spec) for spec in self.specs()])

    def add(self, x: Any, y: Any) -> Any:
        """The sum."""
        return tree_map(lambda a, b: a + b, x, y)

    def scalar_mul(self, x: Any, a: Any) -> Any:
        """The multiple by a real number, in the dtype of the vector."""
        return tree_map(lambda leaf: leaf * a, x)

    def inner_prod(self, x: Any, y: Any) -> Any:
        """The real inner product."""
        total = 0.0
        for a, b in zip(leaves(x), leaves(y), strict=True):
            total = total + np.sum(np.real(np.conj(a) * b))
        return total

    def covector(self, x: Any) -> Any:
        """The functional v -> <x, v>, in autograd's convention: complex numbers conjugated."""
        return tree_map(lambda leaf: np.conj(leaf) if dtype_of(leaf).kind == "c" else leaf, x)


def vspace(value: Any) -> VSpace:
    """The space of a value."""
    return VSpace(value)


def _described(form: Any) -> Any:
    return tree_map(lambda spec: [str(part) for part in spec()], form)


def _bare(array: Any, spec: tuple[tuple[int, ...], np.dtype[Any]]) -> Any:
    """NumPy's scalar where the shape is (), as autograd has it."""
    return array[()] if spec[0] == () and isinstance(array, np.ndarray) else array


def _rebuilt(form: Any, values: list[Any]) -> Any:
    """A tree of values given in the order of the leaves."""
    names = [id(spec) for spec in leaves(form)]
    table = dict(zip(names, values, strict=True))
    return tree_map(lambda spec: table[id(spec)], form)
