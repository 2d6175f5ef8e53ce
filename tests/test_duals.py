"""Duals in plain code agree with `jvp` for every op, nest with all transforms, and end with their context."""

from __future__ import annotations

import contextvars
import re
import threading

import numpy as np
import pytest
from records import cases, flat_vector, name

import pullback as pb
from pullback import errors
from pullback.arrays.scope import current_scope


@pytest.fixture(autouse=True)
def nothing_is_left():
    yield
    assert current_scope() is None


def alone(body):
    """Run in a context of its own, so that what a defect leaves behind stays there."""
    return contextvars.copy_context().run(body)


def test_the_example():
    with pb.ForwardContext() as ctx:
        x = ctx.dual(2.0, 1.0)
        z = pb.sin(x) * x
    assert (float(z.primal), float(z.tangent)) == pytest.approx((1.818595, 0.077004), abs=1e-6)
    assert z.tangents.shape == (1,)
    assert isinstance(z.primal, np.ndarray)
    assert isinstance(z.tangent, np.ndarray)
    assert isinstance(z, pb.Dual)


# Every op.


MOVING = [case for case in cases() if case.moving]


@pytest.mark.parametrize("case", [case for case in MOVING if case.op.differentiable], ids=name)
def test_every_op_as_in_jvp(case):
    one, other = case.direction(1), case.direction(2)
    value, tangent = pb.jvp(case.function, case.floats, one)
    with pb.ForwardContext() as ctx:
        out = case.function(*(ctx.dual(x, t) for x, t in zip(case.floats, one, strict=True)))
    outs = out if isinstance(out, tuple) else (out,)
    np.testing.assert_array_equal(flat_vector([y.primal for y in outs]), flat_vector(value))
    np.testing.assert_array_equal(flat_vector([y.tangent for y in outs]), flat_vector(tangent))
    _, second = pb.jvp(case.function, case.floats, other)
    with pb.ForwardContext() as ctx:
        duals = [ctx.dual(x, tangents=[t, u]) for x, t, u in zip(case.floats, one, other, strict=True)]
        out = case.function(*duals)
    outs = out if isinstance(out, tuple) else (out,)
    for i, expected in enumerate((tangent, second)):
        np.testing.assert_allclose(
            flat_vector([y.tangents[i] for y in outs]), flat_vector(expected), rtol=1e-10, atol=1e-12
        )


@pytest.mark.parametrize("case", [case for case in MOVING if not case.op.differentiable], ids=name)
def test_ops_without_a_derivative_answer_bare_arrays(case):
    with pb.ForwardContext() as ctx:
        out = case.function(*(ctx.dual(x, x) for x in case.floats))
    for result in out if isinstance(out, tuple) else (out,):
        assert isinstance(result, np.ndarray)


def test_pinned_values():
    with pb.ForwardContext() as ctx:
        product = ctx.dual(2.0, 0.5) * ctx.dual(3.0, 0.1)
        quotient = ctx.dual(6.0, 1.0) / ctx.dual(3.0, 0.5)
        minus = -ctx.dual(2.0, 0.5)
        a = ctx.dual([[1.0, 2.0], [3.0, 4.0]], np.full((2, 2), 0.1))
        b = ctx.dual([[5.0, 6.0], [7.0, 8.0]])
        matrix = ctx.dual([[1.0, 0.0], [0.0, 1.0]], [[0.1, 0.0], [0.0, 0.1]]) @ b
        x = ctx.dual(1.0, 1.0)
        chain, round_trip = pb.exp(x * x), pb.log(pb.exp(x))
        circle = pb.sin(x) ** 2 + pb.cos(x) ** 2
        right = ctx.dual(np.pi / 2, 1.0)
        sine, cosine = pb.sin(right), pb.cos(right)
        rest = pb.relu(ctx.dual(-1.0, 1.0))
        both = a @ b
    assert (float(product.primal), float(product.tangent)) == pytest.approx((6.0, 1.7))
    assert (float(quotient.primal), float(quotient.tangent)) == pytest.approx((2.0, 0.0))
    assert (float(minus.primal), float(minus.tangent)) == (-2.0, -0.5)
    np.testing.assert_allclose(matrix.tangent, [[0.5, 0.6], [0.7, 0.8]])
    np.testing.assert_allclose(both.tangent, np.full((2, 2), 0.1) @ [[5.0, 6.0], [7.0, 8.0]])
    assert float(chain.tangent) == pytest.approx(2.0 * np.e)
    assert float(round_trip.tangent) == pytest.approx(1.0)
    assert float(circle.tangent) == pytest.approx(0.0)
    assert float(sine.tangent) == pytest.approx(0.0)
    assert float(cosine.tangent) == pytest.approx(-1.0)
    assert float(rest.tangent) == 0.0


# Making duals.


def test_constants():
    with pb.ForwardContext() as ctx:
        k = ctx.dual([1.0, 2.0])
        y = k * 2.0
        z = ctx.dual([3.0, 4.0], [1.0, 0.0]) * k
    np.testing.assert_array_equal(k.tangent, np.zeros(2))
    np.testing.assert_array_equal(y.tangent, np.zeros(2))
    np.testing.assert_array_equal(z.tangent, [1.0, 0.0])
    with pb.ForwardContext() as ctx:
        x, k = ctx.dual([1.0, 2.0], tangents=np.eye(2)), ctx.dual([1.0, 2.0])
    np.testing.assert_array_equal(k.tangents, np.zeros((2, 2)))
    np.testing.assert_array_equal(x.tangents, np.eye(2))


@pytest.mark.parametrize(
    "tangents", [np.eye(2), [[1.0, 0.0], [0.0, 1.0]], [[1, 0], [0, 1]], (np.array([1.0, 0.0]), [0.0, 1.0])]
)
def test_forms_of_several_directions(tangents):
    with pb.ForwardContext() as ctx:
        x = ctx.dual([3.0, 4.0], tangents=tangents)
        y, z = pb.sum(x * x), x[0] * x
    np.testing.assert_array_equal(y.tangents, [6.0, 8.0])
    np.testing.assert_array_equal(z.tangents, [[6.0, 4.0], [0.0, 3.0]])
    with pytest.raises(errors.ArgumentError, match=r"2 directions; read x\.tangents"):
        y.tangent  # noqa: B018 - reading it raises


@pytest.mark.parametrize(
    ("primal", "given", "kind", "said"),
    [
        (2, {"tangent": 1.0}, errors.DtypeError, "floating-point"),
        (np.arange(3), {"tangent": np.ones(3)}, errors.DtypeError, "int64"),
        (True, {"tangent": 1.0}, errors.DtypeError, "bool"),
        (np.ones(3), {"tangent": 1.0}, errors.ShapeError, r"\(\), its primal \(3,\)"),
        (1.0, {"tangent": 1j}, errors.DtypeError, "complex"),
        (1.0, {"tangent": 1.0, "tangents": [1.0]}, errors.ArgumentError, "not both"),
        (1.0, {"tangents": 1.0}, errors.ShapeError, "directions"),
        (np.ones(2), {"tangents": np.ones((2, 3))}, errors.ShapeError, "directions"),
    ],
)
def test_what_dual_refuses(primal, given, kind, said):
    with pb.ForwardContext() as ctx, pytest.raises(kind, match=said):
        ctx.dual(primal, **given)


def test_mismatched_directions():
    with pb.ForwardContext() as ctx:
        ctx.dual(1.0, tangents=[1.0, 2.0])
        with pytest.raises(errors.ShapeError, match="3 directions"):
            ctx.dual(1.0, tangents=[1.0, 2.0, 3.0])
        with pytest.raises(errors.ArgumentError, match="give tangents="):
            ctx.dual(1.0, 1.0)


def test_one_direction_and_then_several():
    with pb.ForwardContext() as ctx:
        ctx.dual(1.0, 1.0)
        with pytest.raises(errors.PullbackError):
            ctx.dual(1.0, tangents=[1.0, 2.0])


def test_no_directions_are_refused():
    with pb.ForwardContext() as ctx:
        with pytest.raises(errors.PullbackError):
            ctx.dual(1.0, tangents=[])
        with pytest.raises(errors.PullbackError):
            ctx.dual(1.0, tangents=np.zeros((0,)))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_tangents_have_the_dtype_of_their_primal(dtype):
    with pb.ForwardContext() as ctx:
        x = ctx.dual(np.ones(2, dtype), np.ones(2)) * 2.0
    assert x.tangent.dtype == x.primal.dtype == dtype


def test_complex_duals():
    with pb.ForwardContext() as ctx:
        z = ctx.dual(1.0 + 2.0j, 1j)
        y, r = z * z, pb.real(z * pb.conj(z))
    assert complex(y.tangent) == 2.0 * (1.0 + 2.0j) * 1j
    assert float(r.tangent) == 4.0


def test_writing_to_the_arrays_a_dual_was_made_of():
    a, v = np.ones(2), np.ones(2)
    with pb.ForwardContext() as ctx:
        x = ctx.dual(a, v)
        y = x * x
        try:
            a[:] = 5.0
            v[:] = 7.0
        except ValueError:
            pass
        z = y * x
    np.testing.assert_array_equal(z.primal, np.ones(2))
    np.testing.assert_array_equal(z.tangent, 3.0 * np.ones(2))


# Together with everything else.


def test_duals_of_duals():
    with pb.ForwardContext() as outer:
        x = outer.dual(2.0, 1.0)
        with pb.ForwardContext() as inner:
            z = inner.dual(x, 1.0) ** 3
        slope = z.tangent
        product = slope * x
    assert [float(v) for v in (slope.primal, slope.tangent, z.primal.tangent)] == [12.0, 12.0, 12.0]
    assert float(product.tangent) == 36.0


def test_the_perturbations_of_two_contexts_are_not_confused():
    with pb.ForwardContext() as outer:
        x = outer.dual(1.0, 1.0)
        with pb.ForwardContext() as inner:
            y = inner.dual(1.0, 1.0)
            z = x * (x + y)
        slope = z.tangent
        result = x * slope
    assert (float(slope.primal), float(slope.tangent)) == (1.0, 1.0)
    assert (float(result.primal), float(result.tangent)) == (1.0, 2.0)


def test_a_hessian_by_nested_directions():
    def f(x):
        return pb.sum(pb.exp(x) * x[0])

    point = np.array([0.5, -0.2])
    with pb.ForwardContext() as outer:
        x = outer.dual(point, tangents=np.eye(2))
        with pb.ForwardContext() as inner:
            z = f(inner.dual(x, tangents=np.eye(2)))
    columns = [pb.jvp(pb.grad(f), (point,), (e,))[1] for e in np.eye(2)]
    np.testing.assert_allclose(z.tangents.tangents, np.stack(columns))


def test_tangents_of_nested_duals_stay_readable():
    with pb.ForwardContext() as outer, pb.ForwardContext() as inner:
        z = inner.dual(outer.dual(2.0, 1.0), 1.0) ** 3
    assert float(z.tangent.tangent) == 12.0
    assert z.tangents.tangents.shape == (1, 1)


TRANSFORMS = {
    "grad": lambda f, x: pb.grad(f)(x),
    "jvp": lambda f, x: pb.jvp(f, (x,), (1.0,))[1],
    "vjp": lambda f, x: pb.vjp(f, x)[1](1.0)[0],
    "linearize": lambda f, x: pb.linearize(f, x)[1](1.0),
}


@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)
def test_transforms_inside_a_context(transform):
    with pb.ForwardContext() as ctx:
        x = ctx.dual(2.0, 1.0)
        slope = transform(lambda y: y**3, x)
        mixed = transform(lambda y: y**3 * x, 3.0)
    assert (float(slope.primal), float(slope.tangent)) == (12.0, 12.0)
    assert (float(mixed.primal), float(mixed.tangent)) == (54.0, 27.0)


@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)
def test_transforms_inside_a_context_of_several_directions(transform):
    with pb.ForwardContext() as ctx:
        slope = transform(lambda y: y**3, ctx.dual(2.0, tangents=[1.0, 10.0]))
    assert float(slope.primal) == 12.0
    np.testing.assert_array_equal(slope.tangents, [12.0, 120.0])


@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)
def test_a_context_inside_transforms(transform):
    def slope(a):
        with pb.ForwardContext() as ctx:
            z = ctx.dual(a, 1.0) ** 3
        return z.tangent

    def weighted(a):
        with pb.ForwardContext() as ctx:
            z = ctx.dual(a, tangents=[1.0, 2.0]) ** 3
        return pb.sum(z.tangents)

    assert float(transform(slope, 2.0)) == 12.0
    assert float(transform(weighted, 2.0)) == 36.0


def test_vmap_inside_and_outside():
    x = np.arange(1.0, 4.0)
    with pb.ForwardContext() as ctx:
        inside = pb.vmap(lambda y: y**3)(ctx.dual(x, np.ones(3)))
    np.testing.assert_array_equal(inside.tangent, 3 * x**2)
    with pb.ForwardContext() as ctx:
        several = pb.vmap(lambda y: pb.sum(y**3))(ctx.dual(np.stack([x, x]), tangents=np.ones((2, 2, 3))))
    np.testing.assert_array_equal(several.tangents, np.full((2, 2), np.sum(3 * x**2)))

    def slope(a):
        with pb.ForwardContext() as ctx:
            return (ctx.dual(a, 1.0) ** 3).tangent

    np.testing.assert_array_equal(pb.vmap(slope)(x), 3 * x**2)


@pytest.mark.parametrize("kind", ["vjp", "jvp"])
def test_custom_ops_in_a_context(kind):
    cube = pb.custom_op(lambda x: np.asarray(x) ** 3)
    if kind == "vjp":
        cube.def_vjp(lambda bar, x: 3.0 * x**2 * bar)
    else:
        cube.def_jvp(lambda tangents, x: 3.0 * x**2 * tangents[0])
    with pb.ForwardContext() as ctx:
        y = cube(ctx.dual([1.0, 2.0], tangents=np.eye(2)))
        z = pb.grad(lambda x: pb.sum(cube(x)))(ctx.dual([1.0, 2.0], tangents=np.eye(2)))
    np.testing.assert_array_equal(y.tangents, np.diag([3.0, 12.0]))
    np.testing.assert_array_equal(z.tangents, np.diag([6.0, 12.0]))


@pytest.mark.parametrize("which", ["primal", "tangent", "one of several"])
def test_tracked_tensors_make_the_results_differentiable(which):
    t = pb.tensor(2.0, requires_grad=True)
    with pb.ForwardContext() as ctx:
        if which == "primal":
            slope = (ctx.dual(t, 1.0) ** 3).tangent
        elif which == "tangent":
            slope = (ctx.dual(2.0, t) ** 3).tangent
        else:
            slope = pb.sum((ctx.dual(2.0, tangents=[t, 1.0]) ** 3).tangents)
    slope.backward()
    assert t.grad.item() == 12.0


def test_a_leaf_made_inside():
    with pb.ForwardContext() as ctx:
        x = ctx.dual(3.0, 1.0)
        t = pb.tensor(2.0, requires_grad=True)
        (t * t * x).backward()
        g = t.grad
    assert (float(g.value.primal), float(g.value.tangent)) == (12.0, 4.0)
    assert t.item() == 2.0


def test_a_leaf_made_inside_cannot_be_a_primal():
    """It lies above the duals of the context; its derivative would be mixed up with theirs."""
    with pb.ForwardContext() as ctx:
        t = pb.tensor(2.0, requires_grad=True)
        with pytest.raises(errors.PullbackError):
            ctx.dual(t, 1.0)


def test_a_constant_of_a_dual():
    with pb.ForwardContext() as ctx:
        x = ctx.dual(2.0, 1.0)
        assert float((pb.stop_gradient(x) * x).tangent) == 2.0
        with pytest.raises(errors.ConversionError) as caught:
            float(x)
        for method in re.findall(r"x\.(\w+)\(", str(caught.value)):
            assert float((getattr(x, method)() * x).tangent) == 2.0


# Where a dual ends.


def test_duals_are_inert_when_the_context_is_over():
    with pb.ForwardContext() as ctx:
        x = ctx.dual([2.0, 3.0], [1.0, 0.0])
        t = pb.tensor([1.0, 1.0], requires_grad=True)
    for use in (
        lambda: x * 2.0,
        lambda: 2.0 * x,
        lambda: np.sin(x),
        lambda: x > 1.0,
        lambda: x[0],
        lambda: t * x,
        lambda: pb.grad(lambda y: pb.sum(y * x))(np.ones(2)),
        lambda: pb.jvp(lambda y: y * x, (np.ones(2),), (np.ones(2),)),
        lambda: pb.vmap(lambda y: y * x[0])(np.ones(2)),
        lambda: ctx.dual(1.0, 1.0),
    ):
        with pytest.raises(errors.LeakError, match="ForwardContext that is over"):
            use()
    np.testing.assert_array_equal(x.primal, [2.0, 3.0])
    np.testing.assert_array_equal(x.tangent, [1.0, 0.0])
    np.testing.assert_array_equal(x.tangents, [[1.0, 0.0]])
    assert x.shape == (2,)
    assert repr(x).startswith("dual(")


def test_a_dual_of_an_inner_context_in_the_outer_one():
    with pb.ForwardContext() as outer:
        with pb.ForwardContext() as inner:
            y = inner.dual(2.0, 1.0)
        with pytest.raises(errors.LeakError):
            outer.dual(1.0, 1.0) * y
        with pytest.raises(errors.LeakError):
            outer.dual(y, 1.0) * 2.0


def test_entering():
    ctx = pb.ForwardContext()
    with pytest.raises(errors.ArgumentError, match="enter the context first"):
        ctx.dual(1.0, 1.0)
    with ctx:
        with pytest.raises(errors.ArgumentError, match="entered once"), ctx:
            pass
        assert float((ctx.dual(2.0, 1.0) * 2.0).tangent) == 2.0
    with pytest.raises(errors.ArgumentError, match="entered once"), ctx:
        pass


def test_an_exception_inside_leaves_nothing_behind():
    made = []

    def body():
        with pb.ForwardContext() as ctx:
            made.append(ctx.dual(2.0, 1.0))
            raise KeyError

    with pytest.raises(KeyError):
        body()
    (x,) = made
    assert current_scope() is None
    assert float(x.tangent) == 1.0
    assert pb.grad(lambda y: y * y)(2.0) == 4.0
    with pytest.raises(errors.LeakError):
        x * x


def test_a_dual_may_not_leave_the_transform_it_was_made_in():
    def f(a):
        with pb.ForwardContext() as ctx:
            return ctx.dual(a, 1.0)

    for run in (lambda: pb.jvp(f, (2.0,), (1.0,)), lambda: pb.grad(f)(2.0), lambda: pb.vmap(f)(np.ones(2))):
        with pytest.raises(errors.PullbackError):
            run()


@pytest.mark.parametrize("ask", [float, int, np.asarray, pb.Dual.item, pb.Dual.numpy, pb.Dual.tolist])
def test_a_bare_number_would_lose_the_tangent(ask):
    with pb.ForwardContext() as ctx, pytest.raises(errors.ConversionError, match="tangent"):
        ask(ctx.dual(2.0, 1.0))


def test_branches_and_numpy_functions():
    with pb.ForwardContext() as ctx:
        x = ctx.dual(2.0, 1.0)
        y = np.multiply(np.sin(x), x) if x > 1.0 else x
        x += x
    assert float(y.tangent) == pytest.approx(np.sin(2.0) + 2.0 * np.cos(2.0))
    assert float(x.tangent) == 2.0


def test_a_generator_may_wait_inside_a_context():
    def values():
        with pb.ForwardContext() as ctx:
            x = ctx.dual(2.0, 1.0)
            yield x
            yield x * x

    steps = values()
    next(steps)
    assert pb.grad(lambda y: y * y)(2.0) == 4.0
    t = pb.tensor(1.0, requires_grad=True)
    (t * t).backward()
    y = next(steps)
    steps.close()
    assert float(y.tangent) == 4.0
    assert (t.grad.item(), current_scope()) == (2.0, None)


def test_a_context_that_ends_before_an_inner_one():
    def waiting():
        with pb.ForwardContext() as ctx:
            yield ctx

    def body():
        steps = waiting()
        next(steps)
        with pb.ForwardContext() as inner:
            steps.close()
            z = inner.dual(2.0, 1.0) ** 2
        assert float(z.tangent) == 4.0
        assert pb.grad(lambda y: y * y)(2.0) == 4.0
        assert current_scope() is None

    alone(body)


def test_contexts_of_interleaved_generators():
    def squares(at):
        with pb.ForwardContext() as ctx:
            x = ctx.dual(at, 1.0)
            yield x
            yield x * x

    def body():
        first, second = squares(2.0), squares(3.0)
        next(first), next(second)
        assert (float(next(first).tangent), float(next(second).tangent)) == (4.0, 6.0)
        first.close()
        second.close()
        assert pb.grad(lambda y: y * y)(2.0) == 4.0

    alone(body)


def in_thread(body):
    outcome = []

    def run():
        try:
            outcome.append((body(), None))
        except BaseException as error:
            outcome.append((None, error))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(10.0)
    ((found, error),) = outcome
    if error is not None:
        raise error
    return found


def test_duals_in_another_thread():
    with pb.ForwardContext() as ctx:
        x = ctx.dual(2.0, 1.0)
        assert float(in_thread(lambda: (x * x).tangent)) == 4.0
        with pytest.raises(errors.LeakError, match="another thread"):
            in_thread(lambda: pb.grad(lambda y: y * x)(3.0))


def test_contexts_of_threads_do_not_meet():
    def slope(at):
        with pb.ForwardContext() as ctx:
            x = ctx.dual(at, 1.0)
            for _ in range(50):
                x = pb.sin(x)
        return float(x.tangent)

    alone_ = [slope(at) for at in (0.5, 1.0)]
    found: dict[float, float] = {}
    threads = [threading.Thread(target=lambda at=at: found.update({at: slope(at)})) for at in (0.5, 1.0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10.0)
    assert [found[0.5], found[1.0]] == alone_


def test_a_context_left_in_another_thread():
    def body():
        ctx = pb.ForwardContext()
        ctx.__enter__()
        in_thread(lambda: ctx.__exit__(None, None, None))
        assert pb.grad(lambda y: y * y)(2.0) == 4.0

    alone(body)
