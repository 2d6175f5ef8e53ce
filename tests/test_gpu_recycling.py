"""Arrays of results that are used again on a GPU: never while anything refers to them, their memory or a view."""

import threading
import weakref

import fake_cuda_driver
import numpy as np
import pytest

import pullback as pb
from pullback.compile.cuda.runtime import recycling
from pullback.compile.cuda.runtime.recycling import ResultArrays

F8 = np.dtype("f8")


@pytest.fixture
def gpu():
    recycling.release_idle()
    with fake_cuda_driver.installed() as (cupy, driver):
        yield cupy, driver
    recycling.release_idle()


def test_what_nothing_refers_to_is_used_again(gpu):
    arrays = ResultArrays(gpu[0], (4,), F8, 32)
    first, address = arrays.take(0)
    assert arrays.take(0)[1] != address
    del first
    assert address in {arrays.take(0)[1] for _ in range(3)}


@pytest.mark.parametrize(
    "hold",
    [
        lambda a: a, lambda a: [a], lambda a: a[1:], lambda a: a.reshape(2, 2).T, lambda a: a.data, weakref.ref,
        lambda a: a.data.mem, lambda a: a.__dlpack__(),
    ],
)  # fmt: skip
def test_what_something_refers_to_is_not(gpu, hold):
    arrays = ResultArrays(gpu[0], (4,), F8, 32)
    array, address = arrays.take(0)
    held = hold(array)
    del array
    for _ in range(5):
        assert arrays.take(0)[1] != address
    del held
    assert address in {arrays.take(0)[1] for _ in range(4)}


def test_streams_do_not_share_and_the_one_of_each_thread_has_no_ring(gpu):
    arrays = ResultArrays(gpu[0], (4,), F8, 32)
    (address,) = [arrays.take(5)[1]]
    assert arrays.take(6)[1] != address
    assert arrays.take(5)[1] == address
    arrays.take(2)
    assert 2 not in arrays._rings


def test_rings_are_bounded_and_given_back(gpu, monkeypatch):
    cupy, _ = gpu
    arrays = ResultArrays(cupy, (4,), F8, 32, limit=3)
    held = [arrays.take(0)[0] for _ in range(10)]
    assert len(arrays._rings[0].entries) == 3
    large = ResultArrays(cupy, (4,), F8, recycling.MAX_ARRAY_BYTES + 1)
    large.take(0)
    assert not large._rings
    pb.cuda.empty_cache()
    assert not arrays._rings
    monkeypatch.setattr(recycling, "ALL_BYTES", 1 << 12)
    several = [ResultArrays(cupy, (4,), F8, 32) for _ in range(20)]
    held += [each.take(0)[0] for each in several]
    assert sum(len(ring.entries) for each in several for ring in each._rings.values()) <= 8
    arrays.take(0)
    assert pb.cuda.memory_allocated() > 0
    assert not arrays._rings


def test_large_arrays_are_held_in_a_part_of_the_device(gpu, monkeypatch):
    cupy, _ = gpu
    monkeypatch.setattr(recycling, "MAX_ARRAY_BYTES", 1 << 10)
    assert recycling.large_bytes_of(cupy, 0) == cupy.cuda.runtime.memGetInfo()[1] // recycling.LARGE_SHARE
    large = ResultArrays(cupy, (256,), F8, 2048, 8, 10_000)
    held = [large.take(0)[0] for _ in range(4)]
    assert len(large._rings[0].entries) == 2
    del held
    assert {large.take(0)[1] for _ in range(3)} == {entry[3] for entry in large._rings[0].entries}
    others = [ResultArrays(cupy, (256,), F8, 2048, 8, 10_000) for _ in range(5)]
    assert all(each.take(0)[0].shape == (256,) for each in others)
    assert sum(len(ring.entries) for each in (large, *others) for ring in each._rings.values()) <= 4
    # of eager calls none are held
    assert not ResultArrays(cupy, (256,), F8, 2048).holds


def test_rings_are_emptied_where_memory_is_short(gpu, monkeypatch):
    cupy, _ = gpu
    other = ResultArrays(cupy, (4,), F8, 32)
    other.take(0)
    short = ResultArrays(cupy, (8,), F8, 64)
    make, tries = short._new, []

    def refuse_once(*args):
        tries.append(args)
        if len(tries) == 1:
            raise MemoryError("out of memory")
        return make(*args)

    monkeypatch.setattr(short, "_new", refuse_once)
    assert short.take(0)[0].shape == (8,)
    assert len(tries) == 2
    assert not other._rings


def test_a_loop_of_steps_finds_the_same_arrays_in_the_same_places(gpu):
    cupy, driver = gpu
    x = pb.tensor(cupy.asarray(np.linspace(0.1, 1, 6).reshape(2, 3)))
    w = pb.tensor(cupy.asarray(np.linspace(-1, 1, 12).reshape(3, 4)), requires_grad=True)
    addresses, graphs = [], []
    for _ in range(8):
        w.grad = None
        y = pb.tanh(pb.tanh(x @ w) @ w.T)
        loss = pb.sum(y * y)
        loss.backward()
        addresses.append([a.value.data.ptr for a in (y, loss, w.grad)])
        graphs.append(driver.log["graph launches"])
    assert addresses[-1] == addresses[-3]
    assert graphs[-1] - graphs[-2] == 5  # products that were made at these addresses before
    t = np.tanh(x.numpy() @ w.detach().numpy())
    np.testing.assert_allclose(y.detach().numpy(), np.tanh(t @ w.detach().numpy().T), rtol=1e-12)


def test_threads_never_get_the_same_array(gpu):
    arrays = ResultArrays(gpu[0], (4,), F8, 32, limit=4)
    faults = []

    def work(number):
        for i in range(300):
            taken = [arrays.take(0)[0] for _ in range(2)]
            for array in taken:
                array.fill(1000 * number + i)
            if any((array.get() != 1000 * number + i).any() for array in taken) or taken[0] is taken[1]:
                faults.append((number, i))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults


def test_eager_results_and_what_a_tape_saves_stay_as_they_are(gpu):
    cupy, _ = gpu
    x = pb.tensor(cupy.asarray(np.linspace(0.1, 1, 7)), requires_grad=True)
    kept, wanted = [], []
    for i in range(12):
        y = pb.tanh(x * (0.2 + 0.1 * i))
        kept.append([y, y[2:], pb.sum(y * y)])
        wanted.append(np.tanh(np.linspace(0.1, 1, 7) * (0.2 + 0.1 * i)))
    for (y, part, total), value in zip(kept, wanted, strict=True):
        np.testing.assert_allclose(y.detach().numpy(), value, rtol=1e-14)
        np.testing.assert_allclose(part.detach().numpy(), value[2:], rtol=1e-14)
        np.testing.assert_allclose(total.detach().numpy(), (value * value).sum(), rtol=1e-14)
    for i, (_, _, total) in reversed([*enumerate(kept)]):
        x.grad = None
        total.backward()
        slope = 2 * wanted[i] * (1 - wanted[i] ** 2) * (0.2 + 0.1 * i)
        np.testing.assert_allclose(x.grad.numpy(), slope, rtol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("shape", "axis"),
    [
        ((5,), None), ((1,), 0), ((3, 4), 0), ((3, 4), 1), ((3, 4), None), ((70, 33), 0), ((2, 700), 1), ((2, 3, 4), 1),
        ((2, 3, 4), (0, 1)), ((2, 3, 4), (1, 2)), ((2, 3, 4), (0, 2)), ((4, 1), 0), ((1, 4), 0), ((40, 1, 3), 0),
    ],
)  # fmt: skip
@pytest.mark.parametrize("keepdims", [False, True])
def test_sums_over_neighbouring_axes_are_one_launch(gpu, shape, axis, keepdims, dtype):
    cupy, driver = gpu
    a = np.random.default_rng(0).normal(size=shape).astype(dtype)
    x = pb.tensor(cupy.asarray(a))
    found = [pb.sum(x, axis=axis, keepdims=keepdims).numpy() for _ in range(4)]  # the first go by the general path
    before = driver.log["launches"]
    found.append(pb.sum(x, axis=axis, keepdims=keepdims).numpy())
    assert driver.log["launches"] - before == (axis != (0, 2))
    np.testing.assert_allclose(
        found[0], a.sum(axis=axis, keepdims=keepdims), rtol=1e-5 if dtype == "float32" else 1e-12
    )
    assert found[0].shape == np.sum(a, axis=axis, keepdims=keepdims).shape
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])


@pytest.mark.parametrize("make", [lambda a: a.T, lambda a: a[::2], lambda a: a[:, 1:], lambda a: a[:0]])
def test_sums_of_views_have_the_bits_of_sums_of_copies(gpu, make):
    cupy, _ = gpu
    a = np.random.default_rng(1).normal(size=(6, 4))
    x, y = make(pb.tensor(cupy.asarray(a))), pb.tensor(cupy.asarray(make(a).copy()))
    for _ in range(4):
        found = pb.sum(x, axis=0).numpy()
        np.testing.assert_allclose(found, make(a).sum(0), rtol=1e-12)
        np.testing.assert_array_equal(found, pb.sum(y, axis=0).numpy())


def test_special_values_go_through_sums(gpu):
    cupy, _ = gpu
    a = np.array([[1.0, np.inf, np.nan, -np.inf, 0.0], [1.0, -1.0, 1.0, -np.inf, -0.0]])
    for axis in (0, 1):
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(pb.sum(pb.tensor(cupy.asarray(a)), axis=axis).numpy(), a.sum(axis))
