"""Loops and branches that the device decides: conditional nodes of a graph, and the kernels that set their values."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from .nvrtc import CudaCompileError, compile_cubin

if TYPE_CHECKING:
    from .driver import CudaDriver, Driver

#: What is done on a stream.
Issue = Callable[[int], None]

#: A condition is set by a launch before its node; that of a loop, at the end of each round too. Rows of a chunk are
#: copied from and to addresses that advance with its number.
SETTERS = """
extern "C" __device__ void cudaGraphSetConditional(unsigned long long condition, unsigned value);
extern "C" __global__ void set_while(unsigned long long condition, const bool* holds, long long* rounds,
                                     unsigned long long first) {
  *rounds = first ? 0 : *rounds + 1;
  cudaGraphSetConditional(condition, *holds);
}
extern "C" __global__ void set_branch(unsigned long long condition, const long long* number, unsigned long long count,
                                      int* status) {
  const bool exists = *number >= 0 && *number < (long long)count;
  if (!exists) *status = 1;
  cudaGraphSetConditional(condition, exists ? (unsigned)*number : (unsigned)count);
}
extern "C" __global__ void set_count(unsigned long long condition, long long* number, unsigned long long count,
                                     unsigned long long first) {
  *number = first ? 0 : *number + 1;
  cudaGraphSetConditional(condition, *number < (long long)count);
}
struct Rows { char* start; long long stride; };
template <class T>
__device__ void copy_(const Rows from, const Rows to, unsigned long long rows, unsigned long long bytes) {
  const unsigned long long each = bytes / sizeof(T), by = gridDim.x * 256ull;
  for (unsigned long long i = blockIdx.x * 256ull + threadIdx.x; i < rows * each; i += by)
    ((T*)(to.start + i / each * to.stride))[i % each] = ((const T*)(from.start + i / each * from.stride))[i % each];
}
extern "C" __global__ void copy_rows(char* from, long long from_stride, long long from_step, char* to,
                                     long long to_stride, long long to_step, unsigned long long rows,
                                     unsigned long long bytes, const long long* number) {
  const Rows source = {from + *number * from_step, from_stride}, target = {to + *number * to_step, to_stride};
  const unsigned long long places = (unsigned long long)source.start | (unsigned long long)target.start;
  const unsigned long long all = places | bytes | (unsigned long long)from_stride | (unsigned long long)to_stride;
  if (all % 16 == 0) copy_<uint4>(source, target, rows, bytes);
  else if (all % 4 == 0) copy_<unsigned>(source, target, rows, bytes);
  else copy_<char>(source, target, rows, bytes);
}
"""
_NAMES = ("set_while", "set_branch", "set_count", "copy_rows")

#: The first versions of the driver whose graphs can have these loops (see `Loop.kind`).
_VERSIONS = {"repeat": 12040, "branch": 12080}
_CONDITIONAL_NODE, _WHILE, _SWITCH = 13, 1, 2
_SET_DEPENDENCIES = 1
_RELAXED_CAPTURE = 2
_ONE = (1, 1, 1)


def add_while(driver: Driver, test: Issue, body: Issue, holds: int, rounds: int, stream: int) -> None:
    """A loop in the graph that a stream captures: `test` writes to the address `holds` whether a round follows, and
    the integer at `rounds` counts them.
    """
    condition = driver.new_condition()

    def decide(stream: int, first: int) -> None:
        test(stream)
        driver.launch(driver.find_setter("set_while"), _ONE, _ONE, 0, [condition, holds, rounds, first], stream)

    def run_round(stream: int) -> None:
        body(stream)
        decide(stream, 0)

    decide(stream, 1)
    driver.add_conditional(condition, "repeat", [run_round])


def add_branch(driver: Driver, ways: Sequence[Issue], number: int, status: int, stream: int) -> None:
    """A branch in the graph that a stream captures: it goes the way whose number is at an address. If there is none,
    the status is noted.
    """
    condition = driver.new_condition()
    pointers = [condition, number, len(ways), status]
    driver.launch(driver.find_setter("set_branch"), _ONE, _ONE, 0, pointers, stream)
    driver.add_conditional(condition, "branch", ways)


def add_count(driver: Driver, body: Issue, number: int, count: int, stream: int) -> None:
    """A loop of so many rounds in the graph that a stream captures; the number of each is at an address."""
    condition = driver.new_condition()

    def decide(stream: int, first: int) -> None:
        driver.launch(driver.find_setter("set_count"), _ONE, _ONE, 0, [condition, number, count, first], stream)

    def run_round(stream: int) -> None:
        body(stream)
        decide(stream, 0)

    decide(stream, 1)
    driver.add_conditional(condition, "repeat", [run_round])


class _ConditionalParameters(ctypes.Structure):
    _fields_ = (
        ("condition", ctypes.c_uint64),
        ("kind", ctypes.c_int),
        ("size", ctypes.c_uint),
        ("graphs", ctypes.POINTER(ctypes.c_void_p)),
        ("context", ctypes.c_void_p),
    )


class _NodeParameters(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int),
        ("reserved", ctypes.c_int * 3),
        ("conditional", _ConditionalParameters),
        ("padding", ctypes.c_char * (29 * 8 - ctypes.sizeof(_ConditionalParameters))),
        ("last", ctypes.c_longlong),
    )


class ConditionalNodes:
    """Conditional nodes of the graphs that one driver captures. Their bodies are captured when the graph around them is
    whole, so that one stream of captures serves all.
    """

    def __init__(self, driver: CudaDriver) -> None:
        self._driver = driver
        #: Graphs of nodes that were added, with what is to be captured into them.
        self.waiting: list[tuple[int, Issue]] = []
        self._setters: dict[str, Any] = {}
        version = ctypes.c_int()
        driver.slow.cuDriverGetVersion(ctypes.byref(version))
        self._version = version.value

    def why_not(self, kind: str) -> str:
        """Why there is no node for loops of a kind; empty if there is one."""
        wanted = _VERSIONS[kind]
        if self._version < wanted:
            have, want = (f"{v // 1000}.{v % 1000 // 10}" for v in (self._version, wanted))
            return f"the driver of CUDA {have} cannot have it in a graph, that of {want} can"
        try:
            self.find_setter("set_while")
        except (CudaCompileError, RuntimeError) as error:
            return f"the kernel that decides it cannot be loaded: {str(error).partition(chr(10))[0]}"
        return ""

    def find_setter(self, name: str) -> Any:
        if not self._setters:
            driver, module = self._driver, ctypes.c_void_p()
            # the driver has the function that sets a condition, and links it to code that is relocatable
            cubin, _ = compile_cubin(SETTERS, driver.architecture, fast=False, more=("-rdc=true",))
            driver.check(driver.slow.cuModuleLoadData(ctypes.byref(module), cubin))
            self._setters = {n: driver.find_function({n: module}, n, 0) for n in _NAMES}
        return self._setters[name]

    def new_condition(self) -> int:
        driver, found = self._driver, ctypes.c_uint64()
        graph, _ = driver.capture_state()
        context = self._find_context()
        driver.check(driver.slow.cuGraphConditionalHandleCreate(ctypes.byref(found), graph, context, 0, 0))
        return found.value

    def add(self, condition: int, kind: str, bodies: Sequence[Issue]) -> None:
        """A node after all that the stream has captured so far, which what follows waits for."""
        driver, node = self._driver, ctypes.c_void_p()
        graph, before = driver.capture_state()
        given = _NodeParameters(type=_CONDITIONAL_NODE)
        which = _WHILE if kind == "repeat" else _SWITCH
        given.conditional = _ConditionalParameters(condition, which, len(bodies), None, self._find_context())
        waits = (ctypes.c_void_p * max(len(before), 1))(*before)
        count = ctypes.c_size_t(len(before))
        driver.check(driver.slow.cuGraphAddNode(ctypes.byref(node), graph, waits, count, ctypes.byref(given)))
        stream, new = ctypes.c_void_p(driver.capture_stream), (ctypes.c_void_p * 1)(node)
        driver.check(driver.slow.cuStreamUpdateCaptureDependencies(stream, new, ctypes.c_size_t(1), _SET_DEPENDENCIES))
        self.waiting += [(given.conditional.graphs[i] or 0, body) for i, body in enumerate(bodies)]

    def _find_context(self) -> ctypes.c_void_p:
        found = ctypes.c_void_p()
        self._driver.check(self._driver.slow.cuCtxGetCurrent(ctypes.byref(found)))
        return found

    def capture_bodies(self) -> None:
        """Fill the nodes that were added, and those that their bodies add."""
        driver, stream = self._driver, ctypes.c_void_p(self._driver.capture_stream)
        while self.waiting:
            graph, body = self.waiting.pop(0)
            begin = driver.slow.cuStreamBeginCaptureToGraph
            none = ctypes.c_void_p()
            driver.check(begin(stream, ctypes.c_void_p(graph), none, none, ctypes.c_size_t(0), _RELAXED_CAPTURE))
            try:
                body(driver.capture_stream)
            finally:
                status = driver.slow.cuStreamEndCapture(stream, ctypes.byref(none))
            driver.check(status)
