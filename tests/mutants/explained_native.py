"""Mutants of native code and its memory that no judge can see, and why."""

__all__ = ["EXPLAINED_NATIVE"]

#: As in `explained.py`: the beginning of a mutant's description, and the reason.
EXPLAINED_NATIVE: dict[str, str] = {
    "compile.recipes Program.__init__: left out: self.takers": "which memory goes first where there is too little",
    "compile.recipes Program._recipe: comparison: readers[0] > writers[-1]": (
        "a step that reads and writes is not among the readers, so the two are never one step"
    ),
    "compile.recipes Program._is_their_own: comparison: i < writers[-1]": "the last writer is one of the writers",
    "compile.recipes _time": "which memory goes first where there is too little",
    "compile.cpu.domain _collapsed: comparison: previous >= rank - inner": "how many axes one counter walks over",
    "compile.cpu.kernels form: entry forgotten: line.phase": "it follows from the lines that a line is made of",
    "compile.cpu.kernels form: entry forgotten: kernel.inner": (
        "the axes of folds say which axes are the row; without folds each walk computes the same"
    ),
    "compile.cpu.access Access.load: operand dropped: place.last != 1": "how fast elements side by side are loaded",
    "compile.cpu.access store_at: left out: words.declared.add(": "LLVM declares intrinsics that it knows by itself",
    "compile.cpu.within within: comparison: least.peak <= limit": "what fits is planned and rendered once more",
}
