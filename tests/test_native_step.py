"""Native steps of optimizers: against the rule op by op, against the papers' formulas in NumPy, and what they must not
write to.
"""

import copy
import gc
import pickle
import threading
import weakref

import numpy as np
import optimisers as by_hand
import pytest

import pullback as pb
from pullback.arrays.trees import flatten
from pullback.compile.cpu import row_table
from pullback.compile.cpu.runtime.link import has_llvm
from pullback.instrument import Instrument
from pullback.optim.stateful import leaf_program
from pullback.settings import override_modes

pytestmark = pytest.mark.skipif(not has_llvm(), reason="native steps need llvmlite")
optim = pb.optim
rng = np.random.default_rng(5)
#: Around the length of a chunk, without elements, without axes, and of several axes.
SHAPES = [(3, 2), (2,), (), (0, 3), (7, 5, 4), (127,), (128,), (129,), (300, 7)]
PLAN = optim.schedules.warm_up(3, then=optim.schedules.cosine(1e-2, 10))
MATRICES = [len(shape) > 1 for shape in SHAPES]
RULES = {
    "sgd": lambda: optim.sgd(0.1),
    "momentum": lambda: optim.sgd(0.1, momentum=0.9, nesterov=True, weight_decay=0.1),
    "adam": lambda: optim.adam(0.05, weight_decay=0.01),
    "amsgrad": lambda: optim.adam(PLAN, amsgrad=True),
    "adamw": lambda: optim.adamw(0.05, mask=MATRICES),
    "adamax": lambda: optim.adamax(0.05),
    "nadam": lambda: optim.nadam(0.05),
    "radam": lambda: optim.radam(0.05),
    "adagrad": lambda: optim.adagrad(0.1, initial=0.1),
    "rmsprop": lambda: optim.rmsprop(0.02, centered=True, momentum=0.5),
    "adadelta": lambda: optim.adadelta(),
    "lion": lambda: optim.lion(0.01, weight_decay=0.1),
    "rprop": lambda: optim.rprop(0.01),
    "scale": lambda: optim.scale(-0.1),
    "by value": lambda: optim.chain(optim.clip_by_value(0.5), optim.sgd(PLAN)),
    "frozen": lambda: optim.chain(optim.adam(0.01), optim.freeze(MATRICES)),
    "labels": lambda: optim.multi_transform(
        {"a": optim.adam(0.01), "b": optim.sgd(0.1, 0.9)}, ["a" if m else "b" for m in MATRICES]
    ),
    "accumulated": lambda: optim.multi_steps(optim.adam(PLAN), 3),
    "finite": lambda: optim.apply_if_finite(optim.adam(0.01)),
    "lookahead": lambda: optim.lookahead(optim.adam(0.01), every=2),
}
#: Sums are added in another order, so these agree to rounding alone.
SUMMING_RULES = {
    "lamb": lambda: optim.lamb(0.05),
    "lars": lambda: optim.lars(1.0),
    "by norm": lambda: optim.chain(optim.clip_by_norm(1.0), optim.lamb(0.01)),
    "by global norm": lambda: optim.chain(optim.clip_by_global_norm(1.0), optim.adam(PLAN)),
    "with a mask": lambda: optim.chain(optim.clip_by_global_norm(1.0), optim.adamw(0.01, mask=MATRICES)),
    "two sums": lambda: optim.chain(optim.clip_by_global_norm(2.0), optim.clip_by_global_norm(1.0), optim.sgd(0.1)),
    "accumulated": lambda: optim.multi_steps(optim.chain(optim.clip_by_global_norm(0.5), optim.adam(0.01)), 2),
    "finite": lambda: optim.apply_if_finite(optim.chain(optim.clip_by_global_norm(1.0), optim.adam(0.01))),
}


def numbers(dtype, steps):
    values = [rng.normal(size=shape).astype(dtype) for shape in SHAPES]
    return values, [[rng.normal(size=shape).astype(dtype) for shape in SHAPES] for _ in range(steps)]


def parameters(values):
    return [pb.tensor(x, requires_grad=True) for x in values]


def set_gradients(tensors, grads):
    for tensor, g in zip(tensors, grads, strict=True):
        tensor.grad = pb.tensor(g)


def trained(opt, tensors, all_grads):
    """What a run leaves: parameters and state."""
    for grads in all_grads:
        set_gradients(tensors, grads)
        opt.step()
    assert (opt.groups[0]._native is not None) == (opt.groups[0]._is_compiled is None)
    return [*(t.detach().numpy() for t in tensors), *map(np.asarray, flatten(opt.groups[0].state)[0])]


def run_both(rule, dtype, steps=6):
    values, grads = numbers(dtype, steps)
    return [trained(optim.Optimizer(rule, ts := parameters(values), jit=jit), ts, grads) for jit in (None, False)]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", RULES)
def test_a_native_step_has_the_bits_of_the_rule(name, dtype):
    for native, plain in zip(*run_both(RULES[name](), dtype), strict=True):
        assert native.dtype == plain.dtype
        np.testing.assert_array_equal(native, plain)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", SUMMING_RULES)
def test_a_native_step_with_sums_agrees_with_the_rule(name, dtype):
    tolerance = {"float32": 2e-5, "float64": 1e-13}[dtype]
    for native, plain in zip(*run_both(SUMMING_RULES[name](), dtype), strict=True):
        np.testing.assert_allclose(native, plain, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.05}),
        ("Adam", {"lr": 0.05, "betas": (0.8, 0.95), "amsgrad": True}),
        ("Adamax", {"lr": 0.05}),
        ("NAdam", {"lr": 0.05}),
        ("RAdam", {"lr": 0.05}),
        ("AdaGrad", {"lr": 0.05}),
        ("RMSProp", {"lr": 0.05, "momentum": 0.3}),
        ("AdaDelta", {}),
        ("Lion", {"lr": 0.05}),
        ("LAMB", {"lr": 0.05}),
        ("LARS", {"lr": 0.5}),
    ],
)
def test_native_steps_follow_the_papers(name, settings):
    values, all_grads = numbers("float64", 5)
    tensors = parameters(values)
    trained(getattr(optim, name)(tensors, **settings), tensors, all_grads)
    step = getattr(by_hand, name.lower())(**settings)
    for i, tensor in enumerate(tensors):
        if not values[i].size:
            continue  # the formulas divide by its norm
        w, kept = values[i], {}
        for t, grads in enumerate(all_grads, 1):
            w = step(w, grads[i], kept, t)
        np.testing.assert_allclose(tensor.detach().numpy(), w, rtol=1e-9, atol=1e-12)


def quadratic(shape=(5, 4), **settings):
    w = pb.tensor(rng.normal(size=shape), requires_grad=True)
    return w, optim.Adam([w], lr=0.1, **settings)


def step_once(w, opt):
    opt.zero_grad()
    (w * w).sum().backward()
    opt.step()


def test_steps_are_in_place_and_keep_the_leaf():
    w, opt = quadratic()
    array, node = w.value, w.node
    place = array.ctypes.data
    del array
    before = w.tolist()
    step_once(w, opt)
    assert w.value.ctypes.data == place
    assert w.node is node
    assert w.is_leaf
    assert w.tolist() != before


#: What may hold a parameter's array, and its numbers.
HOLDERS = {
    "a variable": (lambda w: w.detach(), lambda held: held.tolist()),
    "an array": (lambda w: w.value, lambda held: held.tolist()),
    "a view": (lambda w: w.detach().numpy(), lambda held: held.tolist()),
    "a part": (lambda w: w.value[1:, ::2], lambda held: held.tolist()),
    "a memoryview": (lambda w: memoryview(w.value), lambda held: held.tolist()),
}


@pytest.mark.parametrize("name", HOLDERS)
def test_an_array_that_is_held_is_not_written(name):
    hold, read = HOLDERS[name]
    w, opt = quadratic()
    held = hold(w)
    before, value, place = read(held), w.tolist(), w.value.ctypes.data
    step_once(w, opt)
    assert w.tolist() != value
    assert w.value.ctypes.data != place
    assert read(held) == before
    del held
    place = w.value.ctypes.data
    step_once(w, opt)
    assert w.value.ctypes.data == place


def test_an_array_with_a_weak_reference_is_not_written():
    w, opt = quadratic()
    held, place = weakref.ref(w.value), w.value.ctypes.data
    step_once(w, opt)
    assert held() is None
    assert w.value.ctypes.data != place


@pytest.mark.parametrize("save", ["multiply", "matmul", "checkpoint", "hooks"])
def test_a_graph_that_is_kept_differentiates_the_old_value(save):
    x = rng.normal(size=(4, 3))
    w, opt = quadratic((5, 4))

    def f(w):
        return pb.sum((w * w * 2 if save == "multiply" else pb.tanh(w @ x)) ** 2)

    wanted = pb.grad(f)(w.detach().numpy().copy())
    if save == "hooks":
        with pb.saved_tensors_hooks(lambda a: a, lambda a: a):
            loss = f(w)
    else:
        loss = pb.checkpoint(f)(w) if save == "checkpoint" else f(w)
    loss.backward(retain_graph=True)
    opt.step()
    w.grad = None
    loss.backward()
    np.testing.assert_allclose(w.grad.numpy(), wanted, rtol=1e-12)


def test_a_graph_of_the_forward_pass_alone_is_kept_too():
    w, opt = quadratic()
    w.grad = pb.tensor(np.ones((5, 4)))
    wanted = 3 * w.value**2
    loss = (w * w * w).sum()
    opt.step()
    w.grad = None
    loss.backward()
    np.testing.assert_allclose(w.grad.numpy(), wanted, rtol=1e-12)


def counting(monkeypatch):
    calls = []
    compile_rows = leaf_program.compile_rows
    monkeypatch.setattr(leaf_program, "compile_rows", lambda *args: (calls.append(args), compile_rows(*args))[1])
    monkeypatch.setattr(leaf_program, "_codes", type(leaf_program._codes)())
    return calls


def test_shapes_numbers_and_settings_share_one_code(monkeypatch):
    calls = counting(monkeypatch)
    for n in range(1, 21):
        tensors = parameters([rng.normal(size=(n, i + 1)).astype("f") for i in range(n)])
        opt = optim.Adam(tensors, lr=0.1 / n, betas=(0.9 - n / 100, 0.99))
        for step in range(3):
            set_gradients(tensors, [np.ones(t.shape, "f") for t in tensors])
            opt.groups[0].settings["lr"] = 0.1 / (step + n)
            opt.step()
        assert opt.groups[0]._native is not None
    assert len(calls) == 1
    w, opt = quadratic((3,))
    step_once(w, opt)
    assert len(calls) == 2  # float64
    plan = optim.Adam([w], lr=PLAN)
    for _ in range(5):
        step_once(w, plan)
    assert len(calls) == 3


def test_settings_that_change_take_effect_and_are_checked():
    w, opt = quadratic((3,), weight_decay=0.1)
    v = pb.tensor(w.value, requires_grad=True)
    other = optim.Adam([v], lr=0.1, weight_decay=0.1, jit=False)
    for settings in ({}, {"lr": 0.03}, {"lr": 1e-3, "betas": (0.5, 0.6)}, {"weight_decay": 0.3}, {"amsgrad": False}):
        for each in (opt, other):
            each.groups[0].settings.update(settings)
        step_once(w, opt)
        step_once(v, other)
        assert w.tolist() == v.tolist()
    before = w.tolist()
    opt.groups[0].settings["lr"] = -1.0
    with pytest.raises(pb.errors.ArgumentError, match="lr must be"):
        opt.step()
    assert w.tolist() == before
    opt.groups[0].settings.update(lr=0.1, weight_decay=0.0)  # another rule, with another state
    with pytest.raises(pb.errors.ArgumentError, match="belongs to another rule"):
        opt.step()


def test_a_state_that_was_handed_out_stays_as_it_was():
    w, opt = quadratic()
    step_once(w, opt)
    state = opt.groups[0].state
    mean, count = state[0].slots["mean"][0], state[0].steps
    before = mean.copy()
    step_once(w, opt)
    np.testing.assert_array_equal(mean, before)
    assert int(count) == 1
    assert int(opt.groups[0].state[0].steps) == 2
    opt.groups[0].state = state
    saved = opt.state_dict()
    step_once(w, opt)
    assert int(opt.groups[0].state[0].steps) == 2
    assert int(saved["groups"][0]["state"][0].steps) == 1


def test_a_run_is_resumed_to_the_last_bit(tmp_path):
    values, all_grads = numbers("float32", 8)
    tensors = parameters(values)
    opt = optim.NAdam(tensors, lr=0.05)
    trained(opt, tensors, all_grads[:4])
    pb.save(tmp_path / "state", opt.state_dict())
    others = parameters([t.value for t in tensors])
    again = optim.NAdam(others, lr=1.0)
    again.load_state_dict(pb.load(tmp_path / "state"))
    for found, wanted in zip(trained(again, others, all_grads[4:]), trained(opt, tensors, all_grads[4:]), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_states_with_other_numbers_step_beside_each_other():
    w, v = parameters([np.ones(3), np.ones(3)])
    opt = optim.NAdam([w, v], lr=0.05)
    state = opt.groups[0].state
    state[0].slots["product"][1] = np.array(0.5)
    opt.groups[0].state = state
    set_gradients([w, v], [np.ones(3)] * 2)
    opt.step()
    assert len(opt.groups[0]._native.parts) == 2
    assert w.tolist() != v.tolist()


@pytest.mark.parametrize("order", ["C", "F"])
def test_layouts_of_values_and_gradients(order):
    values = [rng.normal(size=(6, 4)).T, np.asfortranarray(rng.normal(size=(3, 5, 2))), rng.normal(size=(9,))[::2]]
    grads = [np.array(rng.normal(size=x.shape), order=order) for x in values]
    found = []
    for jit in (None, False):
        tensors = parameters(values)
        opt = optim.Adam(tensors, lr=0.1, jit=jit)
        for tensor, g in zip(tensors, grads, strict=True):
            tensor.grad = pb.asarray(g, copy=False) if order == "F" else pb.tensor(g)
        for _ in range(3):
            opt.step()
        found.append([t.tolist() for t in tensors])
    assert found[0] == found[1]


def test_gradients_that_share_memory():
    w, v = parameters([np.arange(4.0), np.ones(4)])
    opt = optim.SGD([w, v], lr=0.5)
    w.grad, v.grad = w.detach(), w.detach()
    opt.step()
    assert w.tolist() == [0.0, 0.5, 1.0, 1.5]
    assert v.tolist() == [1.0, 0.5, 0.0, -0.5]
    g = pb.tensor(np.ones(4))
    w.grad = v.grad = g
    opt.step()
    assert g.tolist() == [1.0] * 4


def test_tensors_that_share_an_array():
    array = np.ones(3)
    w, v = (pb.asarray(array, copy=False) for _ in range(2))
    for tensor in (w, v):
        tensor.requires_grad = True
    set_gradients([w, v], [np.ones(3), np.full(3, 2.0)])
    optim.SGD([w, v], lr=1.0).step()
    assert array.tolist() == [1.0] * 3
    assert (w.tolist(), v.tolist()) == ([0.0] * 3, [-1.0] * 3)


def test_what_is_refused_leaves_everything_as_it_was():
    w, v = parameters([np.ones(3), np.ones(2)])
    opt = optim.SGD([{"params": [w]}, {"params": [v]}], lr=0.1, momentum=0.9)
    w.grad = pb.tensor(np.ones(3))
    with pytest.raises(pb.errors.GraphError, match=r"groups\[1\].params\[0\] has no gradient"):
        opt.step()
    with pytest.raises(pb.errors.ShapeError, match="has shape"):
        opt.apply_gradients([(w, np.ones(3)), (v, np.ones(3))])
    with pytest.raises(pb.errors.DtypeError, match="float32"):
        opt.apply_gradients([(w, np.ones(3)), (v, np.ones(2, "f"))])
    assert (w.tolist(), v.tolist()) == ([1.0] * 3, [1.0] * 2)
    opt.apply_gradients([(w, np.ones(3)), (v, pb.tensor(np.ones(2)))])
    np.testing.assert_allclose([*w.tolist(), *v.tolist()], 0.9)


@pytest.mark.parametrize(
    ("make", "dtype"),
    [
        (lambda: optim.adam(0.1), "float16"),
        (lambda: optim.adam(0.1), "complex128"),
        (lambda: optim.adafactor(0.1), "float64"),
        (lambda: optim.shampoo(0.1), "float64"),
        (lambda: optim.chain(optim.centralize(), optim.sgd(0.1)), "float64"),
        (lambda: optim.chain(optim.adaptive_clip(), optim.sgd(0.1)), "float64"),
        (lambda: optim.chain(optim.clip_by_global_norm(1.0), optim.lamb(0.1)), "float64"),
        (lambda: optim.sgld(0.1), "float64"),
        (lambda: optim.adam(np.array(0.1)), "float64"),
        (lambda: optim.adam(pb.tensor(0.1)), "float64"),
        (lambda: optim.Rule("mine", lambda p: (), lambda g, s, p, e: ([-0.1 * x for x in g], s)), "float64"),
    ],
)
def test_other_rules_and_dtypes_step_op_by_op(make, dtype):
    values = [np.ones((2, 3), dtype), np.ones(4, dtype)]
    found = []
    for jit in (None, False):
        tensors = parameters(values)
        opt = optim.Optimizer(make(), tensors, jit=jit)
        for _ in range(2):
            set_gradients(tensors, [0.5 * x for x in values])
            opt.step()
        assert opt.groups[0]._native is None
        found.append([t.tolist() for t in tensors])
    assert found[0] == found[1]


def test_two_dtypes_in_one_group():
    found = []
    for jit in (None, False):
        tensors = parameters([np.ones(3, "f"), np.ones(3), np.ones((2, 2), "f")])
        opt = optim.Adam(tensors, lr=0.1, jit=jit)
        for k in range(3):
            set_gradients(tensors, [np.full(t.shape, k + 1, t.dtype) for t in tensors])
            opt.step()
        found.append([t.tolist() for t in tensors])
    assert found[0] == found[1]
    clipped = optim.Optimizer(optim.chain(optim.clip_by_global_norm(1.0), optim.sgd(0.1)), tensors)
    clipped.step()
    assert clipped.groups[0]._native is None


def test_a_setting_that_is_an_array_may_change():
    rate = np.array(0.5)
    w = pb.tensor([1.0], requires_grad=True)
    opt = optim.SGD([w], lr=rate)
    w.grad = pb.tensor([1.0])
    opt.step()
    rate[...] = 0.25
    opt.step()
    assert w.tolist() == [0.25]


def test_rules_of_your_own():
    factor = [2.0]

    def step(g, slots, p, t):
        size = pb.sqrt(pb.sum(g * g))
        seen = slots["seen"] + abs(g)
        return -factor[0] * g / (size + seen), {"seen": seen}

    mine = optim.chain(
        optim.leafwise_rule("mine", lambda p: {"seen": np.zeros(p.shape, p.dtype)}, step, flat=True),
        optim.stateless_rule("halved", lambda g, p: g / 2, flat=True),
    )
    for native, plain in zip(*run_both(mine, "float64"), strict=True):
        np.testing.assert_allclose(native, plain, rtol=1e-12, atol=1e-12)
    w, v = parameters([np.ones(3), np.ones(3)])
    one, other = optim.Optimizer(mine, [w]), optim.Optimizer(mine, [v], jit=False)
    for factor[0] in (2.0, 3.0):  # read at each step
        step_once(w, one)
        step_once(v, other)
        np.testing.assert_allclose(w.detach().numpy(), v.detach().numpy(), rtol=1e-12)
    assert one.groups[0]._native is not None


@pytest.mark.parametrize(
    "update",
    [
        lambda g, p: -g / pb.sqrt(pb.mean(g * g)),
        lambda g, p: -g / g.size,
        lambda g, p: -pb.cumsum(g),
        lambda g, p: -g * np.arange(g.size),
        lambda g, p: -g * pb.max(abs(g), axis=0, keepdims=True),
    ],
)
def test_a_rule_that_depends_on_the_length_of_a_row_steps_op_by_op(update):
    found = []
    for jit in (None, False):
        w = pb.tensor([1.0, 2.0, 3.0], requires_grad=True)
        opt = optim.Optimizer(optim.stateless_rule("mine", update, flat=True), [w], jit=jit)
        step_once(w, opt)
        found.append(w.tolist())
    assert found[0] == found[1]


def test_a_rule_that_looks_at_its_numbers_still_steps_natively():
    def maker(lr, share=0.5):
        if share > 0.4:
            lr = lr / 2
        return optim.sgd(lr)

    w = pb.tensor([1.0], requires_grad=True)
    opt = optim.Optimizer(maker, [w], lr=0.5, share=0.6)
    w.grad = pb.tensor([1.0])
    opt.step()
    opt.groups[0].settings["share"] = 0.3
    opt.step()
    assert w.tolist() == [0.25]
    assert opt.groups[0]._native is not None


@pytest.mark.parametrize(
    "maker",
    [
        lambda lr: pb.optim.sgd({0.1: 0.2}[lr]),
        lambda lr: pb.optim.sgd(round(lr, 2)),
        lambda lr: pb.optim.sgd(float(str(lr))),
        lambda lr: pb.optim.sgd(float.fromhex(lr.hex())),
    ],
)
def test_what_makes_a_rule_may_take_its_numbers_apart(maker):
    """A number that is an argument of the program cannot be: such a setting is part of the program."""
    found = []
    for jit in (None, False):
        w = pb.tensor(np.ones(3), requires_grad=True)
        opt = pb.optim.Optimizer(maker, [w], lr=0.1, jit=jit)
        for _ in range(2):
            w.grad = pb.tensor(np.full(3, 0.5))
            opt.step()
        found.append(w.tolist())
        assert (opt.groups[0].native_step() is not None) is (jit is None)
    assert found[0] == found[1]


def test_instruments_see_rebound_parameters():
    class Watch(Instrument):
        def __init__(self):
            self.seen = []

        def rebinds(self, tensor):
            self.seen.append(tensor)

    w, opt = quadratic()
    step_once(w, opt)
    watch = Watch()
    with override_modes(watch):
        opt.step()
    assert watch.seen == [w] or (len(watch.seen) == 1 and watch.seen[0] is w)


def test_modes_and_marked_tensors():
    w, opt = quadratic()
    with pb.no_grad():
        w.grad = pb.tensor(np.ones((5, 4)))
        opt.step()
    assert w.requires_grad
    with pb.inference_mode():
        v = pb.tensor(np.ones(2))
    v.grad = pb.tensor(np.ones(2))
    optim.SGD([v], lr=1.0).step()
    assert v.tolist() == [0.0, 0.0]
    assert not v.is_inference


def test_nan_and_infinity_go_where_arithmetic_puts_them():
    values = [np.array([1.0, np.nan, np.inf, -np.inf, -0.0] * 30)]
    for name in ("adam", "momentum", "rprop", "lion", "finite"):
        found = []
        for jit in (None, False):
            tensors = parameters(values)
            opt = optim.Optimizer(optim.sgd(0.1) if name == "frozen" else RULES[name](), tensors, jit=jit)
            with np.errstate(all="ignore"):
                for g in (np.full(150, np.inf), np.linspace(-1, 1, 150), np.full(150, np.nan)):
                    set_gradients(tensors, [g])
                    opt.step()
            found.append(tensors[0].detach().numpy())
        np.testing.assert_array_equal(*found)


def test_steps_in_threads():
    def train(results, number):
        w = pb.tensor(np.full((40, 10), 1.0 + number), requires_grad=True)
        opt = optim.Adam([w], lr=0.01)
        for _ in range(50):
            step_once(w, opt)
        results[number] = w.tolist()

    alone, together = {}, {}
    for number in range(4):
        train(alone, number)
    threads = [threading.Thread(target=train, args=(together, number)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert alone == together


def test_a_compiled_function_reads_what_it_was_called_with():
    """While native code lets others run, here in an op that Python executes, an optimizer may step its argument."""
    w = pb.tensor(np.full(50, 5.0), requires_grad=True)
    w.grad = pb.tensor(np.ones(50))
    opt = optim.SGD([w], lr=1.0)
    opt.step()

    @pb.custom_op(pure=True)
    def step_meanwhile(x):
        opt.step()
        return np.asarray(x) + 1.0

    step_meanwhile.def_spec(lambda x: x)

    def f(x):
        rounds = pb.fori_loop(0, 3, lambda i, s: step_meanwhile(s), 0 * pb.sum(x))
        return pb.sum(x * rounds)

    with pb.no_grad():
        assert float(pb.jit(f)(w)) == 50 * 4.0 * 3
    assert w.tolist() == [1.0] * 50


@pytest.mark.parametrize("name", ["adam", "labels", "by global norm"])
def test_long_steps_have_the_same_bits_on_any_number_of_threads(name, monkeypatch):
    monkeypatch.setattr(row_table, "_MIN_CHUNKS", 2)
    values, all_grads = numbers("float32", 3)
    makers = RULES | SUMMING_RULES
    before, found = pb.get_num_threads(), []
    try:
        for count in (1, 2, 3):
            pb.set_num_threads(count)
            tensors = parameters(values)
            opt = optim.Optimizer(makers[name](), tensors)
            found.append(trained(opt, tensors, all_grads))
            native = opt.groups[0].native_step()
            assert max(part.table.blocks for part in native.parts) > 1
    finally:
        pb.set_num_threads(before)
    for other in found[1:]:
        for one, two in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(one, two)


def test_a_closure_and_extra_arguments():
    w, opt = quadratic((3,))

    def closure():
        opt.zero_grad()
        loss = (w * w).sum()
        loss.backward()
        return loss

    before = float((w * w).sum().detach())
    assert float(opt.step(closure).detach()) == pytest.approx(before)
    assert opt.groups[0]._native is not None
    opt.step(value=1.0)


def test_a_tensor_of_a_group_may_be_replaced():
    w, opt = quadratic((3,))
    step_once(w, opt)
    v = opt.groups[0].tensors[0] = pb.tensor(np.ones(3), requires_grad=True)
    before = w.tolist()
    step_once(v, opt)
    assert w.tolist() == before
    assert v.tolist() != [1.0] * 3
    opt.groups[0].tensors.append(w)
    w.grad = pb.tensor(np.ones(3))
    with pytest.raises(ValueError, match="longer"):  # as op by op
        opt.step()


@pytest.mark.parametrize("twin", [copy.deepcopy, lambda opt: pickle.loads(pickle.dumps(opt))])
def test_copies_of_an_optimizer_step_on_their_own(twin):
    w, opt = quadratic((3,))
    step_once(w, opt)
    other = twin(opt)
    v = other.groups[0].tensors[0]
    v.requires_grad = True
    step_once(v, other)
    assert v.tolist() != w.tolist()
    assert int(opt.groups[0].state[0].steps) == 1
    assert int(other.groups[0].state[0].steps) == 2
    step_once(w, opt)
    assert v.tolist() == w.tolist()


def test_native_code_may_be_turned_off():
    w, opt = quadratic((3,))
    with pb.native(False):
        step_once(w, opt)
    assert opt.groups[0]._native is None
    step_once(w, opt)
    assert opt.groups[0]._native is not None


def test_an_optimizer_frees_what_it_holds():
    w, opt = quadratic()
    step_once(w, opt)
    table = weakref.ref(opt.groups[0]._native.parts[0].table)
    del opt
    gc.collect()
    assert table() is None
