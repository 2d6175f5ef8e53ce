"""What is switched on: modes nest, end with their block however it ends, and belong to one thread."""

import asyncio
import threading
from contextlib import suppress

import numpy as np
import pytest

import pullback as pb
from pullback import errors
from pullback.settings import PLAIN, installed, modes
from pullback.tape.anomaly import AnomalyCheck

SWITCHES = {
    "no_grad": (pb.no_grad, False),
    "enable_grad": (pb.enable_grad, True),
    "set off": (lambda: pb.set_grad_enabled(False), False),
    "set on": (lambda: pb.set_grad_enabled(True), True),
    "inference_mode": (pb.inference_mode, False),
}


@pytest.fixture(autouse=True)
def nothing_leaks():
    assert modes() is PLAIN
    yield
    assert modes() is PLAIN


def leaf(data, dtype=np.float64):
    return pb.tensor(data, dtype=dtype, requires_grad=True)


@pytest.mark.parametrize("outer", SWITCHES)
@pytest.mark.parametrize("inner", SWITCHES)
@pytest.mark.parametrize("raises", [False, True])
def test_every_mode_nests_in_every_other_and_restores_it(outer, inner, raises):
    (make_outer, outer_on), (make_inner, inner_on) = SWITCHES[outer], SWITCHES[inner]
    x = leaf(2.0)
    with make_outer():
        before = modes()
        try:
            with make_inner():
                assert pb.is_grad_enabled() is inner_on
                assert (x * x).requires_grad is inner_on
                if raises:
                    raise KeyError
        except KeyError:
            pass
        assert modes() is before
        assert pb.is_grad_enabled() is outer_on
    assert modes() is PLAIN


@pytest.mark.parametrize("name", SWITCHES)
def test_one_object_may_be_entered_again_inside_itself(name):
    switch = SWITCHES[name][0]()
    with switch:
        with switch:
            assert pb.is_grad_enabled() is SWITCHES[name][1]
        assert pb.is_grad_enabled() is SWITCHES[name][1]
    assert modes() is PLAIN


@pytest.mark.parametrize("name", SWITCHES)
def test_decorated_function_runs_in_the_mode_and_keeps_its_name(name):
    make, on = SWITCHES[name]

    @make()
    def asked(depth, *, fail=False):
        """Said here."""
        if fail:
            raise KeyError
        return pb.is_grad_enabled() if not depth else asked(depth - 1)

    assert pb.is_grad_enabled()
    assert asked(3) is on
    with pytest.raises(KeyError):
        asked(0, fail=True)
    assert (asked.__name__, asked.__doc__) == ("asked", "Said here.")


def test_decorated_generator_keeps_its_mode_to_itself():
    @pb.no_grad()
    def steps():
        try:
            got = yield pb.is_grad_enabled()
            yield got, pb.is_grad_enabled()
        except KeyError:
            yield "caught", pb.is_grad_enabled()
        finally:
            closed.append(pb.is_grad_enabled())
        return "done"

    closed = []
    run = steps()
    assert next(run) is False
    assert pb.is_grad_enabled()
    assert run.send("sent") == ("sent", False)
    assert pb.is_grad_enabled()
    with pytest.raises(StopIteration) as stopped:
        next(run)
    assert stopped.value.value == "done"
    run = steps()
    next(run)
    assert run.throw(KeyError()) == ("caught", False)
    run.close()
    run = steps()
    next(run)
    run.close()
    assert closed == [False] * 3


def test_decorated_coroutine_runs_in_the_mode_and_keeps_it_to_itself():
    @pb.no_grad()
    async def asked():
        before = pb.is_grad_enabled()
        await asyncio.sleep(0)
        return before, pb.is_grad_enabled()

    async def both():
        inner = asyncio.create_task(asked())
        await asyncio.sleep(0)
        return pb.is_grad_enabled(), await inner, pb.is_grad_enabled()

    assert asyncio.run(both()) == (True, (False, False), True)


def test_set_grad_enabled_is_a_statement_too():
    try:
        pb.set_grad_enabled(False)
        assert not pb.is_grad_enabled()
        with pb.set_grad_enabled(True):
            assert pb.is_grad_enabled()
        assert not pb.is_grad_enabled()
    finally:
        pb.set_grad_enabled(True)
    assert modes() is PLAIN


CHANGES_NOTHING = [
    lambda x: x.reshape(x.shape),
    lambda x: pb.permute_dims(x, tuple(range(x.ndim))),
    lambda x: x.astype(x.dtype),
    lambda x: pb.broadcast_to(x, x.shape),
    lambda x: pb.squeeze(x),
    lambda x: pb.einsum("i->i", x),
    lambda x: x.copy(),
]


def test_nothing_is_recorded_without_grad_also_where_an_input_tracks():
    x = leaf([1.0, 2.0])
    with pb.no_grad():
        made = [x * 2, pb.sum(x), x[0], pb.where(x > 0, x, 0), *pb.split(x, 2), pb.sigmoid(x)]
        made += [f(x) for f in CHANGES_NOTHING]
        fresh = leaf(1.0)
    assert [y.requires_grad for y in made] == [False] * len(made)
    assert fresh.requires_grad
    assert fresh.is_leaf


def test_backward_works_where_recording_is_off():
    x = leaf(3.0)
    y = x * x
    with pb.no_grad():
        y.backward(retain_graph=True)
        (linked,) = pb.gradients(y, x, create_graph=True)
    assert x.grad.item() == 6.0
    assert linked.requires_grad
    assert pb.gradients(linked, x)[0].item() == 2.0


def test_inference_tensors_stay_constants_for_ever():
    x = leaf([2.0, 3.0])
    with pb.inference_mode():
        y = x * 2
        made = pb.tensor([1.0, 1.0])
        inside = pb.tensor([1.0]).requires_grad_()
        same = [f(x) for f in CHANGES_NOTHING]
    assert [t.is_inference for t in (y, made, y.detach(), inside, *same)] == [True] * (4 + len(same))
    assert inside.requires_grad
    for t in (y, made):
        with pytest.raises(errors.GraphError, match="inference_mode"):
            t.requires_grad_()
    assert not (y * 2).requires_grad
    assert not pb.tensor(y).is_inference


def test_inference_tensor_may_be_added_but_not_kept():
    x = leaf([2.0, 3.0])
    with pb.inference_mode():
        y = pb.tensor([10.0, 20.0])
    (x + y).backward(np.ones(2))
    assert x.grad.tolist() == [1.0, 1.0]
    with pytest.raises(errors.GraphError, match="multiply: backward would have to save"):
        x * y
    (x * pb.tensor(y)).backward(np.ones(2))
    assert x.grad.tolist() == [11.0, 21.0]


@pytest.mark.parametrize("mode", [pb.no_grad, pb.inference_mode])
def test_parameter_updated_where_recording_is_off_is_still_a_parameter(mode):
    w = leaf([1.0, 2.0])
    with mode():
        w -= 0.5
        w[0] = 4.0
    assert w.is_leaf
    assert w.requires_grad
    pb.sum(w * w).backward()
    assert w.grad.tolist() == [8.0, 3.0]


def kept_values(f, *points):
    """What backward keeps for f, in the order in which it is packed and unpacked."""
    packed, unpacked = [], []
    leaves = [leaf(p) for p in points]

    def pack(t):
        packed.append((t.tolist(), pb.is_grad_enabled(), t.requires_grad))
        return len(packed) - 1, t

    def unpack(stored):
        unpacked.append((stored[0], pb.is_grad_enabled()))
        return stored[1]

    with pb.saved_tensors_hooks(pack, unpack):
        out = f(*leaves)
    out.backward()
    return packed, unpacked, [x.grad for x in leaves]


@pytest.mark.parametrize(
    ("f", "count"),
    [
        (lambda x, y: x * y, 2),
        (lambda x, y: x + y, 0),
        (lambda x, y: pb.exp(x) + y, 1),
        (lambda x, y: x / y, 2),
        (lambda x, y: x * y.detach() + y, 1),
        (lambda x, y: x * 2.0 + y, 0),
    ],
)
def test_every_kept_value_is_packed_once_and_unpacked_once(f, count):
    packed, unpacked, gradients = kept_values(f, 2.0, 3.0)
    assert len(packed) == len(unpacked) == count
    assert all(not enabled and not tracked for _, enabled, tracked in packed)
    assert not any(enabled for _, enabled in unpacked)
    x, y = leaf(2.0), leaf(3.0)
    f(x, y).backward()
    assert [g.item() for g in gradients] == [x.grad.item(), y.grad.item()]


def test_retained_graph_unpacks_each_time():
    x, count = leaf(3.0), []
    with pb.saved_tensors_hooks(lambda t: t, lambda t: (count.append(1), t)[1]):
        y = x * x
    y.backward(retain_graph=True)
    pb.gradients(y, x, create_graph=True)
    y.backward()
    assert len(count) in (3, 6)
    assert x.grad.item() == 12.0


def test_saved_hooks_hold_inside_their_block_only():
    x, log = leaf(2.0), []

    def noted(name):
        return pb.saved_tensors_hooks(lambda t: (log.append(name), t)[1], lambda t: t)

    with noted("outer"):
        pb.sin(x)
        with suppress(KeyError), noted("inner"):
            pb.sin(x)
            raise KeyError
        pb.sin(x)
    pb.sin(x)
    assert log == ["outer", "inner", "outer"]


def test_pack_may_use_ops_without_being_packed_itself():
    x = leaf([2.0, 3.0])
    with pb.saved_tensors_hooks(lambda t: t.astype(np.float32), lambda t: t.astype(np.float64)):
        y = pb.sum(pb.sin(x) * x)
    y.backward()
    exact = np.sin([2.0, 3.0]) + np.array([2.0, 3.0]) * np.cos([2.0, 3.0])
    np.testing.assert_allclose(x.grad.numpy(), exact, rtol=1e-6)


def test_pack_cannot_spoil_what_it_is_shown():
    x = leaf([2.0, 3.0])

    def spoil(t):
        with pytest.raises(ValueError, match="read-only"):
            t.numpy()[0] = 100.0
        twin = t.detach()
        twin += 100.0
        return t

    with pb.saved_tensors_hooks(spoil, lambda t: t):
        y = pb.sum(x * x)
    y.backward()
    assert (x.tolist(), x.grad.tolist()) == ([2.0, 3.0], [4.0, 6.0])


@pytest.mark.parametrize("given", [pb.ones(1), np.ones(3), pb.ones((1, 2)), None, "text"])
def test_unpacking_something_else_is_refused(given):
    x = leaf([1.0, 2.0])
    with pb.saved_tensors_hooks(lambda t: t, lambda t: given):
        y = pb.sum(x * x)
    with pytest.raises(errors.PullbackError, match="unpack"):
        y.backward()
    assert x.grad is None


def test_buffer_that_unpack_uses_again_does_not_spoil_a_linked_gradient():
    x, buffer = leaf([2.0, 3.0]), np.zeros(2)

    def unpack(numbers):
        buffer[:] = numbers
        return buffer

    with pb.saved_tensors_hooks(lambda t: t.tolist(), unpack):
        y = pb.sum(x * x * x)
    assert pb.gradients(pb.sum(y), x, retain_graph=True)[0].tolist() == [12.0, 27.0]
    (first,) = pb.gradients(y, x, create_graph=True)
    buffer[:] = 100.0
    assert pb.gradients(pb.sum(first), x)[0].tolist() == [12.0, 18.0]


def test_error_while_packing_leaves_nothing():
    x = leaf(1.0)

    def refuse(t):
        raise KeyError("full")

    with pytest.raises(KeyError), pb.saved_tensors_hooks(refuse, refuse):
        x * x
    (x * x).backward()
    assert x.grad.item() == 2.0


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("linked", [False, True])
def test_anomaly_names_op_argument_and_line(workers, linked):
    x = leaf([1.0, 2.0, 3.0])
    with pb.detect_anomaly():
        loss = pb.sum(pb.sqrt(x * 0.0))
        with pytest.raises(
            errors.AnomalyError, match=r"rule of sqrt returned inf for argument x(.|\n)*test_modes.py:\d+: loss ="
        ):
            loss.backward(workers=workers, retain_graph=True, create_graph=linked)
    with (
        pb.detect_anomaly(nan_only=True),
        pytest.raises(errors.AnomalyError, match="rule of multiply returned nan for argument x"),
    ):
        loss.backward(workers=workers, retain_graph=True, create_graph=linked)
    assert x.grad is None
    loss.backward(workers=workers)
    assert np.isnan(x.grad.numpy()).all()


def test_anomaly_lets_finite_passes_and_asked_for_infinities_through():
    with pb.detect_anomaly():
        x = leaf([1.0, 4.0])
        pb.sum(pb.sqrt(x)).backward()
    assert x.grad.tolist() == [0.5, 0.25]
    with pb.detect_anomaly(nan_only=True):
        x = leaf(0.0)
        pb.sqrt(x).backward()
    assert x.grad.item() == np.inf


def test_anomaly_nests_and_ends():
    with pb.detect_anomaly():
        with pytest.raises(errors.AnomalyError), pb.detect_anomaly():
            pb.sqrt(leaf(0.0)).backward()
        with pb.no_grad():
            assert installed().innermost(AnomalyCheck) is not None
    x = leaf(0.0)
    pb.sqrt(x).backward()
    assert x.grad.item() == np.inf


def in_thread(f):
    found = []
    thread = threading.Thread(target=lambda: found.append(f()))
    thread.start()
    thread.join()
    return found[0]


@pytest.mark.parametrize("name", ["no_grad", "inference_mode", "set off"])
def test_thread_does_not_inherit_the_modes_of_whoever_started_it(name):
    with SWITCHES[name][0]():
        assert in_thread(modes) is PLAIN


def test_modes_of_a_thread_do_not_reach_the_others():
    inside, done = threading.Event(), threading.Event()

    def hold():
        with pb.no_grad(), pb.detect_anomaly():
            inside.set()
            done.wait(10)

    thread = threading.Thread(target=hold)
    thread.start()
    inside.wait(10)
    assert modes() is PLAIN
    done.set()
    thread.join()


def test_workers_inherit_the_modes_of_the_caller():
    size, seen = 1 << 17, set()
    leaves = [leaf(np.full(size, 0.5)) for _ in range(4)]
    branches = [pb.sin(x) * x for x in leaves]
    for branch in branches:
        branch.node.register_pre_hook(lambda bar: seen.add((pb.is_grad_enabled(), type(installed().stack[0]))))
    loss = pb.sum(branches[0] + branches[1] + branches[2] + branches[3])
    with pb.no_grad(), pb.detect_anomaly():
        loss.backward(workers=4)
    assert seen == {(False, AnomalyCheck)}


def test_a_mode_that_changes_nothing_makes_no_new_record_and_still_restores() -> None:
    with pb.enable_grad():
        assert modes() is PLAIN
        pb.set_grad_enabled(False)
        assert not modes().grad
    assert modes() is PLAIN
    pb.grad(lambda x: (pb.set_grad_enabled(False), x * x)[1])(1.0)
    assert modes() is PLAIN
