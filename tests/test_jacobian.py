"""Jacobians and Hessians: every mode gives the same derivatives, in the right trees, and the plan is a sensible one."""

import collections
import tracemalloc

import numpy as np
import pytest

import pullback as pb
from pullback import grad, jvp, vjp, vmap
from pullback.errors import ArgumentError, DtypeError, ShapeError
from pullback.transforms.jacobian import planner as schedule_module
from pullback.transforms.jacobian.cost_model import CostStep, estimate_nanoseconds, sketch_function
from pullback.transforms.jacobian.functions import hessian, jacfwd, jacobian, jacrev
from pullback.transforms.jacobian.planner import HESSIANS, JACOBIANS, DerivativePlanner, parse_memory_budget

RNG = np.random.default_rng(3)
A = RNG.normal(size=(4, 3))
B = RNG.normal(size=(3, 3))


def rosenbrock(x):
    return pb.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)


def network(p):
    hidden = pb.tanh(A @ pb.reshape(p[:6], (3, 2)) + p[6:8])
    return hidden @ p[8:10]


def stepwise(x):
    for _ in range(3):
        x = pb.where(x > 0, pb.sin(x) * x, pb.exp(x))
    return x


FUNCTIONS = {
    "identity": (lambda x: x, (3,)),
    "three times": (lambda x: 3 * x, (3,)),
    "constant": (lambda x: np.ones(2), (3,)),
    "square": (lambda x: x * x, (2, 2)),
    "sin of a number": (pb.sin, ()),
    "number to vector": (lambda x: pb.stack([x, x * x, pb.exp(x)]), ()),
    "rosenbrock": (rosenbrock, (4,)),
    "matrix product": (lambda x: A @ x, (3, 2)),
    "quadratic form": (lambda x: x @ B @ x, (3,)),
    "network": (network, (10,)),
    "branches": (stepwise, (4,)),
    "logsumexp": (lambda x: pb.log(pb.sum(pb.exp(x), axis=0)), (3, 2)),
    "largest": (lambda x: pb.max(x, axis=1), (2, 3)),
    "indexing": (lambda x: x[np.array([0, 0, 2])] * x[1], (3,)),
    "cubes and sums": (lambda x: pb.cumulative_sum(x**3), (3,)),
    "einsum": (lambda x: pb.einsum("ij,jk,ki->", x, B, x), (3, 3)),
}
CASES = pytest.mark.parametrize(("f", "shape"), FUNCTIONS.values(), ids=FUNCTIONS)


def by_columns(f, x):
    """The Jacobian from one jvp for each input, in a loop."""
    columns = [jvp(f, (x,), (e.reshape(x.shape),))[1] for e in np.eye(x.size)]
    return np.stack(columns, axis=-1).reshape(np.shape(columns[0]) + x.shape)


def by_rows(f, x):
    """The Jacobian from one vjp for each output, in a loop."""
    value, pull = vjp(f, x)
    value = np.asarray(value)
    return np.stack([pull(e.reshape(value.shape))[0] for e in np.eye(value.size)]).reshape(value.shape + x.shape)


def close(a, b, tolerance=1e-12):
    assert type(a) is np.ndarray
    assert a.shape == np.shape(b)
    np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


@CASES
def test_all_ways_to_a_jacobian_agree_with_loops(f, shape):
    x = np.random.default_rng(1).normal(size=shape)
    expected = by_columns(f, x)
    close(by_rows(f, x), expected)
    for derivative in (jacfwd(f), jacrev(f), *(jacobian(f, mode=m) for m in ("auto", "forward", "reverse"))):
        close(derivative(x), expected)


@CASES
def test_all_ways_to_a_hessian_agree_with_loops(f, shape):
    x = np.random.default_rng(2).normal(size=shape)
    expected = by_columns(lambda y: jacfwd(f)(y), x)
    for mode in ("auto", *HESSIANS):
        close(hessian(f, mode=mode)(x), expected, 1e-11)


@CASES
def test_chunks_change_nothing(f, shape):
    x = np.random.default_rng(4).normal(size=shape)
    for mode in JACOBIANS:
        whole = jacobian(f, mode=mode)(x)
        close(jacobian(f, mode=mode, memory_budget=1)(x), whole, 1e-13)
        close(jacobian(f, mode=mode, memory_budget=300)(x), whole, 1e-13)


@pytest.mark.parametrize("mode", HESSIANS)
def test_chunks_of_hessians_change_nothing(mode):
    x = RNG.normal(size=4)
    whole = hessian(rosenbrock, mode=mode)(x)
    for budget in (1, 200, 1000, 100_000):
        close(hessian(rosenbrock, mode=mode, memory_budget=budget)(x), whole, 1e-13)


@pytest.mark.parametrize("derivative", [jacfwd, jacrev, jacobian])
def test_small_closed_forms(derivative):
    x = np.array([2.0, 3.0])
    close(derivative(lambda v: pb.stack([v[0] ** 2, v[0] * v[1]]))(x), [[4, 0], [3, 2]])
    close(derivative(lambda v: v)(x), np.eye(2))
    close(derivative(lambda v: 3 * v)(x), 3 * np.eye(2))
    close(derivative(lambda v: 2 * v)(x), 2 * np.eye(2))
    close(derivative(lambda v: v**2)(x), np.diag(2 * x))
    close(derivative(pb.sin)(x), np.diag(np.cos(x)))
    close(derivative(pb.sin)(np.zeros(0)), np.zeros((0, 0)))


@pytest.mark.parametrize("mode", ["auto", *HESSIANS])
def test_small_hessians(mode):
    x = np.array([2.0, 3.0])
    close(hessian(lambda v: v[0] ** 2 + v[1] ** 2, mode=mode)(x), 2 * np.eye(2))
    close(hessian(lambda v: v[0] * v[1], mode=mode)(x), [[0, 1], [1, 0]])
    close(hessian(lambda v: v[0] ** 3, mode=mode)(np.array([2.0])), [[12]])
    close(hessian(lambda v: v**3, mode=mode)(2.0), 12.0)
    close(hessian(lambda v: pb.sum(v), mode=mode)(x), np.zeros((2, 2)))


@pytest.mark.parametrize("mode", ["auto", *HESSIANS])
def test_the_hessian_of_rosenbrock(mode):
    x = np.array([-1.2, 1.0, 0.7])
    expected = np.diag(np.array([1200 * x[0] ** 2 - 400 * x[1] + 2, 1200 * x[1] ** 2 - 400 * x[2] + 202, 200.0]))
    for i in (0, 1):
        expected[i, i + 1] = expected[i + 1, i] = -400 * x[i]
    close(hessian(rosenbrock, mode=mode)(x), expected)


@pytest.mark.parametrize("mode", HESSIANS)
def test_third_order(mode):
    cube = lambda v: pb.sum(v**3) * v[0]  # noqa: E731
    x = np.array([2.0, 3.0])
    expected = np.zeros((2, 2, 2))  # of x^4 + y^3 x
    expected[0, 0, 0] = 24 * x[0]
    expected[1, 1, 1] = 6 * x[0]
    for place in ((0, 1, 1), (1, 0, 1), (1, 1, 0)):
        expected[place] = 6 * x[1]
    for outer in (jacfwd, jacrev, jacobian):
        close(outer(hessian(cube, mode=mode))(x), expected)
    close(hessian(grad(cube), mode=mode)(x), expected)


Point = collections.namedtuple("Point", "x y")


@pytest.mark.parametrize("mode", ["auto", "forward", "reverse"])
def test_trees_in_and_out(mode):
    p = {"w": np.array([[1.0, 2.0]]), "b": Point(np.array(3.0), np.zeros(0))}

    def f(tree):
        return [pb.sum(tree["w"], axis=0) * tree["b"].x, (tree["b"].x ** 2,)]

    found = jacobian(f, mode=mode)(p)
    assert isinstance(found, list)
    assert isinstance(found[1], tuple)
    assert sorted(found[0]) == ["b", "w"]
    assert isinstance(found[0]["b"], Point)
    close(found[0]["w"], [[[3, 0]], [[0, 3]]])
    close(found[0]["b"].x, [1, 2])
    close(found[0]["b"].y, np.zeros((2, 0)))
    close(found[1][0]["w"], [[0, 0]])
    close(found[1][0]["b"].x, 6.0)


@pytest.mark.parametrize("mode", ["auto", *HESSIANS])
def test_hessians_of_trees(mode):
    found = hessian(lambda p: pb.sum(p["a"] ** 2) * p["b"], mode=mode)({"a": np.array([1.0, 2.0]), "b": 3.0})
    close(found["a"]["a"], 6 * np.eye(2))
    close(found["a"]["b"], [2, 4])
    close(found["b"]["a"], [2, 4])
    close(found["b"]["b"], 0.0)


@pytest.mark.parametrize("mode", ["auto", "forward", "reverse"])
def test_argnums(mode):
    x, y = np.array([1.0, 2.0]), np.array([3.0, 4.0])
    f = lambda a, b, *, scale=1.0: a * b * scale  # noqa: E731
    close(jacobian(f, mode=mode)(x, y), np.diag(y))
    close(jacobian(f, 1, mode=mode)(x, y), np.diag(x))
    close(jacobian(f, -1, mode=mode)(x, y, scale=2.0), np.diag(2 * x))
    by_x, by_y = jacobian(f, (0, 1), mode=mode)(x, y)
    close(by_x, np.diag(y))
    close(by_y, np.diag(x))
    (alone,) = jacobian(f, (1,), mode=mode)(x, y)
    close(alone, np.diag(x))


@pytest.mark.parametrize("mode", ["auto", *HESSIANS])
def test_argnums_of_hessians(mode):
    (xx, xy), (yx, yy) = hessian(lambda a, b: a**2 * b, (0, 1), mode=mode)(2.0, 3.0)
    for found, expected in ((xx, 6.0), (xy, 4.0), (yx, 4.0), (yy, 0.0)):
        close(found, expected)


@pytest.mark.parametrize("mode", ["auto", "forward", "reverse"])
def test_aux_comes_out_as_it_is(mode):
    f = lambda x: (x * x, {"name": "square", "sum": pb.sum(x), "raw": 3})  # noqa: E731
    for budget in (None, 1):
        found, aux = jacobian(f, mode=mode, has_aux=True, memory_budget=budget)(np.array([1.0, 2.0]))
        close(found, np.diag([2.0, 4.0]))
        assert aux["name"] == "square"
        assert aux["raw"] == 3
        close(aux["sum"], 3.0)


@pytest.mark.parametrize("mode", ["auto", *HESSIANS])
def test_aux_of_hessians(mode):
    found, aux = hessian(lambda x: (pb.sum(x**2), [pb.exp(x), "beside"]), mode=mode, has_aux=True)(np.zeros(2))
    close(found, 2 * np.eye(2))
    close(aux[0], np.ones(2))
    assert aux[1] == "beside"


def test_aux_must_be_a_pair():
    for derivative in (jacfwd, jacrev, jacobian, hessian):
        with pytest.raises(ArgumentError, match="has_aux"):
            derivative(lambda x: x * x, has_aux=True)(np.ones(2))


@pytest.mark.parametrize("derivative", [jacfwd, jacrev, jacobian])
def test_empty_and_0d(derivative):
    close(derivative(lambda x: x * x)(np.zeros((0, 2))), np.zeros((0, 2, 0, 2)))
    close(derivative(lambda x: pb.sum(x))(np.zeros(0)), np.zeros(0))
    close(derivative(lambda x: x[:0])(np.ones(2)), np.zeros((0, 2)))
    close(derivative(lambda x: x**2)(3.0), 6.0)
    close(derivative(lambda x: x**2)(np.full((1, 1), 3.0)), np.full((1, 1, 1, 1), 6.0))
    assert derivative(lambda x: x)(()) == ()
    for mode in HESSIANS:
        close(hessian(lambda x: pb.sum(x**2), mode=mode)(np.zeros(0)), np.zeros((0, 0)))


def test_a_result_used_twice_and_an_input_not_used():
    for mode in ("forward", "reverse"):
        same, other = jacobian(lambda x, y: (x, x), (0, 1), mode=mode)(np.ones(2), np.ones(3))
        close(same[0], np.eye(2))
        close(same[1], np.zeros((2, 3)))
        close(other[0], np.eye(2))


@pytest.mark.parametrize("derivative", [jacfwd, jacrev, jacobian])
def test_dtypes_are_those_of_the_result(derivative):
    assert derivative(pb.sin)(np.ones(2, "float32")).dtype == np.float32
    assert derivative(lambda x: pb.astype(x, np.float32))(np.ones(2)).dtype == np.float32
    assert derivative(lambda x: pb.astype(x, np.float64))(np.ones(2, "float32")).dtype == np.float64
    assert hessian(lambda x: pb.sum(x**2))(np.ones(2, "float32")).dtype == np.float32


@pytest.mark.parametrize("derivative", [jacfwd, jacrev, jacobian])
def test_complex_results_of_real_inputs(derivative):
    x = np.array([0.3, -0.7])
    found = derivative(lambda v: (pb.exp(v * 1j), v))(x)
    close(found[0], np.diag(1j * np.exp(1j * x)))
    close(found[1], np.eye(2))
    assert found[0].dtype == np.complex128
    assert found[1].dtype == np.float64


@pytest.mark.parametrize("derivative", [jacfwd, jacrev, jacobian, hessian])
def test_what_cannot_be_differentiated_is_refused(derivative):
    with pytest.raises(DtypeError, match="floating-point"):
        derivative(lambda x: x * 2.0)(np.arange(3))
    with pytest.raises(DtypeError, match=r"complex128.*two directions"):
        derivative(lambda x: x * x)(np.ones(2, complex))
    with pytest.raises(DtypeError, match="returned int64"):
        derivative(lambda x: pb.argmax(x, axis=0))(np.ones(2))
    with pytest.raises(ArgumentError, match="argnums"):
        derivative(lambda x: x, 1)(np.ones(2))
    with pytest.raises(ShapeError):
        derivative(lambda x: x @ np.ones((5, 5)))(np.ones(2))


def test_modes_are_checked_at_once():
    with pytest.raises(ArgumentError, match=r'"forward", "reverse", "product", got \'sideways\''):
        jacobian(pb.sin, mode="sideways")
    with pytest.raises(ArgumentError, match="forward-over-reverse"):
        hessian(pb.sin, mode="forward")


@pytest.mark.parametrize("mode", ["auto", "forward", "reverse"])
def test_tensors_in_tensors_out(mode):
    plain = jacobian(lambda x: 2 * x, mode=mode)(pb.tensor([1.0, 2.0]))
    assert isinstance(plain, pb.Tensor)
    assert not plain.requires_grad
    x = pb.tensor([1.0, 2.0], requires_grad=True)
    found = jacobian(lambda v: v**3, mode=mode)(x)
    assert found.requires_grad
    pb.sum(found).backward()
    np.testing.assert_allclose(x.grad.numpy(), [6.0, 12.0])


@pytest.mark.parametrize("mode", ["auto", *HESSIANS])
def test_tracked_hessians(mode):
    x = pb.tensor([1.0, 2.0], requires_grad=True)
    w = pb.tensor(3.0, requires_grad=True)
    pb.sum(hessian(lambda v: w * pb.sum(v**4), mode=mode)(x)).backward()
    np.testing.assert_allclose(x.grad.numpy(), 3 * 24 * np.array([1.0, 2.0]))
    np.testing.assert_allclose(w.grad.numpy(), 12 * 5.0)


@pytest.mark.parametrize("mode", ["auto", "forward", "reverse"])
def test_inside_other_transforms(mode):
    f = lambda v: pb.stack([v[0] ** 2 * v[1], pb.sin(v[1])])  # noqa: E731
    points = RNG.normal(size=(5, 2))
    derivative = jacobian(f, mode=mode)
    close(vmap(derivative)(points), np.stack([derivative(p) for p in points]))
    close(grad(lambda v: pb.sum(derivative(v)))(points[0]), by_columns(derivative, points[0]).sum((0, 1)))
    pushed = jvp(derivative, (points[0],), (np.array([1.0, 0.0]),))[1]
    close(pushed, by_columns(derivative, points[0])[..., 0])
    batched = hessian(lambda v: pb.sum(f(v)))
    close(vmap(batched)(points), np.stack([batched(p) for p in points]))


def test_other_transforms_inside():
    inner = lambda x: pb.stack([grad(lambda y: pb.sum(y**3) * x[0])(x)[1], pb.sum(x)])  # noqa: E731
    x = np.array([2.0, 3.0])
    expected = [[3 * x[1] ** 2, 6 * x[0] * x[1]], [1, 1]]
    for derivative in (jacfwd, jacrev, jacobian):
        close(derivative(inner)(x), expected)
    close(jacobian(vmap(lambda v: v**2))(x), np.diag(2 * x))


def test_numbers_may_decide_the_way():
    f = lambda x: x * x if x[0] > 0 else -x  # noqa: E731
    for derivative in (jacobian(f), jacobian(f, memory_budget="1 kB")):
        close(derivative(np.array([1.0, 2.0])), np.diag([2.0, 4.0]))
        close(derivative(np.array([-1.0, 2.0])), -np.eye(2))
    close(hessian(lambda x: pb.sum(f(x)))(np.array([1.0, 2.0])), 2 * np.eye(2))


def test_nan_and_infinity_stay_where_they_are():
    x = np.array([0.0, 4.0])
    for derivative in (jacfwd, jacrev):
        with np.errstate(all="ignore"):
            found = derivative(pb.sqrt)(x)
        assert found[0, 0] == np.inf
        assert found[1, 1] == 0.25
        found = derivative(lambda v: pb.where(v > 0, pb.sqrt(pb.where(v > 0, v, 1.0)), 0.0))(x)
        close(found, [[0, 0], [0, 0.25]])


def test_ties_share_as_in_a_single_direction():
    x = np.array([1.0, 1.0, 0.0])
    expected = by_rows(lambda v: pb.max(v), x)
    for derivative in (jacfwd, jacrev):
        close(derivative(lambda v: pb.max(v))(x), expected)


# The plan


def plan_of(f, *args, what="jacobian", mode="auto", budget=None):
    flat = lambda *xs: ([f(*xs)], None)  # noqa: E731
    return DerivativePlanner(what, f, mode, budget).plan(flat, args, args)


def test_tall_goes_forward_and_wide_goes_back():
    tall = plan_of(lambda x: pb.sin(np.ones((500, 2)) @ x), np.ones(2))
    assert (tall.inputs, tall.outputs, tall.choice.mode, tall.choice.directions) == (2, 500, "forward", 2)
    wide = plan_of(lambda x: np.ones((2, 500)) @ pb.sin(x), np.ones(500))
    assert (wide.inputs, wide.outputs, wide.choice.mode, wide.choice.directions) == (500, 2, "reverse", 2)


def test_one_output_goes_back_and_one_input_forward():
    def chain(x):
        for _ in range(20):
            x = pb.sin(x) * 1.01
        return x

    assert plan_of(lambda x: pb.sum(chain(x)), np.ones(3)).choice.mode == "reverse"
    assert plan_of(lambda x: chain(x)[None] * np.ones(3), np.array(1.0)).choice.mode == "forward"
    assert plan_of(lambda x: pb.sum(pb.sin(x) * x), np.ones(100)).choice.mode == "reverse"
    assert plan_of(lambda x: pb.sin(x) * np.ones(100), np.ones(1)).choice.mode == "forward"


def test_square_maps_go_forward():
    """At equal counts forward mode keeps nothing and runs each op once."""
    for f in (pb.sin, lambda x: pb.tanh(B @ x), lambda x: pb.exp(x) * x - x):
        assert plan_of(f, np.ones(3)).choice.mode == "forward"
    assert plan_of(lambda x: pb.tanh(np.ones((300, 300)) @ x), np.ones(300)).choice.mode == "forward"


def test_work_decides_where_counts_are_close():
    """Large products in the middle of a map: the overhead of a tape no longer counts, fewer directions win."""
    columns = 20

    def to(rows):
        return lambda x: np.ones((rows, 400)) @ pb.tanh(np.ones((400, 400)) @ pb.tanh(np.ones((400, columns)) @ x))

    assert plan_of(to(2), np.ones(columns)).choice.mode == "reverse"
    assert plan_of(to(40), np.ones(columns)).choice.mode == "forward"


def short_map(x):
    """Eight numbers to two, by a few small ops."""
    y = pb.sin(x) * x
    return pb.stack([pb.sum(y * y), pb.sum(y[:4])])


def plans_printed(capsys, call):
    call()
    return [line.split()[1] for line in capsys.readouterr().out.splitlines() if line.startswith("chosen")]


def test_the_batch_around_a_jacobian_counts_as_work(capsys):
    """One call of a short map is overhead, which is least forward; of thousands the directions count."""
    derivative = jacobian(short_map, explain=True)
    assert plans_printed(capsys, lambda: derivative(np.ones(8))) == ["forward"]
    assert plans_printed(capsys, lambda: pb.vmap(derivative)(np.ones((5000, 8)))) == ["reverse"]
    assert plans_printed(capsys, lambda: pb.vmap(pb.vmap(derivative))(np.ones((50, 100, 8)))) == ["reverse"]


def test_what_an_op_costs_python_does_not_count_while_tracing(capsys):
    derivative = jacobian(short_map, explain=True)
    assert plans_printed(capsys, lambda: derivative(np.ones(8))) == ["forward"]
    assert plans_printed(capsys, lambda: pb.jit(derivative)(np.ones(8))) == ["reverse"]
    assert plans_printed(capsys, lambda: derivative(np.ones(8))) == ["forward"]


def test_a_budget_holds_for_the_whole_batch(capsys):
    x = np.ones((100, 8))
    each = plan_of(short_map, x[0], mode="forward").choice.nbytes
    pb.vmap(jacobian(short_map, mode="forward", memory_budget=each * 50, explain=True))(x)
    assert "2 chunks of 4" in capsys.readouterr().out


def test_hessians_of_scalars_go_forward_over_reverse():
    assert plan_of(rosenbrock, np.ones(50), what="hessian").choice.mode == "forward-over-reverse"


def test_hessians_of_tall_functions_go_forward_twice():
    plan = plan_of(lambda x: pb.sin(np.ones((2000, 2)) @ x), np.ones(2), what="hessian")
    assert plan.choice.mode == "forward-over-forward"


def test_more_directions_cost_more_and_more_runs_too():
    steps = [CostStep("elementwise", 1000, 8000, 1, (0,)), CostStep("contraction", 10_000, 8000, 2, (0, 1))]
    for way in ("push", "pull", "ff", "fr", "rf", "rr"):
        assert estimate_nanoseconds(steps, way, 10, 1) < estimate_nanoseconds(steps, way, 11, 1)
        assert estimate_nanoseconds(steps, way, 10, 1) < estimate_nanoseconds(steps, way, 10, 2)


def test_an_outline_counts_ops_flops_and_lives():
    def f(x):
        for _ in range(10):
            x = pb.sin(x)
        return [pb.sum(x)], None

    outline = sketch_function(f, [np.ones(1000)])
    assert len(outline.steps) == 11
    assert [spec.shape for spec in outline.outs] == [()]
    assert outline.peak < 4 * 8000 < outline.kept
    assert outline.back < 4 * 8000
    (product,) = sketch_function(lambda x: ([x @ np.ones((20, 5))], None), [np.ones((10, 20))]).steps
    assert (product.family, product.elements) == ("contraction", 2 * 10 * 20 * 5)


def test_an_outline_of_a_function_that_needs_numbers_comes_from_the_tape():
    def f(x):
        return [pb.sin(x) * x if pb.sum(x) > 0 else x], None

    assert [step.family for step in sketch_function(f, [np.ones(3)]).steps] == ["elementwise", "elementwise"]


def test_plans_are_remembered_for_a_function_and_its_specs():
    calls = []

    def f(x):
        calls.append(x)
        return pb.sin(x)

    jacobian(f)(np.ones(3))
    assert len(calls) == 2  # once to plan, once forward
    jacobian(f)(np.zeros(3))
    assert len(calls) == 3
    jacobian(f)(np.ones(4))
    assert len(calls) == 5


def test_plans_do_not_keep_the_function_alive():
    def f(x):
        return pb.sin(x)

    jacobian(f)(np.ones(3))
    before = len(schedule_module._plans)
    del f
    assert len(schedule_module._plans) == before - 1


def test_one_input_needs_no_plan():
    calls = []
    jacobian(lambda x: calls.append(x) or pb.sin(x))(np.ones(1))
    hessian(lambda x: calls.append(x) or pb.sin(x))(1.0)
    assert len(calls) == 2


def test_memory_budgets_are_read():
    assert parse_memory_budget(None, "jacobian") is None
    assert parse_memory_budget(1234, "jacobian") == 1234
    assert parse_memory_budget("512 MiB", "jacobian") == 512 * 2**20
    assert parse_memory_budget("1 GB", "jacobian") == 10**9
    assert parse_memory_budget(" 1.5kib ", "jacobian") == 1536
    assert parse_memory_budget("7 B", "jacobian") == 7


@pytest.mark.parametrize("budget", ["lots", "5", "-1 GB", "1 iB", "1e3 MB", 0, -5, 1.5, True, [1], "0 B"])
def test_memory_budgets_that_make_no_sense(budget):
    for derivative in (jacfwd, jacrev, jacobian, hessian):
        with pytest.raises(ArgumentError, match=f"{derivative.__name__}: memory_budget"):
            derivative(pb.sin, memory_budget=budget)


@pytest.mark.parametrize("mode", JACOBIANS)
def test_a_budget_bounds_the_directions_at_once(mode):
    x = np.ones(200)
    free = plan_of(lambda v: pb.sin(v) * v, x, mode=mode)
    assert (free.choice.chunks, free.choice.chunk) == (1, 200)
    tight = plan_of(lambda v: pb.sin(v) * v, x, mode=mode, budget=free.choice.nbytes // 4)
    assert tight.choice.chunks in (4, 5)
    assert tight.choice.chunk * tight.choice.chunks >= 200
    assert tight.choice.nbytes <= tight.budget
    assert plan_of(lambda v: pb.sin(v) * v, x, mode=mode, budget=1).choice.chunk == 1


def test_f_runs_once_for_each_chunk_forward_and_once_in_reverse():
    calls = []

    def f(x):
        calls.append(x)
        return pb.sin(x) * x

    x = np.ones(64)
    chunks = plan_of(f, x, mode="forward", budget=8192).choice.chunks
    assert chunks > 1
    calls.clear()
    jacfwd(f, memory_budget=8192)(x)
    assert len(calls) == 1 + chunks
    calls.clear()
    jacrev(f, memory_budget=8192)(x)
    assert len(calls) == 2


def peak_of(step):
    """The most bytes alive while a step runs, beside its answer; what is made once and kept is made before."""
    for _ in range(4):  # plans of calls are made when they are seen again
        step()
    tracemalloc.start()
    try:
        answer = step()
        return tracemalloc.get_traced_memory()[1] - getattr(answer, "nbytes", 0)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("mode", JACOBIANS)
def test_memory_stays_near_the_budget(mode):
    """What the directions hold beside f itself: near the budget, and far below what all of them at once would take."""
    weights = np.random.default_rng(0).normal(size=(256, 64))

    def f(x):
        first = pb.tanh(weights @ x)
        second = pb.sin(first) * first
        return weights.T[:32] @ (second * 2.0)

    x, budget = np.ones(64), 40_000
    f_itself = peak_of(lambda: vjp(f, x) if mode == "reverse" else f(x))
    free = peak_of(lambda: jacobian(f, mode=mode)(x)) - f_itself
    tight = peak_of(lambda: jacobian(f, mode=mode, memory_budget=budget)(x)) - f_itself
    copied = 32 * 64 * 8  # the chunks are joined at the end
    assert tight < 2 * budget + copied
    assert tight < free / 2


def test_explain_prints_the_plan(capsys):
    jacobian(lambda x: pb.broadcast_to(pb.sin(x), (250, 2)), explain=True)(np.ones(2))
    text = capsys.readouterr().out
    assert text.startswith("jacobian: 2 inputs, 500 outputs, 2 ops, memory budget none\n")
    assert "\n* forward " in text
    assert "\n  reverse " in text
    assert "1 chunk of 2" in text
    assert text.endswith("chosen: forward (the least estimated time)\n")


def test_explain_says_what_was_asked_for(capsys):
    found = hessian(rosenbrock, mode="reverse-over-reverse", memory_budget="1 kB", explain=True)(np.ones(4))
    assert found.shape == (4, 4)
    text = capsys.readouterr().out
    assert "memory budget 1000 B" in text
    assert "\n* reverse-over-reverse" in text
    assert all(f" {mode} " in text for mode in HESSIANS)
    assert text.endswith("chosen: reverse-over-reverse (as asked)\n")


def test_names_and_docs_are_kept():
    assert jacobian(rosenbrock).__name__ == hessian(rosenbrock).__name__ == "rosenbrock"


def test_planning_leaves_the_users_tensors_as_they_were():
    mean = pb.tensor([0.0, 0.0])

    def f(x):
        nonlocal mean
        with pb.no_grad():
            mean *= 0.5
        return pb.outer(x, x)

    pb.jacobian(f, mode="auto")(np.array([1.0, 2.0]))
    assert isinstance(mean.value, np.ndarray)
    seen = pb.tensor([1.0, 1.0])

    def g(x):
        nonlocal seen
        seen *= pb.stop_gradient(x)
        return pb.outer(x, x)

    pb.jacobian(g, mode="reverse")(np.array([1.0, 2.0]))
    assert seen.tolist() == [1.0, 2.0]
    seen = pb.tensor([1.0, 1.0])
    pb.jacobian(g, mode="forward")(np.array([1.0, 2.0]))  # forward mode leaves a dual there, which says so
    with pytest.raises(pb.errors.LeakError, match="jvp"):
        seen + 1.0
