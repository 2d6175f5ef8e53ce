"""Numbers of eight bits: storage, casts, scales, products; and DLPack of dtypes that NumPy does not exchange."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import pullback as pb

ml_dtypes = pytest.importorskip("ml_dtypes")
RNG = np.random.default_rng(0)
A, B = RNG.normal(size=(8, 16)).astype("float32"), RNG.normal(size=(16, 4)).astype("float32")
BOTH = pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2"])


def product(a, b, name="float8_e4m3fn"):
    q, r = pb.amp.quantize(a, name, axis=-1), pb.amp.quantize(b, name, axis=-2)
    return pb.amp.scaled_matmul(q, r)


@BOTH
def test_casts_saturate(name):
    most = pb.finfo(name).max
    found = pb.tensor([1.0, 2 * most, -np.inf, np.nan]).astype(name)
    assert found.dtype == getattr(pb, name) == np.dtype(getattr(ml_dtypes, name))
    np.testing.assert_array_equal(found.tolist(), [1.0, most, -most, np.nan])


@BOTH
def test_what_only_moves_takes_them(name, tmp_path):
    x = pb.tensor([[1.0, -2.0], [3.5, 0.25]]).astype(name)
    moved = pb.concat([x.T, pb.flip(x, axis=0)], axis=1).reshape(2, 2, 2)[1]
    assert moved.dtype == getattr(pb, name)
    assert moved.astype("float32").tolist() == [[-2.0, 0.25], [1.0, -2.0]]
    pb.save(tmp_path / "x", {"x": x, "q": pb.amp.quantize(A, name)})
    loaded = pb.load(tmp_path / "x")
    assert loaded["x"].tolist() == pickle.loads(pickle.dumps(x)).tolist() == x.tolist()
    assert isinstance(loaded["q"], pb.amp.Quantized)
    assert loaded["q"].data.dtype == x.dtype
    assert "float8" in repr(x)


def test_arithmetic_is_refused_by_name():
    x = pb.tensor([1.0, 2.0]).astype(pb.float8_e4m3fn)
    for name, call in {
        "add": lambda: x + 1.0,
        "tanh": lambda: pb.tanh(x),
        "sum": lambda: pb.sum(x),
        "matmul": lambda: x @ x,
        "equal": lambda: x == x,
        "where": lambda: pb.where(np.array([True, False]), x, x),
        "max": lambda: pb.max(x),
    }.items():
        with pytest.raises(pb.errors.DtypeError, match=f"{name}: float8_e4m3fn only stores"):
            call()
    bare, beside = x.numpy(), np.ones(2, "float32")
    for name, call in {
        "add": lambda: pb.add(bare, bare),
        "tanh": lambda: pb.tanh(bare),
        "maximum": lambda: pb.maximum(beside, bare),
        "multiply": lambda: pb.jit(lambda x: x * 2)(bare),
    }.items():
        with pytest.raises(pb.errors.DtypeError, match=f"{name}: float8_e4m3fn only stores"):
            call()
    with pytest.raises(pb.errors.DtypeError, match="only stores numbers"):
        pb.stage(lambda x: x * x)(x.numpy())
    with pytest.raises(pb.errors.DtypeError, match="only stores numbers"):
        x.requires_grad_()
    with pytest.raises(pb.errors.DtypeError, match="differentiated"):
        pb.grad(lambda x: pb.sum(x.astype("float32")))(x.numpy())


@BOTH
@pytest.mark.parametrize("axis", [None, -1, 0])
def test_quantization_uses_the_whole_range(name, axis):
    q = pb.amp.quantize(A, name, axis=axis)
    data = q.data.astype("float64")
    assert (np.abs(data).max(axis=axis) == pb.finfo(name).max).all()
    largest = np.abs(A).max(axis=axis, keepdims=axis is not None)
    unit = pb.finfo(name).eps / 2
    # half an ulp of each number, or of the least normal number where it is below
    bound = unit * np.maximum(np.abs(A), pb.finfo(name).smallest_normal * largest / pb.finfo(name).max)
    assert (np.abs(q.dequantize() - A) <= bound * (1 + 1e-5)).all()
    zero = pb.amp.quantize(np.zeros((2, 3), "float32"), name, axis=axis)
    assert not np.asarray(zero.dequantize()).any()


@BOTH
def test_what_is_not_finite_is_nan_and_changes_no_scale(name):
    for quantize in (pb.amp.quantize, pb.jit(pb.amp.quantize, static_argnums=1)):
        q = quantize(np.array([np.nan, 1000.0, 2.0, np.inf, -np.inf], "float32"), name)
        np.testing.assert_array_equal(np.isnan(np.asarray(q.dequantize())), [True, False, False, True, True])
        np.testing.assert_allclose(np.asarray(q.dequantize())[1:3], [1000.0, 2.0], rtol=0.1)
        tiny = quantize(np.array([1e-44, 0.0, -1e-38], "float32"), name).dequantize()
        assert np.isfinite(np.asarray(tiny)).all()
        np.testing.assert_allclose(tiny, [0.0, 0.0, -1e-38], rtol=0.1, atol=1e-40)
    slopes = pb.grad(lambda x: pb.sum(pb.amp.quantize(x, name).dequantize()[1:3]))(
        np.array([np.nan, 3, 2, 1], "float32")
    )
    np.testing.assert_array_equal(slopes, [0, 1, 1, 0])


def test_products_and_their_derivatives_are_those_of_the_dequantized_values():
    """Straight through the rounding, with constant scales: against NumPy on the dequantized matrices."""
    a = np.asarray(pb.amp.quantize(A, axis=-1).dequantize(), "float64")
    b = np.asarray(pb.amp.quantize(B, axis=-2).dequantize(), "float64")
    bar = RNG.normal(size=(8, 4)).astype("float32")
    out, pull = pb.vjp(product, A, B)
    np.testing.assert_allclose(out, a @ b, rtol=1e-5, atol=1e-5)
    for found, wanted in zip(pull(bar), (bar @ b.T, a.T @ bar), strict=True):
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    tangent = pb.jvp(product, (A, B), (A, B))[1]
    np.testing.assert_allclose(tangent, A @ b + a @ B, rtol=1e-4, atol=1e-4)
    x = pb.tensor(A, requires_grad=True)
    product(x, B).backward(bar)
    np.testing.assert_array_equal(x.grad, pull(bar)[0])
    half = pb.grad(lambda a: pb.sum(product(a, B)))(A.astype(pb.bfloat16))
    assert half.dtype == pb.bfloat16


def test_they_meet_jit_vmap_checkpoints_and_second_order():
    def loss(a):
        return pb.sum(product(a, B) ** 2)

    wanted = pb.grad(loss)(A)
    np.testing.assert_allclose(pb.jit(pb.grad(loss))(A), wanted, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(pb.grad(pb.checkpoint(loss))(A), wanted)
    rows = pb.vmap(lambda a: pb.amp.quantize(a).dequantize())(A)
    np.testing.assert_array_equal(rows, pb.amp.quantize(A, axis=-1).dequantize())
    b = np.asarray(pb.amp.quantize(B, axis=-2).dequantize(), "float64")
    curvature = pb.jvp(pb.grad(loss), (A,), (A,))[1]
    np.testing.assert_allclose(curvature, 2 * A @ b @ b.T, rtol=1e-4, atol=1e-3)


def test_arguments_are_checked():
    q = pb.amp.quantize(A)
    with pytest.raises(pb.errors.DtypeError, match="float8"):
        pb.amp.quantize(A, "float16")
    with pytest.raises(pb.errors.DtypeError, match="real"):
        pb.amp.quantize(np.arange(3))
    with pytest.raises(pb.errors.ArgumentTypeError, match="quantize"):
        pb.amp.scaled_matmul(q, B)
    with pytest.raises(pb.errors.ShapeError, match="axis=-2"):
        pb.amp.scaled_matmul(q, pb.amp.quantize(B, axis=-1))
    with pytest.raises(pb.errors.ShapeError, match="two axes"):
        pb.amp.scaled_matmul(q, pb.amp.quantize(B[0]))


class Exporter:
    """An array of another library, which NumPy cannot read."""

    def __init__(self, x):
        self._x = x

    def __dlpack__(self, **options):
        return self._x.__dlpack__(**options)

    def __dlpack_device__(self):
        return (1, 0)


class OldExporter(Exporter):
    def __dlpack__(self, stream=None):
        return self._x.__dlpack__()


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float16", "float32"])
@pytest.mark.parametrize("exporter", [Exporter, OldExporter])
def test_narrow_dtypes_go_through_dlpack(dtype, exporter):
    x = pb.tensor([[1.0, -2.5], [0.125, 3.0]]).astype(dtype).T
    for found in (pb.from_dlpack(exporter(x)), pb.asarray(exporter(x)), pb.tensor(exporter(x))):
        assert (found.dtype, found.shape) == (x.dtype, (2, 2))
        assert found.tolist() == x.tolist()
    shared = np.asarray(pb.from_dlpack(exporter(x), copy=False))
    assert shared.tolist() == x.tolist()


@pytest.mark.parametrize("version", [None, (1, 0)])
def test_the_capsule_has_the_code_of_bfloat16(version):
    from pullback.arrays.dlpack import _dtype_in

    options = {} if version is None else {"max_version": version}
    field = _dtype_in(pb.tensor([1.0]).astype("bfloat16").__dlpack__(**options))
    assert (field.code, field.bits, field.lanes) == (4, 16, 1)


def test_names_of_dtypes():
    x = pb.tensor([1.5])
    assert x.to("bf16").dtype == x.bfloat16().dtype == x.astype("bfloat16").dtype == pb.bfloat16
    assert x.to("fp16").dtype == x.half().dtype == np.float16
    with pytest.raises(pb.errors.DtypeError, match="16 bytes"):
        x.astype("f16")
