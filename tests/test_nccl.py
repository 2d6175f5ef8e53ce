"""Collectives of arrays on GPUs, by NCCL, on stand-ins for CuPy and NCCL: there is no GPU here. `ranks/nccl_check.py`
does the same on a real one.
"""

import sys
import threading
import time
from unittest import mock

import ml_dtypes
import nccl_ranks
import numpy as np
import pytest
from fake_cupy import installed, nccl, streams
from fake_cupy.streams import Task

import pullback as pb
from pullback import distributed, errors
from pullback.distributed.engines.nccl import choice
from pullback.distributed.engines.nccl.choice import Finding
from pullback.distributed.engines.node import MEMORY_BYTES, NodeWorld
from pullback.ops.collective.exchange import Concatenation, Extreme, FromRoot, Move, Sum, SumOfParts, Swap
from pullback.ops.collective.world import current_world, make_call


@pytest.fixture(autouse=True)
def cupy():
    nccl.Behaviour.reset()
    with installed() as found:
        yield found
    nccl.Behaviour.reset()


def meet(xp, arrays, exchange, name="meeting"):
    call = make_call(name, exchange, tuple((x.dtype.name, x.shape) for x in arrays))
    return current_world().meet(call, xp, arrays, exchange)


def exchanges(n):
    return {
        "sum": Sum(),
        "sum of parts": SumOfParts(n, 0),
        "sum of parts, axis 1": SumOfParts(n, 1),
        "concatenation": Concatenation(0),
        "concatenation, axis 1": Concatenation(1),
        "from root": FromRoot(n - 1),
        "swap": Swap(n, 0, 0),
        "swap of axes": Swap(n, 1, 0),
        "shift": Move(tuple((r, r + 1) for r in range(n - 1))),
        "around": Move(tuple((r, (r + 1) % n) for r in range(n))),
        "to itself": Move(((0, 0),)),
        "nowhere": Move(()),
        "largest": Extreme("maximum"),
        "any": Extreme("logical_or"),
    }


def samples(n, dtype, shapes):
    rng = np.random.default_rng(n)
    return [[(8 * rng.normal(size=s)).astype(dtype) for s in shapes] for _ in range(n)]


def expected(exchange, of_ranks, target):
    """What the exchange makes of all ranks' arrays, without anything in between."""
    return [
        exchange.join(np, [exchange.part(x, s, target) for s, x in enumerate(xs)], xs[target])
        for xs in zip(*of_ranks, strict=True)
    ]


@pytest.mark.parametrize("n", [2, 3, 4])
@pytest.mark.parametrize("name", exchanges(2))
def test_exchanges_are_what_they_say(cupy, name, n):
    exchange = exchanges(n)[name]
    for shapes in ([(12, 12)], [(12, 24), (24, 12)], [(0, 12), (12, 0), (12, 12)]):
        given = samples(n, "float32", shapes)

        def on_rank(given=given):
            mine = [cupy.asarray(x) for x in given[distributed.rank()]]
            found = meet(cupy, mine, exchange)
            assert all(not np.shares_memory(f._memory, x._memory) for f in found for x in mine if x.size)
            return [x.get() for x in found]

        for r, found in enumerate(nccl_ranks.returned(nccl_ranks.run(on_rank, n))):
            for mine, wanted in zip(found, expected(exchange, given, r), strict=True):
                assert mine.dtype == wanted.dtype
                np.testing.assert_array_equal(mine, wanted)


DTYPES = ["float16", "float32", "float64", "complex64", "int8", "int16", "int64", "bool", "bfloat16"]


def as_dtype(name):
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [2, 3, 5])
def test_sums_have_the_bits_of_the_other_engines(cupy, n, dtype):
    """Few numbers and many, which are divided among ranks; strided, without axes, and empty ones in between."""
    shapes = [(), (7,), (0, 3), (40, 1003), (3, 5)]
    given = samples(n, as_dtype(dtype), shapes)
    for xs in given:
        xs[3] = xs[3].T

    def on_rank():
        mine = given[distributed.rank()]
        on_gpu = [x.get() for x in meet(cupy, [cupy.asarray(x) for x in mine], Sum())]
        return on_gpu, meet(np, mine, Sum())

    for on_gpu, on_host in nccl_ranks.returned(nccl_ranks.run(on_rank, n)):
        for a, b, x in zip(on_gpu, on_host, given[0], strict=True):
            assert a.dtype == b.dtype == x.dtype
            assert a.shape == b.shape == x.shape
            assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["concatenation, axis 1", "swap", "largest", "shift", "from root"])
def test_every_dtype_travels(cupy, name, dtype):
    if name == "largest" and dtype in ("complex64", "bfloat16"):
        pytest.skip("not compared")
    given, exchange = samples(3, as_dtype(dtype), [(3, 6), (6, 3)]), exchanges(3)[name]

    def on_rank():
        return [x.get() for x in meet(cupy, [cupy.asarray(x) for x in given[distributed.rank()]], exchange)]

    for r, found in enumerate(nccl_ranks.returned(nccl_ranks.run(on_rank, 3))):
        for mine, wanted in zip(found, expected(exchange, given, r), strict=True):
            assert mine.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
def test_sums_in_the_order_of_nccl(cupy, monkeypatch, dtype):
    monkeypatch.setenv("PULLBACK_NCCL_ORDERED", "0")
    given = samples(4, as_dtype(dtype), [(500, 7), (3,)])
    found = nccl_ranks.returned(nccl_ranks.run(lambda: [x.get() for x in meet(cupy, on_gpu(cupy, given), Sum())], 4))
    reduced = [name for _, name, _ in nccl.Behaviour.log if name == "allReduce"]
    assert len(reduced) == (0 if dtype in ("bool", "int16") else 4)
    for mine in found:
        for a, first, wanted in zip(mine, found[0], expected(Sum(), given, 0), strict=True):
            assert a.tobytes() == first.tobytes()
            assert a.dtype == wanted.dtype
            if a.dtype.kind in "fc":
                np.testing.assert_allclose(a, wanted, rtol=1e-2 if a.itemsize == 2 else 1e-5)
            elif a.dtype.kind != "V":
                np.testing.assert_array_equal(a, wanted)


def on_gpu(cupy, given):
    return [cupy.asarray(x) for x in given[distributed.rank()]]


def test_half_precision_is_rounded_once(cupy):
    """Of 2048 and four times one half float16 keeps all in the sum, and none where it rounds in between."""
    given = [[np.array([x], np.float16)] for x in (2048.0, 0.5, 0.5, 0.5, 0.5)]
    found = nccl_ranks.returned(nccl_ranks.run(lambda: float(meet(cupy, on_gpu(cupy, given), Sum())[0][0]), 5))
    assert found == [2050.0] * 5


def test_calls_of_nccl_are_few_and_in_one_order(cupy):
    given = samples(3, "float32", [(100, 200), (5,)])

    def on_rank():
        meet(cupy, on_gpu(cupy, given), Sum())
        meet(cupy, on_gpu(cupy, given)[:1], Concatenation(0))
        meet(cupy, on_gpu(cupy, given), FromRoot(1))

    nccl_ranks.returned(nccl_ranks.run(on_rank, 3))
    by_rank = [[name for r, name, _ in nccl.Behaviour.log if r == rank] for rank in range(3)]
    assert by_rank[0] == ["send", "recv"] * 2 + ["allGather", "allGather", "broadcast", "broadcast", "abort"]
    assert by_rank[1] == by_rank[2] == by_rank[0]


def test_ids_of_older_versions(cupy):
    nccl.Behaviour.ids_are_bytes = False
    assert nccl_ranks.returned(nccl_ranks.run(lambda: total_of(cupy, 1.0), 2)) == [2.0, 2.0]


def total_of(cupy, value, size=3):
    return float(distributed.total(cupy.full(size, value))[0])


def test_a_rank_with_two_gpus_has_a_communicator_for_each(cupy):
    def on_rank():
        first = total_of(cupy, 1.0)
        with cupy.cuda.Device(1 - cupy.cuda.Device().id):
            second = [total_of(cupy, 2.0), total_of(cupy, 3.0)]
        return [first, *second, total_of(cupy, 4.0)]

    assert nccl_ranks.returned(nccl_ranks.run(on_rank, 2)) == [[2.0, 4.0, 6.0, 8.0]] * 2
    assert sum(name == "abort" for _, name, _ in nccl.Behaviour.log) == 4


# derivatives


def hvp(f, x, v):
    return pb.jvp(pb.grad(f), (x,), (v,))[1]


def taped(f, x):
    x = pb.tensor(x, requires_grad=True)
    f(x).backward()
    return x.grad.value


WAYS = {
    "grad": lambda f, x, v: pb.grad(f)(x),
    "tape": lambda f, x, v: taped(f, x),
    "jvp": lambda f, x, v: pb.jvp(f, (x,), (v,))[1],
    "second": hvp,
    "third": lambda f, x, v: pb.grad(lambda x: pb.sum(hvp(f, x, v) * v))(x),
    "vmap": lambda f, x, v: pb.vmap(pb.grad(f))(pb.stack([x, v])),
    "checkpoint": lambda f, x, v: pb.grad(pb.checkpoint(f))(x),
}
COLLECTIVES = {
    "total": lambda x: distributed.shared(distributed.total(x)),
    "all_reduce": distributed.all_reduce,
    "all_gather": lambda x: distributed.all_gather(x, axis=1),
    "reduce_scatter": distributed.reduce_scatter,
    "whole": lambda x: distributed.shared(distributed.whole(x)),
    "part": lambda x: distributed.part(distributed.total(x)),
    "broadcast": lambda x: distributed.shared(distributed.broadcast(x, root=1)),
    "all_to_all": lambda x: distributed.all_to_all(x, 0, 1),
    "shift": distributed.shift,
    "halo": distributed.halo,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", COLLECTIVES)
def test_derivatives_are_those_of_arrays_of_the_host(cupy, name, way):
    n, call = 3, COLLECTIVES[name]
    xs, vs = np.random.default_rng(0).normal(size=(2, n, n, n))

    def on_rank(asarray, get):
        r = distributed.rank()

        def f(x):
            return distributed.total(pb.sum(pb.sin(call(pb.tanh(x))) * (1.0 + r)))

        return get(WAYS[way](f, asarray(xs[r]), asarray(vs[r])))

    wanted = distributed.run(lambda: on_rank(np.asarray, np.asarray), n)
    found = nccl_ranks.returned(nccl_ranks.run(lambda: on_rank(cupy.asarray, lambda x: x.get()), n))
    for mine, one in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(mine, one)
    assert nccl.Behaviour.log


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("n", [2, 3])
def test_gradients_of_a_network(cupy, n, overlap):
    """Buckets are summed beside the backward pass, on a stream of their own; a parameter that one rank's loss does not
    depend on counts as zero there.
    """
    rng = np.random.default_rng(0)
    data, first = rng.normal(size=(n, 3, 8, 5)), rng.normal(size=(5, 5))

    def on_rank(asarray):
        r, gradients = distributed.rank(), []
        net = [pb.tensor(asarray(first * (i + 1)), requires_grad=True) for i in range(6)]
        ddp = distributed.DistributedGradient(net, bucket_mb=0.0003)
        for batch in data[r]:
            h = asarray(batch)
            for p in net[: 5 + (r == 1)]:
                h = pb.tanh(h @ p)
            pb.sum(h).backward()
            gradients += [p.grad.numpy() for p in net]
        assert len(ddp.bucket_names) > 1
        return gradients

    wanted = distributed.run(lambda: on_rank(np.asarray), n)
    found = nccl_ranks.returned(nccl_ranks.run(lambda: on_rank(cupy.asarray), n, overlap=overlap))
    for mine in found:
        for a, b, one in zip(mine, found[0], wanted[0], strict=True):
            np.testing.assert_array_equal(a, b)
            np.testing.assert_allclose(a, one, rtol=1e-12)


def test_sums_that_were_started_are_waited_for_on_the_stream(cupy):
    """The results are there for what comes next on the caller's stream, without a wait of the host."""

    def on_rank():
        world, x = current_world(), cupy.full(5, 1.0 + distributed.rank())
        calls = [make_call(f"sum {i}", Sum(), (("float64", (5,)),)) for i in range(4)]
        log = cupy.cuda.Stream.log
        started = [world.start(call, cupy, [x * i], Sum()) for i, call in enumerate(calls)]
        between = float(distributed.total(x)[0])
        log.clear()
        results = [s.wait()[0] for s in started]
        assert "synchronize" not in log
        return between, [float(r[0]) for r in results]

    assert nccl_ranks.returned(nccl_ranks.run(on_rank, 2)) == [(3.0, [0.0, 3.0, 6.0, 9.0])] * 2


def test_other_exchanges_that_are_started_are_met_at_once(cupy):
    def on_rank():
        x = cupy.full((2,), float(distributed.rank()))
        call = make_call("rows", Concatenation(0), (("float64", (2,)),))
        return current_world().start(call, cupy, [x], Concatenation(0)).wait()[0].tolist()

    assert nccl_ranks.returned(nccl_ranks.run(on_rank, 2)) == [[0.0, 0.0, 1.0, 1.0]] * 2


def test_arrays_of_the_host_travel_as_before(cupy):
    def on_rank():
        call = make_call("sum", Sum(), (("float64", (3,)),))
        started = current_world().start(call, np, [np.ones(3)], Sum())
        distributed.barrier()
        w = pb.tensor(np.ones(3), requires_grad=True)
        ddp = distributed.DistributedGradient([w])
        pb.sum(w * 2.0).backward()
        ddp.remove()
        return started.wait()[0].tolist(), distributed.total(np.ones(2)).tolist(), w.grad.tolist()

    assert nccl_ranks.returned(nccl_ranks.run(on_rank, 2)) == [([2.0] * 3, [2.0] * 2, [4.0] * 3)] * 2
    assert not nccl.Behaviour.log


# what goes wrong


def errors_of(results, kind):
    """The messages of all ranks, each of which must have raised an error of a kind."""
    assert [type(r) for r in results] == [kind] * len(results), results
    return [str(r) for r in results]


def test_ranks_that_do_not_agree(cupy):
    cases = {
        "shapes": lambda r: distributed.total(cupy.ones(2 + r)),
        "dtypes": lambda r: distributed.total(cupy.ones(2, "float64" if r else "float32")),
        "axes": lambda r: distributed.all_gather(cupy.ones((2, 2)), axis=r),
        "devices": lambda r: distributed.total((cupy if r else np).ones(2)),
    }
    for name, case in cases.items():
        found = nccl_ranks.run(lambda case=case: (total_of(cupy, 1.0), case(distributed.rank())), 2)
        for text in errors_of(found, errors.MismatchError):
            assert "rank 0:" in text, name
            assert "rank 1:" in text, name
            assert "test_nccl.py" in text, name
    assert "on GPUs" in text


def test_orders_that_differ(cupy, monkeypatch):
    def on_rank():
        current_world()._is_ordered = distributed.rank() == 0
        return total_of(cupy, 1.0)

    for text in errors_of(nccl_ranks.run(on_rank, 2), errors.MismatchError):
        assert "in NCCL's order" in text


def test_a_rank_that_does_not_come(cupy):
    go_on = threading.Event()

    def on_rank():
        total_of(cupy, 1.0)
        if distributed.rank() == 1:
            go_on.wait(2.0)  # late
        return total_of(cupy, 1.0)

    for text in errors_of(nccl_ranks.run(on_rank, 3, timeout=0.5), errors.CollectiveTimeoutError):
        assert "rank 1 did not come to collective" in text
        assert "# late" in text


def test_an_error_of_one_rank(cupy):
    def on_rank():
        total_of(cupy, 1.0)
        if distributed.rank() == 1:
            raise KeyError("mine")
        return total_of(cupy, 1.0)

    found = nccl_ranks.run(on_rank, 3)
    assert type(found.pop(1)) is KeyError
    for text in errors_of(found, errors.RankLostError):
        assert "rank 1 of 3 raised KeyError" in text


def own_communicator():
    """NCCL's own, behind the main lane of this rank."""
    (lane,) = current_world()._main.values()
    return lane.comm._own


@pytest.mark.parametrize("waits", [False, True])
def test_a_peer_that_dies_in_a_collective(cupy, waits):
    """All came to it, and one process is gone before its GPU did its part: NCCL tells, streams are freed, and whoever
    waits for a result, or comes to the next collective, gets the error.
    """

    def on_rank():
        total_of(cupy, 1.0)
        if distributed.rank() == 1:
            own_communicator().die()
        x = distributed.all_gather(cupy.ones(3))
        stream = cupy.cuda.get_current_stream()
        assert not stream.done
        try:
            x = pb.tensor(x)
            x.numpy() if waits else distributed.total(cupy.ones(3))
        finally:
            assert stream.done
            assert float(cupy.ones(3).sum()) == 3.0

    start = time.monotonic()
    for text in errors_of(nccl_ranks.run(on_rank, 3), errors.RankLostError):
        assert "NCCL_ERROR_REMOTE_ERROR" in text
        assert "all_gather of float64[3]" in text
        assert "test_nccl.py" in text
    assert time.monotonic() - start < 5.0
    assert {rank for rank, name, _ in nccl.Behaviour.log if name == "abort"} == {0, 1, 2}


def block_stream(cupy):
    """The GPU of this rank has something to do until the result is called."""
    task = Task()
    cupy.cuda.get_current_stream().add(task)

    def end():
        task.done = True
        with streams.changed:
            streams.advance_tasks()

    return end


def test_a_gpu_that_does_not_come(cupy):
    """The host of each rank came; the stream of one is behind for longer than ranks wait."""

    def on_rank():
        total_of(cupy, 1.0)
        x, call = cupy.ones(3), make_call("rows", Concatenation(0), (("float64", (3,)),))
        if distributed.rank() == 1:
            threading.Timer(2.0, block_stream(cupy)).start()
        found = current_world().meet(call, cupy, [x], Concatenation(0))[0]
        if distributed.rank() == 1:
            time.sleep(1.0)
            return distributed.total(np.ones(3))  # knows by the host what became of it
        return pb.tensor(found).numpy()

    start = time.monotonic()
    for text in errors_of(nccl_ranks.run(on_rank, 2, timeout=0.5), errors.CollectiveTimeoutError):
        assert "the GPU of some rank did not come to collective" in text
        assert "rows of float64[3]" in text
        assert "rank 1 has come to" in text
    assert time.monotonic() - start < 3.0


def test_work_before_a_collective_may_take_longer_than_ranks_wait(cupy):
    """Time counts from when a GPU has come to a collective, and both are late."""

    def on_rank():
        total_of(cupy, 1.0)
        x, call = cupy.ones(3), make_call("rows", Concatenation(0), (("float64", (3,)),))
        threading.Timer(1.5, block_stream(cupy)).start()
        found = current_world().meet(call, cupy, [x], Concatenation(0))[0]
        assert not cupy.cuda.get_current_stream().done
        return found.tolist()

    assert nccl_ranks.returned(nccl_ranks.run(on_rank, 2, timeout=0.7)) == [[1.0] * 6] * 2


def test_calls_of_nccl_that_hang(cupy):
    """The time of a call is limited from before it: one rank is stuck in its own, and its peer never calls."""

    def on_rank():
        total_of(cupy, 1.0)
        nccl.Behaviour.group_end_blocks = True
        if distributed.rank() == 1:
            own_communicator().allGather = lambda *arguments: None
        total_of(cupy, 1.0)
        return distributed.total(np.ones(3))

    for text in errors_of(nccl_ranks.run(on_rank, 2, timeout=0.5), errors.CollectiveTimeoutError):
        assert "did not come to collective" in text


def test_an_error_between_the_calls_of_nccl_is_told_to_all(cupy):
    """Memory that runs out on one rank after all have agreed: the others do not wait for it."""

    def on_rank():
        total_of(cupy, 1.0)
        if distributed.rank() == 1:
            (lane,) = current_world()._main.values()
            lane.plan_sums = mock.Mock(side_effect=MemoryError("no memory"))
        return pb.tensor(distributed.total(cupy.ones(3))).numpy()

    for text in errors_of(nccl_ranks.run(on_rank, 3), errors.RankLostError):
        assert "rank 1 could not complete collective" in text
        assert "MemoryError: no memory" in text


def test_a_program_that_has_heard_of_an_error_may_read_its_arrays(cupy):
    def on_rank():
        kept = distributed.total(cupy.ones(3))
        if distributed.rank() == 1:
            own_communicator().die()
        lost = distributed.all_gather(cupy.ones(3))
        with pytest.raises(errors.RankLostError):
            pb.tensor(lost).numpy()
        assert pb.tensor(kept).tolist() == [2.0] * 3
        with pytest.raises(errors.RankLostError):
            distributed.total(cupy.ones(3))
        with pytest.raises(errors.RankLostError):
            distributed.total(np.ones(3))

    nccl_ranks.returned(nccl_ranks.run(on_rank, 2))


def test_sums_beside_the_program_fail_where_they_are_waited_for(cupy):
    def on_rank():
        call = make_call("sum", Sum(), (("float64", (3,)),))
        world, x = current_world(), cupy.ones(3)
        world.start(call, cupy, [x], Sum()).wait()
        (lane,) = world._side.values()
        if distributed.rank() == 1:
            lane.comm._own.die()
        return pb.tensor(world.start(call, cupy, [x], Sum()).wait()[0]).numpy()

    for text in errors_of(nccl_ranks.run(on_rank, 2), errors.RankLostError):
        assert "NCCL_ERROR_REMOTE_ERROR" in text


# connecting


def test_ranks_that_share_a_gpu_go_through_the_host(cupy, caplog):
    caplog.set_level("WARNING", "pullback")
    found = nccl_ranks.run(lambda: total_and_started(cupy), 3, shares_gpus=False)
    assert nccl_ranks.returned(found) == [(3.0, 3.0)] * 3
    assert "travel through memory of the host" in caplog.text
    assert "NCCL_ERROR_INVALID_USAGE" in caplog.text
    assert not [name for _, name, _ in nccl.Behaviour.log if name != "abort"]


def total_and_started(cupy):
    call = make_call("sum", Sum(), (("float64", (3,)),))
    started = current_world().start(call, cupy, [cupy.ones(3)], Sum())
    return total_of(cupy, 1.0), float(started.wait()[0][0])


def test_nccl_that_is_required(cupy):
    found = nccl_ranks.run(lambda: total_of(cupy, 1.0), 3, shares_gpus=False, is_required=True)
    for text in errors_of(found, errors.WorldError):
        assert "NCCL could not connect the 3 ranks: rank 0: NcclError: NCCL_ERROR_INVALID_USAGE" in text
    nccl.Behaviour.has_id = False
    found = nccl_ranks.run(lambda: total_of(cupy, 1.0), 2, is_required=True)
    for text in errors_of(found, errors.WorldError):
        assert "rank 0: NcclError: NCCL_ERROR_SYSTEM_ERROR" in text


def test_a_rank_that_never_connects(cupy):
    """The constructor has no handle to abort: it is left behind, in a thread."""
    nccl.Behaviour.refusing[1] = 2
    start = time.monotonic()
    found = nccl_ranks.run(lambda: total_of(cupy, 1.0), 2, timeout=0.5)
    for text in errors_of(found, errors.CollectiveTimeoutError):
        assert "NCCL did not connect the 2 ranks within 0.5 s" in text or "did not come to collective" in text
    assert time.monotonic() - start < 3.0


# choosing


def found_by(*ranks):
    return [Finding(*each) for each in ranks]


def test_a_rank_takes_the_gpu_of_its_number(cupy, monkeypatch):
    monkeypatch.delenv("NCCL_HOSTID", raising=False)
    found = [choice.find_gpu_of_rank(r) for r in (1, 0)]
    assert cupy.cuda.Device().id == 0
    assert [f.problem for f in found] == ["", ""]
    assert found[0].gpu != found[1].gpu
    assert choice.describe_problems(found) == ""
    shared = choice.describe_problems([found[0], choice.find_gpu_of_rank(3)])
    assert shared.startswith("  ranks 0, 1: share one GPU")
    monkeypatch.setenv("NCCL_HOSTID", "another")
    assert choice.describe_problems([found[0], choice.find_gpu_of_rank(3)]) == ""
    cupy.cuda.Device(0).use()


def test_what_is_missing_is_named(cupy, monkeypatch):
    monkeypatch.setattr(nccl, "available", False)
    assert "does not find the library of NCCL" in choice.find_gpu_of_rank(0).problem
    monkeypatch.undo()
    monkeypatch.setattr(nccl, "get_version", lambda: 2604)
    assert "NCCL 2.6 is too old" in choice.find_gpu_of_rank(0).problem
    monkeypatch.setattr(cupy.cuda.runtime, "getDeviceCount", lambda: 0)
    assert choice.find_gpu_of_rank(0) == Finding("", "CuPy finds no GPU")
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert "CuPy is not installed" in choice.find_gpu_of_rank(0).problem


def test_all_ranks_use_nccl_or_none(cupy, caplog):
    caplog.set_level("WARNING", "pullback")
    memories = [bytearray(MEMORY_BYTES)]
    host = NodeWorld(memories, 0, 1.0)
    both = found_by(("here, 1", ""), ("here, 2", ""))
    world = choice.add_nccl(host, both, False)
    assert type(world).__name__ == "NcclWorld"
    world.close()
    none = found_by(("", "CuPy is not installed"), ("", "CuPy is not installed"))
    assert choice.add_nccl(host, none, False) is host
    assert not caplog.text
    one = found_by(("here, 1", ""), ("", "CuPy is not installed"))
    assert choice.add_nccl(host, one, False) is host
    assert "rank 1: CuPy is not installed" in caplog.text
    with pytest.raises(errors.WorldError, match=r"cannot serve all ranks.\n  rank 1: CuPy is not installed"):
        choice.add_nccl(host, one, True)
    host.peers.close()


def test_engines_have_names():
    with pytest.raises(errors.ArgumentError, match='"auto", "mpi", "nccl" or "alone", got \'gloo\''):
        distributed.init(engine="gloo")
