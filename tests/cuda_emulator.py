"""Runs what the GPU's target renders on NumPy memory: the text is compiled by g++, threads are fibers.

What lies between `// ptx` and `// end of ptx` in a text is left out: the header has functions of the same names.
"""

import ctypes
import functools
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from pullback.compile.cuda.launch_plan import (
    Choice,
    CudaCode,
    HostCall,
    Launch,
    LaunchPlan,
    LibraryProduct,
    NestedPlans,
)
from pullback.compile.cuda.target import make_cuda_target
from pullback.compile.reference.interpreter import product_operands
from pullback.errors import IndexingError

__all__ = ["EMULATED", "EmulatedRunner", "has_compiler", "run_actions", "run_code", "view_strided"]

#: Which way of a choice is gone.
WAY = -1
HEADER = Path(__file__).with_name("cuda_emulator.hpp")
FLAGS = ["-std=c++17", "-O1", "-fPIC", "-shared", "-ffp-contract=off", "-fno-strict-aliasing", "-w"]
#: What makes a kernel's threads wait for each other, directly or in a device function.
WAITS = re.compile(r"__sync|barrier_|__shfl|__ballot|__any_sync|__match_any|warp_|block_|tile_|mma_|attend_|sum_rows_")


def has_compiler():
    return shutil.which("g++") is not None


@functools.cache
def _folder():
    """Where compiled texts are kept: for this user, this header and these flags."""
    key = hashlib.sha256((HEADER.read_text() + " ".join(FLAGS)).encode()).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"pullback-cuda-emulator-{os.getuid()}" / key
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@functools.cache
def _precompiled_header():
    """A copy of the header beside its precompiled form, which g++ prefers."""
    header = _folder() / "cuda_emulator.hpp"
    done = _folder() / "cuda_emulator.hpp.gch"
    if not done.exists():
        copy = header.with_name(f"{os.getpid()}.hpp")
        copy.write_text(HEADER.read_text())
        os.replace(copy, header)
        _compile(["-x", "c++-header", str(header)], done, [f for f in FLAGS if f != "-shared"])
    return header


def _compile(source, target, flags, text=""):
    """Compile to a file that appears whole, or not at all: several processes may want the same one."""
    with tempfile.NamedTemporaryFile(dir=target.parent, delete=False) as made:
        command = ["g++", *flags, *source, "-o", made.name]
        found = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
        if found.returncode:
            raise AssertionError(f"g++ refuses the text:\n{found.stderr[:3000]}")
    os.replace(made.name, target)


def _as_cpp(text):
    text = re.sub(r"// ptx\n.*?// end of ptx\n", "", text, flags=re.DOTALL)
    text = re.sub(r"extern __shared__ ([^;]*?)(\w+)\[\];", r"\1* \2 = (\1*)dynamic_shared_;", text)
    return f'#include "{_precompiled_header()}"\n{text}'


@functools.lru_cache(maxsize=256)
def load_module(text):
    """The functions of a text, as a library."""
    cpp = _as_cpp(text)
    name = hashlib.sha256(cpp.encode()).hexdigest()[:24]
    library = _folder() / f"{name}.so"
    if not library.exists():
        _compile(["-x", "c++", "-"], library, FLAGS, cpp)
    found = ctypes.CDLL(str(library))
    found.emulate_launch.restype = ctypes.c_char_p
    bodies = text.split('extern "C" __global__')[1:]
    heads = [re.search(r"(\w+)\(", re.sub(r"__launch_bounds__\([^)]*\)", "", body))[1] for body in bodies]
    return found, {name: bool(WAITS.search(body)) for name, body in zip(heads, bodies, strict=True)}


def aligned_copy(array, alignment=256):
    """A contiguous copy that starts at a multiple of so many bytes."""
    room = np.empty(array.nbytes + alignment, np.uint8)
    start = -room.ctypes.data % alignment
    copy = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


class _Run:
    """One run of a module: its memory, the scratch area, and the status word."""

    def __init__(self, code):
        self.library, self.waits = load_module(code.text)
        self.scratch = aligned_copy(np.full(code.plan.scratch_bytes + 1, 0xFF, np.uint8))
        self.status = np.zeros(len(code.sites) + 1, np.int32)
        self.constants = {}

    def plan(self, plan, memory, arena, nested):
        for action in plan.actions:
            self.action(action, memory, arena, nested)

    def flat(self, buffer, memory, arena):
        """The flat array of a buffer."""
        if buffer.kind == "scratch":
            return self.scratch[buffer.offset : buffer.offset + buffer.nbytes].view(buffer.dtype)
        if buffer.kind == "status":
            return self.status[buffer.offset // 4 :]
        if buffer.kind == "constant":
            key = id(buffer)
            if key not in self.constants:
                self.constants[key] = aligned_copy(np.asarray(buffer.constant).reshape(-1)), buffer
            return self.constants[key][0]
        if buffer not in memory:
            assert buffer.kind == "arena", buffer
            memory[buffer] = arena[buffer.offset : buffer.offset + buffer.nbytes].view(buffer.dtype)
        return memory[buffer]

    def action(self, action, memory, arena, nested):
        flat = lambda b: self.flat(b, memory, arena)  # noqa: E731
        if isinstance(action, Launch):
            self.launch(action, flat)
        elif isinstance(action, LibraryProduct):
            _multiply(action, flat)
        elif isinstance(action, Choice):
            for part in action.ways[WAY]:
                self.action(part, memory, arena, nested)
        elif isinstance(action, HostCall):
            action.step.run(flat)
        else:
            assert isinstance(action, NestedPlans)
            _run_loop(self, action, flat, arena[nested:])

    def launch(self, action, flat):
        function = getattr(self.library, action.function)
        arrays = [flat(b) for b in action.buffers]
        places = [a.ctypes.data + by * a.itemsize for a, by in zip(arrays, action.shifts, strict=True)]
        count = next(n for n in (8, 32, 128) if len(places) <= n)
        given = (ctypes.c_void_p * count)(*places)
        sizes = (ctypes.c_uint * 6)(*action.grid, *action.block)
        block = ctypes.byref(sizes, 12)
        wrong = self.library.emulate_launch(
            function, given, len(places), ctypes.byref(sizes), block, int(self.waits[action.function])
        )
        assert not wrong, (action.function, wrong)


def _strided(layout, flat, by=0):
    array = flat(layout.buffer)[layout.offset + by :]
    return view_strided(array, layout.shape, layout.strides)


def view_strided(array, shape, strides):
    """A view by strides in elements. NumPy does not know the interface of eight bits, so those are bytes meanwhile."""
    dtype = array.dtype
    array = array.view(np.uint8) if dtype.itemsize == 1 else array
    found = np.lib.stride_tricks.as_strided(array, shape, tuple(s * dtype.itemsize for s in strides))
    return found.view(dtype)


def _multiply(action, flat):
    """A product by NumPy, in float64 and rounded once."""
    product = action.product
    left, right = (
        _strided(x, flat, action.shifts.get(x.buffer, 0)).astype(np.float64) for x in product_operands(product)
    )
    out = _strided(product.out, flat, action.shifts.get(product.out.buffer, 0))
    with np.errstate(all="ignore"):
        found = product.alpha * (left @ right)
        out[...] = found + product.beta * out if product.beta else found


def _run_loop(run, action, flat, arena):
    """A loop or a branch; nested programs work behind the arena of the outer one."""
    loop, plans = action.loop, action.plans

    def call(number, at, extra=None):
        program = loop.programs[number]
        memory = dict(extra or {})
        pairs = [*zip(program.inputs, loop.inputs, loop.moves, strict=True)]
        pairs += zip(program.new_outputs, loop.outputs, loop.shifts, strict=False)
        for buffer, layout, by in pairs:
            memory.setdefault(buffer, flat(layout.buffer)[layout.offset + at * by :])
        run.plan(plans[number], memory, arena, program.nested)

    if loop.kind == "iterate":
        for i in range(loop.rounds):
            call(0, loop.rounds - 1 - i if loop.reverse else i)
        return
    number = flat(loop.number.buffer)[loop.number.offset :]
    if loop.kind == "branch":
        if not 0 <= number[0] < len(plans):
            run.status[action.status.offset // 4] = 1
            return
        call(int(number[0]), 0)
        return
    number[0] = 0
    (truth,) = loop.programs[0].new_outputs
    while True:
        holds = np.zeros(1, bool)
        call(0, 0, {truth: holds})
        if not holds[0]:
            return
        call(1, 0)
        number[0] += 1


def run_code(code, steps, arrays, outputs, backwards=False):
    """Run a module on flat arrays for the inputs and the new results of a program; returns the status word. Blocks and
    threads that do not wait for each other run from the first to the last, or `backwards`.
    """
    run = _Run(code)
    run.library.emulate_order(int(backwards))
    arena = aligned_copy(np.full(steps.workspace + 256, 0xFF, np.uint8))
    memory = dict(zip((*steps.inputs, *steps.new_outputs), (*arrays, *outputs), strict=True))
    run.plan(code.plan, memory, arena, steps.nested)
    return int(run.status.any())


def run_actions(text, actions, memory):
    """Run actions of a module's text on flat arrays by buffer."""
    run = _Run(CudaCode(text, LaunchPlan(tuple(actions))))
    run.plan(LaunchPlan(tuple(actions)), memory, None, 0)


class EmulatedRunner:
    """Runs a compilation for the GPU's target here."""

    direct = None

    def __init__(self, compilation):
        self.compilation = compilation
        self.text = compilation.code.text

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
        given = [aligned_copy(a) for a in arrays]
        fresh = [i for i in range(len(c.out_specs)) if i not in c.options.donated]
        new = {i: aligned_copy(np.empty(c.out_specs[i].shape, c.out_specs[i].dtype)) for i in fresh}
        flat = lambda a: a.reshape(-1)  # noqa: E731
        if run_code(c.code, c.planned, list(map(flat, given)), list(map(flat, new.values()))):
            raise IndexingError("jit: an index was out of range for the array it points into.")
        for i in set(c.options.donated.values()):
            arrays[i][...] = given[i]
        return [new[i] if i in new else arrays[c.options.donated[i]] for i in range(len(c.out_specs))]


#: The GPU's target, with programs that run here.
EMULATED = make_cuda_target(EmulatedRunner)
