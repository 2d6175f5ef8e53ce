"""float16 and bfloat16: every op computes in float32 and rounds once; weak scalars, dtypes, composites, gradients."""

from __future__ import annotations

import numpy as np
import pytest

import pullback as pb
from pullback.arrays.dtypes import as_dtype
from pullback.arrays.spec import spec_of
from pullback.ops import load_all_ops
from pullback.tools.certify import HALF_DTYPES, HALF_ROLES, certify_ops
from pullback.tools.certify.cases import as_results, cases_of
from pullback.tools.certify.half_roles import compare_rounded, half_case, sensitivity
from pullback.tools.certify.run import EXCEPTIONS, case_outcomes

pytest.importorskip("ml_dtypes")
HALVES = pytest.mark.parametrize("dtype", HALF_DTYPES)
FIRST_ORDER = [role for role in HALF_ROLES if role.name in ("value", "edges", "spec", "push", "pull", "staged")]
HIGHER = [role for role in HALF_ROLES if role.name in ("second", "taylor", "batch")]


def failures(op, dtypes, roles, count):
    """What fails at the first samples of an op."""
    found, (excused, _) = [], EXCEPTIONS.get(op.name, ((), ""))
    roles = [role for role in roles if role.name not in excused]
    for case in [c for c in cases_of(op, "fc") if c.moving][:count]:
        for dtype in dtypes:
            made = half_case(case, dtype)
            if made is not None:
                outcomes = case_outcomes(made, op.name, f"sample {case.number}, {dtype}", roles)
                found += [o for o in outcomes if not o.error <= o.allowed]
    return found


def test_a_sample_of_ops_is_certified():
    """Of every third op, in one of the dtypes; the sweep below has all of them."""
    ops = [op for op in load_all_ops().values() if any(c.moving for c in cases_of(op, "fc"))]
    assert len(ops) > 200
    assert [f for i, op in enumerate(ops[::3]) for f in failures(op, [HALF_DTYPES[i % 2]], FIRST_ORDER, 1)] == []


@pytest.mark.parametrize("name", ["tanh", "divide", "power", "logaddexp", "max", "prod", "matmul", "scatter", "inv"])
@HALVES
def test_higher_orders_and_batches(name, dtype):
    assert failures(load_all_ops()[name], [dtype], HIGHER, 2) == []


@pytest.mark.sweep
@HALVES
def test_every_op_is_certified_in_half_precision(dtype):
    report = certify_ops(dtypes=[dtype])
    assert report, "\n".join(report.verdict_lines())


def test_a_rule_that_rounds_inside_is_noticed():
    """1 - out^2 in half precision loses every digit where out is near 1; certified against the rule in float32."""
    op = load_all_ops()["tanh"]
    case = half_case(next(c for c in cases_of(op) if c.moving), "bfloat16")
    x = np.asarray([0.5, 1.0, 1.5]).astype(pb.bfloat16)
    wanted = 1 - np.tanh(x.astype("float64")) ** 2
    rounded_inside = (1 - np.tanh(x) * np.tanh(x)).astype(pb.bfloat16)
    spread = sensitivity(lambda x: 1 - pb.tanh(x) ** 2, [x.astype("float64")])
    assert case is not None
    assert compare_rounded([pb.vjp(pb.tanh, x)[1](np.ones(3, pb.bfloat16))[0]], [wanted], spread, x.dtype).error < 4
    assert compare_rounded([rounded_inside.astype("float64") * 1.1], [wanted], spread, x.dtype).error > 4


@HALVES
def test_sums_are_accumulated_in_float32(dtype):
    """2^12 ones, in either order of axes, and more than float16 holds on the way."""
    ones = np.ones((4096, 2), as_dtype(dtype))
    for found in (
        pb.sum(ones, axis=0),
        pb.sum(pb.tensor(ones), axis=0),
        pb.cumsum(ones, axis=0)[-1],
        pb.segment_sum(ones, np.zeros(4096, int), 1)[0],
        pb.matmul(np.ones(4096, as_dtype(dtype)), ones),
    ):
        assert found.dtype == as_dtype(dtype)
        assert np.asarray(found, "float64").tolist() == [4096.0, 4096.0]
    big = np.full(4, 40000.0).astype(as_dtype(dtype))
    assert float(pb.mean(big)) == float(big[0])
    assert float(pb.var(big)) == 0.0
    assert float(pb.linalg.norm(np.full(4, 300.0).astype(as_dtype(dtype)))) == 600.0


@HALVES
def test_a_pull_does_not_overflow_inside(dtype):
    """-x / y^2 where y^2 is more than float16 holds, and where it is less."""
    for size in (2.0**9, 2.0**-13):
        y = pb.tensor(np.full(3, size), dtype=dtype, requires_grad=True)
        pb.sum(y / size / y * size).backward()
        (1.0 / y).backward(np.full(3, size, as_dtype(dtype)))
        assert np.isfinite(np.asarray(y.grad, "float64")).all()
        np.testing.assert_allclose(np.asarray(y.grad, "float64"), -1 / size, rtol=0.01)


WEAK = {
    "where": lambda x: pb.where(x > 0, x, 0.1),
    "clip": lambda x: pb.clip(x, -0.5, 0.5),
    "maximum": lambda x: pb.maximum(x, 0.25),
    "power": lambda x: pb.abs(x) ** 1.5,
    "rpower": lambda x: 2.0**x,
    "arithmetic": lambda x: (1 - x * 2.0 + 3) / 4 // 1,
    "full_like": lambda x: pb.full_like(x, 0.1),
    "pad": lambda x: pb.pad(x, 1, constant_values=0.5),
    "masked": lambda x: pb.nan_to_num(x, nan=0.5),
    "sum initial": lambda x: pb.sum(x, initial=1.5),
    "lerp": lambda x: pb.addcmul(x, x, x, value=0.5),
    "remainder": lambda x: x % 0.75,
    "atan2": lambda x: pb.atan2(x, 2.0),
    "leaky_relu": lambda x: pb.nn.leaky_relu(x, 0.1),
    "gelu": lambda x: pb.nn.gelu(x),
    "elu": lambda x: pb.nn.elu(x, 0.7),
    "dropout": lambda x: pb.nn.dropout(x, 0.3, key=pb.random.key(0)),
    "layer_norm": lambda x: pb.nn.layer_norm(x, eps=1e-3),
    "huber": lambda x: pb.nn.huber_loss(x, x * 0.5, 0.3),
    "smoothing": lambda x: pb.nn.binary_cross_entropy_with_logits(x, 0.5),
}


@pytest.mark.parametrize("name", WEAK)
@HALVES
def test_python_scalars_are_weak(name, dtype):
    """For a bare array, a tensor, a traced value, a dual and a batch."""
    f, a = WEAK[name], np.linspace(-1, 1, 4).astype(as_dtype(dtype))
    wanted = as_dtype(dtype)
    found = [pb.vmap(f)(a[None]), pb.jvp(f, (a,), (a,))[1], f(pb.tensor(a))]
    found += [f(a)] if name not in ("arithmetic", "rpower", "power", "remainder", "huber") else []  # NumPy's operators
    found += [spec_of(x) for x in pb.stage(f)(a).outputs]
    assert {x.dtype for x in found} == {wanted}
    x = pb.tensor(a, requires_grad=True)
    (f(x).sum() + x.sum()).backward()
    assert x.grad.dtype == wanted


@pytest.mark.parametrize(
    ("f", "wanted"),
    [
        (lambda x: pb.maximum(x, 0.1), [0.5, 1, 0]),
        (lambda x: pb.clip(x, -0.3, 0.1), [1, 0, 1]),
        (lambda x: pb.where(x == 0.1, x, 0.5), [1, 0, 0]),
        (lambda x: x * 0.1, [0.1] * 3),
    ],
)
@HALVES
def test_rules_see_python_scalars_as_rounded(f, wanted, dtype):
    """0.1 is no half number: what it was rounded to ties with it, and is the slope of x * 0.1, in every mode."""
    x = np.array([0.1, 0.5, -0.3]).astype(as_dtype(dtype))

    def total(x):
        return pb.sum(f(x).astype("float32"))

    tracked = pb.tensor(x, requires_grad=True)
    total(tracked).backward()
    found = [tracked.grad, pb.grad(total)(x), pb.jit(pb.grad(total))(x), pb.vmap(pb.grad(f))(x)]
    found += [pb.jvp(f, (x,), (np.ones(3, x.dtype),))[1], pb.jit(lambda x: pb.jvp(f, (x,), (x / x,))[1])(x)]
    for slopes in found:
        np.testing.assert_array_equal(np.asarray(slopes), np.array(wanted).astype(x.dtype))


def test_promotion():
    """Two half types make float32; with integers both promote as float16 does in NumPy; NumPy's scalars are strong."""
    h, b = np.ones(2, "float16"), np.ones(2, pb.bfloat16)
    assert pb.add(h, b).dtype == pb.result_type(h, b) == np.float32
    assert pb.concat([h, b]).dtype == pb.where(h > 0, h, b).dtype == pb.matmul(h, b).dtype == np.float32
    for x in (h, b):
        for kind in ("int8", "int16", "int32", "int64", "uint8", "bool"):
            wanted = np.result_type("float16", kind)
            wanted = x.dtype if wanted == np.float16 else wanted
            beside = np.ones(2, kind)
            assert pb.multiply(x, beside).dtype == pb.result_type(x, beside) == wanted
            assert pb.where(beside > 0, x, beside).dtype == (pb.tensor(x) * beside).dtype == wanted
        assert pb.add(x, np.float64(1)).dtype == (pb.tensor(x) + np.float64(1)).dtype == np.float64
        assert (pb.tensor(x) + np.float32(1)).dtype == np.float32
        assert (pb.tensor(x) + 1).dtype == (2.0 * pb.tensor(x)).dtype == x.dtype
    assert pb.grad(lambda h: pb.sum(pb.multiply(h, b)))(h).dtype == np.float16


RNG = np.random.default_rng(0)
A, B = RNG.normal(size=(2, 4, 6))
P = RNG.uniform(0.05, 0.95, (4, 6))
LABELS = RNG.integers(0, 6, 4)
#: Functions that are several ops.
COMPOSITES = {
    "var": (pb.var, A),
    "std": (lambda x: pb.std(x, axis=1), A),
    "logsumexp": (lambda x: pb.logsumexp(x, axis=1), A),
    "softmax": (pb.softmax, A),
    "log_softmax": (pb.log_softmax, A),
    "vector_norm": (lambda x: pb.linalg.vector_norm(x, axis=1), A),
    "average": (lambda x, w: pb.average(x, axis=1, weights=w), A, P[0]),
    "quantile": (lambda x: pb.quantile(x, 0.3, axis=1), A),
    "cdist": (pb.cdist, A, B),
    "gelu": (pb.nn.gelu, A),
    "mish": (pb.nn.mish, A),
    "selu": (pb.nn.selu, A),
    "tanhshrink": (pb.nn.tanhshrink, A),
    "glu": (pb.nn.glu, A),
    "layer_norm": (pb.nn.layer_norm, A, B[0], B[1]),
    "cosine_similarity": (pb.nn.cosine_similarity, A, B),
    "normalize": (pb.nn.normalize, A),
    "mse": (pb.nn.mse_loss, A, B),
    "cross_entropy": (lambda x: pb.nn.cross_entropy(x, LABELS), A),
    "bce": (lambda x: pb.nn.binary_cross_entropy(x, (P > 0.5).astype(x.dtype)), P),
    "js_div": (pb.nn.js_div, P / P.sum(1, keepdims=True), np.exp(A) / np.exp(A).sum(1, keepdims=True)),
}


@pytest.mark.parametrize("name", COMPOSITES)
@HALVES
def test_composites_and_their_gradients_are_rounded_once(name, dtype):
    """Within one rounding of the result: nothing is allowed for what is computed on the way."""
    f, *xs = COMPOSITES[name]
    half = as_dtype(dtype)
    args = [x.astype(half) for x in xs]
    wide = [a.astype("float64") for a in args]
    out, pull = pb.vjp(f, *args)
    exact, exact_pull = pb.vjp(f, *wide)
    bar = RNG.normal(size=np.shape(out)).astype(half)
    found, wanted = [out, *pull(bar)], [exact, *exact_pull(bar.astype("float64"))]
    assert {x.dtype for x in as_results(found)} == {half}
    assert compare_rounded(found, wanted, [np.zeros(np.shape(w)) for w in wanted], half).error <= 1


@HALVES
def test_plans_and_the_general_path_agree(dtype):
    """The generated steps of the eager loop round as the interpreter does."""
    if dtype == "bfloat16":
        pytest.skip("bfloat16 has no plans")
    a, b = (x.astype(dtype) for x in (A, B))

    def gradients(*tensors):
        x, y = tensors
        for _ in range(3):  # a plan is made at the second call
            x.grad = y.grad = None
            loss = pb.sum(pb.tanh(x) / (y * y + 1.0) + pb.maximum(x, 0.5) * pb.hypot(x, y) + pb.mean(x))
            loss.backward()
        return [np.asarray(x.grad), np.asarray(y.grad)]

    plain = gradients(*(pb.tensor(v, requires_grad=True) for v in (a, b)))
    linked = pb.grad(
        lambda x, y: pb.sum(pb.tanh(x) / (y * y + 1.0) + pb.maximum(x, 0.5) * pb.hypot(x, y) + pb.mean(x)), (0, 1)
    )
    with pb.detect_anomaly():  # sees every pull, so no generated step runs
        seen = linked(a, b)
    for p, s in zip(plain, seen, strict=True):
        assert p.dtype == np.float16
        np.testing.assert_array_equal(p, np.asarray(s))


LARGE = {
    "arithmetic": lambda x, y: (x * y + 0.5 * x) / (y - 3) - x,
    "select": lambda x, y: pb.where(x > y, pb.maximum(x, 0.25), pb.clip(y, -1, 1)),
    "roots": lambda x, y: pb.sqrt(pb.abs(x)) + pb.floor(y * 4),
    "casts": lambda x, y: x.astype("float32").astype(x.dtype) + y.astype("float64").astype(x.dtype) * 2,
    "transposed": lambda x, y: x.T * 2 + y.reshape(x.T.shape)[::-1],
    "compared": lambda x, y: (x > y) & (x <= 0.5) | pb.isnan(y),
    "beside float32": lambda x, y: x * y.astype("float32"),
}


@pytest.mark.parametrize("name", LARGE)
@HALVES
def test_large_arrays_have_the_same_bits_natively(name, dtype):
    """Sums, products, quotients and roots of float32 round to one number, whoever computes them: all 65,536 of them."""
    every = np.arange(1 << 16, dtype=np.uint16).view(as_dtype(dtype)).reshape(256, 256)
    x, y = pb.tensor(every), pb.tensor(np.random.default_rng(0).permutation(every.ravel()).reshape(256, 256))
    with np.errstate(all="ignore"):
        found = np.asarray(LARGE[name](x, y))
        with pb.native(False):
            wanted = np.asarray(LARGE[name](x, y))
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(found.astype("float64"), wanted.astype("float64"))


@HALVES
def test_large_arrays_have_gradients_and_meet_transforms(dtype):
    """Arrays that native code computes, in grad, jvp, vmap, jit and a checkpoint, against float64."""
    x, y = (np.random.default_rng(i).uniform(0.5, 2, (64, 1024)).astype(as_dtype(dtype)) for i in range(2))

    def f(x, y):
        return pb.tanh(x * y) / (y + 1.0) + pb.exp(-x) * 0.5

    wide = [a.astype("float64") for a in (x, y)]
    slopes = pb.grad(lambda x, y: pb.sum(f(x, y)), (0, 1))(*wide)
    eps = float(pb.finfo(dtype).eps)
    for found, wanted in (
        (f(pb.tensor(x), pb.tensor(y)), f(*wide)),
        (pb.vmap(f)(x, y), f(*wide)),
        (pb.jvp(f, (x, y), (x, y))[1], pb.jvp(f, wide, wide)[1]),
        *zip(pb.grad(lambda x, y: pb.sum(f(x, y)).astype("float32"), (0, 1))(x, y), slopes, strict=True),
        *zip(pb.grad(lambda *a: pb.sum(pb.checkpoint(f)(*a)).astype("float32"), (0, 1))(x, y), slopes, strict=True),
        *zip(pb.jit(lambda x, y: pb.vjp(f, x, y)[1](np.ones(x.shape, x.dtype)))(x, y), slopes, strict=True),
    ):
        assert found.dtype == as_dtype(dtype)
        np.testing.assert_allclose(np.asarray(found, "float64"), wanted, rtol=6 * eps, atol=6 * eps)
    for axis in (0, 1):
        total = np.asarray(pb.sum(pb.tensor(x), axis=axis), "float64")
        np.testing.assert_allclose(total, x.astype("float64").sum(axis), rtol=eps)


@HALVES
def test_distinct_elements_are_sorted_with_nan_last(dtype):
    x = np.array([1, 3, 3, np.nan, 2, np.nan]).astype(as_dtype(dtype))
    found = pb.unique(x, return_counts=True)
    assert found[0].dtype == x.dtype
    np.testing.assert_array_equal(found[0].astype("float64"), [1, 2, 3, np.nan])
    np.testing.assert_array_equal(found[1], [1, 1, 2, 2])


@HALVES
def test_large_products_are_summed_in_float32(dtype):
    a, b = (np.random.default_rng(i).normal(size=(200, 200)).astype(as_dtype(dtype)) for i in range(2))
    exact = a.astype("float64") @ b.astype("float64")
    unit = float(pb.finfo(dtype).eps) / 2
    for found, wanted in (
        (pb.matmul(a, b), exact),
        (pb.tensor(a) @ pb.tensor(b), exact),
        (pb.einsum("ij,jk->ki", a, b), exact.T),
        (pb.matmul(a.T[:, ::-1].T, b), exact[::-1]),
        (pb.grad(lambda a: pb.sum((a @ b).astype("float32")))(a), np.broadcast_to(b.astype("float64").sum(1), a.shape)),
    ):
        assert found.dtype == as_dtype(dtype)
        np.testing.assert_allclose(np.asarray(found, "float64"), wanted, rtol=unit * 1.01, atol=1e-4)
