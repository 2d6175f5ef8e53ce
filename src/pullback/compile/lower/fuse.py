"""The Fuser: equations in, kernels out; values that can be computed in one loop share a kernel.

Equations are taken in order. An elementwise one or a fold joins the kernel of its newest argument if the axes fit;
a value that a later step needs is stored, unless it is so cheap that the later step recomputes it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...arrays.backends import is_array, to_host
from ...arrays.spec import Spec, make_spec, spec_of
from ...ops.forms import Cast
from ...program.ir import Equation, Program, Symbol
from ...program.scatters import counted_axis
from ..loop_ir import Buffer, Kernel, KernelLine, Layout, Step, Store, contiguous_layout, load_line, phase_after
from ..target import Target
from ..vocabulary import Weigher, is_half, operation_dtype
from .axes import Axes, all_axes, axes_by_stride, layout_in_order, position_in_domain, strides_on_domain
from .half_values import as_stored, cast_as_stored, is_discrete, round_number, rounded_line, selects, unrounded_line
from .recomputation import Recomputation
from .views import view_layouts

#: Folds that compute: what is added up need not be rounded before.
SUMS = ("add", "multiply")
#: Among how many steps a kernel over a large domain is looked for.
RECENT_STEPS = 8


@dataclass(slots=True)
class KernelValue:
    """A value that a kernel computes: its step, its line, and the axes of the domain that its own axes are."""

    step: int
    line: KernelLine
    axes: Axes


class Fuser:
    """The steps of one program while it is lowered: which kernel computes which value, and where values are stored."""

    def __init__(self, program: Program, target: Target, donated: dict[int, int]) -> None:
        self.target = target
        self.limits = target.limits
        inputs, equations, outputs = program.inputs, program.equations, program.outputs
        self.equations = equations
        self.outputs = outputs
        self.donated = donated
        self.first: list[Step] = []
        self.steps: list[Step] = []
        self.last: list[Step] = []
        self.places: dict[int, Layout] = {}
        self.kernel_values: dict[int, KernelValue] = {}
        self.windows: dict[int, KernelLine] = {}
        # paddings and weights that several equations need in one form are laid out once
        self.prepared_layouts: dict[Any, Layout] = {}
        #: The factors of matrices that several equations solve with.
        self.shared_factors: dict[int, list[Layout]] = {}
        self.permuted_buffers: set[Buffer] = set()
        #: The memory of joins, by their equations: what is joined may be computed there.
        self.joined: dict[int, Layout] = {}
        self.views: dict[int, tuple[Any, Axes, Equation]] = {}
        self.held: list[Any] = []  # constants made here: ids stay valid while their objects live
        #: Where each value is used: the equation of each argument, None for a result.
        self.uses: dict[int, list[Equation | None]] = {}
        for e in equations:
            for a in e.args:
                self.uses.setdefault(id(a), []).append(e)
        for o in outputs:
            self.uses.setdefault(id(o), []).append(None)
        self.producer: dict[int, Equation] = {id(s): e for e in equations for s in e.results}
        self.loads: dict[tuple[Any, ...], KernelLine] = {}
        self.recomputed: dict[tuple[int, int, Axes], KernelLine] = {}
        #: The steps that load a buffer; and for each step what it reads, with the number of stores it had then.
        self.readers: dict[int, list[int]] = {}
        self.weights: dict[int, int] = {}
        self.recomputation = Recomputation(self.producer, self.places, self.base_value, target.limits)
        # the last step that writes each buffer: what reads it comes after
        self.last_writes: dict[int, int] = {}
        # by id, so that one array is one buffer however often it is used
        self.constants: dict[int, Buffer] = {}
        self.first_open_step = 0  # kernels before this step are closed
        self.inputs = [Buffer("input", s.spec.size, s.spec.dtype, i) for i, s in enumerate(inputs)]
        for symbol, buffer in zip(inputs, self.inputs, strict=True):
            self.places[id(symbol)] = contiguous_layout(buffer, symbol.spec.shape)
        self.symbols = inputs
        self.input_specs = [s.spec for s in inputs]
        self.donated_stores: list[tuple[Symbol, Layout]] = []
        self.final_copies: list[tuple[Layout, Layout]] = []
        self.updates: dict[int, tuple[Equation, float]] = {}

    def line_maker(self, e: Equation) -> Callable[[tuple[KernelLine, ...], int], KernelLine]:
        """A function that makes the line of an elementwise equation from the lines of its arguments."""
        out = e.results[0].spec
        prepare = as_stored if is_discrete(e) else cast_as_stored if selects(e) else _as_it_is
        if isinstance(e.op.form, Cast) and e.op.form.rounds:
            return lambda args, phase: KernelLine(
                "cast", out.dtype, args[0].axes, phase, (prepare(args[0]),), label=e.op.name
            )
        computed = operation_dtype([spec_of(a) for a in e.args], out)
        weight = Weigher.weigh(e.op, len(e.args))
        # a cast that does not round takes its argument as it is
        is_narrow = is_half(computed) and e.op.kernel is not None
        kernel = e.op.kernel or (lambda k, x: x)

        def make(args: tuple[KernelLine, ...], phase: int) -> KernelLine:
            axes = frozenset().union(*(a.axes for a in args))
            if is_narrow:
                args = tuple(round_number(a, computed) for a in args)
            args = tuple(map(prepare, args))
            return KernelLine("apply", out.dtype, axes, phase, args, kernel, computed, weight=weight, label=e.op.name)

        return make

    def add_elementwise(
        self,
        result: Symbol,
        shape: tuple[int, ...],
        args: Sequence[tuple[Any, tuple[int, ...]]],
        make: Callable[[tuple[KernelLine, ...], int], KernelLine],
    ) -> None:
        """Add an elementwise value to a kernel; for each argument the axes of the result that its axes are."""
        step, axes = self.choose_kernel(shape, args)
        kernel = self.kernel(step)
        lines = tuple(self.line(a, step, tuple(axes[i] for i in own)) for a, own in args)
        self.record_line(result, step, kernel, make(lines, phase_after(lines)), axes)

    def record_line(self, result: Symbol, step: int, kernel: Kernel, line: KernelLine, axes: Axes) -> None:
        kernel.lines.append(line)
        self.weights[step] = self.weights.get(step, 0) + line.weight
        self.kernel_values[id(result)] = KernelValue(step, line, axes)

    def kernel(self, step: int) -> Kernel:
        kernel = self.steps[step]
        assert isinstance(kernel, Kernel)
        return kernel

    def choose_kernel(
        self, shape: tuple[int, ...], args: Sequence[tuple[Any, tuple[int, ...]]], whole: bool = False, after: int = -1
    ) -> tuple[int, Axes]:
        """The step for a value of this shape, and its axes there: the kernel of its newest argument, or a new one; one
        after the step `after`.
        """
        newest = max([self.first_usable_step(a) for a, _ in args] + [after + 1 if after >= 0 else -1])
        makers = {
            self.kernel_values[id(base)].step for a, _ in args if id(base := self.base_value(a)) in self.kernel_values
        }
        if newest in makers and newest >= self.first_open_step and 0 not in shape:
            # the newest argument is known last, so only its kernel can take the value in
            axes = self.fit(newest, shape, args)
            kernel = self.kernel(newest)
            # a fold (`whole`) takes each point of the domain once, so a smaller value would be counted several times
            small = math.prod(shape) < math.prod(kernel.extents)
            if axes is not None and self.has_room(newest) and not (whole and small):
                return newest, axes
        # what another kernel computes is loaded, so the new step comes after that kernel
        waits = [made.step + 1 for a, _ in args if (made := self.producing_kernel(a)) is not None]
        order = self.order(shape, args)
        extents = tuple(shape[i] for i in order)
        sibling = self.find_sibling_kernel(shape, extents, args, max([newest, self.first_open_step, *waits]))
        step = self.new_kernel(extents) if sibling is None else sibling
        return step, tuple(None if n == 1 else order.index(i) for i, n in enumerate(shape))

    def has_room(self, step: int) -> bool:
        full = self.limits.max_row_kernel_weight if self.kernel(step).inner else self.limits.max_kernel_weight
        return self.weights.get(step, 0) < full

    def order(self, shape: tuple[int, ...], args: Sequence[tuple[Any, tuple[int, ...]]]) -> tuple[int, ...]:
        """The axes of a value from the outermost to the innermost: row by row, unless a step chose another order for an
        argument of its shape; then the program keeps that order.
        """
        plain = tuple(range(len(shape)))
        for a, _ in args:
            base, _ = self.base(a)
            if not isinstance(a, Symbol) or spec_of(base).shape != shape or a.spec.shape != shape:
                continue
            made, layout = self.kernel_values.get(id(base)), self.places.get(id(base))
            found = plain
            if layout is not None:
                found = axes_by_stride(layout) if layout.buffer in self.permuted_buffers else plain
            elif made is not None:
                found = tuple(sorted(plain, key=lambda i: position_in_domain(made.axes, i)))
            if found != plain:
                return found
        return plain

    def find_sibling_kernel(
        self,
        shape: tuple[int, ...],
        extents: tuple[int, ...],
        args: Sequence[tuple[Any, tuple[int, ...]]],
        newest: int,
    ) -> int | None:
        """A kernel over the same domain that already reads one of the arguments, or what it is recomputed from."""
        # two kernels that read one array cost its memory twice: an optimizer reads each gradient once
        read = {id(buffer) for a, _ in args for buffer in self.buffers_read_for(a, shape)}
        found = {s for buffer in read for s in self.open_readers(buffer) if s >= newest}
        # one that stores something runs in any case; of another, all values may be recomputed elsewhere
        for step in sorted(found, key=lambda s: (not self.kernel(s).stores, s)):
            if self.kernel(step).extents == extents:
                return step
        return None if read else self.find_last_kernel(extents, newest)

    def find_last_kernel(self, extents: tuple[int, ...], newest: int) -> int | None:
        """The last of a few open kernels over a large domain: a value that reads no array of that size costs little
        there, and what uses it is likely to be there.
        """
        if math.prod(extents) < self.limits.large_domain:
            return None
        for number in reversed(range(max(newest, len(self.steps) - RECENT_STEPS, 0), len(self.steps))):
            step = self.steps[number]
            if isinstance(step, Kernel) and step.extents == extents and self.has_room(number):
                return number
        return None

    def producing_kernel(self, x: Any) -> KernelValue | None:
        """The kernel that computes x; None if x is in memory, or is recomputed where it is used."""
        base, _ = self.base(x)
        cheap = id(base) not in self.places and id(base) in self.kernel_values and self.recomputation.is_cheap(base)
        return None if cheap else self.kernel_values.get(id(base))

    def buffers_read_for(self, x: Any, shape: tuple[int, ...]) -> list[Buffer]:
        """The buffers of the shape of its domain that a kernel reads to have x."""
        if id(x) in self.places:
            return [self.places[id(x)].buffer] if spec_of(x).shape == shape else []
        if id(x) in self.kernel_values and self.producing_kernel(x) is None:
            return [buffer for a in self.producer[id(x)].args for buffer in self.buffers_read_for(a, shape)]
        return []

    def open_readers(self, buffer: int) -> list[int]:
        """Open kernels that load a buffer. Closed ones never reopen, so they are forgotten: many steps that read one
        buffer cost no more than few.
        """
        # weights only grow, so a kernel without room never gets any
        found = [step for step in self.readers.get(buffer, ()) if self.has_room(step)]
        self.readers[buffer] = found
        return found

    def fit(self, step: int, shape: tuple[int, ...], args: Sequence[tuple[Any, tuple[int, ...]]]) -> Axes | None:
        """The axes of the domain that a value's axes become if it joins a kernel; None if it cannot."""
        extents = self.kernel(step).extents
        found: dict[int, int] = {}
        for a, own in args:
            made = self.kernel_values.get(id(self.base_value(a)))
            if made is None or made.step != step:
                continue
            # each axis of the base, as an axis of the argument and of the domain
            for axis, to in zip(self.base(a)[1], made.axes, strict=True):
                if axis is not None and to is not None and found.setdefault(own[axis], to) != to:
                    return None
        # axes that no argument fixes align with the domain's last ones, as in broadcasting
        for i, n in enumerate(shape):
            if n != 1 and i not in found:
                found[i] = len(extents) - len(shape) + i
        wide = [found[i] for i, n in enumerate(shape) if n != 1]
        # two axes cannot be one axis of the domain, and the domain must have them all
        if len(set(wide)) < len(wide) or any(d < 0 for d in wide):
            return None
        if any(extents[found[i]] != n for i, n in enumerate(shape) if n != 1):
            return None
        return tuple(found[i] if n != 1 else None for i, n in enumerate(shape))

    def base(self, x: Any) -> tuple[Any, Axes]:
        """The value behind views that only repeat or add axes, and which axis of x each of its axes became."""
        axes: Axes = all_axes(len(spec_of(x).shape))
        while id(x) in self.views and id(x) not in self.places:
            x, inner, _ = self.views[id(x)]
            axes = tuple(None if i is None else axes[i] for i in inner)
        return x, axes

    def base_value(self, x: Any) -> Any:
        """The value of `base` alone: most callers do not need the axes."""
        while id(x) in self.views and id(x) not in self.places:
            x = self.views[id(x)][0]
        return x

    def first_usable_step(self, x: Any) -> int:
        """The first step that can use a value: a kernel's own, or the one after the step that stores it."""
        base = self.base_value(x)
        made = self.kernel_values.get(id(base))
        if made is not None and not (id(base) not in self.places and self.recomputation.is_cheap(base)):
            return made.step
        if made is not None:
            return max((self.first_usable_step(a) for a in self.producer[id(base)].args), default=-1)
        layout = self.places.get(id(base))
        return -1 if layout is None else self.last_writes.get(id(layout.buffer), -1) + 1

    def line(self, x: Any, step: int, axes: Axes) -> KernelLine:
        """The line of a value in a kernel, its own axes on these axes of the domain."""
        # views that only repeat or add axes are absorbed into the strides of the load
        base, inner = self.base(x)
        if not isinstance(base, Symbol) and (not is_array(base) or not base.ndim):
            number = to_host(base) if is_array(base) else base
            return KernelLine("number", spec_of(base).dtype, frozenset(), number=number, weight=0)
        axes = tuple(None if i is None else axes[i] for i in inner)
        axes = tuple(None if n == 1 else a for n, a in zip(spec_of(base).shape, axes, strict=True))
        made = self.kernel_values.get(id(base))
        if made is not None and made.step == step and made.axes == axes:
            return made.line
        if id(base) not in self.places and made is not None and made.step != step and self.recomputation.is_cheap(base):
            return self.recompute(base, step, axes)
        return self.load(self.layout_of(base), step, axes)

    def load(self, layout: Layout, step: int, axes: Axes) -> KernelLine:
        strides = strides_on_domain(self.kernel(step), axes, layout)
        key = (step, id(layout.buffer), layout.offset, strides)
        if key not in self.loads:
            line = load_line(layout.buffer, strides, layout.offset)
            self.kernel(step).lines.append(line)
            self.loads[key] = line
            self.readers.setdefault(id(layout.buffer), []).append(step)
        return self.loads[key]

    def recompute(self, x: Symbol, step: int, axes: Axes) -> KernelLine:
        """A cheap value recomputed in another kernel, once."""
        key = (step, id(x), axes)
        if key not in self.recomputed:
            e = self.producer[id(x)]
            rank = len(axes)
            lines = tuple(self.line(a, step, axes[rank - spec_of(a).ndim :]) for a in e.args)
            line = self.line_maker(e)(lines, phase_after(lines))
            self.kernel(step).lines.append(line)
            self.weights[step] = self.weights.get(step, 0) + line.weight
            self.recomputed[key] = line
        return self.recomputed[key]

    def layout_of(self, x: Any) -> Layout:
        """Where a value is in memory; a kernel's value is stored from now on."""
        if id(x) in self.places:
            return self.places[id(x)]
        if is_array(x):
            return self.constant(x)
        if id(x) in self.views:
            source, _, e = self.views[id(x)]
            self.places[id(x)] = self.view_of(e, self.layout_of(source))[0]
            return self.places[id(x)]
        # stored in the order in which its kernel walks, so that stores are contiguous
        layout = self.new_layout(x.spec, self.order(x.spec.shape, [(x, ())]))
        self.store(x, layout)
        self.places[id(x)] = layout
        return layout

    def new_layout(self, spec: Spec, order: Sequence[int] | None = None) -> Layout:
        """Memory for a value, its axes in an order from the outermost to the innermost."""
        order = tuple(order or range(spec.ndim))
        layout = layout_in_order(Buffer("arena", spec.size, spec.dtype), spec.shape, order)
        if order != tuple(range(spec.ndim)):
            self.permuted_buffers.add(layout.buffer)
        return layout

    def store(self, x: Symbol, layout: Layout) -> None:
        """Have the kernel that computes x write it to a layout of its shape."""
        made = self.kernel_values[id(x)]
        self.add_store(made.step, made.line, made.axes, layout)

    def add_store(
        self, step: int, line: KernelLine, axes: Axes, layout: Layout, word: str = "", points: int = 0
    ) -> None:
        kernel = self.kernel(step)
        line = unrounded_line(line if word in SUMS else cast_as_stored(line), layout.buffer.dtype)
        kernel.stores.append(
            Store(line, layout.buffer, strides_on_domain(kernel, axes, layout), layout.offset, word, points=points)
        )
        self.note(step, layout.buffer)

    def note(self, step: int, buffer: Buffer) -> None:
        self.last_writes[id(buffer)] = max(step, self.last_writes.get(id(buffer), -1))

    def constant(self, array: Any) -> Layout:
        if id(array) not in self.constants:
            contiguous = np.ascontiguousarray(to_host(array))
            counts = counted_axis(contiguous) is not None
            buffer = Buffer("constant", contiguous.size, contiguous.dtype, constant=contiguous, counts=counts)
            self.constants[id(array)] = buffer
        return contiguous_layout(self.constants[id(array)], array.shape)

    def set_place(self, x: Symbol, layout: Layout) -> None:
        """A value is in memory. In a wider dtype than its own, a kernel loads it from there, and it is rounded where
        that stores it.
        """
        if layout.buffer.dtype == x.spec.dtype:
            self.places[id(x)] = layout
            return
        order = axes_by_stride(layout)
        step = self.new_kernel(tuple(layout.shape[i] for i in order))
        axes: Axes = tuple(None if n == 1 else order.index(i) for i, n in enumerate(layout.shape))
        line = self.load(layout, step, axes)
        line.narrow = x.spec.dtype.name
        self.kernel_values[id(x)] = KernelValue(step, line, axes)

    def widened_layout(self, x: Any, dtype: np.dtype[Any]) -> Layout:
        """Where a value is in memory in a dtype; one of a half dtype as it is rounded."""
        if spec_of(x).dtype == dtype:
            return self.layout_of(x)
        key = (id(x), dtype)
        made = self.kernel_values.get(id(x))
        if key in self.prepared_layouts:
            return self.prepared_layouts[key]
        if made is None or id(x) in self.places:
            layout = self._widen_buffer(self.layout_of(x), dtype)
        else:
            # its kernel stores it a second time, or only so
            layout = self.new_layout(make_spec(x.spec.shape, dtype), self.order(x.spec.shape, [(x, ())]))
            self.add_store(made.step, rounded_line(made.line, x.spec.dtype), made.axes, layout)
        self.prepared_layouts[key] = layout
        return layout

    def _widen_buffer(self, source: Layout, dtype: np.dtype[Any]) -> Layout:
        """A copy of a layout's elements in another dtype. Where they are the whole buffer, all its views share one."""
        whole = contiguous_layout(source.buffer, (source.buffer.size,))
        if source.size != whole.size or 0 in source.strides:
            return self.copy_layout(source, dtype)
        key = (id(source.buffer), self.last_writes.get(id(source.buffer), -1), dtype)
        if key not in self.prepared_layouts:
            self.prepared_layouts[key] = self.copy_layout(whole, dtype)
        return replace(source, buffer=self.prepared_layouts[key].buffer)

    def copy_layout(self, source: Layout, dtype: Any = None) -> Layout:
        """A row-major copy of a layout's elements, in a dtype."""
        target = contiguous_layout(Buffer("arena", source.size, np.dtype(dtype or source.buffer.dtype)), source.shape)
        step = self.new_kernel(source.shape)
        axes: Axes = tuple(range(len(source.shape)))
        self.add_store(step, self.load(source, step, axes), axes, target)
        return target

    def new_kernel(self, extents: tuple[int, ...]) -> int:
        self.steps.append(Kernel(extents, 0))
        return len(self.steps) - 1

    def view_of(self, e: Equation, source: Layout) -> tuple[Layout, ...]:
        found = view_layouts(e.op, source, e.static)
        if found is None:
            found = view_layouts(e.op, self.copy_layout(source), e.static)
        assert found is not None
        return found

    def put(self, x: Any, target: Layout) -> None:
        """Write a value to a layout of its shape, by the kernel that computes it or else in the layout's own order."""
        base, inner = self.base(x)
        if id(base) in self.kernel_values and spec_of(base).size == target.size:
            # axes that the view added have one element, so its base fills the layout
            strides = tuple(0 if i is None else target.strides[i] for i in inner)
            self.store(base, Layout(target.buffer, spec_of(base).shape, strides, target.offset))
            return
        order = axes_by_stride(target)
        step = self.new_kernel(tuple(target.shape[i] for i in order))
        axes: Axes = tuple(None if n == 1 else order.index(i) for i, n in enumerate(target.shape))
        self.add_store(step, self.line(x, step, axes[len(axes) - spec_of(x).ndim :]), axes, target)


def _as_it_is(line: KernelLine) -> KernelLine:
    return line
