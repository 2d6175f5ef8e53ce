"""Custom rules: the derived half agrees with built-in ops to third order, and what cannot be right is refused."""

from __future__ import annotations

import functools
import gc
import itertools
import weakref

import numpy as np
import pytest
import scipy.special

import pullback as pb
from pullback import errors
from pullback.arrays.scope import current_scope
from pullback.transforms.stage import stage


@pytest.fixture(autouse=True)
def nothing_is_left():
    yield
    assert current_scope() is None
    assert pb.is_grad_enabled()


def op_of(function, **rules):
    op = pb.custom_op(function)
    for kind, rule in rules.items():
        getattr(op, f"def_{kind}")(rule)
    return op


def leaf(data):
    return pb.tensor(data, requires_grad=True)


def forward(f):
    return lambda t: pb.jvp(f, (t,), (1.0,))[1]


def derivatives(f, t, depth):
    """Every composition of forward and reverse mode up to a depth, by its letters, outermost first."""
    mode = {"f": forward, "r": pb.grad}
    found = {}
    for n in range(1, depth + 1):
        for letters in itertools.product("fr", repeat=n):
            g = functools.reduce(lambda h, letter: mode[letter](h), reversed(letters), f)
            found["".join(letters)] = float(g(t))
    return found


# The derived half, to third order.


class Case:
    """An op in plain NumPy, a rule of each kind, and the same in ops of the package."""

    def __init__(self, name, function, vjp, jvp, reference, args, **static):
        self.name, self.function, self.vjp, self.jvp = name, function, vjp, jvp
        self.reference, self.args, self.static = reference, args, static

    def op(self, kinds):
        return op_of(self.function, **{kind: getattr(self, kind) for kind in kinds})

    def along(self, f):
        """f along a line through its float arguments, as one number that depends on all results."""

        def number(t):
            rng = np.random.default_rng(3)
            args = []
            for a in self.args:
                a = np.asarray(a)
                args.append(a + t * rng.normal(size=a.shape) if a.dtype.kind in "fc" else a)
            outs = f(*args, **self.static)
            total = 0.0
            for out in outs if isinstance(outs, tuple) else (outs,):
                weighted = out * out * rng.normal(size=out.shape) + out
                total = total + pb.sum(pb.real(weighted * (1.0 + 0.5j)) if out.dtype.kind == "c" else weighted)
            return total

        return number


def _two(x, y):
    return np.exp(x) * y, np.sin(x) + y


CASES = [
    Case(
        "cube",
        lambda x: np.asarray(x) ** 3,
        lambda bar, x: 3.0 * x**2 * bar,
        lambda tangents, x: 3.0 * x**2 * tangents[0],
        lambda x: x**3,
        [np.array(1.3)],
    ),
    Case(
        "tanh by its result",
        lambda x: np.tanh(x),
        lambda bar, out: bar * (1.0 - out**2),
        lambda tangents, out: tangents[0] * (1.0 - out**2),
        pb.tanh,
        [np.array([0.3, -0.2, 1.0])],
    ),
    Case(
        "two arguments",
        lambda x, y: np.asarray(x) * np.exp(y),
        lambda bar, x, y: (bar * pb.exp(y), bar * x * pb.exp(y)),
        lambda tangents, x, y: (tangents[0] + x * tangents[1]) * pb.exp(y),
        lambda x, y: x * pb.exp(y),
        [np.array([0.5, 2.0]), np.array([1.0, -1.0])],
    ),
    Case(
        "two results",
        _two,
        lambda bar, x, y: (bar[0] * pb.exp(x) * y + bar[1] * pb.cos(x), bar[0] * pb.exp(x) + bar[1]),
        lambda tangents, x, y: (pb.exp(x) * (tangents[0] * y + tangents[1]), pb.cos(x) * tangents[0] + tangents[1]),
        lambda x, y: (pb.exp(x) * y, pb.sin(x) + y),
        [np.array([0.5, 0.2]), np.array([1.0, -1.0])],
    ),
    Case(
        "two results by themselves",
        lambda x: (np.exp(x), np.sqrt(x)),
        lambda bar, out: bar[0] * out[0] + bar[1] / (2.0 * out[1]),
        lambda tangents, out: (tangents[0] * out[0], tangents[0] / (2.0 * out[1])),
        lambda x: (pb.exp(x), pb.sqrt(x)),
        [np.array([0.5, 1.2])],
    ),
    Case(
        "any number",
        lambda *xs: sum(np.asarray(x) ** 2 for x in xs),
        lambda bar, xs: tuple(2.0 * x * bar for x in xs),
        lambda tangents, xs: 2.0 * sum(x * t for x, t in zip(xs, tangents, strict=True)),
        lambda *xs: sum(x**2 for x in xs),
        [np.array(0.5), np.array(0.25), np.array(-1.0)],
    ),
    Case(
        "static",
        lambda x, *, n, scale=1.0: scale * np.asarray(x) ** n,
        lambda bar, x, n, scale: scale * n * x ** (n - 1) * bar,
        lambda tangents, x, n, scale: scale * n * x ** (n - 1) * tangents[0],
        lambda x, *, n: x**n,
        [np.array([1.0, 1.5])],
        n=4,
    ),
    Case(
        "integer argument",
        lambda x, n: np.asarray(x) ** n,
        lambda bar, x, n: (bar * n * x ** (n - 1), None),
        lambda tangents, x, n: tangents[0] * n * x ** (n - 1),
        pb.power,
        [np.array([1.0, 1.5]), np.array([3, 4])],
    ),
    Case(
        "broadcasting",
        lambda x, y: np.asarray(x) * np.asarray(y) ** 2,
        lambda bar, x, y: (pb.sum(bar * y**2, axis=0), 2.0 * bar * x * y),
        lambda tangents, x, y: tangents[0] * y**2 + 2.0 * x * y * tangents[1],
        lambda x, y: x * y**2,
        [np.arange(1.0, 4.0), np.arange(6.0).reshape(2, 3)],
    ),
    Case(
        "contraction",
        lambda a, x: np.asarray(a) @ x,
        lambda bar, a, x: (pb.outer(bar, x), a.T @ bar),
        lambda tangents, a, x: tangents[0] @ x + a @ tangents[1],
        pb.matmul,
        [np.arange(6.0).reshape(2, 3) / 5, np.array([1.0, -1.0, 0.5])],
    ),
    Case(
        "complex",
        lambda x: np.asarray(x) ** 3,
        lambda bar, x: bar * pb.conj(3.0 * x**2),
        lambda tangents, x: tangents[0] * 3.0 * x**2,
        lambda x: x * x * x,
        [np.array([1.0 + 0.5j, -0.3 + 0.2j])],
    ),
    Case(
        "real to complex",
        lambda x: np.exp(1j * np.asarray(x)),
        lambda bar, out: pb.real(bar * pb.conj(1j * out)),
        lambda tangents, out: tangents[0] * 1j * out,
        lambda x: pb.exp(1j * x),
        [np.array([1.0, 0.3])],
    ),
    Case(
        "empty",
        lambda x: np.asarray(x) ** 2,
        lambda bar, x: 2.0 * x * bar,
        lambda tangents, x: 2.0 * x * tangents[0],
        lambda x: x**2,
        [np.zeros((0, 2))],
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("kinds", [("vjp",), ("jvp",), ("vjp", "jvp")], ids="+".join)
def test_all_compositions_to_third_order(case, kinds):
    op = case.op(kinds)
    t = 0.1
    np.testing.assert_allclose(float(case.along(op)(t)), float(case.along(case.reference)(t)), rtol=1e-12)
    found, expected = derivatives(case.along(op), t, 3), derivatives(case.along(case.reference), t, 3)
    assert list(found) == list(expected)
    np.testing.assert_allclose(list(found.values()), list(expected.values()), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("kind", ["vjp", "jvp"])
def test_on_the_tape_as_in_the_transforms(case, kind):
    t = leaf(0.1)
    value = case.along(case.op((kind,)))(t)
    (first,) = pb.gradients(value, t, create_graph=True)
    expected = derivatives(case.along(case.reference), 0.1, 2)
    np.testing.assert_allclose(first.detach(), expected["r"], rtol=1e-10, atol=1e-12)
    if first.requires_grad:
        (second,) = pb.gradients(first, t)
        np.testing.assert_allclose(second, expected["rr"], rtol=1e-9, atol=1e-11)
    else:
        assert expected["rr"] == 0.0


def cubes():
    function, vjp, jvp = CASES[0].function, CASES[0].vjp, CASES[0].jvp
    rules = {"vjp": {"vjp": vjp}, "jvp": {"jvp": jvp}, "both": {"vjp": vjp, "jvp": jvp}}
    return {kind: op_of(function, **given) for kind, given in rules.items()}


CUBES = cubes()
each_cube = pytest.mark.parametrize("cube", CUBES.values(), ids=CUBES)


@each_cube
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_derivatives_have_the_dtype_of_the_argument(cube, dtype):
    x = np.array([1.0, 2.0], dtype)
    assert pb.grad(lambda x: pb.sum(cube(x)))(x).dtype == dtype
    assert pb.jvp(cube, (x,), (x,))[1].dtype == dtype


@each_cube
def test_pulled_twice_and_again(cube):
    x = leaf(2.0)
    y = cube(x)
    (g,) = pb.gradients(y, x, create_graph=True)
    g.backward(retain_graph=True)
    g.backward()
    y.backward()
    assert x.grad.item() == 12.0 + 12.0 + 12.0
    with pytest.raises(errors.GraphError, match="freed"):
        y.backward()


@each_cube
def test_on_two_workers(cube):
    x = leaf(np.arange(1.0, 4.0))
    pb.sum(cube(x) + cube(2.0 * x)).backward(create_graph=True, workers=2)
    np.testing.assert_allclose(x.grad.detach(), 27.0 * np.arange(1.0, 4.0) ** 2)


@each_cube
def test_a_backward_on_two_workers_inside_jvp(cube):
    def slope(a):
        t = pb.tensor(a, requires_grad=True)
        (cube(t) + cube(2.0 * t)).backward(workers=2)
        return t.grad

    value, tangent = pb.jvp(slope, (2.0,), (1.0,))
    assert (float(value), float(tangent)) == (108.0, 108.0)


@each_cube
def test_modes_and_hooks(cube):
    x = leaf(2.0)
    with pb.no_grad():
        assert not cube(x).requires_grad
    with pb.inference_mode():
        assert cube(x).is_inference
    y = cube(x)
    y.register_hook(lambda g: 10.0 * g)
    y.retain_grad()
    y.backward()
    assert (y.grad.item(), x.grad.item()) == (10.0, 120.0)


@each_cube
def test_kept_values_go_through_hooks(cube):
    log = []

    def pack(t):
        log.append("pack")
        return t.numpy().copy()

    def unpack(a):
        log.append("unpack")
        return a

    x = leaf(2.0)
    with pb.saved_tensors_hooks(pack, unpack):
        y = cube(x)
    (g,) = pb.gradients(y, x, create_graph=True)
    (h,) = pb.gradients(g, x)
    assert (g.item(), h.item(), log) == (12.0, 12.0, ["pack", "unpack"])


def test_several_results_go_through_hooks():
    op = CASES[4].op(("vjp",))
    x = leaf(2.0)
    with pb.saved_tensors_hooks(lambda t: t.numpy().copy(), lambda a: a):
        a, b = op(x)
    (a * b).backward()
    np.testing.assert_allclose(x.grad, np.exp(2.0) * (np.sqrt(2.0) + 0.5 / np.sqrt(2.0)))


@pytest.mark.parametrize("kind", ["vjp", "both", "jvp"])
def test_to_a_tensor_on_the_way_whose_leaf_is_gone(kind):
    x = leaf(2.0)
    y = x * 1.0
    del x
    gc.collect()
    (g,) = pb.gradients(CUBES[kind](y), y, create_graph=True)
    assert pb.gradients(g, y)[0].item() == 12.0


@each_cube
def test_linearize(cube):
    assert float(pb.linearize(cube, 2.0)[1](1.0)) == 12.0
    assert float(pb.linearize(pb.grad(cube), 2.0)[1](2.0)) == 24.0


@each_cube
def test_gradcheck_and_gradgradcheck(cube):
    assert pb.gradcheck(cube, np.array([0.5, -1.0]))
    assert pb.gradgradcheck(cube, np.array([0.5, -1.0]))


def test_one_result_that_nobody_uses():
    op = CASES[4].op(("vjp",))
    f = lambda x: op(x)[1]  # noqa: E731
    expected = {"r": 0.5, "f": 0.5, "rr": -0.25, "fr": -0.25, "rf": -0.25, "ff": -0.25}
    assert derivatives(f, 1.0, 2) == pytest.approx(expected)


# Infinities.


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("kind", ["vjp", "jvp"])
def test_infinities_and_nans_pass_through_the_derived_rule(kind):
    rules = {"vjp": lambda bar, x: bar / x, "jvp": lambda tangents, x: tangents[0] / x}
    log = op_of(lambda x: np.log(x), **{kind: rules[kind]})
    x = np.array([0.0, 2.0, np.inf, np.nan])
    expected = [np.inf, 0.5, 0.0, np.nan]
    np.testing.assert_array_equal(pb.grad(lambda x: pb.sum(log(x)))(x), expected)
    np.testing.assert_array_equal(pb.jvp(log, (x,), (np.ones(4),))[1], expected)


@each_cube
def test_anomaly_mode_names_the_op(cube):
    x = leaf(np.nan)
    with pb.detect_anomaly(), pytest.raises(errors.AnomalyError, match="argument x"):
        cube(x).backward()


# Batches and programs.


@each_cube
def test_vmap_without_a_batch_rule(cube):
    x = np.array([1.0, 2.0, 3.0])
    np.testing.assert_allclose(pb.vmap(cube)(x), x**3)
    np.testing.assert_allclose(pb.vmap(pb.grad(cube))(x), 3 * x**2)
    np.testing.assert_allclose(pb.grad(lambda x: pb.sum(pb.vmap(cube)(x)))(x), 3 * x**2)
    np.testing.assert_allclose(pb.vmap(forward(pb.grad(cube)))(x), 6 * x)
    np.testing.assert_allclose(forward(lambda t: pb.sum(pb.vmap(cube)(t * x)))(1.0), 3 * np.sum(x**3))
    np.testing.assert_allclose(pb.vmap(pb.vmap(pb.grad(pb.grad(cube))))(np.ones((2, 3))), 6 * np.ones((2, 3)))


@each_cube
def test_a_batch_of_pulls(cube):
    _, pull = pb.vjp(cube, np.array([1.0, 2.0]))
    np.testing.assert_allclose(pb.vmap(lambda bar: pull(bar)[0])(np.eye(2)), [[3.0, 0.0], [0.0, 12.0]])


@pytest.mark.parametrize("axes", [(0, 0), (1, 0), (None, 0), (0, None), (1, None)])
def test_in_axes(axes):
    rng = np.random.default_rng(0)
    seen = []

    def batch(size, given, x, y):
        seen.append((size, given))
        x = x if given[0] is None else pb.moveaxis(x, given[0], 0)
        y = y if given[1] is None else pb.moveaxis(y, given[1], 0)
        return op(x, y), 0

    op = CASES[2].op(("vjp",))
    x, y = rng.normal(size=(3, 3)), rng.normal(size=3 if axes[1] is None else (3, 3))
    if axes[0] is None:
        x = x[0]
    loop = pb.vmap(lambda x, y: pb.sum(op(x, y)), axes)(x, y)
    slopes = pb.vmap(pb.grad(lambda x, y: pb.sum(op(x, y)), (0, 1)), axes)(x, y)
    op.def_batch(batch)
    np.testing.assert_allclose(pb.vmap(lambda x, y: pb.sum(op(x, y)), axes)(x, y), loop)
    assert seen == [(3, axes)]
    for found, expected in zip(
        pb.vmap(pb.grad(lambda x, y: pb.sum(op(x, y)), (0, 1)), axes)(x, y), slopes, strict=True
    ):
        np.testing.assert_allclose(found, expected)
    reference = pb.vmap(pb.grad(lambda x, y: pb.sum(x * pb.exp(y)), (0, 1)), axes)(x, y)
    for found, expected in zip(slopes, reference, strict=True):
        np.testing.assert_allclose(found, expected)


def test_vmap_of_several_results():
    op = CASES[3].op(("vjp",))
    x, y = np.array([0.1, 0.2]), np.array([3.0, 4.0])
    first, second = pb.vmap(op)(x, y)
    np.testing.assert_allclose(first, np.exp(x) * y)
    np.testing.assert_allclose(second, np.sin(x) + y)
    op.def_batch(lambda size, axes, x, y: (op(x, y), axes))
    np.testing.assert_allclose(pb.vmap(op, out_axes=(0, 0))(x, y)[0], first)


def test_a_batch_of_nothing_needs_a_batch_rule():
    op = CASES[0].op(("vjp",))
    with pytest.raises(errors.ArgumentError, match="def_batch"):
        pb.vmap(op)(np.zeros((0, 2)))
    op.def_batch(lambda size, axes, x: (op(x), axes[0]))
    assert pb.vmap(op)(np.zeros((0, 2))).shape == (0, 2)


@pytest.mark.parametrize(
    "rule",
    [
        pytest.param(lambda size, axes, x: (x[:2], 0), id="too few elements"),
        pytest.param(lambda size, axes, x: x, id="no axis"),
        pytest.param(lambda size, axes, x: (x, 7), id="no such axis"),
    ],
)
def test_a_batch_rule_that_answers_wrongly_is_named(rule):
    op = op_of(lambda square: np.asarray(square) ** 2, batch=rule)
    with pytest.raises(errors.PullbackError, match="batch"):
        pb.vmap(op)(np.ones((3, 2)))


@each_cube
def test_staging(cube):
    op = op_of(cube._function, **cube._rules)
    x = np.array([1.0, 2.0, 3.0])
    with pytest.raises(errors.ArgumentError, match="def_spec"):
        stage(op)(x)
    op.def_spec(lambda spec: spec)
    np.testing.assert_allclose(stage(op)(x).run(x), x**3)
    np.testing.assert_allclose(stage(pb.elementwise_grad(op))(np.zeros(3)).run(x), 3 * x**2)
    np.testing.assert_allclose(stage(lambda x: pb.jvp(op, (x,), (np.ones(3),))[1])(np.zeros(3)).run(x), 3 * x**2)
    np.testing.assert_allclose(pb.grad(lambda x: pb.sum(stage(op)(np.zeros(3)).run(x)))(x), 3 * x**2)


# What is not linear has no other half.


IDENTITY = {
    "clip": lambda bar: pb.clip(bar, -1.0, 1.0),
    "relu": lambda bar: pb.relu(bar),
    "square": lambda bar: bar * bar,
    "norm": lambda bar: bar / (1.0 + pb.abs(bar)),
    "affine": lambda bar: bar + 1.0,
    "constant gain": lambda bar: bar * pb.stop_gradient(bar),
    "where": lambda bar: pb.where(bar > 1.0, 1.0, bar),
    "mask": lambda bar: bar * (bar < 1.0),
    "if": lambda bar: bar if bar < 1.0 else bar * 0.0 + 1.0,
    "sign": lambda bar: pb.sign(bar),
    "argmax": lambda bar: bar * pb.argmax(pb.stack([bar, 1.0 - bar])),
    "detached": lambda bar: pb.stop_gradient(bar),
}


@pytest.mark.parametrize("name", IDENTITY)
def test_a_rule_that_is_not_linear_has_no_forward_mode(name):
    op = op_of(lambda x: np.asarray(x) * 1.0, vjp=IDENTITY[name])
    assert np.isfinite(pb.grad(lambda x: 5.0 * op(x))(2.0))
    with pytest.raises(errors.PullbackError, match="linear"):
        pb.jvp(op, (2.0,), (5.0,))


@pytest.mark.parametrize(
    "f",
    [
        pb.sign,
        lambda x: pb.where(x > 0.0, x, 0.0),
        lambda x: x if x < 1.0 else 2.0 * x,
    ],
    ids=["sign", "where", "if"],
)
def test_linear_transpose_refuses_what_is_linear_only_piece_by_piece(f):
    with pytest.raises(errors.ArgumentError, match="linear"):
        pb.linear_transpose(f, 2.0)


def test_clipping_the_gradient():
    f = lambda x: 5.0 * pb.clip_gradient(x)  # noqa: E731
    assert pb.grad(f)(2.0) == 1.0
    assert pb.grad(lambda x: 0.25 * pb.clip_gradient(x))(2.0) == 0.25
    assert pb.clip_gradient(7.0) == 7.0
    np.testing.assert_array_equal(pb.vmap(pb.grad(f))(np.ones(3)), np.ones(3))
    assert pb.grad(pb.grad(lambda x: pb.clip_gradient(x) ** 3))(0.2) == pytest.approx(1.2 - 0.2)
    with pytest.raises(errors.ArgumentError, match="linear"):
        pb.jvp(f, (2.0,), (1.0,))
    with pytest.raises(errors.ArgumentError, match="crossed"):
        pb.clip_gradient(1.0, 2.0, 1.0)


def test_altered_gradients():
    assert pb.grad(pb.grad(lambda x: pb.scale_gradient(x, 0.5) ** 3))(2.0) == 3.0
    assert pb.grad(lambda x: pb.reverse_gradient(x, 2.0) ** 2)(3.0) == -12.0
    with pytest.raises(errors.ArgumentError, match="finite"):
        pb.scale_gradient(1.0, np.inf)
    hard = pb.straight_through(pb.sign)
    x = np.array([1.0, -2.0])
    np.testing.assert_array_equal(pb.vmap(pb.grad(lambda x: hard(x) * x))(x), [2.0, -3.0])
    np.testing.assert_array_equal(pb.jvp(hard, (x,), (np.ones(2),))[1], np.ones(2))
    with pytest.raises(errors.ShapeError, match="straight_through"):
        pb.straight_through(pb.sum)(x)


# What a rule may not use.


class Holder:
    """Something that a rule can reach without naming it."""

    def __init__(self, held):
        self.held = held


ways = pytest.mark.parametrize("way", ["closure", "default", "list", "dict", "object", "global"])
SHARED = None


def rule_over(way, held):
    """A vjp rule that reaches a value in one way or another."""
    if way == "closure":
        return lambda bar: bar * held
    if way == "default":
        return _with_default(held)
    if way == "list":
        box = [held]
        return lambda bar: bar * box[0]
    if way == "dict":
        named = {"w": held}
        return lambda bar: bar * named["w"]
    if way == "object":
        holder = Holder(held)
        return lambda bar: bar * holder.held
    global SHARED
    SHARED = held
    return lambda bar: bar * SHARED


def _with_default(held):
    def rule(bar, *, x=held):
        return bar * x

    return rule


@ways
def test_a_rule_that_reaches_a_tracked_tensor_is_refused(way):
    w = leaf(3.0) * 1.0
    op = pb.custom_op(lambda x: np.asarray(x) * 3.0)
    x = leaf(2.0)

    def linked():
        op.def_vjp(rule_over(way, w))
        pb.gradients(op(x), x, create_graph=True)

    def unlinked():
        op.def_vjp(rule_over(way, w))
        pb.grad(op)(2.0)

    for run in (linked, unlinked):
        with pytest.raises(errors.GraphError, match="argument of the op"):
            run()


@pytest.mark.parametrize("way", ["closure", "list", "object"])
@pytest.mark.parametrize("kind", ["vjp", "jvp"])
def test_a_rule_that_reaches_a_dual_is_refused(way, kind):
    def f(x):
        held = pb.sin(x)
        if kind == "vjp":
            op = op_of(lambda x: np.asarray(x) * 3.0, vjp=rule_over(way, held))
        else:
            holder = Holder(held)
            op = op_of(lambda x: np.asarray(x) * 3.0, jvp=lambda tangents: tangents[0] * holder.held)
        return op(x)

    with pytest.raises(errors.GraphError, match="argument of the op"):
        pb.jvp(f, (2.0,), (1.0,))


def test_a_rule_that_reaches_an_element_of_a_batch():
    holder = Holder(None)
    op = op_of(lambda x: np.asarray(x) * 3.0, vjp=lambda bar: bar * holder.held)

    def f(x):
        holder.held = pb.sin(x)
        return op(x)

    with pytest.raises(errors.PullbackError):
        pb.grad(lambda x: pb.sum(pb.vmap(f)(x)))(np.ones(2))
    with pytest.raises(errors.GraphError):
        pb.vmap(pb.grad(f))(np.ones(2))


@pytest.mark.parametrize("kind", ["vjp", "jvp"])
def test_a_rule_may_use_constants(kind):
    c = pb.tensor([1.0, 2.0])
    rules = {"vjp": lambda bar: bar * c, "jvp": lambda tangents: tangents[0] * c}
    op = op_of(lambda x: np.asarray(x) * np.array([1.0, 2.0]), **{kind: rules[kind]})
    np.testing.assert_array_equal(pb.grad(lambda x: pb.sum(op(x)))(np.ones(2)), [1.0, 2.0])
    np.testing.assert_array_equal(pb.jvp(op, (np.ones(2),), (np.ones(2),))[1], [1.0, 2.0])


def test_a_rule_may_use_an_ancestor_that_it_names():
    op = op_of(lambda x, w: np.asarray(x) * w, vjp=lambda bar, x, w: (bar * w, bar * x))
    assert derivatives(lambda t: op(t * t, t), 2.0, 2)["rr"] == 12.0


@pytest.mark.parametrize("way", ["jvp", "vjp"])
def test_one_custom_op_in_the_rule_of_another(way):
    mul = op_of(lambda x, y: np.asarray(x) * y, vjp=lambda bar, x, y: (bar * y, bar * x))
    rules = {"vjp": lambda bar, x: 2.0 * mul(bar, x), "jvp": lambda tangents, x: 2.0 * mul(tangents[0], x)}
    square = op_of(lambda x: np.asarray(x) ** 2, **{way: rules[way]})
    assert derivatives(square, 3.0, 2) == {"f": 6.0, "r": 6.0, "ff": 2.0, "fr": 2.0, "rf": 2.0, "rr": 2.0}


def test_the_cotangent_given_to_a_pull_is_differentiated():
    pull = lambda bar: pb.vjp(lambda y: y**3, 2.0)[1](bar)[0]  # noqa: E731
    assert pb.jvp(pull, (1.0,), (1.0,))[1] == 12.0
    assert pb.grad(pull)(1.0) == 12.0


@pytest.mark.parametrize("how", ["vjp", "grad", "jvp"])
def test_a_rule_written_with_transforms(how):
    rules = {
        "vjp": lambda bar, x: pb.vjp(lambda y: y**3, x)[1](bar)[0],
        "grad": lambda bar, x: pb.grad(lambda y: pb.sum(y**3 * bar))(x),
        "jvp": lambda bar, x: bar * pb.jvp(lambda y: y**3, (x,), (pb.ones_like(x),))[1],
    }
    op = op_of(lambda x: np.asarray(x) ** 3, vjp=rules[how])
    assert derivatives(op, 2.0, 2) == dict.fromkeys(["f", "r", "ff", "fr", "rf", "rr"], 12.0)


def test_the_forward_function_may_not_use_a_tracked_tensor():
    w = leaf(2.0)
    for function in (lambda x: np.asarray(x) * w, lambda x: w, lambda x: np.asarray(x) * float(w)):
        with pytest.raises(errors.PullbackError, match=r"argument|carries derivatives"):
            op_of(function, vjp=lambda bar: bar)(np.array(1.0))


@pytest.mark.parametrize("how", ["tape", "jvp", "grad"])
def test_a_static_parameter_may_not_carry_derivatives(how):
    op = op_of(lambda x, *, weight: np.asarray(x) * 1.0, vjp=lambda bar: bar)
    runs = {
        "tape": lambda: op(1.0, weight=leaf(2.0)),
        "jvp": lambda: pb.jvp(lambda w: op(1.0, weight=w), (2.0,), (1.0,)),
        "grad": lambda: pb.grad(lambda w: op(1.0, weight=w))(2.0),
    }
    with pytest.raises(errors.PullbackError, match="weight"):
        runs[how]()


# What rules return.


def refused(op, kind, *args):
    """The message of reverse mode and that of forward mode."""
    several = lambda *xs: pb.sum(pb.stack([pb.sum(y) for y in _tuple(op(*xs))]))  # noqa: E731
    messages = []
    for run in (lambda: pb.grad(several, tuple(range(len(args))))(*args), lambda: pb.jvp(several, args, args)):
        with pytest.raises(errors.PullbackError, match="scale") as caught:
            run()
        assert isinstance(caught.value, kind)
        messages.append(str(caught.value))
    return messages


def _tuple(x):
    return x if isinstance(x, tuple) else (x,)


def scale(x, y):
    return np.asarray(x) * y


@pytest.mark.parametrize(
    ("rule", "kind", "said"),
    [
        (lambda bar: bar, errors.ArgumentError, "1 cotangents for 2 arguments"),
        (lambda bar: (bar, bar, bar), errors.ArgumentError, "3 cotangents for 2 arguments"),
        (lambda bar: (bar, bar[None]), errors.ShapeError, "argument 1 has shape"),
        (lambda bar: (bar * 1j, bar), errors.DtypeError, "argument 0 is complex128"),
        (lambda bar: (bar, np.ones(2, int)), errors.DtypeError, "argument 1 is int64"),
        (lambda bar: (bar, "no"), errors.PullbackError, "argument 1"),
    ],
    ids=["few", "many", "shape", "complex", "integer", "text"],
)
def test_a_wrong_vjp_rule_is_named_with_its_line(rule, kind, said):
    op = op_of(scale, vjp=rule)
    for message in refused(op, kind, np.ones(2), np.ones(2)):
        assert said in message
        assert f"test_custom.py:{rule.__code__.co_firstlineno}" in message


@pytest.mark.parametrize("rule", [lambda bar: (bar, {"y": bar}), lambda bar: (bar, [bar, None])], ids=["dict", "list"])
def test_a_cotangent_that_is_no_array_is_named(rule):
    assert refused(op_of(scale, vjp=rule), errors.PullbackError, np.ones(2), np.ones(2))


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (lambda tangents: tangents[0][None], "result 0 has shape"),
        (lambda tangents: tangents[0] * 1j, "result 0 is complex128"),
        (lambda tangents: (tangents[0], tangents[1]), "2 tangents for 1 results"),
    ],
    ids=["shape", "complex", "many"],
)
def test_a_wrong_jvp_rule_is_named_with_its_line(rule, said):
    for message in refused(op_of(scale, jvp=rule), errors.PullbackError, np.ones(2), np.ones(2)):
        assert said in message
        assert f"test_custom.py:{rule.__code__.co_firstlineno}" in message


@pytest.mark.parametrize("count", [1, 3])
def test_the_wrong_number_of_tangents(count):
    def scale(x):
        return np.asarray(x), np.asarray(x) * 2.0

    op = op_of(scale, jvp=lambda tangents: (tangents[0],) * count)
    for message in refused(op, errors.ArgumentError, np.ones(2)):
        assert f"{count} tangents for 2 results" in message


def test_a_tangent_may_be_none():
    op = op_of(lambda x: np.sign(x), jvp=lambda tangents: None)
    assert pb.jvp(op, (2.0,), (1.0,))[1] == 0.0
    assert pb.grad(op)(2.0) == 0.0


def test_a_cotangent_may_be_a_number():
    op = op_of(lambda x: np.sign(x), vjp=lambda bar: 0.0)
    assert pb.grad(op)(2.0) == 0.0


def test_a_cotangent_may_be_none():
    op = op_of(scale, vjp=lambda bar, y: (bar * y, None))
    assert pb.grad(op, (0, 1))(2.0, 3.0) == (3.0, 0.0)
    assert pb.jvp(op, (2.0, 3.0), (1.0, 1.0)) == (6.0, 3.0)


# What the user's code may do to memory.


def test_a_buffer_that_the_function_uses_again():
    buffer = np.zeros(2)
    op = op_of(lambda x: np.exp(x, out=buffer), vjp=lambda bar, out: bar * out)
    x, y = leaf(np.zeros(2)), leaf(np.ones(2))
    a, b = op(x), op(y)
    pb.sum(a + b).backward()
    np.testing.assert_allclose([x.grad, y.grad, a.detach()], [np.ones(2), np.full(2, np.e), np.ones(2)])


@pytest.mark.parametrize("kind", ["vjp", "jvp"])
def test_a_buffer_that_a_rule_uses_again(kind):
    buffer = np.zeros(2)

    def twice(x):
        buffer[...] = 2.0 * x
        return buffer

    rules = {"vjp": lambda bar: twice(bar), "jvp": lambda tangents: twice(tangents[0])}
    op = op_of(lambda x: 2.0 * np.asarray(x), **{kind: rules[kind]})
    if kind == "vjp":
        x, y = leaf(np.ones(2)), leaf(np.ones(2))
        pb.sum(3.0 * op(x) + 5.0 * op(y)).backward()
        found = x.grad, y.grad
    else:
        found = pb.jvp(lambda x: (op(3.0 * x), op(5.0 * x)), (np.ones(2),), (np.ones(2),))[1]
    np.testing.assert_array_equal(found[0], [6.0, 6.0])
    np.testing.assert_array_equal(found[1], [10.0, 10.0])


def test_a_function_that_writes_to_its_input_is_stopped():
    def doubled(x):
        x *= 2.0
        return x

    op = op_of(doubled, vjp=lambda bar: 2.0 * bar)
    for x in (np.ones(2), leaf(np.ones(2))):
        with pytest.raises(ValueError, match="read-only"):
            op(x)


def test_a_function_that_returns_what_it_got():
    same = op_of(lambda x: x, vjp=lambda bar: bar)
    back = op_of(lambda x: x[::-1], vjp=lambda bar: bar[::-1])
    a = np.arange(3.0)
    y, z = same(a), back(a)
    a[0] = 99.0
    np.testing.assert_array_equal(y, [0.0, 1.0, 2.0])
    np.testing.assert_array_equal(z, [2.0, 1.0, 0.0])
    assert pb.grad(pb.grad(lambda x: same(x) ** 3))(2.0) == 12.0
    np.testing.assert_array_equal(pb.grad(lambda x: pb.sum(back(x) * np.arange(3.0)))(a), [2.0, 1.0, 0.0])


@pytest.mark.parametrize("linked", [False, True])
def test_a_rule_that_writes_to_its_cotangent_changes_nobody_elses(linked):
    op = pb.custom_op(lambda x: 2.0 * np.asarray(x))

    @op.def_vjp
    def _(bar):
        bar *= 2.0
        return bar

    x, y = leaf([1.0, 1.0]), leaf([1.0, 1.0])
    z = op(x) + y
    try:
        gx, gy = pb.gradients(pb.sum(z * z), [x, y], create_graph=linked)
    except ValueError as error:
        assert "read-only" in str(error)  # noqa: PT017 - either answer is honest
        return
    np.testing.assert_array_equal(gx.detach(), [12.0, 12.0])
    np.testing.assert_array_equal(gy.detach(), [6.0, 6.0])


def test_a_static_array_is_kept_as_it_was():
    op = op_of(lambda x, *, w: np.asarray(x) * w, vjp=lambda bar, w: bar * w)
    w, x = np.array([1.0, 2.0]), leaf(np.ones(2))
    y = pb.sum(op(x, w=w))
    try:
        w[:] = 50.0
    except ValueError:
        w = None
    y.backward()
    np.testing.assert_array_equal(x.grad, [1.0, 2.0])


@pytest.mark.parametrize(
    ("result", "shapes"),
    [(3.0, ()), (np.float32(3.0), ()), (pb.tensor([1.0, 2.0]), (2,)), ([3.0, np.ones(2)], [(), (2,)])],
)
def test_what_a_function_may_return(result, shapes):
    out = op_of(lambda x: result)(1.0)
    assert isinstance(out, (tuple, np.ndarray))
    assert ([y.shape for y in out] if isinstance(out, tuple) else out.shape) == shapes


@pytest.mark.parametrize("result", [None, {"a": 1.0}, "text", iter([1.0]), object()], ids=lambda r: type(r).__name__)
def test_what_a_function_may_not_return(result):
    op = op_of(lambda scale: result, vjp=lambda bar: bar)
    for x in (np.ones(2), leaf([1.0])):
        with pytest.raises(errors.PullbackError):
            op(x)


def test_a_black_box_has_first_derivatives():
    def slope(bar, x, out):
        return bar * out * scipy.special.digamma(np.asarray(x))

    gamma = op_of(lambda x: scipy.special.gamma(x), vjp=slope)
    expected = scipy.special.gamma(2.5) * scipy.special.digamma(2.5)
    assert pb.grad(gamma)(2.5) == pytest.approx(expected)
    assert float(pb.jvp(gamma, (2.5,), (1.0,))[1]) == pytest.approx(expected)
    # SciPy's digamma of a value that carries derivatives is ours, so the second derivative is there, and right
    second = scipy.special.gamma(2.5) * (scipy.special.digamma(2.5) ** 2 + scipy.special.polygamma(1, 2.5))
    assert pb.grad(pb.grad(gamma))(2.5) == pytest.approx(second)
    assert float(pb.jvp(pb.grad(gamma), (2.5,), (1.0,))[1]) == pytest.approx(second)


def test_a_rule_of_a_black_box_has_first_derivatives():
    def slope(bar, x):
        return bar * float(x) ** 2

    cube = op_of(lambda x: np.asarray(x) ** 3 / 3, vjp=slope)
    assert pb.grad(cube)(2.0) == 4.0
    with pytest.raises(errors.PullbackError):
        pb.grad(pb.grad(cube))(2.0)
    with pytest.raises(errors.PullbackError):
        pb.jvp(pb.grad(cube), (2.0,), (1.0,))


# Errors of the user.


class MineError(Exception):
    pass


def fail(*args):
    raise MineError("from the user")


def test_exceptions_come_out_as_they_are():
    op = op_of(lambda x: fail())
    for run in (lambda: op(1.0), lambda: pb.jvp(op, (1.0,), (1.0,)), lambda: pb.vmap(op)(np.ones(2))):
        with pytest.raises(MineError):
            run()
    op = op_of(lambda x: np.asarray(x) * 1.0, vjp=lambda bar: fail())
    x = leaf(1.0)
    with pytest.raises(MineError) as caught:
        (op(x) * 2.0).backward()
    assert "<lambda>" in caught.value.__notes__[0]
    assert x.grad is None
    op.def_vjp(lambda bar: bar)
    assert pb.grad(op)(1.0) == 1.0


def test_no_rules_matter_only_when_differentiated():
    op = pb.custom_op(lambda x: np.asarray(x) * 2.0)
    np.testing.assert_array_equal(pb.vmap(op)(np.ones(3)), 2.0 * np.ones(3))
    assert pb.grad(lambda x: (op(x), x * x)[1])(3.0) == 6.0
    for run in (lambda: pb.grad(op)(1.0), lambda: pb.jvp(op, (1.0,), (1.0,)), lambda: op(leaf(1.0)).backward()):
        with pytest.raises(errors.GraphError, match="def_vjp or def_jvp"):
            run()


def test_integer_results_need_no_rule():
    op = pb.custom_op(lambda x: np.floor(x).astype(int))
    assert pb.grad(lambda x: op(x) * x)(2.5) == 2.0
    assert pb.jvp(lambda x: op(x) * x, (2.5,), (1.0,)) == (5.0, 2.0)


def test_binding_of_arguments():
    op = op_of(lambda x, y=3.0, *, n=1: np.asarray(x) * y**n, vjp=lambda bar, y, n: (bar * y**n, None))
    assert (op(2.0), op(2.0, 4.0), op(y=4.0, x=2.0), op(2.0, n=2)) == (6.0, 8.0, 8.0, 18.0)
    assert pb.grad(lambda x: op(y=4.0, x=x, n=2))(1.0) == 16.0
    for args, kwargs in (((), {}), ((1.0, 2.0, 3.0), {}), ((1.0,), {"z": 1})):
        with pytest.raises(TypeError):
            op(*args, **kwargs)
    with pytest.raises(errors.ArgumentError, match="keyword-only"):
        op(object())


@pytest.mark.parametrize("name", ["bar", "out", "tangents"])
def test_names_that_mean_something_else_are_refused(name):
    function = {"bar": lambda bar: bar, "out": lambda out: out, "tangents": lambda x, tangents: x}[name]
    with pytest.raises(errors.ArgumentError, match=name):
        pb.custom_op(function)
    with pytest.raises(errors.ArgumentError, match="no positional"):
        pb.custom_op(lambda *, x: x)
    with pytest.raises(errors.ArgumentError, match="name its static"):
        pb.custom_op(lambda x, **options: x)


@pytest.mark.parametrize("name", ["position", "others", "specs", "x_spec"])
def test_names_that_the_engine_uses_itself(name):
    """Whatever an argument is called, the gradient is right or the name is refused."""
    named = {
        "position": (lambda x, position: np.asarray(x) * position, lambda bar, x, position: (bar * position, bar * x)),
        "others": (lambda x, others: np.asarray(x) * others, lambda bar, x, others: (bar * others, bar * x)),
        "specs": (lambda x, specs: np.asarray(x) * specs, lambda bar, x, specs: (bar * specs, bar * x)),
        "x_spec": (lambda x, x_spec: np.asarray(x) * x_spec, lambda bar, x, x_spec: (bar * x_spec, bar * x)),
    }
    function, rule = named[name]
    try:
        op = op_of(function, vjp=rule)
    except errors.ArgumentError as error:
        assert name in str(error)  # noqa: PT017 - either answer is honest
        return
    assert pb.grad(op, (0, 1))(2.0, 3.0) == (3.0, 2.0)


@pytest.mark.parametrize("name", ["position", "op", "xp", "self", "size", "axes", "out", "bar"])
def test_static_names_that_the_engine_uses_itself(name):
    """Whatever a static parameter is called, the gradient is right or the name is refused."""
    functions = {
        "position": (lambda x, *, position: np.asarray(x) * position, lambda bar, position: bar * position),
        "op": (lambda x, *, op: np.asarray(x) * op, lambda bar, op: bar * op),
        "xp": (lambda x, *, xp: np.asarray(x) * xp, lambda bar, xp: bar * xp),
        "self": (lambda x, *, self: np.asarray(x) * self, lambda bar, self: bar * self),
        "size": (lambda x, *, size: np.asarray(x) * size, lambda bar, size: bar * size),
        "axes": (lambda x, *, axes: np.asarray(x) * axes, lambda bar, axes: bar * axes),
        "out": (lambda x, *, out: np.asarray(x) * out, lambda bar, out: bar * 3.0),
        "bar": (lambda x, *, bar: np.asarray(x) * bar, lambda bar: bar * 3.0),
    }
    function, rule = functions[name]
    try:
        op = op_of(function, vjp=rule)
    except errors.ArgumentError as error:
        assert name in str(error)  # noqa: PT017 - either answer is honest
        return
    assert pb.grad(lambda x: op(x, **{name: 3.0}))(2.0) == 3.0


def test_a_rule_gets_the_spec_it_names():
    seen = []
    op = pb.custom_op(lambda x: np.sum(x))

    @op.def_vjp
    def _(bar, x_spec):
        seen.append(x_spec)
        return pb.broadcast_to(bar, x_spec.shape)

    np.testing.assert_array_equal(pb.grad(op)(np.zeros(3)), np.ones(3))
    pb.jvp(op, (np.zeros(3),), (np.ones(3),))
    assert all(isinstance(spec, pb.Spec) for spec in seen)


def test_a_rule_that_names_something_unknown():
    op = pb.custom_op(lambda x, *, n: x)
    with pytest.raises(errors.ArgumentError, match=r"names y(?s:.)*bar, n, out, x"):
        op.def_vjp(lambda bar, y: bar)


@pytest.mark.parametrize("form", ["partial", "object", "method", "stars"])
def test_other_forms_of_a_rule_work_or_are_refused(form):
    class Twice:
        def __call__(self, bar):
            return 2.0 * bar

        def rule(self, bar):
            return 2.0 * bar

    rules = {
        "partial": functools.partial(lambda k, bar: k * bar, 2.0),
        "object": Twice(),
        "method": Twice().rule,
        "stars": lambda bar, *xs: (2.0 * bar,) * len(xs),
    }
    op = pb.custom_op(lambda x: 2.0 * np.asarray(x))
    try:
        op.def_vjp(rules[form])
    except errors.ArgumentError:
        return
    assert pb.grad(op)(1.0) == 2.0


def test_rules_may_be_replaced_and_old_graphs_keep_theirs():
    op = op_of(lambda x: 2.0 * np.asarray(x), vjp=lambda bar: 2.0 * bar)
    x = leaf(1.0)
    y = op(x)
    op.def_vjp(lambda bar: 100.0 * bar)
    y.backward()
    assert x.grad.item() == 2.0
    assert pb.grad(op)(1.0) == 100.0


def test_bound_methods_are_functions():
    class Gain:
        def __init__(self, k):
            self.k = k

        def times(self, x):
            return self.k * np.asarray(x)

    gain = Gain(2.0)
    op = op_of(gain.times, vjp=lambda bar: gain.k * bar)
    assert derivatives(lambda x: op(x) ** 2, 3.0, 2)["fr"] == 8.0
    assert op.__name__ == op.name == "times"
    assert repr(op) == "<custom op times>"


def test_a_method_is_no_function_of_arrays():
    with pytest.raises(errors.ArgumentError, match="not of a method"):

        class Gain:
            @pb.custom_op
            def times(self, x):
                return 2.0 * np.asarray(x)


# The class form.


def function(forward, backward=None, jvp=None):
    methods = {"forward": forward, "backward": backward, "jvp": jvp}
    return type("Scale", (pb.Function,), {k: staticmethod(m) for k, m in methods.items() if m is not None})


def saving(value):
    """A forward that saves what `value(x)` answers, with x cubed as its result."""

    def cubed(ctx, x):
        y = x**3
        ctx.save_for_backward(*value(x, y))
        return y

    return cubed


THIRD = {"f": 12.0, "r": 12.0} | {"".join(p): 12.0 for p in itertools.product("fr", repeat=2)} | {
    "".join(p): 6.0 for p in itertools.product("fr", repeat=3)
}  # fmt: skip


def pull_by_x(ctx, bar):
    (x,) = ctx.saved_tensors
    return 3.0 * x**2 * bar


@pytest.mark.parametrize(
    "given", [{"backward": pull_by_x}, {"jvp": pull_by_x}, {"backward": pull_by_x, "jvp": pull_by_x}], ids="+".join
)
def test_a_saved_input_is_right_to_any_order(given):
    cube = function(saving(lambda x, y: (x,)), **given)
    assert derivatives(cube.apply, 2.0, 3) == pytest.approx(THIRD)
    f = lambda x: cube.apply(x) * x  # noqa: E731
    assert float(forward(forward(f))(3.0)) == 108.0


def test_a_saved_result_is_right_to_any_order():
    exp = function(
        lambda ctx, x: (lambda y: (ctx.save_for_backward(y), y)[1])(x.exp()),
        lambda ctx, bar: bar * ctx.saved_tensors[0],
    )
    found = derivatives(exp.apply, 0.5, 3)
    np.testing.assert_allclose(list(found.values()), np.exp(0.5))


def pull_by_square(ctx, bar):
    (square,) = ctx.saved_tensors
    return 3.0 * square * bar


@pytest.mark.parametrize("mode", [pb.grad, forward], ids=["reverse", "forward"])
@pytest.mark.parametrize("kind", ["backward", "jvp"])
def test_a_saved_intermediate_is_right_to_first_order(kind, mode):
    cube = function(saving(lambda x, y: (x * x,)), **{kind: pull_by_square})
    assert float(mode(cube.apply)(2.0)) == 12.0


@pytest.mark.parametrize("kind", ["backward", "jvp"])
@pytest.mark.parametrize("order", ["ff", "fr", "rf", "rr"])
def test_a_second_derivative_through_an_intermediate_is_refused(kind, order):
    cube = function(saving(lambda x, y: (x * x,)), **{kind: pull_by_square})
    mode = {"f": forward, "r": pb.grad}
    with pytest.raises(errors.GraphError, match="saved but did not return"):
        mode[order[0]](mode[order[1]](cube.apply))(2.0)


def test_an_intermediate_does_no_harm_where_it_is_not_needed():
    """Beside a saved input, whose history is known."""
    cube = function(saving(lambda x, y: (x, x * x)), lambda ctx, bar: 3.0 * ctx.saved_tensors[0] ** 2 * bar)
    assert derivatives(cube.apply, 2.0, 2) == pytest.approx({k: v for k, v in THIRD.items() if len(k) < 3})


def test_a_saved_constant():
    def masked(ctx, x):
        mask = np.array([1.0, 0.0, 1.0])
        ctx.save_constant(mask)
        return x * mask

    op = function(masked, lambda ctx, bar: bar * ctx.saved_tensors[0])
    f = lambda x: pb.sum(op.apply(x) ** 3)  # noqa: E731
    x = np.array([1.0, 2.0, 3.0])
    np.testing.assert_array_equal(pb.grad(f)(x), [3.0, 0.0, 27.0])
    np.testing.assert_array_equal(pb.jvp(pb.grad(f), (x,), (np.ones(3),))[1], [6.0, 0.0, 18.0])


@pytest.mark.parametrize("attribute", ["input", "intermediate", "array", "list"])
@pytest.mark.parametrize("order", ["ff", "fr", "rf", "rr"])
def test_an_array_kept_as_an_attribute_loses_no_term(attribute, order):
    kept = {"input": lambda x: x, "intermediate": lambda x: x * 1.0, "array": np.asarray, "list": lambda x: [x]}

    def cubed(ctx, x):
        ctx.kept = kept[attribute](x)
        return x**3

    def pull(ctx, bar):
        x = ctx.kept[0] if attribute == "list" else ctx.kept
        return 3.0 * x**2 * bar

    cube = function(cubed, pull)
    mode = {"f": forward, "r": pb.grad}
    try:
        found = mode[order[0]](mode[order[1]](cube.apply))(2.0)
    except errors.PullbackError:
        return
    assert float(found) == 12.0


def test_attributes_that_are_no_arrays():
    def scaled(ctx, x, k, label):
        ctx.k, ctx.label = k, label
        return k * x

    op = function(scaled, lambda ctx, bar: (ctx.k * bar, None, None))
    assert derivatives(lambda x: op.apply(x, 3, "name") ** 2, 2.0, 2)["fr"] == 18.0


def test_attributes_that_differ_by_element_of_a_batch_are_refused():
    def folded(ctx, x):
        ctx.positive = x.item() > 0.0
        return x if ctx.positive else -x

    op = function(folded, lambda ctx, bar: bar if ctx.positive else -bar)
    x = np.array([-1.0, 2.0, -3.0, 4.0])
    for slopes in (
        lambda: pb.vmap(pb.grad(op.apply))(x),
        lambda: pb.grad(lambda x: pb.sum(pb.vmap(op.apply)(x)))(x),
        lambda: pb.vmap(forward(op.apply))(x),
    ):
        with pytest.raises(errors.GraphError, match="differs by element"):
            slopes()


def test_vmap_of_the_class_form():
    cube = function(saving(lambda x, y: (x,)), pull_by_x)
    x = np.arange(3.0)
    for found, expected in (
        (pb.vmap(cube.apply)(x), x**3),
        (pb.vmap(pb.grad(cube.apply))(x), 3 * x**2),
        (pb.vmap(pb.vmap(cube.apply))(np.ones((2, 2))), np.ones((2, 2))),
        (pb.vmap(forward(cube.apply))(x), 3 * x**2),
        (pb.grad(lambda x: pb.sum(pb.vmap(cube.apply)(x)))(x), 3 * x**2),
    ):
        np.testing.assert_allclose(found, expected)


@pytest.mark.parametrize("order", ["f", "r", "ff", "fr", "rf", "rr", "vr", "vf"])
def test_plain_arrays_in_plain_arrays_out(order):
    for kind in ("backward", "jvp"):
        cube = function(saving(lambda x, y: (x,)), **{kind: pull_by_x})
        mode = {"f": forward, "r": pb.grad, "v": pb.vmap}
        f = functools.reduce(lambda h, letter: mode[letter](h), reversed(order), cube.apply)
        assert isinstance(f(np.ones(2) if "v" in order else np.ones(())), np.ndarray)


def test_several_results_and_unused_ones():
    op = function(
        lambda ctx, x, y: (ctx.save_for_backward(x, y), (x * y, x + y))[1],
        lambda ctx, a, b: (a * ctx.saved_tensors[1] + b, a * ctx.saved_tensors[0] + b),
    )
    assert pb.grad(lambda x, y: op.apply(x, y)[0] * op.apply(x, y)[1], (0, 1))(2.0, 3.0) == (21.0, 16.0)
    assert pb.grad(lambda x, y: op.apply(x, y)[1], (0, 1))(2.0, 3.0) == (1.0, 1.0)
    assert pb.jvp(op.apply, (2.0, 3.0), (1.0, 0.0))[1] == (3.0, 1.0)


@pytest.mark.parametrize("mode", ["reverse", "forward"])
@pytest.mark.parametrize("count", [1, 3])
def test_jvp_with_the_wrong_number_of_tangents(count, mode):
    op = function(lambda ctx, x: (x * 1.0, x * 2.0), jvp=lambda ctx, t: (t, 2.0 * t, t)[:count])
    with pytest.raises(errors.ArgumentError, match=f"Scale.*{count} tangents for 2"):
        pb.jvp(op.apply, (1.0,), (1.0,)) if mode == "forward" else pb.grad(lambda x: op.apply(x)[1])(1.0)


def test_jvp_with_a_tangent_for_an_intermediate():
    op = function(saving(lambda x, y: (x * x,)), jvp=lambda ctx, t: (t, t))
    with pytest.raises(errors.ArgumentError, match="2 tangents for 1"):
        pb.jvp(op.apply, (1.0,), (1.0,))


@pytest.mark.parametrize(
    ("backward", "said"),
    [(lambda ctx, bar: (bar, bar), "2 cotangents for 1"), (lambda ctx, bar: bar[None], "argument 0 has shape")],
)
def test_a_wrong_backward_is_named(backward, said):
    with pytest.raises(errors.PullbackError, match=f"Scale.*{said}"):
        pb.grad(function(lambda ctx, x: x * 2.0, backward).apply)(1.0)


def test_a_wrong_backward_is_shown_with_the_users_line():
    with pytest.raises(errors.ShapeError, match=r"test_custom\.py"):
        pb.grad(function(lambda ctx, x: x * 2.0, lambda ctx, bar: bar[None]).apply)(1.0)


def test_a_class_without_rules():
    op = function(lambda ctx, x: x * 2.0)
    assert op.apply(1.0) == 2.0
    with pytest.raises(errors.GraphError, match="Scale"):
        pb.grad(op.apply)(1.0)


def test_no_arrays_and_no_results():
    with pytest.raises(errors.ArgumentError, match="no argument is an array"):
        function(lambda ctx, x: x).apply("text")
    with pytest.raises(errors.PullbackError):
        function(lambda ctx, x: (), lambda ctx: None).apply(1.0)


def test_numpy_scalars_are_arrays():
    op = function(lambda ctx, x: x * 2.0, lambda ctx, bar: 2.0 * bar)
    assert op.apply(np.float64(3.0)) == 6.0
    assert op.apply(np.arange(3)).tolist() == [0.0, 2.0, 4.0]


def test_a_tracked_tensor_that_is_no_argument():
    w = leaf(2.0)
    x = leaf(1.0)
    with pytest.raises(errors.GraphError, match="Pass it as an argument"):
        function(lambda ctx, x: x * w, lambda ctx, bar: bar).apply(x)

    def keeps(ctx, x):
        ctx.w = w
        return x * w.item()

    with pytest.raises(errors.GraphError, match="argument"):
        pb.gradients(function(keeps, lambda ctx, bar: bar * ctx.w).apply(x), x, create_graph=True)
    with pytest.raises(errors.GraphError, match="Pass it as an argument"):
        function(lambda ctx, x: (ctx.save_for_backward(w), x * 2.0)[1], lambda ctx, bar: bar).apply(x)


def test_writing_to_an_input_after_saving_it():
    def quadruple(ctx, x):
        ctx.save_for_backward(x)
        x *= 2.0
        return x * x

    op = function(quadruple, lambda ctx, bar: 8.0 * ctx.saved_tensors[0] * bar)
    x = leaf(1.5)
    op.apply(x).backward()
    assert (x.item(), x.grad.item()) == (1.5, 12.0)


def test_saving_an_input_after_writing_to_it():
    """What is saved is 2x, which is no input any more."""

    def quadruple(ctx, x):
        x *= 2.0
        ctx.save_for_backward(x)
        return x * x

    op = function(quadruple, lambda ctx, bar: 4.0 * ctx.saved_tensors[0] * bar)
    assert pb.grad(op.apply)(1.5) == 12.0


def test_a_buffer_that_forward_uses_again():
    buffer = np.zeros(2)

    def exp(ctx, x):
        np.exp(np.asarray(x), out=buffer)
        ctx.save_for_backward(buffer)
        return buffer

    op = function(exp, lambda ctx, bar: bar * ctx.saved_tensors[0])
    x, y = leaf(np.zeros(2)), leaf(np.ones(2))
    a, b = op.apply(x), op.apply(y)
    pb.sum(a + b).backward()
    np.testing.assert_allclose([x.grad, y.grad, a.detach()], [np.ones(2), np.full(2, np.e), np.ones(2)])


@pytest.mark.parametrize("linked", [False, True])
def test_backward_that_writes_to_its_cotangent(linked):
    def backward(ctx, bar):
        bar *= 2.0
        return bar

    op = function(lambda ctx, x: x * 2.0, backward)
    x, y = leaf([1.0, 1.0]), leaf([1.0, 1.0])
    z = op.apply(x) + y
    gx, gy = pb.gradients(pb.sum(z * z), [x, y], create_graph=linked)
    np.testing.assert_array_equal(gx.detach(), [12.0, 12.0])
    np.testing.assert_array_equal(gy.detach(), [6.0, 6.0])


def test_methods_of_arrays_inside_forward():
    def clipped(ctx, x):
        ctx.save_for_backward(x)
        return x.clip(-1.0, 1.0)

    op = function(clipped, lambda ctx, bar: bar * (abs(ctx.saved_tensors[0]) <= 1.0))
    np.testing.assert_array_equal(pb.vmap(pb.grad(op.apply))(np.array([2.0, 0.5])), [0.0, 1.0])
    identity = function(lambda ctx, x: x, lambda ctx, bar: bar.clip(-1.0, 1.0))
    assert pb.grad(lambda x: 5.0 * identity.apply(x))(2.0) == 1.0
    assert pb.grad(lambda x: -0.5 * identity.apply(x))(2.0) == -0.5
    with pytest.raises(errors.ArgumentError, match="linear"):
        pb.jvp(identity.apply, (2.0,), (1.0,))


def test_elements_that_save_different_things_are_refused():
    def squared(ctx, x):
        y = x * x
        ctx.save_for_backward(x if x.item() > 0 else y)
        return y

    op = function(squared, lambda ctx, bar: bar * ctx.saved_tensors[0])
    assert [float(pb.grad(op.apply)(v)) for v in (2.0, -3.0)] == [2.0, 9.0]
    with pytest.raises(errors.GraphError, match="differs by element"):
        pb.vmap(pb.grad(op.apply))(np.array([2.0, -3.0]))


def test_an_attribute_that_is_nan_is_the_same_for_all():
    def scaled(ctx, x):
        ctx.k = float("nan")
        return x * 2.0

    op = function(scaled, lambda ctx, bar: bar * 2.0)
    np.testing.assert_array_equal(pb.vmap(pb.grad(op.apply))(np.ones(3)), [2.0] * 3)


def test_a_call_leaves_no_cycle_and_keeps_no_argument():
    op = function(lambda ctx, x: x * 2.0, lambda ctx, bar: bar * 2.0)
    gc.collect()
    gc.disable()
    try:
        x = leaf(1.5)
        alive = weakref.ref(x)
        y = op.apply(x)
        y.backward()
        del x, y
        assert alive() is None
    finally:
        gc.enable()


def test_needs_input_grad_of_integers():
    seen = []
    op = function(lambda ctx, x, n: x * n, lambda ctx, bar, *_: (seen.append(ctx.needs_input_grad), (bar, None))[1])
    pb.grad(lambda x: pb.sum(op.apply(x, np.array([1, 2]))))(np.ones(2))
    assert seen == [(True, False)]


def test_an_integer_result_beside_a_float_has_both_modes():
    op = op_of(lambda a: (np.sin(a), np.int64(3)), vjp=lambda bar, a: bar[0] * pb.cos(a))
    assert pb.jvp(lambda a: op(a)[0], (0.4,), (1.0,))[1] == np.cos(0.4)
    assert pb.grad(lambda a: op(a)[0])(0.4) == np.cos(0.4)


def test_straight_through_refuses_to_drop_imaginary_parts():
    with pytest.raises(errors.DtypeError, match="complex"):
        pb.straight_through(lambda x: x * 1j)(2.0)


def test_the_refusal_of_a_clipped_gradient_in_forward_mode_names_it():
    with pytest.raises(errors.ArgumentError, match="clip_gradient"):
        pb.jvp(pb.clip_gradient, (1.0,), (2.0,))
