"""Autocast against casts written by hand: which dtype ops run in, in every mode, transform and compiled program."""

from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context

import numpy as np
import pytest

import pullback as pb

RNG = np.random.default_rng(19)
BF16, F16 = pb.bfloat16, np.dtype("float16")
X, W, V = (RNG.normal(size=s).astype("f4") for s in ((4, 3), (3, 5), (5, 2)))


def low(x, dtype="bfloat16"):
    return pb.astype(x, dtype)


def network(x, w, v):
    """Ops of all kinds: products, an exponential, a fold, the rest."""
    return pb.sum(pb.exp(pb.divide(pb.matmul(pb.tanh(pb.matmul(x, w)), v), 8)))


def network_by_hand(x, w, v, dtype="bfloat16"):
    hidden = pb.matmul(pb.tanh(pb.matmul(low(x, dtype), low(w, dtype))), low(v, dtype))
    return pb.sum(pb.exp(pb.astype(pb.divide(hidden, 8), "float32")))


def parameters():
    return pb.tensor(W, requires_grad=True), pb.tensor(V, requires_grad=True)


def equal(a, b):
    a, b = (np.asarray(x.value if isinstance(x, pb.Tensor) else x) for x in (a, b))
    assert a.dtype == b.dtype, (a.dtype, b.dtype)
    np.testing.assert_array_equal(a.astype("f8"), b.astype("f8"))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_on_the_tape(dtype):
    w, v = parameters()
    with pb.autocast(dtype):
        loss = network(X, w, v)
    loss.backward()
    w2, v2 = parameters()
    other = network_by_hand(X, w2, v2, dtype)
    other.backward()
    equal(loss, other)
    equal(w.grad, w2.grad)
    equal(v.grad, v2.grad)
    assert w.grad.dtype == np.float32


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_every_kind_of_op(dtype):
    x = pb.tensor(X)
    square = pb.tensor(np.eye(3, dtype="f4") * 4)
    half = pb.abs(x).astype(dtype)
    with pb.autocast(dtype):
        found = {
            "matmul": x @ x.T, "einsum": pb.einsum("ij,kj->ik", x, x), "conv": pb.nn.conv1d(X[None], X[None, :, :2]),
            "linear": pb.nn.linear(x, pb.tensor(W.T), pb.tensor(W[0])),
            "attention": pb.nn.scaled_dot_product_attention(x, x, x),
        }  # fmt: skip
        high = {
            "exp": pb.exp(half), "log": pb.log(half), "power": half**1.5, "sum": pb.sum(half), "mean": pb.mean(half),
            "solve": pb.linalg.solve(square.astype(dtype), half[:3, :1]), "softmax": pb.softmax(half),
            "layer_norm": pb.nn.layer_norm(half), "mse": pb.nn.mse_loss(half, half), "cumsum": pb.cumulative_sum(half),
            "cross_entropy": pb.nn.cross_entropy(half, np.zeros(4, int)), "var": pb.var(half),
            "std": pb.std(half), "norm": pb.linalg.norm(half), "logsumexp": pb.logsumexp(half), "prod": pb.prod(half),
            "softplus": pb.nn.softplus(half), "rms_norm": pb.nn.rms_norm(half),
            "bce": pb.nn.binary_cross_entropy_with_logits(half, half),
        }  # fmt: skip
        rest = {
            "add": half + half, "relu": pb.relu(half), "gelu": pb.nn.gelu(half), "tanh": pb.tanh(half),
            "max": pb.max(half), "reshape": half.reshape(-1), "getitem": half[0],
            "where": pb.where(half > 0, half, 0.0),
        }  # fmt: skip
        mixed = half + x
    assert {k: v.dtype.name for k, v in found.items()} == dict.fromkeys(found, dtype)
    assert {k: v.dtype.name for k, v in high.items()} == dict.fromkeys(high, "float32")
    assert {k: v.dtype.name for k, v in rest.items()} == dict.fromkeys(rest, dtype)
    assert mixed.dtype == np.float32


def test_what_takes_no_part():
    double = X.astype("f8")
    with pb.autocast():
        assert (double @ W.astype("f8")).dtype == np.float64
        assert pb.matmul(double, pb.tensor(W)).dtype == np.float64  # the float32 operand is not rounded first
        equal(pb.matmul(double, pb.tensor(W)), double @ W)
        whole = pb.tensor(np.arange(4).reshape(2, 2))
        assert (whole @ whole).dtype == whole.dtype
        assert pb.matmul(X.astype("c8"), W).dtype == np.complex64
        assert pb.matmul(X, W).dtype == BF16  # bare arrays take part


def test_by_name_and_by_scope():
    x = pb.tensor(X)
    with pb.autocast(keep={"matmul"}, lower={"add", pb.softmax}):
        assert (x @ x.T).dtype == np.float32
        assert (x + x).dtype == BF16
        assert pb.softmax(x).dtype == BF16
        with pb.autocast("float16"):
            assert (x @ x.T).dtype == F16
            assert (x + x).dtype == np.float32
            with pb.autocast(enabled=False):
                assert (x @ x.T).dtype == np.float32
                assert not pb.is_autocast_enabled()
            assert (x @ x.T).dtype == F16
        assert (x + x).dtype == BF16
    assert (x + x).dtype == np.float32
    assert not pb.is_autocast_enabled()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": "float32"}, "bfloat16"),
        ({"device": "tpu"}, "cpu"),
        ({"keep": {"sofmax"}}, "softmax"),
        ({"keep": {"lstm"}}, "made of other ops"),
        ({"keep": "add"}, "a set of names"),
        ({"keep": {3}}, "names or functions"),
        ({"enabled": 1}, "True or False"),
        ({"keep": {"add"}, "lower": {"add"}}, "in keep and in lower"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(pb.errors.PullbackError, match=message):
        pb.autocast(**options)


def test_a_device():
    with pb.autocast(device="cuda"):
        assert pb.matmul(X, W).dtype == np.float32
    with pb.autocast(device="cpu"):
        assert pb.matmul(X, W).dtype == BF16


def test_as_a_decorator_also_of_generators():
    @pb.autocast()
    def product(x):
        return x @ x.T

    @pb.autocast()
    def products(x):
        for _ in range(2):
            yield x @ x.T

    assert product(pb.tensor(X)).dtype == BF16
    for y in products(pb.tensor(X)):
        assert y.dtype == BF16
        assert not pb.is_autocast_enabled()


def test_under_jit_and_inside():
    w, v = parameters()
    compiled = pb.jit(network)
    plain = compiled(X, w, v)
    with pb.autocast():
        found = compiled(X, w, v)
        again = compiled(X, w, v)
    assert compiled.traces == 2
    equal(plain, compiled(X, w, v))
    assert compiled.traces == 2
    by_hand = pb.jit(network_by_hand)(X, w, v)
    inside = pb.jit(pb.autocast()(network))(X, w, v)
    for each in (found, again, inside):
        equal(each, by_hand)
    (found + inside).backward()
    w2, v2 = parameters()
    (2 * pb.jit(network_by_hand)(X, w2, v2)).backward()
    np.testing.assert_allclose(w.grad.value, w2.grad.value, rtol=2e-2, atol=1e-2)


def test_gradients_of_several_uses_are_added_in_float32():
    w = pb.tensor(np.ones((1, 1), "f4"), requires_grad=True)
    big, small = np.full((1, 1), 256, "f4"), np.full((1, 1), 0.5, "f4")
    with pb.autocast():
        loss = pb.sum(big @ w) + pb.sum(small @ w)
    loss.backward()
    assert w.grad.item() == 256.5  # in bfloat16 it would be 256


def test_casts_are_shared_and_follow_the_parameter(monkeypatch):
    from pullback.ops import casting

    casts = []
    run = casting.run
    monkeypatch.setattr(
        casting, "run", lambda op, args, static: (op.name == "astype" and casts.append(1), run(op, args, static))[1]
    )
    w = pb.tensor(np.eye(3, dtype="f4"), requires_grad=True)
    x = pb.tensor(X)
    with pb.autocast():
        first = x @ w
        second = x @ w
        assert len(casts) == 2  # x and w, once each
        with pb.no_grad():
            assert not (x @ w).requires_grad
            w -= 0.5 * w  # rebound: its cast is another
            equal(x @ w, (low(x) @ low(w.detach())))
        assert (x @ w).requires_grad
    pb.sum(first).backward()
    pb.sum(second).backward()  # each use has a node of its own
    equal(
        w.grad, 2 * np.repeat(pb.sum(low(x).astype("f4"), axis=0).value[:, None], 3, axis=1).astype(BF16).astype("f4")
    )


def compare(f, by_hand, *args, rtol=0.0):
    """The value and all derivatives of a function of float32 arrays under autocast, and of one that casts by itself."""
    cast = pb.autocast()(f)
    direction = tuple(np.ones_like(a) for a in args)
    numbers = tuple(range(len(args)))
    for transform in (
        lambda f: f(*args),
        lambda f: pb.grad(f, numbers)(*args),
        lambda f: pb.jvp(f, args, direction),
        lambda f: pb.jvp(lambda *xs: pb.grad(f, numbers)(*xs), args, direction),
        lambda f: pb.grad(lambda *xs: pb.jvp(f, xs, direction)[1], numbers)(*args),
        lambda f: pb.linearize(f, *args)[1](*direction),
        lambda f: pb.hessian(f)(*args),
        lambda f: pb.vmap(f)(*(np.stack([a, a + 1]) for a in args)),
        lambda f: pb.vmap(pb.grad(f))(*(np.stack([a, a + 1]) for a in args)),
    ):
        found, wanted = pb.tree.leaves(transform(cast)), pb.tree.leaves(transform(by_hand))
        assert [np.asarray(x).dtype for x in found] == [np.asarray(x).dtype for x in wanted]
        for a, b in zip(found, wanted, strict=True):
            np.testing.assert_allclose(np.asarray(a, "f8"), np.asarray(b, "f8"), rtol=rtol, atol=rtol)


def test_every_transform_at_every_order():
    compare(lambda w, v: network(X, w, v), lambda w, v: network_by_hand(X, w, v), W, V)


def test_taylor_coefficients():
    def coefficients(f):
        return pb.jet(lambda t: f(X, W * t, V), (np.float32(1),), ((np.float32(1), np.float32(0)),))

    found, wanted = coefficients(pb.autocast()(network)), coefficients(network_by_hand)
    for a, b in zip(pb.tree.leaves(found), pb.tree.leaves(wanted), strict=True):
        equal(a, b)


def rounded_steps(step_product):
    """A loop whose products are made by a function; the carry is float32 throughout."""

    def f(w):
        def step(h, x):
            h = pb.tanh(step_product(h, w) + x)
            return h, h

        return pb.sum(pb.scan(step, np.zeros((2, 3), "f4"), np.ones((4, 2, 3), "f4"))[1])

    return f


@pytest.mark.parametrize("wrap", [lambda f: f, pb.jit], ids=["eager", "jit"])
def test_carries_of_loops_keep_their_dtypes(wrap):
    w = X[:3]
    found = rounded_steps(pb.matmul)
    by_hand = rounded_steps(lambda h, w: pb.matmul(low(h), low(w)))
    for transform in (lambda f: f(w), lambda f: pb.grad(f)(w), lambda f: pb.jvp(f, (w,), (w,))[1]):
        a, b = transform(pb.autocast()(wrap(found))), transform(wrap(by_hand))
        assert a.dtype == np.float32
        np.testing.assert_allclose(a, b, rtol=1e-6)

    def halve(w):
        return pb.while_loop(lambda c: pb.max(c) > 1, lambda c: pb.matmul(c, np.eye(3, dtype="f4") / 2), w)

    with pb.autocast():
        out = wrap(halve)(np.full((2, 3), 8, "f4"))
    equal(out, np.ones((2, 3), "f4"))


def test_branches_promote_what_autocast_decided():
    def f(p, x):
        return pb.cond(p, lambda x: pb.matmul(x, x), lambda x: x, x)

    square = np.eye(2, dtype="f4") * 3
    with pb.autocast():
        assert pb.jit(f)(np.array(True), square).dtype == np.float32
        assert pb.vmap(f)(np.array([True, False]), np.stack([square, square])).dtype == np.float32


def test_checkpoints_recompute_what_they_computed():
    w, v = parameters()
    with pb.autocast():
        loss = pb.checkpoint(network)(X, w, v)
    loss.backward()  # outside of the block
    w2, v2 = parameters()
    network_by_hand(X, w2, v2).backward()
    equal(w.grad, w2.grad)
    equal(v.grad, v2.grad)

    def loop(w):
        return pb.sum(pb.checkpoint_loop(lambda i, h: pb.tanh(pb.matmul(h, w)), X, 5, snapshots=2))

    def by_hand(w):
        h = X
        for _ in range(5):
            h = pb.astype(pb.tanh(pb.matmul(low(h), low(w))), "f4")
        return pb.sum(h)

    w = X[:3]
    equal(pb.grad(pb.autocast()(loop))(w), pb.grad(by_hand)(w))


def test_within_a_memory_budget():
    w, v = parameters()
    with pb.memory_budget("1 GiB"), pb.autocast():
        network(X, w, v).backward()
    w2, v2 = parameters()
    network_by_hand(X, w2, v2).backward()
    equal(w.grad, w2.grad)


@pytest.mark.parametrize(("kind", "dtype"), [("low", "bfloat16"), ("high", "float32"), ("promote", "float16")])
def test_ops_of_the_user_are_cast_as_declared(kind, dtype):
    seen = []

    @pb.custom_op(autocast=kind)
    def double(x):
        seen.append(x.dtype.name)
        return x + x

    @double.def_vjp
    def _(bar):
        return bar + bar

    class Double(pb.Function):
        autocast = kind

        @staticmethod
        def forward(ctx, x):
            seen.append(x.dtype.name)
            return x + x

        @staticmethod
        def backward(ctx, bar):
            return bar + bar

    x = pb.tensor(X.astype("f2"), requires_grad=True)
    with pb.autocast():
        loss = pb.sum(double(x)) + pb.sum(Double.apply(x))
        with pb.autocast(lower={double}):
            assert double(x).dtype == BF16
    loss.backward()
    assert seen == [dtype, dtype, "bfloat16"]
    equal(x.grad, np.full_like(X, 4, "f2"))
    with pytest.raises(pb.errors.ArgumentError, match="low"):
        pb.custom_op(autocast="half")(lambda x: x)


def test_equations_and_optimizers_run_in_float32():
    a = pb.tensor(np.float32(0.3), requires_grad=True)
    x = pb.tensor(np.full(3, 0.5, "f4"))
    matrix = pb.tensor(np.eye(3, dtype="f4"))
    with pb.autocast():
        found = pb.fixed_point(lambda x, a: pb.cos(matrix @ x) * a, x, a)
        solved = pb.linear_solve(lambda x: matrix @ x * 3, x.astype("bfloat16"))
    assert found.dtype == solved.dtype == np.float32
    equal(found, pb.fixed_point(lambda x, a: pb.cos(matrix @ x) * a, x, a))
    for rule in (pb.optim.Adam, pb.optim.Muon) if hasattr(pb.optim, "Muon") else (pb.optim.Adam,):
        grads = []
        for cast in (True, False):
            w = pb.tensor(W, requires_grad=True)
            opt = rule([w], lr=0.1)
            w.grad = pb.tensor(W * 2)
            with pb.autocast(lower={"multiply", "add"}, enabled=cast):
                opt.step()
            grads.append(w.value)
        equal(*grads)


def test_the_graph_builder():
    g = pb.Graph()
    with pb.autocast():
        w = g.variable("w", W)
        loss = pb.sum(pb.exp(pb.matmul(X, w)))
    (dw,) = g.gradients(loss, [w])
    found = g.compile([loss, dw])()
    by_hand = lambda w: pb.sum(pb.exp(pb.astype(pb.matmul(low(X), low(w)), "f4")))  # noqa: E731
    equal(found[0], pb.jit(by_hand)(W))
    equal(found[1], pb.jit(pb.grad(by_hand))(W))


def test_threads_have_modes_of_their_own():
    def product():
        return pb.matmul(X, W).dtype

    with pb.autocast(), ThreadPoolExecutor(1) as pool:
        assert pool.submit(product).result() == np.float32
        assert pool.submit(copy_context().run, product).result() == BF16
        assert [x.dtype for x in pb.map(lambda x: x, X)] == [np.float32] * 4
    w, v = parameters()
    with pb.autocast():
        loss = network(X, w, v)
        loss.backward(workers=2)
    w2, v2 = parameters()
    network_by_hand(X, w2, v2).backward()
    equal(w.grad, w2.grad)


def test_a_program_keeps_the_dtypes_it_was_staged_with():
    program = pb.stage(network)(X, W, V)
    with pb.autocast():
        equal(program(X, W, V), pb.autocast(enabled=False)(network)(X, W, V))
        inside = pb.stage(network)(X, W, V)
    equal(inside(X, W, V), network_by_hand(X, W, V))


def test_fused_functions_of_the_user_are_decided_by_their_ops():
    @pb.fuse
    def layer(x, w):
        return pb.exp(pb.matmul(x, w) * 0.5)

    w = pb.tensor(W, requires_grad=True)
    with pb.autocast():
        out = layer(pb.tensor(X), w)
    by_hand = pb.fuse(lambda x, w: pb.exp(pb.astype(pb.matmul(low(x), low(w)) * 0.5, "f4")))
    equal(out, by_hand(pb.tensor(X), w))
    assert layer(pb.tensor(X), w).dtype == np.float32
    np.testing.assert_allclose(layer(X, W), np.exp(X @ W * 0.5), rtol=1e-5)
    pb.sum(out).backward()
    assert w.grad.dtype == np.float32
    whole = pb.fuse(lambda x: x * 2, autocast="high", name="twice")
    with pb.autocast():
        assert whole(pb.tensor(X).astype("bfloat16")).dtype == np.float32
    with pytest.raises(pb.errors.ArgumentError, match="promote"):
        pb.fuse(lambda x: x, autocast="half")


def small_network():
    return pb.nn.Sequential(pb.nn.Linear(3, 4), pb.nn.LayerNorm(4), pb.nn.BatchNorm(4), pb.nn.Linear(4, 2))


def cast_by_hand(net, dtype):
    return pb.tree.map(lambda x: pb.astype(x, dtype), net)


@pytest.mark.parametrize("wrap", [lambda f: f, pb.jit], ids=["eager", "jit"])
def test_a_policy_casts_parameters_inputs_and_results(wrap):
    net = small_network()
    plain = net[0].weight, net[0].bias
    seen = []
    for layer in net:
        layer.register_forward_hook(lambda module, args, out: seen.append(out.dtype.name))
    net.policy = pb.Policy(compute="float16")
    out = wrap(lambda net, x: net(x))(net, X)
    assert out.dtype == np.float32
    assert seen == ["float16"] * 4
    pb.sum(out * out).backward()
    assert {p.grad.dtype.name for p in net.parameters()} == {"float32"}
    assert net[2].mean.dtype == np.float32  # a buffer
    one = pb.nn.Sequential(net[0])
    one.policy = net.policy
    by_hand = pb.nn.linear(low(X, "float16"), *(low(p, "float16") for p in plain))
    np.testing.assert_allclose(wrap(lambda x: one(x))(X).value, by_hand.astype("f4").value, rtol=2e-3, atol=1e-4)


def test_modules_inside_may_have_a_policy_of_their_own():
    net = pb.amp.apply(small_network(), pb.Policy(params="bfloat16", compute="bfloat16", output=None))
    pb.amp.apply(net, pb.Policy(compute="float32", output=None), to=pb.nn.LayerNorm)
    seen = []
    for layer in net:
        layer.register_forward_hook(lambda module, args, out: seen.append((args[0].dtype.name, out.dtype.name)))
    assert net(X).dtype == BF16
    assert [pair[0] for pair in seen] == ["bfloat16", "float32", "bfloat16", "bfloat16"]
    assert seen[1] == ("float32", "float32")
    assert [p.dtype.name for p in net.parameters()] == ["bfloat16"] * 2 + ["float32"] * 2 + ["bfloat16"] * 4
    assert net[2].mean.dtype == np.float32
    with pb.autocast("float16"):  # the policy of a module holds inside of it
        assert net(X).dtype == BF16
    with pytest.raises(pb.errors.ArgumentError, match="compute"):
        pb.Policy(compute="float64")
    for wrong in ((net, "bfloat16"), (3, pb.Policy())):
        with pytest.raises(pb.errors.ArgumentTypeError, match="apply"):
            pb.amp.apply(*wrong)


def test_policies_in_transforms_files_and_compiled_functions(tmp_path):
    net = small_network().eval()
    net.policy = pb.Policy(compute="float16")
    loss = lambda net, x: pb.sum(net(x) ** 2)  # noqa: E731
    bare = net.arrays()
    found = pb.grad(loss)(bare, X)
    assert {x.dtype.name for x in pb.tree.leaves(found)} == {"float32"}
    compiled = pb.jit(loss)
    value = compiled(bare, X)
    bare.policy = pb.Policy(compute="bfloat16")
    other = compiled(bare, X)  # a setting of the module: traced again
    assert compiled.traces == 2
    assert value != other
    assert pb.vmap(lambda x: bare(x))(X[:, None]).dtype == np.float32
    pb.save(tmp_path / "net", net)
    loaded = pb.load(tmp_path / "net")
    assert loaded.policy == net.policy
    equal(loaded(X), net(X))

    class Agent(pb.nn.Module):  # an attribute of that name is the user's, unless it is a policy of ours
        def __init__(self):
            self.policy = pb.nn.Linear(3, 2)

        def forward(self, x):
            return self.policy(x)

    assert Agent()(X).dtype == np.float32


def test_jitted_functions_inside_of_a_module_follow_its_policy():
    @pb.jit
    def product(x, w):
        return pb.matmul(x, w)

    class Net(pb.nn.Module):
        w: pb.Tensor
        v: pb.Tensor

        def forward(self, x):
            closed = pb.jit(lambda x: pb.matmul(x, self.v))
            return product(x, self.w), closed(x)

    net = Net(pb.tensor(W, requires_grad=True), pb.tensor(W, requires_grad=True))
    assert product(X, net.w).dtype == np.float32
    net.policy = pb.Policy(compute="float16", output=None)
    a, b = net(X)
    assert a.dtype == b.dtype == F16
    equal(a, b)
    pb.sum(a + b).backward()
    equal(net.w.grad, net.v.grad)


def test_explain_says_which_dtype_and_why():
    w = pb.tensor(W, requires_grad=True)

    def step(x):
        h = x @ w
        h = pb.nn.gelu(h) + x @ w
        with pb.autocast(enabled=False):
            h = h.astype("float32") * 2
        return pb.nn.mse_loss(pb.exp(h), 0 * h)

    with pb.autocast(keep={"exp"}):
        eager = pb.amp.explain(step, pb.tensor(X))
        staged = pb.amp.explain(pb.jit(step), pb.tensor(X))
        inside = pb.amp.explain(lambda x: pb.jit(step)(x), pb.tensor(X))
    rows = [(c.name, c.ran, c.kind, c.why) for c in eager.calls]
    assert rows == [
        ("matmul", ("bfloat16", "bfloat16"), "low", "a contraction"),
        ("gelu", ("bfloat16",), "promote", "the whole function"),
        ("matmul", ("bfloat16", "bfloat16"), "low", "a contraction"),
        ("add", ("bfloat16", "bfloat16"), "promote", "by promotion"),
        ("astype", ("bfloat16",), "promote", "autocast is off"),
        ("multiply", ("float32",), "promote", "autocast is off"),
        ("exp", ("float32",), "high", "keep"),
        ("multiply", ("float32",), "promote", "by promotion"),
        ("mse_loss", ("float32", "float32"), "high", "the whole function"),
    ]
    assert [(c.name, c.ran, c.kind, c.why) for c in staged.calls] == rows
    assert [(c.name, c.ran, c.kind, c.why) for c in inside.calls] == rows
    assert [c.shared for c in eager.calls][:3] == [0, 0, 2]
    assert [c.shared for c in staged.calls][:3] == [0, 0, 2]
    assert "h = x @ w" in eager.calls[0].line
    text = str(eager)
    assert text.startswith("9 calls: 5 in bfloat16, 4 in float32")
    assert "low: a contraction, 2 cast (2 shared)" in text
    assert "a contraction" in eager._repr_html_()
    assert eager.by_dtype() == {"bfloat16": 5, "float32": 4}
    assert not pb.is_autocast_enabled()
    off = pb.amp.explain(lambda: pb.matmul(X, W))
    assert [(c.ran, c.why) for c in off.calls] == [(("float32", "float32"), "autocast is off")]


def test_explain_lists_ops_of_fused_functions_and_policies():
    @pb.fuse
    def layer(x):
        return pb.exp(pb.matmul(x, W))

    with pb.autocast():
        assert [c.name for c in pb.amp.explain(layer, pb.tensor(X)).calls] == ["matmul", "exp"]
    net = small_network()
    net.policy = pb.Policy()
    report = pb.amp.explain(net, X)
    assert {c.why for c in report.calls if c.name == "linear"} == {"the module's policy"}
