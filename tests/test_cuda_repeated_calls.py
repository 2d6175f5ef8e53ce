"""Calls of a compiled function with the very arrays of the call before, on a stand-in for a GPU."""

import gc
import threading

import fake_cuda_driver
import numpy as np
import pytest

import pullback as pb
from pullback.compile.cuda.runtime import recycling, repeated_call, runner

cuda_emulator = pytest.importorskip("cuda_emulator")
if not cuda_emulator.has_compiler():
    pytest.skip("the emulator needs g++", allow_module_level=True)

X, W = np.linspace(-1, 1, 12).reshape(4, 3), np.linspace(0.5, 2, 12).reshape(4, 3)


@pytest.fixture(params=[1, 3], ids=["one round", "three rounds"])
def gpu(request, monkeypatch):
    """Sets of results that are remembered."""
    monkeypatch.setattr(repeated_call, "MAX_ROUNDS", request.param)
    monkeypatch.setattr(repeated_call, "_CALLS_BEFORE_SPARE", 2)
    recycling.release_idle()
    with fake_cuda_driver.installed() as (cupy, driver):
        yield cupy, driver
    recycling.release_idle()


def both(x, w):
    return pb.sin(x) * w, pb.sum(x * w, axis=0)


def check(found, x, w):
    for a, b in zip(found, both(x, w), strict=True):
        np.testing.assert_allclose(a.get(), b, rtol=1e-12)


@pytest.mark.parametrize("kept", [0, 1, 2, 7])
def test_results_that_are_kept_stay_as_they_are(gpu, kept):
    """While the arguments change in place, which nothing but the device sees."""
    cupy, driver = gpu
    compiled, x, w = pb.jit(both), cupy.asarray(X), cupy.asarray(W)
    seen = []
    for i in range(16):
        x.set(X + i)
        seen.append((i, compiled(x, w)))
        for j, found in seen:
            check(found, X + j, W)
        seen = seen[len(seen) - min(len(seen), kept) :]
    if kept < 3:
        assert driver.log["graph launches"] > 8


@pytest.mark.parametrize("part", [lambda found: found[0], lambda found: found[1][1:], lambda found: found[0].data])
def test_a_part_of_the_results_is_kept(gpu, part):
    cupy, _ = gpu
    compiled, x, w = pb.jit(both), cupy.asarray(X), cupy.asarray(W)
    held = []
    for i in range(12):
        x.set(X + i)
        found = compiled(x, w)
        check(found, X + i, W)
        held.append(part(found))
    places = {getattr(a, "data", a).ptr for a in held}
    assert len(places) == 12


def test_other_arrays_take_the_place_of_the_first(gpu):
    """An array that is gone may leave its identity and its address to another."""
    cupy, _ = gpu
    compiled, w = pb.jit(both), cupy.asarray(W)
    for i in range(6):
        x = cupy.asarray(X + i)
        for _ in range(5):
            check(compiled(x, w), X + i, W)
        del x
        gc.collect()
    x, y = cupy.asarray(X), cupy.asarray(W)
    for i in range(12):
        check(compiled(*((x, y) if i % 2 else (y, x))), *((X, W) if i % 2 else (W, X)))
    for i in range(8):
        check(compiled(x, x if i > 4 else y), X, X if i > 4 else W)


@pytest.mark.parametrize(("first", "shape"), [((4, 3), (2, 6)), ((4, 3), (4, 3, 1)), ((2, 3, 2), (2, 2, 3))], ids=str)
def test_a_shape_that_changes_in_place_is_seen(gpu, first, shape):
    cupy, _ = gpu
    for donated in ((), 0):
        step = pb.jit(lambda x, w: (x * 2 + w[0, 0], pb.sum(x, axis=0)), donate_argnums=donated)
        x, w = cupy.asarray(X.reshape(first)), cupy.asarray(W)
        for i in range(6):
            if i == 5:
                x._memory.shape = shape
            before = x.get()
            found, total = step(x, w)
            np.testing.assert_allclose(found.get(), before * 2 + W[0, 0])
            np.testing.assert_allclose(total.get(), before.sum(0))


def test_donated_arguments_are_overwritten_each_time(gpu):
    cupy, _ = gpu
    step = pb.jit(lambda w, x: (pb.sum(w), w - 0.1 * x), donate_argnums=0)
    w, x, wanted = cupy.asarray(W), cupy.asarray(X), W.copy()
    for _ in range(9):
        total, found = step(w, x)
        assert found is w
        np.testing.assert_allclose(total.get(), wanted.sum())
        wanted = wanted - 0.1 * X
        np.testing.assert_allclose(found.get(), wanted)


def test_streams_graphs_and_idle_memory_come_and_go(gpu, monkeypatch):
    cupy, driver = gpu
    monkeypatch.setattr(runner, "MAX_NODES", 1)
    monkeypatch.setattr(runner, "MAX_STREAMS", 2)
    compiled, x, w = pb.jit(both), cupy.asarray(X), cupy.asarray(W)
    streams = [cupy.cuda.Stream() for _ in range(3)]  # more than have memory at once
    for i in range(48):
        x.set(X + i)
        if i % 6 == 5:
            pb.cuda.empty_cache()
        if i % 8 == 7:  # graphs of other arrays push out those of these
            for _ in range(3):
                others = [cupy.asarray(W) for _ in range(10)]
                for other in others:
                    check(compiled(x, other), X + i, W)
        with streams[i // 8 % 3]:
            found = compiled(x, w)
        check(found, X + i, W)
    assert driver.log["captures"] > 1


def test_threads_share_a_compiled_function(gpu):
    cupy, _ = gpu
    compiled, x, faults = pb.jit(both), cupy.asarray(X), []

    def work(number):
        own, wanted = cupy.asarray(W + number), both(X, W + number)
        for i in range(60):
            shared = i % 3 == 0
            found = compiled(x, x if shared else own)
            right = both(X, X) if shared else wanted
            if not all(np.allclose(a.get(), b) for a, b in zip(found, right, strict=True)):
                faults.append((number, i))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults
