"""A compiled function called on arrays and tensors as they are: one native call, and one node where it is recorded."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from threading import get_ident
from typing import Any

import numpy as np

from ..arrays.backends import is_array, is_device_array
from ..arrays.call_site import known_files, user_line
from ..arrays.node import Node
from ..arrays.origin import find_origin
from ..arrays.protect import as_immutable
from ..arrays.spec import make_spec, spec_of
from ..arrays.tensor import Tensor, wrap
from ..arrays.timing import PROGRAM, clock
from ..instrument import OpCall
from ..ops.dispatch import compute
from ..ops.op import OUT, PartRule
from ..ops.record import keep_value
from ..ops.timed_calls import new_bytes, write_gpu_work
from ..settings import PLAIN, Modes, context_key, modes
from .as_op import CompiledOp
from .recording import Recording
from .stage.captures import as_native_contiguous
from .target import ARRAY, ARRAYS, CONSTANT, RECORDED, TRACKED, UNRECORDED, UNTRACKED, Runner

_getframe = sys._getframe
_ndarray = np.ndarray
#: The most kinds of inputs (which of them are arrays, constants, tracked) whose calls are remembered.
_KINDS = 64


class DirectCall:
    """The calls of one compiled form; it remembers how the last one was made. It returns None where only the general
    path is right: a running trace, values of transforms, arrays of another layout, instruments on what is not recorded.
    """

    __slots__ = (
        "_captured", "_code", "_context", "_count", "_known", "_last", "_locates", "_name", "_op", "_plain",
        "_takes_tensors", "_unrecorded",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        code: Callable[[], Runner],
        op: Callable[[], CompiledOp],
        captured: Sequence[Any],
        count: int,
        takes_tensors: bool,
        context: Any = None,
    ) -> None:
        #: What it was traced under, and the modes in which nothing has to be looked at.
        self._locates = modes().locates
        self._context, self._plain = context, None if context is not None or self._locates else PLAIN
        self._code, self._op, self._captured, self._count = code, op, tuple(captured), count
        self._name = f"jit {name}"
        self._takes_tensors = takes_tensors
        self._known: dict[bytes, _Variant | None] = {}
        self._unrecorded: _Variant | None = None
        # nothing is compiled before it is known whether the first call records
        self._last = _Variant(lambda *inputs: b"", self._captured, None, count)

    def __call__(self, leaves: Sequence[Any]) -> list[Any] | None:
        last = self._last
        if (mode := modes()) is not self._plain:
            if context_key(mode) != self._context or mode.locates is not self._locates:
                return None
            if mode.tracing is not None or (mode.inference and mode.grad):
                return None
            if mode.instruments is not None and mode.instruments.timer is not None:
                return self._call_timed(leaves, mode)
            if mode.instruments is not None:
                return self._call_watched(leaves, mode) if mode.grad else None
            if not mode.grad:
                return self._call_unrecorded(leaves, mode.inference)
        found: Any = last.call(*leaves, *last.constants)
        if type(found) is list:
            return found if last.recorder is None else last.recorder.link(leaves, found)
        return self._call_otherwise(last, leaves, found)

    def _call_timed(self, leaves: Sequence[Any], mode: Modes) -> list[Any] | None:
        """The call that is made without instruments, and an event about it."""
        timer: Any = mode.instruments.timer  # type: ignore[union-attr]
        before = None if timer.mark is None else timer.mark()
        start = clock()
        if mode.grad:
            last = self._last
            found: Any = last.call(*leaves, *last.constants)
            if type(found) is not list:
                found = self._call_otherwise(last, leaves, found)
            elif last.recorder is not None:
                found = last.recorder.link(leaves, found)
        else:
            found = self._call_unrecorded(leaves, mode.inference)
        end = clock()
        if found is not None:
            code, lasti = user_line(_getframe(2))
            made, size = _find_node(found), new_bytes(tuple(found))
            timer.write((PROGRAM, self._name, start, end, code, lasti, size, made, get_ident()))
            if before is not None:
                write_gpu_work(timer, self._name, before, found, code, lasti)
        return found  # type: ignore[no-any-return]

    def _call_otherwise(self, last: _Variant, leaves: Sequence[Any], found: Any) -> list[Any] | None:
        """Other tensors are tracked than in the last call, or it failed, or Python has to run the program."""
        if type(found) is bytes:
            marks = _mark_inputs((*leaves, *self._captured))
            variant = None if marks is None else self._find_variant(marks)
            if variant is None:
                return None
            self._last = last = variant
            found = last.call(*leaves, *last.constants)
        if type(found) is not list:
            found = last.finish(leaves, found)
        return found if found is None or last.recorder is None else last.recorder.link(leaves, found)

    def _call_unrecorded(self, leaves: Sequence[Any], inference: bool) -> list[Any] | None:
        variant = self._find_unrecorded()
        if variant is None:
            return None
        found: Any = variant.call(*leaves, *variant.constants)
        if type(found) is not list:
            found = variant.finish(leaves, found)
        for out in found if inference and found is not None else ():
            if type(out) is Tensor:
                out.mark("inference")
        return found  # type: ignore[no-any-return]

    def _call_watched(self, leaves: Sequence[Any], mode: Modes) -> list[Any] | None:
        """A call that instruments look at: it records the node that it would record without them."""
        marks = _mark_inputs((*leaves, *self._captured))
        variant = None if marks is None or TRACKED not in marks else self._find_variant(marks)
        return None if variant is None or variant.recorder is None else variant.recorder.record(leaves, mode)

    def _find_variant(self, marks: bytes) -> _Variant | None:
        """How inputs marked so are called; None if not directly."""
        if TRACKED not in marks:
            marks = b""  # one call serves all of them
        if marks not in self._known:
            if len(self._known) >= _KINDS:
                self._known.clear()
            self._known[marks] = self._make_recorded(marks) if marks else self._make_plain(UNTRACKED)
        return self._known[marks]

    def _find_unrecorded(self) -> _Variant | None:
        if self._unrecorded is None:
            self._unrecorded = self._make_plain(UNRECORDED)
        return self._unrecorded

    def _make_plain(self, takes: int) -> _Variant | None:
        runner = self._code()
        if runner.direct is None:
            return None
        call = runner.direct.make_call(takes if self._takes_tensors else ARRAYS, self._count)
        return _Variant(call, self._captured, runner, self._count)

    def _make_recorded(self, marks: bytes) -> _Variant | None:
        op = self._op()
        if not self._takes_tensors or not op.saves_residuals or op.meets_arguments:
            return None
        needs = op.reached_arguments([i for i, mark in enumerate(marks) if mark == TRACKED])
        if not needs:
            return self._find_unrecorded()
        recording = op.recording(needs)
        if recording is None:
            return None
        forward = recording.forward
        if not forward.is_prepared or forward.code.direct is None:
            return None
        constants = (*self._captured, *forward.captured)
        call = forward.code.direct.make_call(RECORDED, self._count, marks + bytes(len(forward.captured)))
        return _Variant(call, constants, forward.code, self._count, Recorder(recording, marks, constants))


class _Variant:
    """One way of calling: the function, its last arguments, and what records it."""

    __slots__ = ("call", "constants", "recorder", "results", "runner")

    def __init__(
        self,
        call: Callable[..., Any],
        constants: tuple[Any, ...],
        runner: Runner | None,
        results: int,
        recorder: Recorder | None = None,
    ) -> None:
        self.call, self.constants, self.runner, self.results, self.recorder = call, constants, runner, results, recorder

    def finish(self, leaves: Sequence[Any], found: Any) -> list[Any] | None:
        """What a call that returned no list did not do; None if inputs do not fit."""
        if found is False:
            leaves = [_lay_out(x) for x in leaves]
            found = self.call(*leaves, *self.constants)
            if type(found) is list:
                return found
        if found is False or type(found) is bytes or self.runner is None:
            return None
        if found is None:
            assert self.runner.direct is not None
            self.runner.direct.raise_failure()
        # a program in pieces, or one whose arena another thread uses: the inputs are checked already
        inputs = (*leaves, *self.constants)
        arrays = [x.value if type(x) is Tensor else x for x in inputs]
        outs = self.runner.run(arrays)
        if outs is None:
            return None
        count = self.results
        if any(type(x) is Tensor for x in inputs):
            outs[:count] = [wrap(x, spec_of(x)) for x in outs[:count]]
        if self.recorder is not None:
            outs[count:count] = arrays
        return outs


class Recorder:
    """Puts results of a direct call on the tape: one node, and a part node for each result if there are several."""

    __slots__ = (
        "_bare", "_call", "_constants", "_count", "_needs", "_parts", "_recording", "_reused", "_rule", "_spec",
    )  # fmt: skip

    def __init__(self, recording: Recording, marks: bytes, constants: tuple[Any, ...]) -> None:
        self._needs, self._call, self._reused = recording.needs, recording.call, recording.reused_results
        self._rule = self._call.rule
        self._recording = recording
        self._constants = constants
        #: Arrays that their owner may still write to.
        self._bare = [i for i, mark in enumerate(marks) if mark == ARRAY]
        specs = tuple(make_spec(s.shape, s.dtype, s.device) for s in recording.of.out_specs)
        self._count = len(specs)
        several = recording.of.reached(self._needs) if len(specs) > 1 else []
        self._parts = [(i, recording.parts[i], specs[i]) for i in several]
        self._spec: Any = specs[0] if len(specs) == 1 else specs

    def link(self, leaves: Sequence[Any], found: list[Any]) -> list[Any]:
        """The results, linked to a node that saves the rest of the list."""
        kept = found[self._count :]
        del found[self._count :]
        for i in self._bare:
            kept[i] = as_immutable(kept[i])
        for i in self._reused:
            kept.append(found[i].value)
        inputs = (*leaves, *self._constants) if self._constants else leaves
        parents = []
        depth = 0
        for i in self._needs:
            parent = inputs[i].node
            parents.append(parent)
            if parent.order > depth:
                depth = parent.order
        node = Node()
        node.rule = self._rule
        node.parents = tuple(parents)
        node.order = depth + 1
        node.kept = tuple(kept)
        node.spec = self._spec
        node.call = self._call
        node.bar = None
        frame = _getframe(3)
        node.code = code = frame.f_code
        node.lasti = frame.f_lasti
        if known_files.get(code.co_filename) is not False:  # the caller is not known to be the user's code
            node.code, node.lasti = user_line(frame)
        if self._count == 1:
            found[0].node = node
        else:
            for i, call, spec in self._parts:
                found[i].node = part = Node()
                part.rule, part.call, part.parents, part.kept, part.spec = call.rule, call, (node,), (), spec
                part.order, part.bar, part.code, part.lasti = node.order + 1, None, node.code, node.lasti
        return found

    def record(self, leaves: Sequence[Any], mode: Modes) -> list[Any]:
        """The results, computed, saved and linked in sight of the instruments."""
        instruments: Any = mode.instruments
        inputs = (*leaves, *self._constants)
        values = [x.value if type(x) is Tensor else x for x in inputs]
        op = self._recording.op
        if instruments.sees(op):
            outs = instruments.compute(OpCall(op, inputs, values, {}, 1, True), compute)
        else:
            outs = compute(op, values, {})
        outs = list(outs) if type(outs) is tuple else [outs]
        results = [wrap(x, spec_of(x)) for x in outs[: self._count]]
        found = self.link(leaves, [*results, *values, *outs[self._count :]])
        node: Any = found[0].node if self._count == 1 else found[self._parts[0][0]].node.parents[0]
        saved = len(inputs)
        node.kept = (
            *(keep_value(node, i, inputs, values, None, mode) for i in range(saved)),
            *(keep_value(node, OUT, inputs, values, x, mode) for x in node.kept[saved:]),
        )
        node.leave_fast_path()  # a saved value may have to be asked for
        if mode.locates:
            node.call.origin = find_origin(_getframe(1))
        instruments.node_made(node)
        for i, _, _ in self._parts if self._count > 1 else ():
            found[i].node.order = node.order + 1  # an instrument may have moved it
        return found


def _find_node(found: list[Any]) -> int:
    """The `id` of the node that a call made, 0 if it made none."""
    node = next((x.node for x in found if type(x) is Tensor and x.node is not None), None)
    return 0 if node is None else id(node.parents[0] if type(node.rule) is PartRule else node)


def _lay_out(x: Any) -> Any:
    """An input as native code takes it: views that are not contiguous are copied."""
    if type(x) is not Tensor:
        return as_native_contiguous(x, spec_of(x)) if is_array(x) else x
    if not is_array(x.value):
        return x
    value = as_native_contiguous(x.value, x.spec)
    return x if value is x.value else x.with_parts(value)


def _mark_inputs(inputs: Sequence[Any]) -> bytes | None:
    """What each input is; None if one is neither an array nor a tensor over one."""
    marks = bytearray()
    for x in inputs:
        if type(x) is _ndarray or is_device_array(x):
            marks.append(ARRAY)
        elif type(x) is Tensor and (type(x.value) is _ndarray or is_device_array(x.value)):
            marks.append(CONSTANT if x.node is None else TRACKED)
        else:
            return None
    return bytes(marks)
