"""The seam between the compiler and a machine: what a target can do and costs, and what runs a compiled program.

Everything above (lowering, scheduling, memory) reads its numbers from a `Target`; a target renders scheduled steps to
code of its own and links that to a `Runner`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from ..arrays.spec import Spec
from ..errors import PullbackError
from ..ops.op import Op
from ..program.ir import Program
from .loop_ir import Host, Kernel, Product, Routine, Step, Steps
from .vocabulary import VOCABULARY, computation_dtype, is_half, operation_dtype, words_of


@dataclass(frozen=True, slots=True)
class Costs:
    """The cost model: nanoseconds per point of one addition's weight, per byte moved, per multiplication of a product,
    and per byte of an op that NumPy executes; and the rounds that a loop of unknown length is assumed to
    run.
    """

    operation_ns: float
    byte_ns: float
    multiplication_ns: float
    host_byte_ns: float = 1.0
    assumed_rounds: int = 100


@dataclass(frozen=True, slots=True)
class Limits:
    """The sizes at which the compiler decides; infinite where a machine has no such limit."""

    #: A kernel whose lines weigh more is full; the same for a kernel that folds rows.
    max_kernel_weight: float
    max_row_kernel_weight: float
    #: What a value may weigh to be computed again rather than stored, and in a later pass over a row, saved.
    max_recompute_weight: int
    max_row_recompute_weight: int
    #: From this weight on a function is worth a separate loop, while its values take no more than so many bytes.
    costly_weight: float
    near_bytes: int
    #: Bytes of a convolution's patches that are laid out at a time; places of a pooling's window that are unrolled.
    patch_bytes: int
    max_window_places: int
    #: Where buffers of the arena start, and pieces of one buffer that several blocks write.
    alignment: int
    cache_line_bytes: int
    #: The bytes of a vector, and the most vectors of a row that are computed at once.
    vector_bytes: int
    max_unroll: int
    #: Programs with less to share are not divided into blocks that run in parallel, nor are shorter steps in others;
    #: and how long a block takes at least, how many there are at most.
    min_program_ns: float
    min_step_ns: float
    min_block_ns: float
    max_blocks: int
    #: A product is cut into at most so many parts, each a multiple of so many columns or rows; longer products of a
    #: batch are not run side by side.
    max_product_parts: int
    product_part_multiple: int
    max_batch_product_ns: float
    #: A program that takes longer lets other Python threads run meanwhile.
    gil_release_ns: float
    #: From so many points on, a walk over memory is worth saving: fewer stay in the nearest cache.
    large_domain: int = 1 << 14
    #: What an operation may weigh to be computed where its result is scattered, element by element if need be.
    max_scattered_weight: float = 0
    #: The axes, each with its own stride, that the batch of a product may have.
    max_batch_axes: int = 1
    #: Dtypes in which products read the patches of a convolution where they are in its grid: nothing is laid out.
    patchless_dtypes: frozenset[str] = frozenset()
    #: Whether two rounds of a loop are lowered as one where a product's factor is overwritten by what follows it.
    doubles_rounds: bool = False
    #: Whether code runs without NumPy and its BLAS: all products are its own, and a routine that cannot finish says so
    #: in the status word.
    is_freestanding: bool = False
    #: Whether vectors are wider than those of the BLAS, so that more products are worth computing without it.
    is_wider_than_blas: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """A machine: what it computes natively, its costs and limits, and how steps become something that runs."""

    name: str
    #: Names of the dtypes it computes in, or of half dtypes that it loads and stores, and the words of the kernel
    #: vocabulary that it has; ops on others fall back to NumPy.
    dtypes: frozenset[str]
    words: frozenset[str]
    costs: Costs
    limits: Limits
    #: Scheduled steps as the target's text; with `fast`, arithmetic may be reassociated and contracted.
    render: Callable[[Steps, bool], Code]
    #: The runner of a compilation whose code is rendered.
    link: Callable[[Compilation], Runner]
    #: The text of the machine code, if the target can show it.
    disassemble: Callable[[str], str] | None = None
    #: Bytes of memory beside its buffers that each block of a kernel needs, or a routine.
    scratch_bytes: Callable[[Kernel | Host], int] = lambda step: 0
    #: Bytes that the code of scheduled steps works in besides what is planned.
    extra_bytes: Callable[[Steps], int] = lambda steps: 0
    #: Whether it has a routine for matrices of these specs, so that an op of NumPy runs without Python.
    has_routine: Callable[[Routine, Sequence[Spec]], bool] = lambda routine, specs: False
    #: Whether a product can be cut into parts without another order of summation, and whether those of a batch can run
    #: side by side.
    can_cut_product: Callable[[Product], bool] = lambda product: False
    can_divide_batches: Callable[[], bool] = lambda: False
    #: Steps with those that it can do at once in groups (`Blocks` that run once), before memory is planned.
    group: Callable[[Sequence[Step]], list[Step]] = list
    #: Whether its products take matrices of a half dtype, sum in float32 and round once, into that dtype or float32;
    #: otherwise such matrices are widened in memory.
    has_half_products: bool = False
    #: Whether a product of so many rows, columns and depth takes matrices of a half dtype into a float32 result, the
    #: left one with numbers along the depth side by side, the right one either way.
    takes_half_factors: Callable[[np.dtype[Any], int, int, int], bool] = lambda dtype, rows, columns, depth: False
    #: From how many multiplications on they take matrices of eight bits, each with its elements along K side by side;
    #: else those are widened to bfloat16, which has all their numbers.
    min_float8_product: float = math.inf
    #: Whether its text can read numbers that vary with the sizes when it runs.
    takes_varying_sizes: bool = False

    def computes_in(self, dtype: np.dtype[Any]) -> bool:
        return _name_of(dtype) in self.dtypes

    def supports(self, op: Op, args: tuple[Spec, ...], out: Spec) -> bool:
        """Whether an op's kernel uses only words that the target has for the dtype it computes in."""
        return _supports(self, op, args, out)


@functools.lru_cache(maxsize=256)
def _name_of(dtype: np.dtype[Any]) -> str:
    return dtype.name  # which NumPy puts together at each access


@functools.lru_cache(maxsize=4096)
def _supports(target: Target, op: Op, args: tuple[Spec, ...], out: Spec) -> bool:
    kind = computation_dtype(args, out).kind
    if kind == "f" and all(s.dtype.kind in "iu" for s in args) and out.dtype.kind == "b":
        return False  # signed and unsigned have no common dtype, yet NumPy compares them exactly
    words = words_of(op, len(args))
    if "nextafter" in words and is_half(operation_dtype(args, out)):
        return False  # the neighbor in float32 is another number
    return all(word in target.words and kind in VOCABULARY.get(word, "") for word in words)


#: The source of machine code that was not known before.
COMPILER = "the compiler"
#: That of code which serves several sizes.
ANOTHER_SIZE = "another size"


class UnlinkableCodeError(PullbackError, RuntimeError):
    """A target's compiler refused its code: ops then run one by one."""


class Code(Protocol):
    """What a target renders: text, and whatever else its `link` needs."""

    @property
    def text(self) -> str: ...


#: What an input of a direct call is found to be.
ARRAY, CONSTANT, TRACKED = range(3)
#: What a direct call takes: arrays; untracked tensors too; all tensors, and nothing is recorded; or exactly those that
#: are recorded. What a tape saved and delivers are arrays of the program's specs for certain.
ARRAYS, UNTRACKED, UNRECORDED, RECORDED, SAVED_ARRAYS = range(1, 6)


class DirectCalls(Protocol):
    """Makes functions that take arrays and tensors as they are."""

    def make_call(self, takes: int, results: int = 0, marks: bytes = b"") -> Callable[..., Any]:
        """A function of the inputs, which may be tensors.

        It returns the results as a list, the first `results` as tensors if an input was one. A call that records wants
        inputs as in `marks`, one byte each, and its list has their arrays between those `results` and the others. If
        other tensors are tracked, it returns their marks, and did nothing; None if it failed (`raise_failure`);
        anything else if `run` is to be called.
        """

    def raise_failure(self) -> None:
        """Raise the error of a direct call that failed."""


class Runner(Protocol):
    """Runs on contiguous arrays of the program's specs. Results in `options.donated` are the input's own array,
    overwritten; the others are new.
    """

    @property
    def compilation(self) -> Compilation | None:
        """How it was compiled: it then rejects arrays of other specs itself. None if ops run one by one."""

    @property
    def why_fallback(self) -> str:
        """Why ops run one by one, if they do."""

    @property
    def workspace(self) -> list[Any]:
        """The arrays it works in and keeps from call to call."""

    def run(self, arrays: Sequence[Any]) -> list[Any] | None:
        """The results; None if an array is not what the program was compiled for."""

    @property
    def direct(self) -> DirectCalls | None:
        """Calls without Python on the way, where the runner has them."""


@dataclass(frozen=True, slots=True)
class Options:
    """How a program is compiled: which results (by number) overwrite which inputs, whether arithmetic may be
    reassociated, the bytes that a call may take, and whether its bits are the same on every run.
    """

    donated: dict[int, int] = field(default_factory=dict)
    fast: bool = False
    limit: int | None = None
    deterministic: bool = True


@dataclass(slots=True, weakref_slot=True)
class Compilation:
    """A program on its way through the pipeline, with what each part of it made."""

    target: Target
    options: Options
    specs: list[Spec]
    out_specs: list[Spec]
    program: Program | None
    #: After lowering and fusion; within the memory budget; divided and placed in the arena.
    fused: Steps = field(init=False)
    steps: Steps = field(init=False)
    planned: Steps = field(init=False)
    #: The compilation for another size of the program that this one was compared with: sizes then vary in `planned`.
    sibling: Compilation | None = field(init=False, default=None)
    #: For which sizes there is code, and why; and where its machine code came from.
    scope: str = field(init=False, default="these sizes")
    source: str = field(init=False, default="")
    #: Bytes that its code works in besides what was planned.
    scratch: int = field(init=False, default=0)
    #: How its code is launched, if there is something to say about it.
    launch: str = field(init=False, default="")
    code: Any = field(init=False)
    runner: Any = field(init=False)
