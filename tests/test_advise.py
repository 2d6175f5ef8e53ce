"""`pb.tools.advise`: each kind of advice where it is due, nowhere else, at its line; times are given, not judged."""

import json

import numpy as np
import pytest

import pullback as pb
from pullback.tools.advise.report import Advice, AdviceReport
from pullback.tools.advise.timing import compare_times

X = np.ones((30, 20), np.float32)


def advise(f, *args, **kwargs):
    return pb.tools.advise(f, *args, seconds=0.005, **kwargs)


def topics(report):
    return {item.topic for item in (*report, *report.tried)}


def the(report, topic):
    (found,) = report.about(topic)
    return found


def has_times(item):
    return item.before > 0 and item.after > 0 and item.gain == item.before / item.after


def test_a_good_function_gets_no_advice():
    report = advise(pb.jit(lambda x: pb.sum(pb.tanh(x * 2.0) ** 2)), X)
    assert topics(report) <= {"overhead"}
    assert report.seconds > 0
    assert "a call takes" in str(report)


def test_compiling_is_tried():
    def f(x):
        return pb.sum(pb.tanh(x) ** 2)

    item = the(advise(f, X), "compile")
    assert has_times(item)
    assert item.change == "pb.jit(f)"
    assert "test_advise.py" in item.where

    def untraceable(x):
        return x * float(pb.sum(x))

    item = the(advise(untraceable, X), "compile")
    assert item.gain is None
    assert "cannot be traced" in item.what
    assert "float(pb.sum(x))" in item.where


@pytest.mark.parametrize("compiled", [False, True])
def test_float64_constants_are_found_at_their_line(compiled):
    table = np.full(20, 0.5)

    def of_number(x):
        y = x * np.float64(0.5)
        return pb.sum(pb.tanh(y))

    def of_captured(x):
        y = x * table
        return pb.sum(pb.tanh(y))

    for f, line in ((of_number, "y = x * np.float64(0.5)"), (of_captured, "y = x * table")):
        item = the(advise(pb.jit(f) if compiled else f, X), "float64")
        assert has_times(item)
        assert line in item.where
    for f in (
        lambda x: pb.sum(x * 0.5),
        lambda x: pb.sum(x * np.float32(0.5)),
        lambda x: pb.sum(pb.astype(x, "float64")),
    ):
        assert "float64" not in topics(advise(pb.jit(f), X))
    assert "float64" not in topics(advise(pb.jit(of_number), X.astype(np.float64)))


def test_float64_arguments_among_float32_ones():
    f = pb.jit(lambda p, x: pb.sum(p["w"] * x))
    report = advise(f, {"w": np.ones(20)}, X)
    item = the(report, "float64")
    assert has_times(item)
    assert "[0]['w']" in item.what
    # the trial left no trace in the function itself
    assert "recompilation" not in topics(report)
    assert f.traces == 1


def test_arguments_that_are_not_contiguous():
    f = pb.jit(lambda x: pb.sum(x * 2))
    item = the(advise(f, np.ones((50, 30)).T), "layout")
    assert has_times(item)
    assert "[0]" in item.what
    assert "layout" not in topics(advise(f, np.ones((30, 50))))


def test_copies_inside_of_a_program():
    def f(x):
        return pb.moveaxis(x, 0, 1)

    x = np.ones((512, 512))
    item = the(advise(pb.jit(f), x), "layout")
    assert item.gain is None
    assert "MiB moved" in item.what
    assert "moveaxis" in item.where


def test_checkpoints_are_tried_without():
    def f(x):
        y = pb.checkpoint(lambda x: pb.tanh(pb.tanh(pb.sin(x))))(x)
        return pb.sum(y * y)

    item = the(advise(pb.jit(pb.grad(f)), X), "checkpoint")
    assert has_times(item)
    assert "3 ops again" in item.what
    assert "pb.checkpoint" in item.where
    tried, seen = sorted(advise(pb.grad(f), X).about("checkpoint"), key=lambda item: item.gain is None)
    assert has_times(tried)
    assert "3 ops again" in seen.what
    assert "checkpoint" not in topics(advise(pb.jit(pb.grad(lambda x: pb.sum(pb.tanh(x)))), X))


def test_memory_budgets_are_tried_without():
    f = pb.jit(pb.grad(lambda x: pb.sum(pb.tanh(pb.tanh(x)))), memory_budget="1 MiB")
    item = the(advise(f, X), "budget")
    assert has_times(item)
    assert "1.0 MiB" in item.what


def test_recompilations_and_donations():
    f = pb.jit(lambda x: x * 2)
    for n in range(3, 7):
        f(np.ones(n))
    item = the(advise(f, np.ones(3)), "recompilation")
    assert "traced 4 times" in item.what
    assert "float64[" in item.what
    assert "Pad it" in item.change
    x, y = np.ones(3), np.ones(4)
    item = the(advise(pb.jit(lambda x, y: pb.sum(x) * y, donate_argnums=(0, 1)), x, y), "donation")
    assert "float64[3]" in item.what
    assert (x == 1).all()
    assert (y == 1).all()


def test_loops_of_python():
    def f(x):
        for _ in range(100):
            x = pb.sin(x)
        return x

    item = the(advise(pb.jit(f), X), "trace")
    assert "100 times" in item.what
    assert "x = pb.sin(x)" in item.where
    assert "trace" not in topics(advise(pb.jit(lambda x: pb.fori_loop(0, 100, lambda i, x: pb.sin(x), x)), X))


def test_what_falls_back_to_numpy():
    def f(x):
        y = pb.special.zeta(x + 2.0, 1.5)
        return pb.sum(y)

    item = the(advise(pb.jit(f), np.ones(50)), "fallback")
    assert "zeta has no native form" in item.what
    assert "a call" in item.what
    assert "y = pb.special.zeta(x + 2.0, 1.5)" in item.where
    found = advise(lambda x: pb.nn.gelu(x), np.ones(3, np.complex64)).about("fallback")
    assert any("native code has no complex64 arrays" in item.what for item in found)


def test_modules_vmap_and_keywords():
    net = pb.nn.Linear(20, 5, key=pb.random.key(0))
    assert "compile" in topics(advise(lambda net, x, scale: pb.sum(net(x)) * scale, net, X, scale=2.0))
    assert "compile" in topics(advise(pb.vmap(lambda x: pb.sum(x * x)), X))
    x = pb.tensor(X, requires_grad=True)
    assert has_times(the(advise(lambda x: pb.sum(pb.sin(x)), x), "compile"))
    assert topics(advise(pb.jit(lambda n, x: x * n, static_argnums=0), 3, X)) <= {"overhead"}


def test_what_may_run_once_is_refused_before_it_runs():
    calls = []

    @pb.custom_op(pure=False)
    def count(x):
        calls.append(1)
        return x * 1.0

    @count.def_spec
    def _(x):
        return x

    for f in (lambda x: count(x), pb.jit(lambda x: count(x))):
        with pytest.raises(pb.errors.ArgumentError, match="may run only once"):
            advise(f, np.ones(2))
    assert not calls
    with pytest.raises(pb.errors.ArgumentError, match="seconds"):
        pb.tools.advise(lambda x: x, X, seconds=0.0)


def test_reports_are_sorted_and_are_data():
    items = [Advice("a", "what", "change", "where", 3.0, 1.0), Advice("b", "seen", "", "")]
    report = AdviceReport(0.5, (items[0],), (items[1],), (Advice("c", "no gain", "", "", 1.0, 1.0),))
    assert [item.topic for item in report] == ["a", "b"]
    assert "3.00x" in str(report)
    assert "not tried" in str(report)
    assert json.loads(report.json())["advice"][0]["before"] == 3.0
    assert "<table" in report._repr_html_()
    pytest.importorskip("rich")
    assert report.__rich__().row_count == 3


def test_times_belong_to_their_calls():
    made = []
    before, after = compare_times(lambda: made.append("before"), lambda: made.append("after"), 0.0)
    assert before > 0
    assert after > 0
    assert made[:4] == ["before", "after", "before", "after"]
