"""Codecs: sums over ranks within their error bounds, the same on all ranks; nothing is lost with error feedback;
compiled as eager; what is measured decides.
"""

import io
import pickle

import numpy as np
import pytest
from rich.console import Console

import pullback as pb
from pullback import distributed, errors
from pullback.distributed import codecs
from pullback.distributed.codecs import choice, measurement
from pullback.distributed.codecs.codec import run_codecs
from pullback.distributed.codecs.measurement import Measurement, Rehearsed
from pullback.distributed.codecs.rehearsal import Rehearsal
from pullback.distributed.codecs.sign_bits import _pack_signs
from pullback.distributed.compressed_adam import one_bit_adam
from pullback.ops.collective.gathering import gathers_op
from pullback.ops.dispatch import apply
from pullback.ops.order.largest import largest_places
from pullback.settings import override_modes

CODECS = {
    "bfloat16": codecs.bfloat16(),
    "float16": codecs.float16(),
    "int8": codecs.int8(),
    "int8 by rows": codecs.int8(per="row"),
    "one_bit": codecs.one_bit(),
    "top_k": codecs.top_k(0.2),
    "threshold": codecs.threshold(1.0, capacity=0.2),
    "random_k": codecs.random_k(0.2),
    "power_sgd": codecs.power_sgd(1),
}
KEPT = {name: codecs.error_feedback(codec) for name, codec in CODECS.items()}
COMPOSED = {
    "after": codecs.after(1, KEPT["int8"]),
    "after inside": codecs.error_feedback(codecs.after(1, codecs.one_bit())),
    "only": codecs.only(codecs.matrices, KEPT["one_bit"]),
}
ALL = CODECS | KEPT | COMPOSED
#: Sums of halves are rounded once more, by the ranks: their shares add up to the total but for that.
ROUNDED = {"bfloat16": 2.0**-7, "float16": 2.0**-10}
SHAPES = [(), (0,), (1,), (7,), (8,), (64,), (9, 5), (0, 3), (6, 4, 3), (32, 40)]


def arrays_of_ranks(ranks, *shape, dtype="float32", seed=0):
    return np.random.default_rng(seed).normal(size=(ranks, *shape)).astype(getattr(pb, dtype))


def sum_coded(codec, xs, state=None, step=0):
    """(total, sent, state) of each rank for arrays of ranks."""

    def on_rank():
        x = np.asarray(xs[distributed.rank()])
        (coded,) = run_codecs([codec], [x], [codec.init(x) if state is None else state], np.array(step))
        return coded

    return distributed.run(on_rank, len(xs), timeout=20)


def wide(x):
    return np.asarray(x, np.float64)


# What each codec sends, in NumPy


def one_bit_shares(xs):
    return [np.where(x < 0, -1, 1) * np.abs(x).mean() for x in xs]


def largest_shares(xs, count, limit=0.0):
    found = []
    for x in xs:
        sizes = np.abs(x).ravel()
        places = np.argsort(sizes)[len(sizes) - count :]
        kept = np.zeros_like(sizes)
        kept[places] = np.where(sizes[places] > limit, x.ravel()[places], 0)
        found.append(kept.reshape(x.shape))
    return found


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_halves_are_off_by_two_roundings(ranks):
    xs = arrays_of_ranks(ranks, 9, 5)
    for name, bound in ROUNDED.items():
        for coded in sum_coded(CODECS[name], xs):
            assert (np.abs(wide(coded.total) - wide(xs).sum(0)) <= bound * np.abs(xs).sum(0)).all()


@pytest.mark.parametrize("per", ["tensor", "row"])
def test_bytes_are_off_by_half_a_unit(per):
    xs = arrays_of_ranks(3, 9, 5) * np.array([1.0, 100.0, 1e-3], "f")[:, None, None]
    largest = np.abs(xs).max(axis=(1, 2) if per == "tensor" else 2, keepdims=True)
    for coded in sum_coded(codecs.int8(per=per), xs):
        assert (np.abs(wide(coded.total) - wide(xs).sum(0)) <= 1.001 * (largest / 254).sum(0)).all()


def test_signs_have_one_size():
    xs = arrays_of_ranks(3, 7, 3)
    for coded in sum_coded(codecs.one_bit(), xs):
        np.testing.assert_allclose(coded.total, sum(one_bit_shares(xs)), rtol=1e-6, atol=1e-6)


def test_signs_are_packed_in_blocks():
    """Bit i of byte j is element j + i n of n bytes; places beyond the end are positive."""
    x = arrays_of_ranks(1, 21)[0]
    packed = np.asarray(_pack_signs(x))
    assert packed.shape == (3,)
    wanted = [sum(1 << i for i in range(8) if j + 3 * i < 21 and x[j + 3 * i] < 0) for j in range(3)]
    np.testing.assert_array_equal(packed, wanted)


@pytest.mark.parametrize("limit", [None, 0.8])
def test_the_largest_elements_are_sent(limit):
    xs = arrays_of_ranks(3, 10, 5)
    codec = codecs.top_k(0.1) if limit is None else codecs.threshold(limit, capacity=0.1)
    for coded in sum_coded(codec, xs):
        np.testing.assert_allclose(coded.total, sum(largest_shares(xs, 5, limit or 0.0)), rtol=1e-6)


def test_random_elements_are_the_same_on_all_ranks_and_others_in_other_steps():
    xs = arrays_of_ranks(3, 10, 7)
    whole, seen = xs.sum(0), []
    for step in range(40):
        coded = sum_coded(codecs.random_k(0.1), xs, step=step)[0]
        total = np.asarray(coded.total)
        assert (total != 0).sum() == 7
        np.testing.assert_allclose(total[total != 0], whole[total != 0], rtol=1e-5)
        seen.append(total != 0)
    assert np.any(seen, axis=0).mean() > 0.95
    assert not (
        sum_coded(codecs.random_k(0.1, seed=1), xs)[0].total == sum_coded(codecs.random_k(0.1), xs)[0].total
    ).all()


def test_a_sum_of_low_rank_is_sent_whole():
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(12, 15))
    xs = [noise, rng.normal(size=(12, 2)) @ rng.normal(size=(2, 15)) - noise]
    for coded in sum_coded(codecs.power_sgd(2), xs):
        np.testing.assert_allclose(coded.total, sum(xs), rtol=1e-9, atol=1e-9)


def test_repeated_steps_of_low_rank_find_the_largest_singular_vectors():
    u, _, v = np.linalg.svd(np.random.default_rng(0).normal(size=(20, 30)), full_matrices=False)
    matrix = u[:, :4] * np.array([10.0, 8.0, 1.0, 0.5]) @ v[:4]
    codec, state = codecs.power_sgd(2), None
    for _ in range(8):
        (coded,) = sum_coded(codec, [matrix], state)
        state = coded.state
    np.testing.assert_allclose(coded.total, u[:, :2] * np.array([10.0, 8.0]) @ v[:2], atol=1e-5)


def test_low_rank_recovers_from_zeros():
    """A gradient of zeros must not leave zeros as the next start; nor a column that depends on another."""
    codec = codecs.power_sgd(2)
    (coded,) = sum_coded(codec, [np.zeros((6, 9))])
    matrix = np.outer(np.arange(6.0), np.arange(9.0))
    (coded,) = sum_coded(codec, [matrix], coded.state)
    np.testing.assert_allclose(coded.total, matrix, atol=1e-9)
    (coded,) = sum_coded(codec, [matrix + np.eye(6, 9)], coded.state)
    (coded,) = sum_coded(codec, [matrix + np.eye(6, 9)], coded.state)
    assert np.linalg.norm(coded.total - matrix - np.eye(6, 9)) < np.linalg.norm(np.eye(6, 9))


# What holds of all of them


@pytest.mark.parametrize("name", ALL)
def test_all_ranks_have_the_same_total_which_is_the_sum_of_what_they_sent(name):
    codec = ALL[name]
    for shape in SHAPES:
        xs = arrays_of_ranks(2, *shape)
        one, two = sum_coded(codec, xs, step=3)
        assert np.asarray(one.total).tobytes() == np.asarray(two.total).tobytes()
        assert (np.shape(one.total), np.asarray(one.total).dtype) == (shape, np.float32)
        sent = wide(one.sent) + wide(two.sent)
        bound = ROUNDED.get(name, 1e-6)
        np.testing.assert_allclose(wide(one.total), sent, rtol=bound, atol=max(bound, 1e-6))


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16", "complex64"])
def test_every_dtype_comes_back_as_it_was(name, dtype):
    """Half types are encoded in float32, complex ones are summed plainly."""
    rule = distributed.aggregate(ALL[name])
    for shape in ((), (1,), (7,), (9, 5)):
        xs = arrays_of_ranks(2, *shape, dtype=dtype)
        params = np.zeros(shape, xs.dtype)

        def on_rank(xs=xs, params=params):
            state = rule.init(params)
            for _ in range(2):
                update, state = rule.update(xs[distributed.rank()], state, params)
            return np.asarray(update)

        one, two = distributed.run(on_rank, 2)
        assert (one.dtype, one.shape) == (xs.dtype, shape)
        assert one.tobytes() == two.tobytes()


@pytest.mark.parametrize("name", KEPT)
def test_nothing_is_lost_with_error_feedback(name):
    """Sums so far, and the residuals of all ranks, are the sum of all gradients."""
    codec, steps = KEPT[name], 6
    gradients = arrays_of_ranks(2, steps, 9, 6)

    def on_rank():
        state, totals = codec.init(gradients[0, 0]), 0.0
        for t in range(steps):
            (coded,) = run_codecs([codec], [gradients[distributed.rank(), t]], [state], np.array(t))
            totals, state = totals + wide(coded.total), coded.state
        return totals, wide(state["residual"].tree)

    (totals, left), (_, more) = distributed.run(on_rank, 2)
    bound = ROUNDED.get(name, 0.0) * steps + 1e-6 * steps
    np.testing.assert_allclose(totals + left + more, wide(gradients).sum((0, 1)), atol=2 * bound)


@pytest.mark.parametrize("name", [*KEPT, *COMPOSED])
def test_compiled_as_eager(name):
    """Three steps of arrays that are encoded and arrays that are not."""
    rule = distributed.aggregate(ALL[name])
    shapes = {"w": (9, 5), "b": (7,), "s": ()}
    rng = np.random.default_rng(0)
    grads = [[{n: rng.normal(size=s).astype("f") for n, s in shapes.items()} for _ in range(3)] for _ in range(2)]
    params = {n: np.zeros(s, "f") for n, s in shapes.items()}

    def on_rank(update):
        state, found = rule.init(params), []
        for g in grads[distributed.rank()]:
            sums, state = update(g, state, params)
            found.append(sums)
        return found, state

    eager = distributed.run(lambda: on_rank(rule.update), 2)
    compiled = distributed.run(lambda: on_rank(pb.jit(rule.update)), 2)
    for a, b in zip(pb.tree.leaves(eager), pb.tree.leaves(compiled), strict=True):
        np.testing.assert_allclose(wide(a), wide(b), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", ALL)
def test_the_bytes_that_are_said_are_sent(name):
    codec = ALL[name]
    for x in (arrays_of_ranks(1, 9, 50)[0], arrays_of_ranks(1, 61)[0], arrays_of_ranks(1, 30, 20, dtype="float64")[0]):
        spec = pb.spec_of(x)
        world = Rehearsal(2)
        with override_modes(rank=world):
            run_codecs([codec], [x], [codec.init(x)], np.array(5))
        sent = sum(m.sent_bytes for m in world.meetings)
        assert sent == (codec.sent_bytes(spec) if codec.applies(spec) else spec.nbytes)
        assert codec.ratio(spec) == pytest.approx(spec.nbytes / sent)


@pytest.mark.parametrize("name", ALL)
def test_zeros_and_equal_numbers(name):
    for number in (0.0, 2.5):
        xs = np.full((2, 8, 5), number, "f")
        one, _ = sum_coded(ALL[name], xs)
        assert np.isfinite(one.total).all()
        assert (np.abs(one.total) <= 5.0 + 1e-5).all()
        if not number:
            assert not np.any(one.total)


@pytest.mark.parametrize("name", ALL)
def test_codecs_are_values(name):
    codec = pickle.loads(pickle.dumps(ALL[name]))
    x = arrays_of_ranks(2, 6, 4)
    np.testing.assert_array_equal(sum_coded(codec, x)[0].total, sum_coded(ALL[name], x)[0].total)
    assert codec.name == ALL[name].name


@pytest.mark.parametrize("name", [*KEPT, *COMPOSED])
def test_states_are_saved_and_loaded(name, tmp_path):
    rule = pb.optim.chain(distributed.aggregate(ALL[name]), pb.optim.sgd(0.1))
    params = {"w": np.zeros((6, 5), "f"), "b": np.zeros(3, "f")}
    grads = {"w": arrays_of_ranks(1, 6, 5)[0], "b": np.ones(3, "f")}
    _, state = rule.update(grads, rule.init(params), params)
    pb.save(tmp_path / "state.safetensors", state)
    again = pb.load(tmp_path / "state.safetensors")
    after, after_again = (pb.tree.leaves(rule.update(grads, s, params)) for s in (state, again))
    for a, b in zip(after, after_again, strict=True):
        np.testing.assert_array_equal(a, b)


# NaN and infinity


@pytest.mark.parametrize("name", [name for name in ALL if name != "random_k"])
@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_what_is_not_finite_is_named_on_all_ranks(name, number):
    rule = distributed.aggregate(ALL[name])
    params = {"w": np.zeros((6, 5), "f")}

    def on_rank():
        grads = {"w": np.ones((6, 5), "f")}
        if distributed.rank():
            grads["w"][2, 3] = number
        with (
            np.errstate(all="ignore"),
            pytest.raises(errors.NonFiniteError, match=r"rank 1: gradient of params\['w'\]"),
        ):
            rule.update(grads, rule.init(params), params)

    distributed.run(on_rank, 2, timeout=10)


@pytest.mark.parametrize("compiled", [False, True])
def test_sums_too_large_for_a_codec_are_named(compiled):
    """Each rank's numbers are finite, and in float16 too; their sum is not."""
    rule = distributed.aggregate(codecs.float16())

    def on_rank():
        params, grads = np.zeros((6, 5), "f"), np.full((6, 5), 5e4, "f")
        update = pb.jit(rule.update) if compiled else rule.update
        said = "every rank's numbers are finite, and their sum overflows"
        with np.errstate(all="ignore"), pytest.raises(errors.NonFiniteError, match=said):
            update(grads, rule.init(params), params)

    distributed.run(on_rank, 2, timeout=10)


def test_what_is_not_finite_and_not_sent_is_named_when_it_is():
    rule = distributed.aggregate(KEPT["random_k"])

    def on_rank():
        params, good = np.zeros((6, 5), "f"), np.ones((6, 5), "f")
        bad = good.copy()
        bad[2, 3] = np.nan if distributed.rank() else 1.0

        def train():
            state = rule.init(params)
            for step in range(100):
                _, state = rule.update(good if step else bad, state, params)

        with np.errstate(all="ignore"), pytest.raises(errors.NonFiniteError, match="rank 1: gradient of params"):
            train()

    distributed.run(on_rank, 2, timeout=10)


@pytest.mark.parametrize("name", [name for name in KEPT if name != "random_k"])
@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_what_is_not_finite_does_not_stay_in_residuals(name, number):
    def on_rank():
        x = arrays_of_ranks(2, 6, 5)[distributed.rank()]
        bad = x.copy()
        if distributed.rank():
            bad[2, 3] = number
        rule = distributed.aggregate(KEPT[name], finite=False)
        with np.errstate(all="ignore"):
            first, state = rule.update(bad, rule.init(x), np.zeros((6, 5), "f"))
        second, _ = rule.update(x, state, np.zeros((6, 5), "f"))
        return np.asarray(first), np.asarray(second)

    found = distributed.run(on_rank, 2, timeout=10)
    for first, second in found:
        assert np.isfinite(second).all()
        assert not np.isfinite(first).all()


# Compositions


def meetings_of(codec, arrays, steps, compiled):
    """For each step the meetings of a rank that sums arrays."""
    world = Rehearsal(2)

    def step(arrays, states, number):
        coded = run_codecs([codec] * len(arrays), arrays, states, number)
        return [c.total for c in coded], [c.state for c in coded]

    with override_modes(rank=world):
        call = pb.jit(step) if compiled else step
        states, found = [codec.init(x) for x in arrays], []
        for t in range(steps):
            world.meetings.clear()
            _, states = call(arrays, states, np.array(t))
            # where ranks only agree that they run the same program, nothing is sent
            found.append([(type(m.exchange).__name__, m.sent_bytes) for m in world.meetings if m.specs])
    return found


@pytest.mark.parametrize("compiled", [False, True])
def test_only_the_chosen_phase_communicates(compiled):
    arrays = [np.ones((4, 4), "f"), np.ones(64, "f"), np.ones((), "f")]
    found = meetings_of(codecs.after(2, codecs.int8()), arrays, 4, compiled)
    plain, signs = [("Sum", 4 * 81)], [("Concatenation", 16 + 4 + 64 + 4)]
    if compiled:  # the number is summed beside the branch
        plain = [("Sum", 4), ("Sum", 4 * 80)]
    assert found[:2] == [plain] * 2
    assert found[2:] == [[("Sum", 4), *signs]] * 2


def test_arrays_share_meetings():
    arrays = [np.ones((20, 30), "f"), np.ones((30, 10), "f"), np.ones(50, "f")]
    narrow = 4 * 2 * (20 + 30), 4 * (30 + 20 + 10 + 30)
    (found,) = meetings_of(codecs.power_sgd(1), arrays, 1, False)
    assert found == [("Sum", 4 * (20 + 30 + 50)), ("Sum", 4 * (30 + 10))], narrow
    (found,) = meetings_of(codecs.int8(), arrays, 1, False)
    assert found == [("Concatenation", 600 + 300 + 50 + 3 * 4)]


def test_phases_inside_phases():
    codec = codecs.after(1, codecs.error_feedback(codecs.after(2, codecs.one_bit())))
    found = meetings_of(codec, [np.ones((4, 4), "f")], 3, True)
    assert [kind for ((kind, _),) in found] == ["Sum", "Sum", "Concatenation"]


def test_predicates():
    weights, bias = pb.spec_of(np.ones((20, 20), "f")), pb.spec_of(np.ones(20, "f"))
    only = codecs.only(codecs.matrices, codecs.one_bit())
    assert (only.ratio(weights) > 25, only.ratio(bias)) == (True, 1.0)
    large = codecs.only(codecs.larger_than(100), codecs.int8())
    assert (large.applies(weights), large.applies(bias)) == (True, False)
    assert codecs.only(lambda spec: spec.shape == (20,), codecs.int8()).applies(bias)


def test_settings_are_checked():
    for make, said in (
        (lambda: codecs.int8(per="column"), "per is"),
        (lambda: codecs.top_k(0.0), "fraction"),
        (lambda: codecs.random_k(1.5), "at most 1"),
        (lambda: codecs.threshold(-1.0), "limit"),
        (lambda: codecs.power_sgd(0), "rank"),
        (lambda: codecs.after(-1, codecs.int8()), "steps"),
        (lambda: codecs.error_feedback(codecs.int8), "wants a codec"),
        (lambda: codecs.best(), "at least one"),
        (lambda: distributed.aggregate(codecs.int8), "wants a codec"),
        (lambda: one_bit_adam(0.1, warmup=0), "warmup"),
    ):  # fmt: skip
        with pytest.raises(errors.ArgumentError, match=said):
            make()


# The measured choice


def fake_measurements(monkeypatch, encode, seconds_per_byte):
    """Codecs that take some seconds, on ranks whose wires have some speed; each rank measures something else."""
    real = measurement.rehearse

    def rehearse(codec, x, state, ranks, seconds=0.0):
        own = encode[codec.name] * (0.5 + distributed.rank())
        return Rehearsed(own / 2, own / 2, real(codec, x, state, ranks, 0.0).meetings)

    monkeypatch.setattr(measurement, "rehearse", rehearse)
    monkeypatch.setattr(
        measurement, "_time_meeting", lambda m, device, world: (1 + world.rank) * seconds_per_byte * m.sent_bytes
    )


@pytest.mark.parametrize(
    ("seconds_per_byte", "wanted"), [(1e-12, "plain"), (1e-8, "0 bfloat16()"), (1e-6, "1 one_bit()")]
)
def test_the_fastest_is_chosen_and_all_ranks_choose_alike(monkeypatch, seconds_per_byte, wanted):
    """Signs take 1 ms, halves 0.1 ms; an array of 64 KiB."""
    fake_measurements(monkeypatch, {"bfloat16()": 1e-4, "one_bit()": 1e-3}, seconds_per_byte)
    codec = codecs.best(codecs.bfloat16(), codecs.one_bit())
    rule = distributed.aggregate(codec)
    xs = arrays_of_ranks(2, 128, 128)

    def on_rank():
        params = {"w": np.zeros((128, 128), "f"), "b": np.zeros(3, "f")}
        state, update = rule.init(params), pb.jit(rule.update)
        for _ in range(2):
            sums, state = update({"w": xs[distributed.rank()], "b": np.ones(3, "f")}, state, params)
        return list(state.slots["codec"]["w"]), list(state.slots["codec"]["b"]), np.asarray(sums["w"])

    one, two = distributed.run(on_rank, 2)
    assert one[:2] == two[:2] == ([wanted], ["plain"])
    assert one[2].tobytes() == two[2].tobytes()


def test_nothing_slower_than_a_plain_sum_is_chosen():
    def measured(seconds, plain):
        return Measurement(seconds / 4, seconds / 4, seconds / 2, plain, 1.0, 2.0)

    assert choice.choose_fastest({}) == "plain"
    assert choice.choose_fastest({"a": measured(1.01, 1.0), "b": measured(2.0, 1.0)}) == "plain"
    assert choice.choose_fastest({"a": measured(0.95, 1.0)}) == "plain", "a difference that may be noise"
    assert choice.choose_fastest({"a": measured(0.8, 1.0), "b": measured(0.5, 1.0)}) == "b"


def test_threads_that_share_memory_are_no_wire_to_save_on():
    """The real measurement, where a sum takes less time than to encode."""
    codec = codecs.best(codecs.error_feedback(codecs.one_bit()), codecs.top_k(0.01))
    states = distributed.run(lambda: codec.init(np.ones((100, 100), "f")), 2)
    assert states == [{"plain": ()}] * 2
    assert codec.init(np.ones((1000, 1000), "f")) == {"plain": ()}, "alone"


def test_a_choice_that_was_saved_is_kept(tmp_path, monkeypatch):
    codec = codecs.best(codecs.bfloat16(), codecs.error_feedback(codecs.int8()))
    monkeypatch.setattr(choice, "choose_fastest", lambda found: next(name for name in found if "int8" in name))
    x = arrays_of_ranks(1, 80, 80)[0]
    (state,) = distributed.run(lambda: codec.init(x), 2)[:1]
    pb.save(tmp_path / "state", state)
    (coded,) = sum_coded(codec, [x], pb.load(tmp_path / "state"))
    assert list(coded.state) == ["1 error_feedback(int8(per='tensor'))"]
    with pytest.raises(errors.ArgumentError, match=r"made for .1 error_feedback"):
        sum_coded(codecs.best(codecs.bfloat16()), [x], state)


# The report


def test_report_says_what_was_measured():
    def on_rank():
        grads = {"w": arrays_of_ranks(2, 60, 50)[distributed.rank()], "b": np.zeros((), "f")}
        return codecs.report(codecs.error_feedback(codecs.one_bit()), grads)

    one, two = distributed.run(on_rank, 2)
    assert str(one) == repr(one) == str(two), "all ranks have the same numbers"
    assert not one, "threads share memory: what it saves is less than what it costs"
    assert "loses" in str(one).splitlines()[0]
    b, w = one.rows
    assert (b.cells()[-1], w.measured.plain_bytes, w.measured.sent_bytes) == ("sent plainly", 12000, 379)
    assert 0.55 < w.residual < 0.65, "of normal numbers, sqrt(1 - 2 / pi)"
    assert w.measured.break_even < w.measured.bandwidth
    printed = io.StringIO()
    Console(width=200, file=printed).print(one)
    assert "pays below" in printed.getvalue()


def test_report_of_a_slow_wire(monkeypatch):
    fake_measurements(monkeypatch, {"int8(per='tensor')": 1e-3}, 1e-6)
    found = distributed.run(lambda: codecs.report(codecs.int8(), np.ones((50, 50), "f")), 2)[0]
    assert found
    assert "saves" in str(found)
    row = found.rows[0]
    assert row.measured.bandwidth == pytest.approx(1e4 / (1.5 * 1e4 * 1e-6))
    assert row.measured.break_even == pytest.approx(1.5e-6 * (10000 - 2504) / 1e-3 * row.measured.bandwidth)


# In training


def least_squares(rule, steps, compiled=True):
    """The distance of the parameters from the solution, before and after training on two ranks."""
    rng = np.random.default_rng(0)
    a, solution = rng.normal(size=(2, 40, 8)), rng.normal(size=(8, 6))

    def on_rank():
        mine = a[distributed.rank()]

        def step(w, state):
            g = mine.T @ (mine @ w - mine @ solution) / 80
            updates, state = rule.update(g, state, w)
            return pb.optim.apply_updates(w, updates), state

        w, call = np.zeros((8, 6)), pb.jit(step) if compiled else step
        state = rule.init(w)
        for _ in range(steps):
            w, state = call(w, state)
        return np.linalg.norm(w - solution)

    one, two = distributed.run(on_rank, 2)
    assert one == two
    return one / np.linalg.norm(solution)


@pytest.mark.parametrize("name", KEPT)
def test_gradient_descent_converges_with_error_feedback(name):
    codec = codecs.error_feedback(codecs.threshold(0.05, capacity=0.2)) if name == "threshold" else KEPT[name]
    rule = pb.optim.chain(distributed.aggregate(codec), pb.optim.sgd(0.2))
    assert least_squares(rule, 150) < 0.05


def test_one_bit_adam_converges():
    schedule = pb.optim.schedules.exponential(0.1, decay=0.985)
    assert least_squares(one_bit_adam(schedule, warmup=40), 300) < 0.05


@pytest.mark.parametrize("compiled", [False, True])
def test_one_bit_adam_is_adam_until_it_is_warm(compiled):
    gradients = arrays_of_ranks(2, 6, 5, 3)
    rule, adam = one_bit_adam(0.1, warmup=4), pb.optim.adam(0.1)

    def on_rank():
        w, update = np.zeros((5, 3), "f"), pb.jit(rule.update) if compiled else rule.update
        state, path = rule.init(w), []
        for g in gradients[distributed.rank()]:
            updates, state = update(g, state, w)
            w = pb.optim.apply_updates(w, updates)
            path.append(np.asarray(w))
        return path, state

    (path, state), (other, _) = distributed.run(on_rank, 2)
    np.testing.assert_array_equal(path, other)
    w = np.zeros((5, 3), "f")
    plain = adam.init(w)
    for t, g in enumerate(gradients.sum(0)):
        updates, plain = adam.update(g, plain, w)
        w = pb.optim.apply_updates(w, updates)
        assert np.allclose(w, path[t], atol=1e-5) == (t < 4)
    assert np.any(state[0].slots["codec"]["residual"].tree if isinstance(state[0].slots["codec"], dict) else 0)


def test_one_bit_adam_leaves_parameters_alone_that_had_no_gradient():
    """Their signs have a size too, and the root of their mean of squares is zero."""
    rule = one_bit_adam(0.1, warmup=2)

    def on_rank():
        w = np.zeros(20)
        g = np.where(np.arange(20) < 10, np.random.default_rng(distributed.rank()).normal(size=20), 0.0)
        state = rule.init(w)
        for _ in range(6):
            updates, state = rule.update(g, state, w)
            w = pb.optim.apply_updates(w, updates)
        return w

    w, _ = distributed.run(on_rank, 2)
    assert not np.any(w[10:])
    assert (np.abs(w[:10]) > 0.1).all()
    assert (np.abs(w[:10]) < 2.0).all()


def test_one_bit_adam_weighs_ranks_by_their_samples():
    rule, adam = one_bit_adam(0.1, warmup=3, check_every=0), pb.optim.adam(0.1)
    gradients = arrays_of_ranks(2, 4)

    def on_rank():
        w = np.zeros(4, "f")
        return rule.update(gradients[distributed.rank()], rule.init(w), w, weight=1 + 2 * distributed.rank())[0]

    w = np.zeros(4, "f")
    wanted, _ = adam.update((gradients[0] + 3 * gradients[1]) / 4, adam.init(w), w)
    for found in distributed.run(on_rank, 2):
        np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_one_bit_adam_is_saved_and_pickled(tmp_path):
    rule = pickle.loads(pickle.dumps(one_bit_adam(0.1, warmup=1)))
    w, g = np.zeros(16, "f"), arrays_of_ranks(1, 16)[0]
    state = rule.init(w)
    for _ in range(3):
        _, state = rule.update(g, state, w)
    pb.save(tmp_path / "state", state)
    np.testing.assert_array_equal(rule.update(g, state, w)[0], rule.update(g, pb.load(tmp_path / "state"), w)[0])


@pytest.mark.parametrize("codec", [KEPT["one_bit"], codecs.after(2, KEPT["power_sgd"]), KEPT["top_k"]])
def test_distributed_gradient_takes_codecs(codec):
    """The same sums as `aggregate` makes of the same gradients."""
    xs = arrays_of_ranks(2, 4, 6, 5)
    rule = distributed.aggregate(codec)

    def on_rank():
        w, b = (pb.tensor(np.zeros(s, "f"), requires_grad=True) for s in ((6, 5), (5,)))
        ddp = distributed.DistributedGradient([w, b], codec=codec)
        params = [np.zeros((6, 5), "f"), np.zeros(5, "f")]
        state = rule.init(params)
        for x in xs[distributed.rank()]:
            w.grad = b.grad = None
            (pb.sum(w * x) + pb.sum(b * x[0])).backward()
            wanted, state = rule.update([x, x[0]], state, params)
            for found, sums in zip((w.grad, b.grad), wanted, strict=True):
                np.testing.assert_allclose(found.numpy(), sums, rtol=1e-5, atol=1e-6)
        ddp.remove()
        return w.grad.numpy().tobytes()

    one, two = distributed.run(on_rank, 2)
    assert one == two


# Parts that codecs are made of


def test_more_ranks_than_are_written_out():
    xs = arrays_of_ranks(19, 24)
    for coded in sum_coded(codecs.one_bit(), xs):
        np.testing.assert_allclose(coded.total, sum(one_bit_shares(xs)), rtol=1e-5, atol=1e-5)


def test_arrays_of_several_dtypes_are_gathered_with_derivatives():
    xs, ws = arrays_of_ranks(3, 4, dtype="float64"), np.random.default_rng(1).normal(size=(3, 3, 4))

    def f(x):
        n = np.arange(2, dtype=np.int8)[None]
        rows, places = apply(gathers_op, x[None] ** 2, n, ranks=3, axis=0)
        assert pb.spec_of(places).shape == (3, 2)
        return pb.sum(rows * ws[distributed.rank()])

    def on_rank():
        x = xs[distributed.rank()]
        return [np.asarray(g) for g in (pb.grad(f)(x), pb.jit(pb.grad(f))(x), pb.vmap(pb.grad(f))(x[None])[0])]

    for r, found in enumerate(distributed.run(on_rank, 3)):
        for g in found:
            np.testing.assert_allclose(g, 2 * xs[r] * ws[:, r].sum(0), rtol=1e-12)


def test_places_of_the_largest():
    rng = np.random.default_rng(0)
    n = 40_000
    rare = np.zeros(n)
    rare[7::4001] = 1.0  # between the samples that the guess is made of
    for x in (
        rng.normal(size=n),
        np.ones(n),
        np.zeros(n),
        rare,
        np.sort(rng.normal(size=n)),
        rng.integers(0, 3, n) * 1.0,
    ):
        for count in (1, 9, 400, n // 3, n):
            places = np.asarray(largest_places(x, count))
            assert (np.diff(places) > 0).all()
            assert len(places) == count
            np.testing.assert_array_equal(np.sort(np.abs(x[places])), np.sort(np.abs(x))[n - count :])
    x = rng.normal(size=n)
    x[[3, 77]] = np.nan
    assert {3, 77} <= set(np.asarray(largest_places(x, 40)).tolist())


def test_residuals_are_saved_as_their_sum(tmp_path):
    """Written on two ranks and read on three: what was not sent yet is not lost."""
    rule = distributed.aggregate(codecs.error_feedback(codecs.top_k(0.25)))
    w = np.zeros(8)

    def write():
        own = np.arange(8.0) * (1 + distributed.rank())
        _, state = rule.update(own, rule.init(w), w)
        distributed.save(tmp_path / "state", {"state": state})
        return state.slots["codec"]["residual"].tree

    def read():
        state = distributed.load(tmp_path / "state", {"state": rule.init(w)})["state"]
        return state.slots["codec"]["residual"].tree

    held, found = distributed.run(write, 2), distributed.run(read, 3)
    assert np.any(held[0])
    np.testing.assert_allclose(sum(found), sum(held))
