"""Training on ranks that are processes: each part of it once, against the same training in one piece."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import sliced_training
from sliced_training import digest

import pullback as pb
from pullback import distributed, errors, optim
from pullback.distributed import codecs
from pullback.distributed.codecs.codec import run_codecs
from pullback.ops.collective.world import current_world

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(12, 5)), RNG.normal(size=(12, 2))
PARAMS = {"w": RNG.normal(size=(5, 4)) / 2, "b": np.zeros(4), "v": RNG.normal(size=(4, 2)) / 2}


def own_rows():
    """An uneven part of the samples: none on the second of more than two ranks."""
    n, r = distributed.world_size(), distributed.rank()
    cuts = [0, 5, 5, *range(6, 3 + n), 12] if n > 2 else [0, 5, 12]
    return X[cuts[r] : cuts[r + 1]], Y[cuts[r] : cuts[r + 1]]


def error_sum(p, x, y):
    return pb.sum((pb.tanh(x @ p["w"] + p["b"]) @ p["v"] - y) ** 2), len(x)


def serial_loss(p):
    return error_sum(p, X, Y)[0] / 12


def assert_alike(found, wanted, **tolerance):
    for a, b in zip(pb.tree.leaves(found), pb.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(np.asarray(a), b, **tolerance)


def assert_same_on_all_ranks(tree):
    found = distributed.all_gather(np.frombuffer(digest(tree).encode(), np.uint8).reshape(1, -1))
    assert (found == found[0]).all()


def train(rule, gradient, params, steps=4):
    p, s = params, rule.init(params)
    for _ in range(steps):
        updates, s = rule.update(gradient(p), s, p)
        p = optim.apply_updates(p, updates)
    return p, s


def check_losses():
    """The loss over all samples, its gradient, a penalty on that."""
    loss = distributed.data_parallel(error_sum)

    def penalized(f):
        return lambda p: f(p) + 0.1 * sum(pb.sum(g**2) for g in pb.grad(f)(p).values())

    over_ranks = lambda p: loss(p, *own_rows())  # noqa: E731
    for make in (lambda f: f, penalized):
        wanted = pb.grad(make(serial_loss))(PARAMS)
        for compiled in (False, True):
            gradient = pb.grad(make(over_ranks))
            found = (pb.jit(gradient) if compiled else gradient)(PARAMS)
            assert_alike(found, wanted, rtol=1e-10, atol=1e-12)


def check_aggregation():
    """Own gradients of uneven batches, weighed by samples, in front of a norm over all parameters."""
    rest = (optim.clip_by_global_norm(0.3), optim.adam(0.05))
    wanted, _ = train(optim.chain(*rest), pb.grad(serial_loss), PARAMS)
    rule = optim.chain(distributed.aggregate(check_every=2), *rest)
    x, y = own_rows()

    def step(p, s):
        grads = pb.grad(lambda p: error_sum(p, x, y)[0] / max(len(x), 1))(p)
        updates, s = rule.update(grads, s, p, weight=float(len(x)))
        return optim.apply_updates(p, updates), s

    for run in (step, pb.jit(step)):
        p, s = PARAMS, rule.init(PARAMS)
        for _ in range(4):
            p, s = run(p, s)
        assert_alike(p, wanted, rtol=1e-9)
        assert_same_on_all_ranks(p)


def gradients_of(p):
    return {name: None if t.grad is None else t.grad.numpy().copy() for name, t in p.items()}


def check_tape():
    """Uneven batches, accumulation with `no_sync`, a parameter that some ranks do not reach and one that none does;
    sums at the end, and beside the pass.
    """
    wanted = pb.grad(serial_loss)(PARAMS)
    world = current_world()
    normally = world.runs_beside
    for world.runs_beside in (False, True):
        for bucket_mb in (25.0, 1e-4):
            check_gradients(wanted, bucket_mb)
    world.runs_beside = normally


def check_gradients(wanted, bucket_mb):
    x, y = own_rows()
    p = {name: pb.tensor(a, requires_grad=True) for name, a in PARAMS.items()}
    p |= {"rare": pb.tensor(np.ones(3), requires_grad=True), "never": pb.tensor(np.ones(2), requires_grad=True)}
    ddp = distributed.DistributedGradient(p, bucket_mb=bucket_mb)
    for _ in range(3):
        for t in p.values():
            t.grad = None
        with ddp.no_sync():
            (error_sum(p, x[:2], y[:2])[0] / 12).backward()
        last = error_sum(p, x[2:], y[2:])[0] / 12
        (last + pb.sum(p["rare"]) if distributed.rank() == 1 else last).backward()
        found = gradients_of(p)
        assert_alike({name: found[name] for name in wanted}, wanted, rtol=1e-11, atol=1e-13)
        np.testing.assert_array_equal(found["rare"], np.ones(3))
        assert found["never"] is None
        assert_same_on_all_ranks([found[name] for name in (*wanted, "rare")])
    ddp.remove()


def check_normalization():
    """A layer that sees the samples of all ranks: results, gradients, statistics."""
    x = np.random.default_rng(3).normal(size=(12, 3)).astype("float32")
    weights = np.random.default_rng(4).normal(size=(12, 3)).astype("float32")
    n, r = distributed.world_size(), distributed.rank()
    mine = np.array_split(np.arange(12), [1, *range(4, 2 + n)])[r]
    alone, layer = pb.nn.BatchNorm(3), pb.nn.SyncBatchNorm(3)
    wanted = pb.grad(lambda x: pb.sum(pb.sin(alone(x)) * weights))(x)
    found = pb.grad(lambda x: distributed.total(pb.sum(pb.sin(layer(x)) * weights[mine])))(x[mine])
    np.testing.assert_allclose(found.detach().numpy(), wanted.detach().numpy()[mine], rtol=2e-4, atol=2e-5)
    for name in ("mean", "variance"):
        np.testing.assert_allclose(np.asarray(getattr(layer, name)), np.asarray(getattr(alone, name)), rtol=1e-5)


def check_sharding():
    """Divided state, gradients and parameters: the bits of those that are not divided."""
    scale = 1.0 + distributed.rank()
    params = {
        "w": RNG_PARTS.normal(size=(5, 3)).astype("float32"),
        "h": RNG_PARTS.normal(size=6).astype("float16"),
        "one": np.ones((), "float32"),
        "none": np.zeros((0, 2), "float32"),
    }

    def own(p):
        return {name: (np.asarray(scale, x.dtype) * x).astype(x.dtype) for name, x in p.items()}

    matrices = {"a": RNG_PARTS.normal(size=(4, 3)), "b": RNG_PARTS.normal(size=(3, 5))}
    for rule, tree in ((optim.adam(1e-2), params), (optim.muon(1e-2), matrices)):
        wanted, _ = train(optim.chain(distributed.aggregate(), rule), own, tree)
        first = optim.chain(distributed.aggregate(), distributed.sharded(rule))
        for divided in (first, distributed.sharded(rule, aggregates=True)):
            assert digest(train(divided, own, tree)[0]) == digest(wanted)
    check_divided_parameters()


RNG_PARTS = np.random.default_rng(1)


def check_divided_parameters():
    x = np.array_split(X, distributed.world_size())[distributed.rank()]
    params = {name: p.astype("float32") for name, p in PARAMS.items()}

    def error(p):
        return pb.sum((pb.tanh(x @ p["w"] + p["b"]) @ p["v"]) ** 2)

    def whole_loss(p):
        return distributed.total(error(distributed.shared(p)))

    divided = distributed.fully_sharded(error, params)
    rule = optim.adam(1e-2)
    for compiled in (False, True):
        gradient, by_parts = pb.grad(whole_loss), pb.grad(lambda parts: distributed.total(divided(parts)))
        if compiled:
            gradient, by_parts = pb.jit(gradient), pb.jit(by_parts)
        wanted, _ = train(rule, gradient, params)
        parts, _ = train(rule, by_parts, distributed.shard(params))
        assert digest(distributed.unshard(parts, params)) == digest(wanted)


CODECS = {
    "int8": codecs.int8(),
    "one_bit": codecs.one_bit(),
    "top_k": codecs.top_k(0.2),
    "power_sgd": codecs.power_sgd(1),
}


def check_codecs():
    """All ranks have the same sums, and nothing is lost: sums so far and residuals are the sum of all gradients."""
    steps, n = 5, distributed.world_size()
    gradients = np.random.default_rng(2).normal(size=(n, steps, 9, 6)).astype("float32")
    for name, codec in CODECS.items():
        kept = codecs.error_feedback(codec)

        def step(x, state, t, kept=kept):
            (coded,) = run_codecs([kept], [x], [state], t)
            return coded.total, coded.state

        for run in (step, pb.jit(step)):
            state, sums = kept.init(gradients[0, 0]), np.zeros((9, 6))
            for t in range(steps):
                total, state = run(gradients[distributed.rank(), t], state, np.array(t))
                sums += np.asarray(total, np.float64)
            assert_same_on_all_ranks(sums)
            left = distributed.total(np.asarray(state["residual"].tree, np.float64))
            np.testing.assert_allclose(sums + left, gradients.sum((0, 1)), atol=1e-4, err_msg=name)
    check_compressed_tape()


def check_compressed_tape():
    """`DistributedGradient` sums as `aggregate` does, with the same codec."""
    codec = codecs.error_feedback(codecs.one_bit())
    rule, w = distributed.aggregate(codec), pb.tensor(np.zeros((6, 5), "f"), requires_grad=True)
    ddp = distributed.DistributedGradient([w], codec=codec)
    state = rule.init([np.zeros((6, 5), "f")])
    for t in range(3):
        x = np.random.default_rng([t, distributed.rank()]).normal(size=(6, 5)).astype("float32")
        w.grad = None
        pb.sum(w * x).backward()
        (wanted,), state = rule.update([x], state, [np.zeros((6, 5), "f")])
        np.testing.assert_allclose(w.grad.numpy(), wanted, rtol=1e-5, atol=1e-6)
    ddp.remove()


def check_bits():
    for way, found in sliced_training.digests(steps=100).items():
        assert_same_on_all_ranks([np.array(sorted(found))])
        print(f"rank {distributed.rank()}: digests by {way}: {' '.join(sorted(found))}", flush=True)


#: Where checkpoints lie.
FOLDER = Path(os.environ.get("MPI_CHECK_FOLDER", "."))


def sliced_gradient(p):
    """The same bits on 1, 2 and 4 ranks."""
    loss = distributed.data_parallel(error_sum, slices=4)
    mine = np.split(np.arange(12), distributed.world_size())[distributed.rank()]
    return pb.grad(loss)(p, X[mine], Y[mine])


def save_half(path):
    """Three steps of training with divided state, saved."""
    p, s = train(distributed.sharded(optim.adam(0.1)), sliced_gradient, PARAMS, 3)
    distributed.save(path, {"params": p, "state": s, "step": 3})


def load_half(path):
    """Three more steps: the digest of the parameters."""
    rule = distributed.sharded(optim.adam(0.1))
    like = {"params": PARAMS, "state": rule.init(PARAMS), "step": 0}
    found = distributed.load(path, like, verify=True)
    assert found["step"] == 3
    p, s = found["params"], found["state"]
    for _ in range(3):
        updates, s = rule.update(sliced_gradient(p), s, p)
        p = optim.apply_updates(p, updates)
    return digest(p)


def whole_training():
    """The digest of six steps in one go, without division."""
    return digest(train(optim.adam(0.1), sliced_gradient, PARAMS, 6)[0])


def check_save():
    save_half(FOLDER / f"by-{distributed.world_size()}")


def check_load():
    for path in sorted(FOLDER.glob("by-*")):
        assert load_half(path) == whole_training(), path.name


def check_prediction():
    """Times are measured on these ranks, and all get the same model."""
    model = distributed.measure([1024, 65536, 1 << 21], repeats=5)
    assert_same_on_all_ranks([np.array([m.seconds for m in model.measurements])])
    assert {m.ranks for m in model.measurements} == {distributed.world_size()}
    assert {m.level for m in model.measurements} == {current_world().level}
    w = pb.tensor(np.ones((64, 64)), requires_grad=True)
    step = distributed.record_step([w], lambda: pb.sum(pb.tanh(w @ w)), repeats=2)
    found = distributed.predict(step, distributed.world_size(), model=model)
    assert found.seconds > step.compute > 0.0


def check_refusals():
    """Arguments are refused before ranks meet, so they go on."""
    for call, kind in (
        (lambda: distributed.init(), errors.WorldError),
        (lambda: distributed.broadcast(1.0, root=99), errors.ArgumentError),
        (lambda: distributed.reduce_scatter(np.ones(2 * distributed.world_size() + 1)), errors.ShapeError),
    ):
        try:
            call()
        except kind:
            continue
        raise AssertionError(f"{kind.__name__} was not raised")
    assert distributed.total(1) == distributed.world_size()
    assert distributed.is_initialized()


CHECKS = {
    name.removeprefix("check_"): check
    for name, check in list(globals().items())
    if name.startswith("check_") and not check.__code__.co_argcount
}
