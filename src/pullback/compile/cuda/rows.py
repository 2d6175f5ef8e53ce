"""Row programs on a GPU: one launch steps all parameters of an optimizer, whatever their number and shapes.

A row is a few arrays of one size and dtype: a parameter, its gradient, what an optimizer keeps for it. The program
treats each element alike; what it computes of numbers alone, each thread computes first. A table on the device says
where the rows lie, and a second small launch writes what moved since the step before, in the order of the stream.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from sys import getrefcount
from typing import Any
from weakref import getweakrefcount

import numpy as np

from ...arrays.backends import to_host
from ...arrays.spec import Spec
from ...arrays.tensor import Tensor, wrap
from ...program.ir import Program, Symbol
from .eager import is_elementwise, render_equation
from .preamble import PREAMBLE
from .runtime import driver
from .runtime.driver import Parameters
from .words import CudaValue, CudaWords, c_type

_THREADS, _ELEMENTS = 256, 1024
#: Words that one launch writes.
_WORDS = 112
_WORD_BYTES = 8


@dataclass(frozen=True, slots=True)
class DeviceRowCode:
    """A row program as CUDA C: the specs of its inputs that are numbers, and the text."""

    numbers: tuple[Spec, ...]
    text: str


def compile_device_rows(program: Program, arrays: int, donated: dict[int, int]) -> DeviceRowCode | None:
    """The code of a program whose first inputs are rows; None if it does more than treat each element alike. `donated`
    maps each output to the input it replaces.
    """
    if not all(map(is_elementwise, program.equations)):
        return None
    rows, numbers = program.inputs[:arrays], program.inputs[arrays:]
    text = _render_put() + _render_step(program, rows, numbers, donated)
    return DeviceRowCode(tuple(s.spec for s in numbers), text)


def _render_put() -> str:
    """A launch that writes words: they are its parameters, so nothing has to stay where it is, and nothing waits."""
    words = ", ".join(f"unsigned long long w{i}" for i in range(_WORDS))
    stores = " ".join(f"if ({i} < count) to[{i}] = w{i};" for i in range(_WORDS))
    return (
        f"{PREAMBLE}\n"
        f'extern "C" __global__ void put(unsigned long long* to, unsigned long long count, {words}) {{ {stores} }}\n'
    )


def _render_step(
    program: Program, rows: Sequence[Symbol], numbers: Sequence[Symbol], donated: dict[int, int]
) -> str:  # fmt: skip
    words = CudaWords()
    known: dict[int, CudaValue] = {}
    for i, s in enumerate(numbers):
        known[id(s)] = words.assign(f"*(const {c_type(s.spec.dtype)}*)(numbers + {i})", s.spec.dtype)
    apart = [e for e in program.equations if not e.results[0].spec.shape]
    for e in apart:
        known[id(e.results[0])] = render_equation(words, e, known)
    before = len(words.lines)
    pointers = []
    for i, s in enumerate(rows):
        pointers.append(f"{c_type(s.spec.dtype)}* a{i} = ({c_type(s.spec.dtype)}*)table[{i + 2} * rows + 1 + row];")
        known[id(s)] = words.assign(f"a{i}[i]", s.spec.dtype)
    for e in program.equations:
        if e.results[0].spec.shape:
            known[id(e.results[0])] = render_equation(words, e, known)
    count, stores, replaced, stayed = len(rows), [], [], []
    for out, place in donated.items():
        value = _value_of(words, program.outputs[out], program.inputs[place].spec, known)
        if place < count:
            stores.append(f"a{place}[i] = {value};")
        else:
            dtype = c_type(program.inputs[place].spec.dtype)
            replaced.append(f"*({dtype}*)(after + {place - count}) = {value};")
            stayed.append(f"after[{place - count}] = numbers[{place - count}];")
    new_line = "\n    "
    return f"""
extern "C" __global__ void __launch_bounds__({_THREADS}) step(
    const unsigned long long* table, unsigned long long rows, const unsigned long long* numbers,
    unsigned long long* after, const bool* accept) {{
  if (accept && !*accept) {{
    if (blockIdx.x == 0 && threadIdx.x == 0) {{
      {new_line.join(stayed)}
    }}
    return;
  }}
  {new_line.join(words.lines[:before])}
  unsigned long long row = 0, end = rows;
  while (end - row > 1) {{
    const unsigned long long middle = (row + end) / 2;
    if (table[middle] <= blockIdx.x) row = middle; else end = middle;
  }}
  const unsigned long long size = table[rows + 1 + row], first = (blockIdx.x - table[row]) * {_ELEMENTS}ull;
  const unsigned long long last = first + {_ELEMENTS}ull < size ? first + {_ELEMENTS}ull : size;
  {new_line.join(pointers)}
  for (unsigned long long i = first + threadIdx.x; i < last; i += {_THREADS}) {{
    {new_line.join([*words.lines[before:], *stores])}
  }}
  if (blockIdx.x == 0 && threadIdx.x == 0) {{
    {new_line.join(replaced)}
  }}
}}
"""


class DeviceTable:
    """Rows on a GPU to be updated by a row program: `specs` of the tensors, the arrays `kept` for each beside its value
    and its gradient, which are overwritten, and the numbers that all rows share. What `RowTable` is on the CPU.
    """

    blocks = phases = 1

    def __init__(
        self, code: DeviceRowCode, specs: Sequence[Spec], kept: Sequence[Sequence[Any]], numbers: Sequence[Any]
    ) -> None:
        self.cupy = cupy = sys.modules["cupy"]
        self.code, self.specs, self.kept = code, specs, kept
        self.device = int(specs[0].device.partition(":")[2])
        self.machine = machine = driver.find_driver(self.device)
        #: The row that the last step refused, and whether for its gradient.
        self.failed = (-1, False)
        count, blocks = len(specs), [-(-s.size // _ELEMENTS) for s in specs]
        starts = [0, *itertools.accumulate(blocks)]
        with cupy.cuda.Device(self.device):
            module, _ = machine.load_module(code.text, False)
            self.put = machine.prepare_launch(machine.find_function(module, "put", 0), (1, 1, 1, 1, 1, 1, 0))
            self.launch = machine.prepare_launch(
                machine.find_function(module, "step", 0), (starts[-1], 1, 1, _THREADS, 1, 1, 0)
            )
            pointers = [[0] * count, [0] * count, *([x.data.ptr for x in own] for own in zip(*kept, strict=True))]
            words = [*starts, *(s.size for s in specs), *itertools.chain(*pointers)]
            self.table = cupy.asarray(np.array(words, np.uint64))
            # what a step reads and what it writes, which change places after it
            self.numbers = [cupy.zeros(max(len(code.numbers), 1), np.uint64) for _ in range(2)]
            #: The bytes that numbers were given; a step may have replaced them.
            self.given: list[bytes] = [b""] * len(code.numbers)
            for number, x in enumerate(numbers):
                self.set_number(number, x)
            self.alone = _count_references(wrap(cupy.ndarray((1,), np.float32), specs[0]))
        first = self.table.data.ptr + _WORD_BYTES * (2 * count + 1)
        self.values, self.gradients = _Words(first, count), _Words(first + _WORD_BYTES * count, count)
        self.parameters = Parameters([self.table.data.ptr, count, 0, 0, 0])

    def step(self, values: Sequence[Any], gradients: Sequence[Any], runs: bool, accept: Any = None) -> bool:
        """Check all rows and, if it `runs`, step them. Values are tensors, or arrays to be overwritten; gradients are
        tensors that have them, or arrays. False if one is not as it should be: `failed` says which. Where `accept` is a
        bool on the device that does not hold, nothing changes; no one waits for it.
        """
        if len(values) != len(self.specs):
            self.failed = (-1, False)
            return False
        found = self._find_addresses(values, gradients)
        if found is None:
            return False
        if runs:
            if self.cupy.cuda.runtime.getDevice() == self.device:
                self._run(*found, accept)
            else:
                with self.cupy.cuda.Device(self.device):
                    self._run(*found, accept)
        return True

    def _find_addresses(self, values: Sequence[Any], gradients: Sequence[Any]) -> tuple[list[int], list[int]] | None:
        of_values: list[int] = []
        of_gradients: list[int] = []
        alone, kind = self.alone, self.cupy.ndarray
        for value, gradient, spec in zip(values, gradients, self.specs, strict=True):
            if type(value) is Tensor:
                # a value is overwritten only if the tensor is all that refers to it
                pointer = _find_pointer(value, spec)
                if not pointer or _count_references(value) != alone or getweakrefcount(value.value):
                    self.failed = (len(of_values), False)
                    return None
                of_values.append(pointer)
            else:
                of_values.append(value.data.ptr)
            if type(gradient) is Tensor:
                gradient = getattr(gradient, "_grad", None)
                pointer = _find_pointer(gradient, spec) if type(gradient) is Tensor else 0
            else:
                pointer = gradient.data.ptr if type(gradient) is kind else 0
            if not pointer:
                self.failed = (len(of_gradients), True)
                return None
            of_gradients.append(pointer)
        return of_values, of_gradients

    def _run(self, values: list[int], gradients: list[int], accept: Any) -> None:
        stream = self.cupy.cuda.get_current_stream().ptr
        with self.machine.lock_of(stream):
            self.values.put(values, self.put, stream)
            self.gradients.put(gradients, self.put, stream)
            before, after = self.numbers
            self.parameters.values[2], self.parameters.values[3] = before.data.ptr, after.data.ptr
            self.parameters.values[4] = 0 if accept is None else accept.data.ptr
            self.launch(stream, self.parameters.address)
            self.numbers = [after, before]

    def set_number(self, number: int, x: Any) -> None:
        """Give one of the shared numbers a value."""
        given = np.asarray(to_host(x), self.code.numbers[number].dtype).tobytes()
        if self.given[number] != given:
            self.given[number] = given
            with self.cupy.cuda.Device(self.device):
                stream = self.cupy.cuda.get_current_stream().ptr
                for memory in self.numbers:
                    self.machine.write(memory.data.ptr + _WORD_BYTES * number, given, stream)

    def number(self, number: int) -> Any:
        """A shared number as it is now, as an array."""
        return self._view(self.numbers[0], number).copy()

    def _view(self, memory: Any, number: int) -> Any:
        return memory[number : number + 1].view(self.code.numbers[number].dtype)[:1].reshape(())


class _Words:
    """Addresses in the table: where they lie, and what was written there last."""

    def __init__(self, address: int, count: int) -> None:
        self.address, self.written = address, [0] * count
        self.parameters = Parameters([0] * (_WORDS + 2))

    def put(self, words: list[int], launch: Any, stream: int) -> None:
        if words == self.written:
            return
        self.written, values = words, self.parameters.values
        for start in range(0, len(words), _WORDS):
            part = words[start : start + _WORDS]
            values[0], values[1] = self.address + _WORD_BYTES * start, len(part)
            values[2 : 2 + len(part)] = part  # type: ignore[assignment]
            launch(stream, self.parameters.address)


def _find_pointer(tensor: Any, spec: Spec) -> int:
    """Where the array of a tensor lies; 0 if it is not of a spec, lies in pieces, or is a view."""
    array = tensor.value
    if tensor.spec is not spec or not array._c_contiguous or array.base is not None:
        return 0
    pointer: int = array.data.ptr
    return 0 if pointer & 15 else pointer


def _count_references(tensor: Any) -> tuple[int, int, int]:
    """The references to a tensor's array, to what points at its memory, and to that memory."""
    array = tensor.value
    pointer = array.data
    memory = pointer.mem
    return getrefcount(array), getrefcount(pointer), getrefcount(memory)


def _value_of(words: CudaWords, x: Any, spec: Spec, known: dict[int, CudaValue]) -> str:
    if isinstance(x, Symbol):
        return known[id(x)].name
    return words.number(np.asarray(x).flat[0].item(), spec.dtype).name
