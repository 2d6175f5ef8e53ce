"""Mutants that no judge can see, and why: they change how fast code is, how it is shown, or nothing at all."""

from explained_calls import EXPLAINED_CALLS
from explained_lowering import LOWERING
from explained_native import EXPLAINED_NATIVE

__all__ = ["EXPLAINED", "OPEN"]

#: The beginning of a mutant's description (module function: kind: text), and the reason.
EXPLAINED: dict[str, str] = {
    "graph.passes optimised: left out: seen.append(graph)": (
        "keeps objects alive so that no id is given twice; whether one is, the allocator decides"
    ),
    "graph.passes numbers_first": "the order of equations that do not depend on each other",
    "compile.fuse Fuser.load: operand dropped: n != 1": "along an axis of one element no step is ever taken",
    "compile.fuse Fuser.new": "in which order later kernels walk over their axes",
    "compile.split split: operand dropped: sum(": "with fewer than two costly functions nothing is cut anyway",
    "compile.split _cuts: ": "where a chain of functions is cut: each cut computes the same",
    "compile.split _crossing": "which cut costs least",
    "compile.split _is_plain: operand dropped: near": "whether a cut pays",
    "compile.convolve _patches: comparison": "patches lie patch by patch or place by place",
    "compile.convolve _Geometry.images: operand dropped: i <= most": "how many images a block has",
    "compile.window windows_of: comparison: math.prod": "from how many places on windows are left to NumPy",
    "compile.window windows_of: operand dropped: isinstance(e.op.form, Window)": (
        "said for the type checker: only such forms are asked"
    ),
    "compile.window _own_maximum: operand dropped: maker is not None": "said for the type checker: `same` says so",
    "compile.residuals _is_cheap": "what is kept for the backward pass, and what is computed again",
    "compile.residuals _computed_again: operand dropped: not _is_cheap(e)": (
        "what is kept, and what is computed again"
    ),
    "compile.ranges _of_input: operand dropped: buffer is None": "said for the type checker: a load has a buffer",
    "compile.legality _line_problems: operand dropped: line.": "how a line is called in the message",
    'compile.legality _overlap: operand dropped: b.kind != "arena"': (
        "other memory has no place in the arena, which the next condition asks"
    ),
    "compile.cpu.domain Domain._lanes: operand dropped: lanes > 1": "a row has no less than one element",
    "compile.cpu.domain Domain._weights": "how many lanes a vector has",
    "compile.cpu.rows Row._side_by_side": "how many vectors go side by side",
    "compile.cpu.rows Row._vectors: comparison: sum(line.weight for line in self.needed) > 40": (
        "whether LLVM may unroll a loop"
    ),
    "compile.cpu.division divided: operand dropped: t >= SHORT": "from which length on a program is divided",
    "compile.cpu.division _is_shared": "from which length on a program is divided",
    "compile.cpu.division _batch: comparison: step.out.buffer is not": (
        "a product never writes what it reads, so that it is not divided"
    ),
    "compile.cpu.link _optimised: left out: passes.run": "how fast the code is",
    "compile.cache _of_user": "other systems than the one at hand",
    "compile.jit warn_without_llvm": "only said where llvmlite is not installed",
    "compile.jit Jitted._entry: comparison: len(self.entries) > _KINDS": (
        "one kind of arguments more or less is remembered"
    ),
    "compile.cpu.kept targets": "what is kept of a row, and what is computed again",
    "compile.cpu.kept Kept._plan": "what is kept of a row, and what is computed again",
    "compile.split split: negated: cuts": "whether a chain of functions is cut: each piece computes the same",
    **EXPLAINED_CALLS,
    **EXPLAINED_NATIVE,
    **LOWERING,
}
#: Survivors of the sample that are neither caught nor explained yet, by their keys.
OPEN: tuple[str, ...] = ()
