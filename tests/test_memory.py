"""Memory tools: what they say agrees with what NumPy allocates, and they leave no trace."""

import gc
import json
import subprocess
import sys
import tracemalloc
import weakref
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

import pullback as pb
from pullback.arrays.memory_ledger import Ledger, owner_of
from pullback.errors import ArgumentError, ConversionError, GraphError
from pullback.settings import PLAIN, modes
from pullback.tape.cotangents import arrays_in

N = 20_000
SIZE = 8 * N
RNG = np.random.default_rng(0)


def chain(x):
    for _ in range(20):
        x = pb.sin(x) * 1.01
    return pb.sum(x)


def gated(x, w):
    y = x
    for _ in range(12):
        y = pb.tanh(y * w) + x
    return pb.mean(y)


def network(x, *weights):
    for w in weights:
        x = pb.relu(x @ w)
    return pb.mean(x * x)


def residual(x, *weights):
    for w in weights:
        x = x + pb.tanh(x @ w) / (1.0 + pb.logsumexp(x, axis=1, keepdims=True))
    return pb.mean(x * x)


def attention(x, q, k, v):
    scores = (x @ q) @ pb.matrix_transpose(x @ k)
    return pb.sum(pb.gelu(pb.softmax(scores / 8.0, axis=-1) @ (x @ v)) ** 2)


def views(x):
    y = pb.reshape(x, (100, -1))
    for _ in range(6):
        y = pb.sin(y).T[:, ::-1] * y.T
    return pb.sum(y)


CASES = {
    "chain": (chain, [(N,)]),
    "gated": (gated, [(N,), (N,)]),
    "network": (network, [(400, 64)] + [(64, 64)] * 8),
    "residual": (residual, [(400, 64)] + [(64, 64)] * 6),
    "attention": (attention, [(200, 32)] + [(32, 32)] * 3),
    "views": (views, [(N,)]),
}


def inputs(shapes, dtype="f8"):
    return [(RNG.standard_normal(shape) * 0.3).astype(dtype) for shape in shapes]


def measured(f, arrays):
    """The peak of all NumPy allocations by tracemalloc, in the plain eager mode."""
    f(*[pb.tensor(a, requires_grad=True) for a in arrays]).backward()
    gc.collect()
    tracemalloc.start()
    try:
        f(*[pb.tensor(a, requires_grad=True) for a in arrays]).backward()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("case", CASES)
def test_predicted_and_profiled_peaks_agree_with_what_is_allocated(case, dtype):
    f, shapes = CASES[case]
    arrays = inputs(shapes, dtype)
    true = measured(f, arrays)
    with pb.memory.profile() as seen:
        f(*[pb.tensor(a, requires_grad=True) for a in arrays]).backward()
    assert abs(seen.peak / true - 1) < 0.1
    predicted = pb.memory.predict(f, *map(pb.spec_of, arrays))
    with pb.native(False):  # what is predicted are the ops one by one; fused functions save less
        one_by_one = measured(f, arrays)
    assert abs(predicted.peak / one_by_one - 1) < 0.1
    assert true < 1.01 * one_by_one


def test_profile_tells_holders_ops_lines_and_phases_apart():
    x = pb.tensor(RNG.standard_normal(N), requires_grad=True)
    scale = pb.tensor(np.full(N, 2.0))
    with pb.memory.profile() as seen:
        y = pb.exp(x * scale)  # this line
        forward = seen.live
        pb.sum(pb.sin(y)).backward()
    held = seen.by_holder()
    assert (held["parameter"], held["input"], held["kept"]) == (SIZE, SIZE, SIZE)
    assert held["gradient"] + held["temporary"] >= SIZE
    assert any(row.op == "grad" or row.op.startswith("pull of") for row in seen.alive if row.nbytes == SIZE)
    assert forward == 3 * SIZE
    assert seen.peak == max(seen.peak_of("forward"), seen.peak_of("backward"))
    assert seen.peak_of("backward") > seen.peak_of("forward") - SIZE
    assert seen.by_op()["exp"] == SIZE
    assert any("y = pb.exp(x * scale)  # this line" in line for line in seen.by_line())
    assert sum(seen.by_line().values()) == sum(seen.by_op().values()) == sum(seen.by_holder().values()) == seen.peak
    assert x.grad.nbytes + x.nbytes + scale.nbytes + y.nbytes <= seen.live
    assert modes() is PLAIN


def test_the_timeline_ends_where_it_should():
    x = pb.tensor(np.ones(N), requires_grad=True)
    with pb.memory.profile() as seen:
        chain(x).backward()
    moments = seen.timeline
    assert [m.seconds for m in moments] == sorted(m.seconds for m in moments)
    assert max(m.live for m in moments) == seen.peak
    assert moments[-1].live == seen.live == 2 * SIZE
    assert {m.phase for m in moments} == {"forward", "backward"}
    assert all(sum(m.by_holder) == m.live for m in moments)
    assert sum(row.nbytes for row in seen.alive) == 2 * SIZE


def test_views_count_their_memory_once():
    x = pb.tensor(np.ones((100, 200)), requires_grad=True)
    with pb.memory.profile() as seen:
        y = pb.reshape(x, (200, 100))[::2].T
        z = pb.expand_dims(y, axis=0)
    assert seen.peak == seen.live == x.nbytes
    assert z.shape == (1, 100, 100)


def test_profiles_hold_nothing_alive():
    x = pb.tensor(np.ones(N), requires_grad=True)
    with pb.memory.profile() as seen:
        y = pb.sin(x)
        gone = weakref.ref(y.value)
        del y
        assert gone() is None
    assert seen.live == SIZE


def test_gradients_under_a_profile_have_the_same_bits():
    for f, shapes in CASES.values():
        arrays = inputs(shapes)
        plain = pb.grad(f)(*arrays)
        with pb.memory.profile():
            assert pb.grad(f)(*arrays).tobytes() == plain.tobytes()


def test_profiles_of_other_transforms_and_of_failures():
    x = np.linspace(0.1, 1.0, 40)
    plain = pb.hessian(chain)(x)
    with pb.memory.profile() as seen:
        found = pb.hessian(chain)(x)
        with pytest.raises(pb.errors.ShapeError):
            pb.sum(pb.tensor(x) + pb.tensor(np.ones(7)))
    assert type(found) is np.ndarray
    assert found.tobytes() == plain.tobytes()
    assert seen.peak > 0
    with pytest.raises(ZeroDivisionError), pb.memory.profile():
        raise ZeroDivisionError
    assert modes() is PLAIN
    with pytest.raises(GraphError, match="once"), seen:
        pass


@pytest.mark.parametrize("calls", [1, 3])
def test_profiles_of_compiled_programs_on_bare_arrays_are_not_empty(calls):
    compiled = pb.jit(pb.grad(chain))
    for _ in range(calls - 1):  # the first call and later ones enter by different doors
        compiled(np.ones(N))
    x = np.ones(N)
    with pb.memory.profile() as outer, pb.memory.profile() as seen:
        out = compiled(x)
    memory = compiled.lower(x).memory()
    assert memory.arena > 0
    assert seen.peak == outer.peak == memory.peak + 64  # the arena begins at a line of the cache
    assert seen.by_op()["jit chain"] == out.nbytes
    assert seen.by_op()["inside jit chain"] == memory.arena + memory.constants + 64
    assert all("test_memory.py" in line for line in seen.by_line())


def test_profiles_see_the_arena_of_compiled_programs_on_a_tape():
    loss = pb.jit(chain)
    x = pb.tensor(np.ones(N), requires_grad=True)
    with pb.memory.profile() as seen:
        loss(x).backward()
    assert any(op.startswith("inside jit") for op in seen.by_op())
    assert seen.by_holder()["parameter"] == SIZE


def test_profiles_nest_and_see_the_same():
    x = pb.tensor(np.ones(N), requires_grad=True)
    with pb.memory.profile() as outer, pb.memory.profile() as inner:
        chain(x).backward()
    assert outer.peak == inner.peak
    assert outer.by_op() == inner.by_op()


def test_exact_peaks_count_what_is_inside_of_ops():
    x = pb.tensor(np.ones(N), requires_grad=True)
    with pb.memory.profile(exact=True) as seen:
        pb.std(x * 2.0).backward()
    assert not tracemalloc.is_tracing()
    assert seen.exact_peak > 2 * SIZE
    tracemalloc.start()
    try:
        with pb.memory.profile(exact=True):
            pb.sum(x * 2.0)
        assert tracemalloc.is_tracing()
    finally:
        tracemalloc.stop()


def test_readings_in_every_form(tmp_path):
    x = pb.tensor(np.ones(N), requires_grad=True)
    with pb.memory.profile() as seen:
        pb.sum(pb.where(x < 2, x, 0.0) * x).backward()  # a line with < in it
    data = json.loads(seen.json())
    assert data["peak"] == seen.peak
    assert sum(row["nbytes"] for row in data["at_peak"]) == seen.peak
    assert len(data["timeline"]) == len(seen.timeline)
    text = seen.table()
    assert text == str(seen)
    assert "held by: parameter" in text
    assert "a line with < in it" in text
    ElementTree.fromstring(seen.svg())
    page = seen.html()
    assert "&lt; in it" in page
    assert "http" not in page.replace('xmlns="http://www.w3.org/2000/svg"', "")
    for ending in ("json", "svg", "html", "txt"):
        seen.save(tmp_path / f"memory.{ending}")
        assert (tmp_path / f"memory.{ending}").stat().st_size > 100
    with pytest.raises(ArgumentError, match=r"\.json, \.svg"):
        seen.save(tmp_path / "memory.png")
    with pytest.raises(ArgumentError, match="phase"):
        seen.peak_of("sideways")


def test_empty_and_long_profiles_draw():
    with pb.memory.profile() as empty:
        pass
    assert (empty.peak, empty.live, empty.at_peak) == (0, 0, ())
    ElementTree.fromstring(empty.svg())
    assert "held by: nothing" in empty.table()
    x = pb.tensor(np.ones(8), requires_grad=True)
    with pb.memory.profile() as long:
        for _ in range(60):
            chain(x)
    assert len(long.timeline) > 2000
    assert len(long.svg()) < 150_000


def test_tables_for_rich():
    console = pytest.importorskip("rich.console").Console(width=200, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    x = pb.tensor(np.ones(N), requires_grad=True)
    with console.file, pb.memory.profile() as seen:
        loss = chain(x)
        console.print(seen)
        console.print(pb.memory.explain(loss))
    assert "sin" in console.export_text()


def test_diff_names_what_grew():
    x = pb.tensor(np.ones(N), requires_grad=True)
    leak = []

    def step(leaks):
        y = pb.sin(x)
        if leaks:
            leak.append(pb.cos(y.detach()))  # the leak
        pb.sum(y * y).backward()
        x.grad = None

    with pb.memory.profile() as before:
        step(False)
    with pb.memory.profile() as after:
        step(True)
    found = pb.memory.diff(before, after)
    grown = found.alive[0]
    assert (grown.nbytes, grown.count, grown.op) == (SIZE, 1, "cos")
    assert "# the leak" in grown.line
    assert found.live == SIZE
    assert found.peak == SIZE
    assert "+156.2 KiB" in found.table()
    assert json.loads(found.json())["live"] == SIZE
    same = pb.memory.diff(before, before)
    assert (same.peak, same.at_peak, same.alive) == (0, (), ())
    assert "nothing changed" in str(same)
    assert pb.memory.diff(after, before).live == -SIZE


def test_explain_counts_shared_memory_once_and_names_keepers():
    x = pb.tensor(np.ones((100, 200)), requires_grad=True)
    w = pb.tensor(np.ones((200, 50)), requires_grad=True)
    h = pb.exp(x)
    loss = pb.sum(h @ w) + pb.sum(pb.sin(pb.reshape(h, (-1,)))) + pb.sum(h * h)
    found = pb.memory.explain(loss)
    assert found.total == h.nbytes + w.nbytes
    assert found.parameters == w.nbytes
    largest = found.values[0]
    assert largest.nbytes == h.nbytes
    assert {(op, argument) for op, argument, _ in largest.keepers} == {
        ("exp", "out"), ("matmul", "x"), ("sin", "x"), ("multiply", "x"), ("multiply", "y"),
    }  # fmt: skip
    assert all("test_memory.py" in line for _, _, line in largest.keepers)
    assert sum(found.by_op().values()) == sum(found.by_line().values()) == h.nbytes
    assert json.loads(found.json())["total"] == found.total
    assert "matmul(y)" in found.table()
    loss.backward()
    after = pb.memory.explain(loss)
    assert (after.total, after.released) == (0, after.nodes)


def test_explain_of_what_is_packed_or_taken_away():
    x = pb.tensor(np.ones(N), requires_grad=True)
    with pb.saved_tensors_hooks(lambda t: t.numpy().tobytes(), lambda b: np.frombuffer(b)):
        packed = pb.memory.explain(pb.sin(x))
    assert (packed.total, packed.values[0].holder) == (0, "packed")
    with pb.memory_budget(8 * SIZE) as budget:
        y = x
        for _ in range(20):
            y = pb.sin(y)
        found = pb.memory.explain(y)
    assert budget.report().evictions == sum(v.holder == "packed" for v in found.values) > 0
    with pytest.raises(ArgumentError, match="explain"):
        pb.memory.explain(pb.tensor(1.0))


def test_predictions_compute_nothing_and_take_specs_of_any_size():
    huge = pb.Spec((1_000_000, 1_000_000), "f4")
    found = pb.memory.predict(lambda x: pb.mean(pb.tanh(x) ** 2), huge)
    assert found.arguments == huge.nbytes
    assert 3 * huge.nbytes <= found.peak <= 6 * huge.nbytes
    assert "peak" in str(found)


def test_predictions_find_parameters_and_leave_them_as_they_were():
    x, *weights = inputs(CASES["network"][1])
    tensors = [pb.tensor(w, requires_grad=True) for w in weights]
    before = [(t.value, t.spec, t.node) for t in tensors]
    given = pb.memory.predict(network, x, *weights, argnums=tuple(range(1, 9)))
    closed = pb.memory.predict(lambda x: network(x, *tensors), x, argnums=())
    alone = pb.memory.predict(lambda: network(x, *tensors), parameters=tensors)
    assert given.peak == closed.peak == alone.peak
    assert all((t.value, t.spec, t.node) == b for t, b in zip(tensors, before, strict=True))
    assert all(t.grad is None for t in tensors)
    with pytest.raises(ConversionError):
        pb.memory.predict(lambda x: network(x, *tensors) if x[0, 0].item() else x, x)
    assert all(t.value is b[0] for t, b in zip(tensors, before, strict=True))
    with pytest.raises(ArgumentError, match="neither"):
        pb.memory.predict(lambda: network(x, *tensors))


def test_predictions_of_trees_and_of_results_that_are_no_loss():
    def f(batch, scale):
        return {"a": pb.sin(batch["x"]) * scale, "b": [batch["y"] * 2.0]}

    batch = {"x": np.ones(N), "y": np.ones(N)}
    found = pb.memory.predict(f, batch, 3.0)
    assert found.arguments == 2 * SIZE
    assert found.forward >= 4 * SIZE
    assert found.backward > found.forward
    plain = pb.memory.predict(lambda i: i + 1, np.arange(N))
    assert plain.backward == 0
    assert plain.forward == 2 * SIZE


def test_assert_no_growth_finds_growth():
    x = pb.tensor(np.ones(100), requires_grad=True)
    kept, bare = [], []
    pb.memory.assert_no_growth(lambda: chain(x).backward())
    with pytest.raises(AssertionError, match=r"nodes and .* tensors .*arrays"):
        pb.memory.assert_no_growth(lambda: kept.append(chain(x)))
    with pytest.raises(AssertionError, match=r"2\.3 KiB of arrays more after 3 runs"):
        pb.memory.assert_no_growth(lambda: bare.append(np.ones(100)))
    pb.memory.assert_no_growth(lambda: bare.append(np.ones(10)), slack=1000)
    with pytest.raises(AssertionError, match=r"made at (tests/)?test_memory"), pb.memory.assert_no_growth():
        kept.append(chain(x))
    with pb.memory.assert_no_growth():
        chain(x).backward()
        x.grad = None

    runs = []

    @pb.memory.assert_no_growth(times=2)
    def decorated(n):
        runs.append(1)
        return n + 1

    assert decorated(2) == 3
    assert len(runs) == 3
    with pytest.raises(ValueError, match="mine"), pb.memory.assert_no_growth():
        raise ValueError("mine")
    with pytest.raises(ArgumentError, match="times"):
        pb.memory.assert_no_growth(times=0)


def test_the_ledger_counts_owners_and_forgets_the_dead():
    ledger = Ledger()
    a = np.ones(1000)
    assert ledger.track(a[10:20])[1]
    assert not ledger.track(a.reshape(10, 100).T)[1]
    assert owner_of(a[1:][1:]) is a
    assert ledger.live == 8000
    del a
    assert ledger.remove_freed() == 0
    for _ in range(1000):  # identities are used again
        ledger.track(np.ones(10))
    assert ledger.remove_freed() == 0
    assert ledger.peak == 8000
    assert [x.size for x in arrays_in((np.ones(2), [pb.tensor([1.0])], None, "text"))] == [1, 2]


RELEASE = """
import numpy as np, pullback as pb
blocks = [np.ones(250_000) for _ in range(60)]
del blocks[5]          # from now on the allocator keeps blocks of this size in its heap
blocks += [np.ones(240_000) for _ in range(60)]
blocks = blocks[-1:]   # the newest stays, above all the others
held = pb.memory.resident()
pb.memory.release()
print(held >> 20, pb.memory.resident() >> 20, pb.memory.peak_resident() >> 20)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_released_pages_leave_the_resident_set():
    done = subprocess.run([sys.executable, "-c", RELEASE], capture_output=True, text=True, check=True)
    held, after, peak = map(int, done.stdout.split())
    assert after <= held
    assert after < 110
    assert peak >= 200


def around(f):
    x = pb.tensor(np.linspace(0.0, 1.0, 1000), requires_grad=True)
    with pb.memory.profile() as seen:
        f(x).backward()
    return seen.peak


def wavy_sum(x):
    return pb.sum(pb.sin(pb.name(pb.exp(pb.tanh(x)), "e")))


POLICIES = {
    "nothing": pb.save_nothing, "contractions": pb.save_contractions, "everything": pb.save_everything,
    "named": pb.save_named("e"), "chosen": lambda op, nbytes: nbytes < 100,
}  # fmt: skip


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_a_profile_sees_inside_a_checkpoint_whatever_its_policy(policy):
    assert around(pb.checkpoint(wavy_sum, policy=policy)) >= 0.7 * around(wavy_sum) > 0


def test_instruments_do_not_hide_each_other():
    f = pb.checkpoint(wavy_sum, policy=pb.save_contractions)
    alone = around(f)
    with pb.memory.profile() as outer, pb.memory_budget("1 MiB") as budget:
        assert around(f) == alone
    assert outer.peak == alone
    assert budget.report().peak == alone
    with pb.offload_to_disk(at_least=100), pb.saved_tensors_hooks(lambda t: t.numpy().copy(), pb.tensor):
        assert around(f) >= 0.7 * alone
