"""Copies, joins and splits on a GPU: kernels of ours, compiled functions on views, against NumPy in the emulator."""

import fake_cuda_driver
import numpy as np
import pytest

import pullback as pb
from pullback.compile.cuda.runtime.copies import copy_contiguous

RNG = np.random.default_rng(0)
DTYPES = ["bool", "float16", "float32", "float64"]
VIEWS = {
    "transposed": lambda a: a.T,
    "of columns": lambda a: a[..., 1:3],
    "of rows": lambda a: a[1:],
    "with steps": lambda a: a[::2, :, ::3],
    "backwards": lambda a: a[::-1, :, ::-1],
    "of one": lambda a: a[2:3, 1:2, 3:4],
    "other axes": lambda a: a.transpose(1, 0, 2),
    "a diagonal": lambda a: a.diagonal(axis1=0, axis2=1),
}


@pytest.fixture
def gpu():
    with fake_cuda_driver.installed() as (cupy, driver):
        yield cupy, driver


@pytest.mark.parametrize(("view", "dtype"), [*zip(VIEWS, DTYPES * 2, strict=True)])
def test_a_copy_of_a_view_is_one_launch(gpu, view, dtype):
    cupy, driver = gpu
    a = (RNG.normal(size=(4, 3, 6)) * 2).astype(dtype)
    x = VIEWS[view](cupy.asarray(a))
    before = driver.log["launches"]
    found = copy_contiguous(x)
    assert driver.log["launches"] - before == 1
    assert found._c_contiguous
    np.testing.assert_array_equal(found.get(), VIEWS[view](a))


def test_what_has_no_kernel_is_copied_by_cupy(gpu):
    cupy, driver = gpu
    for a in (np.ones((3, 4), complex).T, np.ones((0, 4)).T):
        np.testing.assert_array_equal(copy_contiguous(cupy.asarray(a)).get(), a)
    assert not driver.log["launches"]


@pytest.mark.parametrize(("shapes", "axis"), [
    ([(2, 3), (2, 1)], 1), ([(2, 3), (1, 3), (4, 3)], 0), ([(2, 3, 2)] * 3, 1), ([(2, 0), (2, 2)], 1),
    ([(2, 2)], 0), ([(1, 2)] * 11, 0),
])  # fmt: skip
def test_joins_have_numpys_values_and_their_parts_gradients(gpu, shapes, axis):
    cupy, _ = gpu
    arrays = [RNG.normal(size=s) for s in shapes]
    total = RNG.normal(size=np.concatenate(arrays, axis).shape)
    for _ in range(5):
        xs = [pb.tensor(cupy.asarray(a), requires_grad=True) for a in arrays]
        out = pb.concat(xs, axis=axis)
        out.backward(cupy.asarray(total))
    np.testing.assert_array_equal(out.detach().numpy(), np.concatenate(arrays, axis))
    cuts = np.cumsum([s[axis] for s in shapes])[:-1]
    for x, part in zip(xs, np.split(total, cuts, axis), strict=True):
        np.testing.assert_array_equal(x.grad.numpy(), part)


def test_a_join_of_views_and_of_several_dtypes(gpu):
    cupy, _ = gpu
    a = RNG.normal(size=(3, 4))
    x, y = (pb.tensor(cupy.asarray(v)) for v in (a, a.astype("f4")))
    for _ in range(4):
        joined, mixed = pb.concat([x.T, x.T[:, ::-1]], axis=1), pb.concat([x, y])
    np.testing.assert_array_equal(joined.numpy(), np.concatenate([a.T, a.T[:, ::-1]], 1))
    np.testing.assert_array_equal(mixed.numpy(), np.concatenate([a, a.astype("f4")]))


def place_on(device, cupy):
    return np.asarray if device == "cpu" else cupy.asarray


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("used", [(0, 1, 2), (0, 2), (1,)])
def test_a_split_has_the_gradients_of_the_parts_that_are_used(gpu, device, used):
    place = place_on(device, gpu[0])
    a = RNG.normal(size=(2, 6))
    wanted = np.zeros_like(a)
    for i in used:
        wanted[:, 2 * i : 2 * i + 2] = (i + 1) * np.cos(a[:, 2 * i : 2 * i + 2])
    for _ in range(6):  # the first go by the general path, and rules are interpreted
        x = pb.tensor(place(a), requires_grad=True)
        parts = pb.split(x, 3, axis=1)
        pb.sum(sum((i + 1) * pb.sin(parts[i]) for i in used)).backward()
        np.testing.assert_allclose(x.grad.numpy(), wanted, rtol=1e-12)
    assert parts[1].node.name.startswith("split")


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_splits_in_every_mode(gpu, device):
    place = place_on(device, gpu[0])
    a = RNG.normal(size=(5, 4))

    def energy(x):
        left, right = pb.split(x, [1], axis=1)
        return pb.sum(left * left * left * pb.sum(right * right))

    hessian = None
    for _ in range(5):
        x = pb.tensor(place(a), requires_grad=True)
        (g,) = pb.gradients(energy(x), x, create_graph=True)
        (again,) = pb.gradients(pb.sum(g * g), x)
        hessian = again.numpy()
        with pb.no_grad():
            np.testing.assert_array_equal(pb.split(x, 2, axis=1)[1].numpy(), a[:, 2:])
        with pb.inference_mode():
            np.testing.assert_array_equal(pb.split(x, 2, axis=1)[0].numpy(), a[:, :2])
    wanted = pb.grad(lambda x: pb.sum(pb.grad(energy)(x) ** 2))(a)
    np.testing.assert_allclose(hessian, wanted, rtol=1e-10)
    rows = pb.vmap(lambda r: pb.split(r, 2)[1])(place(a))
    np.testing.assert_array_equal(rows if device == "cpu" else rows.get(), a[:, 2:])
    found = pb.checkpoint(lambda x: pb.sum(pb.split(x, 2, axis=1)[0] ** 2))
    x = pb.tensor(place(a), requires_grad=True)
    found(x).backward()
    np.testing.assert_allclose(x.grad.numpy(), np.concatenate([2 * a[:, :2], 0 * a[:, 2:]], 1), rtol=1e-12)


def test_fused_functions_take_views_and_save_copies(gpu):
    cupy, _ = gpu
    a, b = RNG.normal(size=(2, 4, 24)).astype("f4"), RNG.normal(size=(2, 4, 8)).astype("f4")
    results = []
    for place in (np.asarray, cupy.asarray):
        for _ in range(5):
            x = pb.tensor(place(a), requires_grad=True)
            q, k, v = pb.split(x, 3, axis=-1)
            y = pb.nn.multi_head_attention(q, k, v, 2, is_causal=True)
            pb.nn.layer_norm(y[..., ::2].mT, None, None).backward(place(b[..., :4].swapaxes(-1, -2)))
        results.append((y.detach().numpy(), x.grad.numpy()))
    for mine, theirs in zip(results[1], results[0], strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=2e-4, atol=2e-5)


def test_a_cotangent_in_another_order_is_not_overwritten_out_of_order(gpu):
    cupy, _ = gpu
    a = RNG.normal(size=(3, 4))
    weights = RNG.normal(size=(4, 3))
    for _ in range(6):
        x = pb.tensor(cupy.asarray(a), requires_grad=True)
        pb.sin(pb.tanh(x)).backward(cupy.asarray(np.asfortranarray(weights.T)))
    t = np.tanh(a)
    np.testing.assert_allclose(x.grad.numpy(), weights.T * np.cos(t) * (1 - t * t), rtol=1e-12)


def test_donated_views_are_not_copied_behind_ones_back(gpu):
    cupy, _ = gpu
    step = pb.jit(lambda x: x * 2.0, donate_argnums=0)
    for _ in range(4):
        a = cupy.asarray(np.arange(12.0).reshape(3, 4))
        found = step(a[:, 1:3])
        np.testing.assert_array_equal(found.get(), 2 * np.arange(12.0).reshape(3, 4)[:, 1:3])


@pytest.mark.parametrize("view", [lambda x: x, lambda x: x.mT, lambda x: x[:, ::2], lambda x: pb.flip(x, axis=0)])
def test_products_of_views_have_numpys_gradients_and_make_no_views(gpu, view, monkeypatch):
    cupy, _ = gpu
    a, b = RNG.normal(size=(3, 4, 4)), RNG.normal(size=(4, 5))
    of_a = np.asarray(view(pb.tensor(a)))
    seed = RNG.normal(size=(*of_a.shape[:-1], 5))
    made = []
    for method in ("transpose", "swapaxes", "reshape"):
        own = getattr(cupy.ndarray, method)
        monkeypatch.setattr(cupy.ndarray, method, lambda *args, own=own: (made.append(1), own(*args))[1])
    for _ in range(6):
        x, w = (pb.tensor(cupy.asarray(v), requires_grad=True) for v in (a, b))
        y = view(x) @ w
        bar = cupy.asarray(seed)
        made.clear()
        y.backward(bar)
    np.testing.assert_allclose(w.grad.numpy(), np.einsum("bij,bik->jk", of_a, seed), rtol=1e-12)
    wanted = pb.vjp(lambda x: view(x) @ b, a)[1](seed)[0]
    np.testing.assert_allclose(x.grad.numpy(), wanted, rtol=1e-12)
    assert not made or of_a.base is not None  # NumPy says which are views


def test_a_view_of_a_view_that_is_none_is_made(gpu):
    cupy, _ = gpu
    a, b = RNG.normal(size=(3, 2, 4)), RNG.normal(size=(8, 3))
    for _ in range(5):
        x, w = (pb.tensor(cupy.asarray(v), requires_grad=True) for v in (a, b))
        y = pb.reshape(pb.permute_dims(x, (0, 2, 1)), (3, 8)) @ w
        pb.sum(y * y).backward()
    flat = a.transpose(0, 2, 1).reshape(3, 8)
    np.testing.assert_allclose(w.grad.numpy(), flat.T @ (2 * flat @ b), rtol=1e-12)
    np.testing.assert_allclose(x.grad.numpy().transpose(0, 2, 1).reshape(3, 8), 2 * flat @ b @ b.T, rtol=1e-12)


def test_reshapes_are_views_where_they_can_be_and_else_one_launch(gpu):
    cupy, driver = gpu
    a = RNG.normal(size=(2, 3, 4))
    x = pb.tensor(cupy.asarray(a), requires_grad=True)
    cases = [(lambda x: x, (6, 4), 0), (lambda x: x[:, :2], (2, 2, 2, 2), 0), (lambda x: x.mT, (2, 12), 1)]
    for view, shape, launches in cases:
        for _ in range(5):
            before = driver.log["launches"]
            found = pb.reshape(view(x), shape)
            assert driver.log["launches"] - before in (0, launches)
        assert driver.log["launches"] - before == launches
        np.testing.assert_array_equal(found.detach().numpy(), np.reshape(np.asarray(view(pb.tensor(a))), shape))


def test_constants_of_fused_functions_are_saved_as_they_are(gpu, monkeypatch):
    cupy, _ = gpu
    a = RNG.normal(size=(2, 4, 8)).astype("f4")
    own, made = cupy.ndarray.copy, []
    monkeypatch.setattr(cupy.ndarray, "copy", lambda *args, **options: (made.append(1), own(*args, **options))[1])
    for call in range(4):
        x = pb.tensor(cupy.asarray(a), requires_grad=True)
        made.clear()
        pb.sum(pb.nn.multi_head_attention(x, x, x, 2, is_causal=True)).backward()
        assert not made or call < 2
    y = pb.tensor(a, requires_grad=True)
    pb.sum(pb.nn.multi_head_attention(y, y, y, 2, is_causal=True)).backward()
    np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), rtol=1e-4, atol=1e-5)
