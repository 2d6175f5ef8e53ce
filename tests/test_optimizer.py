"""The wrapper for tensors, updates in graphs, the compiled step, and what is refused."""

import numpy as np
import pytest

import pullback as pb

optim = pb.optim
rng = np.random.default_rng(3)
X, Y = rng.normal(size=(12, 3)), rng.normal(size=(12, 2))
W, B = rng.normal(size=(3, 2)), rng.normal(size=2)
RULES = {
    "SGD": {"lr": 0.1, "momentum": 0.9}, "Adam": {"lr": 0.05}, "AdamW": {"lr": 0.05}, "RMSProp": {"lr": 0.02},
    "AdaGrad": {"lr": 0.1}, "AdaDelta": {}, "Adamax": {"lr": 0.05}, "NAdam": {"lr": 0.05}, "RAdam": {"lr": 0.05},
    "Adafactor": {"lr": 0.05}, "LAMB": {"lr": 0.05}, "LARS": {"lr": 1.0}, "Lion": {"lr": 0.01}, "Rprop": {"lr": 0.01},
    "Shampoo": {"lr": 0.1}, "SGLD": {"lr": 0.01},
}  # fmt: skip


def loss(w, b):
    return pb.mean((X @ w + b - Y) ** 2)


def tensors():
    return pb.tensor(W, requires_grad=True), pb.tensor(B, requires_grad=True)


def by_rule(rule, steps):
    params = [W, B]
    state = rule.init(params)
    for _ in range(steps):
        updates, state = rule.update(list(pb.grad(loss, (0, 1))(*params)), state, params)
        params = optim.apply_updates(params, updates)
    return params


def stepped(opt, w, b, steps):
    for _ in range(steps):
        opt.zero_grad()
        loss(w, b).backward()
        opt.step()


@pytest.mark.parametrize("name", RULES)
def test_the_wrapper_steps_as_its_rule(name):
    w, b = tensors()
    stepped(getattr(optim, name)([w, b], **RULES[name]), w, b, 5)
    wanted = by_rule(getattr(optim, name.lower())(**RULES[name]), 5)
    np.testing.assert_allclose(w.detach().numpy(), wanted[0], rtol=1e-12)
    np.testing.assert_allclose(b.detach().numpy(), wanted[1], rtol=1e-12)
    assert w.is_leaf
    assert w.requires_grad


@pytest.mark.parametrize("name", ["SGD", "Adam", "Rprop", "Adafactor"])
def test_compiled_steps_of_the_wrapper_are_the_same(name):
    w, b = tensors()
    opt = getattr(optim, name)([w, b], **RULES[name], jit=True)
    before = w.detach()
    stepped(opt, w, b, 3)
    code = opt.groups[0]._cached_step[1]
    opt.groups[0].settings["lr"] = 0.5 * RULES[name]["lr"]
    stepped(opt, w, b, 1)
    assert opt.groups[0]._cached_step[1] is code
    assert len(code.entries) == 1
    v, c = tensors()
    other = getattr(optim, name)([v, c], **RULES[name])
    stepped(other, v, c, 3)
    other.groups[0].settings["lr"] = 0.5 * RULES[name]["lr"]
    stepped(other, v, c, 1)
    np.testing.assert_allclose(w.detach().numpy(), v.detach().numpy(), rtol=1e-9)
    assert before.tolist() == W.tolist()
    opt.groups[0].settings["lr"] = -1.0
    with pytest.raises(pb.errors.ArgumentError, match="lr must be"):
        opt.step()


@pytest.mark.parametrize("name", ["SGD", "Adam", "NAdam", "Adafactor", "LAMB", "LARS", "Shampoo"])
def test_steps_of_a_graph_are_those_of_the_rule(name):
    g = pb.Graph()
    x, y = g.placeholder("x", (None, 3)), g.placeholder("y", (None, 2))
    w, b = g.variable("w", W), g.variable("b", B)
    error = pb.mean((x @ w + b - y) ** 2)
    short = {"iterations": 2} if name == "Shampoo" else {}  # a graph built by hand writes loops out
    rule = getattr(optim, name.lower())(**RULES[name], **short)
    pairs = list(zip([w, b], g.gradients(error, [w, b]), strict=True))
    step = g.compile([error], updates=rule.updates(pairs))
    for _ in range(3):
        (found,) = step(x=X, y=Y)
    wanted = by_rule(rule, 3)
    np.testing.assert_allclose(g.read(w), wanted[0], rtol=1e-9)
    np.testing.assert_allclose(g.read(b), wanted[1], rtol=1e-9)
    assert found < loss(W, B) or name == "LARS"


def test_a_graph_with_a_plan_two_optimisers_and_the_loss():
    g = pb.Graph()
    w, b = g.variable("w", W), g.variable("b", B)
    error = loss(w, b)
    dw, db = g.gradients(error, [w, b])
    rule = optim.chain(optim.sgd(optim.schedules.cosine(0.1, 10)), optim.reduce_on_plateau())
    step = g.compile(error, updates=[*rule.updates([(w, dw)], value=error), *optim.sgd(0.1, 0.9).updates([(b, db)])])
    first = float(step())
    assert float(step()) < first
    assert len(g.variables) == 2 + 1 + 4 + 1
    with pytest.raises(pb.errors.ArgumentError, match="pairs of"):
        rule.updates([w])
    with pytest.raises(pb.errors.ArgumentError, match="twice"):
        rule.updates([(w, dw), (w, dw)], value=error)
    with pytest.raises(pb.errors.ArgumentError, match="no variables"):
        rule.updates([])
    again = optim.sgd(0.1, 0.9).updates([(b, db)])
    assert again[1][0].name.endswith("(2)")


def test_groups_have_settings_of_their_own_which_may_change():
    w, b = tensors()
    opt = optim.SGD([{"params": [w]}, {"params": {"b": b}, "lr": 0.0}], lr=0.5)
    stepped(opt, w, b, 1)
    assert b.tolist() == B.tolist()
    np.testing.assert_allclose(w.detach().numpy(), W - 0.5 * pb.grad(loss)(W, B))
    opt.groups[0].settings["lr"] = 0.0
    opt.groups[1].settings["lr"] = 0.25
    before = w.tolist()
    stepped(opt, w, b, 1)
    assert w.tolist() == before
    assert b.tolist() != B.tolist()
    assert repr(opt) == "<optimizer: sgd of 1 tensors, sgd of 1 tensors>"


def test_gradients_that_are_given():
    w, b = tensors()
    opt = optim.Adam({"w": w, "b": b}, 0.1)
    opt.apply_gradients([(b, np.ones(2)), (w, pb.tensor(np.ones((3, 2))))])
    np.testing.assert_allclose(w.detach().numpy(), W - 0.1, rtol=1e-6)
    for pairs, message in (
        ([(w, np.ones((3, 2)))], r"no gradient for params\['b'\]"),
        ([(w, 1), (w, 1)], "given twice"),
        ([(pb.tensor(1.0), 1)], "no parameter of this"),
        ([w], "pairs"),
    ):
        with pytest.raises(pb.errors.ArgumentError, match=message):
            opt.apply_gradients(pairs)


def test_a_state_is_saved_and_taken_up_to_the_last_bit():
    w, b = tensors()
    opt = optim.AdamW([w, b], lr=0.05, betas=(0.8, 0.9))
    stepped(opt, w, b, 3)
    saved, there = opt.state_dict(), (w.detach().numpy().copy(), b.detach().numpy().copy())
    stepped(opt, w, b, 4)
    v, c = (pb.tensor(x, requires_grad=True) for x in there)
    other = optim.AdamW([v, c], lr=1.0)
    other.load_state_dict(saved)
    assert other.groups[0].settings["betas"] == (0.8, 0.9)
    stepped(other, v, c, 4)
    assert v.tolist() == w.tolist()
    with pytest.raises(pb.errors.ArgumentError, match="arrays"):
        optim.SGD([w, b], lr=0.1, momentum=0.9).load_state_dict(saved)
    with pytest.raises(pb.errors.ShapeError, match="has shape"):
        optim.AdamW([b, w], lr=0.1).load_state_dict(saved)
    with pytest.raises(pb.errors.ArgumentError, match="1 groups"):
        opt.load_state_dict({"groups": []})


def test_lbfgs_steps_tensors_by_a_closure():
    x = pb.tensor([-1.2, 1.0], requires_grad=True)
    opt = optim.LBFGS([x])

    def closure():
        opt.zero_grad()
        value = (1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2
        value.backward()
        return value

    losses = [float(opt.step(closure).detach()) for _ in range(40)]
    assert losses[0] == pytest.approx(24.2)
    np.testing.assert_allclose(x.detach().numpy(), 1.0, atol=1e-6)
    with pytest.raises(pb.errors.ArgumentError, match="value_and_grad"):
        opt.step()


def test_an_error_leaves_everything_as_it_was():
    w, b = tensors()
    opt = optim.SGD([{"params": [w]}, {"params": [b]}], lr=0.1, momentum=0.9)
    (w * w).sum().backward()
    with pytest.raises(pb.errors.GraphError, match=r"groups\[1\].params\[0\] has no gradient"):
        opt.step()
    assert w.tolist() == W.tolist()
    w.grad, b.grad = pb.tensor(np.ones((3, 2))), pb.tensor(np.ones(2))
    opt.groups[1].settings["lr"] = -1.0
    with pytest.raises(pb.errors.ArgumentError, match="lr must be a number"):
        opt.step()
    assert w.tolist() == W.tolist()
    assert not np.any(opt.groups[0].state[0].slots["momentum"][0])


def test_what_an_optimizer_is_made_of():
    w, b = tensors()
    graph = pb.Graph()
    for params, message in (
        ([], "no parameters"),
        ([w, w], "again"),
        ([np.ones(2)], "only tensors"),
        ([graph.variable("w", W)], "rule.updates"),
    ):
        with pytest.raises(pb.errors.ArgumentError, match=message):
            optim.SGD(params, lr=0.1)
    with pytest.raises(pb.errors.GraphError, match="only leaves"):
        optim.SGD([w * 2], lr=0.1)
    with pytest.raises(pb.errors.ArgumentError, match="settings already, got lr"):
        optim.Optimizer(optim.sgd(0.1), [w], lr=0.1)
    with pytest.raises(TypeError, match="unexpected keyword"):
        optim.SGD([w], lr=0.1, speed=3)
    opt = optim.Optimizer(optim.chain(optim.clip_by_value(0.0), optim.sgd(0.1)), (p for p in (w, b)))
    stepped(opt, w, b, 1)
    assert w.tolist() == W.tolist()


def test_trees_that_do_not_fit_and_other_mistakes():
    rule, params = optim.adam(0.1), {"w": W}
    state = rule.init(params)
    for grads, kind, message in (
        ({"v": W}, pb.errors.ArgumentError, "gradients and parameters: the trees differ"),
        ({"w": W.T}, pb.errors.ShapeError, r"the gradient of params\['w'\] has shape \(2, 3\), the parameter \(3, 2\)"),
        ({"w": W.astype(np.float32)}, pb.errors.DtypeError, r"params\['w'\] is float32, the parameter float64"),
        ({"w": None}, pb.errors.ArgumentError, "trees differ"),
    ):
        with pytest.raises(kind, match=message):
            rule.update(grads, state, params)
    with pytest.raises(pb.errors.ArgumentError, match=r"make one with rule.init"):
        rule.update({"w": W}, optim.sgd(0.1).init(params), params)
    with pytest.raises(pb.errors.ArgumentError, match="state and parameters differ"):
        rule.update({"v": W}, state, {"v": W})
    with pytest.raises(pb.errors.DtypeError, match=r"params\['n'\] is int64"):
        rule.init({"n": np.arange(3)})
    with pytest.raises(pb.errors.ShapeError, match=r"update of params\[0\]"):
        optim.apply_updates([W], [B])


@pytest.mark.parametrize(
    "make",
    [
        lambda: optim.sgd(-0.1),
        lambda: optim.adam(float("nan")),
        lambda: optim.adam(0.1, betas=(0.9, 1.0)),
        lambda: optim.sgd(0.1, momentum=1.5),
        lambda: optim.sgd(0.1, nesterov=True),
        lambda: optim.adamw(0.1, weight_decay=-1.0),
        lambda: optim.clip_by_global_norm(-1.0),
        lambda: optim.multi_steps(optim.sgd(0.1), every=0),
        lambda: optim.lookahead(optim.sgd(0.1), step_size=2.0),
        lambda: optim.rprop(0.1, factors=(1.2, 0.5)),
        lambda: optim.ema(1.0),
        lambda: optim.sgd(np.ones(2)),
        lambda: optim.multi_transform({"a": 0.1}, "a"),
    ],
)
def test_settings_that_make_no_sense(make):
    with pytest.raises(pb.errors.ArgumentError):
        make()


def explained(rule):
    params = {"w": W.astype(np.float32), "b": B.astype(np.float32)}
    x, y = X.astype(np.float32), Y.astype(np.float32)

    def step(params, state, x, y):
        grads = pb.grad(lambda p: pb.mean((x @ p["w"] + p["b"] - y) ** 2))(params)
        updates, state = rule.update(grads, state, params)
        return optim.apply_updates(params, updates), state

    entry = pb.jit(step, donate_argnums=(0, 1)).lower(params, rule.init(params), x, y)
    lines = entry.explain().splitlines()
    return [line for line in lines if line.split()[0].isdigit()]  # the steps, without what is said of the whole


def test_plain_descent_is_inside_the_product_of_the_gradient():
    assert any("product" in line and "added to what is there" in line for line in explained(optim.sgd(0.1)))


@pytest.mark.parametrize("name", ["sgd", "adamw", "lion", "rmsprop"])
def test_an_update_is_one_kernel_for_each_parameter(name):
    settings = {"momentum": 0.9} if name == "sgd" else {}
    rule = getattr(optim, name)(optim.schedules.cosine(0.1, 100), **settings)
    lines = explained(rule)
    assert not any("copy" in line for line in lines)
    products = [i for i, line in enumerate(lines) if "product" in line]
    after = [line for line in lines[products[-1] + 1 :] if "one point" not in line]
    assert len(after) == 2
    assert sum(" 3x2 " in line and "kernel" in line for line in lines) == 1


def test_a_tape_of_single_steps_can_be_differentiated_and_batched():
    """Learn the rate: the derivative of what training leaves, by the rate, on the tape."""
    lr = pb.tensor(0.1, requires_grad=True)
    rule, params = optim.sgd(lr, momentum=0.5), {"w": W, "b": B}
    state = rule.init(params)
    for _ in range(3):
        grads = pb.grad(lambda p: loss(p["w"], p["b"]))(params)
        updates, state = rule.update(grads, state, params)
        params = optim.apply_updates(params, updates)
    loss(params["w"], params["b"]).backward()

    def after(lr):
        return loss(*by_rule(optim.sgd(lr, momentum=0.5), 3))

    assert float(lr.grad) == pytest.approx(float(after(0.1 + 1e-6) - after(0.1 - 1e-6)) / 2e-6, rel=1e-5)
    found = pb.vmap(after)(np.array([0.1, 0.2]))
    np.testing.assert_allclose(found, [after(0.1), after(0.2)])
