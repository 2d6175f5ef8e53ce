"""Devices: what a newcomer types, moves with derivatives, mixtures refused. On a GPU, or on a stand-in for CuPy."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import numpy_calls
import pytest
from fake_cupy.array import FakeCapsule
from gpu import REAL, cupy, installed_cupy  # noqa: F401

import pullback as pb
from pullback.errors import ArgumentError, ConversionError, DeviceError

KEY = pb.random.key(5)
needs_two = pytest.mark.skipif(REAL and cupy.cuda.runtime.getDeviceCount() < 2, reason="wants two GPUs")


def on_gpu(*numbers, dtype="float64"):
    return pb.tensor(cupy.asarray(np.array(numbers, dtype)), requires_grad=True)


# Names of devices.


@pytest.mark.parametrize("name", ["cuda", "cuda:0", "gpu", "gpu:0", pb.device("cpu")])
def test_devices_by_their_names(name):
    wanted = "cpu" if name == "cpu" else "cuda:0"
    assert pb.device(name) == wanted
    made = [
        pb.tensor([1.0], device=name), pb.asarray([1.0], device=name), pb.zeros(2, device=name),
        pb.arange(3, device=name), pb.full(2, 7.0, device=name), pb.eye(2, device=name), pb.ones(2).to(name),
        pb.linspace(0, 1, 3, device=name), pb.ones(2).to_device(name), pb.astype(pb.ones(2), "float32", device=name),
    ]  # fmt: skip
    assert [x.device for x in made] == [wanted] * len(made)


def test_a_device_of_another_library_is_a_name_too():
    class Device:
        type, index = "cuda", 0

    assert pb.zeros(2, device=Device()).device == "cuda:0"
    assert pb.zeros(2, device=cupy.cuda.Device(0)).device == "cuda:0"
    assert pb.ones(2).to(Device()).device == "cuda:0"
    assert (pb.device("cuda").type, pb.device("cuda").index, pb.device("cpu").index) == ("cuda", 0, None)


def test_a_device_that_is_not_there_is_refused_with_those_that_are():
    with pytest.raises(DeviceError, match=r"no device 'cuda:77'.\n  This machine has 'cpu', 'cuda:0'"):
        pb.zeros(2, device="cuda:77")
    for wrong in ("cuda:x", "tpu", "cuda:-1", 3.5):
        with pytest.raises(DeviceError, match="no device"):
            pb.ones(2).to_device(wrong)


def test_the_namespace_of_gpus():
    assert pb.cuda.is_available()
    assert pb.cuda.device_count() >= 1
    assert pb.cuda.current_device() == 0
    kept = pb.zeros(1000, device="cuda")
    pb.cuda.synchronize()
    assert pb.cuda.memory_reserved() >= pb.cuda.memory_allocated() > 0
    free, total = pb.cuda.mem_get_info("cuda:0")
    assert 0 < free <= total
    assert pb.cuda.get_device_name(0)
    pb.cuda.empty_cache()
    assert kept.size == 1000


# Numbers beside arrays of a GPU.


@pytest.mark.parametrize("number", [2.0, np.float32(2), np.float64(2), np.array(2.0), np.int64(2)])
def test_numbers_take_part_on_any_device(number):
    x = on_gpu(1.0, 3.0, dtype="float32")
    for y, twin in ((number * x, number * np.float32([1, 3])), (x - number, np.float32([1, 3]) - number)):
        assert y.device == "cuda:0"
        assert y.dtype == twin.dtype
        np.testing.assert_allclose(y.detach().numpy(), twin)
    pb.sum(number * x).backward()
    np.testing.assert_allclose(x.grad.numpy(), [2, 2])


def test_a_number_that_carries_a_derivative_gets_it_on_its_own_device():
    w, x = pb.tensor(2.0, requires_grad=True), on_gpu(1.0, 3.0)
    pb.sum(w * x * w).backward()
    assert w.grad.device == "cpu"
    assert float(w.grad) == 16.0
    assert pb.grad(pb.grad(lambda w: pb.sum(w**3 * x.detach())))(2.0) == 48.0


def test_writing_to_elements():
    x = on_gpu(1.0, 2.0, 3.0, 4.0)
    y = x * 1.0
    y[0] = 3.0
    y[1] = np.float32(7)
    y[cupy.array([2, 2])] = np.array(5.0)
    y[y > 6] = 0.0
    assert y.tolist() == [3.0, 0.0, 5.0, 4.0]
    pb.sum(y * y).backward()
    assert x.grad.tolist() == [0.0, 0.0, 0.0, 8.0]


def test_what_is_assigned_stays_on_the_device():
    x = on_gpu(1.0, 2.0)
    y = x * 1.0
    assert y.fill_(3.0).device == "cuda:0"
    x.grad = pb.ones(2, device="cuda")
    with pytest.raises(DeviceError, match="grad"):
        x.grad = np.ones(2)
    net = pb.nn.Linear(2, 1).cuda()
    net.load_state_dict(pb.nn.Linear(2, 1).state_dict())
    assert {p.device for p in net.parameters()} == {"cuda:0"}


#: Functions that CuPy lacks, beside those that say so themselves.
ELSEWHERE = ("histogram", "isin", "vecmat")


@pytest.mark.skipif(REAL, reason="each call would compile a kernel")
@pytest.mark.parametrize(("kind", "expression"), numpy_calls.calls(numpy_calls.SMOOTH)[::2])
def test_calls_of_numpy(kind, expression):
    """The result on a GPU, on the GPU; or an error that names the op: constants of NumPy are in some expressions."""
    if any(name in expression for name in ELSEWHERE):
        return
    x = numpy_calls.ARRAYS[kind]
    names = {k: cupy.asarray(v) if isinstance(v, np.ndarray) else v for k, v in numpy_calls.NAMES.items()}
    try:
        found = eval(expression, dict(names, x=pb.tensor(cupy.asarray(x))))
    except DeviceError:
        return
    expected = numpy_calls.run(expression, pb.tensor(x))
    for one, other in zip(pb.tree.leaves(found), pb.tree.leaves(expected), strict=True):
        if isinstance(other, pb.Tensor):
            assert one.device == "cuda:0"
            np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-9, atol=1e-12)


def test_conditions_that_are_plain_numbers():
    x = on_gpu(1.0, 2.0)
    for condition, wanted in ((False, [0.0, 0.0]), (np.bool_(True), [1.0, 2.0])):
        assert pb.where(condition, x, 0).tolist() == wanted
    assert pb.nn.dropout(x, 1.0).tolist() == [0.0, 0.0]


DTYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint64", "float16", "float32", "complex64"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_scatters_of_every_dtype(dtype):
    places = np.array([0, 2, 0, 0])
    values = np.array([1, 1, 1, 0]).astype(dtype)

    def scattered(values, places):
        base = pb.asarray(values[:3] * False) if dtype != "bool" else pb.asarray(values[:3] & False)
        return pb.index_add(base, 0, places, values)

    expected = scattered(values, places)
    found = scattered(cupy.asarray(values), cupy.asarray(places))
    assert found.dtype == expected.dtype
    assert found.tolist() == expected.tolist()
    if dtype not in ("bool", "complex64"):
        for reduce in ("amax", "amin"):
            expected = pb.scatter_reduce(values[:3], 0, places[:3], values[1:], reduce=reduce)
            there = (cupy.asarray(x) for x in (values[:3], places[:3], values[1:]))
            x, index, moved = there
            found = pb.scatter_reduce(x, 0, index, moved, reduce=reduce)
            assert (found.dtype, found.tolist()) == (expected.dtype, expected.tolist())


def test_mixed_devices_name_the_op_the_arguments_and_the_line():
    with pytest.raises(DeviceError, match=r"multiply: x is float64\[2\] on cuda:0, y is float64\[2\] on cpu") as error:
        on_gpu(1.0, 2.0) * np.ones(2)
    assert "test_devices.py" in str(error.value)
    assert "on_gpu(1.0, 2.0) * np.ones(2)" in str(error.value)
    with pytest.raises(DeviceError, match=r"matvec: x is .* on cpu, y is .* on cuda:0"):
        pb.ones((2, 2)) @ on_gpu(1.0, 2.0)


# Moves.


def test_a_move_has_a_derivative():
    w = pb.tensor([1.0, 2.0], requires_grad=True)
    y = pb.sum(w.to("cuda") ** 2)
    assert y.device == "cuda:0"
    y.backward()
    assert w.grad.device == "cpu"
    assert w.grad.tolist() == [2.0, 4.0]
    x = on_gpu(1.0, 2.0)
    pb.sum(pb.sin(x.cpu()) * x.detach().cpu()).backward()
    assert x.grad.device == "cuda:0"
    np.testing.assert_allclose(x.grad.numpy(), np.cos([1.0, 2.0]) * [1.0, 2.0])


def test_moves_in_every_mode():
    def f(x):
        return pb.sum(pb.asarray(x).to("cuda") ** 3).cpu()

    x, v = np.array([1.0, 2.0]), np.array([1.0, -1.0])
    np.testing.assert_allclose(pb.grad(f)(x), [3.0, 12.0])
    np.testing.assert_allclose(pb.jvp(f, (x,), (v,))[1], -9.0)
    np.testing.assert_allclose(pb.hessian(f)(x), np.diag([6.0, 12.0]))
    np.testing.assert_allclose(pb.vmap(f)(np.stack([x, v])), [9.0, 0.0])
    np.testing.assert_allclose(pb.jacobian(lambda x: pb.asarray(x).to("cuda").cpu() * 2)(x), 2 * np.eye(2))
    np.testing.assert_allclose(pb.checkpoint(f)(x), 9.0)
    program = pb.stage(f)(x)
    assert [e.op.name for e in program.equations].count("to_device") == 2
    np.testing.assert_allclose(program(x), 9.0)


def test_moves_in_compiled_functions():
    """A program with two devices runs op by op; one on a GPU keeps its arrays there."""

    def f(x):
        return pb.sum(pb.sin(pb.asarray(x).to("cuda")) * 2).to("cpu")

    x = np.arange(3.0)
    np.testing.assert_allclose(pb.jit(f)(x), 2 * np.sin(x).sum())
    np.testing.assert_allclose(pb.grad(pb.jit(f))(x), 2 * np.cos(x))
    twice = pb.jit(lambda x: (pb.asarray(x) * 2).to("cpu") + 1)(cupy.asarray(x))
    assert twice.tolist() == [1.0, 3.0, 5.0]
    two = pb.jit(lambda x, y: (x * 2, y * 3))(cupy.asarray(x), x)
    assert isinstance(two[0], cupy.ndarray)
    assert isinstance(two[1], np.ndarray)
    assert isinstance(pb.jit(lambda x, y: x * y)(cupy.asarray(x), np.array(2.0)), cupy.ndarray)
    with pytest.raises(DeviceError, match=r"multiply: x is float64\[3\] on cuda:0, y is float64\[3\] on cpu"):
        pb.jit(lambda x, y: x * y)(cupy.asarray(x), x)


def test_a_move_to_where_a_tensor_lies_is_the_tensor():
    x = on_gpu(1.0)
    assert x.to("cuda") is x
    assert x.cuda() is x
    assert x.cuda(0).cpu().cpu().device == "cpu"
    assert x.to(pb.float32, copy=True).dtype == np.float32
    assert pb.asarray(x, device="cpu").requires_grad


@needs_two
def test_two_gpus():
    x = pb.tensor([1.0, 2.0, 3.0], device="cuda:1", requires_grad=True)
    y = pb.sum(pb.where(x > 1, pb.exp(x), 0.0)[1:]) + pb.logsumexp(x)
    y.backward()
    assert (y.device, x.grad.device, x.grad.value.device.id) == ("cuda:1", "cuda:1", 1)
    twin = pb.tensor([1.0, 2.0, 3.0], requires_grad=True)
    (pb.sum(pb.where(twin > 1, pb.exp(twin), 0.0)[1:]) + pb.logsumexp(twin)).backward()
    np.testing.assert_allclose(x.grad.numpy(), twin.grad.numpy())
    assert pb.zeros_like(x).device == "cuda:1"
    assert pb.random.normal(size=3, key=KEY, device="cuda:1").device.id == 1
    with pytest.raises(DeviceError, match=r"x is .* on cuda:0, y is .* on cuda:1"):
        pb.add(pb.ones(3, device="cuda:0"), x)
    moved = x.to("cuda:0") * 2
    assert moved.value.device.id == 0
    pb.sum(moved).backward()
    np.testing.assert_allclose(pb.hessian(lambda x: pb.sum(x**3))(x.detach().value).get(), np.diag([6.0, 12.0, 18.0]))
    with cupy.cuda.Device(1):
        assert pb.zeros(1, device="cuda").device == "cuda:1"
        assert (pb.ones(2, device="cuda:0") * 2).device == "cuda:0"


# Memory of other libraries.


def test_memory_of_a_gpu_is_never_shared():
    array = cupy.asarray([1.0, 2.0])
    x = pb.asarray(array).requires_grad_()
    y = pb.sum(x * x)
    array[0] = 5.0
    y.backward()
    assert x.grad.tolist() == [2.0, 4.0]
    with pytest.raises(ArgumentError, match="cannot be locked"):
        pb.asarray(array, copy=False)
    for taken in (x.detach().cupy(), cupy.asarray(x.detach())):
        assert isinstance(taken, cupy.ndarray)
        taken[0] = 9.0
    assert x.tolist() == [1.0, 2.0]
    with pytest.raises(ConversionError, match="derivatives"):
        cupy.asarray(x)
    with pytest.raises(ConversionError, match=r"x\.cuda"):
        pb.ones(2).cupy()


def test_a_saved_bare_array_of_a_gpu_may_be_overwritten():
    array, x = cupy.asarray([1.0, 2.0]), on_gpu(3.0, 4.0)
    y = pb.sum(x * array)
    array[0] = 7.0
    y.backward()
    assert x.grad.tolist() == [1.0, 2.0]


def test_functions_of_cupy_on_tensors():
    x = on_gpu(1.0, 2.0)
    pb.sum(cupy.sin(x) * cupy.multiply(cupy.asarray([2.0, 3.0]), x)).backward()
    np.testing.assert_allclose(x.grad.numpy(), np.array([2, 3]) * (np.sin([1, 2]) + [1, 2] * np.cos([1, 2])))
    for reduce, wanted in ((cupy.sum, 3.0), (cupy.mean, 1.5), (cupy.max, 2.0), (cupy.prod, 2.0)):
        assert reduce(x).requires_grad
        assert float(reduce(x).detach()) == wanted


class ForeignArray:
    """A library's own array on a GPU, known by DLPack alone."""

    def __init__(self, memory):
        self.memory = memory

    def __dlpack_device__(self):
        return (2, 0)

    def __dlpack__(self, **options):
        return FakeCapsule(self.memory, 0)


@pytest.mark.skipif(REAL, reason="wants a library that pretends")
def test_arrays_of_other_libraries_on_a_gpu():
    memory = np.ones(2, "float32")
    x = pb.asarray(ForeignArray(memory))
    memory[0] = 5.0
    assert (x.device, x.tolist(), x.dtype) == ("cuda:0", [1.0, 1.0], np.float32)
    assert pb.asarray(ForeignArray(memory), dtype=pb.float64, device="cpu").tolist() == [5.0, 1.0]


# Random numbers, checks, files.

DRAWS = {
    "normal": (), "uniform": (), "laplace": (), "exponential": (), "gamma": (2.0,), "beta": (2.0, 3.0), "chi2": (3.0,),
    "student_t": (3.0,), "integers": (7,), "bernoulli": (0.3,), "bits": (),
}  # fmt: skip


@pytest.mark.parametrize("name", DRAWS)
def test_draws_on_a_device(name):
    draw = getattr(pb.random, name)
    expected = draw(*DRAWS[name], size=(2, 3), key=KEY)
    for found in (
        draw(*DRAWS[name], size=(2, 3), key=KEY, device="cuda"),
        draw(*DRAWS[name], size=(2, 3), key=cupy.asarray(KEY)),
    ):
        assert isinstance(found, cupy.ndarray)
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found.get(), expected, rtol=1e-12)


def test_draws_by_the_device_of_their_parameters():
    logits = cupy.asarray([0.0, 1.0, 2.0])
    for found, twin in (
        (pb.random.categorical(logits, 5, key=KEY), pb.random.categorical(logits.get(), 5, key=KEY)),
        (pb.random.permutation(logits, key=KEY), pb.random.permutation(logits.get(), key=KEY)),
        (pb.random.choice(logits, 4, key=KEY), pb.random.choice(logits.get(), 4, key=KEY)),
        (pb.random.dirichlet(logits + 1, key=KEY), pb.random.dirichlet(logits.get() + 1, key=KEY)),
        (pb.random.gamma(logits + 1, key=KEY), pb.random.gamma(logits.get() + 1, key=KEY)),
        (pb.random.poisson(logits, key=KEY), pb.random.poisson(logits.get(), key=KEY)),  # drawn by the host
    ):
        assert isinstance(found, cupy.ndarray)
        np.testing.assert_allclose(found.get(), twin, rtol=1e-12)
    with pytest.raises(DeviceError, match="no such function"):
        pb.random.truncated_normal(-1.0, 1.0, size=3, key=KEY, device="cuda")


def test_gradcheck_on_the_device_of_its_arrays():
    def f(x):
        assert x.device == "cuda:0"
        return pb.sin(x) * x

    x = cupy.asarray([0.5, 1.5])
    assert pb.gradcheck(f, x)
    assert pb.gradcheck(f, pb.tensor(x))
    assert pb.gradgradcheck(f, x)


def test_files_know_the_devices(tmp_path):
    path = tmp_path / "a.safetensors"
    there, here = on_gpu(1.0, 2.0).detach(), pb.ones(2)
    pb.save(path, {"there": there, "here": here, "bare": cupy.asarray([1 + 2j]), "twice": there, "number": 3.0})
    back = pb.load(path)
    assert (back["there"].device, back["here"].device, back["number"]) == ("cuda:0", "cpu", 3.0)
    assert back["twice"] is back["there"]
    assert back["bare"].tolist() == [1 + 2j]
    for device, wanted in (("cpu", "cpu"), ("cuda", "cuda:0")):
        all_on = pb.load(path, device=device)
        assert {all_on[name].device for name in ("there", "here")} == {wanted}
    code = f"import pullback as pb; pb.load({str(path)!r})"
    if not REAL:
        found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert 'as device="cpu"' in found.stderr
    copy = pickle.loads(pickle.dumps(on_gpu(1.0)))
    assert (copy.device, copy.requires_grad) == ("cuda:0", True)


# Networks.


def network():
    pb.random.seed(0)
    return pb.nn.Sequential(
        pb.nn.Linear(3, 4), pb.nn.BatchNorm(4), pb.nn.Tanh(), pb.nn.Dropout(0.5), pb.nn.Linear(4, 1)
    )


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSProp"])
def test_training_that_moves_between_devices(name):
    X = np.random.default_rng(0).normal(size=(8, 3)).astype("float32")

    def train(net, opt, device, steps):
        losses = []
        for _ in range(steps):
            loss = pb.mean(net(pb.asarray(X, device=device)) ** 2)
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.item())
        return losses

    net = network()
    opt = getattr(pb.optim, name)(net.parameters(), lr=0.01, jit=False)
    expected = train(net, opt, "cpu", 9)
    net = network()
    opt = getattr(pb.optim, name)(net.parameters(), lr=0.01)
    found = train(net, opt, "cpu", 3)
    net.cuda()
    assert {p.device for p in net.parameters()} == {"cuda:0"}
    found += train(net, opt, "cuda", 3)
    state = opt.state_dict()
    net.to("cpu")
    other = getattr(pb.optim, name)(net.parameters(), lr=0.01)
    other.load_state_dict(state)
    found += train(net, other, "cpu", 3)
    np.testing.assert_allclose(found, expected, rtol=1e-4)


@pytest.mark.parametrize("prefetch", [0, 2])
def test_batches_on_a_device(prefetch):
    x, y = np.arange(10.0).reshape(5, 2), np.arange(5)
    loader = pb.data.batches({"x": x, "y": y}, 2, device="cuda", prefetch=prefetch)
    twin = pb.data.batches({"x": x, "y": y}, 2)
    for _ in range(2):
        for batch, wanted in zip(loader, twin, strict=True):
            assert isinstance(batch["x"], cupy.ndarray)
            assert batch["x"].get().tolist() == wanted["x"].tolist()
            assert batch["y"].get().tolist() == wanted["y"].tolist()
    assert [b.device for b in pb.data.batches(pb.ones((3, 2)), 2, device="cuda", prefetch=prefetch)] == ["cuda:0"] * 2
    for _ in pb.data.batches(x, 1, device="cuda", prefetch=prefetch):
        break  # leaving early ends the thread
    there = pb.data.batches(cupy.asarray(x), 2, device="cpu", prefetch=prefetch)
    assert all(isinstance(batch, np.ndarray) for batch in there)


def test_threads_of_a_backward_pass_work_on_the_stream_of_its_caller():
    seen = set()
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        x = pb.ones(1 << 17, device="cuda", requires_grad=True)
        branches = [pb.sin(x * float(i)) for i in range(4)]
        for branch in branches:
            branch.register_hook(lambda bar: seen.add((cupy.cuda.get_current_stream(), cupy.cuda.Device().id)))
        pb.sum(sum(branches)).backward(workers=3)
    assert seen == {(stream, 0)}
    stream.synchronize()


@pytest.mark.skipif(REAL, reason="wants streams that keep a log")
def test_copies_ahead_wait_for_memory_and_the_work_waits_for_copies():
    log = cupy.cuda.Stream.log
    log.clear()
    list(pb.data.batches(np.ones((4, 2)), 2, device="cuda", prefetch=1))
    # before each copy its stream waits for the current one, after it the current one for the copy
    first = ["record", "wait_event", "record"]
    assert log == [*first, *first, "wait_event", "wait_event"]


@pytest.mark.skipif(REAL, reason="a child of a process with CUDA does not come back")
def test_a_forked_process_says_what_to_do(monkeypatch):
    x = on_gpu(1.0)

    def lost():
        raise cupy.cuda.runtime.CUDARuntimeError("cudaErrorInitializationError: initialization error")

    monkeypatch.setattr(os, "getpid", lambda: -1)
    monkeypatch.setattr(cupy.cuda.runtime, "getDevice", lost)
    with pytest.raises(DeviceError, match="spawn"):
        x * 2


def test_the_stand_in_does_not_leak():
    code = (
        "import sys; sys.path.insert(0, 'tests')\nimport fake_cupy, pullback as pb\n"
        "with fake_cupy.installed(): pb.ones(2, device='cuda') * 2\n"
        "assert 'cupy' not in sys.modules and 'cupyx' not in sys.modules\n"
        "assert (pb.ones(2) * 2).tolist() == [2.0, 2.0]; pb.linalg.det(pb.eye(2))"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parent.parent)
