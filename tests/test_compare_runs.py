"""`pb.tools.compare`: the first step that differs, of eager and compiled runs, precisions and implementations."""

import numpy as np
import pytest

import pullback as pb
from pullback.compile import pipeline
from pullback.compile.loop_ir import Kernel

compare = pb.tools.compare
X = np.linspace(0.1, 2.0, 6)


def f(x):
    y = pb.exp(pb.sin(x))
    z = y @ y
    return pb.sum(y) / z


def plant(monkeypatch, label, factor):
    """A compiler whose kernels multiply what one op computes by a factor."""
    wanted = pipeline.STEPS

    def lower(c):
        wanted[0](c)
        steps = [c.steps.steps, *(p.steps for s in c.steps.steps for p in getattr(s, "programs", ()))]
        for line in (line for part in steps for s in part if isinstance(s, Kernel) for line in s.lines):
            if line.kind == "apply" and line.label == label:
                plain = line.kernel
                line.kernel = lambda k, *xs, plain=plain: k.multiply(plain(k, *xs), k.constant(factor))

    monkeypatch.setattr(pipeline, "STEPS", (lower, *wanted[1:]))


def test_a_function_and_its_compiled_form_agree():
    for g in (f, pb.grad(f), pb.vmap(lambda x: f(x * X)), pb.grad(lambda x: pb.sum(pb.grad(f)(x) ** 2))):
        compiled = pb.jit(g)
        for pair in ((g, compiled), (compiled, g)):
            found = compare(*pair, X)
            assert found, str(found)
            assert found.compared == found.steps[0] == found.steps[1] > 0
            assert "one program" in found.note
    # a function that the caller made anew has no compiled form: it is aligned by its ops
    assert compare(lambda x: f(x), pb.jit(f), X).compared >= 4


def test_a_planted_miscompilation_is_named(monkeypatch):
    plant(monkeypatch, "sin", 1.001)
    found = compare(f, pb.jit(f), X)
    assert found.first.name == "sin"
    assert "y = pb.exp(pb.sin(x))" in found.first.line
    assert found.first.arguments == 0.0
    np.testing.assert_allclose(found.first.values[1] / found.first.values[0], 1.001)
    assert abs(found.first.relative - 0.001) < 2e-6
    assert [d.name for d in found.results] == ["result 0"]
    # the other way round, and within what is asked
    swapped = compare(pb.jit(f), f, X)
    np.testing.assert_allclose(swapped.first.values[0] / swapped.first.values[1], 1.001)
    assert compare(f, pb.jit(f), X, rtol=0.01)


def test_a_miscompiled_loop_names_its_round(monkeypatch):
    def step(c, x):
        c = c * 1.5
        return c, pb.where(c > 40.0, pb.cos(x), c)

    def loop(c):
        return pb.scan(step, c, np.arange(12.0))[1]

    assert compare(loop, pb.jit(loop), np.array(1.0))
    plant(monkeypatch, "cos", 1.01)
    found = compare(loop, pb.jit(loop), np.array(1.0))
    # cos is computed in every round; its values differ from the first one on
    assert (found.first.name, found.first.places) == ("cos", ("round 0 of iterate",))
    assert "pb.where(c > 40.0, pb.cos(x), c)" in found.first.line
    assert not found


def test_two_precisions():
    found = compare(f, f, X, others=(X.astype(np.float32),), rtol=1e-9)
    assert found.first.name == "sin"
    assert 0 < found.first.arguments < 1e-7
    assert compare(f, f, X, others=(X.astype(np.float32),))

    def net(w, x):
        return pb.sum(pb.tanh(x @ w) ** 2)

    w, x = np.full((4, 3), 0.1, np.float32), np.linspace(0, 1, 8, dtype=np.float32).reshape(2, 4)
    narrow = pb.autocast("bfloat16")(net)
    assert compare(net, narrow, w, x)
    found = compare(net, narrow, w, x, rtol=1e-5, atol=1e-6)
    assert found.first.name == "matmul"
    assert "x @ w" in found.first.line
    assert "bfloat16" in found.first.summaries[1]
    found = compare(pb.grad(net), pb.autocast("bfloat16")(pb.grad(net)), w, x, rtol=1e-5, atol=1e-6)
    assert found.first.name == "matmul"
    assert compare(pb.grad(net), pb.autocast("bfloat16")(pb.grad(net)), w, x)


def test_what_is_not_aligned_is_not_accused():
    def g(x):
        y = pb.exp(pb.sin(x))
        z = pb.sum(y * y) * 1.5
        return pb.sum(y) / z

    found = compare(f, g, X)
    assert found.first is None
    assert found.compared == 2
    assert [d.name for d in found.results] == ["result"]
    assert not found
    assert "only results are compared" in str(found)
    found = compare(f, lambda x: pb.sum(pb.cos(x)), X)
    assert (found.first, found.compared) == (None, 0)
    assert not found


def test_options_of_the_compiler_are_compared():
    found = compare(pb.jit(f), pb.jit(f, fast_math=True), X)
    assert found
    assert "checked build, right by a checked build" in found.note


def test_nan_and_infinity_on_one_side_differ():
    found = compare(lambda x: pb.log(x), lambda x: pb.log(x), np.ones(2), others=(np.array([1.0, 0.0]),))
    assert found.first.index == (1,)
    assert found.first.relative == np.inf
    both = np.array([1.0, 0.0, -1.0])
    assert compare(lambda x: pb.log(x), pb.log, both)


def test_random_draws_checkpoints_and_modules():
    def draw(x):
        y = pb.checkpoint(lambda x: pb.sin(x) * pb.random.normal(size=6, key=pb.random.key(1)))(x)
        return pb.sum(y**2)

    assert compare(pb.grad(draw), pb.jit(pb.grad(draw)), X)
    net = pb.nn.Sequential(
        pb.nn.Linear(6, 4, key=pb.random.key(0)), pb.nn.Tanh(), pb.nn.Linear(4, 1, key=pb.random.key(1))
    )
    call = lambda net, x: net(x)  # noqa: E731
    assert compare(call, pb.jit(call), net, X.astype(np.float32))


def test_impure_ops_run_once_for_each_side():
    calls = []

    @pb.custom_op(pure=False)
    def count(x):
        calls.append(1)
        return x * 1.0

    @count.def_spec
    def _(x):
        return x

    g = lambda x: pb.sin(count(x))  # noqa: E731
    assert compare(g, pb.jit(g), X)
    assert len(calls) == 2


def test_sizes_of_one_and_reports():
    found = compare(lambda x: x * 2.0, lambda x: x * 2.0, np.ones((1, 1)), others=(np.full((1, 1), 3.0),))
    assert found.first.index == (0, 0)
    assert "multiply differs at [0, 0]: 2 and 6" in str(found)
    assert "multiply" in found._repr_html_()
    with pytest.raises(pb.errors.ArgumentError, match="result is"):
        compare(lambda x: x, lambda x: pb.sum(x), X)
    with pytest.raises(TypeError):
        compare(f, 3, X)
