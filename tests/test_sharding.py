"""State and parameters divided among ranks: the same bits as without, and only a part of the memory on each."""

import functools

import numpy as np
import pytest

import pullback as pb
from pullback import distributed, errors, optim
from pullback.distributed import rule_structure, sharding

RNG = np.random.default_rng(1)
#: Sizes that ranks do not divide, an empty one, one number, half precision.
PARAMS = {
    "w": RNG.normal(size=(5, 3)).astype("float32"),
    "b": RNG.normal(size=7).astype("float32"),
    "one": np.float32(0.5) * np.ones(()),
    "none": np.zeros((0, 2), "float32"),
    "d": RNG.normal(size=4),
    "h": RNG.normal(size=6).astype("float16"),
}
MATRICES = {name: RNG.normal(size=s) for name, s in {"a": (4, 3), "b": (3, 5), "c": (2, 2)}.items()}
ELEMENTWISE = {
    "sgd": optim.sgd(0.1, momentum=0.9),
    "adam": optim.adam(1e-2),
    "adamw": optim.adamw(1e-2, weight_decay=0.1),
    "lion": optim.lion(1e-3),
    "rmsprop": optim.rmsprop(1e-2),
    "adagrad": optim.adagrad(1e-2),
}
BY_LEAVES = {"muon": optim.muon(1e-2), "shampoo": optim.shampoo(1e-2), "by norm": optim.clip_by_norm(0.5)}


def train(rule, params, compiled):
    """The bytes of parameters after some steps with gradients of each rank's own."""
    scale = 1.0 + distributed.rank()

    def step(p, s, t):
        grads = pb.tree.map(lambda x: (np.asarray(scale, x.dtype) * x * t.astype(x.dtype)).astype(x.dtype), p)
        updates, s = rule.update(grads, s, p)
        return optim.apply_updates(p, updates), s

    step = pb.jit(step) if compiled else step
    p, s = params, rule.init(params)
    for i in range(3):
        p, s = step(p, s, np.float32(1 + i))
    return {name: np.asarray(x).tobytes() for name, x in p.items()}, pb.tree.leaves(s)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", [*ELEMENTWISE, *BY_LEAVES])
def test_sharded_state_gives_the_same_bits(name, compiled):
    rule = (ELEMENTWISE | BY_LEAVES)[name]
    params = PARAMS if name in ELEMENTWISE else MATRICES
    plain = optim.chain(distributed.aggregate(), rule)
    first = optim.chain(distributed.aggregate(), distributed.sharded(rule))
    second = distributed.sharded(rule, aggregates=True)
    for n in (1, 3) if compiled else (1, 2, 3, 4):
        wanted = distributed.run(functools.partial(train, plain, params, compiled), n, timeout=60)
        for divided in (first, second):
            found = distributed.run(functools.partial(train, divided, params, compiled), n, timeout=60)
            assert [p for p, _ in found] == [p for p, _ in wanted]


def test_what_a_rule_does_is_found_by_tracing_it():
    specs = [pb.spec_of(x) for x in MATRICES.values()]
    assert all(rule_structure.is_elementwise(rule, specs) for rule in ELEMENTWISE.values())
    by_shape = optim.stateless_rule("by shape", lambda g, p: g * p.ndim)  # each element alone, but not in a row
    for rule in (*BY_LEAVES.values(), optim.add_noise(0.1), optim.clip_by_global_norm(1.0), by_shape):
        assert not rule_structure.is_elementwise(rule, specs)
    assert all(rule_structure.steps_leaves_alone(rule, specs) for rule in BY_LEAVES.values())
    assert not rule_structure.steps_leaves_alone(optim.clip_by_global_norm(1.0), specs)


def test_rules_over_all_parameters_are_refused():
    with pytest.raises(errors.ArgumentError, match="outside"):
        distributed.sharded(optim.chain(optim.clip_by_global_norm(1.0), optim.adam(1e-3)))
    with pytest.raises(errors.ArgumentError, match="wants a rule"):
        distributed.sharded(1)
    rule = distributed.sharded(optim.lbfgs(0.1))
    with pytest.raises(errors.ArgumentError, match="all parameters together"):
        rule.init(MATRICES)


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_bytes_of_a_rank_follow_the_formula(n):
    """Adam in float32: 4 bytes a parameter, 4 a gradient, 8 of state; what is divided is divided by the ranks."""
    params = {"w": np.ones((100, 40), "float32"), "v": np.ones((40, 30), "float32"), "b": np.ones(500, "float32")}
    count = sum(p.size for p in params.values())
    rule = optim.adam(1e-3)

    def held():
        bytes_of = lambda tree: sum(np.asarray(x).nbytes for x in pb.tree.leaves(tree))  # noqa: E731
        state = distributed.sharded(rule).init(params)
        parts = distributed.shard(params)
        sums = sharding.sum_parts(list(params.values()))
        loss = distributed.fully_sharded(lambda p: sum(pb.sum(x * x) for x in p.values()), params)
        return bytes_of(state), bytes_of(sums), bytes_of(parts), bytes_of(pb.grad(loss)(parts))

    for state, sums, parts, gradients in distributed.run(held, n):
        assert (4 + 4) * count + state == pytest.approx((8 + 8 / n) * count, rel=0.05)
        assert 4 * count + sums + state == pytest.approx((4 + 12 / n) * count, rel=0.05)
        assert parts + gradients + state == pytest.approx(16 / n * count, rel=0.05)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_fully_sharded_gradients_are_parts_of_those_of_the_whole(n, compiled):
    params = [RNG.normal(size=(4, 5)), RNG.normal(size=5), RNG.normal(size=(5, 2))]
    x = RNG.normal(size=(6, 4))

    def layer(p, h):
        return pb.tanh(h @ p[0] + p[1])

    def whole(p, x):
        return pb.sum((layer(p[:2], x) @ p[2]) ** 2)

    def on_rank():
        hidden, last = (
            distributed.fully_sharded(layer, params[:2]),
            distributed.fully_sharded(lambda w, h: h @ w, params[2]),
        )

        def loss(parts, x):
            return distributed.total(pb.sum(last(parts[2], hidden(parts[:2], x)) ** 2))

        gradient = pb.grad(loss)
        parts, mine = distributed.shard(params), np.array_split(x, n)[distributed.rank()]
        found = (pb.jit(gradient) if compiled else gradient)(parts, mine)
        second = pb.jvp(lambda p: pb.grad(loss)(p, mine), (parts,), (parts,))[1]
        return pb.tree.map(np.asarray, (found, second))

    wanted = pb.grad(whole)(params, x)
    curved = pb.jvp(lambda p: pb.grad(whole)(p, x), (params,), (params,))[1]
    results = distributed.run(on_rank, n, timeout=60)
    for i, (first, second) in enumerate(zip(wanted, curved, strict=True)):
        for found, exact in (([r[0][i] for r in results], first), ([r[1][i] for r in results], second)):
            joined = np.concatenate(found)
            np.testing.assert_allclose(joined[: exact.size], exact.reshape(-1), rtol=1e-10, atol=1e-12)
            assert not joined[exact.size :].any()


def test_whole_parameters_live_only_while_a_layer_runs():
    """Between the passes nothing gathered is held; the backward pass gathers again."""
    size = 200_000
    params = [RNG.normal(size=size) for _ in range(4)]
    gathers = []

    def on_rank():
        layers = [distributed.fully_sharded(lambda w, h: h * pb.sum(pb.sin(w)), w) for w in params]
        parts = [pb.tensor(p, requires_grad=True) for p in distributed.shard(params)]
        with pb.memory.profile() as profile:
            h = pb.tensor(1.0)
            for layer, part in zip(layers, parts, strict=True):
                h = layer(part, h)
            distributed.barrier()  # a meeting that another rank has not left yet holds results
            before = profile.live
            distributed.total(h).backward()
        gathers.append(before)
        return profile.peak

    peaks = distributed.run(on_rank, 2, timeout=60)
    assert max(gathers) < 1.1 * 4 * size // 2 * 8  # the parts themselves, which regions hold
    assert max(peaks) < 2 * 4.5 * size * 8  # both ranks are counted


def test_shard_and_unshard_are_inverse():
    def on_rank():
        parts = distributed.shard(PARAMS)
        return pb.tree.map(np.asarray, distributed.unshard(parts, PARAMS)), [p.shape for p in parts.values()]

    for found, shapes in distributed.run(on_rank, 3):
        for name, x in PARAMS.items():
            np.testing.assert_array_equal(found[name], x)
            assert found[name].dtype == x.dtype
        assert shapes == [(2,), (3,), (2,), (0,), (1,), (5,)] or sorted(shapes) == sorted(
            [(-(-x.size // 3),) for x in PARAMS.values()]
        )
