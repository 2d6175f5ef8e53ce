"""The generated tests once more with CuPy arrays: same records, same rules, the array's own library.

Without a GPU a part of them runs on a stand-in for CuPy, which refuses what CuPy refuses.
"""

from __future__ import annotations

import functools

import numpy as np
import pytest
from gpu import REAL, cupy, installed_cupy  # noqa: F401
from network_samples import SAMPLES, is_moving
from records import Case, cases, flat_vector, name, random_like, real_inner_product, weighted_real_sum

import pullback as pb
from pullback import grad, jvp, vjp, vmap
from pullback.arrays.spec import Spec, make_spec
from pullback.ops.dispatch import apply

pytestmark = pytest.mark.gpu
#: Ops that SciPy alone has, and factors whose signs or bases each library chooses for itself.
ELSEWHERE = {"logm", "sqrtm", "eig", "eigh", "svd", "qr", "lift", "to_device"}


def is_on_host(case: Case) -> bool:
    """Whether the record says that the result of arguments on a GPU is one number on the host."""
    specs = [make_spec(np.shape(a), np.asarray(a).dtype, "cuda:0") for a in case.args]
    return isinstance(spec := case.op.spec_of(specs, case.static), Spec) and spec.device == "cpu"


EVERY = cases(lambda op: op.name not in ELSEWHERE)
ON_HOST = [case for case in EVERY if is_on_host(case)]
EVERY = [case for case in EVERY if case not in ON_HOST]
#: On a stand-in for CuPy, which shows what CuPy refuses, one sample of an op shows it.
ALL = EVERY if REAL else [case for case in EVERY if not case.number]
SMOOTH = [case for case in ALL if case.op.differentiable and case.moving]


def on_cpu(values):
    values = values if isinstance(values, (tuple, list)) else (values,)
    for v in values:
        assert isinstance(v, cupy.ndarray), "what goes in comes out"
    return flat_vector([cupy.asnumpy(v) for v in values])


class GpuCase(Case):
    """A case whose arguments lie on the GPU; the floating-point ones are found by dtype all the same."""

    @property
    def moving(self) -> list[int]:
        return [i for i, a in enumerate(self.args) if a.dtype.kind == "f"]

    def scalar(self, *floats):
        outs = self.function(*floats)
        rng = np.random.default_rng(7)
        total = cupy.zeros(())
        for out in outs if isinstance(outs, tuple) else (outs,):
            total = total + weighted_real_sum(out, cupy.asarray(random_like(rng, out)))
        return total


def lifted(case: Case) -> GpuCase:
    return GpuCase(case.op, case.number, tuple(cupy.asarray(a) for a in case.args), case.static)


def where_the_library_has_it(test):
    """Functions that CuPy does not have say so; what is computed must be right."""

    @functools.wraps(test)
    def guarded(case: Case):
        try:
            test(case)
        except pb.errors.DeviceError as error:
            if "no such function" not in str(error):
                raise
            pytest.skip(str(error).splitlines()[0])

    return guarded


@pytest.mark.parametrize("case", ALL, ids=name)
@where_the_library_has_it
def test_value(case: Case):
    out = apply(case.op, *lifted(case).args, **case.static)
    np.testing.assert_allclose(
        on_cpu(out), flat_vector(apply(case.op, *case.args, **case.static)), rtol=1e-12, atol=1e-14
    )


@pytest.mark.parametrize("case", ON_HOST, ids=name)
def test_value_on_the_host(case: Case):
    out = apply(case.op, *lifted(case).args, **case.static)
    assert isinstance(out, np.ndarray)
    np.testing.assert_array_equal(out, apply(case.op, *case.args, **case.static))


@pytest.mark.parametrize("case", SMOOTH if REAL else SMOOTH[::3], ids=name)
@where_the_library_has_it
def test_push_and_pull(case: Case):
    gpu, along = lifted(case), case.direction(1)
    _, tangent = jvp(gpu.scalar, gpu.floats, [cupy.asarray(v) for v in along])
    _, expected = jvp(case.scalar, case.floats, along)
    np.testing.assert_allclose(float(tangent), float(expected), rtol=1e-10, atol=1e-10)
    shares = vjp(gpu.scalar, *gpu.floats)[1](cupy.ones(()))
    np.testing.assert_allclose(
        on_cpu(shares), flat_vector(vjp(case.scalar, *case.floats)[1](np.ones(()))), rtol=1e-10, atol=1e-10
    )


@pytest.mark.parametrize("case", SMOOTH if REAL else SMOOTH[::16], ids=name)
@where_the_library_has_it
def test_second_order(case: Case):
    gpu, v = lifted(case), case.direction(4)

    def pulled(which, weights):
        def f(*ys):
            total = 0.0
            for i, w in enumerate(weights):
                total = total + pb.sum(grad(which.scalar, i)(*ys) * w)
            return total

        return f

    found = [grad(pulled(gpu, [cupy.asarray(w) for w in v]), i)(*gpu.floats) for i in range(len(v))]
    expected = [grad(pulled(case, v), i)(*case.floats) for i in range(len(v))]
    np.testing.assert_allclose(on_cpu(found), flat_vector(expected), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("case", ALL if REAL else ALL[::3], ids=name)
@where_the_library_has_it
def test_vmap(case: Case):
    stacked = [np.stack([np.asarray(a)] * 2) for a in case.args]
    found = vmap(lambda *xs: apply(case.op, *xs, **case.static))(*map(cupy.asarray, stacked))
    expected = vmap(lambda *xs: apply(case.op, *xs, **case.static))(*stacked)
    np.testing.assert_allclose(on_cpu(found), flat_vector(expected), rtol=1e-12, atol=1e-14)


def as_dtype(x, dtype):
    return x.astype(dtype) if isinstance(x, np.ndarray) and x.dtype.kind == "f" else x


@pytest.mark.parametrize("case", [c for c in ALL if c.moving] if REAL else [c for c in ALL if c.moving][::4], ids=name)
@where_the_library_has_it
def test_float32(case: Case):
    """Value and gradient of a sample in float32, to what float32 resolves of its largest entry."""
    narrow = Case(case.op, case.number, tuple(as_dtype(a, np.float32) for a in case.args), case.static)
    try:
        expected = apply(case.op, *narrow.args, **case.static)
        shares = vjp(narrow.scalar, *narrow.floats)[1](np.float32(1)) if case in SMOOTH else ()
    except pb.errors.PullbackError as error:
        pytest.skip(f"not in float32: {str(error).splitlines()[0]}")
    found = apply(case.op, *lifted(narrow).args, **case.static)
    assert_close_to_largest(on_cpu(found), flat_vector(expected), 1e-3)
    gpu = lifted(narrow)
    if case in SMOOTH:
        got = vjp(gpu.scalar, *gpu.floats)[1](cupy.ones((), np.float32))
        assert_close_to_largest(on_cpu(got), flat_vector(shares), 1e-2)


def assert_close_to_largest(found, expected, tolerance):
    """Equal up to a part of the largest entry; what is no number is none in both."""
    assert found.shape == expected.shape
    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(expected))
    finite = np.isfinite(expected)
    largest = np.abs(expected[finite]).max(initial=1e-3)
    np.testing.assert_allclose(found[finite], expected[finite], rtol=tolerance, atol=tolerance * largest)


def call_sample(sample, arrays, place):
    """A sample called on its arrays, with all other arrays in place too."""
    left, function = iter(arrays), getattr(pb.nn, sample.name.split(":")[0])
    places = [next(left) if is_moving(p) else pb.tree.map(place, p) for p in sample.places]
    return function(*places, **{k: pb.tree.map(place, v) for k, v in sample.options.items()})


def total(sample, place):
    def loss(*arrays):
        outs = pb.tree.leaves(call_sample(sample, arrays, place))
        return sum(pb.sum(pb.sin(out)) for out in outs if out.dtype.kind == "f")

    return loss


@pytest.mark.parametrize("dtype", ["float32", "float64"] if REAL else ["float32"])
@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_networks(sample, dtype):
    def here(x):
        return as_dtype(x, dtype)

    def there(x):
        return cupy.asarray(here(x)) if isinstance(x, np.ndarray) and x.dtype != np.uint32 else x  # keys stay

    arrays = [here(a) for a in sample.arrays]
    lifted_arrays = [cupy.asarray(a) for a in arrays]
    tolerance = 2e-3 if dtype == "float32" else 1e-9
    with pb.native(False):  # nothing is compiled on a GPU either
        expected = call_sample(sample, arrays, here)
    found = call_sample(sample, lifted_arrays, there)
    assert_close_to_largest(
        on_cpu(pb.tree.leaves(found)), flat_vector([np.asarray(x) for x in pb.tree.leaves(expected)]), tolerance
    )
    if not arrays or sample.drawn:
        return
    wanted = tuple(range(len(arrays)))
    try:
        with pb.native(False):
            slopes = grad(total(sample, here), wanted)(*arrays)
    except pb.errors.PullbackError:
        return  # nothing in it has a derivative
    got = grad(total(sample, there), wanted)(*lifted_arrays)
    assert [g.dtype for g in got] == [np.dtype(dtype)] * len(got)
    assert_close_to_largest(on_cpu(got), flat_vector(slopes), 10 * tolerance)


def test_a_training_step_by_tape():
    rng = np.random.default_rng(0)
    x, y = cupy.asarray(rng.normal(size=(16, 4))), cupy.asarray(rng.normal(size=(16, 1)))
    w = pb.tensor(cupy.asarray(rng.normal(size=(4, 1))), requires_grad=True)
    losses = []
    for _ in range(20):
        loss = pb.mean_squared_error(pb.tanh(pb.asarray(x) @ w), y)
        loss.backward()
        assert w.grad is not None
        assert w.grad.device == "cuda:0"
        with pb.no_grad():
            w -= 0.1 * w.grad
        w.grad = None
        losses.append(loss.item())
    assert losses[-1] < losses[0]


def test_numpy_and_cupy_do_not_mix_silently():
    with pytest.raises(pb.errors.DeviceError, match="CuPy"):
        pb.tensor(cupy.ones(2)) * np.ones(2)


def test_seed_on_the_wrong_device_is_refused():
    x = pb.tensor(cupy.ones(2), requires_grad=True)
    with pytest.raises(pb.errors.DeviceError):
        (x * x).backward(np.ones(2))


def test_inner_products_survive_the_way_to_the_gpu():
    a = np.arange(3.0)
    assert real_inner_product(on_cpu(cupy.asarray(a)), a) == 5.0


# Every road on the GPU gives what it gives on the CPU.


def energy(x):
    """A scalar of a vector, through elementwise ops, a product, indexing and a reduction."""
    pairs = pb.outer(x, pb.tanh(x))
    return pb.sum(pairs * pb.sin(pairs)) + pb.logsumexp(x[1:] - x[:-1] ** 2)


def field(x):
    return pb.concat([x[1:] * x[:-1], pb.cumulative_sum(pb.exp(x * 0.3))[:1]])


def by_tape(x):
    t = pb.tensor(x, requires_grad=True)
    energy(t).backward()
    return t.grad.value


def by_gradient_tape(x):
    with pb.GradientTape() as tape:
        t = tape.variable(x)
        out = energy(t)
    return tape.gradient(out, t).value


def by_context(x):
    with pb.ForwardContext() as context:
        out = energy(context.dual(x, tangents=np_like(x).eye(x.size)))
    return out.tangents


def by_loop(x):
    steps = pb.while_loop(lambda c: pb.sum(c * c) < 50.0, lambda c: c * 1.5 + pb.sin(c), x)
    return pb.scan(lambda c, row: (c + row, c * row), steps[0], x)[1]


def doubled():
    @pb.custom_op
    def cube(x):
        return x**3

    cube.def_vjp(lambda bar, x: 3.0 * x**2 * bar)
    return cube


def np_like(x):
    return cupy if isinstance(x, cupy.ndarray) else np


ROADS = {
    "tape": by_tape,
    "gradient tape": by_gradient_tape,
    "context": by_context,
    "grad": pb.grad(energy),
    "value_and_grad": lambda x: pb.value_and_grad(energy)(x)[1],
    "linearize": lambda x: pb.linearize(field, x)[1](x),
    "linear_transpose": lambda x: pb.linear_transpose(lambda y: 2.0 * y[1:] - y[:-1], x)(x[1:])[0],
    "hvp": lambda x: pb.hvp(energy, (x,), (x,)),
    "hessian": pb.hessian(energy),
    "jacobian": pb.jacobian(field),
    "jacfwd": pb.jacfwd(field),
    "jacrev": pb.jacrev(field),
    "jet": lambda x: tuple(pb.jet(energy, (x,), ([x, None, None],))[1]),
    "laplacian": pb.laplacian(energy),
    "divergence": pb.divergence(field),
    "vmap of grad": lambda x: pb.vmap(pb.grad(energy))(np_like(x).stack([x, 2 * x])),
    "loops": by_loop,
    "grad of loops": pb.grad(lambda x: pb.sum(by_loop(x))),
    "vmap of a loop": lambda x: pb.vmap(lambda y: pb.while_loop(lambda c: c < 20.0, lambda c: c * 2.0, y))(x),
    "custom op": lambda x: pb.grad(lambda y: pb.sum(pb.grad(lambda z: pb.sum(doubled()(z)))(y)))(x),
    "custom op, forward": lambda x: pb.jvp(doubled(), (x,), (x,))[1],
    "straight through": pb.grad(lambda x: pb.sum(pb.straight_through(pb.sign)(x) * x)),
}


@pytest.mark.parametrize("road", ROADS)
def test_roads(road):
    x = np.array([0.7, 1.3, 0.4, 1.1])
    np.testing.assert_allclose(
        on_cpu(ROADS[road](cupy.asarray(x))), flat_vector(ROADS[road](x)), rtol=1e-10, atol=1e-10
    )


# Equations on the GPU: each solver, and the gradient of what it finds.

MATRIX = np.array([[0.3, 0.2, 0.0], [-0.1, 0.4, 0.1], [0.0, 0.2, 0.2]])
DEFINITE = MATRIX @ MATRIX.T + np.eye(3)
RIGHT = np.array([1.0, -0.5, 0.3])
imp = pb.implicit


def library(b):
    """Where b lies, be it an array or a tensor."""
    return cupy if isinstance(b, cupy.ndarray) or b.device != "cpu" else np


def equilibrium(solver, adjoint=None):
    def loss(b):
        W = library(b).asarray(MATRIX)
        policy = imp.Implicit(adjoint=adjoint)
        z = pb.fixed_point(lambda z, b: pb.tanh(W @ z + b), 0 * b, b, solver=solver, derivative=policy)
        return pb.sum(z * z)

    return loss


def rooted(solver):
    def loss(b):
        x = pb.root(lambda x, b: x + 0.2 * x**3 + pb.sum(x) * 0.1 - b, 0 * b, b, solver=solver)
        return pb.sum(x * x)

    return loss


def least(solver):
    def loss(b):
        A = library(b).asarray(DEFINITE)
        x = pb.argmin(lambda x, b: 0.5 * pb.sum(x * (A @ x)) + 0.1 * pb.sum(x**4) - pb.sum(b * x), 0 * b, b,
                      solver=solver)  # fmt: skip
        return pb.sum(x * x)

    return loss


def fitted(solver):
    def loss(b):
        t = library(b).asarray(np.linspace(0.0, 1.0, 5))
        y = 1.0 + b[1] * 0.1 + pb.exp(-t) * b[0]
        w = pb.least_squares(lambda w, y: w[0] * pb.exp(-w[1] * t) + w[2] - y, library(b).ones(3), y, solver=solver)
        return pb.sum(w * w)

    return loss


def linear(method, **known):
    def loss(b):
        A = library(b).asarray(DEFINITE)
        x = pb.linear_solve(A, b, method=method, **known)
        return pb.sum(x * x) + pb.sum(pb.linear_solve(lambda v: A @ v, b, method=method, **known))

    return loss


def by_number(pose):
    return lambda b: pb.sum(pb.vmap(pose)(b))


EQUATIONS = {
    **{
        f"fixed point, {solver}": equilibrium(solver)
        for solver in (
            None,
            imp.Picard(),
            imp.Picard(0.5),
            imp.Anderson(2),
            imp.Accelerated(),
            imp.Newton(),
            imp.Broyden(),
        )
    },
    **{
        f"adjoint, {adjoint}": equilibrium(None, adjoint)
        for adjoint in (imp.Neumann(), imp.GMRES(), imp.BiCGStab(), imp.LSMR(), imp.Dense(), imp.Auto(0))
    },
    **{
        f"root, {solver}": rooted(solver)
        for solver in (None, imp.Newton(), imp.NewtonKrylov(), imp.Broyden(), imp.Chord(), imp.Anderson())
    },
    **{
        f"minimum, {solver}": least(solver)
        for solver in (None, imp.GradientDescent(), imp.BFGS(), imp.LBFGS(3), imp.Newton(), imp.NewtonKrylov())
    },
    **{f"least squares, {solver}": fitted(solver) for solver in (None, imp.GaussNewton(), imp.LevenbergMarquardt())},
    **{
        f"linear, {method}": linear(method, symmetric=True, definite=True)
        for method in (
            None,
            imp.CG(),
            imp.MINRES(),
            imp.GMRES(),
            imp.BiCGStab(),
            imp.LSMR(),
            imp.Dense(),
            imp.Dense("cholesky"),
        )
    },
    "linear, Neumann": lambda b: pb.sum(
        pb.linear_solve(lambda v: v - 0.3 * pb.tanh(b) * v, b, method=imp.Neumann()) ** 2
    ),
    "a number": lambda b: pb.fixed_point(lambda x, b: 0.5 * pb.cos(x) + pb.sum(b), b[0] * 0.0, b),
    "a batch of numbers": by_number(lambda c: pb.fixed_point(lambda x, c: 0.5 * pb.cos(x) + c, 0 * c, c)),
    "a batch of roots": by_number(lambda c: pb.root(lambda x, c: x**3 + x - c, 0 * c, c)),
    "bisection": by_number(lambda c: pb.root(lambda x, c: x**3 + x - c, 0 * c, c, solver=imp.Bisection(-9.0, 9.0))),
    "one step": lambda b: pb.sum(pb.fixed_point(lambda z, b: 0.3 * pb.tanh(z) + b, 0 * b, b, derivative=imp.OneStep())),
}


@pytest.mark.parametrize("name", list(EQUATIONS)[:: 1 if REAL else 5])
def test_equations(name):
    loss = EQUATIONS[name]
    there = cupy.asarray(RIGHT)
    np.testing.assert_allclose(float(loss(there)), float(loss(RIGHT)), rtol=1e-7)
    np.testing.assert_allclose(on_cpu(pb.grad(loss)(there)), flat_vector(pb.grad(loss)(RIGHT)), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", ["fixed point, None", "root, None", "minimum, None", "linear, None"])
def test_second_derivatives_of_equations(name):
    loss = EQUATIONS[name]
    along = np.array([1.0, 2.0, -1.0])
    found = pb.hvp(loss, (cupy.asarray(RIGHT),), (cupy.asarray(along),))
    np.testing.assert_allclose(on_cpu(found), flat_vector(pb.hvp(loss, (RIGHT,), (along,))), rtol=1e-5, atol=1e-7)


def test_an_equation_that_does_not_converge_says_so_on_the_gpu():
    with pytest.raises(pb.errors.ConvergenceError):
        pb.fixed_point(lambda x: 2.0 * x + 1.0, cupy.ones(2), solver=imp.Picard(), max_steps=20)
    with pytest.raises(pb.errors.ConvergenceError):
        pb.linear_solve(cupy.zeros((2, 2)), cupy.ones(2))


def _dropped(x):
    mask = cupy.random.random(x.shape) > 0.5
    return pb.sum(pb.sin(pb.exp(pb.sin(x) * mask)) * mask)


def test_checkpoints_replay_the_stream_of_the_gpu():
    array = cupy.arange(12.0).reshape(3, 4)
    cupy.random.seed(3)
    x = pb.tensor(array, requires_grad=True)
    y = pb.checkpoint(_dropped, verify=True)(x)
    later = cupy.random.random(3)
    z = pb.checkpoint(_dropped, verify=True)(x)
    y.backward()
    after = cupy.random.random(3)
    cupy.random.seed(3)
    twin = pb.tensor(array, requires_grad=True)
    y = pb.checkpoint(_dropped)(twin)
    assert (cupy.random.random(3) == later).all()
    z = pb.checkpoint(_dropped)(twin)
    assert (cupy.random.random(3) == after).all(), "as if nothing had been rewound"
    y.backward()
    assert (x.grad.value == twin.grad.value).all()
    z.backward()


def test_checkpoints_with_every_policy_on_the_gpu(tmp_path):
    def f(x, w):
        for _ in range(3):
            x = pb.tanh(pb.sin(pb.name(x @ w, "h")))
        return pb.sum(x)

    x, w = (cupy.asarray(np.random.default_rng(i).normal(size=(4, 4))) for i in (0, 1))
    plain = pb.grad(f, (0, 1))(x, w)
    to_disk = pb.offload_named("h", to=tmp_path)
    for policy in (pb.save_nothing, pb.save_contractions, pb.save_named("h"), pb.offload_named("h"), to_disk):
        found = pb.grad(pb.checkpoint(f, policy=policy, verify=True), (0, 1))(x, w)
        assert all((a == b).all() for a, b in zip(found, plain, strict=True))
