"""`pb.profile`: it sees everything that takes time, once, at the right line and module, and changes nothing."""

import json
import threading
import time
from collections import Counter

import browser
import numpy as np
import pytest

import pullback as pb
from pullback.arrays.timing import COMPILE, ITERATION, MODULE, OP, PROGRAM, PULL, RECOMPUTE, STEP
from pullback.cli import main
from pullback.errors import ArgumentError, GraphError
from pullback.settings import PLAIN, modes
from pullback.tools.profile import roofline
from pullback.tools.profile.events import read_log
from pullback.tools.profile.rank_clocks import estimate_offsets
from pullback.tools.profile.roofline import Roofline

X = np.linspace(0.1, 0.9, 64).reshape(8, 8)


class Block(pb.nn.Module):
    def __init__(self, size):
        self.linear = pb.nn.Linear(size, size)
        self.act = pb.nn.Tanh()

    def forward(self, x):
        return self.act(self.linear(x)) + x  # THE BLOCK


class Net(pb.nn.Module):
    def __init__(self):
        self.blocks = [Block(8), Block(8)]
        self.again = self.blocks[0]

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return pb.sum(self.again(x) * 2.0)  # THE SUM


def kinds(seen):
    return Counter(event.kind for event in seen.events)


def row(seen, by, text):
    return next(r for r in seen.rows(by) if text in r.key)


def tracked(value=X):
    return pb.tensor(value, requires_grad=True)


# What is seen


def test_time_is_at_the_line_that_made_the_node():
    x = tracked()
    with pb.profile() as seen:
        y = pb.sin(x) * x  # THE FORWARD LINE
        loss = pb.sum(y)
        loss.backward()  # THE BACKWARD LINE
    forward = row(seen, "line", "# THE FORWARD LINE")
    assert forward.forward > 0
    assert forward.backward > 0
    assert forward.calls == 4, "two ops and their pulls"
    assert forward.nbytes >= 4 * X.nbytes
    start = row(seen, "line", "# THE BACKWARD LINE")
    assert start.total >= forward.backward, "the pass contains the pulls"
    assert start.own < start.total
    assert {e.line for e in seen.events if e.kind == PULL and e.name == "multiply"} == {forward.key}
    assert all("test_profile" in r.key for r in seen.rows("line"))


def test_calls_of_ops_are_counted_once_whatever_their_path():
    def work():
        x, y = tracked(), tracked(X[0])
        for _ in range(4):  # general paths first, then plans
            z = pb.sum(pb.exp(x) @ x.T + y, axis=0)
            (z[1:].max() + 2.0).backward()
        return x.grad.numpy()

    with pb.profile() as alone:
        work()
    with pb.memory.profile(), pb.profile() as beside:
        work()
    names = ("exp", "matmul", "add", "sum", "getitem", "max", "transpose")
    counts = [{n: sum(e.kind == OP and e.phase == "forward" and e.name == n for e in seen.events) for n in names}
              for seen in (alone, beside)]  # fmt: skip
    assert counts[0] == counts[1]
    assert counts[0]["exp"] == 4
    pulls = [Counter(e.name for e in seen.events if e.kind == PULL and e.name in names) for seen in (alone, beside)]
    assert pulls[0] == pulls[1]


def test_self_and_total_add_up():
    net = Net()
    with pb.profile() as seen:
        net(X).backward()
    for by in ("line", "op", "module", "kind"):
        rows = seen.rows(by)
        assert sum(r.own for r in rows) == pytest.approx(sum(r.own for r in seen.rows("thread")))
        assert all(r.own <= r.total * (1 + 1e-9) + 1e-9 for r in rows)
    tops = [e for e in seen.events if e.parent < 0]
    assert sum(e.spent for e in tops) * 1e-9 <= seen.seconds
    for e in seen.events:
        if e.parent >= 0:
            around = seen.events[e.parent]
            assert around.start <= e.start <= e.end <= around.end


def test_modules_have_their_forward_and_backward_time():
    net = Net()
    for _ in range(3):
        net(X).backward()
    with pb.profile() as seen:
        net(X).backward()
    rows = {r.key: r for r in seen.rows("module")}
    assert {"Net", "Net.blocks.0", "Net.blocks.0.linear", "Net.blocks.1.linear", "Net.blocks.1.act"} <= set(rows)
    for name in ("Net.blocks.0.linear", "Net.blocks.1.linear", "Net.blocks.1.act"):
        assert rows[name].forward > 0, name
        assert rows[name].backward > 0, name
    calls = Counter(e.name for e in seen.events if e.kind == MODULE)
    assert calls["Net.blocks.0"] == 2, "a module under two names goes by the first"
    assert calls["Net.blocks.1"] == 1
    assert rows["Net"].total > rows["Net.blocks.0"].total


def test_transforms_on_bare_arrays():
    f = lambda x: pb.sum(pb.sin(x) * x)  # noqa: E731
    with pb.profile() as seen:
        pb.jvp(f, (X,), (X,))
    assert {"sin", "multiply", "cos"} <= {e.name for e in seen.events if e.kind == OP}
    with pb.profile() as seen:
        pb.vmap(f)(X)
    assert "sin" in {e.name for e in seen.events if e.kind == OP}
    with pb.profile() as seen:
        pb.grad(f)(X)
    assert "sin" in {e.name for e in seen.events if e.kind == PULL}
    with pb.profile() as seen:
        pb.hvp(f, (X,), (X,))
    assert kinds(seen)[PULL] >= 3


def test_a_recomputation_is_marked():
    def f(x):
        return pb.sin(pb.exp(x))  # AGAIN

    x = tracked()
    with pb.profile() as seen:
        pb.sum(pb.checkpoint(f)(x)).backward()
    assert kinds(seen)[RECOMPUTE] == 1
    found = row(seen, "line", "# AGAIN")
    assert found.by_phase["recompute"] > 0
    assert found.forward > 0
    assert found.backward > 0
    assert seen.by_phase()["recompute"] > 0
    assert sum(e.name == "exp" and e.phase == "recompute" for e in seen.events) == 1


def test_recomputations_of_a_budget_and_of_a_loop_are_marked():
    x = pb.tensor(np.ones(20_000), requires_grad=True)
    with pb.memory_budget("1.2 MB") as budget, pb.profile() as seen:
        y = x
        for _ in range(12):
            y = pb.sin(y)
        pb.sum(y).backward()
    assert budget.report().recomputations > 0
    again = sum(e.kind == OP and e.name == "sin" and e.phase == "recompute" for e in seen.events)
    assert again == budget.report().recomputations
    x = tracked()
    with pb.profile() as seen:
        pb.sum(pb.checkpoint_loop(lambda i, x: pb.sin(x), x, 6)).backward()
    assert any(e.name == "sin" and e.phase == "recompute" for e in seen.events)


def test_steps_of_solvers():
    solved = lambda a: pb.root(lambda x, a: x * x * x - a, np.full(3, 2.0), a)  # noqa: E731
    with pb.profile() as seen:
        solved(np.array([2.0, 3.0, 4.0]))
    assert kinds(seen)[ITERATION] >= 2
    assert any(r.key.startswith("(step of ") for r in seen.rows("op"))


def test_fused_functions_stay_fused():
    x = pb.tensor(X.astype(np.float32), requires_grad=True)
    for _ in range(3):
        before = pb.nn.gelu(x)
    with pb.profile() as seen:
        after = pb.nn.gelu(x)
        pb.sum(after).backward()
    assert np.array_equal(before.detach().numpy(), after.detach().numpy())
    assert [e.name for e in seen.events if e.kind == PROGRAM] == ["jit gelu"]
    assert "tanh" not in {e.name for e in seen.events}
    assert {r.key for r in seen.rows("program")} == {"jit gelu", "jit gelu, backward"}


def test_compilation_by_stage():
    f = pb.jit(lambda x: pb.sum(pb.sin(x) * 3.0 + 7.25))
    with pb.profile() as seen:
        f(X)
        f(X)
    stages = {r.key for r in seen.rows("stage")}
    assert {"trace", "passes", "lower", "divide", "plan_memory", "render", "link", "compile <lambda>"} <= stages
    assert sum(e.kind == PROGRAM for e in seen.events) == 2
    assert row(seen, "program", "<lambda>").forward < seen.by_phase()["compile"], "compiling is no part of the call"
    whole = row(seen, "stage", "compile <lambda>")
    assert whole.total >= row(seen, "stage", "link").total


def test_the_optimizer_steps_as_without_a_profile():
    w = pb.tensor(np.ones(5), requires_grad=True)
    opt = pb.optim.Adam([w], lr=0.1)
    for _ in range(3):
        opt.zero_grad()
        pb.sum(w * w).backward()
        opt.step()
    place = w.value.ctypes.data
    with pb.profile() as seen:
        opt.zero_grad()
        pb.sum(w * w).backward()
        opt.step()
    assert w.value.ctypes.data == place, "in place, as before"
    assert any("step of" in r.key for r in seen.rows("op"))


def test_threads_have_tracks_of_their_own():
    x = pb.tensor(np.ones(1 << 17), requires_grad=True)
    y = pb.sum(pb.sin(x) * pb.cos(x) + pb.exp(x))
    with pb.profile() as seen:
        y.backward(workers=2)
    assert {"sin", "cos", "exp", "multiply"} <= {e.name for e in seen.events if e.kind == PULL}
    one = x.grad.numpy().copy()
    x.grad = None
    pb.sum(pb.sin(x) * pb.cos(x) + pb.exp(x)).backward()
    assert np.array_equal(one, x.grad.numpy())


# It changes nothing


PROGRAMS = {
    "eager": lambda: _gradients(lambda x: pb.sum(pb.tanh(x @ x) / (1.0 + x * x))),
    "no_grad": lambda: _without_recording(),
    "jit": lambda: _gradients(pb.jit(lambda x: pb.sum(pb.tanh(x @ x) / (1.0 + x * x)))),
    "jit of grad": lambda: pb.jit(pb.grad(lambda x: pb.sum(pb.exp(x) @ x)))(X),
    "vmap": lambda: pb.vmap(lambda x: pb.sin(x) / pb.sum(x))(X),
    "vmap of jit": lambda: pb.vmap(pb.jit(lambda x: pb.sin(x) / pb.sum(x)))(X),
    "second order": lambda: pb.hessian(lambda x: pb.sum(pb.sin(x) * pb.sum(x)))(X[0]),
    "create_graph": lambda: _second_derivative(),
    "checkpoint": lambda: _gradients(lambda x: pb.sum(pb.checkpoint(lambda x: pb.sin(pb.exp(x)))(x))),
    "network": lambda: _gradients(lambda x: pb.nn.cross_entropy(pb.nn.gelu(x), np.arange(8))),
    "half": lambda: _gradients(lambda x: pb.sum(pb.tanh(x.astype(np.float16)))),
    "scan": lambda: pb.jit(lambda x: pb.scan(lambda c, r: (pb.tanh(c + r), pb.sum(c)), x[0], x))(X)[0],
    "root": lambda: pb.grad(lambda a: pb.sum(pb.root(lambda x, a: x**3 - a, np.ones(3), a)))(np.ones(3) * 2),
    "budget": lambda: _within_budget(),
    "random": lambda: pb.random.normal((4,), key=pb.random.key(3)),
}


def _gradients(f):
    found = []
    for _ in range(4):  # general path, plan, generated step
        x = tracked()
        loss = f(x)
        loss.backward()
        found = [loss.detach().numpy(), x.grad.numpy()]
    return found


def _without_recording():
    x = tracked()
    with pb.no_grad():
        y = pb.sin(x) * x + 2.0
    with pb.inference_mode():
        z = pb.sum(pb.sin(x), axis=0)
    assert y.node is None
    assert z.is_inference
    return [y.numpy(), z.numpy()]


def _second_derivative():
    x = tracked()
    (first,) = pb.gradients([pb.sum(pb.sin(x) * x)], [x], create_graph=True)
    pb.sum(first * first).backward()
    return [first.detach().numpy(), x.grad.detach().numpy()]


def _within_budget():
    x = pb.tensor(np.linspace(0, 1, 20_000), requires_grad=True)
    with pb.memory_budget("1.2 MB"):
        y = x
        for _ in range(10):
            y = pb.sin(y)
        pb.sum(y).backward()
    return x.grad.numpy()


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("steps", [False, True], ids=["", "steps"])
def test_bits_are_the_same(name, steps):
    wanted = pb.tree.flatten(PROGRAMS[name]())[0]
    with pb.profile(steps=steps) as seen:
        found = pb.tree.flatten(PROGRAMS[name]())[0]
    assert modes() is PLAIN
    assert len(seen.events) > 0
    for x, y in zip(wanted, found, strict=True):
        assert np.array_equal(np.asarray(x), np.asarray(y))


def test_nodes_have_the_lines_they_would_have():
    x = tracked()
    with pb.profile():
        y = pb.sin(x)  # HERE
        z = y * 2.0  # THERE
        w = pb.nn.gelu(z)  # EVERYWHERE
    assert ["# HERE" in y.node.where(), "# THERE" in z.node.where(), "# EVERYWHERE" in w.node.where()] == [True] * 3


def test_an_exception_leaves_nothing_installed():
    x = tracked()

    def work():
        pb.sin(x)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), pb.profile() as seen:
        work()
    assert modes() is PLAIN
    assert [e.name for e in seen.events] == ["sin"]
    with pb.profile() as seen:
        with pytest.raises(Exception, match="broadcast"):
            x + np.ones(3)
        y = pb.sum(pb.sin(x))
        y.node.register_hook(lambda shares, bar: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            y.backward()
        pb.sum(pb.cos(x)).backward()
    assert modes() is PLAIN
    assert any(e.kind == PULL and e.name == "cos" for e in seen.events)


class _Failing(pb.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1.0

    @staticmethod
    def backward(ctx, bar):
        raise ZeroDivisionError


def _failing(x):
    return _Failing.apply(x)


def test_beside_another_instrument_a_pull_that_raises_is_closed():
    x = tracked()
    with pb.memory.profile(), pb.profile() as seen:
        y = pb.sum(_failing(x))
        with pytest.raises(ZeroDivisionError):
            y.backward()
        pb.sum(pb.cos(x)).backward()
    assert any(e.kind == PULL and e.name == "cos" for e in seen.events)
    assert sum(e.kind == "backward" for e in seen.events) == 2


def test_a_memory_profile_sees_the_same_beside_it():
    def work():
        x = tracked()
        with pb.memory.profile() as memory:
            pb.sum(pb.sin(x) * x).backward()
        return memory.peak, memory.by_op()

    wanted = work()
    with pb.profile() as seen:
        assert work() == wanted
    assert kinds(seen)[PULL] >= 3


def test_profiles_nest():
    x = tracked()
    with pb.profile() as outer:
        pb.sin(x)
        with pb.profile() as inner:
            pb.cos(x)
        pb.exp(x)
    assert [e.name for e in inner.events] == ["cos"]
    assert [e.name for e in outer.events] == ["sin", "cos", "exp"]


def test_a_deep_graph():
    x = pb.tensor(np.ones(2), requires_grad=True)
    with pb.profile() as seen:
        y = x
        for _ in range(20_000):
            y = y * 1.0
        y.sum().backward()
    assert row(seen, "op", "multiply").calls == 40_000
    assert len(seen.html()) < 200_000
    assert json.loads(seen.trace())


def test_the_last_events_are_kept():
    x = tracked()
    with pb.profile(limit=10) as seen:
        for _ in range(100):
            pb.sin(x)
    assert len(seen.events) == 10
    assert "were dropped (limit=10)" in seen.title()


def test_what_a_profile_costs_is_said():
    x = pb.tensor(np.ones(1), requires_grad=True)
    with pb.profile() as seen:
        for _ in range(2000):
            pb.sin(x)
    assert 0 < seen.overhead < 5
    assert "the profile itself took about" in seen.title()
    if seen.overhead > 0.03:
        assert "since ops are short" in seen.title()
    with pb.profile() as seen:
        time.sleep(0.05)
    assert seen.overhead == 0
    assert "outside of ops 100%" in seen.title()


def test_other_threads_are_not_profiled_unless_they_share_the_context():
    x = tracked()
    with pb.profile() as seen:
        thread = threading.Thread(target=lambda: pb.sin(x))
        thread.start()
        thread.join()
    assert seen.events == []


def test_what_it_refuses():
    with pytest.raises(GraphError, match="when its block is over"):
        pb.profile().events  # noqa: B018
    with pb.profile() as seen:
        pass
    with pytest.raises(GraphError, match="entered once"):
        seen.__enter__()
    with pytest.raises(ArgumentError, match="rows are by"):
        seen.rows("color")
    with pytest.raises(ArgumentError, match="limit"):
        pb.profile(limit=0)
    with pytest.raises(ArgumentError, match=r"ends in \.json, \.html, \.txt"):
        seen.save("profile.png")


# Steps of compiled programs


def test_steps_of_a_program():
    f = pb.jit(lambda x, w: pb.sum(pb.tanh(x @ w) @ w, axis=1))
    wanted = f(X, X)
    with pb.profile(steps=True) as seen:
        found = f(X, X)
    assert np.array_equal(wanted, found)
    (program,) = [e for e in seen.events if e.kind == PROGRAM]
    steps = [e for e in seen.events if e.kind == STEP]
    assert sum("matrix product" in e.name for e in steps) == 2
    assert all(program.start <= e.start <= e.end <= program.end for e in steps)
    product = next(e for e in steps if "matrix product" in e.name)
    assert (product.operations, product.moved) == (2 * 8**3, 3 * X.nbytes)
    assert "matrix product" in seen.table("step")


def test_steps_inside_of_a_loop():
    f = pb.jit(lambda x: pb.scan(lambda c, r: (pb.tanh(c @ x + r), pb.sum(c)), x, x))
    wanted = f(X)
    with pb.profile(steps=True) as seen:
        found = f(X)
    assert all(np.array_equal(a, b) for a, b in zip(wanted, found, strict=True))
    loop = next(e for e in seen.events if e.kind == STEP and "loop" in e.name)
    inside = [e for e in seen.events if e.kind == STEP and e.parent >= 0 and seen.events[e.parent] is loop]
    assert any(e.runs == 8 for e in inside)
    assert sum(e.spent for e in inside) <= loop.spent


def test_steps_of_the_backward_program():
    f = pb.jit(lambda x: pb.sum(pb.tanh(x @ x)))
    x = tracked()
    with pb.profile(steps=True) as seen:
        f(x).backward()
    assert {e.phase for e in seen.events if e.kind == STEP} == {"forward", "backward"}


def test_the_roofline_is_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("PULLBACK_CACHE_DIR", str(tmp_path))
    assert roofline.load_roofline() is None
    machine = Roofline("x", pb.get_num_threads(), 100e9, 50e9, 10e9)
    roofline.save_roofline(machine)
    assert roofline.load_roofline() == machine
    assert machine.share(operations=50e9, moved=0, seconds=1.0, is_double=True) == 1.0
    assert machine.share(operations=50e9, moved=0, seconds=1.0, is_double=False) == 0.5
    assert machine.share(operations=1, moved=5e9, seconds=1.0, is_double=False) == 0.5
    f = pb.jit(lambda x: x @ x)
    with pb.profile(steps=True) as seen:
        f(X)
    assert "not measured" not in seen.table("step")
    (tmp_path / "machine.json").write_text("{")
    assert roofline.load_roofline() is None


# What is written


def test_the_trace(tmp_path):
    x = tracked()
    with pb.profile() as seen:
        Net()(X).backward()
        pb.sum(pb.sin(x)).backward()
    seen.save(tmp_path / "trace.json")
    trace = json.loads((tmp_path / "trace.json").read_text())
    spans = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    assert len(spans) == len(seen.events)
    assert all({"name", "ts", "dur", "pid", "tid"} <= set(e) for e in spans)
    assert any(e["name"] == "pull of sin" and "test_profile" in e["args"]["line"] for e in spans)
    named = {e["args"]["name"] for e in trace["traceEvents"] if e["ph"] == "M" and "name" in e["args"]}
    assert {"rank 0", "thread 0"} <= named


def test_the_flame_graph_opens_in_a_browser(tmp_path):
    net, x = Net(), tracked()
    with pb.profile(steps=True) as seen:
        for _ in range(3):
            net(X).backward()
            pb.jit(lambda x: pb.sum(pb.sin(x)))(x).backward()
    seen.save(tmp_path / "flame.html")
    text = (tmp_path / "flame.html").read_text()
    assert "http" not in text.replace("http-equiv", "")
    path = browser.program()
    if path is None:
        pytest.skip("no browser is found; PULLBACK_BROWSER names one")
    with browser.Browser(path, tmp_path) as shown:
        shown.show(tmp_path / "flame.html")
        boxes = "[...document.querySelectorAll('.flame button')]"
        assert shown.evaluate(f"{boxes}.length") > 10
        assert shown.evaluate(f"{boxes}[0].textContent") == "everything"
        width = shown.evaluate("document.querySelector('.flame').getBoundingClientRect().width")
        find = f"{boxes}.find(b => b.textContent == 'backward')"
        assert shown.evaluate(f"{find}.getBoundingClientRect().width") < 0.99 * width
        shown.evaluate(f"{find}.click()")
        assert shown.evaluate(f"{find}.getBoundingClientRect().width") == pytest.approx(width, abs=2)
        assert shown.evaluate(f"{boxes}.some(b => b.hidden)")
        shown.evaluate(f"{boxes}[0].click()")
        assert not shown.evaluate(f"{boxes}.some(b => b.hidden)")
        assert shown.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        assert shown.told("Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled") == []
        requests = {event["request"]["url"] for event in shown.told("Network.requestWillBeSent")}
        assert requests == {(tmp_path / "flame.html").as_uri()}


def test_names_are_escaped_in_the_page():
    x = tracked()
    with pb.profile() as seen:
        y = pb.sum(x)
        z = x < 3  # noqa: F841 <script>alert(1)</script>
        y.backward()
    assert "<script>alert" not in seen.html()


def test_the_difference_of_two():
    x = tracked()
    with pb.profile() as before:
        pb.sin(x)
    with pb.profile() as after:
        pb.sin(x)
        for _ in range(50):
            pb.exp(x)
    found = before.diff(after, by="op")
    assert found.changes[0].key == "exp"
    assert (found.changes[0].calls_before, found.changes[0].calls_after) == (0, 50)
    assert found.changes[0].seconds > 0
    assert "exp" in str(found)
    assert before.diff(before).changes[0].seconds == 0


def test_it_is_shown_in_many_ways():
    x = tracked()
    with pb.profile() as seen:
        pb.sum(x * x).backward()
    assert str(seen) == seen.table()
    assert "multiply" in seen.table("op", rows=5)
    assert "<pre" in seen._repr_html_()
    assert seen.__rich__().row_count == len(seen.rows("line"))
    assert repr(seen).startswith("<profile of")
    assert repr(pb.profile()) == "<a profile that is not over>"


def test_the_command_line(tmp_path, capfd, monkeypatch):
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, beside\nimport numpy as np, pullback as pb\nassert __name__ == '__main__'\n"
        "x = pb.tensor(np.ones(3), requires_grad=True)\npb.sum(pb.sin(x)).backward()  # MARK\nprint(sys.argv[1:])\n"
        "raise SystemExit(3)\n"
    )
    (tmp_path / "beside.py").write_text("")
    trace, flame = tmp_path / "trace.json", tmp_path / "flame.html"
    assert main(["profile", "--trace", str(trace), "--flame", str(flame), str(script), "a", "--by"]) == 3
    out = capfd.readouterr().out
    assert "# MARK" in out
    assert "['a', '--by']" in out
    assert json.loads(trace.read_text())["traceEvents"]
    assert "flame" in flame.read_text()
    assert modes() is PLAIN
    script.write_text("import pullback as pb\npb.sin(1.0)\n1 / 0\n")
    assert main(["profile", "--by", "op", str(script)]) == 1
    shown = capfd.readouterr()
    assert "ZeroDivisionError" in shown.err
    assert "sin" in shown.out
    assert main(["profile", str(tmp_path / "missing.py")]) == 2
    assert main(["profile"]) == 2
    monkeypatch.setenv("PULLBACK_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(roofline, "_SECONDS", 0.0)
    assert main(["doctor", "--measure"]) == 0
    assert roofline.load_roofline() is not None


# Ranks


def test_clocks_are_aligned_within_their_bounds():
    rng = np.random.default_rng(0)
    offset = np.array([0, 1_000_000, -350_000])  # what the clocks of ranks show more
    came = np.sort(rng.integers(0, 10**9, 20))[:, None] + rng.integers(0, 5_000, (20, 3))
    left = came.max(axis=1, keepdims=True) + rng.integers(100, 9_000, (20, 3))
    for (found, bound), wanted in zip(estimate_offsets(came + offset, left + offset), -offset, strict=True):
        assert abs(found - wanted) <= bound + 1
        assert bound < 15_000


def test_one_trace_of_several_ranks(tmp_path):
    def step():
        w = pb.tensor(np.ones(4), requires_grad=True)
        v = pb.tensor(np.ones(3), requires_grad=True)
        pb.distributed.DistributedGradient({"weight": w, "bias": v})
        with pb.profile() as seen:
            (pb.sum(pb.sin(w)) + pb.sum(v * (1.0 + pb.distributed.rank()))).backward()
        every = seen.gather()
        every.save(tmp_path / "ranks.json")
        return every

    wanted = pb.distributed.run(lambda: None, 2)
    assert wanted == [None, None]
    first, second = pb.distributed.run(step, 2)
    assert len(first.events) == len(second.events)
    assert {e.rank for e in first.events} == {0, 1}
    assert first.by_phase()["wait"] > 0
    for clock in first.ranks:
        assert abs(clock.offset) <= clock.uncertainty + 1, "threads have one clock"
    buckets = {r.key for r in first.rows("collective")}
    assert any("params['weight']" in name and "params['bias']" in name for name in buckets), buckets
    trace = json.loads((tmp_path / "ranks.json").read_text())
    assert {e["pid"] for e in trace["traceEvents"]} == {0, 1}
    assert len(trace["otherData"]["clocks"]) == 2
    assert {r.key for r in first.rows("rank")} == {"rank 0", "rank 1"}
    for e in first.events:
        if e.parent >= 0:
            assert first.events[e.parent].rank == e.rank
            assert first.events[e.parent].start <= e.start


def test_sums_beside_the_backward_pass_have_a_track_of_their_own():
    def step():
        w = pb.tensor(np.ones(4), requires_grad=True)
        pb.distributed.DistributedGradient([w])
        for _ in range(2):
            pb.sum(pb.sin(w)).backward()
        with pb.profile() as seen:
            pb.sum(pb.sin(w)).backward()
        return seen

    for seen in pb.distributed.run(step, 2, overlap=True):
        under_way = [e for e in seen.events if e.kind == "beside"]
        assert under_way
        assert all("params[0]" in e.name and e.track == -1 and e.end > e.start for e in under_way)
        assert "collectives under way" in seen.trace()
        waited = [e for e in seen.events if e.phase == "wait" and "params[0]" in e.name]
        assert waited


def test_a_meeting_inside_a_compiled_program_is_seen():
    def step():
        f = pb.jit(lambda x: pb.distributed.total(x * 2.0))
        with pb.profile() as seen:
            f(X)
        return [e.name for e in seen.events if e.phase == "wait"]

    for names in pb.distributed.run(step, 2):
        assert any(name.startswith("total") for name in names)


def test_alone_there_is_nothing_to_gather():
    with pb.profile() as seen:
        pb.sin(X)
    assert [e.name for e in seen.gather().events] == ["sin"]


def test_a_log_is_read_by_nesting():
    base = (None, 0, 0, 0)
    name = type("op", (), {"name": "f"})
    log = [x for start, end, thread in ((0, 10, 1), (2, 5, 1), (5, 10, 1), (6, 7, 1), (3, 4, 2))
           for x in (COMPILE, "f" if thread else name, start, end, *base, thread)]  # fmt: skip
    found = read_log(log, 0)
    own = {(e.start, e.track): (e.own, e.parent) for e in found}
    assert own == {(0, 0): (2, -1), (2, 0): (3, 0), (3, 1): (1, -1), (5, 0): (4, 0), (6, 0): (1, 3)}
