"""Compiled functions on a GPU inside everything else: transforms, the tape, loops, donated arguments, threads, devices.

What is wanted comes from eager calls on NumPy arrays. Without a GPU, launches run in the emulator on the memory of a
stand-in for CuPy's arrays.
"""

import contextlib
import threading

import fake_cuda_driver
import numpy as np
import pytest
from cuda_emulator import has_compiler
from gpu import REAL, cupy

import pullback as pb
from pullback.arrays.trees import map_tree

pytestmark = pytest.mark.skipif(not REAL and not has_compiler(), reason="the text is compiled by g++")
RNG = np.random.default_rng(0)
X, W = (RNG.normal(size=s).astype("f4") for s in ((6, 5), (5, 4)))
PLACES = RNG.integers(0, 6, 9)


@pytest.fixture(autouse=True, scope="module")
def device():
    """CuPy, of a GPU or emulated."""
    with contextlib.nullcontext() if REAL else fake_cuda_driver.installed():
        yield


def on_gpu(tree):
    return map_tree(lambda a: cupy.asarray(a) if isinstance(a, np.ndarray) else a, tree)


def host(x):
    x = x.value if isinstance(x, pb.Tensor) else x
    assert isinstance(x, cupy.ndarray), f"a result is on the host: {type(x)}"
    return cupy.asnumpy(x)


def check(found, wanted, tolerance=1e-5):
    pairs = zip(pb.tree.leaves(found), pb.tree.leaves(wanted), strict=True)
    for a, b in ((host(x), np.asarray(y)) for x, y in pairs):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def loss(w, x):
    return pb.mean(pb.softmax(pb.tanh(x @ w), axis=-1) ** 2)


def step(w, x):
    value, g = pb.value_and_grad(loss)(w, x)
    return value, w - 0.1 * g


def largest(x):
    return pb.sum(pb.take_along_axis(x, pb.argmax(x, axis=-1, keepdims=True), axis=-1) ** 2)


@pytest.mark.parametrize("shape", [(3,), (5, 3), (9, 40)])
def test_threads_beyond_the_last_row_find_no_index_out_of_range(shape):
    """The place of the largest number of a row is a fold, of which these threads know nothing."""
    x, f = np.random.default_rng(1).normal(size=shape).astype("f4"), pb.jit(pb.grad(largest))
    for _ in range(2):  # a call raises for the one before
        check(f(on_gpu(x)), pb.grad(largest)(x))


def energy(x):
    return pb.sum(pb.sin(x) * x**2)


def carried(x):
    """A scan whose step has a branch."""
    return pb.scan(lambda c, r: (pb.cond(pb.sum(r) > 0, lambda c: c * 0.5, lambda c: c - r, c), c * r), x[0], x)


def nested_loops(x):
    inside = lambda c: pb.while_loop(lambda e: pb.sum(e) < 3.0, lambda e: e + 0.5, c)  # noqa: E731
    return pb.while_loop(lambda c: pb.sum(c * c) < 500.0, lambda c: inside(c) * 1.5 + 0.1, pb.abs(x))


def dropped(x):
    """The mask of a checkpoint is drawn again in its backward pass."""
    return pb.sum(pb.checkpoint(lambda x: pb.nn.dropout(pb.sin(x), 0.5, key=pb.random.key(2)))(x))


def solved(a):
    return pb.sum(pb.fixed_point(lambda z, a: pb.tanh(0.3 * z + a), a * 0, a))


#: What is compiled as a whole: a function of arrays and its arguments.
WHOLE = {
    "gradient": (pb.grad(loss, (0, 1)), W, X),
    "hessian vector": (lambda x: pb.hvp(energy, (x,), (x,)), X[0]),
    "taylor": (lambda x: pb.jet(lambda x: pb.sin(x) * x, (x,), ([x, None],))[1], X[0]),
    "vmap of gradients": (pb.vmap(pb.grad(energy)), X),
    "branch in a scan": (carried, X),
    "gradient of a scan": (pb.grad(lambda x: pb.sum(carried(x)[1])), X),
    "loop in a loop": (nested_loops, X),
    "tangent of a loop": (lambda x: pb.jvp(nested_loops, (x,), (x,)), X),
    "checkpoint with dropout": (pb.grad(dropped), X),
    "fixed point": (pb.grad(solved), X[0]),
    "scatter": (lambda x, i: pb.grad(lambda x: pb.sum(x[i] ** 3))(x), X, PLACES),
    "ops of the host between launches": (lambda x: pb.prod(pb.sin(x), axis=0) * pb.prod(x, axis=1)[:, None] * 2, X),
    "complex": (lambda x: pb.abs(pb.exp(1j * x) + x), X),
    "empty": (lambda x: (pb.sum(x * 2, axis=0), x + 1), X[:0]),
    "no axes": (lambda x: pb.sin(x) * 2, np.array(0.3, "f4")),
    "integers and truth": (lambda i, x: (i * 3 // 2 % 5, (x > 0) & (x < 1)), PLACES, X),
    "infinities in a product": (lambda x: pb.where(x > 1, np.inf, x) @ x.T, X),
}


@pytest.mark.parametrize("name", WHOLE)
def test_compiled_on_a_gpu_is_what_numpy_computes(name):
    f, *args = WHOLE[name]
    compiled = pb.jit(f)
    with np.errstate(all="ignore"):
        wanted = f(*args)
        for _ in range(3):  # launch by launch, recorded, as a graph
            check(compiled(*on_gpu(args)), wanted)


#: What is done with a compiled function, and its function.
AROUND = {
    "grad": (lambda f, x: pb.grad(lambda x: pb.sum(f(x)))(x), energy),
    "second order": (lambda f, x: pb.grad(lambda x: pb.sum(pb.grad(f)(x) ** 2))(x), energy),
    "vmap": (lambda f, x: pb.vmap(f)(x), energy),
    "vmap of grad": (lambda f, x: pb.vmap(pb.grad(f))(x), energy),
    "jvp": (lambda f, x: pb.jvp(f, (x,), (2 * x,)), pb.sin),
    "checkpoint": (lambda f, x: pb.grad(lambda x: pb.sum(pb.checkpoint(f)(x)))(x), pb.sin),
    "jit": (lambda f, x: pb.jit(lambda x: f(x) * 2)(x), pb.sin),
    "scan": (lambda f, x: pb.scan(lambda c, r: (f(c) + r, c), x[0], x), pb.sin),
    "chunks in jit": (lambda f, x: pb.jit(pb.vmap(f, chunk_size=2))(x), pb.sin),
}


@pytest.mark.parametrize("name", AROUND)
def test_transforms_go_through_compiled_functions_on_a_gpu(name):
    around, f = AROUND[name]
    check(around(pb.jit(f), on_gpu(X)), around(f, X))


#: Values that several ops use, so that cotangents are shared, added to each other, and must not be overwritten.
SHARED = {
    "sum of two": lambda x, w: pb.tanh(x) + pb.sigmoid(w),
    "both ways": lambda x, w: pb.sigmoid(x) * w + pb.sigmoid(w) * pb.tanh(x),
    "one twice": lambda x, w: (x + x) * (w - x),
    "three uses": lambda x, w: pb.sin(x) * x - w * x + pb.exp(w),
    "views": lambda x, w: sum((pb.tanh(x[i]) * w[i + 1] + x[i] for i in range(3)), w[0]),
    "parts": lambda x, w: (lambda a, b, c: pb.sigmoid(a) * c + pb.tanh(b) * pb.sigmoid(c))(*pb.split(x * w, 3, axis=0)),
}


@pytest.mark.parametrize("name", SHARED)
def test_tape_on_a_gpu_with_shared_cotangents(name):
    f, y = SHARED[name], X[::-1].copy() * 0.7

    def gradients(arrays):
        leaves = [pb.tensor(a, requires_grad=True) for a in arrays]
        pb.sum(f(*leaves) ** 2).backward()
        return [leaf.grad for leaf in leaves]

    wanted = [g.numpy() for g in gradients((X, y))]
    for _ in range(3):  # steps of the backward pass are bound when they are first met
        check(gradients(on_gpu([X, y])), wanted)


@pytest.mark.parametrize("holds", [True, False])
def test_a_condition_of_the_host_masks_cotangents_on_a_gpu(holds):
    """One boolean goes along with arrays of any device, and so does the mask that it leaves in the backward pass."""

    def f(x):
        return pb.sum(pb.exp(pb.where(np.array(holds), x * x, 0.5)))

    check(pb.grad(f)(on_gpu(X)), pb.grad(f)(X))
    check(pb.grad(pb.jit(f))(on_gpu(X)), pb.grad(f)(X))


def test_tape_hooks_and_captured_tensors():
    w, x = pb.tensor(on_gpu(W), requires_grad=True), pb.tensor(on_gpu(X), requires_grad=True)
    y = pb.jit(lambda x: pb.tanh(x @ w))(x)
    y.register_hook(lambda g: 2 * g)
    pb.sum(y * y).backward()
    wanted = pb.grad(lambda w, x: 2 * pb.sum(pb.tanh(x @ w) ** 2), (0, 1))(W, X)
    check([w.grad, x.grad], wanted)


def test_what_is_written_later_changes_no_gradient():
    """CuPy's arrays cannot be locked."""
    bare, tracked = on_gpu(X), pb.tensor(on_gpu(X), requires_grad=True)
    out = pb.sum(pb.jit(lambda a, b: a**3 * b)(tracked, bare))
    bare[...] = 0
    out.backward()
    check(tracked.grad, 3 * X**3)


def test_donated_arguments_in_all_layouts():
    compiled = pb.jit(step, donate_argnums=0)
    w, wanted = on_gpu(W), W
    start = w.data.ptr
    for _ in range(4):
        (value, w), (right, wanted) = compiled(w, on_gpu(X)), step(wanted, X)
        check([value, w], [right, wanted])
        assert w.data.ptr == start
    double = pb.jit(lambda a, b: (a * 2, a + b), donate_argnums=0)
    flat = on_gpu(X.ravel())
    for a in (on_gpu(X).T, flat[1:], flat[::2]):
        before = cupy.asnumpy(a)
        check(double(a, a.copy()), (before * 2, before + before))
    same = on_gpu(X)
    check(double(same, same[:]), (X * 2, X + X))  # one memory twice
    tensor = pb.tensor(on_gpu(X))
    check(double(tensor, on_gpu(X)), (X * 2, X + X))
    check(tensor, X)  # a tensor is never overwritten


@pytest.mark.parametrize("columns", [1, 3, 5, 9])
def test_a_donated_vector_is_updated_once(columns):
    """Rows are dealt out to warps; threads that have none left must not take the last one again."""
    z, b = (RNG.normal(size=s).astype("f4") for s in ((7, columns), (columns,)))

    def update(b, z):
        new = b - 0.5 * pb.sum(z * z, axis=0)
        return new, z * new

    check(pb.jit(update, donate_argnums=0)(*on_gpu([b, z])), update(b, z))


def test_threads_on_one_stream_do_not_meet():
    compiled = pb.jit(lambda a: pb.softmax(pb.sin(a) @ a.T, axis=0) * 2)
    wanted = [pb.softmax(np.sin(X + i) @ (X + i).T, axis=0) * 2 for i in range(4)]
    args, errors = [on_gpu(X + np.float32(i)) for i in range(4)], []

    def work(i):
        try:
            for _ in range(8):
                check(compiled(args[i]), wanted[i])
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_results_that_are_kept_and_sizes_that_change():
    compiled = pb.jit(lambda a: pb.softmax(pb.sin(a) * 2, axis=0))
    wanted = [pb.softmax(np.sin(X[:n]) * 2, axis=0) for n in (6, 3, 6, 1, 6)]
    kept = [compiled(on_gpu(X)[:n]) for n in (6, 3, 6, 1, 6) for _ in range(4)]
    check(kept, [w for w in wanted for _ in range(4)])


def test_modules_and_optimizers_with_jit():
    def train(place):
        net = pb.nn.Sequential(pb.nn.Linear(5, 4, key=pb.random.key(0)), pb.nn.BatchNorm(4), pb.nn.ReLU()).to(place)
        optimizer = pb.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, jit=True)
        forward = pb.jit(lambda x: pb.mean((net(x) - 1) ** 2))
        x = pb.tensor(X).to(place)
        for _ in range(3):
            optimizer.zero_grad()
            forward(x).backward()
            optimizer.step()
        return [p.detach().cpu().numpy() for p in net.parameters()] + [cpu(net[1].mean)]

    def cpu(array):
        return array if isinstance(array, np.ndarray) else cupy.asnumpy(array)

    for a, b in zip(train("cuda"), train("cpu"), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_mixed_devices_are_refused_and_numbers_go_along():
    with pytest.raises(pb.errors.DeviceError):
        pb.jit(lambda a, b: a * b)(on_gpu(X), X)
    scale = pb.jit(lambda a, s: a * s)
    for number in (2, 2.0, np.float32(2), np.array(2, "f4")):
        check(scale(on_gpu(X), number), X * np.float32(2))


def test_an_index_out_of_range_is_raised_when_one_waits():
    taken = pb.jit(lambda x, i: x[i])
    found = taken(on_gpu(X), on_gpu(np.array([1, 99])))
    with pytest.raises(pb.errors.IndexingError, match="out of range"):
        pb.cuda.synchronize()
    assert found.shape == (2, 5)
    taken(pb.tensor(on_gpu(X)), on_gpu(np.array([77, 1])))
    with pytest.raises(pb.errors.IndexingError, match="out of range"):
        bool(pb.tensor(on_gpu(X[0, :1])))
    check(taken(on_gpu(X), on_gpu(np.array([1, 2]))), X[1:3])
