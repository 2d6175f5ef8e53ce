"""What the runtime asks of CUDA's driver: modules, launches, graphs. Memory and streams are CuPy's."""

from __future__ import annotations

import ctypes
import functools
import math
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from ....errors import PullbackError
from ..launch_plan import LibraryProduct
from ..products.library import WORKSPACE_BYTES, LibraryPlan, library_version
from .conditional import ConditionalNodes
from .nvrtc import compile_parts

#: The file of CUDA's driver.
LIBRARY = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
#: What CUDA returns in a thread that has used no device yet.
_NO_CONTEXT = 201
#: Other threads may allocate memory meanwhile.
_RELAXED_CAPTURE = 2
_NON_BLOCKING_STREAM = 1
_MAX_DYNAMIC_SHARED = 8
#: Shared memory that a launch gets without asking for it.
_PLAIN_SHARED_BYTES = 48 << 10


class CudaError(PullbackError, RuntimeError):
    """A call of CUDA's driver failed."""


class Parameters:
    """Parameters of a launch, of eight bytes each, in memory as the driver reads them."""

    __slots__ = ("address", "places", "values")

    def __init__(self, values: Sequence[int]) -> None:
        count = len(values)
        self.values = (ctypes.c_uint64 * count)(*values)
        first = ctypes.addressof(self.values)
        # a null marks the end
        self.places = (ctypes.c_void_p * (count + 1))(*range(first, first + 8 * count, 8))
        self.address = ctypes.addressof(self.places)


class Driver(Protocol):
    """One device. Functions, graphs and streams are handles; addresses are those of its memory."""

    #: What compiled code and measured times hold for.
    architecture: str
    capability: tuple[int, int]
    machine: str
    #: The stream that `capture` gives to what it captures.
    capture_stream: int

    def load_module(self, text: str, fast: bool) -> tuple[Any, str]:
        """The text compiled and loaded, and where its machine code came from."""

    def find_function(self, module: Any, name: str, shared_bytes: int) -> Any: ...

    def launch(
        self,
        function: Any,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        shared_bytes: int,
        pointers: Sequence[int],
        stream: int,
    ) -> None: ...

    def prepare_launch(self, function: Any, sizes: Sequence[int]) -> Callable[[int, int], None]:
        """A launch as a function of the stream and of where its parameters lie (`Parameters.address`); `sizes` are
        those of the grid, of a block, and the bytes of shared memory.
        """

    def make_product(
        self, action: LibraryProduct, alignments: Sequence[int]
    ) -> Callable[[int, int, int, int, int], None]:
        """A product by the library: a function of the addresses of result, left and right matrix, workspace, stream."""

    def library_version(self) -> int:
        """The version of the library that multiplies matrices: another one has other algorithms."""

    def capture(self, issue: Callable[[int], None]) -> int:
        """A graph of what `issue` does on the stream it is given, ready to launch."""

    def update_graph(self, graph: int, issue: Callable[[int], None]) -> bool:
        """The same again for an older graph of the same launches with other addresses; False if that failed."""

    def why_no_condition(self, kind: str) -> str:
        """Why a loop ("repeat") or a branch cannot be a node of a graph, decided by the device; empty if it can."""

    def find_setter(self, name: str) -> Any:
        """A function that sets a condition (see `conditional.SETTERS`)."""

    def new_condition(self) -> int:
        """A condition of a node of the graph that is being captured."""

    def add_conditional(self, condition: int, kind: str, bodies: Sequence[Callable[[int], None]]) -> None:
        """The node: its bodies are captured later, when the graph around them is whole."""

    def pointers_of(self, graph: int) -> list[list[int]]:
        """The parameters of each launch of a graph, in the order in which `launch` made them."""

    def move_launch(self, graph: int, number: int, pointers: Sequence[int]) -> None:
        """Give one launch of a graph other parameters from now on."""

    @property
    def launch_graph(self) -> Callable[[int, int], None]:
        """Launches a graph on a stream."""

    def destroy_graph(self, graph: int) -> None: ...

    def read(self, address: int, count: int, stream: int) -> bytes:
        """Bytes of the device, when the stream has done what was asked of it."""

    def write(self, address: int, data: bytes, stream: int) -> None:
        """Write one number, in the order of the stream."""

    def fill(self, address: int, value: int, count: int, stream: int) -> None:
        """Set so many bytes."""

    def flat_array(self, address: int, size: int, dtype: np.dtype[Any]) -> Any:
        """Memory of the device as a CuPy array, which does not own it."""

    def lock_of(self, stream: int) -> Any:
        """What a thread holds while it issues what belongs together on a stream."""

    def workspace_of(self, stream: int) -> int:
        """The address of memory that the library's products of one stream work in."""

    def time(self, run: Callable[[], None]) -> float:
        """Microseconds from when the device starts what `run` asks of the current stream until it is done."""


class _UpdateResult(ctypes.Structure):
    _fields_ = (("result", ctypes.c_int), ("node", ctypes.c_void_p), ("from_node", ctypes.c_void_p))


class _LaunchParameters(ctypes.Structure):
    _fields_ = (
        ("function", ctypes.c_void_p),
        *((f"{of}{axis}", ctypes.c_uint) for of in ("grid", "block") for axis in "xyz"),
        ("shared_bytes", ctypes.c_uint),
        ("places", ctypes.c_void_p),
        ("extra", ctypes.c_void_p),
        ("kernel", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
    )


class LaunchNode(NamedTuple):
    """A launch as a node of a graph."""

    handle: int
    function: Any
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    pointers: tuple[int, ...]


#: Machines with instructions that no later one has, and the name under which the compiler knows those.
_OWN_ARCHITECTURES = {"sm_90": "sm_90a"}


class _OfThread(threading.local):
    """Whether a thread has made the device's context its own."""

    has_context = False


class CudaDriver:
    """The `Driver` of a machine with CUDA: its library by ctypes, and CuPy for memory, streams and NVRTC."""

    def __init__(self, device: int) -> None:
        import cupy

        self.cupy, self.device = cupy, device
        # calls that only put work in a queue keep the GIL: they are over sooner than it could be taken again
        self._quick, self._slow, self._thread = ctypes.PyDLL(LIBRARY), ctypes.CDLL(LIBRARY), _OfThread()
        with cupy.cuda.Device(device):
            cupy.cuda.runtime.free(0)  # makes the device's context
            facts = cupy.cuda.runtime.getDeviceProperties(device)
            self.capability = facts["major"], facts["minor"]
            self.architecture = f"sm_{facts['major']}{facts['minor']}"
            self.machine = f"{facts['name'].decode()}, {self.architecture}"
            handle = ctypes.c_void_p()
            self.check(self.slow.cuStreamCreate(ctypes.byref(handle), _NON_BLOCKING_STREAM))
        self.capture_stream = handle.value or 0
        self.launch_graph = cupy.cuda.runtime.graphLaunch
        # CuPy's own call of the driver takes integers as they are, which is half of what ctypes costs
        self.launch_kernel, self.launch_error = cupy.cuda.driver.launchKernel, cupy.cuda.driver.CUDADriverError
        self.workspaces: dict[int, Any] = {}
        self.capturing = threading.Lock()
        self.stream_locks: dict[int, threading.RLock] = {}
        # of each executable graph, the graph it was made of, and the nodes of its launches
        self.graphs: dict[int, tuple[ctypes.c_void_p, list[LaunchNode]]] = {}
        self.new_nodes: list[LaunchNode] = []
        self.conditional = ConditionalNodes(self)
        self.why_no_condition, self.find_setter = self.conditional.why_not, self.conditional.find_setter
        self.new_condition, self.add_conditional = self.conditional.new_condition, self.conditional.add

    @property
    def quick(self) -> Any:
        return self._quick if self._thread.has_context else self._enter(self._quick)

    @property
    def slow(self) -> Any:
        return self._slow if self._thread.has_context else self._enter(self._slow)

    def _enter(self, library: Any) -> Any:
        """The library for a thread that has called nothing yet: the driver, unlike CuPy, knows no device there."""
        self.use_device()
        self._thread.has_context = True
        return library

    def check(self, status: int) -> None:
        if status:
            text = ctypes.c_char_p()
            self.slow.cuGetErrorString(status, ctypes.byref(text))
            what = text.value.decode() if text.value else "unknown error"
            raise CudaError(f"CUDA error {status}: {what}")

    def use_device(self) -> None:
        """Make the device's context that of this thread."""
        self.cupy.cuda.runtime.setDevice(self.device)
        self.cupy.cuda.runtime.free(0)

    def load_module(self, text: str, fast: bool) -> tuple[Any, str]:
        parts, source = compile_parts(text, _OWN_ARCHITECTURES.get(self.architecture, self.architecture), fast)
        modules: dict[str, ctypes.c_void_p] = {}
        for names, cubin in parts:
            module = ctypes.c_void_p()
            self.check(self.slow.cuModuleLoadData(ctypes.byref(module), cubin))
            modules |= dict.fromkeys(names, module)
        return modules, source

    def find_function(self, module: Any, name: str, shared_bytes: int) -> int:
        function = ctypes.c_void_p()
        self.check(self.slow.cuModuleGetFunction(ctypes.byref(function), module[name], name.encode()))
        if shared_bytes > _PLAIN_SHARED_BYTES:
            self.check(self.slow.cuFuncSetAttribute(function, _MAX_DYNAMIC_SHARED, shared_bytes))
        return function.value or 0

    def launch(
        self,
        function: Any,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        shared_bytes: int,
        pointers: Sequence[int],
        stream: int,
    ) -> None:
        parameters = Parameters(pointers)
        given = (function, *grid, *block, shared_bytes, stream, parameters.address, 0)
        try:
            self.launch_kernel(*given)
        except self.launch_error as error:
            self._recover(error)
            self.launch_kernel(*given)
        if stream == self.capture_stream:
            _, (handle,) = self.capture_state()  # launches of a graph follow each other
            self.new_nodes.append(LaunchNode(handle, function, grid, block, shared_bytes, tuple(pointers)))

    def capture_state(self) -> tuple[ctypes.c_void_p, list[int]]:
        """The graph that is being captured, and the nodes that the next one waits for."""
        kind, number, graph = ctypes.c_int(), ctypes.c_uint64(), ctypes.c_void_p()
        nodes, count = ctypes.POINTER(ctypes.c_void_p)(), ctypes.c_size_t()
        found = [ctypes.byref(x) for x in (kind, number, graph, nodes, count)]
        self.check(self.slow.cuStreamGetCaptureInfo_v2(ctypes.c_void_p(self.capture_stream), *found))
        return graph, [nodes[i] or 0 for i in range(count.value)]

    def move_launch(self, graph: int, number: int, pointers: Sequence[int]) -> None:
        parameters, node = Parameters(pointers), self.graphs[graph][1][number]
        sizes = *node.grid, *node.block, node.shared_bytes
        given = _LaunchParameters(node.function, *sizes, parameters.address, None, None, None)
        place = ctypes.c_void_p(node.handle)
        self.check(self.quick.cuGraphExecKernelNodeSetParams_v2(ctypes.c_void_p(graph), place, ctypes.byref(given)))

    def pointers_of(self, graph: int) -> list[list[int]]:
        return [list(node.pointers) for node in self.graphs[graph][1]]

    def prepare_launch(self, function: Any, sizes: Sequence[int]) -> Callable[[int, int], None]:
        launch, failure = functools.partial(self.launch_kernel, function, *sizes), self.launch_error

        def launch_on(stream: int, parameters: int) -> None:
            try:
                launch(stream, parameters, 0)
            except failure as error:
                self._recover(error)
                launch(stream, parameters, 0)

        return launch_on

    def _recover(self, error: Any) -> None:
        """Raise an error of a launch, unless this thread only had no device yet."""
        if error.status != _NO_CONTEXT:
            raise CudaError(f"CUDA error {error.status}: {error}") from None
        self.use_device()

    def make_product(
        self, action: LibraryProduct, alignments: Sequence[int]
    ) -> Callable[[int, int, int, int, int], None]:
        return LibraryPlan(action.product, action.tf32, alignments, action.algorithm).launch

    def library_version(self) -> int:
        return library_version()

    def _record(self, issue: Callable[[int], None]) -> ctypes.c_void_p:
        """What is done on the stream of captures, as a graph."""
        graph, stream = ctypes.c_void_p(), ctypes.c_void_p(self.capture_stream)
        self.conditional.waiting.clear()  # of a capture that failed
        self.check(self.slow.cuStreamBeginCapture_v2(stream, _RELAXED_CAPTURE))
        try:
            issue(self.capture_stream)
        finally:
            status = self.slow.cuStreamEndCapture(stream, ctypes.byref(graph))
        self.check(status)
        self.conditional.capture_bodies()
        return graph

    def capture(self, issue: Callable[[int], None]) -> int:
        made = ctypes.c_void_p()
        with self.capturing:
            nodes: list[LaunchNode] = []
            self.new_nodes = nodes
            graph = self._record(issue)
        self.check(self.slow.cuGraphInstantiateWithFlags(ctypes.byref(made), graph, ctypes.c_ulonglong(0)))
        handle = made.value or 0
        self.graphs[handle] = graph, nodes
        return handle

    def update_graph(self, graph: int, issue: Callable[[int], None]) -> bool:
        found = _UpdateResult()
        with self.capturing:
            nodes: list[LaunchNode] = []
            self.new_nodes = nodes
            new = self._record(issue)
        status = self.slow.cuGraphExecUpdate_v2(ctypes.c_void_p(graph), new, ctypes.byref(found))
        self.slow.cuGraphDestroy(new)
        if status:
            return False
        of, before = self.graphs[graph]
        self.graphs[graph] = of, [a._replace(pointers=b.pointers) for a, b in zip(before, nodes, strict=True)]
        return True

    def destroy_graph(self, graph: int) -> None:
        if not sys.is_finalizing():
            self.slow.cuGraphExecDestroy(ctypes.c_void_p(graph))
            self.slow.cuGraphDestroy(self.graphs.pop(graph)[0])

    def read(self, address: int, count: int, stream: int) -> bytes:
        found = ctypes.create_string_buffer(count)
        self.check(
            self.slow.cuMemcpyDtoHAsync_v2(
                found, ctypes.c_uint64(address), ctypes.c_size_t(count), ctypes.c_void_p(stream)
            )
        )
        self.check(self.slow.cuStreamSynchronize(ctypes.c_void_p(stream)))
        return found.raw

    def write(self, address: int, data: bytes, stream: int) -> None:
        # values travel with the command: nothing waits, and nothing has to stay where it is
        on, unit = ctypes.c_void_p(stream), math.gcd(len(data), 4)
        fill = {1: self.quick.cuMemsetD8Async, 2: self.quick.cuMemsetD16Async, 4: self.quick.cuMemsetD32Async}[unit]
        for start in range(0, len(data), unit):
            value = int.from_bytes(data[start : start + unit], "little")
            place = ctypes.c_uint64(address + start)
            self.check(fill(place, ctypes.c_uint(value), ctypes.c_size_t(1), on))

    def fill(self, address: int, value: int, count: int, stream: int) -> None:
        self.cupy.cuda.runtime.memsetAsync(address, value, count, stream)

    def flat_array(self, address: int, size: int, dtype: np.dtype[Any]) -> Any:
        cupy = self.cupy
        memory = cupy.cuda.UnownedMemory(address, size * dtype.itemsize, None, self.device)
        return cupy.ndarray((size,), dtype, memptr=cupy.cuda.MemoryPointer(memory, 0))

    def lock_of(self, stream: int) -> Any:
        found = self.stream_locks.get(stream)
        return self.stream_locks.setdefault(stream, threading.RLock()) if found is None else found

    def workspace_of(self, stream: int) -> int:
        if stream not in self.workspaces:
            self.workspaces[stream] = self.cupy.ndarray((WORKSPACE_BYTES,), "uint8")
        return int(self.workspaces[stream].data.ptr)

    def time(self, run: Callable[[], None]) -> float:
        cuda = self.cupy.cuda
        start, end = cuda.Event(), cuda.Event()
        # on the current stream, which is the one that is asked about
        start.record()
        run()
        end.record()
        end.synchronize()
        return 1e3 * float(cuda.get_elapsed_time(start, end))


@functools.cache
def find_driver(device: int) -> Driver:
    """The driver of a device: made once."""
    return CudaDriver(device)
