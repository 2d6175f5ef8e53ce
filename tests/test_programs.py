"""Programs: what is checked when one is made, how captured values become inputs, and that both ways to run agree."""

import weakref

import numpy as np
import pytest

import pullback as pb
from pullback.errors import ArgumentError, GraphError
from pullback.program.hoist import hoist
from pullback.program.ir import Program
from pullback.program.run import run
from pullback.program.stage import stage

SPEC = pb.spec_of(np.ones(4))


def busy(x, y):
    t = pb.sin(x) * y + 2.0
    u = pb.reshape(pb.matmul(pb.reshape(t, (2, 2)), np.full((2, 2), 0.5)), (4,))
    return [pb.exp(-t * t) + u * u, pb.greater(t, u), t + 1.0, pb.maximum(t, 0.0)]


def test_symbols_are_made_once_and_before_their_use():
    program = stage(busy, SPEC, SPEC)
    x, y = program.inputs
    for parts, message in [
        (((x,), program.equations, program.outputs), "equation 1, multiply: argument 1 .* is no input"),
        (((x, y), program.equations[::-1], ()), "no earlier result"),
        (((x, x, y), program.equations, ()), "inputs: .* is made twice"),
        (((x, y), program.equations[:1], program.outputs), "output 0 .* is no input"),
    ]:
        with pytest.raises(GraphError, match=message):
            Program(*parts)


def test_a_symbol_of_an_enclosing_trace_may_be_captured():
    inside = []

    def outer(x):
        inside.append(stage(lambda y: [x * y], SPEC))
        return run(inside[0], [np.full(4, 3.0)])

    program = stage(outer, SPEC)
    assert run(program, [np.full(4, 2.0)])[0].tolist() == [6.0] * 4
    with pytest.raises(GraphError, match="no input and no earlier result"):  # the trace is over
        Program(inside[0].inputs, inside[0].equations, inside[0].outputs)


def test_captured_values_become_inputs_where_they_are_wanted():
    array, tensor, number = np.arange(4.0), pb.tensor(np.ones(4), requires_grad=True), np.array(2.0)

    def f(x):
        return [x * array + tensor * number + pb.ones(4)]

    program = stage(f, SPEC)
    kept, values = hoist(program, lambda x: False)
    assert (len(kept.inputs), values) == (1, [])
    hoisted, values = hoist(program)
    assert len(hoisted.inputs) == 1 + len(values)
    assert any(type(v) is pb.Tensor for v in values)
    assert not any(v is number for v in values)  # a single number stays a constant
    x = np.full(4, 5.0)
    for found in (run(kept, [x])[0], run(hoisted, [x, *values])[0]):
        np.testing.assert_array_equal(found.detach().numpy(), x * array + 2.0 + 1.0)


@pytest.mark.parametrize("shapes", [((4,), (4,)), ((4,), ())])
def test_the_prepared_form_computes_what_the_ops_do(shapes):
    rng = np.random.default_rng(0)
    x, y = (rng.normal(size=s) for s in shapes)
    program = stage(busy, pb.spec_of(x), pb.spec_of(y))
    before = x.copy(), y.copy()
    with pb.detect_anomaly():  # every equation runs as an op
        wanted = run(program, [x, y])
    for _ in range(4):  # the first run prepares nothing, the others reuse memory
        found = run(program, [x, y])
        for a, b in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(a, b)
            assert (type(a), a.dtype) == (np.ndarray, b.dtype)
    np.testing.assert_array_equal(x, before[0])
    np.testing.assert_array_equal(y, before[1])


def test_a_program_takes_all_its_inputs():
    program = stage(busy, SPEC, SPEC)
    for _ in range(3):
        with pytest.raises(ArgumentError, match="has 2 inputs, got 1"):
            run(program, [np.ones(4)])


@pytest.mark.parametrize("times", [1, 3])
def test_values_are_freed_after_their_last_use(times):
    seen = []

    @pb.custom_op
    def note(x):
        made = np.array(x) + 1.0
        seen.append((weakref.ref(made), sum(r() is not None for r, _ in seen)))
        return made

    note.def_spec(lambda x: x)

    def chain(x):
        for _ in range(6):
            x = note(x)
        return [x]

    program = stage(chain, SPEC)
    for _ in range(times):
        seen.clear()
        run(program, [np.zeros(4)])
    assert max(alive for _, alive in seen) <= 1
