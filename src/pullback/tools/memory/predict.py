"""Function and specs in, the peak of its memory out, before anything is computed.

The function and its backward pass run as they are, by the real tape and the real rules, but on figures: values that
know only how many bytes they would take. A figure lives exactly as long as the array that would stand in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...arrays.backends import is_array
from ...arrays.ledger import Ledger, owner_of
from ...arrays.node import leaf_node
from ...arrays.scope import Scope
from ...arrays.spec import Spec, spec_of
from ...arrays.tensor import Tensor, wrap
from ...arrays.trees import flatten, unflatten
from ...arrays.value import Value
from ...checkpoint.report import mebibytes
from ...errors import ArgumentError
from ...ops.op import Op
from ...settings import enable_grad
from ...tape.backward import gradients
from ...tape.cotangents import arrays_in
from ...tape.sweep import deepest_first, leaves_of

__all__ = ["Prediction", "predict"]

#: Elements up to which an op is tried out on bytes to see whether it answers a view.
_TRIED = 1 << 24


@dataclass(frozen=True, slots=True)
class Prediction:
    """Bytes of arrays alive at once: at most (`peak`), on each way, of the arguments, and between the two ways."""

    peak: int
    forward: int
    backward: int
    arguments: int
    kept: int

    def __str__(self) -> str:
        return (
            f"peak {mebibytes(self.peak)} (forward {mebibytes(self.forward)}, backward {mebibytes(self.backward)}); "
            f"arguments {mebibytes(self.arguments)}, kept in between {mebibytes(self.kept)}"
        )


class _Book:
    """The bytes of figures and of arrays that live now, and the most there were."""

    __slots__ = ("_arrays", "_figures", "captured", "peak")

    def __init__(self) -> None:
        self._figures = 0
        self._arrays = Ledger()
        self.peak = 0
        self.captured: dict[int, Tensor] = {}

    def add(self, nbytes: int) -> None:
        self._figures += nbytes
        self.peak = max(self.peak, self.live())

    def live(self) -> int:
        return self._figures + self._arrays.settle()

    def take_in(self, x: Any) -> None:
        """An array, or a tensor over one, that is there for real."""
        for array in arrays_in(x):
            self._arrays.see(array)
        if type(x) is Tensor and x.node is not None:
            leaves = (node.kept() for node in leaves_of(deepest_first([x.node])))
            self.captured |= {id(t): t for t in leaves if t is not None}


class _Space:
    """Memory that would be taken while this lives."""

    __slots__ = ("_book", "_nbytes")

    def __init__(self, nbytes: int, book: _Book) -> None:
        self._nbytes, self._book = nbytes, book
        book.add(nbytes)

    def __del__(self) -> None:
        self._book.add(-self._nbytes)


class Figure(Value):
    """A value known by its spec and by the memory it would take."""

    __slots__ = ("book", "level", "scope", "space", "spec")
    level: int

    def __init__(self, spec: Spec, scope: Scope, book: _Book, space: _Space | None = None) -> None:
        self.spec = spec.guarded()
        self.scope = scope
        self.level = scope.level
        self.book = book
        self.space = _Space(spec.nbytes, book) if space is None else space

    def interpret(self, op: Op, args: Sequence[Any], static: dict[str, Any]) -> Any:
        self.scope.check()
        for x in args:
            if type(x) is not Figure:
                self.book.take_in(x)
        made = op.spec_of([spec_of(x) for x in args], static)
        specs = made if type(made) is tuple else (made,)
        space = self.space if _is_view(op, args, static, specs[0]) else None
        results = tuple([Figure(spec, self.scope, self.book, space) for spec in specs])
        return results if type(made) is tuple else results[0]

    def __repr__(self) -> str:
        return f"<figure {self.spec}>"


def _is_view(op: Op, args: Sequence[Any], static: dict[str, Any], out: Spec) -> bool:
    """Whether an op answers a view of its one argument. It is tried on bytes that all lie in one place, so that views
    cost nothing; what might have to copy too much is taken for a view if it has the same elements, or repeats them.
    """
    if op.family != "linear" or len(args) != 1:
        return False
    spec = spec_of(args[0])
    if max(out.size, spec.size) > _TRIED:
        pairs = zip(reversed(spec.shape), reversed(out.shape), strict=False)
        stretched = out.size > spec.size and out.ndim >= spec.ndim and all(a in (1, b) for a, b in pairs)
        return op.motion == "rearrange" and (out.size == spec.size or stretched)
    stand_in = np.broadcast_to(np.zeros((), bool), spec.shape)
    try:
        found = op.value(np, stand_in, **static)
    except (TypeError, ValueError):
        return False
    first = found[0] if type(found) is tuple else found
    return is_array(first) and owner_of(first) is owner_of(stand_in)


def predict(
    f: Callable[..., Any], *args: Any, argnums: int | Sequence[int] | None = None, parameters: Sequence[Tensor] = ()
) -> Prediction:
    """The peak of living bytes when f and its backward pass run on arguments (arrays, specs or trees of them),
    without computing anything. `argnums` says which are differentiated, by default all that can be; tensors
    that f closes over are found, or given as `parameters` if f has no other arguments.

    >>> import numpy as np, pullback as pb
    >>> def f(x):
    ...     for _ in range(10):
    ...         x = pb.sin(x)
    ...     return pb.sum(x)
    >>> found = pb.memory.predict(f, pb.spec_of(np.zeros(1000)))
    >>> found.arguments, found.kept
    (8000, 72008)
    """
    if not args and not parameters:
        raise ArgumentError("memory.predict: f has neither arguments nor parameters.\n  Pass specs or arrays.")
    chosen = range(len(args)) if argnums is None else {argnums} if isinstance(argnums, int) else set(argnums)
    known = {id(t): t for t in parameters}
    while True:
        found, captured = _run(f, args, chosen, list(known.values()))
        if not captured.keys() - known.keys():
            return found
        known |= captured  # a tensor that f closes over has a gradient too: once more, with a figure in its place


def _run(f: Callable[..., Any], args: Sequence[Any], chosen: Any, known: list[Tensor]) -> tuple[Prediction, Any]:
    book = _Book()
    with Scope("prediction", lambda scope, x: Figure(spec_of(x), scope, book), lambda x: x) as scope, enable_grad():
        leaves: list[Tensor] = []
        given = [_figures(a, i in chosen, scope, book, leaves) for i, a in enumerate(args)]
        with _standing_in(known, scope, book):
            arguments = book.live()
            outs = flatten(f(*given))[0]
            forward, kept = book.peak, book.live()
            book.peak = 0
            _go_back([out for out in outs if isinstance(out, Tensor) and out.node is not None], leaves + known)
            backward = book.peak
    return Prediction(max(forward, backward), forward, backward, arguments, kept - arguments), book.captured


def _figures(tree: Any, tracked: bool, scope: Scope, book: _Book, leaves: list[Tensor]) -> Any:
    """An argument with figures for its arrays; tensors over them where they are differentiated."""
    found, structure = ([tree], None) if isinstance(tree, Spec) else flatten(tree)
    return unflatten(structure, [_figure(x, tracked, scope, book, leaves) for x in found])


def _figure(x: Any, tracked: bool, scope: Scope, book: _Book, leaves: list[Tensor]) -> Any:
    if not (isinstance(x, (Spec, Value)) or is_array(x)):
        return x
    spec = x if isinstance(x, Spec) else spec_of(x)
    figure = Figure(spec, scope, book)
    tensor = wrap(figure, figure.spec)
    if tracked and spec.inexact:
        tensor.node = leaf_node(tensor)
        leaves.append(tensor)
    return tensor


@contextmanager
def _standing_in(tensors: Sequence[Tensor], scope: Scope, book: _Book) -> Iterator[None]:
    """While it lasts, figures stand in the place of the tensors' values."""
    before = [(t, t.value, t.spec) for t in tensors]
    try:
        for t in tensors:
            t.value = Figure(t.spec, scope, book)
            t.spec = t.value.spec
        yield
    finally:
        for t, value, spec in before:
            t.value, t.spec = value, spec


def _go_back(outs: list[Tensor], leaves: list[Tensor]) -> None:
    """The backward pass; whatever comes out of it is let go at once."""
    wanted = [t for t in leaves if t.node is not None]
    if not outs or not wanted:
        return
    seeds = [None if out.size == 1 and out.dtype.kind != "c" else _seed(out) for out in outs]
    gradients(outs, wanted, seeds, allow_unused=True)


def _seed(out: Tensor) -> Any:
    figure = out.value
    return Figure(out.spec, figure.scope, figure.book) if type(figure) is Figure else None
