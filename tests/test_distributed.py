"""Collectives on ranks that are threads: values and derivatives of every order against the same program on one array of
all ranks, and what happens where ranks do not do the same.
"""

import functools
import sys
import threading
import time

import numpy as np
import pytest
from collective_cases import (
    COLLECTIVES,
    COMPILED,
    MAPS,
    MEETINGS,
    PROGRAMS,
    WAYS,
    adjoint_error,
    adjoint_products,
    derive_alone,
    derive_on_rank,
)

import pullback as pb
from pullback import distributed, errors
from pullback.compile.cpu.runtime.link import has_llvm
from pullback.distributed.engines.sums import add_up_into, are_finite
from pullback.ops.collective import world as world_module
from pullback.ops.collective.exchange import add_up
from pullback.ops.collective.many import finish_totals_op
from pullback.ops.dispatch import apply

SIZES = [1, 2, 3, 4, 8]


#: Of compiled programs these stand for the others.
LEADING = {"total", "all_gather", "reduce_scatter axis 1", "all_to_all axes", "halo", "tree"}
CASES = [
    pytest.param(name, way, marks=[pytest.mark.sweep] if way in COMPILED and name not in LEADING else [])
    for name in COLLECTIVES
    for way in WAYS
]


@pytest.mark.parametrize(("name", "way"), CASES)
def test_collectives_are_what_they_are_on_one_array_of_all_ranks(name, way):
    for n in (2,) if way in COMPILED else (2, 3, 8) if way in ("value", "grad") else (2, 3):
        found = distributed.run(functools.partial(derive_on_rank, name, way), n, timeout=30)
        wanted = derive_alone(name, way, n)
        for r in range(n):
            np.testing.assert_allclose(found[r], wanted[r], rtol=1e-12, atol=1e-12, err_msg=f"rank {r} of {n}")


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("name", MAPS)
def test_adjoint_identity(name, n):
    sides = distributed.run(functools.partial(adjoint_products, name), n, timeout=30)
    assert adjoint_error(name, sides) <= 1e-14


def test_least_largest_and_truths():
    def on_rank():
        r = distributed.rank()
        assert distributed.largest(np.array([r, -r])).tolist() == [2, 0]
        assert distributed.smallest(np.array([r, -r])).tolist() == [0, -2]
        assert distributed.any_rank(r == 1)
        assert not distributed.all_ranks(r == 1)
        assert pb.grad(lambda x: x * pb.stop_gradient(distributed.largest(x)))(float(r)) == 2.0

    distributed.run(on_rank, 3)


def test_sums_have_one_order_for_every_layout():
    """The same bits on all ranks, whether arrays meet whole or in pieces."""
    x = np.random.default_rng(0).normal(size=(5, 1000)).astype("float32")

    def on_rank():
        mine = x[distributed.rank()]
        pieces = [distributed.total(p) for p in np.split(mine, 4)]
        return distributed.total(mine), np.concatenate(pieces)

    for whole, pieces in distributed.run(on_rank, 5):
        np.testing.assert_array_equal(whole, pieces)
        np.testing.assert_array_equal(whole, ((x[0] + x[1]) + (x[2] + x[3])) + x[4])


# what programs do with collectives


@pytest.fixture
def meetings(monkeypatch):
    """The names of the collectives of rank 0, in order."""
    found = []
    make = world_module.make_call

    def noted(name, *rest):
        if distributed.rank() == 0:
            found.append(name)
        return make(name, *rest)

    for module in ("records", "many", "agreement"):
        monkeypatch.setattr(f"pullback.ops.collective.{module}.make_call", noted)
    return found


def test_programs_run_each_collective_once_a_call(meetings):
    ones = np.ones(3)

    def f(x):
        distributed.total(x)  # unused
        return distributed.total(x) + distributed.total(x) + distributed.total(ones)  # equal, and of a constant

    def on_rank():
        compiled = pb.jit(f)
        for _ in range(3):
            distributed.barrier()
            np.testing.assert_array_equal(compiled(ones * distributed.rank()), 4.0)

    distributed.run(on_rank, 2)
    compiled = next(name for name in meetings if name.startswith("compiled f"))
    assert meetings == ["barrier", compiled, *["total"] * 4] * 3


def test_checkpoints_do_not_repeat_a_collective(meetings):
    def on_rank():
        f = pb.checkpoint(lambda x: pb.sum(pb.sin(distributed.total(pb.cos(x)))))
        pb.grad(f)(np.ones(3))

    distributed.run(on_rank, 2)
    assert meetings == ["total"]


@pb.jit
def ranked(x):
    return x * distributed.rank() + distributed.total(x)


def test_a_compiled_function_that_ranks_share_has_a_form_for_each():
    for _ in range(2):
        found = distributed.run(lambda: [float(ranked(np.array(2.0))) for _ in range(3)], 3)
        assert found == [[6.0] * 3, [8.0] * 3, [10.0] * 3]
    assert float(ranked(np.array(2.0))) == 2.0
    assert distributed.run(lambda: float(ranked(np.array(2.0))), 2) == [4.0, 6.0]


def test_a_program_runs_on_as_many_ranks_as_it_was_traced_for():
    def stage():
        return pb.stage(lambda x: distributed.all_gather(x))(pb.spec_of(np.ones(2)))

    program = distributed.run(stage, 2)[0]
    with pytest.raises(errors.WorldError, match="traced for 2 ranks, and runs on 1"):
        program(np.ones(2))
    assert distributed.run(lambda: program(np.ones(2)).shape, 2) == [(4,), (4,)]


def test_training_on_parts_of_the_data_is_training_on_all_of_it():
    """Uneven parts, one of them empty; sums and counts are totals, so a sample counts the same wherever it lies."""
    rng = np.random.default_rng(0)
    data, labels = rng.normal(size=(17, 3)), rng.normal(size=17)
    cuts = [0, 5, 5, 17]

    def train(mine, targets, over_ranks):
        total, shared = (distributed.total, distributed.shared) if over_ranks else (lambda x: x, lambda x: x)
        rule = pb.optim.chain(pb.optim.clip_by_global_norm(0.5), pb.optim.adam(0.05))
        w = {"w": np.zeros(3), "b": np.zeros(())}
        state = rule.init(w)

        def loss(w):
            w = {name: shared(p) for name, p in w.items()}
            error = pb.sum((mine @ w["w"] + w["b"] - targets) ** 2)
            return total(error) / total(float(len(targets)))

        for _ in range(20):
            updates, state = rule.update(pb.grad(loss)(w), state, w)
            w = pb.optim.apply_updates(w, updates)
        return [w["w"], w["b"]]

    def on_rank():
        part = slice(*cuts[distributed.rank() :][:2])
        return train(data[part], labels[part], True)

    wanted = train(data, labels, False)
    for found in distributed.run(on_rank, 3):
        for mine, one in zip(found, wanted, strict=True):
            np.testing.assert_allclose(mine, one, rtol=1e-12)


@pytest.mark.parametrize("meeting", MEETINGS)
@pytest.mark.parametrize("pair", PROGRAMS)
@pytest.mark.filterwarnings("ignore:(divide by zero|invalid value)")
def test_loops_and_masks_over_ranks(pair, meeting):
    on_rank, alone = PROGRAMS[pair]
    wanted = np.asarray(MEETINGS[meeting](alone))
    for found in distributed.run(lambda: np.asarray(MEETINGS[meeting](on_rank)), 3, timeout=30):
        assert np.isfinite(found).all()
        np.testing.assert_allclose(found, wanted, rtol=1e-11, atol=1e-12)


# ranks that do not do the same


def failing(on_rank, n=2, timeout=5.0, wanted=errors.WorldError):
    start = time.monotonic()
    threads = threading.active_count()
    with pytest.raises(wanted) as caught:
        distributed.run(on_rank, n, timeout=timeout)
    assert time.monotonic() - start < timeout + 5.0
    for _ in range(100):
        if threading.active_count() <= threads:
            break
        time.sleep(0.02)
    return str(caught.value)


MISMATCHES = {
    "shapes": lambda r: distributed.total(np.ones(3 + r)),
    "dtypes": lambda r: distributed.total(np.ones(3, "float64" if r else "float32")),
    "ops": lambda r: distributed.total(np.ones(2)) if r else distributed.all_gather(np.ones(2)),
    "axes": lambda r: distributed.all_gather(np.ones((2, 2)), axis=r),
    "roots": lambda r: distributed.broadcast(np.ones(2), root=r),
    "order": lambda r: [distributed.total(np.ones(2 + (i == r))) for i in range(2)],
    "compiled": lambda r: pb.jit(lambda x: distributed.total(x))(np.ones(2 + r)),
    "gradients": lambda r: pb.grad(lambda x: pb.sum(distributed.all_gather(x, axis=r)))(np.ones((2, 2))),
}


@pytest.mark.parametrize("kind", MISMATCHES)
def test_a_mismatch_names_both_sides(kind):
    text = failing(lambda: MISMATCHES[kind](distributed.rank()), wanted=errors.MismatchError)
    assert "collective 0 is not the same on all ranks" in text
    assert "rank 0:" in text
    assert "rank 1:" in text
    assert "test_distributed.py" in text


def test_an_error_of_one_rank_ends_the_others():
    ends = []

    def on_rank():
        if distributed.rank() == 1:
            raise KeyError("mine")
        try:
            distributed.total(1.0)
        except errors.RankLostError as error:
            ends.append(str(error))
            raise

    text = failing(on_rank, 3, wanted=KeyError)
    assert "mine" in text
    assert len(ends) == 2
    assert all("rank 1 raised KeyError" in end for end in ends)


def test_a_rank_that_returns_early_is_named():
    text = failing(lambda: distributed.rank() or distributed.total(1.0), wanted=errors.RankLostError)
    assert "rank 1 returned before collective 0: total of float64[]" in text


def test_a_late_rank_is_named_with_its_line():
    go_on = threading.Event()

    def on_rank():
        distributed.barrier()
        if distributed.rank() == 1:
            go_on.wait(10.0)  # late
        distributed.total(np.ones(3))

    text = failing(on_rank, timeout=0.3, wanted=errors.CollectiveTimeoutError)
    go_on.set()
    assert "rank 1 did not come to collective 1 within 0.3 s: total of float64[3]" in text
    assert "rank 1, after 1 collectives, is at" in text
    assert "# late" in text


def test_gradients_are_as_before_where_ranks_come_apart():
    kept = []

    def on_rank():
        x = pb.tensor(np.ones(2), requires_grad=True)
        (3.0 * x).sum().backward()
        y = pb.sum(distributed.shared(x) ** 2)
        if distributed.rank() == 1:
            raise ValueError("gone")
        try:
            y.backward()
        finally:
            kept.append(x.grad.numpy().tolist())

    failing(on_rank, wanted=ValueError)
    assert kept == [[3.0, 3.0]]


@pytest.mark.parametrize("overlap", [False, True])
def test_what_a_failed_pass_has_started_is_not_part_of_the_next(overlap):
    def fail(gradient):
        raise ValueError("in a hook")

    def on_rank():
        params = [pb.tensor(np.ones(3), requires_grad=True) for _ in range(4)]
        sums = distributed.DistributedGradient(params, bucket_mb=1e-5)

        def run(scale, hook=None):
            y = params[0] * scale
            if hook is not None:
                y.register_hook(hook)  # the gradients of the others come first
            pb.sum(((y * params[1]) * params[2]) * params[3]).backward()

        run(1.0)
        run(1.0)
        with sums.no_sync():
            run(1.0)
        before = [p.grad.tolist() for p in params]
        with pytest.raises(ValueError, match="in a hook"):
            run(100.0, fail)
        assert [p.grad.tolist() for p in params] == before == [[5.0] * 3] * 4
        run(1.0)
        return [p.grad.tolist() for p in params]

    assert distributed.run(on_rank, 2, timeout=20.0, overlap=overlap) == [[[8.0] * 3] * 4] * 2


@pytest.mark.parametrize("compiled", [False, True])
def test_a_number_that_is_not_finite_leaves_sums_that_wait_alone(compiled):
    """Gradients that are accumulated, a pass that fails, and one that goes well."""

    def on_rank():
        w = pb.tensor(np.ones(3), requires_grad=True)
        sums = distributed.DistributedGradient({"w": w})
        loss = lambda w, x: pb.sum(w * x)  # noqa: E731
        loss = pb.jit(loss) if compiled else loss
        with sums.no_sync():
            loss(w, np.ones(3)).backward()
        bad = np.array([1.0, np.nan if distributed.rank() else 1.0, 1.0])
        with pytest.raises(errors.NonFiniteError, match=r"rank 1: gradient of params\['w'\]"):
            loss(w, bad).backward()
        assert w.grad.tolist() == [1.0] * 3
        loss(w, np.ones(3)).backward()
        return w.grad.tolist()

    assert distributed.run(on_rank, 2, timeout=20.0) == [[4.0] * 3] * 2


def test_another_program_on_one_rank_overwrites_nothing():
    kept = []

    def on_rank():
        @functools.partial(pb.jit, donate_argnums=0, static_argnums=1)
        def step(w, times):
            for _ in range(times):
                w = w - 0.1 * pb.grad(lambda w: distributed.total(pb.sum(distributed.shared(w) ** 2)))(w)
            return w

        w = step(np.ones(3), 1)
        before = w.copy()
        try:
            step(w, 1 + distributed.rank())
        finally:
            kept.append((w == before).all())

    text = failing(on_rank, wanted=errors.MismatchError)
    assert "rank 0: compiled step, which calls" in text
    assert kept == [True, True]


def test_ranks_that_raise_at_once_and_one_that_exits():
    def on_rank():
        distributed.barrier()
        if r := distributed.rank():
            raise (KeyError, ValueError)[r - 1]("mine")
        distributed.total(1.0)

    assert "mine" in failing(on_rank, 3, wanted=(KeyError, ValueError))
    ends = []

    def exits():
        if distributed.rank() == 1:
            sys.exit(3)
        try:
            distributed.total(1.0)
        except errors.RankLostError as error:
            ends.append(str(error))
            raise

    failing(exits, 2, wanted=SystemExit)
    assert "rank 1 raised SystemExit: 3" in ends[0]


def test_arguments():
    def on_rank():
        with pytest.raises(errors.ShapeError, match="cannot be split into 2 equal parts"):
            distributed.reduce_scatter(np.ones(3))
        with pytest.raises(errors.ArgumentError, match="the ranks are 0 to 1"):
            distributed.broadcast(1.0, root=2)
        with pytest.raises(errors.ArgumentError, match="sends once and receives once"):
            distributed.permute(1.0, [(0, 1), (0, 0)])
        with pytest.raises(errors.ArgumentError, match="the width is between 0 and 2"):
            distributed.halo(np.ones(2), 3)

    distributed.run(on_rank, 2)
    for bad in (0, 2.0, True, "2"):
        with pytest.raises(errors.ArgumentError, match="number of ranks"):
            distributed.run(on_rank, bad)
    with pytest.raises(errors.ArgumentError, match="timeout"):
        distributed.run(on_rank, 2, timeout=0)


def test_programs_may_begin_with_ops_without_arguments():
    def f(x):
        distributed.barrier()
        return x * 2.0

    assert distributed.run(lambda: pb.jit(f)(np.ones(2)).tolist(), 2) == [[2.0, 2.0]] * 2
    assert pb.jit(lambda: pb.ones(2)).lower().run([])[0].tolist() == [1.0, 1.0]


def test_a_sum_is_waited_for_once():
    with pytest.raises(pb.errors.WorldError, match="no sum was started with ticket 7"):
        apply(finish_totals_op, np.array(7), np.ones(2), ranks=1, names=())


@pytest.mark.parametrize("dtype", ["f", "d", "F", "D", "e", "q"])
@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 8])
def test_sums_in_given_memory_have_the_bits_of_the_tree(ranks, dtype):
    rng = np.random.default_rng(ranks)
    for size in (0, 1, 33, 5000, 5003):
        scales = 10.0 ** rng.integers(-3, 4, size)
        terms = [(rng.normal(size=size) * scales).astype(dtype) for _ in range(ranks)]
        out, other = np.empty(size, dtype), np.empty(size, dtype)
        assert add_up_into(terms, out, other) in (True, None)
        wanted = add_up(np, terms).tobytes()
        assert out.tobytes() == other.tobytes() == wanted
        for place in range(ranks):  # in place
            held = [t.copy() for t in terms]
            add_up_into(held, held[place])
            assert held[place].tobytes() == wanted


@pytest.mark.parametrize("dtype", ["f", "d", "F", "D"])
def test_native_sums_see_numbers_that_are_not_finite(dtype):
    for bad in (np.nan, np.inf, -np.inf):
        for place in (0, 17, 5002):
            terms = [np.ones(5003, dtype) for _ in range(3)]
            terms[1][place] = bad
            out = np.empty(5003, dtype)
            assert add_up_into(terms, out) is (False if has_llvm() else None)
            assert not are_finite([out])
