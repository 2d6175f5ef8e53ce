"""What can be hung on a backward pass: who is called, in which order, with what, and what an error leaves behind."""

import numpy as np
import pytest

import pullback as pb
from pullback import errors


def leaf(data, dtype=np.float64):
    return pb.tensor(data, dtype=dtype, requires_grad=True)


class BoomError(Exception):
    """What a failing hook raises."""


def boom(*args):
    raise BoomError


def calls_of(log, name):
    """A hook that notes its name and changes nothing."""
    return lambda *args: log.append(name)


def test_leaf_root_hook_sees_the_seed_and_its_answer_is_accumulated():
    x, seen = leaf(2.0), []
    x.register_hook(lambda g: (seen.append(g.item()), pb.tensor(5.0))[1])
    x.register_post_accumulate_grad_hook(lambda t: seen.append(t.grad.item()))
    x.backward()
    assert (seen, x.grad.item()) == ([1.0, 5.0], 5.0)


@pytest.mark.parametrize("workers", [1, 2])
def test_hook_on_a_root_that_is_no_leaf_runs_once(workers):
    x, seen = leaf(2.0), []
    y = x * x
    y.register_hook(lambda g: (seen.append(g.item()), pb.tensor(5.0))[1])
    y.backward(workers=workers)
    assert (seen, x.grad.item()) == ([1.0], 20.0)


@pytest.mark.parametrize("size", [1, 1 << 18])
def test_hook_on_the_root_of_a_chain_on_two_workers(size):
    x = leaf(np.ones(size))
    y = x
    for _ in range(8):
        y = y * 2.0
    y.register_hook(lambda g: pb.full_like(g, 3.0))
    y.backward(np.ones(size), workers=2)
    assert np.unique(x.grad.numpy()).tolist() == [768.0]


def test_hooks_are_chained_in_the_order_they_came():
    x = leaf(5.0)
    x.register_hook(lambda g: g * 2)
    x.register_hook(lambda g: None)
    x.register_hook(lambda g: g + 1)
    x.backward(np.asarray(5.0))
    assert x.grad.item() == 11.0


@pytest.mark.parametrize("where", ["leaf", "middle", "root"])
def test_hook_is_called_once_with_the_sum(where):
    x, seen = leaf([1.0, 2.0]), []
    middle = x * 1.0
    root = pb.sum(middle * 2.0 + middle * middle + pb.sin(middle) * 0.0)
    {"leaf": x, "middle": middle, "root": root}[where].register_hook(lambda g: seen.append(g.tolist()))
    root.backward()
    assert seen == [1.0 if where == "root" else [4.0, 6.0]]


ANSWERS = {
    "tensor": lambda g: pb.tensor(g.detach().numpy() * 3),
    "array": lambda g: np.asarray(g.detach().numpy() * 3),
    "what NumPy makes of 0-d": lambda g: g.detach().numpy() * 3,
}


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
@pytest.mark.parametrize("shape", [(), (2,)])
@pytest.mark.parametrize("place", ["leaf", "middle", "pre", "post"])
def test_hook_may_answer_with_a_tensor_or_an_array(answer, shape, place):
    x = leaf(np.full(shape, 2.0))
    y = x * x
    if place == "leaf":
        x.register_hook(answer)
    elif place == "middle":
        y.register_hook(answer)
    elif place == "pre":
        y.node.register_pre_hook(answer)
    else:
        y.node.register_hook(lambda shares, bar: tuple(answer(s) for s in shares))
    pb.sum(y).backward()
    np.testing.assert_array_equal(x.grad.numpy(), np.full(shape, 12.0))


@pytest.mark.parametrize("shape", [(), (2,)])
@pytest.mark.parametrize(
    "answer",
    [
        7, "text", [1.0, 2.0], np.ones(3), np.ones((2, 1)), np.float32(1), np.ones(2, np.float32), np.ones(2, int),
        object(), pb.ones((1, 2)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("place", ["leaf", "middle", "pre", "post"])
def test_answer_that_is_no_gradient_is_refused_and_nothing_is_written(answer, shape, place):
    x = leaf(np.full(shape, 2.0))
    x.grad = np.full(shape, 7.0)
    y = x * x
    place = {
        "leaf": x.register_hook,
        "middle": y.register_hook,
        "pre": y.node.register_pre_hook,
        "post": lambda hook: y.node.register_hook(lambda shares, bar: (hook(bar),) * len(shares)),
    }[place]
    place(lambda g: answer)
    with pytest.raises(errors.HookError, match="returned") as caught:
        pb.sum(y).backward()
    assert "hook of" in str(caught.value)
    np.testing.assert_array_equal(x.grad.numpy(), np.full(shape, 7.0))


@pytest.mark.parametrize("place", ["leaf", "middle"])
def test_python_number_as_answer_is_refused_or_becomes_a_real_gradient(place):
    x = leaf(2.0)
    y = x * 3.0
    (x if place == "leaf" else y).register_hook(lambda g: 5.0)
    try:
        y.backward()
    except errors.HookError:
        assert x.grad is None
    else:
        assert x.grad.numpy() == (5.0 if place == "leaf" else 15.0)


def test_answer_of_another_count_of_shares_is_refused():
    x, z = leaf(2.0), leaf(3.0)
    y = x * z
    y.node.register_hook(lambda shares, bar: shares[:1])
    with pytest.raises(errors.HookError, match="1 shares, wanted 2"):
        y.backward()


def test_writing_in_place_to_what_a_hook_sees_changes_nothing():
    for linked in (False, True):
        x, z = leaf([1.0, 2.0]), leaf([3.0, 4.0])
        y = x + z

        def spoil(g):
            g += 100.0
            g[0] = -1.0

        y.register_hook(spoil)
        x.register_hook(spoil)
        y.backward(np.ones(2), create_graph=linked)
        assert x.grad.tolist() == z.grad.tolist() == [1.0, 1.0]


def test_handles_say_whether_there_was_something_to_remove():
    x = leaf(1.0)
    handle = x.register_hook(boom)
    assert (handle.remove(), handle.remove()) == (True, False)
    with x.register_hook(boom):
        pass
    (x * 2).backward()
    assert x.grad.item() == 2.0
    gone = leaf(1.0)
    handle = gone.register_hook(boom)
    del gone
    assert handle.remove() is False


@pytest.mark.parametrize("bad", [None, 3, "hook"])
def test_hook_that_cannot_be_called_is_refused(bad):
    x = leaf(1.0)
    y = x * x
    for register in (
        x.register_hook,
        x.register_post_accumulate_grad_hook,
        y.node.register_pre_hook,
        y.node.register_hook,
    ):
        with pytest.raises(errors.ArgumentError, match="callable"):
            register(bad)
    with pytest.raises(errors.ArgumentError, match="callable"):
        pb.register_multi_grad_hook([x], bad)
    y.backward()


@pytest.mark.parametrize("name", ["register_hook", "register_post_accumulate_grad_hook"])
def test_hook_that_could_never_run_is_refused(name):
    with pytest.raises(errors.GraphError, match=name):
        getattr(pb.ones(2), name)(print)


def test_post_accumulate_hook_is_for_leaves():
    with pytest.raises(errors.GraphError, match="only a leaf"):
        (leaf(1.0) * 2).register_post_accumulate_grad_hook(print)


def registrars(x):
    return {"grad": x.register_hook, "post_accumulate": x.register_post_accumulate_grad_hook}


@pytest.mark.parametrize("kind", ["grad", "post_accumulate"])
def test_hook_may_remove_itself(kind):
    x, log = leaf(1.0), []
    handle = registrars(x)[kind](lambda _: (log.append("me"), handle.remove(), None)[2])
    for _ in range(2):
        (x * 2).backward()
    assert log == ["me"]


@pytest.mark.parametrize("kind", ["grad", "post_accumulate"])
def test_removing_another_hook_counts_from_the_next_pass(kind):
    x, log = leaf(1.0), []
    register = registrars(x)[kind]
    register(lambda _: (log.append("first"), second.remove(), None)[2])
    second = register(calls_of(log, "second"))
    for _ in range(2):
        (x * 2).backward()
    assert log == ["first", "second", "first"]


@pytest.mark.parametrize("outer", ["grad", "post_accumulate"])
@pytest.mark.parametrize("inner", ["grad", "post_accumulate"])
def test_registering_in_a_hook_counts_from_the_next_pass(outer, inner):
    x, log, once = leaf(1.0), [], []

    def first(_):
        log.append("first")
        if not once:
            once.append(registrars(x)[inner](calls_of(log, "second")))

    registrars(x)[outer](first)
    (x * 2).backward()
    assert log == ["first"]
    (x * 2).backward()
    assert sorted(log) == ["first", "first", "second"]


def test_hook_registered_on_an_older_node_during_the_pass_waits_too():
    x, log = leaf(1.0), []
    early = pb.sin(x)
    late = pb.exp(early)
    late.register_hook(
        lambda g: (
            early.register_hook(calls_of(log, "early")),
            early.node.register_pre_hook(calls_of(log, "pre")),
            None,
        )[2]
    )
    late.backward(retain_graph=True)
    assert log == []
    late.backward()
    assert sorted(log) == ["early", "pre"]


def test_post_accumulate_hook_sees_the_sum_of_all_passes():
    x, seen = leaf([1.0, 2.0]), []
    x.register_post_accumulate_grad_hook(lambda t: seen.append((t is x, t.grad.tolist())))
    for _ in range(2):
        (x * x + x).backward(np.ones(2))
    assert seen == [(True, [3.0, 5.0]), (True, [6.0, 10.0])]


def test_post_accumulate_hook_may_update_and_drop_the_gradient():
    x, w = leaf([1.0, 2.0]), leaf([3.0, 4.0])
    alive = []

    def update(t):
        alive.append(sum(v.grad is not None for v in (x, w)))
        with pb.no_grad():
            t -= 0.5 * t.grad
        t.grad = None

    for t in (x, w):
        t.register_post_accumulate_grad_hook(update)
    pb.sum(pb.exp(x) * 0.0 + x * w).backward()
    assert (x.tolist(), w.tolist(), x.grad, w.grad) == ([-0.5, 0.0], [2.5, 3.0], None, None)
    assert alive == [1, 1]
    assert x.is_leaf
    assert x.requires_grad


def test_gradients_run_gradient_hooks_but_nothing_that_accumulates():
    x, log = leaf(3.0), []
    x.register_hook(lambda g: g * 10)
    x.register_post_accumulate_grad_hook(calls_of(log, "accumulated"))
    assert pb.gradients(x * x, x)[0].item() == 60.0
    assert log == []


@pytest.mark.parametrize("linked", [False, True])
def test_node_hooks_stand_around_the_rule(linked):
    x, z, log = leaf(2.0), leaf(3.0), []
    y = x * z
    y.register_hook(calls_of(log, "grad"))
    y.node.register_pre_hook(lambda bar: (log.append(("pre", bar.item())), bar * 2)[1])
    y.node.register_hook(lambda shares, bar: log.append(("post", [s.item() for s in shares], bar.item())))
    y.node.register_hook(lambda shares, bar: [s + 1 for s in shares])
    y.backward(create_graph=linked)
    assert log == ["grad", ("pre", 1.0), ("post", [6.0, 4.0], 2.0)]
    assert (x.grad.item(), z.grad.item()) == (7.0, 5.0)


def test_node_hooks_see_none_where_nobody_asked():
    x, z, seen = leaf(2.0), leaf(3.0), []
    y = x * z
    y.node.register_hook(lambda shares, bar: seen.append([None if s is None else s.item() for s in shares]))
    y.backward(inputs=z)
    assert seen == [[None, 2.0]]


def test_hooked_node_gives_the_same_bits_as_one_without():
    rng = np.random.default_rng(0)
    data = [rng.normal(size=7) for _ in range(2)]

    def run(hooked):
        x, z = leaf(data[0]), leaf(data[1])
        h = x
        for _ in range(5):
            h = pb.tanh(h * z + x) / (h * h + 1.5)
            if hooked:
                h.node.register_pre_hook(lambda bar: None)
        pb.sum(h).backward()
        return x.grad.numpy(), z.grad.numpy()

    for a, b in zip(run(False), run(True), strict=True):
        np.testing.assert_array_equal(a, b)


def test_hook_on_one_result_of_many_sees_its_own_part():
    x, seen = leaf([1.0, 2.0, 3.0, 4.0]), []
    first, second = pb.split(x, 2)
    first.register_hook(lambda g: (seen.append(g.tolist()), g * 10)[1])
    (pb.sum(first * first) + pb.sum(second)).backward()
    assert (seen, x.grad.tolist()) == ([[2.0, 4.0]], [20.0, 40.0, 1.0, 1.0])


def test_retain_grad_keeps_the_gradient_after_all_hooks():
    x = leaf(2.0)
    middle = x * 3.0
    middle.retain_grad()
    middle.register_hook(lambda g: g * 10)
    (middle * middle).backward()
    assert (middle.grad.item(), x.grad.item()) == (120.0, 360.0)
    x.retain_grad()
    assert x.is_leaf


@pytest.mark.parametrize("times", [1, 2, 3])
def test_retain_grad_said_again_adds_nothing(times):
    x = leaf(2.0)
    middle = x * 3.0
    for _ in range(times):
        middle.retain_grad()
    loss = middle * middle
    loss.backward(retain_graph=True)
    assert middle.grad.item() == 12.0
    loss.backward()
    assert middle.grad.item() == 24.0


def test_retain_grad_needs_a_tracked_tensor():
    with pb.no_grad():
        hidden = leaf(1.0) * 2
    with pytest.raises(errors.GraphError, match="retain_grad"):
        hidden.retain_grad()


@pytest.mark.parametrize("f", [pb.sign, lambda x: pb.stop_gradient(x) * 0.0 + pb.sign(x), lambda x: x * 0.0])
def test_leaf_whose_gradient_is_zero_runs_its_hooks_all_the_same(f):
    x, log = leaf(3.0), []
    x.register_hook(lambda g: (log.append(g.item()), g + 5.0)[1])
    x.register_post_accumulate_grad_hook(lambda t: log.append(t.grad.item()))
    f(x).backward()
    assert (log, x.grad.item()) == ([0.0, 5.0], 5.0)


def test_multi_hook_waits_for_all():
    x, y, z, seen = leaf(2.0), leaf(3.0), leaf(4.0), []
    middle = x * y
    pb.register_multi_grad_hook([z, middle, x], lambda gs: seen.append([g if g is None else g.item() for g in gs]))
    (middle * z).backward()
    assert seen == [[6.0, 4.0, 12.0]]
    (x * x).backward()
    assert seen[1:] == [[None, None, 4.0]]
    (y * y).backward()
    assert len(seen) == 2


def test_multi_hook_is_not_lost_where_one_gradient_is_zero():
    x, y, seen = leaf(2.0), leaf(3.0), []
    pb.register_multi_grad_hook([x, y], lambda gs: seen.append(gs[1].item()))
    (pb.sign(x) + y).backward()
    assert seen == [1.0]


@pytest.mark.parametrize("workers", [1, 3])
def test_multi_hook_takes_any_once(workers):
    size = 1 << 17
    x, y, seen = leaf(np.ones(size)), leaf(np.ones(size)), []
    pb.register_multi_grad_hook([x, y], lambda g: seen.append(g.shape), mode="any")
    for _ in range(2):
        pb.sum(pb.sin(x) * pb.cos(y)).backward(workers=workers)
    assert seen == [(size,)] * 2


def test_multi_hook_over_one_tensor_twice_and_its_removal():
    x, seen = leaf(2.0), []
    handle = pb.register_multi_grad_hook([x, x], lambda gs: seen.append([g.item() for g in gs]))
    (x * x).backward()
    assert handle.remove() is True
    assert handle.remove() is False
    (x * x).backward()
    assert seen == [[4.0, 4.0]]


def test_multi_hook_may_remove_itself():
    x, y, seen = leaf(2.0), leaf(3.0), []
    handle = pb.register_multi_grad_hook([x, y], lambda gs: (seen.append(1), handle.remove()))
    for _ in range(2):
        (x * y).backward()
    assert seen == [1]


def test_multi_hook_arguments_are_checked():
    x = leaf(1.0)
    with pytest.raises(errors.ArgumentError, match="mode"):
        pb.register_multi_grad_hook([x], print, mode="some")
    with pytest.raises(errors.GraphError, match="register_multi_grad_hook"):
        pb.register_multi_grad_hook([x, pb.ones(())], boom)
    (x * 2).backward()


PLACES = ["grad of the root", "grad of a leaf", "post_accumulate", "pre", "post", "multi", "unpack"]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("linked", [False, True])
def test_error_in_a_hook_leaves_everything_as_it_was(place, workers, linked):
    size = 1 << 17 if workers > 1 else 3
    w, x = leaf(np.full(size, 2.0)), leaf(np.full(size, 3.0))
    w.grad = np.full(size, 7.0)
    broken = [True]

    def fail(*args):
        if broken:
            raise BoomError

    def restore(value):
        fail()
        return value

    with pb.saved_tensors_hooks(lambda t: t, restore) if place == "unpack" else pb.enable_grad():
        early = pb.sin(x) * w
        early.retain_grad()
        loss = pb.sum(early * w)
    {
        "grad of the root": lambda: loss.register_hook(fail),
        "grad of a leaf": lambda: x.register_hook(fail),
        "post_accumulate": lambda: x.register_post_accumulate_grad_hook(fail),
        "pre": lambda: early.node.register_pre_hook(fail),
        "post": lambda: early.node.register_hook(fail),
        "multi": lambda: pb.register_multi_grad_hook([x, w], fail),
        "unpack": lambda: None,
    }[place]()
    before = w.grad
    for _ in range(2):
        with pytest.raises(BoomError):
            loss.backward(retain_graph=True, create_graph=linked, workers=workers)
        assert w.grad is before
        assert (x.grad, early.grad) == (None, None)
        assert np.unique(before.numpy()).tolist() == [7.0]
        assert pb.is_grad_enabled()
    broken.clear()
    loss.backward(workers=workers, create_graph=linked)
    np.testing.assert_allclose(x.grad.detach().numpy(), np.full(size, np.cos(3.0) * 4.0), rtol=1e-15)
    np.testing.assert_allclose(w.grad.detach().numpy(), np.full(size, 7.0 + 4.0 * np.sin(3.0)), rtol=1e-15)
    np.testing.assert_array_equal(early.grad.detach().numpy(), np.full(size, 2.0))


def test_failed_pass_gives_its_nodes_back():
    x, w = leaf(1.0), leaf(2.0)
    early = pb.sin(x) * w
    loss = pb.exp(early) + early
    with early.register_hook(boom), pytest.raises(BoomError):
        loss.backward(retain_graph=True)
    nodes = [loss.node]
    for node in nodes:
        nodes.extend(node.parents)
        assert node.bar is None
    assert len(nodes) > 5


def test_gradient_that_a_hook_dropped_comes_back_when_a_later_hook_fails():
    x, w = leaf(1.0), leaf(2.0)
    w.grad = np.asarray(7.0)
    w.register_post_accumulate_grad_hook(lambda t: setattr(t, "grad", None))
    early = pb.sin(x)
    early.register_hook(boom)
    with pytest.raises(BoomError):
        (early * w).backward()
    assert (x.grad, w.grad.item()) == (None, 7.0)


def test_errors_in_gradients_leave_no_state():
    x = leaf(2.0)
    y = x * x
    handle = y.register_hook(boom)
    with pytest.raises(BoomError):
        pb.gradients(y, x, retain_graph=True)
    handle.remove()
    assert pb.gradients(y, x)[0].item() == 4.0


def test_hook_may_go_back_itself():
    x, inner = leaf(2.0), []
    y = x * x

    def second(g):
        z = leaf(3.0)
        (z * z * z).backward()
        inner.append(z.grad.item())

    y.register_hook(second)
    y.backward()
    assert (inner, x.grad.item()) == ([27.0], 4.0)


@pytest.mark.parametrize("linked", [False, True])
def test_hook_may_go_back_over_the_same_graph(linked):
    x, inner = leaf(2.0), []
    y = pb.exp(x)
    z = y * y

    def again(g):
        handle.remove()
        inner.append(pb.gradients(z, x, retain_graph=True, create_graph=linked)[0].item())

    handle = y.register_hook(again)
    z.backward(retain_graph=True)
    wanted = 2 * np.exp(2.0) * np.exp(2.0)
    np.testing.assert_allclose([inner[0], x.grad.item()], [wanted, wanted], rtol=1e-15)
    z.backward()
    np.testing.assert_allclose(x.grad.item(), 2 * wanted, rtol=1e-15)


def test_replacement_in_a_linked_pass_stays_on_the_graph():
    x = leaf(2.0)
    y = x * x
    y.register_hook(lambda g: g * x)
    (g,) = pb.gradients(y, x, create_graph=True)
    assert g.item() == 8.0
    y.node.hooks.entries.clear()
    assert pb.gradients(g, x)[0].item() == 8.0
