"""`OnnxWriter`: graphs as ONNX nodes of operator set 18."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, final

import numpy as np

from ..compile.vocabulary import value_dtype
from ..ops.window.patches import window_counts
from .graph_writer import GraphWriter, NoEquivalent, Ref, Shape, array_key
from .onnx_model import OnnxGraph, element_type, encode_node
from .onnx_weights import Weights
from .words import COMPOSITIONS, GraphWords, differ_in_sign, is_floating, safe_divisor

_INT64: np.dtype[Any] = np.dtype(np.int64)
_BOOL: np.dtype[Any] = np.dtype(bool)
#: The operator of each word that is one.
_OPERATORS = {
    "add": "Add", "subtract": "Sub", "multiply": "Mul", "divide": "Div", "abs": "Abs", "maximum": "Max",
    "minimum": "Min", "sign": "Sign", "power": "Pow", "sqrt": "Sqrt", "exp": "Exp", "log": "Log", "sin": "Sin",
    "cos": "Cos", "tan": "Tan", "asin": "Asin", "acos": "Acos", "atan": "Atan", "sinh": "Sinh", "cosh": "Cosh",
    "tanh": "Tanh", "asinh": "Asinh", "acosh": "Acosh", "atanh": "Atanh", "sigmoid": "Sigmoid",
    "floor": "Floor", "ceil": "Ceil", "rint": "Round", "select": "Where", "isnan": "IsNaN", "isinf": "IsInf",
    "equal": "Equal", "less": "Less", "less_equal": "LessOrEqual", "greater": "Greater",
    "greater_equal": "GreaterOrEqual", "logical_and": "And", "logical_or": "Or", "logical_xor": "Xor",
    "logical_not": "Not", "bitwise_and": "BitwiseAnd", "bitwise_or": "BitwiseOr", "bitwise_xor": "BitwiseXor",
    "bitwise_invert": "BitwiseNot",
}  # fmt: skip
_REDUCTIONS = {"add": "ReduceSum", "multiply": "ReduceProd", "maximum": "ReduceMax", "minimum": "ReduceMin"}
#: Dtypes that reductions and products are defined for; others go by a wider one.
_SUMMED = frozenset(("uint64", "int32", "int64", "float32", "float64"))
#: What words for bits are of booleans, for which their operators are not defined.
_BOOL_BITS = {"bitwise_and": "logical_and", "bitwise_or": "logical_or", "bitwise_xor": "logical_xor"}


@final
class OnnxWriter(GraphWriter):
    """Appends nodes to the innermost graph; names are unique over all graphs of the model."""

    format = "to_onnx"
    words = frozenset(_OPERATORS) | {
        "erf",
        "fmod",
        "remainder",
        "negative",
        "bitwise_left_shift",
        "bitwise_right_shift",
    }

    def __init__(self, names_in_use: Sequence[str] = ()) -> None:
        self.graphs = [OnnxGraph()]
        self._names_in_use = frozenset(names_in_use)
        self._numbers = itertools.count()
        self._constants: dict[Any, Ref] = {}
        self._read: set[str] = set()

    def name(self) -> str:
        return next(n for number in self._numbers if (n := f"v{number}") not in self._names_in_use)

    def node(self, kind: str, inputs: Sequence[Ref | None], shape: Shape, dtype: np.dtype[Any], **how: Any) -> Ref:
        """A node with one result."""
        element_type(dtype)
        found = Ref(self.name(), shape, dtype)
        self.emit(kind, inputs, [found], **how)
        return found

    def emit(self, kind: str, inputs: Sequence[Ref | None], outputs: Sequence[Ref], **how: Any) -> None:
        names = ["" if x is None else x.name for x in inputs]
        self._read.update(names)
        self.graphs[-1].nodes.append(encode_node(kind, names, [x.name for x in outputs], how))

    def constant(self, array: Any) -> Ref:
        array = np.asarray(array)
        key = array_key(array)
        if key not in self._constants:
            self._constants[key] = Ref(self.name(), array.shape, array.dtype, array)
        return self._constants[key]

    def encode(self, inputs: Sequence[Ref], outputs: Sequence[Ref], weights: Weights) -> bytes:
        """The outermost graph, with the constants that any graph reads: those inside see them."""
        (graph,) = self.graphs
        read = [weights.encode(x.known, x.name) for x in self._constants.values() if x.name in self._read]
        return graph.encode("program", inputs, outputs, read)

    def integers(self, *numbers: int) -> Ref:
        return self.constant(np.array(numbers, np.int64))

    def word(self, word: str, dtype: np.dtype[Any], *xs: Ref) -> Ref:
        if word in _SPECIAL:
            return _SPECIAL[word](self, dtype, *xs)
        if dtype.kind == "b" and word in _BOOL_BITS:
            word = _BOOL_BITS[word]
        elif dtype.kind == "b" and word == "bitwise_invert":
            word = "logical_not"
        elif dtype.kind == "b" and word == "abs":
            return xs[0]
        shape = np.broadcast_shapes(*(x.shape for x in xs))
        return self.node(_OPERATORS[word], xs, shape, dtype)

    def cast(self, x: Ref, dtype: np.dtype[Any]) -> Ref:
        if x.dtype == dtype:
            return x
        if x.known is not None and dtype.kind != "V":
            with np.errstate(all="ignore"):
                return self.constant(np.asarray(x.known).astype(dtype))
        return self.node("Cast", [x], x.shape, dtype, to=element_type(dtype))

    def make_complex(self, re: Ref, im: Ref) -> Ref:
        raise NotImplementedError("`PairWriter` has complex numbers for this format")

    def complex_part(self, which: str, x: Ref) -> Ref:
        raise NotImplementedError("`PairWriter` has complex numbers for this format")

    def fourier(self, x: Ref, kind: str, sizes: Shape) -> Ref:
        """Over one axis, of numbers whose parts are along another one after it."""
        (n,) = sizes
        rest = x.shape[: x.ndim - (1 if kind == "rfft" else 2)]
        rows = self.reshape(x, (math.prod(rest), n, 1 if kind == "rfft" else 2))
        kept = n // 2 + 1 if kind == "rfft" else n
        shape = (math.prod(rest), kept, 2)
        how = {"axis": 1, "inverse": int(kind == "ifft"), "onesided": int(kind == "rfft")}
        found = self.reshape(self.node("DFT", [rows], shape, x.dtype, **how), (*rest, kept, 2))
        k = GraphWords(self, x.dtype)  # the inverse has the factor 1 / n here
        return k.multiply(found, k.constant(n)) if kind == "ifft" else found

    def reshape(self, x: Ref, shape: Shape) -> Ref:
        if x.shape == shape:
            return x
        if x.known is not None:
            return self.constant(np.reshape(x.known, shape))
        return self.node("Reshape", [x, self.integers(*shape)], shape, x.dtype, allowzero=1)

    def transpose(self, x: Ref, axes: Shape) -> Ref:
        return self.node("Transpose", [x], tuple(x.shape[a] for a in axes), x.dtype, perm=axes)

    def expand(self, x: Ref, shape: Shape) -> Ref:
        return x if x.shape == shape else self.node("Expand", [x, self.integers(*shape)], shape, x.dtype)

    def slice(self, x: Ref, starts: Shape, stops: Shape, steps: Shape) -> Ref:
        shape = tuple(-(-(b - a) // s) for a, b, s in zip(starts, stops, steps, strict=True))
        axes = [i for i, n in enumerate(x.shape) if (starts[i], stops[i], steps[i]) != (0, n, 1)]
        parts = [self.integers(*(values[i] for i in axes)) for values in (starts, stops, range(x.ndim), steps)]
        return self.node("Slice", [x, *parts], shape, x.dtype)

    def reverse(self, x: Ref, axes: Shape) -> Ref:
        ends = [np.iinfo(np.int64).min] * len(axes)
        parts = [self.integers(*values) for values in ([-1] * len(axes), ends, axes, [-1] * len(axes))]
        return self.node("Slice", [x, *parts], x.shape, x.dtype)

    def concat(self, xs: Sequence[Ref], axis: int) -> Ref:
        shape = list(xs[0].shape)
        shape[axis] = sum(x.shape[axis] for x in xs)
        return self.node("Concat", xs, tuple(shape), xs[0].dtype, axis=axis)

    def iota(self, count: int) -> Ref:
        ends = [self.constant(np.int64(n)) for n in (0, count, 1)]
        return self.node("Range", ends, (count,), _INT64)

    def take(self, x: Ref, indices: Ref) -> Ref:
        indices = self.cast(indices, _INT64)
        return self.node("Gather", [x, indices], (*indices.shape, *x.shape[1:]), x.dtype, axis=0)

    def put(self, x: Ref, indices: Ref, rows: Ref, word: str | None) -> Ref:
        if word is not None and x.dtype.kind == "b":
            counts = self.put(self.cast(x, _INT64), indices, self.cast(rows, _INT64), word)
            return self.cast(counts, _BOOL)
        places = self.reshape(self.cast(indices, _INT64), (*indices.shape, 1))
        how = {} if word is None else {"reduction": {"add": "add", "maximum": "max", "minimum": "min"}[word]}
        return self.node("ScatterND", [x, places, rows], x.shape, x.dtype, **how)

    def reduce(self, word: str, x: Ref, axes: Shape) -> Ref:
        shape = tuple(n for i, n in enumerate(x.shape) if i not in axes)
        if x.dtype.kind == "b":  # whether any holds is a maximum, whether all do a minimum
            word = "maximum" if word in ("logical_or", "add", "maximum") else "minimum"
            if not math.prod(x.shape):
                return self.expand(self.constant(np.asarray(word == "minimum")), shape)
            return self.cast(self.reduce(word, self.cast(x, np.dtype(np.int32)), axes), _BOOL)
        # sums modulo 2^64 are the same with a sign, and runtimes have more kernels for numbers with one
        if x.dtype.name not in _SUMMED or (x.dtype.kind == "u" and word in ("add", "multiply")):
            return self.cast(self.reduce(word, self.cast(x, _INT64), axes), x.dtype)
        return self.node(_REDUCTIONS[word], [x, self.integers(*axes)], shape, x.dtype, keepdims=0)

    def contract(self, labels: Sequence[str], result: str, xs: Sequence[Ref]) -> Ref:
        if xs[0].dtype.name not in _SUMMED:
            wide = [self.cast(x, _INT64) for x in xs]
            return self.cast(self.contract(labels, result, wide), xs[0].dtype)
        sizes = {c: n for s, x in zip(labels, xs, strict=True) for c, n in zip(s, x.shape, strict=True)}
        shape = tuple(sizes[c] for c in result)
        if not math.prod(sizes.values()):
            return self.expand(self.constant(np.zeros((), xs[0].dtype)), shape)
        if len(xs) == 2 and _is_matrix_product(labels, result):
            return self.node("MatMul", xs, shape, xs[0].dtype)
        # letters of the equation are small ones, whatever the op calls its axes
        letters = {c: chr(ord("a") + i) for i, c in enumerate(sizes)}
        texts = ["".join(letters[c] for c in s) for s in (*labels, result)]
        equation = ",".join(texts[:-1]) + "->" + texts[-1]
        return self.node("Einsum", xs, shape, xs[0].dtype, equation=equation)

    def convolve(self, x: Ref, w: Ref, stride: Shape, padding: Any, dilation: Shape, groups: int) -> Ref:
        if x.dtype.kind != "f":
            raise NoEquivalent(f"Conv is defined for floating-point numbers, not {x.dtype}")
        pads = [low for low, _ in padding] + [high for _, high in padding]
        many = window_counts(self.format, x.shape[2:], w.shape[2:], stride, padding, dilation)
        return self.node(
            "Conv", [x, w], (x.shape[0], w.shape[0], *many), x.dtype, kernel_shape=w.shape[2:], strides=stride,
            dilations=dilation, group=groups, pads=pads,
        )  # fmt: skip

    def sort_places(self, x: Ref, axis: int, descending: bool) -> Ref:
        if not math.prod(x.shape) or not x.ndim:
            return self.expand(self.constant(np.int64(0)), x.shape)
        if not is_floating(x.dtype):
            return self._top_places(self.cast(x, np.dtype(np.int32)) if x.dtype.kind == "b" else x, axis, descending)
        # where a NaN belongs is not defined: all places first by number, then, in that order, by what is a NaN
        k = GraphWords(self, value_dtype(x.dtype))
        is_nan = k.isnan(x)
        order = self._top_places(k.select(is_nan, k.constant(np.inf), x), axis, descending)
        flags = self.cast(is_nan, np.dtype(np.int32))
        last = self._top_places(self._pick(flags, order, axis), axis, descending)
        return self._pick(order, last, axis)

    def _top_places(self, x: Ref, axis: int, descending: bool) -> Ref:
        values, places = Ref(self.name(), x.shape, x.dtype), Ref(self.name(), x.shape, _INT64)
        self.emit(
            "TopK", [x, self.integers(x.shape[axis])], [values, places], axis=axis, largest=int(descending), sorted=1
        )
        return places

    def _pick(self, x: Ref, places: Ref, axis: int) -> Ref:
        return self.node("GatherElements", [x, places], places.shape, x.dtype, axis=axis)

    def accumulate(self, word: str, x: Ref, axis: int) -> Ref:
        if not math.prod(x.shape) or not x.ndim:
            return x
        if word == "add" and x.dtype.kind == "u":
            return self.cast(self.accumulate(word, self.cast(x, _INT64), axis), x.dtype)
        if word == "add" and x.dtype.name in _SUMMED:
            return self.node("CumSum", [x, self.constant(np.int64(axis))], x.shape, x.dtype)
        k = GraphWords(self, x.dtype)
        order = (axis, *(i for i in range(x.ndim) if i != axis))
        rows = self.transpose(x, order)
        start = self.expand(k.constant(0 if word == "add" else 1), rows.shape[1:])

        def step(number: Ref, total: Ref) -> tuple[list[Ref], list[Ref]]:
            found = getattr(k, word)(total, self.take(rows, number))
            return [found], [found]

        stacked = self.iterate(rows.shape[0], [start], step, [(rows.shape[1:], x.dtype)])[1][0]
        return self.transpose(stacked, tuple(order.index(i) for i in range(x.ndim)))

    def has_routine(self, routine: str, dtype: np.dtype[Any]) -> bool:
        # runtimes have Det in single precision alone
        return routine == "determinant" and dtype == np.float32

    def matrix(self, routine: str, xs: Sequence[Ref], static: dict[str, Any], made: Sequence[Any]) -> list[Ref]:
        return [self.node("Det", xs, made[0].shape, xs[0].dtype)]

    # Graphs inside of graphs

    @contextmanager
    def _graph(self) -> Iterator[OnnxGraph]:
        self.graphs.append(OnnxGraph())
        try:
            yield self.graphs[-1]
        finally:
            self.graphs.pop()

    def _results(self, found: Sequence[Ref]) -> list[Ref]:
        """Values as results of the innermost graph, where each must be made by a node, under a name of its own."""
        return [self.node("Identity", [x], x.shape, x.dtype) for x in found]

    def branch(self, which: Ref, ways: Sequence[Callable[[], Sequence[Ref]]]) -> list[Ref]:
        if len(ways) == 1:
            return list(ways[0]())
        k = GraphWords(self, _INT64)
        graphs, found = [], []
        for write in (ways[0], lambda: self.branch(k.subtract(which, k.constant(1)), ways[1:])):
            with self._graph() as graph:
                found = self._results(write())
                graphs.append(graph.encode(self.name(), [], found))
        results = [Ref(self.name(), x.shape, x.dtype) for x in found]
        is_first = k.equal(which, k.constant(0))
        self.emit("If", [is_first], results, then_branch=graphs[0], else_branch=graphs[1])
        return results

    def repeat(
        self, carry: Sequence[Ref], condition: Callable[..., Ref], step: Callable[..., Sequence[Ref]]
    ) -> list[Ref]:
        def body(number: Ref, *state: Ref) -> tuple[Ref, Sequence[Ref], Sequence[Ref]]:
            found = step(*state)
            return condition(*found), found, []

        return self._loop(None, condition(*carry), carry, body)[: len(carry)]

    def iterate(
        self, length: int, carry: Sequence[Ref], step: Callable[..., tuple[Sequence[Ref], Sequence[Ref]]],
        rows: Sequence[tuple[Shape, np.dtype[Any]]],
    ) -> tuple[list[Ref], list[Ref]]:  # fmt: skip
        on = self.constant(np.asarray(True))

        def body(number: Ref, *state: Ref) -> tuple[Ref, Sequence[Ref], Sequence[Ref]]:
            return on, *step(number, *state)

        found = self._loop(self.constant(np.int64(length)), on, carry, body, length)
        return found[: len(carry)], found[len(carry) :]

    def _loop(
        self, count: Ref | None, condition: Ref, carry: Sequence[Ref],
        body: Callable[..., tuple[Ref, Sequence[Ref], Sequence[Ref]]], length: int = 0,
    ) -> list[Ref]:  # fmt: skip
        state = [Ref(self.name(), x.shape, x.dtype) for x in carry]
        number, on = Ref(self.name(), (), _INT64), Ref(self.name(), (), _BOOL)
        with self._graph() as graph:
            goes, new, rows = body(number, *state)
            # ONNX's own evaluator stacks vectors alone, and concatenates matrices
            results = self._results([goes, *new, *(self.reshape(x, (math.prod(x.shape),)) for x in rows)])
            encoded = graph.encode(self.name(), [number, on, *state], results)
        found = [Ref(self.name(), x.shape, x.dtype) for x in new]
        stacked = [Ref(self.name(), (length, math.prod(x.shape)), x.dtype) for x in rows]
        self.emit("Loop", [count, condition, *carry], [*found, *stacked], body=encoded)
        return [*found, *(self.reshape(y, (length, *x.shape)) for x, y in zip(rows, stacked, strict=True))]


def _is_matrix_product(labels: Sequence[str], result: str) -> bool:
    """Whether MatMul computes it: the last axis with the last but one, and batches that broadcast."""
    x, y = labels
    if len(x) < 2 or len(y) < 2 or len(set(x)) < len(x) or len(set(y)) < len(y):
        return False
    rows, columns, batch = x[-2], y[-1], max(x[:-2], y[:-2], key=len)
    fits = x[-1] == y[-2] and result == batch + rows + columns
    return fits and batch.endswith(x[:-2]) and batch.endswith(y[:-2]) and not {rows, columns} & set(batch + x[-1])


def _remainder(w: OnnxWriter, dtype: np.dtype[Any], x: Ref, y: Ref) -> Ref:
    """Of integers Mod has the sign of the divisor; of floating-point numbers it has that of fmod."""
    if dtype.kind == "f":
        return COMPOSITIONS["remainder"](GraphWords(w, dtype), x, y)
    shape = np.broadcast_shapes(x.shape, y.shape)
    return w.node("Mod", [x, safe_divisor(GraphWords(w, dtype), y)], shape, dtype)


def _fmod(w: OnnxWriter, dtype: np.dtype[Any], x: Ref, y: Ref) -> Ref:
    """onnxruntime computes that of integers by floating-point numbers, which have not all their digits."""
    shape = np.broadcast_shapes(x.shape, y.shape)
    if dtype.kind == "f":
        return w.node("Mod", [x, y], shape, dtype, fmod=1)
    k, rest = GraphWords(w, dtype), w.node("Mod", [x, y], shape, dtype)
    return k.select(differ_in_sign(k, rest, x), k.subtract(rest, y), rest) if dtype.kind == "i" else rest


def _erf(w: OnnxWriter, dtype: np.dtype[Any], x: Ref) -> Ref:
    """Evaluators compute Erf in single precision alone, or not at all."""
    return COMPOSITIONS["erf"](GraphWords(w, dtype), x) if dtype.itemsize == 8 else w.node("Erf", [x], x.shape, dtype)


def _negative(w: OnnxWriter, dtype: np.dtype[Any], x: Ref) -> Ref:
    if dtype.kind == "u":
        return w.word("subtract", dtype, w.constant(np.zeros((), dtype)), x)
    return w.node("Neg", [x], x.shape, dtype)


def _shift(direction: str) -> Callable[..., Ref]:
    """BitShift is defined for unsigned integers: others go by these, and the complement of a negative number is not
    negative.
    """

    def shift(w: OnnxWriter, dtype: np.dtype[Any], x: Ref, y: Ref) -> Ref:
        shape = np.broadcast_shapes(x.shape, y.shape)
        if dtype.kind == "u":
            return w.node("BitShift", [x, y], shape, dtype, direction=direction)
        plain = np.dtype(f"u{dtype.itemsize}")
        k = GraphWords(w, dtype)
        turns = direction == "RIGHT"
        minus = k.less(x, k.constant(0))
        seen = k.select(minus, k.bitwise_invert(x), x) if turns else x
        found = w.cast(shift(w, plain, w.cast(seen, plain), w.cast(y, plain)), dtype)
        return k.select(minus, k.bitwise_invert(found), found) if turns else found

    return shift


_SPECIAL: dict[str, Callable[..., Ref]] = {
    "erf": _erf, "remainder": _remainder, "fmod": _fmod, "negative": _negative, "bitwise_left_shift": _shift("LEFT"),
    "bitwise_right_shift": _shift("RIGHT"),
}  # fmt: skip
