"""Mutants that no judge can see, and why: they change how fast code is, how it is shown, or nothing at all."""

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
    "compile.arguments Plan.__init__: entry forgotten": (
        "a container that does not fit its plan is taken apart by the tree package, which is slower"
    ),
    "compile.arguments _plan: comparison: x is None": (
        "a container that does not fit its plan is taken apart by the tree package, which is slower"
    ),
    "compile.jit warn_without_llvm": "only said where llvmlite is not installed",
    "compile.jit Jitted._entry: comparison: len(self.entries) > _KINDS": (
        "one kind of arguments more or less is remembered"
    ),
    "compile.cpu.kept targets": "what is kept of a row, and what is computed again",
    "compile.cpu.kept Kept._plan": "what is kept of a row, and what is computed again",
    "compile.split split: negated: cuts": "whether a chain of functions is cut: each piece computes the same",
    "compile.cpu.link circumstances: entry forgotten: package": (
        "the same in one installation; test_code_cache.py asks for it"
    ),
    "compile.cpu.link circumstances: entry forgotten: sys.modules": (
        "the same in one installation; test_code_cache.py asks for it"
    ),
} | EXPLAINED_NATIVE
#: Survivors of the sample that are neither caught nor explained yet, by their keys.
OPEN: tuple[str, ...] = (
    "compile.arguments taken_apart: comparison: plan.count == 0",
    "compile.arguments taken_apart: comparison: type(x) is not plan.kind",
    "compile.arguments taken_apart: negated: plan.count == 0",
    "compile.cache _not_private: number shifted: 0o022",
    "compile.cache _shrink: negated: total <= LARGEST * 3 // 4",
    "compile.cache directory: negated: asked is not None",
    "compile.cache directory: negated: asked.strip().lower() in _OFF",
    "compile.closures Watched.forget: entry forgotten: item",
    "compile.closures Watched.guard_large: operand dropped: id(owner_of(array)) not in inputs",
    "compile.closures Watched.is_same: comparison: content_of(cell) is not value",
    "compile.closures _Walk._function: left out: self._name(function.__globals__, name, visit=False)",
    'compile.closures _is_library: operand dropped: "dist-packages" in file',
    "compile.contract _comes_out_in_order: comparison: c in right",
    "compile.contract _comes_out_in_order: operand dropped: c in left",
    "compile.contract _update_of: comparison: e.op.kernel is None",
    "compile.contract _update_of: operand dropped: not a.ndim",
    "compile.contract _update_of: operand dropped: sign is None",
    "compile.contract contracts: comparison: len(e.args) == 2",
    "compile.contract matrix: operand dropped: rows == 1",
    'compile.convolve convolves: comparison: dtype.name in ("float32", "float64")',
    "compile.convolve convolves: comparison: s.dtype == dtype",
    "compile.cpu.executable NativeExecutable._verify: left out: verify_arena(_Arena()(self.steps)[0])",
    'compile.cpu.link _hold_at_fork: negated: hasattr(os, "register_at_fork")',
    "compile.cpu.link circumstances: entry forgotten: machine.triple",
    "compile.cpu.link link: negated: code is None",
    "compile.cpu.link loaded: left out: engine.finalize_object()",
    "compile.cpu.link loaded: operand dropped: PARALLEL.encode() in code",
    'compile.cpu.nested _branch: left out: words.say(f"store i32 1, ptr {status}")',
    "compile.cpu.program Writer.called_back: negated: isinstance(layout, Layout)",
    "compile.fingerprint _program: comparison: id(x) not in numbers",
    "compile.fingerprint _value: entry forgotten: x.dtype.str",
    "compile.fingerprint _value: operand dropped: not x.dtype.hasobject",
    "compile.flow _whole: operand dropped: s == t",
    "compile.fuse Fuser.fit: operand dropped: found.setdefault(own[axis], to) != to",
    "compile.fuse Fuser.put: operand dropped: self.made[id(x)].line.dtype == target.buffer.dtype",
    "compile.fuse cast: comparison: line.dtype == dtype",
    "compile.grids written: comparison: made.line.dtype == target.buffer.dtype",
    "compile.grids written: operand dropped: made.line.dtype == target.buffer.dtype",
    "compile.indices indexed: negated: is_apart(index)",
    "compile.indices scatter: left out: f.stored(x)",
    "compile.indices scatter: negated: isinstance(x, Symbol)",
    "compile.jit Jitted._sorted: left out: hash(static)",
    "compile.jit _as_argument: negated: x.dtype.isnative",
    "compile.jit _unrepeated: operand dropped: x.size < 2",
    'compile.lower lower: operand dropped: e.op.family == "elementwise" and speaks(e.op, given, made[0])',
    "compile.places CellPlace.put: comparison: value is MISSING",
    "compile.places ItemPlace.get: comparison: self.name < len(self.holder)",
    "compile.places ItemPlace.put: left out: self.holder.pop(self.name, None)",
    "compile.places SlotPlace.put: left out: self.slot.__delete__(self.thing)",
    "compile.places TensorPlace.put: negated: is_parameter",
    "compile.places TensorPlace.put: operand dropped: self.tensor.is_leaf",
    "compile.residuals parted: negated: isinstance(s, Symbol)",
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
    "compile.trace State.read: operand dropped: structure == self.given",
    "compile.trace _pointed_back: operand dropped: []",
    "compile.trace _put_symbols: left out: place.put(value)",
    "compile.trace _settled_state: comparison: type(x) is Batched",
    "compile.trace _settled_state: operand dropped: x.node is None",
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
    "graph.passes plain_places: comparison: len(e.args) > 1",
    "graph.passes plain_places: operand dropped: e.results[0].spec.size != spec_of(e.args[0]).size",
)
