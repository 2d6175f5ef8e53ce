"""The laws of collectives against times that are known, and the events of a step against cases worked out by hand."""

import json
import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from pages import read_picture

import pullback as pb
from pullback import distributed, errors
from pullback.distributed import recorded_step
from pullback.distributed.collective_law import Law, Measurement
from pullback.distributed.measure import measure, time_collective
from pullback.distributed.predict import CodecCost, play_buckets, predict
from pullback.distributed.recorded_step import GradientTime, Step, record_step
from pullback.distributed.world_model import WorldModel
from pullback.tools.render.svg_plots import draw_curves

FIGURES = Path(__file__).resolve().parent.parent / "docs" / "figures"
MIB = 2**20


def exact_law(a, b, c, d):
    return lambda n, size: a + b * (n - 1) + size * (c * (n - 1) / n + d * math.log2(n))


def model_of(seconds, counts=(2, 4, 8), sizes=(1024, 65536, MIB, 16 * MIB), **options):
    """The model of times that a function gives."""
    times = (Measurement(n, size, seconds(n, size), **options) for n in counts for size in sizes)
    return WorldModel(tuple(times))


def flat_model(per_byte, latency=0.0, **options):
    """A model in which n = 2 costs `latency` and seconds per byte, exactly in binary."""
    law = Law("node", "total", 0.0, latency, (2 * per_byte,), (0.0,), (0,), (2,), MIB)
    model = WorldModel((), **options)
    vars(model)["laws"] = (law, Law("node", "all_gather", 0.0, latency, (2 * per_byte,), (0.0,), (0,), (2,), MIB))
    return model


class TestLaw:
    def test_constants_that_made_the_times_are_found(self):
        model = model_of(exact_law(3e-6, 2e-6, 1e-9, 2e-10))
        (law,) = model.laws
        assert (law.a, law.b) == pytest.approx((3e-6, 2e-6), rel=1e-6)
        assert law.c == pytest.approx([1e-9] * len(law.c), rel=1e-6)
        assert law.d == pytest.approx([2e-10] * len(law.d), rel=1e-6)
        assert law.worst_error < 1e-9
        assert model.seconds(64, 5 * MIB) == pytest.approx(exact_law(3e-6, 2e-6, 1e-9, 2e-10)(64, 5 * MIB))

    def test_ranges_of_sizes_have_their_own_slopes(self):
        def seconds(n, size):
            return 1e-6 * (n - 1) + (n - 1) / n * (min(size, 65536) * 1e-10 + max(size - 65536, 0) * 1e-9)

        (law,) = model_of(seconds, sizes=(1024, 65536, MIB, 16 * MIB)).laws
        assert law.edges == (0, 65536, MIB)
        assert law.c == pytest.approx((1e-10, 1e-9, 1e-9), rel=1e-6)
        assert law.seconds(4, 40000) == pytest.approx(seconds(4, 40000))
        assert law.seconds_per_byte(4) == pytest.approx(0.75e-9)
        assert law.seconds_per_byte(4, 65536) == pytest.approx(0.75e-10)

    def test_times_of_noise_give_no_negative_constants(self):
        rng = np.random.default_rng(0)
        model = model_of(lambda n, size: float(rng.uniform(1e-6, 1e-3)))
        (law,) = model.laws
        assert min(law.a, law.b, *law.c, *law.d) >= 0.0
        assert law.median_error > 0.01

    def test_one_outlier_is_one_residual_and_not_a_law(self):
        seconds = exact_law(3e-6, 2e-6, 1e-9, 2e-10)
        times = model_of(seconds).measurements
        spoiled = WorldModel((*times[:-1], Measurement(8, 16 * MIB, 3 * times[-1].seconds)))
        assert spoiled.seconds(8, 65536) == pytest.approx(seconds(8, 65536), rel=0.02)

    def test_from_one_number_of_ranks_waiting_is_for_ranks_and_bytes_are_shared(self):
        (law,) = model_of(exact_law(0.0, 4e-6, 1e-9, 0.0), counts=(2,)).laws
        assert (law.a, law.b) == pytest.approx((0.0, 4e-6))
        assert set(law.d) == {0.0}
        assert law.latency(5) == pytest.approx(16e-6)
        assert "do not test" in law.accuracy

    def test_one_rank_sends_nothing(self):
        model = model_of(exact_law(3e-6, 2e-6, 1e-9, 0.0), counts=(1, 2, 4))
        assert model.law(2).ranks == (2, 4)
        assert model.seconds(1, MIB) == 0.0 == model.law(2).latency(1)

    def test_sizes_that_were_cut_for_three_ranks_count_as_one(self):
        counts = {2: (1024, 65536, MIB), 3: (1023, 65535, MIB - 1)}
        times = (Measurement(n, s, 1e-6 * n + s * 1e-9, operation="all_gather") for n in counts for s in counts[n])
        assert WorldModel(tuple(times)).law(3, "all_gather").edges == (0, 65536)


class TestWorldModel:
    def test_levels_and_operations_have_laws_of_their_own(self):
        near = model_of(exact_law(0.0, 1e-6, 1e-9, 0.0), counts=(2, 4))
        far = model_of(exact_law(0.0, 9e-6, 9e-9, 0.0), counts=(2, 16), level="network")
        gathered = model_of(exact_law(0.0, 2e-6, 2e-9, 0.0), counts=(2, 4), operation="all_gather")
        model = near.merge(far, gathered)
        assert [(law.level, law.operation) for law in model.laws] == [
            ("network", "total"), ("node", "all_gather"), ("node", "total")
        ]  # fmt: skip
        assert (model.law(4).level, model.law(5).level) == ("node", "network")
        assert model.law(2, level="network").b == pytest.approx(9e-6)
        assert near.law(1000).level == "node"
        assert model.seconds(4, 1024, "all_gather") == pytest.approx(2 * model.seconds(4, 1024))

    def test_of_the_same_measurement_the_fastest_stays(self):
        slow, fast = WorldModel((Measurement(2, 1024, 2e-6),), 8), WorldModel((Measurement(2, 1024, 1e-6),), 4, True)
        merged = slow.merge(fast)
        assert merged == WorldModel((Measurement(2, 1024, 1e-6),), 8, True) == fast.merge(slow)

    def test_files_hold_what_was_measured(self, tmp_path):
        near, far = model_of(exact_law(1e-6, 1e-6, 1e-9, 0.0), counts=(2,)), model_of(exact_law(0.0, 1e-6, 0.0, 1e-9))
        near.save(tmp_path / "a.json")
        far.save(tmp_path / "b.json")
        assert WorldModel.load(tmp_path / "a.json") == near.merge()
        assert WorldModel.load(tmp_path / "a.json", tmp_path / "b.json") == near.merge(far)

    def test_in_a_world_rank_0_writes(self, tmp_path):
        model = model_of(exact_law(1e-6, 1e-6, 1e-9, 0.0))
        distributed.run(lambda: model.save(tmp_path / f"{distributed.rank()}.json"), 3)
        assert [p.name for p in tmp_path.iterdir()] == ["0.json"]

    @pytest.mark.parametrize(
        "text",
        ["", "[]", "{}", '{"format": "pullback world model 1"}', "null", '{"format": 3, "measurements": []}',
         '{"format": "pullback world model 1", "cores": 2, "overlaps": false, "measurements": [{"ranks": 2}]}',
         '{"format": "pullback world model 1", "cores": 2, "overlaps": false, "measurements": 7}',
         '{"format": "pullback world model 1", "cores": -1, "overlaps": false, "measurements": []}',
         json.dumps({"format": "pullback world model 1", "cores": 2, "overlaps": False,
                     "measurements": [{"ranks": 2, "bytes": 8, "seconds": -1.0}]}),
         json.dumps({"format": "pullback world model 1", "cores": 2, "overlaps": False,
                     "measurements": [{"ranks": 0, "bytes": 8, "seconds": 1.0}]})],
    )  # fmt: skip
    def test_files_of_something_else_are_refused(self, tmp_path, text):
        (tmp_path / "world.json").write_text(text)
        with pytest.raises(errors.ArgumentError, match=r"world\.json' is no model"):
            WorldModel.load(tmp_path / "world.json")

    def test_without_measurements_it_says_what_to_do(self):
        with pytest.raises(errors.ArgumentError, match=r"pullback run -n 2"):
            WorldModel().seconds(2, 1024)
        with pytest.raises(errors.ArgumentError, match="all_gather by network was not measured"):
            model_of(exact_law(1e-6, 1e-6, 1e-9, 0.0)).law(2, "all_gather", "network")
        with pytest.raises(errors.ArgumentError, match="one or more files"):
            WorldModel.load()
        assert "nothing was measured" in repr(WorldModel((Measurement(1, 8, 1e-6),)))

    def test_the_text_shows_constants_and_errors(self):
        text = repr(WorldModel(model_of(exact_law(3e-6, 2e-6, 1e-9, 0.0)).measurements, cores=16))
        assert "12 times on machines of 16 cores" in text
        assert "node, total: measured on 2, 4, 8 ranks up to 16.0 MiB; the law is off by 0% there" in text
        assert "a 3 us, b 2 us a rank" in text
        assert "2 GB/s" in text


class TestMeasure:
    def test_the_least_repeat_of_the_slowest_rank_counts(self):
        ticks = {0: [0, 5, 10, 12, 20, 24], 1: [0, 4, 10, 13, 20, 29]}  # starts and ends of three calls

        def run():
            mine = iter([*[0.0] * 4, *ticks[distributed.rank()]])  # the first two warm up
            return time_collective("total", 1024, 3, lambda: float(next(mine)))

        slowest = [5.0, 3.0, 9.0]
        assert distributed.run(run, 2) == [Measurement(2, 1024, min(slowest), 5.0, "total", "threads")] * 2

    def test_a_world_is_measured_alike_on_all_ranks(self):
        models = distributed.run(lambda: measure([1024, 4096], repeats=5), 3)
        assert models[0] == models[1] == models[2]
        found = {(m.operation, m.ranks, m.bytes, m.level) for m in models[0].measurements}
        assert found == {
            ("total", 3, 1024, "threads"), ("total", 3, 4096, "threads"),
            ("all_gather", 3, 1020, "threads"), ("all_gather", 3, 4092, "threads"),
        }  # fmt: skip

    def test_one_rank_has_nothing_to_measure(self):
        assert measure().measurements == ()

    def test_what_is_no_size_or_operation_is_refused(self):
        for arguments, options in (([[0]], {}), ([[1024]], {"operations": ["sum"]}), ([], {"repeats": 0})):
            with pytest.raises(errors.ArgumentError, match="measure"):
                measure(*arguments, **options)


def step_of(*gradients, forward=1.0, backward=8.0, update=0.5, check=0.0):
    return Step(forward, backward, update, tuple(GradientTime(*g) for g in gradients), check)


class TestEvents:
    """One second is what 2 ranks take for a MiB; all numbers are exact in binary."""

    def test_one_bucket_after_the_pass(self):
        found = predict(step_of(("w", 2 * MIB, 8.0)), 2, model=flat_model(2.0**-20), overlap=False, meetings=1)
        assert (found.seconds, found.waiting, found.communication) == (1.0 + 8.0 + 2.0 + 0.5, 2.0, 2.0)
        assert found.efficiency == 9.5 / 11.5
        assert found.speedup == 2 * 9.5 / 11.5
        assert found.buckets == ((("w",), 2 * MIB, 8.0, 8.0, 10.0),)

    def test_without_overlap_all_gradients_are_one_bucket(self):
        step = step_of(("b", MIB, 2.0), ("a", 3 * MIB, 6.0))
        found = predict(step, 2, model=flat_model(2.0**-20), overlap=False, meetings=1, bucket_mb=1.0)
        assert found.buckets == ((("b", "a"), 4 * MIB, 8.0, 8.0, 12.0),)
        assert found.seconds == 13.5

    def test_two_buckets_with_overlap(self):
        """The first is hidden, of the second half a second: it starts at 7 and takes 1.5."""
        step = step_of(("b", MIB, 2.0), ("a", 3 * MIB // 2, 7.0))
        found = predict(step, 2, model=flat_model(2.0**-20), overlap=True, meetings=1, bucket_mb=1.0)
        assert [b[2:] for b in found.buckets] == [(2.0, 2.0, 3.0), (7.0, 7.0, 8.5)]
        assert (found.seconds, found.waiting, found.communication) == (1.0 + 8.5 + 0.5, 0.5, 2.5)

    def test_bound_by_communication(self):
        """Sums wait for each other: 1 to 5, 5 to 9, 9 to 13."""
        step = step_of(("c", MIB, 1.0), ("b", MIB, 2.0), ("a", MIB, 3.0), backward=4.0)
        found = predict(step, 2, model=flat_model(2.0**-18), overlap=True, meetings=1, bucket_mb=1.0)
        assert [(b.start, b.end) for b in found.buckets] == [(1.0, 5.0), (5.0, 9.0), (9.0, 13.0)]
        assert (found.seconds, found.waiting) == (14.5, 9.0)

    def test_bound_by_computation(self):
        step = step_of(("c", MIB, 1.0), ("b", MIB, 4.0), ("a", MIB, 7.0))
        found = predict(step, 2, model=flat_model(2.0**-21), overlap=True, meetings=1, bucket_mb=1.0)
        assert (found.seconds, found.waiting, found.efficiency) == (9.5, 0.0, 1.0)
        assert found.communication == 1.5

    def test_meetings_and_latency_count_for_each_bucket(self):
        step = step_of(("b", MIB, 8.0), ("a", MIB, 8.0))
        model = flat_model(2.0**-20, latency=0.25)
        assert predict(step, 2, model=model, overlap=True, bucket_mb=1.0, meetings=1).seconds == 9.5 + 2 * 1.25
        assert predict(step, 2, model=model, overlap=True, bucket_mb=1.0).seconds == 9.5 + 2 * 1.5
        assert predict(step, 2, model=model, overlap=False).seconds == 9.5 + 2.5

    def test_checks_come_after_the_sum_of_their_bucket_and_hide_the_next(self):
        """Sums end at 9 and 10. The pass ends at 8, the check of the first at 9.5, so half a second is waited again."""
        step = step_of(("b", MIB, 8.0), ("a", MIB, 8.0), check=1.0)
        found = predict(step, 2, model=flat_model(2.0**-20), overlap=True, bucket_mb=1.0, meetings=1)
        assert (found.waiting, found.seconds) == (1.5, 1.0 + 10.5 + 0.5)

    def test_buckets_are_those_of_the_gradient(self):
        """In the order of completion; the first is full at one MiB, the others at `bucket_mb`."""
        step = step_of(("d", MIB, 4.0), ("c", MIB, 1.0), ("b", MIB, 2.0), ("a", MIB, 3.0))
        found = predict(step, 2, model=flat_model(2.0**-30), overlap=True, bucket_mb=2.0)
        assert [b.names for b in found.buckets] == [("c",), ("b", "a"), ("d",)]
        assert [b.ready for b in found.buckets] == [1.0, 3.0, 4.0]

    def test_a_codec_sends_less_and_takes_time(self):
        step = step_of(("w", 2 * MIB, 8.0))
        codec = CodecCost(ratio=4.0, encode=2.0**-22, decode=2.0**-23)
        found = predict(step, 2, model=flat_model(2.0**-20), codec=codec, overlap=False, meetings=1)
        assert found.communication == 0.5 + 0.25 + 0.5  # encode, decode, half a MiB
        two = CodecCost(4.0, meetings=2)
        found = predict(step, 2, model=flat_model(2.0**-20, 0.125), codec=two, overlap=False, meetings=1)
        assert found.communication == 0.5 + 2 * 0.125

    def test_a_codec_that_gathers_pays_for_all_ranks(self):
        step = step_of(("w", 2 * MIB, 8.0))
        codec = CodecCost(ratio=4.0, decode=2.0**-22, gathers=True)
        found = predict(step, 2, model=flat_model(2.0**-20), codec=codec, overlap=False, meetings=1)
        assert found.communication == 2 * 0.5 + 1.0  # two payloads decoded, a MiB gathered

    def test_overlap_is_that_of_the_ranks_unless_a_codec_is_used(self):
        step = step_of(("b", MIB, 1.0), ("a", MIB, 2.0))
        model = flat_model(2.0**-20, overlaps=True)
        assert len(predict(step, 2, model=model, bucket_mb=1.0).buckets) == 2
        assert len(predict(step, 2, model=model, bucket_mb=1.0, codec=CodecCost(2.0)).buckets) == 1
        assert len(predict(step, 2, model=flat_model(2.0**-20), bucket_mb=1.0).buckets) == 1

    def test_one_rank_is_the_step_itself(self):
        found = predict(step_of(("w", MIB, 8.0), check=0.25), 1, model=WorldModel())
        assert (found.seconds, found.efficiency, found.waiting, found.extrapolated) == (9.5, 1.0, 0.0, False)

    def test_no_sum_starts_before_its_bucket_or_another_ends(self):
        rng = np.random.default_rng(0)
        for _ in range(50):
            ready = np.sort(rng.uniform(0, 10, 6)).tolist()
            seconds, checks = rng.uniform(0, 4, 6).tolist(), rng.uniform(0, 1, 6).tolist()
            spans, end, waiting = play_buckets(ready, seconds, checks, 10.0)
            assert all(start >= at for (start, _), at in zip(spans, ready, strict=True))
            assert all(after[0] >= before[1] for before, after in pairwise(spans))
            assert end == pytest.approx(10.0 + waiting + sum(checks))
            assert end >= max(spans[-1][1], 10.0 + sum(checks)) - 1e-12


class TestPrintout:
    MODEL = WorldModel(model_of(exact_law(1e-5, 1e-5, 1e-9, 0.0), counts=(2, 4, 8)).measurements, cores=16)
    STEP = Step(0.004, 0.016, gradients=(GradientTime("w", 4_000_000, 0.016),))

    def test_ranks_beyond_those_measured_are_marked(self):
        found = predict(self.STEP, [1, 2, 8, 16, 1000], model=self.MODEL)
        assert [p.extrapolated for p in found] == [False, False, False, True, True]
        lines = repr(found).split("\n")
        assert [line.endswith("extrapolated") for line in lines[1:6]] == [False, False, False, True, True]
        assert lines[6].startswith("node: measured on 2, 4, 8 ranks; the law is off by 0%")
        assert lines[7] == "more ranks than the 16 cores that were measured: taking turns is not in the model"
        assert len(found) == 5
        assert "(extrapolated)" in repr(found[3])
        assert "(extrapolated)" not in repr(found[2])

    def test_a_prediction_shows_its_buckets(self):
        step = Step(0.0, 0.01, gradients=(GradientTime("b", MIB, 0.001), GradientTime("a", MIB, 0.01)))
        lines = repr(predict(step, 4, model=self.MODEL, overlap=True, bucket_mb=1.0)).split("\n")
        assert lines[0].startswith("<10.9 ms a step on 4 ranks: efficiency 0.92")
        assert lines[1].split() == ["bucket", "gradients", "bytes", "ready", "starts", "ends"]
        assert [line.split()[0] for line in lines[2:4]] == ["0", "1"]

    def test_buckets_far_larger_than_what_was_measured_are_told(self):
        step = Step(0.0, 1.0, gradients=(GradientTime("w", 100 * MIB, 1.0),))
        assert "buckets of 100.0 MiB: measured up to 16.0 MiB" in repr(predict(step, 2, model=self.MODEL))

    def test_the_picture_is_dashed_where_it_is_extrapolated(self):
        picture = predict(self.STEP, [2, 4, 8, 16, 1000], model=self.MODEL).svg()
        read_picture(picture)
        assert picture.count('stroke-dasharray="6 4"') == 1
        assert ">extrapolated<" in picture

    def test_what_cannot_be_predicted_is_refused(self):
        for options in ({"ranks": 0}, {"ranks": [2, -1]}, {"bucket_mb": 0.0}, {"meetings": 0}, {"level": "network"}):
            with pytest.raises(errors.ArgumentError):
                predict(self.STEP, **{"ranks": 2, "model": self.MODEL, **options})
        with pytest.raises(errors.ArgumentError, match="no gradients"):
            predict(Step(0.1, 0.1), 2, model=self.MODEL)
        with pytest.raises(errors.ArgumentError, match="after 2 s"):
            Step(0.1, 1.0, gradients=(GradientTime("w", 8, 2.0),))
        with pytest.raises(errors.ArgumentError, match="ratio"):
            CodecCost(ratio=0.0)


class TestRecordedStep:
    def test_times_are_those_of_the_clock(self, monkeypatch):
        now = iter(np.arange(0.0, 100.0, 0.25).tolist())
        monkeypatch.setattr(recorded_step.time, "perf_counter", lambda: next(now))
        w, v = (pb.tensor(np.ones(4), requires_grad=True) for _ in range(2))
        step = record_step({"w": w, "v": v}, lambda: pb.sum(pb.tanh(w) * v), lambda: None, repeats=1)
        # each look at the clock is a quarter of a second later: start, between, a hook for each, end, updated, check
        assert (step.forward, step.backward, step.update, step.check) == (0.25, 0.75, 0.25, 0.25)
        assert [g.ready for g in step.gradients] == [0.25, 0.5]
        assert {g.name for g in step.gradients} == {"params['w']", "params['v']"}
        assert step.bytes == 64
        assert step.compute == 1.25

    def test_gradients_are_as_before_and_hooks_are_gone(self):
        w = pb.tensor(np.ones(3), requires_grad=True)
        held = w.grad = pb.tensor(np.full(3, 7.0))
        record_step([w], lambda: pb.sum(w * w), repeats=2)
        assert w.grad is held
        pb.sum(w * w).backward()
        assert w.grad.tolist() == [9.0] * 3

    def test_a_step_that_fails_leaves_nothing_behind(self):
        w = pb.tensor(np.ones(3), requires_grad=True)

        def fail():
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            record_step([w], fail)
        assert w.grad is None

    def test_the_fastest_step_is_kept_and_the_first_does_not_count(self, monkeypatch):
        now = [0.0]
        monkeypatch.setattr(recorded_step.time, "perf_counter", lambda: now[0])
        seconds = iter([0.5, 4.0, 2.0, 3.0])
        w = pb.tensor(np.ones(3), requires_grad=True)

        def loss():
            now[0] += next(seconds)
            return pb.sum(w * w)

        assert record_step([w], loss, repeats=3).forward == 2.0

    def test_it_can_be_recorded_among_ranks_that_do_not_sum(self):
        def run():
            w = pb.tensor(np.ones(3) * (1 + distributed.rank()), requires_grad=True)
            ddp = distributed.DistributedGradient([w], check_every=0)
            with ddp.no_sync():
                step = record_step([w], lambda: pb.sum(w * w), repeats=1)
            pb.sum(w * w).backward()
            return len(step.gradients), w.grad.tolist()

        assert distributed.run(run, 2) == [(1, [6.0] * 3)] * 2

    def test_without_parameters_there_is_nothing_to_record(self):
        with pytest.raises(errors.ArgumentError, match="none of the parameters"):
            record_step([np.ones(3)], lambda: None)
        with pytest.raises(errors.ArgumentError, match="repeats"):
            record_step([pb.tensor(1.0, requires_grad=True)], lambda: None, repeats=0)


@pytest.fixture
def scaling(monkeypatch):
    """The tables that were measured on a machine of 16 cores."""
    monkeypatch.syspath_prepend(str(FIGURES))
    import scaling

    return scaling


def errors_at_16(scaling, table, sizes, level):
    model = scaling.fit(table, sizes, [2, 4, 8], level)
    return [abs(model.seconds(16, size * 1024) / us / 1e-6 - 1) for size, us in zip(sizes, table[16], strict=True)]


class TestHeldOut:
    """Fitted to 2, 4 and 8 ranks, what does the model say of 16? The yardstick is a median error of 10 %."""

    @pytest.mark.xfail(
        strict=True, reason="15 %: from 2, 4 and 8 ranks waiting is overrated, crowded memory underrated"
    )
    def test_sums_in_shared_memory_meet_the_yardstick(self, scaling):
        assert np.median(errors_at_16(scaling, scaling.SHARED, scaling.SHARED_SIZES, "node")) <= 0.10

    @pytest.mark.xfail(strict=True, reason="11 %")
    def test_sums_by_messages_meet_the_yardstick(self, scaling):
        assert np.median(errors_at_16(scaling, scaling.MESSAGES, scaling.MESSAGE_SIZES, "network")) <= 0.10

    def test_sums_are_as_far_off_as_the_docs_say(self, scaling):
        shared = errors_at_16(scaling, scaling.SHARED, scaling.SHARED_SIZES, "node")
        messages = errors_at_16(scaling, scaling.MESSAGES, scaling.MESSAGE_SIZES, "network")
        assert [round(100 * float(np.median(e))) for e in (shared, messages)] == [15, 11]
        assert [round(100 * max(e)) for e in (shared, messages)] == [22, 22]

    def test_step_times_meet_the_yardstick(self, scaling):
        model = scaling.fit(scaling.SHARED, scaling.SHARED_SIZES, [2, 4, 8], "node")
        off = []
        for compute, size, measured in scaling.STEPS.values():
            found = predict(scaling.step_of(compute, size), 16, model=model, meetings=1)
            off.append(found.seconds / (compute / measured[16]) - 1)
        assert np.median(np.abs(off)) <= 0.10
        assert [round(100 * e) for e in off] == [-22, 2, -9]

    def test_the_figures_of_the_docs_show_these_tables(self, scaling):
        for name, draw in scaling.FIGURES.items():
            read_picture(draw())
            assert (FIGURES / f"{name}.svg").read_text() == draw(), "run python docs/figures/scaling.py"


class TestCurves:
    def test_without_a_border_nothing_is_dashed(self):
        assert "dash" not in draw_curves({"a": ([1, 2], [1, 2])})

    def test_a_curve_goes_on_dashed_from_its_last_solid_point(self):
        root = read_picture(draw_curves({"a": ([1, 10, 100], [1.0, 2.0, 3.0])}, log_x=True, dashed_from=10))
        solid, dashed = (e.attrib["d"] for e in root.iter() if e.tag.endswith("path"))
        assert solid == "M64.0 256.0L344.0 145.0"
        assert dashed == "M344.0 145.0L624.0 34.0"

    def test_points_have_the_color_of_their_curve(self):
        curves = {"a": ([1, 2], [1, 2]), "b": ([1, 2], [2, 3]), "c": ([1, 2], [2, 2])}
        picture = draw_curves(curves, points={"b": ([1, 1.5], [2.0, math.nan])})
        root = read_picture(picture)
        dots = [e.attrib["fill"] for e in root.iter() if e.tag.endswith("circle")]
        lines = [e.attrib["stroke"] for e in root.iter() if e.tag.endswith("path")]
        assert dots == [lines[1]]
