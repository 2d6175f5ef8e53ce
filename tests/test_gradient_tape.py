"""The explicit tape: what TensorFlow's documentation says of one, other front ends around it, what it leaves behind."""

import gc
import re
import threading
import weakref

import numpy as np
import pytest
import records

import pullback as pb
from pullback import GradientTape, errors, grad, jvp, vjp, vmap


def numbers(x):
    return np.asarray(x.detach() if isinstance(x, pb.Tensor) else x)


def close(found, wanted, **tolerance):
    np.testing.assert_allclose(numbers(found), numbers(wanted), **({"rtol": 1e-12} | tolerance))


def test_the_first_example():
    tape = GradientTape()
    x, w = tape.variable([2.0, 3.0]), tape.variable([1.0, 0.5])
    gx, gw = tape.gradient(pb.sum(x * w), [x, w])
    assert gx.tolist() == [1.0, 0.5]
    assert gw.tolist() == [2.0, 3.0]
    assert not gx.requires_grad
    assert x.grad is None


def test_nested_tapes_give_the_second_derivative():
    with GradientTape() as outer:
        x = outer.variable(2.0)
        with GradientTape() as inner:
            y = x**3
        first = inner.gradient(y, x)
    assert (first.item(), outer.gradient(first, x).item()) == (12.0, 12.0)


def test_both_tapes_may_watch():
    x = pb.tensor(2.0)
    with GradientTape() as outer:
        outer.watch(x)
        with GradientTape() as inner:
            inner.watch(x)
            y = x**3
        first = inner.gradient(y, x)
    assert (first.item(), outer.gradient(first, x).item()) == (12.0, 12.0)
    assert x.node is None


def test_three_nested_tapes_give_the_third_derivative():
    x = pb.tensor(np.array([0.3, -1.2]))
    with GradientTape() as one:
        one.watch(x)
        with GradientTape() as two:
            two.watch(x)
            with GradientTape() as three:
                three.watch(x)
                y = pb.sin(x) * x
            first = three.gradient(y, x)
        second = two.gradient(first, x)
    third = one.gradient(second, x)
    v = numbers(x)
    close(first, np.sin(v) + v * np.cos(v))
    close(second, 2 * np.cos(v) - v * np.sin(v))
    close(third, -3 * np.sin(v) - v * np.cos(v))


def test_a_persistent_tape_differentiates_its_own_answer_inside_the_block():
    with GradientTape(persistent=True) as tape:
        x = tape.variable(2.0)
        y = x**4
        first = tape.gradient(y, x)
        second = tape.gradient(first, x)
    third = tape.gradient(second, x)
    assert [d.item() for d in (first, second, third)] == [32.0, 48.0, 48.0]


def test_second_derivative_of_a_mixed_function():
    with GradientTape() as outer:
        x, y = outer.variable(2.0), outer.variable(5.0)
        with GradientTape() as inner:
            z = x * y
        by_x = inner.gradient(z, x)
    assert outer.gradient(by_x, [x, y], unconnected="zero")[1].item() == 1.0


# targets, sources, weights


def test_answers_have_the_structure_of_the_sources():
    tape = GradientTape()
    p = {"w": [tape.variable([1.0, 2.0]), tape.variable(3.0)], "b": tape.variable(4.0)}
    found = tape.gradient(pb.sum(p["w"][0] * p["w"][1]) + p["b"] ** 2, p)
    assert found["w"][0].tolist() == [3.0, 3.0]
    assert found["w"][1].item() == 3.0
    assert found["b"].item() == 8.0


def test_several_targets_add_up():
    tape = GradientTape()
    x = tape.variable(2.0)
    assert tape.gradient({"a": x**2, "b": [1 / x]}, x).item() == 3.75


def test_the_same_target_twice_counts_twice():
    tape = GradientTape()
    x = tape.variable(3.0)
    y = x * x
    assert tape.gradient([y, y], x).item() == 12.0


def test_a_target_of_many_elements_is_summed():
    tape = GradientTape()
    x = tape.variable(2.0)
    assert tape.gradient(x * np.array([3.0, 4.0]), x).item() == 7.0


def test_output_gradients_weigh_the_elements():
    tape = GradientTape()
    x = tape.variable([1.0, 2.0])
    assert tape.gradient([x * x, x], x, output_gradients=[np.array([1.0, 10.0]), np.ones(2)]).tolist() == [3.0, 41.0]


def test_output_gradients_that_do_not_fit():
    tape = GradientTape()
    x = tape.variable([1.0, 2.0])
    with pytest.raises(errors.ShapeError):
        tape.gradient(x * x, x, output_gradients=np.ones(3))
    with pytest.raises(errors.ArgumentError, match="output_gradients"):
        tape.gradient([x * x], x, output_gradients=np.ones(2))
    assert tape.gradient(x * x, x, output_gradients=np.ones(2)).tolist() == [2.0, 4.0], "an error consumes nothing"


def test_output_gradients_can_be_differentiated():
    outer = GradientTape()
    weight = outer.variable([1.0, 2.0])
    inner = GradientTape()
    x = inner.variable([3.0, 4.0])
    found = inner.gradient(x * x, x, output_gradients=weight)
    assert outer.gradient(found, weight).tolist() == [6.0, 8.0]


def test_a_source_may_be_intermediate_or_the_target_itself():
    tape = GradientTape(persistent=True)
    x = tape.variable([1.0, 2.0])
    y = x * 3.0
    z = pb.sum(y * y)
    assert tape.gradient(z, y).tolist() == [6.0, 12.0]
    assert tape.gradient(z, z).item() == 1.0
    assert tape.gradient(x, x).tolist() == [1.0, 1.0]
    assert [g.tolist() for g in tape.gradient(z, [x, y])] == [[18.0, 36.0], [6.0, 12.0]]


def test_a_source_listed_twice_is_answered_twice_in_memory_of_its_own():
    tape = GradientTape()
    x = tape.variable([1.0, 2.0])
    a, b = tape.gradient(x * x, [x, x])
    a[0] = 100.0
    assert b.tolist() == [2.0, 4.0]


def test_no_sources_no_answers():
    tape = GradientTape()
    assert tape.gradient(tape.variable(1.0) * 2.0, []) == []


def test_unconnected_sources():
    tape = GradientTape(persistent=True)
    x, y = tape.variable([1.0, 2.0]), tape.variable(np.ones((2, 2), np.float32))
    z = pb.sum(x)
    assert tape.gradient(z, [x, y])[1] is None
    found = tape.gradient(z, y, unconnected="zero")
    assert (found.shape, found.dtype, numbers(found).any()) == ((2, 2), np.float32, False)
    assert tape.jacobian(x, y) is None
    assert tape.jacobian(x, y, unconnected="zero").shape == (2, 2, 2)
    constant = pb.tensor(1.0) * 2.0
    assert tape.gradient(constant, x) is None
    assert tape.gradient([constant, z], x).tolist() == [1.0, 1.0]
    with pytest.raises(errors.ArgumentError, match="'none' or 'zero'"):
        tape.gradient(z, x, unconnected="zeros")


def test_dtypes_follow_the_sources():
    tape = GradientTape()
    a, b = tape.variable([1.0, 2.0], dtype=np.float32), tape.variable([3.0, 4.0])
    ga, gb = tape.gradient(a * b, [a, b])
    assert (ga.dtype, gb.dtype) == (np.float32, np.float64)
    assert tape.variable([1, 2], dtype=pb.float16).dtype == np.float16


def test_integers_are_refused():
    tape = GradientTape()
    with pytest.raises(errors.DtypeError, match="int64"):
        tape.variable([1, 2])
    x = tape.variable([1.0, 2.0])
    with pytest.raises(errors.DtypeError, match=r"target\['a'\] is int64"):
        tape.gradient({"a": pb.argmax(x)}, x)
    with pytest.raises(errors.DtypeError, match="watch: x is int64"):
        tape.watch(pb.tensor([1, 2]))
    with pytest.raises(errors.DtypeError, match="bool"):
        tape.gradient(x > 0, x)


def test_complex_sources_and_targets():
    tape = GradientTape(persistent=True)
    z = tape.variable([1.0 + 2.0j, -0.5j])
    wanted = pb.tensor([1.0 + 2.0j, -0.5j], requires_grad=True)
    pb.sum(pb.abs(wanted) ** 2).backward()
    close(tape.gradient(pb.abs(z) ** 2, z), wanted.grad)
    with pytest.raises(errors.DtypeError, match="output_gradients"):
        tape.gradient(z * z, z)
    close(tape.gradient(z * z, z, output_gradients=np.ones(2, complex)), 2 * np.conj(numbers(z)))
    with pytest.raises(errors.DtypeError, match=r"pb\.real"):
        tape.jacobian(z * z, z)
    with pytest.raises(errors.DtypeError, match="hessian"):
        tape.hessian(pb.abs(z), z)


def test_empty_and_scalar_arrays():
    tape = GradientTape(persistent=True)
    x, s = tape.variable(np.ones((0, 3))), tape.variable(2.0)
    assert tape.gradient(x * s, [x, s])[0].shape == (0, 3)
    assert tape.gradient(x * s, s).item() == 0.0
    assert tape.jacobian(x * s, s).shape == (0, 3)
    assert tape.jacobian(s * s, x, unconnected="zero").shape == (0, 3)
    assert tape.jacobian(s * s, s).item() == 4.0
    assert tape.hessian(s**3, s).item() == 12.0


def test_nan_and_infinity_come_through():
    tape = GradientTape()
    x = tape.variable([0.0, np.inf, np.nan])
    found = numbers(tape.gradient(pb.sqrt(x), x))
    assert found[0] == np.inf
    assert found[1] == 0.0
    assert np.isnan(found[2])


# Jacobians and Hessians


def network(x, w):
    return pb.tanh(x @ w) * pb.sum(x) + pb.max(w, axis=0)


def by_rows(f, x):
    """A Jacobian by one pull after the other."""
    value, pull = vjp(f, x)
    rows = [pull(row.reshape(value.shape))[0] for row in np.eye(value.size)]
    return np.stack(rows).reshape(value.shape + x.shape)


def test_jacobian_equals_one_pull_after_the_other():
    rng = np.random.default_rng(0)
    x0, w0 = rng.normal(size=(2, 3)), rng.normal(size=(3, 4))
    tape = GradientTape()
    x, w = tape.variable(x0), tape.variable(w0)
    found = tape.jacobian(network(x, w), {"x": x, "w": w})
    assert found["x"].shape == (2, 4, 2, 3)
    close(found["x"], by_rows(lambda x: network(x, w0), x0))
    close(found["w"], by_rows(lambda w: network(x0, w), w0))


@pytest.mark.parametrize("chunk_size", [1, 3, 8, 100])
def test_chunks_of_rows_change_nothing(chunk_size):
    rng = np.random.default_rng(1)
    tape = GradientTape(persistent=True)
    x, w = tape.variable(rng.normal(size=(2, 3))), tape.variable(rng.normal(size=(3, 4)))
    y = network(x, w)
    close(tape.jacobian(y, w, chunk_size=chunk_size), tape.jacobian(y, w))
    close(tape.hessian(y, x, chunk_size=chunk_size), tape.hessian(y, x))


@pytest.mark.parametrize("case", records.cases(lambda op: op.differentiable), ids=records.name)
def test_jacobians_and_hessians_of_every_op(case):
    """A batch of rows goes back through each op as one row after the other does, to the second order."""
    if not case.moving:
        pytest.skip("no floating-point argument")
    tape = GradientTape(persistent=True)
    floats = [tape.variable(a) for a in case.floats]
    out = case.function(*floats)
    out = out[0] if isinstance(out, tuple) else out
    if out.dtype.kind != "f":
        pytest.skip("no real result")
    rows = [tape.gradient(out, floats, e.reshape(out.shape), "zero") for e in np.eye(out.size)]
    for i, found in enumerate(tape.jacobian(out, floats, "zero")):
        close(found, np.reshape([numbers(row[i]) for row in rows], found.shape), atol=1e-12)
    total = case.scalar(*floats)
    slopes = tape.gradient(total, floats, unconnected="zero")
    for g, found in zip(slopes, tape.hessian(total, floats), strict=True):
        rows = [tape.gradient(g, floats, e.reshape(g.shape), "zero") for e in np.eye(g.size)]
        for j, block in enumerate(found):
            close(block, np.reshape([numbers(row[j]) for row in rows], block.shape), atol=1e-12)


def test_chunk_size_must_be_positive():
    tape = GradientTape()
    x = tape.variable([1.0])
    with pytest.raises(errors.ArgumentError, match="chunk_size"):
        tape.jacobian(x * x, x, chunk_size=0)


def test_jacobian_takes_one_pass_for_all_rows():
    tape = GradientTape()
    x = tape.variable(np.arange(1.0, 51.0))
    y = pb.sin(x) * x
    passes = []
    y.node.register_pre_hook(lambda bar: passes.append(bar.shape))
    assert tape.jacobian(y, x).shape == (50, 50)
    assert passes == [(50,)]


def test_known_jacobians():
    tape = GradientTape(persistent=True)
    x = tape.variable([2.0, 3.0])
    assert tape.jacobian(pb.stack([x[0] ** 2, x[0] * x[1]]), x).tolist() == [[4.0, 0.0], [3.0, 2.0]]
    assert tape.jacobian(x, x).tolist() == np.eye(2).tolist()
    assert tape.jacobian(3.0 * x, x).tolist() == (3.0 * np.eye(2)).tolist()


def test_a_tree_of_targets_has_a_tree_of_jacobians():
    tape = GradientTape()
    x = tape.variable([2.0, 3.0])
    y = x * x
    found = tape.jacobian({"sum": pb.sum(y), "all": [y, y]}, [x])
    assert found["sum"][0].tolist() == [4.0, 6.0]
    assert found["all"][0][0].tolist() == found["all"][1][0].tolist() == [[4.0, 0.0], [0.0, 6.0]]


def test_batch_jacobian_is_the_diagonal_of_the_jacobian():
    rng = np.random.default_rng(2)
    tape = GradientTape(persistent=True)
    x, w = tape.variable(rng.normal(size=(5, 3))), pb.tensor(rng.normal(size=(3, 4)))
    y = pb.tanh(x @ w).reshape(5, 2, 2)
    found = tape.batch_jacobian(y, x)
    assert found.shape == (5, 2, 2, 3)
    whole = numbers(tape.jacobian(y, x))
    close(found, np.stack([whole[i, :, :, i] for i in range(5)]))
    close(tape.batch_jacobian(y, x, chunk_size=3), found)
    close(tape.batch_jacobian(pb.sum(y, axis=(1, 2)), x), np.stack([whole[i, :, :, i].sum((0, 1)) for i in range(5)]))


def test_batch_jacobian_wants_a_common_first_axis():
    tape = GradientTape(persistent=True)
    x = tape.variable(np.ones((5, 3)))
    with pytest.raises(errors.ShapeError, match="first axes"):
        tape.batch_jacobian(pb.sum(x, axis=0), x)
    with pytest.raises(errors.ShapeError, match="first axes"):
        tape.batch_jacobian(pb.sum(x), x)
    with pytest.raises(errors.ArgumentError, match="one target"):
        tape.batch_jacobian([x, x], x)
    y = tape.variable(np.ones((5, 2)))
    assert tape.batch_jacobian(x, y) is None
    assert tape.batch_jacobian(x, y, unconnected="zero").shape == (5, 3, 2)


def test_hessian_of_known_functions():
    tape = GradientTape(persistent=True)
    x = tape.variable([2.0, 3.0])
    assert tape.hessian(pb.sum(x * x), x).tolist() == [[2.0, 0.0], [0.0, 2.0]]
    assert tape.hessian(x[0] * x[1], x).tolist() == [[0.0, 1.0], [1.0, 0.0]]
    assert tape.hessian(pb.sum(x), x).tolist() == [[0.0, 0.0], [0.0, 0.0]]
    t = tape.variable([2.0])
    assert tape.hessian(t**3, t).tolist() == [[12.0]]


def test_hessian_of_a_tree_equals_differences_of_gradients():
    rng = np.random.default_rng(3)
    point = {"x": rng.normal(size=(2, 3)), "w": rng.normal(size=(3, 2)), "unused": np.ones(2)}

    def f(p):
        return pb.sum(network(p["x"], p["w"]) ** 2)

    tape = GradientTape()
    p = {name: tape.variable(value) for name, value in point.items()}
    found = tape.hessian(f(p), p)
    for i in point:
        for j, value in point.items():
            numeric = np.zeros(point[i].shape + value.shape)
            for at in np.ndindex(value.shape):
                step = np.zeros(value.shape)
                step[at] = 1e-6
                more, less = (grad(f)({**point, j: value + s})[i] for s in (step, -step))
                numeric[(..., *at)] = (more - less) / 2e-6
            close(found[i][j], numeric, atol=2e-7, rtol=1e-6)


def test_a_hessian_can_be_differentiated_by_an_outer_tape():
    outer = GradientTape()
    x = outer.variable([1.0, 2.0])
    inner = GradientTape()
    inner.watch(x)
    hessian = inner.hessian(pb.sum(x**4), x)
    assert outer.gradient(hessian, x).tolist() == [24.0, 48.0]


def test_a_jacobian_can_be_differentiated_by_an_outer_tape():
    with GradientTape() as outer:
        x = outer.variable([1.0, 2.0])
        with GradientTape() as inner:
            inner.watch(x)
            y = pb.stack([x[0] * x[0] * x[1], x[1] ** 3])
        jacobian = inner.jacobian(y, x)
    assert outer.jacobian(jacobian, x).tolist() == [[[4.0, 2.0], [2.0, 0.0]], [[0.0, 0.0], [0.0, 12.0]]]


# the window of the block


def test_only_what_runs_inside_the_block_counts():
    x = pb.tensor(3.0)
    with GradientTape() as tape:
        tape.watch(x)
        y = x * x
    later = x * y
    assert x.node is None
    assert tape.gradient(later, x).item() == 18.0, "the factor x was used after the block, so it is a constant"


def test_what_was_computed_before_watching_does_not_count():
    x = pb.tensor(3.0, requires_grad=True)
    before = x * x
    with GradientTape() as tape:
        tape.watch(x)
        y = before * x
    assert tape.gradient(y, x).item() == 9.0
    y.backward()
    assert x.grad.item() == 27.0, "the engine's own graph is whole"


def test_a_leaf_need_not_be_watched():
    x = pb.tensor(3.0, requires_grad=True)
    with GradientTape() as tape:
        y = x * x
    found = tape.gradient(y, x)
    assert found.item() == 6.0
    assert x.is_leaf
    assert x.grad is None


def test_watching_restores_a_leaf_of_the_user():
    x = pb.tensor(3.0, requires_grad=True)
    leaf = x.node
    with GradientTape() as tape:
        tape.watch(x)
        y = x * x
        assert x.node is not leaf
    assert x.node is leaf
    assert tape.gradient(y, x).item() == 6.0
    y.backward()
    assert x.grad.item() == 6.0


def test_an_update_under_no_grad_keeps_a_watched_leaf_of_the_user():
    x = pb.tensor(3.0, requires_grad=True)
    leaf = x.node
    tape = GradientTape(persistent=True)
    tape.watch(x)
    y = x * x
    with pb.no_grad():
        x -= 1.0
    with pytest.raises(errors.GraphError, match="new value"):
        tape.gradient(y, x)
    tape.watch(x)
    assert tape.gradient(x * x, x).item() == 4.0
    tape.reset()
    assert x.node is leaf
    assert x.item() == 2.0


def test_a_watched_tensor_may_be_assigned_to():
    x = pb.tensor([1.0, 2.0])
    with GradientTape(persistent=True) as tape:
        tape.watch(x)
        start = x * 1.0
        x *= 3.0
        y = x * x
    assert tape.gradient(y, x).tolist() == [6.0, 12.0], "x is what it was last"
    assert tape.gradient(y, start) is None


def test_an_exception_in_the_block_restores_what_was_watched():
    plain, leaf = pb.tensor(1.0), pb.tensor(1.0, requires_grad=True)
    node = leaf.node

    def failing():
        with GradientTape() as outer:
            outer.watch([plain, leaf])
            with GradientTape() as inner:
                inner.watch([plain, leaf])
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing()
    assert plain.node is None
    assert leaf.node is node
    with GradientTape() as tape:
        tape.watch(plain)
        y = plain * 2.0
    assert tape.gradient(y, plain).item() == 2.0


def test_tapes_may_end_in_any_order():
    x = pb.tensor(2.0)
    first, second, third = GradientTape(), GradientTape(), GradientTape()
    for tape in (first, second, third):
        tape.watch(x)
    y = x**3
    for tape in (second, first, third):
        tape.reset()
        assert (x.node is None) == (tape is third)
    assert y.requires_grad


def test_an_outer_tape_that_ends_first_still_has_its_answer():
    x = pb.tensor(2.0)
    outer, inner = GradientTape(), GradientTape()
    outer.watch(x)
    between = x * x
    inner.watch(x)
    y = between * x
    assert outer.gradient(y, x).item() == 12.0
    assert inner.gradient(y, x).item() == 4.0
    assert x.node is None


def test_watching_twice_changes_nothing():
    x = pb.tensor(2.0)
    tape = GradientTape()
    tape.watch(x)
    node = x.node
    tape.watch({"x": [x, x]})
    assert x.node is node
    assert tape.watched == (x,)


def test_watch_refuses_what_cannot_be_watched():
    tape = GradientTape()
    x = pb.tensor(1.0)
    with pytest.raises(errors.ArgumentError, match=r"x\[1\] is a ndarray.*\n.*tape\.variable"):
        tape.watch([x, np.ones(2)])
    assert x.node is None, "nothing is watched if anything cannot be"
    with pytest.raises(errors.ArgumentError, match="float"):
        tape.watch(1.0)


def test_sources_that_nobody_watched_are_an_error():
    tape = GradientTape()
    x = tape.variable(1.0)
    with pytest.raises(errors.GraphError, match=r"source\[1\].*never watched"):
        tape.gradient(x * 2.0, [x, pb.tensor(1.0)])
    with pytest.raises(errors.ArgumentError, match=r"ndarray.*\n.*tape\.variable"):
        tape.gradient(x * 2.0, np.ones(2))
    with pytest.raises(errors.GraphError, match="on no tape"):
        tape.gradient(np.float64(1.0), x)
    with pytest.raises(errors.ArgumentError, match="empty"):
        tape.gradient([], x)


def test_a_variable_of_something_recorded_is_refused():
    tape = GradientTape()
    x = tape.variable(1.0)
    with pytest.raises(errors.GraphError, match=r"tape\.watch"):
        tape.variable(x * 2.0)


def test_a_block_inside_itself_and_a_block_again():
    tape = GradientTape()
    x = pb.tensor(3.0)
    with tape:
        with pytest.raises(errors.GraphError, match="already"):
            tape.__enter__()
        tape.watch(x)
        y = x * x
    with pytest.raises(errors.GraphError, match="over"):
        tape.watch(x)
    assert tape.gradient(y, x).item() == 6.0
    with tape:
        tape.watch(x)
        y = x * x * x
    assert tape.gradient(y, x).item() == 27.0


# once or many times


def test_a_consumed_tape_says_so_and_where():
    tape = GradientTape()
    x = tape.variable(3.0)
    y = x * x
    tape.gradient(y, x)  # the earlier call
    for ask in (tape.gradient, tape.jacobian, tape.batch_jacobian, tape.hessian):
        with pytest.raises(errors.GraphError, match=r"(?s)consumed.*the earlier call.*persistent=True"):
            ask(y, x)
    with pytest.raises(errors.GraphError, match="consumed"):
        tape.watch(pb.tensor(1.0))


@pytest.mark.parametrize("ask", ["gradient", "jacobian", "hessian"])
def test_an_answer_releases_what_was_kept(ask):
    tape = GradientTape()
    x = tape.variable([1.0, 2.0])
    middle = pb.exp(x)
    y = pb.sum(middle * middle)
    getattr(tape, ask)(y, x)
    assert middle.node.kept is None
    assert len(tape) == 0


def test_a_persistent_tape_answers_again_and_again():
    with GradientTape(persistent=True) as tape:
        x = tape.variable([1.0, 2.0])
        y = x * x
        z = y * y
    assert [tape.gradient(z, x).tolist() for _ in range(3)] == [[4.0, 32.0]] * 3
    assert tape.gradient(y, x).tolist() == [2.0, 4.0]
    assert tape.jacobian(z, y).tolist() == [[2.0, 0.0], [0.0, 8.0]]
    assert not tape.gradient(z, x).requires_grad, "after the block nothing is recorded"


def test_a_reset_tape_records_anew():
    tape = GradientTape()
    x, w = tape.variable(3.0), pb.tensor(2.0)
    seen = []
    x.register_hook(lambda g: seen.append(g.item()))
    tape.watch(w)
    y = x * x * w
    assert len(tape) == 2
    tape.reset()
    assert len(tape) == 0
    assert w.node is None
    assert x.is_leaf
    assert tape.watched == (x,)
    assert tape.gradient(y, x) is None
    tape.reset()
    assert tape.gradient(x * 4.0, x).item() == 4.0
    assert seen == [4.0]


def test_a_reset_leaves_a_variable_alone_that_another_tape_watches():
    one, two = GradientTape(), GradientTape()
    x = one.variable(3.0)
    two.watch(x)
    y = x * x
    one.reset()
    assert two.gradient(y, x).item() == 6.0
    assert one.gradient(x * 2.0, x).item() == 2.0


def test_stop_recording():
    with GradientTape() as outer, GradientTape() as inner:
        x = outer.variable(3.0)
        inner.watch(x)
        with inner.stop_recording():
            scale = x * x
        y = scale * x
    assert not scale.requires_grad
    assert inner.gradient(y, x).item() == 9.0
    assert outer.gradient(y, x).item() == 9.0


def test_a_gradient_under_stop_recording_is_not_recorded():
    tape = GradientTape(persistent=True)
    x = tape.variable(3.0)
    y = x * x
    with tape.stop_recording():
        found = tape.gradient(y, x)
    assert not found.requires_grad
    with pytest.raises(errors.GraphError, match="without recording"):
        tape.gradient(found, x, unconnected="zero")


def test_a_gradient_under_stop_recording_leaves_the_graph_to_others():
    outer, inner = GradientTape(), GradientTape()
    x = outer.variable(3.0)
    inner.watch(x)
    y = x * x * x
    with inner.stop_recording():
        assert inner.gradient(y, x).item() == 27.0
    assert outer.gradient(y, x).item() == 27.0


def test_watching_works_where_recording_is_stopped():
    x = pb.tensor(2.0, requires_grad=True)
    with GradientTape() as tape:
        with tape.stop_recording():
            tape.watch(x)
        y = x * x
    assert tape.gradient(y, x).item() == 4.0


def test_a_gradient_that_nobody_recorded_is_not_taken_for_a_constant():
    inner = GradientTape()
    x = inner.variable(2.0)
    y = x**3
    outer = GradientTape()
    first = inner.gradient(y, x)
    with pytest.raises(errors.GraphError, match=r"(?s)without recording.*first = inner\.gradient"):
        outer.gradient(first * first, x, unconnected="zero")


def test_a_tape_above_a_variable_of_another_tape_is_noticed():
    inner, outer = GradientTape(), GradientTape()
    x = inner.variable(2.0)
    outer.watch(x)
    first = inner.gradient(x**3, x)
    assert outer.gradient(first, x).item() == 12.0


def test_a_linear_function_has_no_second_derivative():
    with GradientTape() as outer:
        x = outer.variable([1.0, 2.0])
        with GradientTape() as inner:
            inner.watch(x)
            y = 3.0 * x
        first = inner.gradient(y, x)
    assert outer.gradient(first, x) is None


# with the other front ends


def test_inside_grad():
    def f(x):
        tape = GradientTape()
        tape.watch(x)
        return pb.sum(tape.gradient(x**3, x) * x)  # 3 x^3

    close(grad(f)(np.array([1.0, 2.0])), [9.0, 36.0])


def test_grad_sees_through_two_nested_tapes():
    def f(x):
        with GradientTape() as outer:
            outer.watch(x)
            with GradientTape() as inner:
                inner.watch(x)
                y = x**4
            first = inner.gradient(y, x)
        return pb.sum(outer.gradient(first, x))  # 12 x^2

    close(grad(f)(np.array([1.0, 2.0])), [24.0, 48.0])


def test_inside_jvp():
    def f(x):
        tape = GradientTape()
        v = tape.variable(x)
        return tape.gradient(pb.sin(v) * v, v)

    x = np.array([0.3, 1.0])
    value, tangent = jvp(f, (x,), (np.ones(2),))
    close(value, np.sin(x) + x * np.cos(x))
    close(tangent, 2 * np.cos(x) - x * np.sin(x))


def test_inside_vmap():
    def f(x, w):
        tape = GradientTape()
        v = tape.variable(x)
        return tape.gradient(pb.sum(v * v * w), v), tape.watched[0].shape == (3,)

    x, w = np.arange(6.0).reshape(2, 3), np.array([1.0, 2.0, 3.0])
    found, single = vmap(lambda x: f(x, w))(x)
    close(found, 2 * x * w)
    assert single.all()


def test_jacobian_and_hessian_inside_vmap():
    def f(x):
        tape = GradientTape(persistent=True)
        v = tape.variable(x)
        y = v**3
        with tape.stop_recording():
            return tape.jacobian(y, v), tape.hessian(y, v)

    x = np.array([[1.0, 2.0], [3.0, 4.0]])
    jacobian, hessian = vmap(f)(x)
    close(jacobian, np.stack([np.diag(3 * row**2) for row in x]))
    close(hessian, np.stack([np.diag(6 * row) for row in x]))


def test_inside_vmap_of_grad_and_grad_of_vmap():
    def inner(x):
        tape = GradientTape()
        tape.watch(x)
        return pb.sum(tape.gradient(pb.sin(x), x))

    x = np.array([[0.1, 0.2], [0.3, 0.4]])
    close(vmap(grad(inner))(x), -np.sin(x))

    def by_variable(x):
        tape = GradientTape()
        v = tape.variable(x)
        return tape.gradient(pb.sin(v), v)

    close(grad(lambda x: pb.sum(vmap(by_variable)(x)))(x), -np.sin(x))


def test_a_variable_over_a_tensor_outside_of_the_transform():
    outer = GradientTape()
    w = outer.variable(2.0)

    def f(x):
        inner = GradientTape()
        with pytest.raises(errors.GraphError, match=r"outside of the vmap.*\n.*tape\.variable"):
            inner.watch(w)
        v = inner.variable(w)
        return inner.gradient(v**3 * x, v)  # 3 w^2 x

    found = vmap(f)(np.array([1.0, 2.0]))
    close(found, [12.0, 24.0])
    assert outer.gradient(found, w).item() == 36.0


def test_a_source_or_target_outside_of_the_transform_is_an_error():
    tape = GradientTape(persistent=True)
    w = tape.variable(2.0)

    def by_batch(x):
        with pytest.raises(errors.GraphError, match="value of a transform"):
            tape.gradient(x * w, w)
        return x

    def by_tensor(x):
        v = GradientTape().variable(x)
        with pytest.raises(errors.GraphError, match="outside of the transform"):
            tape.gradient(v * w, w)
        return x

    vmap(by_batch)(np.ones(2))
    vmap(by_tensor)(np.ones(2))
    with pytest.raises(errors.ArgumentError, match="value of a transform"):
        vmap(lambda x: tape.watch(x))(np.ones(2))


def test_around_transforms():
    tape = GradientTape(persistent=True)
    x = tape.variable([1.0, 2.0])
    assert tape.gradient(vmap(lambda e: e**3)(x), x).tolist() == [3.0, 12.0]
    assert tape.gradient(grad(lambda e: pb.sum(e**3))(x), x).tolist() == [6.0, 12.0]
    assert tape.gradient(jvp(lambda e: e**3, (x,), (np.ones(2),))[1], x).tolist() == [6.0, 12.0]


def test_weights_may_be_a_batch():
    tape = GradientTape(persistent=True)
    x = tape.variable([1.0, 2.0])
    y = x * x
    rows = vmap(lambda bar: 2.0 * tape.gradient(y, x, output_gradients=bar))(np.eye(2))
    close(rows, [[4.0, 0.0], [0.0, 8.0]])


def test_beside_backward():
    tape = GradientTape()
    x, p = tape.variable(2.0), pb.tensor(3.0, requires_grad=True)
    first = tape.gradient(x * x * p, x)
    first.backward()
    assert p.grad.item() == 4.0


def test_hooks_on_variables_and_watched_tensors_fire():
    seen = []
    tape = GradientTape()
    x, w = tape.variable([1.0, 2.0]), pb.tensor([3.0, 4.0])
    tape.watch(w)
    x.register_hook(lambda g: seen.append(g.tolist()))
    w.register_hook(lambda g: g * 10.0)
    assert tape.gradient(x * w, w).tolist() == [10.0, 20.0]
    assert seen == []
    tape.reset()
    tape.gradient(x * 5.0, x)
    assert seen == [[5.0, 5.0]]


# training, threads, memory


def test_a_training_loop_with_plain_parameters():
    rng = np.random.default_rng(4)
    inputs = rng.normal(size=(20, 3))
    targets = inputs @ np.array([1.0, -2.0, 0.5]) + 3.0
    p = {"w": pb.tensor(np.zeros(3)), "b": pb.tensor(0.0)}
    counts = []
    for step in range(50):
        with GradientTape() as tape:
            tape.watch(p)
            loss = pb.mean((pb.tensor(inputs) @ p["w"] + p["b"] - targets) ** 2)
        found = tape.gradient(loss, p)
        for name in p:
            p[name] -= 0.2 * found[name]
            assert p[name].node is None
        if step % 24 == 1:
            gc.collect()
            counts.append(sum(type(x) is pb.Node for x in gc.get_objects()))
    assert loss.item() < 1e-6
    assert len(counts) == 3
    assert len(set(counts)) == 1, "the graph does not grow"


def test_a_training_loop_with_one_tape_and_variables():
    tape = GradientTape()
    x = tape.variable([3.0, -4.0])
    for _ in range(50):
        found = tape.gradient(pb.sum(x * x), x)
        with tape.stop_recording():
            x -= 0.2 * found
        tape.reset()
    assert np.abs(numbers(x)).max() < 1e-9
    assert x.is_leaf


def test_a_tape_that_is_dropped_leaves_nothing_behind():
    x = pb.tensor(np.ones(100))

    def use():
        tape = GradientTape(persistent=True)
        tape.watch(x)
        v = tape.variable(np.ones(100))
        y = pb.exp(x) * v
        tape.gradient(y, [x, v])
        return weakref.ref(tape), weakref.ref(v), weakref.ref(y)

    gc.collect()
    gc.disable()
    try:
        before = sum(type(n) is pb.Node for n in gc.get_objects())
        assert [r() for r in use()] == [None, None, None], "by reference counts alone"
        assert sum(type(n) is pb.Node for n in gc.get_objects()) == before
    finally:
        gc.enable()
    assert x.node is None


def test_a_tape_keeps_no_values_alive():
    tape = GradientTape(persistent=True)
    x = pb.tensor(np.ones(100))
    tape.watch(x)
    v = tape.variable(np.ones(100))
    references = weakref.ref(x), weakref.ref(v)
    del x, v
    assert [r() for r in references] == [None, None]
    assert tape.watched == ()
    tape.reset()


def test_two_threads_have_tapes_of_their_own():
    found, failed = {}, []
    together = threading.Barrier(2)

    def work(number):
        try:
            together.wait()
            for step in range(20):
                with GradientTape() as outer:
                    x = outer.variable(np.full(5, float(number)))
                    with GradientTape() as inner:
                        inner.watch(x)
                        y = x**3
                    first = inner.gradient(y, x)
                second = outer.gradient(first, x)
                found[number, step] = first.tolist()[0], second.tolist()[0]
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in (2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert {value for (number, _), value in found.items() if number == 2} == {(12.0, 12.0)}
    assert {value for (number, _), value in found.items() if number == 3} == {(27.0, 18.0)}
    assert len(found) == 40


def test_two_threads_may_ask_about_one_leaf():
    x = pb.tensor([1.0, 2.0], requires_grad=True)
    found = []

    def work():
        for _ in range(50):
            tape = GradientTape()
            found.append(tape.gradient(pb.sum(pb.exp(x) * x), x).tolist())

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 100
    assert all(value == found[0] for value in found)


# looking at the tape


def test_the_length_counts_living_ops():
    tape = GradientTape()
    assert len(tape) == 0
    assert tape, "a tape is true, also without ops"
    x = tape.variable([1.0, 2.0])
    y = pb.sin(x) * x
    pb.exp(pb.tensor(1.0, requires_grad=True))
    assert len(tape) == 2
    halves = pb.split(y, 2)
    assert len(tape) == 3, "an op with several results counts once"
    del halves
    assert len(tape) == 2
    del y
    assert len(tape) == 0


def test_the_length_of_each_of_two_tapes():
    x = pb.tensor(1.0)
    with GradientTape() as outer:
        outer.watch(x)
        a = x * 2.0
        with GradientTape() as inner:
            inner.watch(x)
            b = x * 3.0
    assert (len(outer), len(inner)) == (2, 1)
    assert (a + b).requires_grad
    assert len(inner) == 1


def test_the_printed_tape():
    tape = GradientTape(persistent=True)
    x = tape.variable([[1.0, 2.0]])
    y = pb.exp(x)
    z = pb.sum(y * y)  # a line of the user
    lines = str(tape).splitlines()
    assert lines[0] == "<GradientTape persistent, recording, 1 watched>: 3 ops keep 16 bytes"
    assert lines[1].split() == ["op", "result", "bytes", "line"]
    assert [line.split()[0] for line in lines[2:]] == ["exp", "multiply", "sum"]
    assert re.match(r"  exp       float64\[1, 2\]     16  \S*test_gradient_tape.py:", lines[2])
    assert re.match(r"  sum       float64\[\]          0  \S*test_gradient_tape.py:", lines[4])
    assert re.search(r" 32  \S*test_gradient_tape.py:", lines[3])
    assert lines[4].endswith("z = pb.sum(y * y)  # a line of the user")
    tape.gradient(z, x)
    assert repr(GradientTape()) == "<GradientTape recording, 0 watched>"


def test_the_printed_tape_states_and_its_end():
    with GradientTape() as tape:
        x = tape.variable(1.0)
        y = x
        for _ in range(150):
            y = y + 1.0
    assert repr(tape) == "<GradientTape closed, 1 watched>"
    assert str(tape).splitlines()[-1] == "  and 50 more"
    tape.gradient(y, x)
    assert str(tape) == "<GradientTape consumed, 1 watched>: 0 ops keep 0 bytes"


def test_the_printed_tape_shows_several_results_and_packed_values():
    tape = GradientTape()
    x = tape.variable([1.0, 2.0])
    with pb.saved_tensors_hooks(lambda t: t.tolist(), pb.tensor):
        y = pb.exp(x)
    halves = pb.split(y, 2)
    text = str(tape)
    assert "float64[1], float64[1]" in text
    assert "keep 16 bytes" in text
    assert len(halves) == 2
