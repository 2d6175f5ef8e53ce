"""Tests generated from the op records: every op, every sample, every role."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from records import Case, cases, drop_free_phases, flat_vector, name, random_like, real_inner_product, weighted_real_sum

import pullback as pb
from pullback import grad, jvp, vjp, vmap
from pullback.arrays.spec import make_spec, spec_of
from pullback.ops import OPS, load_all_ops, statics
from pullback.ops.dispatch import apply
from pullback.ops.eager import public_function
from pullback.ops.families import linear
from pullback.ops.op import OPAQUE
from pullback.ops.op_samples import normal_samples
from pullback.program.passes import optimize
from pullback.tools.certify.oracles import has_oracle, oracle_of
from pullback.transforms.stage import stage

ALL = cases()
SMOOTH = [case for case in cases(lambda op: op.differentiable) if case.moving]

#: Ops of `pullback.special`, and those of them whose complex derivative is tested too.
SPECIAL = {name for name, op in load_all_ops().items() if op.samples.__module__ == "pullback.ops.special.definition"}
PLANE = {
    "gamma", "loggamma", "erfc", "fresnel_s", "fresnel_c", "jv", "yv", "iv", "airy_ai", "airy_ai_prime", "airy_bi",
    "airy_bi_prime", "expi", "exp1", "sine_integral", "cosine_integral", "sinh_integral", "cosh_integral", "hyp0f1",
    "hyp1f1", "hyp2f1", "spherical_jn", "spherical_yn", "spherical_in", "spherical_kn",
}  # fmt: skip


def test_every_op_has_samples():
    without = [op.name for op in load_all_ops().values() if not op.samples(np.random.default_rng(0))]
    assert without == []


#: The ops of the package: pages of the docs, whose snippets run in the same process, add others.
OURS = dict(load_all_ops())


def test_every_op_has_an_oracle():
    assert [name for name, op in OURS.items() if not has_oracle(op)] == []


@pytest.mark.parametrize("case", ALL, ids=name)
def test_value_agrees_with_its_oracle(case: Case):
    out = apply(case.op, *case.args, **case.static)
    for x in out if isinstance(out, tuple) else (out,):
        assert type(x) is np.ndarray, "0-d results stay arrays"
    for found, wanted in oracle_of(case)(out):
        assert found.shape == np.shape(wanted)
        np.testing.assert_allclose(found, wanted, rtol=1e-13, atol=2e-15 if case.op.family != "matrix" else 1e-13)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
@pytest.mark.parametrize("case", ALL, ids=name)
def test_spec_says_what_the_value_is(case: Case, dtype: str):
    case = case.cast(dtype)
    out = apply(case.op, *case.args, **case.static)
    said = case.op.spec(*map(spec_of, case.args), **case.static)
    for spec, x in zip(said, out, strict=True) if isinstance(out, tuple) else [(said, out)]:
        assert (spec.shape, spec.dtype) == (x.shape, x.dtype)


@pytest.mark.parametrize("case", SMOOTH, ids=name)
def test_push_agrees_with_differences(case: Case):
    step, along = 1e-6, case.direction(1)
    high = case.scalar(*(a + step * v for a, v in zip(case.floats, along, strict=True)))
    low = case.scalar(*(a - step * v for a, v in zip(case.floats, along, strict=True)))
    _, tangent = jvp(case.scalar, case.floats, along)
    # Two lie by design, one drops digits, and one has its slope at a fixed probability instead of fixed bits.
    if case.op.name not in ("stop_gradient", "straight_through_round", "astype", "log_gamma_draw"):
        np.testing.assert_allclose(tangent, (high - low) / (2 * step), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("case", SMOOTH, ids=name)
def test_pull_is_the_transpose_of_push(case: Case):
    """<u, J v> = <J^T u, v> to the last digits."""
    along = case.direction(2)
    out, tangent = jvp(case.function, case.floats, along)
    rng = np.random.default_rng(3)
    outs = out if isinstance(out, tuple) else (out,)
    bars = [np.asarray(random_like(rng, o)).astype(o.dtype) for o in outs]
    shares = vjp(lambda *xs: _combined(case.function(*xs), bars), *case.floats)[1](np.asarray(1.0))
    for share, a in zip(shares, case.floats, strict=True):
        assert (share.shape, share.dtype) == (np.shape(a), np.asarray(a).dtype)
    scale = 1 + np.abs(flat_vector(bars) * flat_vector(tangent)).sum()
    tolerance = 1e-6 if case.static.get("dtype") == np.float32 else 1e-13
    assert abs(real_inner_product(bars, tangent) - real_inner_product(shares, along)) <= tolerance * scale


def _combined(out, bars):
    outs = out if isinstance(out, tuple) else (out,)
    total = 0.0
    for o, bar in zip(outs, bars, strict=True):
        total = total + weighted_real_sum(o, bar)
    return total


@pytest.mark.parametrize("case", SMOOTH, ids=name)
def test_four_second_orders_agree(case: Case):
    """v^T H w by forward-forward, forward-reverse, reverse-forward and reverse-reverse."""
    v, w, xs = case.direction(4), case.direction(5), case.floats
    count = range(len(xs))

    def pushed(*ys):
        return jvp(case.scalar, ys, v)[1]

    def pulled(*ys):
        total = 0.0
        for i in count:
            total = total + pb.sum(grad(case.scalar, i)(*ys) * v[i])
        return total

    ff = jvp(pushed, xs, w)[1]
    fr = jvp(pulled, xs, w)[1]
    rf = sum(real_inner_product(grad(pushed, i)(*xs), w[i]) for i in count)
    rr = sum(real_inner_product(grad(pulled, i)(*xs), w[i]) for i in count)
    found = np.array([float(np.asarray(f)) for f in (ff, fr, rf, rr)])
    np.testing.assert_allclose(found, found[0], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("case", ALL, ids=name)
def test_vmap_agrees_with_a_loop(case: Case):
    size, rng = 3, np.random.default_rng(6)
    slots = range(len(case.args))
    choices = [c for c in itertools.product((None, 0, -1), repeat=len(case.args)) if any(a is not None for a in c)]
    if len(choices) > 8:
        choices = [choices[i] for i in sorted(rng.choice(len(choices), 8, replace=False))]
    for axes in choices:
        rows = [[_varied(case, i, rng) if axes[i] is not None else case.args[i] for i in slots] for _ in range(size)]
        stacked = [
            case.args[i] if axes[i] is None else np.moveaxis(np.stack([r[i] for r in rows]), 0, axes[i]) for i in slots
        ]
        found = vmap(lambda *xs: apply(case.op, *xs, **case.static), axes)(*stacked)
        looped = [apply(case.op, *row, **case.static) for row in rows]
        if isinstance(found, tuple):
            expected = tuple(np.stack(parts) for parts in zip(*looped, strict=True))
        else:
            expected = np.stack(looped)
        np.testing.assert_allclose(flat_vector(found), flat_vector(expected), rtol=1e-12, atol=1e-14)


def _varied(case, i, rng):
    """Another array of the same kind, inside the same domain; a matrix keeps its shape of spectrum."""
    a = np.asarray(case.args[i])
    if case.op.family == "matrix" and a.dtype.kind == "f":
        return a * rng.uniform(0.5, 1.5)
    return a if a.dtype.kind == "b" else np.asarray(rng.permutation(a.ravel()).reshape(a.shape))


@pytest.mark.parametrize("case", SMOOTH, ids=name)
def test_staged_program_computes_the_same(case: Case):
    program = stage(case.function)(*case.floats)
    np.testing.assert_array_equal(flat_vector(program.run(*case.floats)), flat_vector(case.function(*case.floats)))
    pulled = stage(grad(case.scalar))(*case.floats)
    np.testing.assert_allclose(
        flat_vector(pulled.run(*case.floats)), flat_vector(grad(case.scalar)(*case.floats)), rtol=1e-14
    )


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("case", SMOOTH, ids=name)
def test_gradients_keep_their_dtype(case: Case, dtype: str):
    case = case.cast(dtype)
    xs = [pb.tensor(a, requires_grad=True) for a in case.floats]
    outs = case.function(*xs)
    for out in outs if isinstance(outs, tuple) else (outs,):
        found = pb.gradients(out, xs, np.ones(out.shape), retain_graph=True, allow_unused=True)
        for g, x in zip(found, xs, strict=True):
            assert g is not None
            assert (g.dtype, g.shape) == (x.dtype, x.shape)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("case", [c for c in SMOOTH if c.op.family == "elementwise" and not c.static], ids=name)
def test_fast_path_is_the_general_path(case: Case, dtype: str):
    """Saved-value hooks force the general path; both must give the same bits. All arguments get one shape."""
    case = case.cast(dtype)
    shape = np.broadcast_shapes(*(np.shape(a) for a in case.args))
    values = [np.array(np.broadcast_to(a, shape)) for a in case.args]
    public = public_function(case.op)

    def both_ways():
        xs = [pb.tensor(v, requires_grad=v.dtype.kind == "f") for v in values]
        out = public(*xs)
        tracked = [x for x in xs if x.requires_grad]
        return [out.detach(), *pb.gradients(out, tracked, np.full(shape, 0.7, dtype), allow_unused=True)]

    fast = both_ways()
    with pb.saved_tensors_hooks(lambda t: t, lambda t: t):
        general = both_ways()
    for a, b in zip(fast, general, strict=True):
        assert a is not None
        assert b is not None
        np.testing.assert_array_equal(a.numpy(), b.numpy())


#: Ops that have no complex derivative.
ONLY_REAL = {
    "atan2", "cbrt", "ceil", "copysign", "deg2rad", "floor", "floor_divide", "fmax", "fmin", "fmod", "heaviside",
    "hypot", "log_gamma_draw", "logaddexp", "logaddexp2", "logcumsumexp", "maximum", "minimum", "nextafter", "rad2deg",
    "relu", "remainder", "rfft", "sigmoid", "softplus", "spacing", "trunc",
} | (SPECIAL - PLANE)  # fmt: skip


def _turned(case: Case) -> Case:
    """The sample with its floating-point arguments turned into the complex plane."""
    args = tuple(np.asarray(a * np.exp(0.4j) + 0.05j) if i in case.moving else a for i, a in enumerate(case.args))
    return Case(case.op, case.number, args, case.static)


@pytest.mark.parametrize("case", SMOOTH, ids=name)
def test_complex_pull_is_the_transpose_of_push(case: Case):
    """Re <u, J v> = Re <J^H u, v>; ops that need an order, and those that SciPy has for reals only, say so."""
    if case.op.name in ONLY_REAL:
        with pytest.raises(pb.errors.DtypeError):
            _complex_products(case, _turned(case))
        return
    left, right = _complex_products(case, _turned(case))
    single = case.static.get("dtype") == np.float32
    assert abs(left - right) <= (1e-5 if single else 1e-12) * (1 + abs(left))


def _complex_products(case: Case, turned: Case) -> tuple[float, float]:
    def function(*values):
        args = list(turned.args)
        for i, value in zip(case.moving, values, strict=True):
            args[i] = value
        return drop_free_phases(turned.op, apply(turned.op, *args, **turned.static))

    rng = np.random.default_rng(8)
    floats = [turned.args[i] for i in case.moving]
    along = [random_like(rng, a) for a in floats]
    out, tangents = jvp(function, floats, along)
    bars = [random_like(rng, o) for o in (out if isinstance(out, tuple) else (out,))]
    tensors = [pb.tensor(a, requires_grad=True) for a in floats]
    results = function(*tensors)
    shares = pb.gradients(list(results) if isinstance(results, tuple) else [results], tensors, bars)
    pulled = [g.numpy() for g in shares if g is not None]
    return np.sum(np.conj(flat_vector(bars)) * flat_vector(tangents)).real, np.sum(
        np.conj(flat_vector(pulled)) * flat_vector(along)
    ).real


@pytest.fixture
def picked_rows():
    """An op that is linear in its first argument, with an index and two static parameters, known while a test runs."""

    def pull(bar, x_spec, index, static):
        seen.append(static)
        return pb.scatter_add(np.zeros(x_spec.shape), static["axis"], index, bar * static["factor"])

    seen = []
    op = linear(
        "test_picked_rows",
        statics={"axis": statics.axis, "factor": statics.integer(1)},
        value=lambda xp, x, index, axis, factor: factor * xp.take_along_axis(x, index, axis),
        spec=lambda x, index, axis, factor: make_spec(index.shape, x.dtype),
        transpose={"x": pull},
        samples=normal_samples([(3,), (2, 3)], axis=[0, 1], factor=2),
    )
    yield op, seen
    del OPS["test_picked_rows"]


def test_arguments_follow_from_the_value_and_batching_from_the_kinds(picked_rows):
    op, _ = picked_rows
    assert op.args == ("x", "index")
    xs, index = np.arange(6.0).reshape(2, 3), np.array([2, 0])
    found = vmap(lambda x: apply(op, x, index, axis=0, factor=2))(xs)
    np.testing.assert_array_equal(found, 2 * xs[:, index])


def test_a_linear_op_pushes_its_values_and_keeps_its_indices(picked_rows):
    op, seen = picked_rows
    x, v, index = np.arange(3.0), np.array([1.0, 10.0, 100.0]), np.array([2, 2, 0])
    f = lambda x: apply(op, x, index, axis=0, factor=2)  # noqa: E731
    np.testing.assert_array_equal(jvp(f, (x,), (v,))[1], [200.0, 200.0, 2.0])
    np.testing.assert_array_equal(vjp(f, x)[1](np.array([1.0, 2.0, 3.0]))[0], [6.0, 0.0, 6.0])
    assert seen == [{"axis": 0, "factor": 2}], "a formula may name all static parameters"


def test_samples_are_columns(picked_rows):
    (first, static), (second, more) = picked_rows[0].samples(np.random.default_rng(0))
    assert (first[0].shape, static) == ((3,), {"axis": 0, "factor": 2})
    assert (second[0].shape, more) == ((2, 3), {"axis": 1, "factor": 2})


ALGEBRA = [c for c in cases(lambda op: op.algebra is not OPAQUE) if c.args[0].size]


@pytest.mark.parametrize("case", ALGEBRA, ids=name)
def test_what_a_record_says_of_its_arithmetic_is_so(case: Case):
    algebra, args = case.op.algebra, case.args
    out = case.call(*args)
    if algebra.weights:
        np.testing.assert_allclose(out, sum(w * x for w, x in zip(algebra.weights, args, strict=True)), rtol=1e-15)
    if algebra.is_product:
        np.testing.assert_array_equal(out, args[0] * args[1])
    if algebra.is_quotient:
        np.testing.assert_allclose(out * args[1], np.broadcast_to(args[0], out.shape), rtol=1e-15)
    for position, number in algebra.neutral.items():
        x = np.array([0.0, -0.0, 1.5, -2.0, np.inf, -np.inf, np.nan])
        given = [x, x]
        given[position] = np.float64(number)
        found = case.call(*given)
        np.testing.assert_array_equal(found, x)
        np.testing.assert_array_equal(np.signbit(found), np.signbit(x))


def test_a_users_op_of_a_known_name_keeps_its_own_arithmetic():
    @pb.custom_op
    def multiply(x, y):
        return np.asarray(x * y + 1.0)

    multiply.def_spec(lambda x, y: x)
    program = optimize(stage(lambda x: multiply(x, 1.0))(np.ones(3)))
    assert len(program.equations) == 1
    x = np.array([1.0, 2.0, 3.0])
    np.testing.assert_array_equal(pb.jit(lambda x: multiply(x, 1.0))(x), x + 1.0)
