"""`pb.fuse`: functions that run eagerly as one native op agree with themselves op by op, in every mode and order."""

import inspect
import logging
import pickle
import threading

import numpy as np
import pytest

import pullback as pb
from pullback.compile import specialization
from pullback.compile.cpu.builder import ir_builder
from pullback.errors import ConversionError, GraphError, IndexingError, MiscompiledError, PullbackError, ShapeError

pytest.importorskip("llvmlite")

RNG = np.random.default_rng(3)
OFFSET = 2.0


def normal(*shape, dtype="float64"):
    return RNG.normal(size=shape).astype(dtype)


@pb.fuse
def curve(x, w=None, *, power=2, scale=1.0):
    """x to a power, scaled.

    >>> curve(np.zeros(2))
    array([0., 0.])
    """
    y = pb.tanh(x) ** power * scale
    return y if w is None else y * w


def runs_natively(function, *args, **kwargs):
    return "native op" in pb.explain(function, *args, **kwargs)


def gradients_of(function, *arrays):
    xs = [pb.tensor(a, requires_grad=True) for a in arrays]
    y = function(*xs)
    pb.sum(pb.sin(y)).backward()
    return y.detach().numpy(), [x.grad.numpy() for x in xs]


def assert_same_both_ways(function, *arrays, rtol=1e-12):
    value, grads = gradients_of(function, *arrays)
    with pb.native(False):
        wanted, wanted_grads = gradients_of(function, *arrays)
    assert value.dtype == wanted.dtype
    assert value.shape == wanted.shape
    np.testing.assert_allclose(value, wanted, rtol=rtol, atol=rtol)
    for found, g in zip(grads, wanted_grads, strict=True):
        assert found.dtype == g.dtype
        np.testing.assert_allclose(found, g, rtol=rtol, atol=rtol)


@pytest.fixture
def compilations(monkeypatch):
    """The programs that were compiled since the test began."""
    made = []
    real = specialization.make_runner
    monkeypatch.setattr(specialization, "make_runner", lambda *args: made.append(args[0]) or real(*args))
    return made


# What a fused function is


def test_it_looks_like_the_function():
    assert curve.__name__ == "curve"
    assert curve.__doc__.startswith("x to a power")
    assert list(inspect.signature(curve).parameters) == ["x", "w", "power", "scale"]
    assert list(inspect.signature(pb.nn.layer_norm).parameters) == ["x", "weight", "bias", "axis", "eps"]
    assert pickle.loads(pickle.dumps(curve)) is curve
    assert pickle.loads(pickle.dumps(pb.nn.cross_entropy)) is pb.nn.cross_entropy


def test_it_wants_a_function():
    with pytest.raises(PullbackError, match="fuse"):
        pb.fuse(3)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(), (1,), (5,), (3, 4), (2, 3, 17)])
def test_values_and_gradients_are_those_of_the_ops(shape, dtype):
    x, w = normal(*shape, dtype=dtype), normal(*shape, dtype=dtype)
    rtol = 1e-5 if dtype == "float32" else 1e-12
    assert_same_both_ways(curve, x, rtol=rtol)
    assert_same_both_ways(curve, x, w, rtol=rtol)
    assert_same_both_ways(lambda x: curve(x, x, power=3, scale=0.5), x, rtol=rtol)
    assert runs_natively(curve, x, w)


def test_strides_do_not_matter():
    big = normal(6, 8)
    for x in (big[::2], big.T, big[:, ::-1], np.broadcast_to(big[0], (4, 8))):
        assert_same_both_ways(curve, x)
        np.testing.assert_allclose(curve(x), np.tanh(x) ** 2, rtol=1e-12)


def test_every_call_of_a_kind_returns_the_same_bits():
    x = pb.tensor(normal(7, 9, dtype="float32"), requires_grad=True)
    w = pb.tensor(normal(9, dtype="float32"))
    bits = set()
    for _ in range(12):
        x.grad = None
        y = pb.nn.layer_norm(x, w, w)
        pb.sum(y * y).backward()
        bits.add(y.detach().numpy().tobytes() + x.grad.numpy().tobytes())
    assert len(bits) == 1


# When it runs natively


def test_settings_make_kinds_and_are_told_apart(compilations):
    @pb.fuse
    def scaled(x, by):
        return x * by if isinstance(by, float) else x + by

    x = normal(3)
    for by in (2, 2.0, True, 0.0, -0.0, float("nan")):
        np.testing.assert_array_equal(scaled(x, by), x * by if isinstance(by, float) else x + by)
    assert np.signbit(scaled(np.ones(1), -0.0))
    assert not np.signbit(scaled(np.ones(1), 0.0))
    made = len(compilations)
    for by in (2, 2.0, True, 0.0, -0.0, float("nan")):
        scaled(x, by)
    assert len(compilations) == made


def test_a_kind_is_compiled_once_and_only_what_is_used(compilations):
    @pb.fuse
    def f(x):
        return pb.exp(x) * x

    a = normal(4)
    for _ in range(3):
        f(a)
        f(pb.tensor(a))
    assert len(compilations) == 1  # the value alone
    for _ in range(3):
        x = pb.tensor(a, requires_grad=True)
        y = f(x)
    assert len(compilations) == 2  # the value and what the backward pass reads
    for _ in range(3):
        f(x).sum().backward()
    assert len(compilations) == 3
    with pb.no_grad():
        f(x)
    assert len(compilations) == 3
    assert y.requires_grad


def test_the_number_of_kinds_is_bounded_and_bits_do_not_depend_on_others(monkeypatch):
    monkeypatch.setattr("pullback.ops.fusion.MAX_FORMS", 3)

    @pb.fuse
    def f(x):
        return pb.sum(pb.exp(x) * 0.1)

    arrays = [normal(n + 1, dtype="float32") for n in range(6)]
    first = [f(a).tobytes() for a in arrays]
    assert len(f.fusion.forms) == 3
    assert [f(a).tobytes() for a in arrays] == first
    assert all(runs_natively(f, a) for a in arrays)


def test_what_native_code_does_not_take_runs_op_by_op():
    for x, why in (
        (np.ones(3, "complex64"), "complex64"),
        (np.ones(3, "complex128"), "complex128"),
        (np.arange(3), "floating-point"),
        (np.ones(3, ">f8"), "float64"),
        (np.ones((0, 3)), "empty"),
    ):
        assert why in pb.explain(curve, x)
        np.testing.assert_array_equal(curve(x), curve.__wrapped__(x))
    assert "op by op" in pb.explain(curve, 2.0)
    assert "op by op" in pb.explain(curve, [1.0, 2.0])


def test_without_a_compiler_all_is_as_it_was(monkeypatch, compilations):
    monkeypatch.setattr("pullback.ops.fusion.has_compiler", lambda: False)
    x = normal(3, 4)
    np.testing.assert_array_equal(pb.nn.layer_norm(x), pb.nn.layer_norm.__wrapped__(x))
    assert_same_both_ways(curve, x, rtol=0.0)
    assert "there is no compiler" in pb.explain(curve, x)
    assert not compilations


def test_a_function_that_cannot_be_traced_runs_as_it_stands():
    @pb.fuse
    def f(x):
        return x * 2 if float(pb.sum(x)) > 0 else x

    assert f(np.ones(2)).tolist() == [2.0, 2.0]
    assert f(-np.ones(2)).tolist() == [-1.0, -1.0]
    assert "cannot be traced" in pb.explain(f, np.ones(2))


def test_random_numbers_are_drawn_at_each_call_or_refused():
    @pb.fuse
    def f(x):
        return x * pb.random.normal(size=3)

    drawn = []
    for native in (True, False):
        with pb.native(native):
            pb.random.seed(4)
            drawn.append([f(np.ones(3)).tolist() for _ in range(3)])
    assert drawn[0] == drawn[1]
    assert drawn[0][0] != drawn[0][1]
    with pytest.raises(GraphError, match="draws from"):
        pb.fuse(lambda x: x * np.random.normal(size=3))(np.ones(3))


def test_native_is_a_context_manager_a_decorator_and_a_switch():
    x = np.ones(3)
    with pb.native(False):
        assert not runs_natively(curve, x)
        with pb.native(True):
            assert runs_natively(curve, x)
        assert not runs_natively(curve, x)
    assert runs_natively(curve, x)

    @pb.native(False)
    def inside():
        return runs_natively(curve, x)

    assert runs_natively(curve, x)
    assert not inside()
    assert runs_natively(curve, x)
    pb.native(False)
    try:
        assert not runs_natively(curve, x)
    finally:
        pb.native(True)
    assert runs_natively(curve, x)


def test_explain_shows_calls_inside_of_a_function_and_compiled_ones():
    x = normal(4, 8)
    found = pb.explain(lambda: [pb.nn.gelu(x), pb.nn.gelu(x), pb.softmax(x.astype("float16"))])
    assert "gelu" in found
    assert "natively" in found
    assert "float16" in found
    assert "2" in found.splitlines()[1]
    assert "kernel" in pb.explain(pb.jit(lambda x: pb.exp(x)), x)
    assert "one by one" in pb.explain(lambda: pb.exp(x))


# Arguments of every kind


def test_trees_and_modules_as_arguments():
    @pb.fuse
    def f(params, x, sizes=(2, 3), names=None):
        return pb.tanh(x @ params["w"] + params["b"][0]) * sizes[0]

    params = {"w": normal(3, 2), "b": [normal(2)]}
    x = normal(4, 3)
    wanted = np.tanh(x @ params["w"] + params["b"][0])
    np.testing.assert_allclose(f(params, x), wanted * 2)
    np.testing.assert_allclose(f(params, x=x, sizes=(3, 3)), wanted * 3)
    assert runs_natively(f, params, x)
    w = pb.tensor(params["w"], requires_grad=True)
    f({"w": w, "b": params["b"]}, x).sum().backward()
    np.testing.assert_allclose(w.grad.numpy(), x.T @ (1 - wanted**2) * 2)

    layer = pb.nn.Linear(3, 2, key=pb.random.key(0))
    g = pb.fuse(lambda layer, x: pb.tanh(layer(x)))
    assert runs_natively(g, layer, x)
    g(layer, x).sum().backward()
    found = layer.weight.grad.numpy()
    layer.weight.grad = None
    pb.tanh(layer(x)).sum().backward()
    np.testing.assert_allclose(found, layer.weight.grad.numpy(), rtol=1e-5)


def test_methods_can_be_fused():
    class Scale:
        def __init__(self, by):
            self.by = by

        @pb.fuse
        def apply(self, x):
            return pb.exp(x) * self.by

    np.testing.assert_allclose(Scale(2.0).apply(np.ones(2)), np.e * 2)
    np.testing.assert_allclose(Scale(3.0).apply(np.ones(2)), np.e * 3)


def _set_a_part(x):
    x[0] = 5.0
    return x.sum()


def _add_in_place(x):
    x += 1
    return x.sum()


@pytest.mark.parametrize("function", [_set_a_part, _add_in_place])
@pytest.mark.parametrize("make", [np.array, pb.tensor])
def test_an_argument_that_is_written_to_is_written_to(function, make):
    f, x, same = pb.fuse(function), make([1.0, 2.0]), make([1.0, 2.0])
    for _ in range(2):
        assert float(f(x)) == float(function(same))
        np.testing.assert_array_equal(np.asarray(x), np.asarray(same))
    assert "changes an argument" in pb.explain(f, x)


def test_containers_and_modules_that_are_arguments_may_change():
    @pb.fuse
    def note(table, x):
        table["twice"] = x * 2
        return x.sum()

    table = {}
    note(table, np.ones(2))
    np.testing.assert_array_equal(table["twice"], [2.0, 2.0])

    layer, x = pb.nn.BatchNorm(3), normal(4, 3) + 5
    evaluate = pb.fuse(lambda layer, x: layer(x).sum())
    evaluate(layer, x)
    np.testing.assert_allclose(layer.mean.numpy(), 0.1 * x.mean(axis=0), rtol=1e-6)
    layer.eval()
    assert runs_natively(evaluate, layer, x)  # now it sets nothing


def test_what_a_function_closes_over_is_seen_when_it_changes():
    global OFFSET
    w = pb.tensor(normal(3), requires_grad=True)
    factor = 2.0

    @pb.fuse
    def f(x):
        return pb.sum(pb.exp(x) * w * factor + OFFSET)

    x = normal(3)
    assert runs_natively(f, x)
    f(x).backward()
    np.testing.assert_allclose(w.grad.numpy(), np.exp(x) * 2)
    factor = 5.0
    w.grad = None
    f(x).backward()
    np.testing.assert_allclose(w.grad.numpy(), np.exp(x) * 5)
    before = OFFSET
    try:
        OFFSET = 7.0
        np.testing.assert_allclose(float(f(x).detach()), np.sum(np.exp(x) * w.detach().numpy() * 5 + 7.0))
    finally:
        OFFSET = before


# Meetings


def test_second_order_goes_through_it():
    x = normal(3, 4)

    def penalty(x):
        (g,) = pb.gradients(pb.sum(pb.nn.layer_norm(x) ** 3), [x], create_graph=True)
        return pb.sum(g * g)

    found = pb.tensor(x, requires_grad=True)
    penalty(found).backward()
    with pb.native(False):
        wanted = pb.tensor(x, requires_grad=True)
        penalty(wanted).backward()
    np.testing.assert_allclose(found.grad.numpy(), wanted.grad.numpy(), rtol=1e-9, atol=1e-9)


def test_transforms_and_programs_see_each_op():
    x, t = normal(5, 4), normal(5, 4)
    f = pb.nn.gelu
    with pb.native(False):
        pushed = pb.jvp(f, (x,), (t,))[1]
        batched = pb.vmap(f)(x)
        hessian = pb.hessian(lambda v: pb.sum(f(v)))(x[0])
        program = str(pb.jit(f).lower(x).graph)
    np.testing.assert_array_equal(pb.jvp(f, (x,), (t,))[1], pushed)
    np.testing.assert_array_equal(pb.vmap(f)(x), batched)
    np.testing.assert_allclose(pb.hessian(lambda v: pb.sum(f(v)))(x[0]), hessian, rtol=1e-12, atol=1e-12)
    assert str(pb.jit(f).lower(x).graph) == program
    np.testing.assert_allclose(pb.grad(lambda x: pb.sum(f(x)))(x), gradients_of_sum(f, x), rtol=1e-12)


def gradients_of_sum(f, x):
    with pb.native(False):
        return pb.grad(lambda x: pb.sum(f(x)))(x)


def test_inside_a_checkpoint_it_runs_natively_unless_single_ops_are_chosen():
    x = pb.tensor(normal(5, 4), requires_grad=True)
    logs = []

    def f(x):
        logs.append(pb.explain(pb.nn.gelu, x))
        return pb.nn.gelu(x)

    f(x).sum().backward()
    plain = x.grad.numpy()
    pb.checkpoint(f)(x).sum().backward()
    pb.checkpoint(f, policy=pb.save_contractions)(x).sum().backward()
    assert ["native op" in line for line in logs] == [True, True, True, False, False]
    np.testing.assert_array_equal(x.grad.numpy(), 2 * plain + gradients_of_sum(pb.nn.gelu, x.detach().numpy()))


def test_hooks_tapes_and_threads():
    a = normal(5, 4)
    x = pb.tensor(a, requires_grad=True)
    y = pb.nn.gelu(x)
    seen = []
    y.register_hook(lambda g: seen.append(g) or g * 2)
    y.sum().backward()
    wanted = gradients_of_sum(pb.nn.gelu, a)
    np.testing.assert_allclose(x.grad.numpy(), 2 * wanted, rtol=1e-12)
    assert len(seen) == 1

    with pb.GradientTape() as tape:
        v = pb.tensor(a)
        tape.watch(v)
        loss = pb.sum(pb.nn.gelu(v))
    np.testing.assert_allclose(tape.gradient(loss, v), wanted, rtol=1e-12)

    found = []
    threads = [threading.Thread(target=lambda: found.append(gradients_of(pb.nn.gelu, a)[1][0])) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len({g.tobytes() for g in found}) == 1


def test_modes_without_recording():
    x = pb.tensor(normal(5, 4), requires_grad=True)
    with pb.no_grad():
        y = pb.nn.gelu(x)
    assert not y.requires_grad
    with pb.inference_mode():
        z = pb.nn.gelu(pb.nn.gelu(x))
    assert z.is_inference
    shared = np.ones(3)
    s = pb.asarray(shared, copy=False)
    t = pb.tensor(np.full(3, 2.0), requires_grad=True)
    out = curve(s, t)
    out.sum().backward()
    np.testing.assert_allclose(t.grad.numpy(), np.tanh(shared) ** 2)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, w: pb.nn.layer_norm(x, w),
        lambda x, w: pb.nn.gelu(x) * w,
        lambda x, w: pb.softmax(x * w),
        lambda x, w: pb.jit(lambda x, w: pb.tanh(x * w) / x)(x, w),
        lambda x, w: pb.nn.gelu(pb.log(pb.abs(x))) * w,
    ],
)
def test_what_where_does_not_select_stays_out_of_gradients(function):
    """Infinities and NaN in rows that are not selected, at first and second order."""
    a = normal(4, 5)
    a[1], a[2] = np.nan, np.inf
    kept = np.array([True, False, False, True])[:, None]

    def loss(x, w):
        return pb.sum(pb.where(kept, function(x, w), 0.0) ** 2)

    found = []
    for native in (True, False):
        with pb.native(native), np.errstate(all="ignore"):
            x, w = pb.tensor(a, requires_grad=True), pb.tensor(np.ones(5), requires_grad=True)
            first = pb.gradients(loss(x, w), [x, w], create_graph=True)
            pb.sum(first[1] ** 2).backward()
            found.append([*(g.detach().numpy() for g in first), w.grad.numpy()])
    for one, other in zip(*found, strict=True):
        assert np.isfinite(one).all()
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("compiled", [pb.jit, pb.fuse])
def test_an_infinite_cotangent_reaches_what_was_selected_alone(compiled):
    """As ops do: the other branch gets zero, and not zero times infinity."""
    f = compiled(lambda x, y: pb.where(x > y, x * 2, y * y))
    for cotangent in (np.inf, np.nan):
        x, y = pb.tensor([1.0, 1.0], requires_grad=True), pb.tensor([0.0, 3.0], requires_grad=True)
        f(x, y).backward(np.array([cotangent, cotangent]))
        np.testing.assert_array_equal(x.grad.numpy(), [cotangent, 0.0])
        np.testing.assert_array_equal(y.grad.numpy(), [0.0, cotangent])


def test_an_error_is_the_function_s_own():
    x = normal(3, 4)
    with pytest.raises(IndexingError, match="cross_entropy: label 9 at"):
        pb.nn.cross_entropy(x, np.array([0, 1, 9]))
    with pytest.raises(IndexingError, match="cross_entropy: label -1 at"):
        pb.nn.cross_entropy(pb.tensor(x, requires_grad=True), np.array([0, 1, -1]))
    for _ in range(2):
        with pytest.raises(ShapeError, match="layer_norm: weight has shape"):
            pb.nn.layer_norm(x, np.ones(3))


@pytest.mark.parametrize("tracked", [False, True])
def test_mistakes_of_native_code_are_not_hidden(monkeypatch, tracked):
    """Only refused numbers send a call back to its ops."""

    @pb.fuse
    def f(x):
        return pb.sin(x) - pb.cos(x)

    monkeypatch.setenv("PULLBACK_CHECK", "1")
    monkeypatch.setitem(ir_builder._ARITHMETIC, "subtract", ("fadd", "add"))  # the renderer takes minus for plus
    with pytest.raises(MiscompiledError, match="subtract"):
        f(pb.tensor(normal(5), requires_grad=tracked))


def test_only_what_cannot_be_traced_is_declined_and_the_log_says_so(caplog):
    @pb.fuse
    def looks(x):
        return x * 2 if float(pb.sum(x)) > 0 else x

    @pb.fuse
    def fails(x):
        raise RuntimeError("as the user says")

    with caplog.at_level(logging.INFO, "pullback"):
        np.testing.assert_array_equal(looks(np.ones(3)), 2 * np.ones(3))
    assert any("looks runs op by op: it cannot be traced: float()" in r.getMessage() for r in caplog.records)
    with pytest.raises(RuntimeError, match="as the user says"):
        fails(np.ones(3))


def test_a_derivative_that_cannot_be_traced_is_recorded_op_by_op(caplog):
    @pb.custom_op(pure=True)
    def doubled(x):
        return 2 * x

    @doubled.def_spec
    def _(x):
        return x

    @doubled.def_vjp
    def _(bar, x):
        return bar * 2 if float(pb.sum(bar)) > 0 else bar

    f = pb.fuse(lambda x: pb.sin(doubled(x)))
    a = normal(4)
    with caplog.at_level(logging.INFO, "pullback"):
        for _ in range(3):
            x = pb.tensor(a, requires_grad=True)
            y = f(x)
            y.backward(np.ones(4) / np.cos(2 * a))
            np.testing.assert_allclose(x.grad.numpy(), 2 * np.ones(4), rtol=1e-12)
            np.testing.assert_allclose(y.detach().numpy(), np.sin(2 * a), rtol=1e-12)
    assert sum("recorded op by op" in r.getMessage() for r in caplog.records) == 1
    with pytest.raises(ConversionError):  # what was asked for by name is an error
        pb.jit(lambda x: pb.sin(doubled(x)))(pb.tensor(a, requires_grad=True))


def test_nodes_carry_the_line_of_the_caller():
    x = pb.tensor(normal(3, 4), requires_grad=True)
    y = pb.nn.layer_norm(x)  # this line
    assert "this line" in y.node.where()


SELECTIONS = {
    "relu6": lambda x: pb.nn.relu6(pb.log(x)),
    "hardtanh": lambda x: pb.nn.hardtanh(pb.log(x)),
    "hardshrink": lambda x: pb.nn.hardshrink(pb.sqrt(x)),
    "threshold": lambda x: pb.nn.threshold(pb.log(x), -1.0, 0.0),
    "nll_loss": lambda x: pb.nn.nll_loss(pb.log(x), np.array([-100, 1]), reduction="sum"),
}


@pytest.mark.parametrize("name", SELECTIONS)
def test_what_a_selection_did_not_take_stays_out_of_gradients(name):
    """The slopes of the logarithm and of the root at zero are infinite, where each of these has slope 0."""
    x = pb.tensor([[0.0, 0.0], [0.0, 2.0]], requires_grad=True)
    if name == "nll_loss":
        x = pb.tensor([[0.0, 0.0], [1.0, 2.0]], requires_grad=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        SELECTIONS[name](x).sum().backward()
    assert (x.grad.numpy()[0] == 0).all()
    assert np.isfinite(x.grad.numpy()).all()
