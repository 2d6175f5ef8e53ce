"""Call plans against the general path: the same bits, gradients of every order, lines, hooks, modes and errors.

Saved-value hooks force the general path; a plan exists from the third call on.
"""

from __future__ import annotations

import fake_cupy
import numpy as np
import pytest
from records import Case, cases, drop_free_phases, name

import pullback as pb
from pullback.arrays.node import PlannedCall
from pullback.ops import plans
from pullback.ops.dispatch import apply
from pullback.ops.index import indexing
from pullback.ops.op import PURE
from pullback.tape import sweep

SMOOTH = [case for case in cases(lambda op: op.differentiable) if case.moving]


@pytest.fixture(autouse=True)
def steps_at_once(monkeypatch):
    monkeypatch.setattr(sweep, "_VISITS_BEFORE_STEP", 0)


def general_path():
    return pb.saved_tensors_hooks(lambda t: t, lambda t: t)


def is_planned(x):
    return type(x.node.call) is PlannedCall


def outs_of(result):
    return result if isinstance(result, tuple) else (result,)


def run_case(case: Case, tracked: list[int], second: bool = False, place=lambda a: a):
    """All results, the gradients of each in the tracked arguments, and with `second` those of their squares' sum."""
    given = [place(a) if isinstance(a, np.ndarray) else a for a in case.args]
    args = [pb.tensor(a, requires_grad=i in tracked) if i in case.moving else a for i, a in enumerate(given)]
    outs = outs_of(drop_free_phases(case.op, apply(case.op, *args, **case.static)))
    xs = [args[i] for i in tracked]
    found = [out.detach() for out in outs]
    assert [(out.shape, out.dtype) for out in outs] == [(out.value.shape, out.value.dtype) for out in outs]
    for out in outs:
        bar = place(np.random.default_rng(3).normal(size=out.shape).astype(out.dtype))
        first = pb.gradients(out, xs, bar, retain_graph=True, allow_unused=True, create_graph=second)
        found += first
        live = [g for g in first if g is not None and g.requires_grad]
        if second and live:
            found += pb.gradients(sum(pb.sum(g * g) for g in live), xs, allow_unused=True)
    return outs, [None if g is None else g.detach().numpy() for g in found]


def assert_same(found, wanted):
    for a, b in zip(found, wanted, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            assert (a.shape, a.dtype) == (b.shape, b.dtype)
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("case", SMOOTH, ids=name)
def test_planned_call_is_the_general_one(case: Case):
    case = case.cast("float32" if case.number % 2 else "float64")
    for tracked in {tuple(case.moving), tuple(case.moving[:1]), tuple(case.moving[-1:])}:
        with general_path():
            _, wanted = run_case(case, list(tracked))
        for _ in range(2):
            run_case(case, list(tracked))
        outs, found = run_case(case, list(tracked))
        assert_same(found, wanted)
        if len(outs) == 1 and case.op.effects is PURE and outs[0].spec.number:
            assert is_planned(outs[0])


@pytest.mark.parametrize("case", SMOOTH, ids=name)
def test_planned_call_on_a_gpu_is_the_general_one(case: Case):
    case = case.cast("float32" if case.number % 2 else "float64")
    with fake_cupy.installed() as cupy:
        try:
            with general_path():
                _, wanted = run_case(case, case.moving, place=cupy.asarray)
        except (pb.errors.DeviceError, pb.errors.ArgumentError) as error:
            pytest.skip(f"not on a GPU: {error}")
        for _ in range(3):
            outs, found = run_case(case, case.moving, place=cupy.asarray)
        assert_same(found, wanted)
        assert {out.device for out in outs} == {"cuda:0"}


SECOND = [case for case in SMOOTH if case.op.family in ("linear", "contraction", "reduction", "elementwise")]


@pytest.mark.parametrize("case", SECOND[::3], ids=name)
def test_second_order_on_planned_nodes_is_that_of_the_general_path(case: Case):
    with general_path():
        _, wanted = run_case(case, case.moving, second=True)
    for _ in range(2):
        run_case(case, case.moving)
    _, found = run_case(case, case.moving, second=True)
    assert_same(found, wanted)


def leaf(*shape, seed=0):
    return pb.tensor(np.random.default_rng(seed).normal(size=shape), requires_grad=True)


#: Functions of two matrices of 4 by 4, each of which remembers what it came to.
CALLS = {
    "matmul": lambda x, y: x @ y,
    "bias": lambda x, y: x + y[0],
    "columns": lambda x, y: x * pb.reshape(y[:, 1], (4, 1)),
    "sum": lambda x, y: x.sum(0),
    "mean": lambda x, y: pb.mean(x * y, axis=1),
    "max": lambda x, y: pb.max(x, axis=1, keepdims=True),
    "prod": lambda x, y: pb.prod(x, axis=(0, 1)),
    "reshape": lambda x, y: x.reshape(2, -1),
    "transpose": lambda x, y: x.T @ y,
    "slice": lambda x, y: x[1:3, ::2],
    "row": lambda x, y: x[-1],
    "places": lambda x, y: x[np.array([0, 0, 3])],
    "concat": lambda x, y: pb.concat([x, y, x], axis=1),
    "squeeze": lambda x, y: pb.squeeze(pb.expand_dims(x, 1), axis=1),
    "broadcast": lambda x, y: pb.broadcast_to(x[0], (3, 4)),
    "where": lambda x, y: pb.where(x > 0, x, 0.0) * y,
    "relu": lambda x, y: pb.relu(x) ** 2,
    "number": lambda x, y: 2.0 - x / 3,
}


@pytest.fixture(params=CALLS)
def planned(request):
    """A call that has its plans already, and backward steps."""
    f = CALLS[request.param]
    for _ in range(4):
        pb.sum(f(leaf(4, 4), leaf(4, 4, seed=1))).backward()
    return f


def gradients_of(f, before=lambda out: None):
    x, y = leaf(4, 4), leaf(4, 4, seed=1)
    out = f(x, y)
    before(out)
    pb.sum(out * out).backward()
    return [out.detach().numpy(), *(None if t.grad is None else t.grad.numpy() for t in (x, y))]


def test_gradients_are_those_of_the_general_path(planned):
    with general_path():
        wanted = gradients_of(planned)
    assert_same(gradients_of(planned), wanted)


def test_hook_on_a_planned_node_sees_and_changes_its_cotangent(planned):
    seen = []

    def hook(gradient):
        seen.append(gradient.numpy())
        return gradient * 2

    found = gradients_of(planned, lambda out: out.register_hook(hook))
    value, *shares = gradients_of(planned)
    np.testing.assert_array_equal(seen[0], 2 * value)
    assert_same(found, [value, *(None if g is None else 2 * g for g in shares)])


def test_node_says_the_users_line(planned):
    node = planned(leaf(4, 4), leaf(4, 4, seed=1)).node
    assert node.where().removeprefix("tests/").startswith("test_plans.py")
    assert "lambda x, y" in node.where()


@pytest.mark.parametrize("mode", [pb.no_grad, pb.inference_mode])
def test_planned_call_records_nothing_where_nothing_is_to_be_recorded(planned, mode):
    x, y = leaf(4, 4), leaf(4, 4, seed=1)
    wanted = planned(x, y).detach().numpy()
    for _ in range(4):  # chains of results of the mode have plans of their own
        with mode():
            out = planned(x, y)
            again = planned(pb.tensor(x.detach()), pb.tensor(y.detach()))
        for found in (out, again):
            assert not found.requires_grad
            assert found.is_inference == (mode is pb.inference_mode)
            np.testing.assert_array_equal(found.numpy(), wanted)


def test_inference_tensor_is_not_saved_by_a_planned_call():
    x = leaf(4, 4)
    with pb.inference_mode():
        y = pb.tensor(x.detach()) * 1.0
    for _ in range(4):
        assert (x + y[0]).requires_grad
        with pytest.raises(pb.errors.GraphError, match="inference_mode"):
            x @ y


def test_results_never_share_memory_with_what_the_pass_adds_to():
    """Views of one cotangent go to several parents, which then get more shares."""
    x = leaf(4, 4)
    wanted = None
    for _ in range(5):
        x.grad = None
        flat = x.reshape(16)
        rows = [flat.reshape(4, 4)[i] for i in range(4)]
        total = sum(pb.sum(r * r) for r in rows) + pb.sum(x.T * x) + pb.sum(flat * 2.0) + pb.sum(x @ x.T)
        total.backward()
        wanted = x.grad.numpy().copy() if wanted is None else wanted
        np.testing.assert_array_equal(x.grad.numpy(), wanted)
    a = x.detach().numpy()
    np.testing.assert_allclose(wanted, 2 * a + 2 * a.T + 2.0 + 2 * a.sum(0), rtol=1e-12)


def test_some_leaves_alone_take_part(planned):
    x, y = leaf(4, 4), leaf(4, 4, seed=1)
    for wanted in ([x], [y], [x, y]):
        out = pb.sum(planned(x, y) ** 2)
        found = pb.gradients(out, wanted, retain_graph=True, allow_unused=True)
        everything = pb.gradients(out, [x, y], allow_unused=True)
        assert_same(
            [None if g is None else g.numpy() for g in found],
            [
                None if g is None else g.numpy()
                for t, g in zip([x, y], everything, strict=True)
                if any(t is w for w in wanted)
            ],
        )


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        (lambda x: x.reshape((2, 8)), lambda x: x.reshape((2.0, 8))),
        (lambda x: pb.sum(x, axis=1), lambda x: pb.sum(x, axis=1.0)),
        (lambda x: x[1:3], lambda x: x[1.0:3]),
        (lambda x: x[1], lambda x: x[1.0]),
        (lambda x: pb.squeeze(x[None], axis=0), lambda x: pb.squeeze(x[None], axis=0.0)),
        (lambda x: x @ x, lambda x: x @ x[:3]),
        (lambda x: x + x[0], lambda x: x + x[0, :3]),
        (lambda x: pb.concat([x, x]), lambda x: pb.concat([x, x[:, :2]])),
    ],
)
def test_an_equal_parameter_that_is_not_valid_still_raises(right, wrong):
    x = leaf(4, 4)
    for _ in range(4):
        right(x)
    for _ in range(3):
        with pytest.raises(pb.errors.PullbackError):
            wrong(x)


def test_bare_arrays_written_to_later_are_not_what_was_saved():
    x, factor = leaf(4), np.arange(12.0).reshape(3, 4)
    for _ in range(4):
        bare = factor.copy()
        out = pb.sum(pb.multiply(x, bare))
        bare[:] = 0
        (g,) = pb.gradients(out, x)
        np.testing.assert_array_equal(g.numpy(), factor.sum(0))


def test_freed_graph_says_so_on_a_planned_node(planned):
    out = pb.sum(planned(leaf(4, 4), leaf(4, 4, seed=1)) ** 2)
    out.backward()
    with pytest.raises(pb.errors.GraphError, match="freed"):
        out.backward()


def test_slice_of_a_planned_call_is_still_a_view_to_write_to():
    x = leaf(4, 4)
    for _ in range(4):
        rows = x[1:3]
    with pytest.raises(pb.errors.GraphError, match="slice"), pb.no_grad():
        rows -= 1.0


def test_no_op_under_no_grad_leaves_no_plan_that_cuts_the_graph():
    x = leaf(4, 4)
    with pb.no_grad():
        for _ in range(4):
            x.reshape(4, 4), pb.broadcast_to(x, (4, 4)), pb.squeeze(x), x.copy()
    for f in (lambda: x.reshape(4, 4), lambda: pb.broadcast_to(x, (4, 4)), lambda: pb.squeeze(x), lambda: x.copy()):
        (g,) = pb.gradients(pb.sum(f()), x)
        np.testing.assert_array_equal(g.numpy(), np.ones((4, 4)))


def test_tables_of_plans_stay_bounded(monkeypatch):
    monkeypatch.setattr(plans, "_MOST_PLANS", 8)
    x = leaf(40)
    for _ in range(3):
        for i in range(40):
            assert x[i].item() == x.detach().numpy()[i]
    assert all(len(table) <= 8 or table is not indexing._item_plans for table in plans._tables)
