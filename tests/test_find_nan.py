"""`pb.tools.find_nan`: planted NaNs and infinities are found at their op, line, round, sample, module and argument."""

import inspect
import threading

import numpy as np
import pytest

import pullback as pb
from pullback.compile import pipeline
from pullback.compile.loop_ir import Kernel

find_nan = pb.tools.find_nan


def here(offset):
    """The line so many lines below (above) the caller's, as reports write it."""
    frame = inspect.currentframe().f_back
    return f"test_find_nan.py:{frame.f_lineno + offset}:"


def both_ways(f):
    return [f, pb.jit(f)]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(
    ("f", "x", "op", "kind", "index"),
    [
        (lambda x: pb.sum(pb.log(x) * 2), [1.0, -1.0, 2.0], "log", "nan", (1,)),
        (lambda x: pb.sum(x / (x - 1.0)), [3.0, 1.0], "divide", "inf", (1,)),
        (lambda x: (x - x) / (x - 1.0), [2.0, 1.0], "divide", "nan", (1,)),
        (lambda x: pb.exp(x) - pb.exp(2 * x), [1.0, 1000.0], "exp", "inf", (1,)),
        (lambda x: pb.astype(x, pb.float16) * 0, [1.0, 1e6], "astype", "inf", (1,)),
        (lambda x: pb.linalg.norm(pb.arccos(x)), [0.5, 2.0], "acos", "nan", (1,)),
    ],
)
def test_the_first_op_is_named(f, x, op, kind, index, compiled):
    report = find_nan(pb.jit(f) if compiled else f, np.array(x))
    first = report.first
    assert (first.op, first.kind, first.index) == (op, kind, index)
    assert "test_find_nan.py" in first.line
    assert bool(first.compiled) == compiled
    assert not report
    assert "result" in next(iter(report.results))


def test_a_correct_program_is_not_accused():
    mask = np.where(np.tri(3) > 0, 0.0, -np.inf)
    for f in both_ways(lambda s, m: pb.nn.softmax(s + m)):
        report = find_nan(f, np.ones((3, 3)), mask)
        assert report
        assert report.first is None
        assert report.arguments == {"[1]": "inf"}
        assert not report.faults
    assert find_nan(lambda *, x: pb.sum(x), x=mask).arguments == {"['x']": "inf"}
    report = find_nan(lambda s, m: s + m, np.ones((3, 3)), mask)
    assert not report
    assert report.first is None
    (kind, source) = report.results["result"]
    assert (kind, source.kind, str(source)) == ("inf", "argument", "argument [1]")


def test_a_nan_made_of_an_arguments_infinities_is():
    for f in both_ways(lambda s, m: pb.nn.softmax(s + m["rows"][0])):
        report = find_nan(f, np.ones((2, 2)), {"rows": [np.full((2, 2), -np.inf)]})
        assert (report.first.op, report.first.kind) == ("subtract", "nan")
        assert [str(cause) for cause in report.first.causes] == ["argument [1]['rows'][0]"]


def test_what_reaches_no_result_is_no_finding():
    f = pb.grad(lambda x: pb.sum(pb.where(x > 0, pb.log(x), 0.0)))
    report = find_nan(f, np.array([1.0, 0.0]))
    assert report
    assert report.first is None
    assert {fault.op for fault in report.faults} == {"log", "divide"}
    assert "reached none" in str(report)

    # the harmless one comes first, and is not blamed for the other
    def mixed(x):
        safe = pb.where(x > 0, pb.log(x), 0.0)
        return safe + pb.sqrt(x - 5.0)

    report = find_nan(mixed, np.array([6.0, 0.0]))
    assert report.first.op == "sqrt"
    assert [fault.op for fault in report.faults] == ["log", "sqrt"]


@pytest.mark.parametrize("wrap", [pb.grad, lambda f: pb.jit(pb.grad(f)), lambda f: pb.grad(pb.jit(f))])
def test_the_backward_pass_names_the_forward_line(wrap):
    def f(x):
        y = pb.sqrt(x)
        return pb.sum(y)

    line = here(-3)
    report = find_nan(wrap(f), np.array([1.0, 0.0]))
    assert (report.first.kind, report.first.index, report.first.rules) == ("inf", (1,), ("the pull of sqrt",))
    assert line in report.first.line


def test_the_backward_pass_on_request_and_on_a_tape():
    def f(w, x):
        return pb.sum(pb.sqrt(w) * x)

    assert find_nan(f, np.zeros(2), np.ones(2))
    report = find_nan(f, np.zeros(2), np.ones(2), backward=True)
    assert list(report.results) == ["gradient [0]"]
    assert report.first.rules == ("the pull of sqrt",)

    def step(w):
        f(w, np.ones(2)).backward()
        return w.grad

    report = find_nan(step, pb.tensor(np.zeros(2), requires_grad=True))
    assert report.first.rules == ("the pull of sqrt",)
    with pytest.raises(pb.errors.ArgumentError, match="floating"):
        find_nan(lambda i: i, np.arange(3), backward=True)


def step_of_scan(carry, x):
    carry = carry - 1.0
    return carry, pb.log(carry)


def test_the_round_of_a_loop():
    line = here(-4)
    f = lambda c: pb.scan(step_of_scan, c, np.arange(10.0))[1]  # noqa: E731
    for g, name in ((f, "scan"), (pb.jit(f), "iterate")):
        first = find_nan(g, np.array(7.5)).first
        assert (first.op, first.places) == ("log", (f"round 7 of {name}",))
        assert line in first.line
    backward = pb.grad(lambda c: pb.sum(pb.scan(lambda c, x: (c - 1, pb.sqrt(c)), c, np.arange(8.0))[1]))
    first = find_nan(backward, np.array(7.0)).first
    assert (first.rules, first.places) == (("the pull of sqrt",), ("round 7 of scan",))
    first = find_nan(pb.jit(backward), np.array(7.0)).first
    assert first.rules == ("the pull of sqrt",)
    assert first.places == ("round 7 of iterate",)


def test_loops_with_conditions_and_branches():
    f = lambda x: pb.while_loop(lambda c: c[1] < 9, lambda c: (pb.sqrt(c[0] - 1.0), c[1] + 1), (x, 0))[0]  # noqa: E731
    g = lambda x: pb.fori_loop(0, 6, lambda i, c: pb.log(c), x)  # noqa: E731
    # 3 -> 1.41 -> 0.64 -> nan, and 20 -> 3.0 -> 1.1 -> 0.09 -> -2.4 -> nan
    assert find_nan(f, np.array(3.0)).first.places == ("round 2 of while_loop",)
    assert find_nan(pb.jit(f), np.array(3.0)).first.places == ("round 2 of repeat",)
    assert find_nan(g, np.array(20.0)).first.places == ("round 4 of fori_loop",)
    assert "round 4 of" in find_nan(pb.jit(g), np.array(20.0)).first.places[0]
    h = lambda x: pb.cond(pb.sum(x) > 0, lambda x: x * 2, lambda x: pb.log(x), x)  # noqa: E731
    assert find_nan(h, np.array([-1.0])).first.op == "log"
    first = find_nan(pb.jit(h), np.array([-1.0])).first
    assert (first.op, first.places) == ("log", ("way 0 of branch",))
    assert find_nan(pb.jit(h), np.array([1.0]))


def test_the_iteration_of_a_solver():
    def solve(a, x0):
        return pb.fixed_point(
            lambda x, a: pb.log(x) + a,
            x0,
            a,
            solver=pb.implicit.Picard(),
        )

    line = here(-6)
    a, x = np.array([0.3]), np.array([2.0])
    # the same by hand: a state has the residual at its x, so that step k computes the logarithm of the next one
    steps = -1
    while x[0] > 0:
        x, steps = np.log(x) + a, steps + 1
    assert steps == 2  # the third
    for f, name in ((solve, "the solver"), (pb.jit(solve), "repeat")):
        report = find_nan(f, a, np.array([2.0]))
        assert isinstance(report.error, pb.errors.ConvergenceError)
        assert not report
        assert (report.first.op, report.first.kind) == ("log", "nan")
        assert line in report.first.line
        assert report.first.places == (f"round {steps} of {name}",)


def test_under_vmap_the_sample_is_named():
    x = np.ones((4, 3, 2))
    x[2, 1, 0] = -1.0
    f = lambda x: pb.sum(pb.log(x))  # noqa: E731
    for g in both_ways(pb.vmap(f)):
        assert find_nan(g, x).first.sample == (2,)
    for g in both_ways(pb.vmap(f, in_axes=1)):
        assert find_nan(g, x).first.sample == (1,)
    for g in both_ways(pb.vmap(pb.vmap(f, in_axes=1))):
        assert find_nan(g, x).first.sample == (2, 0)
    zero = np.ones(3)
    zero[1] = 0.0
    for g in both_ways(pb.vmap(pb.grad(pb.sqrt))):
        first = find_nan(g, zero).first
        assert (first.sample, first.rules) == ((1,), ("the pull of sqrt",))


def test_second_order_and_forward_mode():
    f = lambda x: x**1.5  # noqa: E731
    for g in both_ways(pb.grad(pb.grad(f))):
        first = find_nan(g, np.array(0.0)).first
        assert first.kind == "inf"
        assert first.rules == ("the pull of power", "the pull of power")
    for g in both_ways(lambda x: pb.jvp(pb.sqrt, (x,), (x + 1,))[1]):
        assert find_nan(g, np.array(0.0)).first.rules == ("the push of sqrt",)


class Net(pb.nn.Module):
    def __init__(self):
        key = pb.random.key(0)
        self.first = pb.nn.Linear(3, 4, key=key)
        self.layers = [pb.nn.Linear(4, 4, key=key), pb.nn.Linear(4, 2, key=key)]

    def forward(self, x):
        x = pb.tanh(self.first(x))
        for layer in self.layers:
            x = layer(x)
        return x


def test_the_layer_of_a_module_and_the_path_of_a_parameter():
    net, x = Net(), np.full((2, 3), 0.5, np.float32)
    call = lambda net, x: net(x)  # noqa: E731
    with pb.no_grad():
        net.layers[0].weight.fill_(1e38)
        net.layers[1].weight.fill_(1e38)
    for f in (call, pb.jit(call)):
        first = find_nan(f, net, x).first
        assert first.places == ("Net at 'layers.1', a Linear",)
        assert (first.op, first.kind) == ("matmul", "inf")
        first = find_nan(pb.grad(lambda net, x, f=f: pb.sum(f(net, x * 1e-30))), net, x).first
        assert first.places == ("Net at 'layers.0', a Linear",)
        assert first.rules
    with pb.no_grad():
        net.layers[1].weight.fill_(np.inf)
    for f in (call, pb.jit(call)):
        report = find_nan(f, net, x)
        assert report.arguments == {"[0][layers.1].weight": "inf"}


def test_checkpoints_random_draws_and_threads():
    def f(x):
        y = pb.checkpoint(lambda x: pb.sqrt(x) * 2.0)(x)
        noise = pb.random.normal(size=2, key=pb.random.key(3))
        return pb.sum(y + noise)

    report = find_nan(pb.grad(f), np.array([4.0, 0.0]))
    assert report.first.rules == ("the pull of sqrt",)
    found = {}

    def work(number):
        x = np.ones(5)
        x[number] = -1.0
        found[number] = find_nan(pb.jit(lambda x: pb.log(x)), x).first.index

    threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {i: (i,) for i in range(3)}


def test_what_may_run_once_runs_once(capsys):
    calls = []

    @pb.custom_op(pure=False)
    def count(x):
        calls.append(1)
        return x * 1.0

    @count.def_spec
    def _(x):
        return x

    for f in both_ways(lambda x: pb.log(count(x) - 2.0)):
        calls.clear()
        report = find_nan(f, np.array([1.0, 4.0]))
        assert (report.first.op, len(calls)) == ("log", 1)

    def loud(x):
        pb.debug.print("once")
        return pb.log(x)

    capsys.readouterr()
    assert find_nan(pb.jit(loud), np.array([-1.0])).first.op == "log"
    assert capsys.readouterr().out.count("once") == 1


def plant_nan(monkeypatch, word):
    """A compiler that makes a NaN of some word above 2, where the loop has no other word: as a wrong kernel would."""
    wanted = pipeline.STEPS

    def lower(c):
        wanted[0](c)
        for step in c.steps.steps:
            if isinstance(step, Kernel):
                for line in step.lines:
                    if line.kind == "apply" and line.label == word:
                        plain = line.kernel
                        line.kernel = lambda k, x, plain=plain: k.select(
                            k.less(x, k.constant(2.0)), plain(k, x), k.constant(np.nan)
                        )

    monkeypatch.setattr(pipeline, "STEPS", (lower, *wanted[1:]))


def test_a_nan_that_only_compiled_code_makes(monkeypatch):
    def f(x):
        y = pb.sin(x)
        z = pb.cos(y + x)
        return pb.sum(z * 3.0)

    line = here(-3)
    x = np.array([0.1, 2.5, 1.0])
    plant_nan(monkeypatch, "cos")
    compiled = pb.jit(f)
    assert find_nan(f, x)
    first = find_nan(compiled, x).first
    assert (first.op, first.kind, first.index, first.compiled) == ("cos", "nan", (1,), "f")
    assert line in first.line
    assert np.isnan(compiled(x))


def test_values_that_no_faithful_build_shows_are_not_blamed(monkeypatch):
    wanted = pipeline.STEPS

    def lower(c):
        """A NaN only where a kernel keeps all values but one to itself: with any other of them stored, it is right."""
        wanted[0](c)
        for step in c.steps.steps:
            if isinstance(step, Kernel) and len(step.stores) == 1:
                line = step.stores[0].line
                plain = line.kernel
                if plain is not None:
                    line.kernel = lambda k, *xs, plain=plain: k.multiply(plain(k, *xs), k.constant(np.nan))

    monkeypatch.setattr(pipeline, "STEPS", (lower, *wanted[1:]))
    first = find_nan(pb.jit(lambda x: pb.cos(pb.sin(x) + x)), np.array([0.1, 2.5])).first
    assert first.op == "cos"
    assert "were not observed" in first.doubt
    assert first.doubt in str(first)


def test_errors_of_the_function_are_its_own():
    def f(x):
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        find_nan(f, np.ones(2))
    with pytest.raises(TypeError, match="function"):
        find_nan(3, np.ones(2))


def test_reports_print():
    report = find_nan(lambda x: pb.log(x), np.array([-1.0]), every=True)
    assert "log made nan: 1 of float64[1] at [0]\n  of x = -1\n  at " in str(report)
    assert "log" in report._repr_html_()
    report = find_nan(lambda x, y: x * y, np.array([np.nan]), np.ones(1), every=True)
    assert report.passed[0][0] == "multiply"
    assert "result has nan, from argument [0]" in str(report)


def test_calls_afterwards_are_as_before():
    f = pb.jit(lambda x: pb.log(x))
    x = np.ones(3)
    f(x)
    kinds = list(f.entries)
    find_nan(f, -x)
    assert list(f.entries) == kinds
    assert f.traces == 1
    np.testing.assert_array_equal(f(x), np.zeros(3))
