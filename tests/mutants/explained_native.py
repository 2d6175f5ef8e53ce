"""Mutants of native code and its memory that no judge can see, and why."""

__all__ = ["EXPLAINED_NATIVE"]

#: As in `explained.py`: the beginning of a mutant's description, and the reason.
EXPLAINED_NATIVE: dict[str, str] = {
    "compile.schedule.recompute_recipes StepUsage.__init__: left out: self.dependents": (
        "which memory goes first where there is too little"
    ),
    "compile.schedule.recompute_recipes StepUsage._find_recipe: comparison: readers[0] > writers[-1]": (
        "a step that reads and writes is not among the readers, so the two are never one step"
    ),
    "compile.schedule.recompute_recipes StepUsage._is_private_to: comparison: i < writers[-1]": (
        "the last writer is one of the writers"
    ),
    "compile.schedule.arena _find_in_place: operand dropped: source is not None": (
        "said for the type checker: a load has a buffer"
    ),
    "compile.schedule.index_checks _check_on_input: operand dropped: not index.offset": (
        "as many elements as there are, are all there are"
    ),
    "compile.schedule.division _has_partial_results: operand dropped: bool(store.word)": (
        "blocks that write the same number to the same place"
    ),
    "compile.cpu.kernel.row_loop RowWriter._write_vectors: operand dropped: left or rest": "a branch around nothing",
    "compile.schedule.recompute_recipes _step_time": "which memory goes first where there is too little",
    "compile.schedule.division _split_product: entry forgotten: wide": "a product has the columns of its result",
    "compile.schedule.domain Domain._choose_lanes: comparison": "how many lanes a vector has",
    "compile.schedule.domain Domain._choose_lanes: number shifted": "how many lanes a vector has",
    "compile.schedule.domain Domain._choose_lanes: operand dropped: lanes // 2": "how many lanes a vector has",
    "compile.schedule.domain _collapse_axes: comparison: previous >= rank - inner": (
        "how many axes one counter walks over"
    ),
    "compile.cpu.kernel.render kernel_key: entry forgotten: line.kind": (
        "what a line has besides tells the kinds apart"
    ),
    "compile.cpu.kernel.render kernel_key: entry forgotten: line.phase": (
        "it follows from the lines that a line is made of"
    ),
    "compile.cpu.kernel.render kernel_key: entry forgotten: kernel.inner": (
        "the axes of folds say which axes are the row; without folds each walk computes the same"
    ),
    "compile.cpu.kernel.access BufferAccess.load: operand dropped: place.lane_stride != 1": (
        "how fast elements side by side are loaded"
    ),
    "compile.cpu.builder.memory _emit_masked_load: left out: builder.declared.add(": (
        "LLVM declares intrinsics that it knows by itself"
    ),
    "compile.cpu.builder.memory _emit_masked_store: left out: builder.declared.add(": (
        "LLVM declares intrinsics that it knows by itself"
    ),
    "compile.cpu.kernel.line_values LineValues._emit_gather: operand dropped: not same": (
        "how fast lanes load from one place"
    ),
    "compile.schedule.memory_budget fit_memory_budget: comparison: least.peak <= limit": (
        "what fits is planned once more"
    ),
}
