"""What a record says of effects is what passes, routines, budgets and checkpoints do."""

import dataclasses

import numpy as np
import pytest

import pullback as pb
from pullback import errors
from pullback.ops import OPS, load_all_ops
from pullback.ops.dispatch import apply
from pullback.ops.op import PURE, Effects
from pullback.program.passes import drop_unused, fold_constants, merge_equal
from pullback.transforms.control.flow.derive import stage_body

SIN = pb.sin.op
X = np.linspace(0.1, 0.9, 4)


def with_effects(**effects):
    return dataclasses.replace(SIN, effects=Effects(**effects))


def names(graph):
    return [e.op.name for e in graph.equations]


@pytest.mark.parametrize(("op", "count"), [(SIN, 1), (with_effects(merge=False), 2)])
def test_equal_calls_are_merged_if_their_effects_allow_it(op, count):
    graph = pb.stage(lambda x: apply(op, x) + apply(op, x))(X)
    assert names(merge_equal(graph)).count("sin") == count


@pytest.mark.parametrize(("op", "count"), [(SIN, 0), (with_effects(drop=False), 1)])
def test_unused_calls_are_dropped_if_their_effects_allow_it(op, count):
    def f(x):
        apply(op, x)
        return x * 2.0

    assert names(drop_unused(pb.stage(f)(X))).count("sin") == count
    program, _ = stage_body(lambda x: [f(x)], pb.spec_of(X))
    assert names(program).count("sin") == count


@pytest.mark.parametrize(("op", "count"), [(SIN, 0), (with_effects(repeat=False), 1)])
def test_calls_on_constants_run_at_compile_time_if_their_effects_allow_it(op, count):
    graph = pb.stage(lambda x: apply(op, x))(X)
    constant = dataclasses.replace(graph, equations=tuple(
        dataclasses.replace(e, args=(np.ones(4),)) if e.op is op else e for e in graph.equations
    ))  # fmt: skip
    assert names(fold_constants(constant)).count("sin") == count


def test_a_custom_op_in_a_compiled_function_runs_once_a_call():
    calls = []

    @pb.custom_op
    def noting(x):
        calls.append(1)
        return np.asarray(x) * 2.0

    noting.def_vjp(lambda bar: bar * 2.0)
    noting.def_spec(lambda x: x)
    f = pb.jit(lambda x: noting(x) + noting(x * 3.0))
    f(X)
    del calls[:]
    assert np.allclose(f(X), 8.0 * X)
    assert len(calls) == 2


def test_ops_of_the_package_are_pure_but_the_fence_of_checkpoints_and_collectives():
    over_batch = {op.name for op in load_all_ops().values() if not op.effects.by_element}
    assert over_batch == {"sum_over_batch", "gather_batch", "scatter_to_batch", "permute_batch"}
    impure = {op.name for op in OPS.values() if op.effects._replace(by_element=True) != PURE}
    assert impure - {op.name for op in OPS.values() if "ranks" in (op.statics or ())} == {"again"}


def counting(pure):
    """A custom op that doubles and notes its calls."""
    calls = []

    @pb.custom_op(pure=pure)
    def double(x):
        calls.append(1)
        return np.asarray(x) * 2.0

    double.def_jvp(lambda tangents: tangents[0] * 2.0)
    double.def_spec(lambda x: x)
    return double, calls


def counted(calls, f, *args):
    del calls[:]
    found = f(*args)
    return found, len(calls)


@pytest.mark.parametrize(("pure", "unused", "equal"), [(True, 0, 1), (None, 0, 1), (False, 1, 2)])
def test_compiled_calls_are_dropped_and_merged_unless_the_op_is_impure(pure, unused, equal):
    double, calls = counting(pure)

    def drops(x):
        double(x)
        return x * 3.0

    compiled = pb.jit(drops)
    compiled(X)
    assert counted(calls, compiled, X)[1] == unused
    merges = pb.jit(lambda x: double(x) + double(x))
    merges(X)
    found, count = counted(calls, merges, X)
    assert count == equal
    np.testing.assert_allclose(found, 4.0 * X, rtol=1e-15)


@pytest.mark.parametrize("derive", [pb.grad, lambda f: pb.jit(pb.grad(f)), lambda f: pb.grad(pb.jit(f))])
def test_a_compiled_derivative_runs_an_impure_op_once(derive):
    double, calls = counting(False)
    f = derive(lambda x: pb.sum(pb.sin(double(x))))
    f(X)
    found, count = counted(calls, f, X)
    assert count == 1
    np.testing.assert_allclose(found, 2.0 * np.cos(2.0 * X), rtol=1e-14)


def test_every_derivative_of_a_compiled_function_runs_an_impure_op_once():
    double, calls = counting(False)
    f = pb.jit(lambda x: (pb.sin(double(x)), pb.argmax(x)))
    x = pb.tensor(X, requires_grad=True)
    ways = {
        "pushed": lambda: pb.jvp(lambda x: f(x)[0], (X,), (X,)),
        "pulled": lambda: pb.sum(f(x)[0]).backward(),
        "second": lambda: pb.jvp(pb.grad(lambda x: pb.sum(f(x)[0])), (X,), (X,)),
        "linear": lambda: pb.linearize(lambda x: f(x)[0], X),
    }
    for name, way in ways.items():
        way()
        assert counted(calls, way)[1] == 1, name
    with pb.memory_budget("1 MiB"):
        ways["pulled"]()
        assert counted(calls, ways["pulled"])[1] == 1
    np.testing.assert_allclose(ways["pushed"]()[1], 2.0 * X * np.cos(2.0 * X), rtol=1e-14)


def test_impure_ops_of_a_compiled_program_keep_their_order():
    seen = []

    def note(number):
        @pb.custom_op(pure=False)
        def noting(x):
            seen.append(number)
            return np.asarray(x) + number

        noting.def_spec(lambda x: x)
        return noting

    one, two, three = note(1), note(2), note(3)

    def f(x):
        three(pb.sin(x))
        b = one(x)
        two(x * 2.0)
        return b

    compiled = pb.jit(f)
    compiled(X)
    del seen[:]
    compiled(X)
    assert seen == [3, 1, 2]


POLICIES = {"nothing": {}, "contractions": {"policy": pb.save_contractions}, "verified": {"verify": True}}


@pytest.mark.parametrize("options", POLICIES.values(), ids=POLICIES)
@pytest.mark.parametrize(("pure", "count"), [(True, 2), (None, 2), (False, 1)])
def test_a_checkpoint_repeats_an_op_unless_it_is_impure(options, pure, count):
    double, calls = counting(pure)
    f = pb.checkpoint(lambda x: pb.sum(pb.sin(pb.exp(double(pb.sin(x))))), **options)
    found, seen = counted(calls, pb.grad(f), X)
    assert seen == count
    wanted = pb.grad(lambda x: pb.sum(pb.sin(pb.exp(2.0 * pb.sin(x)))))(X)
    np.testing.assert_allclose(found, wanted, rtol=1e-14)


def test_an_impure_op_runs_once_wherever_a_checkpoint_meets_it():
    double, calls = counting(False)

    def f(x):
        return pb.sum(pb.sin(pb.exp(double(pb.sin(x)))))

    twice = pb.checkpoint(lambda x: pb.checkpoint(f)(pb.cos(x)))
    assert counted(calls, pb.grad(twice), X)[1] == 1
    inner = pb.checkpoint(lambda x: pb.sum(pb.exp(pb.grad(pb.checkpoint(f))(x))))
    assert counted(calls, pb.grad(inner), X)[1] == 1
    of_a_constant = pb.checkpoint(lambda x: pb.sum(pb.sin(pb.exp(x) * double(X))))
    assert counted(calls, pb.grad(of_a_constant), X)[1] == 1
    compiled = pb.checkpoint(pb.jit(f))
    pb.grad(compiled)(X)
    assert counted(calls, pb.grad(compiled), X)[1] == 1
    around = pb.jit(pb.grad(pb.checkpoint(f)))
    around(X)
    assert counted(calls, around, X)[1] == 1
    found, seen = counted(calls, lambda x: pb.jvp(pb.grad(pb.checkpoint(f)), (x,), (x,))[1], X)
    assert seen == 1
    np.testing.assert_allclose(found, pb.jvp(pb.grad(f), (X,), (X,))[1], rtol=1e-13)
    batched, seen = counted(calls, pb.vmap(pb.grad(pb.checkpoint(f))), np.stack([X, X + 1.0]))
    assert seen == 2
    np.testing.assert_allclose(batched[0], pb.grad(f)(X), rtol=1e-13)


def test_an_impure_op_of_several_results_runs_once_in_a_checkpoint():
    calls = []

    @pb.custom_op(pure=False)
    def both(x):
        calls.append(1)
        inner = pb.grad(lambda y: pb.sum(pb.sin(y)))(x)  # what it saves inside itself is no part of the graph
        return np.asarray(x) * 2.0, inner

    both.def_vjp(lambda bar, x: bar[0] * 2.0 - bar[1] * pb.sin(x))

    def f(x):
        doubled, slope = both(pb.exp(x))
        return pb.sum(pb.sin(pb.sin(doubled) * slope))

    found = pb.grad(pb.checkpoint(f))(X)
    assert len(calls) == 1
    np.testing.assert_allclose(found, pb.grad(f)(X), rtol=1e-14)


@pytest.mark.parametrize(("pure", "more"), [(True, True), (None, False), (False, False)])
def test_a_budget_runs_an_op_again_only_if_it_is_pure(pure, more):
    double, calls = counting(pure)
    x = pb.tensor(np.linspace(0.0, 1.0, 4096), requires_grad=True)
    with pb.memory_budget(20 * x.nbytes) as budget:
        y = x
        for _ in range(12):
            y = pb.sin(double(pb.sin(y)))
        pb.sum(y).backward()
    assert budget.report().recomputations > 0
    assert (len(calls) > 12) == more


def loop(step, x):
    return pb.fori_loop(0, 3, lambda i, c: step(c), x)


def branch(step, x):
    return pb.cond(x[0] > 0.0, step, lambda x: x * 2.0, x)


def sequence(step, x):
    return pb.scan(lambda c, _: (step(c), c), x, None, length=3)[0]


def search(step, x):
    return pb.while_loop(lambda c: pb.max(c) < 7.0, step, x)


FLOWS = {loop: 3, branch: 1, sequence: 3, search: 3}


@pytest.mark.parametrize("flow", FLOWS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("compile", [lambda f: f, pb.jit])
def test_an_impure_op_in_a_loop_or_branch_runs_as_often_as_in_python(flow, compile):
    double, calls = counting(False)

    def unused(x):
        flow(double, x)
        return x * 2.0

    def twice(x):
        return flow(double, x) + flow(double, x)

    for f, times in ((unused, 1), (twice, 2)):
        ready = compile(f)
        ready(X)
        found, count = counted(calls, ready, X)
        assert count == times * FLOWS[flow]
        np.testing.assert_allclose(found, f(X), rtol=1e-15)


def test_a_checked_function_runs_no_impure_op_in_a_loop():
    double, calls = counting(False)
    f = pb.jit(lambda x: loop(double, x), check=True)
    with pytest.raises(errors.GraphError, match="not all of it is pure"):
        f(X)
    assert not calls


DERIVATIVES = {
    "grad": pb.grad,
    "compiled": lambda f: pb.jit(pb.grad(f)),
    "of compiled": lambda f: pb.grad(pb.jit(f)),
    "checkpoint": lambda f: pb.grad(pb.checkpoint(f)),
    "compiled checkpoint": lambda f: pb.jit(pb.grad(pb.checkpoint(f))),
    "forward": lambda f: lambda x: pb.jvp(f, (x,), (x,))[1],
    "compiled forward": lambda f: pb.jit(lambda x: pb.jvp(f, (x,), (x,))[1]),
}


@pytest.mark.parametrize("name", DERIVATIVES)
@pytest.mark.parametrize("flow", [loop, branch, sequence], ids=lambda f: f.__name__)
def test_a_derivative_of_a_loop_runs_an_impure_op_as_often_or_refuses(flow, name):
    derive = DERIVATIVES[name]
    double, calls = counting(False)
    f = derive(lambda x: pb.sum(pb.sin(flow(double, x))))
    staged = ("compiled", "of compiled", "compiled checkpoint", "compiled forward")
    if name in staged and (flow is branch or name == "compiled forward"):
        with pytest.raises(errors.GraphError, match="would run double again"):
            f(X)
        return
    f(X)
    found, count = counted(calls, f, X)
    assert count == FLOWS[flow]
    np.testing.assert_allclose(found, derive(lambda x: pb.sum(pb.sin(flow(lambda c: c * 2.0, x))))(X), rtol=1e-14)


ONES = np.ones(4)


def looping(note):
    return lambda x: pb.scan(lambda c, _: (note(ONES), (2.0 * c, None))[1], x, np.zeros(3))[0]


def branching(note):
    return lambda x: pb.cond(x[0] > 0, lambda x: (note(ONES), x)[1], lambda x: x, x)


def repeating(note):
    return lambda x: pb.while_loop(lambda c: c[0] < 0.5, lambda c: (note(ONES), 2.0 * c)[1], x)


@pytest.mark.parametrize(
    ("make", "x", "wanted"),
    [(looping, X, 3), (branching, X, 1), (branching, -X, 0), (repeating, X, 3), (repeating, X + 1.0, 0)],
)
def test_impure_ops_on_constants_run_as_often_as_their_loop_or_branch(make, x, wanted):
    """On constants alone they belong to the body that calls them, not to the trace, nor to the program around it."""
    double, calls = counting(False)
    f = make(double)
    assert counted(calls, f, x)[1] == wanted
    compiled = pb.jit(f)
    for _ in range(3):
        assert counted(calls, compiled, x)[1] == wanted
