"""Laws that hold for any shape, dtype and stride; hypothesis looks for the ones that break them."""

from __future__ import annotations

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pullback as pb
from pullback import grad, jvp, vjp, vmap

numbers = st.floats(-3, 3, allow_subnormal=False, width=16)


def arrays(shape):
    return hnp.arrays(np.float64, shape, elements=numbers)


@st.composite
def strided(draw):
    """An array that is not contiguous: stepped, reversed or transposed."""
    base = draw(arrays(hnp.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=5)))
    steps = st.sampled_from([slice(None), slice(None, None, -1), slice(None, None, 2)])
    view = base[tuple(draw(steps) for _ in base.shape)]
    return view.T if draw(st.booleans()) else view


@st.composite
def broadcastable(draw):
    shapes = draw(hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=3, max_side=3))
    return tuple(draw(arrays(shape)) for shape in shapes.input_shapes)


@given(broadcastable())
def test_cotangents_come_back_in_the_shape_of_their_argument(pair):
    x, y = (pb.tensor(a, requires_grad=True) for a in pair)
    out = x * y + x - y
    gx, gy = pb.gradients(out, [x, y], np.ones(out.shape))
    full = np.broadcast_shapes(x.shape, y.shape)
    np.testing.assert_allclose(gx.numpy(), summed(np.broadcast_to(pair[1] + 1, full), x.shape))
    np.testing.assert_allclose(gy.numpy(), summed(np.broadcast_to(pair[0] - 1, full), y.shape))


def summed(a, shape):
    """What broadcasting stretched, summed back, in plain NumPy."""
    a = a.sum(axis=tuple(range(a.ndim - len(shape))))
    return a.sum(axis=tuple(i for i, n in enumerate(shape) if n == 1), keepdims=True).reshape(shape)


@given(strided())
def test_strides_change_nothing(a):
    plain = np.ascontiguousarray(a)
    f = lambda x: pb.sum(pb.tanh(x) * pb.cumulative_sum(x, axis=0) + pb.max(x, axis=0))  # noqa: E731
    np.testing.assert_allclose(grad(f)(a), grad(f)(plain), rtol=1e-12, atol=1e-12)


@given(strided(), st.sampled_from([np.float16, np.float32, np.float64, np.int32, bool, np.complex64, np.complex128]))
def test_values_and_dtypes_are_numpys(a, dtype):
    x = a.astype(dtype)
    for ours, theirs in ((pb.add, np.add), (pb.multiply, np.multiply), (pb.exp, np.exp), (pb.divide, np.divide)):
        args = (x,) if ours is pb.exp else (x, np.ones_like(x))
        found, expected = ours(*args), np.asarray(theirs(*args))
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        np.testing.assert_array_equal(found, expected)


@given(
    st.sampled_from([np.float16, np.float32, np.float64, np.complex64, np.complex128]),
    st.sampled_from([np.float16, np.float32, np.float64, np.complex64, np.int64, bool]),
)
def test_a_gradient_has_the_dtype_of_its_tensor(mine, other):
    x = pb.tensor(np.ones(3), dtype=mine, requires_grad=True)
    out = x * np.ones(3, other) * 2
    (g,) = pb.gradients(out, x, np.ones(3))
    assert g.dtype == x.dtype
    assert out.dtype == np.result_type(mine, other)


@given(arrays(hnp.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=4)), st.data())
def test_indexing_pulls_back_to_where_it_took_from(a, data):
    index = data.draw(hnp.basic_indices(a.shape, allow_newaxis=True, allow_ellipsis=True))
    check_index(a, index)


@given(arrays(hnp.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=4)), st.data())
def test_integer_arrays_index_like_numpy(a, data):
    index = data.draw(hnp.integer_array_indices(a.shape, result_shape=hnp.array_shapes(max_dims=2, max_side=3)))
    check_index(a, index)


@given(arrays(hnp.array_shapes(min_dims=1, max_dims=2, min_side=1, max_side=4)), st.data())
def test_masks_index_like_numpy(a, data):
    check_index(a, data.draw(hnp.arrays(bool, a.shape)))


def check_index(a, index):
    """<u, x[i]> = <scatter(u), x>, the value is NumPy's, and assignment is what NumPy's would be."""
    x = pb.tensor(a, requires_grad=True)
    out = x[index]
    np.testing.assert_array_equal(out.detach().numpy(), a[index])
    u = np.random.default_rng(0).normal(size=out.shape)
    (g,) = pb.gradients(out, x, u)
    expected = np.zeros(a.shape)
    np.add.at(expected, index, u)
    np.testing.assert_allclose(g.numpy(), expected, rtol=1e-14, atol=1e-14)
    written = a.copy()
    written[index] = 7.0
    np.testing.assert_array_equal(pb.set_at(a, index, 7.0), written)


@given(arrays(hnp.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=3)), st.data())
def test_reductions_over_any_axes(a, data):
    axes = data.draw(st.none() | st.lists(st.integers(-a.ndim, a.ndim - 1), unique_by=lambda i: i % a.ndim).map(tuple))
    keepdims = data.draw(st.booleans())
    for ours, theirs in ((pb.sum, np.sum), (pb.mean, np.mean), (pb.max, np.max), (pb.prod, np.prod), (pb.var, np.var)):
        found = ours(a, axis=axes, keepdims=keepdims)
        np.testing.assert_allclose(found, theirs(a, axis=axes, keepdims=keepdims), rtol=1e-10, atol=1e-10)
        out, pull = vjp(lambda x, f=ours: f(x, axis=axes, keepdims=keepdims), a)
        v = np.cos(np.arange(a.size)).reshape(a.shape)
        _, tangent = jvp(lambda x, f=ours: f(x, axis=axes, keepdims=keepdims), (a,), (v,))
        u = np.sin(1 + np.arange(np.size(out))).reshape(np.shape(out))
        np.testing.assert_allclose(np.sum(u * tangent), np.sum(pull(u)[0] * v), rtol=1e-9, atol=1e-9)


@given(arrays((3, 2)), st.integers(-2, 1), st.integers(-2, 1))
def test_vmap_over_any_axis_is_a_loop(a, in_axis, out_axis):
    f = lambda x: pb.sin(x) * pb.sum(x)  # noqa: E731
    rows = np.moveaxis(a, in_axis, 0)
    expected = np.moveaxis(np.stack([f(row) for row in rows]), 0, out_axis)
    np.testing.assert_allclose(vmap(f, in_axis, out_axis)(a), expected, rtol=1e-12)


@given(arrays((2, 3)), arrays((3, 2)), st.sampled_from(["ij,jk->ik", "ij,jk", "ij,ji->i", "ij,kj->ik", "...j,jk"]))
def test_einsum_pulls_back(a, b, equation):
    b = b.T if "kj" in equation else b
    assert pb.gradcheck(lambda x, y: pb.einsum(equation, x, y), a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("order", range(1, 5))
def test_derivatives_of_any_order(order):
    f = lambda x: pb.exp(2.0 * x)  # noqa: E731
    for _ in range(order):
        f = grad(f)
    np.testing.assert_allclose(f(0.3), 2.0**order * np.exp(0.6), rtol=1e-13)


def test_perturbations_are_not_confused():
    d = lambda f: lambda x: jvp(f, (x,), (1.0,))[1]  # noqa: E731
    for outer in (grad, d):
        for within in (grad, d):
            assert float(outer(lambda x, w=within: x * w(lambda y: x + y)(2.0))(1.0)) == 1.0
            assert float(outer(lambda x, w=within: x * w(lambda y: x * y)(2.0))(3.0)) == 6.0


def test_writing_to_an_array_after_vjp_leaves_its_pullback_alone():
    a = np.array([1.0, 2.0])
    _, pull = vjp(lambda x: x * x, a)
    a[:] = 100.0
    np.testing.assert_array_equal(pull(np.ones(2))[0], [2.0, 4.0])


def test_backward_reaches_through_transforms():
    w = pb.tensor(2.0, requires_grad=True)
    vmap(grad(lambda x: x * x * w))(np.arange(3.0)).sum().backward()
    assert w.grad is not None
    assert w.grad.item() == 6.0


def test_a_bfloat16_program_stays_bfloat16():
    x = pb.tensor([1.0, 2.0, 3.5], dtype=pb.bfloat16, requires_grad=True)
    y = pb.where(x > 1, pb.tanh(x) * 2.0, 0.0) + 1 / x + pb.maximum(x, 2.0) ** 1.5
    assert y.dtype == pb.bfloat16
    (g,) = pb.gradients(y, x, np.ones(3))
    assert g.dtype == pb.bfloat16
    (wide,) = pb.gradients(
        pb.where(x > 1, pb.tanh(x.astype("float64")) * 2.0, 0.0) + 1 / x + pb.maximum(x.astype("float64"), 2.0) ** 1.5,
        x,
        np.ones(3),
    )
    np.testing.assert_allclose(g.numpy().astype(float), wide.numpy().astype(float), rtol=0.03)
