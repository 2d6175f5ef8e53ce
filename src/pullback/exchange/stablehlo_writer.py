"""`StableHloWriter`: graphs as operations of StableHLO, in MLIR text."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, final

import numpy as np

from ..compile.vocabulary import fold_identity
from ..ops.window.patches import window_counts
from .complex_words import real_dtype
from .graph_writer import GraphWriter, NoEquivalent, Ref, Shape, array_key
from .mlir_text import array_of, dense, integers, names_of, signature, tensor_type, type_of, types_of
from .pairwise_products import Pairing, contract_pairs
from .stablehlo_operations import ROUTINES, SPECIAL_WORDS
from .words import GraphWords, is_floating

_INT32: np.dtype[Any] = np.dtype(np.int32)
_INT64: np.dtype[Any] = np.dtype(np.int64)
_BOOL: np.dtype[Any] = np.dtype(bool)
#: The operation of each word that is one, with arguments and result of one type.
_OPERATIONS = {
    "add": "add", "subtract": "subtract", "multiply": "multiply", "divide": "divide", "maximum": "maximum",
    "minimum": "minimum", "power": "power", "sqrt": "sqrt", "exp": "exponential", "log": "log", "sin": "sine",
    "cos": "cosine", "tan": "tan", "tanh": "tanh", "sigmoid": "logistic", "expm1": "exponential_minus_one",
    "log1p": "log_plus_one", "cbrt": "cbrt", "floor": "floor", "ceil": "ceil", "rint": "round_nearest_even",
    "atan2": "atan2", "fmod": "remainder", "negative": "negate", "logical_and": "and", "logical_or": "or",
    "logical_xor": "xor", "logical_not": "not", "bitwise_and": "and", "bitwise_or": "or", "bitwise_xor": "xor",
    "bitwise_invert": "not", "bitwise_left_shift": "shift_left",
}  # fmt: skip
_COMPARISONS = {"equal": "EQ", "less": "LT", "less_equal": "LE", "greater": "GT", "greater_equal": "GE"}
_COMPARED = {"i": "SIGNED", "u": "UNSIGNED", "b": "UNSIGNED"}
_REDUCTIONS = {
    "add": "add", "multiply": "multiply", "maximum": "maximum", "minimum": "minimum", "logical_or": "or",
    "logical_and": "and",
}  # fmt: skip
_OF_BOOLEANS = {"add": "logical_or", "maximum": "logical_or", "multiply": "logical_and", "minimum": "logical_and"}


@final
class StableHloWriter(GraphWriter):
    """Appends lines to the innermost region; names are unique over all regions, and constants stand before all."""

    format = "to_stablehlo"
    words = frozenset(_OPERATIONS) | frozenset(_COMPARISONS) | {
        "abs", "sign", "select", "isnan", "isinf", "bitwise_right_shift",
    }  # fmt: skip

    def __init__(self) -> None:
        self.constants: list[str] = []
        self.regions: list[list[str]] = [[]]
        self._numbers = itertools.count()
        self._known: dict[Any, Ref] = {}

    # Lines

    def line(self, text: str) -> None:
        self.regions[-1].append("  " * (len(self.regions) + 1) + text)

    def name(self) -> str:
        return f"%v{next(self._numbers)}"

    def emit(self, text: str, types: str, shape: Shape, dtype: np.dtype[Any]) -> Ref:
        """An operation with one result."""
        found = Ref(self.name(), shape, dtype)
        self.line(f"{found.name} = {text} : {types}")
        return found

    def plain(self, operation: str, xs: Sequence[Ref], shape: Shape, dtype: np.dtype[Any], how: str = "") -> Ref:
        """An operation in its plain form, whose attributes are between angle brackets."""
        result = Ref("", shape, dtype)
        how = f" <{{{how}}}>" if how else ""
        return self.emit(f'"stablehlo.{operation}"({names_of(xs)}){how}', signature(xs, [result]), shape, dtype)

    @contextmanager
    def _region(self) -> Iterator[list[str]]:
        self.regions.append([])
        try:
            yield self.regions[-1]
        finally:
            self.regions.pop()

    def _several(self, results: Sequence[Ref], head: str, parts: Sequence[tuple[str, list[str]]], tail: str) -> None:
        """An operation with regions, each after the text that opens it."""
        indent = "  " * (len(self.regions) + 1)
        self.line(f"{results[0].name.partition('#')[0]}:{len(results)} = {head}")
        for opening, lines in parts:
            self.regions[-1] += [f"{indent}{opening}", *lines]
        self.line(tail)

    def _results(self, shapes: Sequence[tuple[Shape, np.dtype[Any]]]) -> list[Ref]:
        name = self.name()
        return [Ref(f"{name}#{i}", *pair) for i, pair in enumerate(shapes)]

    def _return(self, xs: Sequence[Ref]) -> None:
        self.line(f"stablehlo.return {names_of(xs)} : {types_of(xs)}")

    # Elements

    def constant(self, array: Any) -> Ref:
        array = np.asarray(array)
        key = array_key(array)
        if key not in self._known:
            found = Ref(f"%c{len(self._known)}", array.shape, array.dtype, array)
            self.constants.append(f"    {found.name} = stablehlo.constant {dense(array)} : {type_of(found)}")
            self._known[key] = found
        return self._known[key]

    def word(self, word: str, dtype: np.dtype[Any], *xs: Ref) -> Ref:
        shape = np.broadcast_shapes(*(x.shape for x in xs))
        xs = tuple(self.expand(x, shape) for x in xs)
        if word in SPECIAL_WORDS:
            return SPECIAL_WORDS[word](self, *xs)
        if word in _COMPARISONS:
            kind = _COMPARED.get(xs[0].dtype.kind, "FLOAT")
            text = f"stablehlo.compare {_COMPARISONS[word]}, {names_of(xs)}, {kind}"
            return self.emit(text, signature(xs, [Ref("", shape, _BOOL)]), shape, _BOOL)
        return self.emit(f"stablehlo.{_OPERATIONS[word]} {names_of(xs)}", tensor_type(shape, dtype), shape, dtype)

    def cast(self, x: Ref, dtype: np.dtype[Any]) -> Ref:
        if x.dtype == dtype:
            return x
        if x.known is not None and dtype.kind != "V":
            with np.errstate(all="ignore"):
                return self.constant(np.asarray(x.known).astype(dtype))
        if x.dtype.kind == "c" and dtype.kind != "c":
            return self.cast(self.complex_part("real", x), dtype)
        if dtype.kind == "c" and x.dtype.kind != "c":
            re = self.cast(x, real_dtype(dtype))
            return self.make_complex(re, self.expand(self.constant(np.zeros((), re.dtype)), re.shape))
        return self.emit(f"stablehlo.convert {x.name}", signature([x], [Ref("", x.shape, dtype)]), x.shape, dtype)

    def make_complex(self, re: Ref, im: Ref) -> Ref:
        dtype = np.dtype(f"c{2 * re.dtype.itemsize}")
        shape = np.broadcast_shapes(re.shape, im.shape)
        return self.plain("complex", [self.expand(re, shape), self.expand(im, shape)], shape, dtype)

    def complex_part(self, which: str, x: Ref) -> Ref:
        return self.plain(which, [x], x.shape, real_dtype(x.dtype))

    def fourier(self, x: Ref, kind: str, sizes: Shape) -> Ref:
        if len(sizes) > 3:  # more axes than one operation has: the last ones first
            return self._fourier_ahead(self.fourier(x, kind, sizes[-3:]), kind, sizes[:-3])
        dtype = x.dtype
        if kind == "rfft":
            dtype = np.dtype(f"c{2 * x.dtype.itemsize}")
        elif kind == "irfft":
            dtype = real_dtype(x.dtype)
        last = {"rfft": sizes[-1] // 2 + 1, "irfft": sizes[-1]}.get(kind, x.shape[-1])
        how = f"fft_length = {array_of(sizes)}, fft_type = #stablehlo<fft_type {kind.upper()}>"
        found = self.plain("fft", [x], (*x.shape[:-1], last), dtype, how)
        if kind in ("fft", "rfft"):
            return found
        k = GraphWords(self, dtype)  # the inverse has the factor 1 / n here
        return k.multiply(found, k.constant(math.prod(sizes)))

    def _fourier_ahead(self, x: Ref, kind: str, sizes: Shape) -> Ref:
        """The transform over the axes before the last three."""
        ahead, last = x.ndim - 3 - len(sizes), x.ndim - 3
        order = (*range(ahead), *range(last, x.ndim), *range(ahead, last))
        found = self.fourier(self.transpose(x, order), kind, sizes)
        return self.transpose(found, tuple(order.index(i) for i in range(x.ndim)))

    # Axes

    def reshape(self, x: Ref, shape: Shape) -> Ref:
        if x.shape == shape:
            return x
        if x.known is not None:
            return self.constant(np.reshape(x.known, shape))
        return self.emit(f"stablehlo.reshape {x.name}", signature([x], [Ref("", shape, x.dtype)]), shape, x.dtype)

    def transpose(self, x: Ref, axes: Shape) -> Ref:
        shape = tuple(x.shape[a] for a in axes)
        types = signature([x], [Ref("", shape, x.dtype)])
        return self.emit(f"stablehlo.transpose {x.name}, dims = {integers(axes)}", types, shape, x.dtype)

    def expand(self, x: Ref, shape: Shape) -> Ref:
        if x.shape == shape:
            return x
        places = range(len(shape) - x.ndim, len(shape))
        types = signature([x], [Ref("", shape, x.dtype)])
        return self.emit(f"stablehlo.broadcast_in_dim {x.name}, dims = {integers(places)}", types, shape, x.dtype)

    def slice(self, x: Ref, starts: Shape, stops: Shape, steps: Shape) -> Ref:
        parts = list(zip(starts, stops, steps, strict=True))
        shape = tuple(-(-(b - a) // s) for a, b, s in parts)
        text = ", ".join(f"{a}:{b}:{s}" for a, b, s in parts)
        types = signature([x], [Ref("", shape, x.dtype)])
        return self.emit(f"stablehlo.slice {x.name} [{text}]", types, shape, x.dtype)

    def reverse(self, x: Ref, axes: Shape) -> Ref:
        return self.emit(f"stablehlo.reverse {x.name}, dims = {integers(axes)}", type_of(x), x.shape, x.dtype)

    def concat(self, xs: Sequence[Ref], axis: int) -> Ref:
        axis %= xs[0].ndim
        shape = list(xs[0].shape)
        shape[axis] = sum(x.shape[axis] for x in xs)
        types = signature(xs, [Ref("", tuple(shape), xs[0].dtype)])
        return self.emit(f"stablehlo.concatenate {names_of(xs)}, dim = {axis}", types, tuple(shape), xs[0].dtype)

    def iota(self, count: int) -> Ref:
        return self.emit("stablehlo.iota dim = 0", tensor_type((count,), _INT64), (count,), _INT64)

    # Reads and writes

    def take(self, x: Ref, indices: Ref) -> Ref:
        indices, rest = self.cast(indices, _INT64), x.shape[1:]
        numbers = (
            f"offset_dims = {integers(range(indices.ndim, indices.ndim + len(rest)))}, collapsed_slice_dims = [0], "
            f"start_index_map = [0], index_vector_dim = {indices.ndim}"
        )
        how = f"dimension_numbers = #stablehlo.gather<{numbers}>, slice_sizes = {array_of((1, *rest))}"
        return self.plain(
            "gather", [x, indices], (*indices.shape, *rest), x.dtype, f"{how}, indices_are_sorted = false"
        )

    def put(self, x: Ref, indices: Ref, rows: Ref, word: str | None) -> Ref:
        indices = self.cast(indices, _INT64)
        numbers = (
            f"update_window_dims = {integers(range(1, x.ndim))}, inserted_window_dims = [0], "
            "scatter_dims_to_operand_dims = [0], index_vector_dim = 1"
        )
        how = f"scatter_dimension_numbers = #stablehlo.scatter<{numbers}>, indices_are_sorted = false"
        given = [x, indices, rows]
        results = self._results([(x.shape, x.dtype)])
        old, new = (Ref(self.name(), (), x.dtype) for _ in range(2))
        with self._region() as lines:
            self._return([new if word is None else getattr(GraphWords(self, x.dtype), word)(old, new)])
        head = f'"stablehlo.scatter"({names_of(given)}) <{{{how}, unique_indices = false}}> ({{'
        self._several(results, head, [(_block(old, new), lines)], f"}}) : {signature(given, results)}")
        return results[0]

    # Reductions and products

    def reduce(self, word: str, x: Ref, axes: Shape) -> Ref:
        shape = tuple(n for i, n in enumerate(x.shape) if i not in axes)
        if x.dtype.kind == "b":
            word = _OF_BOOLEANS.get(word, word)
        if x.dtype.kind == "c" and word not in ("add", "multiply"):
            raise NoEquivalent("complex numbers have no order")
        start = self._fold_start(word, x.dtype)
        text = (
            f"stablehlo.reduce({x.name} init: {start.name}) applies stablehlo.{_REDUCTIONS[word]} "
            f"across dimensions = {integers(axes)}"
        )
        return self.emit(text, signature([x, start], [Ref("", shape, x.dtype)]), shape, x.dtype)

    def _fold_start(self, word: str, dtype: np.dtype[Any]) -> Ref:
        return self.constant(np.asarray(fold_identity(word, dtype), dtype))

    def contract(self, labels: Sequence[str], result: str, xs: Sequence[Ref]) -> Ref:
        if xs[0].dtype.kind == "b":
            counts = self.contract(labels, result, [self.cast(x, _INT32) for x in xs])
            return self.cast(counts, _BOOL)
        return contract_pairs(self, labels, result, xs, self._multiply)

    def _multiply(self, x: Ref, y: Ref, pairing: Pairing) -> Ref:
        batch, summed = (" x ".join(map(integers, places)) for places in (pairing.batch, pairing.summed))
        text = (
            f"stablehlo.dot_general {x.name}, {y.name}, batching_dims = {batch}, contracting_dims = {summed}, "
            "precision = [HIGHEST, HIGHEST]"
        )
        return self.emit(text, signature([x, y], [Ref("", pairing.shape, x.dtype)]), pairing.shape, x.dtype)

    def convolve(self, x: Ref, w: Ref, stride: Shape, padding: Any, dilation: Shape, groups: int) -> Ref:
        if x.dtype.kind == "c":
            raise NoEquivalent("convolutions of complex numbers are not exported")
        grid = ", ".join(map(str, range(len(stride))))
        many = window_counts(self.format, x.shape[2:], w.shape[2:], stride, padding, dilation)
        pads = integers(integers(pair) for pair in padding)
        text = (
            f"stablehlo.convolution({x.name}, {w.name}) dim_numbers = [b, f, {grid}]x[o, i, {grid}]->[b, f, {grid}], "
            f"window = {{stride = {integers(stride)}, pad = {pads}, rhs_dilate = {integers(dilation)}}} "
            f"{{batch_group_count = 1 : i64, feature_group_count = {groups} : i64, "
            "precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]}"
        )
        shape = (x.shape[0], w.shape[0], *many)
        return self.emit(text, signature([x, w], [Ref("", shape, x.dtype)]), shape, x.dtype)

    def sort_places(self, x: Ref, axis: int, descending: bool) -> Ref:
        if not x.ndim or not math.prod(x.shape):
            return self.expand(self.constant(np.int64(0)), x.shape)
        narrow = tuple(n if i == axis else 1 for i, n in enumerate(x.shape))
        given = [x, self.expand(self.reshape(self.iota(x.shape[axis]), narrow), x.shape)]
        results = self._results([(x.shape, x.dtype), (x.shape, _INT64)])
        a, b = (Ref(self.name(), (), x.dtype) for _ in range(2))
        places = [Ref(self.name(), (), _INT64) for _ in range(2)]
        with self._region() as lines:
            self._return([_comes_before(self, *((b, a) if descending else (a, b)))])
        how = f"dimension = {axis} : i64, is_stable = true"
        head = f'"stablehlo.sort"({names_of(given)}) <{{{how}}}> ({{'
        self._several(results, head, [(_block(a, b, *places), lines)], f"}}) : {signature(given, results)}")
        return results[1]

    def accumulate(self, word: str, x: Ref, axis: int) -> Ref:
        """By doubling: each element with the one before it, then two before it, then four."""
        if not x.ndim or not math.prod(x.shape):
            return x
        k, n, step = GraphWords(self, x.dtype), x.shape[axis], 1
        while step < n:
            stops = tuple(m - step if i == axis else m for i, m in enumerate(x.shape))
            ahead = tuple(step if i == axis else m for i, m in enumerate(x.shape))
            start = self.expand(self._fold_start(word, x.dtype), ahead)
            earlier = self.slice(x, (0,) * x.ndim, stops, (1,) * x.ndim)
            x, step = getattr(k, word)(self.concat([start, earlier], axis), x), 2 * step
        return x

    def has_routine(self, routine: str, dtype: np.dtype[Any]) -> bool:
        return routine in ROUTINES

    def matrix(self, routine: str, xs: Sequence[Ref], static: dict[str, Any], made: Sequence[Any]) -> list[Ref]:
        return [ROUTINES[routine](self, xs, static, made[0])]

    # Programs inside

    def branch(self, which: Ref, ways: Sequence[Callable[[], Sequence[Ref]]]) -> list[Ref]:
        parts: list[list[str]] = []
        found: Sequence[Ref] = ()
        for way in ways:
            with self._region() as lines:
                found = way()
                self._return(found)
            parts.append(lines)
        if not found:
            return []
        number = self.cast(which, _INT32)
        results = self._results([(x.shape, x.dtype) for x in found])
        opened = [("}, {", lines) if i else ("{", lines) for i, lines in enumerate(parts)]
        tail = f"}}) : (tensor<i32>) -> ({types_of(results)})"
        self._several(results, f'"stablehlo.case"({number.name}) (', opened, tail)
        return results

    def repeat(
        self, carry: Sequence[Ref], condition: Callable[..., Ref], step: Callable[..., Sequence[Ref]]
    ) -> list[Ref]:
        state = [Ref(self.name(), x.shape, x.dtype) for x in carry]
        with self._region() as test:
            self._return([condition(*state)])
        with self._region() as body:
            self._return(step(*state))
        results = self._results([(x.shape, x.dtype) for x in carry])
        starts = ", ".join(f"{s.name} = {x.name}" for s, x in zip(state, carry, strict=True))
        head = f"stablehlo.while({starts}) : {types_of(carry)}"
        self._several(results, head, [("cond {", test), ("} do {", body)], "}")
        return results

    def iterate(
        self, length: int, carry: Sequence[Ref], step: Callable[..., tuple[Sequence[Ref], Sequence[Ref]]],
        rows: Sequence[tuple[Shape, np.dtype[Any]]],
    ) -> tuple[list[Ref], list[Ref]]:  # fmt: skip
        k = GraphWords(self, _INT64)
        stacks = [self.expand(self.constant(np.zeros((), dtype)), (length, *shape)) for shape, dtype in rows]

        def body(number: Ref, *state: Ref) -> list[Ref]:
            new, made = step(number, *state[: len(carry)])
            grown = [self._put_row(y, row, number) for y, row in zip(state[len(carry) :], made, strict=True)]
            return [k.add(number, k.constant(1)), *new, *grown]

        def is_before_end(number: Ref, *state: Ref) -> Ref:
            found: Ref = k.less(number, k.constant(length))
            return found

        found = self.repeat([k.constant(0), *carry, *stacks], is_before_end, body)[1:]
        return found[: len(carry)], found[len(carry) :]

    def _put_row(self, stack: Ref, row: Ref, number: Ref) -> Ref:
        start = [number, *[self.constant(np.int64(0))] * row.ndim]
        given = [stack, self.reshape(row, (1, *row.shape)), *start]
        text = f"stablehlo.dynamic_update_slice {names_of(given)}"
        return self.emit(text, signature(given, [stack]), stack.shape, stack.dtype)


def _block(*xs: Ref) -> str:
    """The start of a region with arguments."""
    return f"^bb0({', '.join(f'{x.name}: {type_of(x)}' for x in xs)}):"


def _comes_before(w: StableHloWriter, a: Ref, b: Ref) -> Ref:
    """Whether a is sorted before b: a NaN comes after all numbers."""
    k = GraphWords(w, a.dtype)
    found: Ref = k.less(a, b)
    return k.logical_or(found, k.logical_and(k.isnan(b), k.logical_not(k.isnan(a)))) if is_floating(a.dtype) else found
