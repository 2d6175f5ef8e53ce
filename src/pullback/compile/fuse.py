"""Values in, kernels out: what can be computed in one loop shares a kernel.

Equations are taken in order. An elementwise one or a fold joins the kernel of its newest argument if the axes fit;
what a later step needs of a kernel's values is stored, unless it is so cheap that the later step computes it again.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..arrays.backends import is_array
from ..arrays.spec import Spec, spec_of
from ..ops.forms import Cast
from ..ops.op import Op
from ..ops.specialise import Equation, Symbol
from .loops import Blocks, Buffer, Host, Kernel, Layout, Line, Loop, Product, Store, contiguous, row_major
from .views import viewed
from .words import CHEAP, Weigher, computed_in

__all__ = ["Axes", "Fuser", "Made", "Step", "Steps", "by_stride", "on", "ordered", "phase"]

Axes = tuple[int | None, ...]
Step = Kernel | Product | Loop | Host | Blocks
#: A kernel whose lines weigh more than this takes no more: registers run out, and the compiler slows down. Measured
#: on chains of tanh with gradients, 48 runs a fifth faster than 90 and compiles in half the time.
HEAVIEST = 48
#: The same for a kernel that folds rows: what is cut off from it has to go over them again.
HEAVIEST_OF_ROWS = 90


@dataclass(slots=True)
class Steps:
    """What a program does, in order; its buffers; and of values that lie in memory, where."""

    steps: list[Step]
    inputs: list[Buffer]
    outputs: list[Buffer]
    places: list[tuple[Symbol, Layout]] = field(default_factory=list)


@dataclass(slots=True)
class Made:
    """A value that a kernel computes: in which step, by which line, and on which axes of the domain its own lie."""

    step: int
    line: Line
    axes: Axes


class Fuser:
    """The steps of one program while they are being made: which kernel computes what, and where it lies."""

    def __init__(
        self,
        inputs: Sequence[Symbol],
        equations: Sequence[Equation],
        outputs: Sequence[Any],
        donated: dict[int, int],
    ) -> None:
        self.equations = equations
        self.outputs = outputs
        self.donated = donated
        self.first: list[Step] = []
        self.steps: list[Step] = []
        self.last: list[Step] = []
        self.places: dict[int, Layout] = {}
        self.made: dict[int, Made] = {}
        self.windows: dict[int, Line] = {}
        self.laid: dict[Any, Layout] = {}
        self.turned: set[Buffer] = set()
        self.views: dict[int, tuple[Any, Axes, Equation]] = {}
        self.held: list[Any] = []  # constants made on the way: ids stay valid while their objects live
        self.used = {id(a) for e in equations for a in e.args} | {id(o) for o in outputs}
        self.producer: dict[int, Equation] = {id(s): e for e in equations for s in e.results}
        self.loads: dict[tuple[Any, ...], Line] = {}
        #: The steps that load a buffer, and of each step what it reads, with the number of stores it had then.
        self.readers: dict[int, list[int]] = {}
        self.weights: dict[int, int] = {}
        self.costs: dict[int, int] = {}
        self.known_cheap: dict[int, tuple[int, bool]] = {}
        self.born: dict[int, int] = {}
        self.constants: dict[int, Buffer] = {}
        self.floor = 0  # kernels before this step take no more
        self.inputs = [Buffer("input", s.spec.size, s.spec.dtype, i) for i, s in enumerate(inputs)]
        for symbol, buffer in zip(inputs, self.inputs, strict=True):
            self.places[id(symbol)] = contiguous(buffer, symbol.spec.shape)
        self.symbols = inputs
        self.input_specs = [s.spec for s in inputs]
        self.in_place: list[tuple[Symbol, Layout]] = []
        self.ends: list[tuple[Layout, Layout]] = []
        self.updates: dict[int, tuple[Equation, float]] = {}

    def apply(self, e: Equation) -> Callable[[tuple[Line, ...], int], Line]:
        """How the line of an elementwise equation is made of the lines of its arguments."""
        out = e.results[0].spec
        if isinstance(e.op.form, Cast):
            return lambda args, phase: Line("cast", out.dtype, args[0].axes, phase, args, label=e.op.name)
        computed = computed_in([spec_of(a) for a in e.args], out)
        weight = Weigher.weigh(e.op, len(e.args))
        kernel = e.op.kernel

        def make(args: tuple[Line, ...], phase: int) -> Line:
            axes = frozenset().union(*(a.axes for a in args))
            return Line("apply", out.dtype, axes, phase, args, kernel, computed, weight=weight, label=e.op.name)

        return make

    def elementwise(
        self,
        result: Symbol,
        shape: tuple[int, ...],
        args: Sequence[tuple[Any, tuple[int, ...]]],
        make: Callable[[tuple[Line, ...], int], Line],
    ) -> None:
        """Place a value of which each argument's axes are known axes of the result."""
        step, axes = self.where(shape, args)
        kernel = self.kernel(step)
        lines = tuple(self.line(a, step, tuple(axes[i] for i in own)) for a, own in args)
        self.keep(result, step, kernel, make(lines, phase(lines)), axes)

    def keep(self, result: Symbol, step: int, kernel: Kernel, line: Line, axes: Axes) -> None:
        kernel.lines.append(line)
        self.weights[step] = self.weights.get(step, 0) + line.weight
        self.made[id(result)] = Made(step, line, axes)

    def kernel(self, step: int) -> Kernel:
        kernel = self.steps[step]
        assert isinstance(kernel, Kernel)
        return kernel

    def where(
        self, shape: tuple[int, ...], args: Sequence[tuple[Any, tuple[int, ...]]], whole: bool = False, after: int = -1
    ) -> tuple[int, Axes]:
        """The step for a value of this shape, and its axes there: the kernel of its newest argument, or a new one; one
        after the step `after`.
        """
        newest = max([self.ready(a) for a, _ in args] + [after + 1 if after >= 0 else -1])
        makers = {self.made[id(base)].step for a, _ in args if id(base := self.behind(a)) in self.made}
        if newest in makers and newest >= self.floor and 0 not in shape:
            axes = self.fit(newest, shape, args)
            kernel = self.kernel(newest)
            small = math.prod(shape) < math.prod(kernel.extents)
            if axes is not None and self.has_room(newest) and not (whole and small):
                return newest, axes
        waits = [made.step + 1 for a, _ in args if (made := self.remembered(a)) is not None]
        order = self.order(shape, args)
        extents = tuple(shape[i] for i in order)
        beside = self.beside(shape, extents, args, max([newest, self.floor, *waits]))
        step = self.new_kernel(extents) if beside is None else beside
        return step, tuple(None if n == 1 else order.index(i) for i, n in enumerate(shape))

    def has_room(self, step: int) -> bool:
        return self.weights.get(step, 0) < (HEAVIEST_OF_ROWS if self.kernel(step).inner else HEAVIEST)

    def order(self, shape: tuple[int, ...], args: Sequence[tuple[Any, tuple[int, ...]]]) -> tuple[int, ...]:
        """The axes of a value from the outermost to the innermost: row by row, unless a step chose another order for an
        argument of its shape; then the program goes on in that order.
        """
        plain = tuple(range(len(shape)))
        for a, _ in args:
            base, _ = self.base(a)
            if not isinstance(a, Symbol) or spec_of(base).shape != shape or a.spec.shape != shape:
                continue
            made, layout = self.made.get(id(base)), self.places.get(id(base))
            found = plain
            if layout is not None:
                found = by_stride(layout) if layout.buffer in self.turned else plain
            elif made is not None:
                found = tuple(sorted(plain, key=lambda i: _place_of(made.axes, i)))
            if found != plain:
                return found
        return plain

    def beside(
        self,
        shape: tuple[int, ...],
        extents: tuple[int, ...],
        args: Sequence[tuple[Any, tuple[int, ...]]],
        newest: int,
    ) -> int | None:
        """A kernel over the same domain that reads one of the arguments, or what it is computed again from, anyway."""
        read = {id(buffer) for a, _ in args for buffer in self.read_for(a, shape)}
        for step in sorted({s for buffer in read for s in self.takers(buffer) if s >= newest}):
            if self.kernel(step).extents == extents:
                return step
        return None

    def remembered(self, x: Any) -> Made | None:
        """The kernel that x must be fetched from: None if it lies in memory, or is computed again where it is used."""
        base, _ = self.base(x)
        cheap = id(base) not in self.places and id(base) in self.made and self.is_cheap(base)
        return None if cheap else self.made.get(id(base))

    def read_for(self, x: Any, shape: tuple[int, ...]) -> list[Buffer]:
        """What a kernel reads, of the shape of its domain, to have x."""
        if id(x) in self.places:
            return [self.places[id(x)].buffer] if spec_of(x).shape == shape else []
        if id(x) in self.made and self.remembered(x) is None:
            return [buffer for a in self.producer[id(x)].args for buffer in self.read_for(a, shape)]
        return []

    def takers(self, buffer: int) -> list[int]:
        """Kernels that load a buffer and may still take lines; those that may not never will again, and are forgotten,
        so that many steps that read one buffer cost no more than few.
        """
        found = [step for step in self.readers.get(buffer, ()) if self.has_room(step)]
        self.readers[buffer] = found
        return found

    def fit(self, step: int, shape: tuple[int, ...], args: Sequence[tuple[Any, tuple[int, ...]]]) -> Axes | None:
        """The axes of the domain on which the axes of a value must lie, so that it can join a kernel; None if not."""
        extents = self.kernel(step).extents
        found: dict[int, int] = {}
        for a, own in args:
            made = self.made.get(id(self.behind(a)))
            if made is None or made.step != step:
                continue
            for axis, to in zip(
                self.base(a)[1], made.axes, strict=True
            ):  # an axis of the base: of the argument, of the domain
                if axis is not None and to is not None and found.setdefault(own[axis], to) != to:
                    return None
        for i, n in enumerate(shape):
            if n != 1 and i not in found:
                found[i] = len(extents) - len(shape) + i
        wide = [found[i] for i, n in enumerate(shape) if n != 1]
        if len(set(wide)) < len(wide) or any(d < 0 for d in wide):
            return None
        if any(extents[found[i]] != n for i, n in enumerate(shape) if n != 1):
            return None
        return tuple(found[i] if n != 1 else None for i, n in enumerate(shape))

    def base(self, x: Any) -> tuple[Any, Axes]:
        """The value behind views that only repeat or add axes, and which axis of x each of its axes became."""
        axes: Axes = _all_axes(len(spec_of(x).shape))
        while id(x) in self.views and id(x) not in self.places:
            x, inner, _ = self.views[id(x)]
            axes = tuple(None if i is None else axes[i] for i in inner)
        return x, axes

    def behind(self, x: Any) -> Any:
        """The same value without its axes, which most questions do not need."""
        while id(x) in self.views and id(x) not in self.places:
            x = self.views[id(x)][0]
        return x

    def ready(self, x: Any) -> int:
        """The first step that can use a value: a kernel's own, or the one after the step that stores it."""
        base = self.behind(x)
        made = self.made.get(id(base))
        if made is not None and not (id(base) not in self.places and self.is_cheap(base)):
            return made.step
        if made is not None:
            return max((self.ready(a) for a in self.producer[id(base)].args), default=-1)
        layout = self.places.get(id(base))
        return -1 if layout is None else self.born.get(id(layout.buffer), -1) + 1

    def line(self, x: Any, step: int, axes: Axes) -> Line:
        """The line of a value in a kernel, whose own axes lie on these axes of the domain."""
        if not isinstance(x, Symbol) and (not is_array(x) or not x.ndim):
            return Line("number", spec_of(x).dtype, frozenset(), number=x, weight=0)
        base, inner = self.base(x)
        axes = tuple(None if i is None else axes[i] for i in inner)
        axes = tuple(None if n == 1 else a for n, a in zip(spec_of(base).shape, axes, strict=True))
        made = self.made.get(id(base))
        if made is not None and made.step == step and made.axes == axes:
            return made.line
        if id(base) not in self.places and made is not None and made.step != step and self.is_cheap(base):
            return self.again(base, step, axes)
        return self.load(self.stored(base), step, axes)

    def load(self, layout: Layout, step: int, axes: Axes) -> Line:
        strides = [0] * len(self.kernel(step).extents)
        for stride, axis, n in zip(layout.strides, axes, layout.shape, strict=True):
            if axis is not None and n != 1:
                strides[axis] += stride
        key = (step, id(layout.buffer), layout.offset, tuple(strides))
        if key not in self.loads:
            used = frozenset(i for i, s in enumerate(strides) if s)
            line = Line(
                "load", layout.buffer.dtype, used, buffer=layout.buffer, strides=tuple(strides), offset=layout.offset
            )
            self.kernel(step).lines.append(line)
            self.loads[key] = line
            self.readers.setdefault(id(layout.buffer), []).append(step)
        return self.loads[key]

    def is_cheap(self, x: Any) -> bool:
        """Whether computing the value again costs less than fetching it from memory; asked again only after something
        else has been given a place there.
        """
        count, answer = self.known_cheap.get(id(x), (-1, False))
        if count != len(self.places):
            answer = self._is_cheap(x)
            self.known_cheap[id(x)] = len(self.places), answer
        return answer

    def _is_cheap(self, x: Any) -> bool:
        leaves, weight, stack = set(), 0, [x]
        while stack:
            base = self.behind(stack.pop())
            if id(base) in self.places or not isinstance(base, Symbol):
                if spec_of(base).size > 1:
                    leaves.add(id(base))
                continue
            e = self.producer[id(base)]
            weight += self.cost(e)
            if weight > CHEAP or len(leaves) > 1:
                return False
            stack.extend(e.args)
        return len(leaves) <= 1

    def cost(self, e: Equation) -> int:
        """What an equation weighs in a kernel; more than any value may that is computed again, if it can be in none."""
        found = self.costs.get(id(e))
        if found is None:
            found = Weigher.weigh(e.op, len(e.args)) if e.op.kernel is not None else 1
            if e.op.family != "elementwise" and not isinstance(e.op.form, Cast):
                found = CHEAP + 1
            self.costs[id(e)] = found
        return found

    def again(self, x: Symbol, step: int, axes: Axes) -> Line:
        """A cheap value computed once more, in another kernel."""
        e = self.producer[id(x)]
        rank = len(axes)
        lines = tuple(self.line(a, step, axes[rank - spec_of(a).ndim :]) for a in e.args)
        line = self.apply(e)(lines, phase(lines))
        self.kernel(step).lines.append(line)
        self.weights[step] = self.weights.get(step, 0) + line.weight
        return line

    def stored(self, x: Any) -> Layout:
        """Where a value lies in memory; a kernel's value is stored from now on."""
        if id(x) in self.places:
            return self.places[id(x)]
        if is_array(x):
            return self.constant(x)
        if id(x) in self.views:
            source, _, e = self.views[id(x)]
            self.places[id(x)] = self.view_of(e, self.stored(source))[0]
            return self.places[id(x)]
        layout = self.new(x.spec, self.order(x.spec.shape, [(x, ())]))
        self.store(x, layout)
        self.places[id(x)] = layout
        return layout

    def new(self, spec: Spec, order: Sequence[int] | None = None) -> Layout:
        """Memory for a value, its axes in an order from the outermost to the innermost."""
        order = tuple(order or range(spec.ndim))
        layout = ordered(Buffer("arena", spec.size, spec.dtype), spec.shape, order)
        if order != tuple(range(spec.ndim)):
            self.turned.add(layout.buffer)
        return layout

    def store(self, x: Symbol, layout: Layout) -> None:
        """Have the kernel that computes x write it to a layout of its shape."""
        made = self.made[id(x)]
        self.add_store(made.step, made.line, made.axes, layout)

    def add_store(self, step: int, line: Line, axes: Axes, layout: Layout, word: str = "", points: int = 0) -> None:
        kernel = self.kernel(step)
        kernel.stores.append(Store(line, layout.buffer, on(kernel, axes, layout), layout.offset, word, points=points))
        self.note(step, layout.buffer)

    def note(self, step: int, buffer: Buffer) -> None:
        self.born[id(buffer)] = max(step, self.born.get(id(buffer), -1))

    def constant(self, array: Any) -> Layout:
        if id(array) not in self.constants:
            whole = np.ascontiguousarray(array)
            self.constants[id(array)] = Buffer("constant", whole.size, whole.dtype, constant=whole)
        return contiguous(self.constants[id(array)], array.shape)

    def copied(self, source: Layout, dtype: Any = None) -> Layout:
        """The elements of a layout in memory of their own, row by row, in a dtype."""
        target = contiguous(Buffer("arena", source.size, np.dtype(dtype or source.buffer.dtype)), source.shape)
        step = self.new_kernel(source.shape)
        axes: Axes = tuple(range(len(source.shape)))
        self.add_store(step, self.load(source, step, axes), axes, target)
        return target

    def new_kernel(self, extents: tuple[int, ...]) -> int:
        self.steps.append(Kernel(extents, 0))
        return len(self.steps) - 1

    def view_of(self, e: Equation, source: Layout) -> tuple[Layout, ...]:
        found = viewed(e.op, source, e.static)
        if found is None:
            found = viewed(e.op, self.copied(source), e.static)
        assert found is not None
        return found

    def put(self, x: Any, target: Layout) -> None:
        """Write a value to a layout of its shape."""
        if id(x) in self.made:
            self.store(x, target)
            return
        step = self.new_kernel(target.shape)
        axes: Axes = tuple(None if n == 1 else i for i, n in enumerate(target.shape))
        self.add_store(step, self.line(x, step, axes[len(axes) - spec_of(x).ndim :]), axes, target)

    def region(self, layout: Layout, index: Any) -> Layout:
        picker = Op("region", "linear", ("x",), lambda xp, x: x[(*index, ...)], None, {}, _none, _none, _none)
        found = viewed(picker, layout, {})
        assert found is not None
        return found[0]


@functools.cache
def _all_axes(count: int) -> tuple[int, ...]:
    return tuple(range(count))


def _none(*_: Any, **__: Any) -> None:
    return None


def by_stride(layout: Layout) -> tuple[int, ...]:
    """The axes of a layout, the one with the longest step first; axes of one element stay where they are."""
    wide = [i for i, n in enumerate(layout.shape) if n != 1]
    turned = iter(sorted(wide, key=lambda i: -abs(layout.strides[i])))
    return tuple(next(turned) if n != 1 else i for i, n in enumerate(layout.shape))


def ordered(buffer: Buffer, shape: tuple[int, ...], order: Sequence[int]) -> Layout:
    """A whole buffer with the axes in an order, the first outermost."""
    strides = dict(zip(order, row_major(tuple(shape[i] for i in order)), strict=True))
    return Layout(buffer, shape, tuple(strides[i] for i in range(len(shape))))


def _place_of(axes: Axes, i: int) -> float:
    """Where an axis lies in a domain; one of a single element beside the axis before it."""
    before = [a for a in axes[: i + 1] if a is not None]
    return axes[i] if axes[i] is not None else (before[-1] + 0.5 if before else -1)  # type: ignore[return-value]


def phase(lines: Sequence[Line]) -> int:
    """Folds are known one phase after their own."""
    return max((line.phase + (line.kind == "fold") for line in lines), default=0)


def on(kernel: Kernel, axes: Axes, layout: Layout) -> tuple[int, ...]:
    """The strides of a layout along the axes of a kernel's domain."""
    strides = [0] * len(kernel.extents)
    for stride, axis, n in zip(layout.strides, axes, layout.shape, strict=True):
        if axis is not None and n != 1:
            strides[axis] += stride
    return tuple(strides)
