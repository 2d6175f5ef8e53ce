"""The reference of compiled programs: it computes what NumPy does, and sees what a wrong compiler would do."""

import numpy as np
import pytest
from random_programs import program, scalar_of

import pullback as pb
from pullback.arrays.spec import spec_of
from pullback.compile import pipeline
from pullback.compile.cpu.builder import ir_builder
from pullback.compile.cpu.builder.function_text import FunctionText
from pullback.compile.cpu.runner import CpuRunner
from pullback.compile.cpu.target import cpu_target
from pullback.compile.loop_ir import (
    Buffer,
    Division,
    Kernel,
    KernelLine,
    Layout,
    Loop,
    Product,
    Steps,
    Store,
    contiguous_layout,
)
from pullback.compile.reference import verify
from pullback.compile.reference.check import Judge
from pullback.compile.reference.checked_runner import CheckedRunner
from pullback.compile.reference.interpreter import Interpreter
from pullback.compile.reference.kernels import run_kernel
from pullback.compile.reference.numpy_scalars import NumpyScalars
from pullback.compile.reference.poisoned_memory import PoisonedMemory, region_of
from pullback.compile.reference.verify import verify_arena, verify_steps
from pullback.compile.schedule import arena
from pullback.compile.target import Compilation, Options
from pullback.compile.vocabulary import VOCABULARY

pytest.importorskip("llvmlite")

FLOAT, INT = np.dtype("float64"), np.dtype("int64")
MiscompiledError = pb.errors.MiscompiledError


def given(shape, dtype=FLOAT, number=0):
    return contiguous_layout(Buffer("input", int(np.prod(shape)), dtype, number), shape)


def made(shape, dtype=FLOAT, kind="output"):
    return contiguous_layout(Buffer(kind, int(np.prod(shape)), dtype, 0), shape)


def load(layout, strides=None):
    strides = layout.strides if strides is None else strides
    axes = frozenset(i for i, s in enumerate(strides) if s)
    return KernelLine("load", layout.buffer.dtype, axes, buffer=layout.buffer, strides=strides, offset=layout.offset)


def apply(word, *args, phase=0):
    axes = frozenset().union(*(a.axes for a in args))
    dtype = args[0].dtype
    return KernelLine("apply", dtype, axes, phase, args, lambda k, *xs: getattr(k, word)(*xs), dtype, label=word)


def fold(word, x, axes, phase=0):
    return KernelLine("fold", x.dtype, frozenset(axes), phase, (x,), word=word)


def ran(steps, *arrays):
    """The first result of steps on arrays, each buffer in memory of its own."""
    memory = PoisonedMemory(None)
    for buffer, array in zip(steps.inputs, arrays, strict=True):
        memory.bind(buffer, region_of(array, "an argument"))
    Interpreter().run(steps, memory)
    return memory[steps.outputs[0]].read(np.arange(steps.outputs[0].size))[0]


def of(kernel, *inputs, out):
    return Steps([kernel], [x.buffer for x in inputs], [out.buffer])


def test_a_kernel_with_a_fold_and_a_second_phase_normalises_rows():
    x, out = given((3, 4)), made((3, 4))
    line = load(x)
    total = fold("add", line, {0})
    kernel = Kernel((3, 4), 1, [], [Store(apply("divide", line, total, phase=1), out.buffer, out.strides)])
    a = np.arange(1.0, 13.0).reshape(3, 4)
    verify_steps(of(kernel, x, out=out))
    np.testing.assert_allclose(ran(of(kernel, x, out=out), a), (a / a.sum(1, keepdims=True)).ravel(), rtol=1e-15)


@pytest.mark.parametrize(
    ("word", "wanted"), [("add", np.sum), ("multiply", np.prod), ("maximum", np.max), ("minimum", np.min)]
)
def test_a_store_with_a_word_folds_every_point_once(word, wanted):
    x, out = given((3, 4)), made((4,))
    kernel = Kernel((3, 4), 0, [], [Store(load(x), out.buffer, (0, 1), 0, word, points=12)])
    a = np.linspace(-1, 2, 12).reshape(3, 4)
    np.testing.assert_allclose(ran(of(kernel, x, out=out), a), wanted(a, axis=0), rtol=1e-14)


def test_gather_and_scatter_count_from_the_end_and_take_the_last_of_several():
    x, index, out = given((4, 2)), given((3,), INT, 1), made((3, 2))
    at = load(index, (1, 0))
    line = KernelLine("gather", FLOAT, frozenset({0, 1}), 0, (at,), buffer=x.buffer, strides=(0, 1), places=((2, 4),))
    picked = Kernel((3, 2), 0, [], [Store(line, out.buffer, out.strides)])
    a, i = np.arange(8.0).reshape(4, 2), np.array([3, -4, 1])
    assert np.array_equal(ran(of(picked, x, index, out=out), a, i), a[i].ravel())
    values = given((3, 2))
    target = made((4, 2))
    fill = Kernel((4, 2), 0, [], [Store(KernelLine("number", FLOAT, frozenset(), number=0), target.buffer, (2, 1))])
    put = Kernel((3, 2), 0, [], [Store(load(values), target.buffer, (0, 1), 0, "", (at,), ((2, 4),))])
    steps = Steps([fill, put], [values.buffer, index.buffer], [target.buffer])
    wanted = np.zeros((4, 2))
    wanted[[1, 1, -1]] = a[:3]
    assert np.array_equal(ran(steps, a[:3], np.array([1, 1, -1])), wanted.ravel())
    with pytest.raises(pb.errors.IndexingError):
        ran(steps, a[:3], np.array([1, 4, 0]))


def test_products_and_loops_run_where_their_layouts_say():
    w, x, out = given((2, 2)), given((1, 2), number=1), made((1, 2))
    inner_w, inner_x, new = given((2, 2)), given((1, 2), number=1), made((1, 2), kind="arena")
    product = Product(*(Layout(y.buffer, (1, *y.shape), (0, *y.strides)) for y in (new, inner_x, inner_w)))
    copy = Kernel((1, 2), 0, [], [Store(load(new), inner_x.buffer, inner_x.strides)])
    body = Steps([product, copy], [inner_x.buffer, inner_w.buffer], [inner_x.buffer])
    start = Kernel((1, 2), 0, [], [Store(load(x), out.buffer, out.strides)])
    loop = Loop("iterate", (body,), (out, w), (0, 0), (), (), 1, rounds=3)
    steps = Steps([start, loop], [w.buffer, x.buffer], [out.buffer])
    verify_steps(steps)
    a, b = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[1.0, -1.0]])
    assert np.array_equal(ran(steps, a, b), (b @ a @ a @ a).ravel())


def test_every_word_of_the_vocabulary_has_a_meaning():
    builder = FunctionText(32).builder(4)
    for word in VOCABULARY:
        assert callable(getattr(NumpyScalars(FLOAT), word))
        assert callable(getattr(builder, word))


# Wrong kernels, planted by hand


def fold_spread_fold():
    """sum(broadcast(sum(x, axis=1)), axis=0) in one kernel: the row's sum is stored along the row, once a row."""
    x, out = given((8, 3)), made((3,))
    kernel = Kernel((8, 3), 1, [], [Store(fold("add", load(x), {0}), out.buffer, (0, 1), 0, "add", points=8)])
    return of(kernel, x, out=out)


def window_spread():
    """A window's value added to a place that does not move along an axis of a kernel that was made for more points."""
    x, out = given((2, 3)), made((2,))
    fill = Kernel((2,), 0, [], [Store(KernelLine("number", FLOAT, frozenset(), number=0), out.buffer, (1,))])
    add = Kernel((2, 3), 0, [], [Store(load(x, (3, 0)), out.buffer, (1, 0), 0, "add", accumulates=True, points=2)])
    return Steps([fill, add], [x.buffer], [out.buffer])


def one_place_for_many():
    x, out = given((2, 3)), made((2,))
    return of(Kernel((2, 3), 0, [], [Store(load(x), out.buffer, (1, 0))]), x, out=out)


def too_early():
    x, out = given((2, 3)), made((2, 3))
    line = load(x)
    early = apply("subtract", line, fold("maximum", line, {0}), phase=0)
    return of(Kernel((2, 3), 1, [], [Store(early, out.buffer, out.strides)]), x, out=out)


def forgotten_axis():
    x, out = given((2, 3)), made((2, 3))
    line = KernelLine("load", FLOAT, frozenset({0}), buffer=x.buffer, strides=(3, 1))
    return of(Kernel((2, 3), 0, [], [Store(line, out.buffer, out.strides)]), x, out=out)


def overtaken():
    """x[1:] = x[:-1] in place, by a walk that may take points in any order."""
    x = given((4,))
    kernel = Kernel((3,), 0, [], [Store(load(x), x.buffer, (1,), 1)])
    return Steps([kernel], [x.buffer], [x.buffer])


#: What is said of a kernel before it runs, and what the interpreter says of its numbers. What it counts, and in which
#: phase it computes, has a meaning to the interpreter: there the numbers are compared with those of other stages.
PLANTED = {
    fold_spread_fold: ("8 elements folded at 24 points", None), window_spread: ("2 elements folded at 6 points", None),
    one_place_for_many: ("is stored along", "gives one element two values"), too_early: ("is in phase 0", None),
    forgotten_axis: ("declared on", "changes along axis 1"), overtaken: ("written over", "read at points other than"),
}  # fmt: skip


@pytest.mark.parametrize("planted", PLANTED, ids=lambda f: f.__name__)
def test_a_kernel_without_a_meaning_is_refused(planted):
    steps = planted()
    before, running = PLANTED[planted]
    with pytest.raises(MiscompiledError, match=before):
        verify_steps(steps)
    if running is not None:
        with pytest.raises(MiscompiledError, match=running):
            ran(steps, np.arange(float(steps.inputs[0].size)))


def test_a_line_that_changes_along_an_axis_it_does_not_name_is_refused():
    x, out = given((2, 3)), made((2, 3))
    line = load(x)
    wrong = KernelLine("apply", FLOAT, frozenset({0}), 0, (line,), lambda k, x: k.square(x), FLOAT, label="square")
    kernel = Kernel((2, 3), 0, [], [Store(wrong, out.buffer, out.strides)])
    with pytest.raises(MiscompiledError, match="square changes along axis 1"):
        ran(of(kernel, x, out=out), np.arange(6.0))


def test_memory_that_no_step_wrote_is_named():
    x, half, out = given((4,)), made((4,), kind="arena"), made((4,))
    first = Kernel((3,), 0, [], [Store(load(x), half.buffer, (1,))])
    second = Kernel((4,), 0, [], [Store(load(half), out.buffer, (1,))])
    steps = Steps([first, second], [x.buffer], [out.buffer])
    with pytest.raises(MiscompiledError, match=r"step 1 .*reads elements of arena0 that no step wrote"):
        verify_steps(steps)
    with pytest.raises(MiscompiledError, match=r"step 1 .*element 3 of arena0 .* that no step wrote"):
        ran(steps, np.ones(4))
    with pytest.raises(MiscompiledError, match="result 0 reads elements of output0 that no step wrote"):
        verify_steps(Steps([Kernel((3,), 0, [], [Store(load(x), out.buffer, (1,))])], [x.buffer], [out.buffer]))


def test_buffers_that_lie_in_one_place_at_one_time_are_seen():
    x, a, b, out = given((4,)), made((4,), kind="arena"), made((4,), kind="arena"), made((4,))
    a.buffer.offset, b.buffer.offset = 0, 16
    steps = [
        Kernel((4,), 0, [], [Store(load(x), a.buffer, (1,))]),
        Kernel((4,), 0, [], [Store(apply("negative", load(x)), b.buffer, (1,))]),
        Kernel((4,), 0, [], [Store(apply("add", load(a), load(b)), out.buffer, (1,))]),
    ]
    with pytest.raises(MiscompiledError, match="share bytes of the arena while both are in use"):
        verify_arena(steps)
    program = Steps(steps, [x.buffer], [out.buffer])
    memory = PoisonedMemory(64)
    memory.bind(x.buffer, region_of(np.ones(4), "an argument"))
    with pytest.raises(MiscompiledError, match=r"element 2 of arena0 .* another buffer has overwritten"):
        Interpreter().run(program, memory)
    b.buffer.offset = 32
    verify_arena(steps)


def test_blocks_of_a_division_that_touch_each_other_are_seen():
    x, out = given((4, 2)), made((2,))
    store = Store(load(x), out.buffer, (0, 1), 0, "add")
    kernel = Kernel((4, 2), 0, [], [store], Division(0, 2, {}))
    memory = PoisonedMemory(None)
    memory.bind(x.buffer, region_of(np.ones((4, 2)), "an argument"))
    with pytest.raises(MiscompiledError, match="blocks 0 and 1"):
        run_kernel(kernel, memory.__getitem__)


# Whole programs

RNG = np.random.default_rng(5)
X, W, IMAGES = RNG.normal(size=(8, 3)), RNG.normal(size=(3, 3)), RNG.normal(size=(2, 3, 6, 6))
CHECKED = {
    "softmax": (lambda x: pb.softmax(x, axis=-1), (X,)),
    "gradient": (pb.grad(lambda w, x: pb.sum(pb.tanh(x @ w) ** 2)), (W, X)),
    "variance": (lambda x: (pb.var(x, axis=0), pb.std(x), pb.max(x, axis=1)), (X,)),
    "order": (pb.grad(lambda x: pb.sum(pb.sort(x, axis=0)[1:] * pb.median(x))), (X,)),
    "integers": (lambda i: (i // 3, i % 5, pb.sum(i * i, axis=0), i > 2), (np.arange(12).reshape(4, 3),)),
    "float32": (pb.grad(lambda x: pb.mean(pb.logsumexp(x, axis=1))), (X.astype(np.float32),)),
    "convolution": (
        pb.grad(lambda x, w: pb.sum(pb.nn.conv2d(x, w, padding=1) ** 2), argnums=(0, 1)),
        (IMAGES, RNG.normal(size=(4, 3, 3, 3))),
    ),
    "pooling": (pb.grad(lambda x: pb.sum(pb.nn.max_pool2d(x, 2) ** 2)), (IMAGES,)),
    "indices": (lambda x, i: pb.add_at(x, (i,), x[i] * 2.0), (X, np.array([0, 3, 3, -1]))),
    "scan": (pb.grad(lambda x: pb.sum(pb.scan(lambda c, r: (pb.tanh(c + r @ W), c), x[0], x)[1])), (X,)),
    "while": (lambda x: pb.while_loop(lambda c: pb.sum(c) < 50.0, lambda c: c * 2 + 1, x), (np.abs(X),)),
    "cond": (lambda x: pb.cond(pb.sum(x) > 0, pb.sin, lambda x: x * 2, x), (X,)),
    "imaginary": (lambda x: pb.imag(x) + 1.0, (X,)),
    "solve": (lambda w, x: pb.linalg.solve(w, x.T), (W, X)),
    "blocks": (lambda x: (pb.sum(pb.exp(pb.sin(x)), axis=0), pb.sum(x * x)), (RNG.normal(size=(300, 200)),)),
}


@pytest.mark.parametrize("name", CHECKED)
def test_checked_programs_agree(name):
    f, args = CHECKED[name]
    found, wanted = pb.jit(f, check=True)(*args), f(*args)
    many = isinstance(wanted, (tuple, list))
    for a, b in zip(found if many else [found], wanted if many else [wanted], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4 if name == "float32" else 1e-10, atol=1e-12)


def test_checked_within_a_budget_and_over_donated_arguments():
    def chain(w, x):
        for _ in range(5):
            x = pb.tanh(x @ w)
        return pb.sum(x * x)

    w, x = RNG.normal(size=(16, 16)) / 4, RNG.normal(size=(200, 16))
    plain = pb.jit(pb.grad(chain))
    peak = plain.lower(w, x).memory().peak
    tight = pb.jit(pb.grad(chain), memory_budget=peak - peak // 6, check=True)
    np.testing.assert_allclose(tight(w, x), plain(w, x), rtol=1e-12)
    step = pb.jit(lambda w, x: w - 0.1 * pb.grad(chain)(w, x), donate_argnums=0, check=True)
    wanted, mine = w - 0.1 * plain(w, x), w.copy()
    assert step(mine, x) is mine
    np.testing.assert_allclose(mine, wanted, rtol=1e-12)


def test_checks_are_inherited_by_derivatives_and_batches():
    f = pb.jit(lambda x: pb.sum(pb.sin(x) ** 2), check=True)
    entry = f.lower(X)
    assert entry.as_op.pull_to((0,)).check
    assert entry.as_op.push_from((0,)).check
    assert entry.as_op.batch_over((0,)).check
    np.testing.assert_allclose(pb.grad(f)(X), np.sin(2 * X), rtol=1e-12)
    np.testing.assert_allclose(pb.vmap(f)(X), np.sum(np.sin(X) ** 2, axis=1), rtol=1e-12)


def test_the_variable_turns_checks_on(monkeypatch):
    monkeypatch.setenv("PULLBACK_CHECK", "1")
    assert isinstance(pb.jit(pb.sin).lower(X).code, CheckedRunner)
    monkeypatch.setenv("PULLBACK_CHECK", "0")
    assert not isinstance(pb.jit(pb.sin).lower(X).code, CheckedRunner)


def test_ops_of_the_user_run_once_beside_the_reference():
    calls = []

    @pb.custom_op
    def counted(x):
        calls.append(1)
        return x * len(calls)

    counted.def_spec(lambda x: x)
    f = pb.jit(lambda x: pb.sin(counted(x * 2.0)) + 1.0, check=True)
    np.testing.assert_allclose(f(X), np.sin(2 * X) + 1)
    np.testing.assert_allclose(f(X), np.sin(4 * X) + 1)
    assert len(calls) == 2


def test_an_index_out_of_range_is_the_error_it_is_without_checks():
    f = pb.jit(lambda x, i: x[i], check=True)
    with pytest.raises(pb.errors.IndexingError):
        f(X, np.array([99]))


# A compiler that makes a mistake


def test_a_mistake_of_native_code_is_seen(monkeypatch):
    run = CpuRunner.run

    def wrong(self, arrays):
        found = run(self, arrays)
        found[:1] = [x * (1 + 1e-11) for x in found[:1]]  # a step alone returns nothing
        return found

    monkeypatch.setattr(CpuRunner, "run", wrong)
    with pytest.raises(MiscompiledError, match=r"result 0 differs in native code(.|\n)*= sum\((.|\n)*sum of sines"):
        pb.jit(lambda x: pb.sum(pb.sin(x), axis=0), check=True)(X)  # the sum of sines


def test_the_step_that_native_code_gets_wrong_is_named(monkeypatch):
    monkeypatch.setitem(ir_builder._ARITHMETIC, "subtract", ("fadd", "add"))  # the renderer takes minus for plus
    with pytest.raises(MiscompiledError, match=r"wrong first in step 1 \(kernel over 8x3: subtract"):
        pb.jit(lambda x, w: pb.sin(x @ w - x) @ w, check=True)(X, W)


def test_a_mistake_of_fusion_is_seen_with_its_equation_and_line(monkeypatch):
    real = pipeline.lower_program

    def wrong(*args):
        steps = real(*args)
        for step in steps.steps:
            for store in step.stores:
                store.word = "maximum" if store.word == "add" else store.word
        return steps

    monkeypatch.setattr(pipeline, "lower_program", wrong)
    with pytest.raises(MiscompiledError, match=r"differs after fusion(.|\n)*axis=\(0,\)(.|\n)*a planted mistake"):
        pb.jit(lambda x: pb.sum(pb.sin(x), axis=0), check=True)(X)  # a planted mistake


def test_a_mistake_of_memory_planning_is_seen(monkeypatch):
    real = arena.plan_arena

    def wrong(steps, alignment):
        size = real(steps, alignment)
        for step in steps:
            for buffer in step.writes():
                buffer.offset = 0
        return size

    f = pb.jit(lambda x, w: pb.sum((x @ w) * (x @ w.T), axis=0) @ w, check=True)
    f(X, W)
    monkeypatch.setattr(arena, "plan_arena", wrong)
    with pytest.raises(MiscompiledError, match="share bytes of the arena"):
        pb.jit(f.f)(X, W)
    monkeypatch.setattr(pipeline, "verify_arena", lambda steps: None)
    for module in (pipeline, verify):
        monkeypatch.setattr(module, "check_legality", lambda steps, placed=True: None)
    with pytest.raises(MiscompiledError, match=r"in the arena, step .* another buffer has overwritten"):
        pb.jit(f.f, check=True)(X, W)


@pytest.mark.parametrize("f", [
    lambda x: pb.set_at(x, slice(1, 33), x[0:32]), lambda x: pb.set_at(x, slice(None), x[::-1]),
    lambda x: pb.set_at(x, np.arange(1, 40), x[:39]),
])  # fmt: skip
def test_entries_written_over_the_slice_they_come_from(f):
    """A donated array, or a loop's carry, was written to in place while a view of it was still to be read."""
    x = np.arange(40.0)
    assert np.array_equal(pb.jit(f, donate_argnums=0, check=True)(x.copy()), f(x))
    rounds = lambda x: pb.fori_loop(0, 3, lambda i, c: f(c), x)  # noqa: E731
    assert np.array_equal(pb.jit(rounds, check=True)(x), rounds(x))


def judged(f, args):
    """All stages but native code, which takes LLVM a while."""
    entry = pb.jit(f).lower(*args)
    arrays = [*(np.ascontiguousarray(x) for x in args), *(np.asarray(c) for c in entry.captured)]
    graph = entry.graph
    specs, outs = [s.spec for s in graph.inputs], [spec_of(o) for o in graph.outputs]
    c = Compilation(cpu_target(), Options(), specs, outs, graph)
    for step in pipeline.STEPS[: pipeline.STEPS.index(pipeline.render)]:
        step(c)
    verify_steps(c.fused)
    Judge(graph, c.fused, c.planned, {}).run_stages(arrays)


def random_programs(first, last):
    for seed in range(first, last):
        f, args = program(seed)
        judged(f, args)
        judged(pb.grad(scalar_of(f), argnums=tuple(range(len(args)))), args)


@pytest.mark.parametrize("first", range(0, 60, 10))
def test_random_programs_agree_at_every_stage(first):
    random_programs(first, first + 10)


@pytest.mark.sweep
@pytest.mark.parametrize("first", range(60, 1000, 20))
def test_many_random_programs_agree_at_every_stage(first):
    random_programs(first, first + 20)


@pytest.mark.parametrize("seed", range(0, 30, 5))
def test_random_programs_agree_in_native_code(seed):
    f, args = program(seed)
    pb.jit(f, check=True)(*args)
