"""Parts of programs: between named values, and as stages one after the other."""

import numpy as np
import pytest

import pullback as pb
from pullback.errors import ArgumentError
from pullback.program.subgraph import estimate_work

RNG = np.random.default_rng(0)
W, V, X = RNG.normal(size=(3, 4)), RNG.normal(size=(4, 2)), RNG.normal(size=(5, 3))


def network(w, v, x):
    hidden = pb.name(pb.tanh(x @ w), "hidden")
    return pb.sum(pb.name(hidden @ v, "logits") ** 2), pb.exp(hidden)


@pytest.fixture(scope="module")
def program():
    return pb.stage(network)(W, V, X)


HIDDEN = np.tanh(X @ W)


def test_the_part_between_values(program):
    assert np.allclose(program.subgraph(outputs="hidden").run(W, X), HIDDEN)
    logits = program.subgraph("hidden", "logits")
    assert [e.op.name for e in logits.equations] == ["matmul", "name"]
    assert np.allclose(logits.run(HIDDEN, V), HIDDEN @ V)
    total, exps = program.subgraph(["hidden", "logits"]).run(HIDDEN, np.ones((5, 2)))
    assert total == 10
    assert np.allclose(exps, np.exp(HIDDEN))
    both = program.subgraph("hidden", ["logits", "hidden"])
    assert both.run(HIDDEN, V)[1] is not None
    assert np.allclose(program.subgraph().run(W, V, X)[0], np.sum((HIDDEN @ V) ** 2))


def test_names_of_the_text_and_symbols(program):
    assert "t0: float64[5, 4] = matmul(x2, x0)" in str(program)
    assert np.allclose(program.subgraph("t0", "hidden").run(X @ W), HIDDEN)
    symbol = program.equations[0].results[0]
    assert np.allclose(program.subgraph(symbol, "hidden").run(X @ W), HIDDEN)
    assert np.allclose(program.subgraph(["x2", "x0"], "t0").run(X, W), X @ W)


def test_a_part_is_a_program_like_any_other(program):
    part = program.subgraph("hidden", "logits")
    for again in (pb.Program.parse(part.text()), pb.Program.from_json(part.to_json()), part.verify(), part.compile()):
        assert np.allclose(again(HIDDEN, V), HIDDEN @ V)
    head = program.subgraph("hidden")
    slope = pb.grad(lambda h: head.run(h, V)[0])(HIDDEN)
    assert np.allclose(slope, 2 * HIDDEN @ V @ V.T)
    assert np.allclose(pb.jit(pb.vmap(lambda h: part.run(h, V)))(np.stack([HIDDEN, 2 * HIDDEN]))[1], 2 * HIDDEN @ V)


def test_loops_are_inside_or_outside():
    def loops(x):
        y = pb.name(pb.fori_loop(0, 3, lambda i, s: s * x, x), "power")
        return pb.scan(lambda c, r: (c + r, c), 0.0, y)

    program = pb.stage(loops)(np.ones(4))
    x = RNG.normal(size=4)
    assert np.allclose(program.subgraph(outputs="power").run(x), x**4)
    assert np.allclose(program.subgraph("power").run(x)[0], x.sum())


def test_what_is_refused(program):
    with pytest.raises(ArgumentError, match=r"(?s)no value 'nothing' .* \(here 'hidden', 'logits'\)"):
        program.subgraph("nothing")
    with pytest.raises(ArgumentError, match="no value a ndarray"):
        program.subgraph(X)
    with pytest.raises(ArgumentError, match="do not depend on 'logits'"):
        program.subgraph("logits", "hidden")
    with pytest.raises(ArgumentError, match="named twice"):
        program.subgraph(["hidden", "hidden"])
    twice = pb.stage(lambda x: pb.name(pb.sin(pb.name(pb.cos(x), "block")), "block"))(X)
    with pytest.raises(ArgumentError, match=r"gave 'block' to 2 values(.|\n)*text does: t1, t3"):
        twice.subgraph("block")
    assert np.allclose(twice.subgraph("t1", "t3").run(X), np.sin(X))
    halves = pb.stage(lambda x: pb.multiply(*pb.split(x, 2)))(np.ones(4))
    with pytest.raises(ArgumentError, match="split has several results"):
        halves.subgraph("t0")
    assert np.allclose(halves.subgraph(["t0", "t1"]).run(np.ones(2), 3 * np.ones(2)), 3)
    with pytest.raises(ArgumentError, match="9 stages of a program of"):
        program.stages(9)
    with pytest.raises(ArgumentError, match="count must be an integer of at least 1"):
        program.stages(0)


def run_stages(stages, leaves):
    carried = ()
    for stage in stages:
        carried = stage.program.run(*carried, *(leaves[i] for i in stage.arguments))
        carried = carried if isinstance(carried, tuple) else (carried,)
    return carried


@pytest.mark.parametrize("count", [1, 2, 3, 6])
def test_stages_compute_what_the_whole_does(program, count):
    stages = program.stages(count)
    assert len(stages) == count
    assert all(s.program.equations for s in stages)
    assert sum((s.program.equations for s in stages), ()) == program.equations
    for found, wanted in zip(run_stages(stages, (W, V, X)), program.run(W, V, X), strict=True):
        assert np.array_equal(found, wanted)


def deep(x, *weights):
    for i, w in enumerate(weights):
        wide = pb.tanh(x @ w)  # wide inside of a layer, narrow between layers
        x = wide @ w.T + (x if i else 0)
    return x


def test_cuts_are_where_little_crosses_and_the_work_is_even():
    weights = [RNG.normal(size=(4, 64)) for _ in range(6)]
    x = RNG.normal(size=(8, 4))
    program = pb.stage(deep)(x, *weights)
    stages = program.stages(3)
    assert [s.program.output_specs[0].shape for s in stages] == [(8, 4)] * 3
    assert [sorted(s.arguments) for s in stages] == [[0, 1, 2], [3, 4], [5, 6]]
    work = [sum(map(estimate_work, s.program.equations)) for s in stages]
    assert max(work) < 1.3 * min(work)
    assert np.allclose(run_stages(stages, (x, *weights))[0], deep(x, *weights))
    first = program.stages(2, cost=lambda e: 100.0 if e is program.equations[0] else 1.0)
    assert len(first[0].program.equations) < 10


def test_cuts_are_the_best_of_all(program):
    """Against every way to cut, by the rule: the fewest bytes among those whose stages fit."""
    from itertools import combinations

    from pullback.program.subgraph import _IMBALANCE, _choose_cuts

    rng = np.random.default_rng(1)
    for _ in range(30):
        n, number = int(rng.integers(3, 9)), int(rng.integers(1, 4))
        costs, nbytes = rng.integers(1, 9, n).astype(float), np.append(rng.integers(0, 50, n), 0).astype(float)
        nbytes[0] = 0
        ways = {cuts: [costs[a:b].sum() for a, b in zip((0, *cuts), (*cuts, n), strict=True)]
                for cuts in combinations(range(1, n), number - 1)}  # fmt: skip
        limit = max(min(map(max, ways.values())), _IMBALANCE * costs.sum() / number)
        fewest = min(sum(nbytes[list(c)]) for c, w in ways.items() if max(w) <= limit * (1 + 1e-9))
        found = _choose_cuts(costs, nbytes, number)
        assert max(ways[tuple(found)]) <= limit * (1 + 1e-9)
        assert sum(nbytes[found]) == fewest
