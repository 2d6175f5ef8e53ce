"""Optimizers as PyTorch's users write them: frozen parameters, parameter groups, default rates, clipped gradients."""

import copy
import inspect
import pickle

import numpy as np
import pytest

import pullback as pb


def parameters():
    return [pb.tensor(np.full(s, v, np.float32), requires_grad=True) for s, v in (((3, 2), 1.0), (2, 2.0), (4, 3.0))]


def step(opt, tensors):
    opt.zero_grad()
    loss = sum(pb.sum(p**2) for p in tensors if p.requires_grad)
    if isinstance(loss, pb.Tensor):
        loss.backward()
    opt.step()


@pytest.mark.parametrize("jit", [None, False, True])
@pytest.mark.parametrize("name", ["AdamW", "SGD", "Adafactor", "RMSProp"])
def test_frozen_parameters_keep_their_value_and_can_be_trained_again(name, jit):
    """The others step exactly as if the frozen ones were not there."""
    kind = getattr(pb.optim, name)
    tensors, alone = parameters(), parameters()
    momentum = {"momentum": 0.9} if name == "SGD" else {}
    opt = kind(tensors, lr=0.01, jit=jit, **momentum)
    reference = kind([alone[0], alone[2]], lr=0.01, jit=jit, **momentum)
    tensors[1].requires_grad_(False)
    for _ in range(3):
        step(opt, tensors)
        step(reference, [alone[0], alone[2]])
    assert tensors[1].tolist() == [2.0, 2.0]
    for mine, other in zip((tensors[0], tensors[2]), (alone[0], alone[2]), strict=True):
        np.testing.assert_allclose(mine.detach().numpy(), other.detach().numpy(), rtol=1e-6)
    tensors[1].requires_grad_(True)
    step(opt, tensors)
    assert tensors[1].tolist() != [2.0, 2.0]


def test_the_state_of_a_frozen_parameter_waits():
    results = []
    for jit in (None, False):
        tensors = parameters()
        opt = pb.optim.SGD(tensors, lr=0.1, momentum=0.9, jit=jit)
        step(opt, tensors)
        tensors[1].requires_grad_(False)
        before = np.array(opt.state_dict()["groups"][0]["state"][0].slots["momentum"][1])
        step(opt, tensors)
        after = opt.state_dict()["groups"][0]["state"][0].slots["momentum"]
        np.testing.assert_array_equal(after[1], before)
        results.append(np.array(after[0]))
    np.testing.assert_allclose(*results, rtol=1e-6)


def test_freezing_all_parameters_makes_a_step_do_nothing():
    tensors = parameters()
    opt = pb.optim.Adam(tensors)
    for p in tensors:
        p.requires_grad_(False)
    step(opt, tensors)
    assert tensors[0].tolist() == [[1.0, 1.0]] * 3


def test_layers_frozen_before_the_optimizer_is_made():
    net = pb.nn.Sequential(pb.nn.Linear(2, 3), pb.tanh, pb.nn.Linear(3, 1))
    net[0].requires_grad_(False)
    opt = pb.optim.Adam(net.parameters())
    before = net[0].weight.numpy().copy(), net[2].weight.detach().numpy().copy()
    for _ in range(2):
        opt.zero_grad()
        pb.mean(net(np.ones((4, 2), np.float32)) ** 2).backward()
        opt.step()
    np.testing.assert_array_equal(net[0].weight.numpy(), before[0])
    assert (net[2].weight.detach().numpy() != before[1]).all()


def test_a_parameter_that_backward_has_not_reached_is_still_an_error():
    tensors = parameters()
    opt = pb.optim.SGD(tensors)
    tensors[0].requires_grad_(False)
    pb.sum(tensors[1]).backward()
    with pytest.raises(pb.errors.GraphError, match=r"params\[2\] has no gradient"):
        opt.step()


def test_given_gradients_may_leave_out_what_is_frozen_and_come_in_either_order():
    tensors = parameters()
    opt = pb.optim.SGD(tensors, lr=0.5)
    tensors[0].requires_grad_(False)
    opt.apply_gradients([(tensors[1], np.ones(2, np.float32)), (np.ones(4, np.float32), tensors[2])])
    assert tensors[1].tolist() == [1.5, 1.5]
    assert tensors[2].tolist() == [2.5] * 4
    with pytest.raises(pb.errors.ArgumentError, match=r"Pairs are \(parameter, gradient\)"):
        opt.apply_gradients([(np.ones(2), np.ones(2))])


def test_a_gradient_that_is_there_is_stepped_by():
    tensors = parameters()
    opt = pb.optim.SGD(tensors, lr=0.5)
    tensors[1].requires_grad_(False)
    step(opt, tensors)
    before = tensors[1].tolist()
    opt.apply_gradients([(p, np.ones(p.shape, np.float32)) for p in tensors])
    assert tensors[1].tolist() == [x - 0.5 for x in before]
    step(opt, tensors)
    tensors[1].grad = pb.tensor(np.ones(2, np.float32))
    opt.step()
    assert tensors[1].tolist() == [x - 1.0 for x in before]


@pytest.mark.parametrize("jit", [None, False])
def test_a_group_may_be_frozen_whole(jit):
    first, second, third = parameters()
    opt = pb.optim.AdamW([{"params": [first]}, {"params": [second, third], "lr": 0.1}], jit=jit)
    for p in (first, third):
        p.requires_grad_(False)
    for _ in range(2):
        step(opt, [first, second, third])
    assert first.tolist() == [[1.0, 1.0]] * 3
    assert third.tolist() == [3.0] * 4
    assert second.tolist() != [2.0, 2.0]


@pytest.mark.parametrize(
    ("name", "rate"),
    [("Adam", 1e-3), ("AdamW", 1e-3), ("SGD", 1e-3), ("RMSProp", 1e-2), ("AdaGrad", 1e-2), ("AdaDelta", 1.0),
     ("Adamax", 2e-3), ("NAdam", 2e-3), ("RAdam", 1e-3), ("Rprop", 1e-2), ("LBFGS", 1.0), ("Adafactor", 1e-2),
     ("Muon", 1e-3)],
)  # fmt: skip
def test_default_rates_are_those_of_pytorch(name, rate):
    kind = getattr(pb.optim, name)
    assert inspect.signature(kind).parameters["lr"].default == rate
    assert kind([pb.tensor([[1.0]], requires_grad=True)]).get_last_lr() == [rate]


def test_settings_known_from_elsewhere_are_named():
    (w, *_) = parameters()
    with pytest.raises(TypeError, match=r"Adam: .*'learning_rate'; here it is lr\."):
        pb.optim.Adam([w], learning_rate=0.1)
    with pytest.raises(TypeError, match=r"'foreach'; settings are lr, betas"):
        pb.optim.Adam([w], foreach=True)
    with pytest.raises(TypeError, match=r"Lion: missing .*'lr'"):
        pb.optim.Lion([w])


def test_groups_read_and_write_as_dicts():
    first, second, third = parameters()
    opt = pb.optim.Adam([first], lr=0.1)
    opt.add_param_group({"params": [second], "lr": 0.2})
    assert [g["lr"] for g in opt.param_groups] == [0.1, 0.2]
    for group in opt.param_groups:
        group["lr"] /= 2
    assert opt.get_last_lr() == [0.05, 0.1]
    assert opt.param_groups[0]["params"] == [first]
    assert opt.param_groups[0]["betas"] == (0.9, 0.999)
    assert set(opt.param_groups[0]) == {"params", "lr", "betas", "eps", "amsgrad", "weight_decay"}
    step(opt, [first, second])
    np.testing.assert_allclose(first.detach().numpy(), 0.95, rtol=1e-5)
    np.testing.assert_allclose(second.detach().numpy(), 1.9, rtol=1e-5)
    with pytest.raises(pb.errors.ArgumentError, match="no setting 'speed'"):
        _ = opt.param_groups[0]["speed"]
    with pytest.raises(pb.errors.ArgumentError, match="cannot be set"):
        opt.param_groups[0]["params"] = [third]
    with pytest.raises(pb.errors.ArgumentError, match="again"):
        opt.add_param_group({"params": first})
    assert len(opt.groups) == 2


@pytest.mark.parametrize("jit", [None, False])
def test_the_rate_of_a_schedule_follows_the_steps(jit):
    (w, *_) = parameters()
    opt = pb.optim.Adam([w], lr=pb.optim.schedules.exponential(0.1, 0.5), jit=jit)
    rates = []
    for _ in range(3):
        rates += opt.get_last_lr()
        step(opt, [w])
    np.testing.assert_allclose(rates, [0.1, 0.05, 0.025])
    other = pb.optim.Adam([w], lr=pb.optim.schedules.exponential(0.1, 0.5), jit=jit)
    other.load_state_dict(opt.state_dict())
    np.testing.assert_allclose(other.get_last_lr(), [0.0125])


@pytest.mark.parametrize("twin", [copy.deepcopy, lambda opt: pickle.loads(pickle.dumps(opt))])
def test_copies_keep_what_is_frozen(twin):
    tensors = parameters()
    opt = pb.optim.Adam(tensors)
    tensors[1].requires_grad_(False)
    step(opt, tensors)
    other = twin(opt)
    copies = other.groups[0].tensors
    assert [p.requires_grad for p in copies] == [True, False, True]
    step(other, copies)
    step(opt, tensors)
    for mine, theirs in zip(tensors, copies, strict=True):
        assert mine.tolist() == theirs.tolist()


def test_gradients_are_cleared_or_set_to_zero():
    (w, *_) = parameters()
    opt = pb.optim.SGD([w])
    pb.sum(w).backward()
    opt.zero_grad(set_to_none=False)
    assert w.grad.tolist() == [[0.0, 0.0]] * 3
    opt.zero_grad()
    assert w.grad is None
    opt.zero_grad(set_to_none=False)
    assert w.grad is None


@pytest.mark.parametrize("norm", [1.0, 2.0, np.inf])
def test_gradients_are_clipped_by_their_norm(norm):
    tensors = parameters()
    sum(pb.sum(p**2) for p in tensors[:2]).backward()
    flat = np.concatenate([p.grad.numpy().ravel() for p in tensors[:2]]).astype(float)
    before = [p.grad.numpy().copy() for p in tensors[:2]]
    total = pb.optim.clip_grad_norm_(tensors, 1.5, norm_type=norm)
    np.testing.assert_allclose(total.item(), np.linalg.norm(flat, norm), rtol=1e-6)
    for p, g in zip(tensors[:2], before, strict=True):
        np.testing.assert_allclose(p.grad.numpy(), g * 1.5 / np.linalg.norm(flat, norm), rtol=1e-5)
        assert p.grad.dtype == p.dtype
    assert tensors[2].grad is None
    assert pb.optim.clip_grad_norm_(tensors, 9.0, norm_type="inf").item() == max(
        np.abs(p.grad.numpy()).max() for p in tensors[:2]
    )
    again = [p.grad.numpy().copy() for p in tensors[:2]]
    pb.optim.clip_grad_norm_((p for p in tensors), 100.0)
    for p, g in zip(tensors[:2], again, strict=True):
        np.testing.assert_array_equal(p.grad.numpy(), g)


def test_gradients_are_clipped_by_value_and_mistakes_are_errors():
    net = pb.nn.Linear(2, 1)
    pb.sum(net(np.array([[3.0, 0.5]], np.float32))).backward()
    pb.optim.clip_grad_value_(net, 1.0)
    assert net.weight.grad.tolist() == [[1.0, 0.5]]
    net.zero_grad()
    with pytest.raises(pb.errors.GraphError, match="none of these has a gradient"):
        pb.optim.clip_grad_norm_(net.parameters(), 1.0)
    net.weight.grad = pb.tensor(np.full((1, 2), np.nan, np.float32))
    with pytest.raises(pb.errors.GraphError, match="norm of the gradients is nan"):
        pb.optim.clip_grad_norm_(net.parameters(), 1.0, error_if_nonfinite=True)


def test_save_says_the_order_of_its_arguments(tmp_path):
    with pytest.raises(TypeError, match=r"The path comes first: pb\.save\(path, tree\)"):
        pb.save({"w": np.ones(2)}, tmp_path / "w.safetensors")
