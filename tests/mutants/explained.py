"""Mutants that no judge can see, and why: they change how fast code is, how it is shown, or nothing at all."""

from explained_lowering import LOWERING

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
    **LOWERING,
}
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
    "compile.cpu.executable NativeExecutable._verify: left out: verify_arena(_Arena()(self.steps)[0])",
    "compile.cpu.kernels _Renderer._is_along: operand dropped: bool(store.word)",
    "compile.cpu.kernels form: entry forgotten: kernel.inner",
    "compile.cpu.kernels form: entry forgotten: tuple((buffers[b], n) for b, n in cut.apart.items())",
    "compile.cpu.kernels lying_together: operand dropped: buffer.offset + buffer.nbytes > highest.offset + highest.nbytes",  # noqa: E501
    'compile.cpu.link _hold_at_fork: negated: hasattr(os, "register_at_fork")',
    "compile.cpu.link circumstances: entry forgotten: machine.triple",
    "compile.cpu.link link: negated: code is None",
    "compile.cpu.link loaded: left out: engine.finalize_object()",
    "compile.cpu.link loaded: operand dropped: PARALLEL.encode() in code",
    "compile.cpu.lookup looked_up: negated: place.last",
    'compile.cpu.nested _branch: left out: words.say(f"store i32 1, ptr {status}")',
    "compile.cpu.program Writer.called_back: negated: isinstance(layout, Layout)",
    "compile.cpu.rows Row._vectors: operand dropped: self.domain.in_row > 0",
    'compile.cpu.values Values._compute: comparison: top.kind != "fold"',
    "compile.cpu.within _cannot: comparison: rest >= limit",
    "compile.cpu.within within: comparison: fit.arena > room - beside",
    "compile.cpu.within within: comparison: memory.peak <= limit",
    "compile.cpu.within within: comparison: reached.peak <= limit",
    "compile.cpu.within within: negated: fit.arena > room - beside",
    "compile.fingerprint _program: comparison: id(x) not in numbers",
    "compile.fingerprint _value: entry forgotten: x.dtype.str",
    "compile.fingerprint _value: operand dropped: not x.dtype.hasobject",
    "compile.jit Jitted._sorted: left out: hash(static)",
    "compile.jit _as_argument: negated: x.dtype.isnative",
    "compile.jit _unrepeated: operand dropped: x.size < 2",
    "compile.memory _in_place: comparison: store.buffer in shares",
    "compile.order _first_uses: left out: found.setdefault(buffer, i)",
    "compile.order in_order: comparison: i >= len(steps)",
    "compile.order in_order: negated: i >= len(steps)",
    "compile.places CellPlace.put: comparison: value is MISSING",
    "compile.places ItemPlace.get: comparison: self.name < len(self.holder)",
    "compile.places ItemPlace.put: left out: self.holder.pop(self.name, None)",
    "compile.places SlotPlace.put: left out: self.slot.__delete__(self.thing)",
    "compile.places TensorPlace.put: negated: is_parameter",
    "compile.places TensorPlace.put: operand dropped: self.tensor.is_leaf",
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
    "compile.residuals parted: negated: isinstance(s, Symbol)",
    "compile.trace State.read: operand dropped: structure == self.given",
    "compile.trace _pointed_back: operand dropped: []",
    "compile.trace _put_symbols: left out: place.put(value)",
    "compile.trace _settled_state: comparison: type(x) is Batched",
    "compile.trace _settled_state: operand dropped: x.node is None",
    "graph.passes plain_places: comparison: len(e.args) > 1",
    "graph.passes plain_places: operand dropped: e.results[0].spec.size != spec_of(e.args[0]).size",
)
