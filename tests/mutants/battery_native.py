"""What a mutant of native code must not survive: kernels made by hand, memory that is counted or forbidden, budgets.

The right results are NumPy's, or numbers that follow from the steps alone.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

from guarded import Guarded, Numpy

import pullback as pb
from pullback.compile import pipeline
from pullback.compile.cpu import runner
from pullback.compile.cpu.kernel.render import find_overlapping_buffers
from pullback.compile.cpu.runtime.blas import blas_thread_functions
from pullback.compile.cpu.target import cpu_target, make_cpu_target
from pullback.compile.loop_ir import (
    Blocks,
    Buffer,
    Host,
    Kernel,
    KernelLine,
    Loop,
    Product,
    Store,
    contiguous_layout,
)
from pullback.compile.reference.checked_runner import run_alone
from pullback.compile.schedule import division
from pullback.compile.schedule.arena import find_reused_buffers
from pullback.compile.schedule.cost import estimate_nanoseconds
from pullback.compile.schedule.memory_budget import fit_memory_budget, memory_of
from pullback.compile.schedule.recompute_recipes import StepUsage, rename_buffers
from pullback.compile.schedule.rematerialize import fit_steps
from pullback.compile.siblings import SIZES
from pullback.compile.target import Options
from pullback.errors import IndexingError, MemoryBudgetError

__all__ = ["native"]

Check = Callable[[], None]
_F8 = np.dtype("f8")
_RNG = np.random.default_rng(11)
#: Elements of a kernel that is long enough for several threads.
_LONG = 400_000


def native() -> Iterator[Check]:
    for name, check in list(globals().items()):
        if name.startswith("_check_"):
            yield check


def _close(found: Any, wanted: Any, tolerance: float = 1e-9) -> None:
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)


@contextlib.contextmanager
def _memory(empty: Callable[..., Any]) -> Iterator[None]:
    """Results and arenas of programs come from elsewhere."""
    runner.np = Numpy(empty=empty)  # type: ignore[assignment]
    try:
        yield
    finally:
        runner.np = np


def _dirty(shape: Any, dtype: Any = np.float64) -> Any:
    """Memory in which nothing is right that was not written: -1 as an integer, NaN as a number."""
    found = np.empty(shape, dtype)
    found.reshape(-1).view(np.uint8)[...] = 255
    return found


def _buffers(*arrays: Any) -> list[Buffer]:
    return [Buffer("input", a.size, a.dtype, i) for i, a in enumerate(arrays)]


def _load(buffer: Buffer, *strides: int) -> KernelLine:
    moving = frozenset(i for i, s in enumerate(strides) if s)
    return KernelLine("load", buffer.dtype, moving, buffer=buffer, strides=strides)


def _total(x: KernelLine, outer: int = 0) -> KernelLine:
    return KernelLine("fold", x.dtype, frozenset(range(outer)), 0, (x,), word="add")


def _check_values_that_are_one_for_the_row_are_folded_at_every_point() -> None:
    for extents in ((), (1,), (3,), (17,), (3, 5)):
        n = int(np.prod(extents))
        x, out = np.array([2.5]), np.array([7.0])
        source, target = _buffers(x, out)
        line = _load(source, *[0] * len(extents))
        store = Store(line, target, (0,) * len(extents), word="add", points=n)
        run_alone(Kernel(extents, min(1, len(extents)), [line], [store]), {source: x, target: out}, cpu_target())
        _close(out, [2.5 * n])


def _check_a_long_row_whose_fold_is_folded_at_every_point() -> None:
    x, out = _RNG.normal(size=_LONG), np.zeros(1)
    source, target = _buffers(x, out)
    line = _load(source, 1)
    fold = _total(line)
    kernel = Kernel((_LONG,), 1, [line, fold], [Store(fold, target, (0,), word="add", points=_LONG)])
    run_alone(kernel, {source: x, target: out}, cpu_target())
    _close(out, [np.sum(x) * _LONG], 1e-7)


def _check_a_long_row_with_a_number_stored_all_along_it() -> None:
    x, y, out, along = _RNG.normal(size=_LONG), np.array([2.5]), np.zeros(1), np.zeros(_LONG)
    buffers = _buffers(x, y, out, along)
    line, number = _load(buffers[0], 1), _load(buffers[1], 0)
    fold = _total(line)
    kernel = Kernel((_LONG,), 1, [line, number, fold], [Store(fold, buffers[2], (0,)), Store(number, buffers[3], (1,))])
    run_alone(kernel, dict(zip(buffers, (x, y, out, along), strict=True)), cpu_target())
    _close(out, [np.sum(x)], 1e-8)
    _close(along, np.full(_LONG, 2.5))


def _check_rows_of_one_element_in_blocks() -> None:
    x, out = _RNG.normal(size=_LONG), np.zeros(_LONG)
    source, target = _buffers(x, out)
    line = _load(source, 1, 0)
    fold = _total(line, 1)
    kernel = Kernel((_LONG, 1), 1, [line, fold], [Store(fold, target, (1, 0))])
    cut = division.divide_steps([kernel], cpu_target())[0]
    assert isinstance(cut, Kernel)
    assert cut.division is not None
    run_alone(kernel, {source: x, target: out}, cpu_target())
    _close(out, x)


def _check_a_long_fold_into_a_part_of_memory_leaves_the_rest() -> None:
    x, out = _RNG.normal(size=(_LONG // 3, 3)), np.arange(5.0)
    source, target = _buffers(x, out)
    line = _load(source, 3, 1)
    store = Store(line, target, (0, 1), word="add", points=x.size)
    run_alone(Kernel(x.shape, 0, [line], [store]), {source: x, target: out}, cpu_target())
    _close(out, [*x.sum(axis=0), 3.0, 4.0], 1e-8)


def _check_what_is_worth_several_threads_is_divided() -> None:
    """Along the axis that is folded too, and a scatter not along its indices: two of them may be one place."""
    x = _RNG.normal(size=(_LONG // 3, 3))
    for f in (lambda x: pb.sum(x, axis=0), lambda x: pb.tanh(x) * 2, lambda x: pb.sum(x * x, axis=(0, 1))):
        compiled = pb.jit(f)
        assert compiled.lower(x).code.uses_pool
        _close(compiled(x), f(x), 1e-8)
    flat = x.reshape(-1)
    apart = lambda x: pb.sum((x - pb.mean(x)) ** 2)  # noqa: E731
    _close(pb.jit(apart)(flat), np.var(flat) * flat.size, 1e-8)
    total = pb.jit(lambda x: pb.sum(x) * 2 + 1)
    assert total.lower(flat).code.uses_pool
    _close(total(flat), np.sum(flat) * 2 + 1, 1e-8)
    if blas_thread_functions() is not None:
        product = pb.jit(lambda a, b: a @ b)
        for left, right in (((64, 300), (300, 200)), ((24, 64, 48), (24, 48, 80))):
            a, b = _RNG.normal(size=left).astype("f4"), _RNG.normal(size=right).astype("f4")
            assert product.lower(a, b).code.uses_pool
            _close(product(a, b), a @ b, 1e-3)
    places = np.zeros(_LONG, int)
    for start in (np.array([3.0]), np.array([3.0, 5.0])):
        wanted = start + np.array([float(_LONG), 0.0])[: start.size]
        _close(pb.jit(lambda v, i: pb.add_at(v, i, 1.0))(start, places), wanted)


def _check_blocks_of_a_row_and_what_is_left_of_it() -> None:
    """Rows of whole groups of vectors, of some vectors more, and of some elements more; each element counted once."""
    for n in (_LONG, _LONG + 8, _LONG + 11):
        x = _RNG.normal(size=n)
        _close(pb.jit(pb.sum)(x), np.sum(x), 1e-8)
        heavy = lambda x: pb.sum(pb.tanh(x) * pb.exp(x) + pb.sin(x))  # noqa: E731
        _close(pb.jit(heavy)(x), np.sum(np.tanh(x) * np.exp(x) + np.sin(x)), 1e-7)
        _close(pb.jit(lambda x: x * 2 + 1, donate_argnums=0)(x.copy()), x * 2 + 1)


def _check_lanes_that_look_up_rows_of_memory() -> None:
    """Along a row of two axes the indices differ along one, and memory moves along the other."""
    x, i = _RNG.normal(size=(6, 21)), _RNG.integers(-6, 6, size=(4, 5))
    for f in (
        lambda x, i: pb.sum(x[i], axis=(1, 2)), lambda x, i: pb.sum(x[i], axis=(0, 1)), lambda x, i: x[i] * 2,
        lambda x, i: pb.sum(x[:, i], axis=(1, 2)), lambda x, i: pb.max(x[::2, ::3][:, i], axis=0),
        lambda x, i: pb.softmax(x[i], axis=2), lambda x, i: pb.sum(x[i, i] * i),
    ):  # fmt: skip
        _close(pb.jit(f)(x, i), f(x, i))


def _check_buffers_that_share_a_place_are_known() -> None:
    def shared(*places: tuple[int, int]) -> set[int]:
        buffers = [Buffer("arena", size, np.dtype("u1"), i, offset) for i, (offset, size) in enumerate(places)]
        return {b.number for b in find_overlapping_buffers([*buffers, Buffer("input", 999, np.dtype("u1"), 99, 0)])}

    assert shared((0, 64), (64, 64), (128, 64)) == set()
    assert shared((0, 64), (64, 64), (64, 64)) == {1, 2}
    assert shared((64, 64), (0, 65)) == {0, 1}
    assert shared((0, 256), (64, 64), (128, 64), (256, 64)) == {0, 1, 2}


def _check_memory_beside_forbidden_pages() -> None:
    """Each width of a row beside the lanes of a vector, in several dtypes; what is not written stays NaN."""
    if sys.platform != "linux":
        return
    guarded = Guarded("end")

    def empty(shape: Any, dtype: Any = np.float64) -> Any:
        found = guarded.empty(shape, dtype)
        if not isinstance(shape, int):  # of an arena, the last bytes are the forbidden ones
            found.reshape(-1).view(np.uint8)[...] = 255
        return found

    f = lambda x, y: (  # noqa: E731
        x + 1, pb.sum(x), pb.max(x, axis=0), y > 0.5, pb.astype(y, "float64") * x[0], pb.softmax(pb.tanh(x), axis=1),
        x[:, ::2] - 1, pb.astype(y * 3, "int8"), pb.sum(x, axis=0),
    )  # fmt: skip
    try:
        for n in (1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33):
            x, y = _RNG.normal(size=(2, n)), _RNG.uniform(size=n).astype("f4")
            wanted = f(x, y)
            with _memory(empty):
                found = pb.jit(f).lower(x, y).run([guarded.copy(x), guarded.copy(y)])
            for a, b in zip(found, wanted, strict=True):
                assert a.dtype == b.dtype
                _close(a, b)
            del found
    finally:
        guarded.free()


def _check_fills_come_before_what_needs_them() -> None:
    """Also where nothing but the fill is left, or only a copy over a donated argument needs it."""
    x = np.arange(3.0)
    whole, empty = (lambda x: pb.pad(x, (1, 2))), (lambda x: pb.pad(x[:0], (1, 2)))

    def run(f: Any, *args: Any, **options: Any) -> Any:
        return pb.jit(f, **options).lower(*args).run(list(args))  # a direct call makes its results itself

    with _memory(_dirty):
        _close(run(whole, x)[0], [0, 0, 1, 2, 0, 0])
        _close(run(empty, x)[0], [0, 0, 0])
        _close(run(empty, x.copy(), donate_argnums=0)[0], [0, 0, 0])
        found = run(lambda x, y: (empty(x), y * 2, whole(y)), x.copy(), x, donate_argnums=0)
        for a, b in zip(found, ([0, 0, 0], [0, 2, 4], [0, 0, 1, 2, 0, 0]), strict=True):
            _close(a, b)


def _check_memory_does_not_grow_with_the_program() -> None:
    """A padded grid lives from its fill to its last reader; a value lies where the one lay that it is made of."""
    w, x = _RNG.normal(size=(4, 4, 3, 3)), _RNG.normal(size=(1, 4, 8, 8))

    def deep(count: int) -> Any:
        def f(x: Any, w: Any) -> Any:
            for _ in range(count):
                x = pb.tanh(pb.nn.conv2d(x, w, padding=1))
            return x

        return f

    arenas = [pb.jit(deep(count)).lower(x, w).memory().arena for count in (4, 8)]
    assert arenas[0] == arenas[1], arenas
    a, v = _RNG.normal(size=(64, 64)), _RNG.normal(size=(64, 1))
    arena = pb.jit(lambda a, v: pb.tanh(a @ a) @ v).lower(a, v).memory().arena
    assert arena == a.nbytes, arena
    two = lambda a, b: pb.tanh(a @ b) @ a + pb.sin(a @ b) @ b  # noqa: E731 (one place cannot be left to two)
    _close(pb.jit(two)(a, a.T.copy()), two(a, a.T.copy()))


def _check_budgets_are_kept_up_to_the_last_byte() -> None:
    """What an error says would do does, and so does all above; also where the second plan is divided and the first is
    not, so that kernels need more for their rows.
    """
    ws, x = [_RNG.normal(size=(16, 16)) / 4 for _ in range(4)], _RNG.normal(size=(16, 16))

    def loss(ws: Any, x: Any) -> Any:
        for w in ws:
            x = pb.softmax(pb.tanh(x @ w), axis=1)
        return pb.sum(x**2)

    steps, here = pb.jit(pb.grad(loss)).lower(ws, x).code.compilation.steps, cpu_target()
    shared = sum(estimate_nanoseconds(s, here.costs) for s in steps.steps if division._is_divisible(s))
    rows = dataclasses.replace(here.limits, min_step_ns=0, min_block_ns=20, min_program_ns=int(shared) + 1)
    whole = memory_of(steps, pipeline._place(steps, here).workspace)
    rest = whole.peak - whole.arena
    for machine in (here, make_cpu_target(rows)):
        place = functools.partial(pipeline._place, target=machine)
        fit = lambda limit, t=machine, place=place: fit_memory_budget(limit, steps, t, place)  # noqa: E731
        peak = lambda found, place=place: memory_of(found, place(found).workspace).peak  # noqa: E731
        assert fit(whole.peak) is steps
        assert "Arguments and results alone" in _refused(lambda fit=fit: fit(rest - 1))
        said = _refused(lambda fit=fit: fit(rest))
        least = int(said.split("Raise it to ")[1].split(" bytes")[0])
        smallest = lambda s, place=place: place(dataclasses.replace(steps, steps=s)).workspace  # noqa: E731
        exact = rest + fit_steps(steps.steps, whole.arena - 1, machine, smallest).arena
        for limit in (least, exact, whole.peak - 3072):
            assert peak(fit(limit)) <= limit
    budget = pb.jit(pb.grad(loss), memory_budget=whole.peak - 2048)
    for a, b in zip(budget(ws, x), pb.grad(loss)(ws, x), strict=True):
        _close(a, b)


def _refused(call: Callable[[], Any]) -> str:
    try:
        call()
    except MemoryBudgetError as error:
        return str(error)
    raise AssertionError("no MemoryBudgetError")


def _check_what_was_overwritten_is_not_computed_from() -> None:
    """Budgets beside donated arguments: what goes cannot come back from an argument that is gone."""
    ws, x = [_RNG.normal(size=(16, 16)) / 3 for _ in range(8)], _RNG.normal(size=(32, 16))

    def step(ws: Any, x: Any) -> Any:
        def loss(ws: Any) -> Any:
            h = x
            for w in ws:
                h = pb.tanh(h @ w)
            return pb.sum(h * h)

        return [w - 0.01 * g for w, g in zip(ws, pb.grad(loss)(ws), strict=True)]

    wanted = step(ws, x)
    memory = pb.jit(step, donate_argnums=0).lower(ws, x).memory()
    for part in (0.8, 0.5):
        compiled = pb.jit(step, donate_argnums=0, memory_budget=int(memory.peak - memory.arena * (1 - part)))
        for a, b in zip(compiled([w.copy() for w in ws], x), wanted, strict=True):
            _close(a, b)


def _arena(count: int = 4) -> list[Buffer]:
    return [Buffer("arena", 4, _F8) for _ in range(count)]


def _copy(source: Buffer, *targets: Buffer) -> Kernel:
    line = _load(source, 1)
    return Kernel((4,), 0, [line], [Store(line, target, (1,)) for target in targets])


def _check_how_memory_is_filled_once_more() -> None:
    """Recipes of steps made by hand: which buffers have one, from what, and until when."""
    x, y = (Buffer("input", 4, _F8, i) for i in range(2))
    result = Buffer("output", 4, _F8, 0)
    p, q, r, s = _arena()
    known = StepUsage([_copy(x, p, result), _copy(p, q), _copy(y, x), _copy(q, r)], cpu_target()).recipes
    assert [step.writes() for step in known[p].steps] == [[p]]  # the result beside it stays as it is
    assert known[p].side_writes == ()
    assert (known[p].sources, known[p].until) == ((x,), 2)
    assert (known[q].sources, known[q].until) == ((p,), 2)  # what p is made of is overwritten
    assert result not in known
    fill = Kernel((4,), 0, [], [Store(KernelLine("number", _F8, frozenset(), number=0), p, (1,))])
    square = [contiguous_layout(b, (1, 2, 2)) for b in (p, x, y)]
    summed = StepUsage([fill, Product(*square, beta=1.0), _copy(p, q)], cpu_target()).recipes[p]
    assert len(summed.steps) == 2
    assert summed.sources == (x, y)
    both = Host(
        "both",
        lambda a: (a, a),
        (contiguous_layout(x, (4,)),),
        (contiguous_layout(p, (4,)), contiguous_layout(q, (4,))),
        True,
    )
    assert StepUsage([both, _copy(p, r), _copy(y, q), _copy(q, s)], cpu_target()).recipes[p].side_writes == (q,)
    taken = StepUsage([both, _copy(y, q), both, _copy(p, r), _copy(q, s)], cpu_target()).recipes
    assert p not in taken  # between its two writers another one writes beside it
    shown = Host("both", both.call, both.args, (contiguous_layout(p, (4,)), contiguous_layout(result, (4,))), True)
    assert p not in StepUsage([shown, _copy(p, r)], cpu_target()).recipes  # a result is not written twice
    unsteady = Host("once", both.call, both.args, both.outs)
    assert p not in StepUsage([unsteady, _copy(p, r)], cpu_target()).recipes
    assert (
        p not in StepUsage([_copy(x, p), _copy(p, r), _copy(y, p)], cpu_target()).recipes
    )  # read before it is complete
    rooted = StepUsage([unsteady, _copy(p, r), _copy(r, s)], cpu_target()).recipes
    assert rooted[s].roots == rooted[r].roots == {p}


def _check_steps_under_other_names() -> None:
    x, (p, q, r, _) = Buffer("input", 4, _F8, 0), _arena()
    places = [contiguous_layout(b, (4,)) for b in (x, p, q)]
    square = [contiguous_layout(b, (1, 2, 2)) for b in (p, x, x)]
    scan = Loop("iterate", (), (places[0], places[1]), (0, 0), (places[2],), (0,), 1, places[1])
    for step, reads, writes in (
        (_copy(x, p), [x], [r]), (_copy(p, q), [r], [q]), (Product(*square), [x, x], [r]), (scan, [x, r], [x, q]),
        (Host("both", lambda a: (a, a), (places[0], 3.0), (places[1], places[2])), [x], [r, q]),
        (Blocks(2, [_copy(x, p)], {p: 2, x: 1}), [x], [r]),
    ):  # fmt: skip
        found = rename_buffers(step, {p: r})
        assert (found.reads(), found.writes()) == (reads, writes)
        assert not isinstance(found, Loop) or found.number == contiguous_layout(r, (4,))
        assert not isinstance(found, Blocks) or found.moves == {r: 2, x: 1}
        assert rename_buffers(step, {}) is step


def _check_memory_that_a_value_may_take_over() -> None:
    """Only that of a value of its size that dies there, read once, where and whenever the new one is written."""
    x, other = Buffer("input", 8, _F8, 0), Buffer("input", 8, _F8, 1)
    p, q, small = Buffer("arena", 8, _F8), Buffer("arena", 8, _F8), Buffer("arena", 8, np.dtype("f4"))
    line, index = _load(p, 1), KernelLine("load", np.dtype("i8"), frozenset({0}), buffer=other, strides=(1,))
    half, shifted = KernelLine("load", _F8, frozenset({0}), buffer=p, strides=(1,), offset=4), _load(p, 2)
    gathered = KernelLine("gather", _F8, frozenset({0}), 0, (index,), buffer=p, strides=(1,), places=((1, 8),))

    def taken(line: KernelLine, target: Buffer = q, n: tuple[int, ...] = (8,), *rest: Store, **how: Any) -> bool:
        store = Store(line, target, how.pop("strides", (1,)), **how)
        steps = [Kernel((8,), 0, [], [Store(_load(x, 1), p, (1,))]), Kernel(n, 0, [], [store, *rest])]
        found = find_reused_buffers([*steps])
        assert found in ({}, {target: p})
        return bool(found)

    assert taken(line)
    assert taken(KernelLine("cast", _F8, frozenset({0}), 0, (line,)))
    assert not taken(line, strides=(-1,), offset=7)
    assert not taken(half, n=(4,))
    assert not taken(half, n=(4,), offset=4)
    assert not taken(shifted, n=(4,))
    assert not taken(KernelLine("load", _F8, frozenset({1}), buffer=p, strides=(0, 1)), q, (2, 8), strides=(0, 1))
    assert not taken(gathered)
    assert not taken(KernelLine("cast", np.dtype("f4"), frozenset({0}), 0, (line,)), small)
    result = Buffer("output", 8, _F8, 0)
    assert not taken(line, q, (4,), Store(shifted, result, (1,)))
    assert not taken(line, q, (8,), Store(line, result, (0,), word="add", points=8))
    steps = [Kernel((8,), 0, [], [Store(_load(a, 1), b, (1,))]) for a, b in ((x, p), (p, q), (p, result))]
    assert find_reused_buffers([*steps]) == {}


def _check_indices_are_checked_before_anything_is_overwritten() -> None:
    """Those that are arguments; of those that are computed the error says what may be lost."""
    x, good, bad = np.arange(4.0), np.array([0, 3, -4, 1], "i4"), np.array([0, 1, 4, 2], "i4")
    given = lambda x, i: pb.set_at(x * 2, i, 0.0)  # noqa: E731
    for f, said in (
        (given, "Nothing was written"), (lambda x, i: given(x, i + 0), "may have been overwritten"),
        (lambda x, i: pb.scan(lambda c, j: (pb.add_at(c, j, 1.0), c[0]), x, i)[0], "may have been overwritten"),
        (lambda x, i: x[i] + x[i[::2]].sum(), "Nothing was written"),
        (lambda x, i: x + pb.sum(x[pb.astype(i, "int64")]), "Nothing was written"),
    ):  # fmt: skip
        _close(pb.jit(f, donate_argnums=0)(x.copy(), good), f(x, good))
        for wrong in (bad, np.where(bad == 4, -5, bad)):
            target = x.copy()
            message = _out_of_range(lambda f=f, t=target, i=wrong: pb.jit(f, donate_argnums=0)(t, i))  # type: ignore[misc]
            assert said in message, message
            assert said != "Nothing was written" or np.array_equal(target, x)
            assert "overwritten" not in _out_of_range(lambda f=f, i=wrong: pb.jit(f)(x, i))  # type: ignore[misc]
    unsigned = pb.jit(lambda x, i: x + pb.sum(x[pb.astype(i, "uint32")]), donate_argnums=0)
    assert "Nothing was written" in _out_of_range(lambda: unsigned(x.copy(), bad))


def _check_indices_that_are_not_used_may_be_anything() -> None:
    """Those beside the ones that are read, and those that a cast makes valid."""
    x, among = np.arange(4.0), np.array([99, 3, 99, 0, 99, -4, 99, 1])
    truth = lambda i: pb.astype(pb.astype(i, "bool"), "int64")  # noqa: E731
    for f, i in (
        (lambda x, i: pb.set_at(x, i[1:], 0.0), among[1::2]), (lambda x, i: pb.set_at(x, i[:1], 0.0), among[5:]),
        (lambda x, i: pb.set_at(x, i, 0.0), among[1::2]), (lambda x, i: pb.set_at(x, i[1::2], 0.0), among),
        (lambda x, i: x + pb.sum(x[truth(i)]), among.astype("i1")),
        (lambda x, i: x + pb.sum(x[pb.astype(i, "int8")]), np.array([256, 258])),
        (lambda x, i: x + pb.sum(x[pb.astype(i, "int64")]), np.array([-4.9, 3.9])),
        (lambda x, i: pb.add_at(x, i + 1, x[:2]), np.array([-5, 2])),
        (lambda x, i: x + pb.sum(x[i[i[1:]]]), np.array([99, 1, 2, 3])),
    ):  # fmt: skip
        compiled = pb.jit(f, donate_argnums=0)
        for _ in range(2):  # the second call brings the arrays as they are
            _close(compiled(x.copy(), i), f(x, i))


def _check_kernels_that_differ_in_where_they_read_or_in_what_they_take() -> None:
    x, y, w = _RNG.normal(size=9), _RNG.normal(size=7), _RNG.normal(size=(7, 7))

    def shifted(x: Any, y: Any, w: Any) -> Any:
        c = w @ (x[:7] * y)
        return w @ (x[2:] * c), c

    def turned(x: Any, y: Any, w: Any) -> Any:
        z = x[:7]
        c = w @ ((z - y) * z)
        return w @ ((z - c) * c), c

    for f in (shifted, turned):
        for a, b in zip(pb.jit(f)(x, y, w), f(x, y, w), strict=True):
            _close(a, b)


def _check_code_for_all_sizes() -> None:
    """The same bits as code for each size, in blocks and not, through long rows and short ones."""
    programs: list[Callable[[Any], Any]] = [
        lambda x: pb.tanh(x) + 1, lambda x: pb.sum(x * x), lambda x: pb.sum(x, axis=0), lambda x: pb.sum(x, axis=1),
        lambda x: pb.softmax(x, axis=0), lambda x: pb.transpose(x) * 2, lambda x: x @ pb.transpose(x),
        lambda x: pb.transpose(x) @ x, lambda x: pb.mean(x[np.array([0, -1])]),
        lambda x: pb.scan(lambda c, row: (c * row, c), pb.ones(3), x)[0],
    ]  # fmt: skip
    several = {"min_program_ns": 0.0, "min_step_ns": 0.0, "min_block_ns": 1e-9}
    for limits in ({}, several):
        target = make_cpu_target(dataclasses.replace(cpu_target().limits, **limits))
        for f in programs:
            first: Any = None
            for n in (5, 3, 17, 70, 200):
                x = _RNG.normal(size=(n, 3))
                entry = pb.jit(f).lower(x)
                program, given = entry.graph, [x, *entry.captured]
                shared = pipeline.compile_program(program, target, Options())
                known, SIZES.known = SIZES.known, {}
                own = pipeline.compile_program(program, target, Options())
                SIZES.known = known
                first = first or shared
                assert shared.compilation is not None
                assert shared is first or shared.compilation.sibling is not None
                found, wanted = (r.run(given) for r in (shared, own))
                assert [a.tobytes() for a in found or ()] == [a.tobytes() for a in wanted or ()]
                _close(found[0] if found else None, f(x))


def _out_of_range(call: Callable[[], Any]) -> str:
    try:
        call()
    except IndexingError as error:
        return str(error)
    raise AssertionError("no IndexingError")
