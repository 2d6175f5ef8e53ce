"""Mutants of native code and its memory that no judge can see, and why."""

__all__ = ["EXPLAINED_NATIVE"]

#: As in `explained.py`: the beginning of a mutant's description, and the reason.
EXPLAINED_NATIVE: dict[str, str] = {
    "compile.recipes Program.__init__: left out: self.takers": "which memory goes first where there is too little",
    "compile.recipes Program._recipe: comparison: readers[0] > writers[-1]": (
        "a step that reads and writes is not among the readers, so the two are never one step"
    ),
    "compile.recipes Program._is_their_own: comparison: i < writers[-1]": "the last writer is one of the writers",
    "compile.memory _in_place: operand dropped: source is not None": "said for the type checker: a load has a buffer",
    "compile.ranges _of_input: operand dropped: not index.offset": "as many elements as there are, are all there are",
    "compile.cpu.division _can_be_in_pieces: operand dropped: bool(store.word)": (
        "blocks that write the same number to the same place"
    ),
    "compile.cpu.rows Row._vectors: operand dropped: left or rest": "a branch around nothing",
    "compile.recipes _time": "which memory goes first where there is too little",
    "compile.cpu.division _side_by_side: entry forgotten: wide": "a product has the columns of its result",
    "compile.cpu.domain Domain._lanes: comparison": "how many lanes a vector has",
    "compile.cpu.domain Domain._lanes: number shifted": "how many lanes a vector has",
    "compile.cpu.domain Domain._lanes: operand dropped: lanes // 2": "how many lanes a vector has",
    "compile.cpu.domain _collapsed: comparison: previous >= rank - inner": "how many axes one counter walks over",
    "compile.cpu.kernels form: entry forgotten: line.kind": "what a line has besides tells the kinds apart",
    "compile.cpu.kernels form: entry forgotten: line.phase": "it follows from the lines that a line is made of",
    "compile.cpu.kernels form: entry forgotten: kernel.inner": (
        "the axes of folds say which axes are the row; without folds each walk computes the same"
    ),
    "compile.cpu.access Access.load: operand dropped: place.last != 1": "how fast elements side by side are loaded",
    "compile.cpu.access store_at: left out: words.declared.add(": "LLVM declares intrinsics that it knows by itself",
    "compile.cpu.access _scatter: left out: words.declared.add(": "LLVM declares intrinsics that it knows by itself",
    "compile.cpu.access load_at: left out: words.declared.add(": "LLVM declares intrinsics that it knows by itself",
    "compile.cpu.access gathered: left out: words.declared.add(": "LLVM declares intrinsics that it knows by itself",
    "compile.cpu.values Values._looked_up: operand dropped: not same": "how fast lanes load from one place",
    "compile.cpu.within within: comparison: least.peak <= limit": "what fits is planned and rendered once more",
}
