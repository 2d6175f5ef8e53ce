"""Every function of networks in every role, from the samples: derivatives, vmap, jit, dtypes, far-out numbers."""

import inspect

import numpy as np
import pytest
from network_samples import SAMPLES

import pullback as pb


def only(out):
    """The result itself where a function hands statistics or a vector out beside it."""
    return out[0] if isinstance(out, tuple) else out


def value(sample, *arrays):
    return only(sample.call(*arrays))


def weights_for(sample):
    shape = np.shape(value(sample, *sample.arrays))
    return np.random.default_rng(1).normal(size=shape)


def gradients(sample, arrays, weights, transform=lambda f: f):
    places = tuple(range(len(arrays)))
    return transform(pb.grad(lambda *a: pb.sum(value(sample, *a) * weights), argnums=places))(*arrays)


def agree(found, wanted, rtol=1e-9, atol=1e-11):
    np.testing.assert_allclose(np.asarray(found), np.asarray(wanted), rtol=rtol, atol=atol)


@pytest.mark.parametrize("sample", [s for s in SAMPLES if not s.held], ids=str)
def test_gradients_of_both_orders_against_differences(sample):
    assert pb.gradcheck(lambda *a: value(sample, *a), *sample.arrays)
    assert pb.gradgradcheck(lambda *a: value(sample, *a), *sample.arrays, atol=1e-5)


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_push_and_pull_are_transposes_at_first_and_second_order(sample):
    rng = np.random.default_rng(2)
    tangents = tuple(rng.normal(size=a.shape) for a in sample.arrays)
    u = weights_for(sample)

    def pull(*arrays):
        return gradients(sample, arrays, u)

    pushed = pb.jvp(lambda *a: value(sample, *a), sample.arrays, tangents)[1]
    agree(np.sum(u * pushed), sum(np.sum(t * g) for t, g in zip(tangents, pull(*sample.arrays), strict=True)))
    once = pb.jvp(pull, sample.arrays, tangents)[1]
    places = tuple(range(len(tangents)))

    def along(*arrays):
        return pb.sum(u * pb.jvp(lambda *a: value(sample, *a), arrays, tangents)[1])

    for mixed, other in zip(once, pb.grad(along, argnums=places)(*sample.arrays), strict=True):
        agree(mixed, other)


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_vmap_is_a_loop(sample):
    rows = [np.stack([a, 1.1 * a]) for a in sample.arrays]
    wanted = [value(sample, *(r[i] for r in rows)) for i in range(2)]
    agree(pb.vmap(lambda *a: value(sample, *a))(*rows), np.stack(wanted))
    u = weights_for(sample)
    batched = pb.vmap(lambda *a: gradients(sample, a, u))(*rows)
    for i in range(2):
        for found, each in zip(batched, gradients(sample, [r[i] for r in rows], u), strict=True):
            agree(found[i], each)


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_compiled_equals_eager(sample):
    agree(pb.jit(lambda *a: value(sample, *a))(*sample.arrays), value(sample, *sample.arrays))
    u = weights_for(sample)
    for found, wanted in zip(
        gradients(sample, sample.arrays, u, pb.jit), gradients(sample, sample.arrays, u), strict=True
    ):
        agree(found, wanted, atol=1e-10)


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_float32_stays_float32(sample):
    narrow = sample.narrowed()
    found = value(narrow, *narrow.arrays)
    u = weights_for(sample).astype(np.float32)
    slopes = gradients(narrow, narrow.arrays, u)
    assert found.dtype == np.float32
    assert {slope.dtype for slope in slopes} == {np.dtype(np.float32)}
    if not sample.drawn:
        agree(found, value(sample, *sample.arrays), rtol=2e-3, atol=1e-4)
        for mine, exact in zip(slopes, gradients(sample, sample.arrays, u), strict=True):
            agree(mine, exact, rtol=2e-2, atol=2e-3)


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_tensors_in_tensors_out(sample):
    tensors = [pb.tensor(a, requires_grad=True) for a in sample.arrays]
    out = value(sample, *tensors)
    assert isinstance(out, pb.Tensor)
    agree(out.detach().numpy(), value(sample, *sample.arrays))
    assert type(value(sample, *sample.arrays)) is np.ndarray


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("sample", [s for s in SAMPLES if s.far], ids=str)
def test_finite_far_from_zero_to_second_order(sample, dtype):
    """No overflow, no 0 * inf, and no warning, which the settings of the tests make an error."""
    for far in (1e4, -1e4, 40.0, -40.0, 0.0):
        arrays = (np.full(sample.arrays[0].shape, far, dtype), *(a.astype(dtype) for a in sample.arrays[1:]))

        def slope(*a):
            return gradients(sample, a, np.ones((), dtype))[0]

        first, second = pb.jvp(slope, arrays, tuple(np.ones_like(a) for a in arrays))
        assert np.isfinite(value(sample, *arrays)).all()
        assert np.isfinite(first).all()
        assert np.isfinite(second).all()


def test_every_public_function_has_a_sample():
    named = {sample.name.split(":")[0] for sample in SAMPLES}
    mine = (
        "activations",
        "dropping",
        "embeddings",
        "gates",
        "lengths",
        "losses",
        "normalising",
        "piecewise",
        "rectifiers",
    )
    homes = {f"pullback.nn.{part}" for part in (*mine, "resampling", "warping")}
    public = {
        name
        for name in pb.nn.__all__
        if inspect.isfunction(thing := getattr(pb.nn, name)) and any(thing.__module__.startswith(h) for h in homes)
    }
    assert public <= named
