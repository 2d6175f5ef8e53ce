"""Mutants that no judge can see, and why: they change how fast code is, how it is shown, or nothing at all."""

from explained_calls import EXPLAINED_CALLS

__all__ = ["EXPLAINED", "OPEN"]

#: The beginning of a mutant's description (module function: kind: text), and the reason.
EXPLAINED: dict[str, str] = {
    **EXPLAINED_CALLS,
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
    "compile.residuals _computed_again: operand dropped: not _is_cheap(e)": "what is kept, and what is computed again",
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
}
#: Survivors of the sample that are neither caught nor explained yet, by their keys.
OPEN: tuple[str, ...] = (
    "compile.contract _comes_out_in_order: comparison: c in right",
    "compile.contract _comes_out_in_order: operand dropped: c in left",
    "compile.contract _update_of: comparison: e.op.kernel is None",
    "compile.contract _update_of: operand dropped: not a.ndim",
    "compile.contract _update_of: operand dropped: sign is None",
    "compile.contract contracts: comparison: len(e.args) == 2",
    "compile.contract matrix: operand dropped: rows == 1",
    'compile.convolve convolves: comparison: dtype.name in ("float32", "float64")',
    "compile.convolve convolves: comparison: s.dtype == dtype",
    "compile.cpu.access Access.load: operand dropped: place.last != 1",
    "compile.cpu.access load_at: comparison: lanes == 1",
    'compile.cpu.access store_at: left out: words.declared.add(f"declare void @{function}({kind}, ptr, i32 immarg, <{lanes} x i1>)")',  # noqa: E501
    "compile.cpu.division _can_be_in_pieces: comparison: size == store.buffer.size",
    'compile.cpu.division _cut: comparison: line.kind == "fold"',
    "compile.cpu.division _in_blocks: negated: time < SHORT or any(s.args or s.onto for s in kernel.stores)",
    "compile.cpu.division _is_free: operand dropped: reads",
    "compile.cpu.division _later: operand dropped: domain.differs(line)",
    "compile.cpu.division _later: operand dropped: not s.word",
    "compile.cpu.domain Domain._lanes: negated: any(self.differs(a) for s in self.kernel.stores for a in s.args)",
    "compile.cpu.kernels _Renderer._is_along: operand dropped: bool(store.word)",
    "compile.cpu.kernels form: entry forgotten: kernel.inner",
    "compile.cpu.kernels form: entry forgotten: tuple((buffers[b], n) for b, n in cut.apart.items())",
    "compile.cpu.kernels lying_together: operand dropped: buffer.offset + buffer.nbytes > highest.offset + highest.nbytes",  # noqa: E501
    "compile.cpu.lookup looked_up: negated: place.last",
    "compile.cpu.rows Row._vectors: operand dropped: self.domain.in_row > 0",
    'compile.cpu.values Values._compute: comparison: top.kind != "fold"',
    "compile.cpu.within _cannot: comparison: rest >= limit",
    "compile.cpu.within within: comparison: fit.arena > room - beside",
    "compile.cpu.within within: comparison: memory.peak <= limit",
    "compile.cpu.within within: comparison: reached.peak <= limit",
    "compile.cpu.within within: negated: fit.arena > room - beside",
    "compile.flow _whole: operand dropped: s == t",
    "compile.fuse Fuser.fit: operand dropped: found.setdefault(own[axis], to) != to",
    "compile.fuse Fuser.put: operand dropped: self.made[id(x)].line.dtype == target.buffer.dtype",
    "compile.fuse cast: comparison: line.dtype == dtype",
    "compile.grids written: comparison: made.line.dtype == target.buffer.dtype",
    "compile.grids written: operand dropped: made.line.dtype == target.buffer.dtype",
    "compile.indices indexed: negated: is_apart(index)",
    "compile.indices scatter: left out: f.stored(x)",
    "compile.indices scatter: negated: isinstance(x, Symbol)",
    'compile.lower lower: operand dropped: e.op.family == "elementwise" and speaks(e.op, given, made[0])',
    "compile.memory _in_place: comparison: store.buffer in shares",
    "compile.order _first_uses: left out: found.setdefault(buffer, i)",
    "compile.order in_order: comparison: i >= len(steps)",
    "compile.order in_order: negated: i >= len(steps)",
    "compile.ranges _points: operand dropped: any(line.args and line.places for line in step.used()) or any(s.args for s in step.stores)",  # noqa: E501
    "compile.ranges _points: operand dropped: line.places",
    "compile.ranges ranged: operand dropped: check is not None",
    "compile.ranges ranged: operand dropped: not any(_points(step) for program in kernel.programs for step in program.steps)",  # noqa: E501
    "compile.ranges ranged: operand dropped: whole",
    "compile.recipes Program.__init__: left out: self.takers.setdefault(source, []).append(buffer)",
    "compile.recipes Program._is_their_own: negated: i <= writers[-1]",
    "compile.recipes Program._recipe: comparison: readers[0] > writers[-1]",
    "compile.recipes Program._recipe: negated: source is buffer or source in beside",
    "compile.recipes Program._recipe: operand dropped: b is not buffer",
    "compile.recipes _only: comparison: len(stores) == len(step.stores)",
    "compile.results _mentions: operand dropped: any(line.buffer is buffer for line in lines)",
    "compile.results nobody_reads: number shifted: 1",
    "compile.results output: comparison: spec.dtype.name not in NATIVE",
    "compile.results output: negated: spec.dtype.name not in NATIVE",
    "compile.results output: operand dropped: layout is not None",
    "compile.results output: operand dropped: spec.shape",
    "compile.results write_donated: comparison: id(x) not in f.places",
    'compile.split _is_plain: comparison: line.kind in ("load", "number", "apply", "cast")',
    'compile.split _is_plain: operand dropped: all(line.kind in ("load", "number", "apply", "cast") for line in lines)',
    "compile.split _is_plain: operand dropped: not any(s.args or id(s.buffer) in read for s in kernel.stores)",
    "compile.views axes_of_view: comparison: n != 1",
    "compile.views axes_of_view: entry forgotten: s",
    "compile.views axes_of_view: operand dropped: len(layouts) > 1",
    'compile.views is_view: negated: op.family not in ("linear", "general") or op.kernel is not None or not isinstance(op.form,',  # noqa: E501
    "compile.views is_view: operand dropped: not isinstance(op.form, Gather | None)",
    "compile.views viewed: operand dropped: result.dtype != memory.dtype",
    'compile.window _index: negated: any(map(any, how["padding"]))',
    'compile.window _index: negated: index.kind == "number"',
    "compile.window _own_maximum: comparison: maker.static == e.static",
    "compile.window _put: comparison: m * s != n",
)
