"""Training over ranks, by rule, by function and on the tape, against the same training in one piece."""

import functools
import hashlib
import threading

import numpy as np
import pytest

import pullback as pb
from pullback import distributed, errors, optim
from pullback.ops.collective import buckets, kinds

RNG = np.random.default_rng(0)
X = RNG.normal(size=(12, 5))
Y = RNG.normal(size=(12, 2))
PARAMS = {"w": RNG.normal(size=(5, 4)) / 2, "b": np.zeros(4), "v": RNG.normal(size=(4, 2)) / 2}
#: How the rows of the data are divided among ranks: evenly, unevenly, with a rank that has none.
CUTS = {2: [[0, 6, 12], [0, 1, 12], [0, 0, 12]], 3: [[0, 4, 8, 12], [0, 7, 7, 12]], 4: [[0, 3, 6, 9, 12]]}


def error_sum(p, x, y):
    return pb.sum((pb.tanh(x @ p["w"] + p["b"]) @ p["v"] - y) ** 2), len(x)


def serial_loss(p, x, y):
    total, count = error_sum(p, x, y)
    return total / count


def own_rows(cuts):
    rank = distributed.rank()
    return X[cuts[rank] : cuts[rank + 1]], Y[cuts[rank] : cuts[rank + 1]]


def as_arrays(tree):
    return pb.tree.map(np.asarray, tree)


def assert_alike(found, wanted, **tolerance):
    for a, b in zip(pb.tree.leaves(found), pb.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(a, b, **tolerance)


@pytest.mark.parametrize("ranks", CUTS)
@pytest.mark.parametrize("compiled", [False, True])
def test_a_loss_over_ranks_is_that_of_all_samples_wherever_they_lie(ranks, compiled):
    loss = distributed.data_parallel(error_sum)
    wanted = pb.grad(serial_loss)(PARAMS, X, Y)
    for cuts in CUTS[ranks]:

        def on_rank(cuts=cuts):
            gradient = pb.grad(loss)
            return as_arrays((pb.jit(gradient) if compiled else gradient)(PARAMS, *own_rows(cuts)))

        for found in distributed.run(on_rank, ranks, timeout=30):
            assert_alike(found, wanted, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("compiled", [False, True])
def test_second_derivatives_go_through_the_ranks(compiled):
    """A penalty on the gradient of the whole loss, which sums of finished gradients cannot express."""

    def penalized(loss):
        return lambda p, *data: loss(p, *data) + 0.1 * sum(pb.sum(g**2) for g in pb.grad(loss)(p, *data).values())

    wanted = pb.grad(penalized(serial_loss))(PARAMS, X, Y)

    def on_rank():
        gradient = pb.grad(penalized(distributed.data_parallel(error_sum)))
        return as_arrays((pb.jit(gradient) if compiled else gradient)(PARAMS, *own_rows([0, 5, 12])))

    for found in distributed.run(on_rank, 2, timeout=30):
        assert_alike(found, wanted, rtol=1e-11)


def digest(tree):
    return hashlib.sha256(b"".join(np.asarray(x).tobytes() for x in pb.tree.leaves(tree))).hexdigest()[:12]


@pytest.mark.parametrize("compiled", [False, True])
def test_slices_give_the_same_bits_on_any_number_of_ranks(compiled):
    data = RNG.normal(size=(32, 5)).astype("float32"), RNG.normal(size=(32, 2)).astype("float32")
    params = {name: p.astype("float32") for name, p in PARAMS.items()}
    loss = distributed.data_parallel(error_sum, slices=8)
    rule = optim.chain(optim.clip_by_global_norm(1.0), optim.adam(1e-2))

    def train():
        mine = [np.split(x, distributed.world_size())[distributed.rank()] for x in data]

        def step(p, s, *batch):
            updates, s = rule.update(pb.grad(loss)(p, *batch), s, p)
            return optim.apply_updates(p, updates), s

        step = pb.jit(step) if compiled else step
        p, s = params, rule.init(params)
        for _ in range(6):
            p, s = step(p, s, *mine)
        return digest(p)

    wanted = train()
    for n in (2, 4, 8):
        assert distributed.run(train, n, timeout=60) == [wanted] * n


def test_slices_that_do_not_fit_are_refused():
    loss = distributed.data_parallel(error_sum, slices=6)
    with pytest.raises(errors.ArgumentError, match="power of two"):
        loss(PARAMS, X, Y)
    with pytest.raises(errors.ShapeError, match="multiple of 8"):
        distributed.data_parallel(error_sum, slices=8)(PARAMS, X, Y)
    with pytest.raises(errors.ArgumentError, match="a pair of numbers"):
        distributed.data_parallel(lambda p, x: x)(PARAMS, X)


# the rule


def train_by_rule(rule, cuts=None, steps=4, compiled=False, weighed=False):
    """Parameters after some steps; without `cuts`, alone with all data."""
    x, y = own_rows(cuts) if cuts else (X, Y)

    def step(p, s, x, y):
        count = len(x)
        if weighed:
            grads = pb.grad(lambda p: error_sum(p, x, y)[0] / max(count, 1))(p)
            updates, s = rule.update(grads, s, p, weight=float(count))
        else:
            grads = pb.grad(lambda p: error_sum(p, x, y)[0] / 12)(p)
            updates, s = rule.update(grads, s, p)
        return optim.apply_updates(p, updates), s

    step = pb.jit(step) if compiled else step
    p, s = PARAMS, rule.init(PARAMS)
    for _ in range(steps):
        p, s = step(p, s, x, y)
    return as_arrays(p)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("weighed", [False, True])
def test_aggregation_is_a_rule_in_a_chain(compiled, weighed):
    rest = (optim.clip_by_global_norm(0.3), optim.adam(0.05))
    wanted = train_by_rule(optim.chain(*rest))
    rule = optim.chain(distributed.aggregate(check_every=2), *rest)
    train = functools.partial(train_by_rule, rule, [0, 2, 2, 12], compiled=compiled, weighed=weighed)
    results = distributed.run(train, 3, timeout=30)
    assert len({digest(p) for p in results}) == 1
    assert_alike(results[0], wanted, rtol=1e-10)


@pytest.mark.parametrize("compiled", [False, True])
def test_a_nan_on_one_rank_is_named_on_all(compiled):
    rule = optim.chain(distributed.aggregate(), optim.sgd(0.1))
    seen = []

    def on_rank():
        w = {"w": np.ones(3), "b": np.ones(2)}
        g = {"w": np.ones(3), "b": np.full(2, np.nan if distributed.rank() == 1 else 1.0)}
        try:
            (pb.jit(rule.update) if compiled else rule.update)(g, rule.init(w), w)
        except errors.NonFiniteError as error:
            seen.append(str(error))

    distributed.run(on_rank, 3, timeout=30)
    assert len(seen) == 3
    assert all("rank 1: gradient of params['b']" in text and "params['w']" not in text for text in seen)
    assert all("test_data_parallel.py" in text for text in seen)
    allowed = distributed.aggregate(finite=False)
    assert np.isnan(distributed.run(lambda: allowed.update(np.nan, allowed.init(1.0), 1.0)[0], 2)[0])


@pytest.mark.parametrize("compiled", [False, True])
def test_replicas_that_drift_are_named(compiled):
    rule = optim.chain(distributed.aggregate(check_every=3), optim.sgd(0.1))

    def on_rank():
        w = {"w": np.ones(3), "b": np.ones(2)}
        s = rule.init(w)
        step = pb.jit(rule.update) if compiled else rule.update
        for i in range(7):
            updates, s = step(w, s, w)
            w = optim.apply_updates(w, updates)
            if i == 3 and distributed.rank() == 2:
                w = w | {"b": w["b"] + 1e-16 + np.spacing(w["b"])}

    with pytest.raises(errors.ReplicaDriftError, match=r"params\['b'\]: ranks 0, 1 differs from rank 2"):
        distributed.run(on_rank, 3, timeout=30)


@pytest.mark.parametrize("compiled", [False, True])
def test_a_step_that_overflows_on_one_rank_is_skipped_on_all(compiled):
    rule = optim.scaled(optim.chain(distributed.aggregate(finite=False), optim.sgd(0.5)), init_scale=4.0)

    def on_rank():
        w, seen = np.ones(2, "float32"), []
        s = rule.init(w)
        step = pb.jit(rule.update) if compiled else rule.update
        for i in range(3):
            own = np.full(2, np.inf if (i, distributed.rank()) == (1, 1) else 4.0, "float32")
            updates, s = step(own, s, w)
            seen.append(np.asarray(updates).tolist())
        return seen

    for found in distributed.run(on_rank, 2, timeout=30):
        assert found == [[-1.0, -1.0], [0.0, 0.0], [-2.0, -2.0]]  # the scale shrank by a half


def test_settings_of_aggregate_are_checked():
    with pytest.raises(errors.ArgumentError, match="codec"):
        distributed.aggregate("int8")
    with pytest.raises(errors.ArgumentError, match="check_every"):
        distributed.aggregate(check_every=-1)


# the tape


def tensors(params=PARAMS):
    return {name: pb.tensor(p, requires_grad=True) for name, p in params.items()}


def gradients_of(p):
    return {name: None if t.grad is None else t.grad.numpy().copy() for name, t in p.items()}


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("bucket_mb", [25.0, 1e-4])
def test_gradients_of_the_tape_are_summed(overlap, bucket_mb, monkeypatch):
    monkeypatch.setattr(buckets, "FIRST_MB", 1e-5)
    wanted = pb.grad(serial_loss)(PARAMS, X, Y)

    def on_rank():
        p = tensors()
        ddp = distributed.DistributedGradient(p, bucket_mb=bucket_mb)
        found = []
        for _ in range(3):
            (error_sum(p, *own_rows([0, 5, 12]))[0] / 12).backward()
            found.append(gradients_of(p))
            for t in p.values():
                t.grad = None
        return found, ddp.bucket_names

    results = distributed.run(on_rank, 2, timeout=30, overlap=overlap)
    assert len({digest(found) for found, _ in results}) == 1
    for found in results[0][0]:
        assert_alike(found, wanted, rtol=1e-12)
    names = results[0][1]
    assert len(names) == 2
    if overlap:  # the order of the pass, the last layer first
        assert names[0] == ["params['v']"]


@pytest.mark.parametrize("overlap", [False, True])
def test_accumulated_gradients_are_summed_once(overlap):
    """Several passes without a sum, then one with it; and passes on top of a gradient that is summed already."""

    def on_rank():
        p = tensors()
        ddp = distributed.DistributedGradient(p)
        rows = own_rows([0, 6, 12])
        half = [(x[:3], x[3:]) for x in rows]
        for _ in range(2):
            with ddp.no_sync():
                error_sum(p, *(h[0] for h in half))[0].backward()
                own = gradients_of(p)
            error_sum(p, *(h[1] for h in half))[0].backward()
        return gradients_of(p), own

    results = distributed.run(on_rank, 2, timeout=30, overlap=overlap)
    wanted = pb.grad(lambda p: error_sum(p, X, Y)[0])(PARAMS)
    for found, _ in results:
        assert_alike(found, pb.tree.map(lambda g: 2 * g, wanted), rtol=1e-12)
    assert not np.allclose(results[0][1]["w"], results[1][1]["w"])


@pytest.mark.parametrize("overlap", [False, True])
def test_parameters_that_a_rank_does_not_reach_count_as_zero(overlap):
    def on_rank():
        p = {name: pb.tensor(np.ones(2), requires_grad=True) for name in "abc"}
        ddp = distributed.DistributedGradient(p, bucket_mb=1e-5)
        for _ in range(2):
            for t in p.values():
                t.grad = None
            used = p["a"] if distributed.rank() == 0 else p["b"]
            pb.sum(used * (1.0 + distributed.rank())).backward()
        ddp.remove()
        return gradients_of(p)

    for found in distributed.run(on_rank, 2, timeout=30, overlap=overlap):
        np.testing.assert_array_equal(found["a"], [1.0, 1.0])
        np.testing.assert_array_equal(found["b"], [2.0, 2.0])
        assert found["c"] is None


def test_a_linked_pass_gives_gradients_that_can_be_differentiated():
    """d/dw of the squared norm of the whole gradient: shares of ranks, which the second pass sums."""

    def squared_norm(w, x):
        return pb.sum(pb.grad(lambda w: pb.sum((x @ w) ** 3))(w) ** 2)

    w = np.ones(5)
    wanted = pb.grad(squared_norm)(w, X)

    def on_rank():
        t = pb.tensor(w, requires_grad=True)
        ddp = distributed.DistributedGradient([t])
        pb.sum((own_rows([0, 5, 12])[0] @ t) ** 3).backward(create_graph=True)
        first, t.grad = t.grad, None
        pb.sum(first * first).backward()
        assert ddp is not None
        return t.grad.numpy()

    for found in distributed.run(on_rank, 2, timeout=30):
        np.testing.assert_allclose(found, wanted, rtol=1e-11)


@pytest.mark.parametrize("overlap", [False, True])
def test_gradients_are_as_before_where_a_sum_fails(overlap):
    kept = []
    lock = threading.Lock()

    def on_rank():
        p = tensors()
        ddp = distributed.DistributedGradient(p)
        error_sum(p, X, Y)[0].backward()
        before = gradients_of(p)
        x = X * (np.nan if distributed.rank() == 1 else 1.0)
        with pytest.raises(errors.NonFiniteError, match=r"rank 1: gradient of params\['b'\]"):
            error_sum(p, x, Y)[0].backward()
        with lock:
            kept.append(digest(before) == digest(gradients_of(p)))
        assert ddp is not None

    distributed.run(on_rank, 2, timeout=30, overlap=overlap)
    assert kept == [True, True]


def test_a_gradient_without_parameters_is_refused():
    with pytest.raises(errors.ArgumentError, match="requires a gradient"):
        distributed.DistributedGradient([np.ones(2)])


def test_alone_nothing_changes():
    p = tensors()
    ddp = distributed.DistributedGradient(p)
    (error_sum(p, X, Y)[0] / 12).backward()
    assert_alike(gradients_of(p), pb.grad(serial_loss)(PARAMS, X, Y), rtol=1e-14)
    assert "3 parameters over 1 ranks" in repr(ddp)


# compiled programs


def test_compiled_sums_start_early_and_have_the_same_bits(monkeypatch):
    monkeypatch.setattr(buckets, "FIRST_MB", 1e-4)
    monkeypatch.setattr("pullback.program.overlap.start_sums_early.__defaults__", (1e-4,))
    rule = optim.chain(distributed.aggregate(), optim.clip_by_global_norm(1.0), optim.adam(1e-2))
    layers = [RNG.normal(size=(6, 6)) / 3 for _ in range(4)]

    def loss(layers, x):
        return pb.sum(functools.reduce(lambda h, w: pb.tanh(h @ w), layers, x) ** 2)

    def train():
        x = np.random.default_rng(distributed.rank()).normal(size=(3, 6))

        @pb.jit
        def step(p, s, x):
            updates, s = rule.update(pb.grad(loss)(p, x), s, p)
            return optim.apply_updates(p, updates), s

        p, s = layers, rule.init(layers)
        for _ in range(3):
            p, s = step(p, s, x)
        ops = [e.op.name for e in step.lower(p, s, x).graph.equations]
        return digest(p), ops.count("start_totals"), ops.count("totals")

    at_once = distributed.run(train, 3, timeout=60)
    early = distributed.run(train, 3, timeout=60, overlap=True)
    assert {d for d, _, _ in at_once + early} == {at_once[0][0]}
    assert [row[1:] for row in (*at_once, *early)] == [(0, 1)] * 3 + [(4, 0)] * 3


def test_a_program_that_differs_on_one_rank_does_nothing():
    """It raises before its first collective: what it would have overwritten is as it was."""
    kept = []

    def on_rank():
        own = distributed.rank() == 1
        x = np.ones(3)

        @functools.partial(pb.jit, donate_argnums=0)
        def step(x):
            y = x + distributed.total(x)
            return y + distributed.total(y) if own else y

        try:
            step(x)
        finally:
            kept.append(x.tolist())

    with pytest.raises(errors.MismatchError, match="compiled step, which calls total of float64") as caught:
        distributed.run(on_rank, 2, timeout=30)
    assert "rank 0: compiled" in str(caught.value)
    assert "rank 1: compiled" in str(caught.value)
    assert kept == [[1.0] * 3] * 2


# values that ranks have in common


def variance(x):
    middle = distributed.total(pb.sum(x)) / distributed.total(3.0)
    return distributed.total(pb.sum((x - middle) ** 2))


def differentiate_twice(f):
    return pb.grad(lambda x: pb.sum(pb.grad(f)(x)))


@pytest.mark.parametrize("way", [pb.grad, lambda f: pb.jit(pb.grad(f)), differentiate_twice])
def test_a_common_value_that_is_used_as_an_own_one_is_refused(way):
    kinds._checked.clear()
    with pytest.raises(errors.WorldError, match="the result of total") as caught:
        distributed.run(lambda: way(variance)(np.arange(3.0)), 2, timeout=30)
    assert "middle = distributed.total" in str(caught.value)
    assert "distributed.shared" in str(caught.value)
    assert distributed.run(lambda: float(variance(np.arange(3.0))), 2) == [4.0, 4.0]


# normalization


@pytest.mark.parametrize("compiled", [False, True])
def test_batch_norm_over_ranks_is_that_of_the_whole_batch(compiled):
    x, w, b = RNG.normal(size=(9, 3, 2)), RNG.normal(size=3), RNG.normal(size=3)
    cuts = [0, 1, 4, 9]

    def whole(x, w, b):
        y, mean, var = pb.nn.batch_norm(x, np.zeros(3), np.ones(3), w, b, training=True)
        return pb.sum(pb.sin(y) * np.arange(54.0).reshape(9, 3, 2)), (mean, var)

    def by_rank(x, w, b):
        rows = np.arange(54.0).reshape(9, 3, 2)[cuts[distributed.rank()] : cuts[distributed.rank() + 1]]
        w, b = distributed.shared((w, b))
        y, mean, var = pb.nn.sync_batch_norm(x, np.zeros(3), np.ones(3), w, b, training=True)
        return distributed.total(pb.sum(pb.sin(y) * rows)), (mean, var)

    def derive(f, *args):
        """Value, gradient, the gradient of its squared norm, statistics."""
        gradient = pb.grad(lambda *a: f(*a)[0], argnums=(0, 1, 2))
        return f(*args), gradient(*args)

    def second(f, x):
        return pb.jvp(pb.grad(lambda x: f(x, w, b)[0]), (x,), (x**2,))[1]

    def on_rank():
        own = x[cuts[distributed.rank()] : cuts[distributed.rank() + 1]]
        first = functools.partial(derive, by_rank)
        twice = functools.partial(second, by_rank)
        if compiled:
            first, twice = pb.jit(first), pb.jit(twice)
        return as_arrays(first(own, w, b)), np.asarray(twice(own))

    (value, statistics), (gx, gw, gb) = derive(whole, x, w, b)
    curvature = second(whole, x)
    for r, (((v, s), (dx, dw, db)), hx) in enumerate(distributed.run(on_rank, 3, timeout=60)):
        rows = slice(cuts[r], cuts[r + 1])
        assert_alike((v, s, dx, dw, db), (value, statistics, gx[rows], gw, gb), rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(hx, curvature[rows], rtol=1e-9, atol=1e-10)


def test_the_layer_keeps_statistics_of_all_ranks():
    x = RNG.normal(size=(8, 3)).astype("float32")
    alone = pb.nn.BatchNorm(3)
    alone(x)

    def on_rank():
        layer = pb.nn.SyncBatchNorm(3)
        layer(np.split(x, [3])[distributed.rank()])
        return np.asarray(layer.mean), np.asarray(layer.variance)

    for mean, variance in distributed.run(on_rank, 2):
        np.testing.assert_allclose(mean, np.asarray(alone.mean), rtol=1e-5)
        np.testing.assert_allclose(variance, np.asarray(alone.variance), rtol=1e-5)

    def empty():
        layer = pb.nn.SyncBatchNorm(3)
        with pytest.raises(pb.errors.ShapeError, match="no elements to take statistics of on any rank"):
            layer(x[:0])
        return layer.mean.tolist()

    assert distributed.run(empty, 2) == [[0.0, 0.0, 0.0]] * 2


# data and random numbers


def test_batches_are_divided_and_epochs_end_together():
    def rows():
        loader = distributed.batches((np.arange(10), np.arange(10) * 2), 4, seed=3)
        return [[(a.tolist(), b.tolist()) for a, b in loader] for _ in range(2)]

    alone = rows()
    found = distributed.run(rows, 3)
    for epoch in range(2):
        for number in range(3):
            joined = [x for r in range(3) for x in found[r][epoch][number][0]]
            assert joined == alone[epoch][number][0]
    assert alone[0] != alone[1]
    assert sorted(x for a, _ in alone[0] for x in a) == list(range(10))


def test_ranks_with_data_of_their_own_take_as_many_steps():
    def rows():
        data = np.arange(2 + 3 * distributed.rank())
        loader = distributed.batches(data, 4, shuffle=False, own=True)
        assert len(loader) == 3
        return [batch.tolist() for batch in loader]

    assert distributed.run(rows, 2) == [[[0, 1], [], []], [[0, 1], [2, 3], [4]]]
    with pytest.raises(errors.ArgumentError, match="as many rows"):
        distributed.batches((np.ones(2), np.ones(3)), 1)


def test_keys_are_common_or_own():
    found = distributed.run(lambda: (distributed.key(5).tolist(), distributed.key(5, common=True).tolist()), 3)
    assert len({str(own) for own, _ in found}) == 3
    assert len({str(common) for _, common in found}) == 1
