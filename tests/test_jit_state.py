"""jit and what lies outside of a function: captured values in ops, scratch arrays, state that is set, modules."""

import copy
import functools
import importlib
import itertools
import pickle
import warnings

import numpy as np
import pytest

import pullback as pb
from pullback.errors import GraphError, LeakError

pytest.importorskip("llvmlite")
cpu_target = importlib.import_module("pullback.compile.cpu.target")
X = np.array([1.0, 2.0, 3.0])
ROWS = np.random.default_rng(1).normal(size=(3, 20))
BATCH = np.random.default_rng(0).normal(size=(5, 3)).astype("f") * 3 + 1


def close(a, b, tolerance=1e-12):
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=tolerance, atol=tolerance)


# Captured tensors


def test_ops_on_captured_tensors_alone_are_part_of_the_program():
    w = pb.tensor(np.ones(3), requires_grad=True)
    f = pb.jit(lambda x: pb.sum(x * (w * w)))
    assert f(X).item() == 6
    f(X).backward()
    f(X).backward()  # what w * w keeps is made anew at each call
    close(w.grad.numpy(), 4 * X)
    with pb.no_grad():
        w += 1.0
    assert f(X).item() == 24


@pytest.mark.parametrize("tracked", [True, False])
@pytest.mark.parametrize(
    "solve",
    [
        lambda w: lambda x: pb.fixed_point(lambda y, x: pb.cos(y) * 0.3 * w + x, x * 0, x),
        lambda w: lambda x: pb.linear_solve(lambda y: y * w, x),
        lambda w: lambda x: pb.ode.solve(lambda t, y: -y * w, x, (0.0, 0.3)).y,
        lambda w: lambda x: pb.linearize(lambda x: pb.sin(x * w), x)[1](x),
        lambda w: lambda x: pb.jacobian(lambda x: ROWS.T @ pb.sin(ROWS @ x * w), mode="product")(ROWS.T @ x),
        lambda w: (
            lambda x: pb.curvature.ggn_diagonal(lambda p, x: p * x * w, lambda z, y: pb.sum((z - y) ** 2))(
                x, ROWS[:, :3], ROWS[:, :3]
            )
        ),
    ],
    ids=["fixed_point", "linear_solve", "ode", "linearize", "product", "curvature"],
)
def test_programs_inside_of_a_program_read_captured_tensors_at_each_call(solve, tracked):
    w = pb.tensor(2.0, requires_grad=tracked)
    f = solve(w)
    compiled = pb.jit(f)
    compiled(X)
    with pb.no_grad():
        w.fill_(3.0)
    close(pb.asarray(compiled(X)).detach(), pb.asarray(f(X)).detach())


def test_a_tensor_is_read_before_and_after_the_function_updates_it():
    w = pb.tensor(np.zeros(3))

    def f(x):
        nonlocal w
        before = w * 1.0
        w += x
        return before * 10 + w

    def run(g):
        found = [g(X).numpy() for _ in range(3)]
        return found, w.numpy().copy()

    compiled = run(pb.jit(f))
    w = pb.tensor(np.zeros(3))
    eager = run(f)
    close(compiled[0], eager[0])
    close(compiled[1], eager[1])


def test_a_tensor_made_inside_is_no_state():
    def f(x):
        t = pb.tensor(np.ones(3))
        y = x * t
        t += 5.0
        return y + t

    g = pb.jit(f)
    close(g(X), X + 6)
    assert isinstance(g(X), np.ndarray)
    assert not g.last.states


def test_linearize_holds_the_values_that_captured_tensors_had():
    w = pb.tensor(np.ones(3))
    _, push = pb.linearize(lambda x: x * w, X)
    w += 1.0
    close(push(np.ones(3)), np.ones(3))


# Scratch arrays


def reusing(x):
    buffer, total = np.zeros(3), 0.0
    for i in range(3):
        buffer[:] = i + 1
        total = total + pb.sum(x * buffer)
    return total


SCRATCH = {
    "jit": lambda: (pb.jit(reusing)(X), 36.0),
    "grad of jit": lambda: (pb.grad(pb.jit(reusing))(X), [6.0] * 3),
    "jit of grad": lambda: (pb.jit(pb.grad(reusing))(X), [6.0] * 3),
    "linearize": lambda: (pb.linearize(reusing, X)[1](X), 36.0),
    "jit of jvp": lambda: (pb.jit(lambda x: pb.jvp(reusing, (x,), (x,))[1])(X), 36.0),
    "jit of vmap": lambda: (pb.jit(pb.vmap(reusing))(np.stack([X, X])), [36.0] * 2),
    "stage": lambda: (pb.stage(reusing)(X).run(X), 36.0),
    "scan": lambda: (pb.jit(lambda x: pb.scan(lambda c, y: (c * 0.1 * reusing(c), c), x, np.ones((2, 3)))[0])(X),
                     pb.scan(lambda c, y: (c * 0.1 * reusing(c), c), X, np.ones((2, 3)))[0]),
    "root": lambda: (pb.root(lambda y: summed(y) - X, np.ones(3)), X / 6),
    "grad of root": lambda: (pb.grad(lambda a: pb.sum(pb.root(lambda y: summed(y) - a, np.ones(3))))(X), [1 / 6] * 3),
    "fixed point": lambda: (pb.fixed_point(lambda y: summed(y) / 12 + X, np.ones(3)), 2 * X),
    "grad of a fixed point": lambda: (
        pb.grad(lambda a: pb.sum(pb.fixed_point(lambda y: summed(y) / 12 + a, np.ones(3))))(X), [2.0] * 3),
}  # fmt: skip


def summed(y):
    buffer, total = np.zeros(3), 0.0
    for i in range(3):
        buffer[:] = i + 1
        total = total + y * buffer
    return total


@pytest.mark.parametrize("way", SCRATCH)
def test_an_array_that_is_written_to_while_a_program_is_traced_counts_by_value(way):
    found, wanted = SCRATCH[way]()
    close(found, wanted, 1e-8)


def test_views_of_captured_arrays_are_read_at_each_call():
    a = np.arange(30_000.0)
    f = pb.jit(lambda x: pb.sum(x * a[3:30_000:10_000]))
    close(f(X), X @ [3, 10_003, 20_003])
    a += 1.0
    close(f(X), X @ [4, 10_004, 20_004])


# State


def layers():
    first, second = pb.random.split(pb.random.key(0))
    return pb.nn.Sequential(pb.nn.Linear(3, 4, key=first), pb.nn.BatchNorm(4), pb.tanh, pb.nn.Linear(4, 2, key=second))


def state_of(net):
    return {name: np.asarray(x) for name, x in net.state_dict().items()}


def assert_same_state(one, other):
    for name, x in state_of(one).items():
        np.testing.assert_allclose(x, state_of(other)[name], rtol=2e-5, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("way", ["value", "backward", "grad of jit", "jit of grad", "jvp"])
def test_a_captured_batch_norm_keeps_its_statistics(way):
    def run(net, maybe_jit):
        f = maybe_jit(lambda x: pb.sum(net(x) ** 2))
        if way == "value":
            return f(BATCH)
        if way == "backward":
            out = f(BATCH)
            out.backward()
            return out
        if way == "grad of jit":
            return pb.grad(f)(BATCH)
        if way == "jvp":
            return pb.jvp(f, (BATCH,), (BATCH,))[1]
        return maybe_jit(pb.grad(lambda x: pb.sum(net(x) ** 2)))(BATCH)

    one, other = layers(), layers()
    for _ in range(3):
        close(run(one, pb.jit).detach(), run(other, lambda f: f).detach(), 1e-3)
    assert_same_state(one, other)
    assert type(dict(one.named_modules())["1"].mean) is np.ndarray
    close(pb.jit(lambda x: one.eval()(x))(BATCH).detach(), other.eval()(BATCH).detach(), 1e-4)


def test_a_compiled_training_loop_of_a_captured_network_is_the_eager_one():
    def train(maybe_jit):
        net = layers()
        opt = pb.optim.Optimizer(pb.optim.sgd, net.parameters(), lr=0.01)
        loss = maybe_jit(lambda x: pb.mean((net(x) - 1.0) ** 2))
        values = []
        for _ in range(10):
            out = loss(BATCH)
            out.backward()
            opt.step()
            opt.zero_grad()
            values.append(out.item())
        return net, values

    one, other = train(pb.jit), train(lambda f: f)
    np.testing.assert_allclose(one[1], other[1], rtol=1e-4)
    assert_same_state(one[0], other[0])


def test_training_and_evaluation_agree_for_a_compiled_step_with_batch_norm():
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(64, 3)) * 5 + 3).astype("f")
    y = (x[:, 0] > 3).astype(int)
    rule = pb.optim.adamw(1e-2, weight_decay=0.1)
    params, state = layers().arrays().split()
    moments = rule.init(params)

    @pb.jit
    def step(params, state, moments, x, y):
        def loss(params):
            net = params.merge(state)
            return pb.nn.cross_entropy(net(x), y), net.split()[1]

        (value, state), g = pb.value_and_grad(loss, has_aux=True)(params)
        updates, moments = rule.update(g, moments, params)
        return value, pb.optim.apply_updates(params, updates), state, moments

    for _ in range(150):
        _, params, state, moments = step(params, state, moments, x, y)
    net = params.merge(state)
    share = lambda net: np.mean(np.argmax(net(x), axis=1) == y)  # noqa: E731
    assert share(net.train()) > 0.95
    assert share(net.eval()) > 0.95
    close(net.state_dict()["1.mean"], np.mean(x @ np.asarray(net.state_dict()["0.weight"]).T
                                              + np.asarray(net.state_dict()["0.bias"]), axis=0), 0.2)  # fmt: skip


def test_rules_leave_the_buffers_of_modules_alone():
    net = layers().arrays()
    rule = pb.optim.adamw(1e-2, weight_decay=0.5)
    g = pb.grad(lambda net: pb.sum(net(BATCH) ** 2))(net)
    updates, _ = rule.update({"net": [g]}, rule.init({"net": [net]}), {"net": [net]})
    found = updates["net"][0].state_dict()
    assert not np.any(found["1.variance"])
    assert not np.any(found["1.mean"])
    assert np.any(found["1.weight"])


def test_parts_of_other_modules_do_not_merge():
    params, _ = layers().arrays().split()
    with pytest.raises(pb.errors.ArgumentError, match="same place"):
        params.merge(params)
    with pytest.raises(pb.errors.ArgumentError, match="one split"):
        params.merge(layers())


def test_a_batch_norm_under_vmap_is_refused_and_stays_whole():
    net = pb.nn.BatchNorm(3)
    for f in (lambda x: net(x), pb.jit(lambda x: net(x))):
        with pytest.raises(LeakError, match="argument"):
            pb.vmap(f)(BATCH[None])
    assert type(net.mean) is np.ndarray
    assert not net.mean.any()
    with pytest.raises(LeakError, match="argument"):
        pb.jit(lambda x: pb.scan(lambda c, x: (c, net(x)), 0.0, x))(np.stack([BATCH, BATCH]))
    net(BATCH)


def test_a_module_that_is_an_argument_of_vmap_may_be_set():
    def f(net, x):
        net(x)
        return net

    nets = pb.vmap(f, in_axes=(None, 0))(pb.nn.BatchNorm(3).arrays(), np.stack([BATCH, 2 * BATCH]))
    assert nets.mean.shape == (2, 3)


def test_a_trace_that_fails_leaves_modules_as_they_were():
    net = pb.nn.BatchNorm(3)

    def f(x):
        while pb.sum(net(x)) > 0:
            x = x * 2
        return x

    with pytest.raises(pb.errors.ConversionError):
        pb.jit(f)(BATCH)
    assert type(net.mean) is np.ndarray
    net(BATCH)


class Recurrent:
    def __init__(self):
        self.hidden = None
        self.parts = {"a": [np.zeros(3)]}

    def __call__(self, x):
        self.hidden = x if self.hidden is None else pb.tanh(self.hidden + x)
        self.parts["a"][0] = self.parts["a"][0] * 0.5 + self.hidden
        return self.hidden * 2


def test_state_in_attributes_and_containers_is_read_and_written_at_each_call():
    one, other = Recurrent(), Recurrent()
    f = pb.jit(lambda x: one(x))
    for i in range(4):
        close(f(X * i), other(X * i))
        close(one.hidden, other.hidden)
        close(one.parts["a"][0], other.parts["a"][0])


def test_state_on_the_tape_carries_its_graph():
    one, other = Recurrent(), Recurrent()
    f = pb.jit(lambda x: one(x))
    found = []
    for g in (f, other):
        x = pb.tensor(X, requires_grad=True)
        for _ in range(3):
            y = g(x)
        pb.sum(y).backward()
        found.append(x.grad.numpy())
    close(*found)


def test_what_hangs_on_no_recorded_argument_carries_no_graph():
    """State that no result asks a derivative of grew a graph of all calls before, and a tensor lost its numbers."""
    t, w = pb.tensor(np.zeros(3)), pb.tensor(X, requires_grad=True)
    one = Recurrent()

    def f(x):
        nonlocal t
        t += x
        one.hidden = pb.stop_gradient(x) if one.hidden is None else one.hidden + pb.stop_gradient(x)
        return pb.sum(w * x), x * 2

    g = pb.jit(f)
    for i in range(4):
        first, second = g(X) if i < 2 else g(w)
        assert first.requires_grad
        assert second.requires_grad == (i >= 2)
        assert type(one.hidden) is np.ndarray
        close(one.hidden, (i + 1) * X)
    assert t.requires_grad  # it hangs on w by now
    close(t.detach().numpy(), 4 * X)
    one.hidden = X
    close(pb.jvp(pb.jit(lambda x: stepped(one, x)), (X,), (X,))[1], 2 * X)
    assert type(one.hidden) is np.ndarray


def stepped(holder, x):
    holder.hidden = holder.hidden + pb.stop_gradient(x)
    return x * 2


def test_state_of_a_gradient_inside_vmap_is_refused_and_stays_whole():
    """A value of the batch inside of a recorded tensor was left in the attribute, and failed at the next call."""
    one = Recurrent()
    one.hidden = X
    with pytest.raises(LeakError, match="'hidden'"):
        pb.vmap(pb.grad(pb.jit(lambda x: pb.sum(one(x)))))(np.stack([X, X]))
    assert one.hidden is X


class Slotted:
    __slots__ = ("__weakref__", "hidden")


def test_an_error_of_the_second_trace_is_not_hidden_by_a_slot_that_was_never_set():
    holder, runs = Slotted(), itertools.count()

    def f(x):
        if next(runs) == 1:
            raise ValueError("on purpose")
        holder.hidden = x
        return x * 2

    with pytest.raises(ValueError, match="on purpose"):
        pb.jit(f)(X)
    assert not hasattr(holder, "hidden")


def test_an_attribute_of_a_class_is_state_and_holds_no_symbol_after_a_call():
    class Shared:
        total = None

    def f(x):
        Shared.total = x if Shared.total is None else Shared.total + x
        return Shared.total * 2

    g = pb.jit(f)
    for i in range(4):
        close(g(X), (i + 1) * 2 * X)
        close(Shared.total, (i + 1) * X)


class Measured(np.ndarray):
    pass


@pytest.mark.parametrize("layout", ["C", "F"])
def test_state_that_begins_as_an_array_of_a_subclass(layout):
    """As a memory map is one: native code refused it, and the call asked for a report."""
    one = Recurrent()
    one.hidden = np.ones((2, 3), order=layout).view(Measured)
    f = pb.jit(lambda x: stepped(one, x))
    for i in range(3):
        close(f(BATCH[:2]), BATCH[:2] * 2)
        close(one.hidden, 1 + (i + 1) * BATCH[:2].astype(float), 1e-5)


def test_a_number_that_becomes_a_value():
    class Sum:
        total = 0.0

    one, other = Sum(), Sum()

    def add(holder, x):
        holder.total = holder.total + pb.sum(x)
        return x * holder.total

    f = pb.jit(functools.partial(add, one))
    for _ in range(4):
        close(f(X), add(other, X))
        close(one.total, other.total)


def test_a_global_counter_that_no_result_needs_does_not_compile_again_and_again():
    runs = []

    def f(x):
        runs.append(len(runs))
        return x * 2

    g = pb.jit(f)
    for _ in range(10):
        close(g(X), 2 * X)
    assert len(runs) == 2


def test_a_counter_beside_state_is_moved_once_by_a_trace():
    """State is found by a first trace, which does not count: it moved the counter, and each call was traced anew."""
    parts = {"n": 0, "state": np.zeros(3)}

    def f(x, scale):
        parts["n"] += 1
        parts["state"] = parts["state"] + x
        return x * scale(parts["n"])

    used, unused = pb.jit(lambda x: f(x, lambda n: n)), pb.jit(lambda x: f(x, lambda n: 2))
    close(used(X), X)
    with pytest.raises(GraphError, match="'n'"):
        used(X)
    parts["n"] = 0
    for i in range(2, 6):
        close(unused(X), 2 * X)
        close(parts["state"], i * X)
    assert parts["n"] == 2


def test_writes_to_captured_arrays_are_refused():
    total = np.zeros(3)

    def f(x):
        total[:] = total + 1
        return x * 2

    with pytest.raises(GraphError, match="writes to an array"):
        pb.jit(f)(X)


# Entries


def test_an_array_that_changes_between_calls_does_not_need_new_code():
    a = np.ones(3)
    f = pb.jit(lambda x: x * a)
    f(X)
    code = f.last.code
    for i in range(3):
        a[:] = i
        close(f(X), X * i)
        assert f.last.code is code


def test_entries_do_not_grow_without_end():
    f = pb.jit(lambda x, n: x * n, static_argnums=-1)
    for _ in range(3):
        f(X, float("nan"))
    assert len(f.entries) == 1
    modes = {"a": 0}
    g = pb.jit(lambda x: x * modes["a"])
    for i in range(20):
        modes["a"] = i
        close(g(X), X * i)
    assert sum(map(len, g.entries.values())) <= 8


def test_training_and_evaluation_forms_are_both_kept():
    net, key = pb.nn.Dropout(0.5), pb.random.key(0)
    f = pb.jit(lambda x: net(x, key=key))

    def forms():
        found = []
        for mode in (False, True):
            net.train(mode)
            f(X)
            found.append(f.last)
        return found

    assert forms() == forms()


STATIC = [(1, True), (2, 2.0), ((1,), (1.0,)), (0.0, -0.0), (1.0, 1 + 0j)]


@pytest.mark.parametrize("pair", STATIC, ids=str)
def test_static_arguments_that_are_equal_but_not_the_same(pair):
    f = pb.jit(
        lambda x, n: (x, repr(n) == repr(pair[0]), n)[0] * (1 if repr(n) == repr(pair[0]) else 2), static_argnums=1
    )
    assert float(f(X, pair[0])[0]) == 1
    assert float(f(X, pair[1])[0]) == 2
    assert float(f(X, pair[0])[0]) == 1


def test_a_static_object_whose_attribute_changes():
    class Config:
        a = 2.0

    c = Config()
    f = pb.jit(lambda x, c: x * c.a, static_argnums=1)
    close(f(X, c), 2 * X)
    c.a = 3.0
    close(f(X, c), 3 * X)


def test_a_static_function_whose_closure_changes():
    s = [2.0]
    f = pb.jit(lambda x, g: g(x), static_argnums=1)
    g = lambda x: x * s[0]  # noqa: E731
    close(f(X, g), 2 * X)
    s[0] = 3.0
    close(f(X, g), 3 * X)


def test_the_order_of_a_dict_that_is_an_argument():
    f = pb.jit(lambda d: pb.concat(list(d.values())))
    one, zero = np.ones(1), np.zeros(1)
    for _ in range(2):
        close(f({"a": one, "b": zero}), [1, 0])
        close(f({"b": zero, "a": one}), [0, 1])
    g = pb.jit(lambda d: {k: v * 2 for k, v in d.items()})
    assert list(g({"a": one, "b": zero})) == ["a", "b"]
    assert list(g({"b": zero, "a": one})) == ["b", "a"]


def test_gradients_of_results_that_hang_on_comparisons_alone_are_zero():
    accuracy = pb.jit(lambda x: pb.mean(pb.astype(x > 1.5, float)))
    close(pb.grad(accuracy)(X), np.zeros(3))
    both = pb.jit(lambda x: (pb.sum(x * x), pb.mean(pb.astype(x > 1.5, float))))
    close(pb.grad(lambda x: both(x)[0])(X), 2 * X)
    (_, beside), g = pb.value_and_grad(both, has_aux=True)(X)
    close(g, 2 * X)
    close(beside, 2 / 3)


def test_misaligned_and_byte_swapped_arrays():
    f = pb.jit(lambda x: pb.sum(pb.sin(x) * 2))
    raw = np.frombuffer(b"\0" + X.tobytes(), np.float64, offset=1)
    close(f(raw), f(X))
    close(f(X.astype(">f8")), f(X))
    close(pb.grad(f)(X.astype(">f8")), pb.grad(f)(X))
    a = X.astype(">f8")
    g = pb.jit(lambda x: x * a)
    close(g(X), X * X)
    a[0] = 7.0
    close(g(X), X * [7, 2, 3])


def test_sparse_derivatives_of_a_compiled_function_keep_their_pattern():
    pytest.importorskip("scipy")
    f = lambda x: pb.sum((x[1:] - x[:-1]) ** 2)  # noqa: E731
    x = np.arange(50.0)
    found, wanted = pb.sparse_hessian(pb.jit(f))(x), pb.sparse_hessian(f)(x)
    assert found.nnz == wanted.nnz
    close(found.toarray(), wanted.toarray())


@pb.jit
def by_name(x):
    return x * 2


def scaled(x, n):
    return x * n


def test_compiled_functions_are_pickled_by_name_or_with_their_function():
    by_name(X)
    assert pickle.loads(pickle.dumps(by_name)) is by_name
    assert copy.deepcopy(by_name) is by_name
    f = pb.jit(scaled, static_argnums=1)
    f(X, 3)
    g = pickle.loads(pickle.dumps(f))
    assert g is not f
    close(g(X, 3), 3 * X)
    close(copy.deepcopy(f)(X, 4), 4 * X)
    method = pb.jit(pb.nn.Linear(3, 3, key=pb.random.key(0)))
    close(pickle.loads(pickle.dumps(method))(X.astype("f")).detach(), method(X.astype("f")).detach())


def test_without_llvm_a_warning_says_so_once(monkeypatch):
    monkeypatch.setattr(cpu_target, "has_llvm", lambda: False)
    cpu_target.warn_without_llvm.cache_clear()
    f = pb.jit(lambda x: x * 2)
    with pytest.warns(RuntimeWarning, match="llvmlite"):
        close(f(X), 2 * X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        close(pb.jit(lambda x: x * 3)(X), 3 * X)


# In-place code


def shift(v):
    v += 1.0


def through_a_helper(x):
    y = x * 2
    shift(y)
    return y


def into_zeros(x):
    z = np.zeros_like(x)
    z[0] = x[1]
    z[1:] *= 2
    z += x
    w = z
    w -= 1
    return z * z


def into_made_zeros(x):
    z = np.zeros(3, like=x)
    z[0] = x[1]
    return z + x


def into_an_intermediate(x):
    t = x * 1
    t[0] = x[1] * 3
    t[1] **= 2
    return t


IN_PLACE = [through_a_helper, into_zeros, into_made_zeros, into_an_intermediate]
WAYS = {
    "jit": lambda f: pb.jit(f)(X),
    "jvp": lambda f: pb.jvp(f, (X,), (X,))[0],
    "vmap": lambda f: pb.vmap(f)(np.stack([X, X]))[1],
    "jit of vmap": lambda f: pb.jit(pb.vmap(f))(np.stack([X, X]))[1],
    "stage": lambda f: pb.stage(f)(X).run(X),
}
SLOPES = {
    "jit of grad": lambda f: pb.jit(pb.grad(lambda x: pb.sum(f(x))))(X),
    "grad of jit": lambda f: pb.grad(pb.jit(lambda x: pb.sum(f(x))))(X),
    "jacobian by jvp": lambda f: np.stack([pb.jvp(f, (X,), (e,))[1] for e in np.eye(3)]).sum(axis=1),
    "jit of jvp": lambda f: np.stack([pb.jit(lambda x, e: pb.jvp(f, (x,), (e,))[1])(X, e) for e in np.eye(3)]).sum(
        axis=1
    ),
    "vmap of grad": lambda f: pb.vmap(pb.grad(lambda x: pb.sum(f(x))))(X[None])[0],
    "linearize": lambda f: np.stack([pb.linearize(f, X)[1](e) for e in np.eye(3)]).sum(axis=1),
}


@pytest.mark.parametrize("f", IN_PLACE)
@pytest.mark.parametrize("way", WAYS)
def test_in_place_code_does_what_numpy_does(f, way):
    close(WAYS[way](f), f(X.copy()))


@pytest.mark.parametrize("f", IN_PLACE)
@pytest.mark.parametrize("way", SLOPES)
def test_in_place_code_has_one_derivative(f, way):
    close(SLOPES[way](f), pb.grad(lambda x: pb.sum(f(x)))(X))


@pytest.mark.parametrize("outer", [lambda f, x: f(x), lambda f, x: pb.jit(f)(x), lambda f, x: pb.vmap(f)(x[None])[0],
                                   lambda f, x: pb.jvp(f, (x,), (x,))[0]])  # fmt: skip
def test_what_a_tape_keeps_does_not_move_with_a_value_of_the_transform_around(outer):
    def f(x):
        y = x * 3
        _, pull = pb.vjp(lambda w: pb.sum((w * y) ** 2), x)
        y += 100.0
        return pull(np.ones(()))[0]

    close(outer(f, X), 2 * X * (3 * X) ** 2)


def test_in_place_results_that_do_not_fit_are_refused():
    for transform in (pb.jit, pb.vmap, lambda f: lambda x: pb.jvp(f, (x,), (x,))):
        with pytest.raises(pb.errors.ShapeError, match="keeps it"):
            transform(lambda x: shift_by(x.sum(), x))(np.ones((2, 3)))


def shift_by(v, other):
    v += other
    return v


def test_a_checked_function_is_checked_where_it_is_unpickled():
    assert pickle.loads(pickle.dumps(pb.jit(pb.sin, check=True))).check


def test_a_failed_trace_loses_no_compiled_form():
    fails = [False]

    def f(x):
        if fails[0]:
            raise ValueError("on purpose")
        return x * 2

    compiled = pb.jit(f)
    compiled(np.ones(3))
    forms = [list(known) for known in compiled.entries.values()]
    fails[0] = True
    with pytest.raises(ValueError, match="on purpose"):
        compiled(np.ones(3))
    assert [list(known) for known in compiled.entries.values()] == forms


def test_an_attribute_that_no_class_had_before_the_call_is_state():
    class Holder:
        pass

    def f(x):
        Holder.seen = x * 2
        return pb.sum(x)

    compiled = pb.jit(f)
    for x in (X, X + 1):
        compiled(x)
        close(Holder.seen, x * 2)


def test_a_result_that_hangs_on_an_updated_parameter_is_refused_by_that_name():
    w = pb.tensor(np.ones(3), requires_grad=True)

    def f(x):
        nonlocal w
        with pb.no_grad():
            w -= 0.1 * x
        return pb.sum(w * w * x)

    with pytest.raises(GraphError, match="a leaf that was updated inside"):
        pb.jit(f)(X)
    close(w.detach().numpy(), np.ones(3))


class Scaled(pb.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = 2.0

    def forward(self, x):
        return x * self.scale


class Counted(pb.nn.Module):
    def __init__(self):
        super().__init__()
        self.count = pb.zeros(())

    def forward(self, x):
        if pb.sum(x) > 0:
            self.count = self.count + 1
        return x - self.count


def test_what_the_forward_of_a_module_reads_and_sets_is_state():
    scaled, plain, counted = Scaled(), Counted(), Counted()
    run, count = pb.jit(lambda x: scaled(x)), pb.jit(lambda x: counted(x))
    for scale in (2.0, 3.0):
        scaled.scale = scale
        np.testing.assert_allclose(run(np.ones(2)), [scale, scale])
    for x in ([1.0, 2.0], [-1.0, 0.0], [3.0, 1.0]):
        np.testing.assert_allclose(count(np.array(x)), plain(np.array(x)))
    assert counted.count.item() == plain.count.item() == 2
