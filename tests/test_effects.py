"""What a record says of effects is what passes, routines and budgets do."""

import dataclasses

import numpy as np
import pytest

import pullback as pb
from pullback.ops import load_all_ops
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


def test_ops_of_the_package_are_pure_but_the_fence_of_checkpoints():
    assert {op.name for op in load_all_ops().values() if op.effects != PURE} == {"again"}
