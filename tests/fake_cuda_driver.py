"""CUDA's driver without a GPU: launches run in the emulator, on the memory of the stand-in for CuPy's arrays."""

from __future__ import annotations

import contextlib
import ctypes
import threading
import time
from unittest import mock

import cuda_emulator
import fake_cupy
import numpy as np

from pullback.compile.cuda import eager_scatter
from pullback.compile.cuda.products import eager as eager_products
from pullback.compile.cuda.runtime import conditional, eager_launch, link, runner
from pullback.compile.reference.interpreter import product_operands
from pullback.optim.stateful import native_step

__all__ = ["FakeDriver", "installed"]

#: The stream of captures: what is asked of it is recorded.
CAPTURE = 77


class FakeDriver:
    """A `Driver` whose graphs are lists of functions. `log` counts what was asked of it."""

    architecture, machine, capture_stream = "sm_00", "emulator", CAPTURE
    capability = (9, 0)

    def __init__(self):
        self.graphs, self.launches, self.recording = {}, {}, threading.local()
        self.capturing, self.conditions = threading.Lock(), {}
        self.version = 13000
        self.running, self.locks = threading.RLock(), {}
        self.log = {
            "modules": 0,
            "launches": 0,
            "products": 0,
            "captures": 0,
            "updates": 0,
            "moves": 0,
            "graph launches": 0,
            "conditions": 0,
            "reads": 0,
        }
        self.can_update, self.delay = True, 0.0
        self.refuses_module = False

    def load_module(self, text, fast):
        self.log["modules"] += 1
        if self.refuses_module:
            from pullback.compile.cuda.runtime.nvrtc import CudaCompileError

            raise CudaCompileError("NVRTC refused the generated code.")
        return cuda_emulator.load_module(text), "the compiler"

    def find_function(self, module, name, shared_bytes):
        library, waits = module
        return getattr(library, name), library, int(waits[name])

    def do(self, stream, action):
        """Now, or when the graph that is being recorded is launched."""
        if stream == CAPTURE:
            self.recording.actions.append(action)
            return
        assert getattr(self.recording, "actions", None) is None, "work on another stream while one is captured"
        time.sleep(self.delay)
        with self.running:
            action()

    def launch(self, function, grid, block, shared_bytes, pointers, stream):
        assert all(isinstance(p, int) for p in pointers), pointers
        made = _Launch(self, function, tuple(pointers), (*grid, *block))
        if stream == CAPTURE:
            self.recording.launches.append(made)
        self.do(stream, made)

    def pointers_of(self, graph):
        return [list(x.pointers) for x in self.launches[graph]]

    def move_launch(self, graph, number, pointers):
        self.log["moves"] += 1
        self.launches[graph][number].pointers = tuple(pointers)

    def lock_of(self, stream):
        return self.locks.setdefault(stream, threading.RLock())

    def prepare_launch(self, function, sizes):
        def launch(stream, parameters):
            given = []
            while len(given) < 128 and (place := ctypes.c_uint64.from_address(parameters + 8 * len(given)).value):
                given.append(ctypes.c_uint64.from_address(place).value)
            self.launch(function, sizes[:3], sizes[3:6], sizes[6], given, stream)

        return launch

    def _run(self, function, pointers, sizes):
        self.log["launches"] += 1
        code, library, waits = function
        count = next(n for n in (8, 32, 128) if len(pointers) <= n)
        given, numbers = (ctypes.c_void_p * count)(*pointers), (ctypes.c_uint * 6)(*sizes)
        block = ctypes.byref(numbers, 12)
        wrong = library.emulate_launch(code, given, len(pointers), ctypes.byref(numbers), block, waits)
        assert not wrong, wrong

    def library_version(self):
        return 1

    def make_product(self, action, alignments):
        product = action.product
        left, right = product_operands(product)

        def multiply(out, left_at, right_at, workspace, stream):
            self.do(stream, lambda: run(out, left_at, right_at))

        def run(*places):
            self.log["products"] += 1
            out, a, b = (_strided(m, place) for m, place in zip((product.out, left, right), places, strict=True))
            with np.errstate(all="ignore"):
                found = product.alpha * (a.astype(np.float64) @ b.astype(np.float64))
                out[...] = found + product.beta * out if product.beta else found

        return multiply

    def why_no_condition(self, kind):
        wanted = conditional._VERSIONS[kind]
        return "" if self.version >= wanted else f"the driver of CUDA {self.version} cannot have it in a graph"

    def find_setter(self, name):
        return self.find_function(cuda_emulator.load_module(conditional.SETTERS), name, 0)

    def new_condition(self):
        """Its number is the address of its value, which the emulator's function for it writes."""
        value = ctypes.c_uint(0xFFFF)
        self.recording.conditions.add(ctypes.addressof(value))
        self.conditions[ctypes.addressof(value)] = value
        return ctypes.addressof(value)

    def add_conditional(self, condition, kind, bodies):
        assert self.why_no_condition(kind) == ""
        self.recording.conditions.remove(condition)  # each has one node
        value, graphs = self.conditions[condition], [[] for _ in bodies]
        self.recording.waiting += zip(graphs, bodies, strict=True)

        def run():
            self.log["conditions"] += 1
            if kind == "branch" and value.value < len(graphs):
                _run_all(graphs[value.value])
            while kind == "repeat" and value.value:
                _run_all(graphs[0])

        self.do(CAPTURE, run)

    def _record(self, issue):
        state = self.recording
        assert getattr(state, "actions", None) is None, "a capture within a capture"
        found = state.actions = []
        state.launches, state.waiting, state.conditions = [], [], set()
        try:
            with self.capturing:
                issue(CAPTURE)
                while state.waiting:
                    state.actions, body = state.waiting.pop(0)
                    body(CAPTURE)
        finally:
            state.actions = None
        assert not state.conditions, "a condition without a node"
        return found, state.launches

    def capture(self, issue):
        self.log["captures"] += 1
        handle = max(self.graphs, default=1000) + 1
        self.graphs[handle], self.launches[handle] = self._record(issue)
        return handle

    def update_graph(self, graph, issue):
        self.log["updates"] += 1
        before = len(self.conditions)
        new = self._record(issue)
        assert before == len(self.conditions), "conditions belong to the graph that they were made for"
        if self.can_update:
            self.graphs[graph], self.launches[graph] = new
        return self.can_update

    def launch_graph(self, graph, stream):
        self.log["graph launches"] += 1
        with self.running:  # a graph is one piece of work of its stream
            _run_all(self.graphs[graph])

    def destroy_graph(self, graph):
        del self.graphs[graph], self.launches[graph]

    def read(self, address, count, stream):
        self.log["reads"] += 1
        return ctypes.string_at(address, count)

    def write(self, address, data, stream):
        ctypes.memmove(address, data, len(data))

    def fill(self, address, value, count, stream):
        ctypes.memset(address, value, count)

    def flat_array(self, address, size, dtype):
        return fake_cupy.wrap(_flat(address, size, dtype))

    def workspace_of(self, stream):
        return 0

    def time(self, run):
        run()
        return float(self.log["launches"])


class _Launch:
    def __init__(self, driver, function, pointers, sizes):
        self.driver, self.function, self.pointers, self.sizes = driver, function, pointers, sizes

    def __call__(self):
        self.driver._run(self.function, self.pointers, self.sizes)


def _run_all(actions):
    for action in actions:
        action()


def _flat(address, size, dtype):
    memory = (ctypes.c_char * max(size * dtype.itemsize, 1)).from_address(address)
    return np.frombuffer(memory, dtype, size)


def _strided(matrix, address):
    last = sum((n - 1) * s for n, s in zip(matrix.shape, matrix.strides, strict=True))
    flat = _flat(address, last + 1, matrix.buffer.dtype)
    return cuda_emulator.view_strided(flat, matrix.shape, matrix.strides)


@contextlib.contextmanager
def installed():
    """CuPy and CUDA as far as compiled functions need them: `import cupy` finds a stand-in, launches are emulated."""
    driver = FakeDriver()
    with (
        fake_cupy.installed() as cupy,
        mock.patch.object(runner, "find_driver", return_value=driver),
        mock.patch.object(eager_launch, "find_driver", return_value=driver),
        mock.patch.object(eager_scatter, "find_driver", return_value=driver),
        mock.patch.object(eager_products.driver, "find_driver", return_value=driver),
        mock.patch.dict(eager_products._plans, clear=True),
        mock.patch.object(link, "why_unavailable", return_value=""),
        mock.patch.object(native_step, "_why_no_cuda", return_value=""),
    ):
        yield cupy, driver
