"""A second target, slow and obvious: steps are rendered to Python, plain loops over the elements of flat arrays.

It has vectors of one element, cuts every kernel into blocks, lacks a word and a dtype, and so shows that the compiler
above the seam asks the target and knows no machine.
"""

import itertools
import math
from dataclasses import dataclass

import numpy as np

from pullback.compile.loop_ir import Blocks, Host, Kernel, Product
from pullback.compile.reference.numpy_scalars import NumpyScalars, identity, to_dtype
from pullback.compile.target import Costs, Limits, Target
from pullback.compile.vocabulary import HALF_DTYPES, VOCABULARY, half_dtype
from pullback.errors import IndexingError

__all__ = ["STUB"]


@dataclass(frozen=True)
class PythonCode:
    """The text, and the values of its free names: constants, dtypes, ops that NumPy executes."""

    text: str
    names: dict


class Words:
    """The kernel vocabulary as Python text: each word is a call of the reference's scalars of a dtype."""

    def __init__(self, writer, dtype):
        self.writer, self.dtype = writer, dtype

    def constant(self, number):
        return self.writer.bind(np.asarray(number).astype(self.dtype)[()])

    def __getattr__(self, word):
        scalars = self.writer.bind(NumpyScalars(self.dtype))
        return lambda *xs: f"{scalars}.{word}({', '.join(xs)})"


class Writer:
    """The functions of a module while they are written."""

    def __init__(self):
        self.lines = []
        self.names = {}
        self.count = itertools.count()
        self.common = {"index": _index, "to_dtype": to_dtype, "fold": _fold, "math": math}

    def bind(self, value):
        """A name for a value that the text needs."""
        name = f"{type(value).__name__.lower().partition('[')[0]}{next(self.count)}"
        self.names[name] = value
        return name

    def put(self, depth, text):
        self.lines.append("    " * depth + text)

    def program(self, steps):
        """A function `program(arena, inputs..., new results...)`, after those of its own steps."""
        name = f"program{next(self.count)}"
        own = {b: f"m{i}" for i, b in enumerate((*steps.inputs, *steps.new_outputs))}
        body = []
        for step in steps.steps:
            body += self.step(step, own, steps.nested)
        self.put(0, f"def {name}(arena, {', '.join(own[b] for b in (*steps.inputs, *steps.new_outputs))}):")
        for buffer, memory in own.items():
            if buffer.kind == "arena":
                end = buffer.offset + buffer.nbytes
                self.put(1, f"{memory} = arena[{buffer.offset}:{end}].view({self.bind(buffer.dtype)})")
            elif buffer.kind == "constant":
                self.put(1, f"{memory} = {self.bind(buffer.constant.reshape(-1))}")
        for text in body or ["pass"]:
            self.put(1, text)
        return name

    def memory(self, own, buffer):
        return own.setdefault(buffer, f"m{len(own)}")

    def step(self, step, own, nested):
        """The lines of a step, with functions for what it calls."""
        buffers = list(dict.fromkeys((*step.reads(), *step.writes())))
        memory = [self.memory(own, b) for b in buffers]
        if isinstance(step, Kernel):
            return self.kernel_calls(step, buffers, memory)
        if isinstance(step, Product):
            return [f"{self.product(step, buffers)}({', '.join(memory)})"]
        if isinstance(step, Blocks):
            inside = {b: f"{m}[block * {step.moves.get(b, 0)}:]" for b, m in zip(buffers, memory, strict=True)}
            lines = [line for inner in step.steps for line in self.step(inner, inside, nested)]
            return [f"for block in range({step.count}):", *("    " + line for line in lines)]
        if isinstance(step, Host):
            pairs = ", ".join(f"{self.bind(b)}: {m}" for b, m in zip(buffers, memory, strict=True))
            return [f"{self.bind(step)}.run({{{pairs}}}.__getitem__)"]
        return self.loop(step, own, nested)

    def loop(self, step, own, nested):
        names = [self.program(p) for p in step.programs]
        at = lambda layout, by: f"{self.memory(own, layout.buffer)}[{layout.offset} + at * {by}:]"  # noqa: E731
        given = [at(x, by) for x, by in zip(step.inputs, step.moves, strict=True)]
        made = [at(x, by) for x, by in zip(step.outputs, step.shifts, strict=True)]
        call = f"(arena[{nested}:], {', '.join((*given, *made))})"
        if step.kind == "iterate":
            order = f"reversed(range({step.rounds}))" if step.reverse else f"range({step.rounds})"
            return [f"for at in {order}:", f"    {names[0]}{call}"]
        number = f"{self.memory(own, step.number.buffer)}[{step.number.offset}]"
        if step.kind == "branch":
            return ["at = 0", f"({', '.join(names)},)[{number}]{call}"]
        truth = self.bind(np.zeros(1, bool))
        test = f"{names[0]}(arena[{nested}:], {', '.join((*given, truth))})"
        return ["at = 0", f"{number} = 0", f"while [{test}, {truth}[0]][1]:", f"    {names[1]}{call}",
                f"    {number} += 1"]  # fmt: skip

    def product(self, step, buffers):
        name = f"product{next(self.count)}"
        counters, depth = [f"n{i}" for i in range(len(step.out.shape) - 2)], step.left.shape[-1]
        place = lambda x, *i: _place(f"b{buffers.index(x.buffer)}", x.strides, x.offset, i)  # noqa: E731
        out, left, right = (
            place(step.out, *counters, "i", "j"),
            place(step.left, *counters, "i", "k"),
            place(step.right, *counters, "k", "j"),
        )
        self.put(0, f"def {name}({', '.join(f'b{i}' for i in range(len(buffers)))}):")
        loops = zip((*counters, "i", "j"), step.out.shape, strict=True)
        for depth_, (index, n) in enumerate(loops, 1):
            self.put(depth_, f"for {index} in range({n}):")
        inside = len(step.out.shape) + 1
        self.put(inside, f"total = sum(float({left}) * float({right}) for k in range({depth}))")
        self.put(inside, f"{out} = {step.alpha!r} * total" + (f" + {step.beta!r} * {out}" if step.beta else ""))
        return name

    def kernel_calls(self, kernel, buffers, memory):
        """A call of the kernel, or of each of its blocks on its part of the domain and its pieces of buffers."""
        if not math.prod(kernel.extents):
            return []
        name, cut = self.kernel(kernel, buffers), kernel.division
        if cut is None:
            return [f"{name}({', '.join(memory)})"]
        size = kernel.extents[cut.axis]
        pieces = [f"{m}[block * {cut.piece_strides.get(b, 0)}:]" for b, m in zip(buffers, memory, strict=True)]
        part = f"block * {size} // {cut.blocks}, (block + 1) * {size} // {cut.blocks}"
        return [f"for block in reversed(range({cut.blocks})):", f"    {name}({', '.join(pieces)}, {part})"]

    def kernel(self, kernel, buffers):
        """A function of loops over the domain: for each row one pass in each phase, over all its points."""
        name = f"kernel{next(self.count)}"
        lines, rank = kernel.live_lines(), len(kernel.extents)
        outer, axes = rank - kernel.inner, [f"i{a}" for a in range(rank)]
        place = lambda x, by="": _place(f"b{buffers.index(x.buffer)}", x.strides, x.offset, axes, by)  # noqa: E731
        self.put(0, f"def {name}({', '.join(f'b{i}' for i in range(len(buffers)))}, low=0, high=0):")
        for store in kernel.stores:  # what is folded into memory starts as the word's identity
            if store.word and not store.args and not store.accumulates:
                depth = self.open_loops(kernel, range(rank), 1)
                self.put(depth, f"{place(store)} = {self.bind(identity(store.word, store.buffer.dtype)[()])}")
        row = self.open_loops(kernel, range(outer), 1)
        known = {}
        for phase in range(1 + max([x.phase for x in lines] + [s.phase for s in kernel.stores])):
            folds = [x for x in lines if x.kind == "fold" and x.phase == phase]
            for fold in folds:
                self.put(row, f"f{id(fold)} = {self.bind(identity(fold.word, fold.dtype)[()])}")
            depth, values = self.open_loops(kernel, range(outer, rank), row), dict(known)
            for line in lines:
                if line.phase <= phase and line.kind != "fold":
                    self.put(depth, f"v{id(line)} = {self.value(line, values, place)}")
                    values[id(line)] = f"v{id(line)}"
            for fold in folds:
                new = f"to_dtype({values[id(fold.args[0])]}, {self.bind(fold.dtype)})"
                self.put(depth, f"f{id(fold)} = fold({fold.word!r}, f{id(fold)}, {new})")
            for store in kernel.stores:
                if store.phase == phase:
                    self.store(depth, store, values, place)
            known |= {id(fold): f"f{id(fold)}" for fold in folds}
        return name

    def open_loops(self, kernel, axes, depth):
        cut = kernel.division
        for axis in axes:
            divided = cut is not None and axis == cut.axis
            self.put(depth, f"for i{axis} in range({'low, high' if divided else kernel.extents[axis]}):")
            depth += 1
        return depth

    def value(self, line, values, place):
        args = [values[id(a)] for a in line.args]
        if line.kind == "number":
            return self.bind(np.asarray(line.number).astype(line.dtype)[()])
        if line.kind in ("load", "gather"):
            return f"to_dtype({place(line, _indices(line, args))}, {self.bind(line.dtype)})"
        if line.kind == "cast" and line.narrow:
            return f"to_dtype(to_dtype({args[0]}, {self.bind(half_dtype(line.narrow))}), {self.bind(line.dtype)})"
        made = args[0] if line.kind == "cast" else line.kernel(Words(self, line.compute_dtype), *args)
        return f"to_dtype({made}, {self.bind(line.dtype)})"

    def store(self, depth, store, values, place):
        where = place(store, _indices(store, [values[id(a)] for a in store.args]))
        new = f"to_dtype({values[id(store.line)]}, {self.bind(store.buffer.dtype)})"
        self.put(depth, f"{where} = fold({store.word!r}, {where}, {new})" if store.word else f"{where} = {new}")


def _place(memory, strides, offset, axes, more=""):
    terms = [
        str(offset),
        *(f"{axis} * {s}" for axis, s in zip(axes, strides, strict=True) if s),
        *([more] if more else []),
    ]
    return f"{memory}[{' + '.join(terms)}]"


def _indices(x, args):
    return " + ".join(f"index({a}, {n}) * {s}" for (s, n), a in zip(x.places, args, strict=True))


def _index(value, size):
    if not -size <= value < size:
        raise IndexingError("jit: an index was out of range for the array it points into.")
    return int(value) % size


def _fold(word, total, value):
    return getattr(NumpyScalars(total.dtype), word)(total, value).astype(total.dtype)


def render(steps, fast):
    writer = Writer()
    entry = writer.program(steps)
    return PythonCode("\n".join([*writer.lines, f"entry = {entry}"]), writer.names | writer.common)


class StubRunner:
    """Runs the text, in an arena full of poison."""

    direct = None

    def __init__(self, compilation):
        self.compilation = compilation
        self.text = compilation.code.text
        names = dict(compilation.code.names)
        exec(compile(self.text, "<stub>", "exec"), names)
        self.entry = names["entry"]

    @property
    def workspace(self):
        return []

    def run(self, arrays):
        c = self.compilation
        if not all(
            type(a) is np.ndarray and (a.shape, a.dtype) == (s.shape, s.dtype) and a.flags.c_contiguous
            for a, s in zip(arrays, c.specs, strict=True)
        ):
            return None
        new = {i: np.empty(s.shape, s.dtype) for i, s in enumerate(c.out_specs) if i not in c.options.donated}
        arena = np.full(c.planned.workspace, 0xFF, np.uint8)
        with np.errstate(all="ignore"):
            self.entry(arena, *(a.reshape(-1) for a in (*arrays, *new.values())))
        return [new[i] if i in new else arrays[c.options.donated[i]] for i in range(len(c.out_specs))]


STUB = Target(
    "stub",
    frozenset(("bool", "int32", "int64", "float32", "float64", *HALF_DTYPES)),
    frozenset(VOCABULARY) - {"erf"},
    Costs(operation_ns=100.0, byte_ns=1.0, multiplication_ns=100.0),
    Limits(
        max_kernel_weight=math.inf, max_row_kernel_weight=math.inf, max_recompute_weight=12, max_scattered_weight=4,
        max_row_recompute_weight=6, costly_weight=math.inf, near_bytes=0, patch_bytes=1, max_window_places=9,
        alignment=256, cache_line_bytes=8, vector_bytes=8, max_unroll=1, min_program_ns=0, min_step_ns=0,
        min_block_ns=1e-9, max_blocks=3, max_product_parts=1, product_part_multiple=1, max_batch_product_ns=0,
        gil_release_ns=math.inf, max_batch_axes=3,
    ),
    render=render,
    link=StubRunner,
)  # fmt: skip
