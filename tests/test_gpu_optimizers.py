"""Optimizers on a GPU: all parameters of a group in one launch, in place, with the CPU's numbers; in the emulator."""

import fake_cuda_driver
import numpy as np
import pytest

import pullback as pb
from pullback.arrays.trees import flatten

SHAPES = [(3,), (4, 5), (1100,), (), (1,), (2, 1, 3)]
RULES = ["SGD", "Adam", "AdamW", "AdaDelta", "AdaGrad", "Adamax", "Lion", "NAdam", "RAdam", "RMSProp", "Rprop"]


@pytest.fixture
def gpu():
    with fake_cuda_driver.installed() as (cupy, driver):
        yield cupy, driver


def parameters(place, shapes=SHAPES, dtype="float32"):
    rng = np.random.default_rng(0)
    return [pb.tensor(place(rng.normal(size=s).astype(dtype)), requires_grad=True) for s in shapes]


def give_gradients(tensors, place, seed):
    rng = np.random.default_rng(seed)
    for p in tensors:
        p.grad = pb.tensor(place(rng.normal(size=p.shape).astype(p.dtype)))


def train(place, make, steps=4, change=lambda opt, k: None, **options):
    tensors = parameters(place, **options)
    opt = make(tensors)
    for k in range(steps):
        give_gradients(tensors, place, k)
        change(opt, k)
        opt.step()
    return [p.detach().numpy() for p in tensors], opt


def assert_same(found, wanted):
    for mine, theirs in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def halve_rate(opt, k):
    if k == 2:
        opt.groups[0].settings["lr"] = 0.05


@pytest.mark.parametrize("rule", RULES)
def test_a_step_has_the_cpus_bits_and_is_one_launch(gpu, rule):
    cupy, driver = gpu
    make = lambda tensors: getattr(pb.optim, rule)(tensors, lr=0.1)  # noqa: E731
    counts = []

    def change(opt, k):
        halve_rate(opt, k)
        counts.append(driver.log["launches"])

    found, opt = train(cupy.asarray, make, change=change)
    # one more launch writes where the gradients are
    assert driver.log["launches"] - counts[-1] == 2
    wanted, other = train(np.asarray, make, change=halve_rate)
    assert_same(found, wanted)
    for mine, theirs in zip(flatten(opt.groups[0].state)[0], flatten(other.groups[0].state)[0], strict=True):
        np.testing.assert_array_equal(mine.get(), theirs)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_more_parameters_than_one_launch_writes_addresses(gpu, dtype):
    make = lambda tensors: pb.optim.Adam(tensors, lr=0.1)  # noqa: E731
    options = {"shapes": [(i % 7 + 1,) for i in range(250)], "dtype": dtype, "steps": 3}
    assert_same(train(gpu[0].asarray, make, **options)[0], train(np.asarray, make, **options)[0])


def test_values_are_overwritten_only_where_nothing_else_refers_to_them(gpu):
    cupy, _ = gpu
    tensors = parameters(cupy.asarray, [(4,)] * 5)
    opt = pb.optim.SGD(tensors, lr=0.5)
    alias, part, product = tensors[0].detach(), tensors[1].detach()[1:], tensors[2] * tensors[3]
    seen = [alias.numpy(), part.numpy()]
    before = [p.detach().numpy() for p in tensors]
    owned = tensors[4].value
    address = owned.data.ptr
    del owned
    for p in tensors:
        p.grad = pb.tensor(cupy.asarray(np.ones(4, "float32")))
    opt.step()
    assert_same([alias.numpy(), part.numpy()], seen)
    assert_same([p.detach().numpy() for p in tensors], [b - 0.5 for b in before])
    assert tensors[4].value.data.ptr == address
    tensors[2].grad = tensors[3].grad = None
    pb.sum(product).backward()  # what it saved is as it was
    assert_same([tensors[2].grad.numpy(), tensors[3].grad.numpy()], [before[3], before[2]])


def test_a_state_that_was_looked_at_stays_as_it_is(gpu):
    cupy, _ = gpu
    tensors = parameters(cupy.asarray)
    opt = pb.optim.Adam(tensors, lr=0.1)
    give_gradients(tensors, cupy.asarray, 0)
    opt.step()
    state, saved = opt.groups[0].state, opt.state_dict()
    then = [x.get() for x in flatten(state)[0]]
    give_gradients(tensors, cupy.asarray, 1)
    opt.step()
    assert_same([x.get() for x in flatten(state)[0]], then)
    other = pb.optim.Adam(tensors, lr=0.1)
    other.load_state_dict(saved)
    assert_same([x.get() for x in flatten(other.groups[0].state)[0]], then)


def test_frozen_given_and_missing_gradients(gpu):
    results = []
    for place in (np.asarray, gpu[0].asarray):
        tensors = parameters(place, [(3,), (4,), (5,)])
        tensors[1].requires_grad = False
        opt = pb.optim.Adam(tensors, lr=0.1)
        for k in range(3):
            give_gradients([tensors[0], tensors[2]], place, k)
            opt.step()
        opt.apply_gradients([(tensors[0], place(np.ones(3, "float32"))), (tensors[2], place(np.ones(5, "float32")))])
        tensors[0].grad = None
        with pytest.raises(pb.errors.GraphError):
            opt.step()
        results.append([p.detach().numpy() for p in tensors])
    assert_same(*results[::-1])


def test_parameters_that_move_to_a_gpu_take_their_state_along(gpu):
    results = []
    for moves in (False, True):
        net = pb.nn.Sequential(pb.nn.Linear(3, 4, key=pb.random.key(1)), pb.nn.Linear(4, 2, key=pb.random.key(2)))
        opt = pb.optim.Adam(net, lr=0.1)
        x = np.linspace(0, 1, 6).reshape(2, 3).astype(np.float32)
        for k in range(5):
            if moves and k == 2:
                net.to("cuda")
                x = gpu[0].asarray(x)
            opt.zero_grad()
            pb.sum(net(x) ** 2).backward()
            opt.step()
        results.append([p.detach().numpy() for p in opt.groups[0].tensors])
    for mine, theirs in zip(results[1], results[0], strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=2e-5, atol=1e-6)


def test_several_groups_on_another_device_and_layouts(gpu):
    cupy, _ = gpu
    results = []
    for place in (np.asarray, cupy.asarray):
        with cupy.cuda.Device(1):
            tensors = parameters(place, [(3, 4), (5,), (2,)])
            opt = pb.optim.Optimizer(
                pb.optim.adam, [{"params": tensors[:2], "lr": 0.1}, {"params": tensors[2:], "lr": 0.2}]
            )
        for k in range(3):
            with cupy.cuda.Device(1):
                give_gradients(tensors, place, k)
                tensors[0].grad = pb.tensor(place(np.full((4, 3), 0.5, "float32"))).T  # columns first
            opt.step()
        with cupy.cuda.Device(1):
            results.append([p.detach().numpy() for p in tensors])
    assert_same(*results[::-1])


def test_rules_that_sum_over_parameters_and_recorded_steps_go_the_other_way(gpu):
    cupy, _ = gpu
    chain = lambda tensors: pb.optim.Optimizer(  # noqa: E731
        pb.optim.chain(pb.optim.clip_by_global_norm(0.5), pb.optim.adam(0.1)), tensors
    )
    for mine, theirs in zip(train(cupy.asarray, chain)[0], train(np.asarray, chain)[0], strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)
    by_ops = lambda tensors: pb.optim.Adam(tensors, lr=0.1, jit=False)  # noqa: E731
    native = lambda tensors: pb.optim.Adam(tensors, lr=0.1)  # noqa: E731
    for mine, theirs in zip(train(cupy.asarray, by_ops)[0], train(cupy.asarray, native)[0], strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)
    with pb.memory.profile():
        assert_same(train(cupy.asarray, native)[0], train(np.asarray, native)[0])


@pytest.mark.parametrize("rule", ["SGD", "Adam", "RMSProp"])
def test_a_condition_on_the_device_decides_in_the_launch(gpu, rule):
    cupy, driver = gpu
    holds, counts = [True, False, True, False, True], []

    def run(place, step):
        tensors = parameters(place, [(3,), (4, 5), (1100,)])
        opt = getattr(pb.optim, rule)(tensors, lr=0.1)
        for k, accept in enumerate(holds):
            give_gradients(tensors, place, k)
            before = driver.log["launches"]
            step(opt, accept)
            counts.append(driver.log["launches"] - before)
        return [p.detach().numpy() for p in tensors], [np.asarray(x.get()) if hasattr(x, "get") else x
                                                       for x in flatten(opt.groups[0].state)[0]]  # fmt: skip

    found = run(cupy.asarray, lambda opt, accept: opt.step_if(cupy.asarray(accept)))
    assert max(counts[1:]) == 2  # the other one writes where the gradients are
    wanted = run(np.asarray, lambda opt, accept: opt.step() if accept else None)
    assert_same(found[0] + found[1], wanted[0] + wanted[1])
    # groups with settings of their own, and one whose parameters are on the host
    tensors = parameters(cupy.asarray, [(3,), (4,)]) + parameters(np.asarray, [(2,)])
    opt = pb.optim.Adam([{"params": [p], "lr": 0.1 * (i + 1)} for i, p in enumerate(tensors)])
    give_gradients(tensors[:2], cupy.asarray, 0)
    give_gradients(tensors[2:], np.asarray, 0)
    before = [p.detach().numpy().copy() for p in tensors]
    for accept in (False, True):
        opt.step_if(cupy.asarray(accept))
        assert all(np.array_equal(p.detach().numpy(), b) is not accept for p, b in zip(tensors, before, strict=True))


def test_a_scaled_step_is_a_graph_and_a_launch(gpu):
    cupy, driver = gpu

    def run(place):
        tensors, scales = parameters(place, [(3,), (4, 5), (1100,), (2,)]), []
        opt, scaler = pb.optim.Adam(tensors, lr=0.1), pb.amp.GradScaler(init_scale=1024.0, growth_interval=2)
        for k in range(5):
            opt.zero_grad()
            loss = sum(pb.sum(p * p) for p in tensors) * np.float32(np.inf if k == 2 else 1)
            scaler.scale(loss).backward()
            before = driver.log["launches"]
            scaler.step(opt)
            launches = driver.log["launches"] - before
            scaler.update()
            scales.append(scaler.get_scale())
        return scales, [p.detach().numpy() for p in tensors], launches

    (scales, found, launches), (others, wanted, _) = run(cupy.asarray), run(np.asarray)
    assert scales == others == [1024.0, 2048.0, 1024.0, 1024.0, 2048.0]
    assert_same(found, wanted)
    assert launches < 8


def test_nothing_waits_for_a_scaled_step(gpu, monkeypatch):
    cupy, _ = gpu
    kind, tensors = type(cupy.zeros(1)), parameters(cupy.asarray, [(3,), (4, 5)])
    opt, scaler = pb.optim.Adam(tensors, lr=0.1), pb.amp.GradScaler(init_scale=1024.0)
    bad = [cupy.asarray(np.float32(np.inf if k == 2 else 1)) for k in range(5)]

    def refuse(*args, **options):
        raise AssertionError("the host waits for the device")

    for k in range(5):
        opt.zero_grad()
        scaler.scale(sum(pb.sum(p) for p in tensors) * bad[k]).backward()
        scaler.unscale_(opt)
        pb.optim.clip_grad_norm_(tensors, 1.0)
        scaler.step(opt)
        scaler.update()
        if k == 0:  # tables and programs are made
            for name in ("__bool__", "__float__", "__int__", "get", "item"):
                monkeypatch.setattr(kind, name, refuse)
    monkeypatch.undo()
    assert scaler.get_scale() == 512.0
    assert int(opt.groups[0].state[0].steps) == 4


def test_losses_and_parameters_on_two_devices_have_one_scaler(gpu):
    cupy, _ = gpu
    tensors = parameters(cupy.asarray, [(3,), (4,)]) + parameters(np.asarray, [(2,), (5,)])
    start = [p.detach().numpy().copy() for p in tensors]
    scaler = pb.amp.GradScaler(init_scale=8.0)
    together = pb.optim.SGD([{"params": [tensors[0]]}, {"params": [tensors[2]]}], lr=0.5)
    apart = [pb.optim.SGD([tensors[i]], lr=0.5) for i in (3, 1)]
    for k, last in enumerate([(2.0, True), (np.inf, False)]):
        for p in tensors:
            p.grad = None
        losses = scaler.scale([pb.sum(p) for p in tensors[:3]] + [pb.sum(tensors[3]) * np.float32(last[0])])
        assert [x.device for x in losses] == ["cuda:0", "cuda:0", "cpu", "cpu"]
        for x in losses:
            x.backward()
        scaler.unscale_(apart[1])
        for opt in (together, *apart):
            scaler.step(opt)
        scaler.update()
        for i, (p, before) in enumerate(zip(tensors, start, strict=True)):
            moved = 1.0 if i == 3 else 0.5 * (k + 1)
            np.testing.assert_allclose(p.detach().numpy(), before - moved, rtol=1e-6)
        assert scaler.get_scale() == (8.0 if last[1] else 4.0)
