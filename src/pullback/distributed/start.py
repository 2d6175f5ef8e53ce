"""`init`: makes this process a rank among those that a launcher started, and sees to it that none hangs at the end."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import faulthandler
import gc
import io
import os
import platform
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, TypeVar

from ..arrays.argument_checks import check_number
from ..arrays.call_site import format_line, is_library_code
from ..errors import ArgumentError, CollectiveTimeoutError, WorldError
from ..ops.collective.exchange import Exchange
from ..ops.collective.world import Call, World, current_world, name_ranks
from ..settings import set_process_rank
from .engines.cluster import ClusterWorld
from .engines.nccl.choice import add_nccl, find_gpu_of_rank
from .engines.node import MEMORY_BYTES, NodeWorld
from .engines.peers import ENDED, RAISED, run_bounded
from .job_reports import OwnReport
from .launch import shares_memory
from .supervision import ask_for_end, find_missing, leave_start, note_arrival

R = TypeVar("R")
#: Variables in which launchers say how many ranks they started.
_SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS", "PMIX_SIZE", "PULLBACK_RANKS")
_MISSING = (
    "init: this process was started as one of {size} ranks, and mpi4py is not installed.\n"
    "  Install it with an MPI: pip install 'pullback[mpi]'."
)
_OTHER_MPI = "  The launcher belongs to another MPI than the one that mpi4py loads: {}."
#: Seconds that `init` waits for the other ranks, unless it is told otherwise.
TIMEOUT = 60.0
#: Seconds that MPI has to end a job.
_ABORT_SECONDS = 2.0


def init(*, timeout: float = TIMEOUT, engine: str = "auto", overlap: bool | None = None) -> None:
    """Make this process a rank of the job that `pullback run`, `mpiexec` or `srun` started: collectives then meet those
    of the other processes. Started without a launcher, a process is alone, and nothing changes; so a script may always
    call it, first of all.

    No rank waits longer than `timeout` seconds for others: they raise `pb.errors.WorldError`, on all ranks. `engine` is
    "auto", "mpi" (also without a launcher), "nccl" (arrays on GPUs by NCCL, which "auto" takes where all ranks have it)
    or "alone". Sums of gradients go on beside the backward pass where a core is free for that, and on GPUs; `overlap`
    decides otherwise.

    >>> import pullback as pb
    >>> pb.distributed.init()
    >>> pb.distributed.rank(), pb.distributed.world_size()
    (0, 1)
    """
    timeout = check_number("init: timeout", timeout, above=0.0)
    if engine not in ("auto", "mpi", "nccl", "alone"):
        raise ArgumentError(f'init: the engine is "auto", "mpi", "nccl" or "alone", got {engine!r}.')
    launched = _launched_size()
    if engine == "alone" or (engine == "auto" and launched == 1):
        set_process_rank(None)
        return
    if _Exit.world is not None:
        raise WorldError("init: this process is a rank already.\n  Call it once, at the start of the program.")
    _outlive_others()
    note_arrival()
    try:
        world = _start_mpi(launched, timeout, engine)
    except BaseException:
        atexit.register(leave_start, timeout)
        raise
    world.runs_beside = world.runs_beside if overlap is None else bool(overlap)
    _Exit.install(world)
    _print_whole_lines()
    set_process_rank(world if world.size > 1 else None)


def is_initialized() -> bool:
    """Whether this process, or thread, is a rank among others.

    >>> import pullback as pb
    >>> pb.distributed.is_initialized()
    False
    """
    return current_world().size > 1


def _print_whole_lines() -> None:
    """Lines that several ranks print at once are not mixed: an unbuffered stream writes a line in several pieces."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True, write_through=False)


def _launched_size() -> int:
    """How many ranks a launcher says it started; 1 without one, 0 if it does not say."""
    found = [int(os.environ[name]) for name in _SIZES if os.environ.get(name, "").isdecimal()]
    return max(found, default=0 if "PMIX_RANK" in os.environ else 1)


def _outlive_others() -> None:
    """MPICH's launcher sends all ranks a signal when one has ended, which ends them too unless they expect it. Its
    library calls the handler that was there before, without asking whether it is one: to ignore the signal would crash
    until MPI is over, and is right from then on, since Python removes handlers at its end.
    """
    if "PMI_RANK" not in os.environ or threading.current_thread() is not threading.main_thread():
        return
    if signal.getsignal(signal.SIGUSR1) in (signal.SIG_DFL, signal.SIG_IGN):
        signal.signal(signal.SIGUSR1, lambda number, frame: None)
        atexit.register(signal.signal, signal.SIGUSR1, signal.SIG_IGN)


def _start_mpi(launched: int, timeout: float, engine: str) -> Any:
    def late() -> Exception:
        missing = find_missing(launched)
        who = name_ranks(missing) if missing else "some rank"
        return CollectiveTimeoutError(
            f"init: {who} of {launched or 'all'} did not come to it within {timeout:g} s.\n"
            "  It may have failed before, or wait elsewhere; or ranks were started by the launcher of another MPI."
        )

    deadline = time.monotonic() + timeout

    def run(function: Callable[[], R]) -> R:
        return run_bounded(function, max(deadline - time.monotonic(), 0.0), late)

    mpi = run(lambda: _import_mpi(launched))
    size = mpi.COMM_WORLD.size
    if launched > 1 and size != launched:
        raise WorldError(
            f"init: the launcher started {launched} ranks, and MPI sees {size}.\n{_OTHER_MPI.format(_library(mpi))}"
        )
    world = run(lambda: _make_world(mpi, timeout))
    if engine == "mpi" or size == 1:
        return world
    finding = find_gpu_of_rank(world.local_rank)  # in this thread, whose current GPU it sets
    findings = run(lambda: mpi.COMM_WORLD.allgather(finding))
    return add_nccl(world, findings, is_required=engine == "nccl")


def _import_mpi(launched: int) -> Any:
    try:
        import mpi4py
    except ImportError:
        raise WorldError(_MISSING.format(size=launched)) from None
    if "mpi4py.MPI" not in sys.modules:
        mpi4py.rc.initialize = False  # see `_initialize`
        mpi4py.rc.finalize = False  # a rank that failed must not wait for others in it
        os.environ.setdefault("OMPI_MCA_osc", "^ucx")  # it complains where it finds no network of its kind
    from mpi4py import MPI

    library = _library(MPI)
    if "OMPI_COMM_WORLD_SIZE" in os.environ and "Open MPI" not in library:  # which may end the process without an error
        raise WorldError(f"init: Open MPI's launcher started this process.\n{_OTHER_MPI.format(library)}")
    if not MPI.Is_initialized():
        _initialize(MPI)
    return MPI


def _initialize(mpi: Any) -> None:
    """Start MPI. mpi4py would hold Python's lock until all ranks have come, and no deadline could pass meanwhile; a
    call by ctypes does not.
    """
    try:
        start = ctypes.CDLL(mpi.__file__).MPI_Init_thread
    except (OSError, AttributeError):  # where symbols are not found that way
        mpi.Init_thread(mpi.THREAD_MULTIPLE)
        return
    if problem := start(None, None, ctypes.c_int(mpi.THREAD_MULTIPLE), ctypes.byref(ctypes.c_int())):
        raise WorldError(f"init: MPI did not start, and says {problem}.")


def _library(mpi: Any) -> str:
    return str(mpi.Get_library_version()).split("\n")[0].split(",")[0].strip()


def _make_world(mpi: Any, timeout: float) -> Any:
    everyone = mpi.COMM_WORLD.Dup()
    everyone.Set_errhandler(mpi.ERRORS_RETURN)
    node = everyone.Split_type(mpi.COMM_TYPE_SHARED)
    if node.size == everyone.size and shares_memory():
        return _make_node(mpi, node, timeout)
    return ClusterWorld(mpi, everyone, node, timeout)


def _make_node(mpi: Any, node: Any, timeout: float) -> NodeWorld:
    window = mpi.Win.Allocate_shared(MEMORY_BYTES, 8, comm=node)
    memories = [memoryview(window.Shared_query(r)[0]) for r in range(node.size)]
    memories[node.rank][:] = bytes(MEMORY_BYTES)
    window.Lock_all()
    node.Barrier()
    is_ordered = platform.machine().lower() in ("x86_64", "amd64")  # loads and stores are seen in order
    world = NodeWorld(memories, node.rank, timeout, None if is_ordered else window.Sync)
    node.Barrier()
    world.peers.watch_processes()
    world.choose_copies()
    world.owners = (window, node)
    return world


class _Exit:
    """What happens when the process ends: the others are told, and a job whose ranks came apart is ended. The launcher
    reads how it ended in a report.
    """

    world: Any = None
    failed = False
    report: OwnReport
    #: Without which ranks this one went on, by the numbers that the launcher gave them, and those of the ranks left.
    without: tuple[int, ...] = ()
    origins: tuple[int, ...] = ()
    _previous: Any = None
    _process = 0

    @classmethod
    def install(cls, world: Any) -> None:
        cls.world, cls._process = world, os.getpid()
        cls.origins = tuple(range(world.size))
        cls.report = OwnReport(world.rank)
        cls._previous, sys.excepthook = sys.excepthook, cls.on_error
        atexit.register(cls.leave)

    @classmethod
    def replace(cls, world: Any, members: list[int]) -> None:
        """This rank goes on in another world, of these members of the one before."""
        cls.without += tuple(r for i, r in enumerate(cls.origins) if i not in members)
        cls.origins = tuple(cls.origins[i] for i in members)
        cls.world = world
        cls.report.went_on(cls.without)

    @classmethod
    def on_error(cls, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        cls._previous(kind, error, trace)
        cls.failed = True
        if os.getpid() != cls._process:
            return
        if isinstance(error, WorldError):
            cls.report.failed(error)
        elif cls.world.error is None:
            cls.report.raised(error)
        if cls.world.error is None:  # what the world raised, others know
            cls.world.peers.announce(RAISED, _describe(error, trace))

    @classmethod
    def leave(cls) -> None:
        world = cls.world
        if os.getpid() != cls._process:  # a child of this rank is none
            return
        set_process_rank(_Left(world) if world.size > 1 else None)
        if world.error is not None:
            cls.report.failed(world.error)
        _flush_files()  # a rank that failed may have this one ended before Python comes to it
        if cls.failed or world.error is not None:
            cls._end_job(world)
        world.close()
        cls.report.end()
        world.peers.announce(ENDED, "")
        while not world.peers.wait_for_others_to_leave(world.timeout):
            pass  # they may have much to do alone
        from mpi4py import MPI

        # it would wait for those that failed, and for those that this rank went on without
        if not (cls.without or world.peers.has_failed() or MPI.Is_finalized()):
            world.peers.close()
            MPI.Finalize()

    @staticmethod
    def _end_job(world: Any) -> None:
        """Leave, once the others do. A rank that is stopped or in a loop is ended."""
        world.peers.leave()
        if not world.peers.wait_for_others_to_leave(world.timeout):
            world.peers.kill_stuck()
            world.peers.wait_for_others_to_leave(_ABORT_SECONDS)
            if world.peers.find_running():  # elsewhere
                from mpi4py import MPI

                ask_for_end(_ABORT_SECONDS)
                with open(os.devnull, "w") as nowhere:
                    # it may hang, and no thread can be started any more
                    faulthandler.dump_traceback_later(_ABORT_SECONDS, exit=True, file=nowhere)
                    MPI.COMM_WORLD.Abort(1)
        os._exit(1)  # threads may hang in MPI


class _Left(World):
    """The world of a rank that has left it: no collective of a handler that still runs can meet the others."""

    def __init__(self, world: World) -> None:
        self.rank, self.size, self.timeout = world.rank, world.size, world.timeout
        self.local_rank, self.local_size = world.local_rank, world.local_size

    def meet(
        self, call: Call, xp: Any, arrays: Sequence[Any], exchange: Exchange, outs: Sequence[Any] | None = None
    ) -> list[Any]:
        raise WorldError(f"{call}: this rank has left the others, since its program is over.\n  Call it before.")


def _flush_files() -> None:
    """Write what Python holds back: this process may end without what Python does at its end."""
    files = [x for x in gc.get_objects() if isinstance(x, io.IOBase)]
    for file in (*files, sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            file.flush()


def _describe(error: BaseException, trace: TracebackType | None) -> str:
    """An error with the user's line that raised it."""
    text = f"{type(error).__name__}: {error}".rstrip(": ")
    own = None
    while trace is not None:
        if not is_library_code(trace.tb_frame.f_code):
            own = trace.tb_frame.f_code, trace.tb_lasti
        trace = trace.tb_next
    return text if own is None else f"{text}\n  at {format_line(*own)}"
