"""Convolutions and pooling in native code: against NumPy's values, in every mode, and what they must not touch."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from window_cases import OPS, assert_close, convolution_calls, normal, numpy_value, pooling_calls

import pullback as pb
from pullback.compile.cpu.window import convolution, library, pooling
from pullback.errors import PullbackError, ShapeError
from pullback.ops.dispatch import apply

pytest.importorskip("llvmlite")
needs_vectors = pytest.mark.skipif(not library.can_run_natively(), reason="the processor has no such vectors")
pytestmark = needs_vectors


def rng(seed):
    return np.random.default_rng(seed)


def count_jobs(monkeypatch):
    """The kinds of window functions that run from now on."""
    kinds, call = [], library.WindowFunction.__call__

    def counted(self, job, tasks):
        kinds.append(self)
        call(self, job, tasks)

    monkeypatch.setattr(library.WindowFunction, "__call__", counted)
    return kinds


@pytest.mark.parametrize("seed", range(40))
def test_convolutions_are_those_of_numpy(seed, monkeypatch):
    jobs = count_jobs(monkeypatch)
    for op, arrays, static in convolution_calls(rng(seed)):
        assert_close(op.value(np, *arrays, **static), numpy_value(op, arrays, static))
    assert len(jobs) >= 2  # a grid that no tap reaches has no job


@pytest.mark.parametrize("seed", range(40))
def test_poolings_are_those_of_numpy(seed, monkeypatch):
    jobs = count_jobs(monkeypatch)
    for op, arrays, static in pooling_calls(rng(seed)):
        assert_close(op.value(np, *arrays, **static), numpy_value(op, arrays, static))
    assert len(jobs) >= 5


def test_many_images_channels_and_taps():
    """More than one chunk of rows, block of the depth, panel, block of images and task."""
    x, w = rng(0).normal(size=(6, 90, 20, 20)).astype("f"), rng(1).normal(size=(40, 45, 3, 3)).astype("f")
    how = {"stride": (1, 1), "padding": ((1, 1), (1, 1)), "dilation": (1, 1), "groups": 2}
    y = OPS["convolution"].value(np, x, w, **how)
    for op, arrays, sizes in (("convolution_back", (y, w), (20, 20)), ("convolution_weight", (x, y), (3, 3))):
        static = {"sizes": sizes, **how}
        assert_close(OPS[op].value(np, *arrays, **static), numpy_value(OPS[op], arrays, static))
    assert_close(y, numpy_value(OPS["convolution"], (x, w), how))


@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_what_lies_around_is_not_multiplied(bad):
    """An element under no window at a tap does not see that tap's weight, be it infinite."""
    y, w = np.ones((1, 1, 9)), np.array([[[bad, 1.0, 1.0]]])
    found = pb.nn.conv_transpose1d(y, w)
    assert np.isfinite(found[0, 0, -2:]).all()
    with pb.native(False):
        np.testing.assert_array_equal(found, pb.nn.conv_transpose1d(y, w))
    x = np.ones((2, 2, 9))
    compiled = pb.jit(lambda w, x: pb.nn.conv_transpose1d(x, w, groups=2))
    assert np.isfinite(compiled(np.concatenate([w, w]), x)[..., -2:]).all()


def test_halves_are_convolved_in_float32(monkeypatch):
    jobs = count_jobs(monkeypatch)
    x, w = (rng(4).normal(size=shape).astype("float16") for shape in ((2, 3, 9), (4, 3, 3)))
    found = pb.nn.conv1d(x, w)
    assert jobs
    assert found.dtype == "float16"
    taps = np.lib.stride_tricks.sliding_window_view(x.astype("d"), 3, axis=2)
    wanted = np.einsum("nitk,oik->not", taps, w.astype("d"))
    np.testing.assert_allclose(found, wanted, rtol=2**-11 + 1e-6)  # one rounding


def test_integers_and_empty_arrays_are_left_to_numpy(monkeypatch):
    jobs = count_jobs(monkeypatch)
    x, w = np.ones((1, 2, 5)), np.ones((2, 2, 3))
    for dtype in ("int64", "complex128"):
        assert pb.nn.conv1d(x.astype(dtype), w.astype(dtype)).dtype == dtype
    assert pb.nn.conv1d(x[:0], w).shape == (0, 2, 3)
    assert pb.nn.conv1d(x.astype("f"), w).dtype == np.float64
    assert pb.nn.max_pool1d(x.astype(int), 2).dtype == int
    assert not jobs


@pytest.mark.parametrize(
    ("x", "w", "groups"), [((1, 3, 9), (2, 2, 3), 1), ((1, 4, 9), (3, 2, 3), 2), ((1, 2, 9), (2, 2, 3, 3), 1)]
)
def test_shapes_that_do_not_fit_raise(x, w, groups):
    how = {"stride": (1,), "padding": ((0, 0),), "dilation": (1,), "groups": groups}
    with pytest.raises(ShapeError):
        apply(OPS["convolution"], np.ones(x), np.ones(w), **how)
    with pytest.raises(ShapeError):
        apply(OPS["convolution_weight"], np.ones((1, 2, 9)), np.ones((1, 2, 5)), sizes=(3,), **how)


@pytest.mark.parametrize("place", [4, -5, 2**30, -(2**30)])
def test_a_place_outside_its_window_raises(place):
    how = {"window": (2, 2), "stride": (2, 2), "padding": ((0, 0), (0, 0)), "dilation": (1, 1)}
    index = np.full((1, 1, 2, 2), place, np.int32)
    with pytest.raises(PullbackError):
        apply(OPS["window_take"], np.ones((1, 1, 4, 4)), index, **how)
    with pytest.raises(PullbackError):
        apply(OPS["window_put"], np.ones((1, 1, 2, 2)), index, sizes=(4, 4), **how)


def test_native_code_can_be_turned_off(monkeypatch):
    jobs = count_jobs(monkeypatch)
    x, w = normal(rng(0), (2, 3, 8, 8), "f"), normal(rng(1), (4, 3, 3, 3), "f")
    with pb.native(False):
        off = pb.nn.conv2d(x, w)
    assert not jobs
    assert_close(pb.nn.conv2d(x, w), off)
    assert len(jobs) == 1


def test_without_a_compiler_numpy_runs(monkeypatch):
    for module in (convolution, pooling):
        monkeypatch.setattr(module, "can_run_natively", lambda: False)
    jobs = count_jobs(monkeypatch)
    assert pb.nn.avg_pool2d(pb.nn.conv2d(np.ones((1, 1, 8, 8)), np.ones((1, 1, 3, 3))), 2).item((0, 0, 0, 0)) == 9.0
    assert not jobs


def test_a_new_shape_compiles_nothing(monkeypatch):
    how = {"stride": (1, 1), "padding": ((1, 1), (1, 1)), "dilation": (1, 1)}
    pb.nn.conv2d(np.ones((2, 8, 9, 9)), np.ones((8, 8, 3, 3)), padding=1)
    monkeypatch.setattr(library, "link", lambda *_: pytest.fail("a module was linked"))
    for n in range(1, 20):
        pb.nn.conv2d(np.ones((n, 8, 7 + n, 9)), np.ones((8 + n, 8, 3, 2)), **how)


@pytest.mark.parametrize("calls", [convolution_calls, pooling_calls])
def test_the_same_bits_each_time_and_on_any_number_of_threads(calls):
    found, before = [], pb.get_num_threads()
    x, w = rng(3).normal(size=(8, 16, 24, 24)).astype("f"), rng(4).normal(size=(32, 16, 3, 3)).astype("f")
    given = calls(rng(5))
    if calls is convolution_calls:  # long enough to be shared
        how = {"stride": (1, 1), "padding": ((1, 1), (1, 1)), "dilation": (1, 1), "groups": 1}
        y = OPS["convolution"].value(np, x, w, **how)
        given += [(OPS["convolution"], (x, w), how), (OPS["convolution_weight"], (x, y), {"sizes": (3, 3), **how})]
    try:
        for threads in (1, 1, 2, 3):
            pb.set_num_threads(threads)
            found.append([op.value(np, *arrays, **static).tobytes() for op, arrays, static in given])
    finally:
        pb.set_num_threads(before)
    assert all(bits == found[0] for bits in found)


def test_calls_at_the_same_time_do_not_share_memory():
    x, w = rng(0).normal(size=(4, 8, 16, 16)), rng(1).normal(size=(8, 8, 3, 3))
    wanted = [pb.nn.conv2d(x * i, w, padding=1) for i in range(4)]
    wrong = []

    def work(i):
        for _ in range(30):
            wrong.extend([i] * (not np.array_equal(pb.nn.conv2d(x * i, w, padding=1), wanted[i])))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def network(x, w, v):
    h = pb.nn.max_pool2d(pb.tanh(pb.nn.conv2d(x, w, padding=1)), 2)
    h = pb.nn.avg_pool2d(pb.nn.conv2d(h, v, padding=1, stride=2, groups=4), 2, 1)
    return pb.sum(h**2)


def arguments():
    return [rng(i).normal(size=s) for i, s in enumerate([(2, 2, 10, 10), (4, 2, 3, 3), (8, 1, 3, 3)])]


ROLES = {
    "gradient": lambda x, w, v: pb.grad(network, argnums=(0, 1, 2))(x, w, v),
    "second order": lambda x, w, v: [pb.hvp(lambda w: network(x, w, v), (w,), (np.cos(w),))],
    "forward": lambda x, w, v: [pb.jvp(network, (x, w, v), (np.sin(x), np.cos(w), np.cos(v)))[1]],
    "batched": lambda x, w, v: [pb.vmap(pb.grad(network, argnums=1), (0, None, None))(np.stack([x, x + 1]), w, v)],
    "batched weights": lambda x, w, v: [pb.vmap(pb.grad(network), (None, 0, None))(x, np.stack([w, w + 1]), v)],
    "checkpointed": lambda x, w, v: [pb.grad(pb.checkpoint(network))(x, w, v)],
    "compiled": lambda x, w, v: pb.jit(pb.grad(network, argnums=(0, 1, 2)), check=True)(x, w, v),
}


@pytest.mark.parametrize("role", ROLES)
def test_every_mode_agrees_with_numpy(role):
    given = arguments()
    found = ROLES[role](*given)
    with pb.native(False):
        expected = ROLES[role](*given)
    for a, b in zip(found, expected, strict=True):
        assert_close(np.asarray(a), np.asarray(b))


def test_a_checkpoint_recomputes_the_same_bits():
    x, w, v = arguments()
    f = lambda x: pb.sum(pb.nn.conv2d(pb.nn.conv2d(x, w, padding=1) ** 2, v, stride=2, groups=4) ** 2)  # noqa: E731
    np.testing.assert_array_equal(pb.grad(pb.checkpoint(f))(x), pb.grad(f)(x))


@pytest.mark.parametrize("seed", range(8))
def test_grouped_convolutions_in_programs(seed):
    calls = [c for s in range(seed, 400, 8) for c in convolution_calls(rng(s)) if c[2]["groups"] > 1][:6]
    for op, arrays, static in calls:
        compiled = pb.jit(lambda a, b, op=op, static=static: pb.tanh(apply(op, a * 2, b, **static)), check=seed < 2)
        expected = np.tanh(numpy_value(op, (arrays[0] * 2, arrays[1]), static))
        assert_close(compiled(*arrays), expected)


def test_a_depthwise_convolution_in_a_program_calls_no_python():
    x, w = rng(0).normal(size=(2, 8, 12, 12)).astype("f"), rng(1).normal(size=(8, 1, 3, 3)).astype("f")
    step = pb.jit(pb.value_and_grad(lambda w, x: pb.sum(pb.nn.conv2d(x, w, padding=1, groups=8) ** 2), argnums=(0, 1)))
    text = step.lower(w, x).explain()
    assert "by NumPy" not in text
    assert "routine" in text


GUARDED = """
import ctypes
import sys
import numpy as np
from guarded import Guarded, Numpy
from window_cases import assert_close, convolution_calls, numpy_value, pooling_calls
from pullback.compile.cpu.window import convolution, plans, pooling
guard = Guarded(sys.argv[1])


def full(count, fill, dtype):
    # memory to work in is asked for with 64 bytes to spare for its alignment
    size = count * dtype.itemsize
    found = np.frombuffer((ctypes.c_uint8 * size).from_address(guard.bytes(size, 64)), dtype)
    found[: count - 64 // dtype.itemsize] = fill
    return found


plans.np = Numpy(full=full)
changed = Numpy(empty=guard.empty, zeros=lambda *a: guard.copy(np.zeros(*a)), ascontiguousarray=guard.ascontiguousarray)
convolution.np = pooling.np = changed
for seed in range(100, 125):
    for calls in (convolution_calls, pooling_calls):
        for op, arrays, static in calls(np.random.default_rng(seed)):
            expected = numpy_value(op, arrays, static)
            assert_close(op.value(np, *map(guard.copy, arrays), **static), expected)
print("done")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="forbids pages by Linux's calls")
@pytest.mark.parametrize("place", ["start", "end"])
def test_nothing_outside_is_touched(place):
    path = os.pathsep.join([str(Path(__file__).parent), *map(os.path.abspath, sys.path)])
    done = subprocess.run(
        [sys.executable, "-c", GUARDED, place],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": path},
        check=False,
    )
    assert done.stdout.split() == ["done"], done.stderr[-2000:]
