"""Autocast and policies where they meet other features: each against casts written by hand."""

import asyncio
import weakref

import numpy as np
import pytest

import pullback as pb

RNG = np.random.default_rng(23)
#: Matrices of one shape, so that sizes tell nothing apart.
X, W, V = (0.5 * RNG.normal(size=(3, 3)).astype("f4") for _ in range(3))
STACK = np.stack([X, W, V])


def low(x, dtype="bfloat16"):
    return pb.astype(x, dtype)


def high(x):
    return pb.astype(x, "float32")


def equal(found, wanted):
    pairs = zip(pb.tree.leaves(found), pb.tree.leaves(wanted), strict=True)
    for a, b in pairs:
        a, b = (np.asarray(x.value if isinstance(x, pb.Tensor) else x) for x in (a, b))
        assert a.dtype == b.dtype, (a.dtype, b.dtype)
        np.testing.assert_array_equal(a.astype("f8"), b.astype("f8"))


def loss(w):
    h = pb.tanh(pb.matmul(X, w))
    h = pb.where(h > 0, h, 0.5) + pb.clip(pb.matmul(h, w), -1.0, 2.0)
    return pb.sum(pb.exp(h) * pb.mean(h)) + pb.logsumexp(pb.einsum("ij,kj->ik", h, w))


def loss_by_hand(w):
    h = pb.tanh(pb.matmul(low(X), low(w)))
    h = pb.where(h > 0, h, 0.5) + pb.clip(pb.matmul(h, low(w)), -1.0, 2.0)
    return pb.sum(pb.exp(high(h)) * pb.mean(high(h))) + pb.logsumexp(high(pb.einsum("ij,kj->ik", h, low(w))))


def penalty(f, w):
    """The gradient of a penalty on the gradient, by the tape."""
    w = pb.tensor(w, requires_grad=True)
    (g,) = pb.gradients(f(w), [w], create_graph=True)
    pb.sum(g * g).backward()
    return w.grad


def watched(f, w):
    with pb.GradientTape() as outer:
        w = pb.tensor(w)
        outer.watch(w)
        with pb.GradientTape() as inner:
            inner.watch(w)
            y = f(w)
        z = pb.sum(inner.gradient(y, w) ** 2)
    return outer.gradient(z, w)


AROUND = {
    "grad": lambda f: pb.value_and_grad(f)(W),
    "jvp of grad": lambda f: pb.jvp(pb.grad(f), (W,), (V,)),
    "grad of jvp": lambda f: pb.grad(lambda w: pb.jvp(f, (w,), (V,))[1])(W),
    "third order": lambda f: pb.jvp(lambda w: pb.hvp(f, (w,), (V,)), (W,), (V,)),
    "hessian": lambda f: pb.hessian(f)(W),
    "laplacian": lambda f: pb.laplacian(f)(W),
    "jet": lambda f: pb.jet(f, (W,), ((V, 0 * V, 0 * V),)),
    "vmap of hessian": lambda f: pb.vmap(pb.hessian(f))(STACK),
    "grad of vmap": lambda f: pb.grad(lambda b: pb.sum(pb.vmap(f)(b)))(STACK),
    "linearize": lambda f: pb.linearize(f, W)[1](V),
    "penalty": lambda f: penalty(f, W),
    "gradient tapes": lambda f: watched(f, W),
    "checkpoint": lambda f: pb.hessian(pb.checkpoint(f))(W),
    "penalty of a checkpoint": lambda f: penalty(pb.checkpoint(f), W),
    "hessian of jit": lambda f: pb.hessian(pb.jit(f))(W),
    "jit of hessian": lambda f: pb.jit(pb.hessian(f))(W),
    "jit of a checkpoint": lambda f: pb.jit(pb.grad(pb.checkpoint(f)))(W),
    "penalty of jit": lambda f: penalty(pb.jit(f), W),
    "cond": lambda f: pb.grad(lambda w: pb.cond(w[0, 0] > -9, f, lambda w: pb.sum(w), w))(W),
    "staged": lambda f: pb.grad(pb.stage(f)(W))(W),
}


@pytest.mark.parametrize("name", AROUND)
def test_around_a_transform_it_is_as_inside(name):
    wanted = AROUND[name](loss_by_hand)
    with pb.autocast():
        equal(AROUND[name](loss), wanted)
    equal(AROUND[name](pb.autocast()(loss)), wanted)
    with pb.autocast("float16"), pb.autocast(enabled=False):
        off = AROUND[name](loss)
    equal(off, AROUND[name](loss))


@pytest.mark.parametrize("wrap", [lambda f: f, pb.jit], ids=["eager", "jit"])
def test_backward_inside_of_the_block_is_that_outside(wrap):
    inside, outside = (pb.tensor(W, requires_grad=True) for _ in range(2))
    f = wrap(loss)
    for _ in range(2):  # the second time it is added
        with pb.autocast(lower={"add", "multiply"}):
            f(inside).backward()
            value = f(outside)
        value.backward()
    equal(inside.grad, outside.grad)


@pytest.mark.parametrize("scope", [pb.autocast("float16"), pb.autocast(enabled=False), pb.no_grad()])
def test_a_checkpoint_recomputes_in_its_own_scope(scope):
    w = pb.tensor(W, requires_grad=True)
    with pb.autocast():
        value = pb.checkpoint(lambda w: pb.checkpoint(loss)(w) * 1.0)(w)
    with scope:
        value.backward()
    equal(w.grad, pb.grad(loss_by_hand)(W))


def test_a_budget_recomputes_what_was_computed():
    big = 0.2 * RNG.normal(size=(64, 64)).astype("f4")

    def deep(w, product, last):
        h = pb.tensor(big)
        for _ in range(12):
            h = pb.tanh(product(h, w))
        return pb.sum(last(h))

    w = pb.tensor(big, requires_grad=True)
    with pb.memory_budget("220 KiB"):
        with pb.autocast():
            value = deep(w, pb.matmul, lambda h: h)
        value.backward()
    equal(w.grad, pb.grad(lambda w: deep(w, lambda a, b: pb.matmul(low(a), low(b)), high))(big))


@pytest.mark.parametrize("wrap", [lambda f: f, pb.jit], ids=["eager", "jit"])
def test_associative_scans_keep_the_dtype_of_their_elements(wrap):
    with pb.autocast():
        found = wrap(lambda w: pb.associative_scan(pb.matmul, STACK * w))(W)
        gradient = pb.grad(wrap(lambda w: pb.sum(pb.associative_scan(pb.matmul, STACK * w))))(W)

    def by_hand(w):
        return pb.associative_scan(lambda a, b: high(pb.matmul(low(a), low(b))), STACK * w)

    equal(found, wrap(by_hand)(W))
    equal(gradient, pb.grad(wrap(lambda w: pb.sum(by_hand(w))))(W))


def test_a_graph_keeps_the_dtypes_it_was_built_with():
    def run(building, running):
        with building:
            g = pb.Graph()
            w, x = g.variable("w", W), g.placeholder("x", (None, 3), "float32")
            value = pb.sum(pb.exp(pb.matmul(x, w)))
            (dw,) = g.gradients(value, [w])
            (second,) = g.gradients(pb.sum(dw * dw), [w])
        with running:
            return g.compile([value, dw, second])(x=X), g.run([value, dw, second], {"x": X})

    off = pb.autocast(enabled=False)
    equal(run(off, pb.autocast()), run(off, off))
    equal(run(pb.autocast(), pb.autocast("float16")), run(pb.autocast(), off))


@pytest.mark.parametrize("solve", [
    lambda p: pb.root(lambda x, p: x + pb.tanh(pb.matmul(X, x)) - p, np.zeros(3, "f4"), p),
    lambda p: pb.least_squares(lambda x, p: pb.matmul(X + 2 * np.eye(3, dtype="f4"), x) - p, np.zeros(3, "f4"), p),
    lambda p: pb.fixed_point(lambda x, p: pb.tanh(pb.matmul(0.3 * X, x) + p), np.zeros(3, "f4"), p,
                             derivative=pb.implicit.Unrolled(20)),
], ids=["root", "least squares", "unrolled"])  # fmt: skip
def test_equations_are_solved_in_float32_at_every_order(solve):
    def both():
        squared = lambda p: pb.sum(solve(p) ** 2)  # noqa: E731
        return solve(W[0]), pb.grad(squared)(W[0]), pb.jvp(pb.grad(squared), (W[0],), (V[0],))

    with pb.autocast():
        found = both()
    equal(found, both())


def test_solvers_of_others_get_float32():
    seen = []

    @pb.implicit.custom_root(lambda x, a: 2.0 * x - a)
    def solver(a):
        seen.append(a.dtype.name)
        return a / 2

    w = pb.tensor(W, requires_grad=True)
    with pb.autocast():
        found = solver(pb.matmul(X, w))
    pb.sum(found).backward()
    assert (found.dtype.name, w.grad.dtype.name, seen) == ("float32", "float32", ["float32"])


def test_a_scope_does_not_keep_checkpoints_alive():
    class Mark:
        pass

    mark = Mark()
    alive = weakref.ref(mark)
    with pb.autocast():
        value = pb.checkpoint(lambda w, mark: loss(w))(pb.tensor(W, requires_grad=True), mark)
        value.backward()
        del mark, value
        assert alive() is None


def test_optimizers_compute_as_if_it_were_off_and_their_closures_do_not():
    def train(scope):
        p, seen = pb.tensor(W, requires_grad=True), []
        opt = pb.optim.LBFGS([p])

        def closure():
            opt.zero_grad()
            value = pb.sum((p * p - V) ** 2) + pb.sum(pb.cos(p))  # nothing that is rounded
            seen.append(pb.matmul(p, p).dtype.name)
            value.backward()
            return value

        with scope:
            for _ in range(3):
                opt.step(closure)
        return p.detach(), set(seen)

    found, inside = train(pb.autocast())
    plain, outside = train(pb.autocast(enabled=False))
    equal(found, plain)
    assert (inside, outside) == ({"bfloat16"}, {"float32"})


def test_gradients_are_clipped_and_scaled_as_if_it_were_off():
    with pb.autocast("float16", lower={"multiply", "add", "divide", "minimum"}):
        w = pb.tensor(W, requires_grad=True)
        w.grad = pb.tensor(V)
        norm = pb.optim.clip_grad_norm_([w], 0.1)
        scaler = pb.amp.GradScaler(init_scale=2.0**20)
        scaled = scaler.scale(pb.tensor(np.float32(0.5)))
        updated = pb.optim.apply_updates([W], [V])
        total = pb.optim.global_norm([V])
    equal(total, pb.optim.global_norm([V]))
    np.testing.assert_allclose(norm.item(), np.linalg.norm(V.astype("f8")), rtol=1e-6)
    np.testing.assert_allclose(w.grad.value, V * (0.1 / (np.linalg.norm(V) + 1e-6)), rtol=1e-6)
    assert scaled.item() == 2.0**19
    equal(updated, [W + V])


def test_products_of_eight_bits_are_not_lowered():
    a, b = (pb.amp.quantize(100 * RNG.normal(size=s).astype("f4")) for s in ((4, 64), (64, 4)))
    with pb.autocast("float16"):
        found = pb.amp.scaled_matmul(a, b)
    equal(found, pb.amp.scaled_matmul(a, b))


def test_a_compiled_function_sees_which_of_two_equal_specs_is_a_parameter():
    @pb.jit
    def square(a):
        return pb.matmul(a, a)

    class Net(pb.nn.Module):
        w: pb.Tensor

        def forward(self):
            constant = pb.tensor(X)
            return [square(a).dtype.name for a in (constant, self.w, self.w, constant, self.w)]

    net = Net(pb.tensor(W, requires_grad=True))
    net.policy = pb.Policy(compute="float16", output=None)
    assert net() == ["float32", "float16", "float16", "float32", "float16"]


def test_views_of_bare_parameters_are_parameters():
    class Net(pb.nn.Module):
        w: pb.Tensor

        def forward(self, x):
            return pb.matmul(x, self.w.T), pb.matmul(self.w[:2].reshape(3, 2), pb.zeros_like(x[:2]))

    net = Net(pb.tensor(W, requires_grad=True))
    net.policy = pb.Policy(compute="float16", output=None)
    wanted = net(pb.tensor(X))
    assert {y.dtype.name for y in wanted} == {"float16"}
    equal(net.arrays()(X), wanted)
    equal(pb.vmap(net.arrays())(STACK)[0][0], wanted[0])


def test_a_policy_at_every_order_and_in_other_scopes():
    net = pb.nn.Sequential(pb.nn.Linear(3, 3), pb.nn.LayerNorm(3), pb.nn.Tanh()).arrays()

    def value(net, x=X):
        return pb.sum(net(x) ** 2)

    def by_hand(net, x=X):
        linear, norm = (pb.tree.map(low, net[i]) for i in (0, 1))
        h = pb.nn.linear(low(x), linear.weight, linear.bias)
        return pb.sum(high(pb.tanh(pb.nn.layer_norm(h, weight=norm.weight, bias=norm.bias, eps=norm.eps))) ** 2)

    plain = pb.tree.map(lambda x: x, net)
    net.policy = pb.Policy()
    for transform in (
        pb.value_and_grad,
        lambda f: lambda net: pb.hvp(f, (net,), (net,)),
        lambda f: pb.grad(pb.checkpoint(f)),
        lambda f: lambda net: pb.vmap(lambda x: f(net, x))(STACK),
        lambda f: lambda net: pb.vmap(f)(pb.tree.map(lambda x: np.stack([x, 2 * x]), net)),
    ):
        wanted = transform(by_hand)(plain)
        equal(transform(value)(net), wanted)
        with pb.autocast("float16", lower={"tanh"}):  # which has no say inside of the module
            equal(transform(value)(net), wanted)


@pytest.mark.parametrize(
    "scope",
    [
        lambda: pb.autocast("cpu", dtype="float16"),
        lambda: pb.autocast(device_type="cpu", dtype=pb.float16, enabled=True, cache_enabled=False),
        lambda: pb.autocast("cpu", np.float16),
        lambda: pb.amp.autocast("cpu", "float16", True, True),
        lambda: pb.autocast("float16", "cpu"),
        lambda: pb.autocast(dtype=np.dtype("float16"), device="cpu"),
    ],
)
def test_spellings_of_other_libraries(scope):
    with scope():
        assert pb.matmul(X, W).dtype == np.float16
        assert pb.is_autocast_enabled()
        assert pb.is_autocast_enabled("cpu")
        assert not pb.is_autocast_enabled("cuda")
    with pb.autocast(device_type="cuda"):
        assert pb.matmul(X, W).dtype == np.float32
        assert not pb.is_autocast_enabled("cpu")
    with pb.autocast("cpu", enabled=False):
        assert not pb.is_autocast_enabled()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: pb.autocast(abs), "@pb.autocast()"),
        (lambda: pb.autocast()(3), "wants a function"),
        (lambda: pb.no_grad()(3), "wants a function"),
        (lambda: pb.autocast("cpu", device="cuda"), "both are given"),
        (lambda: pb.autocast(keep={pb.nn.Linear}), "made of other ops"),
        (lambda: pb.is_autocast_enabled("tpu"), "cuda"),
        (lambda: pb.Policy("mixed_bfloat16"), "compute='bfloat16', output=None"),
    ],
)
def test_what_is_not_understood_is_explained(call, message):
    with pytest.raises((pb.errors.PullbackError, TypeError), match=message.replace("(", r"\(").replace(")", r"\)")):
        call()


def test_decorated_generators_that_await():
    @pb.autocast()
    async def products():
        try:
            for _ in range(2):
                await asyncio.sleep(0)
                yield pb.matmul(X, W).dtype.name
        except KeyError:
            yield f"caught in {pb.matmul(X, W).dtype.name}"

    async def main():
        seen = [(name, pb.is_autocast_enabled()) async for name in products()]
        running = products()
        await anext(running)
        seen.append(await running.athrow(KeyError()))
        await running.aclose()
        return seen

    assert asyncio.run(main()) == [("bfloat16", False), ("bfloat16", False), "caught in bfloat16"]


def test_tasks_that_share_one_scope():
    scope = pb.autocast()

    async def task(on):
        await asyncio.sleep(0)
        if not on:
            return pb.matmul(X, W).dtype.name
        with scope:
            await asyncio.sleep(0)
            inside = pb.matmul(X, W).dtype.name
            await asyncio.sleep(0)
        return inside, pb.matmul(X, W).dtype.name

    async def main():
        return await asyncio.gather(task(True), task(False), task(True))

    assert asyncio.run(main()) == [("bfloat16", "float32"), "float32", ("bfloat16", "float32")]


def test_its_end_restores_nothing_but_itself():
    try:
        with pb.autocast():
            pb.set_grad_enabled(False)
        assert not pb.is_grad_enabled()
        assert not pb.is_autocast_enabled()
    finally:
        pb.set_grad_enabled(True)
