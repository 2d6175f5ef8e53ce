"""A call of a program on a GPU with arrays and tensors as they are: what is checked of them, and what it returns."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ....arrays.spec import make_spec
from ....arrays.tensor import Tensor, wrap
from ...target import ARRAY, ARRAYS, CONSTANT, RECORDED, SAVED_ARRAYS, TRACKED, UNTRACKED
from .copies import copy_contiguous
from .repeated_call import RepeatedCall

if TYPE_CHECKING:
    from .runner import CudaRunner

_SHAPE, _RANK = operator.attrgetter("shape"), operator.attrgetter("ndim")


def make_direct_call(runner: CudaRunner, takes: int, results: int, marks: bytes) -> Callable[..., Any]:
    """A function of inputs, as `DirectCalls.make_call` describes it."""
    if takes == SAVED_ARRAYS:
        return _make_call_on_saved(runner)
    read = _make_reader(runner, takes, marks)
    count, device, run, run_again = len(runner.specs), runner.device_id, runner.call, runner.call_again
    has_shapes = _make_shape_check([s.shape for s in runner.specs])
    order = runner.order if runner.donated else None
    out_specs = [make_spec(s.shape, s.dtype, s.device) for s in runner.compilation.out_specs]
    runtime, can_repeat, records = runner.cupy.cuda.runtime, not runner.numbers, takes == RECORDED
    current_device, has_other_devices = runtime.getDevice, runtime.getDeviceCount() > 1
    # what can be undone is launched before the shapes are looked at
    looks_first = order is not None or bool(runner.has_status) or not runner.is_one_graph
    repeated, before = RepeatedCall((), []), None
    repeated.ids = None

    def call_again(known: RepeatedCall, inputs: Sequence[Any]) -> Any:
        """A call with the arrays of the last one, of which only the shape can have changed."""
        if has_other_devices and current_device() != device:
            return False
        if looks_first and not has_shapes(inputs):
            return False
        outs = run_again(known)
        if outs is None or (not looks_first and not has_shapes(inputs)):
            return False
        return outs if order is None else [inputs[i] if i >= 0 else outs[~i] for i in order]

    def call(*inputs: Any) -> Any:
        nonlocal repeated, before
        ids, known = tuple(map(id, inputs)), repeated
        if ids == known.ids:
            return call_again(known, inputs)
        if len(inputs) != count or current_device() != device:
            return False
        found = read(inputs)
        if type(found) is not tuple:
            return found
        arrays, pointers, has_tensors, is_copied = found
        if can_repeat and not has_tensors and not is_copied:
            if ids == before:
                repeated = RepeatedCall(arrays, pointers.copy())
            before = ids
        outs = run(pointers)
        if outs is None:
            return False
        if order is not None:
            outs = [arrays[i] if i >= 0 else outs[~i] for i in order]
        if has_tensors:
            outs[:results] = [wrap(out, spec) for out, spec in zip(outs[:results], out_specs, strict=False)]
        if records:
            outs[results:results] = arrays
        return outs

    return call


def _make_shape_check(shapes: Sequence[tuple[int, ...]]) -> Callable[[Sequence[Any]], bool]:
    """Whether arrays that had these shapes still have them: their sizes are the same. CuPy makes a shape of numbers at
    each look, which takes twice the time of rank and length.
    """
    if not all(1 <= len(shape) <= 2 and 0 not in shape for shape in shapes):
        return lambda inputs: list(map(_SHAPE, inputs)) == shapes
    ranks, lengths = [len(shape) for shape in shapes], [shape[0] for shape in shapes]
    return lambda inputs: list(map(_RANK, inputs)) == ranks and list(map(len, inputs)) == lengths


def _make_call_on_saved(runner: CudaRunner) -> Callable[..., Any]:
    """A call on arrays whose specs are known: only how they lie is looked at."""
    ndarray, device, run = runner.cupy.ndarray, runner.device_id, runner.call
    contiguous, current_device = _contiguity_of(ndarray), runner.cupy.cuda.runtime.getDevice

    def call(*inputs: Any) -> Any:
        if current_device() != device:
            return False
        pointers: list[Any] = []
        copies = []
        for x in inputs:
            if type(x) is not ndarray:
                if type(x) is not np.ndarray:
                    return False
                pointers.append(x.tobytes())
                continue
            if (pointer := x.data.ptr) & 15 or not contiguous(x):
                copies.append(x := copy_contiguous(x))  # they live until the call is in the queue of its stream
                pointer = x.data.ptr
            pointers.append(pointer)
        outs = run(pointers)
        return False if outs is None else outs

    return call


def _make_reader(runner: CudaRunner, takes: int, marks: bytes) -> Callable[[Sequence[Any]], Any]:
    """A function that returns the arrays of inputs, their addresses (of numbers of the host, their bytes), whether any
    is a tensor and whether any was copied, as views with gaps are unless they are to be overwritten; or what the call
    returns if they are not what it takes.
    """
    ndarray, device = runner.cupy.ndarray, runner.device_id
    contiguous = _contiguity_of(ndarray)
    specs = [make_spec(s.shape, s.dtype, s.device) for s in runner.specs]
    wanted = [(spec, spec.shape, spec.dtype, spec.device == "cpu") for spec in specs]
    pattern, written = marks if takes == RECORDED else None, frozenset(runner.written)

    def read(inputs: Sequence[Any]) -> Any:
        arrays, pointers, has_tensors, is_copied, i = [], [], False, False, 0
        for x in inputs:
            spec, shape, dtype, is_of_host = wanted[i]
            known, mark = False, ARRAY
            if type(x) is Tensor:
                if takes == ARRAYS:
                    return False
                has_tensors, known = True, x.spec is spec
                mark = CONSTANT if x.node is None else TRACKED
                x = x.value
            if mark != pattern[i] if pattern is not None else mark == TRACKED and takes == UNTRACKED:
                return b""
            i += 1
            arrays.append(x)
            if type(x) is not ndarray:
                if not is_of_host or type(x) is not np.ndarray or x.shape != shape or x.dtype != dtype:
                    return False
                pointers.append(x.tobytes())
                continue
            data = x.data
            if not known and (is_of_host or x.shape != shape or x.dtype != dtype or data.device_id != device):
                return False
            if (pointer := data.ptr) & 15 or not contiguous(x):
                if i - 1 in written:
                    return False
                arrays[-1] = x = copy_contiguous(x)
                pointer, is_copied = x.data.ptr, True
            pointers.append(pointer)
        return arrays, pointers, has_tensors, is_copied

    return read


def _contiguity_of(ndarray: Any) -> Callable[[Any], bool]:
    """What says whether an array is contiguous; CuPy's own flag takes a quarter of the time of its flags."""
    return operator.attrgetter("_c_contiguous" if hasattr(ndarray, "_c_contiguous") else "flags.c_contiguous")
