"""The GPU's text, run here: programs rendered to CUDA C and executed thread by thread equal eager calls."""

import os
from pathlib import Path

import numpy as np
import pytest
from composed_modes import find_fault
from composed_programs import drawn
from cuda_emulator import EMULATED, aligned_copy, has_compiler, run_code
from network_samples import SAMPLES
from networks import drawn_network
from networks import find_fault as find_network_fault
from random_programs import updated
from test_random_graphs import tried

import pullback as pb
from pullback.arrays.trees import flatten
from pullback.compile import targets
from pullback.compile.cuda.kernel import row_shape, rows, rows_ahead, sorted_scatters
from pullback.compile.cuda.kernel.render import render_kernel
from pullback.compile.cuda.launch_plan import Choice, Launch, NestedPlans
from pullback.compile.cuda.side_by_side import MAX_SHARED_BYTES, count_shared_bytes
from pullback.compile.loop_ir import Buffer, Kernel, Store, load_line
from pullback.errors import IndexingError

pytestmark = pytest.mark.skipif(not has_compiler(), reason="the text is compiled by g++")
X = np.random.default_rng(0).normal(size=(4, 3))
MODES = ["donated", "jit_grad", "jit_scanned_grad", "branched"]


@pytest.fixture(autouse=True)
def emulated(monkeypatch):
    monkeypatch.setitem(targets.TARGETS, "cpu", lambda program: EMULATED)


def normal(*shape, dtype=np.float64):
    return np.random.default_rng(list(shape)).normal(size=shape).astype(dtype)


def compare(f, *args, rtol=1e-9):
    """Compiled equals eager."""
    for found, wanted in zip(flatten(pb.jit(f)(*args))[0], flatten(f(*args))[0], strict=True):
        np.testing.assert_allclose(np.asarray(found), np.asarray(wanted), rtol=rtol, atol=rtol)


def launches_of(f, *args):
    """The texts of functions that a program launches, by the order of launches."""
    code = pb.jit(f).lower(*args).code.compilation.code
    functions = {x.split("(")[1].split(" ")[-1]: x for x in code.text.split('extern "C" ')[1:]}
    return [functions[name] for name in _names(code.plan)]


def _names(plan):
    for action in plan.actions:
        if isinstance(action, Launch):
            yield action.function
        elif isinstance(action, NestedPlans):
            for inner in action.plans:
                yield from _names(inner)
        elif isinstance(action, Choice):
            yield from (x.function for x in action.ways[0] if isinstance(x, Launch))


# Programs that were not chosen


@pytest.mark.parametrize("seed", range(2))
def test_random_programs(seed):
    assert tried(seed) == []


@pytest.mark.parametrize("mode", MODES)
def test_composed_programs(mode):
    assert find_fault(drawn(1, 3, 8), mode) is None


def test_networks():
    assert find_network_fault(drawn_network(0), "whole_step") is None


def test_updates_of_donated_arguments():
    f = updated(0)
    args = [np.random.default_rng(i).normal(size=(4, 4)) for i in range(4)]
    for mine, wanted in zip(pb.jit(f, donate_argnums=(0, 1, 2))(*(a.copy() for a in args)), f(*args), strict=True):
        np.testing.assert_allclose(mine, wanted, rtol=1e-9, atol=1e-9)


@pytest.mark.sweep
@pytest.mark.parametrize("seed", range(2, 300))
def test_many_random_programs(seed):
    assert tried(seed) == []


@pytest.mark.sweep
@pytest.mark.parametrize("seed", range(60))
def test_many_composed_programs(seed):
    found = [find_fault(drawn(seed, 3, 8), mode) for mode in MODES]
    assert [f for f in found if f is not None and "eager raises" not in str(f)] == []


@pytest.mark.sweep
@pytest.mark.parametrize("seed", range(1, 60))
def test_many_networks(seed):
    assert [f for way in ("whole_step", "backward") if (f := find_network_fault(drawn_network(seed), way))] == []


def slopes(sample):
    """A function of a sample's arrays: a sum of its results, in which no weight is one."""

    def loss(*arrays):
        found = sample.call(*arrays)
        outs = found if isinstance(found, tuple) else (found,)
        return sum(pb.sum(pb.sin(y)) for y in outs if y is not None and pb.spec_of(y).inexact)

    return pb.value_and_grad(loss, argnums=tuple(range(len(sample.arrays))))


@pytest.mark.sweep
@pytest.mark.parametrize("sample", [s for s in SAMPLES if s.arrays and not s.drawn], ids=str)
def test_functions_of_networks(sample):
    compare(slopes(sample), *sample.arrays, rtol=1e-8)


# Shapes at which a walk over the domain is another one


SHAPES = [(300, 40), (5, 1100), (3, 5, 7, 11), (4, 1, 6), (1500, 4), (70000,)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_folds_over_every_axis(shape):
    """Rows of a part of a warp, a warp, a block and several blocks; sums over first axes, over several, in parts."""
    axes = [None, *range(len(shape)), *([(0, len(shape) - 1)] if len(shape) > 2 else [])]

    def f(x):
        return [(pb.sum(pb.sin(x), axis=a), pb.max(x, axis=a), pb.any(x > 3, axis=a)) for a in axes]

    compare(f, normal(*shape))


@pytest.mark.parametrize("shape", [(37, 48), (700, 3), (5, 1100), (1, 7), (1, 33000)], ids=str)
def test_rows_in_several_phases(shape):
    """What several phases read is kept in registers, or not; sums over rows are made beside."""

    def loss(x, scale, shift):
        y = pb.nn.layer_norm(x, scale, shift)
        return pb.sum(pb.nn.log_softmax(y, axis=-1) * pb.sin(x))

    compare(pb.value_and_grad(loss, argnums=(0, 1, 2)), normal(*shape), normal(shape[1]), normal(shape[1]), rtol=1e-7)


@pytest.mark.parametrize(("shape", "half"), [((70, 300), 0), ((5, 1030), 1 << 20), ((20, 1034), 2048)], ids=str)
def test_rows_too_long_for_registers_stay_in_shared_memory(shape, half, monkeypatch):
    """What takes the place of a load, as the exponentials of a softmax, is computed once; or once for what registers
    have of a row, and once for what shared memory has.
    """
    monkeypatch.setattr(rows, "KEPT_BYTES", 0)
    monkeypatch.setattr(rows, "HALF_SHARED_BYTES", half)
    monkeypatch.setattr(row_shape, "BUSY_THREADS", 1 << 10 if half == 2048 else 1 << 16)
    x, labels = normal(*shape, dtype=np.float32), indices(shape[1], shape[0]) % shape[1]
    entropy = pb.value_and_grad(pb.nn.cross_entropy)
    compare(entropy, x, labels, rtol=2e-5)
    (text,) = [x for x in launches_of(entropy, x, labels) if "kept[]" in x]
    assert text.count("expf") == 1 + (half == 2048)
    norm = pb.value_and_grad(lambda x, y: pb.nn.cross_entropy(x, y) + pb.sum(pb.nn.layer_norm(x) * x))
    compare(norm, x, labels, rtol=2e-5)


@pytest.mark.parametrize(("shape", "slots"), [((40, 1030), 8), ((13, 1024), 5), ((3, 900), 7), ((9, 520), 4)], ids=str)
def test_long_rows_are_loaded_ahead(shape, slots, monkeypatch):
    """Rows that are and are not whole vectors of all threads; blocks that have no, one and several rows."""
    for of, name, value in [
        (rows_ahead, "THREADS", 64), (rows_ahead, "KEPT_BYTES", 80), (rows_ahead, "MIN_ROW_BYTES", 2048),
        (rows_ahead, "MIN_ROWS", 0), (rows_ahead, "SHARED_BYTES", slots * 64 * 16), (rows, "PROCESSORS", 4),
    ]:  # fmt: skip
        monkeypatch.setattr(of, name, value)
    x, labels = normal(*shape, dtype=np.float32), indices(shape[1], shape[0]) % shape[1]
    entropy = pb.value_and_grad(pb.nn.cross_entropy)
    compare(entropy, x, labels, rtol=2e-5)
    is_ahead = shape[1] % 4 == 0 and slots > -(-shape[1] // 256)
    assert any("copy_async_" in text for text in launches_of(entropy, x, labels)) == is_ahead
    # what is loaded ahead is overwritten by the result
    np.testing.assert_allclose(pb.jit(pb.nn.softmax, donate_argnums=0)(x.copy()), pb.nn.softmax(x), rtol=2e-5)
    heads = normal(3, shape[0], shape[1], dtype=np.float32)
    compare(lambda x: pb.nn.log_softmax(pb.permute_dims(x, (1, 0, 2)), axis=-1), heads, rtol=2e-5)
    halves = x.astype(pb.bfloat16)
    compare(lambda x: pb.astype(pb.max(x, axis=1), np.float32), halves, rtol=1e-2)


def test_integers_and_booleans_are_folded_as_numpy_does():
    x = np.random.default_rng(0).integers(-9, 9, (40, 33))

    def f(x):
        narrow = pb.astype(x, np.int8)
        return pb.prod(narrow, axis=1), pb.max(narrow, axis=0), pb.sum(x > 3, axis=1), pb.all(x < 8, axis=0), pb.sum(x)

    compare(f, x)


def test_arrays_in_another_order_go_through_tiles():
    cases = [
        (lambda x: pb.permute_dims(x, (1, 0)) * 2, normal(130, 200)),
        (lambda x: pb.permute_dims(x, (0, 3, 1, 2)) + 1, normal(3, 33, 40, 9)),
    ]
    for f, x in cases:
        assert any("tile0[" in text for text in launches_of(f, x))
        compare(f, x)
    # small ones are near anyway
    assert not any("tile0[" in text for text in launches_of(lambda x: pb.permute_dims(x, (1, 0)) * 2, normal(20, 30)))


@pytest.mark.parametrize("how", [(3, 1, 1, 1), (3, 2, 1, 1), (2, 3, 0, 1), (3, 2, 0, 2)], ids=str)
def test_overlapping_windows_are_gathered(how):
    size, stride, padding, dilation = how

    def loss(x, w):
        return pb.sum(pb.sin(pb.nn.conv2d(x, w, stride=stride, padding=padding, dilation=dilation)))

    compare(pb.grad(loss), normal(2, 3, 9, 8), normal(5, 3, size, size))


def test_windows_of_pooling_overlap():
    compare(pb.grad(lambda x: pb.sum(pb.sin(pb.nn.max_pool2d(x, 3, stride=2)))), normal(2, 3, 9, 9))
    compare(pb.grad(lambda x: pb.sum(pb.sin(pb.nn.avg_pool2d(x, 3, stride=1)))), normal(2, 3, 6, 6))


def indices(high, *shape):
    return np.random.default_rng(list(shape)).integers(-high, high, shape)


def padded(count):
    """Indices of which most are one."""
    rng = np.random.default_rng(count)
    return np.where(rng.random(count) < 0.6, 3, rng.integers(0, 50, count))


SCATTERS = [
    (lambda w, i: pb.sum(pb.sin(w[i])), (normal(50, 7), indices(50, 300))),
    (lambda w, i: pb.sum(pb.sin(w[i])), (normal(50, 3), padded(900))),
    (lambda w, i: pb.sum(pb.sin(w[i])), (normal(2, 3), np.zeros(300, int))),
    (lambda w, i: pb.sum(pb.take_along_axis(w, i, axis=1) ** 2), (normal(90, 7), indices(7, 90, 3) % 7)),
    (lambda w, i, j: pb.sum(w[i, :, j] ** 2), (normal(9, 4, 7), indices(9, 100), indices(7, 100))),
    (lambda w, i: pb.sum(w[i] ** 2), (normal(70000), indices(70000, 1025))),
]


@pytest.mark.parametrize("case", range(len(SCATTERS)))
def test_many_stores_at_indices_are_sorted(case):
    f, args = SCATTERS[case]
    compare(pb.grad(f), *args)


@pytest.mark.parametrize(("places", "high"), [(70000, 70000), (300, 300), (70000, 3)])
def test_blocks_that_sort_together_keep_the_order_of_equal_keys(monkeypatch, places, high):
    args = normal(places), indices(high, 2600)
    f = pb.grad(lambda w, i: pb.sum(pb.sin(w[i]) * pb.exp(w[i])))
    before = pb.jit(f)(*args)
    monkeypatch.setattr(sorted_scatters, "MIN_POINTS_OF_BLOCKS", 1000)
    monkeypatch.setattr(sorted_scatters, "POINTS_OF_BLOCK", 256)
    assert any("block_sort_place_" in text for text in launches_of(f, *args))
    compare(f, *args)
    np.testing.assert_array_equal(pb.jit(lambda *args: f(*args))(*args), before)


def test_the_last_of_many_stores_at_one_place_stays():
    w, i, v = normal(50, 7), indices(50, 300), normal(300, 7)
    compare(lambda w, i, v: (pb.set_at(w, i, v), pb.set_at(w, (i, slice(None, None, -1)), v)), w, i, v)
    compare(lambda w, i, v: pb.add_at(w, i, v), np.arange(10), indices(10, 100), np.arange(100))


def test_an_index_out_of_range_is_noted():
    cases = [
        (lambda x, i: x[i], np.array([9])),
        (lambda x, i: pb.set_at(x, i, 0.0), np.array([-5])),
        (lambda x, i: pb.add_at(x, i, 1.0), np.arange(100)),
    ]
    for f, index in cases:
        with pytest.raises(IndexingError):
            pb.jit(f)(X, index)


def test_large_arrays_have_wide_indices():
    for size, wanted in ((1 << 10, "int"), (1 << 16, "long long")):
        source, target = (Buffer(kind, size * size, np.dtype(np.float32)) for kind in ("input", "output"))
        load = load_line(source, (size, 1))
        (launch,) = render_kernel(Kernel((size, size), 0, [load], [Store(load, target, (size, 1))]), {})
        assert f"using I = {wanted};" in launch.text


def test_launches_share_no_more_than_the_shared_memory_of_a_function():
    f, args = lambda *xs: [pb.permute_dims(x, (1, 0)) * 2 for x in xs], [normal(130 + i, 140) for i in range(16)]
    texts = launches_of(f, *args)
    sizes = [count_shared_bytes(text) for text in texts]
    assert sum(sizes) == 16 * 32 * 33 * 8 > MAX_SHARED_BYTES
    assert len(texts) < 16
    assert max(sizes) <= MAX_SHARED_BYTES
    compare(f, *args)


# The same bits whatever the order of blocks and threads


def step(w, scale, images, i, table):
    y = pb.nn.layer_norm(pb.nn.conv2d(images, w, padding=1), scale, axis=(1, 2, 3))
    return pb.sum(pb.sin(y)) + pb.sum(pb.nn.softmax(table[i]) ** 2)


def test_the_order_of_blocks_and_threads_changes_no_bit():
    args = [normal(4, 3, 3, 3), normal(4, 9, 8), normal(2, 3, 9, 8), padded(400), normal(50, 40)]
    args = [a.astype(np.float32) if a.dtype.kind == "f" else a for a in args]
    form = pb.jit(pb.value_and_grad(step, argnums=(0, 1, 2, 4))).lower(*args)
    c, given = form.code.compilation, [*args, *form.captured]
    found = []
    for backwards in (False, True):
        arrays = [aligned_copy(np.asarray(a)).reshape(-1) for a in given]
        outputs = [aligned_copy(np.zeros(s.shape, s.dtype)).reshape(-1) for s in c.out_specs]
        assert run_code(c.code, c.planned, arrays, outputs, backwards) == 0
        found.append([a.tobytes() for a in outputs])
    assert found[0] == found[1]


# What a reader sees


GOLDEN = Path(__file__).parent / "golden" / "data" / "cuda_kernels.cu"
SHOWN = {
    "elementwise: a vector for each thread": (lambda x, y: pb.tanh(x * 2) + y, (64, 8), (8,)),
    "softmax of rows: a part of a warp each": (lambda x: pb.nn.softmax(x), (96, 40)),
    "sums over the first axis": (lambda x: pb.sum(x * x, axis=0), (40, 96)),
    "a transposition, through tiles": (lambda x: pb.permute_dims(x, (1, 0)) + 1, (160, 192)),
}


def test_golden_texts():
    """The text of a few kernels; rewritten with PULLBACK_REWRITE_GOLDEN=1."""
    parts = []
    for title, (f, *shapes) in SHOWN.items():
        args = [normal(*shape, dtype=np.float32) for shape in shapes]
        parts += [f"// {title}\n", *(f"{text.rstrip()}\n" for text in launches_of(f, *args)), "\n"]
    found = "\n".join(parts)
    if os.environ.get("PULLBACK_REWRITE_GOLDEN"):
        GOLDEN.write_text(found)
    assert found == GOLDEN.read_text()
