"""Mutants that no judge can see, and why: they change how fast code is, how it is shown, or nothing at all."""

from explained_calls import EXPLAINED_CALLS
from explained_lowering import LOWERING
from explained_native import EXPLAINED_NATIVE

__all__ = ["EXPLAINED", "OPEN"]

#: The beginning of a mutant's description (module function: kind: text), and the reason.
EXPLAINED: dict[str, str] = {
    "program.passes optimize: left out: seen.append(program)": (
        "keeps objects alive so that no id is given twice; whether one is, the allocator decides"
    ),
    "program.passes hoist_small": "the order of equations that do not depend on each other",
    "compile.lower.fuse Fuser.new_layout": "in which order later kernels walk over their axes",
    "compile.schedule.split split_kernel: operand dropped: not several": (
        "with fewer than two costly functions nothing is cut anyway"
    ),
    "compile.schedule.split _find_cuts: ": "where a chain of functions is cut: each cut computes the same",
    "compile.schedule.split _count_crossing": "which cut costs least",
    "compile.schedule.split _is_plain: operand dropped: near": "whether a cut pays",
    "compile.lower.convolution _lay_out_patches: comparison": "patches lie patch by patch or place by place",
    "compile.lower.convolution _Geometry.images: operand dropped: i <= most": "how many images a block has",
    "compile.lower.pooling can_lower_pooling: comparison: math.prod": (
        "from how many places on windows are left to NumPy"
    ),
    "compile.lower.pooling can_lower_pooling: operand dropped: isinstance(e.op.form, Window)": (
        "said for the type checker: only such forms are asked"
    ),
    "compile.lower.pooling _find_own_argmax: operand dropped: maker is not None": (
        "said for the type checker: `same` says so"
    ),
    "compile.stage.residuals is_cheap": "what is kept for the backward pass, and what is computed again",
    "compile.schedule.index_checks _check_on_input: operand dropped: buffer is None": (
        "said for the type checker: a load has a buffer"
    ),
    'compile.legality _buffers_overlap: operand dropped: b.kind != "arena"': (
        "other memory has no place in the arena, which the next condition asks"
    ),
    "compile.schedule.domain Domain._choose_lanes: operand dropped: lanes > 1": "a row has no less than one element",
    "compile.schedule.domain Domain._weights_by_itemsize": "how many lanes a vector has",
    "compile.cpu.kernel.row_loop RowWriter._choose_unroll": "how many vectors go side by side",
    "compile.cpu.kernel.row_loop RowWriter._write_vectors: comparison: sum(line.weight for line in self.needed) > 40": (
        "whether LLVM may unroll a loop"
    ),
    "compile.schedule.division divide_steps: negated: t >= target.limits.min_step_ns": (
        "from which length on a program is divided"
    ),
    "compile.schedule.division _is_divisible": "from which length on a program is divided",
    "compile.schedule.division divide_steps: comparison: sum(": "from which length on a program is divided",
    "compile.schedule.division _split_product: negated: isinstance(": "which form of code, each right for its size",
    "compile.schedule.division _leave_blocks_open": "for which sizes code is shared: one block is as right as none",
    "compile.schedule.division _divide_batch: comparison: step.out.buffer is not": (
        "a product never writes what it reads, so that it is not divided"
    ),
    "compile.cpu.runtime.link _optimize: left out: passes.run": "how fast the code is",
    "compile.cache _user_cache_directory": "other systems than the one at hand",
    "compile.jit Jitted._find_specialization: comparison: len(self.entries) > _KINDS": (
        "one kind of arguments more or less is remembered"
    ),
    "compile.schedule.row_plan phase_targets": "what is kept of a row, and what is computed again",
    "compile.schedule.row_plan _first_uses": "what is kept of a row, and what is computed again",
    "compile.schedule.row_plan plan_rows": "what is kept of a row, and what is computed again",
    "compile.schedule.split split_kernel: negated: cuts": (
        "whether a chain of functions is cut: each piece computes the same"
    ),
    **EXPLAINED_CALLS,
    **EXPLAINED_NATIVE,
    **LOWERING,
}
#: Survivors of the sample that are neither caught nor explained yet, by their keys.
OPEN: tuple[str, ...] = ()
